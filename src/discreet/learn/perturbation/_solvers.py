"""Minimizers of smooth convex functions: gradient steps with a guarantee, and limited-memory BFGS.

Near the minimum values are equal up to rounding; slopes still tell the two sides apart, so that only
gradients are used.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import PromiseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats


LARGEST_CONDITION = 1e12
"""Curvature over regularization up to which solvers that learn the curvature find a minimizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GradientDescent:
    """Guarantee of gradient steps in floating point, for every table with these constants.

    Parameters
    ----------
    curvature : float
        Largest second derivative of the function in any direction, ``L``.
    regularization : float
        Smallest one, above 0, ``m``.
    norm : float
        Bound ``r`` on the norm of the minimizer ``w*``.
    step_error : float
        Bound ``e`` on how far a computed step from a point of norm at most ``2 r`` can be from the exact
        ``w - gradient(w) / L``, times ``L``.
    largest_condition : float
        ``L / m`` up to which a minimizer is looked for.

    Notes
    -----
    The exact step shortens the distance to ``w*`` by the factor ``q = 1 - m / L``, a projection to a convex
    set with ``w*`` in it does not lengthen it, so that ``|w+ - w*| <= q |w - w*| + e / L``. Two bounds
    follow:

    - started at 0, all points stay within ``2 r`` of 0 as long as ``e <= m r``, and after ``k`` steps the
      distance is at most ``q**k r + e / m``. For a tolerance ``t`` of at least ``2 e`` that is below ``t /
      m`` once ``k >= (L / m) log(2 m r / t)``; for ``t >= m r`` the point 0 is near enough;
    - at any step ``m |w+ - w*| <= L |w+ - w| + e``.

    So every tolerance of at least ``2 e`` is kept, and whether one is, is known without a row.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """

    curvature: float
    regularization: float
    norm: float
    step_error: float
    largest_condition: float = LARGEST_CONDITION

    @property
    def least_tolerance(self) -> float:
        """The smallest tolerance that is certain to be reached."""
        return 2 * self.step_error * (1 + 1e-12)

    def most_steps(self, tolerance: float) -> int:
        """Return after how many steps a tolerance is kept."""
        ratio = 2 * self.regularization * self.norm / tolerance
        # tolerance >= m r: every allowed start is near enough.
        if ratio <= 2:
            return 0
        # The last factor covers the rounding of the quotient and of the logarithm.
        return math.ceil(self.curvature / self.regularization * math.log(ratio) * (1 + 1e-9))

    def run(self, step: Callable[[Floats], Floats], start: Floats, tolerance: float) -> Floats:
        """Return a point that is at most ``tolerance / regularization`` from the minimizer.

        Parameters
        ----------
        step : callable
            From a point to the next.
        start : array
            Zeros, or a point that is known to be at most ``norm`` from the minimizer.
        tolerance : float
            Norm of a gradient to stop at, at least :attr:`least_tolerance`.
        """
        w = start
        for _ in range(self.most_steps(tolerance)):
            new = step(w)
            moved = float(np.linalg.norm(new - w))
            w = new
            # m |w+ - w*| <= L |w+ - w| + e, the second bound of the notes.
            if self.curvature * moved * (1 + 1e-9) + self.step_error <= tolerance:
                break
        return w

    def check(self, tolerance: float, owner: str) -> None:
        """Refuse a tolerance that is not certain to be reached, by what is known without a row."""
        self.check_condition(owner)
        if not tolerance >= self.least_tolerance:
            least = round_up_to_three_digits(self.least_tolerance)
            raise PromiseError(
                f"tolerance of {owner} must be at least {least:g} for a table of "
                f"this shape and a regularization of {self.regularization:g}, was {tolerance:g}: floating "
                "point need not come nearer to a minimum. Leave it out, or use a larger regularization."
            )

    def check_condition(self, owner: str) -> None:
        """Refuse a regularization that is too small for any solver, by what is known without a row."""
        if not self.curvature <= self.largest_condition * self.regularization:
            enough = round_up_to_three_digits(self.curvature / self.largest_condition)
            raise PromiseError(
                f"regularization of {owner} must be at least {enough:g} for a table of this shape, was "
                f"{self.regularization:g}: no solver finds the minimizer of so flat a function. Leave it out "
                "for one that fits the table's size and the promise."
            )


def round_up_to_three_digits(value: float) -> float:
    """Return a number of three digits that is not below ``value``."""
    if not 0 < value < math.inf:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return math.ceil(value / unit) * unit


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
        Gradient of a smooth convex function, from a point to a vector.
    start : array
        Point at which the search begins.
    near : callable
        Given a point and the gradient there: whether it is near enough to the minimizer.
    length : float
        Length of the first step as a multiple of the gradient, 1 / curvature.
    most : int
        Largest number of steps that are tried.

    Notes
    -----
    Directions are those of :func:`_direction`, steps those of :func:`search_line`. Pairs with ``s . y`` of at
    most 0, which rounding makes, are left out; where no step is found the pairs are forgotten, and the next
    direction is that of steepest descent.
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
            # Inverse curvature along the last step, s . y / y . y: scale of the next initial matrix.
            length = curvature / float(bent @ bent)
        w, slope_at = found
    return w, near(w, slope_at)


def _direction(gradient: Floats, pairs: deque[tuple[Floats, Floats, float]], length: float) -> Floats:
    """Return the L-BFGS direction ``-H g`` by the two-loop recursion.

    Notes
    -----
    ``pairs`` are ``(s, y, s . y)``, the moves and the changes of the gradient ``g``, newest last; the initial
    ``H`` is ``length`` times the identity.
    """
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
    # Refuses also a slope that is no number.
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
            # No sign change yet: the secant step, between twice and ten times the last.
            grown = at * slope / (slope - new_slope) if new_slope > slope else math.inf
            at = min(max(2 * at, grown), 10 * at)
        elif turn % 2 or not math.isfinite(high_slope):
            # A slope that is flat up to a corner deceives secants.
            at = (low + high) / 2
        else:
            share = low_slope / (low_slope - high_slope)
            # Away from both ends, so that the bracket shrinks.
            at = low + (high - low) * min(max(share, 1e-3), 0.9)
    return None
