"""The direct construction for two classes: margins by one equation, the rest by one projection."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, special

from discreet.noise.linear import norm, product
from discreet.release.masked.existence import SPREAD, best_margin, gain
from discreet.release.masked.prior import ball, blocks

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.noise import Stream

_ROOM = 0.9
"""Part of the room beside the axis that a point may take before the projection."""
_STEPS = 41


def binary_points(
    weights: Floats, signs: Floats, regularization: float, radius: float, stream: Stream
) -> Floats:
    """Return points in a ball at which the gradient for ``weights`` vanishes, up to rounding.

    Every label agrees with the classifier. Along its axis the points have margins whose mean gain is
    ``regularization |w|**2``; across, they are points of the uniform law on the ball, projected so that their
    weighted sum vanishes. The weights of that sum depend on the margins alone, so that one projection is
    exact.

    Parameters
    ----------
    weights : array of shape (d,)
        Of norm at most :func:`~discreet.learn.logistic.sensitivity.largest_norm`.
    signs : array of shape (n,)
        Labels, -1 or 1.
    regularization, radius : float
        Of the penalty and of the ball.
    stream : Stream
        Where the points come from.

    Privacy
    -------
    Depends on rows through ``weights`` alone: as private as they are.

    Reference
    ---------
    Pham et al., equation (3), corrected: docs/explanation/theorems/masked-existence.md
    """
    n, d = len(signs), len(weights)
    size_of_weights = norm(weights)
    points = ball(n, d, radius, stream)
    axis = weights / size_of_weights if size_of_weights > 0 else np.zeros(d)
    along = product(points, axis)
    margins = _margins(np.abs(along) / radius, size_of_weights, regularization, radius)
    forward = margins / size_of_weights if size_of_weights > 0 else np.zeros(n)
    pull = signs * special.expit(-margins)
    room = _ROOM * np.sqrt(np.maximum(radius**2 - forward**2, 0.0))
    total = np.zeros(d)
    for block in blocks(n):
        part = points[block]
        part -= np.outer(along[block], axis)
        size = np.sqrt(np.einsum("ij,ij->i", part, part))
        part *= np.minimum(1.0, room[block] / np.where(size > 0, size, 1.0))[:, np.newaxis]
        total += product(pull[block], part)
    step = total / float(np.sum(pull * pull))
    most = 1.0
    for block in blocks(n):
        part = points[block]
        part -= np.outer(pull[block], step)
        part -= np.outer(product(part, axis), axis)
        size = np.sqrt(np.einsum("ij,ij->i", part, part))
        limit = np.sqrt(np.maximum(radius**2 - forward[block] ** 2, 0.0)) * (1 - 1e-12)
        over = size > limit
        if over.any():
            most = min(most, float(np.min(limit[over] / size[over])))
    for block in blocks(n):
        # One factor for all points keeps their weighted sum at zero.
        points[block] *= most
        points[block] += np.outer(signs[block] * forward[block], axis)
    return points


def _margins(shares: Floats, length: float, regularization: float, radius: float) -> Floats:
    """Spread margins as the shares say, so that their mean gain is what the penalty needs.

    The path leads from no margin at all over margins in proportion to the shares to the best margin for all:
    it starts below and ends above.
    """
    need = regularization * length**2
    if need == 0:
        return np.zeros(len(shares))
    reach = SPREAD * radius * length
    if float(gain(np.array(min(best_margin(), reach)))) < need:
        reach = radius * length
    best = min(best_margin(), reach)
    scaled = np.minimum(shares + 1e-3, 1.0) * reach

    def at(t: float) -> Floats:
        return t * scaled if t <= 1 else (2 - t) * scaled + (t - 1) * best

    def excess(t: float) -> float:
        margins = at(t)
        sums = [float(gain(margins[block]).sum()) for block in blocks(len(margins))]
        return math.fsum(sums) / len(margins) - need

    ends = np.linspace(0.0, 2.0, _STEPS)
    for low, high in itertools.pairwise(ends):
        if excess(high) >= 0:
            return at(float(optimize.brentq(excess, low, high, xtol=1e-16, rtol=1e-15)))
    # Only rounding is left between what is needed and what all points at the best margin have.
    return at(2.0)
