"""Rows of a ledger's record, their hash chain, and the charges that are read back from them.

A changed row requires a change of all rows after it. The body of a row is canonical JSON. The keys under
which the other tables refer to rows are defined here too.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerError, LedgerTampered
from discreet.noise import Stream
from discreet.privacy.promises import Promise, promise_from_dict
from discreet.privacy.receipt import Receipt, canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from discreet.ledger.transaction import Transaction

FORMAT = 2
"""Version of the tables and of the record; any change of meaning needs a new number."""

TOTAL = "total"
"""Scope that every charge counts against, beside that of its owner."""

DATASET_MARK = canonical(["dataset"])
"""Mark of the row that binds the ledger to a data set, or to the people of several."""


START = "0" * 64
"""Hash that the first row names as that of the row before it."""


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """Row of the record: its number, universal time, canonical JSON body, and two hashes."""

    seq: int
    time: str
    body: str
    previous: str
    hash: str

    @classmethod
    def from_previous(cls, seq: int, previous: str, time: str, body: str) -> LedgerRow:
        """Return the row that follows the one numbered `seq` with hash `previous`."""
        return cls(seq + 1, time, body, previous, hash_row(seq + 1, previous, time, body))

    @property
    def content(self) -> dict[str, Any]:
        """Body of the row, parsed."""
        content: dict[str, Any] = json.loads(self.body)
        return content


def hash_row(seq: int, previous: str, time: str, body: str) -> str:
    """Return the hash of a row.

    Notes
    -----
    SHA-256 of the number, the hash before it, the time and the body, joined by newlines. Number,
    hash and time contain no newline, so the four parts cannot be cut differently.
    """
    return hashlib.sha256(f"{seq}\n{previous}\n{time}\n{body}".encode()).hexdigest()


def verify_chain(rows: Iterable[LedgerRow]) -> Iterator[LedgerRow]:
    """Yield rows in order, and raise LedgerTampered at one that is not numbered, linked or hashed right."""
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
        if row.hash != hash_row(row.seq, row.previous, row.time, row.body):
            raise LedgerTampered(
                f"row {row.seq} of the ledger's record must have the hash of its content, and does "
                "not: it was changed. Restore the ledger from a backup that checks."
            )
        yield row
        seq, previous = row.seq, row.hash


@dataclass(frozen=True, slots=True)
class Entry:
    """Charge, with the query and the answer that was published for it.

    Attributes
    ----------
    receipt : Receipt
        Receipt of the charge.
    asked : dict or None
        Query as the charge recorded it; None if it recorded none.
    answer : bytes or None
        The one answer that may be published; None while there is none.

    Privacy
    -------
    Holds public facts and noisy answers that were paid for; nothing else in it depends on rows.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.

    Examples
    --------
    >>> from discreet import GaussianDP, Ledger
    >>> with Ledger.open(":memory:", limit=GaussianDP(1)) as ledger:
    ...     paid = ledger.charge(GaussianDP(0.5), what="a count")
    ...     entry = ledger.entries()[0]
    >>> entry.receipt.what
    'a count'
    """

    receipt: Receipt
    asked: dict[str, Any] | None
    answer: bytes | None


def make_receipt(
    identity: str, row: LedgerRow, content: Mapping[str, Any], promises: tuple[Promise, ...] | None = None
) -> Receipt:
    """Return the receipt of a charge's row; `promises`, if known, need not be parsed again."""
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

    Plain is a charge that recorded neither a query nor a request's key, as that of a release: its receipt
    holds everything that the row does.
    """
    content = {
        "type": "charge",
        "what": receipt.what,
        "owner": receipt.owner,
        "question": receipt.question,
        "schema": receipt.schema,
        "promises": [promise.to_dict() for promise in receipt.promises],
        "scopes": charge_scopes(receipt.owner, known=False),
        "seeded": receipt.seeded,
        "version": receipt.version,
    }
    assert receipt.seq is not None
    return hash_row(receipt.seq, previous, receipt.when, canonical(content))


def find_position(transaction: Transaction, seq: int) -> tuple[str, dict[str, int]]:
    """Return the hash before a row, and the number of earlier rows by type other than charges."""
    row = transaction.row(seq)
    if row is None:
        raise missing_row_error(seq)
    others: dict[str, int] = {}
    for before in itertools.takewhile(lambda before: before.seq < seq, transaction.record()):
        kind = str(before.content["type"])
        if kind != "charge":
            others[kind] = others.get(kind, 0) + 1
    return row.previous, others


@lru_cache(maxsize=512)
def _promises(text: str) -> tuple[Promise, ...]:
    return tuple(map(promise_from_dict, json.loads(text)))


def answer_key(question: str | None, seq: int) -> str:
    """Return the key of the answer to a question, or to a charge without one."""
    return f"row:{seq}" if question is None else f"question:{question}"


def iter_charges(
    transaction: Transaction,
    owner: str | None,
    after: int,
    *,
    dataset: str | None = None,
    newest_first: bool = False,
) -> Iterator[tuple[LedgerRow, dict[str, Any]]]:
    """Yield the charges of an owner, or of all, and of a data set, or of all, with their parsed bodies."""
    # Bodies are canonical JSON, so a search in the text rules out most rows before they are parsed.
    patterns = ['"type":"charge"']
    if owner is not None:
        patterns.append(f'"owner":{json.dumps(owner)}')
    if dataset is not None:
        patterns.append(f'"dataset":{json.dumps(dataset)}')
    for row in transaction.record(after, newest_first=newest_first):
        if all(pattern in row.body for pattern in patterns):
            content = row.content
            if (
                content["type"] == "charge"
                and owner in (None, content["owner"])
                and dataset in (None, content.get("dataset"))
            ):
                yield row, content


def make_entry(transaction: Transaction, identity: str, row: LedgerRow, content: Mapping[str, Any]) -> Entry:
    """Return a charge with its query and answer."""
    answer = transaction.answer(answer_key(content["question"], row.seq))
    return Entry(make_receipt(identity, row, content), content.get("asked"), answer)


def find_entry(transaction: Transaction, identity: str, receipt_id: str, dataset: str | None = None) -> Entry:
    """Return the charge that a receipt's id names, of one data set or of any for None."""
    start, _, number = receipt_id.rpartition("-")
    row = None
    # Longer numbers are in no record, and the largest do not fit a database's integers.
    if start == identity[:12] and number.isascii() and number.isdigit() and len(number) < 19:
        row = transaction.row(int(number))
    if row is not None and (
        row.content["type"] != "charge" or dataset not in (None, row.content.get("dataset"))
    ):
        row = None
    if row is None or str(row.seq) != number:
        raise LedgerError(
            f"receipt_id of Ledger.entry must name a charge of this ledger, got {receipt_id!r}. "
            "Ids are on receipts and in the ledger's history."
        )
    return make_entry(transaction, identity, row, row.content)


