"""Contributions of single rows to the integers of an aggregate, computed on arrays.

An engine returns sums over rows only. An attack on answers needs to know how far one person moves them, so
the same integers are computed here row by row, by other means than the engine's SQL. An attack that agrees
with the engine tests both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit._contribution_arrays import (
    CellContributions,
    DenseContributions,
    ProductContributions,
    RepeatedRows,
)
from discreet.query.aggregates import (
    ClassGradients,
    ClusterSums,
    GradientSums,
    Gram,
    GroupedSums,
    HalfspaceSums,
    Histogram,
    Marginals,
    Moments,
    NodeTables,
    PredictionCounts,
    Sums,
    TreePredictions,
)
from discreet.query.aggregates.base import parse_expression
from discreet.query.aggregates.histogram import starts_of
from discreet.query.features import Features, clip
from discreet.query.passes import SIGMOID_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._contribution_arrays import Contributions
    from discreet.query.aggregates import Aggregate, BoundAggregate
    from discreet.query.curation import Curated, Curation

    Arrays = Mapping[str, AnyArray]

_BUCKETS = 64  # steps of a margin in the table of the sigmoid
_LAST_MARGIN = 16


@dataclass(frozen=True, eq=False)
class RowContributions:
    """An aggregate as a function of single rows.

    Attributes
    ----------
    size : int
        Number of entries of its answer.
    reads : frozenset of str
        SQL names of the curated columns on which a row's contribution depends.
    of : callable
        Function from curated arrays by SQL name to the contributions of their rows.
    """

    size: int
    reads: frozenset[str]
    of: Callable[[Arrays], Sequence[Contributions]]

    def total(self, arrays: Arrays) -> Floats:
        """Return the sums of all entries over some rows."""
        summed: Floats = np.sum([part.total(self.size) for part in self.of(arrays)], axis=0)
        return summed


def parse_expressions(aggregate: Aggregate, curation: Curation) -> Aggregate:
    """Return the same aggregate with its texts parsed, so that this is done only once."""
    if isinstance(aggregate, Sums):
        return Sums(tuple(parse_expression(text, curation) for text in aggregate.expressions))
    if isinstance(aggregate, GroupedSums):
        parsed = [one if one is None else parse_expression(one, curation) for one in aggregate.expressions]
        where = aggregate.where if aggregate.where is None else parse_expression(aggregate.where, curation)
        return GroupedSums(aggregate.columns, aggregate.edges, parsed, where)
    if isinstance(aggregate, Histogram) and aggregate.expression is not None:
        return Histogram(aggregate.columns, aggregate.edges, parse_expression(aggregate.expression, curation))
    return aggregate


def row_contributions(
    aggregate: Aggregate, bound: BoundAggregate, curation: Curation
) -> RowContributions | None:
    """Return an aggregate as a function of single rows; None for kinds that need more than a row's cells."""
    named = {column.name for column in curation.schema.released}
    if not set(getattr(aggregate, "columns", ())) <= named:
        return None  # groups by an expression
    for kind, build in _KINDS.items():
        if isinstance(aggregate, kind):
            reads, of = build(aggregate, bound, curation)
            return RowContributions(bound.size, frozenset(reads), of)
    return None


_Parts = tuple[set[str], "Callable[[Arrays], Sequence[Contributions]]"]


def _length(arrays: Arrays) -> int:
    return len(next(iter(arrays.values())))


def _term(expression: Any, anchor: int, curation: Curation) -> tuple[set[str], Callable[[Arrays], Floats]]:
    """Return the columns that an expression reads, and a function from rows to the integers it sums."""
    if expression.is_constant:
        return set(), lambda arrays: np.full(_length(arrays), float(anchor))
    if expression.bare is not None and expression.known is None:
        sql = curation.column(expression.bare).sql
        # The anchored integer times the step is the value itself, and answers are sums of these.
        return {sql}, lambda arrays: arrays[sql].astype(np.float64) + anchor
    reads = {curation.sql_name(name) for name in expression.columns}

    def integers(arrays: Arrays) -> Floats:
        if not isinstance(arrays, RepeatedRows):
            values: Floats = expression.evaluate(curation.name_arrays(arrays)).astype(np.float64) + anchor
            return values
        # What does not depend on the cell for whose values rows are repeated is computed once for each row.
        found: Floats = expression.evaluate(curation.name_arrays(arrays.grid)).astype(np.float64) + anchor
        return np.broadcast_to(found, arrays.shape).ravel()

    return reads, integers


