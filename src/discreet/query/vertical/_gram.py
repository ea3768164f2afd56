"""Gram matrices across databases: cross products from sketches, and the blocks put together."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import scipy

from discreet._types import Floats
from discreet.errors import ParameterError
from discreet.query.aggregates._sketches import MOST_SKETCHES, SignSketches
from discreet.query.aggregates._vectors import Gram
from discreet.query.aggregates.base import MOST_CELLS, Aggregate
from discreet.query.features import ONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Ints
    from discreet.query.answers import Answer


@dataclass(frozen=True, eq=False)
class CrossProducts:
    """Estimated sums of products of the coordinates of one database with those of another.

    Attributes
    ----------
    value : array of shape (left coordinates, right coordinates)
        Unbiased estimates of the sums over all ids that both have. Coordinates are fractions of the declared
        ranges, about the centers of the two aggregates.
    sd : array
        Standard deviation of each estimate, signs and noise together, estimated from the same sketches.
    sketches : int
        Number of sketches of each database.

    Privacy
    -------
    Computed from two noisy answers; nothing more is charged. A person in both databases bears both charges.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """

    value: Floats
    sd: Floats
    sketches: int

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends between which each sum lies with probability ``level``, for dozens of sketches."""
        if not 0 < level < 1:
            raise ParameterError(f"level of CrossProducts.interval must be between 0 and 1, was {level!r}.")
        half = float(scipy.special.ndtri((1 + level) / 2))
        return self.value - half * self.sd, self.value + half * self.sd


def cross_products(left: tuple[SignSketches, Answer], right: tuple[SignSketches, Answer]) -> CrossProducts:
    """Return estimated products across two databases, from the sketches of each.

    Parameters
    ----------
    left, right : (SignSketches, Answer)
        Aggregate of a database, and its answer. Both aggregates must have the same key and number of
        sketches.

    Privacy
    -------
    Post-processing. If the ids of the two databases differ, or mean different people, nothing shows it:
    the estimate is then 0 up to its standard deviation.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """
    (aggregate, answer), (other, response) = left, right
    for name, one, two in (
        ("key", aggregate.key, other.key),
        ("sketches", aggregate.sketches, other.sketches),
    ):
        if one != two:
            raise ParameterError(
                f"{name} of the two questions of cross_products must be the same, were {one!r} and {two!r}. "
                "People have other signs otherwise, and the estimate would be noise around 0: ask again."
            )
    return estimate_products(
        np.asarray(answer.value), np.asarray(response.value), np.asarray(answer.sd), np.asarray(response.sd)
    )


def estimate_products(left: Floats, right: Floats, left_sd: Floats, right_sd: Floats) -> CrossProducts:
    """Return estimated products from sketches with the same signs, one row each.

    Parameters
    ----------
    left, right : array of shape (sketches, coordinates)
        Noisy sketches of the two databases.
    left_sd, right_sd : array
        Standard deviations of their noise, in the same shapes.

    Notes
    -----
    With ``m`` sketches ``x`` and ``y``, the estimate of ``sum a b`` is ``mean(x y)``. Its variance is
    estimated by ``(A B + max(v**2 - A B / m, 0)) / m``, with ``A`` and ``B`` the mean squares of the
    sketches and ``v`` the estimate.
    """
    m = len(left)
    value = left.T @ right / m
    # The mean square of a column of sketches is |a|^2 + R in expectation, and below R by chance alone.
    squares = [
        np.maximum((sketch**2).mean(axis=0), noise[0] ** 2)
        for sketch, noise in ((left, left_sd), (right, right_sd))
    ]
    product = np.outer(*squares)
    # The square of an estimate is larger by its variance; what is left out is negative: see the theorem.
    variance = (product + np.maximum(value**2 - product / m, 0.0)) / m
    return CrossProducts(value, np.sqrt(variance), m)


def sketch_variance(
    squares: tuple[float, float],
    noises: tuple[float, float],
    *,
    product: float = 0.0,
    quartic: float = 0.0,
    sketches: int,
) -> float:
    """Return the variance of an estimated product of two columns, exactly.

    Parameters
    ----------
    squares : (float, float)
        Sums of squares of the two columns, about their centers.
    noises : (float, float)
        Variances of the noise on each sketch.
    product, quartic : float
        Sum of products of the two columns, and of products of their squares.
    sketches : int
        Number of sketches of each database.

    Notes
    -----
    ``((A + r) (B + s) + P**2 - 2 Q) / m`` with sums of squares ``A, B``, noises ``r, s``, product ``P``,
    quartic ``Q`` and ``m`` sketches.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """
    (a, b), (r, s) = squares, noises
    return ((a + r) * (b + s) + product**2 - 2 * quartic) / sketches


