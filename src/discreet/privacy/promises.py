"""Privacy promises of results: one frozen value per kind of promise.

Every promise names the protected unit (`unit`, `neighbors`), the columns that it covers (`covers`), its
assumptions (`assumes`), whether the arithmetic behind it was exact, and how far the sampler's law may be
from the one in the theorem (`total_variation`). A `kind` never changes its meaning; a new meaning gets a
new kind.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from discreet.errors import ParameterError, PromiseError
from discreet.formatting import count_noun, format_factor, number, plain_number, printable
from discreet.privacy._base import Arithmetic, Promise, Statistic, check_positive
from discreet.privacy._error_floor import ColumnFloor, ErrorFloor
from discreet.privacy._posterior_odds import PosteriorOdds
from discreet.privacy.calibration._gaussian import gaussian_delta, gaussian_epsilon
from discreet.privacy.calibration._pure import group_delta, group_epsilon, group_mu, group_rho, pure_delta
from discreet.privacy.calibration._zcdp import zcdp_delta, zcdp_epsilon
from discreet.privacy.rounding import exact, float_up, least_epsilon

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from discreet.privacy.composition import Spending

__all__ = [
    "ZCDP",
    "ApproxDP",
    "Arithmetic",
    "ColumnFloor",
    "ErrorFloor",
    "GaussianDP",
    "NoPromise",
    "PosteriorOdds",
    "Promise",
    "PureDP",
    "Statistic",
    "promise_from_dict",
]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PureDP(Promise):
    """Pure differential privacy.

    Parameters
    ----------
    epsilon : float
        Bound on the log ratio of the probabilities of any result; positive.

    Privacy
    -------
    ``P(S) <= exp(epsilon) Q(S)`` for all neighbors and sets of results S; read at a smaller epsilon it
    costs the delta of randomized response, which is tight.

    Reference
    ---------
    Dwork, McSherry, Nissim and Smith 2006. ``docs/explanation/theorems/composition.md``.

    Examples
    --------
    >>> PureDP(1.0).epsilon_at(0.0)
    1.0
    >>> PureDP(0.5, unit="household").unit
    'household'
    """

    kind: ClassVar[str] = "pure-dp"
    epsilon: float = field(kw_only=False)

    def __post_init__(self) -> None:
        self._check_common()
        check_positive(self, "epsilon")

    def _ideal_delta(self, epsilon: float) -> float:
        return pure_delta(self.epsilon, epsilon)

    def _ideal_epsilon(self, delta: float) -> float:
        # By bisection: what is compared is the delta as rounded up, so that no error of an inverse matters.
        return least_epsilon(lambda x: pure_delta(self.epsilon, x) <= delta, self.epsilon)

    def _extend_to_group(self, m: int) -> Self:
        return dataclasses.replace(self, epsilon=group_epsilon(self.epsilon, m))

    def sentence(self) -> str:
        """Say the promise in plain language."""
        return (
            f"{self._difference()} multiplies the probability of any result by at most "
            f"{format_factor(self.epsilon)} (epsilon {_up(self.epsilon)}).{self._about()}"
        )

    def __str__(self) -> str:
        return f"epsilon = {_up(self.epsilon)} ({self.neighbors}, {self.unit})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ApproxDP(Promise):
    """Approximate differential privacy at one point.

    Parameters
    ----------
    epsilon : float
        Bound on the log ratio of probabilities that holds up to delta; positive.
    delta : float
        Additive slack on the probability of a result; in (0, 1).

    Privacy
    -------
    ``P(S) <= exp(epsilon) Q(S) + delta``. One point says nothing at a smaller delta. At a smaller
    epsilon the worst mechanism gives all away with probability delta and is randomized response
    otherwise.

    Reference
    ---------
    Dwork, Kenthapadi, McSherry, Mironov and Naor 2006; Kairouz, Oh and Viswanath 2015.
    ``docs/explanation/theorems/composition.md``.

    Examples
    --------
    >>> print(ApproxDP(1, 1e-6))
    epsilon = 1, delta = 1e-06 (replace-one, person)
    """

    kind: ClassVar[str] = "approx-dp"
    epsilon: float = field(kw_only=False)
    delta: float = field(kw_only=False)

    def __post_init__(self) -> None:
        self._check_common()
        check_positive(self, "epsilon")
        check_positive(self, "delta", below=1.0)

    def _ideal_delta(self, epsilon: float) -> float:
        rest = (1 - exact(self.delta)) * exact(pure_delta(self.epsilon, epsilon))
        return float_up(exact(self.delta) + rest)

    def _ideal_epsilon(self, delta: float) -> float:
        if delta < self.delta:
            raise PromiseError(
                f"delta must be at least {self.delta:g} to read this ApproxDP, was {delta:g} once "
                "the sampler's total variation is taken off: one point of the privacy curve says "
                "nothing at a smaller delta. Ask for GaussianDP or ZCDP, which have a whole curve."
            )
        return least_epsilon(lambda x: self._ideal_delta(x) <= delta, self.epsilon)

    def _extend_to_group(self, m: int) -> Self:
        # The delta of a group grows by exp(m epsilon), so it may reach 1 where epsilon is large.
        delta = group_delta(self.epsilon, self.delta, m)
        if delta >= 1:
            raise PromiseError(
                f"ApproxDP(epsilon={self.epsilon:g}, delta={self.delta:g}) promises nothing to a "
                f"group of {m}: its delta would reach 1. Ask for a smaller delta or epsilon."
            )
        return dataclasses.replace(self, epsilon=group_epsilon(self.epsilon, m), delta=delta)

    def sentence(self) -> str:
        """Say the promise in plain language."""
        return (
            f"{self._difference()} multiplies the probability of any result by at most "
            f"{format_factor(self.epsilon)} and adds at most {_up(self.delta)} "
            f"(epsilon {_up(self.epsilon)}, delta {_up(self.delta)}).{self._about()}"
        )

    def __str__(self) -> str:
        return f"epsilon = {_up(self.epsilon)}, delta = {_up(self.delta)} ({self.neighbors}, {self.unit})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ZCDP(Promise):
    """Zero-concentrated differential privacy.

    Parameters
    ----------
    rho : float
        Bound on the Renyi divergence per unit of its order; positive.

    Privacy
    -------
    The Renyi divergence of order alpha between neighbors is at most ``rho alpha`` for every
    alpha > 1.

    Reference
    ---------
    Bun and Steinke 2016; read as (epsilon, delta) by Canonne, Kamath and Steinke 2020, corollary 13.
    ``docs/explanation/theorems/composition.md``.

    Examples
    --------
    >>> f"{ZCDP(0.01).epsilon_at(1e-6):.3f}"
    '0.622'
    """

    kind: ClassVar[str] = "zcdp"
    rho: float = field(kw_only=False)

    def __post_init__(self) -> None:
        self._check_common()
        check_positive(self, "rho")

    def _ideal_delta(self, epsilon: float) -> float:
        return zcdp_delta(self.rho, epsilon)

    def _ideal_epsilon(self, delta: float) -> float:
        return _read_at_positive_delta(self, delta, lambda: zcdp_epsilon(self.rho, delta))

    def _extend_to_group(self, m: int) -> Self:
        return dataclasses.replace(self, rho=group_rho(self.rho, m))

    def sentence(self) -> str:
        """Say the promise in plain language."""
        return (
            f"{self._difference()} moves the results by a Renyi divergence of at most "
            f"{_up(self.rho)} times its order (rho {_up(self.rho)}).{self._about()}"
        )

    def __str__(self) -> str:
        return f"rho = {_up(self.rho)} ({self.neighbors}, {self.unit})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class GaussianDP(Promise):
    """Gaussian differential privacy: the exact promise of Gaussian noise.

    Parameters
    ----------
    mu : float
        L2 sensitivity over the noise's standard deviation; positive.

    Privacy
    -------
    Telling neighbors apart is at least as hard as telling N(0, 1) from N(mu, 1) by one draw.

    Reference
    ---------
    Dong, Roth and Su 2022; the curve is Balle and Wang 2018, theorem 8.
    ``docs/explanation/theorems/composition.md``.

    Examples
    --------
    >>> f"{GaussianDP(0.5).epsilon_at(1e-6):.3f}"
    '2.254'
    """

    kind: ClassVar[str] = "gaussian-dp"
    mu: float = field(kw_only=False)

    def __post_init__(self) -> None:
        self._check_common()
        check_positive(self, "mu")

    def _ideal_delta(self, epsilon: float) -> float:
        return gaussian_delta(epsilon, self.mu)

    def _ideal_epsilon(self, delta: float) -> float:
        return _read_at_positive_delta(self, delta, lambda: gaussian_epsilon(self.mu, delta))

    def _extend_to_group(self, m: int) -> Self:
        return dataclasses.replace(self, mu=group_mu(self.mu, m))

    def sentence(self) -> str:
        """Say the promise in plain language."""
        return (
            f"{self._difference()} is at least as hard to notice as a shift of {_up(self.mu)} standard "
            f"deviations in one Gaussian draw (mu {_up(self.mu)}).{self._about()}"
        )

    def __str__(self) -> str:
        return f"mu = {_up(self.mu)} ({self.neighbors}, {self.unit})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NoPromise(Promise):
    """Explicit absence of a promise, with its reason.

    Parameters
    ----------
    reason : str
        Reason why nothing is promised, as a sentence for the reader of the statement.

    Privacy
    -------
    None. It is a value, so that a ledger can record it and no total can forget it.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.

    Examples
    --------
    >>> print(NoPromise("the rows are made up"))
    no promise (the rows are made up)
    """

    kind: ClassVar[str] = "no-promise"
    reason: str = field(kw_only=False)

    def __post_init__(self) -> None:
        self._check_common()
        if not isinstance(self.reason, str) or not self.reason.strip():
            raise ParameterError(
                f"reason of NoPromise must be a sentence, got {self.reason!r}. Say what leaves unprotected."
            )

    def _extend_to_group(self, m: int) -> Self:
        return self

    def sentence(self) -> str:
        """Say that there is no promise, and why."""
        return f"No privacy is promised: {self.reason}"

    def __str__(self) -> str:
        return f"no promise ({self.reason})"


_KINDS: dict[str, type[Promise]] = {
    kind.kind: kind for kind in (PureDP, ApproxDP, ZCDP, GaussianDP, PosteriorOdds, ErrorFloor, NoPromise)
}


def promise_from_dict(values: Mapping[str, Any]) -> Promise:
    """Return the promise that :meth:`Promise.to_dict` wrote; unknown kinds and keys are errors."""
    rest = dict(values)
    tag = rest.pop("kind", None)
    kind = _KINDS.get(tag) if isinstance(tag, str) else None
    if kind is None:
        raise ParameterError(
            f"kind of a promise must be one of {', '.join(_KINDS)}, got {tag!r}. "
            "It may have been written by a newer version."
        )
    known = {item.name for item in dataclasses.fields(kind)}
    if kind is ErrorFloor:
        known = known - {"entries"} | {"columns"}
    _check_known_keys(kind.__name__, rest, known)
    for name in ("covers", "assumes", "unpublished"):
        if isinstance(rest.get(name), list):
            rest[name] = tuple(rest[name])
    try:
        if kind is not ErrorFloor:
            return kind(**rest)
        floors = {}
        inner = {item.name for item in dataclasses.fields(ColumnFloor)}
        for name, floor in dict(rest.pop("columns")).items():
            _check_known_keys("ColumnFloor", floor, inner)
            floors[name] = ColumnFloor(**floor)
        return ErrorFloor(floors, **rest)
    except (TypeError, KeyError) as error:
        raise ParameterError(
            f"values of {kind.__name__} must hold all of its numbers, and do not ({error}). "
            "Write them with to_dict()."
        ) from error


PROMISE_NAMES = {
    "pure-dp": "pure differential privacy",
    "approx-dp": "approximate differential privacy",
    "zcdp": "concentrated differential privacy",
    "gaussian-dp": "Gaussian differential privacy",
    "posterior-odds": "a bound on posterior odds",
    "error-floor": "error floors",
    "no-promise": "no promise",
}
"""Name of each kind of promise in a table."""


def describe_promise(values: Mapping[str, Any]) -> str:
    """Return a promise as one line of text; floors, which may be many, by their number."""
    promise = promise_from_dict(values)
    match promise:
        case PureDP():
            return f"ε = {number(promise.epsilon, rounding='up')}"
        case ApproxDP():
            epsilon, delta = (number(x, rounding="up") for x in (promise.epsilon, promise.delta))
            return f"ε = {epsilon}, δ = {delta}"
        case GaussianDP():
            return f"μ = {number(promise.mu, rounding='up')}"
        case ZCDP():
            return f"ρ = {number(promise.rho, rounding='up')}"
        case PosteriorOdds():
            epsilon, delta = (number(x, rounding="up") for x in (promise.epsilon, promise.delta))
            return f"log-odds {epsilon}, δ = {delta}, {count_noun(promise.queries, 'question')}"
        case ErrorFloor():
            return f"floors for {count_noun(len(promise.columns), 'column')}"
        case NoPromise():
            return f"nothing: {printable(promise.reason)}"
    return printable(str(promise))


def check_relation(limit: Promise, cost: Spending) -> None:
    """Refuse a charge whose unit, neighbors or columns are not those of the limit."""
    for name in ("unit", "neighbors"):
        expected, actual = getattr(limit, name), getattr(cost, name)
        if actual is not None and actual != expected:
            raise PromiseError(
                f"{name} of the charge must be the limit's, {expected!r}, got {actual!r}. "
                "Different relations between tables are never added up: keep one ledger for each. "
                f"On the command line, create it with --{name} {actual}."
            )
    wanted = limit.covers
    if cost.covers is None or wanted is None or isinstance(limit, ErrorFloor):
        return
    if not set(wanted) <= set(cost.covers):
        raise PromiseError(
            f"covers of the charge must include what the limit covers, {', '.join(wanted)}, got "
            f"{', '.join(cost.covers)}. Protect the rest too, or open the ledger with a limit "
            "whose covers=(...) names the columns that every charge protects."
        )


def _read_at_positive_delta(promise: Promise, delta: float, read: Callable[[], float]) -> float:
    """Return ``read()``; raise PromiseError at delta 0, where the curve has no finite epsilon."""
    if delta == 0:
        raise PromiseError(
            f"delta must be positive to read {type(promise).__name__} as an epsilon, was 0: "
            "Gaussian noise has no finite epsilon at delta 0. Ask at a delta such as 1e-6."
        )
    return read()


def _up(cost: float) -> str:
    return plain_number(cost, rounding="up")


def _check_known_keys(owner: str, values: Mapping[str, Any], known: set[str]) -> None:
    unknown = sorted(set(values) - known)
    if unknown:
        raise ParameterError(
            f"keys of {owner} must be among {', '.join(sorted(known))}, got {', '.join(unknown)}. "
            "It may have been written by a newer version."
        )
