"""Tokens, browser sessions and the stop switch of a service, kept in one SQLite file."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from discreet.errors import ParameterError, SourceError
from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Scope: TypeAlias = Literal["analyst", "curator"]

PREFIX = "dsc_"
"""Beginning of every token, so that a leaked one is found by searching for it."""

_BYTES = 32
_TOKEN = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43}")
_DAY = 86_400
_SAVE_INTERVAL = 60.0  # seconds by which the stored time may lag
_MAX_SESSIONS = 16  # per token, more browsers than one person uses
_TABLES = """
CREATE TABLE IF NOT EXISTS about (format INTEGER NOT NULL, latest REAL NOT NULL);
CREATE TABLE IF NOT EXISTS tokens (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, digest BLOB NOT NULL UNIQUE,
    created REAL NOT NULL, expires REAL NOT NULL, revoked REAL);
CREATE TABLE IF NOT EXISTS sessions (
    digest BLOB PRIMARY KEY, token INTEGER NOT NULL REFERENCES tokens (id), form TEXT NOT NULL,
    expires REAL NOT NULL);
CREATE TABLE IF NOT EXISTS switch (stopped INTEGER NOT NULL, who TEXT NOT NULL, since REAL NOT NULL);
"""
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated caller.

    Attributes
    ----------
    name : str
        Name under which charges are made, the owner in the ledger.
    scope : {"analyst", "curator"}
        Routes that are open to the caller; a curator may use those of an analyst too.
    token_id : int
        Number of the token that the caller presented.
    """

    name: str
    scope: Scope
    token_id: int

    @property
    def is_curator(self) -> bool:
        """Whether the curator's routes are open to the caller."""
        return self.scope == "curator"


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is stored about a token; the token itself is not.

    Attributes
    ----------
    id : int
        Number of the token, unique in the file.
    name, scope
        Name and scope of the token's bearer, as in `Caller`.
    created, expires : float
        Start and end of its validity, in seconds since 1970.
    revoked : float or None
        Time of its revocation, in seconds since 1970; None if it was not revoked.
    """

    id: int
    name: str
    scope: Scope
    created: float
    expires: float
    revoked: float | None

    def state(self, now: float) -> str:
        """Return ``"valid"``, ``"expired"`` or ``"revoked"``, as of a time in seconds since 1970."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires <= now else "valid"


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a browser.

    Attributes
    ----------
    caller : Caller
        Caller whose token opened the session.
    form : str
        CSRF token that every form of the session must carry.
    expires : float
        End of the session, in seconds since 1970.
    """

    caller: Caller
    form: str
    expires: float


@dataclass(frozen=True, slots=True)
class StopRecord:
    """The fact that the service is stopped: by which caller, and since when in seconds since 1970."""

    caller: str
    since: float


class AccessStore:
    """Tokens, sessions and the stop switch of one service.

    Parameters
    ----------
    path : path
        SQLite file; created with mode 0600 if it does not exist.
    clock : callable
        Wall clock that returns seconds since 1970; tests set it back.

    Privacy
    -------
    Only the SHA-256 of a token is stored, so read access to the file does not give access to the service;
    write access does. A token that was revoked, here or by another process, is rejected from then on: the
    cache is dropped whenever the file has changed. After that only the requested rows are read again, so the
    time of a lookup does not depend on the size of the file. Time never goes back: the latest time seen is
    stored, so that setting the clock back does not revive an expired token.
    """

    def __init__(self, path: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        """Open the file with one connection for reading and one for writing."""
        self.path = Path(path)
        self._clock = clock
        # Two locks, so that a lookup does not wait for a write to reach the disk.
        self._lock, self._write_lock = threading.Lock(), threading.Lock()
        self._writer = self._open_file()
        self._reader = self._connect()
        self._started = (clock(), time.monotonic())
        self._latest = self._saved_latest = self._read_latest()
        self._data_version: int | None = None
        self._tokens: dict[bytes, StoredToken] = {}
        self._callers: dict[int, StoredToken] = {}
        self._sessions: dict[bytes, tuple[StoredToken, str, float]] = {}
        self._stop_record: StopRecord | None = None

    # Time.

    def now(self) -> float:
        """Return the time in seconds since 1970, never less than at an earlier call, restarts included."""
        wall, ticks = self._started
        self._latest = max(self._latest, self._clock(), wall + time.monotonic() - ticks)
        return self._latest

    def save_time(self) -> None:
        """Store the latest time if the stored one is a minute old; the call may wait for the disk."""
        if self.now() - self._saved_latest >= _SAVE_INTERVAL:
            with self._transaction() as cursor:
                self._save_latest(cursor)

    def _save_latest(self, cursor: sqlite3.Cursor) -> None:
        latest = self.now()
        cursor.execute("UPDATE about SET latest = ? WHERE latest < ?", (latest, latest))
        self._saved_latest = latest

    def _read_latest(self) -> float:
        return float(self._reader.execute("SELECT latest FROM about").fetchone()[0])

    # Tokens.

    def create(self, name: str, scope: Scope, *, days: float) -> str:
        """Create a token and return it; it cannot be shown again.

        Parameters
        ----------
        name : str
            Name of the bearer, who is charged. A name has at most one valid token: see :meth:`rotate`.
        scope : {"analyst", "curator"}
            Routes that the token opens.
        days : float
            Days until the token expires, above 0 and at most 3660.
        """
        _check_name(name)
        if scope not in ("analyst", "curator"):
            raise ParameterError(f"scope of a token must be analyst or curator, was {scope!r}.")
        if not (isinstance(days, int | float) and 0 < days <= 3660):
            raise ParameterError(f"days of a token must be above 0 and at most 3660, were {days!r}.")
        with self._transaction() as cursor:
            if self._valid_tokens(cursor, name):
                raise ParameterError(
                    f"name of a new token must be one without a valid token, and {name!r} has one. Rotate "
                    "it, or revoke it first."
                )
            return self._issue(cursor, name, scope, days * _DAY)

    def rotate(self, name: str) -> str:
        """Revoke the token of a name and return a new one with the same scope and lifetime."""
        with self._transaction() as cursor:
            tokens = self._valid_tokens(cursor, name)
            if not tokens:
                raise ParameterError(
                    f"name of a token to rotate must have a valid token, and {name!r} has none. Create one."
                )
            self._revoke(cursor, name)
            last = tokens[-1]
            return self._issue(cursor, name, last.scope, last.expires - last.created)

    def revoke(self, name: str) -> int:
        """Revoke all tokens of a name at once; return how many were valid."""
        with self._transaction() as cursor:
            valid = len(self._valid_tokens(cursor, name))
            if not valid and not self._read_tokens(cursor, name):
                raise ParameterError(
                    f"name of a token to revoke must be known, and {name!r} is not. `discreet token list` "
                    "says which are."
                )
            self._revoke(cursor, name)
        return valid

    def tokens(self) -> list[StoredToken]:
        """Return the records of all tokens, oldest first."""
        with self._lock:
            return [StoredToken(*row) for row in self._rows(f"SELECT {_COLUMNS} FROM tokens ORDER BY id")]  # noqa: S608

    def find(self, token: str) -> Caller | None:
        """Return the bearer of a token; None for any invalid one, after the same work."""
        digest = _digest(token)
        with self._lock:
            self._refresh()
            stored = self._find_token(digest)
            valid = stored.state(self.now()) == "valid"
        return Caller(stored.name, stored.scope, stored.id) if valid else None

    def is_valid(self, caller: Caller) -> bool:
        """Return whether the token that a caller presented is still valid."""
        with self._lock:
            self._refresh()
            stored = self._callers.get(caller.token_id)
            if stored is None:
                rows = self._rows(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", caller.token_id)  # noqa: S608
                stored = self._callers[caller.token_id] = StoredToken(*rows[0]) if rows else _NO_TOKEN
            return stored.state(self.now()) == "valid"

    def _find_token(self, digest: bytes) -> StoredToken:
        stored = self._tokens.get(digest)
        if stored is None:
            rows = self._rows(f"SELECT {_COLUMNS} FROM tokens WHERE digest = ?", digest)  # noqa: S608
            if not rows:
                return _NO_TOKEN
            stored = self._tokens[digest] = StoredToken(*rows[0])
        return stored

    def _issue(self, cursor: sqlite3.Cursor, name: str, scope: Scope, seconds: float) -> str:
        token, now = PREFIX + _secret(), self.now()
        cursor.execute(
            "INSERT INTO tokens (name, scope, digest, created, expires) VALUES (?, ?, ?, ?, ?)",
            (name, scope, _digest(token), now, now + seconds),
        )
        return token

    def _read_tokens(self, cursor: sqlite3.Cursor, name: str) -> list[StoredToken]:
        rows = cursor.execute(f"SELECT {_COLUMNS} FROM tokens WHERE name = ? ORDER BY id", (name,))  # noqa: S608
        return [StoredToken(*row) for row in rows]

    def _valid_tokens(self, cursor: sqlite3.Cursor, name: str) -> list[StoredToken]:
        now = self.now()
        return [token for token in self._read_tokens(cursor, name) if token.state(now) == "valid"]

    def _revoke(self, cursor: sqlite3.Cursor, name: str) -> None:
        cursor.execute("UPDATE tokens SET revoked = ? WHERE name = ? AND revoked IS NULL", (self.now(), name))
        cursor.execute("DELETE FROM sessions WHERE token IN (SELECT id FROM tokens WHERE name = ?)", (name,))

    # Sessions.

    def open_session(self, caller: Caller, *, hours: float) -> str:
        """Open a session for a browser and return the secret for its cookie.

        Beyond 16 sessions of one token the oldest ends.
        """
        secret = _secret()
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM sessions WHERE expires <= ?", (self.now(),))
            cursor.execute(
                "INSERT INTO sessions (digest, token, form, expires) VALUES (?, ?, ?, ?)",
                (_digest(secret), caller.token_id, _secret(), self.now() + hours * 3600),
            )
            cursor.execute(
                "DELETE FROM sessions WHERE token = ?1 AND rowid NOT IN "
                "(SELECT rowid FROM sessions WHERE token = ?1 ORDER BY rowid DESC LIMIT ?2)",
                (caller.token_id, _MAX_SESSIONS),
            )
        return secret

    def session(self, secret: str) -> Session | None:
        """Return the session of a cookie's secret; None once it has ended or its token is invalid."""
        digest = _digest(secret)
        with self._lock:
            self._refresh()
            token, form, expires = self._find_session(digest)
            now = self.now()
            valid = token.state(now) == "valid" and now < expires
        return Session(Caller(token.name, token.scope, token.id), form, expires) if valid else None

    def _find_session(self, digest: bytes) -> tuple[StoredToken, str, float]:
        stored = self._sessions.get(digest)
        if stored is None:
            # In one statement, so that a session is never seen without its token.
            rows = self._rows(_SESSION, digest)
            if not rows:
                return _NO_TOKEN, "", 0.0
            form, expires, *token = rows[0]
            stored = self._sessions[digest] = (StoredToken(*token), form, expires)
        return stored

    def close_session(self, secret: str) -> None:
        """End the session of a cookie's secret."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM sessions WHERE digest = ?", (_digest(secret),))

    # The stop switch.

    def stop_record(self) -> StopRecord | None:
        """Return by which caller and since when the service is stopped; None while it runs."""
        with self._lock:
            self._refresh()
            return self._stop_record

    def stop(self, caller: str) -> None:
        """Stop all answers from now on, in the name of a caller."""
        self._switch(caller, stopped=True)

    def resume(self, caller: str) -> None:
        """Allow answers again, in the name of a caller."""
        self._switch(caller, stopped=False)

    def _switch(self, caller: str, *, stopped: bool) -> None:
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM switch")
            cursor.execute("INSERT INTO switch VALUES (?, ?, ?)", (int(stopped), caller, self.now()))

    # The file.

    def _refresh(self) -> None:
        """Drop the cache if any process has written to the file since; this check reads no disk."""
        version = self._rows("PRAGMA data_version")[0][0]
        if version == self._data_version:
            return
        stopped, caller, since, latest = self._rows(_STATE)[0]
        self._stop_record = StopRecord(caller, since) if stopped else None
        self._latest = max(self._latest, latest)
        self._tokens, self._callers, self._sessions = {}, {}, {}
        self._data_version = version

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error:
            raise SourceError(
                f"access {str(self.path)!r} must be a file that can be read, and is not. Look whether it is "
                "still there."
            ) from None

    def _open_file(self) -> sqlite3.Connection:
        """Create the file and its tables where they are missing, and return the writing connection."""
        try:
            # With its mode before anything is in it; SQLite creates its helper files with the same mode.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as problem:
            raise SourceError(
                f"access {str(self.path)!r} must be a file that can be written, and is not "
                f"({problem.strerror}). Choose another place in the configuration."
            ) from None
        connection = self._connect()
        try:
            connection.executescript(_TABLES)
            with connection:
                connection.execute("BEGIN IMMEDIATE")
                if connection.execute("SELECT count(*) FROM about").fetchone()[0] == 0:
                    connection.execute("INSERT INTO about VALUES (?, 0)", (_FORMAT,))
            written = connection.execute("SELECT format FROM about").fetchone()[0]
        except sqlite3.DatabaseError:
            connection.close()
            raise SourceError(
                f"access {str(self.path)!r} must be a file of tokens, and is something else. Choose another "
                "place in the configuration."
            ) from None
        if written != _FORMAT:
            connection.close()
            raise SourceError(
                f"access {str(self.path)!r} must have format {_FORMAT}, and has {written}: it was written by "
                "another version. Use that one."
            )
        return connection

    def _connect(self) -> sqlite3.Connection:
        """Return a connection in WAL mode that waits for the disk at every commit."""
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(
                "PRAGMA fullfsync = ON"
            )  # macOS keeps a revoked token's row in the disk's cache
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.DatabaseError:
            pass  # reported by the first statement that reads a table
        return connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """Run the body as one write transaction, which also stores the latest time."""
        with self._write_lock:
            cursor = self._writer.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    yield cursor
                    self._save_latest(cursor)
                    cursor.execute("COMMIT")
                except BaseException:
                    # Also when interrupted: the connection must not stay inside a transaction.
                    cursor.execute("ROLLBACK")
                    raise
            except sqlite3.Error:
                raise SourceError(
                    f"access {str(self.path)!r} must be a file that can be written, and is not. Look for a "
                    "full disk, or for another process that holds it."
                ) from None
            finally:
                cursor.close()

    def close(self) -> None:
        """Close both connections to the file."""
        with self._write_lock, self._lock:
            self._reader.close()
            self._writer.close()


_COLUMNS = "id, name, scope, created, expires, revoked"
_SESSION = (
    "SELECT sessions.form, sessions.expires, tokens.id, name, scope, created, tokens.expires, revoked "
    "FROM sessions JOIN tokens ON tokens.id = sessions.token WHERE sessions.digest = ?"
)
_STATE = "SELECT stopped, who, since, latest FROM about LEFT JOIN switch"
_NO_TOKEN = StoredToken(0, "", "analyst", 0.0, 0.0, 0.0)


def contains_token(text: str) -> bool:
    """Return whether a text contains something that looks like a token."""
    return PREFIX in text and _TOKEN.search(text) is not None


def _secret() -> str:
    return base64.urlsafe_b64encode(Stream().words(_BYTES // 8).tobytes()).rstrip(b"=").decode()


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _check_name(name: Any) -> None:
    if not (isinstance(name, str) and 0 < len(name) <= 64 and name.isprintable() and name == name.strip()):
        raise ParameterError(
            "name of a token must be 1 to 64 printable characters without spaces around them, and is not."
        )
    if name == "total":
        raise ParameterError("name of a token must not be 'total', which is what the whole budget is called.")
