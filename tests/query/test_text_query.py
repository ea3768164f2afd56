"""One question through whoever answers noisy sums: charged, refined, repeated, priced."""

from __future__ import annotations

import dataclasses
import datetime
import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, Column, Database, GaussianDP, Ledger, PureDP, Schema
from discreet.errors import BudgetExceeded, ExpressionRefused, ParameterError, PromiseError
from discreet.formatting import number_with_margin
from discreet.ledger import Account, Caps
from discreet.privacy import ZCDP, Spending
from discreet.query.intervals import ResultInterval, interval_width
from discreet.query.language.query import parse_query
from discreet.query.result_cells import ResultCell, ResultColumn
from discreet.query.results import QueryResult
from discreet.query.text_query import preview_query, run_query
from tests.query.survey import ROWS, SCHEMA, N

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.privacy import Promise

AGES: Any = ROWS["age"]
WOMEN: Any = [sex == "f" for sex in ROWS["sex"]]
MU = GaussianDP(mu=0.5)


@pytest.fixture
def db() -> Iterator[Database]:
    with Database(ROWS, schema=SCHEMA, ledger=Ledger.open(":memory:"), random_state=7) as made:
        yield made


def asked(db: Database, text: str, **how: Any) -> QueryResult:
    if "sd" not in how:
        how = {"privacy": MU, **how}
    return run_query(db, parse_query(text, SCHEMA), **how)


def only(reply: QueryResult) -> tuple[float, float]:
    """Return the one number and its standard deviation; a mean over a noisy count is narrower than this."""
    (cell,) = reply.cells
    assert cell.value is not None
    half = (cell.upper - cell.lower) / 2
    return cell.value, half / 1.96 if cell.sd is None else cell.sd


def true_counts() -> dict[str, int]:
    return {key: sum(sex == key for sex in ROWS["sex"]) for key in ("f", "m", "x")}


@pytest.mark.parametrize(
    ("text", "true"),
    [
        ("count where age > 40", sum(age > 40 for age in AGES)),
        ("SELECT COUNT(*) FROM t WHERE age > 40", sum(age > 40 for age in AGES)),
        ("SELECT SUM(age) FROM t WHERE sex = 'f'", sum(a for a, w in zip(AGES, WOMEN, strict=True) if w)),
        ("SELECT AVG(age) FROM t", sum(AGES) / N),
        (
            "SELECT AVG(age) FROM t WHERE sex = 'f'",
            sum(a for a, w in zip(AGES, WOMEN, strict=True) if w) / sum(WOMEN),
        ),
    ],
)
def test_a_select_is_answered_like_the_sentence_and_right_up_to_its_noise(
    db: Database, text: str, true: float
) -> None:
    reply = asked(db, text)
    value, sd = only(reply)
    assert abs(value - true) < 5 * sd
    width = reply.cells[0].upper - reply.cells[0].lower
    assert width == pytest.approx(2 * 1.959964 * sd, rel=1e-4)
    again = asked(db, reply.question)
    assert again.cached
    assert again.cells == reply.cells


def test_a_mean_by_groups_is_one_charge_of_the_promise(db: Database) -> None:
    reply = asked(db, "mean(age) by sex", owner="ada")
    assert [receipt.owner for receipt in reply.charges] == ["ada"]
    assert reply.parts == (reply.receipts,)
    (charged,) = reply.cost
    assert isinstance(charged, GaussianDP)
    assert charged.mu == MU.mu
    assert reply.sums == 2
    by_key = {cell.key[0]: cell for cell in reply.cells}
    for key in ("f", "m"):
        own = [age for age, sex in zip(AGES, ROWS["sex"], strict=True) if sex == key]
        cell = by_key[key]
        assert cell.value is not None
        assert cell.sd is None
        assert abs(cell.value - sum(own) / len(own)) < 3 * (cell.upper - cell.lower) / 2
        assert reply.is_readable(cell)
    # Nobody is in this group: any mean of the declared range is possible, and a number is in it all the same.
    empty = by_key["x"]
    assert empty.interval == reply.columns[0].bounds == ResultInterval(17.0, 90.0)
    assert empty.value is not None
    assert 17 <= empty.value <= 90
    assert not reply.is_readable(empty)
    assert reply.unreadable_words is not None
    assert reply.unreadable_words.startswith("1 of 3 groups has too few rows")
    assert db.ledger.spent(owner="ada").charges == 1


