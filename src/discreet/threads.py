"""Small products of matrices on one thread: more threads cost more than they bring.

The threads of a BLAS wait for each other by spinning. On tables with few columns, several of them were
measured to take ten times the processor time of one, and more on a busy machine.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_LIBRARIES = ("numpy", "scipy.linalg", "sklearn.utils")
"""Packages that bring a library with threads of its own; one may be loaded after the others were limited."""


@cache
def _thread_pools(_loaded: tuple[str, ...]) -> Any:
    """Return the libraries with threads; looking for them takes as long as training a small model."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


class _Limits:
    """Limits that hold as long as anyone works under them: the number of threads belongs to the process."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._pools: list[Any] = []
        self._restore = ExitStack()

    def enter(self) -> None:
        pools = _thread_pools(tuple(name for name in _LIBRARIES if name in sys.modules))
        with self._lock:
            self._users += 1
            if pools not in self._pools:
                self._pools.append(pools)
                self._restore.enter_context(pools.limit(limits=1))

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._restore.close()
                self._pools.clear()


_LIMITS = _Limits()


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep BLAS and OpenMP on one thread inside the context.

    Contexts may be nested and held by several threads at once; the last to end restores the numbers. A
    package loaded inside a context keeps its threads until the next one begins.
    """
    _LIMITS.enter()
    try:
        yield
    finally:
        _LIMITS.leave()
