"""Coefficients from corrected moments: a ridge as wide as the noise in them, and debiased naive Bayes.

Whether a published table says enough about its label to learn from, told by the published rows alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import stats

from discreet.learn.noise_aware._moments import CorrectedMoments, eigenvalue_spread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from discreet._types import Floats
    from discreet.learn.noise_aware._coordinates import Coordinates

# Chosen by accuracy and R2 on public tables (waveform, segment, German credit, Pima, heart, mammographic,
# WDBC, blood transfusion, Australian credit, abalone, digits) and made-up ones, also resampled to 5,000 to
# 50,000 rows: benchmarks/noise_aware_constants.py. Adult and Lending Club gave no constant; scores on them
# three times showed what was still missing (rare levels, limits of scales). None is sharp.
COVARIANCE_RIDGE = 0.5
"""Width of the ridge over what random matrix theory gives the noise in a corrected covariance."""
CROSS_RIDGE = 2.5
"""Ridge for the noise in the covariance with the label, in units of its variance over the number of rows."""
DIAGONAL_RIDGE = 0.25
"""Share of the ridge that is left where columns are taken one by one."""
RARE_ROWS = 5.0
"""Levels seen in so few rows count half."""
LARGEST_SCALE = 3.0
"""Most that cross-fitting may enlarge scores."""
DISCRIMINANT_SHARE = 0.6
"""How much the discriminants count; naive Bayes has the rest. From a half to three quarters all are alike."""
_SMALL = 1e-10


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Scores linear in coordinates that are counted from the mean: one row of weights for each label."""

    weights: Floats
    intercepts: Floats


def invert_covariance(observed: Floats) -> tuple[Floats, int]:
    """Return the inverse of the covariance of published coordinates, and how many directions they have.

    Levels of a list add up to one, and some may never come up: directions without variance are left out of
    both alike.
    """
    scale = _inverse_root(np.diagonal(observed))
    values, vectors = np.linalg.eigh(observed * np.outer(scale, scale))
    good = values > _SMALL * max(float(values[-1]), 1.0)
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T
    return np.asarray(inverse * np.outer(scale, scale)), int(good.sum())


def _inverse_root(spread: Floats) -> Floats:
    """Return one over the root of each variance; 0 for coordinates that do not vary."""
    moving = spread > _SMALL * max(float(spread.max(initial=0.0)), 1e-300)
    return np.where(moving, 1 / np.sqrt(np.where(moving, spread, 1.0)), 0.0)


def noise_spread(moments: CorrectedMoments) -> Floats:
    """Return how noisy the covariance of each coordinate is: nothing where the column is clear.

    An entry of the corrected covariance errs by ``sqrt((d_j d_k - s_j s_k) / n)`` because of the noise, with
    ``d`` the variance with noise and ``s`` the one without.
    """
    d = moments.spread
    s = np.clip(np.diagonal(moments.covariance), 0.0, d)
    return np.sqrt(np.maximum(d**2 - s**2, 0.0))


def label_noise(moments: CorrectedMoments) -> float:
    """Return how many times more the published label varies than the true one."""
    observed = float(moments.label_observed.sum())
    true = float(moments.label_variance.sum())
    return max(1.0, observed / max(true, 0.02 * observed, 1e-300))


def ridge_widths(moments: CorrectedMoments, rank: int) -> Floats:
    """Return what is added to the variance of each coordinate before it is inverted."""
    d = moments.spread
    s = np.clip(np.diagonal(moments.covariance), 0.0, d)
    first = COVARIANCE_RIDGE * eigenvalue_spread(rank, moments.n) * noise_spread(moments)
    second = CROSS_RIDGE * rank / moments.n * np.maximum(label_noise(moments) * d - s, 0.0)
    # A level that a handful of rows have is worth a handful of rows.
    return np.asarray(first + second + RARE_ROWS / moments.n * moments.weight)


def solve_ridge(covariance: Floats, ridge: Floats, spread: Floats, sides: Floats) -> Floats:
    """Return ``(S+ + ridge)^-1 c`` for each side, S+ the nearest positive matrix in units of the noise."""
    scale = _inverse_root(spread)
    values, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T + np.diag(ridge * scale**2)
    values, vectors = np.linalg.eigh(positive)
    # Levels of a list add up to one: without noise one direction of each has nothing to invert.
    good = values > _SMALL * max(float(values[-1]), 1e-300)
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T
    return np.asarray(sides @ (scale[:, None] * inverse * scale[None, :]))


