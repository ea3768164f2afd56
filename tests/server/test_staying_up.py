"""What fails around a service: it recovers, or refuses without a charge, or ends so that it is restarted."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from discreet.ledger import Ledger
from discreet.server.audit_log import ServiceLog
from tests.postgres import running_server
from tests.server.processes import Served, in_database, served, town_in_postgres

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.server.conftest import Disk, RunningService

RHO = {"kind": "zcdp", "rho": 1e-4}
_LONG = 120.0


def count(number: int) -> dict[str, Any]:
    """Return a question that no other number asks."""
    return {"kind": "count", "where": f"income < {100 * number + 7}", "privacy": RHO}


def test_on_a_full_disk_one_answer_is_withheld_and_the_next_questions_are_not_charged(
    service: RunningService, disk: Disk
) -> None:
    ledger = service.backend.dataset.ledger
    assert service.ask(count(1)).status_code == 200
    disk.full = True
    assert [service.ask(count(number)).status_code for number in range(2, 6)] == [503] * 4
    assert ledger.spent().charges == 2
    disk.full = False
    assert [service.ask(count(number)).status_code for number in range(2, 6)] == [200] * 4
    assert ledger.spent().charges == 5  # what was withheld was paid for, and is sent now
    assert service.client().get("/ready").status_code == 200


def test_a_ledger_that_another_program_holds_charges_nothing(service: RunningService) -> None:
    ledger = service.backend.dataset.ledger
    assert service.ask(count(1)).status_code == 200
    ledger.close()
    ledger._store._timeout = 0.2  # type: ignore[attr-defined]
    with closing(sqlite3.connect(service.folder / "town.ledger", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        response = service.ask(count(2))
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "ledger-unavailable"
        other.execute("ROLLBACK")
    assert ledger.spent().charges == 1
    assert service.ask(count(2)).status_code == 200
    ledger.check()


# Processes.


class Asking:
    """An analyst of a service in processes of its own, who counts what was answered."""

    def __init__(self, service: Served) -> None:
        (token,) = service.tokens(1)
        self._client = httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60)
        self.connect(service)
        self.answered = 0
        self.refused = 0

    def connect(self, service: Served) -> None:
        """Ask the processes that serve now, after a restart."""
        self._client.base_url = f"http://127.0.0.1:{service.port}"

    def ask(self, number: int) -> int:
        """Ask one question, and return the status of the response."""
        response = self._client.post("/v1/datasets/town/query", json=count(number))
        self.answered += response.status_code == 200
        self.refused += response.status_code != 200
        return response.status_code

    def job(self, number: int) -> dict[str, Any]:
        """Ask one question as a job, and return the job once it has ended."""
        created = self._client.post("/v1/datasets/town/jobs", json=count(number))
        end = time.monotonic() + _LONG
        while (job := self._client.get(created.headers["location"]).json()).get("ended") is None:
            assert time.monotonic() < end, "the job does not end"
            time.sleep(0.1)
        found: dict[str, Any] = job
        return found

    def ask_until_answered(self, number: int) -> None:
        """Ask one question again and again until it is answered."""
        end = time.monotonic() + _LONG
        while self.ask(number) != 200:
            assert time.monotonic() < end, "the service does not recover"
            time.sleep(0.1)

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def charges(ledger: str) -> int:
    """Return how many charges a ledger has, after checking it."""
    with Ledger.open(ledger) as opened:
        opened.check()
        return opened.spent().charges


@pytest.fixture
def in_postgres(tmp_path: Path) -> Iterator[tuple[Served, str]]:
    """Run a service whose rows, ledger, access and audit log are in a PostgreSQL server of its own."""
    with (
        running_server() as server,
        server.database() as url,
        served(tmp_path, **in_database(url)) as service,
    ):
        yield service, url


@pytest.mark.slow
def test_ended_sessions_and_a_restarted_server_cost_no_charge_without_an_answer(
    in_postgres: tuple[Served, str],
) -> None:
    import psycopg

    service, url = in_postgres
    others = "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    with Asking(service) as analyst:
        assert analyst.ask(1) == 200
        for number in range(2, 5):
            with psycopg.connect(url) as connection:
                connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
            analyst.ask_until_answered(number)
        for number in range(5, 7):
            with psycopg.connect(url) as connection:
                ((pid,), *_) = connection.execute(f"SELECT pid {others}").fetchall()
            os.kill(pid, signal.SIGKILL)  # makes the server end all sessions and start again
            analyst.ask_until_answered(number)
        assert analyst.answered == 6
    assert charges(f"{url}#town") == 6


@pytest.mark.slow
def test_a_disk_without_room_for_the_ledger_charges_nothing_and_is_used_again_once_there_is_room(
    tmp_path: Path,
) -> None:
    with served(tmp_path) as service, Asking(service) as analyst:
        assert analyst.ask(1) == 200
        assert service._process is not None
        process, unlimited = service._process.pid, resource.RLIM_INFINITY
        # No file of the process may grow: the journal of the ledger and the audit log are as on a full disk.
        resource.prlimit(process, resource.RLIMIT_FSIZE, (1, unlimited))
        assert [analyst.ask(number) for number in range(2, 5)] == [503] * 3
        resource.prlimit(process, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        for number in range(2, 5):
            analyst.ask_until_answered(number)
        assert analyst.answered == 4
    assert charges(str(tmp_path / "town.ledger")) == 4


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_service_whose_engine_is_lost_and_cannot_be_opened_anew_ends_with_an_error(
    tmp_path: Path, workers: int
) -> None:
    # The engine is lost after five minutes; here after one second, in every process.
    (tmp_path / "sitecustomize.py").write_text(
        "import discreet.server.health as health; health.INTERVAL, health.LOST = 0.2, 1.0"
    )
    with running_server() as server, server.database() as url:
        service = Served(tmp_path, table=town_in_postgres(url), schema="town.schema.yaml", workers=workers)
        process = subprocess.Popen(
            [sys.executable, "-c", "from discreet.cli import main; main()", "serve", str(service.config)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        )
        assert process.stdout is not None
        assert " at http" in process.stdout.readline()
        assert process.stderr is not None
        started = 0
        while started < workers:
            line = process.stderr.readline()
            assert line, "the service has ended"
            started += '"event": "start"' in line
    # The server is gone, and does not come back.
    try:
        _, told = process.communicate(timeout=_LONG)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "data set not reopened" in told
    assert "engines lost" in told
    assert ("process not started" in told) == (workers > 1)
    assert "so the service has ended. See its log, and start it again." in told


# A file beside the configuration says by how many seconds the clock of the process is ahead.
_OTHER_CLOCK = """
import pathlib, time

