"""Random tables as their owners have them, and plain SQL over their clamped cells.

Nothing here reads how the package curates a table: the view of :func:`clamped_rows` is written from the
promise alone. A number or a date outside its declared range is moved to the nearer end, a number nearer to
zero than 2**-448 is 0, a text that is not listed becomes ``other``, NaN and the empty text are missing, and
no cell is changed in any other way.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from discreet.schema import Column, Schema
from tests.draws import Draws

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.noise import Stream

TINY = "power(CAST(2 AS DOUBLE), -448)"
"""A number nearer to zero than 1.4e-135 counts as 0, by the documentation of the curated table."""
_TYPES = {"number": "DOUBLE", "integer": "BIGINT", "date": "DATE"}
_ARROW = {"DOUBLE": pa.float64(), "BIGINT": pa.int64(), "DATE": pa.date32(), "VARCHAR": pa.string()}
_ARROW["BOOLEAN"] = pa.bool_()
_DAY = datetime.timedelta(days=1)


class Choices(Draws):
    """Draws that are taken from the stream by the thousand."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._words = _words(self._stream)

    def random(self) -> float:
        """Between 0 and 1, neither of them."""
        return (next(self._words) >> 12 | 1) * 2.0**-52

    def often(self, share: float) -> bool:
        """Whether something happens that does so in a share of cases."""
        return self.random() < share


def _words(stream: Stream) -> Iterator[int]:
    while True:
        yield from stream.words(4096).tolist()


@dataclass(frozen=True)
class RawColumn:
    """A column with the cells of its owner: what is declared, the cells, and a step from one to the next."""

    declared: Column
    cells: list[Any]
    step: Any = 1

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.declared.name

    @property
    def is_number(self) -> bool:
        """Whether the column is one of numbers, whole or not; a category of whole numbers is one too."""
        return self.declared.type in ("number", "integer") or self.is_code

    @property
    def is_code(self) -> bool:
        """Whether the column is a category of whole numbers."""
        return type((self.declared.values or ("",))[0]) is int

    @property
    def sql_type(self) -> str:
        """Type of the cells in the table of the owner."""
        if self.declared.type in _TYPES:
            return _TYPES[self.declared.type]
        return "BIGINT" if self.is_code else "BOOLEAN" if True in (self.declared.values or ()) else "VARCHAR"

    @property
    def clamped(self) -> str:
        """SQL of a cell within what is declared; NULL if it is missing."""
        name, declared = self.name, self.declared
        if declared.type in _TYPES:
            low, high = (sql_literal(end) for end in (declared.lower, declared.upper))
            inside = f"WHEN {name} < {low} THEN {low} WHEN {name} > {high} THEN {high} ELSE {name} END"
            if declared.type != "number":
                return f"CASE {inside}"  # NULL is neither
            zero = f"LEAST(GREATEST(0.0, {low}), {high})"
            return f"CASE WHEN isnan({name}) THEN NULL WHEN abs({name}) < {TINY} THEN {zero} {inside}"
        if self.sql_type == "VARCHAR":
            listed = ", ".join(map(sql_literal, declared.values or ()))
            missing = f"{name} IS NULL OR {name} = ''"
            return f"CASE WHEN {missing} THEN NULL WHEN {name} IN ({listed}) THEN {name} ELSE 'other' END"
        return name

    @property
    def as_number(self) -> str:
        """SQL of a cell of the clamped table as a real number; a date is counted from its first day."""
        if self.declared.type == "date":
            return f"CAST({self.name} - {sql_literal(self.declared.lower)} AS DOUBLE)"
        return f"CAST({self.name} AS DOUBLE)"

    def near(self, draws: Choices) -> str:
        """Draw a constant: a cell, its neighbor, something with more decimals, or something out of range."""
        there = [cell for cell in self.cells if cell is not None and _is_small(cell)]
        cell = draws.choice(there) if there else self.declared.lower
        if isinstance(cell, datetime.date):
            return sql_literal(cell + draws.choice((-1, 0, 0, 0, 1)) * _DAY)
        value = Decimal(repr(cell)) + draws.choice((-1, 0, 0, 0, 0, 0, 1)) * Decimal(str(self.step))
        if draws.often(0.15):
            value += Decimal(draws.choice(("0.5", "1e-7", "-1e-7", "1e-12", "0.04999", "1e-15")))
        if draws.often(0.05):
            value = Decimal(repr(draws.choice((self.declared.lower, self.declared.upper)) or 0))
            value += draws.choice((-1, 0, 1, 1000)) * Decimal(str(self.step))
        return plain(value)


