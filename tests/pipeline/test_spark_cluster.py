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

from discreet import ApproxDP, Column, GaussianRelease, Ledger, Schema
from discreet.tables.table import ROWS
from tests.servers import cannot_start, no_spark
from tests.workers import select

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.stats, pytest.mark.filterwarnings("ignore::FutureWarning")]

PARTS = 8
DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from discreet import Ledger
from discreet.release.spark import PartitionedTable, table
from tests.pipeline.test_spark_cluster import SCHEMA, make_method
master, place = sys.argv[1], Path(sys.argv[2])
table.part_batches = lambda n_rows: 1
session = (
    SparkSession.builder.master(master)
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.ui.enabled", "false").config("spark.executor.memory", "512m")
    .config("spark.speculation", "true").config("spark.speculation.interval", "50ms")
    .config("spark.speculation.quantile", "0.1").config("spark.speculation.multiplier", "1.01")
    .config("spark.speculation.minTaskRuntime", "0ms")
    .getOrCreate()
)
parts = PartitionedTable(place / "files", SCHEMA, place / "work", session=session)
with Ledger.open(place / "one.ledger") as ledger:
    make_method(ledger).publish_parts(parts, place / "parts")
session.stop()
"""
SCHEMA = Schema(
    dataset="cluster",
    columns=[Column("age", type="integer", lower=17, upper=90), Column("income", lower=0, upper=1000)],
)


def make_method(ledger: Ledger | None = None) -> GaussianRelease:
    """Return the method of both releases; its seed gives both the same key."""
    return GaussianRelease(
        privacy=ApproxDP(epsilon=4, delta=1e-7), schema=SCHEMA, random_state=5, ledger=ledger
    )


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


@pytest.mark.parametrize("stage", ["check.job", "draw.job", "write.job"])
def test_a_lost_executor_changes_no_bit_and_charges_nothing(stage: str, tmp_path: Path) -> None:
    why = no_spark()
    if why is not None:
        cannot_start("Spark", why)
    import pyspark

    (tmp_path / "files").mkdir()
    rows = select(
        "SELECT 17 + i % 74 AS age, (i * 7919 % 1000)::DOUBLE AS income "
        f"FROM range({PARTS * ROWS - 99}) AS rows(i)"
    )
    rows.write_parquet(str(tmp_path / "files" / "one.parquet"))
    port = _free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([*sys.path, str(Path.cwd())]),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_HOME": str(Path(str(pyspark.__file__)).parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "SPARK_WORKER_DIR": str(tmp_path / "workers"),
    }
    at, address = "org.apache.spark.deploy.{}", f"spark://127.0.0.1:{port}"
    master = [at.format("master.Master"), "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    worker = [at.format("worker.Worker"), address, "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
    worker += ["--webui-port", "0"]
    with (
        _running(environment, *master),
        _running(environment, *worker) as first,
        _running(environment, *worker),
    ):
        _wait_for(port)
        driver = subprocess.Popen([sys.executable, "-c", DRIVER, address, str(tmp_path)], env=environment)
        with driver:
            while not (tmp_path / "work" / stage).exists():
                assert driver.poll() is None
                time.sleep(0.02)
            for executor in _executors(first.pid):
                os.kill(executor, signal.SIGKILL)
            assert driver.wait() == 0
    make_method().publish(tmp_path / "files", tmp_path / "one.parquet")
    here, there = (
        select(f"SELECT * FROM read_parquet('{path}')").fetchnumpy()
        for path in (f"{tmp_path}/parts/*.parquet", tmp_path / "one.parquet")
    )
    assert all(np.array_equal(np.asarray(here[name]), np.asarray(there[name])) for name in here)
    assert len(here["age"]) == PARTS * ROWS - 99
    with Ledger.open(tmp_path / "one.ledger") as ledger:
        assert len(list(ledger.history())) == 1
