"""Routes for saved questions: a text and its exactness, under a name of the caller's own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Path
from pydantic import TypeAdapter
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

if TYPE_CHECKING:
    from fastapi.routing import APIRoute

    from discreet.server.saved_questions import StoredQuestion

_SAVE: TypeAdapter[Any] = TypeAdapter(requests.SaveRequest)
_QuestionId = Annotated[str, Path(alias="question", description="Id of the saved question.")]


class SavedQuestionResponse(responses.ResponseModel, title="SavedQuestion"):
    """A saved question; one of privacy and sd is null."""

    id: str
    title: str
    text: str
    privacy: dict[str, Any] | None
    sd: float | None
    created: str


class SavedQuestionsResponse(responses.ResponseModel, title="SavedQuestions"):
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
            description="Free: nothing is asked. Only you find it; saved again as it is, it stays one.",
            method="POST", role="analyst", body="SavedQuestionOrder", codes=("refused", *READ_CODES),
            model=SavedQuestionResponse,
        ),
        documented_route(
            f"{DATASET}/saved/{{question}}", delete_question, "Delete a saved question",
            description="No effect on any id that is not one of yours.",
            method="DELETE", role="analyst", codes=READ_CODES, model=SavedQuestionsResponse,
        ),
    ]  # fmt: skip
