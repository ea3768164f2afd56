"""The reference page says what happens: its program runs and its tables hold."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import discreet.query.language._expression
import discreet.query.language._group_by
from discreet.errors import ExpressionRefused
from discreet.query.language import lexer, parse, parse_groups, vocabulary

if TYPE_CHECKING:
    from discreet.schema import Schema

PAGE = (Path(__file__).parents[3] / "docs/reference/expressions.md").read_text("utf-8")
PROGRAM = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def schema() -> Schema:
    names: dict[str, Schema] = {}
    exec(compile(PROGRAM[0], "docs/reference/expressions.md", "exec"), names)
    return names["schema"]


def rows(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_the_programs_run() -> None:
    names: dict[str, object] = {}
    for program in PROGRAM:
        exec(compile(program, "docs/reference/expressions.md", "exec"), names)
    assert "visits" in schema()


@pytest.mark.parametrize(("text", "lower", "upper"), rows("Examples"))
def test_accepted_examples_have_the_bounds_that_are_shown(text: str, lower: str, upper: str) -> None:
    expression = parse(text.strip("`"), schema())
    assert expression.lower == pytest.approx(float(lower), rel=1e-5)
    assert expression.upper == pytest.approx(float(upper), rel=1e-5)


@pytest.mark.parametrize(("text", "construct"), rows("Refusals"))
def test_refused_examples_name_the_construct_that_is_shown(text: str, construct: str) -> None:
    with pytest.raises(ExpressionRefused) as caught:
        parse(text.strip("`"), schema())
    assert caught.value.construct == construct


def test_there_are_examples_to_try() -> None:
    assert len(rows("Examples")) >= 12
    assert len(rows("Refusals")) >= 15


def test_the_way_out_of_every_refused_operation_is_accepted() -> None:
    for _, _, way_out in rows("Bounds")[:-1]:
        text = re.sub(r"\b[abx]\b", "change", way_out.strip("`"))
        parse(text, schema())


def test_a_missing_bound_is_as_the_page_says() -> None:
    assert (parse("age - age", schema()).lower, parse("age - age", schema()).upper) == (-72, 72)


def test_every_word_of_the_language_is_on_the_page() -> None:
    grammar = PAGE.split("```text")[1].split("```")[0]
    assert [word for word in vocabulary.KEYWORDS | vocabulary.FUNCTIONS if word not in grammar] == []
    for limit in (lexer.MOST_CHARACTERS, lexer.MOST_NODES, lexer.MOST_DEPTH, lexer.MOST_ITEMS):
        assert f" {limit} " in " ".join(PAGE.split())


def test_the_groups_of_the_page_exist() -> None:
    assert len(parse_groups("ward, smoker", schema())) == 2


@pytest.mark.parametrize("module", [discreet.query.language._expression, discreet.query.language._group_by])
def test_the_examples_in_docstrings_run(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0
    assert results.failed == 0
