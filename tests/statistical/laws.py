"""Exact laws of the samplers: distribution functions and cells to count in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats, Ints


@dataclass(frozen=True)
class IntegerLaw:
    """A symmetric law on the integers.

    ``below(x)`` is the probability of a value at most ``x``, accurate in relative terms for negative
    ``x``; ``mean_absolute`` and ``deviation_absolute`` are mean and standard deviation of ``abs(value)``.
    """

    name: str
    scale: float
    below: Callable[[Floats], Floats]
    deviation: float
    mean_absolute: float
    deviation_absolute: float

    def cdf(self, x: Floats) -> Floats:
        return np.where(x < 0, self.below(np.minimum(x, -1.0)), 1 - self.below(-np.maximum(x, 0.0) - 1))

    def edges(self, cells: int) -> Ints:
        """Last integers of ``cells`` cells of about equal probability; the last cell has no end."""
        ranks = np.arange(1, cells // 2 + 1) / cells
        low, high = np.full(ranks.shape, -100.0 * self.scale - 10), np.zeros(ranks.shape)
        for _ in range(80):
            middle = (low + high) / 2
            under = self.below(np.minimum(np.floor(middle), -1.0)) < ranks
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        left = np.unique(np.floor(high)[np.floor(high) < 0])
        return np.concatenate([left, -left[::-1] - 1]).astype(np.int64)

    def probabilities(self, edges: Ints) -> Floats:
        """Probabilities of the cells that end at ``edges``."""
        return np.diff(self.cdf(edges.astype(np.float64)), prepend=0.0, append=1.0)


def rounded_gaussian_law(s: float) -> IntegerLaw:
    """The law of ``round(N(0, s**2))``."""

    def below(x: Floats) -> Floats:
        return np.asarray(special.ndtr((x + 0.5) / s))

    if s < 2**13:
        x = np.arange(1, int(40 * s) + 10, dtype=np.float64)
        tail = below(-x)  # P(|X| >= x) is twice this
        mean, square = 2 * math.fsum(tail), 2 * math.fsum((2 * x - 1) * tail)
    else:
        # Rounding changes the mean by less than 1 / s and the square by 1/12: nothing beside s.
        mean, square = s * math.sqrt(2 / math.pi), s * s + 1 / 12
    return IntegerLaw(
        f"rounded Gaussian {s:g}", s, below, math.sqrt(square), mean, math.sqrt(square - mean**2)
    )


def discrete_laplace_law(scale: float) -> IntegerLaw:
    """The law with mass proportional to ``exp(-abs(x) / scale)``."""
    q = math.exp(-1 / scale)
    gap = -math.expm1(-1 / scale)  # 1 - q

    def below(x: Floats) -> Floats:
        return np.exp(x / scale) / (1 + q)

    square = 2 * q / gap**2
    mean = 2 * q / (gap * (1 + q))
    return IntegerLaw(
        f"discrete Laplace {scale:g}", scale, below, math.sqrt(square), mean, math.sqrt(square - mean**2)
    )
