"""What answers cost, in words and in questions: the same for the command line, the service and its pages."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from discreet.errors import PromiseError
from discreet.formatting import number
from discreet.privacy import PureDP, Spending
from discreet.privacy.promises import describe_promise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.privacy import Promise

_KEPT = 4096  # costs that are remembered: the same few are asked again and again


@lru_cache(maxsize=_KEPT)
def prices(cost: tuple[Promise, ...]) -> Mapping[str, float]:
    """Return what a cost comes to in each currency that a limit may be told in; pure costs count in both."""
    spent = sum((Spending.of(promise) for promise in cost), Spending())
    return {
        "epsilon": float(spent.pure),
        "rho": float(spent.pooled if _pure(cost) else spent.gaussian),
        "queries": float(spent.charges),
    }


def affordable(cost: tuple[Promise, ...], left: Mapping[str, float] | None) -> int | None:
    """Say how many more like this an amount would pay for.

    Parameters
    ----------
    cost : tuple of Promise
        Of one.
    left : mapping of str to float or None
        What is left in each currency, as :meth:`Ledger.remaining` says it; None without a limit.

    Returns
    -------
    int or None
        None without a limit, and for what costs nothing.
    """
    if left is None or not cost:
        return None
    paid_in = {"epsilon" if _pure(cost) and "epsilon" in left else "rho", "queries"} & set(left)
    counts = (
        math.floor(left[name] / price) for name, price in prices(cost).items() if name in paid_in and price
    )
    return min(counts, default=None)


@lru_cache(maxsize=_KEPT)
def cost_words(cost: tuple[Promise, ...], delta: float) -> str:
    """Write a price; Gaussian ones also as an epsilon at `delta`."""
    if not cost:
        return "nothing"
    listed = " and ".join(describe_promise(promise.to_dict()) for promise in cost)
    spent = sum((Spending.of(promise) for promise in cost), Spending())
    if not spent.rho or _pure(cost):
        return listed
    try:
        epsilon = number(spent.epsilon_at(delta), digits=4, rounding="up")
    except PromiseError:  # so much, or so little, that no epsilon says it
        return listed
    return f"{listed} (epsilon {epsilon} at delta {delta:g})"


def _pure(cost: tuple[Promise, ...]) -> bool:
    return all(isinstance(promise, PureDP) for promise in cost)
