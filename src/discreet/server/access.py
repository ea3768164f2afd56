"""Who may come in: tokens, sessions and the stop switch, in one small file that survives a restart."""

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
"""What every token begins with, so that one that was left lying around is found by a search."""

_BYTES = 32
_TOKEN = re.compile(re.escape(PREFIX) + r"[A-Za-z0-9_-]{43}")
_DAY = 86_400
_SAVE_INTERVAL = 60.0  # seconds by which the time that is kept may lag
_MAX_SESSIONS = 16  # of one token: more browsers than that nobody has
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
    """Somebody who was let in.

    Attributes
    ----------
    name : str
        Whose budget is charged.
    scope : {"analyst", "curator"}
        What they may do; a curator may also ask.
    token_id : int
        Which of their tokens it was.
    """

    name: str
    scope: Scope
    token_id: int

    @property
    def is_curator(self) -> bool:
        """Whether the curator's routes are open to them."""
        return self.scope == "curator"


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is kept of a token: not the token.

    Attributes
    ----------
    id : int
        Its number.
    name, scope
        Of its bearer.
    created, expires : float
        Seconds since 1970.
    revoked : float or None
        When it was, if it was.
    """

    id: int
    name: str
    scope: Scope
    created: float
    expires: float
    revoked: float | None

    def state(self, now: float) -> str:
        """Say in a word whether it opens the door."""
        if self.revoked is not None:
            return "revoked"
        return "expired" if self.expires <= now else "valid"


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that was let in.

    Attributes
    ----------
    caller : Caller
        Who.
    form : str
        What every form of theirs must carry.
    expires : float
        Seconds since 1970.
    """

    caller: Caller
    form: str
    expires: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """That nothing is answered, since when, and who said so."""

    who: str
    since: float


