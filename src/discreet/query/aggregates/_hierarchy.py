"""Counts of all nodes of a tree over the values of one expression, from which quantiles follow."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates.base import (
    Aggregate,
    BoundAggregate,
    check_cells,
    parse_expression,
)
from discreet.query.aggregates.histogram import (
    _group_key,
    canonical_keys,
    check_edges,
    key_among,
    plain_edges,
)
from discreet.query.engines.tasks import EngineCells, Tables
from discreet.query.language._expression import parse_where
from discreet.query.language._sql import bigint, write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet._types import Floats, Ints
    from discreet.query.curation import Curation
    from discreet.schema.schema import Neighbors


MOST_VALUE_CELLS = 5000
"""Largest number of cells of one expression."""
_BRANCHING = 8  # children of a node, about: of 2 to 64 the least noise by both laws together
_FINEST_STEP = 2.0**-20  # numbers on a finer lattice than this are told as if on none


@dataclass(frozen=True, slots=True)
class ValueCells:
    """Cells of the values of an expression, which follow from its declared range alone.

    A cell begins at a multiple of ``width``, and is that wide up to a distance of ``2 * octave * width`` from
    zero; beyond that, each doubling of the distance doubles the width, so that each octave has ``octave``
    cells. All starts are exact floats, and the cell of a number is found without rounding.

    Attributes
    ----------
    lower, upper : float
        Declared range of the expression.
    step : float
        Distance between neighboring values, a power of two; 0 where it is not told.
    width : float
        Width of the cells nearest to zero, a power of two.
    octave : int or None
        Number of cells of each octave, a power of two; None where all cells are ``width`` wide.
    """

    lower: float
    upper: float
    step: float
    width: float
    octave: int | None

    @classmethod
    def from_range(cls, lower: float, upper: float, quantum: int, *, even: bool = False) -> ValueCells:
        """Return the finest cells of a range that are not more than :data:`MOST_VALUE_CELLS`.

        Parameters
        ----------
        lower, upper : float
            Declared range of the expression.
        quantum : int
            Exponent of a power of two that all values are multiples of.
        even : bool
            Whether cells are of one width however wide that is, as for dates, whose zero means nothing.
        """
        finest = 2.0**quantum
        step = finest if finest >= _FINEST_STEP else 0.0
        spread = math.frexp((upper - lower) / MOST_VALUE_CELLS)[1] - 1 if upper > lower else quantum
        width = max(finest, 2.0**spread)
        while cls(lower, upper, step, width, None).size > MOST_VALUE_CELLS:
            width *= 2
        if even or width <= max(1.0, finest):
            return cls(lower, upper, step, width, None)
        width, octave = max(1.0, finest), 2**52
        while cls(lower, upper, step, width, octave).size > MOST_VALUE_CELLS:
            octave //= 2
        return cls(lower, upper, step, width, octave)

    @property
    def first(self) -> int:
        """Index of the cell of the lower bound, counted from the one that begins at 0."""
        return self._index(self.lower)

    @property
    def size(self) -> int:
        """Number of cells."""
        return self._index(self.upper) - self.first + 1

    def _octaves(self, value: float) -> int:
        """Return by how many doublings the cell of a value is wider than those nearest to zero."""
        if self.octave is None:
            return 0
        distance = abs(value) / self.width / self.octave
        mantissa, exponent = math.frexp(distance)
        # A cell holds its start and not its end: -2**k is in the narrower of two cells, and 2**k the wider.
        return max(exponent - 1 - (value < 0 and mantissa == 0.5), 0)

    def _index(self, value: float) -> int:
        doublings = self._octaves(value)
        place = math.floor(math.ldexp(value / self.width, -doublings))
        return place + (doublings * (self.octave or 0) if value >= 0 else -doublings * (self.octave or 0))

    def starts(self) -> Floats:
        """Return where each cell begins, and where the last ends; within the declared range."""
        index = np.arange(self.first, self.first + self.size + 1)
        inside, doublings = index, np.zeros_like(index)
        if self.octave is not None:
            doublings = np.where(index >= 0, index, -index - 1) // self.octave - 1
            doublings = np.maximum(doublings, 0)
            inside = index - np.sign(index) * doublings * self.octave
        edges = np.ldexp(inside * self.width, doublings)
        starts: Floats = np.clip(edges, self.lower, self.upper).astype(np.float64)
        return starts

    def ends(self) -> Floats:
        """Return the largest value of each cell, or the number that its values stay below."""
        starts = self.starts()
        ends: Floats = starts[1:] - self.step
        ends[-1] = self.upper
        return np.maximum(ends, starts[:-1])

    def middles(self) -> Floats:
        """Return the value in the middle of each cell; of two, the lower."""
        starts, ends = self.starts()[:-1], self.ends()
        half: Floats = (ends - starts) / 2
        return starts + (np.floor(half / self.step) * self.step if self.step else half)

    def key(self, expression: Any, curation: Curation) -> Tree:
        """Return the integer expression of a row's cell, counted from 0; -1 where the value is unknown."""
        program, place = expression.program.copy(), expression.place
        doublings = range(1, max(self._octaves(self.lower), self._octaves(self.upper)) + 1)
        turns = [self.width * (self.octave or 0) * 2.0**k for k in doublings]
        thresholds = [*(-turn for turn in reversed(turns)), *turns]
        wider = [*reversed(doublings), 0, *doublings]
        scale = program.ladder(place, thresholds, [2.0**-k / self.width for k in wider])
        signs = [-1] * len(turns) + [1] * (len(turns) + 1)
        offsets = [float(s * k * (self.octave or 0)) for s, k in zip(signs, wider, strict=True)]
        offset = program.add(program.ladder(place, thresholds, offsets), program.constant(-float(self.first)))
        # Powers of two: the product is exact, and so is the comparison with every start of a cell.
        cell = program.add(program.floor(program.multiply(place, scale)), offset)
        if expression.known_place is not None:
            cell = program.select(expression.known_place, cell, program.constant(-1.0))
        tree: Tree = write(program, cell, curation.sql_column, bigint)
        return tree


