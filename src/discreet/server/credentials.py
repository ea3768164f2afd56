"""Session cookies, CSRF checks of forms, and the administration of tokens."""

from __future__ import annotations

import hmac
from contextlib import ExitStack, suppress
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack
from urllib.parse import urlsplit

from discreet.errors import DiscreetError, ParameterError
from discreet.server.callers import EVERY, ROLES, check_grant, highest_role
from discreet.server.errors import FOREIGN_FORM, ApiException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from discreet.privacy import Promise
    from discreet.server.access import AccessStore
    from discreet.server.audit_log import ServiceLog
    from discreet.server.callers import Caller, Role, Session
    from discreet.server.service import Service

FORM_FIELD = "csrf"
"""Name of the form field with the CSRF token."""


def cookie_name(service: Service) -> str:
    """Return the name of the session cookie; over HTTPS one that browsers bind to this host."""
    return "__Host-discreet" if service.config.secure else "discreet"


def find_session(service: Service, headers: Iterable[tuple[bytes, bytes]]) -> Session | None:
    """Return the session of a request's cookie; None without a valid one."""
    secret = read_cookie(headers, cookie_name(service))
    return None if secret is None else service.access.session(secret)


def read_cookie(headers: Iterable[tuple[bytes, bytes]], name: str) -> str | None:
    """Return the secret in a cookie of a request; None without one."""
    for header, value in headers:
        if header == b"cookie" and len(value) <= 4096:
            try:
                cookie = SimpleCookie(value.decode("latin-1")).get(name)
            except CookieError:
                continue
            if cookie is not None:
                return cookie.value[:256]
    return None


def open_session(service: Service, caller: Caller) -> str:
    """Open a session for a browser and return the Set-Cookie header."""
    return session_cookie(service, service.access.open_session(caller, hours=service.config.session_hours))


def session_cookie(service: Service, secret: str) -> str:
    """Return the Set-Cookie header of a session."""
    return _cookie(service, cookie_name(service), secret, service.config.session_hours * 3600)


def attempt_cookie_name(service: Service) -> str:
    """Return the name of the cookie of an attempt to sign in through a provider."""
    return f"{cookie_name(service)}-sign-in"


def attempt_cookie(service: Service, secret: str, seconds: float) -> str:
    """Return the Set-Cookie header of an attempt to sign in; 0 seconds delete the cookie."""
    # Lax: the provider sends the browser back by a link, with which strict cookies are not sent.
    return _cookie(service, attempt_cookie_name(service), secret, seconds, same_site="Lax")


