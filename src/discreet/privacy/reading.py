"""Reading a privacy curve in the safe direction, with a sampler that is not perfect."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING

from discreet.errors import PromiseError
from discreet.privacy._numbers import binary_root
from discreet.privacy.amounts import exact, float_down, float_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.privacy._promise import Promise
    from discreet.schema.table import Neighbors


def exp_up(exponent: Fraction) -> Fraction | None:
    """Return exp rounded up, or None past the range of 64-bit numbers."""
    if not exponent:
        return Fraction(1)
    try:
        # The platform's exp errs by less than one unit in the last place; take two.
        value = math.exp(math.nextafter(float_up(exponent), math.inf))
    except OverflowError:
        return None
    return Fraction(math.nextafter(math.nextafter(value, math.inf), math.inf))


def check_neighbors(privacy: Promise, neighbors: Neighbors, where: str) -> None:
    """Refuse a promise about other neighbors than a table's: the same number would mean something else."""
    if privacy.neighbors != neighbors:
        raise PromiseError(
            f"privacy of {where} must be about the neighbors of the table, {neighbors}, was about "
            f"{privacy.neighbors}. Ask for {type(privacy).__name__}(..., neighbors={neighbors!r}), or "
            "register the table under a schema with the other neighbors."
        )


def root_down(square: Fraction) -> float:
    """Return the square root, rounded down; refuses what 64-bit numbers cannot hold the square of."""
    if square > sys.float_info.max:
        raise PromiseError(
            "an amount of privacy must have a square within the range of 64-bit numbers, and has a larger "
            "one: it promises nothing. Ask for a stronger promise."
        )
    root, shift = binary_root(square)
    near = float(Fraction(root, 1 << shift))
    return near if exact(near) ** 2 <= square else math.nextafter(near, 0.0)


def least_epsilon(enough: Callable[[float], bool], high: float) -> float:
    """Return the smallest epsilon in [0, high] found to be enough; `high` is known to be."""
    if enough(0.0):
        return 0.0
    low = 0.0
    while (middle := low + (high - low) / 2) not in (low, high):
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def sampling_delta(total_variation: Fraction, epsilon: float) -> Fraction:
    """Return ``(1 + exp(epsilon)) * total_variation``, rounded up and at most 1."""
    if not total_variation:
        return Fraction(0)
    growth = exp_up(exact(epsilon))
    return Fraction(1) if growth is None else min(Fraction(1), (1 + growth) * total_variation)


def smallest_epsilon(ideal: Callable[[float], float], delta: float, total_variation: Fraction) -> float:
    """Read an ideal curve at `delta` once the sampler's total variation is taken off.

    What must be taken off grows with epsilon. So set a part of delta aside, read the curve with the
    rest, and see whether the part covers the epsilon found; then tighten: each round sets aside what
    the last valid epsilon needs, so stays valid. The largest part is tried last, because books with
    point events may not have it.
    """
    if not total_variation:
        return ideal(delta)
    whole = exact(delta)
    for halvings in (40, 20, 10, 4, 1):
        part = whole / 2**halvings
        if sampling_delta(total_variation, 0.0) > part:
            continue
        epsilon = ideal(float_down(whole - part))
        if sampling_delta(total_variation, epsilon) <= part:
            break
    else:
        raise PromiseError(
            f"delta must be well above the sampler's total variation {float(total_variation):g}, "
            f"and {delta:g} is not at this epsilon. Read the promise at a larger delta."
        )
    for _ in range(4):
        rest = float_down(whole - sampling_delta(total_variation, epsilon))
        epsilon = min(epsilon, ideal(rest))
    return epsilon
