"""The wheel and the source distribution hold what a user needs, and the wheel works by itself."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILD = "import sys; from hatchling import build; print(build.build_{0}(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


def build(kind: str, folder: Path) -> Path:
    """Build a distribution without an isolated environment, which would need a package index."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(kind), str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return folder / done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    source = ROOT / "src"
    files = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.match("*.egg-info/*")
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.partition("/")[0].endswith(".dist-info")}
        assert held == files
        assert sum(info.file_size for info in archive.infolist()) < 12e6
    assert {"discreet/py.typed", "discreet/data/census.parquet"} <= held


@pytest.mark.slow
def test_the_wheel_works_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    program = (
        "import sys, discreet; assert discreet.__file__.startswith(sys.argv[1]), discreet.__file__;"
        "sys.argv = 'discreet query demo:census mean(age) --epsilon 1 --delta 1e-6'.split();"
        "from discreet.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, str(tmp_path / "site")],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path / "site"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "95 %" in done.stdout


@pytest.mark.slow
def test_the_source_distribution_can_be_built_and_tested(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "Makefile",
        "CHANGELOG.md",
        "src/discreet/__init__.py",
    } <= names
    assert {"tests/test_package.py", "docs/conf.py", "CITATION.cff"} <= names
