"""What systems with and without ``fcntl`` do differently about files: locks, flags, and writing to disk.

On Windows a lock is one byte far behind the end of the file, because locked bytes cannot be read there.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

fcntl: Any
try:
    fcntl = import_module("fcntl")
except ImportError:  # Windows
    fcntl = None
NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NON_BLOCKING: int = getattr(os, "O_NONBLOCK", 0)
BINARY: int = getattr(os, "O_BINARY", 0)
"""Flags of ``os.open``; 0 where the system has no such flag."""
HAS_NAMELESS_FILES: bool = fcntl is not None
"""Whether a file that is open can be unlinked, and a folder locked."""
_LOCKED_BYTE = 1 << 40
_PAUSE = 0.05  # seconds between two attempts


def lock_file(handle: int, *, shared: bool = False, wait: bool = True) -> bool:
    """Lock an open file until it is unlocked or closed.

    Parameters
    ----------
    handle : int
        Handle of the open file.
    shared : bool
        Whether other shared locks are allowed; on Windows every lock is exclusive.
    wait : bool
        Whether to wait for a lock that another process has.

    Returns
    -------
    bool
        Whether the file is locked now: False only if another has it and ``wait`` is false.
    """
    if fcntl is None:
        return _lock_byte(handle, wait=wait)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    return True


def unlock_file(handle: int) -> None:
    """Release the lock on an open file."""
    if fcntl is None:
        _at_locked_byte(handle, "LK_UNLCK")
    else:
        fcntl.flock(handle, fcntl.LOCK_UN)


def sync_to_disk(path: Path) -> None:
    """Write a file, or the names in a folder, to disk; Windows has no way to do so with a folder."""
    if fcntl is None and path.is_dir():
        return
    handle = os.open(path, os.O_RDONLY if fcntl is not None else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock_byte(handle: int, *, wait: bool) -> bool:
    while True:
        try:
            _at_locked_byte(handle, "LK_NBLCK")
        except OSError:
            if not wait:
                return False
            time.sleep(_PAUSE)
        else:
            return True


def _at_locked_byte(handle: int, mode: str) -> None:
    """Call ``msvcrt.locking`` at the byte that stands for the file, and go back to where the file was."""
    windows: Any = import_module("msvcrt")
    place = os.lseek(handle, 0, os.SEEK_CUR)
    try:
        os.lseek(handle, _LOCKED_BYTE, os.SEEK_SET)
        windows.locking(handle, getattr(windows, mode), 1)
    finally:
        os.lseek(handle, place, os.SEEK_SET)
