"""Output perturbation: train exactly, then add noise for how far one row can move the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from discreet.learn.logistic.plan import Facts, Plan
from discreet.learn.logistic.sensitivity import gradient_change, minimizer_sensitivity
from discreet.learn.logistic.solver import minimize
from discreet.learn.perturbed.promises import gaussian_allowance, spherical_promise, taken_over
from discreet.learn.perturbed.vector import GaussianNoise, SphericalNoise, VectorNoise
from discreet.privacy import ApproxDP, GaussianDP, Promise, PureDP
from discreet.privacy.calibrate import mu_for_sd

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats
    from discreet.learn.logistic.problem import Problem
    from discreet.noise import Stream


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(Plan):
    """The minimizer with noise of density ``exp(-epsilon |x| / D)``, or with Gaussian noise.

    ``D`` is how far the computed minimizers of two neighbors can be apart, the solver's tolerance included.

    Privacy
    -------
    Under :class:`PureDP` the paper's mechanism, with the constant of :func:`gradient_change`; under
    :class:`ApproxDP` the analytic Gaussian mechanism, promised as its whole curve.

    Reference
    ---------
    docs/explanation/theorems/masked-sensitivity.md
    """

    name: ClassVar[str] = "output"

    noise: VectorNoise
    sensitivity: float
    """Before rounding to the lattice."""

    @classmethod
    def make(cls, facts: Facts, privacy: PureDP | ApproxDP, regularization: float, *, tight: bool) -> Plan:
        """Calibrate the noise from public facts."""
        change = gradient_change(facts.n_classes, regularization, tight=tight)
        apart = minimizer_sensitivity(change, regularization, facts.n_rows, facts.solver_tolerance)
        noise: VectorNoise
        promise: Promise
        if isinstance(privacy, PureDP):
            noise = SphericalNoise.hiding(apart, privacy.epsilon, facts.size)
            promise = spherical_promise(privacy, noise.delta(privacy.epsilon), noise.total_variation)
        else:
            noise = GaussianNoise.hiding(apart, gaussian_allowance(privacy, facts.size), facts.size)
            promise = GaussianDP(
                mu=mu_for_sd((apart + noise.rounding) * (1 + 2.0**-44), noise.sd),
                total_variation=noise.total_variation,
                **taken_over(privacy),
            )
        return cls(
            regularization=regularization,
            tolerance=facts.solver_tolerance,
            promises=(promise,),
            noise=noise,
            sensitivity=apart,
        )

    def train(self, problem: Problem, pay: Callable[[], Stream]) -> Floats:
        """Solve, pay, hide."""
        exact = minimize(problem, self.tolerance)
        return self.noise.hide(exact, pay())
