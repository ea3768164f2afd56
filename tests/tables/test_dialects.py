"""Tables written in random dialects, and read back as the plain file that holds the same cells."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import polars as pl
import pytest

from discreet.errors import DiscreetError, ParameterError, SchemaError, SourceError
from discreet.pipeline.check import check_table
from discreet.query import Database
from discreet.schema import Column, Dialect, Schema, TextFormat
from discreet.schema.notation import UNFILLED
from discreet.tables import open_table
from discreet.tables.spark import open_frame
from tests.draws import Draws
from tests.tables.people import same, whole_chain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from discreet.schema.dialect import TableDraft

CODECS = {
    "utf-8": ("utf-8", "utf-8-sig"),
    "utf-16": ("utf-16", "utf-16-be"),
    "windows-1252": ("cp1252",),
    "iso-8859-1": ("latin-1",),
}
WORDS = ("süd", "nord, ost", 'he said "no"', "a;b|c", "plain")
NOTES = ("", "two\nlines", "a\ttab", 'a "\n\nb')
COLUMNS = (
    Column("Größe", lower=-2000.0, upper=2000.0, required=False),
    Column("visits", type="integer", lower=-50_000, upper=50_000, required=False),
    Column("born", lower=datetime.date(1930, 1, 1), upper=datetime.date(2020, 1, 1), required=False),
    Column("smokes", values=(False, True), required=False),
    Column("place", values=WORDS, required=False),
    Column("note", role="drop"),
)
PLAIN = Schema(columns=COLUMNS)


@dataclass
class Written:
    """A random way to write a table."""

    dialect: Dialect
    codec: str
    columns: tuple[Column, ...]
    line_end: str
    preamble: list[str]

    def write(self, rows: list[tuple[Any, ...]], draws: Draws) -> bytes:
        """The file, by rules of its own and not by the package's."""
        out = io.StringIO(newline="")
        out.write("".join(line + self.line_end for line in self.preamble))
        writer = csv.writer(out, delimiter=self.dialect.delimiter or ",", lineterminator=self.line_end)
        if self.dialect.header:
            writer.writerow(column.name for column in self.columns)
        for row in rows:
            if draws.random() < 0.1:
                blanks = (
                    (self.dialect.delimiter or ",") * (len(row) - 1) if self.dialect.skip_blank_rows else ""
                )
                out.write(blanks + self.line_end)
            writer.writerow(self.cell(*pair, draws) for pair in zip(self.columns, row, strict=True))
        mark = b"\xfe\xff" if self.codec == "utf-16-be" else b""
        return mark + out.getvalue().encode(self.codec)

    def cell(self, column: Column, value: Any, draws: Draws) -> str:
        """One cell, with blanks around it now and then."""
        if value is None:
            return draws.choice(("", "NA"))
        text = column.text or TextFormat()
        if isinstance(value, bool):
            shown = (text.true_values or ("true",))[0] if value else (text.false_values or ("false",))[0]
        elif isinstance(value, datetime.date):
            shown = value.strftime(text.date_format or "%Y-%m-%d")
        elif isinstance(value, str):
            return value
        else:
            shown = self.number(column, value)
            if text.units:
                shown = draws.choice((f"{text.units[0]} {shown}", f"{shown}{text.units[0]}", shown))
        return draws.choice((shown, shown, f" {shown}", f"{shown} "))

    def number(self, column: Column, value: float) -> str:
        """A number with the signs of its column, grouped by hand."""
        text = column.text or TextFormat()
        decimal = text.decimal_char or self.dialect.decimal_char or "."
        group = text.group_char or self.dialect.group_char or ""
        digits, _, rest = (f"{abs(value):.2f}" if isinstance(value, float) else str(abs(value))).partition(
            "."
        )
        head = len(digits) % 3 or 3
        grouped = group.join([digits[:head], *(digits[i : i + 3] for i in range(head, len(digits), 3))])
        return ("-" if value < 0 else "") + grouped + (decimal + rest if rest else "")


