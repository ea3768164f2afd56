"""Objective perturbation: train on a randomly tilted objective, then hide how exactly it was solved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from discreet.errors import PromiseError
from discreet.learn.large_margin._bounds import (
    ClasswiseNoise,
    classwise_change,
    classwise_is_quieter,
    without_classwise_error,
)
from discreet.learn.large_margin.plan import Facts, Plan
from discreet.learn.perturbation._solvers import rounded_up
from discreet.learn.perturbation.noise import (
    HIDING_DELTA,
    LARGEST_SHARE,
    LEAST_SHARE,
    GaussianNoise,
    SphericalNoise,
    VectorNoise,
    delta_without_sampler,
    gaussian_tilt_scale,
    spherical_promise,
    taken_over,
    without_density_error,
)
from discreet.noise import gaussian
from discreet.privacy import ApproxDP, Promise, PureDP
from discreet.privacy.calibrate import gaussian_mu

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats
    from discreet.learn.large_margin._problem import MarginProblem
    from discreet.noise import Stream

_DOWN = 1 - 2.0**-40


def split_epsilon(facts: Facts, regularization: float, epsilon: float) -> tuple[float, float]:
    """Return the epsilon that is left for the tilt, and the regularization to use.

    At most half of epsilon goes to the change of volume; where it would take more, the regularization is
    raised.

    Reference
    ---------
    docs/explanation/theorems/large-margin-private.md
    """
    cost = facts.jacobian_cost(regularization)
    if cost > epsilon / 2:
        regularization = facts.regularization_for(epsilon / 2)
        cost = facts.jacobian_cost(regularization)
    return epsilon - cost, regularization


def refuse_hopeless(facts: Facts, epsilon: float, regularization: float) -> None:
    """Refuse a regularization at which the change of volume alone would spend all of epsilon."""
    cost = facts.jacobian_cost(regularization)
    if cost < epsilon * (1 - LARGEST_SHARE):
        return
    enough = facts.regularization_for(epsilon * (1 - LARGEST_SHARE) / 2)
    raise PromiseError(
        f"epsilon of privacy must be at least {rounded_up(2 * cost / (1 - LARGEST_SHARE)):g} for objective "
        f"perturbation with a regularization of {regularization:g}, was {epsilon:g}: the change of volume "
        f"alone would spend it. Use a regularization of at least {rounded_up(enough):g}, leave it out, or "
        "ask for mechanism='output'."
    )


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(Plan):
    """The minimizer of the objective plus ``<B, matrices>``, ``B`` random, and noise for the solver's error.

    Privacy
    -------
    ``B`` sums to zero over classes but is different for each: one matrix for all classes, as printed, would
    cancel from every decision. The exact minimizer has a density, and its logarithm changes by at most
    ``epsilon`` between neighbors: by the tilt's law and by the change of volume. What is computed is near
    it, by the solver's tolerance and by the lattice on which ``B`` was drawn; a small part of epsilon hides
    where.

    Reference
    ---------
    docs/explanation/theorems/large-margin-private.md
    """

    name: ClassVar[str] = "objective"

    tilt: VectorNoise
    hiding: VectorNoise
    share: float
    """Part of epsilon that hides the solver's error."""

    @classmethod
    def make(cls, facts: Facts, privacy: PureDP | ApproxDP, regularization: float) -> Plan:
        """Calibrate both noises from public facts."""
        tilt_for = _spherical_tilt if isinstance(privacy, PureDP) else _gaussian_tilt
        share = LEAST_SHARE
        for _ in range(3):
            tilt, _ = tilt_for(facts, privacy, regularization, (1 - share) * privacy.epsilon)
            # In units of what the tilt moves. Hidden with a share of epsilon it weighs 1 / share times
            # this, and the share is lost for the tilt: at the root both losses are equal.
            share = math.sqrt(2 * _solver_error(facts, tilt) / facts.change)
            share = min(max(share, LEAST_SHARE), LARGEST_SHARE)
        second = share * privacy.epsilon
        first = (privacy.epsilon - second) * _DOWN
        tilt, regularization = tilt_for(facts, privacy, regularization, first)
        apart = 2 * _solver_error(facts, tilt) / regularization * (1 + 1e-12)
        hiding: VectorNoise
        promise: Promise
        if isinstance(privacy, PureDP):
            hiding = SphericalNoise.hiding(apart, second, facts.size)
            assert isinstance(tilt, SphericalNoise | ClasswiseNoise)
            delta = tilt.delta(first) + hiding.delta(second)
            promise = spherical_promise(privacy, delta, tilt.total_variation + hiding.total_variation)
        else:
            delta, total = _deltas(facts, privacy)
            hiding = GaussianNoise.hiding(apart, gaussian_mu(second, HIDING_DELTA * delta), facts.size)
            promise = ApproxDP(
                epsilon=privacy.epsilon, delta=delta, total_variation=total, **taken_over(privacy)
            )
        return cls(
            regularization=regularization,
            tolerance=facts.solver_tolerance,
            constrained=facts.constrained,
            promises=(promise,),
            tilt=tilt,
            hiding=hiding,
            share=share,
        )

    @property
    def linear_term(self) -> VectorNoise:
        """The law of the linear term."""
        return self.tilt

    def train(self, problem: MarginProblem, pay: Callable[[], Stream]) -> Floats:
        """Pay, tilt, solve, hide."""
        stream = pay()
        if isinstance(self.tilt, ClasswiseNoise):
            problem.tilt, problem.tilt_error = self.tilt.draw_with_error(stream)
        else:
            problem.tilt = self.tilt.draw(stream)
        return self.hiding.hide(self.minimize(problem), stream)


