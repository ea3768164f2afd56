"""What a mechanism is before it sees a row: public facts in, a regularization, noise and a promise out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from discreet.learn.logistic.problem import gradient_descent, minimize

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats
    from discreet.learn.logistic.problem import Problem
    from discreet.learn.perturbation._solvers import GradientDescent
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
    tolerance : float or None
        Of the solver; None until the regularization is known, on which it depends.
    max_rows_per_unit : int
        The number of rows that are added up is this many times ``n_rows``, and less than that many more.
    """

    n_rows: int
    n_classes: int
    dimension: int
    tolerance: float | None = None
    max_rows_per_unit: int = 1

    @property
    def size(self) -> int:
        """Numbers that are released: one weight per coordinate, for all classes but one."""
        return (self.n_classes - 1) * self.dimension

    def descent(self, regularization: float, tilt: float) -> GradientDescent:
        """Return what gradient steps are certain to reach, with a linear term of up to ``tilt / n_rows``."""
        return gradient_descent(
            n_rows=(self.n_rows + 1) * self.max_rows_per_unit,
            dimension=self.dimension,
            n_classes=self.n_classes,
            regularization=regularization,
            tilt=tilt / self.n_rows,
        )

    @property
    def solver_tolerance(self) -> float:
        """The tolerance, once it is known."""
        assert self.tolerance is not None
        return self.tolerance


@dataclass(frozen=True, kw_only=True)
class Plan(ABC):
    """A mechanism, calibrated.

    Attributes
    ----------
    regularization : float
        The one that is used; objective perturbation may have to raise it.
    tolerance : float
        What the solver must reach.
    promises : tuple of Promise
        What will hold.
    """

    name: ClassVar[str]

    regularization: float
    tolerance: float
    promises: tuple[Promise, ...]

    @property
    def longest_tilt(self) -> float:
        """Bound on the norm of the linear term, over all rows."""
        return 0.0

    @abstractmethod
    def train(self, problem: Problem, pay: Callable[[], Stream]) -> Floats:
        """Return what is released; ``pay`` charges for it and returns the source of its noise."""


@dataclass(frozen=True, kw_only=True)
class Exact(Plan):
    """No noise and no promise."""

    name: ClassVar[str] = "exact"

    @classmethod
    def make(cls, facts: Facts, privacy: NoPromise, regularization: float) -> Plan:
        """Take the promise as it is."""
        return cls(regularization=regularization, tolerance=facts.solver_tolerance, promises=(privacy,))

    def train(self, problem: Problem, pay: Callable[[], Stream]) -> Floats:
        """Solve, and record that it was done."""
        exact = minimize(problem, self.tolerance)
        pay()
        return exact
