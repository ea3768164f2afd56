"""The promise of the SuLQ paper, (epsilon, delta, T), with its theorems as printed and as corrected.

Blum, Dwork, McSherry and Nissim (2005) add noise of variance R to each of T sums of a function with values in
[0, 1], and promise that the log-odds of any belief about a row rise by more than epsilon with probability at
most delta. This module has the R of their theorems and the R that is needed. The charge for a query is always
the exact cost of the noise that was added, whichever theorem chose it; as the limit of a ledger the same
three numbers are a promise about everything that is charged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

from discreet.errors import ParameterError, PromiseError
from discreet.formatting import format_factor, plain_number
from discreet.privacy._base import Promise, check_positive
from discreet.privacy.calibration._gaussian import gaussian_mu
from discreet.privacy.calibration._pure import pure_delta
from discreet.privacy.calibration._zcdp import odds_rho, zcdp_rho
from discreet.privacy.rounding import exact, float_down, float_up, root_down

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

Theorem: TypeAlias = Literal[
    "corrected", "theorem 1", "theorem 4", "theorem 5", "dp exact", "dp concentrated"
]


def theorem_1_variance(epsilon: float, delta: float, queries: int) -> float:
    """Return ``8 T log(T / delta)**2 / epsilon**2``, the variance of theorem 1 as printed.

    Parameters
    ----------
    epsilon, delta : float
        Bound on the rise of the log-odds, and probability with which it may be exceeded.
    queries : int
        Number T of queries that share the budget; at least 1.

    Privacy
    -------
    Not a guarantee: false where epsilon or delta is large, and 50 to 200 times too much elsewhere.

    Reference
    ---------
    docs/explanation/theorems/sulq-1.md.
    """
    _check_arguments("theorem_1_variance", epsilon, delta, queries)
    return 8 * queries * math.log(queries / delta) ** 2 / epsilon**2


def theorem_4_variance(epsilon: float, delta: float, queries: int) -> float:
    """Return the variance of theorem 4 with half of delta for each of its two failures.

    Parameters
    ----------
    epsilon, delta, queries
        As for :func:`theorem_1_variance`.

    Privacy
    -------
    Holds, though a step of its proof does not, and is far too much.

    Reference
    ---------
    docs/explanation/theorems/sulq-4.md.
    """
    _check_arguments("theorem_4_variance", epsilon, delta, queries)
    # The proof fails in two ways, each with half of delta.
    half = delta / 2
    spread = math.sqrt(2 * math.log(2 / half))
    first = 8 * math.log(2 / half) * math.log(queries / half) * queries / epsilon**2
    return first + (2 * spread * math.sqrt(queries) + queries) / epsilon


def theorem_5_scale(epsilon: float, queries: int) -> float:
    """Return ``T / epsilon``, the scale of the Laplace noise of theorem 5; its variance is ``2 scale**2``.

    Parameters
    ----------
    epsilon, queries
        As for :func:`theorem_1_variance`; delta is 0.

    Privacy
    -------
    Pure differential privacy, and the same bound on log-odds.

    Reference
    ---------
    The density is ``exp(-abs(x) / R) / (2 R)``: docs/explanation/theorems/sulq-5.md.
    """
    # Theorem 5 has no delta; any valid one passes the common check.
    _check_arguments("theorem_5_scale", epsilon, 0.5, queries)
    return queries / epsilon


def odds_variance(epsilon: float, delta: float, queries: int) -> float:
    """Return the variance that the corrected theorem needs: ``T / (2 rho)``.

    Parameters
    ----------
    epsilon, delta, queries
        As for :func:`theorem_1_variance`.

    Privacy
    -------
    ``rho + 2 sqrt(rho log(1 / delta)) = epsilon`` bounds the rise of log-odds for every prior on the row,
    every predicate, and questions chosen after seeing answers, for continuous Gaussian noise; rounded to a
    lattice, for two-point priors, and on average over rows drawn from the prior.

    Reference
    ---------
    docs/explanation/theorems/sulq-odds.md.
    """
    _check_arguments("odds_variance", epsilon, delta, queries)
    # Each answer costs rho = 1 / (2 v), and T of them add up to the rho of the budget.
    return queries / (2 * odds_rho(epsilon, delta))


def dp_variance(epsilon: float, delta: float, queries: int) -> float:
    """Return the variance that makes T answers together exactly (epsilon, delta)-differentially private.

    Parameters
    ----------
    epsilon, delta, queries
        As for :func:`theorem_1_variance`.

    Privacy
    -------
    Weaker than the promise about log-odds.

    Reference
    ---------
    docs/explanation/theorems/analytic-gaussian.md.
    """
    _check_arguments("dp_variance", epsilon, delta, queries)
    # T answers of variance v about a sum of sensitivity 1 have mu = sqrt(T / v) together.
    return queries / gaussian_mu(epsilon, delta) ** 2


def concentrated_variance(epsilon: float, delta: float, queries: int) -> float:
    """Return :func:`dp_variance` derived through zero-concentrated differential privacy, about 15 % more.

    Parameters
    ----------
    epsilon, delta, queries
        As for :func:`theorem_1_variance`.

    Privacy
    -------
    As :func:`dp_variance`.

    Reference
    ---------
    docs/explanation/theorems/zcdp.md.
    """
    _check_arguments("concentrated_variance", epsilon, delta, queries)
    return queries / (2 * zcdp_rho(epsilon, delta))


_VARIANCES: dict[str, Callable[[float, float, int], float]] = {
    "theorem 1": theorem_1_variance,
    "theorem 4": theorem_4_variance,
    "theorem 5": lambda epsilon, _, queries: 2 * theorem_5_scale(epsilon, queries) ** 2,
    "corrected": odds_variance,
    "dp exact": dp_variance,
    "dp concentrated": concentrated_variance,
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PosteriorOdds(Promise):
    """Budget of the SuLQ paper: over T queries no log-odds rise by more than epsilon, except with delta.

    As ``privacy`` of a query it gives that query one T-th; as ``limit`` of a ledger or a service it admits
    T queries and no more.

    Parameters
    ----------
    epsilon, delta : float
        Bound on the rise of the log-odds, and probability with which it may be exceeded.
    queries : int
        Number T of queries that share the budget; at least 1.
    theorem : {"corrected", "theorem 1", "theorem 4", "theorem 5", "dp exact", "dp concentrated"}
        Theorem that determines the variance of the noise.

    Privacy
    -------
    Each answer costs what its noise costs, exactly, and carries :meth:`comparison`. Only "corrected" and
    "theorem 5" promise what the paper promises at every epsilon and delta, so only they can be limits. A
    query is a charge: a vector of sums counts once, because its noise covers all of them together, and a
    free repeat does not count. The promise implies (epsilon, delta)-differential privacy.

    Reference
    ---------
    docs/explanation/theorems/sulq-odds.md, sulq-1.md, sulq-4.md, sulq-5.md.

    Examples
    --------
    >>> budget = PosteriorOdds(epsilon=1.0, delta=1e-6, queries=100)
    >>> {name: round(value) for name, value in budget.comparison().items()}["corrected"]
    2862
    """

    kind: ClassVar[str] = "posterior-odds"
    epsilon: float
    delta: float
    queries: int
    theorem: Theorem = "corrected"

    def __post_init__(self) -> None:
        """Check the numbers, the theorem, and that neighbors are replace-one."""
        self._check_common()
        _check_arguments("PosteriorOdds", self.epsilon, self.delta, self.queries)
        check_positive(self, "epsilon")
        check_positive(self, "delta", below=1.0)
        if self.neighbors != "replace-one":
            raise ParameterError(
                f"neighbors of PosteriorOdds must be 'replace-one', got {self.neighbors!r}: it is about "
                "beliefs on what a row holds, in a table whose length is known. Use ApproxDP or ZCDP."
            )
        if self.theorem not in get_args(Theorem):
            raise ParameterError(
                f"theorem of PosteriorOdds must be one of {', '.join(get_args(Theorem))}, was "
                f"{self.theorem!r}."
            )

    @property
    def variance(self) -> float:
        """Variance of the noise on one sum of a function with values in [0, 1]."""
        return _VARIANCES[self.theorem](self.epsilon, self.delta, self.queries)

    @property
    def pure_share(self) -> float:
        """Pure epsilon that one query may cost by theorem 5: T times it is within the budget."""
        return float_down(exact(self.epsilon) / self.queries)

    @property
    def gaussian_share(self) -> float:
        """Gaussian mu that one query may cost: T times its rho is within the budget."""
        # Straight from rho: by way of the variance a second rounding could pass the budget.
        if self.theorem == "corrected":
            return root_down(2 * exact(odds_rho(self.epsilon, self.delta)) / self.queries)
        return root_down(1 / Fraction(self.variance))

    def comparison(self) -> dict[str, float]:
        """Return the variance that each theorem asks for, by its name."""
        return {
            name: variance(self.epsilon, self.delta, self.queries) for name, variance in _VARIANCES.items()
        }

    def _ideal_delta(self, epsilon: float) -> float:
        # With probability delta the rise has no bound; otherwise it is at most that of a pure epsilon.
        rest = (1 - exact(self.delta)) * exact(pure_delta(self.epsilon, epsilon))
        return float_up(exact(self.delta) + rest)

    def _extend_to_group(self, m: int) -> Self:
        raise PromiseError(
            f"PosteriorOdds is about one {self.unit}, and has no rule for a group of {m}. Declare "
            "max_rows_per_unit, by which noise is added for all rows of a person."
        )

    def sentence(self) -> str:
        """Say the promise in plain language."""
        noun = "question" if self.queries == 1 else "questions"
        epsilon, delta = _up(self.epsilon), _up(self.delta)
        return (
            f"Whatever somebody who knows all others believes about one {self.unit}, {self.queries:,} {noun} "
            f"raise the odds of any statement by more than a factor of {format_factor(self.epsilon)} with "
            f"probability at most {delta} (log-odds {epsilon}, delta {delta}), if beliefs about different "
            f"{self.unit}s are independent; beliefs that weigh more than two values of a row are "
            f"covered on average over the row.{self._about()}"
        )

    def __str__(self) -> str:
        count = "1 question" if self.queries == 1 else f"{self.queries} questions"
        epsilon, delta = _up(self.epsilon), _up(self.delta)
        return f"log-odds = {epsilon}, delta = {delta}, {count} ({self.neighbors}, {self.unit})"


def _up(cost: float) -> str:
    return plain_number(cost, rounding="up")


def _check_arguments(where: str, epsilon: float, delta: float, queries: int) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ParameterError(f"epsilon of {where} must be a number above 0, was {epsilon!r}.")
    if not 0 < delta < 1:
        raise ParameterError(f"delta of {where} must be between 0 and 1, was {delta!r}.")
    if isinstance(queries, bool) or not isinstance(queries, int) or queries < 1:
        raise ParameterError(f"queries of {where} must be a whole number of at least 1, was {queries!r}.")
