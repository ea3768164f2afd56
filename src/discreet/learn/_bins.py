"""Public cells of columns, in which decision trees and naive Bayes count rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from discreet.errors import ParameterError
from discreet.learn._sums_base import SumsClassifier
from discreet.learn.arguments import Constraint, is_number
from discreet.learn.feature_map import FeatureMap
from discreet.query import NodeTables, TreeNode
from discreet.query.curation import BITS, Curation
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Bools, Floats, Ints
    from discreet.query import Answer
    from discreet.schema import Column, Schema

LEAST_AMOUNT = 1000
"""Upper bound from which on a whole number from 0 is an amount, whose cells grow by ratios."""

EDGES = Constraint(
    "None or a mapping of column to rising numbers",
    lambda v: (
        v is None
        or (
            hasattr(v, "items")
            and all(len(e) > 0 and all(map(is_number, e)) and sorted(set(e)) == list(e) for e in v.values())
        )
    ),
    (3, "age", {"age": [2.0, 1.0]}, {"age": []}),
)
FINER_GRIDS = (20.0, 150.0, 700.0)
"""Rows of a class for each standard deviation of noise on a cell, from which on grids get finer."""
BINS = Constraint(
    "a whole number from 2 to 1024",
    lambda v: isinstance(v, int | np.integer) and not isinstance(v, bool) and 2 <= int(v) <= 1024,
    (1, 0, 2.5, "4", True, 2000),
)
BINS_OR_NONE = Constraint("None or " + BINS.words, lambda v: v is None or BINS.contains(v), BINS.outside)


def public_edges(column: Column, n_bins: int) -> tuple[float, ...]:
    """Return edges that cut a declared range into cells, without looking at a row.

    Cells have equal widths. An amount, which is a whole number from 0 to a thousand or more, is cut by ratios
    instead, because amounts are mostly small: 0 has a cell of its own, the last cell is the upper three
    quarters of the range, the cell before it the upper three quarters of the rest, and so on.

    Parameters
    ----------
    column : Column
        Declared number or date.
    n_bins : int
        Largest number of cells, at least 2.

    Returns
    -------
    tuple of float
        Points at which cells begin, without that of the first.
    """
    lower, upper = column.range
    whole = column.is_whole
    if whole and upper - lower < n_bins:
        return tuple(lower + i for i in range(1, round(upper - lower) + 1))
    if column.type == "integer" and lower == 0 and upper >= LEAST_AMOUNT and n_bins > 2:
        # With many cells the ratio is smaller, so that the least edge is a thousandth of the range.
        ratio = min(4.0, 1024 ** (1 / (n_bins - 2)))
        cuts = {1.0, *(max(1.0, upper / ratio**i) for i in range(1, n_bins - 1))}
        return tuple(sorted(cuts))
    return tuple(lower + (upper - lower) * i / n_bins for i in range(1, n_bins))


def grid_level(signal: float, n_classes: int) -> int:
    """Return the level of the public grid that is worth its noise, from 0 to 3.

    Parameters
    ----------
    signal : float
        Number of rows over the standard deviation of the noise on one cell; infinite without noise.
    n_classes : int
        Number of classes by which cells are counted.
    """
    return sum(2 * signal / n_classes >= least for least in FINER_GRIDS)


@dataclass(frozen=True, slots=True)
class _Grid:
    """Cells of one level: fractions of a range, equal widths around 0, and values of whole numbers."""

    fractions: tuple[float, ...]
    equal: int
    values: int


_GRIDS = (
    _Grid((1 / 16, 1 / 4, 1 / 2), 4, 6),
    _Grid((1 / 256, 1 / 64, 1 / 16, 1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4), 8, 12),
    _Grid((2.0**-10, 2.0**-8, 2.0**-6, 2.0**-5, *(i / 16 for i in range(1, 9)), 5 / 8, 3 / 4, 7 / 8), 16, 20),
    _Grid((*(2.0**-i for i in range(12, 4, -1)), *(i / 16 for i in range(1, 16))), 32, 63),
)


def public_grid(column: Column, level: int) -> tuple[float, ...]:
    """Return edges whose cells are narrow near the bound where most values are, without looking at a row.

    Parameters
    ----------
    column : Column
        Declared number or date.
    level : int
        How fine the grid is, from 0 to 3, by :func:`grid_level`.

    Returns
    -------
    tuple of float
        Points at which cells begin, without that of the first.

    Notes
    -----
    Cells of a column that is never negative grow away from its lower bound, which has a cell of its own: it
    is where all rows of a mostly empty column are. A column that is never positive is the mirror image. A
    range with 0 inside is cut into equal widths. A whole number with few values has a cell for each. More
    cells cost no privacy, as a row is in one of them, but each has noise.

    Examples
    --------
    >>> from discreet.schema import Column
    >>> [round(edge, 3) for edge in public_grid(Column("income", lower=0, upper=160), 0)]
    [0.0, 10.0, 40.0, 80.0]
    """
    grid = _GRIDS[level]
    lower, upper = column.range
    width = upper - lower
    whole = column.is_whole
    if whole and width <= grid.values:
        return tuple(lower + i for i in range(1, round(width) + 1))
    if lower < 0 < upper:
        cuts = [lower + width * i / grid.equal for i in range(1, grid.equal)]
    else:
        # A number of the curated table has 2**30 steps.
        parts = [width * part for part in (2.0**-BITS, *grid.fractions)]
        cuts = [upper - part for part in parts] if upper <= 0 else [lower + part for part in parts]
    if whole:
        # The mirror image of a cell that begins at a whole number ends at it.
        cuts = [math.floor(cut) + 1 if upper <= 0 else math.ceil(cut) for cut in cuts]
    return tuple(sorted({float(cut) for cut in cuts if lower < cut <= upper}))


@dataclass(frozen=True)
class Bins:
    """Cells of each column: the same ones in which an engine counts rows.

    Attributes
    ----------
    layout : FeatureMap
        Columns of the rows, with their declared ranges and levels.
    edges : dict of str to tuple of float
        Points at which the cells of each number begin, without that of the first.

    Privacy
    -------
    Declared or paid for, never taken from rows.

    Reference
    ---------
    docs/explanation/theorems/sulq-id3.md.
    """

    kind: ClassVar[str] = "cells"
    layout: FeatureMap
    edges: Mapping[str, tuple[float, ...]]

    @classmethod
    def from_features(
        cls,
        layout: FeatureMap,
        edges: Mapping[str, Sequence[float]] | None,
        n_bins: int | None = None,
        *,
        level: int = 3,
    ) -> Self:
        """Return the cells of some columns.

        Parameters
        ----------
        layout : FeatureMap
            Columns of the rows; the cells that its schema declares are used for numbers without `edges`.
        edges : mapping of str to sequence of float, or None
            Edges of some numbers, in place of those in the schema.
        n_bins : int, optional
            Largest number of cells of all other numbers, which :func:`public_edges` cuts; None cuts them by
            :func:`public_grid`.
        level : int
            Level of the public grid, where `n_bins` is None.
        """
        declared = {} if edges is None else edges
        numbers = {column.name: column for column in layout.schema.columns if column.is_number}
        for name in declared:
            if name not in numbers:
                raise ParameterError(
                    f"edges of a learner must be for numbers that it reads, and {name!r} is none. It reads "
                    f"the numbers {', '.join(numbers) or '(none)'}."
                )
        result = {}
        for name, column in numbers.items():
            starts = column.cell_starts
            if name in declared:
                result[name] = tuple(map(float, declared[name]))
            elif starts is not None:
                result[name] = starts
            else:
                result[name] = public_grid(column, level) if n_bins is None else public_edges(column, n_bins)
        return cls(layout, result)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Number of cells of each column, one for missing values included."""
        result = {}
        for column in self._curation.columns:
            count = len(column.levels) if column.is_category else len(self.edges[column.name]) + 1
            result[column.name] = count + (column.flag is not None)
        return result

    @cached_property
    def _curation(self) -> Curation:
        return Curation.from_schema(self.layout.schema)

    def edges_of(self, names: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Return the edges of the numbers among some columns."""
        return {name: self.edges[name] for name in names if name in self.edges}

    def codes(self, X: Any) -> Ints:
        """Return the position of each row's cell in each column, of shape (n_rows, n_columns)."""
        names = self.layout.names
        if self.layout.plain and isinstance(X, np.ndarray):
            return self._batch_codes({name: X[:, i] for i, name in enumerate(names)})
        with open_table(self.layout.name_columns(X)) as table:
            parts = [self._batch_codes(batch) for batch in table.batches(self.layout.schema)]
        return np.concatenate(parts) if parts else np.empty((0, len(names)), np.int64)

    def find_missing(self, codes: Ints, names: Sequence[str]) -> Bools:
        """Return where numbers are missing, by the cells of rows that :meth:`codes` returned."""
        places = {column.name: i for i, column in enumerate(self._curation.columns)}
        return np.column_stack(
            [
                # The last cell is that of missing values, but only where a column may have some.
                (codes[:, places[name]] == self.sizes[name] - 1)
                & (self._curation.column(name).flag is not None)
                for name in names
            ]
        )

    def coordinates(self, X: Any) -> Floats:
        """Return rows as coordinates of 0 and 1, one for each cell of each column."""
        codes = self.codes(X)
        result = np.zeros((len(codes), sum(self.sizes.values())))
        starts = np.concatenate([[0], np.cumsum(list(self.sizes.values()))[:-1]])
        np.put_along_axis(result, codes + starts, 1.0, axis=1)
        return result

    def _batch_codes(self, batch: Mapping[str, AnyArray]) -> Ints:
        """Return the position of each row's cell in each column, for one encoded batch."""
        arrays = self._curation.encode(batch)
        result = []
        for column in self._curation.columns:
            cells = arrays[column.exact]
            if not column.is_category:
                starts = [column.start(edge) for edge in self.edges[column.name]]
                # An edge begins its cell, hence "right".
                cells = np.searchsorted(np.array(starts), cells, side="right")
            if column.flag is not None:
                # Missing values have the last cell.
                cells = np.where(arrays[column.flag] == 1, self.sizes[column.name] - 1, cells)
            result.append(cells)
        return np.column_stack(result).astype(np.int64)

    def mean_size(self, names: Sequence[str]) -> float:
        """Return the mean number of cells of some columns."""
        return math.fsum(self.sizes[name] for name in names) / len(names)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes equal cells."""
        edges = {name: list(values) for name, values in self.edges.items()}
        return {"kind": self.kind, "layout": self.layout.to_dict(), "edges": edges}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the cells that :meth:`to_dict` wrote."""
        edges = {name: tuple(edges) for name, edges in values["edges"].items()}
        return cls(FeatureMap.from_dict(values["layout"]), edges)


class BinsClassifier(SumsClassifier):
    """A classifier on counts of declared cells; adds the parameter ``edges``."""

    edges: Mapping[str, Sequence[float]] | None
    cells_: Bins

    def _tables(self, question: NodeTables, answer: Answer, schema: Schema) -> list[dict[str, Floats]]:
        """Return for each node the noisy table of each column, its classes in the order of ``classes_``."""
        curation = Curation.from_schema(schema)
        levels = curation.column(question.target).levels
        order = [levels.index(level) for level in self._levels]
        split = question.split(np.asarray(answer.value), curation)
        return [{name: table[:, order] for name, table in tables.items()} for tables in split]

    def _cell_codes(self, X: Any, where: str) -> Ints:
        """Return the cells of rows to be judged by a fitted model."""
        rows = self._check_new_rows(X, where)
        return self.cells_.codes(rows)

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "edges":
            return plain_edges(value)
        return super()._pack(name, value, arrays)


def plain_edges(edges: Mapping[str, Sequence[float]] | None) -> dict[str, list[float]] | None:
    """Return the parameter ``edges`` as plain JSON values."""
    if edges is None:
        return None
    return {column: [float(edge) for edge in declared] for column, declared in edges.items()}


def root_tables(target: str, cells: Bins) -> NodeTables:
    """Return the query for the table of every column by class, over all rows."""
    names = cells.layout.names
    return NodeTables(target, [TreeNode((), names)], cells.edges_of(names))
