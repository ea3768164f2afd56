"""Pages of a curator: spending, refusals, the reconstruction attack, the ledger and the stop switch."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet import formatting
from discreet.errors import DiscreetError, LedgerError, SourceError
from discreet.formatting import currency_symbol, format_amounts, format_share
from discreet.privacy.promises import describe_promise
from discreet.report.charts import Mark, three_marks
from discreet.report.charts.bars import spending_steps
from discreet.server.api.curator_routes import describe_stopped
from discreet.server.errors import ATTACK_FAILED, ApiError, ApiException, curator_error
from discreet.server.pages.budget import (
    SHARED_LIMIT,
    account_bar,
    account_currency,
    format_spending,
    share_kind,
    spent_share,
)
from discreet.server.pages.history import caller_budget, history_lines, past_answers
from discreet.server.pages.page import PageRequest, redirect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup
    from starlette.responses import Response

_SOON = 7 * 86_400  # seconds before its end in which a token counts as ending soon
_REFUSALS = 50
PATIENCE = 1.0
"""Seconds that the page waits for an attack; after that it shows how far the attack is."""
_MOST_ASKED = 160  # characters shown of a refused query; the audit log has more
REASONS = {
    "malformed": "request not readable",
    "unauthorized": "no valid token",
    "forbidden": "no permission",
    "not-found": "unknown address",
    "method-not-allowed": "unknown HTTP method",
    "budget-exceeded": "too little budget left",
    "key-reused": "key of another question",
    "canceled": "canceled by the analyst",
    "request-timeout": "request body too slow",
    "too-large": "request too large",
    "unsupported-media": "request not in JSON",
    "invalid": "wrong value in the request",
    "refused": "question not understood",
    "stopped": "data set stopped",
    "busy": "too many questions at once",
    "rate-limited": "too many requests",
    "work-limited": "computing time of the hour used up",
    "failed": "internal error",
    "engine-failed": "database failed",
    "interrupted": "service stopped",
    "ledger-unavailable": "ledger unavailable",
}
"""Words for each error code, as the table of refused questions shows it."""
_NOTHING, _HARDLY, _SOMEWHAT = 0.005, 0.05, 0.25  # relative decrease of a guess's error, for its description


@dataclass(frozen=True, slots=True, kw_only=True)
class CuratorTile:
    """A tile of the summary: one number with title and note."""

    kind: str
    title: str
    amount: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalystView:
    """Spending of one analyst as a row of a table."""

    name: str
    charges: str
    spent: str
    left: str
    bar: Markup | str
    share: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingView:
    """Spending over time as a chart, and by analyst as a table."""

    caption: str
    picture: Markup
    analysts: tuple[AnalystView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAttack:
    """How well an attacker guesses one column, in words and as a chart."""

    name: str
    verdict: tuple[str, str]
    bar: Markup
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackView:
    """Result of the reconstruction attack: alarms, summary, further sentences, and one entry per column."""

    alarms: tuple[str, ...]
    meaning: str
    lead: str
    after: tuple[str, ...]
    columns: tuple[ColumnAttack, ...]


def summary_tiles(
    overview: Mapping[str, Any], refusals: Sequence[Any], now: float
) -> tuple[CuratorTile, ...]:
    """Return the tiles of the summary; `now` is in seconds since 1970."""
    total, tokens = overview["total"], overview["tokens"]
    share = spent_share(total)
    valid = [token for token in tokens if token["state"] == "valid"]
    soon = sum(token["expires"] - now < _SOON for token in valid)
    ending = f"expiring within a week: {soon:,}" if soon else "none expires within a week"
    if share is None:
        spent = CuratorTile(kind="warn", title="Spent by all", amount="no limit", note=format_spending(total))
    else:
        kind = share_kind(share) or "ok"
        used = total["used"]
        if used["limit"] is None:
            note = f"{format_spending(total)} of {describe_promise(total['limit'])}"
        else:
            epsilon = formatting.number(used["epsilon"], rounding="up")
            note = f"epsilon {epsilon} so far, {used['limit']:g} at most"
        spent = CuratorTile(kind=kind, title="Spent by all", amount=format_share(share), note=note)
    charges = int(total["spent"]["charges"])
    return (
        spent,
        CuratorTile(kind="", title="Valid tokens", amount=f"{len(valid):,}", note=ending),
        CuratorTile(
            kind="", title="Charges", amount=f"{charges:,}", note="repeated questions are not charged again"
        ),
        CuratorTile(
            kind="warn" if refusals else "ok",
            title="Refused",
            amount=f"{len(refusals):,}",
            note="only the latest 200 are counted",
        ),
    )


def spending_view(overview: Mapping[str, Any], spending: Mapping[str, Any]) -> SpendingView:
    """Return the chart of spending and the table below it."""
    currency, limit = account_currency(overview["total"])
    name = currency or "rho"
    # Receipts have times to the minute; the last charge of a minute is where its step ends. The order is that
    # of the ledger: a charge of a clock that was set back is drawn at the time of the one before.
    times = itertools.accumulate((step["when"] for step in spending["steps"]), max)
    last = {when: step["spent"].get(name, 0.0) for when, step in zip(times, spending["steps"], strict=True)}
    symbol = currency_symbol(name)
    return SpendingView(
        caption=f"{symbol} spent over time"
        + (f", of {formatting.number(limit, rounding='down')}" if limit else ""),
        picture=spending_steps("steps", list(last.items()), limit or None, symbol),
        analysts=tuple(
            _analyst(analyst, account)
            for analyst, account in overview["analysts"].items()
            if account["spent"]["charges"] or account["left"] is not None
        ),
    )


def _analyst(name: str, account: Mapping[str, Any]) -> AnalystView:
    """Return the table row of one analyst."""
    share = spent_share(account)
    return AnalystView(
        name=name,
        charges=f"{int(account['spent']['charges']):,}",
        spent=format_spending(account),
        left=SHARED_LIMIT if account["left"] is None else format_amounts(account["left"], up=False),
        bar="" if share is None else account_bar(account),
        share="" if share is None else f"{format_share(share)} spent",
    )


def refusal_lines(refusals: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the table rows of the last refusals."""
    return [
        {
            "when": formatting.date(str(one["when"])),
            "who": one["who"] or "unknown",
            "why": REASONS.get(one["code"], one["code"]),
            "what": formatting.shorten(one["asked"], _MOST_ASKED) if one["asked"] else "not readable",
        }
        for one in refusals[:_REFUSALS]
    ]


