"""What additive noise of bounded support promises.

It excludes values, so it has no pure epsilon; what it has is a delta for every epsilon, and that is all that
is ever said of it here. Its error floors are Bayes errors, rounded down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from discreet.errors import PromiseError
from discreet.noise.bounded import BoundedDensity
from discreet.privacy import _bayes_bounded
from discreet.privacy._numbers import UNIT, finite, step_until

# Clenshaw sums of a hundred terms that add up to at most 1: measured 2e-15 against rational arithmetic.
_CDF_ERROR = 1e-14


def additive_delta(density: BoundedDensity, epsilon: float, shift: float) -> float:
    """Return the delta of adding ``density`` to values at most ``shift`` apart, rounded up.

    ``max over both signs of sup over c of P(n <= c) - exp(epsilon) P(n <= c - shift)``: the density is
    log-concave, so the best test looks at one end of the output.

    Parameters
    ----------
    density : BoundedDensity
        The noise.
    epsilon : float
        At least 0.
    shift : float
        Largest distance of two values, above 0; for a lattice, of their lattice points.

    Returns
    -------
    float
        1 if the support is not wider than ``shift``. Above the exact value by less than
        ``exp(epsilon) * 1e-12``.

    Privacy
    -------
    (epsilon, delta)-DP of one column. Columns with independent noise compose by adding both numbers.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md, Lemma 3.

    Examples
    --------
    >>> from discreet.noise import BoundedDensity
    >>> round(additive_delta(BoundedDensity(lower=-5, upper=5), 1.0, 1.0), 5)
    0.03412
    """
    function = "additive_delta"
    epsilon = finite(function, "epsilon", epsilon, least=0.0, most=700.0, way_out="Ask below 700.")
    shift = finite(function, "shift", shift, above=0.0, way_out="Give the width of the declared range.")
    low, high = density.support
    if shift >= high - low:
        return 1.0
    growth = math.exp(epsilon)
    mirrored = BoundedDensity(
        lower=-density.upper,
        upper=-density.lower,
        regularization=density.regularization,
        weight=density.weight,
    )
    value = max(_best_test(law, growth, shift) for law in (density, mirrored))
    # Lemma 3: twice from the law to the true ground state and back, and two distribution functions.
    slack = (1.0 + growth * (1.0 + 4 * UNIT)) * (2.0 * density.distance + 2.0 * _CDF_ERROR)
    return min(1.0, value + slack)


def _best_test(density: BoundedDensity, growth: float, shift: float) -> float:
    """Return the largest ``F(c) - growth F(c - shift)``, found where the two densities cross."""
    low, high = density.support

    def gain(c: float) -> float:
        f, g = density.cdf(np.array([c, c - shift])).tolist()
        return float(f - growth * g)

    def likelier(c: float) -> bool:
        u, v = np.abs(density.root(np.array([c, c - shift]))).tolist()
        return bool(u > math.sqrt(growth) * v)

    near, far = low + shift, high
    for _ in range(100):
        middle = 0.5 * (near + far)
        near, far = (middle, far) if likelier(middle) else (near, middle)
    # `near` is within a rounding of the crossing, where the gain is flat; its ends are tests as well.
    return max(gain(near), gain(low + shift), gain(high))


def additive_epsilon(density: BoundedDensity, delta: float, shift: float) -> float:
    """Return the least epsilon whose :func:`additive_delta` is at most ``delta``, rounded up.

    Parameters
    ----------
    density, shift
        As for :func:`additive_delta`.
    delta : float
        Above 0.

    Raises
    ------
    PromiseError
        If no epsilon has so small a delta: the ends of the support alone give a value away too often.

    Privacy
    -------
    As :func:`additive_delta`.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md
    """
    delta = finite("additive_epsilon", "delta", delta, above=0.0, below=1.0, way_out="Give a probability.")
    if additive_delta(density, 0.0, shift) <= delta:
        return 0.0
    high = 0.25
    while additive_delta(density, high, shift) > delta:
        high *= 2.0
        if high > 32.0:
            raise PromiseError(
                "The parameter delta of additive_epsilon must be above "
                f"{least_delta(density, shift):.4g}, and was {delta:g}: noise of "
                "bounded support excludes values that often, at any epsilon. Widen the support, or use "
                "Gaussian noise or in_range=True."
            )
    root = brentq(lambda e: additive_delta(density, e, shift) - delta, 0.0, high, xtol=1e-12)
    return min(high, step_until(lambda e: e >= high or additive_delta(density, e, shift) <= delta, root, 1.0))


def least_delta(density: BoundedDensity, shift: float) -> float:
    """Return the mass of the ``shift``-wide end piece: no epsilon has a smaller delta."""
    low, high = density.support
    if shift >= high - low:
        return 1.0
    below, above = density.cdf(np.array([low + shift, high - shift])).tolist()
    return max(float(below), 1.0 - float(above))


@dataclass(frozen=True, slots=True)
class BoundedNoise:
    """Additive noise of bounded support, for :func:`~discreet.privacy.floors.bayes_floor`.

    Parameters
    ----------
    density : BoundedDensity
        In the column's unit.

    Privacy
    -------
    A law, not a promise.

    Reference
    ---------
    docs/explanation/theorems/fisher-bounded.md, Lemma 4.

    Examples
    --------
    >>> from discreet.noise import BoundedDensity
    >>> from discreet.privacy.floors import UniformPrior, bayes_floor
    >>> noise = BoundedNoise(BoundedDensity(lower=-28.3, upper=28.3))
    >>> round(bayes_floor(noise, UniformPrior(17, 90)), 2)
    8.88
    """

    density: BoundedDensity

    @property
    def information(self) -> float:
        """Fisher information about the location, rounded up."""
        return self.density.fisher_information * (1.0 + 1e-12)

    def repeated(self, releases: int) -> BoundedNoise:
        """Return itself for one release; several bounded draws do not reduce to a single one."""
        if releases == 1:
            return self
        raise PromiseError(
            f"The parameter releases of BoundedNoise.repeated must be 1, and was {releases}. Several "
            "releases with bounded noise exclude values together and have no exact floor here; use Gaussian "
            "noise, or van_trees_floor for a column that is not made of integers."
        )

    def interval_mean_square(self, width: float) -> float:
        """Lower bound on the Bayes mean square error, uniform prior on an interval."""
        return _bayes_bounded.interval(self.density, width)

    def integer_mean_square(self, points: int) -> float:
        """Lower bound on the Bayes mean square error, uniform prior on consecutive integers."""
        return _bayes_bounded.integers(self.density, points)

    def scaled(self, factor: float) -> BoundedNoise:
        """Return the noise in another unit: ``factor`` times as large."""
        density = self.density
        return BoundedNoise(
            replace(
                density,
                lower=density.lower * factor,
                upper=density.upper * factor,
                regularization=density.regularization / factor**4,
            )
        )
