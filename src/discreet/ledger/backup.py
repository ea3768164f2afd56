"""Backing up and restoring a ledger.

A backup is a ledger in one SQLite file, whatever database it was made from. Restoring only adds rows: an
existing ledger must be an earlier state of the same record, so that no charge is lost.
"""

from __future__ import annotations

import contextlib
import itertools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from discreet.errors import DiscreetWarning, LedgerError, LedgerTampered, ParameterError
from discreet.ledger._opening import open_store
from discreet.ledger._sqlite import SqliteFile
from discreet.ledger._verification import check_record
from discreet.ledger.transaction import ReadSet

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from discreet.ledger import Ledger
    from discreet.ledger._store import Store
    from discreet.ledger.transaction import Transaction

T = TypeVar("T")
_TIMEOUT = 30.0  # seconds to wait for other writers


class LedgerSnapshot:
    """State of a ledger at one moment; a backup of it can be written while others go on charging.

    Parameters
    ----------
    store : Store
        Store of the ledger.
    transaction : Transaction
        Transaction that reads one consistent state, from this moment on.

    Attributes
    ----------
    identity : str
        Hash of the ledger's first row.
    head : tuple of (int, str)
        Number and hash of the last row.
    """

    def __init__(self, store: Store, transaction: Transaction) -> None:
        self._store, self._transaction = store, transaction
        # The first statement fixes the state that is read.
        self.identity, rows, digest = transaction.head()
        self.head = rows, digest

    def back_up(self, path: str) -> tuple[int, str]:
        """Write the copy to a new file, check it, and return its head."""
        copy = SqliteFile(path, _TIMEOUT)
        exists_error = LedgerError(
            f"path of Ledger.backup must be a file that does not exist yet, and {copy.shown} does. "
            "Choose another name: a backup never writes over an older one."
        )
        if Path(copy.url).exists():
            raise exists_error

        def fill(target: Transaction) -> None:
            copy_rows(self._transaction, target, after=0)
            check_record(target)

        if not copy.create(fill, self._store.secret()):
            raise exists_error
        return self.head


@contextlib.contextmanager
def snapshot(ledger: Ledger) -> Iterator[LedgerSnapshot]:
    """Return a context that holds the present state of a ledger while others go on charging."""
    store = ledger._store
    # The first charge of a process marks the file as open, and would wait for readers of an earlier state.
    store.write(lambda _: None)
    with store.read() as transaction:
        yield LedgerSnapshot(store, transaction)


def restore(backup: Store, to: Store, head: tuple[int, str] | None) -> None:
    """Restore a backup to a place without a ledger, or with an earlier state of the same record."""
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
        key = _check_backup(transaction, backup, to, head)
        created = False
        if not to.exists():

            def fill(target: Transaction) -> None:
                copy_rows(transaction, target, after=0)
                check_record(target)

            created = to.create(fill, key)
        if not created:

            def add(target: Transaction) -> None:
                _check_earlier(transaction, target, backup, to)
                copy_rows(transaction, target, after=target.head()[1])
                check_record(target)

            to.write(add)
            if key is not None:
                to.secret(key)


def count_missing_rows(path: str | os.PathLike[str], place: str | os.PathLike[str]) -> int:
    """Return how many rows restoring a backup would add to the ledger at a place; change nothing.

    Parameters
    ----------
    path : str or path
        File that :meth:`Ledger.backup` wrote.
    place : str or path
        Path or URL of the ledger, which need not exist.

    Returns
    -------
    int
        Number of rows; 0 or less if the ledger has all rows of the backup.

    Raises
    ------
    LedgerError
        The ledger is another one or has other rows, or the backup is not intact.
    """
    with (
        contextlib.closing(open_store(path, _TIMEOUT)) as backup,
        contextlib.closing(open_store(place, _TIMEOUT)) as to,
        backup.read() as transaction,
    ):
        _check_backup(transaction, backup, to, None)
        _, rows, _ = transaction.head()
        if not to.exists():
            return rows
        with to.read() as target:
            _, present, _ = target.head()
            if present <= rows:
                _check_earlier(transaction, target, backup, to)
            elif (shared := _count_shared_rows(transaction, target, rows)) < rows:
                raise LedgerError(
                    f"the ledger {to.shown} must be a state of the ledger in {backup.shown}, and differs "
                    f"from it from row {shared + 1} on. Keep it as it is, and restore to another place."
                )
    return rows - present


def _check_backup(
    transaction: Transaction, backup: Store, to: Store, head: tuple[int, str] | None
) -> bytes | None:
    """Check that a backup is intact and has a row that was noted, and return its key."""
    try:
        check_record(transaction)
    except LedgerTampered as error:
        raise LedgerTampered(
            f"backup of Ledger.restore must be intact, and {backup.shown} is not: {error}"
        ) from error
    if head is not None:
        _check_head(transaction, backup, *head)
    return _key(backup, to)


def copy_rows(source: Transaction, target: Transaction, *, after: int) -> None:
    """Copy all rows past number `after`, with answers, totals and marks, from a source to a target."""
    identity, seq, _ = source.head()
    for rows in _iter_chunks(source.record(after)):
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
    for chunk in _iter_chunks(payers):
        target.preload([ReadSet(questions=tuple(question for question, _, _ in chunk))])
        for question, owner, paid_seq in chunk:
            target.put_paid(question, owner, paid_seq)
        target.flush()
    for mark, mark_seq in source.marks().items():
        if mark_seq > after:
            target.put_mark(mark, mark_seq)


def _iter_chunks(entries: Iterable[T]) -> Iterator[list[T]]:
    """Yield lists of a thousand entries, so that not all are held in memory."""
    rest = iter(entries)
    while chunk := list(itertools.islice(rest, 1000)):
        yield chunk


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
    shared = _count_shared_rows(transaction, target, seq)
    if shared < seq:
        raise LedgerError(
            f"to of Ledger.restore must be an earlier state of the ledger in {backup.shown}, and rows "
            f"{shared + 1} to {seq} of {to.shown} are not in the backup: these would be forgotten. Keep the "
            "ledger as it is, or take a newer backup."
        )


def _count_shared_rows(one: Transaction, other: Transaction, most: int) -> int:
    """Return the number of leading rows that two records share, by bisection.

    Equal hashes at one row imply that all rows before it are equal.
    """
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        first_row, second_row = one.row(middle), other.row(middle)
        if first_row is not None and second_row is not None and first_row.hash == second_row.hash:
            low = middle
        else:
            high = middle - 1
    return low


def _key(backup: Store, to: Store) -> bytes | None:
    """Return the backup's key under which questions are named; None if the backup has none."""
    key = backup.known_secret()
    existing = to.known_secret()
    if key is not None and existing is not None and key != existing:
        raise LedgerError(
            f"the key beside {to.shown} must be the backup's, and is another. Put it out of the way if it "
            "belongs to no ledger that is still used."
        )
    if key is None and existing is None:
        warnings.warn(
            f"There is no key beside {backup.shown}, so questions that were paid for before will not be "
            "recognized and are charged again. Put the file that ends in .version-key there, and restore "
            "once more before the ledger is used.",
            DiscreetWarning,
            stacklevel=4,
        )
    return key