def missing_row_error(seq: int) -> LedgerTampered:
    """Return the error for a row that something else in the ledger points to."""
    return LedgerTampered(
        f"row {seq} of the ledger's record must be there, and is not. "
        "Restore the ledger from a backup that checks."
    )


def owner_scope(owner: str) -> str:
    """Return the scope of an owner, which differs from that of the total for every name."""
    return f"owner:{owner}"


def group_scope(group: str) -> str:
    """Return the scope of a group of owners."""
    return f"group:{group}"


@lru_cache(maxsize=512)
def member_mark(owner: str) -> str:
    """Return the mark of the last row that says which group an owner is in."""
    return canonical(["group of", owner])


def changed_mark(scope: str) -> str:
    """Return the mark of the last row that changed the limit of a scope after its first charge."""
    return canonical(["limit changed", scope])


def scope_name(owner: str | None) -> str:
    """Return the scope of an owner, or the total's if there is none."""
    return TOTAL if owner is None else owner_scope(owner)


def dataset_scope(dataset: str) -> str:
    """Return the scope of one of several data sets that share a ledger."""
    return f"dataset:{dataset}"


def dataset_mark(dataset: str) -> str:
    """Return the mark of the row that opens one of several data sets that share a ledger."""
    return canonical(["shared by", dataset])


def charge_scopes(
    owner: str | None, *, known: bool, dataset: str | None = None, group: str | None = None
) -> list[str]:
    """Return the scopes that a charge counts against, in a fixed order.

    Parameters
    ----------
    owner : str or None
        Owner of the charge; None for none.
    known : bool
        Whether the question was paid for before: then total and data set do not pay again.
    dataset : str, optional
        Data set of the charge, where several share the ledger; None otherwise.
    group : str, optional
        Group that the owner is in; None for none.
    """
    shared = [TOTAL] if dataset is None else [TOTAL, dataset_scope(dataset)]
    groups = [] if group is None else [group_scope(group)]
    return [*([] if known else shared), *groups, *([] if owner is None else [owner_scope(owner)])]


@dataclass(frozen=True, slots=True)
class LogAnchor:
    """A line of an audit log, as a ledger records it.

    Attributes
    ----------
    log : str
        Identity of the log: the hash of its first line.
    line : int
        Number of the anchored line.
    hash : str
        Hash of the anchored line.
    file : int
        Number of the first line of the file that has it.
    offset : int
        Byte of that file at which the line begins.
    """

    log: str
    line: int
    hash: str
    file: int
    offset: int

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> LogAnchor:
        """Return the anchor that the body of a row holds."""
        return cls(
            str(content["log"]),
            int(content["line"]),
            str(content["hash"]),
            int(content["file"]),
            int(content["offset"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "log": self.log,
            "line": self.line,
            "hash": self.hash,
            "file": self.file,
            "offset": self.offset,
        }


def log_mark(log: str) -> str:
    """Return the mark of the last row that anchors an audit log."""
    return canonical(["audit log", log])


def find_anchor(transaction: Transaction, log: str) -> LogAnchor | None:
    """Return the last anchor of an audit log; None if it was never anchored."""
    seq = transaction.mark(log_mark(log))
    if seq is None:
        return None
    row = transaction.row(seq)
    if row is None:
        raise missing_row_error(seq)
    return LogAnchor.from_content(row.content)


def anchored_logs(transaction: Transaction) -> list[str]:
    """Return the identities of all audit logs that were anchored, in the order of their last rows."""
    return _marked_names(transaction, "audit log")


def other_mark(ledger: str) -> str:
    """Return the mark of the row that names another ledger of the same table."""
    return canonical(["other ledger", ledger])


def other_ledgers(transaction: Transaction) -> list[str]:
    """Return the identities of all other ledgers of the same table, in the order of their rows."""
    return _marked_names(transaction, "other ledger")


def _marked_names(transaction: Transaction, kind: str) -> list[str]:
    """Return the names in all marks of one kind, in the order of their rows."""
    start = canonical([kind])[:-1] + ","
    rows = transaction.execute(
        "SELECT key FROM marks WHERE substr(key, 1, length(?)) = ? ORDER BY seq, key", start, start
    )
    return [json.loads(key)[1] for (key,) in rows]


def request_mark(owner: str | None, request: str) -> str:
    """Return the mark of the row of an owner's request."""
    return canonical(["request", owner, request])


def draw_key() -> bytes:
    """Return a fresh key of 32 random bytes for keyed fingerprints of private rows."""
    return Stream().words(4).tobytes()
