"""Lower bounds on the Bayes mean square error of a uniform prior under additive noise.

Let ``V(y)`` be the posterior variance given the output ``y``, times the density of ``y`` (below: the spread
at ``y``). The mean square error is the integral of ``V``. Two facts make every truncation safe: ``V`` is
never negative, so leaving out outputs lowers the integral; and ``V(y) = min over m of sum f(y-x)(x-m)^2``,
so leaving out inputs lowers ``V``. What remains is the error of the quadrature rule, which is bounded for
each law and subtracted together with the rounding.

Gaussian and Laplace noise: ``V`` is analytic on a strip or on each panel, so the rules converge
exponentially (proofs: ``docs/explanation/theorems/bayes-floor.md``).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy

from discreet.privacy.rounding import UNIT

if TYPE_CHECKING:
    from discreet._types import Floats

#: Outputs and inputs farther than this many standard deviations are left out (Gaussian).
_REACH = 8.5
#: Grid steps per strip half-width: the rule's error is about exp(-2 pi 9) = 3e-25.
_STEPS = 9.0
#: Nodes of one panel of the rule over the inputs; a panel is one standard deviation long.
_PANEL = 20
#: Relative rounding of sums of positive terms, each within 1e-13.
ROUNDING = 1e-12
#: Trapezoid cells over each part of the outputs (noise of bounded support).
CELLS = 8192
#: Integers within the support beyond which they are grouped by their residue (noise of bounded support).
MOST_INTEGERS = 512


@lru_cache(maxsize=64)
def _legendre_rule(nodes: int) -> tuple[Floats, Floats]:
    """Return nodes and weights of the Gauss-Legendre rule on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return 0.5 * (x + 1.0), 0.5 * w


@lru_cache(maxsize=256)
def _gram_rule(points: int) -> tuple[Floats, Floats]:
    """Return the Gauss rule for the sum over 0, 1, ..., points - 1, exact for polynomials of degree 39.

    Notes
    -----
    The monic polynomials orthogonal on N equally spaced points (Gram, or discrete Chebyshev) have the
    recurrence coefficients k^2 (N^2 - k^2) / (4 (4 k^2 - 1)); nodes are the eigenvalues of their Jacobi
    matrix, weights N times the squared first entries of its eigenvectors (Golub and Welsch).
    """
    if points <= _PANEL:
        return np.arange(points, dtype=np.float64), np.ones(points)
    k = np.arange(1, _PANEL, dtype=np.float64)
    n = float(points)
    off = np.sqrt(k * k * (n - k) * (n + k) / (4.0 * (4.0 * k * k - 1.0)))
    # By numpy, which is loaded: scipy.linalg takes longer to load than all floors of a release to compute.
    middle = np.full(_PANEL, 0.5 * (n - 1.0))
    nodes, vectors = np.linalg.eigh(np.diag(middle) + np.diag(off, 1) + np.diag(off, -1))
    return nodes, n * vectors[0] ** 2


def _interval_rule(length: float) -> tuple[Floats, Floats]:
    """Return nodes and weights for the integral over [0, length], in panels of length at most 1."""
    panels = max(1, math.ceil(length))
    x, w = _legendre_rule(_PANEL)
    edges = np.arange(panels)[:, None]
    return ((edges + x) * (length / panels)).ravel(), np.tile(w * (length / panels), panels)


