"""The parent of several processes: it replaces those that end, and gives up when none can be started."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import multiprocess

import discreet.server.supervisor as supervisor_module
from discreet.server.supervisor import Supervisor
from tests.server.processes import Served, served

if TYPE_CHECKING:
    from collections.abc import Callable

_LONG = 300.0


class Connection:
    """End of a pipe whose other end answers pings with what a test sets."""

    def __init__(self) -> None:
        self.sent = 0
        self.ready = True
        self.answers = True

    def send(self, _: bytes) -> None:
        self.sent += 1

    def poll(self, timeout: float = 0.0) -> bool:
        assert timeout == 0, "the parent waits for a process"
        return self.answers

    def recv(self) -> bool:
        return self.ready


class Worker:
    """A process that ends when a test says so."""

    def __init__(self, *_: Any) -> None:
        self.parent_conn = Connection()
        self.process = self
        self.pid = 1
        self.exitcode: int | None = None
        self.started = False

    def is_alive(self) -> bool:
        return self.exitcode is None

    def start(self) -> None:
        self.started = True

    def kill(self) -> None:
        if self.exitcode is None:
            self.exitcode = -signal.SIGKILL

    def join(self) -> None:
        assert self.exitcode is not None


class Parent:
    """A parent of two such processes, and a clock that a test sets."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.now = 0.0
        self.turn(0.0)
        self.turn(0.0)

    @property
    def workers(self) -> list[Any]:
        """The processes of the moment."""
        return self.supervisor.processes

    def turn(self, seconds: float) -> None:
        """Let some time pass, and the parent look at its processes."""
        self.now += seconds
        self.supervisor.keep_subprocess_alive()

    def wait_for_start(self, i: int) -> float:
        """Return after how many seconds another process is started in the place of one."""
        before, since = self.workers[i], self.now
        while self.workers[i] is before:
            self.turn(0.5)
        return self.now - since


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Parent:
    """Return a parent whose two processes serve; signal handlers are as before afterwards."""
    kept = {number: signal.getsignal(number) for number in signal.valid_signals()}
    monkeypatch.setattr(supervisor_module, "Process", Worker)
    supervisor = Supervisor(uvicorn.Config("app", workers=2, timeout_worker_healthcheck=600), [])
    for number, handler in kept.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
    supervisor.processes = [Worker(), Worker()]  # type: ignore[list-item]
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr(supervisor_module, "time", clock)
    found = Parent(supervisor)
    clock.monotonic = lambda: found.now
    return found


def test_a_process_that_served_is_replaced_at_once(parent: Parent) -> None:
    parent.workers[0].exitcode = -signal.SIGKILL
    parent.turn(0.5)
    assert [worker.exitcode for worker in parent.workers] == [None, None]
    assert parent.workers[0].started


@pytest.mark.parametrize("how", [STARTUP_FAILURE, -signal.SIGKILL])
def test_a_start_that_fails_is_tried_again_with_growing_waits_while_another_serves(
    parent: Parent, how: int
) -> None:
    parent.workers[0].exitcode = how
    parent.turn(0.5)
    waits = []
    for _ in range(10):
        parent.workers[0].exitcode = how
        parent.workers[0].parent_conn.ready = False
        waits.append(parent.wait_for_start(0))
    assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 64, 128, 256, 300], abs=0.5)
    assert not parent.supervisor.should_exit.is_set()
    # Once one serves, the next is started at once again, and a failure after it waits a second.
    parent.turn(0.5)
    parent.turn(0.5)
    parent.workers[0].exitcode = -signal.SIGTERM
    parent.turn(0.5)
    assert parent.workers[0].exitcode is None
    parent.workers[0].exitcode = how
    assert parent.wait_for_start(0) == pytest.approx(1, abs=0.5)


def test_it_gives_up_once_none_is_left_and_none_can_be_started(parent: Parent) -> None:
    for worker in parent.workers:
        worker.exitcode = -signal.SIGKILL
    parent.turn(0.5)
    for worker in parent.workers:
        assert not parent.supervisor.gave_up
        worker.exitcode = STARTUP_FAILURE
        parent.turn(0.5)
    assert parent.supervisor.gave_up
    assert parent.supervisor.should_exit.is_set()


def test_processes_that_are_killed_while_they_start_are_started_again(parent: Parent) -> None:
    for _ in range(3):
        for worker in parent.workers:
            worker.exitcode = -signal.SIGKILL
        parent.turn(0.5)
        parent.turn(10)
    assert not parent.supervisor.gave_up
    assert [worker.exitcode for worker in parent.workers] == [None, None]


def test_a_process_that_does_not_answer_is_pinged_once_and_replaced_after_the_timeout(parent: Parent) -> None:
    silent = parent.workers[0]
    silent.parent_conn.answers = False
    sent = silent.parent_conn.sent
    for _ in range(1100):
        parent.turn(0.5)
    assert silent.parent_conn.sent <= sent + 1  # else the pipe fills up and stops the parent
    assert parent.workers[0] is silent
    parent.turn(60)
    assert silent.exitcode == -signal.SIGKILL
    assert parent.workers[0] is not silent


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_end_stops_a_reload_that_waits_for_a_new_process(
    parent: Parent, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    begun: list[Worker] = []

    class Starting(Worker):
        wait_until_ready = multiprocess.Process.wait_until_ready

        def start(self) -> None:
            begun.append(self)

        def is_ready(self, timeout: float) -> bool:
            assert not parent.supervisor.signal_queue, "the reload goes on"
            parent.supervisor.signal_queue.append(number)  # as the handler does
            return False

    monkeypatch.setattr(multiprocess, "Process", Starting)
    old = list(parent.workers)
    parent.supervisor.restart_all()
    assert [worker.exitcode for worker in begun] == [-signal.SIGKILL]
    assert parent.workers == old
    old[0].exitcode = -signal.SIGKILL
    parent.turn(0.5)
    assert parent.workers == old  # and none is started in the place of one that ended
    parent.supervisor.handle_signals()
    assert parent.supervisor.should_exit.wait(0)


# Processes.


def processes_of(service: Served) -> set[int]:
    """Return the ids of the processes that serve."""
    tasks = Path(f"/proc/{service.pid}/task").iterdir()
    children = {int(child) for task in tasks for child in (task / "children").read_text().split()}
    return {child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()}


def until(holds: Callable[[], bool], why: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + _LONG
    while not holds():
        assert time.monotonic() < end, why
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists the processes of the service")
def test_a_process_that_cannot_be_started_for_a_while_takes_no_other_with_it(tmp_path: Path) -> None:
    with served(tmp_path, workers=2) as service:
        told = service.folder / "stderr.txt"
        until(lambda: told.read_text().count('"event": "start"') >= 2, "not both processes start")
        victim = min(processes_of(service))
        away = service.config.rename(tmp_path / "away.yaml")
        os.kill(victim, signal.SIGKILL)
        until(lambda: told.read_text().count("process not started") >= 2, "it is not tried again")
        assert httpx.get(f"http://127.0.0.1:{service.port}/ready", timeout=60).status_code == 200
        away.rename(service.config)
        until(lambda: told.read_text().count('"event": "start"') >= 3, "it is not started")
        assert len(processes_of(service)) == 2
        # If none is left, the service ends with an error.
        service.config.rename(away)
        for process in processes_of(service):
            os.kill(process, signal.SIGKILL)
        assert service._process is not None
        assert service._process.wait(_LONG) == 1
        assert "none could be started in their place" in told.read_text()
