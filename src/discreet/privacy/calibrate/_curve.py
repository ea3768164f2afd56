"""The trade-off curve of Gaussian noise, evaluated from above.

With a = epsilon/mu - mu/2, b = epsilon/mu + mu/2 and Mills' ratio R, the identity
e^epsilon phi(b) = phi(a) turns the textbook difference into delta = phi(a) (R(a) - R(b)), where nothing
overflows and no digits cancel unless mu is small. Three cases: mu small (integrate 1 - x R(x), the
slope of -R, from a to b), mu large and a negative (1 - delta is a sum of positive terms), and the rest
as it stands. The slack added is twice the forward error of each case; its derivation is on the page
``docs/explanation/theorems/analytic-gaussian.md``.

Rounding makes what is computed wobble by as much as the slack, so a mu one unit smaller may be given a delta
one unit larger. What is allowed is therefore measured by :func:`delta_ceiling`, which lies above the wobble.
"""

from __future__ import annotations

import math
from fractions import Fraction

from scipy.special import erfcx

from discreet.privacy._numbers import UNIT, round_up

_LOG_SQRT_TWO_PI = 0.5 * math.log(2.0 * math.pi)
#: Below this mu the difference of two Mills ratios is integrated instead of subtracted.
_SMALL_MU = 0.25
#: Above this argument 1 - x R(x) is replaced by its upper bound 1/(x^2+1), relative excess 2e-8.
_FAR = 1e4
#: How many slacks above what is computed the evaluations of all smaller deltas end.
_ABOVE_WOBBLE = 3.0
# Gauss-Legendre nodes and weights on [0, 1]; eight are exact to 1e-25 on an interval of length 1/4.
_NODES = (
    0.019855071751231884,
    0.10166676129318664,
    0.2372337950418355,
    0.4082826787521751,
    0.5917173212478249,
    0.7627662049581645,
    0.8983332387068134,
    0.9801449282487681,
)
_WEIGHTS = (
    0.05061426814518813,
    0.11119051722668724,
    0.15685332293894363,
    0.18134189168918100,
    0.18134189168918100,
    0.15685332293894363,
    0.11119051722668724,
    0.05061426814518813,
)


def _mills(x: float) -> float:
    """Mills' ratio (1 - Phi(x)) / phi(x), within 8 units for x >= -1/8."""
    return float(math.sqrt(0.5 * math.pi) * erfcx(x * math.sqrt(0.5)))


def _ends(epsilon: float, mu: float) -> tuple[float, float]:
    """Return (epsilon/mu - mu/2, epsilon/mu + mu/2), kept finite."""
    ratio = min(epsilon / mu, 1e150)
    return ratio - 0.5 * mu, ratio + 0.5 * mu


def _use_complement(a: float, mu: float) -> bool:
    return a < 0.0 and mu > _SMALL_MU


def _log_complement(a: float, b: float, slacks: float = 1.0) -> float:
    """Lower bound on log(1 - delta) for a < 0: a sum of positive terms, so nothing cancels."""
    if a < -1e100:
        return -math.inf
    value = -0.5 * a * a - _LOG_SQRT_TWO_PI + math.log(_mills(-a) + _mills(b))
    return value - 2.0 * UNIT * slacks * ((12.0 - a) * (b - a) + a * a + 32.0)


def log_delta_up(epsilon: float, mu: float, slacks: float = 1.0) -> float:
    a, b = _ends(epsilon, mu)
    if _use_complement(a, mu):
        complement = math.exp(_log_complement(a, b, slacks)) * (1.0 - 4.0 * UNIT)
        return math.nextafter(math.log1p(-complement) * (1.0 - 4.0 * UNIT), math.inf)
    # delta = phi(a) (R(a) - R(b)) by e^epsilon phi(b) = phi(a). The four terms of the slack are the
    # rounding of a and b, of a^2/2, of the ratios, and of what is left.
    if a > _FAR:
        log_difference = min(math.log(mu) - 2.0 * math.log(a), -math.log(a))
        ratios = 0.0
    elif mu > _SMALL_MU:
        first, second = _mills(a), _mills(b)
        log_difference = math.log(first - second)
        ratios = 8.0 * (first + second) / (first - second)
    else:
        total = 0.0
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            x = a + mu * node
            total += weight * (1.0 - x * _mills(x))
        log_difference = math.log(mu) + math.log(total)
        ratios = 12.0 * (b * b + 3.0)
    value = -0.5 * a * a - _LOG_SQRT_TWO_PI + log_difference
    slack = (12.0 + abs(a)) * (abs(a) + b) + a * a + ratios + 32.0 + abs(log_difference)
    return min(value + 2.0 * UNIT * slacks * slack, 0.0)


def delta_up(epsilon: float, mu: float, slacks: float = 1.0) -> float:
    a, b = _ends(epsilon, mu)
    if _use_complement(a, mu):
        complement = math.exp(_log_complement(a, b, slacks)) * (1.0 - 4.0 * UNIT)
        return round_up(1 - Fraction(complement))
    value = math.exp(log_delta_up(epsilon, mu, slacks)) * (1.0 + 4.0 * UNIT)
    return min(math.nextafter(value, math.inf), 1.0)


def delta_ceiling(epsilon: float, mu: float) -> float:
    """Return what :func:`delta_up` exceeds at no smaller mu and at no larger epsilon."""
    here = delta_up(epsilon, mu, _ABOVE_WOBBLE)
    # The other case, which begins there, may have the larger slack.
    return here if mu <= _SMALL_MU else max(here, delta_up(epsilon, _SMALL_MU, _ABOVE_WOBBLE))


def score(epsilon: float, mu: float, delta: float) -> float:
    """Return a quantity that grows with delta(epsilon; mu) and is 0 where it equals ``delta``.

    Square roots of logarithms make it nearly linear in epsilon/mu - mu/2, so that few steps find the
    root; above one half the complement is compared, which keeps its digits where delta has none.
    """
    if delta <= 0.5:
        here, target = log_delta_up(epsilon, mu), math.log(delta)
        return math.sqrt(-2.0 * target) - math.sqrt(-2.0 * min(here, 0.0))
    a, b = _ends(epsilon, mu)
    here = _log_complement(a, b) if _use_complement(a, mu) else math.log1p(-delta_up(epsilon, mu))
    # 1 - delta is exact for delta above one half.
    return math.sqrt(-2.0 * max(here, -1e300)) - math.sqrt(-2.0 * math.log(1.0 - delta))
