"""Logistic regression for two classes and for several, solved until rounding errors are left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import expit, log_softmax, softmax

from discreet.release.invariant.learners import (
    Solution,
    Wants,
    check_penalty,
    largest_share,
    positive_solver,
    relative_gradient,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import AnyArray, Floats

_MOST_STEPS = 100
_SMALL_ENOUGH = 1e-14
"""Relative gradient at which Newton's method stops; rounding errors are about this large."""


@dataclass(frozen=True, slots=True)
class LogisticLearner:
    """Logistic regression with ``alpha / 2 |f|**2``, a free intercept: scikit-learn's with ``C = 1 / alpha``.

    Parameters
    ----------
    alpha : float
        Above 0.
    """

    alpha: float = 1.0
    wants: ClassVar[Wants] = "two classes"
    unique: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_penalty("LogisticLearner", self.alpha)

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> Solution:
        """Train by Newton's method; see :class:`InvariantLearner`."""
        signs = 2.0 * y - 1.0
        columns = np.column_stack([X, np.ones(len(X))])
        penalty = np.append(np.full(X.shape[1], self.alpha), 0.0)

        def value(w: Floats) -> float:
            return float(np.logaddexp(0.0, -signs * (columns @ w)).sum() + penalty @ w**2 / 2)

        def derivatives(w: Floats) -> Floats:
            return np.asarray(-signs * expit(-signs * (columns @ w)))

        def step(w: Floats) -> tuple[Floats, float]:
            pull = derivatives(w)
            slope = np.abs(pull) * (1 - np.abs(pull))
            curvature = (columns * slope[:, None]).T @ columns + np.diag(penalty)
            gradient = columns.T @ pull + penalty * w
            size = np.abs(columns).T @ np.abs(pull) + penalty * np.abs(w)
            return positive_solver(curvature)(gradient), largest_share(gradient, size)

        w = _newton(np.zeros(columns.shape[1]), value, step)
        weights, pull = w[:-1, None], derivatives(w)[:, None]
        return Solution(
            weights=weights,
            derivatives=pull,
            intercept=w[-1:],
            residual=relative_gradient(X, pull, weights, self.alpha),
        )


@dataclass(frozen=True, slots=True)
class MultinomialLearner:
    """Logistic regression for several classes: scikit-learn's with ``C = 1 / alpha``.

    Newton's method solves for all classes at once, so time grows with the square of classes times columns.

    Parameters
    ----------
    alpha : float
        Above 0.
    """

    alpha: float = 1.0
    wants: ClassVar[Wants] = "classes"
    unique: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_penalty("MultinomialLearner", self.alpha)

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> Solution:
        """Train by Newton's method; see :class:`InvariantLearner`."""
        n, k = len(X), n_classes
        columns = np.column_stack([X, np.ones(n)])
        width = columns.shape[1]
        true = np.zeros((n, k))
        true[np.arange(n), y] = 1.0
        penalty = np.append(np.full(X.shape[1], self.alpha), 0.0)

        # Adding one number to all intercepts changes nothing, so their sum is held at zero.
        def value(w: Floats) -> float:
            table = w.reshape(k, width)
            loss = -(true * log_softmax(columns @ table.T, axis=1)).sum()
            return float(loss + (penalty * table**2).sum() / 2 + table[:, -1].sum() ** 2 / 2)

        def step(w: Floats) -> tuple[Floats, float]:
            table = w.reshape(k, width)
            chance = softmax(columns @ table.T, axis=1)
            pull = chance - true
            gradient = pull.T @ columns + penalty * table
            gradient[:, -1] += table[:, -1].sum()
            size = np.abs(pull).T @ np.abs(columns) + penalty * np.abs(table)
            curvature = np.zeros((k, width, k, width))
            for a in range(k):
                for b in range(a, k):
                    slope = chance[:, a] * ((a == b) - chance[:, b])
                    curvature[a, :, b] = curvature[b, :, a] = (columns * slope[:, None]).T @ columns
                curvature[a, :, a] += np.diag(penalty)
            curvature[:, -1, :, -1] += 1.0
            move = positive_solver(curvature.reshape(k * width, -1))(gradient.reshape(-1))
            return move, largest_share(gradient, size)

        table = _newton(np.zeros(k * width), value, step).reshape(k, width)
        weights = np.ascontiguousarray(table[:, :-1].T)
        pull = softmax(columns @ table.T, axis=1) - true
        return Solution(
            weights=weights,
            derivatives=pull,
            intercept=table[:, -1].copy(),
            residual=relative_gradient(X, pull, weights, self.alpha),
        )


def _newton(
    w: Floats, value: Callable[[Floats], float], step: Callable[[Floats], tuple[Floats, float]]
) -> Floats:
    """Minimize a smooth, strictly convex function until its relative gradient is rounding error."""
    best, least = w, np.inf
    stalled = 0
    for _ in range(_MOST_STEPS):
        move, gradient = step(w)
        if gradient < least:
            best, least, stalled = w, gradient, 0
        else:
            stalled += 1
        if least <= _SMALL_ENOUGH or (stalled >= 3 and least <= 1e-9):
            break
        length, start = 1.0, value(w)
        # Far from the minimum a full step may overshoot; close to it, values differ by rounding alone.
        while value(w - length * move) > start + 1e-12 * abs(start) and length > 1e-10:
            length /= 2
        w = w - length * move
    return best
