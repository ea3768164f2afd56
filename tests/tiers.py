"""The tiers of the tests, and the guard that keeps processes out of the fast one.

A test with the marker `slow` may start processes, engines and browsers; one with the marker `stats` may take
as long as it needs; every other test is fast. An audit hook sees every way in which Python starts a process,
also inside a library; during a fast test it refuses.
"""

from __future__ import annotations

import _posixsubprocess
import contextlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system", "os.exec", "os.spawn"}


def is_slower(item: pytest.Item) -> bool:
    """Say whether a test is marked as one that may start processes."""
    return any(item.get_closest_marker(name) is not None for name in ("slow", "stats"))


class ProcessStarted(AssertionError):
    """Raised where a fast test starts a process."""


class _Guard:
    """Refuses the start of processes while it is closed, and remembers what it has refused."""

    def __init__(self) -> None:
        self.closed = False
        self.refused: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.closed and event in _STARTS:
            self.refused.append(f"{event} {arguments[0] if arguments else ''}".strip())
            raise ProcessStarted(f"a fast test starts a process ({self.refused[-1]}); mark it slow")


_guard = _Guard()


def install() -> None:
    """Let the guard see every start of a process from now on; audit hooks cannot be taken away again."""
    sys.addaudithook(_guard)
    # multiprocessing and loky spawn their workers below what is audited.
    start = _posixsubprocess.fork_exec

    def fork_exec(*arguments: Any) -> int:
        _guard("os.spawn", ())
        return start(*arguments)

    vars(_posixsubprocess)["fork_exec"] = fork_exec


@contextlib.contextmanager
def without_processes() -> Iterator[None]:
    """Refuse to start processes inside the block; fail at its end where a caught exception hid a refusal."""
    before = _guard.closed, _guard.refused
    refused: list[str] = []
    _guard.closed, _guard.refused = True, refused
    try:
        yield
    finally:
        _guard.closed, _guard.refused = before
    if refused:
        raise ProcessStarted(f"a fast test starts a process ({', '.join(refused)}); mark it slow")


@contextlib.contextmanager
def with_processes() -> Iterator[None]:
    """Allow processes inside the block, for a server that the whole session shares."""
    before, _guard.closed = _guard.closed, False
    try:
        yield
    finally:
        _guard.closed = before
