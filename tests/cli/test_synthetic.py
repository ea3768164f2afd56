"""``--method synthetic`` on the command line: release, plan, more rows from the same answers, refusals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from discreet import Ledger
from tests.cli.run import Done, discreet

if TYPE_CHECKING:
    from pathlib import Path

ROWS = "age,sex,ill,note\n" + "".join(
    f"{17 + 7 * i % 73},{'fm'[i % 2]},{'yes' if 7 * i % 73 > 40 else 'no'},n{i}\n" for i in range(400)
)
DECLARED = """\
privacy: {dataset: survey-2024}
fields:
  - {name: age, type: integer, constraints: {minimum: 17, maximum: 90}}
  - {name: sex, type: string, constraints: {enum: [f, m]}, privacy: {closed: true}}
  - {name: ill, type: string, constraints: {enum: ["no", "yes"]}, privacy: {closed: true}}
"""
EPSILON = ("--method", "synthetic", "--epsilon", "6", "--delta", "1e-6")


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    """A folder with a table and its declaration."""
    (tmp_path / "people.csv").write_text(ROWS)
    (tmp_path / "people.schema.yaml").write_text(DECLARED)
    (tmp_path / "cells.yaml").write_text("age: [30, 40, 60]\n")
    return tmp_path


def run(cwd: Path, command: str, *flags: str) -> Done:
    return discreet(command, "people.csv", *flags, cwd=cwd)


@pytest.mark.slow
def test_a_table_is_made_checked_and_made_again_in_another_size(survey: Path) -> None:
    done = run(survey, "release", *EPSILON, "--cells", "cells.yaml", "--target", "ill", "--rows", "150")
    assert done.code == 0, done.err
    assert "charged before as" in " ".join(done.out.split())
    assert "May it be published? Yes." in done.out
    page = (survey / "release" / "public" / "statement.html").read_text()
    assert "Finds a row like a person" in page
    assert "for people who are not in the table, limit" in page
    statement = json.loads((survey / "release" / "public" / "statement.json").read_text())
    assert statement["what"]["method"]["parameters"]["cells"] == {"age": [30, 40, 60]}
    assert statement["what"]["rows_published"] == 150
    assert discreet("verify", "release", cwd=survey).code == 0
    charges = len(Ledger.open(survey / "survey-2024.ledger").history())
    tables = str(survey / "release" / "public" / "tables.json")
    more = discreet(
        "release", "--from-tables", tables, "--rows", "90", "--draw", "2", "--out", "more", cwd=survey
    )
    assert more.code == 0, more.err
    assert discreet("verify", "more", cwd=survey).code == 0
    again = json.loads((survey / "more" / "public" / "statement.json").read_text())
    assert again["what"]["rows_published"] == 90
    assert again["what"]["release"] != statement["what"]["release"]
    assert len(Ledger.open(survey / "survey-2024.ledger").history()) == charges
    both = discreet("release", "people.csv", "--from-tables", tables, cwd=survey)
    assert both.code != 0
    assert "reads no table" in both.err


def test_a_plan_says_how_noisy_counts_will_be_and_charges_nothing(survey: Path) -> None:
    done = run(survey, "plan", *EPSILON)
    assert done.code == 0, done.err
    assert "sd of a count" in done.out
    assert "<- chosen" in done.out
    planned = json.loads(run(survey, "plan", *EPSILON, "--rows", "5000", "--json").out)["questions"]
    (chosen,) = (one for one in planned if one["requested"])
    assert chosen["questions"] == ["fine", "one", "scores", "tables", "scores again", "more tables"]
    assert chosen["count_sd"] > 0
    assert not (survey / "survey-2024.ledger").exists()


def test_a_flag_has_public_columns_made_up(survey: Path) -> None:
    declared = DECLARED.replace("{enum: [f, m]}, privacy: {", "{enum: [f, m]}, privacy: {role: public, ")
    (survey / "people.schema.yaml").write_text(declared)
    kept, made_up = run(survey, "plan", *EPSILON), run(survey, "plan", *EPSILON, "--no-keep-public")
    assert made_up.code == kept.code == 0, made_up.err
    assert "made up like the others: sex" in " ".join(made_up.out.split())
    assert "made up like the others: sex" not in " ".join(kept.out.split())


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--method", "synthetic"), "needs a promise"),
        (
            (*EPSILON, "--no-keep-public", "--set", "keep_public=true"),
            "--no-keep-public and --set keep_public",
        ),
        (("--protect", "age=9", "--no-keep-public"), "keep_public"),
        (("--method", "synthetic", "--epsilon", "0.001", "--delta", "1e-6"), "Ask for epsilon"),
        ((*EPSILON, "--protect", "age=9"), "--method bounded"),
        ((*EPSILON, "--target", "nobody"), "nobody"),
        ((*EPSILON, "--cells", "people.csv"), "a list of values for each column"),
        ((*EPSILON, "--cells", "nothing.yaml"), "can be read"),
        ((*EPSILON, "--set", 'cells={"sex": [1]}'), "levels of a category are its cells"),
        (("--method", "gaussian", "--epsilon", "1", "--delta", "1e-6", "--rows", "9"), "n_records"),
    ],
)
def test_bad_input_is_refused_in_a_sentence_before_anything_is_charged(
    survey: Path, flags: tuple[str, ...], said: str
) -> None:
    done = run(survey, "release", *flags)
    assert done.code != 0
    assert said in " ".join(done.err.split())
    ledger = survey / "survey-2024.ledger"
    assert not ledger.exists() or not Ledger.open(ledger).history()


def test_too_little_budget_is_said_before_the_first_question(survey: Path) -> None:
    from discreet import ApproxDP

    Ledger.open(survey / "small.ledger", limit=ApproxDP(epsilon=2, delta=1e-6))
    done = run(survey, "release", *EPSILON, "--ledger", "small.ledger")
    assert done.code != 0
    assert "would still fit" in " ".join(done.err.split())
    assert not Ledger.open(survey / "small.ledger").history()


def test_more_cells_than_rows_are_refused(survey: Path) -> None:
    (survey / "people.csv").write_text("\n".join(ROWS.splitlines()[:61]) + "\n")
    (survey / "many.yaml").write_text(f"age: {list(range(18, 91))}\n")
    done = run(survey, "release", *EPSILON, "--cells", "many.yaml")
    assert done.code != 0
    assert "fewer than the rows" in " ".join(done.err.split())


def test_a_draft_of_a_schema_says_what_a_synthetic_table_needs(survey: Path) -> None:
    done = run(survey, "init", "--out", "draft.yaml")
    assert done.code == 0, done.err
    assert "--method synthetic" in " ".join(done.out.split())
