"""Backup of a whole service, consistent while it runs: one folder with a manifest of hashes.

``manifest.json``    what the backup holds, with size and SHA-256 of every file
``config.yaml``      the configuration, for reading
``NAME.ledger``      the ledger of a data set, or the one that it shares, and ``NAME.ledger.version-key``
``NAME.schema.yaml`` the schema of the data set
``audit.jsonl``      the audit log, with the files that were rotated
``access.sqlite``    tokens, grants, sessions and stop switches, from whatever database
``jobs.sqlite``      jobs with their answers
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerError, ParameterError, SourceError
from discreet.file_system import sync_to_disk
from discreet.ledger import Ledger
from discreet.ledger.backup import snapshot
from discreet.ledger.log_verification import verify_log
from discreet.ledger.postgres import is_postgres
from discreet.privacy.receipt import now, product_version
from discreet.server import access_database, jobs
from discreet.server.access_copy import copy_access, copy_sqlite
from discreet.server.audit_log import ServiceLog
from discreet.server.config import Config
from discreet.server.dataset import load_schema

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["ACCESS", "JOBS", "LOG", "LedgerCopy", "Manifest", "back_up_service"]

FORMAT = 1
"""Version of the folder and of its manifest."""

MANIFEST, LOG, ACCESS, JOBS = "manifest.json", "audit.jsonl", "access.sqlite", "jobs.sqlite"


@dataclass(frozen=True, slots=True)
class LedgerCopy:
    """One ledger in a backup.

    Attributes
    ----------
    file : str
        Name of the copy in the folder of the backup.
    datasets : list of str
        Names of the data sets that are charged to the ledger.
    place : str
        Address of the ledger, without secrets.
    identity : str
        Hash of its first row.
    rows : int
        Number of its rows.
    head : str
        Hash of its last row.
    """

    file: str
    datasets: list[str]
    place: str
    identity: str
    rows: int
    head: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds.

    Attributes
    ----------
    format : int
        Version of the folder.
    version : str
        Version of discreet that wrote it.
    created : str
        Universal time of the backup.
    ledgers : list of LedgerCopy
        All ledgers of the service.
    log_lines : int
        Number of the last line of the audit log; 0 without a log.
    log_hash : str
        Hash of that line.
    access_format, jobs_format : int or None
        Formats of these stores; None for one that did not exist.
    files : dict of str to dict
        ``bytes`` and ``sha256`` of every other file in the folder, by name.
    """

    format: int
    version: str
    created: str
    ledgers: list[LedgerCopy]
    log_lines: int
    log_hash: str
    access_format: int | None
    jobs_format: int | None
    files: dict[str, dict[str, Any]]

    @property
    def text(self) -> bytes:
        """The manifest as it is written to its file."""
        return (json.dumps(asdict(self), indent=2, sort_keys=True) + "\n").encode()

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest, which stands for the whole backup."""
        return hashlib.sha256(self.text).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> Manifest:
        """Read the manifest of a backup and verify every file against it.

        Raises
        ------
        SourceError
            There is no backup, or a file is missing, was changed, or is one too many.
        """
        try:
            content = json.loads((folder / MANIFEST).read_bytes())
        except (OSError, ValueError):
            raise SourceError(
                f"{str(folder)!r} must be a folder that `discreet service backup` wrote, and has no readable "
                f"{MANIFEST}. Name another."
            ) from None
        if isinstance(content, dict) and content.get("format") != FORMAT:
            raise SourceError(
                f"the backup {str(folder)!r} must have format {FORMAT}, and has {content.get('format')}. Use "
                f"the version of discreet that wrote it, {content.get('version')}."
            )
        try:
            ledgers = [LedgerCopy(**one) for one in content.pop("ledgers")]
            manifest = cls(ledgers=ledgers, **content)
        except (KeyError, TypeError, AttributeError):
            raise _changed_error(folder, MANIFEST) from None
        manifest._verify(folder)
        return manifest

    def _verify(self, folder: Path) -> None:
        """Compare the files of a folder with the manifest."""
        present = {path.name for path in folder.iterdir()} - {MANIFEST}
        copies = {copy.file for copy in self.ledgers}
        for name in sorted((present ^ self.files.keys()) | (copies - present)):
            raise _changed_error(folder, name)
        for name, facts in self.files.items():
            try:
                if _describe(folder / name) != facts:
                    raise _changed_error(folder, name)
            except OSError:
                raise _changed_error(folder, name) from None


def _changed_error(folder: Path, name: str) -> SourceError:
    return SourceError(
        f"{name} of the backup {str(folder)!r} must be as the manifest says, and is not: it was changed, "
        "removed or added. Nothing was restored; take another backup."
    )


def _describe(path: Path) -> dict[str, Any]:
    """Return size and SHA-256 of a file."""
    with path.open("rb") as file:
        return {
            "bytes": os.fstat(file.fileno()).st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def back_up_service(config_file: Path, folder: Path) -> Manifest:
    """Write a checked backup of a whole service to a new folder, also while it runs.

    Ledgers and audit log are copied as of one moment, for which no line is added to the log. So the log names
    no row that the copies of the ledgers lack, and has the lines that they have anchored.

    Parameters
    ----------
    config_file : path
        Configuration of the service.
    folder : path
        Folder that does not exist yet. It appears when it is complete, with mode 0700.

    Returns
    -------
    Manifest
        What was written.

    Raises
    ------
    DiscreetError
        Nothing was written; the message says why.

    Privacy
    -------
    The folder holds the keys of the ledgers, all answers and hashes of tokens: protect it as the ledgers.
    Tables are not part of it. A copy that is charged instead of its ledger is a second budget for the same
    people, so restore it with :func:`~discreet.server.restore.restore_service` alone.
    """
    config = Config.load(config_file)
    if folder.exists():
        raise ParameterError(
            f"--out must be a folder that does not exist yet, and {str(folder)!r} does. Choose another name: "
            "a backup never writes over an older one."
        )
    draft = folder.absolute().with_name(f".{folder.name}.{os.getpid()}.new")
    try:
        draft.mkdir(mode=0o700)
        try:
            manifest = _write(config_file, config, draft)
            draft.rename(folder)
            sync_to_disk(folder.absolute().parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as problem:
        raise SourceError(
            f"--out {str(folder)!r} must be a folder that can be made and written, and is not "
            f"({problem.strerror}). Nothing was written; make room, or choose another place."
        ) from None
    return manifest


def _write(config_file: Path, config: Config, folder: Path) -> Manifest:
    """Write all files of a backup and return their manifest, which is written last."""
    ledgers, lines = _copy_ledgers_and_log(config, folder)
    access_format, jobs_format = access_database.read_format(config.access), jobs.read_format(config.jobs)
    if access_format is not None:
        copy_access(config.access, folder / ACCESS)
    if jobs_format is not None:
        copy_sqlite(config.jobs, folder / JOBS)
    shutil.copyfile(config_file, folder / "config.yaml")
    for name, entry in config.datasets.items():
        (folder / f"{name}.schema.yaml").write_text(load_schema(entry).to_yaml(), encoding="utf-8")
    _check_copies(folder, ledgers)
    paths = sorted(folder.iterdir())
    for path in paths:
        path.chmod(0o600)
        sync_to_disk(path)
    manifest = Manifest(
        FORMAT, product_version(), now(), ledgers, *lines, access_format, jobs_format,
        {path.name: _describe(path) for path in paths},
    )  # fmt: skip
    target = folder / MANIFEST
    target.write_bytes(manifest.text)
    target.chmod(0o600)
    sync_to_disk(target)
    sync_to_disk(folder)
    return manifest


def _copy_ledgers_and_log(config: Config, folder: Path) -> tuple[list[LedgerCopy], tuple[int, str]]:
    """Copy ledgers and audit log as of one moment; return the copies, and the last line of the log."""
    names: dict[str, list[str]] = {}
    for name, entry in config.datasets.items():
        names.setdefault(entry.ledger, []).append(name)
    copies = []
    with ExitStack() as opened:
        log = opened.enter_context(closing(ServiceLog(config.audit_log)))
        ledgers = {address: opened.enter_context(_open_existing(address)) for address in names}
        for ledger in ledgers.values():
            with snapshot(ledger):
                pass  # connections are open now: while the log is held, the answers of the service wait
        held = opened.enter_context(log.snapshot()) if log.find_files() else None
        states = {address: opened.enter_context(snapshot(ledger)) for address, ledger in ledgers.items()}
        if held is not None:
            held.release()
            held.copy(folder / LOG)
        for address, state in states.items():
            file = f"{names[address][0]}.ledger"
            rows, head = state.back_up(str(folder / file))
            copies.append(
                LedgerCopy(file, names[address], ledgers[address].shown, state.identity, rows, head)
            )
    last = verify_log(folder / LOG)
    return copies, (0, "") if last is None else (last.line, last.hash)


def _open_existing(address: str) -> Ledger:
    """Open a ledger, or refuse an address without one."""
    if Ledger.identity_at(address) is None:
        shown = "in PostgreSQL" if is_postgres(address) else repr(address)
        raise LedgerError(
            f"the ledger {shown} must be there to be backed up, and is not. Restore it from an earlier "
            "backup if it was lost; a new service has one after its first start."
        )
    return Ledger.open(address)


def _check_copies(folder: Path, ledgers: Iterable[LedgerCopy]) -> None:
    """Verify the copy of the audit log, and the copies of ledgers against it."""
    log = ServiceLog(folder / LOG)
    if log.path.exists():
        log.check()
        for copy in ledgers:
            with Ledger.open(folder / copy.file) as ledger:
                for name in copy.datasets:
                    log.compare(name, ledger)
