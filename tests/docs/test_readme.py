"""The README says what happens: its program and its demo print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run(code: str, cwd: Path, *arguments: str) -> str:
    environment = os.environ | {"COLUMNS": "100", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_program_prints_what_the_readme_shows(tmp_path: Path) -> None:
    (place,) = (i for i, (kind, _) in enumerate(BLOCKS) if kind == "python")
    assert run(BLOCKS[place][1], tmp_path) == BLOCKS[place + 1][1]


def test_the_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    def lines(text: str) -> list[str]:
        return [re.sub(r"\s+\d+\.\d\d s$", "", line.rstrip()) for line in text.strip().splitlines()]

    shown = next(text for kind, text in BLOCKS if kind == "text" and "proven floor" in text)
    assert lines(run("from discreet.cli import main; main()", tmp_path, "demo")) == lines(shown)
