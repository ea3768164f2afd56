"""Decision trees by ID3 on noisy counts, with one query for each level of the tree."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from discreet.errors import ParameterError
from discreet.learn._bins import BINS_OR_NONE, EDGES, Bins, BinsClassifier, root_tables
from discreet.learn._stopping_rule import StoppingRule, count_error, information
from discreet.learn._sums_base import SumsClassifier
from discreet.learn.arguments import Constraint, is_number
from discreet.query import NodeTables, TreeNode, TreePredictions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.feature_map import FeatureMap
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import NoisySums
    from discreet.schema import Schema

_DEVIATIONS = Constraint("a number at least 0", lambda v: is_number(v) and v >= 0, (-1, "1", math.nan))
_LEVEL = "level "  # begins the name of a pass
MOST_LEVELS = 6
MOST_NODES = 64
"""Largest number of nodes opened on one level: those with the largest noisy counts."""


@dataclass(frozen=True)
class Branch:
    """A node of the tree.

    Attributes
    ----------
    shares : tuple of float
        Share of each class by the noisy counts; they add up to 1.
    attribute : int or None
        Position of the column that splits the node; None for a leaf.
    children : tuple of int
        Position of the next node for each cell of the column.
    """

    shares: tuple[float, ...]
    attribute: int | None = None
    children: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tree:
    """A decision tree.

    Attributes
    ----------
    nodes : tuple of Branch
        Nodes of the tree, the root first and children after their parents.
    """

    nodes: tuple[Branch, ...]

    def leaves(self, codes: Ints) -> Ints:
        """Return the position of the leaf that each row of cells ends in."""
        position = np.zeros(len(codes), np.int64)
        # Children come after their parents, so one pass over the nodes takes every row to its leaf.
        for i, node in enumerate(self.nodes):
            if node.attribute is not None:
                members = np.flatnonzero(position == i)
                position[members] = np.array(node.children)[codes[members, node.attribute]]
        return position

    @property
    def depth(self) -> int:
        """Number of splits on the longest path."""
        depths = [0] * len(self.nodes)
        for i, node in enumerate(self.nodes):
            for child in node.children:
                depths[child] = depths[i] + 1
        return max(depths)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal tree."""
        return {
            "kind": "tree",
            "nodes": [[list(n.shares), n.attribute, list(n.children)] for n in self.nodes],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the tree that :meth:`to_dict` wrote."""
        return cls(tuple(Branch(tuple(s), a, tuple(c)) for s, a, c in values["nodes"]))


@dataclass
class _OpenNode:
    """A node that may still be split, with what its parent's cells say about it.

    Attributes
    ----------
    place : int
        Position of the node in the tree.
    path : tuple of (str, int)
        Columns and cells that lead to the node.
    attributes : tuple of str
        Columns that are not on the path.
    parent : tuple of float
        Shares of the classes in the parent.
    counts : array of shape (n_classes,)
        Noisy counts of the node's rows by class, from its parent's table.
    sd : float
        Standard deviation of the noise on ``counts``; infinite for the root.
    """

    place: int
    path: tuple[tuple[str, int], ...]
    attributes: tuple[str, ...]
    parent: tuple[float, ...]
    counts: Floats
    sd: float


class PrivateID3Classifier(BinsClassifier):
    """Decision tree of the ID3 kind, grown on noisy counts of declared cells.

    On every level one query counts, for all open nodes at once and for every column that is left, the rows in
    each cell by class. The column with the largest noisy information splits its node into all its cells.

    Parameters
    ----------
    privacy : ApproxDP, ZCDP, GaussianDP, PureDP or NoPromise
        Promise of the whole tree, split evenly over its levels. Only :class:`NoPromise` has no noise.
    bounds, schema
        Declared ranges of the columns of a matrix, or else a schema of the table; one of the two.
    classes : sequence of labels, optional
        Declared labels; by default the levels of the schema's target.
    edges : mapping of str to sequence of float, optional
        Points at which the cells of a number begin, in rising order; for instance from
        :func:`~discreet.learn.private_quantiles`. By default those in the schema.
    n_bins : int, optional
        Number of cells of all other numbers: of equal widths, or by ratios for amounts; see
        :func:`~discreet.learn._bins.public_edges`. By default up to ten cells, of which one is for the
        bound: :func:`~discreet.learn._bins.public_grid`.
    max_depth : int, optional
        Number of levels. By default as many as leave an average node above the count at which nodes are
        closed: a rule on the public number of rows, the cells and the noise.
    stop : float
        Standard deviations of the noise on the sum of a column's cells below which a node is closed; at least
        0.
    skip : float
        Standard deviations of the noise on a cell up to which it is left out of the score of its column; at
        least 0.
    gain_loss : float, optional
        Largest loss of information gain, in nats for each row of the node, that a split may have against the
        best one. Nodes for which no more than that can be lost are split, all others are closed: the paper's
        rule. It needs many rows; with it, use ``skip=0``. By default only ``stop`` closes nodes.
    failure_probability : float
        Probability that some split of the tree loses more than ``gain_losses_`` says; above 0 and below 1.
    paid_score : bool or "table"
        Whether a tenth of the promise pays for the accuracy of the model on its rows, which may then be
        published; half of it counts the rows that are right, half the rows of each class. "table" asks for
        rows by class and named class instead of right ones, with more noise. It is left out where there are
        too few rows for it, which is known before anything is charged if their number is public.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one.

    Attributes
    ----------
    tree_ : Tree
        Nodes with the column that splits each and the noisy shares of the classes.
    cells_ : Bins
        Public cells in which rows are counted.
    depth_ : int
        Number of levels that were paid for.
    gain_losses_ : array
        Largest loss of information gain of each split, in the order of the nodes and in nats for each of
        their rows: how much larger the true gain of another column may be. Infinite where nothing is certain.
        All hold at once but with ``failure_probability``.
    score_ : ModelScore or None
        Paid accuracy with its interval and verdict; None where it was not asked.
    classes_ : array
        The declared classes, sorted.
    layout_ : FeatureMap
        Columns that the model reads, and their coordinates.
    answers_ : dict of str to Answer
        Noisy counts of each level, with the standard deviation of their noise.
    promises_ : tuple of Promise
        Promises that hold for all levels together.
    receipts_ : tuple of Receipt
        Receipts of the charges, one for each query.
    split_ : dict of str to float
        Share of the promise that each level and the score got.

    Privacy
    -------
    A row is in one node of a level and there in one cell of each column, so that a level with ``a`` columns
    costs ``2 a`` in squared sensitivity under replace-one and ``a`` under add-remove, however many nodes it
    has. Which column splits, where growing stops and what a leaf says is computed from noisy counts alone;
    absent cells are counted like all others. Labels of leaves are read off the cells of their parents, free.
    All levels are paid for in the promise, queried or not.

    Reference
    ---------
    Blum, Dwork, McSherry and Nissim (2005), section 4.4 and lemma 2, whose score has the wrong sign and whose
    error bounds are too small: docs/explanation/theorems/sulq-id3.md, sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import ApproxDP, Column, Schema
    >>> x = np.arange(6000) % 90
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=89),
    ...                          Column("owner", values=(0, 1), role="target")])
    >>> model = PrivateID3Classifier(privacy=ApproxDP(epsilon=1.0, delta=1e-6), schema=schema, n_bins=9,
    ...                              random_state=1)
    >>> model.fit(x.reshape(-1, 1), (x >= 40).astype(int)).score(x.reshape(-1, 1), x >= 40)
    1.0
    """

    name: ClassVar[str] = "id3"
    theorems: ClassVar[tuple[str, ...]] = ("sulq-id3", "sulq-sensitivity")
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsClassifier.common_constraints,
        "edges": EDGES,
        "n_bins": BINS_OR_NONE,
        "max_depth": Constraint(
            "None or a whole number from 1 to 64",
            lambda v: (
                v is None
                or (isinstance(v, int | np.integer) and not isinstance(v, bool) and 1 <= int(v) <= 64)
            ),
            (0, -1, 1.5, "2", True, 65),
        ),
        "stop": _DEVIATIONS,
        "skip": _DEVIATIONS,
        "gain_loss": Constraint(
            "None or a number above 0",
            lambda v: v is None or (is_number(v) and v > 0),
            (0, -1, "1", math.nan, math.inf),
        ),
        "failure_probability": Constraint(
            "a number above 0 and below 1", lambda v: is_number(v) and 0 < v < 1, (0, 1, -1, "1", math.nan)
        ),
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *SumsClassifier.common_saved,
        "tree_",
        "cells_",
        "depth_",
        "gain_losses_",
    )
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **SumsClassifier._decoders,
        "tree_": Tree.from_dict,
        "cells_": Bins.from_dict,
    }

    def __init__(
        self,
        *,
        privacy: Privacy,
        bounds: Any = None,
        schema: Schema | None = None,
        classes: Any = None,
        edges: Mapping[str, Sequence[float]] | None = None,
        n_bins: int | None = None,
        max_depth: int | None = None,
        stop: float = 3.0,
        skip: float = 2.0,
        gain_loss: float | None = None,
        failure_probability: float = 0.05,
        paid_score: bool | str = False,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.classes = classes
        self.edges = edges
        self.n_bins = n_bins
        self.max_depth = max_depth
        self.stop = stop
        self.skip = skip
        self.gain_loss = gain_loss
        self.failure_probability = failure_probability
        self.paid_score = paid_score
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Grow the tree level by level, with one query of all open nodes for each level."""
        assert target is not None
        n_bins = None if self.n_bins is None else int(self.n_bins)
        # A split has a child for each cell: on a finer grid nodes would run out of rows.
        cells = Bins.from_features(layout, self.edges, n_bins, level=1)
        schedule = self._plan_levels(sums, cells, target, owner)
        levels = [name for name in schedule.split if name.startswith(_LEVEL)]
        even = (1 / len(self._levels),) * len(self._levels)
        rule = self._rule()
        nodes, losses = [Branch(even)], dict[int, float]()
        # Nothing is known about the root before the first query.
        frontier = [_OpenNode(0, (), layout.names, even, np.zeros(len(even)), math.inf)]
        for name in levels:
            # Only noisy counts decide which nodes are opened.
            frontier = sorted(frontier, key=lambda node: -node.counts.sum())[:MOST_NODES]
            if not frontier:
                break
            queried = [TreeNode(node.path, node.attributes) for node in frontier]
            # Edges are needed for columns on a path too.
            columns = {c for node in queried for c in (*node.attributes, *(step for step, _ in node.path))}
            question = NodeTables(target, queried, cells.edges_of(sorted(columns)))
            answer = schedule.ask(name, question)
            sd = float(np.max(answer.sd))
            # All cells of all levels are within their errors at once.
            cell_failure = rule.failure / (len(levels) * np.size(answer.value))
            error = sd * count_error(1.0, cell_failure, answer.law)
            opened: list[_OpenNode] = []
            for node, tables in zip(frontier, self._tables(question, answer, sums.schema), strict=True):
                loss = rule.bound_gain_loss(list(tables.values()), sd, error)
                if rule.gain_loss is None or loss <= rule.gain_loss:
                    opened.extend(_split_node(nodes, node, tables, sd, layout.names, rule))
                else:
                    nodes[node.place] = _leaf(node, tables, sd, rule)
                if nodes[node.place].attribute is not None:
                    losses[node.place] = loss
            frontier = opened
        self.tree_ = Tree(tuple(nodes))
        self.cells_ = cells
        self.depth_ = len(levels)
        self.gain_losses_ = np.array([losses[place] for place in sorted(losses)])
        self._pay_score(schedule, target)
        return schedule

    @property
    def _n_parameters(self) -> int:
        return sum(node.attribute is None for node in self.tree_.nodes) * (len(self.classes_) - 1)

    def _count_query(self, target: str, *, by_class: bool = False) -> TreePredictions:
        """Return the query for the rows that the tree gets right, with its splits by column alone."""
        names = list(self.cells_.sizes)
        used = sorted({n.attribute for n in self.tree_.nodes if n.attribute is not None})
        columns = [names[attribute] for attribute in used]
        return TreePredictions(
            target,
            self._levels,
            columns,
            [
                (-1, int(np.argmax(node.shares)))
                if node.attribute is None
                else (used.index(node.attribute), *node.children)
                for node in self.tree_.nodes
            ],
            self.cells_.edges_of(columns),
            by_class=by_class,
        )

    def _rule(self) -> StoppingRule:
        """Return the thresholds at which nodes are closed and cells left out."""
        return StoppingRule(self.stop, self.skip, self.gain_loss, self.failure_probability)

    def _plan_levels(self, sums: NoisySums, cells: Bins, target: str, owner: str | None) -> BudgetSchedule:
        """Return the schedule of levels that are paid for, chosen by public facts alone."""
        names = cells.layout.names

        def levels(depth: int) -> BudgetSchedule:
            shares = {f"{_LEVEL}{i + 1}": 1.0 for i in range(depth)}
            return self._make_schedule(sums, shares, target, owner)

        if self.max_depth is not None:
            return levels(min(int(self.max_depth), len(names)))
        if sums.n_rows is None:
            raise ParameterError(
                "max_depth of PrivateID3Classifier must be given where the number of rows is not public, was "
                "None. Give the number of levels, for instance 3."
            )
        root = root_tables(target, cells)
        size = cells.mean_size(names)
        best = levels(1)
        for depth in range(2, min(MOST_LEVELS, len(names)) + 1):
            candidate = levels(depth)
            sd = float(np.max(candidate.expected_sd(f"{_LEVEL}1", root)))
            # Rows of an average node on the last level, against the count at which nodes are closed.
            if sums.n_rows / size ** (depth - 1) < max(self._rule().least_count(sd, size), 1.0):
                break
            best = candidate
        return best

    def predict_proba(self, X: Any) -> Floats:
        """Return for each row the noisy shares of the classes in its leaf."""
        codes = self._cell_codes(X, "predict_proba")
        shares = np.array([node.shares for node in self.tree_.nodes])
        return np.asarray(shares[self.tree_.leaves(codes)])

    def predict(self, X: Any) -> AnyArray:
        """Return the class with the largest noisy share in each row's leaf."""
        shares = self.predict_proba(X)
        return np.asarray(self.classes_[shares.argmax(axis=1)])


