"""Guesses learned from people whose true records are known, without any use of the published law.

A published law that is wrong does not mislead them: any dependence between true and published cells, in one
column or across several, can be learned. They learn by gradient boosting of symmetric trees in numpy: all
nodes of one depth of a tree ask about the same feature and value, so that a tree of depth d is d questions,
and the answers of a row, read as a binary number, are its leaf. Such trees overfit less than trees whose
nodes are free, and need milliseconds for a thousand rows; loading scikit-learn takes half a second.

References
----------
Prokhorenkova, L., Gusev, G., Vorobev, A., Dorogush, A. V., & Gulin, A. (2018). CatBoost: unbiased boosting
with categorical features. NeurIPS. https://arxiv.org/abs/1706.09516
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.schema import Column

    Splits = Sequence[tuple[int, int]]

ROUNDS = 40
"""Largest number of trees; fewer are used where more do not lower the loss on rows that are held out."""
MOST_CLASSES = 64
"""Largest number of classes that :func:`boost_classes` tells apart."""
_BINS, _DEPTH = 64, 4
_RATE, _SMOOTHING = 0.3, 20.0
"""Learning rate, and the number of rows with mean zero by which the mean of a leaf is shrunk."""
_PATIENCE = 5
"""Rounds without gain on the rows that are held out, after which no further tree is grown."""
_PROJECTIONS = 3
_CUT_BY = 4_000
"""Rows whose quantiles separate the bins of a feature."""
MOST_FEATURES = 40
"""Largest number of features of one learned guess; of more, those most correlated with the true cells."""
MOST_TRAINING = 10_000
"""Largest number of records that a guess is learned from."""
_FEWEST = 60
"""Fewest records from which more than a straight line is learned."""
_RIDGE = 1e-9


def bin_features(matrix: Floats) -> AnyArray:
    """Return the bins of all features, of shape (p, n): quantiles, or single values where they are few."""
    bins = np.zeros(matrix.shape[::-1], np.uint8)
    for row, values in zip(bins, matrix.T, strict=True):
        ordered = np.sort(values[:_CUT_BY])
        distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])]
        if distinct.size > _BINS:
            # By ranks: published numbers have long tails, and bins of equal width would be empty for
            # the most part.
            cuts = np.unique(ordered[np.arange(1, _BINS) * ordered.size // _BINS])
        else:
            cuts = (distinct[1:] + distinct[:-1]) / 2
        row[:] = np.searchsorted(cuts, values)
    return bins


def boost_residuals(bins: AnyArray, residuals: Floats, known: Ints, unknown: Ints) -> Floats:
    """Return what trees predict of the residuals of other rows; zeros where they predict nothing.

    Parameters
    ----------
    bins : array of shape (p, n)
        Binned features of all rows.
    residuals : array of shape (known.size,)
        Numbers to predict, with mean zero, of the known rows; every fifth decides how many trees are used.
    known, unknown : arrays of int
        Indices of the rows to learn from, and of those to predict.
    """
    learned = np.ascontiguousarray(bins[:, known])
    # By place and without a draw: the rows are in random order already.
    held_out = np.arange(known.size) % 5 == 0
    grower, judged = _Grower(learned[:, ~held_out]), np.ascontiguousarray(learned[:, held_out])
    rest, judged_rest = residuals[~held_out].copy(), residuals[held_out].copy()
    trees: list[Splits] = []
    best, used = float(np.square(judged_rest).mean()), 0
    while len(trees) < ROUNDS and len(trees) - used < _PATIENCE:
        splits, leaf = grower.grow(rest[None])
        values = _leaf_means(leaf, rest)
        rest -= values[leaf]
        judged_rest -= values[_leaves(judged, splits)]
        trees.append(splits)
        loss = float(np.square(judged_rest).mean())
        if loss < best:
            best, used = loss, len(trees)
    # The questions stay, and all known rows, also those held out, say what the leaves are worth.
    predicted = np.ascontiguousarray(bins[:, unknown])
    rest, guess = residuals.copy(), np.zeros(unknown.size)
    for splits in trees[:used]:
        leaf = _leaves(learned, splits)
        values = _leaf_means(leaf, rest)
        rest -= values[leaf]
        guess += values[_leaves(predicted, splits)]
    return guess


def boost_classes(bins: AnyArray, cells: Ints, classes: Ints, known: Ints, unknown: Ints) -> Ints:
    """Return the likeliest classes of other rows, by a table of one feature that trees refine.

    Parameters
    ----------
    bins : array of shape (p, n)
        Binned features of all rows.
    cells : array of shape (n,)
        Feature whose cells, 0, 1, ..., are counted beside the classes to begin with.
    classes : array of shape (known.size,)
        Classes 0, 1, ... of the known rows; every fifth row decides how many trees are used.
    known, unknown : arrays of int
        Indices of the rows to learn from, and of those to predict.
    """
    learned, own = np.ascontiguousarray(bins[:, known]), cells[known]
    held_out = np.arange(known.size) % 5 == 0
    shape = (int(classes.max()) + 1, int(cells.max()) + 1)
    grower, judged = _Grower(learned[:, ~held_out]), np.ascontiguousarray(learned[:, held_out])
    table = _log_table(classes[~held_out], own[~held_out], shape)
    scores, judged_scores = table[:, own[~held_out]], table[:, own[held_out]]
    hot, truth = _leaf_indicators(classes[~held_out], shape[0]), classes[held_out]
    trees: list[Splits] = []
    best, used = _log_loss(judged_scores, truth), 0
    while len(trees) < ROUNDS and len(trees) - used < _PATIENCE:
        chances = _softmax(scores)
        splits, leaf = grower.grow(_project(hot - chances, len(trees)))
        values = _leaf_scores(leaf, hot, chances)
        scores += values[:, leaf]
        judged_scores += values[:, _leaves(judged, splits)]
        trees.append(splits)
        loss = _log_loss(judged_scores, truth)
        if loss < best:
            best, used = loss, len(trees)
    predicted = np.ascontiguousarray(bins[:, unknown])
    table, hot = _log_table(classes, own, shape), _leaf_indicators(classes, shape[0])
    scores, guess = table[:, own], table[:, cells[unknown]]
    for splits in trees[:used]:
        leaf = _leaves(learned, splits)
        values = _leaf_scores(leaf, hot, _softmax(scores))
        scores += values[:, leaf]
        guess += values[:, _leaves(predicted, splits)]
    return np.asarray(guess.argmax(axis=0), np.int64)


class _Grower:
    """Grows trees on the same rows for changing gradients.

    Parameters
    ----------
    bins : array of shape (p, n)
        Binned features of the rows.
    """

    def __init__(self, bins: AnyArray) -> None:
        self._bins = np.ascontiguousarray(bins)
        self._cells = self._bins.astype(np.intp) + (np.arange(len(bins)) * _BINS)[:, None]

    def grow(self, gradients: Floats) -> tuple[Splits, Ints]:
        """Return the questions of one tree and the leaf of each row.

        Notes
        -----
        A question is the pair of feature and bin that maximizes the sum over both sides of all nodes, over
        each row g of ``gradients``, of ``(sum of g)^2 / (number of rows + smoothing)``.
        """
        p, n = self._cells.shape
        leaf = np.zeros(n, np.intp)
        weights = [np.broadcast_to(g, (p, n)).ravel() for g in gradients]
        splits = []
        for level in range(_DEPTH):
            shape = (1 << level, p, _BINS)
            size = shape[0] * p * _BINS
            cells = (self._cells + leaf * (p * _BINS)).ravel()
            # Counts are the same for all gradients; only the sums differ.
            below, above = _both_sides(np.bincount(cells, minlength=size).reshape(shape))
            gain = np.zeros((p, _BINS - 1))
            for weight in weights:
                left, right = _both_sides(np.bincount(cells, weight, minlength=size).reshape(shape))
                gain += (left * left / (below + _SMOOTHING) + right * right / (above + _SMOOTHING)).sum(
                    axis=0
                )
            feature, cut = divmod(int(gain.argmax()), _BINS - 1)
            splits.append((feature, cut))
            leaf += (self._bins[feature] > cut).astype(np.intp) << level
        return splits, leaf


def _both_sides(sums: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the sums over the bins up to each cut, and beyond it."""
    running = sums.cumsum(axis=2)
    return running[:, :, :-1], running[:, :, -1:] - running[:, :, :-1]


