"""Audit log: who released what, when, from which declaration, at what cost; refusals too.

One line of JSON for each event, and in each line the hash of the one before, so that a line which was
changed, removed or put in between shows. A lasting log is kept beside the ledger and gets the lines of every
run, also of those that were refused; a release carries a copy in ``internal/audit.jsonl``.
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
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple

from discreet.errors import SourceError
from discreet.privacy.receipt import canonical, now, product_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

FILE = "audit.jsonl"
TUNED = "tuned"
"""Event after which statements say that the noise was tuned on private rows."""
_START = "0" * 64  # hash that the first line names as that of the line before it


class _Place(NamedTuple):
    """Number and hash of a line."""

    seq: int
    hash: str


_BEGINNING = _Place(0, _START)
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "duckdb", "cryptography")


class AuditLog:
    """Lines of one run, appended to a lasting log where there is one.

    Parameters
    ----------
    path : Path or None
        File of the lasting log; None keeps the lines of this run in memory.

    Privacy
    -------
    Internal: a line may say how many rows there were and why a run was refused.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._own: list[bytes] = []
        self._place = _BEGINNING
        self._end: tuple[int, int] | None = None

    def write(self, event: str, **facts: Any) -> None:
        """Append one event; `facts` are plain JSON values."""
        self.write_all([(event, facts)])

    def write_all(self, events: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Append several events, all or none."""
        if self.path is None:
            lines, self._place = _lines(self._place, events)
            self._own += lines
            return
        with _locked(self.path) as handle:
            found = os.fstat(handle)
            # If no other process has written since, the last line is the one that this process wrote.
            if self._end != (found.st_ino, found.st_size):
                self._place, _ = _last_place(handle)
            self._place = _append(handle, self._place, events)
            self._end = (found.st_ino, os.fstat(handle).st_size)

    def mend(self) -> None:
        """Cut off what a power failure left of a last line, and record that.

        What the line was about was never published: the line is written first.
        """
        if self.path is not None and self.path.exists():
            with _locked(self.path) as handle:
                place, torn = _last_place(handle)
                if torn:
                    _append(handle, place, [("cut", {"bytes": torn})])

    def begin(self, **facts: Any) -> None:
        """Append the event "begin" with user, machine and versions."""
        self.write("begin", who=_who(), versions=versions(), **facts)

    def mentions(self, event: str) -> bool:
        """Return whether there ever was such an event, in this run or an earlier one."""
        lines = (
            self._own if self.path is None or not self.path.exists() else self.path.read_bytes().splitlines()
        )
        try:
            return any(json.loads(line)["event"] == event for line in lines if line)
        except (ValueError, KeyError, TypeError):
            raise SourceError(
                f"Every line of the audit log {str(self.path)!r} must be one of ours, and some is not: the "
                "log was changed. Move it away to begin a new one, and find out who did that."
            ) from None

    def copy(self, target: Path) -> None:
        """Write everything so far, earlier runs included, into the internal folder of a release."""
        content = b"".join(self._own) if self.path is None else self.path.read_bytes()
        target.write_bytes(content)


def read_log(path: Path, *, last: int | None = None) -> bytes:
    """Return the content of a lasting log, without half of a line that is just being written.

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
    """Verify that no line was changed, removed or put in between; return how many there are.

    Raises
    ------
    SourceError
        Names the first line that does not fit. Lines cut off at the end, and a log that was written anew from
        some line on, do not show: compare with a copy.
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


def versions() -> dict[str, str]:
    """Return the versions of all packages that decide about noise, for the log."""
    found = {"discreet": product_version(), "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in _LIBRARIES}


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (OSError, KeyError):  # a container may run under a number without a name
        return f"{os.getuid()}@{platform.node()}"


def _lines(place: _Place, events: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[list[bytes], _Place]:
    """Return the lines of some events, and where they end."""
    lines = []
    time, process = now(), os.getpid()
    for event, facts in events:
        content = {
            "seq": place.seq + 1,
            "time": time,
            "process": process,
            "event": event,
            **facts,
            "previous": place.hash,
        }
        place = _Place(place.seq + 1, _hash(content))
        lines.append((canonical({**content, "hash": place.hash}) + "\n").encode())
    return lines, place


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(content).encode()).hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open the lasting log so that no other run appends meanwhile."""
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


def _append(handle: int, place: _Place, events: Sequence[tuple[str, Mapping[str, Any]]]) -> _Place:
    """Write some lines at the end, whole or not at all; return where they end."""
    lines, end = _lines(place, events)
    text, before = b"".join(lines), os.fstat(handle).st_size
    if os.write(handle, text) != len(text):
        os.ftruncate(handle, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return end


def _last_place(handle: int) -> tuple[_Place, int]:
    """Return where the last whole line is, and how much of a torn one after it was cut off."""
    size = os.fstat(handle).st_size
    tail, start = b"", size
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
        return _Place(int(content["seq"]), str(content["hash"])), torn
    except (ValueError, KeyError, TypeError):
        raise SourceError(
            "The last line of the audit log beside the ledger must be one of ours, and is not: the log was "
            "changed. Move it away to begin a new one, and find out who did that."
        ) from None
