"""Sorting of rows by random words: in memory where they fit, in buckets on disk where they do not.

A word's first byte is its bucket. Buckets are sorted a few at a time, which gives the same order as sorting
all at once. Their files have no name, because they hold rows in the order of their source: they disappear
with the process.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from discreet._types import AnyArray, Ints, Words

MEMORY = 1 << 29
"""Bytes of rows up to which they are sorted in memory."""
_SPILL = 1 << 26
"""Bytes of rows that are held before they follow others to disk."""
_CHUNK = 1 << 22  # bytes that are sorted at once: they fit into a processor's cache
_BUCKETS = 256


def sort_by_words(batches: Iterator[list[AnyArray]], folder: Path | None) -> Iterator[list[AnyArray]]:
    """Yield the rows of all batches in the order of their last column, without that column.

    Parameters
    ----------
    batches : iterator of lists of arrays
        Columns of each batch; the last are 64-bit words, and equal words keep their order.
    folder : Path or None
        Folder on whose disk rows go that do not fit into memory; None for the system's temporary folder.

    Yields
    ------
    list of arrays
    """
    with RowBuckets(folder, MEMORY) as buckets:
        for columns in batches:
            buckets.add(columns)
        for *columns, words in buckets.chunks():
            order = word_order(words)
            yield [values.take(order) for values in columns]


class _Block(NamedTuple):
    """Columns of some rows in the order of their buckets, and where the rows of each bucket end."""

    columns: list[AnyArray]
    ends: list[int]

    def rows_of(self, first: int, last: int) -> list[AnyArray]:
        """Return the columns of the buckets from `first` up to `last`."""
        rows = slice(self.ends[first], self.ends[last])
        return [values[rows] for values in self.columns]


class RowBuckets:
    """Rows by the first byte of their word: in memory, or in one nameless file for each bucket.

    Columns stay apart, since a processor gathers the entries of one array faster than records of several.

    Parameters
    ----------
    folder : Path or None
        Folder on whose disk rows go that do not fit into memory; None for the system's temporary folder.
    memory : int
        Bytes of rows that are held before all of them go to disk.
    """

    def __init__(self, folder: Path | None, memory: int) -> None:
        self._folder, self._memory = folder, memory
        self._held: list[_Block] = []
        self._size = 0
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._files: list[BinaryIO] = []
        self._spilled: list[list[int]] = []
        self._dtypes: list[np.dtype[Any]] = []
        self._open = ExitStack()

    def __enter__(self) -> RowBuckets:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, columns: list[AnyArray]) -> None:
        """Add rows, the last column their words; once memory is full, all of them go to disk."""
        bucket = (columns[-1] >> np.uint64(56)).astype(np.uint8)
        order = np.argsort(bucket, kind="stable")
        counts = np.bincount(bucket, minlength=_BUCKETS)
        ends = [0, *np.cumsum(counts).tolist()]
        self._held.append(_Block([values.take(order) for values in columns], ends))
        self._counts += counts
        self._size += sum(values.nbytes for values in columns)
        self._dtypes = [values.dtype for values in columns]
        if self._size > (_SPILL if self._files else self._memory):
            self._spill()

    def _spill(self) -> None:
        """Write what is held to the files, in each of them column by column."""
        if not self._files:
            for _ in range(_BUCKETS):
                nameless = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - the stack closes it
                self._files.append(self._open.enter_context(nameless))
        for bucket, file in enumerate(self._files):
            for values in self._join(bucket, bucket + 1):
                file.write(values.data)
        ends = np.array([block.ends for block in self._held])
        self._spilled.append(np.diff(ends, axis=1).sum(axis=0).tolist())
        self._held.clear()
        self._size = 0

    def chunks(self) -> Iterator[list[AnyArray]]:
        """Yield the columns of a few consecutive buckets at a time, unsorted."""
        if not self._dtypes:
            return
        if self._files and self._held:
            self._spill()
        most = _CHUNK // sum(dtype.itemsize for dtype in self._dtypes)
        first = 0
        while first < _BUCKETS:
            last = first + 1
            while last < _BUCKETS and self._counts[first : last + 1].sum() <= most:
                last += 1
            if self._counts[first:last].any():
                yield self._read(first, last) if self._files else self._join(first, last)
            first = last

    def _join(self, first: int, last: int) -> list[AnyArray]:
        """Return the columns of some buckets from all blocks in memory."""
        pieces = [block.rows_of(first, last) for block in self._held]
        return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]

    def _read(self, first: int, last: int) -> list[AnyArray]:
        """Return the columns of some buckets from the files, which are then empty."""
        pieces: list[list[AnyArray]] = [[] for _ in self._dtypes]
        for bucket in range(first, last):
            file = self._files[bucket]
            file.seek(0)
            content, start = file.read(), 0
            file.truncate(0)  # what was read need not stay on disk
            for counts in self._spilled:
                for parts, dtype in zip(pieces, self._dtypes, strict=True):
                    parts.append(np.frombuffer(content, dtype, counts[bucket], start))
                    start += counts[bucket] * dtype.itemsize
        return [np.concatenate(parts) for parts in pieces]


def word_order(words: Words) -> Ints:
    """Return the stable order of the words, the same on every machine."""
    order = np.argsort(words)
    ordered = words.take(order)
    # Equal words are rare, and the sort that keeps their order takes longer.
    return np.argsort(words, kind="stable") if (ordered[1:] == ordered[:-1]).any() else order
