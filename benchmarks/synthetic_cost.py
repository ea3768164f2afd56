"""Time and memory of synthetic tables: CPU seconds, passes, and the most memory that a process has held.

    python benchmarks/synthetic_cost.py

Every case is measured in a process of its own, whose largest resident set is what it took, libraries
included: registration of a Parquet file in DuckDB, questions, model, and writing of the made-up rows to
another. Beside it the CPU seconds of all tables of two columns by SQL, with columns of 64-bit integers or of
texts. Figures are written to ``results/synthetic.json``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import synthetic

from discreet import ApproxDP, Column, Database, Schema
from discreet.noise import Stream
from discreet.release.synthetic import SyntheticRelease

CASES = (
    (10**5, 20, "tree"),
    (10**6, 20, "tree"),
    (10**6, 20, "tree, texts"),
    (10**6, 20, "all pairs"),
    (10**6, 30, "all pairs"),
    (10**6, 60, "tree"),
    (10**5, 60, "tree"),
    (10**7, 14, "tree"),
)
TEXTS = tuple(f"level {i}" for i in range(12))
TABLES = tuple((name, epsilon) for name in ("adult", "splice") for epsilon in (1.0, 10.0))


def declare(columns: int, kind: str) -> Schema:
    """Return the schema of columns of twelve values each, the last of which is a target of two."""
    names = [f"c{i}" for i in range(columns)]
    declared = [Column(name, type="integer", lower=0, upper=11) for name in names[:-1]]
    if "texts" in kind:
        declared = [Column(name, values=TEXTS, closed=True) for name in names[:-1]]
    return Schema(columns=[*declared, Column(names[-1], values=(0, 1), role="target")])


def make_rows(path: Path, n: int, columns: int, kind: str) -> None:
    """Write rows of which each column follows one before it, or all follow one that is not there.

    Parameters
    ----------
    path : Path
        Parquet file that is written.
    n, columns : int
        Number of rows and of columns.
    kind : {"tree", "tree, texts", "all pairs"}
        What columns follow, and whether values are words; with "all pairs" every pair is measured.
    """
    draws = Stream.from_seed(1).generator()
    hidden = draws.integers(0, 12, n)
    rows: dict[str, Any] = {}
    latent = kind == "all pairs"
    for i in range(columns):
        near = hidden if latent or i < 4 else rows[f"c{i - 1 - i % 3}"]
        rows[f"c{i}"] = np.where(draws.random(n) < (0.5 if latent else 0.7), near, draws.integers(0, 12, n))
    target = f"c{columns - 1}"
    rows[target] = (rows[target] > 6).astype(np.int64)
    if "texts" in kind:
        rows = {name: v if name == target else np.array(TEXTS, object)[v] for name, v in rows.items()}
    pd.DataFrame(rows).to_parquet(path)


def largest_memory() -> float:
    """Return the most gigabytes that this process has held; not those of the process that started it."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 2**20


def measure_release(path: Path, schema: Schema, epsilon: float, cells: Any = None) -> dict[str, float]:
    """Return what a release from one file to another takes in this process."""
    method = SyntheticRelease(ApproxDP(epsilon=epsilon, delta=1e-6), schema=schema, cells=cells)
    started = time.process_time()
    with Database(path, schema=schema, random_state=1) as database:
        registered = time.process_time()
        method.publish_database(database, path.with_name("made.parquet"))
    return {
        "registration cpu": registered - started,
        "cpu": time.process_time() - registered,
        "passes": len(method.receipts_),
        "further": len(method.model_["further"]),
        "gb": largest_memory(),
    }


def measure_sql(path: Path) -> float:
    """Return the CPU seconds of all tables of two columns, one after the other, in a registered table."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("CREATE TABLE t AS SELECT * FROM read_parquet(?)", [str(path)])
        names = [row[0] for row in connection.execute("DESCRIBE t").fetchall()]
        started = time.process_time()
        for pair in itertools.combinations(names, 2):
            connection.execute(f"SELECT {', '.join(pair)}, count(*) FROM t GROUP BY ALL").fetchall()  # noqa: S608
        return time.process_time() - started


def run_case(arguments: list[str]) -> dict[str, float]:
    """Return the figures of one case, measured in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def main() -> None:
    """Measure all cases, or print the figures of the one that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--made", nargs=3, metavar=("FILE", "COLUMNS", "KIND"))
    parser.add_argument("--table", nargs=2, metavar=("NAME", "EPSILON"))
    options = parser.parse_args()
    if options.made:
        path, columns, kind = options.made
        print(json.dumps(measure_release(Path(path), declare(int(columns), kind), 1.0)))
        return
    with tempfile.TemporaryDirectory() as room:
        path = Path(room) / "rows.parquet"
        if options.table:
            case = synthetic.CASES[options.table[0]]()
            case.split(0)[0].to_parquet(path)
            print(json.dumps(measure_release(path, case.schema, float(options.table[1]), case.cells)))
            return
        costs = {f"{name}, epsilon {e:g}": run_case(["--table", name, str(e)]) for name, e in TABLES}
        for n, columns, kind in CASES:
            make_rows(path, n, columns, kind)
            what = f"{n:,} rows, {columns} columns, {kind}"
            costs[what] = run_case(["--made", str(path), str(columns), kind]) | {"sql": measure_sql(path)}
            print(f"{what}: " + ", ".join(f"{k} {v:.2f}" for k, v in costs[what].items()), flush=True)
            path.with_name("made.parquet").unlink()
    synthetic.record("cost", costs)


if __name__ == "__main__":
    main()
