"""A file of questions is one plan: shared equally, checked as a whole, paid together or not at all."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

from discreet.errors import EngineFailed, ParameterError, SourceError
from discreet.ledger import Ledger
from discreet.pipeline.query import QuerySession
from discreet.pipeline.query_plan import plan_queries, run_plan
from discreet.pipeline.question_file import decode_questions, read_questions, split_questions
from discreet.privacy import ApproxDP, GaussianDP, PureDP
from tests.cli.run import Done, discreet
from tests.cli.test_query import DECLARED, PEOPLE, PRICE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

QUESTIONS = """\
-- The questions of an office; in words or SQL.
count where age > 40
mean(hours) by sex     -- a sum and a count

SELECT COUNT(*) FROM people WHERE sex = 'f'
count
40 < age
"""


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    """A folder with a table, its declaration and a file of questions."""
    (tmp_path / "people.csv").write_text(PEOPLE)
    (tmp_path / "people.schema.yaml").write_text(DECLARED)
    (tmp_path / "q.sql").write_text(QUESTIONS)
    return tmp_path


def query(cwd: Path, *more: str) -> Done:
    return discreet("query", "people.csv", *more, cwd=cwd)


def charged(survey: Path, name: str = "survey-2024.ledger") -> int:
    with Ledger.open(survey / name) as ledger:
        return ledger.spent().charges


def test_questions_stand_on_lines_or_end_with_semicolons() -> None:
    assert [(q.line, q.text) for q in split_questions(QUESTIONS)] == [
        (2, "count where age > 40"),
        (3, "mean(hours) by sex"),
        (5, "SELECT COUNT(*) FROM people WHERE sex = 'f'"),
        (6, "count"),
        (7, "40 < age"),
    ]
    text = "SELECT COUNT(*) -- all; of them\nFROM t;\n\n/* two\nlines */ count where x = ';--'; ;\n"
    assert [(q.line, q.text) for q in split_questions(text)] == [
        (1, "SELECT COUNT(*)                \nFROM t"),
        (5, "count where x = ';--'"),
    ]
    assert [q.text for q in split_questions("count\r\nmean(age)\r\n")] == ["count", "mean(age)"]


@pytest.mark.parametrize("content", [b"", b"-- nothing\n", b";;\n", b"count\n" * 1001])
def test_a_file_without_questions_or_with_too_many_is_refused(content: bytes) -> None:
    with pytest.raises(ParameterError, match="must hold from 1 to 1,000 questions"):
        decode_questions(content, "q.sql")


@pytest.mark.parametrize("content", [b"\xff\xfec\0o\0", b"count\0", b"mean(\xe4ge)"])
def test_a_file_that_is_no_text_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_bytes(content)
    with pytest.raises(SourceError, match="must be a text in UTF-8"):
        read_questions(tmp_path / "q.sql")
    with pytest.raises(SourceError, match="cannot be read"):
        read_questions(tmp_path / "nowhere.sql")
    (tmp_path / "q.sql").write_bytes("\ufeffcount".encode())
    assert read_questions(tmp_path / "q.sql")[0].text == "count"


def test_the_promise_is_shared_equally_among_different_questions_that_cost_something(survey: Path) -> None:
    found = json.loads(query(survey, "--file", "q.sql", "--json", "--rho", "0.03").out)["results"]
    assert [len(one["cost"]) for one in found] == [1, 1, 1, 0, 1]
    mu = [sum(cost["mu"] ** 2 for cost in one["cost"]) for one in found]
    assert [mu[0], mu[1], mu[2]] == pytest.approx([0.02] * 3, rel=1e-9)
    assert found[0]["answers"] == found[4]["answers"]
    assert found[0]["rows"] == found[4]["rows"]
    assert charged(survey) == 3
    with Ledger.open(survey / "survey-2024.ledger") as ledger:
        assert float(ledger.spent().gaussian) <= 0.03


@pytest.mark.parametrize(
    ("privacy", "kinds"),
    [
        (PureDP(epsilon=1), {PureDP}),
        (GaussianDP(mu=1), {GaussianDP}),
        (ApproxDP(epsilon=1, delta=1e-6), {PureDP}),
    ],
)
def test_all_answers_get_noise_of_one_law(survey: Path, privacy: Any, kinds: set[type]) -> None:
    with QuerySession(survey / "people.csv") as session:
        plan = plan_queries(session, read_questions(survey / "q.sql"), privacy=privacy)
        assert {type(promise) for promise in plan.cost} == kinds
        # Of many questions Gaussian noise is smaller at the same (epsilon, delta).
        many = decode_questions("\n".join(f"age > {i}" for i in range(20, 60)).encode(), "many")
        wanted = {PureDP} if isinstance(privacy, PureDP) else {GaussianDP}
        assert {type(p) for p in plan_queries(session, many, privacy=privacy).cost} == wanted


def test_each_question_can_have_the_whole_promise_or_its_own_noise(survey: Path) -> None:
    each = json.loads(query(survey, "--file", "q.sql", "--each", "--dry-run", "--json", "--mu", "0.1").out)
    assert each["questions"][0]["cost"][0]["mu"] == pytest.approx(0.1)
    assert len(each["cost"]) == 3
    (survey / "counts.sql").write_text("age > 40\nage > 41")
    noisy = json.loads(query(survey, "--file", "counts.sql", "--dry-run", "--json", "--sd", "20").out)
    assert [one["sd"] for one in noisy["questions"]] == pytest.approx([20, 20], rel=1e-6)


def test_a_dry_run_shows_the_plan_and_charges_nothing(survey: Path) -> None:
    before = sorted(survey.iterdir())
    done = query(survey, "--file", "q.sql", "--dry-run", "--epsilon", "0.3")
    assert done.code == 0, done.err
    assert re.search(r"^2 +count where 40 < age +± 30 rows at 95 % +ε = 0\.1 *$", done.out, re.MULTILINE)
    assert re.search(r"^6 +count +.* +free *$", done.out, re.MULTILINE)
    assert "Together: ε = 0.3.\n" in done.out
    assert sorted(survey.iterdir()) == before
    discreet("ledger", "create", "survey-2024.ledger", "--epsilon", "1", "--delta", "1e-6", cwd=survey)
    assert "of the budget." in query(survey, "--file", "q.sql", "--dry-run", "--epsilon", "0.3").out
    assert charged(survey) == 0


def test_answers_are_listed_with_what_they_cost_together(survey: Path) -> None:
    discreet("ledger", "create", "survey-2024.ledger", "--epsilon", "1", "--delta", "1e-6", cwd=survey)
    done = query(survey, "--file", "q.sql", "--epsilon", "0.03")
    assert done.code == 0, done.err
    told = " ".join(done.out.split())
    assert re.search(r"Cost: ε = 0\.03; rows \d+, \d+, \d+ of the ledger\.", told)
    assert re.search(r"It took ([\d.]+) % of the budget\. \1 % of the budget is used", told)
    assert done.out.index("count where 40 < age") < done.out.index("mean(hours) by sex")
    again = query(survey, "--file", "q.sql", "--epsilon", "0.03")
    assert "Cost: nothing. All answers were paid for before" in again.out
    assert charged(survey) == 3


def test_a_file_that_does_not_fit_is_refused_as_a_whole(survey: Path) -> None:
    discreet("ledger", "create", "survey-2024.ledger", "--rho", "0.01", cwd=survey)
    done = query(survey, "--file", "q.sql", "--rho", "0.015")
    assert (done.code, charged(survey)) == (4, 0), done.err
    fits = re.findall(r"--rho ([\d.]+) would still fit\.", done.err)[0]
    assert "That is more than is left" in query(survey, "--file", "q.sql", "--rho", "0.015", "--dry-run").out
    assert query(survey, "--file", "q.sql", "--rho", fits).code == 0


def test_a_first_file_may_take_exactly_the_whole_limit(survey: Path) -> None:
    discreet("ledger", "create", "survey-2024.ledger", "--epsilon", "1", "--delta", "1e-6", cwd=survey)
    done = query(survey, "--file", "q.sql", *PRICE, "--dry-run")
    assert "It would take all of the budget" in done.out
    assert query(survey, "--file", "q.sql", *PRICE).code == 0
    assert query(survey, "count where age > 50", "--epsilon", "0.01").code == 4
    assert "paid for before" in query(survey, "--file", "q.sql", *PRICE).out


@pytest.mark.parametrize("promise", [PureDP(epsilon=0.3), ApproxDP(epsilon=1, delta=1e-6)])
def test_after_a_crash_the_answered_questions_are_free_and_the_rest_still_fits(
    survey: Path, monkeypatch: pytest.MonkeyPatch, promise: Any
) -> None:
    with Ledger.open(survey / "survey-2024.ledger", limit=ApproxDP(epsilon=1, delta=1e-6)):
        pass
    questions = read_questions(survey / "q.sql")
    ask: Callable[..., Any] = QuerySession.query

    def fail(session: QuerySession, question: str, **how: Any) -> Any:
        if question.startswith("SELECT"):
            raise EngineFailed
        return ask(session, question, **how)

    with monkeypatch.context() as patched, QuerySession(survey / "people.csv") as session:
        patched.setattr(QuerySession, "query", fail)
        plan = plan_queries(session, questions, privacy=promise)
        with pytest.raises(EngineFailed):
            run_plan(session, plan)
    assert charged(survey) == 2
    with QuerySession(survey / "people.csv") as session:
        plan = plan_queries(session, questions, privacy=promise)
        assert len(plan.cost) == 1
        results = run_plan(session, plan)
        assert [one.cached for one in results[:3]] == [True, True, False]
    assert charged(survey) == 3


def test_all_wrong_questions_are_named_with_their_lines_and_none_is_charged(survey: Path) -> None:
    (survey / "q.sql").write_text("count where age > 40\ncount where agee > 4\n\nmean(sex)\n")
    done = query(survey, "--file", "q.sql", *PRICE)
    assert done.code == 1
    assert "2 of 3 questions cannot be asked, so none was asked and nothing was charged:" in done.err
    assert "- line 2: Unknown column agee. Did you mean age?" in done.err
    assert "- line 4: " in done.err
    assert not (survey / "survey-2024.ledger").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("count", "--file", "q.sql"), "--file and QUESTION exclude each other"),
        (("--file", "q.sql", "--refine", "a-1"), "--file and --refine exclude each other"),
        (("--file", "q.sql"), "exactly one of a promise and a noise"),
        (("count", "--json", "--csv"), "--json and --csv exclude each other"),
        (("count", "--csv", "--dry-run"), "--csv and --dry-run exclude each other"),
        (("count", "--plot", "a.svg", "--dry-run"), "--plot and --dry-run exclude each other"),
        (("count", "--plot", "a.png"), "must name a file that ends with .svg"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(survey: Path, more: tuple[str, ...], said: str) -> None:
    done = query(survey, *more, *(() if "promise" in said else PRICE))
    assert (done.code, said in done.err) == (1, True), done.err
    assert not (survey / "survey-2024.ledger").exists()


def test_standard_input_is_a_file_too(survey: Path) -> None:
    typed = io.TextIOWrapper(io.BytesIO(b"age > 40\nage > 41\n"))
    with mock.patch.object(sys, "stdin", typed):
        done = query(survey, "--file", "-", "--mu", "0.1", "--json")
    assert len(json.loads(done.out)["results"]) == 2, done.err


# Forms of one answer and of several.


def test_csv_has_the_groups_and_the_ends_of_the_intervals(survey: Path) -> None:
    found = json.loads(query(survey, "count by age (40), sex", "--json", *PRICE).out)
    done = query(survey, "count by age (40), sex", "--csv", *PRICE)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [(row["age"], row["sex"]) for row in rows] == [tuple(cell["key"]) for cell in found["answers"]]
    for name in ("value", "lower", "upper"):
        assert [float(row[name]) for row in rows] == [cell[name] for cell in found["answers"]]


def test_csv_of_several_questions_is_one_table(survey: Path) -> None:
    (survey / "q.sql").write_text("mean(age) by sex\nage > 40\ncount by age (40)\n")
    done = query(survey, "--file", "q.sql", "--csv", "--mu", "0.5")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert list(rows[0])[:3] == ["question", "sex", "age"]
    assert [(row["question"], row["sex"], row["age"]) for row in rows] == [
        *(("mean(age) by sex", sex, "") for sex in "fmx"),
        ("count where 40 < age", "", ""),
        *(("count by age (40)", "", age) for age in ("below 40", "40 or more")),
    ]


def test_charts_are_files_one_for_each_question(survey: Path) -> None:
    done = query(survey, "count by sex", "--plot", "a.svg", *PRICE)
    assert "●" in done.out
    assert (survey / "a.svg").read_text().startswith("<svg")
    assert query(survey, "--file", "q.sql", "--plot", "b.svg", "--csv", *PRICE).code == 0
    assert sorted(path.name for path in survey.glob("b*.svg")) == [f"b-{i}.svg" for i in range(1, 6)]
    lost = query(survey, "count by sex", "--plot", "nowhere/a.svg", *PRICE)
    assert (lost.code, "free of charge" in lost.err) == (1, True)
