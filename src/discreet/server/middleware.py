"""The ASGI layers around the application: request ids, authentication, limits, headers, error responses."""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_plus, urlsplit

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from discreet.noise import Stream
from discreet.server.callers import PREFIX, contains_token
from discreet.server.connections import ConnectionLimiter, raise_file_limit
from discreet.server.credentials import find_session, is_csrf_token_valid, is_same_origin
from discreet.server.errors import (
    BAD_QUERY_STRING,
    BODY_TOO_SLOW,
    ENGINE_FAILED,
    FOREIGN_FORM,
    NOT_FOUND,
    ONLY_OPERATORS,
    TOKEN_IN_ADDRESS,
    TOOK_TOO_LONG,
    UNAUTHORIZED,
    WRONG_HOST,
    ApiError,
    ApiException,
    InvalidRequest,
    api_error_from,
    method_not_allowed,
    rate_limited,
    too_large,
)
from discreet.server.job_runner import JobRunner
from discreet.server.limits import RateLimiter
from discreet.server.monitoring import RouteTemplates, log, log_failure
from discreet.server.work import WorkBudget
from discreet.server.workers import FairThreadPool, WorkerPool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from typing import TypeVar

    from discreet.batching import QueryTask
    from discreet.server.callers import Caller
    from discreet.server.monitoring import Metrics
    from discreet.server.query_service import RunTask
    from discreet.server.service import Service
    from discreet.server.work import WorkModel

    T = TypeVar("T")

_PORTS = {"http": 80, "https": 443}
_ANY_HOST = ("/health", "/ready")  # requested by health checks, under the names of single machines

REJECTION_DELAY = 0.1
"""Refusals for a missing or wrong token are sent after a multiple of these seconds, whatever the reason."""

_THREADS = {"analyst": 8, "curator": 4, None: 2}
"""Threads for all work that is not a query, by kind of caller: analysts cannot keep a curator from the
stop switch, and neither can keep a health check from its answer."""

_USUAL_WORKERS, _MAX_WORKERS = 1, 8  # workers that answer queries, without and with helpers
_JOBS_PER_CALLER = 2  # jobs of one caller that run at once
_WAITING_PER_CALLER = 32  # further jobs of one caller that wait
_ID_BATCH = 1024  # request ids drawn at once
_LOGIN_BYTES = 2**14  # bytes that are read of a body without a valid token or session
_UNAUTHENTICATED = ("/health", "/ready")  # paths that need no token
_MAX_PERCENT_LAYERS = 3  # layers of percent-encoding under which a token is looked for
_CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)
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


