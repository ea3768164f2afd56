"""One request of a browser: who it is, what it sent, and the frame of the page it gets."""

from __future__ import annotations

import asyncio
import hashlib
import time
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from starlette.responses import HTMLResponse, RedirectResponse, Response

from discreet import formatting
from discreet.errors import DiscreetError
from discreet.report.pages.tables import badge, name_markup
from discreet.server.credentials import check_form, close_session, is_same_origin, open_session
from discreet.server.errors import (
    FORBIDDEN,
    FOREIGN_FORM,
    NOT_FOUND,
    UNAUTHORIZED,
    ApiError,
    ApiException,
    api_error_from,
    curator_error,
)
from discreet.server.middleware import REJECTION_DELAY
from discreet.server.pages.forms import parse_form

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias, TypeVar

    from starlette.requests import Request

    from discreet.server.access import Caller, Session
    from discreet.server.middleware import ServiceMiddleware
    from discreet.server.service import Service

    T = TypeVar("T")

    Handler: TypeAlias = Callable[["PageRequest"], Awaitable[Response]]

_HERE = resources.files("discreet.server.pages")
_ASSETS = {
    # The report's own style sheet: one palette, one set of tables, badges and charts for the product.
    "style.css": (resources.files("discreet.report") / "templates" / "style.css", "text/css"),
    "pages.css": (_HERE / "static" / "pages.css", "text/css"),
    "pages.js": (_HERE / "static" / "pages.js", "text/javascript"),
    "icon.svg": (_HERE / "static" / "icon.svg", "image/svg+xml"),
}


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """Return a file that pages bring with them and its type; None for any other name."""
    if name not in _ASSETS:
        return None
    file, media = _ASSETS[name]
    return file.read_bytes(), media


@cache
def asset_address(name: str) -> str:
    """Return where a file is fetched from; it changes with its content."""
    found = asset(name)
    assert found is not None
    return f"/static/{name}?v={hashlib.sha256(found[0]).hexdigest()[:12]}"


def asset_response(name: str) -> Response | None:
    """Answer a request for such a file."""
    found = asset(name)
    return None if found is None else Response(found[0], media_type=found[1])


