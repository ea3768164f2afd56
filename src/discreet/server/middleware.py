"""The ASGI layers around the application: request id, authentication, limits, headers, shape of errors.

A request gets an id, its caller and a place within the limits; a response gets its headers and is counted.
What goes wrong anywhere inside becomes an error of one shape.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from discreet.noise import Stream
from discreet.server.access import PREFIX, contains_token
from discreet.server.credentials import find_session, is_csrf_token_valid, is_same_origin
from discreet.server.errors import (
    BAD_QUERY_STRING,
    BUSY,
    ENGINE_FAILED,
    FORBIDDEN,
    FOREIGN_FORM,
    NOT_FOUND,
    TOKEN_IN_ADDRESS,
    TOO_LARGE,
    UNAUTHORIZED,
    WRONG_HOST,
    ApiError,
    ApiException,
    InvalidRequest,
    api_error_from,
    method_not_allowed,
    rate_limited,
)
from discreet.server.limits import RateLimiter
from discreet.server.monitoring import RouteTemplates, log, log_failure
from discreet.server.workers import FairThreadPool, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeVar

    from discreet.batching import QueryTask
    from discreet.server.access import Caller
    from discreet.server.monitoring import Metrics
    from discreet.server.service import Service

    T = TypeVar("T")

_PORTS = {"http": 80, "https": 443}
_OPEN = ("/health", "/ready")  # asked by whoever keeps it running, under the names of single machines


class HostMiddleware:
    """Lets in requests that name the address of the service, or the one at which they arrived.

    Parameters
    ----------
    app : ASGI application
        Application that is called next.
    address : str
        Address of the service, as the configuration has it.
    """

    def __init__(self, app: Any, address: str) -> None:
        self._app = app
        parts = urlsplit(address)
        self._default = _PORTS[parts.scheme]
        self._ours = (parts.hostname, parts.port or self._default)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Hand a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in _OPEN and not self._meant(scope):
            raise ApiException(WRONG_HOST)
        await self._app(scope, receive, send)

    def _meant(self, scope: Any) -> bool:
        named = self._named(scope["headers"])
        here = tuple(scope.get("server") or ())
        return named is not None and named in (self._ours, here)

    def _named(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[str | None, int] | None:
        sent = [value.decode("latin-1") for name, value in headers if name == b"host"]
        try:
            (host,) = sent
            parts = urlsplit(f"//{host}")
            return (parts.hostname, parts.port or self._default) if parts.netloc == host else None
        except ValueError:
            return None


REJECTION_DELAY = 0.1
"""Seconds, or a multiple, after which a refusal for want of a token leaves, whatever was wrong with it."""

_THREADS = {"analyst": 8, "curator": 4, None: 2}
"""Threads for everything that is no question, by who comes: analysts cannot keep a curator from the stop
switch, and neither of them whoever looks whether the service is alive."""

_USUAL_WORKERS, _MAX_WORKERS = 1, 8  # who answer questions, and with those who help out
_JOBS_PER_CALLER = 2  # jobs of one caller at once
_NAMES = 1024  # of requests that are drawn at once
_WAITING_PER_CALLER = 32  # more that wait for them
_UNAUTHENTICATED = ("/health", "/ready")  # whoever comes here is not asked who they are
_MAX_PERCENT_LAYERS = 3  # layers of percent signs under which a token is looked for
_CALLER: ContextVar[Caller | None] = ContextVar("comes", default=None)
_TOKEN_PARAMETERS = frozenset(("token", "access_token", "authorization", "bearer", "api_key"))

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=(), interest-cohort=()",
}


class ServiceMiddleware:
    """The outermost ASGI layer: authentication, limits, headers, errors, metrics.

    Parameters
    ----------
    app : ASGI application
        Application that holds the routes.
    service : Service
        Service that the routes call.
    metrics : Metrics
        Counters of requests, refusals and answers.

    Privacy
    -------
    A token that is missing, unknown, expired or revoked gets the same answer after the same time. What goes
    wrong inside leaves as a fixed sentence; where is written to the log, without the error's own text. No
    caller has more than a share of the threads, so that nobody keeps others from asking, or a curator from
    stopping it all, with requests that cost nothing.
    """

    def __init__(self, app: Any, service: Service, metrics: Metrics) -> None:
        self._app = app
        self.service = service
        self.metrics = metrics
        limits, workers = service.config.limits, service.config.workers
        # Several processes share what one caller may have.
        self._rate_limiter = RateLimiter(limits.per_minute / workers)
        most = math.ceil(limits.concurrent / workers)
        self._seconds = limits.seconds
        self._body_bytes = limits.body_bytes
        self.templates = RouteTemplates(())
        self.error_page: Callable[[Any, ApiError], Any] | None = None  # tells a browser what is no page
        share = max(2, most // 4)
        # Who sleeps through the rest of a slot answers nobody meanwhile.
        usual, threads = (_USUAL_WORKERS, _MAX_WORKERS) if service.config.slots is None else (most, most)
        self._workers = WorkerPool(usual, threads, share=share, most=most)
        self._long_pool = FairThreadPool("long", most, share=share, in_line=0, most=most)
        self._thread_pools = {
            scope: FairThreadPool(
                f"desk-{scope}", threads, share=_JOBS_PER_CALLER, in_line=_WAITING_PER_CALLER
            )
            for scope, threads in _THREADS.items()
        }
        self._names: list[int] = []
        fixed = dict(HEADERS)
        if service.config.secure:
            fixed["strict-transport-security"] = "max-age=63072000"
        self._headers = [(name.encode(), value.encode()) for name, value in fixed.items()]
        self._ours = frozenset(name for name, _ in self._headers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or live through one life of the process."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        if not self._names:
            # Not a count: that would tell how much others ask.
            self._names = Stream().words(_NAMES).tolist()
        request_id = f"{self._names.pop():016x}"
        state = scope.setdefault("state", {})
        state["request_id"], state["caller"], state["session"] = request_id, None, None
        state["middleware"] = self
        began, status = time.monotonic(), 0

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._add_headers(message.get("headers", ()), request_id)
            await send(message)

        try:
            self._authenticate(scope)
            _CALLER.set(state["caller"])
            await self._app(scope, receive, sending)
        except Exception as error:
            problem = self._api_error(error, scope["path"])
            if problem.code == "failed":
                log_failure(request_id, error)
            elif problem.code == "ledger-unavailable":
                # Of ledger, trail and files alone: an operator has to know which.
                log("unavailable", request_id=request_id, kind=type(error).__name__, reason=str(error))
            if problem.code in ("unauthorized", "forbidden"):
                await asyncio.sleep(REJECTION_DELAY - (time.monotonic() - began) % REJECTION_DELAY)
            if isinstance(error, HTTPException) and self.error_page is not None and _is_browser(scope):
                await self.error_page(scope, problem)(scope, receive, sending)
            elif status == 0:
                await self.send_error(problem, request_id, sending)
            self.metrics.count_refusal(problem.code)
        route = self.templates.find(scope["path"])
        self.metrics.count_request(route, status)
        caller = state["caller"]
        log(
            "request", request_id=request_id, method=scope["method"], route=route, status=status,
            who=None if caller is None else caller.name,
        )  # fmt: skip

    def _api_error(self, error: Exception, path: str) -> ApiError:
        """Return the error body of whatever was raised inside, routing and parameters included."""
        match error:
            case HTTPException():
                allowed = (error.headers or {}).get("Allow")
                if allowed is None:
                    return NOT_FOUND
                # Two methods of one address are two routes, of which Starlette names the first.
                return method_not_allowed(self.templates.methods(path) if path.startswith("/v1") else allowed)
            case RequestValidationError():
                return api_error_from(_invalid_parameters(error))
        return api_error_from(error)

    @staticmethod
    async def send_error(problem: ApiError, request_id: str, send: Any) -> None:
        """Send a problem."""
        headers = [(b"content-type", b"application/json")]
        headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
        body = problem.body(request_id)
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _add_headers(self, headers: Any, request_id: str) -> list[tuple[bytes, bytes]]:
        kept = [(name, value) for name, value in headers if name.lower() not in self._ours]
        return [*kept, *self._headers, (b"x-request-id", request_id.encode())]

    # Who it is.

    def _authenticate(self, scope: Any) -> None:
        """Find the caller by token or session, and raise a refusal if they may not go on."""
        path: str = scope["path"]
        _check_url(path, scope["query_string"])
        if path in _UNAUTHENTICATED:
            return
        headers = scope["headers"]
        caller, session = self._bearer_caller(headers), None
        if caller is None:
            session = find_session(self.service, headers)
            if session is not None:
                caller = session.caller
        state = scope["state"]
        state["caller"], state["session"] = caller, session
        api = path.startswith("/v1/") or path == "/v1"
        if api or path == "/metrics":
            if caller is None:
                raise ApiException(UNAUTHORIZED)
            if (path == "/metrics" or path.startswith("/v1/curator")) and not caller.is_curator:
                raise ApiException(FORBIDDEN)
            if session is not None and scope["method"] not in ("GET", "HEAD"):
                # A page's own script may post with its cookie, and proves that it is the page's.
                sent = next((value for name, value in headers if name == b"x-csrf-token"), b"")
                if not (is_same_origin(headers) and is_csrf_token_valid(session, sent.decode("latin-1"))):
                    raise ApiException(FOREIGN_FORM)
        if caller is not None:
            self.count_request(caller)

    def count_request(self, caller: Caller) -> None:
        """Count a request of somebody, and refuse it if there were too many."""
        wait = self._rate_limiter.take(caller.name)
        if wait is not None:
            raise ApiException(rate_limited(wait))

    def _bearer_caller(self, headers: Any) -> Caller | None:
        sent = [value for name, value in headers if name == b"authorization"]
        if not sent:
            return None
        scheme, _, token = sent[0].partition(b" ")
        fits = len(sent) == 1 and scheme.lower() == b"bearer" and len(token) <= 256
        # Looked up all the same, so that a malformed token takes what a wrong one does.
        found = self.service.access.find(token.strip()[:256].decode("latin-1"))
        return found if fits else None

    # What it may use.

    async def read_body(self, scope: Any, receive: Any) -> bytes:
        """Read a body, within its limits of size and time."""
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > self._body_bytes):
                raise ApiException(TOO_LARGE)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiException(BUSY)
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self._body_bytes:
                        raise ApiException(TOO_LARGE)
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiException(BUSY) from None

    async def run_query(self, flow: QueryTask[T]) -> T:
        """Run a query task on the worker pool; refuse it while too many wait, of its caller or of all."""
        return await self._with_timeout(self._workers.run(_name(), flow))

    async def run_long(self, work: Callable[[], T]) -> T:
        """Run long work on a thread of its own; refuse it while there are too many."""
        return await self._with_timeout(self._long_pool.run(_name(), work))

    async def _with_timeout(self, waited_for: Awaitable[T]) -> T:
        try:
            # What runs goes on and is kept, so that asking again is free.
            async with asyncio.timeout(self._seconds):
                return await waited_for
        except TimeoutError:
            raise ApiException(ENGINE_FAILED) from None

    async def run_in_thread(self, work: Callable[[], T], caller: Caller | None = None) -> T:
        """Run short work off the event loop; queries cannot crowd it out.

        Parameters
        ----------
        work : callable
            Function without arguments to run.
        caller : Caller, optional
            Caller whose share is used; None for that of the request.
        """
        who = caller or _CALLER.get()
        name, scope = (None, None) if who is None else (who.name, who.scope)
        return await self._thread_pools[scope].run(name, work)

    def close(self) -> None:
        """Wait for what runs."""
        self._workers.close()
        for room in (self._long_pool, *self._thread_pools.values()):
            room.close()


def _name() -> str | None:
    caller = _CALLER.get()
    return None if caller is None else caller.name


def _is_browser(scope: Any) -> bool:
    """Say whether somebody looks for a page, and not a program for an answer."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return b"text/html" in accepted and not scope["path"].startswith("/v1")


def _check_url(path: str, query: bytes) -> None:
    if contains_token(path):
        raise ApiException(TOKEN_IN_ADDRESS)
    if not query:
        return
    text = query.decode("latin-1")
    try:
        named = {name.lower() for name, _ in parse_qsl(text, keep_blank_values=True, max_num_fields=100)}
    except ValueError:
        raise ApiException(BAD_QUERY_STRING) from None
    found = PREFIX in text or bool(named & _TOKEN_PARAMETERS)
    for _ in range(_MAX_PERCENT_LAYERS):
        text = unquote_plus(text)
        found = found or PREFIX in text
    if found:
        raise ApiException(TOKEN_IN_ADDRESS)


def _invalid_parameters(error: RequestValidationError) -> InvalidRequest:
    """Return what is wrong with query parameters: all unknown names, or else the first wrong value."""
    found = error.errors()
    unknown = [str(one["loc"][-1]) for one in found if one["type"] == "extra_forbidden"]
    if unknown:
        return InvalidRequest(tuple((name, "there is no such parameter") for name in unknown))
    return InvalidRequest(((str(found[0]["loc"][-1]), found[0]["msg"].removeprefix("Value error, ")),))
