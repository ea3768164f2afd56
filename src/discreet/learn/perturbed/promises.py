"""What noise on a vector of weights promises, and how much of it an approximate promise allows."""

from __future__ import annotations

import math
from typing import Any

from discreet.errors import PromiseError
from discreet.noise import gaussian
from discreet.privacy import ApproxDP, Promise, PureDP
from discreet.privacy.calibrate import gaussian_mu


def taken_over(privacy: Promise) -> dict[str, Any]:
    """Return what a promise takes over from the one that was asked for."""
    assumes = (
        *privacy.assumes,
        f"each {privacy.unit} has one row",
        "the number of rows, the bounds and the list of classes are public",
    )
    return {"unit": privacy.unit, "neighbors": privacy.neighbors, "assumes": assumes}


def spherical_promise(privacy: PureDP, delta: float, total_variation: float) -> Promise:
    """Return what spherical noise promises: a point event, pure in one dimension."""
    rest = {**taken_over(privacy), "total_variation": total_variation}
    if delta == 0.0:
        return PureDP(epsilon=privacy.epsilon, **rest)
    return ApproxDP(epsilon=privacy.epsilon, delta=delta, **rest)


def delta_without_sampler(privacy: ApproxDP, total_variation: float) -> float:
    """Return what is left of delta once the sampler's distance is paid."""
    distance = 2 * (1 + math.exp(min(privacy.epsilon, 700.0))) * total_variation
    if distance >= privacy.delta / 2:
        raise PromiseError(
            f"delta of privacy must be well above the sampler's {distance:.2g} at this epsilon, was "
            f"{privacy.delta:g}. Ask for a larger delta or a smaller epsilon."
        )
    # A little less, so that the promise can be read at the delta that was asked for.
    return (privacy.delta - distance) * (1 - 2.0**-38)


def gaussian_allowance(privacy: ApproxDP, size: int) -> float:
    """Return the largest mu of Gaussian noise on ``size`` numbers."""
    return gaussian_mu(privacy.epsilon, delta_without_sampler(privacy, size * gaussian.TOTAL_VARIATION))
