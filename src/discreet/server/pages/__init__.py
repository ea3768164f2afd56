"""The pages of the service: what a browser sees, with or without a script.

Reading order: :mod:`~discreet.server.pages.forms` what a browser sends; :mod:`~discreet.server.pages.words`,
:mod:`~discreet.server.pages.columns`,
:mod:`~discreet.server.pages.budgets` and :mod:`~discreet.server.pages.answers` what it is shown;
:mod:`~discreet.server.pages.recall` and :mod:`~discreet.server.pages.trial` answers that cost nothing;
:mod:`~discreet.server.pages.rendering` and :mod:`~discreet.server.pages.visit` how a request becomes a page;
:mod:`~discreet.server.pages.doors`, :mod:`~discreet.server.pages.history`,
:mod:`~discreet.server.pages.desk` and :mod:`~discreet.server.pages.curator` the pages themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from discreet.server.pages import curator, desk, doors, history
from discreet.server.pages.visit import seen

if TYPE_CHECKING:
    from discreet.server.office import Office

__all__ = ["router"]


def router(office: Office) -> APIRouter:
    """Return the routes of all pages.

    Parameters
    ----------
    office : Office
        Whom they ask: pages know no other way to an answer than programs do.

    Privacy
    -------
    Whatever changes something or costs something is posted with the proof that it comes from our own page.
    An answer is a page of its own, to which the browser is sent on: loading it again asks nothing.
    """
    made = APIRouter(include_in_schema=False)
    for path, method, handler in (
        ("/login", "GET", doors.login_page),
        ("/login", "POST", doors.login),
        ("/logout", "POST", doors.logout),
        ("/static/{name}", "GET", doors.static),
        ("/", "GET", desk.ask_page),
        ("/ask", "POST", desk.ask),
        ("/refine", "POST", desk.refine),
        ("/price", "POST", desk.price),
        ("/answers/{receipts}", "GET", desk.answer_page),
        ("/history", "GET", history.history_page),
        ("/curator", "GET", curator.curator_page),
        ("/curator/analysts/{name:path}", "GET", curator.analyst_page),
        ("/curator/stop", "POST", curator.stop),
        ("/curator/attack", "POST", curator.attack),
        ("/curator/check", "POST", curator.check),
        ("/curator/tokens", "POST", curator.order_token),
    ):
        shown = seen(office, handler, curator=path.startswith("/curator"))
        made.add_route(path, shown, methods=[method], include_in_schema=False)
    return made
