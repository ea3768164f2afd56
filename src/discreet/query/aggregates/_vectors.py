"""Sums of vectors and of their products, through passes over batches of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.errors import ParameterError
from discreet.query.aggregates.base import Aggregate, BoundAggregate, check_cells, root_up
from discreet.query.aggregates.histogram import check_edges, plain_edges, starts_of
from discreet.query.engines.tasks import KernelTotals
from discreet.query.features import ONE, Features, center_of, square_of
from discreet.query.passes import (
    SIGMOID_BITS,
    ClusterPass,
    GradientPass,
    GramPass,
    HalfspacePass,
    bucket_shift,
    whole_weights,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.query.curation import Curation
    from discreet.schema.schema import Neighbors


@dataclass(frozen=True)
class Gram(Aggregate):
    """Sums of products of coordinates, and of coordinates: what PCA and least squares need.

    Parameters
    ----------
    columns : sequence of str
        A number is one coordinate, as a fraction of its range, where the declared fill, its middle, stands
        for a missing cell, which is imputation; a category one for each level, 0 or 1.
    center : sequence of float, optional
        Public origin of each coordinate, from 0 to 1; the middle of the ranges if left out.
    radius : float, optional
        Length to which longer centered rows are shortened; by default that of the longest row which the
        schema allows, so that none is shortened.
    with_sums : bool
        Whether to include the number of rows and the sums of coordinates. The answer is then the matrix of
        products of ``(1, x)``; otherwise of ``x``.
    edges : mapping of str to sequence of float
        For columns of numbers that are read as cells, the values at which cells begin: a coordinate for each
        cell, 0 or 1, and a last one for a missing number.
    scores : mapping of str to sequence of float
        For columns that are read as a curve, the value of each level or cell, that of missing ones last, from
        -4 to 4. Each is one coordinate, before all others; a number may be in `lines` or `columns` too, and
        has its cells by `edges` in the curve alone.
    lines : mapping of str to sequence of float
        For numbers that are read on a scale of their own, its origin as a fraction of the range and the
        number of its units in the range. They come after the curves, cut to 3 units on either side; a missing
        one is 0.
    intercept : float
        Last coordinate of every row, up to 1, which is not clipped and is part of the length ``B``; 0 for
        none.

    Privacy
    -------
    Entries off the diagonal, which the answer shows twice, get half the variance, so that one row's change is
    measured by the Frobenius norm: with ``B`` the radius, its square is at most ``2 B**4`` when a row is
    replaced and ``B**4`` when one is added or removed. With sums, the coordinate 1 is given the length
    ``B`` too, which makes it ``2 (2 B**2)**2`` and ``(2 B**2)**2``.

    Reference
    ---------
    Sections 4.1 of the paper, which charges every entry: docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> with Database({"age": [20, 80] * 500, "ill": [0, 1] * 500}, schema=schema, random_state=1) as db:
    ...     db.ask(Gram(["age"]), privacy=GaussianDP(1)).value.round()
    array([[1000.,    5.],
           [   5.,   92.]])
    """

    kind: ClassVar[str] = "gram"
    columns: Sequence[str]
    center: Sequence[float] | None = None
    radius: float | None = None
    with_sums: bool = True
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    lines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    intercept: float = 0.0

    def __post_init__(self) -> None:
        _normalize_fields(self)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        features = Features.from_curation(
            curation,
            self.columns,
            center=self.center,
            radius=self.radius,
            intercept=self.intercept,
            starts=_starts(curation, self.edges),
            scores=self.scores,
            lines=self.lines,
        )
        d, square = features.size, features.total_square
        kernel = GramPass(features, self.with_sums)
        upper = np.triu_indices(d)
        precision = [1 if i == j else 2 for i, j in zip(*upper, strict=True)]
        unit = [1 / ONE**2] * len(precision)
        places = np.zeros((d, d), np.int64)
        places[upper] = places.T[upper] = np.arange(len(precision))
        norm = square
        # The number of rows is an entry only where it can change; otherwise it is public or stays unasked.
        counts = self.with_sums and neighbors == "add-remove"
        if self.with_sums:
            norm = 2 * square
            sums = len(precision) + np.arange(d)
            precision += [2 * square] * d
            unit += [1 / ONE] * d
            corner = len(precision)
            if counts:
                precision.append(square**2)
                unit.append(1.0)
            wide = np.full((d + 1, d + 1), corner, np.int64)
            wide[1:, 1:] = places
            wide[0, 1:] = wide[1:, 0] = sums
            places = wide
        factor = 2 if neighbors == "replace-one" else 1
        squared = factor * norm**2
        size = len(precision)
        # Cauchy-Schwarz: sum sqrt(p) |change| <= sqrt(size) sqrt(sum p change^2); whole weights are smaller.
        weight = [math.isqrt(p) for p in precision]

        def finish(integers: list[int], n_rows: int) -> list[int]:
            return [*integers, n_rows] if counts else integers

        return BoundAggregate(
            canonical=_canonical(self.kind, features, self.columns, with_sums=self.with_sums),
            squared=squared,
            absolute=root_up(size * squared),
            precision=tuple(precision),
            weight=tuple(weight),
            unit=np.array(unit),
            shift=np.zeros(size),
            places=places,
            plain_unit=1 / ONE**2,
            wanted=KernelTotals(kernel),
            finish=finish,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        more = {"intercept": self.intercept} if self.intercept else {}
        return {**_vector_dict(self), "with_sums": self.with_sums, **more}


@dataclass(frozen=True)
class ClusterSums(Aggregate):
    """For every center the number of rows nearest to it and the sum of their displacements from it.

    Parameters
    ----------
    columns, center
        As for :class:`Gram`; the center is only the origin of the coordinates.
    centers : sequence of sequences of float
        Coordinates of each center, from 0 to 1, as fractions of the declared ranges.
    radius : float, optional
        Length to which longer displacements are shortened; the diagonal of the cube if left out.

    Notes
    -----
    The answer has a row for each center: the count, then the sums. Ties go to the first center.

    Privacy
    -------
    A row counts for one center alone. With ``B`` the radius, and counts given the weight ``B``, the square
    of the sensitivity is ``4 B**2`` when a row is replaced, attained inside one cluster, and ``2 B**2``
    when one is added or removed.

    Reference
    ---------
    Section 4.2 of the paper, which charges ``k (d + 1)``: docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> with Database({"age": [20, 80] * 500, "ill": [0, 1] * 500}, schema=schema, random_state=1) as db:
    ...     db.ask(ClusterSums(["age"], [[0.5]]), privacy=GaussianDP(1)).value.round()
    array([[1000.,    6.]])
    """

    kind: ClassVar[str] = "cluster sums"
    columns: Sequence[str]
    centers: Sequence[Sequence[float]]
    radius: float | None = None

    def __post_init__(self) -> None:
        _normalize_fields(self)
        given = tuple(tuple(float(value) for value in center) for center in self.centers)
        if not given:
            raise ParameterError("centers of ClusterSums must be at least one, and are none. Begin with any.")
        object.__setattr__(self, "centers", given)

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        features = Features.from_curation(curation, self.columns, center=None, radius=None)
        d, k = features.size, len(self.centers)
        check_cells(k * (d + 1))
        middle = ONE // 2
        centers = tuple(tuple(c - middle for c in center_of(center, d)) for center in self.centers)
        whole = d * ONE**2
        square = whole if self.radius is None else min(whole, square_of("radius", self.radius))
        kernel = ClusterPass(features, centers, square)
        size = k * (d + 1)
        places = np.hstack([np.arange(k)[:, None], k + np.arange(k * d).reshape(k, d)])
        factor = 4 if neighbors == "replace-one" else 2
        weight = max(1, math.isqrt(square))
        # One row: its count times the weight, and a displacement whose L1 norm is at most sqrt(d) B.
        absolute = (2 if neighbors == "replace-one" else 1) * (weight + root_up(d * square))
        return BoundAggregate(
            canonical=_canonical(
                self.kind, features, self.columns, centers=[list(center) for center in centers], square=square
            ),
            squared=factor * square,
            absolute=absolute,
            precision=(square,) * k + (1,) * (k * d),
            weight=(weight,) * k + (1,) * (k * d),
            unit=np.array([1.0] * k + [1 / ONE] * (k * d)),
            shift=np.zeros(size),
            places=places,
            plain_unit=1 / ONE,
            wanted=KernelTotals(kernel),
        )


@dataclass(frozen=True)
class _Labeled(Aggregate):
    """Common parameters of the aggregates for linear classifiers.

    Parameters
    ----------
    columns, center, radius, edges, scores, lines
        As for :class:`Gram`.
    target : str
        Column of the class label, a category.
    positive : object
        Level of the positive class; all others are negative.
    weights : sequence of float
        Weights of the model: one for each centered coordinate, then that of the intercept.
    intercept : float
        Last coordinate of every row, up to 1; 0, or False, for none.
    """

    columns: Sequence[str]
    target: str
    positive: Any
    weights: Sequence[float]
    center: Sequence[float] | None = None
    radius: float | None = None
    intercept: float = True
    edges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    scores: Mapping[str, Sequence[float]] = field(default_factory=dict)
    lines: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _normalize_fields(self)
        object.__setattr__(self, "weights", tuple(float(value) for value in self.weights))
        if self.target in (*self.columns, *self.scores, *self.lines):
            raise ParameterError(
                f"columns of a question must not hold its target {self.target!r}. Leave it out."
            )

    def _bind_features(self, curation: Curation) -> tuple[Features, str, int, tuple[int, ...], int]:
        """Return the features, and target and weights as integers.

        Returns
        -------
        tuple
            Features, SQL name of the target, code of the positive level, integer weights, and their bits.

        Raises
        ------
        ParameterError
            The positive level is not one of the target's.
        """
        features = Features.from_curation(
            curation,
            self.columns,
            center=self.center,
            radius=self.radius,
            intercept=self.intercept,
            starts=_starts(curation, self.edges),
            scores=self.scores,
            lines=self.lines,
        )
        column = curation.column(self.target)
        # True == 1 in Python; levels of one column are of one type, and so must be the positive one.
        matches = [
            i for i, v in enumerate(column.levels) if v == self.positive and type(v) is type(self.positive)
        ]
        if not matches:
            raise ParameterError(
                f"positive of a question must be a level of the category {self.target!r}, was "
                f"{self.positive!r}. It has {', '.join(map(repr, column.levels)) or 'none: it is a number'}."
            )
        weights, bits = whole_weights(self.weights, features.size)
        return features, column.sql, matches[0], weights, bits

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            **_vector_dict(self),
            "target": self.target,
            "positive": self.positive,
            "weights": list(self.weights),
            "intercept": self.intercept,
        }


@dataclass(frozen=True)
class HalfspaceSums(_Labeled):
    """The number of rows that a plane gets wrong, and the sum of label times coordinates over them.

    See :class:`_Labeled` for the parameters. The answer is a vector: the count, then the sums. Rows on the
    plane are wrong.

    Privacy
    -------
    With ``B`` the length of rows (intercept included) and counts given the weight ``sqrt(3) B``, the square
    of the sensitivity is ``4 B**2`` both when a row is replaced and when one is added or removed.

    Reference
    ---------
    Section 4.3 of the paper, whose entries span [-1, 1]: docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> with Database({"age": [20, 80] * 500, "ill": [0, 1] * 500}, schema=schema, random_state=1) as db:
    ...     db.ask(HalfspaceSums(["age"], "ill", 1, (0.0, 1.0)), privacy=GaussianDP(1)).value.round()
    array([ 501.,  148., -499.])
    """

    kind: ClassVar[str] = "halfspace sums"

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        features, target, positive, weights, _ = self._bind_features(curation)
        kernel = HalfspacePass(features, target, positive, weights)
        d, square = features.size, features.total_square
        counted = math.isqrt(3 * square)
        norm = root_up(d * square)
        # Two rows that are both wrong leave the count as it is.
        absolute = max(2 * norm, counted + norm) if neighbors == "replace-one" else counted + norm
        return BoundAggregate(
            canonical=_canonical(
                self.kind, features, self.columns, target=self.target, positive=positive, weights=weights
            ),
            squared=4 * square,
            absolute=absolute,
            precision=(3 * square,) + (1,) * d,
            weight=(counted,) + (1,) * d,
            unit=np.array([1.0] + [1 / ONE] * d),
            shift=np.zeros(1 + d),
            places=np.arange(1 + d),
            plain_unit=1 / ONE,
            wanted=KernelTotals(kernel),
        )


@dataclass(frozen=True)
class GradientSums(_Labeled):
    """The gradient of the logistic likelihood: the sum of (label - probability) times coordinates.

    See :class:`_Labeled` for the parameters. Probabilities are read off a public table of 2048 steps.

    Privacy
    -------
    With ``B`` the length of rows (intercept included) the square of the sensitivity is ``4 B**2`` when a
    row is replaced and ``B**2`` when one is added or removed.

    Reference
    ---------
    Section 4.5 of the paper: docs/explanation/theorems/sulq-sensitivity.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> with Database({"age": [20, 80] * 500, "ill": [0, 1] * 500}, schema=schema, random_state=1) as db:
    ...     db.ask(GradientSums(["age"], "ill", 1, (0.0, 1.0)), privacy=GaussianDP(1)).value.round()
    array([ 150., -231.])
    """

    kind: ClassVar[str] = "gradient sums"

    def bind(self, curation: Curation, neighbors: Neighbors) -> BoundAggregate:
        """Return the aggregate bound to a curated table; refuses columns that do not fit."""
        features, target, positive, weights, bits = self._bind_features(curation)
        shift = bucket_shift(bits)
        kernel = GradientPass(features, target, positive, weights, shift)
        d, square = features.size, features.total_square << (2 * SIGMOID_BITS)
        factor = 2 if neighbors == "replace-one" else 1
        return BoundAggregate(
            canonical=_canonical(
                self.kind,
                features,
                self.columns,
                target=self.target,
                positive=positive,
                weights=weights,
                shift=shift,
            ),
            squared=factor**2 * square,
            absolute=factor * root_up(d * square),
            precision=(1,) * d,
            weight=(1,) * d,
            unit=np.full(d, 2.0**-SIGMOID_BITS / ONE),
            shift=np.zeros(d),
            places=np.arange(d),
            plain_unit=2.0**-SIGMOID_BITS / ONE,
            wanted=KernelTotals(kernel),
        )


def _normalize_fields(question: Any) -> None:
    """Set columns, center and edges of a frozen aggregate to tuples and plain values."""
    columns = (question.columns,) if isinstance(question.columns, str) else tuple(question.columns)
    object.__setattr__(question, "columns", columns)
    center = getattr(question, "center", None)
    if center is not None:
        object.__setattr__(question, "center", tuple(float(value) for value in center))
    edges = getattr(question, "edges", None)
    if edges is not None:
        object.__setattr__(question, "edges", plain_edges(edges))
        for name in ("scores", "lines"):
            given = {key: tuple(map(float, row)) for key, row in getattr(question, name).items()}
            object.__setattr__(question, name, given)
        check_edges(edges, (*columns, *question.scores))
        if any(len(line) != 2 for line in question.lines.values()) or not 0 <= question.intercept <= 1:
            raise ParameterError(
                "lines of a question must have an origin and a number of units each, and its intercept must "
                "be from 0 to 1; they are not."
            )


def _starts(curation: Curation, edges: Mapping[str, Sequence[float]]) -> dict[str, tuple[float | int, ...]]:
    return {name: starts_of(curation.column(name), cuts) for name, cuts in edges.items()}


def _vector_dict(question: Any) -> dict[str, Any]:
    """Return the fields that all aggregates of vectors share as plain JSON values, curves only if any."""
    values = {
        "kind": question.kind,
        "columns": list(question.columns),
        "center": None if question.center is None else list(question.center),
        "radius": question.radius,
        "edges": plain_edges(question.edges),
    }
    if question.scores:
        values["scores"] = {name: list(scores) for name, scores in question.scores.items()}
    if question.lines:
        values["lines"] = {name: list(line) for name, line in question.lines.items()}
    return values


def _canonical(kind: str, features: Features, columns: Sequence[str], **more: Any) -> dict[str, Any]:
    """Return the JSON values that fix an exact answer, curves only if any."""
    values = {
        "kind": kind,
        "columns": list(columns),
        "center": list(features.center),
        "row": features.square,
        "intercept": bool(features.intercept),
        "cells": [[band.place, *(band.starts or ())] for band in features.bands],
        **{name: list(value) if isinstance(value, tuple) else value for name, value in more.items()},
    }
    curves = [list(pick.scores) for pick in features.picks if pick.scores is not None]
    lines = [pick.steps for pick in features.picks if pick.steps is not None]
    if curves or lines or features.intercept not in (0, ONE):
        read = list(features.columns)
        values |= {"scores": curves, "lines": lines, "read": read, "constant": features.intercept}
    return values
