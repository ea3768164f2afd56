"""How a ledger is created, opened, backed up and restored.

A backup is a ledger in one SQLite file, whatever database it was made from. Restoring only ever adds rows:
where there is a ledger already, it must be an earlier state of the same record, so no charge of which anyone
holds a receipt is forgotten.
"""

from __future__ import annotations

import itertools
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from discreet.errors import DiscreetWarning, LedgerError, LedgerTampered, ParameterError
from discreet.ledger._caps import Caps, read_caps, write_caps
from discreet.ledger._sqlite import Memory, SqliteFile
from discreet.ledger._verification import check_record
from discreet.ledger.records import FORMAT, START, TOTAL, LedgerRow, missing_row_error
from discreet.ledger.transaction import ReadSet
from discreet.privacy.composition import Spending
from discreet.privacy.receipt import canonical, product_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from discreet.ledger._store import Store
    from discreet.ledger.transaction import Transaction
    from discreet.privacy.promises import Promise

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Opening:
    """Facts about a ledger that never change.

    Attributes
    ----------
    identity : str
        Hash of its first row.
    owner_caps : Caps or None
        Caps of owners who have none of their own; None is no limit.
    marked : bool
        Whether it has the table of marks, which ledgers of earlier versions get when they need it.
    """

    identity: str
    owner_caps: Caps | None
    marked: bool


def open_store(place: str | os.PathLike[str], timeout: float) -> Store:
    """Return the store of the ledger at a path or URL."""
    url = os.fspath(place)
    if url.startswith(("postgresql://", "postgres://")):
        from discreet.ledger._postgres import PostgresSchema

        return PostgresSchema(url, timeout)
    return Memory() if url == ":memory:" else SqliteFile(url, timeout)


def open_ledger(store: Store, caps: Caps | None, owner_caps: Caps | None, *, when: str) -> Opening:
    """Open the ledger of a store, creating it if there is none; its limits must be those given, if any."""
    if not store.exists():
        body = {
            "type": "open",
            "format": FORMAT,
            "version": product_version(),
            # Two ledgers opened with the same words at the same time are two ledgers.
            "born": [os.getpid(), time.monotonic_ns()],
            "caps": None if caps is None else caps.to_dict(),
            "owner_caps": None if owner_caps is None else owner_caps.to_dict(),
        }
        first = LedgerRow.from_previous(0, START, when, canonical(body))

        def fill(transaction: Transaction) -> None:
            transaction.insert(first)
            transaction.put_head(first.hash, first)
            transaction.put_total(TOTAL, write_caps(caps), canonical(Spending().to_dict()))

        store.create(fill)
    with store.read() as transaction:
        identity, _, _ = transaction.head()
        content = _first(transaction)
        marked = "marks" in transaction.tables()
    _check_limit("limit", caps, content["caps"])
    _check_limit("owner_limit", owner_caps, content["owner_caps"])
    return Opening(identity, read_caps(content["owner_caps"]), marked)


def make_caps(limit: Promise | None, gaussian_share: float) -> Caps | None:
    """Return the caps of a limit; None where there is none."""
    return None if limit is None else Caps.from_limit(limit, gaussian_share=gaussian_share)


def _first(transaction: Transaction) -> dict[str, Any]:
    """Return the body of the first row."""
    first = transaction.row(1)
    if first is None:
        raise missing_row_error(1)
    try:
        return first.content
    except ValueError as error:
        raise LedgerTampered(
            "row 1 of the ledger's record must be readable, and is not. "
            "Restore the ledger from a backup that checks."
        ) from error


def _check_limit(name: str, given: Caps | None, fixed: dict[str, Any] | None) -> None:
    if given is None:
        return
    caps = read_caps(fixed)
    # The amounts stay as they were fixed, also where a newer version would round them differently.
    if caps is None or (caps.limit, caps.gaussian_share) != (given.limit, given.gaussian_share):
        have = "none" if caps is None else str(caps.limit)
        raise LedgerError(
            f"{name} of Ledger.open must be the one fixed when the ledger was made, {have}, got "
            f"{given.limit} (with its gaussian_share). Leave it out, or open another ledger."
        )


def back_up(source: Store, path: str, timeout: float = 30.0) -> tuple[int, str]:
    """Write a ledger as it is now to a new file, check it, and return its head."""
    copy = SqliteFile(path, timeout)
    taken = LedgerError(
        f"path of Ledger.backup must be a file that does not exist yet, and {copy.shown} does. "
        "Choose another name: a backup never writes over an older one."
    )
    if Path(copy.url).exists():
        raise taken
    head = (0, "")

    def fill(target: Transaction) -> None:
        nonlocal head
        with source.read() as transaction:
            _, seq, digest = transaction.head()
            copy_rows(transaction, target, after=0)
        check_record(target)
        head = seq, digest

    if not copy.create(fill, source.secret()):
        raise taken
    return head


