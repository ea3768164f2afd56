"""The probe of Spark's workers: what it asks of them, and what it says about their answers."""

from __future__ import annotations

import importlib.util
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from discreet.errors import SourceError
from discreet.tables import spark
from tests.servers import cannot_start, no_spark

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
    spark.probe_workers(_Session(), readable=[tmp_path], writable=[tmp_path])


def test_a_worker_without_the_package_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "discreet" else found(name))
    with pytest.raises(SourceError, match=r"workers have no discreet.*Install discreet\[spark\]"):
        spark.probe_workers(_Session())


def test_a_worker_with_another_version_is_refused() -> None:
    with pytest.raises(SourceError, match=r"workers run discreet 0\.0\.1, this process .* must be equal"):
        spark.probe_workers(_Session(discreet="0.0.1"))
    with pytest.raises(SourceError, match=r"workers run DuckDB 0\.0\.1, this process .* must be equal"):
        spark.probe_workers(_Session(duckdb="0.0.1"))


def test_a_worker_that_does_not_see_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"workers cannot read .*absent.*shared file system"):
        spark.probe_workers(_Session(), readable=[tmp_path / "absent"])
    with pytest.raises(SourceError, match=r"workers cannot write to .*absent"):
        spark.probe_workers(_Session(), writable=[tmp_path / "absent"])


def test_only_a_probe_without_paths_is_asked_once_for_a_session(tmp_path: Path) -> None:
    session = _Session()
    session.sparkContext.applicationId = f"app-{tmp_path}"
    spark.probe_workers(session)
    broken = _Session(discreet="0.0.1")
    broken.sparkContext.applicationId = f"app-{tmp_path}"
    spark.probe_workers(broken)
    with pytest.raises(SourceError, match="must be equal"):
        spark.probe_workers(broken, readable=[tmp_path])
