"""Ranks of numbers, without ``scipy.stats``, which takes longer to load than they take to compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats


def rank_values(values: AnyArray) -> Floats:
    """Return the rank of each value, from 1; equal values share the mean of their ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place])
