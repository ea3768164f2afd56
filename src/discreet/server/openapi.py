"""The OpenAPI document: what can be asked, written down once, for programs and for the page at ``/docs``."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from discreet.privacy.receipt import product_version
from discreet.server import wire
from discreet.server.problems import STATUS

_REF = "#/components/schemas/{model}"
_JSON = "application/json"

# What the parts of an answer are; objects are open, since a later version may say more.
_NUMBER: dict[str, Any] = {"type": ["number", "null"]}
_TEXT: dict[str, Any] = {"type": "string"}
_TEXTS: dict[str, Any] = {"type": "array", "items": _TEXT}
_ANY: dict[str, Any] = {}
_FLAG: dict[str, Any] = {"type": "boolean"}
_OBJECT: dict[str, Any] = {"type": "object"}
_PROMISES: dict[str, Any] = {"type": "array", "items": {"$ref": _REF.format(model="Promise")}}
_AMOUNTS: dict[str, Any] = {"type": ["object", "null"], "additionalProperties": {"type": "number"}}
_OBJECTS: dict[str, Any] = {"type": "array", "items": _OBJECT}
_WHOLE: dict[str, Any] = {"type": "integer"}
_WHOLE_OR_NULL: dict[str, Any] = {"type": ["integer", "null"]}
_TEXT_OR_NULL: dict[str, Any] = {"type": ["string", "null"]}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": _REF.format(model=name)}


def _object(words: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": words,
        "properties": properties,
        "required": list(properties),
    }


_PRICED: dict[str, Any] = {"cost": _PROMISES, "cost_words": _TEXT, "remaining": _ref("Remaining")}
_PAID: dict[str, Any] = {**_PRICED, "cached": _FLAG, "receipts": _TEXTS}
_NOISY: dict[str, Any] = {
    "law": {"enum": ["gaussian", "laplace"]},
    "parts": {"type": "array", "items": _TEXTS},
    **_PAID,
}
_SCHEMAS: dict[str, Any] = {
    "Error": _object(
        "What is told instead of an answer.",
        error=_object(
            "The same shape for everything that is refused or fails.",
            code={"type": "string", "enum": sorted(STATUS)},
            message=_TEXT,
            hint=_TEXT,
            details=_OBJECT,
            request_id=_TEXT,
        ),
    ),
    "Promise": {
        "type": "object",
        "description": "What is promised to every person in the table, and charged.",
        "properties": {"kind": _TEXT, "unit": _TEXT, "neighbors": _TEXT},
        "required": ["kind", "unit", "neighbors"],
    },
    "Remaining": _object(
        "What is left, by currency, and how many more questions like this one that pays for.",
        own=_AMOUNTS,
        total=_AMOUNTS,
        more=_WHOLE_OR_NULL,
    ),
    "Cell": _object(
        "One number, with the interval that holds the exact one 95 times in 100; null over too few rows.",
        key=_TEXTS,
        value=_NUMBER,
        sd=_NUMBER,
        lower=_NUMBER,
        upper=_NUMBER,
    ),
    "Answer": _object(
        "The answer to a count, sum, mean, histogram or sentence.",
        kind={"const": "answer"},
        question=_TEXT,
        measure=_TEXT_OR_NULL,
        by=_TEXTS,
        cells={"type": "array", "items": _ref("Cell")},
        value=_NUMBER,
        sd=_NUMBER,
        interval=_object("At level 0.95.", level={"type": "number"}, lower=_NUMBER, upper=_NUMBER),
        unreadable_below=_WHOLE_OR_NULL,
        **_NOISY,
    ),
    "StatisticalAnswer": _object(
        "The answer to a statistical question, as Answer.to_dict() of the library writes it.",
        kind={"const": "answer"},
        question=_OBJECT,
        answer=_OBJECT,
        **_NOISY,
    ),
    "Model": _object(
        "A model that was trained on paid answers.",
        kind={"const": "model"},
        learner=_TEXT,
        parameters=_OBJECT,
        fitted=_OBJECT,
        **_PAID,
    ),
    "Price": _object(
        "What something would cost, and how noisy it would be. It is free if you have paid for the same "
        "already (of a model that is not told), or if it follows from what is public.",
        kind={"const": "price"},
        question=_ANY,
        sql=_TEXT_OR_NULL,
        measure=_TEXT_OR_NULL,
        sd=_ANY,
        margin=_NUMBER,
        **_PRICED,
        more=_WHOLE_OR_NULL,
        free=_FLAG,
    ),
    "About": _object(
        "What is public about the table.",
        dataset=_TEXT,
        schema=_OBJECT,
        n_rows=_WHOLE_OR_NULL,
        neighbors=_TEXT,
        unit=_TEXT,
        digest=_TEXT,
        collusion=_TEXT,
    ),
    "Account": _object("One budget.", limit=_ANY, spent=_AMOUNTS, left=_AMOUNTS),
    "Budget": _object("Budgets.", own=_ref("Account"), total=_ref("Account"), collusion=_TEXT),
    "History": _object(
        "What was paid for, oldest first; more if there are others after these: go on after the last row.",
        kind={"const": "history"},
        entries=_OBJECTS,
        more=_FLAG,
    ),
    "Dummy": _object(
        "Made-up rows by column; the column _dummy marks them.",
        kind={"const": "dummy"},
        n=_WHOLE,
        seed=_WHOLE,
        rows=_OBJECT,
    ),
    "Status": _object("How it stands.", status=_TEXT),
    "Stopped": _object("The stop switch; null while the service answers.", stopped=_ANY),
    "Tokens": _object("All tokens, without the tokens.", tokens=_OBJECTS),
    "Ordered": _object("What became of an order; a token is shown once.", name=_TEXT),
    "Overview": _object(
        "The service, as a curator sees it.", dataset=_TEXT, stopped=_ANY, total=_ref("Account")
    ),
    "Spending": _object("What was spent over time.", steps=_OBJECTS),
    "Refusals": _object("What was refused last.", refusals=_OBJECTS),
    "Check": _object("That ledger and trail are intact.", intact=_FLAG, rows=_WHOLE, head=_TEXT),
    "Attack": {"type": "object", "description": "What could be rebuilt from all answers so far."},
}


def _whole(name: str, words: str, least: int, most: int, default: int | None = None) -> dict[str, Any]:
    bounds: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most}
    if default is not None:
        bounds["default"] = default
    return {"name": name, "in": "query", "description": words, "schema": bounds}


_FORMAT: dict[str, Any] = {
    "name": "format",
    "in": "query",
    "description": "json, or csv to save.",
    "schema": {"enum": ["json", "csv"], "default": "json"},
}
_KEY: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Of your choice; sent again with the same key, a request is never charged twice. Not used "
    "for models: training one again is free as long as the rows are the same.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,128}$"},
}
_HISTORY = (
    _whole("after", "Only charges after this row of the ledger.", 0, 2**62, 0),
    _whole("last", "At most so many, the newest.", 1, 10_000, 1000),
    _whole("first", "Instead of last: at most so many, the oldest.", 1, 10_000),
    _FORMAT,
    {
        "name": "analyst",
        "in": "query",
        "description": "For curators: whose. Everybody's if left out.",
        "schema": _TEXT,
    },
)
_DUMMY = (
    _whole("n", "How many rows.", 1, 10_000, 100),
    _whole("seed", "The same seed makes the same rows.", 0, 2**63 - 1, 0),
    _FORMAT,
)
_ANSWERS = [_ref("Answer"), _ref("StatisticalAnswer"), _ref("Model")]
_ASKING = (
    "budget-exceeded",
    "key-reused",
    "refused",
    "stopped",
    "busy",
    "engine-failed",
    "ledger-unavailable",
)
_LOOKING = ("busy", "ledger-unavailable")

# path, method, who may, summary, description, body, answer, parameters, further codes
_PATHS: tuple[tuple[str, str, str, str, str, str | None, Any, tuple[Any, ...], tuple[str, ...]], ...] = (
    (
        "/v1/query", "post", "analyst", "Ask",
        "Charged before it is answered. The same question about the same rows is free, and gets the same "
        "answer.",
        "Question", {"oneOf": _ANSWERS}, (_KEY,), _ASKING,
    ),
    (
        "/v1/preview", "post", "analyst", "What a question would cost",
        "Free: nothing is charged, no row is looked at.",
        "Question", _ref("Price"), (), ("refused", *_LOOKING),
    ),
    (
        "/v1/schema", "get", "analyst", "What is public about the table", "", None, _ref("About"), (), (),
    ),
    (
        "/v1/budget", "get", "analyst", "What is left", "Yours, and that of everybody together.",
        None, _ref("Budget"), (), _LOOKING,
    ),
    (
        "/v1/history", "get", "analyst", "What you paid for, with the answers",
        "Answers of more than 4096 numbers are left out: asking again is free.",
        None, _ref("History"), _HISTORY, _LOOKING,
    ),
    (
        "/v1/dummy", "get", "analyst", "Made-up rows",
        "Drawn from the schema alone, to try programs on. Free.",
        None, _ref("Dummy"), _DUMMY, (),
    ),
    ("/v1/curator/overview", "get", "curator", "How it stands", "", None, _ref("Overview"), (), _LOOKING),
    ("/v1/curator/spending", "get", "curator", "Spent over time", "", None, _ref("Spending"), (), _LOOKING),
    ("/v1/curator/refusals", "get", "curator", "Last refusals", "", None, _ref("Refusals"), (), ()),
    ("/v1/curator/check", "get", "curator", "Verify ledger and trail", "", None, _ref("Check"), (), _LOOKING),
    (
        "/v1/curator/attack", "get", "curator", "What could be rebuilt from all answers so far",
        "Compares with rows: for the curator's eyes.", None, _ref("Attack"), (), _LOOKING,
    ),
    ("/v1/curator/tokens", "get", "curator", "All tokens", "", None, _ref("Tokens"), (), ()),
    (
        "/v1/curator/tokens", "post", "curator", "Create, rotate or revoke a token", "",
        "TokenOrder", _ref("Ordered"), (), _LOOKING,
    ),
    ("/v1/curator/stop", "get", "curator", "Whether it is stopped", "", None, _ref("Stopped"), (), ()),
    (
        "/v1/curator/stop", "post", "curator", "Stop, or answer again", "Lasts, also over a restart.",
        "StopOrder", _ref("Stopped"), (), _LOOKING,
    ),
    ("/metrics", "get", "curator", "Counts for Prometheus", "", None, None, (), ()),
    ("/health", "get", "", "Whether the process lives", "", None, _ref("Status"), (), ()),
    (
        "/ready", "get", "", "Whether ledger and engine answer", "", None, _ref("Status"), (),
        ("ledger-unavailable",),
    ),
)  # fmt: skip


def openapi(dataset: str) -> dict[str, Any]:
    """Return the OpenAPI document of a service."""
    schemas = dict(_SCHEMAS)
    for name, adapter in (
        ("Question", wire.QUESTION),
        ("TokenOrder", TypeAdapter(wire.TokenOrder)),
        ("StopOrder", TypeAdapter(wire.StopOrder)),
    ):
        made = adapter.json_schema(ref_template=_REF)
        schemas |= made.pop("$defs", {})
        schemas[name] = made
    paths: dict[str, Any] = {}
    for path, method, scope, summary, description, body, answer, parameters, codes in _PATHS:
        told = [*codes, "failed"]
        if scope:
            told += ["malformed", "unauthorized", "forbidden", "invalid", "rate-limited"]
        operation: dict[str, Any] = {
            "summary": summary,
            "description": description,
            "operationId": f"{method}-{path.strip('/').replace('/', '-')}",
            "tags": [{"": "operations", "analyst": "analysts", "curator": "curators"}[scope]],
            "parameters": list(parameters),
            "security": [{"token": []}] if scope else [],
        }
        if body is not None:
            operation["requestBody"] = {"required": True, "content": {_JSON: {"schema": _ref(body)}}}
            told += ["too-large", "unsupported-media"]
        operation["responses"] = {"200": _success(answer, parameters), **_failures(told)}
        paths.setdefault(path, {})[method] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": f"discreet: {dataset}",
            "version": product_version(),
            "description": "Questions to a private table, each paid from a budget.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _success(answer: Any, parameters: tuple[Any, ...]) -> dict[str, Any]:
    if answer is None:
        content = {"text/plain": {"schema": _TEXT}}
    else:
        content = {_JSON: {"schema": answer}}
        if _FORMAT in parameters:
            content["text/csv"] = {"schema": _TEXT}
    return {"description": "The answer.", "content": content}


def _failures(codes: list[str]) -> dict[str, Any]:
    by_status: dict[str, list[str]] = {}
    for code in codes:
        by_status.setdefault(str(STATUS[code]), []).append(code)
    return {
        status: {"description": " or ".join(sorted(found)), "content": {_JSON: {"schema": _ref("Error")}}}
        for status, found in sorted(by_status.items())
    }
