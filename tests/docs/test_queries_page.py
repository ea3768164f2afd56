"""The reference of queries says what happens: its program runs and its tables hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from discreet import ZCDP, datasets
from discreet.errors import ExpressionRefused
from discreet.query.language._statistic import IN_SQL, IN_WORDS
from discreet.query.language.query import parse_query
from discreet.query.text_query import preview_query

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "queries.md").read_text("utf-8")
SCHEMA = datasets.load("hospital").schema
ROWS = 19_630


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the tables below a heading."""
    section = re.split(r"\n##+ ", PAGE.split(f"# {heading}\n")[1])[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def test_its_program_runs() -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(program, "docs/reference/queries.md", "exec"), {})


@pytest.mark.parametrize(("query", "understood"), rows("Grammar"))
def test_queries_are_understood_as_it_shows(query: str, understood: str) -> None:
    assert str(parse_query(codes(query)[0], SCHEMA)) == codes(understood)[0]


@pytest.mark.parametrize(("words", "sql", "definition"), rows("Statistics"))
def test_a_statistic_is_the_same_in_words_and_in_sql(words: str, sql: str, definition: str) -> None:
    for word, item in zip(codes(words), codes(sql), strict=True):
        assert parse_query(word, SCHEMA) == parse_query(f"SELECT {item} FROM stays", SCHEMA)
    (other,) = re.findall("Also (.*)", definition) or [""]
    for item in codes(other):
        called = item if "(" in item else f"{item}(age)"
        assert parse_query(f"SELECT {called} FROM stays", SCHEMA).statistics[0].kind in IN_SQL.values()


def test_every_word_for_a_statistic_is_on_the_page() -> None:
    assert [word for word in {**IN_WORDS, **IN_SQL} if word not in PAGE] == []


@pytest.mark.parametrize(("query", "sums", "words"), rows("What a query costs"))
def test_the_preview_says_what_it_shows(query: str, sums: str, words: str) -> None:
    promise = ZCDP(rho=0.01, unit=SCHEMA.unit)
    preview = preview_query(SCHEMA, ROWS, parse_query(codes(query)[0], SCHEMA), privacy=promise)
    assert str(0 if preview.is_free else preview.sums) == sums
    assert preview.margin_words == words


@pytest.mark.parametrize(("statement", "construct", "nearest"), rows("What of SQL is refused"))
def test_statements_are_refused_as_it_shows(statement: str, construct: str, nearest: str) -> None:
    with pytest.raises(ExpressionRefused) as problem:
        parse_query(codes(statement)[0], SCHEMA)
    assert (problem.value.construct, problem.value.hint) == (construct, f"Write: {codes(nearest)[0]}")


@pytest.mark.parametrize(("query", "construct", "_why"), rows("What is hardly meant"))
def test_what_is_hardly_meant_is_refused_as_it_shows(query: str, construct: str, _why: str) -> None:
    with pytest.raises(ExpressionRefused) as problem:
        parse_query(codes(query)[0], SCHEMA)
    assert problem.value.construct == construct


def test_there_are_rows_to_try() -> None:
    found = {name: len(rows(name)) for name in ("Grammar", "Statistics", "What of SQL is refused")}
    assert found["Grammar"] >= 24
    assert found["Statistics"] >= 10
    assert found["What of SQL is refused"] >= 14
    assert len(rows("What a query costs")) >= 18
    assert len(rows("What is hardly meant")) >= 14
