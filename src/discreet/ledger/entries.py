"""Charges read back from the record: as receipts, and with what was asked and answered."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerError, LedgerTampered
from discreet.ledger._verification import scopes_of
from discreet.ledger.records import link
from discreet.privacy.promises import Promise, promise_from_dict
from discreet.privacy.receipt import Receipt, canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from discreet.ledger.records import Row
    from discreet.ledger.transaction import Session


@dataclass(frozen=True, slots=True)
class Entry:
    """A charge with what was asked and what left for it.

    Attributes
    ----------
    receipt : Receipt
        The charge.
    asked : dict or None
        What was asked, as the charge was told; None if it was told nothing.
    answer : bytes or None
        The one answer that may leave; None while there is none.

    Privacy
    -------
    Public facts and noisy answers that were paid for: nothing in it depends on rows otherwise.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    receipt: Receipt
    asked: dict[str, Any] | None
    answer: bytes | None


def receipt_of(
    identity: str, row: Row, content: Mapping[str, Any], promises: tuple[Promise, ...] | None = None
) -> Receipt:
    """Return the receipt of a charge's row; `promises` saves reading them again."""
    return Receipt(
        id=f"{identity[:12]}-{row.seq}",
        what=content["what"],
        when=row.time,
        promises=_promises(canonical(content["promises"])) if promises is None else promises,
        owner=content["owner"],
        ledger=identity,
        seq=row.seq,
        hash=row.hash,
        question=content["question"],
        schema=content["schema"],
        version=content["version"],
        seeded=content["seeded"],
    )


def charge_hash(receipt: Receipt, previous: str) -> str:
    """Return the hash that the row of a plain charge has after a row with the hash `previous`.

    Plain is a charge that was told neither what was asked nor a request's key, as that of a release: its
    receipt holds everything that the row does.
    """
    content = {
        "type": "charge",
        "what": receipt.what,
        "owner": receipt.owner,
        "question": receipt.question,
        "schema": receipt.schema,
        "promises": [promise.to_dict() for promise in receipt.promises],
        "scopes": scopes_of(receipt.owner, known=False),
        "seeded": receipt.seeded,
        "version": receipt.version,
    }
    assert receipt.seq is not None
    return link(receipt.seq, previous, receipt.when, canonical(content))


def position_of(session: Session, seq: int) -> tuple[str, dict[str, int]]:
    """Return the hash before a row, and how many of the rows before it are no charges, by type."""
    row = session.row(seq)
    if row is None:
        raise missing_row(seq)
    others: dict[str, int] = {}
    for before in itertools.takewhile(lambda before: before.seq < seq, session.record()):
        kind = str(before.content["type"])
        if kind != "charge":
            others[kind] = others.get(kind, 0) + 1
    return row.previous, others


@lru_cache(maxsize=512)
def _promises(text: str) -> tuple[Promise, ...]:
    return tuple(map(promise_from_dict, json.loads(text)))


def answer_key(question: str | None, seq: int) -> str:
    """Return where the answer to a question, or to a charge without one, is kept."""
    return f"row:{seq}" if question is None else f"question:{question}"


def charges(
    session: Session, owner: str | None, after: int, *, newest_first: bool = False
) -> Iterator[tuple[Row, dict[str, Any]]]:
    """Go through the charges of an owner, or of everybody, with their bodies."""
    # Bodies are canonical, so the text shows what cannot be a match before it is parsed.
    signs = ['"type":"charge"']
    if owner is not None:
        signs.append(f'"owner":{json.dumps(owner)}')
    for row in session.record(after, newest_first=newest_first):
        if all(sign in row.body for sign in signs):
            content = row.content
            if content["type"] == "charge" and owner in (None, content["owner"]):
                yield row, content


def entry_of(session: Session, identity: str, row: Row, content: Mapping[str, Any]) -> Entry:
    """Return a charge with what belongs to it."""
    answer = session.answer(answer_key(content["question"], row.seq))
    return Entry(receipt_of(identity, row, content), content.get("asked"), answer)


def find_entry(session: Session, identity: str, receipt_id: str) -> Entry:
    """Return the charge that a receipt's id names."""
    start, _, number = receipt_id.rpartition("-")
    row = None
    # Longer numbers are in no record, and the largest do not fit a database's integers.
    if start == identity[:12] and number.isascii() and number.isdigit() and len(number) < 19:
        row = session.row(int(number))
    if row is None or row.content["type"] != "charge" or str(row.seq) != number:
        raise LedgerError(
            f"receipt_id of Ledger.entry must name a charge of this ledger, got {receipt_id!r}. "
            "Ids are on receipts and in the ledger's history."
        )
    return entry_of(session, identity, row, row.content)


def missing_row(seq: int) -> LedgerTampered:
    """Return the error for a row that something else in the ledger points to."""
    return LedgerTampered(
        f"row {seq} of the ledger's record must be there, and is not. "
        "Restore the ledger from a backup that checks."
    )
