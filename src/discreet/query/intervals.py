"""Confidence intervals of noisy sums and of quotients of two of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.query.calibration import Law

LEVEL = 0.95
"""Probability with which an interval holds the exact number."""
_GAUSSIAN_WIDTH = 1.959963984540054  # standard deviations on either side, at LEVEL


class ResultInterval(NamedTuple):
    """Two ends between which a number lies: of a confidence interval, or all that is possible."""

    lower: float
    upper: float


UNBOUNDED = ResultInterval(-math.inf, math.inf)
"""Bounds of a number of which nothing is declared."""


def interval_width(law: Law) -> float:
    """Return half the width of an interval at :data:`LEVEL`, in standard deviations.

    At this level no weighted sum of independent Laplace and Gaussian noises leaves the interval of a Laplace
    noise of the same variance more often than that one does, so "laplace" is right for all of them.
    """
    return _GAUSSIAN_WIDTH if law == "gaussian" else -math.log1p(-LEVEL) / math.sqrt(2)


def sum_intervals(values: Floats, sds: Floats, width: float, bounds: ResultInterval) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of noisy sums, which lie within what is possible.

    Parameters
    ----------
    values, sds : array
        Noisy sums, and the standard deviations of their noise.
    width : float
        Half the width of an interval, in standard deviations.
    bounds : ResultInterval
        Least and largest sum that is possible.

    Notes
    -----
    The interval is put round the possible sum that is nearest to the noisy one, and cut to what is possible.
    The nearest possible sum is no farther from the exact one than the noisy sum, so the interval holds the
    exact one at least as often as the uncut interval does; and it is never a single point.
    """
    nearest = np.clip(values, *bounds)
    return np.maximum(nearest - width * sds, bounds.lower), np.minimum(nearest + width * sds, bounds.upper)


def mean_intervals(
    sums: Floats, sum_sds: Floats, counts: Floats, count_sds: Floats, width: float, bounds: ResultInterval
) -> tuple[Floats, Floats, Floats]:
    """Return means and the ends of their intervals, from noisy sums and noisy counts.

    Parameters
    ----------
    sums, sum_sds : array
        Noisy sums of displacements from the middle of the bounds, and their standard deviations.
    counts, count_sds : array
        Noisy numbers of rows, and their standard deviations.
    width : float
        Half the width of an interval, in standard deviations.
    bounds : ResultInterval
        Declared range of the averaged expression, which holds every mean.

    Returns
    -------
    tuple of array
        Means within the bounds, NaN for a count that is exactly 0; lower ends; upper ends.

    Notes
    -----
    Fieller's set: with ``S`` and ``N`` the noisy sum and count, it holds each displacement ``d`` for which
    ``S - d N`` is within ``width`` standard deviations of 0, ``|S - d N| <= width sqrt(s_S^2 + d^2 s_N^2)``.
    For the exact ``d`` that is pure noise, whatever the exact count is. ``S`` is first moved into ``N`` times
    the bounds, which brings ``S - d N`` closer to 0 for every possible ``d``. A count within its own margin
    is compatible with an empty group: the interval is then all of the bounds, and the count is taken as its
    margin in the quotient, which moves the mean to the middle.

    Reference
    ---------
    E. C. Fieller, Some problems in interval estimation, J. R. Stat. Soc. B 16 (1954);
    docs/explanation/theorems/intervals.md.
    """
    middle = bounds.lower / 2 + bounds.upper / 2
    least = width * count_sds
    readable = counts > least
    divisor = np.where(readable, counts, np.where(least > 0, least, np.nan))
    # Relative to the count, so that no product of squares overflows.
    offset = np.clip(sums / divisor, bounds.lower - middle, bounds.upper - middle)
    sum_margin, count_margin = width * sum_sds / divisor, np.where(readable, least / divisor, 0.0)
    curvature = (1 - count_margin) * (1 + count_margin)
    spread = np.hypot(offset * count_margin, sum_margin * np.sqrt(curvature))
    with np.errstate(over="ignore", divide="ignore"):  # a count just above its margin: the ends are cut
        lower, upper = ((offset + sign * spread) / curvature + middle for sign in (-1, 1))
    return (
        np.clip(offset + middle, *bounds),
        np.where(readable, np.maximum(lower, bounds.lower), bounds.lower),
        np.where(readable, np.minimum(upper, bounds.upper), bounds.upper),
    )
