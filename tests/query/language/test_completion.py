"""Completion at the prompt: words, columns and declared values, by what stands before them."""

from __future__ import annotations

import pytest

from discreet.cli.prompt import HELP
from discreet.query.language.completion import AGGREGATES, complete
from discreet.query.language.query import parse_query
from discreet.schema import Column, Schema

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=99),
        Column("agent", values=("human", "machine")),
        Column("hours-per-week", lower=0, upper=99),
        Column("status", values=("Married-civ-spouse", "never married", "it's open")),
        Column("smoker", values=(False, True)),
    ]
)


def completed(line: str) -> list[str]:
    """Return the whole lines that the completion leads to."""
    start, candidates = complete(line, SCHEMA, tuple(HELP))
    return [line[:start] + one for one in candidates]


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("cou", ["count"]),
        ("COU", ["COUNT"]),
        ("me", ["mean", "median"]),
        ("mean(age), qu", ["mean(age), quantile", "mean(age), quarter"]),
        ("mean(age, qu", ["mean(age, quarter"]),
        ("count where age > 3, medi", []),
        ("SELECT prop", ["SELECT proportion"]),
        ("count whe", ["count where", "count when"]),
        ("mean(ag", ["mean(age", "mean(agent"]),
        ("count where ho", ['count where "hours-per-week"']),
        (
            "count by ",
            [
                "count by age",
                "count by agent",
                'count by "hours-per-week"',
                *(f"count by {name}" for name in ("status", "smoker")),
            ],
        ),
        ('count where "ho', ['count where "hours-per-week"']),
        ("count where age > 3 an", ["count where age > 3 and"]),
        ("count where status = 'ma", ["count where status = 'Married-civ-spouse'"]),
        ("count where status = 'Married-civ-", ["count where status = 'Married-civ-spouse'"]),
        ("count where STATUS <> 'never m", ["count where STATUS <> 'never married'"]),
        ("count where status = 'it", ["count where status = 'it''s open'"]),
        ("count where agent =", [f"count where agent ='{one}'" for one in ("human", "machine", "other")]),
        ("count where agent in ('o", ["count where agent in ('other'"]),
        (
            "count where agent not in ('human', 'm",
            ["count where agent not in ('human', 'machine'"],
        ),
        ("count where smoker = tr", ["count where smoker = TRUE"]),
        ("count where age = 'x", []),
        ("count where status = 'never married'", []),
        ('count by "hours-per-week"', []),
        ('count by "hours-per-week", sta', ['count by "hours-per-week", status']),
        ("count by ag", ["count by age", "count by agent"]),
        ("count by agent, sta", ["count by agent, status"]),
        ("count by ca", []),
        ("SELECT AVG(age) FROM t WHERE sta", ["SELECT AVG(age) FROM t WHERE status"]),
        ("\\pri", ["\\privacy"]),
        ("\\privacy e", ["\\privacy epsilon="]),
        ("\\privacy epsilon=1 d", ["\\privacy epsilon=1 delta="]),
        ("\\i fi", []),
    ],
)
def test_the_last_word_is_completed(line: str, wanted: list[str]) -> None:
    assert completed(line) == wanted


@pytest.mark.parametrize(
    "line", ["", " ", "(", "'", '"', "\\", "= '", "in ('a',", "🙂", "\x00", "a'b\"c", "by"]
)
def test_any_line_can_be_completed(line: str) -> None:
    start, candidates = complete(line, SCHEMA, tuple(HELP))
    assert 0 <= start <= len(line)
    assert len(candidates) < 100


def test_every_word_that_begins_a_question_does() -> None:
    arguments = {"quantile": "age, 0.9", "proportion": "age > 3", "ratio": "age, age"}
    for word in AGGREGATES:
        assert parse_query(f"{word}({arguments.get(word, 'age')})", SCHEMA)


def test_no_cell_of_the_table_is_offered() -> None:
    assert complete("count where agent = 'x", SCHEMA) == (20, [])
