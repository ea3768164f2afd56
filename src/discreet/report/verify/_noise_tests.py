"""Bounds on the columns of a published file that the noise law implies, whatever the true rows were.

A released number is a true one in its declared range plus noise of a known law. So its mean cannot lie far
outside the range, it cannot vary less than the noise or much more than noise and range together, and no cell
can be farther out than the noise reaches. Each bound fails for an honest release with a stated probability;
nothing is assumed about the rows.

Reference
---------
docs/reference/statement.md says which bound is used where; the tail bounds are those of Bernstein and
Chernoff.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from discreet.audit.channel import ResponseChannel, SampledChannel, build_channel
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

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Words
    from discreet.release import ColumnSummary
    from discreet.schema import Column

FAILURE = 1e-9
"""Probability that an honest release fails any of the tests of its file."""
_LATTICE = 2.0**-12
"""Bound on the move of a cell by rounding to the lattice, in standard deviations of the noise."""
_BINS = 16


@dataclass(frozen=True, slots=True)
class Tails:
    """Tail bound of a noise law: ``log E exp(s z) <= variance s^2 / (2 (1 - scale |s|))``.

    Parameters
    ----------
    variance, fourth : float
        Second central moment, and an upper bound on the fourth.
    scale : float
        Scale of the exponential part of the tail; 0 for Gaussian tails.
    farthest : float
        Largest distance of the noise from its mean; infinite for unbounded noise.
    """

    variance: float
    fourth: float
    scale: float
    farthest: float = math.inf

    @classmethod
    def from_law(cls, law: Additive) -> Tails | None:
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
        """Return a bound on a weighted mean of n draws (Bernstein), which fails with probability exp(-u).

        ``square`` is the mean square of the weights, ``largest`` the largest of them.
        """
        return math.sqrt(2 * self.variance * square * u / n) + self.scale * largest * u / n

    def reach(self, n: int, u: float) -> float:
        """Return a one-sided bound on the largest of ``n`` draws, which fails with probability exp(-u)."""
        most = math.log(n) + u
        return min(self.farthest, math.sqrt(2 * self.variance * most) + self.scale * most)


class ColumnTest(ABC):
    """Test of one published column, batch by batch, against what its noise law allows.

    Each file of a table in parts has a test of its own; :meth:`merge` joins them.

    Attributes
    ----------
    column : str
        Name of the tested column.
    bounds : int
        Number of bounds that the test uses, for the joint failure probability.
    """

    column: str
    bounds: int

    @abstractmethod
    def update(self, values: AnyArray) -> None:
        """Add some published cells."""

    @abstractmethod
    def merge(self, later: Self) -> None:
        """Add the cells of the same test of later rows."""

    @abstractmethod
    def faults(self, u: float) -> list[str]:
        """Return the violated bounds, one sentence each; each fails with probability at most ``exp(-u)``."""


class AdditiveTest(ColumnTest):
    """Test of a number with independent noise: mean, standard deviation and extremes."""

    bounds = 5

    def __init__(self, column: Column, law: Additive, tails: Tails) -> None:
        self.column = column.name
        self._law, self._tails = law, tails
        self._lower, self._upper = column.range
        self._middle = self._lower + (self._upper - self._lower) / 2
        self._n = self._pairs = 0
        self._sum = self._squares = self._pair_squares = 0.0
        self._least, self._most = math.inf, -math.inf

    def update(self, values: AnyArray) -> None:
        """Add sums over cells, counted from the middle of the range; missing cells are ignored."""
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

    def merge(self, later: Self) -> None:
        """Add sums, and take the farther extremes."""
        self._n += later._n
        self._sum += later._sum
        self._squares += later._squares
        self._pairs += later._pairs
        self._pair_squares += later._pair_squares
        self._least = min(self._least, later._least)
        self._most = max(self._most, later._most)

    def faults(self, u: float) -> list[str]:
        """Return how mean, extremes and spread violate the bounds from range and noise."""
        if not self._n:
            return []
        n, tails, half = self._n, self._tails, (self._upper - self._lower) / 2
        room = _LATTICE * math.sqrt(tails.variance) + (self._law.grid or 0.0) / 2
        mean = self._sum / n
        faults: list[str] = []
        if abs(mean - self._law.mean) > half + tails.mean(n, u) + room:
            faults.append(f"Column {self.column!r}: its mean is farther out than range and noise allow.")
        reach = half + tails.reach(n, u) + room
        if self._least - self._law.mean < -reach or self._most - self._law.mean > reach:
            faults.append(f"Column {self.column!r}: a cell is farther out than the noise reaches.")
        spread = math.sqrt(max(self._squares / n - mean * mean, 0.0))
        if spread > self._widest(u) + room:
            faults.append(f"Column {self.column!r}: it varies more than range and noise together allow.")
        if self._pairs and math.sqrt(self._pair_squares / self._pairs) < self._narrowest(u) - 2 * room:
            faults.append(f"Column {self.column!r}: it varies less than its noise must make it vary.")
        return faults

    def _widest(self, u: float) -> float:
        """Return an upper bound on the standard deviation of published cells.

        Notes
        -----
        The variance is at most ``width^2 / 4 + 2 c + s``: that of values in the range, c a bound on the mean
        product of values and noise, and s one on the mean square of the noise.
        """
        n, tails, u = self._n, self._tails, u + math.log(4)
        width = self._upper - self._lower
        squares = tails.variance + math.sqrt(2 * tails.fourth * u / n)
        squares += tails.reach(n, u) ** 2 * u / (3 * n)
        across = tails.mean(n, u, square=width**2 / 4, largest=width)
        return math.sqrt(width**2 / 4 + 2 * across + squares)

    def _narrowest(self, u: float) -> float:
        """Return a lower bound on the root of half the mean squared difference of neighboring cells.

        Notes
        -----
        With ``D = (d + w)^2 / 2``, ``w`` the difference of two draws, ``log E exp(-s D)`` is at most
        ``-s E D + s^2 E D^2 / 2``; while ``s <= 4 / (6 E w^2 + width^2)`` that is largest where the true
        difference ``d`` is zero.
        """
        variance, fourth, width = self._tails.variance, self._tails.fourth, self._upper - self._lower
        second, pairs = 2 * fourth + 6 * variance**2, self._pairs
        s = min(math.sqrt(8 * u / (pairs * second)), 4 / (12 * variance + width**2))
        return math.sqrt(max(variance - s * second / 8 - u / (pairs * s), 0.0))


class ShareTest(ColumnTest):
    """Test of the shares of levels in a list, of missing cells, or of bins."""

    def __init__(self, column: str, names: list[str], least: Floats, most: Floats) -> None:
        self.column = column
        self._names, self._least, self._most = names, least, most
        self._counts = np.zeros(len(names), np.int64)
        self.bounds = 2 * len(names)

    def update(self, values: AnyArray) -> None:
        """Count codes; cells that are no code are reported by another check."""
        codes = values[(values >= 0) & (values < len(self._names))].astype(np.int64)
        self._counts += np.bincount(codes, minlength=len(self._names))

    def merge(self, later: Self) -> None:
        """Add counts."""
        self._counts += later._counts

    def faults(self, u: float) -> list[str]:
        """Return the levels whose share is outside what the law allows, by Chernoff's bound."""
        n = int(self._counts.sum())
        faults: list[str] = []
        for count, name, least, most in zip(self._counts, self._names, self._least, self._most, strict=True):
            share = float(count) / n if n else least
            low, high = float(least), float(most)
            if (share < low and n * _divergence(share, low) > u) or (
                share > high and n * _divergence(share, high) > u
            ):
                faults.append(f"Column {self.column!r}: {name} is not as frequent as the law makes it.")
        return faults


