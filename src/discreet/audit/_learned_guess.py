"""Guesses learned from people whose true records are known, without any use of the published law.

A published law that is wrong does not mislead them: any dependence between true and published cells, in one
column or across several, can be learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._boosted_trees import MOST_CLASSES, bin_features, boost_classes, boost_residuals

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.schema import Column

MOST_FEATURES = 40
"""Largest number of features of one learned guess; of more, those most correlated with the true cells."""
MOST_TRAINING = 10_000
"""Largest number of records that a guess is learned from."""
_FEWEST = 60
"""Fewest records from which more than a straight line is learned."""
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

    @cached_property
    def bins(self) -> AnyArray:
        """Return the features in bins, of shape (p, n), for trees."""
        return bin_features(self.matrix)


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

    The guess is the least-squares one, plus trees that predict its residuals as far as they lower the error
    on a fifth of the known people that is held out.

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
    known = known[:MOST_TRAINING]
    chosen = _relevant(features, own, truth[known], known)
    matrix, bins = features.matrix[:, chosen], features.bins[chosen]
    if whole and own is not None:
        cells = features.matrix[:, _first_of(features, own)]
        fraction = (cells - np.rint(cells))[:, None]
        matrix, bins = np.hstack([matrix, fraction]), np.vstack([bins, bin_features(fraction)])
    linear = _linear(matrix, truth, known)
    rest = truth[known] - linear[known]
    if known.size < _FEWEST or not np.any(rest):
        return linear[unknown]
    return np.asarray(linear[unknown] + boost_residuals(bins, rest, known, unknown))


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

    The guess is the commonest level beside the published one, refined by trees as far as they lower the loss
    on a fifth of the known people that is held out. In a long list it is the commonest level beside one
    published column, or the nearest one to a guess at the code as a number: what is right most often among
    those people.

    Parameters
    ----------
    features, own, truth, known, unknown
        As in :func:`learned_numbers`; ``truth`` holds codes.
    levels : int
        Number of levels of the list.
    """
    known = known[:MOST_TRAINING]
    codes = truth[known].astype(np.int64)
    present, classes = np.unique(codes, return_inverse=True)
    if present.size == 1:
        return np.full(unknown.size, present[0])
    if present.size > MOST_CLASSES:
        return _long_list(features, own, truth, known, unknown)
    cells = np.zeros(len(features.matrix), np.int64)
    if own is not None:
        cells = np.unique(features.matrix[:, _first_of(features, own)], return_inverse=True)[1]
    chosen = _relevant(features, own, _indicators(codes, levels), known)
    return present[boost_classes(features.bins[chosen], cells, classes, known, unknown)]


def _long_list(features: GuessFeatures, own: int | None, truth: AnyArray, known: Ints, unknown: Ints) -> Ints:
    """Return guesses at one of many levels by the feature, or the number, that is right most often."""
    codes = truth.astype(np.float64)
    held_out = np.arange(known.size) % 5 == 0
    train, judged = known[~held_out], known[held_out]

    def nearest(some: Ints, others: Ints) -> Ints:
        return np.rint(learned_numbers(features, own, False, codes, some, others)).astype(np.int64)

    most, best = int((nearest(train, judged) == codes[judged]).sum()), None
    for values, bins in zip(features.matrix.T, features.bins, strict=True):
        distinct, cells = np.unique(values, return_inverse=True)
        # Of numbers hardly any value occurs twice: their bins are counted.
        if distinct.size > known.size // 2:
            cells = bins.astype(np.int64)
        right = int((_commonest_beside(cells, codes, train, judged) == codes[judged]).sum())
        if right > most:
            most, best = right, cells
    return nearest(known, unknown) if best is None else _commonest_beside(best, codes, known, unknown)


def _commonest_beside(cells: Ints, codes: Floats, known: Ints, unknown: Ints) -> Ints:
    """Return the commonest code among the known people with the same cell; of all where there are none."""
    pairs, counts = np.unique(np.stack([cells[known], codes[known]]), axis=1, return_counts=True)
    values, totals = np.unique(codes[known], return_counts=True)
    guess = np.full(int(cells.max()) + 1, values[totals.argmax()])
    # Of several assignments to a cell the last stays, which is that of its commonest code.
    order = np.argsort(counts, kind="stable")
    guess[pairs[0, order].astype(np.int64)] = pairs[1, order]
    return guess[cells[unknown]].astype(np.int64)


def _first_of(features: GuessFeatures, column: int) -> int:
    """Return the first feature of a published column: its values, before the flags of missing ones."""
    return int(np.flatnonzero(features.columns == column)[0])


def _indicators(codes: Ints, levels: int) -> Floats:
    return np.asarray(codes[:, None] == np.arange(min(levels, 64)), np.float64)


def _relevant(features: GuessFeatures, own: int | None, targets: Floats, known: Ints) -> Ints:
    """Return which features are used: all if they are few, otherwise the most correlated ones."""
    matrix = features.matrix
    if matrix.shape[1] <= MOST_FEATURES:
        return np.arange(matrix.shape[1])
    X = matrix[known] - matrix[known].mean(axis=0)
    spread = X.std(axis=0)
    Y = np.atleast_2d(targets.T).T
    Y = Y - Y.mean(axis=0)
    strength = np.abs(X.T @ Y).max(axis=1) / np.where(spread > 0, spread, np.inf)
    if own is not None:
        # The published column of the target itself is always used.
        strength[features.columns == own] = np.inf
    return np.sort(np.argsort(-strength, kind="stable")[:MOST_FEATURES])
