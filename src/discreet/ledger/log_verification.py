"""Verification of an audit log: its chain over all its files, and the line that a ledger has anchored.

A ledger keeps number, hash and place of a line (:class:`~discreet.ledger.records.LogAnchor`). A log that was
cut before that line, replaced or deleted does not have it; what was written after it is verified from there,
without reading the rest.
"""

from __future__ import annotations

import errno
import json
import os
from collections import deque
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from discreet.batching import in_parts
from discreet.errors import LedgerUnavailable, SourceError
from discreet.file_system import lock_file, unlock_file
from discreet.ledger.audit_log import ROTATED, START, hash_line, rotated_files
from discreet.ledger.records import LogAnchor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from discreet.ledger.postgres_log import PostgresLog, PostgresPart

_CHANGED = "the log was changed. Compare it with a copy"


class _LogFile(NamedTuple):
    """One file of a log, opened, with its size at one moment and the text of its first line."""

    handle: BinaryIO
    size: int
    head_text: bytes

    @property
    def name(self) -> str:
        """Path of the file."""
        return str(self.handle.name)

    def lines(self, start: int) -> Iterator[tuple[int, bytes]]:
        """Yield where each line begins, and the line; a line that was not finished is left out."""
        self.handle.seek(start)
        while start < self.size:
            text = self.handle.readline(self.size - start)
            if not text.endswith(b"\n"):
                return
            yield start, text
            start += len(text)

    def last_lines(self, most: int) -> tuple[list[bytes], int]:
        """Return the complete lines in the last `most` bytes, newest first, and how many bytes were read."""
        start = max(0, self.size - most)
        self.handle.seek(start)
        parts = self.handle.read(self.size - start).split(b"\n")
        # The part may begin inside a line, and end with what a power failure left of one.
        return parts[1 if start else 0 : -1][::-1], self.size - start


class _LogPart(NamedTuple):
    """A file of a log, or what stands for one in a database, with its parsed first line."""

    lines: Callable[[int], Iterator[tuple[int, bytes]]]
    last_lines: Callable[[int], tuple[list[bytes], int]]
    name: str
    head: dict[str, Any]

    @property
    def first(self) -> int:
        """Number of its first line."""
        return int(self.head["seq"])


def verify_log(
    path: Path | PostgresLog,
    anchors: Iterable[LogAnchor] = (),
    *,
    whole: bool = False,
    on_line: Callable[[dict[str, Any]], None] | None = None,
) -> LogAnchor | None:
    """Verify the hash chain of a log, and return its last line as a ledger anchors it.

    Parameters
    ----------
    path : Path or PostgresLog
        File that the log is written to, with files that were rotated beside it; or the log in a database.
    anchors : iterable of LogAnchor
        Lines that the log must have; it is verified after the first of them. Without any, it is verified
        from the first line of the file.
    whole : bool
        Whether the files that were rotated and are still there are verified too.
    on_line : callable, optional
        Function that is called with every line that was verified.

    Returns
    -------
    LogAnchor or None
        The last line; None if the log has none. A line that a power failure cut off is not counted.

    Raises
    ------
    SourceError
        The message names the first line that does not follow from the one before, or says that an anchored
        one is missing. Without an anchor, lines removed at the end and a log that was replaced as a whole are
        not detected.
    """
    missed = deque(sorted(anchors, key=lambda anchor: anchor.line))
    with ExitStack() as opened:
        files = _open_files(path, opened)
        if not files:
            if missed:
                raise _missing_anchor(path, missed[-1], "there is no such log")
            return None
        identity = _identity(files[-1])
        for anchor in missed:
            if identity != anchor.log:
                raise _missing_anchor(path, anchor, "this is another log")
        start, seq, previous = 0, files[-1].first - 1, files[-1].head["previous"]
        begins_at_anchor = bool(missed)
        if missed:
            anchor = missed[0]
            files = [file for file in files if file.first >= anchor.file]
            if not files or files[0].first != anchor.file:
                name = f"{path.name}.{anchor.file}"
                raise _missing_anchor(path, anchor, f"the file {name} that has it is not here")
            start, seq = anchor.offset, anchor.line - 1
        elif whole:
            seq, previous = files[0].first - 1, files[0].head["previous"]
        else:
            files = files[-1:]
        if seq == 0:
            previous = START
        last: LogAnchor | None = None
        for file in files:
            if file.first > seq + 1:
                raise SourceError(
                    f"Lines {seq + 1} to {file.first - 1} of the audit log must be in the file "
                    f"{path.name}.{seq + 1} beside {str(path)!r}, and that is not there. Put it back."
                )
            for offset, text in in_parts(file.lines(start)):
                content = _parse(text)
                number = seq + 1
                while missed and missed[0].line == number:
                    anchor = missed.popleft()
                    if content is None or (content["seq"], content["hash"]) != (number, anchor.hash):
                        raise _missing_anchor(path, anchor, "the log was cut or changed")
                # What stands before the first anchored line was verified when it was anchored.
                known = begins_at_anchor and last is None
                if (
                    content is None
                    or content["seq"] != number
                    or not (known or content["previous"] == previous)
                ):
                    raise SourceError(
                        f"Line {number} of the audit log, in {file.name!r}, must follow from the line "
                        f"before it, and does not: {_CHANGED}."
                    )
                seq, previous = number, content["hash"]
                last = LogAnchor(identity, number, previous, file.first, offset)
                if on_line is not None:
                    on_line(content)
            start = 0
        if missed:
            raise _missing_anchor(path, missed[0], "the log was cut before it")
        return last


