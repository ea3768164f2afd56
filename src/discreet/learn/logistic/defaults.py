"""Choices that no row has a part in: how much to regularize, and where to put the noise."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from discreet.learn.logistic.objective import ObjectivePerturbation, tilt_change, widest_tilt
from discreet.learn.logistic.output import OutputPerturbation
from discreet.learn.logistic.plan import Exact, Facts, Plan
from discreet.learn.logistic.sensitivity import gradient_change
from discreet.learn.perturbation.noise import LARGEST_DELTA, gaussian_allowance
from discreet.noise.spherical import TAIL
from discreet.privacy import ApproxDP, NoPromise, PureDP

if TYPE_CHECKING:
    from discreet.privacy import Promise

Mechanism = Literal["auto", "output", "objective"]
Constant = Literal["tight", "worst-case"]

OBJECTIVE_SMALL, OBJECTIVE_LARGE = 0.1, 3.0
OUTPUT_WEIGHT = 1.0


def relative_noise(facts: Facts, privacy: Promise, change: float) -> float:
    """Return the mean norm of the noise on the gradient of the mean loss, whose own norm is at most 1.

    ``change`` is how far one row moves the sum of gradients. Spherical noise has a norm of ``size`` times its
    scale, Gaussian noise of the root of ``size`` times its standard deviation.
    """
    if isinstance(privacy, PureDP):
        return facts.size * change / (privacy.epsilon * facts.n_rows)
    assert isinstance(privacy, ApproxDP)
    return math.sqrt(facts.size) * change / (gaussian_allowance(privacy, facts.size) * facts.n_rows)


def default_regularization(facts: Facts, privacy: Promise, mechanism: Mechanism) -> float:
    """Return the regularization for a table of this shape at this epsilon.

    Without noise it is ``1 / (n_rows dimension)``, what scikit-learn's default comes to for rows in a box.
    With noise it grows with :func:`relative_noise`, ``n``. If the objective is perturbed it is
    ``n**2 / (0.1 + 3 n)``: little noise is held down by the curvature of the loss itself, much noise needs a
    penalty in proportion. Noise on the output is divided by the regularization whatever the curvature, and
    it is ``n`` itself.

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
    least = 1 / (facts.n_rows * facts.dimension)
    if isinstance(privacy, NoPromise):
        return least
    noise = relative_noise(facts, privacy, tilt_change(facts.n_classes))
    if mechanism == "output":
        return max(least, OUTPUT_WEIGHT * noise)
    return max(least, noise * (noise / (OBJECTIVE_SMALL + OBJECTIVE_LARGE * noise)))


def default_tolerance(
    facts: Facts, privacy: PureDP | ApproxDP | NoPromise, regularization: float, mechanism: Mechanism
) -> float:
    """Return twice the least tolerance that is certain to be reached, and no less than 1e-11.

    A tilt is taken to be as long as any share of epsilon that hides the solver can make it.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """
    tilt = 0.0
    if mechanism == "objective" and not isinstance(privacy, NoPromise):
        widest, regularization = widest_tilt(facts, privacy, regularization)
        tilt = widest.longest
    return max(1e-11, 2 * facts.descent(regularization, tilt).least_tolerance)


def choose_mechanism(
    facts: Facts, privacy: Promise, regularization: float, *, tight: bool
) -> Literal["output", "objective"]:
    """Return the mechanism with less noise on the weights, as far as public facts tell.

    Noise on the output is divided by the regularization; noise on the objective by the regularization plus
    the loss's own curvature, which for rows of norm 1 is about ``1 / (4 dimension)`` in the mean over
    directions.
    """
    change = gradient_change(facts.n_classes, regularization, tight=tight)
    output = relative_noise(facts, privacy, change) / regularization
    curvature = 1 / (4 * facts.dimension)
    objective = relative_noise(facts, privacy, tilt_change(facts.n_classes)) / (regularization + curvature)
    return "output" if output <= objective else "objective"


def stronger_if_quieter(facts: Facts, privacy: ApproxDP) -> PureDP | ApproxDP:
    """Return the pure promise of the same epsilon where it takes less noise than the approximate one.

    Spherical noise grows with the number of weights, Gaussian noise with its root: for few weights the pure
    promise is the cheaper one, and it keeps what was asked for.
    """
    pure = PureDP(
        epsilon=privacy.epsilon, unit=privacy.unit, neighbors=privacy.neighbors, assumes=privacy.assumes
    )
    # Two spherical vectors, their exceptional events and their sampler, with room to spare.
    comes_with = 8 * TAIL * math.exp(min(privacy.epsilon, 700.0))
    if comes_with >= min(privacy.delta, LARGEST_DELTA):
        return privacy
    change = tilt_change(facts.n_classes)
    quieter = relative_noise(facts, pure, change) < relative_noise(facts, privacy, change)
    return pure if quieter else privacy


def make_plan(
    facts: Facts,
    privacy: PureDP | ApproxDP | NoPromise,
    *,
    regularization: float | None,
    mechanism: Mechanism,
    tight: bool,
    owner: str = "PrivateLogisticRegression",
) -> Plan:
    """Return the calibrated mechanism, made from public facts alone.

    Raises
    ------
    PromiseError
        If the promise cannot be kept, or if the tolerance is not certain to be reached for every table with
        these facts: whether a training ends well must not depend on a row.
    """
    if mechanism == "auto" and isinstance(privacy, ApproxDP):
        privacy = stronger_if_quieter(facts, privacy)
    if regularization is None:
        regularization = default_regularization(facts, privacy, mechanism)
    if mechanism == "auto" and not isinstance(privacy, NoPromise):
        mechanism = choose_mechanism(facts, privacy, max(regularization, 1e-30), tight=tight)
    if mechanism != "objective" or isinstance(privacy, NoPromise):
        facts.descent(regularization, 0.0).check_condition(owner)
    if facts.tolerance is None:
        tolerance = default_tolerance(facts, privacy, regularization, mechanism)
        facts = replace(facts, tolerance=tolerance)
    if isinstance(privacy, NoPromise):
        plan = Exact.make(facts, privacy, regularization)
    elif mechanism == "output":
        plan = OutputPerturbation.make(facts, privacy, regularization, tight=tight)
    else:
        plan = ObjectivePerturbation.make(facts, privacy, regularization)
    facts.descent(plan.regularization, plan.longest_tilt).check(plan.tolerance, owner)
    return plan
