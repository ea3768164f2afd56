"""Verification for ``Ledger.check``: the hash chain of the record, and its replay against the tables."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from discreet.errors import BudgetExceeded, LedgerTampered
from discreet.ledger._account import spend, spending_under
from discreet.ledger._caps import Caps, read_caps, write_caps
from discreet.ledger.records import (
    DATASET_MARK,
    FORMAT,
    TOTAL,
    LedgerRow,
    LogAnchor,
    changed_mark,
    charge_scopes,
    dataset_mark,
    dataset_scope,
    group_scope,
    log_mark,
    member_mark,
    other_mark,
    owner_scope,
    request_mark,
    verify_chain,
)
from discreet.privacy.composition import Spending
from discreet.privacy.promises import promise_from_dict
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.ledger.transaction import Transaction
    from discreet.privacy.promises import Promise


class Replay:
    """Totals, payments, answers and marks, computed again from the record alone.

    Attributes
    ----------
    spent : dict of str to Spending
        Spending of each scope.
    caps : dict of str to (Caps or None)
        Caps of each scope, as fixed when the scope was opened.
    paid : dict of (str, str) to int
        Number of the row in which an owner paid for a question.
    answers : dict of str to str
        SHA-256 digest of each stored answer.
    marks : dict of str to int
        Number of the row that has the key of a request, or the data set.
    """

    def __init__(self) -> None:
        """Begin before the first row."""
        self.spent: dict[str, Spending] = {}
        self.caps: dict[str, Caps | None] = {}
        self.paid: dict[tuple[str, str], int] = {}
        self.answers: dict[str, str] = {}
        self.marks: dict[str, int] = {}
        self._known: set[str] = set()
        self._anchored: dict[str, int] = {}
        self._payers: dict[int, str | None] = {}
        self._owner_caps: Caps | None = None
        self._groups: dict[str | None, str | None] = {}
        self._charged: dict[str, list[tuple[Promise, ...]]] = {}  # by scopes of owners and groups

    def apply(self, row: LedgerRow) -> None:
        """Apply the step that a row records, under the caps as of that row."""
        try:
            content = row.content
            match content["type"]:
                case "open":
                    self._open(row, content)
                case "owner limit":
                    self._limit(row, owner_scope(content["owner"]), content)
                case "group limit":
                    self._limit(row, group_scope(content["group"]), content)
                case "group":
                    self._groups[content["owner"]] = content["group"]
                    self.marks[member_mark(content["owner"])] = row.seq
                case "charge":
                    self._charge(row, content)
                case "answer":
                    self._answer(content)
                case "request":
                    self._request(row, content)
                case "bind":
                    self._bind(row, content)
                case "data set":
                    self._open_dataset(row, content)
                case "others":
                    for ledger in content["ledgers"]:
                        self._mark(other_mark(ledger), row.seq)
                case "audit log":
                    self._anchor(row, LogAnchor.from_content(content))
                case other:
                    raise ValueError(f"unknown type {other!r}")
        except (ValueError, KeyError, TypeError, BudgetExceeded) as error:
            raise LedgerTampered(
                f"row {row.seq} of the ledger's record must be a step that the ledger allows, and is "
                f"not ({error}). Restore the ledger from a backup that checks."
            ) from error

    def _open(self, row: LedgerRow, content: Mapping[str, Any]) -> None:
        if row.seq != 1 or content["format"] != FORMAT:
            raise ValueError("a ledger is opened once, in its first row")
        self._owner_caps = read_caps(content["owner_caps"])
        self.caps[TOTAL] = read_caps(content["caps"])
        self.spent[TOTAL] = Spending()

    def _limit(self, row: LedgerRow, scope: str, content: Mapping[str, Any]) -> None:
        """Repeat the setting of a limit: under its caps the charges so far are counted anew."""
        charges = self._charged.get(scope, ())
        if charges:
            self.marks[changed_mark(scope)] = row.seq
        self.caps[scope] = read_caps(content["caps"])
        self.spent[scope] = spending_under(self.caps[scope], charges)

    def _charge(self, row: LedgerRow, content: Mapping[str, Any]) -> None:
        """Repeat a charge: its scopes, its cost under the caps, its payment and its mark."""
        promises, planned = (
            tuple(map(promise_from_dict, content.get(name, ()))) for name in ("promises", "plan")
        )
        question, owner = content["question"], content["owner"]
        scopes = charge_scopes(
            owner,
            known=question in self._known,
            dataset=content.get("dataset"),
            group=self._groups.get(owner),
        )
        if not scopes or content["scopes"] != scopes:
            raise ValueError(f"it must charge {scopes}")
        own = owner_scope(owner or "")
        allocated = {own, group_scope(self._groups.get(owner) or "")}
        if any(scope not in self.caps for scope in scopes if scope not in allocated):
            raise ValueError("a data set is opened before its first charge")
        for scope in scopes:
            if scope in allocated:
                self._charged.setdefault(scope, []).append(promises)
            caps = self.caps.setdefault(
                scope, self._owner_caps if scope == owner_scope(owner or "") else None
            )
            before = self.spent.get(scope, Spending())
            self.caps[scope], self.spent[scope] = spend(caps, before, promises, planned, scope=scope)
        if question is not None:
            self.paid[question, owner or ""] = row.seq
            self._known.add(question)
        self._payers[row.seq] = owner
        if "request" in content:
            self._mark(request_mark(owner, content["request"]), row.seq)

    def _request(self, row: LedgerRow, content: Mapping[str, Any]) -> None:
        owner = content["owner"]
        if content["row"] not in self._payers or owner not in (None, self._payers[content["row"]]):
            raise ValueError("a request that was free repeats a charge of its owner")
        self._mark(request_mark(owner, content["request"]), row.seq)

    def _bind(self, row: LedgerRow, content: Mapping[str, Any]) -> None:
        if not isinstance(content["dataset"], str):
            raise TypeError("a data set has a name")
        self._mark(DATASET_MARK, row.seq)

    def _open_dataset(self, row: LedgerRow, content: Mapping[str, Any]) -> None:
        scope = dataset_scope(content["dataset"])
        self._mark(dataset_mark(content["dataset"]), row.seq)
        self.caps[scope], self.spent[scope] = read_caps(content["caps"]), Spending()

    def _anchor(self, row: LedgerRow, anchor: LogAnchor) -> None:
        if anchor.line <= self._anchored.get(anchor.log, 0):
            raise ValueError("an audit log is anchored at later and later lines")
        self._anchored[anchor.log] = anchor.line
        self.marks[log_mark(anchor.log)] = row.seq

    def _mark(self, key: str, seq: int) -> None:
        if key in self.marks:
            raise ValueError(f"{key} has a row already")
        self.marks[key] = seq

    def _answer(self, content: Mapping[str, Any]) -> None:
        if content["key"] in self.answers:
            raise ValueError("a question has one answer")
        self.answers[content["key"]] = content["sha256"]


def check_record(transaction: Transaction) -> None:
    """Verify the chain, repeat every step, and compare the result with the tables."""
    # Nothing from the cache: what is checked is what the database holds.
    transaction.reset()
    replay = Replay()
    row = None
    for row in verify_chain(transaction.record()):
        replay.apply(row)
    identity, seq, digest = transaction.head()
    if row is None or (row.seq, row.hash) != (seq, digest):
        last = 0 if row is None else row.seq
        raise LedgerTampered(
            f"row {seq} of the ledger's record must be its last, and row {last} is: rows were deleted "
            "from the end or added past it. Restore the ledger from a backup that checks."
        )
    first = transaction.row(1)
    if first is None or first.hash != identity:
        raise LedgerTampered(
            "row 1 of the ledger's record must be the one that gave the ledger its identity, and is "
            "not. Restore the ledger from a backup that checks."
        )
    _compare_totals(transaction, replay)
    _compare_answers(transaction, replay)


def _compare_totals(transaction: Transaction, replay: Replay) -> None:
    """Raise LedgerTampered unless the table of totals is what the record adds up to."""
    totals = transaction.totals()
    for scope in sorted({*totals, *replay.spent}):
        stored = totals.get(scope)
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


def _compare_answers(transaction: Transaction, replay: Replay) -> None:
    """Raise LedgerTampered unless payments, marks and answers are those of the record."""
    rows = transaction.execute("SELECT question, owner, seq FROM questions")
    if {(str(question), str(owner)): int(seq) for question, owner, seq in rows} != replay.paid:
        raise LedgerTampered(
            "the list of questions must be the record's, and is not: it was changed. "
            "Restore the ledger from a backup that checks."
        )
    if transaction.marks() != replay.marks:
        raise LedgerTampered(
            "the list of requests' keys must be the record's, and is not: it was changed. "
            "Restore the ledger from a backup that checks."
        )
    keys = {str(key) for (key,) in transaction.execute("SELECT key FROM answers")}
    for key in sorted(keys | set(replay.answers)):
        answer = transaction.answer(key)
        if answer is None or hashlib.sha256(answer).hexdigest() != replay.answers.get(key):
            raise LedgerTampered(
                f"the answer to {key!r} must be the one recorded, and is not: it was changed. "
                "Restore the ledger from a backup that checks."
            )