def draw_rows(draws: Draws, count: int = 25) -> list[tuple[Any, ...]]:
    """Random rows of typed cells; None is a missing one."""
    rows = []
    for _ in range(count):
        row: tuple[Any, ...] = (
            draws.whole(-199_999, 199_999) / 100,
            draws.whole(-49_999, 49_999),
            datetime.date(1930, 1, 1) + datetime.timedelta(draws.whole(0, 32_000)),
            draws.random() < 0.5,
            draws.choice(WORDS),
            draws.choice(NOTES),
        )
        rows.append(tuple(None if draws.random() < 0.1 else cell for cell in row))
    return rows


def draw_dialect(draws: Draws) -> Written:
    """A random dialect, and the formats of columns that a schema declares beside it."""
    encoding = draws.choice(tuple(CODECS))
    decimal = draws.choice((".", ","))
    group = draws.choice(tuple({",", ".", " ", "'"} - {decimal}))
    dialect = Dialect(
        delimiter=draws.choice((",", ";", "\t", "|")),
        encoding=encoding,
        decimal_char=decimal,
        group_char=draws.choice((None, group)),
        header=draws.random() < 0.8,
        skip_blank_rows=draws.random() < 0.5,
    )
    preamble = ["Export of a system", ""][: draws.whole(0, 2)]
    number = TextFormat(units=draws.choice(((), ("kg",), ("€",) if encoding != "iso-8859-1" else ("$",))))
    date = TextFormat(
        date_format=draws.choice(("%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d", "%d %b %Y", "%d.%m.%Y 10:15"))
    )
    date = replace(date, date_format=(date.date_format or "").replace("10:15", "%H:%M"))
    words = TextFormat(true_values=("ja",), false_values=("nein",))
    columns = (
        replace(COLUMNS[0], text=number),
        COLUMNS[1],
        replace(COLUMNS[2], text=date),
        replace(COLUMNS[3], text=draws.choice((None, words))),
        *COLUMNS[4:],
    )
    dialect = replace(dialect, header_row=len(preamble) + 1)
    return Written(dialect, draws.choice(CODECS[encoding]), columns, draws.choice(("\n", "\r\n")), preamble)


def read(source: Any, schema: Schema) -> dict[str, Any]:
    with open_table(source, schema=schema) as table:
        batches = list(table.batches(schema))
        assert table.count() == sum(batch.n_rows for batch in batches)
    return {c.name: np.concatenate([batch[c.name] for batch in batches]) for c in schema.released}


def evaluate(column: Column, cells: list[Any]) -> Any:
    """What a column of typed cells is encoded as, written down once more."""
    if column.is_category:
        return np.array([column.levels.index(cell) for cell in cells], np.int32)
    if column.type == "date":
        assert isinstance(column.lower, datetime.date)
        return np.array([np.nan if cell is None else float((cell - column.lower).days) for cell in cells])
    return np.array([np.nan if cell is None else float(cell) for cell in cells])


def check_case(name: str, tmp_path: Path) -> None:
    """One random table in one random dialect: as declared, as found, and as checked."""
    draws = Draws(name)
    rows, written = draw_rows(draws), draw_dialect(draws)
    plain = Written(Dialect(), "utf-8", COLUMNS, "\n", [])
    (tmp_path / "plain.csv").write_bytes(plain.write(rows, Draws("plain")))
    content = written.write(rows, draws)
    path = tmp_path / draws.choice(("t.csv", "t.csv.gz"))
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    marks = ("", "NA")
    schema = Schema(columns=written.columns, dialect=written.dialect, missing_values=marks)
    found = read(path, Schema.from_yaml(schema.to_yaml()))
    wanted = read(tmp_path / "plain.csv", replace(PLAIN, missing_values=marks))
    for place, column in enumerate(COLUMNS[:-1]):
        assert same(wanted[column.name], evaluate(column, [row[place] for row in rows])), (name, column.name)
        assert same(found[column.name], wanted[column.name]), (name, column.name, written.dialect)
    assert check_table(path, schema).ok
    if not written.dialect.header:
        return
    draft = draft_of(path)
    # Of two formats that fit all rows, a person chooses.
    texts = {field.text.date_format for field in draft.fields.values() if field.text is not None}
    if UNFILLED in texts:
        return
    columns = [
        replace(c, text=draft.fields[c.name].text) for c in COLUMNS if draft.fields[c.name].type != "string"
    ]
    sniffed = Schema(columns=columns, dialect=draft.dialect, missing_values=draft.missing_values)
    for column_name, values in read(path, sniffed).items():
        assert same(values, wanted[column_name]), (name, column_name, draft)


