"""A cluster of two workers on this machine, of which one loses its executor while tasks run twice."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet import (
    ApproxDP,
    CoarseRelease,
    Column,
    GaussianRelease,
    Ledger,
    PureDP,
    Schema,
    SyntheticRelease,
)
from discreet.release.spark._tasks import run_task
from discreet.tables.table import ROWS
from tests.servers import cannot_start, no_spark
from tests.workers import select

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet.release import ReleaseMethod
    from discreet.release.spark._job import JobFile

pytestmark = [pytest.mark.stats, pytest.mark.filterwarnings("ignore::FutureWarning")]

PARTS = 8
DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from discreet import Ledger
from discreet.release.spark import PartitionedTable, table
from tests.pipeline.test_spark_cluster import SCHEMA, make_method, wait_for_a_twin
name, master, place = sys.argv[1], sys.argv[2], Path(sys.argv[3])
table.part_batches = lambda n_rows: 1
if name == "twins":
    name, table.run_task = "gaussian", wait_for_a_twin
session = (
    SparkSession.builder.master(master)
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.executor.memory", "512m")
    .config("spark.speculation", "true").config("spark.speculation.interval", "50ms")
    .config("spark.speculation.quantile", "0.1").config("spark.speculation.multiplier", "1.01")
    .config("spark.speculation.minTaskRuntime", "0ms")
    # No task begins before both workers have an executor, so that the one to be killed is there.
    .config("spark.cores.max", "2").config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
    .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "1h")
    .getOrCreate()
)
session.sparkContext.setLogLevel("OFF")
with Ledger.open(place / "one.ledger") as ledger:
    method = make_method(name, ledger)
    if name == "synthetic":
        # It has no jobs whose files would show how far it is.
        for step in ("open_rows", "_make"):
            def marked(*args, _step=step, _run=getattr(method, step), **kwargs):
                (place / _step).touch()
                return _run(*args, **kwargs)
            setattr(method, step, marked)
        (place / "parts").mkdir(exist_ok=True)
        method.publish(session.read.parquet(str(place / "files")), place / "parts" / "one.parquet")
    else:
        parts = PartitionedTable(place / "files", SCHEMA, place / "work", session=session)
        method.publish_parts(parts, place / "parts")
session.stop()
"""
SCHEMA = Schema(
    dataset="cluster",
    columns=[Column("age", type="integer", lower=17, upper=90), Column("income", lower=0, upper=1000)],
)
METHODS: dict[str, Callable[..., ReleaseMethod]] = {
    "gaussian": lambda **common: GaussianRelease(privacy=ApproxDP(epsilon=4, delta=1e-7), **common),
    "coarse": lambda **common: CoarseRelease(privacy=PureDP(epsilon=9), **common),
    "synthetic": lambda **common: SyntheticRelease(privacy=ApproxDP(epsilon=4, delta=1e-7), **common),
}


def make_method(name: str, ledger: Ledger | None = None) -> ReleaseMethod:
    """Return the method of both releases; its seed gives both the same key."""
    return METHODS[name](schema=SCHEMA, random_state=5, ledger=ledger)


def wait_for_a_twin(name: str, file: JobFile, number: int) -> str:
    """Run a task; the first attempt to draw or write part 0 goes on until a twin has stored that part too."""
    result = run_task(name, file, number)
    stem = {"draw": "drawn-0-*", "write": "part-0-*"}.get(name)
    while number == 0 and stem is not None and len(list(Path(file.path).parent.glob(stem))) < 2:
        time.sleep(0.05)
    return result


@contextlib.contextmanager
def _running(environment: dict[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a class of Spark's own jars until the end of the block."""
    command = [f"{environment['SPARK_HOME']}/bin/spark-class", *arguments]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    """Wait until something listens on a port."""
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)


def _executors(worker: int) -> list[int]:
    """Return the processes that a worker has started."""
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == worker:
                children.append(int(stat.parent.name))
    return children


@contextlib.contextmanager
def _cluster(place: Path) -> Iterator[tuple[dict[str, str], str, subprocess.Popen[bytes]]]:
    """Start a master and two workers; yield an environment, the address and the first worker."""
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    import pyspark

    port = _free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_HOME": str(Path(str(pyspark.__file__)).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(place / "local"),
        "SPARK_WORKER_DIR": str(place / "workers"),
    }
    at, address = "org.apache.spark.deploy.{}", f"spark://127.0.0.1:{port}"
    no_page = ["--webui-port", "0"]
    master = [at.format("master.Master"), "--host", "127.0.0.1", "--port", str(port), *no_page]
    # Spark starts no twin on the host of the first attempt: each worker is on a loopback address of its own.
    workers = [
        [at.format("worker.Worker"), address, "--host", host, "--cores", "1", "--memory", "1g", *no_page]
        for host in ("127.0.0.1", "127.0.0.2")
    ]
    with (
        _running(environment, *master),
        _running(environment, *workers[0]) as first,
        _running({**environment, "SPARK_LOCAL_IP": "127.0.0.2"}, *workers[1]),
    ):
        _wait_for(port)
        yield environment, address, first


