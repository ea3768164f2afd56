"""The analyst's desk: asking, trying, refining, and the page of an answer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse

from discreet import formatting
from discreet.errors import DiscreetError
from discreet.noise import Stream
from discreet.server import wire
from discreet.server.pages.answers import AnswerView, answer_view
from discreet.server.pages.budgets import budget_view, most_left, price_in, price_view
from discreet.server.pages.columns import column_views, examples
from discreet.server.pages.forms import AskForm, FieldError
from discreet.server.pages.history import budget_of, history_lines, ids_of, own_answer, past_answers
from discreet.server.pages.trial import tried
from discreet.server.pages.visit import Visit, away
from discreet.server.pages.words import LETTERS, amount, letter
from discreet.server.problems import Problem, Refusal, problem_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from discreet.server.pages.recall import Recalled

_RECENT = 12  # charges that are shown
_KEY = re.compile(r"[0-9a-f]{32}")
_EXACTNESS = {
    "margin": "how far off it may be: ± (95 %)",
    "rho": "its price: ρ (Gaussian noise)",
    "mu": "its price: μ (Gaussian noise)",
    "epsilon": "its price: ε (Laplace noise)",
}


@dataclass(frozen=True, slots=True)
class Complaint:
    """What is wrong with a field."""

    message: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refining:
    """The form below an answer that makes it more exact."""

    key: str
    receipts: str
    exact: str
    amount: str
    letter: str


async def ask_page(visit: Visit) -> Response:
    """Show the form of a question."""
    return await visit.desk(lambda: _desk_page(visit, _fresh_form(visit)))


async def ask(visit: Visit) -> Response:
    """Ask, try or price what stands in the form.

    An answer is a page of its own, to which the browser is sent: loading that again asks nothing.
    """
    fields = await visit.form()
    form = AskForm.read(fields, await visit.desk(lambda: _fresh_form(visit)))
    match fields.get("do"):
        case "ask":
            return await _asked(visit, form, fields)
        case "try":
            return await visit.guard.long(lambda: _tried(visit, form))
    return await visit.desk(lambda: _desk_page(visit, form, look=True))


async def refine(visit: Visit) -> Response:
    """Pay for another draw, and merge it with an answer."""
    fields = await visit.form()
    receipts = ids_of(fields.get("receipts", ""))
    price: dict[str, str] = {name: fields[name] for name in ("exact", "amount") if name in fields}

    def work() -> AskForm:
        past = own_answer(visit, receipts)
        form = AskForm.of_sentence(past.asked, _fresh_form(visit))
        # As a sentence, which can say all that its parts can and more.
        return AskForm.read({"source": "sql", "sql": str(past.asked), **price}, form)

    return await _asked(visit, await visit.desk(work), fields, refines=receipts)


async def _asked(
    visit: Visit, form: AskForm, fields: Mapping[str, str], *, refines: Sequence[str] = ()
) -> Response:
    try:
        request = form.request(visit.office.schema)
        if refines:
            request["refines"] = list(refines)
        key = _request_key(fields.get("key", ""), request)
        told = await visit.guard.question(visit.office.asking(visit.caller, _read(request), key=key))
    except (FieldError, DiscreetError, Refusal) as error:
        return await visit.desk(partial(_refused, visit, form, error))
    visit.guard.metrics.answer(request["kind"], told["cached"])
    if not told["cost"]:
        # What follows from what is public is in no ledger, and needs no page that stays.
        return await visit.desk(lambda: _desk_page(visit, form, look=True, answer=_card(visit, told, None)))
    return away(f"/answers/{','.join(told['receipts'])}{'?again' if told['cached'] else ''}")


async def price(visit: Visit) -> Response:
    """Tell the page's script what a question would cost, and how it was read."""
    fields = await visit.form()
    return JSONResponse(await visit.desk(lambda: _priced(visit, AskForm.read(fields, _fresh_form(visit)))))


async def answer_page(visit: Visit) -> Response:
    """Show an answer that was paid for."""
    receipts = ids_of(visit.request.path_params["receipts"])
    again = "again" in visit.request.query_params

    def work() -> Response:
        past = own_answer(visit, receipts)
        form = AskForm.of_sentence(past.asked, _fresh_form(visit))
        answer = {**past.answer, "cached": again}
        card = _card(visit, answer, past.request, earlier=past.earlier, in_all=past.in_all, when=past.when)
        return _desk_page(visit, form, answer=card, refining=_refining(visit, past))

    return await visit.desk(work)


# The page.


def _desk_page(
    visit: Visit,
    form: AskForm,
    *,
    errors: Mapping[str, Complaint] | None = None,
    status: int = 200,
    look: bool = False,
    answer: AnswerView | None = None,
    refining: Refining | None = None,
) -> Response:
    """Render the page; ``look`` has the price of what stands in the form told."""
    office = visit.office
    columns = column_views(office.schema)
    budget = budget_of(visit)
    shown = None
    found = dict(errors or {})
    if look and not found:
        try:
            told = office.preview(visit.caller, _read(form.request(visit.office.schema)))
            shown = price_view(told, budget)
        except (FieldError, DiscreetError, Refusal) as error:
            found, status = _complaints(visit, error)
    return visit.page(
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
        rows_words=_rows_words(visit),
        recent=history_lines(past_answers(visit, most=_RECENT), budget),
    )


