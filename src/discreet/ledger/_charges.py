"""One charge, as it happens inside a transaction that holds the book."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from discreet.errors import BudgetExceeded, KeyReused, LedgerTampered, ParameterError, PromiseError
from discreet.ledger._store import TOTAL, owner_scope
from discreet.ledger._verification import request_mark, scopes_of
from discreet.ledger.entries import answer_key, missing_row, receipt_of
from discreet.ledger.transaction import Needs
from discreet.privacy.compose import Spending
from discreet.privacy.receipt import canonical, now, product_version

if TYPE_CHECKING:
    from discreet.ledger.records import Row
    from discreet.ledger.totals import Totals
    from discreet.ledger.transaction import Session
    from discreet.privacy.promises import Promise
    from discreet.privacy.receipt import Receipt


T = TypeVar("T")

_UNKEEPABLE = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What is charged, prepared as far as it can be before the book is held.

    Attributes
    ----------
    identity : str
        Of the ledger.
    totals : Totals
        Of the ledger.
    promises : tuple of Promise
        What the result will promise.
    cost, later : Spending
        What they cost; what will be charged afterwards and must fit too.
    when : str
        The time for the record.
    body : dict
        Of the row, with the scopes of a question that nobody paid for.
    text : str
        The same in canonical form.
    """

    identity: str
    totals: Totals
    promises: tuple[Promise, ...]
    cost: Spending
    later: Spending | None
    when: str
    body: dict[str, Any]
    text: str

    @property
    def needs(self) -> Needs:
        """What is looked at for every charge; repeats look at more."""
        owner, question, request = self.body["owner"], self.body["question"], self.body.get("request")
        return Needs(
            scopes=(TOTAL,) if owner is None else (TOTAL, owner_scope(owner)),
            questions=() if question is None else (question,),
            marks=() if request is None else (request_mark(owner, request),),
        )

    def __call__(self, session: Session) -> Receipt:
        """Charge, or find that it was charged before, or refuse."""
        receipt, owner = self._settled(session), self.body["owner"]
        everybody = self.totals.left(session, None)
        own = everybody if owner is None else self.totals.left(session, owner)
        return dataclasses.replace(receipt, left=(own, everybody))

    def _settled(self, session: Session) -> Receipt:
        owner, question, request = self.body["owner"], self.body["question"], self.body.get("request")
        if request is not None:
            seq = session.mark(request_mark(owner, request))
            if seq is not None:
                return self._repeated(session, request, seq)
        paid = session.paid(question) if question is not None else {}
        if paid:
            earlier = self._earlier(session, paid)
            if earlier is not None:
                if request is not None:
                    self._remember(session, request, earlier)
                return earlier
        body, text = self.body, self.text
        if paid:
            self._check_plan(session)
            body = body | {"scopes": scopes_of(owner, known=True)}
            text = canonical(body)
        self._spend(session, body["scopes"])
        row = session.append(self.when, text)
        if question is not None:
            session.put_paid(question, owner or "", row.seq)
        if request is not None:
            session.put_mark(request_mark(owner, request), row.seq)
        receipt = receipt_of(self.identity, row, body, self.promises)
        # A charge that nobody made before has no answer yet, unless another owner paid for the question.
        return self._answered(session, receipt) if paid else receipt

    def _spend(self, session: Session, scopes: list[str]) -> None:
        """Charge every scope, or refuse for the one that has least room, so that what fits it fits all."""
        refused: list[BudgetExceeded] = []
        for scope in scopes:
            try:
                self.totals.spend(session, scope, self.cost, self.later)
            except BudgetExceeded as problem:
                refused.append(problem)
        if refused:
            raise min(refused, key=lambda problem: problem.left / problem.asked if problem.asked else 0.0)

    def _check_plan(self, session: Session) -> None:
        """Refuse a plan that the total has no room for, as if nobody had paid for the question.

        Otherwise whoever asks with a plan that fits nothing would be told, for free, whether somebody else
        has asked.
        """
        if self.later is not None:
            caps, spent = self.totals.of(session, TOTAL)
            if caps is not None:
                caps.admit(spent, self.cost, scope=TOTAL, later=self.later)

    def _earlier(self, session: Session, paid: dict[str, int]) -> Receipt | None:
        """Return the receipt of a question already paid for by the owner, if it is."""
        owner, first = self.body["owner"], min(paid.values())
        seq = first if owner is None else paid.get(owner)
        row = _row(session, first if seq is None else seq)
        content = row.content
        if content["promises"] != self.body["promises"]:
            raise PromiseError(
                "question of Ledger.charge must be a digest that fixes the promise too, and this one "
                "was charged with another promise. Put the noise into the digest."
            )
        return None if seq is None else self._answered(session, receipt_of(self.identity, row, content))

    def _repeated(self, session: Session, request: str, seq: int) -> Receipt:
        """Return the receipt of what the same request was charged for, whatever happened since."""
        said = _row(session, seq)
        used = said.content
        row = _row(session, used["row"]) if used["type"] == "request" else said
        content = row.content
        same = content["promises"] == self.body["promises"]
        if not (same and self._same_question(content, _digest_in(used))):
            raise KeyReused(
                f"request of Ledger.charge must be a new key for each new question, and {request!r} was "
                f"used before, for row {row.seq} ({content['what']!r}). Choose another key, or repeat the "
                "question as it was."
            )
        return self._answered(session, receipt_of(self.identity, row, content))

    def _same_question(self, content: dict[str, Any], asked: str | None) -> bool:
        question, told = self.body["question"], _digest_in(self.body)
        if question is not None and question == content["question"]:
            return True
        # The digest of a question holds the version of the data; that of what was asked does not.
        if told is not None or asked is not None:
            return told == asked
        return question is None and content["question"] is None and self.body["what"] == content["what"]

    def _remember(self, session: Session, request: str, earlier: Receipt) -> None:
        """Record the key of a request that was free, so that it finds the same answer ever after."""
        owner = self.body["owner"]
        body = {"type": "request", "owner": owner, "request": request, "row": earlier.seq}
        asked = _digest_in(self.body)
        if asked is not None:
            # Its digest alone: a row that nobody pays for must not be as long as whoever asks likes.
            body["asked_sha256"] = asked
        row = session.append(self.when, canonical(body))
        session.put_mark(request_mark(owner, request), row.seq)

    def _answered(self, session: Session, receipt: Receipt) -> Receipt:
        assert receipt.seq is not None
        answer = session.answer(answer_key(receipt.question, receipt.seq))
        return dataclasses.replace(receipt, answer=answer)


