"""The parent of several processes: it starts another one in the place of each that has ended."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from discreet.server.monitoring import log

if TYPE_CHECKING:
    import socket

    import uvicorn

_FIRST_WAIT = 1.0  # seconds until a start that failed is tried again
_LONGEST_WAIT = 300.0  # as for a table that is lost
_ENDING = {getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(signal, name)}


class _ExitEvent(threading.Event):
    """Event that counts as set once a signal to end is in the queue, though it was not handled yet.

    A signal handler must not set an event on which its own thread may be waiting: it could wait for ever.
    """

    def __init__(self, queue: list[int]) -> None:
        super().__init__()
        self._queue = queue

    def is_set(self) -> bool:
        return super().is_set() or not _ENDING.isdisjoint(self._queue)


@dataclass
class _State:
    """What the parent knows of a process.

    Attributes
    ----------
    wait : float
        Seconds until its start is tried again, should it fail.
    served : bool
        Whether it has been ready at any time.
    asked : float or None
        Time of a ping that it has not answered yet.
    again : float or None
        Time from which another process is started in its place; None while it runs.
    """

    wait: float = _FIRST_WAIT
    served: bool = False
    asked: float | None = None
    again: float | None = None


class Supervisor(Multiprocess):
    """Parent of several processes, which goes on while one of them serves.

    A process that ended after it had served is replaced at once. Where one cannot be started, for instance
    because the ledger is away, another is tried after one second, then after twice as long each time, five
    minutes at most. The parent waits for a process only while it replaces one on SIGHUP or SIGTTOU. A signal
    to end stops a reload within about a second while a new process starts, and otherwise when the old one,
    which finishes its requests, has ended.

    Parameters
    ----------
    config : uvicorn.Config
        Settings of each process.
    sockets : list of socket
        Sockets on which all processes listen.

    Attributes
    ----------
    gave_up : bool
        Whether it ended because no process was left and none could be started.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        self.should_exit = _ExitEvent(self.signal_queue)
        self.gave_up = False
        self._states: WeakKeyDictionary[Process, _State] = WeakKeyDictionary()

    def keep_subprocess_alive(self) -> None:
        """Replace processes that have ended; stop if none is left and the last one could not be started."""
        if self.should_exit.is_set():
            return
        now = time.monotonic()
        for i, process in enumerate(self.processes):
            state = self._states.setdefault(process, _State())
            if state.again is None and not self._runs(process, state, now):
                self._bury(process, state, now)
            if state.again is not None and now >= state.again:
                self._replace(i, state)
        if all(self._could_not_start(process) for process in self.processes):
            self.gave_up = True
            self.should_exit.set()

    def _runs(self, process: Process, state: _State, now: float) -> bool:
        """Return whether a process runs and answers pings in time; send it one unless one is on its way."""
        if not process.process.is_alive():
            return False
        try:
            if state.asked is not None and process.parent_conn.poll():
                state.served |= process.parent_conn.recv()
                state.asked = None
            if state.asked is None:
                process.parent_conn.send(b"ping")
                state.asked = now
        except (OSError, EOFError):
            return False
        return now - state.asked < self.config.timeout_worker_healthcheck

    def _bury(self, process: Process, state: _State, now: float) -> None:
        """Remove what is left of a process, and decide when another one is started in its place."""
        process.kill()
        process.join()
        if state.served:
            state.wait, state.again = _FIRST_WAIT, now
            log("process ended", ended=process.pid)
        else:
            state.again = now + state.wait
            log("process ended", ended=process.pid, next_start_in=state.wait)

    def _replace(self, i: int, state: _State) -> None:
        """Start another process in the place of one that has ended."""
        self.processes[i] = Process(self.config, self.sockets)
        self._states[self.processes[i]] = _State(
            wait=state.wait if state.served else min(_LONGEST_WAIT, 2 * state.wait)
        )
        self.processes[i].start()

    def _could_not_start(self, process: Process) -> bool:
        """Return whether a process ended because it could not be started."""
        return self._states[process].again is not None and process.exitcode == STARTUP_FAILURE
