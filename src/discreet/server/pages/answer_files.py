"""An answer as files to save: a table as CSV, and a chart as SVG."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.responses import Response

from discreet.server.api.csv_response import csv_response

if TYPE_CHECKING:
    from discreet.query.results import QueryResult


def csv_file(result: QueryResult) -> Response:
    """Return a response with an answer as CSV: its groups, statistic, value and interval, a row per number.

    An end of an interval that is not finite is left empty.
    """
    rows = []
    for cell in result.cells:
        ends = (end if math.isfinite(end) else None for end in cell.interval)
        statistic = result.columns[cell.column]
        rows.append((*cell.key, statistic.name, cell.value, *ends, statistic.unit))
    return csv_response((*result.group_by, "statistic", "value", "lower", "upper", "unit"), rows, "answer")


def svg_file(result: QueryResult) -> Response:
    """Return a response with a chart of an answer as SVG."""
    headers = {"content-disposition": 'attachment; filename="answer.svg"'}
    return Response(result.plot().encode(), media_type="image/svg+xml", headers=headers)


def data_address(file: Response) -> str:
    """Return an address that holds a file itself, for an answer that has no page of its own."""
    return f"data:{file.media_type},{quote(bytes(file.body))}"
