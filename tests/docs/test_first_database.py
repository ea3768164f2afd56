"""The second tutorial works as it is written: its commands are run one after the other in an empty folder."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.cli.run import discreet
from tests.docs.test_tutorial import run

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-database.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_every_command_of_the_tutorial_works(tmp_path: Path) -> None:
    said: dict[str, list[str]] = {}
    for kind, text in BLOCKS:
        if kind == "python":
            said.setdefault("python", []).append(run([sys.executable, "-c", text], tmp_path))
        elif kind == "sh":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                assert program == "discreet"
                done = discreet(*arguments, cwd=tmp_path)
                assert done.code == 0, (arguments, done.err)
                said.setdefault(arguments[0], []).append(done.out)
    first, again, *priced = said["query"]
    shown = next(text for kind, text in BLOCKS if kind == "text")
    assert steady(first).startswith(steady(shown).strip())
    assert "The answer was paid for before" in again
    assert re.findall(r"[\d,]+ rows \(95", first) == re.findall(r"[\d,]+ rows \(95", again) != []
    margins = [float(re.findall(r"would be ± ([\d,.]+)", text)[0].replace(",", "")) for text in priced[:3]]
    assert round(margins[1] / margins[2], 3) == 5
    assert "enough for" in priced[-1]
    assert "nothing failed" in said["verify"][0]
    used, alone = said["python"]
    assert used.strip() in (">50K", "<=50K")
    assert re.fullmatch(r"\d+ ± \d+\nTrue True\n", alone)


def steady(text: str) -> str:
    """Leave out the noisy number."""
    return re.sub(r"[\d,.]+ rows \(95 %: [\d,.]+ to [\d,.]+\)", "N rows", text)
