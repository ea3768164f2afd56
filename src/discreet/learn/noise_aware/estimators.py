"""Estimators on corrected moments: ridge solutions, debiased naive Bayes, and a test for any relation.

Ridges are as wide as the noise that correction leaves in the moments. The test decides from published rows
alone whether the table says enough about its label to learn from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy

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
"""Width of the ridge, as a multiple of the noise in a corrected covariance by random matrix theory."""
CROSS_RIDGE = 2.5
"""Ridge for the noise in the covariance with the label, in units of its variance over the number of rows."""
DIAGONAL_RIDGE = 0.25
"""Share of the ridge that is used where columns are fitted one by one."""
RARE_ROWS = 5.0
"""Number of rows at which the slope of a level is halved."""
LARGEST_SCALE = 3.0
"""Largest factor by which cross-fitting may enlarge scores."""
DISCRIMINANT_SHARE = 0.6
"""Weight of the discriminants; naive Bayes has the rest. Weights from 0.5 to 0.75 score alike."""
_SMALL = 1e-10


@dataclass(frozen=True, slots=True)
class LinearFit:
    """Linear scores of centered coordinates.

    Attributes
    ----------
    weights : array of shape (n_labels, n_coordinates)
        Slope of each label's score in each coordinate, counted from the mean of all rows.
    intercepts : array of shape (n_labels,)
        Score of each label at the mean of all rows.
    """

    weights: Floats
    intercepts: Floats


def invert_covariance(observed: Floats) -> tuple[Floats, int]:
    """Return the pseudo-inverse of the covariance of published coordinates, and its rank.

    Notes
    -----
    ``D (D C D)^+ D`` with ``D = diag(C)^(-1/2)``, so that the units of columns do not matter. Levels of a
    list add up to one, and some may never occur: directions without variance count neither in the inverse nor
    in the rank.
    """
    scale = _inverse_root(np.diagonal(observed))
    values, vectors = np.linalg.eigh(observed * np.outer(scale, scale))
    # Correlations have eigenvalues of order 1, so the threshold is absolute.
    good = values > _SMALL * max(float(values[-1]), 1.0)
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T
    return np.asarray(inverse * np.outer(scale, scale)), int(good.sum())


def _inverse_root(spread: Floats) -> Floats:
    """Return ``1 / sqrt(v)`` for each variance ``v``, and 0 for coordinates that do not vary."""
    moving = spread > _SMALL * max(float(spread.max(initial=0.0)), 1e-300)
    return np.where(moving, 1 / np.sqrt(np.where(moving, spread, 1.0)), 0.0)


def noise_spread(moments: CorrectedMoments) -> Floats:
    """Return the noise in each diagonal entry of the corrected covariance, times ``sqrt(n)``.

    Notes
    -----
    ``sqrt(d_j^2 - s_j^2)``, with ``d`` the variance with noise and ``s`` the one without: the noise makes
    entry (j, k) of the corrected covariance err by ``sqrt((d_j d_k - s_j s_k) / n)``. It is 0 for a column
    that is published in the clear.
    """
    d = moments.spread
    s = np.clip(np.diagonal(moments.covariance), 0.0, d)
    return np.sqrt(np.maximum(d**2 - s**2, 0.0))


def label_noise(moments: CorrectedMoments) -> float:
    """Return the variance of the published label over that of the true one, at least 1."""
    observed = float(moments.label_observed.sum())
    # The corrected variance may come out near 0 or below, so the ratio is cut at 50.
    true = float(moments.label_variance.sum())
    return max(1.0, observed / max(true, 0.02 * observed, 1e-300))


def ridge_widths(moments: CorrectedMoments, rank: int) -> Floats:
    """Return the ridge: what is added to the variance of each coordinate before inversion.

    Parameters
    ----------
    moments : CorrectedMoments
        Moments that the ridge is for.
    rank : int
        Number of directions ``p`` in which published coordinates vary.

    Notes
    -----
    ``a e(p, n) sqrt(d^2 - s^2) + c (p / n) max(l d - s, 0) + r w / n`` for each coordinate: the first term
    covers the noise in the covariance, ``e`` the spread of its eigenvalues
    (:func:`~discreet.learn.noise_aware._moments.eigenvalue_spread`); the second the noise in the covariance
    with the label, ``l`` being :func:`label_noise`; the third shrinks levels that few rows have, ``w`` being
    the weight of one row. ``a``, ``c`` and ``r`` are ``COVARIANCE_RIDGE``, ``CROSS_RIDGE`` and ``RARE_ROWS``.
    """
    d = moments.spread
    s = np.clip(np.diagonal(moments.covariance), 0.0, d)
    first = COVARIANCE_RIDGE * eigenvalue_spread(rank, moments.n) * noise_spread(moments)
    second = CROSS_RIDGE * rank / moments.n * np.maximum(label_noise(moments) * d - s, 0.0)
    # A rare level gets a ridge that is a fixed number of rows, however long the table is.
    return np.asarray(first + second + RARE_ROWS / moments.n * moments.weight)


def solve_ridge(covariance: Floats, ridge: Floats, spread: Floats, sides: Floats) -> Floats:
    """Return the ridge solution ``(S+ + diag(ridge))^-1 c`` for each right-hand side ``c``.

    Parameters
    ----------
    covariance : array of shape (p, p)
        Corrected covariance ``S``, not always positive semidefinite.
    ridge : array of shape (p,)
        Width of the ridge on each coordinate, at least 0.
    spread : array of shape (p,)
        Observed variances, noise included, which serve as units.
    sides : array of shape (q, p)
        Right-hand sides, one row for each label.

    Returns
    -------
    array of shape (q, p)
        Weights, one row for each label.

    Notes
    -----
    ``S+`` is the nearest positive semidefinite matrix after coordinates are divided by the roots of their
    observed variances: negative eigenvalues, which only noise makes, become 0.
    """
    scale = _inverse_root(spread)
    values, vectors = np.linalg.eigh(covariance * np.outer(scale, scale))
    # Negative eigenvalues are noise; the ridge is rescaled to the same units.
    positive = (vectors * np.maximum(values, 0.0)) @ vectors.T + np.diag(ridge * scale**2)
    values, vectors = np.linalg.eigh(positive)
    # Levels of a list add up to one: without a ridge, one direction of each list has eigenvalue 0.
    good = values > _SMALL * max(float(values[-1]), 1e-300)
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T
    return np.asarray(sides @ (scale[:, None] * inverse * scale[None, :]))


def diagonal_slopes(covariance: Floats, ridge: Floats, moments: CorrectedMoments, sides: Floats) -> Floats:
    """Return one slope per coordinate, ``c_j / (v_j + DIAGONAL_RIDGE ridge_j)``.

    Parameters
    ----------
    covariance : array of shape (p, p)
        Corrected covariance, of which only the diagonal ``s`` is read.
    ridge : array of shape (p,)
        Width of the ridge on each coordinate, at least 0.
    moments : CorrectedMoments
        Moments with the observed variances and the number of rows ``n``.
    sides : array of shape (q, p)
        Covariances ``c`` with each label.

    Notes
    -----
    ``v_j = t_j s_j + (1 - t_j) mean(s)`` with ``t_j = b / (b + e_j)``, the empirical-Bayes weight of the
    coordinate's own corrected variance: ``e_j = 2 (d_j^2 - s_j^2) / n`` is the squared error of ``s_j``, and
    ``b`` the variance of all ``s`` less the mean of ``e``. A column in the clear has ``e_j = 0`` and keeps
    its own variance.
    """
    d, n = moments.spread, moments.n
    own = np.diagonal(covariance)
    moving = d > _SMALL * max(float(d.max(initial=0.0)), 1e-300)
    if not moving.any():
        return np.zeros_like(sides)
    # The mean of corrected variances, which may be negative, is kept above 0.
    center = float(np.clip(own[moving].mean(), 1e-4 * d[moving].mean(), None))
    error = 2 * noise_spread(moments) ** 2 / n
    # Variance of the true variances: the observed one less what the errors explain.
    between = max(0.0, float(((own - center)[moving] ** 2).mean() - error[moving].mean()))
    trust = between / np.maximum(between + error, 1e-300)
    # Columns in the clear need no shrinking.
    trust = np.where(error > 0, trust, 1.0)
    # Noise can push a variance below 0: a tenth of the mean is the least that is believed.
    variance = np.maximum(trust * own + (1 - trust) * center, 0.1 * np.where(error > 0, center, own))
    variance = np.where(variance > 0, variance, np.inf)
    return np.where(moving, sides / (variance + DIAGONAL_RIDGE * ridge), 0.0)


@dataclass(frozen=True, slots=True)
class CrossFit:
    """The risk ``a**2 s - 2 a b`` on true rows of each fit times a factor ``a``, estimated by cross-fitting.

    Attributes
    ----------
    square : array of shape (n_fits,)
        Mean square ``s`` of each fit's scores on true rows.
    sides : array of shape (n_fits, n_labels)
        Contribution of each label to the covariance ``b`` of scores and label.
    doubt : array of shape (n_fits,)
        Approximate standard error of ``s`` due to the noise.
    """

    square: Floats
    sides: Floats
    doubt: Floats

    @property
    def side(self) -> Floats:
        """Covariance ``b`` of scores and label, for each fit."""
        return np.asarray(self.sides.sum(axis=1))


def cross_fit(
    total: CorrectedMoments,
    parts: Sequence[tuple[CorrectedMoments, CorrectedMoments]],
    fits: Sequence[Callable[[CorrectedMoments], Floats]],
    within: bool,
) -> CrossFit:
    """Return the risk of fits on rows that had no part in their weights.

    Parameters
    ----------
    total : CorrectedMoments
        Moments of all rows.
    parts : sequence of (CorrectedMoments, CorrectedMoments)
        For each fold the moments without it, on which weights are fitted, and those of it alone.
    fits : sequence of callables
        Functions from moments to weights of shape (n_labels, p).
    within : bool
        Whether labels are classes: the variance of scores is then that inside classes.

    Notes
    -----
    With ``w`` fitted without fold ``k``, ``b`` is the mean of ``w . c_k`` and ``s`` that of ``w' S_k w`` over
    folds, ``c_k`` and ``S_k`` the corrected moments of the fold. Both are unbiased for true rows although
    only published ones are read. The doubt is ``sqrt(2 / n) sum_j w_j^2 sqrt(d_j^2 - s_j^2)``.
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
    """Return the factor for the scores of one fit, between 0 and ``LARGEST_SCALE``.

    Notes
    -----
    ``b s / (s^2 + e^2)`` with ``b`` the side, ``s`` the square and ``e`` the doubt about it. The plain ratio
    ``b / s`` has the least risk for a known ``s``; a factor twice too large is as bad as none, and an ``s``
    that came out too small by chance would give one.
    """
    # A square below its own error cannot be distinguished from the error.
    square = max(square, doubt)
    if not (side > 0 and square > 0):
        return 0.0
    return float(np.clip(side * square / (square**2 + doubt**2), 0.0, LARGEST_SCALE))


