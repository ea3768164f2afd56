"""A table as the classifier sees it: coordinates in the unit ball, with the public map that leads there.

Labels of points that belong to nobody: from a public list of shares, or from counts with noise.

What may be given beside a schema: a bare matrix with labels, and records that are there already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from discreet.errors import DataError, ParameterError, SchemaError
from discreet.learn.base import check_finite
from discreet.learn.perturbation.base import Embedding
from discreet.noise import discrete_laplace, permutation, samplers
from discreet.noise._linear import product
from discreet.privacy import PureDP
from discreet.release.masked.existence import ball
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def published(self, radius: float) -> Schema:
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


def in_random_order(counts: Ints, stream: Stream) -> Ints:
    """Return as many codes of each class as are counted, in random order."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return np.asarray(codes[permutation(len(codes), stream)])


def shares_of_model(weights: Floats, regularization: float, constant: float, radius: float) -> Floats:
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
    return ball(_PRIOR_POINTS, dimension, 1.0, Stream.from_seed(_PRIOR_POINTS))


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


OWNER = "MaskedRelease"


def bare_schema(
    n_features: int, classes: Sequence[Any], bounds: tuple[Any, Any] | None, norm_bound: float | None
) -> Schema:
    """Declare a bare matrix: columns x1, x2, ... and labels y."""
    if bounds is None:
        assert norm_bound is not None
        bounds = (-float(norm_bound), float(norm_bound))
    try:
        lower, upper = (np.broadcast_to(np.asarray(side, np.float64), n_features) for side in bounds)
    except (TypeError, ValueError):
        raise ParameterError(
            f"bounds of MaskedRelease must be a pair of numbers or of vectors of length {n_features}. Write "
            "bounds=(0, 1), or one lower and one upper bound for each column."
        ) from None
    columns = [
        Column(f"x{j + 1}", lower=float(low), upper=float(high))
        for j, (low, high) in enumerate(zip(lower, upper, strict=True))
    ]
    return Schema(columns=[*columns, Column("y", values=tuple(classes), role="target")])


def read_bare(
    X: Any, y: Any, classes: Sequence[Any] | None, bounds: tuple[Any, Any] | None, norm_bound: float | None
) -> tuple[Schema, dict[str, AnyArray]]:
    """Return a bare matrix with labels as columns, with the schema that it has."""
    if y is None:
        raise ParameterError(
            f"y of {OWNER}.release must be given with a bare matrix: the points carry a classifier."
        )
    matrix = np.asarray(X, np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise DataError(
            f"X of {OWNER}.release must be a matrix with at least one row, had shape {matrix.shape}."
        )
    if bounds is None:
        check_finite(matrix, f"X of {OWNER}.release")
    declared = (-1, 1) if classes is None else tuple(np.unique(np.array(classes)).tolist())
    schema = bare_schema(matrix.shape[1], declared, bounds, norm_bound)
    labels = np.asarray(y)
    if labels.shape != (len(matrix),):
        raise ParameterError(
            f"y of {OWNER}.release must have one entry for each of the {len(matrix)} rows, had shape "
            f"{labels.shape}."
        )
    rows: dict[str, AnyArray] = {
        c.name: matrix[:, j] if bounds is None else c.clip(matrix[:, j])
        for j, c in enumerate(schema.features)
    }
    if any(np.isnan(values).any() for values in rows.values()):
        raise DataError(f"X of {OWNER}.release must have no missing cells, and has some.")
    rows["y"] = codes_of(labels, schema.column("y"), f"y of {OWNER}.release").astype(np.int32)
    return schema, rows


def read_given(given: Any, schema: Schema, target: Column) -> tuple[dict[str, AnyArray], Ints]:
    """Return given records as encoded columns, and the codes of their labels."""
    columns = _named(given, schema, target)
    found: dict[str, AnyArray] = {}
    for column in schema.features:
        values = columns[column.name]
        if column.is_category:
            found[column.name] = codes_of(values, column, f"initial of {OWNER}")
            continue
        numbers = np.asarray(values, np.float64)
        if column.required:
            check_finite(numbers, f"initial of {OWNER}, column {column.name!r},")
        found[column.name] = numbers
    return found, codes_of(columns[target.name], target, f"initial of {OWNER}")


def _named(given: Any, schema: Schema, target: Column) -> dict[str, AnyArray]:
    """Return given records as columns by name."""
    wrong = ParameterError(
        f"initial of {OWNER} must be a pair of a matrix and its labels, or columns by name with the target "
        f"{target.name!r} among them, all of one length."
    )
    names = [column.name for column in schema.features]
    if isinstance(given, Mapping):
        found = {str(name): np.asarray(values) for name, values in given.items()}
    else:
        try:
            X, y = given
            matrix = np.asarray(X, np.float64)
            found = {name: matrix[:, j] for j, name in enumerate(names)}
            found[target.name] = np.asarray(y)
        except (TypeError, ValueError, IndexError):
            raise wrong from None
    if not {*names, target.name} <= set(found) or len({len(values) for values in found.values()}) != 1:
        raise wrong
    return found


def codes_of(values: AnyArray, column: Column, where: str) -> Ints:
    """Return the position of each value in the levels of a column."""
    codes = np.full(len(values), -1, np.int64)
    for code, level in enumerate(column.levels):
        codes[np.asarray(values) == level] = code
    if (codes < 0).any():
        line = int(np.flatnonzero(codes < 0)[0]) + 1
        raise DataError(
            f"{where} must hold the declared values of {column.name!r} alone, and row {line} does not. Rows "
            "are counted from 1; declare every class.",
            column=column.name,
            line=line,
        )
    return codes


def plain_label(label: Any) -> Any:
    """Return a label as plain Python has it; a whole number as one."""
    label = label.item() if isinstance(label, np.generic) else label
    return int(label) if isinstance(label, float) and label.is_integer() else label
