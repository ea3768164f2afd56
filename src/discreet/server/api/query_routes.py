"""Routes that answer a query, an aggregate or a model, say what one would cost, or keep a question."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Header, Path
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
    dump_answer,
    json_response,
    middleware_of,
    read_json,
)
from discreet.server.errors import TOOK_TOO_LONG, InvalidRequest
from discreet.server.job_runner import WrittenAnswer
from discreet.server.work import Planning

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

    from discreet.batching import QueryTask
    from discreet.server.callers import Caller
    from discreet.server.dataset_service import DatasetService
    from discreet.server.middleware import ServiceMiddleware
    from discreet.server.query_service import Watch
    from discreet.server.saved_questions import StoredQuestion

_SAVE: TypeAdapter[Any] = TypeAdapter(requests.SaveRequest)
_QuestionId = Annotated[str, Path(alias="question", description="Id of the saved question.")]
_KEY: TypeAdapter[str] = TypeAdapter(requests.IdempotencyKey)
IdempotencyKeyHeader = Annotated[
    str | SkipJsonSchema[None],
    Header(
        alias="Idempotency-Key",
        description="A key of your choice: a request that is sent again with the same key is never charged "
        "twice. Not used for models: training one again is free as long as the rows are the same.",
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


async def query(request: Request, target: AnalystDataset, key: IdempotencyKeyHeader = None) -> Response:
    """Answer a query, an aggregate or a model."""
    middleware, caller = middleware_of(request), request.state.caller
    body = await read_json(request)

    def task() -> QueryTask[WrittenAnswer | requests.TrainRequest]:
        query = requests.parse_request(requests.QUERY_REQUEST, body)
        checked = None if key is None else check_key(key)
        if isinstance(query, requests.TrainRequest):
            return query
        return (yield from _written(target, caller, query, checked, None))

    result = await middleware.run_query(task(), target.dataset.work, len(body))
    if isinstance(result, requests.TrainRequest):
        result = await answer_request(middleware, target, caller, result, len(body))
    middleware.metrics.count_answer(result.kind, result.cached)
    return json_response(result.content)


async def answer_request(
    middleware: ServiceMiddleware,
    target: DatasetService,
    caller: Caller,
    query: Any,
    characters: int,
    *,
    key: str | None = None,
    watch: Watch | None = None,
    deadline: bool = True,
) -> WrittenAnswer:
    """Answer a request that was parsed, on the threads for its kind.

    Parameters
    ----------
    middleware : ServiceMiddleware
        Owner of the threads.
    target, caller, query, key, watch
        Data set that is asked, and what its :meth:`~discreet.server.query_service.QueryService.ask` takes.
    characters : int
        Length of the request, from which its work is estimated.
    deadline : bool
        Whether the caller waits, for so many seconds as a request may take.
    """
    if isinstance(query, requests.TrainRequest):
        # Runs many queries one after the other, which would hold up a worker.
        return await middleware.run_model(
            lambda run: _write(query.kind, target.ask(caller, query, watch=watch, run=run)), deadline=deadline
        )
    task = _written(target, caller, query, key, watch)
    return await middleware.run_query(task, target.dataset.work, characters, deadline=deadline)


def _written(
    target: DatasetService, caller: Caller, query: Any, key: str | None, watch: Watch | None
) -> QueryTask[WrittenAnswer]:
    """Return the task that answers a request and writes the answer as JSON."""
    answer = yield from target.ask_task(caller, query, key=key, watch=watch)
    return _write(query.kind, answer)


def _write(kind: str, answer: dict[str, Any]) -> WrittenAnswer:
    return WrittenAnswer(dump_answer(answer), kind, answer["cached"])


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
        return json_response(await middleware.run_query(heavy_task(), model, len(body), late=TOOK_TOO_LONG))
    middleware.count_work(caller, model.estimate_planning(len(body)))
    return json_response(await middleware.run_in_thread(work))


def check_key(text: str) -> str:
    """Return an idempotency key, or refuse it."""
    try:
        return _KEY.validate_python(text)
    except ValueError:
        raise InvalidRequest((("Idempotency-Key", "it must be 1 to 128 visible ASCII characters"),)) from None


def query_routes() -> list[APIRoute]:
    """Return the routes of this module, in the order of the document."""
    return [
        documented_route(
            f"{DATASET}/query", query, "Ask a question",
            description="It is charged before it is answered. The same question about the same rows is free, "
            "and gets the same answer.",
            method="POST", role="analyst", body="QueryRequest", codes=_QUERY_CODES,
            model=responses.QueryResponse | responses.AggregateResponse | responses.ModelResponse,
        ),
        documented_route(
            f"{DATASET}/preview", preview, "What a question would cost",
            description="Free: nothing is charged, and no row is read.",
            method="POST", role="analyst", body="QueryRequest",
            codes=("refused", "work-limited", *READ_CODES),
            model=responses.PreviewResponse,
        ),
    ]  # fmt: skip


class SavedQuestionResponse(responses.ResponseModel):
    """A saved question; one of privacy and sd is null."""

    id: str
    title: str
    text: str
    privacy: dict[str, Any] | None
    sd: float | None
    created: str


class SavedQuestionsResponse(responses.ResponseModel):
    """The caller's saved questions, by title."""

    questions: list[SavedQuestionResponse]


