"""Models that measure the usefulness of a release, and their scores.

Models are small boosted trees, the learner whose model a release preserves, or a constant. Targets and
features depend on the schema only, never on rows. Scores are accuracy with its interval, AUC and calibration,
or R2 and error; also by subgroup.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import scipy

from discreet.confidence import clopper_pearson
from discreet.ranks import rank_values
from discreet.release.invariant import LogisticLearner, MultinomialLearner, RidgeLearner
from discreet.report.findings import Score, Subgroup
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from discreet._types import AnyArray, Bools, Floats
    from discreet.release.invariant import InvariantLearner
    from discreet.schema import Column, Schema

TREES, LEAVES = 100, 6
BOOSTING = f"gradient boosting, {TREES} trees of up to {LEAVES} leaves"
"""Name of the model in reports. Small trees lose less on noisy rows, and little on true ones."""
_MOST_IN_LEAF = 50
_LARGEST_RATIO = 20  # a leaf holds at least a twentieth of the rows, up to 50
WIDE = 100
BINS, BINS_IF_WIDE = 255, 64
"""Number of bins of a column in a tree, which decides the training time; fewer for more than 100 columns.

Lists with more levels than bins are treated as numbers, the positions in their declared order.
"""
FAILURE = 0.05
"""Failure probability of the interval of an accuracy."""
CALIBRATION_BINS = 10
Trained = Literal["original", "release", "aware", "majority"]
Tested = Literal["original", "release"]
LEAST_IN_GROUP = 50
MOST_COLUMNS = 4


@dataclass(frozen=True, slots=True)
class PredictionTask:
    """The target of a table as a prediction task.

    Attributes
    ----------
    column : Column
        Declared column that is predicted.
    n_classes : int
        Number of declared classes without "missing"; 0 where a number is predicted.
    """

    column: Column
    n_classes: int

    @classmethod
    def from_column(cls, column: Column, *, as_number: bool = False) -> PredictionTask:
        """Return the task of a column; ``as_number`` predicts a list of integers as a number."""
        if not column.is_category or as_number:
            return cls(column, 0)
        return cls(column, sum(level is not None for level in column.levels))

    @property
    def kind(self) -> Literal["classification", "regression"]:
        """Whether a class or a number is predicted."""
        return "classification" if self.n_classes else "regression"

    @property
    def unit(self) -> float:
        """Size of a predicted 1 in the column's own unit."""
        return 1.0 if self.column.is_category else self.column.width

    def targets(self, rows: Mapping[str, AnyArray]) -> AnyArray:
        """Return classes, -1 where missing, or numbers in units of the declared range, NaN where missing."""
        values = rows[self.column.name]
        if self.n_classes:
            return np.where(values < self.n_classes, values, -1).astype(np.int64)
        if self.column.is_category:
            return np.array(self.column.levels, np.float64)[values]
        return np.asarray((values - self.column.range[0]) / self.column.width)

    def is_present(self, targets: AnyArray) -> Bools:
        """Return for each target whether it is not missing."""
        return np.asarray(targets >= 0 if self.n_classes else ~np.isnan(targets))


class FeatureMatrix:
    """The features of a model, by the schema.

    A number is scaled by its declared range; where it is missing, the public fill value stands in, with a
    flag in a further column. A list is the position in its levels, treated as unordered.

    Parameters
    ----------
    schema : Schema
        Schema of the published table.

    Attributes
    ----------
    unordered : array of bool
        For each column of the matrix whether it is an unordered list.
    bins : int
        Number of bins of a column in a tree.
    """

    def __init__(self, schema: Schema) -> None:
        """Take the feature columns of a schema and decide which of them are unordered."""
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
        """Return the features of encoded rows, of shape (n, p)."""
        features: list[AnyArray] = []
        for c in self._columns:
            values = rows[c.name]
            if c.is_category:
                features.append(values.astype(np.float64))
                continue
            lower, _ = c.range
            if c.missing_flag is None:
                features.append((values - lower) / c.width)
                continue
            missing = np.isnan(values)
            features += [(np.where(missing, c.fill, values) - lower) / c.width, missing.astype(np.float64)]
        return np.column_stack(features)


class Model(Protocol):
    """A trained model of classes or of numbers."""

    @property
    def chances(self) -> bool:
        """Whether its scores of classes are probabilities."""
        ...

    def predict(self, X: Floats) -> Floats:
        """Return scores of shape (n, n_classes), or numbers of shape (n,)."""
        ...


@dataclass(frozen=True, slots=True)
class ConstantModel:
    """The same prediction for every row: the shares of the classes, or the mean."""

    guess: Floats
    chances: bool = True

    def predict(self, X: Floats) -> Floats:
        """Return the constant for every row."""
        return np.tile(self.guess, (len(X), 1)) if self.guess.ndim else np.full(len(X), self.guess)


