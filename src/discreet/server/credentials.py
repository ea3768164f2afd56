"""Browsers: the cookie of a session, and the proof that a form came from one of our pages."""

from __future__ import annotations

import hmac
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from discreet.server.errors import FOREIGN_FORM, ApiException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from discreet.ledger import Ledger
    from discreet.privacy import Promise
    from discreet.server.access import AccessStore, Caller, Scope, Session
    from discreet.server.audit_log import ServiceLog
    from discreet.server.service import Service

FORM_FIELD = "csrf"
"""What forms call the text that proves where they came from."""


def cookie_name(service: Service) -> str:
    """Return what the cookie is called: over HTTPS a name that browsers tie to this host."""
    return "__Host-discreet" if service.config.secure else "discreet"


def find_session(service: Service, headers: Iterable[tuple[bytes, bytes]]) -> Session | None:
    """Return the session that comes with a request, if one does."""
    secret = read_cookie(service, headers)
    return None if secret is None else service.access.session(secret)


def read_cookie(service: Service, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return what the cookie of a request holds."""
    name = cookie_name(service)
    for header, value in headers:
        if header == b"cookie" and len(value) <= 4096:
            try:
                found = SimpleCookie(value.decode("latin-1")).get(name)
            except CookieError:
                continue
            if found is not None:
                return found.value[:256]
    return None


def open_session(service: Service, caller: Caller) -> str:
    """Let a browser in; return the Set-Cookie header."""
    secret = service.access.open_session(caller, hours=service.config.session_hours)
    return _cookie(service, secret, round(service.config.session_hours * 3600))


def close_session(service: Service, headers: Iterable[tuple[bytes, bytes]]) -> str:
    """End a session; return the Set-Cookie header that drops its cookie."""
    secret = read_cookie(service, headers)
    if secret is not None:
        service.access.close_session(secret)
    return _cookie(service, "", 0)


def _cookie(service: Service, value: str, seconds: int) -> str:
    secure = "; Secure" if service.config.secure else ""
    return f"{cookie_name(service)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def check_form(session: Session | None, headers: Any, form: Mapping[str, str]) -> Session:
    """Refuse a form that did not come from one of our pages, shown to this session.

    Parameters
    ----------
    session : Session or None
        Of the request.
    headers : iterable of (bytes, bytes)
        As ASGI gives them.
    form : mapping of str to str
        What was sent.
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
    """Whether a form carries what its session was told."""
    return hmac.compare_digest(session.form.encode(), sent.encode("utf-8", "surrogatepass"))


def is_same_origin(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a browser says that a request comes from our own pages, or says nothing."""
    said = {name: value.decode("latin-1") for name, value in headers}
    if said.get(b"sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = said.get(b"origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == said.get(b"host", "").lower() != ""
    except ValueError:
        return False


class TokenAdmin:
    """Makes, replaces and revokes tokens, and writes that down.

    Parameters
    ----------
    access : AccessStore
        Where they are kept.
    trail : ServiceLog
        Where it is written down.
    ledger : callable
        Returns the ledger, for limits of somebody's own; called only if one is given.
    gaussian_share : float
        Part of epsilon that such limits keep for Gaussian noise.
    """

    def __init__(
        self, access: AccessStore, trail: ServiceLog, ledger: Callable[[], Ledger], *, gaussian_share: float
    ) -> None:
        self._access = access
        self._audit_log = trail
        self._ledger = ledger
        self._gaussian_share = gaussian_share

    def create(self, by: str, name: str, scope: Scope, *, days: float, limit: Promise | None = None) -> str:
        """Make a token, with a limit of its bearer's own if one is given, and return it: shown once."""
        token = self._access.create(name, scope, days=days)
        try:
            if limit is not None:
                self._ledger().set_owner_limit(name, limit, gaussian_share=self._gaussian_share)
            self._audit_log.write("token created", who=by, name=name, scope=scope)
        except BaseException:
            self._access.revoke(name)
            raise
        return token

    def rotate(self, by: str, name: str) -> str:
        """Replace somebody's token, and return the new one: shown once."""
        now = self._access.now()
        if any(token.name == name and token.state(now) == "valid" for token in self._access.tokens()):
            # Before: if it cannot be written, the old one stays valid and no new one is lost.
            self._audit_log.write("token rotated", who=by, name=name)
        return self._access.rotate(name)

    def revoke(self, by: str, name: str) -> int:
        """Revoke somebody's tokens, from now on; return how many were valid."""
        count = self._access.revoke(name)
        self._audit_log.write("token revoked", who=by, name=name)
        return count

    def list_tokens(self) -> list[dict[str, Any]]:
        """Return what is known of all tokens; the tokens themselves are known to nobody."""
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