def attack_view(attack: Mapping[str, Any]) -> AttackView:
    """Return the result of the attack in words and as bars that begin at a perfect guess."""
    columns = [column for column in attack["columns"] if column["answers"]]
    column_sentences = {column["sentence"] for column in columns}
    alarms = set(attack["alarms"])
    sentences = [
        sentence
        for sentence in attack["sentences"]
        if sentence not in column_sentences and sentence.removeprefix("Alarm: ") not in alarms
    ]
    return AttackView(
        alarms=tuple(attack["alarms"]),
        meaning=_attack_summary([column["guess"] for column in columns]),
        lead=sentences[0] if sentences else "",
        after=tuple(sentences[1:]),
        columns=tuple(_column_attack(k, column) for k, column in enumerate(columns)),
    )


def _attack_summary(guesses: Sequence[Mapping[str, Any]]) -> str:
    """Return one sentence that says how much all answers together help an attacker; empty for none."""
    gains = [
        (1 - guess["error"] / guess["without"], k) for k, guess in enumerate(guesses) if guess["without"]
    ]
    if not gains:
        return ""
    gain, k = max(gains)
    if gain < _NOTHING:
        return "All answers together make no column easier to guess than without them."
    guess = guesses[k]
    little = "help an attacker somewhat" if gain < _SOMEWHAT else "help an attacker a lot"
    how = "hardly help an attacker" if gain < _HARDLY else little
    before, after = _error(guess, guess["without"]), _error(guess, guess["error"])
    return (
        f"All answers together {how}, most with {formatting.name(guess['column'])}, where "
        f"the error of a guess falls from {before} to {after}, by {formatting.percent(gain, rounding='up')}."
    )


