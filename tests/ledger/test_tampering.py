"""Whoever edits the database is found, row by row; whoever is not ours is left alone."""

from __future__ import annotations

import json
import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from discreet.errors import (
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    MissingExtra,
    NotALedger,
    ParameterError,
)
from discreet.ledger import Ledger
from discreet.ledger._store import READERS
from discreet.ledger.records import LedgerRow
from discreet.privacy.promises import PureDP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).parents[2]
TENTH = PureDP(epsilon=0.1)


@pytest.fixture(params=["file", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return str(tmp_path / "survey.ledger")
    return f"{request.getfixturevalue('postgres_url')}#survey"


@pytest.fixture
def edit(place: str) -> Callable[..., None]:
    """Run statements behind the ledger's back, its triggers out of the way."""

    def sqlite(*statements: str) -> None:
        with closing(sqlite3.connect(place)) as connection, connection:
            connection.execute("DROP TRIGGER IF EXISTS record_is_never_changed")
            connection.execute("DROP TRIGGER IF EXISTS record_is_never_deleted")
            for statement in statements:
                connection.execute(statement)

    def postgres(*statements: str) -> None:
        import psycopg

        with psycopg.connect(place.partition("#")[0]) as connection:
            connection.execute("SET search_path = discreet_survey")
            connection.execute("ALTER TABLE record DISABLE TRIGGER ALL")
            for statement in statements:
                connection.execute(statement.encode())

    return postgres if "://" in place else sqlite


@pytest.fixture
def ledger(place: str) -> Iterator[Ledger]:
    with Ledger.open(place, limit=PureDP(epsilon=1)) as ledger:
        ledger.charge(TENTH, what="one", owner="ann", request="k")
        ledger.charge(TENTH, what="two", question="q")
        receipt = ledger.charge(TENTH, what="three")
        ledger.store(receipt, b"3.14")
        ledger.check(receipt)
        yield ledger


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE record SET body = replace(body, 'two', 'zwei') WHERE seq = 3", "row 3"),
        ("UPDATE record SET time = '1999' WHERE seq = 2", "row 2"),
        ("UPDATE record SET hash = previous WHERE seq = 2", "row 2"),
        ("UPDATE record SET previous = hash WHERE seq = 4", "row 4"),
        ("DELETE FROM record WHERE seq = 3", "row 3"),
        ("DELETE FROM record WHERE seq = 1", "row 1"),
        ("DELETE FROM record WHERE seq = 5", "row 5"),
        ("UPDATE book SET seq = 4", "row 4"),
        ("UPDATE totals SET spent = replace(spent, '0.3', '0.1') WHERE scope = 'total'", "'total'"),
        ("UPDATE totals SET caps = replace(caps, '\"1\"', '\"9\"') WHERE scope = 'total'", "'total'"),
        ("UPDATE totals SET caps = NULL WHERE scope = 'total'", "'total'"),
        ("DELETE FROM totals WHERE scope = 'owner:ann'", "'owner:ann'"),
        ("INSERT INTO totals SELECT 'owner:eve', caps, spent FROM totals", "'owner:eve'"),
        ("DELETE FROM questions", "questions"),
        ("UPDATE answers SET answer = '2.71'", "answer to 'row:4'"),
        ("DELETE FROM answers", "answer to 'row:4'"),
        ("DELETE FROM marks", "keys"),
        ("UPDATE marks SET seq = 3", "keys"),
        ("INSERT INTO marks SELECT 'another', seq FROM marks", "keys"),
        ("DROP TABLE marks", "tables of the ledger"),
    ],
)
def test_every_edit_is_found_and_named(
    ledger: Ledger, edit: Callable[..., None], statement: str, named: str, place: str
) -> None:
    if "'owner:eve'" in statement:
        statement += " WHERE scope = 'total'"
    if statement.startswith("UPDATE answers") and "://" not in place:
        statement = statement.replace("'2.71'", "CAST('2.71' AS BLOB)")
    edit(statement)
    with pytest.raises(LedgerTampered, match=named):
        ledger.check()


