"""Accounts: caps and spending of each scope, what is used, what a question takes and what still fits."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import BudgetExceeded, LedgerTampered, PromiseError
from discreet.ledger._caps import Caps, write_caps
from discreet.ledger.records import (
    TOTAL,
    charge_scopes,
    dataset_scope,
    group_scope,
    member_mark,
    missing_row_error,
    owner_scope,
    scope_name,
)
from discreet.privacy.composition import Spending
from discreet.privacy.promises import ZCDP, ApproxDP, GaussianDP, Promise, PureDP
from discreet.privacy.receipt import canonical
from discreet.privacy.rounding import exact, float_down, float_up, four_digits

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from discreet.ledger.transaction import Transaction

# What is scaled with the noise of a promise, and by which power of the factor.
_PARAMETERS: dict[type[Promise], tuple[str, int]] = {
    GaussianDP: ("mu", 1),
    PureDP: ("epsilon", 1),
    ApproxDP: ("epsilon", 1),
    ZCDP: ("rho", 2),
}

_SMALL = (GaussianDP(mu=1e-4), PureDP(epsilon=1e-5))  # charges by which limits of all kinds are compared
_LEAST_SCALE = 40  # halvings after which nothing is said to fit
_CACHE_SIZE = 512  # costs by their promises, and parsed totals by their text


@functools.lru_cache(maxsize=_CACHE_SIZE)
def promise_cost(promises: tuple[Promise, ...], order: float | None) -> Spending:
    """Return the cost of one charge at an order, cached, since few promises are charged often."""
    return Spending.from_promises(promises, order=order)


def plan_cost(planned: Iterable[Promise], order: float | None) -> Spending | None:
    """Return the cost of charges to come, each of one promise; None if there are none."""
    costs = [promise_cost((promise,), order) for promise in planned]
    return functools.reduce(operator.add, costs) if costs else None


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
        try:
            after = self.spent + added
        except PromiseError:  # of another unit, or about other columns
            return self._as_use(share, None)
        return self._as_use(share, self._added_epsilon(self.spent, after))

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
        share = self.caps.cost_share(added)
        if self.caps.plan is not None:  # the first charge took everything, and those of its plan nothing more
            share = 0.0 if self.spent.charges != added.charges else 1.0
        if self.caps.epsilon(self.spent) is None:
            return self._as_use(share, None)
        return self._as_use(share, self._added_epsilon(self.spent.less(added), self.spent))

    def _added_epsilon(self, before: Spending, after: Spending) -> float | None:
        """Return by how much charges raise the epsilon at the limit's delta, rounded up; None without one."""
        assert self.caps is not None
        first, last = self.caps.epsilon(before), self.caps.epsilon(after)
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

    @property
    def room(self) -> float:
        """How many small charges still fit, of whichever noise is cheaper; infinite without a limit."""
        counts = [self.more((small,)) for small in _SMALL]
        return max(math.inf if count is None else count for count in counts)

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


