"""Defaults that depend on public constants only: the promise to keep, and the solver's tolerance."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from discreet.learn.perturbation.mechanisms import (
    ExactTraining,
    ObjectivePerturbation,
    OutputPerturbation,
    widest_linear_term,
)
from discreet.learn.perturbation.noise import LARGEST_DELTA
from discreet.noise.spherical import TAIL
from discreet.privacy import ApproxDP, NoPromise, PureDP

if TYPE_CHECKING:
    from discreet.learn.perturbation.mechanisms import ProblemConstants, TrainingPlan

Mechanism = Literal["objective", "output"]


def pure_if_quieter(constants: ProblemConstants, privacy: ApproxDP, mechanism: str) -> PureDP | ApproxDP:
    """Return the pure promise of the same epsilon where it takes less noise than the approximate one.

    Spherical noise grows with the number of weights, Gaussian noise with its root: for few weights the pure
    promise takes less noise, and it implies the requested one.
    """
    pure = PureDP(
        epsilon=privacy.epsilon, unit=privacy.unit, neighbors=privacy.neighbors, assumes=privacy.assumes
    )
    # Exceptional events and samplers of all spherical vectors, with room to spare.
    comes_with = 4 * constants.n_spherical_vectors * TAIL * math.exp(min(privacy.epsilon, 700.0))
    # The pure promise implies the requested one only if its own delta is below the requested delta.
    if comes_with >= min(privacy.delta, LARGEST_DELTA):
        return privacy
    quieter = constants.noise_scale(pure, mechanism) < constants.noise_scale(privacy, mechanism)
    return pure if quieter else privacy


def default_tolerance(
    constants: ProblemConstants,
    privacy: PureDP | ApproxDP | NoPromise,
    regularization: float,
    mechanism: Mechanism,
) -> float:
    """Return twice the least tolerance that is certain to be reached, and no less than the one aimed at.

    A linear term is taken to be as long as any share of epsilon for the solver can make it.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """
    term = None
    if mechanism == "objective" and not isinstance(privacy, NoPromise):
        term, regularization = widest_linear_term(constants, privacy, regularization)
    return max(constants.target_tolerance, 2 * constants.descent(regularization, term).least_tolerance)


def make_plan(
    constants: ProblemConstants,
    privacy: PureDP | ApproxDP | NoPromise,
    *,
    regularization: float,
    mechanism: Mechanism,
    owner: str,
) -> TrainingPlan:
    """Return the calibrated mechanism, made from public constants alone.

    Parameters
    ----------
    constants : ProblemConstants
        Public numbers of the learning problem; a tolerance of None is replaced by the default.
    privacy : PureDP, ApproxDP or NoPromise
        Promise that is to be kept.
    regularization : float
        Weight of the penalty, above 0; objective perturbation raises it where epsilon requires that.
    mechanism : {"objective", "output"}
        Place of the noise: on the objective, or on the minimizer; without a promise there is none.
    owner : str
        Name of the estimator, for error messages.

    Raises
    ------
    PromiseError
        If the promise cannot be kept, or if the tolerance is not certain to be reached for every table with
        these constants: whether a training ends well must not depend on a row.
    """
    # Objective perturbation may raise the regularization; it is checked with the finished plan.
    if mechanism != "objective" or isinstance(privacy, NoPromise):
        constants.descent(regularization, None).check_condition(owner)
    if constants.tolerance is None:
        tolerance = default_tolerance(constants, privacy, regularization, mechanism)
        constants = replace(constants, tolerance=tolerance)
    plan: TrainingPlan
    if isinstance(privacy, NoPromise):
        plan = ExactTraining.from_constants(constants, privacy, regularization)
    elif mechanism == "output":
        plan = OutputPerturbation.from_constants(constants, privacy, regularization)
    else:
        plan = ObjectivePerturbation.from_constants(constants, privacy, regularization)
    constants.descent(plan.regularization, plan.linear_term).check(plan.tolerance, owner)
    return plan
