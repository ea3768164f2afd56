"""Templates to pages, and the few files that pages bring with them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from starlette.responses import HTMLResponse, Response

from discreet import formatting
from discreet.report.pages.tables import badge, name_markup

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
