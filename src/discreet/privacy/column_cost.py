"""Fisher information about one column, which adds up over releases, and the floor that the sum proves."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from discreet.privacy.rounding import Amount, exact, root_down

if TYPE_CHECKING:
    from discreet.privacy.promises import ColumnFloor

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
