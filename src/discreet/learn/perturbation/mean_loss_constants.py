"""Public constants of mean losses with a quadratic penalty, and choices that follow without a row."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from discreet.learn.perturbation.defaults import make_plan, pure_if_quieter
from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.perturbation.mechanisms import ProblemConstants
from discreet.learn.perturbation.noise import gaussian_allowance
from discreet.privacy import ApproxDP, NoPromise, PureDP

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.learn.perturbation.mean_loss import MeanLossProblem
    from discreet.learn.perturbation.mechanisms import TrainingPlan
    from discreet.privacy import Promise

LinearMechanism = Literal["auto", "output", "objective"]

OBJECTIVE_SMALL, OBJECTIVE_LARGE = 0.1, 3.0
OUTPUT_WEIGHT = 1.0
"""Constants of :func:`default_regularization`, chosen on public tables."""
_UP = 1 + 1e-12
"""Covers the rounding of the few operations behind each constant."""


def minimizer_sensitivity(change: float, regularization: float, n_rows: int, tolerance: float) -> float:
    """Return how far the computed minimizers of two neighbors can be apart.

    ``change / (regularization n_rows) + 2 tolerance / regularization``: strong convexity for the exact
    ones, and the solver's tolerance for each of the two.

    Privacy
    -------
    Replace-one, with a public number of rows. Attained in both terms.

    Reference
    ---------
    docs/explanation/theorems/masked-sensitivity.md
    """
    return (change / n_rows + 2 * tolerance) / regularization * _UP


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanLossConstants(ProblemConstants):
    """Public constants of a mean loss with a quadratic penalty.

    Attributes
    ----------
    max_rows_per_unit : int
        Rows that one unit can have: the number of rows that are added up is this many times ``n_rows``, and
        less than that many more.
    """

    max_rows_per_unit: int = 1

    @property
    def rows_scale(self) -> int:
        """The loss is a mean: the linear term is divided by the number of rows."""
        return self.n_rows

    @property
    def target_tolerance(self) -> float:
        """About what floating point reaches for a mean of losses below 1."""
        return 1e-11

    @property
    def n_spherical_vectors(self) -> int:
        """The linear term and the noise on the output."""
        return 2

    @property
    def most_rows(self) -> int:
        """Bound on the number of rows that are added up."""
        return (self.n_rows + 1) * self.max_rows_per_unit

    @property
    @abstractmethod
    def gradient_norm(self) -> float:
        """Norm that noise on the gradient of the mean loss is compared with, to choose a regularization."""

    @property
    @abstractmethod
    def usual_curvature(self) -> float:
        """Second derivative of the mean loss in most directions, to choose a mechanism."""

    @property
    def noise_divisor(self) -> float:
        """Part of much noise, as one over this, that the default regularization is."""
        return OBJECTIVE_LARGE

    @abstractmethod
    def change_at_minimizer(self, regularization: float) -> float:
        """Return how much one row's gradient can change, at the minimizer, when the row is replaced."""

    def minimizer_sensitivity(self, regularization: float) -> float:
        """Return how far the computed minimizers of two neighbors can be apart."""
        change = self.change_at_minimizer(regularization)
        return minimizer_sensitivity(change, regularization, self.n_rows, self.solver_tolerance)

    def noise_scale(self, privacy: Promise, mechanism: str) -> float:
        """Return the mean norm of a linear term, whatever the mechanism: outputs scale alike."""
        return relative_noise(self, privacy, self.gradient_change)

    def minimize(self, problem: MeanLossProblem, tolerance: float) -> Floats:
        """Return the minimizer, by Newton's method with a certificate."""
        return minimize(problem, tolerance)


def relative_noise(constants: MeanLossConstants, privacy: Promise, change: float) -> float:
    """Return the mean norm of the noise on the gradient of the mean loss, over :attr:`gradient_norm`.

    Parameters
    ----------
    constants : MeanLossConstants
        Public numbers of the problem.
    privacy : PureDP or ApproxDP
        Promise that the noise keeps.
    change : float
        Largest change of the sum of gradients by one row.

    Notes
    -----
    Spherical noise has a norm of ``size`` times its scale ``change / epsilon``, Gaussian noise of the root of
    ``size`` times its standard deviation ``change / mu``; both are divided by the number of rows.
    """
    change /= constants.gradient_norm
    if isinstance(privacy, PureDP):
        return constants.size * change / (privacy.epsilon * constants.n_rows)
    assert isinstance(privacy, ApproxDP)
    allowance = gaussian_allowance(privacy, constants.size)
    return math.sqrt(constants.size) * change / (allowance * constants.n_rows)


