"""The audit trail: one line of JSON for everything that happened, each with the hash of the one before.

Beside the ledger, which holds what was paid, the trail holds who came, what was refused and who turned the
switch. It is kept elsewhere, so that a ledger that went back to an earlier state shows.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerError, LedgerTampered, LedgerUnavailable, SourceError
from discreet.job.log import Log, check_log, mend_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from discreet.privacy import Ledger, Receipt

_MOST_TAIL = 1 << 22  # bytes that are read to show the last refusals


class Trail:
    """What a service wrote down about itself.

    Parameters
    ----------
    path : path
        One line for each event, appended under a lock that all processes share.

    Privacy
    -------
    For the curator alone: it names who asked what. No token is in it, no row and no answer.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = Log(path)

    def write(self, event: str, **facts: Any) -> None:
        """Append one event.

        Raises
        ------
        LedgerUnavailable
            It cannot be written; what it is about must not leave.
        """
        try:
            self._log.write(event, **facts)
        except (OSError, SourceError) as problem:
            raise LedgerUnavailable(
                f"audit_log {str(self.path)!r} must be a file that can be written, and is not. Make room, or "
                "repair it."
            ) from problem

    def answered(self, who: str, asked: Any, receipts: Iterable[Receipt], *, cached: bool) -> None:
        """Append an answer, with the rows of the ledger that paid for it."""
        rows = [[receipt.ledger, receipt.seq, receipt.hash] for receipt in receipts if receipt.recorded]
        self.write("answer", who=who, asked=asked, rows=rows, cached=cached)

    def check(self) -> int:
        """Verify the whole trail; return how many lines it has."""
        return check_log(self.path) if self.path.exists() else 0

    def confirm(self, ledger: Ledger) -> None:
        """Refuse a ledger that does not hold what the trail says was paid.

        Raises
        ------
        LedgerTampered
            The ledger went back to an earlier state, or is another one.
        """
        mend_log(self.path)
        self.check()
        furthest: tuple[str, int, str] | None = None
        for line in self._lines():
            if line["event"] == "answer":
                for identity, seq, digest in line["rows"]:
                    if furthest is None or seq > furthest[1]:
                        furthest = (identity, seq, digest)
        if furthest is None:
            return
        identity, seq, digest = furthest
        try:
            if identity != ledger.identity:
                raise LedgerTampered("another ledger")
            ledger.confirm(seq, digest)
        except LedgerUnavailable:
            raise
        except LedgerError:
            raise LedgerTampered(
                f"ledger must hold row {seq}, which the audit trail {str(self.path)!r} names, and does not: "
                "it went back to an earlier state, or is another one, and answers would be paid twice. "
                "Restore the newest backup of the ledger; if there is none, move the trail away only after "
                "lowering the limit by what was lost."
            ) from None

    def last(self, event: str, most: int) -> list[dict[str, Any]]:
        """Return the last events of one kind, newest first."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _MOST_TAIL))
            lines = file.read().split(b"\n")
        found: list[dict[str, Any]] = []
        for text in reversed(lines[1:] if size > _MOST_TAIL else lines):
            if len(found) >= most:
                break
            if text:
                line = json.loads(text)
                if line["event"] == event:
                    found.append(line)
        return found

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for text in file:
                yield json.loads(text)
