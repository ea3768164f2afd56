"""From a classifier to points whose classifier it is: which construction, and what if there are none."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from discreet.errors import PromiseError
from discreet.learn.logistic.problem import SoftmaxProblem, minimize, problem_for
from discreet.noise._linear import norm, product
from discreet.release.masked._equations import PointsNotFound, PointTargets, general_points
from discreet.release.masked._points import binary_points, greedy_points
from discreet.release.masked.existence import least_records, longest_norm, max_point_gain, regularization_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats, Ints
    from discreet.noise import Stream

Infeasible = Literal["shrink", "lambda", "error"]
Construction = Literal["direct", "greedy"]
LARGEST_GRADIENT = 1e-12
"""Of the direct construction; more is refused."""
_SHRINK_FACTOR, _MOST_TRIES = 0.9, 40


@dataclass(frozen=True, eq=False, kw_only=True)
class Mask:
    """Points that belong to nobody, and the classifier that is trained on them.

    Attributes
    ----------
    points, codes : array
        Points with their labels, those of the fixed set first.
    weights : array
        The classifier that they are new_points for, one row for two classes.
    regularization : float
        With which it is trained on them.
    scale : float
        Norm of the weights over the norm of those that were requested_norm for; 1 if they are the same.
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
    """What is to be masked, and how.

    Attributes
    ----------
    weights : array of shape (1, d) or (n_classes, d)
        The classifier.
    regularization, radius, constant : float
        Of the penalty, of the ball that the points stay in, and their last coordinate (0 if there is none).
    n_records : int
        How many points to make.
    labels : callable
        Takes weights and regularization; returns the label of each point.
    fixed, fixed_codes : array
        Points that are there already, with their labels.
    construction, infeasible
        As of :class:`~discreet.release.MaskedRelease`.
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

    @property
    def has_closed_form(self) -> bool:
        """Whether it is the case that has a closed form: two classes, no intercept, nothing fixed."""
        return len(self.weights) == 1 and self.constant == 0 and not len(self.fixed)

    def gradient(self, points: Floats, codes: Ints) -> float:
        """Return the norm of the gradient at the weights."""
        n_classes = max(2, len(self.weights))
        problem = problem_for(points, codes, self.regularization, n_classes)
        flat = self.weights[0]
        if isinstance(problem, SoftmaxProblem):
            flat = product(problem.basis, self.weights).reshape(-1)
        return norm(problem.gradient(flat))


def make_mask(task: Task, stream: Stream) -> Mask:
    """Make points whose classifier is the one asked for, or one on the way to a classifier that has points.

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
    point. After 40 tries the points at the origin themselves are returned.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    if len(task.weights) > 1:
        task = replace(task, weights=task.weights - task.weights.mean(axis=0))
    requested_norm, first = norm(task.weights), task
    task = _apply_existence_bound(task)
    codes, origin = task.labels(task.weights, task.regularization), None
    for _ in range(_MOST_TRIES):
        try:
            mask = _attempt(task, codes, stream.spawn())
            return replace(mask, scale=norm(mask.weights) / requested_norm if requested_norm > 0 else 1.0)
        except PointsNotFound:
            if task.infeasible == "error":
                break
        if task.infeasible == "lambda":
            task = replace(task, regularization=task.regularization * _SHRINK_FACTOR)
            codes = task.labels(task.weights, task.regularization)
        else:
            if origin is None:
                origin = _origin_mask(task, codes)
            task = replace(task, weights=origin.weights + (task.weights - origin.weights) * _SHRINK_FACTOR)
    if origin is not None and origin.gradient <= LARGEST_GRADIENT:
        return replace(origin, scale=norm(origin.weights) / requested_norm)
    raise _infeasible_error(first)


def _origin_mask(task: Task, codes: Ints) -> Mask:
    """Return points at the origin, with these labels, and the classifier that belongs to them."""
    new_points = np.zeros((len(codes), task.weights.shape[1]))
    if task.constant > 0:
        new_points[:, -1] = task.constant
    points, labels = np.concatenate([task.fixed, new_points]), np.concatenate([task.fixed_codes, codes])
    problem = problem_for(points, labels, task.regularization, max(2, len(task.weights)))
    weights = problem.weights(minimize(problem, problem.descent.least_tolerance))
    return _build_mask(replace(task, weights=weights), points, labels)


def _apply_existence_bound(task: Task) -> Task:
    """Change what cannot be masked as it is, as far as that can be told without looking for points."""
    need = task.regularization * float(np.sum(task.weights**2))
    if need == 0:
        return task
    if len(task.weights) > 1 or len(task.fixed):
        # Necessary; whether it suffices, the search finds out.
        enough = least_records(task.weights, task.regularization, task.radius, task.fixed, task.fixed_codes)
        if enough <= task.n_records or len(task.fixed):
            return task
        most = max_point_gain(task.weights, task.radius)
        factor = math.sqrt(most / need) * _SHRINK_FACTOR
    else:
        factor = longest_norm(task.regularization, task.radius) / norm(task.weights)
    if factor >= 1:
        return task
    if task.infeasible == "shrink":
        return replace(task, weights=task.weights * factor)
    if len(task.weights) == 1:
        exists = task.radius > task.constant and norm(task.weights) <= longest_norm(
            task.regularization, task.radius, spread=False
        )
        if exists:
            return task
        if task.infeasible == "lambda":
            return replace(task, regularization=regularization_for(task.weights, task.radius))
    elif task.infeasible == "lambda":
        return replace(task, regularization=task.regularization * factor**2)
    raise _infeasible_error(task)


def _attempt(task: Task, codes: Ints, stream: Stream) -> Mask:
    """Return points with these labels for the weights of the task; raise ``PointsNotFound`` if there are none."""
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
        )
    elif task.has_closed_form:
        signs = np.where(codes == 1, 1.0, -1.0)
        new_points = binary_points(task.weights[0], signs, task.regularization, task.radius, stream)
    else:
        new_points = general_points(_softmax_targets(task, codes), stream)
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


def _softmax_targets(task: Task, codes: Ints) -> PointTargets:
    """Two classes are a softmax with weights of half the size and twice the penalty."""
    two = len(task.weights) == 1
    return PointTargets(
        weights=np.vstack([-task.weights / 2, task.weights / 2]) if two else task.weights,
        codes=codes,
        regularization=task.regularization * (2 if two else 1),
        radius=task.radius,
        constant=task.constant,
        fixed=task.fixed,
        fixed_codes=task.fixed_codes,
    )


def _infeasible_error(task: Task) -> PromiseError:
    least = least_records(task.weights, task.regularization, task.radius, task.fixed, task.fixed_codes)
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
