"""Every route for programs: all paths under ``/v1``, and those for an operator's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request  # noqa: TC002 - FastAPI reads annotations
from starlette.responses import Response

from discreet.server.api import responses
from discreet.server.api.curator_routes import curator_routes
from discreet.server.api.job_routes import job_routes
from discreet.server.api.query_routes import query_routes, saved_routes
from discreet.server.api.route import (
    READ_CODES,
    curator_errors,
    documented_route,
    dump,
    json_response,
    middleware_of,
)
from discreet.server.api.table_routes import table_routes
from discreet.server.errors import ONLY_OPERATORS, ApiException

if TYPE_CHECKING:
    from fastapi.routing import APIRoute


def api_routes() -> list[APIRoute]:
    """Return every route, in the order of the document."""
    analysts = [*table_routes(), *query_routes(), *job_routes(), *saved_routes()]
    return [*analysts, *curator_routes(), *_operator_routes()]


async def metrics(request: Request) -> Response:
    """Return counts for Prometheus."""
    middleware = middleware_of(request)
    text = await middleware.run_in_thread(middleware.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


async def health(request: Request) -> Response:
    """Return that the process lives."""
    return json_response(b'{"status": "alive"}')


async def ready(request: Request) -> Response:
    """Return that ledger and engine answer."""
    await middleware_of(request).run_in_thread(middleware_of(request).service.ready)
    return json_response(b'{"status": "ready"}')


async def reload(request: Request) -> Response:
    """Read the configuration again, for data sets that were added or removed."""
    from discreet.server.app import reload  # which makes the application of these routes

    service, caller = middleware_of(request).service, request.state.caller
    if not caller.is_operator:
        raise ApiException(ONLY_OPERATORS)

    def work() -> bytes:
        with curator_errors():
            return dump(reload(service, caller.name))

    return json_response(await middleware_of(request).run_long(work))


def _operator_routes() -> list[APIRoute]:
    """Return the routes for an operator's tools."""
    return [
        documented_route("/metrics", metrics, "Counts for Prometheus", role="operator"),
        documented_route(
            "/v1/reload", reload, "Add and retire data sets",
            description="Reads the configuration again. Data sets that it adds are opened; those that "
            "it lacks finish what they are answering and are closed. If anything is wrong, nothing changes; "
            "with several processes a table that cannot be opened shows in the log alone.",
            method="POST", role="operator", codes=READ_CODES, model=responses.ReloadResponse,
        ),
        documented_route("/health", health, "Whether the process lives", model=responses.StatusResponse),
        documented_route(
            "/ready", ready, "Whether ledger and engine answer",
            codes=("engine-failed", "ledger-unavailable"), model=responses.StatusResponse,
        ),
    ]  # fmt: skip
