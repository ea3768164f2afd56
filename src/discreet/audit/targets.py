"""Targets of attacks: published columns with what is known of their law, and which rows are one person's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit.channel import Channel, ResponseChannel, SampledChannel, build_channel
from discreet.noise_law import (
    Additive,
    Clear,
    InvariantLaw,
)
from discreet.privacy.priors import ListPrior

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._guess import Statistic
    from discreet.release import ColumnSummary, ReleasePlan
    from discreet.schema import Column

MOST_ROWS = 20_000
"""Largest number of rows that an attack uses."""


@dataclass(frozen=True, eq=False)
class Target:
    """A published column as a target of attacks.

    Attributes
    ----------
    column : Column
        Declaration of the column in the schema.
    summary : ColumnSummary
        Law, prior and floor of the column in the plan.
    """

    column: Column
    summary: ColumnSummary

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def is_list(self) -> bool:
        """Whether its cells are levels of a declared list."""
        return self.column.is_category

    @property
    def is_clear(self) -> bool:
        """Whether it is published unchanged."""
        return isinstance(self.summary.law, Clear)

    @property
    def floor(self) -> float | None:
        """Least error of any guess under the plan's prior; None if none is proven."""
        return None if self.summary.floor is None else self.summary.floor.error

    @property
    def statistic(self) -> Statistic:
        """Statistic in which errors of guesses are stated."""
        return "probability of a wrong guess" if self.is_list else "root-mean-square error"

    @property
    def missing_keep(self) -> float | None:
        """Probability that the missing flag is published unchanged; None if there is no flag."""
        return self.summary.law.missing_keep

    @cached_property
    def channel(self) -> Channel | None:
        """Likelihood of published cells; None where a cell depends on more than its own value."""
        return build_channel(self.column, self.summary.law)

    @property
    def response(self) -> ResponseChannel:
        """Channel of a randomized list."""
        assert isinstance(self.channel, ResponseChannel)
        return self.channel

    @property
    def codes(self) -> Ints:
        """Codes that a true cell of a list may have, without that of "not published"."""
        codes = np.arange(len(self.column.levels))
        return codes[codes != self.channel.hidden] if isinstance(self.channel, SampledChannel) else codes

    @property
    def prior_codes(self) -> Ints:
        """Codes of a list to which the floor's prior gives weight: those of declared values."""
        prior = self.summary.prior
        return np.array(prior.codes) if isinstance(prior, ListPrior) else self.codes

    @property
    def prior_weights(self) -> Floats:
        """Weight of each code of a list under the floor's prior, which is uniform."""
        weights = np.zeros(len(self.column.levels))
        weights[self.prior_codes] = 1 / self.prior_codes.size
        return weights

    @property
    def noise_variance(self) -> float | None:
        """Variance of additive noise without clamping; None for every other law."""
        law = self.summary.law
        if isinstance(law, InvariantLaw):
            return law.variance
        # Clamping moves mass to the ends, and the variance of the law is no longer that of the noise.
        return law.variance if isinstance(law, Additive) and not law.clamped else None


def plan_targets(plan: ReleasePlan) -> list[Target]:
    """Return every published column of a plan as a target."""
    return [Target(plan.schema.column(summary.column), summary) for summary in plan.columns]


def noise_covariance(plan: ReleasePlan, names: Sequence[str]) -> Floats | None:
    """Return the public covariance of the noise of some columns; None where it is diagonal."""
    numbers = getattr(plan, "numbers", None)
    covariance = getattr(numbers, "covariance", None)
    if numbers is None or covariance is None or covariance.ndim == 1:
        return None
    places = [[c.name for c in numbers.columns].index(name) for name in names]
    return np.asarray(covariance[np.ix_(places, places)])


def count_rows(rows: Mapping[str, AnyArray]) -> int:
    """Return the number of rows of some columns; 0 without columns."""
    return len(next(iter(rows.values()))) if rows else 0


def group_by_person(columns: Mapping[str, AnyArray], rows: int = 1) -> dict[str, AnyArray]:
    """Return columns of shape (people, rows) from columns in which the rows of a person are consecutive."""
    return {name: values.reshape(-1, rows) for name, values in columns.items()}


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Rows of some people, those of one person after another.

    Attributes
    ----------
    places : array of int
        Places of the rows in a table.
    starts : array of int
        Place in `places` of the first row of each person.
    """

    places: Ints
    starts: Ints

    @classmethod
    def from_ids(cls, ids: AnyArray | None, n_rows: int) -> UnitRows:
        """Return the people of a table, by the id of each row; None: every row is another person's."""
        if ids is None:
            return cls(np.arange(n_rows), np.arange(n_rows))
        # Stable, so that the rows of a person keep their order and results repeat.
        places = np.argsort(ids, kind="stable")
        changes = np.flatnonzero(ids[places][1:] != ids[places][:-1]) + 1
        # An empty table has no first person.
        return cls(places, np.concatenate([np.zeros(min(1, n_rows), np.int64), changes]))

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> Ints:
        """Number of rows of each person."""
        return np.diff(self.starts, append=len(self.places))

    @property
    def owners(self) -> Ints:
        """Number of the person that each row belongs to, from 0 on."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def take(self, people: Ints) -> UnitRows:
        """Return the rows of some people, in the order in which they are given."""
        sizes = self.sizes[people]
        starts = np.cumsum(sizes) - sizes
        inside = np.arange(int(sizes.sum())) + np.repeat(self.starts[people] - starts, sizes)
        return UnitRows(self.places[inside], starts)

    def combine(self, values: Floats, how: np.ufunc) -> Floats:
        """Return one value for each person from the values of the rows."""
        return np.asarray(how.reduceat(values, self.starts))