def _error(guess: Mapping[str, Any], value: float) -> str:
    return formatting.quantity(value, guess["measure"], chance=formatting.is_chance(guess["statistic"]))


def _column_attack(k: int, column: Mapping[str, Any]) -> ColumnAttack:
    """Return the entry of one column: errors without and with answers, and the proven floor."""
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
        # The floor is a mean over possible values, so a guess on the real rows may be better: see `words`.
        verdict = ("ok", "floor holds") if guess["upper"] >= floor else ("plain", "better than the floor")
    _, _, words = column["sentence"].partition(": ")
    return ColumnAttack(
        name=guess["column"],
        verdict=verdict,
        bar=three_marks(f"attack-{k}", guess["column"], marks, chance=chance),
        words=words[:1].upper() + words[1:],
    )


async def curator_page(page_request: PageRequest) -> Response:
    """Return the overview of the data set."""
    return await page_request.run_in_thread(lambda: _page(page_request))


async def analyst_page(page_request: PageRequest) -> Response:
    """Return the page with the queries of one analyst."""
    name = page_request.http.path_params["name"]
    return await page_request.run_in_thread(lambda: _analyst_page(page_request, name))


async def stop(page_request: PageRequest) -> Response:
    """Stop or resume the data set."""
    fields = await page_request.form()
    switch = page_request.target.resume if fields.get("stopped") == "no" else page_request.target.stop
    try:
        await page_request.run_in_thread(lambda: switch(page_request.caller))
    except (LedgerError, SourceError) as error:
        return page_request.render_error(curator_error(error, describe_stopped(page_request.target)))
    return redirect(f"{page_request.base}/curator")


async def attack(page_request: PageRequest) -> Response:
    """Begin or continue the reconstruction attack, and show its result or how far it is."""
    await page_request.form()

    def work() -> Response:
        try:
            page_request.target.attack(patience=PATIENCE)
        except ApiException as error:
            if error.error is ATTACK_FAILED:
                raise
            return _page(page_request, notice=f"{error.error.message} Reload this page later.")
        return _page(page_request)

    return await page_request.middleware.run_long(work)


async def check(page_request: PageRequest) -> Response:
    """Verify every row of the ledger and every line of the audit log."""
    await page_request.form()

    def work() -> Response:
        try:
            counts = page_request.target.check()
        except DiscreetError as error:
            # Shown in full to the curator, since it depends on files, not on rows.
            return _page(page_request, problem=curator_error(error), status=503)
        rows, lines = counts["rows"], counts["trail_lines"]
        words = (
            f"Checked just now: {rows:,} rows of the ledger and {lines:,} lines of the audit log are "
            "consistent."
        )
        return _page(page_request, notice=words)

    return await page_request.run_in_thread(work)


def _analyst_page(page_request: PageRequest, name: str) -> Response:
    lines = history_lines(
        past_answers(page_request, analyst=name), caller_budget(page_request), page_request.base
    )
    return page_request.render("analyst.html.j2", name=name, items=lines)


def _page(
    page_request: PageRequest,
    *,
    status: int = 200,
    notice: str = "",
    problem: ApiError | None = None,
) -> Response:
    """Return the overview with the last attack, and with a notice or an error if given."""
    service = page_request.target
    result = service.dataset.attack.last()
    overview, refusals = service.overview(), service.refusals()
    ledger = overview["ledger"]
    return page_request.render(
        "curator.html.j2",
        status=status,
        notice=notice,
        problem=problem,
        attack=None if result is None else attack_view(result),
        attack_row=0 if result is None else result["through_row"],
        tiles=summary_tiles(overview, refusals, service.access.now()),
        spending=spending_view(overview, service.spending_history()),
        refusals=refusal_lines(refusals),
        ledger={"rows": ledger["rows"], "head": ledger["head"]},
    )
