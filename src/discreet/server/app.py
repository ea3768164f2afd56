"""The ASGI application of a service, and the server that runs it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import (
    DataError,
    DiscreetError,
    MissingExtra,
    ParameterError,
    ServiceUnavailable,
)

try:
    from fastapi import FastAPI
    from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
    from starlette.requests import Request
    from starlette.routing import Route
except ImportError:  # pragma: no cover - reported as an error of the package
    raise MissingExtra(
        "fastapi is needed to run the service, and is not installed. Run `pip install 'discreet[serve]'`."
    ) from None

try:
    import uvicorn
    from uvicorn.config import STARTUP_FAILURE
except ImportError:  # pragma: no cover - reported as an error of the package
    raise MissingExtra(
        "uvicorn is needed to run the service, and is not installed. Run `pip install 'discreet[serve]'`."
    ) from None

from discreet.privacy.receipt import product_version
from discreet.server.api.openapi import reference_routes
from discreet.server.api.routes import api_routes
from discreet.server.config import Config
from discreet.server.errors import ApiException
from discreet.server.health import INTERVAL, LOST
from discreet.server.middleware import HostMiddleware, ServiceMiddleware
from discreet.server.monitoring import LOGGING, METRICS_FOLDER, Metrics, RouteTemplates, log
from discreet.server.pages import router
from discreet.server.pages.page import PageRequest
from discreet.server.preflight import check
from discreet.server.service import Service, check_change
from discreet.server.supervisor import Supervisor
from discreet.tables.temporary import temporary_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


__all__ = ["serve"]

_MINUTE = 60.0
CONFIG = "DISCREET_SERVE_CONFIG"
"""Environment variable with the path of the configuration, for worker processes."""

PARENT = "DISCREET_SERVE_PARENT"
"""Environment variable with the parent's process id, since the parent may end before a worker can ask."""

SHARED = "DISCREET_SERVE_SHARED"
"""Environment variable with the private folder in which worker processes share curated tables."""

_SWITCH = 5e-4  # seconds that one thread computes while others wait: each commit to disk lets another one in
_YOUNG_OBJECTS = 20_000  # objects made and not freed that start a garbage collection
_KEEP_ALIVE = 30  # seconds that an idle connection stays open
_BACKLOG = 512  # connections that wait to be accepted, and that are accepted at once
_START_TIMEOUT = 600  # seconds after which a worker that does not respond is replaced


def reload(service: Service, by: str) -> dict[str, Any]:
    """Read the configuration again, open the data sets that it adds, and retire those that it lacks.

    With several processes each is replaced by a new one in turn, after what it is being asked; one that
    cannot be replaced stays, with all that come after it, and the log says so.

    Parameters
    ----------
    service : Service
        Service whose configuration file is read again.
    by : str
        Name of the operator, for the audit log.

    Returns
    -------
    dict
        Names of the data sets that are ``added`` and ``retired``, and whether that is ``done``: with several
        processes it is only begun.

    Raises
    ------
    DiscreetError
        Nothing was changed; the message says why, and the way out.
    """
    config, change = preview_reload(service)
    if config.workers == 1:
        try:
            return {**service.change_datasets(config, by), "done": True}
        except DataError as problem:
            raise ParameterError(str(problem)) from None  # an operator is told what is wrong with a new table
    for name in change["retired"]:
        service.audit_log.write("retire requested", dataset=name, who=by)
        service.drop_shared_copy(name)
    os.kill(int(os.environ[PARENT]), signal.SIGHUP)
    return {**change, "done": False}


def preview_reload(service: Service) -> tuple[Config, dict[str, list[str]]]:
    """Return the checked configuration that a reload would read, and what it would add and retire.

    Raises
    ------
    DiscreetError
        The configuration cannot be taken as it is; the message says why, and the way out.
    """
    if service.config_file is None:
        raise ParameterError("The service must have been started with a configuration file, and was not.")
    try:
        config = check(service.config_file)
    except DataError as problem:
        raise ParameterError(str(problem)) from None  # an operator is told what is wrong with a new table
    check_change(service.config, config)
    before, after = service.config.datasets.keys(), config.datasets.keys()
    return config, {"added": sorted(after - before), "retired": sorted(before - after)}


