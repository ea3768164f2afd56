"""Public map from a table to points of the unit ball, and the labels of artificial points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError, SchemaError
from discreet.learn.perturbation.embedding import Embedding
from discreet.noise import discrete_laplace, permutation, samplers
from discreet.noise.linear_algebra import product
from discreet.privacy import PureDP
from discreet.release.masked.existence import sample_ball
from discreet.release.masked.losses import LOGISTIC
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.release.masked.losses import MaskedLoss

INTERCEPT = "intercept"
"""Name of the published column that is constant."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One coordinate: a number, a level of a list, whether a number is missing, or the constant.

    Attributes
    ----------
    name : str
        Name of the published column.
    origin : str
        Name of the declared column that it comes from; empty for the constant.
    level : str or None
        Level of a list that it indicates, or "missing"; None for a number itself.
    """

    name: str
    origin: str
    level: str | None = None


@dataclass(frozen=True, eq=False)
class Encoding:
    """Public map from declared columns to coordinates.

    A number becomes one coordinate, -1 to 1 over its range; a list one for each level, 1 or 0; a number that
    may be missing one more for whether it is. Then the whole row is divided by ``norm_bound``, after being
    shortened to it where it is longer.

    Attributes
    ----------
    schema : Schema
        Schema of the table, as declared.
    coordinates : tuple of Coordinate
        Coordinates in the order of the published columns, without the constant.
    embedding : Embedding
        Scaling of the cells, shortening to the norm bound, and the constant coordinate.

    Privacy
    -------
    Depends on declared numbers alone; each row is mapped independently of the others.
    """

    schema: Schema
    coordinates: tuple[Coordinate, ...]
    embedding: Embedding

    @classmethod
    def from_schema(
        cls, schema: Schema, *, norm_bound: float | None, intercept: bool, bounded: bool, owner: str
    ) -> Encoding:
        """Return the map for a schema.

        Parameters
        ----------
        schema : Schema
            Declaration of the table, with a target.
        norm_bound : float or None
            Declared largest norm of a row; None takes the largest that the columns allow.
        intercept : bool
            Whether a constant coordinate is added.
        bounded : bool
            Whether numbers are clipped to their declared range; if not, rows are only shortened.
        owner : str
            Name of the class that errors refer to.
        """
        coordinates: list[Coordinate] = []
        ranges: list[tuple[float, float]] = []
        length = 0
        for column in schema.features:
            length += 1 + (column.missing_flag is not None)
            if column.is_category:
                words = ["missing" if level is None else str(level) for level in column.levels]
                coordinates += [Coordinate(f"{column.name}={word}", column.name, word) for word in words]
                # Bounds of -1 and 1 leave 0 and 1 unchanged.
                ranges += [(-1.0, 1.0)] * len(words)
                continue
            coordinates.append(Coordinate(column.name, column.name))
            ranges.append(column.range)
            if column.missing_flag is not None:
                coordinates.append(Coordinate(column.missing_flag, column.name, "missing"))
                ranges.append((-1.0, 1.0))
        if not coordinates:
            raise ParameterError(
                f"schema of {owner} must have a column beside the target, and has none. There is nothing to "
                "predict it from."
            )
        names = [c.name for c in coordinates] + [INTERCEPT] * intercept + [schema.target or ""]
        if len(set(names)) < len(names):
            duplicate = next(name for name in names if names.count(name) > 1)
            raise SchemaError(
                f"The names of the columns that {owner} publishes must differ, and {duplicate!r} is there "
                "twice. Rename a column."
            )
        return cls(
            schema,
            tuple(coordinates),
            Embedding.declare(
                len(coordinates),
                bounds=tuple(zip(*ranges, strict=True)) if bounded else None,
                norm_bound=math.sqrt(length) if norm_bound is None else norm_bound,
                constant=None if intercept else 0.0,
                owner=owner,
            ),
        )

    @property
    def constant(self) -> float:
        """Last coordinate of every point; 0 if there is no intercept."""
        return self.embedding.constant

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all published columns but the target."""
        return (*(c.name for c in self.coordinates), *((INTERCEPT,) if self.constant > 0 else ()))

    @cached_property
    def maps(self) -> tuple[tuple[float, float], ...]:
        """Scale and shift of each published column: ``coordinate = scale * cell + shift``."""
        size = self.embedding.dimension
        scales, shifts = self.embedding.coefficients(np.eye(size))
        own = [float(scales[i, i]) if i < scales.shape[1] else 0.0 for i in range(size)]
        return tuple(zip(own, (float(shift) for shift in shifts), strict=True))

    def rows(self, columns: Mapping[str, AnyArray]) -> Floats:
        """Return encoded rows as points of the unit ball."""
        cells: list[AnyArray] = []
        for column in self.schema.features:
            values = columns[column.name]
            if column.is_category:
                cells += [(values == code).astype(np.float64) for code in range(len(column.levels))]
                continue
            missing = np.isnan(values)
            cells.append(np.where(missing, column.fill, values))
            if column.missing_flag is not None:
                cells.append(missing.astype(np.float64))
        return self.embedding.rows(np.column_stack(cells))

    def published_schema(self, radius: float) -> Schema:
        """Return the schema of the published table: coordinates up to ``radius``, and the target."""
        columns = [Column(name, lower=-radius, upper=radius) for name in self.names]
        assert self.schema.target is not None
        return Schema(
            columns=[*columns, self.schema.column(self.schema.target)],
            dataset=self.schema.dataset,
            unit=self.schema.unit,
        )


