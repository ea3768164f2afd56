"""From the statistics of a query to the one aggregate that answers it, and from its noisy sums to numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from discreet.query.aggregates._hierarchy import HierarchicalHistogram, count_nodes
from discreet.query.aggregates._joint import GroupedSums, JointAggregate
from discreet.query.aggregates._people import DistinctUnits
from discreet.query.aggregates.base import Sums
from discreet.query.aggregates.histogram import Histogram, bind_keys
from discreet.query.curation import Curation
from discreet.query.intervals import (
    NoisySum,
    ResultInterval,
    interval_width,
    mean_intervals,
    ratio_intervals,
    simultaneous_level,
    sum_intervals,
    variance_intervals,
)
from discreet.query.language import parse
from discreet.query.language._expression import parse_where
from discreet.query.language._statistic import SPREADS
from discreet.query.quantiles import estimate_quantiles, expected_rank_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats
    from discreet.query.aggregates._hierarchy import BoundHierarchy
    from discreet.query.aggregates.base import Aggregate
    from discreet.query.calibration import Law
    from discreet.query.language import Expression
    from discreet.query.language._statistic import QueryStatistic
    from discreet.query.language.query import Query


class StatisticValues(NamedTuple):
    """Numbers of one statistic, one for each group, with their standard deviations and intervals.

    The standard deviation is NaN for a quotient of noisy sums, which has none.
    """

    values: Floats
    sds: Floats
    lower: Floats
    upper: Floats


class PlanPart(NamedTuple):
    """One aggregate of a plan.

    Attributes
    ----------
    aggregate : Aggregate
        Sums, a count of units, or a tree of counts.
    sums : int
        Number of its sums in each group, by which it shares the promise: 1 for a tree.
    tree : BoundHierarchy or None
        Tree of counts on its table, whose nodes each have a count; None for sums.
    """

    aggregate: Aggregate
    sums: int
    tree: BoundHierarchy | None

    @classmethod
    def from_aggregate(cls, aggregate: Aggregate, sums: int, curation: Curation) -> PlanPart:
        """Return the part of an aggregate; a tree is bound, for its shape follows from the schema alone."""
        tree = None
        if isinstance(aggregate, HierarchicalHistogram):
            tree = aggregate.bind(curation, curation.schema.neighbors)
        return cls(aggregate, sums, tree)

    @property
    def nodes(self) -> int:
        """Number of nodes of the tree; 1 for sums."""
        return 1 if self.tree is None else self.tree.tree.nodes


@dataclass(frozen=True, slots=True, eq=False)
class AggregatePlan:
    """The aggregate of a query, and where the sums of each statistic are in its answer.

    Attributes
    ----------
    query : Query
        Parsed query that is answered.
    n_rows : int or None
        Number of rows where it is public; None where it is not.
    parts : tuple of PlanPart
        Sums, counts of units and trees of counts that the statistics need.
    labels : tuple
        Levels along each group key; empty without groups.
    entries : tuple of tuple of int
        For each statistic, the index of its part, then those of its sums in the part.
    """

    query: Query
    n_rows: int | None
    parts: tuple[PlanPart, ...]
    labels: tuple[tuple[Any, ...], ...]
    entries: tuple[tuple[int, ...], ...]

    @property
    def aggregate(self) -> Aggregate:
        """Aggregate that is charged and answered: one for all statistics."""
        if len(self.parts) == 1:
            return self.parts[0].aggregate
        return JointAggregate([part.aggregate for part in self.parts], [part.sums for part in self.parts])

    @property
    def sums(self) -> int:
        """Number of sums, or trees, of each group, which have equal shares of the promise."""
        return sum(part.sums for part in self.parts)

    @property
    def n_groups(self) -> int:
        """Number of groups; 1 without groups."""
        return math.prod(len(axis) for axis in self.labels)

    @property
    def simultaneous(self) -> int:
        """Number of groups among which noisy numbers choose those that are returned; 1 if they do not."""
        limit = self.query.limit
        return self.n_groups if self.query.is_selective and limit and limit < self.n_groups else 1

    @property
    def level(self) -> float:
        """Level of each interval: higher if the noisy numbers decide which of the groups are returned."""
        return simultaneous_level(self.simultaneous)

    def split(self, values: Floats) -> list[Floats]:
        """Return the numbers of an answer by parts: an axis for their sums, or nodes, and one for groups."""
        numbers = np.ravel(values)
        if len(self.parts) == 1:
            parts = [numbers]
        else:
            ends = np.cumsum([part.sums * part.nodes * self.n_groups for part in self.parts])[:-1]
            parts = np.split(numbers, ends)
        return [
            numbers.reshape(self.n_groups, part.nodes).T if part.tree else numbers.reshape(part.sums, -1)
            for part, numbers in zip(self.parts, parts, strict=True)
        ]

    def count_sd(self, sds: Floats) -> float | None:
        """Return the standard deviation of the counts that statistics are over; None if none is.

        Parameters
        ----------
        sds : array
            Standard deviations of the answer to the aggregate.
        """
        for statistic, (part, *entry) in zip(self.query.statistics, self.entries, strict=True):
            if statistic.kind in ("count", "distinct") or (
                len(entry) > 1 and statistic.kind in ("mean", *SPREADS)
            ):
                return float(self.split(sds)[part][entry[-1]][0])
        return None

    def combine(self, values: Floats, sds: Floats, law: Law) -> list[StatisticValues]:
        """Return the numbers of each statistic from the noisy sums of the aggregate.

        Parameters
        ----------
        values, sds : array
            Noisy sums as the aggregate is answered, and their standard deviations.
        law : {"gaussian", "laplace"}
            Distribution of the noise; "laplace" if any part has it.
        """
        parts = list(zip(self.split(values), self.split(sds), strict=True))
        combined = []
        for statistic, (index, *entry) in zip(self.query.statistics, self.entries, strict=True):
            part, (value, sd) = self.parts[index], parts[index]
            if part.tree is None:
                sums = [NoisySum(value[i], sd[i]) for i in entry]
                combined.append(self._combine_one(statistic, sums, law))
            else:
                combined.append(self._combine_quantile(statistic, part.tree, NoisySum(value.T, sd.T), law))
        return combined

    def _combine_quantile(
        self, statistic: QueryStatistic, tree: BoundHierarchy, counts: NoisySum, law: Law
    ) -> StatisticValues:
        """Return a quantile of every group from the noisy counts of its tree."""
        assert statistic.level is not None
        found = estimate_quantiles(
            tree, counts.value, counts.sd, law, [statistic.level], level=self.level, n_rows=self.n_rows
        )
        value, lower, upper = (np.ravel(array) for array in found)
        return StatisticValues(value, np.full(self.n_groups, np.nan), lower, upper)

    def _combine_one(self, statistic: QueryStatistic, sums: list[NoisySum], law: Law) -> StatisticValues:
        """Return the numbers of one statistic from its sums."""
        bounds, width = self.possible_values(statistic), interval_width(law, self.level)
        unknown = np.full(self.n_groups, np.nan)
        if statistic.kind in ("count", "distinct", "sum"):
            return StatisticValues(*sums[0], *sum_intervals(*sums[0], width, bounds))
        if statistic.kind == "ratio":
            above, below = sums
            assert statistic.denominator is not None
            sign = -1.0 if statistic.denominator.upper <= 0 else 1.0
            found = ratio_intervals(sign * above.value, above.sd, sign * below.value, below.sd, width, bounds)
            return StatisticValues(found[0], unknown, *found[1:])
        if statistic.kind == "mean":
            if len(sums) == 1:
                divisor = self.n_rows or 1
                value, sd = sums[0].value / divisor, sums[0].sd / divisor
                return StatisticValues(np.clip(value, *bounds), sd, *sum_intervals(value, sd, width, bounds))
            found = mean_intervals(*sums[0], *sums[1], width, bounds)
            return StatisticValues(found[0], unknown, *found[1:])
        return StatisticValues(*self._combine_spread(statistic, sums, law, bounds))

    def _combine_spread(
        self, statistic: QueryStatistic, sums: list[NoisySum], law: Law, bounds: ResultInterval
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return variances or standard deviations; those of a sample are divided by one row less."""
        assert statistic.expression is not None
        half = (statistic.expression.upper - statistic.expression.lower) / 2
        exact = NoisySum(np.full_like(sums[0].value, self.n_rows or 0), np.zeros_like(sums[0].value))
        displacements, squares, counts = (*sums, exact)[:3]
        of_sample, error = statistic.kind in ("variance", "stddev"), 1 - self.level
        # Of a noisy count, an eleventh of the error goes to its own interval.
        spare = error / 11 if of_sample and np.any(counts.sd) else 0.0
        value, lower, upper = variance_intervals(
            displacements, squares, counts, half, law, 1 - (error - spare)
        )
        if of_sample:
            margin = interval_width(law, 1 - spare) * counts.sd if spare else 0.0
            value = value * _sample_factor(counts.value)
            lower = lower * _sample_factor(counts.value + margin)
            upper = upper * _sample_factor(counts.value - margin)
        if statistic.kind in ("stddev", "stddev_pop"):
            value, lower, upper = np.sqrt(value), np.sqrt(lower), np.sqrt(upper)
        unknown = np.full_like(value, np.nan)
        return np.minimum(value, bounds.upper), unknown, lower, np.minimum(upper, bounds.upper)

    def expected_rank_margin(self, i: int, sds: Floats, law: Law) -> float | None:
        """Return by how many rows the rank of a quantile may be off; None for other statistics.

        Parameters
        ----------
        i : int
            Index of the statistic.
        sds : array
            Standard deviations of the answer to the aggregate.
        law : {"gaussian", "laplace"}
            Distribution of the noise.
        """
        statistic, (part, *_) = self.query.statistics[i], self.entries[i]
        tree = self.parts[part].tree
        if tree is None or statistic.level is None:
            return None
        error = expected_rank_error(tree, self.split(sds)[part], statistic.level, n_rows=self.n_rows)
        return error * interval_width(law, self.level)

    def expected_spread_margin(
        self, statistic: QueryStatistic, sds: Sequence[float], n_rows: float, law: Law
    ) -> float:
        """Return half the width of the interval of a spread, for values spread evenly over their range.

        Parameters
        ----------
        statistic : QueryStatistic
            Variance or standard deviation of the query.
        sds : sequence of float
            Standard deviations of its sums.
        n_rows : float
            Number of rows that it is over.
        law : {"gaussian", "laplace"}
            Distribution of the noise.
        """
        assert statistic.expression is not None
        half = (statistic.expression.upper - statistic.expression.lower) / 2
        exact = (0.0, n_rows * half * half * (1 / 3 - 1 / 2), n_rows)
        sums = [NoisySum(np.array([value]), np.array([sd])) for value, sd in zip(exact, sds, strict=False)]
        *_, lower, upper = self._combine_spread(statistic, sums, law, self.possible_values(statistic))
        return float(upper[0] / 2 - lower[0] / 2)

    def possible_values(self, statistic: QueryStatistic) -> ResultInterval:
        """Return the least and the largest number that a statistic can have, by what is declared and public.

        Parameters
        ----------
        statistic : QueryStatistic
            Statistic of the query whose number is bounded.

        Privacy
        -------
        Follows from the schema and the public number of rows.
        """
        most = math.inf if self.n_rows is None else float(self.n_rows)
        if statistic.expression is None:
            return ResultInterval(0.0, most)
        lower, upper = statistic.expression.lower, statistic.expression.upper
        if statistic.kind in ("mean", "quantile"):
            return ResultInterval(lower, upper)
        if statistic.kind in SPREADS:
            # Of two rows at the ends of the range the sample variance is largest.
            largest = (upper - lower) ** 2 / (2 if statistic.kind in ("variance", "stddev") else 4)
            return ResultInterval(0.0, math.sqrt(largest) if "stddev" in statistic.kind else largest)
        if statistic.kind == "ratio":
            assert statistic.denominator is not None
            signs = (lower < 0, upper > 0)
            below, above = signs[::-1] if statistic.denominator.upper <= 0 else signs
            return ResultInterval(-math.inf if below else 0.0, math.inf if above else 0.0)
        outside = self.query.where is not None or self.query.by or statistic.expression.known is not None
        if outside or self.n_rows is None:
            # A row outside the group, and one whose value is unknown, adds nothing.
            lower, upper = min(lower, 0.0), max(upper, 0.0)
        return ResultInterval(lower * most if lower else 0.0, upper * most if upper else 0.0)


