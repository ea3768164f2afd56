"""Results of attacks on cells and records with their intervals, and bounds that DP sets on every guess.

:class:`Guess` and :class:`Reidentification` are the results. :func:`max_success_probability` and
:func:`min_error` bound every guess at a cell from results that keep a promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import numpy as np
from scipy import special

from discreet.audit._bounds import mean_bounds
from discreet.confidence import clopper_pearson
from discreet.errors import ParameterError, PromiseError
from discreet.formatting import plain_number
from discreet.json_record import JsonRecord
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Bools
    from discreet.privacy import Promise

Statistic: TypeAlias = Literal["root-mean-square error", "probability of a wrong guess"]
GuessVerdict: TypeAlias = Literal["holds", "broken", "no floor", "shown"]
Ground: TypeAlias = Literal["prior", "file", "rows"]
Way: TypeAlias = Literal["linkage", "membership", "invariants"]
LEFT_OUT = "a guess learned from other records was left out for want of time"
FAILURE = 0.05
"""Failure probability of an interval that is shown and decides nothing."""
_STEPS = 96
_RAREST = 1e-9
"""Smallest delta that is used: a larger epsilon would change a bound by less than this."""
_LARGEST = 40.0
_SLACK = 1e-12
"""Covers the rounding errors of some hundred operations on numbers of order 1."""


class AttackRecord(JsonRecord):
    """Checks that results of attacks have in common."""

    __slots__ = ()

    def _check(self, name: str, allowed: tuple[str, ...]) -> None:
        if getattr(self, name) not in allowed:
            raise ParameterError(
                f"{name} of {type(self).__name__} must be one of {', '.join(allowed)}, "
                f"was {getattr(self, name)!r}."
            )

    def _check_interval(self, failure_probability: float, *numbers: float) -> None:
        if not all(math.isfinite(x) for x in numbers) or sorted(numbers) != list(numbers) or numbers[0] < 0:
            raise ParameterError(
                f"The interval of {type(self).__name__} must hold what was measured, none of it below 0; "
                f"was {', '.join(f'{x:g}' for x in numbers)}."
            )
        if not 0 <= failure_probability < 1:
            raise ParameterError(
                f"failure_probability of {type(self).__name__} must be at least 0 and below 1, was "
                f"{failure_probability!r}."
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess(AttackRecord):
    """Result of one attack on the cells of one column.

    Attributes
    ----------
    attack : str
        Name of the attack, in a few words.
    column : str
        Name of the column whose cells were guessed.
    statistic : {"root-mean-square error", "probability of a wrong guess"}
        Meaning of ``error``, ``lower``, ``upper``, ``without`` and ``floor``.
    measure : str or None
        Unit of these numbers, such as "years"; None if none was declared.
    error : float
        Error of the guesses, in the statistic above.
    lower, upper : float
        Confidence interval of the attack's error on further records.
    failure_probability : float
        Chance that this error lies outside the interval; 0 where nothing was drawn and there is no interval.
    without : float
        Error of the best guess without the release, under the same knowledge.
    floor : float or None
        The error that is proven to be the least, under the prior named in the plan; None if none is proven.
    verdict : {"holds", "broken", "no floor", "shown"}
        "broken": the floor is false, except with probability ``failure_probability``. "holds": this attack
        stayed above it. "shown": on real rows or on the file, where a floor under the uniform prior need
        not hold; decides nothing.
    on : {"prior", "file", "rows"}
        Data of the attack: made-up records, the published file alone, or real rows.
    knowledge : str
        Knowledge that the attacker is assumed to have.
    n : int
        Number of cells that were guessed.
    seconds : float
        Running time of the attack, in seconds.
    note : str
        Limits of the attack that the reader must know, or "".

    Privacy
    -------
    On "prior" and "file" all numbers depend on private rows only through the published file. On "rows" every
    number depends on them: internal.

    Reference
    ---------
    The interval on "prior": docs/explanation/theorems/bounded-mean.md for numbers, Clopper and Pearson (1934)
    for wrong guesses. On "rows": the normal approximation for numbers.

    Examples
    --------
    >>> from discreet import Column, ErrorFloor, GaussianRelease, Schema
    >>> from discreet.audit import attack_prior
    >>> schema = Schema(columns=[Column("age", lower=17, upper=90, measure="years")])
    >>> plan = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema).plan(schema, 1000)
    >>> attack_prior(plan, n=1000)[0].measure
    'years'
    """

    kind: ClassVar[str] = "guess"

    attack: str
    column: str
    statistic: Statistic
    measure: str | None
    error: float
    lower: float
    upper: float
    failure_probability: float
    without: float
    floor: float | None
    verdict: GuessVerdict
    on: Ground
    knowledge: str
    n: int
    seconds: float
    note: str = ""

    def __post_init__(self) -> None:
        self._check("statistic", get_args(Statistic))
        self._check("verdict", get_args(GuessVerdict))
        self._check("on", get_args(Ground))
        self._check_interval(self.failure_probability, self.lower, self.error, self.upper)
        if self.verdict in ("holds", "broken") and self.floor is None:
            raise ParameterError(
                f'floor of Guess must be a number for the verdict {self.verdict!r}, was None. Say "no floor".'
            )

    def __str__(self) -> str:
        unit = f" {self.measure}" if self.measure else ""
        floor = "no floor"
        if self.floor is not None:
            floor = f"floor {plain_number(self.floor, digits=4, rounding='down')}"
        return (
            f"{self.column}, {self.attack}: {self.verdict}. {self.statistic.capitalize()} {self.error:.4g}"
            f"{unit} ({self.lower:.4g} to {self.upper:.4g}), {floor}, without the release {self.without:.4g}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reidentification(AttackRecord):
    """Result of an attack that links people to published rows, or decides whether they are in the table.

    Attributes
    ----------
    attack : {"linkage", "membership", "invariants"}
        "linkage": which published row belongs to a person. "membership": whether a person is in the table.
        "invariants": which row belongs to a person, by what the release keeps exactly.
    success : float
        Share of people about whom the attacker was right.
    lower, upper : float
        Confidence interval of that share, over people like these.
    chance : float
        Share that random guessing reaches.
    n : int
        Number of people that were attacked.
    failure_probability : float
        Chance that the share lies outside the interval.
    knowledge : str
        Knowledge that the attacker is assumed to have.
    sentence : str
        The result in plain words, for the report.

    Privacy
    -------
    Computed from real rows: internal. No promise of this product is about linkage as such; differential
    privacy bounds membership, an error floor does not.

    Reference
    ---------
    Clopper and Pearson (1934).
    """

    kind: ClassVar[str] = "exposed"

    attack: Way
    success: float
    lower: float
    upper: float
    chance: float
    n: int
    failure_probability: float
    knowledge: str
    sentence: str

    def __post_init__(self) -> None:
        self._check("attack", get_args(Way))
        self._check_interval(self.failure_probability, self.lower, self.success, self.upper)

    def __str__(self) -> str:
        return f"{self.attack}: {self.sentence}"


def add_note(guess: Guess, note: str) -> Guess:
    """Return a copy of a guess with one more note."""
    return replace(guess, note=f"{guess.note}; {note}" if guess.note else note)


def rms_interval(
    guesses: AnyArray, truth: AnyArray, largest: float, failure_probability: float
) -> tuple[float, float, float]:
    """Return the root-mean-square error of guesses and a confidence interval that assumes nothing.

    Parameters
    ----------
    guesses, truth : array of shape (n,)
        Guessed and true values of n independent people.
    largest : float
        Largest possible error if the claim is true; larger errors are cut to it.
    failure_probability : float
        Probability that the interval misses the expected error.

    Returns
    -------
    error, lower, upper : float
        The error and its interval, in the unit of the values.

    Notes
    -----
    The interval is that of the mean of ``min(|g - x| / L, 1)**2``, with ``L`` the largest error.

    Reference
    ---------
    docs/explanation/theorems/bounded-mean.md
    """
    squares = np.square(np.minimum(np.abs(guesses - truth) / largest, 1.0))
    low, high = mean_bounds(squares, failure_probability)
    return tuple(largest * math.sqrt(x) for x in (float(squares.mean()), low, high))  # type: ignore[return-value]


def approximate_rms_interval(
    guesses: AnyArray, truth: AnyArray, bounds: tuple[float, float], failure_probability: float
) -> tuple[float, float, float]:
    """Return the root-mean-square error and its interval by the normal approximation, for display only."""
    squares = np.square(np.clip(guesses, *bounds) - truth)
    mean, spread = float(squares.mean()), float(squares.std()) / math.sqrt(squares.size)
    reach = -float(special.ndtri(failure_probability / 2)) * spread
    return math.sqrt(mean), math.sqrt(max(0.0, mean - reach)), math.sqrt(mean + reach)


def share_interval(hits: Bools, failure_probability: float) -> tuple[float, float, float]:
    """Return the share of hits and its two-sided Clopper-Pearson interval."""
    n, k = len(hits), int(np.count_nonzero(hits))
    low, high = clopper_pearson(k, n, failure_probability / 2)
    # Rounding must not put the share outside of its own interval.
    return k / n, min(float(low), k / n), max(float(high), k / n)


def floor_verdict(floor: float | None, upper: float) -> GuessVerdict:
    """Return the verdict on a floor, from the upper bound on an attack's error on records from the prior."""
    if floor is None:
        return "no floor"
    return "broken" if upper < floor else "holds"