def _write_rows(folder: Path) -> None:
    """Write the rows of the table to a file."""
    folder.mkdir()
    rows = select(
        "SELECT 17 + i % 74 AS age, (i * 7919 % 1000)::DOUBLE AS income "
        f"FROM range({PARTS * ROWS - 99}) AS rows(i)"
    )
    rows.write_parquet(str(folder / "one.parquet"))


def _release_and_kill(
    name: str, place: Path, cluster: tuple[dict[str, str], str, subprocess.Popen[bytes]], mark: str
) -> int:
    """Run the driver, and kill the executors of a worker once a file is there; return its exit code."""
    environment, address, worker = cluster
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, name, address, str(place)], env=environment)
    with driver:
        while not (place / mark).exists():
            assert driver.poll() is None
            time.sleep(0.02)
        executors = _executors(worker.pid)
        assert executors
        for executor in executors:
            os.kill(executor, signal.SIGKILL)
        return driver.wait()


def _assert_equal_to_one_process(name: str, place: Path) -> None:
    """Assert that the release has the rows and the charges of one process."""
    with Ledger.open(place / "other.ledger") as ledger:
        make_method(name, ledger).publish(place / "files", place / "one.parquet")
        n_charges = len(list(ledger.history()))
    here, there = (
        select(f"SELECT * FROM read_parquet('{path}')").fetchnumpy()
        for path in (f"{place}/parts/*.parquet", place / "one.parquet")
    )
    assert here.keys() == there.keys()
    for cells in here:
        # A missing cell is masked, and what lies below it is no cell.
        first, second = (np.ma.getdata(rows[cells]) for rows in (here, there))
        assert np.array_equal(first, second)
    with Ledger.open(place / "one.ledger") as ledger:
        assert len(list(ledger.history())) == n_charges


@pytest.mark.parametrize("name", ["gaussian", "coarse"])
@pytest.mark.parametrize("stage", ["check.job", "draw.job", "write.job"])
def test_a_lost_executor_changes_no_bit_and_charges_nothing(stage: str, name: str, tmp_path: Path) -> None:
    _write_rows(tmp_path / "files")
    with _cluster(tmp_path) as cluster:
        assert _release_and_kill(name, tmp_path, cluster, f"work/{stage}") == 0
    _assert_equal_to_one_process(name, tmp_path)


def test_twins_of_tasks_run_and_change_no_bit(tmp_path: Path) -> None:
    _write_rows(tmp_path / "files")
    with _cluster(tmp_path) as (environment, address, _):
        command = [sys.executable, "-c", DRIVER, "twins", address, str(tmp_path)]
        subprocess.run(command, env=environment, check=True)
    assert len(list((tmp_path / "parts").iterdir())) == PARTS
    # Of the parts that were written, the files that count were moved away.
    assert len(list((tmp_path / "work").glob("drawn-*"))) > PARTS
    assert list((tmp_path / "work").glob("part-*"))
    _assert_equal_to_one_process("gaussian", tmp_path)


@pytest.mark.parametrize("step", ["open_rows", "_make"], ids=["curating", "asking"])
def test_a_synthetic_release_that_loses_an_executor_is_run_again_for_nothing(
    step: str, tmp_path: Path
) -> None:
    _write_rows(tmp_path / "files")
    with _cluster(tmp_path) as cluster:
        if _release_and_kill("synthetic", tmp_path, cluster, step):
            # The curated rows of the executor are gone: the release ends, and nothing of it can be seen.
            assert not list((tmp_path / "parts").iterdir())
            environment, address, _ = cluster
            again = [sys.executable, "-c", DRIVER, "synthetic", address, str(tmp_path)]
            subprocess.run(again, env=environment, check=True)
    _assert_equal_to_one_process("synthetic", tmp_path)
