"""One pass over published rows: sums of products of raw entries, one matrix for each fold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from discreet._typing import AnyArray, Floats
    from discreet.learn.noise_aware.coordinates import Coordinates
    from discreet.learn.noise_aware.labels import Label

PIECE = 8192
"""So many rows are turned into raw entries at a time: they stay in the cache."""


@dataclass(frozen=True)
class Sums:
    """What a learner keeps of a published table, however long it is.

    Attributes
    ----------
    n_rows : int
        How many rows were read.
    folds : array of shape (n_folds, n_entries, n_entries)
        Sums of products of raw entries, those of the label last. The first entry of a row is 1.
    """

    n_rows: int
    folds: Floats

    @property
    def total(self) -> Floats:
        """Sums over all rows."""
        return np.asarray(self.folds.sum(axis=0))


@cache
def fold_pattern(n_folds: int) -> AnyArray:
    """Return the fold of each row of a piece; the next piece has the same.

    Every ``n_folds`` consecutive rows fall into different folds, in an order that a public hash of their
    place gives.

    A fold is a function of a row's place alone. Noise is drawn row by row, the same law at every place, and
    knows no place, so folds are independent of noise. A release of a table shuffles its rows under its key
    before anybody sees them, so places are independent of labels and features too. Rows that kept their order
    (a matrix may) are the reason for the hash: labels that repeat with a period would otherwise be folds.
    """
    groups = np.arange(PIECE // n_folds, dtype=np.uint64)[:, None]
    words = _hashed(groups, np.arange(n_folds, dtype=np.uint64))
    return np.argsort(np.argsort(words, axis=1), axis=1).reshape(-1).astype(np.int16)


def _hashed(group: AnyArray, member: AnyArray) -> AnyArray:
    """Mix two numbers into one word: the finalizer of SplitMix64."""
    word = group * np.uint64(0x9E3779B97F4A7C15) + (member + np.uint64(1)) * np.uint64(0xD1B54A32D192ED03)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ (word >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(word ^ (word >> np.uint64(31)))


class Adder:
    """Adds up products of raw entries of rows that come by, in constant memory.

    Parameters
    ----------
    coordinates, label
        How rows become raw entries.
    n_folds : int
        Among how many folds rows are dealt out.

    Attributes
    ----------
    n_rows : int
        How many rows came by.
    """

    def __init__(self, coordinates: Coordinates, label: Label, n_folds: int) -> None:
        size = coordinates.n_raw + label.n_raw
        self.n_rows = 0
        self._coordinates, self._label = coordinates, label
        # Sums of zeros and ones stay exact in single precision for 2**24 rows, and pieces are shorter.
        self._kind: Any = np.float32 if coordinates.counts and label.counts else np.float64
        self._folds = np.zeros((n_folds, size, size))

    @property
    def sums(self) -> Sums:
        """What there is so far."""
        return Sums(self.n_rows, self._folds)

    def add(self, columns: Mapping[str, AnyArray], labels: AnyArray) -> None:
        """Take in some rows: columns by name, categories as codes, and the label beside them."""
        n_folds = len(self._folds)
        pattern = fold_pattern(n_folds)
        at = 0
        while at < len(labels):
            # A piece ends where the pattern does, so that the fold of a row depends on its place alone.
            start = self.n_rows % len(pattern)
            stop = min(len(labels), at + len(pattern) - start)
            mine = pattern[start : start + stop - at]
            sorted_by_fold = np.argsort(mine, kind="stable")
            part = {name: values[at:stop][sorted_by_fold] for name, values in columns.items()}
            raw = self._coordinates.encode(part, stop - at, self._label.n_raw, self._kind)
            self._label.encode(labels[at:stop][sorted_by_fold], raw)
            ends = np.cumsum(np.bincount(mine, minlength=n_folds))
            for fold, end in enumerate(ends):
                rows = raw[ends[fold - 1] if fold else 0 : end]
                self._folds[fold] += rows.T @ rows
            self.n_rows += stop - at
            at = stop


def add_up(
    batches: Iterable[tuple[Mapping[str, AnyArray], AnyArray]],
    coordinates: Coordinates,
    label: Label,
    n_folds: int,
) -> Sums:
    """Read rows once and add up products of their raw entries.

    Parameters
    ----------
    batches : iterable of (mapping, array)
        As :meth:`Adder.add` takes them.
    coordinates, label, n_folds
        As of :class:`Adder`.
    """
    adder = Adder(coordinates, label, n_folds)
    for columns, labels in batches:
        adder.add(columns, labels)
    return adder.sums
