"""What a transaction has yet to write: seen by whoever shares it, undone with its piece, written together."""

from __future__ import annotations

import contextlib
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import BudgetExceeded, LedgerError
from discreet.ledger import Ledger
from discreet.ledger.transaction import ReadSet
from discreet.privacy.promises import PureDP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from discreet.ledger.transaction import Transaction
    from discreet.privacy.receipt import Receipt

SMALL = PureDP(epsilon=0.001)


@pytest.fixture(params=["memory", "file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return ":memory:"
    if request.param == "file":
        return str(tmp_path / "survey.ledger")
    return f"{request.getfixturevalue('postgres_url')}#survey"


def bodies(ledger: Ledger) -> list[str]:
    with ledger._store.read() as transaction:
        return [row.body for row in transaction.record(after=1)]


def charges(ledger: Ledger, count: int) -> list[Any]:
    return [
        ledger.prepare_charge(
            SMALL, owner=f"a{i % 5}", what="count", question=f"q{i % 7}", request=f"k{i % 9}"
        )
        for i in range(count)
    ]


def test_charges_together_write_what_they_write_one_by_one(place: str, tmp_path: Path) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger, Ledger.open(tmp_path / "alone") as alone:
        outcomes = ledger.execute(charges(ledger, 40))
        for work in charges(alone, 40):
            alone.execute([work])
        assert bodies(ledger) == bodies(alone)
        assert not [one for one in outcomes if isinstance(one, Exception)]
        kept = ledger.execute([ledger.prepare_answer(one, b"7") for one in ledger.history()])
        assert kept == [b"7"] * len(ledger.history())
        ledger.check()


def statements(path: Path, count: int) -> int:
    """Return how many statements a transaction of so many charges and as many answers takes."""
    with Ledger.open(path, limit=PureDP(epsilon=1)) as ledger:
        ledger.charge(SMALL)  # opens the connection
        store: Any = ledger._store
        (used,) = store._pool._current_process().idle
        seen: list[str] = []
        used.connection.set_trace_callback(seen.append)
        works = [ledger.prepare_charge(SMALL, owner=f"a{i}", question=f"q{i}") for i in range(count)]
        receipts: Any = ledger.execute(works)
        ledger.execute([ledger.prepare_answer(receipt, b"1") for receipt in receipts])
        used.connection.set_trace_callback(None)
        ledger.check()
    return len([text for text in seen if not text.startswith("INSERT")])


def test_many_who_share_a_transaction_send_no_more_questions_than_two(tmp_path: Path) -> None:
    assert statements(tmp_path / "few", 2) == statements(tmp_path / "many", 60)


def undone(transaction: Transaction) -> None:
    """Write into every table, and change one's mind."""
    transaction.put_total("total", None, "nothing")
    transaction.put_paid("q", "bob", 77)
    transaction.put_answer("row:2", b"wrong")
    transaction.put_mark("m", 77)
    transaction.append("now", "{}")
    raise ZeroDivisionError


class Drafted:
    """Work that says what it read_set, and so is undone without the database."""

    def __init__(self, work: Callable[[Transaction], Any]) -> None:
        self._work = work
        self.read_set = ReadSet(scopes=("total",), questions=("q",), answers=("row:2",), marks=("m",))

    def __call__(self, transaction: Transaction) -> Any:
        return self._work(transaction)


@pytest.mark.parametrize("wrap", [Drafted, lambda work: work], ids=["drafted", "apart"])
def test_a_piece_that_fails_leaves_nothing_of_what_it_wrote(place: str, wrap: Any) -> None:
    def seen(transaction: Transaction) -> tuple[Any, ...]:
        return (
            transaction.total("total"),
            transaction.paid("q"),
            transaction.answer("row:2"),
            transaction.mark("m"),
            transaction.head(),
        )

    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        ledger.charge(SMALL, question="q", owner="ann", request="k")
        before = ledger._store.write(Drafted(seen))
        first, failed, second, charged = ledger._store.write_all(
            [
                Drafted(seen),
                wrap(undone),
                Drafted(seen),
                ledger.prepare_charge(SMALL, owner="bob", question="q"),
            ]
        )
        assert first == second == before
        assert isinstance(failed, ZeroDivisionError)
        assert not isinstance(charged, Exception)
        assert charged.owner == "bob"
        ledger.check()


def test_a_twin_that_forgets_to_undo_one_table_is_caught(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.ledger import transaction as module

    monkeypatch.setattr(module._TableBuffer, "undo", lambda self: None)
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        ledger.charge(SMALL, question="q", owner="ann")
        outcomes: list[Any] = []
        with contextlib.suppress(LedgerError):
            outcomes = ledger._store.write_all([Drafted(undone), ledger.prepare_charge(SMALL)])
        # Either nobody can go on, or what was to be undone is in the ledger.
        assert not outcomes or isinstance(outcomes[1], LedgerError)


def test_what_is_read_is_not_all_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.ledger import transaction as module

    monkeypatch.setattr(module, "_MOST_KNOWN", 10)
    with Ledger.open(tmp_path / "survey.ledger") as ledger:
        receipts: Any = ledger.execute([ledger.prepare_charge(SMALL, question=f"q{i}") for i in range(50)])
        ledger.execute([ledger.prepare_answer(receipt, b"1") for receipt in receipts])
        with ledger._store.read() as transaction:
            for receipt in receipts:
                assert transaction.answer(f"question:{receipt.question}") == b"1"
                assert len(transaction._answers.known) <= 11
        ledger.check()


def test_a_receipt_says_what_its_charge_left(place: str) -> None:
    def left(receipt: Receipt) -> tuple[float, ...]:
        assert receipt.accounts is not None
        return tuple(account.left["epsilon"] for account in receipt.accounts if account.left is not None)

    with Ledger.open(place, limit=PureDP(epsilon=1), owner_limit=PureDP(epsilon=0.5)) as ledger:
        first = ledger.charge(PureDP(epsilon=0.25), owner="ann", question="q")
        assert left(first) == (0.25, 0.75)
        assert left(ledger.charge(PureDP(epsilon=0.25), owner="bob", question="q")) == (0.25, 0.75)
        again = ledger.charge(PureDP(epsilon=0.25), owner="ann", question="q")
        assert again.accounts == tuple(ledger.accounts("ann", None))
        with pytest.raises(BudgetExceeded):
            ledger.charge(PureDP(epsilon=0.3), owner="ann")
        assert left(ledger.charge(PureDP(epsilon=0.125))) == (0.625, 0.625)
        (read, *_) = ledger.history()
        assert read.accounts is None
        assert read == first
        assert "accounts" not in first.to_dict()


def test_rows_that_wait_are_part_of_what_is_looked_up(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path) as ledger:

        def look(transaction: Transaction) -> Any:
            row = transaction.append("now", '{"type":"bind","dataset":"x"}')
            found = transaction.row(row.seq)
            with closing(sqlite3.connect(path)) as other:
                ((outside,),) = other.execute(
                    "SELECT count(*) FROM record WHERE seq = ?", (row.seq,)
                ).fetchall()
            raise LookupError(found == row, outside)

        with pytest.raises(LookupError) as told:
            ledger._store.write(look)
        assert told.value.args == (True, 0)
        assert ledger.head[0] == 1


@pytest.mark.parametrize("own", [0.25, 0.75])
def test_a_refusal_names_whoever_has_least_left(place: str, own: float) -> None:
    with Ledger.open(place, limit=PureDP(epsilon=1), owner_limit=PureDP(epsilon=own)) as ledger:
        ledger.charge(PureDP(epsilon=0.5))
        with pytest.raises(BudgetExceeded) as refused:
            ledger.charge(PureDP(epsilon=2), owner="ann")
        scope = "ann" if own < 0.5 else "total"
        assert (refused.value.scope, refused.value.left) == (scope, min(own, 0.5))
        ledger.charge(PureDP(epsilon=min(own, 0.5)), owner="ann")
        ledger.check()