def test_a_refined_answer_is_the_merge_of_both_and_less_noisy_than_either(db: Database) -> None:
    first = asked(db, "count where age > 40", owner="ada")
    second = asked(db, "40 < age", owner="ada", refines=[first.receipts[0]])
    assert second.refined
    assert not first.refined
    assert second.parts == ((first.receipts[0], second.receipts[0]),)
    (old, old_sd), (new, new_sd) = only(first), only(second)
    assert new_sd == pytest.approx(old_sd / math.sqrt(2), rel=1e-9)
    assert abs(new - sum(age > 40 for age in AGES)) < 5 * new_sd
    assert new != old
    # Only the newest part is charged now, and asked again it is free and the same.
    assert second.cost == second.charges[0].promises
    assert db.ledger.spent(owner="ada").charges == 2
    again = asked(db, "count where age > 40", owner="ada", refines=[first.receipts[0]])
    assert (again.cached, again.cells) == (True, second.cells)


def test_refining_a_mean_by_groups_merges_counts_with_counts_and_sums_with_sums(db: Database) -> None:
    first = asked(db, "mean(age) by sex")
    ids = list(first.receipts)
    second = asked(db, "mean(age) by sex", refines=ids)
    assert second.parts == ((*ids, *second.receipts),)
    for old, new in zip(first.cells[:2], second.cells[:2], strict=True):
        ratio = (new.upper - new.lower) / (old.upper - old.lower)
        assert ratio == pytest.approx(1 / math.sqrt(2), rel=0.05)
    counted = asked(db, "count by sex")
    before = db.ledger.spent()
    with pytest.raises(
        ParameterError, match="must name one receipt, that of the earlier answer, and named 2"
    ):
        asked(db, "mean(age) by sex", refines=[*ids, *second.receipts])
    for wrong in (counted.receipts, ["nope-0"]):
        with pytest.raises(ParameterError, match="refines of a question"):
            asked(db, "mean(age) by sex", refines=wrong)
    assert db.ledger.spent() == before


@pytest.mark.parametrize("text", ["count where age > 40", "mean(age) by sex"])
def test_a_request_that_is_sent_again_is_not_charged_again(db: Database, text: str) -> None:
    first = asked(db, text, owner="ada", request="k-1")
    charges = db.ledger.spent().charges
    second = asked(db, text, owner="ada", request="k-1")
    assert db.ledger.spent().charges == charges
    assert second.cells == first.cells


def test_a_mean_by_groups_is_refused_as_a_whole() -> None:
    book = Ledger.open(":memory:", limit=ZCDP(rho=0.01))
    with Database(ROWS, schema=SCHEMA, ledger=book, random_state=1) as db:
        with pytest.raises(BudgetExceeded):
            asked(db, "mean(age) by sex", privacy=ZCDP(rho=0.015))
        assert book.spent().charges == 0
        asked(db, "mean(age) by sex", privacy=ZCDP(rho=0.009))


def test_what_was_said_is_kept_with_the_charge(db: Database) -> None:
    asked(db, "SELECT COUNT(*) FROM t WHERE age > 40")
    (entry,) = db.ledger.entries()
    assert entry.asked is not None
    assert entry.asked["said"] == "count where 40 < age"


PRICED = ["count where age > 40", "sum(age)", "mean(age)", "count by sex", "sum(age) by sex, smoker"]


@pytest.mark.parametrize("privacy", [MU, PureDP(epsilon=0.5), ApproxDP(epsilon=0.5, delta=1e-6)])
@pytest.mark.parametrize("text", PRICED)
def test_the_price_is_what_is_charged_and_the_noise_what_is_drawn(
    db: Database, text: str, privacy: Any
) -> None:
    said = preview_query(SCHEMA, N, parse_query(text, SCHEMA), privacy=privacy)
    paid = asked(db, text, privacy=privacy)
    assert said.cost == paid.cost
    assert said.law == paid.law
    assert said.unreadable_below == paid.unreadable_below
    assert said.cells == ()
    assert said.sd == pytest.approx(paid.cells[0].sd, rel=1e-12)
    assert said.sd is not None
    assert said.margin == pytest.approx(interval_width(said.law) * said.sd, rel=1e-12)


