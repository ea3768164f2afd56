"""One batch is made while the one before it is written."""

from __future__ import annotations

import queue
import threading
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_Batch = TypeVar("_Batch")
_DEPTH = 2  # batches that wait


def ahead(batches: Generator[_Batch, None, None]) -> Iterator[_Batch]:
    """Run a generator of batches in a thread of its own, a little ahead of whoever takes them.

    What it raises is raised here. Once this iterator is closed or has raised, the thread has ended and the
    generator is closed.
    """
    waiting: queue.Queue[tuple[_Batch] | BaseException | None] = queue.Queue(_DEPTH)
    stopped = threading.Event()

    def hand_over(item: tuple[_Batch] | BaseException | None) -> None:
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
                    hand_over((batch,))
                    if stopped.is_set():
                        return
        except BaseException as problem:  # raised again by whoever takes the batches
            last = problem
        hand_over(last)

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
