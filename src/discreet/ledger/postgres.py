"""A ledger in a PostgreSQL database, for data sets that several machines serve.

A schema of the database holds one store. :class:`SchemaAddress` is its address, with its mark and its
connections, also for the access list of a service; :class:`PostgresSchema` is the store of a ledger.
"""

from __future__ import annotations

import contextlib
import re
import weakref
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from discreet.errors import (
    DiscreetError,
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    MissingExtra,
    NotALedger,
    ParameterError,
)
from discreet.ledger._store import PooledStore
from discreet.ledger.records import FORMAT, draw_key
from discreet.ledger.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    import psycopg
T = TypeVar("T")
_KIND = "discreet ledger, format "
_MARK = f"{_KIND}{FORMAT}"
_TABLES = """
CREATE TABLE book (
    one INTEGER PRIMARY KEY CHECK (one = 1), identity TEXT NOT NULL,
    seq BIGINT NOT NULL, hash TEXT NOT NULL
);
CREATE TABLE record (
    seq BIGINT PRIMARY KEY, time TEXT NOT NULL, body TEXT NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TABLE totals (scope TEXT PRIMARY KEY, caps TEXT, spent TEXT NOT NULL);
CREATE TABLE questions (
    question TEXT NOT NULL, owner TEXT NOT NULL, seq BIGINT NOT NULL,
    PRIMARY KEY (question, owner)
);
CREATE TABLE answers (key TEXT PRIMARY KEY, answer BYTEA NOT NULL);
CREATE TABLE marks (key TEXT PRIMARY KEY, seq BIGINT NOT NULL);
CREATE TABLE secret (one INTEGER PRIMARY KEY CHECK (one = 1), key BYTEA NOT NULL);
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION 'the record is append-only'; END$$;
CREATE TRIGGER record_is_never_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON record
FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
"""
_LEAST_SILENCE = 5000
"""Least time in milliseconds that a writing client may idle before the server ends its transaction."""
_TYPES = {"seq": "bigint", "answer": "bytea"}  # of columns that are not text


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
        self.put_mark(connection, mark)
        connection.execute(tables.encode())

    def put_mark(self, connection: psycopg.Connection[Any], mark: str) -> None:
        """Write what the schema says that it holds, in place of what it said."""
        connection.execute(f"COMMENT ON SCHEMA {self.schema} IS '{mark}'".encode())


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


