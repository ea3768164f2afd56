"""Workers take all queries that wait; nobody takes more than a share, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from discreet.batching import Step
from discreet.server.errors import BUSY, ApiException
from discreet.server.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.batching import QueryTask

LONG = 20.0


class Counter:
    """A desk that can be held up, and remembers how many it served at once."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.served: list[int] = []

    def serve(self, wishes: Sequence[Any]) -> list[Any]:
        self.served.append(len(wishes))
        self.entered.set()
        assert self.open.wait(LONG)
        return [ValueError("no") if wish == "no" else wish for wish in wishes]


def asking(counter: Counter, wish: Any) -> QueryTask[Any]:
    return (yield Step(counter.serve, wish))


async def entered(counter: Counter) -> None:
    await asyncio.get_running_loop().run_in_executor(None, counter.entered.wait, LONG)


def test_what_waits_is_answered_together() -> None:
    counter, pool = Counter(), WorkerPool(1, 1, share=100, most=100)

    async def crowd() -> list[Any]:
        first = asyncio.create_task(pool.run("ann", asking(counter, 0)))
        await entered(counter)
        others = [asyncio.create_task(pool.run(f"a{i}", asking(counter, i))) for i in range(1, 20)]
        await asyncio.sleep(0)
        counter.open.set()
        return list(await asyncio.wait_for(asyncio.gather(first, *others), LONG))

    assert asyncio.run(crowd()) == list(range(20))
    assert counter.served == [1, 19]
    pool.close()


def test_what_goes_wrong_reaches_whoever_it_is_about() -> None:
    counter, pool = Counter(), WorkerPool(2, 2, share=9, most=9)
    counter.open.set()

    async def crowd() -> list[Any]:
        wishes = ("yes", "no", "yes")
        flows = [pool.run("ann", asking(counter, wish)) for wish in wishes]
        return list(await asyncio.wait_for(asyncio.gather(*flows, return_exceptions=True), LONG))

    first, second, third = asyncio.run(crowd())
    assert (first, third) == ("yes", "yes")
    assert isinstance(second, ValueError)
    pool.close()


def test_nobody_has_more_than_a_share_and_all_together_not_more_than_there_is_room_for() -> None:
    counter, pool = Counter(), WorkerPool(1, 1, share=2, most=3)

    async def crowd() -> tuple[list[Any], list[Any]]:
        tasks = [
            asyncio.create_task(pool.run(name, asking(counter, name)))
            for name in ("ann", "ann", "ann", "bob", "cid")
        ]
        await entered(counter)
        await asyncio.sleep(0)
        refused = [task.exception() for task in tasks if task.done()]
        counter.open.set()
        found = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), LONG)
        # Once they are answered there is room again.
        return refused, [*found, await asyncio.wait_for(pool.run("ann", asking(counter, "again")), LONG)]

    refused, found = asyncio.run(crowd())
    assert [isinstance(one, ApiException) and one.error is BUSY for one in refused] == [True, True]
    assert [isinstance(one, ApiException) for one in found] == [False, False, True, False, True, False]
    assert not pool._open
    pool.close()


def test_whoever_goes_away_is_answered_all_the_same_and_takes_no_room() -> None:
    counter, pool, ended = Counter(), WorkerPool(1, 1, share=2, most=2), threading.Event()

    def noted() -> QueryTask[Any]:
        found = yield Step(counter.serve, 1)
        ended.set()
        return found

    async def crowd() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pool.run("ann", noted())
        assert pool._open == {"ann": 1}
        counter.open.set()
        while pool._open:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(crowd(), LONG))
    assert ended.is_set()
    pool.close()


def test_whoever_waits_for_long_behind_a_slow_question_is_helped_out() -> None:
    slow, quick = Counter(), Counter()
    quick.open.set()
    pool = WorkerPool(1, 2, share=9, most=9)

    async def crowd() -> None:
        first = asyncio.create_task(pool.run("ann", asking(slow, 1)))
        await entered(slow)
        assert await asyncio.wait_for(pool.run("bob", asking(quick, 2)), LONG) == 2
        assert not first.done()
        slow.open.set()
        assert await asyncio.wait_for(first, LONG) == 1

    asyncio.run(crowd())
    pool.close()
    assert pool._running == 0


def test_nobody_is_helped_out_who_is_answered_soon() -> None:
    held = Counter()
    pool = WorkerPool(1, 8, share=99, most=99)

    async def crowd() -> None:
        first = asyncio.create_task(pool.run("ann", asking(held, 1)))
        await entered(held)
        others = [asyncio.create_task(pool.run("bob", asking(held, i))) for i in range(20)]
        await asyncio.sleep(0)
        assert pool._running == 1
        held.open.set()
        await asyncio.wait_for(asyncio.gather(first, *others), LONG)

    asyncio.run(crowd())
    assert held.served == [1, 20]
    pool.close()


def test_a_mistake_of_the_program_leaves_nobody_waiting_and_the_next_is_answered() -> None:
    counter, pool = Counter(), WorkerPool(1, 1, share=9, most=9)
    counter.open.set()

    def forgetful(wishes: Sequence[Any]) -> list[Any]:
        return []

    def lost() -> QueryTask[Any]:
        return (yield Step(forgetful, 1))

    async def crowd() -> list[Any]:
        flows = [pool.run("ann", lost()), pool.run("bob", lost())]
        found = await asyncio.wait_for(asyncio.gather(*flows, return_exceptions=True), LONG)
        return [*found, await asyncio.wait_for(pool.run("ann", asking(counter, "next")), LONG)]

    first, second, third = asyncio.run(crowd())
    assert isinstance(first, ValueError)
    assert isinstance(second, ValueError)
    assert third == "next"
    assert not pool._open
    pool.close()
