"""How long a linear map can make the diagonal of a box: certified, although the exact answer is NP-hard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import linalg, optimize

from discreet.errors import ParameterError

if TYPE_CHECKING:
    from discreet._typing import Floats

_ENUMERATE = 18
_DUAL = 200
_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True, kw_only=True)
class BoxDiameter:
    """The largest norm of ``matrix @ d`` over ``|d_j| <= widths[j]``, between two bounds.

    Attributes
    ----------
    upper : float
        Proven: nothing in the box is longer. Promises use this one.
    lower : float
        Attained by a corner that a local search found; shows what the certificate gives away.
    how : {"diagonal", "all corners", "dual", "norms"}
        Where ``upper`` comes from.
    """

    upper: float
    lower: float
    how: Literal["diagonal", "all corners", "dual", "norms"]


def linear_box_diameter(matrix: Floats, widths: Floats) -> BoxDiameter:
    """Bound ``max |matrix @ d|`` over the box of differences of two rows.

    Parameters
    ----------
    matrix : array of shape (p, p)
        For example the whitening map of correlated noise.
    widths : array of shape (p,)
        Declared ranges.

    Returns
    -------
    BoxDiameter

    Privacy
    -------
    The sensitivity of Gaussian noise that is not independent between columns. The trace of
    ``matrix' matrix`` is its square for a diagonal matrix alone (14 to 38 % too small in examples).

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
    blur = (p + 8) * _UNIT * float(np.linalg.norm(np.abs(scaled).sum(axis=1))) * 1.01
    if np.count_nonzero(scaled - np.diag(np.diagonal(scaled))) == 0:
        length = float(np.linalg.norm(np.diagonal(scaled)))
        return BoxDiameter(upper=length + blur, lower=length, how="diagonal")
    lower = _climb(scaled)
    if p <= _ENUMERATE:
        return BoxDiameter(upper=_corners(scaled) + blur, lower=lower, how="all corners")
    square = scaled.T @ scaled
    gap = p * (2 * p + 8) * _UNIT * float(np.linalg.norm(scaled)) ** 2 * 1.01
    norms = min(float(np.abs(square).sum()), p * float(linalg.eigvalsh(square)[-1]))
    if p > _DUAL:
        return BoxDiameter(upper=math.sqrt(norms + gap), lower=lower, how="norms")
    dual = _dual(square)
    return BoxDiameter(
        upper=math.sqrt(min(dual, norms) + gap), lower=lower, how="dual" if dual <= norms else "norms"
    )


def _corners(scaled: Floats) -> float:
    """Try every corner; opposite ones have the same length."""
    p = scaled.shape[1]
    best = 0.0
    count = 1 << (p - 1)
    for start in range(0, count, 1 << 14):
        index = np.arange(start, min(start + (1 << 14), count), dtype=np.uint32)
        signs = 1.0 - 2.0 * (index[:, None] >> np.arange(p, dtype=np.uint32) & 1)
        best = max(best, float(np.max(np.sum((signs @ scaled.T) ** 2, axis=1))))
    return math.sqrt(best)


def _climb(scaled: Floats) -> float:
    """Flip one sign at a time while that helps, from the corner that follows the first eigenvector."""
    square = scaled.T @ scaled
    _, vectors = linalg.eigh(square)
    best = 0.0
    for k in range(1, min(5, scaled.shape[1]) + 1):
        x = np.where(vectors[:, -k] >= 0, 1.0, -1.0)
        while True:
            gain = np.diagonal(square) - x * (square @ x)
            j = int(np.argmax(gain))
            if gain[j] <= 1e-12 * square[j, j]:
                break
            x[j] = -x[j]
        best = max(best, float(np.linalg.norm(scaled @ x)))
    return best


def _dual(square: Floats) -> float:
    """Minimize ``sum(d) + p * largest eigenvalue of (square - diag(d))``: an upper bound for every ``d``."""
    p = len(square)

    def bound(d: Floats) -> float:
        return float(d.sum()) + p * float(linalg.eigvalsh(square - np.diag(d))[-1])

    def smooth(d: Floats, heat: float) -> tuple[float, Floats]:
        values, vectors = linalg.eigh(square - np.diag(d))
        weight = np.exp((values - values[-1]) / heat)
        largest = values[-1] + heat * math.log(weight.sum())
        share = (vectors**2) @ (weight / weight.sum())
        return float(d.sum() + p * largest), 1.0 - p * share

    d = np.abs(square).sum(axis=1)
    best = bound(d)
    size = float(linalg.eigvalsh(square)[-1])
    for heat in (0.03, 0.01, 0.003, 0.001):
        found = optimize.minimize(smooth, d, args=(heat * size,), jac=True, method="L-BFGS-B")
        d = found.x
        best = min(best, bound(d))
    return best
