"""Promises of noise that is bounded: additive noise of bounded support, and the in-range mechanism.

Additive noise of bounded support excludes values, so it has no pure epsilon; it has a delta for every
epsilon. The in-range mechanism has a pure epsilon, read off the integer weights of its tables. Error floors
of both are Bayes errors, rounded down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.noise.bounded import BoundedDensity
from discreet.noise.in_range import CELLS, INPUTS, LARGEST_KAPPA, InRange, end_slopes
from discreet.privacy import _bayes_bounded
from discreet.privacy.floors import root_floor
from discreet.privacy.priors import UniformPrior
from discreet.privacy.roots import find_root
from discreet.privacy.rounding import UNIT, finite, step_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats, Ints
    from discreet.privacy.priors import Prior

__all__ = [
    "BoundedNoise",
    "additive_delta",
    "additive_epsilon",
    "ideal_in_range_epsilon",
    "in_range_epsilon",
    "in_range_floor",
    "in_range_law",
    "least_delta",
]

# Clenshaw sums of a hundred terms that add up to at most 1: measured 2e-15 against rational arithmetic.
_CDF_ERROR = 1e-14


def additive_delta(density: BoundedDensity, epsilon: float, shift: float) -> float:
    """Return the delta of adding ``density`` to values at most ``shift`` apart, rounded up.

    Parameters
    ----------
    density : BoundedDensity
        Density of the noise, in the unit of the values.
    epsilon : float
        Epsilon at which delta is read; from 0 to 700.
    shift : float
        Largest distance of two values, above 0; for a lattice, of their lattice points.

    Returns
    -------
    float
        1 if the support is not wider than ``shift``. Above the exact value by less than
        ``exp(epsilon) * 1e-12``.

    Privacy
    -------
    (epsilon, delta)-DP of one column. Columns with independent noise compose by adding both numbers.

    Notes
    -----
    ``max over both signs of sup over c of P(n <= c) - exp(epsilon) P(n <= c - shift)``: the density is
    log-concave, so the likelihood ratio is monotone and the best test looks at one end of the output.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md, Lemma 3.

    Examples
    --------
    >>> from discreet.noise import BoundedDensity
    >>> round(additive_delta(BoundedDensity(lower=-5, upper=5), 1.0, 1.0), 5)
    0.03412
    """
    function = "additive_delta"
    epsilon = finite(function, "epsilon", epsilon, least=0.0, most=700.0, way_out="Ask below 700.")
    shift = finite(function, "shift", shift, above=0.0, way_out="Give the width of the declared range.")
    low, high = density.support
    if shift >= high - low:
        return 1.0
    growth = math.exp(epsilon)
    # The worse of both signs: the noise need not be symmetric.
    mirrored = BoundedDensity(
        lower=-density.upper,
        upper=-density.lower,
        regularization=density.regularization,
        weight=density.weight,
    )
    value = max(_best_test(law, growth, shift) for law in (density, mirrored))
    # Lemma 3: twice from the law to the true ground state and back, and two distribution functions.
    slack = (1.0 + growth * (1.0 + 4 * UNIT)) * (2.0 * density.distance + 2.0 * _CDF_ERROR)
    return min(1.0, value + slack)


def _best_test(density: BoundedDensity, growth: float, shift: float) -> float:
    """Return the largest ``F(c) - growth F(c - shift)``, attained where ``f(c) = growth f(c - shift)``.

    The crossing is bracketed by bisection; ``growth`` is exp(epsilon), and the density is the square of its
    root, whence the square root of ``growth``.
    """
    low, high = density.support

    def gain(c: float) -> float:
        f, g = density.cdf(np.array([c, c - shift])).tolist()
        return float(f - growth * g)

    def likelier(c: float) -> bool:
        u, v = np.abs(density.root(np.array([c, c - shift]))).tolist()
        return bool(u > math.sqrt(growth) * v)

    # Up to low + shift the second term is 0, and the gain only grows.
    near, far = low + shift, high
    for _ in range(100):
        middle = 0.5 * (near + far)
        near, far = (middle, far) if likelier(middle) else (near, middle)
    # `near` is within a rounding of the crossing, where the gain is flat; its ends are tests as well.
    return max(gain(near), gain(low + shift), gain(high))


def additive_epsilon(density: BoundedDensity, delta: float, shift: float) -> float:
    """Return the least epsilon whose :func:`additive_delta` is at most ``delta``, rounded up.

    Parameters
    ----------
    density, shift
        As for :func:`additive_delta`.
    delta : float
        Delta to reach, above 0 and below 1.

    Raises
    ------
    PromiseError
        If no epsilon has so small a delta: outputs at the ends of the support identify a value too often.

    Privacy
    -------
    As :func:`additive_delta`.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md

    Examples
    --------
    >>> from discreet.noise import BoundedDensity
    >>> round(additive_epsilon(BoundedDensity(lower=-5, upper=5), 0.05, 1.0), 3)
    0.716
    """
    delta = finite("additive_epsilon", "delta", delta, above=0.0, below=1.0, way_out="Give a probability.")
    if additive_delta(density, 0.0, shift) <= delta:
        return 0.0
    high = 0.25
    while additive_delta(density, high, shift) > delta:
        high *= 2.0
        # From about 31 on the slack of additive_delta for rounding, 2e-14 exp(epsilon), reaches 1.
        if high > 32.0:
            raise PromiseError(
                "The parameter delta of additive_epsilon must be above "
                f"{least_delta(density, shift):.4g}, and was {delta:g}: noise of "
                "bounded support excludes values that often, at any epsilon. Widen the support, or use "
                "Gaussian noise or in_range=True."
            )
    root = find_root(lambda e: additive_delta(density, e, shift) - delta, 0.0, high, xtol=1e-12)
    return min(high, step_until(lambda e: e >= high or additive_delta(density, e, shift) <= delta, root, 1.0))


def least_delta(density: BoundedDensity, shift: float) -> float:
    """Return the mass of the ``shift``-wide end piece: no epsilon has a smaller delta."""
    low, high = density.support
    if shift >= high - low:
        return 1.0
    below, above = density.cdf(np.array([low + shift, high - shift])).tolist()
    return max(float(below), 1.0 - float(above))


@dataclass(frozen=True, slots=True)
class BoundedNoise:
    """Additive noise of bounded support, for :func:`~discreet.privacy.floors.bayes_floor`.

    Parameters
    ----------
    density : BoundedDensity
        Density of the noise, in the column's unit.

    Privacy
    -------
    A law, not a promise.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md, Lemma 4.

    Examples
    --------
    >>> from discreet.noise import BoundedDensity
    >>> from discreet.privacy.floors import UniformPrior, bayes_floor
    >>> noise = BoundedNoise(BoundedDensity(lower=-28.3, upper=28.3))
    >>> round(bayes_floor(noise, UniformPrior(17, 90)), 2)
    8.88
    """

    density: BoundedDensity

    @property
    def information(self) -> float:
        """Fisher information about the location, rounded up."""
        return self.density.fisher_information * (1.0 + 1e-12)

    def compose(self, releases: int) -> BoundedNoise:
        """Return itself for one release; several bounded draws do not reduce to a single one."""
        if releases == 1:
            return self
        raise PromiseError(
            f"The parameter releases of BoundedNoise.compose must be 1, and was {releases}. Several "
            "releases with bounded noise exclude values together and have no exact floor here; use Gaussian "
            "noise, or van_trees_floor for a column that is not made of integers."
        )

    def interval_mean_square(self, width: float) -> float:
        """Return a lower bound on the Bayes mean square error for a uniform prior on an interval."""
        return _bayes_bounded.bounded_interval(self.density, width)

    def integer_mean_square(self, points: int) -> float:
        """Return a lower bound on the Bayes mean square error for a uniform prior on integers."""
        return _bayes_bounded.bounded_integers(self.density, points)

    def scaled(self, factor: float) -> BoundedNoise:
        """Return the noise in another unit: ``factor`` times as large."""
        density = self.density
        return BoundedNoise(
            replace(
                density,
                lower=density.lower * factor,
                upper=density.upper * factor,
                regularization=density.regularization / factor**4,
            )
        )


# The bit pattern of -0.0 as an integer: negative floats count down from it, positive ones up from 0.
_LEAST = np.int64(np.iinfo(np.int64).min)


def ideal_in_range_epsilon(kappa: float) -> float:
    """Return the epsilon of the continuous in-range mechanism with ``kappa = regularization * width**4``.

    Parameters
    ----------
    kappa : float
        Regularization without unit; above 0 and at most 1e4.

    Privacy
    -------
    For planning. The mechanism runs on a table, whose own epsilon :func:`in_range_epsilon` gives.

    Notes
    -----
    ``2 log(near / far)`` with the slopes of the ground state at the two ends, for a value at the near end:
    likelihood ratios are monotone, so nothing between the ends is worse.

    Reference
    ---------
    docs/explanation/theorems/fisher-in-range.md, Lemma 2.

    Examples
    --------
    >>> round(ideal_in_range_epsilon(100.0), 3)
    1.228
    """
    kappa = finite(
        "ideal_in_range_epsilon",
        "kappa",
        kappa,
        above=0.0,
        most=LARGEST_KAPPA,
        way_out="Epsilon is above 40 beyond.",
    )
    far, near = end_slopes(kappa)
    return 2.0 * math.log(near / far)


@lru_cache(maxsize=64)
def in_range_epsilon(law: InRange) -> float:
    """Return the epsilon of the in-range mechanism as it draws, rounded up.

    It is the log of the largest ratio of two integers in one column of the table, over all outputs and all
    pairs of inputs.

    Parameters
    ----------
    law : InRange
        Table of the in-range mechanism.

    Privacy
    -------
    Pure epsilon-DP of one published value, exact: no delta and no total variation.

    Reference
    ---------
    docs/explanation/theorems/fisher-in-range.md, Lemma 3.

    Examples
    --------
    >>> from discreet.noise import InRange
    >>> round(in_range_epsilon(InRange(lower=0, upper=1, regularization=100)), 2)
    1.23
    """
    masses = law.masses
    most, least = masses.max(axis=0), masses.min(axis=0)
    # A logarithm in double precision is within 1e-15; so is the ratio of two integers below 2**63.
    return float(np.max(np.log(most / least))) * (1.0 + 1e-14) + 1e-15


def in_range_law(
    epsilon: float, lower: float, upper: float, *, inputs: int = INPUTS, cells: int = CELLS
) -> InRange:
    """Return the least noisy in-range mechanism whose epsilon is at most ``epsilon``.

    Parameters
    ----------
    epsilon : float
        Pure epsilon of one published value; from 1e-6 to 40.
    lower, upper : float
        Declared range of the column, 1e-70 to 1e70 wide.
    inputs, cells : int
        As for :class:`~discreet.noise.in_range.InRange`.

    Privacy
    -------
    ``in_range_epsilon(result) <= epsilon``.

    Reference
    ---------
    docs/explanation/theorems/fisher-in-range.md

    Examples
    --------
    >>> law = in_range_law(2.0, 0, 100)
    >>> law.lower, law.upper
    (0, 100)
    """
    epsilon = finite(
        "in_range_law",
        "epsilon",
        epsilon,
        least=1e-6,
        most=40.0,
        way_out="Above 40 publish the value itself; below a millionth publish nothing.",
    )
    if not 1e-70 <= upper - lower <= 1e70:
        raise ParameterError(
            "The parameters lower and upper of in_range_law must be 1e-70 to 1e70 apart, and were "
            f"{lower!r} and {upper!r}. Count the column in another unit."
        )
    log_kappa = find_root(
        lambda log_kappa: ideal_in_range_epsilon(math.exp(log_kappa)) - epsilon,
        math.log(1e-5),
        math.log(LARGEST_KAPPA) - 1e-12,
        xtol=1e-12,
    )
    kappa, less = math.exp(log_kappa), 1e-9
    while True:
        law = InRange(
            lower=lower, upper=upper, regularization=kappa / (upper - lower) ** 4, inputs=inputs, cells=cells
        )
        if in_range_epsilon(law) <= epsilon:
            return law
        # Rounding to integers pushed it over: by little, or by much where the rarest cells are a few units.
        kappa *= 1.0 - less
        less = min(4.0 * less, 0.01)


def in_range_floor(law: InRange, prior: Prior) -> float:
    """Return the least root-mean-square error of any guess from one published value, rounded down.

    Parameters
    ----------
    law : InRange
        Table of the in-range mechanism.
    prior : UniformPrior or IntegerPrior
        Named public prior of the value, on the law's own range.

    Privacy
    -------
    As :func:`~discreet.privacy.floors.bayes_floor`; the sum is over the table, so there is no quadrature.

    Reference
    ---------
    docs/explanation/theorems/fisher-in-range.md, Lemma 4.

    Examples
    --------
    >>> from discreet.noise import InRange
    >>> law = InRange(lower=17, upper=90, regularization=100 / 73**4)
    >>> round(in_range_floor(law, UniformPrior(17, 90)), 1)
    20.8
    """
    if (float(prior.lower), float(prior.upper)) != (law.lower, law.upper):
        raise PromiseError(
            f"The parameter prior of in_range_floor must be on the range of the law, {law.lower:g} to "
            f"{law.upper:g}, and was {prior.name}. Declare one range for both."
        )
    weight, mean, inner = _group_inputs(law, prior)
    joint = law.masses * (weight * 2.0**-63)[:, np.newaxis]
    mass = joint.sum(axis=0)
    # Law of total variance: what remains between inputs given the output, and the variance within an input.
    center = (mean @ joint) / mass
    between = float(np.sum(joint * (mean[:, np.newaxis] - center) ** 2))
    return root_floor((between + inner) * (1.0 - 1e-12), prior)


def _group_inputs(law: InRange, prior: Prior) -> tuple[Floats, Floats, float]:
    """Return probability and mean of the values quantized to each input, and the mean variance within them.

    Means are relative to the lower bound: far from zero, the values themselves have few digits left.
    """
    if isinstance(prior, UniformPrior):
        # A value is stored as the nearest 64-bit number, and that number is quantized to an input.
        first = _first_places(law, int(_float_rank(law.lower)), int(_float_rank(law.upper)), _ranked_float)
        ends = [_ranked_float(place) - law.lower for place in (first[1:] - 1, first[1:])]
        width = law.upper - law.lower
        edges = np.concatenate([[0.0], np.minimum(0.5 * (ends[0] + ends[1]), width), [width]])
        length = np.diff(edges)
        weight = length / width
        return weight, edges[:-1] + 0.5 * length, float(weight @ length**2) / 12.0
    first = _first_places(law, int(prior.lower), int(prior.upper), lambda place: place.astype(np.float64))
    start = np.append(first, int(prior.upper) + 1) - int(prior.lower)
    count = np.diff(start).astype(np.float64)
    # The variance of n consecutive integers is (n**2 - 1) / 12.
    inner = float(np.sum(count * np.maximum(count**2 - 1.0, 0.0)) / 12.0 / count.sum())
    return count / count.sum(), 0.5 * (start[:-1] + start[1:] - 1.0), inner


def _first_places(law: InRange, lowest: int, highest: int, number: Callable[[Ints], Floats]) -> Ints:
    """Return, for each input, the first place whose number is quantized to it or to a later one.

    Places number the values of a column in their order; ``highest + 1`` stands for none. All inputs are
    bisected at once.
    """
    targets = np.arange(law.inputs)
    low, high = np.full(law.inputs, lowest), np.full(law.inputs, highest + 1)
    while (low < high).any():
        # The mean of two integers of any sign, without overflow.
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        reached = law.quantize(number(np.minimum(middle, highest))) >= targets
        high = np.where(reached & (low < high), middle, high)
        low = np.where(~reached & (low < high), middle + 1, low)
    return low


def _float_rank(x: float) -> Ints:
    """Return the rank of a 64-bit number among all of them in order, 0 at zero."""
    bits = np.asarray(x, np.float64).view(np.int64)
    return np.where(bits < 0, _LEAST - bits, bits)


def _ranked_float(place: Ints) -> Floats:
    """Return the 64-bit number of a rank: the inverse of :func:`_float_rank`."""
    return np.where(place < 0, _LEAST - place, place).view(np.float64)
