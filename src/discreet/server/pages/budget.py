"""Budgets and prices of the wire, in questions and in shares before amounts."""

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
from discreet.privacy.promises import describe_promise
from discreet.report.charts.bars import share_bar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

_LITTLE, _ALMOST_NOTHING = 0.75, 0.95  # shares spent from which a bar changes its color
_USUAL_SHARE = 100  # a first suggestion: one of so many questions


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """What somebody may still spend.

    Attributes
    ----------
    currency : str
        In which prices are compared; empty without a limit.
    limit : float
        Of that; 0 without one.
    whose : str
        "your budget", or that of all together.
    lead, after : str
        The rest, in questions.
    bar : Markup
        A picture of it.
    amounts : tuple of (str, str)
        The rest, in amounts, with the rules.
    """

    currency: str
    limit: float
    whose: str
    lead: str
    after: str
    bar: Markup
    amounts: tuple[tuple[str, str], ...]

    @property
    def letter(self) -> str:
        """Sign of the currency."""
        return currency_symbol(self.currency or "rho")

    @property
    def usual(self) -> str:
        """A price to begin with."""
        return f"{(self.limit or 0.5) / _USUAL_SHARE:.2g}"

    def price(self, cost: Sequence[Mapping[str, Any]]) -> float:
        """Return a price in the currency of the limit; 0 if it is in another one."""
        return price_in(self.currency, cost)

    def price_words(self, cost: Sequence[Mapping[str, Any]]) -> str:
        """Write a price in the currency of the limit, or in its own."""
        price = self.price(cost)
        if price:
            return f"{self.letter} = {format_amount(price, up=True)}"
        return " and ".join(dict.fromkeys(describe_promise(promise) for promise in cost)) or "nothing"


def price_in(currency: str, cost: Sequence[Mapping[str, Any]]) -> float:
    """Return a price in a currency, in which the prices of several charges add up; 0 if it is in another."""
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


def most_left(told: Mapping[str, Any], currency: str) -> float | None:
    """Return what somebody may still spend in a currency, under their own limit and that of all."""
    lefts = [told[whose]["left"] for whose in ("own", "total")]
    return min((left[currency] for left in lefts if left and currency in left), default=None)


def currency_of(account: Mapping[str, Any]) -> tuple[str, float]:
    """Return the currency in which an account is best told, and its limit in it; ("", 0) without one."""
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
    """Return which part of its limit an account has spent; None without a limit."""
    currency, limit = currency_of(account)
    if not limit:
        return None
    rest: float = account["left"][currency] / limit
    questions = account["limit"].get("queries")
    return 1 - (rest if questions is None else min(rest, account["left"]["queries"] / questions))


def account_bar(account: Mapping[str, Any]) -> Markup:
    """Draw which part of its limit an account has spent."""
    share = spent_share(account) or 0.0
    return share_bar(share, kind=share_kind(share))


def share_kind(share: float) -> str:
    """Return how a page marks that so much of a limit is spent; empty while there is enough."""
    return "bad" if share > _ALMOST_NOTHING else "warn" if share > _LITTLE else ""


def spent_words(account: Mapping[str, Any]) -> str:
    """Say what an account has spent."""
    paid = {
        name: account["spent"][name] for name in ("rho", "epsilon", "delta") if account["spent"].get(name)
    }
    return format_amounts(paid, up=True) if paid else "nothing"


def budget_view(told: Mapping[str, Any], last: tuple[bool, int | None]) -> BudgetView:
    """Return the budget of somebody.

    Parameters
    ----------
    told : mapping
        As the wire has it.
    last : (bool, int or None)
        Whether they asked before, and how many more like their last question there may be.
    """
    own, total = told["own"], told["total"]
    mine = own["left"] is not None
    account = own if mine else total
    currency, limit = currency_of(account)
    share = spent_share(account)
    whose = "your budget" if mine else "the budget of all together"
    listed = [("You spent", spent_words(own))]
    if mine:
        listed += [
            ("Your limit", describe_promise(own["limit"])),
            ("Left for you", format_amounts(own["left"], up=False)),
        ]
    listed.append(("All together spent", spent_words(total)))
    if total["left"] is not None:
        listed += [
            ("The limit of all", describe_promise(total["limit"])),
            ("Left for all", format_amounts(total["left"], up=False)),
        ]
    listed.append(("If analysts share answers", told["collusion"]))
    return BudgetView(
        currency=currency,
        limit=limit,
        whose=whose,
        lead=_lead(last, limited=bool(limit)),
        after="" if share is None else f"{format_share(share)} of {whose} is spent.",
        bar=account_bar(account),
        amounts=tuple(listed),
    )


def _lead(last: tuple[bool, int | None], *, limited: bool) -> str:
    asked, more = last
    if not limited:
        return "There is no limit."
    if not asked:
        return "You have not asked yet."
    if more is None:
        return "Your last question was free."
    if more == 0:
        return "Too little is left for another question like your last one."
    return f"About {formatting.count_noun(more, 'question')} like your last one left."


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceView:
    """What is told before asking.

    Attributes
    ----------
    margin, cost, after : str
        How far off, how dear, what is left then.
    button : str
        What the button says.
    question, sql : str
        How it was read.
    amount : float
        The price in the currency of the budget; 0 if it is in another one.
    """

    margin: str
    cost: str
    after: str
    button: str
    question: str
    sql: str
    amount: float


def price_view(price: Mapping[str, Any], budget: BudgetView) -> PriceView:
    """Return the words of a price."""
    return PriceView(
        margin=_margin(price),
        amount=budget.price(price["cost"]),
        question=price["question"],
        sql=price["sql"],
        **_price_words(price, budget),
    )


def _margin(price: Mapping[str, Any]) -> str:
    margin = price["margin"]
    if margin is None:
        return "How far off depends on how many rows there are"
    if margin == 0:
        return "Exact"
    each = " in each group" if price["by"] else ""
    said = f"± {append_unit(number_with_margin(margin, margin), price['measure'])}{each} (95 %)"
    fewer = price["question"].startswith("mean") and " where " in price["question"]
    return f"At least {said}" if fewer else said


def _price_words(price: Mapping[str, Any], budget: BudgetView) -> dict[str, str]:
    if price.get("free") or not price["cost"]:
        if price["cost"]:
            cost, after = "already paid: free", "You paid for it before: the same answer again."
        else:
            cost, after = "free", "It follows from what is public."
        return {"cost": cost, "after": after, "button": "Ask: free"}
    words, more = full_words(price, budget), price["more"]
    part = budget.price(price["cost"])
    share = format_share(part / budget.limit) if part and budget.limit else None
    if more is None:
        rest = ""
    elif more <= 0:
        rest = " That is more than is left."
    else:
        rest = (
            " What is left pays for it once." if more == 1 else f" What is left pays for {more:,} of these."
        )
    fits = more is None or more > 0
    return {
        "cost": f"costs {words}" if share is None else f"costs {share} of {budget.whose}",
        "after": f"{words}.{rest}",
        "button": f"Ask: costs {share or words}" if fits else "Ask",
    }


def full_words(told: Mapping[str, Any], budget: BudgetView) -> str:
    """Write a price in the currency of the limit, and as the epsilon that it comes to."""
    _, bracket, epsilon = str(told["cost_words"]).partition(" (")
    return budget.price_words(told["cost"]) + bracket + epsilon
