"""The README and the page about the demo say what happens: their programs print what they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS, DEMO = (
    re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    for page in ("README.md", "docs/tutorial/demo.md")
)


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
def test_the_demo_prints_what_its_page_shows(tmp_path: Path) -> None:
    ((_, shown),) = DEMO
    printed = run("from discreet.cli import main; main()", tmp_path, "demo", "--attack-records", "1000")
    assert steady(printed) == steady(shown)
    lines = printed.splitlines()
    assert len(lines) < 40
    assert max(map(len, lines)) <= 80
    for name in ("synthetic", "model", "rows"):
        public = f"demo-release/{name}/public"
        assert "nothing failed" in run("from discreet.cli import main; main()", tmp_path, "verify", public)
    assert (tmp_path / "demo-release" / "synthetic" / "internal" / "report.html").exists()