def max_success_probability(promise: Promise, shares: Sequence[float]) -> float:
    """Return the largest chance with which any method can guess a cell right.

    Parameters
    ----------
    promise : Promise
        Promise about replacing the row that the cell is in.
    shares : sequence of float
        Probabilities with which the cell takes each value; the attacker knows them and everything else.

    Returns
    -------
    float
        Probability, rounded up; without any result it would be the largest share.

    Privacy
    -------
    Follows from the promise for a value that is drawn with these shares, whatever the attacker's method. It
    is no bound on how well one guesses people whose value is correlated with other known facts about them.

    Notes
    -----
    Let ``G`` be the largest chance of an event given its chance ``x`` under a neighbor, concave and
    piecewise linear (:func:`_envelope`), and ``x_i`` the chance to guess value i when the cell is the
    likeliest value. The result is the largest ``w_1 x_1 + sum over i > 1 of w_i G(x_i)`` with
    ``sum of x_i = 1``, found by taking the linear pieces in order of their slopes.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``, theorem 1.

    Examples
    --------
    >>> round(max_success_probability(GaussianDP(mu=1.0), [0.5, 0.5]), 3)  # the normal distribution at 1/2
    0.691
    """
    given = sorted((float(share) for share in shares), reverse=True)
    if not given or given[-1] < 0 or not math.isclose(sum(given), 1.0, abs_tol=1e-9):
        raise ParameterError(
            "shares of max_success_probability must be numbers of at least 0 that add up to 1, and do not. "
            "Give the share of every value."
        )
    first, *others = given
    start, pieces = _envelope(promise)
    # A total chance of 1 is spent where it gains most: a concave maximum with separable terms.
    offers = [(first, 1.0)]
    offers += [(share * slope, length) for share in others for slope, length in pieces]
    right, left = start * sum(others), 1.0
    for gain, length in sorted(offers, reverse=True):
        used = min(length, left)
        right, left = right + gain * used, left - used
    return min(1.0, right + _SLACK)


