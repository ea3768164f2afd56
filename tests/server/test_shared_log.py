"""The audit log in PostgreSQL: one chain of several machines, anchored as a file is."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from discreet.errors import LedgerTampered, LedgerUnavailable, ParameterError, SourceError
from discreet.ledger import Ledger
from discreet.ledger.audit_log import START, hash_line
from discreet.privacy.promises import PureDP
from discreet.server.audit_log import AnswerEvent, ServiceLog
from discreet.server.config import Config
from tests.cli.run import discreet
from tests.server.conftest import configured, running, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SCHEMA = "discreet_audit_log"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(Ledger.open(tmp_path / "town.ledger", limit=PureDP(epsilon=10))) as opened:
        yield opened


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Callable[..., ServiceLog]]:
    """Open the log as a further process would; all connections end with the test."""
    logs: list[ServiceLog] = []

    def make(**more: Any) -> ServiceLog:
        logs.append(ServiceLog(postgres_url, **more))
        return logs[-1]

    yield make
    for log in logs:
        log.close()


def sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, options=f"-c search_path={SCHEMA}") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def lines(url: str) -> list[dict[str, Any]]:
    return [json.loads(line) for (line,) in sql(url, "SELECT line FROM lines ORDER BY seq")]


def answered(log: ServiceLog, ledger: Ledger, answers: int) -> None:
    for _ in range(answers):
        receipt = ledger.charge(PureDP(epsilon=0.01), owner="ana", what="count")
        log.write_answers([AnswerEvent("town", "ana", "count", [receipt], cached=False)])


def served(log: ServiceLog, ledger: Ledger, answers: int = 3) -> None:
    log.confirm("town", ledger)
    log.write_start("town", ledger)
    answered(log, ledger, answers)
    log.anchor({"town": ledger})


def test_lines_are_those_of_a_file(
    opened: Callable[..., ServiceLog], postgres_url: str, tmp_path: Path
) -> None:
    file = ServiceLog(tmp_path / "audit.jsonl")
    for log in (opened(), file):
        log.write("one", who="ana", Köniz="☃")
        log.write("two", rows=[])
    stored = [line for (line,) in sql(postgres_url, "SELECT line FROM lines ORDER BY seq")]
    written = (tmp_path / "audit.jsonl").read_text().splitlines(keepends=True)
    for kind in (stored, written):
        previous = START
        for number, text in enumerate(kind, 1):
            content = json.loads(text)
            digest = content.pop("hash")
            assert (content["seq"], content["previous"], hash_line(content)) == (number, previous, digest)
            assert text.endswith("}\n")
            previous = digest
    assert [json.loads(a).keys() for a in stored] == [json.loads(b).keys() for b in written]


def test_a_log_that_does_not_exist_has_no_line_and_reading_makes_none(
    opened: Callable[..., ServiceLog], postgres_url: str, ledger: Ledger
) -> None:
    log = opened()
    assert log.check() == (0, 0)
    assert log.compare("town", ledger) is None
    assert log.find_files() == []
    assert sql(postgres_url, f"SELECT 1 FROM pg_namespace WHERE nspname = '{SCHEMA}'") == []


def test_two_writers_keep_one_chain(opened: Callable[..., ServiceLog], postgres_url: str) -> None:
    def write(log: ServiceLog, name: str) -> None:
        for number in range(50):
            log.write("event", who=name, number=number)

    logs = [opened(max_bytes=4000) for _ in range(3)]
    threads = [threading.Thread(target=write, args=(log, f"w{i}")) for i, log in enumerate(logs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lines(postgres_url)
    rotations = [line for line in found if line["event"] == "rotated"]
    assert len(rotations) > 2
    assert opened().check() == (150 + len(rotations), 0)
    for name in ("w0", "w1", "w2"):
        assert [one["number"] for one in found if one.get("who") == name] == list(range(50))


@pytest.mark.slow
def test_two_processes_keep_one_chain_and_one_may_be_killed(
    opened: Callable[..., ServiceLog], postgres_url: str
) -> None:
    code = (
        "import sys; from discreet.server.audit_log import ServiceLog; log = ServiceLog(sys.argv[1])\n"
        "for number in range(int(sys.argv[3])): log.write('event', who=sys.argv[2], number=number)"
    )
    endless = subprocess.Popen([sys.executable, "-c", code, postgres_url, "endless", "1000000"])
    try:
        others = [
            subprocess.Popen([sys.executable, "-c", code, postgres_url, f"p{i}", "200"]) for i in range(2)
        ]
        assert [other.wait(300) for other in others] == [0, 0]
    finally:
        endless.kill()
        endless.wait()
    opened().write("after")
    found = lines(postgres_url)
    assert opened().check() == (len(found), 0)
    for name in ("p0", "p1"):
        assert [one["number"] for one in found if one.get("who") == name] == list(range(200))


def _rechain(url: str, keep: int) -> None:
    """Forge what whoever owns the database can: another end, with hashes that fit."""
    kept = lines(url)[:keep]
    sql(url, f"DELETE FROM lines WHERE seq > {keep}")
    sql(url, f"UPDATE about SET seq = {keep}, hash = '{kept[-1]['hash']}'")


ATTACKS: dict[str, Callable[[str], object]] = {
    "cut": lambda url: sql(url, "DELETE FROM lines WHERE seq = (SELECT max(seq) FROM lines)"),
    "cut with its count": lambda url: _rechain(url, 3),
    "emptied": lambda url: sql(url, "TRUNCATE lines, parts"),
    "dropped": lambda url: sql(url, f"DROP SCHEMA {SCHEMA} CASCADE"),
    "edited": lambda url: sql(
        url, "UPDATE lines SET line = replace(line, 'ana', 'bob') WHERE seq = (SELECT max(seq) FROM lines)"
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_log_without_the_anchored_line_is_reported(
    opened: Callable[..., ServiceLog], postgres_url: str, ledger: Ledger, attack: str
) -> None:
    served(opened(), ledger)
    opened().confirm("town", ledger)
    ATTACKS[attack](postgres_url)
    with pytest.raises(LedgerTampered, match="must have line 4, whose hash the ledger keeps, and has not"):
        opened().confirm("town", ledger)


def test_a_line_that_is_removed_or_edited_before_the_anchor_is_found_by_a_check(
    opened: Callable[..., ServiceLog], postgres_url: str, ledger: Ledger
) -> None:
    served(opened(), ledger)
    sql(postgres_url, "UPDATE lines SET line = replace(line, 'ana', 'bob') WHERE seq = 2")
    opened().confirm("town", ledger)
    with pytest.raises(LedgerTampered, match="Line 2 of the audit log"):
        opened().check()
    sql(postgres_url, "DELETE FROM lines WHERE seq = 2")
    with pytest.raises(LedgerTampered, match="Line 2 of the audit log"):
        opened().check()


def test_a_process_notices_that_the_log_went_back_before_it_writes(
    opened: Callable[..., ServiceLog], postgres_url: str, ledger: Ledger
) -> None:
    log = opened()
    served(log, ledger)
    _rechain(postgres_url, 2)
    with pytest.raises(LedgerUnavailable, match="ends before it: it was cut or replaced"):
        log.write("event")


def test_rotation_begins_a_part_and_old_lines_may_be_moved(
    opened: Callable[..., ServiceLog], postgres_url: str, ledger: Ledger
) -> None:
    log = opened()
    served(log, ledger)
    assert str(log.rotate()).startswith("lines 1 to 4 of postgresql://")
    answered(log, ledger, 2)
    log.anchor({"town": ledger})
    assert log.check() == (7, 0)
    assert lines(postgres_url)[4]["event"] == "rotated"
    assert [line["seq"] for line in log.last("answer", "town", 9)] == [7, 6, 4, 3, 2]
    sql(postgres_url, "DELETE FROM lines WHERE seq < 5")
    assert opened().check() == (7, 4)
    opened().confirm("town", ledger)
    # The rows that old lines named are in the first line of the new part.
    position = opened().last_position("town")
    assert position is not None
    assert position.row == lines(postgres_url)[-1]["rows"][0][1]
    with pytest.raises(ParameterError, match="must not exist yet to begin a new log"):
        log.begin([ledger], "test")


def test_a_connection_that_ends_is_opened_again_and_a_server_that_is_away_is_no_tampering(
    opened: Callable[..., ServiceLog], postgres_url: str, ledger: Ledger
) -> None:
    log = opened()
    served(log, ledger)
    sql(postgres_url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
    log.write("event")
    log.anchor({"town": ledger})
    away = ServiceLog("postgresql://127.0.0.1:1/nowhere")
    for attempt in (lambda: away.write("event"), away.check, lambda: away.compare("town", ledger)):
        with pytest.raises(LedgerUnavailable, match="must be a database that can be reached"):
            attempt()


def test_a_schema_that_holds_something_else_is_left_alone(
    opened: Callable[..., ServiceLog], postgres_url: str
) -> None:
    sql(postgres_url, f"CREATE SCHEMA {SCHEMA}")
    with pytest.raises((LedgerUnavailable, SourceError), match="must be an audit log"):
        opened().write("event")
    with pytest.raises(LedgerTampered, match="must be an audit log"):
        opened().check()


ASKED = {"kind": "count", "where": "age > 40", "privacy": {"kind": "gaussian-dp", "mu": 0.1}}


def test_two_services_share_ledger_access_and_log(
    tmp_path: Path, postgres_url: str, opened: Callable[..., ServiceLog]
) -> None:
    shared: dict[str, Any] = {
        "audit_log": postgres_url,
        "access": f"{postgres_url}#access",
        "ledger": f"{postgres_url}#town",
    }
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    with running(first, jobs="jobs.db", **shared) as one:
        with running(second, one.tokens, jobs="jobs.db", **shared) as other:
            for number, service in enumerate((one, other) * 2):
                asked = {**ASKED, "where": f"age > {number}"}
                assert service.ask(asked, "ana").status_code == 200
            assert one.client("cura").get("/v1/datasets/town/curator/check").json()["intact"]
        assert one.ask({**ASKED, "where": "age > 50"}, "ana").status_code == 200
    found = lines(postgres_url)
    assert [line["event"] for line in found].count("answer") == 5
    assert len({line["process"] for line in found}) == 1  # of the test
    config = configured(first, jobs="jobs.db", **shared)
    assert discreet("serve", "config.yaml", "--check", cwd=first).err == ""
    done = discreet("audit-log", "check", cwd=first)
    assert (done.code, done.err) == (0, "")
    assert f"{len(found)} lines, intact" in done.out
    assert discreet("audit-log", "rotate", cwd=first).code == 0
    assert lines(postgres_url)[-1]["event"] == "rotated"
    assert config.exists()
    _rechain(postgres_url, 3)
    done = discreet("audit-log", "check", cwd=first)
    assert done.code != 0
    assert "whose hash the ledger keeps" in done.err
    sql(postgres_url, f"DROP SCHEMA {SCHEMA} CASCADE")
    assert discreet("audit-log", "begin", cwd=first).code == 0
    assert [line["event"] for line in lines(postgres_url)] == ["begin"]


def test_a_log_in_a_database_is_backed_up_and_restored(tmp_path: Path, postgres_url: str) -> None:
    changed: dict[str, Any] = {"audit_log": postgres_url, "jobs": "jobs.db"}
    with running(tmp_path, **changed) as service:
        assert service.ask(ASKED, "ana").status_code == 200
        service.whole.audit_log.rotate()
        configured(tmp_path, **changed)
        done = discreet("service", "backup", "--out", "copy", cwd=tmp_path)
        assert (done.code, done.err) == (0, ""), done.err
    before = lines(postgres_url)
    copied = [
        json.loads(line)
        for file in sorted((tmp_path / "copy").glob("audit.jsonl*"), reverse=True)
        for line in file.read_text().splitlines()
    ]
    assert copied == before[: len(copied)]
    sql(postgres_url, f"DROP SCHEMA {SCHEMA} CASCADE")
    done = discreet("service", "restore", "copy", cwd=tmp_path)
    assert done.code == 0, done.err
    assert lines(postgres_url)[: len(copied)] == copied
    assert lines(postgres_url)[-1]["event"] == "restored"
    assert discreet("audit-log", "check", cwd=tmp_path).code == 0


def test_jobs_need_a_file_where_the_log_has_none(tmp_path: Path) -> None:
    content = settings(audit_log="postgresql://db.example.org/x")
    with pytest.raises(ParameterError, match=r"jobs of .* is required if .*Name a file on this machine"):
        Config.from_dict(content, tmp_path)
    assert Config.from_dict({**content, "jobs": "jobs.db"}, tmp_path).jobs == tmp_path / "jobs.db"
