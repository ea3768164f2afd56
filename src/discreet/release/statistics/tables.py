"""Statistics with intervals from the noisy tables of counts of a synthetic release.

What no table holds is bounded, and its value is read from the made-up rows of the release.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.privacy import ApproxDP
from discreet.query.curation import Curation
from discreet.query.intervals import LEVEL, NoisyRatio, ResultInterval, count_intervals, interval_width
from discreet.query.language import GroupKey
from discreet.query.language.cell_masks import (
    condition_columns,
    join_conditions,
    subject_columns,
)
from discreet.query.language.lexer import write_name
from discreet.query.language.query import build_query
from discreet.query.result_cells import ResultCell, ResultColumn
from discreet.query.text_query import preview_query
from discreet.release.statistics._estimates import (
    GroupCounts,
    MeanSums,
    bound_count,
    bound_mean,
    correlate,
    find_fine,
    sum_column,
)
from discreet.release.statistics._published_counts import ColumnCounts, CountEstimate, PublishedCounts
from discreet.release.statistics._request import (
    StatisticRequest,
    cell_edges,
    check_number,
    read_request,
)
from discreet.release.statistics.interface import ReleaseStatistics, StatisticResult

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.query.language import Expression
    from discreet.release.statistics.interface import Basis, By
    from discreet.schema import Schema


_EXAMPLE_EPSILON, _EXAMPLE_DELTA = 0.1, 1e-6  # at which the cost of a query is given


class ModelRows:
    """Rows that stand for the model: what they say has no interval.

    Parameters
    ----------
    rows : mapping of str to array
        Encoded columns by name: codes of levels, numbers with NaN where missing, days since the first.
    curation : Curation
        Layout of the curated table.
    """

    def __init__(self, rows: Mapping[str, AnyArray], curation: Curation) -> None:
        self._rows, self._curation = rows, curation
        self.size = len(next(iter(rows.values())))
        arrays: dict[str, AnyArray] = {"": np.zeros(self.size, np.int64)}
        for column in curation.columns:
            encoded = column.encode(rows[column.name])
            arrays[column.name] = encoded[column.exact]
            if column.flag is not None:
                arrays[f"{column.name}_missing"] = encoded[column.flag]
        self._arrays = arrays

    def chosen(self, where: Expression | None) -> AnyArray:
        """Return which rows fulfill a condition."""
        if where is None or where.is_constant:
            return np.full(self.size, where is None or where.lower > 0)
        return where.evaluate(self._arrays) > 0

    def share(self, where: Expression | None) -> float:
        """Return the share of rows that fulfill a condition."""
        return float(self.chosen(where).mean())

    def numbers(self, name: str) -> Floats:
        """Return a column as numbers, NaN where it is missing."""
        column = self._curation.column(name)
        cells = np.asarray(self._rows[name])
        if not column.is_category:
            return cells.astype(np.float64)
        levels = [float(x) if isinstance(x, int) else np.nan for x in column.levels]
        return np.array(levels)[cells.astype(np.int64)]

    def mean(self, subject: Expression, where: Expression | None) -> float:
        """Return the mean of a condition or of a column over the rows that fulfill another condition."""
        chosen = self.chosen(where)
        if not chosen.any():
            return float("nan")
        if subject.is_condition:
            return float(self.chosen(subject)[chosen].mean())
        (name,) = subject_columns(subject)
        return float(np.nanmean(self.numbers(name)[chosen]))

    def correlation(self, first: str, second: str) -> float:
        """Return the correlation of two columns over rows in which both are known."""
        one, other = self.numbers(first), self.numbers(second)
        known = ~np.isnan(one) & ~np.isnan(other)
        if known.sum() < 2 or not one[known].std() or not other[known].std():
            return float("nan")
        return float(np.corrcoef(one[known], other[known])[0, 1])


@dataclass(frozen=True, eq=False)
class _Numbers:
    """Numbers of all groups: values, standard deviations where there are any, and intervals."""

    values: Floats
    sds: Floats | None
    lower: Floats
    upper: Floats
    basis: Basis = "tables"
    tables: int = 0


class TableStatistics(ReleaseStatistics):
    """Counts, proportions, means, cross tables and correlations from the tables of a synthetic release.

    Parameters
    ----------
    tables : mapping
        Content of ``tables.json``, as ``SyntheticRelease.tables_`` has it.
    rows : callable, optional
        Function that returns the made-up rows, encoded: columns by name, codes of levels, days since the
        first. They give the value where no table holds it; None refuses to answer there.

    Privacy
    -------
    Computed from published counts alone: free.

    Notes
    -----
    A count is the mean over all tables that have its columns, weighted by precision. Its interval is about
    the exact count of the rows that the release was made of; how these stand for a population is another
    matter. Of a mean, the values inside a cell are unknown: the interval goes from all of them at the lower
    ends of their cells to all at the upper ends, with the noise of both. Fine counts make cells narrow.

    Reference
    ---------
    docs/explanation/theorems/synthetic.md.

    Examples
    --------
    >>> from discreet import ApproxDP, Column, Schema
    >>> from discreet.release.synthetic import SyntheticRelease
    >>> columns = [Column("old", values=(0, 1)), Column("ill", values=(0, 1), role="target")]
    >>> promise = ApproxDP(epsilon=1, delta=1e-6)
    >>> method = SyntheticRelease(promise, schema=Schema(columns=columns), random_state=1)
    >>> made = method.release({"old": [0, 1, 1, 1] * 250, "ill": [0, 1, 1, 0] * 250})
    >>> result = TableStatistics(method.tables_).count("old = 1 AND ill = 1")
    >>> result.interval().lower < 500 < result.interval().upper, result.cost
    (True, ())
    """

    def __init__(
        self, tables: Mapping[str, Any], *, rows: Callable[[], Mapping[str, AnyArray]] | None = None
    ) -> None:
        self._counts = PublishedCounts.from_dict(tables)
        self._curation = Curation.from_schema(self._counts.schema)
        self._rows = rows
        self._model: ModelRows | None = None
        self._columns: dict[str, ColumnCounts | None] = {}

    def _answer(self, kind: str, columns: tuple[str, ...], where: str | None, by: By) -> StatisticResult:
        """Return a statistic, from the tables that hold it, from bounds, or from the model."""
        if kind == "correlation":
            return self._correlate(*columns)
        request = read_request(self._counts, kind, columns, where, by)
        find = {"count": self._count, "proportion": self._proportion, "mean": self._mean}[kind]
        numbers = find(request) or self._approximate(request)
        return self._build(request, numbers)

    def _column_counts(self, name: str) -> ColumnCounts | None:
        if name not in self._columns:
            self._columns[name] = ColumnCounts.from_tables(self._counts, name)
        return self._columns[name]

    def _count(self, request: StatisticRequest) -> _Numbers | None:
        """Return counts that tables hold; None where they hold none."""
        found = self._counts.estimate(request.where, request.axes)
        found = self._count_finely(request.where, found) if not request.axes else found
        if found is None:
            return None
        sds = np.sqrt(found.variances)
        ends = count_intervals(found.values, sds, self._counts.law, LEVEL, self._most)
        return _Numbers(found.values, sds, *ends, tables=found.tables)

    def _count_finely(self, where: Expression | None, found: CountEstimate | None) -> CountEstimate | None:
        """Return the count of a condition on one column that cuts its cells, but not its fine ones."""
        names = () if where is None else condition_columns(where)
        counts = self._column_counts(names[0]) if len(names) == 1 else None
        if counts is None or not counts.table.is_fine:
            return found
        inside, touched = counts.table.mask(where)
        if not np.array_equal(inside, touched):
            return found
        chosen = inside.astype(np.float64)
        value, variance = chosen @ counts.values, chosen @ counts.covariance @ chosen
        if found is not None and float(found.variances[0]) <= variance:
            return found
        tables = sum(table.holds(names) for table in self._counts.tables)
        return CountEstimate(np.array([value]), np.array([max(variance, 0.0)]), tables)

    @property
    def _most(self) -> float:
        return math.inf if self._counts.n_rows is None else float(self._counts.n_rows)

    def _proportion(self, request: StatisticRequest) -> _Numbers | None:
        """Return shares of rows; None where no table holds both parts."""
        assert request.subject is not None
        schema, text = self._counts.schema, request.subject.canonical
        chosen = [] if request.where is None else [request.where.canonical]
        parts = [join_conditions([*chosen, one], schema) for one in (text, f"NOT ({text})")]
        if request.where is None and not request.axes and self._counts.n_rows:
            counted = self._count(StatisticRequest("count", build_query("count", text, (), schema), (), ()))
            return None if counted is None else _divide(counted, self._counts.n_rows)
        one, rest = (self._counts.estimate(part, request.axes, use_total=False) for part in parts)
        if one is None or rest is None:
            return None
        ratio = NoisyRatio(
            one.values,
            one.values + rest.values,
            one.variances,
            one.variances,
            one.variances + rest.variances,
        )
        return self._divide_sums(MeanSums(ratio, ratio, ratio), ResultInterval(0.0, 1.0), 0.0, one.tables)

    def _mean(self, request: StatisticRequest) -> _Numbers | None:
        """Return means; None where no table holds column, condition and groups together."""
        subject = request.subject
        assert subject is not None
        (name,) = subject_columns(subject)
        bounds = ResultInterval(subject.lower, subject.upper)
        own = self._column_counts(name)
        shift = bounds.lower / 2 + bounds.upper / 2
        if own is not None and request.columns() == (name,) and not request.axes:
            inside, touched = own.table.mask(request.where)
            if np.array_equal(inside, touched):
                tables = sum(table.holds([name]) for table in self._counts.tables)
                return self._divide_sums(sum_column(own, inside, shift), bounds, shift, tables)
        axis = self._counts.axis(name, set(request.columns()) - {name})
        if axis is None:
            return None
        found = self._counts.estimate(request.where, (*request.axes, axis), use_total=False)
        if found is None:
            return None
        shape = (len(request.labels), len(axis.labels))
        values, variances = found.values.reshape(shape), found.variances.reshape(shape)
        fine = find_fine(self._counts.tables, name)
        counts = GroupCounts(axis, values, variances, own, fine, interval_width(self._counts.law))
        return self._divide_sums(counts.sums(shift), bounds, shift, found.tables)

    def _divide_sums(self, sums: MeanSums, bounds: ResultInterval, shift: float, tables: int) -> _Numbers:
        """Return quotients between the lower end of one set and the upper end of another, within bounds."""
        width, middle = interval_width(self._counts.law), sums.middle
        lower = np.clip(sums.lower.ends(width)[0] + shift, *bounds)
        upper = np.clip(sums.upper.ends(width)[1] + shift, *bounds)
        lower, upper = np.minimum(lower, upper), np.maximum(lower, upper)
        least = width * np.sqrt(middle.below_variance)
        # A count within its margin is taken as that, which moves the quotient to the middle.
        divisor = np.where(middle.below > least, middle.below, np.where(least > 0, least, np.nan))
        values = np.clip(middle.above / divisor + shift, lower, upper)
        return _Numbers(values, None, lower, upper, tables=tables)

    def _approximate(self, request: StatisticRequest) -> _Numbers:
        """Return values of the model: with bounds for counts, and for shares of all rows; or without any."""
        n_rows, rows = self._counts.n_rows, self._read_model()
        if rows is None:
            raise self._unknown(request)
        whole = request.kind == "proportion" and request.where is None and not request.axes and bool(n_rows)
        if request.kind == "count" or whole:
            more = () if request.subject is None else (request.subject.canonical,)
            conditions = [request.group_condition(label, *more) for label in request.labels]
            ends = np.array(
                [(0.0, self._most) if c is None else bound_count(self._counts, c) for c in conditions]
            )
            size = rows.size if n_rows is None else n_rows
            values = np.array([rows.share(one) * size for one in conditions])
            lower, upper = ends.T
            basis: Basis = "bounds" if np.any(ends != (0.0, self._most)) else "model"
            numbers = _Numbers(np.clip(values, lower, upper), None, lower, upper, basis=basis)
            return _divide(numbers, n_rows or 1) if whole else numbers
        bounds, subject = self._bounds(request), request.subject
        assert subject is not None
        conditions = [request.group_condition(label) for label in request.labels]
        means = np.array([rows.mean(subject, one) for one in conditions])
        found = [
            bounds if one is None else bound_mean(self._counts, subject, one) or bounds for one in conditions
        ]
        lower, upper = np.clip(np.array(found).T, *bounds)
        basis = "model" if all(end == bounds for end in found) else "bounds"
        return _Numbers(np.clip(means, lower, upper), None, lower, upper, basis=basis)

    def _read_model(self) -> ModelRows | None:
        """Return the made-up rows, read once; None where there are none."""
        if self._model is None and self._rows is not None:
            self._model = ModelRows(self._rows(), self._curation)
        return self._model

    def _unknown(self, request: StatisticRequest) -> ParameterError:
        return ParameterError(
            f"{request.query} must be something that the tables hold, and is not: {self._reason(request)} "
            f"{self._query_words(request)} With the rows of the release the model's value is returned."
        )

    def _bounds(self, request: StatisticRequest) -> ResultInterval:
        if request.kind == "count":
            return ResultInterval(0.0, self._most)
        subject = request.subject
        assert subject is not None
        return (
            ResultInterval(0.0, 1.0) if subject.is_condition else ResultInterval(subject.lower, subject.upper)
        )

    def _reason(self, request: StatisticRequest) -> str:
        """Return which columns were not counted together, or that a condition cuts cells."""
        names = request.columns()
        apart = [
            pair
            for pair in itertools.combinations(names, 2)
            if not any(table.holds(pair) for table in self._counts.tables)
        ]
        if apart:
            return f"{apart[0][0]} and {apart[0][1]} were not counted together."
        if len(names) == 1 and self._counts.axis(names[0]) is None:
            return f"{names[0]} was not counted, for it has one cell alone."
        if not any(table.holds(names) for table in self._counts.tables):
            return f"{', '.join(names[:-1])} and {names[-1]} were not counted together."
        cut = [axis for name in names if (axis := self._counts.axis(name)) and axis.starts]
        begins = [
            f"those of {axis.column.name} begin at "
            + ", ".join(
                GroupKey(axis.column.name)
                .label((end, math.inf), self._counts.schema)
                .removesuffix(" or more")
                .removeprefix("from ")
                for end in cell_edges(axis)
            )
            for axis in cut
        ]
        return f"A condition cuts cells: {'; '.join(begins)}."

    def _query_words(self, request: StatisticRequest) -> str:
        """Return what asking the statistic as a query would give at a small cost."""
        schema = self._counts.schema
        promise = ApproxDP(
            epsilon=_EXAMPLE_EPSILON, delta=_EXAMPLE_DELTA, unit=schema.unit, neighbors=schema.neighbors
        )
        preview = preview_query(schema, self._counts.n_rows, request.query, privacy=promise)
        return (
            f"Asked as a query for epsilon {_EXAMPLE_EPSILON:g} at delta {_EXAMPLE_DELTA:g}, it "
            f"{preview.margin_words}."
        )

    def _build(self, request: StatisticRequest, numbers: _Numbers) -> StatisticResult:
        """Return the result that shows numbers of groups."""
        statistic = request.query.statistics[0]
        schema = self._counts.schema
        column = ResultColumn(
            request.query.names[0], statistic.measure, self._bounds(request), statistic.first_day
        )
        names = [
            [_label_cell(key, label, schema) for label in axis.labels]
            for key, axis in zip(request.keys, request.axes, strict=True)
        ]
        return StatisticResult(
            question=str(request.query),
            columns=(column,),
            group_by=tuple(key.name for key in request.keys),
            cells=_cells(list(itertools.product(*names)), numbers),
            law=self._counts.law,
            cost=(),
            basis=numbers.basis,
            notes=self._notes(request, numbers),
        )

    def _notes(self, request: StatisticRequest, numbers: _Numbers) -> tuple[str, ...]:
        """Return sentences about what the numbers stand on."""
        if numbers.basis == "tables":
            exact = numbers.sds is not None and not numbers.sds.any()
            if exact:
                return ()
            tables = "1 published table" if numbers.tables == 1 else f"{numbers.tables} published tables"
            inside = " and the unknown values inside cells" if self._has_wide_cells(request) else ""
            return (f"From {tables}; intervals are for the noise{inside}, about the rows of the release.",)
        reason, query = self._reason(request), self._query_words(request)
        if numbers.basis == "bounds":
            return (f"{reason} The value is from the model, the interval from what was counted.", query)
        return (f"{reason} The value is from the model, and nothing bounds its error.", query)

    def _has_wide_cells(self, request: StatisticRequest) -> bool:
        """Whether a mean is of a column whose cells hold more than one value."""
        if request.kind != "mean" or request.subject is None:
            return False
        axes = map(self._counts.axis, subject_columns(request.subject))
        return any(axis is None or bool(axis.starts) for axis in axes)

    def _correlate(self, first: str, second: str) -> StatisticResult:
        """Return the correlation of two columns, with an interval where they were counted together."""
        for name in (first, second):
            check_number(self._counts.schema, name)
        if first == second:
            raise ParameterError(f"columns of a correlation must be two, and {first!r} was given twice.")
        counts = [self._column_counts(name) for name in (first, second)]
        found = None
        if counts[0] is not None and counts[1] is not None:
            found = correlate(self._counts, (counts[0], counts[1]))
        question = f"correlation({write_name(first)}, {write_name(second)})"
        bounds = ResultInterval(-1.0, 1.0)
        basis: Basis = "tables"
        notes: tuple[str, ...] = (
            "The interval is for noise and the unknown values inside cells, about the rows of the release.",
        )
        if found is None:
            reason = f"{first} and {second} were not counted together."
            rows = self._read_model()
            if rows is None:
                raise ParameterError(
                    f"{question} must be something that the tables hold, and is not: {reason}"
                )
            value = rows.correlation(first, second)
            found, basis = (value, *bounds), "model"
            notes = (f"{reason} The value is from the model, and nothing bounds its error.",)
        value, lower, upper = found
        return StatisticResult(
            question=question,
            columns=(ResultColumn(question, None, bounds),),
            group_by=(),
            cells=(ResultCell(key=(), value=_known(value), sd=None, lower=lower, upper=upper),),
            law=self._counts.law,
            cost=(),
            basis=basis,
            notes=notes,
        )


def _divide(numbers: _Numbers, by: float) -> _Numbers:
    sds = None if numbers.sds is None else numbers.sds / by
    parts = (numbers.values / by, sds, numbers.lower / by, numbers.upper / by)
    return _Numbers(*parts, basis=numbers.basis, tables=numbers.tables)


def _label_cell(key: GroupKey, label: Any, schema: Schema) -> str:
    """Return the name of a cell of a column; of levels that share one, their number."""
    column = schema.column(str(key.column))
    if isinstance(label, tuple) and column.is_category:
        return key.label(label[0], schema) if len(label) == 1 else f"{len(label)} rare levels"
    if isinstance(label, tuple) and column.type == "integer":
        low, high = max(label[0], column.range[0]), min(label[1] - 1, column.range[1])
        return str(int(low)) if low == high else key.label(label, schema)
    if isinstance(label, tuple) and column.type == "number":
        short = tuple(float(f"{end:.6g}") for end in label)
        # Cells are cut by noisy counts at numbers of 17 digits, of which a reader needs the first.
        return key.label(short if short[0] < short[1] else label, schema)
    return key.label(label, schema)


def _cells(keys: Sequence[tuple[str, ...]], numbers: _Numbers) -> tuple[ResultCell, ...]:
    sds: Sequence[float | None] = [None] * len(keys) if numbers.sds is None else numbers.sds.tolist()
    parts = zip(
        keys, numbers.values.tolist(), sds, numbers.lower.tolist(), numbers.upper.tolist(), strict=True
    )
    return tuple(
        ResultCell(key=key, value=_known(value), sd=sd, lower=lower, upper=upper)
        for key, value, sd, lower, upper in parts
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
