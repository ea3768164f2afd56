"""Roots of scalar functions, by the arithmetic of ``scipy.optimize.brentq`` without loading it.

A calibration needs one root; loading ``scipy.optimize`` for it takes longer than a whole query.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_STEPS = 100


def find_root(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    xtol: float = 2e-12,
    rtol: float = 2.0**-50,
) -> float:
    """Return a root of ``function`` between two ends where its signs differ.

    Parameters
    ----------
    function : callable
        Continuous function of one float.
    low, high : float
        Ends of the bracket; the function must not have the same sign at both.
    xtol, rtol : float
        The root is exact up to ``xtol + rtol * |root|``.

    Returns
    -------
    float
        Bit for bit what ``scipy.optimize.brentq`` returns, so that noise drawn under a key stays the same.

    Notes
    -----
    ``here`` is the best point, ``last`` the one before, ``across`` the newest whose value has the other sign.
    A step is the secant or the inverse quadratic one where it shrinks fast enough, and bisection otherwise.

    Reference
    ---------
    Brent (1973), Algorithms for Minimization Without Derivatives, chapter 4.
    """
    last, here = float(low), float(high)
    f_last, f_here = float(function(last)), float(function(here))
    if f_last == 0.0 or f_here == 0.0:
        return last if f_last == 0.0 else here
    if math.isnan(f_last) or math.isnan(f_here) or (f_last < 0.0) == (f_here < 0.0):
        raise ValueError(f"The values {f_last!r} and {f_here!r} at the ends of the bracket have one sign.")
    across, f_across, step_before, step = last, f_last, 0.0, 0.0
    for _ in range(_MOST_STEPS):
        # The root is between the last two points: the bracket shrinks to them, and past steps say nothing.
        if f_last != 0.0 and (f_last < 0.0) != (f_here < 0.0):
            across, f_across = last, f_last
            step_before = step = here - last
        # The end with the smaller value is the better guess, and becomes `here`.
        if abs(f_across) < abs(f_here):
            last, here, across = here, across, here
            f_last, f_here, f_across = f_here, f_across, f_here
        tolerance = (xtol + rtol * abs(here)) / 2
        half = (across - here) / 2
        if f_here == 0.0 or abs(half) < tolerance:
            return here
        # An infinite attempt fails every test below, which leaves bisection.
        attempt = math.inf
        if abs(step_before) > tolerance and abs(f_here) < abs(f_last):
            # Two different points allow a line, three a parabola through the inverse function.
            if last == across:
                attempt = -f_here * (here - last) / (f_here - f_last)
            else:
                slope = (f_last - f_here) / (last - here)
                slope_across = (f_across - f_here) / (across - here)
                top = -f_here * (f_across * slope_across - f_last * slope)
                bottom = slope_across * slope * (f_across - f_last)
                attempt = top / bottom if bottom else math.inf
        # Taken only if it is inside the bracket and at most half of the step before the last: a row of short
        # steps on one side could otherwise take longer than bisection.
        if 2 * abs(attempt) < min(abs(step_before), 3 * abs(half) - tolerance):
            step_before, step = step, attempt
        else:
            step_before = step = half
        last, f_last = here, f_here
        # Never a step below the tolerance: rounding would leave the point where it is.
        here += step if abs(step) > tolerance else math.copysign(tolerance, half)
        f_here = float(function(here))
        if math.isnan(f_here):
            raise ValueError(f"The function has no value at {here!r}.")
    raise ValueError(f"No root was found in {_MOST_STEPS} steps between {low!r} and {high!r}.")
