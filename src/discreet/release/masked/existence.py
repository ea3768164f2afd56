"""Conditions for a table that trains to a given classifier, and the number of records it takes.

Also the uniform law on a ball, from which artificial points are made.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.noise import standard_normal
from discreet.noise.linear_algebra import norm, product
from discreet.release.masked.losses import LOGISTIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import Floats, Ints
    from discreet.noise import Stream
    from discreet.release.masked.losses import MaskedLoss

SPREAD = 0.95
"""Share of the radius below which margins stay, so that points have room beside the axis."""
_INSIDE = 0.999
"""Factor on bounds where all points would otherwise lie on one line."""


def total_gain(weights: Floats, rows: Floats, codes: Ints, loss: MaskedLoss = LOGISTIC) -> float:
    """Return the sum of gains: ``weights`` times minus the gradient of the summed loss."""
    scores = product(rows, weights.T)
    return float(np.sum(loss.residuals(scores, codes) * scores))


def max_point_gain(weights: Floats, radius: float, loss: MaskedLoss = LOGISTIC) -> float:
    """Return the largest gain of a point: in a ball of this radius for two classes, else a bound on it."""
    if len(weights) > 1:
        return loss.largest_total_gain(weights, radius)
    reach = radius * norm(weights)
    return float(loss.gain(np.array(min(loss.best_margin, reach))))


def least_records(
    weights: Floats,
    regularization: float,
    radius: float,
    fixed: Floats,
    fixed_codes: Ints,
    loss: MaskedLoss = LOGISTIC,
) -> float:
    """Return the least number of points that can make ``weights`` the minimizer; infinite if none can.

    Parameters
    ----------
    weights : array of shape (1, d) or (n_classes, d)
        Classifier with one row for two classes, else one for each class.
    regularization : float
        Weight of the penalty beside the mean loss; above 0.
    radius : float
        Radius of the ball that contains the points.
    fixed, fixed_codes : array
        Records that are published as they are, and the positions of their labels; may be empty.
    loss : MaskedLoss
        Loss of the learner that shall find the weights.

    Notes
    -----
    Necessary: ``M (h - r) >= |S| r - gains of S`` with ``r = regularization |weights|**2`` and h the largest
    gain of a point, for M points beside a fixed set S. With no fixed set and two classes this is sufficient,
    and then 1 is enough.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    required_gain = regularization * float(np.sum(weights**2))
    surplus = max_point_gain(weights, radius, loss) - required_gain
    deficit = len(fixed) * required_gain - total_gain(weights, fixed, fixed_codes, loss)
    if surplus > 0:
        return max(1, math.ceil(deficit / surplus))
    # Every point needs more than it gains; the surplus of the fixed ones must cover one point.
    return 1 if surplus >= deficit else math.inf


def longest_norm(regularization: float, radius: float, loss: MaskedLoss, *, spread: bool = True) -> float:
    """Return the largest norm of two-class weights for which points exist in the ball.

    With ``spread`` a little less, because at the limit all points lie on one line.
    """
    reach = SPREAD * radius if spread else radius
    return loss.largest_norm(regularization, reach) * (_INSIDE if spread else 1.0)


def regularization_for(weights: Floats, radius: float, loss: MaskedLoss, *, spread: bool = True) -> float:
    """Return the largest regularization for which points exist in the ball, for two classes.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    length = norm(weights)
    most = max_point_gain(weights, SPREAD * radius if spread else radius, loss)
    return most / length**2 * (_INSIDE if spread else 1.0)


BLOCK = 1 << 14
"""Points that are processed at once, so that temporary arrays stay in the cache of the processor."""


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Yield the slices that cut ``n`` points into blocks of ``size``."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def sample_ball(n: int, dimension: int, radius: float, stream: Stream) -> Floats:
    """Return ``n`` uniform points of a ball: normal directions, times ``radius u**(1/dimension)``."""
    points = standard_normal((n, dimension), stream)
    # A ball of t times the radius holds the share t**dimension of the volume, which is inverted here.
    uniform = (stream.words(n) >> np.uint64(11)) * 2.0**-53
    for block in blocks(n):
        part = points[block]
        size = np.sqrt(np.einsum("ij,ij->i", part, part))
        part *= (radius * uniform[block] ** (1 / dimension) / np.where(size > 0, size, 1.0))[:, np.newaxis]
    return points
