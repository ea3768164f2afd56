"""The tutorial works as it is written: its commands are run one after the other in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-release.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
QUICK = ("--attack-records", "500")  # the attacks are tested elsewhere


def run(arguments: list[str], cwd: Path) -> str:
    environment = os.environ | {"COLUMNS": "100", "TERM": "dumb"}
    done = subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.slow
def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    said = []
    for kind, text in BLOCKS:
        if kind == "yaml":
            (tmp_path / "patients.schema.yaml").write_text(text)
        elif kind == "python":
            said.append(run([sys.executable, "-c", text], tmp_path))
        elif kind == "sh" and "make demo" not in text:  # what the README shows, and its test runs
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "discreet"
                if arguments[0] == "release":
                    arguments += QUICK
                main = [sys.executable, "-c", "from discreet.cli import main; main()"]
                said.append(run([*main, *arguments], tmp_path))
    _table, _drafted, _ways, planned, released, verified, again, ledger, python = said
    assert "<- chosen" in planned
    assert re.search(r"age .* ± 20 years", released)
    assert "nothing failed" in verified
    assert "2 charges in this ledger, this one included" in again
    assert "2 charges" in ledger
    assert "if it could equally well be any whole number from 0 to 110, no method can guess it" in python


def test_its_pictures_are_there() -> None:
    pictures = re.findall(r"!\[.+?\]\((.+?)\)", PAGE.read_text())
    assert len(pictures) == 3
    for picture in pictures:
        assert (PAGE.parent / picture).read_bytes().startswith(b"\x89PNG")
