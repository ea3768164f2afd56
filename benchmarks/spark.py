"""Processor time of releases on Spark beside a plain Spark copy of the same table, measured in turn.

The session is ``local[2]``. Processor time is that of the driver, of Java and of all Python workers. Releases
on Spark read every cell twice: before the charge, to refuse cells that do not fit, and to draw. A synthetic
release curates the rows once, and then counts them in some passes. To change the number of rows and of
rounds: ``python benchmarks/spark.py 1000000 1``.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from measure import save
from pyspark.sql import SparkSession

from discreet import ApproxDP, Column, Database, PureDP, Schema
from discreet.release import METHODS, SyntheticRelease
from discreet.release.spark import PartitionedTable
from discreet.tables.spark import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.privacy import Promise

ROWS, ROUNDS, FILES = 10_000_000, 3, 10
BARS = {"gaussian": 3.0, "coarse": 3.0, "staged": 3.5}  # times a plain copy
PROMISES: dict[str, Promise] = {"gaussian": ApproxDP(epsilon=8, delta=1e-6), "coarse": PureDP(epsilon=8)}
SYNTHETIC = ApproxDP(epsilon=1, delta=1e-9)
SCHEMA = Schema(
    dataset="benchmark",
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("tenure", type="integer", lower=0, upper=50),
        Column("income", lower=0, upper=200_000, grid=1000),
        Column("hours", lower=0, upper=100, grid=1),
        Column("score", lower=-5, upper=5, grid=0.1),
        Column("share", lower=0, upper=1, grid=0.01),
        Column("word", values=tuple(f"w{i:02d}" for i in range(20))),
        Column("owner", values=("no", "yes")),
        Column("grade", values=(1, 2, 3, 4, 5)),
        Column("color", values=("red", "green", "blue")),
    ],
)


def _write_table(folder: Path, n_rows: int) -> Path:
    """Write made-up rows of ten columns as ten Parquet files."""
    folder.mkdir()
    with closing(duckdb.connect()) as connection:
        connection.execute("SELECT setseed(0.3)")
        for i in range(FILES):
            connection.execute(
                "COPY (SELECT (17 + random() * 73)::INTEGER AS age, (random() * 50)::INTEGER AS tenure, "  # noqa: S608 - ours
                "random() * 200000 AS income, random() * 100 AS hours, random() * 10 - 5 AS score, "
                "random() AS share, printf('w%02d', (random() * 19)::INTEGER) AS word, "
                "CASE WHEN random() < 0.5 THEN 'no' ELSE 'yes' END AS owner, "
                "1 + (random() * 4)::INTEGER AS grade, "
                "['red', 'green', 'blue'][1 + floor(random() * 2.999)::INTEGER] AS color "
                f"FROM range({n_rows // FILES})) TO '{folder}/part-{i}.parquet' (FORMAT parquet)"
            )
    return folder


class _TreeClock:
    """Processor seconds of this process and of all that it started, sampled so that ended ones count too.

    Spark ends idle Python workers, and nobody collects their times. What the sampling takes is left out: on a
    machine with many processes it is a tenth of a release.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, str], int] = {}
        self._own = 0.0
        self._lock = threading.Lock()
        threading.Thread(target=self._sample, daemon=True).start()

    def _sample(self) -> None:
        while True:
            self.seconds()
            self._own = time.thread_time()
            time.sleep(0.1)

    def seconds(self) -> float:
        """Return the seconds so far."""
        parents: dict[int, int] = {}
        used: dict[int, tuple[str, int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            pid = int(stat.parent.name)
            parents[pid], used[pid] = int(fields[1]), (fields[19], int(fields[11]) + int(fields[12]))
        ours = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        with self._lock:
            for pid in ours & set(used):
                started, ticks = used[pid]
                self._seen[pid, started] = max(ticks, self._seen.get((pid, started), 0))
            return sum(self._seen.values()) / os.sysconf("SC_CLK_TCK") - self._own


def main() -> None:
    """Measure all tasks in turn, and save the medians and their ratios to the plain copy."""
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    os.environ |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    session = (
        SparkSession.builder.master("local[2]")
        .config(map=SETTINGS)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1536m")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    clock = _TreeClock()
    with tempfile.TemporaryDirectory(dir=os.environ.get("DISCREET_BENCH")) as room:
        place = Path(room)
        table, small = _write_table(place / "table", n_rows), _write_table(place / "small", n_rows // 10)

        def copy(source: Path) -> None:
            session.read.parquet(str(source)).write.mode("overwrite").parquet(str(place / "copy"))

        def release(method: str, source: Any) -> None:
            made = METHODS[method](privacy=PROMISES[method], schema=SCHEMA)
            shutil.rmtree(place / "out", ignore_errors=True)
            with closing(PartitionedTable(source, SCHEMA, place / "work", session=session)) as parts:
                made.publish_parts(parts, place / "out")

        def publish(source: Path) -> None:
            made = METHODS["gaussian"](privacy=PROMISES["gaussian"], schema=SCHEMA)
            made.publish(source, place / "one.parquet", replace=True)

        def synthesize(source: Path) -> None:
            shutil.rmtree(place / "made.parquet", ignore_errors=True)
            with Database(session.read.parquet(str(source)), schema=SCHEMA) as asked:
                made = SyntheticRelease(privacy=SYNTHETIC, schema=SCHEMA)
                made.publish_database(asked, place / "made.parquet", in_parts=True)

        def synthesize_here(source: Path) -> None:
            made = SyntheticRelease(privacy=SYNTHETIC, schema=SCHEMA)
            made.publish(source, place / "one.parquet", replace=True)

        tasks: dict[str, Callable[[Path], None]] = {
            "copy": copy,
            "gaussian": lambda source: release("gaussian", source),
            "coarse": lambda source: release("coarse", source),
            "staged": lambda source: release("gaussian", session.read.parquet(str(source))),
            "one process": publish,
            "synthetic": synthesize,
            "synthetic, one process": synthesize_here,
        }
        for task in tasks.values():
            task(small)
        seconds: dict[str, list[float]] = {name: [] for name in tasks}
        for _ in range(rounds):
            for name, task in tasks.items():
                start = clock.seconds()
                task(table)
                seconds[name].append(clock.seconds() - start)
                print(name, round(seconds[name][-1], 2), flush=True)
            _save_ratios(n_rows, seconds)
        session.stop()


def _save_ratios(n_rows: int, seconds: dict[str, list[float]]) -> None:
    """Save the seconds of the rounds so far, and the ratios of their medians to that of the copy."""
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    save(
        "spark",
        {
            "rows": n_rows,
            "columns": len(SCHEMA.columns),
            "processor_seconds": {
                name: [round(one, 2) for one in values] for name, values in seconds.items()
            },
            "times_a_copy": {name: round(value / middle["copy"], 2) for name, value in middle.items()},
            "bars": BARS,
        },
    )


if __name__ == "__main__":
    main()
