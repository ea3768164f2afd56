"""The command line, run as people run it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from discreet import Ledger
from discreet.cli import _three_digits
from discreet.tables import open_table

if TYPE_CHECKING:
    from pathlib import Path


def discreet(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from discreet.cli import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("table", "rows", "column"), [("census", 48_842, "age"), ("clinic", 569, "radius_mean")]
)
def test_the_demo_releases_a_table_and_charges_it(table: str, rows: int, column: str, tmp_path: Path) -> None:
    done = discreet("demo", table, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "proven floor" in done.stdout
    assert column in done.stdout
    assert "What is not" in done.stdout
    with open_table(tmp_path / "demo-release" / f"{table}.parquet") as released:
        assert released.count() == rows
    with Ledger.open(tmp_path / "demo-release" / "ledger.sqlite") as ledger:
        ledger.check()
        assert len(ledger.history()) == 1


def test_a_second_demo_is_charged_again(tmp_path: Path) -> None:
    for _ in range(2):
        assert discreet("demo", "clinic", cwd=tmp_path).returncode == 0
    with Ledger.open(tmp_path / "demo-release" / "ledger.sqlite") as ledger:
        assert len(ledger.history()) == 2


def test_a_wrong_name_is_a_sentence_and_exit_code_one(tmp_path: Path) -> None:
    done = discreet("demo", "sensus", cwd=tmp_path)
    assert done.returncode == 1
    assert "Did you mean demo:census?" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_in_the_way_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "demo-release").mkdir()
    (tmp_path / "demo-release" / "ledger.sqlite").write_text("my shopping list")
    done = discreet("demo", "clinic", cwd=tmp_path)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert (tmp_path / "demo-release" / "ledger.sqlite").read_text() == "my shopping list"


def test_help_names_the_commands(tmp_path: Path) -> None:
    done = discreet("--help", cwd=tmp_path)
    assert done.returncode == 0
    assert "demo" in done.stdout


@pytest.mark.parametrize(
    ("amount", "text"),
    [(9.0000049, "9.00"), (1216.4496, "1,220"), (0.012345, "0.0123"), (28_762.6, "28,800"), (0.0, "0")],
)
def test_amounts_are_written_as_people_read_them(amount: float, text: str) -> None:
    assert _three_digits(amount) == text
