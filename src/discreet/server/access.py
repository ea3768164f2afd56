"""Tokens, grants, browser sessions and stop switches of a service, in a file or in PostgreSQL."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING

from discreet.errors import ParameterError
from discreet.server.access_database import SteadyClock, open_access_database
from discreet.server.callers import (
    EVERY,
    PREFIX,
    Caller,
    Session,
    StopRecord,
    StoredToken,
    check_grant,
    check_name,
    digest,
    highest_role,
    new_secret,
)
from discreet.server.saved_questions import SavedQuestions
from discreet.server.sign_in import Identity, SignInConfig, merge_roles

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from discreet.server.access_database import Rows
    from discreet.server.callers import Role

    Execute = Callable[[str, Sequence[object]], Rows]

_DAY = 86_400
_SAVE_INTERVAL = 60.0  # seconds by which the stored time may lag
_MAX_SESSIONS = 16  # per token or person, more browsers than one person uses
_ATTEMPT_SECONDS = 3600.0  # for which a used attempt is known; its ID token is too old long before


class AccessStore:
    """Tokens, grants, sessions and stop switches of one service; `saved` holds the questions people saved.

    Parameters
    ----------
    address : str or path
        File, created with mode 0600 if it does not exist; or ``postgresql://host/database#name``, so that
        services on several machines share it.
    clock : callable
        Wall clock that returns seconds since 1970; tests set it back.
    sign_in : SignInConfig, optional
        Which people may sign in through a provider, and their roles; None for nobody.

    Privacy
    -------
    Only the SHA-256 of a token is stored, so read access to the file does not give access to the service;
    write access does. A token that was revoked or a grant that was withdrawn, here or by another process, has
    no effect from then on, also in an open session: the cache is dropped whenever the file has changed. After
    that only the requested rows are read again, so the time of a lookup does not depend on the size of the
    file. Time never goes back and never stands still: the latest time seen is stored, so that setting the
    clock back does not revive an expired token, and a token or session of a clock that ran ahead lasts no
    longer than it should.
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = time.time,
        sign_in: SignInConfig | None = None,
    ) -> None:
        """Open the database, and create it if it does not exist."""
        self._database = open_access_database(address)
        self.saved = SavedQuestions(self._database)
        self._sign_in = sign_in
        self._lock = threading.Lock()
        self._saved_latest = self._read_latest()
        self._time = SteadyClock(clock, self._saved_latest, where=f"access {self._database.shown!r}")
        self._version: object = None
        self._tokens: dict[bytes, StoredToken] = {}
        self._callers: dict[int, StoredToken] = {}
        self._sessions: dict[bytes, tuple[StoredToken | str, str, float]] = {}
        self._identities: dict[str, Identity] = {}
        self._grants: dict[str, dict[str, Role]] = {}
        self._stops: dict[str, StopRecord] = {}

    # Time.

    def now(self) -> float:
        """Return the time in seconds since 1970, never less than at an earlier call, restarts included."""
        return self._time.now()

    def save_time(self) -> None:
        """Store the latest time if the stored one is a minute old; the call may wait for the disk."""
        if self.now() - self._saved_latest >= _SAVE_INTERVAL:
            with self._transaction() as execute:
                self._save_latest(execute)

    def _save_latest(self, execute: Execute) -> None:
        latest = self.now()
        execute("UPDATE about SET latest = ? WHERE latest < ?", (latest, latest))
        self._saved_latest = latest

    def _read_latest(self) -> float:
        return float(self._database.rows("SELECT latest FROM about")[0][0])

    # Tokens.

    def create(
        self, name: str, *, days: float, dataset: str = EVERY, grants: Mapping[str, Role] | None = None
    ) -> str:
        """Create a token for one name and return it: see :meth:`create_all`."""
        return self.create_all([name], days=days, dataset=dataset, grants=grants)[name]

    def create_all(
        self,
        names: Sequence[str],
        *,
        days: float,
        dataset: str = EVERY,
        grants: Mapping[str, Role] | None = None,
    ) -> dict[str, str]:
        """Create a token for each name, all or none, and return them by name; they cannot be shown again.

        Parameters
        ----------
        names : sequence of str
            Names of the bearers, who are charged. At each `dataset` a name has at most one valid token: see
            :meth:`rotate`.
        days : float
            Days until the token expires, above 0 and at most 3660.
        dataset : str
            Data set at which the token is valid. Whoever issues a token knows it, so one that the curator of
            a data set issues is valid there alone; ``"*"`` is for all that is granted to the bearer.
        grants : mapping of str to str, optional
            Roles by data set that each name is given with it, as for :meth:`grant`; None for no new ones.
        """
        made: dict[str, str] = {}
        with self._transaction() as execute:
            self._check_new(execute, names, days, dataset, grants or {})
            for name in names:
                for granted, role in (grants or {}).items():
                    self._put_grant(execute, name, granted, role)
                made[name] = self._issue(execute, name, dataset, days * _DAY)
        return made

    def check_new(
        self, names: Sequence[str], *, days: float, dataset: str, grants: Mapping[str, Role]
    ) -> None:
        """Refuse what :meth:`create_all` would refuse, and create nothing."""
        with self._transaction() as execute:
            self._check_new(execute, names, days, dataset, grants)

    def _check_new(
        self, execute: Execute, names: Sequence[str], days: float, dataset: str, grants: Mapping[str, Role]
    ) -> None:
        """Refuse a wrong lifetime, name or role, and a name that has a valid token there."""
        if not (isinstance(days, int | float) and 0 < days <= 3660):
            raise ParameterError(
                f"The days until a token expires must be above 0 and at most 3660, were {days!r}."
            )
        for name in names:
            check_name(name)
            for granted, role in grants.items():
                check_grant(name, granted, role)
            if self._valid_tokens(execute, name, dataset):
                raise ParameterError(
                    f"{name!r} has a valid token already. Replace it, or revoke it before you "
                    "create a new one."
                )

    def rotate(self, name: str, dataset: str = EVERY) -> str:
        """Revoke the token of a name and return a new one with the same lifetime; its grants stay.

        Parameters
        ----------
        name, dataset
            As for :meth:`create`.
        """
        with self._transaction() as execute:
            tokens = self._valid_tokens(execute, name, dataset)
            if not tokens:
                raise ParameterError(f"{name!r} has no valid token that could be replaced. Create a new one.")
            self._revoke(execute, name, dataset)
            last = tokens[-1]
            return self._issue(execute, name, dataset, last.expires - last.created)

    def revoke(self, name: str, dataset: str | None = None) -> int:
        """Revoke tokens of a name at once; return how many tokens and sign-ins were valid.

        Parameters
        ----------
        name : str
            Name of the bearer, or of a person who signed in.
        dataset : str, optional
            Data set, as for :meth:`create`; None revokes all tokens of the name and ends all its sign-ins.
        """
        with self._transaction() as execute:
            valid = len(self._valid_tokens(execute, name, dataset))
            known = bool(self._read_tokens(execute, name, dataset))
            if dataset is None:
                valid += execute("DELETE FROM sign_ins WHERE name = ?", (name,)).rowcount
                known = known or bool(execute(f"{_IDENTITIES} WHERE name = ?", (name,)).fetchall())
            if not known:
                raise ParameterError(
                    f"No token was ever created for {name!r}, and nobody signed in under that name. See "
                    "`discreet token list` and `discreet token people`."
                )
            self._revoke(execute, name, dataset)
        return valid

    def tokens(self) -> list[StoredToken]:
        """Return the records of all tokens, oldest first."""
        with self._lock:
            rows = self._database.rows(f"SELECT {_COLUMNS} FROM tokens ORDER BY id")  # noqa: S608
            return [StoredToken(*row) for row in rows]

    def find(self, token: str) -> Caller | None:
        """Return the bearer of a token; None for any invalid one, after the same work."""
        with self._lock:
            self._refresh()
            stored = self._find_token(digest(token))
            caller, valid = self._caller(stored), stored.state(self.now()) == "valid"
        return caller if valid else None

    def _caller(self, stored: StoredToken) -> Caller:
        """Return the bearer of a token, with what is granted to the bearer where the token is valid."""
        grants: dict[str, Role] = self._find_grants(stored.name)
        if stored.dataset != EVERY:
            role = highest_role(grants, stored.dataset)
            grants = {} if role is None else {stored.dataset: role}
        return Caller(stored.name, stored.id, grants)

    def are_valid(self, callers: Sequence[Caller], dataset: str) -> list[bool]:
        """Return whether each caller's token or sign-in is still valid, and the data set still granted."""
        with self._lock:
            self._refresh()
            return [self._is_valid(caller, dataset) for caller in callers]

    def _is_valid(self, caller: Caller, dataset: str) -> bool:
        if caller.token_id is None:
            known = self._person(caller.name)
        else:
            stored = self._callers.get(caller.token_id)
            if stored is None:
                rows = self._database.rows(f"SELECT {_COLUMNS} FROM tokens WHERE id = ?", caller.token_id)  # noqa: S608
                stored = self._callers[caller.token_id] = StoredToken(*rows[0]) if rows else _NO_TOKEN
            known = self._caller(stored) if stored.state(self.now()) == "valid" else None
        return known is not None and known.role(dataset) is not None

    def _find_token(self, key: bytes) -> StoredToken:
        stored = self._tokens.get(key)
        if stored is None:
            rows = self._database.rows(f"SELECT {_COLUMNS} FROM tokens WHERE digest = ?", key)  # noqa: S608
            if not rows:
                return _NO_TOKEN
            stored = self._tokens[key] = StoredToken(*rows[0])
        return stored

    def _issue(self, execute: Execute, name: str, dataset: str, seconds: float) -> str:
        token, now = PREFIX + new_secret(), self.now()
        execute(
            "INSERT INTO tokens (name, dataset, digest, created, expires) VALUES (?, ?, ?, ?, ?)",
            (name, dataset, digest(token), now, now + seconds),
        )
        return token

    def _read_tokens(self, execute: Execute, name: str, dataset: str | None) -> list[StoredToken]:
        rows = execute(
            f"SELECT {_COLUMNS} FROM tokens WHERE {_NAMED} ORDER BY id",  # noqa: S608
            (name, dataset, dataset),
        ).fetchall()
        return [StoredToken(*row) for row in rows]

    def _valid_tokens(self, execute: Execute, name: str, dataset: str | None) -> list[StoredToken]:
        now = self.now()
        return [token for token in self._read_tokens(execute, name, dataset) if token.state(now) == "valid"]

    def _revoke(self, execute: Execute, name: str, dataset: str | None) -> None:
        execute(
            f"UPDATE tokens SET revoked = ? WHERE {_NAMED} AND revoked IS NULL",  # noqa: S608
            (self.now(), name, dataset, dataset),
        )
        execute(
            f"DELETE FROM sessions WHERE token IN (SELECT id FROM tokens WHERE {_NAMED})",  # noqa: S608
            (name, dataset, dataset),
        )

    # Grants.

    def grant(self, name: str, dataset: str, role: Role) -> None:
        """Give a name a role on a data set, instead of the one it had there; it takes effect at once.

        Parameters
        ----------
        name : str
            Name of a bearer, who may get a token later.
        dataset : str
            Name of the data set, or ``"*"`` for every one, also those to come.
        role : {"analyst", "curator", "operator"}
            Role that is given; that of an operator is on every data set.
        """
        check_grant(name, dataset, role)
        with self._transaction() as execute:
            self._put_grant(execute, name, dataset, role)

    def withdraw(self, name: str, dataset: str) -> bool:
        """Withdraw the role of a name on a data set; return whether it had one."""
        with self._transaction() as execute:
            return execute("DELETE FROM grants WHERE name = ? AND dataset = ?", (name, dataset)).rowcount > 0

    def grants(self, name: str | None = None) -> dict[str, dict[str, Role]]:
        """Return roles by data set, by name: of one name, or of all for None."""
        with self._lock:
            if name is not None:
                self._refresh()
                return {name: dict(self._find_grants(name))}
            found: dict[str, dict[str, Role]] = {}
            for who, dataset, role in self._database.rows(
                "SELECT name, dataset, role FROM grants ORDER BY name"
            ):
                found.setdefault(who, {})[dataset] = role
            return found

    def _find_grants(self, name: str) -> dict[str, Role]:
        if name not in self._grants:
            rows = self._database.rows("SELECT dataset, role FROM grants WHERE name = ?", name)
            self._grants[name] = dict(rows)
        return self._grants[name]

    def _put_grant(self, execute: Execute, name: str, dataset: str, role: Role) -> None:
        execute(
            "INSERT INTO grants (name, dataset, role) VALUES (?, ?, ?) "
            "ON CONFLICT (name, dataset) DO UPDATE SET role = excluded.role",
            (name, dataset, role),
        )

    # Sessions.

    def open_session(self, caller: Caller, *, hours: float) -> str:
        """Open a session for a browser and return the secret for its cookie.

        Beyond 16 sessions of one token the oldest ends.
        """
        secret = new_secret()
        with self._transaction() as execute:
            execute("DELETE FROM sessions WHERE expires <= ?", (self.now(),))
            execute(
                "INSERT INTO sessions (digest, token, form, expires) VALUES (?, ?, ?, ?)",
                (digest(secret), caller.token_id, new_secret(), self.now() + hours * 3600),
            )
            execute(
                "DELETE FROM sessions WHERE token = ? AND rowid NOT IN "
                "(SELECT rowid FROM sessions WHERE token = ? ORDER BY rowid DESC LIMIT ?)",
                (caller.token_id, caller.token_id, _MAX_SESSIONS),
            )
        return secret

    def session(self, secret: str) -> Session | None:
        """Return the session of a cookie's secret; None once it has ended or its token is invalid."""
        with self._lock:
            self._refresh()
            owner, form, expires = self._find_session(digest(secret))
            now = self.now()
            caller: Caller | None
            if isinstance(owner, str):
                caller = self._person(owner)
            else:
                caller = self._caller(owner) if owner.state(now) == "valid" else None
        return Session(caller, form, expires) if caller is not None and now < expires else None

    def _find_session(self, key: bytes) -> tuple[StoredToken | str, str, float]:
        """Return token or person, CSRF token and end of a session."""
        stored = self._sessions.get(key)
        if stored is None:
            # In one statement, so that a session is never seen without its token.
            rows = self._database.rows(_SESSION, key)
            if rows:
                form, expires, *token = rows[0]
                stored = StoredToken(*token), form, expires
            else:
                rows = self._database.rows("SELECT name, form, expires FROM sign_ins WHERE digest = ?", key)
                if not rows:
                    return _NO_TOKEN, "", 0.0
                name, form, expires = rows[0]
                stored = name, form, expires
            self._sessions[key] = stored
        return stored

    def close_session(self, secret: str) -> None:
        """End the session of a cookie's secret."""
        with self._transaction() as execute:
            for table in ("sessions", "sign_ins"):
                execute(f"DELETE FROM {table} WHERE digest = ?", (digest(secret),))  # noqa: S608

    # People who sign in through a provider.

    def set_sign_in(self, sign_in: SignInConfig | None) -> None:
        """Change which people may sign in; sessions of all others end at once."""
        with self._lock:
            self._sign_in = sign_in

    def sign_in(self, identity: Identity, *, attempt: str, hours: float) -> str | None:
        """Open a session for a person and return the secret for the cookie; None for a used attempt.

        Parameters
        ----------
        identity : Identity
            Person, whom the configuration must admit.
        attempt : str
            Secret of the attempt to sign in, which opens one session.
        hours : float
            Hours until the session ends.
        """
        secret, now = new_secret(), self.now()
        with self._transaction() as execute:
            for table in ("attempts", "sign_ins"):
                execute(f"DELETE FROM {table} WHERE expires <= ?", (now,))  # noqa: S608
            used = (digest(attempt), now + _ATTEMPT_SECONDS)
            if not execute("INSERT INTO attempts VALUES (?, ?) ON CONFLICT DO NOTHING", used).rowcount:
                return None
            execute(
                "INSERT INTO identities VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
                "display = excluded.display, member_of = excluded.member_of, latest = excluded.latest",
                (
                    identity.name, identity.issuer, identity.subject, identity.display,
                    json.dumps(identity.groups), now,
                ),
            )  # fmt: skip
            execute(
                "INSERT INTO sign_ins (digest, name, form, expires) VALUES (?, ?, ?, ?)",
                (digest(secret), identity.name, new_secret(), now + hours * 3600),
            )
            execute(
                "DELETE FROM sign_ins WHERE name = ? AND rowid NOT IN "
                "(SELECT rowid FROM sign_ins WHERE name = ? ORDER BY rowid DESC LIMIT ?)",
                (identity.name, identity.name, _MAX_SESSIONS),
            )
        return secret

    def person(self, name: str) -> Caller | None:
        """Return a person who signed in before, with the roles of now; None for one who may not sign in."""
        with self._lock:
            self._refresh()
            return self._person(name)

    def _person(self, name: str) -> Caller | None:
        if name not in self._identities:
            rows = self._database.rows(f"{_IDENTITIES} WHERE name = ?", name)
            if not rows:
                return None
            self._identities[name] = Identity.from_row(rows[0])
        identity = self._identities[name]
        roles = None if self._sign_in is None else self._sign_in.roles(identity)
        if roles is None:
            return None
        return Caller(name, None, merge_roles((roles, self._find_grants(name))), identity.display)

    def identities(self) -> list[tuple[Identity, float]]:
        """Return all people who ever signed in, each with the time of the last sign-in, by name."""
        with self._lock:
            return [
                (Identity.from_row(row), row[4])
                for row in self._database.rows(f"{_IDENTITIES} ORDER BY name")
            ]

    # Stop switches.

    def stop_record(self, dataset: str) -> StopRecord | None:
        """Return by which caller and since when a data set is stopped; None while it answers."""
        with self._lock:
            self._refresh()
            return self._stops.get(dataset)

    def stop(self, dataset: str, caller: str) -> None:
        """Stop all answers about a data set from now on, in the name of a caller."""
        with self._transaction() as execute:
            execute(
                "INSERT INTO stops (dataset, who, since) VALUES (?, ?, ?) "
                "ON CONFLICT (dataset) DO UPDATE SET who = excluded.who, since = excluded.since",
                (dataset, caller, self.now()),
            )

    def resume(self, dataset: str) -> None:
        """Allow answers about a data set again."""
        with self._transaction() as execute:
            execute("DELETE FROM stops WHERE dataset = ?", (dataset,))

    # The database.

    def _refresh(self) -> None:
        """Drop the cache if any process has written to the database since."""
        version = self._database.version()
        if version == self._version:
            return
        self._stops = {
            dataset: StopRecord(who, since)
            for dataset, who, since in self._database.rows("SELECT dataset, who, since FROM stops")
        }
        self._time.advance(self._read_latest())
        self._tokens, self._callers, self._sessions, self._grants, self._identities = {}, {}, {}, {}, {}
        self._version = version

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Execute]:
        """Run the body as one write transaction, which also stores the latest time."""
        with self._database.transaction() as execute:
            yield execute
            self._save_latest(execute)

    def close(self) -> None:
        """Close all connections to the database."""
        self._database.close()


_COLUMNS = "id, name, dataset, created, expires, revoked"
_NAMED = "name = ? AND (dataset = ? OR CAST(? AS TEXT) IS NULL)"  # at one data set, or at all for None
_SESSION = (
    "SELECT sessions.form, sessions.expires, tokens.id, name, dataset, created, tokens.expires, revoked "
    "FROM sessions JOIN tokens ON tokens.id = sessions.token WHERE sessions.digest = ?"
)
_IDENTITIES = "SELECT issuer, subject, display, member_of, latest FROM identities"
_NO_TOKEN = StoredToken(0, "", EVERY, 0.0, 0.0, 0.0)
