"""Pages of saved questions: finding, running, renaming and deleting them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.errors import ParameterError
from discreet.server.errors import NOT_FOUND, ApiError, ApiException, api_error_from
from discreet.server.pages.ask import is_free, saved_form, submit
from discreet.server.pages.forms import format_exactness
from discreet.server.pages.page import redirect
from discreet.server.saved_questions import MOST_SAVED, StoredQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from discreet.server.pages.page import PageRequest

_NOTICES = {
    "saved": "The question was saved. Only you see it.",
    "renamed": "The question was renamed.",
    "deleted": "The question was deleted.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedLine:
    """A saved question as an entry of the list: where it is opened, and how exact its answer is."""

    id: str
    href: str
    title: str
    text: str
    exactness: str


async def saved_page(page_request: PageRequest) -> Response:
    """Return the page with the saved questions of the caller, all or those that contain some words."""
    notice = _NOTICES.get(page_request.http.query_params.get("done", ""), "")
    return await page_request.run_in_thread(lambda: _page(page_request, notice=notice))


async def run(page_request: PageRequest) -> Response:
    """Answer a saved question at once if that is free; otherwise show its price, and ask before paying."""
    fields = await page_request.form()

    def work() -> tuple[bool, StoredQuestion]:
        question = _find(page_request)
        return is_free(page_request, saved_form(page_request, question)), question

    free, question = await page_request.run_in_thread(work)
    if not free:
        return redirect(f"{page_request.base}?saved={question.id}")
    form = await page_request.run_in_thread(lambda: saved_form(page_request, question))
    return await submit(page_request, form, fields)


async def change(page_request: PageRequest) -> Response:
    """Rename or delete a saved question."""
    fields = await page_request.form()
    return await page_request.run_in_thread(lambda: _change(page_request, fields))


def _change(page_request: PageRequest, fields: Mapping[str, str]) -> Response:
    """Carry out the action of a form about a saved question; any other one than the caller's is not found."""
    store, question = page_request.service.access.saved, _find(page_request)
    owner = (page_request.caller.name, page_request.target.name)
    match fields.get("action"):
        case "rename":
            try:
                store.rename(*owner, question.id, fields.get("title", "").strip())
            except ParameterError as error:
                return _page(page_request, problem=api_error_from(error))
            done = "renamed"
        case "delete":
            store.delete(*owner, question.id)
            done = "deleted"
        case _:
            return redirect(f"{page_request.base}/saved")
    return redirect(f"{page_request.base}/saved?done={done}")


def _find(page_request: PageRequest) -> StoredQuestion:
    """Return the saved question in the path if it is one of the caller; any other is not found."""
    found = page_request.service.access.saved.find(
        page_request.caller.name, page_request.target.name, page_request.http.path_params["question"]
    )
    if found is None:
        raise ApiException(NOT_FOUND)
    return found


def _page(page_request: PageRequest, *, notice: str = "", problem: ApiError | None = None) -> Response:
    """Return the list of saved questions, with a notice or an error if given."""
    questions = page_request.service.access.saved.list(page_request.caller.name, page_request.target.name)
    words = page_request.http.query_params.get("find", "")[:200].strip()
    return page_request.render(
        "saved.html.j2",
        status=200 if problem is None else problem.status,
        notice=notice,
        problem=problem,
        words=words,
        count=len(questions),
        most=MOST_SAVED,
        questions=_lines(questions, words, page_request.base),
    )


def _lines(questions: Sequence[StoredQuestion], words: str, base: str) -> list[SavedLine]:
    """Return the entries of the questions whose name or text contains all of some words."""
    wanted = words.casefold().split()
    return [
        SavedLine(
            id=question.id,
            href=f"{base}?saved={question.id}",
            title=question.title,
            text=question.text,
            exactness=format_exactness(question.price),
        )
        for question in questions
        if all(word in f"{question.title} {question.text}".casefold() for word in wanted)
    ]
