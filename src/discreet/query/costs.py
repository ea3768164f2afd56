"""What aggregates and queries cost, and what is left of budgets: in numbers and in words."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError, PromiseError
from discreet.formatting import format_share, number
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP, Spending, promise_from_dict
from discreet.privacy.calibration import gaussian_epsilon, gaussian_mu
from discreet.privacy.promises import describe_promise
from discreet.privacy.rounding import four_digits
from discreet.query.answers import unwrap_scalar
from discreet.query.calibration import QueryNoise
from discreet.query.curation import Curation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats
    from discreet.ledger import Account
    from discreet.privacy import Promise
    from discreet.query.aggregates.base import Aggregate, BoundAggregate
    from discreet.schema import Schema
    from discreet.schema.schema import Neighbors

DELTA = 1e-6
"""Delta at which the cost of Gaussian noise is also given as an epsilon."""
_SUMMED: dict[type[Promise], tuple[str, ...]] = {
    PureDP: ("epsilon",),
    ApproxDP: ("epsilon", "delta"),
    GaussianDP: ("mu",),
    ZCDP: ("rho",),
}
_CACHE_SIZE = 4096  # costs that are kept: the same few recur again and again


def remaining_amounts(
    cost: tuple[Promise, ...],
    own: Account | None,
    total: Account | None,
    *,
    charged: Sequence[Promise] | None = None,
) -> dict[str, Any]:
    """Return what is left of two budgets, and how many more queries of this cost both pay for.

    Parameters
    ----------
    cost : tuple of Promise
        Charges of one query.
    own, total : Account or None
        Accounts of the owner and of all together; None where it is not known.
    charged : sequence of Promise, optional
        Charges that were made for the query and are in the accounts, none if it was paid for before; None
        before the query is asked.

    Returns
    -------
    dict
        ``own`` and ``total``, the amounts left by currency; ``more``, how many more such queries fit;
        ``nearer``, "own" or "total", the budget that is used up first; ``used`` and ``takes``, the part of
        it that is used and that the query takes, or took if it was charged. None each without a limit.
    """
    accounts = {"own": own, "total": total}
    limited = {name: one for name, one in accounts.items() if one is not None and one.caps is not None}
    counts = {name: count for name, account in limited.items() if (count := account.more(cost)) is not None}
    nearer = min(limited, key=lambda name: (counts.get(name, math.inf), limited[name].room), default=None)
    takes = None
    if nearer is not None:
        account = limited[nearer]
        takes = account.takes(cost) if charged is None else account.took(charged)
    return {
        "own": None if own is None else own.left,
        "total": None if total is None else total.left,
        "more": min(counts.values(), default=None),
        "nearer": nearer,
        "used": None if nearer is None else limited[nearer].used,
        "takes": takes,
    }


def describe_used(used: Mapping[str, float | None], whose: str = "the budget") -> str:
    """Return as text how much of a budget is used, in percent, and the epsilon so far beside its limit."""
    share, epsilon, limit, delta = (used[name] for name in ("share", "epsilon", "limit", "delta"))
    assert share is not None
    text = f"{format_share(min(share, 1.0))} of {whose} is used"
    if epsilon is None or limit is None:
        return text
    text += f"; epsilon so far {number(epsilon, rounding='up')} of {limit:g}"
    return f"{text} at delta {delta:g}" if delta else text


def describe_takes(takes: Mapping[str, float | None], whose: str = "the budget") -> str:
    """Return as text which part of a budget a query takes."""
    share = takes["share"]
    assert share is not None
    return f"{format_share(share)} of {whose}"


def describe_left(used: Mapping[str, float | None]) -> str:
    """Return as text which part of a budget is left."""
    share = used["share"]
    assert share is not None
    return f"{format_share(max(0.0, 1.0 - share), up=False)} is left"


def takes_all(remaining: Mapping[str, Any]) -> bool:
    """Return whether a query fits only as the first of all: nothing could be asked after it."""
    used, takes = remaining["used"], remaining["takes"]
    return bool(takes and used and remaining["more"] == 1 and used["share"] == 0 and takes["share"] >= 1)


def describe_charges(cost: Sequence[Promise]) -> str:
    """Return promises as text, one for each kind, with the costs of charges of the same kind added up.

    Parameters
    ----------
    cost : sequence of Promise
        Promises of the charges, each charged apart.
    """
    kinds: dict[type[Promise], list[Promise]] = {}
    for promise in cost:
        kinds.setdefault(type(promise), []).append(promise)
    texts = []
    for kind, same in kinds.items():
        if len(same) > 1 and kind in _SUMMED:
            whole = sum(map(Spending.from_promises, same), Spending()).promise().to_dict()
            # The exact sum was rounded up in its last digit, which must not show in the third.
            same = [promise_from_dict(whole | {name: float(f"{whole[name]:.12g}") for name in _SUMMED[kind]})]
        texts += [describe_promise(promise.to_dict()) for promise in same]
    return " and ".join(texts)


@lru_cache(maxsize=_CACHE_SIZE)
def describe_cost(cost: tuple[Promise, ...], delta: float) -> str:
    """Return a cost as text; that of Gaussian noise also as an epsilon at `delta`."""
    if not cost:
        return "nothing"
    promises = describe_charges(cost)
    spent = sum((Spending.from_promises(promise) for promise in cost), Spending())
    if not spent.rho or is_pure(cost):
        return promises
    try:
        epsilon = number(spent.epsilon_at(delta), digits=4, rounding="up")
    except PromiseError:  # so much, or so little, that no epsilon says it
        return promises
    return f"{promises} (epsilon {epsilon} at delta {delta:g})"


def affordable_request(privacy: Promise | None, sd: float | None, scale: float) -> dict[str, Any] | None:
    """Return the largest promise of the requested kind, or the least sd, that the budget still pays for.

    Parameters
    ----------
    privacy, sd
        Promise or standard deviation of the request; the other one is None.
    scale : float
        Largest part of every mu and epsilon of its charges that would fit, as the ledger found it.

    Returns
    -------
    dict or None
        Parameters of the promise with its kind, or ``{"sd": ...}``, rounded to four digits on the affordable
        side; None if nothing fits.
    """
    result: dict[str, Any] = {}
    match privacy:
        case GaussianDP():
            result = {"mu": four_digits(privacy.mu * scale)}
        case ZCDP():
            result = {"rho": four_digits(privacy.rho * scale**2)}
        case ApproxDP():
            mu = gaussian_mu(privacy.epsilon, privacy.delta) * scale
            # The noise may be Gaussian or Laplace: what fits by both fits.
            epsilon = min(gaussian_epsilon(mu, privacy.delta), privacy.epsilon * scale) if mu > 0 else 0.0
            epsilon = four_digits(epsilon)
            result = {"epsilon": epsilon, "delta": privacy.delta}
        case PureDP():
            result = {"epsilon": four_digits(privacy.epsilon * scale)}
        case None if sd is not None and scale > 0:
            result = {"sd": four_digits(sd / scale, up=True)}
    if not result or min(result.values()) <= 0:
        return None
    return result if privacy is None else {"kind": privacy.kind, **result}


def cost_fields(cost: tuple[Promise, ...], remaining: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a message that say what something costs and what is left.

    Parameters
    ----------
    cost : tuple of Promise
        Promises that were charged, or would be.
    remaining : mapping or None
        What is left, as :func:`remaining_amounts` returns it; None where it is not known.
    """
    return {
        "cost": [promise.to_dict() for promise in cost],
        "cost_words": describe_cost(cost, DELTA),
        "remaining": remaining_amounts((), None, None) if remaining is None else dict(remaining),
    }


