"""Pages that help to choose: their programs print what they show, their tables are those of the results."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
from docs import generate_comparison

from tests.cli.run import discreet

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)


def test_the_table_of_epsilons_is_what_its_program_prints() -> None:
    (program,), (shown,) = (
        blocks("howto/choose-epsilon.md", "python"),
        blocks("howto/choose-epsilon.md", "text"),
    )
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    assert out.getvalue() == shown


def test_the_comparison_shows_what_was_measured() -> None:
    text = generate_comparison.PAGE.read_text()
    assert generate_comparison.write_page(text) == text, "run python docs/generate_comparison.py"


@pytest.mark.slow
def test_the_commands_of_the_page_for_r_work(tmp_path: Path) -> None:
    page = (DOCS / "howto" / "use-from-r.md").read_text()
    commands = re.findall(r'system2\("discreet", c\((.*?)\)(?:, stdout = "(.*?)")?\)(?=\s)', page, re.DOTALL)
    assert len(commands) == 3
    rows = "".join(f"{i % 14},{('surgery', 'medicine')[i % 2]}\n" for i in range(3000))
    (tmp_path / "patients.csv").write_text(f'"stay","ward"\n{rows}')
    for given, target in commands:
        words = re.findall(r'"(.*?)"', given)
        done = discreet(*words, cwd=tmp_path)
        assert done.code == 0, (words, done.err)
        if words[0] == "init":
            assert "???" in (tmp_path / "patients.schema.yaml").read_text()
            (tmp_path / "patients.schema.yaml").write_text(
                "privacy: {dataset: register, unit: person}\n"
                "fields:\n"
                "  - {name: stay, type: integer, constraints: {minimum: 0, maximum: 60}}\n"
                "  - {name: ward, type: string, constraints: {enum: [surgery, medicine]}}\n"
            )
        if target:
            assert done.out.splitlines()[0] == "ward,value,sd,lower,upper"
    assert (tmp_path / "made" / "public" / "readable.csv").is_file()
