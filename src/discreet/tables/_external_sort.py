"""Rows in the order of random words: in memory where they fit, in buckets on disk where they do not.

A word's first byte is its bucket. Buckets are sorted a few at a time, so that the rows come out as if all had
been sorted at once. Their files have no name, because rows stand there in the order of their source: they
end with the process.
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
"""Bytes of rows that are sorted without a disk."""
_CHUNK = 1 << 22  # bytes that are sorted at once: what a processor keeps at hand
_BUCKETS = 256


def in_word_order(batches: Iterator[list[AnyArray]], folder: Path | None) -> Iterator[list[AnyArray]]:
    """Yield the rows of all batches in the order of their last column, and leave that column out.

    Parameters
    ----------
    batches : iterator of lists of arrays
        The last of each is 64-bit words; equal words keep their order.
    folder : Path or None
        The folder whose disk takes the rows that do not fit into memory; None for the system's temporary one.

    Yields
    ------
    list of arrays
    """
    with _Buckets(folder) as buckets:
        for columns in batches:
            buckets.add(_as_rows(columns))
        for rows in buckets.chunks():
            yield _sorted(rows)


class _Buckets:
    """Records by the first byte of their word: held, or in one file without a name for each bucket."""

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
        """Take some records; what does not fit any more goes to disk with all that came before."""
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
        """Yield the records of some consecutive buckets after the other, unsorted."""
        if self._dtype is None:
            return
        first = 0
        while first < _BUCKETS:
            last = first + 1
            while last < _BUCKETS and self._counts[first : last + 1].sum() * self._dtype.itemsize <= _CHUNK:
                last += 1
            rows = self._taken(first, last)
            if len(rows):
                yield rows
            first = last

    def _taken(self, first: int, last: int) -> AnyArray:
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


def _as_rows(columns: list[AnyArray]) -> AnyArray:
    """Put columns together into records, which move as one."""
    names = [f"f{i}" for i in range(len(columns) - 1)] + ["word"]
    rows = np.empty(
        len(columns[-1]), np.dtype([(name, c.dtype) for name, c in zip(names, columns, strict=True)])
    )
    for name, values in zip(names, columns, strict=True):
        rows[name] = values
    return rows


def word_order(words: Words) -> Ints:
    """Return the order of the words; equal ones stay as they came, so that every machine finds the same."""
    order = np.argsort(words)
    ordered = words.take(order)
    # Equal words are rare, and the sort that keeps their order takes longer.
    return np.argsort(words, kind="stable") if (ordered[1:] == ordered[:-1]).any() else order


def _sorted(rows: AnyArray) -> list[AnyArray]:
    rows = rows.take(word_order(np.ascontiguousarray(rows["word"])))
    assert rows.dtype.names is not None
    return [np.ascontiguousarray(rows[name]) for name in rows.dtype.names[:-1]]
