"""Threads of the service: workers that run queries in batches, and a pool of which each caller has a share.

A thread for every query would meet all the others at the ledger, at the engine and at the audit log, and wait
for its turn each time. A worker takes all waiting queries through these steps as one batch.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from discreet.batching import run_batch
from discreet.server.errors import BUSY, ApiException

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.batching import QueryTask

T = TypeVar("T")

_BATCH = 64  # queries that a worker takes at once
_PATIENCE = 0.5  # seconds that a query waits before another worker is started


class _QueuedTask(NamedTuple):
    """A query that waits, since when, and where its answer goes."""

    who: str | None
    task: QueryTask[Any]
    future: asyncio.Future[Any]
    since: float


class WorkerPool:
    """Threads that run query tasks in batches.

    Parameters
    ----------
    usual : int
        Number of workers that run at once. While one waits for the disk or for the engine, another goes
        on; more would only compete.
    threads : int
        Number of threads: one more helps out whenever a query has waited for long, since the usual workers
        may be held up by a slow table.
    share : int
        Maximum number of queries of one caller that wait or run.
    most : int
        Maximum number of queries of all callers.

    Privacy
    -------
    Queries that run in one batch are charged, answered and refused each for itself: see
    :func:`~discreet.batching.together`.
    """

    def __init__(self, usual: int, threads: int, *, share: int, most: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._usual, self._all = usual, threads
        self._share, self._most = share, most
        # Workers and the loop's thread share these two, under the mutex; the others are the loop's own.
        self._mutex = threading.Lock()
        self._waiting: deque[_QueuedTask] = deque()
        self._working = 0
        self._open: Counter[str | None] = Counter()
        self._watched = False

    async def run(self, who: str | None, flow: QueryTask[T]) -> T:
        """Run a task for a caller, to its end whether or not they still wait, and return its value.

        Raises
        ------
        ApiException
            Too many queries wait, of this caller or of all.
        """
        if self._open[who] >= self._share or self._open.total() >= self._most:
            raise ApiException(BUSY)
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()
        self._open[who] += 1
        with self._mutex:
            self._waiting.append(_QueuedTask(who, flow, told, loop.time()))
        if not self._start_worker(self._usual, loop):
            self._watch(loop)
        return await asyncio.shield(told)

    def _start_worker(self, most: int, loop: asyncio.AbstractEventLoop) -> bool:
        """Start another worker if fewer than `most` run; return whether one was started."""
        with self._mutex:
            called = self._working < most
            self._working += called
        if called:
            self._threads.submit(self._work, loop)
        return called

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._watched:
            self._watched = True
            loop.call_later(_PATIENCE, self._start_helper, loop)

    def _start_helper(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start one more worker if a query has waited for long; look again later while any waits."""
        self._watched = False
        with self._mutex:
            since = self._waiting[0].since if self._waiting else None
        if since is not None:
            if loop.time() - since >= _PATIENCE:
                self._start_worker(self._all, loop)
            self._watch(loop)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run batches until no query waits."""
        while taken := self._take():
            self._run_batch(dict(enumerate(taken)), loop)

    def _run_batch(self, waiting: dict[int, _QueuedTask], loop: asyncio.AbstractEventLoop) -> None:
        def tell(ended: list[tuple[int, Any]]) -> None:
            loop.call_soon_threadsafe(self._deliver, [(waiting.pop(i), found) for i, found in ended])

        try:
            run_batch([one.task for one in waiting.values()], tell)
        except Exception as error:
            # An error of the executor, not of a task: no caller may wait for ever.
            tell([(i, error) for i in list(waiting)])

    def _take(self) -> list[_QueuedTask]:
        with self._mutex:
            taken = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            self._working -= not taken
        return taken

    def _deliver(self, ended: list[tuple[_QueuedTask, Any]]) -> None:
        """Set the results of ended tasks, on the event loop's thread."""
        for one, found in ended:
            self._open[one.who] -= 1
            if not self._open[one.who]:
                del self._open[one.who]
            if one.future.cancelled():
                continue
            if isinstance(found, Exception):
                one.future.set_exception(found)
                one.future.exception()  # whoever waits has it; a late one is nobody's
            else:
                one.future.set_result(found)

    def close(self) -> None:
        """Wait for running jobs to end, and stop the threads."""
        self._threads.shutdown(wait=True)


class FairThreadPool:
    """Threads, of which each caller has a share.

    Parameters
    ----------
    name : str
        Prefix of the threads' names.
    threads : int
        Number of threads in the pool.
    share : int
        Maximum number of jobs of one caller that run at once.
    in_line : int
        Maximum number of further jobs of one caller that wait; later ones are refused as busy.
    most : int, optional
        Maximum number of jobs of all callers; None for no maximum.
    """

    def __init__(self, name: str, threads: int, *, share: int, in_line: int, most: int | None = None) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._share, self._in_line = share, in_line
        self._most = math.inf if most is None else most
        self._jobs = 0
        self._lines: dict[str | None, _CallerQueue] = {}

    async def run(self, who: str | None, work: Callable[[], T]) -> T:
        """Run work for a caller, to its end whether or not they still wait, and return its value."""
        line = self._lines.setdefault(who, _CallerQueue(self._share))
        if line.jobs >= self._share + self._in_line or self._jobs >= self._most:
            self._forget(who, line)
            raise ApiException(BUSY)
        line.jobs += 1
        self._jobs += 1

        def left() -> None:
            line.jobs -= 1
            self._jobs -= 1
            self._forget(who, line)

        def done(future: asyncio.Future[T]) -> None:
            line.places.release()
            left()
            if not future.cancelled():
                future.exception()  # whoever waited has it; a late one is nobody's

        try:
            await line.places.acquire()
        except BaseException:
            left()
            raise
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(done)
        return await asyncio.shield(future)

    def _forget(self, who: str | None, line: _CallerQueue) -> None:
        if not line.jobs:
            del self._lines[who]

    def close(self) -> None:
        """Wait for running jobs to end, and stop the threads."""
        self._threads.shutdown(wait=True)


class _CallerQueue:
    """The jobs of one caller."""

    def __init__(self, share: int) -> None:
        self.jobs = 0
        self.places = asyncio.Semaphore(share)
