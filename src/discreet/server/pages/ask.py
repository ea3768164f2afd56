"""The analyst's desk: asking, trying, refining, and the page of an answer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from starlette.responses import JSONResponse

from discreet import formatting
from discreet.errors import DiscreetError
from discreet.formatting import CURRENCY_SYMBOLS, currency_symbol, format_amount
from discreet.noise import Stream
from discreet.query import Database
from discreet.query.language.lexer import write_name
from discreet.query.language.nodes import write_level
from discreet.query.text_query import run_query
from discreet.server.api import requests
from discreet.server.api.responses import query_response
from discreet.server.errors import ApiError, ApiException, api_error_from
from discreet.server.pages.answer import AnswerView, answer_view
from discreet.server.pages.budget import budget_view, most_left, price_in, price_view
from discreet.server.pages.forms import AskForm, FieldError
from discreet.server.pages.history import budget_of, history_lines, own_answer, parse_receipts, past_answers
from discreet.server.pages.page import PageRequest, redirect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from discreet._types import AnyArray
    from discreet.schema import Column, Schema
    from discreet.server.pages.history import PastAnswer
    from discreet.server.service import Service

_TYPES = {"number": "number", "integer": "whole number", "category": "list", "date": "date"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaColumnView:
    """One column that can be asked about.

    Attributes
    ----------
    name : str
        As declared.
    written : str
        As a question writes it.
    type, range, description : str
        For people.
    levels : tuple of str
        Values of a list, as a question writes them.
    is_number : bool
        Whether it can be summed, and needs cells to be grouped by.
    """

    name: str
    written: str
    type: str
    range: str
    description: str
    levels: tuple[str, ...]
    is_number: bool


def column_views(schema: Schema) -> list[SchemaColumnView]:
    """Return the columns that can be asked about, in the order of the schema."""
    return [_view(column) for column in schema.columns if column.leaves]


def examples(columns: list[SchemaColumnView]) -> dict[str, str]:
    """Return what empty fields suggest, in names of this table."""
    numbers = [column.written for column in columns if column.is_number]
    lists = [column for column in columns if column.levels]
    number = numbers[0] if numbers else "1"
    where = f"{lists[0].written} = {lists[0].levels[0]}" if lists else f"{number} > 0"
    sql = f"SELECT COUNT(*) FROM t WHERE {where}"  # noqa: S608 - a text to show, run by nobody
    return {"of": number, "where": where, "sql": sql}


def _view(column: Column) -> SchemaColumnView:
    return SchemaColumnView(
        name=column.name,
        written=write_name(column.name),
        type=_TYPES.get(str(column.type), str(column.type)),
        range=_range(column),
        description=column.description or "",
        levels=tuple(write_level(level) for level in column.levels if level is not None)
        if column.is_category
        else (),
        is_number=column.is_number,
    )


def _range(column: Column) -> str:
    """Say what cells may hold."""
    gaps = "" if column.required else "; may be missing"
    if column.is_category:
        declared = len(column.values or ())
        levels = sum(level is not None for level in column.levels)
        other = ", or other" if levels > declared else ""
        return f"one of {formatting.count_noun(declared, 'value')}{other}{gaps}"
    unit = f" {formatting.printable(column.measure)}" if column.measure else ""
    if column.type == "date":
        unit += "; averages count days since the first"
    return f"{_end(column.lower)} to {_end(column.upper)}{unit}{gaps}"


def _end(value: object) -> str:
    return formatting.number(value) if isinstance(value, int | float) else str(value)


_MOST_ROWS = 10_000
_SEED = 1  # of rows that are public anyway: /v1/dummy?seed=1 begins with them
_NOTHING_SPENT = {"own": None, "total": None, "more": None}


def run_trial(service: Service, request: Any) -> dict[str, Any]:
    """Answer a request from made-up rows, with the noise that it would get.

    Parameters
    ----------
    service : Service
        Whose schema the rows are made up from.
    request : requests.Question
        What would be asked.

    Privacy
    -------
    The rows are drawn from the schema, so nothing is learned and nothing is charged.
    """
    schema = service.dataset.schema
    privacy = requests.promise_from_request(request.privacy, unit=schema.unit, neighbors=schema.neighbors)
    asked = service.dataset.parse_query(request)
    # Made for each trial anew: one that stays would keep the answers of all of them.
    with Database(_rows(service), schema=schema) as rows:
        reply = run_query(rows, asked, privacy=privacy, sd=request.requested_sd())
    return query_response(reply, _NOTHING_SPENT)


@lru_cache(maxsize=1)
def _rows(service: Service) -> dict[str, AnyArray]:
    n = min(service.dataset.database.n_rows or 1000, _MOST_ROWS)
    rows = service.dataset.dummy(n, _SEED)
    made = {
        column.name: np.asarray(rows[column.name], dtype=object) for column in service.dataset.schema.released
    }
    if service.dataset.schema.id_column is not None:
        made[service.dataset.schema.id_column] = np.arange(n)  # every made-up row is of someone else
    return made


_RECENT = 12  # charges that are shown
_KEY = re.compile(r"[0-9a-f]{32}")
_EXACTNESS = {
    "margin": "how far off it may be: ± (95 %)",
    "rho": "its price: ρ (Gaussian noise)",
    "mu": "its price: μ (Gaussian noise)",
    "epsilon": "its price: ε (Laplace noise)",
}


@dataclass(frozen=True, slots=True)
class FieldMessage:
    """What is wrong with a field."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefineForm:
    """The form below an answer that makes it more exact."""

    key: str
    receipts: str
    exact: str
    amount: str
    letter: str


