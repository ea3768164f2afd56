"""Randomized response of categories, missing flags and labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.noise import Stream, randomized_response, response_threshold
from discreet.noise_law import ResponseLaw
from discreet.privacy import ColumnFloor, PureDP, floors
from discreet.privacy.calibration import group_epsilon, keep_probability, response_epsilon
from discreet.privacy.priors import ListPrior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray
    from discreet.schema import Column


@dataclass(frozen=True, slots=True)
class LevelList:
    """Public list of levels that a release randomizes: those of a category, or of a missing flag.

    Attributes
    ----------
    column : Column
        Declared column that the list belongs to.
    missing_flag : bool
        Whether the list is the missing flag of a number, with levels 0 and 1, not the column itself.
    """

    column: Column
    missing_flag: bool = False

    @property
    def levels(self) -> int:
        """Number of levels in the list."""
        return 2 if self.missing_flag else len(self.column.levels)

    @property
    def prior(self) -> ListPrior:
        """Uniform prior that a floor averages over: the listed values, without "other" and "missing"."""
        return ListPrior((0, 1)) if self.missing_flag else list_prior(self.column)

    @property
    def largest_error(self) -> float:
        """Error rate of a blind guess; where one value is listed, of a blind guess among all levels."""
        return self.prior.largest or 1 - 1 / self.levels


def list_prior(column: Column) -> ListPrior:
    """Return the uniform prior on the values that a category lists: they come first among its levels."""
    return ListPrior(tuple(range(len(column.values or ()))))


def level_lists(protected: Sequence[Column]) -> tuple[LevelList, ...]:
    """Return every list that a release of these columns has to randomize."""
    categories = [LevelList(c) for c in protected if c.is_category]
    return (*categories, *(LevelList(c, missing_flag=True) for c in protected if c.missing_flag))


@dataclass(frozen=True, slots=True)
class Response:
    """Randomized response on one list.

    Parameters
    ----------
    level_list : LevelList
        List of levels that is randomized.
    keep : float
        Probability that a cell is published as it is.
    """

    level_list: LevelList
    keep: float

    @classmethod
    def for_epsilon(cls, level_list: LevelList, epsilon: float, rows: int) -> Response:
        """Return the response that spends ``epsilon`` on a unit with up to ``rows`` rows."""
        return cls(level_list, keep_probability(epsilon / rows, level_list.levels))

    @classmethod
    def for_error(cls, level_list: LevelList, error: float, rows: int) -> Response:
        """Return the response under which guesses at a unit are wrong with probability at least ``error``."""
        # Where one value is listed no floor is proven, and the error is one among all levels.
        n_listed = len(level_list.prior.codes) if level_list.prior.largest else level_list.levels
        keep = floors.keep_for_wrong_guess(
            error, level_list.levels, listed=n_listed, answers=rows, column=level_list.column.name
        )
        return cls(level_list, keep)

    def scaled(self, factor: float) -> Response:
        """Return the response with epsilon, the log odds of keeping a cell, divided by ``factor``."""
        return Response(self.level_list, keep_probability(self.epsilon / factor, self.level_list.levels))

    @property
    def name(self) -> str:
        """Name of the randomized column."""
        return self.level_list.column.name

    @property
    def epsilon(self) -> float:
        """Epsilon of one answer, rounded up."""
        return response_epsilon(self.keep, self.level_list.levels)

    @property
    def law(self) -> ResponseLaw:
        """Public distribution of an answer given the true level."""
        return ResponseLaw(levels=self.level_list.levels, keep=self.keep)

    def floor(self, rows: int) -> ColumnFloor | None:
        """Return the least error rate of a guess at a unit with up to ``rows`` rows; None where it is 0."""
        prior = self.level_list.prior
        error = floors.wrong_guess_floor(
            self.keep, self.level_list.levels, listed=len(prior.codes), answers=rows
        )
        return floors.column_floor(error, prior)

    def draw(self, values: AnyArray, stream: Stream) -> AnyArray:
        """Return the randomized codes; for a missing flag, whether each number is missing."""
        codes = np.isnan(values).astype(np.int64) if self.level_list.missing_flag else values
        threshold = response_threshold(self.keep, self.level_list.levels)
        return randomized_response(codes, self.level_list.levels, threshold, stream)


def response_promise(responses: Sequence[Response], rows: int, common: dict[str, Any]) -> PureDP:
    """Return the promise for all answers of one unit, whose epsilons add up."""
    epsilon = math.fsum(r.epsilon for r in responses) * (1 + 2.0**-50)
    covers = tuple(dict.fromkeys(r.name for r in responses))
    return PureDP(epsilon=group_epsilon(epsilon, rows), covers=covers, **common)
