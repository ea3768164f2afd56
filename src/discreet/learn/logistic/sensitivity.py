"""How far one row moves the minimizer: constants that hold for every table, rounded up."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy

_UP = 1 + 1e-12
"""Covers the rounding of the few operations behind each constant."""
_ANGLES = 1 << 17
LARGEST_BINARY, LARGEST_SOFTMAX = 2.0, 2 * math.sqrt(2) * _UP
"""Largest change of one row's loss gradient at one point when the row is replaced."""


def largest_gain(n_classes: int) -> float:
    """Return the most that ``w . gradient`` of one row's loss can be: 0.27846 for two classes.

    It is ``LambertW((n_classes - 1) / e)``, and every minimizer has ``regularization |w|**2`` at most this.

    Reference
    ---------
    docs/explanation/theorems/masked-norm.md
    """
    return float(scipy.special.lambertw((n_classes - 1) / math.e).real)


def largest_norm(regularization: float, norm_bound: float = 1.0) -> float:
    """Return the largest norm that the minimizer of a two-class problem can have.

    Parameters
    ----------
    regularization : float
        Weight of the quadratic penalty, above 0.
    norm_bound : float
        Largest norm of a row.

    Returns
    -------
    float
        The root of ``regularization r = R sigma(-R r)``, or ``sqrt(0.27846 / regularization)`` where the
        margin with the largest gain is within reach.

    Privacy
    -------
    Holds for every table and for no table in particular, so that it may enter a sensitivity.

    Reference
    ---------
    docs/explanation/theorems/masked-norm.md
    """
    gain = largest_gain(2)
    # The bound of all norms, if the margin of the largest gain can be reached.
    # t sigma(-t), the gain of a row at margin t, is largest at t = 1 + gain.
    free = math.sqrt(gain / regularization)
    if norm_bound * free >= 1 + gain:
        return free
    root: float = scipy.optimize.brentq(
        lambda r: regularization * r - norm_bound * scipy.special.expit(-norm_bound * r),
        0.0,
        norm_bound / regularization,
        xtol=1e-300,
        rtol=1e-15,
    )
    return root


@lru_cache(maxsize=256)
def binary_change(norm: float) -> float:
    """Return an upper bound on the change of one row's gradient at a point of at most this norm.

    The gradients of all rows at ``w`` are the points ``sigma(B sin t) (cos t, sin t)`` turned around the
    axis of ``w``, ``B = |w|``, and shorter ones. They lie in a disc around a point of the axis, so that no
    two are farther apart than its diameter; the center is chosen so that it is not larger than it must be.

    Privacy
    -------
    Certified: the farthest point is looked for among 2**17 angles, and half a step times the largest speed
    ``1 + B / 4`` is added.

    Reference
    ---------
    docs/explanation/theorems/masked-sensitivity.md
    """
    widest = scipy.optimize.minimize_scalar(
        lambda t: -scipy.special.expit(norm * math.sin(t)) * math.cos(t),
        bounds=(0.0, math.pi / 2),
        method="bounded",
    )
    # The center of the disc lies on the axis, at the height where the curve is widest.
    center = scipy.special.expit(norm * math.sin(widest.x)) * math.sin(widest.x)
    t = np.linspace(-math.pi / 2, math.pi / 2, _ANGLES + 1)
    size = scipy.special.expit(norm * np.sin(t))
    farthest = float(np.hypot(size * np.cos(t), size * np.sin(t) - center).max())
    # No angle is farther than half a step from the grid.
    between = (1 + norm / 4) * math.pi / _ANGLES / 2
    return min(LARGEST_BINARY, 2 * (farthest + between) * _UP)


def gradient_change(n_classes: int, regularization: float, *, tight: bool = True) -> float:
    """Return how much one row's loss gradient can change, at the minimizer, when the row is replaced.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.
    regularization : float
        Above 0; with a large one minimizers are short, and gradients at short vectors differ less.
    tight : bool
        Use that. Otherwise 2 for two classes and ``2 sqrt(2)`` for more.

    Privacy
    -------
    The paper's 2 for more than two classes is too small: a release calibrated with it spends up to
    ``sqrt(2)`` times its epsilon.

    Reference
    ---------
    docs/explanation/theorems/masked-sensitivity.md
    """
    if not tight:
        return largest_gradient_change(n_classes)
    if n_classes == 2:
        return binary_change(largest_norm(regularization) * _UP)
    # Scores of two classes differ by at most sqrt(2) |w|, which keeps every residual below 1.
    norm = math.sqrt(largest_gain(n_classes) / regularization) * _UP
    # The cap keeps exp finite; the quotient below is 1 long before.
    others = (n_classes - 1) * math.exp(min(math.sqrt(2) * norm, 700.0))
    return LARGEST_SOFTMAX * others / (1 + others)


def largest_gradient_change(n_classes: int) -> float:
    """Return how much one row's loss gradient can change, at any point, when the row is replaced.

    It is how far apart the linear terms can be that lead two neighbors to the same minimizer of a perturbed
    objective: that may be any vector, so that no tighter constant holds.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """
    return LARGEST_BINARY if n_classes == 2 else LARGEST_SOFTMAX


def jacobian_cost(n_classes: int, regularization: float, n_rows: int) -> float:
    """Return the part of epsilon that objective perturbation spends on the change of volume.

    ``log(1 + 1 / (4 n_rows regularization))`` for two classes and ``(C - 1) log(1 + 1 / (C n_rows
    regularization))`` for C.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """
    if n_classes == 2:
        return math.log1p(1 / (4 * n_rows * regularization)) * _UP
    return (n_classes - 1) * math.log1p(1 / (n_classes * n_rows * regularization)) * _UP


def regularization_for_jacobian(n_classes: int, cost: float, n_rows: int) -> float:
    """Return the least regularization with a :func:`jacobian_cost` of at most ``cost``.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """
    each, part = (cost, 4) if n_classes == 2 else (cost / (n_classes - 1), n_classes)
    return 1 / (part * n_rows * math.expm1(min(each / _UP, 700.0))) * _UP


@lru_cache(maxsize=64)
def mean_supremum(n_classes: int) -> float:
    """Return a bound on the mean of the largest inner product of a standard normal with a change of gradient.

    ``2 / sqrt(2 pi)`` for two classes; for more, twice the mean of the largest of that many standard normals.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """
    if n_classes == 2:
        return 2 / math.sqrt(2 * math.pi) * _UP

    def tail(x: float) -> float:
        return float(
            -scipy.special.expm1(n_classes * scipy.special.log_ndtr(x))
            - np.exp(n_classes * scipy.special.log_ndtr(-x))
        )

    # E max = int_0^inf P(max > x) - P(max < -x) dx.
    # Beyond 40 the tail of a normal is below the smallest float.
    mean, error = scipy.integrate.quad(tail, 0.0, 40.0, epsabs=1e-13, limit=200)
    return float(2 * (mean + error) * _UP)
