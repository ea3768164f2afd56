"""Connections that wait for their next use, apart for each process."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from discreet.ledger.line import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

IDLE = 8
"""How many connections are kept for their next use, and how many threads may read at once."""


class Closing(Protocol):
    """Anything that is closed in the end."""

    def close(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Closing)

# Connections inherited over a fork belong to the parent: using or closing them here could release its
# locks or end its session. They are kept, unused, so that nothing closes them.
_INHERITED: list[object] = []


class _Process(Generic[C]):
    def __init__(self) -> None:
        self.pid = os.getpid()
        # A deque takes and gives whole elements without a lock, which a fork could leave taken.
        self.idle: deque[C] = deque()
        self.line = Line()
        self.readers = threading.BoundedSemaphore(IDLE)


class Pool(Generic[C]):
    """Idle connections of this process, and the line in which its writing threads wait.

    A connection is used by one thread at a time. After a fork the child starts with an empty pool.
    """

    def __init__(self) -> None:
        self._process: _Process[C] = _Process()

    def _here(self) -> _Process[C]:
        if self._process.pid != os.getpid():
            _INHERITED.append(self._process)
            self._process = _Process()
        return self._process

    def take(self) -> C | None:
        """Take an idle connection, if there is one."""
        try:
            return self._here().idle.pop()
        except IndexError:
            return None

    def keep(self, connection: C) -> None:
        """Keep a connection for its next use, or close it if there are enough."""
        idle = self._here().idle
        if len(idle) < IDLE:
            idle.append(connection)
        else:
            connection.close()

    @property
    def line(self) -> Line:
        """The writing threads of this process."""
        return self._here().line

    @contextlib.contextmanager
    def reading(self, timeout: float) -> Iterator[None]:
        """Take one of the places for reading threads: opening connections beyond what is kept costs more."""
        readers = self._here().readers
        if not readers.acquire(timeout=timeout):
            raise TimeoutError("too many threads are reading")
        try:
            yield
        finally:
            readers.release()

    def close(self) -> None:
        """Close what is idle."""
        while (idle := self.take()) is not None:
            idle.close()
