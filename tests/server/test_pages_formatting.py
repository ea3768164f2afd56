"""Numbers and pictures of the pages: safe rounding, and no answer that cannot be drawn."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.formatting import NumberFormat, format_amount, format_amounts, format_share, number_with_margin
from discreet.ledger import Ledger
from discreet.privacy import ZCDP, ApproxDP, PureDP
from discreet.query import Database
from discreet.query.frames import spent_amounts
from discreet.query.language.query import build_query, parse_query
from discreet.report.charts import ChartAxis
from discreet.report.charts.bars import IntervalMark, cell_bar, interval_bar, share_bar, spending_steps
from discreet.schema import Column, Schema
from discreet.server.pages.answer import csv_file
from discreet.server.pages.budget import account_currency, budget_view, cost_in_currency, spent_share
from discreet.server.pages.forms import AskForm, FieldError
from tests.server.markup import read

numbers = st.floats(-1e100, 1e100)
margins = st.floats(0, 1e100)
amounts_of_privacy = st.floats(1e-12, 1e6)


def parsed(text: str) -> float:
    plain = text.replace(",", "").replace("\u2212", "-").replace("\u00a0", "")
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    if "10" in plain and (power := re.fullmatch(r"(?:(-?[\d.]+)×)?(-?)10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", plain)):
        lead = float(power[1] or f"{power[2]}1")
        return lead * 10.0 ** int(power[3].translate(digits))
    return float(plain)


@given(numbers, margins)
def test_a_number_is_written_to_a_tenth_of_its_margin(value: float, margin: float) -> None:
    written = parsed(number_with_margin(value, margin))
    assert written == pytest.approx(value, rel=1e-2, abs=max(margin / 10, 1e-15))


@given(numbers, margins.filter(bool))
def test_intervals_are_rounded_outward_to_three_digits_of_their_margin_at_most(
    value: float, margin: float
) -> None:
    write = NumberFormat.from_margins([margin])
    lower, upper = value - margin, value + margin
    low, high = map(parsed, write.interval(lower, upper).split(" to "))
    dust = 1e-12 * (abs(lower) + abs(upper))  # of reading a text back
    assert low <= lower + dust
    assert upper - dust <= high
    wide = NumberFormat.from_margins([5_879_892.0])
    assert wide(57_476_890) == "57,480,000"
    assert wide.interval(51_596_998, 63_356_782) == "51,590,000 to 63,360,000"


@given(amounts_of_privacy)
def test_what_was_spent_is_rounded_up_and_what_is_left_down(value: float) -> None:
    dust = 1 + 1e-11  # of floating point, which is no privacy
    assert parsed(format_amount(value, up=True)) * dust >= value
    assert parsed(format_amount(value, up=False)) <= value * dust
    assert parsed(format_share(value / 1e6).removesuffix("%")) * dust >= 100 * value / 1e6
    assert format_amount(0.005 + 1e-17, up=True) == "0.005"


def test_only_privacy_is_listed_among_amounts() -> None:
    assert format_amounts({"rho": 0.25, "total variation": 1e-20}, up=False) == "ρ = 0.25"
    assert format_amounts({}, up=True) == format_amounts(None, up=True) == "none"


@given(st.lists(st.tuples(numbers, margins), min_size=1, max_size=3))
def test_every_answer_can_be_drawn(answers: list[tuple[float, float]]) -> None:
    intervals = [IntervalMark(v, v - m, v + m, str(k)) for k, (v, m) in enumerate(answers)]
    picture = read(str(interval_bar("key", intervals, "EUR")))
    for band in picture.all("rect", class_="band"):
        left, width = (float(band.attributes[name].removesuffix("%")) for name in ("x", "width"))
        assert 0 <= left <= left + width <= 100.01
    stretch = ChartAxis.from_values(
        [end for one in intervals for end in (one.lower, one.upper)] + [0.0], 0.0, 1.0, margin=0.08
    )
    for one in intervals:
        bar = read(str(cell_bar(stretch, one.value, one.lower, one.upper, from_zero=True)))
        assert bar.one("svg").attributes["aria-hidden"] == "true"


def test_bars_are_as_long_as_their_numbers() -> None:
    stretch = ChartAxis(lower=0.0, upper=100.0, start=0.0, end=1.0)
    bar = read(str(cell_bar(stretch, 25.0, 20.0, 30.0, from_zero=True)))
    assert bar.one("rect").attributes["width"] == "25%"
    assert bar.one("circle").attributes["cx"] == "25%"
    ends = [line.attributes["x1"] for line in bar.all("line", class_="whisker")]
    assert ends == ["20%", "20%", "30%"]
    assert read(str(share_bar(0.4))).one("rect", class_="spent").attributes["width"] == "40%"


def test_spending_goes_up_in_steps_and_shows_the_limit_once_it_is_near() -> None:
    points = [("2026-01-01T10:00:00+00:00", 1.0), ("2026-01-03T10:00:00+00:00", 3.0)]
    far = read(str(spending_steps("key", points, 100.0, "ρ")))
    near = read(str(spending_steps("key", points, 4.0, "ρ")))
    assert not [text for text in far.all("text") if "limit" in text.text]
    assert [text.text for text in near.all("text") if "limit" in text.text] == ["limit 4"]
    (path,) = far.all("path", class_="line")
    heights = [float(y) for y in re.findall(r"V([\d.]+)", path.attributes["d"])]
    assert heights == sorted(heights, reverse=True)
    assert (180 - heights[1]) / (180 - heights[0]) == pytest.approx(3, rel=0.01)
    assert str(spending_steps("key", [], 4.0, "ρ")) == ""


def account(limit: dict[str, Any] | None, left: dict[str, float] | None, **spent: float) -> dict[str, Any]:
    spent = {"rho": 0.0, "epsilon": 0.0, "delta": 0.0, **spent}
    used = None if left is None else {"share": 0.5, "epsilon": None, "limit": None, "delta": None}
    return {"limit": limit, "left": left, "spent": spent, "used": used}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (account(None, None), ("", 0.0)),
        (account({"kind": "zcdp", "rho": 2.0}, {"rho": 1.5}), ("rho", 2.0)),
        (account({"kind": "gaussian-dp", "mu": 2.0}, {"rho": 1.5}), ("rho", 2.0)),
        (account({"kind": "pure-dp", "epsilon": 3.0}, {"epsilon": 1.0}), ("epsilon", 3.0)),
        (
            account(
                {"kind": "approx-dp", "epsilon": 1.0, "delta": 1e-6}, {"rho": 0.2, "epsilon": 1.0}, rho=0.1
            ),
            ("rho", pytest.approx(0.3)),
        ),
    ],
)
def test_a_limit_is_told_in_the_currency_in_which_prices_add_up(told: Any, expected: Any) -> None:
    assert account_currency(told) == expected


def test_prices_add_up_in_the_currency_of_the_limit_or_not_at_all() -> None:
    gaussian, concentrated = {"kind": "gaussian-dp", "mu": 0.2}, {"kind": "zcdp", "rho": 0.03}
    assert cost_in_currency("rho", [gaussian, concentrated]) == pytest.approx(0.05)
    assert cost_in_currency("rho", [gaussian, {"kind": "pure-dp", "epsilon": 1.0}]) == 0
    assert cost_in_currency("epsilon", [{"kind": "pure-dp", "epsilon": 0.5}] * 2) == 1


def test_without_a_limit_nothing_is_counted_down() -> None:
    told = {
        "own": account(None, None),
        "total": account(None, None),
        "available": {"whose": "total", **account(None, None)},
        "collusion": "Rule.",
        "composition": "Alone.",
    }
    budget = budget_view(told | {"group": None, "people": None}, (True, None))
    assert budget.lead == "There is no limit."
    assert budget.after == ""
    assert float(budget.usual) > 0


def test_a_budget_that_its_first_charge_used_up_is_not_told_as_no_limit() -> None:
    limit = ApproxDP(epsilon=1, delta=1e-6)
    for first in (PureDP(epsilon=1), ApproxDP(epsilon=1, delta=1e-6), None):
        with Ledger.open(":memory:", limit=limit) as ledger:
            if first is not None:
                ledger.charge(first)
            account = {
                "left": ledger.remaining(),
                "limit": limit.to_dict(),
                "spent": spent_amounts(ledger.spent(), pooled=False),
                "used": ledger.accounts(None)[0].used,
            }
        assert account_currency(account)[0] == "rho"
        assert spent_share(account) == (0.0 if first is None else 1.0)


DATED = Schema(
    columns=[
        Column("day", type="date", lower=date(2025, 1, 1), upper=date(2025, 12, 31)),
        Column("grade", type="integer", lower=1, upper=3),
        Column("cost", lower=0, upper=9_999_999),
    ],
    dataset="stays",
)


@pytest.mark.parametrize(
    ("text", "source", "edges"),
    [
        ("count by grade", "sql", ""),
        ("count by day", "sql", ""),
        ("count by day ('2025-03-01', '2025-06-01')", "sentence", "'2025-03-01', '2025-06-01'"),
        ("count by cost (1234567, 7654321.5)", "sentence", "1234567, 7654321.5"),
    ],
)
def test_a_form_shows_groups_so_that_they_are_read_as_the_same_question(
    text: str, source: str, edges: str
) -> None:
    query = parse_query(text, DATED)
    form = AskForm.from_query(query, AskForm(amount="0.1"))
    assert (form.source, form.edges1) == (source, edges)
    request = form.request(DATED)
    if source == "sql":
        assert parse_query(request["text"], DATED) == query
    else:
        assert build_query("count", None, request["by"], DATED) == query


def test_groups_of_dates_begin_at_days_and_nothing_else_is_read_as_one() -> None:
    def read(edges: str) -> list[float]:
        by = AskForm(by1="day", edges1=edges, amount="1").request(DATED)["by"]
        assert [one["column"] for one in by] == ["day"]
        return list(by[0]["edges"])

    assert read("2025-03-01; 2025-06-01") == [59, 151]
    for wrong in ("", "30, 60", "1 March", "2025-06-01, 2025-03-01", "2025-03-01'), grade ('2"):
        with pytest.raises(FieldError) as refused:
            read(wrong)
        assert (refused.value.field, refused.value.hint) == ("edges1", "2025-01-01")


def test_the_mean_of_dates_is_saved_as_dates() -> None:
    rows = {"day": [date(2025, 3, 1)] * 400, "grade": [1, 2] * 200, "cost": [5.0] * 400}
    ledger = Ledger.open(":memory:", limit=ZCDP(rho=100))
    with Database(rows, schema=DATED, ledger=ledger, random_state=1) as database:
        result = database.query("mean(day), count by grade (2)", privacy=ZCDP(rho=50))
    head, first, second, *_ = bytes(csv_file(result).body).decode().splitlines()
    assert head == "grade,statistic,value,lower,upper,unit"
    (name, statistic, *days, unit), count = first.split(","), second.split(",")
    assert (name, statistic, unit) == ("below 2", "mean(day)", "")
    value, lower, upper = map(date.fromisoformat, days)
    assert lower <= date(2025, 3, 1) <= upper
    assert lower <= value <= upper
    assert (count[1], count[-1]) == ("count", "rows")
    float(count[2])


def test_long_numbers_below_an_interval_stay_inside_a_narrow_picture() -> None:
    mark = IntervalMark(2.48e14, 0.9e14, 4.05e14, "")
    ends = read(str(interval_bar("key", [mark], ""))).all("text", class_="tick")
    assert [text.attributes["text-anchor"] for text in ends] == ["start", "end"]
    short = read(str(interval_bar("key", [IntervalMark(20.0, 10.0, 30.0, "")], "")))
    assert [text.attributes["text-anchor"] for text in short.all("text", class_="tick")] == ["end", "start"]
