"""Formats of the stores of a service, and the steps from each earlier format to the next.

A store of an earlier format is upgraded in place, in one transaction, after a backup of the whole service,
by the same steps in a file and in PostgreSQL; one of a later format is refused. In PostgreSQL access stores
have only ever had format 2, so the step from format 1 is for files alone. The formats of ledgers are those of
:mod:`discreet.ledger`: the record of a ledger is never rewritten, so a ledger of another format is read by
the version that wrote it.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.errors import ParameterError, SourceError
from discreet.ledger import Ledger
from discreet.ledger.postgres import SchemaAddress, driver, first_line, is_postgres, with_placeholders
from discreet.server import access_database, jobs
from discreet.server.access_database import check_format, write_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from discreet.server.config import Config

    Execute: TypeAlias = Callable[..., access_database.Rows]

_TIMEOUT = 10.0  # seconds to wait for a server
__all__ = ["StoreFormat", "read_formats", "upgrade_stores"]


@dataclass(frozen=True, slots=True)
class StoreFormat:
    """Format of one store of a service.

    Attributes
    ----------
    key : str
        What the store holds: ``access`` or ``jobs``.
    address : str
        File or URL of the store.
    written, known : int
        Format that it has, and the one that this version writes.
    """

    key: str
    address: str
    written: int
    known: int

    @property
    def is_older(self) -> bool:
        """Whether an earlier version wrote the store."""
        return self.written < self.known


def read_formats(config: Config) -> list[StoreFormat]:
    """Return the formats of the access store and of the jobs, if they exist; change nothing.

    Raises
    ------
    DiscreetError
        A store, or a ledger, has the format of a later version, or is something else.
    """
    for entry in config.datasets.values():
        Ledger.identity_at(entry.ledger)  # raises for a ledger of another format
    found = [
        StoreFormat("access", config.access, written, access_database.FORMAT)
        for written in [access_database.read_format(config.access)]
        if written is not None
    ] + [
        StoreFormat("jobs", str(config.jobs), written, jobs.FORMAT)
        for written in [jobs.read_format(config.jobs)]
        if written is not None
    ]
    for store in found:
        if not store.is_older:
            check_format(store.key, store.address, store.written, store.known)
    return found


def upgrade_stores(config: Config, stores: list[StoreFormat]) -> None:
    """Bring stores of earlier formats to the one that this version writes, each in one transaction.

    Parameters
    ----------
    config : Config
        Configuration of the service, which must not run.
    stores : list of StoreFormat
        What :func:`read_formats` returned; those that are not older are left as they are.

    Raises
    ------
    DiscreetError
        Nothing of that store was changed; the message says why.
    """
    for store in stores:
        if store.is_older:
            _upgrade(config, store)


def _upgrade(config: Config, store: StoreFormat) -> None:
    """Run all steps of one store in one transaction."""
    steps = _STEPS[store.key]
    if any(number not in steps for number in range(store.written, store.known)):
        raise SourceError(
            f"{store.key} {store.address!r} must have a format that can be upgraded, and has "
            f"{store.written}. Nothing was changed; use the version of discreet that wrote it."
        )
    begin = _begin_postgres if is_postgres(store.address) else _begin_file
    with begin(store) as execute:
        for number in range(store.written, store.known):
            steps[number](execute, config)


@contextmanager
def _begin_file(store: StoreFormat) -> Iterator[Execute]:
    """Return a context that is one transaction of an SQLite file, with the function that runs a statement."""
    try:
        with closing(sqlite3.connect(store.address, isolation_level=None)) as file:
            file.execute("PRAGMA synchronous = FULL")
            file.execute("BEGIN IMMEDIATE")
            yield file.execute
            ((broken,),) = file.execute("SELECT count(*) FROM pragma_foreign_key_check").fetchall()
            if broken:
                raise sqlite3.IntegrityError("rows without the row that they refer to")
            file.execute("COMMIT")
    except sqlite3.Error as problem:
        raise SourceError(
            f"{store.key} {store.address!r} must be a file that can be written, and is not ({problem}). "
            "Nothing was changed; look whether the service still runs, and whether the disk is full."
        ) from None


@contextmanager
def _begin_postgres(store: StoreFormat) -> Iterator[Execute]:
    """Return the context of :func:`_begin_file` for an access store in PostgreSQL."""
    address = SchemaAddress.parse(store.address, default="access", where="access")
    try:
        with address.connect(_TIMEOUT) as connection:  # commits, or rolls back after an error
            address.lock(connection)
            yield lambda statement, values=(): connection.execute(with_placeholders(statement), values)
            address.put_mark(connection, write_mark(store.known))
    except driver().Error as problem:
        raise SourceError(
            f"{store.key} {address.shown!r} must be a database that can be written, and is not "
            f"({first_line(problem)}). Nothing was changed; look whether a service still uses it."
        ) from None


def _name_datasets(execute: Execute, config: Config) -> None:
    """Upgrade an access store of one table, whose tokens had a scope, to roles by name and data set.

    Each token becomes valid at that table alone, because whoever issued it may have seen it.
    """
    if len(config.datasets) != 1:
        raise ParameterError(
            f"datasets of the configuration must name one table to upgrade access {config.access!r}, which "
            f"was written for one, and names {len(config.datasets)}. Leave that one alone there, upgrade, "
            "then add the others."
        )
    (dataset,) = config.datasets
    for name in ("tokens", "sessions"):
        execute(f"ALTER TABLE {name} RENAME TO old_{name}")
    for statement in filter(str.strip, _ACCESS_2.split(";")):
        execute(statement)
    execute(
        "INSERT INTO tokens (id, name, dataset, digest, created, expires, revoked) "
        "SELECT id, name, ?, digest, created, expires, revoked FROM old_tokens",
        (dataset,),
    )
    execute(
        "INSERT INTO grants (name, dataset, role) SELECT name, ?, CASE WHEN max(scope = 'curator') THEN "
        "'curator' ELSE 'analyst' END FROM old_tokens WHERE revoked IS NULL GROUP BY name",
        (dataset,),
    )
    execute(
        "INSERT INTO sessions (digest, token, form, expires) SELECT digest, token, form, expires "
        "FROM old_sessions"
    )
    execute(
        "INSERT INTO stops (dataset, who, since) SELECT ?, who, since FROM switch WHERE stopped", (dataset,)
    )
    for name in ("old_sessions", "old_tokens", "switch"):
        execute(f"DROP TABLE {name}")
    execute("UPDATE about SET format = 2")


def _number_jobs(execute: Execute, _config: Config) -> None:
    """Write the number of the format into a file of jobs that has none; its tables are the same."""
    execute("PRAGMA user_version = 1")


_ACCESS_2 = """
CREATE TABLE tokens (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, dataset TEXT NOT NULL, digest BLOB NOT NULL UNIQUE,
    created REAL NOT NULL, expires REAL NOT NULL, revoked REAL);
CREATE TABLE grants (
    name TEXT NOT NULL, dataset TEXT NOT NULL, role TEXT NOT NULL, PRIMARY KEY (name, dataset));
CREATE TABLE sessions (
    digest BLOB PRIMARY KEY, token INTEGER NOT NULL REFERENCES tokens (id), form TEXT NOT NULL,
    expires REAL NOT NULL);
CREATE TABLE stops (dataset TEXT PRIMARY KEY, who TEXT NOT NULL, since REAL NOT NULL);
"""
"""Tables of access format 2 that differ from those of format 1; they stay as they were in that format."""

_STEPS: Mapping[str, Mapping[int, Callable[[Execute, Config], None]]] = {
    "access": {1: _name_datasets},
    "jobs": {0: _number_jobs},
}