async def ask_page(page_request: PageRequest) -> Response:
    """Show the form of a question."""
    return await page_request.run_in_thread(lambda: _ask_page(page_request, _fresh_form(page_request)))


async def ask(page_request: PageRequest) -> Response:
    """Ask, try or price what stands in the form.

    An answer is a page of its own, to which the browser is sent: loading that again asks nothing.
    """
    fields = await page_request.form()
    form = AskForm.from_fields(fields, await page_request.run_in_thread(lambda: _fresh_form(page_request)))
    match fields.get("do"):
        case "ask":
            return await _submit(page_request, form, fields)
        case "try":
            return await page_request.middleware.run_long(lambda: _trial_page(page_request, form))
    return await page_request.run_in_thread(lambda: _ask_page(page_request, form, look=True))


async def refine(page_request: PageRequest) -> Response:
    """Pay for another draw, and merge it with an answer."""
    fields = await page_request.form()
    receipts = parse_receipts(fields.get("receipts", ""))
    price: dict[str, str] = {name: fields[name] for name in ("exact", "amount") if name in fields}

    def work() -> AskForm:
        past = own_answer(page_request, receipts)
        form = AskForm.from_query(past.asked, _fresh_form(page_request))
        # As a sentence, which can say all that its parts can and more.
        return AskForm.from_fields({"source": "sql", "sql": str(past.asked), **price}, form)

    return await _submit(page_request, await page_request.run_in_thread(work), fields, refines=receipts)


async def _submit(
    page_request: PageRequest, form: AskForm, fields: Mapping[str, str], *, refines: Sequence[str] = ()
) -> Response:
    try:
        request = form.request(page_request.service.dataset.schema)
        if refines:
            request["refines"] = list(refines)
        key = _request_key(fields.get("key", ""), request)
        told = await page_request.middleware.run_query(
            page_request.service.ask_task(page_request.caller, _parse(request), key=key)
        )
    except (FieldError, DiscreetError, ApiException) as error:
        return await page_request.run_in_thread(partial(_error_page, page_request, form, error))
    page_request.middleware.metrics.count_answer(request["kind"], told["cached"])
    if not told["cost"]:
        # What follows from what is public is in no ledger, and needs no page that stays.
        return await page_request.run_in_thread(
            lambda: _ask_page(page_request, form, look=True, answer=_answer_view(page_request, told, None))
        )
    return redirect(f"/answers/{','.join(told['receipts'])}{'?again' if told['cached'] else ''}")


