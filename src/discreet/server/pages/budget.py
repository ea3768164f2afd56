"""Presentation of budgets and costs on a page: as numbers of queries, shares and amounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.formatting import (
    append_unit,
    currency_symbol,
    format_amount,
    format_amounts,
    format_share,
    number_with_margin,
)
from discreet.privacy.promises import describe_promise, promise_from_dict
from discreet.query.costs import describe_charges, describe_takes, describe_used, takes_all
from discreet.report.charts.bars import share_bar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from markupsafe import Markup

_WARN_SHARE, _BAD_SHARE = 0.75, 0.95  # shares spent above which a bar changes its color
_USUAL_SHARE = 100  # queries that the suggested cost allows
_PERCENTAGE = "The part of the budget that all charges together take. It is not epsilon divided by its limit."
WHOSE = {"own": "your budget", "group": "your group's budget", "total": "the shared budget"}
"""Names of the budgets that a caller's queries are charged to."""
SHARED_LIMIT = "only the shared limit"
"""Limit of an analyst or a group that has none besides that of the data set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """The budget of a caller.

    Attributes
    ----------
    currency : str
        Currency in which costs are compared, "rho" or "epsilon"; empty without a limit.
    limit : float
        Limit in that currency; 0 without a limit.
    lead, after : str
        What is left as a share, and as a number of queries.
    nearer, shared : str
        Budget that is used up first, a key of :data:`WHOSE`, and the name of the shared one.
    bar : Markup
        Chart of the share that is left.
    amounts : tuple of (str, str)
        Limits, spending and what is left as amounts, each with its label.
    """

    currency: str
    limit: float
    lead: str
    after: str
    nearer: str
    shared: str
    bar: Markup
    amounts: tuple[tuple[str, str], ...]

    @property
    def letter(self) -> str:
        """Symbol of the currency, such as ρ."""
        return currency_symbol(self.currency or "rho")

    @property
    def usual(self) -> str:
        """Suggested cost of a first query, as text."""
        return f"{(self.limit or 0.5) / _USUAL_SHARE:.2g}"

    def whose(self, nearer: str) -> str:
        """Return whose budget a response calls ``own`` or ``total``: its own one may be that of the group."""
        if nearer == "total":
            return self.shared
        return WHOSE["group" if (nearer, self.nearer) == ("own", "group") else nearer]

    def price(self, cost: Sequence[Mapping[str, Any]]) -> float:
        """Return a cost in the currency of the limit; 0 if it is in another one."""
        return cost_in_currency(self.currency, cost)

    def format_cost(self, cost: Sequence[Mapping[str, Any]]) -> str:
        """Return a cost as text, in the currency of the limit if possible."""
        price = self.price(cost)
        if price:
            return f"{self.letter} = {format_amount(price, up=True)}"
        return describe_charges([promise_from_dict(promise) for promise in cost]) or "nothing"


def cost_in_currency(currency: str, cost: Sequence[Mapping[str, Any]]) -> float:
    """Return the summed cost of several charges in a currency; 0 if one of them is in another."""
    total = 0.0
    for promise in cost:
        match promise["kind"], currency:
            case ("zcdp", "rho"):
                total += promise["rho"]
            case ("gaussian-dp", "rho"):
                total += promise["mu"] ** 2 / 2
            case ("pure-dp", "epsilon"):
                total += promise["epsilon"]
            case _:
                return 0.0
    return total


def account_currency(account: Mapping[str, Any]) -> tuple[str, float]:
    """Return the currency in which an account is shown, and its limit in it; ("", 0) without one."""
    left, limit = account["left"], account["limit"]
    if not left:
        return "", 0.0
    match limit["kind"]:
        case "zcdp":
            return "rho", limit["rho"]
        case "gaussian-dp":
            return "rho", limit["mu"] ** 2 / 2
        case "pure-dp":
            return "epsilon", limit["epsilon"]
    for name in ("rho", "epsilon"):
        whole = left.get(name, 0.0) + account["spent"].get(name, 0.0)
        if name in left and whole:
            return name, whole
    return "", 0.0


def spent_share(account: Mapping[str, Any]) -> float | None:
    """Return the share of its limit that an account has spent; None without a limit."""
    used = account["used"]
    return None if used is None else min(1.0, used["share"])


def account_bar(account: Mapping[str, Any], *, left: bool = False) -> Markup:
    """Return a chart of the share of its limit that an account has spent, or that is left of it."""
    share = spent_share(account) or 0.0
    return share_bar(1.0 - share if left else share, kind=share_kind(share))


def share_kind(share: float) -> str:
    """Return the style class of a share that is spent: "bad", "warn", or empty."""
    return "bad" if share > _BAD_SHARE else "warn" if share > _WARN_SHARE else ""


def format_spending(account: Mapping[str, Any]) -> str:
    """Return what an account has spent, as text."""
    amounts = {
        name: account["spent"][name] for name in ("rho", "epsilon", "delta") if account["spent"].get(name)
    }
    return format_amounts(amounts, up=True) if amounts else "nothing"


def budget_name(accounts: Mapping[str, Any], nearer: str) -> str:
    """Return the name of a budget, a key of :data:`WHOSE`; of two shared ones that of the nearer limit."""
    people = accounts["people"]
    if nearer != "total" or people is None:
        return WHOSE[nearer]
    # Of equal limits that of the people is nearer, because all that a data set spends counts against it.
    if accounts["total"]["limit"] == people["limit"]:
        return f"the budget of all data sets about {formatting.name(people['name'])}"
    return "the budget of this data set"


def _shared_amounts(
    accounts: Mapping[str, Any], dataset: Mapping[str, Any] | None
) -> Iterator[tuple[str, str]]:
    """Yield what all callers together spent, with the limit: of the data set, and of its people if shared."""
    people, total = accounts["people"], accounts["total"]
    if dataset is None or people is None:
        yield "All analysts spent", format_spending(total)
        if total["left"] is not None:
            yield "The shared limit", describe_promise(total["limit"])
            yield "Left for all", format_amounts(total["left"], up=False)
        return
    about = f"All data sets about {formatting.name(people['name'])}"
    for label, account in (("This data set", dataset), (about, people)):
        left = "no limit of its own"
        if account["left"] is not None:
            amounts = format_amounts(account["left"], up=False)
            left = f"{amounts} left of {describe_promise(account['limit'])}"
        words = f"{format_spending(account)} spent by all analysts; {left}"
        yield label, words.replace(" = ", "\u00a0=\u00a0")  # no line breaks inside an amount


def budget_view(
    accounts: Mapping[str, Any],
    last: tuple[bool, int | None],
    dataset: Mapping[str, Any] | None = None,
) -> BudgetView:
    """Return the presentation of a caller's budget.

    Parameters
    ----------
    accounts : mapping
        Accounts of the caller and of all, as the API returns them.
    last : (bool, int or None)
        Whether the caller has asked before, and how many more queries like the last one fit; None if it was
        free.
    dataset : mapping, optional
        Account of the data set without the others about the same people; None for one that shares no limit.
    """
    own, group = accounts["own"], accounts["group"]
    has_own_limit = own["left"] is not None
    nearer = accounts["available"]["whose"]
    whose = budget_name(accounts, nearer)
    account = accounts[nearer]
    currency, limit = account_currency(account)
    amounts = [("You spent", format_spending(own))]
    used = account["used"]
    if has_own_limit:
        amounts += [
            ("Your limit", describe_promise(own["limit"])),
            ("Left for you", format_amounts(own["left"], up=False)),
        ]
    if group is not None:
        amounts.append((f"Group {formatting.name(group['name'])} spent", format_spending(group)))
        if group["left"] is not None:
            amounts += [
                ("The group's limit", describe_promise(group["limit"])),
                ("Left for the group", format_amounts(group["left"], up=False)),
            ]
    amounts += _shared_amounts(accounts, dataset)
    if used is not None:
        amounts.append(("Used", describe_used(used, whose)))
        amounts.append(("What the percentage means", _PERCENTAGE))
    amounts.append(("If analysts share answers", accounts["collusion"]))
    amounts.append(("What the limit counts", accounts["composition"]))
    return BudgetView(
        currency=currency,
        limit=limit,
        lead="There is no limit." if used is None else f"{format_left(used, whose)}.",
        after="" if used is None else _outlook(*last),
        nearer=nearer,
        shared=budget_name(accounts, "total"),
        bar=account_bar(account, left=True),
        amounts=tuple(amounts),
    )


def format_left(used: Mapping[str, Any], whose: str) -> str:
    """Return the one number that pages tell about budgets: which part of the nearest one is left."""
    share = format_share(max(0.0, 1.0 - used["share"]), up=False)
    return f"{share} of {whose} is left"


def _outlook(has_asked: bool, more: int | None) -> str:
    """Return for how many more queries like the last one the budget is enough, as a sentence."""
    if not has_asked:
        return "You have not asked yet."
    if more is None:
        return "Your last question was free."
    if more == 0:
        return "That is too little for another question like your last one."
    return f"Enough for about {formatting.count_noun(more, 'more question')} like your last one."


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceView:
    """Presentation of a query's cost before it is asked.

    Attributes
    ----------
    margin, cost, after : str
        Margin of the answer, its cost, and what is left afterwards, as text.
    button : str
        Text of the button that asks.
    question, sql : str
        The query as it was parsed, as a sentence and as SQL.
    amount : float
        Cost in the currency of the budget; 0 if it is in another one.
    work : str
        Sentence about the time that the answer takes; empty if it is short.
    """

    margin: str
    cost: str
    after: str
    button: str
    question: str
    sql: str
    amount: float
    work: str


def price_view(price: Mapping[str, Any], budget: BudgetView, *, work: float = 0.0) -> PriceView:
    """Return the presentation of a preview.

    Parameters
    ----------
    price : mapping
        Preview as the API returns it.
    budget : BudgetView
        Budget from which the answer would be paid.
    work : float
        Estimated seconds of work; 0 if they need not be mentioned.
    """
    is_free = price.get("free") or not price["cost"]
    return PriceView(
        margin=_margin(price),
        amount=budget.price(price["cost"]),
        question=price["question"],
        sql=price["sql"],
        work=f"Answering takes about {formatting.duration(work)} of computing time."
        if work and not is_free
        else "",
        **_price_texts(price, budget),
    )


def _margin(price: Mapping[str, Any]) -> str:
    """Return how far off an answer may be, by earlier counts of its groups or the public number of rows."""
    margins = [one["margin"] for one in price["expected"]]
    if margins:
        least, most = (number_with_margin(margin, margin) for margin in (min(margins), max(margins)))
        unit = price["columns"][0]["measure"]
        return f"± {least} to {append_unit(most, unit)} by group, from your earlier counts (95 %)"
    rows = price["n_rows"]
    known = [column for column in price["columns"] if _column_margin(column) is not None]
    if not known:
        return "The margin of error depends on the number of rows"
    if not any(_column_margin(column) for column in known):
        return "Exact"
    texts = [_margin_text(column) for column in known]
    several = len(price["columns"]) > 1
    text = ", ".join(
        f"{column['name']} ± {one}" if several else f"± {one}"
        for column, one in zip(known, texts, strict=True)
    )
    if not price["by"]:
        is_least = rows is not None and " where " in price["question"]
        return f"{'At least ' if is_least else ''}{text} (95 %)"
    if rows is None:
        return f"{text} in each group (95 %)"
    return f"{text} in a group of {rows:,.0f} rows (rows split evenly; 95 %); wider in smaller groups"


def _column_margin(column: Mapping[str, Any]) -> float | None:
    """Return how far off a statistic may be; for a quantile in rows, by which its rank may be off."""
    margin: float | None = column["margin"] if column["rank_margin"] is None else column["rank_margin"]
    return margin


def _margin_text(column: Mapping[str, Any]) -> str:
    """Return how far off a statistic may be as text, with its unit."""
    margin = _column_margin(column)
    assert margin is not None
    unit = column["measure"] if column["rank_margin"] is None else "rows in rank"
    return append_unit(number_with_margin(margin, margin), unit)


def _price_texts(price: Mapping[str, Any], budget: BudgetView) -> dict[str, str]:
    """Return the texts of cost, remaining budget and button."""
    if price.get("free") or not price["cost"]:
        if price["cost"]:
            cost, after = "already paid: free", "You paid for this before and get the same answer."
        else:
            cost, after = "free", "It follows from public facts."
        return {"cost": cost, "after": after, "button": "Ask: free"}
    more, takes = price["more"], price["remaining"]["takes"]
    if takes is None:
        part = share = words = format_full_cost(price, budget)
    else:
        part = describe_takes(takes, budget.whose(price["remaining"]["nearer"]))
        share, words = format_share(takes["share"]), budget.format_cost(price["cost"])
    if more is None:
        rest = ""
    elif takes_all(price["remaining"]):
        rest = " It would take all of the budget: nothing could be asked after it."
    elif more <= 0:
        rest = " That is more than is left."
    else:
        rest = (
            " The remaining budget pays for it once."
            if more == 1
            else f" The remaining budget pays for {more:,} of these."
        )
    fits = more is None or more > 0
    return {
        "cost": f"costs {part}",
        "after": f"{words}.{rest}",
        "button": f"Ask: costs {share}" if fits else "Ask",
    }


def format_full_cost(response: Mapping[str, Any], budget: BudgetView) -> str:
    """Return the cost in a response as text, in the currency of the limit and as an epsilon."""
    _, bracket, epsilon = str(response["cost_words"]).partition(" (")
    return budget.format_cost(response["cost"]) + bracket + epsilon
