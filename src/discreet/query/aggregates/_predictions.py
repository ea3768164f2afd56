"""What a public additive model says about rows: how many it gets right, and how its lines should change.

The passes over rows that score them by a public model, in whole numbers, stand before the aggregates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates.base import Aggregate, BoundAggregate, root_up
from discreet.query.aggregates.histogram import check_edges, plain_edges, starts_of
from discreet.query.engines.tasks import KernelTotals
from discreet.query.features import ONE, PRODUCT_BITS, Band, Features, curve_band
from discreet.query.passes import BUCKET_BITS, LAST_BUCKET, SIGMOID_BITS, whole_weights

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.query.curation import Curation
    from discreet.schema.schema import Neighbors


_EXPONENTIAL: Ints = np.floor(2**20 * np.exp(-np.arange(LAST_BUCKET + 1) / 2**BUCKET_BITS) + 0.5).astype(
    np.int64
)
_LARGEST_TERM = 2.0**20  # of a score; sums over all columns stay far below 2**62


class ClassScores(Protocol):
    """Scores of the classes of rows in a public model."""

    @property
    def columns(self) -> tuple[str, ...]:
        """SQL names of the columns that are read."""

    @property
    def n_classes(self) -> int:
        """Number of classes between which the model chooses."""

    def __call__(self, arrays: Sequence[AnyArray]) -> tuple[AnyArray, Ints]:
        """Return the place of each row's class, -1 for none, and the scores of all classes, one row each."""