def _leaves(bins: AnyArray, splits: Splits) -> AnyArray:
    """Return the leaf of each row."""
    leaf = np.zeros(bins.shape[1], np.uint8)
    for level, (feature, cut) in enumerate(splits):
        leaf |= (bins[feature] > cut).view(np.uint8) << np.uint8(level)
    return leaf


def _leaf_means(leaf: AnyArray, values: Floats) -> Floats:
    """Return the mean in each leaf, shrunk towards zero, times the learning rate."""
    counts = np.bincount(leaf, minlength=1 << _DEPTH)
    return np.asarray(_RATE * np.bincount(leaf, values, minlength=1 << _DEPTH) / (counts + _SMOOTHING))


def _leaf_scores(leaf: AnyArray, hot: Floats, chances: Floats) -> Floats:
    """Return for each class and leaf one step of Newton's method on the log loss, shrunk, times the rate."""
    most = 1 << _DEPTH
    slopes = np.stack([np.bincount(leaf, row, minlength=most) for row in hot - chances])
    curvatures = np.stack([np.bincount(leaf, row, minlength=most) for row in chances * (1 - chances)])
    # A row curves by a quarter at most.
    return np.asarray(_RATE * slopes / (curvatures + _SMOOTHING / 4))


def _log_table(classes: Ints, cells: Ints, shape: tuple[int, int]) -> Floats:
    """Return the logarithm of how often each class meets each cell, smoothed by how often it occurs."""
    counts = np.bincount(classes * shape[1] + cells, minlength=shape[0] * shape[1]).reshape(shape)
    share = np.bincount(classes, minlength=shape[0]) + 1.0
    # As many pseudo-counts in a cell as there are classes: rare cells fall back on the shares of the
    # classes.
    return np.asarray(np.log(counts + (shape[0] / share.sum() * share)[:, None]))


