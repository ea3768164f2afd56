"""The estimator: an additive model whose parts follow from public facts."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.errors import DataError
from discreet.learn._bins import EDGES, Bins
from discreet.learn._sums_base import FLAG, SumsClassifier, SumsEstimator
from discreet.learn.budget_schedule import BudgetSchedule
from discreet.learn.classifier._additive import AdditiveModel
from discreet.learn.classifier._curves import Curve, combine_totals, make_curves, prior_covariance
from discreet.learn.classifier._rules import (
    CONSTANT,
    LEAST_LINEAR_PART,
    MANY_CLASSES_WEIGHT,
    TRIED_WEIGHTS,
    UNKNOWN_COUNT_SHARE,
    Plan,
    PublicFacts,
    check_cells,
    curve_weight,
    describe_plan,
    gradient_names,
    largest_weight,
    make_plan,
    trial_names,
)
from discreet.learn.classifier._weights import (
    LARGEST_VALUE,
    StageRows,
    WeightQueries,
    linear_part,
)
from discreet.learn.feature_map import FeatureMap
from discreet.learn.paid_score import PAID_SCORE, SCORE_SHARE, ScoreCounts
from discreet.privacy import PureDP
from discreet.query import Answer, Histogram, Marginals, PredictionCounts
from discreet.query.curation import Curation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import Floats
    from discreet.learn.arguments import Constraint
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import NoisySums
    from discreet.query.costs import CostedTable, CostModel
    from discreet.schema import Schema


class PrivateClassifier(AdditiveModel):
    """Additive model whose cells, stages and shrinkage follow from public facts: the default classifier.

    The score of a class is its prior and a step curve for each column. One query counts the classes and one
    the cells of every column by class. Curves are shrunk as far as noise explains them, down to the most
    common class for everyone. With enough rows, noisy gradients then weigh the curves of two classes and add
    a line for each number. Nothing has to be chosen: all rules are on the declared columns, the public number
    of rows and the promise.

    Parameters
    ----------
    privacy : ApproxDP, ZCDP, GaussianDP, PureDP or NoPromise
        Promise of the fitted model. Only :class:`NoPromise` has no noise.
    bounds, schema
        Declared ranges of the columns of a matrix, or else a schema of the table; one of the two.
    classes : sequence of labels, optional
        Declared labels; by default the levels of the schema's target.
    edges : mapping of str to sequence of float, optional
        Points at which the cells of a number begin, in rising order. By default those in the schema, and for
        other numbers a public grid with a cell for the bound, the finer the more rows there are for the
        noise.
    floor : bool
        Whether all curves are lowered by one factor where there are few rows for the noise and the most
        common class is a good answer, so that the model falls back to it. Without it a model may be worse.
    paid_score : bool or "table"
        Whether a twentieth of the promise pays for the accuracy of the model on its rows, which may then be
        published. "table" asks for rows by class and named class instead, with more noise. It is left out
        where there are too few rows for it, which is known before anything is charged.
    ledger : Ledger, optional
        Ledger that is charged before any noise is drawn; by default only the receipts record it.
    random_state : int, optional
        A seed, for tests only: noise from a known seed protects no one.

    Attributes
    ----------
    curves_ : dict of str to Curve
        Effect of each column: for its cells, how much more likely they make each class, as logarithms. In two
        stages of two classes, that of a number is what its line leaves.
    weights_, weights_sd_ : array of shape (n_columns,)
        Factor of each column's curve; the same for all columns in one stage. Its standard deviation, 0 where
        it follows from public facts.
    lines_ : dict of str to tuple of float
        Scale on which each number is read beside its curve: its origin as a fraction of the declared range,
        and the number of units in the range. Empty in one stage.
    slopes_ : array of shape (n_lines, n_classes)
        What a unit of each of these adds to the score of each class.
    slopes_sd_ : array of shape (n_lines,)
        Standard deviation of what it adds to the log-odds of two classes, or to the score of each of more.
    intercept_ : array of shape (n_classes,)
        Score of each class before any column is looked at: the logarithm of its share.
    factor_ : float
        Factor by which caution lowers all curves in one stage, as a good vote has something to lose; 1 where
        it does not.
    signal_ : float
        Number of rows over the noise on one cell, on which the rules are; infinite without noise.
    stages_ : int
        1 for curves alone, 2 for curves and their weights. Where rows allow two and the curves are too bent
        for lines to help, it is 1, and the tables were asked for twice.
    score_ : ModelScore or None
        Paid accuracy with its interval and verdict; None where it was not asked.
    status_ : str
        What to expect of the model by public facts, and which stages ran, in words.
    cells_ : Bins
        Public cells of each column.
    classes_ : array
        The declared classes, sorted.
    layout_ : FeatureMap
        Columns that the model reads, and their coordinates.
    answers_ : dict of str to Answer
        The noisy answers, with the standard deviation of their noise.
    promises_ : tuple of Promise
        Promises that hold for all queries together.
    receipts_ : tuple of Receipt
        Receipts of the charges, one for each query.
    split_ : dict of str to float
        Share of the promise that each query got.

    Privacy
    -------
    A row is in one class and in one cell of each of ``d`` columns: the squared sensitivity of the tables is
    ``2 d`` under replace-one and ``d`` under add-remove, however many cells there are, and ``2`` and ``1``
    for the class counts. Curves are computed from the noisy answers, so that they are public when rows are
    asked about by them: with rows clipped to the length ``B``, the matrix
    changes by ``sqrt(2) B**2`` and a gradient by ``2 B`` under replace-one, by ``B**2`` and ``B`` under
    add-remove. The score is the number of rows that are right, which one row changes by 1.

    Reference
    ---------
    docs/explanation/theorems/classifier.md, sulq-sensitivity.md, marginals.md.

    Examples
    --------
    >>> from discreet import ApproxDP
    >>> X = np.column_stack([np.arange(4000) % 50, np.arange(4000) % 7])
    >>> y = np.where(X[:, 0] > 20, "old", "young")
    >>> model = PrivateClassifier(privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=([0, 0], [50, 7]),
    ...                           classes=["old", "young"], random_state=1)
    >>> model.fit(X, y).score(X, y) > 0.95
    True
    """

    name: ClassVar[str] = "classifier"
    theorems: ClassVar[tuple[str, ...]] = ("classifier", "sulq-sensitivity", "marginals")
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsEstimator.common_constraints,
        "edges": EDGES,
        "floor": FLAG,
        "paid_score": PAID_SCORE,
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *SumsEstimator.common_saved, "classes_", "curves_", "weights_", "weights_sd_", "lines_", "slopes_",
        "slopes_sd_", "intercept_", "factor_", "signal_", "stages_", "cells_", "score_", "status_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **SumsClassifier._decoders,
        "cells_": Bins.from_dict,
        "curves_": lambda curves: {name: Curve.from_dict(curve) for name, curve in curves.items()},
        "signal_": lambda signal: math.inf if signal is None else signal,
        "lines_": lambda lines: {name: tuple(line) for name, line in lines.items()},
    }

    def __init__(
        self,
        *,
        privacy: Privacy,
        bounds: Any = None,
        schema: Schema | None = None,
        classes: Any = None,
        edges: Mapping[str, Sequence[float]] | None = None,
        floor: bool = True,
        paid_score: bool | str = True,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        """Store the parameters; they are checked in :meth:`fit`."""
        self.privacy = privacy
        self.bounds = bounds
        self.schema = schema
        self.classes = classes
        self.edges = edges
        self.floor = floor
        self.paid_score = paid_score
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Count the classes, then the cells of all columns by class, and make curves of them."""
        assert target is not None
        n_rows = self._check_size(sums, layout)
        known = n_rows is not None
        facts = self._public_facts(sums, layout, target, math.inf if n_rows is None else n_rows, owner)
        wants_score = self.paid_score is not False
        plan = make_plan(facts, wants_score=wants_score, count_share=None if known else UNKNOWN_COUNT_SHARE)
        schedule = BudgetSchedule(sums, self.privacy, plan.shares, owner=owner)
        answer = schedule.ask("classes", Histogram((target,)))
        counts = self._by_class(np.asarray(answer.value), sums.schema, target)
        if not known:
            # The rules are on the number of rows that was just paid for.
            facts = self._public_facts(sums, layout, target, max(float(counts.sum()), 1.0), owner)
            plan = _shorten_plan(schedule, make_plan(facts, wants_score=wants_score), plan)
        self.signal_, self.stages_ = facts.signal, plan.stages
        totals = self._learn_curves(schedule, layout, target, plan, counts, facts.n_rows)
        bent = math.isfinite(facts.signal) and linear_part(self.curves_, self.cells_) < LEAST_LINEAR_PART
        again = plan.stages == 2 and bent
        if again:
            # What is left of the promise says more about bent curves than about their weights.
            schedule.merge(["products", *gradient_names()], "tables again")
            totals = self._learn_curves(schedule, layout, target, plan, counts, facts.n_rows, again=True)
            self.stages_ = 1
        elif plan.stages == 1 and set(trial_names()) <= set(schedule.split):
            self._choose_weight(schedule, target, totals)
        elif plan.stages == 2:
            self._learn_weights(schedule, target, facts.n_rows)
        self.status_ = describe_plan(
            facts, plan, self.privacy, wants_score=wants_score, floor=self.floor, again=again
        )
        if plan.scored:
            # The totals are at least as precise as the class counts that are a part of them.
            self._ask_score(schedule, target, ScoreCounts(totals, float(np.max(answer.sd)), answer.law))
        return schedule

    def plan_fit(self, sums: CostedTable | CostModel) -> tuple[str, dict[str, float]]:
        """Return what to expect of a fit, in words, and its queries; nothing is asked or charged.

        Parameters
        ----------
        sums : Database, RemoteDatabase or CostModel
            Table, or what is public about it: its schema, its neighbors and its number of rows.

        Returns
        -------
        expectation : str
            What the model is likely to find, by public facts.
        shares : dict of str to float
            Share of the promise that each query gets. Where the number of rows is private, it is paid for
            first, and later queries may be left out.
        """
        trial = copy.copy(self)  # which takes the classes of the schema as if it were fitted
        layout, target = FeatureMap.from_schema(sums.schema), trial._database_target(sums.schema)
        assert target is not None
        public: Any = sums
        n_rows = trial._check_size(public, layout)
        known = math.inf if n_rows is None else n_rows
        facts = trial._public_facts(public, layout, target, known, None)
        wants_score = self.paid_score is not False
        plan = make_plan(
            facts, wants_score=wants_score, count_share=UNKNOWN_COUNT_SHARE if n_rows is None else None
        )
        if n_rows is None:
            words = "What to expect depends on the number of rows, which is private and paid for first."
        else:
            words = describe_plan(facts, plan, self.privacy, wants_score=wants_score, floor=self.floor)
        return words, plan.shares

    def _check_size(self, sums: NoisySums, layout: FeatureMap) -> int | None:
        """Return the number of rows, None if it is private; refuse tables that are empty or too wide."""
        if sums.n_rows == 0:
            raise DataError("A table for PrivateClassifier must have at least one row, and has none.")
        sizes = Bins.from_features(layout, self.edges).sizes
        check_cells({name: size * len(self._levels) for name, size in sizes.items()})
        return sums.n_rows

    def _public_facts(
        self, sums: NoisySums, layout: FeatureMap, target: str, n_rows: float, owner: str | None
    ) -> PublicFacts:
        """Return what the rules are on, from the declaration, the promise and the number of rows."""
        # Standard deviations under the whole promise; nothing is asked.
        whole = BudgetSchedule(sums, self.privacy, {"all": 1.0}, owner=owner)
        count_sd = float(np.max(whole.expected_sd("all", Histogram((target,)))))
        cells = Bins.from_features(layout, self.edges, level=0)
        sd = float(np.max(whole.expected_sd("all", _tables_of(target, cells))))
        split = {"score": SCORE_SHARE, "model": 1 - SCORE_SHARE}
        score = PredictionCounts(target, self._levels, (0.0,) * len(self._levels), by_class=self._by_table)
        scored = BudgetSchedule(sums, self.privacy, split, owner=owner)
        score_sd = float(np.max(scored.expected_sd("score", score)))
        # A replaced row may leave one class and join another, which moves two counts.
        moved = math.sqrt(2.0 if sums.neighbors == "replace-one" else 1.0)
        return PublicFacts(
            n_rows=n_rows,
            n_classes=len(self._levels),
            mu=moved / count_sd if count_sd else math.inf,
            signal=n_rows / sd if sd else math.inf,
            # The right rows of a table are the sum of its diagonal.
            score_sd=score_sd * (math.sqrt(len(self._levels)) if self._by_table else 1.0),
            n_columns=len(layout.names),
            lines=2 * sum(column.is_number for column in layout.schema.columns) >= len(layout.names),
            gaussian=not isinstance(self.privacy, PureDP),
        )

    def _by_class(self, values: Floats, schema: Schema, target: str) -> Floats:
        """Return an answer whose last axis is the target with its classes in the order of ``classes_``."""
        levels = Curation.from_schema(schema).column(target).levels
        return np.asarray(values[..., [levels.index(level) for level in self._levels]])

    def _learn_curves(
        self,
        schedule: BudgetSchedule,
        layout: FeatureMap,
        target: str,
        plan: Plan,
        counts: Floats,
        n_rows: float,
        *,
        again: bool = False,
    ) -> Floats:
        """Ask for the tables of all columns, set the prior, the curves and the cells; return class totals."""
        schema = schedule.sums.schema
        cells = Bins.from_features(layout, self.edges, level=plan.level)
        question = _tables_of(target, cells)
        answer = schedule.ask("tables again" if again else "tables", question)
        if again:
            # The first tables are paid for: the mean of both answers has less noise than either.
            answer = Answer.merge(schedule.answers["tables"], answer)
        sd = float(np.max(answer.sd))
        split = question.split(np.asarray(answer.value), Curation.from_schema(schema))
        tables = [self._by_class(table, schema, target) for table in split]
        count_sd = float(np.max(schedule.answers["classes"].sd))
        totals = combine_totals(counts, count_sd, tables, sd, n_rows)
        priors = [
            prior_covariance(size, ordered=column.is_number, missing=column.is_number and not column.required)
            for size, column in zip(cells.sizes.values(), layout.schema.columns, strict=True)
        ]
        curves = make_curves(tables, priors, totals, sd)
        self.cells_ = cells
        self.curves_ = dict(zip(layout.names, curves, strict=True))
        self._set_weight(largest_weight(totals), totals)
        self.weights_sd_ = np.zeros(len(curves))
        self.lines_, self.slopes_, self.slopes_sd_ = {}, np.zeros((0, len(totals))), np.zeros(0)
        self.intercept_ = np.log(totals / totals.sum())
        return totals

    def _set_weight(self, largest: float, totals: Floats) -> None:
        """Give all curves one weight, lowered by caution."""
        weight = curve_weight(self.signal_, totals, largest) if self.floor else largest
        self.factor_ = weight / largest
        self.weights_ = np.full(len(self.curves_), weight)

    def _choose_weight(self, schedule: BudgetSchedule, target: str, totals: Floats) -> None:
        """Ask how many rows are right under each weight of the curves, and take the best."""
        right = {}
        for weight, name in zip(TRIED_WEIGHTS, trial_names(), strict=True):
            self._set_weight(weight, totals)
            right[weight] = float(schedule.ask(name, self._count_query(target)).value)
        self._set_weight(max(right, key=right.__getitem__), totals)

    def _learn_weights(self, schedule: BudgetSchedule, target: str, n_rows: float) -> None:
        """Ask for the weights of curves and lines, and set them and the intercept.

        Two classes have weights of curves and of lines; more have lines by class beside curves that all have
        one weight.
        """
        n_classes = len(self._levels)
        self.curves_ = {
            name: replace(curve, values=np.clip(curve.values, -LARGEST_VALUE, LARGEST_VALUE))
            for name, curve in self.curves_.items()
        }
        rows = StageRows.from_curves(self.curves_, self.cells_, n_classes)
        if rows.size == 1:
            return  # All curves are flat and no column is a number: there is nothing to weigh.
        queries = WeightQueries(schedule, rows, np.exp(self.intercept_), n_rows)
        if n_classes == 2:
            found, sd = queries.learn_odds(target, self._levels[1])
            weights = dict(zip(rows.scores, found, strict=False))
            self.weights_ = np.array([weights.get(name, 0.0) for name in self.curves_])
            spreads = dict(zip(rows.scores, sd, strict=False))
            self.weights_sd_ = np.array([spreads.get(name, 0.0) for name in self.curves_])
            self.curves_, self.slopes_sd_ = rows.curves, sd[len(weights) : -1]
            mean = math.fsum(weights[name] * rows.means[name] for name in weights)
            # Half for each class, so that probabilities are those of the difference.
            slopes = np.outer(found[len(weights) :], [-0.5, 0.5])
            intercept = self.intercept_ + np.array([0.5, -0.5]) * mean
        else:
            self.weights_ = np.full(len(self.curves_), MANY_CLASSES_WEIGHT)
            means = [curve.shares @ curve.values for curve in self.curves_.values()]
            intercept = self.intercept_ - MANY_CLASSES_WEIGHT * np.sum(means, axis=0)
            self.intercept_ = intercept
            slopes, sd = queries.learn_lines(self._curves_query(target))
            self.slopes_sd_ = sd[:-1]
        self.lines_, self.slopes_ = rows.lines, slopes[:-1]
        self.intercept_ = intercept + CONSTANT * slopes[-1]

    def _pack(self, name: str, value: Any, arrays: dict[str, Any]) -> Any:
        if name == "curves_":
            return {column: curve.to_dict() for column, curve in value.items()}
        if name == "lines_":
            return {column: list(line) for column, line in value.items()}
        if name == "signal_":
            return None if math.isinf(value) else float(value)
        return super()._pack(name, value, arrays)


def _tables_of(target: str, cells: Bins) -> Marginals:
    """Return the query for the table of every column by class."""
    names = cells.layout.names
    return Marginals([(name, target) for name in names], cells.edges_of(names))


def _shorten_plan(schedule: BudgetSchedule, decided: Plan, planned: Plan) -> Plan:
    """Return the plan for a number of rows that was estimated, with the shares of passes left out moved."""
    left_out = [name for name in planned.shares if name not in decided.shares]
    schedule.merge(left_out, "tables")
    return decided
