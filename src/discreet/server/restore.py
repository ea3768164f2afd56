"""Restoring a service from a backup: what is missing is put back, and nothing is set back.

A ledger gets the rows that it lacks and keeps those that it has; an audit log or a store that is there is
kept. Everything is checked before the first file is written.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import LedgerTampered, ParameterError, SourceError
from discreet.file_system import sync_to_disk
from discreet.ledger import Ledger
from discreet.ledger.audit_log import rotated_files
from discreet.ledger.backup import count_missing_rows
from discreet.ledger.log_verification import log_identity, verify_log
from discreet.ledger.postgres import is_postgres
from discreet.ledger.postgres_log import PostgresLog
from discreet.server import access_database, jobs
from discreet.server.access import AccessStore
from discreet.server.access_copy import fill_access
from discreet.server.audit_log import ServiceLog
from discreet.server.backup import ACCESS, JOBS, LOG, LedgerCopy, Manifest
from discreet.tables.temporary import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from discreet.server.config import Config

__all__ = ["Restored", "restore_service"]


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did.

    Attributes
    ----------
    ledgers : dict of str to int
        Number of rows that the ledger of each data set got from the backup; 0 where it had them all.
    log, access, jobs : bool
        Whether the audit log and the two stores were put back; False where they were there, or where the
        backup has none.
    revoked : list of str
        Changes since the backup that the audit log knows, and that were made again: what was revoked,
        withdrawn or stopped.
    """

    ledgers: dict[str, int]
    log: bool
    access: bool
    jobs: bool
    revoked: list[str]


def restore_service(folder: Path, config: Config, *, by: str, digest: str | None = None) -> Restored:
    """Restore what a service lacks from a backup.

    Parameters
    ----------
    folder : path
        Folder that :func:`~discreet.server.backup.back_up_service` wrote.
    config : Config
        Configuration of the service, which must not run; it says where everything belongs.
    by : str
        Name of who does this, for the audit log.
    digest : str, optional
        SHA-256 of the manifest that was kept elsewhere; another backup is refused. None compares nothing.

    Raises
    ------
    DiscreetError
        Nothing was restored, and the message says why: the backup is damaged, or a ledger or log has rows or
        lines that are not in the backup and that no later state of it could have.

    Privacy
    -------
    No charge is forgotten: a ledger is missing, or an earlier or later state of the one in the backup, and an
    audit log that is there must name no row that the restored ledger lacks.
    """
    manifest = Manifest.load(folder)
    if digest is not None and digest != manifest.digest:
        raise SourceError(
            f"the manifest of {str(folder)!r} must have the SHA-256 {digest}, and has {manifest.digest}: "
            "this is another backup. Nothing was restored."
        )
    _check_formats(manifest)
    ledgers = _match(manifest, config)
    missing = {address: count_missing_rows(folder / copy.file, address) for address, copy in ledgers.items()}
    agreed = _check_log(folder, manifest, config, ledgers, missing)
    # Nothing was written so far.
    try:
        if agreed is None:
            _copy_log(folder, config)
        restored_jobs = manifest.jobs_format is not None and not config.jobs.exists()
        if restored_jobs:
            _copy_file(folder / JOBS, config.jobs)
    except FileExistsError as problem:
        raise SourceError(
            f"{problem.filename2!r} must be missing to be put back, and has appeared since the check: "
            "another restore or the service was started. It is kept. Stop the other one, and restore again."
        ) from None
    except OSError as problem:
        raise SourceError(
            f"the folder of {str(config.audit_log)!r} must be one that can be written, and is not "
            f"({problem.strerror}). Make room, and restore again: what is there already is kept."
        ) from None
    for address, copy in ledgers.items():
        if missing[address] > 0:
            with Ledger.restore(folder / copy.file, address) as ledger:
                if agreed == 0 and (last := verify_log(ServiceLog(config.audit_log).path)) is not None:
                    ledger.anchor_log(last)  # as those that were there have it
    revoked = None if manifest.access_format is None else _restore_access(folder / ACCESS, config, agreed)
    with closing(ServiceLog(config.audit_log)) as log:
        _compare(log, config, {address: address for address in (*ledgers, *_find_others(config, ledgers))})
        log.write("restored", who=by, backup=manifest.digest, made=manifest.created)
    rows = {
        name: max(0, missing[entry.ledger])
        for name, entry in config.datasets.items()
        if entry.ledger in missing
    }
    restored_log = agreed is None and manifest.log_lines > 0
    return Restored(rows, restored_log, revoked is not None, restored_jobs, revoked or [])