def score_scales(measured: CrossFit, *, together: bool) -> Floats:
    """Return the factors for the discriminants and for naive Bayes.

    Parameters
    ----------
    measured : CrossFit
        Risk of the discriminants, then of naive Bayes.
    together : bool
        Whether some published row shows two columns at once. If not, correlations between columns are
        unknown and both fits were measured as if there were none.

    Notes
    -----
    No direction separates classes better than the best one, which the discriminants estimate: the second
    factor is cut so that noise does not let naive Bayes claim more. Without correlations both factors are
    divided by ``1 + a b``, which turns the scores into those of least squares over all rows: the more the
    columns claim, the less they are believed.
    """
    side = measured.side
    first, second = (
        score_scale(float(measured.square[i]), float(side[i]), float(measured.doubt[i])) for i in range(2)
    )
    if side[1] > 0:
        # The gain of a scaled fit is a b; that of naive Bayes may not exceed that of the discriminants.
        second = min(second, first * max(float(side[0]), 0.0) / float(side[1]))
    # a b of the discriminants: the part of the variance that they claim to explain.
    claimed = 0.0 if together else max(first * float(side[0]), 0.0)
    return np.array([first, second]) / (1 + claimed)


def class_shares(moments: CorrectedMoments) -> Floats:
    """Return the corrected shares of classes, raised to at least half a row and normalized."""
    # Debiased shares of rare classes can be negative.
    shares = np.maximum(moments.level, 0.5 / moments.n)
    return np.asarray(shares / shares.sum())


