"""From the first question to a weighted sample: asks, decides by the answers alone, and fits the model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError
from discreet.release.keystream import sampling_stream
from discreet.release.synthetic.arithmetic import add_along, add_up, divide
from discreet.release.synthetic.projection import independent, project, rake
from discreet.release.synthetic.questions import can_ask, to_margins
from discreet.release.synthetic.rows import ROUNDS, count_pairs, draw_sample, weigh_sample
from discreet.release.synthetic.sampling import draw_levels, fit_weights
from discreet.release.synthetic.selection import (
    LEAST_SIGMAS,
    NoiseBudget,
    choose_edges,
    choose_pairs,
    expected_fluctuation,
    find_tree,
)
from discreet.release.synthetic.tree import (
    OneWay,
    TreeModel,
    estimate_edge,
    estimate_one_way,
    estimate_pair,
    estimate_rows,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats
    from discreet.noise import Stream
    from discreet.release.synthetic.cells import ColumnCells
    from discreet.release.synthetic.hidden_classes import HiddenClasses
    from discreet.release.synthetic.plan import SyntheticPlan
    from discreet.release.synthetic.public import PublicRows
    from discreet.release.synthetic.questions import NoisyTable, Questions
    from discreet.release.synthetic.selection import Pair

_LEAST_REDRAWN = 4096
_LEAST_SIGMAS_OF_ROWS = 3


@dataclass(eq=False)
class Synthesis:
    """What the answers say: cells, tree, further tables, and a sample of rows with weights.

    Attributes
    ----------
    plan : SyntheticPlan
        Plan that the questions follow.
    cells : dict of str to ColumnCells
        Cells of every column, all of them settled.
    fine : dict of str to NoisyTable
        Noisy counts of fine cells, for the columns that have them.
    names : list of str
        Columns in the model other than the target, in their order.
    tree : TreeModel
        Counts of columns and tables along the tree.
    pairs : dict of (int, int) to array
        Fitted further tables of two columns.
    sample, classes : list of array, array
        Cells of the sampled rows for each column, and their classes.
    weights : array
        Weight of each sampled row.
    details : dict
        Facts about the decisions, as plain JSON values.
    public : PublicRows or None
        Columns whose rows are kept; None where there are none.
    kept, patterns : array of int
        Combination of public cells of every kept row, and of every sampled one.
    hidden : HiddenClasses or None
        Hidden classes that the sample is drawn from; None where it is drawn along the tree.
    """

    plan: SyntheticPlan
    cells: dict[str, ColumnCells]
    fine: dict[str, NoisyTable]
    names: list[str]
    tree: TreeModel
    pairs: dict[Pair, Floats] = field(default_factory=dict)
    sample: list[AnyArray] = field(default_factory=list)
    classes: AnyArray = field(default_factory=lambda: np.empty(0, np.uint16))
    weights: Floats = field(default_factory=lambda: np.empty(0))
    details: dict[str, Any] = field(default_factory=dict)
    public: PublicRows | None = None
    kept: AnyArray = field(default_factory=lambda: np.empty(0, np.int64))
    patterns: AnyArray = field(default_factory=lambda: np.empty(0, np.int64))
    hidden: HiddenClasses | None = None

    @property
    def n(self) -> float:
        """Number of rows, public or estimated."""
        return self.tree.one_way.n

    def redraw(self, cell: int | None, column: int | None, place: int, stream: Stream) -> Synthesis:
        """Return the model with a sample of rows that have a class, a cell of one column, or both.

        They are drawn along the tree with that column as its root, in proportion to the model of the tree,
        and weighted by what further tables say about that cell; or from the hidden classes, if there are any.

        Parameters
        ----------
        cell : int or None
            Index of the class that all sampled rows have; None for any.
        column : int or None
            Index of the column that is known; None for none.
        place : int
            Cell of that column.
        stream : Stream
            Source of the random words.
        """
        size = max(len(self.classes), _LEAST_REDRAWN)
        if self.hidden is not None:
            fixed = {} if column is None else {column: place}
            fixed |= {} if cell is None else {len(self.names): cell}
            *drawn, last = self.hidden.draw(size, stream, fixed)
            narrow: list[AnyArray] = [codes.astype(np.uint16) for codes in drawn]
            return replace(self, sample=narrow, classes=last.astype(np.uint16), weights=np.ones(size))
        shares = self.tree.one_way.classes if column is None else self.tree.one_way.columns[column][:, place]
        wanted = shares if cell is None else np.where(np.arange(len(shares)) == cell, 1.0, 0.0)
        classes = draw_levels(np.zeros(size, np.int64), wanted[None], stream)
        given = {} if column is None else {column: np.full(size, place, np.int64)}
        sample: list[AnyArray] = [codes.astype(np.uint16) for codes in self.tree.draw(classes, stream, given)]
        known: list[tuple[tuple[int, ...], Floats]] = []
        for pair, table in self.pairs.items():
            if column in pair:
                counts = np.take(table, place, axis=pair.index(column))
                known.append(((pair[1 - pair.index(column)],), counts * divide(size, add_up(counts))))
        weights = fit_weights(sample, known, 1.0, ROUNDS) if known else np.ones(size)
        return replace(self, sample=sample, classes=classes.astype(np.uint16), weights=weights)

    def to_dict(self) -> dict[str, Any]:
        """Return the model as plain JSON values: edges of the tree, further tables, expected errors."""
        edges = [
            [None if parent is None else self.names[parent], self.names[column]]
            for column, parent in self.tree.order
        ]
        further = [[self.names[a], self.names[b]] for a, b in self.pairs]
        public = {"public": list(self.plan.public)} if self.plan.public else {}
        return {"target": self.plan.target, **public, "tree": edges, "further": further, **self.details}


def synthesize(
    questions: Questions, plan: SyntheticPlan, budget: NoiseBudget, public: PublicRows | None = None
) -> Synthesis:
    """Return the model of a table: ask, decide by the answers, and fit a weighted sample to them.

    Parameters
    ----------
    questions : Questions
        Questions with their shares, none asked yet.
    plan : SyntheticPlan
        Plan from public facts.
    budget : NoiseBudget
        Budget of the whole promise, by which tables are chosen.
    public : PublicRows, optional
        Columns whose rows are kept; None where the plan has none.
    """
    cells, fine = _settle_cells(questions, plan, public)
    target = plan.target
    names = [name for name, one in cells.items() if name != target and one.size > 1]
    rounds = _Rounds(questions, plan, budget, cells, names, public)
    one_way = rounds.ask_one_way()
    edges: dict[Pair, Floats] = {}
    if "scores" in questions.names and names:
        one_way, edges = rounds.ask_tree(one_way)
    tree = TreeModel(one_way, edges)
    made = Synthesis(plan, cells, fine, names, tree, details=rounds.details, public=public)
    draw_sample(made, sampling_stream("sample", questions.digest()))
    if "more tables" in questions.names and names:
        rounds.ask_further(made)
    weigh_sample(made, sampling_stream("hidden classes", questions.digest()))
    return made


def _settle_cells(
    questions: Questions, plan: SyntheticPlan, public: PublicRows | None
) -> tuple[dict[str, ColumnCells], dict[str, NoisyTable]]:
    """Ask for fine counts where there are fine cells; return all cells, settled, and these counts."""
    cells = {one.name: one for one in plan.cells}
    if public is not None:
        for name in plan.public:
            if cells[name].has_fine:
                counts = public.count_cells([cells[name]], fine=True).values
                cells[name] = cells[name].settle(counts, 0.0, float(public.n))
    if "fine" not in questions.names:
        return cells, {}
    wanted = [(one.name,) for one in plan.cells if one.has_fine and one.name not in plan.public]
    tables = questions.ask_tables("fine", wanted, cells, fine=True)
    n = plan.n_rows if plan.n_rows is not None else max(estimate_rows(tables)[0], 1.0)
    fine = {table.columns[0]: table for table in tables}
    settled = {
        name: one.settle(fine[name].values, fine[name].sd, float(n)) if name in fine else one
        for name, one in cells.items()
    }
    return settled, fine


class _Rounds:
    """Rounds of questions after the cells are known."""

    def __init__(
        self,
        questions: Questions,
        plan: SyntheticPlan,
        budget: NoiseBudget,
        cells: dict[str, ColumnCells],
        names: list[str],
        public: PublicRows | None,
    ) -> None:
        """Keep what all rounds need: questions, budget, cells, and the sizes of the modelled columns."""
        self._public = public
        self._questions, self._plan, self._budget, self._cells = questions, plan, budget, cells
        self._names, self._sizes = names, [cells[name].size for name in names]
        self._target = plan.target
        self._depth = 1 if self._target is None else cells[self._target].size
        self._first: list[NoisyTable] = []
        self.details: dict[str, Any] = {}

    def _one_way_tables(self) -> list[tuple[str, ...]]:
        if self._target is None:
            return [(name,) for name in self._names]
        # A target alone is counted by itself.
        return [(name, self._target) for name in self._names] or [(self._target,)]

    def _pairs(self) -> list[Pair]:
        """Return all pairs of columns whose tables are not too large to be asked for."""
        one = [self._cells[name] for name in self._names]
        known = set(self._given)
        pairs = itertools.combinations(range(len(self._names)), 2)
        return [p for p in pairs if not known.issuperset(p) and can_ask([one[column] for column in p])]

    @property
    def _given(self) -> list[int]:
        """Modelled columns whose rows are kept."""
        return [i for i, name in enumerate(self._names) if name in self._plan.public]

    def _ask_one_way(
        self, name: str, weights: Sequence[float], tables: Sequence[tuple[str, ...]] = (), *more: float
    ) -> list[NoisyTable]:
        """Ask for the counts of every column, merge them with earlier ones, and return further tables.

        Tables of public columns alone are counted, not asked for: neighbors have the same.

        Parameters
        ----------
        name : str
            Name of the question among the shares.
        weights : sequence of float
            Weight of the counts of each column in the total error.
        tables : sequence of tuple of str
            Further tables of the same question.
        more : float
            Weight of each further table.
        """
        known: dict[tuple[str, ...], NoisyTable] = {}
        if self._public is not None:
            for table in self._one_way_tables():
                if all(column in self._plan.public for column in table):
                    known[table] = self._public.count_cells([self._cells[column] for column in table])
        weighted = [
            (table, weight)
            for table, weight in zip(self._one_way_tables(), weights, strict=True)
            if table not in known
        ]
        weighted += list(zip(tables, more, strict=True))
        answers = self._questions.ask_tables(
            name,
            [table for table, _ in weighted],
            self._cells,
            self._budget.precisions([weight for _, weight in weighted]),
        )
        further = len(answers) - len(tables)
        known |= {table.columns: table for table in answers[:further]}
        found = [known[table] for table in self._one_way_tables()]
        old = self._first or found
        merged = [a if a is b else a.merge(b) for a, b in zip(old, found, strict=True)]
        self._first = merged
        return answers[further:]

    def _share(self, name: str) -> float:
        return self._plan.shares[name]

    def _estimate(self) -> OneWay:
        """Return consistent counts from all one-way tables so far."""
        n = self._plan.n_rows
        if n is None:
            n_rows, sd = estimate_rows(self._first) if self._first else (0.0, 1.0)
            if n_rows < _LEAST_SIGMAS_OF_ROWS * sd:
                raise DataError(
                    "SyntheticRelease needs more rows than the noise on their number, and the noisy number "
                    "is not above three standard deviations. The questions so far are paid for; ask for a "
                    "weaker promise."
                )
            n = round(n_rows)
        if not self._names:
            counts = self._first[0].values if self._first else np.array([float(n)])
            return OneWay(float(n), project(counts, float(n)), [])
        ordered = [not self._cells[name].column.is_category for name in self._names]
        one_way = estimate_one_way(
            self._first, float(n), has_target=self._target is not None, ordered=ordered
        )
        public = self._public
        for column in self._given if public is not None else ():
            assert public is not None
            exact = public.count_cells([self._cells[self._names[column]]]).values
            fitted = rake(one_way.columns[column][None], one_way.classes[None], exact[None])
            one_way.columns[column] = fitted[0]
        return one_way

    def ask_one_way(self) -> OneWay:
        """Ask for the counts of every column by class."""
        tables = self._one_way_tables()
        if tables:
            sizes = self._sizes or [1]
            self._ask_one_way("one", [self._budget.weigh(size * self._depth) for size in sizes])
        return self._estimate()

    def ask_tree(self, one_way: OneWay) -> tuple[OneWay, dict[Pair, Floats]]:
        """Ask for scores of all pairs, then for the tables along a tree and for one-way counts again."""
        pairs = self._pairs()
        margins = {
            name: to_margins(counts) for name, counts in zip(self._names, one_way.columns, strict=True)
        }
        reference = {"kind": "given", "margins": margins, "by": self._target}
        named = [(self._names[a], self._names[b]) for a, b in pairs]
        scores, sd = np.empty(0), 0.0
        if pairs:
            scores, sd = self._questions.ask_scores("scores", named, self._cells, reference)
        dependence = [
            float(score) - expected_fluctuation(_independent_total(one_way, pair))
            for score, pair in zip(scores, pairs, strict=True)
        ]
        found = find_tree(pairs, dependence, LEAST_SIGMAS * sd, len(self._names), self._given)
        known = dict(zip(pairs, dependence, strict=True))
        others = len(self._cells) - 1
        one_weights = [self._budget.weigh(max(others, 1) * size * self._depth) for size in self._sizes]
        choice = choose_edges(
            self._budget,
            self._share("tables"),
            {pair: known[pair] for pair in found},
            self._sizes,
            self._depth,
            add_up(one_weights),
        )
        extra = () if self._target is None or not choice.by_class else (self._target,)
        tables = [(self._names[a], self._names[b], *extra) for a, b in choice.pairs]
        answers = self._ask_one_way("tables", one_weights, tables, *choice.weights)
        one_way = self._estimate()
        edges = {
            pair: estimate_edge(table, pair, one_way, has_class=choice.by_class)
            for pair, table in zip(choice.pairs, answers, strict=True)
        }
        strengths = [[self._names[a], self._names[b], known[a, b]] for a, b in choice.pairs]
        self.details.update(
            by_class=choice.by_class, expected_error=choice.error, score_sd=sd, dependence=strengths
        )
        return one_way, edges

    def ask_further(self, made: Synthesis) -> None:
        """Ask how far all other pairs are from the model, then for tables of those that are farthest."""
        pairs = [pair for pair in self._pairs() if pair not in made.tree.edges]
        one_way = made.tree.one_way
        models = count_pairs(made, pairs)
        found: dict[Pair, float] = {}
        if pairs:
            rounded = [np.floor(models[pair] + 0.5).astype(np.int64).ravel().tolist() for pair in pairs]
            named = [(self._names[a], self._names[b]) for a, b in pairs]
            scores, sd = self._questions.ask_scores(
                "scores again", named, self._cells, {"kind": "tables", "values": rounded}
            )
            missed = {
                pair: float(score) - expected_fluctuation(models[pair])
                for score, pair in zip(scores, pairs, strict=True)
            }
            found = {pair: rows for pair, rows in missed.items() if rows > LEAST_SIGMAS * sd}
        choice = choose_pairs(self._budget, self._share("more tables"), found, self._sizes)
        self.details["expected_error_again"] = choice.error
        if not choice.pairs:
            # What is promised is charged: better one-way counts are the best that is left to buy.
            weights = [self._budget.weigh(size * self._depth) for size in self._sizes]
            self._ask_one_way("more tables", weights)
            made.tree = TreeModel(self._estimate(), made.tree.edges)
            return
        tables = [(self._names[a], self._names[b]) for a, b in choice.pairs]
        answers = self._questions.ask_tables(
            "more tables", tables, self._cells, self._budget.precisions(choice.weights)
        )
        made.pairs = {
            pair: estimate_pair(table, pair, one_way, models[pair])
            for pair, table in zip(choice.pairs, answers, strict=True)
        }


def _independent_total(one_way: OneWay, pair: Pair) -> Floats:
    first, second = (one_way.columns[column] for column in pair)
    return add_along(independent(first, second), 0)
