"""Rows in the order of random words: in memory where they fit, in buckets on disk where they do not.

A word's first byte is its bucket. Buckets are sorted one after the other, so that the rows come out as if
all had been sorted at once, and only a few buckets are held.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet._typing import AnyArray

MEMORY = 1 << 26
"""Bytes of rows that are sorted without a disk."""
_BUCKETS = 256


def in_word_order(batches: Iterator[list[AnyArray]], folder: Path) -> Iterator[list[AnyArray]]:
    """Yield the rows of all batches in the order of their last column, and leave that column out.

    Parameters
    ----------
    batches : iterator of lists of arrays
        The last of each is 64-bit words; equal words keep their order.
    folder : Path
        An empty folder for the rows that do not fit into memory. Whoever made it removes it.

    Yields
    ------
    list of arrays
    """
    held: list[AnyArray] = []
    size = 0
    for columns in batches:
        held.append(_as_rows(columns))
        size += held[-1].nbytes
        if size > MEMORY:
            break
    else:
        if held:
            yield _sorted(np.concatenate(held))
        return
    paths, kind = _spilled(itertools.chain(held, map(_as_rows, batches)), folder)
    held, size = [], 0
    for path in paths:
        held.append(np.fromfile(path, dtype=kind))
        size += held[-1].nbytes
        path.unlink()
        if size > MEMORY // 4 or path is paths[-1]:
            yield _sorted(np.concatenate(held))
            held, size = [], 0


def _spilled(parts: Iterator[AnyArray], folder: Path) -> tuple[list[Path], np.dtype[Any]]:
    """Write records into the bucket of their word's first byte; return the files and the records' type."""
    paths = [folder / str(bucket) for bucket in range(_BUCKETS)]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("wb")) for path in paths]
        for rows in parts:
            bucket = (rows["word"] >> np.uint64(56)).astype(np.uint8)
            together = rows.take(np.argsort(bucket, kind="stable"))
            ends = np.cumsum(np.bincount(bucket, minlength=_BUCKETS))
            for file, start, end in zip(files, [0, *ends[:-1]], ends, strict=True):
                if end > start:
                    file.write(together[start:end].tobytes())
    return paths, rows.dtype


def _as_rows(columns: list[AnyArray]) -> AnyArray:
    """Put columns together into records, which move as one."""
    names = [f"f{i}" for i in range(len(columns) - 1)] + ["word"]
    rows = np.empty(
        len(columns[-1]), np.dtype([(name, c.dtype) for name, c in zip(names, columns, strict=True)])
    )
    for name, values in zip(names, columns, strict=True):
        rows[name] = values
    return rows


def _sorted(rows: AnyArray) -> list[AnyArray]:
    order = np.argsort(rows["word"])
    words = rows["word"].take(order)
    if (words[1:] == words[:-1]).any():
        # Rare, and every machine must come to the same order.
        order = np.argsort(rows["word"], kind="stable")
    rows = rows.take(order)
    assert rows.dtype.names is not None
    return [np.ascontiguousarray(rows[name]) for name in rows.dtype.names[:-1]]
