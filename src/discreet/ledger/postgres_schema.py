"""A schema of a PostgreSQL database that holds one store: its address, its mark and its connections."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from discreet.errors import MissingExtra, ParameterError

if TYPE_CHECKING:
    from types import ModuleType

    import psycopg


@dataclass(frozen=True, slots=True)
class SchemaAddress:
    """Address of a schema: ``postgresql://host/database#name``.

    Attributes
    ----------
    target : str
        URL of the database, without the name.
    schema : str
        Schema with the tables, ``discreet_<name>``.
    shown : str
        The address without user and password, for messages.
    """

    target: str
    schema: str
    shown: str

    @classmethod
    def parse(cls, url: str, *, default: str, where: str) -> SchemaAddress:
        """Return the address in a URL.

        Parameters
        ----------
        url : str
            Address of the database, with the name of the schema after ``#``.
        default : str
            Name of the schema where the URL has none.
        where : str
            Parameter that the URL was given as, for the message.
        """
        parts = urlsplit(url)
        name = parts.fragment or default
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
            raise ParameterError(
                f"name after # in the URL of {where} must be lower-case letters, digits and "
                f"underscores, got {name!r}. Say for instance postgresql://host/database#survey."
            )
        shown = f"postgresql://{parts.hostname or ''}{parts.path}#{name}"
        return cls(urlunsplit(parts._replace(fragment="")), f"discreet_{name}", shown)

    def connect(self, timeout: float, **options: Any) -> psycopg.Connection[Any]:
        """Return a connection whose commits wait for the disk and whose names are those of the schema.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the server and for locks.
        **options
            Further options of ``psycopg.connect``.
        """
        wait = int(timeout * 1000)
        settings = f"-c synchronous_commit=on -c lock_timeout={wait} -c search_path={self.schema}"
        connection: psycopg.Connection[Any] = driver().connect(
            self.target, options=settings, connect_timeout=max(1, int(timeout)), **options
        )
        return connection

    def mark(self, connection: psycopg.Connection[Any]) -> str | None:
        """Return what the schema says that it holds, "" if it says nothing; None if there is no schema."""
        comments = connection.execute(
            "SELECT obj_description(oid, 'pg_namespace') FROM pg_namespace WHERE nspname = %s", (self.schema,)
        ).fetchall()
        return str(comments[0][0] or "") if comments else None

    def lock(self, connection: psycopg.Connection[Any]) -> None:
        """Wait until no other process creates the schema, and let none do so before the transaction ends."""
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.schema,))

    def create(self, connection: psycopg.Connection[Any], mark: str, tables: str) -> None:
        """Create the schema with its mark and its tables."""
        # The name was checked against a pattern; SQL has no placeholder for it.
        connection.execute(f"CREATE SCHEMA {self.schema}".encode())
        connection.execute(f"COMMENT ON SCHEMA {self.schema} IS '{mark}'".encode())
        connection.execute(tables.encode())


@cache
def with_placeholders(sql: str) -> bytes:
    """Return a statement with PostgreSQL's placeholders instead of question marks.

    Only for constants of this package: a question mark inside a text would be replaced too.
    """
    return sql.replace("?", "%s").encode()


def is_postgres(address: str) -> bool:
    """Return whether an address is the URL of a PostgreSQL database."""
    return address.startswith(("postgresql://", "postgres://"))


def first_line(error: Exception) -> str:
    """Return the first line of an error of the driver; later ones may quote the URL."""
    return str(error).partition("\n")[0]


def driver() -> ModuleType:
    """Return the module of the driver, or say how to install it."""
    try:
        import psycopg
    except ImportError as error:
        raise MissingExtra(
            "psycopg must be installed to keep a ledger in PostgreSQL, and is not. "
            "Run: pip install 'discreet[postgres]'"
        ) from error
    return psycopg
