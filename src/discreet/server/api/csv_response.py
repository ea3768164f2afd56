"""Tables as CSV, for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Sequence


def csv_response(columns: Sequence[str], rows: Any, name: str) -> Response:
    """Return a response with a table as CSV, to be saved under a name."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(_csv_cell, columns))
    writer.writerows([_csv_cell(value) for value in row] for row in rows)
    headers = {"content-disposition": f'attachment; filename="{name}.csv"'}
    return Response(out.getvalue().encode(), media_type="text/csv; charset=utf-8", headers=headers)


def _csv_cell(value: Any) -> Any:
    """Return a cell for CSV: a quote in front of text that a spreadsheet would evaluate, lists as JSON."""
    if isinstance(value, list):
        return json.dumps(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value
