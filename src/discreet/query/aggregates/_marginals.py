"""Many tables of counts in one pass."""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates.base import MOST_CELLS, Aggregate, BoundAggregate
from discreet.query.aggregates.histogram import (
    MOST_ON_AN_AXIS,
    Axis,
    _group_key,
    check_edges,
    plain_edges,
)
from discreet.query.engines.tasks import EngineCells, KernelTotals, Tables
from discreet.query.features import Band
from discreet.query.passes import MarginalsPass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.query.curation import Curation
    from discreet.query.engines.tasks import EngineTask
    from discreet.schema.schema import Neighbors

MOST_TABLES = 8192
"""Largest number of tables of one aggregate: all pairs of 128 columns."""
MOST_PRECISION = 4096
"""Largest precision of a table."""
_MOST_COLUMNS = 3  # of one table
_MOST_GROUPED = 2  # tables that an engine groups itself; more are counted on batches of rows


@dataclass(frozen=True)
class MarginalsLayout:
    """Tables over declared cells: which cells, and how they are counted.

    Attributes
    ----------
    curation : Curation
        Layout of the curated table.
    tables : tuple of tuple of str
        Columns of each table.
    edges : mapping of str to sequence of float
        For numbers, where cells begin.
    axes : dict of str to Axis
        Cells of each column of the tables.
    groups : mapping of str to sequence of int
        For categories of which several levels share a cell, the cell of each level.
    """

    curation: Curation
    tables: Sequence[Sequence[str]]
    edges: Mapping[str, Sequence[float]]
    axes: dict[str, Axis]
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def from_curation(
        cls,
        curation: Curation,
        tables: Sequence[Sequence[str]],
        edges: Mapping[str, Sequence[float]],
        groups: Mapping[str, Sequence[int]],
    ) -> MarginalsLayout:
        """Return the tables on a curated table; refuses undeclared columns and too many cells."""
        names = dict.fromkeys(itertools.chain.from_iterable(tables))
        axes = {name: make_axis(curation, name, edges, groups) for name in names}
        layout = cls(curation, tables, edges, axes, groups)
        layout._check_sizes()
        return layout

    def _check_sizes(self) -> None:
        """Refuse too many cells along a column of a joint table, or in all tables together."""
        for name in itertools.chain.from_iterable(table for table in self.tables if len(table) > 1):
            cells = len(self.axes[name].labels)
            if cells > MOST_ON_AN_AXIS:
                raise ParameterError(
                    f"tables of a question must have at most {MOST_ON_AN_AXIS} cells along a column, and "
                    f"{name!r} has {cells}. Ask for the table of {name!r} alone, or declare fewer levels."
                )
        if self.size > MOST_CELLS:
            largest = max(self.tables, key=lambda table: math.prod(self._shape(table)))
            raise ParameterError(
                f"tables of a question must come to at most {MOST_CELLS} cells, and come to {self.size}, of "
                f"which {math.prod(self._shape(largest))} are in the table of {', '.join(largest)}. Ask in "
                "several questions, which cost the same, or cut numbers into fewer cells."
            )

    def _shape(self, table: Sequence[str]) -> tuple[int, ...]:
        return tuple(len(self.axes[name].labels) for name in table)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shape of each table."""
        return [self._shape(table) for table in self.tables]

    @property
    def sizes(self) -> list[int]:
        """Number of cells of each table."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """Number of cells of all tables."""
        return sum(self.sizes)

    def can_change(self, neighbors: Neighbors) -> list[bool]:
        """Return for each table whether it can differ between neighbors: not if it only counts their rows."""
        return [neighbors == "add-remove" or size > 1 for size in self.sizes]

    def split(self, values: AnyArray) -> list[AnyArray]:
        """Return a vector of the cells of all tables as an array for each."""
        ends = list(itertools.accumulate(self.sizes, initial=0))
        return [
            values[start:end].reshape(shape)
            for (start, end), shape in zip(itertools.pairwise(ends), self.shapes, strict=True)
        ]

    def task(self) -> EngineTask:
        """Return how an engine counts all cells in one pass; the choice follows from public sizes alone.

        An engine plans, and PostgreSQL sorts, for each table that it groups. Batches are read once, whatever
        the number of tables.
        """
        if len(self.tables) > _MOST_GROUPED or self.groups:
            return KernelTotals(self._kernel())
        keys = {name: _group_key(self.curation, name, self.edges) for name in self.axes}
        cells = [
            EngineCells(tuple((keys[name].tree, len(keys[name].labels)) for name in table))
            for table in self.tables
        ]
        return Tables(tuple((one, None) for one in cells))

    def _kernel(self) -> MarginalsPass:
        """Return the pass over batches that counts all cells."""
        columns: list[str] = []
        bands: list[Band] = []
        for axis in self.axes.values():
            place = len(columns)
            columns.append(axis.column.sql if axis.starts is None else axis.column.exact)
            flag = None if axis.column.flag is None else len(columns)
            columns.extend([] if axis.column.flag is None else [axis.column.flag])
            cells = self.groups.get(axis.column.name)
            shared = None if cells is None else tuple(cells)
            bands.append(Band(place, axis.starts, flag, axis.column.top, shared))
        index = {name: i for i, name in enumerate(self.axes)}
        tables = tuple(tuple(index[name] for name in table) for table in self.tables)
        return MarginalsPass(tuple(columns), tuple(bands), tables)


@dataclass(frozen=True)
class Marginals(Aggregate):
    """Counts of rows in every cell of many tables, each with noise of its own size, in one pass.

    Parameters
    ----------
    tables : sequence of sequence of str
        Columns of each table, one to three; no table twice, in whatever order its columns are.
    edges : mapping of str to sequence of float
        For numbers, where cells begin; a whole number with few values needs none.
    precisions : sequence of int, optional
        For each table a whole number from 1 to 4096: noise on its cells has variance ``R / precision``. All
        are 1 if left out.
    groups : mapping of str to sequence of int
        For categories of which several levels share a cell, the cell of each level, in the order of its
        declared levels. Cells are whole numbers from 0 on, none of them without a level.

    Notes
    -----
    The answer is one vector: the cells of the tables in C order, one table after the other. :meth:`split`
    returns an array for each. A table of several columns has at most 4,096 cells along each of them; all
    tables together have at most 2**22 cells.

    Privacy
    -------
    A row is in one cell of every table. Replacing it by one that differs in every column moves two cells of
    every table by 1, so the square of the sensitivity is ``2 sum p`` with ``p`` the precisions, and ``sum p``
    when a row is added or removed. A table with a single cell counts rows, which is the same for neighbors
    under replace-one: it adds nothing there. As many questions of one table each would cost the same.

    Reference
    ---------
    docs/explanation/theorems/marginals.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> columns = [Column(name, values=(0, 1), closed=True) for name in ("sex", "old")]
    >>> rows = {"sex": [0, 1] * 500, "old": [0, 0, 1, 1] * 250}
    >>> question = Marginals([["sex"], ["sex", "old"]], precisions=[4, 1])
    >>> with Database(rows, schema=Schema(columns=columns), random_state=1) as database:
    ...     answer = database.ask(question, privacy=GaussianDP(mu=1))
    ...     sexes, both = question.split(answer.value, database.curation)
    >>> sexes.shape, both.shape, float(answer.sd[-1] / answer.sd[0])
    ((2,), (2, 2), 2.0)
    """

    kind: ClassVar[str] = "marginals"
    tables: Sequence[Sequence[str]]
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    precisions: Sequence[int] | None = None
    groups: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Normalize the fields, and refuse tables that are empty, too wide or there twice."""
        tables = tuple((table,) if isinstance(table, str) else tuple(table) for table in self.tables)
        check_tables(tables, "tables of Marginals", range(1, _MOST_COLUMNS + 1))
        precisions = _read_precisions(self.precisions, len(tables))
        object.__setattr__(self, "tables", tables)
        object.__setattr__(self, "edges", plain_edges(self.edges))
        object.__setattr__(self, "precisions", precisions)
        object.__setattr__(self, "groups", read_groups(self.groups))
        names = list(itertools.chain.from_iterable(tables))
        check_edges(self.edges, names)
        check_edges(self.groups, names)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        layout = MarginalsLayout.from_curation(curation, self.tables, self.edges, self.groups)
        precisions = self.precisions or ()
        weights = _weights(precisions)
        changing = layout.can_change(neighbors)
        factor = 2 if neighbors == "replace-one" else 1
        return BoundAggregate(
            canonical={**self.to_dict(), "shapes": [list(shape) for shape in layout.shapes]},
            squared=factor * sum(itertools.compress(precisions, changing)),
            absolute=factor * sum(itertools.compress(weights, changing)),
            precision=_repeat(precisions, layout.sizes),
            weight=_repeat(weights, layout.sizes),
            unit=np.ones(layout.size),
            shift=np.zeros(layout.size),
            places=np.arange(layout.size),
            plain_unit=1.0,
            wanted=layout.task(),
        )

    def split(self, values: Floats, curation: Curation) -> list[Floats]:
        """Return the tables of an answer, each with an axis for each of its columns.

        Parameters
        ----------
        values : array
            Vector of an answer, or of its standard deviations.
        curation : Curation
            Layout of the curated table: ``database.curation``.
        """
        layout = MarginalsLayout.from_curation(curation, self.tables, self.edges, self.groups)
        return layout.split(np.ravel(values))

    def axes(self, curation: Curation) -> dict[str, Axis]:
        """Return the cells of each column of the tables.

        Parameters
        ----------
        curation : Curation
            Layout of the curated table: ``database.curation``.
        """
        return MarginalsLayout.from_curation(curation, self.tables, self.edges, self.groups).axes

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": self.kind,
            "tables": [list(table) for table in self.tables],
            "edges": plain_edges(self.edges),
            "precisions": list(self.precisions or ()),
            **plain_groups(self.groups),
        }


