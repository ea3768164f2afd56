"""The direct construction for two classes: margins by one equation, the rest by one projection.

The paper's greedy construction, with its gradients corrected: one point after the other, by descent.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import optimize, special

from discreet.noise._linear import norm, product
from discreet.release.masked.existence import SPREAD, best_margin, blocks, gain, residuals, sample_ball

if TYPE_CHECKING:
    from discreet._types import Floats, Ints
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
    points = sample_ball(n, d, radius, stream)
    axis = weights / size_of_weights if size_of_weights > 0 else np.zeros(d)
    along = product(points, axis)
    margins = _choose_margins(np.abs(along) / radius, size_of_weights, regularization, radius)
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


def _choose_margins(shares: Floats, length: float, regularization: float, radius: float) -> Floats:
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


_MOST_STEPS = 200
_SMALL = 1e-26
"""Of the squared norm that is left, relative to that of the classifier's share."""


def greedy_value(x: Floats, code: int, weights: Floats, left: Floats) -> tuple[float, Floats]:
    """Return the squared norm of the summed gradient once a point is added, and its derivative.

    Parameters
    ----------
    x : array of shape (d,)
        The point.
    code : int
        Its label.
    weights : array of shape (1, d) or (n_classes, d)
        The classifier: one row for two classes, else one for each.
    left : array of the same shape
        The sum of residuals times points so far, minus the number of points times ``regularization *
        weights``.

    Reference
    ---------
    Pham et al., equations (4) and (5), corrected: docs/explanation/theorems/masked-greedy.md
    """
    scores = product(weights, x)
    if len(weights) == 1:
        p = special.expit(scores)
        pull = (code == 1) - p
        bend = p * (1 - p)
    else:
        p = special.softmax(scores)
        pull = -p
        pull[code] += 1
        bend = np.zeros(0)
    total = np.outer(pull, x) + left
    across = product(total, x)
    turned = bend * across if len(weights) == 1 else p * across - p * float(np.sum(p * across))
    return float(np.sum(total**2)), 2 * (product(pull, total) - product(turned, weights))


def greedy_points(
    weights: Floats,
    codes: Ints,
    regularization: float,
    stream: Stream,
    *,
    radius: float | None = 1.0,
    constant: float = 0.0,
    fixed: Floats | None = None,
    fixed_codes: Ints | None = None,
    pace: bool = True,
) -> Floats:
    """Add points one by one, each where it lowers the norm of the summed gradient most.

    Parameters
    ----------
    weights, codes, regularization
        The classifier, the labels of the points, and its penalty.
    stream : Stream
        Where descents start.
    radius : float or None
        Of the ball that the points stay in; None, as in the paper, lets them go anywhere.
    constant : float
        The last coordinate of every point; 0 if there is none.
    fixed, fixed_codes : array, optional
        Points that are there already.
    pace : bool
        Aim after k points at the share of k of them. Without it, as in the paper, the first few points do
        everything, and the rest end at the origin.

    Privacy
    -------
    Depends on rows through ``weights``, labels and fixed points alone.

    Reference
    ---------
    Pham et al., algorithm 1, corrected: docs/explanation/theorems/masked-greedy.md
    """
    n, d = len(codes), weights.shape[1] - (constant > 0)
    n_fixed = 0 if fixed is None else len(fixed)
    inner = math.sqrt(max((1.0 if radius is None else radius) ** 2 - constant**2, 0.0))
    points = np.full((n, weights.shape[1]), constant)
    points[:, :d] = sample_ball(n, d, inner, stream)
    done = np.zeros_like(weights)
    if fixed is not None and fixed_codes is not None and n_fixed:
        done = product(residuals(weights, fixed, fixed_codes).T, fixed)
    share = regularization * weights
    small = _SMALL * max(float(np.sum(share**2)), 1e-300)
    for k, code in enumerate(codes):
        aim = (n_fixed + (k + 1 if pace else n)) * share
        points[k] = _descend(
            points[k], int(code), weights, done - aim, d, None if radius is None else inner, small
        )
        done += product(residuals(weights, points[k : k + 1], codes[k : k + 1]).T, points[k : k + 1])
    return points


def _descend(
    x: Floats, code: int, weights: Floats, left: Floats, d: int, inner: float | None, small: float
) -> Floats:
    """Go downhill, with steps that are halved until they help."""
    value, slope = greedy_value(x, code, weights, left)
    length = 1.0
    for _ in range(_MOST_STEPS):
        if value <= small:
            break
        length *= 4
        while length > 1e-14:
            trial = x.copy()
            trial[:d] -= length * slope[:d]
            size = norm(trial[:d])
            if inner is not None and size > inner:
                trial[:d] *= inner / size * (1 - 1e-12)
            trial_value, trial_slope = greedy_value(trial, code, weights, left)
            if trial_value < value * (1 - 1e-9):
                break
            length /= 2
        else:
            break
        x, value, slope = trial, trial_value, trial_slope
    return x
