"""Coordinates of what sums to zero over classes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import Floats


def zero_sum_basis(n_classes: int) -> Floats:
    """Return an orthonormal basis, one row each, of the vectors whose ``n_classes`` entries sum to zero."""
    basis = np.zeros((n_classes - 1, n_classes))
    for k in range(1, n_classes):
        basis[k - 1, :k] = 1
        basis[k - 1, k] = -k
        basis[k - 1] /= math.sqrt(k * (k + 1))
    return basis