real, ahead = time.time, pathlib.Path({file!r})
time.time = lambda: real() + float(ahead.read_text())
"""
_HOUR = 3600


class Clock:
    """Wall clock of a service in a process of its own; its monotonic clock goes on as usual.

    Parameters
    ----------
    file : Path
        File from which the process reads by how many seconds its clock is ahead.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    @property
    def code(self) -> str:
        """Python that the process runs before it imports anything else."""
        return _OTHER_CLOCK.format(file=str(self._file))

    def set(self, ahead: float) -> None:
        """Set the clock so many seconds ahead of the true time, in one step."""
        draft = self._file.with_suffix(".new")
        draft.write_text(str(ahead))
        draft.replace(self._file)


@pytest.mark.slow
def test_a_clock_that_is_set_back_changes_no_charge_and_revives_no_token(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "ahead.txt")
    service = Served(tmp_path, analyst_limit={"rho": 3.5e-4})
    service.start(clock.code)
    try:
        with Asking(service) as analyst:
            assert analyst.ask(1) == 200
            clock.set(-30 * 24 * _HOUR)
            assert [analyst.ask(number) for number in (1, 2)] == [200, 200]
            service.kill()
            service.start(clock.code)
            analyst.connect(service)
            assert [analyst.ask(number) for number in (1, 2, 3)] == [200, 200, 200]
            assert analyst.ask(4) == 409  # what was spent before the clock was set back is still spent
    finally:
        service.stop()
    with Ledger.open(str(tmp_path / "town.ledger")) as ledger:
        times = [receipt.when for receipt in ledger.history()]
    assert times[1] < times[0], "the clock was not set back"
    assert charges(str(tmp_path / "town.ledger")) == 3
    ServiceLog(tmp_path / "audit.jsonl").check()


@pytest.mark.slow
def test_a_clock_that_jumps_by_hours_disturbs_no_caller_and_revives_nothing(tmp_path: Path) -> None:
    clock, path = Clock(tmp_path / "ahead.txt"), "/v1/datasets/town"
    service = Served(tmp_path, limits={"per_minute": 120})
    other, _ = service.tokens(2, first=7)
    service.start(clock.code)
    url = f"http://127.0.0.1:{service.port}"
    try:
        with (
            Asking(service) as analyst,
            httpx.Client(base_url=url, headers={"Origin": url}, timeout=60) as browser,
            httpx.Client(base_url=url, headers={"Authorization": f"Bearer {other}"}, timeout=60) as hasty,
        ):
            (token,) = service.tokens(1, first=9)
            assert browser.post("/login", data={"token": token}).status_code == 303
            for number, ahead in enumerate((6 * _HOUR, -6 * _HOUR, 7 * _HOUR, 0), start=1):
                # Until the requests of this minute are used up.
                assert any(hasty.get(f"{path}/budget").status_code == 429 for _ in range(2000))
                clock.set(ahead)
                # A jump ahead has filled up nothing that fills with time.
                assert 429 in {hasty.get(f"{path}/budget").status_code for _ in range(100)}
                assert analyst.ask(number) == 200
                assert browser.get("/datasets/town").status_code == 200
                ended = analyst.job(100 + number)
                assert ended["state"] == "done"
                assert ended["created"] <= ended["ended"]
            # A month ahead ends what is valid for hours or days, and it stays ended.
            for ahead in (30 * 24 * _HOUR, 0, -30 * 24 * _HOUR):
                clock.set(ahead)
                assert analyst.ask(5) == 401
                assert browser.get("/datasets/town").status_code == 303
    finally:
        service.stop()
    assert charges(str(tmp_path / "town.ledger")) == 8
    ServiceLog(tmp_path / "audit.jsonl").check()
