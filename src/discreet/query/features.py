"""Rows as vectors of whole numbers on a grid of 2**16 steps, centered and clipped to a ball.

A coordinate is a number as a fraction of its range, an indicator of a category, or the value of a curve;
which row is clipped is decided on whole numbers of that row alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.query.curation import BITS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.query.curation import Curated, Curation


PRODUCT_BITS = 16
ONE = 2**PRODUCT_BITS
_EXTRA_BITS = BITS - PRODUCT_BITS
MOST_FEATURES = 4096
LARGEST_SCORE = 4.0
"""Largest absolute value of a curve."""
LONGEST_LINE = 3
"""Units to which a number on a scale of its own is cut, on either side."""
MOST_UNITS = 128
"""Largest number of units that the range of such a number has."""
_LINE_STEPS = 64  # of a unit
_MOST_COMPARED = 64  # starts of cells; with more, a search is faster


@dataclass(frozen=True, slots=True)
class Pick:
    """One coordinate: a number as a fraction of its range, or whether a category has one code.

    Attributes
    ----------
    place : int
        Index of its column among the columns that are read.
    top : int
        Largest integer of the column.
    code : int or None
        Code of the level that counts as 1; None for a number.
    scores : tuple of int or None
        Public value of each cell in units of 2**-16, where the coordinate is a curve over the cells of its
        column; None otherwise.
    steps : int or None
        Where the coordinate is a number on a scale of its own, 64ths of its range for each unit of that
        scale, on which it is cut to :data:`LONGEST_LINE`; None otherwise.
    flag : int or None
        For such a number, the index of the column that is 1 where it is missing, which counts as 0; None
        without.
    """

    place: int
    top: int
    code: int | None
    scores: tuple[int, ...] | None = None
    steps: int | None = None
    flag: int | None = None


@dataclass(frozen=True, slots=True)
class Band:
    """A number that is read as the position of its cell among public ones, like a category.

    Attributes
    ----------
    place : int
        Index of its column among the columns that are read.
    starts : tuple of float or int, or None
        Where the second and later cells begin; None for a column whose integers are its cells.
    flag : int or None
        Index of the column that is 1 where the number is missing, which is a cell of its own; None without.
    top : int
        Largest integer of a column whose integers are its cells; 0 for others.
    groups : tuple of int or None
        For a category of which several levels share a cell, the cell of each level; None for all others.
    """

    place: int
    starts: tuple[float | int, ...] | None
    flag: int | None
    top: int = 0
    groups: tuple[int, ...] | None = None

    @property
    def size(self) -> int:
        """Number of cells."""
        if self.groups is not None:
            return max(self.groups) + 1
        cells = self.top if self.starts is None else len(self.starts)
        return cells + 1 + (self.flag is not None)

    def codes(self, arrays: Sequence[AnyArray]) -> AnyArray:
        """Return the index of each row's cell."""
        codes = arrays[self.place]
        if self.groups is not None:
            return np.array(self.groups)[codes]
        if self.starts is not None:
            codes = _interval_codes(codes, self.starts)
        return codes if self.flag is None else np.where(arrays[self.flag] == 1, self.size - 1, codes)

    def clipped_codes(self, arrays: Sequence[AnyArray]) -> AnyArray:
        """Return the index of each row's cell, one of the cells even where others can write to the table."""
        codes = self.codes(arrays)
        # Comparisons with starts cannot give any other.
        return codes if self.starts is not None else np.clip(codes, 0, self.size - 1)


def _interval_codes(values: AnyArray, starts: tuple[float | int, ...]) -> AnyArray:
    """Return for each value how many of the rising starts it reaches."""
    if len(starts) > _MOST_COMPARED:
        return np.searchsorted(np.array(starts), values, side="right")
    first, last = int(starts[0]), int(starts[-1])
    if values.dtype == np.int32 and first > 0 and last < 2**31 and starts == tuple(range(first, last + 1)):
        # Whole numbers one after the other, each of which begins a cell.
        return np.clip(values, first - 1, last) - (first - 1)
    # Faster than a search, whose branches no processor can foresee.
    codes = np.zeros(len(values), np.uint8)
    for start in starts:
        codes += values >= start
    return codes


