"""Audit log of releases and refusals: user, time, declaration and cost of every run.

The log has one line of JSON per event, and each line has the hash of the one before, so that changed, removed
and inserted lines are detected. A permanent log is kept beside the ledger and gets the lines of every run; a
release carries a copy in ``internal/audit.jsonl``.
"""

from __future__ import annotations

import errno
import fcntl
import getpass
import hashlib
import json
import os
import platform
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from discreet.errors import SourceError
from discreet.privacy.receipt import canonical, installed_versions, now

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FILE = "audit.jsonl"
TUNED = "tuned"
"""Event after which statements say that the noise was tuned on private rows."""
_START = "0" * 64  # hash that the first line names as that of the line before it


class _LinePosition(NamedTuple):
    """Number and hash of a line in the log."""

    seq: int
    hash: str


_BEGINNING = _LinePosition(0, _START)
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "duckdb", "cryptography")


class AuditLog:
    """Hash-chained log of events, in a file or in memory.

    Parameters
    ----------
    path : Path or None
        File of the permanent log; None keeps the lines of this run in memory.

    Privacy
    -------
    Internal: a line may contain the number of rows and the reason of a refusal.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lines_in_memory: list[bytes] = []
        self._position = _BEGINNING
        self._end: tuple[int, int] | None = None

    def write(self, event: str, **facts: Any) -> None:
        """Append one event; `facts` are plain JSON values."""
        self.write_all([(event, facts)])

    def write_all(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Append several events, all or none."""
        if self.path is None:
            lines, self._position = _lines(self._position, events)
            self._lines_in_memory += lines
            return
        with _open_locked(self.path) as handle:
            status = os.fstat(handle)
            # If no other process has written since, the last line is the one that this process wrote.
            if self._end != (status.st_ino, status.st_size):
                self._position, _ = _last_position(handle)
            self._position = _append(handle, self._position, events)
            self._end = (status.st_ino, os.fstat(handle).st_size)

    def repair(self) -> None:
        """Cut off an incomplete last line, left by a power failure, and record that.

        Nothing was published for it, since a line is written before its event takes effect.
        """
        if self.path is not None and self.path.exists():
            with _open_locked(self.path) as handle:
                position, torn = _last_position(handle)
                if torn:
                    _append(handle, position, [("cut", {"bytes": torn})])

    def begin(self, **facts: Any) -> None:
        """Append the event "begin" with user name, machine and versions."""
        self.write("begin", who=_user_name(), versions=installed_versions(_LIBRARIES), **facts)

    def mentions(self, event: str) -> bool:
        """Return whether the log has such an event, from this run or an earlier one."""
        lines = (
            self._lines_in_memory
            if self.path is None or not self.path.exists()
            else self.path.read_bytes().splitlines()
        )
        try:
            return any(json.loads(line)["event"] == event for line in lines if line)
        except (ValueError, KeyError, TypeError):
            raise SourceError(
                f"Every line of the audit log {str(self.path)!r} must be one of ours, and some is not: the "
                "log was changed. Move it away to begin a new one, and find out who did that."
            ) from None

    def copy(self, target: Path) -> None:
        """Write a copy of the whole log, earlier runs included, to a file."""
        content = b"".join(self._lines_in_memory) if self.path is None else self.path.read_bytes()
        target.write_bytes(content)


def read_log(path: Path, *, last: int | None = None) -> bytes:
    """Return the content of a permanent log, without a line that is just being written.

    Parameters
    ----------
    last : int, optional
        Number of bytes at its end; None returns all.
    """
    try:
        with path.open("rb") as file:
            # Lines are only ever added, so the lock is needed for the size alone.
            fcntl.flock(file, fcntl.LOCK_SH)
            size = os.fstat(file.fileno()).st_size
            fcntl.flock(file, fcntl.LOCK_UN)
            file.seek(0 if last is None else max(0, size - last))
            return file.read(size - file.tell())
    except OSError as problem:
        raise SourceError(
            f"The audit log {str(path)!r} must be a file that can be read, and is not ({problem.strerror}). "
            "Look whether it is still there."
        ) from None


def check_log(path: Path) -> int:
    """Verify the hash chain of a log and return its number of lines.

    Raises
    ------
    SourceError
        The message names the first line that does not follow from the one before. Lines removed at the end
        and a log rewritten from some line on are not detected: compare with a copy.
    """
    previous = _START
    lines = read_log(path).split(b"\n")
    for number, text in enumerate(lines[:-1], 1):
        try:
            content = json.loads(text)
            claimed = content.pop("hash")
            fits = content["seq"] == number and content["previous"] == previous and claimed == _hash(content)
        except (ValueError, KeyError, AttributeError, TypeError):
            fits = False
        if not fits:
            raise SourceError(
                f"Line {number} of {str(path)!r} must follow from the line before it, and does not: the log "
                "was changed. Compare it with a copy."
            )
        previous = claimed
    if lines[-1]:
        raise SourceError(f"The last line of {str(path)!r} must be whole, and is not.")
    return len(lines) - 1


def _user_name() -> str:
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (OSError, KeyError):  # a container may run under a number without a name
        return f"{os.getuid()}@{platform.node()}"


def _lines(
    position: _LinePosition, events: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[list[bytes], _LinePosition]:
    """Return the lines of events that follow a position, and the position of the last line."""
    lines = []
    time, process = now(), os.getpid()
    for event, facts in events:
        content = {
            "seq": position.seq + 1,
            "time": time,
            "process": process,
            "event": event,
            **facts,
            "previous": position.hash,
        }
        position = _LinePosition(position.seq + 1, _hash(content))
        lines.append((canonical({**content, "hash": position.hash}) + "\n").encode())
    return lines, position


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()


@contextmanager
def _open_locked(path: Path) -> Iterator[int]:
    """Return a context with a handle of the permanent log, under an exclusive lock."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    except OSError as problem:
        raise SourceError(
            f"The audit log {str(path)!r} cannot be written ({problem.strerror}). It is kept beside the "
            "ledger; choose another --ledger, in a folder that may be written to."
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield handle
    finally:
        os.close(handle)


def _append(
    handle: int, position: _LinePosition, events: Sequence[tuple[str, Mapping[str, Any]]]
) -> _LinePosition:
    """Append the lines of events, all or none, and return the position of the last line."""
    lines, end = _lines(position, events)
    text, before = b"".join(lines), os.fstat(handle).st_size
    # A full disk may take a part of the text; half a line would break the chain.
    if os.write(handle, text) != len(text):
        os.ftruncate(handle, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return end


def _last_position(handle: int) -> tuple[_LinePosition, int]:
    """Cut off an incomplete last line; return the position of the last complete one and the bytes cut."""
    size = os.fstat(handle).st_size
    tail, start = b"", size
    # Two line ends: that of the last complete line, and the one before its start.
    while start and tail.count(b"\n") < 2:
        step = min(start, 1 << 16)
        start -= step
        tail = os.pread(handle, step, start) + tail
    whole = tail[: tail.rfind(b"\n") + 1]
    torn = len(tail) - len(whole)
    os.ftruncate(handle, size - torn)
    lines = whole.splitlines()
    if not lines:
        return _BEGINNING, torn
    try:
        content = json.loads(lines[-1])
        return _LinePosition(int(content["seq"]), str(content["hash"])), torn
    except (ValueError, KeyError, TypeError):
        raise SourceError(
            "The last line of the audit log beside the ledger must be one of ours, and is not: the log was "
            "changed. Move it away to begin a new one, and find out who did that."
        ) from None
