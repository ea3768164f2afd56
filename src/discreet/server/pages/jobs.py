"""Pages of jobs: those of the caller, how far each is, its answer, and the form that trains a model."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from discreet import formatting
from discreet.errors import DiscreetError
from discreet.query.results import QueryResult
from discreet.server.api import requests
from discreet.server.api.job_routes import find_job, job_fields, start_job
from discreet.server.errors import NOT_FOUND, ApiException, api_error_from
from discreet.server.jobs import OPEN
from discreet.server.pages.answer import AnswerView, answer_view, csv_file, job_cell, svg_file
from discreet.server.pages.budget import format_full_cost
from discreet.server.pages.forms import (
    MODELS,
    FieldError,
    FieldMessage,
    ModelForm,
    field_message,
    new_key,
    request_key,
)
from discreet.server.pages.history import caller_budget, recall_own_answer, sorted_answers
from discreet.server.pages.page import redirect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.server.jobs import StoredJob
    from discreet.server.pages.page import PageRequest

_BADGES = {
    "waiting": "plain",
    "running": "plain",
    "canceling": "warn",
    "done": "ok",
    "refused": "bad",
    "canceled": "plain",
    "interrupted": "warn",
}
_STATES = {"canceling": "being canceled", "interrupted": "ended early"}  # words where the name is not plain
_MOST_SHOWN = 20_000  # characters of a model that the page shows; the file has all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as the pages show it.

    Attributes
    ----------
    id, href, question : str
        Id of the job, address of its page, and the question or the model that it computes.
    state : str
        State as the API names it, by which the script of the page notices a change.
    badge : tuple of (str, str)
        Kind and text of the badge that shows the state.
    steps : str
        How many steps of its plan were answered, as text.
    done, planned : int
        Steps that were answered, and steps of the plan; 0 before it is made.
    age, note : str
        When it was sent, and what its state means; the error of a job that ended without an answer.
    hint : str
        What to do about the error; empty if there is none.
    is_open : bool
        Whether it has not ended.
    can_be_canceled : bool
        Whether canceling it would have an effect.
    """

    id: str
    href: str
    question: str
    state: str
    badge: tuple[str, str]
    steps: str
    done: int
    planned: int
    age: str
    note: str
    hint: str
    is_open: bool
    can_be_canceled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelView:
    """A trained model as the page of its job shows it; `shortened` if the file holds more than the text.

    An answer to an aggregate, which a program sent as a job, is shown alike: `is_model` is false then.
    """

    is_model: bool
    parameters: str
    python: str
    cost: str
    receipts: tuple[str, ...]
    json: str
    shortened: bool


def job_view(job: StoredJob, base: str, now: float) -> JobView:
    """Return the presentation of a job.

    Parameters
    ----------
    job : StoredJob
        Job as its file has it.
    base : str
        Beginning of the addresses of its data set.
    now : float
        Time in seconds since 1970.

    Privacy
    -------
    Shows the public plan of the question, and how much of it was paid for.
    """
    fields = job_fields(job)
    error = fields["error"] or {}
    hint = error.get("hint", "")  # which the message of a refused expression repeats
    planned = job.planned or 0
    return JobView(
        id=job.id,
        href=f"{base}/jobs/{job.id}",
        question=f"Model: {MODELS[job.kind]}" if job.kind in MODELS else job.question,
        state=job.state,
        badge=(_BADGES[job.state], _STATES.get(job.state, job.state)),
        steps=_steps(job),
        done=min(job.done, planned),
        planned=planned,
        age=_age(job, now),
        note=error.get("message", "").removesuffix(hint).strip() or fields["note"],
        hint=hint,
        is_open=job.state in OPEN,
        can_be_canceled=job.state in ("waiting", "running"),
    )


def _steps(job: StoredJob) -> str:
    """Return how far a job is, in the steps of its public plan."""
    if job.planned is None:
        return "not begun"
    whole = formatting.count_noun(job.planned, "step")
    return whole if job.state == "done" else f"{min(job.done, job.planned):,} of {whole}"