def best_sketches(squares: Sequence[float], noises: Sequence[float]) -> int:
    """Return the number of sketches that makes estimates across databases most exact.

    Parameters
    ----------
    squares : sequence of float
        For each database, a public guess at a column's sum of squares about its center, such as a twelfth of
        the number of rows, which is that of a column spread evenly over its range.
    noises : sequence of float
        For each database, the variance of a single sketch, if all of the promise were for it.

    Notes
    -----
    With ``m`` sketches the noise of each is ``m`` times as large. ``(A + m r) (B + m s) / m`` is least at
    ``m = sqrt(A B / (r s))``, and at most an eighth above that least value from half to twice this number.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """
    logs = [math.log(square / noise) for square, noise in zip(squares, noises, strict=True)]
    exponent = min(max(sum(logs) / len(logs), 0.0), math.log(MOST_SKETCHES))
    return min(max(round(math.exp(exponent)), 1), MOST_SKETCHES)


Asker: TypeAlias = Callable[[int, Aggregate, Fraction, Fraction], tuple[Floats, Floats]]
"""Function of a database, an aggregate, the database's share of a promise and the portion of it for the
aggregate; returns the answer and its standard deviations."""

OWN = Fraction(1, 10)
"""Portion of a share for products inside the database; those across are far noisier."""
ACROSS = 1 - OWN
"""Portion of a share for sketches."""
_MOVES = (0.0, 0.25, 0.5, 0.75, 1.0)  # parts of the way from the center of a question to the means


@dataclass(frozen=True, eq=False)
class Part:
    """Part of an aggregate in one database: its columns, and the places of their coordinates."""

    database: int
    columns: tuple[str, ...]
    places: Ints
    center: Floats
    radius: float | None
    spread: float  # mean square of a coordinate, if rows are spread evenly over what is declared

    def sketches(self, m: int, key: str, offset: Floats | float = 0.0) -> SignSketches:
        """Return the aggregate of its sketches, about its center moved by `offset`."""
        return SignSketches(self.columns, m, key, (self.center + offset).tolist(), self.radius)


@dataclass(frozen=True, eq=False)
class Own:
    """Gram matrix of one database; sums and count are 0 and NaN where they were not asked for."""

    products: Floats
    products_sd: Floats
    sums: Floats
    sums_sd: Floats
    count: float = math.nan
    count_sd: float = math.nan

    @classmethod
    def from_answer(cls, value: Floats, sd: Floats, *, counted: bool) -> Own:
        """Return the parts of a Gram answer, with sums and count if `counted`."""
        if not counted:
            return cls(value, sd, np.zeros(len(value)), np.zeros(len(value)))
        return cls(value[1:, 1:], sd[1:, 1:], value[0, 1:], sd[0, 1:], float(value[0, 0]), float(sd[0, 0]))

    def square(self, count: float, offset: Floats) -> float:
        """Return the mean over coordinates of their sums of squares, about a center that was moved."""
        squares = np.diag(self.products) - 2 * offset * self.sums + count * offset**2
        # Below its noise nothing is known.
        return max(float(squares.mean()), float(np.diag(self.products_sd).mean()))