def _sums(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of sums of expressions: one dense entry each."""
    terms = [
        _term(expression, anchor, curation)
        for expression, (_, anchor, *_) in zip(aggregate.expressions, bound.canonical["terms"], strict=True)
    ]

    def of(arrays: Arrays) -> Sequence[Contributions]:
        return [DenseContributions(0, np.stack([integers(arrays) for _, integers in terms]))]

    return set().union(*(reads for reads, _ in terms)), of


def _own(column: Curated) -> set[str]:
    return {column.exact} if column.flag is None else {column.exact, column.flag}


def _axis(
    curation: Curation, name: str, edges: Mapping[str, Sequence[float]]
) -> tuple[int, Callable[[Arrays], Ints]]:
    """Return the number of cells of a column, the last for missing values, and a function to rows' cells."""
    column = curation.column(name)
    starts = np.array(starts_of(column, edges[name])) if name in edges else None
    size = len(column.levels) if column.is_category else column.top + 1 if starts is None else starts.size + 1

    def codes(arrays: Arrays) -> Ints:
        cells = arrays[column.exact]
        # As the engine compares: a value that equals a start belongs to the cell that begins there.
        binned = cells.astype(np.int64) if starts is None else np.searchsorted(starts, cells, side="right")
        return binned if column.flag is None else np.where(arrays[column.flag] == 1, size, binned)

    return size + (column.flag is not None), codes


def _one(arrays: Arrays) -> Floats:
    return np.ones(_length(arrays))


def _histogram(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of a histogram: 1 or an expression, in the cell of each row."""
    reads, cells = _cells(aggregate, curation)
    integers: Callable[[Arrays], Floats] = _one
    if aggregate.expression is not None:
        more, integers = _term(aggregate.expression, bound.canonical["term"][1], curation)
        reads |= more

    def of(arrays: Arrays) -> Sequence[Contributions]:
        return [CellContributions(0, cells(arrays), integers(arrays)[None])]

    return reads, of


def _cells(aggregate: Any, curation: Curation) -> tuple[set[str], Callable[[Arrays], Ints]]:
    """Return the columns of an aggregate's groups, and a function to the cell of each row."""
    axes = [_axis(curation, name, aggregate.edges) for name in aggregate.columns]
    reads = set().union(*(_own(curation.column(name)) for name in aggregate.columns))

    def cells(arrays: Arrays) -> Ints:
        return _joint_cells(_length(arrays), [(size, codes(arrays)) for size, codes in axes])

    return reads, cells


def _grouped_sums(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of several sums by group; a row outside WHERE adds nothing."""
    reads, cells = _cells(aggregate, curation)
    size = bound.size // len(aggregate.expressions)
    terms: list[Callable[[Arrays], Floats]] = []
    for expression, (_, anchor, _) in zip(aggregate.expressions, bound.canonical["terms"], strict=True):
        more, integers = (set(), _one) if expression is None else _term(expression, anchor, curation)
        reads |= more
        terms.append(integers)
    chosen: Callable[[Arrays], Floats] = _one
    if aggregate.where is not None:
        more, chosen = _term(aggregate.where, 0, curation)
        reads |= more

    def of(arrays: Arrays) -> Sequence[Contributions]:
        cell, kept = cells(arrays), chosen(arrays)
        return [
            CellContributions(i * size, cell, (integers(arrays) * kept)[None])
            for i, integers in enumerate(terms)
        ]

    return reads, of


def _joint_cells(n_rows: int, axes: Sequence[tuple[int, Ints]]) -> Ints:
    """Return the cell of each row in a table in C order, of the sizes and codes of its axes."""
    cell = np.zeros(n_rows, np.int64)
    for size, codes in axes:
        cell = cell * size + codes
    return cell


def _marginals(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of several tables: 1 in the cell of each row in each of them."""
    names = {name for table in aggregate.tables for name in table}
    axes = {name: _axis(curation, name, aggregate.edges) for name in names}

    def of(arrays: Arrays) -> Sequence[Contributions]:
        codes = {name: (size, cells(arrays)) for name, (size, cells) in axes.items()}
        ones, start, parts = _one(arrays)[None], 0, []
        for table in aggregate.tables:
            cell = _joint_cells(_length(arrays), [codes[name] for name in table])
            parts.append(CellContributions(start, cell, ones))
            start += math.prod(codes[name][0] for name in table)
        return parts

    return set().union(*(_own(curation.column(name)) for name in names)), of


def _node_tables(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of the tables (attribute, label) of the nodes of a tree."""
    nodes, target = aggregate.nodes, aggregate.target
    names = {target, *(name for node in nodes for name in (*node.attributes, *(n for n, _ in node.path)))}
    axes = {name: _axis(curation, name, aggregate.edges) for name in names}
    labels = axes[target][0]
    attributes = sorted({a for node in nodes for a in node.attributes})
    # First entry of the table of each node and attribute; -1 where a node has no table of the attribute.
    # The last place of each array is -1 too: it is read by rows that fit no node.
    starts, offset = {a: np.full(len(nodes) + 1, -1) for a in attributes}, 0
    for i, node in enumerate(nodes):
        for a in node.attributes:
            starts[a][i] = offset
            offset += axes[a][0] * labels

    def of(arrays: Arrays) -> Sequence[Contributions]:
        codes = {name: axis[1](arrays) for name, axis in axes.items()}
        which = np.full(_length(arrays), -1)
        # Backwards, so that a row that fits several nodes belongs to the first of them.
        for i in range(len(nodes) - 1, -1, -1):
            fits = np.ones(which.size, bool)
            for name, code in nodes[i].path:
                fits &= codes[name] == code
            which[fits] = i
        ones = np.ones((1, which.size))
        parts = []
        for a in attributes:
            begin = starts[a][which]
            parts.append(
                CellContributions(0, np.where(begin < 0, -1, begin + codes[a] * labels + codes[target]), ones)
            )
        return parts

    return set().union(*(_own(curation.column(name)) for name in names)), of


def _moments(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of first and second moments, and of the count if there is one."""
    columns = [curation.column(name) for name in aggregate.columns]

    def of(arrays: Arrays) -> Sequence[Contributions]:
        sums: list[AnyArray] = []
        squares: list[AnyArray] = []
        for column in columns:
            cells = arrays[column.sql].astype(np.float64)
            if column.is_category:
                sums += [(cells == code).astype(np.float64) for code in range(len(column.levels))]
                continue
            # Doubled, because the middle of an odd number of steps is no integer.
            sums.append(2 * cells - column.top)  # twice the distance from the middle
            squares.append(sums[-1] ** 2)
        # The aggregate has one entry more where the number of rows is noised with it.
        count = [np.ones(_length(arrays))] if bound.size > len(sums) + len(squares) else []
        return [DenseContributions(0, np.stack([*sums, *squares, *count]))]

    return {column.sql for column in columns}, of


def _features(aggregate: Any, curation: Curation, *, intercept: float = 0.0) -> Features:
    """Return the vectors that an aggregate makes of rows."""
    starts = {name: starts_of(curation.column(name), cuts) for name, cuts in aggregate.edges.items()}
    return Features.from_curation(
        curation,
        aggregate.columns,
        center=aggregate.center,
        radius=aggregate.radius,
        intercept=intercept,
        starts=starts,
        scores=aggregate.scores,
        lines=aggregate.lines,
    )


def _rows(features: Features, arrays: Arrays) -> Floats:
    return features.rows([arrays[name] for name in features.columns])


def _gram(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of a Gram matrix, with sums and count where they are included."""
    features = _features(aggregate, curation, intercept=aggregate.intercept)
    d = features.size
    products = d * (d + 1) // 2

    def of(arrays: Arrays) -> Sequence[Contributions]:
        rows = _rows(features, arrays)
        parts: list[Contributions] = [ProductContributions(rows)]
        if aggregate.with_sums:
            parts.append(DenseContributions(products, rows))
        if bound.size > products + d:
            parts.append(DenseContributions(products + d, np.ones((1, rows.shape[1]))))
        return parts

    return set(features.columns), of


def _clusters(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of counts and clipped residual sums of the nearest centers."""
    features = Features.from_curation(curation, aggregate.columns, center=None, radius=None)
    centers = np.array(bound.canonical["centers"], np.float64)
    square = bound.canonical["square"]

    def of(arrays: Arrays) -> Sequence[Contributions]:
        rows = _rows(features, arrays)
        # Squared distances to the centers, less the square of the row, which all of them share.
        scores = np.einsum("ij,ij->i", centers, centers)[:, None] - 2 * (centers @ rows)
        nearest = scores.argmin(axis=0)
        rows -= centers[nearest].T
        clip(rows, square)
        counts = np.arange(len(centers))[:, None] == nearest
        return [
            DenseContributions(0, counts.astype(np.float64)),
            CellContributions(len(centers), nearest, rows),
        ]

    return set(features.columns), of


def _labeled_sums(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of perceptron sums or of gradients of the logistic loss.

    Notes
    -----
    With row ``x``, label ``y`` in {-1, 1} and weights ``w``: perceptron, ``y x`` and a count where
    ``y w'x <= 0``; logistic, ``x (1[y = 1] - sigmoid(w'x))`` with the sigmoid of the engine's table.
    """
    features = _features(aggregate, curation, intercept=aggregate.intercept)
    target = curation.column(aggregate.target).sql
    positive, shift = bound.canonical["positive"], bound.canonical.get("shift", 0)
    weights = np.array(bound.canonical["weights"], np.float64)

    def halfspace(rows: Floats, labels: AnyArray) -> Sequence[Contributions]:
        signs = np.where(labels, 1.0, -1.0)
        wrong = (signs * (weights @ rows) <= 0).astype(np.float64)
        return [DenseContributions(0, wrong[None]), DenseContributions(1, rows * (signs * wrong))]

    def gradient(rows: Floats, labels: AnyArray) -> Sequence[Contributions]:
        # The engine reads the sigmoid from a table with 64 steps per unit of the margin.
        margin = np.floor((weights @ rows) / 2.0**shift) + 0.5
        margin = np.clip(margin / _BUCKETS, -_LAST_MARGIN, _LAST_MARGIN)
        likely = np.floor(2**SIGMOID_BITS / (1 + np.exp(-margin)) + 0.5)
        return [DenseContributions(0, rows * (labels * 2.0**SIGMOID_BITS - likely))]

    def of(arrays: Arrays) -> Sequence[Contributions]:
        make = gradient if isinstance(aggregate, GradientSums) else halfspace
        return make(_rows(features, arrays), arrays[target] == positive)

    return {*features.columns, target}, of


def _predictions(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of rows that a model gets right, or of its table of classes."""
    scores = aggregate.scores(curation)
    n = len(aggregate.classes)

    def of(arrays: Arrays) -> Sequence[Contributions]:
        true, found = scores([arrays[name] for name in scores.columns])
        named = found.argmax(axis=0)
        if not aggregate.by_class:
            return [DenseContributions(0, (true == named).astype(np.float64)[None])]
        # Rows of a class that the model does not know are in no cell of the table.
        cells = np.where(true >= 0, true * n + named, -1)
        return [DenseContributions(0, (np.arange(n * n)[:, None] == cells).astype(np.float64))]

    return set(scores.columns), of


def _class_gradients(aggregate: Any, bound: BoundAggregate, curation: Curation) -> _Parts:
    """Return the columns and contributions of gradients of several classes."""
    kernel = aggregate.kernel(curation)

    def of(arrays: Arrays) -> Sequence[Contributions]:
        residuals, rows = kernel.parts([arrays[name] for name in kernel.columns])
        return [DenseContributions(0, (residuals[:, None] * rows).reshape(-1, rows.shape[1]))]

    return set(kernel.columns), of


_KINDS: dict[type[Aggregate], Callable[[Any, BoundAggregate, Curation], _Parts]] = {
    Sums: _sums,
    Histogram: _histogram,
    GroupedSums: _grouped_sums,
    NodeTables: _node_tables,
    Marginals: _marginals,
    Moments: _moments,
    Gram: _gram,
    ClusterSums: _clusters,
    HalfspaceSums: _labeled_sums,
    GradientSums: _labeled_sums,
    PredictionCounts: _predictions,
    TreePredictions: _predictions,
    ClassGradients: _class_gradients,
}
