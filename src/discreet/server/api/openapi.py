"""The OpenAPI document, made from the routes, and the page at ``/docs`` that shows it."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from discreet.privacy.receipt import product_version
from discreet.server.api import requests
from discreet.server.api.routes import api_routes
from discreet.server.errors import STATUS
from discreet.server.pages.page import asset_address

if TYPE_CHECKING:
    from starlette.requests import Request

_REF = "#/components/schemas/{model}"
_BODIES: dict[str, TypeAdapter[Any]] = {
    "QueryRequest": requests.QUERY_REQUEST,
    "SaveRequest": TypeAdapter(requests.SaveRequest),
    "TokenRequest": TypeAdapter(requests.TokenRequest),
    "TokensRequest": TypeAdapter(requests.TokensRequest),
    "AllocationRequest": TypeAdapter(requests.AllocationRequest),
    "StopRequest": TypeAdapter(requests.StopRequest),
}
_TEMPLATE = resources.files("discreet.server") / "templates" / "reference.html.j2"
_EXAMPLES = (
    ("count", {"kind": "count", "where": "age >= 65", "privacy": {"kind": "gaussian-dp", "mu": 0.05}}),
    ("sentence", {"kind": "sentence", "text": "mean(age) by sex", "privacy": {"kind": "zcdp", "rho": 0.001}}),
    ("histogram", {"kind": "histogram", "columns": ["sex"], "sd": 20}),
)


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document, which is the same for every service and names no data set.

    Notes
    -----
    FastAPI describes routes and responses. Bodies are parsed by strict models from JSON text, which FastAPI
    does not do, so their schemas are added here. Every component has the name of its model, and so have the
    classes of a generated client.
    """
    document = get_openapi(
        title="discreet",
        version=product_version(),
        description="Statistical questions about private tables, each charged to a privacy budget.",
        routes=api_routes(),
    )
    schemas = document["components"]["schemas"]
    for name, adapter in _BODIES.items():
        body = adapter.json_schema(ref_template=_REF)
        schemas |= body.pop("$defs", {})
        schemas[name] = body
    for schema in schemas.values():
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.setdefault("parameters", [])
            operation.setdefault("description", "")
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def reference_routes() -> list[Route]:
    """Return the routes of the document itself, for programs and for people."""
    as_json, as_page = _write_reference()

    async def openapi_json(request: Request) -> Response:
        return Response(as_json, media_type="application/json")

    async def docs(request: Request) -> Response:
        return HTMLResponse(as_page)

    return [Route("/openapi.json", openapi_json), Route("/docs", docs)]


@functools.cache
def _write_reference() -> tuple[bytes, str]:
    """Return the document as JSON and as a page."""
    document = openapi_document()
    return json.dumps(document).encode(), reference_page(document)


def reference_page(document: dict[str, Any]) -> str:
    """Return the HTML page that shows an OpenAPI document."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    operations = [
        {"path": path, "method": method.upper(), **operation, **body_types(operation)}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    schemas = [
        {"name": name, "description": describe_schema(schema), "fields": schema_fields(schema)}
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


def body_types(operation: dict[str, Any]) -> dict[str, Any]:
    """Return in a few words what an operation takes and gives; None for no body."""
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answer = (
        next(iter(operation["responses"].values()))["content"].get("application/json", {}).get("schema", {})
    )
    return {"takes": None if body is None else type_name(body), "gives": type_name(answer) or "text"}


def describe_schema(schema: dict[str, Any]) -> str:
    """Return what a component schema says of itself; of one that is several others, which they are."""
    if "oneOf" in schema or "anyOf" in schema:
        return f"One of {type_name(schema).replace(' | ', ', ')}."
    return str(schema.get("description", ""))


def schema_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the fields of a component schema: name, type, whether required, description."""
    return [
        {
            "name": name,
            "type": type_name(field),
            "required": name in schema.get("required", ()),
            "description": field.get("description", ""),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def type_name(schema: dict[str, Any]) -> str:
    """Return in a few words what a JSON value is."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(map(json.dumps, schema["enum"]))
    for several in ("oneOf", "anyOf"):
        if several in schema:
            return " | ".join(type_name(one) for one in schema[several])
    kind = schema.get("type", "")
    if kind == "array":
        return f"list of {type_name(schema.get('items', {})) or 'anything'}"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)
