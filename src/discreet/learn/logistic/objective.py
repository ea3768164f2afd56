"""Objective perturbation: train on a randomly tilted objective, then hide how exactly it was solved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from discreet.learn.logistic.plan import Facts, Plan
from discreet.learn.logistic.problem import minimize
from discreet.learn.logistic.sensitivity import (
    LARGEST_BINARY,
    LARGEST_SOFTMAX,
    jacobian_cost,
    mean_supremum,
    regularization_for_jacobian,
)
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
    from discreet.learn.logistic.problem import Problem
    from discreet.noise import Stream

_DOWN = 1 - 2.0**-40


def tilt_change(n_classes: int) -> float:
    """Return how far apart the tilts can be that lead two neighbors to the same minimizer.

    The minimizer may be any vector here, so that no tighter constant than the largest one holds.
    """
    return LARGEST_BINARY if n_classes == 2 else LARGEST_SOFTMAX


def split_epsilon(n_classes: int, n_rows: int, regularization: float, epsilon: float) -> tuple[float, float]:
    """Return the epsilon that is left for the tilt, and the regularization to use.

    At most half of epsilon goes to the change of volume; where it would take more, the regularization is
    raised.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """
    cost = jacobian_cost(n_classes, regularization, n_rows)
    if cost > epsilon / 2:
        regularization = regularization_for_jacobian(n_classes, epsilon / 2, n_rows)
        cost = jacobian_cost(n_classes, regularization, n_rows)
    return epsilon - cost, regularization


def tilt_scale(n_classes: int, epsilon: float, delta: float) -> float:
    """Return the least standard deviation of a Gaussian tilt that is (epsilon, delta)-private.

    Parameters
    ----------
    n_classes : int
        At least 2.
    epsilon : float
        What is left after the change of volume.
    delta : float
        Between 0 and 1.

    Returns
    -------
    float
        The least ``s`` with ``gaussian_delta(epsilon - m / s, G / s) <= delta`` and
        ``epsilon - m / s >= G**2 / (2 s**2)``; ``G`` and ``m`` as in :func:`tilt_change` and
        :func:`mean_supremum`. Found by bisection, rounded up.

    Privacy
    -------
    The change of the tilt depends on the noise itself, so that the plain Gaussian mechanism does not apply:
    ``m`` pays for that.

    Reference
    ---------
    docs/explanation/theorems/masked-objective.md
    """
    return gaussian_tilt_scale(tilt_change(n_classes), mean_supremum(n_classes), epsilon, delta)


@dataclass(frozen=True, kw_only=True)
class ObjectivePerturbation(Plan):
    """The minimizer of the objective plus ``b . w / n_rows``, ``b`` random, and noise for the solver's error.

    Privacy
    -------
    The exact minimizer has a density, and its logarithm changes by at most ``epsilon`` between neighbors:
    by the tilt's law and by the change of volume. What is computed is near it, by the solver's tolerance
    and by the lattice on which ``b`` was drawn; a small part of epsilon hides where.

    Reference
    ---------
    Chaudhuri, Monteleoni and Sarwate (2011), with the sharp Jacobian; Kifer, Smith and Thakurta (2012);
    Iyengar et al. (2019). docs/explanation/theorems/masked-objective.md
    """

    name: ClassVar[str] = "objective"

    tilt: VectorNoise
    hiding: VectorNoise
    share: float
    """Part of epsilon that hides the solver's error."""
    n_rows: int
    """Of the table, by which the tilt is divided."""

    @classmethod
    def make(cls, facts: Facts, privacy: PureDP | ApproxDP, regularization: float) -> Plan:
        """Calibrate both noises from public facts."""
        tilt_for = _spherical_tilt if isinstance(privacy, PureDP) else _gaussian_tilt
        share = LEAST_SHARE
        for _ in range(3):
            tilt, _ = tilt_for(facts, privacy, regularization, (1 - share) * privacy.epsilon)
            # In units of what the tilt moves. Hidden with a share of epsilon it weighs 1 / share times
            # this, and the share is lost for the tilt: at the root both losses are equal.
            error = 2 * _solver_error(facts, tilt) * facts.n_rows / tilt_change(facts.n_classes)
            share = min(max(math.sqrt(error), LEAST_SHARE), LARGEST_SHARE)
        second = share * privacy.epsilon
        first = (privacy.epsilon - second) * _DOWN
        tilt, regularization = tilt_for(facts, privacy, regularization, first)
        apart = 2 * _solver_error(facts, tilt) / regularization * (1 + 1e-12)
        hiding: VectorNoise
        promise: Promise
        if isinstance(privacy, PureDP):
            hiding = SphericalNoise.hiding(apart, second, facts.size)
            assert isinstance(tilt, SphericalNoise)
            delta = tilt.delta(first) + hiding.delta(second)
            promise = spherical_promise(privacy, delta, tilt.total_variation + hiding.total_variation)
        else:
            delta, total = _deltas(facts, privacy)
            hiding = GaussianNoise.hiding(apart, gaussian_mu(second, HIDING_DELTA * delta), facts.size)
            common = taken_over(privacy)
            promise = ApproxDP(epsilon=privacy.epsilon, delta=delta, total_variation=total, **common)
        return cls(
            regularization=regularization,
            tolerance=facts.solver_tolerance,
            promises=(promise,),
            tilt=tilt,
            hiding=hiding,
            share=share,
            n_rows=facts.n_rows,
        )

    @property
    def longest_tilt(self) -> float:
        """Bound on the norm of the linear term, over all rows."""
        return self.tilt.longest

    def train(self, problem: Problem, pay: Callable[[], Stream]) -> Floats:
        """Pay, tilt, solve, hide."""
        stream = pay()
        problem.tilt = self.tilt.draw(stream) / self.n_rows
        return self.hiding.hide(minimize(problem, self.tolerance), stream)


