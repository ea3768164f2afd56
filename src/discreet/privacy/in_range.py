"""What the in-range mechanism promises: a pure epsilon, read off the integers that it draws from."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq

from discreet.errors import ParameterError, PromiseError
from discreet.noise.in_range import CELLS, INPUTS, LARGEST_KAPPA, InRange, end_slopes
from discreet.privacy._numbers import finite
from discreet.privacy.floors import UniformPrior, root_floor

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats, Ints
    from discreet.privacy.floors import Prior

_LEAST = np.int64(np.iinfo(np.int64).min)


def ideal_in_range_epsilon(kappa: float) -> float:
    """Return the epsilon of the continuous in-range mechanism with ``kappa = regularization * width**4``.

    ``2 log`` of the ratio of the slopes at the two ends, for a value at an end: likelihood ratios are
    monotone, so nothing between the ends is worse.

    Parameters
    ----------
    kappa : float
        Above 0 and at most 1e4.

    Privacy
    -------
    For planning. The mechanism runs on a table, whose own epsilon :func:`in_range_epsilon` gives.

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

    The largest ratio of two integers in a column of its table: over every output and every pair of inputs.

    Parameters
    ----------
    law : InRange
        The mechanism.

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
        Above 0 and at most 40.
    lower, upper : float
        The declared range.
    inputs, cells : int
        See :class:`~discreet.noise.in_range.InRange`.

    Privacy
    -------
    ``in_range_epsilon(result) <= epsilon``.

    Reference
    ---------
    docs/explanation/theorems/fisher-in-range.md
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
    log_kappa = brentq(
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
        The mechanism.
    prior : UniformPrior or IntegerPrior
        The named public prior, on the law's own range.

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
    weight, mean, inner = _groups(law, prior)
    joint = law.masses * (weight * 2.0**-63)[:, np.newaxis]
    mass = joint.sum(axis=0)
    center = (mean @ joint) / mass
    between = float(np.sum(joint * (mean[:, np.newaxis] - center) ** 2))
    return root_floor((between + inner) * (1.0 - 1e-12), prior)


def _groups(law: InRange, prior: Prior) -> tuple[Floats, Floats, float]:
    """Return probability and mean of the values moved to each input, and their mean variance.

    Everything is counted from the lower bound: far from zero, the values themselves have few digits left.
    """
    if isinstance(prior, UniformPrior):
        # A value is stored as the nearest 64-bit number, and that is moved to an input.
        first = _first_moved(law, int(_place(law.lower)), int(_place(law.upper)), _number)
        ends = [_number(place) - law.lower for place in (first[1:] - 1, first[1:])]
        width = law.upper - law.lower
        edges = np.concatenate([[0.0], np.minimum(0.5 * (ends[0] + ends[1]), width), [width]])
        length = np.diff(edges)
        weight = length / width
        return weight, edges[:-1] + 0.5 * length, float(weight @ length**2) / 12.0
    first = _first_moved(law, int(prior.lower), int(prior.upper), lambda place: place.astype(np.float64))
    start = np.append(first, int(prior.upper) + 1) - int(prior.lower)
    count = np.diff(start).astype(np.float64)
    # The variance of n consecutive integers is (n**2 - 1) / 12.
    inner = float(np.sum(count * np.maximum(count**2 - 1.0, 0.0)) / 12.0 / count.sum())
    return count / count.sum(), 0.5 * (start[:-1] + start[1:] - 1.0), inner


def _first_moved(law: InRange, lowest: int, highest: int, number: Callable[[Ints], Floats]) -> Ints:
    """Return the first place whose number is moved to each input or a later one, by bisection.

    Places count the numbers of a column in their order; one past the last where there is none.
    """
    wanted = np.arange(law.inputs)
    low, high = np.full(law.inputs, lowest), np.full(law.inputs, highest + 1)
    while (low < high).any():
        middle = (low >> 1) + (high >> 1) + (low & high & 1)
        there = law.quantize(number(np.minimum(middle, highest))) >= wanted
        high = np.where(there & (low < high), middle, high)
        low = np.where(~there & (low < high), middle + 1, low)
    return low


def _place(x: float) -> Ints:
    """Return where a 64-bit number stands among all of them in order, 0 at zero."""
    bits = np.asarray(x, np.float64).view(np.int64)
    return np.where(bits < 0, _LEAST - bits, bits)


def _number(place: Ints) -> Floats:
    """Return the 64-bit number that stands there."""
    return np.where(place < 0, _LEAST - place, place).view(np.float64)
