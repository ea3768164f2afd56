"""When a table exists whose classifier is a given one, and how many records it takes.

Points about nobody, from which masked ones are made: uniform on a ball.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.learn.logistic.sensitivity import largest_gain, largest_norm
from discreet.noise import standard_normal
from discreet.noise._linear import norm, product

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import Floats, Ints
    from discreet.noise import Stream

SPREAD = 0.95
"""Margins are kept below this part of the radius, so that points have room beside the classifier's axis."""
_INSIDE = 0.999


def gain(margins: Floats) -> Floats:
    """Return ``h(m) = m sigma(-m)``: what a point with this margin does for ``regularization |w|**2``."""
    return np.asarray(margins * special.expit(-margins))


def best_margin() -> float:
    """Return the margin with the largest gain: one more than that gain."""
    return 1 + largest_gain(2)


def residuals(weights: Floats, rows: Floats, codes: Ints) -> Floats:
    """Return one-hot labels minus probabilities: one column for two classes, else one for each class."""
    scores = product(rows, weights.T)
    if len(weights) == 1:
        return np.asarray((codes == 1)[:, np.newaxis] - special.expit(scores))
    found: Floats = -special.softmax(scores, axis=1)
    found[np.arange(len(codes)), codes] += 1
    return found


def total_gain(weights: Floats, rows: Floats, codes: Ints) -> float:
    """Return the sum of gains: ``weights`` times minus the gradient of the summed loss."""
    return float(np.sum(residuals(weights, rows, codes) * (product(rows, weights.T))))


def max_point_gain(weights: Floats, radius: float) -> float:
    """Return the most that one point can gain: in a ball of this radius for two classes, else anywhere."""
    n_classes = max(2, len(weights))
    if n_classes > 2:
        return largest_gain(n_classes)
    reach = radius * norm(weights)
    return float(gain(np.array(min(best_margin(), reach))))


def least_records(
    weights: Floats, regularization: float, radius: float, fixed: Floats, fixed_codes: Ints
) -> float:
    """Return how many points it takes at least to make ``weights`` the minimizer; infinite if none suffice.

    Necessary: ``M (most - r) >= |S| r - gains of S`` with ``r = regularization |weights|**2``, for M points
    beside a fixed set S. With no fixed set and two classes it is sufficient, and then 1 is enough.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    need = regularization * float(np.sum(weights**2))
    spare = max_point_gain(weights, radius) - need
    short = len(fixed) * need - total_gain(weights, fixed, fixed_codes)
    if spare > 0:
        return max(1, math.ceil(short / spare))
    # Every point takes more than it gives; what the fixed ones have to spare must be enough for one.
    return 1 if spare >= short else math.inf


def longest_norm(regularization: float, radius: float, *, spread: bool = True) -> float:
    """Return the norm to which two-class weights are shortened.

    With ``spread`` it is a little less than what exists, because at that limit all points lie on one line.
    """
    reach = SPREAD * radius if spread else radius
    return largest_norm(regularization, reach) * (_INSIDE if spread else 1.0)


def regularization_for(weights: Floats, radius: float, *, spread: bool = True) -> float:
    """Return the largest regularization for which points exist in the ball, for two classes.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    length = norm(weights)
    most = max_point_gain(weights, SPREAD * radius if spread else radius)
    return most / length**2 * (_INSIDE if spread else 1.0)


BLOCK = 1 << 14
"""Points that are worked on at once: what is made along the way stays in the processor's cache."""


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Cut ``n`` points into blocks."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def sample_ball(n: int, dimension: int, radius: float, stream: Stream) -> Floats:
    """Draw points uniformly from a ball."""
    points = standard_normal((n, dimension), stream)
    uniform = (stream.words(n) >> np.uint64(11)) * 2.0**-53
    for block in blocks(n):
        part = points[block]
        size = np.sqrt(np.einsum("ij,ij->i", part, part))
        part *= (radius * uniform[block] ** (1 / dimension) / np.where(size > 0, size, 1.0))[:, np.newaxis]
    return points
