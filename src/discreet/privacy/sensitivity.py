"""How far apart a linear map can take two rows of a box: the sensitivity of correlated noise.

The exact value is NP-hard to compute, so that a certified bound is rounded up in its place. The box is that
of declared bounds, never one read off rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy

from discreet.errors import ParameterError
from discreet.privacy.rounding import UNIT

if TYPE_CHECKING:
    from discreet._types import Floats

#: Columns up to which all corners of the box are tried: 2**17 pairs of opposite corners.
_ENUMERATE = 18
#: Columns up to which the dual bound is minimized; every step of it is an eigendecomposition.
_DUAL = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxDiameter:
    """Bounds on the largest norm of ``matrix @ d`` over ``|d_j| <= widths[j]``.

    Attributes
    ----------
    upper : float
        Proven upper bound, which promises use.
    lower : float
        Norm at a corner that a local search found: how tight ``upper`` is at least.
    how : {"diagonal", "all corners", "dual", "norms"}
        Method by which ``upper`` was proven.
    """

    upper: float
    lower: float
    how: Literal["diagonal", "all corners", "dual", "norms"]


def linear_box_diameter(matrix: Floats, widths: Floats) -> BoxDiameter:
    """Return bounds on ``max |matrix @ d|`` over the box of differences of two rows.

    Parameters
    ----------
    matrix : array of shape (p, p)
        Linear map, for example the whitening map of correlated noise.
    widths : array of shape (p,)
        Widths of the declared ranges, above 0, in the columns' units.

    Returns
    -------
    BoxDiameter

    Privacy
    -------
    The sensitivity of Gaussian noise that is not independent between columns. The trace of
    ``matrix' matrix`` is its square for a diagonal matrix alone (14 to 38 % too small in examples).

    Notes
    -----
    With ``S = matrix * diag(widths)`` and signs x: up to 18 columns ``max |S x|`` over all corners, beyond
    that ``min over d of sum(d) + p lambda_max(S'S - diag(d))`` and the bounds ``sum |S'S|`` and
    ``p lambda_max(S'S)``. The rounding of each product is added.

    Reference
    ---------
    docs/explanation/theorems/box-diameter.md
    """
    matrix, widths = np.asarray(matrix, float), np.asarray(widths, float)
    p = widths.size
    if matrix.shape != (p, p) or not (np.isfinite(matrix).all() and np.isfinite(widths).all()):
        raise ParameterError(
            f"matrix of linear_box_diameter must be {p} by {p} and finite, as widths are {p} numbers."
        )
    if not (widths > 0).all():
        raise ParameterError(
            "widths of linear_box_diameter must be above 0. Declare a range for each column."
        )
    scaled = matrix * widths
    # Every entry of a product of p terms, in any order, relative to the sum of absolute values.
    blur = (p + 8) * UNIT * float(np.linalg.norm(np.abs(scaled).sum(axis=1))) * 1.01
    # A diagonal map stretches each column alone, so that every corner has the largest norm.
    if np.count_nonzero(scaled - np.diag(np.diagonal(scaled))) == 0:
        length = float(np.linalg.norm(np.diagonal(scaled)))
        return BoxDiameter(upper=length + blur, lower=length, how="diagonal")
    lower = _search_corner(scaled)
    if p <= _ENUMERATE:
        return BoxDiameter(upper=_enumerate_corners(scaled) + blur, lower=lower, how="all corners")
    square = scaled.T @ scaled
    # Rounding of the product and of its eigenvalues, which are multiplied by p.
    gap = p * (2 * p + 8) * UNIT * float(np.linalg.norm(scaled)) ** 2 * 1.01
    # Both hold for every box without a search; the dual is compared with them, and the least is kept.
    norms = min(float(np.abs(square).sum()), p * float(scipy.linalg.eigvalsh(square)[-1]))
    if p > _DUAL:
        return BoxDiameter(upper=math.sqrt(norms + gap), lower=lower, how="norms")
    dual = _dual_bound(square)
    return BoxDiameter(
        upper=math.sqrt(min(dual, norms) + gap), lower=lower, how="dual" if dual <= norms else "norms"
    )


def _enumerate_corners(scaled: Floats) -> float:
    """Return the largest ``|scaled @ x|`` over all sign vectors x up to their sign, in blocks of 2**14."""
    p = scaled.shape[1]
    best = 0.0
    # The last sign stays +1: x and -x have the same norm.
    count = 1 << (p - 1)
    for start in range(0, count, 1 << 14):
        index = np.arange(start, min(start + (1 << 14), count), dtype=np.uint32)
        signs = 1.0 - 2.0 * (index[:, None] >> np.arange(p, dtype=np.uint32) & 1)
        best = max(best, float(np.max(np.sum((signs @ scaled.T) ** 2, axis=1))))
    return math.sqrt(best)


def _search_corner(scaled: Floats) -> float:
    """Return a large ``|scaled @ x|`` by flipping one sign at a time, from the signs of five eigenvectors.

    Notes
    -----
    With ``Q = scaled' scaled``, flipping x_j changes ``x' Q x`` by ``4 (Q_jj - x_j (Q x)_j)``.
    """
    square = scaled.T @ scaled
    _, vectors = scipy.linalg.eigh(square)
    best = 0.0
    for k in range(1, min(5, scaled.shape[1]) + 1):
        x = np.where(vectors[:, -k] >= 0, 1.0, -1.0)
        while True:
            gain = np.diagonal(square) - x * (square @ x)
            j = int(np.argmax(gain))
            # Gains that are rounding errors would flip signs for ever.
            if gain[j] <= 1e-12 * square[j, j]:
                break
            x[j] = -x[j]
        best = max(best, float(np.linalg.norm(scaled @ x)))
    return best


def _dual_bound(square: Floats) -> float:
    """Return the least ``sum(d) + p * lambda_max(square - diag(d))`` found: an upper bound for every d.

    Notes
    -----
    ``x' Q x = sum(d) + x' (Q - diag(d)) x`` for signs x, with ``|x|^2 = p``. The largest eigenvalue is
    smoothed as ``heat * log sum exp(lambda_i / heat)``, minimized by L-BFGS at decreasing heat; only the
    exact bound at the resulting d is returned.
    """
    p = len(square)

    def bound(d: Floats) -> float:
        return float(d.sum()) + p * float(scipy.linalg.eigvalsh(square - np.diag(d))[-1])

    def smooth(d: Floats, heat: float) -> tuple[float, Floats]:
        values, vectors = scipy.linalg.eigh(square - np.diag(d))
        # Relative to the largest eigenvalue, so that no exponential overflows.
        weight = np.exp((values - values[-1]) / heat)
        largest = values[-1] + heat * math.log(weight.sum())
        share = (vectors**2) @ (weight / weight.sum())
        return float(d.sum() + p * largest), 1.0 - p * share

    # With row sums of absolute values Q - diag(d) is negative semidefinite: the bound sum |Q| to start from.
    d = np.abs(square).sum(axis=1)
    best = bound(d)
    size = float(scipy.linalg.eigvalsh(square)[-1])
    # From smooth to sharp: each result is where the next, sharper problem begins.
    for heat in (0.03, 0.01, 0.003, 0.001):
        d = scipy.optimize.minimize(smooth, d, args=(heat * size,), jac=True, method="L-BFGS-B").x
        best = min(best, bound(d))
    return best
