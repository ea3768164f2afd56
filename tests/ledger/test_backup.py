"""A backup is whole, and putting it back never gives spent budget back."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import (
    BudgetExceeded,
    DiscreetWarning,
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    NotALedger,
    ParameterError,
)
from discreet.ledger import Ledger, backup
from discreet.privacy.promises import PureDP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.ledger.transaction import Transaction

TENTH = PureDP(epsilon=0.1)
LIMIT = PureDP(epsilon=1)


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    (tmp_path / "live").mkdir()
    if request.param == "file":
        return str(tmp_path / "live" / "survey.ledger")
    return f"{request.getfixturevalue('postgres_url')}#survey"


@pytest.fixture
def ledger(place: str) -> Iterator[Ledger]:
    """A ledger with every kind of row."""
    with Ledger.open(place, limit=LIMIT, owner_limit=PureDP(epsilon=0.5)) as ledger:
        ledger.bind("survey")
        ledger.set_owner_limit("bob", PureDP(epsilon=0.3))
        first = ledger.charge(TENTH, owner="ann", question="q", asked={"said": "how many?"}, request="k")
        ledger.store(first, b"41.5")
        ledger.charge(TENTH, owner="bob", question="q")
        ledger.charge(TENTH, owner="ann", question="q", request="k2")
        ledger.store(ledger.charge(TENTH, owner="ann"), bytes(range(256)))
        ledger.secret()
        yield ledger


def state(ledger: Ledger) -> tuple[Any, ...]:
    """Everything that a ledger knows."""
    ledger.check()
    with ledger._store.read() as transaction:
        tables = [
            sorted(transaction.totals().items()),
            sorted(transaction.marks().items()),
            list(transaction.record()),
        ]
    return ledger.identity, ledger.head, ledger.entries(), ledger.owners(), ledger.secret(), tables


def gone(place: str) -> None:
    """Lose a ledger: its disk, its key and all."""
    if "://" not in place:
        for path in Path(place).parent.glob("survey.ledger*"):
            path.unlink()
        return
    import psycopg

    with psycopg.connect(place.partition("#")[0]) as connection:
        connection.execute("DROP SCHEMA discreet_survey CASCADE")


def test_a_backup_is_the_ledger_itself_in_one_private_file(ledger: Ledger, tmp_path: Path) -> None:
    made = tmp_path / "copy"
    assert ledger.backup(made) == ledger.head
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "copy.version-key", "live"]
    for path in (made, tmp_path / "copy.version-key"):
        assert path.stat().st_mode & 0o777 == 0o600
    with Ledger.open(made) as copy:
        assert state(copy) == state(ledger)
        # the answer, the key and the limit go on as they were
        assert copy.charge(TENTH, owner="ann", question="q").answer == b"41.5"
        with pytest.raises(LedgerError, match="payroll"):
            copy.bind("payroll")
        with pytest.raises(BudgetExceeded):
            copy.charge(PureDP(epsilon=0.21), owner="bob", question="new")


def test_a_ledger_that_is_gone_comes_back_as_it_was(ledger: Ledger, place: str, tmp_path: Path) -> None:
    before = state(ledger)
    head = ledger.backup(tmp_path / "copy")
    ledger.close()
    gone(place)
    with Ledger.restore(tmp_path / "copy", place, head=head) as restored:
        assert state(restored) == before
        restored.charge(TENTH, owner="ann")
        with pytest.raises(BudgetExceeded):
            restored.charge(LIMIT)
        restored.check()


def test_a_ledger_moves_from_one_kind_of_database_to_another(
    ledger: Ledger, place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    ledger.backup(tmp_path / "copy")
    other = str(tmp_path / "moved")
    if "://" not in place:
        other = f"{request.getfixturevalue('postgres_url')}#survey"
    with Ledger.restore(tmp_path / "copy", other) as moved:
        assert state(moved) == state(ledger)


def test_an_earlier_state_is_brought_up_to_the_backup(ledger: Ledger, place: str, tmp_path: Path) -> None:
    ledger.backup(tmp_path / "early")
    ledger.charge(TENTH, owner="eve", question="late", request="k3")
    ledger.store(ledger.charge(TENTH, owner="ann"), b"late")
    ledger.backup(tmp_path / "late")
    now = state(ledger)
    ledger.close()
    gone(place)
    Ledger.restore(tmp_path / "early", place).close()
    for _ in range(2):  # the second time there is nothing to add
        with Ledger.restore(tmp_path / "late", place) as restored:
            assert state(restored) == now


def test_going_back_is_refused_and_the_rows_are_named(ledger: Ledger, place: str, tmp_path: Path) -> None:
    rows, _ = ledger.backup(tmp_path / "copy")
    ledger.charge(TENTH)
    last = ledger.charge(TENTH)
    now = state(ledger)
    with pytest.raises(LedgerError, match=f"rows {rows + 1} to {rows + 2} of .* would be forgotten"):
        Ledger.restore(tmp_path / "copy", place)
    assert state(ledger) == now
    # the same where the ledger is gone and only its head is known
    head = ledger.head
    ledger.close()
    gone(place)
    with pytest.raises(LedgerError, match=f"rows {rows + 1} to {rows + 2} are not in it"):
        Ledger.restore(tmp_path / "copy", place, head=head)
    assert last.hash is not None
    with pytest.raises(LedgerError, match=f"row {rows} is another"):
        Ledger.restore(tmp_path / "copy", place, head=(rows, last.hash))


def test_a_record_that_went_two_ways_is_refused_from_where_they_part(
    ledger: Ledger, place: str, tmp_path: Path
) -> None:
    rows, _ = ledger.backup(tmp_path / "copy")
    with Ledger.open(tmp_path / "copy") as copy:
        for _ in range(3):
            copy.charge(TENTH, what="charged to the backup")
    ledger.charge(TENTH)
    now = state(ledger)
    with pytest.raises(LedgerError, match=f"rows {rows + 1} to {rows + 1} of .* are not in the backup"):
        Ledger.restore(tmp_path / "copy", place)
    assert state(ledger) == now


def test_a_twin_that_does_not_look_for_what_would_be_forgotten_is_caught_by_the_check(
    ledger: Ledger, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "_check_earlier", lambda *_: None)
    rows, _ = ledger.backup(tmp_path / "copy")
    ledger.charge(TENTH)
    # the totals of the backup would say less than the record of the ledger: the check says so
    with pytest.raises(LedgerTampered):
        Ledger.restore(tmp_path / "copy", place)
    assert ledger.head[0] == rows + 1
    ledger.check()


def test_another_ledger_is_never_written_over(ledger: Ledger, place: str, tmp_path: Path) -> None:
    ledger.backup(tmp_path / "copy")
    with Ledger.open(tmp_path / "other") as other:
        other.charge(TENTH)
        with pytest.raises(LedgerError, match="another ledger: its rows 1 to 2 would be forgotten"):
            Ledger.restore(tmp_path / "copy", tmp_path / "other")
        assert other.head[0] == 2
        other.check()
    (tmp_path / "table.csv").write_text("age\n")
    with pytest.raises(NotALedger):
        Ledger.restore(tmp_path / "copy", tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == "age\n"


def test_a_refused_restore_leaves_no_journal_open(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with Ledger.open(tmp_path / name) as made:
            made.charge(TENTH)
    with Ledger.open(tmp_path / "one") as made:
        made.backup(tmp_path / "copy")
    before = sorted(tmp_path.iterdir())
    # The error keeps the frames alive, and with them connections that wait for the garbage collector.
    with pytest.raises(LedgerError, match="another ledger") as refusal:
        Ledger.restore(tmp_path / "copy", tmp_path / "other")
    assert sorted(tmp_path.iterdir()) == before, refusal


def test_a_backup_never_writes_over_anything(ledger: Ledger, tmp_path: Path) -> None:
    ledger.backup(tmp_path / "copy")
    old = (tmp_path / "copy").read_bytes()
    ledger.charge(TENTH)
    with pytest.raises(LedgerError, match="must be a file that does not exist yet"):
        ledger.backup(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == old
    (tmp_path / "b.version-key").write_bytes(b"another ledger's".ljust(32))
    with pytest.raises(LedgerError, match="key beside"):
        ledger.backup(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(LedgerUnavailable):
        ledger.backup(tmp_path / "nowhere" / "copy")


def test_a_damaged_ledger_gives_no_backup_and_a_damaged_backup_is_not_put_back(
    ledger: Ledger, place: str, tmp_path: Path
) -> None:
    ledger.backup(tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as file, file:
        file.execute("UPDATE totals SET spent = replace(spent, '0.2', '0.1')")
    with pytest.raises(LedgerTampered, match=r"backup of Ledger\.restore must be intact"):
        Ledger.restore(tmp_path / "copy", tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with Ledger.open(tmp_path / "copy") as damaged, pytest.raises(LedgerTampered, match="total"):
        damaged.backup(tmp_path / "again")
    assert not list(tmp_path.glob("*again"))
    with pytest.raises(LedgerError, match="there is none"):
        Ledger.restore(tmp_path / "nothing", place)


def test_a_file_that_appears_meanwhile_is_not_written_over(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(transaction: Transaction) -> None:
        (tmp_path / "copy").write_text("somebody else's")

    monkeypatch.setattr(backup, "check_record", late)
    with pytest.raises(LedgerError, match="must be a file that does not exist yet"):
        ledger.backup(tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "somebody else's"


def test_a_ledger_that_lost_an_answer_gives_no_backup(ledger: Ledger, tmp_path: Path) -> None:
    ledger.backup(tmp_path / "copy")
    with closing(sqlite3.connect(tmp_path / "copy")) as file, file:
        file.execute("DELETE FROM answers WHERE key = 'question:q'")
    with Ledger.open(tmp_path / "copy") as damaged, pytest.raises(LedgerTampered, match="question:q"):
        damaged.backup(tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_ledger_in_memory_is_backed_up_and_never_put_back_there(tmp_path: Path) -> None:
    with Ledger.open(":memory:", limit=LIMIT) as ledger:
        ledger.charge(TENTH)
        ledger.backup(tmp_path / "copy")
        with Ledger.open(tmp_path / "copy") as copy:
            assert state(copy) == state(ledger)
    with pytest.raises(ParameterError, match="':memory:'"):
        Ledger.restore(tmp_path / "copy", ":memory:")


def test_a_backup_without_its_key_is_put_back_with_a_warning(ledger: Ledger, tmp_path: Path) -> None:
    ledger.backup(tmp_path / "copy")
    key = (tmp_path / "copy.version-key").read_bytes()
    (tmp_path / "copy.version-key").unlink()
    with pytest.warns(DiscreetWarning, match="charged again"):
        Ledger.restore(tmp_path / "copy", tmp_path / "new").close()
    assert not (tmp_path / "new.version-key").exists()
    (tmp_path / "copy.version-key").write_bytes(key)
    with Ledger.restore(tmp_path / "copy", tmp_path / "new") as restored:
        assert restored.secret() == ledger.secret() == key
    (tmp_path / "new.version-key").write_bytes(b"x" * 32)
    with pytest.raises(LedgerError, match="must be the backup's"):
        Ledger.restore(tmp_path / "copy", tmp_path / "new")


def test_a_backup_is_one_moment_while_others_charge(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The limit is out of reach: however long a backup takes, charging goes on.
    with Ledger.open(place, limit=PureDP(epsilon=1e12)) as ledger:
        stop = threading.Event()

        def charging(owner: str) -> None:
            while not stop.is_set():
                ledger.store(ledger.charge(TENTH, owner=owner), b"x")

        def copy_after_charge(*args: Any, **kwargs: Any) -> None:
            # Called once the backup has read its head: wait until there is a row after it.
            seen = ledger.head[0]
            while ledger.head[0] == seen and all(thread.is_alive() for thread in threads):
                time.sleep(0.001)
            copy_rows(*args, **kwargs)

        copy_rows = backup.copy_rows
        monkeypatch.setattr(backup, "copy_rows", copy_after_charge)
        threads = [threading.Thread(target=charging, args=(name,)) for name in "ab"]
        for thread in threads:
            thread.start()
        try:
            heads = [ledger.backup(tmp_path / f"{i}") for i in range(4)]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        rows = [seq for seq, _ in [*heads, ledger.head]]
        assert rows == sorted(set(rows))  # each backup was overtaken by charges
        for i, head in enumerate(heads):
            ledger.confirm(*head)
            with Ledger.open(tmp_path / f"{i}") as copy:
                copy.check()
                assert copy.head == head


def test_a_first_charge_does_not_wait_for_a_backup(tmp_path: Path) -> None:
    path = str(tmp_path / "ledger")
    Ledger.open(path).close()
    with Ledger.open(path) as ledger, backup.snapshot(ledger) as state:
        for _ in range(2):  # each is a process that has not charged yet
            with Ledger.open(path, timeout=0.05) as other:
                other.charge(TENTH)
        assert state.back_up(str(tmp_path / "copy")) == state.head == (1, state.identity)
    with Ledger.open(path) as ledger:
        ledger.check()
        assert ledger.spent().charges == 2


def test_rows_that_a_backup_would_add_are_counted_and_other_rows_refused(tmp_path: Path) -> None:
    def missing(copy: str, place: str) -> int:
        return backup.count_missing_rows(tmp_path / copy, tmp_path / place)

    with Ledger.open(tmp_path / "ledger") as ledger:
        ledger.charge(TENTH)
        ledger.backup(tmp_path / "early")
        ledger.backup(tmp_path / "fork")
        ledger.charge(TENTH)
        ledger.backup(tmp_path / "late")
    with Ledger.open(tmp_path / "fork") as fork:
        fork.charge(TENTH, what="charged to the backup")
        fork.charge(TENTH)
    assert missing("late", "nowhere") == 3
    assert missing("late", "ledger") == 0
    assert missing("late", "early") == 1
    assert missing("early", "ledger") == -1
    with pytest.raises(LedgerError, match="from row 3 on"):
        missing("late", "fork")
    with pytest.raises(LedgerError, match=r"rows 3 to 3 of .* are not in the backup"):
        missing("fork", "ledger")
    Ledger.open(tmp_path / "another").close()
    with pytest.raises(LedgerError, match="another ledger"):
        missing("late", "another")


@pytest.mark.slow
@pytest.mark.parametrize("at", ["row", "total"])
def test_a_restore_that_is_killed_leaves_the_target_as_it_was(
    ledger: Ledger, place: str, tmp_path: Path, at: str
) -> None:
    ledger.backup(tmp_path / "early")
    ledger.charge(TENTH)
    ledger.backup(tmp_path / "late")
    ledger.close()
    gone(place)

    def killed(source: str) -> None:
        child = os.fork()
        if child == 0:
            try:
                from discreet.ledger.transaction import Transaction

                def die(*_: object) -> None:
                    os.kill(os.getpid(), 9)

                setattr(Transaction, "insert" if at == "row" else "put_total", die)
                Ledger.restore(tmp_path / source, place)
            finally:
                os._exit(0)  # never back into the tests
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status)

    killed("early")
    if "://" not in place:
        assert not Path(place).exists()
    with Ledger.restore(tmp_path / "early", place) as restored:
        early = state(restored)
    killed("late")
    with Ledger.open(place) as restored:
        assert state(restored) == early
