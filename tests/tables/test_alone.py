"""What must hold of a whole process: no optional package, bounded memory, nothing on disk."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from discreet.tables.duckdb import connect, open_cursor

if TYPE_CHECKING:
    from pathlib import Path

WITHOUT_FRAMES = """
import sys
for name in ("pyarrow", "pandas", "polars", "psycopg"):
    sys.modules[name] = None
import numpy as np
from discreet.errors import DataError
from discreet.schema import Column, Schema
from discreet.tables import open_table, write_table
folder = sys.argv[1]
schema = Schema(columns=[Column("x", lower=0, upper=9), Column("c", values=("a", "b"))])
rows = {"x": np.array([1.0, 2.0]), "c": np.array([0, 2])}
for name in ("t.parquet", "t.csv", "t.csv.gz", "t.duckdb?table=t"):
    write_table(f"{folder}/{name}", schema, [rows])
    with open_table(f"{folder}/{name}") as table:
        (batch,) = table.batches(schema)
        assert batch["x"].tolist() == [1.0, 2.0] and batch["c"].tolist() == [0, 2]
with open_table({"x": ["1", "bad"], "c": ["a", "b"]}) as table:
    try:
        list(table.batches(schema))
    except DataError as problem:
        print(problem.line)
table = open_table(f"{folder}/t.parquet")
half_read = table.batches(schema, rows=1)
next(half_read)
"""

POLARS_WITHOUT_ARROW = """
import sys
sys.modules["pyarrow"] = None
import polars as pl
import pandas as pd
from discreet.schema import Column, Schema
from discreet.tables import open_table
schema = Schema(columns=[Column("x", lower=0, upper=9), Column("c", values=("a", "b"))])
for frame in (pl.DataFrame, pd.DataFrame):
    with open_table(frame({"x": [1, 2], "c": ["a", "q"]})) as table:
        (batch,) = table.batches(schema)
        print(batch["x"].tolist(), batch["c"].tolist())
"""

MEMORY = """
import sys
import duckdb
from tests.tables.people import peak_memory
from discreet.schema import Column, Schema
from discreet.tables import open_table, write_table
folder, n = sys.argv[1], int(sys.argv[2])
columns = ", ".join(f"hash(i + {k}) % 1000 / 7 AS x{k}" for k in range(8))
connection = duckdb.connect(config={"threads": 1, "memory_limit": "200MB"})
connection.execute("SET enable_progress_bar = false")
connection.execute(
    f"COPY (SELECT {columns}, 'level' || hash(i) % 9 AS c FROM range({n}) r(i)) "
    f"TO '{folder}/t.parquet'"
)
connection.close()
schema = Schema(
    columns=[
        *(Column(f"x{k}", lower=0, upper=99) for k in range(8)),
        Column("c", values=("level1", "level2")),
    ]
)
with open_table(f"{folder}/t.parquet") as table:
    assert write_table(f"{folder}/out.parquet", schema, table.batches(schema), replace=True) == n
print(peak_memory())
"""


def run(program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
def test_nothing_but_the_core_packages_is_needed(tmp_path: Path) -> None:
    assert run(WITHOUT_FRAMES, tmp_path) == "2\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "t.csv",
        "t.csv.gz",
        "t.duckdb",
        "t.parquet",
    ]


@pytest.mark.slow
def test_frames_of_polars_and_pandas_need_no_pyarrow() -> None:
    assert run(POLARS_WITHOUT_ARROW) == "[1.0, 2.0] [0, 2]\n" * 2


@pytest.mark.slow
def test_reading_and_writing_at_once_need_no_more_memory_for_a_longer_table(tmp_path: Path) -> None:
    # Below that the engine has not yet filled the buffers that it is allowed. How much it fills depends on
    # how far the writer is behind, by 150 MB on a busy machine; a longer table makes that small.
    short, long = 2_500_000, 10_000_000
    grown = int(run(MEMORY, tmp_path, long)) - int(run(MEMORY, tmp_path, short))
    assert grown < 300  # MB; the rows between would take 510


@pytest.mark.parametrize(
    ("setting", "wanted"),
    [
        ("autoinstall_known_extensions", "false"),
        ("autoload_known_extensions", "false"),
        ("allow_community_extensions", "false"),
        ("enable_progress_bar", "false"),
        ("preserve_insertion_order", "true"),
        ("disabled_optimizers", "in_clause"),
        ("memory_limit", "488.2 mib"),
        ("temp_directory", ""),
        ("TimeZone", "utc"),
    ],
)
def test_the_engine_is_bounded_offline_silent_and_in_order(setting: str, wanted: str) -> None:
    with connect() as connection:
        for each in (connection, open_cursor(connection)):
            ((found,),) = each.execute(f"SELECT current_setting('{setting}')").fetchall()
            assert str(found).lower() == wanted


def test_the_engine_spills_no_row_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import duckdb

    monkeypatch.chdir(tmp_path)
    with connect() as connection, pytest.raises(duckdb.Error):
        connection.execute(
            "CREATE TABLE t AS SELECT hash(i), hash(i + 1), hash(i + 2) FROM range(60000000) r(i)"
        )
    assert list(tmp_path.iterdir()) == []
