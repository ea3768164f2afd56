"""The tutorial of synthetic tables works as it is written: its commands are run in an empty folder."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.docs.test_tutorial import run

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-synthetic-table.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
MAIN = [sys.executable, "-c", "from discreet.cli import main; main()"]


@pytest.mark.slow
def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    said = []
    for kind, text in BLOCKS:
        if kind == "yaml":
            (tmp_path / "patients.schema.yaml").write_text(text)
        elif kind == "python":
            said.append(run([sys.executable, "-c", text], tmp_path))
        else:
            said += [run([*MAIN, *shlex.split(line)[1:]], tmp_path) for line in text.splitlines()]
    _table, planned, _released, verified, asked, more, _again, ledger = said
    assert re.search(r"^1 +10\.3 .*<- chosen", planned, re.MULTILINE)
    assert re.search(r"^0\.125 +72\.2 ", planned, re.MULTILINE)
    assert "nothing failed" in verified
    assert "count where 75 <= age by readmitted" in asked
    assert "nothing was charged" in more
    assert "6 charges" in ledger
    made, again = (tmp_path / name / "public" / "data.parquet" for name in ("made", "again"))
    assert made.read_bytes() == again.read_bytes()


def test_its_picture_is_there() -> None:
    (picture,) = re.findall(r"!\[.+?\]\((.+?)\)", PAGE.read_text())
    assert (PAGE.parent / picture).read_bytes().startswith(b"\x89PNG")