class _PostgresTransaction(Transaction):
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__()
        self.failures = (driver().Error,)
        self._connection = connection

    def select(self, queries: Sequence[tuple[str, Sequence[Any]]]) -> list[list[tuple[Any, ...]]]:
        with self._pipeline(len(queries)):
            cursors = [self._connection.execute(with_placeholders(sql), values) for sql, values in queries]
        # Outside the pipeline: results are available only after all statements were sent.
        return [cursor.fetchall() if cursor.description is not None else [] for cursor in cursors]

    def write_rows(self, statements: Sequence[tuple[str, Sequence[Sequence[Any]]]]) -> None:
        with self._pipeline(len(statements)):
            for sql, rows in statements:
                self._connection.execute(
                    _bulk_insert(sql), [list(column) for column in zip(*rows, strict=True)]
                )

    def _pipeline(self, statements: int) -> contextlib.AbstractContextManager[object]:
        """Return a context that sends several statements before the first answer, to save round trips."""
        return self._connection.pipeline() if statements > 1 else contextlib.nullcontext()

    def in_condition(self, values: Sequence[Any]) -> tuple[str, Sequence[Any]]:
        return "= ANY(%b)", [list(values)]  # in binary, as for _bulk_insert

    def stream(self, sql: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        with self._connection.cursor(name="discreet_record") as rows:
            rows.execute(with_placeholders(sql), values)
            yield from rows


def _store_key(transaction: Transaction, proposed: bytes) -> bytes:
    transaction.execute("INSERT INTO secret (one, key) VALUES (1, ?) ON CONFLICT DO NOTHING", proposed)
    ((key,),) = transaction.execute("SELECT key FROM secret")
    return bytes(key)


@cache
def _bulk_insert(sql: str) -> bytes:
    """Return an INSERT that takes all rows at once, one array for each column that has a placeholder."""
    match = re.fullmatch(r"(INSERT INTO \w+ \((.+?)\)) VALUES \((.+?)\)(.*)", sql)
    assert match is not None
    into, columns, values, conflict = match.groups()
    chosen, lists = [], []
    for column, value in zip(columns.split(", "), values.split(", "), strict=True):
        chosen.append(column if value == "?" else value)
        if value == "?":
            # In binary: as text, every quote and backslash of a JSON row would be escaped in Python.
            lists.append((column, f"%b::{_TYPES.get(column, 'text')}[]"))
    names, arrays = (", ".join(part) for part in zip(*lists, strict=True))
    # Every statement is a constant of this package.
    return f"{into} SELECT {', '.join(chosen)} FROM unnest({arrays}) AS given ({names}){conflict}".encode()  # noqa: S608


class PostgresSchema(PooledStore["psycopg.Connection[Any]"]):
    """Ledger in a schema of its own: ``postgresql://host/database#name``.

    Parameters
    ----------
    url : str
        Address of the database. The part after ``#`` names the ledger within the database; without it the
        name is "ledger". Its tables are in the schema ``discreet_<name>``.
    timeout : float
        Seconds to wait for other writers.
    """

    def __init__(self, url: str, timeout: float) -> None:
        """Parse the address; the first connection is opened at first use."""
        super().__init__(timeout)
        self._psycopg = driver()
        self._address = SchemaAddress.parse(url, default="ledger", where="Ledger.open")
        self.url, self.shown = url, self._address.shown
        weakref.finalize(self, self._pool.close)

    def exists(self) -> bool:
        """Return whether the schema exists and has the mark of a ledger."""
        with self._transaction() as connection:
            return self._has_mark(connection)

    def _has_mark(self, connection: psycopg.Connection[Any]) -> bool:
        """Return whether the schema exists, and raise NotALedger if it is not that of a ledger."""
        mark = self._address.mark(connection)
        if mark is None:
            return False
        if mark != _MARK:
            what = "something else"
            if mark.startswith(_KIND):
                what = (
                    f"a {mark}, whose limits this version, which writes format {FORMAT}, does not "
                    "keep: read it with the version of discreet that wrote it"
                )
            raise NotALedger(
                f"URL of Ledger.open must name a ledger or a schema that does not exist yet, and "
                f"{self._address.schema} of {self.shown} is {what}. Nothing was changed; give "
                "another name after #."
            )
        return True

    def create(self, fill: Callable[[Transaction], None], key: bytes | None = None) -> bool:
        """Create schema and tables in one transaction, unless another process just did."""
        with self._transaction() as connection:
            # If two processes open at once, the second waits here and then finds the ledger.
            self._address.lock(connection)
            if self._has_mark(connection):
                return False
            self._address.create(connection, _MARK, _TABLES)
            transaction = _PostgresTransaction(connection)
            fill(transaction)
            if key is not None:
                _store_key(transaction, key)
            transaction.flush()
        return True

    @contextlib.contextmanager
    def _write_transaction(self) -> Iterator[Transaction]:
        # All writers lock the one row of the table "book" first: one order, so no deadlock. A client that
        # vanishes with the lock is ended by the server before those that wait for it give up.
        silence = max(int(self._timeout * 500), _LEAST_SILENCE)
        timeout_setting = f"set_config('idle_in_transaction_session_timeout', '{silence}', true)"
        with self._transaction(f"SELECT {timeout_setting} FROM book FOR UPDATE") as connection:  # noqa: S608 - a number
            transaction = _PostgresTransaction(connection)
            yield transaction
            transaction.flush()

    @contextlib.contextmanager
    def read(self) -> Iterator[Transaction]:
        """Return a context that reads one consistent state."""
        begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        try:
            with self._pool.reserve_reader(self._timeout), self._transaction(begin) as connection:
                yield _PostgresTransaction(connection)
        except TimeoutError as error:
            raise self._unavailable(error) from error

    def known_secret(self) -> bytes | None:
        """Return the key in its table, or None if there is none."""
        if not self.exists():
            return None
        with self.read() as transaction:
            rows = transaction.execute("SELECT key FROM secret")
        return bytes(rows[0][0]) if rows else None

    def secret(self, first: bytes | None = None) -> bytes:
        """Return the key, kept in a table of its own that only the role that created it may read."""
        proposed = first or draw_key()
        return self.write(lambda transaction: _store_key(transaction, proposed))

    @contextlib.contextmanager
    def _transaction(self, begin: str = "SELECT 1") -> Iterator[psycopg.Connection[Any]]:
        """Return a context with a connection that commits at its end, or undoes all on an exception."""
        connection = None
        with self._translate_errors():
            try:
                connection = self._begin(begin)
                yield connection
                self._commit(connection)
            except BaseException as error:
                # Also when interrupted: no connection goes back to the pool inside a transaction.
                if connection is not None:
                    self._undo(connection, error)
                raise
            self._pool.keep(connection)

    def _commit(self, connection: psycopg.Connection[Any]) -> None:
        try:
            connection.commit()
        except self._psycopg.OperationalError as error:
            raise LedgerUnavailable(
                f"the ledger {self.shown} must confirm what was written, and its connection ended before "
                f"({first_line(error)}). Nothing is released, and a charge may stand: ask the same again, "
                "under the same key if it had one, and it is not charged twice."
            ) from None

    def _undo(self, connection: psycopg.Connection[Any], error: BaseException) -> None:
        if isinstance(error, DiscreetError) and not isinstance(error, LedgerError):
            connection.rollback()
            self._pool.keep(connection)
        else:
            connection.close()

    def _begin(self, begin: str) -> psycopg.Connection[Any]:
        """Return a connection on which a first statement ran: an idle one, or a new one."""
        idle = self._pool.take()
        if idle is not None:
            try:
                idle.execute(begin.encode())
            except self._psycopg.OperationalError:
                # The server was restarted while the connection was idle; no statement was sent yet.
                idle.close()
            else:
                return idle
        connection = self._address.connect(self._timeout)
        try:
            connection.execute(begin.encode())
        except BaseException:
            # Also when interrupted: nobody else has a reference to close it by.
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the idle connections; the next use opens new ones."""
        self._pool.close()

    @contextlib.contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Return a context that turns errors of the driver into LedgerErrors without the URL's password."""
        errors = self._psycopg.errors
        try:
            yield
        except (
            errors.UndefinedTable,
            errors.UndefinedColumn,
            errors.IntegrityError,
        ) as error:
            raise LedgerTampered(
                f"the tables of the ledger must be as they were made, and those of {self.shown} are "
                f"not ({first_line(error)}). Restore them from a backup that checks."
            ) from None
        except self._psycopg.Error as error:
            raise self._unavailable(error) from None

    def _unavailable(self, error: Exception) -> LedgerError:
        return LedgerUnavailable(
            f"the ledger {self.shown} must be reachable and writable, and is not now "
            f"({first_line(error)}). Nothing is released; mend server or lock and try again."
        )
