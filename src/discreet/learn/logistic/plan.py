"""What a mechanism is before it sees a row: public facts in, a regularization, noise and a promise out."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from discreet.errors import PromiseError
from discreet.learn.logistic.solver import minimize
from discreet.noise import gaussian
from discreet.privacy import ApproxDP, NoPromise, Promise, PureDP
from discreet.privacy.calibrate import gaussian_mu

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._typing import Floats
    from discreet.learn.logistic.problem import Problem
    from discreet.noise import Stream


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
    """

    n_rows: int
    n_classes: int
    dimension: int
    tolerance: float | None = None

    @property
    def size(self) -> int:
        """Numbers that are released: one weight per coordinate, for all classes but one."""
        return (self.n_classes - 1) * self.dimension

    @property
    def solver_tolerance(self) -> float:
        """The tolerance, once it is known."""
        assert self.tolerance is not None
        return self.tolerance

    @staticmethod
    def common(privacy: Promise) -> dict[str, Any]:
        """Return what a promise takes over from the one that was asked for."""
        assumes = (
            *privacy.assumes,
            f"each {privacy.unit} has one row",
            "the number of rows, the bounds and the list of classes are public",
        )
        return {"unit": privacy.unit, "neighbors": privacy.neighbors, "assumes": assumes}


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


def spherical_promise(privacy: PureDP, delta: float, total_variation: float) -> Promise:
    """Return what spherical noise promises: a point event, pure in one dimension."""
    common = {**Facts.common(privacy), "total_variation": total_variation}
    if delta == 0.0:
        return PureDP(epsilon=privacy.epsilon, **common)
    return ApproxDP(epsilon=privacy.epsilon, delta=delta, **common)


def delta_without_sampler(privacy: ApproxDP, total_variation: float) -> float:
    """Return what is left of delta once the sampler's distance is paid."""
    distance = 2 * (1 + math.exp(min(privacy.epsilon, 700.0))) * total_variation
    if distance >= privacy.delta / 2:
        raise PromiseError(
            f"delta of privacy must be well above the sampler's {distance:.2g} at this epsilon, was "
            f"{privacy.delta:g}. Ask for a larger delta or a smaller epsilon."
        )
    # A little less, so that the promise can be read at the delta that was asked for.
    return (privacy.delta - distance) * (1 - 2.0**-38)


def gaussian_allowance(privacy: ApproxDP, size: int) -> float:
    """Return the largest mu of Gaussian noise on ``size`` numbers."""
    return gaussian_mu(privacy.epsilon, delta_without_sampler(privacy, size * gaussian.TOTAL_VARIATION))
