"""Checks of a configuration before a service starts, which change nothing."""

from __future__ import annotations

import os
import shutil
import ssl
import warnings
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.errors import DiscreetWarning, LedgerError, LedgerTampered, LedgerUnavailable, ParameterError
from discreet.formatting import list_names
from discreet.ledger import Ledger
from discreet.pipeline.sources import resolve_source
from discreet.query.curation import Curation
from discreet.server.access_database import check_format
from discreet.server.audit_log import ServiceLog
from discreet.server.config import Config
from discreet.server.connections import permitted_files
from discreet.server.dataset import ledger_limits, load_schema, recognize_table
from discreet.server.upgrade import read_formats
from discreet.tables import open_table
from discreet.tables.spark import is_spark_source, open_frame

if TYPE_CHECKING:
    from discreet.schema import Schema
    from discreet.server.config import Tls
    from discreet.server.dataset_config import DatasetConfig

_LEAST_ROOM = 16 << 20  # bytes on a disk without which a service does not start
_LITTLE_ROOM = 1 << 30  # bytes below which there is a warning


def check(path: str | os.PathLike[str]) -> Config:
    """Check a configuration without changing anything, and return it.

    Checks the keys, the schemas, the first rows of every table, the engines, files, folders and their room on
    disk, the certificate, the limit of open files, and the formats of access and jobs; and for a ledger that
    exists, in a file or in PostgreSQL, that it belongs to this configuration and to the audit log.

    Raises
    ------
    DiscreetError
        The message says what is wrong, and the way out.

    Privacy
    -------
    The operator, who may see the table, learns which cell of its first rows cannot be read, never its
    content.
    """
    config = Config.load(path)
    for entry in config.datasets.values():
        _check_table_exists(entry)
        schema = load_schema(entry)
        Curation.from_schema(schema, ids=entry.keep_ids)
        _check_table(entry, schema)
    _check_spark_processes(config)
    _check_files(config)
    _check_open_files(config)
    for store in read_formats(config):
        check_format(store.key, store.address, store.written, store.known)
    _check_proxy(config)
    if config.tls is not None:
        _check_tls(config.tls)
    if config.sign_in is not None:
        import discreet.server.oidc  # noqa: F401 - says which extra is missing

        config.sign_in.client_secret()
    for entry in config.datasets.values():
        _check_ledger(config, entry, load_schema(entry))
    return config


def _is_file(source: str) -> bool:
    return "://" not in source and not source.startswith("demo:")


def _check_table_exists(entry: DatasetConfig) -> None:
    """Refuse a missing table before its schema is looked for, so that a mistyped path is named as such."""
    if _is_file(entry.table) and not Path(entry.table).exists():
        raise ParameterError(
            f"datasets.{entry.name}.table of the configuration must be a file that can be read, and there is "
            f"no {entry.table!r}. Correct it; paths are relative to the configuration."
        )


def _check_table(entry: DatasetConfig, schema: Schema) -> None:
    """Refuse a table without rows or without a declared column; rows in Spark are counted by the start."""
    if is_spark_source(entry.table):
        present = open_frame(entry.table).columns
        needed = [*(column.name for column in schema.released), *filter(None, [schema.id_column])]
        missing = [name for name in needed if name not in present]
        if missing:
            raise ParameterError(
                f"datasets.{entry.name}.table of the configuration must have every column of its schema, and "
                f"lacks {list_names(missing)}. Correct the schema, or name another table."
            )
        return
    with open_table(resolve_source(entry.table), schema=schema) as table:
        rows = table.batches(schema, rows=1)  # raises for declared columns that are missing
        if _is_file(entry.table) and next(rows, None) is None:
            raise ParameterError(
                f"datasets.{entry.name}.table of the configuration must have at least one row, and "
                f"{entry.table!r} has none. Export it again."
            )


def _check_spark_processes(config: Config) -> None:
    """Warn where every process would read a table in Spark for itself, with a Java process of its own."""
    names = [name for name, entry in config.datasets.items() if is_spark_source(entry.table)]
    if names and config.workers > 1:
        warnings.warn(
            f"workers of the configuration is {config.workers}, and in Spark, where {list_names(names)} "
            f"{'is' if len(names) == 1 else 'are'}, processes share no rows: a start reads and curates them "
            f"{config.workers + 1} times, and every process runs Java and holds its own rows in Spark. Set "
            "workers: 1, since Spark uses all its machines.",
            DiscreetWarning,
            stacklevel=2,
        )


def _check_files(config: Config) -> None:
    """Refuse files of the service whose folder cannot be written to."""
    paths = {"audit_log": config.audit_log} if isinstance(config.audit_log, Path) else {}
    paths["jobs"] = config.jobs  # after the log, beside which it is unless it is named
    if _is_file(config.access):
        paths["access"] = Path(config.access)
    for name, entry in config.datasets.items():
        if _is_file(entry.ledger):
            paths[f"datasets.{name}.ledger"] = Path(entry.ledger)
    for key, path in paths.items():
        if not (path.parent.is_dir() and os.access(path.parent, os.W_OK)):
            raise ParameterError(
                f"{key} of the configuration must be in a folder that can be written to, and "
                f"{str(path.parent)!r} is not. Create it, or name another."
            )
        if path.is_dir():
            raise ParameterError(
                f"{key} of the configuration must be a file, and {str(path)!r} is a folder. Name a file in "
                "it; it will be created."
            )
        _check_room(key, path.parent)
    for name, entry in config.datasets.items():
        if entry.keep is not None:
            _check_keep(f"datasets.{name}.keep", entry.keep)