@dataclass(frozen=True, eq=False)
class GramAcross:
    """A Gram matrix whose columns are in several databases.

    Attributes
    ----------
    parts : sequence of (Part, Fraction)
        Part of each database, and its share of the promise.
    key : str
        Public text that fixes the signs.
    sketches : int or None
        Number of sketches of each database; the best number if None.
    preview : callable
        Asker that returns the noise of an aggregate. Free.

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
        """Ask for products inside databases, then for sketches about their noisy means.

        Parameters
        ----------
        asker : callable
            Function that asks a database for an aggregate and pays for it.
        with_sums : bool
            Whether the matrix has a first row and column for the number of rows and the sums.
        n_rows : int or None
            Number of rows where it is public; None where it is asked for.

        Returns
        -------
        tuple
            Matrix, its standard deviations, number of sketches, and number of rows.

        Notes
        -----
        Sketches about ``c + u`` and ``d + v`` estimate ``sum (a - c - u)(b - d - v)'``; to get the products
        about ``c`` and ``d``, ``S_a v' + u S_b' - n u v'`` is added, with the sums ``S`` about the centers.
        """
        self._noises()  # first: a database without ids refuses here, before anything is charged
        counted = with_sums or n_rows is None
        own = self._own(asker, counted)
        count, count_sd = _estimate_count(n_rows, own)
        parts = [part for part, _ in self.parts]
        moves = [_MOVES if with_sums and part.radius is None else _MOVES[:1] for part in parts]
        # Paid for, so public: the lengths of the columns decide which sketches serve best.
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
            products = estimate_products(x, y, x_sd, y_sd)
            # sum (a - c)(b - d)' about c and d, from sketches about c + u and d + v.
            shift = np.outer(own[i].sums, v) + np.outer(u, own[k].sums) - count * np.outer(u, v)
            noise = np.outer(own[i].sums_sd, v) ** 2 + np.outer(u, own[k].sums_sd) ** 2
            noise += (count_sd * np.outer(u, v)) ** 2
            _put(value, parts[i], parts[k], products.value + shift)
            _put(sd, parts[i], parts[k], np.sqrt(products.sd**2 + noise))
        if with_sums:
            value = _add_border(value, parts, [each.sums for each in own], count)
            sd = _add_border(sd, parts, [each.sums_sd for each in own], count_sd)
        return value, sd, m, count

    def expected_sd(self, *, with_sums: bool, n_rows: float) -> Floats:
        """Return standard deviations for columns that are spread evenly over their ranges."""
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
        return _add_border(sd, parts, [each.sums_sd for each in own], 0.0) if with_sums else sd

    def _own(self, asker: Asker, counted: bool) -> list[Own]:
        """Return each database's own Gram matrix, with sums and count if `counted`."""
        own = []
        for part, share in self.parts:
            gram = Gram(part.columns, part.center.tolist(), part.radius, counted)
            own.append(Own.from_answer(*asker(part.database, gram, share, OWN), counted=counted))
        return own

    def _noises(self) -> list[float]:
        """Return the variance of a single sketch of each part."""
        return [self._noise(place, 0.0) for place in range(len(self.parts))]

    def _noise(self, place: int, offset: Floats | float) -> float:
        part, share = self.parts[place]
        question = part.sketches(1, self.key, offset)
        return float(self.preview(part.database, question, share, ACROSS)[1][0, 0]) ** 2

    def _center(
        self, place: int, own: Own, count: float, moves: Sequence[float]
    ) -> tuple[Floats, float, float]:
        """Return the offset of the sketches, the mean square of coordinates there, and a sketch's noise.

        Notes
        -----
        The variance of an estimate grows with mean square times noise. About the means the first is least,
        about the middle of the ranges the second.
        """
        part, _ = self.parts[place]
        tried = [_offset(part.center, moved * own.sums / count) for moved in moves]
        choices = [(offset, own.square(count, offset), self._noise(place, offset)) for offset in tried]
        return min(choices, key=lambda each: each[1] * each[2])

    def _best(self, squares: Sequence[float], noises: Sequence[float]) -> int:
        """Return the number of sketches: the given one, or the best within the limit on cells."""
        if self.sketches is not None:
            return self.sketches
        best = best_sketches([max(square, 2.0**-20) for square in squares], noises)
        return min([best, *(MOST_CELLS // len(part.places) for part, _ in self.parts)])


def _diagonal(parts: Sequence[Part], own: Sequence[Own]) -> tuple[Floats, Floats]:
    """Return the block-diagonal matrix of the databases' own products, and of their standard deviations."""
    size = sum(len(part.places) for part in parts)
    value, sd = np.zeros((size, size)), np.zeros((size, size))
    for part, each in zip(parts, own, strict=True):
        value[np.ix_(part.places, part.places)] = each.products
        sd[np.ix_(part.places, part.places)] = each.products_sd
    return value, sd


def _put(matrix: Floats, one: Part, other: Part, block: Floats) -> None:
    """Write a block, and its transpose, into a symmetric matrix."""
    matrix[np.ix_(one.places, other.places)] = block
    matrix[np.ix_(other.places, one.places)] = block.T


def _add_border(matrix: Floats, parts: Sequence[Part], edge: Sequence[Floats], corner: float) -> Floats:
    """Return a matrix of products with a first row and column for the sums, and the count in the corner."""
    bordered = np.empty((len(matrix) + 1, len(matrix) + 1))
    bordered[0, 0], bordered[1:, 1:] = corner, matrix
    for part, sums in zip(parts, edge, strict=True):
        bordered[0, 1 + part.places] = bordered[1 + part.places, 0] = sums
    return bordered


def _estimate_count(n_rows: int | None, own: Sequence[Own]) -> tuple[float, float]:
    """Return the number of rows and its standard deviation, averaged by inverse variance."""
    if n_rows is not None:
        return float(max(n_rows, 1)), 0.0
    weights = np.array([1 / each.count_sd**2 for each in own])
    count = float(weights @ [each.count for each in own] / weights.sum())
    return max(count, 1.0), float(weights.sum() ** -0.5)


def _offset(center: Floats, means: Floats) -> Floats:
    """Return the offset from a center to noisy means, both on the grid of 2**-16 and inside the box."""
    moved = np.floor(np.clip(center + means, 0.0, 1.0) * ONE + 0.5) / ONE
    return np.asarray(moved - center)