def _leaf_indicators(classes: Ints, number: int) -> Floats:
    return np.asarray(classes == np.arange(number)[:, None], np.float64)


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=0))
    return np.asarray(powers / powers.sum(axis=0))


def _log_loss(scores: Floats, truth: Ints) -> float:
    top = scores.max(axis=0)
    spread = np.log(np.exp(scores - top).sum(axis=0)) + top
    return float((spread - scores[truth, np.arange(truth.size)]).mean())


def _project(gradients: Floats, tree: int) -> Floats:
    """Return a few sums of the gradients of many classes under changing signs, which any dependence changes.

    Notes
    -----
    The cost of a tree then does not grow with the number of classes. Signs are bits of a mixed counter: they
    need to be irregular, not secret.
    """
    classes = len(gradients)
    if classes <= _PROJECTIONS:
        # Two classes have opposite gradients, of which one says all.
        return gradients[: 1 if classes == 2 else classes]
    word = np.arange(_PROJECTIONS * classes, dtype=np.uint64) + np.uint64(tree * _PROJECTIONS * classes + 1)
    word *= np.uint64(0x9E3779B97F4A7C15)
    word ^= word >> np.uint64(29)
    word *= np.uint64(0xBF58476D1CE4E5B9)
    signs = np.where(word >> np.uint64(63) == 1, 1.0, -1.0).reshape(_PROJECTIONS, classes)
    # Sums of few terms, one by one: bits must not depend on the kernel of a matrix product.
    return np.stack([np.add.reduce(row[:, None] * gradients, axis=0) for row in signs])


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
        # Noise that is too fine for integers shows in the distance from the next one.
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
