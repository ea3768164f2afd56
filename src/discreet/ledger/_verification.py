"""The replay behind ``Ledger.check``: the record against itself, the totals against the record."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from discreet.errors import BudgetExceeded, LedgerTampered
from discreet.ledger._caps import Caps
from discreet.ledger._store import FORMAT, TOTAL, owner_scope
from discreet.ledger.records import Row, verified
from discreet.privacy.compose import Spending
from discreet.privacy.promises import promise_from_dict
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.ledger.transaction import Session


class Replay:
    """What the totals must be, computed again from the record alone.

    Attributes
    ----------
    spent : dict of str to Spending
        By scope.
    caps : dict of str to (Caps or None)
        By scope, as fixed when the scope was opened.
    paid : dict of (str, str) to int
        The row in which an owner paid for a question.
    answers : dict of str to str
        Digest of each stored answer.
    marks : dict of str to int
        The row that has the key of a request, or the data set.
    """

    def __init__(self) -> None:
        self.spent: dict[str, Spending] = {}
        self.caps: dict[str, Caps | None] = {}
        self.paid: dict[tuple[str, str], int] = {}
        self.answers: dict[str, str] = {}
        self.marks: dict[str, int] = {}
        self._known: set[str] = set()
        self._payers: dict[int, str | None] = {}
        self._owner_caps: Caps | None = None

    def follow(self, row: Row) -> None:
        """Repeat what the row says was done, under the rules of the day it was done."""
        try:
            content = row.content
            match content["type"]:
                case "open":
                    self._open(row, content)
                case "owner limit":
                    self._limit(content)
                case "charge":
                    self._charge(row, content)
                case "answer":
                    self._answer(content)
                case "request":
                    self._request(row, content)
                case "bind":
                    self._bind(row, content)
                case "others":
                    for ledger in content["ledgers"]:
                        self._mark(other_mark(ledger), row.seq)
                case other:
                    raise ValueError(f"unknown type {other!r}")
        except (ValueError, KeyError, TypeError, BudgetExceeded) as error:
            raise LedgerTampered(
                f"row {row.seq} of the ledger's record must be a step that the ledger allows, and is "
                f"not ({error}). Restore the ledger from a backup that checks."
            ) from error

    def _open(self, row: Row, content: Mapping[str, Any]) -> None:
        if row.seq != 1 or content["format"] != FORMAT:
            raise ValueError("a ledger is opened once, in its first row")
        self._owner_caps = read_caps(content["owner_caps"])
        self.caps[TOTAL] = read_caps(content["caps"])
        self.spent[TOTAL] = Spending()

    def _limit(self, content: Mapping[str, Any]) -> None:
        scope = owner_scope(content["owner"])
        if self.spent.get(scope, Spending()).charges:
            raise ValueError("an owner's limit is set before the first charge")
        self.caps[scope] = read_caps(content["caps"])
        self.spent[scope] = Spending()

    def _charge(self, row: Row, content: Mapping[str, Any]) -> None:
        asked = Spending.of([promise_from_dict(promise) for promise in content["promises"]])
        question, owner = content["question"], content["owner"]
        scopes = scopes_of(owner, known=question in self._known)
        if not scopes or content["scopes"] != scopes:
            raise ValueError(f"it must charge {scopes}")
        for scope in scopes:
            caps = self.caps.setdefault(scope, self._owner_caps)
            before = self.spent.get(scope, Spending())
            self.spent[scope] = before + asked if caps is None else caps.admit(before, asked, scope=scope)
        if question is not None:
            self.paid[question, owner or ""] = row.seq
            self._known.add(question)
        self._payers[row.seq] = owner
        if "request" in content:
            self._mark(request_mark(owner, content["request"]), row.seq)

    def _request(self, row: Row, content: Mapping[str, Any]) -> None:
        owner = content["owner"]
        if content["row"] not in self._payers or owner not in (None, self._payers[content["row"]]):
            raise ValueError("a request that was free repeats a charge of its owner")
        self._mark(request_mark(owner, content["request"]), row.seq)

    def _bind(self, row: Row, content: Mapping[str, Any]) -> None:
        if not isinstance(content["dataset"], str):
            raise TypeError("a data set has a name")
        self._mark(DATASET_MARK, row.seq)

    def _mark(self, key: str, seq: int) -> None:
        if key in self.marks:
            raise ValueError(f"{key} has a row already")
        self.marks[key] = seq

    def _answer(self, content: Mapping[str, Any]) -> None:
        if content["key"] in self.answers:
            raise ValueError("a question has one answer")
        self.answers[content["key"]] = content["sha256"]


def check(session: Session) -> None:
    """Verify the chain, repeat every step, and compare the result with the tables."""
    session.renew()
    replay = Replay()
    row = None
    for row in verified(session.record()):
        replay.follow(row)
    identity, seq, digest = session.head()
    if row is None or (row.seq, row.hash) != (seq, digest):
        last = 0 if row is None else row.seq
        raise LedgerTampered(
            f"row {seq} of the ledger's record must be its last, and row {last} is: rows were deleted "
            "from the end or added past it. Restore the ledger from a backup that checks."
        )
    first = session.row(1)
    if first is None or first.hash != identity:
        raise LedgerTampered(
            "row 1 of the ledger's record must be the one that gave the ledger its identity, and is "
            "not. Restore the ledger from a backup that checks."
        )
    _compare_totals(session, replay)
    _compare_answers(session, replay)


def _compare_totals(session: Session, replay: Replay) -> None:
    found = session.totals()
    for scope in sorted({*found, *replay.spent}):
        stored = found.get(scope)
        if stored is None or scope not in replay.spent:
            raise LedgerTampered(
                f"the total of {scope!r} must be there if and only if the record has it, and is not. "
                "Restore the ledger from a backup that checks."
            )
        expected = write_caps(replay.caps[scope]), canonical(replay.spent[scope].to_dict())
        if stored != expected:
            raise LedgerTampered(
                f"the total of {scope!r} must be the sum of its rows, and is not: it was changed. "
                "Restore the ledger from a backup that checks."
            )


def _compare_answers(session: Session, replay: Replay) -> None:
    rows = session.execute("SELECT question, owner, seq FROM questions")
    if {(str(question), str(owner)): int(seq) for question, owner, seq in rows} != replay.paid:
        raise LedgerTampered(
            "the list of questions must be the record's, and is not: it was changed. "
            "Restore the ledger from a backup that checks."
        )
    if session.marks() != replay.marks:
        raise LedgerTampered(
            "the list of requests' keys must be the record's, and is not: it was changed. "
            "Restore the ledger from a backup that checks."
        )
    keys = {str(key) for (key,) in session.execute("SELECT key FROM answers")}
    for key in sorted(keys | set(replay.answers)):
        answer = session.answer(key)
        if answer is None or hashlib.sha256(answer).hexdigest() != replay.answers.get(key):
            raise LedgerTampered(
                f"the answer to {key!r} must be the one recorded, and is not: it was changed. "
                "Restore the ledger from a backup that checks."
            )


def scopes_of(owner: str | None, *, known: bool) -> list[str]:
    """Return whom a charge is charged to, in the order in which scopes are always taken."""
    return [*([] if known else [TOTAL]), *([] if owner is None else [owner_scope(owner)])]


DATASET_MARK = canonical(["dataset"])
"""Under which the row that binds the ledger to a data set is found."""


def other_mark(ledger: str) -> str:
    """Return under which the row is found that names another ledger of the same table."""
    return canonical(["other ledger", ledger])


def other_ledgers(session: Session) -> list[str]:
    """Return the identities of all other ledgers of the same table, in the order of their rows."""
    if "marks" not in session.tables():
        return []
    start = canonical(["other ledger"])[:-1]
    found = session.execute(
        "SELECT key FROM marks WHERE substr(key, 1, length(?)) = ? ORDER BY seq, key", start, start
    )
    return [json.loads(key)[1] for (key,) in found]


def request_mark(owner: str | None, request: str) -> str:
    """Return under which the row of an owner's request is found."""
    return canonical(["request", owner, request])


def read_caps(values: Mapping[str, Any] | None) -> Caps | None:
    """Make caps from the JSON of a row."""
    return None if values is None else Caps.from_dict(values)


def write_caps(caps: Caps | None) -> str | None:
    """Write caps as the text of a total."""
    return None if caps is None else canonical(caps.to_dict())


__all__ = [
    "DATASET_MARK",
    "Replay",
    "check",
    "other_ledgers",
    "other_mark",
    "read_caps",
    "request_mark",
    "scopes_of",
    "write_caps",
]