def test_every_dialect_is_read_as_the_plain_file(tmp_path: Path) -> None:
    for i in range(6):
        check_case(f"dialect {i}", tmp_path)


@pytest.mark.parametrize(
    "cases",
    [
        # The last three of these begin with a row of empty cells.
        pytest.param((*range(6, 60), 954, 1288, 1456), marks=pytest.mark.slow),
        pytest.param(range(60, 300), marks=pytest.mark.stats),
    ],
    ids=["some", "many"],
)
def test_more_dialects_are_read_as_the_plain_file(cases: Iterable[int], tmp_path: Path) -> None:
    for i in cases:
        check_case(f"dialect {i}", tmp_path)


def draft_of(path: Path) -> TableDraft:
    with open_table(path) as table:
        return table.draft()


def damage(content: bytes, draws: Draws) -> bytes:
    """Content with a few bytes changed, cut out or put in."""
    broken = bytearray(content)
    for _ in range(draws.whole(1, 5)):
        place = draws.whole(0, len(broken) - 1)
        cut = draws.whole(0, 20)
        broken[place : place + cut] = bytes(draws.whole(0, 255) for _ in range(draws.whole(0, 3)))
    return bytes(broken) or b"x"


def count_refusals(name: str, tmp_path: Path) -> int:
    """Read, check and draft one damaged table; every error is ours, and quotes no cell."""
    refused = 0
    draws = Draws(name)
    written = draw_dialect(draws)
    path = tmp_path / "t.csv"
    path.write_bytes(damage(written.write(draw_rows(draws, 8), draws), draws))
    schema = Schema(columns=written.columns, dialect=written.dialect, missing_values=("", "NA"))
    for attempt in (
        lambda: read(path, schema),
        lambda: check_table(path, schema),
        lambda: check_table(path),
        lambda: Schema.draft(draft_of(path).fields),
    ):
        try:
            attempt()
        except SchemaError:
            refused += 1  # names are public, and the line of names may have become longer
        except DiscreetError as error:
            refused += 1
            said = whole_chain(error)
            assert not [word for word in ("süd", "nord, ost", "he said") if word in said], name
    return refused


def test_damaged_files_raise_our_own_errors(tmp_path: Path) -> None:
    assert sum(count_refusals(f"damage {i}", tmp_path) for i in range(6)) > 0


@pytest.mark.slow
def test_many_damaged_files_raise_our_own_errors(tmp_path: Path) -> None:
    refused = [count_refusals(f"damage {i}", tmp_path) for i in range(6, 106)]
    assert 0 < sum(map(bool, refused)) < len(refused)  # damage is found, and a file may survive it