def class_shifts(moments: CorrectedMoments) -> Floats:
    """Return the mean of each class less the mean of all rows, of shape (n_classes, p)."""
    return np.asarray(moments.cross / class_shares(moments)[:, None])


def within_covariance(moments: CorrectedMoments) -> Floats:
    """Return the covariance inside classes: that of all rows less that between class means."""
    shifts = class_shifts(moments)
    return np.asarray(moments.covariance - (shifts.T * class_shares(moments)) @ shifts)


def naive_bayes(moments: CorrectedMoments, coordinates: Coordinates, rank: int) -> LinearFit:
    """Return naive Bayes scores: log-ratios of debiased shares, and linear terms for numbers.

    Parameters
    ----------
    moments : CorrectedMoments
        Moments of all rows, or of all but a fold.
    coordinates : Coordinates
        Map that says which coordinates are numbers and which are levels.
    rank : int
        Number of directions in which published coordinates vary.

    Notes
    -----
    For a level ``v`` of a list and class ``c`` the weight is ``log(theta_cv / pooled_v)``, with ``theta_c =
    pooled + t delta_c``, cut from below and normalized; ``delta_c`` is the shift of the class's debiased
    shares and ``t = max(0, 1 - E / |delta_c|^2)`` the James-Stein factor for its noise ``E``. Numbers are
    Gaussian with one variance for all classes: the slopes of :func:`diagonal_slopes`. Intercepts are those of
    coordinates counted from the mean, plus ``log`` of the class shares.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md
    """
    shares, shifts = class_shares(moments), class_shifts(moments)
    counts = shares * moments.n
    weights = np.zeros_like(shifts)
    intercepts = np.zeros(len(shares))
    numbers = [b for b in coordinates.blocks if not b.is_list]
    if numbers:
        # With one variance for all classes the log-likelihood ratio is linear in a number.
        every = diagonal_slopes(within_covariance(moments), ridge_widths(moments, rank), moments, shifts)
        for block in numbers:
            weights[:, block.place] = every[:, block.place]
            intercepts -= (every[:, block.place] * shifts[:, block.place]).sum(axis=1) / 2
    for block in coordinates.blocks:
        if not block.is_list:
            continue
        # Shares of levels over all classes, which noise may have pushed below 0.
        pooled = np.maximum(moments.mean[block.place], 0.25 / moments.n)
        pooled = pooled / pooled.sum()
        for c, count in enumerate(counts):
            # Variance of the class mean: cross / share has the variance of cross over share^2 n.
            spread = moments.cross_spread[c, block.place] / (shares[c] * count)
            shift = shifts[c, block.place]
            error = float(spread.sum())
            # Positive-part James-Stein factor.
            trust = max(0.0, 1 - error / max(float((shift**2).sum()), 1e-300))
            # Noise may leave a share of 0 or below, whose logarithm would decide every score.
            floor = np.minimum(max(0.5 / count, 0.25 * math.sqrt(float(spread.mean()))), 0.2 * pooled)
            theta = np.maximum(pooled + trust * shift, floor)
            weights[c, block.place] = np.log(theta / theta.sum()) - np.log(pooled)
        # Coordinates are counted from the mean, log-ratios from 0.
        intercepts += weights[:, block.place] @ moments.mean[block.place]
    return LinearFit(weights, intercepts + np.log(shares))


