"""Many threads at one database: shared passes, shared draws, and nobody held up by somebody else's slot."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.batching import PACE
from discreet.errors import EngineFailed
from discreet.ledger import Ledger
from discreet.privacy import GaussianDP
from discreet.query import Database, Gram, Histogram, Sums, execution
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.execution import Slots
from tests.query.people import people, people_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet.query import Aggregate, Answer
    from discreet.query.engines import EngineCells, Kernel

SCHEMA = people_schema()
ROWS = people(500)
NEARLY_EXACT = GaussianDP(mu=1e5)
MU = GaussianDP(mu=0.5)
LONG = 300.0  # seconds after which a test that waits has failed


class Gate(DuckDBEngine):
    """Lets passes through only when the gate is open, and remembers how wide each was."""

    def __init__(self) -> None:
        super().__init__()
        self.open = threading.Event()
        self.entered = threading.Event()
        self.passes: list[tuple[str, int]] = []

    def _pass(self, kind: str, width: int) -> None:
        self.passes.append((kind, width))
        self.entered.set()
        assert self.open.wait(LONG)

    def aggregate(self, expressions: Sequence[Tree]) -> list[int]:
        self._pass("aggregate", len(expressions))
        return super().aggregate(expressions)

    def sum_groups(
        self, tables: Sequence[EngineCells], expressions: Sequence[Tree | None]
    ) -> list[list[int]]:
        self._pass("grouped", len(tables))
        return super().sum_groups(tables, expressions)

    def reduce(self, kernel: Kernel) -> list[int]:
        self._pass("reduce", kernel.size)
        return super().reduce(kernel)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not holds():
        assert time.monotonic() < end, "what was waited for never came"
        time.sleep(0.001)


def asked_together(db: Database, engine: Gate, asks: Sequence[Callable[[], Answer]]) -> list[Answer]:
    """Ask the first, and the others while the engine is busy with it."""
    with ThreadPoolExecutor(len(asks)) as pool:
        try:
            first = pool.submit(asks[0])
            assert engine.entered.wait(LONG)
            others = [pool.submit(ask) for ask in asks[1:]]
            until(lambda: len(db._passes._waiting) == len(asks) - 1)
        finally:
            engine.open.set()
        return [first.result(LONG), *(other.result(LONG) for other in others)]


@pytest.fixture
def gated() -> Iterator[tuple[Database, Gate]]:
    engine = Gate()
    with Database(ROWS, schema=SCHEMA, engine=engine) as db:
        yield db, engine


def counting(db: Database, least: int) -> Callable[[], Answer]:
    return lambda: db.ask(Sums(f"age > {least}"), privacy=NEARLY_EXACT, owner=f"analyst {least}")


def test_sixty_four_analysts_are_answered_exactly_in_two_passes(gated: tuple[Database, Gate]) -> None:
    db, engine = gated
    answers = asked_together(db, engine, [counting(db, 20 + i) for i in range(64)])
    for i, answer in enumerate(answers):
        assert answer.value == pytest.approx(int((ROWS["age"] > 20 + i).sum()), abs=1e-3)
    assert engine.passes == [("aggregate", 1), ("aggregate", 63)]
    assert db.ledger.spent().charges == 64
    db.ledger.check()


def test_questions_of_one_kind_share_a_pass_and_the_others_keep_their_turn(
    gated: tuple[Database, Gate],
) -> None:
    db, engine = gated
    ages = np.bincount(ROWS["age"] - 17, minlength=74)
    asks: list[Callable[[], Answer]] = [
        counting(db, 30),
        lambda: db.histogram("age", privacy=NEARLY_EXACT),
        counting(db, 40),
        lambda: db.ask(Gram(("age",)), privacy=NEARLY_EXACT),
        lambda: db.histogram("owner", expression="age", privacy=NEARLY_EXACT),
        lambda: db.ask(Sums(("age", "age > 50")), privacy=NEARLY_EXACT),
        lambda: db.ask(Gram(("height",)), privacy=NEARLY_EXACT),
    ]
    with ThreadPoolExecutor(len(asks)) as pool:
        found = [pool.submit(asks[0])]
        assert engine.entered.wait(LONG)
        for i, ask in enumerate(asks[1:], 1):
            found.append(pool.submit(ask))
            until(lambda i=i: len(db._passes._waiting) == i)  # type: ignore[misc]
        engine.open.set()
        first, histogram, second, gram, by_owner, sums, _ = (future.result(LONG) for future in found)
    assert engine.passes == [
        ("aggregate", 1),
        ("grouped", 3),  # counts by age; counts and sums by owner
        ("aggregate", 3),
        ("reduce", 2),
        ("reduce", 2),
    ]
    assert first.value == pytest.approx(ages[14:].sum(), abs=1e-3)
    assert second.value == pytest.approx(ages[24:].sum(), abs=1e-3)
    assert np.asarray(histogram.value) == pytest.approx(ages, abs=1e-3)
    by = [ROWS["age"][ROWS["owner"] == owner].sum() for owner in (0, 1)]
    assert np.asarray(by_owner.value)[:2] == pytest.approx(by, abs=0.1)
    assert np.asarray(sums.value) == pytest.approx([ROWS["age"].sum(), ages[34:].sum()], abs=0.1)
    assert np.asarray(gram.value)[0, 0] == 500


def test_a_pass_is_not_made_wider_than_an_engine_plans_well(
    gated: tuple[Database, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, engine = gated
    monkeypatch.setattr(db._passes, "_limit", 4)
    asked_together(db, engine, [counting(db, 20 + i) for i in range(10)])
    assert engine.passes == [("aggregate", width) for width in (1, 4, 4, 1)]


class Draws:
    """Noise that says which draw it is."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.drawn = 0

    def gaussian(self, s: float, n: int = 1) -> Any:
        with self._mutex:
            self.drawn += 1
            return np.full(n, self.drawn, np.int64)

    laplace = gaussian


