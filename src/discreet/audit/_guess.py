"""What an attack on people found: how well cells are guessed, how often records are recognized.

How well anybody can guess a cell from results that keep a promise of differential privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias, get_args

import numpy as np
from scipy import special

from discreet.audit._bounds import mean_bounds
from discreet.confidence import clopper_pearson
from discreet.errors import ParameterError, PromiseError
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Bools
    from discreet.privacy import Promise

Statistic: TypeAlias = Literal["root-mean-square error", "probability of a wrong guess"]
GuessVerdict: TypeAlias = Literal["holds", "broken", "no floor", "shown"]
Ground: TypeAlias = Literal["prior", "file", "rows"]
Way: TypeAlias = Literal["linkage", "membership", "invariants"]
LEFT_OUT = "a guess learned from other records was left out for want of time"
FAILURE = 0.05
"""Of an interval that is shown and decides nothing."""


class _Written:
    """JSON round trip of the two dataclasses below, whose fields are plain values."""

    __slots__ = ()
    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal value."""
        return {"kind": self.kind, **{item.name: getattr(self, item.name) for item in fields(self)}}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make the value that :meth:`to_dict` wrote; unknown kinds and keys are refused."""
        rest = dict(values)
        names = {item.name for item in fields(cls)}  # type: ignore[arg-type]
        if rest.pop("kind", None) != cls.kind or set(rest) != names:
            odd = ", ".join(sorted(set(rest) ^ names)) or "none"
            raise ParameterError(
                f"values of {cls.__name__}.from_dict must have the kind {cls.kind!r} and the keys "
                f"{', '.join(sorted(names))}; kind {values.get('kind')!r}, missing or unknown keys: {odd}. "
                "Write them with to_dict()."
            )
        return cls(**rest)

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
class Guess(_Written):
    """One attack on the cells of one column.

    Attributes
    ----------
    attack : str
        Which one, in a few words.
    column : str
        Whose cells were guessed.
    statistic : {"root-mean-square error", "probability of a wrong guess"}
        What the numbers below are.
    measure : str or None
        Their unit, as people say it.
    error : float
        How far off the guesses were.
    lower, upper : float
        Where the attack's error on further records lies.
    failure_probability : float
        Chance that it lies outside; 0 where nothing was drawn and ``error`` is all that is said.
    without : float
        Error of the best guess without the release, under the same knowledge.
    floor : float or None
        The error that is proven to be the least, under the prior named in the plan.
    verdict : {"holds", "broken", "no floor", "shown"}
        "broken": the floor is false, except with probability ``failure_probability``. "holds": this attack
        stayed above it. "shown": on real rows or on the file, where a floor under the uniform prior need
        not hold; decides nothing.
    on : {"prior", "file", "rows"}
        Made-up records, the published file alone, or real rows.
    knowledge : str
        What the attacker is assumed to know.
    n : int
        How many cells were guessed.
    seconds : float
        How long the attack took.
    note : str
        What else the reader must know.

    Privacy
    -------
    On "prior" and "file" nothing depends on private rows but through what was published. On "rows" every
    number does: internal.

    Reference
    ---------
    The interval on "prior": docs/explanation/theorems/bounded-mean.md for numbers, Clopper and Pearson (1934)
    for wrong guesses. On "rows": the normal approximation for numbers.
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
        floor = "no floor" if self.floor is None else f"floor {self.floor:.4g}"
        return (
            f"{self.column}, {self.attack}: {self.verdict}. {self.statistic.capitalize()} {self.error:.4g}"
            f"{unit} ({self.lower:.4g} to {self.upper:.4g}), {floor}, without the release {self.without:.4g}."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reidentification(_Written):
    """How many people an attacker recognizes, or knows to be in the table.

    Attributes
    ----------
    attack : {"linkage", "membership", "invariants"}
        "linkage": which published row is somebody's. "membership": is somebody in the table. "invariants":
        which row, by what the release keeps exactly.
    success : float
        Share of people about whom the attacker was right.
    lower, upper : float
        Where that share lies, over people like these.
    chance : float
        The share that blind guessing reaches.
    n : int
        How many people were attacked.
    failure_probability : float
        Chance that the share lies outside.
    knowledge : str
        What the attacker is assumed to know.
    sentence : str
        For people.

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


def noted(guess: Guess, note: str) -> Guess:
    """Return the same with another note."""
    return replace(guess, note=f"{guess.note}; {note}" if guess.note else note)


def rms_interval(
    guesses: AnyArray, truth: AnyArray, largest: float, failure_probability: float
) -> tuple[float, float, float]:
    """Return root-mean-square error and its interval.

    Parameters
    ----------
    guesses, truth : arrays
        For each person.
    largest : float
        No error is larger if what is claimed is true; one that is all the same counts as much as this.
    failure_probability : float
        Of the interval.
    """
    squares = np.square(np.minimum(np.abs(guesses - truth) / largest, 1.0))
    low, high = mean_bounds(squares, failure_probability)
    return tuple(largest * math.sqrt(x) for x in (float(squares.mean()), low, high))  # type: ignore[return-value]


def rough_interval(
    guesses: AnyArray, truth: AnyArray, bounds: tuple[float, float], failure_probability: float
) -> tuple[float, float, float]:
    """Return root-mean-square error and its interval by the normal approximation: to look at, no verdict."""
    squares = np.square(np.clip(guesses, *bounds) - truth)
    mean, spread = float(squares.mean()), float(squares.std()) / math.sqrt(squares.size)
    reach = -float(special.ndtri(failure_probability / 2)) * spread
    return math.sqrt(mean), math.sqrt(max(0.0, mean - reach)), math.sqrt(mean + reach)


def share_interval(hits: Bools, failure_probability: float) -> tuple[float, float, float]:
    """Return a share and its Clopper-Pearson interval."""
    n, k = len(hits), int(np.count_nonzero(hits))
    low, high = clopper_pearson(k, n, failure_probability / 2)
    return k / n, min(float(low), k / n), max(float(high), k / n)


def verdict_on(floor: float | None, upper: float) -> GuessVerdict:
    """Say what an attack on records from the prior showed about a floor."""
    if floor is None:
        return "no floor"
    return "broken" if upper < floor else "holds"


_STEPS = 96
_RAREST = 1e-9
"""Epsilons at which delta would be smaller are not looked at: they would lower a bound by no more."""
_LARGEST = 40.0
_SLACK = 1e-12
"""Covers the roundings of some hundred operations on numbers of order 1."""


def max_success_probability(promise: Promise, shares: Sequence[float]) -> float:
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
    >>> round(max_success_probability(GaussianDP(mu=1.0), [0.5, 0.5]), 3)  # the normal distribution at 1/2
    0.691
    """
    given = sorted((float(share) for share in shares), reverse=True)
    if not given or given[-1] < 0 or not math.isclose(sum(given), 1.0, abs_tol=1e-9):
        raise ParameterError(
            "shares of max_success_probability must be numbers of at least 0 that add up to 1, and do not. Give the share "
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


def min_error(promise: Promise, *, sd: float, width: float) -> float:
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
    As :func:`max_success_probability`.

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
