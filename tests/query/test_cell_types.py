"""Cells of every type that servers, files and clusters have: the same integers on every engine, bit for bit.

The other side is computed from the drawn cells alone: a number is the double nearest to it, of a ``real`` the
number that its 32 bits are, and a moment its whole steps since the first one in UTC.
"""

from __future__ import annotations

import datetime
import math
import struct
from decimal import Context, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from discreet.query.curation import Curation
from discreet.query.engines._duckdb import DuckDBEngine
from discreet.schema import Column, Schema
from tests.query.raw_tables import Choices

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.query.engines.base import Engine

# pyspark warns about newer versions of pandas whenever Arrow is used.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")

N_ROWS = 4000
DIGITS = 38
SCALES = (0, 2, 9, 25, 37)
FIRST, LAST = datetime.datetime(1969, 12, 31, 23, 30), datetime.datetime(2038, 1, 19, 3, 30)
EARLIEST, LATEST = datetime.datetime(1900, 1, 1), datetime.datetime(2262, 1, 1)
LENGTHS = {
    "hour": datetime.timedelta(hours=1),
    "minute": datetime.timedelta(minutes=1),
    "second": datetime.timedelta(seconds=1),
}
EXACT = Context(prec=2 * DIGITS)


def _real(draws: Choices) -> float:
    """Draw the 32 bits of a float: of any size, near the bounds, or a short decimal."""
    way = draws.whole(0, 3)
    if way == 0:
        bits = struct.pack("<I", draws.whole(0, 2**32 - 1))
    else:
        bits = struct.pack("<f", draws.uniform(-1.1, 1.1) if way == 1 else draws.whole(-120, 120) / 100)
    value: float = struct.unpack("<f", bits)[0]
    return value


def _decimal(draws: Choices, scale: int) -> Decimal:
    """Draw a number with up to 38 digits, every length as likely as another."""
    digits = draws.whole(1, DIGITS)
    whole = int("".join(str(draws.whole(0, 9)) for _ in range(digits)))
    return Decimal(draws.choice((whole, -whole))).scaleb(-scale, EXACT)


def _moment(draws: Choices) -> datetime.datetime:
    """Draw a moment to the microsecond, a third of them on or next to a whole minute."""
    far = int((LATEST - EARLIEST).total_seconds())
    moment = EARLIEST + datetime.timedelta(seconds=draws.whole(0, far), microseconds=draws.whole(0, 999_999))
    if draws.whole(0, 2):
        return moment
    minute = moment.replace(second=0, microsecond=0)
    return minute + datetime.timedelta(microseconds=draws.choice((-1, 0, 1)))


def _text(draws: Choices) -> str:
    """Draw a number as people and programs write it."""
    way = draws.whole(0, 4)
    if way == 0:
        return f"{_decimal(draws, draws.choice(SCALES)):f}"
    if way == 1:
        return f" {draws.whole(-200, 200)}.{draws.whole(0, 99)}"
    if way == 2:
        return repr(draws.uniform(-150, 150))
    return f"{draws.whole(1, 9)}.{draws.whole(0, 10**20)}{draws.choice('eE')}{draws.whole(-400, 400)}"


def _nearest(cell: Any) -> float:
    """Return the double that is nearest to a drawn number, NaN for a missing one."""
    if cell is None:
        return math.nan
    if isinstance(cell, float):
        return cell
    exact = Fraction(Decimal(cell.strip() if isinstance(cell, str) else cell))
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


