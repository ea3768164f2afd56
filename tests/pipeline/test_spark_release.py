"""Releases on Spark as a job: a folder of parts that anyone can verify, and a release that is resumed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ApproxDP, Column, GaussianRelease, Ledger, Schema, load_release, publish, verify
from discreet.errors import OtherLedger, ParameterError, SourceError
from discreet.file_system import sync_to_disk
from discreet.noise import Stream
from discreet.pipeline import _output, table_registry
from discreet.pipeline.options import Output, RunOptions, SparkOptions
from discreet.release.keystream import rows_digest
from discreet.release.spark import _tasks, table
from discreet.release.synthetic import columns
from discreet.tables import parquet_parts
from discreet.tables.table import ROWS
from tests.servers import cannot_start, no_spark
from tests.workers import InProcessSession, select

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from discreet.pipeline.result import Published

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]  # pyspark's own
N = ROWS + 5_000
SCHEMA = Schema(
    dataset="spark-job",
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("income", lower=0, upper=1000),
        Column("owner", values=("no", "yes")),
    ],
)
RUN = RunOptions(attack_records=200, accept_risk="made-up rows")


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    monkeypatch.setattr(table, "part_batches", lambda n_rows: 1)


def _write_files(folder: Path, shift: int = 0, moved: int = 0) -> Path:
    """Write three rows for each person; `shift` changes a cell of one row, and `moved` its id."""
    folder.mkdir(exist_ok=True)
    for number in range(2):
        rows = select(
            f"SELECT (i + {moved} * (i = 5)::INT) // 3 AS id, "
            f"17 + (i + {shift} * (i = 5)::INT) % 74 AS age, (i * 7919 % 1000)::DOUBLE AS income, "
            "CASE WHEN i % 3 = 0 THEN 'no' ELSE 'yes' END AS owner "
            f"FROM range({number * N // 2}, {(number + 1) * N // 2}) AS rows(i)"
        )
        rows.write_parquet(f"{folder}/part-{number}.parquet")
    return folder


PEOPLE = Schema(
    dataset="spark-people",
    columns=[*SCHEMA.columns, Column("id", role="id")],
    id_column="id",
    max_rows_per_unit=2,
)


def _release(
    source: Any,
    out: Path,
    *,
    session: Any = None,
    resume: bool = False,
    schema: Schema = SCHEMA,
    **more: Any,
) -> Published:
    return publish(
        source,
        out=out,
        schema=schema,
        method="gaussian",
        privacy=ApproxDP(epsilon=4, delta=1e-7),
        run=replace(RUN, spark=SparkOptions(session=session or InProcessSession(), resume=resume)),
        **more,
    )


def _statuses(folder: Path) -> dict[str, str]:
    return {check.name: check.verdict for check in verify(folder).checks}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release in two parts; tests that change it copy it."""
    place = tmp_path_factory.mktemp("spark-job")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table, "part_batches", lambda n_rows: 1)
        _release(_write_files(place / "files"), place / "release", ledger=False)
    return place / "release"


def test_a_release_in_parts_is_verified_as_one_in_a_file(published: Path, tmp_path: Path) -> None:
    publish(
        published.parent / "files",
        out=tmp_path / "one",
        schema=SCHEMA,
        method="gaussian",
        privacy=ApproxDP(epsilon=4, delta=1e-7),
        run=RUN,
        ledger=False,
    )
    statuses = _statuses(published)
    assert "failed" not in statuses.values()
    assert statuses == _statuses(tmp_path / "one")
    statement = json.loads((published / "public" / "statement.json").read_text())
    assert sorted(statement["files"]) == [
        "data.parquet/part-00000.parquet",
        "data.parquet/part-00001.parquet",
        "readable.csv",
    ]
    assert sorted(path.name for path in (published / "internal").iterdir()) == [
        "attacks.json",
        "audit.jsonl",
        "report.html",
    ]
    package = json.loads((published / "public" / "datapackage.json").read_text())
    assert package["resources"][1]["path"] == sorted(statement["files"])[:2]
    loaded = load_release(published)
    assert loaded.count().value == N


