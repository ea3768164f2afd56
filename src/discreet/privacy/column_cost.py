"""Fisher information about columns, which adds up over releases: its cost, its cap, the floor it proves."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from discreet.errors import ParameterError, PromiseError
from discreet.privacy.promises import ColumnFloor, ErrorFloor, NoPromise, Promise
from discreet.privacy.rounding import Amount, exact, root_down

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.privacy.composition import Spending

INFORMATION = "Fisher information of "
"""How the names of currencies begin in which a limit on errors is spent; the name of the column follows."""
# Each release's bound is lowered by its own sampler's total variation, of order 1e-35 of the squared
# range per draw; a part in 1e9 of the mean square covers what many releases add to that.
_SAMPLER_SLACK = 1 - Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class ColumnCost:
    """Fisher information about one column, summed over its releases.

    Attributes
    ----------
    information : Amount or None
        Sum of the releases' Fisher information; None once a release did not state its own.
    prior : Amount or None
        Fisher information of the prior behind the van Trees bound; None if a release had no bound.
    """

    information: Amount | None
    prior: Amount | None

    @classmethod
    def from_floor(cls, floor: ColumnFloor) -> ColumnCost:
        """Return the cost of one release from the floor that it states."""
        if floor.fisher_information is None:
            return cls(None, None)
        info = exact(floor.fisher_information)
        if floor.van_trees is None:
            return cls(Amount.rounded_up(info), None)
        return cls(
            Amount.rounded_up(info),
            # van_trees was rounded down, so that what 1 / van_trees**2 leaves beside I is at least J.
            Amount.rounded_up(max(Fraction(0), 1 / exact(floor.van_trees) ** 2 - info)),
        )

    def floor(self, information: Amount | None) -> float | None:
        """Return the van Trees floor at some information, rounded down; None where none is proven."""
        if information is None or self.prior is None or not information + self.prior:
            return None
        return root_down(_SAMPLER_SLACK / (information.exact + self.prior.exact))

    def __add__(self, other: ColumnCost) -> ColumnCost:
        if self.information is None or other.information is None:
            return ColumnCost(None, None)
        # The prior belongs to the column, not to a release: where two are stated, the larger is safe.
        prior = None if self.prior is None or other.prior is None else max(self.prior, other.prior)
        return ColumnCost(self.information + other.information, prior)


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