def close_session(service: Service, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """End the session of a request and return the Set-Cookie header that deletes its cookie."""
    secret = read_cookie(headers, cookie_name(service))
    if secret is not None:
        service.access.close_session(secret)
    return _cookie(service, cookie_name(service), "", 0)


def _cookie(service: Service, name: str, value: str, seconds: float, *, same_site: str = "Strict") -> str:
    secure = "; Secure" if service.config.secure else ""
    return f"{name}={value}; Path=/; Max-Age={round(seconds)}; HttpOnly; SameSite={same_site}{secure}"


def check_form(session: Session | None, headers: Any, form: Mapping[str, str]) -> Session:
    """Return the session of a form, after checking its origin and its CSRF token.

    Parameters
    ----------
    session : Session or None
        Session of the request; None is refused.
    headers : iterable of (bytes, bytes)
        Headers of the request, as in the ASGI scope.
    form : mapping of str to str
        Fields of the form by name.

    Raises
    ------
    ApiException
        The form does not come from a page that was shown to this session.
    """
    fits = (
        session is not None
        and is_same_origin(headers)
        and is_csrf_token_valid(session, form.get(FORM_FIELD, ""))
    )
    if not fits:
        raise ApiException(FOREIGN_FORM)
    assert session is not None
    return session


def is_csrf_token_valid(session: Session, sent: str) -> bool:
    """Return whether a form carries the CSRF token of its session, compared in constant time."""
    return hmac.compare_digest(session.form.encode(), sent.encode("utf-8", "surrogatepass"))


def is_same_origin(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether Sec-Fetch-Site and Origin, where they are sent, name this service."""
    values = {name: value.decode("latin-1") for name, value in headers}
    if values.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = values.get(b"origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == values.get(b"host", "").lower() != ""
    except ValueError:
        return False


class TokenDetails(TypedDict, total=False):
    """Keyword arguments of a new token; see :meth:`TokenAdmin.create_all`."""

    days: Required[float]
    at: str
    dataset: str | None
    role: Role
    limit: Promise | None


class TokenAdmin:
    """Creates, rotates and revokes tokens, gives and withdraws grants, and records this in the audit log.

    Parameters
    ----------
    access : AccessStore
        Store of tokens and grants.
    audit_log : ServiceLog
        Log in which each change is recorded.
    keep_limits : callable
        Function of who does this, of the names of a data set and of bearers and of a promise, which limits
        the bearers there; it returns a context that puts back the earlier limits if its body is refused.
    """

    def __init__(
        self,
        access: AccessStore,
        audit_log: ServiceLog,
        keep_limits: Callable[[str, str, Sequence[str], Promise], AbstractContextManager[None]],
    ) -> None:
        self._access = access
        self._audit_log = audit_log
        self._keep_limits = keep_limits

    def create(self, by: str, name: str, **details: Unpack[TokenDetails]) -> str:
        """Create a token and return it; it is shown once.

        Parameters
        ----------
        by, name, **details
            As for :meth:`create_all`, of one name.
        """
        return self.create_all(by, [name], **details)[name]

    def create_all(
        self,
        by: str,
        names: Sequence[str],
        *,
        days: float,
        at: str = EVERY,
        dataset: str | None = None,
        role: Role = "analyst",
        limit: Promise | None = None,
    ) -> dict[str, str]:
        """Create tokens for several names, all or none, and return them by name; they are shown once.

        Nothing takes effect without its line in the audit log. What cannot be done for one name is refused
        for all, and grants and limits stay as they were.

        Parameters
        ----------
        by : str
            Name of who does this, for the audit log.
        names : sequence of str
            Names of the bearers, each once.
        days : float
            Days until the tokens expire.
        at : str
            Data set at which the tokens are valid, as for :meth:`AccessStore.create_all`.
        dataset, role : str
            Data set and role that each bearer is granted with it; None for no new grant.
        limit : Promise, optional
            Limit of each bearer at `dataset`; None for the usual one.
        """
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ParameterError(f"The names must all differ, and {twice!r} is there twice. Give it once.")
        grants: dict[str, Role] = {} if dataset is None else {dataset: role}
        self._access.check_new(names, days=days, dataset=at, grants=grants)
        about = {"who": by, "at": at, "dataset": dataset, "role": role if grants else None}
        self._audit_log.write_all("token created", [{**about, "name": name} for name in names])
        try:
            with ExitStack() as limits:
                if limit is not None and dataset is not None:
                    limits.enter_context(self._keep_limits(by, dataset, names, limit))
                return self._access.create_all(names, days=days, dataset=at, grants=grants)
        except DiscreetError:
            undone = {"who": by, "at": at, "dataset": _known(at)}
            with suppress(DiscreetError):  # what made the creation fail is reported
                self._audit_log.write_all("token revoked", [{**undone, "name": name} for name in names])
            raise

    def rotate(self, by: str, name: str, at: str = EVERY) -> str:
        """Replace the token of a name and return the new one; it is shown once."""
        now = self._access.now()
        if any(
            (token.name, token.dataset, token.state(now)) == (name, at, "valid")
            for token in self._access.tokens()
        ):
            # Logged first: if that fails, the old token stays valid and no new one is lost.
            self._audit_log.write("token rotated", who=by, name=name, at=at, dataset=_known(at))
        return self._access.rotate(name, at)

    def revoke(self, by: str, name: str, at: str | None = None) -> int:
        """Revoke tokens of a name at once, at one data set or all for None; return how many were valid."""
        count = self._access.revoke(name, at)
        self._audit_log.write("token revoked", who=by, name=name, at=at, dataset=_known(at))
        return count

    def grant(self, by: str, name: str, dataset: str, role: Role) -> None:
        """Give a name a role on a data set, after recording it in the audit log."""
        check_grant(name, dataset, role)
        self._audit_log.write("granted", who=by, name=name, dataset=dataset, role=role)
        self._access.grant(name, dataset, role)

    def withdraw(self, by: str, name: str, dataset: str) -> bool:
        """Withdraw the role of a name on a data set at once; return whether it had one."""
        had = self._access.withdraw(name, dataset)
        self._audit_log.write("withdrawn", who=by, name=name, dataset=dataset)
        return had

    def list_tokens(self, dataset: str | None = None) -> list[dict[str, Any]]:
        """Return number, bearer, data set, role, times and state of tokens; the tokens are not stored.

        Parameters
        ----------
        dataset : str, optional
            Data set at which the tokens are valid, and whose role is returned; None for all tokens, each with
            the roles that it opens, by data set, and the highest of them.
        """
        now, grants = self._access.now(), self._access.grants()
        rows = []
        for token in self._access.tokens():
            given = grants.get(token.name, {})
            more: dict[str, Any] = {}
            if dataset is None:
                here = None if token.dataset == EVERY else highest_role(given, token.dataset)
                roles = given if token.dataset == EVERY else {token.dataset: here} if here else {}
                role = max(roles.values(), key=ROLES.index, default=None)
                more["roles"] = dict(roles)
            else:
                role = highest_role(given, dataset)
                if token.dataset not in (dataset, EVERY) or (role is None and token.dataset == EVERY):
                    continue
            rows.append(
                {
                    "id": token.id,
                    "name": token.name,
                    "at": token.dataset,
                    "role": role,
                    "created": token.created,
                    "expires": token.expires,
                    "state": token.state(now),
                    **more,
                }
            )
        return rows


def _known(at: str | None) -> str | None:
    return None if at == EVERY else at
