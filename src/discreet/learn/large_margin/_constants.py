"""Public constants of the large-margin classifier, and choices that follow from them without a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from discreet.learn.large_margin._bounds import (
    ClasswiseNoise,
    classwise_change,
    classwise_is_quieter,
    gradient_change,
    jacobian_cost,
    mean_supremum,
    minimizer_sensitivity,
    regularization_for_jacobian,
    without_classwise_error,
)
from discreet.learn.large_margin._problem import MarginProblem, gradient_descent, n_coordinates
from discreet.learn.large_margin._solver import minimize
from discreet.learn.perturbation.defaults import Mechanism, make_plan, pure_if_quieter
from discreet.learn.perturbation.mechanisms import ProblemConstants, check_jacobian_cost, split_epsilon
from discreet.learn.perturbation.noise import gaussian_allowance, gaussian_term_scale
from discreet.privacy import ApproxDP, NoPromise, PureDP

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.learn.perturbation._solvers import GradientDescent
    from discreet.learn.perturbation.mechanisms import TrainingPlan
    from discreet.learn.perturbation.noise import PointNoise, VectorNoise
    from discreet.privacy import Promise

Cone = Literal["shift", "constrained"]

OBJECTIVE_WEIGHT, OBJECTIVE_GROWTH = 2.0, 30.0
OUTPUT_WEIGHT = 1.5
"""Regularization over the noise's standard deviation, for each class that a row can be mistaken for."""
QUIET = 0.3
"""Regularization where there is no noise, or hardly any: against a sum over rows, however many."""
TOLERANCE, CONSTRAINED_TOLERANCE = 1e-5, 1e-4
"""Tolerance of the solver over the largest change of the gradient by one row."""
_DOWN = 1 - 2.0**-40


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeMarginConstants(ProblemConstants):
    """Public constants of a sum of Huberized hinges with a quadratic penalty.

    Attributes
    ----------
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.
    components : int
        Number of matrices for each class.
    constrained : bool
        Whether matrices must be positive semidefinite.
    trace : float
        Weight of the trace, which acts where matrices must be positive semidefinite.
    """

    smoothing: float = 1.0
    components: int = 1
    constrained: bool = False
    trace: float = 0.0

    @property
    def coordinates(self) -> int:
        """Numbers in one matrix."""
        return n_coordinates(self.dimension)

    @property
    def size(self) -> int:
        """Numbers that are released: those of all matrices but one."""
        return (self.n_classes * self.components - 1) * self.coordinates

    @property
    def rows_scale(self) -> int:
        """The loss is a sum: the linear term is not divided."""
        return 1

    @property
    def gradient_change(self) -> float:
        """See :func:`~discreet.learn.large_margin._bounds.gradient_change`."""
        return gradient_change(self.n_classes, self.components)

    @property
    def mean_supremum(self) -> float:
        """See :func:`~discreet.learn.large_margin._bounds.mean_supremum`."""
        return mean_supremum(self.n_classes, self.components)

    @property
    def target_tolerance(self) -> float:
        """A small part of one row's change."""
        wanted = CONSTRAINED_TOLERANCE if self.constrained else TOLERANCE
        return wanted * self.gradient_change

    @property
    def n_spherical_vectors(self) -> int:
        """One spherical vector for each class, and the noise on the output."""
        return self.n_classes + 1

    @property
    def is_classwise(self) -> bool:
        """Whether a pure promise takes less noise with one spherical vector for each class."""
        return self.components == 1 and classwise_is_quieter(self.n_classes, self.coordinates)

    def minimizer_sensitivity(self, regularization: float) -> float:
        """Return how far the computed minimizers of two neighbors can be apart."""
        return minimizer_sensitivity(self.gradient_change, regularization, self.solver_tolerance)

    def jacobian_cost(self, regularization: float) -> float:
        """Return the part of epsilon that the change of volume costs."""
        return jacobian_cost(self.n_classes, self.smoothing, regularization, self.components)

    def regularization_for(self, cost: float) -> float:
        """Return the least regularization for a cost of the change of volume."""
        return regularization_for_jacobian(self.n_classes, self.smoothing, cost, self.components)

    def noise_scale(self, privacy: Promise, mechanism: str) -> float:
        """Return the standard deviation of the mechanism's noise in one direction."""
        return output_sd(self, privacy) if mechanism == "output" else linear_term_sd(self, privacy)

    def noise_for(self, regularization: float, epsilon: float) -> tuple[PointNoise, float]:
        """Return the spherical linear term that keeps an epsilon: by class where that is quieter.

        Notes
        -----
        By class the rate is ``left`` over :func:`classwise_change`, ``left`` what the change of volume and
        the errors of all classes' radii leave of epsilon.

        Reference
        ---------
        docs/explanation/theorems/large-margin-noise.md
        """
        if not self.is_classwise:
            # The zero-argument form does not work in a dataclass with slots.
            return ProblemConstants.noise_for(self, regularization, epsilon)
        epsilon = without_classwise_error(epsilon, self.coordinates, self.n_classes)
        left, regularization = split_epsilon(self, regularization, epsilon)
        rate = left / classwise_change(self.n_classes) * _DOWN
        return ClasswiseNoise.with_rate(rate, self.coordinates, self.n_classes), regularization

    def descent(self, regularization: float, linear_term: VectorNoise | None) -> GradientDescent:
        """Return what gradient steps are certain to reach, whatever is drawn for the linear term."""
        # Norm of the trace's linear term: one identity without its last entry for every matrix.
        traced = abs(self.trace) * math.sqrt(self.n_classes * self.components * (self.dimension - 1))
        largest = 0.0 if linear_term is None else linear_term.largest_norm
        return gradient_descent(
            n_rows=self.n_rows,
            p=self.dimension,
            n_classes=self.n_classes,
            components=self.components,
            smoothing=self.smoothing,
            regularization=regularization,
            linear=(largest + traced, 0.0 if linear_term is None else linear_term.float_error(largest)),
            constrained=self.constrained,
        )

    def minimize(self, problem: MarginProblem, tolerance: float) -> Floats:
        """Return the minimizer, under the constraint where there is one."""
        return minimize(problem, tolerance, constrained=self.constrained)