class _Cells:
    """Columns of drawn cells, what is declared of them, and the curated arrays that they must become."""

    def __init__(self, seed: str) -> None:
        draws = Choices(f"cells {seed}")
        self.arrow: dict[str, pa.DataType] = {"real": pa.float32()}
        self.server: dict[str, str] = {"real": "float4"}
        self.cells: dict[str, list[Any]] = {"real": self._draw(draws, lambda: _real(draws))}
        columns = [Column("real", lower=-1, upper=1, required=False)]
        for scale in SCALES:
            name, most = f"decimal{scale}", 10.0 ** draws.whole(1, DIGITS - scale)
            self.arrow[name], self.server[name] = (
                pa.decimal128(DIGITS, scale),
                f"numeric({DIGITS}, {scale})",
            )
            self.cells[name] = self._draw(draws, lambda scale=scale: _decimal(draws, scale))  # type: ignore[misc]
            columns.append(Column(name, lower=-most, upper=most, required=False))
        for name, zone in (("local", None), ("zoned", "UTC")):
            self.arrow[name] = pa.timestamp("us", zone)
            self.server[name] = "timestamp" if zone is None else "timestamptz"
            self.cells[name] = self._draw(draws, lambda: _moment(draws))
            step: Any = draws.choice(list(LENGTHS))
            columns.append(Column(name, lower=FIRST, upper=LAST, step=step, required=False))
        self.arrow["text"], self.server["text"] = pa.string(), "text"
        self.cells["text"] = self._draw(draws, lambda: _text(draws))
        columns.append(Column("text", lower=-100, upper=100, required=False))
        self.schema = Schema(columns=columns)

    @staticmethod
    def _draw(draws: Choices, cell: Callable[[], Any]) -> list[Any]:
        return [cell() if draws.whole(0, 9) else None for _ in range(N_ROWS)]

    def table(self) -> pa.Table:
        """The cells as an Arrow table."""
        moments = {name: self.cells[name] for name in ("local", "zoned")}
        zoned = [None if m is None else m.replace(tzinfo=datetime.UTC) for m in moments["zoned"]]
        cells = self.cells | {"zoned": zoned}
        return pa.table({name: pa.array(cells[name], kind) for name, kind in self.arrow.items()})

    def curated(self) -> dict[str, AnyArray]:
        """The curated table, computed from the drawn cells."""
        curation = Curation.from_schema(self.schema)
        batch = {}
        for column in self.schema.released:
            cells = self.cells[column.name]
            if column.type == "datetime":
                length = LENGTHS[str(column.step)]
                values = [math.nan if cell is None else float((cell - FIRST) // length) for cell in cells]
            else:
                values = [_nearest(cell) for cell in cells]
            batch[column.name] = column.clip(np.array(values))
        return curation.encode(batch)


def _in_memory(cells: _Cells, _: Path) -> Any:
    return cells.table()


def _in_parquet(cells: _Cells, folder: Path) -> Any:
    pyarrow.parquet.write_table(cells.table(), folder / "cells.parquet")
    return folder / "cells.parquet"


def _check(engine: Engine, source: Any, cells: _Cells) -> None:
    curation, wanted = Curation.from_schema(cells.schema), cells.curated()
    names = curation.identifiers()
    try:
        version = engine.register(source, curation)
        found = [np.concatenate(column) for column in zip(*engine.batches(names), strict=True)]
    finally:
        engine.close()
    for name, column in zip(names, found, strict=True):  # column by column, to say which differs
        bits = [np.sort(values.view(f"i{values.itemsize}")) for values in (column, wanted[name])]
        differ = np.flatnonzero(bits[0] != bits[1])
        declared = curation.columns[int(name[1:])].name
        assert not len(differ), f"{declared}, {name}: {len(differ)} cells"
    assert (version.n_rows, version.checksum) == (N_ROWS, curation.checksums(wanted)[0])


@pytest.mark.parametrize("source", [_in_memory, _in_parquet])
def test_duckdb_reads_the_nearest_number(source: Callable[[_Cells, Path], Any], tmp_path: Path) -> None:
    cells = _Cells(source.__name__)
    _check(DuckDBEngine(), source(cells, tmp_path), cells)


def test_postgres_has_the_same_integers(postgres_url: str) -> None:
    import psycopg

    from discreet.query.engines._postgres import PostgresEngine

    cells = _Cells("postgres")
    columns = ", ".join(f"{name} {kind}" for name, kind in cells.server.items())
    with psycopg.connect(postgres_url, autocommit=True) as server:
        server.execute("SET TimeZone = 'UTC'")
        server.execute(f"CREATE TABLE cells ({columns})".encode())
        with server.cursor() as cursor, cursor.copy("COPY cells FROM STDIN") as copy:
            for row in zip(*cells.cells.values(), strict=True):
                copy.write_row(row)
    _check(PostgresEngine(postgres_url), f"{postgres_url}?table=cells", cells)


@pytest.mark.slow
def test_spark_has_the_same_integers(spark: Any) -> None:
    from discreet.query.engines._spark import SparkEngine

    cells = _Cells("spark")
    _check(SparkEngine(), spark.createDataFrame(cells.table()), cells)
