"""Temporary storage that a killed process does not leave readable.

Rows that do not fit into memory rest in files without a name, which end with the process that has them open.
What must have a name for a while is locked by its owner. The lock ends with the process, so whoever comes
later can tell what a killed one left, which is removed, from what a living one still uses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

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
        It may hold files, but no folders.
    """
    place = Path(tempfile.gettempdir())
    _remove_abandoned(place)
    handle = None
    while handle is None:
        # Another process may take it for abandoned before it is locked; then there is a next one.
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
    """Remove a locked folder and the files in it: by its handle, so that no other can take its place."""
    with contextlib.suppress(OSError):
        for name in os.listdir(handle):
            os.unlink(name, dir_fd=handle)
        folder.rmdir()


def lock(path: Path, *, folder: bool) -> int | None:
    """Lock a file or folder for as long as this process lives, or until the handle is closed.

    Parameters
    ----------
    path : Path
        An existing file or folder; a symbolic link is not followed.
    folder : bool
        Whether it is a folder.

    Returns
    -------
    int or None
        The handle that holds the lock; None if somebody has it, or if the path was removed or renamed
        meanwhile.
    """
    try:
        handle = os.open(path, os.O_NOFOLLOW | (os.O_DIRECTORY if folder else os.O_RDWR))
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), path.lstat()):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def lock_leftover(path: Path, *, folder: bool) -> int | None:
    """Lock what a process of this user left; None if it lives, or if the path is another user's.

    Parameters
    ----------
    path, folder
        As for :func:`lock`. Errors of the file system count as None: what cannot be locked stays.
    """
    with contextlib.suppress(OSError):
        if path.lstat().st_uid == os.geteuid():
            return lock(path, folder=folder)
    return None
