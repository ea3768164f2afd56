"""Accounts: caps and spending of one scope, as what is used, what a question takes and what still fits."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import BudgetExceeded, PromiseError
from discreet.privacy.composition import Spending
from discreet.privacy.promises import ZCDP, ApproxDP, GaussianDP, Promise, PureDP
from discreet.privacy.rounding import exact, float_down, float_up, four_digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.ledger._caps import Caps

# What is scaled with the noise of a promise, and by which power of the factor.
_PARAMETERS: dict[type[Promise], tuple[str, int]] = {
    GaussianDP: ("mu", 1),
    PureDP: ("epsilon", 1),
    ApproxDP: ("epsilon", 1),
    ZCDP: ("rho", 2),
}

_LEAST_SCALE = 40  # halvings after which nothing is said to fit


@lru_cache(maxsize=512)
def promise_cost(promises: tuple[Promise, ...], order: float | None) -> Spending:
    """Return the cost of one charge at an order, cached, since few promises are charged often."""
    return Spending.from_promises(promises, order=order)


def plan_cost(planned: Iterable[Promise], order: float | None) -> Spending | None:
    """Return the cost of charges to come, each of one promise; None if there are none."""
    costs = [promise_cost((promise,), order) for promise in planned]
    return sum(costs, Spending()) if costs else None


@dataclass(frozen=True, slots=True)
class Account:
    """Caps and spending of an owner or of the total, at one moment.

    Attributes
    ----------
    caps : Caps or None
        Caps of the scope; None without a limit.
    spent : Spending
        Sum of the charges so far.
    """

    caps: Caps | None
    spent: Spending

    @property
    def order(self) -> float | None:
        """Order at which the limit counts the Rényi divergence of charges; None if it does not."""
        return None if self.caps is None else self.caps.order

    @property
    def left(self) -> dict[str, float] | None:
        """Amount left in each currency, rounded down; None without a limit."""
        return None if self.caps is None else self.caps.left(self.spent)

    @property
    def used(self) -> dict[str, float | None] | None:
        """Share of the budget that is used, and the epsilon so far, of which limit and at which delta."""
        if self.caps is None:
            return None
        return self._as_use(self.caps.share(self.spent), self.caps.epsilon(self.spent))

    def takes(self, cost: Sequence[Promise]) -> dict[str, float | None] | None:
        """Return the share of the budget that charges would take, and the epsilon that they would add.

        Parameters
        ----------
        cost : sequence of Promise
            Promises of the charges, each charged apart.

        Returns
        -------
        dict or None
            ``share``, ``epsilon``, ``limit`` and ``delta``, as :attr:`used`; None without a limit or
            without charges. A first charge that fits only if it is read exactly takes the whole budget.
        """
        added = plan_cost(cost, self.order)
        if self.caps is None or added is None:
            return None
        share = 1.0 if self._reads_exactly(added) else self.caps.cost_share(added)
        return self._as_use(share, self._added_epsilon(self.spent, added))

    def took(self, cost: Sequence[Promise]) -> dict[str, float | None] | None:
        """Return the share of the budget that the last charges took, and the epsilon that they added.

        Parameters
        ----------
        cost : sequence of Promise
            Promises of the last charges, each charged apart.

        Returns
        -------
        dict or None
            As :meth:`takes` returned it before the charges; None without a limit or without charges.
        """
        added = plan_cost(cost, self.order)
        if self.caps is None or added is None:
            return None
        before = self.spent.less(added)
        share = self.caps.cost_share(added)
        if self.caps.plan is not None:  # the first charge took everything, and those of its plan nothing more
            share = 0.0 if before.charges else 1.0
        return self._as_use(share, self._added_epsilon(before, added))

    def _added_epsilon(self, before: Spending, added: Spending) -> float | None:
        """Return by how much charges raise the epsilon at the limit's delta, rounded up; None without one."""
        assert self.caps is not None
        try:
            first, last = self.caps.epsilon(before), self.caps.epsilon(before + added)
        except PromiseError:  # of another unit, or about other columns
            return None
        if first is None or last is None:
            return None
        return float_up(max(exact(last) - exact(first), exact(0)))

    def _reads_exactly(self, added: Spending) -> bool:
        """Return whether charges would be the first, and be read exactly with their plan: they take all."""
        assert self.caps is not None
        return self.caps.plan is None and self.caps.reserve(self.spent, added).plan is not None

    def share_of(self, cost: Sequence[Promise]) -> float:
        """Return the part of the whole budget that charges take, whatever was spent before.

        Parameters
        ----------
        cost : sequence of Promise
            Promises of the charges, each charged apart.

        Returns
        -------
        float
            0 without a limit; infinite if the limit cannot add up charges of this kind.
        """
        added = plan_cost(cost, self.order)
        if self.caps is None or added is None:
            return 0.0
        return self.caps.share_of(added)

    def _as_use(self, share: float, epsilon: float | None) -> dict[str, float | None]:
        assert self.caps is not None
        limit = self.caps.limit
        return {
            "share": share,
            "epsilon": epsilon,
            "limit": None if epsilon is None else getattr(limit, "epsilon", None),
            "delta": getattr(limit, "delta", None),
        }

    def more(self, cost: Sequence[Promise]) -> int | None:
        """Return how many more questions of this cost fit; None without a limit, or if they cost nothing.

        One that fits an unused budget only if it is read exactly fits once.
        """
        added = plan_cost(cost, self.order)
        if self.caps is None or added is None:
            return None
        return 1 if self._reads_exactly(added) else self.caps.more(self.spent, added)

    def scale(self, promises: tuple[Promise, ...], planned: tuple[Promise, ...]) -> float:
        """Return the largest part of every mu and epsilon of a refused charge that would fit; 0 if none.

        Parameters
        ----------
        promises : tuple of Promise
            Promises of the charge.
        planned : tuple of Promise
            Promises of the charges that its plan names.
        """

        def fits(halvings: float) -> bool:
            factor = math.exp2(-halvings)
            try:
                cost = promise_cost(tuple(scale_promise(promise, factor) for promise in promises), self.order)
                later = plan_cost((scale_promise(promise, factor) for promise in planned), self.order)
                if self.caps is not None:
                    caps = self.caps.reserve(self.spent, cost, later)
                    caps.admit(self.spent, cost, scope="", later=later)
            except (BudgetExceeded, PromiseError):
                return False
            return True

        low, high = 0.0, float(_LEAST_SCALE)
        if not fits(high):
            return 0.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return math.exp2(-high)


def scale_promise(promise: Promise, factor: float) -> Promise:
    """Return the promise of the same mechanism with its noise divided by a factor up to 1, rounded down.

    Kinds without a scale, and numbers below those of 64 bits, are a PromiseError.
    """
    changed: dict[str, Any] = {}
    name, power = _PARAMETERS.get(type(promise), ("", 0))
    if not name:
        raise PromiseError(f"promise must have a mu, epsilon or rho to be scaled, was {promise}. Leave it.")
    changed[name] = float_down(exact(getattr(promise, name)) * exact(factor) ** power)
    return dataclasses.replace(promise, **changed)


def describe_scaled(promise: Promise, factor: float) -> str:
    """Return the scaled promise as it is written in Python, rounded down to four digits."""
    name, _ = _PARAMETERS[type(promise)]
    value = four_digits(getattr(scale_promise(promise, factor), name))
    delta = f", delta={promise.delta!r}" if isinstance(promise, ApproxDP) else ""
    return f"{type(promise).__name__}({name}={value!r}{delta})"
