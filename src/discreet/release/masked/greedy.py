"""The paper's greedy construction, with its gradients corrected: one point after the other, by descent."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.noise.linear import norm, product
from discreet.release.masked.existence import residuals
from discreet.release.masked.prior import ball

if TYPE_CHECKING:
    from discreet._typing import Floats, Ints
    from discreet.noise import Stream

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
    points[:, :d] = ball(n, d, inner, stream)
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
