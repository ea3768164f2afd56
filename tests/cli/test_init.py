"""``discreet init`` with a codebook, proposals and a paid estimate of bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from discreet import Ledger
from discreet.schema import Schema
from tests.cli.run import Done, discreet
from tests.survey import survey_csv

if TYPE_CHECKING:
    from pathlib import Path

CODEBOOK = """\
name,label,lower,upper,values,missing
age,Age in years,18,100,,999
gender,,,,female; male; diverse,
region,,,,"north, south, east, west",
Education,,,,none|school|college|university,
left_out,,0,1,,
"""
PAID = ("--private-bounds", "--epsilon", "2", "--delta", "1e-6")
ABOUT = ("--dataset", "survey-2024", "--max-rows-per-unit", "1", "--accept-proposals")


@pytest.fixture
def survey(tmp_path: Path) -> Path:
    (tmp_path / "survey.csv").write_text(survey_csv(1_000))
    (tmp_path / "codebook.csv").write_text(CODEBOOK)
    return tmp_path


def init(cwd: Path, *flags: str) -> Done:
    return discreet("init", "survey.csv", *flags, cwd=cwd)


def test_a_codebook_fills_in_what_it_says_and_names_what_the_table_lacks(survey: Path) -> None:
    done = init(survey, "--codebook", "codebook.csv", *ABOUT)
    assert done.code == 0, done.err
    assert "3 places to fill in" in done.out  # the ends of income, and who says so
    assert "also names left_out, which the table does not have" in done.out
    text = (survey / "survey.schema.yaml").read_text()
    text = text.replace("minimum: ???", "minimum: 0").replace("maximum: ???", "maximum: 9")
    schema = Schema.from_yaml(text.replace("bounds_source: ???", "bounds_source: law"))
    assert schema.column("age").missing_values == ("", "999")
    assert not schema.column("age").required
    assert {schema.column(name).bounds_source for name in ("age", "gender", "education")} == {"codebook.csv"}


def test_a_wrong_codebook_writes_no_draft(survey: Path) -> None:
    (survey / "codebook.csv").write_text("name,lower,upper\nage,0,old\n")
    done = init(survey, "--codebook", "codebook.csv")
    assert done.code == 2
    assert "codebook.csv, line 2, column 'age': upper must be a number" in done.err
    assert not (survey / "survey.schema.yaml").exists()


def test_an_estimate_is_charged_and_its_receipt_is_the_source_of_the_bounds(survey: Path) -> None:
    done = init(survey, "--codebook", "codebook.csv", *ABOUT, *PAID, "--id-column", "respondent_id", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["lines_to_fill"] == []
    assert found["estimated"] == ["income"]
    schema = Schema.load(survey / "survey.schema.yaml")
    income = schema.column("income")
    # 1,000 to 27,000 in the rows; cells end at 1, 1.5, 2, 3, 5 and 7 times powers of ten.
    assert income.lower == 0
    assert income.upper in (20_000, 30_000)
    (entry,) = Ledger.open(survey / "survey-2024.ledger").entries()
    assert f"receipt {entry.receipt.id}; with probability 0.999 at most" in str(income.bounds_source)
    assert entry.receipt.promises[0].unit == "person"
    # An existing file is not overwritten, and nothing is charged for trying.
    again = init(survey, *ABOUT, *PAID)
    assert again.code == 1
    assert "exists already" in again.err
    assert len(Ledger.open(survey / "survey-2024.ledger").entries()) == 1


def test_too_strong_a_promise_is_refused_from_public_facts(survey: Path) -> None:
    done = init(survey, *ABOUT, "--private-bounds", "--epsilon", "0.01", "--delta", "1e-6")
    assert done.code == 1
    assert "must be at least" in done.err
    assert "1 column and 1,000 rows, was 0.01" in done.err
    assert not (survey / "survey-2024.ledger").exists()
    assert not (survey / "survey.schema.yaml").exists()
    least = float(done.err.split("must be at least ")[1].split()[0])
    assert 0.1 < least < 2


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--epsilon", "1"), "--private-bounds, which was not given"),
        (("--private-bounds", "--epsilon", "1"), "needs --dataset and --max-rows-per-unit"),
        (("--private-bounds", *ABOUT), "needs --epsilon"),
    ],
)
def test_an_estimate_without_its_promise_or_its_unit_is_refused(
    survey: Path, flags: tuple[str, ...], word: str
) -> None:
    done = init(survey, *flags)
    assert done.code == 1
    assert word in " ".join(done.err.split())