async def price(page_request: PageRequest) -> Response:
    """Tell the page's script what a question would cost, and how it was read."""
    fields = await page_request.form()
    return JSONResponse(
        await page_request.run_in_thread(
            lambda: _preview(page_request, AskForm.from_fields(fields, _fresh_form(page_request)))
        )
    )


async def answer_page(page_request: PageRequest) -> Response:
    """Show an answer that was paid for."""
    receipts = parse_receipts(page_request.http.path_params["receipts"])
    again = "again" in page_request.http.query_params

    def work() -> Response:
        past = own_answer(page_request, receipts)
        form = AskForm.from_query(past.asked, _fresh_form(page_request))
        answer = {**past.answer, "cached": again}
        card = _answer_view(
            page_request, answer, past.request, earlier=past.earlier, in_all=past.in_all, when=past.when
        )
        return _ask_page(page_request, form, answer=card, refining=_refine_form(page_request, past))

    return await page_request.run_in_thread(work)


# The page.


def _ask_page(
    page_request: PageRequest,
    form: AskForm,
    *,
    errors: Mapping[str, FieldMessage] | None = None,
    status: int = 200,
    look: bool = False,
    answer: AnswerView | None = None,
    refining: RefineForm | None = None,
) -> Response:
    """Render the page; ``look`` has the price of what stands in the form told."""
    service = page_request.service
    columns = column_views(service.dataset.schema)
    budget = budget_of(page_request)
    shown = None
    found = dict(errors or {})
    if look and not found:
        try:
            told = service.preview(
                page_request.caller, _parse(form.request(page_request.service.dataset.schema))
            )
            shown = price_view(told, budget)
        except (FieldError, DiscreetError, ApiException) as error:
            found, status = _field_messages(page_request, error)
    return page_request.render(
        "ask.html.j2",
        status=status,
        budget=budget,
        form=form,
        errors=found,
        price=shown,
        answer=answer,
        refining=refining,
        columns=columns,
        examples=examples(columns),
        exactness=list(_EXACTNESS.items()),
        key=_new_key(),
        rows_words=_rows_words(page_request),
        recent=history_lines(past_answers(page_request, most=_RECENT), budget),
    )


def _preview(page_request: PageRequest, form: AskForm) -> dict[str, Any]:
    try:
        request = _parse(form.request(page_request.service.dataset.schema))
        told = page_request.service.preview(page_request.caller, request)
    except (FieldError, DiscreetError, ApiException) as error:
        found, _ = _field_messages(page_request, error)
        return {"errors": {name: dataclasses.asdict(one) for name, one in found.items()}, "price": None}
    view = price_view(told, budget_of(page_request))
    parts = AskForm.from_query(page_request.service.dataset.parse_query(request), form)
    return {
        "errors": {},
        "price": dataclasses.asdict(view),
        "question": view.question,
        "sql": view.sql,
        "parts": dataclasses.asdict(parts),
    }


def _trial_page(page_request: PageRequest, form: AskForm) -> Response:
    try:
        told = run_trial(page_request.service, _parse(form.request(page_request.service.dataset.schema)))
    except (FieldError, DiscreetError, ApiException) as error:
        return _error_page(page_request, form, error)
    card = _answer_view(page_request, told, None, trial=True)
    return _ask_page(page_request, form, look=True, answer=card)


def _error_page(page_request: PageRequest, form: AskForm, error: Exception) -> Response:
    if not isinstance(error, FieldError):
        page_request.middleware.metrics.count_refusal(api_error_from(error).code)
    found, status = _field_messages(page_request, error)
    return _ask_page(page_request, form, errors=found, status=status)


