"""Passes that score rows by a public additive model, in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.query.features import PRODUCT_BITS, Band, Features
from discreet.query.passes import BUCKET_BITS, LAST_BUCKET, SIGMOID_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats, Ints

_EXPONENTIAL: Ints = np.floor(2**20 * np.exp(-np.arange(LAST_BUCKET + 1) / 2**BUCKET_BITS) + 0.5).astype(
    np.int64
)


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

    scores: AdditiveScores
    by_class: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """What is read."""
        return self.scores.columns

    @property
    def size(self) -> int:
        """How many integers it gives."""
        return len(self.scores.intercept) ** 2 if self.by_class else 1

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
        return len(self.scores.intercept) * self.features.size

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
