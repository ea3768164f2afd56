"""Public cells of every range, and the bounds that noisy counts of them prove.

Numbers are cut at 1, 1.5, 2, 3, 5 and 7 times the powers of ten from a thousandth to a trillion, on both
sides of 0; whole numbers up to 10 one by one; dates by year. So bounds are round, chosen by noisy counts.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query.curation import LEAST_MAGNITUDE
from discreet.query.intervals import interval_width
from discreet.schema import Column

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.query.calibration import Law

FAILURE = 0.001
"""Probability with which anything that is said about estimated bounds may be wrong."""
_STEPS = ("1", "1.5", "2", "3", "5", "7")
_LARGEST = 12  # power of ten beyond which numbers count as that large
_LEAST = -3  # power of ten below which numbers are in one cell beside 0
_FIRST_YEARS = (1000, 1500, 1700, 1800, 1850, *range(1900, 2101), 2150, 2200, 2500)
_END_YEAR = 3000


@dataclass(frozen=True)
class RangeCells:
    """Cells that cover all that a column of one type may hold.

    Attributes
    ----------
    column : Column
        Declaration under which the cells are counted: the widest range, with cells that may be missing.
    starts : tuple of float
        Where the second and later cells begin; for dates in days since the lower bound of `column`.
    ends : tuple of (lower, upper)
        Bounds to declare for the values of each cell, as round numbers or days.
    """

    column: Column
    starts: tuple[float, ...]
    ends: tuple[tuple[Any, Any], ...]

    @classmethod
    def from_type(cls, name: str, type_: str) -> RangeCells:
        """Return the cells of a column of type number, integer, date or datetime."""
        if type_ in ("date", "datetime"):
            return _calendar_cells(name, type_)
        return _whole_cells(name) if type_ == "integer" else _number_cells(name)


def _round_numbers(least: int) -> list[float]:
    """Return the round numbers from a power of ten up to the largest."""
    powers = range(least, _LARGEST)
    return [*(float(f"{step}e{power}") for power in powers for step in _STEPS), 10.0**_LARGEST]


def _number_cells(name: str) -> RangeCells:
    """Return cells of numbers: each ends with a round number, which is in the cell that is nearer to 0."""
    ends = _round_numbers(_LEAST)
    above = [LEAST_MAGNITUDE, *(math.nextafter(end, math.inf) for end in ends[:-1])]
    below = [-end for end in reversed(ends[:-1])]
    positive = list(zip([0.0, *ends[:-1]], ends, strict=True))
    negative = [(-upper, -lower) for lower, upper in reversed(positive)]
    column = Column(name, lower=-ends[-1], upper=ends[-1], required=False)
    return RangeCells(column, (*below, 0.0, *above), (*negative, (0.0, 0.0), *positive))


def _whole_cells(name: str) -> RangeCells:
    """Return cells of whole numbers: those up to 10 one by one, and then up to each round number."""
    ends = [*range(1, 11), *(int(end) for end in _round_numbers(1)[1:])]
    above = [1, *(end + 1 for end in ends[:-1])]
    below = [-end for end in reversed(ends[:-1])]
    pairs = zip([0, *ends[:-1]], ends, strict=True)
    positive = [(upper if upper == lower + 1 else lower, upper) for lower, upper in pairs]
    negative = [(-upper, -lower) for lower, upper in reversed(positive)]
    column = Column(name, type="integer", lower=-ends[-1], upper=ends[-1], required=False)
    return RangeCells(column, tuple(map(float, (*below, 0, *above))), (*negative, (0, 0), *positive))


def _calendar_cells(name: str, type_: str) -> RangeCells:
    """Return cells of dates or datetimes: years from 1900 to 2100, and longer times before and after."""
    kind = datetime.date if type_ == "date" else datetime.datetime
    *firsts, end = (kind(year, 1, 1) for year in (*_FIRST_YEARS, _END_YEAR))
    step = datetime.timedelta(days=1) if type_ == "date" else datetime.timedelta(minutes=1)
    lasts = [first - step for first in (*firsts[1:], end)]
    column = Column(name, lower=firsts[0], upper=lasts[-1], required=False)
    starts = tuple(float((first - firsts[0]) // step) for first in firsts[1:])
    return RangeCells(column, starts, tuple(zip(firsts, lasts, strict=True)))


@dataclass(frozen=True)
class EstimatedRange:
    """Bounds of a column that its noisy counts prove.

    Attributes
    ----------
    lower, upper : int, float or datetime.date
        Ends of the range, the one below the other.
    outside : float
        Largest share of rows whose values are outside, unless the estimate failed.
    """

    lower: Any
    upper: Any
    outside: float


def noise_limit(sd: float, law: Law, n_cells: int, n_columns: int) -> float:
    """Return the limit of the noise on one cell, such that the sums over all intervals keep theirs too.

    Parameters
    ----------
    sd : float
        Standard deviation of the noise on one count.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    n_cells, n_columns : int
        Number of cells of a column without that of missing ones, and number of columns.

    Notes
    -----
    A column of ``m`` cells has ``m (m + 1) / 2`` intervals, each with and without the missing cell. The noise
    on the sum of ``j`` counts is within ``sqrt(j)`` times the limit for all of them at once, with
    probability ``1 - FAILURE``.
    """
    events = n_columns * n_cells * (n_cells + 1)
    return sd * interval_width(law, 1 - FAILURE / events)


def estimate_range(
    cells: RangeCells, counts: Floats, limit: float, n_rows: int | None
) -> EstimatedRange | None:
    """Return the bounds that noisy counts prove; None if they prove no row at all.

    Parameters
    ----------
    cells : RangeCells
        Cells of the column.
    counts : array
        Noisy counts of the cells, and last that of missing cells.
    limit : float
        As :func:`noise_limit` returns it.
    n_rows : int or None
        Number of rows if it is public; None if it is not.

    Notes
    -----
    An interval of ``j`` cells is proven to hold a row if its noisy sum is above ``limit sqrt(j)``. The upper
    bound is the end of the last cell at which a proven interval begins, the lower bound that of the first
    cell at which one ends; where they cross, they are exchanged. A bound of a tenth of the other or less
    becomes 0.

    Reference
    ---------
    docs/explanation/theorems/private-bounds.md.
    """
    inner, missing = counts[:-1], float(counts[-1])
    before = np.concatenate([[0.0], np.cumsum(inner)])
    first, last = np.triu_indices(len(inner))
    proven = before[last + 1] - before[first] > limit * np.sqrt(last - first + 1)
    if not proven.any():
        return None
    low, high = sorted((int(last[proven].min()), int(first[proven].max())))
    beyond = [(before[low], low), (before[-1] - before[high + 1], len(inner) - high - 1)]
    outside = sum(max(total + limit * math.sqrt(length), 0.0) if length else 0.0 for total, length in beyond)
    rows = float(n_rows) if n_rows is not None else before[-1] + missing - limit * math.sqrt(len(counts))
    if n_rows is not None:
        inside = before[high + 1] - before[low] + missing - limit * math.sqrt(high - low + 2)
        outside = min(outside, n_rows - inside)
    if cells.ends[low][0] == cells.ends[high][1]:
        high, low = (high + 1, low) if high + 1 < len(inner) else (high, low - 1)
    share = outside / rows if rows > outside else 1.0
    lower, upper = _take_zero(cells.ends[low][0], cells.ends[high][1])
    return EstimatedRange(lower, upper, max(share, 0.0))


def _take_zero(lower: Any, upper: Any) -> tuple[Any, Any]:
    """Return bounds of which the one nearer to 0 is 0 if it is a tenth of the other or less; not of dates."""
    if isinstance(lower, datetime.date):
        return lower, upper
    zero = type(lower)(0)
    if 0 < 10 * lower <= upper:
        return zero, upper
    return (lower, zero) if lower <= 10 * upper < 0 else (lower, upper)