@dataclass(frozen=True, slots=True)
class CountTree:
    """Shape of a tree over cells: each level groups the nodes of the one below by ``branching``.

    The number of all rows is no node of its own: it is what the nodes of the first level add up to.
    """

    leaves: int
    branching: int

    @classmethod
    def from_leaves(cls, leaves: int) -> CountTree:
        """Return the tree over some cells whose nodes have about eight children, evenly many."""
        depth = max(1, round(math.log(leaves, _BRANCHING)))
        branching = 2
        while branching**depth < leaves:
            branching += 1
        return cls(leaves, branching)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of nodes of each level, from the top to the cells."""
        sizes = [self.leaves]
        while sizes[0] > self.branching:
            sizes.insert(0, -(-sizes[0] // self.branching))
        return tuple(sizes)

    @property
    def nodes(self) -> int:
        """Number of nodes of all levels."""
        return sum(self.sizes)

    def add_levels(self, counts: Ints) -> Ints:
        """Return the counts of all nodes, level after level, given those of the cells along the last axis."""
        levels = [counts]
        for _ in self.sizes[1:]:
            starts = np.arange(0, levels[0].shape[-1], self.branching)
            levels.insert(0, np.add.reduceat(levels[0], starts, axis=-1))
        return np.concatenate(levels, axis=-1)

    def split_levels(self, counts: Floats) -> list[Floats]:
        """Return the counts of each level, from the top to the cells, given those of all nodes."""
        return np.split(counts, np.cumsum(self.sizes)[:-1], axis=-1)


@dataclass(frozen=True, kw_only=True)
class BoundHierarchy(BoundAggregate):
    """A hierarchical histogram bound to a curated table.

    Attributes
    ----------
    cells : ValueCells
        Cells of the values of the expression.
    tree : CountTree
        Shape of the tree over these cells, one for each group.
    all_known : bool
        Whether every row is in a cell of its group: there is no condition, and nothing is missing.
    """

    cells: ValueCells
    tree: CountTree
    all_known: bool


@dataclass(frozen=True)
class HierarchicalHistogram(Aggregate):
    """Counts of all nodes of a tree over the values of an expression, in every group of some columns.

    Parameters
    ----------
    expression : str or Expression
        Scalar SQL expression over the declared columns: a number or a date.
    columns : sequence of str
        Columns of the groups; the answer has one axis for each, and a last one for the nodes of the tree.
    edges : mapping of str to sequence of float
        For numbers among the columns, where cells begin; a whole number with few values needs none.
    where : str or Expression, optional
        Condition that chooses the rows; all rows if left out.

    Notes
    -----
    Cells follow from the declared range: each value where there are at most 5000; otherwise cells of one
    width if that is at most 1, or else cells that widen with the distance from zero, all of them 0.2 % to
    0.4 % of their values wide for an income from 0 to 10 million. Rows for which the condition is not true,
    or the expression is unknown, are in no cell. An engine counts the cells alone, in one pass.

    Privacy
    -------
    A row is in one node of each of ``L`` levels: replacing it moves two counts of each level at most, so the
    square of the sensitivity is ``2 L``, and ``L`` when a row is added or removed, however many groups and
    cells there are. Empty nodes are answered like all others.

    Reference
    ---------
    M. Hay, V. Rastogi, G. Miklau and D. Suciu, Boosting the accuracy of differentially private histograms
    through consistency (2010): docs/explanation/theorems/quantiles.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     db.ask(HierarchicalHistogram("age"), privacy=GaussianDP(1)).value.ndim
    1
    """

    kind: ClassVar[str] = "hierarchical histogram"
    expression: Any
    columns: Sequence[str] = ()
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    where: Any = None

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if len(set(columns)) != len(columns):
            raise ParameterError(
                f"columns of HierarchicalHistogram must be named once each, was {list(columns)}."
            )
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "edges", plain_edges(self.edges))
        check_edges(self.edges, columns)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundHierarchy:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        expression = parse_expression(self.expression, curation)
        if expression.is_condition:
            raise ParameterError(
                "expression of HierarchicalHistogram must be a number or a date, and "
                f"{expression.canonical} is a condition. Ask for the mean of a condition: its share of rows."
            )
        cells = _cells_of(expression, curation)
        tree = CountTree.from_leaves(cells.size)
        where = parse_where(self.where, curation.schema) if isinstance(self.where, str) else self.where
        keys = [_group_key(curation, name, self.edges) for name in self.columns]
        shape = tuple(len(key.labels) for key in keys)
        size = math.prod(shape) * tree.nodes
        check_cells(size)
        key = cells.key(expression, curation)
        if where is not None:
            key = key_among(where.integer_sql(curation.sql_column), key)
        table = EngineCells((*((one.tree, len(one.labels)) for one in keys), (key, cells.size)))

        def finish(integers: list[int], n_rows: int) -> list[int]:
            counts = np.array(integers, np.int64).reshape(-1, cells.size)
            summed: list[int] = tree.add_levels(counts).ravel().tolist()
            return summed

        all_known = where is None and expression.known is None
        moved = _moved_nodes(neighbors, len(tree.sizes), table.size, all_known=all_known)
        starts, ends = cells.starts()[:-1], cells.ends()
        return BoundHierarchy(
            canonical={
                "kind": self.kind,
                "expression": str(expression.canonical),
                **canonical_keys(curation, self.columns, self.edges),
                "where": None if where is None else str(where.canonical),
                "cells": [cells.first, cells.width, cells.octave],
                "sizes": list(tree.sizes),
                "shape": list(shape),
            },
            squared=moved,
            absolute=moved,
            precision=(1,) * size,
            weight=(1,) * size,
            unit=np.ones(size),
            shift=np.zeros(size),
            places=np.arange(size).reshape(*shape, tree.nodes),
            plain_unit=1.0,
            wanted=Tables(((table, None),)),
            finish=finish,
            labels=(*(one.labels for one in keys), _node_labels(tree, starts, ends)),
            cells=cells,
            tree=tree,
            all_known=all_known,
        )


def _cells_of(expression: Any, curation: Curation) -> ValueCells:
    """Return the cells of an expression, from its range and the power of two that its values share."""
    known = expression.program.interval(expression.place)
    even = expression.bare is not None and curation.schema.column(expression.bare).is_calendar
    return ValueCells.from_range(expression.lower, expression.upper, known.quantum, even=even)


def count_nodes(expression: Any, curation: Curation) -> int:
    """Return how many counts the tree over the values of an expression has, in one group."""
    return CountTree.from_leaves(_cells_of(expression, curation).size).nodes


def _moved_nodes(neighbors: Neighbors, depth: int, n_cells: int, *, all_known: bool) -> int:
    """Return how many counts of a tree can move by 1, the most that one can, between neighbors.

    Two cells are below different nodes of the first level, or in different groups, and then share no node.
    """
    if neighbors == "add-remove":
        return depth
    if n_cells > 1:
        return 2 * depth
    return 0 if all_known else depth


def _node_labels(tree: CountTree, starts: Floats, ends: Floats) -> tuple[tuple[float, float], ...]:
    """Return the first and the last value of each node, level after level."""
    labels: list[tuple[float, float]] = []
    for _ in tree.sizes:
        labels[:0] = zip(starts.tolist(), ends.tolist(), strict=True)
        last = np.minimum(np.arange(0, len(ends), tree.branching) + tree.branching, len(ends)) - 1
        starts, ends = starts[:: tree.branching], ends[last]
    return tuple(labels)
