"""A ledger's main file that was copied without its journal shows; honest uses never alarm."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import signal
import sqlite3
import sys
import threading
import time
import traceback
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import LedgerTampered, LedgerUnavailable
from discreet.ledger import Ledger
from discreet.ledger import _connections as connections
from discreet.ledger import _sqlite as sqlite
from discreet.noise import Stream
from discreet.privacy.promises import PureDP

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TENTH = PureDP(epsilon=0.1)
WHOLE = PureDP(epsilon=1e6)


def forked(work: Callable[[], object]) -> int:
    """Do something in another process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def ended(child: int) -> int:
    """Wait for a process; return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def copied(path: Path, name: str = "copy.ledger") -> Path:
    """Copy the main file alone."""
    target = path.with_name(name)
    shutil.copyfile(path, target)
    return target


def test_a_main_file_copied_from_an_open_ledger_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path, limit=PureDP(epsilon=1)) as ledger:
        for _ in range(9):
            ledger.charge(TENTH)
        copy = copied(path)
        for _ in range(2):  # looking at it makes no journal, by which the second look would be misled
            with pytest.raises(LedgerTampered, match=r"journal copy.ledger-wal.*discreet ledger backup"):
                Ledger.open(copy)
        assert sorted(file.name for file in tmp_path.glob("copy*")) == ["copy.ledger"]
        ledger.check()
        assert ledger.remaining()["epsilon"] == pytest.approx(0.1)  # type: ignore[index]


def test_a_ledger_without_the_mark_would_not_notice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "require_open", lambda *_: None)
    path = tmp_path / "survey.ledger"
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
        with Ledger.open(copied(path)) as copy:
            copy.check()
            assert copy.spent().charges == 0


def test_the_journal_beside_a_copy_makes_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
        copy = copied(path)
        shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    with Ledger.open(copy) as again:
        again.check()
        assert again.spent().charges == 1


def test_a_closed_ledger_may_be_copied_and_moved(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    for n in range(3):
        with Ledger.open(path) as ledger:
            ledger.charge(TENTH)
        assert not (tmp_path / "survey.ledger-wal").exists()
        with Ledger.open(copied(path, f"copy{n}.ledger")) as copy:
            assert copy.spent().charges == n + 1
            copy.check()


def test_reading_leaves_a_closed_ledger_closed(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    Ledger.open(path).close()
    with Ledger.open(path) as ledger:
        ledger.check()
        Ledger.open(copied(path)).close()


@pytest.mark.slow
def test_a_killed_process_leaves_a_ledger_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"

    def charge_and_die() -> None:
        ledger = Ledger.open(path)
        for _ in range(5):
            ledger.charge(TENTH)
        os.kill(os.getpid(), signal.SIGKILL)

    assert ended(forked(charge_and_die)) == -signal.SIGKILL
    with pytest.raises(LedgerTampered):
        Ledger.open(copied(path))
    # Whoever only looks closes it properly as well.
    for _ in range(2):
        with Ledger.open(path) as ledger:
            ledger.check()
            assert ledger.spent().charges == 5
    with Ledger.open(copied(path)) as copy:
        assert copy.spent().charges == 5


@pytest.mark.slow
def test_a_process_that_forgets_to_close_alarms_nobody(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"

    def forget() -> None:
        Ledger.open(path).charge(TENTH)  # closed where it is collected

    assert ended(forked(forget)) == 0
    with Ledger.open(path) as ledger:
        assert ledger.spent().charges == 1


def test_a_ledger_moved_while_open_is_whole_once_it_was_closed(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    ledger = Ledger.open(path)
    ledger.charge(TENTH)
    moved = path.rename(tmp_path / "moved.ledger")
    ledger.close()
    with Ledger.open(moved) as there:
        assert there.spent().charges == 1


def test_a_process_that_keeps_another_from_closing_for_a_moment_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "survey.ledger"
    complete, attempts = connections.complete_file, []

    def busy_at_first(connect: Callable[[], sqlite3.Connection], *arguments: Any) -> bool:
        def connect_later() -> sqlite3.Connection:
            attempts.append(1)
            if len(attempts) < 3:
                raise sqlite3.OperationalError("database is locked")
            return connect()

        return complete(connect_later, *arguments)

    monkeypatch.setattr(connections, "complete_file", busy_at_first)
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
    assert len(attempts) == 3
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    with Ledger.open(copied(path)) as copy:
        assert copy.spent().charges == 1


def test_a_file_that_another_process_uses_keeps_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "survey.ledger"
    # To another connection as to a process that is killed afterwards.
    monkeypatch.setattr(connections, "complete_file", lambda *_: False)
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
    assert connections.journal_path(path).exists()
    with pytest.raises(LedgerTampered):
        Ledger.open(copied(path))
    monkeypatch.undo()
    with Ledger.open(path) as ledger:
        assert ledger.spent().charges == 1
    assert [file.name for file in tmp_path.iterdir() if "copy" not in file.name] == [path.name]


def test_without_its_guard_a_closed_connection_would_raise_a_false_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "survey.ledger"
    monkeypatch.setattr(connections, "complete_file", lambda *_: False)
    monkeypatch.setattr(connections, "_keep_journal", lambda _: contextlib.nullcontext(True))
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
    with pytest.raises(LedgerTampered):
        Ledger.open(path)


def test_a_mark_that_cannot_be_written_leaves_a_ledger_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "survey.ledger"

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
        monkeypatch.setattr(connections, "_write_mark", full)
    monkeypatch.undo()
    with Ledger.open(path) as again:
        again.check()
        assert again.spent().charges == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_connection_that_is_closed_without_room_for_another_file_leaves_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "survey.ledger"
    monkeypatch.setattr(connections, "complete_file", lambda *_: False)
    monkeypatch.setattr(connections, "_keep_journal", lambda _: contextlib.nullcontext(False))
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
    with Ledger.open(path) as ledger:
        assert ledger.spent().charges == 1


def test_a_ledger_that_is_opened_and_closed_all_the_time_is_never_seen_without_its_journal(
    tmp_path: Path,
) -> None:
    path = tmp_path / "survey.ledger"
    Ledger.open(path).close()
    ended, looks = threading.Event(), []

    def look() -> None:
        other = sqlite.SqliteFile(str(path), timeout=60)
        while not ended.is_set():
            looks.append(connections.lacks_journal(path, lambda: other._header()[1]))

    watcher = threading.Thread(target=look)
    watcher.start()
    for _ in range(50):
        with Ledger.open(path) as ledger:
            ledger.charge(TENTH)
    ended.set()
    watcher.join()
    assert looks
    assert not any(looks)


@pytest.mark.parametrize(
    ("marks", "journals", "lacks"),
    [
        ([0], [], False),
        ([1], [True], False),
        ([1, 1], [False, False], True),
        ([1, 2], [False], False),  # it was closed meanwhile
        ([1, 3, 3], [False, False, False], True),  # closed, opened, and then alone
        ([1, 3], [False, True], False),
        ([1, 3, 5, 7, 9, 11, 12], [False] * 6, False),  # opened and closed between any two looks
    ],
)
def test_only_a_generation_that_stays_without_a_journal_lacks_it(
    monkeypatch: pytest.MonkeyPatch, marks: list[int], journals: list[bool], lacks: bool
) -> None:
    generations, found = iter(marks), iter(journals)
    monkeypatch.setattr(connections, "journal_path", lambda _: SimpleNamespace(exists=lambda: next(found)))
    assert (
        connections.lacks_journal(pathlib.Path("survey.ledger"), lambda: next(generations) * 256 + 5) is lacks
    )
    assert not list(generations)


@pytest.mark.slow
def test_a_reader_that_is_killed_while_another_closes_leaves_a_ledger_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    Ledger.open(path).close()
    charged, reading = os.pipe(), os.pipe()

    def read_for_ever() -> None:
        os.read(charged[0], 1)
        store = sqlite.SqliteFile(str(path), timeout=60)
        with store.read() as transaction:
            transaction.head()
            os.write(reading[1], b".")
            signal.pause()

    reader = forked(read_for_ever)
    try:
        with Ledger.open(path) as ledger:
            for _ in range(5):
                ledger.charge(TENTH)
            os.write(charged[1], b".")
            os.read(reading[0], 1)
        assert connections.journal_path(path).exists()
    finally:
        os.kill(reader, signal.SIGKILL)
        assert ended(reader) == -signal.SIGKILL
    with Ledger.open(path) as opened:
        opened.check()
        assert opened.spent().charges == 5
    assert not connections.journal_path(path).exists()
    with Ledger.open(copied(path)) as copy:
        assert copy.spent().charges == 5


def test_a_file_that_changed_hands_is_not_marked_as_whole(tmp_path: Path) -> None:
    path, older = tmp_path / "survey.ledger", tmp_path / "older.ledger"
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
        ledger.charge(TENTH)
        copied(path, older.name)  # marked as open, without the last charges
        with contextlib.closing(sqlite3.connect(path)) as connection:
            last = connections.last_row(connection)
    with contextlib.closing(sqlite3.connect(older, isolation_level=None)) as connection:
        assert not connections.write_closed_mark(connection, last)
    with pytest.raises(LedgerTampered):
        Ledger.open(older)


@pytest.mark.slow
def test_parent_and_child_of_a_fork_charge_one_ledger_whichever_closes_first(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    charged, closed = os.pipe(), os.pipe()
    ledger = Ledger.open(path)
    ledger.charge(TENTH)

    def charge_before_and_after_the_parent_closes() -> None:
        ledger.charge(TENTH)
        os.write(charged[1], b".")
        os.read(closed[0], 1)
        for _ in range(3):
            ledger.charge(TENTH)
        ledger.close()

    child = forked(charge_before_and_after_the_parent_closes)
    os.read(charged[0], 1)
    ledger.close()
    os.write(closed[1], b".")
    assert ended(child) == 0
    with Ledger.open(path) as again:
        again.check()
        assert again.spent().charges == 5


@pytest.mark.slow
def test_without_closing_before_the_fork_charges_of_the_child_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_FORK_PATIENCE", 0.0)
    monkeypatch.setattr(connections.FilePool, "close", lambda _: None)
    path = tmp_path / "survey.ledger"
    ledger = Ledger.open(path)
    ledger.charge(TENTH)

    def charge_with_inherited_locks() -> None:
        with pytest.raises(LedgerUnavailable, match="while this process was forked"):
            ledger.charge(TENTH)

    assert ended(forked(charge_with_inherited_locks)) == 0
    monkeypatch.undo()
    ledger.close()
    with Ledger.open(path) as again:
        assert again.spent().charges == 1


@pytest.mark.slow
def test_a_child_does_not_use_what_was_open_in_the_thread_that_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_FORK_PATIENCE", 0.0)
    path = tmp_path / "survey.ledger"
    ledger = Ledger.open(path)
    ledger.charge(TENTH)
    with ledger._store.read():
        child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(LedgerUnavailable, match="while this process was forked"):
                ledger.charge(TENTH)
            code = 0
        finally:
            os._exit(code)
    assert ended(child) == 0
    ledger.charge(TENTH)
    ledger.close()
    with Ledger.open(path) as again:
        again.check()
        assert again.spent().charges == 2


@pytest.mark.slow
def test_a_child_refuses_a_ledger_that_was_being_created_when_it_was_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_FORK_PATIENCE", 0.0)
    path = tmp_path / "survey.ledger"
    filled, forked_now = threading.Event(), threading.Event()
    fill = sqlite._fill

    def fill_and_wait(*arguments: Any) -> None:
        fill(*arguments)
        filled.set()
        forked_now.wait()

    monkeypatch.setattr(sqlite, "_fill", fill_and_wait)
    creator = threading.Thread(target=lambda: Ledger.open(path).close())
    creator.start()
    filled.wait()
    created = os.pipe()

    def open_it_once_it_is_there() -> None:
        os.read(created[0], 1)
        with pytest.raises(LedgerUnavailable, match="while this process was forked"):
            Ledger.open(path)

    child = forked(open_it_once_it_is_there)
    forked_now.set()
    creator.join()
    os.write(created[1], b".")
    assert ended(child) == 0
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)


@pytest.mark.slow
def test_a_fork_waits_for_the_transactions_of_other_threads(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path, limit=WHOLE) as ledger:
        stop = threading.Event()
        counts: list[int] = []

        def charge() -> None:
            while not stop.is_set():
                ledger.charge(TENTH)
                counts.append(1)

        threads = [threading.Thread(target=charge) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            children = [forked(lambda: ledger.charge(TENTH)) for _ in range(5)]
            assert [ended(child) for child in children] == [0] * 5
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        ledger.check()
        assert ledger.spent().charges == len(counts) + 5


def _charge_for_ever(path: Path, acknowledged: Path, seed: int) -> None:
    """Open, charge a few times, close, and so on; note how many charges were acknowledged."""
    chance = Stream.from_seed(seed).generator()
    notes = os.open(acknowledged, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        with Ledger.open(path, timeout=120) as ledger:
            for _ in range(int(chance.choice((1, 2, 30)))):
                ledger.charge(TENTH, what="x" * int(chance.choice((1, 3000))))
                os.write(notes, b".")


@pytest.mark.slow
def test_copies_at_any_moment_are_refused_or_forget_nothing(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "survey.ledger", tmp_path / "acknowledged"
    Ledger.open(path, limit=WHOLE).close()
    acknowledged.touch()
    writers = [forked(partial(_charge_for_ever, path, acknowledged, seed)) for seed in range(2)]
    chance = Stream.from_seed(16).generator()
    try:
        while acknowledged.stat().st_size < 4:
            time.sleep(0.01)
        for _ in range(40):
            time.sleep(chance.random() * 0.03)
            before = acknowledged.stat().st_size
            copy = copied(path)
            try:
                with Ledger.open(copy) as opened:
                    opened.check()
                    assert opened.spent().charges >= before
            except LedgerTampered:
                pass
            for file in tmp_path.glob("copy.ledger*"):
                file.unlink()
    finally:
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
            assert ended(writer) == -signal.SIGKILL  # no writer ended by an alarm of its own
    with Ledger.open(path) as ledger:
        ledger.check()
        assert ledger.spent().charges >= acknowledged.stat().st_size


@pytest.mark.slow
def test_processes_that_open_close_and_are_killed_never_alarm(tmp_path: Path) -> None:
    path, acknowledged = tmp_path / "survey.ledger", tmp_path / "acknowledged"
    Ledger.open(path, limit=WHOLE).close()
    chance = Stream.from_seed(7).generator()
    for seed in range(12):
        writers = [forked(partial(_charge_for_ever, path, acknowledged, 10 * seed + k)) for k in range(2)]
        time.sleep(0.02 + chance.random() * 0.15)
        for writer in writers:
            os.kill(writer, signal.SIGKILL)
            assert ended(writer) == -signal.SIGKILL
        with Ledger.open(path) as ledger:
            ledger.check()
            spent = ledger.spent().charges
        noted = acknowledged.stat().st_size if acknowledged.exists() else 0
        assert noted <= spent


def test_a_charge_is_flushed_through_the_cache_of_the_disk(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", limit=WHOLE) as ledger:
        ledger.charge(TENTH)
        used = sqlite.SqliteFile(str(tmp_path / "ledger"), 1.0)._connect()
        settings = [
            used.connection.execute(f"PRAGMA {name}").fetchone() for name in ("synchronous", "fullfsync")
        ]
        used.close()
    assert settings == [(2,), (1,)]  # FULL; on macOS alone fullfsync has an effect
