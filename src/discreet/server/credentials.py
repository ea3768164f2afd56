"""Session cookies, CSRF checks of forms, and the administration of tokens."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from discreet.server.errors import FOREIGN_FORM, ApiException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from discreet.ledger import Ledger, Rule
    from discreet.privacy import Promise
    from discreet.server.access import AccessStore, Caller, Scope, Session
    from discreet.server.audit_log import ServiceLog
    from discreet.server.service import Service

FORM_FIELD = "csrf"
"""Name of the form field with the CSRF token."""


def cookie_name(service: Service) -> str:
    """Return the name of the session cookie; over HTTPS one that browsers bind to this host."""
    return "__Host-discreet" if service.config.secure else "discreet"


def find_session(service: Service, headers: Iterable[tuple[bytes, bytes]]) -> Session | None:
    """Return the session of a request's cookie; None without a valid one."""
    secret = read_cookie(service, headers)
    return None if secret is None else service.access.session(secret)


def read_cookie(service: Service, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the secret in the session cookie of a request; None without one."""
    name = cookie_name(service)
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
    secret = service.access.open_session(caller, hours=service.config.session_hours)
    return _cookie(service, secret, round(service.config.session_hours * 3600))


def close_session(service: Service, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """End the session of a request and return the Set-Cookie header that deletes its cookie."""
    secret = read_cookie(service, headers)
    if secret is not None:
        service.access.close_session(secret)
    return _cookie(service, "", 0)


def _cookie(service: Service, value: str, seconds: int) -> str:
    secure = "; Secure" if service.config.secure else ""
    return f"{cookie_name(service)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


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


class TokenAdmin:
    """Creates, rotates and revokes tokens, and records this in the audit log.

    Parameters
    ----------
    access : AccessStore
        Store of the tokens.
    audit_log : ServiceLog
        Log in which each change is recorded.
    ledger : callable
        Function that returns the ledger; called only to set a limit of one bearer.
    rule, order
        Noise that such a limit admits, as for :meth:`Ledger.open <discreet.ledger.Ledger.open>`.
    """

    def __init__(
        self,
        access: AccessStore,
        audit_log: ServiceLog,
        ledger: Callable[[], Ledger],
        *,
        rule: Rule,
        order: float | None,
    ) -> None:
        """Keep references to the stores that a change of tokens touches."""
        self._access = access
        self._audit_log = audit_log
        self._ledger = ledger
        self._rule: Rule = rule
        self._order = order

    def create(
        self, curator: str, name: str, scope: Scope, *, days: float, limit: Promise | None = None
    ) -> str:
        """Create a token, optionally with a limit for its bearer, and return it; it is shown once."""
        token = self._access.create(name, scope, days=days)
        try:
            if limit is not None:
                self._ledger().set_owner_limit(name, limit, rule=self._rule, order=self._order)
            self._audit_log.write("token created", who=curator, name=name, scope=scope)
        except BaseException:
            # Also when interrupted: no token stays valid that has no limit and no line in the audit log.
            self._access.revoke(name)
            raise
        return token

    def rotate(self, curator: str, name: str) -> str:
        """Replace the token of a name and return the new one; it is shown once."""
        now = self._access.now()
        if any(token.name == name and token.state(now) == "valid" for token in self._access.tokens()):
            # Logged first: if that fails, the old token stays valid and no new one is lost.
            self._audit_log.write("token rotated", who=curator, name=name)
        return self._access.rotate(name)

    def revoke(self, curator: str, name: str) -> int:
        """Revoke all tokens of a name at once; return how many were valid."""
        count = self._access.revoke(name)
        self._audit_log.write("token revoked", who=curator, name=name)
        return count

    def list_tokens(self) -> list[dict[str, Any]]:
        """Return number, bearer, scope, times and state of every token; the tokens are not stored."""
        now = self._access.now()
        return [
            {
                "id": token.id,
                "name": token.name,
                "scope": token.scope,
                "created": token.created,
                "expires": token.expires,
                "state": token.state(now),
            }
            for token in self._access.tokens()
        ]