def test_the_noise_of_a_mean_by_groups_is_said_for_groups_of_one_size(db: Database) -> None:
    sentence = parse_query("mean(age) by sex", SCHEMA)
    said = preview_query(SCHEMA, N, sentence, privacy=MU)
    paid = asked(db, "mean(age) by sex")
    assert (said.cells, said.cost, said.n_rows, said.expected) == ((), paid.cost, N / 3, ())
    assert said.unreadable_below == paid.unreadable_below is not None
    assert said.margin is not None
    women, men = ((cell.upper - cell.lower) / 2 for cell in paid.cells[:2])
    assert 0.9 * women < said.margin < men  # of 4000 rows they have 3000 and 1000
    hidden = preview_query(SCHEMA, None, sentence, privacy=MU)
    assert (hidden.margin, hidden.n_rows, hidden.sd) == (None, None, None)


def test_groups_that_were_counted_before_have_their_margins_said_one_by_one(db: Database) -> None:
    text = "mean(age) by sex"
    assert db.preview(text, privacy=MU, owner="ada").expected == ()
    counted = asked(db, "count by sex", owner="ada", privacy=GaussianDP(mu=0.3))
    said = db.preview(text, privacy=MU, owner="ada")
    assert [one.key for one in said.expected] == [("f",), ("m",), ("x",)]
    assert [one.n_rows for one in said.expected] == [max(cell.value or 0.0, 0.0) for cell in counted.cells]
    paid = asked(db, text, owner="ada")
    for one, cell in zip(said.expected, paid.cells, strict=True):
        assert one.margin == pytest.approx((cell.upper - cell.lower) / 2, rel=0.05)
    # What somebody else has counted, or counted of other rows, is not used.
    assert db.preview(text, privacy=MU, owner="bob").expected == ()
    assert db.preview("mean(age) where smoker by sex", privacy=MU, owner="ada").expected == ()
    other = {**ROWS, "age": AGES[::-1]}
    with Database(other, schema=SCHEMA, ledger=db.ledger, random_state=7) as changed:
        assert changed.preview(text, privacy=MU, owner="ada").expected == ()


@pytest.mark.parametrize("sd", [0.0, 1e-300, -5.0, math.nan, math.inf, 1e200])
def test_a_noise_that_is_none_is_refused(sd: float) -> None:
    with pytest.raises(ParameterError, match=r"sd of a question must be from 1e-150 to 1e\+100"):
        preview_query(SCHEMA, N, parse_query("count where age > 40", SCHEMA), sd=sd)


# How many more, and what the numbers say.


def test_how_many_more_an_amount_would_pay_for(db: Database) -> None:
    reply = asked(db, "mean(age) by sex", privacy=ZCDP(rho=0.1))
    price = float(sum((Spending.from_promises(promise) for promise in reply.cost), Spending()).gaussian)
    assert price == pytest.approx(0.1)

    def more(limit: Promise | None, cost: tuple[Promise, ...]) -> int | None:
        return Account(None if limit is None else Caps.from_limit(limit), Spending()).more(cost)

    assert more(ZCDP(rho=3.5 * price), reply.cost) == 3
    assert more(ZCDP(rho=0.99 * price), reply.cost) == 0
    assert more(PureDP(epsilon=5.0), reply.cost) == 0
    assert more(None, reply.cost) is None
    pure = asked(db, "count where age > 30", privacy=PureDP(epsilon=0.5))
    assert more(PureDP(epsilon=1.7), pure.cost) == 3
    free = asked(db, "count")
    assert (more(ZCDP(rho=1), free.cost), free.cost, free.cells[0].value) == (None, (), N)


def test_groups_that_noise_hides_are_named_by_their_size(db: Database) -> None:
    reply = asked(db, "count by sex")
    assert reply.cells[0].sd is not None
    margin = interval_width("gaussian") * reply.cells[0].sd
    assert reply.unreadable_below == math.ceil(2 * margin)
    assert reply.group_words == f"Noise makes groups below about {math.ceil(2 * margin)} rows unreadable."
    for text in ("count where age > 40", "sum(age) by sex", "count"):
        assert asked(db, text).group_words is None
        assert asked(db, text).unreadable_words is None