def is_pure(cost: tuple[Promise, ...]) -> bool:
    """Return whether every promise of a cost is a pure epsilon."""
    return all(isinstance(promise, PureDP) for promise in cost)


def least_charge(options: Sequence[Sequence[QueryNoise]], accounts: Sequence[Account]) -> int:
    """Return the index of the noises that take the least of the nearest budget; 0 without a limit.

    Parameters
    ----------
    options : sequence of sequence of QueryNoise
        Noises to choose from, in each option one for each aggregate that is charged.
    accounts : sequence of Account
        Budgets that would be charged.

    Privacy
    -------
    Follows from public costs and from limits that were fixed before the first charge: the same request gets
    the same law again, whatever is left.
    """
    if len(options) == 1 or not accounts:
        return 0
    shares = [budget_share(noises, accounts) for noises in options]
    limits = [account.caps.limit for account in accounts if account.caps is not None]
    if all(1.0 < share < math.inf for share in shares) and all(isinstance(one, ApproxDP) for one in limits):
        # Only as a first charge, which such limits read exactly, may one of them be admitted; it takes
        # everything. So the one with less noise, and of equal noise, as for a variance, the cheaper.
        sizes = [round(sum(noise.log_sd() for noise in noises), 6) for noises in options]
        return min(range(len(options)), key=lambda i: (sizes[i], shares[i]))
    return shares.index(min(shares))