def _age(job: StoredJob, now: float) -> str:
    """Return when a job was sent, and how long it took if it has ended."""
    started = f"sent {_ago(now - job.created)}"
    if job.ended is None:
        return started
    how = "took" if job.state == "done" else "ended after"
    return f"{started}, {how} {formatting.duration(job.ended - job.created)}"


def _ago(seconds: float) -> str:
    return "just now" if seconds < 60 else f"{formatting.duration(seconds)} ago"


# The pages.


async def jobs_page(page_request: PageRequest) -> Response:
    """Return the page with the jobs of the caller."""
    return await page_request.run_in_thread(lambda: _jobs_page(page_request, _fresh_form(page_request)))


async def job_page(page_request: PageRequest) -> Response:
    """Return the page of one job, with its answer if it has one."""
    return await page_request.run_in_thread(lambda: _job_page(page_request))


async def job_file(page_request: PageRequest) -> Response:
    """Return the answer of a job as a file: CSV and SVG of a question, JSON of everything."""
    ending = page_request.http.path_params["ending"]
    write = {"csv": csv_file, "svg": svg_file}.get(ending)

    def work() -> Response:
        job = _find(page_request)
        page_request.target.check_running()
        content = page_request.service.jobs.answer(job.id)
        if content is None:
            raise ApiException(NOT_FOUND)
        if ending == "json":
            headers = {"content-disposition": 'attachment; filename="answer.json"'}
            return Response(content, media_type="application/json", headers=headers)
        answer = json.loads(content)
        if write is None or "cells" not in answer:
            raise ApiException(NOT_FOUND)
        return write(QueryResult.from_wire(answer))

    return await page_request.run_in_thread(work)


async def cancel(page_request: PageRequest) -> Response:
    """Have a job end before its next step; the browser returns to its page."""
    await page_request.form()

    def work() -> str:
        job = _find(page_request)
        page_request.service.jobs.cancel(page_request.target.name, page_request.caller.name, job.id)
        return job.id

    job = await page_request.run_in_thread(work)
    return redirect(f"{page_request.base}/jobs/{job}")


async def train(page_request: PageRequest) -> Response:
    """Start a job that trains a model; a wrong field is shown in the form, and nothing is started."""
    fields = await page_request.form()
    form = ModelForm.from_fields(fields, await page_request.run_in_thread(lambda: _fresh_form(page_request)))
    try:
        request = form.request()
        body = json.dumps(request).encode()

        def check() -> None:
            page_request.target.preview(
                page_request.caller, requests.parse_request(requests.QUERY_REQUEST, body)
            )

        await page_request.run_in_thread(check)
        job = await start_job(
            page_request.http, page_request.target, body, key=request_key(fields.get("key", ""), request)
        )
    except (FieldError, DiscreetError, ApiException) as error:
        problem = error
        return await page_request.run_in_thread(lambda: _refused_form(page_request, form, problem))
    return redirect(f"{page_request.base}/jobs/{job}")


def _refused_form(page_request: PageRequest, form: ModelForm, error: Exception) -> Response:
    """Return the page with the form of a model and what is wrong with it."""
    if isinstance(error, FieldError):
        name = error.field if error.field == "model" else f"model-{error.field}"
        errors = {name: FieldMessage(error.message, error.hint)}
        return _jobs_page(page_request, form, errors=errors, status=422)
    problem = api_error_from(error)
    if problem.code in ("failed", "unauthorized"):
        raise error
    page_request.middleware.metrics.count_refusal(problem.code)
    name, shown = field_message(problem, {"privacy": "model-amount", "parameters": "model-options"})
    if problem.message.startswith("Parameters of"):
        name = "model-options"
    return _jobs_page(page_request, form, errors={name: shown}, status=problem.status)


