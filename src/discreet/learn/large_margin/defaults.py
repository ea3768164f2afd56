"""Choices that no row has a part in: how much to regularize, and where to put the noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from discreet.learn.large_margin._bounds import classwise_change, classwise_is_quieter
from discreet.learn.large_margin.objective import ObjectivePerturbation, refuse_hopeless, widest_tilt
from discreet.learn.large_margin.output import OutputPerturbation
from discreet.learn.large_margin.plan import Exact, Facts, Plan
from discreet.learn.perturbation.noise import LARGEST_DELTA, gaussian_allowance, gaussian_tilt_scale
from discreet.noise.spherical import TAIL
from discreet.privacy import ApproxDP, NoPromise, PureDP

if TYPE_CHECKING:
    from discreet.privacy import Promise

Mechanism = Literal["objective", "output"]
Cone = Literal["shift", "constrained"]

OBJECTIVE_WEIGHT, OBJECTIVE_GROWTH = 2.0, 30.0
OUTPUT_WEIGHT = 1.5
"""Regularization over the noise's standard deviation, for each class that a row can be mistaken for."""
QUIET = 0.3
"""Regularization where there is no noise, or hardly any: against a sum over rows, however many."""
TOLERANCE, CONSTRAINED_TOLERANCE = 1e-5, 1e-4
"""Of the solver, over the largest change of the gradient by one row."""


def tilt_sd(facts: Facts, privacy: Promise) -> float:
    """Return the standard deviation, in one direction, of noise on the gradient of the sum of losses.

    Without what the change of volume costs, so that it depends on no regularization.
    """
    if isinstance(privacy, PureDP):
        if facts.components == 1 and classwise_is_quieter(facts.n_classes, facts.coordinates):
            return math.sqrt(facts.coordinates + 1) * classwise_change(facts.n_classes) / privacy.epsilon
        return math.sqrt(facts.size + 1) * facts.change / privacy.epsilon
    assert isinstance(privacy, ApproxDP)
    return gaussian_tilt_scale(facts.change, facts.mean, privacy.epsilon, privacy.delta)


def output_sd(facts: Facts, privacy: Promise) -> float:
    """Return the standard deviation, in one direction, of noise on the output, times the regularization."""
    if isinstance(privacy, PureDP):
        return math.sqrt(facts.size + 1) * facts.change / privacy.epsilon
    assert isinstance(privacy, ApproxDP)
    return facts.change / gaussian_allowance(privacy, facts.size)


def default_regularization(facts: Facts, privacy: Promise, mechanism: Mechanism) -> float:
    """Return the regularization for a table of this shape at this promise.

    The noise of a row's distance to a class is at most the noise's standard deviation over the
    regularization, because ``x x'`` has a norm of at most 1. With a tilt of standard deviation ``s`` it is
    held at half of the margin, which is 1, and below that where noise is large beside the ``n`` rows:
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
        return max(QUIET, OUTPUT_WEIGHT * facts.n_classes * output_sd(facts, privacy))
    sd = tilt_sd(facts, privacy)
    return max(QUIET, sd * (OBJECTIVE_WEIGHT + OBJECTIVE_GROWTH * sd / facts.n_rows))


def default_tolerance(
    facts: Facts, privacy: PureDP | ApproxDP | NoPromise, regularization: float, mechanism: Mechanism
) -> float:
    """Return twice the least tolerance that is certain to be reached, or a small part of one row's change.

    A tilt is taken to be as long as any share of epsilon that hides the solver can make it.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """
    tilt = None
    if mechanism == "objective" and not isinstance(privacy, NoPromise):
        tilt, regularization = widest_tilt(facts, privacy, regularization)
    wanted = CONSTRAINED_TOLERANCE if facts.constrained else TOLERANCE
    return max(wanted * facts.change, 2 * facts.descent(regularization, tilt).least_tolerance)


def stronger_if_quieter(facts: Facts, privacy: ApproxDP, mechanism: Mechanism) -> PureDP | ApproxDP:
    """Return the pure promise of the same epsilon where it takes less noise than the approximate one.

    Spherical noise grows with the number of weights, Gaussian noise with its root: for few weights the pure
    promise is the cheaper one, and it keeps what was asked for.
    """
    pure = PureDP(
        epsilon=privacy.epsilon, unit=privacy.unit, neighbors=privacy.neighbors, assumes=privacy.assumes
    )
    # One spherical vector for each class and one more, with room to spare.
    comes_with = 4 * (facts.n_classes + 1) * TAIL * math.exp(min(privacy.epsilon, 700.0))
    if comes_with >= min(privacy.delta, LARGEST_DELTA):
        return privacy
    sd = output_sd if mechanism == "output" else tilt_sd
    return pure if sd(facts, pure) < sd(facts, privacy) else privacy


def make_plan(
    facts: Facts,
    privacy: PureDP | ApproxDP | NoPromise,
    *,
    regularization: float | None = None,
    mechanism: Mechanism = "objective",
    owner: str = "LargeMarginGaussianClassifier",
) -> Plan:
    """Return the calibrated mechanism, made from public facts alone.

    Raises
    ------
    PromiseError
        If the promise cannot be kept, or if the tolerance is not certain to be reached for every table with
        these facts: whether a training ends well must not depend on a row.
    """
    if isinstance(privacy, ApproxDP):
        privacy = stronger_if_quieter(facts, privacy, mechanism)
    given = regularization
    if regularization is None:
        regularization = default_regularization(facts, privacy, mechanism)
    if mechanism == "objective" and not isinstance(privacy, NoPromise):
        if given is not None:
            refuse_hopeless(facts, privacy.epsilon, given)
    else:
        facts.descent(regularization, None).check_condition(owner)
    if facts.tolerance is None:
        tolerance = default_tolerance(facts, privacy, regularization, mechanism)
        facts = replace(facts, tolerance=tolerance)
    if isinstance(privacy, NoPromise):
        plan = Exact.make(facts, privacy, regularization)
    elif mechanism == "output":
        plan = OutputPerturbation.make(facts, privacy, regularization)
    else:
        plan = ObjectivePerturbation.make(facts, privacy, regularization)
    facts.descent(plan.regularization, plan.linear_term).check(plan.tolerance, owner)
    return plan
