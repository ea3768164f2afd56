"""Answers leave on a public grid of time: how long the engine took is not seen."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import EngineFailed, ParameterError
from discreet.ledger import Ledger
from discreet.privacy import GaussianDP
from discreet.query import Database, Gram, Histogram, Sums
from discreet.query import execution as module
from discreet.query.calibration import QueryNoise
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.query.execution import Slots
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet.query.engines import EngineCells, Kernel

MU = GaussianDP(mu=1.0)
SCHEMA = Schema(columns=[Column("ill", values=(0, 1), closed=True), Column("x", lower=0, upper=1)])


class Clock:
    """Time that passes only when somebody works or waits."""

    def __init__(self) -> None:
        self.now = 1234.5

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


class TelltaleEngine(DuckDBEngine):
    """Takes longer by a second for each person who is ill, as a branch does that some rows take."""

    def __init__(self, clock: Clock, *, fails: bool = False) -> None:
        super().__init__()
        self._clock, self._fails = clock, fails

    def _work(self) -> None:
        ill = self._reader.execute("SELECT sum(c0) FROM curated").fetchall()[0][0]
        self._clock.sleep(0.25 + 1.0 * ill)
        if self._fails:
            raise EngineFailed

    def aggregate(self, expressions: Sequence[Tree]) -> list[int]:
        self._work()
        return super().aggregate(expressions)

    def sum_groups(
        self, tables: Sequence[EngineCells], expressions: Sequence[Tree | None]
    ) -> list[list[int]]:
        self._work()
        return super().sum_groups(tables, expressions)

    def reduce(self, kernel: Kernel) -> list[int]:
        self._work()
        return super().reduce(kernel)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "monotonic", made.monotonic)
    monkeypatch.setattr(module, "sleep", made.sleep)
    return made


def neighbors() -> tuple[dict[str, Any], dict[str, Any]]:
    """Two tables that differ in one person, who is ill in the second."""
    healthy = {"ill": np.zeros(50, np.int64), "x": np.linspace(0, 1, 50)}
    return healthy, {**healthy, "ill": np.eye(1, 50, 7, dtype=np.int64)[0]}


def times(clock: Clock, slots: Any, ledger: Ledger | None = None) -> list[list[float]]:
    """For each of two neighbors how long each kind of question took."""
    asked = []
    for rows in neighbors():
        engine = TelltaleEngine(clock)
        with Database(rows, schema=SCHEMA, engine=engine, slots=slots, ledger=ledger) as db:
            took = []
            asks: list[Callable[[], object]] = [
                lambda: db.ask(Sums("x"), privacy=MU),
                lambda: db.ask(Histogram("ill"), privacy=MU),
                lambda: db.ask(Gram(("x", "ill")), privacy=MU),
                lambda: db.ask(Sums("3"), privacy=MU),  # free, and summed by the engine all the same
            ]
            for ask in asks:
                start = clock.now
                ask()
                took.append(clock.now - start)
            asked.append(took)
    return asked


def test_neighbors_are_answered_in_the_same_slot_though_the_engine_takes_longer_for_one(clock: Clock) -> None:
    first, second = times(clock, slots=4.0)
    assert first == second == [4.0] * 4
    # The twin without slots gives the ill person away by a second.
    first, second = times(clock, slots=None)
    assert [b - a for a, b in zip(first, second, strict=True)] == [1.0] * 4


def test_each_kind_of_question_may_have_a_slot_of_its_own(clock: Clock) -> None:
    first, second = times(clock, slots={"sums": 2.0, "gram": 10.0})
    assert first == second == [2.0, 10.0, 10.0, 2.0]


def test_work_longer_than_a_slot_takes_a_whole_number_of_them(clock: Clock) -> None:
    grid = Slots(0.5)
    for work, seen in ((0.0, 0.5), (0.49, 0.5), (0.5, 1.0), (1.7, 2.0)):
        start = clock.now
        with grid.slot("sums"):
            clock.sleep(work)
        assert clock.now - start == pytest.approx(seen, abs=1e-9)


def test_an_engine_that_fails_early_or_late_fails_in_the_same_slot(clock: Clock) -> None:
    took = []
    for rows in neighbors():
        with Database(rows, schema=SCHEMA, engine=TelltaleEngine(clock, fails=True), slots=4.0) as db:
            start = clock.now
            with pytest.raises(EngineFailed):
                db.ask(Sums("x"), privacy=MU)
            took.append(clock.now - start)
            assert db.ledger.spent().charges == 1
    assert took == [4.0, 4.0]


def test_an_error_leaves_at_the_end_of_its_slot(clock: Clock) -> None:
    def fail(work: float) -> None:
        with Slots(0.5).slot("sums"):
            clock.sleep(work)
            raise MemoryError

    for work, seen in ((0.0, 0.5), (0.3, 0.5), (0.7, 1.0)):
        start = clock.now
        with pytest.raises(MemoryError):
            fail(work)
        assert clock.now - start == pytest.approx(seen, abs=1e-9)


def test_an_error_of_the_noise_leaves_at_the_end_of_its_slot(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(QueryNoise, "add_noise", fail)
    took = []
    for rows in neighbors():
        with Database(rows, schema=SCHEMA, engine=TelltaleEngine(clock), slots=4.0) as db:
            start = clock.now
            with pytest.raises(MemoryError):
                db.ask(Sums("x"), privacy=MU)
            took.append(clock.now - start)
    assert took == [4.0, 4.0]


def test_what_depends_on_nothing_private_is_said_at_once(clock: Clock) -> None:
    (rows, _) = neighbors()
    with Database(rows, schema=SCHEMA, engine=TelltaleEngine(clock), slots=4.0) as db:
        db.ask(Sums("x"), privacy=MU)
        start = clock.now
        assert db.ask(Sums("x"), privacy=MU).cached
        with pytest.raises(ParameterError):
            db.histogram("x", privacy=MU)
        assert clock.now == start


def test_neither_an_answer_nor_the_record_says_how_long_the_engine_took(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    from discreet.ledger import _charges, _ledger

    for room in (_ledger, _charges):
        monkeypatch.setattr(room, "now", lambda: f"{clock.now!r}")
    records = []
    for rows in neighbors():
        clock.now = 1000.0
        ledger = Ledger.open(":memory:")
        with Database(rows, schema=SCHEMA, engine=TelltaleEngine(clock), slots=4.0, ledger=ledger) as db:
            answer = db.ask(Sums("x"), privacy=MU)
        assert "1001" not in json.dumps(answer.to_dict()["receipt"]["when"])
        with ledger._store.read() as transaction:
            records.append([float(row.time) for row in transaction.record()])
    assert records[0] == records[1] == [1000.0, 1000.0, 1004.0]


def test_real_answers_wait_for_real_slots() -> None:
    (rows, _) = neighbors()
    with Database(rows, schema=SCHEMA, slots=0.2) as db:
        start = time.monotonic()
        db.ask(Sums("x"), privacy=MU)
        took = time.monotonic() - start
    # Beside the slot itself there are the ledger and the sampler; a busy machine may need a second slot.
    assert took >= 0.2


@pytest.mark.parametrize("wrong", [0, -1.0, math.inf, math.nan, "1", {}, {"sums": 0}, {"sums": None}])
def test_slots_that_are_no_lengths_of_time_are_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="slots of a Database must"):
        Slots(wrong)
