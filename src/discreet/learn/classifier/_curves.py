"""First stage of the classifier: class totals, shares of cells, and smoothed curves from noisy counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import special

from discreet.learn.classifier._rules import (
    LINEAR_PART,
    POOLED_COLUMNS,
    ROUGH_PART,
    SMOOTH_LENGTH,
    SMOOTH_PART,
    STRENGTH_SHARES,
    STRENGTHS,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats

_LARGEST_RATIO = 20.0
_ROUNDS = 30  # of expectation and maximization
_LEAST_NOISE = 1e-12  # of a share: below it, rounding is larger


@dataclass(frozen=True, eq=False)
class Curve:
    """The effect of one column: a step curve over its cells.

    Attributes
    ----------
    values : array of shape (n_cells, n_classes)
        Logarithm by which a cell makes each class more likely, shrunk towards 0.
    sd : array of shape (n_cells, n_classes)
        Standard deviation of each value, by noise and by the number of rows.
    shares : array of shape (n_cells,)
        Share of the rows in each cell, estimated from the noisy counts; they add up to 1.
    """

    values: Floats
    sd: Floats
    shares: Floats

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal curve."""
        return {"values": self.values.tolist(), "sd": self.sd.tolist(), "shares": self.shares.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the curve that :meth:`to_dict` wrote."""
        return cls(np.array(values["values"]), np.array(values["sd"]), np.array(values["shares"]))


def combine_totals(counts: Floats, count_sd: float, tables: Sequence[Floats], sd: float, n: float) -> Floats:
    """Return the number of rows of each class, from the class counts and the margins of all tables.

    Parameters
    ----------
    counts : array of shape (n_classes,)
        Noisy number of rows of each class.
    count_sd, sd : float
        Standard deviation of the noise on a class count, and on a cell of a table.
    tables : sequence of array of shape (n_cells, n_classes)
        Noisy counts of the cells of each column by class.
    n : float
        Number of rows, public or estimated.

    Notes
    -----
    The mean by inverse variances, a margin of ``m`` cells having ``m`` times the variance of a cell. What is
    missing to ``n`` is given to all classes alike. No class is below a hundredth of the rows, so that noise
    excludes none.
    """
    totals = counts
    if sd > 0:
        # Precisions in units of that of a cell.
        weights = [(sd / count_sd) ** 2, *(1 / len(table) for table in tables)]
        totals = np.average([counts, *(table.sum(axis=0) for table in tables)], axis=0, weights=weights)
    totals = totals + (n - totals.sum()) / len(totals)
    totals = np.maximum(totals, n * min(0.01, 0.1 / len(totals)))
    return np.asarray(totals * (n / totals.sum()))


def estimate_shares(table: Floats, sd: float, n: float) -> Floats:
    """Return the share of the rows in each cell: the posterior mean under an exponential prior.

    Parameters
    ----------
    table : array of shape (n_cells, n_classes)
        Noisy counts of the cells of a column by class.
    sd : float
        Standard deviation of the noise on a count.
    n : float
        Number of rows, public or estimated.
    """
    m, n_classes = table.shape
    shares = table.sum(axis=1) / n
    noise = sd * math.sqrt(n_classes) / n
    if noise > _LEAST_NOISE:
        # An exponential prior of rate m moves the normal law of a share down by m of its variances.
        mean = shares - noise**2 * m
        # The mean of a normal distribution cut off below 0; its tail is stable by erfcx alone.
        cut = math.sqrt(2 / math.pi) / special.erfcx(-mean / (noise * math.sqrt(2)))
        shares = np.maximum(mean + noise * cut, 0.01 * noise)
    # Noise never shows that a cell is empty: it has half a row at least.
    shares = np.maximum(shares / max(float(shares.sum()), 1e-9), 0.5 / n)
    return np.asarray(shares / shares.sum())


def prior_covariance(n_cells: int, *, ordered: bool, missing: bool) -> Floats:
    """Return the covariance of a curve over cells before anything is known, of variance about 1.

    Parameters
    ----------
    n_cells : int
        Number of cells, that of missing values included.
    ordered : bool
        Whether cells are intervals of a number: neighbors are then alike, and a line is likely.
    missing : bool
        Whether the last cell is that of missing values, which is like no other.
    """
    result = np.eye(n_cells)
    m = n_cells - missing
    if ordered and m >= 3:
        places = np.arange(m) / (m - 1) - 0.5
        # Places have the variance (m + 1) / (12 (m - 1)); the factor makes it 1.
        line = 12 * (m - 1) / (m + 1) * np.outer(places, places)
        smooth = np.exp(-((places[:, None] - places) ** 2) / (2 * SMOOTH_LENGTH**2))
        result[:m, :m] = LINEAR_PART * line + SMOOTH_PART * smooth + ROUGH_PART * np.eye(m)
    return result


@dataclass(frozen=True)
class _Fit:
    """Evidence for each strength of a column's effect, and the curve that each would give.

    Attributes
    ----------
    evidence : array of shape (n_strengths,)
        Log-likelihood of the column's table.
    means, variances : array of shape (n_strengths, n_cells, n_classes)
        Relative effects of its cells on the classes, and their variances.
    shares : array of shape (n_cells,)
        Share of the rows in each cell.
    """

    evidence: Floats
    means: Floats
    variances: Floats
    shares: Floats


def make_curves(tables: Sequence[Floats], priors: Sequence[Floats], totals: Floats, sd: float) -> list[Curve]:
    """Return the curves of all columns, smoothed and shrunk as far as noise explains them.

    Parameters
    ----------
    tables : sequence of array of shape (n_cells, n_classes)
        Noisy counts of each column by class.
    priors : sequence of array of shape (n_cells, n_cells)
        Covariance of each column's curve before anything is known, by :func:`prior_covariance`.
    totals : array of shape (n_classes,)
        Number of rows of each class.
    sd : float
        Standard deviation of the noise on a count.

    Notes
    -----
    The excess of class ``k`` in a cell, ``T / N_k - q``, is ``q x`` and noise, with ``x`` the relative effect
    and ``q`` the share of the cell. Effects have the prior covariance times a strength ``t`` of the column.
    How likely each strength is, is learned from all columns together by expectation and maximization, so that
    where noise explains all columns each is taken for noise. The mean effect over all rows is 0. The curve is
    ``log(1 + x)``.
    """
    fits = [
        # Class totals are known better than any table's.
        _fit_column(table + (totals - table.sum(axis=0)) / len(table), prior, totals, sd)
        for table, prior in zip(tables, priors, strict=True)
    ]
    # Only ratios count: with the largest at 1, none overflows.
    evidence = np.exp([fit.evidence - fit.evidence.max() for fit in fits])
    base = np.array(STRENGTH_SHARES)
    common, likely = base, evidence
    for _ in range(_ROUNDS):
        likely = evidence * common
        likely = likely / likely.sum(axis=1, keepdims=True)
        common = likely.sum(axis=0) + POOLED_COLUMNS * base
        common = common / common.sum()
    curves = []
    for fit, weights in zip(fits, likely, strict=True):
        mean = np.tensordot(weights, fit.means, axes=1)
        # The law of total variance, over the strengths that are possible.
        variance = np.tensordot(weights, fit.variances + fit.means**2, axes=1) - mean**2
        ratio = np.clip(1 + mean, 1 / _LARGEST_RATIO, _LARGEST_RATIO)
        curves.append(Curve(np.log(ratio), np.sqrt(np.maximum(variance, 0.0)) / ratio, fit.shares))
    return curves


def _fit_column(table: Floats, prior: Floats, totals: Floats, sd: float) -> _Fit:
    """Return the evidence for each strength of one column's effect, and the curves they would give."""
    n, n_classes = float(totals.sum()), len(totals)
    shares = estimate_shares(table, sd, n)
    # Under the condition that the effects of all rows add up to 0.
    moved = prior @ shares
    prior = prior - np.outer(moved, moved) / float(shares @ moved)
    strengths = np.array(STRENGTHS)
    evidence = np.zeros(len(strengths))
    means = np.empty((len(strengths), len(table), n_classes))
    variances = np.empty_like(means)
    for k, (counts, total) in enumerate(zip(table.T, totals, strict=True)):
        p = total / n
        excess = counts / total - table.sum(axis=1) / n
        # Variance of a count less p times all counts of its cell: of the noise, then of the choice of rows.
        noise = sd * sd * (1 - 2 * p + n_classes * p * p) + np.maximum(counts, 0.0) * (1 - p) + 1
        noise = noise * max(1 - 1 / len(table), 0.5)
        scale = shares * total / np.sqrt(noise)
        # Along the eigenvectors of the prior, in units of the noise, all strengths are solved at once.
        values, vectors = np.linalg.eigh(scale[:, None] * prior * scale)
        values = np.maximum(values, 0.0)
        z = vectors.T @ (excess * total / np.sqrt(noise))
        total_variance = 1 + strengths[:, None] * values
        evidence -= (np.log(total_variance) + z**2 / total_variance).sum(axis=1) / 2
        loading = (prior * scale) @ vectors
        means[:, :, k] = strengths[:, None] * ((z / total_variance) @ loading.T)
        explained = strengths[:, None] ** 2 * ((1 / total_variance) @ (loading.T**2))
        variances[:, :, k] = strengths[:, None] * np.diag(prior) - explained
    return _Fit(evidence * (n_classes - 1) / n_classes, means, variances, shares)