def test_a_tail_cut_off_with_its_totals_is_found_by_a_receipt(
    ledger: Ledger, edit: Callable[..., None], place: str
) -> None:
    # The forger puts everything back to the state after the second charge, consistently.
    receipt = ledger.history()[-1]
    with Ledger.open(":memory:", limit=PureDP(epsilon=1)) as model:
        model.charge(TENTH, owner="ann", request="k")
        model.charge(TENTH, question="q")
        spent = json.dumps(model.spent().to_dict(), sort_keys=True, separators=(",", ":"))
    hash_of_third = ledger.history()[1].hash
    edit(
        "DELETE FROM answers",
        "DELETE FROM record WHERE seq > 3",
        f"UPDATE book SET seq = 3, hash = '{hash_of_third}'",
        f"UPDATE totals SET spent = '{spent}' WHERE scope = 'total'",
    )
    ledger.check()  # consistent with itself ...
    with pytest.raises(LedgerTampered, match="row 4"):  # ... and not with what was handed out
        ledger.check(receipt)


ANOTHER_START = '{"type":"open","format":1,"caps":null,"owner_caps":null}'
TOO_MUCH = (
    '{"type":"charge","question":null,"owner":null,"scopes":["total"],'
    '"promises":[{"kind":"pure-dp","epsilon":0.9}]}'
)
NO_TOTAL = TOO_MUCH.replace('["total"]', "[]").replace("0.9", "0.1")
SECOND_ANSWER = '{"type":"answer","key":"row:4","sha256":"00"}'

KEY_AGAIN = '{"type":"request","owner":"ann","request":"k","row":2}'
KEY_OF_NOTHING = '{"type":"request","owner":"ann","request":"new","row":9}'
KEY_OF_AN_ANSWER = '{"type":"request","owner":null,"request":"new","row":5}'
KEY_OF_ANOTHER = '{"type":"request","owner":"eve","request":"new","row":2}'
CHARGED_UNDER_A_KEY = (
    TOO_MUCH.replace("0.9", "0.1")
    .replace('"owner":null', '"owner":"ann","request":"k"')
    .replace('["total"]', '["total","owner:ann"]')
)
NAMELESS = '{"type":"bind","dataset":3}'
FORGED = [
    '{"type":"refund"}', "[]", "{", ANOTHER_START, TOO_MUCH, NO_TOTAL, SECOND_ANSWER, KEY_AGAIN,
    KEY_OF_NOTHING, KEY_OF_AN_ANSWER, KEY_OF_ANOTHER, CHARGED_UNDER_A_KEY, NAMELESS,
]  # fmt: skip


@pytest.mark.parametrize("body", FORGED)
def test_a_forged_row_with_good_hashes_still_has_to_be_a_step_the_ledger_allows(
    ledger: Ledger, edit: Callable[..., None], body: str
) -> None:
    seq, head = ledger.head
    forged = LedgerRow.from_previous(seq, head, "2026-01-01T00:00:00+00:00", body)
    edit(
        f"INSERT INTO record VALUES ({forged.seq}, '{forged.time}', '{body}', '{head}', '{forged.hash}')",
        f"UPDATE book SET seq = {forged.seq}, hash = '{forged.hash}'",
    )
    with pytest.raises(LedgerTampered, match=f"row {forged.seq}"):
        ledger.check()


def test_a_ledger_cannot_be_bound_twice(ledger: Ledger, edit: Callable[..., None]) -> None:
    ledger.bind("survey")
    seq, head = ledger.head
    body = '{"dataset":"payroll","type":"bind"}'
    forged = LedgerRow.from_previous(seq, head, "2026-01-01T00:00:00+00:00", body)
    edit(
        f"INSERT INTO record VALUES ({forged.seq}, '{forged.time}', '{body}', '{head}', '{forged.hash}')",
        f"UPDATE book SET seq = {forged.seq}, hash = '{forged.hash}'",
        f"UPDATE marks SET seq = {forged.seq} WHERE seq = {seq}",
    )
    with pytest.raises(LedgerTampered, match=f"row {forged.seq}"):
        ledger.check()


