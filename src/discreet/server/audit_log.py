"""The audit trail: one line of JSON for everything that happened, each with the hash of the one before.

Beside the ledger, which holds what was paid, the trail holds who came, what was refused and who turned the
switch. It is kept elsewhere, so that a ledger that went back to an earlier state shows.
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

_MAX_TAIL = 1 << 22  # bytes that are read to show the last refusals
_MAX_QUESTION = 500  # characters of a question: whoever asks free repeats must not fill the disk


class LoggedPosition(NamedTuple):
    """A row of a ledger, as a line of the trail names it."""

    ledger: str
    row: int
    hash: str


@dataclass(frozen=True, slots=True)
class AnswerEvent:
    """An answer that is about to leave.

    Attributes
    ----------
    who : str
        To whom.
    asked : object
        What was asked, as JSON or in words.
    receipts : sequence of Receipt
        What paid for it.
    cached : bool
        Whether it was paid for before.
    """

    who: str
    asked: Any
    receipts: Sequence[Receipt]
    cached: bool

    @property
    def facts(self) -> dict[str, Any]:
        """What the trail says of it."""
        rows = [[paid.ledger, paid.seq, paid.hash] for paid in self.receipts if paid.recorded]
        return {"who": self.who, **_question_fields(self.asked), "rows": rows, "cached": self.cached}

    @property
    def furthest(self) -> int:
        """The last row of the ledger that it names."""
        return max((paid.seq or 0 for paid in self.receipts), default=0)


class ServiceLog:
    """What a service wrote down about itself.

    Parameters
    ----------
    path : path
        One line for each event, appended under a lock that all processes share.

    Privacy
    -------
    For the curator alone: it names who asked what. No token is in it, no row and no answer. The row of the
    ledger that paid for an answer is named before the answer leaves, on whichever way; since each row of the
    ledger has the hash of the one before, the furthest that is named stands for all before it. Lines are
    handed to the system and not waited for: a power failure may lose the last of them, and then the next
    answer that leaves names a row further on.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = AuditLog(path)
        self._furthest = 0  # row of the ledger that this process knows to be named

    def write(self, event: str, **facts: Any) -> None:
        """Append one event.

        Raises
        ------
        LedgerUnavailable
            It cannot be written; what it is about must not leave.
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
        """Append answers, with the rows of the ledger that paid for them."""
        self._write([("answer", answer.facts) for answer in answers])
        self._furthest = max((self._furthest, *(answer.furthest for answer in answers)))
        return [None] * len(answers)

    def cover_receipts(self, who: str, receipts: Iterable[Receipt]) -> None:
        """See to it that answers which leave again, or for the first time, are covered by a named row.

        Raises
        ------
        LedgerUnavailable
            It cannot be written; the answers must not leave.
        """
        missing = [receipt for receipt in receipts if (receipt.seq or 0) > self._furthest]
        if missing:
            self.write_answers([AnswerEvent(who, "history", missing, cached=True)])

    def check_writable(self) -> None:
        """Make sure that the trail can be written to.

        Raises
        ------
        LedgerUnavailable
            It cannot, so that no answer would leave.
        """
        try:
            with self.path.open("ab"):
                pass
        except OSError as problem:
            raise self._cannot_write() from problem

    def check(self) -> int:
        """Verify the whole trail; return how many lines it has."""
        return check_log(self.path) if self.path.exists() else 0

    def confirm(self, ledger: Ledger) -> None:
        """Refuse a ledger that does not hold what the trail says was paid; cut off half a last line before.

        Raises
        ------
        LedgerTampered
            The ledger went back to an earlier state, or is another one.
        """
        if not self.path.exists():
            return
        try:
            self._log.mend()
        except OSError as problem:
            raise self._cannot_write() from problem
        named = self.compare(ledger)
        if named is not None:
            self._furthest = max(self._furthest, named.row)

    def compare(self, ledger: Ledger) -> LoggedPosition | None:
        """Refuse a ledger that does not hold what the trail says was paid, and change nothing.

        Returns
        -------
        Named or None
            The furthest row that is named.
        """
        named = self.furthest()
        if named is None:
            return None
        try:
            if named.ledger != ledger.identity:
                raise LedgerTampered("another ledger")
            ledger.confirm(named.row, named.hash)
        except LedgerUnavailable:
            raise
        except LedgerError:
            raise LedgerTampered(
                f"ledger must hold row {named.row}, which the audit trail {str(self.path)!r} names, and does "
                "not: it went back to an earlier state, or is another one, and answers would be paid twice. "
                "Restore the newest backup of the ledger; if there is none, move the trail away only after "
                "lowering the limit by what was lost."
            ) from None
        return named

    def furthest(self) -> LoggedPosition | None:
        """Return the furthest row of the ledger that is named, of a trail that is intact.

        Half a last line is left to :meth:`confirm`: it is about nothing that left.
        """
        content = read_log(self.path) if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if whole == content:
            self.check()
        furthest: LoggedPosition | None = None
        try:
            for text in whole.splitlines():
                line = json.loads(text)
                if line["event"] == "answer":
                    for row in line["rows"]:
                        if furthest is None or row[1] > furthest.row:
                            furthest = LoggedPosition(*row)
        except (ValueError, KeyError, TypeError):
            self.check()  # says which line is none of ours
            raise
        return furthest

    def last(self, event: str, most: int) -> list[dict[str, Any]]:
        """Return the last events of one kind, newest first."""
        if not self.path.exists():
            return []
        content = read_log(self.path, last=_MAX_TAIL)
        lines = content.split(b"\n")
        found: list[dict[str, Any]] = []
        # The first of a tail may be half a line, and the last what a power failure left of one.
        for text in reversed(lines[1 if len(content) == _MAX_TAIL else 0 : -1]):
            if len(found) >= most:
                break
            line = json.loads(text)
            if line["event"] == event:
                found.append(line)
        return found


def _question_fields(asked: Any) -> dict[str, Any]:
    """Return what was asked, the beginning and a hash of it where it is long."""
    text = asked if isinstance(asked, str) else canonical(asked)
    if len(text) <= _MAX_QUESTION:
        return {"asked": asked}
    return {"asked": text[:_MAX_QUESTION], "asked_sha256": hashlib.sha256(text.encode()).hexdigest()}
