"""Everything that happens before a route is asked, and to everything that leaves.

One layer around the whole application: a request gets its name, its caller, and a place within the limits; a
response gets its headers and is counted. What goes wrong anywhere inside becomes an answer of one shape.
"""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote_plus

from starlette.exceptions import HTTPException

from discreet.noise import Stream
from discreet.server.access import PREFIX, has_token
from discreet.server.clerks import Clerks
from discreet.server.problems import (
    ADDRESS,
    BUSY,
    ENGINE,
    FORBIDDEN,
    FORM,
    NOT_FOUND,
    TOKEN_IN_ADDRESS,
    TOO_LARGE,
    UNAUTHORIZED,
    Problem,
    Refusal,
    problem_of,
    rate_limited,
    wrong_method,
)
from discreet.server.sessions import form_fits, same_origin, session_of
from discreet.server.telling import RouteNames, log, log_failure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    from discreet.batching import QueryTask
    from discreet.server.access import Caller
    from discreet.server.office import Office
    from discreet.server.telling import Metrics

    T = TypeVar("T")

REFUSED_AFTER = 0.1
"""Seconds, or a multiple, after which a refusal for want of a token leaves, whatever was wrong with it."""

_DESK = {"analyst": 8, "curator": 4, None: 2}
"""Threads for everything that is no question, by who comes: analysts cannot keep a curator from the stop
switch, and neither of them whoever looks whether the service is alive."""

_CLERKS, _HELPERS = 1, 8  # who answer questions, and with those who help out
_AT_DESK = 2  # jobs of one caller at once
_NAMES = 1024  # of requests that are drawn at once
_IN_LINE = 32  # more that wait for them
_UNASKED = ("/health", "/ready")  # whoever comes here is not asked who they are
_UNWRAPPED = 3  # layers of percent signs under which a token is looked for
_COMES: ContextVar[Caller | None] = ContextVar("comes", default=None)
_WORDS_OF_TOKENS = frozenset(("token", "access_token", "authorization", "bearer", "api_key"))

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


class Rates:
    """How often each caller may come: a bucket that fills with time.

    Parameters
    ----------
    per_minute : float
        What it holds, and what flows in within a minute.
    """

    def __init__(self, per_minute: float) -> None:
        self._most = max(1.0, per_minute)
        self._flow = self._most / 60
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, name: str, now: float | None = None) -> int | None:
        """Take one from a caller's bucket; return after how many seconds to come again if it is empty."""
        moment = time.monotonic() if now is None else now
        level, since = self._buckets.get(name, (self._most, moment))
        level = min(self._most, level + (moment - since) * self._flow)
        if level < 1:
            self._buckets[name] = (level, moment)
            return max(1, math.ceil((1 - level) / self._flow))
        self._buckets[name] = (level - 1, moment)
        return None


class Room:
    """Threads, of which each caller has a share.

    Parameters
    ----------
    name : str
        Of the threads.
    threads : int
        How many.
    share : int
        How many jobs of one caller run at once.
    in_line : int
        How many more of theirs may wait; whoever comes after them is told to come again.
    most : int, optional
        Jobs of everybody, past which anybody is told so.
    """

    def __init__(self, name: str, threads: int, *, share: int, in_line: int, most: int | None = None) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._share, self._in_line = share, in_line
        self._most = math.inf if most is None else most
        self._jobs = 0
        self._lines: dict[str | None, _Line] = {}

    async def run(self, who: str | None, work: Callable[[], T]) -> T:
        """Have work done for somebody; it is done to its end, whether or not they still wait."""
        line = self._lines.setdefault(who, _Line(self._share))
        if line.jobs >= self._share + self._in_line or self._jobs >= self._most:
            self._forget(who, line)
            raise Refusal(BUSY)
        line.jobs += 1
        self._jobs += 1

        def left() -> None:
            line.jobs -= 1
            self._jobs -= 1
            self._forget(who, line)

        def done(future: asyncio.Future[T]) -> None:
            line.places.release()
            left()
            if not future.cancelled():
                future.exception()  # whoever waited has it; a late one is nobody's

        try:
            await line.places.acquire()
        except BaseException:
            left()
            raise
        future = asyncio.get_running_loop().run_in_executor(self._threads, work)
        future.add_done_callback(done)
        return await asyncio.shield(future)

    def _forget(self, who: str | None, line: _Line) -> None:
        if not line.jobs:
            del self._lines[who]

    def close(self) -> None:
        """Wait for what runs."""
        self._threads.shutdown(wait=True)


