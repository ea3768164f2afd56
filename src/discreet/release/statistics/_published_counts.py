"""Noisy tables of counts as a release publishes them, and what can be estimated from several together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from discreet.errors import ParameterError
from discreet.query import Dependence, Marginals, aggregate_from_dict
from discreet.query.aggregates.histogram import Axis
from discreet.query.curation import Curation, SchemaKey
from discreet.query.language.cell_masks import cell_range, condition_columns, join_conditions, mask_cells
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.query.calibration import Law
    from discreet.query.language import Expression

FINE = "fine"
"""Name of the question that counts values inside cells."""


@dataclass(frozen=True, eq=False)
class CountTable:
    """Noisy counts of the cells of some columns.

    Attributes
    ----------
    axes : dict of str to Axis
        Cells of each column, in the order of the dimensions of the counts.
    values : array
        Noisy counts, some of which may be negative.
    sd : float
        Standard deviation of the noise on each count; noises are independent.
    is_fine : bool
        Whether cells are the fine ones, by whose counts others may have been cut.
    """

    axes: dict[str, Axis]
    values: Floats
    sd: float
    is_fine: bool

    def holds(self, names: Iterable[str]) -> bool:
        """Return whether all of some columns are in the table."""
        return all(name in self.axes for name in names)

    def mask(self, where: Expression | None) -> tuple[AnyArray, AnyArray]:
        """Return the cells that are inside a condition and those that it touches.

        A column of the condition that is not in the table could have any value.
        """
        shape = self.values.shape
        if where is None:
            return np.ones(shape, bool), np.ones(shape, bool)
        named = condition_columns(where)
        own = {name: axis for name, axis in self.axes.items() if name in named}
        inside, touched = _mask_axes(where.canonical, SchemaKey(where.schema), tuple(own.values()))
        spread = [len(axis.labels) if name in own else 1 for name, axis in self.axes.items()]
        return (
            np.broadcast_to(inside.reshape(spread), shape),
            np.broadcast_to(touched.reshape(spread), shape),
        )

    def groups(self, by: Sequence[Axis]) -> Ints | None:
        """Return the group of each cell, counted in C order; None where a cell belongs to several."""
        found = np.zeros(self.values.shape, np.int64)
        for wanted in by:
            name = wanted.column.name
            if name not in self.axes:
                return None
            places = match_cells(self.axes[name], wanted)
            if places is None:
                return None
            shape = [len(places) if one == name else 1 for one in self.axes]
            found = found * len(wanted.labels) + places.reshape(shape)
        return found


class CountEstimate(NamedTuple):
    """Counts of groups, estimated from all tables that hold them; their noises are independent."""

    values: Floats
    variances: Floats
    tables: int


@dataclass(frozen=True, eq=False)
class ScoredPair:
    """Noisy number of rows on which the table of two columns disagrees with a public one.

    Attributes
    ----------
    table : CountTable
        Public counts that the exact ones were compared with; its sd is that of the score.
    score : float
        Noisy half of the sum of absolute differences.
    """

    table: CountTable
    score: float


@dataclass(frozen=True, eq=False)
class PublishedCounts:
    """All noisy counts that a release has published.

    Attributes
    ----------
    schema : Schema
        Declaration of the table.
    n_rows : int or None
        Number of rows where it is public; None where it is not.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    tables : tuple of CountTable
        Tables of counts, in the order in which they were asked.
    pairs : tuple of ScoredPair
        Scores of pairs of columns, in the order in which they were asked.
    """

    schema: Schema
    n_rows: int | None
    law: Law
    tables: tuple[CountTable, ...]
    pairs: tuple[ScoredPair, ...]

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> PublishedCounts:
        """Return the counts in the content of a ``tables.json``.

        Parameters
        ----------
        document : mapping
            Content of the file, as ``SyntheticRelease.tables_`` has it.
        """
        if document.get("kind") != "discreet synthetic tables":
            raise ParameterError(
                f"tables of TableStatistics must be the content of a tables.json, and have the kind "
                f"{document.get('kind')!r}. Read the file with json.load."
            )
        schema = Schema.from_dict(document["schema"])
        curation = Curation.from_schema(schema)
        tables: list[CountTable] = []
        pairs: list[ScoredPair] = []
        for record in document["questions"]:
            question = aggregate_from_dict(record["question"])
            values, sds = (np.array(record[key], np.float64) for key in ("values", "sd"))
            if isinstance(question, Marginals):
                tables += _read_tables(question, values, sds, curation, is_fine=record["name"] == FINE)
            elif isinstance(question, Dependence):
                pairs += _read_pairs(question, values, sds, curation)
        laws = {record["law"] for record in document["questions"]}
        law: Law = "laplace" if "laplace" in laws else "gaussian"
        return cls(schema, document["rows"], law, tuple(tables), tuple(pairs))

    def axis(self, name: str, beside: Iterable[str] = ()) -> Axis | None:
        """Return the cells of a column in the tables that hold it beside others; None where none does.

        Cells are preferred to fine ones, levels to groups of them.
        """
        found = [table for table in self.tables if table.holds((name, *beside))]
        if not found:
            return None
        if found[0].axes[name].column.is_category:
            return max((table.axes[name] for table in found), key=lambda axis: len(axis.labels))
        return min(found, key=lambda table: table.is_fine).axes[name]

    def estimate(
        self, where: Expression | None, by: Sequence[Axis], *, use_total: bool = True
    ) -> CountEstimate | None:
        """Return counts of groups among chosen rows, from all tables in which the condition cuts no cell.

        Each table's sum is weighted by the inverse of its variance. Fine counts are used where no other
        table holds the answer: cells may have been cut by them, and their noise is not independent of that.

        Parameters
        ----------
        where : Expression or None
            Condition on rows; None for all of them.
        by : sequence of Axis
            Cells of the columns to group by; empty for one number.
        use_total : bool
            Whether a public number of rows is used, which makes the noises of groups slightly dependent.
        """
        if where is None and not by and self.n_rows is not None:
            return CountEstimate(np.array([float(self.n_rows)]), np.zeros(1), 0)
        names = (*(() if where is None else condition_columns(where)), *(axis.column.name for axis in by))
        found = []
        for table in self.tables:
            if table.holds(names):
                inside, touched = table.mask(where)
                groups = table.groups(by)
                if groups is not None and np.array_equal(inside, touched):
                    found.append((table, groups, inside))
        if any(not table.is_fine for table, *_ in found):
            found = [one for one in found if not one[0].is_fine]
        if not found:
            return None
        size = int(np.prod([len(axis.labels) for axis in by], dtype=np.int64))
        n_rows = self.n_rows if use_total else None
        return _merge([_sum_cells(*one, size, n_rows) for one in found])


def _sum_cells(
    table: CountTable, groups: Ints, chosen: AnyArray, size: int, n_rows: int | None
) -> tuple[Floats, Floats]:
    """Return the sums of the chosen cells in each group, and their variances.

    A public total corrects all cells alike: of ``K`` noises whose sum is known, ``k`` have the variance
    ``k (1 - k/K)``.
    """
    values: Any = np.bincount(groups[chosen], weights=table.values[chosen], minlength=size)
    cells = np.bincount(groups[chosen], minlength=size).astype(np.float64)
    variance = table.sd * table.sd
    if n_rows is None:
        return values, variance * cells
    share = cells / table.values.size
    values = values + share * (n_rows - float(table.values.sum()))
    return values, variance * cells * (1 - share)


def _merge(sums: Sequence[tuple[Floats, Floats]]) -> CountEstimate:
    """Return the mean of several estimates, each weighted by the inverse of its variance."""
    values, variances = (np.array(part) for part in zip(*sums, strict=True))
    exact = variances.min(axis=0) <= 0
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = np.where(exact, variances <= 0, 1 / variances)
        total = weights.sum(axis=0)
        merged = (np.where(weights > 0, values, 0.0) * weights).sum(axis=0) / total
    return CountEstimate(merged, np.where(exact, 0.0, 1 / total), len(sums))


def match_cells(cells: Axis, wanted: Axis) -> Ints | None:
    """Return which of the wanted cells each cell is part of; None where one is in several.

    Parameters
    ----------
    cells, wanted : Axis
        Cells of one column, and the coarser ones that they are assigned to.
    """
    column = cells.column
    if column.is_category:
        places = {level: i for i, label in enumerate(wanted.labels) for level in _levels(label)}
        found = [{places[level] for level in _levels(label)} for label in cells.labels]
        return None if any(len(one) > 1 for one in found) else np.array([min(one) for one in found])
    known = [label for label in wanted.labels if label is not None]
    starts = [cell_range(column, label)[0] for label in known]
    ends = [cell_range(column, label) for label in cells.labels if label is not None]
    first, last = (np.searchsorted(starts, np.array(ends).reshape(-1, 2), side="right") - 1).T
    if np.any(first != last):
        return None
    result = np.full(len(cells.labels), len(known))
    result[[label is not None for label in cells.labels]] = first
    return result


def _levels(label: Any) -> list[tuple[str, Any]]:
    """Return the levels in a cell, told apart by type: True equals 1 to Python."""
    return [(type(level).__name__, level) for level in (label if isinstance(label, tuple) else (label,))]


@lru_cache(maxsize=256)
def _mask_axes(canonical: str, same: SchemaKey, own: tuple[Axis, ...]) -> tuple[AnyArray, AnyArray]:
    """Return the cells inside a condition and those it touches, whatever its other columns have."""
    # Cached, because many tables have the same cells.
    where = join_conditions([canonical], same.schema)
    assert where is not None
    axes = {axis.column.name: axis for axis in own}
    absent = [name for name in condition_columns(where) if name not in axes]
    axes |= {name: _whole_axis(same.schema, name) for name in absent}
    inside, touched = mask_cells(where, axes)
    beyond = tuple(range(len(own), len(axes)))
    return np.asarray(inside.all(axis=beyond)), np.asarray(touched.any(axis=beyond))


def _whole_axis(schema: Schema, name: str) -> Axis:
    """Return all values of a column as cells, so that a condition can be looked at beyond a table."""
    column = Curation.from_schema(schema).column(name)
    if column.is_category:
        return Axis(column, None, column.levels)
    labels: tuple[Any, ...] = ((-np.inf, np.inf),)
    return Axis(column, (), labels if column.flag is None else (*labels, None))


def _read_tables(
    question: Marginals, values: Floats, sds: Floats, curation: Curation, *, is_fine: bool
) -> list[CountTable]:
    axes = question.axes(curation)
    parts = zip(question.tables, question.split(values, curation), question.split(sds, curation), strict=True)
    return [
        CountTable({name: axes[name] for name in table}, counts, float(sd.flat[0]), is_fine)
        for table, counts, sd in parts
    ]


def _read_pairs(question: Dependence, scores: Floats, sds: Floats, curation: Curation) -> list[ScoredPair]:
    axes, tables = question.reference_tables(curation)
    parts = zip(question.pairs, tables, scores.tolist(), sds.tolist(), strict=True)
    return [
        ScoredPair(CountTable({name: axes[name] for name in pair}, public.astype(float), sd, False), score)
        for pair, public, score, sd in parts
    ]


def maximal_subsets(names: Sequence[str], tables: Iterable[Iterable[str]]) -> list[tuple[str, ...]]:
    """Return the largest sets of some columns that are together in a table, none within another."""
    held = {frozenset(table) & frozenset(names) for table in tables} - {frozenset()}
    largest = [one for one in held if not any(one < other for other in held)]
    return sorted(tuple(name for name in names if name in one) for one in largest)


@dataclass(frozen=True, eq=False)
class ColumnCounts:
    """Counts of the cells of one column with the covariances of their noise.

    Attributes
    ----------
    table : CountTable
        Table whose cells are counted, which has no other column.
    values : array
        Estimated count of each cell.
    covariance : array
        Covariances of their noise.
    """

    table: CountTable
    values: Floats
    covariance: Floats

    @property
    def axis(self) -> Axis:
        """Cells that are counted."""
        (axis,) = self.table.axes.values()
        return axis

    @classmethod
    def from_tables(cls, counts: PublishedCounts, name: str) -> ColumnCounts | None:
        """Return the best unbiased estimate of all counts of a column; None where no table has it.

        Notes
        -----
        With fine counts of variance ``s^2``, and for the ``K`` of them in one cell its count from other
        tables with variance ``V``, the correction of each is ``s^2 / (K s^2 + V)`` times what the cell lacks.
        A public number of rows corrects all of them by what is then missing.
        """
        axis = counts.axis(name)
        if axis is None:
            return None
        known = counts.estimate(None, [axis], use_total=False)
        fine = next((t for t in counts.tables if t.is_fine and tuple(t.axes) == (name,)), None)
        assert known is not None
        places = None if fine is None else match_cells(fine.axes[name], axis)
        if fine is None or places is None or len(places) <= len(axis.labels):
            values, covariance = known.values, np.diag(known.variances)
            own = _alone(axis, values)
        else:
            own, values, covariance = fine, *_refine(fine, known.values, known.variances, places)
        if counts.n_rows is not None:
            along = covariance.sum(axis=1)
            whole = along.sum()
            if whole > 0:
                values = values + along * ((counts.n_rows - values.sum()) / whole)
                covariance = covariance - np.outer(along, along) / whole
        return cls(own, values, covariance)

    def representatives(self, wanted: Axis) -> Floats:
        """Return a number for each cell of a coarser division: the mean of its values, as far as is known."""
        lows, highs = cell_ends(self.axis)
        middles = (lows + highs) / 2
        ends = cell_ends(wanted)
        places = match_cells(self.axis, wanted)
        if places is None:
            return (ends[0] + ends[1]) / 2
        weights = np.maximum(self.values, 0.0)
        size = len(wanted.labels)
        total = np.bincount(places, weights=weights, minlength=size)
        sums = np.bincount(places, weights=weights * middles, minlength=size)
        return np.where(total > 0, sums / np.where(total > 0, total, 1.0), (ends[0] + ends[1]) / 2)


def _refine(fine: CountTable, known: Floats, variances: Floats, places: AnyArray) -> tuple[Floats, Floats]:
    """Return fine counts corrected by the counts of the cells they are in, and their covariances."""
    own = fine.sd * fine.sd
    sizes = np.bincount(places, minlength=len(known))
    factors = own / (sizes * own + variances)
    missing = known - np.bincount(places, weights=fine.values, minlength=len(known))
    values = fine.values + (factors * missing)[places]
    together = (places[:, None] == places[None, :]) * factors[places][:, None]
    return values, own * (np.eye(len(places)) - together)


def _alone(axis: Axis, values: Floats) -> CountTable:
    return CountTable({axis.column.name: axis}, values, 0.0, False)


def cell_ends(axis: Axis) -> tuple[Floats, Floats]:
    """Return the least and the largest number of each cell; 0 where it is missing or no number.

    Parameters
    ----------
    axis : Axis
        Cells of a column of numbers or dates, or of a category whose levels are numbers.
    """
    if axis.column.is_category:
        labels = [label if isinstance(label, tuple) else (label,) for label in axis.labels]
        numbers = [[float(x) for x in levels if isinstance(x, int)] or [0.0] for levels in labels]
        ends = [(min(one), max(one)) for one in numbers]
    else:
        ends = [(0.0, 0.0) if x is None else cell_range(axis.column, x) for x in axis.labels]
    low, high = np.array(ends).T
    return low, high
