"""Verification of a table in parts: file by file here, or on workers of Spark, with the same results."""

from __future__ import annotations

import pickle
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, Column, GaussianRelease, PureDP, Schema, publish, verify
from discreet.errors import ParameterError, SourceError, WorkersFailed
from discreet.noise import Stream
from discreet.pipeline.options import RunOptions, SparkOptions
from discreet.release.spark import table
from discreet.report.folder.folder import MODEL, STATEMENT, SUMS, data_digests, write_public
from discreet.report.statement.documents import Statement
from discreet.report.verify import _noise_tests
from discreet.report.verify._noise_tests import ColumnTest, RepeatTest, column_tests
from discreet.report.verify._parts import PublishedParts
from discreet.tables.table import ROWS
from tests.servers import cannot_start, no_spark
from tests.workers import InProcessSession, select

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

N = ROWS + 5_000
SCHEMA = Schema(
    dataset="parts",
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("income", lower=0, upper=1000, required=False),
        Column("owner", values=("no", "yes")),
    ],
)
PROMISES = {"gaussian": ApproxDP(epsilon=4, delta=1e-7), "coarse": PureDP(epsilon=4)}


def _release(place: Path, method: str) -> Path:
    files = place / "files"
    files.mkdir()
    rows = select(
        "SELECT 17 + i % 74 AS age, CASE WHEN i % 50 > 0 THEN (i * 7919 % 1000)::DOUBLE END AS income, "
        f"CASE WHEN i % 3 = 0 THEN 'no' ELSE 'yes' END AS owner FROM range({N}) AS rows(i)"
    )
    rows.write_parquet(f"{files}/all.parquet")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table, "part_batches", lambda n_rows: 1)
        publish(
            files,
            out=place / "release",
            schema=SCHEMA,
            method=method,
            privacy=PROMISES[method],
            run=RunOptions(
                attack_records=200,
                accept_risk="made-up rows",
                spark=SparkOptions(session=InProcessSession()),
            ),
            ledger=False,
        )
    return place / "release" / "public"


