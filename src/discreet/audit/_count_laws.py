"""Laws of counts: functions for which an attack would load all of ``scipy.stats``, 0.6 s."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from discreet._types import Floats


def binomial_chance(count: Floats, n: int, chance: Floats) -> Floats:
    """Return the probability of a count among ``n`` independent trials, for each count and chance."""
    inside = np.clip(count, 0, n)
    ways = special.gammaln(n + 1) - special.gammaln(inside + 1) - special.gammaln(n - inside + 1)
    logs = ways + special.xlogy(inside, chance) + special.xlog1py(n - inside, -chance)
    return np.where(inside == count, np.exp(logs), 0.0)


def binomial_tail(count: Floats, n: int, chance: Floats) -> Floats:
    """Return the probability of more than ``count`` among ``n`` independent trials; count is below n."""
    return np.asarray(special.bdtrc(count, n, chance))


def poisson_quantile(share: Floats, mean: Floats) -> Floats:
    """Return the least number that a Poisson number exceeds with a probability of at most 1 - ``share``."""
    found = np.ceil(special.pdtrik(share, mean))
    below = np.maximum(found - 1, 0)
    return np.asarray(np.where(special.pdtr(below, mean) >= share, below, found))