def fit_majority(y: AnyArray, task: PredictionTask) -> ConstantModel:
    """Return the constant model: the shares of the classes, or the mean."""
    if not task.n_classes:
        return ConstantModel(np.asarray(np.mean(y) if len(y) else 0.0))
    counts = np.bincount(y, minlength=task.n_classes)
    return ConstantModel(counts / max(1, counts.sum()))


@dataclass(frozen=True, slots=True)
class BoostedModel:
    """Gradient-boosted trees."""

    estimator: Any
    n_classes: int
    chances: bool = True

    def predict(self, X: Floats) -> Floats:
        """Return probabilities of all declared classes, 0 for those without training rows; or numbers."""
        if not len(X):
            return np.zeros((0, self.n_classes) if self.n_classes else 0)
        with one_thread():
            if not self.n_classes:
                return np.asarray(self.estimator.predict(X))
            out = np.zeros((len(X), self.n_classes))
            # The estimator knows only the classes that it saw.
            out[:, self.estimator.classes_] = self.estimator.predict_proba(X)
            return out


def fit_boosted(X: Floats, y: AnyArray, task: PredictionTask, features: FeatureMatrix, seed: int) -> Model:
    """Train small boosted trees; return a constant model if all targets are equal.

    Parameters
    ----------
    X : array of shape (n, p)
        Features of the training rows.
    y : array of shape (n,)
        Their classes or numbers, none missing.
    task : PredictionTask
        Target that is predicted.
    features : FeatureMatrix
        Description of the columns of ``X``.
    seed : int
        Seed of the estimator's random state.
    """
    # Imported here, because scikit-learn is slow to load and most commands train nothing.
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if len(y) < 2 or (y == y[0]).all():
        return fit_majority(y, task)
    kind = HistGradientBoostingClassifier if task.n_classes else HistGradientBoostingRegressor
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
        return BoostedModel(estimator.fit(X, y), task.n_classes)


