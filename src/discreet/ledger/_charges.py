"""Operations that write to a ledger.

Each is prepared before the write lock is held, and executed inside a transaction of :meth:`Store.write_all`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

from discreet.errors import (
    BudgetExceeded,
    KeyReused,
    LedgerError,
    LedgerTampered,
    ParameterError,
    PromiseError,
)
from discreet.formatting import number
from discreet.ledger._account import Account, ChargeTotals, describe_scaled, promise_cost, spend
from discreet.ledger.records import (
    TOTAL,
    answer_key,
    charge_scopes,
    group_scope,
    make_receipt,
    member_mark,
    missing_row_error,
    request_mark,
)
from discreet.ledger.transaction import ReadSet
from discreet.privacy.receipt import canonical, now, product_version

if TYPE_CHECKING:
    from discreet.ledger.records import LedgerRow
    from discreet.ledger.transaction import Transaction
    from discreet.privacy.promises import Promise
    from discreet.privacy.receipt import Receipt

T = TypeVar("T")

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")  # PostgreSQL refuses zero bytes, UTF-8 lone surrogates


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Operation that charges promises, prepared as far as possible before the write lock is held.

    Attributes
    ----------
    identity : str
        Identity of the ledger, for the receipt.
    totals : ChargeTotals
        Totals of the ledger, to which the charge is added.
    promises, planned : tuple of Promise
        Promises of the result that is paid for, and of charges to come that must fit too.
    when : str
        Universal time for the row.
    body : dict
        JSON body of the row, with the scopes of a question that was not paid for before.
    text : str
        The body in canonical form.
    """

    identity: str
    totals: ChargeTotals
    promises: tuple[Promise, ...]
    planned: tuple[Promise, ...]
    when: str
    body: dict[str, Any]
    text: str

    @property
    def read_set(self) -> ReadSet:
        """Entries that every charge reads; a repeat reads more."""
        owner, question, request = self.body["owner"], self.body["question"], self.body.get("request")
        member = None if owner is None else self.totals.expected_group(owner)
        group = None if member is None else member[1]
        marks = [] if owner is None else [member_mark(owner)]
        return ReadSet(
            rows=() if member is None else (member[0],),
            scopes=(*self.body["scopes"], *(() if group is None else (group_scope(group),))),
            questions=() if question is None else (question,),
            marks=tuple(marks if request is None else [*marks, request_mark(owner, request)]),
        )

    def __call__(self, transaction: Transaction) -> Receipt:
        """Return the receipt of the charge, or of an earlier one that paid for the same, or refuse."""
        receipt, owner = self._find_or_charge(transaction), self.body["owner"]
        total = self.totals.nearest_total(transaction, self.body.get("dataset"))
        own = total if owner is None else self.totals.nearest_own(transaction, owner)
        return dataclasses.replace(receipt, accounts=(own, total))

    def _find_or_charge(self, transaction: Transaction) -> Receipt:
        """Return the receipt of the same request or question if there is one, else charge it."""
        owner, question, request = self.body["owner"], self.body["question"], self.body.get("request")
        if request is not None:
            seq = transaction.mark(request_mark(owner, request))
            if seq is not None:
                return self._find_repeated(transaction, request, seq)
        paid = transaction.paid(question) if question is not None else {}
        if paid:
            earlier = self._find_paid(transaction, paid)
            if earlier is not None:
                if request is not None:
                    self._record_request(transaction, request, earlier)
                return earlier
        body, text = self.body, self.text
        group = None if owner is None else self.totals.group(transaction, owner)
        if paid:
            self._check_plan(transaction)
        if paid or group is not None:
            # A question that was paid for is charged to the owner and the owner's group alone.
            scopes = charge_scopes(owner, known=bool(paid), dataset=body.get("dataset"), group=group)
            body = body | {"scopes": scopes}
            text = canonical(body)
        # Spent before the row is appended: a refusal leaves no row.
        self._spend(transaction, body["scopes"])
        row = transaction.append(self.when, text)
        if question is not None:
            transaction.put_paid(question, owner or "", row.seq)
        if request is not None:
            transaction.put_mark(request_mark(owner, request), row.seq)
        receipt = make_receipt(self.identity, row, body, self.promises)
        # A new charge has no answer yet, unless another owner paid for the question.
        return self._with_answer(transaction, receipt) if paid else receipt

    def _spend(self, transaction: Transaction, scopes: list[str]) -> None:
        """Charge every scope, or refuse for the one with least room, so that what fits it fits all."""
        errors: list[BudgetExceeded] = []
        for scope in scopes:
            account = Account(*self.totals.caps_and_spending(transaction, scope))
            try:
                self.totals.spend(transaction, scope, self.promises, self.planned)
            except BudgetExceeded as problem:
                errors.append(self._explain(problem, account))
        if errors:
            raise min(errors, key=lambda problem: problem.scale)

    def _explain(self, problem: BudgetExceeded, account: Account) -> BudgetExceeded:
        """Return the error with what would still fit."""
        problem.scale = account.scale(self.promises, self.planned)
        if not problem.scale:
            fits = "Nothing like it would fit any more; stop here, or begin a new ledger with new rows."
        elif len(self.promises) == 1 and not self.planned:
            fits = f"{describe_scaled(self.promises[0], problem.scale)} would still fit."
        else:
            fits = f"With {number(1 / problem.scale, rounding='up')} times the noise it would still fit."
        problem.advice = fits
        return problem

    def _check_plan(self, transaction: Transaction) -> None:
        """Refuse a plan that total or data set have no room for, as if the question was not paid for.

        Otherwise a caller with a plan that fits nothing would learn for free whether another owner has asked.
        """
        if self.planned:
            for scope in charge_scopes(None, known=False, dataset=self.body.get("dataset")):
                account = Account(*self.totals.caps_and_spending(transaction, scope))
                try:
                    spend(account.caps, account.spent, self.promises, self.planned, scope=TOTAL)
                except BudgetExceeded as problem:
                    raise self._explain(problem, account) from None

    def _find_paid(self, transaction: Transaction, paid: dict[str, int]) -> Receipt | None:
        """Return the receipt of the owner's earlier charge for the question; None if only others paid."""
        # Without an owner, whoever paid first paid for the total.
        owner, first = self.body["owner"], min(paid.values())
        seq = first if owner is None else paid.get(owner)
        row = _row(transaction, first if seq is None else seq)
        content = row.content
        if content.get("dataset") != self.body.get("dataset"):
            raise LedgerError(
                "question of Ledger.charge must be a digest that fixes the data set too, and this one was "
                "charged for another. Put the name of the data set into the digest."
            )
        if content["promises"] != self.body["promises"]:
            raise PromiseError(
                "question of Ledger.charge must be a digest that fixes the promise too, and this one "
                "was charged with another promise. Put the noise into the digest."
            )
        return (
            None if seq is None else self._with_answer(transaction, make_receipt(self.identity, row, content))
        )

    def _find_repeated(self, transaction: Transaction, request: str, seq: int) -> Receipt:
        """Return the receipt of the charge that the same request made before, whatever happened since."""
        first = _row(transaction, seq)
        first_content = first.content
        row = _row(transaction, first_content["row"]) if first_content["type"] == "request" else first
        content = row.content
        same = content["promises"] == self.body["promises"]
        if not (same and self._is_same_question(content, _asked_digest(first_content))):
            raise KeyReused(
                f"request of Ledger.charge must be a new key for each new question, and {request!r} was "
                f"used before, for row {row.seq} ({content['what']!r}). Choose another key, or repeat the "
                "question as it was."
            )
        return self._with_answer(transaction, make_receipt(self.identity, row, content))

    def _is_same_question(self, content: dict[str, Any], asked: str | None) -> bool:
        question, asked_now = self.body["question"], _asked_digest(self.body)
        if question is not None and question == content["question"]:
            return True
        # The digest of a question contains the version of the data; the digest of `asked` does not.
        if asked_now is not None or asked is not None:
            return asked_now == asked
        return question is None and content["question"] is None and self.body["what"] == content["what"]

    def _record_request(self, transaction: Transaction, request: str, earlier: Receipt) -> None:
        """Record the key of a request that was free, so that it finds the same answer ever after."""
        owner = self.body["owner"]
        body = {"type": "request", "owner": owner, "request": request, "row": earlier.seq}
        asked = _asked_digest(self.body)
        if asked is not None:
            # Only its digest, so that free requests cannot fill the record with long rows.
            body["asked_sha256"] = asked
        row = transaction.append(self.when, canonical(body))
        transaction.put_mark(request_mark(owner, request), row.seq)

    def _with_answer(self, transaction: Transaction, receipt: Receipt) -> Receipt:
        assert receipt.seq is not None
        answer = transaction.answer(answer_key(receipt.question, receipt.seq))
        return dataclasses.replace(receipt, answer=answer)


