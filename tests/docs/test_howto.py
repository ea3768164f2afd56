"""The programs of how-to pages run as they are written, one block after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

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