@dataclass(frozen=True, slots=True)
class LinearModel:
    """The linear model of a learner, such as the one that an invariant release preserves.

    Attributes
    ----------
    weights : array of shape (n_columns, n_outputs)
        Weights of the features, one column for each output.
    intercept : array of shape (n_outputs,)
        Constant term of each output.
    n_classes : int
        Number of classes; 0 where a number is predicted.
    learner : InvariantLearner
        Learner that was trained, which decides whether scores are probabilities.
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
        """Return scores of classes, as probabilities for logistic learners, or numbers."""
        scores = X @ self.weights + self.intercept
        if not self.n_classes:
            return np.asarray(scores[:, 0])
        if scores.shape[1] == 1:
            # Both signs, because expit(-s) is 1 - expit(s) without cancellation.
            both = np.column_stack([-scores[:, 0], scores[:, 0]])
            return np.asarray(scipy.special.expit(both)) if self.chances else both
        return np.asarray(scipy.special.softmax(scores, axis=1)) if self.chances else np.asarray(scores)

    def distance(self, other: LinearModel) -> float:
        """Return the largest difference of a weight, relative to the largest weight."""
        size = max(float(np.abs(self.weights).max()), np.finfo(float).tiny)
        return float(np.abs(self.weights - other.weights).max()) / size


def fit_linear(learner: InvariantLearner | None, X: Floats, y: AnyArray, task: PredictionTask) -> LinearModel:
    """Train a learner to machine precision; without one, least squares on the indicator of each class."""
    if learner is not None:
        solution = learner.solve(X, y, task.n_classes)
        return LinearModel(solution.weights, solution.intercept, task.n_classes, learner)
    ridge = RidgeLearner()
    targets = [(y == k).astype(np.float64) for k in range(task.n_classes)] or [y]
    parts = [ridge.solve(X, target, 0) for target in targets]
    return LinearModel(
        np.column_stack([part.weights for part in parts]),
        np.concatenate([part.intercept for part in parts]),
        task.n_classes,
        ridge,
    )


def accuracy_or_r2(predicted: Floats, y: AnyArray, task: PredictionTask) -> float | None:
    """Return the accuracy of classes, or R2 of numbers; None without rows or without variance to explain."""
    if not len(y):
        return None
    if task.n_classes:
        return float(np.mean(predicted.argmax(axis=1) == y))
    spread = float(np.sum((y - y.mean()) ** 2))
    # Targets are in units of their range: a smaller spread is rounding of a constant one.
    if not spread > 1e-24 * len(y):
        return None
    return 1.0 - float(np.sum((y - predicted) ** 2)) / spread


def score(
    predicted: Floats,
    y: AnyArray,
    task: PredictionTask,
    *,
    trained_on: Trained,
    tested_on: Tested,
    chances: bool = True,
    train_rows: int | None = None,
) -> Score:
    """Return the scores of a model's predictions.

    Parameters
    ----------
    predicted : array of shape (n, n_classes) or (n,)
        Scores of the classes, or predicted numbers, from :class:`~discreet.evaluation._models.Model`.
    y : array of shape (n,)
        True classes or numbers, none of them missing.
    task : PredictionTask
        Target that was predicted.
    trained_on, tested_on
        As for :class:`~discreet.report.findings.Score`.
    chances : bool
        Whether the scores of classes are probabilities; if not, calibration is left out.
    train_rows : int, optional
        Number of rows that the model was trained on; None if it is not stated.
    """
    if not task.n_classes:
        rmse = math.sqrt(float(np.mean((y - predicted) ** 2))) * task.unit if len(y) else None
        return Score(
            trained_on=trained_on,
            tested_on=tested_on,
            train_rows=train_rows,
            r2=accuracy_or_r2(predicted, y, task),
            rmse=rmse,
        )
    hits = int(np.sum(predicted.argmax(axis=1) == y))
    # Half of the failure probability on either side.
    lower, upper = clopper_pearson(hits, len(y), FAILURE / 2) if len(y) else (np.array(0.0), np.array(1.0))
    return Score(
        trained_on=trained_on,
        tested_on=tested_on,
        train_rows=train_rows,
        accuracy=accuracy_or_r2(predicted, y, task),
        lower=float(lower),
        upper=float(upper),
        auc=_auc(predicted, y),
        calibration=_calibration(predicted[:, -1], y == task.n_classes - 1) if chances else [],
    )


def _auc(predicted: Floats, y: AnyArray) -> float | None:
    """Return the area under the ROC curve, averaged over classes against the rest; None with one class.

    Notes
    -----
    With ``R`` the sum of the ranks of the ``n`` rows of a class and ``m`` other rows,
    ``(R - n (n + 1) / 2) / (n m)``, the chance that a row of the class ranks above another one.
    """
    n_classes = predicted.shape[1]
    areas = []
    # With two classes both areas are equal, so that one is enough.
    for k in range(1, 2) if n_classes == 2 else range(n_classes):
        inside = y == k
        n, rest = int(inside.sum()), int((~inside).sum())
        if n and rest:
            ranks = rank_values(predicted[:, k])
            areas.append((float(ranks[inside].sum()) - n * (n + 1) / 2) / (n * rest))
    return float(np.mean(areas)) if areas else None


def _calibration(chance: Floats, outcome: AnyArray) -> list[tuple[float, float, float]]:
    """Return (mean predicted probability, observed share, share of rows) of each tenth that has rows."""
    # A probability of 1 belongs to the last tenth.
    bins = np.minimum((chance * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    count = np.bincount(bins, minlength=CALIBRATION_BINS)
    predicted = np.bincount(bins, chance, minlength=CALIBRATION_BINS)
    observed = np.bincount(bins, outcome, minlength=CALIBRATION_BINS)
    return [
        (float(predicted[b] / count[b]), float(observed[b] / count[b]), float(count[b] / len(chance)))
        for b in np.flatnonzero(count)
    ]


def score_subgroups(
    schema: Schema,
    rows: Mapping[str, AnyArray],
    guesses: Mapping[str, Floats],
    y: AnyArray,
    task: PredictionTask,
) -> list[Subgroup]:
    """Return the scores of both models within each subgroup of at least 50 rows.

    Groups are the levels of the lists, the shortest ones first; without any list, the halves of each
    declared range. A release may serve some of them worse than others.

    Parameters
    ----------
    schema : Schema
        Schema of the published table.
    rows : mapping of str to array
        True test rows, encoded.
    guesses : mapping of str to array
        Predictions for these rows, by the models trained on "original" and on "release".
    y : array of shape (n,)
        True classes or numbers of these rows.
    task : PredictionTask
        Target that was predicted.
    """
    lists = sorted((c for c in schema.features if c.is_category), key=lambda c: len(c.levels))
    columns = (lists or schema.numeric_features)[:MOST_COLUMNS]
    subgroups = []
    for column in columns:
        for level, inside in _groups(column, rows[column.name]):
            if inside.sum() < LEAST_IN_GROUP:
                continue
            original, release = (
                accuracy_or_r2(guesses[name][inside], y[inside], task) for name in ("original", "release")
            )
            if original is not None and release is not None:
                subgroups.append(
                    Subgroup(
                        column=column.name,
                        level=level,
                        rows=int(inside.sum()),
                        original=original,
                        release=release,
                    )
                )
    return subgroups


def _groups(column: Column, values: AnyArray) -> Iterator[tuple[str, Bools]]:
    """Yield the name and the rows of each level of a list, or of each half of a number's range."""
    if column.is_category:
        for code, level in enumerate(column.levels):
            yield ("missing" if level is None else str(level)), np.asarray(values == code)
        return
    lower, upper = column.range
    middle = (lower + upper) / 2
    low, half, high = (
        str(column.moment(end)) if column.is_calendar else f"{end:.4g}" for end in (lower, middle, upper)
    )
    yield f"{low} to {half}", np.asarray(values <= middle)
    yield f"above {half} to {high}", np.asarray(values > middle)
