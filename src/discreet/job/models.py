"""The models that show what a release is worth: small boosted trees, or the learner that a release keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy.special import expit, softmax

from discreet.release.invariant import LogisticLearner, MultinomialLearner, RidgeLearner

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from discreet._typing import AnyArray, Floats
    from discreet.job.questions import Features, Question
    from discreet.release.invariant import InvariantLearner

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
class Constant:
    """The best guess without looking at a row: the most frequent class, or the mean."""

    guess: Floats
    chances: bool = True

    def predict(self, X: Floats) -> Floats:
        """Say the same of every row."""
        return np.tile(self.guess, (len(X), 1)) if self.guess.ndim else np.full(len(X), self.guess)


def fit_majority(y: AnyArray, question: Question) -> Constant:
    """Return the shares of the classes, or the mean."""
    if not question.n_classes:
        return Constant(np.asarray(np.mean(y) if len(y) else 0.0))
    counts = np.bincount(y, minlength=question.n_classes)
    return Constant(counts / max(1, counts.sum()))


@dataclass(frozen=True, slots=True)
class Boosted:
    """Boosted trees."""

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


def fit_boosted(X: Floats, y: AnyArray, question: Question, features: Features, seed: int) -> Model:
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
        return Boosted(estimator.fit(X, y), question.n_classes)


@dataclass(frozen=True, slots=True)
class Linear:
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

    def distance(self, other: Linear) -> float:
        """Return the largest difference of a weight, relative to the largest weight."""
        size = max(float(np.abs(self.weights).max()), np.finfo(float).tiny)
        return float(np.abs(self.weights - other.weights).max()) / size


def fit_linear(learner: InvariantLearner | None, X: Floats, y: AnyArray, question: Question) -> Linear:
    """Train the named learner to machine precision; without one, least squares, for each class its own."""
    if learner is not None:
        solution = learner.solve(X, y, question.n_classes)
        return Linear(solution.weights, solution.intercept, question.n_classes, learner)
    ridge = RidgeLearner()
    targets = [(y == k).astype(np.float64) for k in range(question.n_classes)] or [y]
    parts = [ridge.solve(X, target, 0) for target in targets]
    return Linear(
        np.column_stack([part.weights for part in parts]),
        np.concatenate([part.intercept for part in parts]),
        question.n_classes,
        ridge,
    )