def diagonal_slopes(covariance: Floats, ridge: Floats, moments: CorrectedMoments, sides: Floats) -> Floats:
    """Return each coordinate's own slope, its variance shrunk towards what all have on average."""
    d, n = moments.spread, moments.n
    own = np.diagonal(covariance)
    moving = d > _SMALL * max(float(d.max(initial=0.0)), 1e-300)
    if not moving.any():
        return np.zeros_like(sides)
    center = float(np.clip(own[moving].mean(), 1e-4 * d[moving].mean(), None))
    error = 2 * noise_spread(moments) ** 2 / n
    between = max(0.0, float(((own - center)[moving] ** 2).mean() - error[moving].mean()))
    trust = between / np.maximum(between + error, 1e-300)
    trust = np.where(error > 0, trust, 1.0)
    variance = np.maximum(trust * own + (1 - trust) * center, 0.1 * np.where(error > 0, center, own))
    variance = np.where(variance > 0, variance, np.inf)
    return np.where(moving, sides / (variance + DIAGONAL_RIDGE * ridge), 0.0)


@dataclass(frozen=True, slots=True)
class CrossFit:
    """The risk ``a**2 s - 2 a b`` on true rows of ``a`` times each of several fits, measured across folds.

    Attributes
    ----------
    square : array of shape (n_fits,)
        ``s``.
    sides : array of shape (n_fits, n_labels)
        What each label adds to ``b``.
    doubt : array of shape (n_fits,)
        About how far ``s`` may be off.
    """

    square: Floats
    sides: Floats
    doubt: Floats

    @property
    def side(self) -> Floats:
        """``b`` of each fit."""
        return np.asarray(self.sides.sum(axis=1))


def cross_fit(
    total: CorrectedMoments,
    parts: Sequence[tuple[CorrectedMoments, CorrectedMoments]],
    fits: Sequence[Callable[[CorrectedMoments], Floats]],
    within: bool,
) -> CrossFit:
    """Measure fits on rows that they have not seen.

    Weights are fitted without a fold and measured on it alone, so ``s`` and ``b`` are unbiased for true rows
    although only published ones are read: the best ``a`` says how large scores should be.

    Parameters
    ----------
    total : Moments
        Of all rows.
    parts : sequence of (Moments, Moments)
        For each fold the moments without it, on which weights are fitted, and those of it alone.
    fits : sequence of callables
        Weights from moments.
    within : bool
        Whether classes are told apart, so that variance between them does not count.
    """
    shares = class_shares(total) if within else np.ones(1)
    square, sides = np.zeros(len(fits)), np.zeros((len(fits), len(total.cross)))
    for rest, fold in parts:
        for i, fit in enumerate(fits):
            w = fit(rest)
            sides[i] += (w * fold.cross).sum(axis=1) / len(parts)
            variances = ((w @ fold.covariance) * w).sum(axis=1)
            if within:
                # One factor from each part: their noise is independent, so the product is unbiased.
                variances = variances - ((w @ class_shifts(rest).T) * (w @ fold.cross.T)).sum(axis=1)
            square[i] += float(shares @ variances) / len(parts)
    spread = noise_spread(total)
    doubt = [math.sqrt(2 / total.n) * float(shares @ (fit(total) ** 2 @ spread)) for fit in fits]
    return CrossFit(square, sides, np.array(doubt))


def score_scale(square: float, side: float, doubt: float) -> float:
    """Return the factor for one fit: ``side / square``, and less the more doubt there is about ``square``.

    A factor twice too large is as bad as none at all, and a variance that came out too small by chance gives
    one. ``s / (s**2 + e**2)`` in place of ``1 / s`` is the ratio with the least expected loss.
    """
    square = max(square, doubt)
    if not (side > 0 and square > 0):
        return 0.0
    return float(np.clip(side * square / (square**2 + doubt**2), 0.0, LARGEST_SCALE))


def score_scales(measured: CrossFit, *, together: bool) -> Floats:
    """Return factors for the discriminants and for naive Bayes.

    No direction separates classes better than the best one, which the discriminants estimate: noise must not
    let the second claim more.

    Parameters
    ----------
    measured : CrossFit
        Of the two.
    together : bool
        Whether some row shows two columns. Otherwise nobody knows how much of what they say is the same, and
        both are measured as if nothing were. Scores are then taken down to those of least squares, which
        spread over all rows and not inside classes alone: the more columns claim, the less they are believed.
    """
    side = measured.side
    first, second = (
        score_scale(float(measured.square[i]), float(side[i]), float(measured.doubt[i])) for i in range(2)
    )
    if side[1] > 0:
        second = min(second, first * max(float(side[0]), 0.0) / float(side[1]))
    claimed = 0.0 if together else max(first * float(side[0]), 0.0)
    return np.array([first, second]) / (1 + claimed)


def class_shares(moments: CorrectedMoments) -> Floats:
    """Return shares of classes that are above 0 and add up to one."""
    shares = np.maximum(moments.level, 0.5 / moments.n)
    return np.asarray(shares / shares.sum())


def class_shifts(moments: CorrectedMoments) -> Floats:
    """Return how far the mean of each class is from that of all rows."""
    return np.asarray(moments.cross / class_shares(moments)[:, None])