def test_a_group_of_that_size_is_told_from_an_empty_one() -> None:
    # Each is off by its margin or less, 95 times in 100: two margins keep their intervals apart.
    said = preview_query(SCHEMA, N, parse_query("count by sex", SCHEMA), privacy=MU)
    assert said.unreadable_below is not None
    margin = said.margin
    assert margin is not None
    assert said.unreadable_below - margin >= margin
    assert said.unreadable_below - 1 < 2 * margin


def test_a_result_prints_its_numbers_and_its_cost_and_a_mean_of_dates_prints_dates(db: Database) -> None:
    reply = asked(db, "mean(admitted)")
    assert reply.value is not None
    (column,) = reply.columns
    assert column.first_day is not None
    assert column.measure == "days"  # JSON and Python have numbers
    low, high = math.floor(reply.interval().lower), math.ceil(reply.interval().upper)
    value, start, end = (
        column.first_day + datetime.timedelta(days=days) for days in (round(reply.value), low, high)
    )
    lines = str(reply).splitlines()
    assert lines == ["mean(admitted)", f"  {value} (95 %: {start} to {end})", f"Cost: {reply.cost_words}."]
    assert str(QueryResult.from_wire(reply.to_wire())) == str(reply)
    with pytest.raises(ParameterError):
        QueryResult.from_wire(
            {**reply.to_wire(), "columns": [{**column.to_dict(), "first_day": "9999-12-30"}]}
        )
    grouped = asked(db, "count by sex")
    assert str(grouped).splitlines()[1].startswith("  f: ")
    assert repr(grouped) == f"QueryResult('count by sex': {len(grouped.cells)} groups)"
    preview = db.preview("count by sex", privacy=MU)
    assert str(preview).splitlines() == [
        "count by sex", f"  {preview.margin_words}", f"Would cost: {preview.cost_words}.",
    ]  # fmt: skip
    assert str(db.budget()).startswith("All: ")


def test_one_column_has_one_number_of_decimals_and_cut_intervals_do_not_decide_it() -> None:
    bounds = ResultInterval(0.0, math.inf)
    ends = ((-30.04, 0.0, 0.02), (20_190.913, 20_186.117, 20_195.709), (7.0, 2.2, 11.8))
    cells = tuple(ResultCell(key=("x",), value=v, sd=1.0, lower=lo, upper=hi) for v, lo, hi in ends)
    shown = QueryResult(
        question="count by x", columns=(ResultColumn("count", "rows", bounds),), group_by=("x",), cells=cells,
        law="gaussian", cost=(),
    )  # fmt: skip
    assert shown.cell_texts() == [
        ("\u221230.0", "0 to 0.1"), ("20,190.9", "20,186.1 to 20,195.8"), ("7.0", "2.2 to 11.8"),
    ]  # fmt: skip


def test_dates_are_written_as_dates_and_edges_with_all_digits(db: Database) -> None:
    reply = asked(db, "count by admitted ('2020-03-01', '2020-07-01')")
    assert [cell.key[0] for cell in reply.cells] == [
        "before 2020-03-01",
        "2020-03-01 to before 2020-07-01",
        "from 2020-07-01",
    ]
    true = [int(np.sum([i % 366 < 60 for i in range(N)]))]
    value = reply.cells[0].value
    assert value is not None
    assert reply.cells[0].sd is not None
    assert abs(value - true[0]) < 5 * reply.cells[0].sd
    fine = asked(db, 'count by "hours-per-week" (12.3456789, 12.345679)')
    assert fine.cells[1].key == ("12.3456789 to below 12.345679",)
    days = asked(db, "count by admitted")
    assert (days.cells[0].key, days.cells[-1].key) == (("2020-01-01",), ("2020-12-31",))


def test_json_has_everything_that_the_next_question_needs(db: Database) -> None:
    reply = asked(db, "mean(age) by sex")
    found = reply.to_dict()
    assert found["receipts"] == list(reply.receipts)
    assert found["parts"] == [[name] for name in found["receipts"]]
    assert found["law"] == "gaussian"
    assert len(found["answers"]) == 3


