"""Training of the large-margin classifier: public constants, choices that follow from them, and minimizers.

No choice depends on a row. Both minimizers have a certificate: how far the result can be from the only
minimum there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

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
from discreet.learn.large_margin._problem import (
    PROJECTION,
    MarginProblem,
    gradient_descent,
    n_coordinates,
    to_coordinates,
    to_matrices,
)
from discreet.learn.perturbation._solvers import quasi_newton as minimize_smooth
from discreet.learn.perturbation.defaults import Mechanism, make_plan, pure_if_quieter
from discreet.learn.perturbation.mechanisms import ProblemConstants, check_jacobian_cost, split_epsilon
from discreet.learn.perturbation.noise import gaussian_allowance, gaussian_term_scale
from discreet.privacy import ApproxDP, NoPromise, PureDP
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Iterator

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
MOST_STEPS = 5000
_UNIT = 2.0**-53
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


def minimize(problem: MarginProblem, tolerance: float, *, constrained: bool = False) -> Floats:
    """Return ``w`` no farther from the minimizer than where a (sub)gradient of norm ``tolerance`` can be.

    Parameters
    ----------
    problem : MarginProblem
        Strongly convex with ``problem.regularization``.
    tolerance : float
        Norm of a (sub)gradient to stop at, at least
        ``problem.descent(constrained=constrained).least_tolerance``.
    constrained : bool
        Whether every matrix must be positive semidefinite.

    Returns
    -------
    array
        Its distance from the minimizer is at most ``tolerance / problem.regularization``.

    Raises
    ------
    PromiseError
        If the tolerance is below what is certain to be reached for a table of this shape. No row plays a
        part.

    Notes
    -----
    Both solvers stop where the norm of a (sub)gradient and a bound on its rounding are within the tolerance.
    Should one come to a halt before, gradient steps begin, and these are certain to arrive.

    Privacy
    -------
    None: the result is an exact function of the rows, and so is the number of steps. Noise must hide it.

    Reference
    ---------
    Strong convexity; docs/explanation/theorems/large-margin-private.md, solver-tolerance.md.
    """
    descent = problem.descent(constrained=constrained)
    descent.check(tolerance, "minimize")
    most = most_steps(problem)
    with one_thread():
        result = (
            accelerated_projection(problem, tolerance, most)
            if constrained
            else quasi_newton(problem, tolerance, most)
        )
        # Slower, but certain: whether a training ends well must not depend on a row.
        if result is None:
            result = _certain_steps(problem, descent, tolerance, constrained=constrained)
    # What all matrices have in common changes no decision, and is not released.
    return problem.gather(result) if constrained else result


def most_steps(problem: MarginProblem) -> int:
    """Return how many steps are worth trying: some multiple of the root of the condition."""
    return MOST_STEPS + 10 * math.isqrt(math.ceil(problem.curvature / problem.regularization))


def _certain_steps(
    problem: MarginProblem, descent: GradientDescent, tolerance: float, *, constrained: bool
) -> Floats:
    """Return what gradient steps arrive at, in the coordinates of the solver that came to a halt."""
    if not constrained:
        start = np.zeros(problem.size)
        return descent.run(
            lambda w: w - problem.value_and_gradient(w)[1] / descent.curvature, start, tolerance
        )

    def step(x: Floats) -> Floats:
        return psd_part(x - problem.whole_value_and_gradient(x)[1] / descent.curvature, problem.p)

    return descent.run(step, np.zeros((problem.n_matrices, problem.squares.dimension)), tolerance)


def quasi_newton(problem: MarginProblem, tolerance: float, most: int = MOST_STEPS) -> Floats | None:
    """Return where limited-memory BFGS meets the tolerance; None if it comes to a halt before.

    Notes
    -----
    It stops where the norm of the computed gradient, widened by the rounding of the norm, plus the bound of
    ``problem.gradient_error`` is within the tolerance: then the true gradient is.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """

    def near(w: Floats, gradient: Floats) -> bool:
        norm, size = float(np.linalg.norm(gradient)), float(np.linalg.norm(w))
        # The norm is itself rounded, by a unit in the last place for each of its terms at most.
        return norm * (1 + 1e-12 + problem.size * _UNIT) + problem.gradient_error(size) <= tolerance

    result, reached = minimize_smooth(
        lambda w: problem.value_and_gradient(w)[1],
        np.zeros(problem.size),
        near,
        length=1 / (problem.regularization + problem.curvature),
        most=most,
    )
    return result if reached else None


def accelerated_projection(problem: MarginProblem, tolerance: float, most: int = MOST_STEPS) -> Floats | None:
    """Return where accelerated projected gradient steps meet the tolerance; None if they come to a halt.

    The coordinates are those of all matrices, which need not sum to zero.

    Notes
    -----
    Nesterov's momentum, started anew when the step turns against the last one. ``L`` is doubled up to the
    bound of the curvature where the function lies above its model, and lowered a little after each step. With
    ``x = P(y - g(y) / L)``, ``g(x) - g(y) + L (y - x)`` is a subgradient at ``x`` of the function plus the
    indicator of the cone: the certificate.

    Reference
    ---------
    docs/explanation/theorems/large-margin-cone.md, solver-tolerance.md
    """
    x = np.zeros((problem.n_matrices, problem.squares.dimension))
    y, momentum = x, 1.0
    bound = problem.regularization + problem.curvature
    # The bound counts every row as if it were on the bend of its hinges; most are not.
    lipschitz = problem.regularization + bound / 64
    _, gradient_y = problem.whole_value_and_gradient(y)
    for _ in range(most):
        for lipschitz in _double_up_to(lipschitz, bound):  # noqa: B020 - goes on from where it was
            aim = y - gradient_y / lipschitz
            new = psd_part(aim, problem.p)
            _, gradient = problem.whole_value_and_gradient(new)
            moved = new - y
            # Enough for the function to lie below its model, by slopes, which cancel less than values.
            if 2 * float(np.vdot(gradient - gradient_y, moved)) <= lipschitz * float(np.vdot(moved, moved)):
                break
        subgradient = gradient - gradient_y - lipschitz * moved
        # The projection errs by a few units in the last place of what is projected, and the slope with it.
        size = float(np.linalg.norm(aim))
        slack = 2 * (bound + lipschitz) * PROJECTION * problem.p * _UNIT * size
        slack += 2 * problem.gradient_error(max(float(np.linalg.norm(new)), float(np.linalg.norm(y))))
        slack += 8 * lipschitz * _UNIT * (size + float(np.linalg.norm(y)))
        if float(np.linalg.norm(subgradient)) * (1 + 1e-12 + x.size * _UNIT) + slack <= tolerance:
            return new
        # The step turned against the last one: momentum starts anew.
        if float(np.vdot(y - new, new - x)) > 0.0:
            momentum = 1.0
        later = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        y = new + (momentum - 1) / later * (new - x)
        x, momentum = new, later
        _, gradient_y = problem.whole_value_and_gradient(y)
        # Lets the estimate of the curvature fall again where the function is flatter.
        lipschitz *= 0.95
    return None


def _double_up_to(value: float, bound: float) -> Iterator[float]:
    """Yield a value and its doubles as long as they are below a bound, then the bound."""
    while value < bound:
        yield value
        value *= 2
    yield bound


def psd_part(coordinates: Floats, p: int) -> Floats:
    """Return the nearest positive semidefinite matrices, all of them at once."""
    values, vectors = np.linalg.eigh(to_matrices(coordinates, p))
    return to_coordinates((vectors * np.maximum(values, 0.0)[..., np.newaxis, :]) @ vectors.swapaxes(-1, -2))
