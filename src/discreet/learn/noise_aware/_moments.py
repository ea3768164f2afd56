"""CorrectedMoments of true rows from sums over published ones: unbiased, whatever the noise, if its law is right.

One pass over published rows: sums of products of raw entries, one matrix for each fold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.learn.noise_aware.rows import NumberLabel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from discreet._types import AnyArray, Floats
    from discreet.learn.noise_aware._coordinates import Block, Coordinates
    from discreet.learn.noise_aware.rows import Label


def eigenvalue_spread(p: int, n: int) -> float:
    """Return how far the eigenvalues of a covariance of ``n`` rows of pure noise spread, in its own units."""
    return 2 * math.sqrt(p / n) + p / n


@dataclass(frozen=True, slots=True)
class CorrectedMoments:
    """What is known about the true rows, counted from the mean of all of them.

    Attributes
    ----------
    n : int
        Rows behind it.
    mean : array of shape (p,)
        Where coordinates are counted from.
    covariance : array of shape (p, p)
        Unbiased for the covariance of true coordinates, and so not always positive; 0 where unknown.
    observed : array of shape (p, p)
        Covariance of debiased published coordinates, noise included.
    level : array of shape (q,)
        Mean of the label: shares of classes, or of a number.
    cross : array of shape (q, p)
        Covariance of label and coordinates.
    label_observed, label_variance : array of shape (q,)
        Variance of the debiased label with and without its noise.
    weight : array of shape (p,)
        How much one published row adds to a level: more than 1 where not every row shows it; 0 for numbers.
    seen : array of shape (p,)
        How many rows show a coordinate, over how many should on average.
    cross_spread : array of shape (q, p)
        Variance of what one row adds to ``cross``.
    pair_covariance : array of shape (q, k, k) or None
        Where label and levels were randomized together: covariance of what one row adds to ``cross`` at
        ``pair_place``.
    pair_place : slice
        Which coordinates those levels are.
    """

    n: int
    mean: Floats
    covariance: Floats
    observed: Floats
    level: Floats
    cross: Floats
    label_observed: Floats
    label_variance: Floats
    weight: Floats
    seen: Floats
    cross_spread: Floats
    pair_covariance: Floats | None = None
    pair_place: slice = field(default_factory=lambda: slice(0, 0))

    @property
    def spread(self) -> Floats:
        """Observed variance of each coordinate."""
        return np.asarray(np.diagonal(self.observed))

    @classmethod
    def from_sums(
        cls, sums: Floats, coordinates: Coordinates, label: Label, center: tuple[Floats, Floats] | None = None
    ) -> CorrectedMoments:
        """Correct sums of raw products.

        Parameters
        ----------
        sums : array
            Of raw products, over some rows.
        coordinates, label
            What the entries are.
        center : (array, array), optional
            Where coordinates and label are counted from; by default their own means.

        Reference
        ---------
        docs/explanation/theorems/noise-aware.md
        """
        n = float(sums[0, 0])
        raw = sums / n
        size = coordinates.n_raw
        features, label_products = raw[:size, :size], raw[size:, size:]
        # By the rows that show a coordinate, not by those that should on average: shares then add up to one.
        seen = coordinates.shown @ features[:, 0]
        seen = np.where(seen > 0, seen, 1.0)
        means = (coordinates.debias @ features[:, 0]) / seen
        levels = label.debias @ raw[size:, 0]
        mean, level = (means, levels) if center is None else center
        # Counted from the mean where it is published: what is not published then adds nothing at all.
        carry = coordinates.debias - mean[:, None] * coordinates.shown
        observed = carry @ features @ carry.T
        covariance = observed.copy()
        for j, k, here, there, noise in coordinates.correlations:
            covariance[j, k] -= noise * features[here, there]
        covariance *= coordinates.pair_factor
        for block in coordinates.blocks:
            inside = block.second_moments(features, means)
            if not block.is_list:
                inside = inside / seen[block.place.start]
            cut = np.outer(mean[block.place], means[block.place])
            covariance[block.place, block.place] = (
                inside - cut - cut.T + np.outer(mean[block.place], mean[block.place])
            )
        label_map = label.debias.copy()
        label_cross = label_map @ raw[size:, :size] @ carry.T
        cross = (label_cross - np.outer(level, carry @ features[:, 0])) / seen
        if isinstance(label, NumberLabel) and label.column is not None:
            cross -= (coordinates.label_noise_covariance(label.column) @ features[:, 0]) / seen
        second = np.diagonal(label_map @ label_products @ label_map.T)
        label_observed = second - 2 * level * levels + level**2
        cross_spread = np.outer(label_observed, np.diagonal(observed))
        evidence: Floats | None = None
        paired = coordinates.joint_block
        if paired is not None:
            counts = raw[size:, paired.raw.start : paired.raw.start + paired.levels]
            pairs, evidence = _joint_covariance(counts, paired, level, mean[paired.place])
            cross[:, paired.place] = pairs
            cross_spread[:, paired.place] = np.diagonal(evidence, axis1=1, axis2=2)
        if label.counts:  # squares of indicators are the indicators
            label_variance = levels - 2 * level * levels + level**2
        else:
            label_variance = label_observed - label.variance
        return cls(
            n=round(n),
            mean=mean,
            covariance=covariance,
            observed=observed,
            level=levels,
            cross=cross,
            label_observed=label_observed,
            label_variance=label_variance,
            weight=coordinates.weight,
            seen=seen,
            cross_spread=cross_spread,
            pair_covariance=evidence,
            pair_place=slice(0, 0) if paired is None else paired.place,
        )


def _joint_covariance(counts: Floats, block: Block, level: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return covariances of label and levels that were randomized together, and how one row's share varies.

    Noise on the two is not independent, so products of debiased parts are biased; shares of pairs are not.

    Parameters
    ----------
    counts : array of shape (n_classes, n_levels)
        Shares of the published pairs.
    block : Block
        The levels.
    level, mean : array
        Where label and levels are counted from.
    """
    assert block.pair is not None
    q, gap = block.pair.other, block.pair.gap
    classes, levels = counts.shape
    # What a published pair (row) adds to each true pair (column), counted from the means.
    adds = (np.eye(classes * levels) - q) / gap
    whole = adds.reshape(-1, classes, levels)
    centered = (
        whole
        - level[None, :, None] * whole.sum(axis=1)[:, None, :]
        - mean[None, None, :] * whole.sum(axis=2)[:, :, None]
        + np.outer(level, mean)[None]
    )
    shares = counts.reshape(-1)
    average = np.einsum("r,rcv->cv", shares, centered)
    second = np.einsum("r,rcv,rcw->cvw", shares, centered, centered)
    return average, second - np.einsum("cv,cw->cvw", average, average)


