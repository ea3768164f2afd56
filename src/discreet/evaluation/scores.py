"""How good a model is: accuracy with its interval, ranking, calibration; for numbers the error left.

Whether the release serves some people worse than others: the two models within groups of test rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.stats import rankdata

from discreet.confidence import clopper_pearson
from discreet.report.findings import Score, Subgroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from discreet._types import AnyArray, Bools, Floats
    from discreet.evaluation._models import PredictionTask
    from discreet.schema import Column, Schema

FAILURE = 0.05
"""How often the interval of an accuracy misses it."""
CALIBRATION_BINS = 10

Trained = Literal["original", "release", "aware", "majority"]
Tested = Literal["original", "release"]


def worth(predicted: Floats, y: AnyArray, question: PredictionTask) -> float | None:
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
    question: PredictionTask,
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
        As of :class:`~discreet.evaluation._models.Model`.
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


LEAST_IN_GROUP = 50
MOST_COLUMNS = 4


def by_subgroup(
    schema: Schema,
    rows: Mapping[str, AnyArray],
    guesses: Mapping[str, Floats],
    y: AnyArray,
    question: PredictionTask,
) -> list[Subgroup]:
    """Compare the models within each group that is large enough.

    Groups are the levels of the lists, the shortest ones first; without any list, the halves of each
    declared range.

    Parameters
    ----------
    schema : Schema
        Of the published table.
    rows : mapping of str to array
        The true test rows.
    guesses : mapping of str to array
        What the models trained on "original" and "release" predict for them.
    y : array
        The true answers.
    question : Question
        What was asked.
    """
    lists = sorted((c for c in schema.features if c.is_category), key=lambda c: len(c.levels))
    columns = (lists or schema.numeric_features)[:MOST_COLUMNS]
    found = []
    for column in columns:
        for level, inside in _groups(column, rows[column.name]):
            if inside.sum() < LEAST_IN_GROUP:
                continue
            original, release = (
                worth(guesses[name][inside], y[inside], question) for name in ("original", "release")
            )
            if original is not None and release is not None:
                found.append(
                    Subgroup(
                        column=column.name,
                        level=level,
                        rows=int(inside.sum()),
                        original=original,
                        release=release,
                    )
                )
    return found


def _groups(column: Column, values: AnyArray) -> Iterator[tuple[str, Bools]]:
    if column.is_category:
        for code, level in enumerate(column.levels):
            yield ("missing" if level is None else str(level)), np.asarray(values == code)
        return
    lower, upper = column.range
    middle = (lower + upper) / 2
    ends = column.dates(np.array([lower, middle, upper])) if column.type == "date" else (lower, middle, upper)
    low, half, high = (str(end) if column.type == "date" else f"{end:.4g}" for end in ends)
    yield f"{low} to {half}", np.asarray(values <= middle)
    yield f"above {half} to {high}", np.asarray(values > middle)