class _Line:
    """The jobs of one caller."""

    def __init__(self, share: int) -> None:
        self.jobs = 0
        self.places = asyncio.Semaphore(share)


class Guard:
    """The outermost layer of the application.

    Parameters
    ----------
    app : ASGI application
        The routes.
    office : Office
        Whom they ask.
    metrics : Metrics
        Where requests are counted.

    Privacy
    -------
    A token that is missing, unknown, expired or revoked gets the same answer after the same time. What goes
    wrong inside leaves as a fixed sentence; where is written to the log, without the error's own text. No
    caller has more than a share of the threads, so that nobody keeps others from asking, or a curator from
    stopping it all, with requests that cost nothing.
    """

    def __init__(self, app: Any, office: Office, metrics: Metrics) -> None:
        self._app = app
        self.office = office
        self.metrics = metrics
        limits, workers = office.config.limits, office.config.workers
        # Several processes share what one caller may have.
        self._rates = Rates(limits.per_minute / workers)
        most = math.ceil(limits.concurrent / workers)
        self._seconds = limits.seconds
        self._body_bytes = limits.body_bytes
        self.names = RouteNames(())
        self.page_of: Callable[[Any, Problem], Any] | None = None  # tells a browser what is no page
        share = max(2, most // 4)
        # Who sleeps through the rest of a slot answers nobody meanwhile.
        usual, threads = (_CLERKS, _HELPERS) if office.config.slots is None else (most, most)
        self._clerks = Clerks(usual, threads, share=share, most=most)
        self._long = Room("long", most, share=share, in_line=0, most=most)
        self._desks = {
            scope: Room(f"desk-{scope}", threads, share=_AT_DESK, in_line=_IN_LINE)
            for scope, threads in _DESK.items()
        }
        self._names: list[int] = []
        fixed = dict(HEADERS)
        if office.config.secure:
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
        state["guard"] = self
        began, status = time.monotonic(), 0

        async def sending(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = self._dressed(message.get("headers", ()), request_id)
            await send(message)

        try:
            self._admit(scope)
            _COMES.set(state["caller"])
            await self._app(scope, receive, sending)
        except Exception as error:
            problem = _routing(error) if isinstance(error, HTTPException) else problem_of(error)
            if problem.code == "failed":
                log_failure(request_id, error)
            elif problem.code == "ledger-unavailable":
                # Of ledger, trail and files alone: an operator has to know which.
                log("unavailable", request_id=request_id, kind=type(error).__name__, reason=str(error))
            if problem.code in ("unauthorized", "forbidden"):
                await asyncio.sleep(REFUSED_AFTER - (time.monotonic() - began) % REFUSED_AFTER)
            if isinstance(error, HTTPException) and self.page_of is not None and _is_browser(scope):
                await self.page_of(scope, problem)(scope, receive, sending)
            elif status == 0:
                await self.refuse(problem, request_id, sending)
            self.metrics.refusal(problem.code)
        route = self.names.of(scope["path"])
        self.metrics.request(route, status)
        caller = state["caller"]
        log(
            "request", request_id=request_id, method=scope["method"], route=route, status=status,
            who=None if caller is None else caller.name,
        )  # fmt: skip

    @staticmethod
    async def refuse(problem: Problem, request_id: str, send: Any) -> None:
        """Send a problem."""
        headers = [(b"content-type", b"application/json")]
        headers += [(name.lower().encode(), value.encode()) for name, value in problem.headers.items()]
        body = problem.body(request_id)
        headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": problem.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _dressed(self, headers: Any, request_id: str) -> list[tuple[bytes, bytes]]:
        kept = [(name, value) for name, value in headers if name.lower() not in self._ours]
        return [*kept, *self._headers, (b"x-request-id", request_id.encode())]

    # Who it is.

    def _admit(self, scope: Any) -> None:
        """Find out who comes, and whether they may; raise a refusal otherwise."""
        path: str = scope["path"]
        _check_address(path, scope["query_string"])
        if path in _UNASKED:
            return
        headers = scope["headers"]
        caller, session = self._bearer(headers), None
        if caller is None:
            session = session_of(self.office, headers)
            if session is not None:
                caller = session.caller
        state = scope["state"]
        state["caller"], state["session"] = caller, session
        api = path.startswith("/v1/") or path == "/v1"
        if api or path == "/metrics":
            if caller is None:
                raise Refusal(UNAUTHORIZED)
            if (path == "/metrics" or path.startswith("/v1/curator")) and not caller.is_curator:
                raise Refusal(FORBIDDEN)
            if session is not None and scope["method"] not in ("GET", "HEAD"):
                # A page's own script may post with its cookie, and proves that it is the page's.
                sent = next((value for name, value in headers if name == b"x-csrf-token"), b"")
                if not (same_origin(headers) and form_fits(session, sent.decode("latin-1"))):
                    raise Refusal(FORM)
        if caller is not None:
            self.count(caller)

    def count(self, caller: Caller) -> None:
        """Count a request of somebody, and refuse it if there were too many."""
        wait = self._rates.take(caller.name)
        if wait is not None:
            raise Refusal(rate_limited(wait))

    def _bearer(self, headers: Any) -> Caller | None:
        sent = [value for name, value in headers if name == b"authorization"]
        if not sent:
            return None
        scheme, _, token = sent[0].partition(b" ")
        fits = len(sent) == 1 and scheme.lower() == b"bearer" and len(token) <= 256
        # Looked up all the same, so that a malformed token takes what a wrong one does.
        found = self.office.access.find(token.strip()[:256].decode("latin-1"))
        return found if fits else None

    # What it may use.

    async def body(self, scope: Any, receive: Any) -> bytes:
        """Read a body, within its limits of size and time."""
        for name, value in scope["headers"]:
            if name == b"content-length" and (not value.isdigit() or int(value) > self._body_bytes):
                raise Refusal(TOO_LARGE)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refusal(BUSY)
                    part = message.get("body", b"")
                    size += len(part)
                    if size > self._body_bytes:
                        raise Refusal(TOO_LARGE)
                    parts.append(part)
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Refusal(BUSY) from None

    async def question(self, flow: QueryTask[T]) -> T:
        """Have a question answered by a clerk; refuse it while too many wait, or too many of its caller."""
        return await self._within(self._clerks.answer(_name(), flow))

    async def long(self, work: Callable[[], T]) -> T:
        """Have something that takes long done by a thread of its own; refuse it while there are too many."""
        return await self._within(self._long.run(_name(), work))

    async def _within(self, waited_for: Awaitable[T]) -> T:
        try:
            # What runs goes on and is kept, so that asking again is free.
            async with asyncio.timeout(self._seconds):
                return await waited_for
        except TimeoutError:
            raise Refusal(ENGINE) from None

    async def desk(self, work: Callable[[], T], caller: Caller | None = None) -> T:
        """Have something else done, off the loop that listens; questions cannot crowd it out.

        Parameters
        ----------
        work : callable
            What.
        caller : Caller, optional
            For whom, if that was found out only now.
        """
        who = caller or _COMES.get()
        name, scope = (None, None) if who is None else (who.name, who.scope)
        return await self._desks[scope].run(name, work)

    def close(self) -> None:
        """Wait for what runs."""
        self._clerks.close()
        for room in (self._long, *self._desks.values()):
            room.close()


def _name() -> str | None:
    caller = _COMES.get()
    return None if caller is None else caller.name


def _is_browser(scope: Any) -> bool:
    """Say whether somebody looks for a page, and not a program for an answer."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    return b"text/html" in accepted and not scope["path"].startswith("/v1")


def _routing(error: HTTPException) -> Problem:
    """Return what somebody is told whose request has no route."""
    allowed = (error.headers or {}).get("Allow")
    return NOT_FOUND if allowed is None else wrong_method(allowed)


def _check_address(path: str, query: bytes) -> None:
    if has_token(path):
        raise Refusal(TOKEN_IN_ADDRESS)
    if not query:
        return
    text = query.decode("latin-1")
    try:
        named = {name.lower() for name, _ in parse_qsl(text, keep_blank_values=True, max_num_fields=100)}
    except ValueError:
        raise Refusal(ADDRESS) from None
    found = PREFIX in text or bool(named & _WORDS_OF_TOKENS)
    for _ in range(_UNWRAPPED):
        text = unquote_plus(text)
        found = found or PREFIX in text
    if found:
        raise Refusal(TOKEN_IN_ADDRESS)
