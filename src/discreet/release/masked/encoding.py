"""A table as the classifier sees it: coordinates in the unit ball, with the public map that leads there.

Labels of points that belong to nobody: from a public list of shares, or from counts with noise.

What may be given beside a schema: a bare matrix with labels, and records that are there already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from discreet.errors import ParameterError, SchemaError
from discreet.learn.perturbation.base import Embedding
from discreet.noise import discrete_laplace, permutation, samplers
from discreet.noise._linear import product
from discreet.privacy import PureDP
from discreet.release.masked.existence import sample_ball
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream

INTERCEPT = "intercept"
"""Name of the published column that is the same in every row."""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One coordinate: a number, a level of a list, whether a number is missing, or the constant.

    Attributes
    ----------
    name : str
        Of the published column.
    origin : str
        The declared column that it comes from; empty for the constant.
    level : str or None
        What of it: None for a number itself, else the level, or "missing".
    """

    name: str
    origin: str
    level: str | None = None


@dataclass(frozen=True, eq=False)
class Encoding:
    """How declared columns become coordinates.

    A number becomes one coordinate, -1 to 1 over its range; a list one for each level, 1 or 0; a number that
    may be missing one more for whether it is. Then the whole row is divided by ``norm_bound``, after being
    shortened to it where it is longer.

    Attributes
    ----------
    schema : Schema
        What was declared.
    coordinates : tuple of Coordinate
        In the order of the published columns, without the constant.
    embedding : Embedding
        The public map.

    Privacy
    -------
    Declared numbers alone; each row is mapped by itself.
    """

    schema: Schema
    coordinates: tuple[Coordinate, ...]
    embedding: Embedding

    @classmethod
    def from_schema(
        cls, schema: Schema, *, norm_bound: float | None, intercept: bool, bounded: bool, owner: str
    ) -> Encoding:
        """Make the map for a schema; without ``bounded`` its numbers are not clipped and only shortened."""
        made: list[Coordinate] = []
        ranges: list[tuple[float, float]] = []
        length = 0
        for column in schema.features:
            length += 1 + (column.missing_flag is not None)
            if column.is_category:
                words = ["missing" if level is None else str(level) for level in column.levels]
                made += [Coordinate(f"{column.name}={word}", column.name, word) for word in words]
                # Bounds of -1 and 1 leave a 0 and a 1 as they are.
                ranges += [(-1.0, 1.0)] * len(words)
                continue
            made.append(Coordinate(column.name, column.name))
            ranges.append(column.range)
            if column.missing_flag is not None:
                made.append(Coordinate(column.missing_flag, column.name, "missing"))
                ranges.append((-1.0, 1.0))
        if not made:
            raise ParameterError(
                f"schema of {owner} must have a column beside the target, and has none. There is nothing to "
                "predict it from."
            )
        names = [c.name for c in made] + [INTERCEPT] * intercept + [schema.target or ""]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise SchemaError(
                f"The names of the columns that {owner} publishes must differ, and {twice!r} is there twice. "
                "Rename a column."
            )
        return cls(
            schema,
            tuple(made),
            Embedding.declare(
                len(made),
                bounds=tuple(zip(*ranges, strict=True)) if bounded else None,
                norm_bound=math.sqrt(length) if norm_bound is None else norm_bound,
                constant=None if intercept else 0.0,
                owner=owner,
            ),
        )

    @property
    def constant(self) -> float:
        """The last coordinate; 0 if there is no intercept."""
        return self.embedding.constant

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Of all published columns but the target."""
        return (*(c.name for c in self.coordinates), *((INTERCEPT,) if self.constant > 0 else ()))

    @cached_property
    def maps(self) -> tuple[tuple[float, float], ...]:
        """Scale and shift of each published column: ``coordinate = scale * cell + shift``."""
        size = self.embedding.dimension
        scales, shifts = self.embedding.coefficients(np.eye(size))
        own = [float(scales[i, i]) if i < scales.shape[1] else 0.0 for i in range(size)]
        return tuple(zip(own, (float(shift) for shift in shifts), strict=True))

    def rows(self, columns: Mapping[str, AnyArray]) -> Floats:
        """Return rows as points of the unit ball."""
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
        """Return the schema of the published table: coordinates of at most this radius, and the target."""
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
    """Return whole counts that sum to ``n``, by the largest remainders; of equal ones the first.

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
    """Return as many codes of each class as are counted, in random order."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return np.asarray(codes[permutation(len(codes), stream)])


def model_shares(weights: Floats, regularization: float, constant: float, radius: float) -> Floats:
    """Return the shares of labels that go with a classifier: equal ones, unless it has an intercept.

    The equation for the intercept's weight reads "share of a class minus its mean probability is
    regularization times weight over constant". The mean probability is taken over points of the ball.

    Privacy
    -------
    A function of the released weights. The points are the same for everybody.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    n_classes = max(2, len(weights))
    if constant == 0:
        return np.full(n_classes, 1 / n_classes)
    d = weights.shape[1] - 1
    rows = np.full((_PRIOR_POINTS, d + 1), constant)
    rows[:, :d] = _public_ball(d) * math.sqrt(max(radius**2 - constant**2, 0.0))
    scores = product(rows, weights.T)
    if len(weights) == 1:
        one = float(special.expit(scores).mean()) + regularization * float(weights[0, -1]) / constant
        shares = np.array([1 - one, one])
    else:
        shares = special.softmax(scores, axis=1).mean(axis=0) + regularization * weights[:, -1] / constant
    shares = np.maximum(shares, _LEAST_SHARE / n_classes)
    return np.asarray(shares / shares.sum())


def _public_ball(dimension: int) -> Floats:
    from discreet.noise import Stream

    # About nobody, and hides nobody: a fixed seed makes it the same for everybody.
    return sample_ball(_PRIOR_POINTS, dimension, 1.0, Stream.from_seed(_PRIOR_POINTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """Counts of the classes with discrete Laplace noise.

    Attributes
    ----------
    epsilon : float
        What they cost.
    n_classes, rows : int
        Length of the list, and rows of one unit.

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
        """Return what the counts promise."""
        return PureDP(
            epsilon=self.epsilon,
            covers=(column,),
            total_variation=self.n_classes * samplers.LAPLACE_TOTAL_VARIATION,
            **common,
        )

    def shares(self, codes: Ints, stream: Stream) -> Floats:
        """Count, add noise, and make shares of it; negative counts are none."""
        scale = math.nextafter(2 * self.rows / self.epsilon, math.inf)
        counts = np.bincount(codes, minlength=self.n_classes) + discrete_laplace(
            scale, self.n_classes, stream
        )
        positive = np.maximum(counts, 0).astype(np.float64)
        return positive if positive.sum() > 0 else np.ones(self.n_classes)