def max_roc_area(promise: Promise) -> float:
    """Return the largest area under the ROC curve with which any method can tell two neighbors apart.

    Parameters
    ----------
    promise : Promise
        Promise about the two neighbors, such as tables with and without a person.

    Returns
    -------
    float
        Area from 1/2 to 1, rounded up: the normal distribution at ``mu / sqrt(2)`` for Gaussian DP, and
        ``1 / (1 + exp(-epsilon))`` for pure DP.

    Privacy
    -------
    Follows from the promise, whatever the attacker's method and knowledge. It bounds the mean over releases.

    Notes
    -----
    The integral over ``x`` from 0 to 1 of the largest chance of an event given its chance ``x`` under a
    neighbor (:func:`_envelope`).

    Reference
    ---------
    Dong, Roth and Su (2022), for the curve as a trade-off function.

    Examples
    --------
    >>> round(max_roc_area(GaussianDP(mu=1.0)), 2)
    0.76
    """
    height, pieces = _envelope(promise)
    area = 0.0
    for slope, length in pieces:
        area += length * (height + slope * length / 2)
        height += slope * length
    return min(1.0, area + _SLACK)


def min_error(promise: Promise, *, sd: float, width: float) -> float:
    """Return the least root-mean-square error with which any method can guess a number.

    Parameters
    ----------
    promise : Promise
        Promise about replacing the row that the number is in.
    sd : float
        Standard deviation of the law that the number is drawn from, which is the error without any result.
    width : float
        Width of the declared range, in the number's unit.

    Returns
    -------
    float
        Error in the number's unit, rounded down.

    Privacy
    -------
    As :func:`max_success_probability`.

    Notes
    -----
    ``error**2 >= k sd**2 - t width**2``, with ``t`` the total variation distance of the sampler from its law
    and ``k`` the larger of ``(1 - delta(0)) / 2`` and ``1 - chi2``, where ``chi2`` bounds the chi-squared
    divergence between neighbors.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``, theorem 2.

    Examples
    --------
    >>> round(min_error(GaussianDP(mu=0.5), sd=10.0, width=60.0), 2)
    8.46
    """
    if not (math.isfinite(sd) and math.isfinite(width) and 0 <= sd <= width):
        raise ParameterError(
            f"sd and width of min_error must be numbers with 0 <= sd <= width, were {sd!r} and {width!r}. "
            "Give the width of the declared range."
        )
    kept = [(1 - promise.delta_at(0.0)) / 2]
    divergence = _chi_squared(promise)
    if divergence is not None:
        kept.append(1 - divergence)
    # Both bounds are valid, so the larger one is; a sampler that is off by t adds at most t width**2.
    square = max(kept) * sd**2 - promise.total_variation * width**2
    return math.sqrt(square * (1 - _SLACK)) * (1 - _SLACK) if square > 0 else 0.0