class HostMiddleware:
    """Refuses requests whose Host is neither the service's address nor the socket at which they arrived.

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
        self._default_port = _PORTS[parts.scheme]
        self._public = (parts.hostname, parts.port or self._default_port)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in _ANY_HOST and not self._is_accepted(scope):
            raise ApiException(WRONG_HOST)
        await self._app(scope, receive, send)

    def _is_accepted(self, scope: Any) -> bool:
        host = self._parse_host(scope["headers"])
        socket_address = tuple(scope.get("server") or ())
        return host is not None and host in (self._public, socket_address)

    def _parse_host(self, headers: Iterable[tuple[bytes, bytes]]) -> tuple[str | None, int] | None:
        """Return host and port of the Host header; None unless there is exactly one valid header."""
        sent = [value.decode("latin-1") for name, value in headers if name == b"host"]
        try:
            (host,) = sent
            parts = urlsplit(f"//{host}")
            return (parts.hostname, parts.port or self._default_port) if parts.netloc == host else None
        except ValueError:
            return None


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
    A missing, unknown, expired or revoked token gets the same response after the same time. An unexpected
    exception becomes a fixed sentence; its traceback is logged without its text. No caller has more than a
    share of the threads, so that requests without cost cannot keep others from asking, or a curator from
    stopping the service.
    """

    def __init__(self, app: Any, service: Service, metrics: Metrics) -> None:
        """Set up rate limiter, worker pool and thread pools from the configuration of the service."""
        self._app = app
        self.service = service
        self.metrics = metrics
        limits, workers = service.config.limits, service.config.workers
        # Each process has its part of what one caller may use.
        self._rate_limiter = RateLimiter(limits.per_minute / workers)
        most = math.ceil(limits.concurrent / workers)
        self._seconds = limits.seconds
        per_address = None if service.config.behind_proxy else limits.connections_per_address
        # Half of all files: a connection is accepted before another one makes room for it.
        self.connections = ConnectionLimiter(
            math.ceil(min(limits.connections, raise_file_limit() // 2) / workers),
            None if per_address is None else math.ceil(per_address / workers),
            body_bytes=limits.body_bytes,
        )
        self._body_bytes = limits.body_bytes
        self.templates = RouteTemplates(())
        self.error_page: Callable[[Any, ApiError], Any] | None = None  # response for browsers
        share = max(2, most // 4)
        # With slots a worker sleeps through the rest of the slot, so every query needs one.
        usual, threads = (_USUAL_WORKERS, _MAX_WORKERS) if service.config.slots is None else (most, most)
        budget = WorkBudget(limits.work_per_hour / workers)
        self._workers = WorkerPool(usual, threads, share=share, most=most, budget=budget)
        self._long_pool = FairThreadPool("long", most, share=1, max_waiting=share, most=most)
        self._thread_pools = {
            kind: FairThreadPool(
                f"short-{kind}", threads, share=_JOBS_PER_CALLER, max_waiting=_WAITING_PER_CALLER
            )
            for kind, threads in _THREADS.items()
        }
        self._background = ThreadPoolExecutor(1, thread_name_prefix="background")
        self.jobs = JobRunner(service.jobs, metrics)
        self._request_ids: list[int] = []
        headers = dict(HEADERS)
        if service.config.secure:
            headers["strict-transport-security"] = "max-age=63072000"
        self._headers = [(name.encode(), value.encode()) for name, value in headers.items()]
        self._header_names = frozenset(name for name, _ in self._headers)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request, or the lifespan events of the process."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        if not self._request_ids:
            # Random, since a counter would reveal how much others ask.
            self._request_ids = Stream().words(_ID_BATCH).tolist()
        request_id = f"{self._request_ids.pop():016x}"
        state = scope.setdefault("state", {})
        state["request_id"], state["caller"], state["session"] = request_id, None, None
        state["middleware"] = self
        started, status = time.monotonic(), 0

        async def send_with_headers(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._add_headers(message.get("headers", ()), request_id)
            await send(message)

        try:
            self._authenticate(scope)
            _CALLER.set(state["caller"])
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            # Any error at all becomes a response: the server would log its text, which may quote rows.
            problem = self._api_error(error, scope["path"])
            if problem.code == "failed":
                log_failure(request_id, error)
            elif problem.code == "ledger-unavailable":
                # Such a message names the ledger, the audit log or a file: the operator has to know which.
                log("unavailable", request_id=request_id, kind=type(error).__name__, reason=str(error))
            if problem.code in ("unauthorized", "forbidden"):
                await asyncio.sleep(REJECTION_DELAY - (time.monotonic() - started) % REJECTION_DELAY)
            if status == 0:
                page = self._make_error_page(scope, problem)
                if page is not None:
                    await page(scope, receive, send_with_headers)
                else:
                    await self.send_error(problem, request_id, send_with_headers)
            self.metrics.count_refusal(problem.code)
        route = self.templates.find(scope["path"])
        self.metrics.count_request(route, status)
        caller = state["caller"]
        log(
            "request", request_id=request_id, method=scope["method"], route=route, status=status,
            who=None if caller is None else caller.name,
        )  # fmt: skip

    def _make_error_page(self, scope: Any, problem: ApiError) -> Any:
        """Return the response that shows an error to a person; None for programs, or if that fails too."""
        if self.error_page is None or problem is WRONG_HOST or not _is_browser(scope):
            return None
        try:
            return self.error_page(scope, problem)
        except Exception as error:  # such as stop switches that cannot be read
            log_failure(scope["state"]["request_id"], error)
            return None

    def _api_error(self, error: Exception, path: str) -> ApiError:
        """Return the error response for an exception, also for those of routing and of parameters."""
        match error:
            case HTTPException():
                allowed = (error.headers or {}).get("Allow")
                if allowed is None:
                    return NOT_FOUND
                # Two methods of one path are two routes, of which Starlette names the first only.
                return method_not_allowed(self.templates.methods(path) if path.startswith("/v1") else allowed)
            case RequestValidationError():
                return api_error_from(_invalid_parameters(error))
        return api_error_from(error)

    @staticmethod
    async def send_error(problem: ApiError, request_id: str, send: Any) -> None:
        """Send an error as the response."""
        headers = [(b"content-type", b"application/json")]
        headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
        body = problem.body(request_id)
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _add_headers(self, headers: Any, request_id: str) -> list[tuple[bytes, bytes]]:
        kept = [one for one in headers if one[0].lower() == b"cache-control"]  # of static files
        others = [(name, value) for name, value in headers if name.lower() not in self._header_names]
        ours = [one for one in self._headers if not (kept and one[0] == b"cache-control")]
        return [*others, *kept, *ours, (b"x-request-id", request_id.encode())]

    # Authentication.

    def _authenticate(self, scope: Any) -> None:
        """Store caller and session in the scope, and refuse a request that its route does not permit."""
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
            if path == "/metrics" and not caller.is_operator:
                raise ApiException(ONLY_OPERATORS)
            if session is not None and scope["method"] not in ("GET", "HEAD"):
                # A script of a page posts with the session's cookie, and proves its origin by the CSRF token.
                sent = next((value for name, value in headers if name == b"x-csrf-token"), b"")
                if not (is_same_origin(headers) and is_csrf_token_valid(session, sent.decode("latin-1"))):
                    raise ApiException(FOREIGN_FORM)
        if caller is not None:
            self.count_request(caller)

    def count_request(self, caller: Caller) -> None:
        """Count a request of a caller, and refuse it above the request rate."""
        wait = self._rate_limiter.take(caller.name)
        if wait is not None:
            raise ApiException(rate_limited(wait))

    def _bearer_caller(self, headers: Any) -> Caller | None:
        sent = [value for name, value in headers if name == b"authorization"]
        if not sent:
            return None
        scheme, _, token = sent[0].partition(b" ")
        fits = len(sent) == 1 and scheme.lower() == b"bearer" and len(token) <= 256
        # Looked up all the same, so that a malformed token takes as long as a wrong one.
        caller = self.service.access.find(token.strip()[:256].decode("latin-1"))
        return caller if fits else None

    # Limits and threads.

    async def read_body(self, scope: Any, receive: Any) -> bytes:
        """Return the body of a request, within the limits of size and time; without a caller, a short one."""
        most = self._body_bytes if scope["state"]["caller"] is not None else _LOGIN_BYTES
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > most):
                raise ApiException(too_large(most))
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ApiException(BODY_TOO_SLOW)
                    part = message.get("body", b"")
                    size += len(part)
                    if size > most:
                        raise ApiException(too_large(most))
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise ApiException(BODY_TOO_SLOW) from None

    async def run_query(
        self,
        task: QueryTask[T],
        model: WorkModel,
        characters: int,
        *,
        deadline: bool = True,
        late: ApiError = ENGINE_FAILED,
    ) -> T:
        """Run a query task on the worker pool; refuse it while too many wait, of its caller or of all.

        Parameters
        ----------
        task : QueryTask
            Stages of the query.
        model : WorkModel
            Work of questions to its data set.
        characters : int
            Length of the request, from which its work is estimated before it is read.
        deadline : bool
            Whether its caller waits, for so many seconds as a request may take.
        late : ApiError
            Error that the caller gets after that.
        """
        work = model.estimate_reading(characters)
        run = self._workers.run(_caller_name(), task, work=work, light=model.light)
        return await (self._await_with_timeout(run, late) if deadline else run)

    async def run_long(
        self, work: Callable[[], T], *, deadline: bool = True, late: ApiError = TOOK_TOO_LONG
    ) -> T:
        """Run long work on a thread of its own; refuse it while there are too many.

        Parameters
        ----------
        work : callable
            Function without arguments to run.
        deadline, late
            As for :meth:`run_query`; most long work is not charged.
        """
        run = self._long_pool.run(_caller_name(), work)
        return await (self._await_with_timeout(run, late) if deadline else run)

    async def run_model(self, train: Callable[[RunTask], T], *, deadline: bool = True) -> T:
        """Train a model as long work, with pauses while others are served, and count it as work.

        Parameters
        ----------
        train : callable
            Function that trains it, given the function that runs its query tasks.
        deadline : bool
            As for :meth:`run_query`.
        """
        caller = _caller_name()
        work = self.run_long(
            lambda: self._workers.run_model(caller, train), deadline=deadline, late=ENGINE_FAILED
        )
        return await work

    def count_work(self, caller: Caller, seconds: float) -> None:
        """Count work of a caller that is not a query, and refuse it once this hour's is used up."""
        self._workers.count_work(caller.name, seconds)

    async def _await_with_timeout(self, awaitable: Awaitable[T], late: ApiError) -> T:
        try:
            # After a timeout the job still ends and its answer is stored, so that asking again is free.
            async with asyncio.timeout(self._seconds):
                return await awaitable
        except TimeoutError:
            raise ApiException(late) from None

    async def run_in_thread(self, work: Callable[[], T], caller: Caller | None = None) -> T:
        """Run short work on a thread that queries cannot occupy, and return its value.

        Parameters
        ----------
        work : callable
            Function without arguments to run.
        caller : Caller, optional
            Caller whose share is used; None for that of the request.
        """
        caller = caller or _CALLER.get()
        if caller is None:
            return await self._thread_pools[None].run(None, work)
        kind = "curator" if caller.is_curator else "analyst"
        return await self._thread_pools[kind].run(caller.name, work)

    async def run_in_background(self, work: Callable[[], T]) -> T:
        """Run long work that nobody waits for and that sees no row, with pauses while others are served."""
        work = self._workers.with_pauses(work)
        return await asyncio.get_running_loop().run_in_executor(self._background, work)

    def close(self) -> None:
        """Wait for running jobs to end, and stop all threads."""
        self._workers.close()
        for pool in (self._long_pool, *self._thread_pools.values()):
            pool.close()
        self._background.shutdown(wait=True)


def _caller_name() -> str | None:
    caller = _CALLER.get()
    return None if caller is None else caller.name


def _is_browser(scope: Any) -> bool:
    """Return whether a request prefers an HTML page to JSON, outside of what only programs ask for."""
    only_programs = scope["path"].startswith("/v1") or scope["path"] in (*_UNAUTHENTICATED, "/metrics")
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    page = _weight(accepted, b"text/html")
    return not only_programs and page > 0 and page >= _weight(accepted, b"application/json")


def _weight(accepted: bytes, media_type: bytes) -> float:
    """Return the weight of a type that an Accept header names; 0 if it does not name it."""
    for one in accepted.lower().split(b","):
        name, _, weight = one.replace(b" ", b"").partition(b";q=")
        if name.partition(b";")[0] == media_type:
            with suppress(ValueError):
                return float(weight.partition(b";")[0] or 1)
    return 0.0


def _check_url(path: str, query: bytes) -> None:
    """Refuse a URL that contains a token, also percent-encoded, or a malformed query string."""
    if contains_token(path):
        raise ApiException(TOKEN_IN_ADDRESS)
    if not query:
        return
    text = query.decode("latin-1")
    try:
        names = {name.lower() for name, _ in parse_qsl(text, keep_blank_values=True, max_num_fields=100)}
    except ValueError:
        raise ApiException(BAD_QUERY_STRING) from None
    has_token = PREFIX in text or bool(names & _TOKEN_PARAMETERS)
    for _ in range(_MAX_PERCENT_LAYERS):
        text = unquote_plus(text)
        has_token = has_token or PREFIX in text
    if has_token:
        raise ApiException(TOKEN_IN_ADDRESS)


def _invalid_parameters(error: RequestValidationError) -> InvalidRequest:
    """Return the error for query parameters: all unknown names, or else the first wrong value."""
    errors = error.errors()
    unknown = [str(one["loc"][-1]) for one in errors if one["type"] == "extra_forbidden"]
    if unknown:
        return InvalidRequest(tuple((name, "there is no such parameter") for name in unknown))
    return InvalidRequest(((str(errors[0]["loc"][-1]), errors[0]["msg"].removeprefix("Value error, ")),))
