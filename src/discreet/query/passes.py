"""Passes over batches of curated rows: exact integers out of BLAS.

Rows are vectors of whole numbers (:mod:`~discreet.query.features`). All numbers stay below 2**53, so
floating-point products and sums of them are exact, whatever the order, the batch or the library; and every
decision about a row (which center is nearest, which side of a plane) is taken on whole numbers of that row
alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from discreet.errors import ParameterError
from discreet.query.features import PRODUCT_BITS, Band, Features, clip
from discreet.query.joint_tables import count_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Ints

WEIGHT_BITS = 20
SIGMOID_BITS = 12
BUCKET_BITS = 6  # steps of 1/64 in the margin ...
LAST_BUCKET = 16 << BUCKET_BITS  # ... up to 16, where the sigmoid is 0 or 1 on its grid


@dataclass(frozen=True, slots=True)
class GramPass:
    """Sums of products of coordinates (upper triangle, row by row), then sums of coordinates."""

    features: Features
    with_sums: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return self.features.columns

    @property
    def size(self) -> int:
        """How many integers it gives."""
        d = self.features.size
        return d * (d + 1) // 2 + (d if self.with_sums else 0)

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the sums over some rows."""
        rows = self.features.rows(arrays)
        products = rows @ rows.T
        parts = [products[np.triu_indices(len(rows))]]
        if self.with_sums:
            parts.append(rows.sum(axis=1))
        return np.concatenate(parts).astype(np.int64)


@dataclass(frozen=True, slots=True)
class MarginalsPass:
    """Counts of rows in every cell of tables over some columns, each in C order after the other.

    Attributes
    ----------
    columns : tuple of str
        SQL names of the columns that are read.
    bands : tuple of Band
        Cells of each column of the tables.
    tables : tuple of tuple of int
        For each table, the indices of its columns among the bands.
    """

    columns: tuple[str, ...]
    bands: tuple[Band, ...]
    tables: tuple[tuple[int, ...], ...]
    most_rows: ClassVar[int] = 2**18

    @property
    def size(self) -> int:
        """How many integers it gives."""
        return sum(math.prod(self.bands[i].size for i in table) for table in self.tables)

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the counts over some rows."""
        sizes = [band.size for band in self.bands]
        codes = [
            band.clipped_codes(arrays).astype(np.uint16 if size <= 2**16 else np.intp, copy=False)
            for band, size in zip(self.bands, sizes, strict=True)
        ]
        return np.concatenate(count_tables(codes, sizes, self.tables))


@dataclass(frozen=True, slots=True)
class ClusterPass:
    """For each center the number of rows nearest to it, then the sums of their clipped displacements."""

    features: Features
    centers: tuple[tuple[int, ...], ...]
    square: int

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return self.features.columns

    @property
    def size(self) -> int:
        """How many integers it gives."""
        return len(self.centers) * (1 + self.features.size)

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the sums over some rows."""
        rows = self.features.rows(arrays)
        centers = np.array(self.centers, np.float64)
        if len(centers) == 1:
            rows -= centers.T
            clip(rows, self.square)
            return np.concatenate([[rows.shape[1]], rows.sum(axis=1)]).astype(np.int64)
        # |x - c|^2 without |x|^2, which is the same for every center; ties go to the first.
        scores = np.einsum("ij,ij->i", centers, centers)[:, None] - 2 * (centers @ rows)
        nearest = scores.argmin(axis=0)
        rows -= centers[nearest].T
        clip(rows, self.square)
        chosen = (np.arange(len(centers))[:, None] == nearest).astype(np.float64)
        return np.concatenate([chosen.sum(axis=1), (chosen @ rows.T).ravel()]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class HalfspacePass:
    """The number of rows on the wrong side of a plane, then sums of label times coordinates over them."""

    features: Features
    target: str
    positive: int
    weights: tuple[int, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return (*self.features.columns, self.target)

    @property
    def size(self) -> int:
        """How many integers it gives."""
        return 1 + self.features.size

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the sums over some rows."""
        rows = self.features.rows(arrays[:-1])
        signs = np.where(arrays[-1] == self.positive, 1.0, -1.0)
        wrong = signs * (np.array(self.weights, np.float64) @ rows) <= 0
        return np.concatenate([[wrong.sum()], rows @ (signs * wrong)]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class GradientPass:
    """Sums of coordinates times (label minus its probability in a logistic model), in units of 2**-12."""

    features: Features
    target: str
    positive: int
    weights: tuple[int, ...]
    shift: int

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return (*self.features.columns, self.target)

    @property
    def size(self) -> int:
        """How many integers it gives."""
        return self.features.size

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the sums over some rows."""
        rows = self.features.rows(arrays[:-1])
        margin = (np.array(self.weights, np.float64) @ rows).astype(np.int64)
        bucket = np.clip(margin >> self.shift, -LAST_BUCKET, LAST_BUCKET - 1) + LAST_BUCKET
        label = (arrays[-1] == self.positive).astype(np.int64) << SIGMOID_BITS
        summed: Ints = (rows @ (label - _SIGMOID[bucket]).astype(np.float64)).astype(np.int64)
        return summed


def whole_weights(weights: Sequence[float], size: int) -> tuple[tuple[int, ...], int]:
    """Put weights on a binary grid of 20 bits below the largest; return them and the bits past the point."""
    values = [float(value) for value in weights]
    if len(values) != size or not all(abs(value) <= 2.0**20 for value in values):
        raise ParameterError(
            f"weights of a question must be {size} numbers of at most 2**20, one for each coordinate, and "
            "are not. A number is one coordinate, a category one for each level; the intercept is last."
        )
    largest = max((abs(value) for value in values), default=0.0)
    # A power of two, so that a margin is put into its bucket by a shift.
    bits = WEIGHT_BITS - (math.frexp(largest)[1] if largest else 0)
    bits = min(max(bits, 0), 2 * WEIGHT_BITS)
    return tuple(math.floor(math.ldexp(value, bits) + 0.5) for value in values), bits


def bucket_shift(bits: int) -> int:
    """Return by how many bits a margin of such weights is shifted to find its bucket."""
    return PRODUCT_BITS + bits - BUCKET_BITS


def _sigmoid_table() -> Ints:
    middles = (np.arange(-LAST_BUCKET, LAST_BUCKET) + 0.5) / 2**BUCKET_BITS
    table: Ints = np.floor(2**SIGMOID_BITS / (1 + np.exp(-middles)) + 0.5).astype(np.int64)
    return table


_SIGMOID = _sigmoid_table()
