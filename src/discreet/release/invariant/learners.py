"""What the noise has to respect: the weights of a trained model and how each row pulls at them.

A learner here minimizes ``sum_i L(y_i, F'x_i + b) + R(F)``. At the minimum, ``C[i, k]`` is the derivative of
row ``i``'s loss by its ``k``-th score. Noise with ``W F = 0`` moves no score and noise with ``C'W = 0`` does
not move the gradient, so the minimum stays where it is (docs/explanation/theorems/fisher-invariant.md). That
is all that :class:`~discreet.release.invariant.noise.InvariantNoise` needs to know about a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from scipy import linalg

from discreet.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import AnyArray, Floats


Wants: TypeAlias = Literal["two classes", "classes", "number"]
_NOTHING = 1e-12
"""Weights below this share of the terms that they are a sum of are rounding errors."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """A trained model, as the noise sees it.

    Attributes
    ----------
    weights : array of shape (n_columns, n_outputs)
        ``F``: scores are ``X F`` plus intercepts.
    derivatives : array of shape (n_rows, n_outputs)
        ``C``: derivative of each row's loss by each of its scores.
    intercept : array of shape (n_outputs,)
        Not touched by the noise.
    residual : float
        Certificate: how far the gradient is from zero, relative to the terms that it is a sum of.
    outward : array of shape (n_rows,) or None
        +1 or -1 for rows whose loss stays zero when their score grows in that direction, 0 for others.
    """

    weights: Floats
    derivatives: Floats
    intercept: Floats
    residual: float
    outward: Floats | None = None


@runtime_checkable
class InvariantLearner(Protocol):
    """What :class:`~discreet.release.invariant.InvariantRelease` asks of a learner.

    Attributes
    ----------
    wants : {"two classes", "classes", "number"}
        Which targets it takes.
    unique : bool
        Whether its training problem has one solution. If not, the trained model stays a stationary point
        of the problem on the released table, and training anew may end at another.
    """

    @property
    def wants(self) -> Wants:
        """Which targets it takes."""
        ...

    @property
    def unique(self) -> bool:
        """Whether its training problem has one solution."""
        ...

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> Solution:
        """Train to machine precision.

        Parameters
        ----------
        X : array of shape (n_rows, n_columns)
            The features.
        y : array of shape (n_rows,)
            Numbers, or classes counted from 0.
        n_classes : int
            How many classes are declared; 0 for numbers.
        """
        ...


def relative_gradient(X: Floats, derivatives: Floats, weights: Floats, penalty: float) -> float:
    """Return the largest entry of ``X'C + penalty F``, relative to the absolute values of what is summed."""
    columns = np.column_stack([X, np.ones(len(X))])
    pull = penalty * np.vstack([weights, np.zeros((1, weights.shape[1]))])
    size = np.abs(columns).T @ np.abs(derivatives) + np.abs(pull)
    return largest_share(columns.T @ derivatives + pull, size)


def largest_share(values: Floats, sizes: Floats) -> float:
    """Return the largest of ``|values| / sizes``; where nothing was summed up, nothing is left."""
    return float(np.max(np.abs(values) / np.where(sizes > 0, sizes, 1.0)))


def check_penalty(owner: str, alpha: float) -> None:
    """Refuse a penalty under which the minimum need not be unique."""
    if not (isinstance(alpha, int | float) and 0 < alpha < np.inf):
        raise ParameterError(
            f"alpha of {owner} must be a number above 0, was {alpha!r}. Without a penalty the minimum need "
            "not be unique; learner='gram' keeps least squares for every penalty."
        )


@dataclass(frozen=True, slots=True)
class SVMLearner:
    """The support vector machine of the paper's problem (2): :class:`~discreet.learn.svm.RegularizedSVM`.

    Parameters
    ----------
    theta, rho : float
        Weight of the slack, and of the squares of slack and intercept.
    """

    theta: float = 1.0
    rho: float = 0.01
    wants: ClassVar[Wants] = "two classes"
    unique: ClassVar[bool] = True
    one_sided: ClassVar[bool] = True

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> Solution:
        """Train; see :class:`InvariantLearner`."""
        # Here, so that whoever releases without a model does not wait for scikit-learn.
        from discreet.learn.svm import RegularizedSVM

        signs = 2.0 * y - 1.0
        model = RegularizedSVM(theta=self.theta, rho=self.rho).fit(X, signs)
        pull = np.asarray(model.dual_coef_, np.float64).reshape(-1)
        # With a := X'c, primal and dual value on the released rows are those on the true ones, so that what
        # the solver left open does not grow with the noise.
        weights = X.T @ pull
        found = model.certificate_
        open_gap = 0.0 if found.converged else found.gap / model.objective_
        if np.linalg.norm(weights) <= _NOTHING * (np.abs(pull) @ np.linalg.norm(X, axis=1)):
            weights = np.zeros_like(weights)
        return Solution(
            weights=weights[:, None],
            derivatives=-pull[:, None],
            intercept=np.atleast_1d(np.asarray(model.intercept_, np.float64)),
            residual=max(found.residual, open_gap),
            outward=np.where(pull == 0, signs, 0.0),
        )


@dataclass(frozen=True, slots=True)
class RidgeLearner:
    """Least squares with ``alpha |f|**2`` and a free intercept, as scikit-learn's ``Ridge(alpha)``.

    Parameters
    ----------
    alpha : float
        Above 0.
    """

    alpha: float = 1.0
    wants: ClassVar[Wants] = "number"
    unique: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_penalty("RidgeLearner", self.alpha)

    def solve(self, X: Floats, y: AnyArray, n_classes: int) -> Solution:
        """Train in closed form, then correct by the residual until rounding errors are left."""
        middle, level = X.mean(axis=0), float(y.mean())
        centered = X - middle
        gram = centered.T @ centered
        gram[np.diag_indices_from(gram)] += self.alpha
        solve = positive_solver(gram)
        weights = np.zeros(X.shape[1])
        for _ in range(4):
            weights += solve(centered.T @ (y - level - centered @ weights) - self.alpha * weights)
        left = y - level - centered @ weights
        left -= left.mean()
        derivatives, column = -left[:, None], weights[:, None]
        return Solution(
            weights=column,
            derivatives=derivatives,
            intercept=np.array([level - middle @ weights]),
            residual=relative_gradient(centered, derivatives, column, self.alpha),
        )


def positive_solver(matrix: Floats) -> Callable[[Floats], Floats]:
    """Factor a positive definite matrix, its rows and columns brought to one size first."""
    size = 1.0 / np.sqrt(np.diag(matrix))
    factor = linalg.cho_factor(matrix * size * size[:, None])
    return lambda right: np.asarray(size * linalg.cho_solve(factor, size * right))


def check_classes(y: AnyArray, n_classes: int, where: str) -> None:
    """Refuse a table in which a declared class has no row: its model has no minimum, or a constant one."""
    present = np.bincount(y, minlength=n_classes) > 0
    if not present.all():
        raise DataError(
            f"The target of {where} must have rows of every declared class, and has them of "
            f"{int(present.sum())} of {n_classes}. Leave the class out of its list, or take another target."
        )