def make_axis(
    curation: Curation, name: str, edges: Mapping[str, Sequence[float]], groups: Mapping[str, Sequence[int]]
) -> Axis:
    """Return the cells of a column, of which levels of a category may share one."""
    axis = Axis.from_curation(curation, name, edges)
    if name not in groups:
        return axis
    cells = groups[name]
    if not axis.column.is_category or len(cells) != len(axis.labels):
        levels = len(axis.column.levels)
        raise ParameterError(
            f"groups of a question must have the cell of each of the {levels} levels of a category, and for "
            f"{name!r} there are {len(cells)}. Numbers are cut by edges."
        )
    labels: list[list[Any]] = [[] for _ in range(max(cells) + 1)]
    for level, cell in zip(axis.labels, cells, strict=True):
        labels[cell].append(level)
    return Axis(axis.column, None, tuple(map(tuple, labels)))


def read_groups(groups: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Return the cell of each level as whole numbers, sorted by column; refuses gaps between cells."""
    read = {}
    for name in sorted(groups):
        cells = [read_integer(cell) for cell in groups[name]]
        numbers = {cell for cell in cells if cell is not None}
        if None in cells or numbers != set(range(len(numbers))) or not numbers:
            raise ParameterError(
                f"groups of a question must number the cells of {name!r} from 0 on, without gaps, and do not."
            )
        read[name] = tuple(cell for cell in cells if cell is not None)
    return read


def plain_groups(groups: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """Return groups as a JSON value under their name; nothing where there are none."""
    return {"groups": {name: list(cells) for name, cells in groups.items()}} if groups else {}


def check_tables(tables: Sequence[Sequence[str]], owner: str, lengths: range) -> None:
    """Refuse no tables or too many, columns that are no text, and a table that is there twice."""
    if not 0 < len(tables) <= MOST_TABLES:
        raise ParameterError(
            f"{owner} must be 1 to {MOST_TABLES}, and are {len(tables)}. Ask in several questions: the parts "
            "cost the same as the whole."
        )
    seen: set[frozenset[str]] = set()
    few = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    for table in tables:
        names = frozenset(table)
        if not all(isinstance(name, str) for name in table) or len(names) != len(table):
            raise ParameterError(f"{owner} must name columns, each once, was {list(table)}.")
        if len(table) not in lengths:
            raise ParameterError(f"{owner} must have {few} columns each, was {list(table)}.")
        if names in seen:
            raise ParameterError(
                f"{owner} must be different, and {list(table)} is there twice. Name it once, with a higher "
                "precision where it matters more."
            )
        seen.add(names)


def _read_precisions(precisions: Sequence[int] | None, size: int) -> tuple[int, ...]:
    """Return a whole number from 1 to 4096 for each table; 1 for all of them if None."""
    if precisions is None:
        return (1,) * size
    given = tuple(read_integer(value) for value in precisions)
    if len(given) != size:
        raise ParameterError(
            f"precisions of Marginals must be one for each of the {size} tables, and are {len(given)}."
        )
    wrong = [old for old, new in zip(precisions, given, strict=True) if not 1 <= (new or 0) <= MOST_PRECISION]
    if wrong:
        raise ParameterError(
            f"precisions of Marginals must be whole numbers from 1 to {MOST_PRECISION}, was {wrong[0]!r}. "
            "Only their ratios matter under a promise."
        )
    return tuple(value for value in given if value is not None)


def _weights(precisions: Sequence[int]) -> list[int]:
    """Return whole numbers in proportion to the roots of precisions, to 1 in 256 where these are no squares.

    Laplace noise of scale ``b / weight`` then has variances in the same ratios as Gaussian noise.
    """
    roots = [math.isqrt(p) for p in precisions]
    if all(root * root == p for root, p in zip(roots, precisions, strict=True)):
        return roots
    return [math.isqrt(p << 16) for p in precisions]


def _repeat(values: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        itertools.chain.from_iterable(itertools.repeat(v, n) for v, n in zip(values, sizes, strict=True))
    )


def read_integer(value: Any) -> int | None:
    """Return a whole number as Python's own; None for anything else."""
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None