def within_covariance(moments: CorrectedMoments) -> Floats:
    """Return the covariance inside classes."""
    shifts = class_shifts(moments)
    return np.asarray(moments.covariance - (shifts.T * class_shares(moments)) @ shifts)


def naive_bayes(moments: CorrectedMoments, coordinates: Coordinates, rank: int) -> LinearFit:
    """Return logarithms of how much more likely a class makes each level, shrunk by their noise."""
    shares, shifts = class_shares(moments), class_shifts(moments)
    counts = shares * moments.n
    weights = np.zeros_like(shifts)
    intercepts = np.zeros(len(shares))
    numbers = [b for b in coordinates.blocks if not b.is_list]
    if numbers:
        every = diagonal_slopes(within_covariance(moments), ridge_widths(moments, rank), moments, shifts)
        for block in numbers:
            weights[:, block.place] = every[:, block.place]
            intercepts -= (every[:, block.place] * shifts[:, block.place]).sum(axis=1) / 2
    for block in coordinates.blocks:
        if not block.is_list:
            continue
        pooled = np.maximum(moments.mean[block.place], 0.25 / moments.n)
        pooled = pooled / pooled.sum()
        for c, count in enumerate(counts):
            spread = moments.cross_spread[c, block.place] / (shares[c] * count)
            shift = shifts[c, block.place]
            error = float(spread.sum())
            trust = max(0.0, 1 - error / max(float((shift**2).sum()), 1e-300))
            floor = np.minimum(max(0.5 / count, 0.25 * math.sqrt(float(spread.mean()))), 0.2 * pooled)
            theta = np.maximum(pooled + trust * shift, floor)
            weights[c, block.place] = np.log(theta / theta.sum()) - np.log(pooled)
        intercepts += weights[:, block.place] @ moments.mean[block.place]
    return LinearFit(weights, intercepts + np.log(shares))


Status = Literal["ok", "ranking-only", "refused"]

LEVEL = 0.001
"""How often a table whose label has nothing to do with the rest is taken for one that has."""
FIRM = 5.0
"""How many times what chance gives a statistic must be for scores to be probabilities."""


@dataclass(frozen=True, slots=True)
class FitEvidence:
    """How strongly label and features go together in the published rows, noise and all.

    Attributes
    ----------
    statistic : float
        ``T2``: rows times the share of the label's variance that features explain, of the class for which it
        is largest. Without any relation it is chi-square with ``rank`` degrees of freedom in large tables.
    rank : int
        How many directions features have.
    critical : float
        What chance alone passes with a probability of 0.001, all classes together.
    """

    statistic: float
    rank: int
    critical: float

    @property
    def ratio(self) -> float:
        """The statistic over what it is by chance."""
        return self.statistic / max(self.rank, 1)

    @property
    def reliability(self) -> float:
        """The share of the direction that is signal."""
        return max(0.0, 1 - self.rank / max(self.statistic, 1e-300))

    @property
    def status(self) -> Status:
        """What the rule allows."""
        if not self.statistic > self.critical:
            return "refused"
        return "ranking-only" if self.ratio < FIRM else "ok"


def measure_evidence(moments: CorrectedMoments) -> FitEvidence:
    """Weigh the evidence for a relation.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md
    """
    observed, n = moments.observed, moments.n
    tests = len(moments.cross) if len(moments.cross) > 2 else 1
    if moments.pair_covariance is not None:
        # Randomized together, label and levels depend on each other even where the true ones do not: what is
        # tested is the covariance of the true ones, against how much rows make it vary.
        cross = moments.cross[:, moments.pair_place]
        rank = cross.shape[1] - 1
        inverses = np.linalg.pinv(moments.pair_covariance, rcond=1e-10, hermitian=True)
        statistic = n * float(np.einsum("cv,cvw,cw->c", cross, inverses, cross).max(initial=0.0))
        return FitEvidence(statistic, rank, critical_value(rank, n, tests))
    inverse, rank = invert_covariance(observed)
    # Over all rows, not over those that show a coordinate: the statistic is the explained share of all.
    cross = moments.cross * moments.seen
    explained = np.einsum("cp,pq,cq->c", cross, inverse, cross)
    statistic = n * float((explained / np.maximum(moments.label_observed, 1e-300)).max(initial=0.0))
    return FitEvidence(statistic, rank, critical_value(rank, n, tests))


def critical_value(rank: int, n: int, tests: int = 1) -> float:
    """Return what the statistic passes by chance with probability 0.001, shared out among `tests`.

    In a table of ``n`` rows the explained share is beta distributed, and ``n`` times it chi-square only when
    the table is long. With no more rows than directions everything is explained and nothing is shown.
    """
    left = n - 1 - rank
    if left <= 0 or rank == 0:
        return float("inf")
    return n * float(stats.beta.isf(LEVEL / tests, rank / 2, left / 2))
