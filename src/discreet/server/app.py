"""The whole application: an office, its routes and pages, and the guard around them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError, MissingExtra

try:
    from fastapi import FastAPI
    from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
    from starlette.requests import Request
    from starlette.routing import Route
except ImportError:  # pragma: no cover - said in the words of the package
    raise MissingExtra(
        "fastapi is needed to run the service, and is not installed. Run `pip install 'discreet[serve]'`."
    ) from None

from discreet.privacy.receipt import product_version
from discreet.server.api.routes import Routes
from discreet.server.config import Config
from discreet.server.hosts import Hosts
from discreet.server.middleware import Guard
from discreet.server.monitoring import Metrics, RouteNames, log
from discreet.server.pages import router
from discreet.server.pages.page import Visit
from discreet.server.reference import reference_routes
from discreet.server.service import Office

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.responses import Response

    from discreet.server.api.routes import Endpoint

_MINUTE = 60.0
CONFIG = "DISCREET_SERVE_CONFIG"
"""Where a process that was started to help finds its configuration."""

PARENT = "DISCREET_SERVE_PARENT"
"""And who started it: told, since it may be gone before the helper can look."""


class _Inside(FastAPI):
    """Routes alone: what is raised inside reaches the guard, which answers in one shape."""

    def build_middleware_stack(self) -> Any:
        """Leave out the layers that would answer errors in other shapes."""
        address = self.state.office.config.address
        return AsyncExitStackMiddleware(self.router if address is None else Hosts(self.router, address))


def make_app(office: Office) -> Guard:
    """Return the application of an office; it is closed with the application."""

    @contextlib.asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        log("start", dataset=office.dataset, version=product_version())
        clock = asyncio.create_task(_keep_time(guard))
        yield
        clock.cancel()
        # By now nobody listens; what runs is finished, and then the books are closed.
        guard.close()
        office.close()
        log("stop", dataset=office.dataset)
        gc.unfreeze()  # what was settled is taken apart in order when the process ends

    inside = _Inside(
        title="discreet", version=product_version(), openapi_url=None, docs_url=None, redoc_url=None,
        lifespan=living, redirect_slashes=False,
    )  # fmt: skip
    inside.state.office = office
    guard = Guard(inside, office, Metrics(office))
    guard.page_of = lambda scope, problem: Visit(office, Request(scope)).notice(problem)
    by_path: dict[str, dict[str, Endpoint]] = {}
    for (path, method), endpoint in {**Routes(office).table(), **reference_routes(office)}.items():
        by_path.setdefault(path, {})[method] = endpoint
    for path, endpoints in by_path.items():
        inside.add_route(path, _by_method(endpoints), methods=list(endpoints))
    pages = router(office)
    guard.names = RouteNames(route for route in (*inside.routes, *pages.routes) if isinstance(route, Route))
    inside.include_router(pages)
    return guard


async def _keep_time(guard: Guard) -> None:
    """Write the time down now and then, so that a clock that is set back before a restart shows."""
    while True:
        await asyncio.sleep(_MINUTE)
        with contextlib.suppress(DiscreetError):  # a full disk is told to whoever asks
            await guard.desk(guard.office.access.keep_time)


def _by_method(endpoints: dict[str, Endpoint]) -> Endpoint:
    """Return one endpoint for all methods of a path, so that a refused method is told all that there are."""
    if len(endpoints) == 1:
        return next(iter(endpoints.values()))

    async def chosen(request: Request) -> Response:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return chosen


def worker() -> Guard:
    """Make the application of one process among several, which ends when the one that started it is gone."""
    parent = int(os.environ[PARENT])

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watch", daemon=True).start()
    app = make_app(Office(Config.load(os.environ[CONFIG])))
    settle()
    return app


def settle() -> None:
    """Let the garbage collector take what is here now for granted, in a process that only serves.

    It would otherwise go through all modules and schemas again after every few hundred questions, which takes
    a fifth of a second during which nobody is answered.
    """
    gc.collect()
    gc.freeze()
