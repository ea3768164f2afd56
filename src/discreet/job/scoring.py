"""How good a model is: accuracy with its interval, ranking, calibration; for numbers the error left."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import rankdata

from discreet.confidence import clopper_pearson
from discreet.report.findings import Score

if TYPE_CHECKING:
    from discreet._typing import AnyArray, Floats
    from discreet.job.questions import Question

FAILURE = 0.05
"""How often the interval of an accuracy misses it."""
CALIBRATION_BINS = 10

Trained = Literal["original", "release", "aware", "majority"]
Tested = Literal["original", "release"]


def worth(predicted: Floats, y: AnyArray, question: Question) -> float | None:
    """Return accuracy, or R2; None where there is no row, or no variance to explain."""
    if not len(y):
        return None
    if question.n_classes:
        return float(np.mean(predicted.argmax(axis=1) == y))
    spread = float(np.sum((y - y.mean()) ** 2))
    if not spread > 1e-24 * len(y):
        return None
    return 1.0 - float(np.sum((y - predicted) ** 2)) / spread


def score(
    predicted: Floats,
    y: AnyArray,
    question: Question,
    *,
    trained_on: Trained,
    tested_on: Tested,
    chances: bool = True,
    train_rows: int | None = None,
) -> Score:
    """Score predictions of rows that the model has not seen.

    Parameters
    ----------
    predicted : array
        As of :class:`~discreet.job.models.Model`.
    y : array
        Classes or numbers, none of them missing.
    question : Question
        What was asked.
    trained_on, tested_on
        As of :class:`~discreet.report.findings.Score`.
    chances : bool
        Whether the scores of classes are probabilities, so that calibration means something.
    train_rows : int, optional
        How many rows the model was trained on.
    """
    if not question.n_classes:
        rmse = math.sqrt(float(np.mean((y - predicted) ** 2))) * question.unit if len(y) else None
        return Score(
            trained_on=trained_on,
            tested_on=tested_on,
            train_rows=train_rows,
            r2=worth(predicted, y, question),
            rmse=rmse,
        )
    hits = int(np.sum(predicted.argmax(axis=1) == y))
    lower, upper = clopper_pearson(hits, len(y), FAILURE / 2) if len(y) else (np.array(0.0), np.array(1.0))
    return Score(
        trained_on=trained_on,
        tested_on=tested_on,
        train_rows=train_rows,
        accuracy=worth(predicted, y, question),
        lower=float(lower),
        upper=float(upper),
        auc=_auc(predicted, y),
        calibration=_calibration(predicted[:, -1], y == question.n_classes - 1) if chances else [],
    )


def _auc(predicted: Floats, y: AnyArray) -> float | None:
    """Return the chance that a row of a class ranks above one that is not, averaged over classes."""
    n_classes = predicted.shape[1]
    found = []
    for k in range(1, 2) if n_classes == 2 else range(n_classes):
        inside = y == k
        n, rest = int(inside.sum()), int((~inside).sum())
        if n and rest:
            ranks = rankdata(predicted[:, k])
            found.append((float(ranks[inside].sum()) - n * (n + 1) / 2) / (n * rest))
    return float(np.mean(found)) if found else None


def _calibration(chance: Floats, happened: AnyArray) -> list[tuple[float, float, float]]:
    """Return mean chance, observed share and share of rows in each tenth of the chances that has rows."""
    bins = np.minimum((chance * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    count = np.bincount(bins, minlength=CALIBRATION_BINS)
    said = np.bincount(bins, chance, minlength=CALIBRATION_BINS)
    seen = np.bincount(bins, happened, minlength=CALIBRATION_BINS)
    return [
        (float(said[b] / count[b]), float(seen[b] / count[b]), float(count[b] / len(chance)))
        for b in np.flatnonzero(count)
    ]
