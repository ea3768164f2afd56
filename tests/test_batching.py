"""Batches: threads that share a commit or a pass, and query tasks that share their steps."""

from __future__ import annotations

import contextlib
import copy
import pickle
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

import pytest

from discreet.batching import BatchExecutor, Step, _Entry, run_batch, run_one
from discreet.errors import (
    BudgetExceeded,
    DataError,
    EngineFailed,
    ExpressionRefused,
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    TableChanged,
)
from discreet.ledger import Ledger
from discreet.ledger.transaction import Transaction
from discreet.privacy import GaussianDP, PureDP
from discreet.query import Answer, Database, Sums
from tests.query.people import people, people_schema

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from discreet.batching import QueryTask

ROWS = people(500)
NEARLY_EXACT = GaussianDP(mu=1e5)
TENTH = PureDP(epsilon=0.1)
Call = Callable[[], object]


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "crowd.ledger")
    return f"{request.getfixturevalue('postgres_url')}#crowd"


class Watch:
    """Stands between the work of a transaction and its commit."""

    def __init__(self, ledger: Ledger) -> None:
        store: Any = ledger._store
        self.writers: BatchExecutor[Any, Any] = store._pool.writers
        self.commits = 0
        self.before_commit: Callable[[], None] = lambda: None
        self._real: Callable[[], AbstractContextManager[Transaction]] = store._write_transaction
        store._write_transaction = self._write_transaction

    @contextlib.contextmanager
    def _write_transaction(self) -> Iterator[Transaction]:
        with self._real() as transaction:
            yield transaction
            self.before_commit()
            self.commits += 1

    def waiting(self, number: int) -> None:
        """Return once so many threads wait."""
        deadline = time.monotonic() + 300
        while len(self.writers._waiting) < number:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def outcomes_of(calls: list[Call], ledger: Ledger, watch: Watch) -> list[object]:
    """Make calls in threads that come while the ledger is locked, and so share the next transaction."""
    found: list[object] = [None] * len(calls)

    def run(i: int) -> None:
        try:
            found[i] = calls[i]()
        except BaseException as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]

    def hold(transaction: Transaction) -> None:
        for number, thread in enumerate(threads):
            thread.start()  # one after the other: they are done in the order of the list
            watch.waiting(number + 1)

    ledger._store.write(hold)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    return found