def restore(backup: Store, to: Store, head: tuple[int, str] | None) -> None:
    """Restore a backup where the ledger is gone, or is an earlier state of the same record."""
    if not to.lasting:
        raise ParameterError(
            f"to of Ledger.restore must be a file or a URL, got {to.url!r}. A ledger in memory ends with its "
            "process, and its charges with it."
        )
    if not backup.exists():
        raise LedgerError(
            f"backup of Ledger.restore must be a ledger, and there is none at {backup.shown}. "
            "Give the file that Ledger.backup wrote."
        )
    with backup.read() as transaction:
        try:
            check_record(transaction)
        except LedgerTampered as error:
            raise LedgerTampered(
                f"backup of Ledger.restore must be intact, and {backup.shown} is not: {error}"
            ) from error
        if head is not None:
            _check_head(transaction, backup, *head)
        key = _key(backup, to)
        made = False
        if not to.exists():

            def fill(target: Transaction) -> None:
                copy_rows(transaction, target, after=0)
                check_record(target)

            made = to.create(fill, key)
        if not made:

            def add(target: Transaction) -> None:
                _check_earlier(transaction, target, backup, to)
                copy_rows(transaction, target, after=target.head()[1])
                check_record(target)

            to.write(add)
            if key is not None:
                to.secret(key)


def copy_rows(source: Transaction, target: Transaction, *, after: int) -> None:
    """Copy to a target, which has the first `after` rows of the source's record, all that it lacks."""
    identity, seq, _ = source.head()
    target.execute(target.marks_table)
    for rows in _sliced(source.record(after)):
        for row in rows:
            target.insert(row)
            if row.seq == seq:
                target.put_head(identity, row)
            if '"type":"answer"' in row.body:
                key = row.content["key"]
                answer = source.answer(key)
                if answer is not None:
                    target.put_answer(key, answer)
        target.flush()
    for scope, (caps, spent) in source.totals().items():
        target.put_total(scope, caps, spent)
    payers = source.execute("SELECT question, owner, seq FROM questions WHERE seq > ?", after)
    for some in _sliced(payers):
        target.preload([ReadSet(questions=tuple(question for question, _, _ in some))])
        for question, owner, paid in some:
            target.put_paid(question, owner, paid)
        target.flush()
    for mark, marked in source.marks().items():
        if marked > after:
            target.put_mark(mark, marked)


def _sliced(entries: Iterable[T]) -> Iterator[list[T]]:
    """Yield lists of a thousand, so that no more is held in memory."""
    rest = iter(entries)
    while some := list(itertools.islice(rest, 1000)):
        yield some


def _check_head(transaction: Transaction, backup: Store, seq: int, digest: str) -> None:
    row = transaction.row(seq)
    if row is not None and row.hash == digest:
        return
    _, last, _ = transaction.head()
    lost = f"rows {last + 1} to {seq} are not in it" if row is None else f"its row {seq} is another"
    raise LedgerError(
        f"head of Ledger.restore must be a row of the backup {backup.shown}, and {lost}: charges would be "
        "forgotten. Take a newer backup."
    )


def _check_earlier(transaction: Transaction, target: Transaction, backup: Store, to: Store) -> None:
    """Raise LedgerError if the backup lacks rows of the target."""
    identity, seq, _ = target.head()
    if identity != transaction.head()[0]:
        raise LedgerError(
            f"to of Ledger.restore must be an earlier state of the ledger in {backup.shown}, and "
            f"{to.shown} is another ledger: its rows 1 to {seq} would be forgotten. Choose another place."
        )
    shared = _shared(transaction, target, seq)
    if shared < seq:
        raise LedgerError(
            f"to of Ledger.restore must be an earlier state of the ledger in {backup.shown}, and rows "
            f"{shared + 1} to {seq} of {to.shown} are not in the backup: these would be forgotten. Keep the "
            "ledger as it is, or take a newer backup."
        )


def _shared(one: Transaction, other: Transaction, most: int) -> int:
    """Return how many rows two records have in common: each hash stands for all rows before it."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        mine, theirs = one.row(middle), other.row(middle)
        if mine is not None and theirs is not None and mine.hash == theirs.hash:
            low = middle
        else:
            high = middle - 1
    return low


def _key(backup: Store, to: Store) -> bytes | None:
    """Return the key under which questions are named, if the backup has it."""
    key = backup.known_secret()
    there = to.known_secret()
    if key is not None and there is not None and key != there:
        raise LedgerError(
            f"the key beside {to.shown} must be the backup's, and is another. Put it out of the way if it "
            "belongs to no ledger that is still used."
        )
    if key is None and there is None:
        warnings.warn(
            f"There is no key beside {backup.shown}, so questions that were paid for before will not be "
            "recognized and are charged again. Put the file that ends in .version-key there, and restore "
            "once more before the ledger is used.",
            DiscreetWarning,
            stacklevel=4,
        )
    return key
