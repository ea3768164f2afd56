"""Output perturbation: train exactly, then add noise for how far one row can move the matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from discreet.learn.large_margin._bounds import minimizer_sensitivity
from discreet.learn.large_margin.plan import Facts, Plan
from discreet.learn.perturbation.noise import output_noise

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats
    from discreet.learn.large_margin._problem import MarginProblem
    from discreet.learn.perturbation.noise import VectorNoise
    from discreet.noise import Stream
    from discreet.privacy import ApproxDP, PureDP


@dataclass(frozen=True, kw_only=True)
class OutputPerturbation(Plan):
    """The part of the minimizer that sums to zero, with spherical or with Gaussian noise.

    Privacy
    -------
    The distance between the computed minimizers of two neighbors is at most ``(sqrt(2) C + 2 tolerance) /
    regularization``. Under :class:`PureDP` noise has a density in proportion to ``exp(-epsilon |x| / D)``,
    under :class:`ApproxDP` it is Gaussian and promised as its whole curve. It needs no second derivative.

    Reference
    ---------
    docs/explanation/theorems/large-margin-sensitivity.md
    """

    name: ClassVar[str] = "output"

    noise: VectorNoise
    sensitivity: float
    """Before rounding to the lattice."""

    @classmethod
    def make(cls, facts: Facts, privacy: PureDP | ApproxDP, regularization: float) -> Plan:
        """Calibrate the noise from public facts."""
        apart = minimizer_sensitivity(facts.change, regularization, facts.solver_tolerance)
        noise, promise = output_noise(apart, privacy, facts.size)
        return cls(
            regularization=regularization,
            tolerance=facts.solver_tolerance,
            constrained=facts.constrained,
            promises=(promise,),
            noise=noise,
            sensitivity=apart,
        )

    def train(self, problem: MarginProblem, pay: Callable[[], Stream]) -> Floats:
        """Solve, pay, hide."""
        exact = self.minimize(problem)
        return self.noise.hide(exact, pay())