class _Routes(FastAPI):
    """The routes alone: exceptions reach `ServiceMiddleware`, which sends all errors in one shape."""

    def build_middleware_stack(self) -> Any:
        """Return the middleware stack without the layers that would send errors in other shapes."""
        address = self.state.service.config.address
        return AsyncExitStackMiddleware(
            self.router if address is None else HostMiddleware(self.router, address)
        )


def make_app(service: Service) -> ServiceMiddleware:
    """Return the application of a service; closing the application closes the service."""

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        log("start", datasets=sorted(service.datasets), version=product_version())
        tasks = [asyncio.create_task(work(middleware)) for work in (_save_state, _watch_engines)]
        yield
        for task in tasks:
            task.cancel()
        # No connection is open by now: what runs ends, then the ledger is closed.
        await middleware.jobs.close()
        middleware.close()
        service.close()
        log("stop")
        gc.unfreeze()  # so that frozen objects are finalized in order when the process ends

    app = _Routes(
        title="discreet", version=product_version(), openapi_url=None, docs_url=None, redoc_url=None,
        lifespan=lifespan, redirect_slashes=False,
    )  # fmt: skip
    app.state.service = service
    middleware = ServiceMiddleware(app, service, Metrics(service))
    middleware.error_page = lambda scope, problem: PageRequest(service, Request(scope)).render_error(problem)
    for route in api_routes():
        if route.methods == {"GET"}:
            route.methods = {"GET", "HEAD"}  # as Starlette does; the OpenAPI document names GET alone
        app.router.routes.append(route)
    app.router.routes += reference_routes()
    pages = router(service)
    middleware.templates = RouteTemplates(
        route for route in (*app.routes, *pages.routes) if isinstance(route, Route)
    )
    app.include_router(pages)
    return middleware


async def _save_state(middleware: ServiceMiddleware) -> None:
    """Store the time, and anchor the audit log in the ledgers, every minute.

    So a clock that is set back before a restart has no effect, and a log that is cut loses a minute at most
    before that is known. Lines before the last anchor are verified once, after the first minute.
    """
    service, verified = middleware.service, False
    while True:
        await asyncio.sleep(_MINUTE)
        with contextlib.suppress(DiscreetError):  # a full disk shows in the next request
            await middleware.run_in_thread(service.access.save_time)
        try:
            if not verified:
                await middleware.run_in_background(service.audit_log.check)
                verified = True
            await middleware.run_in_background(service.anchor_log)
        except DiscreetError as problem:
            log("audit log not anchored", problem=str(problem))


async def _watch_engines(middleware: ServiceMiddleware) -> None:
    """Open lost data sets anew, and end the process if none can be opened, so that another is started."""
    service, tried, ended = middleware.service, -math.inf, False
    while not ended:
        await asyncio.sleep(INTERVAL)
        # Not at once again: a large table takes minutes.
        if service.has_lost and time.monotonic() >= tried + LOST:
            with contextlib.suppress(ApiException):  # all threads are taken: later
                await middleware.run_long(service.reopen_lost, deadline=False)
                tried, ended = time.monotonic(), service.is_lost
    log("engines lost")
    signal.raise_signal(signal.SIGTERM)


def worker() -> ServiceMiddleware:
    """Return the application of one of several processes, which ends when its parent has ended."""
    parent = int(os.environ[PARENT])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watch", daemon=True).start()
    try:
        service = Service(Config.load(os.environ[CONFIG]), shared=Path(os.environ[SHARED]))
    except Exception as problem:
        # Any error at all, whose text may quote rows. The parent tries again, or keeps an old process.
        log("process not started", kind=type(problem).__name__)
        sys.exit(STARTUP_FAILURE)
    service.config_file = Path(os.environ[CONFIG])
    app = make_app(service)
    freeze_objects()
    return app