def test_a_key_whose_row_or_table_is_gone_stops_the_request(
    ledger: Ledger, edit: Callable[..., None]
) -> None:
    edit("UPDATE marks SET seq = 99")
    with pytest.raises(LedgerTampered, match="row 99"):
        ledger.charge(TENTH, what="one", owner="ann", request="k")
    ledger.bind("survey")
    edit("UPDATE marks SET seq = 99")
    with pytest.raises(LedgerTampered, match="row 99"):
        ledger.bind("survey")
    edit("DROP TABLE marks")
    with pytest.raises(LedgerTampered, match="tables"):
        ledger.charge(TENTH, what="one", owner="ann", request="k")


def test_a_record_with_another_beginning_is_another_ledger(
    ledger: Ledger, edit: Callable[..., None], place: str
) -> None:
    edit("UPDATE book SET identity = 'f00d'")
    with pytest.raises(LedgerTampered, match="replaced"):
        ledger.charge(TENTH)
    with Ledger.open(place) as opened, pytest.raises(LedgerTampered, match="identity"):
        opened.check()
    with pytest.raises(LedgerError, match="pickled"):
        pickle.loads(pickle.dumps(ledger))


def test_a_ledger_without_its_first_row_does_not_open(
    ledger: Ledger, edit: Callable[..., None], place: str
) -> None:
    edit("UPDATE record SET body = 'x' WHERE seq = 1")
    with pytest.raises(LedgerTampered, match="row 1"):
        Ledger.open(place)
    edit("DELETE FROM record")
    with pytest.raises(LedgerTampered, match="row 1"):
        Ledger.open(place)
    with pytest.raises(LedgerTampered, match="row"):
        ledger.charge(TENTH, question="q")


def test_the_record_refuses_to_be_changed_or_deleted(ledger: Ledger, place: str) -> None:
    for statement in ("UPDATE record SET time = ''", "DELETE FROM record"):
        if "://" in place:
            import psycopg

            with psycopg.connect(place.partition("#")[0]) as connection:
                connection.execute("SET search_path = discreet_survey")
                with pytest.raises(psycopg.Error, match="append-only"):
                    connection.execute(statement.encode())
        else:
            with (
                closing(sqlite3.connect(place)) as file,
                pytest.raises(sqlite3.Error, match="append-only"),
            ):
                file.execute(statement)
    ledger.check()


def test_unreadable_totals_stop_charges(ledger: Ledger, edit: Callable[..., None]) -> None:
    edit("UPDATE totals SET spent = '{}'")
    with pytest.raises(LedgerTampered, match="total"):
        ledger.charge(TENTH)
    edit("DELETE FROM book")
    with pytest.raises(LedgerTampered, match="book"):
        ledger.charge(TENTH)
    edit("DROP TABLE totals")
    with pytest.raises(LedgerTampered):
        ledger.spent()


# --- files ------------------------------------------------------------------------------------


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_file_that_is_not_a_ledger_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "short").write_text("age\n")
    (tmp_path / "long").write_text("age,income\n" * 1000)
    with closing(sqlite3.connect(tmp_path / "other.db")) as other, other:
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("CREATE TABLE people (name TEXT)")
        other.execute("INSERT INTO people VALUES ('ann')")
        before = snapshot(tmp_path)
        for name in before:
            if name.endswith(("-wal", "-shm")):
                continue
            with pytest.raises(NotALedger, match="Nothing was changed"):
                Ledger.open(tmp_path / name, limit=PureDP(epsilon=1))
        assert snapshot(tmp_path) == before
    with pytest.raises(NotALedger):
        Ledger.open(tmp_path)


