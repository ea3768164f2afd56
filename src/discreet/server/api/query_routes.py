"""Routes that answer a query, an aggregate or a model, or say what one would cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fastapi import Header
from pydantic import TypeAdapter
from pydantic.json_schema import SkipJsonSchema
from starlette.requests import Request  # noqa: TC002 - FastAPI reads annotations
from starlette.responses import Response  # noqa: TC002 - FastAPI reads annotations

from discreet.server.api import requests, responses
from discreet.server.api.route import (
    DATASET,
    READ_CODES,
    AnalystDataset,
    documented_route,
    dump,
    json_response,
    middleware_of,
    read_json,
)
from discreet.server.errors import InvalidRequest
from discreet.server.work import Planning

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

    from discreet.batching import QueryTask

_KEY: TypeAdapter[str] = TypeAdapter(requests.IdempotencyKey)
_Key = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="Idempotency-Key",
        description="Of your choice; sent again with the same key, a request is never charged twice. Not "
        "used for models: training one again is free as long as the rows are the same.",
        json_schema_extra={"pattern": "^[!-~]{1,128}$"},
    ),
]
_QUERY_CODES = (
    "budget-exceeded",
    "key-reused",
    "refused",
    "stopped",
    "busy",
    "work-limited",
    "engine-failed",
    "ledger-unavailable",
)


async def query(request: Request, target: AnalystDataset, key: _Key = None) -> Response:
    """Answer a query, an aggregate or a model."""
    middleware, caller = middleware_of(request), request.state.caller
    body = await read_json(request)

    def task() -> QueryTask[_WrittenAnswer | requests.TrainRequest]:
        query = requests.parse_request(requests.QUERY_REQUEST, body)
        checked = None if key is None else _check_key(key)
        if isinstance(query, requests.TrainRequest):
            return query
        answer = yield from target.ask_task(caller, query, key=checked)
        return _WrittenAnswer.from_response(query.kind, answer)

    result = await middleware.run_query(task(), target.dataset.work, len(body))
    if isinstance(result, requests.TrainRequest):
        # Runs many queries one after the other, which would hold up a worker.
        model = result
        result = await middleware.run_long(
            lambda: _WrittenAnswer.from_response(model.kind, target.ask(caller, model))
        )
    middleware.metrics.count_answer(result.kind, result.cached)
    return json_response(result.content)


async def preview(request: Request, target: AnalystDataset) -> Response:
    """Return what a query would cost."""
    caller, body = request.state.caller, await read_json(request)

    def work() -> bytes:
        query = requests.parse_request(requests.QUERY_REQUEST, body)
        return dump(target.preview(caller, query))

    def heavy_task() -> QueryTask[bytes]:
        query = requests.parse_request(requests.QUERY_REQUEST, body)
        yield from target.planning_task(query)
        content: bytes = yield Planning(lambda _: [work()], None)
        return content

    middleware, model = middleware_of(request), target.dataset.work
    if model.estimate_reading(len(body)) > model.light:
        return json_response(await middleware.run_query(heavy_task(), model, len(body)))
    return json_response(await middleware.run_in_thread(work))


class _WrittenAnswer(NamedTuple):
    """An answer as JSON, with what the metrics count of it."""

    content: bytes
    kind: str
    cached: bool

    @classmethod
    def from_response(cls, kind: str, response: dict[str, Any]) -> _WrittenAnswer:
        return cls(dump(response), kind, response["cached"])


def _check_key(text: str) -> str:
    try:
        return _KEY.validate_python(text)
    except ValueError:
        raise InvalidRequest((("Idempotency-Key", "it must be 1 to 128 visible ASCII characters"),)) from None


def query_routes() -> list[APIRoute]:
    """Return the routes of this module, in the order of the document."""
    return [
        documented_route(
            f"{DATASET}/query", query, "Ask",
            description="Charged before it is answered. The same question about the same rows is free, "
            "and gets the same answer.",
            method="POST", role="analyst", body="Question", codes=_QUERY_CODES,
            model=responses.QueryResponse | responses.AggregateResponse | responses.ModelResponse,
        ),
        documented_route(
            f"{DATASET}/preview", preview, "What a question would cost",
            description="Free: nothing is charged, no row is looked at.",
            method="POST", role="analyst", body="Question",
            codes=("refused", "work-limited", *READ_CODES),
            model=responses.PreviewResponse,
        ),
    ]  # fmt: skip
