"""Bounds on what privacy costs: theorems 2 and 3, as printed and as they are true.

All are about the exact minimizer of the perturbed objective. They are loose: on tables of a few thousand rows
they exceed the loss of guessing, and none of them is a promise about accuracy.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scipy import special

from discreet.errors import ParameterError
from discreet.learn.large_margin._bounds import ClasswiseNoise
from discreet.learn.perturbation.noise import GaussianVectorNoise, SphericalNoise

if TYPE_CHECKING:
    from discreet.learn.perturbation.noise import VectorNoise

__all__ = [
    "empirical_excess",
    "noise_norm",
    "printed_empirical_excess",
    "printed_norm",
    "printed_true_excess",
    "true_excess",
]


def printed_norm(n_features: int, epsilon: float, failure: float) -> float:
    """Return lemma 4 as printed: the norm of the noise, "with probability at least ``1 - failure``".

    False for one feature and a failure above .31, as ``log(d / failure)`` should be ``log((d + 1)**2 /
    failure)``; elsewhere far too large.

    Reference
    ---------
    docs/explanation/theorems/large-margin-risk.md

    Examples
    --------
    >>> round(printed_norm(5, 1.0, 0.05), 1)
    331.6
    """
    p = n_features + 1
    return 2 * p**2 / epsilon * math.log(n_features / failure)


def noise_norm(noise: VectorNoise, failure: float) -> float:
    """Return what the norm of a linear term exceeds with a probability of at most ``failure``.

    The quantile of the norm's own law, Gamma or chi; for noise by class the smaller of two bounds.

    Reference
    ---------
    docs/explanation/theorems/large-margin-risk.md

    Examples
    --------
    >>> from discreet.learn.perturbation.noise import GaussianVectorNoise
    >>> noise = GaussianVectorNoise(dimension=12, sd=3.0)
    >>> round(noise_norm(noise, 0.05), 2)
    13.76
    """
    if not 0 < failure < 1:
        raise ParameterError(
            f"failure of noise_norm must be a number above 0 and below 1, was {failure!r}. Use 0.05."
        )
    up = 1 + 1e-9
    if isinstance(noise, GaussianVectorNoise):
        return noise.sd * math.sqrt(2 * float(special.gammainccinv(noise.dimension / 2, failure))) * up
    if isinstance(noise, ClasswiseNoise):
        c, d = noise.n_classes, noise.law.dimension
        # Every class within its quantile, by the union bound; or the sum of norms, of shape c d.
        each = math.sqrt(c) * float(special.gammainccinv(d, failure / c))
        return min(each, float(special.gammainccinv(c * d, failure))) / noise.law.rate * up
    assert isinstance(noise, SphericalNoise)
    return float(special.gammainccinv(noise.dimension, failure)) / noise.law.rate * up


def printed_empirical_excess(
    n_features: int, n_classes: int, epsilon: float, regularization: float, failure: float
) -> float:
    """Return theorem 2 as printed. It rests on a lemma that is false: the objective is not strongly convex.

    Reference
    ---------
    docs/explanation/theorems/large-margin-risk.md

    Examples
    --------
    >>> round(printed_empirical_excess(5, 2, 1.0, 10.0, 0.05))
    43976
    """
    p = n_features + 1
    return 8 * p**4 * n_classes / (epsilon**2 * regularization) * math.log(n_features / failure) ** 2


def empirical_excess(noise: VectorNoise, regularization: float, failure: float) -> float:
    """Return by how much the objective at the noisy minimizer can exceed its minimum: theorem 2, corrected.

    ``|B|**2 / (2 regularization)`` with the quantile of :func:`noise_norm`. Sharp in ``|B|``.

    Reference
    ---------
    docs/explanation/theorems/large-margin-risk.md

    Examples
    --------
    >>> from discreet.learn.perturbation.noise import GaussianVectorNoise
    >>> noise = GaussianVectorNoise(dimension=12, sd=3.0)
    >>> round(empirical_excess(noise, 10.0, 0.05), 2)
    9.46
    """
    return noise_norm(noise, failure) ** 2 / (2 * regularization)


def printed_true_excess(
    n_features: int, n_classes: int, epsilon: float, regularization: float, n_rows: int, failure: float
) -> float:
    """Return theorem 3 as printed.

    Its first term has a ``1 / regularization`` that cancels in its own proof, its second is half of what
    the proof gives, and its third is for a mean over rows where the objective is a sum.

    Reference
    ---------
    docs/explanation/theorems/large-margin-risk.md

    Examples
    --------
    >>> round(printed_true_excess(5, 2, 1.0, 10.0, 1000, 0.05), 1)
    44272.7
    """
    p, log = n_features + 1, math.log(n_features / failure)
    trace = 4 * math.sqrt(n_features) * p**2 * n_classes / (epsilon * regularization) * log
    sample = 16 / (regularization * n_rows) * (32 + math.log(1 / failure))
    return trace + printed_empirical_excess(n_features, n_classes, epsilon, regularization, failure) + sample


def true_excess(
    noise: VectorNoise,
    regularization: float,
    failure: float,
    *,
    n_rows: int,
    n_classes: int,
    smoothing: float,
) -> float:
    """Return by how much the mean loss of new rows can exceed that without noise: theorem 3, corrected.

    Three terms, ``q`` the quantile of :func:`noise_norm` at half of ``failure``, ``L`` the regularization:
    how much shorter the noisy minimizer can be, ``q (2 r + q / L) / (2 n)``, ``r`` the largest norm that the
    minimizer without noise can have; twice theorem 2, ``q**2 / (L n)``; and ``32 (C - 1)**2 (32 + log(2 /
    failure)) / L`` for having seen a sample.

    Reference
    ---------
    docs/explanation/theorems/large-margin-risk.md

    Examples
    --------
    >>> from discreet.learn.perturbation.noise import GaussianVectorNoise
    >>> noise = GaussianVectorNoise(dimension=12, sd=3.0)
    >>> round(true_excess(noise, 10.0, 0.05, n_rows=10_000, n_classes=2, smoothing=0.5), 3)
    114.272
    """
    q = noise_norm(noise, failure / 2)
    # The hinge of 1: loss by one rival where all matrices are 0.
    at_zero = 1.0 if smoothing <= 1 else (1 + smoothing) ** 2 / (4 * smoothing)
    longest = math.sqrt(2 * n_rows * (n_classes - 1) * at_zero / regularization)
    shorter = q * (2 * longest + q / regularization) / (2 * n_rows)
    sample = 32 * (n_classes - 1) ** 2 * (32 + math.log(2 / failure)) / regularization
    return shorter + q**2 / (regularization * n_rows) + sample
