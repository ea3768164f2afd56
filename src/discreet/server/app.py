"""The whole application: an service, its routes and pages, and the guard around them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import os
import signal
import socket
import ssl
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import (
    DiscreetError,
    LedgerError,
    LedgerTampered,
    LedgerUnavailable,
    MissingExtra,
    ParameterError,
)

try:
    from fastapi import FastAPI
    from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
    from starlette.requests import Request
    from starlette.routing import Route
except ImportError:  # pragma: no cover - said in the words of the package
    raise MissingExtra(
        "fastapi is needed to run the service, and is not installed. Run `pip install 'discreet[serve]'`."
    ) from None

try:
    import uvicorn
except ImportError:  # pragma: no cover - said in the words of the package
    raise MissingExtra(
        "uvicorn is needed to run the service, and is not installed. Run `pip install 'discreet[serve]'`."
    ) from None

from discreet.ledger import Ledger
from discreet.pipeline.sources import table_of
from discreet.privacy.receipt import product_version
from discreet.query.curation import Curation
from discreet.server.api.openapi import reference_routes
from discreet.server.api.routes import ApiRoutes
from discreet.server.audit_log import ServiceLog
from discreet.server.config import Config
from discreet.server.dataset import load_schema, recognize_table
from discreet.server.middleware import HostMiddleware, ServiceMiddleware
from discreet.server.monitoring import LOGGING, METRICS_FOLDER, Metrics, RouteTemplates, log
from discreet.server.pages import router
from discreet.server.pages.page import PageRequest
from discreet.server.service import Service
from discreet.tables import open_table
from discreet.tables.temporary import temporary_folder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from discreet.schema import Schema
    from discreet.server.config import Tls


def check(path: str | os.PathLike[str]) -> Config:
    """Verify a configuration as far as that changes nothing.

    Keys, schema, the head of the table, files and folders, certificate; and of a ledger that exists, whether
    it is the one of this configuration and of the audit trail. A ledger in PostgreSQL is first asked when the
    service starts.

    Raises
    ------
    DiscreetError
        Says what is wrong, and the way out.

    Privacy
    -------
    Tells whoever starts the service, and may see the table, which cell at its head cannot be read; never what
    is in it.
    """
    config = Config.load(path)
    _check_table_is_there(config)
    declared = load_schema(config)
    Curation.from_schema(declared, ids=config.keep_ids)
    _check_table(config, declared)
    _check_files(config)
    if config.tls is not None:
        _check_tls(config.tls)
    _check_ledger(config, declared)
    return config


def _on_file(place: str) -> bool:
    return "://" not in place and not place.startswith("demo:")


def _check_table_is_there(config: Config) -> None:
    """Before its schema is looked for beside it: whoever mistypes a path is not told to declare columns."""
    if _on_file(config.table) and not Path(config.table).exists():
        raise ParameterError(
            f"table of the configuration must be a file that can be read, and there is no {config.table!r}. "
            "Correct it; paths are relative to the configuration."
        )


def _check_table(config: Config, declared: Schema) -> None:
    with open_table(table_of(config.table)) as table:
        rows = table.batches(declared, rows=1)  # names declared columns that are not there
        if _on_file(config.table) and next(rows, None) is None:
            raise ParameterError(
                f"table of the configuration must have at least one row, and {config.table!r} has none. "
                "Export it again."
            )


def _check_files(config: Config) -> None:
    places = {"access": config.access, "audit_log": config.audit_log}
    if _on_file(config.ledger):
        places["ledger"] = Path(config.ledger)
    for key, place in places.items():
        if not (place.parent.is_dir() and os.access(place.parent, os.W_OK)):
            raise ParameterError(
                f"{key} of the configuration must be in a folder that can be written to, and "
                f"{str(place.parent)!r} is not. Make it, or name another."
            )
        if place.is_dir():
            raise ParameterError(
                f"{key} of the configuration must be a file, and {str(place)!r} is a folder. Name a file in "
                "it; it is made."
            )


def _check_tls(tls: Tls) -> None:
    for key, place in (("certificate", tls.certificate), ("key", tls.key)):
        if not (place.is_file() and os.access(place, os.R_OK)):
            raise ParameterError(
                f"tls.{key} of the configuration must be a file that can be read, and {str(place)!r} is "
                "not. Give a PEM file, and let the service's user read it."
            )
    try:
        # A passphrase would be asked for at a terminal, which a service has not.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
    except (ssl.SSLError, ValueError):
        raise ParameterError(
            f"tls.key of the configuration must be the private key of tls.certificate, and {str(tls.key)!r} "
            f"is not that of {str(tls.certificate)!r}. Both are PEM files, the key without a passphrase and "
            "the certificate with those that vouch for it."
        ) from None


def _check_ledger(config: Config, declared: Schema) -> None:
    """Refuse a ledger that is gone, is another one or has other limits, before an empty one is made."""
    if not _on_file(config.ledger):
        return
    trail = ServiceLog(config.audit_log)
    if not Path(config.ledger).exists():
        named = trail.furthest()
        if named is not None:
            raise LedgerTampered(
                f"ledger {config.ledger!r} must be there, since the audit trail {str(trail.path)!r} says "
                f"that its row {named.row} paid for an answer, and is not. Put the newest backup in its "
                "place with `discreet ledger restore`; if there is none, move the trail away only after "
                "lowering the limit by what was lost."
            )
        recognize_table(config, declared).require(new_ledger=config.new_ledger)
        return
    analysts = config.analyst_limit
    try:
        ledger = Ledger.open(
            config.ledger,
            limit=config.limit.promise(declared),
            owner_limit=None if analysts is None else analysts.promise(declared),
            gaussian_share=config.gaussian_share,
        )
    except (LedgerUnavailable, LedgerTampered):
        raise
    except LedgerError as problem:
        raise LedgerError(
            f"{problem} (That is ledger, limit, analyst_limit and gaussian_share of the configuration: write "
            "what the ledger was made with.)"
        ) from None
    with closing(ledger):
        trail.compare(ledger)
    recognize_table(config, declared).require(new_ledger=config.new_ledger)


_MINUTE = 60.0
CONFIG = "DISCREET_SERVE_CONFIG"
"""Where a process that was started to help finds its configuration."""

PARENT = "DISCREET_SERVE_PARENT"
"""And who started it: told, since it may be gone before the helper can look."""


class _Inside(FastAPI):
    """Routes alone: what is raised inside reaches the guard, which answers in one shape."""

    def build_middleware_stack(self) -> Any:
        """Leave out the layers that would answer errors in other shapes."""
        address = self.state.service.config.address
        return AsyncExitStackMiddleware(
            self.router if address is None else HostMiddleware(self.router, address)
        )


def make_app(service: Service) -> ServiceMiddleware:
    """Return the application of an service; it is closed with the application."""

    @contextlib.asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        log("start", dataset=service.dataset.name, version=product_version())
        clock = asyncio.create_task(_keep_time(middleware))
        yield
        clock.cancel()
        # By now nobody listens; what runs is finished, and then the books are closed.
        middleware.close()
        service.close()
        log("stop", dataset=service.dataset.name)
        gc.unfreeze()  # what was settled is taken apart in order when the process ends

    inside = _Inside(
        title="discreet", version=product_version(), openapi_url=None, docs_url=None, redoc_url=None,
        lifespan=living, redirect_slashes=False,
    )  # fmt: skip
    inside.state.service = service
    middleware = ServiceMiddleware(inside, service, Metrics(service))
    middleware.error_page = lambda scope, problem: PageRequest(service, Request(scope)).render_error(problem)
    for route in ApiRoutes(service).routes():
        if route.methods == {"GET"}:
            route.methods = {"GET", "HEAD"}  # as Starlette has it; the document names GET alone
        inside.router.routes.append(route)
    inside.router.routes += reference_routes(service.dataset.name)
    pages = router(service)
    middleware.templates = RouteTemplates(
        route for route in (*inside.routes, *pages.routes) if isinstance(route, Route)
    )
    inside.include_router(pages)
    return middleware


async def _keep_time(middleware: ServiceMiddleware) -> None:
    """Write the time down now and then, so that a clock that is set back before a restart shows."""
    while True:
        await asyncio.sleep(_MINUTE)
        with contextlib.suppress(DiscreetError):  # a full disk is told to whoever asks
            await middleware.run_in_thread(middleware.service.access.save_time)


def worker() -> ServiceMiddleware:
    """Make the application of one process among several, which ends when the one that started it is gone."""
    parent = int(os.environ[PARENT])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watch", daemon=True).start()
    app = make_app(Service(Config.load(os.environ[CONFIG])))
    settle()
    return app


def settle() -> None:
    """Let the garbage collector take what is here now for granted, in a process that only serves.

    It would otherwise go through all modules and schemas again after every few hundred questions, which takes
    a fifth of a second during which nobody is answered.
    """
    gc.collect()
    gc.freeze()


__all__ = ["check", "serve"]

_KEEP_ALIVE = 30  # seconds that an idle connection stays open
_BACKLOG = 2048  # connections that wait to be taken
_REGISTERING = 600  # seconds after which a process that says nothing is taken for dead


def serve(path: str | os.PathLike[str], *, ready: Callable[[str, Service], None]) -> None:
    """Run a service until it is told to end.

    Parameters
    ----------
    path : path
        Of the configuration.
    ready : callable
        Called with the address and the service once nothing can go wrong any more before it listens.

    Raises
    ------
    DiscreetError
        It cannot start: why, and the way out.
    """
    config = check(path)
    # First the address and then the rows: large tables take minutes, and a taken port is told at once.
    listening = _bound(config)
    log("reading", dataset=config.dataset)
    try:
        service = Service(config)
    except BaseException:
        listening.close()
        raise
    _listen(listening, config)
    scheme = "https" if config.tls is not None else "http"
    host, port = listening.getsockname()[:2]
    ready(f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}", service)
    # Whoever ends us by a signal gets a quiet end: uvicorn raises it again once all is closed.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    if config.workers == 1:
        server = uvicorn.Server(uvicorn.Config(make_app(service), **_options(config)))
        settle()
        server.run(sockets=[listening])
        return
    service.close()
    os.environ[CONFIG], os.environ[PARENT] = os.fspath(path), str(os.getpid())
    with temporary_folder() as counts:
        os.environ[METRICS_FOLDER] = str(counts)
        uvicorn.run("discreet.server.app:worker", factory=True, fd=listening.fileno(), **_options(config))


def _options(config: Config) -> dict[str, Any]:
    tls = config.tls
    return {
        "workers": config.workers,
        "log_config": LOGGING,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "lifespan": "on",
        "timeout_keep_alive": _KEEP_ALIVE,
        "timeout_graceful_shutdown": math.ceil(config.limits.seconds) + 5,
        # A process that registers a large table does not answer for a while, and must not be replaced.
        "timeout_worker_healthcheck": _REGISTERING,
        "ssl_certfile": None if tls is None else tls.certificate,
        "ssl_keyfile": None if tls is None else tls.key,
    }


def _bound(config: Config) -> socket.socket:
    """Return a socket that has its address; until it listens, whoever comes is turned away."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        made.bind((config.host, config.port))
    except OSError as problem:
        made.close()
        raise _taken(config, problem) from None
    # Heads and bodies leave as they come: otherwise the second waits 40 ms for the first to be acknowledged.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.set_inheritable(True)
    return made


def _listen(bound: socket.socket, config: Config) -> None:
    try:
        bound.listen(_BACKLOG)
    except OSError as problem:
        bound.close()
        raise _taken(config, problem) from None


def _taken(config: Config, problem: OSError) -> ParameterError:
    return ParameterError(
        f"listen of the configuration must be an address that is free here, and {config.listen} is not "
        f"({problem.strerror}). Choose another, or end who listens there."
    )
