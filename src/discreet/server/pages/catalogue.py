"""The catalogue: all data sets that a caller may see, with what is public about them and their budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.server.pages.budget import WHOSE, account_bar, format_left, spent_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from markupsafe import Markup
    from starlette.responses import Response

    from discreet.server.pages.page import PageRequest


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
    bar: Markup
    composition: str


def catalogue_card(entry: Mapping[str, Any]) -> CatalogueCard:
    """Return the card of an entry, as :meth:`Service.catalogue` returns it."""
    shares = {name: share for name in WHOSE if (share := spent_share(entry[name])) is not None}
    nearer = max(shares, key=shares.__getitem__, default="total")
    used = entry[nearer]["used"]
    rows = "number of rows not public" if entry["n_rows"] is None else _count(entry["n_rows"], "row")
    return CatalogueCard(
        name=entry["dataset"],
        href=f"/datasets/{entry['dataset']}",
        title=entry["title"] or "",
        description=entry["description"] or "",
        facts=f"{rows}, {_count(entry['columns'], 'column')}; every {entry['unit']} is protected",
        role=entry["role"],
        budget="no limit" if used is None else format_left(used, nearer),
        bar=account_bar(entry[nearer], left=True),
        composition=entry["composition"],
    )


def _count(number: int, noun: str) -> str:
    return formatting.count_noun(number, noun)


async def catalogue_page(page_request: PageRequest) -> Response:
    """Return the page with all data sets that the caller may see."""
    caller = page_request.caller

    def work() -> Response:
        cards = [catalogue_card(entry) for entry in page_request.service.catalogue(caller)]
        return page_request.render("catalogue.html.j2", cards=cards)

    return await page_request.run_in_thread(work)
