"""Audit log of releases and refusals: user, time, declaration and cost of every run.

The log has one line of JSON per event, and each line has the hash of the one before, so that changed, removed
and inserted lines are detected; ``log_verification`` reads it. A permanent log is kept beside the ledger and
gets the lines of every run; a release carries a copy in ``internal/audit.jsonl``. The log of a service is
rotated: a full file gets the number of its first line as its suffix, and the next one goes on with the
same chain.
"""

from __future__ import annotations

import errno
import getpass
import hashlib
import json
import os
import platform
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from discreet.errors import SourceError
from discreet.file_system import BINARY, lock_file
from discreet.privacy.receipt import canonical, installed_versions, now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

FILE = "audit.jsonl"
TUNED = "tuned"
"""Event after which statements say that the noise was tuned on private rows."""
ROTATED = "rotated"
"""Event of the first line of a file that goes on with the chain of another file."""
START = "0" * 64
"""Hash that the first line names as that of the line before it."""


class LinePosition(NamedTuple):
    """Number and hash of a line in the log."""

    seq: int
    hash: str


_BEGINNING = LinePosition(0, START)
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
            lines, self._position = chain_lines(self._position, events)
            self._lines_in_memory += lines
            return
        with _open_locked(self.path) as handle:
            status = os.fstat(handle)
            # If no other process has written since, the last line is the one that this process wrote.
            if self._end != (status.st_ino, status.st_size):
                position, _ = _last_position(handle)
                if position.seq < self._position.seq:
                    raise SourceError(
                        f"The audit log {str(self.path)!r} must have line {self._position.seq}, which this "
                        "process wrote or read, and ends before it: it was cut, moved or replaced. Put it "
                        "back."
                    )
                self._position = position
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

    @property
    def size(self) -> int:
        """Bytes of the file after the last line that this process wrote."""
        return 0 if self._end is None else self._end[1]

    def rotate(self, summarize: Callable[[Iterable[bytes]], Mapping[str, Any]]) -> Path | None:
        """Begin a new file that goes on with the chain, and return where the old one is now.

        Parameters
        ----------
        summarize : callable
            Function that is given the lines of the old file, while no other process writes, and returns the
            facts of the new file's first line.

        Returns
        -------
        Path or None
            The old file, which is named by the number of its first line; None if it had no line.
        """
        assert self.path is not None
        with _open_locked(self.path) as handle:
            position, _ = _last_position(handle)
            if not position.seq:
                return None
            with self.path.open("rb") as file:
                first = json.loads(file.readline())["seq"]
                file.seek(0)
                facts = summarize(file)
            old = self.path.with_name(f"{self.path.name}.{first}")
            draft = self.path.with_name(f".{self.path.name}.{os.getpid()}.new")
            os.fsync(handle)
            with suppress(FileNotFoundError):
                draft.unlink()
            new = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | BINARY, 0o600)
            try:
                self._position = _append(new, position, [(ROTATED, facts)])
                os.fsync(new)
                # Killed after the link, the log is one file under two names, and goes on as if nothing
                # had happened; after the rename the new file is in place, with the hash of the old one.
                if not (old.exists() and old.samefile(self.path)):
                    old.hardlink_to(self.path)
                draft.rename(self.path)
                self._end = (os.fstat(new).st_ino, os.fstat(new).st_size)
            finally:
                draft.unlink(missing_ok=True)
                os.close(new)
        return old

    @contextmanager
    def snapshot(self) -> Iterator[LogSnapshot]:
        """Return a context with the present files of the log; no line is added until its first release."""
        assert self.path is not None
        with ExitStack() as opened:
            held = opened.enter_context(ExitStack())
            held.enter_context(_open_locked(self.path))
            files = {}
            rotated = [path for path in rotated_files(self.path) if not path.samefile(self.path)]
            for path in (*rotated, self.path):
                file = opened.enter_context(path.open("rb"))
                files[path.name.removeprefix(self.path.name)] = file, os.fstat(file.fileno()).st_size
            yield LogSnapshot(files, held.close)

    def sync(self) -> None:
        """Wait until all lines are on disk."""
        assert self.path is not None
        with self.path.open("rb") as file:
            os.fsync(file.fileno())

    def check_writable(self) -> None:
        """Check that the file can be written."""
        assert self.path is not None
        with self.path.open("ab"):
            pass

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


class LogSnapshot(NamedTuple):
    """Files of a log at one moment.

    Attributes
    ----------
    files : mapping of str to (file, int)
        Open files by what their names add to that of the log, oldest first, each with its size then.
    release : callable
        Function that lets other processes add lines again.
    """

    files: Mapping[str, tuple[BinaryIO, int]]
    release: Callable[[], None]

    def copy(self, path: Path) -> None:
        """Write the lines of that moment to a log at another path, with its rotated files beside it."""
        for suffix, (file, size) in self.files.items():
            rest = size
            with path.with_name(path.name + suffix).open("xb") as target:
                while part := file.read(min(rest, 1 << 20)):
                    target.write(part)
                    rest -= len(part)


def rotated_files(path: Path) -> list[Path]:
    """Return the files beside a log that have its name and the number of a line, oldest first."""
    names = (name for name in path.parent.glob(f"{path.name}.*") if name.suffix[1:].isdigit())
    return sorted(names, key=lambda name: int(name.suffix[1:]))


def _user_name() -> str:
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (OSError, KeyError):  # a container may run under a number without a name
        return f"{os.getuid() if hasattr(os, 'getuid') else 'unknown'}@{platform.node()}"


def chain_lines(
    position: LinePosition, events: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[list[bytes], LinePosition]:
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
        position = LinePosition(position.seq + 1, hash_line(content))
        lines.append((canonical({**content, "hash": position.hash}) + "\n").encode())
    return lines, position


def hash_line(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 digest of a line without its hash."""
    return hashlib.sha256(canonical(content).encode()).hexdigest()


@contextmanager
def _open_locked(path: Path) -> Iterator[int]:
    """Return a context with a handle of the permanent log, under an exclusive lock."""
    handle = _lock(path)
    while not _is_current(handle, path):
        # Another process rotated the log while this one waited for the lock.
        os.close(handle)
        handle = _lock(path)
    try:
        yield handle
    finally:
        os.close(handle)


def _lock(path: Path) -> int:
    """Return a handle of the permanent log, locked exclusively; the file is made if it is not there."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | BINARY, 0o600)
    except OSError as problem:
        raise SourceError(
            f"The audit log {str(path)!r} cannot be written ({problem.strerror}). It is kept beside the "
            "ledger; choose another --ledger, in a folder that may be written to."
        ) from None
    lock_file(handle)
    return handle


def _is_current(handle: int, path: Path) -> bool:
    """Return whether a handle is that of the file that has the log's name now."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _append(
    handle: int, position: LinePosition, events: Sequence[tuple[str, Mapping[str, Any]]]
) -> LinePosition:
    """Append the lines of events, all or none, and return the position of the last line."""
    lines, end = chain_lines(position, events)
    text, before = b"".join(lines), os.fstat(handle).st_size
    # A full disk may take a part of the text; half a line would break the chain.
    if os.write(handle, text) != len(text):
        os.ftruncate(handle, before)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return end


def _last_position(handle: int) -> tuple[LinePosition, int]:
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
        return LinePosition(int(content["seq"]), str(content["hash"])), torn
    except (ValueError, KeyError, TypeError):
        raise SourceError(
            "The last line of the audit log beside the ledger must be one of ours, and is not: the log was "
            "changed. Move it away to begin a new one, and find out who did that."
        ) from None
