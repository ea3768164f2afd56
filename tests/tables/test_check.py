"""Every problem of a table at once, without a cell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from discreet.pipeline.check import check_table
from discreet.schema import Column, Schema
from tests.cli.run import discreet

if TYPE_CHECKING:
    from pathlib import Path

ROWS = """\
a;b;c
1,5;x;01.02.2024
2;y;31.02.2024
SECRET;z;
3;z
4;"w
w";1.1.2024;7
5;x;02.02.2024
"""
DECLARED = """\
privacy: {dataset: d-1}
dialect: {delimiter: ";", decimalChar: ","}
fields:
- {name: a, type: integer, constraints: {minimum: 2, maximum: 3}}
- {name: b, type: string, constraints: {enum: [x, y]}}
- {name: c, type: date, format: "%d.%m.%Y", constraints: {minimum: 2000-01-01, maximum: 2030-01-01}}
- {name: d, type: number, constraints: {minimum: 2, maximum: 3}}
"""


def test_every_problem_is_listed_by_column_rule_and_line(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ROWS)
    (tmp_path / "t.schema.yaml").write_text(DECLARED)
    done = discreet("check", "t.csv", "--json", cwd=tmp_path)
    assert done.code == 2
    assert "SECRET" not in done.out + done.err
    found = [
        (
            finding["column"],
            finding["level"],
            finding["rule"].split(" with ','")[0],
            finding["count"],
            finding["lines"],
        )
        for finding in json.loads(done.out)["findings"]
    ]
    assert found == [
        (None, "problem", "have 3 cells in each line", "2-9", [5, 6]),
        ("d", "problem", "be in the table as declared", None, []),
        ("a", "problem", "hold a whole number", "2-9", [2, 4]),
        ("c", "problem", "hold a date written as %d.%m.%Y", "1", [3]),
        ("c", "problem", "hold something", "1", [4]),
        ("a", "note", "be within its bounds", "1", [8]),
        ("b", "note", "hold a listed value", "1", [4]),
    ]
    shown = discreet("check", "t.csv", cwd=tmp_path)
    assert shown.code == 2
    assert "a release would refuse it." in shown.out
    assert "a code for no answer, list it in missingValues" in " ".join(shown.out.split())


def test_the_refusal_of_a_release_names_the_check(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a;b;c\n2;y;x\n")
    (tmp_path / "t.schema.yaml").write_text(DECLARED.partition("- {name: d")[0])
    done = discreet("release", "t.csv", "--epsilon", "1", "--out", "out", cwd=tmp_path)
    assert done.code == 1
    assert "`discreet check` lists every such cell." in done.err


def test_a_table_without_a_schema_is_checked_by_what_it_suggests(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "1.5,2024-01-02\n" * 99 + "1.5,2024-01-42\n1,2,3\n")
    result = check_table(tmp_path / "t.csv")
    assert [(finding.column, finding.lines) for finding in result.findings] == [(None, (102,)), ("y", (101,))]
    assert result.by == "draft"
    (tmp_path / "t.schema.yaml").write_text("fields: [{name: x, type: number}]\n")
    assert len(check_table(tmp_path / "t.csv").schema_problems) == 1


def test_a_time_of_day_is_noted_for_a_date_and_read_for_a_datetime(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes("a\tb\r\n1\t31.12.2023 23:59\r\n".encode("utf-16"))
    declared = (
        'dialect: {delimiter: "\\t", encoding: utf-16}\n'
        "fields:\n"
        "  - {name: a, type: integer, constraints: {minimum: 0, maximum: 9}}\n"
        "  - name: b\n    type: date\n    format: '%d.%m.%Y %H:%M'\n"
        "    constraints: {minimum: 2020-01-01, maximum: 2030-01-01}\n"
    )
    (tmp_path / "t.schema.yaml").write_text(declared)
    result = check_table(tmp_path / "t.txt")
    assert result.ok
    assert [(finding.column, finding.rule) for finding in result.findings] == [("b", "be a day")]
    assert "time of day is not read" in result.findings[0].way_out
    (tmp_path / "t.schema.yaml").write_text(declared.replace("type: date", "type: datetime"))
    (problem, _) = check_table(tmp_path / "t.txt").schema_problems
    assert "minimum must be a datetime without a time zone (year-month-dayThour:minute)" in problem
    timed = declared.replace("type: date", "type: datetime").replace("01-01", "01-01T00:00")
    (tmp_path / "t.schema.yaml").write_text(timed)
    assert check_table(tmp_path / "t.txt").findings == ()


def test_a_sound_table_is_ok_with_notes() -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=1)])
    result = check_table({"x": [0.5, 2.0], "extra": [1, 2]}, schema)
    assert result.ok
    assert {finding.rule for finding in result.findings} == {"be declared", "be within its bounds"}
    assert check_table({"x": [0.5]}, schema).to_dict()["findings"] == []
