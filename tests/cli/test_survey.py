"""A survey of 40 columns with codes for missing answers: from the file to a verified release."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import pytest

from discreet.schema import Schema
from tests.cli.run import discreet
from tests.survey import NAMES, QUESTIONS, survey_csv, survey_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DECLARED = ("--dataset", "survey-2024", "--max-rows-per-unit", "1", "--accept-proposals")
# What a person writes into the draft: old line, new lines.
BY_HAND = (
    ("bounds_source: ???", ["bounds_source: questionnaire of 2024"]),
    ("constraints: {minimum: 1, maximum: 5}",
     ['missingValues: ["", "99"]', "constraints: {minimum: 1, maximum: 5, required: false}"]),
    ("constraints: {minimum: 0, maximum: 120}",
     ['missingValues: ["", "999"]', "constraints: {minimum: 18, maximum: 100, required: false}"]),
    ("enum: ???", ["enum: [female, male, diverse]"]),
    ("enum: ???", ["enum: [north, south, east, west]"]),
    ("enum: ???", ["enum: [none, school, college, university]"]),
    ("minimum: ???", ["minimum: 0"]),
    ("maximum: ???", ["maximum: 30000"]),
)  # fmt: skip


def complete(draft: str) -> str:
    """The draft with what a person writes; every line keeps its indent."""
    for old, new in BY_HAND:
        line = next(line for line in draft.splitlines() if old in line)
        indent = line[: len(line) - len(line.lstrip())]
        draft = draft.replace(line, "\n".join(indent + one for one in new), 1)
    return draft


def count_written_lines(before: str, after: str) -> int:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return sum(line.startswith("+ ") for line in lines)


def write_csv(folder: Path, n: int) -> str:
    (folder / "survey.csv").write_text(survey_csv(n))
    return "survey.csv"


def write_xlsx(folder: Path, n: int) -> str:
    import xlsxwriter

    with xlsxwriter.Workbook(folder / "survey.xlsx") as book:
        sheet = book.add_worksheet()
        for i, row in enumerate([NAMES, *survey_rows(n)]):
            sheet.write_row(i, 0, [int(cell) if cell.isdigit() else cell for cell in row])
    return "survey.xlsx"


def test_forty_columns_leave_few_places_to_fill_in_and_few_lines_to_write(tmp_path: Path) -> None:
    table = write_csv(tmp_path, 300)
    draft = tmp_path / "survey.schema.yaml"
    assert discreet("init", table, cwd=tmp_path).code == 0
    assert draft.read_text().count("???  #") == 9  # 119 before there were rules and proposals
    assert discreet("init", table, "--replace", *DECLARED, cwd=tmp_path).code == 0
    done = complete(draft.read_text())
    assert count_written_lines(draft.read_text(), done) == 10
    schema = Schema.from_yaml(done)
    assert schema.names == NAMES
    assert {schema.column(name).missing_values for name in QUESTIONS} == {("", "99")}
    assert {schema.column(name).role for name in ("email", "comments")} == {"drop"}
    assert schema.column("respondent_id").role == "id"
    assert schema.column("q7").bounds_source == "proposed by name, confirmed by the curator"
    assert schema.column("satisfied").levels == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_csv, write_xlsx])
def test_a_survey_goes_from_its_file_to_a_verified_release(
    tmp_path: Path, write: Callable[[Path, int], str]
) -> None:
    table = write(tmp_path, 2_000)
    refused = []
    place = tmp_path / "survey.schema.yaml"

    def run(*arguments: str) -> None:
        done = discreet(*arguments, cwd=tmp_path)
        if done.code:
            refused.append(done.err)

    run("init", table, *DECLARED)
    draft = place.read_text()
    place.write_text(complete(draft))
    run(
        "release",
        table,
        "--method",
        "synthetic",
        "--epsilon",
        "1",
        "--delta",
        "1e-6",
        "--target",
        "satisfied",
    )
    run("verify", "release")
    assert refused == []  # at most 1 is allowed
    assert count_written_lines(draft, place.read_text()) <= 15
    statement = (tmp_path / "release" / "public" / "statement.json").read_text()
    assert "proposed by name, confirmed by the curator" in statement
    assert "patterns" not in statement
