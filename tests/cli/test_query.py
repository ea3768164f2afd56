"""``discreet query``: questions as sentences, what they cost, and how each refusal is told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from discreet import ApproxDP, Database, Ledger, PureDP, Schema, verify
from discreet.cli.answers import _describe_total
from discreet.errors import ExpressionRefused
from discreet.pipeline.query import preview_table_query, query_table
from discreet.privacy import NoPromise, Promise
from discreet.privacy.composition import Spending
from discreet.query.language.query import parse_query
from discreet.tables import Table
from tests.cli.run import discreet

ROOT = Path(__file__).parents[2]
N = 4000
PEOPLE = "person,age,hours,sex\n" + "".join(
    f"p{i},{17 + 7 * i % 73},{13 * i % 100},{'fm'[i % 4 == 0]}\n" for i in range(N)
)
DECLARED = """\
privacy: {dataset: survey-2024}
fields:
  - {name: person, type: string, privacy: {role: drop}}
  - name: age
    type: integer
    constraints: {minimum: 17, maximum: 90, required: true}
    privacy: {measure: years}
  - {name: hours, type: number, constraints: {minimum: 0, maximum: 100, required: true}}
  - {name: sex, type: string, constraints: {enum: [f, m, x], required: true}, privacy: {closed: true}}
