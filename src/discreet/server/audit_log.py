"""Audit log of a service: answers, refusals, tokens and the stop switch, one hash-chained line per event.

The ledger holds the charges; the audit log names the ledger rows that paid for each answer. It is a separate
file, so that a ledger set back to an earlier state is detected.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from discreet.errors import LedgerError, LedgerTampered, LedgerUnavailable, SourceError
from discreet.ledger.audit_log import AuditLog, check_log, read_log
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from discreet.ledger import Ledger
    from discreet.privacy import Receipt

_MAX_TAIL = 1 << 22  # bytes read from the end to show the last refusals
_MAX_QUESTION = 500  # characters stored of a query, so that free repeats do not fill the disk


class LoggedPosition(NamedTuple):
    """A row of a ledger, as a line of the audit log names it: identity of the ledger, row, hash."""

    ledger: str
    row: int
    hash: str


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """An answer that is about to be sent.

    Attributes
    ----------
    caller : str
        Name of the caller who gets the answer.
    question : object
        Query of the caller, as JSON or as text.
    receipts : sequence of Receipt
        Receipts of the charges that paid for the answer.
    cached : bool
        Whether it was paid for by an earlier request.
    """

    caller: str
    question: Any
    receipts: Sequence[Receipt]
    cached: bool

    @property
    def facts(self) -> dict[str, Any]:
        """Fields of its line in the audit log."""
        rows = [[one.ledger, one.seq, one.hash] for one in self.receipts if one.recorded]
        return {"who": self.caller, **_question_fields(self.question), "rows": rows, "cached": self.cached}

    @property
    def last_row(self) -> int:
        """Highest ledger row among its receipts; 0 if none was recorded."""
        return max((one.seq or 0 for one in self.receipts), default=0)


class ServiceLog:
    """Audit log of one service, shared by its processes.

    Parameters
    ----------
    path : path
        File of the log; lines are appended under a lock that all processes share.

    Privacy
    -------
    For the curator alone: it names callers and their queries. It holds no token, no row and no answer. The
    ledger row that paid for an answer is written before the answer is sent, by whatever route; since each
    row of the ledger contains the hash of the one before, the last named row stands for all earlier ones.
    Lines are handed to the operating system without waiting for the disk: a power failure may lose the last
    of them, and the next answer then names a later row.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = AuditLog(path)
        self._last_row = 0  # last ledger row that this process knows to be in the log

    def write(self, event: str, **facts: Any) -> None:
        """Append one event.

        Raises
        ------
        LedgerUnavailable
            The log cannot be written; the answer that the event is about must not be sent.
        """
        self._write([(event, facts)])

    def _write(self, events: Sequence[tuple[str, dict[str, Any]]]) -> None:
        try:
            self._log.write_all(events)
        except (OSError, SourceError) as problem:
            raise self._cannot_write() from problem

    def _cannot_write(self) -> LedgerUnavailable:
        return LedgerUnavailable(
            f"audit_log {str(self.path)!r} must be a file that can be written, and is not. Make room, or "
            "repair it."
        )

    def write_answers(self, answers: Sequence[AnswerEvent]) -> list[None]:
        """Append answers with the ledger rows that paid for them; return one None per answer."""
        self._write([("answer", answer.facts) for answer in answers])
        self._last_row = max((self._last_row, *(answer.last_row for answer in answers)))
        return [None] * len(answers)

    def cover_receipts(self, caller: str, receipts: Iterable[Receipt]) -> None:
        """Append the receipts of stored answers that are about to be sent, unless a later row is named.

        Raises
        ------
        LedgerUnavailable
            The log cannot be written; the answers must not be sent.
        """
        missing = [receipt for receipt in receipts if (receipt.seq or 0) > self._last_row]
        if missing:
            self.write_answers([AnswerEvent(caller, "history", missing, cached=True)])

    def check_writable(self) -> None:
        """Check that the log can be written.

        Raises
        ------
        LedgerUnavailable
            The log cannot be written, so no answer could be sent.
        """
        try:
            with self.path.open("ab"):
                pass
        except OSError as problem:
            raise self._cannot_write() from problem

    def check(self) -> int:
        """Verify the hash chain of the whole log and return its number of lines."""
        return check_log(self.path) if self.path.exists() else 0

    def confirm(self, ledger: Ledger) -> None:
        """Repair an incomplete last line of the log, then check as :meth:`compare` does.

        Raises
        ------
        LedgerTampered
            The ledger was set back to an earlier state, or is another one.
        """
        if not self.path.exists():
            return
        try:
            self._log.repair()
        except OSError as problem:
            raise self._cannot_write() from problem
        position = self.compare(ledger)
        if position is not None:
            self._last_row = max(self._last_row, position.row)

    def compare(self, ledger: Ledger) -> LoggedPosition | None:
        """Check that a ledger holds the last row that the log names, and change nothing.

        Returns
        -------
        LoggedPosition or None
            The last ledger row that the log names; None if it names none.

        Raises
        ------
        LedgerTampered
            The ledger was set back to an earlier state, or is another one.
        """
        position = self.last_position()
        if position is None:
            return None
        try:
            if position.ledger != ledger.identity:
                raise LedgerTampered("another ledger")
            ledger.confirm(position.row, position.hash)
        except LedgerUnavailable:
            raise
        except LedgerError:
            raise LedgerTampered(
                f"ledger must hold row {position.row}, which the audit trail {str(self.path)!r} names, and "
                "does not: it went back to an earlier state, or is another one, and answers would be paid "
                "twice. Restore the newest backup of the ledger; if there is none, move the trail away only "
                "after lowering the limit by what was lost."
            ) from None
        return position

    def last_position(self) -> LoggedPosition | None:
        """Return the last ledger row that the log names, after checking its hash chain.

        An incomplete last line is left to :meth:`confirm`: its answer was never sent.
        """
        content = read_log(self.path) if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole == content:
            self.check()
        last: LoggedPosition | None = None
        try:
            for text in whole.splitlines():
                line = json.loads(text)
                if line["event"] == "answer":
                    for row in line["rows"]:
                        if last is None or row[1] > last.row:
                            last = LoggedPosition(*row)
        except (ValueError, KeyError, TypeError):
            self.check()  # names the line that is not valid
            raise
        return last

    def last(self, event: str, most: int) -> list[dict[str, Any]]:
        """Return the last events of one kind, newest first."""
        if not self.path.exists():
            return []
        content = read_log(self.path, last=_MAX_TAIL)
        lines = content.split(b"\n")
        events: list[dict[str, Any]] = []
        # The tail may begin inside a line, and end with what a power failure left of one.
        for text in reversed(lines[1 if len(content) == _MAX_TAIL else 0 : -1]):
            if len(events) >= most:
                break
            line = json.loads(text)
            if line["event"] == event:
                events.append(line)
        return events


def _question_fields(question: Any) -> dict[str, Any]:
    """Return the query for the log; of a long one its beginning and its SHA-256."""
    text = question if isinstance(question, str) else canonical(question)
    if len(text) <= _MAX_QUESTION:
        return {"asked": question}
    return {"asked": text[:_MAX_QUESTION], "asked_sha256": hashlib.sha256(text.encode()).hexdigest()}
