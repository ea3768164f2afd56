"""The models that show what a release is worth: small boosted trees, or the learner that a release keeps.

What a model is asked and what it is given, as the schema declares it: nothing here is read off rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from scipy.special import expit, softmax

from discreet.release.invariant import LogisticLearner, MultinomialLearner, RidgeLearner

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from discreet._types import AnyArray, Bools, Floats
    from discreet.release.invariant import InvariantLearner
    from discreet.schema import Column, Schema

TREES, LEAVES = 100, 6
BOOSTING = f"gradient boosting, {TREES} trees of up to {LEAVES} leaves"
"""Small trees: on noisy rows they lose less than large ones, and hardly anything on true ones."""
_MOST_IN_LEAF = 50
_LARGEST_RATIO = 20  # a leaf holds at least a twentieth of the rows, until that is 50


def one_thread() -> AbstractContextManager[Any]:
    """Keep scikit-learn to one thread.

    On a busy machine, threads that wait for one another cost more than they bring: ten times, measured.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    limits: AbstractContextManager[Any] = threadpool_limits(1, user_api="openmp")
    return limits


class Model(Protocol):
    """A trained model.

    Attributes
    ----------
    chances : bool
        Whether its scores of classes are probabilities.
    """

    @property
    def chances(self) -> bool:
        """Whether its scores of classes are probabilities."""
        ...

    def predict(self, X: Floats) -> Floats:
        """Return a score for each row and class, or a number for each row."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantModel:
    """The best guess without looking at a row: the most frequent class, or the mean."""

    guess: Floats
    chances: bool = True

    def predict(self, X: Floats) -> Floats:
        """Say the same of every row."""
        return np.tile(self.guess, (len(X), 1)) if self.guess.ndim else np.full(len(X), self.guess)


def fit_majority(y: AnyArray, question: PredictionTask) -> ConstantModel:
    """Return the shares of the classes, or the mean."""
    if not question.n_classes:
        return ConstantModel(np.asarray(np.mean(y) if len(y) else 0.0))
    counts = np.bincount(y, minlength=question.n_classes)
    return ConstantModel(counts / max(1, counts.sum()))


@dataclass(frozen=True, slots=True)
class BoostedModel:
    """BoostedModel trees."""

    estimator: Any
    n_classes: int
    chances: bool = True

    def predict(self, X: Floats) -> Floats:
        """Return chances of every declared class, 0 for those never seen; or numbers."""
        if not len(X):
            return np.zeros((0, self.n_classes) if self.n_classes else 0)
        with one_thread():
            if not self.n_classes:
                return np.asarray(self.estimator.predict(X))
            out = np.zeros((len(X), self.n_classes))
            out[:, self.estimator.classes_] = self.estimator.predict_proba(X)
            return out


def fit_boosted(
    X: Floats, y: AnyArray, question: PredictionTask, features: FeatureMatrix, seed: int
) -> Model:
    """Train small boosted trees; a constant where there is nothing to tell apart."""
    # Here, so that nobody who learns nothing waits for scikit-learn.
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if len(y) < 2 or (y == y[0]).all():
        return fit_majority(y, question)
    kind = HistGradientBoostingClassifier if question.n_classes else HistGradientBoostingRegressor
    estimator = kind(
        max_iter=TREES,
        max_leaf_nodes=LEAVES,
        min_samples_leaf=int(np.clip(len(y) // _LARGEST_RATIO, 1, _MOST_IN_LEAF)),
        categorical_features=features.unordered if features.unordered.any() else None,
        max_bins=features.bins,
        early_stopping=False,
        random_state=seed,
    )
    with one_thread():
        return BoostedModel(estimator.fit(X, y), question.n_classes)


@dataclass(frozen=True, slots=True)
class LinearModel:
    """The model of the learner that an invariant release keeps.

    Attributes
    ----------
    weights : array of shape (n_columns, n_outputs)
    intercept : array of shape (n_outputs,)
    """

    weights: Floats
    intercept: Floats
    n_classes: int
    learner: InvariantLearner

    @property
    def chances(self) -> bool:
        """Whether its scores of classes are probabilities."""
        return isinstance(self.learner, LogisticLearner | MultinomialLearner)

    def predict(self, X: Floats) -> Floats:
        """Return scores of classes, or numbers."""
        scores = X @ self.weights + self.intercept
        if not self.n_classes:
            return np.asarray(scores[:, 0])
        if scores.shape[1] == 1:
            both = np.column_stack([-scores[:, 0], scores[:, 0]])
            return np.asarray(expit(both)) if self.chances else both
        return np.asarray(softmax(scores, axis=1)) if self.chances else np.asarray(scores)

    def distance(self, other: LinearModel) -> float:
        """Return the largest difference of a weight, relative to the largest weight."""
        size = max(float(np.abs(self.weights).max()), np.finfo(float).tiny)
        return float(np.abs(self.weights - other.weights).max()) / size


def fit_linear(
    learner: InvariantLearner | None, X: Floats, y: AnyArray, question: PredictionTask
) -> LinearModel:
    """Train the named learner to machine precision; without one, least squares, for each class its own."""
    if learner is not None:
        solution = learner.solve(X, y, question.n_classes)
        return LinearModel(solution.weights, solution.intercept, question.n_classes, learner)
    ridge = RidgeLearner()
    targets = [(y == k).astype(np.float64) for k in range(question.n_classes)] or [y]
    parts = [ridge.solve(X, target, 0) for target in targets]
    return LinearModel(
        np.column_stack([part.weights for part in parts]),
        np.concatenate([part.intercept for part in parts]),
        question.n_classes,
        ridge,
    )


WIDE = 100
BINS, BINS_IF_WIDE = 255, 64
"""How many values of a column a tree tells apart: with many columns, that is where the time goes.

