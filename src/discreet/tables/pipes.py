"""Pipes through which text passes to DuckDB from a thread, so that nothing is stored on the way."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BLOCK = 2**18
"""Bytes that are written into a pipe at once, or read from it."""


@contextlib.contextmanager
def pipe_from(feed: Callable[[int], None]) -> Iterator[int]:
    """Run `feed` in a thread that writes into a pipe; yield the end to read from.

    An exception of `feed` is raised here at the end, instead of the reader's own about a truncated stream.
    When the reader stops early, the pipe breaks, which ends the thread.
    """
    reading, writing = os.pipe()
    failure: list[BaseException] = []

    def run() -> None:
        try:
            feed(writing)
        except BaseException as problem:  # raised again in the thread that reads
            failure.append(problem)
        finally:
            os.close(writing)

    thread = threading.Thread(target=run, name="discreet-pipe", daemon=True)
    thread.start()
    try:
        yield reading
    finally:
        os.close(reading)
        thread.join()
        if failure and not isinstance(failure[0], BrokenPipeError):
            raise failure[0] from None


def write_all(end: int, block: bytearray) -> None:
    """Write a block into a pipe, which takes as much at a time as it has room for."""
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(end, rest) :]