def _integer_rule(points: int, sd: float) -> tuple[Floats, Floats]:
    """Return nodes and weights for the sum over 0, ..., points - 1, in panels of at most one sd.

    The rule is the sum itself where there are few integers, or few within one standard deviation.
    """
    # With so few integers per panel a rule would not be shorter than the sum.
    if points <= _PANEL or sd <= _PANEL:
        return np.arange(points, dtype=np.float64), np.ones(points)
    panels = math.ceil(points / sd)
    sizes = np.full(panels, points // panels)
    sizes[: points % panels] += 1
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    rules = [_gram_rule(int(size)) for size in sizes]
    nodes = np.concatenate([start + rule[0] for start, rule in zip(starts.tolist(), rules, strict=True)])
    return nodes, np.concatenate([rule[1] for rule in rules])


def _grid(step: float, half: int) -> Floats:
    """Return the equally spaced points -half * step, ..., half * step."""
    return step * np.arange(-half, half + 1, dtype=np.float64)


def _gaussian_spread(y: Floats, x: Floats, weights: Floats, sd: float) -> Floats:
    """Return V(y), the posterior variance times the output density, at each y for Gaussian noise.

    Notes
    -----
    ``V(y) = sum_j w_j phi_sd(y - x_j) (x_j - m(y))^2`` with the posterior mean ``m(y)``, for a prior of
    weights ``w_j`` at ``x_j`` (not normalized: the caller divides by the prior's length).
    """
    f = weights * np.exp(-0.5 * ((y[:, None] - x) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))
    mean = (f @ x) / f.sum(axis=1)
    # About the mean: a difference of raw moments would cancel where x is far from 0.
    return np.asarray(np.einsum("ij,ij->i", f, (x - mean[:, None]) ** 2))


def _trapezoid_error(strip: float, step: float, sd: float) -> float:
    """Return a bound on the trapezoid rule's error, per unit of prior mass.

    Notes
    -----
    ``20 sd^2 / (exp(2 pi strip / step) - 1)``: V is analytic and bounded within ``strip`` of the real line.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemma 2.
    """
    return 20.0 * sd * sd / math.expm1(min(2.0 * math.pi * strip / step, 700.0))


def gaussian_interval(width: float) -> float:
    """Return the mean square error for Gaussian noise and a uniform prior on an interval, rounded down.

    Parameters
    ----------
    width : float
        Length of the interval divided by the standard deviation of the noise.

    Returns
    -------
    float
        In units of the noise variance.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemmas 1 and 2.
    """
    step = 1.0 / _STEPS
    # A narrow range has no middle where outputs are alike: all outputs within reach are summed.
    if width <= 2.0 * _REACH + 2.0 * step:
        half = math.ceil((0.5 * width + _REACH) / step)
        y = 0.5 * width + _grid(step, half)
        total = step * float(_gaussian_spread(y, *_interval_rule(width), 1.0).sum())
    else:
        # Both ends fall on the grid, so the right end mirrors the left one; in between every output
        # has at least the spread of one whose inputs end at the reach on both sides.
        cells = math.ceil(width / step)
        step = width / cells
        near = math.floor(_REACH / step)
        inputs = _interval_rule(2.0 * _REACH)
        ends = _gaussian_spread(_grid(step, near), *inputs, 1.0)
        middle = float(_gaussian_spread(np.array([_REACH]), *inputs, 1.0)[0])
        total = step * (2.0 * float(ends.sum()) + (cells - 2 * near - 1) * middle)
    return max(0.0, total / width * (1.0 - ROUNDING) - _trapezoid_error(1.0, step, 1.0))


def gaussian_integers(points: int, sd: float) -> float:
    """Return the mean square error for Gaussian noise and a uniform prior on integers, rounded down.

    Parameters
    ----------
    points : int
        Number of consecutive integers; at least 1.
    sd : float
        Standard deviation of the noise, in steps between integers.

    Returns
    -------
    float
        In squared steps; 0 where rounding the output undoes the noise.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemmas 2 and 3.
    """
    if sd < 0.05:
        return 0.0  # the true value is below 1e-21: rounding the output undoes the noise
    # Lemma 3: the posterior variance over integers never exceeds this, which gives the width of the strip.
    largest = -0.5 / math.expm1(-0.5 / (sd * sd))
    strip = sd * sd / math.sqrt(largest)
    step = strip / _STEPS
    reach = math.ceil(_REACH * sd)
    if points - 1 <= 2 * reach + 2 * math.ceil(step):
        half = math.ceil((0.5 * (points - 1) + reach) / step)
        y = 0.5 * (points - 1) + _grid(step, half)
        total = step * _sum_gaussian_spread(y, *_integer_rule(points, sd), sd)
    else:
        inputs = _integer_rule(2 * reach + 1, sd)
        if step < 1.0:
            # A whole number of grid points per integer: the middle repeats with period one.
            per_step = math.ceil(1.0 / step)
            step = 1.0 / per_step
            near = reach * per_step
            period = reach + step * np.arange(per_step, dtype=np.float64)
            values = _gaussian_spread(period, *_integer_rule(2 * reach + 2, sd), sd)
            periods = points - 1 - 2 * reach
            middle = periods * float(values.sum()) - float(values[0])
        else:
            # From sd = 9 on the middle is constant to exp(-2 pi^2 sd^2), far below the rounding.
            cells = math.ceil((points - 1) / step)
            step = (points - 1) / cells
            near = math.floor(reach / step)
            interior = float(_gaussian_spread(np.array([float(reach)]), *inputs, sd)[0])
            middle = (cells - 2 * near - 1) * interior
        ends = _sum_gaussian_spread(_grid(step, near), *inputs, sd)
        total = step * (2.0 * ends + middle)
    return max(0.0, total / points * (1.0 - ROUNDING) - _trapezoid_error(strip, step, sd))


def _sum_gaussian_spread(y: Floats, x: Floats, weights: Floats, sd: float) -> float:
    """Return the sum of V over y, in blocks that stay in cache; inputs out of reach are left out."""
    total = 0.0
    for start in range(0, y.size, 256):
        block = y[start : start + 256]
        near = (x >= block[0] - (_REACH * sd + 1.0)) & (x <= block[-1] + (_REACH * sd + 1.0))
        if near.any():
            total += float(_gaussian_spread(block, x[near], weights[near], sd).sum())
    return total


def laplace_interval(width: float) -> float:
    """Return the mean square error for Laplace noise and a uniform prior on an interval, rounded down.

    Parameters
    ----------
    width : float
        Length of the interval divided by the scale of the noise.

    Returns
    -------
    float
        In squared scales.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemmas 1 and 4.
    """
    # Outside the range the posterior is a truncated exponential, whatever the output was.
    outside = -math.expm1(-width) * (0.5 * width) ** 2 * _csch_gap(0.5 * width)
    length = min(0.5 * width, 35.0)
    panels = max(1, math.ceil(length))
    size = length / panels
    nodes, weights = _legendre_rule(24)
    t = ((np.arange(panels)[:, None] + nodes) * size).ravel()
    inside = size * float(_laplace_spread(t, width - t) @ np.tile(weights, panels))
    # More than 35 scales from both ends V has its value on the whole line, up to exp(-35) of it.
    interior = float(_laplace_spread(np.array([35.0]), np.array([35.0]))[0])
    total = outside + 2.0 * inside + max(0.0, width - 70.0) * interior
    # Lemma 4: Bernstein ellipse with sum of half-axes 3 on every panel.
    margin = size / 3.0
    smallest = 1.0 - 0.5 * (math.exp(margin) + math.exp(-width - margin))
    reach = width + size
    first = 2.0 * min(3.0, 0.5 * reach**2 * math.exp(margin))
    second = 2.0 * min(3.0, 0.5 * reach**3 * math.exp(margin))
    # 1.125 is 1 / (1 - 3**-2), and 3**-46 belongs to 24 nodes.
    error = 2.0 * length * (64.0 / 15.0) * (second + first**2 / smallest) * 1.125 * 3.0**-46
    return max(0.0, (total * (1.0 - ROUNDING) - error) / width)


def _laplace_spread(left: Floats, right: Floats) -> Floats:
    """Return V at outputs inside the range, ``left`` and ``right`` scales from its two ends.

    Notes
    -----
    ``M2 - M1^2 / M0`` with the moments of the posterior about the output; the moment of order k of
    ``exp(-t)`` on [0, a] is k! times the regularized incomplete gamma function P(k + 1, a).
    """
    mass = 0.5 * (scipy.special.gammainc(1.0, left) + scipy.special.gammainc(1.0, right))
    first = 0.5 * (scipy.special.gammainc(2.0, right) - scipy.special.gammainc(2.0, left))
    second = scipy.special.gammainc(3.0, left) + scipy.special.gammainc(3.0, right)
    return np.asarray(second - first * first / mass)


def _csch_gap(h: float) -> float:
    """Return ``1/h^2 - csch(h)^2``, which tends to 1/3 at 0.

    It is the variance of a truncated exponential law, divided by the squared half-width of its range.
    """
    # csch(300)^2 is far below the last digit of 1/h^2, and sinh would overflow from 710 on.
    if h > 300.0:
        return 1.0 / (h * h)
    if h > 1.0:
        return (1.0 / h - 1.0 / math.sinh(h)) * (1.0 / h + 1.0 / math.sinh(h))
    # (sinh h - h)/h^3 by its series: sixteen terms are exact to the last bit for h <= 1.
    term, series = 1.0 / 6.0, 1.0 / 6.0
    for k in range(2, 16):
        term *= h * h / ((2 * k) * (2 * k + 1))
        series += term
    ratio = math.sinh(h) / h if h > 0.0 else 1.0
    return series * (ratio + 1.0) / (ratio * ratio)


def laplace_integers(points: int, scale: float) -> float:
    """Return the mean square error for Laplace noise and a uniform prior on integers, rounded down.

    Parameters
    ----------
    points : int
        Number of consecutive integers; at least 1.
    scale : float
        Scale of the noise, in steps between integers.

    Returns
    -------
    float
        In squared steps; 0 where rounding the output undoes the noise.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemma 5.
    """
    if scale < 0.01:
        return 0.0  # the true value is below exp(-50)
    # Telling the attacker the residue modulo k lowers his error and leaves a k times coarser problem.
    coarse = max(1, min(math.ceil(scale / 1000.0), points // 1000))
    group_size, n_longer = divmod(points, coarse)
    total = (coarse - n_longer) * group_size * _ungrouped_laplace_integers(group_size, scale / coarse)
    if n_longer:
        total += n_longer * (group_size + 1) * _ungrouped_laplace_integers(group_size + 1, scale / coarse)
    return total / points * coarse * coarse * (1.0 - 4.0 * UNIT)


def _ungrouped_laplace_integers(points: int, scale: float) -> float:
    """Return what :func:`laplace_integers` does, without grouping the integers by their residue.

    Notes
    -----
    For outputs outside the range the posterior is a truncated geometric law, with a closed-form variance.
    For an output at ``u`` in [0, 1] of the cell between two neighboring integers, the moments about the
    output are combinations of the running sums ``sum i^k exp(-i / scale)`` over the integers to the left
    (``l0, l1, l2``) and to the right (``r0, r1, r2``); a Gauss-Legendre rule integrates over u. Cells more
    than ``window`` integers from both ends are alike and counted once, with their multiplicity.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemma 5.
    """
    ratio = math.exp(-1.0 / scale)
    h = 0.5 / scale
    # For small h both terms are about 1/h^2 and would cancel, so that their gaps to it are subtracted; for
    # large h the gaps would cancel.
    if h > 5.0:
        truncated_variance = 0.25 / math.sinh(h) ** 2
        truncated_variance -= 0.25 * points**2 / math.sinh(points * h) ** 2 if points * h < 300 else 0.0
    else:
        truncated_variance = 0.25 * (points**2 * _csch_gap(points * h) - _csch_gap(h))
    outside = math.expm1(-points / scale) / math.expm1(-1.0 / scale) * truncated_variance
    # Inside, the cell between two neighboring integers sees a geometric sum on either side.
    # Integers more than 30 scales away are left out, which lowers V (Lemma 1).
    window = min(points, math.ceil(30.0 * scale) + 1)
    i = np.arange(window, dtype=np.float64)
    decay = np.exp(-i / scale)
    sums = np.cumsum(np.stack([decay, i * decay, i * i * decay]), axis=1)
    cells = points - 1
    if cells <= 2 * window:
        left = np.arange(1, points)
        multiplicity = np.ones(cells)
    else:
        left = np.arange(1, window + 1)
        multiplicity = np.full(window, 2.0)
        multiplicity[-1] += cells - 2 * window
    l0, l1, l2 = sums[:, np.minimum(left, window) - 1]
    r0, r1, r2 = sums[:, np.minimum(points - left, window) - 1]
    panels = max(1, math.ceil(1.0 / scale))
    ellipse = 4.0 * scale * panels
    c = 1.0 + 2.1 * scale
    bound = 2.85 * math.exp(1.07) / scale
    bound *= (c * c + 2.0 * c * scale + 2.0 * scale * scale + scale) / (1.0 - ratio)
    order = 2 + math.ceil(0.5 * math.log(1e22 * bound) / math.log(ellipse))
    # Lemma 5: every cell has at most this quadrature error.
    error = 0.5 * (64.0 / 15.0) * bound * ellipse ** (2 - 2 * order) / (1.0 - ellipse**-2)
    nodes, weights = _legendre_rule(order)
    places = ((np.arange(panels)[:, None] + nodes) / panels).ravel()
    shares = np.tile(weights / panels, panels)
    inside = second_moments = 0.0
    block = max(1, 100_000 // left.size)
    for start in range(0, places.size, block):
        u = places[start : start + block, None]
        v = 1.0 - u
        left_decay, right_decay = np.exp(-u / scale), np.exp(-v / scale)
        mass = left_decay * l0 + right_decay * r0
        first = right_decay * (v * r0 + r1) - left_decay * (u * l0 + l1)
        second = left_decay * (u * (u * l0 + 2.0 * l1) + l2) + right_decay * (v * (v * r0 + 2.0 * r1) + r2)
        share = shares[start : start + block]
        inside += float(share @ (second - first * first / mass) @ multiplicity)
        second_moments += float(share @ second @ multiplicity)
    # The running sums carry at most one rounding per term; the difference is relative to `second`.
    inside -= (window + 64.0) * UNIT * second_moments
    total = outside * (1.0 - ROUNDING) + inside * (0.5 / scale)
    return max(0.0, (total - cells * error) / points)
