"""Sensitivities: how far one person can move an answer, from declared bounds alone, rounded up.

Differences, sums and products are computed as exact rationals and rounded once at the end, so each
result is the smallest float that is at least the true sensitivity. The exception is
:func:`linear_box_diameter`, a certified bound where the exact value is NP-hard. Bounds are declared, never
read off rows.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import scipy

from discreet.errors import ParameterError
from discreet.privacy.rounding import UNIT, finite, round_up, sqrt_up, whole
from discreet.schema.schema import Neighbors

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from discreet._types import Floats

#: Columns up to which all corners of the box are tried: 2**17 pairs of opposite corners.
_ENUMERATE = 18
#: Columns up to which the dual bound is minimized; every step of it is an eigendecomposition.
_DUAL = 200


Norm = Literal["L1", "L2"]


def box_diameter(lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the L2 distance of the corners of a box, rounded up.

    Parameters
    ----------
    lower, upper : array-like
        Declared bounds of one column, or of each; ``lower <= upper``.

    Returns
    -------
    float
        The smallest float that is at least ``sqrt(sum (upper - lower)^2)``.

    Privacy
    -------
    The L2 sensitivity of publishing a row of the box with noise, under replace-one.

    Reference
    ---------
    Exact rational arithmetic; nothing is assumed of the libraries.

    Examples
    --------
    >>> box_diameter([0, 0], [3, 4])
    5.0
    """
    # Fractions: a difference of floats may be rounded down, and a sensitivity must not be.
    pairs = _exact_box("box_diameter", lower, upper)
    return _check_finite(
        "box_diameter", sqrt_up(sum(((high - low) ** 2 for low, high in pairs), Fraction(0)))
    )


