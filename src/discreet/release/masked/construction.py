"""Choice among the constructions of points for a classifier, and the answer where no points exist."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from discreet.errors import PromiseError
from discreet.learn.perturbation.mean_loss import minimize
from discreet.noise.linear_algebra import norm, product
from discreet.release.masked._equations import PointsNotFound, PointTargets, general_points
from discreet.release.masked._points import binary_points, greedy_points
from discreet.release.masked.existence import (
    least_records,
    longest_norm,
    max_point_gain,
    regularization_for,
    sample_ball,
)
from discreet.release.masked.losses import LOGISTIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats, Ints
    from discreet.noise import Stream
    from discreet.release.masked.losses import MaskedLoss

Infeasible = Literal["shrink", "lambda", "error"]
Construction = Literal["direct", "greedy"]
LARGEST_GRADIENT = 1e-12
"""Largest norm of the gradient that the direct construction may leave; points with more are refused."""
_SHRINK_FACTOR, _MOST_TRIES = 0.9, 40
"""Factor on the weights or the penalty after a failed try, and how many tries there are."""
_TRAINED_FACTOR, _TRAINED_TRIES = 0.7, 10
"""The same on the way to a classifier that was trained on random points."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Mask:
    """Artificial points with labels, and the classifier that training on them finds.

    Attributes
    ----------
    points, codes : array
        Points of shape (n, d) with the positions of their labels, the fixed records first.
    weights : array of shape (1, d) or (n_classes, d)
        Classifier that the points are made for; one row for two classes.
    regularization : float
        Weight of the penalty with which the points train to ``weights``.
    scale : float
        Norm of ``weights`` over the norm of the requested ones; 1 if they are the same.
    gradient : float
        Norm of the gradient of the mean loss and the penalty at ``weights``.
    """

    points: Floats
    codes: Ints
    weights: Floats
    regularization: float
    scale: float
    gradient: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Task:
    """A classifier for which points are to be made, and the rules for making them.

    Attributes
    ----------
    weights : array of shape (1, d) or (n_classes, d)
        Classifier with one row for two classes, else one for each class.
    regularization : float
        Weight of the penalty with which the points shall train to ``weights``; above 0.
    radius : float
        Radius of the ball that contains the points.
    constant : float
        Last coordinate of every point, for an intercept; 0 if there is none.
    n_records : int
        Number of points to make, the fixed records not counted.
    labels : callable
        Function of weights and regularization that returns the position of the label of each point.
    fixed, fixed_codes : array
        Records that are published as they are, and the positions of their labels.
    construction : {"direct", "greedy"}
        Construction, as for :class:`~discreet.release.MaskedRelease`.
    infeasible : {"shrink", "lambda", "error"}
        Reaction where no points exist, as for :class:`~discreet.release.MaskedRelease`.
    loss : MaskedLoss
        Loss of the learner that shall find the classifier.
    free_labels : bool
        Whether ``labels`` returns what fits the weights it is given; otherwise their counts are set.
    """

    weights: Floats
    regularization: float
    radius: float
    constant: float
    n_records: int
    labels: Callable[[Floats, float], Ints]
    fixed: Floats
    fixed_codes: Ints
    construction: Construction = "direct"
    infeasible: Infeasible = "shrink"
    loss: MaskedLoss = LOGISTIC
    free_labels: bool = False

    @property
    def has_closed_form(self) -> bool:
        """Whether there are two classes, no intercept and no fixed records, which has a closed form."""
        return len(self.weights) == 1 and self.constant == 0 and not len(self.fixed)

    def gradient(self, points: Floats, codes: Ints) -> float:
        """Return the norm of the gradient of the training problem on some points, at the weights."""
        return self.loss.gradient_norm(points, codes, self.weights, self.regularization)