def _chi_squared(promise: Promise) -> float | None:
    """Return an upper bound on the chi-squared divergence between neighbors; None if there is none.

    Notes
    -----
    ``exp(D) - 1`` with ``D`` the Renyi divergence of order 2: ``mu**2`` for Gaussian DP, ``2 rho`` for zCDP,
    at most ``epsilon**2`` for pure DP, for which ``(exp(epsilon) - 1) (1 - exp(-epsilon))`` holds too.
    """
    if isinstance(promise, PureDP):
        # Bhatia and Davis (2000): a ratio from exp(-e) to exp(e) with mean 1 has no larger variance.
        return min(4 * math.sinh(min(promise.epsilon, 50.0) / 2) ** 2, _capped_expm1(promise.epsilon**2))
    if isinstance(promise, GaussianDP):
        return _capped_expm1(promise.mu**2)
    return _capped_expm1(2 * promise.rho) if isinstance(promise, ZCDP) else None


def _capped_expm1(renyi: float) -> float:
    # Past 1 the bound is useless, so a cap only prevents an overflow.
    return math.expm1(min(renyi, 50.0))


@lru_cache(maxsize=16)
def _envelope(promise: Promise) -> tuple[float, tuple[tuple[float, float], ...]]:
    """Return the largest chance of an event as a function of its chance under a neighbor.

    Returns
    -------
    start : float
        Value of the function at chance 0.
    pieces : tuple of (slope, length)
        Linear pieces of the function from left to right, slopes falling.

    Notes
    -----
    ``G(x) = min over epsilon of min(exp(epsilon) x + delta, 1 - exp(-epsilon) (1 - delta - x), 1)`` over a
    grid of epsilons: the lower envelope of lines. A coarser grid gives a larger, still valid bound.
    """
    lines: list[tuple[float, float]] = []  # (slope, value at 0)
    for epsilon in np.linspace(0.0, _max_epsilon(promise), _STEPS + 1).tolist():
        delta = promise.delta_at(epsilon)
        rise = math.exp(min(epsilon, 700.0))
        lines.append((rise, delta))
        # The same inequality for the complement, solved for the chance of the event.
        lines.append((1 / rise, 1 - (1 - delta) / rise))
    # No probability exceeds 1.
    lines.append((0.0, 1.0))
    x, height = 0.0, min(value for _, value in lines)
    start = height
    slope = min(s for s, value in lines if value == height)
    pieces = []
    while x < 1.0:
        # The next piece belongs to the flatter line that crosses this one first.
        crossings = [((value - height + slope * x) / (slope - s), s) for s, value in lines if s < slope]
        end, next_slope = min((point for point in crossings if point[0] > x), default=(1.0, 0.0))
        end = min(end, 1.0)
        pieces.append((slope, end - x))
        # From one crossing to the next, the lower envelope follows one line.
        height += slope * (end - x)
        x, slope = end, next_slope
    return start, tuple(pieces)


def _max_epsilon(promise: Promise) -> float:
    """Return the largest epsilon of the grid; every choice gives a valid bound."""
    if isinstance(promise, PureDP | ApproxDP):
        return promise.epsilon
    try:
        return promise.epsilon_at(_RAREST)
    except PromiseError:
        return _LARGEST  # the sampler's total variation is above this delta, so no epsilon reaches it
