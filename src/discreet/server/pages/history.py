"""What was asked before: as a list, as single answers, and added up."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from discreet import formatting
from discreet.errors import DiscreetError, LedgerError, LedgerUnavailable, ParameterError
from discreet.formatting import append_unit, number_with_margin
from discreet.privacy import ZCDP, GaussianDP, PureDP, promise_from_dict
from discreet.query.combination import ResultTerm, combine_results
from discreet.query.language.query import Query, parse_query
from discreet.query.text_query import preview_query, run_query
from discreet.report.charts.bars import IntervalMark, interval_bar
from discreet.server.api.responses import query_response
from discreet.server.errors import NOT_FOUND, ApiException
from discreet.server.pages.budget import BudgetView, budget_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.responses import Response

    from discreet.ledger import Entry
    from discreet.privacy import Promise
    from discreet.query import Aggregate, Answer
    from discreet.query.results import QueryResult
    from discreet.server.access import Caller
    from discreet.server.pages.page import PageRequest
    from discreet.server.service import Service

_NUMBERS = ("epsilon", "delta", "rho", "mu")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAnswer:
    """An answer of the past.

    Attributes
    ----------
    asked : Query
        The question.
    answer : mapping
        As the wire has it.
    earlier : mapping or None
        The answer that it refined.
    request : mapping or None
        By which it is asked again for free, if that can be told.
    when : str
        The moment of its charge.
    receipts : tuple of str
        Of its last draw, one for each noisy question behind it.
    in_all : tuple of mapping
        What all draws that were merged into it have cost.
    """

    asked: Query
    answer: Mapping[str, Any]
    earlier: Mapping[str, Any] | None
    request: Mapping[str, Any] | None
    when: str
    receipts: tuple[str, ...]
    in_all: tuple[Mapping[str, Any], ...]


class _StoredAnswers:
    """Answers noisy sums with what the ledger has kept of them, in the order in which they were asked."""

    def __init__(self, service: Service, receipts: Sequence[str], owner: str, n_rows: int | None) -> None:
        self._service, self._receipts, self._owner = service, list(receipts), owner
        self.schema, self.neighbors, self.n_rows = (
            service.dataset.schema,
            service.dataset.schema.neighbors,
            n_rows,
        )

    def ask(self, question: Aggregate, **_: Any) -> Answer:
        """Return the next of them, if it is to this question."""
        if not self._receipts:
            raise _no_such_answer()
        receipt = self._receipts.pop(0)
        asked = self._service.dataset.ledger.entry(receipt).asked or {}
        if asked.get("question") != question.to_dict():
            raise _no_such_answer()
        return self._service.dataset.database.recall(receipt, owner=self._owner)


def recall_answer(service: Service, who: Caller, receipts: tuple[str, ...]) -> PastAnswer:
    """Find an answer again.

    Parameters
    ----------
    service : Service
        Where it was asked.
    who : Caller
        Who paid for it.
    receipts : tuple of str
        Ids, one for each noisy question behind it.

    Raises
    ------
    LedgerError
        There is no such answer of theirs; somebody else's is not told from one that never was.

    Privacy
    -------
    Shows what was paid for by whoever looks.
    """
    reply = recall_result(service, who.name, receipts)
    entries = [service.dataset.ledger.entry(receipt) for receipt in receipts]
    kept = [entry.asked or {} for entry in entries]
    refined = tuple(asked["refines"] for asked in kept if asked["refines"])
    left = service.dataset.accounting.remaining(who, reply.cost)
    price = _price(service, entries)
    request: dict[str, Any] | None = None
    if price is not None:
        request = {"kind": "sentence", "text": kept[0]["said"], **price}
        if refined:
            request["refines"] = list(refined)
    merged = [part for parts in reply.parts for part in parts]
    return PastAnswer(
        asked=parse_query(kept[0]["said"], service.dataset.schema),
        answer=query_response(reply, left),
        earlier=query_response(recall_result(service, who.name, refined), left) if refined else None,
        request=request,
        when=entries[0].receipt.when,
        receipts=receipts,
        in_all=tuple(
            promise.to_dict()
            for part in merged
            for promise in service.dataset.ledger.entry(part).receipt.promises
        ),
    )


@lru_cache(maxsize=1024)
def recall_result(service: Service, owner: str, receipts: tuple[str, ...]) -> QueryResult:
    """Return the numbers of an answer of the past, which never change.

    Raises
    ------
    LedgerError
        There is no such answer of that owner.
    """
    entries = [service.dataset.ledger.entry(receipt) for receipt in receipts]
    said = {(entry.asked or {}).get("said") for entry in entries}
    owners = {entry.receipt.owner for entry in entries}
    words = said.pop() if len(said) == 1 else None
    if owners != {owner} or not words or not all(entry.answer for entry in entries):
        raise _no_such_answer()
    # Whatever follows is remembered, and by then the trail has it.
    service.audit_log.cover_receipts(owner, [entry.receipt for entry in entries])
    kept: Any = _StoredAnswers(service, receipts, owner, _n_rows(entries[0]))
    asked = parse_query(words, service.dataset.schema)
    # Who answers has been paid: the promise only says which law the noise has.
    reply = run_query(kept, asked, privacy=entries[0].receipt.promises[0])
    if len(reply.receipts) != len(receipts):
        raise _no_such_answer()
    return reply


def _n_rows(entry: Entry) -> int | None:
    """Return how many rows there were when it was run_query, where that is public."""
    stored = json.loads(entry.answer or b"{}")
    n_rows: int | None = stored.get("n_rows")
    return n_rows


def _no_such_answer() -> LedgerError:
    return LedgerError("receipts must be all those of one answer of yours, and are not. See the history.")


def _price(service: Service, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Return the price as a request names it; only one that would really be charged the same."""
    kept = [entry.asked or {} for entry in entries]
    charged = [entry.receipt.promises[0] for entry in entries]
    asked, n_rows = parse_query(kept[0]["said"], service.dataset.schema), _n_rows(entries[0])
    about: dict[str, Any] = {
        "unit": service.dataset.schema.unit,
        "neighbors": service.dataset.schema.neighbors,
    }
    candidates: Iterable[dict[str, Any]]
    if kept[0].get("variance") is not None:
        root = math.sqrt(kept[0]["variance"])
        near = (root, math.nextafter(root, 0), math.nextafter(root, math.inf))
        candidates = [{"sd": sd} for sd in near if sd**2 == kept[0]["variance"]]
    elif len(kept) == 1:
        candidates = [{"privacy": _privacy_body(kept[0]["privacy"])}]
    else:
        candidates = [
            {"privacy": _privacy_body(whole.to_dict())} for whole in _unsplit_promises(charged, about)
        ]
    for candidate in candidates:
        privacy = candidate.get("privacy")
        promise = None if privacy is None else promise_from_dict({**about, **privacy})
        try:
            quoted = preview_query(
                service.dataset.schema, n_rows, asked, privacy=promise, sd=candidate.get("sd")
            )
        except DiscreetError:
            continue
        if quoted.cost == tuple(charged):
            return candidate
    return None