@dataclass(frozen=True, slots=True)
class StoreAnswer:
    """Operation that stores the answer of a charge that this ledger made.

    Attributes
    ----------
    receipt : Receipt
        Receipt of the charge.
    seq : int
        Number of the charge's row.
    key : str
        Key of the table of answers.
    answer : bytes
        Answer to store unless there is one.
    when, text : str
        Universal time and body of the new row.
    """

    receipt: Receipt
    seq: int
    key: str
    answer: bytes
    when: str
    text: str

    @classmethod
    def from_receipt(cls, receipt: Receipt, seq: int, answer: bytes) -> StoreAnswer:
        """Return the operation for the answer of a charge in row `seq`."""
        key, digest = answer_key(receipt.question, seq), hashlib.sha256(answer).hexdigest()
        text = canonical({"type": "answer", "key": key, "sha256": digest})
        return cls(receipt, seq, key, answer, now(), text)

    @property
    def read_set(self) -> ReadSet:
        """Row of the charge, and the answer that may be there."""
        return ReadSet(rows=(self.seq,), answers=(self.key,))

    def __call__(self, transaction: Transaction) -> bytes:
        """Store the answer unless there is one, and return the stored one."""
        check_receipt(transaction, self.receipt, self.seq)
        stored = transaction.answer(self.key)
        if stored is None:
            transaction.append(self.when, self.text)
            transaction.put_answer(self.key, self.answer)
        return self.answer if stored is None else stored


