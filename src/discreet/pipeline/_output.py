"""Output of a job: the folder that is built beside its place and renamed when it is complete, and the keys.

A running job holds a lock on the folder it builds. A later run therefore removes what a killed one left, and
does not touch what a running one is still writing. A draft with a record of how to resume it was paid for: it
stays until somebody resumes it or removes it. The key of a release is forgotten unless the curator keeps
it encrypted; the key that signs is the curator's own.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Self

from discreet.errors import ParameterError, SourceError
from discreet.file_system import sync_to_disk
from discreet.noise import Stream
from discreet.report.folder.folder import read_bytes, signing_key
from discreet.report.folder.keys import SHORTEST_PASSPHRASE, recipient_key, seal_key
from discreet.tables.temporary import lock, lock_leftover

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from discreet.pipeline.options import KeyEscrow, Signing

PUBLIC, INTERNAL = "public", "internal"
RESUME, WORK = "resume.json", "work"
"""Files of a draft that can be resumed, in its internal folder: the record, and rows of workers."""
_STATEMENT = "statement.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_target_folder(target: Path, *, replace: bool) -> None:
    """Refuse a folder that a release cannot be written to, before anything is charged.

    Parameters
    ----------
    target : Path
        Folder that will hold ``public`` and ``internal``.
    replace : bool
        Whether an earlier release there may be replaced; nothing else ever is.

    Raises
    ------
    SourceError
    """
    parent = target.absolute().parent
    if not parent.is_dir():
        raise SourceError(
            f"out must be in a folder that exists, and {str(parent)!r} does not. Make it first."
        )
    if not os.access(parent, os.W_OK | os.X_OK):
        raise SourceError(f"out must be in a folder that may be written to, and {str(parent)!r} may not.")
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise SourceError(f"out must be a folder of its own, and {str(target)!r} is something else.")
    held = sorted(entry.name for entry in target.iterdir()) if target.exists() else []
    if not held:
        return
    if not replace:
        raise SourceError(
            f"The folder {str(target)!r} exists already. Remove it, choose another --out, or pass --replace."
        )
    if not set(held) <= {PUBLIC, INTERNAL} or not (target / PUBLIC / _STATEMENT).is_file():
        raise SourceError(
            f"The folder {str(target)!r} may be replaced only if it is a release, and it holds other "
            "files. Choose another --out."
        )


def forget_key(target: Path, *, resume: bool) -> None:
    """Remove the key of a complete release whose run was killed after it was in place, before it did so.

    Parameters
    ----------
    target : Path
        Folder that holds the release, if there is one.
    resume : bool
        Whether that run is to be resumed.

    Raises
    ------
    SourceError
        It was to be resumed, and has nothing left to do.
    """
    record = target / INTERNAL / RESUME
    try:
        if not record.exists() or not (target / PUBLIC / _STATEMENT).is_file():
            return
        record.unlink(missing_ok=True)  # the run may be at its last step
    except PermissionError:
        return  # the release of somebody else, over which the next check refuses to write
    if resume:
        with explain_os_errors(target):
            _remove_leftovers(target.absolute(), resume=False)  # the release that this one replaced
        raise SourceError(
            f"The release {str(target)!r} is complete, and nothing is left to resume: its run was stopped "
            f"after it was in place. Look at it with: discreet verify {target}"
        )


@contextlib.contextmanager
def build_folder(target: Path, *, replace: bool, resume: bool = False) -> Iterator[Path]:
    """Yield a draft folder with empty ``public`` and ``internal``, and rename it to `target` at the end.

    Readers of `target` see the old state or the new one. On an error, an interrupt or a full disk the draft
    is removed; after a kill the next run to the same place removes it. A draft with a record in ``internal``
    of how to resume it stays, and another run is refused until it is resumed or removed.

    Parameters
    ----------
    target : Path
        Name of the folder when it is complete.
    replace : bool
        Whether an earlier release there may be replaced.
    resume : bool
        Whether to go on with the draft of a run that was interrupted.
    """
    target = target.absolute()
    with explain_os_errors(target):
        check_target_folder(target, replace=replace)
        interrupted = _remove_leftovers(target, resume=resume)
        if resume and interrupted is None:
            raise SourceError(
                f"No release to {str(target)!r} was interrupted after its charge. Run the command without "
                "--resume."
            )
        draft, held = _make_draft(target) if interrupted is None else interrupted
    try:
        with explain_os_errors(target):
            yield draft
            for entry in (draft / INTERNAL).iterdir():
                entry.chmod(0o600)
            _sync_folder(draft)
            _rename_draft(draft, target, replace=replace)
    finally:
        if not (draft / INTERNAL / RESUME).exists():
            shutil.rmtree(draft, ignore_errors=True)
        os.close(held)


@contextlib.contextmanager
def open_work_folder(target: Path) -> Iterator[Path]:
    """Yield a private folder beside a release, removed at the end, or after a kill by the next run."""
    with explain_os_errors(target):
        draft, held = _make_draft(target.absolute())
    try:
        yield draft / INTERNAL
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        os.close(held)


@contextlib.contextmanager
def explain_os_errors(target: Path) -> Iterator[None]:
    """Turn errors of the operating system into a sentence about the release."""
    try:
        yield
    except OSError as problem:
        if problem.errno in _FULL:
            raise SourceError(
                f"The release {str(target)!r} cannot be written: the disk is full, or a file would be larger "
                "than allowed. Nothing was left there; make room and try again."
            ) from None
        raise SourceError(
            f"The release {str(target)!r} cannot be written ({problem.strerror or type(problem).__name__}). "
            "Nothing was left there; check that its folder may be written to."
        ) from None


def _make_draft(target: Path) -> tuple[Path, int]:
    """Make and lock the draft folder; return it with the descriptor that holds the lock."""
    serial = 0
    while True:
        draft = target.with_name(f".{target.name}.{os.getpid()}-{serial}.partial")
        serial += 1
        with contextlib.suppress(FileExistsError):
            draft.mkdir()
            held = lock(draft, folder=True)
            # Another run may have taken it for a leftover before it was locked.
            if held is not None:
                (draft / PUBLIC).mkdir()
                (draft / INTERNAL).mkdir(mode=0o700)
                return draft, held


def _remove_leftovers(target: Path, *, resume: bool) -> tuple[Path, int] | None:
    """Remove the drafts of killed runs to the same place, and put back a release that one had set aside.

    Returns
    -------
    draft, held : Path and int, or None
        Emptied draft that is to be resumed, with the descriptor that holds its lock.

    Raises
    ------
    SourceError
        There is a draft that was paid for, and it is not to be resumed.
    """
    ours = re.compile(rf"\.{re.escape(target.name)}\.\d+-\d+\.(partial|old)")
    for leftover in sorted(target.parent.iterdir()):
        held = lock_leftover(leftover, folder=True) if ours.fullmatch(leftover.name) else None
        if held is None:
            continue
        if (leftover / INTERNAL / RESUME).exists() and leftover.suffix == ".partial":
            if resume:
                _empty_draft(leftover)
                return leftover, held
            os.close(held)
            raise SourceError(
                f"A release to {str(target)!r} was paid for and not finished. Run the same command with "
                f"--resume (resume=True), which charges nothing, or give it up: remove {str(leftover)!r}."
            )
        try:
            if leftover.name.endswith(".old") and not target.exists():
                leftover.rename(target)
            else:
                shutil.rmtree(leftover, ignore_errors=True)
        finally:
            os.close(held)
    return None


def _empty_draft(draft: Path) -> None:
    """Remove everything from a draft but the record of how to resume it, and rows that were staged."""
    shutil.rmtree(draft / PUBLIC, ignore_errors=True)
    (draft / PUBLIC).mkdir()
    for entry in (draft / INTERNAL).iterdir():
        if entry.name not in (RESUME, WORK):
            entry.unlink()
    work = draft / INTERNAL / WORK
    for entry in work.iterdir() if work.exists() else ():
        if entry.is_file():
            entry.unlink()


def _rename_draft(draft: Path, target: Path, *, replace: bool) -> None:
    """Rename the complete draft to `target`; an earlier release is set aside first and removed afterwards."""
    check_target_folder(target, replace=replace)
    aside, held = draft.with_suffix(".old"), None
    if target.exists() and any(target.iterdir()):
        held = lock(target, folder=True)
        target.rename(aside)
    try:
        draft.rename(target)
    except BaseException:
        # Also when interrupted: the earlier publication goes back to its place.
        if aside.exists():
            aside.rename(target)
        raise
    finally:
        if held is not None:
            os.close(held)
    sync_to_disk(target.parent)
    # The key first: removing a large table takes a while.
    (target / INTERNAL / RESUME).unlink(missing_ok=True)
    shutil.rmtree(aside, ignore_errors=True)


def _sync_folder(folder: Path) -> None:
    """Write every file and folder below a folder to disk."""
    for place, _, files in os.walk(folder):
        for name in files:
            sync_to_disk(Path(place, name))
        sync_to_disk(Path(place))


class ReleaseKey:
    """Key of a release: drawn for it, and forgotten or kept for an auditor once the release is done.

    Parameters
    ----------
    path : Path or None
        File that will hold the encrypted key; None: the key is forgotten.
    passphrase : str or None
        Passphrase that encrypts the key; None: it is encrypted for `recipient`.
    recipient : bytes or None
        X25519 public key in PEM whose owner can decrypt the key; None: `passphrase` encrypts it.
    """

    def __init__(
        self, path: Path | None = None, passphrase: str | None = None, recipient: bytes | None = None
    ) -> None:
        self.path = path
        self._passphrase = passphrase
        self._recipient = recipient
        # Drawn from a stream of the operating system's, so that randomness still enters in one place.
        self._key = Stream().words(4).tobytes()
        self._sealed = False
        self._resumed = False

    @classmethod
    def from_escrow(cls, escrow: KeyEscrow | None, *, release: Path) -> ReleaseKey:
        """Draw the key of a release, after checking that it can be kept as requested.

        Parameters
        ----------
        escrow : KeyEscrow or None
            File and encryption of the key; None: the key is forgotten.
        release : Path
            Folder of the release, which must not hold the key.

        Raises
        ------
        ParameterError, SourceError
            The key cannot be kept there, or not under that secret. Nothing was paid yet.
        """
        if escrow is None:
            return cls()
        passphrase, place = escrow.passphrase, Path(escrow.path).absolute()
        if (passphrase is None) == (escrow.recipient is None):
            raise ParameterError(
                "escrow (--keep-key) needs exactly one of passphrase and recipient: the key removes the "
                "noise, so it is never written in the clear."
            )
        if passphrase is not None and len(passphrase) < SHORTEST_PASSPHRASE:
            raise ParameterError(
                f"passphrase must have at least {SHORTEST_PASSPHRASE} characters, had {len(passphrase)}. "
                "Take several words."
            )
        if place.exists() or not place.parent.is_dir():
            raise SourceError(
                f"escrow (--keep-key) must be a file that does not exist, in a folder that does; "
                f"{str(place)!r} is not. A key is never overwritten."
            )
        if place.resolve().is_relative_to(release.resolve()):
            raise SourceError(
                f"escrow (--keep-key) must be outside of the release, and {str(place)!r} is in it: the key "
                "would be given away with the folder, and removed when the folder is replaced. Choose "
                "another place."
            )
        if escrow.recipient is None:
            return cls(place, passphrase)
        pem = read_bytes(Path(escrow.recipient))
        recipient_key(pem)
        return cls(place, recipient=pem)

    def stream(self) -> Stream:
        """Return the stream that the release is drawn from."""
        return Stream.for_replay(self._key) if self._resumed else Stream(self._key)

    def store(self, path: Path, facts: Mapping[str, str]) -> None:
        """Write the key and public facts of a release to a private file, so that it can be resumed.

        Parameters
        ----------
        path : Path
            File that only its owner can read, on the disk of the release.
        facts : mapping of str to str
            Facts that must be the same when the release is resumed.
        """
        content = json.dumps({"key": self._key.hex(), **facts}).encode()
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(handle, "wb") as file:  # noqa: PTH123 - a handle, not a path
            file.write(content)
            file.flush()
            os.fsync(handle)
        sync_to_disk(path.parent)

    def resume(self, path: Path, facts: Mapping[str, str]) -> None:
        """Take the key that :meth:`store` wrote; raise SourceError where facts have changed since.

        Parameters
        ----------
        path : Path
            File that :meth:`store` wrote.
        facts : mapping of str to str
            Facts of this run. An error names the first that differs.
        """
        stored = json.loads(path.read_bytes())
        changed = next((name for name, fact in facts.items() if stored.get(name) != fact), None)
        if changed is not None:
            raise SourceError(
                f"The {changed} has changed since this release was paid for. Restore it, or release anew, "
                "which is charged again."
            )
        self._key, self._resumed = bytes.fromhex(stored["key"]), True

    def keep(self) -> None:
        """Write the encrypted key to its file, if it is to be kept."""
        if self.path is not None:
            seal_key(self.path, self._key, passphrase=self._passphrase, recipient=self._recipient)
            self._sealed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # The key of a release that failed decrypts nothing, so its file is removed.
        if kind is not None and self._sealed and self.path is not None:
            self.path.unlink(missing_ok=True)


def load_signing_key(signing: Signing | None) -> Ed25519PrivateKey | None:
    """Return the private key that signs a folder, or None if none was given."""
    return None if signing is None else signing_key(read_bytes(Path(signing.key)), signing.password)
