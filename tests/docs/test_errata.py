"""The index of errata: every line leads to a page, a function and a test that exist."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.test_theorem_pages import PAGES, missing_names

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "errata.md"
LINE = re.compile(
    r"^\| (\d+) \| .* \| \[([\w.-]+)\]\(theorems/\2\.md\) \| `([\w.]+)` \| `([\w/]+\.py)::(\w+)` \|$",
    re.MULTILINE,
)


def lines() -> list[tuple[str, ...]]:
    return LINE.findall(PAGE.read_text(encoding="utf-8"))


def test_every_erratum_is_a_whole_line_in_its_order() -> None:
    written = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d", line)]
    assert len(lines()) == len(written) == 79
    numbers = [int(number) for number, *_ in lines()]
    starts = [i for i, number in enumerate(numbers) if number == 1]
    assert len(starts) == 4
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        assert numbers[start:end] == list(range(1, end - start + 1))


@pytest.mark.parametrize("line", lines(), ids=lambda line: f"{line[1]}-{line[0]}")
def test_page_function_and_test_of_an_erratum_exist(line: tuple[str, ...]) -> None:
    _, page, code, file, test = line
    assert page in {path.stem for path in PAGES}
    assert missing_names(f"`discreet.{code}` `tests/{file}::{test}`") == []


def test_every_page_about_a_paper_is_in_the_index() -> None:
    cited = Counter(page for _, page, *_ in lines())
    papers = {
        path.stem for path in PAGES if path.stem.startswith(("fisher-", "masked-", "large-margin-", "sulq-"))
    }
    # What these pages prove is not in the papers, or what is printed there is taken up on another page.
    beside = {"masked-norm", "masked-objective", "sulq-vertical"}
    assert papers - set(cited) == beside


def test_one_against_all_costs_what_the_page_says() -> None:
    results = json.loads((ROOT / "benchmarks" / "results" / "one_against_all.json").read_text())["accuracy"]
    text = (ROOT / "docs" / "explanation" / "one-against-all.md").read_text(encoding="utf-8")
    losses = []
    for name, table in results.items():
        for label, found in table.items():
            if isinstance(found, dict):
                one, other = found["one model"]["mean"], found["one against all"]["mean"]
                assert f"{one:.3f} / {other:.3f}".replace("0.", ".") in text, (name, label)
                losses += [] if label.endswith("no promise") else [one - other]
    assert f"in {sum(loss > 0 for loss in losses)} of {len(losses)} comparisons" in text
    assert f"by up to {100 * max(losses):.0f} points" in text
    assert f"by up to {100 * max(losses):.0f} points" in PAGE.read_text(encoding="utf-8")
    assert f"at worst {-100 * min(losses):.0f} points behind" in text