def widest_tilt(facts: Facts, privacy: PureDP | ApproxDP, regularization: float) -> tuple[VectorNoise, float]:
    """Return the widest tilt that any share for the solver leads to, and the least regularization."""
    tilt_for = _spherical_tilt if isinstance(privacy, PureDP) else _gaussian_tilt
    tilt, _ = tilt_for(facts, privacy, regularization, (1 - LARGEST_SHARE) * privacy.epsilon * _DOWN)
    return tilt, split_epsilon(facts.n_classes, facts.n_rows, regularization, privacy.epsilon)[1]


def _solver_error(facts: Facts, tilt: VectorNoise) -> float:
    """Return the norm of the gradient at what is computed, for the tilt before it was rounded."""
    return (facts.solver_tolerance + tilt.rounding / (2 * facts.n_rows)) * (1 + 1e-12)


def _spherical_tilt(
    facts: Facts, privacy: Promise, regularization: float, epsilon: float
) -> tuple[VectorNoise, float]:
    epsilon = without_density_error(epsilon, facts.size)
    left, regularization = split_epsilon(facts.n_classes, facts.n_rows, regularization, epsilon)
    return SphericalNoise.with_rate(left / tilt_change(facts.n_classes) * _DOWN, facts.size), regularization


def _gaussian_tilt(
    facts: Facts, privacy: Promise, regularization: float, epsilon: float
) -> tuple[VectorNoise, float]:
    assert isinstance(privacy, ApproxDP)
    left, regularization = split_epsilon(facts.n_classes, facts.n_rows, regularization, epsilon)
    delta = (1 - HIDING_DELTA) * _deltas(facts, privacy)[0]
    return GaussianNoise(dimension=facts.size, sd=tilt_scale(facts.n_classes, left, delta)), regularization


def _deltas(facts: Facts, privacy: ApproxDP) -> tuple[float, float]:
    """Return what is left of delta after the sampler of two Gaussian vectors, and that sampler's distance."""
    total = 2 * facts.size * gaussian.TOTAL_VARIATION
    return delta_without_sampler(privacy, total), total