def test_a_ledger_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "old.ledger"
    Ledger.open(path).close()
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 99")
    with pytest.raises(NotALedger, match="format 99"):
        Ledger.open(path)


def test_a_journal_left_behind_is_not_played_into_a_new_ledger(tmp_path: Path) -> None:
    (tmp_path / "gone.ledger-wal").write_bytes(b"frames of a ledger that was removed")
    with pytest.raises(NotALedger, match="left behind"):
        Ledger.open(tmp_path / "gone.ledger")


def test_a_schema_that_is_not_a_ledger_is_refused(postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE SCHEMA discreet_mine CREATE TABLE people (name TEXT)")
    with pytest.raises(NotALedger, match="Nothing was changed"):
        Ledger.open(f"{postgres_url}#mine")
    with psycopg.connect(postgres_url) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'discreet_mine'"
        ).fetchall()
    assert tables == [("people",)]
    with pytest.raises(ParameterError, match="name after #"):
        Ledger.open(f"{postgres_url}#Robert'); DROP TABLE")


def test_without_the_driver_the_install_line_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"discreet\[postgres\]"):
        Ledger.open("postgresql://127.0.0.1/none")


def test_a_server_that_is_gone_is_an_error_of_ours_without_its_password(postgres_url: str) -> None:
    for url in (
        postgres_url.replace("correct-horse", "battery-staple"),
        "postgresql://curator:correct-horse@127.0.0.1:9/none",
    ):
        with pytest.raises(LedgerUnavailable) as refusal:
            Ledger.open(url, timeout=2)
        assert "correct-horse" not in str(refusal.value)
        assert "battery-staple" not in str(refusal.value)


def test_a_connection_lost_while_idle_is_replaced(postgres_url: str) -> None:
    import psycopg

    with Ledger.open(postgres_url, limit=PureDP(epsilon=1)) as ledger:
        ledger.charge(TENTH)
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        ledger.charge(TENTH)
        assert ledger.spent().charges == 2


@pytest.mark.parametrize("where", ["header", "middle", "everywhere"])
def test_flipped_bytes_are_an_error_of_ours_and_nothing_is_written(tmp_path: Path, where: str) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path, limit=PureDP(epsilon=100)) as ledger:
        for i in range(50):
            ledger.charge(TENTH, what=f"question {i}")
    content = bytearray(path.read_bytes())
    spots = {
        "header": range(16),
        "middle": range(len(content) // 2, len(content) // 2 + 600),
        "everywhere": range(200, len(content), 97),
    }[where]
    for i in spots:
        content[i] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(LedgerError):  # noqa: PT012  found at opening or by the check, never passed
        ledger = Ledger.open(path)
        ledger.check()
    assert path.read_bytes() == bytes(content)


def test_a_file_is_private_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
        for made in tmp_path.iterdir():
            assert made.stat().st_mode & 0o777 == 0o600, made
    assert [made.name for made in tmp_path.iterdir()] == ["survey.ledger"]


def test_a_folder_that_does_not_exist_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable):
        Ledger.open(tmp_path / "nowhere" / "survey.ledger")


def test_a_file_moved_away_or_replaced_takes_no_more_charges(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path) as ledger:
        ledger.charge(TENTH)
        path.rename(tmp_path / "elsewhere")
        with pytest.raises(LedgerUnavailable, match="moved or replaced"):
            ledger.charge(TENTH)
        for rest in tmp_path.glob("survey.ledger-*"):
            rest.unlink()
        Ledger.open(path).close()
        with pytest.raises(LedgerTampered, match="another"):
            ledger.charge(TENTH)


def test_a_thread_that_holds_the_book_makes_others_wait_their_turn(place: str) -> None:
    with Ledger.open(place, timeout=0.2) as ledger, ThreadPoolExecutor(1) as pool:

        def hold(transaction: object) -> None:
            waiting = pool.submit(ledger.charge, TENTH)
            with pytest.raises(LedgerUnavailable, match="another thread"):
                waiting.result()

        ledger._store.write(hold)
        assert ledger.spent().charges == 0
        ledger.charge(TENTH)


