"""Guesses learned from people whose true records are known, without any use of the published law.

A published law that is wrong does not mislead them: any dependence between true and published cells, in one
column or across several, can be learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.schema import Column

MOST_FEATURES = 40
"""Largest number of features of one learned guess; of more, those most correlated with the true cells."""
MOST_TRAINING = 10_000
"""Largest number of records that a guess is learned from."""
NUMBER_ROUNDS, LEVEL_ROUNDS = 50, 40
"""Rounds of gradient boosting for a number, and for a list, where each round is one tree for each level."""
_BOOSTED_LEVELS = 4
_RIDGE = 1e-9


@dataclass(frozen=True, eq=False)
class GuessFeatures:
    """Published columns as a feature matrix.

    Attributes
    ----------
    matrix : array of shape (n, p)
        Numbers with the middle of their range where they are missing, codes, and missing flags.
    columns : array of shape (p,)
        Index of the published column of each feature.
    """

    matrix: Floats
    columns: Ints


def guess_features(columns: Sequence[Column], published: Mapping[str, AnyArray]) -> GuessFeatures:
    """Return the feature matrix of published columns; rows of a person are averaged, codes by majority.

    Parameters
    ----------
    columns : sequence of Column
        Published columns that become features.
    published : mapping of str to array of shape (n, m)
        Published cells of each person's m rows, by column.
    """
    parts: list[AnyArray] = []
    origin: list[int] = []
    for place, column in enumerate(columns):
        cells = published[column.name]
        if column.is_category:
            features = [cells[:, 0] if cells.shape[1] == 1 else _majority(cells)]
        else:
            absent = np.isnan(cells)
            present = np.maximum((~absent).sum(axis=1), 1)
            mean = np.where(absent, 0.0, cells).sum(axis=1) / present
            features = [np.where(absent.all(axis=1), column.fill, mean)]
            if absent.any():
                features.append(absent.mean(axis=1))
        parts += features
        origin += [place] * len(features)
    return GuessFeatures(np.column_stack(parts).astype(np.float64), np.array(origin, np.int64))


def _majority(codes: AnyArray) -> AnyArray:
    most = int(codes.max()) + 1
    counts = np.stack([(codes == level).sum(axis=1) for level in range(most)], axis=1)
    return np.asarray(np.argmax(counts, axis=1))


def learned_numbers(
    features: GuessFeatures, own: int | None, whole: bool, truth: Floats, known: Ints, unknown: Ints
) -> Floats:
    """Learn a number from the published columns of some people and return guesses for others.

    The guess is the least-squares one, plus gradient boosting of its residuals if that lowers the error on a
    fifth of the known people that is held out.

    Parameters
    ----------
    features : GuessFeatures
        Published features of all people.
    own : int or None
        Index of the published column of the number itself; None if it is not among the features.
    whole : bool
        Whether the number is an integer; then the published number's distance from the next integer is a
        further feature.
    truth : array of shape (n,)
        True numbers, of which only those of the people in ``known`` are used.
    known, unknown : arrays of int
        Indices of the people to learn from, and of those to guess.
    """
    # Imported here, because scikit-learn is slow to load and most commands attack nothing.
    from sklearn.ensemble import HistGradientBoostingRegressor

    known = known[:MOST_TRAINING]
    matrix = _relevant(features, own, truth[known], known)
    if whole and own is not None:
        cells = features.matrix[:, int(np.flatnonzero(features.columns == own)[0])]
        matrix = np.column_stack([matrix, cells - np.rint(cells)])
    linear = _linear(matrix, truth, known)
    rest = truth[known] - linear[known]
    # Every fifth known person decides whether boosting helps.
    train, held_out = np.arange(known.size) % 5 != 0, np.arange(known.size) % 5 == 0
    if train.sum() < 50 or not np.any(rest):
        return linear[unknown]
    model = HistGradientBoostingRegressor(
        max_iter=NUMBER_ROUNDS, max_leaf_nodes=16, min_samples_leaf=20, early_stopping=False, random_state=0
    )
    with one_thread():
        model.fit(matrix[known[train]], rest[train])
        boosted = rest[held_out] - model.predict(matrix[known[held_out]])
        if np.square(boosted).mean() >= np.square(rest[held_out]).mean():
            return linear[unknown]
        return np.asarray(linear[unknown] + model.predict(matrix[unknown]))


def _linear(matrix: Floats, truth: Floats, known: Ints) -> Floats:
    """Return the least-squares guess for all people, fitted on the known ones with a tiny ridge."""
    center, spread = matrix[known].mean(axis=0), matrix[known].std(axis=0)
    scaled = (matrix - center) / np.where(spread > 0, spread, 1.0)
    X, level = scaled[known], float(truth[known].mean())
    gram = X.T @ X
    # Published columns may be copies of each other, or constant; the ridge keeps the matrix regular.
    gram[np.diag_indices_from(gram)] += _RIDGE * known.size
    return np.asarray(level + scaled @ np.linalg.solve(gram, X.T @ (truth[known] - level)))


def learned_levels(
    features: GuessFeatures, own: int | None, levels: int, truth: AnyArray, known: Ints, unknown: Ints
) -> Ints:
    """Learn a level of a list from the published columns of some people and return guesses for others.

    The model is boosted trees for up to four levels, and extremely randomized trees beyond, whose cost does
    not grow with the length of the list.

    Parameters
    ----------
    features, own, truth, known, unknown
        As in :func:`learned_numbers`; ``truth`` holds codes.
    levels : int
        Number of levels of the list.
    """
    from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

    known = known[:MOST_TRAINING]
    codes = truth[known].astype(np.int64)
    present = np.unique(codes)
    if present.size == 1:
        return np.full(unknown.size, present[0])
    matrix = _relevant(features, own, _indicators(codes, levels), known)
    model: Any
    if present.size <= _BOOSTED_LEVELS:
        model = HistGradientBoostingClassifier(
            max_iter=LEVEL_ROUNDS,
            max_leaf_nodes=16,
            min_samples_leaf=20,
            early_stopping=False,
            random_state=0,
        )
    else:
        # Leaves grow with the table, so that a tree has at most about a thousand of them.
        leaf = max(2, known.size // 1000)
        model = ExtraTreesClassifier(25, min_samples_leaf=leaf, max_features=None, random_state=0)
    with one_thread():
        model.fit(matrix[known], codes)
        return np.asarray(model.predict(matrix[unknown]), np.int64)


def _indicators(codes: Ints, levels: int) -> Floats:
    return np.asarray(codes[:, None] == np.arange(min(levels, 64)), np.float64)


def _relevant(features: GuessFeatures, own: int | None, targets: Floats, known: Ints) -> Floats:
    """Return the feature matrix: all features if they are few, otherwise the most correlated ones."""
    matrix = features.matrix
    if matrix.shape[1] <= MOST_FEATURES:
        return matrix
    X = matrix[known] - matrix[known].mean(axis=0)
    spread = X.std(axis=0)
    Y = np.atleast_2d(targets.T).T
    Y = Y - Y.mean(axis=0)
    strength = np.abs(X.T @ Y).max(axis=1) / np.where(spread > 0, spread, np.inf)
    if own is not None:
        # The published column of the target itself is always used.
        strength[features.columns == own] = np.inf
    return np.asarray(matrix[:, np.sort(np.argsort(-strength, kind="stable")[:MOST_FEATURES])])