_PRIOR_POINTS = 4096
_LEAST_SHARE = 0.02


def apportion(shares: Floats | Sequence[float], n: int) -> Ints:
    """Return whole counts in proportion to ``shares`` that sum to ``n``, by the largest remainders.

    Reference
    ---------
    Hamilton's method.
    """
    quotas = np.asarray(shares, np.float64) / math.fsum(shares) * n
    counts = np.floor(quotas).astype(np.int64)
    rest = n - int(counts.sum())
    counts[np.argsort(-(quotas - counts), kind="stable")[:rest]] += 1
    return counts


def shuffled_codes(counts: Ints, stream: Stream) -> Ints:
    """Return ``counts[k]`` codes of each class k, in random order."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return np.asarray(codes[permutation(len(codes), stream)])


def model_shares(
    weights: Floats, regularization: float, constant: float, radius: float, loss: MaskedLoss = LOGISTIC
) -> Floats:
    """Return the shares of labels that fit a classifier: equal ones, unless it has an intercept.

    Privacy
    -------
    A function of the released weights. The points are the same for every release.

    Notes
    -----
    The gradient by the weight of the intercept vanishes where the mean residual is
    ``regularization * weight / constant``; for logistic regression that is the share of a class less its mean
    probability. Means are taken over fixed points of the ball.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    n_classes = max(2, len(weights))
    if constant == 0:
        return np.full(n_classes, 1 / n_classes)
    d = weights.shape[1] - 1
    rows = np.full((_PRIOR_POINTS, d + 1), constant)
    rows[:, :d] = public_ball(d) * math.sqrt(max(radius**2 - constant**2, 0.0))
    shares = loss.intercept_shares(product(rows, weights.T), regularization * weights[:, -1] / constant)
    shares = np.maximum(shares, _LEAST_SHARE / n_classes)
    return np.asarray(shares / shares.sum())


def public_ball(dimension: int) -> Floats:
    """Return public points of the unit ball, the same for every release."""
    from discreet.noise import Stream

    # These points are public and hide nothing, so a fixed seed is right: all releases share them.
    return sample_ball(_PRIOR_POINTS, dimension, 1.0, Stream.from_seed(_PRIOR_POINTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """Counts of the classes with discrete Laplace noise, for the labels of the points.

    Attributes
    ----------
    epsilon : float
        Pure epsilon that a unit spends on the counts.
    n_classes : int
        Number of declared classes.
    rows : int
        Largest number of rows of one unit.

    Privacy
    -------
    Replacing a row moves two counts by one each: the scale is ``2 rows / epsilon``, and the promise pure up
    to the sampler's distance. What is made of the noisy counts is post-processing.

    Reference
    ---------
    docs/explanation/theorems/masked-labels.md
    """

    epsilon: float
    n_classes: int
    rows: int

    def promise(self, column: str, common: dict[str, Any]) -> PureDP:
        """Return the promise of the counts, which covers the target ``column``."""
        return PureDP(
            epsilon=self.epsilon,
            covers=(column,),
            total_variation=self.n_classes * samplers.LAPLACE_TOTAL_VARIATION,
            **common,
        )

    def shares(self, codes: Ints, stream: Stream) -> Floats:
        """Return noisy counts of the classes, negative ones set to 0; all 1 if none is positive."""
        scale = math.nextafter(2 * self.rows / self.epsilon, math.inf)
        counts = np.bincount(codes, minlength=self.n_classes) + discrete_laplace(
            scale, self.n_classes, stream
        )
        positive = np.maximum(counts, 0).astype(np.float64)
        return positive if positive.sum() > 0 else np.ones(self.n_classes)
