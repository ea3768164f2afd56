"""Workers take all queries that wait; nobody takes more than a share, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from discreet.batching import PART, Step, give_way, in_parts
from discreet.server.errors import BUSY, ApiException
from discreet.server.work import Planning, WorkBudget, declare_work
from discreet.server.workers import WorkerPool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.batching import QueryTask
    from discreet.server.query_service import RunTask

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


# Heavy queries.


def test_a_heavy_query_holds_up_nobody_and_the_next_one_waits_for_it() -> None:
    heavy, light = Counter(), Counter()
    light.open.set()
    pool = WorkerPool(1, 1, share=9, most=99)

    async def crowd() -> list[Any]:
        held = [asyncio.create_task(pool.run("eve", asking(heavy, i), work=9.0)) for i in range(3)]
        await entered(heavy)
        for i in range(20):
            assert await asyncio.wait_for(pool.run("ben", asking(light, i), work=0.01), LONG) == i
        assert heavy.served == [1]
        heavy.open.set()
        return list(await asyncio.wait_for(asyncio.gather(*held), LONG))

    assert asyncio.run(crowd()) == [0, 1, 2]
    assert heavy.served == [1, 1, 1]
    assert not pool._open
    pool.close()


def declaring(counter: Counter, seconds: float, wish: Any) -> QueryTask[Any]:
    read = yield Planning(lambda items: [item.upper() for item in items], "text")
    assert read == "TEXT"
    yield declare_work(seconds)
    return (yield Step(counter.serve, wish))


def test_a_query_that_turns_out_heavy_is_moved_and_one_that_does_not_stays() -> None:
    heavy, light = Counter(), Counter()
    light.open.set()
    pool = WorkerPool(1, 1, share=9, most=99)

    async def crowd() -> list[Any]:
        held = [asyncio.create_task(pool.run("eve", declaring(heavy, 9.0, one))) for one in ("yes", "no")]
        await entered(heavy)
        assert await asyncio.wait_for(pool.run("ben", declaring(light, 0.01, 3)), LONG) == 3
        assert not any(one.done() for one in held)
        heavy.open.set()
        return list(await asyncio.wait_for(asyncio.gather(*held, return_exceptions=True), LONG))

    yes, no = asyncio.run(crowd())
    assert yes == "yes"
    assert isinstance(no, ValueError)
    assert not pool._open
    pool.close()


def test_a_heavy_query_pauses_after_its_plan_while_others_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    ticks = iter(range(1000))
    monkeypatch.setattr(time, "thread_time", lambda: float(next(ticks)))
    counter, held = Counter(), Counter()
    counter.open.set()
    pool = WorkerPool(1, 1, share=9, most=99)

    async def crowd() -> None:
        await asyncio.wait_for(pool.run("eve", declaring(counter, 9.0, 1), work=9.0), LONG)
        others = [asyncio.create_task(pool.run(f"a{i}", asking(held, i))) for i in range(9)]
        await entered(held)
        await asyncio.wait_for(pool.run("eve", declaring(counter, 9.0, 1), work=9.0), LONG)
        held.open.set()
        await asyncio.wait_for(asyncio.gather(*others), LONG)

    asyncio.run(crowd())
    # Alone it goes on at once; beside others it leaves four fifths of the time to them, after its plan and
    # after each of its own parts, and never for what a step took that sees rows.
    assert slept == [0.0] * 3 + [pytest.approx(4.0)] * 3
    pool.close()


def test_a_long_stretch_pauses_in_parts_and_longer_on_a_crowded_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[float] = [0.0]
    slept: list[float] = []
    monkeypatch.setattr(time, "thread_time", lambda: used[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(os, "getloadavg", lambda: (3.0 * (os.cpu_count() or 1), 0.0, 0.0))
    pool = WorkerPool(1, 1, share=9, most=9)
    pool._open.update("abcde")

    def engine(items: Sequence[Any]) -> list[Any]:
        used[0] += 100.0
        give_way()  # what sees rows is not paced
        return list(items)

    def task() -> QueryTask[Any]:
        answer = yield Step(engine, "answer")
        for _ in in_parts(range(2 * PART + 1)):
            used[0] += 1 / PART
        return answer

    assert pool.run_model("ana", lambda run: run(task())) == "answer"
    assert slept == pytest.approx([0.0, 0.0, 12.0, 12.0])
    give_way()
    assert len(slept) == 4
    pool.close()


def test_whoever_has_used_up_the_work_of_an_hour_is_refused_before_anything_is_done() -> None:
    counter, began = Counter(), []
    counter.open.set()
    pool = WorkerPool(1, 1, share=9, most=99, budget=WorkBudget(10.0))

    def charging(seconds: float) -> QueryTask[Any]:
        began.append("read")
        yield declare_work(seconds)
        began.append("charged")
        return (yield Step(counter.serve, 1))

    async def crowd() -> list[Any]:
        return [
            await asyncio.gather(pool.run(who, charging(seconds), work=work), return_exceptions=True)
            for who, seconds, work in (
                ("eve", 8.0, 1.0),
                ("eve", 8.0, 1.0),
                ("eve", 1.0, 5.0),
                ("ben", 1.0, 1.0),
            )
        ]

    first, second, third, fourth = (found[0] for found in asyncio.run(crowd()))
    assert (first, fourth) == (1, 1)
    for refused in (second, third):
        assert isinstance(refused, ApiException)
        assert refused.error.code == "work-limited"
        assert "Nothing was charged." in refused.error.message
    assert began == ["read", "charged", "read", "read", "charged"]
    pool.close()


def test_a_model_is_refused_before_the_step_that_has_no_work_left(monkeypatch: pytest.MonkeyPatch) -> None:
    used, paid = [0.0], []
    monkeypatch.setattr(time, "thread_time", lambda: used[0])
    pool = WorkerPool(1, 1, share=9, most=99, budget=WorkBudget(10.0))

    def step(seconds: float) -> QueryTask[Any]:
        yield declare_work(seconds)
        paid.append(seconds)
        return (yield Step(lambda items: list(items), seconds))

    def train(run: RunTask) -> Any:
        run(step(4.0))
        used[0] += 3.0  # what the model computes by itself
        run(step(1.0))
        return run(step(4.0))

    with pytest.raises(ApiException) as refused:
        pool.run_model("eve", train)
    assert refused.value.error.code == "work-limited"
    assert "its earlier steps stay charged" in refused.value.error.message
    assert paid == [4.0, 1.0]
    assert pool.run_model("ben", lambda run: run(step(4.0))) == 4.0
    with pytest.raises(ApiException) as refused:
        pool.run_model("eve", lambda run: run(step(4.0)))
    assert "Nothing was charged." in refused.value.error.message
    pool.close()


def test_what_a_model_computes_at_its_end_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [0.0]
    monkeypatch.setattr(time, "thread_time", lambda: used[0])
    pool = WorkerPool(1, 1, share=9, most=99, budget=WorkBudget(10.0))

    def train(_: RunTask) -> str:
        used[0] += 25.0
        return "model"

    assert pool.run_model("eve", train) == "model"
    with pytest.raises(ApiException) as refused:
        pool.count_work("eve", 1.0)
    assert refused.value.error.headers["Retry-After"] == str(96 * 60)  # -15 seconds to 1, at 10 in an hour
    pool.close()


def test_who_sends_most_is_not_served_most() -> None:
    counter, served = Counter(), []
    pool = WorkerPool(1, 1, share=99, most=99)

    def noted(who: str) -> QueryTask[Any]:
        yield Step(counter.serve, who)
        served.append(who)

    async def crowd() -> None:
        first = asyncio.create_task(pool.run("eve", noted("eve"), work=0.04))
        await entered(counter)
        rest = [asyncio.create_task(pool.run("eve", noted("eve"), work=0.04)) for _ in range(30)]
        await asyncio.sleep(0)
        rest += [asyncio.create_task(pool.run(f"a{i}", noted(f"a{i}"), work=0.01)) for i in range(10)]
        await asyncio.sleep(0)
        counter.open.set()
        await asyncio.wait_for(asyncio.gather(first, *rest), LONG)

    asyncio.run(crowd())
    # Of the first dozen after the one under way, ten are the others'.
    assert sum(who != "eve" for who in served[1:13]) >= 9
    pool.close()


def test_a_model_leaves_the_processor_to_others_for_what_it_computes_and_not_for_what_an_engine_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[float] = [0.0]
    slept: list[float] = []
    monkeypatch.setattr(time, "thread_time", lambda: used[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    pool = WorkerPool(1, 1, share=9, most=9)
    pool._open.update("abcde")

    def engine(items: Sequence[Any]) -> list[Any]:
        used[0] += 100.0
        return list(items)

    def task() -> QueryTask[Any]:
        used[0] += 2.0
        return (yield Step(engine, "answer"))

    def train(run: RunTask) -> list[Any]:
        used[0] += 1.0
        first = run(task())
        used[0] += 3.0
        return [first, run(task())]

    assert pool.run_model("ana", train) == ["answer", "answer"]
    assert slept == pytest.approx([4.0, 8.0, 12.0, 8.0])
    pool.close()


def test_background_work_pauses_in_parts_while_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[float] = [0.0]
    slept: list[float] = []
    monkeypatch.setattr(time, "thread_time", lambda: used[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    pool = WorkerPool(1, 1, share=9, most=9)

    def work() -> str:
        for _ in in_parts(range(2 * PART)):
            used[0] += 1 / PART
        return "done"

    assert pool.with_pauses(work)() == "done"
    assert set(slept) == {0.0}
    pool._open.update("abcde")
    slept.clear()
    assert pool.with_pauses(work)() == "done"
    assert slept == pytest.approx([4.0, 4.0])
    pool.close()
