"""Jobs that run in this process: one after the other for each caller, beside the requests of all."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from discreet.errors import SourceError
from discreet.server.errors import BUSY, CANCELED, INTERRUPTED, ApiException, api_error_from
from discreet.server.monitoring import log_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias

    from discreet.server.jobs import JobStore
    from discreet.server.monitoring import Metrics
    from discreet.server.query_service import Watch

    Answering: TypeAlias = Callable[[Watch], Awaitable["WrittenAnswer"]]

T = TypeVar("T")

_RETRY = 0.5  # seconds after which a job that found all workers taken tries again, and a lost write too


class WrittenAnswer(NamedTuple):
    """An answer as JSON, with what the metrics count of it."""

    content: bytes
    kind: str
    cached: bool


class JobRunner:
    """Runs the jobs that this process accepted, and records how far they are and how they end.

    Parameters
    ----------
    store : JobStore
        File of all jobs.
    metrics : Metrics
        Counters of refusals and answers.

    Privacy
    -------
    A job is answered by the same task as a request, so it is charged, refused and logged in the same way. One
    that is canceled, or whose process is stopped, ends before its next aggregate is charged.
    """

    def __init__(self, store: JobStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    def start(self, job: str, caller: str, answer: Answering, *, request_id: str) -> None:
        """Run a job of the store once earlier ones of its caller have ended.

        Parameters
        ----------
        job, caller : str
            Id of the job, and name of the caller whose turn it waits for.
        answer : callable
            Coroutine function that answers the request; it is given the function that is called before each
            aggregate.
        request_id : str
            Id of the request that created the job, for error bodies and logs.
        """
        task = asyncio.get_running_loop().create_task(self._run(job, caller, answer, request_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, job: str, caller: str, answer: Answering, request_id: str) -> None:
        """Answer a job in its turn, and record its answer or its error."""
        async with self._turns[caller]:
            try:
                await self._in_thread(lambda: self._watch(job, 0, None))
                written = await self._answer(job, answer)
            except Exception as error:
                # Whatever ended the job becomes its error, as it would become a response.
                problem = api_error_from(error)
                if problem is INTERRUPTED:
                    return  # recorded when the store is closed
                if problem.code == "failed":
                    log_failure(request_id, error)
                self._metrics.count_refusal(problem.code)
                body = json.dumps(json.loads(problem.body(request_id))["error"])
                state = "canceled" if problem is CANCELED else "refused"
                await self._record(lambda: self._store.end(job, state, error=body))  # type: ignore[arg-type]
            else:
                self._metrics.count_answer(written.kind, written.cached)
                await self._record(lambda: self._store.end(job, "done", answer=written.content))

    async def _answer(self, job: str, answer: Answering) -> WrittenAnswer:
        """Answer the request of a job, as soon as a worker takes it."""
        while True:
            try:
                return await answer(lambda done, planned: self._watch(job, done, planned))
            except ApiException as refusal:
                if refusal.error is not BUSY:
                    raise
            await asyncio.sleep(_RETRY)
            await self._in_thread(lambda: self._watch(job, 0, None))

    def _watch(self, job: str, done: int, planned: int | None) -> None:
        """Record how far a job is; raise ApiException if it must not go on."""
        if self._closing:
            raise ApiException(INTERRUPTED)
        if not self._store.advance(job, done, planned):
            raise ApiException(CANCELED)

    async def _record(self, write: Callable[[], None]) -> None:
        """Write to the store, again and again while it cannot be written: nobody waits for an ended job."""
        while True:
            try:
                await self._in_thread(write)
            except SourceError:
                await asyncio.sleep(_RETRY)
            else:
                return

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self) -> None:
        """End all jobs before their next aggregate."""
        self._closing = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown(wait=True)