@pytest.mark.parametrize("kind", ["polars", "arrays", "duckdb", "parquet", "postgres"])
def test_declared_formats_hold_for_text_wherever_it_is(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    draws = Draws("text anywhere")
    rows, written = draw_rows(draws), draw_dialect(draws)
    schema = Schema(columns=written.columns, dialect=written.dialect, missing_values=("", "NA"))
    cells = {
        column.name: [written.cell(column, row[place], draws) for row in rows]
        for place, column in enumerate(written.columns)
    }
    source: Any = cells
    if kind == "polars":
        source = pl.DataFrame(cells)
    elif kind == "parquet":
        (tmp_path / "parts").mkdir()
        pl.DataFrame(cells)[:7].write_parquet(tmp_path / "parts" / "1.parquet")
        pl.DataFrame(cells)[7:].write_parquet(tmp_path / "parts" / "2.parquet")
        source = tmp_path / "parts"
    elif kind == "duckdb":
        frame = pl.DataFrame(cells).to_arrow()
        with duckdb.connect(str(tmp_path / "t.duckdb")) as connection:
            connection.register("frame", frame)
            connection.execute("CREATE TABLE t AS FROM frame")
        source = tmp_path / "t.duckdb"
    elif kind == "postgres":
        import psycopg

        url = request.getfixturevalue("postgres_url")
        with psycopg.connect(url) as server:
            server.execute("DROP TABLE IF EXISTS in_text")
            names = ", ".join(f'"{name}" text' for name in cells)
            server.execute(f"CREATE TABLE in_text ({names})")
            with server.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO in_text VALUES (%s, %s, %s, %s, %s, %s)",
                    list(zip(*cells.values(), strict=True)),
                )
        source = f"{url}{'&' if '?' in url else '?'}table=in_text"
    found = read(source, schema)
    for place, column in enumerate(COLUMNS[:-1]):
        assert same(found[column.name], evaluate(column, [row[place] for row in rows])), column.name


def test_a_sign_that_is_not_declared_does_not_fit(tmp_path: Path) -> None:
    number = Column("x", lower=0, upper=1e6)
    grouped = Dialect(decimal_char=",", group_char=".")
    for cell in ("1.5", "1,5", "12 kg", "1.23.4", "1234.567,5"):
        fits = cell == "1,5"
        schema = Schema(columns=[number], dialect=grouped)
        with open_table({"x": [cell]}, schema=schema) as table:
            if fits:
                assert next(table.batches(schema))["x"].tolist() == [1.5]
                continue
            with pytest.raises(DiscreetError, match="hold a number with ',' before decimals"):
                list(table.batches(schema))


@pytest.mark.parametrize(
    ("censored", "wanted"),
    [("missing", [None, None, 3.0]), ("limit", [0.5, 100.0, 3.0]), ("half", [0.25, 100.0, 3.0])],
)
def test_a_limit_is_read_as_declared(censored: Any, wanted: list[float | None]) -> None:
    text = TextFormat(censored=censored)
    schema = Schema(columns=[Column("x", lower=0, upper=200, text=text, required=False)])
    found = read({"x": ["<0.5", "> 100", "3"]}, schema)["x"]
    assert [None if np.isnan(value) else value for value in found] == wanted


def test_codes_of_one_column_are_missing_there_alone() -> None:
    columns = [
        Column("q1", type="integer", lower=1, upper=99, missing_values=("99",), required=False),
        Column("age", type="integer", lower=1, upper=120),
    ]
    for cells in (["5", "99"], [5, 99], [5.0, 99.0]):
        found = read({"q1": cells, "age": cells}, Schema(columns=columns))
        assert same(found["q1"], np.array([5.0, np.nan]))
        assert same(found["age"], np.array([5.0, 99.0]))


def test_what_is_published_is_read_without_codes() -> None:
    column = Column(
        "q1", type="integer", lower=1, upper=99, missing_values=("99",), text=TextFormat(units=("kg",))
    )
    plain = Schema(columns=[column], dialect=Dialect(decimal_char=","), missing_values=("", "1")).plain
    assert plain == Schema(columns=[Column("q1", type="integer", lower=1, upper=99)])