def budget_share(noises: Sequence[QueryNoise], accounts: Sequence[Account]) -> float:
    """Return the part of the nearest whole budget that noises take, infinite if its limit refuses them."""
    cost = [noise.promise for noise in noises if noise.promise is not None]
    return max((account.share_of(cost) for account in accounts), default=0.0)


class CostModel:
    """Cost and noise of aggregates, from public facts alone.

    Parameters
    ----------
    schema : Schema
        Declared columns, unit and neighbors of the table.
    n_rows : int, optional
        Number of rows where it is public; None where it is not.
    curation : Curation, optional
        Layout of the curated table; computed from the schema if left out.

    Privacy
    -------
    No row is read: everything follows from the aggregate and the schema.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, GaussianDP, Schema
    >>> from discreet.query import Sums
    >>> costs = CostModel(Schema(columns=[Column("age", type="integer", lower=0, upper=120)]))
    >>> costs.expected_sd(Sums("age > 65"), privacy=GaussianDP(mu=0.5))
    array([2.])
    """

    def __init__(
        self, schema: Schema, n_rows: int | None = None, *, curation: Curation | None = None
    ) -> None:
        self._curation = Curation.from_schema(schema) if curation is None else curation
        self._n_rows = n_rows

    @property
    def schema(self) -> Schema:
        """Declared columns, unit and neighbors of the table."""
        return self._curation.schema

    @property
    def curation(self) -> Curation:
        """Layout of the curated table. Public."""
        return self._curation

    @property
    def neighbors(self) -> Neighbors:
        """Which pairs of tables the promises make hard to tell apart."""
        return self.schema.neighbors

    @property
    def n_rows(self) -> int | None:
        """Number of rows where it is public; None where it is not."""
        return self._n_rows

    def candidates(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> tuple[BoundAggregate, tuple[QueryNoise, ...]]:
        """Return an aggregate bound to the curated table, and its noise by each law that is left open.

        Parameters
        ----------
        question, privacy, variance
            As for :meth:`CostedTable.cost`.
        """
        if isinstance(question, str):
            raise ParameterError(
                f"question must be an aggregate such as Histogram(['sex']), was the text {question!r}. "
                "Give text to query() or preview()."
            )
        bound = question.bind(self._curation, self.neighbors)
        return bound, QueryNoise.candidates(bound, self.schema, privacy=privacy, variance=variance)

    def calibrate(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> tuple[BoundAggregate, QueryNoise]:
        """Return an aggregate bound to the curated table, and its noise where there is no limit.

        Parameters
        ----------
        question, privacy, variance
            As for :meth:`CostedTable.cost`.
        """
        bound, candidates = self.candidates(question, privacy=privacy, variance=variance)
        return bound, candidates[0]

    def calibrate_charged(
        self,
        question: Aggregate,
        charged: Sequence[Promise],
        *,
        privacy: Promise | None,
        variance: float | None,
    ) -> tuple[BoundAggregate, QueryNoise]:
        """Return an aggregate bound to the curated table, and the noise that it was charged for.

        Parameters
        ----------
        question, privacy, variance
            As for :meth:`calibrate`.
        charged : sequence of Promise
            Promises of the charge, the last of which tells the law: Laplace noise is charged as pure.
        """
        bound, candidates = self.candidates(question, privacy=privacy, variance=variance)
        kind = type(charged[-1]) if charged else None
        return bound, next((noise for noise in candidates if type(noise.promise) is kind), candidates[0])

    def cost(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> tuple[Promise, ...]:
        """Return what an aggregate would be charged; empty if it is free. The same for every table.

        Parameters
        ----------
        question, privacy, variance
            As for :meth:`calibrate`.
        """
        _, noise = self.calibrate(question, privacy=privacy, variance=variance)
        return () if noise.promise is None else (noise.promise,)

    def expected_sd(
        self, question: Aggregate, *, privacy: Promise | None = None, variance: float | None = None
    ) -> float | Floats:
        """Return the standard deviation of the noise, in the answer's unit. The same for every table.

        Parameters
        ----------
        question, privacy, variance
            As for :meth:`calibrate`.
        """
        bound, noise = self.calibrate(question, privacy=privacy, variance=variance)
        return unwrap_scalar(bound.arrange(noise.sd(bound), 0.0))


class CostedTable:
    """Table whose costs are known in advance: the public part of every database.

    Parameters
    ----------
    cost_model : CostModel
        Cost and noise of aggregates on this table.
    """

    def __init__(self, cost_model: CostModel) -> None:
        self._cost_model = cost_model

    @property
    def cost_model(self) -> CostModel:
        """Cost and noise of aggregates on this table, from public facts alone."""
        return self._cost_model

    @property
    def schema(self) -> Schema:
        """Declared columns, unit and neighbors of the table."""
        return self._cost_model.schema

    @property
    def curation(self) -> Curation:
        """Layout of the curated table. Public."""
        return self._cost_model.curation

    @property
    def neighbors(self) -> Neighbors:
        """Which pairs of tables the promises make hard to tell apart."""
        return self._cost_model.neighbors

    @property
    def n_rows(self) -> int | None:
        """Number of rows where it is public; None where it is not."""
        return self._cost_model.n_rows

    def _calibrate(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
    ) -> tuple[BoundAggregate, QueryNoise]:
        """Return an aggregate bound to the curated table, and the noise that it would get. Free."""
        return self._cost_model.calibrate(question, privacy=privacy, variance=variance)

    def cost(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
    ) -> tuple[Promise, ...]:
        """Return what an aggregate would be charged; empty if it is free. Nothing is asked or charged.

        Parameters
        ----------
        question : Aggregate
            Sums to compute, over the declared columns.
        privacy : PureDP, ApproxDP, ZCDP, GaussianDP or PosteriorOdds
            Promise that the answer keeps; None where `variance` is given instead.
        variance : float
            Variance of the noise, in the answer's unit squared; None where `privacy` is given.
        owner : str, optional
            Name that would be charged: under its limit another law of noise may take less.
        """
        _, noise = self._calibrate(question, privacy=privacy, variance=variance, owner=owner)
        return () if noise.promise is None else (noise.promise,)

    def expected_sd(
        self,
        question: Aggregate,
        *,
        privacy: Promise | None = None,
        variance: float | None = None,
        owner: str | None = None,
    ) -> float | Floats:
        """Return the standard deviation of the noise, in the answer's unit. Nothing is asked or charged.

        Parameters
        ----------
        question, privacy, variance, owner
            As for :meth:`cost`.
        """
        bound, noise = self._calibrate(question, privacy=privacy, variance=variance, owner=owner)
        return unwrap_scalar(bound.arrange(noise.sd(bound), 0.0))
