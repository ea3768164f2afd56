"""Statistical queries answered by noisy sums, with their tolerance, failure probability and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from discreet.errors import ParameterError
from discreet.learn.arguments import is_number
from discreet.privacy import GaussianDP
from discreet.privacy.rounding import sqrt_up
from discreet.query import Sums
from discreet.query.language import parse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.query import Answer, NoisySums

_ROUNDING = 2.0**-16
"""Largest step of the lattice, in standard deviations of noise; rounding moves an answer by half a step."""


def repetitions(variance: float, tolerance: float, n_rows: int, failure: float) -> int:
    """Return the number of noisy sums whose average gives a mean within ``tolerance``.

    Parameters
    ----------
    variance : float
        Variance of the noise on one sum.
    tolerance : float
        Largest error of the mean, in the unit of the expression.
    n_rows : int
        Public number of rows.
    failure : float
        Probability of a larger error, between 0 and 1.

    Notes
    -----
    ``2 variance log(2 / failure) / (tolerance n_rows)^2``, rounded up. Corrects section 4.5 of the paper,
    which has ``variance / (tolerance * n_rows**2)``. One answer of ``1 / t`` times the variance costs the
    same as ``t`` answers, and is what :class:`StatisticalQueries` queries.

    Reference
    ---------
    docs/explanation/theorems/sulq-3.md.

    Examples
    --------
    >>> repetitions(1e6, 0.01, 10_000, 1e-3)
    1521
    """
    return math.ceil(2 * variance * math.log(2 / failure) / (tolerance * n_rows) ** 2)


def sufficient_budget(variance: float, tolerances: Sequence[float], n_rows: int, failure: float) -> int:
    """Return a sufficient number of answers for queries of these tolerances: theorem 3, corrected.

    All tolerances hold at once with probability ``1 - failure``.

    Notes
    -----
    ``q + 2 variance log(2 q / failure) / n_rows^2 sum(1 / tolerance^2)`` for ``q`` queries, rounded up.

    Reference
    ---------
    docs/explanation/theorems/sulq-3.md.
    """
    q = len(tolerances)
    spread = math.fsum(1 / tolerance**2 for tolerance in tolerances)
    return math.ceil(q + 2 * variance * math.log(2 * q / failure) / n_rows**2 * spread)


def rows_for_population(tolerance: float, failure: float) -> int:
    """Return the number of independent rows whose mean of [0, 1] values is within ``tolerance`` of the truth.

    Notes
    -----
    ``log(2 / failure) / (2 tolerance^2)``, rounded up.

    Reference
    ---------
    Hoeffding's inequality; the paper leaves it out: docs/explanation/theorems/sulq-3.md.

    Examples
    --------
    >>> rows_for_population(0.01, 1e-3)
    38005
    """
    return math.ceil(math.log(2 / failure) / (2 * tolerance**2))


def deviation_for(tolerance: float, failure: float) -> float:
    """Return the standard deviation of noise that exceeds ``tolerance`` with probability ``failure``.

    The Gaussian quantile itself; ``tolerance / sqrt(2 ln(2 / failure))`` is a little less.
    """
    # Rounding to the lattice takes its part of the tolerance.
    return tolerance / (-float(special.ndtri(failure / 2)) + _ROUNDING)


@dataclass(frozen=True, kw_only=True)
class Statistic:
    """The answer to one statistical query.

    Attributes
    ----------
    value : float
        Noisy mean of the expression.
    tolerance, failure : float
        Largest error of the mean over the table, and the probability, over the noise, of a larger one.
    table : (float, float)
        Interval for the table's mean.
    population : (float, float)
        Interval for the mean of the population, if rows were drawn from it independently: wider by
        ``sampling_tolerance``, and wrong with probability of at most ``failure + sampling_failure``.
    sampling_tolerance, sampling_failure : float
        Largest distance of the table's mean from the population's by Hoeffding's inequality, and the
        probability of a larger one.
    cost : tuple of GaussianDP
        Promises that were charged for the query.
    answer : Answer
        Noisy sum that the mean was computed from.

    Privacy
    -------
    All of it follows from the noisy sum and public facts.

    Reference
    ---------
    docs/explanation/theorems/sulq-3.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import Column, Database, Schema
    >>> from discreet.learn import StatisticalQueries
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99)])
    >>> with Database({"age": np.arange(20000) % 100}, schema=schema, random_state=1) as db:
    ...     found = StatisticalQueries(db, queries=4, failure=1e-3).stat("age >= 50", tolerance=0.01)
    >>> found.table[0] < 0.5 < found.table[1]
    True
    """

    value: float
    tolerance: float
    failure: float
    table: tuple[float, float]
    population: tuple[float, float]
    sampling_tolerance: float
    sampling_failure: float
    cost: tuple[Any, ...]
    answer: Answer


class StatisticalQueries:
    """The statistical-query oracle STAT(p, tau) of a private table.

    Parameters
    ----------
    sums : NoisySums
        Database or rows in memory, with a public number of rows.
    queries : int
        Largest number of queries, at least 1.
    failure : float
        Probability that any answer misses its tolerance, between 0 and 1.
    sampling_failure : float
        Probability that any table mean is further from the population's than stated, between 0 and 1.
    owner : str, optional
        Name that is charged beside the total of the ledger; None charges the total alone.

    Attributes
    ----------
    statistics : list of Statistic
        Answers given so far, in order.

    Privacy
    -------
    A query with values in [lo, hi] and tolerance ``tau`` is one noisy sum of standard deviation
    ``tau n / z``, ``z`` the Gaussian quantile for ``failure / queries``: it is ``(hi - lo) z / (tau n)``-GDP,
    and queries add up by squares. A tolerance decides the noise, so it must not be chosen by looking at rows.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005), theorem 3, which has tau for tau squared, no failure
    probability, and does not tell the table's mean from the population's:
    docs/explanation/theorems/sulq-3.md.

    Examples
    --------
    >>> from discreet import Column, Schema
    >>> from discreet.query import Database
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99)])
    >>> with Database({"age": np.arange(20000) % 100}, schema=schema, random_state=1) as sums:
    ...     oracle = StatisticalQueries(sums, queries=4, failure=1e-3)
    ...     found = oracle.stat("age >= 50", tolerance=0.01)
    >>> abs(found.value - 0.5) <= 0.01, round(found.cost[0].mu, 4)
    (True, 0.0183)
    """

    def __init__(
        self,
        sums: NoisySums,
        *,
        queries: int,
        failure: float = 1e-3,
        sampling_failure: float = 1e-3,
        owner: str | None = None,
    ) -> None:
        """Check the parameters; nothing is charged yet.

        Raises
        ------
        ParameterError
            If a parameter is outside its range, or the number of rows is not public.
        """
        if not (isinstance(queries, int) and not isinstance(queries, bool) and queries >= 1):
            raise ParameterError(
                f"queries of StatisticalQueries must be a whole number above 0, was {queries!r}."
            )
        for name, value in (("failure", failure), ("sampling_failure", sampling_failure)):
            if not (is_number(value) and 0 < value < 1):
                raise ParameterError(
                    f"{name} of StatisticalQueries must be between 0 and 1, was {value!r}. It is the "
                    "probability that an answer is further off than is said."
                )
        n_rows = sums.n_rows
        if not n_rows:
            raise ParameterError(
                "sums of StatisticalQueries must have a public number of rows above 0, and has not. Ask for "
                "Sums((expression, 'TRUE')) and divide."
            )
        self.sums = sums
        self.queries = queries
        self.failure = float(failure)
        self.sampling_failure = float(sampling_failure)
        self.statistics: list[Statistic] = []
        self._n_rows = n_rows
        self._owner = owner

    def stat(self, expression: Any, *, tolerance: float) -> Statistic:
        """Return the mean of an expression within ``tolerance``, and charge for it.

        Parameters
        ----------
        expression : str or Expression
            Condition, whose mean is the share of rows for which it is true, or any scalar expression over
            the declared columns that is known for every row.
        tolerance : float
            Largest error of the mean, in the expression's own unit.
        """
        if len(self.statistics) >= self.queries:
            raise ParameterError(
                f"queries of StatisticalQueries must cover all that is asked, was {self.queries}, and all "
                "are used up. The failure probability was shared among them: begin with more."
            )
        parsed = parse(expression, self.sums.schema) if isinstance(expression, str) else expression
        if parsed.known is not None and not parsed.is_condition:
            raise ParameterError(
                "expression of StatisticalQueries.stat must be known for every row, and may be missing in "
                "some. Write COALESCE(x, 0), or ask the database for the mean where it is known."
            )
        sd = self._sd(tolerance)
        answer = self.sums.ask(Sums((parsed,)), variance=sd * sd, owner=self._owner)
        width = float(parsed.upper) - float(parsed.lower)
        # Hoeffding's inequality; the union bound over all queries splits the failure probability.
        sampling_tolerance = width * math.sqrt(
            math.log(2 * self.queries / self.sampling_failure) / (2 * self._n_rows)
        )
        value = float(np.asarray(answer.value)[0]) / self._n_rows
        tolerance = float(tolerance)
        total_tolerance = tolerance + sampling_tolerance
        statistic = Statistic(
            value=value,
            tolerance=tolerance,
            failure=self.failure / self.queries,
            table=(value - tolerance, value + tolerance),
            population=(value - total_tolerance, value + total_tolerance),
            sampling_tolerance=sampling_tolerance,
            sampling_failure=self.sampling_failure / self.queries,
            cost=answer.cost,
            answer=answer,
        )
        self.statistics.append(statistic)
        return statistic

    def cost(self, tolerances: Sequence[float], *, width: float = 1.0) -> GaussianDP:
        """Return the total cost of queries of these tolerances, with values in a range of this width."""
        # A cost must not be understated: squares are added exactly and rounded up once.
        squared = sum(
            (Fraction(float(width)) / Fraction(self._sd(tolerance))) ** 2 for tolerance in tolerances
        )
        schema = self.sums.schema
        rows = schema.max_rows_per_unit or 1
        mu = sqrt_up(Fraction(rows) ** 2 * squared)
        return GaussianDP(mu=mu, unit=schema.unit, neighbors=self.sums.neighbors)

    def tolerance(self, privacy: GaussianDP, *, width: float = 1.0) -> float:
        """Return the tolerance of all queries if they share a promise evenly."""
        rows = self.sums.schema.max_rows_per_unit or 1
        # Squares of mu add up: an equal share is mu over the root of the number of queries.
        sd = rows * width * math.sqrt(self.queries) / privacy.mu
        return sd * (-float(special.ndtri(self.failure / (2 * self.queries))) + _ROUNDING) / self._n_rows

    def _sd(self, tolerance: float) -> float:
        """Return the standard deviation of noise on a sum that keeps a tolerance of its mean."""
        if not (is_number(tolerance) and tolerance > 0):
            raise ParameterError(
                f"tolerance of StatisticalQueries must be a number above 0, was {tolerance!r}."
            )
        # The union bound: each query has an equal part of the failure probability.
        return self._n_rows * deviation_for(float(tolerance), self.failure / self.queries)