def _copy(published: Path, tmp_path: Path) -> Path:
    shutil.copytree(published / "public", tmp_path / "copy")
    return tmp_path / "copy"


@pytest.mark.parametrize("fault", ["swapped", "missing", "extra", "link", "cell"])
def test_a_changed_part_fails(fault: str, published: Path, tmp_path: Path) -> None:
    copy = _copy(published, tmp_path)
    first, second = (copy / "data.parquet" / f"part-0000{number}.parquet" for number in range(2))
    if fault == "swapped":
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)
    elif fault == "missing":
        first.unlink()
    elif fault == "extra":
        (copy / "data.parquet" / "notes.txt").write_text("x")
    elif fault == "link":
        target = tmp_path / "elsewhere.parquet"
        target.write_bytes(second.read_bytes())
        second.unlink()
        second.symlink_to(target)
    else:
        select(f"SELECT * REPLACE (age + 1 AS age) FROM '{first}'").write_parquet(str(first))
    assert "failed" in _statuses(copy).values()


class _Killed(BaseException):
    """End of the driver at a certain moment."""


_RESULTS = {"draw": "layout", "write": "sha256"}  # what only the results of these jobs have


def _killed_at(job: str) -> InProcessSession:
    """Return a session that ends the driver when the results of a job arrive."""

    def change(rows: list[Any]) -> list[Any]:
        if _RESULTS[job] in json.loads(rows[0]["result"]):
            raise _Killed
        return rows

    return InProcessSession(change=change)


@pytest.mark.parametrize("job", ["draw", "write"])
def test_an_interrupted_release_is_resumed_for_nothing(job: str, tmp_path: Path) -> None:
    files, ledger = _write_files(tmp_path / "files"), tmp_path / "one.ledger"
    with pytest.raises(_Killed):
        _release(files, tmp_path / "out", session=_killed_at(job), ledger=ledger)
    assert not (tmp_path / "out").exists()
    with pytest.raises(SourceError, match="was paid for and not finished"):
        _release(files, tmp_path / "out", ledger=ledger)
    result = _release(files, tmp_path / "out", resume=True, ledger=ledger)
    assert "failed" not in _statuses(result.public).values()
    with Ledger.open(ledger) as book:
        assert len(list(book.history())) == 1
    assert not list((tmp_path / "out" / "internal").glob("resume*"))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".out")] == []
    with pytest.raises(SourceError, match=r"No release to .* was interrupted"):
        _release(files, tmp_path / "out", resume=True, ledger=ledger, output=Output(replace=True))


@pytest.mark.parametrize(
    ("resume", "words"), [(True, "is complete, and nothing is left to resume"), (False, "exists already")]
)
def test_a_release_whose_driver_was_killed_at_its_last_step_keeps_no_key(
    resume: bool, words: str, tmp_path: Path
) -> None:
    files, ledger = _write_files(tmp_path / "files"), tmp_path / "one.ledger"

    def killed(folder: Path) -> None:
        sync_to_disk(folder)
        if folder == tmp_path and (tmp_path / "out").exists():
            raise _Killed

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_output, "sync_to_disk", killed)
        with pytest.raises(_Killed):
            _release(files, tmp_path / "out", ledger=ledger)
    assert (tmp_path / "out" / "internal" / "resume.json").exists()
    with pytest.raises(SourceError, match=words):
        _release(files, tmp_path / "out", resume=resume, ledger=ledger)
    assert not list((tmp_path / "out" / "internal").glob("resume*"))
    assert "failed" not in _statuses(tmp_path / "out").values()
    assert _n_charges(ledger) == 1


