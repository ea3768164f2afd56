"""Threads that share one durable transaction: nobody is let go early, nobody pays for a neighbor."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import BudgetExceeded, LedgerError, LedgerTampered, LedgerUnavailable
from discreet.ledger import Ledger
from discreet.ledger.line import Line, _do, _Piece, _State
from discreet.ledger.transaction import Session
from discreet.privacy.promises import PureDP

if TYPE_CHECKING:
    from pathlib import Path

TENTH = PureDP(epsilon=0.1)
Work = Callable[[], object]


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "crowd.ledger")
    return f"{request.getfixturevalue('postgres_url')}#crowd"


class Watch:
    """Stands between the work of a transaction and its commit."""

    def __init__(self, ledger: Ledger) -> None:
        store: Any = ledger._store
        self.line: Line = store._pool.line
        self.commits = 0
        self.before_commit: Callable[[], None] = lambda: None
        self._real: Callable[[], AbstractContextManager[Session]] = store._writing
        store._writing = self._writing

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Session]:
        with self._real() as session:
            yield session
            self.before_commit()
            self.commits += 1

    def waiting(self, number: int) -> None:
        """Return once so many threads wait."""
        deadline = time.monotonic() + 300
        while len(self.line._waiting) < number:
            assert time.monotonic() < deadline
            time.sleep(0.001)


def outcomes(works: list[Work], ledger: Ledger, watch: Watch) -> list[object]:
    """Do pieces of work in threads that come while the book is held, and so share the next transaction."""
    found: list[object] = [None] * len(works)

    def run(i: int) -> None:
        try:
            found[i] = works[i]()
        except BaseException as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]

    def hold(session: Session) -> None:
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
        found = outcomes([lambda: ledger.charge(TENTH, owner="ann")] * 8, ledger, watch)
        assert watch.commits == 2  # of the one who held the book, and of the eight
        assert ledger.history() == found
        assert ledger.spent().charges == ledger.spent("ann").charges == 8
        ledger.check()


def a_crowd_with_refusals(ledger: Ledger) -> list[object]:
    ledger.set_owner_limit("poor", PureDP(epsilon=0.05))

    def nonsense() -> object:
        def work(session: Session) -> None:
            session.append("now", "{}")
            raise ZeroDivisionError

        return ledger._store.write(work)

    return outcomes(
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
    monkeypatch.setattr(Session, "attempt", lambda self, work: work(self))
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

    outcomes(
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
    def lead(self: Line, own: _Piece, transaction: Callable[[], AbstractContextManager[Session]]) -> None:
        with transaction() as session:
            group = [own, *self._taken()]
            _do(session, group)
            for other in group[1:]:
                other.gate.release()
        self._pass_on()

    monkeypatch.setattr(Line, "_lead", lead)
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
        found = outcomes(
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

        def broken(session: Session) -> None:
            session.execute("INSERT INTO answers (key, answer) VALUES ('a', ?)", None)

        found = outcomes(
            [lambda: ledger.charge(TENTH), lambda: ledger._store.write(broken), lambda: ledger.charge(TENTH)],
            ledger,
            Watch(ledger),
        )
        assert all(isinstance(one, LedgerError) for one in found)
        assert ledger.spent().charges == 0
        ledger.charge(TENTH)
        ledger.check()


def test_whoever_is_led_by_a_thread_that_is_stopped_is_told_and_the_line_goes_on(place: str) -> None:
    def stopped(session: Session) -> None:
        raise KeyboardInterrupt

    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        found = outcomes(
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


@pytest.mark.parametrize("state", list(_State))
def test_a_thread_that_is_interrupted_while_it_waits_blocks_nobody(state: _State) -> None:
    line = Line()
    line._led = True
    piece, other = _Piece([]), _Piece([])
    gate: Any = Interrupted()
    piece.gate, piece.state = gate, state
    line._waiting.extend([piece, other] if state is _State.WAITING else [other])
    with pytest.raises(KeyboardInterrupt):
        line._wait(piece, 1.0)
    assert list(line._waiting) == ([] if state is _State.LEADING else [other])
    assert (other.state is _State.LEADING) == (state is _State.LEADING)


def test_a_thread_whose_turn_comes_as_its_patience_ends_still_takes_it() -> None:
    line = Line()
    for state in (_State.LEADING, _State.TAKEN):
        piece = _Piece([])
        piece.state = state
        threading.Timer(0.05, piece.gate.release).start()
        line._wait(piece, 0.0)
    piece = _Piece([])
    line._waiting.append(piece)
    with pytest.raises(TimeoutError):
        line._wait(piece, 0.0)
    assert not line._waiting


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
        assert not store._pool.line._led
        assert ledger.spent().charges == 0
        ledger.charge(TENTH)
        ledger.check()
