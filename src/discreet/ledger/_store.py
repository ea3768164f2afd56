"""Interface between a ledger and its database: exclusive transactions over six small tables.

``book``       one row: the ledger's identity, number and hash of the last row of the record
``record``     the hash-chained record; a trigger refuses to change or delete its rows
``totals``     per scope: its caps and what it spent, as JSON with amounts as decimal text
``questions``  per digest of a question and owner: the row of the record that paid for it
``answers``    per question or charge: the one answer that is ever published
``marks``      per key of a request, and for the data set: the row of the record that has it

Every write happens inside :meth:`Store.write_all`, which holds the write lock from its first statement to a
durable commit, so that reading a total and then writing it cannot race. Threads that write at the same time
share one such transaction: see :class:`PooledStore`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from discreet.batching import BatchExecutor
from discreet.errors import LedgerError, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from discreet.ledger.transaction import Transaction

T = TypeVar("T")

READERS = 8
"""Number of threads that may read at once."""
_IDLE = READERS + 1  # one of them writes


def unwrap(result: T | Exception) -> T:
    """Return the result of an operation, or raise it if it is an Exception."""
    if isinstance(result, Exception):
        try:
            raise result
        finally:
            del result  # its traceback holds this frame: leave no reference cycle
    return result


class Store(ABC):
    """Database that holds one ledger. It may be used from any thread and after a fork."""

    url: str
    """Address that :meth:`Ledger.open` was given, made absolute: opening it again finds the same ledger."""

    shown: str
    """The same without secrets, for messages."""

    lasting: bool
    """Whether another process can open it."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is a ledger; raise NotALedger where there is something else."""

    @abstractmethod
    def create(self, fill: Callable[[Transaction], None], key: bytes | None = None) -> bool:
        """Create the tables and fill them, durably and all at once.

        Parameters
        ----------
        fill : callable
            Writes the first rows, given the transaction.
        key : bytes, optional
            Key that :meth:`secret` shall return; None draws one at its first use.

        Returns
        -------
        bool
            False if another process just created a ledger there: nothing was filled.
        """

    @abstractmethod
    def write_all(self, operations: Sequence[Callable[[Transaction], T]]) -> list[T | Exception]:
        """Execute operations under the write lock, and return their results once they are durable.

        What an operation raises undoes it, and nothing but it, and stands for its result. It may be executed
        by another thread, together with the operations of others.
        """

    def write(self, operation: Callable[[Transaction], T]) -> T:
        """Execute one operation under the write lock, and return its result once it is durable."""
        return unwrap(self.write_all([operation])[0])

    @abstractmethod
    def read(self) -> AbstractContextManager[Transaction]:
        """Return a context that reads one consistent state."""

    @abstractmethod
    def known_secret(self) -> bytes | None:
        """Return the key that belongs to the ledger, or None if none was drawn yet."""

    @abstractmethod
    def secret(self, first: bytes | None = None) -> bytes:
        """Return a key that belongs to the ledger and is not part of its record.

        Parameters
        ----------
        first : bytes, optional
            Key to keep if the ledger has none yet; None draws a fresh one.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the idle connections; the next use opens new ones."""


class Closable(Protocol):
    """Connection that can be closed."""

    def close(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=Closable)

# Connections inherited over a fork belong to the parent: using or closing them here could release its
# locks or end its transaction. They are kept, unused, so that nothing closes them.
_INHERITED: list[object] = []


def keep_inherited(connection: object) -> None:
    """Keep a connection of another process, or several, so that nothing uses or closes them here."""
    _INHERITED.append(connection)


class _Process(Generic[C]):
    """Idle connections, writing threads and reading threads of one process."""

    def __init__(self, write_batch: Callable[..., Sequence[Any]]) -> None:
        self.pid = os.getpid()
        # A deque is thread-safe without a lock, which a fork could leave held.
        self.idle: deque[C] = deque()
        self.writers: BatchExecutor[Callable[[Transaction], Any], Any] = BatchExecutor(
            write_batch, failure=_lost_with_batch, limit=None
        )
        self.readers = threading.BoundedSemaphore(READERS)