def default_regularization(
    constants: MeanLossConstants, privacy: Promise, mechanism: LinearMechanism
) -> float:
    """Return the regularization for a table of this shape at this epsilon.

    Without noise it is ``1 / (n_rows dimension)``, what scikit-learn's default comes to for rows in a box.
    With noise it grows with :func:`relative_noise`, ``n``. If the objective is perturbed it is
    ``n**2 / (0.1 + c n)``, ``c`` the :attr:`noise_divisor`, usually 3: little noise is held down by the
    curvature of the loss itself, much noise needs a penalty in proportion. Noise on the output is divided by
    the regularization whatever the curvature, and it is ``n`` itself.

    The constants were chosen by the accuracy on public tables, over a hundredfold range of epsilon, in
    ``benchmarks/logistic_constants.py``. Against the best regularization of each table and promise they lose
    1.6 points of accuracy in the mean; half or twice as much of either loses a few tenths more. The tables
    that ``benchmarks/logistic.py`` measures were not among them; a poor result on breast cancer did lead to
    the criterion, which has wide ranges and counts a score below the most common class as that class.

    Privacy
    -------
    Depends on the number of rows, columns and classes and on the promise, all public.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """
    least = 1 / (constants.n_rows * constants.dimension)
    if isinstance(privacy, NoPromise):
        return least
    noise = relative_noise(constants, privacy, constants.gradient_change)
    if mechanism == "output":
        return max(least, OUTPUT_WEIGHT * noise)
    # In this order the square of a large noise does not overflow.
    return max(least, noise * (noise / (OBJECTIVE_SMALL + constants.noise_divisor * noise)))


def choose_mechanism(
    constants: MeanLossConstants, privacy: Promise, regularization: float
) -> Literal["output", "objective"]:
    """Return the mechanism with less noise on the weights, as far as public constants tell.

    Notes
    -----
    Noise on the output is divided by the regularization; noise on the objective by the regularization plus
    the loss's own curvature.
    """
    change = constants.change_at_minimizer(regularization)
    output = relative_noise(constants, privacy, change) / regularization
    noise = relative_noise(constants, privacy, constants.gradient_change)
    return "output" if output <= noise / (regularization + constants.usual_curvature) else "objective"


def make_linear_plan(
    constants: MeanLossConstants,
    privacy: PureDP | ApproxDP | NoPromise,
    *,
    regularization: float | None,
    mechanism: LinearMechanism,
    owner: str = "a linear classifier",
) -> TrainingPlan:
    """Return the calibrated mechanism, made from public constants alone.

    Parameters
    ----------
    constants : MeanLossConstants
        Public numbers of the problem; a tolerance of None is replaced by the default.
    privacy : PureDP, ApproxDP or NoPromise
        Promise to be kept; with "auto" a pure one may keep an approximate one.
    regularization : float or None
        Weight of the penalty; None for :func:`default_regularization`.
    mechanism : {"auto", "output", "objective"}
        Place of the noise: on the minimizer, on the objective, or "auto" for :func:`choose_mechanism`.
    owner : str
        Name of the estimator, for error messages.

    Raises
    ------
    PromiseError
        As of :func:`~discreet.learn.perturbation.defaults.make_plan`.
    """
    if mechanism == "auto" and isinstance(privacy, ApproxDP):
        privacy = pure_if_quieter(constants, privacy, mechanism)
    if regularization is None:
        regularization = default_regularization(constants, privacy, mechanism)
    if mechanism == "auto":
        # The floor only keeps quotients finite: with so little regularization the objective always wins.
        mechanism = (
            "output"
            if isinstance(privacy, NoPromise)
            else choose_mechanism(constants, privacy, max(regularization, 1e-30))
        )
    return make_plan(constants, privacy, regularization=regularization, mechanism=mechanism, owner=owner)
