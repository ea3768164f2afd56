"""One small table, and every place it can be read from."""

from __future__ import annotations

import contextlib
import datetime
import gzip
import os
import pwd
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray

KINDS = (
    "csv", "tsv", "csv.gz", "semicolons", "parquet", "duckdb", "relation", "pandas", "polars",
    "pyarrow", "arrays", "postgres",
)  # fmt: skip

SCHEMA = Schema(
    columns=[
        Column("weight", lower=-5.0, upper=5.0, required=False),
        Column("age", type="integer", lower=0, upper=120, required=False),
        Column(
            "born",
            lower=datetime.date(1920, 1, 1),
            upper=datetime.date(2020, 1, 1),
            required=False,
        ),
        Column("job", values=("clerk", "nurse"), required=False),
        Column("children", values=(0, 1, 2)),
        Column("owner", values=(True, False)),
        Column("person", role="id"),
        Column("notes", role="drop"),
    ],
    id_column="person",
    max_rows_per_unit=2,
)

ROWS = """
    SELECT * FROM (VALUES
        ('p1', 1.5::DOUBLE,         17::BIGINT, DATE '1950-01-11', 'clerk', 0::BIGINT, true,  'a', 1),
        ('p2', '-inf'::DOUBLE,      NULL,       DATE '1900-01-01', 'boss',  1,         false, 'b', 2),
        ('p1', NULL,                500,        NULL,              NULL,    2,         true,  'c', 3),
        ('p3', 0.1::DOUBLE + 0.2,   -3,         DATE '2024-02-29', 'nurse', 0,         false, 'd', 4)
    ) AS t(person, weight, age, born, job, children, owner, notes, undeclared)
"""

_NAN = float("nan")
ENCODED: dict[str, AnyArray] = {
    "weight": np.array([1.5, -5.0, _NAN, 0.1 + 0.2]),
    "age": np.array([17.0, _NAN, 120.0, 0.0]),
    "born": np.array([10968.0, 0.0, _NAN, 36525.0]),
    "job": np.array([0, 2, 3, 1], np.int32),
    "children": np.array([0, 1, 2, 0], np.int32),
    "owner": np.array([0, 1, 0, 1], np.int32),
}


def same(found: AnyArray, wanted: AnyArray) -> bool:
    """Whether two arrays agree in type and in every bit."""
    return bool(
        found.dtype == wanted.dtype
        and found.shape == wanted.shape
        and np.array_equal(found.view(np.uint8), wanted.view(np.uint8))
    )


def whole_chain(error: BaseException | None) -> str:
    """Everything that a logger could print of an error and of those behind it."""
    said = ""
    while error is not None:
        said += f"{error!r} {error} {getattr(error, '__notes__', '')}\n"
        error = error.__cause__ or error.__context__
    return said


def peak_memory() -> int:
    """Return the most memory that this program has held, in MB.

    Not ``ru_maxrss``, which a program inherits from the one that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


@contextlib.contextmanager
def unprivileged() -> Iterator[Path]:
    """Yield a folder, and be somebody for whom permissions count even if the tests run as root."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(pwd.getpwnam("nobody").pw_uid)
    try:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            yield Path(folder)
            Path(folder).chmod(0o700)
    finally:
        if root:
            os.seteuid(0)


@contextlib.contextmanager
def people(kind: str, folder: Path, url: str | None = None, query: str = ROWS) -> Iterator[Any]:
    """Yield the table as a source of one kind."""
    with contextlib.closing(duckdb.connect()) as connection:
        relation = connection.sql(query)
        if kind in ("csv", "tsv", "csv.gz", "semicolons"):
            path = folder / f"people.{'csv' if kind == 'semicolons' else kind}"
            sign = {"tsv": "\t", "semicolons": ";"}.get(kind, ",")
            relation.to_csv(str(folder / "plain.csv"), sep=sign)
            text = (folder / "plain.csv").read_bytes()
            path.write_bytes(gzip.compress(text) if kind == "csv.gz" else text)
            yield path
        elif kind == "parquet":
            relation.to_parquet(str(folder / "people.parquet"))
            yield str(folder / "people.parquet")
        elif kind == "duckdb":
            connection.execute(f"ATTACH '{folder}/people.duckdb' AS d")
            connection.execute(f"CREATE TABLE d.people AS {query}")
            connection.execute("DETACH d")
            yield f"duckdb://{folder}/people.duckdb?table=people"
        elif kind == "postgres":
            assert url is not None
            yield _in_postgres(connection, url, query)
        elif kind == "arrays":
            yield relation.fetchnumpy()
        else:
            make = {"pandas": "df", "polars": "pl", "pyarrow": "to_arrow_table"}.get(kind)
            yield getattr(relation, make)() if make else relation


def _in_postgres(connection: duckdb.DuckDBPyConnection, url: str, query: str) -> str:
    import psycopg
    from psycopg import sql

    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    types = [row[1] for row in connection.execute(f"DESCRIBE {query}").fetchall()]
    kinds = {"DOUBLE": "float8", "VARCHAR": "text", "INTEGER": "int4"}
    rows = connection.execute(query).fetchall()
    with psycopg.connect(url) as server:
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kinds.get(kind, kind)))
            for name, kind in zip(names, types, strict=True)
        )
        server.execute(sql.SQL("CREATE TABLE people ({})").format(columns))
        marks = ", ".join(["%s"] * len(names))
        with server.cursor() as writer:
            writer.executemany(f"INSERT INTO people VALUES ({marks})", rows)
    return f"{url}?table=public.people"
