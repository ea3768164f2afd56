"""Defaults and patterns of a schema file: which is stronger, and what they may give."""

from __future__ import annotations

from typing import Any

import pytest

from discreet.errors import SchemaError
from discreet.schema import Column, Schema

RULED = """
defaults: {constraints: {minimum: 0, maximum: 10, required: false}, privacy: {bounds_source: book}}
patterns:
  - {match: "q*", constraints: {minimum: 1, maximum: 5}}
  - {match: [q3, q4], constraints: {enum: [1, 2]}}
  - {match: "*text", privacy: {role: drop}}
fields:
  - {name: q1, type: integer}
  - {name: q2, type: integer, constraints: {maximum: 7}, privacy: {bounds_source: law}}
  - {name: q3, type: integer}
  - {name: q4, type: integer, constraints: {minimum: 0, maximum: 9}}
  - {name: job, type: string, constraints: {enum: [a, b]}}
  - {name: smoker, type: boolean}
  - {name: q_text, type: string}
  - text
  - {name: x, type: number, constraints: {required: true}}
"""


def problems_of(text: str) -> tuple[str, ...]:
    with pytest.raises(SchemaError) as caught:
        Schema.from_yaml(text)
    return caught.value.problems


def test_field_beats_later_pattern_beats_earlier_beats_default() -> None:
    schema = Schema.from_yaml(RULED)
    about: dict[str, Any] = {"required": False, "bounds_source": "book"}
    assert schema == Schema(
        columns=[
            Column("q1", type="integer", lower=1, upper=5, **about),
            Column("q2", type="integer", lower=1, upper=7, required=False, bounds_source="law"),
            Column("q3", values=(1, 2), **about),
            Column("q4", type="integer", lower=0, upper=9, **about),
            Column("job", values=("a", "b"), **about),
            Column("smoker", values=(False, True), **about),
            Column("q_text", role="drop"),
            Column("text", role="drop"),
            Column("x", lower=0, upper=10, bounds_source="book"),
        ]
    )


def test_the_expanded_schema_is_what_is_published() -> None:
    schema = Schema.from_yaml(RULED)
    content = schema.to_dict()
    assert content.keys() == {"privacy", "missingValues", "fields"}
    written_out = Schema.from_dict(content)
    assert written_out == schema
    assert written_out.digest == schema.digest


def test_a_field_that_no_rule_covers_is_told_what_to_write() -> None:
    text = 'patterns: [{match: "q*", constraints: {minimum: 1, maximum: 5}}]\n'
    problems = problems_of(text + "fields: [{name: q1, type: integer}, {name: age, type: integer}, job]")
    assert [problem.split(": ")[0] for problem in problems] == ["Column 'age'", "Column 'job'"]
    assert "Write constraints: {minimum: <smallest possible>, maximum: <largest possible>}" in problems[0]


def test_columns_that_are_wrong_by_one_rule_are_reported_together() -> None:
    names = ", ".join(f"{{name: q{i}, type: integer}}" for i in range(1, 31))
    (problem,) = problems_of(
        f'patterns: [{{match: "q*", constraints: {{minimum: 5, maximum: 1}}}}]\nfields: [{names}]'
    )
    assert problem.startswith("Columns 'q1', 'q2', 'q3' and 27 more: constraints.maximum must be above")


def test_a_mark_in_a_field_is_filled_in_by_a_rule() -> None:
    text = """
patterns: [{match: "q*", constraints: {enum: [1, 2]}}, {match: r, privacy: {role: drop}}]
fields:
  - {name: q1, type: integer, constraints: {minimum: "???", maximum: "???"}}
  - {name: r, type: string, constraints: {enum: "???"}, privacy: }
"""
    schema = Schema.from_yaml(text)
    assert schema.column("q1").values == (1, 2)
    assert schema.column("r").role == "drop"
    assert problems_of(text.replace("match: r,", "match: q1,")) == (
        "Column 'r': constraints.enum is still ???. Write constraints: {enum: [<first>, <second>]}.",
    )


def test_patterns_tell_upper_from_lower_case_as_names_do() -> None:
    text = 'patterns: [{match: "Q?", privacy: {role: drop}}]\nfields: [Q1, {name: q12, type: boolean}]'
    assert [column.role for column in Schema.from_yaml(text).columns] == ["drop", "sensitive"]
