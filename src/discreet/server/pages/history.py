"""Past answers, recalled by their receipts: as a list, one by one, and added up."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from markupsafe import Markup

from discreet import formatting
from discreet.errors import DiscreetError, LedgerError, LedgerUnavailable, ParameterError
from discreet.formatting import append_unit
from discreet.privacy import promise_from_dict
from discreet.query.combination import ResultTerm, combine_results
from discreet.query.frames import question_words
from discreet.query.language.query import OrderKey, Query, parse_stored_query
from discreet.query.text_query import preview_query, run_query
from discreet.report.charts.bars import IntervalMark, interval_bar
from discreet.server.api.bodies import query_response
from discreet.server.errors import NOT_FOUND, ApiException
from discreet.server.pages.budget import BudgetView, budget_view

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.responses import Response

    from discreet.ledger import Entry
    from discreet.query import Aggregate, Answer
    from discreet.query.results import QueryResult
    from discreet.server.callers import Caller
    from discreet.server.dataset_service import DatasetService
    from discreet.server.pages.page import PageRequest

_NUMBERS = ("epsilon", "delta", "rho", "mu")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastAnswer:
    """An answer that was paid for before.

    Attributes
    ----------
    asked : Query
        Query that was answered, parsed.
    answer : mapping
        Answer as the API returns it.
    earlier : mapping or None
        Answer that it refined; None if it refined none.
    request : mapping or None
        Request that asks the same again for free; None if it cannot be reconstructed.
    when : str
        Time of its charge, in UTC.
    receipts : tuple of str
        Ids of the receipts of its last draw, one per aggregate of the query.
    total_cost : tuple of mapping
        Promises charged for all draws that were merged into it.
    """

    asked: Query
    answer: Mapping[str, Any]
    earlier: Mapping[str, Any] | None
    request: Mapping[str, Any] | None
    when: str
    receipts: tuple[str, ...]
    total_cost: tuple[Mapping[str, Any], ...]


class _StoredAnswers:
    """Source of noisy sums that returns the stored answers of receipts, in their order."""

    def __init__(
        self, service: DatasetService, receipts: Sequence[str], owner: str, n_rows: int | None
    ) -> None:
        self._service, self._receipts, self._owner = service, list(receipts), owner
        self.schema, self.neighbors, self.n_rows = (
            service.dataset.schema,
            service.dataset.schema.neighbors,
            n_rows,
        )

    def ask(self, question: Aggregate, **_: Any) -> Answer:
        """Return the next stored answer, and raise LedgerError if it is to another aggregate."""
        if not self._receipts:
            raise _no_such_answer()
        receipt = self._receipts.pop(0)
        query = self._service.dataset.ledger.entry(receipt).asked or {}
        if query.get("question") != question.to_dict():
            raise _no_such_answer()
        return self._service.dataset.database.recall(receipt, owner=self._owner)


def recall_answer(
    service: DatasetService, caller: Caller, receipts: tuple[str, ...], question: str | None = None
) -> PastAnswer:
    """Return a past answer of a caller.

    Parameters
    ----------
    service : DatasetService
        Data set that gave the answer.
    caller : Caller
        Caller who paid for it.
    receipts : tuple of str
        Ids of its receipts, one per aggregate of the query.
    question : str, optional
        Another query that the same sums answer, such as another quantile; None for the one that was paid for.

    Raises
    ------
    LedgerError
        The caller has no such answer; that of another caller gives the same error.

    Privacy
    -------
    Returns only what the caller has paid for.
    """
    result = recall_result(service, caller.name, receipts, question)
    entries = [service.dataset.ledger.entry(receipt) for receipt in receipts]
    queries = [entry.asked or {} for entry in entries]
    refined = tuple(query["refines"] for query in queries if query["refines"])
    text = question or queries[0]["said"]
    left = service.dataset.accounting.remaining_amounts(caller, result.cost, charged=())
    price = _price(service, entries)
    request: dict[str, Any] | None = None
    if price is not None:
        request = {"kind": "sentence", "text": text, **price}
        if refined:
            request["refines"] = list(refined)
    merged = [part for parts in result.parts for part in parts]
    return PastAnswer(
        asked=parse_stored_query(text, service.dataset.schema),
        answer=query_response(result, left),
        earlier=query_response(recall_result(service, caller.name, refined, text), left) if refined else None,
        request=request,
        when=entries[0].receipt.when,
        receipts=receipts,
        total_cost=tuple(
            promise.to_dict()
            for part in merged
            for promise in service.dataset.ledger.entry(part).receipt.promises
        ),
    )


@lru_cache(maxsize=1024)
def recall_result(
    service: DatasetService, owner: str, receipts: tuple[str, ...], question: str | None = None
) -> QueryResult:
    """Return the result of a past query from its stored answers, which never change.

    Parameters
    ----------
    service : DatasetService
        Data set that gave the answers.
    owner : str
        Name of the caller who paid for them.
    receipts : tuple of str
        Ids of their receipts, one per aggregate of the query.
    question : str, optional
        Another query that the same sums answer; None for the one that was paid for.

    Raises
    ------
    LedgerError
        There is no such answer of that owner.
    """
    entries = [service.dataset.ledger.entry(receipt) for receipt in receipts]
    texts = {(entry.asked or {}).get("said") for entry in entries}
    owners = {entry.receipt.owner for entry in entries}
    text = texts.pop() if len(texts) == 1 else None
    if owners != {owner} or not text or not all(entry.answer for entry in entries):
        raise _no_such_answer()
    # The result is cached, so the audit log is written first.
    service.audit_log.cover_receipts(service.name, owner, [entry.receipt for entry in entries])
    stored_answers: Any = _StoredAnswers(service, receipts, owner, _n_rows(entries[0]))
    query = parse_stored_query(question or text, service.dataset.schema)
    # Nothing is charged here: the promise only determines the noise law.
    result = run_query(stored_answers, query, privacy=entries[0].receipt.promises[0])
    if len(result.receipts) != len(receipts):
        raise _no_such_answer()
    return result


def _n_rows(entry: Entry) -> int | None:
    """Return the number of rows at the time of an answer; None if it is not public."""
    stored = json.loads(entry.answer or b"{}")
    n_rows: int | None = stored.get("n_rows")
    return n_rows


def _no_such_answer() -> LedgerError:
    return LedgerError("receipts must be all those of one answer of yours, and are not. See the history.")


def _price(service: DatasetService, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Return `privacy` or `sd` of a request that would be charged the same; None if none is found."""
    queries = [entry.asked or {} for entry in entries]
    charged = [entry.receipt.promises[0] for entry in entries]
    query, n_rows = parse_stored_query(queries[0]["said"], service.dataset.schema), _n_rows(entries[0])
    context: dict[str, Any] = {
        "unit": service.dataset.schema.unit,
        "neighbors": service.dataset.schema.neighbors,
    }
    candidates: Iterable[dict[str, Any]]
    if queries[0].get("variance") is not None:
        root = math.sqrt(queries[0]["variance"])
        candidates_sd = (root, math.nextafter(root, 0), math.nextafter(root, math.inf))
        candidates = [{"sd": sd} for sd in candidates_sd if sd**2 == queries[0]["variance"]]
    else:
        candidates = [{"privacy": _privacy_body(queries[0]["privacy"])}]
    for candidate in candidates:
        privacy = candidate.get("privacy")
        promise = None if privacy is None else promise_from_dict({**context, **privacy})
        try:
            quoted = preview_query(
                service.dataset.schema,
                n_rows,
                query,
                privacy=promise,
                sd=candidate.get("sd"),
                accounts=service.dataset.database.accounts(entries[0].receipt.owner),
            )
        except DiscreetError:
            continue
        if quoted.cost == tuple(charged):
            return candidate
    return None