def test_a_file_is_read_only_in_the_dialect_of_its_schema(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x;y\n1;2\n")
    schema = Schema(
        columns=[Column("x", lower=0, upper=9)], dialect=Dialect(delimiter=";", encoding="cp1252")
    )
    with open_table(tmp_path / "t.csv") as table, pytest.raises(ParameterError, match="schema=schema"):
        table.batches(schema)
    assert read(tmp_path / "t.csv", schema)["x"].tolist() == [1.0]


def test_columns_without_a_header_are_named_by_the_schema(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,x\n2,y\n")
    columns = [Column("a", lower=0, upper=9), Column("b", values=("x", "y"))]
    schema = Schema(columns=columns, dialect=Dialect(header=False))
    assert read(tmp_path / "t.csv", schema)["a"].tolist() == [1.0, 2.0]
    with pytest.raises(SourceError, match="has 2 where the schema has 1"):
        open_table(tmp_path / "t.csv", schema=replace(schema, columns=columns[:1]))


def test_parquet_files_of_a_folder_must_agree_and_folders_may_name_a_column(tmp_path: Path) -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=9)])
    for year, x in ((2023, 1.0), (2024, 2.0)):
        part = tmp_path / "t" / f"year={year}"
        part.mkdir(parents=True)
        pl.DataFrame({"x": [x]}).write_parquet(part / "a.parquet")
    (tmp_path / "t" / "_SUCCESS").touch()
    assert read(tmp_path / "t", schema)["x"].tolist() == [1.0, 2.0]
    with open_table(tmp_path / "t") as table:
        assert table.names == ("x", "year")
    assert read(f"{tmp_path}/t/*/*.parquet", schema)["x"].tolist() == [1.0, 2.0]
    pl.DataFrame({"y": [1.0]}).write_parquet(tmp_path / "t" / "year=2024" / "b.parquet")
    with pytest.raises(SourceError, match="same columns"):
        read(tmp_path / "t", schema)
    with pytest.raises(SourceError, match="Parquet files, and there is none"):
        read(f"{tmp_path}/no*.parquet", schema)


def test_parquet_files_of_a_folder_may_have_their_columns_in_any_order(tmp_path: Path) -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=9), Column("y", lower=0, upper=9)])
    pl.DataFrame({"x": [1.0], "y": [2.0]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"y": [4.0], "x": [3.0]}).write_parquet(tmp_path / "b.parquet")
    rows = read(tmp_path, schema)
    assert (rows["x"].tolist(), rows["y"].tolist()) == ([1.0, 3.0], [2.0, 4.0])
    # DuckDB takes names that differ by case alone for one, so they are found by their places.
    for name, columns in (("a", ("x", "X")), ("b", ("X", "x"))):
        pl.DataFrame({column: [1.0] for column in columns}).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match="same columns"):
        read(tmp_path, schema)


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("b.csv", r"Several text files.*COPY \(FROM read_csv.*join them into one"),
        ("b.TXT.gz", "Several text files"),
        ("b.parquet.gz", "Write it as Parquet, move it elsewhere, or give a pattern"),
        ("b.orc", "Write it as Parquet"),
        ("year=2025/b", "Write it as Parquet"),
    ],
)
def test_a_folder_with_rows_in_other_files_is_refused(tmp_path: Path, name: str, way_out: str) -> None:
    folder = tmp_path / "t"
    schema = Schema(columns=[Column("x", lower=0, upper=9)])
    for i, known in enumerate(
        ("a.parquet", "B.PARQUET", "c.pq", "_temporary/0/d.csv", ".e.csv", "a.parquet.md5")
    ):
        path = folder / known
        path.parent.mkdir(parents=True, exist_ok=True)
        pl.DataFrame({"x": [float(i)]}).write_parquet(path)
    assert sorted(read(folder, schema)["x"].tolist()) == [0.0, 1.0, 2.0]
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"x\n5\n")
    with pytest.raises(SourceError, match=rf"Parquet files alone, and '.*{name}' is none\. {way_out}"):
        read(folder, schema)
    assert read(f"{folder}/*.parquet", schema)["x"].tolist() == [0.0]