@dataclass(frozen=True, slots=True)
class WriteOperation(Generic[T]):
    """Charge or answer to store, for the ledger that was opened and for no other.

    Attributes
    ----------
    identity : str
        Identity of the ledger that was opened.
    shown : str
        Address of the ledger without secrets, for the message.
    operation : callable
        Function of a transaction that writes inside it and returns the result.
    """

    identity: str
    shown: str
    operation: Callable[[Transaction], T]

    @property
    def read_set(self) -> ReadSet | None:
        """Entries that the operation reads; None where it runs statements of its own."""
        return getattr(self.operation, "read_set", None)

    def __call__(self, transaction: Transaction) -> T:
        """Execute the operation and return its result."""
        check_identity(transaction, self.identity, self.shown)
        return self.operation(transaction)


def check_identity(transaction: Transaction, identity: str, shown: str) -> None:
    """Raise LedgerTampered if the transaction is of another ledger than the one that was opened."""
    if transaction.head()[0] != identity:
        raise LedgerTampered(
            f"the ledger {shown} must be the one that was opened, and is another: it was replaced. Open it "
            "anew if that was meant."
        )


def check_receipt(transaction: Transaction, receipt: Receipt, seq: int) -> None:
    """Raise LedgerTampered unless the record has the row of a receipt as the receipt states it."""
    row = transaction.row(seq)
    assert receipt.ledger is not None
    if row is None or make_receipt(receipt.ledger, row, row.content) != receipt:
        raise LedgerTampered(
            f"row {seq} of the ledger's record must be what the receipt {receipt.id} "
            "says, and is not: the record was rolled back or rewritten. Restore the ledger."
        )


