"""Caps: a limit as fixed amounts per currency, before the first answer is seen.

Analysts who see answers choose the next query by them, so a total that is recomputed after each answer
proves nothing. Fixed caps do: if every charge stays within every cap, the limit holds however the charges
were chosen. The proofs are in ``docs/explanation/theorems/composition.md`` and ``renyi-filter.md``.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

from discreet.arguments import promise_hint
from discreet.errors import BudgetExceeded, ParameterError, PromiseError
from discreet.formatting import format_share
from discreet.ledger.records import TOTAL
from discreet.privacy.calibration import gaussian_mu, odds_rho
from discreet.privacy.column_cost import INFORMATION, check_floors, guaranteed_floors, information_cap
from discreet.privacy.composition import AMOUNTS, Spending
from discreet.privacy.promises import (
    ZCDP,
    ApproxDP,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    PosteriorOdds,
    Promise,
    PureDP,
    check_relation,
    promise_from_dict,
)
from discreet.privacy.receipt import canonical
from discreet.privacy.renyi import LEAST, MOST, best_order, pool
from discreet.privacy.rounding import ZERO, Amount, exact, exp_up, float_down, ratio_up

if TYPE_CHECKING:
    from collections.abc import Mapping

Rule = Literal["mixed", "gaussian", "pure"]
"""Kinds of noise that an :class:`ApproxDP` limit adds up: all, Gaussian alone, or pure and points alone."""

SAMPLERS = 2.0**-64
"""Total variation allowed to all samplers together under a limit that names none: 2**53 draws."""

_RESERVE = {"mixed": Fraction(1, 10), "gaussian": Fraction(1, 10**6), "pure": Fraction(1)}
"""Part of delta that each rule keeps for the deltas of points and for the samplers."""

# What a limit cannot express, as fields of the spending: they have a cap of 0 under it.
_REFUSED: dict[str, tuple[str, ...]] = {
    "pure-dp": ("gaussian", "concentrated", "point_delta"),
    "mixed": (),
    "gaussian": ("concentrated", "pure", "point_delta"),
    "pure": ("gaussian", "concentrated"),
    "zcdp": ("point_delta",),
    "gaussian-dp": ("concentrated", "pure", "point_delta"),
    "posterior-odds": ("concentrated", "point_delta"),
    "error-floor": (),
}

# What to call each of them, and which limits add it up.
_KINDS = {
    "gaussian": ("Gaussian", "ApproxDP, ZCDP or GaussianDP"),
    "concentrated": ("concentrated (ZCDP)", "ZCDP"),
    "pure": ("pure", "ApproxDP or ZCDP"),
    "point_delta": ("(epsilon, delta)", "ApproxDP"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """Amounts that may be spent in each currency under a limit.

    Attributes
    ----------
    limit : Promise
        Promise that holds while every cap does, however the charges were chosen.
    amounts : tuple of (str, Amount)
        Cap in each currency, sorted by its name.
    weight : Amount
        Delta that one unit of total variation costs: ``1 + exp(epsilon)`` under an
        :class:`ApproxDP` limit; 0 otherwise, where total variation has a cap of its own.
    rule : str or None
        Kinds of charges that an :class:`ApproxDP` limit adds up; None for other limits.
    order : float or None
        Order of the Rényi divergence that the rule "mixed" adds up; None for other rules.
    plan : Spending or None
        What the first charge and its plan come to, where they were read exactly: nothing else is admitted.

    Privacy
    -------
    Under every cap the whole interaction keeps `limit`, with the charges chosen by someone who sees
    every answer. One exception adds room and no risk: the first charge of all and its plan were chosen
    before any answer, so under an :class:`ApproxDP` limit they may instead be read exactly. Then they become
    the caps, and nothing is admitted beside them.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``, theorem 2, and ``renyi-filter.md``.
    """

    limit: Promise
    amounts: tuple[tuple[str, Amount], ...]
    weight: Amount = ZERO
    rule: Rule | None = None
    order: float | None = None
    plan: Spending | None = None

    @classmethod
    def from_limit(cls, limit: Promise, *, rule: Rule = "mixed", order: float | None = None) -> Caps:
        """Return the caps of a limit.

        Parameters
        ----------
        limit : Promise
            Promise to keep: any but :class:`NoPromise`.
        rule : {"mixed", "gaussian", "pure"}
            Kinds of charges that an :class:`ApproxDP` limit adds up; other limits have one rule each.
        order : float, optional
            Order of the Rényi divergence for the rule "mixed"; None is the one at which the most Gaussian
            noise fits.
        """
        if rule not in get_args(Rule):
            raise ParameterError(
                f"rule of Ledger must be 'mixed', 'gaussian' or 'pure', got {rule!r}. "
                "'mixed' admits every kind of noise."
            )
        if not isinstance(limit, Promise):
            raise ParameterError(
                f"limit of Ledger must be a promise, got {type(limit).__name__}. "
                + (promise_hint(limit) or "Use limit=None to record without a limit.")
            )
        samplers = Amount.rounded_down(limit.total_variation or SAMPLERS)
        match limit:
            case PureDP():
                amounts = {"epsilon": Amount.rounded_down(limit.epsilon), "total variation": samplers}
            case ApproxDP():
                return cls._approximate(limit, rule, order)
            case ZCDP():
                amounts = {"rho": Amount.rounded_down(limit.rho), "total variation": samplers}
            case GaussianDP():
                amounts = {
                    "rho": Amount.rounded_down(exact(limit.mu) ** 2 / 2),
                    "total variation": samplers,
                }
            case PosteriorOdds():
                amounts = _odds(limit) | {"total variation": samplers}
            case ErrorFloor():
                amounts = {INFORMATION + name: information_cap(limit, name) for name in limit.columns}
            case _:
                raise ParameterError(
                    f"limit of Ledger must be a promise that can be kept, got "
                    f"{type(limit).__name__}. Use limit=None to record without a limit."
                )
        if not isinstance(limit, ErrorFloor):
            limit = dataclasses.replace(limit, total_variation=samplers.float_down())
        return cls(limit=limit, amounts=tuple(sorted(amounts.items())))

    @classmethod
    def _approximate(cls, limit: ApproxDP, rule: Rule, order: float | None) -> Caps:
        """Return the caps of an (epsilon, delta) limit under a rule.

        Notes
        -----
        A reserve of delta pays for the deltas of points and for the samplers. With the rest of it, "mixed"
        caps the Rényi divergence at one order, in units of the order; "gaussian" caps rho = mu^2 / 2 for
        the largest mu; "pure" caps epsilon and has all of delta in reserve.
        """
        if limit.total_variation:
            raise ParameterError(
                f"total_variation of an ApproxDP limit must be 0, got {limit.total_variation!r}. "
                "What samplers add is paid from its delta."
            )
        if order is not None:
            order = _check_order(order, rule)
        epsilon, delta = exact(limit.epsilon), exact(limit.delta)
        reserve = delta * _RESERVE[rule]
        amounts = {"delta": Amount.rounded_down(reserve)}
        match rule:
            case "mixed":
                best = best_order(limit.epsilon, float(delta - reserve))
                rho = pool(epsilon, delta - reserve, exact(best if order is None else order))
                if order is not None and rho <= 0:
                    raise ParameterError(
                        f"order of Ledger must be one at which {limit} leaves something to spend, got "
                        f"{order!r}. Leave it out for {best!r}, at which the most Gaussian noise fits."
                    )
                order = best if order is None else order
                amounts["rho"] = Amount.rounded_down(max(rho, Fraction(0)))
            case "gaussian":
                mu = gaussian_mu(limit.epsilon, float_down(delta - reserve))
                amounts["rho"] = Amount.rounded_down(exact(mu) ** 2 / 2)
            case "pure":
                amounts["epsilon"] = Amount.rounded_down(epsilon)
        growth = exp_up(epsilon)
        # Past the range of numbers no sampler but a perfect one fits: any weight this large says so.
        weight = Amount.rounded_up(1 + growth if growth is not None else Fraction(10) ** 320)
        return cls(limit=limit, amounts=tuple(sorted(amounts.items())), weight=weight, rule=rule, order=order)

    @property
    def description(self) -> str:
        """The limit with its rule and order, for messages."""
        if self.rule is None:
            return str(self.limit)
        return f"{self.limit} with rule={self.rule!r}" + (
            "" if self.order is None else f", order={self.order!r}"
        )

    def reserve(self, before: Spending, cost: Spending, later: Spending | None = None) -> Caps:
        """Return the caps for a charge: those of its plan, if it is the first and only fits read exactly.

        Parameters
        ----------
        before : Spending
            Spending of the scope so far.
        cost : Spending
            Cost of the new charge.
        later : Spending, optional
            Cost of the charges that its plan names.

        Privacy
        -------
        Before the first charge no answer was seen, so this choice between two sets of caps depends on none.
        """
        if before.charges or not isinstance(self.limit, ApproxDP) or cost.unpromised:
            return self
        whole = cost if later is None else cost + later
        if self._fits(whole) or whole.unpromised or whole.covers == ():
            return self
        rest = exact(self.limit.delta) - exact(whole.delta_at(self.limit.epsilon))
        if rest < 0:
            return self
        # A plan does not say how many numbers will be drawn: what is left of delta is for their samplers.
        variation = whole.total_variation + Amount.rounded_down(rest / self.weight.exact)
        return dataclasses.replace(self, plan=dataclasses.replace(whole, total_variation=variation))

    def admit(
        self, before: Spending, cost: Spending, *, scope: str, later: Spending | None = None
    ) -> Spending:
        """Return the spending after a charge, or refuse the charge.

        Parameters
        ----------
        before : Spending
            Spending of the scope so far.
        cost : Spending
            Cost of the new charge.
        scope : str
            Name of the owner, or "total", for the message.
        later : Spending, optional
            Cost of charges to come: it must fit too, and is not in the returned spending.

        Raises
        ------
        PromiseError
            The limit cannot express this kind of charge, whatever is left.
        BudgetExceeded
            A cap would be passed.
        """
        after = self._spending_after(before, cost)
        last = after if later is None else self._spending_after(after, later)
        if not self._fits(last):
            raise self._budget_error(before, cost if later is None else cost + later, scope)
        return after

    def _spending_after(self, before: Spending, cost: Spending) -> Spending:
        """Return the spending after one charge, or refuse a kind that the limit cannot express."""
        check_relation(self.limit, cost)
        after = before + cost
        if isinstance(self.limit, ErrorFloor):
            check_floors(self.limit, cost)
        elif cost.unpromised:
            raise PromiseError(
                f"promise of a charge must keep differential privacy under the limit "
                f"{self.limit}, and this one does not ({'; '.join(cost.unpromised)}). "
                "Use a ledger without a limit to record it."
            )
        for name in self._refused_kinds:
            if getattr(cost, name) and self.plan is None:
                words, limits = _KINDS[name]
                way = f"a limit of {limits}" if self.rule is None else "rule='mixed'"
                raise PromiseError(
                    f"promise of a charge must be of a kind that the limit {self.limit} can add "
                    f"up, got a {words} event. Open the ledger with {way}."
                )
        return after

    def _fits(self, spent: Spending) -> bool:
        """Return whether spending passes no cap. It never shrinks: once it passes one it never fits again."""
        if self.plan is not None:
            return all(getattr(spent, name) <= getattr(self.plan, name) for name in AMOUNTS)
        return not self._exceeded_currencies(spent) and not any(
            getattr(spent, name) for name in self._refused_kinds
        )

    def _exceeded_currencies(self, spent: Spending) -> list[str]:
        """Return the currencies whose cap the spending exceeds."""
        return [currency for currency, cap in self.amounts if self._spent(spent, currency).count > cap.count]

    def holds(self, spent: Spending) -> bool:
        """Return whether spending keeps the limit, as all does that was admitted charge by charge."""
        return self._fits(spent)

    def _budget_error(self, before: Spending, cost: Spending, scope: str) -> BudgetExceeded:
        """Return the error of a charge that exceeds a cap, naming one currency in which the charge costs."""
        caps, left = dict(self.amounts), self.left(before)
        paid = [currency for currency in caps if self._spent(cost, currency)] or list(caps)
        # A budget that was exceeded before is so in every currency: name one in which the charge costs, and
        # the number of queries before the amount of noise.
        exceeded = [name for name in self._exceeded_currencies(before + cost) if name in paid] or paid
        currency = "queries" if "queries" in exceeded else exceeded[0]
        cap, amount = caps[currency], float(self._spent(cost, currency))
        takes = format_share(amount / cap.float_down()) if cap else "more than all"
        rest = format_share(left[currency] / cap.float_down(), up=False) if left[currency] else "nothing"
        # What is asked of one of the small reserves beside the pool is said of that reserve.
        part = "it" if currency in ("rho", "epsilon") else f"its {currency}"
        whose = "" if scope == TOTAL else f" for {scope!r}"
        why = " (the first charge and its plan took all of it)" if self.plan is not None else ""
        return BudgetExceeded(
            f"Not enough budget{whose}: this takes {takes} of {part} and {rest} is left{why}.",
            asked=amount,
            left=left[currency],
            limit=cap.float_down(),
            currency=currency,
            scope=scope,
        )

    def left(self, spent: Spending) -> dict[str, float]:
        """Return what is left in each currency, rounded down; nothing once any cap is passed."""
        if self.plan is not None or any(getattr(spent, name) for name in self._refused_kinds):
            return {currency: 0.0 for currency, _ in self.amounts}
        spaces = {currency: cap.count - self._spent(spent, currency).count for currency, cap in self.amounts}
        fits = min(spaces.values(), default=0) >= 0
        return {currency: Amount(space).float_down() if fits else 0.0 for currency, space in spaces.items()}

    def share(self, spent: Spending) -> float:
        """Return the part of the budget that spending uses, rounded up: of the cap that is nearest."""
        if self.plan is not None:
            return 1.0
        shares = [
            ratio_up(amount.count, cap.count) if cap.count else 1.0
            for currency, cap in self.amounts
            if (amount := self._spent(spent, currency)).count
        ]
        return max(shares, default=0.0)

    def share_of(self, cost: Spending) -> float:
        """Return the part of the whole budget that a charge takes, infinite for a kind that is refused.

        It is the same before and after a plan was read exactly, so that a choice by it is repeated alike.
        """
        if any(getattr(cost, name) for name in self._refused_kinds):
            return math.inf
        return self.cost_share(cost)

    def cost_share(self, cost: Spending) -> float:
        """Return the part of the whole budget that a charge takes, as if no plan had been read exactly."""
        return (self if self.plan is None else dataclasses.replace(self, plan=None)).share(cost)

    def epsilon(self, spent: Spending) -> float | None:
        """Return the epsilon that spending comes to at the limit's delta; None where it has none.

        It is what the accountant proves of costs that were fixed beforehand; while the limit holds, at most
        its own epsilon.
        """
        # By type, here and below: asking an abstract class about its instances takes ten times as long.
        if type(self.limit) not in (ApproxDP, PureDP) or spent.unpromised or spent.covers == ():
            return None
        if isinstance(self.limit, PureDP):
            return spent.epsilon
        assert isinstance(self.limit, ApproxDP)
        epsilon = _epsilon_at(spent, self.limit.delta)
        if self.holds(spent):
            # The limit itself is proven, also where the deltas of points have used up theirs.
            return self.limit.epsilon if epsilon is None else min(epsilon, self.limit.epsilon)
        return epsilon

    def more(self, spent: Spending, cost: Spending) -> int | None:
        """Return how many more charges of this cost fit; None for one that costs nothing."""
        if self.plan is not None or any(getattr(cost, name) for name in self._refused_kinds):
            return 0
        counts = [
            max(0, cap.count - self._spent(spent, currency).count) // each.count
            for currency, cap in self.amounts
            if (each := self._spent(cost, currency)).count
        ]
        return min(counts, default=None)

    @property
    def _refused_kinds(self) -> tuple[str, ...]:
        pure = getattr(self.limit, "theorem", None) == "theorem 5"
        return _REFUSED[PureDP.kind if pure else self.rule or self.limit.kind]

    def _spent(self, spent: Spending, currency: str) -> Amount:
        """Return the spending in one currency of this limit."""
        if currency.startswith(INFORMATION):
            cost = dict(spent.columns).get(currency.removeprefix(INFORMATION))
            return ZERO if cost is None or cost.information is None else cost.information
        if currency == "delta":
            return spent.point_delta + spent.total_variation.times(self.weight)
        if currency == "epsilon":
            return spent.linear
        if currency == "rho":
            if self.rule == "mixed":
                return spent.divergence
            return spent.gaussian if type(self.limit) in (GaussianDP, ApproxDP) else spent.pooled_rho
        if currency == "queries":
            return Amount.rounded_up(spent.charges)
        return spent.total_variation

    def guarantee(self, spent: Spending) -> Promise:
        """Return the limit, said of the columns that every charge so far protected.

        Of an :class:`ErrorFloor` only what information that adds up proves: for a continuous column the bound
        of van Trees, whatever the noise was.
        """
        if isinstance(self.limit, ErrorFloor):
            return guaranteed_floors(
                self.limit, dict(self.amounts), dict(spent.columns) if spent.charges else None
            )
        if self.limit.covers is not None or spent.covers is None:
            return self.limit
        if not spent.covers:
            return NoPromise("the charges protect different columns and have none in common")
        return dataclasses.replace(self.limit, covers=spent.covers)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values: caps are kept as they were fixed, never computed again."""
        return {
            "limit": self.limit.to_dict(),
            "amounts": {currency: str(cap) for currency, cap in self.amounts},
            "weight": str(self.weight),
            "rule": self.rule,
            "order": self.order,
            "plan": None if self.plan is None else self.plan.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Caps:
        """Return the caps that :meth:`to_dict` wrote."""
        amounts = {name: Amount.parse(cap) for name, cap in values["amounts"].items()}
        return cls(
            limit=promise_from_dict(values["limit"]),
            amounts=tuple(sorted(amounts.items())),
            weight=Amount.parse(values["weight"]),
            rule=values["rule"],
            order=values["order"],
            plan=None if values["plan"] is None else Spending.from_dict(values["plan"]),
        )


def _check_order(order: float, rule: Rule) -> float:
    """Return an order that was asked for as a float, or refuse it."""
    if rule != "mixed":
        raise ParameterError(
            f"order of Ledger must go with rule='mixed', got {order!r} with rule={rule!r}. Leave it out."
        )
    if isinstance(order, bool) or not 1 + LEAST <= order <= 1 + MOST:
        raise ParameterError(
            f"order of Ledger must be above 1 and at most 1e9, got {order!r}. Leave it out for the one at "
            "which the most Gaussian noise fits."
        )
    return float(order)


@lru_cache(maxsize=512)
def _epsilon_at(spent: Spending, delta: float) -> float | None:
    """Return the epsilon of spending at `delta`, cached, since it is read again with the next question."""
    try:
        return spent.epsilon_at(delta)
    except PromiseError:
        return None


def _odds(limit: PosteriorOdds) -> dict[str, Amount]:
    """Return the caps of a limit on posterior odds, without that on total variation."""
    queries = Amount.rounded_down(limit.queries)
    match limit.theorem:
        case "corrected":
            return {"rho": Amount.rounded_down(odds_rho(limit.epsilon, limit.delta)), "queries": queries}
        case "theorem 5":
            return {"epsilon": Amount.rounded_down(limit.epsilon), "queries": queries}
    raise ParameterError(
        f"theorem of a limit must be 'corrected' or 'theorem 5', got {limit.theorem!r}: the others choose "
        "the noise of a question and do not always keep the paper's promise. Leave theorem out."
    )


def read_caps(values: Mapping[str, Any] | None) -> Caps | None:
    """Return the caps in the JSON of a row; None where there is no limit."""
    return None if values is None else Caps.from_dict(values)


def write_caps(caps: Caps | None) -> str | None:
    """Return caps as the text that a total keeps; None where there is no limit."""
    return None if caps is None else canonical(caps.to_dict())
