"""Mechanisms for regularized minimizers: noise on the objective, noise on the output, and none.

A mechanism is calibrated before a row is read: public constants of a learning problem go in, noise, a promise
and a regularization come out. Learners implement :class:`ProblemConstants`; the rest is written once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from discreet.errors import PromiseError
from discreet.learn.perturbation._solvers import round_up_to_three_digits
from discreet.learn.perturbation.noise import (
    LARGEST_SHARE,
    LEAST_SHARE,
    OUTPUT_DELTA,
    GaussianVectorNoise,
    PointNoise,
    SphericalNoise,
    VectorNoise,
    delta_without_sampler,
    gaussian_term_scale,
    inherited_fields,
    output_noise,
    spherical_promise,
    without_density_error,
)
from discreet.noise import samplers
from discreet.privacy import ApproxDP, NoPromise, Promise, PureDP
from discreet.privacy.calibration import gaussian_mu

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats
    from discreet.learn.perturbation._solvers import GradientDescent
    from discreet.noise import Stream

_DOWN = 1 - 2.0**-40
"""Covers the rounding of the few operations behind a rate or a part of epsilon."""


class PerturbedProblem(Protocol):
    """A strongly convex function of a flat vector, with room for a linear term.

    Attributes
    ----------
    linear_term : array
        Coefficients of the linear term; 0 unless the objective is perturbed.
    linear_term_error : float
        Bound on how far floating point put the linear term from the one that was drawn.
    """

    linear_term: Floats
    linear_term_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemConstants(ABC):
    """Public numbers of a learning problem, from which noise and the solver's tolerance follow.

    Attributes
    ----------
    n_rows, n_classes : int
        Numbers of rows and of declared classes of the table.
    dimension : int
        Number of coordinates of an embedded row.
    tolerance : float or None
        Norm of the gradient at which the solver stops; None until the regularization is known, on which the
        default depends.
    """

    n_rows: int
    n_classes: int
    dimension: int
    tolerance: float | None = None

    @property
    @abstractmethod
    def size(self) -> int:
        """Numbers that are released."""

    @property
    @abstractmethod
    def rows_scale(self) -> int:
        """Divisor of the linear term: the number of rows for a mean loss, 1 for a sum of losses."""

    @property
    @abstractmethod
    def gradient_change(self) -> float:
        """Bound ``G`` on how far one row moves the gradient of the sum of losses at any point."""

    @property
    @abstractmethod
    def mean_supremum(self) -> float:
        """Mean of the largest inner product of a standard normal vector with such a change."""

    @property
    @abstractmethod
    def target_tolerance(self) -> float:
        """Tolerance that is aimed at where floating point lets the solver reach it."""

    @property
    @abstractmethod
    def n_spherical_vectors(self) -> int:
        """Bound on the number of spherical vectors that objective perturbation draws."""

    @property
    def solver_tolerance(self) -> float:
        """The tolerance, once it is known."""
        assert self.tolerance is not None
        return self.tolerance

    @abstractmethod
    def minimizer_sensitivity(self, regularization: float) -> float:
        """Return how far the computed minimizers of two neighbors can be apart."""

    @abstractmethod
    def jacobian_cost(self, regularization: float) -> float:
        """Return the part of epsilon that objective perturbation spends on the change of volume."""

    @abstractmethod
    def regularization_for(self, cost: float) -> float:
        """Return the least regularization with a :meth:`jacobian_cost` of at most ``cost``."""

    @abstractmethod
    def noise_scale(self, privacy: Promise, mechanism: str) -> float:
        """Return a public measure of the noise that a promise takes, to compare promises by."""

    @abstractmethod
    def descent(self, regularization: float, linear_term: VectorNoise | None) -> GradientDescent:
        """Return what gradient steps are certain to reach, whatever is drawn for the linear term."""

    @abstractmethod
    def minimize(self, problem: Any, tolerance: float) -> Floats:
        """Return the minimizer of a problem with these constants, to within a tolerance."""

    def noise_for(self, regularization: float, epsilon: float) -> tuple[PointNoise, float]:
        """Return the spherical linear term that keeps an epsilon, and the regularization to use with it.

        Notes
        -----
        The rate is ``left / G``, ``left`` what :func:`split_epsilon` leaves of epsilon after the error of the
        computed radius.
        """
        epsilon = without_density_error(epsilon, self.size)
        left, regularization = split_epsilon(self, regularization, epsilon)
        # Rounded down: a smaller rate is more noise.
        return SphericalNoise.with_rate(left / self.gradient_change * _DOWN, self.size), regularization


def split_epsilon(constants: ProblemConstants, regularization: float, epsilon: float) -> tuple[float, float]:
    """Return the epsilon that is left for the linear term, and the regularization to use.

    At most half of epsilon goes to the change of volume; where it would take more, the regularization is
    raised.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md, large-margin-private.md
    """
    cost = constants.jacobian_cost(regularization)
    if cost > epsilon / 2:
        # Rounded up, so that the cost computed from it is at most epsilon / 2.
        regularization = constants.regularization_for(epsilon / 2)
        cost = constants.jacobian_cost(regularization)
    return epsilon - cost, regularization


def check_jacobian_cost(constants: ProblemConstants, epsilon: float, regularization: float) -> None:
    """Refuse a regularization at which the change of volume alone would spend all of epsilon."""
    cost = constants.jacobian_cost(regularization)
    # At least this part of epsilon is left once the solver's error is paid for.
    if cost < epsilon * (1 - LARGEST_SHARE):
        return
    least = round_up_to_three_digits(2 * cost / (1 - LARGEST_SHARE))
    enough = round_up_to_three_digits(constants.regularization_for(epsilon * (1 - LARGEST_SHARE) / 2))
    raise PromiseError(
        f"epsilon of privacy must be at least {least:g} for objective "
        f"perturbation with a regularization of {regularization:g}, was {epsilon:g}: the change of volume "
        f"alone would spend it. Use a regularization of at least {enough:g}, leave it out, or "
        "ask for mechanism='output'."
    )


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(ABC):
    """A calibrated mechanism.

    Attributes
    ----------
    constants : ProblemConstants
        Public numbers that the plan was made from, with a tolerance.
    regularization : float
        The one that is used; objective perturbation may have to raise it.
    promises : tuple of Promise
        Promises that hold for what :meth:`train` returns.
    """

    name: ClassVar[str]

    constants: ProblemConstants
    regularization: float
    promises: tuple[Promise, ...]

    @property
    def tolerance(self) -> float:
        """Norm of the gradient that the solver must reach."""
        return self.constants.solver_tolerance

    @property
    def linear_term(self) -> VectorNoise | None:
        """The law of the linear term, None if there is none."""
        return None

    @abstractmethod
    def train(self, problem: PerturbedProblem, charge: Callable[[], Stream]) -> Floats:
        """Return the released vector; ``charge`` pays for it and returns the source of its noise."""


@dataclass(frozen=True, kw_only=True)
class ExactTraining(TrainingPlan):
    """Training without noise and without a promise."""

    name: ClassVar[str] = "exact"

    @classmethod
    def from_constants(
        cls, constants: ProblemConstants, privacy: NoPromise, regularization: float
    ) -> ExactTraining:
        """Return the plan; the promise is taken as it is."""
        return cls(constants=constants, regularization=regularization, promises=(privacy,))

    def train(self, problem: PerturbedProblem, charge: Callable[[], Stream]) -> Floats:
        """Solve, then record that it was done."""
        exact = self.constants.minimize(problem, self.tolerance)
        charge()
        return exact


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(TrainingPlan):
    """The computed minimizer with spherical or Gaussian noise for how far one row can move it.

    Privacy
    -------
    ``D``, how far the computed minimizers of two neighbors can be apart, includes the solver's tolerance.
    Under :class:`PureDP` the noise has a density in proportion to ``exp(-epsilon |x| / D)``, under
    :class:`ApproxDP` it is Gaussian and promised as its whole curve. It needs no second derivative.

    Reference
    ---------
    docs/explanation/theorems/masked-sensitivity.md, large-margin-sensitivity.md
    """

    name: ClassVar[str] = "output"

    noise: VectorNoise
    sensitivity: float
    """Distance ``D``, before rounding to the lattice."""

    @classmethod
    def from_constants(
        cls, constants: ProblemConstants, privacy: PureDP | ApproxDP, regularization: float
    ) -> OutputPerturbation:
        """Return the plan with its noise calibrated from public constants."""
        sensitivity = constants.minimizer_sensitivity(regularization)
        noise, promise = output_noise(sensitivity, privacy, constants.size)
        return cls(
            constants=constants,
            regularization=regularization,
            promises=(promise,),
            noise=noise,
            sensitivity=sensitivity,
        )

    def train(self, problem: PerturbedProblem, charge: Callable[[], Stream]) -> Floats:
        """Solve, charge, then add noise."""
        # Solved first: a training that fails is not charged.
        exact = self.constants.minimize(problem, self.tolerance)
        return self.noise.add_to(exact, charge())


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(TrainingPlan):
    """The minimizer of the objective plus ``b . w / rows_scale``, ``b`` random, and noise for its error.

    Privacy
    -------
    The exact minimizer has a density, and its logarithm changes by at most ``epsilon`` between neighbors:
    by the law of the linear term and by the change of volume. What is computed is near it, by the solver's
    tolerance and by the lattice on which ``b`` was drawn; noise on the output, for a small part of epsilon,
    hides where.

    Reference
    ---------
    Chaudhuri, Monteleoni and Sarwate (2011), with the sharp Jacobian; Kifer, Smith and Thakurta (2012);
    Iyengar et al. (2019). docs/explanation/theorems/masked-objective.md, large-margin-private.md
    """

    name: ClassVar[str] = "objective"

    term: VectorNoise
    """Law of ``b``."""
    output: VectorNoise
    """Law of the noise on the output."""
    share: float
    """Part of epsilon that pays for the noise on the output."""

    @classmethod
    def from_constants(
        cls, constants: ProblemConstants, privacy: PureDP | ApproxDP, regularization: float
    ) -> ObjectivePerturbation:
        """Return the plan with both noises calibrated from public constants.

        Notes
        -----
        ``e`` is the solver's error of :func:`_solver_error`, ``G`` the change of the gradient. The share is
        ``sqrt(2 e rows_scale / G)``, kept between two constants: the noise on the output weighs ``1 / share``
        times the error, and the share is lost for the linear term; at the root both losses are equal. ``e``
        depends on the term's lattice and so on the share, hence three rounds.
        """
        share = LEAST_SHARE
        for _ in range(3):
            term, _ = _linear_term(constants, privacy, regularization, (1 - share) * privacy.epsilon)
            error = 2 * _solver_error(constants, term) * constants.rows_scale / constants.gradient_change
            share = min(max(math.sqrt(error), LEAST_SHARE), LARGEST_SHARE)
        second = share * privacy.epsilon
        # Rounded down, so that the two parts never add up to more than epsilon.
        first = (privacy.epsilon - second) * _DOWN
        term, regularization = _linear_term(constants, privacy, regularization, first)
        # By strong convexity each neighbor's point is within error / regularization of its exact minimizer.
        apart = 2 * _solver_error(constants, term) / regularization * (1 + 1e-12)
        output: VectorNoise
        promise: Promise
        if isinstance(privacy, PureDP):
            output = SphericalNoise.for_sensitivity(apart, second, constants.size)
            assert isinstance(term, PointNoise)
            # Basic composition: epsilons and deltas of term and output add up.
            delta = term.delta(first) + output.delta(second)
            promise = spherical_promise(privacy, delta, term.total_variation + output.total_variation)
        else:
            # The linear term has the larger part of delta, the noise on the output the rest.
            delta, total = _deltas(constants, privacy)
            mu = gaussian_mu(second, OUTPUT_DELTA * delta)
            output = GaussianVectorNoise.for_sensitivity(apart, mu, constants.size)
            inherited = inherited_fields(privacy)
            promise = ApproxDP(epsilon=privacy.epsilon, delta=delta, total_variation=total, **inherited)
        return cls(
            constants=constants,
            regularization=regularization,
            promises=(promise,),
            term=term,
            output=output,
            share=share,
        )

    @property
    def linear_term(self) -> VectorNoise:
        """The law of the linear term."""
        return self.term

    def train(self, problem: PerturbedProblem, charge: Callable[[], Stream]) -> Floats:
        """Charge, draw the linear term, solve, then add noise to the output."""
        # The solver already works on drawn noise, so that it is charged for first.
        stream = charge()
        drawn, error = self.term.draw_with_error(stream)
        problem.linear_term = drawn / self.constants.rows_scale
        problem.linear_term_error = error / self.constants.rows_scale
        return self.output.add_to(self.constants.minimize(problem, self.tolerance), stream)


def widest_linear_term(
    constants: ProblemConstants, privacy: PureDP | ApproxDP, regularization: float
) -> tuple[VectorNoise, float]:
    """Return the widest linear term that any share for the solver leads to, and the least regularization."""
    # The term is widest at the least epsilon it can get; the regularization is raised least at the whole one.
    term, _ = _linear_term(constants, privacy, regularization, (1 - LARGEST_SHARE) * privacy.epsilon * _DOWN)
    return term, split_epsilon(constants, regularization, privacy.epsilon)[1]


def _linear_term(
    constants: ProblemConstants, privacy: PureDP | ApproxDP, regularization: float, epsilon: float
) -> tuple[VectorNoise, float]:
    """Return the linear term for a part of epsilon, and the regularization to use with it."""
    if isinstance(privacy, PureDP):
        return constants.noise_for(regularization, epsilon)
    left, regularization = split_epsilon(constants, regularization, epsilon)
    delta = (1 - OUTPUT_DELTA) * _deltas(constants, privacy)[0]
    sd = gaussian_term_scale(constants.gradient_change, constants.mean_supremum, left, delta)
    return GaussianVectorNoise(dimension=constants.size, sd=sd), regularization


def _solver_error(constants: ProblemConstants, term: VectorNoise) -> float:
    """Return the norm of the gradient at what is computed, for the linear term before it was rounded.

    Notes
    -----
    ``(tolerance + r / (2 rows_scale)) (1 + 1e-12)``, ``r`` how far apart the lattice of the
    linear term can push two of them: half of that is the error of one.
    """
    return (constants.solver_tolerance + term.rounding_distance / (2 * constants.rows_scale)) * (1 + 1e-12)


def _deltas(constants: ProblemConstants, privacy: ApproxDP) -> tuple[float, float]:
    """Return what is left of delta after the sampler of two Gaussian vectors, and that sampler's distance."""
    total = 2 * constants.size * samplers.GAUSSIAN_TOTAL_VARIATION
    return delta_without_sampler(privacy, total), total
