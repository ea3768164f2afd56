"""Moments of true rows, estimated without bias from one pass over published rows and their noise law.

The pass sums products of raw entries, one matrix for each fold; :class:`CorrectedMoments` debiases the sums.
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
    from discreet.learn.noise_aware._blocks import Block
    from discreet.learn.noise_aware._coordinates import Coordinates
    from discreet.learn.noise_aware.rows import Label


def eigenvalue_spread(p: int, n: int) -> float:
    """Return the largest relative error of the eigenvalues of a covariance of ``n`` rows of pure noise.

    Notes
    -----
    ``2 sqrt(p / n) + p / n`` for ``p`` directions: the upper edge of the Marchenko-Pastur law, less 1.
    """
    return 2 * math.sqrt(p / n) + p / n


@dataclass(frozen=True, slots=True)
class CorrectedMoments:
    """Estimated first and second moments of the true rows, about a common center.

    Attributes
    ----------
    n : int
        Number of published rows that were summed.
    mean : array of shape (p,)
        Center from which coordinates are counted: the mean of all rows.
    covariance : array of shape (p, p)
        Unbiased estimate of the covariance of true coordinates, not always positive semidefinite; 0 for
        pairs that no row shows.
    observed : array of shape (p, p)
        Covariance of debiased published coordinates, noise included.
    level : array of shape (q,)
        Corrected mean of the label: the shares of classes, or the mean of a number.
    cross : array of shape (q, p)
        Corrected covariance of label and coordinates.
    label_observed, label_variance : array of shape (q,)
        Variance of the debiased label with and without its noise.
    weight : array of shape (p,)
        Amount that one published row adds to the count of a level: 1 over the share of rows that show it;
        0 for numbers.
    seen : array of shape (p,)
        Number of rows that show a coordinate, over its expected value.
    cross_spread : array of shape (q, p)
        Variance over rows of one row's contribution to ``cross``.
    pair_covariance : array of shape (q, k, k) or None
        Covariance over rows of one row's contribution to ``cross`` at ``pair_place``; None unless label and
        levels were randomized together.
    pair_place : slice
        Coordinates of the levels that were randomized together with the label; empty if none were.
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
        """Return the corrected moments of some rows from their sums of raw products.

        Parameters
        ----------
        sums : array of shape (n_entries, n_entries)
            Sums of products of raw entries over the rows, those of the label last.
        coordinates : Coordinates
            Linear maps from raw entries to debiased coordinates.
        label : ClassLabel or NumberLabel
            Encoding of the label, with its debiasing map.
        center : (array of shape (p,), array of shape (q,)), optional
            Points from which coordinates and label are counted; by default their own means.

        Notes
        -----
        With ``M`` the mean raw products of features, ``A`` the debiasing map, ``B`` the map that is 1 on
        average where a coordinate is published and ``m`` the center, ``K = A - diag(m) B`` and the observed
        covariance is ``K M K'``. From it the covariance of the noise on correlated numbers is subtracted;
        pairs that are shown together less often than independent ones are rescaled; and the blocks on the
        diagonal, where the noise of a column meets itself, are replaced by the debiased second moments of
        :meth:`~discreet.learn.noise_aware._blocks.Block.second_moments`.

        Reference
        ---------
        docs/explanation/theorems/noise-aware.md
        """
        # The first raw entry of every row is 1.
        n = float(sums[0, 0])
        raw = sums / n
        size = coordinates.n_raw
        features, label_products = raw[:size, :size], raw[size:, size:]
        # Divided by the rows that do show a coordinate, not by their expected number: shares add up to one.
        seen = coordinates.shown @ features[:, 0]
        seen = np.where(seen > 0, seen, 1.0)
        means = (coordinates.debias @ features[:, 0]) / seen
        levels = label.debias @ raw[size:, 0]
        mean, level = (means, levels) if center is None else center
        # The center is subtracted only where a cell is published: other cells then contribute exactly 0.
        carry = coordinates.debias - mean[:, None] * coordinates.shown
        observed = carry @ features @ carry.T
        # Between different columns noise is independent and adds nothing, unless it was drawn correlated.
        covariance = observed.copy()
        for j, k, here, there, noise in coordinates.correlations:
            covariance[j, k] -= noise * features[here, there]
        # Columns that are sampled per row are shown together less often than independently.
        covariance *= coordinates.pair_factor
        # Inside a column the noise does not cancel: its products are debiased as such.
        for block in coordinates.blocks:
            inside = block.second_moments(features, means)
            if not block.is_list:
                inside = inside / seen[block.place.start]
            cut = np.outer(mean[block.place], means[block.place])
            covariance[block.place, block.place] = (
                inside - cut - cut.T + np.outer(mean[block.place], mean[block.place])
            )
        # Label and features have independent noise, so products of debiased parts are unbiased.
        label_map = label.debias.copy()
        label_cross = label_map @ raw[size:, :size] @ carry.T
        cross = (label_cross - np.outer(level, carry @ features[:, 0])) / seen
        # A numeric label may share correlated noise with a feature.
        if isinstance(label, NumberLabel) and label.column is not None:
            cross -= (coordinates.label_noise_covariance(label.column) @ features[:, 0]) / seen
        second = np.diagonal(label_map @ label_products @ label_map.T)
        label_observed = second - 2 * level * levels + level**2
        # Product of the variances: what one row adds if label and coordinate are unrelated.
        cross_spread = np.outer(label_observed, np.diagonal(observed))
        evidence: Floats | None = None
        paired = coordinates.joint_block
        if paired is not None:
            counts = raw[size:, paired.raw.start : paired.raw.start + paired.levels]
            pairs, evidence = _joint_covariance(counts, paired, level, mean[paired.place])
            cross[:, paired.place] = pairs
            cross_spread[:, paired.place] = np.diagonal(evidence, axis1=1, axis2=2)
        if label.counts:  # the square of an indicator is the indicator
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
    """Return the covariance of a label and levels randomized with it, and its covariance over rows.

    Parameters
    ----------
    counts : array of shape (n_classes, n_levels)
        Shares of the published pairs of label and level.
    block : Block
        Levels that were randomized together with the label.
    level : array of shape (n_classes,)
        Center from which the label is counted.
    mean : array of shape (n_levels,)
        Center from which the levels are counted.

    Returns
    -------
    (array of shape (n_classes, n_levels), array of shape (n_classes, n_levels, n_levels))
        Covariance of each class with each level, and the covariance of one row's contribution to it.

    Notes
    -----
    The noise on label and level is not independent, so products of their debiased parts are biased. Shares of
    pairs are debiased as one list instead: ``(I - q) / gap``, then counted from the centers.
    """
    assert block.pair is not None
    # One response for the pair: its list has classes times levels entries.
    q, gap = block.pair.other, block.pair.gap
    classes, levels = counts.shape
    # Entry (i, j): contribution of a published pair i to the share of the true pair j.
    adds = (np.eye(classes * levels) - q) / gap
    whole = adds.reshape(-1, classes, levels)
    centered = (
        whole
        - level[None, :, None] * whole.sum(axis=1)[:, None, :]
        - mean[None, None, :] * whole.sum(axis=2)[:, :, None]
        + np.outer(level, mean)[None]
    )
    shares = counts.reshape(-1)
    # Moments over published pairs, weighted by their shares.
    average = np.einsum("r,rcv->cv", shares, centered)
    second = np.einsum("r,rcv,rcw->cvw", shares, centered, centered)
    return average, second - np.einsum("cv,cw->cvw", average, average)