Status = Literal["ok", "ranking-only", "refused"]

LEVEL = 0.001
"""Probability of the test's false alarm: a table without any relation passes it this often."""
FIRM_RATIO = 5.0
"""Least ratio of the statistic to its mean by chance at which scores are taken for probabilities."""


@dataclass(frozen=True, slots=True)
class FitEvidence:
    """Strength of the relation between label and features in the published rows, noise included.

    Attributes
    ----------
    statistic : float
        ``T2``: number of rows times the share of the label's variance that features explain, the largest
        over classes. Without any relation it is chi-square with ``rank`` degrees of freedom in large tables.
    rank : int
        Number of directions in which published features vary.
    critical : float
        Value that ``T2`` exceeds by chance with probability 0.001, over all classes together.
    """

    statistic: float
    rank: int
    critical: float

    @property
    def ratio(self) -> float:
        """The statistic over its mean without any relation, which is the rank."""
        return self.statistic / max(self.rank, 1)

    @property
    def reliability(self) -> float:
        """Estimated share of the fitted direction that is signal, ``1 - rank / T2``."""
        return max(0.0, 1 - self.rank / max(self.statistic, 1e-300))

    @property
    def status(self) -> Status:
        """Verdict of the test: probabilities, a ranking of rows only, or no model at all."""
        if not self.statistic > self.critical:
            return "refused"
        return "ranking-only" if self.ratio < FIRM_RATIO else "ok"


