"""The Huberized hinge, and how far one row moves what is minimized: constants that hold for every table.

With margin ``m`` and smoothing ``h`` the loss is 0 from ``1 + h`` on, ``1 - m`` up to ``1 - h``, and
``(1 + h - m)**2 / (4 h)`` between. Rows have norms of at most 1; neighbors differ in one row with its label.
``K`` is the number of scores: 1 for two classes, else one for each class.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.learn.arguments import Constraint, is_number

if TYPE_CHECKING:
    from discreet._types import Bools, Floats

_UP = 1 + 1e-12
"""Covers the rounding of the few operations behind each constant."""
DEFAULT_SMOOTHING = 0.5
SMOOTHING = Constraint(
    "a number from 0.001 to 1",
    lambda v: is_number(v) and 0.001 <= v <= 1,
    (0, -0.5, 1e-4, 1.5, "1", True),
)


def hinge(margins: Floats, smoothing: float) -> Floats:
    """Return the Huberized hinge at some margins."""
    # Outside of the band the quadratic is taken at its nearer end, and a line of slope -1 is added below it.
    inside = np.clip(margins, 1 - smoothing, 1 + smoothing)
    below = np.maximum(1 - smoothing - margins, 0.0)
    return np.asarray((1 + smoothing - inside) ** 2 / (4 * smoothing) + below)


def pull(margins: Floats, smoothing: float) -> Floats:
    """Return minus the derivative of the hinge, between 0 and 1."""
    return np.asarray(np.clip((1 + smoothing - margins) / (2 * smoothing), 0.0, 1.0))


def in_band(margins: Floats, smoothing: float) -> Bools:
    """Return where the hinge is quadratic, so that its second derivative is ``1 / (2 h)`` and not 0."""
    return np.asarray(np.abs(1 - margins) < smoothing)


def n_scores(n_classes: int) -> int:
    """Return the number of scores: one for two classes, else one for each class against the rest."""
    return 1 if n_classes == 2 else n_classes


def best_margin(smoothing: float) -> float:
    """Return the margin with the largest gain ``m phi(m)``, ``phi`` being minus the derivative."""
    return max(1 - smoothing, (1 + smoothing) / 2)


def largest_gain(smoothing: float) -> float:
    """Return the largest gain: ``1 - h`` up to a smoothing of 1/3, and ``(1 + h)**2 / (8 h)`` above.

    The minimizer's weights of each score have ``regularization |w|**2`` of at most this.

    Reference
    ---------
    docs/explanation/theorems/svm-existence.md
    """
    margin = best_margin(smoothing)
    return float(margin * pull(np.array(margin), smoothing))


def largest_norm(regularization: float, smoothing: float, norm_bound: float = 1.0) -> float:
    """Return the largest norm that the minimizer of a two-class problem can have.

    Parameters
    ----------
    regularization : float
        Weight of the quadratic penalty, above 0.
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.
    norm_bound : float
        Largest norm ``R`` of a row.

    Returns
    -------
    float
        The root of ``regularization r = R phi(R r)``, or ``sqrt(largest_gain / regularization)`` where the
        margin with the largest gain is within reach.

    Reference
    ---------
    docs/explanation/theorems/svm-existence.md
    """
    free = math.sqrt(largest_gain(smoothing) / regularization)
    if norm_bound * free >= best_margin(smoothing):
        return free
    # The root of L r = R phi(R r) where phi falls; where it is 1, the root is R / L.
    in_the_band = norm_bound * (1 + smoothing) / (2 * smoothing * regularization + norm_bound**2)
    return min(norm_bound / regularization, in_the_band)


def gradient_change(n_classes: int) -> float:
    """Return how far one row's derivative can move, for all scores together, when the row is replaced.

    ``2 sqrt(K)``: derivatives by a margin are between -1 and 0, so that a row moves each score's gradient by
    at most 2. Attained at weights of 0 by a row and its mirror image with the same label, so that no smaller
    constant holds at minimizers either.

    Reference
    ---------
    docs/explanation/theorems/svm-objective.md
    """
    return 2 * math.sqrt(n_scores(n_classes)) * _UP


def jacobian_cost(n_classes: int, smoothing: float, regularization: float, n_rows: int) -> float:
    """Return the part of epsilon that objective perturbation spends on the change of volume.

    ``K log(1 + 1 / (2 h n_rows regularization))``: a row's second derivative has rank one for each score.

    Reference
    ---------
    docs/explanation/theorems/svm-objective.md
    """
    return n_scores(n_classes) * math.log1p(1 / (2 * smoothing * n_rows * regularization)) * _UP


def regularization_for_jacobian(n_classes: int, smoothing: float, cost: float, n_rows: int) -> float:
    """Return the least regularization with a :func:`jacobian_cost` of at most ``cost``.

    Reference
    ---------
    docs/explanation/theorems/svm-objective.md
    """
    each = cost / n_scores(n_classes)
    # Rounded down before it is inverted, so that the result is large enough; expm1 overflows from 710 on.
    return 1 / (2 * smoothing * n_rows * math.expm1(min(each / _UP, 700.0))) * _UP


def mean_supremum(n_classes: int) -> float:
    """Return a bound on the mean of the largest inner product of a standard normal with a change of gradient.

    ``2 K / sqrt(2 pi)``: for each score, the positive parts of two normals of variance at most 1.

    Reference
    ---------
    docs/explanation/theorems/svm-objective.md
    """
    return 2 * n_scores(n_classes) / math.sqrt(2 * math.pi) * _UP