def _check_keep(key: str, folder: Path) -> None:
    """Refuse a folder for kept copies that cannot be written to, or not be created: its copies are large."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ParameterError(
            f"{key} of the configuration must be a folder that can be written to or created, and "
            f"{str(there)!r} is not one. Name another folder, or leave it out."
        )
    _check_room(key, there)


def _check_room(key: str, folder: Path) -> None:
    """Refuse a disk that is full, and warn of one that soon will be: without room nothing is answered."""
    free = shutil.disk_usage(folder).free
    if free < _LEAST_ROOM:
        raise ParameterError(
            f"{key} of the configuration must be on a disk with {_LEAST_ROOM >> 20} MB of room, and "
            f"{str(folder)!r} has {free >> 20}. Make room, or name another place."
        )
    if free < _LITTLE_ROOM:
        warnings.warn(
            f"{key} of the configuration is on a disk with {free >> 20} MB of room. When it is full, no "
            "query is answered: make room.",
            DiscreetWarning,
            stacklevel=2,
        )


def _check_open_files(config: Config) -> None:
    """Warn where the system permits too few open files for the connections that the configuration permits."""
    permitted, connections = permitted_files(), config.limits.connections
    if permitted < 2 * connections:
        warnings.warn(
            f"limits.connections of the configuration is {connections}, and this user may open {permitted} "
            f"files in one process, half of them for connections: {permitted // 2} will be used. Raise the "
            "limit (LimitNOFILE of systemd, ulimits of a container), or lower limits.connections.",
            DiscreetWarning,
            stacklevel=2,
        )


def _check_proxy(config: Config) -> None:
    """Warn of a service that others can reach past the proxy that encrypts for it."""
    if config.behind_proxy and not config.loopback:
        warnings.warn(
            f"listen of the configuration is {config.listen}, and behind_proxy says that a proxy encrypts: "
            "whoever reaches this port past the proxy sends tokens in plain text, and no limit by address "
            "holds. Listen on 127.0.0.1, or see to it that only the proxy reaches the port.",
            DiscreetWarning,
            stacklevel=2,
        )


def _check_tls(tls: Tls) -> None:
    """Refuse a certificate and key that cannot be read or do not belong together."""
    for key, path in (("certificate", tls.certificate), ("key", tls.key)):
        if not (path.is_file() and os.access(path, os.R_OK)):
            raise ParameterError(
                f"tls.{key} of the configuration must be a file that can be read, and {str(path)!r} is "
                "not. Give a PEM file, and let the service's user read it."
            )
    try:
        # An empty password, since a service has no terminal to ask for a passphrase.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
    except (ssl.SSLError, ValueError):
        raise ParameterError(
            f"tls.key of the configuration must be the private key of tls.certificate, and {str(tls.key)!r} "
            f"is not that of {str(tls.certificate)!r}. Both are PEM files, the key without a passphrase and "
            "the certificate with those that vouch for it."
        ) from None


def find_ledger(config: Config, entry: DatasetConfig) -> bool:
    """Return whether the ledger of a data set is there, and refuse one that was lost.

    Parameters
    ----------
    config : Config
        Configuration of the service, which names the audit log.
    entry : DatasetConfig
        Data set of which the ledger is looked for.

    Raises
    ------
    LedgerTampered
        There is none, and the log names a row of it: an empty one must not take its place.
    """
    if Ledger.identity_at(entry.ledger) is not None:
        return True
    audit_log = ServiceLog(config.audit_log)
    position = audit_log.last_position(entry.name)
    if position is None:
        return False
    shown = repr(entry.ledger) if _is_file(entry.ledger) else "in PostgreSQL"
    raise LedgerTampered(
        f"ledger {shown} must be there, since the audit log {str(audit_log.path)!r} says "
        f"that its row {position.row} paid for an answer, and is not. Put the newest backup in its "
        "place with `discreet service restore`; if there is none, move the log away only after "
        "lowering the limit by what was lost."
    )


def _check_ledger(config: Config, entry: DatasetConfig, schema: Schema) -> None:
    """Refuse a ledger that is missing, is another one or has other limits, before a new one is created."""
    if not find_ledger(config, entry):
        recognize_table(entry, schema).require(new_ledger=entry.new_ledger)
        return
    limits = ledger_limits(entry, schema)
    limits |= {"dataset": None, "dataset_limit": None}  # a data set is opened by the start
    try:
        ledger = Ledger.open(entry.ledger, **limits)
    except (LedgerUnavailable, LedgerTampered):
        raise
    except LedgerError as problem:
        # A mistake in the configuration: to ask again later, as when a ledger is away, does not help.
        raise ParameterError(
            f"{problem} (That is ledger, limit, analyst_limit, rule and order of datasets.{entry.name}: "
            "write what the ledger was made with.)"
        ) from None
    with closing(ledger):
        ServiceLog(config.audit_log).compare(entry.name, ledger)
    recognize_table(entry, schema).require(new_ledger=entry.new_ledger)