def render(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Render a page."""
    return HTMLResponse(_environment().get_template(template).render(**values), status_code=status)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_printed,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"name": name_markup, "counted": formatting.count_noun}
    environment.globals |= {"badge": badge, "asset": asset_address}
    return environment


def _source(name: str) -> str:
    return (_HERE / "templates" / name).read_text(encoding="utf-8")


def _printed(value: Any) -> Any:
    """Show what would act unseen, wherever a template prints a text; refuse to print nothing."""
    if value is None:
        raise AssertionError("a template prints None")
    return formatting.printable(value) if type(value) is str else value


_TITLES = {
    "not-found": "Nothing is here",
    "forbidden": "This is not open to you",
    "stopped": "All questions are stopped",
    "busy": "One moment",
    "rate-limited": "One moment",
}


@dataclass(frozen=True, slots=True)
class NavItem:
    """A link of the top bar."""

    href: str
    words: str
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLayout:
    """What every page shows around its content."""

    dataset: str
    unit: str
    rows: int | None
    who: str
    csrf: str
    nav_items: tuple[NavItem, ...]
    collusion: str
    seeded: bool
    stopped: bool


class PageRequest:
    """A browser's request.

    Parameters
    ----------
    service : Service
        Whom it is about.
    request : Request
        As the application got it; the guard has found out who it is.
    """

    def __init__(self, service: Service, request: Request) -> None:
        self.service = service
        self.http = request
        self.middleware: ServiceMiddleware = request.state.middleware
        self._session: Session | None = request.state.session

    @property
    def session(self) -> Session:
        """Whose browser it is; refused if it is nobody's."""
        if self._session is None:
            raise ApiException(UNAUTHORIZED)
        return self._session

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return self.session.caller

    @property
    def address(self) -> str:
        """Where programs reach the service: they send tokens there, so a proxy's TLS must not be left out."""
        config = self.service.config
        if config.address is not None:
            return config.address
        url = self.http.base_url
        return str(url.replace(scheme="https") if config.secure else url).rstrip("/")

    async def body(self) -> dict[str, str]:
        """Return the fields of a form, wherever it came from."""
        return parse_form(await self.middleware.read_body(self.http.scope, self.http.receive))

    async def form(self) -> dict[str, str]:
        """Return the fields of a form, and refuse one that did not come from our own page."""
        fields = await self.body()
        check_form(self._session, self.http.headers.raw, fields)
        return fields

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Do something off the loop that listens."""
        return await self.middleware.run_in_thread(work)

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Render a page in its frame."""
        return render(template, status=status, layout=self._layout(), **values)

    def render_error(self, problem: ApiError) -> Response:
        """Tell a problem on a page of its own."""
        told = self.render(
            "notice.html.j2",
            status=problem.status,
            title=_TITLES.get(problem.code, "That did not work"),
            message=problem.message,
            hint=problem.hint,
        )
        told.headers.update(problem.headers)
        return told

    def _layout(self) -> PageLayout:
        service, session = self.service, self._session
        return PageLayout(
            dataset=service.dataset.name,
            unit=service.dataset.schema.unit,
            rows=None
            if service.dataset.schema.id_column is None
            else service.dataset.schema.max_rows_per_unit,
            who="" if session is None else session.caller.name,
            csrf="" if session is None else session.form,
            nav_items=() if session is None else self._nav_items(session.caller),
            collusion="" if session is None else service.dataset.accounting.collusion,
            seeded=service.config.seed is not None,
            stopped=service.access.stop_record() is not None,
        )

    def _nav_items(self, caller: Caller) -> tuple[NavItem, ...]:
        known = [("/", "Ask"), ("/history", "History"), ("/docs", "API")]
        if caller.is_curator:
            known.insert(2, ("/curator", "Curator"))
        path = self.http.url.path
        home = path if path.startswith(("/history", "/docs", "/curator")) else "/"
        return tuple(
            NavItem(href, words, home.partition("/")[2].partition("/")[0] == href[1:])
            for href, words in known
        )


def page_endpoint(
    service: Service, handler: Handler, *, curator: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a handler; what goes wrong becomes a page, what is nobody's goes to the door.

    Parameters
    ----------
    curator : bool
        Whether only a curator may.
    """

    async def endpoint(request: Request) -> Response:
        page_request = PageRequest(service, request)
        try:
            if curator and not page_request.caller.is_curator:
                raise ApiException(FORBIDDEN)
            return await handler(page_request)
        except (DiscreetError, ApiException) as error:
            problem = curator_error(error) if curator else api_error_from(error)
            if problem is UNAUTHORIZED:
                return redirect("/login")
            if problem.code == "failed":
                raise
            page_request.middleware.metrics.count_refusal(problem.code)
            return page_request.render_error(problem)

    return endpoint


def redirect(address: str) -> Response:
    """Send a browser on, so that loading the page again sends no form again."""
    return RedirectResponse(address, status_code=303)


_WRONG = "This is no valid token."
_MOST = 256  # characters; longer ones are not looked at


async def login_page(page_request: PageRequest) -> Response:
    """Ask for a token."""
    return page_request.render("login.html.j2", failed="")


async def login(page_request: PageRequest) -> Response:
    """Take a token; a wrong one gets the same page after the same time, whatever is wrong with it."""
    began = time.monotonic()
    if not is_same_origin(page_request.http.headers.raw):
        raise ApiException(FOREIGN_FORM)
    token = (await page_request.body()).get("token", "").strip()[:_MOST]
    caller = page_request.service.access.find(token)
    if caller is None:
        await asyncio.sleep(max(0.0, began + REJECTION_DELAY - time.monotonic()))
        return page_request.render("login.html.j2", status=401, failed=_WRONG)
    page_request.middleware.count_request(caller)
    cookie = await page_request.middleware.run_in_thread(
        lambda: open_session(page_request.service, caller), caller
    )
    inside = redirect("/curator" if caller.is_curator else "/")
    inside.headers["set-cookie"] = cookie
    return inside


async def logout(page_request: PageRequest) -> Response:
    """End a session."""
    await page_request.form()
    dropped = await page_request.run_in_thread(
        lambda: close_session(page_request.service, page_request.http.headers.raw)
    )
    outside = redirect("/login")
    outside.headers["set-cookie"] = dropped
    return outside


async def static(page_request: PageRequest) -> Response:
    """Return a file that pages bring with them."""
    found = asset_response(page_request.http.path_params["name"])
    if found is None:
        raise ApiException(NOT_FOUND)
    return found
