"""A Gram matrix whose columns are in several databases: its blocks, and how they are put together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from discreet._typing import Floats
from discreet.query.cross import best_sketches, estimated, sketch_variance
from discreet.query.passes import ONE
from discreet.query.questions import MOST_CELLS, Gram, Question, SignSketches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._typing import Ints

Asker: TypeAlias = Callable[[int, Question, Fraction, Fraction], tuple[Floats, Floats]]
"""Database, question, the database's share of a promise and which portion of it is for the question; returns
the answer and its standard deviations."""

OWN = Fraction(1, 10)
"""Portion of a share for products inside the database; those across are far noisier."""
ACROSS = 1 - OWN
"""Portion of a share for sketches."""
_MOVES = (0.0, 0.25, 0.5, 0.75, 1.0)  # parts of the way from the center of a question to the means


@dataclass(frozen=True, eq=False)
class Part:
    """What one database has of a question: columns, and where their coordinates stand."""

    database: int
    columns: tuple[str, ...]
    places: Ints
    center: Floats
    radius: float | None
    spread: float  # mean square of a coordinate, if rows are spread evenly over what is declared

    def sketches(self, m: int, key: str, offset: Floats | float = 0.0) -> SignSketches:
        """Return the question for its sketches, about its center or farther on."""
        return SignSketches(self.columns, m, key, (self.center + offset).tolist(), self.radius)


@dataclass(frozen=True, eq=False)
class Own:
    """A database's own Gram matrix, taken apart; sums and count are 0 and NaN where they were not asked."""

    products: Floats
    products_sd: Floats
    sums: Floats
    sums_sd: Floats
    count: float = math.nan
    count_sd: float = math.nan

    @classmethod
    def of(cls, value: Floats, sd: Floats, *, counted: bool) -> Own:
        """Take the answer of a Gram question apart, that of one with sums if counted."""
        if not counted:
            return cls(value, sd, np.zeros(len(value)), np.zeros(len(value)))
        return cls(value[1:, 1:], sd[1:, 1:], value[0, 1:], sd[0, 1:], float(value[0, 0]), float(sd[0, 0]))

    def square(self, count: float, offset: Floats) -> float:
        """Return the mean over coordinates of their sums of squares, about a center that was moved."""
        squares = np.diag(self.products) - 2 * offset * self.sums + count * offset**2
        # Below its noise nothing is known of it.
        return max(float(squares.mean()), float(np.diag(self.products_sd).mean()))


