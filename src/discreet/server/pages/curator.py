"""The curator's pages: who may come in, what was spent and refused, the attack, the switch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError, LedgerError, SourceError
from discreet.server.api.routes import revoked, stopped
from discreet.server.config import Limit
from discreet.server.errors import Problem, Refusal, told_to_curator
from discreet.server.pages.budget import currency_of
from discreet.server.pages.governing import (
    attack_view,
    refusal_lines,
    spending_view,
    tiles,
    token_lines,
)
from discreet.server.pages.history import budget_of, history_lines, past_answers
from discreet.server.pages.page import Visit, away
from discreet.server.pages.words import letter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.responses import Response

_ORDER = {"name": "", "scope": "analyst", "days": "90", "limit": ""}


async def curator_page(visit: Visit) -> Response:
    """Show how the service stands."""
    return await visit.desk(lambda: _page(visit))


async def analyst_page(visit: Visit) -> Response:
    """Show what one analyst asked."""
    name = visit.request.path_params["name"]
    return await visit.desk(lambda: _analyst(visit, name))


async def stop(visit: Visit) -> Response:
    """Turn the stop switch."""
    fields = await visit.form()
    turn = visit.office.resume if fields.get("stopped") == "no" else visit.office.stop
    try:
        await visit.desk(lambda: turn(visit.caller))
    except (LedgerError, SourceError) as error:
        return visit.notice(told_to_curator(error, stopped(visit.office)))
    return away("/curator")


async def attack(visit: Visit) -> Response:
    """Run the attack on everything answered so far."""
    await visit.form()

    def work() -> Response:
        return _page(visit, attack=attack_view(visit.office.attack()))

    return await visit.guard.long(work)


async def check(visit: Visit) -> Response:
    """Verify every row of the ledger and every line of the trail."""
    await visit.form()

    def work() -> Response:
        try:
            found = visit.office.check()
        except DiscreetError as error:
            # The curator is told what is wrong: it depends on files, not on rows.
            return _page(visit, problem=told_to_curator(error), status=503)
        rows, lines = found["rows"], found["trail_lines"]
        words = (
            f"Checked just now: {rows:,} rows of the ledger and {lines:,} lines of the trail fit together."
        )
        return _page(visit, notice=words)

    return await visit.desk(work)


async def order_token(visit: Visit) -> Response:
    """Create, rotate or revoke a token; a new one is on the page that follows, and nowhere else."""
    fields = await visit.form()
    return await visit.desk(lambda: _ordered(visit, fields))


def _analyst(visit: Visit, name: str) -> Response:
    lines = history_lines(past_answers(visit, analyst=name), budget_of(visit))
    return visit.page("analyst.html.j2", name=name, items=lines)


def _ordered(visit: Visit, fields: Mapping[str, str]) -> Response:
    office, by, name = visit.office, visit.caller.name, fields.get("name", "").strip()
    try:
        match fields.get("action"):
            case "create":
                limit = _limit(visit, fields.get("limit", ""))
                scope: Any = fields.get("scope", "analyst")
                days = _days(fields.get("days", ""))
                token = office.create_token(by, name, scope, days=days, limit=limit)
            case "rotate":
                token = office.rotate_token(by, name)
            case "revoke":
                office.revoke_token(by, name)
                return away("/curator#tokens-title")
            case _:
                return away("/curator")
    except (DiscreetError, Refusal) as error:
        done = revoked(office, name) if fields.get("action") == "revoke" else ""
        problem = told_to_curator(error, done)
        order = {key: fields.get(key, value) for key, value in _ORDER.items()}
        return _page(visit, problem=problem, status=problem.status, order=order)
    return _page(visit, fresh={"name": name, "token": token})


def _days(text: str) -> int:
    cleaned = text.strip()
    if not (cleaned.isascii() and cleaned.isdigit() and len(cleaned) < 6):
        raise _wrong("Days of a token must be a whole number.", "Give a number such as 90.")
    return int(cleaned)


def _limit(visit: Visit, text: str) -> Any:
    cleaned = text.strip()
    if not cleaned:
        return None
    try:
        amount = float(cleaned)
    except ValueError:
        amount = float("nan")
    if not 0 < amount < float("inf"):
        raise _wrong("The limit of an analyst must be a number above 0.", "Or leave it empty.")
    own: dict[str, Any] = {_currency(visit): amount}
    return Limit(**own).promise(visit.office.schema)


def _wrong(message: str, hint: str) -> Refusal:
    return Refusal(Problem(code="invalid", message=message, hint=hint))


def _currency(visit: Visit) -> str:
    name, _ = currency_of(visit.office.budget(visit.caller)["total"])
    return name or "rho"


def _page(
    visit: Visit,
    *,
    status: int = 200,
    notice: str = "",
    problem: Problem | None = None,
    fresh: Mapping[str, str] | None = None,
    attack: Any = None,
    order: Mapping[str, str] = _ORDER,
) -> Response:
    office = visit.office
    overview, refusals = office.overview(), office.refusals()
    ledger = overview["ledger"]
    return visit.page(
        "curator.html.j2",
        status=status,
        notice=notice,
        problem=problem,
        fresh=fresh,
        attack=attack,
        order=order,
        letter=letter(_currency(visit)),
        tiles=tiles(overview, refusals, office.access.now()),
        spending=spending_view(overview, office.spending()),
        tokens=token_lines(overview["tokens"]),
        refusals=refusal_lines(refusals),
        ledger={"rows": ledger["rows"], "head": ledger["head"]},
    )
