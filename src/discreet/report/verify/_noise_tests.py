"""What the noise allows the columns of a published file to look like, whatever the true rows were.

A released number is a true one, somewhere in its declared range, plus noise of a known law. So its mean
cannot lie far outside the range, it cannot vary less than the noise or much more than noise and range
together, and no cell can be farther out than the noise reaches. Each bound fails for an honest release with a
probability that is stated, whatever the rows: no assumption about them is made.

Reference
---------
docs/reference/statement.md says which bound is used where; the tail bounds are those of Bernstein and
Chernoff.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit.channel import ResponseChannel, SampledChannel, channel_of
from discreet.noise.in_range import InRange
from discreet.noise_law import (
    Additive,
    BoundedLaw,
    GaussianLaw,
    InRangeLaw,
    JointResponseLaw,
    LaplaceLaw,
    MaskedLabelLaw,
    ResponseLaw,
    SampledLaw,
    SphericalLaw,
)
from discreet.release.masked.encoding import apportion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Words
    from discreet.release import ColumnSummary
    from discreet.schema import Column

FAILURE = 1e-9
"""Chance that a true release fails any of the tests of its file."""
_LATTICE = 2.0**-12
"""Rounding to the lattice moves a cell by less than this part of the noise's standard deviation."""
_BINS = 16


@dataclass(frozen=True, slots=True)
class Tails:
    """How far noise goes: ``log E exp(s z) <= variance s^2 / (2 (1 - scale |s|))``, and a fourth moment.

    Parameters
    ----------
    variance, fourth : float
        Central moments; the fourth is an upper bound.
    scale : float
        Zero for Gaussian tails.
    farthest : float
        Most that noise can be away from its mean; infinite where it has no end.
    """

    variance: float
    fourth: float
    scale: float
    farthest: float = math.inf

    @classmethod
    def of(cls, law: Additive) -> Tails | None:
        """Return the tails of a law; None for one that is not known here."""
        v = law.variance
        if isinstance(law, GaussianLaw):
            return cls(v, 3 * v * v, 0.0)
        if isinstance(law, LaplaceLaw):
            return cls(v, 6 * v * v, law.scale)
        if isinstance(law, SphericalLaw):
            d = law.dimension
            return cls(v, 3 * (d + 1) * (d + 3) * law.scale**4, law.scale)
        if isinstance(law, BoundedLaw):
            most = max(law.upper - law.mean, law.mean - law.lower)
            return cls(v, most * most * v, most / 3, most)
        return None

    def mean(self, n: int, u: float, *, square: float = 1.0, largest: float = 1.0) -> float:
        """Bound a mean with weights of this mean square and largest size; fails with probability exp(-u)."""
        return math.sqrt(2 * self.variance * square * u / n) + self.scale * largest * u / n

    def reach(self, n: int, u: float) -> float:
        """Bound the largest of ``n`` draws, on one side; fails with probability exp(-u)."""
        most = math.log(n) + u
        return min(self.farthest, math.sqrt(2 * self.variance * most) + self.scale * most)


class ColumnTest(ABC):
    """Watches one column of a file go by, and says in the end whether it can be."""

    column: str
    bounds: int

    @abstractmethod
    def see(self, values: AnyArray) -> None:
        """Take some published cells."""

    @abstractmethod
    def wrong(self, u: float) -> list[str]:
        """Return what cannot be; each of ``bounds`` statements fails with probability at most ``exp(-u)``."""


