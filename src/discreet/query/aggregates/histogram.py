"""Histograms and tables of decision trees: counts, or sums, in declared cells."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError
from discreet.query.aggregates.base import (
    Aggregate,
    BoundAggregate,
    IntegerTerm,
    check_cells,
    parse_expression,
    term_of,
)
from discreet.query.engines.tasks import EngineCells, Tables
from discreet.query.language import parse_axis
from discreet.query.language._sql import bigint, double

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet._types import Floats
    from discreet.query.curation import Curated, Curation
    from discreet.schema.schema import Neighbors


MOST_ON_AN_AXIS = 4096
"""Largest number of cells into which a column of numbers is cut."""


@dataclass(frozen=True)
class _Key:
    """Declared cells along one axis: the integer expression of a row's cell, and the label of each cell."""

    tree: Tree
    labels: tuple[Any, ...]


@dataclass(frozen=True)
class Axis:
    """Declared cells of a column: levels, intervals between edges, or whole numbers; then missing.

    Attributes
    ----------
    column : Curated
        Layout of the column in the curated table.
    starts : tuple of float or int, or None
        Where the second and later cells begin, in the exact column; None where its integers are the cells.
    labels : tuple
        Label of each cell: a level, the ends of an interval, a whole number, or None for missing.
    """

    column: Curated
    starts: tuple[float | int, ...] | None
    labels: tuple[Any, ...]

    @classmethod
    def from_curation(cls, curation: Curation, name: str, edges: Mapping[str, Sequence[float]]) -> Axis:
        """Return the cells of a column; refuses a number with many values and without edges."""
        column = curation.column(name)
        starts = starts_of(column, edges[name]) if name in edges else None
        if column.is_category:
            return cls(column, None, column.levels)
        labels: tuple[Any, ...]
        if starts is not None:
            labels = tuple(itertools.pairwise([-math.inf, *map(float, edges[name]), math.inf]))
        elif column.whole and column.top < MOST_ON_AN_AXIS:
            labels = tuple(int(column.lower) + i for i in range(column.top + 1))
        else:
            raise ParameterError(
                f"edges of a question must be given for the number {name!r}, and are not. Name the values "
                f"at which cells begin, as in edges={{{name!r}: (10, 20, 30)}}."
            )
        return cls(column, starts, labels if column.flag is None else (*labels, None))


def _group_key(curation: Curation, name: str, edges: Mapping[str, Sequence[float]]) -> _Key:
    """Return the cells of a column or expression with the integer expression of a row's cell."""
    key = parse_axis(name, edges.get(name, ()), curation.schema)
    if key is not None:
        return _Key(key.integer_sql(curation.sql_column), key.labels)
    axis = Axis.from_curation(curation, name, edges)
    column = axis.column
    tree: Tree = exp.column(column.sql) if axis.starts is None else _bin_column(column, axis.starts)
    if column.flag is not None:
        missing = exp.Literal.number(len(axis.labels) - 1)
        tree = exp.case().when(exp.column(column.flag).eq(1), missing).else_(tree)
    return _Key(tree, axis.labels)


def bind_keys(
    curation: Curation, columns: Sequence[str], edges: Mapping[str, Sequence[float]]
) -> tuple[EngineCells, tuple[tuple[Any, ...], ...]]:
    """Return the cells of some columns on a curated table, and the labels along each axis."""
    keys = [_group_key(curation, name, edges) for name in columns]
    table = EngineCells(tuple((key.tree, len(key.labels)) for key in keys))
    check_cells(table.size)
    return table, tuple(key.labels for key in keys)


def starts_of(column: Curated, edges: Sequence[float]) -> tuple[float | int, ...]:
    """Return where the cells of a column of numbers begin, in its exact column, one for each edge."""
    if column.is_category:
        raise ParameterError(
            f"edges of a question must be for numbers, and {column.name!r} is a category with cells of its "
            "own."
        )
    values = [float(edge) for edge in edges]
    if not values or sorted(set(values)) != values or not all(map(math.isfinite, values)):
        raise ParameterError(
            f"edges of a question must be rising numbers, and those for {column.name!r} are not. Each is "
            "where a cell begins; the first cell begins at the lower bound."
        )
    if len(values) >= MOST_ON_AN_AXIS:
        raise ParameterError(
            f"edges of a question must be fewer than {MOST_ON_AN_AXIS} on one column, and those for "
            f"{column.name!r} are {len(values)}. In cells that narrow there is nothing but noise."
        )
    return tuple(column.start(value) for value in values)


