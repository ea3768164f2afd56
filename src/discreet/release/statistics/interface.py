"""Statistics of a published release: one interface, whatever was published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from discreet.errors import ParameterError
from discreet.query.intervals import LEVEL, ResultInterval, count_intervals
from discreet.query.results import QueryResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Basis: TypeAlias = Literal["tables", "bounds", "model", "rows"]
By: TypeAlias = "str | Sequence[str | Mapping[str, Any]] | None"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StatisticResult(QueryResult):
    """Statistic of a published release, with an interval for the number that the true rows have.

    Attributes
    ----------
    basis : {"tables", "bounds", "model", "rows"}
        What the numbers come from: noisy counts that hold the answer; counts that only bound it, with the
        value of the model; the model alone, which has no interval; or published rows with noise.
    notes : tuple of str
        Sentences about the numbers: what they stand on, and what a query would cost instead.

    Privacy
    -------
    Computed from what was published: free.

    Reference
    ---------
    docs/explanation/theorems/synthetic.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.noise_law import ColumnLaw, GaussianLaw, NoiseLaw
    >>> from discreet.release.statistics import RowStatistics
    >>> law = NoiseLaw(columns=[ColumnLaw(name="age", lower=0, upper=100, law=GaussianLaw(variance=400.0))])
    >>> result = RowStatistics(law, lambda: {"age": np.linspace(0, 100, 1001)}).mean("age")
    >>> result.interval().lower < result.value < result.interval().upper, result.cost
    (True, ())
    """

    basis: Basis
    notes: tuple[str, ...] = ()

    def interval(self, level: float = LEVEL) -> ResultInterval:
        """Return the interval that holds the exact number of a result that is one number.

        Parameters
        ----------
        level : float
            Probability with which it holds the number; another than 0.95 for a count from tables alone.
        """
        single = self._single
        counted = self.columns[0].name == "count" and self.basis == "tables"
        if single is None or level == LEVEL or single.value is None or single.sd is None or not counted:
            # The zero-argument form does not work in a class with slots.
            return QueryResult.interval(self, level)
        if not 0 < level < 1:
            raise ParameterError(f"level of interval must be between 0 and 1, was {level!r}.")
        most = self.columns[0].bounds.upper
        ends = count_intervals(np.asarray(single.value), np.asarray(single.sd), self.law, level, most)
        return ResultInterval(*map(float, ends))

    @property
    def value_words(self) -> list[str]:
        """Sentences about how the numbers came about and which of them not to use."""
        unreadable = self.unreadable_words if self.basis in ("tables", "rows") else None
        return [*self.notes, *filter(None, (unreadable,))]


class ReleaseStatistics(ABC):
    """Statistics of a published release, with intervals for what the true rows have.

    Conditions are those of queries: ``occupation = 'Sales' AND age >= 30``, with AND, OR, NOT, IN, BETWEEN
    and IS NULL. All of it is computed from what was published, and costs nothing.

    Examples
    --------
    >>> from discreet import Column, Schema, load_release, publish
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
    >>> rows = {"age": [20, 35, 50, 65] * 250}
    >>> done = publish(rows, schema=schema, protect={"age": 14}, ledger=False, out="made")
    >>> isinstance(load_release(done.public), ReleaseStatistics)
    True
    """

    @abstractmethod
    def _answer(self, kind: str, columns: tuple[str, ...], where: str | None, by: By) -> StatisticResult:
        """Return a statistic: "count", "mean", "proportion" or "correlation" of some columns."""

    def count(self, where: str | None = None, *, by: By = None) -> StatisticResult:
        """Return the number of rows that fulfill a condition, with an interval.

        Parameters
        ----------
        where : str, optional
            Condition on rows; None for all of them.
        by : str or sequence, optional
            Columns to group by, as of a query: ``"sex, age (30, 45)"``. None for one number.
        """
        return self._answer("count", (), where, by)

    def proportion(self, condition: str, *, where: str | None = None, by: By = None) -> StatisticResult:
        """Return the share of rows that fulfill a condition, among those for which it is known.

        Parameters
        ----------
        condition : str
            Condition whose share is wanted, such as ``income = '>50K'``.
        where : str, optional
            Condition on the rows that are looked at; None for all of them.
        by : str or sequence, optional
            Columns to group by, as of a query; None for one number.
        """
        return self._answer("proportion", (condition,), where, by)

    def mean(self, column: str, *, where: str | None = None, by: By = None) -> StatisticResult:
        """Return the mean of a column over rows in which it is known, with an interval.

        Parameters
        ----------
        column : str
            Column of numbers or dates that is averaged.
        where : str, optional
            Condition on rows; None for all of them.
        by : str or sequence, optional
            Columns to group by, as of a query; None for one number.
        """
        return self._answer("mean", (column,), where, by)

    def crosstab(self, first: str, second: str, *, where: str | None = None) -> StatisticResult:
        """Return the number of rows for each pair of values of two columns, each with an interval.

        Parameters
        ----------
        first, second : str
            Columns whose values are combined.
        where : str, optional
            Condition on rows; None for all of them.
        """
        return self._answer("count", (), where, (first, second))

    def correlation(self, first: str, second: str) -> StatisticResult:
        """Return the correlation of two columns of numbers, with an interval.

        Parameters
        ----------
        first, second : str
            Columns of numbers or dates, over rows in which both are known.
        """
        return self._answer("correlation", (first, second), None, None)
