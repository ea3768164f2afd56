"""Public constants of the smooth support vector machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.learn.perturbation.mean_loss_constants import OBJECTIVE_LARGE, MeanLossConstants
from discreet.learn.svm.loss import (
    DEFAULT_SMOOTHING,
    gradient_change,
    jacobian_cost,
    mean_supremum,
    n_scores,
    regularization_for_jacobian,
)
from discreet.learn.svm.problem import gradient_descent

if TYPE_CHECKING:
    from discreet.learn.perturbation._solvers import GradientDescent
    from discreet.learn.perturbation.noise import VectorNoise

SEVERAL_CLASSES_LARGE = 1.0
"""Divisor of much noise in the default regularization of more than two classes, chosen on public tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SvmConstants(MeanLossConstants):
    """Public constants of a mean Huberized hinge with a quadratic penalty.

    Attributes
    ----------
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.
    """

    smoothing: float = DEFAULT_SMOOTHING

    @property
    def size(self) -> int:
        """Numbers that are released: one weight per coordinate and score."""
        return n_scores(self.n_classes) * self.dimension

    @property
    def gradient_change(self) -> float:
        """See :func:`~discreet.learn.svm.loss.gradient_change`."""
        return gradient_change(self.n_classes)

    @property
    def gradient_norm(self) -> float:
        """Every score has a gradient of its own, of norm at most 1."""
        return math.sqrt(n_scores(self.n_classes))

    @property
    def usual_curvature(self) -> float:
        """For rows of norm 1, of which half lie where the hinge is bent, in the mean over directions."""
        return 1 / (4 * self.smoothing * self.dimension)

    @property
    def noise_divisor(self) -> float:
        """Several scores, of which the largest decides, need a larger penalty than one."""
        return OBJECTIVE_LARGE if self.n_classes == 2 else SEVERAL_CLASSES_LARGE

    @property
    def mean_supremum(self) -> float:
        """See :func:`~discreet.learn.svm.loss.mean_supremum`."""
        return mean_supremum(self.n_classes)

    def change_at_minimizer(self, regularization: float) -> float:
        """Return the constant for any point: at a short minimizer it is attained too."""
        return self.gradient_change

    def jacobian_cost(self, regularization: float) -> float:
        """Return the part of epsilon that the change of volume costs."""
        return jacobian_cost(self.n_classes, self.smoothing, regularization, self.n_rows)

    def regularization_for(self, cost: float) -> float:
        """Return the least regularization for a cost of the change of volume."""
        return regularization_for_jacobian(self.n_classes, self.smoothing, cost, self.n_rows)

    def descent(self, regularization: float, linear_term: VectorNoise | None) -> GradientDescent:
        """Return what gradient steps are certain to reach, whatever is drawn for the linear term."""
        return gradient_descent(
            n_rows=self.most_rows,
            dimension=self.dimension,
            n_classes=self.n_classes,
            smoothing=self.smoothing,
            regularization=regularization,
            linear=0.0 if linear_term is None else linear_term.largest_norm / self.n_rows,
        )