def linear_term_sd(constants: LargeMarginConstants, privacy: Promise) -> float:
    """Return the standard deviation, in one direction, of noise on the gradient of the sum of losses.

    Without what the change of volume costs, so that it depends on no regularization.

    Notes
    -----
    Spherical noise of scale ``b`` in ``m`` dimensions has ``sqrt(m + 1) b``; ``b`` is the change of the
    gradient over epsilon. For Gaussian noise see
    :func:`~discreet.learn.perturbation.noise.gaussian_term_scale`.
    """
    if isinstance(privacy, PureDP):
        if constants.is_classwise:
            change = classwise_change(constants.n_classes)
            return math.sqrt(constants.coordinates + 1) * change / privacy.epsilon
        return math.sqrt(constants.size + 1) * constants.gradient_change / privacy.epsilon
    assert isinstance(privacy, ApproxDP)
    return gaussian_term_scale(
        constants.gradient_change, constants.mean_supremum, privacy.epsilon, privacy.delta
    )


def output_sd(constants: LargeMarginConstants, privacy: Promise) -> float:
    """Return the standard deviation, in one direction, of noise on the output, times the regularization."""
    if isinstance(privacy, PureDP):
        return math.sqrt(constants.size + 1) * constants.gradient_change / privacy.epsilon
    assert isinstance(privacy, ApproxDP)
    return constants.gradient_change / gaussian_allowance(privacy, constants.size)


def default_regularization(constants: LargeMarginConstants, privacy: Promise, mechanism: Mechanism) -> float:
    """Return the regularization for a table of this shape at this promise.

    The noise of a row's distance to a class is at most the noise's standard deviation over the
    regularization, because ``x x'`` has a norm of at most 1. With a linear term of standard deviation ``s``
    it is held at half of the margin, which is 1, and below that where noise is large beside ``n`` rows:
    ``s (2 + 30 s / n)``. Noise on the output does not shrink where the loss is curved, and every class is one
    more that a row can be mistaken for: 1.5 standard deviations for each class. Without noise, or with
    hardly any, 0.3.

    Privacy
    -------
    Depends on the number of rows, columns, classes and components, and on the promise, all public. The
    factors were looked at on the segment and waveform tables, on made-up rows and on handwritten digits of
    25 coordinates (MNIST), not on the tables of ``benchmarks/large_margin.py`` that the product is
    measured by.

    Reference
    ---------
    docs/explanation/theorems/large-margin-private.md
    """
    if isinstance(privacy, NoPromise):
        return QUIET
    if mechanism == "output":
        return max(QUIET, OUTPUT_WEIGHT * constants.n_classes * output_sd(constants, privacy))
    sd = linear_term_sd(constants, privacy)
    return max(QUIET, sd * (OBJECTIVE_WEIGHT + OBJECTIVE_GROWTH * sd / constants.n_rows))


def make_large_margin_plan(
    constants: LargeMarginConstants,
    privacy: PureDP | ApproxDP | NoPromise,
    *,
    regularization: float | None = None,
    mechanism: Mechanism = "objective",
    owner: str = "LargeMarginGaussianClassifier",
) -> TrainingPlan:
    """Return the calibrated mechanism, made from public constants alone.

    Parameters
    ----------
    constants : LargeMarginConstants
        Public numbers of the problem; a tolerance of None is replaced by the default.
    privacy : PureDP, ApproxDP or NoPromise
        Promise to be kept; a pure one may keep an approximate one.
    regularization : float or None
        Weight of the penalty; None for :func:`default_regularization`.
    mechanism : {"objective", "output"}
        Place of the noise: on the objective, or on the minimizer.
    owner : str
        Name of the estimator, for error messages.

    Raises
    ------
    PromiseError
        As of :func:`~discreet.learn.perturbation.defaults.make_plan`; or if the change of volume alone would
        spend all of epsilon at the given regularization.
    """
    if isinstance(privacy, ApproxDP):
        privacy = pure_if_quieter(constants, privacy, mechanism)
    if regularization is None:
        regularization = default_regularization(constants, privacy, mechanism)
    elif mechanism == "objective" and not isinstance(privacy, NoPromise):
        check_jacobian_cost(constants, privacy.epsilon, regularization)
    return make_plan(constants, privacy, regularization=regularization, mechanism=mechanism, owner=owner)
