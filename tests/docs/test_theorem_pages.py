from __future__ import annotations

import ast
import functools
import importlib
import re
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs" / "explanation" / "theorems").glob("*.md"))
WITHOUT_TWIN = {
    "fisher-optimum",
    "large-margin-noise",
    "masked-greedy",
    "masked-norm",
    "sulq-4",
}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(text: str) -> list[str]:
    return BLOCK.findall(text)


def section(text: str, title: str) -> str:
    """Return what stands under a heading of the second level, '' if there is none."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return found.group(1) if found else ""


def missing_names(where: str) -> list[str]:
    """Return the functions and tests named in `where` that do not exist."""
    missing = []
    for dotted in re.findall(r"`(discreet(?:\.\w+)+)`", where):
        module, _, name = dotted.rpartition(".")
        try:
            if not hasattr(importlib.import_module(module), name):
                missing.append(dotted)
        except ImportError:
            missing.append(dotted)
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", where):
        if name not in defined_functions(path):
            missing.append(f"{path}::{name}")
    return missing


@functools.cache
def defined_functions(path: str) -> frozenset[str]:
    """Return the names of all functions in a file; none if it does not exist."""
    file = ROOT / path
    if not file.exists():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def run(code: str) -> None:
    """Run a block as it stands, in a namespace of its own, every warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})


def test_there_are_pages() -> None:
    assert {"fisher-2.5", "analytic-gaussian", "bayes-floor", "zcdp"} <= {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_program_on_the_page_runs_and_asserts_something(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for code in blocks(text):
        run(code)
    counterexample = section(text, "A counterexample that runs")
    assert any("assert" in code for code in blocks(counterexample))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_functions_and_tests_that_carry_the_theorem_exist(page: Path) -> None:
    where = section(page.read_text(encoding="utf-8"), "Where it lives")
    assert re.search(r"`discreet(\.\w+)+`", where)
    assert re.search(r"`tests/[\w/]+\.py::\w+`", where)
    assert missing_names(where) == []


def test_all_pages_but_the_listed_ones_name_a_broken_twin() -> None:
    without = {
        page.stem
        for page in PAGES
        if not re.search(
            r"^- broken twin: `tests/[\w/]+\.py::\w+`$",
            section(page.read_text(encoding="utf-8"), "Where it lives"),
            re.MULTILINE,
        )
    }
    assert without == WITHOUT_TWIN
    assert len(WITHOUT_TWIN) == 5  # as the README says


def test_a_page_that_claims_too_much_is_caught() -> None:
    text = (
        "# x\n\n## A counterexample that runs\n\n```python\nassert 1 > 2\n```\n\n## Where it lives\n\n"
        "- `discreet.privacy.calibration.no_such`, `discreet.nowhere.f`\n"
        "- `tests/privacy/test_calibration.py::test_no_such`, `tests/none.py::test_x`\n"
    )
    (code,) = blocks(text)
    with pytest.raises(AssertionError):
        run(code)
    assert missing_names(section(text, "Where it lives")) == [
        "discreet.privacy.calibration.no_such",
        "discreet.nowhere.f",
        "tests/privacy/test_calibration.py::test_no_such",
        "tests/none.py::test_x",
    ]
