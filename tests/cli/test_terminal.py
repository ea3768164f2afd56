"""The prompt on a terminal: completion, Ctrl-C, Ctrl-D and the history of the session before."""

from __future__ import annotations

import os
import pty
import select
import sys
from typing import TYPE_CHECKING, Self

import pytest

from discreet.ledger import Ledger
from discreet.privacy import ApproxDP

if TYPE_CHECKING:
    from pathlib import Path

TAB, CTRL_C, CTRL_D, UP = b"\t", b"\x03", b"\x04", b"\x1b[A"
READY, PAY = b"left> ", b"Pay? [Y/n] "


class Terminal:
    """The command in a pseudo-terminal, as a person would run it."""

    def __init__(self, cwd: Path, *arguments: str) -> None:
        environment = os.environ | {"TERM": "xterm", "INPUTRC": os.devnull}
        self.pid, self.handle = pty.fork()
        if self.pid == 0:  # pragma: no cover - the child
            os.chdir(cwd)
            program = [sys.executable, "-m", "discreet", "query", *arguments]
            os.execve(program[0], program, environment)
        self.seen = b""

    def wait_for(self, mark: bytes) -> bytes:
        """Return what was printed up to a mark."""
        while mark not in self.seen:
            if not select.select([self.handle], [], [], 120)[0]:
                raise AssertionError(f"{mark!r} did not come after {self.seen!r}")
            try:
                piece = os.read(self.handle, 4096)
            except OSError:  # the other end is closed
                piece = b""
            if not piece:
                raise AssertionError(f"ended before {mark!r}: {self.seen!r}")
            self.seen += piece
        before, _, self.seen = self.seen.partition(mark)
        return before

    def type(self, after: bytes, keys: bytes) -> bytes:
        """Wait for a mark, then type; return what was printed before the mark."""
        before = self.wait_for(after)
        os.write(self.handle, keys)
        return before

    def interrupt(self, after: bytes) -> None:
        """Wait for a mark, then type Ctrl-C until something is printed.

        Python misses a signal that comes between a key and its next wait for one; a person types it again.
        """
        self.type(after, CTRL_C)
        while not select.select([self.handle], [], [], 10)[0]:
            os.write(self.handle, CTRL_C)

    def end(self) -> int:
        """Return the exit code, once the rest of the output was read."""
        try:
            while os.read(self.handle, 4096):
                pass
        except OSError:
            pass
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.handle)


@pytest.mark.slow
def test_a_session_on_a_terminal(tmp_path: Path) -> None:
    place = ("demo:clinic", "--ledger", "c.ledger")
    with Ledger.open(tmp_path / "c.ledger", limit=ApproxDP(epsilon=1, delta=1e-6, unit="patient")):
        pass
    with Terminal(tmp_path, *place, "--epsilon", "0.1") as first:
        first.type(READY, b"count where diagnosis = 'm" + TAB + b"\n")
        assert b"rows at 95 %" in first.type(PAY, b"ye")
        first.interrupt(b"ye")  # its echo shows that the line is being read
        assert b"nothing was paid" in first.type(READY, b"count where")
        first.interrupt(b"count where")
        first.type(READY, b"count where diagnosis = 'm" + TAB + b"\n")
        first.type(PAY, b"y\n")
        assert b"95 %: " in first.type(READY, b"nonsense(\n")
        first.type(READY, CTRL_D)
        assert first.end() == 0
    with Terminal(tmp_path, *place, "--epsilon", "0.1", "--no-history") as second:
        second.type(READY, UP + b"\n")
        second.type(READY, CTRL_D)
        assert second.end() == 0
    with Terminal(tmp_path, *place, "--epsilon", "0.1") as third:
        third.type(READY, UP + UP + b"\n")
        assert b"Free: it was paid for before" in third.type(READY, b"\\q\n")
        assert third.end() == 0
    with Ledger.open(tmp_path / "c.ledger") as ledger:
        assert ledger.spent().charges == 1
