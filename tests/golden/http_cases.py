"""Responses of the service to recorded requests, with clock and randomness fixed, without a socket.

Left out of what is compared: the identity of a request and secret tokens, which are random; the pages that
describe the interface, whose outline :mod:`tests.golden.openapi_outline` compares; and the markup of pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.golden._entry_points import Column, Schema, service_app
from tests.golden.digests import of_bytes, of_json, rounded
from tests.golden.frozen import frozen
from tests.golden.openapi_outline import outline
from tests.golden.recorded_requests import PAGES, Request, requests

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.golden._entry_points import App

PEOPLE = {"ana": "analyst", "ben": "analyst", "cura": "curator", "opal": "operator"}
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=120, measure="years"),
        Column("income", lower=0, upper=100_000, measure="EUR"),
        Column("sex", values=("f", "m")),
        Column("city", values=("Bern", "Thun", "Köniz"), required=False),
        Column("owner", values=("no", "yes")),
    ],
    target="owner",
    dataset="town",
)
SETTINGS: dict[str, Any] = {
    "datasets": {
        "town": {
            "table": "town.csv",
            "ledger": "town.ledger",
            "limit": {"rho": 10.0},
            "analyst_limit": {"rho": 5.0},
        }
    },
    "access": "access.db",
    "audit_log": "audit.jsonl",
    "listen": "127.0.0.1:0",
    "slots": "off",
    "limits": {"per_minute": 100_000},
    "seed": 1,
    "testing": True,
}
VARYING = ("x-request-id", "content-length", "set-cookie", "date")
TIMES = {"since", "created", "expires", "revoked", "last_used", "used"}
DIGITS = 9
"""Significant digits of numbers in bodies: models come out of linear algebra."""


def write_table(folder: Path, rows: int = 400) -> None:
    """Write a table without chance, and its schema."""
    cities = ("Bern", "Thun", "Köniz", "")
    lines = ["age,income,sex,city,owner"] + [
        f"{37 * i % 101},{7919 * i % 100_000},{'f' if i % 3 else 'm'},{cities[i % 4]},"
        f"{'yes' if 37 * i % 101 > 50 else 'no'}"
        for i in range(rows)
    ]
    (folder / "town.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "town.schema.yaml").write_text(SCHEMA.to_yaml(), encoding="utf-8")


async def send(app: App, request: Request) -> tuple[int, dict[str, str], bytes]:
    """Send one request to an application, and return status, headers and body of its response."""
    path, _, query = request.path.partition("?")
    headers = {"host": "testserver", "content-type": "application/json"}
    if request.who is not None:
        headers["authorization"] = f"Bearer {app.tokens[request.who]}"
    headers |= {name.lower(): value for name, value in request.headers.items()}
    messages: list[Any] = []
    waiting: list[Any] = [{"type": "http.request", "body": request.content}]
    if request.gone:
        waiting = [{"type": "http.disconnect"}]

    async def receive() -> Any:
        if waiting:
            return waiting.pop(0)
        return await asyncio.Event().wait()

    async def sent(message: Any) -> None:
        messages.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("testserver", 80),
    }
    with contextlib.nullcontext() if request.failing is None else app.failing(request.failing):
        await app.asgi(scope, receive, sent)
    head = messages[0]
    told = {name.decode().lower(): value.decode("latin-1") for name, value in head["headers"]}
    return head["status"], told, b"".join(message.get("body", b"") for message in messages[1:])


@contextlib.asynccontextmanager
async def living(app: App) -> AsyncIterator[None]:
    """Run the life of an application around a block."""
    begun, ended, end = asyncio.Event(), asyncio.Event(), asyncio.Event()
    asked = False

    async def receive() -> Any:
        nonlocal asked
        if not asked:
            asked = True
            return {"type": "lifespan.startup"}
        await end.wait()
        return {"type": "lifespan.shutdown"}

    async def sent(message: Any) -> None:
        (begun if "startup" in message["type"] else ended).set()

    task = asyncio.create_task(app.asgi({"type": "lifespan", "asgi": {"version": "3.0"}}, receive, sent))
    await begun.wait()
    try:
        yield
    finally:
        end.set()
        await ended.wait()
        await task


def described(app: App, status: int, headers: dict[str, str], body: bytes) -> list[Any]:
    """Return what of a response is compared: status, kind, error code, and digests of headers and body."""
    kept = {name: value for name, value in headers.items() if name not in VARYING}
    kind, code = kept.get("content-type", ""), None
    text = body.decode("utf-8", "replace")
    if "allow" in kept:  # Starlette keeps methods in a set, whose order follows from no rule
        ordered = ", ".join(sorted(kept["allow"].split(", ")))
        text, kept["allow"] = text.replace(kept["allow"], ordered), ordered
    for name, token in app.tokens.items():
        text = text.replace(token, f"token of {name}")
    if kind.startswith("application/json"):
        values = json.loads(text) if text else None
        if isinstance(values, dict):
            values.pop("token", None)
            if "error" in values:
                code = values["error"]["code"]
                values["error"].pop("request_id")
            _hide_random(values)
        text = json.dumps(rounded(values, DIGITS), ensure_ascii=False)
    return [status, kind, code, of_json(kept), of_bytes(text.encode())]


def _hide_random(value: Any) -> None:
    """Take out identities of requests, and times of tokens, which have a clock of their own."""
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            _hide_random(inner)
    if isinstance(value, dict):
        value.pop("request_id", None)
        for name in TIMES & set(value):
            value[name] = type(value[name]).__name__


async def _recorded(app: App) -> dict[str, Any]:
    """Send every recorded request, and describe what comes back."""
    found: dict[str, Any] = {}
    async with living(app):
        for request in requests():
            assert request.name not in found, request.name
            found[request.name] = described(app, *await send(app, request))
        cookies = {who: await _logged_in(app, who) for who in ("ana", "cura")}
        for method, path, who in PAGES:
            headers = {"accept": "text/html"} | ({} if who is None else {"cookie": cookies[who]})
            status, told, body = await send(app, Request("", method, path, who=None, headers=headers))
            fields = sorted(set(re.findall(r'name="([\w-]+)"', body.decode("utf-8", "replace"))))
            found[f"page {method} {path} of {who}"] = [status, told.get("content-type"), fields]
        _, _, body = await send(app, Request("", "GET", "/metrics", who="opal"))
        names = {line.partition(" ")[0].partition("{")[0] for line in body.decode().splitlines()}
        found["metrics"] = sorted(name for name in names if name.startswith("discreet"))
    return found


async def _logged_in(app: App, who: str) -> str:
    """Log in as a browser does, and return the cookie."""
    form = {"content-type": "application/x-www-form-urlencoded", "origin": "http://testserver"}
    asked = Request("", "POST", "/login", f"token={app.tokens[who]}".encode(), who=None, headers=form)
    status, headers, _ = await send(app, asked)
    assert status == 303, status
    return headers["set-cookie"].partition(";")[0]


def http_cases() -> dict[str, Any]:
    """Return a description of the response to every recorded request."""
    with tempfile.TemporaryDirectory(prefix="golden-") as name, frozen("service"):
        folder = Path(name)
        write_table(folder)
        with service_app(folder, SETTINGS, PEOPLE) as app:
            found = asyncio.run(_recorded(app))
        lines = [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]
        found["audit log"] = [sorted({line.get("event", line.get("type", "")) for line in lines}), len(lines)]
        narrow = {**SETTINGS, "limits": {"per_minute": 1}}
        with service_app(folder, narrow, {"eve": "analyst"}) as app:
            found |= asyncio.run(_too_often(app))
        busy = {**SETTINGS, "limits": {"per_minute": 100_000, "work_per_hour": 1.0}}
        with service_app(folder, busy, {"moe": "analyst"}) as app:
            found |= asyncio.run(_too_much_work(app))
    codes = sorted({case[2] for case in found.values() if len(case) == 5 and case[2] is not None})
    return found | {"error codes": codes}


async def _too_often(app: App) -> dict[str, Any]:
    """Ask more often than a service allows."""
    async with living(app):
        for _ in range(3):
            response = await send(app, Request("", "GET", "/v1/datasets/town/schema", who="eve"))
    return {"too often": described(app, *response)}


async def _too_much_work(app: App) -> dict[str, Any]:
    """Preview more than the work that a service allows in an hour: the second takes all of it."""
    body = {"kind": "text", "text": " " * 200_000, "privacy": {"kind": "zcdp", "rho": 0.1}}
    async with living(app):
        for _ in range(2):
            sent = Request("", "POST", "/v1/datasets/town/preview", body, who="moe")
            response = await send(app, sent)
    return {"too much work": described(app, *response)}


def openapi_document() -> Any:
    """Return the outline of the OpenAPI document that a service publishes."""

    async def fetched(app: App) -> bytes:
        async with living(app):
            return (await send(app, Request("", "GET", "/openapi.json", who=None)))[2]

    with tempfile.TemporaryDirectory(prefix="golden-") as name:
        write_table(Path(name))
        with service_app(Path(name), SETTINGS, PEOPLE) as app:
            return outline(json.loads(asyncio.run(fetched(app))))