async def saved_questions(request: Request, target: AnalystDataset) -> Response:
    """Return the caller's saved questions."""
    middleware, caller = middleware_of(request), request.state.caller
    store = middleware.service.access.saved
    return json_response(await middleware.run_in_thread(lambda: _list(store.list(caller.name, target.name))))


async def save_question(request: Request, target: AnalystDataset) -> Response:
    """Save a question."""
    middleware, caller, body = middleware_of(request), request.state.caller, await read_json(request)
    store = middleware.service.access.saved
    middleware.count_work(caller, target.dataset.work.estimate_planning(len(body)))

    def work() -> bytes:
        order = requests.parse_request(_SAVE, body)
        query = {"kind": "sentence", **order.model_dump(exclude={"title"}, exclude_none=True)}
        # A text that cannot be read is refused now, not when it is run.
        text = str(target.dataset.parse_query(requests.TextQueryRequest(**query)))
        price = {name: value for name, value in query.items() if name in ("privacy", "sd")}
        saved = store.save(caller.name, target.name, order.title, text, price)
        found = store.find(caller.name, target.name, saved)
        assert found is not None
        return dump(_fields(found))

    return json_response(await middleware.run_in_thread(work))


async def delete_question(request: Request, target: AnalystDataset, name: _QuestionId) -> Response:
    """Delete a saved question, and return those that are left."""
    middleware, caller = middleware_of(request), request.state.caller
    store = middleware.service.access.saved

    def work() -> bytes:
        store.delete(caller.name, target.name, name)
        return _list(store.list(caller.name, target.name))

    return json_response(await middleware.run_in_thread(work))


def _list(questions: list[StoredQuestion]) -> bytes:
    return dump({"questions": [_fields(question) for question in questions]})


def _fields(question: StoredQuestion) -> dict[str, Any]:
    """Return a saved question as the response describes it."""
    return {
        "id": question.id,
        "title": question.title,
        "text": question.text,
        "privacy": question.price.get("privacy"),
        "sd": question.price.get("sd"),
        "created": datetime.fromtimestamp(int(question.created), UTC).isoformat(),
    }


def saved_routes() -> list[APIRoute]:
    """Return the routes of this module, in the order of the document."""
    return [
        documented_route(
            f"{DATASET}/saved", saved_questions, "Your saved questions",
            role="analyst", codes=READ_CODES, model=SavedQuestionsResponse,
        ),
        documented_route(
            f"{DATASET}/saved", save_question, "Save a question",
            description="Free: nothing is asked. Only you can see it; saved again unchanged, it stays one.",
            method="POST", role="analyst", body="SaveRequest",
            codes=("refused", "work-limited", *READ_CODES),
            model=SavedQuestionResponse,
        ),
        documented_route(
            f"{DATASET}/saved/{{question}}", delete_question, "Delete a saved question",
            description="An id that is not one of yours changes nothing.",
            method="DELETE", role="analyst", codes=READ_CODES, model=SavedQuestionsResponse,
        ),
    ]  # fmt: skip
