"""What the curator's page shows: spending, tokens, refusals, the attack and the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.privacy.promises import describe_promise
from discreet.report.charts import Mark, three_marks
from discreet.report.charts.bars import spending_steps
from discreet.server.pages.budgets import account_bar, currency_of, share_kind, spent_share, spent_words
from discreet.server.pages.words import amounts, letter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

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
        note = f"{spent_words(total)} of {describe_promise(total['limit'])}"
        spent = Tile(
            kind=kind, title="Spent by all", amount=formatting.percent(share, rounding="up"), note=note
        )
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
    sign = letter(name)
    return Spending(
        caption=f"{sign} spent over time"
        + (f", of {formatting.number(limit, rounding='down')}" if limit else ""),
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
        left="no limit of their own" if account["left"] is None else amounts(account["left"], up=False),
        bar=account_bar(account),
        share="" if share is None else f"{formatting.percent(share, rounding='up')} spent",
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
            "when": formatting.date(str(one["when"])),
            "who": one["who"] or "nobody known",
            "code": one["code"],
            "what": formatting.shorten(one["asked"], _MOST_ASKED)
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
        f"All answers together help an attacker {how}: most with {formatting.name(guess['column'])}, where "
        f"the error of a guess falls from {before} to {after}, by {formatting.percent(gain, rounding='up')}."
    )


def _error(guess: Mapping[str, Any], value: float) -> str:
    return formatting.quantity(value, guess["measure"], chance=formatting.is_chance(guess["statistic"]))


def _attacked(k: int, column: Mapping[str, Any]) -> Attacked:
    guess = column["guess"]
    chance = formatting.is_chance(guess["statistic"])

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
