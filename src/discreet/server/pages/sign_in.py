"""Sign-in to the pages through an OpenID Connect provider, and the way back from it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from discreet.errors import ServiceUnavailable
from discreet.server.callers import Caller, new_secret
from discreet.server.credentials import (
    attempt_cookie,
    attempt_cookie_name,
    is_same_origin,
    read_cookie,
    session_cookie,
)
from discreet.server.errors import BUSY, ApiException
from discreet.server.middleware import REJECTION_DELAY
from discreet.server.monitoring import log
from discreet.server.oidc import Attempt, OpenIdProvider, SignInRefused
from discreet.server.pages.page import login_response, redirect

if TYPE_CHECKING:
    from starlette.responses import Response

    from discreet.server.config import Config
    from discreet.server.pages.page import PageRequest
    from discreet.server.service import Service
    from discreet.server.sign_in import Identity

_ATTEMPT_SECONDS = 600  # in which a person has to sign in at the provider
_MAX_PARAMETERS = 16  # with which a provider sends a browser back
_REFUSED = "The sign-in failed. Please try again; if it fails again, tell the operator of the service."
_UNAVAILABLE = "The sign-in provider cannot be reached at the moment. Please try again later, or use a token."


class SignInPages:
    """Handlers of the sign-in.

    Parameters
    ----------
    config : Config
        Configuration of the service, with ``sign_in``.

    Privacy
    -------
    A browser comes back with the state of its own attempt or not at all, so no one can sign another in as
    himself. Where a browser goes afterwards is fixed. What was wrong with a sign-in is logged for the
    operator; the person sees the same page for all of it, after a multiple of the same time.
    """

    def __init__(self, config: Config) -> None:
        self._provider = OpenIdProvider(config)

    async def begin(self, page_request: PageRequest) -> Response:
        """Send a browser to the provider, with a cookie that binds the attempt to it."""
        if not is_same_origin(page_request.http.headers.raw):
            return redirect("/login")
        if self._provider.is_busy:
            raise ApiException(BUSY)
        attempt = Attempt(new_secret())
        try:
            address = await self._provider.authorization_url(attempt)
        except ServiceUnavailable as problem:
            return self._unavailable(page_request, problem)
        response = redirect(address)
        response.headers["set-cookie"] = attempt_cookie(
            page_request.service, attempt.secret, _ATTEMPT_SECONDS
        )
        return response

    async def finish(self, page_request: PageRequest) -> Response:
        """Open a session for the person with whom a browser comes back from the provider."""
        started = time.monotonic()
        if self._provider.is_busy:
            raise ApiException(BUSY)
        try:
            response = await self._finish(page_request)
        except ServiceUnavailable as problem:
            response = self._unavailable(page_request, problem)
        except SignInRefused as problem:
            log("sign-in refused", request_id=page_request.http.state.request_id, reason=str(problem))
            page_request.middleware.metrics.count_refusal("unauthorized")
            await asyncio.sleep(REJECTION_DELAY - (time.monotonic() - started) % REJECTION_DELAY)
            response = login_response(page_request, status=401, refused=_REFUSED)
        response.headers.append("set-cookie", attempt_cookie(page_request.service, "", 0))
        return response

    async def _finish(self, page_request: PageRequest) -> Response:
        """Return the response that opens a session, or says that the person is not admitted."""
        service, request = page_request.service, page_request.http
        secret = read_cookie(request.headers.raw, attempt_cookie_name(service))
        if secret is None:
            raise SignInRefused("This browser has not begun to sign in.")
        sent = request.query_params.multi_items()
        parameters = dict(sent)
        if len(parameters) < len(sent) or len(sent) > _MAX_PARAMETERS:
            raise SignInRefused("The provider sent a parameter twice, or too many parameters.")
        claims = await self._provider.finish(Attempt(secret), parameters)
        assert service.config.sign_in is not None
        identity = service.config.sign_in.identity(claims)
        roles = service.config.sign_in.roles(identity)
        if roles is None:
            log("sign-in refused", request_id=request.state.request_id, reason="The person is not admitted.")
            page_request.middleware.metrics.count_refusal("forbidden")
            return login_response(page_request, status=403, refused=_describe_unknown(identity))
        caller = Caller(identity.name, None, roles)
        page_request.middleware.count_request(caller)
        cookie = await page_request.middleware.run_in_thread(
            lambda: _open_session(service, identity, secret), caller
        )
        if cookie is None:
            raise SignInRefused("This attempt to sign in was already used.")
        response = redirect("/signed-in")
        response.headers["set-cookie"] = cookie
        return response

    async def signed_in(self, page_request: PageRequest) -> Response:
        """Return the page that leads a browser on to the data sets."""
        return page_request.render("signed_in.html.j2")

    @staticmethod
    def _unavailable(page_request: PageRequest, problem: ServiceUnavailable) -> Response:
        log("provider unavailable", request_id=page_request.http.state.request_id, reason=str(problem))
        return login_response(page_request, status=503, refused=_UNAVAILABLE)


def _describe_unknown(identity: Identity) -> str:
    return (
        "Your account is not allowed to use this service. To get access, give the operator of the service "
        f"your identifier: {identity.subject}"
    )


def _open_session(service: Service, identity: Identity, attempt: str) -> str | None:
    """Open a session, record it in the audit log, and return its cookie; None for a used attempt."""
    secret = service.access.sign_in(identity, attempt=attempt, hours=service.config.session_hours)
    if secret is None:
        return None
    try:
        service.audit_log.write(
            "signed in", who=identity.name, issuer=identity.issuer, subject=identity.subject
        )
    except BaseException:
        # Also when interrupted: no session is open that has no line in the audit log.
        service.access.close_session(secret)
        raise
    return session_cookie(service, secret)
