"""Requests of browsers and the layout of all pages; login, logout and static files."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import jinja2
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response

from discreet import formatting
from discreet.errors import DiscreetError
from discreet.report.pages.tables import badge, name_markup
from discreet.server.credentials import check_form, close_session, is_same_origin, open_session
from discreet.server.errors import (
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

    from discreet.server.callers import Caller, Role, Session
    from discreet.server.dataset_service import DatasetService
    from discreet.server.middleware import ServiceMiddleware
    from discreet.server.service import Service

    T = TypeVar("T")

    Handler: TypeAlias = Callable[["PageRequest"], Awaitable[Response]]

_HERE = resources.files("discreet.server.pages")
_ASSETS = {
    # The style sheet of reports, so that tables, badges and charts look alike everywhere.
    "style.css": (resources.files("discreet.report") / "templates" / "style.css", "text/css"),
    "pages.css": (_HERE / "static" / "pages.css", "text/css"),
    "pages.js": (_HERE / "static" / "pages.js", "text/javascript"),
    "completion.js": (_HERE / "static" / "completion.js", "text/javascript"),
    "icon.svg": (_HERE / "static" / "icon.svg", "image/svg+xml"),
}


_WRONG = "This token is not valid. It may have expired or been replaced: ask a curator for a new one."
_ENDED = "Log in to see this page. If you were logged in before, your session has ended."
_EXPONENT = re.compile(r"(\d[\d.]*e-\d+)")
_KEPT = "public, max-age=31536000, immutable"  # for a file whose address changes with its content
_MAX_TOKEN = 256  # characters of a token that are looked at


@cache
def asset(name: str) -> tuple[bytes, str] | None:
    """Return content and media type of a static file; None for an unknown name."""
    if name not in _ASSETS:
        return None
    file, media = _ASSETS[name]
    return file.read_bytes(), media


@cache
def asset_address(name: str) -> str:
    """Return the address of a static file, which changes with its content."""
    file = asset(name)
    assert file is not None
    return f"/static/{name}?v={hashlib.sha256(file[0]).hexdigest()[:12]}"


def asset_response(name: str, version: str) -> Response | None:
    """Return the response with a static file; None for an unknown name.

    Browsers keep a file that is requested by the version of its content, and ask for any other again.
    """
    file = asset(name)
    if file is None:
        return None
    headers = {"cache-control": _KEPT} if asset_address(name).endswith(f"?v={version}") else {}
    return Response(file[0], media_type=file[1], headers=headers)


def render(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
    """Return the response with a rendered template."""
    return HTMLResponse(_environment().get_template(template).render(**values), status_code=status)


def _keep_exponents(text: str) -> Markup:
    """Return a text in which no line breaks inside a number such as 1e-06."""
    pieces = enumerate(_EXPONENT.split(text))  # every second one is such a number
    return Markup().join(Markup('<span class="whole">{}</span>').format(p) if i % 2 else p for i, p in pieces)


@cache
def _environment() -> jinja2.Environment:
    """Return the Jinja environment, which escapes all values and refuses undefined ones."""
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_escape_invisible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "name": name_markup,
        "counted": formatting.count_noun,
        "unbroken": _keep_exponents,
    }
    environment.globals |= {"badge": badge, "asset": asset_address}
    return environment


def _source(name: str) -> str:
    return (_HERE / "templates" / name).read_text(encoding="utf-8")


def _escape_invisible(value: Any) -> Any:
    """Make invisible and control characters visible in every text that a template prints; refuse None."""
    if value is None:
        raise AssertionError("a template prints None")
    return formatting.printable(value) if type(value) is str else value


_TITLES = {
    "not-found": "Page not found",
    "forbidden": "You do not have access to this page",
    "stopped": "All questions are stopped",
    "busy": "The service is busy",
    "rate-limited": "Too many requests",
    "failed": "Something went wrong",
    "work-limited": "No computing time left for this hour",
}


@dataclass(frozen=True, slots=True)
class NavItem:
    """A link of the top bar: its address, its text, and whether it is the current page."""

    href: str
    text: str
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLayout:
    """The parts that every page shows around its content; those about a data set are empty without one."""

    dataset: str
    base: str
    unit: str
    rows: int | None
    caller: str
    csrf: str
    nav_items: tuple[NavItem, ...]
    footnotes: tuple[str, ...]
    seeded: bool
    stopped: bool
    log_problem: str


class PageRequest:
    """Request of a browser for a page.

    Parameters
    ----------
    service : Service
        Service that the pages show.
    request : Request
        Request as Starlette has it; the middleware has stored its session in its state.
    """

    def __init__(self, service: Service, request: Request) -> None:
        self.service = service
        self.http = request
        self.middleware: ServiceMiddleware = request.state.middleware
        self._session: Session | None = request.state.session
        self._target: DatasetService | None = None

    def find_target(self, role: Role) -> None:
        """Find the data set in the path for the caller, who needs a role on it."""
        self._target = self.service.find(self.caller, self.http.path_params["dataset"], role)

    @property
    def target(self) -> DatasetService:
        """Data set that the page is about."""
        assert self._target is not None
        return self._target

    @property
    def base(self) -> str:
        """Beginning of the addresses of all pages about the data set."""
        return f"/datasets/{self.target.name}"

    @property
    def session(self) -> Session:
        """Session of the browser; refused if there is none."""
        if self._session is None:
            raise ApiException(UNAUTHORIZED)
        return self._session

    @property
    def caller(self) -> Caller:
        """Caller whose session it is."""
        return self.session.caller

    @property
    def address(self) -> str:
        """Address at which programs reach the service; https behind a proxy, since tokens are sent there."""
        config = self.service.config
        if config.address is not None:
            return config.address
        url = self.http.base_url
        return str(url.replace(scheme="https") if config.secure else url).rstrip("/")

    async def body(self) -> dict[str, str]:
        """Return the fields of a form without checking its origin."""
        return parse_form(await self.middleware.read_body(self.http.scope, self.http.receive))

    async def form(self) -> dict[str, str]:
        """Return the fields of a form, and refuse one that does not come from a page of this service."""
        fields = await self.body()
        check_form(self._session, self.http.headers.raw, fields)
        return fields

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run short work off the event loop and return its value."""
        return await self.middleware.run_in_thread(work)

    def render(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Return the response with a rendered template inside the layout."""
        return render(template, status=status, layout=self._layout(), **values)

    def render_error(self, problem: ApiError) -> Response:
        """Return the page that shows an error."""
        page = self.render(
            "notice.html.j2",
            status=problem.status,
            title=_TITLES.get(problem.code, "That did not work"),
            message=problem.message,
            hint=self.hint(problem),
        )
        page.headers.update(problem.headers)
        return page

    def hint(self, problem: ApiError) -> str:
        """Return the hint of an error; a page has no field with the id of the request, so that it says it."""
        request_id = self.http.state.request_id
        return problem.hint.replace("the request_id", f"the request id {request_id}")

    def _layout(self) -> PageLayout:
        """Return the layout for the caller, without links where there is no session."""
        session, target = self._session, self._target
        schema = None if target is None else target.dataset.schema
        return PageLayout(
            dataset="" if target is None else target.name,
            base="" if target is None else self.base,
            unit="" if schema is None else schema.unit,
            rows=None if schema is None or schema.id_column is None else schema.max_rows_per_unit,
            caller="" if session is None else session.caller.display or session.caller.name,
            csrf="" if session is None else session.form,
            nav_items=() if session is None else self._nav_items(session.caller),
            footnotes=() if target is None else target.dataset.accounting.footnotes,
            seeded=self.service.config.seed is not None,
            stopped=target is not None and self.service.access.stop_record(target.name) is not None,
            log_problem=self._log_problem(),
        )

    def _log_problem(self) -> str:
        """Return what is wrong with the audit log, for curators; it depends on files, and on no row."""
        problem, session = self.service.audit_log.problem, self._session
        shown = problem is not None and session is not None and session.caller.is_curator
        return str(problem) if shown else ""

    def _nav_items(self, caller: Caller) -> tuple[NavItem, ...]:
        """Return the links of the top bar: to all data sets, and to the pages of the current one."""
        links = [("/", "Data sets"), ("/docs", "API")]
        path = self.http.url.path
        section = "/" if path == "/reload" else path
        if self._target is not None:
            links[1:1] = [
                (self.base, "Ask"),
                (f"{self.base}/saved", "Saved"),
                (f"{self.base}/jobs", "Jobs"),
                (f"{self.base}/history", "History"),
            ]
            if caller.may("curator", self.target.name):
                links.insert(-1, (f"{self.base}/curator", "Curator"))
            part = path.removeprefix(self.base).partition("/")[2].partition("/")[0]
            section = f"{self.base}/{part}" if part in ("history", "jobs", "saved", "curator") else self.base
        return tuple(NavItem(href, text, section == href) for href, text in links)


def page_endpoint(
    service: Service, handler: Handler, *, role: Role | None = None
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a handler, which shows errors as pages and redirects to the login.

    Parameters
    ----------
    service : Service
        Service that the handler shows.
    handler : callable
        Function of a `PageRequest` that returns the response.
    role : str, optional
        Role that the caller needs on the data set in the path; None for a page about none.
    """

    async def endpoint(request: Request) -> Response:
        page_request = PageRequest(service, request)
        try:
            if role is not None:
                page_request.find_target(role)
            return await handler(page_request)
        except (DiscreetError, ApiException) as error:
            problem = curator_error(error) if role == "curator" else api_error_from(error)
            if problem is UNAUTHORIZED:
                # The first visit goes to "/"; at another page there was a session, or a link from somebody.
                return redirect("/login" if request.url.path == "/" else "/login?ended")
            if problem.code == "failed":
                raise
            page_request.middleware.metrics.count_refusal(problem.code)
            return page_request.render_error(problem)

    return endpoint


def redirect(address: str) -> Response:
    """Return a 303 redirect, so that reloading the page does not send the form twice."""
    return RedirectResponse(address, status_code=303)


async def login_page(page_request: PageRequest) -> Response:
    """Return the login page, which says after a redirect from a page why it is shown."""
    return login_response(page_request, notice=_ENDED if "ended" in page_request.http.query_params else "")


def login_response(
    page_request: PageRequest, *, status: int = 200, notice: str = "", failed: str = "", refused: str = ""
) -> Response:
    """Return the login page.

    Parameters
    ----------
    page_request : PageRequest
        Request for the page.
    status : int
        HTTP status of the response.
    notice : str
        Sentence that says why the page is shown; empty if it was asked for.
    failed, refused : str
        Sentence that says why a token, or a sign-in through a provider, was refused; empty for neither.
    """
    sign_in = page_request.service.config.sign_in
    provider = "" if sign_in is None else urlsplit(sign_in.issuer).netloc
    return page_request.render(
        "login.html.j2", status=status, notice=notice, failed=failed, refused=refused, provider=provider
    )


async def login(page_request: PageRequest) -> Response:
    """Open a session for a token; any invalid one gets the same page after the same time."""
    started = time.monotonic()
    if not is_same_origin(page_request.http.headers.raw):
        raise ApiException(FOREIGN_FORM)
    token = (await page_request.body()).get("token", "").strip()[:_MAX_TOKEN]
    caller = page_request.service.access.find(token)
    if caller is None:
        await asyncio.sleep(max(0.0, started + REJECTION_DELAY - time.monotonic()))
        return login_response(page_request, status=401, failed=_WRONG)
    page_request.middleware.count_request(caller)
    cookie = await page_request.middleware.run_in_thread(
        lambda: open_session(page_request.service, caller), caller
    )
    response = redirect(_first_page(page_request.service, caller))
    response.headers["set-cookie"] = cookie
    return response


def _first_page(service: Service, caller: Caller) -> str:
    """Return the address of the page that follows a login: of the only data set, or the catalogue."""
    visible = service.visible(caller)
    if len(visible) != 1:
        return "/"
    base = f"/datasets/{visible[0].name}"
    return f"{base}/curator" if caller.may("curator", visible[0].name) else base


async def logout(page_request: PageRequest) -> Response:
    """End the session and return to the login page."""
    await page_request.form()
    cookie = await page_request.run_in_thread(
        lambda: close_session(page_request.service, page_request.http.headers.raw)
    )
    response = redirect("/login")
    response.headers["set-cookie"] = cookie
    return response


async def static(page_request: PageRequest) -> Response:
    """Return a static file."""
    version = page_request.http.query_params.get("v", "")
    response = asset_response(page_request.http.path_params["name"], version)
    if response is None:
        raise ApiException(NOT_FOUND)
    return response
