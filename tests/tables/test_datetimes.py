"""Datetimes: from every source and format the steps that Python finds, and out again as datetimes."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
import xlsxwriter
from hypothesis import given
from hypothesis import strategies as st

from discreet import Column, Schema
from discreet.errors import DataError, SchemaError
from discreet.schema import Dialect, TextFormat
from discreet.tables import open_table
from discreet.tables.sniffing import draft_fields
from discreet.tables.writers import write_table

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.schema.column import Step

FIRST, LAST = datetime.datetime(2020, 2, 29, 6), datetime.datetime(2025, 3, 1, 6)
LENGTHS = {
    "hour": datetime.timedelta(hours=1),
    "minute": datetime.timedelta(minutes=1),
    "second": datetime.timedelta(seconds=1),
}
FORMATS = [
    "%d.%m.%Y %H:%M:%S", "%Y/%m/%d %H:%M", "%m/%d/%Y %I:%M %p", "%d %b %Y %H:%M:%S", "%Y-%m-%dT%H:%M:%S",
    "%Y%m%d %H%M", "%d.%m.%y %H:%M", "%H:%M:%S %d-%m-%Y", "%d.%m.%Y", "%Y-%m-%d %H:%M:%S.%f",
]  # fmt: skip
MOMENTS = st.datetimes(min_value=datetime.datetime(1970, 1, 1), max_value=datetime.datetime(2060, 1, 1))


def schema(step: Step = "minute", date_format: str | None = None, **rest: Any) -> Schema:
    text = None if date_format is None else TextFormat(date_format=date_format)
    return Schema(columns=[Column("seen", lower=FIRST, upper=LAST, step=step, text=text, **rest)])


def steps(moments: list[datetime.datetime | None], step: str) -> list[float]:
    """Steps by Python's own arithmetic, clipped to the bounds as a reader of tables does."""
    whole = [None if m is None else (m - FIRST) // LENGTHS[step] for m in moments]
    return [np.nan if n is None else float(n) for n in whole]


def read(source: Any, declared: Schema) -> list[float]:
    with open_table(source, schema=declared) as table:
        return [cell for batch in table.batches(declared) for cell in batch["seen"].tolist()]


def clipped(values: list[float], declared: Schema) -> list[float]:
    return [float(value) for value in declared.column("seen").clip(np.array(values))]


@given(
    moments=st.lists(MOMENTS, min_size=1, max_size=8),
    date_format=st.sampled_from(FORMATS),
    step=st.sampled_from(["hour", "minute", "second"]),
)
def test_texts_of_every_format_are_read_as_python_reads_them(
    moments: list[datetime.datetime], date_format: str, step: Step
) -> None:
    texts = [moment.strftime(date_format) for moment in moments]
    there = [datetime.datetime.strptime(text, date_format) for text in texts]
    declared = schema(step, date_format)
    assert read({"seen": texts}, declared) == clipped(steps(there, step), declared)  # type: ignore[arg-type]
    # A text that is cut short, or has a sign too many, fits nothing.
    with pytest.raises(DataError):
        read({"seen": [*texts, texts[0] + "."]}, declared)


@given(moments=st.lists(st.none() | MOMENTS, min_size=1, max_size=8), step=st.sampled_from(list(LENGTHS)))
def test_arrays_of_moments_are_read_and_returned(moments: list[datetime.datetime | None], step: Step) -> None:
    declared = schema(step, required=False)
    found = np.array(read({"seen": np.array(moments, "datetime64[us]")}, declared))
    np.testing.assert_array_equal(found, clipped(steps(moments, step), declared))
    back = declared.column("seen").moments(found)
    np.testing.assert_array_equal(declared.column("seen").count_steps(back), found)


def test_moments_beyond_the_calendar_go_to_the_bounds() -> None:
    rows = duckdb.sql(
        "SELECT unnest(['infinity', '-infinity', '290000-01-01', '0001-01-01']::TIMESTAMP[]) AS seen"
    )
    declared = schema("second")
    top = declared.column("seen").width
    assert read(rows, declared) == [top, 0.0, top, 0.0]


MADE = [
    datetime.datetime(2024, 2, 29, 23, 59, 59),
    datetime.datetime(2021, 1, 1),
    datetime.datetime(2020, 2, 29, 6),
]


@pytest.mark.parametrize("step", ["hour", "minute", "second"])
def test_every_file_gives_the_same_steps(tmp_path: Path, step: Step) -> None:
    wanted = steps(list(MADE), step)
    values = ", ".join(f"(TIMESTAMP '{moment}')" for moment in MADE)
    rows = f"SELECT * FROM (VALUES {values}) AS t(seen)"
    database = tmp_path / "t.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute(f"CREATE TABLE visits AS {rows}")
        connection.execute(f"CREATE TABLE zoned AS SELECT timezone('UTC', seen) AS seen FROM ({rows})")
        connection.execute(f"COPY ({rows}) TO '{tmp_path / 't.parquet'}'")
        connection.execute(f"COPY ({rows}) TO '{tmp_path / 't.csv'}' (HEADER)")
    with xlsxwriter.Workbook(tmp_path / "t.xlsx") as book:
        sheet = book.add_worksheet()
        sheet.write(0, 0, "seen")
        for i, moment in enumerate(MADE, 1):
            sheet.write_datetime(i, 0, moment, book.add_format({"num_format": "yyyy-mm-dd hh:mm:ss"}))
    sources = ["t.parquet", "t.csv", "t.xlsx"]
    for source in [
        *(str(tmp_path / name) for name in sources),
        *(f"duckdb://{database}?table={table}" for table in ("visits", "zoned")),
    ]:
        assert read(source, schema(step)) == wanted, source
        with open_table(source) as table:
            assert table.draft().fields["seen"].type == "datetime", source


def test_the_minutes_of_a_whole_day_are_those_of_the_sheet(tmp_path: Path) -> None:
    # A sheet holds fractions of a day, which are no minutes exactly.
    day = [datetime.datetime(2024, 3, 31) + datetime.timedelta(minutes=i) for i in range(1440)]
    with xlsxwriter.Workbook(tmp_path / "t.xlsx") as book:
        sheet, form = book.add_worksheet(), book.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        sheet.write(0, 0, "seen")
        for i, moment in enumerate(day, 1):
            sheet.write_datetime(i, 0, moment, form)
    assert read(tmp_path / "t.xlsx", schema()) == steps(list(day), "minute")


def test_postgresql_gives_the_same_steps_whatever_its_time_zone(postgres_url: str) -> None:
    import psycopg

    with psycopg.connect(postgres_url) as server:
        server.execute("CREATE TABLE visits (seen timestamp, zoned timestamptz)")
        for moment in MADE:
            server.execute(
                "INSERT INTO visits VALUES (%s, %s)", (moment, moment.replace(tzinfo=datetime.UTC))
            )
        server.execute(f"ALTER DATABASE {server.info.dbname} SET timezone = 'Asia/Tokyo'")
        server.execute("CREATE VIEW zoned AS SELECT zoned AS seen FROM visits")
    sign = "&" if "?" in postgres_url else "?"
    for table in ("visits", "zoned"):
        assert read(f"{postgres_url}{sign}table={table}", schema("second")) == steps(list(MADE), "second")


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_written_datetime_is_read_back(tmp_path: Path, name: str) -> None:
    declared = schema("second", required=False)
    cells = np.array([0.0, 12345.0, np.nan, declared.column("seen").width])
    write_table(tmp_path / name, declared, [{"seen": cells}])
    np.testing.assert_array_equal(read(tmp_path / name, declared), cells)
    if name == "t.csv":
        assert (tmp_path / name).read_text().splitlines()[2] == "2020-02-29 09:25:45"


def test_formats_of_texts_are_drafted() -> None:
    def draft(*texts: str) -> tuple[str, str | None]:
        field = draft_fields(["seen"], [(text,) for text in texts], Dialect()).fields["seen"]
        return field.type, None if field.text is None else field.text.date_format

    assert draft("2024-01-31 12:00", "2024-02-01 13:30") == ("datetime", None)
    assert draft("2024-01-31T12:00:59") == ("datetime", None)
    assert draft("31.01.2024 12:00") == ("datetime", "%d.%m.%Y %H:%M")
    assert draft("01/31/2024 1:30 PM") == ("datetime", "%m/%d/%Y %I:%M %p")
    assert draft("31.01.2024") == ("date", "%d.%m.%Y")


def test_a_number_is_no_datetime() -> None:
    with pytest.raises(SchemaError, match="was declared datetime where the table has"):
        read({"seen": np.array([1.0])}, schema())