def freeze_objects() -> None:
    """Exempt all present objects from garbage collection, in a process that only serves.

    Otherwise the collector would go through all modules and schemas after every few hundred queries, which
    stops all answers for a fifth of a second. Young objects are gone through after many more than the usual
    700: nearly all are freed by their reference counts.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS)
    sys.setswitchinterval(_SWITCH)


def serve(path: str | os.PathLike[str], *, ready: Callable[[str, Service], None]) -> None:
    """Run a service until a signal ends it.

    Parameters
    ----------
    path : path
        Path of the configuration file.
    ready : callable
        Function that is called with the address and the service once the socket listens.

    Raises
    ------
    DiscreetError
        The service cannot start; the message says why, and the way out.
    """
    config = check(path)
    # First the address, then the rows: large tables take minutes, and a port in use is reported at once.
    listener = _bind(config)
    log("reading", datasets=sorted(config.datasets))
    # Also when interrupted: the port becomes free for the next attempt.
    with contextlib.closing(listener), contextlib.ExitStack() as folders:
        shared = folders.enter_context(temporary_folder()) if config.workers > 1 else None
        service = Service(config, shared=shared)
        service.config_file = Path(path)
        service.jobs.end_all()
        _listen(listener, config)
        scheme = "https" if config.tls is not None else "http"
        host, port = listener.getsockname()[:2]
        ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", service)
        # uvicorn raises a signal again once all is closed; ignored here, the process ends without a
        # traceback.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        if shared is None:
            server = uvicorn.Server(uvicorn.Config(make_app(service), **_options(config)))
            freeze_objects()
            server.run(sockets=[listener])
            if service.is_lost:
                raise _end_error("No table answered any more")
            return
        service.close()
        os.environ[CONFIG], os.environ[PARENT] = os.fspath(path), str(os.getpid())
        os.environ[SHARED] = str(shared)
        os.environ[METRICS_FOLDER] = str(folders.enter_context(temporary_folder()))
        supervisor = Supervisor(
            uvicorn.Config("discreet.server.app:worker", factory=True, **_options(config)), [listener]
        )
        supervisor.run()
        if supervisor.gave_up:
            raise _end_error("All of its processes ended and none could be started in their place")


def _end_error(why: str) -> ServiceUnavailable:
    """Return the error with which a service ends, so that whoever supervises it starts it again."""
    return ServiceUnavailable(f"{why}, so the service has ended. See its log, and start it again.")


def _options(config: Config) -> dict[str, Any]:
    """Return the settings of uvicorn."""
    tls = config.tls
    return {
        "workers": config.workers,
        "http": "discreet.server.connections:ServiceProtocol",
        # Where a library for them is installed, a websocket would be a connection without any limit.
        "ws": "none",
        "backlog": _BACKLOG,
        "log_config": LOGGING,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "lifespan": "on",
        "timeout_keep_alive": _KEEP_ALIVE,
        "timeout_graceful_shutdown": math.ceil(config.limits.seconds) + 5,
        # A process that reads a large table does not respond for a while, and must not be replaced.
        "timeout_worker_healthcheck": _START_TIMEOUT,
        "ssl_certfile": None if tls is None else tls.certificate,
        "ssl_keyfile": None if tls is None else tls.key,
    }


def _bind(config: Config) -> socket.socket:
    """Return a socket that is bound to its address; until it listens, connections are refused."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        listener.bind((config.host, config.port))
    except OSError as problem:
        listener.close()
        raise _address_error(config, problem) from None
    # Without this a body waits 40 ms for the acknowledgement of its headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.set_inheritable(True)
    return listener


def _listen(listener: socket.socket, config: Config) -> None:
    try:
        listener.listen(_BACKLOG)
    except OSError as problem:
        listener.close()
        raise _address_error(config, problem) from None


def _address_error(config: Config, problem: OSError) -> ParameterError:
    return ParameterError(
        f"listen of the configuration must be an address that is free here, and {config.listen} is not "
        f"({problem.strerror}). Choose another, or end who listens there."
    )
