"""``/openapi.json``, and the pages made from it: ``/docs``, and ``docs/reference/http.md``.

Run ``python -m discreet.server.reference > docs/reference/http.md`` after a change; a test compares the two.
"""

from __future__ import annotations

import json
import sys
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from starlette.responses import HTMLResponse, Response

from discreet.server.api.openapi import openapi
from discreet.server.errors import STATUS
from discreet.server.pages.page import asset_address

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.requests import Request

    from discreet.server.api.routes import Endpoint
    from discreet.server.service import Service

_TEMPLATE = resources.files("discreet.server") / "templates" / "reference.html.j2"
_HEAD = """\
# The service over HTTP

`discreet serve` answers under these addresses, and tells the same at `/docs` and, for programs, at
`/openapi.json`. Everything under `/v1` needs `Authorization: Bearer TOKEN`; a token never stands in an
address. Bodies are JSON. A response carries `X-Request-Id`; whatever is refused or fails is told as
`{"error": {"code", "message", "hint", "details", "request_id"}}`.
"""
_EXAMPLES = (
    ("count", {"kind": "count", "where": "age >= 65", "privacy": {"kind": "gaussian-dp", "mu": 0.05}}),
    ("sentence", {"kind": "sentence", "text": "mean(age) by sex", "privacy": {"kind": "zcdp", "rho": 0.001}}),
    ("histogram", {"kind": "histogram", "columns": ["sex"], "sd": 20}),
)


def reference_routes(service: Service) -> dict[tuple[str, str], Endpoint]:
    """Return the endpoints that describe the others."""
    document = openapi(service.dataset.name)
    as_json, as_page = json.dumps(document).encode(), reference_page(document)

    async def described(request: Request) -> Response:
        return Response(as_json, media_type="application/json")

    async def shown(request: Request) -> Response:
        return HTMLResponse(as_page)

    return {("/openapi.json", "GET"): described, ("/docs", "GET"): shown}


def reference_page(document: dict[str, Any]) -> str:
    """Return the page that tells an OpenAPI document to people."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    operations = [
        {"path": path, "method": method.upper(), **operation, **_told(operation)}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        {"name": name, "description": schema.get("description", ""), "fields": _fields(schema)}
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    examples = [{"name": name, "body": json.dumps(body)} for name, body in _EXAMPLES]
    return template.render(
        info=document["info"],
        operations=operations,
        schemas=schemas,
        examples=examples,
        codes=sorted(STATUS.items(), key=lambda pair: (pair[1], pair[0])),
        asset=asset_address,
    )


def written() -> str:
    """Return the text of ``docs/reference/http.md``."""
    document = openapi("DATASET")
    return "\n".join(_lines(document)) + "\n"


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield _HEAD
    yield "## Addresses\n\n| address | for | what | takes | gives |\n|---|---|---|---|---|"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            told = _told(operation)
            words = ". ".join(
                filter(None, (operation["summary"], operation["description"].removesuffix(".")))
            )
            cells = (
                f"`{method.upper()} {path}`",
                operation["tags"][0],
                words,
                told["takes"] or "",
                told["gives"],
            )
            yield f"| {' | '.join(map(_escaped, cells))} |"
    yield "\n## Parameters of addresses\n\n| address | parameter | |\n|---|---|---|"
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for parameter in operation["parameters"]:
                yield f"| `{path}` | `{parameter['name']}` | {_escaped(parameter['description'])} |"
    yield "\n## Refusals and failures\n\n| code | status |\n|---|---|"
    for code, status in sorted(STATUS.items(), key=lambda pair: (pair[1], pair[0])):
        yield f"| `{code}` | {status} |"
    yield "\n## Values"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"\n### {name}\n\n{schema.get('description', '')}".rstrip()
        if fields := _fields(schema):
            yield "\n| field | type | required |\n|---|---|---|"
        for field in fields:
            required = "yes" if field["required"] else ""
            yield f"| `{field['name']}` | {_escaped(field['type'])} | {required} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _told(operation: dict[str, Any]) -> dict[str, Any]:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answer = operation["responses"]["200"]["content"].get("application/json", {}).get("schema", {})
    return {"takes": None if body is None else _type(body), "gives": _type(answer) or "text"}


def _fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": _type(field),
            "required": name in schema.get("required", ()),
            "description": field.get("description", ""),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _type(schema: dict[str, Any]) -> str:
    """Say in a few words what a value is."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " | ".join(_type(one) for one in schema[several])
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {_type(schema.get('items', {})) or 'anything'}"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)


if __name__ == "__main__":
    sys.stdout.write(written())