@pytest.mark.parametrize("owners", [["ann"] * 16, ["ann", "bob"] * 8], ids=["one owner", "two owners"])
def test_the_same_question_at_the_same_time_is_charged_once_and_one_draw_leaves(
    gated: tuple[Database, Gate], owners: list[str]
) -> None:
    db, engine = gated
    db._draws = draws = Draws()
    with ThreadPoolExecutor(16) as pool:
        found = [pool.submit(db.count, "age > 40", privacy=MU, owner=owner) for owner in owners]
        until(lambda: len(db._passes._waiting) == 15)
        engine.open.set()
        answers = [future.result(LONG) for future in found]
    # Sixteen have drawn; the ledger keeps the first that comes, and all get that one.
    assert draws.drawn == 16
    assert len({answer.value for answer in answers}) == 1
    assert len({answer.receipts for answer in answers}) == len(set(owners))
    assert engine.passes == [("aggregate", 1), ("aggregate", 1)]
    spent = db.ledger.spent()
    assert float(spent.gaussian) == pytest.approx(0.125, rel=1e-9)
    assert db.count("age > 40", privacy=MU, owner="ann").value == answers[0].value


def test_two_processes_that_draw_for_the_same_question_let_one_draw_leave() -> None:
    # Two databases on one ledger share no memory, as two workers do.
    ledger = Ledger.open(":memory:")
    engines = Gate(), Gate()
    with (
        Database(ROWS, schema=SCHEMA, engine=engines[0], ledger=ledger) as one,
        Database(ROWS, schema=SCHEMA, engine=engines[1], ledger=ledger) as two,
        ThreadPoolExecutor(2) as pool,
    ):
        found = [pool.submit(db.count, "age > 40", privacy=MU, owner="ann") for db in (one, two)]
        # Both have looked for a paid answer, and found none, before either has one.
        for engine in engines:
            assert engine.entered.wait(LONG)
        for engine in engines:
            engine.open.set()
        values = {future.result(LONG).value for future in found}
    assert len(values) == 1
    assert ledger.spent().charges == 1


class Fussy(Gate):
    """Fails when a pass has more than one sum, or the one that it does not like."""

    def __init__(self, refused: str = "") -> None:
        super().__init__()
        self._refused = refused

    def aggregate(self, expressions: Sequence[Tree]) -> list[int]:
        found = super().aggregate(expressions)
        if len(expressions) > 1 or any(self._refused in tree.sql() for tree in expressions if self._refused):
            raise EngineFailed
        return found


def test_nobody_fails_because_of_what_another_asked() -> None:
    engine = Fussy(refused="'60.0'")  # 77, counted from the lower bound 17
    with Database(ROWS, schema=SCHEMA, engine=engine) as db:
        leasts = [30, 40, 77, 50]
        with ThreadPoolExecutor(4) as pool:
            found = [pool.submit(counting(db, leasts[0]))]
            assert engine.entered.wait(LONG)
            found += [pool.submit(counting(db, least)) for least in leasts[1:]]
            until(lambda: len(db._passes._waiting) == 3)
            engine.open.set()
            for least, future in zip(leasts, found, strict=True):
                if least == 77:
                    with pytest.raises(EngineFailed, match="the charge stands"):
                        future.result(LONG)
                else:
                    exact = int((ROWS["age"] > least).sum())
                    assert future.result(LONG).value == pytest.approx(exact, abs=1e-3)
        assert engine.passes == [("aggregate", width) for width in (1, 3, 1, 1, 1)]
        assert db.ledger.spent().charges == 4


