"""The catalogue: all data sets that a caller may see; an operator adds and retires them there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.errors import DiscreetError
from discreet.server.errors import ONLY_OPERATORS, ApiError, ApiException, curator_error
from discreet.server.pages.budget import account_bar, budget_name, format_left

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup
    from starlette.responses import Response

    from discreet.server.dataset import Dataset
    from discreet.server.pages.page import PageRequest


_NO_LEDGER, _NO_TABLE = (
    f"The {what} does not answer at the moment. Questions are neither answered nor charged."
    for what in ("ledger", "table")
)
_BEGUN = (
    "The processes of the service are being replaced, one after the other. If one cannot be, it and the "
    "others stay as they are, and the log of the service says so."
)
_SLOW_TABLE = (
    "The table answers slowly at the moment. Questions are charged as usual and may take long; one that is "
    "not answered in time is free to ask again."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueCard:
    """A data set in the catalogue: its address, what is public about it, and how its budget stands."""

    name: str
    href: str
    title: str
    description: str
    facts: str
    role: str
    budget: str
    bar: Markup | str
    notice: str
    composition: str


_STOPPED = "A curator has stopped all questions about this data set. Earlier answers can still be read."


def table_notice(dataset: Dataset) -> str:
    """Return what to know before asking a table that did not answer its last check in time, or else ""."""
    if dataset.is_answering:
        return ""
    return _SLOW_TABLE if dataset.is_slow else _NO_TABLE


def catalogue_card(entry: Mapping[str, Any], notice: str) -> CatalogueCard:
    """Return the card of an entry, as :meth:`Service.catalogue` returns it, with a notice about its table."""
    nearer = entry["available"]["whose"]
    used = entry[nearer]["used"]
    is_known = entry["total"]["spent"] is not None
    rows = "number of rows not public" if entry["n_rows"] is None else _count(entry["n_rows"], "row")
    return CatalogueCard(
        name=entry["dataset"],
        href=f"/datasets/{entry['dataset']}",
        title=entry["title"] or "",
        description=entry["description"] or "",
        facts=f"{rows}, {_count(entry['columns'], 'column')}; every {entry['unit']} is protected",
        role=entry["role"],
        budget=""
        if not is_known
        else "no limit"
        if used is None
        else format_left(used, budget_name(entry, nearer)),
        bar=account_bar(entry[nearer], left=True) if is_known else "",
        notice=notice if is_known else _NO_LEDGER,
        composition=entry["composition"],
    )


def _count(number: int, noun: str) -> str:
    return formatting.count_noun(number, noun)


async def catalogue_page(page_request: PageRequest) -> Response:
    """Return the page with all data sets that the caller may see."""
    return await page_request.run_in_thread(lambda: _page(page_request))


async def reload_configuration(page_request: PageRequest) -> Response:
    """Show an operator what reading the configuration again would change, or do it once that is confirmed."""
    from discreet.server.app import preview_reload, reload  # which makes the application of these pages

    fields = await page_request.form()
    service, caller = page_request.service, page_request.caller
    if not caller.is_operator:
        raise ApiException(ONLY_OPERATORS)

    def work() -> Response:
        try:
            if fields.get("do") == "change":
                changed = reload(service, caller.name)
                if changed["done"]:
                    notice = f"Done. {_describe_change(changed, 'added', 'retired')}"
                else:
                    notice = f"{_describe_change(changed, 'to be added', 'to be retired')} {_BEGUN}"
                return _page(page_request, notice=notice)
            _, planned = preview_reload(service)
        except DiscreetError as error:
            problem = curator_error(error)
            return _page(page_request, problem=problem, status=problem.status)
        words = _describe_change(planned, "would be added", "would be retired")
        return _page(page_request, planned=words, changes=any(planned.values()))

    return await page_request.middleware.run_long(work)


def _describe_change(change: Mapping[str, Any], added: str, retired: str) -> str:
    """Return which data sets a configuration adds and retires, as sentences."""
    sentences = [
        f"{formatting.list_names(change[key])} {words}."
        for key, words in (("added", added), ("retired", retired))
        if change[key]
    ]
    return " ".join(sentences) or "No data set is new, and none is missing."


def _page(
    page_request: PageRequest,
    *,
    status: int = 200,
    notice: str = "",
    problem: ApiError | None = None,
    planned: str = "",
    changes: bool = False,
) -> Response:
    """Return the catalogue; for an operator also the form that reads the configuration again.

    Parameters
    ----------
    page_request : PageRequest
        Request of the caller whose data sets are shown.
    status, notice, problem
        Status of the response, and what to tell about a change that was made or refused.
    planned, changes : str and bool
        What reading the configuration again would change, and whether there is anything to confirm.
    """
    service, caller = page_request.service, page_request.caller
    notices = {
        one.name: _STOPPED if service.access.stop_record(one.name) is not None else table_notice(one.dataset)
        for one in service.visible(caller)
    }
    cards = [catalogue_card(entry, notices.get(entry["dataset"], "")) for entry in service.catalogue(caller)]
    return page_request.render(
        "catalogue.html.j2",
        status=status,
        cards=cards,
        is_operator=caller.is_operator,
        notice=notice,
        problem=problem,
        planned=planned,
        changes=changes,
    )
