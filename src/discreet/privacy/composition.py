"""Composition of promises: exact totals by kind of promise, and their readings as (epsilon, delta).

Totals keep events apart by kind, because each kind has its own best rule: Gaussian events add
``mu**2 / 2``, concentrated ones ``rho``, pure ones ``epsilon``, points ``(epsilon, delta)``, floors add
Fisher information per column. Nothing is converted before it is added, and floats are never added.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError, PromiseError
from discreet.privacy.calibration._gaussian import gaussian_delta, gaussian_epsilon
from discreet.privacy.calibration._zcdp import zcdp_delta, zcdp_epsilon
from discreet.privacy.column_cost import ColumnCost
from discreet.privacy.promises import (
    ZCDP,
    ApproxDP,
    Arithmetic,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    Promise,
    PureDP,
)
from discreet.privacy.renyi import implied_delta, implied_epsilon, pure_cost
from discreet.privacy.rounding import (
    ZERO,
    Amount,
    exact,
    finite,
    float_down,
    float_up,
    sampling_delta,
    smallest_epsilon,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from discreet.schema.schema import Neighbors

AMOUNTS = (
    "gaussian", "concentrated", "pure", "pure_squares", "point_epsilon", "point_delta", "renyi",
    "total_variation",
)  # fmt: skip
"""Costs that a total adds up as exact amounts."""

_LISTS = ("covers", "unpromised", "assumes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """Exact costs of a set of charges; ``a + b`` is their composition.

    Attributes
    ----------
    charges : int
        Number of charges in the total.
    unit, neighbors : str or None
        Protected unit and neighbor relation, the same for every charge; None while there is none.
    covers : tuple of str or None
        Columns that every charge covers; None is the whole row.
    gaussian, concentrated : Amount
        Sums of ``mu**2 / 2`` over Gaussian events and of ``rho`` over other concentrated ones.
    pure, pure_squares : Amount
        Sums of ``epsilon`` and of ``epsilon**2 / 2`` over pure events.
    point_epsilon, point_delta : Amount
        Sums of epsilon and of delta over (epsilon, delta) events.
    renyi : Amount
        Sum of the Rényi divergence of pure and point events at `order`, in units of the order.
    order : float or None
        Order of the Rényi divergence, the same for every charge; None if it is not counted.
    total_variation : Amount
        Sum of the total variation of all samplers.
    columns : tuple of (str, ColumnCost)
        Fisher information given away by floors, for the columns about which every charge states it.
    unpromised : tuple of str
        Reasons why charges bound no epsilon; empty if all of them do.
    assumes, arithmetic
        Union of the assumptions of all charges; "real" if any charge was.

    Privacy
    -------
    Composition commutes, is associative and never shrinks. :meth:`epsilon_at` and :meth:`delta_at` take
    the smallest of several valid readings. That is a guarantee only where the costs were fixed before
    any answer was seen; where later queries depend on earlier answers, the guarantee is the cap of
    :class:`~discreet.ledger._caps.Caps`. Charges on different columns of one row are composed too: the
    unit is the row.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    charges: int = 0
    unit: str | None = None
    neighbors: Neighbors | None = None
    covers: tuple[str, ...] | None = None
    gaussian: Amount = ZERO
    concentrated: Amount = ZERO
    pure: Amount = ZERO
    pure_squares: Amount = ZERO
    point_epsilon: Amount = ZERO
    point_delta: Amount = ZERO
    renyi: Amount = ZERO
    order: float | None = None
    total_variation: Amount = ZERO
    columns: tuple[tuple[str, ColumnCost], ...] = ()
    unpromised: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    arithmetic: Arithmetic = "exact"

    @classmethod
    def from_promises(cls, promises: Promise | Iterable[Promise], *, order: float | None = None) -> Spending:
        """Return the cost of one charge.

        Parameters
        ----------
        promises : Promise or iterable of Promise
            Promise of the charge, or several as the parts of one event, such as Gaussian columns and a
            randomized label, which are added up and cover the union of their columns. An
            :class:`ErrorFloor` beside them is counted apart. Of two promises that follow from the same
            noise, give one.
        order : float, optional
            Order above 1 at which the Rényi divergence is counted; None does not count it.
        """
        parts = [promises] if isinstance(promises, Promise) else list(promises)
        if not parts or not all(isinstance(part, Promise) for part in parts):
            raise ParameterError(
                f"promises of a charge must be a promise or several, got {promises!r}. "
                "Give for instance PureDP(epsilon=0.1)."
            )
        # Floors, and results without a promise, bound no epsilon: they do not decide what a charge covers.
        private = [part for part in parts if not isinstance(part, (ErrorFloor, NoPromise))]
        total = cls(charges=1)
        for part in parts:
            total = total._merge(_promise_cost(part, order))
        reasons = {part.reason for part in parts if isinstance(part, NoPromise)}
        if not private and not reasons:
            reasons = {"an error floor bounds no epsilon"}
        covered: set[str] = set()
        for part in private:
            covered.update(part.covers or ())
        # One part about the whole row protects every column, whatever the other parts cover.
        whole = not private or any(part.covers is None for part in private)
        return dataclasses.replace(
            total,
            order=order,
            covers=None if whole else tuple(sorted(covered)),
            unpromised=tuple(sorted(reasons)),
        )

    def __add__(self, other: Spending) -> Spending:
        """Return the composition of two sets of charges, whose costs must be counted at one order.

        Costs add up, and what every charge covers and states remains.
        """
        if self.covers is None or other.covers is None:
            # None is the whole row, so that the intersection is the other one.
            covers = other.covers if self.covers is None else self.covers
        else:
            covers = tuple(sorted(set(self.covers) & set(other.covers)))
        both = self._merge(other, covers)
        if not self.charges or not other.charges:
            order = self.order if self.charges else other.order
            return both if order == both.order else dataclasses.replace(both, order=order)
        if self.order != other.order:
            raise ParameterError(
                f"order must be the same for all charges that are added up: {self.order!r} here, "
                f"{other.order!r} there. Compute the costs at the order of the limit."
            )
        if not both.columns:
            return both
        # A charge that states nothing about a column may have published it.
        stated = dict(self.columns).keys() & dict(other.columns).keys()
        return dataclasses.replace(both, columns=tuple(c for c in both.columns if c[0] in stated))

    def less(self, other: Spending) -> Spending:
        """Return the costs without those of charges that are part of them; what all of them cover stays."""
        return dataclasses.replace(
            self,
            charges=self.charges - other.charges,
            **{name: getattr(self, name).less(getattr(other, name)) for name in AMOUNTS},
        )

    def _merge(self, other: Spending, covers: tuple[str, ...] | None = None) -> Spending:
        """Add everything, as parts of one charge; charges intersect what is covered and stated."""
        for name in ("unit", "neighbors"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                raise PromiseError(
                    f"{name} must be the same for all charges that are added up: {mine!r} here, "
                    f"{theirs!r} there. Keep one ledger for each, or restate the promise."
                )
        columns = self.columns
        if other.columns:
            costs = dict(columns)
            for name, cost in other.columns:
                costs[name] = costs[name] + cost if name in costs else cost
            columns = tuple(sorted(costs.items()))
        # A proof in real numbers anywhere makes the total no stronger than that.
        real = "real" in (self.arithmetic, other.arithmetic)
        return Spending(
            charges=self.charges + other.charges,
            unit=self.unit or other.unit,
            neighbors=self.neighbors or other.neighbors,
            covers=covers,
            order=self.order,
            columns=columns,
            unpromised=_union(self.unpromised, other.unpromised),
            assumes=_union(self.assumes, other.assumes),
            arithmetic="real" if real else "exact",
            **{name: getattr(self, name) + getattr(other, name) for name in AMOUNTS},
        )

    @property
    def epsilon(self) -> float:
        """Sum of the epsilons of pure and point events, rounded up."""
        return float(self.linear)

    @property
    def delta(self) -> float:
        """Sum of the deltas of point events, rounded up; total variation not included."""
        return float(self.point_delta)

    @property
    def rho(self) -> float:
        """Sum of rho over Gaussian and other concentrated events, rounded up."""
        return float(self.gaussian + self.concentrated)

    @property
    def mu(self) -> float:
        """The mu of all Gaussian events as one, rounded up."""
        return float_up((self.gaussian + self.gaussian).root_up())

    @property
    def linear(self) -> Amount:
        """Sum of the epsilons of pure and point events."""
        return self.pure + self.point_epsilon

    @property
    def pooled_rho(self) -> Amount:
        """Sum of rho over all events but the points; a pure event counts ``epsilon**2 / 2``."""
        return self.gaussian + self.concentrated + self.pure_squares

    @property
    def divergence(self) -> Amount:
        """Rényi divergence of all events at `order`, in units of the order."""
        return self.gaussian + self.concentrated + self.renyi

    def delta_at(self, epsilon: float) -> float:
        """Return the smallest delta at `epsilon` that one of the readings proves, rounded up.

        Notes
        -----
        Three readings, each plus the deltas of points and the samplers' share: the curve of the Gaussian or
        concentrated events at what epsilon leaves beyond all pure and point epsilons; the zCDP curve of
        all events but the points (a pure one as ``epsilon**2 / 2``) beyond the points' epsilons alone; and
        the Rényi divergence at the one order at which it is counted.
        """
        self._check_private()
        epsilon = finite(
            "Spending.delta_at", "epsilon", epsilon, least=0.0,
            way_out="Zero asks for the total variation between neighbors.",
        )  # fmt: skip
        # Pure and point events alone have the curve of randomized response.
        if not self.rho:
            return self._delta_without_rho(epsilon)
        extra_delta = self.point_delta.exact + sampling_delta(self.total_variation.exact, epsilon)
        readings = [Fraction(1), *self._renyi_deltas(epsilon)]
        # Rounded down: at a smaller epsilon the delta read is larger.
        epsilon_beyond_linear = float_down(exact(epsilon) - self.linear.exact)
        if epsilon_beyond_linear >= 0:
            if self.concentrated:
                readings.append(exact(zcdp_delta(self.rho, epsilon_beyond_linear)))
            else:
                readings.append(exact(gaussian_delta(epsilon_beyond_linear, self.mu)))
        epsilon_beyond_points = float_down(exact(epsilon) - self.point_epsilon.exact)
        if epsilon_beyond_points >= 0:
            readings.append(exact(zcdp_delta(float(self.pooled_rho), epsilon_beyond_points)))
        # Costs fixed beforehand: every reading holds, hence the smallest (Theorem 1).
        return min(1.0, float_up(min(readings) + extra_delta))

    def _delta_without_rho(self, epsilon: float) -> float:
        """Return delta at `epsilon` for totals of pure and point events alone."""
        if not self.linear:
            return min(1.0, float_up(sampling_delta(self.total_variation.exact, epsilon)))
        tau = float(self.total_variation)
        total_epsilon = float(self.linear)
        basic: Promise = PureDP(epsilon=total_epsilon, total_variation=tau)
        if self.point_delta:
            # ApproxDP refuses a delta of 1, which promises nothing.
            if self.point_delta.exact >= 1:
                return 1.0
            basic = ApproxDP(epsilon=total_epsilon, delta=float(self.point_delta), total_variation=tau)
        extra_delta = self.point_delta.exact + sampling_delta(self.total_variation.exact, epsilon)
        readings = [
            basic.delta_at(epsilon),
            *(float_up(x + extra_delta) for x in self._renyi_deltas(epsilon)),
        ]
        epsilon_beyond_points = float_down(exact(epsilon) - self.point_epsilon.exact)
        if self.pure and epsilon_beyond_points >= 0:
            readings.append(
                float_up(exact(zcdp_delta(float(self.pooled_rho), epsilon_beyond_points)) + extra_delta)
            )
        return min(1.0, *readings)

    def _renyi_deltas(self, epsilon: float) -> list[Fraction]:
        """Return the delta at `epsilon` that the Rényi divergence implies, if it is counted."""
        if self.order is None:
            return []
        return [implied_delta(self.divergence.exact, exact(epsilon), exact(self.order))]

    def epsilon_at(self, delta: float) -> float:
        """Return the smallest epsilon at `delta` that the readings prove, rounded up."""
        self._check_private()
        delta = finite(
            "Spending.epsilon_at", "delta", delta, least=0.0, below=1.0,
            way_out="A delta of 1 promises nothing.",
        )  # fmt: skip
        return smallest_epsilon(self._ideal_epsilon, delta, self.total_variation.exact)

    def _ideal_epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at `delta` for perfect samplers, over the same readings as delta_at."""
        rest = exact(delta) - self.point_delta.exact
        # Gaussian noise has no finite epsilon at delta 0, so nothing may be left over for it.
        if rest < 0 or (self.rho and rest == 0):
            raise PromiseError(
                f"delta must be above {self.delta:g}, the sum of the point events' deltas, to read "
                f"these books, was {delta:g} net of the samplers' total variation. "
                "Read them at a larger delta."
            )
        # Rounded down: at a smaller delta the epsilon read is larger.
        delta_left = float_down(rest)
        readings = []
        if not self.rho:
            readings.append(self.linear.exact)
        elif delta_left > 0:
            curve = (
                zcdp_epsilon(self.rho, delta_left)
                if self.concentrated
                else gaussian_epsilon(self.mu, delta_left)
            )
            readings.append(self.linear.exact + exact(curve))
        # Of Gaussian events alone the exact curve is the smallest.
        only_gaussian = self.gaussian and self.pooled_rho == self.gaussian and not self.linear
        if delta_left > 0 and self.pooled_rho and not only_gaussian:
            readings.append(
                self.point_epsilon.exact + exact(zcdp_epsilon(float(self.pooled_rho), delta_left))
            )
        if delta_left > 0 and self.order is not None and not only_gaussian:
            readings.append(implied_epsilon(self.divergence.exact, exact(delta_left), exact(self.order)))
        return float_up(min(readings))

    def promise(self, delta: float | None = None) -> Promise:
        """Return the total as one promise.

        Parameters
        ----------
        delta : float, optional
            Delta at which to read the total as ApproxDP; None keeps the kind of the charges, and is an
            error where points are mixed with other kinds.

        Privacy
        -------
        A guarantee for costs fixed beforehand; see the class.
        """
        if self.unpromised:
            return NoPromise("; ".join(self.unpromised))
        self._check_private()
        if not self.charges:
            return NoPromise("nothing has been charged")
        common: dict[str, Any] = {
            "unit": self.unit,
            "neighbors": self.neighbors,
            "covers": self.covers,
            "assumes": self.assumes,
            "arithmetic": self.arithmetic,
        }
        if delta is not None:
            return ApproxDP(epsilon=self.epsilon_at(delta), delta=delta, **common)
        # At a delta the samplers are paid from it above; here the promise has to carry them.
        common["total_variation"] = float(self.total_variation)
        used = {name for name in AMOUNTS if getattr(self, name)} - {"renyi", "total_variation"}
        if used == {"gaussian"}:
            return GaussianDP(mu=self.mu, **common)
        if used == {"pure", "pure_squares"}:
            return PureDP(epsilon=self.epsilon, **common)
        if used == {"point_epsilon", "point_delta"} and self.delta < 1:
            return ApproxDP(epsilon=self.epsilon, delta=self.delta, **common)
        if not used & {"point_epsilon", "point_delta"}:
            return ZCDP(rho=float(self.pooled_rho), **common)
        raise PromiseError(
            "delta must be given to read books that mix points with other kinds, was None. "
            "Ask for instance for promise(delta=1e-6)."
        )

    def floors(self) -> dict[str, float]:
        """Return the van Trees floor of each column after all charges, rounded down.

        Left out are columns for which some charge states neither a Fisher information with a bound nor that
        the column is unpublished (no floor is proven any more), and columns that were never published.
        """
        return {
            name: floor for name, cost in self.columns if (floor := cost.floor(cost.information)) is not None
        }

    def _check_private(self) -> None:
        if self.unpromised:
            raise PromiseError(
                f"charges must all promise differential privacy to be read as an epsilon, and some "
                f"do not ({'; '.join(self.unpromised)}). No epsilon holds for the total."
            )
        if self.covers == ():
            raise PromiseError(
                "charges must share a column that all of them cover to be read as one promise, and "
                "these share none. Charge promises about the whole row (covers=None)."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; amounts are decimals as text, so that they stay exact."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _NAMES}
        for name in AMOUNTS:
            values[name] = str(values[name])
        for name in _LISTS:
            values[name] = None if values[name] is None else list(values[name])
        values["columns"] = {
            name: [None if x is None else str(x) for x in (cost.information, cost.prior)]
            for name, cost in self.columns
        }
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Spending:
        """Return the total that :meth:`to_dict` wrote."""
        if set(values) != set(_NAMES):
            raise ParameterError(
                f"keys of Spending must be {', '.join(sorted(_NAMES))}, got "
                f"{', '.join(sorted(values))}. Write them with to_dict()."
            )
        fields = dict(values)
        for name in AMOUNTS:
            fields[name] = Amount.parse(fields[name])
        for name in _LISTS:
            fields[name] = None if fields[name] is None else tuple(fields[name])
        fields["columns"] = tuple(
            (name, ColumnCost(*(None if x is None else Amount.parse(x) for x in pair)))
            for name, pair in sorted(fields["columns"].items())
        )
        return cls(**fields)


_NAMES = tuple(item.name for item in dataclasses.fields(Spending))


def _union(first: tuple[str, ...], second: tuple[str, ...]) -> tuple[str, ...]:
    """Return texts of two sorted tuples, sorted, each once; a ledger mostly adds up equal ones."""
    return first if first == second else tuple(sorted({*first, *second}))


def _promise_cost(promise: Promise, order: float | None) -> Spending:
    """Return the cost of one promise, in the amount that its kind adds up."""
    if isinstance(promise, NoPromise):
        return Spending(assumes=promise.assumes)
    amounts: dict[str, Any] = {}
    columns: tuple[tuple[str, ColumnCost], ...] = ()
    neighbors: Neighbors | None = promise.neighbors
    tau = Amount.rounded_up(promise.total_variation)
    match promise:
        case PureDP():
            epsilon = exact(promise.epsilon)
            amounts = {"pure": Amount.rounded_up(epsilon), "pure_squares": Amount.rounded_up(epsilon**2 / 2)}
        case ApproxDP():
            amounts = {
                "point_epsilon": Amount.rounded_up(promise.epsilon),
                "point_delta": Amount.rounded_up(promise.delta),
            }
        case ZCDP():
            amounts = {"concentrated": Amount.rounded_up(promise.rho)}
        case GaussianDP():
            amounts = {"gaussian": Amount.rounded_up(exact(promise.mu) ** 2 / 2)}
        case ErrorFloor():
            costs = {name: ColumnCost.from_floor(floor) for name, floor in promise.entries}
            costs |= dict.fromkeys(promise.unpublished, ColumnCost(ZERO, ZERO))
            columns = tuple(sorted(costs.items()))
            # A floor has no neighbors, and its error is already lowered by the sampler's total variation.
            neighbors, tau = None, ZERO
        case _:
            raise PromiseError(
                f"promise of a charge must be of a kind with a composition rule, got "
                f"{type(promise).__name__}. Charge what its noise costs: GaussianDP(mu) or PureDP(epsilon)."
            )
    # Gaussian and concentrated events cost their rho at every order, and are counted as that.
    if order is not None and isinstance(promise, PureDP | ApproxDP):
        amounts["renyi"] = Amount.rounded_up(pure_cost(exact(promise.epsilon), exact(order)))
    return Spending(
        unit=promise.unit,
        neighbors=neighbors,
        total_variation=tau,
        columns=columns,
        assumes=tuple(sorted(promise.assumes)),
        arithmetic=promise.arithmetic,
        **amounts,
    )