@dataclass(frozen=True, slots=True)
class Keeping:
    """An answer that is to be kept, for a charge that this ledger made.

    Attributes
    ----------
    receipt : Receipt
        Of the charge.
    seq : int
        Its row.
    key : str
        Where the answer is kept.
    answer : bytes
        It.
    when, text : str
        Time and body of its row.
    """

    receipt: Receipt
    seq: int
    key: str
    answer: bytes
    when: str
    text: str

    @classmethod
    def of(cls, receipt: Receipt, seq: int, answer: bytes) -> Keeping:
        """Prepare to keep the answer of a charge."""
        key, digest = answer_key(receipt.question, seq), hashlib.sha256(answer).hexdigest()
        text = canonical({"type": "answer", "key": key, "sha256": digest})
        return cls(receipt, seq, key, answer, now(), text)

    @property
    def needs(self) -> Needs:
        """The row of the charge, and the answer that may be there."""
        return Needs(rows=(self.seq,), answers=(self.key,))

    def __call__(self, session: Session) -> bytes:
        """Keep it unless there is one, and return the one that is kept."""
        find_charge(session, self.receipt, self.seq)
        stored = session.answer(self.key)
        if stored is None:
            session.append(self.when, self.text)
            session.put_answer(self.key, self.answer)
        return self.answer if stored is None else stored