def _privacy_body(promise: Mapping[str, Any]) -> dict[str, Any]:
    """Return a promise as the body of a request has it."""
    return {"kind": promise["kind"], **{name: promise[name] for name in _NUMBERS if promise.get(name)}}


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidQuery:
    """A query of the history with the receipts of its answer; `said` if it was asked as text."""

    question: str
    receipts: tuple[str, ...]
    cost: tuple[Mapping[str, Any], ...]
    when: str
    said: bool


def paid_queries(entries: Sequence[Mapping[str, Any]]) -> list[PaidQuery]:
    """Return the queries of charges, newest first; equal charges of a model or a program are one.

    Parameters
    ----------
    entries : sequence of mapping
        Charges as :meth:`Service.history` returns them, oldest first.
    """
    found: list[PaidQuery] = []
    for entry in reversed(entries):
        words = question_words(entry["asked"], entry["what"])
        paid = PaidQuery(
            # Kinds of sums that only learners and programs ask for.
            question=words if words != entry["what"] else f"for a model or program: {words}",
            receipts=(entry["receipt"],),
            cost=tuple(entry["cost"]),
            when=entry["when"],
            said=bool(entry["asked"].get("said")),
        )
        alike = found and replace(found[-1], receipts=(), cost=()) == replace(paid, receipts=(), cost=())
        if alike and not paid.said:
            newer = found.pop()
            paid = replace(paid, receipts=newer.receipts + paid.receipts, cost=newer.cost + paid.cost)
        found.append(paid)
    return found


_MOST = 100  # charges that a page shows; the downloads have the last 1000
_TERMS = 4
_MOST_OPTIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryLine:
    """A past query as a row of a table."""

    href: str
    question: str
    answer: str
    interval: str
    cost: str
    when: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A number of a past answer that can be chosen for a sum."""

    value: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One term in the form for sums: its position, sign, and the chosen number."""

    k: int
    sign: str
    chosen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CombineView:
    """The form for sums of past numbers, and its result."""

    options: tuple[Option, ...]
    choices: tuple[Choice, ...]
    problem: str
    words: str
    bar: Markup


async def history_page(page_request: PageRequest) -> Response:
    """Return the page with past queries, and the sum of the chosen numbers."""
    return await page_request.run_in_thread(lambda: _page(page_request))


def _page(page_request: PageRequest) -> Response:
    past = past_answers(page_request)
    return page_request.render(
        "history.html.j2",
        items=history_lines(past, caller_budget(page_request), page_request.base),
        combine=_combine(past, page_request.http.query_params),
    )


