"""Naive Bayes from one question: a noisy table of every column by class."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import special

from discreet.learn._bins import BINS_OR_NONE, EDGES, Bins, BinsClassifier, grid_level, root_tables
from discreet.learn._sums_base import SumsClassifier
from discreet.query import PredictionCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.learn.arguments import Constraint
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.feature_map import FeatureMap
    from discreet.ledger import Ledger
    from discreet.privacy.budget_split import Privacy
    from discreet.query import NodeTables, NoisySums
    from discreet.schema import Schema

DEFAULT_LEVEL = 1
"""Level of the public grid where the number of rows is not public."""


class PrivateNaiveBayes(BinsClassifier):
    """Naive Bayes on declared cells: the class whose cells make a row most likely, columns taken apart.

    Parameters
    ----------
    privacy : ApproxDP, ZCDP, GaussianDP, PureDP or NoPromise
        Promise of the fitted model. Only :class:`NoPromise` has no noise.
    bounds, schema
        Declared ranges of the columns of a matrix, or else a schema of the table; one of the two.
    classes : sequence of labels, optional
        Declared labels; by default the levels of the schema's target.
    edges : mapping of str to sequence of float, optional
        Points at which the cells of a number begin, in rising order; by default those in the schema.
    n_bins : int, optional
        Number of cells of all other numbers: of equal widths, or by ratios for amounts; see
        :func:`~discreet.learn._bins.public_edges`. By default a public grid with a cell for the bound, the
        finer the more rows there are for the noise: :func:`~discreet.learn._bins.public_grid`.
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
    class_log_prior_ : array of shape (n_classes,)
        Logarithm of the noisy share of each class.
    cell_log_prob_ : array of shape (n_cells, n_classes)
        For the cells of all columns, one after the other, the logarithm of their noisy share in each class.
    cells_ : Bins
        Public cells in which rows are counted.
    score_ : ModelScore or None
        Paid accuracy with its interval and verdict; None where it was not asked.
    classes_ : array
        The declared classes, sorted.
    layout_ : FeatureMap
        Columns that the model reads, and their coordinates.
    answers_ : dict of str to Answer
        The noisy counts, with the standard deviation of their noise.
    promises_ : tuple of Promise
        Promises that hold for the fitted model.
    receipts_ : tuple of Receipt
        Receipts of the charges, one for each query.
    split_ : dict of str to float
        Share of the promise that each query got; all of it goes to the tables unless a score is paid for.

    Privacy
    -------
    A row is in one cell of each of ``a`` columns: the squared sensitivity of all tables together is ``2 a``
    under replace-one and ``a`` under add-remove, however many cells there are. Cells without rows are
    counted like all others. Everything after the one question is computed from its noisy answer.

    Reference
    ---------
    Section 4.5 of Blum, Dwork, McSherry and Nissim (2005), as one vector of statistical queries:
    docs/explanation/theorems/sulq-3.md, sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import ApproxDP
    >>> X = np.column_stack([np.arange(4000) % 50, np.arange(4000) % 7])
    >>> y = np.where(X[:, 0] > 20, "old", "young")
    >>> model = PrivateNaiveBayes(privacy=ApproxDP(epsilon=1.0, delta=1e-6), bounds=([0, 0], [50, 7]),
    ...                           classes=["old", "young"], random_state=1)
    >>> model.fit(X, y).score(X, y) > 0.95
    True
    """

    name: ClassVar[str] = "naive-bayes"
    theorems: ClassVar[tuple[str, ...]] = ("sulq-3", "sulq-sensitivity")
    _constraints: ClassVar[Mapping[str, Constraint]] = {
        **SumsClassifier.common_constraints,
        "edges": EDGES,
        "n_bins": BINS_OR_NONE,
    }
    _saved_attributes: ClassVar[tuple[str, ...]] = (
        *SumsClassifier.common_saved, "class_log_prior_", "cell_log_prob_", "cells_",
    )  # fmt: skip
    _decoders: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **SumsClassifier._decoders,
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
        self.paid_score = paid_score
        self.ledger = ledger
        self.random_state = random_state

    def _learn(
        self, sums: NoisySums, layout: FeatureMap, target: str | None, owner: str | None
    ) -> BudgetSchedule:
        """Query the tables of all columns by class, and set smoothed log-probabilities."""
        assert target is not None
        schedule = self._make_schedule(sums, {"tables": 1.0}, target, owner)
        cells, question = self._choose_query(sums, layout, target, schedule)
        answer = schedule.ask("tables", question)
        sd = float(np.max(answer.sd))
        (tables,) = self._tables(question, answer, sums.schema)
        counts = list(tables.values())
        # Every table counts the same rows by class; a margin over fewer cells is less noisy.
        weights = [1 / len(table) for table in counts]
        totals = np.average([table.sum(axis=0) for table in counts], axis=0, weights=weights)
        self.class_log_prior_ = np.log(_smooth_shares(totals, sd))
        self.cell_log_prob_ = np.log(np.concatenate([_smooth_shares(table, sd) for table in counts]))
        self.cells_ = cells
        self._pay_score(schedule, target)
        return schedule

    @property
    def _n_parameters(self) -> int:
        return sum(size - 1 for size in self.cells_.sizes.values()) * (len(self.classes_) - 1)

    def _count_query(self, target: str, *, by_class: bool = False) -> PredictionCounts:
        ends = np.cumsum(list(self.cells_.sizes.values()))
        tables = np.split(self.cell_log_prob_, ends[:-1])
        return PredictionCounts(
            target,
            self._levels,
            self.class_log_prior_.tolist(),
            {name: table.tolist() for name, table in zip(self.cells_.sizes, tables, strict=True)},
            self.cells_.edges,
            by_class=by_class,
        )

    def _choose_query(
        self, sums: NoisySums, layout: FeatureMap, target: str, schedule: BudgetSchedule
    ) -> tuple[Bins, NodeTables]:
        """Return the cells, their number chosen by public facts alone, and the query of their tables."""
        if self.n_bins is not None:
            cells = Bins.from_features(layout, self.edges, int(self.n_bins))
            return cells, root_tables(target, cells)
        level = DEFAULT_LEVEL
        if sums.n_rows is not None:
            # The noise does not depend on the number of cells.
            coarse = root_tables(target, Bins.from_features(layout, self.edges, level=0))
            sd = float(np.max(schedule.expected_sd("tables", coarse)))
            level = grid_level(sums.n_rows / sd if sd else math.inf, len(self._levels))
        cells = Bins.from_features(layout, self.edges, level=level)
        return cells, root_tables(target, cells)

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """Return for each row and class the logarithm of their joint probability, as the model sees it."""
        codes = self._cell_codes(X, "predict")
        starts = np.concatenate([[0], np.cumsum(list(self.cells_.sizes.values()))[:-1]])
        # The tables of all columns lie below one another: a cell is found by its code and its table.
        return np.asarray(self.class_log_prior_ + self.cell_log_prob_[codes + starts].sum(axis=1))

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class for each row, as the model sees it."""
        return np.asarray(special.softmax(self.predict_joint_log_proba(X), axis=1))

    def predict(self, X: Any) -> AnyArray:
        """Return the most probable class for each row."""
        logs = self.predict_joint_log_proba(X)
        return np.asarray(self.classes_[logs.argmax(axis=1)])


def _smooth_shares(counts: Floats, sd: float) -> Floats:
    """Return smoothed shares along the first axis, for each class.

    Notes
    -----
    ``(max(c, 0) + a / k) / (sum(max(c, 0)) + a)`` over ``k`` cells with ``a = max(1, sd)`` pseudo-rows.
    """
    positive = np.maximum(counts, 0.0)
    # As many as the noise, so that a cell of noise alone does not exclude a class.
    pseudo_rows = max(1.0, sd)
    return np.asarray((positive + pseudo_rows / len(positive)) / (positive.sum(axis=0) + pseudo_rows))