@pytest.mark.parametrize(
    ("value", "margin", "text"),
    [(1234.567, 12.3, "1,235"), (0.001234, 0.0005, "0.00123"), (-0.2, 30.0, "0"), (2.0, 0.0, "2")],
)
def test_numbers_are_written_as_far_as_their_margins_leave_them(
    value: float, margin: float, text: str
) -> None:
    assert number_with_margin(value, margin) == text


def test_a_private_number_of_rows_makes_every_mean_a_ratio() -> None:
    schema = Schema(columns=SCHEMA.columns, neighbors="add-remove", row_count="private")
    sentence = parse_query("mean(age)", schema)
    promise = dataclasses.replace(MU, neighbors="add-remove")
    with Database(ROWS, schema=schema, random_state=2) as db:
        value, sd = only(run_query(db, sentence, privacy=promise))
        for other in ("mean(age)", "mean(age) by sex", "count"):
            with pytest.raises(PromiseError, match="must be about the neighbors of the table, add-remove"):
                run_query(db, parse_query(other, schema), privacy=MU)
    assert abs(value - sum(AGES) / N) < 5 * sd
    assert preview_query(schema, None, sentence, privacy=promise).cells == ()


@pytest.mark.parametrize("text", ["count where age > 40", "mean(age) by sex", "SELECT SUM(age) FROM t"])
def test_database_query_is_that_of_its_parsed_text(text: str) -> None:
    results = []
    for parsed in (False, True):
        with Database(ROWS, schema=SCHEMA, random_state=3) as db:
            privacy = GaussianDP(mu=1)
            preview = db.preview(text, privacy=privacy)
            assert (preview.is_free, preview.sql) == (False, parse_query(text, SCHEMA).sql)
            if parsed:
                results.append(run_query(db, parse_query(text, SCHEMA), privacy=privacy))
            else:
                results.append(db.query(text, privacy=privacy))
            assert preview.cost == results[-1].cost
            assert db.preview(text, privacy=privacy).is_free
            assert not db.preview(text, privacy=privacy, owner="another").is_free
            assert db.query(text, privacy=privacy).cached
    assert results[0].cells == results[1].cells


def test_database_query_refuses_before_it_charges() -> None:
    with Database(ROWS, schema=SCHEMA) as db:
        with pytest.raises(ParameterError, match="given neither"):
            db.query("count")
        with pytest.raises(ParameterError, match="given both"):
            db.query("count", privacy=GaussianDP(mu=1), sd=3.0)
        with pytest.raises(ExpressionRefused):
            db.query("count where nothing", sd=3.0)
        assert db.ledger.spent().charges == 0


def test_database_query_refines_by_receipt() -> None:
    with Database(ROWS, schema=SCHEMA, random_state=3) as db:
        first = db.query("count where age > 40", sd=5.0)
        refined = db.query("count where age > 40", sd=5.0, refines=first.receipts[0])
        assert refined.refined
        assert refined.cells[0].sd == pytest.approx(5.0 / 2**0.5, rel=1e-6)


LIGHT = """
import sys
from discreet import Database, GaussianDP
from discreet.query.text_query import run_query
from discreet.query.intervals import ResultInterval, interval_width
from discreet.query.language.query import parse_query
from tests.query.survey import ROWS, SCHEMA
with Database(ROWS, schema=SCHEMA) as db:
    run_query(db, parse_query("mean(age) by sex", SCHEMA), privacy=GaussianDP(mu=1))
print([name for name in sys.modules if name.startswith(("discreet.learn", "sklearn"))])
"""


@pytest.mark.slow
def test_a_mean_by_groups_waits_for_no_learner_to_be_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_noisy_median_whose_interval_is_one_value_is_not_called_exact() -> None:
    schema = Schema(columns=[Column("visits", type="integer", lower=0, upper=20)])
    with Database({"visits": [7] * 3000}, schema=schema, random_state=1) as db:
        median = db.query("median(visits)", privacy=PureDP(epsilon=2))
        count = db.query("count", privacy=PureDP(epsilon=2))
    assert (median.cells[0].lower, median.cells[0].upper, median.cells[0].is_exact) == (7, 7, False)
    assert median.cell_texts() == [("7", "7 to 7")]
    assert "7 to 7" in median._repr_html_()
    assert count.cells[0].is_exact
    assert count.cell_texts() == [("3,000", "")]