def past_answers(
    page_request: PageRequest, *, most: int = _MOST, analyst: str | None = None
) -> list[tuple[PaidQuery, QueryResult | None]]:
    """Return paid queries, newest first, each with its result or None.

    Parameters
    ----------
    page_request : PageRequest
        Request of the caller whose queries are returned.
    most : int
        Maximum number of charges to read, the newest.
    analyst : str, optional
        Analyst whose queries a curator sees, without results; None for those of the caller.
    """
    entries = page_request.target.history(
        page_request.caller, analyst=analyst or page_request.caller.name, last=most
    )
    return [
        (paid, None if analyst or not paid.said else _recall_or_none(page_request, paid))
        for paid in paid_queries(entries)
    ]


def _recall_or_none(page_request: PageRequest, paid: PaidQuery) -> QueryResult | None:
    """Return the result of a paid query; None if the schema has changed too much to read it."""
    try:
        return recall_result(page_request.target, page_request.caller.name, paid.receipts)
    except LedgerUnavailable:
        raise
    except (LedgerError, ParameterError):
        return None


def recall_own_answer(
    page_request: PageRequest, receipts: tuple[str, ...], question: str | None = None
) -> PastAnswer:
    """Return a past answer of the caller; any other one is reported as not found."""
    try:
        return recall_answer(page_request.target, page_request.caller, receipts, question)
    except LedgerUnavailable:
        raise
    except (LedgerError, ParameterError):
        raise ApiException(NOT_FOUND) from None


def sorted_answers(past: PastAnswer, base: str) -> list[tuple[str, str]]:
    """Return addresses of the same answer with all its groups sorted by a statistic, each with its name."""
    address = f"{base}/answers/{','.join(past.receipts)}"
    found = []
    for i, name in enumerate(past.asked.names):
        for words, descending in (("largest", True), ("smallest", False)):
            query = replace(past.asked, order=(OrderKey(i, is_statistic=True, descending=descending),))
            found.append((f"{address}?{urlencode({'question': str(query)})}", f"{words} {name} first"))
    return found


def parse_receipts(text: str) -> tuple[str, ...]:
    """Return the ids of receipts, at most 8, from a comma-separated text."""
    return tuple(text.split(",")[:8])


def caller_budget(page_request: PageRequest) -> BudgetView:
    """Return the caller's budget, with what is left as a number of queries like the last one."""
    service, caller = page_request.target, page_request.caller
    accounting = service.dataset.accounting
    last = paid_queries(service.history(caller, analyst=caller.name, last=1))
    more = None
    if last:
        cost = tuple(promise_from_dict(promise) for promise in last[0].cost)
        more = accounting.remaining_amounts(caller, cost)["more"]
    return budget_view(service.budget(caller), (bool(last), more), accounting.dataset_account())


def history_lines(
    past: Sequence[tuple[PaidQuery, QueryResult | None]], budget: BudgetView, base: str
) -> list[HistoryLine]:
    """Return past queries as rows of a table; `base` is the address of their data set."""
    return [
        HistoryLine(
            href="" if result is None else f"{base}/answers/{','.join(paid.receipts)}",
            question=paid.question + (f", {len(paid.receipts)} times" if len(paid.receipts) > 1 else ""),
            answer="in the download" if result is None else _summarize(result)[0],
            interval="" if result is None else _summarize(result)[1],
            cost=budget.format_cost(paid.cost),
            when=formatting.date(paid.when),
        )
        for paid, result in past
    ]


def _summarize(result: QueryResult) -> tuple[str, str]:
    """Return value and interval of a result as short texts for a table."""
    if len(result.cells) > 1 or result.group_by:
        noun = "group" if result.group_by else "statistic"
        return formatting.count_noun(
            len(result.cells) // (len(result.columns) if result.group_by else 1), noun
        ), ("one for each")
    ((value, interval),) = result.cell_texts()
    return append_unit(value, result.columns[0].unit), interval or "exact"


# Sums and differences.


def _combine(past: Sequence[tuple[PaidQuery, QueryResult | None]], chosen: Mapping[str, str]) -> CombineView:
    """Return the form for sums with the sum of the chosen numbers.

    Privacy
    -------
    Uses only answers that the caller has paid for.
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
            low, high = result.interval
            if low < high:
                bar = interval_bar(
                    "combined", [IntervalMark(result.value, low, high, "")], result.measure or ""
                )
    return CombineView(options=options, choices=choices, problem=problem, words=words, bar=bar)


def _numbers(past: Sequence[tuple[PaidQuery, QueryResult | None]]) -> dict[str, ResultTerm]:
    """Return the numbers of past results by their keys in the form, at most 1000."""
    terms: dict[str, ResultTerm] = {}
    for paid, result in past:
        for i, cell in enumerate(() if result is None else result.cells):
            if cell.value is not None and result is not None and len(terms) < _MOST_OPTIONS:
                terms[f"{','.join(paid.receipts)}:{i}"] = ResultTerm.from_cell(result, cell)
    return terms
