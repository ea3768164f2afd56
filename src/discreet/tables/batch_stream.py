"""Streams of batches: cut anew to one size, and read ahead in a thread of their own."""

from __future__ import annotations

import queue
import threading
from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from discreet._types import AnyArray

    Piece: TypeAlias = list[AnyArray]

_Batch = TypeVar("_Batch")
_DEPTH = 2  # batches that wait


def resize(pieces: Iterator[Piece], rows: int) -> Iterator[Piece]:
    """Yield the rows of all pieces again in pieces of ``rows`` rows; the last may have fewer."""
    parts: list[Piece] = []
    count = 0
    for piece in pieces:
        start, length = 0, len(piece[0])
        while start < length:
            end = min(length, start + rows - count)
            parts.append([values[start:end] for values in piece])
            count += end - start
            start = end
            if count == rows:
                yield _join(parts)
                parts, count = [], 0
    if parts:
        yield _join(parts)


def _join(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]


def prefetch(batches: Generator[_Batch, None, None]) -> Iterator[_Batch]:
    """Yield the batches of a generator that runs in its own thread, two batches in advance.

    Exceptions of the generator are raised here. Once this iterator is closed or has raised, the thread has
    ended and the generator is closed.
    """
    waiting: queue.Queue[tuple[_Batch] | BaseException | None] = queue.Queue(_DEPTH)
    stopped = threading.Event()

    def put(item: tuple[_Batch] | BaseException | None) -> None:
        while not stopped.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return

    def work() -> None:
        last: BaseException | None = None
        try:
            with closing(batches):
                for batch in batches:
                    put((batch,))
                    if stopped.is_set():
                        return
        except BaseException as problem:  # raised again in the consumer's thread
            last = problem
        put(last)

    worker = threading.Thread(target=work, name="batches", daemon=True)
    worker.start()
    try:
        while True:
            item = waiting.get()
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        stopped.set()
        worker.join()