def _unsplit_promises(charged: Sequence[Promise], about: Mapping[str, Any]) -> list[Promise]:
    """Return what people may have named that was split into these parts; parts are rounded down."""
    parts: Any = charged
    if all(part.kind == "pure-dp" for part in parts):
        return [PureDP(epsilon=_nine_digits(math.fsum(part.epsilon for part in parts)), **about)]
    rho = math.fsum(part.rho if part.kind == "zcdp" else part.mu**2 / 2 for part in parts)
    return [ZCDP(rho=_nine_digits(rho), **about), GaussianDP(mu=_nine_digits(math.sqrt(2 * rho)), **about)]


def _nine_digits(value: float) -> float:
    return float(f"{value:.9g}")


def _privacy_body(promise: Mapping[str, Any]) -> dict[str, Any]:
    """Return a promise as a request names it."""
    return {"kind": promise["kind"], **{name: promise[name] for name in _NUMBERS if promise.get(name)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidQuery:
    """One line of a history: a question, and the receipts of its answer."""

    question: str
    receipts: tuple[str, ...]
    cost: tuple[Mapping[str, Any], ...]
    when: str
    said: bool


def paid_queries(entries: Sequence[Mapping[str, Any]], service: Service) -> list[PaidQuery]:
    """Return what was paid for, the newest first; the two charges of a mean by groups are one question.

    Parameters
    ----------
    entries : sequence of mapping
        As :meth:`Service.history` tells them, oldest first.
    """
    found: list[PaidQuery] = []
    waiting: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        said = entry["asked"].get("said")
        parts = [entry]
        if said and _has_two_charges(said, service):
            first = waiting.pop(said, None)
            if first is None:
                waiting[said] = entry
                continue
            parts = [first, entry]
        found.append(
            PaidQuery(
                question=said or entry["what"],
                receipts=tuple(part["receipt"] for part in parts),
                cost=tuple(promise for part in parts for promise in part["cost"]),
                when=entry["when"],
                said=bool(said),
            )
        )
    return found[::-1]


def _has_two_charges(said: str, service: Service) -> bool:
    try:
        asked = parse_query(said, service.dataset.schema)
    except ParameterError:
        return False
    return asked.verb == "mean" and bool(asked.by)


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


async def history_page(page_request: PageRequest) -> Response:
    """Show what was asked before, and add up what was chosen of it."""
    return await page_request.run_in_thread(lambda: _page(page_request))


def _page(page_request: PageRequest) -> Response:
    past = past_answers(page_request)
    return page_request.render(
        "history.html.j2",
        items=history_lines(past, budget_of(page_request)),
        combine=_combine(past, page_request.http.query_params),
    )


def past_answers(
    page_request: PageRequest, *, most: int = _MOST, analyst: str | None = None
) -> list[tuple[PaidQuery, QueryResult | None]]:
    """Return what was paid for, the newest first, each with its answer where it is told.

    Parameters
    ----------
    most : int
        Charges to look at.
    analyst : str, optional
        Whose, if a curator looks: questions alone, without their answers.
    """
    entries = page_request.service.history(
        page_request.caller, analyst=analyst or page_request.caller.name, last=most
    )
    return [
        (paid, None if analyst or not paid.said else _recall_or_none(page_request, paid))
        for paid in paid_queries(entries, page_request.service)
    ]


def _recall_or_none(page_request: PageRequest, paid: PaidQuery) -> QueryResult | None:
    """Find an answer again; None where the schema has changed too much to read it."""
    try:
        return recall_result(page_request.service, page_request.caller.name, paid.receipts)
    except LedgerUnavailable:
        raise
    except (LedgerError, ParameterError):
        return None


def own_answer(page_request: PageRequest, receipts: tuple[str, ...]) -> PastAnswer:
    """Find one answer again; whatever is not theirs is not there."""
    try:
        return recall_answer(page_request.service, page_request.caller, receipts)
    except LedgerUnavailable:
        raise
    except (LedgerError, ParameterError):
        raise ApiException(NOT_FOUND) from None


def parse_receipts(text: str) -> tuple[str, ...]:
    """Read the receipts of one answer."""
    return tuple(text.split(",")[:8])


def budget_of(page_request: PageRequest) -> BudgetView:
    """Return what is left, in questions like the last one."""
    service, who = page_request.service, page_request.caller
    last = paid_queries(service.history(who, analyst=who.name, last=2), service)
    more = None
    if last:
        cost = tuple(promise_from_dict(promise) for promise in last[0].cost)
        more = service.dataset.accounting.remaining(who, cost)["more"]
    return budget_view(service.budget(who), (bool(last), more))


def history_lines(
    past: Sequence[tuple[PaidQuery, QueryResult | None]], budget: BudgetView
) -> list[HistoryLine]:
    """Return past questions in words."""
    return [
        HistoryLine(
            href="" if told is None else f"/answers/{','.join(paid.receipts)}",
            question=paid.question,
            answer="in the download" if told is None else _summarize(told)[0],
            margin="" if told is None else _summarize(told)[1],
            cost=budget.price_words(paid.cost),
            when=formatting.date(paid.when),
        )
        for paid, told in past
    ]


def _summarize(told: QueryResult) -> tuple[str, str]:
    """Return an answer and its margin, as short as a table needs them."""
    margins = [cell.margin for cell in told.cells if cell.margin is not None]
    if told.group_by:
        same = margins and not told.question.startswith("mean")
        return formatting.count_noun(len(told.cells), "group"), number_with_margin(
            margins[0], margins[0]
        ) if same else "varies"
    value = told.cells[0].value
    if value is None:
        return "too few rows", ""
    return append_unit(number_with_margin(value, margins[0]), told.measure), number_with_margin(
        margins[0], margins[0]
    )


# Sums and differences.


def _combine(past: Sequence[tuple[PaidQuery, QueryResult | None]], chosen: Mapping[str, str]) -> CombineView:
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
            result = combine_results(terms)
        except ParameterError as error:
            problem = str(error)
        else:
            words = result.words
            if result.margin:
                low, high = result.interval
                bar = interval_bar(
                    "combined", [IntervalMark(result.value, low, high, "")], result.measure or ""
                )
    return CombineView(options=options, choices=choices, problem=problem, words=words, bar=bar)


def _numbers(past: Sequence[tuple[PaidQuery, QueryResult | None]]) -> dict[str, ResultTerm]:
    """Return every number of past answers by the name that the form has for it."""
    found: dict[str, ResultTerm] = {}
    for paid, told in past:
        for i, cell in enumerate(() if told is None else told.cells):
            if cell.value is not None and told is not None and len(found) < _MOST_OPTIONS:
                found[f"{','.join(paid.receipts)}:{i}"] = ResultTerm.from_cell(told, cell)
    return found
