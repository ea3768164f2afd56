"""Copies of an access store: into a SQLite file of a backup, and back into a store that is empty."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from discreet.errors import SourceError
from discreet.ledger.postgres import SchemaAddress, driver, is_postgres
from discreet.server.access_database import open_access_database, unreachable_error

if TYPE_CHECKING:
    from pathlib import Path

_TIMEOUT = 10.0  # seconds to wait for a server
_ABOUT = "about"


def copy_sqlite(source: Path, target: Path) -> None:
    """Write a consistent copy of a SQLite file that others may be writing to, as one file without a journal.

    Parameters
    ----------
    source : path
        File that is copied.
    target : path
        File that does not exist yet; it gets mode 0600.
    """
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with (
            closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as file,
            closing(sqlite3.connect(target, isolation_level=None)) as copy,
        ):
            file.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            ((verdict,),) = copy.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.Error as problem:
        raise SourceError(
            f"{str(source)!r} must be a file that can be copied, and is not ({problem}). Look for a full "
            "disk, or for another process that holds it."
        ) from None
    if verdict != "ok":
        raise SourceError(
            f"{str(source)!r} must be intact, and is damaged. Restore it from an earlier backup."
        )


def copy_access(address: str, target: Path) -> None:
    """Write a consistent copy of an access store, of whatever format, to a new SQLite file.

    Parameters
    ----------
    address : str
        File or URL of the store.
    target : path
        File that does not exist yet. From PostgreSQL it gets plain tables with the same names and columns.
    """
    if not is_postgres(address):
        from pathlib import Path

        copy_sqlite(Path(address), target)
        return
    schema = SchemaAddress.parse(address, default="access", where="access")
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    try:
        with (
            schema.connect(_TIMEOUT) as connection,
            closing(sqlite3.connect(target, isolation_level=None)) as file,
        ):
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            tables = connection.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema.schema,)
            ).fetchall()
            file.execute("BEGIN")
            for (name,) in tables:
                rows = connection.execute(f'SELECT * FROM "{name}"'.encode())  # noqa: S608 - our own tables
                columns = ", ".join(f'"{column.name}"' for column in rows.description or ())
                file.execute(f'CREATE TABLE "{name}" ({columns})')
                marks = ", ".join("?" * len(rows.description or ()))
                file.executemany(f'INSERT INTO "{name}" VALUES ({marks})', rows.fetchall())  # noqa: S608
            file.execute("COMMIT")
    except driver().Error as problem:
        raise unreachable_error(schema.shown, problem) from None


def fill_access(copy: Path, address: str) -> bool:
    """Copy a backup into an access store that is missing or has no rows; return False if it has some.

    Parameters
    ----------
    copy : path
        File that :func:`copy_access` wrote, in the format that this version writes.
    address : str
        File or URL of the store, which is created if it does not exist.
    """
    with closing(open_access_database(address)) as store, closing(sqlite3.connect(copy)) as file:
        names = [name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        ((latest,),) = file.execute("SELECT latest FROM about").fetchall()
        # Tables are filled in the order in which they were created, since later ones refer to earlier ones.
        order = [name for name in store.tables if name in names and name != _ABOUT]
        with store.transaction() as execute:
            for name in order:
                if execute(f"SELECT 1 FROM {name} LIMIT 1", ()).fetchall():  # noqa: S608 - our own tables
                    return False
            for name in order:
                columns = [
                    column
                    for (column,) in file.execute("SELECT name FROM pragma_table_info(?)", (name,))
                    if column != "rowid"
                ]
                chosen, marks = ", ".join(columns), ", ".join("?" * len(columns))
                insert = f"INSERT INTO {name} ({chosen}) {store.keep_numbers}VALUES ({marks})"
                for row in file.execute(f"SELECT {chosen} FROM {name}"):  # noqa: S608
                    execute(insert, row)
            for statement in store.after_numbers:
                execute(statement, ())
            execute("UPDATE about SET latest = ? WHERE latest < ?", (latest, latest))
    return True
