"""The examples in the pages about schemas load and run as they stand there."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import discreet.datasets
import discreet.schema.column
import discreet.schema.schema
from discreet.schema import Schema
from discreet.schema.column_checks import ROLES
from discreet.schema.notation import FILE
from discreet.schema.table_checks import NEIGHBORS, ROW_COUNTS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("howto/choose-bounds.md", "howto/write-a-schema.md", "reference/schema.md")


def blocks(language: str) -> list[str]:
    fence = re.compile(rf"^```{language}\n(.*?)^```", re.MULTILINE | re.DOTALL)
    return [block for page in PAGES for block in fence.findall((DOCS / page).read_text("utf-8"))]


@pytest.mark.parametrize("block", blocks("yaml"))
def test_every_yaml_example_is_a_schema(block: str) -> None:
    schema = Schema.from_yaml(block)
    assert Schema.from_yaml(schema.to_yaml()) == schema


@pytest.mark.parametrize("block", blocks("python"))
def test_every_python_example_runs(block: str) -> None:
    exec(compile(block, "docs/reference/schema.md", "exec"), {})


def test_the_pages_have_examples_to_try() -> None:
    assert len(blocks("yaml")) >= 4
    assert len(blocks("python")) == 1


def test_the_reference_names_every_key_role_and_choice() -> None:
    text = (DOCS / "reference/schema.md").read_text("utf-8")
    wanted = [*FILE.names.values(), *ROLES, *NEIGHBORS, *ROW_COUNTS]
    assert [word for word in wanted if f"`{word}`" not in text] == []


@pytest.mark.parametrize("module", [discreet.schema.column, discreet.schema.schema, discreet.datasets])
def test_the_examples_in_docstrings_run(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted > 0
    assert results.failed == 0