def _priced(visit: Visit, form: AskForm) -> dict[str, Any]:
    try:
        request = _read(form.request(visit.office.schema))
        told = visit.office.preview(visit.caller, request)
    except (FieldError, DiscreetError, Refusal) as error:
        found, _ = _complaints(visit, error)
        return {"errors": {name: dataclasses.asdict(one) for name, one in found.items()}, "price": None}
    view = price_view(told, budget_of(visit))
    parts = AskForm.of_sentence(visit.office.sentence(request), form)
    return {
        "errors": {},
        "price": dataclasses.asdict(view),
        "question": view.question,
        "sql": view.sql,
        "parts": dataclasses.asdict(parts),
    }


def _tried(visit: Visit, form: AskForm) -> Response:
    try:
        told = tried(visit.office, _read(form.request(visit.office.schema)))
    except (FieldError, DiscreetError, Refusal) as error:
        return _refused(visit, form, error)
    card = _card(visit, told, None, trial=True)
    return _desk_page(visit, form, look=True, answer=card)


def _refused(visit: Visit, form: AskForm, error: Exception) -> Response:
    if not isinstance(error, FieldError):
        visit.guard.metrics.refusal(problem_of(error).code)
    found, status = _complaints(visit, error)
    return _desk_page(visit, form, errors=found, status=status)


def _complaints(visit: Visit, error: Exception) -> tuple[dict[str, Complaint], int]:
    """Put a refusal beside its field, or above the form where it belongs to none."""
    if isinstance(error, FieldError):
        return {error.field: Complaint(error.message, error.hint)}, 422
    problem = problem_of(error)
    if problem.code in ("failed", "unauthorized"):
        raise error
    if problem.code == "budget-exceeded":
        return {"amount": _too_dear(visit, problem.details)}, problem.status
    message = problem.message
    if problem.code == "refused":
        message = f"The language has no place for {problem.details['refused']}."
    return {_field_of(problem): Complaint(message, problem.hint)}, problem.status


def _too_dear(visit: Visit, details: Mapping[str, Any]) -> Complaint:
    """Say what is left under both limits; the ledger names the one that it met first."""
    currency = details["currency"]
    left = most_left(visit.office.budget(visit.caller), currency)
    if left is None or currency not in LETTERS:
        return Complaint("This costs more than is left, and nothing was charged.", "Ask for less.")
    sign = letter(currency)
    price, rest = amount(details["asked"], up=True), amount(left, up=False)
    asked = f"It costs {sign} = {price}, and {sign} = {rest} is left."
    return Complaint(
        "This costs more than is left. Nothing was charged.", f"{asked} Ask for less, or less exactly."
    )


def _field_of(problem: Problem) -> str:
    if problem.code == "refused":
        return "sql"
    if problem.message.startswith(("sd must", "sd of")):
        return "amount"
    named = [str(name).partition(".")[0] for name in problem.details.get("fields", ())]
    known = {"text": "sql", "expression": "of", "where": "where", "privacy": "amount", "sd": "amount"}
    return next((known[name] for name in named if name in known), "form")


# Small parts.


def _read(request: Mapping[str, Any]) -> Any:
    return wire.read(wire.QUESTION, json.dumps(request).encode())


def _new_key() -> str:
    return Stream().words(2).tobytes().hex()


def _request_key(sent: str, request: Mapping[str, Any]) -> str:
    """Return a key by which a form that is sent twice asks once, and a changed form asks anew."""
    page_key = sent if _KEY.fullmatch(sent) else _new_key()
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    return f"page-{page_key}-{digest[:32]}"


def _fresh_form(visit: Visit) -> AskForm:
    """Return an empty form with a price that a hundred questions can have."""
    budget = budget_view(visit.office.budget(visit.caller), (False, None))
    return AskForm(exact=budget.currency or "rho", amount=budget.usual)


def _rows_words(visit: Visit) -> str:
    n_rows = visit.office.database.n_rows
    if n_rows is None:
        return "The number of rows is not public."
    return f"{formatting.count_noun(n_rows, 'row')}; their number is public."


def _card(
    visit: Visit, told: Mapping[str, Any], request: Mapping[str, Any] | None, **more: Any
) -> AnswerView:
    return answer_view(told, request, budget=budget_of(visit), address=visit.address, **more)


def _refining(visit: Visit, past: Recalled) -> Refining | None:
    """Offer as much again as the answer cost."""
    kinds = {promise["kind"] for promise in past.answer["cost"]}
    if not past.receipts or not kinds:
        return None
    exact = "epsilon" if kinds == {"pure-dp"} else "rho"
    paid = price_in(exact, past.answer["cost"]) or float(budget_of(visit).usual)
    return Refining(
        key=_new_key(),
        receipts=",".join(past.receipts),
        exact=exact,
        amount=f"{paid:.4g}",
        letter=letter(exact),
    )