@pytest.mark.parametrize("kind", ["folder", "nothing", "loop", "pipe", "closed"])
def test_what_may_stand_for_rows_in_a_folder_is_never_left_out(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, other = tmp_path / "t", tmp_path / "other"
    for place in (folder, other):
        place.mkdir()
        pl.DataFrame({"x": [1.0]}).write_parquet(place / "a.parquet")
    schema = Schema(columns=[Column("x", lower=0, upper=9)])
    odd = folder / "more"
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "closed":
        odd.mkdir()
        monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may read everything
    else:
        odd.symlink_to({"folder": other, "nothing": tmp_path / "gone", "loop": odd}[kind])
    with pytest.raises(SourceError, match=r"more' (is|leads)"):
        read(folder, schema)
    if kind != "closed":
        (folder / "_more").symlink_to(other)  # as Spark names what is no data
        odd.unlink()
        assert read(folder, schema)["x"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (pl.Series([123456789, 16777217], dtype=pl.Int64), pl.Series([7.0, 1.5], dtype=pl.Float32)),
        (pl.Series([2**53 + 1, 1], dtype=pl.Int64), pl.Series([0.5, 1.5])),
        (pl.Series(["1.25"]).cast(pl.Decimal(38, 2)), pl.Series(["2"]).cast(pl.Decimal(38, 0))),
        (pl.Series(["1.25"]).cast(pl.Decimal(10, 2)), pl.Series([0.5], dtype=pl.Float32)),
        (pl.Series([1, 2]), pl.Series(["1", "2"])),
    ],
    ids=["float", "beyond 2^53", "scales", "decimal and float", "text"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_types_of_which_none_holds_all_cells_are_refused(
    tmp_path: Path, one: pl.Series, two: pl.Series, turned: bool
) -> None:
    for name, cells in zip("ba" if turned else "ab", (one, two), strict=True):
        pl.DataFrame({"x": cells}).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match=r"same types in each file, and 'x' is .* in '[ab]\.parquet' and"):
        read(tmp_path, Schema(columns=[Column("x", lower=0, upper=9)]))


def test_the_file_that_cannot_be_read_with_the_others_is_named(tmp_path: Path) -> None:
    for name, cells in {"a": [1, 2], "b": [0.5, 1.5], "c": [2**60, 2]}.items():
        pl.DataFrame({"x": cells}).write_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(SourceError, match=r"DOUBLE in 'b\.parquet' and BIGINT in 'c\.parquet'"):
        read(tmp_path, Schema(columns=[Column("x", lower=0, upper=9)]))


@pytest.mark.parametrize("first", ["a", "b"])
def test_files_of_other_types_are_read_as_they_are(tmp_path: Path, first: str) -> None:
    """The type of the first file alone would round or refuse cells of the others."""
    parts: dict[str, tuple[Any, Any]] = {
        "n": ([1, 2], [0.5, 1.75]),
        "m": (np.array([7, 8], np.int8), np.array([2**40, 3])),
        "f": (np.array([0.25, 1.5], np.float32), np.array([0.1, 1e-300])),
        "w": (["x", "y"], ["y", None]),
        "e": ([None, None], [0.5, 2.5]),
    }
    for i in range(2):
        name = "ab"[i if first == "a" else 1 - i]
        columns = {column: cells[i] for column, cells in parts.items()}
        pl.DataFrame(columns).write_parquet(tmp_path / f"{name}.parquet")
    schema = Schema(
        columns=[
            Column("n", lower=0, upper=9),
            Column("m", type="integer", lower=0, upper=2**41),
            Column("f", lower=0, upper=9),
            Column("w", values=("x", "y"), required=False),
            Column("e", lower=0, upper=9, required=False),
        ]
    )
    found = read(tmp_path, schema)
    for name, (one, two) in parts.items():
        cells = [*one, *two] if first == "a" else [*two, *one]
        if name == "w":
            levels = schema.column(name).levels
            assert [str(levels[code]) for code in found[name]] == list(map(str, cells))
        else:
            expected = [np.nan if cell is None else float(cell) for cell in cells]
            assert np.array_equal(found[name], expected, equal_nan=True)


def test_a_pattern_of_text_files_says_how_to_make_one_of_them(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("x\n5\n")
    with pytest.raises(SourceError, match=r"'.*a\.csv' is none\. Several text files are no table here"):
        open_table(f"{tmp_path}/*.csv")


def test_a_list_may_have_values_with_blanks_around_them() -> None:
    schema = Schema(columns=[Column("x", values=(" a", "b"), closed=True)])
    assert read({"x": [" a", "b"]}, schema)["x"].tolist() == [0, 1]
    with pytest.raises(DiscreetError):
        read({"x": ["a"]}, schema)
    with pytest.raises(SchemaError, match="both true and false"):
        Column("x", values=(False, True), text=TextFormat(true_values=("ja",), false_values=("ja",)))


@pytest.mark.parametrize(
    ("log", "file", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "part-0.parquet", "a Delta"),
        ("_delta_log/00000000000000000000.json", "year=2024/part-0.parquet", "a Delta"),
        ("metadata/v1.metadata.json", "data/part-0.parquet", "an Iceberg"),
        ("metadata/v12.metadata.json.gz", "data/part-0.parquet", "an Iceberg"),
        ("metadata/00000-58aee7f8-2a4b.metadata.json", "data/day=1/part-0.parquet", "an Iceberg"),
        (".hoodie/hoodie.properties", "part-0.parquet", "a Hudi"),
    ],
)
def test_files_of_a_table_with_a_log_are_refused(tmp_path: Path, log: str, file: str, kind: str) -> None:
    """Such folders keep the files of rows that were deleted: only the log says which are current."""
    table = tmp_path / "lake" / "people"
    (table / file).parent.mkdir(parents=True)
    pl.DataFrame({"x": [1.0, 2.0]}).write_parquet(table / file)
    with open_table(table) as plain:  # plain Parquet, as long as there is no log
        assert "x" in plain.names
    (table / log).parent.mkdir()
    (table / log).write_text("{}", encoding="utf-8")
    link = tmp_path / "link.parquet"
    link.symlink_to(table / file)
    linked = table / file.replace("part-0", "part-1")
    pl.DataFrame({"x": [1.0]}).write_parquet(tmp_path / "elsewhere.parquet")
    linked.symlink_to(tmp_path / "elsewhere.parquet")
    patterns = (table / file).with_name("*.parquet")
    for source in (table, tmp_path / "lake", table / file, patterns, link, linked):
        with pytest.raises(SourceError, match=f"people' is {kind} table.* deleted or replaced"):
            open_table(source)
    for source in (table / file, patterns):
        with pytest.raises(SourceError, match=f"people' is {kind} table"):
            open_frame(f"spark://local?table={source}")  # by a path Spark would not read the log either


def test_a_folder_of_descriptions_beside_a_table_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "study.metadata.json").write_text("{}", encoding="utf-8")
    (tmp_path / "_delta_log").mkdir()  # about the Parquet files of this folder, and no others
    (tmp_path / "x.csv").write_text("x\n1\n2\n", encoding="utf-8")
    schema = Schema(columns=[Column("x", lower=0, upper=9)], dataset="t")
    assert read(tmp_path / "x.csv", schema)["x"].tolist() == [1.0, 2.0]
    with Database(tmp_path / "x.csv", schema=schema, ledger=tmp_path / "x.ledger") as database:
        assert database.n_rows == 2
    (tmp_path / "_delta_log").rmdir()
    pl.DataFrame({"x": [1.0, 2.0]}).write_parquet(tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet", schema)["x"].tolist() == [1.0, 2.0]