def _sample_factor(counts: Floats) -> Floats:
    """Return ``n / (n - 1)``, which makes a sample variance of a population variance; of 2 rows at least."""
    rows = np.maximum(counts, 2.0)
    factor: Floats = rows / (rows - 1.0)
    return factor


def plan_query(query: Query, n_rows: int | None) -> AggregatePlan:
    """Return the aggregate of a query and how its statistics follow from the noisy sums.

    Parameters
    ----------
    query : Query
        Parsed query that is planned.
    n_rows : int or None
        Number of rows where it is public; None where it is not.

    Privacy
    -------
    One aggregate answers all statistics, with one charge. Its sums get equal shares of the promise; a sum
    that several statistics need is there once.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    columns, edges = (
        [key.axis for key in query.by],
        {key.axis: key.edges for key in query.by if key.edges},
    )
    curation = Curation.from_schema(query.schema)
    labels = bind_keys(curation, columns, edges)[1] if columns else ()
    # Sums first, whichever statistic needs them; counts of units and trees after them, each once.
    sums: dict[str | None, Any] = {}
    others: dict[tuple[str, str | None], Aggregate] = {}
    needs: list[tuple[tuple[str, str | None], list[Any]]] = []
    key: tuple[str, str | None]
    for statistic in query.statistics:
        rows = _rows(query, statistic)
        if statistic.kind == "distinct":
            key = ("distinct", None)
            others.setdefault(key, DistinctUnits(columns, edges, rows))
            needs.append((key, [0]))
        elif statistic.kind == "quantile":
            assert statistic.expression is not None
            key = (statistic.expression.canonical, _canonical(rows))
            others.setdefault(key, HierarchicalHistogram(statistic.expression, columns, edges, rows))
            needs.append((key, []))
        else:
            needed = [_canonical(one) for one in _add_sums(sums, _statistic_sums(query, statistic, n_rows))]
            needs.append((_SUMS, [list(sums).index(one) for one in needed]))
    aggregates = dict(others)
    if sums:
        aggregates = {_SUMS: _sum_aggregate(list(sums.values()), columns, edges, query.where), **others}
    parts = tuple(
        PlanPart.from_aggregate(aggregate, len(sums) if key == _SUMS else 1, curation)
        for key, aggregate in aggregates.items()
    )
    entries = tuple((list(aggregates).index(key), *indices) for key, indices in needs)
    return AggregatePlan(query, n_rows, parts, labels, entries)


def count_tree_nodes(query: Query, curation: Curation) -> int:
    """Return how many counts the quantiles of a query need in one group, from the schema alone."""
    trees = {
        (one.expression.canonical, _canonical(_rows(query, one))): count_nodes(one.expression, curation)
        for one in query.statistics
        if one.kind == "quantile" and one.expression is not None
    }
    return sum(trees.values())


_SUMS = ("sums", None)


def _add_sums(sums: dict[str | None, Any], needed: list[Any]) -> list[Any]:
    """Add expressions to those that are summed, unless they are there, and return them."""
    for one in needed:
        sums.setdefault(_canonical(one), one)
    return needed


def _sum_aggregate(
    sums: list[Any],
    columns: Sequence[str],
    edges: Mapping[str, Sequence[float]],
    where: Expression | None,
) -> Aggregate:
    """Return the aggregate of some sums over chosen rows, by groups if there are columns; None counts."""
    if len(sums) > 1 and (columns or where is not None):
        return GroupedSums(columns, edges, sums, where)
    if where is not None:
        sums = [_among(where, sums[0])]
    if columns:
        return Histogram(columns, edges, sums[0])
    return Sums(["TRUE" if one is None else one for one in sums])


def counted_groups(query: Query) -> Histogram | None:
    """Return the count of rows by groups that a mean by groups is over; None for other queries."""
    (statistic,) = query.statistics if len(query.statistics) == 1 else (None,)
    if statistic is None or statistic.kind != "mean" or not query.by:
        return None
    edges = {key.axis: key.edges for key in query.by if key.edges}
    return Histogram([key.axis for key in query.by], edges, _rows(query, statistic))


def _statistic_sums(query: Query, statistic: QueryStatistic, n_rows: int | None) -> list[Any]:
    """Return the expressions whose sums over the rows of WHERE give a statistic; None counts these rows."""
    rows = None if statistic.known is None else parse_where(statistic.known, query.schema)
    exact_count = rows is None and query.where is None and not query.by and bool(n_rows)
    match statistic.kind:
        case "count":
            return [rows]
        case "sum":
            assert statistic.expression is not None
            return [statistic.expression]
        case "ratio":
            assert statistic.expression is not None
            assert statistic.denominator is not None
            return [statistic.expression, statistic.denominator]
        case "mean":
            assert statistic.expression is not None
            if exact_count:
                return [statistic.expression]
            return [_displacement(statistic, rows), rows]
    moments = [_displacement(statistic, rows), _squared_displacement(statistic, rows)]
    return moments if exact_count else [*moments, rows]


def _canonical(expression: Expression | str | None) -> str | None:
    """Return the text by which equal sums are recognized."""
    return expression if expression is None or isinstance(expression, str) else expression.canonical


def _rows(query: Query, statistic: QueryStatistic) -> Expression | None:
    """Return the condition on the rows of a statistic; None for all rows."""
    if statistic.known is None:
        return query.where
    if query.where is None:
        return parse_where(statistic.known, query.schema)
    return parse_where(f"{statistic.known} AND {query.where.canonical}", query.schema)


def _among(where: Expression, expression: Expression | None) -> Expression:
    """Return the expression whose sum over all rows is that over the rows of a condition; None counts."""
    if expression is None:
        return where
    if expression.is_condition:
        return parse(f"({where.canonical}) AND ({expression.canonical})", where.schema)
    return parse(_zero_outside(expression.canonical, where), where.schema)


def _zero_outside(text: str, rows: Expression | None) -> str:
    """Return the text of an expression that is 0 outside some rows."""
    return text if rows is None else f"CASE WHEN {rows.canonical} THEN {text} ELSE 0 END"


def middle_of_range(expression: Expression) -> float:
    """Return the middle of an expression's range: about it, one row moves a sum the least."""
    return expression.lower / 2 + expression.upper / 2


def _displacement_text(expression: Expression) -> str:
    """Return the text of an expression less the middle of its range."""
    text, middle = expression.canonical, middle_of_range(expression)
    if expression.is_condition:
        text = f"CASE WHEN {text} THEN 1 ELSE 0 END"
    return f"({text}) - ({middle!r})" if middle else text


def _displacement(statistic: QueryStatistic, rows: Expression | None) -> Expression:
    """Return the averaged expression less the middle of its range, 0 outside the rows."""
    assert statistic.expression is not None
    return parse(_zero_outside(_displacement_text(statistic.expression), rows), statistic.expression.schema)


def _squared_displacement(statistic: QueryStatistic, rows: Expression | None) -> Expression:
    """Return the square of the displacement less half of the largest, 0 outside the rows.

    Less half of it a row moves the sum by half as much, and the count of rows that it is added back with is
    part of the same answer.
    """
    expression = statistic.expression
    assert expression is not None
    half = (expression.upper - expression.lower) / 2
    square = f"POWER({_displacement_text(expression)}, 2) - ({half * half / 2!r})"
    return parse(_zero_outside(square, rows), expression.schema)