class InRangeTest(ShareTest):
    """Test of a number redrawn in its range: shares of its parts."""

    def __init__(self, column: str, law: InRangeLaw) -> None:
        """Compute the least and the largest share of each part of the range from the table of the law."""
        from discreet.noise import InRange

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

    def update(self, values: AnyArray) -> None:
        """Count the cells in each part of the range."""
        present = values[~np.isnan(values)]
        super().update(np.floor((present - self._start) / self._part))


class MissingTest(ShareTest):
    """Test of the share of missing cells of a number."""

    def __init__(self, column: str, keep: float) -> None:
        least, most = min(keep, 1 - keep), max(keep, 1 - keep)
        names = ["a cell that is there", "a missing cell"]
        super().__init__(column, names, np.array([least, least]), np.array([most, most]))

    def update(self, values: AnyArray) -> None:
        """Count missing cells and others."""
        super().update(np.isnan(values).astype(np.int64))


class CountTest(ColumnTest):
    """Test of labels whose counts follow from public shares."""

    bounds = 1

    def __init__(self, column: str, shares: tuple[float, ...]) -> None:
        self.column = column
        self._shares = shares
        self._counts = np.zeros(len(shares), np.int64)

    def update(self, values: AnyArray) -> None:
        """Count codes; cells that are no code are reported by another check."""
        codes = values[(values >= 0) & (values < len(self._shares))].astype(np.int64)
        self._counts += np.bincount(codes, minlength=len(self._shares))

    def merge(self, later: Self) -> None:
        """Add counts."""
        self._counts += later._counts

    def faults(self, u: float) -> list[str]:
        """Return a fault if the counts are not those of the public shares."""
        from discreet.release.masked.encoding import apportion  # loaded here, for masked rows alone

        if (self._counts == apportion(self._shares, int(self._counts.sum()))).all():
            return []
        return [f"Column {self.column!r}: its counts are not those of the public shares."]


