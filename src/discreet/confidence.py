"""How sure a count makes one of a probability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import special

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats


def clopper_pearson(hits: AnyArray | int, n: int, failure: float) -> tuple[Floats, Floats]:
    """Return bounds below and above a probability, each wrong with probability at most ``failure``."""
    k = np.asarray(hits, np.float64)
    # betaincinv is undefined at no hits and at all hits, where the bound is 0 or 1.
    low = np.where(k > 0, special.betaincinv(np.maximum(k, 1), n - k + 1, failure), 0.0)
    high = np.where(k < n, special.betainccinv(k + 1, np.maximum(n - k, 1), failure), 1.0)
    # The inverse is accurate to about 1e-12; a bound is moved outward by more than that.
    return low * (1 - 1e-9), np.minimum(high * (1 + 1e-9), 1.0)
