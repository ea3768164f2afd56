"""What a limit requires of each charge: relation between tables, columns, and floors that can be added up."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from discreet.errors import ParameterError, PromiseError
from discreet.privacy.column_cost import ColumnCost
from discreet.privacy.promises import ColumnFloor, ErrorFloor, NoPromise, Promise
from discreet.privacy.rounding import Amount

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.privacy.composition import Spending

INFORMATION = "Fisher information of "
"""How the names of currencies begin in which a limit on errors is spent; the name of the column follows."""


def check_relation(limit: Promise, cost: Spending) -> None:
    """Refuse a charge whose unit, neighbors or columns are not those of the limit."""
    for name in ("unit", "neighbors"):
        expected, actual = getattr(limit, name), getattr(cost, name)
        if actual is not None and actual != expected:
            raise PromiseError(
                f"{name} of the charge must be the limit's, {expected!r}, got {actual!r}. "
                "Different relations between tables are never added up: keep one ledger for each. "
                f"On the command line, create it with --{name} {actual}."
            )
    wanted = limit.covers
    if cost.covers is None or wanted is None or isinstance(limit, ErrorFloor):
        return
    if not set(wanted) <= set(cost.covers):
        raise PromiseError(
            f"covers of the charge must include what the limit covers, {', '.join(wanted)}, got "
            f"{', '.join(cost.covers)}. Protect the rest too, or open the ledger with a limit "
            "whose covers=(...) names the columns that every charge protects."
        )


def check_floors(limit: ErrorFloor, charge: Spending) -> None:
    """Refuse a charge that does not bound the information about each column of the limit."""
    stated = dict(charge.columns)
    for name in limit.columns:
        cost = stated.get(name)
        if cost is None:
            raise PromiseError(
                f"promises of a charge must include an ErrorFloor for {name!r}, which the limit bounds, "
                "and these do not: it might be published as it is. Release it with noise whose floor is "
                "above 0, leave it out with role: drop, or charge a ledger with a DP limit."
            )
        if cost.information is None:
            raise PromiseError(
                f"fisher_information of the floor for {name!r} must be given to be added up, was None: "
                "randomized answers, bins, in-range outputs and integers under noise that is not "
                "Gaussian have none. Use Gaussian noise, leave the column out with role: drop, or charge "
                "a ledger with a DP limit."
            )
        if cost.prior is None and limit[name].van_trees is not None:
            raise PromiseError(
                f"van_trees of the floor for {name!r} must be given under a limit that has one, was "
                "None: what is proven of a continuous value is not true of an integer. Limit the column "
                "by a floor of its own kind."
            )


def information_cap(limit: ErrorFloor, name: str) -> Amount:
    """Return the cap on the Fisher information about one column."""
    information = limit[name].fisher_information
    if information is None:
        raise ParameterError(
            f"fisher_information of the limit's floor for {name!r} must be given, was None: the error "
            "alone does not say how much may be revealed. Compute the floor with discreet.privacy.floors, "
            "which knows the column's range."
        )
    return Amount.rounded_down(information)


def guaranteed_floors(
    limit: ErrorFloor, amounts: Mapping[str, Amount], stated: Mapping[str, ColumnCost] | None
) -> Promise:
    """Return the limit on errors for the columns about which every charge says enough.

    Parameters
    ----------
    limit : ErrorFloor
        Limit that the charges are made under.
    amounts : mapping of str to Amount
        Caps of the limit by currency.
    stated : mapping of str to ColumnCost or None
        What the charges so far say about each column; None before the first.
    """
    floors: dict[str, ColumnFloor] = {}
    for name, floor in limit.entries:
        cost = ColumnCost.from_floor(floor) if stated is None else stated.get(name)
        if cost is None or cost.information is None:
            continue
        bounds = (cost.floor(amounts[INFORMATION + name]), floor.van_trees)
        proven = [bound for bound in bounds if bound is not None]
        if proven:
            floor = dataclasses.replace(floor, error=min(floor.error, *proven), prior="cosine squared")
        floors[name] = floor
    if not floors:
        return NoPromise("some charge says nothing about the columns whose error the limit bounds")
    return dataclasses.replace(limit, entries=tuple(floors.items()), covers=tuple(floors))
