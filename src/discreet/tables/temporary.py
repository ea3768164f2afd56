"""Temporary files that a killed process does not leave readable.

Rows that do not fit into memory go to files without a name, which disappear with the process that has them
open. Files that need a name for a while are locked by their owner. The lock ends with the process, so that a
later process can distinguish leftovers of a killed one, which it removes, from files still in use.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.errors import SourceError
from discreet.file_system import HAS_NAMELESS_FILES, NO_FOLLOW, lock_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "discreet-private-"
_NAMES = re.compile(rf"{_PREFIX}[a-z0-9_]{{8}}")  # as tempfile makes them


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield an empty folder of mode 0700 for temporary files, and remove it with the files in it.

    Folders of processes of the same user that were killed are removed first. Unlink a file in it as soon as
    it is open, and nothing of it can be found after a kill.

    Yields
    ------
    Path
        Folder that may hold files, but no folders.
    """
    _require_nameless_files("Rows that do not fit into memory")
    place = Path(tempfile.gettempdir())
    _remove_abandoned(place)
    handle = None
    while handle is None:
        # Another process may remove it as abandoned before it is locked; then make another one.
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        handle = lock(folder, folder=True)
    try:
        yield folder
    finally:
        _remove(folder, handle)
        os.close(handle)


def _remove_abandoned(place: Path) -> None:
    """Remove the temporary folders of this user's processes that are gone."""
    for leftover in place.iterdir():
        if not _NAMES.fullmatch(leftover.name):
            continue
        handle = lock_leftover(leftover, folder=True)
        if handle is not None:
            _remove(leftover, handle)
            os.close(handle)


def _remove(folder: Path, handle: int) -> None:
    """Remove a locked folder and its files by the handle, so that no other folder can take its place."""
    with contextlib.suppress(OSError):
        for name in os.listdir(handle):
            os.unlink(name, dir_fd=handle)
        folder.rmdir()


def lock(path: Path, *, folder: bool) -> int | None:
    """Lock a file or folder for as long as this process lives, or until the handle is closed.

    Parameters
    ----------
    path : Path
        Existing file or folder; a symbolic link is not followed.
    folder : bool
        Whether the path is a folder, not a file.

    Returns
    -------
    int or None
        Handle that holds the lock; None if another process has it, or if the path was removed or renamed
        meanwhile.
    """
    try:
        if folder:
            _require_nameless_files("A folder of private files")
        handle = os.open(path, NO_FOLLOW | (os.O_DIRECTORY if folder else os.O_RDWR))
    except FileNotFoundError:
        return None
    try:
        if lock_file(handle, wait=False) and os.path.samestat(os.fstat(handle), path.lstat()):
            return handle
    except FileNotFoundError:
        pass
    except BaseException:
        # Also when interrupted: nobody else knows the handle.
        os.close(handle)
        raise
    os.close(handle)
    return None


def lock_leftover(path: Path, *, folder: bool) -> int | None:
    """Lock a file or folder left by a killed process of this user; None if in use, or another user's.

    Parameters
    ----------
    path, folder
        As for :func:`lock`. Errors of the file system count as None: what cannot be locked stays.
    """
    with contextlib.suppress(OSError):
        if not hasattr(os, "geteuid") or path.lstat().st_uid == os.geteuid():
            return lock(path, folder=folder)
    return None


def _require_nameless_files(what: str) -> None:
    """Raise where a killed process would leave rows in files that anyone can find."""
    if not HAS_NAMELESS_FILES:
        raise SourceError(
            f"{what} would outlive a killed process on this system. Use Linux, macOS or the Windows "
            "Subsystem for Linux, or a smaller table."
        )