class ConnectionPool(Generic[C]):
    """Idle connections of this process, and the executor of its writing threads.

    A connection is used by one thread at a time. After a fork the child starts with an empty pool.

    Parameters
    ----------
    write_batch : callable
        Function of the executor that writes and commits one batch of operations.
    """

    def __init__(self, write_batch: Callable[..., Sequence[Any]]) -> None:
        self._write_batch = write_batch
        self._process: _Process[C] = _Process(write_batch)

    def _current_process(self) -> _Process[C]:
        if self._process.pid != os.getpid():
            keep_inherited(self._process)
            self._process = _Process(self._write_batch)
        return self._process

    def take(self) -> C | None:
        """Take an idle connection; None if there is none."""
        try:
            return self._current_process().idle.pop()
        except IndexError:
            return None

    def keep(self, connection: C) -> None:
        """Keep a connection for its next use, or close it if there are enough."""
        idle = self._current_process().idle
        if len(idle) < _IDLE:
            idle.append(connection)
        else:
            connection.close()

    @property
    def writers(self) -> BatchExecutor[Callable[[Transaction], Any], Any]:
        """Executor that the writing threads of this process share."""
        return self._current_process().writers

    @contextlib.contextmanager
    def reserve_reader(self, timeout: float) -> Iterator[None]:
        """Return a context that holds one of the few places for reading threads.

        Waiting for a place is cheaper than opening connections beyond those that are kept.
        """
        readers = self._current_process().readers
        if not readers.acquire(timeout=timeout):
            raise TimeoutError("too many threads are reading")
        try:
            yield
        finally:
            readers.release()

    def close(self) -> None:
        """Close the idle connections."""
        while (idle := self.take()) is not None:
            idle.close()


class PooledStore(Store, Generic[C]):
    """Store whose threads keep their connections and share durable commits.

    Parameters
    ----------
    timeout : float
        Seconds to wait for other writers and for a place to read.

    Privacy
    -------
    No operation returns, and no refusal is reported, before the transaction that it was part of is durable:
    what a charge allows to be drawn was paid for whatever happens next, and a refusal never depends on a
    charge of another thread that was lost.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    lasting = True

    pool_type: ClassVar[type[ConnectionPool[Any]]] = ConnectionPool
    """Class of the pool of its connections."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        # Weak: a finalizer of the store holds the pool, and runs only once nothing refers to the store.
        write_batch = weakref.WeakMethod(self._write_batch)
        self._pool: ConnectionPool[C] = self.pool_type(lambda take: write_batch()(take))  # type: ignore[misc]

    def write_all(self, operations: Sequence[Callable[[Transaction], T]]) -> list[T | Exception]:
        """Execute operations under the write lock, and return their results once they are durable."""
        # Threads of one process wait here, since databases let writers poll or use up connections.
        try:
            return self._pool.writers.submit(operations, self._timeout)
        except TimeoutError as error:
            raise self._unavailable(error) from error

    def _write_batch(self, take: Callable[[], list[Callable[[Transaction], Any]]]) -> Sequence[Any]:
        """Execute, in one transaction, all operations that wait by the time the write lock is held."""
        with self._write_transaction() as transaction:
            return transaction.execute_all(take())

    @abstractmethod
    def _write_transaction(self) -> AbstractContextManager[Transaction]:
        """Return a context that holds the write lock and commits durably, or undoes all on an exception."""

    @abstractmethod
    def _unavailable(self, error: Exception) -> LedgerError:
        """Return the error for a database that cannot be used now."""


def _lost_with_batch(error: BaseException) -> LedgerError:
    """Return the error of a thread whose operations were lost in a transaction that another thread led."""
    if isinstance(error, LedgerError):
        return copy(error)
    return LedgerUnavailable(
        f"the thread that wrote to the ledger for several must finish, and was stopped "
        f"({type(error).__name__}). Nothing is released; try again."
    )