class ChargeTotals:
    """Caps and spending of the scopes of one ledger.

    Parameters
    ----------
    owner_caps : Caps or None
        Caps of owners who have none of their own, as fixed in the ledger's first row; None is no limit.
    """

    def __init__(self, owner_caps: Caps | None) -> None:
        self._owner_caps = owner_caps
        # Equal texts parse to equal totals, so the cache never goes stale: the database stays the only place
        # where totals are kept. Threads share it: each step is one operation.
        self._parsed: dict[str, Spending] = {}
        self._members: dict[str, tuple[int, str | None]] = {}

    def caps_and_spending(self, transaction: Transaction, scope: str) -> tuple[Caps | None, Spending]:
        """Return caps and spending of a scope."""
        total = transaction.total(scope)
        if total is None:
            return self._owner_caps if scope.startswith(owner_scope("")) else None, Spending()
        return self._parse(scope, *total)

    def account(self, transaction: Transaction, owner: str | None) -> Account:
        """Return caps and spending of an owner, or of the total."""
        return Account(*self.caps_and_spending(transaction, scope_name(owner)))

    def nearest_total(self, transaction: Transaction, dataset: str | None) -> Account:
        """Return the account that is nearer to its limit: of a data set, or of all that share the ledger.

        Parameters
        ----------
        transaction : Transaction
            Transaction that reads the totals.
        dataset : str or None
            One of several data sets that share the ledger; None for the total.
        """
        total = self.account(transaction, None)
        if dataset is None:
            return total
        return nearest(Account(*self.caps_and_spending(transaction, dataset_scope(dataset))), total)

    def nearest_own(self, transaction: Transaction, owner: str) -> Account:
        """Return the account that is nearer to its limit: of an owner, or of the owner's group."""
        own, group = self.account(transaction, owner), self.group(transaction, owner)
        if group is None:
            return own
        return nearest(own, Account(*self.caps_and_spending(transaction, group_scope(group))))

    def all_accounts(
        self, transaction: Transaction, owner: str | None, dataset: str | None
    ) -> dict[str, Account]:
        """Return every account that a charge to an owner is taken from, by its scope."""
        group = None if owner is None else self.group(transaction, owner)
        scopes = charge_scopes(owner, known=False, dataset=dataset, group=group)
        return {scope: Account(*self.caps_and_spending(transaction, scope)) for scope in scopes}

    def group(self, transaction: Transaction, owner: str) -> str | None:
        """Return the group that an owner is in; None for none."""
        seq = transaction.mark(member_mark(owner))
        if seq is None:
            return None
        row = transaction.row(seq)
        if row is None:
            raise missing_row_error(seq)
        group: str | None = row.content["group"]
        self._members[owner] = seq, group
        return group

    def expected_group(self, owner: str) -> tuple[int, str | None] | None:
        """Return row and group of an owner as last seen, so that they are read together with the rest."""
        return self._members.get(owner)

    def owners(self, transaction: Transaction) -> dict[str, Spending]:
        """Return the spending of each owner, by name; zero for an owner who only has a limit."""
        start = owner_scope("")
        return {
            scope.removeprefix(start): self._parse(scope, *total)[1]
            for scope, total in sorted(transaction.totals().items())
            if scope.startswith(start)
        }

    def spend(
        self,
        transaction: Transaction,
        scope: str,
        promises: tuple[Promise, ...],
        planned: tuple[Promise, ...],
    ) -> None:
        """Add the cost of a charge to the spending of a scope, or refuse it."""
        caps, before = self.caps_and_spending(transaction, scope)
        # A data set is all that its analysts know of: its limit and that of its people are the total.
        name = TOTAL
        if scope.startswith(owner_scope("")):
            name = scope.removeprefix(owner_scope(""))
        elif scope.startswith(group_scope("")):
            name = f"group {scope.removeprefix(group_scope(''))}"
        caps, after = spend(caps, before, promises, planned, scope=name)
        text = canonical(after.to_dict())
        transaction.put_total(scope, _caps_text(caps), text)
        self._cache(text, after)

    def _parse(self, scope: str, caps: str | None, spent: str) -> tuple[Caps | None, Spending]:
        """Return caps and spending from their texts, or raise LedgerTampered if they are not readable."""
        try:
            parsed = self._parsed.get(spent)
            if parsed is None:
                parsed = Spending.from_dict(json.loads(spent))
                self._cache(spent, parsed)
            return (None if caps is None else _parse_caps(caps)), parsed
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LedgerTampered(
                f"the total of {scope!r} must be readable, and is not ({error}). "
                "Restore the ledger from a backup that checks."
            ) from error

    def _cache(self, text: str, spent: Spending) -> None:
        if len(self._parsed) >= _CACHE_SIZE:
            self._parsed.clear()
        self._parsed[text] = spent


def nearest(one: Account, other: Account) -> Account:
    """Return the account that admits less; the first of two equal ones.

    Shares that are used do not tell: of two unused budgets the smaller one is used up first.
    """
    return one if one.room <= other.room else other


def spending_under(caps: Caps | None, charges: Iterable[tuple[Promise, ...]]) -> Spending:
    """Return what charges come to under caps, which count them at an order of their own."""
    order = None if caps is None else caps.order
    return sum((promise_cost(promises, order) for promises in charges), Spending())


@functools.lru_cache(maxsize=_CACHE_SIZE)
def _parse_caps(text: str) -> Caps:
    return Caps.from_dict(json.loads(text))


@functools.lru_cache(maxsize=_CACHE_SIZE)
def _caps_text(caps: Caps | None) -> str | None:
    return write_caps(caps)


def spend(
    caps: Caps | None,
    before: Spending,
    promises: tuple[Promise, ...],
    planned: tuple[Promise, ...],
    *,
    scope: str,
) -> tuple[Caps | None, Spending]:
    """Return caps and spending of a scope after a charge, or refuse it.

    Parameters
    ----------
    caps : Caps or None
        Caps of the scope; None without a limit.
    before : Spending
        Spending of the scope so far.
    promises, planned : tuple of Promise
        Promises of the charge, and of those that its plan names.
    scope : str
        Name of the scope for the message.
    """
    if caps is None:
        return None, before + promise_cost(promises, None)
    cost, later = promise_cost(promises, caps.order), plan_cost(planned, caps.order)
    caps = caps.reserve(before, cost, later)
    return caps, caps.admit(before, cost, scope=scope, later=later)