def test_a_resumed_release_has_the_bits_of_the_interrupted_one(tmp_path: Path) -> None:
    files = _write_files(tmp_path / "files")
    drawn: list[bytes] = []

    def change(rows: list[Any]) -> list[Any]:
        if "bytes" in rows[0]["result"]:
            drawn.extend(sorted(json.loads(row["result"])["sha256"].encode() for row in rows))
            raise _Killed
        return rows

    with pytest.raises(_Killed):
        _release(files, tmp_path / "out", session=InProcessSession(change=change), ledger=False)
    result = _release(files, tmp_path / "out", resume=True, ledger=False)
    again = sorted(digest.encode() for name, digest in result.statement.files.items() if "part-" in name)
    assert again == drawn


def test_a_changed_row_is_refused_when_a_release_is_resumed(tmp_path: Path) -> None:
    files, ledger = _write_files(tmp_path / "files"), tmp_path / "one.ledger"
    with pytest.raises(_Killed):
        _release(files, tmp_path / "out", session=_killed_at("draw"), ledger=ledger)
    _write_files(files, shift=1)
    with pytest.raises(SourceError, match="The source has changed since this release was paid for"):
        _release(files, tmp_path / "out", resume=True, ledger=ledger)
    assert not (tmp_path / "out").exists()
    _write_files(files)
    _release(files, tmp_path / "out", resume=True, ledger=ledger)
    with Ledger.open(ledger) as book:
        assert len(list(book.history())) == 1