def _leaf(node: _OpenNode, tables: Mapping[str, Floats], sd: float, rule: StoppingRule) -> Branch:
    """Return a node as a leaf, with the noisy shares of its classes."""
    totals, total_sd = _combine_counts(node, list(tables.values()), sd)
    return Branch(_shares(totals, node.parent, rule.skip * total_sd))


def _split_node(
    nodes: list[Branch],
    node: _OpenNode,
    tables: Mapping[str, Floats],
    sd: float,
    names: Sequence[str],
    rule: StoppingRule,
) -> list[_OpenNode]:
    """Split a node by its best column or make it a leaf; return the children that may be split further."""
    totals, total_sd = _combine_counts(node, list(tables.values()), sd)
    nodes[node.place] = leaf = _leaf(node, tables, sd, rule)
    mean_size = float(np.mean([len(table) for table in tables.values()]))
    # A node with one class has nothing to gain from a split.
    one_class = np.sum(totals > rule.skip * total_sd) <= 1
    if totals.sum() <= rule.least_count(sd, mean_size) or one_class:
        return []
    least = rule.skip * sd
    best = max(tables, key=lambda column: information(tables[column], least))
    rest = tuple(column for column in node.attributes if column != best)
    first = len(nodes)
    opened = []
    for code, counts in enumerate(tables[best]):
        # The parent's cells already count the child's rows: a leaf needs no query.
        nodes.append(Branch(_shares(counts, leaf.shares, least)))
        # By noisy counts alone; a child without rows is a leaf, and costs the next level no cells.
        if rest and counts.sum() > 0:
            opened.append(_OpenNode(first + code, (*node.path, (best, code)), rest, leaf.shares, counts, sd))
    children = tuple(range(first, len(nodes)))
    nodes[node.place] = Branch(leaf.shares, names.index(best), children)
    return opened


def _combine_counts(node: _OpenNode, tables: Sequence[Floats], sd: float) -> tuple[Floats, float]:
    """Return the best estimate of a node's counts by class, and its standard deviation.

    Notes
    -----
    The mean of the margins of all tables and of the parent's cells, weighted by precision: a margin over
    ``k`` cells has variance ``k sd^2``.
    """
    if sd == 0:
        return np.asarray(tables[0].sum(axis=0)), 0.0
    # Relative to the precision of one cell: the square of very small or large noise is no finite number.
    precision = [1 / len(table) for table in tables] + [(sd / node.sd) ** 2]
    counts = [table.sum(axis=0) for table in tables] + [node.counts]
    return np.average(counts, axis=0, weights=precision), sd / math.sqrt(math.fsum(precision))


def _shares(counts: Floats, parent: tuple[float, ...], sd: float) -> tuple[float, ...]:
    """Return the share of each class, smoothed towards the parent's by as many rows as the noise."""
    positive = np.maximum(counts, 0.0)
    total = positive.sum() + sd
    return tuple(((positive + sd * np.array(parent)) / total).tolist()) if total > 0 else parent
