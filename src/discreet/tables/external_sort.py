"""Sorting of rows by random words: in memory where they fit, in buckets on disk where they do not.

A word's first byte is its bucket. Buckets are sorted a few at a time, which gives the same order as sorting
all at once. Their files have no name, because they hold rows in the order of their source: they disappear
with the process.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import BinaryIO

    from discreet._types import AnyArray, Ints, Words

MEMORY = 1 << 29
"""Bytes of rows up to which they are sorted in memory."""
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
    with _Buckets(folder) as buckets:
        for columns in batches:
            buckets.add(_join_columns(columns))
        for rows in buckets.chunks():
            yield _sort_rows(rows)


class _Buckets:
    """Records by the first byte of their word: in memory, or in one nameless file for each bucket."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._held: list[tuple[AnyArray, Ints]] = []
        self._size = 0
        self._counts = np.zeros(_BUCKETS, np.int64)
        self._files: list[BinaryIO] = []
        self._dtype: np.dtype[Any] | None = None
        self._open = ExitStack()

    def __enter__(self) -> _Buckets:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, rows: AnyArray) -> None:
        """Add records; once memory is full, all of them go to disk."""
        bucket = (rows["word"] >> np.uint64(56)).astype(np.uint8)
        counts = np.bincount(bucket, minlength=_BUCKETS)
        self._held.append((rows.take(np.argsort(bucket, kind="stable")), np.cumsum(counts)))
        self._counts += counts
        self._size += rows.nbytes
        self._dtype = rows.dtype
        if self._size > MEMORY or self._files:
            self._spill()

    def _spill(self) -> None:
        if not self._files:
            for _ in range(_BUCKETS):
                nameless = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - the stack closes it
                self._files.append(self._open.enter_context(nameless))
        for rows, ends in self._held:
            for file, start, end in zip(self._files, [0, *ends[:-1]], ends, strict=True):
                if end > start:
                    file.write(rows[start:end].tobytes())
        self._held.clear()

    def chunks(self) -> Iterator[AnyArray]:
        """Yield the records of a few consecutive buckets at a time, unsorted."""
        if self._dtype is None:
            return
        first = 0
        while first < _BUCKETS:
            last = first + 1
            while last < _BUCKETS and self._counts[first : last + 1].sum() * self._dtype.itemsize <= _CHUNK:
                last += 1
            rows = self._take(first, last)
            if len(rows):
                yield rows
            first = last

    def _take(self, first: int, last: int) -> AnyArray:
        if not self._files:
            starts = [int(ends[first - 1]) if first else 0 for _, ends in self._held]
            parts = [r[s : e[last - 1]] for (r, e), s in zip(self._held, starts, strict=True)]
            return np.concatenate(parts)
        parts = []
        for file in self._files[first:last]:
            file.seek(0)
            parts.append(np.frombuffer(file.read(), self._dtype))
            file.truncate(0)  # what was read need not stay on disk
        return np.concatenate(parts)


def _join_columns(columns: list[AnyArray]) -> AnyArray:
    """Return the columns as one array of records."""
    names = [f"f{i}" for i in range(len(columns) - 1)] + ["word"]
    rows = np.empty(
        len(columns[-1]), np.dtype([(name, c.dtype) for name, c in zip(names, columns, strict=True)])
    )
    for name, values in zip(names, columns, strict=True):
        rows[name] = values
    return rows


def word_order(words: Words) -> Ints:
    """Return the stable order of the words, the same on every machine."""
    order = np.argsort(words)
    ordered = words.take(order)
    # Equal words are rare, and the sort that keeps their order takes longer.
    return np.argsort(words, kind="stable") if (ordered[1:] == ordered[:-1]).any() else order


def _sort_rows(rows: AnyArray) -> list[AnyArray]:
    rows = rows.take(word_order(np.ascontiguousarray(rows["word"])))
    assert rows.dtype.names is not None
    return [np.ascontiguousarray(rows[name]) for name in rows.dtype.names[:-1]]
