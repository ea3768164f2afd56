"""Whose cells can be attacked: the protected columns of a plan, as the attacks see them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit.channel import ResponseChannel, SampledChannel, channel_of
from discreet.law import Additive, Clear, InvariantLaw
from discreet.privacy.floors import ListPrior
from discreet.release.gaussian import GaussianNumbers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._typing import AnyArray, Floats, Ints
    from discreet.audit.channel import Channel
    from discreet.audit.guess import Statistic
    from discreet.release import ColumnSummary, Plan
    from discreet.schema import Column

MOST_ROWS = 20_000
"""Rows that an attack looks at; stated wherever it says something."""


@dataclass(frozen=True, eq=False)
class Target:
    """A published column: what is declared, what was done to it, what is proven about it."""

    column: Column
    summary: ColumnSummary

    @property
    def name(self) -> str:
        """Of the column."""
        return self.column.name

    @property
    def is_list(self) -> bool:
        """Whether its cells are levels of a declared list."""
        return self.column.is_category

    @property
    def is_clear(self) -> bool:
        """Whether it is published as it is."""
        return isinstance(self.summary.law, Clear)

    @property
    def floor(self) -> float | None:
        """What no guess can beat, under the named prior."""
        return None if self.summary.floor is None else self.summary.floor.error

    @property
    def statistic(self) -> Statistic:
        """What an error of a guess is."""
        return "probability of a wrong guess" if self.is_list else "root-mean-square error"

    @property
    def missing_keep(self) -> float | None:
        """How often a flag of a missing cell is published as it is."""
        return self.summary.law.missing_keep

    @cached_property
    def channel(self) -> Channel | None:
        """The law as an attacker uses it."""
        return channel_of(self.column, self.summary.law)

    @property
    def response(self) -> ResponseChannel:
        """The channel of a list."""
        assert isinstance(self.channel, ResponseChannel)
        return self.channel

    @property
    def codes(self) -> Ints:
        """The codes that a true cell of a list may have: "not published" is none of them."""
        codes = np.arange(len(self.column.levels))
        return codes[codes != self.channel.hidden] if isinstance(self.channel, SampledChannel) else codes

    @property
    def listed(self) -> Ints:
        """The codes of a list that the floor's prior knows: those of declared values, without any other."""
        prior = self.summary.prior
        return np.array(prior.codes) if isinstance(prior, ListPrior) else self.codes

    @property
    def blind(self) -> Floats:
        """For each code of a list, what it is worth to somebody who knows nothing."""
        weights = np.zeros(len(self.column.levels))
        weights[self.listed] = 1 / self.listed.size
        return weights

    @property
    def noise_variance(self) -> float | None:
        """Variance of additive noise that was not clamped afterwards; None for every other law."""
        law = self.summary.law
        if isinstance(law, InvariantLaw):
            return law.variance
        return law.variance if isinstance(law, Additive) and not law.clamped else None


def targets_of(plan: Plan) -> list[Target]:
    """Return every published column of a plan."""
    return [Target(plan.schema.column(summary.column), summary) for summary in plan.columns]


def noise_covariance(plan: Plan, names: Sequence[str]) -> Floats | None:
    """Return the covariance of the noise of some columns, which is public; None where it is diagonal."""
    numbers = getattr(plan, "numbers", None)
    if not isinstance(numbers, GaussianNumbers) or numbers.covariance.ndim == 1:
        return None
    places = [[c.name for c in numbers.columns].index(name) for name in names]
    return numbers.covariance[np.ix_(places, places)]


def length(rows: Mapping[str, AnyArray]) -> int:
    """Return how many rows some columns have."""
    return len(next(iter(rows.values()))) if rows else 0


def by_person(columns: Mapping[str, AnyArray], rows: int = 1) -> dict[str, AnyArray]:
    """Put the cells of each person's rows, which follow one another, side by side."""
    return {name: values.reshape(-1, rows) for name, values in columns.items()}
