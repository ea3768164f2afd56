"""What an OpenAPI document says about requests and responses, whatever its schemas are called."""

from __future__ import annotations

from typing import Any

DEPTH = 5


def outline(document: dict[str, Any]) -> dict[str, Any]:
    """Return for each operation its parameters, request fields, statuses and response fields.

    Parameters
    ----------
    document : dict
        OpenAPI document.

    Returns
    -------
    dict
        By ``"METHOD /path"``; lists are sorted, and nested fields are written with dots.
    """
    found: dict[str, Any] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if method not in ("get", "post", "put", "delete", "patch"):
                continue
            parameters = {
                item["name"]: bool(item.get("required")) for item in operation.get("parameters", ())
            }
            found[f"{method.upper()} {path}"] = {
                "parameters": dict(sorted(parameters.items())),
                "request": _request(operation, document),
                "responses": {
                    status: sorted(_fields(_content(response, document), document))
                    for status, response in sorted(operation["responses"].items())
                },
            }
    return found


def missing(recorded: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a line for everything that a recorded outline has and a later one has not."""
    lines: list[str] = []
    for operation, was in recorded.items():
        if operation not in now:
            lines.append(f"{operation} is missing")
            continue
        here = now[operation]
        lines += [
            f"{operation}: no parameter {name}" for name in set(was["parameters"]) - set(here["parameters"])
        ]
        for kind, fields in was["request"].items():
            told = here["request"].get(kind)
            if told is None:
                lines.append(f"{operation}: no request of kind {kind}")
                continue
            if told["required"] != fields["required"]:
                lines.append(f"{operation} {kind}: required was {fields['required']}, is {told['required']}")
            lines += [f"{operation} {kind}: no field {n}" for n in set(fields["all"]) - set(told["all"])]
        for status, names in was["responses"].items():
            told = here["responses"].get(status)
            if told is None:
                lines.append(f"{operation}: no response {status}")
            else:
                lines += [f"{operation} {status}: no field {name}" for name in set(names) - set(told)]
    return sorted(lines)


def _resolved(schema: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference points to."""
    while "$ref" in schema:
        value: Any = document
        for part in schema["$ref"].removeprefix("#/").split("/"):
            value = value[part]
        schema = value
    return schema


def _variants(schema: dict[str, Any], document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the alternatives that a schema allows, itself if there is one."""
    schema = _resolved(schema, document)
    inner = [part for key in ("oneOf", "anyOf", "allOf") for part in schema.get(key, ())]
    return [v for part in inner for v in _variants(part, document)] if inner else [schema]


def _content(value: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a request body or a response; empty where there is none."""
    content = _resolved(value, document).get("content", {}).get("application/json", {})
    return dict(content.get("schema", {}))


def _request(operation: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return required and possible fields of a request, by the constant of its ``kind``."""
    found: dict[str, Any] = {}
    if "requestBody" not in operation:
        return found
    for variant in _variants(_content(operation["requestBody"], document), document):
        kind = variant.get("properties", {}).get("kind", {})
        for name in kind.get("enum", [kind.get("const", "any")]):
            found[str(name)] = {
                "required": sorted(variant.get("required", ())),
                "all": sorted(_fields(variant, document)),
            }
    return dict(sorted(found.items()))


def _fields(schema: dict[str, Any], document: dict[str, Any], depth: int = DEPTH) -> set[str]:
    """Return the dotted names of all fields of a schema, to a depth."""
    found: set[str] = set()
    if depth == 0:
        return found
    for variant in _variants(schema, document):
        for name, inner in variant.get("properties", {}).items():
            found.add(name)
            found |= {f"{name}.{rest}" for rest in _fields(inner, document, depth - 1)}
        if isinstance(variant.get("items"), dict):
            found |= {f"[].{rest}" for rest in _fields(variant["items"], document, depth - 1)}
    return found