def _is_small(cell: Any) -> bool:
    """Whether a cell may be written as a constant."""
    return not isinstance(cell, float) or abs(cell) < 1e99


def plain(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def sql_literal(value: Any) -> str:
    """Write a value as SQL."""
    if isinstance(value, datetime.date):
        return f"DATE '{value}'"
    if isinstance(value, str):
        return "'{}'".format(value.replace("'", "''"))
    return f"CAST('{value!r}' AS DOUBLE)" if isinstance(value, float) else str(value)


@dataclass
class RawTable:
    """A table as its owner has it, named by its seed."""

    seed: str
    columns: list[RawColumn]
    schema: Schema
    people: list[int] | None = None
    by_name: dict[str, RawColumn] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = {column.name: column for column in self.columns}

    @property
    def n_rows(self) -> int:
        """Number of rows, those past ``max_rows_per_unit`` included."""
        return len(self.columns[0].cells)

    def arrow(self) -> pa.Table:
        """Return the raw cells as an Arrow table."""
        arrays = {c.name: pa.array(c.cells, _ARROW[c.sql_type], from_pandas=False) for c in self.columns}
        if self.people is not None:
            arrays["person"] = pa.array(self.people, pa.int64())
        return pa.table(arrays)


def draw_table(seed: str, *, missing: bool = True) -> RawTable:
    """Draw a table: bounds, which columns may be missing, cells, and for a third of them people with rows."""
    draws = Choices(f"raw table {seed}")
    size = draws.whole(20, 90)
    columns = [
        draw(draws, size, missing and draws.often(0.5))
        for draw in (_score, _income, _big, _delta, _temperature, _day, _ward, _smoker, _visits, _gone)
    ]
    more: dict[str, Any] = {"neighbors": draws.choice(("replace-one", "add-remove"))}
    people = None
    extra = []
    if draws.often(0.35):
        people = [draws.whole(1, size // 3) for _ in range(size)]
        columns.append(RawColumn(Column("line", type="integer", lower=0, upper=size - 1), list(range(size))))
        more |= {"id_column": "person", "max_rows_per_unit": draws.whole(1, 4)}
        extra = [Column("person", role="id")]
    return RawTable(seed, columns, Schema(columns=[*(c.declared for c in columns), *extra], **more), people)


def _with_gaps(draws: Choices, cells: list[Any], gaps: tuple[Any, ...], optional: bool) -> list[Any]:
    share = draws.choice((0.1, 0.3, 0.9)) if optional else 0.0
    return [draws.choice(gaps) if draws.often(share) else cell for cell in cells]


def _score(draws: Choices, size: int, optional: bool) -> RawColumn:
    low, high = draws.choice(((0, 10), (-5, 5), (0, 100), (0.5, 9.5), (3, 4)))
    cells = [draws.whole(int(low * 10) - 8, int(high * 10) + 8) / 10 for _ in range(size)]
    cells = _with_gaps(draws, cells, (None, math.nan), optional)
    grid = draws.choice((None, None, 0.1 if high == 10 else 0.5))
    return RawColumn(Column("score", lower=low, upper=high, required=not optional, grid=grid), cells, "0.1")


def _income(draws: Choices, size: int, optional: bool) -> RawColumn:
    high = draws.choice((10**7, 10**7, 2**20 + 5, 3 * 10**9, 50_000))
    cells = [
        draws.choice((0, 0, 1, 2, 9, draws.whole(0, 30), draws.whole(0, high + 9), high)) for _ in range(size)
    ]
    cells = _with_gaps(draws, cells, (None,), optional)
    return RawColumn(Column("income", type="integer", lower=0, upper=high, required=not optional), cells)


def _big(draws: Choices, size: int, optional: bool) -> RawColumn:
    low, high = draws.choice(((0, 2**53), (-(2**53), 2**53), (2**52, 2**53), (-(10**15), 10**15), (0, 2**31)))
    near = (low - 2**60, low - 1, low, low + 1, low + 2, high - 2, high - 1, high, high + 1, 2**62)
    cells = [
        draws.choice((draws.choice(near), draws.whole(low, high), (low + high) // 2)) for _ in range(size)
    ]
    cells = _with_gaps(draws, cells, (None,), optional)
    return RawColumn(Column("big", type="integer", lower=low, upper=high, required=not optional), cells)


def _delta(draws: Choices, size: int, optional: bool) -> RawColumn:
    low, high = draws.choice(((-5, 5), (-100, -20), (-3, 0), (0, 1)))
    cells = _with_gaps(draws, [draws.whole(low - 2, high + 2) for _ in range(size)], (None,), optional)
    return RawColumn(Column("delta", type="integer", lower=low, upper=high, required=not optional), cells)


def _temperature(draws: Choices, size: int, optional: bool) -> RawColumn:
    low, high = draws.choice(
        ((-40.0, 60.0), (-1.0, 1.0), (0.0, 1e6), (-1e-3, 1e-3), (1e-12, 2.5), (-7.3, -0.1))
    )
    odd = (math.inf, -math.inf, -0.0, 0.0, 1e-12, -1e-12, 3e-13, 1e308, -1e-200, 0.1 + 0.2, low, high)
    cells = [draws.choice((draws.choice(odd), draws.uniform(low, high))) for _ in range(size)]
    cells = _with_gaps(draws, cells, (None, math.nan), optional)
    step = draws.choice(("1e-12", "0.1", "1e-6"))
    return RawColumn(Column("temperature", lower=low, upper=high, required=not optional), cells, step)


def _day(draws: Choices, size: int, optional: bool) -> RawColumn:
    first = datetime.date(2019, 12, 20) + draws.whole(0, 700) * _DAY
    length = draws.choice((12, 90, 1500))
    cells = [first + draws.whole(-3, length + 3) * _DAY for _ in range(size)]
    cells = _with_gaps(draws, cells, (None,), optional)
    return RawColumn(Column("day", lower=first, upper=first + length * _DAY, required=not optional), cells)


def _ward(draws: Choices, size: int, optional: bool) -> RawColumn:
    declared = Column("ward", values=("surgery", "O'Hara", "A;B--"), required=not optional)
    among = ("surgery", "O'Hara", "A;B--", "unlisted", "Surgery", "other", "NULL")
    cells = [draws.choice(among) for _ in range(size)]
    return RawColumn(declared, _with_gaps(draws, cells, (None, ""), optional))


def _smoker(draws: Choices, size: int, optional: bool) -> RawColumn:
    cells = _with_gaps(draws, [draws.often(0.4) for _ in range(size)], (None,), optional)
    return RawColumn(Column("smoker", values=(False, True), required=not optional), cells)


def _visits(draws: Choices, size: int, optional: bool) -> RawColumn:
    values = draws.choice(((0, 1, 2, 3), (1, 5, 10), (-2, 7)))
    cells = _with_gaps(draws, [draws.choice(values) for _ in range(size)], (None,), optional)
    return RawColumn(Column("visits", values=values, required=not optional), cells)


def _gone(draws: Choices, size: int, optional: bool) -> RawColumn:
    day = _day(draws, size, optional)  # with a first day and a length of its own
    declared = Column("gone", lower=day.declared.lower, upper=day.declared.upper, required=not optional)
    return RawColumn(declared, day.cells)


def clamped_rows(table: RawTable) -> duckdb.DuckDBPyConnection:
    """Return a connection with the view ``data``: the clamped cells of the raw table."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    raw = table.arrow()
    connection.register("arriving", raw)
    connection.execute("CREATE TABLE raw AS SELECT * FROM arriving")
    connection.unregister("arriving")
    cells = ", ".join(f"{column.clamped} AS {column.name}" for column in table.columns)
    connection.execute(f"CREATE TABLE data AS SELECT {cells} FROM raw")
    return connection
