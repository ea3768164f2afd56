"""What a recipient does with a public folder: lines of README.txt run, other programs accept the metadata."""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

import discreet
from discreet import Column, GaussianRelease, Schema
from discreet.errors import ParameterError
from tests.contracts.cases import ROWS
from tests.contracts.cases import SCHEMA as CONTRACT
from tests.report.published import METHODS, honest, publish

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

DAY = datetime.date
ODD = Schema(
    columns=[
        Column("born in", lower=DAY(1930, 1, 1), upper=DAY(2010, 12, 31), required=False),
        Column("size, cm", lower=40, upper=220),
        Column('said "ü"', values=("01", "02", "NA"), closed=True, required=False),
        Column("member", values=("no", "yes"), closed=True),
        Column("ill", values=(True, False)),
    ]
)
ODD_ROWS = {
    "born in": np.array(["1990-01-01", "NaT", "2001-05-06", "1931-12-31"] * 25, "datetime64[D]").astype(
        object
    ),
    "size, cm": np.array([180.0, 44.25, 160.5, 201.0] * 25),
    'said "ü"': np.array(["01", "02", None, "NA"] * 25, dtype=object),
    "member": np.array(["no", "yes"] * 50),
    "ill": np.array([True, False] * 50),
}


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recipients")


@pytest.fixture(scope="module")
def odd(room: Path) -> Path:
    publish(room / "odd", GaussianRelease(scale=9, schema=ODD), ODD_ROWS)
    return room / "odd"


def lines_of(folder: Path, title: str) -> list[str]:
    """Return the indented lines under a title of the README."""
    text = (folder / "README.txt").read_text(encoding="utf-8")
    _, after = text.split(f"\n{title}\n", 1)
    block = after.split("\n\n", 1)[0].splitlines()
    return [line.strip() for line in block if line.startswith("  ")]


def run_pandas(folder: Path, monkeypatch: pytest.MonkeyPatch) -> pandas.DataFrame:
    names: dict[str, Any] = {}
    monkeypatch.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec("\n".join(lines_of(folder, "Python (pandas):")), names)
    assert "count" in printed.getvalue()
    frame: pandas.DataFrame = names["rows"]
    return frame


def run_sql(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.chdir(folder)
    with duckdb.connect() as connection:
        for line in lines_of(folder, "SQL (DuckDB):"):
            assert connection.execute(line).fetchall()
        return {name: kind for name, kind, *_ in connection.execute("DESCRIBE released").fetchall()}


@pytest.mark.parametrize("name", METHODS)
def test_the_lines_of_the_readme_run_for_every_method(
    name: str, room: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = honest(name, room, tmp_path)
    rows = json.loads((folder / "statement.json").read_text())["what"]["rows_published"]
    assert len(run_pandas(folder, monkeypatch)) == rows
    assert run_sql(folder, monkeypatch)
    assert len(lines_of(folder, "R:")) >= 3
    text = (folder / "README.txt").read_text(encoding="utf-8")
    assert max(map(len, text.split("LOAD IT")[0].splitlines())) <= 100
    if name in ("masked", "invariant"):
        assert "TRAIN ON IT" in text
        with pytest.raises(ParameterError, match="query"):
            discreet.load_release(folder).mean("age")
        return
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec("\n".join(lines_of(folder, "NUMBERS WITH INTERVALS")), {})
    assert "(95\N{NO-BREAK SPACE}%" in printed.getvalue() or "(95 %" in printed.getvalue()


def test_names_and_labels_that_mislead_programs_are_read_as_declared(
    odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = run_pandas(odd, monkeypatch)
    assert frame["born in"].dtype.kind == "M"
    assert set(frame['said "ü"'].dropna()) == {"01", "02", "NA"}
    assert set(frame["member"]) == {"no", "yes"}
    assert frame["ill"].dtype == bool
    assert frame["born in"].min() >= np.datetime64("1930-01-01")
    assert frame["born in"].max() <= np.datetime64("2010-12-31")
    assert frame["size, cm"].between(40, 220).all()
    assert run_sql(odd, monkeypatch) == {
        "born in": "DATE",
        "size, cm": "DOUBLE",
        'said "ü"': "VARCHAR",
        "member": "VARCHAR",
        "ill": "BOOLEAN",
    }
    assert discreet.verify(odd).ok


@pytest.mark.slow
def test_the_lines_of_r_run(odd: Path, room: Path, tmp_path: Path) -> None:
    if shutil.which("Rscript") is None:
        pytest.skip("NOT CHECKED: the lines of R in README.txt. Install r-base-core.")
    for folder in (odd, honest("gaussian", room, tmp_path)):
        program = "\n".join([*lines_of(folder, "R:"), "cat(class(rows[[1]]), nrow(rows))"])
        done = subprocess.run(["Rscript", "-e", program], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith("Date 100" if folder == odd else "integer 100")


PACKAGE_CHECK = """
import sys, frictionless
report = frictionless.validate(sys.argv[1], type="package")
for task in report.tasks:
    print(task.name, task.valid, *[error.type for error in task.errors][:1])
assert not report.errors, report.errors
"""


def validated(folder: Path) -> dict[str, list[str]]:
    """Return what frictionless says of each resource; in a process of its own, for it warns on import."""
    pytest.importorskip("frictionless", reason="the reference implementation is part of the dev extra")
    done = subprocess.run(
        [sys.executable, "-c", PACKAGE_CHECK, str(folder / "datapackage.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*METHODS, "odd"])
def test_frictionless_accepts_the_package_and_every_cell_of_the_copy(
    name: str, room: Path, odd: Path, tmp_path: Path
) -> None:
    folder = odd if name == "odd" else honest(name, room, tmp_path)
    found = validated(folder)
    assert found["readable"] == found["data"] == ["True"]
    assert set(found) <= {"readable", "data", "tables", "model"}


@pytest.mark.slow
def test_frictionless_sees_a_cell_out_of_range_and_another_file(room: Path, tmp_path: Path) -> None:
    folder = honest("gaussian", room, tmp_path)
    text = (folder / "readable.csv").read_text(encoding="utf-8")
    head, first, *rest = text.split("\n")
    (folder / "readable.csv").write_text("\n".join([head, "-36," + first.split(",", 1)[1], *rest]))
    assert validated(folder)["readable"][0] == "False"


def test_public_numbers_are_copied_digit_for_digit(tmp_path: Path) -> None:
    columns = [Column("x", lower=0, upper=1, role="public"), Column("y", values=("a", "b"), role="public")]
    schema = Schema(columns=[*columns, CONTRACT.column("age")])
    rows = {"x": np.linspace(0, 1, 100), "y": np.array(["a", "b"] * 50), "age": ROWS["age"]}
    publish(tmp_path / "public", GaussianRelease(scale=9, schema=schema), rows)
    lines = (tmp_path / "public" / "readable.csv").read_text().splitlines()[1:]
    assert sorted(float(line.split(",")[0]) for line in lines) == rows["x"].tolist()
