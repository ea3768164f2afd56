"""Pages of an analyst: asking, refining, and the page of an answer."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.responses import JSONResponse

from discreet import formatting
from discreet.errors import NOTHING_CHARGED, DiscreetError, ParameterError
from discreet.privacy.rounding import four_digits
from discreet.query.intervals import interval_width
from discreet.query.language.query import parse_stored_query
from discreet.query.results import QueryResult
from discreet.server.api import requests
from discreet.server.api.job_routes import start_job
from discreet.server.errors import NOT_FOUND, ApiError, ApiException, api_error_from
from discreet.server.pages.answer import AnswerView, answer_view, csv_file, svg_file
from discreet.server.pages.budget import budget_view, cost_in_currency, price_view
from discreet.server.pages.catalogue import table_notice
from discreet.server.pages.columns import column_views, examples
from discreet.server.pages.forms import (
    NO_MARGIN,
    AskForm,
    FieldError,
    FieldMessage,
    field_message,
    new_key,
    request_key,
)
from discreet.server.pages.history import (
    caller_budget,
    history_lines,
    parse_receipts,
    past_answers,
    recall_own_answer,
    sorted_answers,
)
from discreet.server.pages.page import PageRequest, redirect
from discreet.server.pages.trial import run_trial

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from discreet.server.pages.history import PastAnswer
    from discreet.server.saved_questions import StoredQuestion

_RECENT = 12  # charges that the page lists
LONG_WORK = 2.0
"""Estimated seconds of work from which on the page offers to answer a query as a job."""


_EXACTNESS = {
    "margin": "its margin of error: ± (95 %)",
    "rho": "its price: ρ (Gaussian noise)",
    "mu": "its price: μ (Gaussian noise)",
    "epsilon": "its price: ε (Laplace noise)",
}
_INPUTS = {"text": "sql", "expression": "of", "where": "where", "privacy": "amount", "sd": "amount"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineForm:
    """The form below an answer that asks for a more exact one."""

    key: str
    receipts: str
    question: str
    exact: str
    amount: str
    letter: str


async def ask_page(page_request: PageRequest) -> Response:
    """Return the page with an empty form, or with a saved question and its price."""
    saved = page_request.http.query_params.get("saved")

    def work() -> Response:
        if saved is None:
            return _ask_page(page_request, _fresh_form(page_request))
        question = page_request.service.access.saved.find(
            page_request.caller.name, page_request.target.name, saved
        )
        if question is None:
            raise ApiException(NOT_FOUND)
        form = saved_form(page_request, question)
        return _ask_page(page_request, form, with_price=True, title=question.title)

    return await page_request.run_in_thread(work)


def saved_form(page_request: PageRequest, question: StoredQuestion) -> AskForm:
    """Return the form of a saved question; as text if the schema can no longer read it."""
    fresh = AskForm(source="sql", sql=question.text)
    try:
        query = parse_stored_query(question.text, page_request.target.dataset.schema)
    except DiscreetError:
        return fresh.with_price(question.price)
    return AskForm.from_query(query, AskForm()).with_price(question.price)


def is_free(page_request: PageRequest, form: AskForm) -> bool:
    """Return whether the query of a form would be answered without a charge; False if it is refused."""
    try:
        request = _parse_form(page_request, form)
        preview = page_request.target.preview(page_request.caller, request)
    except (FieldError, DiscreetError, ApiException):
        return False
    return bool(preview["free"] or not preview["cost"])


async def ask(page_request: PageRequest) -> Response:
    """Ask, try or preview the query in the form, by the button that was pressed.

    The browser is redirected to the page of its answer, so that reloading it does not ask again.
    """
    fields = await page_request.form()
    form = AskForm.from_fields(fields, await page_request.run_in_thread(lambda: _fresh_form(page_request)))
    match fields.get("do"):
        case "ask":
            return await submit(page_request, form, fields)
        case "save":
            title = fields.get("title", "").strip()
            return await page_request.run_in_thread(lambda: _save(page_request, form, title))
        case "job":
            return await _start_job(page_request, form, fields)
        case "try":
            return await page_request.middleware.run_long(lambda: _trial_page(page_request, form))
    return await page_request.run_in_thread(lambda: _ask_page(page_request, form, with_price=True))


async def refine(page_request: PageRequest) -> Response:
    """Pay for another draw and merge it with an answer."""
    fields = await page_request.form()
    receipts = parse_receipts(fields.get("receipts", ""))
    price: dict[str, str] = {name: fields[name] for name in ("exact", "amount") if name in fields}

    def work() -> AskForm:
        past = recall_own_answer(page_request, receipts, fields.get("question") or None)
        form = AskForm.from_query(past.asked, _fresh_form(page_request))
        # As query text, which can express more than the fields of the form.
        return AskForm.from_fields({"source": "sql", "sql": str(past.asked), **price}, form)

    return await submit(page_request, await page_request.run_in_thread(work), fields, refines=receipts)


async def submit(
    page_request: PageRequest, form: AskForm, fields: Mapping[str, str], *, refines: Sequence[str] = ()
) -> Response:
    """Ask the query of a form and redirect to its answer, or show the form with the error.

    Parameters
    ----------
    page_request : PageRequest
        Request of the caller who asks.
    form : AskForm
        Form with the query.
    fields : mapping of str to str
        Fields that were sent, of which ``key`` recognizes a form that is sent twice.
    refines : sequence of str
        Receipts of the answer that the new one refines; empty for none.
    """
    try:
        request = form.request(page_request.target.dataset.schema)
        if refines:
            request["refines"] = list(refines)
        key = request_key(fields.get("key", ""), request)
        answer = await page_request.middleware.run_query(
            page_request.target.ask_task(page_request.caller, _parse(request), key=key),
            page_request.target.dataset.work,
            len(str(request)),
        )
    except (FieldError, DiscreetError, ApiException) as error:
        return await page_request.run_in_thread(partial(_error_page, page_request, form, error))
    page_request.middleware.metrics.count_answer(request["kind"], answer["cached"])
    if not answer["cost"]:
        # An answer from public facts alone is in no ledger, so there is no permanent page to redirect to.
        asked: dict[str, Any] = {"kind": "sentence", "text": answer["question"]}
        asked.update((name, request[name]) for name in ("privacy", "sd") if name in request)
        card = partial(_answer_view, page_request, answer, asked)
        return await page_request.run_in_thread(
            lambda: _ask_page(page_request, form, with_price=True, answer=card())
        )
    return redirect(await page_request.run_in_thread(partial(_answer_address, page_request, answer)))


async def _start_job(page_request: PageRequest, form: AskForm, fields: Mapping[str, str]) -> Response:
    """Start the query of a form as a job and redirect to its page, or show the form with the error."""
    try:
        request = form.request(page_request.target.dataset.schema)
        # What can be refused before a row is read is refused here, at the field.
        await page_request.run_in_thread(
            lambda: page_request.target.preview(page_request.caller, _parse_form(page_request, form))
        )
        body, key = json.dumps(request).encode(), request_key(fields.get("key", ""), request)
        job = await start_job(page_request.http, page_request.target, body, key=key)
    except (FieldError, DiscreetError, ApiException) as error:
        return await page_request.run_in_thread(partial(_error_page, page_request, form, error))
    return redirect(f"{page_request.base}/jobs/{job}")


def _save(page_request: PageRequest, form: AskForm, title: str) -> Response:
    """Save the query of a form under a title, or show the form with the error; nothing is asked."""
    try:
        request = form.request(page_request.target.dataset.schema)
        text = str(page_request.target.dataset.parse_query(_parse_form(page_request, form)))
        price = {name: value for name, value in request.items() if name in ("privacy", "sd")}
        try:
            page_request.service.access.saved.save(
                page_request.caller.name, page_request.target.name, title, text, price
            )
        except ParameterError as error:
            problem = api_error_from(error)
            raise FieldError("title", problem.message, problem.hint) from None
    except (FieldError, DiscreetError, ApiException) as error:
        return _error_page(page_request, form, error, title=title)
    return redirect(f"{page_request.base}/saved?done=saved")


def _answer_address(page_request: PageRequest, answer: Mapping[str, Any]) -> str:
    """Return the address of an answer, with the question if its sums were paid for by another one."""
    address = f"{page_request.base}/answers/{','.join(answer['receipts'])}"
    if not answer["cached"]:
        return address
    asked = page_request.target.dataset.ledger.entry(answer["receipts"][0]).asked or {}
    if asked.get("said") == answer["question"]:
        return f"{address}?again"
    return f"{address}?again&{urlencode({'question': answer['question']})}"


async def price(page_request: PageRequest) -> Response:
    """Return cost and reading of the query in a form as JSON, for the script of the page."""
    fields = await page_request.form()
    return JSONResponse(
        await page_request.run_in_thread(
            lambda: _preview(page_request, AskForm.from_fields(fields, _fresh_form(page_request)))
        )
    )


async def answer_file(page_request: PageRequest) -> Response:
    """Return an answer that was paid for as a file: a table as CSV or a chart as SVG."""
    receipts = parse_receipts(page_request.http.path_params["receipts"])
    question = page_request.http.query_params.get("question") or None
    write = {"csv": csv_file, "svg": svg_file}.get(page_request.http.path_params["ending"])
    if write is None:
        raise ApiException(NOT_FOUND)

    def work() -> Response:
        past = recall_own_answer(page_request, receipts, question)
        return write(QueryResult.from_wire(past.answer))

    return await page_request.run_in_thread(work)


async def answer_page(page_request: PageRequest) -> Response:
    """Return the page of an answer that was paid for."""
    receipts = parse_receipts(page_request.http.path_params["receipts"])
    again = "again" in page_request.http.query_params
    question = page_request.http.query_params.get("question") or None

    def work() -> Response:
        past = recall_own_answer(page_request, receipts, question)
        form = AskForm.from_query(past.asked, _fresh_form(page_request))
        card = _answer_view(
            page_request,
            {**past.answer, "cached": again},
            past.request,
            earlier=past.earlier,
            total_cost=past.total_cost,
            when=past.when,
            files=_files_address(page_request, receipts, question),
        )
        card = replace(card, sortings=sorted_answers(past, page_request.base))
        return _ask_page(page_request, form, answer=card, refining=_refine_form(page_request, past))

    return await page_request.run_in_thread(work)


def _files_address(page_request: PageRequest, receipts: Sequence[str], question: str | None) -> str:
    """Return the address of the files of an answer, with ``{}`` for the ending."""
    address = f"{page_request.base}/answers/{','.join(receipts)}/answer.{{}}"
    return f"{address}?{urlencode({'question': question})}" if question else address


# The page.


def _ask_page(
    page_request: PageRequest,
    form: AskForm,
    *,
    errors: Mapping[str, FieldMessage] | None = None,
    status: int = 200,
    with_price: bool = False,
    answer: AnswerView | None = None,
    refining: RefineForm | None = None,
    title: str = "",
) -> Response:
    """Return the page with a form, its errors or, with `with_price`, its cost, and an answer if given.

    `title` is the name under which the query of the form is saved, or would be.
    """
    service = page_request.target
    columns = column_views(service.dataset.schema)
    budget = caller_budget(page_request)
    price = None
    messages = dict(errors or {})
    if with_price and not messages:
        try:
            request = _parse_form(page_request, form)
            preview = service.preview(page_request.caller, request)
            price = price_view(preview, budget, work=_long_work(page_request, request))
        except (FieldError, DiscreetError, ApiException) as error:
            messages, status = _field_messages(page_request, error)
    return page_request.render(
        "ask.html.j2",
        status=status,
        notice=table_notice(service.dataset),
        budget=budget,
        form=form,
        errors=messages,
        price=price,
        answer=answer,
        refining=refining,
        columns=columns,
        examples=examples(columns),
        exactness=list(_EXACTNESS.items()),
        key=new_key(),
        title=title,
        rows_words=_rows_text(page_request),
        recent=history_lines(past_answers(page_request, most=_RECENT), budget, page_request.base),
    )


def _preview(page_request: PageRequest, form: AskForm) -> dict[str, Any]:
    """Return cost and reading of the query in a form, or its errors, as JSON values."""
    try:
        request = _parse_form(page_request, form)
        preview = page_request.target.preview(page_request.caller, request)
    except (FieldError, DiscreetError, ApiException) as error:
        messages, _ = _field_messages(page_request, error)
        return {"errors": {name: dataclasses.asdict(one) for name, one in messages.items()}, "price": None}
    view = price_view(preview, caller_budget(page_request), work=_long_work(page_request, request))
    parts = AskForm.from_query(page_request.target.dataset.parse_query(request), form)
    return {
        "errors": {},
        "price": dataclasses.asdict(view),
        "question": view.question,
        "sql": view.sql,
        "parts": dataclasses.asdict(parts),
    }


def _long_work(page_request: PageRequest, request: Any) -> float:
    """Return the estimated seconds of a query that takes long enough for a job; 0 for any other."""
    dataset = page_request.target.dataset
    seconds = dataset.query_work(dataset.parse_query(request))
    return seconds if seconds >= LONG_WORK else 0.0


def _trial_page(page_request: PageRequest, form: AskForm) -> Response:
    try:
        answer = run_trial(page_request, _parse_form(page_request, form))
    except (FieldError, DiscreetError, ApiException) as error:
        return _error_page(page_request, form, error)
    card = _answer_view(page_request, answer, None, trial=True)
    return _ask_page(page_request, form, with_price=True, answer=card)


def _error_page(page_request: PageRequest, form: AskForm, error: Exception, title: str = "") -> Response:
    if not isinstance(error, FieldError):
        page_request.middleware.metrics.count_refusal(api_error_from(error).code)
    messages, status = _field_messages(page_request, error)
    return _ask_page(page_request, form, errors=messages, status=status, title=title)


def _field_messages(page_request: PageRequest, error: Exception) -> tuple[dict[str, FieldMessage], int]:
    """Return the message of a refusal by its field, or by "form" if it belongs to none, and the status."""
    if isinstance(error, FieldError):
        return {error.field: FieldMessage(error.message, error.hint)}, 422
    problem = api_error_from(error)
    if problem.code in ("failed", "unauthorized"):
        raise error
    if problem.code == "budget-exceeded":
        return {"amount": FieldMessage(problem.message, _budget_hint(problem))}, problem.status
    if problem.code == "refused":
        message = problem.message.removesuffix(problem.hint).strip()
        return {"sql": FieldMessage(message, problem.hint)}, problem.status
    if problem.message.startswith("sd must be of one count or sum"):
        return {"amount": NO_MARGIN}, problem.status
    name, shown = field_message(replace(problem, hint=page_request.hint(problem)), _INPUTS)
    return {"amount" if problem.message.startswith("sd of") else name: shown}, problem.status


def _budget_hint(problem: ApiError) -> str:
    """Return what would fit in the words of the form: a price by its letter, a margin in place of an sd."""
    fits = problem.details["fits"]
    if fits is None:
        return problem.hint
    if "sd" in fits:
        margin = four_digits(fits["sd"] * interval_width("gaussian"), up=True)
        most = f"A margin of error of ±\u00a0{margin:g} or more"
    else:
        (currency,) = fits.keys() - {"kind", "delta"}
        most = f"At most {formatting.currency_symbol(currency)} = {fits[currency]:g}"
    return f"{NOTHING_CHARGED} {most} would fit into what you have left."


# Small parts.


def _parse(request: Mapping[str, Any]) -> Any:
    return requests.parse_request(requests.QUERY_REQUEST, json.dumps(request).encode())


def _parse_form(page_request: PageRequest, form: AskForm) -> Any:
    """Return the request of a form, whose reading is counted as work."""
    dataset = page_request.target.dataset
    request = form.request(dataset.schema)
    page_request.middleware.count_work(page_request.caller, dataset.work.estimate_planning(len(str(request))))
    return _parse(request)


def _fresh_form(page_request: PageRequest) -> AskForm:
    """Return an empty form with a cost of one hundredth of the budget."""
    budget = budget_view(page_request.target.budget(page_request.caller), (False, None))
    return AskForm(exact=budget.currency or "rho", amount=budget.usual)


def _rows_text(page_request: PageRequest) -> str:
    n_rows = page_request.target.dataset.database.n_rows
    if n_rows is None:
        return "The number of rows is not public."
    return f"{formatting.count_noun(n_rows, 'row')}; their number is public."


def _answer_view(
    page_request: PageRequest, answer: Mapping[str, Any], request: Mapping[str, Any] | None, **more: Any
) -> AnswerView:
    return answer_view(
        answer,
        request,
        budget=caller_budget(page_request),
        address=page_request.address,
        dataset=page_request.target.name,
        **more,
    )


def _refine_form(page_request: PageRequest, past: PastAnswer) -> RefineForm | None:
    """Return the form that offers to spend the cost of an answer once more; None for a free answer."""
    kinds = {promise["kind"] for promise in past.answer["cost"]}
    if not past.receipts or not kinds:
        return None
    exact = "epsilon" if kinds == {"pure-dp"} else "rho"
    paid = cost_in_currency(exact, past.answer["cost"]) or float(caller_budget(page_request).usual)
    return RefineForm(
        key=new_key(),
        receipts=",".join(past.receipts),
        question=str(past.asked),
        exact=exact,
        amount=f"{paid:.4g}",
        letter=formatting.currency_symbol(exact),
    )