"""
AGES = [17 + 7 * i % 73 for i in range(N)]
HOURS = [13 * i % 100 for i in range(N)]
WOMEN = [i % 4 != 0 for i in range(N)]
PRICE = ("--epsilon", "1", "--delta", "1e-6")


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    """A folder with a table and its declaration."""
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "people.schema.yaml").write_text(DECLARED)
    return tmp_path


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema.from_yaml(DECLARED)


def query(cwd: Path, question: str, *more: str) -> Any:
    return discreet("query", "people.csv", question, *more, cwd=cwd)


def answer(cwd: Path, question: str, *more: str) -> Any:
    done = query(cwd, question, "--no-ledger", "--json", *(more or PRICE))
    assert done.code == 0, done.err
    return json.loads(done.out)


TRUE = {
    "count where age > 40": sum(a > 40 for a in AGES),
    "age > 40": sum(a > 40 for a in AGES),
    "COUNT(*) WHERE age > 40 AND sex = 'f'": sum(a > 40 and w for a, w in zip(AGES, WOMEN, strict=True)),
    "sum(hours)": sum(HOURS),
    "hours": sum(HOURS),
    "sum hours where sex = 'f'": sum(h for h, w in zip(HOURS, WOMEN, strict=True) if w),
    "sum(age > 40) where sex = 'f'": sum(a > 40 and w for a, w in zip(AGES, WOMEN, strict=True)),
    "mean(age)": sum(AGES) / N,
    "Mean(age) where sex = 'f'": sum(a for a, w in zip(AGES, WOMEN, strict=True) if w) / sum(WOMEN),
    "mean(age > 40) where sex = 'f'": sum(a > 40 and w for a, w in zip(AGES, WOMEN, strict=True))
    / sum(WOMEN),
}


HOW = [
    *((question, PRICE) for question in TRUE),
    *((question, ("--epsilon", "2")) for question in ("sum(hours)", "Mean(age) where sex = 'f'")),
    ("age > 40", ("--mu", "0.5")),
    ("mean(age)", ("--rho", "0.1")),
]


@pytest.mark.parametrize(("question", "how"), HOW)
def test_answers_are_right_up_to_the_noise_that_they_state(
    survey: Path, question: str, how: tuple[str, ...]
) -> None:
    found = answer(survey, question, *how)
    (cell,) = found["answers"]
    # Six standard deviations of a Gaussian happen once in 500 million; twelve of a
    # Laplace once in 20 million.
    margin = (cell["upper"] - cell["lower"]) / 2
    sd = margin / 1.96 if cell["sd"] is None else cell["sd"]
    assert abs(cell["value"] - TRUE[question]) < (12 if how[0] == "--epsilon" else 6) * sd
    assert 0 < sd < margin < 2.2 * sd
    assert abs(cell["value"] - 1.5 * TRUE[question]) > 12 * sd


@pytest.mark.parametrize("how", [PRICE, ("--epsilon", "2")])
def test_a_mean_by_groups_is_right_in_every_group_and_empty_ones_are_wide(
    survey: Path, how: tuple[str, ...]
) -> None:
    found = answer(survey, "mean(hours) by sex", *how)
    by_key = {cell["key"][0]: cell for cell in found["answers"]}
    assert list(by_key) == ["f", "m", "x"]
    for key, women in (("f", True), ("m", False)):
        own = [h for h, w in zip(HOURS, WOMEN, strict=True) if w == women]
        width = by_key[key]["upper"] - by_key[key]["lower"]
        assert abs(by_key[key]["value"] - sum(own) / len(own)) < 3 * width
    # Where nobody is, every mean is possible; if noise makes up rows, the interval is still wide.
    widths = {key: cell["upper"] - cell["lower"] for key, cell in by_key.items()}
    assert widths["x"] > 2 * widths["m"]
    # Sums and counts cost together what was asked for; under (1, 1e-6) Laplace noise is less than Gaussian.
    (paid,) = found["cost"]
    assert paid["epsilon"] == (1.0 if how == PRICE else 2.0)
    assert found["sums"] == 2


def test_counts_by_groups_have_all_declared_cells_and_numbers_the_ones_that_were_named(survey: Path) -> None:
    found = answer(survey, "count where hours < 50 by age (30, 60), sex")
    keys = [tuple(cell["key"]) for cell in found["answers"]]
    ages = ["below 30", "30 to below 60", "60 or more"]
    assert keys == [(age, sex) for age in ages for sex in ("f", "m", "x")]
    true = sum(30 <= a < 60 and w and h < 50 for a, w, h in zip(AGES, WOMEN, HOURS, strict=True))
    cell = found["answers"][keys.index(("30 to below 60", "f"))]
    assert abs(cell["value"] - true) < 6 * cell["sd"]
    assert len({cell["sd"] for cell in found["answers"]}) == 1


def test_people_see_the_answer_its_interval_its_price_and_what_is_left(survey: Path) -> None:
    discreet("ledger", "create", "b.ledger", "--epsilon", "8", "--delta", "1e-5", cwd=survey)
    done = query(survey, "count where age > 40", "--ledger", "b.ledger", *PRICE)
    assert done.code == 0, done.err
    assert re.search(
        r"^count where 40 < age\n  [\d,.]+ rows \(95 %: [\d,.]+ to [\d,.]+\)$", done.out, re.MULTILINE
    )
    assert re.search(r"Cost: μ = 0\.237 \(epsilon 1 at delta 1e-06\); row \d+ of the ledger\.", done.out)
    told = " ".join(done.out.split())
    took, used = re.findall(r"It took ([\d.]+) % of the budget\. ([\d.]+) % of the budget is used", told)[0]
    assert took == used  # the only charge took all that is used
    assert re.search(
        r"is used; epsilon so far 1 of 8 at delta 1e-05\.|is used; epsilon so far 0\.\d+ of 8", told
    )
    assert re.search(r"[\d.]+ % is left, enough for \d+ more queries like this\.", told)
    more = int(re.findall(r"enough for (\d+) more", done.out)[0])
    again = query(survey, "count where age > 41", "--ledger", "b.ledger", *PRICE)
    assert f"enough for {more - 1} more" in again.out
    groups = query(survey, "count by sex", "--ledger", "b.ledger", *PRICE).out.splitlines()
    assert re.match(r"sex +rows +at 95 %", groups[1])
    assert re.match(r"f +[\d,.]+ +[\d,.]+ to [\d,.]+ +.*●", groups[2])


TOGETHER = "no epsilon is proven for all of them together"
ONE_COLUMN = [PureDP(epsilon=0.5, covers=(name,)) for name in ("age", "hours")]


@pytest.mark.parametrize(
    ("charged", "told"),
    [
        ([PureDP(epsilon=0.5)] * 2, "epsilon 1 at delta 1e-06, provided"),
        # Two deltas leave nothing of the one that was typed: it is added to them.
        ([ApproxDP(epsilon=0.5, delta=1e-6)] * 2, "epsilon 1 at delta 3 × 10⁻⁶, provided"),
        ([ApproxDP(epsilon=0.5, delta=0.5)] * 2, f"{TOGETHER}, since they cost too much"),
        ([PureDP(epsilon=500.0, total_variation=1e-30)], f"{TOGETHER}, since they cost too much"),
        ([PureDP(epsilon=0.5), NoPromise("shown to all")], f"{TOGETHER} (shown to all)"),
        (ONE_COLUMN, f"{TOGETHER} (they protect no column in common)"),
    ],
)
def test_without_a_limit_people_see_the_sum_or_why_there_is_none(charged: list[Promise], told: str) -> None:
    spent = sum(map(Spending.from_promises, charged), Spending())
    assert _describe_total(spent, 1e-6).replace("\u00a0", " ").startswith(told)


def test_the_question_that_was_paid_for_is_free_and_the_same_in_another_spelling(survey: Path) -> None:
    first = json.loads(query(survey, "count where age > 40", "--json", *PRICE).out)
    second = json.loads(query(survey, "40 < AGE", "--json", *PRICE).out)
    assert (first["cached"], second["cached"]) == (False, True)
    assert first["answers"] == second["answers"]
    assert first["rows"] == second["rows"]
    assert "The answer was paid for before" in query(survey, "count where age > 40", *PRICE).out
    with Ledger.open(survey / "survey-2024.ledger") as book:
        assert book.spent().charges == 1


def test_sql_is_the_same_question(survey: Path) -> None:
    first = json.loads(query(survey, "mean(hours) where age > 40 by sex", "--json", *PRICE).out)
    text = "SELECT sex, AVG(hours) AS h FROM people WHERE age > 40 GROUP BY sex"
    second = json.loads(query(survey, text, "--json", *PRICE).out)
    assert second["cached"]
    assert second["question"] == first["question"] == "mean(hours) where 40 < age by sex"
    assert second["answers"] == first["answers"]


def test_a_refined_answer_is_merged_with_the_first_and_told_as_such(survey: Path) -> None:
    done = query(survey, "count where age > 40", *PRICE)
    (receipt,) = re.findall(r"pay again and merge: --refine (\S+)$", done.out, re.MULTILINE)
    first = json.loads(query(survey, "count where age > 40", "--json", *PRICE).out)
    assert first["receipts"] == [receipt]
    told = query(survey, "count where age > 40", "--refine", receipt, *PRICE)
    assert told.code == 0, told.err
    assert "Merged from 2 answers, each weighted by the inverse of its variance." in told.out
    found = json.loads(query(survey, "40 < age", "--refine", receipt, "--json", *PRICE).out)
    assert found["cached"]
    assert found["parts"] == [[receipt, found["receipts"][0]]]
    assert found["answers"][0]["sd"] == pytest.approx(first["answers"][0]["sd"] / 2**0.5, rel=1e-9)
    with Ledger.open(survey / "survey-2024.ledger") as book:
        assert book.spent().charges == 2
    other = query(survey, "count where age > 41", "--refine", receipt, *PRICE)
    assert (other.code, "refines" in other.err) == (1, True)
    unknown = query(survey, "count where age > 40", "--refine", "nonsense-1", *PRICE)
    assert unknown.code == 1
    with Ledger.open(survey / "survey-2024.ledger") as book:
        assert book.spent().charges == 2


def test_people_are_told_which_groups_noise_hides(survey: Path) -> None:
    out = query(survey, "count by sex", *PRICE).out
    assert "Noise makes groups below about 12 rows unreadable." in out
    assert "unreadable" not in query(survey, "count where age > 40", *PRICE).out


def test_a_table_that_changed_is_paid_for_anew(survey: Path) -> None:
    first = json.loads(query(survey, "count where age > 40", "--json", *PRICE).out)
    (survey / "people.csv").write_text(PEOPLE.replace("p7,", "q,").replace("p0,17,", "p0,89,"))
    second = json.loads(query(survey, "count where age > 40", "--json", *PRICE).out)
    assert not second["cached"]
    assert first["answers"] != second["answers"]


def test_a_dry_run_reads_no_cell_charges_nothing_and_names_the_right_price(
    survey: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = {q: answer(survey, q) for q in ("count where age > 40", "mean(age)", "count by sex")}

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a cell was read")

    monkeypatch.setattr(Table, "_read_pieces", refuse)
    before = sorted(survey.iterdir())
    for question, paid in real.items():
        found = json.loads(query(survey, question, "--dry-run", "--json", *PRICE).out)
        assert found["cost"] == paid["cost"]
        assert found["sd"] == pytest.approx(paid["answers"][0]["sd"], rel=1e-12)
    done = query(survey, "count by sex", "--dry-run", *PRICE)
    assert "would be ± 6.0 rows in each group" in done.out
    filtered = query(survey, "mean(age) where sex = 'f'", "--dry-run", *PRICE)
    assert "wider over fewer rows" in filtered.out
    grouped = query(survey, "mean(age) by sex", "--dry-run", *PRICE)
    size = rf"{N / 3:,.0f} rows \(rows split evenly\)"
    assert re.search(rf"± [\d.]+ years at 95 % in a group of {size}", grouped.out)
    assert sorted(survey.iterdir()) == before


def test_a_dry_run_says_whether_a_query_is_free_fits_or_takes_everything(survey: Path) -> None:
    discreet("ledger", "create", "b.ledger", "--epsilon", "1", "--delta", "1e-6", cwd=survey)
    everything = ("mean(age) by sex", "--ledger", "b.ledger", "--epsilon", "0.9", "--dry-run")
    told = query(survey, *everything).out
    assert "ε = 0.9, in equal shares for 2 sums." in told
    assert "It would take all of the budget: nothing could be asked after it." in told
    found = json.loads(query(survey, *everything, "--json").out)
    assert (found["takes"]["share"], found["more"]) == (1.0, 1)
    price = ("--ledger", "b.ledger", "--epsilon", "0.1")
    paid = json.loads(query(survey, "count where age > 40", *price, "--json").out)
    assert "Free: it was paid for before" in query(survey, "count where age > 40", *price, "--dry-run").out
    assert "Free: it follows from public facts." in query(survey, "count", *price, "--dry-run").out
    other = json.loads(query(survey, "count where age > 41", *price, "--dry-run", "--json").out)
    assert other["takes"]["share"] == paid["takes"]["share"] == paid["used"]["share"]
    assert paid["takes"]["epsilon"] == paid["used"]["epsilon"]
    assert "That is more than is left." in query(survey, *everything).out


def test_a_free_answer_makes_no_ledger(survey: Path) -> None:
    assert "It follows from public facts." in query(survey, "count", *PRICE).out
    assert not list(survey.glob("*.ledger"))
    place = ("ledger", "create", "survey-2024.ledger", "--epsilon", "1")
    assert discreet(*place, cwd=survey).code == 0
    assert "--ledger NEW --new-ledger" in discreet(*place, cwd=survey).err


def test_a_noise_can_be_asked_for_instead_of_a_promise(survey: Path) -> None:
    found = answer(survey, "count where age > 40", "--sd", "25")
    assert found["answers"][0]["sd"] == pytest.approx(25, rel=1e-6)
    assert found["cost"][0]["mu"] == pytest.approx(1 / 25, rel=1e-6)
    done = query(survey, "mean(age)", "--sd", "25")
    assert (done.code, "sd must be of one count or sum, and mean(age) was asked for" in done.err) == (1, True)
    done = query(survey, "count where age > 40, sum(age)", "--sd", "25")
    assert done.code == 1
    done = query(survey, "count, sum(age) where age > 40", "--sd", "25")
    assert (done.code, "and several statistics were asked for" in done.err) == (1, True)


def test_the_number_of_rows_is_free_where_it_is_public_and_paid_for_where_it_is_not(survey: Path) -> None:
    found = answer(survey, "count")
    assert (found["answers"][0]["value"], found["cost"]) == (N, [])
    secret = DECLARED.replace("dataset: survey-2024", "dataset: s, neighbors: add-remove, row_count: private")
    (survey / "people.schema.yaml").write_text(secret)
    found = answer(survey, "count")
    assert found["answers"][0]["value"] != N
    assert len(found["cost"]) == 1
    mean = answer(survey, "mean(age)")["answers"][0]
    assert abs(mean["value"] - sum(AGES) / N) < 2 * (mean["upper"] - mean["lower"])


def test_the_command_line_and_the_database_are_one_thing(survey: Path, schema: Schema) -> None:
    privacy = ApproxDP(epsilon=1, delta=1e-6)
    with Ledger.open(survey / "b.ledger") as book:
        with Database(survey / "people.csv", schema=schema, ledger=book) as db:
            straight = db.count("age > 40", privacy=privacy)
        typed = query_table(survey / "people.csv", "count where age > 40", ledger=book, privacy=privacy)
    assert typed.cached
    assert typed.cells[0].value == straight.value


def test_bundled_tables_and_parquet_need_nothing_set_up(tmp_path: Path) -> None:
    done = discreet("query", "demo:clinic", "count by diagnosis", *PRICE, cwd=tmp_path)
    assert done.code == 0, done.err
    assert sorted(p.name for p in tmp_path.iterdir())[0] == "uci-wdbc.ledger"


# Refusals: one sentence, the right exit code, nothing charged.


REFUSED = {
    "count where agee > 40": "Unknown column agee. Did you mean age?",
    "count where sex > 3": "a category where a number is needed",
    "count where sex = 'q'": "a value that is not declared for sex",
    "mean(1 / hours)": "a division by something that could be zero",
    "mean(person)": "person",
    "count where age": "something other than a condition after WHERE",
    "count(age > 40)": "COUNT of a condition. Write COUNT WHERE age > 40",
    "total(age)": "the word TOTAL. Write SUM.",
    "max(age)": "There is no MAX. It would be the value of one row.",
    "mean": "MEAN of nothing. Write MEAN(age).",
    "count limit 5": "LIMIT without groups",
    "count by sex order by age": "an order by age, which is not returned",
    "": "nothing to compute",
    "count by hours": "a column of numbers to group by",
    "count by sex, sex": "comes twice",
    "count by age (30, 20)": "Write where cells begin: BY age (35, 53, 71).",
    "sum(age) + 1": "+ after sum(age)",
    "SELECT COUNT(*) FROM t GROUP BY sex HAVING COUNT(*) > 9": "Write: SELECT COUNT(*) FROM t GROUP BY sex",
    "DROP TABLE people": "a statement, DROP",
    "count by sex where age > 3": "BY before WHERE",
    "count where age > 3 where age < 9": "a second WHERE",
    "count where age > 3; drop table people": "the sign ;",
    "count where (select 1) > 0": "SELECT",
    "count where sex = 'by": "a quote that is not closed",
    "x" * 9000: "more than 8192 characters",
}


@pytest.mark.parametrize("question", REFUSED, ids=lambda q: q[:30])
def test_what_the_language_has_not_is_refused_before_anything_is_made(survey: Path, question: str) -> None:
    before = sorted(survey.iterdir())
    done = query(survey, question, *PRICE)
    assert done.code == 1
    assert REFUSED[question] in done.err
    assert sorted(survey.iterdir()) == before


def test_words_in_quotes_are_no_keywords(schema: Schema) -> None:
    odd = Schema.from_yaml(DECLARED.replace("[f, m, x]", "[f, 'where by', x]").replace("hours", "group by"))
    found = parse_query("sum(\"group by\") where sex = 'where by' group by sex", odd)
    assert str(found) == "sum(\"group by\") where sex IN ('where by') by sex"
    with pytest.raises(ExpressionRefused):
        parse_query("sum(group by) where sex = 'f'", odd)


@pytest.mark.parametrize("text", ["count by sex", "count GROUP BY sex", "Count  by\n sex"])
def test_by_and_group_by_are_one(schema: Schema, text: str) -> None:
    assert str(parse_query(text, schema)) == "count by sex"


@pytest.mark.parametrize("question", [*TRUE, "mean(hours) where age > 30 by sex, age (40)"])
def test_a_question_as_it_was_understood_is_understood_as_itself(schema: Schema, question: str) -> None:
    once = str(parse_query(question, schema))
    assert str(parse_query(once, schema)) == once


def test_more_groups_than_anybody_could_read_are_refused(survey: Path) -> None:
    wide = "\n".join(
        f"  - {{name: c{i}, type: integer, constraints: {{minimum: 0, maximum: 999, required: true}}}}"
        for i in range(3)
    )
    (survey / "wide.csv").write_text("c0,c1,c2\n1,2,3\n")
    (survey / "wide.schema.yaml").write_text(f"privacy: {{dataset: wide}}\nfields:\n{wide}\n")
    done = discreet("query", "wide.csv", "count by c0, c1, c2", *PRICE, cwd=survey)
    assert (done.code, "groups" in done.err) == (1, True)


def test_the_budget_that_is_used_up_says_what_is_left(survey: Path) -> None:
    discreet("ledger", "create", "b.ledger", "--epsilon", "1", "--delta", "1e-6", cwd=survey)
    done = query(survey, "count where age > 40", "--ledger", "b.ledger", "--epsilon", "3", "--delta", "1e-6")
    assert done.code == 4
    assert "Not enough budget: this takes " in done.err
    assert re.search(
        r"and 100\.0.% is left\. Nothing was charged\. --epsilon [\d.]+ would still fit\.", done.err
    )
    fits = re.findall(r"--epsilon ([\d.]+) would", done.err)[0]
    told = query(survey, "count where age > 40", "--ledger", "b.ledger", "--epsilon", fits, "--delta", "1e-6")
    assert told.code == 0, told.err
    discreet("ledger", "create", "c.ledger", "--epsilon", "1", "--delta", "1e-6", cwd=survey)
    mean = query(survey, "mean(age) by sex", "--ledger", "c.ledger", "--new-ledger", "--epsilon", "3")
    assert re.search(r"--epsilon [\d.]+ would still fit\.", mean.err)
    assert "DP(" not in done.err + mean.err
    with Ledger.open(survey / "b.ledger") as book, Ledger.open(survey / "c.ledger") as other:
        assert (book.spent().charges, other.spent().charges) == (1, 0)


def test_a_mean_by_groups_is_refused_as_a_whole(survey: Path) -> None:
    discreet("ledger", "create", "b.ledger", "--rho", "0.01", cwd=survey)
    done = query(survey, "mean(hours) by sex", "--ledger", "b.ledger", "--rho", "0.015")
    assert done.code == 4, done.err
    with Ledger.open(survey / "b.ledger") as book:
        assert book.spent().charges == 0
    assert query(survey, "mean(hours) by sex", "--ledger", "b.ledger", "--rho", "0.009").code == 0


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ((), "exactly one of a promise and a noise, and was given neither"),
        (("--epsilon", "1", "--sd", "3"), "given both"),
        (("--epsilon", "1", "--mu", "3"), "--epsilon and --mu exclude each other"),
        (("--delta", "1e-6"), "delta needs an epsilon"),
        (("--epsilon", "-1"), "epsilon"),
        ((*PRICE, "--ledger", "x.ledger", "--no-ledger"), "exclude each other"),
        ((*PRICE, "--ledger", "none"), "write --no-ledger"),
    ],
)
def test_a_price_must_be_said_once(survey: Path, how: tuple[str, ...], said: str) -> None:
    done = query(survey, "count where age > 40", *how)
    assert (done.code, said in done.err) == (1, True), done.err


def test_a_table_without_rows_or_without_a_declared_column_is_refused(survey: Path) -> None:
    (survey / "people.csv").write_text("person,age,hours,sex\n")
    done = query(survey, "count where age > 40", *PRICE)
    assert (done.code, "must have at least one row" in done.err) == (1, True)
    (survey / "people.csv").write_text("person,agee,hours,sex\np,3,4,f\n")
    done = query(survey, "count where age > 40", *PRICE)
    assert done.code == 2
    assert "agee" in done.err
    (survey / "people.csv").write_text("person,age,hours,sex\np,wizened,4,f\n")
    done = query(survey, "count where age > 40", *PRICE)
    assert done.code == 1
    assert "wizened" not in done.err


def test_a_table_without_a_declaration_gets_a_draft(survey: Path) -> None:
    (survey / "people.schema.yaml").unlink()
    done = query(survey, "count", *PRICE)
    assert done.code == 2
    assert (survey / "people.schema.yaml").exists()


def test_an_error_is_told_to_programs_too(survey: Path) -> None:
    done = query(survey, "count where agee > 4", "--json", *PRICE)
    assert json.loads(done.out)["error"]["kind"] == "ExpressionRefused"


def test_prices_need_no_table_but_for_means(schema: Schema) -> None:
    found = preview_table_query(
        "nowhere.csv", "count where age > 40", schema=schema, privacy=ApproxDP(epsilon=1, delta=1e-6)
    )
    assert found.margin is not None
    assert found.cost


# Tables elsewhere.


def test_a_table_in_postgresql_is_asked_and_learned_from_the_same_way(
    survey: Path, postgres_url: str
) -> None:
    import psycopg

    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE people (person text, age int, hours float8, sex text)")
        with connection.cursor().copy("COPY people FROM STDIN WITH (FORMAT csv, HEADER)") as copy:
            copy.write(PEOPLE)
    address = f"{postgres_url}?table=people"
    told = ("--schema", "people.schema.yaml", "--ledger", "b.ledger")
    done = discreet("query", address, "mean(age) where sex = 'f'", *told, "--mu", "0.5", "--json", cwd=survey)
    assert done.code == 0, done.err
    (cell,) = json.loads(done.out)["answers"]
    assert abs(cell["value"] - TRUE["Mean(age) where sex = 'f'"]) < 2 * (cell["upper"] - cell["lower"])
    model = discreet("learn", address, "--model", "id3", "--target", "sex", *told, "--mu", "1", cwd=survey)
    assert model.code == 0, model.err
    assert verify(survey / "model").ok
    password = urlsplit(postgres_url).password
    assert password
    kept = [*survey.glob("*.jsonl"), *(survey / "model").rglob("*.*")]
    assert len(kept) > 4
    assert not any(password.encode() in path.read_bytes() for path in kept if path.is_file())
    empty = f"{postgres_url}?table=nowhere"
    assert discreet("query", empty, "count", *told, "--mu", "0.5", cwd=survey).code == 1


def test_a_duckdb_file_is_asked_the_same_way(survey: Path) -> None:
    import duckdb

    with duckdb.connect(str(survey / "people.duckdb")) as connection:
        connection.execute(f"CREATE TABLE people AS FROM read_csv('{survey / 'people.csv'}')")
    done = discreet(
        "query", "people.duckdb", "count where age > 40", "--schema", "people.schema.yaml", "--no-ledger",
        "--mu", "0.5", "--json", cwd=survey,
    )  # fmt: skip
    assert done.code == 0, done.err
    (cell,) = json.loads(done.out)["answers"]
    assert abs(cell["value"] - TRUE["age > 40"]) < 6 * cell["sd"]
