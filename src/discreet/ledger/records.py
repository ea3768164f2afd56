"""The record as a chain of hashes: whoever changes a row must change all rows after it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerTampered

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

START = "0" * 64
"""What the first row has instead of the hash of a row before it."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the record: its number, universal time, canonical JSON body, and two hashes."""

    seq: int
    time: str
    body: str
    previous: str
    hash: str

    @classmethod
    def after(cls, seq: int, previous: str, time: str, body: str) -> Row:
        """Make the row that follows the one numbered `seq` with hash `previous`."""
        return cls(seq + 1, time, body, previous, link(seq + 1, previous, time, body))

    @property
    def content(self) -> dict[str, Any]:
        """The body, parsed."""
        content: dict[str, Any] = json.loads(self.body)
        return content


def link(seq: int, previous: str, time: str, body: str) -> str:
    """Return the hash of a row: SHA-256 over its number, the hash before it, its time and body.

    Number, hash and time contain no newline, so the four parts cannot be cut differently.
    """
    return hashlib.sha256(f"{seq}\n{previous}\n{time}\n{body}".encode()).hexdigest()


def verified(rows: Iterable[Row]) -> Iterator[Row]:
    """Pass rows on, in order, as long as each is numbered, linked and hashed as it must be."""
    seq, previous = 0, START
    for row in rows:
        if row.seq != seq + 1:
            raise LedgerTampered(
                f"row {seq + 1} of the ledger's record must follow row {seq}, and row {row.seq} does: "
                "rows were deleted or renumbered. Restore the ledger from a backup that checks."
            )
        if row.previous != previous:
            raise LedgerTampered(
                f"row {row.seq} of the ledger's record must carry the hash of the row before it, and "
                "does not. Restore the ledger from a backup that checks."
            )
        if row.hash != link(row.seq, row.previous, row.time, row.body):
            raise LedgerTampered(
                f"row {row.seq} of the ledger's record must have the hash of its content, and does "
                "not: it was changed. Restore the ledger from a backup that checks."
            )
        yield row
        seq, previous = row.seq, row.hash
