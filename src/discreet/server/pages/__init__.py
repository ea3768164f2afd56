"""The pages of the service for browsers, which work with and without JavaScript.

``forms`` parses what a browser sends; ``page`` turns a request into a page, and has login and static files;
``sign_in`` is the way in through an OpenID Connect provider; ``budget``, ``columns`` and ``answer`` present
budgets, columns and answers as text and charts; ``history`` recalls past answers by their receipts; ``trial``
answers from dummy rows; ``catalogue`` lists data sets, ``jobs`` long questions and models, ``saved`` what an
analyst saved; ``ask`` is the page of analysts, and ``curator`` and ``people`` are those of curators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter

from discreet.server.pages import ask, catalogue, columns, curator, history, jobs, page, people, saved
from discreet.server.pages.page import page_endpoint
from discreet.server.sign_in import CALLBACK

if TYPE_CHECKING:
    from discreet.server.callers import Role
    from discreet.server.pages.page import Handler
    from discreet.server.service import Service

__all__ = ["router"]


def router(service: Service) -> APIRouter:
    """Return the routes of all pages.

    Parameters
    ----------
    service : Service
        Service that answers them; pages get answers in the same way as programs do.

    Privacy
    -------
    Every request that changes or costs something is a POST with a CSRF token. The browser is redirected to
    the page of its answer, so that reloading it does not ask again.
    """
    routes = APIRouter(include_in_schema=False)

    def add(path: str, method: str, handler: Handler, role: Role | None = None) -> None:
        endpoint = page_endpoint(service, handler, role=role)
        routes.add_route(path, endpoint, methods=[method], include_in_schema=False)

    add("/", "GET", catalogue.catalogue_page)
    add("/reload", "POST", catalogue.reload_configuration)
    add("/login", "GET", page.login_page)
    add("/login", "POST", page.login)
    add("/logout", "POST", page.logout)
    add("/static/{name}", "GET", page.static)
    if service.config.sign_in is not None:
        # Not above: its libraries are needed by services with a provider alone.
        from discreet.server.pages.sign_in import SignInPages

        sign_in = SignInPages(service.config)
        add("/sign-in", "GET", sign_in.begin)
        add(CALLBACK, "GET", sign_in.finish)
        add("/signed-in", "GET", sign_in.signed_in)
    for path, method, handler in (
        ("", "GET", ask.ask_page),
        ("/ask", "POST", ask.ask),
        ("/refine", "POST", ask.refine),
        ("/price", "POST", ask.price),
        ("/complete", "GET", columns.suggestions),
        ("/answers/{receipts}", "GET", ask.answer_page),
        ("/answers/{receipts}/answer.{ending}", "GET", ask.answer_file),
        ("/history", "GET", history.history_page),
        ("/saved", "GET", saved.saved_page),
        ("/saved/{question}", "POST", saved.change),
        ("/saved/{question}/run", "POST", saved.run),
        ("/jobs", "GET", jobs.jobs_page),
        ("/jobs", "POST", jobs.train),
        ("/jobs/{job}", "GET", jobs.job_page),
        ("/jobs/{job}/answer.{ending}", "GET", jobs.job_file),
        ("/jobs/{job}/cancel", "POST", jobs.cancel),
    ):
        add(f"/datasets/{{dataset}}{path}", method, handler, "analyst")
    for path, method, handler in (
        ("", "GET", curator.curator_page),
        ("/analysts/{name:path}", "GET", curator.analyst_page),
        ("/stop", "POST", curator.stop),
        ("/attack", "POST", curator.attack),
        ("/check", "POST", curator.check),
        ("/people", "GET", people.people_page),
        ("/tokens", "POST", people.order_token),
        ("/allocations", "POST", people.order_allocation),
    ):
        add(f"/datasets/{{dataset}}/curator{path}", method, handler, "curator")
    return routes
