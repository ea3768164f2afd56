"""The probe of Spark's workers: what it asks of them, and what it says about their answers."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import SourceError
from discreet.tables import spark
from discreet.tables.spark import open_frame, open_parquet
from tests.servers import cannot_start, no_spark
from tests.workers import select

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def installed() -> None:
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)


class _Session:
    """Session whose one worker is this process."""

    def __init__(self, **instead: Any) -> None:
        self.sparkContext = SimpleNamespace(applicationId="", defaultParallelism=1)
        self._instead = instead

    def range(self, *_: int) -> _Session:
        return self

    def mapInArrow(self, task: Any, _: str) -> _Session:  # noqa: N802 - the name in pyspark
        (batch,) = task(iter(()))
        self._found = json.loads(batch.column(0)[0].as_py()) | self._instead
        return self

    def collect(self) -> list[dict[str, str]]:
        return [{"found": json.dumps(self._found)}]


def test_a_worker_with_package_and_paths_passes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    spark.probe_workers(_Session(), readable=[tmp_path / "file"], writable=[tmp_path])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("module", "package"), [("discreet.noise", "discreet"), ("scipy.special", "scipy"), ("duckdb", "duckdb")]
)
def test_a_worker_that_cannot_import_a_package_is_told_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str
) -> None:
    imported = importlib.import_module

    def broken(name: str) -> Any:
        if name == module:
            raise OSError("libgfortran.so: cannot open shared object file")
        return imported(name)

    monkeypatch.setattr(importlib, "import_module", broken)
    problem = rf"workers cannot import {package} \(OSError\).*Install discreet\[spark\]"
    with pytest.raises(SourceError, match=problem):
        spark.probe_workers(_Session())


def test_a_worker_that_runs_no_task_is_told_which_python_it_needs() -> None:
    class Failing(_Session):
        def collect(self) -> list[dict[str, str]]:
            raise OSError("no module named pyspark")

    with pytest.raises(SourceError, match=r"cannot run a Python task \(OSError\).* in PYSPARK_PYTHON"):
        spark.probe_workers(Failing())


@pytest.mark.slow
def test_workers_on_this_machine_run_the_python_of_this_process(tmp_path: Path) -> None:
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    other.chmod(0o700)
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"} | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    probe = "from discreet.tables.spark import *; probe_workers(open_session('local[1]'))"
    subprocess.run([sys.executable, "-c", probe], env=environment, check=True)


@pytest.mark.parametrize("name", ["discreet", "numpy", "scipy", "DuckDB"])
def test_a_worker_with_another_version_is_refused(name: str) -> None:
    with pytest.raises(SourceError, match=rf"workers run {name} 0\.0\.1, this process .* must be equal"):
        spark.probe_workers(_Session(**{name.lower(): "0.0.1"}))


def test_two_source_trees_are_two_versions(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    versions = set()
    for i, line in enumerate(("x = 1", "x = 1", "x = 2")):
        module = tmp_path / str(i) / "discreet" / "tables" / "spark.py"
        module.parent.mkdir(parents=True)
        module.write_text(line, encoding="utf-8")
        monkeypatch.setattr(spark, "__file__", str(module))
        versions.add(spark.installed_version.__wrapped__())
    assert len(versions) == 2


class _Elsewhere(_Session):
    """Session whose worker has files and folders of its own under the names of the driver's."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def mapInArrow(self, task: Any, shape: str) -> _Session:  # noqa: N802 - as above
        own = {path: path.rename(path.with_name(f"away{i}")) for i, path in enumerate(self._folder.iterdir())}
        (self._folder / "file").write_bytes(b"others")
        super().mapInArrow(task, shape)
        for path, away in own.items():
            away.rename(path)
        return self


def test_a_worker_that_does_not_see_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"rows")
    with pytest.raises(
        SourceError, match=r"workers cannot read .*file.* or have another.*shared file system"
    ):
        spark.probe_workers(_Elsewhere(tmp_path), readable=[file])


def test_a_worker_with_a_folder_of_its_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=rf"workers cannot write to '{tmp_path}', or have another"):
        spark.probe_workers(_Elsewhere(tmp_path), writable=[tmp_path])


def test_only_a_probe_without_paths_is_asked_once_for_a_session(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    session = _Session()
    session.sparkContext.applicationId = f"app-{tmp_path}"
    spark.probe_workers(session)
    broken = _Session(discreet="0.0.1")
    broken.sparkContext.applicationId = f"app-{tmp_path}"
    spark.probe_workers(broken)
    with pytest.raises(SourceError, match="must be equal"):
        spark.probe_workers(broken, readable=[tmp_path / "file"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_spark_reads_the_files_that_were_checked_by_their_names(spark: Any, tmp_path: Path) -> None:
    for year in (2023, 2024):
        folder = tmp_path / "a b[1]{x,y}*" / f"year={year}"
        folder.mkdir(parents=True)
        select(f"SELECT {year}.5 AS x").write_parquet(str(folder / "part-[0].parquet"))
    rows = open_parquet(tmp_path / "a b[1]{x,y}*", session=spark).collect()
    assert sorted((float(row["x"]), row["year"]) for row in rows) == [(2023.5, 2023), (2024.5, 2024)]
    (frame,) = [open_parquet(file, session=spark) for file in folder.glob("*.parquet")]
    assert frame.columns == ["x"]


def test_files_of_other_columns_or_types_are_no_table_in_spark(tmp_path: Path) -> None:
    select("SELECT 1 AS x").write_parquet(str(tmp_path / "0.parquet"))
    select("SELECT 1 AS y").write_parquet(str(tmp_path / "1.parquet"))
    with pytest.raises(SourceError, match="must have the same columns in each file"):
        open_frame(f"spark://local?table={tmp_path}/*.parquet")
    select("SELECT 'a' AS x").write_parquet(str(tmp_path / "1.parquet"))
    with pytest.raises(SourceError, match="must have the same types in each file"):
        open_frame(f"spark://local?table={tmp_path}/*.parquet")


@pytest.mark.parametrize(
    "name",
    ["s3a://lake/people.parquet", "file:/lake/people.parquet", "parquet.`/lake/people`", "`ORC` . `x`"],
)
def test_files_that_nobody_checked_are_no_table_in_spark(name: str) -> None:
    with pytest.raises(SourceError, match=r"must be a name in Spark's catalog.*deleted rows"):
        open_frame(f"spark://local?table={name}")
