"""What a database must do for a ledger: exclusive transactions over six small tables.

``book``       one row: the ledger's identity, number and hash of the last row of the record
``record``     the hash-chained record; a trigger refuses to change or delete its rows
``totals``     per scope: its caps and what it spent, as JSON with amounts as decimal text
``questions``  per digest of a question and owner: the row of the record that paid for it
``answers``    per question or charge: the one answer that ever leaves
``marks``      per key of a request, and for the data set: the row of the record that has it

Every write happens inside :meth:`Store.write_all`, which holds the book exclusively from its first
statement to a durable commit, so that reading a total and then writing it cannot race. Threads that
write at the same time share one such transaction: see :mod:`~discreet.ledger.line`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from discreet.ledger.transaction import Session

T = TypeVar("T")

FORMAT = 1
"""Version of the tables and of the record; a change of meaning gets a new number."""

TOTAL = "total"

_KEY_LENGTH = 32


def fresh_key() -> bytes:
    """Draw a secret."""
    return Stream().words(_KEY_LENGTH // 8).tobytes()


def owner_scope(owner: str) -> str:
    """Return the scope of an owner, which no owner's name can make collide with the total."""
    return f"owner:{owner}"


def result_of(outcome: T | Exception) -> T:
    """Return what came of some work, or raise it."""
    if isinstance(outcome, Exception):
        try:
            raise outcome
        finally:
            del outcome  # which holds this frame: no circle is left behind
    return outcome


class Store(ABC):
    """A database that holds one ledger. It may be used from any thread and after a fork."""

    url: str
    """What :meth:`Ledger.open` was given, made absolute: opening it again finds the same ledger."""

    shown: str
    """The same without secrets, for messages."""

    lasting: bool
    """Whether another process can open it."""

    @abstractmethod
    def exists(self) -> bool:
        """Say whether there is a ledger; raise NotALedger where there is something else."""

    @abstractmethod
    def create(self, fill: Callable[[Session], None], key: bytes | None = None) -> bool:
        """Make the tables and fill them, durably and all at once.

        Parameters
        ----------
        fill : callable
            Writes the first rows.
        key : bytes, optional
            What :meth:`secret` shall be.

        Returns
        -------
        bool
            False if another process just made a ledger there: nothing was filled.
        """

    @abstractmethod
    def write_all(self, works: Sequence[Callable[[Session], T]]) -> list[T | Exception]:
        """Do pieces of work that hold the book exclusively, and return once they are durable.

        What a piece raises undoes it, and nothing but it, and stands for its result. They may be done by
        another thread, with those of others.
        """

    def write(self, work: Callable[[Session], T]) -> T:
        """Do one piece of work that holds the book exclusively, and return once it is durable."""
        return result_of(self.write_all([work])[0])

    @abstractmethod
    def read(self) -> AbstractContextManager[Session]:
        """Look at one consistent state."""

    @abstractmethod
    def known_secret(self) -> bytes | None:
        """Return the key that goes with the ledger, if it was made."""

    @abstractmethod
    def secret(self, first: bytes | None = None) -> bytes:
        """Return a key that goes with the ledger and is not part of its record, making it at first use.

        Parameters
        ----------
        first : bytes, optional
            What it shall be if there is none; by default a fresh one.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what the database holds open; the next use opens it again."""