def test_a_mistake_in_the_program_of_whoever_leads_leaves_nobody_waiting(
    gated: tuple[Database, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, engine = gated
    sum_batch = db._passes._work

    def wrong(take: Any) -> Any:
        bounds = take()
        if len(bounds) > 1:
            raise RuntimeError
        return sum_batch(lambda: bounds)

    monkeypatch.setattr(db._passes, "_work", wrong)
    with ThreadPoolExecutor(3) as pool:
        found = [pool.submit(counting(db, 30))]
        assert engine.entered.wait(LONG)
        found += [pool.submit(counting(db, least)) for least in (40, 50)]
        until(lambda: len(db._passes._waiting) == 2)
        engine.open.set()
        failures = Counter(type(future.exception(LONG)).__name__ for future in found)
    assert failures == {"NoneType": 1, "RuntimeError": 1, "EngineFailed": 1}
    assert counting(db, 40)().value == pytest.approx(int((ROWS["age"] > 40).sum()), abs=1e-3)


@pytest.mark.parametrize("leads", [False, True], ids=["who waits", "who was to lead"])
def test_whoever_is_interrupted_while_waiting_is_not_waited_for(leads: bool) -> None:
    began, engine = threading.Event(), Gate()
    with Database(ROWS, schema=SCHEMA, engine=engine) as db:
        passes = db._passes
        bound, _ = db.cost_model.calibrate(Sums("age > 40"), privacy=MU)
        worker = threading.Thread(target=passes.submit, args=([bound],))
        worker.start()
        assert engine.entered.wait(LONG)

        class Interrupted:
            def __init__(self) -> None:
                self.released = threading.Event()

            def acquire(self, *, timeout: float = -1) -> bool:
                began.set()
                if leads:
                    self.released.wait(LONG)
                raise KeyboardInterrupt

            def release(self) -> None:
                self.released.set()

        caught: list[type[BaseException]] = []

        def waits() -> None:
            (entry,) = passes._entries([bound])
            gate: Any = Interrupted()
            entry.gate = gate
            with passes._lock:
                passes._waiting.append(entry)
            # Of another key than the worker's, so that it has to lead a batch of its own.
            entry.key = "another" if leads else entry.key
            try:
                passes._wait(entry, None)
            except KeyboardInterrupt as interrupt:
                caught.append(type(interrupt))

        waiter = threading.Thread(target=waits)
        waiter.start()
        assert began.wait(LONG)
        if not leads:
            waiter.join(LONG)
        engine.open.set()
        worker.join(LONG)
        waiter.join(LONG)
        assert caught == [KeyboardInterrupt]
        assert passes.submit([bound]) == [[int((ROWS["age"] > 40).sum())]]
        assert (passes._busy, len(passes._waiting)) == (False, 0)


def test_a_slot_begins_before_the_wait_for_the_engine(
    gated: tuple[Database, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    db, engine = gated
    began = threading.Semaphore(0)
    slot = Slots.slot

    def noted(self: Slots, *kinds: str) -> Any:
        began.release()
        return slot(self, *kinds)

    monkeypatch.setattr(Slots, "slot", noted)
    with ThreadPoolExecutor(5) as pool:
        found = [pool.submit(counting(db, 30 + i)) for i in range(5)]
        try:
            # All five slots have begun though the engine has let nobody through.
            assert all(began.acquire(timeout=LONG) for _ in range(5))
            assert len(engine.passes) <= 1
        finally:
            engine.open.set()
        for future in found:
            future.result(LONG)


def test_answers_that_wait_for_their_slot_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # With a lock that is held through the slot, no two would ever wait at the same time.
    together = threading.Barrier(16)
    monkeypatch.setattr(execution, "sleep", lambda _: together.wait(LONG))
    with Database(ROWS, schema=SCHEMA, slots=3600.0) as db, ThreadPoolExecutor(16) as pool:
        found = [pool.submit(counting(db, 20 + i)) for i in range(16)]
        for future in found:
            future.result(LONG)


def test_a_seed_gives_the_same_answers_to_questions_one_at_a_time() -> None:
    values = []
    for _ in range(2):
        with Database(ROWS, schema=SCHEMA, random_state=5) as db:
            asked = [db.ask(Sums(f"age > {least}"), privacy=MU).value for least in (30, 40, 50)]
            values.append([*asked, *np.ravel(db.ask(Histogram("job"), privacy=MU).value)])
    assert values[0] == values[1]


@contextlib.contextmanager
def in_background(rest: Callable[[float], None] = lambda seconds: None) -> Iterator[None]:
    PACE.rest = rest
    try:
        yield
    finally:
        PACE.rest = None


class GateOfBackground(Gate):
    """Holds up the passes of the background alone."""

    def _pass(self, kind: str, width: int) -> None:
        if PACE.background:
            super()._pass(kind, width)


def test_a_question_does_not_wait_for_a_pass_of_the_background() -> None:
    engine = GateOfBackground()

    def long_question() -> Answer:
        with in_background():
            return counting(db, 30)()

    with Database(ROWS, schema=SCHEMA, engine=engine) as db, ThreadPoolExecutor(2) as pool:
        held_up = pool.submit(long_question)
        try:
            assert engine.entered.wait(LONG)
            quick = pool.submit(counting(db, 40)).result(LONG)
            assert not held_up.done()
        finally:
            engine.open.set()
        assert quick.value == pytest.approx(int((ROWS["age"] > 40).sum()), abs=1e-3)
        assert held_up.result(LONG).value == pytest.approx(int((ROWS["age"] > 30).sum()), abs=1e-3)


class OneAtATime(Gate):
    """Makes one pass at a time, as an engine with a single connection does."""

    parallel = False


@pytest.mark.parametrize(
    ("question", "passes"),
    [
        (
            Sums([f"age > {20 + i}" for i in range(20)]),
            [("aggregate", 8), ("aggregate", 8), ("aggregate", 4)],
        ),
        (Sums("3"), [("aggregate", 0)]),
        (Gram(("age",)), [("reduce", 2)]),
        (Histogram("job"), [("grouped", 1)]),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
@pytest.mark.parametrize("engine", [OneAtATime, Gate])
def test_the_background_is_answered_in_short_passes(
    question: Aggregate, passes: list[tuple[str, int]], engine: type[Gate]
) -> None:
    in_background_alone, at_once = engine(), Gate()
    in_background_alone.open.set()
    at_once.open.set()
    with Database(ROWS, schema=SCHEMA, engine=at_once) as db:
        whole = np.asarray(db.ask(question, privacy=NEARLY_EXACT).value)
    with Database(ROWS, schema=SCHEMA, engine=in_background_alone) as db, in_background():
        in_parts = np.asarray(db.ask(question, privacy=NEARLY_EXACT).value)
    assert in_background_alone.passes == passes
    assert in_parts == pytest.approx(whole, abs=1e-2)


def test_other_questions_are_answered_between_short_passes() -> None:
    engine = OneAtATime()
    order: list[str] = []
    wide = Sums([f"age > {20 + i}" for i in range(64)])

    def long_question() -> None:
        with in_background():
            db.ask(wide, privacy=MU)
        order.append("long")

    def short_question() -> None:
        counting(db, 19)()
        order.append("short")

    with Database(ROWS, schema=SCHEMA, engine=engine) as db, ThreadPoolExecutor(2) as pool:
        first = pool.submit(long_question)
        try:
            assert engine.entered.wait(LONG)
            second = pool.submit(short_question)
            until(lambda: len(db._passes._waiting) == 1)
        finally:
            engine.open.set()
        first.result(LONG)
        second.result(LONG)
    assert order == ["short", "long"]
    # The next part may join the pass of the short question, which waited for the first one alone.
    assert engine.passes[0] == ("aggregate", 8)
    assert engine.passes[1] in [("aggregate", 1), ("aggregate", 9)]
    assert sum(width for _, width in engine.passes) == 65


class FailsOnThird(OneAtATime):
    """Fails in its third pass."""

    def aggregate(self, expressions: Sequence[Tree]) -> list[int]:
        found = super().aggregate(expressions)
        if len(self.passes) == 3:
            raise EngineFailed
        return found


def test_a_question_whose_third_pass_fails_is_charged_once_and_free_to_ask_again() -> None:
    engine = FailsOnThird()
    engine.open.set()
    wide = Sums([f"age > {20 + i}" for i in range(64)])
    with Database(ROWS, schema=SCHEMA, engine=engine) as db, in_background():
        with pytest.raises(EngineFailed):
            db.ask(wide, privacy=MU)
        db.ask(wide, privacy=MU)
        assert db.ledger.spent().charges == 1


def _rests(rows: dict[str, Any]) -> list[float]:
    """Return the times for which the background rests while a wide question is answered."""
    rests: list[float] = []
    wide = Sums([f"age > {20 + i}" for i in range(20)])
    with Database(rows, schema=SCHEMA) as db, in_background(rests.append):
        db.ask(wide, privacy=MU)
    return rests


def test_the_background_rests_between_passes_for_public_times() -> None:
    rests = _rests(people(500))
    assert len(rests) == 2  # between three passes
    assert min(rests) > 0
    assert _rests(people(5000)) == rests


def test_a_wide_question_gives_way_while_it_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    ways: list[int] = []
    with Database(ROWS, schema=SCHEMA) as db:
        monkeypatch.setattr(PACE, "give_way", lambda: ways.append(1))
        db.cost(Sums([f"age > {20 + i}" for i in range(20)]), privacy=MU)
    assert len(ways) >= 20
