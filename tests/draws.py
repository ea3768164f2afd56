"""Random cases for tests: the same for the same name, from the one source of randomness."""

from __future__ import annotations

import zlib
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeVar

from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


class Draws:
    """Numbers and choices that the name determines."""

    def __init__(self, name: str) -> None:
        self._stream = Stream.from_seed(zlib.crc32(name.encode()))

    def random(self) -> float:
        """Between 0 and 1, neither of them."""
        return (int(self._stream.words(1)[0]) >> 12 | 1) * 2.0**-52

    def uniform(self, low: float, high: float) -> float:
        """Between two numbers."""
        return low + (high - low) * self.random()

    def normal(self) -> float:
        """From the standard normal law."""
        return NormalDist().inv_cdf(self.random())

    def whole(self, low: int, high: int) -> int:
        """From ``low`` to ``high``, both possible."""
        return low + int((high - low + 1) * self.random())

    def choice(self, among: Sequence[T]) -> T:
        """One of several."""
        return among[self.whole(0, len(among) - 1)]