def integer_box_diameter(lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the L2 distance of the corners of a box on the integer lattice, rounded up.

    Parameters
    ----------
    lower, upper : array-like of int
        End points of each column after rounding to the lattice, as integers of any size.

    Returns
    -------
    float
        In lattice steps.

    Privacy
    -------
    The L2 sensitivity of a row whose integers are clamped to these end points.

    Reference
    ---------
    Exact integer arithmetic.
    """
    function = "integer_box_diameter"
    lows, highs = _exact_integers(function, "lower", lower), _exact_integers(function, "upper", upper)
    if len(lows) != len(highs) or any(low > high for low, high in zip(lows, highs, strict=True)):
        raise ParameterError(
            f"The parameters lower and upper of {function} must have one entry per column, lower at "
            f"most upper, and had {len(lows)} and {len(highs)} entries. Give both ends of each column."
        )
    total = sum((high - low) ** 2 for low, high in zip(lows, highs, strict=True))
    return _check_finite(function, sqrt_up(Fraction(total)))


def lattice_sensitivity(diameter: float, step: float, dimension: int) -> float:
    """Return the L2 sensitivity after rounding to a lattice, ``diameter + 2 step sqrt(dimension)``.

    Parameters
    ----------
    diameter : float
        L2 sensitivity before rounding, replace-one; at least 0.
    step : float
        Step of the lattice; each coordinate is certified to be computed within half a step and is
        then rounded by at most another half.
    dimension : int
        Number of coordinates; at least 1.

    Returns
    -------
    float
        Rounded up.

    Privacy
    -------
    Both rows move by at most one step per coordinate.

    Reference
    ---------
    Triangle inequality.
    """
    function = "lattice_sensitivity"
    way_out = "Give the sensitivity before rounding and the lattice's step, in the same unit."
    diameter = finite(function, "diameter", diameter, least=0.0, way_out=way_out)
    step = finite(function, "step", step, least=0.0, way_out=way_out)
    dimension = whole(function, "dimension", dimension, least=1, way_out="Count the columns.")
    # Each of two rows moves by a step per coordinate: a distance of 2 step sqrt(dimension) together.
    rounding_distance = Fraction(sqrt_up(4 * Fraction(step) ** 2 * dimension))
    return _check_finite(function, round_up(Fraction(diameter) + rounding_distance))


def sum_sensitivity(
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    neighbors: Neighbors,
    rows: int = 1,
    norm: Norm = "L2",
) -> float:
    """Return how far one person can move a sum of values from a box, rounded up.

    Parameters
    ----------
    lower, upper : array-like
        Declared bounds of the summed value, or of each coordinate of the summed vector.
    neighbors : {"replace-one", "add-remove"}
        Whether a person is exchanged for another or is there or not.
    rows : int
        Declared largest number of rows of one person.
    norm : {"L1", "L2"}
        L2 for Gaussian noise, L1 for Laplace noise.

    Returns
    -------
    float
        Replace-one: ``rows`` times the norm of ``upper - lower``. Add-remove: ``rows`` times the
        norm of ``max(|lower|, |upper|)``.

    Privacy
    -------
    Tight for every box.

    Reference
    ---------
    Dwork and Roth (2014), Definition 3.8.

    Examples
    --------
    >>> sum_sensitivity(-1, 3, neighbors="replace-one"), sum_sensitivity(-1, 3, neighbors="add-remove")
    (4.0, 3.0)
    """
    function = "sum_sensitivity"
    replace = _is_replace_one(function, neighbors)
    rows = _check_rows(function, rows)
    # One who is added brings a value, and one who is replaced the difference of two.
    moves = [
        (high - low) if replace else max(abs(low), abs(high))
        for low, high in _exact_box(function, lower, upper)
    ]
    if norm == "L1":
        return _check_finite(function, round_up(rows * sum(moves, Fraction(0))))
    if norm == "L2":
        squares = sum((move**2 for move in moves), Fraction(0))
        return _check_finite(function, sqrt_up(rows**2 * squares))
    raise ParameterError(
        f"The parameter norm of {function} must be 'L1' or 'L2', and was {norm!r}. Use L2 for "
        "Gaussian noise and L1 for Laplace noise."
    )


def ball_sum_sensitivity(norm_bound: float, *, neighbors: Neighbors, rows: int = 1) -> float:
    """Return how far one person can move a sum of vectors of norm at most ``norm_bound``.

    Parameters
    ----------
    norm_bound : float
        Declared bound on the norm of each vector, whichever norm; at least 0.
    neighbors : {"replace-one", "add-remove"}
        Whether a person is exchanged for another or is there or not.
    rows : int
        Declared largest number of rows of one person.

    Returns
    -------
    float
        ``2 rows norm_bound`` under replace-one, ``rows norm_bound`` under add-remove, rounded up.

    Privacy
    -------
    Tight: two opposite vectors attain it.

    Reference
    ---------
    Triangle inequality.
    """
    function = "ball_sum_sensitivity"
    way_out = "Declare the norm to which rows are clipped."
    bound = Fraction(finite(function, "norm_bound", norm_bound, least=0.0, way_out=way_out))
    factor = 2 if _is_replace_one(function, neighbors) else 1
    return _check_finite(function, round_up(factor * _check_rows(function, rows) * bound))


def histogram_sensitivity(*, neighbors: Neighbors, rows: int = 1, norm: Norm = "L2") -> float:
    """Return how far one person can move a table of counts in which each row has one cell.

    Parameters
    ----------
    neighbors : {"replace-one", "add-remove"}
        Whether a person is exchanged for another or is there or not.
    rows : int
        Declared largest number of rows of one person.
    norm : {"L1", "L2"}
        L2 for Gaussian noise, L1 for Laplace noise.

    Returns
    -------
    float
        Replace-one: ``rows`` times sqrt(2) in L2 and ``2 rows`` in L1. Add-remove: ``rows``.

    Privacy
    -------
    Whatever the number of cells; worst when all rows of a person leave one cell for another.

    Reference
    ---------
    Blum, Dwork, McSherry, Nissim (2005), section 4, with one charge per table instead of per cell.
    """
    # A row is a corner of the simplex: one person's rows move at most two cells by `rows` each.
    cells = 2 if _is_replace_one("histogram_sensitivity", neighbors) else 1
    return sum_sensitivity([0] * cells, [1] * cells, neighbors="add-remove", rows=rows, norm=norm)


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


def _exact_box(function: str, lower: ArrayLike, upper: ArrayLike) -> list[tuple[Fraction, Fraction]]:
    """Return the checked bounds as exact rationals, one pair per column."""
    lows = np.atleast_1d(np.asarray(lower, dtype=np.float64)).ravel()
    highs = np.atleast_1d(np.asarray(upper, dtype=np.float64)).ravel()
    if lows.size != highs.size or lows.size == 0:
        raise ParameterError(
            f"The parameters lower and upper of {function} must have one entry per column, and had "
            f"{lows.size} and {highs.size}. Give both ends of each column."
        )
    if not (np.isfinite(lows).all() and np.isfinite(highs).all() and bool((lows <= highs).all())):
        raise ParameterError(
            f"The parameters lower and upper of {function} must be finite with lower at most upper "
            "in every column, and were not. Declare the range of each column."
        )
    return [(Fraction(low), Fraction(high)) for low, high in zip(lows.tolist(), highs.tolist(), strict=True)]


def _exact_integers(function: str, name: str, values: ArrayLike) -> list[int]:
    entries: list[Any] = np.atleast_1d(np.asarray(values, dtype=object)).ravel().tolist()
    try:
        return [operator.index(entry) for entry in entries]
    except TypeError as error:
        raise ParameterError(
            f"The parameter {name} of {function} must be made of integers, and was not. Round the "
            "end points to the lattice first, or use box_diameter."
        ) from error


def _is_replace_one(function: str, neighbors: Neighbors) -> bool:
    if neighbors not in get_args(Neighbors):
        raise ParameterError(
            f"The parameter neighbors of {function} must be 'replace-one' or 'add-remove', and was "
            f"{neighbors!r}. Take it from the schema."
        )
    return neighbors == "replace-one"


def _check_rows(function: str, rows: int) -> int:
    way_out = "Give the declared max_rows_per_unit; extra rows of a person are dropped."
    return whole(function, "rows", rows, least=1, way_out=way_out)


def _check_finite(function: str, value: float) -> float:
    if not math.isfinite(value):
        raise ParameterError(
            f"The parameters of {function} must leave the result in the range of floats, and did "
            "not. Declare bounds that the column can really take."
        )
    return value