class AdditiveTest(ColumnTest):
    """A number with independent noise: mean, spread and reach."""

    bounds = 5

    def __init__(self, column: Column, law: Additive, tails: Tails) -> None:
        self.column = column.name
        self._law, self._tails = law, tails
        self._lower, self._upper = column.range
        self._middle = self._lower + (self._upper - self._lower) / 2
        self._n = self._pairs = 0
        self._sum = self._squares = self._pair_squares = 0.0
        self._least, self._most = math.inf, -math.inf

    def see(self, values: AnyArray) -> None:
        """Add cells up, counted from the middle of the range; what is missing says nothing about noise."""
        y = values[~np.isnan(values)] - self._middle
        if not len(y):
            return
        self._n += len(y)
        self._sum += float(y.sum())
        self._squares += float(np.dot(y, y))
        pairs = y[: len(y) // 2 * 2].reshape(-1, 2)
        apart = pairs[:, 0] - pairs[:, 1]
        self._pairs += len(apart)
        self._pair_squares += float(np.dot(apart, apart)) / 2
        self._least = min(self._least, float(y.min()))
        self._most = max(self._most, float(y.max()))

    def wrong(self, u: float) -> list[str]:
        """Compare with what the range and the noise allow."""
        if not self._n:
            return []
        n, tails, half = self._n, self._tails, (self._upper - self._lower) / 2
        room = _LATTICE * math.sqrt(tails.variance) + (self._law.grid or 0.0) / 2
        mean = self._sum / n
        found = []
        if abs(mean - self._law.mean) > half + tails.mean(n, u) + room:
            found.append(f"Column {self.column!r}: its mean is farther out than range and noise allow.")
        reach = half + tails.reach(n, u) + room
        if self._least - self._law.mean < -reach or self._most - self._law.mean > reach:
            found.append(f"Column {self.column!r}: a cell is farther out than the noise reaches.")
        spread = math.sqrt(max(self._squares / n - mean * mean, 0.0))
        if spread > self._widest(u) + room:
            found.append(f"Column {self.column!r}: it varies more than range and noise together allow.")
        if self._pairs and math.sqrt(self._pair_squares / self._pairs) < self._narrowest(u) - 2 * room:
            found.append(f"Column {self.column!r}: it varies less than its noise must make it vary.")
        return found

    def _widest(self, u: float) -> float:
        """Bound the standard deviation above: that of the values, their product with the noise, the noise."""
        n, tails, u = self._n, self._tails, u + math.log(4)
        width = self._upper - self._lower
        squares = tails.variance + math.sqrt(2 * tails.fourth * u / n)
        squares += tails.reach(n, u) ** 2 * u / (3 * n)
        across = tails.mean(n, u, square=width**2 / 4, largest=width)
        return math.sqrt(width**2 / 4 + 2 * across + squares)

    def _narrowest(self, u: float) -> float:
        """Bound half the mean squared difference of neighbors below, whatever their true difference.

        With ``D = (d + w)^2 / 2``, ``w`` the difference of two draws, ``log E exp(-s D)`` is at most
        ``-s E D + s^2 E D^2 / 2``; while ``s <= 4 / (6 E w^2 + width^2)`` that is largest where the true
        difference ``d`` is zero.
        """
        variance, fourth, width = self._tails.variance, self._tails.fourth, self._upper - self._lower
        second, pairs = 2 * fourth + 6 * variance**2, self._pairs
        s = min(math.sqrt(8 * u / (pairs * second)), 4 / (12 * variance + width**2))
        return math.sqrt(max(variance - s * second / 8 - u / (pairs * s), 0.0))


class ShareTest(ColumnTest):
    """A list, a missing flag or bins: how often each level is published."""

    def __init__(self, column: str, names: list[str], least: Floats, most: Floats) -> None:
        self.column = column
        self._names, self._least, self._most = names, least, most
        self._counts = np.zeros(len(names), np.int64)
        self.bounds = 2 * len(names)

    def see(self, values: AnyArray) -> None:
        """Count codes; what is no code was found elsewhere."""
        codes = values[(values >= 0) & (values < len(self._names))].astype(np.int64)
        self._counts += np.bincount(codes, minlength=len(self._names))

    def wrong(self, u: float) -> list[str]:
        """Compare each share with the least and the most that the law gives a level."""
        n = int(self._counts.sum())
        found = []
        for count, name, least, most in zip(self._counts, self._names, self._least, self._most, strict=True):
            share = float(count) / n if n else least
            low, high = float(least), float(most)
            if (share < low and n * _divergence(share, low) > u) or (
                share > high and n * _divergence(share, high) > u
            ):
                found.append(f"Column {self.column!r}: {name} is not as frequent as the law makes it.")
        return found


class InRangeTest(ShareTest):
    """A number redrawn in its range: how often it falls into each part of it."""

    def __init__(self, column: str, law: InRangeLaw) -> None:
        table = InRange(
            lower=law.lower,
            upper=law.upper,
            regularization=law.regularization,
            inputs=law.inputs,
            cells=law.cells,
        )
        bins = min(_BINS, law.cells)
        shares = table.masses.reshape(law.inputs, bins, -1).sum(axis=2, dtype=np.float64) / 2.0**63
        names = [f"part {i + 1} of {bins} of the range" for i in range(bins)]
        super().__init__(column, names, shares.min(axis=0), shares.max(axis=0))
        self._start, self._part = law.lower, (law.upper - law.lower) / bins

    def see(self, values: AnyArray) -> None:
        """Count the cells of each part."""
        present = values[~np.isnan(values)]
        super().see(np.floor((present - self._start) / self._part))


class MissingTest(ShareTest):
    """How often a number is published as missing."""

    def __init__(self, column: str, keep: float) -> None:
        least, most = min(keep, 1 - keep), max(keep, 1 - keep)
        names = ["a cell that is there", "a missing cell"]
        super().__init__(column, names, np.array([least, least]), np.array([most, most]))

    def see(self, values: AnyArray) -> None:
        """Count missing cells."""
        super().see(np.isnan(values).astype(np.int64))


class CountTest(ColumnTest):
    """Labels whose counts follow from public shares."""

    bounds = 1

    def __init__(self, column: str, shares: tuple[float, ...]) -> None:
        self.column = column
        self._shares = shares
        self._counts = np.zeros(len(shares), np.int64)

    def see(self, values: AnyArray) -> None:
        """Count codes; what is no code was found elsewhere."""
        codes = values[(values >= 0) & (values < len(self._shares))].astype(np.int64)
        self._counts += np.bincount(codes, minlength=len(self._shares))

    def wrong(self, u: float) -> list[str]:
        """Compare each count with the one that the shares give."""
        if (self._counts == apportion(self._shares, int(self._counts.sum()))).all():
            return []
        return [f"Column {self.column!r}: its counts are not those of the public shares."]


def column_tests(column: Column, summary: ColumnSummary) -> list[ColumnTest]:
    """Return what can be tested of one published column; nothing where its law bounds nothing."""
    law, made = summary.law, list[ColumnTest]()
    if isinstance(law, ResponseLaw | JointResponseLaw | SampledLaw):
        channel = channel_of(column, law)
        assert isinstance(channel, ResponseChannel)
        names = ["a missing cell" if level is None else f"{level!r}" for level in column.levels]
        least, most = (np.full(len(names), end(channel.keep, channel.other)) for end in (min, max))
        if isinstance(channel, SampledChannel):
            least, most = channel.share * least, channel.share * most
            least[channel.hidden] = most[channel.hidden] = 1 - channel.share
        made.append(ShareTest(column.name, names, least, most))
    elif isinstance(law, InRangeLaw):
        made.append(InRangeTest(column.name, law))
    elif isinstance(law, MaskedLabelLaw) and law.shares is not None:
        made.append(CountTest(column.name, law.shares))
    elif isinstance(law, Additive) and not law.clamped and (tails := Tails.of(law)) is not None:
        made.append(AdditiveTest(column, law, tails))
    if law.missing_keep is not None:
        made.append(MissingTest(column.name, law.missing_keep))
    return made


def _divergence(share: float, chance: float) -> float:
    """Return the information by which a share departs from a chance (Chernoff's exponent)."""
    if chance <= 0 or chance >= 1:
        return 0.0
    parts = [(share, chance), (1 - share, 1 - chance)]
    return sum(p * math.log(p / q) for p, q in parts if p > 0)


MOST_ROWS = 5_000_000
"""So many rows, the first of the file, are compared with each other."""
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


class RepeatTest:
    """Watches rows go by, and says in the end whether more of them repeat than noise allows.

    Two rows come out the same with a chance of at most ``chance``, whatever was true. Of ``n`` rows, ``k``
    pairs without a row in common repeat with a chance of at most ``(n**2 chance / 2)**k / k!``: so many are
    needed that an honest file fails once in 10^9.

    Parameters
    ----------
    columns : sequence of str
        Names of the noised numbers.
    chance : float
        That those of two rows are the same; 1 if nothing is known.
    """

    def __init__(self, columns: Sequence[str], chance: float) -> None:
        self.columns = columns
        self.chance = chance
        self._prints: list[Words] = []
        self._n = 0

    @property
    def tells(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self.columns) and self.chance < 1

    def see(self, batch: Mapping[str, AnyArray]) -> None:
        """Take two 64-bit fingerprints of each row whose numbers are all there."""
        if not self.tells or self._n >= MOST_ROWS:
            return
        matrix = np.column_stack([batch[name] for name in self.columns]).astype(np.float64)
        words = matrix[~np.isnan(matrix).any(axis=1)].view(np.uint64)
        prints = np.zeros((len(words), 2), np.uint64)
        for j in range(words.shape[1]):
            for i, multiplier in enumerate(_MULTIPLIERS):
                mixed = (prints[:, i] ^ words[:, j]) * np.uint64(multiplier)
                prints[:, i] = mixed ^ (mixed >> np.uint64(29 + i))
        self._prints.append(prints)
        self._n += len(words)

    def wrong(self) -> list[str]:
        """Return a fault if more rows repeat than an honest file has once in 10^9."""
        if not self._n:
            return []
        _, counts = np.unique(np.concatenate(self._prints), axis=0, return_counts=True)
        pairs = int((counts // 2).sum())
        expected = self._n**2 * self.chance / 2
        if not pairs or pairs * math.log(expected) - math.lgamma(pairs + 1) >= math.log(FAILURE):
            return []
        repeated = int((counts - 1).sum())
        return [f"{repeated} rows repeat others in every noised number, which their own noise rules out."]