def test_more_readers_than_places_wait_and_whoever_charges_does_not(place: str) -> None:
    with Ledger.open(place, timeout=0.5) as ledger:
        with ExitStack() as stack:
            for _ in range(READERS):
                stack.enter_context(ledger._store.read())
            with pytest.raises(LedgerUnavailable, match="too many threads are reading"):
                ledger.spent()
            ledger.charge(TENTH)
        assert ledger.spent().charges == 1


def test_a_locked_file_is_unavailable_and_charges_nothing(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    with Ledger.open(path, timeout=0.1) as ledger:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailable, match="locked"):
                ledger.charge(TENTH)
        assert ledger.spent().charges == 0
        ledger.charge(TENTH)


def child(script: str, *arguments: str) -> str:
    """Run a script in another process; return what it printed."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_a_ledger_killed_while_its_journal_is_written_into_its_file_opens_again(tmp_path: Path) -> None:
    path = tmp_path / "survey.ledger"
    child = os.fork()
    if child == 0:
        ledger = Ledger.open(path)
        for _ in range(30):
            ledger.charge(TENTH, what="x" * 1000)
        os.kill(os.getpid(), 9)
    os.waitpid(child, 0)
    assert (tmp_path / "survey.ledger-wal").stat().st_size > 0
    # The first page was written, with the number of pages at its byte 28, and the others not yet.
    content = bytearray(path.read_bytes())
    content[28:32] = (int.from_bytes(content[28:32]) + 50).to_bytes(4)
    path.write_bytes(content)
    with Ledger.open(path) as ledger:
        ledger.check()
        assert ledger.spent().charges == 30
        ledger.charge(TENTH)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 4])
def test_a_full_disk_is_unavailable_and_the_ledger_stays_whole(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "survey.ledger"
    Ledger.open(path).close()
    # A limit on the size of files stands for the end of the disk: writes fail in the middle.
    said = child(
        """
        import resource, sys, threading
        from discreet.errors import LedgerUnavailable
        from discreet.ledger import Ledger
        from discreet.privacy.promises import PureDP
        ledger = Ledger.open(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
        granted = []
        def charge():
            try:
                while True:
                    granted.append(ledger.charge(PureDP(epsilon=0.1), what="x" * 1000).seq)
            except LedgerUnavailable:
                pass
        threads = [threading.Thread(target=charge) for _ in range(int(sys.argv[2]))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(*granted)
        """,
        str(path),
        str(threads),
    )
    with Ledger.open(path) as ledger:
        ledger.check()
        granted = sorted(int(seq) for seq in said.split())
        assert [receipt.seq for receipt in ledger.history()] == granted
        assert len(granted) > 5
        ledger.charge(TENTH)


@pytest.mark.slow
def test_a_read_only_folder_is_unavailable_and_nothing_changes() -> None:
    # Not in pytest's own folder, which only we can enter: the child below becomes somebody else.
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        path = folder / "survey.ledger"
        with Ledger.open(path) as ledger:
            ledger.charge(TENTH)
        path.chmod(0o644)
        folder.chmod(0o555)
        before = snapshot(folder)
        said = child(
            """
            import os, pwd, sys
            from discreet.errors import LedgerUnavailable
            from discreet.ledger import Ledger
            from discreet.privacy.promises import PureDP
            Ledger.open(":memory:").close()
            if os.geteuid() == 0:  # permissions do not bind root
                os.setuid(pwd.getpwnam("nobody").pw_uid)
            for name in ("survey.ledger", "new.ledger"):
                try:
                    Ledger.open(f"{sys.argv[1]}/{name}").charge(PureDP(epsilon=0.1))
                except LedgerUnavailable:
                    print("unavailable")
            """,
            str(folder),
        )
        assert said.split() == ["unavailable", "unavailable"]
        assert snapshot(folder) == before
        folder.chmod(0o755)
