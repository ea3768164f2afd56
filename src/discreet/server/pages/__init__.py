"""The pages of the service: what a browser sees, with or without a script.

Reading order: :mod:`~discreet.server.pages.forms` what a browser sends;
:mod:`~discreet.server.pages.page` how a request becomes a page, login and static files;
:mod:`~discreet.server.pages.budget` and :mod:`~discreet.server.pages.answer` budgets and answers as text and
charts; :mod:`~discreet.server.pages.history` past answers, found again by their receipts;
:mod:`~discreet.server.pages.ask` and :mod:`~discreet.server.pages.curator` what analysts and curators see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from discreet.server.pages import ask, curator, history, page
from discreet.server.pages.page import page_endpoint

if TYPE_CHECKING:
    from discreet.server.service import Service

__all__ = ["router"]


def router(service: Service) -> APIRouter:
    """Return the routes of all pages.

    Parameters
    ----------
    service : Service
        Whom they ask: pages know no other way to an answer than programs do.

    Privacy
    -------
    Whatever changes something or costs something is posted with the proof that it comes from our own page.
    An answer is a page of its own, to which the browser is sent on: loading it again asks nothing.
    """
    made = APIRouter(include_in_schema=False)
    for path, method, handler in (
        ("/login", "GET", page.login_page),
        ("/login", "POST", page.login),
        ("/logout", "POST", page.logout),
        ("/static/{name}", "GET", page.static),
        ("/", "GET", ask.ask_page),
        ("/ask", "POST", ask.ask),
        ("/refine", "POST", ask.refine),
        ("/price", "POST", ask.price),
        ("/answers/{receipts}", "GET", ask.answer_page),
        ("/history", "GET", history.history_page),
        ("/curator", "GET", curator.curator_page),
        ("/curator/analysts/{name:path}", "GET", curator.analyst_page),
        ("/curator/stop", "POST", curator.stop),
        ("/curator/attack", "POST", curator.attack),
        ("/curator/check", "POST", curator.check),
        ("/curator/tokens", "POST", curator.order_token),
    ):
        shown = page_endpoint(service, handler, curator=path.startswith("/curator"))
        made.add_route(path, shown, methods=[method], include_in_schema=False)
    return made
