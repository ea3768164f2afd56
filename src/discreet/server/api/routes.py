"""Every route for programs: all paths under ``/v1``, and those for an operator's tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.server.api.curator_routes import curator_routes
from discreet.server.api.job_routes import job_routes
from discreet.server.api.operator_routes import operator_routes
from discreet.server.api.query_routes import query_routes
from discreet.server.api.saved_routes import saved_routes
from discreet.server.api.table_routes import table_routes

if TYPE_CHECKING:
    from fastapi.routing import APIRoute


def api_routes() -> list[APIRoute]:
    """Return every route, in the order of the document."""
    analysts = [*table_routes(), *query_routes(), *job_routes(), *saved_routes()]
    return [*analysts, *curator_routes(), *operator_routes()]
