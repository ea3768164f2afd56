"""Speed of reading into encoded batches, against DuckDB's bare scan; memory of a long pass."""

from __future__ import annotations

import datetime
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import duckdb
from measure import interleaved, save

from discreet.schema import Column, Schema
from discreet.tables import open_table, write_table

ROWS = 1_000_000
LONG = 20_000_000

QUERY = """
    SELECT hash(i) % 1000003 / 7.0 AS a, (hash(i + 1) % 90)::INTEGER AS b, sin(i) AS c,
           cos(i) * 1e5 AS d, (hash(i + 2) % 1000)::INTEGER AS e, 'level' || hash(i) % 8 AS f,
           'city' || hash(i) % 50 AS g, CASE WHEN i % 17 > 0 THEN 'x' || i % 3 END AS h,
           DATE '2000-01-01' + (hash(i) % 9000)::INTEGER AS k, hash(i) % 2 = 0 AS l
    FROM range({rows}) r(i)
"""
SCHEMA = Schema(
    columns=[
        Column("a", lower=0, upper=100_000),
        Column("b", type="integer", lower=0, upper=89),
        Column("c", lower=-1, upper=1),
        Column("d", lower=-1e5, upper=1e5),
        Column("e", type="integer", lower=0, upper=999),
        Column("f", values=tuple(f"level{i}" for i in range(8))),
        Column("g", values=tuple(f"city{i}" for i in range(40))),
        Column("h", values=("x0", "x1", "x2"), required=False),
        Column("k", lower=datetime.date(2000, 1, 1), upper=datetime.date(2024, 12, 31)),
        Column("l", values=(True, False)),
    ]
)


def _read(path: Path) -> int:
    with open_table(path) as table:
        return sum(batch.n_rows for batch in table.batches(SCHEMA))


def _scan(path: Path) -> object:
    """Have DuckDB look at every cell and keep none."""
    largest = ", ".join(f"max({column.name})" for column in SCHEMA.columns)
    with duckdb.connect(config={"threads": 2}) as connection:
        return connection.execute(f"SELECT {largest} FROM '{path}'").fetchall()  # noqa: S608


def _fetch(path: Path) -> object:
    """Have DuckDB hand over every cell, as numbers and strings, in one piece."""
    with duckdb.connect(config={"threads": 2}) as connection:
        return connection.execute(f"FROM '{path}'").fetchnumpy()


def _peak_mb() -> float:
    """Return the most memory this program has held; ``ru_maxrss`` would count its parent's too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _long_pass(path: Path, connection: Any) -> None:
    """Read a long table; report peak memory after a tenth and at the end."""
    at, tenth = 0, 0.0
    with open_table(path) as table:
        for batch in table.batches(SCHEMA):
            at += batch.n_rows
            if not tenth and at >= LONG // 10:
                tenth = _peak_mb()
    connection.send((at, tenth, _peak_mb()))


def _peak_of_long_pass(folder: Path) -> tuple[int, float, float]:
    path = folder / "long.parquet"
    with duckdb.connect(config={"threads": 2}) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"COPY ({QUERY.format(rows=LONG)}) TO '{path}'")
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_long_pass, args=(path, sender))
    process.start()
    found: tuple[int, float, float] = receiver.recv()
    process.join()
    return found


def main() -> dict[str, Any]:
    """Measure, print and save."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = {"parquet": folder / "t.parquet", "csv": folder / "t.csv"}
        with duckdb.connect() as connection:
            for path in files.values():
                connection.execute(f"COPY ({QUERY.format(rows=ROWS)}) TO '{path}'")
        tasks: dict[str, Any] = {}
        for kind, path in files.items():
            tasks[f"{kind}: encoded batches"] = lambda path=path: _read(path)
            tasks[f"{kind}: DuckDB scan"] = lambda path=path: _scan(path)
            tasks[f"{kind}: DuckDB fetchnumpy"] = lambda path=path: _fetch(path)
        with open_table(files["parquet"]) as table:
            batches = [dict(batch) for batch in table.batches(SCHEMA)]
        for kind in ("parquet", "csv"):
            target = folder / f"out.{kind}"
            tasks[f"{kind}: write"] = lambda target=target: write_table(target, SCHEMA, batches, replace=True)
        seconds = interleaved(tasks, rounds=3)
        rows, tenth, peak = _peak_of_long_pass(folder)
    ratios = {
        f"{kind}: encoded batches / {other}": round(
            seconds[f"{kind}: encoded batches"] / seconds[f"{kind}: {other}"], 3
        )
        for kind in files
        for other in ("DuckDB scan", "DuckDB fetchnumpy")
    }
    result = {
        "rows": ROWS,
        "columns": len(SCHEMA.columns),
        "cpu_seconds": {task: round(value, 3) for task, value in seconds.items()},
        "ratios": ratios,
        "long_pass": {
            "rows": rows,
            "peak_mb_after_a_tenth": round(tenth),
            "peak_mb": round(peak),
        },
    }
    for task, value in seconds.items():
        print(f"{task:32} {value:6.2f} s of processor time for {ROWS:,} rows")
    for label, ratio in ratios.items():
        print(f"{label:48} {ratio:5.2f}")
    print(f"{rows:,} rows of Parquet: {tenth:.0f} MB after a tenth, {peak:.0f} MB at the end")
    save("tables", result)
    return result


if __name__ == "__main__":
    main()