def _jobs_page(
    page_request: PageRequest,
    form: ModelForm,
    *,
    errors: Mapping[str, FieldMessage] | None = None,
    status: int = 200,
) -> Response:
    """Return the list of jobs above the form of a model with its errors."""
    stored = page_request.service.jobs.jobs_of(page_request.target.name, page_request.caller.name)
    now = page_request.service.access.now()
    schema = page_request.target.dataset.schema
    return page_request.render(
        "jobs.html.j2",
        status=status,
        jobs=[job_view(job, page_request.base, now) for job in stored],
        form=form,
        errors=errors or {},
        models=list(MODELS.items()),
        targets=[column.name for column in schema.columns if column.is_released],
        key=new_key(),
    )


def _job_page(page_request: PageRequest) -> Response:
    """Return the page of a job: the answer is withheld while the data set is stopped."""
    job = _find(page_request)
    is_stopped = page_request.service.access.stop_record(page_request.target.name) is not None
    content = None
    if job.state == "done" and not is_stopped:
        content = page_request.service.jobs.answer(job.id)
    answer = None if content is None else json.loads(content)
    view = job_view(job, page_request.base, page_request.service.access.now())
    return page_request.render(
        "job.html.j2",
        job=view,
        answer=_answer_card(page_request, view, answer) if answer and "cells" in answer else None,
        model=_model_view(page_request, view, answer) if answer and "cells" not in answer else None,
        withheld=job.state == "done" and is_stopped,
        refining=None,
    )


def _answer_card(page_request: PageRequest, view: JobView, answer: Mapping[str, Any]) -> AnswerView:
    """Return the card of a job's answer, with programs that ask the same if its charges are recalled."""
    request, when, sortings = None, "", list[tuple[str, str]]()
    if answer["receipts"]:
        try:
            past = recall_own_answer(page_request, tuple(answer["receipts"]), answer["question"])
        except ApiException:
            pass  # a histogram of the API is in the ledger, but not as a text that could be asked again
        else:
            request, when, sortings = past.request, past.when, sorted_answers(past, page_request.base)
            answer = {**past.answer, "cached": answer["cached"]}
    card = answer_view(
        answer,
        request,
        budget=caller_budget(page_request),
        address=page_request.address,
        dataset=page_request.target.name,
        when=when,
        files=f"{view.href}/answer.{{}}",
    )
    return replace(card, sortings=sortings, python=card.python if request else _python(page_request, view))


def _python(page_request: PageRequest, view: JobView, shown: str = "result") -> str:
    """Return the notebook cell that gets the result of a job and shows a part of it."""
    return job_cell(view.id, page_request.address, page_request.target.name, shown=shown)


def _model_view(page_request: PageRequest, view: JobView, answer: Mapping[str, Any]) -> ModelView:
    """Return the presentation of a model, or of a statistical answer of the API."""
    text = json.dumps(answer.get("fitted", answer), indent=2, ensure_ascii=False)
    is_model = answer["kind"] == "model"
    options = ", ".join(f"{name} = {value}" for name, value in answer.get("parameters", {}).items())
    return ModelView(
        is_model=is_model,
        parameters=(options or "the defaults") if is_model else "",
        python=_python(
            page_request, view, "result.fitted  # what was learned" if is_model else "result.value, result.sd"
        ),
        cost=format_full_cost(answer, caller_budget(page_request)),
        receipts=tuple(answer["receipts"]),
        json=formatting.shorten(text, _MOST_SHOWN) if len(text) > _MOST_SHOWN else text,
        shortened=len(text) > _MOST_SHOWN,
    )


def _find(page_request: PageRequest) -> StoredJob:
    """Return the job in the path if it is one of the caller; any other is not found."""
    return find_job(
        page_request.service.jobs,
        page_request.target,
        page_request.caller.name,
        page_request.http.path_params["job"],
    )


def _fresh_form(page_request: PageRequest) -> ModelForm:
    """Return an empty form, with the declared target and a twentieth of the budget as the price."""
    budget = caller_budget(page_request)
    schema = page_request.target.dataset.schema
    released = [column.name for column in schema.columns if column.is_released]
    target = schema.target if schema.target in released else (released or [""])[-1]
    return ModelForm(
        exact=budget.currency or "rho", amount=f"{(budget.limit or 0.5) / 20:.2g}", target=target
    )