def test_threads_that_wait_share_one_commit(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        watch = Watch(ledger)
        found = outcomes_of([lambda: ledger.charge(TENTH, owner="ann")] * 8, ledger, watch)
        assert watch.commits == 2  # of the one who held the book, and of the eight
        assert ledger.history() == found
        assert ledger.spent().charges == ledger.spent("ann").charges == 8
        ledger.check()


def a_crowd_with_refusals(ledger: Ledger) -> list[object]:
    ledger.set_owner_limit("poor", PureDP(epsilon=0.05))

    def nonsense() -> object:
        def work(transaction: Transaction) -> None:
            transaction.append("now", "{}")
            raise ZeroDivisionError

        return ledger._store.write(work)

    return outcomes_of(
        [
            lambda: ledger.charge(TENTH, owner="ann", question="q"),
            # the total is charged before the owner is found to have too little
            lambda: ledger.charge(TENTH, owner="poor", request="k"),
            nonsense,
            lambda: ledger.charge(TENTH, owner="bob", question="q"),
            lambda: ledger.charge(PureDP(epsilon=3)),
            lambda: ledger.charge(TENTH, owner="ann"),
        ],
        ledger,
        Watch(ledger),
    )


def test_a_refused_piece_leaves_its_neighbors_intact(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        found = a_crowd_with_refusals(ledger)
        refused = [type(one) for one in found if isinstance(one, Exception)]
        assert refused == [BudgetExceeded, ZeroDivisionError, BudgetExceeded]
        assert ledger.history() == [one for one in found if not isinstance(one, Exception)]
        assert ledger.spent().epsilon == 0.2
        assert ledger.spent("poor").charges == 0
        ledger.charge(PureDP(epsilon=0.05), owner="poor", request="k")
        ledger.check()


def test_a_twin_whose_refusals_undo_nothing_is_caught(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for run in ("_run_in_savepoint", "_run_buffered"):
        monkeypatch.setattr(Transaction, run, lambda self, operation: operation(self))
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        a_crowd_with_refusals(ledger)
        with pytest.raises(LedgerTampered):
            ledger.check()


def returned_before_the_commit(ledger: Ledger) -> int:
    """Stop a transaction right before its commit; return how many of its threads were let go by then."""
    watch = Watch(ledger)
    done: list[float] = []
    reached, go_on = threading.Event(), threading.Event()
    early = 0

    def stop() -> None:
        nonlocal early
        if len(ledger.history()) == 0 and watch.commits == 1:
            reached.set()
            # whoever is let go before the commit has all this time to come back
            go_on.wait(0.5)
            early = len(done)

    watch.before_commit = stop

    def charge(epsilon: float) -> None:
        with contextlib.suppress(BudgetExceeded):
            ledger.charge(PureDP(epsilon=epsilon))
        done.append(epsilon)

    outcomes_of(
        [lambda: charge(0.1), lambda: charge(9), lambda: charge(0.1), lambda: charge(0.2)], ledger, watch
    )
    assert reached.is_set()
    assert len(done) == 4
    return early


def test_nobody_is_let_go_before_the_commit(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        assert returned_before_the_commit(ledger) == 0
        ledger.check()


def test_a_twin_that_lets_go_early_is_caught(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def lead(self: BatchExecutor[Any, Any], own: _Entry[Any, Any]) -> None:
        def take() -> list[Any]:
            batch.extend(self._join(own))
            return [item for entry in batch for item in entry.items]

        def release(results: Any) -> Any:
            for entry in batch:
                entry.results, results = results[: len(entry.items)], results[len(entry.items) :]
            for other in batch[1:]:
                other.gate.release()

        batch = [own]
        store: Any = ledger._store
        with store._write_transaction() as transaction:
            release(transaction.execute_all(take()))
        self._hand_over()

    monkeypatch.setattr(BatchExecutor, "_lead", lead)
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        assert returned_before_the_commit(ledger) > 0


def failing(ledger: Ledger) -> Callable[[], None]:
    """Return what the database raises where it cannot commit."""

    def fail() -> None:
        if "://" in ledger.url:
            import psycopg

            raise psycopg.OperationalError("could not write to the log")
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR
        raise error

    return fail


def test_where_the_commit_fails_everybody_in_it_is_told_and_nothing_stands(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        head = ledger.head
        watch = Watch(ledger)
        fail = failing(ledger)

        def second() -> None:
            if watch.commits == 1:
                watch.commits += 1
                fail()

        watch.before_commit = second
        found = outcomes_of(
            [
                lambda: ledger.charge(PureDP(epsilon=1)),
                lambda: ledger.charge(TENTH),  # refused because of a charge that then does not stand
                lambda: ledger.charge(TENTH, owner="ann"),
            ],
            ledger,
            watch,
        )
        assert [type(one) for one in found] == [LedgerUnavailable] * 3
        assert len({id(one) for one in found}) == 3  # an exception belongs to one thread
        assert ledger.head == head
        ledger.charge(PureDP(epsilon=1))
        ledger.check()


def test_a_database_that_fails_under_one_piece_takes_the_others_with_it(place: str) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:

        def broken(transaction: Transaction) -> None:
            transaction.execute("INSERT INTO answers (key, answer) VALUES ('a', ?)", None)

        found = outcomes_of(
            [lambda: ledger.charge(TENTH), lambda: ledger._store.write(broken), lambda: ledger.charge(TENTH)],
            ledger,
            Watch(ledger),
        )
        assert all(isinstance(one, LedgerError) for one in found)
        assert ledger.spent().charges == 0
        ledger.charge(TENTH)
        ledger.check()


def test_whoever_is_led_by_a_thread_that_is_stopped_is_told_and_the_line_goes_on(place: str) -> None:
    def stopped(transaction: Transaction) -> None:
        raise KeyboardInterrupt

    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        found = outcomes_of(
            [lambda: ledger._store.write(stopped), lambda: ledger.charge(TENTH)], ledger, Watch(ledger)
        )
        assert isinstance(found[0], KeyboardInterrupt)
        assert isinstance(found[1], LedgerUnavailable)
        assert ledger.spent().charges == 0
        ledger.charge(TENTH)
        ledger.check()


class Interrupted:
    """A gate at which the thread that waits is interrupted."""

    def __init__(self) -> None:
        self.opened = False

    def acquire(self, *, timeout: float = -1) -> bool:
        raise KeyboardInterrupt

    def release(self) -> None:
        self.opened = True


def idle() -> BatchExecutor[Any, Any]:
    return BatchExecutor(lambda take: take(), failure=lambda error: RuntimeError(str(error)))


@pytest.mark.parametrize("state", ["waiting", "leading", "taken"])
def test_a_thread_that_is_interrupted_while_it_waits_blocks_nobody(state: str) -> None:
    executor = idle()
    executor._busy = True
    entry: _Entry[Any, Any] = _Entry(True)
    other: _Entry[Any, Any] = _Entry(True)
    gate: Any = Interrupted()
    entry.gate, entry.leads = gate, state == "leading"
    executor._waiting.extend([entry, other] if state == "waiting" else [other])
    with pytest.raises(KeyboardInterrupt):
        executor._wait(entry, 1.0)
    assert list(executor._waiting) == ([] if state == "leading" else [other])
    assert other.leads == (state == "leading")


def test_a_thread_whose_turn_comes_as_its_patience_ends_still_takes_it() -> None:
    executor = idle()
    for leads in (True, False):
        entry: _Entry[Any, Any] = _Entry(True)
        entry.leads = leads
        threading.Timer(0.05, entry.gate.release).start()
        executor._wait(entry, 0.0)
    entry = _Entry(True)
    executor._waiting.append(entry)
    with pytest.raises(TimeoutError):
        executor._wait(entry, 0.0)
    assert not executor._waiting


def test_where_the_book_cannot_be_held_everybody_who_waits_is_told(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path, timeout=0.3) as ledger:
        store: Any = ledger._store
        found: list[object] = []

        def charge() -> None:
            try:
                found.append(ledger.charge(TENTH))
            except LedgerError as error:
                found.append(error)

        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            threads = [threading.Thread(target=charge) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(30)
        assert [type(one) for one in found] == [LedgerUnavailable] * 4
        assert not store._pool.writers._busy
        assert ledger.spent().charges == 0
        ledger.charge(TENTH)
        ledger.check()


# The executor alone.


def waiting(executor: BatchExecutor[Any, Any], number: int) -> None:
    end = time.monotonic() + 300
    while len(executor._waiting) < number:
        assert time.monotonic() < end
        time.sleep(0.001)


def submitted(executor: BatchExecutor[Any, Any], first: list[Any], others: list[list[Any]]) -> list[Any]:
    """Submit lists of items in threads, the others one after the other while the first is executed."""
    results: list[Any] = [None] * (1 + len(others))

    def run(number: int, items: list[Any]) -> None:
        results[number] = executor.submit(items)

    threads = [threading.Thread(target=run, args=(i, items)) for i, items in enumerate([first, *others])]
    threads[0].start()
    assert executor._work.entered.wait(300)  # type: ignore[attr-defined]
    for number, thread in enumerate(threads[1:]):
        thread.start()
        waiting(executor, number + 1)
    executor._work.go_on.set()  # type: ignore[attr-defined]
    for thread in threads:
        thread.join(300)
    return results


class Doubling:
    """Work that doubles items, remembers its batches, and stops in the first until it may go on."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.entered, self.go_on = threading.Event(), threading.Event()

    def __call__(self, take: Callable[[], list[Any]]) -> list[Any]:
        items = take()
        self.batches.append(items)
        self.entered.set()
        assert self.go_on.wait(300)
        return [2 * item for item in items]


def executor_of(work: Any, **options: Any) -> BatchExecutor[Any, Any]:
    return BatchExecutor(work, failure=lambda error: RuntimeError(str(error)), **options)


def test_items_of_one_key_share_a_batch_and_keyless_ones_are_alone() -> None:
    work = Doubling()
    executor = executor_of(work, group=lambda item: None if item > 90 else item % 2)
    assert submitted(executor, [1], [[3, 2], [91], [4, 92, 5]]) == [[2], [6, 4], [182], [8, 184, 10]]
    assert sorted(item for batch in work.batches for item in batch) == [1, 2, 3, 4, 5, 91, 92]
    for batch in work.batches:
        assert len({item % 2 for item in batch}) == 1
        assert len(batch) == 1 or max(batch) <= 90


def test_a_batch_is_no_heavier_than_its_limit_unless_one_item_is() -> None:
    work = Doubling()
    executor = executor_of(work, weight=lambda item: item, limit=5)
    results = submitted(executor, [1], [[2], [2], [3], [9], [2, 2, 2]])
    assert results == [[2], [4], [4], [6], [18], [4, 4, 4]]
    assert work.batches == [[1], [2, 2], [3], [9], [2, 2], [2]]


def test_items_that_come_before_take_is_called_join_the_batch() -> None:
    entered, locked = threading.Event(), threading.Event()
    batches: list[list[int]] = []

    def work(take: Callable[[], list[int]]) -> list[int]:
        entered.set()
        assert locked.wait(300)
        batches.append(take())
        return batches[-1]

    executor = executor_of(work)
    threads = [threading.Thread(target=executor.submit, args=([i],)) for i in range(4)]
    threads[0].start()
    assert entered.wait(300)
    for number, thread in enumerate(threads[1:]):
        thread.start()
        waiting(executor, number + 1)
    locked.set()
    for thread in threads:
        thread.join(300)
    assert batches == [[0, 1, 2, 3]]


def test_no_items_need_no_batch() -> None:
    work = Doubling()
    assert executor_of(work).submit([]) == []
    assert not work.batches


# Query tasks.


class Desk:
    """Doubles what it is given, refuses what is negative, and remembers."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def double(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.asked.append(list(numbers))
        return [ValueError(f"{number}") if number < 0 else 2 * number for number in numbers]


def doubled(desk: Desk, number: int, times: int) -> QueryTask[Any]:
    for _ in range(times):
        number = yield Step(desk.double, number)
    return number


def outcomes(flows: Sequence[QueryTask[Any]]) -> list[Any]:
    found: dict[int, Any] = {}
    run_batch(flows, lambda ended: found.update(ended))
    return [found[i] for i in range(len(flows))]


def test_one_flow_gets_what_it_wishes_for_and_returns() -> None:
    desk = Desk()
    assert run_one(doubled(desk, 3, 4)) == 48
    assert desk.asked == [[3], [6], [12], [24]]


def test_a_refusal_is_raised_where_the_flow_stands_and_may_be_handled_there() -> None:
    def careful(desk: Desk) -> QueryTask[Any]:
        try:
            yield Step(desk.double, -1)
        except ValueError:
            return (yield Step(desk.double, 1))
        return 0

    assert run_one(careful(Desk())) == 2
    with pytest.raises(ValueError, match="-1"):
        run_one(doubled(Desk(), -1, 2))


def test_flows_at_the_same_desk_are_served_at_once() -> None:
    desk = Desk()
    assert outcomes([doubled(desk, i, 2) for i in range(50)]) == [4 * i for i in range(50)]
    assert [len(asked) for asked in desk.asked] == [50, 50]


def test_a_refusal_ends_the_flow_that_it_belongs_to_and_no_other() -> None:
    found = outcomes([doubled(Desk(), number, 2) for number in (1, 2)])
    assert found == [4, 8]
    desk = Desk()
    first, second, third = outcomes([doubled(desk, number, 2) for number in (1, -2, 3)])
    assert (first, third) == (4, 12)
    assert isinstance(second, ValueError)
    assert desk.asked == [[1, -2, 3], [2, 6]]


def test_whoever_has_ended_is_told_before_the_others_are_served_again() -> None:
    events: list[Any] = []

    class Loud(Desk):
        def double(self, numbers: Sequence[int]) -> list[int | Exception]:
            events.append(list(numbers))
            return super().double(numbers)

    desk = Loud()
    run_batch(
        [doubled(desk, 1, 1), doubled(desk, 5, 3), doubled(desk, -1, 2)],
        lambda ended: events.append(dict(ended)),
    )
    assert events[0] == [1, 5, -1]
    assert set(events[1]) == {0, 2}
    assert events[2:] == [[10], [20], {1: 40}]


def test_where_a_desk_fails_everybody_at_it_has_an_error_of_their_own() -> None:
    def broken(numbers: Sequence[int]) -> list[int]:
        raise LedgerUnavailable("the disk is full")

    def asking() -> QueryTask[Any]:
        return (yield Step(broken, 1))

    desk = Desk()
    found = outcomes([asking(), doubled(desk, 1, 1), asking()])
    assert found[1] == 2
    assert [str(found[0]), str(found[2])] == ["the disk is full"] * 2
    assert found[0] is not found[2]


def test_a_desk_that_forgets_somebody_is_caught() -> None:
    desk = Desk()
    forgetful: Any = lambda numbers: desk.double(numbers)[1:]  # noqa: E731

    def asking(number: int) -> QueryTask[Any]:
        return (yield Step(forgetful, number))

    with pytest.raises(ValueError, match="argument"):
        outcomes([asking(1), asking(2)])


# Questions.


class Counted(Ledger):
    """Remembers how many pieces of work each transaction was given."""

    def execute(self, operations: Any) -> Any:
        self.__dict__.setdefault("groups", []).append(len(operations))
        return super().execute(operations)


def test_questions_together_are_what_they_are_alone_in_two_transactions_and_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Counted.open(":memory:")
    with Database(ROWS, schema=people_schema(), ledger=ledger) as db:
        widths: list[int] = []
        aggregate = db._engine.aggregate

        def noted(expressions: Any) -> Any:
            widths.append(len(expressions))
            return aggregate(expressions)

        monkeypatch.setattr(db._engine, "aggregate", noted)
        leasts = range(20, 60)
        found: list[Answer] = outcomes(
            [db.ask_task(Sums(f"age > {least}"), privacy=NEARLY_EXACT, owner=f"a{least}") for least in leasts]
        )
        for least, answer in zip(leasts, found, strict=True):
            assert answer.value == pytest.approx([int((ROWS["age"] > least).sum())], abs=1e-3)
            assert answer.receipt.owner == f"a{least}"
        assert ledger.__dict__["groups"] == [40, 40]
        assert widths == [40]
        again = db.ask(Sums("age > 30"), privacy=NEARLY_EXACT, owner="a30")
        assert again.cached
        assert again.value == found[10].value
        ledger.check()


def test_a_budget_for_some_of_those_who_ask_together_answers_these_and_refuses_the_others() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1))
    with Database(ROWS, schema=people_schema(), ledger=ledger) as db:
        asks = [db.ask_task(Sums(f"age > {20 + i}"), privacy=GaussianDP(mu=0.5)) for i in range(7)]
        found = outcomes(asks)
    # Four of mu = 1/2 come to one of mu = 1.
    assert [isinstance(one, BudgetExceeded) for one in found] == [False] * 4 + [True] * 3
    assert ledger.spent().charges == 4
    ledger.check()


def test_the_same_question_twice_in_one_batch_is_charged_once_and_answered_alike() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1))
    with Database(ROWS, schema=people_schema(), ledger=ledger) as db:
        asks = [db.ask_task(Sums("age > 40"), privacy=GaussianDP(mu=0.5), owner=owner) for owner in "aab"]
        first, second, other = outcomes(asks)
    assert first.value == second.value == other.value
    assert first.receipt == second.receipt != other.receipt
    assert ledger.spent().charges == 1
    assert ledger.spent("a").charges == ledger.spent("b").charges == 1
    ledger.check()


def test_a_pass_that_fails_for_one_is_made_again_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    with Database(ROWS, schema=people_schema()) as db:
        aggregate = db._engine.aggregate

        def fussy(expressions: Any) -> Any:
            if any("'60.0'" in tree.sql() for tree in expressions):
                raise EngineFailed
            return aggregate(expressions)

        monkeypatch.setattr(db._engine, "aggregate", fussy)
        found = outcomes(
            [db.ask_task(Sums(f"age > {least}"), privacy=NEARLY_EXACT) for least in (30, 77, 50)]
        )
        assert isinstance(found[1], EngineFailed)
        for least, answer in ((30, found[0]), (50, found[2])):
            assert answer.value == pytest.approx([int((ROWS["age"] > least).sum())], abs=1e-3)
        assert db.ledger.spent().charges == 3


@pytest.mark.parametrize(
    "error",
    [
        TableChanged(),
        EngineFailed(),
        ExpressionRefused("a join", "Ask about one table."),
        DataError("age must be a number", column="age", line=3),
        BudgetExceeded("too much", asked=2.0, left=1.0, limit=1.0, currency="rho", scope="total"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("copied", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
def test_an_error_that_several_are_told_says_the_same_to_each(error: Exception, copied: Any) -> None:
    other = copied(error)
    assert other is not error
    assert (type(other), str(other), other.__dict__) == (type(error), str(error), error.__dict__)