def _compare(
    log: ServiceLog, config: Config, places: Mapping[str, str | Path], *, anchored: bool = True
) -> None:
    """Check an audit log against the ledgers at some addresses, each at the place where it is read."""
    for address, place in places.items():
        with Ledger.open(place) as ledger:
            for name, entry in config.datasets.items():
                if entry.ledger == address:
                    log.compare(name, ledger, anchored=anchored)


def _find_others(config: Config, ledgers: Mapping[str, LedgerCopy]) -> list[str]:
    """Return the addresses of the ledgers that are there and not in the backup, such as later ones."""
    addresses = dict.fromkeys(entry.ledger for entry in config.datasets.values())
    return [one for one in addresses if one not in ledgers and Ledger.identity_at(one) is not None]


def _check_formats(manifest: Manifest) -> None:
    """Refuse a backup whose stores have another format than this version writes."""
    stores = {
        "access": (manifest.access_format, access_database.FORMAT),
        "jobs": (manifest.jobs_format, jobs.FORMAT),
    }
    for key, (written, known) in stores.items():
        if written not in (None, known):
            raise SourceError(
                f"{key} of the backup must have format {known}, and has {written}. Nothing was restored; "
                f"restore with discreet {manifest.version}, which wrote it, then upgrade."
            )


def _match(manifest: Manifest, config: Config) -> dict[str, LedgerCopy]:
    """Return the copy of each ledger that the configuration names, by its address there."""
    copies = {name: copy for copy in manifest.ledgers for name in copy.datasets}
    found: dict[str, LedgerCopy] = {}
    places: dict[str, str] = {}
    for name, entry in config.datasets.items():
        copy = copies.get(name)
        if copy is None:
            continue
        if (
            found.setdefault(entry.ledger, copy) != copy
            or places.setdefault(copy.file, entry.ledger) != entry.ledger
        ):
            raise ParameterError(
                f"ledger of datasets.{name} in the configuration must be shared with the same data sets as "
                f"in the backup, {', '.join(copy.datasets)}, and is not: budgets would be counted twice or "
                "lost. Restore with the configuration in the backup."
            )
        _check_single(copy, entry.ledger)
    if not found:
        raise ParameterError(
            f"datasets of the configuration must have one of those in the backup, {', '.join(copies)}, and "
            "have none. Name another configuration, or another backup."
        )
    return found


def _check_single(copy: LedgerCopy, address: str) -> None:
    """Refuse to make a second ledger while the one that was backed up is still at its place."""
    if "://" in copy.place or is_postgres(address) or Path(copy.place) == Path(address):
        return
    if Path(copy.place).exists() and Ledger.identity_at(copy.place) == copy.identity:
        raise ParameterError(
            f"the ledger must not be at two places, and {copy.place!r}, of which the backup has a copy, is "
            f"still there beside {address!r}: its budget could be spent twice. Move it to the new place, or "
            "name the old one in the configuration."
        )


def _check_log(
    folder: Path,
    manifest: Manifest,
    config: Config,
    ledgers: Mapping[str, LedgerCopy],
    missing: Mapping[str, int],
) -> int | None:
    """Return the last line that the audit log and its copy in the backup share; None if there is no log.

    A log that is there goes on from the copy, or was begun anew beside ledgers that are there (0).
    """
    log = ServiceLog(config.audit_log)
    there: dict[str, str | Path] = {
        address: address
        for address in (*ledgers, *_find_others(config, ledgers))
        if missing.get(address, 0) <= 0
    }
    copies: dict[str, str | Path] = {
        address: folder / copy.file for address, copy in ledgers.items() if address not in there
    }
    if not log.find_files():
        _check_copied_log(folder, manifest, config, there | copies)
        return None
    hashes: list[str] = []
    others: set[str] = set()

    def note(line: dict[str, Any]) -> None:
        if line["seq"] == manifest.log_lines:
            hashes.append(line["hash"])
        if line["event"] == "begin":
            others.update(line["others"])

    verify_log(log.path, whole=True, on_line=note)
    agreed = manifest.log_lines
    begun_anew = bool(agreed) and hashes != [manifest.log_hash]
    if begun_anew:
        if not (_any_has_anchors(there) and log_identity(folder / LOG) in others):
            raise LedgerTampered(
                f"audit_log {str(log.path)!r} must have line {agreed}, the last one in the backup, or "
                "be missing, and does not have it: it is an earlier state of the log, or another log. "
                "Nothing was restored; move the log away, and restore again."
            )
        agreed = 0
    _compare(log, config, there)
    # The copies are anchored in the log that was lost, but may lack rows that the new one names.
    _compare(log, config, copies, anchored=not begun_anew)
    return agreed