@dataclass(frozen=True, eq=False)
class GramAcross:
    """A Gram matrix whose columns are in several databases.

    Attributes
    ----------
    parts : sequence of (Part, Fraction)
        What each database has, and its share of the promise.
    key : str
        Fixes the signs.
    sketches : int or None
        How many; the best number if None.
    preview : callable
        Looks up the noise of a question, free.

    Privacy
    -------
    A tenth of each share is for products inside the database, the rest for its sketches. How many sketches
    are asked, and about which center, follows from noisy answers alone.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """

    parts: Sequence[tuple[Part, Fraction]]
    key: str
    sketches: int | None
    preview: Asker

    def ask(self, asker: Asker, *, with_sums: bool, n_rows: int | None) -> tuple[Floats, Floats, int, float]:
        """Ask for products inside databases, then for sketches about what is known of the means.

        Returns the matrix, its standard deviations, the number of sketches, and the number of rows.
        """
        self._noises()  # first: a database without ids refuses here, before anything is paid
        counted = with_sums or n_rows is None
        own = self._own(asker, counted)
        count, count_sd = _counted(n_rows, own)
        parts = [part for part, _ in self.parts]
        moves = [_MOVES if with_sums and part.radius is None else _MOVES[:1] for part in parts]
        # Paid for, so as good as public: how long the columns are says what sketches serve best.
        chosen = [
            self._center(place, each, count, moved)
            for place, (each, moved) in enumerate(zip(own, moves, strict=True))
        ]
        offsets = [offset for offset, _, _ in chosen]
        m = self._best([square for _, square, _ in chosen], [noise for _, _, noise in chosen])
        sketched = [
            asker(part.database, part.sketches(m, self.key, offset), share, ACROSS)
            for (part, share), offset in zip(self.parts, offsets, strict=True)
        ]
        value, sd = _diagonal(parts, own)
        for i, k in itertools.combinations(range(len(parts)), 2):
            (x, x_sd), (y, y_sd), u, v = sketched[i], sketched[k], offsets[i], offsets[k]
            found = estimated(x, y, x_sd, y_sd)
            # sum (a - c)(b - d)' about c and d, from sketches about c + u and d + v.
            shift = np.outer(own[i].sums, v) + np.outer(u, own[k].sums) - count * np.outer(u, v)
            noise = np.outer(own[i].sums_sd, v) ** 2 + np.outer(u, own[k].sums_sd) ** 2
            noise += (count_sd * np.outer(u, v)) ** 2
            _put(value, parts[i], parts[k], found.value + shift)
            _put(sd, parts[i], parts[k], np.sqrt(found.sd**2 + noise))
        if with_sums:
            value = _bordered(value, parts, [each.sums for each in own], count)
            sd = _bordered(sd, parts, [each.sums_sd for each in own], count_sd)
        return value, sd, m, count

    def expected_sd(self, *, with_sums: bool, n_rows: float) -> Floats:
        """Return the deviations that columns would have which are spread evenly over their ranges."""
        noises = self._noises()
        own = self._own(self.preview, with_sums)
        parts = [part for part, _ in self.parts]
        squares = [n_rows * part.spread for part in parts]
        m = self._best(squares, noises)
        _, sd = _diagonal(parts, own)
        for i, k in itertools.combinations(range(len(parts)), 2):
            variance = sketch_variance((squares[i], squares[k]), (m * noises[i], m * noises[k]), sketches=m)
            block = np.full((len(parts[i].places), len(parts[k].places)), math.sqrt(variance))
            _put(sd, parts[i], parts[k], block)
        return _bordered(sd, parts, [each.sums_sd for each in own], 0.0) if with_sums else sd

    def _own(self, asker: Asker, counted: bool) -> list[Own]:
        made = []
        for part, share in self.parts:
            asked = Gram(part.columns, part.center.tolist(), part.radius, counted)
            made.append(Own.of(*asker(part.database, asked, share, OWN), counted=counted))
        return made

    def _noises(self) -> list[float]:
        """Return for each part the variance that a single sketch would have."""
        return [self._noise(place, 0.0) for place in range(len(self.parts))]

    def _noise(self, place: int, offset: Floats | float) -> float:
        part, share = self.parts[place]
        question = part.sketches(1, self.key, offset)
        return float(self.preview(part.database, question, share, ACROSS)[1][0, 0]) ** 2

    def _center(
        self, place: int, own: Own, count: float, moves: Sequence[float]
    ) -> tuple[Floats, float, float]:
        """Return how far sketches are moved, the mean square of coordinates there, and the noise of a sketch.

        Notes
        -----
        The variance of an estimate grows with mean square times noise. About the means the first is least,
        about the middle of the ranges the second.
        """
        part, _ = self.parts[place]
        tried = [_offset(part.center, moved * own.sums / count) for moved in moves]
        found = [(offset, own.square(count, offset), self._noise(place, offset)) for offset in tried]
        return min(found, key=lambda each: each[1] * each[2])

    def _best(self, squares: Sequence[float], noises: Sequence[float]) -> int:
        if self.sketches is not None:
            return self.sketches
        best = best_sketches([max(square, 2.0**-20) for square in squares], noises)
        return min([best, *(MOST_CELLS // len(part.places) for part, _ in self.parts)])


def _diagonal(parts: Sequence[Part], own: Sequence[Own]) -> tuple[Floats, Floats]:
    """Return a matrix of products, and one of their deviations, with the databases' own in place."""
    size = sum(len(part.places) for part in parts)
    value, sd = np.zeros((size, size)), np.zeros((size, size))
    for part, each in zip(parts, own, strict=True):
        value[np.ix_(part.places, part.places)] = each.products
        sd[np.ix_(part.places, part.places)] = each.products_sd
    return value, sd


def _put(matrix: Floats, one: Part, other: Part, block: Floats) -> None:
    """Put a block in place, and its mirror image."""
    matrix[np.ix_(one.places, other.places)] = block
    matrix[np.ix_(other.places, one.places)] = block.T


def _bordered(matrix: Floats, parts: Sequence[Part], edge: Sequence[Floats], corner: float) -> Floats:
    """Put sums and the number of rows before a matrix of products."""
    made = np.empty((len(matrix) + 1, len(matrix) + 1))
    made[0, 0], made[1:, 1:] = corner, matrix
    for part, sums in zip(parts, edge, strict=True):
        made[0, 1 + part.places] = made[1 + part.places, 0] = sums
    return made


def _counted(n_rows: int | None, own: Sequence[Own]) -> tuple[float, float]:
    """Return the number of rows and the deviation of its noise, from all that was counted."""
    if n_rows is not None:
        return float(max(n_rows, 1)), 0.0
    weights = np.array([1 / each.count_sd**2 for each in own])
    count = float(weights @ [each.count for each in own] / weights.sum())
    return max(count, 1.0), float(weights.sum() ** -0.5)


def _offset(center: Floats, means: Floats) -> Floats:
    """Return how far a noisy mean is from a center, both on the grid of questions and inside the box."""
    moved = np.floor(np.clip(center + means, 0.0, 1.0) * ONE + 0.5) / ONE
    return np.asarray(moved - center)
