"""The programs of how-to pages run as they are written, one block after the other."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.run import discreet

PAGES = Path(__file__).parents[2] / "docs" / "howto"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def test_every_page_is_listed() -> None:
    listed = re.findall(r"^([\w-]+)$", (PAGES / "index.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.stem for page in PAGES.glob("*.md") if page.stem != "index")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "columns-in-two-places",
            r"correlation -?\d\.\d\d ± .*\ntotal: mu = 0\.2367.*\n.* times as much",
        ),
        ("learn-from-a-release", r"^ok\n\['low', 'high'\]$"),
        ("publish-a-synthetic-table", r"^nothing failed$"),
        (
            "train-without-choosing",
            r"^With 6,000 rows and epsilon 1 expect .*\nAccuracy 0\.\d+ .* better than .*\n"
            r"\['x0', 'x1'\] \(1, 2\)\n$",
        ),
        (
            "preprocess",
            r"^steps of Pipeline before PrivateLogisticRegression must not learn .*'standardscaler'.*"
            r"\nepsilon [01]\.\d\d at delta 2e-06, 2 charges\n"
            r"cross_val_score fits PrivateLogisticRegression more than once, .*\n5 fits charged$",
        ),
        ("train-a-support-vector-machine", r"^True 1"),
    ],
)
def test_its_program_says_what_the_page_says(name: str, said: str) -> None:
    program = "\n".join(BLOCK.findall((PAGES / f"{name}.md").read_text()))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(said, done.stdout, re.DOTALL), done.stdout


@pytest.mark.slow
def test_the_commands_about_many_questions_work(tmp_path: Path) -> None:
    page = (PAGES / "ask-many-questions.md").read_text()
    (questions,) = re.findall(r"^```sql\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "questions.sql").write_text(questions)
    said = []
    for block in re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            done = discreet(*shlex.split(line)[1:], cwd=tmp_path)
            assert done.code == 0, (line, done.err)
            said.append(done.out)
    _, plan, answers, table, json_text, chart, last = said
    assert "Together: " in plan
    assert "mean(hours_per_week) by sex" in answers
    assert table.splitlines()[0].startswith("sex,value,sd,lower,upper")
    assert '"cached": true' in json_text
    assert "paid for before" in chart
    assert last.startswith("question,sex,education_num,")
    names = {path.name for path in tmp_path.glob("*.svg")}
    assert names == {"sexes.svg", *(f"answers-{i}.svg" for i in (1, 2, 3))}


@pytest.mark.slow
def test_the_commands_about_a_model_say_what_the_page_shows(tmp_path: Path) -> None:
    page = (PAGES / "train-without-choosing.md").read_text()
    (commands,), (shown,) = (
        re.findall(rf"^```{kind}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE) for kind in ("sh", "text")
    )
    learned, verified = (discreet(*shlex.split(line)[1:], cwd=tmp_path) for line in commands.splitlines())
    assert learned.code == 0, learned.err
    assert "nothing failed" in verified.out
    printed = learned.out[: learned.out.index("Promise: ")]
    assert _without_numbers(printed) == _without_numbers(shown)


def _without_numbers(text: str) -> list[str]:
    return re.sub(r"[\d.]+", "0", " ".join(text.split())).split()
