"""Routes for an operator's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request  # noqa: TC002 - FastAPI reads annotations
from starlette.responses import Response

from discreet.server.api import responses
from discreet.server.api.route import documented_route, json_response, middleware_of

if TYPE_CHECKING:
    from fastapi.routing import APIRoute


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


def operator_routes() -> list[APIRoute]:
    """Return the routes of this module, in the order of the document."""
    return [
        documented_route("/metrics", metrics, "Counts for Prometheus", role="operator"),
        documented_route("/health", health, "Whether the process lives", model=responses.StatusResponse),
        documented_route(
            "/ready", ready, "Whether ledger and engine answer",
            codes=("ledger-unavailable",), model=responses.StatusResponse,
        ),
    ]  # fmt: skip
