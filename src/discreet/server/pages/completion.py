"""Suggestions while a question is typed: words of the language, columns and declared values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import JSONResponse

from discreet.query.language.completion import complete

if TYPE_CHECKING:
    from starlette.responses import Response

    from discreet.server.pages.page import PageRequest

_MAX_LENGTH = 4000  # characters of a question that are looked at
_MAX_OPTIONS = 50


async def suggestions(page_request: PageRequest) -> Response:
    """Return what may follow in an unfinished question, and where the word begins that it replaces, as JSON.

    Privacy
    -------
    Follows from the schema alone.
    """
    text = page_request.http.query_params.get("text", "")[:_MAX_LENGTH]
    start, options = complete(text, page_request.target.dataset.schema)
    # Browsers count a character beyond the basic plane as two.
    start = len(text[:start].encode("utf-16-le", "surrogatepass")) // 2
    return JSONResponse({"start": start, "options": options[:_MAX_OPTIONS]})