class AccessStore:
    """Tokens, sessions and the stop switch of one service.

    Parameters
    ----------
    path : path
        A SQLite file; made, for its owner's eyes alone, if it is not there.
    wall : callable
        Seconds since 1970; tests set it back.

    Privacy
    -------
    Of a token its SHA-256 is kept, so whoever reads the file cannot come in with what is there. Whoever may
    write to it can let anybody in. A token that was revoked, here or by another process, opens nothing from
    then on: what is remembered between two looks is dropped whenever the file has changed. Then only what is
    looked for is read again, so that whoever looks never waits for how much is there. Time does not go
    back: the latest seen is kept, so that a clock that was set back revives nothing.
    """

    def __init__(self, path: str | os.PathLike[str], *, wall: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self._wall = wall
        # Whoever looks must not wait for whoever writes to a disk.
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._writer = self._open_file()
        self._reader = self._connect()
        self._started = (wall(), time.monotonic())
        self._latest = self._kept = self._read_latest()
        self._seen: int | None = None
        self._tokens: dict[bytes, StoredToken] = {}
        self._callers: dict[int, StoredToken] = {}
        self._sessions: dict[bytes, tuple[StoredToken, str, float]] = {}
        self._stopped: Stopped | None = None

    # Time.

    def now(self) -> float:
        """Return seconds since 1970, and never less than at any earlier call, restarts included."""
        wall, ticks = self._started
        self._latest = max(self._latest, self._wall(), wall + time.monotonic() - ticks)
        return self._latest

    def save_time(self) -> None:
        """Write the latest time down, if that is due; for whoever may wait for a disk."""
        if self.now() - self._kept >= _SAVE_INTERVAL:
            with self._transaction() as cursor:
                self._save_latest(cursor)

    def _save_latest(self, cursor: sqlite3.Cursor) -> None:
        latest = self.now()
        cursor.execute("UPDATE about SET latest = ? WHERE latest < ?", (latest, latest))
        self._kept = latest

    def _read_latest(self) -> float:
        return float(self._reader.execute("SELECT latest FROM about").fetchone()[0])

    # Tokens.

    def create(self, name: str, scope: Scope, *, days: float) -> str:
        """Make a token and return it: it cannot be shown again.

        Parameters
        ----------
        name : str
            Of its bearer, who is charged. A name has one valid token at most: see :meth:`rotate`.
        scope : {"analyst", "curator"}
            What it opens.
        days : float
            How long.
        """
        _check_name(name)
        if scope not in ("analyst", "curator"):
            raise ParameterError(f"scope of a token must be analyst or curator, was {scope!r}.")
        if not (isinstance(days, int | float) and 0 < days <= 3660):
            raise ParameterError(f"days of a token must be above 0 and at most 3660, were {days!r}.")
        with self._transaction() as cursor:
            if self._valid(cursor, name):
                raise ParameterError(
                    f"name of a new token must be one without a valid token, and {name!r} has one. Rotate "
                    "it, or revoke it first."
                )
            return self._issue(cursor, name, scope, days * _DAY)

    def rotate(self, name: str) -> str:
        """Revoke somebody's token and return a new one with the same scope and length."""
        with self._transaction() as cursor:
            found = self._valid(cursor, name)
            if not found:
                raise ParameterError(
                    f"name of a token to rotate must have a valid token, and {name!r} has none. Create one."
                )
            self._revoke(cursor, name)
            last = found[-1]
            return self._issue(cursor, name, last.scope, last.expires - last.created)

    def revoke(self, name: str) -> int:
        """Revoke all tokens of a name, from now on; return how many were valid."""
        with self._transaction() as cursor:
            valid = len(self._valid(cursor, name))
            if not valid and not self._tokens_of(cursor, name):
                raise ParameterError(
                    f"name of a token to revoke must be known, and {name!r} is not. `discreet token list` "
                    "says which are."
                )
            self._revoke(cursor, name)
        return valid

    def tokens(self) -> list[StoredToken]:
        """Return what is kept of all tokens, oldest first."""
        with self._lock:
            return [StoredToken(*row) for row in self._rows(f"SELECT {_COLUMNS} FROM tokens ORDER BY id")]  # noqa: S608

    def find(self, token: str) -> Caller | None:
        """Return who bears a token; None for every kind of wrong one, after the same work."""
        digest = _digest(token)
        with self._lock:
            self._refresh()
            found = self._token(digest)
            valid = found.state(self.now()) == "valid"
        return Caller(found.name, found.scope, found.id) if valid else None

    def is_valid(self, caller: Caller) -> bool:
        """Say whether the token that somebody came with is worth something yet."""
        with self._lock:
            self._refresh()
            known = self._callers.get(caller.token_id)
            if known is None:
                rows = self._rows(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", caller.token_id)  # noqa: S608
                known = self._callers[caller.token_id] = StoredToken(*rows[0]) if rows else _NO_TOKEN
            return known.state(self.now()) == "valid"

    def _token(self, digest: bytes) -> StoredToken:
        known = self._tokens.get(digest)
        if known is None:
            rows = self._rows(f"SELECT {_COLUMNS} FROM tokens WHERE digest = ?", digest)  # noqa: S608
            if not rows:
                return _NO_TOKEN
            known = self._tokens[digest] = StoredToken(*rows[0])
        return known

    def _issue(self, cursor: sqlite3.Cursor, name: str, scope: Scope, seconds: float) -> str:
        token, now = PREFIX + _secret(), self.now()
        cursor.execute(
            "INSERT INTO tokens (name, scope, digest, created, expires) VALUES (?, ?, ?, ?, ?)",
            (name, scope, _digest(token), now, now + seconds),
        )
        return token

    def _tokens_of(self, cursor: sqlite3.Cursor, name: str) -> list[StoredToken]:
        rows = cursor.execute(f"SELECT {_COLUMNS} FROM tokens WHERE name = ? ORDER BY id", (name,))  # noqa: S608
        return [StoredToken(*row) for row in rows]

    def _valid(self, cursor: sqlite3.Cursor, name: str) -> list[StoredToken]:
        now = self.now()
        return [token for token in self._tokens_of(cursor, name) if token.state(now) == "valid"]

    def _revoke(self, cursor: sqlite3.Cursor, name: str) -> None:
        cursor.execute("UPDATE tokens SET revoked = ? WHERE name = ? AND revoked IS NULL", (self.now(), name))
        cursor.execute("DELETE FROM sessions WHERE token IN (SELECT id FROM tokens WHERE name = ?)", (name,))

    # Sessions.

    def open_session(self, caller: Caller, *, hours: float) -> str:
        """Let a browser in, and return what its cookie holds; the oldest of too many is let go."""
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
        """Return the session of a cookie; None once it has ended, or its token is worth nothing."""
        digest = _digest(secret)
        with self._lock:
            self._refresh()
            token, form, expires = self._find_session(digest)
            now = self.now()
            valid = token.state(now) == "valid" and now < expires
        return Session(Caller(token.name, token.scope, token.id), form, expires) if valid else None

    def _find_session(self, digest: bytes) -> tuple[StoredToken, str, float]:
        known = self._sessions.get(digest)
        if known is None:
            # In one statement, so that a session is never seen without its token.
            rows = self._rows(_SESSION, digest)
            if not rows:
                return _NO_TOKEN, "", 0.0
            form, expires, *token = rows[0]
            known = self._sessions[digest] = (StoredToken(*token), form, expires)
        return known

    def close_session(self, secret: str) -> None:
        """End a session."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM sessions WHERE digest = ?", (_digest(secret),))

    # The stop switch.

    def stopped(self) -> Stopped | None:
        """Say whether the service has been stopped, by whom and when."""
        with self._lock:
            self._refresh()
            return self._stopped

    def stop(self, who: str) -> None:
        """Answer nothing from now on."""
        self._switch(who, stopped=True)

    def resume(self, who: str) -> None:
        """Answer again."""
        self._switch(who, stopped=False)

    def _switch(self, who: str, *, stopped: bool) -> None:
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM switch")
            cursor.execute("INSERT INTO switch VALUES (?, ?, ?)", (int(stopped), who, self.now()))

    # The file.

    def _refresh(self) -> None:
        """Forget what was read if anybody has written since; the answer to that costs no disk."""
        version = self._rows("PRAGMA data_version")[0][0]
        if version == self._seen:
            return
        stopped, who, since, latest = self._rows(_STATE)[0]
        self._stopped = Stopped(who, since) if stopped else None
        self._latest = max(self._latest, latest)
        self._tokens, self._callers, self._sessions = {}, {}, {}
        self._seen = version

    def _rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        try:
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error:
            raise SourceError(
                f"access {str(self.path)!r} must be a file that can be read, and is not. Look whether it is "
                "still there."
            ) from None

    def _open_file(self) -> sqlite3.Connection:
        try:
            # Made with its mode before anything is in it; SQLite gives its helpers the same.
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
        connection = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(
                "PRAGMA fullfsync = ON"
            )  # macOS keeps a revoked token's row in the disk's cache
            connection.execute("PRAGMA foreign_keys = ON")
        except sqlite3.DatabaseError:
            pass  # said properly by whoever reads the tables
        return connection

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._writing:
            cursor = self._writer.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    yield cursor
                    self._save_latest(cursor)
                    cursor.execute("COMMIT")
                except BaseException:
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
        """Let go of the file."""
        with self._writing, self._lock:
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
    """Whether something that looks like a token stands in a text."""
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
