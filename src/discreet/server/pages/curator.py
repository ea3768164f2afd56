"""The curator's pages: who may come in, what was spent and refused, the attack, the switch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from discreet.errors import DiscreetError, LedgerError, SourceError
from discreet.report import wording
from discreet.report.charts import Mark, three_marks
from discreet.report.wording import currency_symbol, format_amounts
from discreet.server.api.routes import revoked, stopped
from discreet.server.config import Limit
from discreet.server.errors import Problem, Refusal, told_to_curator
from discreet.server.pages.budget import account_bar, currency_of, share_kind, spent_share, spent_words
from discreet.server.pages.charts import spending_steps
from discreet.server.pages.history import budget_of, history_lines, past_answers
from discreet.server.pages.page import Visit, away

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup
    from starlette.responses import Response

_SOON = 7 * 86_400  # seconds before its end in which a token is said to end soon
_REFUSALS = 50
_MOST_ASKED = 160  # characters of a refused question: the trail has more of it
_NOTHING, _HARDLY, _SOMEWHAT = 0.005, 0.05, 0.25  # parts of its error by which a guess gets better


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """A number at a glance."""

    kind: str
    title: str
    amount: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Analyst:
    """What one analyst has spent."""

    name: str
    charges: str
    spent: str
    left: str
    bar: Markup
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What was spent over time, and by whom."""

    caption: str
    picture: Markup
    analysts: tuple[Analyst, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLine:
    """What is known of a token."""

    name: str
    scope: str
    state: tuple[str, str]
    created: str
    expires: str
    valid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Attacked:
    """How well one column is guessed."""

    name: str
    verdict: tuple[str, str]
    bar: Markup
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackView:
    """What an attacker could rebuild."""

    alarms: tuple[str, ...]
    meaning: str
    lead: str
    after: tuple[str, ...]
    columns: tuple[Attacked, ...]


def tiles(overview: Mapping[str, Any], refusals: Sequence[Any], now: float) -> tuple[Tile, ...]:
    """Return the numbers at a glance."""
    total, tokens = overview["total"], overview["tokens"]
    share = spent_share(total)
    valid = [token for token in tokens if token["state"] == "valid"]
    soon = sum(token["expires"] - now < _SOON for token in valid)
    ending = f"{soon:,} of these tokens within their last week" if soon else "no token ends within a week"
    if share is None:
        spent = Tile(kind="warn", title="Spent by all", amount="no limit", note=spent_words(total))
    else:
        kind = share_kind(share) or "ok"
        note = f"{spent_words(total)} of {wording.promised(total['limit'])}"
        spent = Tile(kind=kind, title="Spent by all", amount=wording.percent(share, rounding="up"), note=note)
    charges = int(total["spent"]["charges"])
    return (
        spent,
        Tile(kind="", title="May come in", amount=f"{len(valid):,}", note=ending),
        Tile(kind="", title="Charges", amount=f"{charges:,}", note="paid for by noise; repeats are free"),
        Tile(
            kind="warn" if refusals else "ok",
            title="Refused",
            amount=f"{len(refusals):,}",
            note="of those the trail remembers",
        ),
    )


def spending_view(overview: Mapping[str, Any], spending: Mapping[str, Any]) -> Spending:
    """Return the picture of spending, and the table below it."""
    currency, limit = currency_of(overview["total"])
    name = currency or "rho"
    # Receipts tell times to the minute; the last charge of each is where its step ends.
    last = {step["when"]: step["spent"].get(name, 0.0) for step in spending["steps"]}
    sign = currency_symbol(name)
    return Spending(
        caption=f"{sign} spent over time"
        + (f", of {wording.number(limit, rounding='down')}" if limit else ""),
        picture=spending_steps("steps", list(last.items()), limit or None, sign),
        analysts=tuple(
            _analyst(who, account)
            for who, account in overview["analysts"].items()
            if account["spent"]["charges"] or account["left"] is not None
        ),
    )


def _analyst(name: str, account: Mapping[str, Any]) -> Analyst:
    share = spent_share(account)
    return Analyst(
        name=name,
        charges=f"{int(account['spent']['charges']):,}",
        spent=spent_words(account),
        left="no limit of their own"
        if account["left"] is None
        else format_amounts(account["left"], up=False),
        bar=account_bar(account),
        share="" if share is None else f"{wording.percent(share, rounding='up')} spent",
    )


def token_lines(tokens: Sequence[Mapping[str, Any]]) -> list[TokenLine]:
    """Return all tokens, those that open the door first."""
    kinds = {"valid": "ok", "expired": "warn", "revoked": "plain"}
    lines = [
        TokenLine(
            name=token["name"],
            scope=token["scope"],
            state=(kinds.get(token["state"], "plain"), token["state"]),
            created=_day(token["created"]),
            expires=_day(token["expires"]),
            valid=token["state"] == "valid",
        )
        for token in tokens
    ]
    return sorted(lines, key=lambda line: not line.valid)


def refusal_lines(refusals: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the last refusals in words."""
    return [
        {
            "when": wording.date(str(one["when"])),
            "who": one["who"] or "nobody known",
            "code": one["code"],
            "what": wording.shortened(one["asked"], _MOST_ASKED)
            if one["asked"]
            else "nothing that could be read",
        }
        for one in refusals[:_REFUSALS]
    ]


def attack_view(attack: Mapping[str, Any]) -> AttackView:
    """Return what an attacker could rebuild, in words and on bars from a perfect guess."""
    columns = [column for column in attack["columns"] if column["answers"]]
    told = {column["sentence"] for column in columns}
    alarms = set(attack["alarms"])
    said = [
        sentence
        for sentence in attack["sentences"]
        if sentence not in told and sentence.removeprefix("Alarm: ") not in alarms
    ]
    return AttackView(
        alarms=tuple(attack["alarms"]),
        meaning=_meaning([column["guess"] for column in columns]),
        lead=said[0] if said else "",
        after=tuple(said[1:]),
        columns=tuple(_attacked(k, column) for k, column in enumerate(columns)),
    )


def _meaning(guesses: Sequence[Mapping[str, Any]]) -> str:
    """Say in one sentence what it all comes to: by how much answers help whoever has all of them."""
    gains = [
        (1 - guess["error"] / guess["without"], k) for k, guess in enumerate(guesses) if guess["without"]
    ]
    if not gains:
        return ""
    gain, k = max(gains)
    if gain < _NOTHING:
        return "All answers together make no column easier to guess than it was without them."
    guess = guesses[k]
    how = "hardly" if gain < _HARDLY else "somewhat" if gain < _SOMEWHAT else "much"
    before, after = _error(guess, guess["without"]), _error(guess, guess["error"])
    return (
        f"All answers together help an attacker {how}: most with {wording.name(guess['column'])}, where the "
        f"error of a guess falls from {before} to {after}, by {wording.percent(gain, rounding='up')}."
    )


def _error(guess: Mapping[str, Any], value: float) -> str:
    return wording.quantity(value, guess["measure"], chance=wording.is_chance(guess["statistic"]))


def _attacked(k: int, column: Mapping[str, Any]) -> Attacked:
    guess = column["guess"]
    chance = wording.is_chance(guess["statistic"])

    marks = [
        Mark(
            kind="without",
            error=guess["without"],
            words=f"Without any answer: {_error(guess, guess['without'])}.",
        ),
        Mark(
            kind="attack",
            error=guess["error"],
            words=f"With all answers: {_error(guess, guess['error'])}.",
            lower=guess["lower"],
            upper=guess["upper"],
        ),
    ]
    floor = guess["floor"]
    if floor is not None:
        marks.append(Mark(kind="floor", error=floor, words=f"Proven floor: {_error(guess, floor)}."))
    if floor is None:
        verdict = ("plain", "no floor")
    else:
        # On real rows the floor is for a value that could be anybody's, and decides nothing: see the words.
        verdict = ("ok", "floor holds") if guess["upper"] >= floor else ("plain", "better than the floor")
    _, _, words = column["sentence"].partition(": ")
    return Attacked(
        name=guess["column"],
        verdict=verdict,
        bar=three_marks(f"attack-{k}", guess["column"], marks, chance=chance),
        words=words[:1].upper() + words[1:],
    )


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()


_ORDER = {"name": "", "scope": "analyst", "days": "90", "limit": ""}


async def curator_page(visit: Visit) -> Response:
    """Show how the service stands."""
    return await visit.desk(lambda: _page(visit))


async def analyst_page(visit: Visit) -> Response:
    """Show what one analyst asked."""
    name = visit.request.path_params["name"]
    return await visit.desk(lambda: _analyst_page(visit, name))


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


def _analyst_page(visit: Visit, name: str) -> Response:
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
        letter=currency_symbol(_currency(visit)),
        tiles=tiles(overview, refusals, office.access.now()),
        spending=spending_view(overview, office.spending()),
        tokens=token_lines(overview["tokens"]),
        refusals=refusal_lines(refusals),
        ledger={"rows": ledger["rows"], "head": ledger["head"]},
    )