def widest_tilt(facts: Facts, privacy: PureDP | ApproxDP, regularization: float) -> tuple[VectorNoise, float]:
    """Return the widest tilt that any share for the solver leads to, and the least regularization."""
    tilt_for = _spherical_tilt if isinstance(privacy, PureDP) else _gaussian_tilt
    tilt, _ = tilt_for(facts, privacy, regularization, (1 - LARGEST_SHARE) * privacy.epsilon * _DOWN)
    return tilt, split_epsilon(facts, regularization, privacy.epsilon)[1]


def _solver_error(facts: Facts, tilt: VectorNoise) -> float:
    """Return the norm of the gradient at what is computed, for the tilt before it was rounded."""
    return (facts.solver_tolerance + tilt.rounding / 2) * (1 + 1e-12)


def _spherical_tilt(
    facts: Facts, privacy: Promise, regularization: float, epsilon: float
) -> tuple[VectorNoise, float]:
    if facts.components == 1 and classwise_is_quieter(facts.n_classes, facts.coordinates):
        epsilon = without_classwise_error(epsilon, facts.coordinates, facts.n_classes)
        left, regularization = split_epsilon(facts, regularization, epsilon)
        rate = left / classwise_change(facts.n_classes) * _DOWN
        return ClasswiseNoise.with_rate(rate, facts.coordinates, facts.n_classes), regularization
    epsilon = without_density_error(epsilon, facts.size)
    left, regularization = split_epsilon(facts, regularization, epsilon)
    return SphericalNoise.with_rate(left / facts.change * _DOWN, facts.size), regularization


def _gaussian_tilt(
    facts: Facts, privacy: Promise, regularization: float, epsilon: float
) -> tuple[VectorNoise, float]:
    assert isinstance(privacy, ApproxDP)
    left, regularization = split_epsilon(facts, regularization, epsilon)
    delta = (1 - HIDING_DELTA) * _deltas(facts, privacy)[0]
    sd = gaussian_tilt_scale(facts.change, facts.mean, left, delta)
    return GaussianNoise(dimension=facts.size, sd=sd), regularization


def _deltas(facts: Facts, privacy: ApproxDP) -> tuple[float, float]:
    """Return what is left of delta after the sampler of two Gaussian vectors, and that sampler's distance."""
    total = 2 * facts.size * gaussian.TOTAL_VARIATION
    return delta_without_sampler(privacy, total), total
