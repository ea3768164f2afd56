"""Scores of models: accuracy with its interval, AUC and calibration, or R2 and error; also by subgroup."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np

from discreet.confidence import clopper_pearson
from discreet.ranks import rank_values
from discreet.report.findings import Score, Subgroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from discreet._types import AnyArray, Bools, Floats
    from discreet.evaluation._models import PredictionTask
    from discreet.schema import Column, Schema

FAILURE = 0.05
"""Failure probability of the interval of an accuracy."""
CALIBRATION_BINS = 10

Trained = Literal["original", "release", "aware", "majority"]
Tested = Literal["original", "release"]
LEAST_IN_GROUP = 50
MOST_COLUMNS = 4


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
