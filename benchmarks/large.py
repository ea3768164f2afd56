"""One machine at 10^8 rows of four columns in 100 Parquet files: `publish`, `verify`, ten questions, memory.

Processor seconds and peak memory of one process each, with raw SQL beside the questions, taken in turn. The
files take 0.4 GB, the release and its temporary files some 10 GB. To change the number of rows:
``python benchmarks/large.py 1000000``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import peak_memory_mb, save

from discreet import ApproxDP, Database, GaussianDP, Schema, publish, verify
from discreet.schema import Column
from discreet.tables.duckdb import connect, literal

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, FILES, ROUNDS = 100_000_000, 100, 3
SCHEMA = Schema(
    dataset="benchmark",
    columns=[
        Column("age", type="integer", lower=17, upper=90, measure="years"),
        Column("score", lower=0, upper=100, measure="points"),
        Column("grade", values=(1, 2, 3, 4, 5)),
        Column("owner", values=("no", "yes")),
    ],
)
QUESTIONS = {
    "count where age > 40": "SELECT count(*) FROM {} WHERE age > 40",
    "count where score > 50 and grade = 1": "SELECT count(*) FROM {} WHERE score > 50 AND grade = 1",
    "count where owner = 'yes'": "SELECT count(*) FROM {} WHERE owner = 'yes'",
    "count by grade": "SELECT grade, count(*) FROM {} GROUP BY grade",
    "count by grade, owner": "SELECT grade, owner, count(*) FROM {} GROUP BY grade, owner",
    "sum(score)": "SELECT sum(score) FROM {}",
    "sum(score) where age > 40": "SELECT sum(score) FROM {} WHERE age > 40",
    "mean(age)": "SELECT avg(age) FROM {}",  # of another column than the sum, which it would use again
    "mean(score) by grade": "SELECT grade, avg(score) FROM {} GROUP BY grade",
    "sum(age) by owner": "SELECT owner, sum(age) FROM {} GROUP BY owner",
}


def write_files(folder: Path, n_rows: int) -> None:
    """Write made-up rows."""
    folder.mkdir()
    connection = connect()
    for k in range(FILES):
        row = (
            "SELECT CAST(17 + floor(74 * random()) AS SMALLINT) AS age, round(100 * random(), 2) AS score, "
            "CAST(1 + floor(5 * random()) AS TINYINT) AS grade, "
            "CASE WHEN random() < .5 THEN 'no' ELSE 'yes' END AS owner"
        )
        file = literal(str(folder / f"part-{k:03d}.parquet"))
        connection.execute(f"COPY ({row} FROM range({n_rows // FILES})) TO {file}")


def processor_seconds(act: Callable[[], object]) -> float:
    """Return what one call takes, of all threads."""
    start = time.process_time()
    act()
    return time.process_time() - start


def ask(folder: Path) -> dict[str, Any]:
    """Return the seconds of a registration, of a second start, and of ten questions beside raw SQL."""
    files = f"read_parquet({literal(str(folder / '*.parquet'))})"
    place, bare, opened = folder.parent, connect(), list[Database]()
    bare.execute(f"ATTACH {literal(f'{place}/raw.duckdb')} AS raw (RECOVERY_MODE no_wal_writes)")
    result: dict[str, Any] = {
        "CREATE TABLE AS": processor_seconds(lambda: bare.execute(f"CREATE TABLE raw.t AS FROM {files}"))
    }
    for name in ("register", "second start"):
        result[name] = processor_seconds(
            lambda: opened.append(
                Database(folder, schema=SCHEMA, ledger=place / "l.ledger", keep=place / "kept")
            )
        )
        if len(opened) < 2:
            opened[0].close()
    db, questions = opened[-1], {}
    for question, raw in QUESTIONS.items():
        taken: dict[str, list[float]] = {"ours": [], "raw table": [], "raw Parquet": []}
        for k in range(ROUNDS):
            promise = GaussianDP(mu=1 + k / 100)  # another question each time
            taken["ours"].append(processor_seconds(lambda q=question, p=promise: db.query(q, privacy=p)))  # type: ignore[misc]
            for name, table in (("raw table", "raw.t"), ("raw Parquet", files)):
                sql = raw.format(table)
                taken[name].append(processor_seconds(lambda sql=sql: bare.execute(sql).fetchall()))  # type: ignore[misc]
        questions[question] = {name: round(statistics.median(many), 4) for name, many in taken.items()}
    return {**result, "questions": questions}


def release(folder: Path) -> dict[str, Any]:
    """Release the table with everything around it, and return the seconds."""
    promise = ApproxDP(epsilon=8, delta=1e-9)
    out = folder.parent / "release"
    return {
        "release": processor_seconds(
            lambda: publish(
                folder,
                schema=SCHEMA,
                out=out,
                method="gaussian",
                privacy=promise,
                ledger=False,
            )
        )
    }


def check(folder: Path) -> dict[str, Any]:
    """Verify the release, and return the seconds and whether it holds."""
    found: list[bool] = []
    taken = processor_seconds(lambda: found.append(verify(folder.parent / "release").ok))
    return {"verify": taken, "ok": found[0]}


STEPS = {"ask": ask, "release": release, "check": check}


def main() -> None:
    """Run each step in a process of its own, since peak memory is that of a whole process."""
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "table"
        write_files(folder, n_rows)
        for name in STEPS:
            text = subprocess.run(
                [sys.executable, __file__, name, str(folder)], stdout=subprocess.PIPE, check=True, text=True
            ).stdout
            result[name] = json.loads(text.splitlines()[-1])
            print(name, result[name], flush=True)
    save("large", {f"{n_rows} rows": result})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        figures = STEPS[sys.argv[1]](Path(sys.argv[2]))
        figures["peak MB"] = round(peak_memory_mb())
        print(json.dumps(figures))
    else:
        main()
