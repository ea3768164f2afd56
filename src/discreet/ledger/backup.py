"""Copies of a ledger that can take its place, and never take back what was spent.

A backup is a ledger in one SQLite file, whatever database it was made from. Putting it back only ever
adds rows: where there is a ledger already, it must be an earlier state of the same record, so no charge
that anybody was given a receipt for is forgotten.
"""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from discreet.errors import DiscreetWarning, LedgerError, LedgerTampered, ParameterError
from discreet.ledger._sqlite import SqliteFile
from discreet.ledger._verification import check
from discreet.ledger.transaction import Needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from discreet.ledger._store import Store
    from discreet.ledger.transaction import Session

T = TypeVar("T")


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

    def fill(target: Session) -> None:
        nonlocal head
        with source.read() as session:
            _, seq, digest = session.head()
            carry_over(session, target, after=0)
        check(target)
        head = seq, digest

    if not copy.create(fill, source.secret()):
        raise taken
    return head


def restore(backup: Store, to: Store, head: tuple[int, str] | None) -> None:
    """Put a backup in the place of a ledger that is gone, or an earlier state of it."""
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
    with backup.read() as session:
        try:
            check(session)
        except LedgerTampered as error:
            raise LedgerTampered(
                f"backup of Ledger.restore must be intact, and {backup.shown} is not: {error}"
            ) from error
        if head is not None:
            _check_head(session, backup, *head)
        key = _key(backup, to)
        made = False
        if not to.exists():

            def fill(target: Session) -> None:
                carry_over(session, target, after=0)
                check(target)

            made = to.create(fill, key)
        if not made:

            def add(target: Session) -> None:
                _check_earlier(session, target, backup, to)
                carry_over(session, target, after=target.head()[1])
                check(target)

            to.write(add)
            if key is not None:
                to.secret(key)


def carry_over(source: Session, target: Session, *, after: int) -> None:
    """Bring a target that has the first `after` rows of the source's record to the source's state."""
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
        target.expect([Needs(questions=tuple(question for question, _, _ in some))])
        for question, owner, paid in some:
            target.put_paid(question, owner, paid)
        target.flush()
    for mark, marked in source.marks().items():
        if marked > after:
            target.put_mark(mark, marked)


def _sliced(entries: Iterable[T]) -> Iterator[list[T]]:
    """Take a thousand at a time, which is what is held in memory."""
    rest = iter(entries)
    while some := list(itertools.islice(rest, 1000)):
        yield some


def _check_head(session: Session, backup: Store, seq: int, digest: str) -> None:
    row = session.row(seq)
    if row is not None and row.hash == digest:
        return
    _, last, _ = session.head()
    lost = f"rows {last + 1} to {seq} are not in it" if row is None else f"its row {seq} is another"
    raise LedgerError(
        f"head of Ledger.restore must be a row of the backup {backup.shown}, and {lost}: charges would be "
        "forgotten. Take a newer backup."
    )


def _check_earlier(session: Session, target: Session, backup: Store, to: Store) -> None:
    """Refuse to forget rows of the target."""
    identity, seq, _ = target.head()
    if identity != session.head()[0]:
        raise LedgerError(
            f"to of Ledger.restore must be an earlier state of the ledger in {backup.shown}, and "
            f"{to.shown} is another ledger: its rows 1 to {seq} would be forgotten. Choose another place."
        )
    shared = _shared(session, target, seq)
    if shared < seq:
        raise LedgerError(
            f"to of Ledger.restore must be an earlier state of the ledger in {backup.shown}, and rows "
            f"{shared + 1} to {seq} of {to.shown} are not in the backup: these would be forgotten. Keep the "
            "ledger as it is, or take a newer backup."
        )


def _shared(one: Session, other: Session, most: int) -> int:
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
