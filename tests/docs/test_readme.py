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
    assert steady(run(BLOCKS[place][1], tmp_path)) == steady(BLOCKS[place + 1][1])
    assert (tmp_path / "census.ledger").exists()


def steady(text: str) -> str:
    """Leave out what differs from run to run: numbers that were drawn, and where they make a line end."""
    return re.sub(r"\d+%|\d+\.\d+%?", "#", " ".join(text.split()))


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    shown = next(text for kind, text in BLOCKS if kind == "text" and "four ways" in text)
    printed = run("from discreet.cli import main; main()", tmp_path, "demo", "--attack-records", "1000")
    assert steady(printed) == steady(shown)
    lines = printed.splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80
    for name in ("synthetic", "model", "rows"):
        public = f"demo-release/{name}/public"
        assert "nothing failed" in run("from discreet.cli import main; main()", tmp_path, "verify", public)
    assert (tmp_path / "demo-release" / "synthetic" / "internal" / "report.html").exists()
