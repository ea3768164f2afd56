"""What was asked before: as a list, as single answers, and added up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet import formatting
from discreet.errors import LedgerError, LedgerUnavailable, ParameterError
from discreet.formatting import number_with_margin
from discreet.job.combining import Term, combined
from discreet.privacy import promise_from_dict
from discreet.report.charts.bars import Interval, interval_bar
from discreet.server.pages.budgets import Budget, budget_view
from discreet.server.pages.recall import Paid, Recalled, paid_questions, recalled, reply_of
from discreet.server.pages.words import with_unit
from discreet.server.problems import NOT_FOUND, Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from discreet.job.reply import Reply
    from discreet.server.pages.visit import Visit

_MOST = 100  # charges that a page shows; the downloads have the last thousand
_TERMS = 4
_MOST_OPTIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """One question of the past, in words."""

    href: str
    question: str
    answer: str
    margin: str
    cost: str
    when: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A number of a past answer that can be added up."""

    value: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One row of the form that adds numbers up."""

    k: int
    sign: str
    chosen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineView:
    """The form that adds numbers up, and its result."""

    options: tuple[Option, ...]
    choices: tuple[Choice, ...]
    problem: str
    words: str
    bar: Markup


async def history_page(visit: Visit) -> Response:
    """Show what was asked before, and add up what was chosen of it."""
    return await visit.desk(lambda: _page(visit))


def _page(visit: Visit) -> Response:
    past = past_answers(visit)
    return visit.page(
        "history.html.j2",
        items=history_lines(past, budget_of(visit)),
        combine=_combine(past, visit.request.query_params),
    )


def past_answers(
    visit: Visit, *, most: int = _MOST, analyst: str | None = None
) -> list[tuple[Paid, Reply | None]]:
    """Return what was paid for, the newest first, each with its answer where it is told.

    Parameters
    ----------
    most : int
        Charges to look at.
    analyst : str, optional
        Whose, if a curator looks: questions alone, without their answers.
    """
    entries = visit.office.history(visit.caller, analyst=analyst or visit.caller.name, last=most)
    return [
        (paid, None if analyst or not paid.said else _told(visit, paid))
        for paid in paid_questions(entries, visit.office)
    ]


def _told(visit: Visit, paid: Paid) -> Reply | None:
    """Find an answer again; None where the schema has changed too much to read it."""
    try:
        return reply_of(visit.office, visit.caller.name, paid.receipts)
    except LedgerUnavailable:
        raise
    except (LedgerError, ParameterError):
        return None


def own_answer(visit: Visit, receipts: tuple[str, ...]) -> Recalled:
    """Find one answer again; whatever is not theirs is not there."""
    try:
        return recalled(visit.office, visit.caller, receipts)
    except LedgerUnavailable:
        raise
    except (LedgerError, ParameterError):
        raise Refusal(NOT_FOUND) from None


def ids_of(text: str) -> tuple[str, ...]:
    """Read the receipts of one answer."""
    return tuple(text.split(",")[:8])


def budget_of(visit: Visit) -> Budget:
    """Return what is left, in questions like the last one."""
    office, who = visit.office, visit.caller
    last = paid_questions(office.history(who, analyst=who.name, last=2), office)
    more = None
    if last:
        cost = tuple(promise_from_dict(promise) for promise in last[0].cost)
        more = office.books.remaining(who, cost)["more"]
    return budget_view(office.budget(who), (bool(last), more))


def history_lines(past: Sequence[tuple[Paid, Reply | None]], budget: Budget) -> list[HistoryLine]:
    """Return past questions in words."""
    return [
        HistoryLine(
            href="" if told is None else f"/answers/{','.join(paid.receipts)}",
            question=paid.question,
            answer="in the download" if told is None else _short(told)[0],
            margin="" if told is None else _short(told)[1],
            cost=budget.price_words(paid.cost),
            when=formatting.date(paid.when),
        )
        for paid, told in past
    ]


def _short(told: Reply) -> tuple[str, str]:
    """Return an answer and its margin, as short as a table needs them."""
    margins = [cell.margin for cell in told.cells if cell.margin is not None]
    if told.axes:
        same = margins and not told.question.startswith("mean")
        return formatting.count_noun(len(told.cells), "group"), number_with_margin(
            margins[0], margins[0]
        ) if same else "varies"
    value = told.cells[0].value
    if value is None:
        return "too few rows", ""
    return with_unit(number_with_margin(value, margins[0]), told.measure), number_with_margin(
        margins[0], margins[0]
    )


# Sums and differences.


def _combine(past: Sequence[tuple[Paid, Reply | None]], chosen: Mapping[str, str]) -> CombineView:
    """Return the form, and what was chosen in it added up.

    Privacy
    -------
    Made of answers that were paid for by whoever looks, and of nothing else.
    """
    numbers = _numbers(past)
    options = tuple(Option(value=key, words=term.words) for key, term in numbers.items())
    choices = tuple(
        Choice(k=k, sign="-" if chosen.get(f"sign{k}") == "-" else "+", chosen=chosen.get(f"term{k}", ""))
        for k in range(1, _TERMS + 1)
    )
    terms = [
        replace(numbers[choice.chosen], times=-1.0 if choice.sign == "-" else 1.0)
        for choice in choices
        if choice.chosen in numbers
    ]
    problem, words, bar = "", "", Markup("")
    if terms:
        try:
            result = combined(terms)
        except ParameterError as error:
            problem = str(error)
        else:
            words = result.words
            if result.margin:
                low, high = result.interval
                bar = interval_bar("combined", [Interval(result.value, low, high, "")], result.measure or "")
    return CombineView(options=options, choices=choices, problem=problem, words=words, bar=bar)


def _numbers(past: Sequence[tuple[Paid, Reply | None]]) -> dict[str, Term]:
    """Return every number of past answers by the name that the form has for it."""
    found: dict[str, Term] = {}
    for paid, told in past:
        for i, cell in enumerate(() if told is None else told.cells):
            if cell.value is not None and told is not None and len(found) < _MOST_OPTIONS:
                found[f"{','.join(paid.receipts)}:{i}"] = Term.of(told, cell)
    return found