def make_mask(task: Task, stream: Stream) -> Mask:
    """Make points that train to the requested classifier, or to the nearest one tried that has points.

    Parameters
    ----------
    task : Task
        Classifier, penalty, ball, labels and rules.
    stream : Stream
        Source of the random points of the construction.

    Returns
    -------
    Mask

    Raises
    ------
    PromiseError
        If there are none, and ``infeasible`` is "error"; or if it is "lambda" and none were found for 40
        smaller penalties. With "shrink" there always are.

    Privacy
    -------
    Post-processing of weights, labels and fixed points. The error, too, depends on nothing else.

    Notes
    -----
    With "shrink" the weights tried are ``c + 0.9**k (w - c)``, ``c`` the classifier of points at the origin:
    the minimizer of the regularized loss on the fixed points and as many points at the origin as are to be
    made, with the labels of the first try. ``c`` has points by definition, and they lie inside the ball, so
    that classifiers near ``c`` have points too. It is 0 where there is neither an intercept nor a fixed
    point. After 40 tries the points at the origin themselves are returned. Scores that do not sum to zero
    have an intercept that shrinking takes away from what any labels allow: where labels are free, ``c`` is
    the classifier that is trained on random points with the labels that the requested one gives them.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    if len(task.weights) > 1 and task.loss.zero_sum:
        # A softmax does not see what all classes have in common, and the penalty takes it to 0.
        task = replace(task, weights=task.weights - task.weights.mean(axis=0))
    requested_norm, first = norm(task.weights), task
    task = _apply_existence_bound(task)
    codes, origin = task.labels(task.weights, task.regularization), None
    to_trained = task.infeasible == "shrink" and task.free_labels and not task.loss.zero_sum
    for _ in range(_TRAINED_TRIES if to_trained else _MOST_TRIES):
        try:
            mask = _attempt(_settle_intercept(task, codes), codes, stream.spawn())
            return replace(mask, scale=norm(mask.weights) / requested_norm if requested_norm > 0 else 1.0)
        except PointsNotFound:
            if task.infeasible == "error":
                break
        if task.infeasible == "lambda":
            task = replace(task, regularization=task.regularization * _SHRINK_FACTOR)
            codes = task.labels(task.weights, task.regularization)
        elif to_trained:
            origin = origin or _trained_mask(task, stream.derive("trained"))
            task = replace(task, weights=origin.weights + (task.weights - origin.weights) * _TRAINED_FACTOR)
            codes = task.labels(task.weights, task.regularization)
        else:
            origin = origin or _origin_mask(task, codes)
            task = replace(task, weights=origin.weights + (task.weights - origin.weights) * _SHRINK_FACTOR)
    if origin is not None and origin.gradient <= LARGEST_GRADIENT:
        return replace(origin, scale=norm(origin.weights) / requested_norm)
    raise _infeasible_error(first)


def _settle_intercept(task: Task, codes: Ints) -> Task:
    """Return the task with the only intercept that labels allow, where no point can pull more or less.

    Notes
    -----
    Where all margins in the ball are below :attr:`MaskedLoss.flat_margin`, residuals are the labels, and the
    gradient by the weight of the intercept depends on their counts alone: it vanishes for the classifier of
    points at the origin and for no other. Labels were chosen so that this is near.
    """
    flat = task.loss.flat_margin > 0 and task.constant > 0 and not len(task.fixed)
    if not flat or task.infeasible != "shrink":
        return task
    inner = task.weights[:, :-1]
    room = math.sqrt(max(task.radius**2 - task.constant**2, 0.0))
    origin = _origin_mask(task, codes).weights[:, -1:]
    # The constant coordinate leaves this much of the radius to all others.
    across = room * np.sqrt(np.einsum("ij,ij->i", inner, inner))
    if np.max(across + task.constant * np.abs(origin[:, 0])) >= task.loss.flat_margin:
        return task
    return replace(task, weights=np.hstack([inner, origin]))


def _origin_mask(task: Task, codes: Ints) -> Mask:
    """Return points at the origin with these labels, and the classifier that trains on them."""
    new_points = np.zeros((len(codes), task.weights.shape[1]))
    if task.constant > 0:
        new_points[:, -1] = task.constant
    points, labels = np.concatenate([task.fixed, new_points]), np.concatenate([task.fixed_codes, codes])
    return _trained_on(task, points, labels)


def _trained_mask(task: Task, stream: Stream) -> Mask:
    """Return random points with the labels that the weights give them, and the classifier trained on them."""
    room = math.sqrt(max(task.radius**2 - task.constant**2, 0.0))
    points = np.full((task.n_records, task.weights.shape[1]), task.constant)
    inner = task.weights.shape[1] - (task.constant > 0)
    points[:, :inner] = sample_ball(task.n_records, inner, room, stream)
    scores = product(points, task.weights.T)
    codes = (scores[:, 0] > 0).astype(np.int64) if scores.shape[1] == 1 else scores.argmax(axis=1)
    return _trained_on(task, points, codes)


def _trained_on(task: Task, points: Floats, codes: Ints) -> Mask:
    problem = task.loss.problem(points, codes, task.regularization, max(2, len(task.weights)))
    weights = problem.weights(minimize(problem, problem.descent.least_tolerance))
    return _build_mask(replace(task, weights=weights), points, codes)


def _apply_existence_bound(task: Task) -> Task:
    """Shorten the weights or lower the penalty where a bound shows that no points exist.

    Notes
    -----
    Two classes without fixed records: points exist if and only if the norm of the weights is at most
    :func:`longest_norm`. Otherwise the bound of :func:`least_records` is necessary only, and the search
    decides.
    """
    required_gain = task.regularization * float(np.sum(task.weights**2))
    if required_gain == 0:
        return task
    if len(task.weights) > 1 or len(task.fixed):
        # A necessary condition only; the search decides the rest.
        enough = _least_records(task)
        if enough <= task.n_records or len(task.fixed):
            return task
        most = max_point_gain(task.weights, task.radius, task.loss)
        factor = math.sqrt(most / required_gain) * _SHRINK_FACTOR
    else:
        factor = longest_norm(task.regularization, task.radius, task.loss) / norm(task.weights)
    if factor >= 1:
        return task
    if task.infeasible == "shrink":
        return replace(task, weights=task.weights * factor)
    if len(task.weights) == 1:
        exists = task.radius > task.constant and norm(task.weights) <= longest_norm(
            task.regularization, task.radius, task.loss, spread=False
        )
        if exists:
            return task
        if task.infeasible == "lambda":
            return replace(task, regularization=regularization_for(task.weights, task.radius, task.loss))
    elif task.infeasible == "lambda":
        return replace(task, regularization=task.regularization * factor**2)
    raise _infeasible_error(task)


def _attempt(task: Task, codes: Ints, stream: Stream) -> Mask:
    """Return points with these labels for the weights of the task; raise if none are found."""
    if task.construction == "greedy":
        new_points = greedy_points(
            task.weights,
            codes,
            task.regularization,
            stream,
            radius=task.radius,
            constant=task.constant,
            fixed=task.fixed,
            fixed_codes=task.fixed_codes,
            loss=task.loss,
        )
    elif task.has_closed_form:
        signs = np.where(codes == 1, 1.0, -1.0)
        new_points = binary_points(
            task.weights[0], signs, task.regularization, task.radius, stream, task.loss
        )
    else:
        new_points = general_points(_targets(task, codes), stream)
    points, labels = np.concatenate([task.fixed, new_points]), np.concatenate([task.fixed_codes, codes])
    mask = _build_mask(task, points, labels)
    if task.construction == "direct" and not mask.gradient <= LARGEST_GRADIENT:
        raise PointsNotFound
    return mask


def _build_mask(task: Task, points: Floats, codes: Ints) -> Mask:
    return Mask(
        points=points,
        codes=codes,
        weights=task.weights,
        regularization=task.regularization,
        scale=1.0,
        gradient=task.gradient(points, codes),
    )


def _targets(task: Task, codes: Ints) -> PointTargets:
    """Return the task as equations; two classes of a softmax have half the weights, twice the penalty."""
    two = len(task.weights) == 1 and task.loss.zero_sum
    return PointTargets(
        weights=np.vstack([-task.weights / 2, task.weights / 2]) if two else task.weights,
        codes=codes,
        regularization=task.regularization * (2 if two else 1),
        radius=task.radius,
        constant=task.constant,
        fixed=task.fixed,
        fixed_codes=task.fixed_codes,
        loss=task.loss,
    )


def _least_records(task: Task) -> float:
    return least_records(
        task.weights, task.regularization, task.radius, task.fixed, task.fixed_codes, task.loss
    )


def _infeasible_error(task: Task) -> PromiseError:
    """Return the error that says how many records a classifier takes, and the ways out."""
    least = _least_records(task)
    others = [f"infeasible={other!r}" for other in ("shrink", "lambda") if other != task.infeasible]
    beside = f" beside the {len(task.fixed):,} fixed ones" if len(task.fixed) else ""
    if math.isinf(least):
        number = "no number of records is enough for it"
        way = f"Use {' or '.join(others)}, a smaller regularization, or a larger epsilon."
    elif least > task.n_records:
        number = f"it takes at least {int(least):,} records{beside}"
        way = f"Ask for so many, or use {' or '.join(others)}."
    else:
        number = f"none were found{beside}, though {int(least):,} might be enough"
        way = (
            f"Ask for another number of records (of a sensitive class, as many as it has rows), for other "
            f"labels, or use {' or '.join(others)}."
        )
    return PromiseError(
        f"n_records of MaskedRelease must be enough for points whose classifier is the released one, was "
        f"{task.n_records:,}, and {number}: its norm is {norm(task.weights):.4g} at a "
        f"regularization of {task.regularization:.4g}. {way}"
    )
