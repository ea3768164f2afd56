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

from discreet.errors import DiscreetError
from discreet.report import wording
from discreet.report.views.table import badge, named
from discreet.server.credentials import check_form, closed, opened, same_origin
from discreet.server.errors import (
    FORBIDDEN,
    FORM,
    NOT_FOUND,
    UNAUTHORIZED,
    Problem,
    Refusal,
    problem_of,
    told_to_curator,
)
from discreet.server.middleware import REFUSED_AFTER
from discreet.server.pages.forms import posted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeAlias, TypeVar

    from starlette.requests import Request

    from discreet.server.access import Caller, Session
    from discreet.server.middleware import Guard
    from discreet.server.service import Office

    T = TypeVar("T")

    Handler: TypeAlias = Callable[["Visit"], Awaitable[Response]]

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


def page(template: str, *, status: int = 200, **values: Any) -> HTMLResponse:
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
    environment.filters |= {"name": named, "counted": wording.counted}
    environment.globals |= {"badge": badge, "asset": asset_address}
    return environment


def _source(name: str) -> str:
    return (_HERE / "templates" / name).read_text(encoding="utf-8")


def _printed(value: Any) -> Any:
    """Show what would act unseen, wherever a template prints a text; refuse to print nothing."""
    if value is None:
        raise AssertionError("a template prints None")
    return wording.visible(value) if type(value) is str else value


_TITLES = {
    "not-found": "Nothing is here",
    "forbidden": "This is not open to you",
    "stopped": "All questions are stopped",
    "busy": "One moment",
    "rate-limited": "One moment",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A link of the top bar."""

    href: str
    words: str
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What every page shows around its content."""

    dataset: str
    unit: str
    rows: int | None
    who: str
    csrf: str
    places: tuple[Place, ...]
    collusion: str
    seeded: bool
    stopped: bool


class Visit:
    """A browser's request.

    Parameters
    ----------
    office : Office
        Whom it is about.
    request : Request
        As the application got it; the guard has found out who it is.
    """

    def __init__(self, office: Office, request: Request) -> None:
        self.office = office
        self.request = request
        self.guard: Guard = request.state.guard
        self._session: Session | None = request.state.session

    @property
    def session(self) -> Session:
        """Whose browser it is; refused if it is nobody's."""
        if self._session is None:
            raise Refusal(UNAUTHORIZED)
        return self._session

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return self.session.caller

    @property
    def address(self) -> str:
        """Where programs reach the service: they send tokens there, so a proxy's TLS must not be left out."""
        config = self.office.config
        if config.address is not None:
            return config.address
        url = self.request.base_url
        return str(url.replace(scheme="https") if config.secure else url).rstrip("/")

    async def body(self) -> dict[str, str]:
        """Return the fields of a form, wherever it came from."""
        return posted(await self.guard.body(self.request.scope, self.request.receive))

    async def form(self) -> dict[str, str]:
        """Return the fields of a form, and refuse one that did not come from our own page."""
        fields = await self.body()
        check_form(self._session, self.request.headers.raw, fields)
        return fields

    async def desk(self, work: Callable[[], T]) -> T:
        """Do something off the loop that listens."""
        return await self.guard.desk(work)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """Render a page in its frame."""
        return page(template, status=status, frame=self._frame(), **values)

    def notice(self, problem: Problem) -> Response:
        """Tell a problem on a page of its own."""
        told = self.page(
            "notice.html.j2",
            status=problem.status,
            title=_TITLES.get(problem.code, "That did not work"),
            message=problem.message,
            hint=problem.hint,
        )
        told.headers.update(problem.headers)
        return told

    def _frame(self) -> Frame:
        office, session = self.office, self._session
        return Frame(
            dataset=office.dataset,
            unit=office.schema.unit,
            rows=None if office.schema.id_column is None else office.schema.max_rows_per_unit,
            who="" if session is None else session.caller.name,
            csrf="" if session is None else session.form,
            places=() if session is None else self._places(session.caller),
            collusion="" if session is None else office.books.collusion,
            seeded=office.config.seed is not None,
            stopped=office.access.stopped() is not None,
        )

    def _places(self, caller: Caller) -> tuple[Place, ...]:
        known = [("/", "Ask"), ("/history", "History"), ("/docs", "API")]
        if caller.is_curator:
            known.insert(2, ("/curator", "Curator"))
        path = self.request.url.path
        home = path if path.startswith(("/history", "/docs", "/curator")) else "/"
        return tuple(
            Place(href, words, home.partition("/")[2].partition("/")[0] == href[1:]) for href, words in known
        )


def seen(
    office: Office, handler: Handler, *, curator: bool = False
) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint of a handler; what goes wrong becomes a page, what is nobody's goes to the door.

    Parameters
    ----------
    curator : bool
        Whether only a curator may.
    """

    async def endpoint(request: Request) -> Response:
        visit = Visit(office, request)
        try:
            if curator and not visit.caller.is_curator:
                raise Refusal(FORBIDDEN)
            return await handler(visit)
        except (DiscreetError, Refusal) as error:
            problem = told_to_curator(error) if curator else problem_of(error)
            if problem is UNAUTHORIZED:
                return away("/login")
            if problem.code == "failed":
                raise
            visit.guard.metrics.refusal(problem.code)
            return visit.notice(problem)

    return endpoint


def away(address: str) -> Response:
    """Send a browser on, so that loading the page again sends no form again."""
    return RedirectResponse(address, status_code=303)


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