def measure_evidence(moments: CorrectedMoments) -> FitEvidence:
    """Test whether label and features are related at all, by published rows alone.

    Notes
    -----
    ``T2 = n max_c (k_c' C^+ k_c) / v_c``, with ``k_c`` the covariance of class ``c`` (or of the number) with
    the published features, ``C`` their observed covariance and ``v_c`` the observed variance of the label.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md
    """
    observed, n = moments.observed, moments.n
    # Two classes carry the same information, so they are one test.
    tests = len(moments.cross) if len(moments.cross) > 2 else 1
    if moments.pair_covariance is not None:
        # Randomized together, label and levels depend on each other even where the true ones do not: the
        # test is about the covariance of the true ones, against its variance over rows.
        cross = moments.cross[:, moments.pair_place]
        rank = cross.shape[1] - 1
        inverses = np.linalg.pinv(moments.pair_covariance, rcond=1e-10, hermitian=True)
        statistic = n * float(np.einsum("cv,cvw,cw->c", cross, inverses, cross).max(initial=0.0))
        return FitEvidence(statistic, rank, critical_value(rank, n, tests))
    inverse, rank = invert_covariance(observed)
    # Per row of the table, not per row that shows a coordinate: T2 is the explained share of all rows.
    cross = moments.cross * moments.seen
    explained = np.einsum("cp,pq,cq->c", cross, inverse, cross)
    statistic = n * float((explained / np.maximum(moments.label_observed, 1e-300)).max(initial=0.0))
    return FitEvidence(statistic, rank, critical_value(rank, n, tests))


def critical_value(rank: int, n: int, tests: int = 1) -> float:
    """Return the value that ``T2`` exceeds by chance with probability 0.001.

    Parameters
    ----------
    rank : int
        Number of directions ``p`` in which published features vary.
    n : int
        Number of published rows.
    tests : int
        Number of classes that are tested at once, among which the probability is split.

    Notes
    -----
    ``n`` times the upper quantile of a Beta(p / 2, (n - 1 - p) / 2), the law of the explained share without
    any relation; chi-square with ``p`` degrees of freedom is its limit. Infinite where there are no more rows
    than directions: everything is explained then, and nothing is shown.
    """
    left = n - 1 - rank
    if left <= 0 or rank == 0:
        return float("inf")
    return n * float(scipy.special.betainccinv(rank / 2, left / 2, LEVEL / tests))