@dataclass(frozen=True, slots=True)
class Features:
    """Rows as vectors of whole numbers in units of 2**-16, centered and clipped to a ball.

    Attributes
    ----------
    columns : tuple of str
        SQL names of the columns that are read.
    picks : tuple of Pick
        Coordinates of the vectors, in their order.
    center : tuple of int
        Origin that is subtracted, in units of 2**-16 of each range.
    square : int
        Largest squared length of a vector, in units of 2**-32, intercept not included.
    clips : bool
        Whether a row of the declared box can be longer, so that rows must be clipped.
    intercept : int
        Last coordinate of every row, in units of 2**-16, which is added after clipping; 0 for none.
    bands : tuple of Band
        Columns that are read as cells.
    """

    columns: tuple[str, ...]
    picks: tuple[Pick, ...]
    center: tuple[int, ...]
    square: int
    clips: bool
    intercept: int = 0
    bands: tuple[Band, ...] = ()

    @classmethod
    def from_curation(
        cls,
        curation: Curation,
        columns: Sequence[str],
        *,
        center: Sequence[float] | None,
        radius: float | None,
        intercept: float = 0.0,
        starts: Mapping[str, tuple[float | int, ...]] | None = None,
        scores: Mapping[str, Sequence[float]] | None = None,
        lines: Mapping[str, Sequence[float]] | None = None,
    ) -> Features:
        """Return the features of columns: a coordinate for each number, level of a category, or cell.

        Parameters
        ----------
        curation : Curation
            Layout of the curated table.
        columns : sequence of str
            Declared columns, each once.
        center : sequence of float or None
            Origin of each coordinate, from 0 to 1; the middle of the ranges if None.
        radius : float or None
            Length to which longer rows are shortened, as a fraction of the ranges; None for no clipping.
        intercept : float
            Last coordinate of every row, which is added after clipping; 0 for none.
        starts : mapping of str to tuple of float or int, optional
            For numbers that are read as cells, where cells begin, in the column of exact values; None for no
            such column.
        scores : mapping of str to sequence of float, optional
            For columns that are read as a curve, the value of each level or cell, those of missing ones
            last. They are the first coordinates, one for each curve, and not centered; None for no curve.
        lines : mapping of str to sequence of float, optional
            For numbers that are read on a scale of their own, its origin as a fraction of the range and how
            many of its units the range has. They come after the curves, cut to 3 units on either side, 0 for
            missing ones; None for no such number.

        Notes
        -----
        The longest row of the declared box has the squared length ``sum max(c, 1 - c)**2`` over numbers,
        plus ``|c|**2 + 1 - 2 min(c)`` for each category, with ``c`` the center, plus the largest square of
        each curve and of each line; rows are clipped only if ``radius**2`` is less.
        """
        curves = {} if scores is None else scores
        scaled = {} if lines is None else lines
        if not (columns or curves or scaled) or len(set(columns)) != len(columns):
            raise ParameterError(
                f"columns of a question must be at least one, each once, was {list(columns)}."
            )
        picks: list[Pick] = []
        read: list[str] = []
        bands: list[Band] = []
        blocks: list[range] = []  # of coordinates of which a row has one that is 1
        for name, values in curves.items():
            band = curve_band(curation.column(name), (starts or {}).get(name), read)
            bands.append(band)
            picks.append(Pick(band.place, 0, None, _curve_scores(name, values, band.size)))
        reach = sum(max(value * value for value in pick.scores or ()) for pick in picks)
        origins = []
        for name, (origin, units) in scaled.items():
            pick, at = _line_pick(curation.column(name), origin, units, read)
            picks.append(pick)
            origins.append(at)
            assert pick.steps is not None
            reach += min(_line_units(max(at, ONE - at), pick.steps) + 1, LONGEST_LINE * ONE) ** 2
        own = len(picks)
        for name in columns:
            column = curation.column(name)
            place = len(read)
            # The cells of a column that has a curve are those of the curve.
            banded = starts is not None and name in starts and name not in curves
            read.append(column.exact if banded else column.sql)
            codes: Sequence[int | None] = range(len(column.levels)) if column.is_category else (None,)
            if starts is not None and banded:
                flag = None if column.flag is None else len(read)
                read.extend([] if column.flag is None else [column.flag])
                bands.append(Band(place, starts[name], flag))
                codes = range(bands[-1].size)
            if codes[0] is not None:
                blocks.append(range(len(picks), len(picks) + len(codes)))
            picks.extend(Pick(place, column.top, code) for code in codes)
        if len(picks) > MOST_FEATURES:
            raise ParameterError(
                f"columns of a question must come to at most {MOST_FEATURES} coordinates, and come to "
                f"{len(picks)}. Leave out categories with many levels."
            )
        middle = (0,) * len(curves) + tuple(origins) + center_of(center, len(picks) - own)
        numbers = [c for c, pick in zip(middle[own:], picks[own:], strict=True) if pick.code is None]
        reach += sum(max(c, ONE - c) ** 2 for c in numbers)
        for block in blocks:
            inside = [middle[i] for i in block]
            # |e_j - c|^2 = |c|^2 + 1 - 2 c_j is largest at the level whose center is least.
            reach += sum(c * c for c in inside) + ONE * (ONE - 2 * min(inside))
        square = reach if radius is None else square_of("radius", radius)
        return cls(
            tuple(read),
            tuple(picks),
            middle,
            min(square, reach),
            square < reach,
            math.floor(intercept * ONE + 0.5),
            tuple(bands),
        )

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.picks) + bool(self.intercept)

    @property
    def total_square(self) -> int:
        """Bound on the squared length with the intercept."""
        return self.square + self.intercept**2

    def rows(self, arrays: Sequence[AnyArray]) -> Floats:
        """Return the vectors of a batch of rows, one column each, as whole numbers in floats."""
        vectors = np.empty((self.size, len(arrays[0])))
        if self.bands:
            coded = {band.place: band.codes(arrays) for band in self.bands}
            arrays = [coded.get(place, array) for place, array in enumerate(arrays)]
        for row, pick, middle in zip(vectors, self.picks, self.center, strict=False):
            if pick.scores is not None:
                np.take(np.array(pick.scores, np.float64), arrays[pick.place], out=row, mode="clip")
                continue
            row[:] = _centered_cells(arrays[pick.place], pick, middle)
            if pick.steps is not None:
                np.multiply(row, pick.steps / _LINE_STEPS, out=row)
                np.clip(np.floor(row, out=row), -LONGEST_LINE * ONE, LONGEST_LINE * ONE, out=row)
                if pick.flag is not None:
                    row[arrays[pick.flag] == 1] = 0.0
        if self.clips:
            clip(vectors[: len(self.picks)], self.square)
        if self.intercept:
            vectors[-1] = self.intercept
        return vectors