def _bin_column(column: Curated, starts: Sequence[float | int]) -> Tree:
    """Return the integer expression of the interval that a number is in."""
    begins = [double(start) if isinstance(start, float) else exp.Literal.number(start) for start in starts]

    def search(low: int, high: int) -> Tree:
        # A tree of comparisons: as many for a row as the number of cells has bits.
        if low == high:
            return exp.Literal.number(low)
        middle = (low + high) // 2
        below = exp.LT(this=exp.column(column.exact), expression=begins[middle])
        return _case([(below, search(low, middle))], search(middle + 1, high))

    return search(0, len(begins))


def canonical_keys(
    curation: Curation, columns: Sequence[str], edges: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Return columns and edges with one text for all spellings of an expression; refuses it twice."""
    names = {}
    for name in columns:
        key = parse_axis(name, edges.get(name, ()), curation.schema)
        names[name] = name if key is None else key.canonical
    if len(set(names.values())) < len(names):
        raise ParameterError("columns of a question must be different expressions, and two are the same one.")
    return {
        "columns": list(names.values()),
        "edges": plain_edges({names[name]: edges[name] for name in edges}),
    }


def key_among(holds: Tree, key: Tree) -> Tree:
    """Return a key that is -1, of no cell, for rows where a condition does not hold."""
    chosen = exp.If(this=exp.EQ(this=holds, expression=exp.Literal.number(1)), true=key)
    return exp.Case(ifs=[chosen], default=bigint(exp.Neg(this=exp.Literal.number(1))))


def plain_edges(edges: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Return edges as JSON values, sorted by column."""
    return {name: [float(edge) for edge in edges[name]] for name in sorted(edges)}


def check_edges(edges: Mapping[str, Sequence[Any]], names: Sequence[str]) -> None:
    """Refuse edges of columns that an aggregate does not read."""
    unused = sorted(set(edges) - set(names))
    if unused:
        raise ParameterError(
            f"edges of a question must be for its own columns, and {unused[0]!r} is not one."
        )


@dataclass(frozen=True)
class Histogram(Aggregate):
    """Counts, or sums of an expression, in every cell of some columns' declared values.

    Parameters
    ----------
    columns : sequence of str
        Columns of the groups, or expressions such as ``YEAR(born)``; the answer has one axis for each.
    edges : mapping of str to sequence of float
        For numbers, where cells begin, by column or expression; a whole number with few values needs none.
    expression : str or Expression, optional
        What to sum in each cell, 0 for a row where it is unknown; counts rows if left out.

    Privacy
    -------
    A row is in one cell: replacing it moves a count down and another up, so the square of the sensitivity
    is 2, and 1 when a row is added or removed, however many cells there are. Empty cells are answered like
    all others.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> with Database({"age": [20, 80] * 500, "ill": [0, 1] * 500}, schema=schema, random_state=1) as db:
    ...     db.ask(Histogram("age", edges={"age": [30, 60]}), privacy=GaussianDP(1)).value.round()
    array([501.,  -1., 501.])
    """

    kind: ClassVar[str] = "histogram"
    columns: Sequence[str]
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    expression: Any = None

    def __post_init__(self) -> None:
        columns = (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)
        if not columns or len(set(columns)) != len(columns):
            raise ParameterError(
                f"columns of Histogram must be at least one, each once, was {list(columns)}."
            )
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "edges", plain_edges(self.edges))
        check_edges(self.edges, columns)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        table, labels = bind_keys(curation, self.columns, self.edges)
        size, shape = table.size, table.shape
        expression = None if self.expression is None else parse_expression(self.expression, curation)
        term = IntegerTerm(None, 0, 1.0, 1.0, 1) if expression is None else term_of(expression, curation)

        def finish(integers: list[int], n_rows: int) -> list[int]:
            counts, sums = integers[:size], integers[size:] or [0] * size
            return [term.total(s, c) for s, c in zip(sums, counts, strict=True)]

        if neighbors == "add-remove":
            squared, absolute = term.reach**2, term.reach
        elif size == 1:
            squared, absolute = term.top**2, term.top
        else:
            # Leaving one cell for another moves both by up to `reach`; staying, one by up to `top`.
            squared = max(term.top**2, 2 * term.reach**2)
            absolute = max(term.top, 2 * term.reach)
        return BoundAggregate(
            canonical={
                "kind": self.kind,
                **canonical_keys(curation, self.columns, self.edges),
                "expression": None if expression is None else str(expression.canonical),
                "term": [term.top, term.anchor, term.step],
                "shape": list(shape),
            },
            squared=squared,
            absolute=absolute,
            precision=(1,) * size,
            weight=(1,) * size,
            unit=np.full(size, term.step),
            shift=np.zeros(size),
            places=np.arange(size).reshape(shape),
            plain_unit=abs(term.step),
            wanted=Tables(((table, None), *(() if term.tree is None else ((table, term.tree),)))),
            finish=finish,
            labels=labels,
        )