def _field_messages(page_request: PageRequest, error: Exception) -> tuple[dict[str, FieldMessage], int]:
    """Put a refusal beside its field, or above the form where it belongs to none."""
    if isinstance(error, FieldError):
        return {error.field: FieldMessage(error.message, error.hint)}, 422
    problem = api_error_from(error)
    if problem.code in ("failed", "unauthorized"):
        raise error
    if problem.code == "budget-exceeded":
        return {"amount": _budget_message(page_request, problem.details)}, problem.status
    message = problem.message
    if problem.code == "refused":
        message = f"The language has no place for {problem.details['refused']}."
    return {_field_of(problem): FieldMessage(message, problem.hint)}, problem.status


def _budget_message(page_request: PageRequest, details: Mapping[str, Any]) -> FieldMessage:
    """Say what is left under both limits; the ledger names the one that it met first."""
    currency = details["currency"]
    left = most_left(page_request.service.budget(page_request.caller), currency)
    if left is None or currency not in CURRENCY_SYMBOLS:
        return FieldMessage("This costs more than is left, and nothing was charged.", "Ask for less.")
    sign = currency_symbol(currency)
    price, rest = format_amount(details["asked"], up=True), format_amount(left, up=False)
    asked = f"It costs {sign} = {price}, and {sign} = {rest} is left."
    return FieldMessage(
        "This costs more than is left. Nothing was charged.", f"{asked} Ask for less, or less exactly."
    )


def _field_of(problem: ApiError) -> str:
    if problem.code == "refused":
        return "sql"
    if problem.message.startswith(("sd must", "sd of")):
        return "amount"
    named = [str(name).partition(".")[0] for name in problem.details.get("fields", ())]
    known = {"text": "sql", "expression": "of", "where": "where", "privacy": "amount", "sd": "amount"}
    return next((known[name] for name in named if name in known), "form")


# Small parts.


def _parse(request: Mapping[str, Any]) -> Any:
    return requests.parse_request(requests.QUERY_REQUEST, json.dumps(request).encode())


def _new_key() -> str:
    return Stream().words(2).tobytes().hex()


def _request_key(sent: str, request: Mapping[str, Any]) -> str:
    """Return a key by which a form that is sent twice asks once, and a changed form asks anew."""
    page_key = sent if _KEY.fullmatch(sent) else _new_key()
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    return f"page-{page_key}-{digest[:32]}"


def _fresh_form(page_request: PageRequest) -> AskForm:
    """Return an empty form with a price that a hundred questions can have."""
    budget = budget_view(page_request.service.budget(page_request.caller), (False, None))
    return AskForm(exact=budget.currency or "rho", amount=budget.usual)


def _rows_words(page_request: PageRequest) -> str:
    n_rows = page_request.service.dataset.database.n_rows
    if n_rows is None:
        return "The number of rows is not public."
    return f"{formatting.count_noun(n_rows, 'row')}; their number is public."


def _answer_view(
    page_request: PageRequest, told: Mapping[str, Any], request: Mapping[str, Any] | None, **more: Any
) -> AnswerView:
    return answer_view(told, request, budget=budget_of(page_request), address=page_request.address, **more)


def _refine_form(page_request: PageRequest, past: PastAnswer) -> RefineForm | None:
    """Offer as much again as the answer cost."""
    kinds = {promise["kind"] for promise in past.answer["cost"]}
    if not past.receipts or not kinds:
        return None
    exact = "epsilon" if kinds == {"pure-dp"} else "rho"
    paid = price_in(exact, past.answer["cost"]) or float(budget_of(page_request).usual)
    return RefineForm(
        key=_new_key(),
        receipts=",".join(past.receipts),
        exact=exact,
        amount=f"{paid:.4g}",
        letter=currency_symbol(exact),
    )
