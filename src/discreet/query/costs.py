"""What queries cost, and what is left of budgets: in numbers and in words."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import PromiseError
from discreet.formatting import format_share, number
from discreet.privacy import ZCDP, ApproxDP, GaussianDP, PureDP, Spending, promise_from_dict
from discreet.privacy.calibration import gaussian_epsilon, gaussian_mu
from discreet.privacy.promises import describe_promise
from discreet.privacy.rounding import four_digits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.ledger import Account
    from discreet.privacy import Promise

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
    counts = [count for account in limited.values() if (count := account.more(cost)) is not None]
    takes = {
        name: account.takes(cost) if charged is None else account.took(charged)
        for name, account in limited.items()
    }
    used = {name: account.used for name, account in limited.items()}

    def share_after(name: str) -> float:
        added = takes[name] if charged is None else None
        return sum((use["share"] or 0.0) for use in (used[name], added) if use is not None)

    nearer = max(limited, key=share_after, default=None)
    return {
        "own": None if own is None else own.left,
        "total": None if total is None else total.left,
        "more": min(counts, default=None),
        "nearer": nearer,
        "used": None if nearer is None else used[nearer],
        "takes": None if nearer is None else takes[nearer],
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


def describe_left(used: Mapping[str, float | None], whose: str = "") -> str:
    """Return as text which part of a budget is left."""
    share = used["share"]
    assert share is not None
    return f"{format_share(max(0.0, 1.0 - share), up=False)}{whose} is left"


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