CHUNK_ROWS = 8192
"""Rows that are encoded at a time, few enough for their raw entries to stay in the cache."""


@dataclass(frozen=True)
class MomentTotals:
    """Sums of products of raw entries by fold: all that a learner keeps of a published table.

    Attributes
    ----------
    n_rows : int
        Number of rows that were summed.
    folds : array of shape (n_folds, n_entries, n_entries)
        Sums of products of raw entries, those of the label last. The first entry of a row is 1.
    """

    n_rows: int
    folds: Floats

    @property
    def total(self) -> Floats:
        """Sums over all rows."""
        return np.asarray(self.folds.sum(axis=0))


@cache
def fold_pattern(n_folds: int) -> AnyArray:
    """Return the fold of each row of a chunk; every chunk has the same pattern.

    Every ``n_folds`` consecutive rows fall into different folds, in an order given by a public hash of their
    position.

    Notes
    -----
    A fold is a function of a row's position alone. Noise has the same law at every position, so folds are
    independent of noise. A release shuffles its rows under its key before they are published, so positions
    are independent of labels and features too. The hash is for rows that kept their order, as a matrix may:
    labels that repeat with a period would otherwise coincide with folds.
    """
    # The order of random words gives a random permutation of the folds for each group of rows.
    groups = np.arange(CHUNK_ROWS // n_folds, dtype=np.uint64)[:, None]
    words = _hash_pair(groups, np.arange(n_folds, dtype=np.uint64))
    return np.argsort(np.argsort(words, axis=1), axis=1).reshape(-1).astype(np.int16)


def _hash_pair(group: AnyArray, member: AnyArray) -> AnyArray:
    """Return a 64-bit hash of two numbers, by the finalizer of SplitMix64."""
    word = group * np.uint64(0x9E3779B97F4A7C15) + (member + np.uint64(1)) * np.uint64(0xD1B54A32D192ED03)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(word ^ (word >> np.uint64(31)))


class MomentSums:
    """Running sums of products of raw entries, in memory that does not grow with the number of rows.

    Parameters
    ----------
    coordinates : Coordinates
        Encoding of the features as raw entries.
    label : ClassLabel or NumberLabel
        Encoding of the label as raw entries.
    n_folds : int
        Number of folds among which rows are divided.

    Attributes
    ----------
    n_rows : int
        Number of rows added so far.
    """

    def __init__(self, coordinates: Coordinates, label: Label, n_folds: int) -> None:
        size = coordinates.n_raw + label.n_raw
        self.n_rows = 0
        self._coordinates, self._label = coordinates, label
        # Sums of zeros and ones are exact in single precision up to 2**24 rows, and chunks are shorter.
        self._kind: Any = np.float32 if coordinates.counts and label.counts else np.float64
        self._folds = np.zeros((n_folds, size, size))

    @property
    def sums(self) -> MomentTotals:
        """Sums over the rows added so far."""
        return MomentTotals(self.n_rows, self._folds)

    def add(self, columns: Mapping[str, AnyArray], labels: AnyArray) -> None:
        """Add some rows to the sums.

        Parameters
        ----------
        columns : mapping of str to array
            Features by name: numbers as floats, categories as codes.
        labels : array
            Label of each row, as a code or a number.
        """
        n_folds = len(self._folds)
        pattern = fold_pattern(n_folds)
        position = 0
        while position < len(labels):
            # A chunk ends where the pattern does, so that the fold of a row depends on its position alone.
            start = self.n_rows % len(pattern)
            stop = min(len(labels), position + len(pattern) - start)
            folds = pattern[start : start + stop - position]
            # Rows of one fold are made contiguous, so that each fold is one matrix product.
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
    """Return the sums of products of raw entries over all batches, read once.

    Parameters
    ----------
    batches : iterable of (mapping, array)
        As for :meth:`MomentSums.add`.
    coordinates, label, n_folds
        As for :class:`MomentSums`.
    """
    sums = MomentSums(coordinates, label, n_folds)
    for columns, labels in batches:
        sums.add(columns, labels)
    return sums.sums
