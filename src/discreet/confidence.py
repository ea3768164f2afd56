"""Confidence bounds on a probability from a count of successes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats


def clopper_pearson(hits: AnyArray | int, n: int, failure: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds on a probability, each wrong with probability at most ``failure``.

    Parameters
    ----------
    hits : int or array of int
        Number of successes among the trials.
    n : int
        Number of independent trials.
    failure : float
        Probability with which each of the two bounds may fail.

    Notes
    -----
    The ``failure`` quantile of Beta(k, n - k + 1) and the ``1 - failure`` quantile of Beta(k + 1, n - k).

    Reference
    ---------
    Clopper and Pearson (1934).
    """
    k = np.asarray(hits, np.float64)
    # betaincinv is undefined at no hits and at all hits, where the bound is 0 or 1.
    low = np.where(k > 0, scipy.special.betaincinv(np.maximum(k, 1), n - k + 1, failure), 0.0)
    high = np.where(k < n, scipy.special.betainccinv(k + 1, np.maximum(n - k, 1), failure), 1.0)
    # The inverse is accurate to about 1e-12; a bound is moved outward by more than that.
    return low * (1 - 1e-9), np.minimum(high * (1 + 1e-9), 1.0)
