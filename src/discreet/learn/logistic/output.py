"""Output perturbation: train exactly, then add noise for how far one row can move the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from discreet.learn.logistic.plan import Facts, Plan
from discreet.learn.logistic.problem import minimize
from discreet.learn.logistic.sensitivity import gradient_change, minimizer_sensitivity
from discreet.learn.perturbation.noise import output_noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats
    from discreet.learn.logistic.problem import Problem
    from discreet.learn.perturbation.noise import VectorNoise
    from discreet.noise import Stream
    from discreet.privacy import ApproxDP, PureDP


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
        noise, promise = output_noise(apart, privacy, facts.size)
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