CHUNK_ROWS = 8192
"""So many rows are turned into raw entries at a time: they stay in the cache."""


@dataclass(frozen=True)
class MomentTotals:
    """What a learner keeps of a published table, however long it is.

    Attributes
    ----------
    n_rows : int
        How many rows were read.
    folds : array of shape (n_folds, n_entries, n_entries)
        MomentTotals of products of raw entries, those of the label last. The first entry of a row is 1.
    """

    n_rows: int
    folds: Floats

    @property
    def total(self) -> Floats:
        """MomentTotals over all rows."""
        return np.asarray(self.folds.sum(axis=0))


@cache
def fold_pattern(n_folds: int) -> AnyArray:
    """Return the fold of each row of a piece; the next piece has the same.

    Every ``n_folds`` consecutive rows fall into different folds, in an order that a public hash of their
    place gives.

    A fold is a function of a row's place alone. Noise is drawn row by row, the same law at every place, and
    knows no place, so folds are independent of noise. A release of a table shuffles its rows under its key
    before anybody sees them, so places are independent of labels and features too. Rows that kept their order
    (a matrix may) are the reason for the hash: labels that repeat with a period would otherwise be folds.
    """
    groups = np.arange(CHUNK_ROWS // n_folds, dtype=np.uint64)[:, None]
    words = _hash_pair(groups, np.arange(n_folds, dtype=np.uint64))
    return np.argsort(np.argsort(words, axis=1), axis=1).reshape(-1).astype(np.int16)


def _hash_pair(group: AnyArray, member: AnyArray) -> AnyArray:
    """Mix two numbers into one word: the finalizer of SplitMix64."""
    word = group * np.uint64(0x9E3779B97F4A7C15) + (member + np.uint64(1)) * np.uint64(0xD1B54A32D192ED03)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(word ^ (word >> np.uint64(31)))


class MomentSums:
    """Adds up products of raw entries of rows that come by, in constant memory.

    Parameters
    ----------
    coordinates, label
        How rows become raw entries.
    n_folds : int
        Among how many folds rows are dealt out.

    Attributes
    ----------
    n_rows : int
        How many rows came by.
    """

    def __init__(self, coordinates: Coordinates, label: Label, n_folds: int) -> None:
        size = coordinates.n_raw + label.n_raw
        self.n_rows = 0
        self._coordinates, self._label = coordinates, label
        # Sums of zeros and ones stay exact in single precision for 2**24 rows, and pieces are shorter.
        self._kind: Any = np.float32 if coordinates.counts and label.counts else np.float64
        self._folds = np.zeros((n_folds, size, size))

    @property
    def sums(self) -> MomentTotals:
        """What there is so far."""
        return MomentTotals(self.n_rows, self._folds)

    def add(self, columns: Mapping[str, AnyArray], labels: AnyArray) -> None:
        """Take in some rows: columns by name, categories as codes, and the label beside them."""
        n_folds = len(self._folds)
        pattern = fold_pattern(n_folds)
        position = 0
        while position < len(labels):
            # A piece ends where the pattern does, so that the fold of a row depends on its place alone.
            start = self.n_rows % len(pattern)
            stop = min(len(labels), position + len(pattern) - start)
            folds = pattern[start : start + stop - position]
            sorted_by_fold = np.argsort(folds, kind="stable")
            part = {name: values[position:stop][sorted_by_fold] for name, values in columns.items()}
            raw = self._coordinates.encode(part, stop - position, self._label.n_raw, self._kind)
            self._label.encode(labels[position:stop][sorted_by_fold], raw)
            ends = np.cumsum(np.bincount(folds, minlength=n_folds))
            for fold, end in enumerate(ends):
                rows = raw[ends[fold - 1] if fold else 0 : end]
                self._folds[fold] += rows.T @ rows
            self.n_rows += stop - position
            position = stop


def sum_moments(
    batches: Iterable[tuple[Mapping[str, AnyArray], AnyArray]],
    coordinates: Coordinates,
    label: Label,
    n_folds: int,
) -> MomentTotals:
    """Read rows once and add up products of their raw entries.

    Parameters
    ----------
    batches : iterable of (mapping, array)
        As :meth:`MomentSums.add` takes them.
    coordinates, label, n_folds
        As of :class:`MomentSums`.
    """
    sums = MomentSums(coordinates, label, n_folds)
    for columns, labels in batches:
        sums.add(columns, labels)
    return sums.sums
