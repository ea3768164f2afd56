"""Sums over columns that the first paper prints as privacy, with what each of them really says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg, stats

if TYPE_CHECKING:
    from discreet._typing import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceBounds:
    """Lower bounds on the squared error of guesses at a whole row, summed over columns.

    A sum hides that a column in large units may be almost unprotected; read the floors per column first.

    Attributes
    ----------
    unbiased : float
        ``Tr V``, on ``E |x - guess|^2``; unbiased attackers without other knowledge only.
    half : float
        ``Tr(Pi V)``, on ``E |Pi^(1/2) (x - guess)|^2``; the same attackers. The paper's number.
    full : float
        ``Tr(Pi V Pi)``, on ``E |Pi (x - guess)|^2``; the same attackers. What the paper's left side says.
    weak : float
        ``p^2 / Tr(Pi^-1 V^-1)``, below ``half``.
    anyone : float
        Every attacker, for some rows in the declared box: van Trees with the cosine-squared prior.

    Privacy
    -------
    Only ``anyone`` binds every attacker, and that one on average over a prior; it never exceeds
    ``sum(widths^2) / (4 pi^2)`` however large the noise.

    Reference
    ---------
    Farokhi's propositions 2.2 and 2.8: docs/explanation/theorems/fisher-cramer-rao.md.
    """

    unbiased: float
    half: float
    full: float
    weak: float
    anyone: float


def trace_bounds(covariance: Floats, weights: Floats, widths: Floats) -> TraceBounds:
    """Compute the bounds for noise of one covariance (vector or matrix) and weights ``Pi``."""
    V = np.diag(covariance) if covariance.ndim == 1 else covariance
    Pi = np.diag(weights) if weights.ndim == 1 else weights
    information = linalg.inv(V)
    prior = np.diag(4 * np.pi**2 / np.asarray(widths, float) ** 2)
    return TraceBounds(
        unbiased=float(np.trace(V)),
        half=float(np.trace(Pi @ V)),
        full=float(np.trace(Pi @ V @ Pi)),
        weak=len(V) ** 2 / float(np.trace(linalg.solve(Pi, information))),
        anyone=float(np.trace(linalg.inv(information + prior))),
    )


def clamped_information(sd: float, value: float, lower: float, upper: float) -> float:
    """Return the Fisher information that Gaussian noise leaves about a value once the sum is clamped.

    Never more than the ``1 / sd**2`` of the sum itself: clamping is post-processing.

    Reference
    ---------
    docs/explanation/theorems/fisher-cramer-rao.md
    """
    a, b = (lower - value) / sd, (upper - value) / sd
    below, above = stats.norm.cdf(a), stats.norm.sf(b)
    inside = (1 - below - above) + a * stats.norm.pdf(a) - b * stats.norm.pdf(b)
    atoms = stats.norm.pdf(a) ** 2 / below + stats.norm.pdf(b) ** 2 / above
    return float(inside + atoms) / sd**2


def informed_error(covariance: Floats, population: Floats) -> float:
    """Return the squared error of the linear guess by somebody who knows the population's covariance.

    Given class by class where labels are public: an attack that succeeds, not a bound.

    Reference
    ---------
    docs/explanation/theorems/fisher-cramer-rao.md
    """
    V = np.diag(covariance) if covariance.ndim == 1 else covariance
    return float(np.trace(population - population @ linalg.solve(population + V, population)))