def test_staged_rows_are_released_on_resumption_whatever_became_of_their_data_frame(
    spark: Any, tmp_path: Path
) -> None:
    files, ledger = _write_files(tmp_path / "files"), tmp_path / "one.ledger"
    run = table.PartitionedTable._run

    def killed(self: Any, name: str, *args: Any) -> Any:
        if name == "write":
            raise _Killed
        return run(self, name, *args)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table.PartitionedTable, "_run", killed)
        with pytest.raises(_Killed):
            _release(spark.read.parquet(str(files)), tmp_path / "out", session=spark, ledger=ledger)
    (record,) = tmp_path.glob(".out.*/internal/resume.json")
    key = bytes.fromhex(json.loads(record.read_bytes())["key"])
    shutil.copytree(record.parent / "work" / "staged", tmp_path / "paid" / "files")
    others = spark.read.parquet(str(_write_files(files, shift=1)))
    _release(others, tmp_path / "out", session=spark, resume=True, ledger=ledger)
    published = select(f"SELECT * FROM '{tmp_path}/out/public/data.parquet/*.parquet'").fetchnumpy()
    for cells, expected in zip(published.values(), _replay(tmp_path / "paid", key), strict=True):
        assert np.array_equal(np.asarray(cells), np.asarray(expected))
    assert _n_charges(ledger) == 1
    assert not list(tmp_path.glob(".out.*"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["internal", "public"]
    assert not (tmp_path / "out" / "internal" / "work").exists()


def _change_an_id_and_resume(tmp_path: Path) -> None:
    """Kill a release of people after its charge, give one row to another person, and resume it."""
    files, ledger = _write_files(tmp_path / "files"), tmp_path / "one.ledger"
    with pytest.raises(_Killed):
        _release(files, tmp_path / "out", session=_killed_at("draw"), schema=PEOPLE, ledger=ledger)
    _write_files(files, moved=1)
    _release(files, tmp_path / "out", resume=True, schema=PEOPLE, ledger=ledger)


def test_a_changed_id_is_refused_when_a_release_is_resumed(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="The source has changed since this release was paid for"):
        _change_an_id_and_resume(tmp_path)
    assert not (tmp_path / "out").exists()
    files, ledger = _write_files(tmp_path / "files"), tmp_path / "one.ledger"
    _release(files, tmp_path / "out", resume=True, schema=PEOPLE, ledger=ledger)
    assert _n_charges(ledger) == 1


def test_a_digest_without_ids_would_publish_other_rows_of_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tasks, "source_digest", lambda batch, _: rows_digest(batch))
    _change_an_id_and_resume(tmp_path)
    assert _n_charges(tmp_path / "one.ledger") == 1


def test_a_release_that_was_not_paid_for_leaves_nothing(tmp_path: Path) -> None:
    files = _write_files(tmp_path / "files")
    with Ledger.open(tmp_path / "small.ledger", limit=ApproxDP(epsilon=0.1, delta=1e-9)):
        pass
    with pytest.raises(Exception, match="Not enough budget"):
        _release(files, tmp_path / "out", ledger=tmp_path / "small.ledger")
    assert [path.name for path in tmp_path.iterdir() if "out" in path.name] == []


def _no_pass(*_: Any) -> Any:
    raise AssertionError("the driver reads every row of the table")


@pytest.mark.parametrize("spark_first", [True, False], ids=["Spark first", "one process first"])
def test_spark_and_one_process_know_each_other_s_tables(
    spark_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a copy under another name, by a fingerprint that no process takes of the whole table."""
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
        _write_files(tmp_path / place / "files")

    def go(place: str, on_spark: bool) -> None:
        with monkeypatch.context() as patched:
            if on_spark:
                patched.setattr(table_registry, "fingerprint_table", _no_pass)
            publish(
                tmp_path / place / "files",
                out=tmp_path / place / "out",
                schema=SCHEMA,
                method="gaussian",
                privacy=ApproxDP(epsilon=4, delta=1e-7),
                run=replace(RUN, spark=SparkOptions(session=InProcessSession()) if on_spark else None),
            )

    go("a", spark_first)
    with pytest.raises(OtherLedger, match="is known by its rows"):
        go("b", not spark_first)
    assert not (tmp_path / "b" / "spark-job.ledger").exists()
    assert sorted(path.name for path in (tmp_path / "b").iterdir()) == ["files"]


def test_invariant_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    files, ledger = _write_files(tmp_path / "files"), tmp_path / "one.ledger"
    number, target = Column("age", lower=17, upper=90), Column("owner", values=("no", "yes"), role="target")
    with pytest.raises(ParameterError, match="InvariantRelease needs all rows in one process"):
        publish(
            files,
            out=tmp_path / "out",
            schema=Schema(dataset="spark-job", columns=[number, target]),
            method="invariant",
            learner="svm",
            variance=0.25,
            scales="range",
            run=replace(RUN, spark=SparkOptions(session=InProcessSession())),
            ledger=ledger,
        )
    with Ledger.open(ledger) as book:
        assert not list(book.history())


def test_a_synthetic_release_has_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="resume"):
        publish(
            _write_files(tmp_path / "files"),
            out=tmp_path / "made",
            schema=SCHEMA,
            method="synthetic",
            privacy=ApproxDP(epsilon=2, delta=1e-6),
            ledger=False,
            run=RunOptions(spark=SparkOptions(session=InProcessSession(), resume=True)),
        )


def _synthesize(source: Path, out: Path) -> Published:
    return publish(
        source,
        out=out,
        schema=SCHEMA,
        method="synthetic",
        privacy=ApproxDP(epsilon=2, delta=1e-6),
        run=replace(RUN, spark=SparkOptions(session=InProcessSession())),
        ledger=False,
    )


@pytest.mark.parametrize("pattern", ["", "*.parquet"], ids=["path", "glob"])
def test_a_synthetic_table_is_not_made_of_deleted_rows(pattern: str, tmp_path: Path) -> None:
    files = _write_files(tmp_path / "files")
    (files / "_delta_log").mkdir()
    with pytest.raises(SourceError, match="is a Delta table, whose files also hold rows that were deleted"):
        _synthesize(files / pattern, tmp_path / "made")


def test_a_synthetic_table_is_not_made_of_files_with_other_columns(tmp_path: Path) -> None:
    files = _write_files(tmp_path / "files")
    select(f"SELECT age, income FROM '{files}/part-1.parquet'").write_parquet(str(files / "part-2.parquet"))
    with pytest.raises(SourceError, match=r"'part-2.parquet' has others than 'part-0.parquet'"):
        _synthesize(files, tmp_path / "made")


def test_a_synthetic_table_is_made_in_parts_from_answers_of_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_parts, "PART_ROWS", 1)
    monkeypatch.setattr(columns, "_BATCH_CELLS", len(SCHEMA.columns) * 2**15)
    result = publish(
        spark.read.parquet(str(_write_files(tmp_path / "files"))),
        out=tmp_path / "made",
        schema=SCHEMA,
        method="synthetic",
        privacy=ApproxDP(epsilon=2, delta=1e-6),
        run=RUN,
        ledger=tmp_path / "made.ledger",
    )
    assert "failed" not in _statuses(result.public).values()
    parts = sorted((result.public / "data.parquet").iterdir())
    assert [path.name for path in parts] == [f"part-{i:05d}.parquet" for i in range(3)]
    assert len(load_release(result.folder).data["age"]) == result.statement.what.rows_published
    with Ledger.open(tmp_path / "made.ledger") as book:
        assert len(list(book.history())) > 1


COMMAND = """
import os, sys, time
from pathlib import Path
from discreet.cli.main import main
from discreet.ledger import Ledger
from discreet.query.execution import QueryExecutor
from discreet.release.spark import PartitionedTable, table
table.part_batches = lambda n_rows: 1
ask, run, charge, rename = QueryExecutor.ask, PartitionedTable._run, Ledger.charge, Path.rename
def stop_at(mark):
    if os.environ.get("STOP_AT") == mark:
        Path(os.environ["STOPPED"]).touch()
        time.sleep(3600)
def run_and_stop(self, name, *args):
    results = run(self, name, *args)
    stop_at(name)
    return results
def charge_and_stop(self, *args, **kwargs):
    receipt = charge(self, *args, **kwargs)
    stop_at("charge")
    return receipt
def rename_and_stop(self, target):
    moved = rename(self, target)
    if Path(target).name == "part-00000.parquet":  # of two
        stop_at("commit")
    return moved
PartitionedTable._run, Ledger.charge, Path.rename = run_and_stop, charge_and_stop, rename_and_stop
def wait_after_an_answer(self, *args, **kwargs):
    answer = ask(self, *args, **kwargs)
    if self.is_distributed:  # not in the attacks on made-up tables
        Path(os.environ["ANSWERED"]).touch()
        time.sleep(3600)
    return answer
if "ANSWERED" in os.environ:
    QueryExecutor.ask = wait_after_an_answer
sys.argv = ["discreet", *sys.argv[1:]]
main()
"""
PROMISES = {
    "gaussian": ("--epsilon", "4", "--delta", "1e-7"),
    "coarse": ("--epsilon", "9"),
    "synthetic": ("--epsilon", "4", "--delta", "1e-7"),
}


def _command(method: str, place: Path, out: str = "out") -> tuple[list[str], dict[str, str]]:
    """Return the command of a release on Spark with its environment; table and schema are written."""
    files = _write_files(place / "files")
    schema = place / "files.schema.yaml"
    schema.write_text(SCHEMA.to_yaml())
    source = str(files) if method != "synthetic" else f"spark://local?table={files}/*.parquet"
    arguments = ["release", source, "--schema", str(schema), "--method", method, *PROMISES[method]]
    if method != "synthetic":
        arguments += ["--engine", "spark", "--spark-master", "local[2]"]
    arguments += ["--attack-records", "200", "--accept-risk", "made up", "--out", str(place / out)]
    arguments += ["--ledger", str(place / f"{out}.ledger")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "DISCREET_STATE": str(place / "state"),
    }
    return [sys.executable, "-c", COMMAND, *arguments], environment


def _kill_when(mark: Callable[[], object], command: list[str], environment: dict[str, str]) -> None:
    """Run a command, and kill it with all that it started once there is a mark."""
    running = subprocess.Popen(command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL)
    with running:
        while not mark():
            assert running.poll() is None
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGKILL)


def _run(command: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _n_charges(ledger: Path) -> int:
    with Ledger.open(ledger) as book:
        return len(list(book.history()))


def _replay(place: Path, key: bytes) -> list[Any]:
    """Return the columns that one process publishes under a key, in the order of its rows."""
    method = GaussianRelease(privacy=ApproxDP(epsilon=4, delta=1e-7), schema=SCHEMA)
    method.publish(place / "files", place / "one.parquet", stream=Stream.for_replay(key))
    return list(select(f"SELECT * FROM '{place}/one.parquet'").fetchnumpy().values())


@pytest.mark.parametrize("mark", ["sample", "check", "charge", "draw", "write", "commit"])
def test_a_driver_killed_anywhere_is_charged_once_and_shows_nothing(mark: str, tmp_path: Path) -> None:
    command, environment = _command("gaussian", tmp_path)
    stopped = tmp_path / "stopped"
    _kill_when(stopped.exists, command, {**environment, "STOP_AT": mark, "STOPPED": str(stopped)})
    assert not (tmp_path / "out").exists()
    records = list(tmp_path.glob(".out.*/internal/resume.json"))
    if mark in ("sample", "check"):
        assert not records
        if (tmp_path / "out.ledger").exists():
            assert _n_charges(tmp_path / "out.ledger") == 0
        _run(command, environment)
    else:
        (record,) = records
        key = bytes.fromhex(json.loads(record.read_bytes())["key"])
        assert _n_charges(tmp_path / "out.ledger") == 1
        _run([*command, "--resume"], environment)
        published = select(f"SELECT * FROM '{tmp_path}/out/public/data.parquet/*.parquet'").fetchnumpy()
        for cells, others in zip(published.values(), _replay(tmp_path, key), strict=True):
            assert np.array_equal(np.asarray(cells), np.asarray(others))
    assert _n_charges(tmp_path / "out.ledger") == 1
    assert not list(tmp_path.glob(".out.*"))


def test_a_killed_driver_is_resumed_from_the_command_line(tmp_path: Path) -> None:
    command, environment = _command("coarse", tmp_path)
    stopped = tmp_path / "stopped"
    _kill_when(stopped.exists, command, {**environment, "STOP_AT": "draw", "STOPPED": str(stopped)})
    assert not (tmp_path / "out").exists()
    _run([*command, "--resume"], environment)
    # In a process of its own: this one has other thresholds of risk than the command.
    _run([sys.executable, "-m", "discreet", "verify", str(tmp_path / "out")], environment)
    assert _n_charges(tmp_path / "out.ledger") == 1
    ages = select(f"SELECT age FROM '{tmp_path}/out/public/data.parquet/*.parquet'").fetchnumpy()["age"]
    assert np.asarray(ages).shape == (N,)


def test_a_killed_synthetic_release_is_run_again_and_pays_no_answer_twice(tmp_path: Path) -> None:
    command, environment = _command("synthetic", tmp_path)
    answered = tmp_path / "answered"
    _kill_when(answered.exists, command, {**environment, "ANSWERED": str(answered)})
    assert not (tmp_path / "out").exists()
    n_paid = _n_charges(tmp_path / "out.ledger")
    assert n_paid > 0
    _run(command, environment)
    _run([sys.executable, "-m", "discreet", "verify", str(tmp_path / "out")], environment)
    whole, _ = _command("synthetic", tmp_path, "other")
    _run([*whole, "--new-ledger"], environment)
    assert n_paid < _n_charges(tmp_path / "out.ledger") == _n_charges(tmp_path / "other.ledger")
