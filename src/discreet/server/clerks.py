"""Clerks, who answer questions: each takes all that wait, and has them answered together.

A thread for every question would meet all the others at the ledger, at the engine and at the trail, and wait
for its turn each time. A clerk takes what is there through all of that side by side.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from discreet.batching import run_batch
from discreet.server.problems import BUSY, Refusal

if TYPE_CHECKING:
    from discreet.batching import QueryTask

T = TypeVar("T")

_TOGETHER = 64  # questions that a clerk takes at once
_PATIENCE = 0.5  # seconds that a question waits before another clerk is called


class _Waiting(NamedTuple):
    """A question that waits, since when, and where its answer goes."""

    who: str | None
    flow: QueryTask[Any]
    told: asyncio.Future[Any]
    since: float


class Clerks:
    """Threads that answer questions.

    Parameters
    ----------
    usual : int
        How many work. While one waits for the disk or for the engine, another goes on; more would only
        compete.
    threads : int
        How many there are: one more helps out whenever a question has waited for long, since those who work
        may be held up by a table that takes its time.
    share : int
        Questions of one caller that may wait or be answered at once.
    most : int
        The same of everybody.

    Privacy
    -------
    Questions that are answered together are charged, answered and refused each for itself: see
    :func:`~discreet.batching.run_batch`.
    """

    def __init__(self, usual: int, threads: int, *, share: int, most: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="clerk")
        self._usual, self._all = usual, threads
        self._share, self._most = share, most
        # Clerks and the loop's thread share these two, under the mutex; the others are the loop's own.
        self._mutex = threading.Lock()
        self._waiting: deque[_Waiting] = deque()
        self._working = 0
        self._open: Counter[str | None] = Counter()
        self._watched = False

    async def answer(self, who: str | None, flow: QueryTask[T]) -> T:
        """Have a flow carried out for somebody; it is, whether or not they still wait.

        Raises
        ------
        Refusal
            Too many questions wait, of this caller or of all.
        """
        if self._open[who] >= self._share or self._open.total() >= self._most:
            raise Refusal(BUSY)
        loop = asyncio.get_running_loop()
        told: asyncio.Future[T] = loop.create_future()
        self._open[who] += 1
        with self._mutex:
            self._waiting.append(_Waiting(who, flow, told, loop.time()))
        if not self._called(self._usual, loop):
            self._watch(loop)
        return await asyncio.shield(told)

    def _called(self, most: int, loop: asyncio.AbstractEventLoop) -> bool:
        """Set another clerk to work if fewer than so many do."""
        with self._mutex:
            called = self._working < most
            self._working += called
        if called:
            self._threads.submit(self._work, loop)
        return called

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._watched:
            self._watched = True
            loop.call_later(_PATIENCE, self._relieve, loop)

    def _relieve(self, loop: asyncio.AbstractEventLoop) -> None:
        """Call for help if somebody has waited for long, and look again later as long as anybody waits."""
        self._watched = False
        with self._mutex:
            since = self._waiting[0].since if self._waiting else None
        if since is not None:
            if loop.time() - since >= _PATIENCE:
                self._called(self._all, loop)
            self._watch(loop)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Answer what waits until nothing does."""
        while taken := self._taken():
            self._answer(dict(enumerate(taken)), loop)

    def _answer(self, waiting: dict[int, _Waiting], loop: asyncio.AbstractEventLoop) -> None:
        def tell(ended: list[tuple[int, Any]]) -> None:
            loop.call_soon_threadsafe(self._tell, [(waiting.pop(i), found) for i, found in ended])

        try:
            run_batch([one.flow for one in waiting.values()], tell)
        except Exception as error:
            # Of no flow, but of who carries them out: nobody may wait for ever, and the next be answered.
            tell([(i, error) for i in list(waiting)])

    def _taken(self) -> list[_Waiting]:
        with self._mutex:
            taken = [self._waiting.popleft() for _ in range(min(_TOGETHER, len(self._waiting)))]
            self._working -= not taken
        return taken

    def _tell(self, ended: list[tuple[_Waiting, Any]]) -> None:
        """Hand answers over, on the loop's thread."""
        for one, found in ended:
            self._open[one.who] -= 1
            if not self._open[one.who]:
                del self._open[one.who]
            if one.told.cancelled():
                continue
            if isinstance(found, Exception):
                one.told.set_exception(found)
                one.told.exception()  # whoever waits has it; a late one is nobody's
            else:
                one.told.set_result(found)

    def close(self) -> None:
        """Wait for what runs."""
        self._threads.shutdown(wait=True)
