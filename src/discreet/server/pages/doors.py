"""In and out: a token for a session, and what pages bring with them."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from discreet.server.credentials import closed, opened, same_origin
from discreet.server.errors import FORM, NOT_FOUND, Refusal
from discreet.server.middleware import REFUSED_AFTER
from discreet.server.pages.page import Visit, away
from discreet.server.pages.rendering import asset_response

if TYPE_CHECKING:
    from starlette.responses import Response

_WRONG = "This is no valid token."
_MOST = 256  # characters; longer ones are not looked at


async def login_page(visit: Visit) -> Response:
    """Ask for a token."""
    return visit.page("login.html.j2", failed="")


async def login(visit: Visit) -> Response:
    """Take a token; a wrong one gets the same page after the same time, whatever is wrong with it."""
    began = time.monotonic()
    if not same_origin(visit.request.headers.raw):
        raise Refusal(FORM)
    token = (await visit.body()).get("token", "").strip()[:_MOST]
    caller = visit.office.access.find(token)
    if caller is None:
        await asyncio.sleep(max(0.0, began + REFUSED_AFTER - time.monotonic()))
        return visit.page("login.html.j2", status=401, failed=_WRONG)
    visit.guard.count(caller)
    cookie = await visit.guard.desk(lambda: opened(visit.office, caller), caller)
    inside = away("/curator" if caller.is_curator else "/")
    inside.headers["set-cookie"] = cookie
    return inside


async def logout(visit: Visit) -> Response:
    """End a session."""
    await visit.form()
    dropped = await visit.desk(lambda: closed(visit.office, visit.request.headers.raw))
    outside = away("/login")
    outside.headers["set-cookie"] = dropped
    return outside


async def static(visit: Visit) -> Response:
    """Return a file that pages bring with them."""
    found = asset_response(visit.request.path_params["name"])
    if found is None:
        raise Refusal(NOT_FOUND)
    return found
