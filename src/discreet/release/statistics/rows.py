"""Statistics with intervals from published rows whose noise has a known law."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from discreet.errors import ParameterError
from discreet.noise_law import (
    Additive,
    Clear,
    CorrelatedGaussianLaw,
    JointBoundedLaw,
    JointResponseLaw,
    ResponseLaw,
    SampledLaw,
)
from discreet.query.aggregates.histogram import Axis
from discreet.query.curation import Curation
from discreet.query.intervals import LEVEL, NoisyRatio, ResultInterval, count_intervals, interval_width
from discreet.query.language.cell_masks import (
    condition_columns,
    describe_cell,
    join_conditions,
    mask_cells,
    subject_columns,
)
from discreet.query.language.lexer import write_name
from discreet.query.language.query import build_query
from discreet.query.result_cells import ResultCell, ResultColumn
from discreet.release.statistics._request import write_statistic
from discreet.release.statistics.interface import ReleaseStatistics, StatisticResult
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.noise_law import ColumnLaw, NoiseLaw
    from discreet.query.language import Expression
    from discreet.release.statistics.interface import By

_MOST_COMBINATIONS = 2**20
_LEAST_GAP = 1e-9  # of a randomized response: below it a column says nothing
_MADE_UP = (
    "masked",
    "masked-svm",
    "masked-label",
    "synthetic",
)  # kinds of laws of rows that stand for nobody
_NOTE = "From published rows, corrected for their noise; intervals are about the rows of the release."


class _Weights(NamedTuple):
    """For each published row, unbiased estimates of a function of its true levels and of its square."""

    values: Floats
    squares: Floats


class _Numbers(NamedTuple):
    """Unbiased estimates, row by row, of a column of numbers that may be missing and have added noise.

    Attributes
    ----------
    offsets : array
        Estimates of the true number less :attr:`middle`, and of 0 where it is missing.
    squares : array
        Estimates of the squares of these true offsets; too small where rounding is not known exactly.
    present : array
        Estimates of 1 where the true number is there, and of 0 where it is missing.
    middle : float
        Number in place of a missing one before the noise, from which the offsets are counted.
    variance : float
        Variance of the noise on a number, or a bound on it.
    slack : float
        Bound on what rounding adds to the mean of a number.

    Notes
    -----
    A number is shown with probability ``p`` if it is there and ``1 - p`` if it is missing, in which case the
    noise is added to the middle ``m``. So ``s (y - m) / p`` has the mean ``x - m`` or 0,
    ``s ((y - m)^2 - v) / p`` has ``(x - m)^2`` or 0, and ``(s - 1 + p) / (2 p - 1)`` has 1 or 0, where ``s``
    is 1 if a cell is shown. Rounding to steps of ``g`` moves a cell by at most ``g / 2``: so much more is the
    mean uncertain, and the standard deviation of the noise.
    """

    offsets: Floats
    squares: Floats
    present: Floats
    middle: float
    variance: float
    slack: float

    @classmethod
    def from_cells(cls, cells: Floats, column: ColumnLaw) -> _Numbers:
        """Return the estimates for published cells, NaN where one is missing."""
        law = column.law
        step, mean, variance = 0.0, 0.0, 0.0
        if isinstance(law, Additive):
            step, mean, variance = law.grid or 0.0, law.mean, law.variance
        assert column.lower is not None
        assert column.upper is not None
        middle = column.lower / 2 + column.upper / 2
        shown = ~np.isnan(cells)
        keep = 1.0 if law.missing_keep is None else law.missing_keep
        if column.missing and law.missing_keep is not None:
            # What stands for a missing number before the noise, as Column.fill has it.
            middle = middle if column.type == "number" else math.floor(middle)
        variance = (math.sqrt(variance) + step / 2) ** 2
        offsets = np.where(shown, cells - mean - middle, 0.0)
        present = shown.astype(np.float64) if keep == 1 else (shown - (1 - keep)) / (2 * keep - 1)
        return cls(
            offsets / keep,
            np.where(shown, offsets * offsets - variance, 0.0) / keep,
            present,
            middle,
            variance,
            step / 2,
        )


class RowStatistics(ReleaseStatistics):
    """Counts, proportions, means, cross tables and correlations from rows with noise of a known law.

    Parameters
    ----------
    law : NoiseLaw
        Distribution of each published cell given the true one.
    rows : callable
        Function that returns the published rows: numbers as floats, levels as positions in their lists.

    Privacy
    -------
    Computed from published rows alone: free.

    Notes
    -----
    Levels that were randomized are corrected by the inverse of the matrix of their response, so that each row
    has a weight whose expectation is 1 where the true row fulfills a condition, and else 0. Noise on a number
    with a known mean and variance is independent of it. Variances are estimated without bias.

    Reference
    ---------
    docs/explanation/theorems/synthetic.md.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.noise_law import ColumnLaw, GaussianLaw, NoiseLaw
    >>> law = NoiseLaw(columns=[ColumnLaw(name="age", lower=0, upper=100, law=GaussianLaw(variance=400.0))])
    >>> result = RowStatistics(law, lambda: {"age": np.linspace(0, 100, 1001)}).mean("age")
    >>> round(result.value, 1)
    50.0
    """

    def __init__(self, law: NoiseLaw, rows: Callable[[], Mapping[str, AnyArray]]) -> None:
        self._laws = {column.name: column for column in law.columns}
        self._schema = Schema(columns=[_declare(column) for column in law.columns])
        self._curation = Curation.from_schema(self._schema)
        self._read = rows
        self._rows: Mapping[str, AnyArray] | None = None

    def _answer(self, kind: str, columns: tuple[str, ...], where: str | None, by: By) -> StatisticResult:
        """Return a statistic of published rows; refuses one that their law says nothing about."""
        made_up = next((c for c in self._laws.values() if c.law.kind in _MADE_UP), None)
        if made_up is not None:
            raise ParameterError(
                "A statistic must be about true rows, and those of this release are made up: "
                f"{made_up.law.words()}. Ask a query."
            )
        if self._rows is None:
            self._rows = self._read()
        if kind == "correlation":
            return self._correlate(*columns)
        names = [by] if isinstance(by, str) else list(by or ())
        axes = [self._axis(name) for name in names]
        text = write_statistic(self._schema, kind, columns)
        if kind == "mean" and self._laws[columns[0]].levels is None:
            self._number(columns[0])  # refuses a law that says nothing about it
        query = build_query(text, where, [axis.column.name for axis in axes], self._schema)
        subject = query.statistics[0].expression
        bounds = ResultInterval(0.0, float(self._size))
        if subject is not None:
            bounds = (
                ResultInterval(0.0, 1.0)
                if kind == "proportion"
                else ResultInterval(subject.lower, subject.upper)
            )
        labels = list(itertools.product(*(axis.labels for axis in axes)))
        chosen = [] if query.where is None else [query.where.canonical]
        cells = []
        for label in labels:
            parts = [describe_cell(axis, one, self._schema) for axis, one in zip(axes, label, strict=True)]
            condition = join_conditions([*chosen, *parts], self._schema)
            key = tuple("missing" if one is None else str(one) for one in label)
            numbers = self._count(condition) if subject is None else self._mean(subject, condition, bounds)
            cells.append(ResultCell(key=key, **numbers))
        statistic = query.statistics[0]
        column = ResultColumn(query.names[0], statistic.measure, bounds, statistic.first_day)
        return _result(str(query), column, tuple(axis.column.name for axis in axes), tuple(cells))

    @property
    def _size(self) -> int:
        assert self._rows is not None
        return len(next(iter(self._rows.values())))

    def _axis(self, item: Any) -> Axis:
        """Return the levels of a category to group by."""
        if not isinstance(item, str) or item not in self._laws or self._laws[item].levels is None:
            raise ParameterError(
                f"by of a statistic of rows with noise must name categories, was {item!r}. Bin the column in "
                "the release, or ask a query."
            )
        return Axis.from_curation(self._curation, item, {})

    def _count(self, where: Expression | None) -> dict[str, Any]:
        """Return the number of rows that fulfill a condition."""
        weights = self._weigh(where, None)
        value = float(weights.values.sum())
        sd = math.sqrt(max(float((weights.values**2).sum() - weights.squares.sum()), 0.0))
        sd = sd if sd > 1e-6 * max(value, 1.0) else 0.0  # a clear column has none, but for rounding
        ends = count_intervals(np.array(value), np.array(sd), "gaussian", LEVEL, float(self._size))
        return {"value": value, "sd": sd, "lower": float(ends[0]), "upper": float(ends[1])}

    def _mean(self, subject: Expression, where: Expression | None, bounds: ResultInterval) -> dict[str, Any]:
        """Return the mean of a condition, of a category of numbers, or of a number with noise."""
        below = self._weigh(where, None)
        names = () if subject.is_condition else subject_columns(subject)
        middle, slack = 0.0, 0.0
        if names and self._laws[names[0]].levels is None:
            cells = self._number(names[0])
            middle, slack = cells.middle, cells.slack
            # Where a number is missing, its offset from the middle and its share are both estimated as 0.
            above = _Weights(below.values * cells.offsets, below.squares * cells.squares)
            both = below.squares * cells.offsets
            below = _Weights(below.values * cells.present, below.squares * cells.present)
        else:
            above = self._weigh(where, subject)
            # Of an indicator the product with the condition is itself; of a number it is the number.
            both = above.values
        sums = NoisyRatio(
            np.array(above.values.sum()),
            np.array(below.values.sum()),
            np.array(max(float((above.values**2).sum() - above.squares.sum()), 0.0)),
            np.array((above.values * below.values).sum() - both.sum()),
            np.array(max(float((below.values**2).sum() - below.squares.sum()), 0.0)),
        )
        lower, upper = (
            float(np.clip(end + middle + wider, *bounds))
            for end, wider in zip(sums.ends(interval_width("gaussian")), (-slack, slack), strict=True)
        )
        divisor = float(sums.below)
        value = float(np.clip(sums.above / divisor + middle, lower, upper)) if divisor > 0 else None
        return {"value": value, "sd": None, "lower": lower, "upper": upper}

    def _number(self, name: str) -> _Numbers:
        """Return unbiased estimates of the true numbers of a column, and of whether they are there."""
        assert self._rows is not None
        column = self._laws[name]
        law = column.law
        if not isinstance(law, Additive | Clear) or getattr(law, "clamped", False):
            raise ParameterError(
                f"The mean of {name!r} must follow from the law of its noise, and does not: {law.words()}. "
                "Noise that is added, and not clamped to the range, can be corrected for; or ask a query."
            )
        return _Numbers.from_cells(np.asarray(self._rows[name], np.float64), column)

    def _weigh(self, where: Expression | None, subject: Expression | None) -> _Weights:
        """Return for each row estimates of a function of true levels, which is 0 outside a condition.

        Parameters
        ----------
        where : Expression or None
            Condition on rows; None for all of them.
        subject : Expression or None
            Condition, or category of numbers, that is the function; None for 1.
        """
        assert self._rows is not None
        named = {*(() if where is None else condition_columns(where))}
        if subject is not None:
            named |= set(subject_columns(subject))
        if not named:
            return _Weights(np.ones(self._size), np.ones(self._size))
        units = self._units(named)
        names = [name for unit in units for name in unit.names]
        axes = {name: self._axis(name) for name in names}
        shape = [len(axis.labels) for axis in axes.values()]
        if math.prod(shape) > _MOST_COMBINATIONS:
            raise ParameterError("A statistic must depend on fewer combinations of levels than a million.")
        function = np.ones(shape)
        for one in (where, subject):
            function = function * self._tabulate(one, axes)
        sizes = [math.prod(len(axes[name].labels) for name in unit.names) for unit in units]
        codes = [unit.codes(self._rows, axes) for unit in units]
        shown = np.all([code < size for code, size in zip(codes, sizes, strict=True)], axis=0)
        places = tuple(np.where(shown, code, 0) for code in codes)
        # A row that does not show all of the columns counts 0, any other one over the chance of being shown.
        factor = shown / _inclusion([unit.law for unit in units])
        found = []
        # The square too: the variance of a sum of estimates is the sum of their squares less that of the true
        # ones.
        for table in (function, function * function):
            inverse = table.reshape(sizes)
            for axis, (unit, size) in enumerate(zip(units, sizes, strict=True)):
                inverse = unit.invert(inverse, axis, size)
            found.append(inverse[places] * factor)
        return _Weights(*found)

    def _tabulate(self, one: Expression | None, axes: Mapping[str, Axis]) -> AnyArray:
        """Return a condition, or a category of numbers, as a function on all combinations of levels."""
        if one is None:
            return np.ones([1] * len(axes))
        if one.is_condition:
            named = condition_columns(one)
            own = {name: axis for name, axis in axes.items() if name in named}
            values = mask_cells(one, own).inside.astype(np.float64)
        else:
            named = subject_columns(one)
            values = np.array([float(x) if isinstance(x, int) else 0.0 for x in axes[named[0]].labels])
        return values.reshape([len(axis.labels) if name in named else 1 for name, axis in axes.items()])

    def _units(self, names: set[str]) -> list[_Unit]:
        """Return what was randomized together, for some columns; refuses numbers with noise."""
        found: dict[tuple[str, ...], _Unit] = {}
        for name, column in self._laws.items():
            if name not in names:
                continue
            law = column.cell_law
            if column.levels is None or not isinstance(law, ResponseLaw | JointResponseLaw | Clear):
                raise ParameterError(
                    f"A condition must name categories, and {name!r} is published with other noise: "
                    f"{column.law.words()}. How many rows lie beyond a value does not follow from it; ask "
                    "for its mean, or a query."
                )
            group = law.columns if isinstance(law, JointResponseLaw) else (name,)
            found[group] = _Unit(group, column)
        return list(found.values())

    def _correlate(self, first: str, second: str) -> StatisticResult:
        """Return the correlation of two numbers with noise.

        The variance of a sum over rows is at most the sum of the squares of its terms.
        """
        for name in (first, second):
            if name not in self._laws or self._laws[name].levels is not None:
                raise ParameterError(f"columns of a correlation must hold numbers, and {name!r} does not.")
            if self._laws[name].missing or getattr(self._laws[name].law, "grid", None) is not None:
                raise ParameterError(
                    "columns of a correlation must hold numbers in every row, with noise that is not "
                    f"rounded, and {name!r} does not. Ask for its mean, or a query."
                )
        cells = self._number(first), self._number(second)
        one_noise, other_noise = (part.variance for part in cells)
        shared = self._covariance(first, second)
        one, other = (part.offsets - part.offsets.mean() for part in cells)
        spreads = [float((x * x).mean()) - noise for x, noise in ((one, one_noise), (other, other_noise))]
        bounds = ResultInterval(-1.0, 1.0)
        value, lower, upper = None, -1.0, 1.0
        if min(spreads) > 0:
            above = (one * other - shared) / math.sqrt(spreads[0] * spreads[1])
            below = ((one * one - one_noise) / spreads[0] + (other * other - other_noise) / spreads[1]) / 2
            pairs = ((above, above), (above, below), (below, below))
            sums = NoisyRatio(
                np.array(above.sum()), np.array(below.sum()), *(np.array((a * b).sum()) for a, b in pairs)
            )
            lower, upper = (float(np.clip(end, *bounds)) for end in sums.ends(interval_width("gaussian")))
            value = float(np.clip(sums.above / sums.below, lower, upper))
        name = f"correlation({write_name(first)}, {write_name(second)})"
        cell = ResultCell(key=(), value=value, sd=None, lower=lower, upper=upper)
        return _result(name, ResultColumn(name, None, bounds), (), (cell,))

    def _covariance(self, first: str, second: str) -> float:
        law = self._laws[first].law
        if isinstance(law, CorrelatedGaussianLaw | JointBoundedLaw) and second in law.columns:
            return law.covariances[law.columns.index(second)]
        return 0.0


@dataclass(frozen=True)
class _Unit:
    """One or several columns that were randomized by one response.

    Attributes
    ----------
    names : tuple of str
        Names of the columns, the last of which moves fastest in a combination.
    column : ColumnLaw
        Law of one of them.
    """

    names: tuple[str, ...]
    column: ColumnLaw

    @property
    def law(self) -> Any:
        """Law of the cells, that not all rows show them included."""
        return self.column.law

    def codes(self, rows: Mapping[str, AnyArray], axes: Mapping[str, Axis]) -> AnyArray:
        """Return the combination of each row; the number of combinations where it is not shown."""
        codes = np.asarray(rows[self.names[0]], np.int64)
        shown = codes < len(axes[self.names[0]].labels)
        for name in self.names[1:]:
            codes = codes * len(axes[name].labels) + np.asarray(rows[name], np.int64)
        return np.where(shown, codes, math.prod(len(axes[name].labels) for name in self.names))

    def invert(self, table: Floats, axis: int, size: int) -> Floats:
        """Return a function of published levels whose expectation is a function of true ones."""
        law = self.column.cell_law
        if not isinstance(law, ResponseLaw | JointResponseLaw):
            return table
        other = (1 - law.keep) / (size - 1)
        gap = law.keep - other
        if gap < _LEAST_GAP:
            raise ParameterError(
                f"{' and '.join(self.names)} must say something about the true rows, and are kept as often "
                "as any other level is published."
            )
        inverse: Floats = (table - other * table.sum(axis=axis, keepdims=True)) / gap
        return inverse


def _inclusion(laws: Sequence[Any]) -> float:
    """Return the probability that a row shows all of some columns."""
    sampled = [law for law in laws if isinstance(law, SampledLaw)]
    return math.prod((law.picked - i) / (law.among - i) for i, law in enumerate(sampled)) or math.nan


def _declare(column: ColumnLaw) -> Column:
    """Return the declaration of a published column, by which conditions are read."""
    if column.levels is None:
        # Not as missing: whether a number is there is randomized, which is no condition on published rows.
        return Column(column.name, lower=column.lower, upper=column.upper)
    known = tuple(level for level in column.levels if level is not None)
    return Column(column.name, values=known, closed=True, required=None not in column.levels)


def _result(
    question: str, column: ResultColumn, group_by: tuple[str, ...], cells: tuple[ResultCell, ...]
) -> StatisticResult:
    """Return a result that says what it stands on."""
    return StatisticResult(
        question=question,
        columns=(column,),
        group_by=group_by,
        cells=cells,
        law="gaussian",
        cost=(),
        basis="rows",
        notes=(_NOTE,),
    )
