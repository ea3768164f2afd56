"""Threads of the service: workers that run queries in batches, and a pool with a share for each caller.

With one thread per query, queries would wait for one another at the ledger, at the engine and at the audit
log. A worker takes all waiting queries through these steps as one batch.
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
    """A waiting query: its caller, its task, the future of its result, and the loop time of its arrival."""

    caller: str | None
    task: QueryTask[Any]
    future: asyncio.Future[Any]
    since: float


class WorkerPool:
    """Threads that run query tasks in batches.

    Parameters
    ----------
    usual : int
        Number of workers that normally run at once.
    threads : int
        Maximum number of workers: another one is started whenever a query has waited for half a second,
        since the usual workers may be held up by a slow table.
    share : int
        Maximum number of queries of one caller that wait or run.
    most : int
        Maximum number of queries of all callers.

    Privacy
    -------
    Each query of a batch is charged, answered and refused on its own: see
    :func:`~discreet.batching.run_batch`.
    """

    def __init__(self, usual: int, threads: int, *, share: int, most: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._usual, self._all = usual, threads
        self._share, self._most = share, most
        # Workers and the event loop share the next two, under the mutex; the others belong to the loop.
        self._mutex = threading.Lock()
        self._waiting: deque[_QueuedTask] = deque()
        self._running = 0
        self._open: Counter[str | None] = Counter()
        self._timer_set = False

    async def run(self, caller: str | None, task: QueryTask[T]) -> T:
        """Run a task for a caller and return its value; the task ends even if the caller disconnects.

        Raises
        ------
        ApiException
            Too many queries wait, of this caller or of all.
        """
        if self._open[caller] >= self._share or self._open.total() >= self._most:
            raise ApiException(BUSY)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._open[caller] += 1
        with self._mutex:
            self._waiting.append(_QueuedTask(caller, task, future, loop.time()))
        if not self._start_worker(self._usual, loop):
            self._set_timer(loop)
        return await asyncio.shield(future)

    def _start_worker(self, most: int, loop: asyncio.AbstractEventLoop) -> bool:
        """Start another worker if fewer than `most` run; return whether one was started."""
        with self._mutex:
            started = self._running < most
            self._running += started
        if started:
            self._threads.submit(self._work, loop)
        return started

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._timer_set:
            self._timer_set = True
            loop.call_later(_PATIENCE, self._start_helper, loop)

    def _start_helper(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start one more worker if a query has waited too long; check again later while any waits."""
        self._timer_set = False
        with self._mutex:
            since = self._waiting[0].since if self._waiting else None
        if since is not None:
            if loop.time() - since >= _PATIENCE:
                self._start_worker(self._all, loop)
            self._set_timer(loop)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run batches until no query waits."""
        while batch := self._take_batch():
            self._run_batch(dict(enumerate(batch)), loop)

    def _run_batch(self, batch: dict[int, _QueuedTask], loop: asyncio.AbstractEventLoop) -> None:
        """Run a batch, and hand each result to the event loop as soon as it is there."""

        def deliver(results: list[tuple[int, Any]]) -> None:
            loop.call_soon_threadsafe(self._deliver, [(batch.pop(i), result) for i, result in results])

        try:
            run_batch([one.task for one in batch.values()], deliver)
        except Exception as error:
            # An error of the executor, not of a task: no caller may wait for ever.
            deliver([(i, error) for i in list(batch)])

    def _take_batch(self) -> list[_QueuedTask]:
        """Return the longest waiting queries; if there are none, count the calling worker as ended."""
        with self._mutex:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            self._running -= not batch
        return batch

    def _deliver(self, results: list[tuple[_QueuedTask, Any]]) -> None:
        """Set the results of ended tasks, on the event loop's thread."""
        for one, result in results:
            self._open[one.caller] -= 1
            if not self._open[one.caller]:
                del self._open[one.caller]
            if one.future.cancelled():
                continue
            if isinstance(result, Exception):
                one.future.set_exception(result)
                one.future.exception()  # marks it as retrieved, in case the caller has gone
            else:
                one.future.set_result(result)

    def close(self) -> None:
        """Wait for running jobs to end, and stop the threads."""
        self._threads.shutdown(wait=True)


class FairThreadPool:
    """Thread pool of which each caller has a share.

    Parameters
    ----------
    name : str
        Prefix of the threads' names.
    threads : int
        Number of threads in the pool.
    share : int
        Maximum number of jobs of one caller that run at once.
    max_waiting : int
        Maximum number of further jobs of one caller that wait; later ones are refused as busy.
    most : int, optional
        Maximum number of jobs of all callers; None for no maximum.
    """

    def __init__(
        self, name: str, threads: int, *, share: int, max_waiting: int, most: int | None = None
    ) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._share, self._max_waiting = share, max_waiting
        self._most = math.inf if most is None else most
        self._jobs = 0
        self._queues: dict[str | None, _CallerQueue] = {}

    async def run(self, caller: str | None, work: Callable[[], T]) -> T:
        """Run work for a caller and return its value; the work ends even if the caller disconnects.

        Raises
        ------
        ApiException
            Too many jobs wait, of this caller or of all.
        """
        queue = self._queues.setdefault(caller, _CallerQueue(self._share))
        if queue.jobs >= self._share + self._max_waiting or self._jobs >= self._most:
            self._drop_if_empty(caller, queue)
            raise ApiException(BUSY)
        queue.jobs += 1
        self._jobs += 1

        def count_end() -> None:
            queue.jobs -= 1
            self._jobs -= 1
            self._drop_if_empty(caller, queue)

        def finish(future: asyncio.Future[T]) -> None:
            queue.slots.release()
            count_end()
            if not future.cancelled():
                future.exception()  # marks it as retrieved, in case the caller has gone

        try:
            await queue.slots.acquire()
        except BaseException:
            # Also when the request is cancelled: it no longer counts as waiting.
            count_end()
            raise
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(finish)
        return await asyncio.shield(future)

    def _drop_if_empty(self, caller: str | None, queue: _CallerQueue) -> None:
        if not queue.jobs:
            del self._queues[caller]

    def close(self) -> None:
        """Wait for running jobs to end, and stop the threads."""
        self._threads.shutdown(wait=True)


class _CallerQueue:
    """Number of jobs of one caller, and a semaphore for those that may run at once."""

    def __init__(self, share: int) -> None:
        self.jobs = 0
        self.slots = asyncio.Semaphore(share)
