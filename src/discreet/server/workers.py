"""Threads of the service: workers that run queries in batches, and a pool with a share for each caller.

With one thread per query, queries would wait for one another at the ledger, at the engine and at the audit
log. A worker takes waiting queries through these steps as one batch, first those of callers who used less
(:mod:`~discreet.server.work`). Heavy queries have one thread of their own, which leaves most of the
processor to the others while there are any.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from discreet.batching import PACE, run_batch
from discreet.server.errors import BUSY, ApiException, work_limited
from discreet.server.work import LIGHT, DeclareWork, FairQueue, Planning

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.batching import QueryTask, Step
    from discreet.server.query_service import RunTask
    from discreet.server.work import WorkBudget

T = TypeVar("T")

_BATCH = 64  # queries that a worker takes at once
_BATCH_WORK = 4 * LIGHT  # seconds of work that a worker takes at once
_STRETCH = 0.005  # seconds of work between two pauses of a heavy query
_MOST_CROWDED = 5.0  # so that a heavy query ends on a machine that is always crowded
_HEAVY_SHARE = 0.2  # part of a processor that heavy queries get while others are served
_PATIENCE = 0.5  # seconds that a query waits before another worker is started


class _QueuedTask(NamedTuple):
    """A waiting query.

    Attributes
    ----------
    caller : str or None
        Name under which the query is counted.
    task : QueryTask
        Stages of the query.
    future : Future
        Future of its result.
    since : float
        Loop time of its arrival.
    work : float
        Seconds that it is estimated to take.
    light : float
        Seconds above which it is heavy.
    """

    caller: str | None
    task: QueryTask[Any]
    future: asyncio.Future[Any]
    since: float
    work: float
    light: float


class WorkerPool:
    """Threads that run query tasks in batches, and one thread that runs heavy ones.

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
    budget : WorkBudget, optional
        Work that each caller may use in an hour; None for no limit.

    Privacy
    -------
    Each query of a batch is charged, answered and refused on its own: see
    :func:`~discreet.batching.run_batch`. Who waits for whom follows from estimates of work, which are public;
    a heavy query pauses after steps that see no row, for times in proportion to those.
    """

    def __init__(
        self, usual: int, threads: int, *, share: int, most: int, budget: WorkBudget | None = None
    ) -> None:
        """Start with empty queues; threads are started with the first queries."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        self._heavy_thread = ThreadPoolExecutor(1, thread_name_prefix="heavy")
        self._usual, self._all = usual, threads
        self._share, self._most = share, most
        self._budget = budget
        # Workers and the event loop share the next four, under the mutex; the others belong to the loop.
        self._mutex = threading.Lock()
        self._waiting: FairQueue[_QueuedTask] = FairQueue()
        self._heavy: FairQueue[_QueuedTask] = FairQueue()
        self._running = 0
        self._heavy_runs = False
        self._open: Counter[str | None] = Counter()
        self._timer_set = False

    async def run(
        self, caller: str | None, task: QueryTask[T], *, work: float = 0.0, light: float = LIGHT
    ) -> T:
        """Run a task for a caller and return its value; the task ends even if the caller disconnects.

        Parameters
        ----------
        caller : str or None
            Name under which the query is counted.
        task : QueryTask
            Stages of the query; it may declare more work once its texts are read (:class:`DeclareWork`).
        work : float
            Seconds that it is estimated to take, as far as is known before that.
        light : float
            Seconds above which it is heavy.

        Raises
        ------
        ApiException
            Too many queries wait, of this caller or of all; or the caller's work of this hour is used up.
            Nothing was charged.
        """
        if self._open[caller] >= self._share or self._open.total() >= self._most:
            raise ApiException(BUSY)
        self.count_work(caller, work)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._open[caller] += 1
        queued = _QueuedTask(caller, task, future, loop.time(), work, light)
        if work > light:
            self._push_heavy(queued, loop)
        else:
            with self._mutex:
                self._waiting.push(caller, queued, work)
            if not self._start_worker(self._usual, loop):
                self._set_timer(loop)
        return await future  # a caller who gives up cancels the future, and not the task

    def count_work(self, caller: str | None, seconds: float, *, begun: bool = False) -> None:
        """Count work of a caller before it is done.

        Parameters
        ----------
        caller : str or None
            Name under which it is counted.
        seconds : float
            Estimated seconds of it.
        begun : bool
            Whether it is a further step of a model, of which earlier ones were charged.

        Raises
        ------
        ApiException
            The caller's work of this hour is used up.
        """
        wait = None if self._budget is None else self._budget.take(caller, seconds)
        if wait is not None:
            raise ApiException(work_limited(wait, begun=begun))

    def _find_refusal(
        self, caller: str | None, seconds: float, *, begun: bool = False
    ) -> ApiException | None:
        """Count work as :meth:`count_work` does, and return the refusal if it is too much."""
        try:
            self.count_work(caller, seconds, begun=begun)
        except ApiException as refusal:
            return refusal
        return None

    # Light queries, in batches.

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
            since = min((one.since for one in self._waiting), default=None)
        if since is not None:
            if loop.time() - since >= _PATIENCE:
                self._start_worker(self._all, loop)
            self._set_timer(loop)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run batches until no query waits."""
        while batch := self._take_batch():
            self._run_batch(dict(enumerate(batch)), loop)

    def _take_batch(self) -> list[_QueuedTask]:
        """Return the queries whose turn it is; if there are none, count the calling worker as ended."""
        batch: list[_QueuedTask] = []
        seconds = 0.0
        with self._mutex:
            while self._waiting and len(batch) < _BATCH and seconds < _BATCH_WORK:
                queued, work = self._waiting.pop()
                batch.append(queued)
                seconds += work
            self._running -= not batch
        return batch

    def _run_batch(self, batch: dict[int, _QueuedTask], loop: asyncio.AbstractEventLoop) -> None:
        """Run a batch, and hand each result to the event loop as soon as it is there."""

        def deliver(results: list[tuple[int, Any]]) -> None:
            ended = []
            for i, result in results:
                queued = batch.pop(i)
                if isinstance(result, DeclareWork):
                    self._push_heavy(queued._replace(work=result.item), loop)
                else:
                    ended.append((queued, result))
            loop.call_soon_threadsafe(self._deliver, ended)

        try:
            run_batch([self._until_heavy(one) for one in batch.values()], deliver)
        except Exception as error:
            # An error of the executor, not of a task: no caller may wait for ever.
            deliver([(i, error) for i in list(batch)])

    def _until_heavy(self, queued: _QueuedTask) -> QueryTask[Any]:
        """Run a task; return its value, or the step with which it declares to be heavy."""
        result: Any = None
        try:
            while True:
                step = _advance(queued.task, result)
                if isinstance(step, DeclareWork):
                    result = self._count_declared(queued, step)
                    if result is None and step.item > queued.light:
                        return step
                    continue
                try:
                    result = yield step
                except Exception as error:
                    # Whatever the executor of the step raised: the task decides what it means.
                    result = error
        except StopIteration as end:
            return end.value
        finally:
            del result  # an error's traceback holds this frame: leave no reference cycle

    def _count_declared(self, queued: _QueuedTask, step: Step) -> ApiException | None:
        """Count the work that a task declares beyond its estimate; return the refusal if it is too much."""
        return self._find_refusal(queued.caller, max(0.0, step.item - queued.work))

    # Heavy queries, one at a time.

    def _push_heavy(self, queued: _QueuedTask, loop: asyncio.AbstractEventLoop) -> None:
        """Have the thread of heavy queries run one when its turn comes."""
        with self._mutex:
            self._heavy.push(queued.caller, queued, queued.work)
            started, self._heavy_runs = not self._heavy_runs, True
        if started:
            self._heavy_thread.submit(self._work_heavy, loop)

    def _work_heavy(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run heavy queries until none waits."""
        while True:
            with self._mutex:
                if not self._heavy:
                    self._heavy_runs = False
                    return
                queued, _ = self._heavy.pop()
            loop.call_soon_threadsafe(self._deliver, [(queued, self._run_heavy(queued))])

    def _run_heavy(self, queued: _QueuedTask) -> Any:
        """Run one heavy task, with pauses while others are served; return its value or its Exception."""
        try:
            return self._run_paced(queued.task, lambda step: self._count_declared(queued, step))
        except Exception as error:
            # Whatever the task raised is its result.
            return error

    def _run_paced(self, task: QueryTask[T], declare: Callable[[Step], Any]) -> T:
        """Run a task with pauses while others are served, and return its value.

        Parameters
        ----------
        task : QueryTask
            Stages of the query.
        declare : callable
            Function that takes the step with which the task declares its work, and returns its result.
        """
        result: Any = None
        pacer = _Pacer(self._pause)
        PACE.rest = self._pause
        try:
            while True:
                with pacer:
                    step = _advance(task, result)
                    if isinstance(step, Planning):
                        result = _execute(step)
                        continue
                # The time of an engine depends on rows: no pause may follow from it.
                result = declare(step) if isinstance(step, DeclareWork) else _execute(step)
        except StopIteration as end:
            value: T = end.value
            return value
        finally:
            PACE.rest = None
            del result  # an error's traceback holds this frame: leave no reference cycle

    def run_model(self, caller: str | None, train: Callable[[RunTask], T]) -> T:
        """Train a model on the present thread, and count its work.

        What its steps declare is counted before they are charged, and what it computed by itself before the
        next step, or at the end. It pauses for the time that it computed between two steps, which it did from
        answers that were paid for, and for that of each query's own planning.

        Parameters
        ----------
        caller : str or None
            Name under which the work is counted.
        train : callable
            Function that trains the model, given the function that runs one query task after the other.
        """
        last, begun = time.thread_time(), False

        def declare(step: Step) -> ApiException | None:
            return self._find_refusal(caller, step.item, begun=begun)

        def run(task: QueryTask[Any]) -> Any:
            nonlocal last, begun
            used = time.thread_time() - last
            last += used
            self.count_work(caller, used, begun=begun)
            self._pause(used)
            try:
                answer = self._run_paced(task, declare)
            finally:
                last = time.thread_time()
            begun = True
            return answer

        try:
            return train(run)
        finally:
            if self._budget is not None:
                self._budget.take_done(caller, time.thread_time() - last)

    def with_pauses(self, work: Callable[[], T]) -> Callable[[], T]:
        """Return work that sees no row, and pauses wherever it gives way while others are served."""

        def run() -> T:
            with _Pacer(self._pause):
                return work()

        return run

    def _pause(self, used: float) -> None:
        """Sleep so long after some seconds of work that others get their share of the processor."""
        share = max(_HEAVY_SHARE, 1 / max(1, len(self._open)))
        time.sleep(used * _load_factor() * (1 / share - 1))

    # Results.

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
        self._heavy_thread.shutdown(wait=True)


