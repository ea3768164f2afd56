"""The README says what happens: its program and its demo print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run(code: str, cwd: Path, *arguments: str) -> str:
    environment = os.environ | {"COLUMNS": "100", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_program_prints_what_the_readme_shows(tmp_path: Path) -> None:
    (place,) = (i for i, (kind, _) in enumerate(BLOCKS) if kind == "python")
    assert run(BLOCKS[place][1], tmp_path) == BLOCKS[place + 1][1]


def steady(text: str) -> list[str]:
    """Leave out what differs from run to run: times, what was learned, and how well an attack did."""
    text = re.sub(r"^ learn .*?(?=^ \w)", " learn\n", text.strip(), flags=re.MULTILINE | re.DOTALL)
    lines = []
    for line in text.splitlines():
        line = re.sub(r"\s+\d+\.\d\d s$", "", line.rstrip())
        if line.endswith("floor holds"):
            column, without, floor, _attack, _interval, *rest = re.split(r"\s{2,}", line)
            line = "  ".join((column, without, floor, *rest))
        lines.append(re.sub(r"(?<=\S) {2,}", "  ", line))
    return lines


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    shown = next(text for kind, text in BLOCKS if kind == "text" and "proven floor" in text)
    printed = run("from discreet.cli import main; main()", tmp_path, "demo", "--attack-records", "1000")
    assert steady(printed) == steady(shown)
    assert (tmp_path / "demo-release" / "internal" / "report.html").exists()
    checked = run("from discreet.cli import main; main()", tmp_path, "verify", "demo-release/public")
    assert "nothing failed" in checked