def curve_band(column: Curated, starts: tuple[float | int, ...] | None, read: list[str]) -> Band:
    """Return the cells of a column that is read as a curve, and add what it reads to a list of columns."""
    place = len(read)
    if column.is_category:
        read.append(column.sql)
        return Band(place, None, None, column.top)
    if starts is None:
        raise ParameterError(
            f"edges of a question must be given for the number {column.name!r} with scores, and are not. "
            "Name the values at which cells begin."
        )
    read.append(column.exact)
    flag = None if column.flag is None else len(read)
    read.extend([] if column.flag is None else [column.flag])
    return Band(place, starts, flag)


def _line_pick(column: Curated, origin: float, units: float, read: list[str]) -> tuple[Pick, int]:
    """Return the coordinate of a number on a scale of its own and its origin; add what it reads to a list."""
    steps = math.floor(float(units) * _LINE_STEPS + 0.5)
    if column.is_category or not (0 <= origin <= 1 and 1 <= steps <= _LINE_STEPS * MOST_UNITS):
        raise ParameterError(
            f"lines of a question must be numbers with an origin from 0 to 1 and up to {MOST_UNITS} units, "
            f"and that of {column.name!r} is not. Both are about the declared range."
        )
    place = len(read)
    read.append(column.sql)
    flag = None if column.flag is None else len(read)
    read.extend([] if column.flag is None else [column.flag])
    return Pick(place, column.top, None, None, steps, flag), math.floor(origin * ONE + 0.5)


