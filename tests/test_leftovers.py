"""The scanner for private cells finds them in every form in which they may be left."""

from __future__ import annotations

import gzip
import sqlite3
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest

from discreet.query.curation import Curation
from discreet.tables import write_table
from tests.leftovers import Traces
from tests.marked import SCHEMA, marked_people

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PEOPLE = marked_people(3000)
TRACES = Traces(PEOPLE, SCHEMA)


def cells() -> dict[str, Any]:
    """The numbers, as a batch of a table."""
    return {"income": PEOPLE["income"], "points": PEOPLE["points"].astype(float)}


def curated() -> dict[str, Any]:
    curation = Curation.from_schema(SCHEMA)
    return {
        name: curation.column(name).encode(values)[curation.column(name).sql]
        for name, values in cells().items()
    }


def as_parquet(path: Path, end: int | None = None) -> None:
    write_table(path, [SCHEMA.column(name) for name in cells()], [cells()])
    path.rename(path.with_suffix(""))
    path.with_suffix("").write_bytes(path.with_suffix("").read_bytes()[:end])


def as_database(path: Path, values: dict[str, Any], checkpoint: bool) -> None:
    with duckdb.connect(path) as connection:
        if not checkpoint:
            connection.execute("PRAGMA disable_checkpoint_on_shutdown")
        kept = {f"c{i}": column for i, column in enumerate(values.values())}
        connection.register("arriving", kept)
        connection.execute("CREATE TABLE t AS FROM arriving")


def as_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x REAL)")
        connection.executemany("INSERT INTO t VALUES (?)", [(x,) for x in PEOPLE["income"].tolist()])
    connection.close()


def as_records(path: Path) -> None:
    columns = cells()
    rows = np.rec.fromarrays([np.zeros(3000, np.int32), *columns.values()])
    path.write_bytes(b"abc" + rows.tobytes())


KINDS: dict[str, Callable[[Path], Any]] = {
    "ids as text": lambda p: p.write_text("\n".join(PEOPLE["person"])),
    "one id in a message": lambda p: p.write_text(f"row 7: {PEOPLE['person'][7]!r} is wrong"),
    "numbers as text": lambda p: p.write_text(",".join(map(str, PEOPLE["income"]))),
    "one number in a message": lambda p: p.write_text(f'{{"value": {PEOPLE["income"][7]:.9f}}}'),
    "floats": lambda p: p.write_bytes(b"x" + PEOPLE["income"].tobytes()),
    "scaled floats": lambda p: p.write_bytes((PEOPLE["income"] / 1e5 - 1).tobytes()),
    "curated integers": lambda p: p.write_bytes(b"xyz" + curated()["points"].tobytes()),
    "curated integers of 64 bits": lambda p: p.write_bytes(curated()["income"].astype(np.int64).tobytes()),
    "records": as_records,
    "records of curated integers": lambda p: p.write_bytes(
        np.stack([*curated().values(), np.zeros(3000)], axis=1).astype(np.int64).tobytes()
    ),
    "gzip": lambda p: p.write_bytes(gzip.compress(",".join(map(str, PEOPLE["income"])).encode())),
    "half a gzip": lambda p: p.write_bytes(gzip.compress(PEOPLE["income"].tobytes())[:9000]),
    "parquet": lambda p: as_parquet(p.with_suffix(".parquet")),
    "half a parquet": lambda p: as_parquet(p.with_suffix(".parquet"), 30_000),
    "database": lambda p: as_database(p, curated(), checkpoint=True),
    "log of a database": lambda p: as_database(p, curated(), checkpoint=False),
    "sqlite": as_sqlite,
}


@pytest.mark.parametrize("kind", KINDS)
def test_cells_are_found(kind: str, tmp_path: Path) -> None:
    (tmp_path / "deep" / "down").mkdir(parents=True)
    KINDS[kind](tmp_path / "deep" / "down" / "file")
    assert TRACES.found_in(tmp_path)


def test_other_cells_are_not(tmp_path: Path) -> None:
    others = marked_people(3000, seed=2)
    (tmp_path / "text").write_text(",".join(map(str, [*others["income"], *others["person"]])))
    (tmp_path / "floats").write_bytes(others["income"].tobytes() + others["points"].tobytes())
    write_table(
        tmp_path / "other.parquet",
        [SCHEMA.column("income"), SCHEMA.column("points")],
        [{"income": others["income"], "points": others["points"].astype(float)}],
    )
    codes = np.stack([others["points"], others["points"][::-1], np.ones(3000)], axis=1).astype(np.int64)
    (tmp_path / "records").write_bytes(codes.tobytes() * 20)
    (tmp_path / "schema.yaml").write_text(SCHEMA.to_yaml())
    duckdb.connect(tmp_path / "empty.duckdb").close()
    assert TRACES.found_in(tmp_path) == {}
