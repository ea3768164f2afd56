from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["howto/verify-a-release.md", "reference/statement.md"])
def test_every_program_on_the_page_runs(page: str) -> None:
    programs = BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert programs
    for program in programs:
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={"PYTHONPATH": str(ROOT / "src"), "OPENBLAS_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, done.stderr