class _Pacer:
    """Context of a stretch of work that sees no row, on a thread that leaves room for others.

    Parameters
    ----------
    pause : callable
        Function that sleeps after so many seconds of work.
    """

    def __init__(self, pause: Callable[[float], None]) -> None:
        self._pause = pause
        self._since = 0.0

    def __enter__(self) -> None:
        self._since = time.thread_time()
        PACE.give_way = self._give_way

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        PACE.give_way = None
        if kind is None:  # what has ended is delivered at once
            self._pause(time.thread_time() - self._since)

    def _give_way(self) -> None:
        used = time.thread_time() - self._since
        if used >= _STRETCH:
            self._pause(used)
            self._since = time.thread_time()


def _load_factor() -> float:
    """Return how many processes there are for each processor, on average over the last minute, from 1 to 5.

    Where this process gets a part of a processor alone, its other threads lose as much more by a second of
    work.
    """
    try:
        return min(_MOST_CROWDED, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))
    except (AttributeError, OSError):  # systems that do not count
        return 1.0


def _execute(step: Step) -> Any:
    """Return the result of one step, or the Exception that it ended with."""
    try:
        (result,) = step.execute([step.item])
    except Exception as error:
        # Whatever the engine or the ledger raised: the task decides what it means.
        return error
    return result


def _advance(task: QueryTask[Any], result: Any) -> Step:
    """Send a task the result of its step, or throw it, and return the next step."""
    return task.throw(result) if isinstance(result, Exception) else task.send(result)


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
