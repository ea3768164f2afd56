"""Noise that hides how far one row can move the result of a training, and what it promises."""

from __future__ import annotations

from discreet.learn.perturbed.promises import gaussian_allowance, spherical_promise, taken_over
from discreet.learn.perturbed.vector import GaussianNoise, SphericalNoise, VectorNoise
from discreet.privacy import ApproxDP, GaussianDP, Promise, PureDP
from discreet.privacy.calibrate import mu_for_sd


def output_noise(apart: float, privacy: PureDP | ApproxDP, size: int) -> tuple[VectorNoise, Promise]:
    """Return the least noise on a vector of weights, and its promise.

    Parameters
    ----------
    apart : float
        How far the computed weights of two neighbors can be apart, before rounding to the lattice.
    privacy : PureDP or ApproxDP
        What is asked for.
    size : int
        How many weights there are.

    Privacy
    -------
    Under :class:`PureDP` the density is in proportion to ``exp(-epsilon |x| / apart)``, under
    :class:`ApproxDP` the noise is Gaussian and promised as its whole curve.

    Reference
    ---------
    docs/explanation/theorems/spherical-laplace.md, analytic-gaussian.md
    """
    if isinstance(privacy, PureDP):
        spherical = SphericalNoise.hiding(apart, privacy.epsilon, size)
        return spherical, spherical_promise(
            privacy, spherical.delta(privacy.epsilon), spherical.total_variation
        )
    noise = GaussianNoise.hiding(apart, gaussian_allowance(privacy, size), size)
    promise = GaussianDP(
        mu=mu_for_sd((apart + noise.rounding) * (1 + 2.0**-44), noise.sd),
        total_variation=noise.total_variation,
        **taken_over(privacy),
    )
    return noise, promise