Lists with more levels enter a model as positions in their declared order.
"""


@dataclass(frozen=True, slots=True)
class PredictionTask:
    """The target of a table.

    Attributes
    ----------
    column : Column
        What is predicted.
    n_classes : int
        How many classes are declared, "missing" left out; 0 where a number is predicted.
    """

    column: Column
    n_classes: int

    @classmethod
    def from_column(cls, column: Column, *, as_number: bool = False) -> PredictionTask:
        """Ask for a class of a list, or for a number; ``as_number`` for a list of whole numbers."""
        if not column.is_category or as_number:
            return cls(column, 0)
        return cls(column, sum(level is not None for level in column.levels))

    @property
    def task(self) -> Literal["classification", "regression"]:
        """Whether a class or a number is predicted."""
        return "classification" if self.n_classes else "regression"

    @property
    def unit(self) -> float:
        """What a predicted 1 is worth in the column's own unit."""
        return 1.0 if self.column.is_category else self.column.width

    def answers(self, rows: Mapping[str, AnyArray]) -> AnyArray:
        """Return classes, -1 where missing, or numbers in units of the declared range, NaN where missing."""
        values = rows[self.column.name]
        if self.n_classes:
            return np.where(values < self.n_classes, values, -1).astype(np.int64)
        if self.column.is_category:
            return np.array(self.column.levels, np.float64)[values]
        return np.asarray((values - self.column.range[0]) / self.column.width)

    def known(self, answers: AnyArray) -> Bools:
        """Tell which answers are not missing."""
        return np.asarray(answers >= 0 if self.n_classes else ~np.isnan(answers))


class FeatureMatrix:
    """The columns that a model sees.

    A number is scaled by its declared range, a missing one is the public fill and has a flag beside it; a
    list is the position in its levels, to be treated as a set of levels without order.

    Parameters
    ----------
    schema : Schema
        Of the published table.

    Attributes
    ----------
    unordered : array of bool
        Which columns of the matrix are lists.
    bins : int
        How many values of a column a tree tells apart.
    """

    def __init__(self, schema: Schema) -> None:
        self._columns = schema.features
        self.bins = BINS if len(self._columns) <= WIDE else BINS_IF_WIDE
        self.unordered: Bools = np.array(
            [
                kind
                for c in self._columns
                for kind in [
                    c.is_category and len(c.levels) <= self.bins,
                    *([False] * bool(c.missing_flag)),
                ]
            ],
            np.bool_,
        )

    def matrix(self, rows: Mapping[str, AnyArray]) -> Floats:
        """Return one row of numbers for each row of the table."""
        made: list[AnyArray] = []
        for c in self._columns:
            values = rows[c.name]
            if c.is_category:
                made.append(values.astype(np.float64))
                continue
            lower, _ = c.range
            if c.missing_flag is None:
                made.append((values - lower) / c.width)
                continue
            missing = np.isnan(values)
            made += [(np.where(missing, c.fill, values) - lower) / c.width, missing.astype(np.float64)]
        return np.column_stack(made)