@pytest.fixture(scope="module")
def gaussian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in two parts; tests that change it copy it."""
    return _release(tmp_path_factory.mktemp("gaussian"), "gaussian")


@pytest.fixture(autouse=True)
def _needs_pyspark() -> None:
    pytest.importorskip("pyspark", exc_type=ImportError)


def _results(folder: Path, session: Any = None) -> list[tuple[str, str, str]]:
    return [(one.name, one.verdict, one.detail) for one in verify(folder, spark=session).checks]


def _part(folder: Path, number: int) -> Path:
    return folder / "data.parquet" / f"part-{number:05d}.parquet"


def _hash_again(folder: Path) -> None:
    """Write statement, hashes and derived files for the table as it is now, as a forger would."""
    statement = Statement.from_json((folder / STATEMENT).read_bytes())
    write_public(folder, statement.model_copy(update={"files": data_digests(folder)}))


def _change_cell(folder: Path) -> None:
    """Move a cell off the lattice, and so far that the readable copy shows it."""
    changed = "CASE WHEN row_number() OVER () <> 77 THEN age WHEN age > 50 THEN 20.3 ELSE 80.3 END"
    part = _part(folder, 1)
    select(f"SELECT * REPLACE ({changed} AS age) FROM '{part}'").write_parquet(str(part))


def _swap(folder: Path) -> None:
    first, second = _part(folder, 0).read_bytes(), _part(folder, 1).read_bytes()
    _part(folder, 0).write_bytes(second)
    _part(folder, 1).write_bytes(first)


def _add_twice(folder: Path) -> None:
    shutil.copy(_part(folder, 1), _part(folder, 2))


def _spoil_hash(folder: Path) -> None:
    text = (folder / SUMS).read_text()
    at = text.index("  data.parquet/part-00001") - 1
    (folder / SUMS).write_text(text[:at] + ("0" if text[at] != "0" else "1") + text[at + 1 :])


def _drop_column(folder: Path) -> None:
    part = _part(folder, 1)
    select(f"SELECT age, income FROM '{part}'").write_parquet(str(part))


def _cut_short(folder: Path) -> None:
    content = _part(folder, 1).read_bytes()
    _part(folder, 1).write_bytes(content[: len(content) // 2])


def _name_a_level(folder: Path) -> None:
    part = _part(folder, 1)
    select(f"SELECT * REPLACE ('perhaps' AS owner) FROM '{part}'").write_parquet(str(part))


def _change_copy(folder: Path) -> None:
    lines = (folder / "readable.csv").read_text().splitlines(keepends=True)
    lines[N - 10] = "17,0.5,no\n"
    (folder / "readable.csv").write_text("".join(lines))


def _lengthen_copy(folder: Path) -> None:
    with (folder / "readable.csv").open("a") as file:
        file.write("17,0.5,no\n")


def _remove_first(folder: Path) -> None:
    _part(folder, 0).unlink()


def _remove_last(folder: Path) -> None:
    _part(folder, 1).unlink()


FORGERIES: dict[str, tuple[list[Callable[[Path], None]], set[str]]] = {
    "a changed cell": ([_change_cell], {"hashes", "data files", "cells", "bytes", "readable.csv"}),
    "a changed cell, hashed again": (
        [_change_cell, _hash_again],
        {"cells", "bytes", "readable.csv"},
    ),
    "a missing part": ([_remove_first], {"files"}),
    "a missing last part": (
        [_remove_last],
        {"hashes", "data files", "row count", "readable.csv"},
    ),
    "a part added twice": (
        [_add_twice],
        {"hashes", "data files", "row count", "repeated rows", "readable.csv"},
    ),
    "a part added twice, hashed again": (
        [_add_twice, _hash_again],
        {"row count", "repeated rows", "readable.csv"},
    ),
    "a wrong hash": ([_spoil_hash], {"hashes"}),
    "swapped parts": ([_swap], {"hashes", "data files", "readable.csv"}),
    "a part without a column": ([_drop_column], {"hashes", "data files", "columns"}),
    "a part cut short": ([_cut_short], {"hashes", "data files", "columns"}),
    "an undeclared category": ([_name_a_level], {"hashes", "data files", "cells"}),
    "a changed line of the copy": ([_change_copy], {"hashes", "data files", "readable.csv"}),
    "a line too many in the copy": ([_lengthen_copy], {"hashes", "data files", "readable.csv"}),
}


@pytest.mark.slow
def test_an_honest_folder_has_the_same_results_on_workers(gaussian: Path) -> None:
    session = InProcessSession(attempts=2)
    results = _results(gaussian, session)
    assert results == _results(gaussian)
    assert "failed" not in {verdict for _, verdict, _ in results}
    # Probe, hashes, footers, cells, files written again, readable copy: no check read the parts by itself.
    assert len(session.tasks) == 6


@pytest.mark.slow
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_folder_has_the_same_results_on_workers(name: str, gaussian: Path, tmp_path: Path) -> None:
    steps, failing = FORGERIES[name]
    shutil.copytree(gaussian, tmp_path / "copy")
    for step in steps:
        step(tmp_path / "copy")
    results = _results(tmp_path / "copy", InProcessSession(attempts=2))
    assert results == _results(tmp_path / "copy")
    failed = {check for check, verdict, _ in results if verdict == "failed"}
    assert failing <= failed
    # What follows from the statement alone is not touched by a forged table.
    assert not failed & {"schema", "method", "numbers", "risk"}


@pytest.mark.slow
def test_the_first_other_line_of_the_copy_is_found_in_a_later_part(gaussian: Path, tmp_path: Path) -> None:
    shutil.copytree(gaussian, tmp_path / "copy")
    _change_copy(tmp_path / "copy")
    (detail,) = [detail for name, _, detail in _results(tmp_path / "copy") if name == "readable.csv"]
    assert f"line {N - 9} differs" in detail
    shutil.copy(gaussian / "readable.csv", tmp_path / "copy" / "readable.csv")
    _lengthen_copy(tmp_path / "copy")
    (detail,) = [detail for name, _, detail in _results(tmp_path / "copy") if name == "readable.csv"]
    assert f"line {N + 2} differs" in detail


def _lose(rows: list[Any]) -> list[Any]:
    return rows[1:]


def _double(rows: list[Any]) -> list[Any]:
    return [*rows[1:], rows[1]]


@pytest.mark.parametrize("change", [_lose, _double], ids=["lost", "doubled"])
def test_a_result_that_workers_lose_or_return_twice_is_no_verdict(
    change: Callable[[list[Any]], list[Any]], gaussian: Path
) -> None:
    with pytest.raises(WorkersFailed, match="other parts than the 2"):
        verify(gaussian, spark=InProcessSession(change=change))


def test_a_failure_of_spark_is_no_verdict(gaussian: Path) -> None:
    def fail(_: list[Any]) -> list[Any]:
        raise OSError("a row")

    with pytest.raises(WorkersFailed, match="Spark ended with OSError") as caught:
        verify(gaussian, spark=InProcessSession(change=fail))
    assert "a row" not in str(caught.value)


class _Blind(InProcessSession):
    """Session whose worker can open no file."""

    def collect(self) -> list[dict[str, Any]]:
        def refuse(*_: Any) -> None:
            raise PermissionError

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("builtins.open", refuse)
            return super().collect()


def test_workers_that_cannot_read_the_folder_are_named_before_a_check(gaussian: Path) -> None:
    with pytest.raises(SourceError, match="workers cannot read"):
        verify(gaussian, spark=_Blind())


def test_spark_is_refused_for_a_model(tmp_path: Path) -> None:
    (tmp_path / MODEL).write_text("{}")
    with pytest.raises(ParameterError, match="spark of verify is for a released table"):
        verify(tmp_path, spark=InProcessSession())


def test_tasks_run_on_every_file_with_its_own_arguments(gaussian: Path) -> None:
    parts = PublishedParts(gaussian, InProcessSession())
    found = list(parts.map(lambda path, number: (path.name, number), [3, 5]))
    assert found == [("part-00000.parquet", 3), ("part-00001.parquet", 5)]


def _tests(cells: dict[str, Any]) -> list[ColumnTest]:
    plan = GaussianRelease(privacy=PROMISES["gaussian"], schema=SCHEMA).plan(SCHEMA, N)
    made = [test for summary in plan.columns for test in column_tests(SCHEMA.column(summary.column), summary)]
    for test in made:
        test.update(cells[test.column])
    return made


def test_merged_tests_have_the_state_of_one_test() -> None:
    """Whole numbers have exact sums, and parts of an even number of rows the same pairs of neighbors."""
    words = Stream.from_seed(4).words(3_000)
    cells = {
        "age": (words % 140).astype(float) - 20,
        "income": (words % 5_003).astype(float) - 2_000,
        "owner": (words % 2).astype(np.int32),
    }
    whole = _tests(cells)
    merged = _tests({name: values[:1_000] for name, values in cells.items()})
    later = _tests({name: values[1_000:] for name, values in cells.items()})
    for one, other in zip(merged, pickle.loads(pickle.dumps(later)), strict=True):
        one.merge(other)
    for one, other in zip(merged, whole, strict=True):
        assert vars(one).keys() == vars(other).keys()
        for name, value in vars(one).items():
            if not isinstance(value, int | float | np.ndarray):
                continue
            np.testing.assert_array_equal(value, vars(other)[name], err_msg=name)


def test_repeats_are_found_across_parts_and_only_in_the_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_noise_tests, "MOST_ROWS", 150)
    rows = Stream.from_seed(3).words(100).astype(float)
    first, again, beyond = (RepeatTest(["x"], 1e-12, start) for start in (0, 100, 150))
    first.update({"x": rows})
    again.update({"x": rows})
    beyond.update({"x": rows})
    assert not first.faults()
    first.merge(beyond)
    assert not first.faults()
    first.merge(again)
    assert "50 rows repeat" in first.faults()[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning")  # pyspark's own
@pytest.mark.parametrize("method", ["gaussian", "coarse"])
def test_workers_of_spark_find_what_this_process_finds(method: str, spark: Any, tmp_path: Path) -> None:
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    folder = _release(tmp_path, method)
    results = _results(folder, spark)
    assert results == _results(folder)
    assert "failed" not in {verdict for _, verdict, _ in results}
    _swap(folder)
    results = _results(folder, spark)
    assert results == _results(folder)
    assert "failed" in {verdict for _, verdict, _ in results}