@dataclass(frozen=True, slots=True)
class AdditiveScores:
    """Scores of the classes of rows in a public additive model.

    Attributes
    ----------
    curves_read : tuple of str
        SQL names of the columns that curves read.
    bands : tuple of Band
        Cells of each curve.
    tables : tuple of tuple of tuple of int
        For each curve and cell, what it adds to the score of each class, in units of 2**-16.
    lines : Features or None
        Numbers that are read on a scale of their own; None for none.
    slopes : tuple of tuple of int
        For each such number, what a unit adds to the score of each class, in units of 2**-16.
    intercept : tuple of int
        Score of each class before any column is looked at, in units of 2**-16.
    target : str
        SQL name of the target.
    places : tuple of int
        Place among the classes of each level of the target; -1 for a level that is no class.
    """

    curves_read: tuple[str, ...]
    bands: tuple[Band, ...]
    tables: tuple[tuple[tuple[int, ...], ...], ...]
    lines: Features | None
    slopes: tuple[tuple[int, ...], ...]
    intercept: tuple[int, ...]
    target: str
    places: tuple[int, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return (*self.curves_read, *(() if self.lines is None else self.lines.columns), self.target)

    @property
    def n_classes(self) -> int:
        """Number of classes between which the model chooses."""
        return len(self.intercept)

    def __call__(self, arrays: Sequence[AnyArray]) -> tuple[AnyArray, Ints]:
        """Return the place of each row's class, -1 for none, and the scores of all classes, one row each."""
        n_rows = len(arrays[-1])
        scores = np.repeat(np.array(self.intercept, np.int64)[:, None], n_rows, axis=1)
        added = np.empty(n_rows, np.int64)
        for band, table in zip(self.bands, self.tables, strict=True):
            codes = band.codes(arrays)
            # One class at a time, which is faster than taking columns of a matrix.
            for score, values in zip(scores, np.array(table, np.int64).T.copy(), strict=True):
                score += np.take(values, codes, out=added, mode="clip")
        if self.lines is not None:
            numbers = self.lines.rows(arrays[len(self.curves_read) : -1]).astype(np.int64)
            # In integers: slopes are below 2**36, and floats would round their products.
            scores += (np.array(self.slopes, np.int64).T @ numbers) >> PRODUCT_BITS
        return np.array(self.places)[arrays[-1]], scores


@dataclass(frozen=True, slots=True)
class PredictionPass:
    """The number of rows whose class has the largest score, or a table of classes by named classes."""

    scores: ClassScores
    by_class: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return self.scores.columns

    @property
    def size(self) -> int:
        """How many integers it gives."""
        return self.scores.n_classes**2 if self.by_class else 1

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the counts over some rows."""
        true, scores = self.scores(arrays)
        named = scores.argmax(axis=0)
        if not self.by_class:
            return np.array([np.count_nonzero(true == named)], np.int64)
        n = len(scores)
        known = true >= 0
        return np.bincount(true[known] * n + named[known], minlength=n * n).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ClassGradientPass:
    """Sums of lines times (1 for a row's class minus the probabilities of all classes), in 2**-12.

    Attributes
    ----------
    scores : AdditiveScores
        Scores of the classes without the lines.
    features : Features
        Lines of the rows, and their constant.
    weights : tuple of tuple of int
        For each line and the constant, the weight of each class, in units of ``2**-bits``.
    bits : int
        Bits of the weights past the point.
    """

    scores: AdditiveScores
    features: Features
    weights: tuple[tuple[int, ...], ...]
    bits: int

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return (*self.features.columns, *self.scores.columns)

    @property
    def size(self) -> int:
        """How many integers it gives."""
        return self.scores.n_classes * self.features.size

    def parts(self, arrays: Sequence[AnyArray]) -> tuple[Floats, Floats]:
        """Return the residuals of the classes and the lines of rows, both as whole numbers in floats."""
        at = len(self.features.columns)
        rows = self.features.rows(arrays[:at])
        true, scores = self.scores(arrays[at:])
        scores += (np.array(self.weights, np.float64).T @ rows).astype(np.int64) >> self.bits
        behind = np.minimum((scores.max(axis=0) - scores) >> (PRODUCT_BITS - BUCKET_BITS), LAST_BUCKET)
        odds = _EXPONENTIAL[behind]
        # Rounded down, so that probabilities add up to 1 at most.
        likely = (odds << SIGMOID_BITS) // odds.sum(axis=0)
        found = (np.arange(len(odds))[:, None] == true).astype(np.int64) << SIGMOID_BITS
        return (found - likely).astype(np.float64), rows

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the sums over some rows, class by class."""
        residuals, rows = self.parts(arrays)
        return (residuals @ rows.T).astype(np.int64).ravel()


@dataclass(frozen=True)
class _AdditiveModel(Aggregate):
    """A public additive model of a class: an intercept, curves over cells, and lines.

    Parameters
    ----------
    target : str
        Column of the class label, a category.
    classes : sequence
        Levels of the target between which the model chooses, in the order of its scores.
    intercept : sequence of float
        Score of each class before any column is looked at.
    curves : mapping of str to sequence of sequences of float
        For each level or cell of some columns, that of missing ones last, the score it adds to each class.
    edges : mapping of str to sequence of float
        For numbers with a curve, the values at which cells begin.
    lines : mapping of str to sequence of float
        For numbers that are read on a scale of their own, its origin as a fraction of the range and the
        number of its units in the range; cut to 3 units on either side, and 0 for missing ones.
    slopes : mapping of str to sequence of float
        For the same numbers, the score that a unit adds to each class.
    """

    target: str
    classes: Sequence[Any]
    intercept: Sequence[float]
    curves: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    lines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    slopes: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Normalize the fields to plain values, and refuse scores that are not one for each class."""
        curves = {name: tuple(tuple(map(float, row)) for row in rows) for name, rows in self.curves.items()}
        object.__setattr__(self, "classes", tuple(self.classes))
        object.__setattr__(self, "intercept", tuple(map(float, self.intercept)))
        object.__setattr__(self, "curves", curves)
        object.__setattr__(self, "edges", plain_edges(self.edges))
        for name in ("lines", "slopes"):
            rows = {column: tuple(map(float, row)) for column, row in getattr(self, name).items()}
            object.__setattr__(self, name, rows)
        check_edges(self.edges, list(curves))
        if self.target in (*curves, *self.lines):
            raise ParameterError(
                f"curves of a question must not hold its target {self.target!r}. Leave it out."
            )
        scores = [self.intercept, *self.slopes.values(), *(row for rows in curves.values() for row in rows)]
        good = all(
            len(row) == len(self.classes) and all(abs(value) <= _LARGEST_TERM for value in row)
            for row in scores
        )
        good = good and set(self.slopes) <= set(self.lines) and all(len(v) == 2 for v in self.lines.values())
        if len(self.classes) < 2 or not good:
            raise ParameterError(
                "scores of a question must be numbers of at most 2**20, one for each of two or more classes, "
                "and those of lines must have an origin and units; they are not."
            )

    def scores(self, curation: Curation) -> AdditiveScores:
        """Return the scores of rows on a curated table, for a pass over batches of them."""
        read: list[str] = []
        bands = []
        for name, rows in self.curves.items():
            starts = starts_of(curation.column(name), self.edges[name]) if name in self.edges else None
            bands.append(curve_band(curation.column(name), starts, read))
            if len(rows) != bands[-1].size:
                raise ParameterError(
                    f"curves of a question for {name!r} must have {bands[-1].size} cells, and have "
                    f"{len(rows)}."
                )
        sloped = {name: self.lines[name] for name in self.slopes}
        lines = (
            Features.from_curation(curation, (), center=None, radius=None, lines=sloped) if sloped else None
        )
        return AdditiveScores(
            curves_read=tuple(read),
            bands=tuple(bands),
            tables=tuple(tuple(map(_whole, rows)) for rows in self.curves.values()),
            lines=lines,
            slopes=tuple(map(_whole, self.slopes.values())),
            intercept=_whole(self.intercept),
            target=curation.column(self.target).sql,
            places=class_places(curation, self.target, self.classes),
        )


@dataclass(frozen=True)
class PredictionCounts(_AdditiveModel):
    """The number of rows whose class a public additive model names, or a table of classes by named ones.

    See :class:`_AdditiveModel` for the other parameters.

    Parameters
    ----------
    by_class : bool
        Whether to count rows by their class and the class that is named, instead of those that are right.

    Notes
    -----
    A row's class is the first with the largest score, in whole multiples of 2**-16. A row whose level is not
    among the classes is right with none, and in no cell of the table.

    Privacy
    -------
    A row is right or not: the number moves by at most 1 when a row is replaced, added or removed. In the
    table a row is in one cell: the square of the sensitivity is 2 when it is replaced and 1 otherwise.

    Reference
    ---------
    docs/explanation/theorems/classifier.md.
    """

    kind: ClassVar[str] = "prediction counts"
    by_class: bool = False

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        scores = self.scores(curation)
        canonical = {**self.to_dict(), "places": list(scores.places)}
        return bind_counts(canonical, PredictionPass(scores, self.by_class), neighbors)


@dataclass(frozen=True)
class ClassGradients(_AdditiveModel):
    """The gradient of the likelihood of several classes in the weights of lines, with curves held fixed.

    See :class:`_AdditiveModel` for the other parameters; slopes are given by `weights`.

    Parameters
    ----------
    radius : float
        Length to which the lines of a row are shortened together.
    constant : float
        Last coordinate of every row, up to 1, beside its lines.
    weights : sequence of sequences of float
        For each line and the constant, the weight of each class.

    Notes
    -----
    The sum of ``(e - p) z'``: ``e`` is 1 for the class of a row, ``p`` the probabilities of the classes in
    whole multiples of 2**-12, ``z`` the lines and the constant. The answer has a row for each class.

    Privacy
    -------
    ``|e - p|**2 <= 2``, so with ``B`` the length of ``z`` the square of the sensitivity is ``8 B**2`` when a
    row is replaced and ``2 B**2`` when one is added or removed.

    Reference
    ---------
    docs/explanation/theorems/classifier.md.
    """

    kind: ClassVar[str] = "class gradients"
    radius: float = 1.0
    constant: float = 1.0
    weights: Sequence[Sequence[float]] = ()

    def __post_init__(self) -> None:
        """Normalize the fields to plain values, and refuse weights of another shape."""
        super().__post_init__()
        weights = tuple(tuple(map(float, row)) for row in self.weights)
        object.__setattr__(self, "weights", weights)
        shape = len(weights) == len(self.lines) + 1 and all(len(row) == len(self.classes) for row in weights)
        if self.slopes or not shape or not 0 < self.constant <= 1:
            raise ParameterError(
                f"weights of a question must be {len(self.lines) + 1} rows, one for each line and the "
                f"constant, of {len(self.classes)} numbers each, and its constant above 0 and up to 1; they "
                "are not."
            )

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        kernel = self.kernel(curation)
        features, n = kernel.features, len(self.classes)
        p = features.size
        square = features.total_square << (2 * SIGMOID_BITS)
        factor = 2 if neighbors == "replace-one" else 1
        size = n * p
        return BoundAggregate(
            canonical={
                **self.to_dict(),
                "places": list(kernel.scores.places),
                "row": features.square,
                "weights": [list(row) for row in kernel.weights],
            },
            squared=factor**2 * 2 * square,
            # The absolute values of e - p add up to 2 at most.
            absolute=factor * 2 * root_up(p * square),
            precision=(1,) * size,
            weight=(1,) * size,
            unit=np.full(size, 2.0**-SIGMOID_BITS / ONE),
            shift=np.zeros(size),
            places=np.arange(size).reshape(n, p),
            plain_unit=2.0**-SIGMOID_BITS / ONE,
            wanted=KernelTotals(kernel),
        )

    def kernel(self, curation: Curation) -> ClassGradientPass:
        """Return the pass over batches of rows that adds up the gradient."""
        features = Features.from_curation(
            curation, (), center=None, radius=self.radius, intercept=self.constant, lines=self.lines
        )
        flat, bits = whole_weights(
            [w for row in self.weights for w in row], features.size * len(self.classes)
        )
        n = len(self.classes)
        weights = tuple(flat[i : i + n] for i in range(0, len(flat), n))
        return ClassGradientPass(self.scores(curation), features, weights, bits)


def bind_counts(canonical: dict[str, Any], kernel: PredictionPass, neighbors: Neighbors) -> BoundAggregate:
    """Return the count of right rows, or the table of classes, bound to a curated table.

    Parameters
    ----------
    canonical : dict
        JSON values that fix the question.
    kernel : PredictionPass
        Pass that scores rows by the model and counts them.
    neighbors : str
        Relation of neighbors, on which the sensitivity of the table depends.
    """
    n = kernel.scores.n_classes
    charge = 2 if kernel.by_class and neighbors == "replace-one" else 1
    return BoundAggregate(
        canonical=canonical,
        squared=charge,
        absolute=charge,
        precision=(1,) * kernel.size,
        weight=(1,) * kernel.size,
        unit=np.ones(kernel.size),
        shift=np.zeros(kernel.size),
        places=np.arange(kernel.size).reshape((n, n) if kernel.by_class else ()),
        plain_unit=1.0,
        wanted=KernelTotals(kernel),
    )


def class_places(curation: Curation, target: str, classes: Sequence[Any]) -> tuple[int, ...]:
    """Return the place among the classes of each level of the target, -1 for a level that is no class."""
    column = curation.column(target)
    known = [(type(level), level) for level in column.levels]
    missing = [level for level in classes if (type(level), level) not in known]
    if missing or len(set(classes)) < len(classes):
        raise ParameterError(
            f"classes of a question must be levels of the category {target!r}, each once, and "
            f"{(missing or classes)[0]!r} is not. It has {', '.join(map(repr, column.levels))}."
        )
    order = [known.index((type(level), level)) for level in classes]
    return tuple(order.index(i) if i in order else -1 for i in range(len(column.levels)))


def _whole(values: Sequence[float]) -> tuple[int, ...]:
    return tuple(math.floor(value * ONE + 0.5) for value in values)
