"""Keys of tests follow from their names: whoever draws a fresh one gets the same in every run.

A check that a fixed key passes cannot alarm falsely. Tests marked `stats` and processes that a test starts
draw from the system; those of them that decide by chance state how often they are wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_system = os.urandom


class _Keys:
    """Stands in for the system's randomness; `name` is what runs now, None for the system itself."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._count = itertools.count()

    def __call__(self, size: int) -> bytes:
        if self.name is None:
            return _system(size)
        words = f"{self.name} {next(self._count)}".encode()
        return hashlib.shake_256(words).digest(size)

    def follow_system(self) -> None:
        """Draw from the system from now on: the parent of a forked process goes on with the same names."""
        self.name = None

    @contextlib.contextmanager
    def of(self, name: str | None) -> Iterator[None]:
        """Let what is drawn in the block follow from a name."""
        before = self.name, self._count
        self.name, self._count = name, itertools.count()
        try:
            yield
        finally:
            self.name, self._count = before


KEYS = _Keys()
