"""Confidence intervals of noisy sums and of quotients of two of them."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.query.calibration import Law

LEVEL = 0.95
"""Probability with which an interval holds the exact number."""
_GAUSSIAN_WIDTH = 1.959963984540054  # standard deviations on either side, at LEVEL
_STEPS = 33  # means at which the interval of a variance is computed


class ResultInterval(NamedTuple):
    """Two ends between which a number lies: of a confidence interval, or all that is possible."""

    lower: float
    upper: float


UNBOUNDED = ResultInterval(-math.inf, math.inf)
"""Bounds of a number of which nothing is declared."""


def interval_width(law: Law, level: float = LEVEL) -> float:
    """Return half the width of an interval, in standard deviations.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    level : float
        Probability with which the interval holds the exact number, at least :data:`LEVEL`.

    Notes
    -----
    At these levels no weighted sum of independent Laplace and Gaussian noises leaves the interval of a
    Laplace noise of the same variance more often than that one does, so "laplace" is right for all of them.
    """
    if law == "laplace":
        return -math.log1p(-level) / math.sqrt(2)
    return _GAUSSIAN_WIDTH if level == LEVEL else NormalDist().inv_cdf(0.5 + level / 2)


def simultaneous_level(numbers: int) -> float:
    """Return the level at which all of several independent intervals hold together at :data:`LEVEL`."""
    return float(LEVEL ** (1 / numbers))


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
    nearest = np.minimum(np.maximum(values, bounds.lower), bounds.upper)  # as np.clip, in half the time
    return np.maximum(nearest - width * sds, bounds.lower), np.minimum(nearest + width * sds, bounds.upper)


def count_intervals(
    values: Floats, sds: Floats, law: Law, level: float, most: float
) -> tuple[Floats, Floats]:
    """Return the ends of intervals that hold exact counts exactly as often as they say, also those near 0.

    Parameters
    ----------
    values, sds : array
        Noisy counts, and the standard deviations of their noise.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    level : float
        Probability with which an interval holds the exact count.
    most : float
        Largest count that is possible; infinite where the number of rows is not public.

    Notes
    -----
    The upper end is that of :func:`sum_intervals`, ``w`` standard deviations above the count or above 0. It
    is never below an exact count of up to ``w``, which is therefore left out on one side alone: the lower end
    may be nearer there, by the quantile ``z`` of one side. Tables of counts have many cells near 0, and
    together these intervals hold at their level, where :func:`sum_intervals` would miss half as many.

    Reference
    ---------
    docs/explanation/theorems/synthetic.md.
    """
    width, side = two_sided_width(law, level), one_sided_width(law, level)
    lowest = np.minimum(values, most)
    near = np.minimum(lowest - side * sds, np.maximum(width * sds, lowest - width * sds))
    return np.maximum(near, 0.0), np.minimum(np.clip(values, 0.0, most) + width * sds, most)


def two_sided_width(law: Law, level: float) -> float:
    """Return half the width of an interval at any level, in standard deviations; for merges too."""
    gaussian = NormalDist().inv_cdf(0.5 + level / 2)
    return max(gaussian, -math.log1p(-level) / math.sqrt(2)) if law == "laplace" else gaussian


def one_sided_width(law: Law, level: float) -> float:
    """Return how many standard deviations noise exceeds with probability ``1 - level``; for merges too."""
    gaussian = NormalDist().inv_cdf(level)
    return max(gaussian, -math.log(2 - 2 * level) / math.sqrt(2)) if law == "laplace" else gaussian


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
    around = ResultInterval(bounds.lower - middle, bounds.upper - middle)
    offset, lower, upper = ratio_intervals(sums, sum_sds, counts, count_sds, width, around)
    return (
        np.clip(offset + middle, *bounds),
        # The ends of the bounds are exact; a sum of their halves need not be.
        np.where(lower == around.lower, bounds.lower, np.maximum(lower + middle, bounds.lower)),
        np.where(upper == around.upper, bounds.upper, np.minimum(upper + middle, bounds.upper)),
    )


def ratio_intervals(
    numerators: Floats,
    numerator_sds: Floats,
    denominators: Floats,
    denominator_sds: Floats,
    width: float,
    bounds: tuple[Any, Any],
) -> tuple[Floats, Floats, Floats]:
    """Return quotients of noisy sums and the ends of their intervals, Fieller's sets within the bounds.

    Parameters
    ----------
    numerators, numerator_sds : array
        Noisy sums above the line, and their standard deviations.
    denominators, denominator_sds : array
        Noisy sums below the line, of which the exact ones are not negative, and their standard deviations.
    width : float
        Half the width of an interval, in standard deviations.
    bounds : tuple of two floats or arrays
        Least and largest quotient that is possible.

    Returns
    -------
    tuple of array
        Quotients within the bounds, NaN over a denominator that is exactly 0; lower ends; upper ends. A
        denominator within its own margin leaves all of the bounds.
    """
    least = width * denominator_sds
    readable = denominators > least
    divisor = np.where(readable, denominators, np.where(least > 0, least, np.nan))
    # Relative to the denominator, so that no product of squares overflows.
    quotient = np.clip(numerators / divisor, *bounds)
    margin, below = width * numerator_sds / divisor, np.where(readable, least / divisor, 0.0)
    curvature = (1 - below) * (1 + below)
    spread = np.hypot(quotient * below, margin * np.sqrt(curvature))
    with np.errstate(over="ignore", divide="ignore"):  # a denominator just above its margin: the ends are cut
        lower, upper = ((quotient + sign * spread) / curvature for sign in (-1, 1))
    return (
        quotient,
        np.where(readable, np.maximum(lower, bounds[0]), bounds[0]),
        np.where(readable, np.minimum(upper, bounds[1]), bounds[1]),
    )


class NoisyRatio(NamedTuple):
    """Two noisy sums whose quotient is wanted, with the variances and the covariance of their noise."""

    above: Floats
    below: Floats
    above_variance: Floats
    covariance: Floats
    below_variance: Floats

    def ends(self, width: float) -> tuple[Floats, Floats]:
        """Return the ends of Fieller's set of the quotient; infinite where the divisor may be 0.

        Parameters
        ----------
        width : float
            Half the width of the set, in standard deviations.

        Notes
        -----
        The set holds each ``d`` for which ``above - d below`` is within `width` standard deviations of 0. For
        the exact quotient that is pure noise, whatever the exact divisor is.
        """
        square = width * width
        first = self.below * self.below - square * self.below_variance
        middle = self.above * self.below - square * self.covariance
        last = self.above * self.above - square * self.above_variance
        readable = (self.below > 0) & (first > 0)
        divisor = np.where(readable, first, 1.0)
        spread = np.sqrt(np.maximum(middle * middle - first * last, 0.0))
        lower, upper = ((middle + sign * spread) / divisor for sign in (-1, 1))
        return np.where(readable, lower, -np.inf), np.where(readable, upper, np.inf)


class NoisySum(NamedTuple):
    """Noisy sums and the standard deviations of their noise."""

    value: Floats
    sd: Floats


def variance_intervals(
    sums: NoisySum, squares: NoisySum, counts: NoisySum, half: float, law: Law, level: float
) -> tuple[Floats, Floats, Floats]:
    """Return population variances and the ends of their intervals.

    Parameters
    ----------
    sums : NoisySum
        Sums of the displacements ``d`` from the middle of the range.
    squares : NoisySum
        Sums of ``d**2 - half**2 / 2``.
    counts : NoisySum
        Numbers of rows in each group.
    half : float
        Half the declared range, which no displacement exceeds.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    level : float
        Probability with which an interval holds the exact variance.

    Notes
    -----
    For a fixed ``u`` the mean of ``(d - u)**2`` is ``z + half**2 / 2 + u**2``, where ``z`` is the quotient of
    ``squares - 2 u sums`` and the count: Fieller's set holds it, whatever the count is. At the exact mean of
    ``d`` it is the variance. A tenth of the error probability goes to an interval of that mean; the union
    of the sets for all ``u`` in it holds the variance. It is hardly wider than one of them: near the mean the
    quotient depends on ``u`` by its square alone.

    Reference
    ---------
    docs/explanation/theorems/intervals.md.
    """
    error = 1 - level
    most = half * half
    around = ResultInterval(-half, half)
    mean, low, high = ratio_intervals(
        sums.value, sums.sd, counts.value, counts.sd, interval_width(law, 1 - error / 10), around
    )
    width = interval_width(law, 1 - 0.9 * error)
    lower, upper = np.full_like(low, most), np.zeros_like(low)
    for part in np.linspace(0.0, 1.0, _STEPS):
        u = low + part * (high - low)
        offset = most / 2 + u * u
        _, least, largest = ratio_intervals(
            squares.value - 2 * u * sums.value,
            np.hypot(squares.sd, 2 * u * sums.sd),
            counts.value,
            counts.sd,
            width,
            (-offset, most - offset),
        )
        lower = np.minimum(lower, least + offset)
        upper = np.maximum(upper, largest + offset)
    readable = counts.value > width * counts.sd
    divisor = np.where(readable, counts.value, np.where(counts.sd > 0, width * counts.sd, np.nan))
    variance = np.clip(squares.value / divisor + most / 2 - mean * mean, 0.0, most)
    return variance, np.clip(lower, 0.0, most), np.clip(upper, 0.0, most)