def column_tests(column: Column, summary: ColumnSummary) -> list[ColumnTest]:
    """Return the tests of one published column; none where its law gives no bounds."""
    law, tests = summary.law, list[ColumnTest]()
    if isinstance(law, ResponseLaw | JointResponseLaw | SampledLaw):
        channel = build_channel(column, law)
        assert isinstance(channel, ResponseChannel)
        names = ["a missing cell" if level is None else f"{level!r}" for level in column.levels]
        least, most = (np.full(len(names), end(channel.keep, channel.other)) for end in (min, max))
        if isinstance(channel, SampledChannel):
            least, most = channel.share * least, channel.share * most
            least[channel.hidden] = most[channel.hidden] = 1 - channel.share
        tests.append(ShareTest(column.name, names, least, most))
    elif isinstance(law, InRangeLaw):
        tests.append(InRangeTest(column.name, law))
    elif isinstance(law, MaskedLabelLaw) and law.shares is not None:
        tests.append(CountTest(column.name, law.shares))
    elif isinstance(law, Additive) and not law.clamped and (tails := Tails.from_law(law)) is not None:
        tests.append(AdditiveTest(column, law, tails))
    if law.missing_keep is not None:
        tests.append(MissingTest(column.name, law.missing_keep))
    return tests


def _divergence(share: float, chance: float) -> float:
    """Return the Kullback-Leibler divergence of a share from a probability: Chernoff's exponent."""
    if chance <= 0 or chance >= 1:
        return 0.0
    parts = [(share, chance), (1 - share, 1 - chance)]
    return sum(p * math.log(p / q) for p, q in parts if p > 0)


MOST_ROWS = 5_000_000
"""Number of rows, the first of the file, that are compared with each other."""
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


class RepeatTest:
    """Test whether more rows repeat than independent noise allows.

    Parameters
    ----------
    columns : sequence of str
        Names of the numeric columns with noise.
    chance : float
        Bound on the probability that two rows agree in these columns; 1 if none is known.
    start : int
        Number of rows of the table before the first one that is added.

    Notes
    -----
    Of ``n`` rows, ``k`` disjoint pairs repeat with probability at most ``(n**2 chance / 2)**k / k!``,
    whatever the true rows. The test fails where this is below 10^-9.
    """

    def __init__(self, columns: Sequence[str], chance: float, start: int = 0) -> None:
        self.columns = columns
        self.chance = chance
        self._prints: list[Words] = []
        self._rows_left = max(MOST_ROWS - start, 0)

    @property
    def is_informative(self) -> bool:
        """Whether repeated rows are evidence against the file."""
        return bool(self.columns) and self.chance < 1

    def update(self, batch: Mapping[str, AnyArray]) -> None:
        """Store two 64-bit fingerprints of each row without missing numbers."""
        if not self.is_informative or not self._rows_left:
            return
        numbers = [batch[name][: self._rows_left] for name in self.columns]
        self._rows_left -= len(numbers[0])
        matrix = np.column_stack(numbers).astype(np.float64)
        words = matrix[~np.isnan(matrix).any(axis=1)].view(np.uint64)
        prints = np.zeros((len(words), 2), np.uint64)
        for j in range(words.shape[1]):
            for i, multiplier in enumerate(_MULTIPLIERS):
                mixed = (prints[:, i] ^ words[:, j]) * np.uint64(multiplier)
                prints[:, i] = mixed ^ (mixed >> np.uint64(29 + i))
        self._prints.append(prints)

    def merge(self, later: Self) -> None:
        """Add the fingerprints of later rows."""
        self._prints += later._prints

    def faults(self) -> list[str]:
        """Return a fault if more rows repeat than an honest file has once in 10^9."""
        n_rows = sum(map(len, self._prints))
        if not n_rows:
            return []
        _, counts = np.unique(np.concatenate(self._prints), axis=0, return_counts=True)
        pairs = int((counts // 2).sum())
        expected = n_rows**2 * self.chance / 2
        if not pairs or pairs * math.log(expected) - math.lgamma(pairs + 1) >= math.log(FAILURE):
            return []
        repeated = int((counts - 1).sum())
        return [f"{repeated} rows repeat others in every noised number, which their own noise rules out."]
