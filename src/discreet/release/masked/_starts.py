"""Starting points of a masked table beside fixed records, where the ball has little room left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

from discreet.noise.linear_algebra import least_squares, norm, product
from discreet.release.masked.encoding import apportion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats, Ints
    from discreet.release.masked._equations import PointEquations

_CANDIDATES, _RINGS, _JITTER = 400, (0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 0.99), 1e-3
"""Directions, distances as shares of the radius, and jitter of the starting points beside fixed ones."""
_SPREAD_JITTER, _MOST_NEWTON, _TILT_TOLERANCE = 0.02, 60, 1e-8
"""Jitter, largest number of Newton steps, and relative gradient at which they stop, of the tilted start."""


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
