"""Registration and questions beside raw SQL: DuckDB at 10^7 and 10^8 rows of Parquet, in processor seconds.

Made-up rows: a whole number, three floats, lists of 20 and 2 words and of 2 numbers, and an id. The table of
10^8 rows is the files of the smaller one linked ten times, so that it measures computing and not disks.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import save

from discreet.privacy import GaussianDP
from discreet.query import Database
from discreet.schema import Column, Schema
from discreet.tables.duckdb import connect, literal

if TYPE_CHECKING:
    from collections.abc import Callable

FILES, ROWS_OF_A_FILE, ROUNDS = 20, 500_000, 5
RELEASED = "age, income, height, score, job, owner, sex"
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=17, upper=90),
        Column("income", lower=0, upper=100_000),
        Column("height", lower=1.5, upper=2),
        Column("score", lower=0, upper=1000),
        Column("job", values=tuple(f"word{i}" for i in range(20))),
        Column("owner", values=("no", "yes")),
        Column("sex", values=(0, 1)),
    ]
)
QUESTIONS = {
    "count where age > 40": "SELECT count(*) FROM {} WHERE age > 40",
    "count where income > 50000 and sex = 1": "SELECT count(*) FROM {} WHERE income > 50000 AND sex = 1",
    "count where job = 'word3'": "SELECT count(*) FROM {} WHERE job = 'word3'",
    "count by job": "SELECT job, count(*) FROM {} GROUP BY job",
    "count by job, owner": "SELECT job, owner, count(*) FROM {} GROUP BY job, owner",
    "sum(income)": "SELECT sum(income) FROM {}",
    "sum(score) where age > 40": "SELECT sum(score) FROM {} WHERE age > 40",
    "mean(height)": "SELECT avg(height) FROM {}",
    "mean(income) by job": "SELECT job, avg(income) FROM {} GROUP BY job",
    "sum(age) by sex": "SELECT sex, sum(age) FROM {} GROUP BY sex",
}
ROW = """SELECT CAST(17 + floor(74 * random()) AS INTEGER) AS age, 100000 * random() AS income,
    1.5 + random() / 2 AS height, 1000 * random() * random() AS score,
    'word' || CAST(floor(20 * random()) AS INTEGER) AS job,
    CASE WHEN random() < .5 THEN 'no' ELSE 'yes' END AS owner,
    CAST(floor(2 * random()) AS INTEGER) AS sex, CAST(floor(4000000 * random()) AS BIGINT) AS who"""


def write_files(folder: Path) -> None:
    """Write the smaller table."""
    connection = connect()
    for k in range(FILES):
        file = literal(str(folder / f"part-{k:02d}.parquet"))
        connection.execute(f"COPY ({ROW} FROM range({ROWS_OF_A_FILE})) TO {file} (ROW_GROUP_SIZE 100000)")


def link_files(folder: Path, into: Path, times: int) -> None:
    """Link the files of a table several times into another folder."""
    into.mkdir()
    for k in range(times):
        for file in folder.iterdir():
            os.link(file, into / f"{k}-{file.name}")


def processor_seconds(act: Callable[[], object]) -> float:
    """Return what one call takes, of all threads."""
    start = time.process_time()
    act()
    return time.process_time() - start


def compare(folder: Path) -> dict[str, Any]:
    """Return the seconds of a registration and of ten questions, and of DuckDB alone, taken in turn."""
    files = f"read_parquet({literal(str(folder / '*.parquet'))})"
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        bare = connect()
        bare.execute(f"ATTACH {literal(f'{place}/raw.duckdb')} AS raw (RECOVERY_MODE no_wal_writes)")
        create = f"CREATE TABLE raw.t AS SELECT {RELEASED} FROM {files}"  # noqa: S608 - names are ours
        copied = processor_seconds(lambda: bare.execute(create))
        opened: list[Database] = []
        registered = processor_seconds(lambda: opened.append(Database(folder, schema=SCHEMA)))
        (db,) = opened
        questions = {}
        for question, raw in QUESTIONS.items():
            taken: dict[str, list[float]] = {"ours": [], "raw table": [], "raw Parquet": []}
            for k in range(ROUNDS):
                promise = GaussianDP(
                    mu=1 + k / 100
                )  # another question each time: a repeat is not summed again
                taken["ours"].append(processor_seconds(lambda q=question, p=promise: db.query(q, privacy=p)))  # type: ignore[misc]
                for name, table in (("raw table", "raw.t"), ("raw Parquet", files)):
                    sql = raw.format(table)
                    taken[name].append(processor_seconds(lambda sql=sql: bare.execute(sql).fetchall()))  # type: ignore[misc]
            questions[question] = {name: round(statistics.median(many), 4) for name, many in taken.items()}
        db.close()
        bare.close()
    return {"register": registered, "CREATE TABLE AS": copied, "questions": questions}


def main() -> None:
    """Measure both tables; the second only if asked for."""
    result = {}
    with tempfile.TemporaryDirectory() as made:
        small = Path(made) / "small"
        small.mkdir()
        write_files(small)
        result["10^7 rows"] = compare(small)
        if "--large" in sys.argv:
            link_files(small, Path(made) / "large", 10)
            result["10^8 rows"] = compare(Path(made) / "large")
    save("engines", result)


if __name__ == "__main__":
    main()
