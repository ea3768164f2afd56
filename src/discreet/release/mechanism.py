"""Mechanisms on the cells of a row: the interface of noise on numbers, and randomized response.

Mechanisms on numbers share priors and floors. Randomized response protects categories, missing flags and
labels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from discreet.errors import ParameterError
from discreet.noise import Stream, randomized_response, response_threshold
from discreet.noise.linear_algebra import product, symmetric_eigen
from discreet.noise_law import ResponseLaw
from discreet.privacy import ColumnFloor, PureDP, floors
from discreet.privacy.calibration import group_epsilon, keep_probability, response_epsilon
from discreet.privacy.priors import IntegerPrior, ListPrior, UniformPrior

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Bools, Floats
    from discreet.noise_law import Law
    from discreet.privacy import Promise
    from discreet.privacy.additive_noise import Noise
    from discreet.schema import Column

SIZE_TOLERANCE = 1.2e-7
"""Largest relative difference of a stated and a calibrated size of noise: a step of 24 bits."""


def is_close_size(stated: float, own: float) -> bool:
    """Return whether a stated size of noise is the calibrated one, up to differences between processors."""
    return abs(stated - own) <= SIZE_TOLERANCE * abs(own)


def uniform_prior(column: Column) -> UniformPrior | IntegerPrior:
    """Return the uniform prior on the declared range of a column; on integers for integers and dates."""
    lower, upper = column.range
    if column.type == "number":
        return UniformPrior(lower, upper)
    return IntegerPrior(int(lower), int(upper))


def additive_floor(
    column: Column,
    noise: Noise,
    *,
    lattice_step: float,
    total_variation: float = 0.0,
    releases: int = 1,
) -> ColumnFloor | None:
    """Return the exact Bayes error under the uniform prior and the bounds beside it; None where it is 0.

    Parameters
    ----------
    column : Column
        Declared column that the floor is for.
    noise : Noise
        Additive noise on one cell, in the unit of the column.
    lattice_step : float
        Twice the distance by which rounding to the lattice can move a cell, in the unit of the column.
    total_variation : float
        Distance between the law of the sampler and ``noise``, over all releases.
    releases : int
        Number of independent draws around the same value that the attacker sees.
    """
    prior = uniform_prior(column)
    error = floors.bayes_floor(
        noise,
        prior,
        releases=releases,
        total_variation=total_variation,
        lattice_step=lattice_step,
    )
    return floors.column_floor(error, prior, measure=column.measure, noise=noise, releases=releases)


def matrix_power(positive: Floats, power: float) -> Floats:
    """Return a power of a positive definite matrix, or of a diagonal matrix given as a vector."""
    if positive.ndim == 1:
        return np.asarray(positive**power)
    values, vectors = symmetric_eigen(positive)
    return product(vectors * values**power, vectors.T)


def check_weights(given: Any, columns: Sequence[Column], where: str) -> Floats:
    """Return the weights ``Pi`` as an array: a positive vector or a positive definite matrix.

    Raises
    ------
    ParameterError
        If the shape is wrong, or the weights are not finite, symmetric and positive definite.
    """
    weights, p = np.asarray(given, float), len(columns)
    if weights.shape not in ((p,), (p, p)) or not np.isfinite(weights).all():
        raise ParameterError(
            f"weights of {where} must be {p} finite numbers or a {p} by {p} matrix, for "
            f"{', '.join(c.name for c in columns)}; had shape {weights.shape}."
        )
    # Relative to the largest entry: an inverse computed in floating point is symmetric up to rounding.
    if weights.ndim == 2 and np.abs(weights - weights.T).max() > 1e-12 * np.abs(weights).max():
        raise ParameterError(f"weights of {where} must be a symmetric matrix.")
    least = float(weights.min() if weights.ndim == 1 else scipy.linalg.eigvalsh(weights)[0])
    if not least > 0:
        raise ParameterError(
            f"weights of {where} must be positive definite, and their smallest eigenvalue is {least:.6g}. "
            "Give every direction a weight above 0."
        )
    return weights


class NumberMechanism(ABC):
    """Mechanism that adds noise to the numbers of a row.

    Attributes
    ----------
    columns : tuple of Column
        Numeric columns, in the order of the columns of the matrices below.
    """

    columns: tuple[Column, ...]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {c.name: j for j, c in enumerate(self.columns)}

    def has_column(self, column: Column) -> bool:
        """Return whether the mechanism covers a column."""
        return column.name in self._places

    def column_index(self, column: Column) -> int:
        """Return the position of a column among those of the mechanism."""
        return self._places[column.name]

    @abstractmethod
    def law(self, column: Column) -> Law:
        """Return the public law of the noise of one column, in the unit of the column."""

    @abstractmethod
    def promises(self, n_rows: int, rows: int, common: dict[str, Any]) -> list[Promise]:
        """Return the promises for a unit with up to ``rows`` rows of a table of ``n_rows``.

        ``common`` holds the arguments that all promises of a release share, such as the unit.
        """

    @abstractmethod
    def floor(self, column: Column, rows: int) -> ColumnFloor | None:
        """Return the least error of any guess at a cell of a column; None where none is proven."""

    @abstractmethod
    def release(self, matrix: Floats, stream: Stream) -> Floats:
        """Return the noised numbers of some rows, of shape (n_rows, n_columns), none of them missing."""

    @abstractmethod
    def scaled(self, factor: float) -> NumberMechanism:
        """Return the mechanism with ``factor`` times as much noise."""

    @abstractmethod
    def is_possible(self, matrix: Floats) -> Bools:
        """Return, cell by cell, whether the mechanism can have drawn a published number from any true one."""

    def repeat_chance(self) -> float:
        """Return a bound on the chance that the published numbers of two rows agree, whatever was true."""
        return 1.0

    def output_range(self, column: Column) -> tuple[float, float]:
        """Return the least and the largest number that can be published of a column."""
        return -math.inf, math.inf

    def with_laws(self, laws: Mapping[str, Law]) -> NumberMechanism:
        """Return the mechanism with the sizes that published laws state, where they match its own.

        A size that was calibrated on another processor may differ in its last digit. Checking or replaying a
        release needs the size that it was drawn with.
        """
        return self

    def epsilon(self, column: Column) -> float | None:
        """Return the pure epsilon of one cell; None where the columns have none of their own."""
        return None


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
    # The sum is rounded once, to the nearest; the factor takes it above the exact one.
    epsilon = math.fsum(r.epsilon for r in responses) * (1 + 2.0**-50)
    covers = tuple(dict.fromkeys(r.name for r in responses))
    return PureDP(epsilon=group_epsilon(epsilon, rows), covers=covers, **common)
