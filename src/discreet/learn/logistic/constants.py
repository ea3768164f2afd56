"""Public constants of logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from discreet.learn.logistic.problem import gradient_descent
from discreet.learn.logistic.sensitivity import (
    gradient_change,
    jacobian_cost,
    largest_gradient_change,
    mean_supremum,
    regularization_for_jacobian,
)
from discreet.learn.perturbation.mean_loss_constants import MeanLossConstants

if TYPE_CHECKING:
    from discreet.learn.perturbation._solvers import GradientDescent
    from discreet.learn.perturbation.noise import VectorNoise

Sensitivity = Literal["tight", "worst-case"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticConstants(MeanLossConstants):
    """Public constants of a mean logistic loss with a quadratic penalty.

    Attributes
    ----------
    tight : bool
        Whether output perturbation uses the constant for its regularization; otherwise the one for every
        regularization.
    """

    tight: bool = True

    @property
    def size(self) -> int:
        """Numbers that are released: one weight per coordinate, for all classes but one."""
        return (self.n_classes - 1) * self.dimension

    @property
    def gradient_change(self) -> float:
        """The largest constant: the minimizer of a perturbed objective may be any vector."""
        return largest_gradient_change(self.n_classes)

    @property
    def gradient_norm(self) -> float:
        """Rows and residuals are at most about 1."""
        return 1.0

    @property
    def usual_curvature(self) -> float:
        """About ``1 / (4 dimension)`` for rows of norm 1, in the mean over directions."""
        return 1 / (4 * self.dimension)

    @property
    def mean_supremum(self) -> float:
        """See :func:`~discreet.learn.logistic.sensitivity.mean_supremum`."""
        return mean_supremum(self.n_classes)

    def change_at_minimizer(self, regularization: float) -> float:
        """See :func:`~discreet.learn.logistic.sensitivity.gradient_change`."""
        return gradient_change(self.n_classes, regularization, tight=self.tight)

    def jacobian_cost(self, regularization: float) -> float:
        """Return the part of epsilon that the change of volume costs."""
        return jacobian_cost(self.n_classes, regularization, self.n_rows)

    def regularization_for(self, cost: float) -> float:
        """Return the least regularization for a cost of the change of volume."""
        return regularization_for_jacobian(self.n_classes, cost, self.n_rows)

    def descent(self, regularization: float, linear_term: VectorNoise | None) -> GradientDescent:
        """Return what gradient steps are certain to reach, whatever is drawn for the linear term."""
        return gradient_descent(
            n_rows=self.most_rows,
            dimension=self.dimension,
            n_classes=self.n_classes,
            regularization=regularization,
            linear=0.0 if linear_term is None else linear_term.largest_norm / self.n_rows,
        )