def _asked_digest(body: dict[str, Any]) -> str | None:
    """Return the digest of a row's `asked`, whether the row has all of it or the digest alone."""
    if "asked" in body:
        return hashlib.sha256(canonical(body["asked"]).encode("utf-8", "surrogatepass")).hexdigest()
    return body.get("asked_sha256")


def _row(transaction: Transaction, seq: int) -> LedgerRow:
    row = transaction.row(seq)
    if row is None:
        raise missing_row_error(seq)
    return row


class Details(TypedDict, total=False):
    """Keyword arguments of a charge beside its promises; see :meth:`Ledger.charge`."""

    owner: str | None
    what: str
    question: str | None
    schema: str | None
    seeded: bool
    plan: Iterable[Promise]
    asked: Mapping[str, Any] | None
    request: str | None


def make_charge(
    promises: tuple[Promise, ...],
    details: Details,
    *,
    identity: str,
    totals: ChargeTotals,
    dataset: str | None = None,
) -> Charge:
    """Return the operation of a charge, or refuse arguments that no ledger can keep.

    Parameters
    ----------
    promises : tuple of Promise
        Promises that are charged together.
    details : Details
        Keyword arguments of :meth:`Ledger.charge`.
    identity, totals
        As for :class:`Charge`.
    dataset : str, optional
        Data set of the charge, where several share the ledger: the same key of a request about another one
        is another key.
    """
    owner, request, asked = details.get("owner"), details.get("request"), details.get("asked")
    texts = {
        "what": details.get("what", "charge"),
        "owner": owner,
        "question": details.get("question"),
        "schema": details.get("schema"),
    }
    check_texts(**texts, request=request)
    if dataset is not None and request is not None:
        request = f"{dataset}: {request}"
    # Everything that no ledger can keep is refused before the write lock is held.
    promise_cost(promises, None)
    planned = tuple(details.get("plan", ()))
    body: dict[str, Any] = {
        "type": "charge",
        **texts,
        "promises": _promises_json(promises),
        "scopes": charge_scopes(owner, known=False, dataset=dataset),
        "seeded": bool(details.get("seeded", False)),
        "version": product_version(),
    }
    if dataset is not None:
        body["dataset"] = dataset
    if planned:
        body["plan"] = _promises_json(planned)
    if asked is not None:
        body["asked"] = dict(asked) if isinstance(asked, Mapping) else asked
    if request is not None:
        body["request"] = request
    return Charge(
        identity=identity,
        totals=totals,
        promises=promises,
        planned=planned,
        when=now(),
        body=body,
        text=charge_text(body),
    )


@lru_cache(maxsize=512)
def _promises_json(promises: tuple[Promise, ...]) -> list[dict[str, Any]]:
    """Return promises as the JSON of a row, cached, since few promises are charged often."""
    values: list[dict[str, Any]] = json.loads(canonical([promise.to_dict() for promise in promises]))
    return values


def check_texts(**texts: object) -> None:
    """Refuse texts that are empty or that a database cannot keep; None is no text."""
    for name, value in texts.items():
        if value is None and name != "what":
            continue
        if not isinstance(value, str) or not value:
            raise ParameterError(
                f"{name} of a charge must be a non-empty string, got {value!r}. "
                "Leave it out if there is none."
            )
        # Databases refuse these, and would undo the charges of others in the same transaction.
        if _UNSTORABLE.search(value):
            raise ParameterError(
                f"{name} of a charge must be text without zero bytes and half characters, got {value!r}. "
                "Leave them out."
            )


def charge_text(body: dict[str, Any]) -> str:
    """Return the body of a charge's row as canonical JSON; only `asked` may not be plain JSON."""
    query = body.get("asked", {})
    try:
        if not isinstance(query, dict):
            raise TypeError(f"it is {type(query).__name__}")
        return canonical(body)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"asked of Ledger.charge must be a dict of plain JSON values, and is not ({error}). "
            "Write values with their to_dict()."
        ) from None
