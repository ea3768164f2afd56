"""Randomized response for everything that is not a number: categories, missing flags, labels."""

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
class Listed:
    """A public list of levels that a release randomizes: of a category, or of a missing flag."""

    column: Column
    missing_flag: bool = False

    @property
    def levels(self) -> int:
        """Length of the list."""
        return 2 if self.missing_flag else len(self.column.levels)

    @property
    def prior(self) -> ListPrior:
        """Over which a floor averages: the listed values, without "other" and "missing"."""
        return ListPrior((0, 1)) if self.missing_flag else list_prior(self.column)

    @property
    def largest_error(self) -> float:
        """How often a blind guess is wrong; where one value is listed, a blind guess among all levels."""
        return self.prior.largest or 1 - 1 / self.levels


def list_prior(column: Column) -> ListPrior:
    """Return the uniform prior on the values that a category lists: they come first among its levels."""
    return ListPrior(tuple(range(len(column.values or ()))))


def listed_in(protected: Sequence[Column]) -> tuple[Listed, ...]:
    """Return every list that a release of these columns has to randomize."""
    categories = [Listed(c) for c in protected if c.is_category]
    return (*categories, *(Listed(c, missing_flag=True) for c in protected if c.missing_flag))


@dataclass(frozen=True, slots=True)
class Response:
    """Randomized response on one list.

    Parameters
    ----------
    listed : Listed
        What is randomized.
    keep : float
        How often a cell is published as it is.
    """

    listed: Listed
    keep: float

    @classmethod
    def for_epsilon(cls, listed: Listed, epsilon: float, rows: int) -> Response:
        """Spend ``epsilon`` on a unit that has up to ``rows`` rows."""
        return cls(listed, keep_probability(epsilon / rows, listed.levels))

    @classmethod
    def for_error(cls, listed: Listed, error: float, rows: int) -> Response:
        """Let a guess at one unit's value be wrong at least that often."""
        # Where one value is listed, no floor is proven, and what is asked for is a share of all levels.
        among = len(listed.prior.codes) if listed.prior.largest else listed.levels
        keep = floors.keep_for_wrong_guess(
            error, listed.levels, listed=among, answers=rows, column=listed.column.name
        )
        return cls(listed, keep)

    def scaled(self, factor: float) -> Response:
        """Return the response whose log odds are divided by ``factor``: as noise grows, so does the doubt."""
        return Response(self.listed, keep_probability(self.epsilon / factor, self.listed.levels))

    @property
    def name(self) -> str:
        """Of the column."""
        return self.listed.column.name

    @property
    def epsilon(self) -> float:
        """Of one answer, rounded up."""
        return response_epsilon(self.keep, self.listed.levels)

    @property
    def law(self) -> ResponseLaw:
        """The public law of an answer."""
        return ResponseLaw(levels=self.listed.levels, keep=self.keep)

    def floor(self, rows: int) -> ColumnFloor | None:
        """Return how often any guess is wrong, for a unit with up to ``rows`` rows; None where never."""
        prior = self.listed.prior
        error = floors.wrong_guess_floor(self.keep, self.listed.levels, listed=len(prior.codes), answers=rows)
        return floors.column_floor(error, prior)

    def draw(self, values: AnyArray, stream: Stream) -> AnyArray:
        """Return the randomized codes; of a number, whether it is missing."""
        codes = np.isnan(values).astype(np.int64) if self.listed.missing_flag else values
        threshold = response_threshold(self.keep, self.listed.levels)
        return randomized_response(codes, self.listed.levels, threshold, stream)


def response_promise(responses: Sequence[Response], rows: int, common: dict[str, Any]) -> PureDP:
    """Add the answers of one unit up."""
    epsilon = math.fsum(r.epsilon for r in responses) * (1 + 2.0**-50)
    covers = tuple(dict.fromkeys(r.name for r in responses))
    return PureDP(epsilon=group_epsilon(epsilon, rows), covers=covers, **common)