@dataclass(frozen=True, slots=True)
class Work(Generic[T]):
    """A charge or an answer to keep, for the ledger that was opened and for no other.

    Attributes
    ----------
    check : callable
        Raises if the session is of another ledger.
    work : callable
        What is done.
    makes_marks : bool
        Whether the table of marks has to be made first.
    """

    check: Callable[[Session], None]
    work: Callable[[Session], T]
    makes_marks: bool

    @property
    def needs(self) -> Needs | None:
        """What the work looks at; None where it runs statements of its own."""
        return None if self.makes_marks else getattr(self.work, "needs", None)

    def __call__(self, session: Session) -> T:
        """Do it."""
        self.check(session)
        if self.makes_marks:
            session.execute(session.marks_table)
        return self.work(session)


def find_charge(session: Session, receipt: Receipt, seq: int) -> None:
    """Make sure that the record has the row of a receipt as the receipt says it."""
    row = session.row(seq)
    assert receipt.ledger is not None
    if row is None or receipt_of(receipt.ledger, row, row.content) != receipt:
        raise LedgerTampered(
            f"row {seq} of the ledger's record must be what the receipt {receipt.id} "
            "says, and is not: the record was rolled back or rewritten. Restore the ledger."
        )


def _digest_in(body: dict[str, Any]) -> str | None:
    """Return the digest of what was asked with a row, whether the row has all of it or the digest alone."""
    if "asked" in body:
        return hashlib.sha256(canonical(body["asked"]).encode("utf-8", "surrogatepass")).hexdigest()
    return body.get("asked_sha256")


def _row(session: Session, seq: int) -> Row:
    row = session.row(seq)
    if row is None:
        raise missing_row(seq)
    return row


class Details(TypedDict, total=False):
    """What a charge says beside its promises; see :meth:`Ledger.charge`."""

    owner: str | None
    what: str
    question: str | None
    schema: str | None
    seeded: bool
    plan: Iterable[Promise]
    asked: Mapping[str, Any] | None
    request: str | None


def prepared(promises: tuple[Promise, ...], details: Details, *, identity: str, totals: Totals) -> Charge:
    """Make a charge out of what somebody gave, and refuse what no ledger can keep."""
    owner, request, asked = details.get("owner"), details.get("request"), details.get("asked")
    named = {
        "what": details.get("what", "charge"),
        "owner": owner,
        "question": details.get("question"),
        "schema": details.get("schema"),
    }
    check_words(**named, request=request)
    cost, said = priced(promises)
    planned = tuple(details.get("plan", ()))
    body: dict[str, Any] = {
        "type": "charge",
        **named,
        "promises": said,
        "scopes": scopes_of(owner, known=False),
        "seeded": bool(details.get("seeded", False)),
        "version": product_version(),
    }
    if asked is not None:
        body["asked"] = dict(asked) if isinstance(asked, Mapping) else asked
    if request is not None:
        body["request"] = request
    return Charge(
        identity=identity,
        totals=totals,
        promises=promises,
        cost=cost,
        later=sum(map(Spending.of, planned), Spending()) if planned else None,
        when=now(),
        body=body,
        text=written(body),
    )


@lru_cache(maxsize=512)
def priced(promises: tuple[Promise, ...]) -> tuple[Spending, list[dict[str, Any]]]:
    """Return what promises cost, and how the record says them: the same few come again and again."""
    cost = Spending.of(promises)
    return cost, json.loads(canonical([promise.to_dict() for promise in promises]))


def check_words(**named: object) -> None:
    """Refuse names that are empty or that a database cannot keep; None is no name."""
    for name, value in named.items():
        if value is None and name != "what":
            continue
        if not isinstance(value, str) or not value:
            raise ParameterError(
                f"{name} of a charge must be a non-empty string, got {value!r}. "
                "Leave it out if there is none."
            )
        # Databases refuse these, and would undo the charges of others in the same transaction.
        if _UNKEEPABLE.search(value):
            raise ParameterError(
                f"{name} of a charge must be text without zero bytes and half characters, got {value!r}. "
                "Leave them out."
            )


def written(body: dict[str, Any]) -> str:
    """Return the body of a charge's row as text; all but what was asked is known to be plain."""
    asked = body.get("asked", {})
    try:
        if not isinstance(asked, dict):
            raise TypeError(f"it is {type(asked).__name__}")
        return canonical(body)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"asked of Ledger.charge must be a dict of plain JSON values, and is not ({error}). "
            "Write values with their to_dict()."
        ) from None
