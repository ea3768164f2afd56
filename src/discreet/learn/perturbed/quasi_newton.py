"""Minimizing a smooth convex function by its gradient alone.

Near the minimum values are equal up to rounding; slopes still tell the two sides apart.
"""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats

PAIRS = 20
"""Steps that limited-memory BFGS remembers."""
_STEEP = 0.9
"""Part of the slope along a line that may be left where the search on it stops."""


def quasi_newton(
    gradient: Callable[[Floats], Floats],
    start: Floats,
    near: Callable[[Floats, Floats], bool],
    *,
    length: float,
    most: int,
) -> tuple[Floats, bool]:
    """Return where limited-memory BFGS stopped, and whether that is near enough.

    Parameters
    ----------
    gradient : callable
        Of a convex function.
    start : array
        The first point.
    near : callable
        Given a point and the gradient there: whether it is near enough to the minimizer.
    length : float
        Of the first step, in gradients.
    most : int
        Steps to try.
    """
    w, slope_at = start, gradient(start)
    pairs: deque[tuple[Floats, Floats, float]] = deque(maxlen=PAIRS)
    for _ in range(most):
        if near(w, slope_at):
            return w, True
        step = _direction(slope_at, pairs, length)
        found = search_line(gradient, w, slope_at, step)
        if found is None:
            if not pairs:
                return w, False
            pairs.clear()
            continue
        moved, bent = found[0] - w, found[1] - slope_at
        curvature = float(moved @ bent)
        if curvature > 0.0:
            pairs.append((moved, bent, curvature))
            length = curvature / float(bent @ bent)
        w, slope_at = found
    return w, near(w, slope_at)


def _direction(gradient: Floats, pairs: deque[tuple[Floats, Floats, float]], length: float) -> Floats:
    q = -gradient
    weights = []
    for moved, bent, curvature in reversed(pairs):
        weight = float(moved @ q) / curvature
        q -= weight * bent
        weights.append(weight)
    q *= length
    for (moved, bent, curvature), weight in zip(pairs, reversed(weights), strict=True):
        q += (weight - float(bent @ q) / curvature) * moved
    return q


def search_line(
    gradient: Callable[[Floats], Floats], w: Floats, slope_at: Floats, step: Floats
) -> tuple[Floats, Floats] | None:
    """Return a lower point on a line with its gradient, by secants between two signs of the slope; or None.

    The function is convex: it falls as long as the slope is negative. A point past the lowest one is taken
    too if the whole gradient became shorter.
    """
    slope, norm = float(slope_at @ step), float(np.linalg.norm(slope_at))
    if not slope < 0.0:
        return None
    low, low_slope, high, high_slope = 0.0, slope, math.inf, math.inf
    at = 1.0
    for turn in range(200):
        new = w + at * step
        new_at = gradient(new)
        new_slope = float(new_at @ step)
        if new_slope < _STEEP * slope:
            low, low_slope = at, new_slope
        elif new_slope <= 0.0 or (new_slope <= -_STEEP * slope and float(np.linalg.norm(new_at)) < norm):
            return new, new_at
        else:
            high, high_slope = at, new_slope
        if high == math.inf:
            grown = at * slope / (slope - new_slope) if new_slope > slope else math.inf
            at = min(max(2 * at, grown), 10 * at)
        elif turn % 2 or not math.isfinite(high_slope):
            # A slope that is flat up to a corner deceives secants.
            at = (low + high) / 2
        else:
            share = low_slope / (low_slope - high_slope)
            at = low + (high - low) * min(max(share, 1e-3), 0.9)
    return None