def _line_units(distance: int, steps: int) -> int:
    return distance * steps // _LINE_STEPS


def _curve_scores(name: str, values: Sequence[float], size: int) -> tuple[int, ...]:
    """Return the values of a curve in units of 2**-16; refuses another number of them, and large ones."""
    scores = [float(value) for value in values]
    # Products of two over all rows of a batch stay below 2**53.
    if len(scores) != size or not all(abs(value) <= LARGEST_SCORE for value in scores):
        raise ParameterError(
            f"scores of a question for {name!r} must be {size} numbers from -{LARGEST_SCORE:g} to "
            f"{LARGEST_SCORE:g}, one for each cell, and are not. Those of missing values come last."
        )
    return tuple(math.floor(value * ONE + 0.5) for value in scores)


def center_of(center: Sequence[float] | None, size: int) -> tuple[int, ...]:
    """Return a center in units of 2**-16; the middle of every range if None."""
    if center is None:
        return (ONE // 2,) * size
    values = [float(value) for value in center]
    if len(values) != size or not all(0 <= value <= 1 for value in values):
        raise ParameterError(
            f"center of a question must be {size} numbers from 0 to 1, as fractions of the declared ranges, "
            "and is not. Leave it out for the middle of each range."
        )
    return tuple(math.floor(value * ONE + 0.5) for value in values)


def square_of(name: str, radius: float) -> int:
    """Return the largest whole number at most ``(radius * 2**16)**2``."""
    value = float(radius)
    if not (math.isfinite(value) and value * ONE >= 1):
        raise ParameterError(
            f"{name} of a question must be a number of at least 2**-16, as a fraction of declared ranges, "
            f"was {radius!r}. Give the length to which rows are clipped."
        )
    scaled = Fraction(value) * ONE
    return int(scaled * scaled // 1)


def _centered_cells(values: AnyArray, pick: Pick, middle: int) -> AnyArray:
    """Return the cells as whole numbers from 0 to 2**16, less the middle."""
    if pick.code is not None:
        flags: AnyArray = ((values == pick.code).astype(np.int32) << PRODUCT_BITS) - middle
        return flags
    if pick.top == 2**BITS:
        # floor((x + 2**13) / 2**14) - middle, in one array.
        shifted = np.add(values, (1 << _EXTRA_BITS - 1) - (middle << _EXTRA_BITS), dtype=np.int32)
        return np.right_shift(shifted, _EXTRA_BITS, out=shifted)
    # floor(x * 2**16 / top + 1/2) in whole numbers.
    wide = values.astype(np.int64)
    scaled: AnyArray = ((wide << (PRODUCT_BITS + 1)) + pick.top) // (2 * pick.top)
    return scaled - middle


def clip(rows: Floats, square: int) -> None:
    """Shorten columns whose squared length is above ``square``, in place, so that none is any more."""
    lengths = np.einsum("ij,ij->j", rows, rows)
    over = np.flatnonzero(lengths > square)
    if not over.size:
        return
    factor = np.sqrt(square / lengths[over]) * (1 - 2.0**-40)
    if 4 * over.size > len(lengths):
        # Whole numbers times 1 are whole: multiplying all columns is faster than picking most of them.
        every = np.ones(len(lengths))
        every[over] = factor
        np.trunc(np.multiply(rows, every, out=rows), out=rows)
        rows[:, np.einsum("ij,ij->j", rows, rows) > square] = 0.0
    else:
        short = np.trunc(rows[:, over] * factor)
        # Cannot happen by the margin above; were it to, the row would count as zero and the bound still hold.
        short[:, np.einsum("ij,ij->j", short, short) > square] = 0.0
        rows[:, over] = short
