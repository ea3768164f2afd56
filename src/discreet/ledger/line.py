"""Threads that want to write at the same time share one durable transaction.

Making a commit durable costs as much for one charge as for fifty. So the thread that comes first leads:
once it holds the book, it takes the work of everybody who waits by then, does each piece, commits once,
and only then lets anybody go. Whoever came meanwhile is led by the next.
"""

from __future__ import annotations

import threading
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeVar

from discreet.errors import LedgerError, LedgerUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from discreet.ledger.transaction import Needs, Session

T = TypeVar("T")


class _State(Enum):
    WAITING = auto()
    LEADING = auto()
    TAKEN = auto()


class _Piece:
    """The work of one thread, and what came of it."""

    __slots__ = ("error", "gate", "outcomes", "state", "works")

    def __init__(self, works: Sequence[Callable[[Session], Any]]) -> None:
        self.works = works
        self.state = _State.WAITING
        self.outcomes: list[Any] = []
        self.error: BaseException | None = None
        # Taken from the start: opened by whoever has news for the thread that waits at it.
        self.gate = threading.Lock()
        self.gate.acquire()

    def settled(self) -> list[Any]:
        error, self.error = self.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # which holds this frame: no circle is left behind
        return self.outcomes


class Line:
    """The threads of one process that write to one ledger.

    Privacy
    -------
    No piece of work returns, and no refusal is told, before the transaction that it was part of is
    durable: what a charge allows to be drawn was paid for whatever happens next, and a refusal never
    stands on a neighbor's charge that was lost.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[_Piece] = deque()
        self._led = False

    def write(
        self,
        works: Sequence[Callable[[Session], T]],
        transaction: Callable[[], AbstractContextManager[Session]],
        timeout: float,
    ) -> list[T | Exception]:
        """Do pieces of work in one transaction, alone or with those of others.

        Parameters
        ----------
        works : sequence of callable
            Each gets the session. What it raises undoes that piece alone, and stands for its result.
        transaction : callable
            Makes a context that holds the book, commits durably at its end, and undoes everything if
            anything is raised inside.
        timeout : float
            Seconds to wait for the turn; TimeoutError afterwards, the work not done.
        """
        piece = _Piece(works)
        with self._lock:
            if self._led:
                self._waiting.append(piece)
            else:
                self._led = True
                piece.state = _State.LEADING
        if piece.state is not _State.LEADING:
            self._wait(piece, timeout)
        if piece.state is _State.LEADING:
            self._lead(piece, transaction)
        return piece.settled()

    def _wait(self, piece: _Piece, timeout: float) -> None:
        """Wait until the piece is done or has to lead."""
        try:
            if piece.gate.acquire(timeout=timeout):
                return
            if self._withdrawn(piece):
                raise TimeoutError("another thread is writing")
            # Its turn had come: how it ends is for the one who leads it to say.
            piece.gate.acquire()
        except KeyboardInterrupt:
            # Nobody will be there to lead.
            if not self._withdrawn(piece) and piece.state is _State.LEADING:
                self._pass_on()
            raise

    def _withdrawn(self, piece: _Piece) -> bool:
        with self._lock:
            waits = piece.state is _State.WAITING
            if waits:
                self._waiting.remove(piece)
        return waits

    def _lead(self, own: _Piece, transaction: Callable[[], AbstractContextManager[Session]]) -> None:
        group, held = [own], False
        try:
            with transaction() as session:
                held = True
                group += self._taken()
                _do(session, group)
        except BaseException as error:
            if not held:
                # Nobody who waits for the book has better luck.
                group += self._taken()
            own.error = error
            for other in group[1:]:
                other.error = _undone(error)
        finally:
            self._pass_on()
            for other in group[1:]:
                other.gate.release()

    def _taken(self) -> list[_Piece]:
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            for piece in taken:
                piece.state = _State.TAKEN
        return taken

    def _pass_on(self) -> None:
        with self._lock:
            if not self._waiting:
                self._led = False
                return
            following = self._waiting.popleft()
            following.state = _State.LEADING
        following.gate.release()


def _do(session: Session, group: list[_Piece]) -> None:
    session.expect([needs for piece in group for needs in map(_needs, piece.works) if needs is not None])
    for piece in group:
        piece.outcomes = [_attempted(session, work) for work in piece.works]


def done_in(session: Session, works: Sequence[Callable[[Session], T]]) -> list[T | Exception]:
    """Do pieces of work in a transaction that holds the book."""
    piece = _Piece(works)
    _do(session, [piece])
    return piece.outcomes


def _needs(work: Callable[[Session], Any]) -> Needs | None:
    return getattr(work, "needs", None)


def _attempted(session: Session, work: Callable[[Session], T]) -> T | Exception:
    try:
        return session.attempt(work)
    except session.failures:
        raise
    except Exception as error:
        return error


def _undone(error: BaseException) -> LedgerError:
    """Say to one thread what happened to the transaction that another led: an error of its own."""
    if isinstance(error, LedgerError):
        return type(error)(str(error))
    return LedgerUnavailable(
        f"the thread that wrote to the ledger for several must finish, and was stopped "
        f"({type(error).__name__}). Nothing is released; try again."
    )
