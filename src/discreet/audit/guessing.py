"""How well anybody can guess a cell from results that keep a promise of differential privacy."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError, PromiseError
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.privacy import Promise

_STEPS = 96
_RAREST = 1e-9
"""Epsilons at which delta would be smaller are not looked at: they would lower a bound by no more."""
_LARGEST = 40.0
_SLACK = 1e-12
"""Covers the roundings of some hundred operations on numbers of order 1."""


def most_right(promise: Promise, shares: Sequence[float]) -> float:
    """Return the largest chance with which any method can guess a cell right.

    Parameters
    ----------
    promise : Promise
        About replacing the row that the cell is in.
    shares : sequence of float
        With which the cell is drawn from a list of values, everything else being known to the attacker.

    Returns
    -------
    float
        Rounded up; without any result it would be the largest share.

    Privacy
    -------
    Follows from the promise for a value that is drawn from the shares, whoever guesses. It is no bound on how
    well one guesses people whose value goes with something else that is known about them.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``, theorem 1.

    Examples
    --------
    >>> round(most_right(GaussianDP(mu=1.0), [0.5, 0.5]), 3)  # the normal distribution at 1/2
    0.691
    """
    given = sorted((float(share) for share in shares), reverse=True)
    if not given or given[-1] < 0 or not math.isclose(sum(given), 1.0, abs_tol=1e-9):
        raise ParameterError(
            "shares of most_right must be numbers of at least 0 that add up to 1, and do not. Give the share "
            "of every value."
        )
    first, *others = given
    start, pieces = _envelope(promise)
    # A chance of 1 is dealt out, as the law of the guess for the first value: where it buys most.
    offers = [(first, 1.0)]
    offers += [(share * slope, length) for share in others for slope, length in pieces]
    right, left = start * sum(others), 1.0
    for gain, length in sorted(offers, reverse=True):
        used = min(length, left)
        right, left = right + gain * used, left - used
    return min(1.0, right + _SLACK)


def least_error(promise: Promise, *, sd: float, width: float) -> float:
    """Return the least root-mean-square error with which any method can guess a number.

    Parameters
    ----------
    promise : Promise
        About replacing the row that the number is in.
    sd : float
        Of the law that the number is drawn from: the error without any result.
    width : float
        Of its range.

    Returns
    -------
    float
        Rounded down.

    Privacy
    -------
    As :func:`most_right`.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``, theorem 2.

    Examples
    --------
    >>> round(least_error(GaussianDP(mu=0.5), sd=10.0, width=60.0), 2)
    8.46
    """
    if not (math.isfinite(sd) and math.isfinite(width) and 0 <= sd <= width):
        raise ParameterError(
            f"sd and width of least_error must be numbers with 0 <= sd <= width, were {sd!r} and {width!r}. "
            "Give the width of the declared range."
        )
    kept = [(1 - promise.delta_at(0.0)) / 2]
    divergence = _chi_squared(promise)
    if divergence is not None:
        kept.append(1 - divergence)
    square = max(kept) * sd**2 - promise.total_variation * width**2
    return math.sqrt(square * (1 - _SLACK)) * (1 - _SLACK) if square > 0 else 0.0


def _chi_squared(promise: Promise) -> float | None:
    """Return how large the chi-squared divergence between neighbors can be; None if nothing bounds it."""
    if isinstance(promise, PureDP):
        # Bhatia and Davis (2000): a ratio from exp(-e) to exp(e) with mean 1 has no larger variance.
        return min(4 * math.sinh(min(promise.epsilon, 50.0) / 2) ** 2, _beyond(promise.epsilon**2))
    if isinstance(promise, GaussianDP):
        return _beyond(promise.mu**2)
    return _beyond(2 * promise.rho) if isinstance(promise, ZCDP) else None


def _beyond(order_two: float) -> float:
    return math.expm1(min(order_two, 50.0))


@lru_cache(maxsize=16)
def _envelope(promise: Promise) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the largest chance of an event, as a function of its chance for a neighbor.

    Returns
    -------
    start : float
        At chance 0.
    pieces : tuple of (slope, length)
        Of a concave function that is made of straight pieces.
    """
    lines: list[tuple[float, float]] = []  # (slope, value at 0)
    for epsilon in np.linspace(0.0, _last(promise), _STEPS + 1).tolist():
        delta = promise.delta_at(epsilon)
        rise = math.exp(min(epsilon, 700.0))
        lines.append((rise, delta))
        # The same about the event that it does not happen.
        lines.append((1 / rise, 1 - (1 - delta) / rise))
    lines.append((0.0, 1.0))
    at, height = 0.0, min(value for _, value in lines)
    start = height
    slope = min(s for s, value in lines if value == height)
    pieces = []
    while at < 1.0:
        # Which line cuts this one first?
        cuts = [((value - height + slope * at) / (slope - s), s) for s, value in lines if s < slope]
        end, then = min(((x, s) for x, s in cuts if x > at), default=(1.0, 0.0))
        end = min(end, 1.0)
        pieces.append((slope, end - at))
        height += slope * (end - at)
        at, slope = end, then
    return start, tuple(pieces)


def _last(promise: Promise) -> float:
    """Return the largest epsilon that is worth looking at. Every choice is valid."""
    if isinstance(promise, PureDP | ApproxDP):
        return promise.epsilon
    try:
        return promise.epsilon_at(_RAREST)
    except PromiseError:
        return _LARGEST  # so weak a promise that a sampler's own error shows