@dataclass(frozen=True)
class TreeNode:
    """An open node of a decision tree: the rows in it, and the attributes that may still split them.

    Parameters
    ----------
    path : sequence of (str, int)
        Column and index of its cell, for each step from the root.
    attributes : sequence of str
        Columns that the path has not used yet.

    Examples
    --------
    >>> from discreet.query import TreeNode
    >>> TreeNode(path=[("ward", 2)], attributes=["age"]).path
    (('ward', 2),)
    """

    path: Sequence[tuple[str, int]]
    attributes: Sequence[str]

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", tuple((str(name), int(code)) for name, code in self.path))
        object.__setattr__(self, "attributes", tuple(self.attributes))


@dataclass(frozen=True)
class NodeTables(Aggregate):
    """For every open node and remaining attribute the table of (value, label), in one pass.

    Parameters
    ----------
    target : str
        Column of the class label.
    nodes : sequence of TreeNode
        Open nodes of one level; a row is in the first whose path it fits, or in none.
    edges : mapping of str to sequence of float
        For numbers, where cells begin.

    Notes
    -----
    The answer is one vector: the tables in the order of nodes and attributes. :meth:`split` returns them.

    Privacy
    -------
    A row is in one node and there in one cell for each of at most ``a`` attributes: the square of the
    sensitivity is ``2 a`` when a row is replaced and ``a`` when one is added or removed, for a whole level
    of the tree.

    Reference
    ---------
    Section 4.4 of the paper, with one charge for the level: docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> node = TreeNode(path=[], attributes=["age"])
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     db.ask(NodeTables("ill", [node], edges={"age": [50]}), privacy=GaussianDP(1)).value.round()
    array([499.,  -2.,  -1., 499.])
    """

    kind: ClassVar[str] = "node tables"
    target: str
    nodes: Sequence[TreeNode]
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Normalize the fields, and refuse nodes without attributes or with the target among them."""
        object.__setattr__(self, "nodes", tuple(self.nodes))
        object.__setattr__(self, "edges", plain_edges(self.edges))
        if not self.nodes or not all(node.attributes for node in self.nodes):
            raise ParameterError(
                "nodes of NodeTables must be at least one, each with an attribute left, and are not. Close "
                "nodes that have none."
            )
        for node in self.nodes:
            if len(set(node.attributes)) != len(node.attributes) or self.target in node.attributes:
                raise ParameterError(
                    "attributes of a Node must be columns other than the target, each once, and are "
                    f"{list(node.attributes)}. Leave the others out."
                )

    def _keys(self, curation: Curation) -> dict[str, _Key]:
        """Return the cells of every column that is read, by its name."""
        steps = [name for node in self.nodes for name, _ in node.path]
        names = dict.fromkeys([self.target, *steps, *(a for node in self.nodes for a in node.attributes)])
        check_edges(self.edges, list(names))
        return {name: _group_key(curation, name, self.edges) for name in names}

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        keys = self._keys(curation)
        labels = len(keys[self.target].labels)
        sizes = [len(keys[a].labels) * labels for node in self.nodes for a in node.attributes]
        size = sum(sizes)
        attributes = list(dict.fromkeys(a for node in self.nodes for a in node.attributes))
        check_cells(len(self.nodes) * sum(len(keys[a].labels) * labels for a in attributes))
        which = _node_key(self.nodes, keys)
        tables = [
            EngineCells(
                (
                    (which, len(self.nodes)),
                    (keys[a].tree, len(keys[a].labels)),
                    (keys[self.target].tree, labels),
                )
            )
            for a in attributes
        ]

        starts = dict(
            zip(attributes, itertools.accumulate((t.size for t in tables), initial=0), strict=False)
        )

        def finish(integers: list[int], n_rows: int) -> list[int]:
            cells: list[int] = []
            for i, node in enumerate(self.nodes):
                for a in node.attributes:
                    length = len(keys[a].labels) * labels
                    start = starts[a] + i * length
                    cells.extend(integers[start : start + length])
            return cells

        most = max(len(node.attributes) for node in self.nodes)
        charge = 2 * most if neighbors == "replace-one" else most
        return BoundAggregate(
            canonical={**self.to_dict(), "sizes": sizes},
            squared=charge,
            absolute=charge,
            precision=(1,) * size,
            weight=(1,) * size,
            unit=np.ones(size),
            shift=np.zeros(size),
            places=np.arange(size),
            plain_unit=1.0,
            wanted=Tables(tuple((table, None) for table in tables)),
            finish=finish,
        )

    def split(self, values: Floats, curation: Curation) -> list[dict[str, Floats]]:
        """Return the tables of an answer by node and attribute, each of shape (values, labels)."""
        keys = self._keys(curation)
        labels, at, nodes = len(keys[self.target].labels), 0, []
        for node in self.nodes:
            tables: dict[str, Floats] = {}
            for a in node.attributes:
                length = len(keys[a].labels)
                tables[a] = values[at : at + length * labels].reshape(length, labels)
                at += length * labels
            nodes.append(tables)
        return nodes

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        nodes = [{"path": [list(p) for p in n.path], "attributes": list(n.attributes)} for n in self.nodes]
        return {"kind": self.kind, "target": self.target, "nodes": nodes, "edges": plain_edges(self.edges)}


def _node_key(nodes: Sequence[TreeNode], keys: Mapping[str, _Key]) -> Tree:
    """Return the expression of the first node whose path a row fits, from 0 on; -1 for none."""
    for node in nodes:
        for name, code in node.path:
            if not 0 <= code < len(keys[name].labels):
                raise ParameterError(
                    f"path of a Node must name cells that exist, and {name!r} has no {code}. Count from 0."
                )
    return _first_fit([(i, node.path) for i, node in enumerate(nodes)], keys)


def _first_fit(paths: Sequence[tuple[int, Sequence[tuple[str, int]]]], keys: Mapping[str, _Key]) -> Tree:
    """Return the expression of the first path that a row fits, branching on shared columns first.

    The nodes of a level share the splits above them, so a row is compared with the values of one column at
    each step and not with all nodes in turn.
    """

    def fits(name: str, code: int) -> Tree:
        return exp.EQ(this=keys[name].tree.copy(), expression=exp.Literal.number(code))

    otherwise: Tree = exp.Neg(this=exp.Literal.number(1))
    choices: list[tuple[Tree, Tree]] = []
    named = [{name for name, _ in path} for _, path in paths]
    shared = next((name for name, _ in paths[0][1] if all(name in names for names in named)), None)
    if shared is None:
        for i, path in paths:
            if not path:
                otherwise = exp.Literal.number(i)
                break
            choices.append((exp.and_(*(fits(*step) for step in path), copy=False), exp.Literal.number(i)))
    else:
        parts: dict[int, list[tuple[int, Sequence[tuple[str, int]]]]] = {}
        for i, path in paths:
            codes = {code for name, code in path if name == shared}
            if len(codes) == 1:  # otherwise no row fits
                rest = [step for step in path if step[0] != shared]
                parts.setdefault(codes.pop(), []).append((i, rest))
        choices = [(fits(shared, code), _first_fit(part, keys)) for code, part in parts.items()]
    if not choices:
        return otherwise
    return _case(choices, otherwise)


def _case(choices: Sequence[tuple[Tree, Tree]], otherwise: Tree) -> Tree:
    # Built by hand: sqlglot's builder copies all of its arguments, again at each level.
    return exp.Case(ifs=[exp.If(this=test, true=then) for test, then in choices], default=otherwise)
