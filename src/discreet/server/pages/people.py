"""Pages of a curator about people: their tokens and roles, and how the budget is shared out among them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.errors import DiscreetError
from discreet.formatting import currency_symbol, format_amounts, format_share
from discreet.privacy.promises import describe_promise
from discreet.server.api.csv_response import csv_response
from discreet.server.api.curator_routes import describe_revoked
from discreet.server.callers import EVERY, check_grant
from discreet.server.dataset_config import Limit
from discreet.server.errors import ApiError, ApiException, curator_error
from discreet.server.pages.budget import (
    SHARED_LIMIT,
    account_bar,
    account_currency,
    format_spending,
    spent_share,
)
from discreet.server.pages.page import PageRequest, redirect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup
    from starlette.responses import Response

_MOST_NAMES = 1000  # tokens that are created at once
_TOKEN_FIELDS = {"names": "", "role": "analyst", "days": "90", "limit": ""}  # of an empty form
_ALLOCATION_FIELDS = {"whom": "", "amount": "", "name": "", "group": ""}
_NOTICES = {
    "granted": "The role was granted.",
    "withdrawn": "The role was withdrawn. Open sessions have ended.",
    "revoked": "The token was revoked. Open sessions have ended.",
    "limit": "The limit was changed. It holds from the next question on, and includes what was spent before.",
    "group": "The group was changed. This holds from the next question on.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLine:
    """A token as a row of a table; `here` if it is valid at this data set alone."""

    name: str
    role: str
    state: tuple[str, str]
    created: str
    expires: str
    valid: bool
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationLine:
    """An analyst or a group with its limit, as a row of a table; `among` is the group, or the members."""

    name: str
    among: str
    limit: str
    spent: str
    left: str
    bar: Markup | str
    share: str


def token_lines(tokens: Sequence[Mapping[str, Any]]) -> list[TokenLine]:
    """Return the table rows of all tokens, valid ones first."""
    kinds = {"valid": "ok", "expired": "warn", "revoked": "plain"}
    lines = [
        TokenLine(
            name=token["name"],
            role=token["role"] or "no role",
            state=(kinds.get(token["state"], "plain"), token["state"]),
            created=_day(token["created"]),
            expires=_day(token["expires"]),
            valid=token["state"] == "valid",
            here=token["at"] != EVERY,
        )
        for token in tokens
    ]
    return sorted(lines, key=lambda line: not line.valid)


def allocation_line(account: Mapping[str, Any], among: str) -> AllocationLine:
    """Return the table row of an analyst or a group, as :meth:`DatasetService.list_allocations` has it."""
    share = spent_share(account)
    limit = account["limit"]
    return AllocationLine(
        name=account["name"],
        among=among,
        limit=SHARED_LIMIT if limit is None else describe_promise(limit),
        spent=format_spending(account),
        left="what is left for all" if account["left"] is None else format_amounts(account["left"], up=False),
        bar="" if share is None else account_bar(account),
        share="" if share is None else f"{format_share(share)} spent",
    )


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


# The pages.


async def people_page(page_request: PageRequest) -> Response:
    """Return the page with tokens, roles, limits and groups."""
    notice = _NOTICES.get(page_request.http.query_params.get("done", ""), "")
    return await page_request.run_in_thread(lambda: _page(page_request, notice=notice))


async def order_token(page_request: PageRequest) -> Response:
    """Create, rotate or revoke tokens; new ones are in the returned page or file only."""
    fields = await page_request.form()
    return await page_request.run_in_thread(lambda: _apply_token_order(page_request, fields))


async def order_allocation(page_request: PageRequest) -> Response:
    """Change the limit of an analyst or a group, or who is in a group."""
    fields = await page_request.form()
    return await page_request.run_in_thread(lambda: _apply_allocation(page_request, fields))


def _apply_token_order(page_request: PageRequest, fields: Mapping[str, str]) -> Response:
    """Carry out the action of a token form and return the page or the file that follows."""
    service, curator, name = page_request.target, page_request.caller.name, fields.get("name", "").strip()
    action = fields.get("action", "")
    try:
        match action:
            case "create" | "download":
                made = service.create_tokens(
                    curator,
                    _names(fields),
                    _role(fields),
                    days=_days(fields.get("days", "")),
                    limit=_limit(page_request, fields.get("limit", "")),
                )
                if action == "download":
                    return csv_response(("name", "token"), made.items(), "tokens")
            case "rotate":
                made = {name: service.rotate_token(curator, name)}
            case "grant":
                names, role = _names(fields), _role(fields)
                for one in names:
                    check_grant(one, service.name, role)  # all of them, before the first is granted
                for one in names:
                    service.grant(curator, one, role)
                return _done(page_request, "granted")
            case "withdraw":
                service.withdraw(curator, name)
                return _done(page_request, "withdrawn")
            case "revoke":
                service.revoke_token(curator, name)
                return _done(page_request, "revoked")
            case _:
                return redirect(f"{page_request.base}/curator/people")
    except (DiscreetError, ApiException) as error:
        done = describe_revoked(service, name) if action == "revoke" else ""
        problem = curator_error(error, done)
        order = {key: fields.get(key, value) for key, value in _TOKEN_FIELDS.items()}
        return _page(page_request, problem=problem, order=order)
    return _page(page_request, fresh=made)


def _apply_allocation(page_request: PageRequest, fields: Mapping[str, str]) -> Response:
    """Carry out the action of a form about limits or groups."""
    service, curator = page_request.target, page_request.caller.name
    kind, _, whom = fields.get("whom", "").partition(":")
    name, group = fields.get("name", "").strip(), fields.get("group", "").strip()
    action = fields.get("action", "")
    try:
        match action, kind:
            case (("limit" | "no-limit"), ("analyst" | "group")):
                limit = _limit(page_request, fields.get("amount", "")) if action == "limit" else None
                if action == "limit" and limit is None:
                    raise _invalid(
                        "A limit must be a number above 0.", "To have none, choose Remove the limit."
                    )
                service.allocations.set_limit(curator, kind, whom, limit)
                return _done(page_request, "limit")
            case (("limit" | "no-limit"), _):
                raise _invalid("A limit belongs to an analyst or a group.", "Choose one from the list.")
            case "join", _:
                service.allocations.set_group(curator, name, group)
                return _done(page_request, "group")
            case "leave", _:
                service.allocations.set_group(curator, name, None)
                return _done(page_request, "group")
    except (DiscreetError, ApiException) as error:
        order = {key: fields.get(key, value) for key, value in _ALLOCATION_FIELDS.items()}
        return _page(page_request, problem=curator_error(error), allocation=order)
    return redirect(f"{page_request.base}/curator/people")


def _done(page_request: PageRequest, what: str) -> Response:
    return redirect(f"{page_request.base}/curator/people?done={what}")


def _names(fields: Mapping[str, str]) -> list[str]:
    """Return the names in a form, one per line, without empty lines."""
    names = [line.strip() for line in fields.get("names", "").splitlines() if line.strip()]
    if not 0 < len(names) <= _MOST_NAMES:
        raise _invalid(f"There must be 1 to {_MOST_NAMES:,} names, one per line.", "Give at least one.")
    return names


def _role(fields: Mapping[str, str]) -> Any:
    return fields.get("role", "analyst")


def _days(text: str) -> int:
    cleaned = text.strip()
    if not (cleaned.isascii() and cleaned.isdigit() and len(cleaned) < 6):
        raise _invalid(
            "The days until the token expires must be a whole number.", "Give a number such as 90."
        )
    return int(cleaned)


def _limit(page_request: PageRequest, text: str) -> Any:
    """Return the promise of a limit of the kind of the total; None for an empty text."""
    cleaned = text.strip()
    if not cleaned:
        return None
    try:
        amount = float(cleaned)
    except ValueError:
        amount = float("nan")
    if not 0 < amount < float("inf"):
        raise _invalid(
            "A limit must be a number above 0.", "Write it with a decimal point, or leave it empty."
        )
    name, _, rest = _limit_kind(page_request)
    return Limit(**{name: amount, **rest}).promise(page_request.target.dataset.schema)


def _invalid(message: str, hint: str) -> ApiException:
    return ApiException(ApiError(code="invalid", message=message, hint=hint))


def _limit_kind(page_request: PageRequest) -> tuple[str, str, dict[str, Any]]:
    """Return key, text of the delta and other keys of a limit, as the limit of the data set has them."""
    total = page_request.target.budget(page_request.caller)["total"]
    if total["limit"]["kind"] == "approx-dp":
        delta: float = total["limit"]["delta"]
        return "epsilon", formatting.number(delta, rounding="down"), {"delta": delta}
    return account_currency(total)[0] or "rho", "", {}


def _page(
    page_request: PageRequest,
    *,
    notice: str = "",
    problem: ApiError | None = None,
    fresh: Mapping[str, str] | None = None,
    order: Mapping[str, str] = _TOKEN_FIELDS,
    allocation: Mapping[str, str] = _ALLOCATION_FIELDS,
) -> Response:
    """Return the page, with a notice, an error, new tokens or the fields of a refused form if given."""
    service = page_request.target
    accounts = service.list_allocations()
    name, delta, _ = _limit_kind(page_request)
    return page_request.render(
        "people.html.j2",
        status=200 if problem is None else problem.status,
        notice=notice,
        problem=problem,
        fresh=fresh,
        fresh_text="\n".join(f"{name},{token}" for name, token in (fresh or {}).items()),
        order=order,
        allocation=allocation,
        letter=currency_symbol(name),
        delta=delta,
        people=service.dataset.accounting.people,
        tokens=token_lines(service.tokens()),
        analysts=[allocation_line(one, one["group"] or "") for one in accounts["analysts"]],
        groups=[allocation_line(one, ", ".join(one["members"])) for one in accounts["groups"]],
    )
