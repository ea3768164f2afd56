"""Points of a masked table: the closed form for two classes, and the paper's greedy construction.

:func:`binary_points` chooses margins by one scalar equation and the rest by one projection.
:func:`greedy_points` adds one point after the other by gradient descent, with the paper's gradients
corrected. Beside fixed records, where the ball has little room left, :func:`tilted_start` and
:func:`linear_program_start` give points from which the equations can be solved.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import scipy

from discreet.noise.linear_algebra import least_squares, norm, product
from discreet.privacy.roots import find_root
from discreet.release.masked.encoding import apportion
from discreet.release.masked.existence import SPREAD, blocks, sample_ball
from discreet.release.masked.losses import LOGISTIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats, Ints
    from discreet.noise import Stream
    from discreet.release.masked._equations import PointEquations
    from discreet.release.masked.losses import MaskedLoss

_CANDIDATES, _RINGS, _JITTER = 400, (0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.99), 1e-3
"""Directions, distances as shares of the radius, and jitter of the starting points beside fixed ones."""
_SPREAD_JITTER, _MOST_NEWTON, _TILT_TOLERANCE = 0.02, 60, 1e-8
"""Jitter, largest number of Newton steps, and relative gradient at which they stop, of the tilted start."""
_ROOM = 0.9
"""Share of the room beside the axis that a point may use before the projection."""
_STEPS = 41
"""Grid points on the path of margins among which the root is bracketed."""
_MOST_STEPS = 200
_SMALL = 1e-26
"""Squared norm at which a descent stops, relative to that of ``regularization * weights``."""


def _candidates(system: PointEquations, q: Floats) -> tuple[Floats, Ints, Floats]:
    """Return places in the unit ball, the labels present, and the effect of a point at each place.

    Effects have one row for each label and place, label by label: the contribution of such a point to the
    left side of the equations.
    """
    sample = q[:_CANDIDATES] / np.sqrt(1 + np.einsum("ij,ij->i", q[:_CANDIDATES], q[:_CANDIDATES]))[:, None]
    length = np.sqrt(np.einsum("ij,ij->i", sample, sample))[:, np.newaxis]
    spread = sample / np.where(length > 0, length, 1.0)
    # A fixed grid: directions of the first random points, at several distances.
    rings = [spread * part for part in _RINGS]
    places = np.concatenate([np.zeros((1, system.rank)), *rings])
    u = system.radius * places
    present = np.flatnonzero(np.bincount(system.codes, minlength=system.n_classes))
    columns = []
    for code in present:
        residuals = product(system.residuals(u, np.full(len(u), code)), system.basis.T)
        columns.append(
            (residuals[:, :, np.newaxis] * system.append_one(u)[:, np.newaxis, :]).reshape(len(u), -1)
        )
    return places, present, np.concatenate(columns) / system.n_total


def _place_points(
    system: PointEquations, places: Floats, chosen: Sequence[Ints], present: Ints, jitter: Floats
) -> Floats:
    """Return q with the points of each label at their chosen places, plus jitter."""
    out = np.empty_like(jitter)
    for code, indices in zip(present, chosen, strict=True):
        out[system.codes == code] = places[indices]
    # The inverse of the map q -> q / sqrt(1 + |q|^2), kept away from the edge of the ball.
    size = np.einsum("ij,ij->i", out, out)
    return np.asarray(out / np.sqrt(1 - np.minimum(size, _RINGS[-1] ** 2))[:, None] + jitter)


def _tilt(parts: Floats, counts: Ints, target: Floats) -> Floats | None:
    """Return the laws nearest to uniform ones under which effects have the required sum; None if none have.

    Parameters
    ----------
    parts : array of shape (n_laws, n_places, n_equations)
        Effect of one point at each place, for each law.
    counts : array of int
        Number of points that follow each law.
    target : array of shape (n_equations,)
        Required sum of the effects of all points.

    Returns
    -------
    array of shape (n_laws, n_places) or None
        Probability of each place.

    Notes
    -----
    The weights are ``exp(effect . tilt)``, and the tilt minimizes the convex function ``sum over laws of
    count * logsumexp(effects tilt) - target . tilt``, by Newton's method with backtracking.
    """

    def evaluate(tilt: Floats) -> tuple[float, Floats]:
        scores = np.einsum("lpe,e->lp", parts, tilt)
        value = float(np.sum(counts * scipy.special.logsumexp(scores, axis=1)) - np.sum(target * tilt))
        return value, scipy.special.softmax(scores, axis=1)

    tilt = np.zeros(len(target))
    value, chances = evaluate(tilt)
    for _ in range(_MOST_NEWTON):
        means = np.einsum("lp,lpe->le", chances, parts)
        gradient = product(counts.astype(np.float64), means) - target
        if norm(gradient) <= _TILT_TOLERANCE * max(norm(target), 1e-300):
            break
        hessian = sum(
            count * (product(part.T, part * chance[:, np.newaxis]) - np.outer(mean, mean))
            for count, part, chance, mean in zip(counts, parts, chances, means, strict=True)
        )
        if not (np.isfinite(hessian).all() and np.trace(hessian) > 0):
            return None
        # The Hessian is singular where effects are linearly dependent; a little of its trace repairs that.
        step = least_squares(hessian + 1e-12 * np.trace(hessian) * np.eye(len(target)), gradient)
        length = 1.0
        while length > 1e-6:
            trial_value, trial = evaluate(tilt - length * step)
            if trial_value <= value - 1e-4 * length * float(np.sum(gradient * step)):
                break
            length /= 2
        else:
            return None
        tilt, value, chances = tilt - length * step, trial_value, trial
    else:
        return None
    return np.asarray(chances)


def tilted_start(system: PointEquations, q: Floats) -> Floats | None:
    """Return a start drawn from the prior, tilted so that the equations hold; None if no tilt exists.

    Notes
    -----
    The laws are those on the candidate places, one for each label, under which the equations hold in the mean
    and which are nearest to the uniform one in relative entropy. Points take the quantiles ``(i + 1/2) / n``
    of the law of their label.
    """
    places, present, effects = _candidates(system, q)
    counts = np.bincount(system.codes, minlength=system.n_classes)[present]
    chances = _tilt(effects.reshape(len(present), len(places), -1), counts, system.target.reshape(-1))
    if chances is None:
        return None
    chosen = [
        # Quantiles in place of random draws: the equations then hold almost as well as in the mean.
        np.minimum(np.searchsorted(np.cumsum(chance), (np.arange(n) + 0.5) / n), len(places) - 1)
        for chance, n in zip(chances, counts.tolist(), strict=True)
    ]
    return _place_points(system, places, chosen, present, _SPREAD_JITTER * q)


def tilted_shares(system: PointEquations, q: Floats) -> Floats | None:
    """Return shares of labels with which the equations can hold; None if none were found.

    Notes
    -----
    One law on labels and places together, nearest to the uniform one among those under which the equations
    hold in the mean.
    """
    places, present, effects = _candidates(system, q)
    chances = _tilt(effects[np.newaxis], np.array([system.n_total]), system.target.reshape(-1))
    return None if chances is None else np.asarray(chances.reshape(len(present), len(places)).sum(axis=1))


def linear_program_start(system: PointEquations, q: Floats) -> Floats | None:
    """Return a start whose places a linear program chooses; None if the program has no solution.

    Notes
    -----
    Unknowns are the numbers of points of each label at each candidate place. The program minimizes the
    sum of squared distances from the origin under the equations. Its solutions use few places, but exist
    whenever the candidates allow any solution.
    """
    places, present, effects = _candidates(system, q)
    # The last rows of the program say that every label has as many points as it must have.
    shares = np.kron(np.eye(len(present)), np.ones(len(places)))
    counts = np.bincount(system.codes, minlength=system.n_classes)[present]
    solution = scipy.optimize.linprog(
        np.tile(np.einsum("ij,ij->i", places, places), len(present)),
        A_eq=np.vstack([effects.T, shares]),
        b_eq=np.concatenate([system.target.reshape(-1), counts]),
        bounds=(0, None),
        method="highs",
    )
    if not solution.success:
        return None
    chosen = [
        np.repeat(np.arange(len(places)), apportion(weight, n))
        for weight, n in zip(solution.x.reshape(len(present), -1), counts.tolist(), strict=True)
    ]
    return _place_points(system, places, chosen, present, _JITTER * q)


def binary_points(
    weights: Floats,
    signs: Floats,
    regularization: float,
    radius: float,
    stream: Stream,
    loss: MaskedLoss = LOGISTIC,
) -> Floats:
    """Return points in a ball at which the gradient for ``weights`` vanishes, up to rounding.

    Parameters
    ----------
    weights : array of shape (d,)
        Classifier w, of norm at most that of :meth:`MaskedLoss.largest_norm`.
    signs : array of shape (n,)
        Labels s of the points, -1 or 1.
    regularization : float
        Weight lambda of the penalty ``lambda / 2 |w|**2`` beside the mean loss; above 0.
    radius : float
        Radius of the ball that contains the points.
    stream : Stream
        Source of the random points that are projected.
    loss : MaskedLoss
        Loss of the learner that shall find the weights.

    Returns
    -------
    array of shape (n, d)

    Privacy
    -------
    Depends on rows through ``weights`` alone: as private as they are.

    Notes
    -----
    The gradient vanishes where ``mean of s_i phi(m_i) x_i = lambda w``, with margins ``m_i = s_i w . x_i``
    and ``phi`` minus the derivative of the loss, ``sigma(-m)`` for the logistic one. Along w this says that
    the mean gain ``m_i phi(m_i)`` is ``lambda |w|**2``; every label agrees with the classifier. Orthogonal to
    w the points are uniform on the ball, projected so that the sum weighted by ``s_i phi(m_i)`` vanishes.
    These weights depend on the margins alone, so that one projection is exact.

    Reference
    ---------
    Pham et al., equation (3), corrected: docs/explanation/theorems/masked-existence.md
    """
    n, d = len(signs), len(weights)
    size_of_weights = norm(weights)
    points = sample_ball(n, d, radius, stream)
    axis = weights / size_of_weights if size_of_weights > 0 else np.zeros(d)
    axial = product(points, axis)
    margins = _choose_margins(np.abs(axial) / radius, size_of_weights, regularization, radius, loss)
    axial_distances = margins / size_of_weights if size_of_weights > 0 else np.zeros(n)
    pull = signs * loss.pull(margins)
    room = _ROOM * np.sqrt(np.maximum(radius**2 - axial_distances**2, 0.0))
    total = np.zeros(d)
    for block in blocks(n):
        part = points[block]
        # Only the part across the axis is kept; the margin is chosen separately.
        part -= np.outer(axial[block], axis)
        size = np.sqrt(np.einsum("ij,ij->i", part, part))
        part *= np.minimum(1.0, room[block] / np.where(size > 0, size, 1.0))[:, np.newaxis]
        total += product(pull[block], part)
    step = total / float(np.sum(pull * pull))
    factor = 1.0
    for block in blocks(n):
        part = points[block]
        part -= np.outer(pull[block], step)
        # Once more, because rounding leaves a little along the axis.
        part -= np.outer(product(part, axis), axis)
        size = np.sqrt(np.einsum("ij,ij->i", part, part))
        limit = np.sqrt(np.maximum(radius**2 - axial_distances[block] ** 2, 0.0)) * (1 - 1e-12)
        over = size > limit
        if over.any():
            factor = min(factor, float(np.min(limit[over] / size[over])))
    for block in blocks(n):
        # One factor for all points keeps their weighted sum at zero.
        points[block] *= factor
        points[block] += np.outer(signs[block] * axial_distances[block], axis)
    return points


def _choose_margins(
    shares: Floats, length: float, regularization: float, radius: float, loss: MaskedLoss
) -> Floats:
    """Return margins, spread like ``shares``, whose mean gain is ``regularization * length**2``.

    Notes
    -----
    A path from t = 0 to 2 leads from margins 0 over margins in proportion to the shares (t = 1) to the best
    margin for all (t = 2). The mean gain is below the required one at its start and above it at its end; t is
    the first root.
    """
    required_gain = regularization * length**2
    if required_gain == 0:
        return np.zeros(len(shares))
    reach = SPREAD * radius * length
    # With some room beside the axis if possible, else up to the surface of the ball.
    if float(loss.gain(np.array(min(loss.best_margin, reach)))) < required_gain:
        reach = radius * length
    best = min(loss.best_margin, reach)
    # A point beyond the last margin that pulls would say nothing about the classifier.
    reach = min(reach, loss.largest_margin)
    # At least a thousandth each, so that no margin stays at zero along the path.
    scaled = np.minimum(shares + 1e-3, 1.0) * reach

    def margins_at(t: float) -> Floats:
        return t * scaled if t <= 1 else (2 - t) * scaled + (t - 1) * best

    def excess(t: float) -> float:
        margins = margins_at(t)
        sums = [float(loss.gain(margins[block]).sum()) for block in blocks(len(margins))]
        return math.fsum(sums) / len(margins) - required_gain

    ends = np.linspace(0.0, 2.0, _STEPS)
    for low, high in itertools.pairwise(ends):
        if excess(high) >= 0:
            return margins_at(float(find_root(excess, low, high, xtol=1e-16, rtol=1e-15)))
    # Only rounding separates the required gain from that of all points at the best margin.
    return margins_at(2.0)


def greedy_value(
    x: Floats, code: int, weights: Floats, left: Floats, loss: MaskedLoss = LOGISTIC
) -> tuple[float, Floats]:
    """Return the squared norm of the summed gradient once a point is added, and its derivative.

    Parameters
    ----------
    x : array of shape (d,)
        Coordinates of the added point.
    code : int
        Position of its label among the classes.
    weights : array of shape (1, d) or (n_classes, d)
        Classifier with one row for two classes, else one for each class.
    left : array of the same shape
        Sum of residuals times points so far, minus the number of points times ``regularization * weights``.
    loss : MaskedLoss
        Loss of the learner that shall find the weights.

    Returns
    -------
    value : float
        ``|r x^T + left|^2`` with r the residual of the point, minus the derivative of its loss by the scores.
    slope : array of shape (d,)
        Derivative of the value by x.

    Notes
    -----
    With ``T = r x^T + left`` and B the second derivative of the loss by the scores, the slope is
    ``2 (T^T r - W^T B T x)``; for the logistic loss B is ``diag p - p p^T``, p the probabilities.

    Reference
    ---------
    Pham et al., equations (4) and (5), corrected: docs/explanation/theorems/masked-greedy.md
    """
    scores = product(weights, x)
    pull = loss.residuals(scores[np.newaxis], np.array([code]))[0]
    total = np.outer(pull, x) + left
    bent = loss.bend_at(scores, code, product(total, x))
    return float(np.sum(total**2)), 2 * (product(pull, total) - product(bent, weights))


def greedy_points(
    weights: Floats,
    codes: Ints,
    regularization: float,
    stream: Stream,
    *,
    radius: float | None = 1.0,
    constant: float = 0.0,
    fixed: Floats | None = None,
    fixed_codes: Ints | None = None,
    pace: bool = True,
    loss: MaskedLoss = LOGISTIC,
) -> Floats:
    """Add points one by one, each where it lowers the norm of the summed gradient most.

    Parameters
    ----------
    weights : array of shape (1, d) or (n_classes, d)
        Classifier with one row for two classes, else one for each class.
    codes : array of int
        Position of the label of each point among the classes, shape (n_points,).
    regularization : float
        Weight lambda of the penalty ``lambda / 2 |weights|**2`` beside the mean loss; above 0.
    stream : Stream
        Source of the points at which the descents start.
    radius : float or None
        Radius of the ball that contains the points; None, as in the paper, lets them go anywhere.
    constant : float
        Last coordinate of every point, for an intercept; 0 if there is none.
    fixed, fixed_codes : array, optional
        Records that are published as they are, and the positions of their labels; None if there are none.
    pace : bool
        Whether the target after k points is the share of k of them. If not, as in the paper, the first few
        points do everything and the rest end at the origin.
    loss : MaskedLoss
        Loss of the learner that shall find the weights.

    Returns
    -------
    array of shape (n_points, d)

    Privacy
    -------
    Depends on rows through ``weights``, labels and fixed points alone.

    Reference
    ---------
    Pham et al., algorithm 1, corrected: docs/explanation/theorems/masked-greedy.md
    """
    n, d = len(codes), weights.shape[1] - (constant > 0)
    n_fixed = 0 if fixed is None else len(fixed)
    inner = math.sqrt(max((1.0 if radius is None else radius) ** 2 - constant**2, 0.0))
    points = np.full((n, weights.shape[1]), constant)
    points[:, :d] = sample_ball(n, d, inner, stream)
    done = np.zeros_like(weights)
    if fixed is not None and fixed_codes is not None and n_fixed:
        done = product(loss.residuals(product(fixed, weights.T), fixed_codes).T, fixed)
    share = regularization * weights
    small = _SMALL * max(float(np.sum(share**2)), 1e-300)
    for k, code in enumerate(codes):
        aim = (n_fixed + (k + 1 if pace else n)) * share
        points[k] = _descend(
            points[k], int(code), weights, done - aim, d, None if radius is None else inner, small, loss
        )
        point = points[k : k + 1]
        done += product(loss.residuals(product(point, weights.T), codes[k : k + 1]).T, point)
    return points


def _descend(
    x: Floats,
    code: int,
    weights: Floats,
    left: Floats,
    d: int,
    inner: float | None,
    small: float,
    loss: MaskedLoss,
) -> Floats:
    """Return the end of a gradient descent from x, with steps halved until they help, inside the ball."""
    value, slope = greedy_value(x, code, weights, left, loss)
    length = 1.0
    for _ in range(_MOST_STEPS):
        if value <= small:
            break
        # A step that was halved once may grow again.
        length *= 4
        while length > 1e-14:
            trial = x.copy()
            trial[:d] -= length * slope[:d]
            size = norm(trial[:d])
            # Projected gradient descent: a step that leaves the ball ends on its surface.
            if inner is not None and size > inner:
                trial[:d] *= inner / size * (1 - 1e-12)
            trial_value, trial_slope = greedy_value(trial, code, weights, left, loss)
            if trial_value < value * (1 - 1e-9):
                break
            length /= 2
        else:
            break
        x, value, slope = trial, trial_value, trial_slope
    return x
