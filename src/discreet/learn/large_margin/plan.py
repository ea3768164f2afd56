"""What a mechanism is before it sees a row: public facts in, a regularization, noise and a promise out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from discreet.learn.large_margin._bounds import (
    ClasswiseNoise,
    gradient_change,
    jacobian_cost,
    mean_supremum,
    regularization_for_jacobian,
)
from discreet.learn.large_margin._problem import gradient_descent, n_coordinates
from discreet.learn.large_margin._solver import minimize

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats
    from discreet.learn.large_margin._problem import MarginProblem
    from discreet.learn.perturbation._solvers import GradientDescent
    from discreet.learn.perturbation.noise import VectorNoise
    from discreet.noise import Stream
    from discreet.privacy import NoPromise, Promise


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything public that noise depends on.

    Attributes
    ----------
    n_rows, n_classes : int
        Of the table.
    dimension : int
        Coordinates of an embedded row.
    smoothing : float
        Of the hinge.
    components : int
        Matrices for each class.
    constrained : bool
        Whether matrices must be positive semidefinite.
    trace : float
        Weight of the trace, which acts where matrices must be positive semidefinite.
    tolerance : float or None
        Of the solver; None until the regularization is known, on which it depends.
    """

    n_rows: int
    n_classes: int
    dimension: int
    smoothing: float = 1.0
    components: int = 1
    constrained: bool = False
    trace: float = 0.0
    tolerance: float | None = None

    @property
    def coordinates(self) -> int:
        """Numbers in one matrix."""
        return n_coordinates(self.dimension)

    @property
    def size(self) -> int:
        """Numbers that are released: those of all matrices but one."""
        return (self.n_classes * self.components - 1) * self.coordinates

    @property
    def change(self) -> float:
        """How far one row's derivative can move."""
        return gradient_change(self.n_classes, self.components)

    @property
    def mean(self) -> float:
        """The mean that a Gaussian tilt pays for."""
        return mean_supremum(self.n_classes, self.components)

    @property
    def solver_tolerance(self) -> float:
        """The tolerance, once it is known."""
        assert self.tolerance is not None
        return self.tolerance

    def descent(self, regularization: float, tilt: VectorNoise | None) -> GradientDescent:
        """Return what gradient steps are certain to reach, whatever is drawn from the tilt."""
        traced = abs(self.trace) * math.sqrt(self.n_classes * self.components * (self.dimension - 1))
        longest = 0.0 if tilt is None else tilt.longest
        return gradient_descent(
            n_rows=self.n_rows,
            p=self.dimension,
            n_classes=self.n_classes,
            components=self.components,
            smoothing=self.smoothing,
            regularization=regularization,
            linear=longest + traced,
            tilt_error=tilt.float_error(longest) if isinstance(tilt, ClasswiseNoise) else 0.0,
            constrained=self.constrained,
        )

    def jacobian_cost(self, regularization: float) -> float:
        """Return what the change of volume costs."""
        return jacobian_cost(self.n_classes, self.smoothing, regularization, self.components)

    def regularization_for(self, cost: float) -> float:
        """Return the least regularization for a cost of the change of volume."""
        return regularization_for_jacobian(self.n_classes, self.smoothing, cost, self.components)


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """A mechanism, calibrated.

    Attributes
    ----------
    regularization : float
        The one that is used; objective perturbation may have to raise it.
    tolerance : float
        What the solver must reach.
    constrained : bool
        Whether matrices must be positive semidefinite.
    promises : tuple of Promise
        What will hold.
    """

    name: ClassVar[str]

    regularization: float
    tolerance: float
    constrained: bool
    promises: tuple[Promise, ...]

    @property
    def linear_term(self) -> VectorNoise | None:
        """The law of the linear term, if there is one."""
        return None

    @abstractmethod
    def train(self, problem: MarginProblem, pay: Callable[[], Stream]) -> Floats:
        """Return what is released; ``pay`` charges for it and returns the source of its noise."""

    def minimize(self, problem: MarginProblem) -> Floats:
        """Return the minimizer, as exactly as was promised."""
        return minimize(problem, self.tolerance, constrained=self.constrained)


@dataclass(frozen=True, kw_only=True)
class Exact(Plan):
    """No noise and no promise."""

    name: ClassVar[str] = "exact"

    @classmethod
    def make(cls, facts: Facts, privacy: NoPromise, regularization: float) -> Plan:
        """Take the promise as it is."""
        return cls(
            regularization=regularization,
            tolerance=facts.solver_tolerance,
            constrained=facts.constrained,
            promises=(privacy,),
        )

    def train(self, problem: MarginProblem, pay: Callable[[], Stream]) -> Floats:
        """Solve, and record that it was done."""
        exact = self.minimize(problem)
        pay()
        return exact