def check_log(path: Path | PostgresLog) -> int:
    """Verify the chain of a log, with the rotated files that are there, and return its number of lines."""
    last = verify_log(path, whole=True)
    return 0 if last is None else last.line


def read_last_lines(path: Path | PostgresLog, most: int) -> list[bytes]:
    """Return the complete lines in the last `most` bytes of a log, newest first, over all its files."""
    lines: list[bytes] = []
    with ExitStack() as opened:
        for file in reversed(_open_files(path, opened)):
            found, size = file.last_lines(most)
            lines += found
            most -= size
            if most <= 0:
                break
    return lines


def log_identity(path: Path | PostgresLog) -> str | None:
    """Return the identity of a log, the hash of its first line; None if it has no line."""
    with ExitStack() as opened:
        files = _open_files(path, opened)
        return _identity(files[-1]) if files else None


def missing_lines(path: Path | PostgresLog) -> int:
    """Return how many lines, from the first on, are in rotated files that are no longer beside the log."""
    with ExitStack() as opened:
        files = _open_files(path, opened)
        return files[0].first - 1 if files else 0


def _open_files(path: Path | PostgresLog, opened: ExitStack) -> list[_LogPart]:
    """Open the files of a log at one moment, oldest first; files without a complete line are left out."""
    found: Sequence[_LogFile | PostgresPart]
    found = _open_paths(path, opened) if isinstance(path, Path) else path.open_parts(opened)
    parts = []
    for part in found:
        head = _parse(part.head_text)
        if head is None or (head["seq"] != 1 and head["event"] != ROTATED):
            raise SourceError(f"The first line of {part.name!r} must be one of ours, and is not: {_CHANGED}.")
        parts.append(_LogPart(part.lines, part.last_lines, part.name, head))
    return parts


def _open_paths(path: Path, opened: ExitStack) -> list[_LogFile]:
    """Open the files of a log in files at one moment."""
    try:
        if not path.exists():
            return []
        current = opened.enter_context(path.open("rb"))
        # Lines are only ever added, so the lock is needed for the sizes and names alone.
        lock_file(current.fileno(), shared=True)
        status = os.fstat(current.fileno())
        names = [name for name in rotated_files(path) if not name.samefile(path)]
        rotated = [opened.enter_context(name.open("rb")) for name in names]
        unlock_file(current.fileno())
    except OSError as problem:
        # Too many open files, or a disk that fails for a moment: nothing is known to be changed.
        passing = problem.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO)
        raise (LedgerUnavailable if passing else SourceError)(
            f"The audit log {str(path)!r} must be a file that can be read, and is not ({problem.strerror}). "
            "Look whether it is still there."
        ) from None
    files = []
    for handle, size in [*((h, os.fstat(h.fileno()).st_size) for h in rotated), (current, status.st_size)]:
        text = handle.readline(size)
        if not text.endswith(b"\n"):
            continue
        files.append(_LogFile(handle, size, text))
    return files


def _identity(file: _LogPart) -> str:
    """Return the identity of a log, the hash of its first line; a rotated log carries it on."""
    return str(file.head["log"] if file.head["event"] == ROTATED else file.head["hash"])


def _parse(text: bytes) -> dict[str, Any] | None:
    """Return a line of a log; None for one whose hash is not that of its content."""
    try:
        content = json.loads(text)
        rest = {key: value for key, value in content.items() if key != "hash"}
        known = isinstance(content["seq"], int) and {"previous", "event"} <= content.keys()
        return content if known and content["hash"] == hash_line(rest) else None
    except (ValueError, KeyError, AttributeError, TypeError):
        return None


def _missing_anchor(path: Path | PostgresLog, anchor: LogAnchor, reason: str) -> SourceError:
    return SourceError(
        f"The audit log {str(path)!r} must have line {anchor.line}, whose hash the ledger keeps, and has "
        f"not: {reason}. Put the newest copy of the log in its place. If it is lost, or if this is the first "
        "start of the service on another machine, begin a new log with `discreet audit-log begin`: the "
        "ledger then says so."
    )