def _any_has_anchors(addresses: Iterable[str]) -> bool:
    """Return whether a ledger has anchors, so that comparing it shows whose log it is."""
    for address in addresses:
        with Ledger.open(address) as ledger:
            if ledger.log_anchors():
                return True
    return False


def _check_copied_log(
    folder: Path,
    manifest: Manifest,
    config: Config,
    places: Mapping[str, str | Path],
) -> None:
    """Refuse to put back a log that is older than what a ledger that is there knows of it."""
    if not manifest.log_lines:
        return
    try:
        _compare(ServiceLog(folder / LOG), config, places)
    except LedgerTampered:
        raise LedgerTampered(
            f"audit_log {str(config.audit_log)!r} must be there, and is not: the log in the backup ends at "
            f"line {manifest.log_lines}, and a ledger that is there knows a later line, or another log. "
            "Nothing was restored. Put the newest copy of the log in its place; if there is none, begin a "
            "new one with `discreet audit-log begin`; then restore again."
        ) from None


def _copy_log(folder: Path, config: Config) -> None:
    """Put the files of the audit log back, the newest last, or their lines into a database."""
    source, target = folder / LOG, config.audit_log
    if not source.exists():
        return
    files = (*rotated_files(source), source)
    if isinstance(target, Path):
        for path in files:
            _copy_file(path, target.with_name(target.name + path.name.removeprefix(LOG)))
    else:
        with closing(PostgresLog(target)) as log:
            log.load(path.read_bytes() for path in files)


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file to a name that must be free, complete or not at all, with mode 0600."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.{time.monotonic_ns()}.restored")
    os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        shutil.copyfile(source, draft)
        sync_to_disk(draft)
        os.link(draft, target)  # a rename would replace what has appeared there
    finally:
        draft.unlink()
    sync_to_disk(target.parent)


def _restore_access(copy: Path, config: Config, agreed: int | None) -> list[str] | None:
    """Restore an access store that has no rows; return what was restricted again, or None if it has some.

    What the audit log says was revoked, withdrawn or stopped after the backup is so before the store is
    filled, so that at no moment a token is valid again of which this is known.
    """
    with temporary_folder() as folder:
        draft = folder / ACCESS
        fill_access(copy, str(draft))
        done = [] if agreed is None else _restrict(draft, config, agreed)
        return done if fill_access(draft, config.access) else None


def _restrict(draft: Path, config: Config, agreed: int) -> list[str]:
    """Repeat the restrictions in the audit log after a line of the backup, and return them in words."""
    changes: list[dict[str, Any]] = []

    def note(line: dict[str, Any]) -> None:
        if line["seq"] > agreed and line["event"] in _RESTRICTIONS:
            changes.append(line)

    verify_log(ServiceLog(config.audit_log).path, whole=True, on_line=note)
    done = []
    with closing(AccessStore(draft)) as access:
        known = {token.name for token in access.tokens()} | {one.name for one, _ in access.identities()}
        for line in changes:
            event, name, dataset = line["event"], line.get("name", ""), str(line.get("dataset"))
            if event == "stop":
                access.stop(dataset, line["who"])
                done.append(f"{dataset} was stopped")
            elif event == "withdrawn":
                access.withdraw(name, dataset)
                done.append(f"the role of {name} on {dataset} was withdrawn")
            elif name in known:
                access.revoke(name, line["at"])
                done.append(f"the token or sign-in of {name} was revoked or replaced")
    return done


_RESTRICTIONS = ("stop", "withdrawn", "token revoked", "token rotated")
