"""How much noise a tilt of the objective needs, and what is set aside to hide the solver."""

from __future__ import annotations

from discreet.errors import PromiseError
from discreet.privacy.calibrate import gaussian_delta

LEAST_SHARE, LARGEST_SHARE = 2.0**-10, 0.25
"""Parts of epsilon that may be spent on hiding the solver's error."""
HIDING_DELTA = 2.0**-6
"""Part of delta that is."""
LARGEST_SCALE = 1e100
"""Standard deviation of a tilt whose powers are still numbers to a solver."""


def gaussian_tilt_scale(change: float, mean: float, epsilon: float, delta: float) -> float:
    """Return the least standard deviation of a Gaussian tilt that is (epsilon, delta)-private.

    Parameters
    ----------
    change : float
        How far apart the tilts can be that lead two neighbors to the same minimizer.
    mean : float
        Mean of the largest inner product of a standard normal with such a change.
    epsilon : float
        What is left after the change of volume.
    delta : float
        Between 0 and 1.

    Returns
    -------
    float
        The least ``s`` with ``gaussian_delta(epsilon - mean / s, change / s) <= delta`` and
        ``epsilon - mean / s >= change**2 / (2 s**2)``. Found by bisection, rounded up.

    Raises
    ------
    PromiseError
        If it is above ``LARGEST_SCALE``.

    Privacy
    -------
    The change of the tilt depends on the noise itself, so that the plain Gaussian mechanism does not apply:
    ``mean`` pays for that.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """

    def enough(s: float) -> bool:
        left, mu = epsilon - mean / s, change / s
        # Strictly, for a square that is below all numbers is not 0.
        return left > mu * mu / 2 and gaussian_delta(left, mu) <= delta

    high = change / epsilon
    while not enough(high):
        high *= 2
    if high > LARGEST_SCALE:
        raise PromiseError(
            f"epsilon of privacy must leave a tilt of at most {LARGEST_SCALE:g} for the objective, and "
            f"{epsilon:g} asks for more. Ask for a weaker promise: nothing could be learned under such noise."
        )
    low = high / 2
    while enough(low):
        low, high = low / 2, low
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
