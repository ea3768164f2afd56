from __future__ import annotations

import gzip
from dataclasses import replace
from typing import TYPE_CHECKING

import duckdb
import pytest

from discreet.errors import DataError, DiscreetError, SchemaError, SourceError
from discreet.schema import Column, Dialect, Schema
from discreet.tables import open_table
from tests.tables.people import unprivileged, whole_chain

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = Schema(columns=[Column("age", lower=0, upper=120), Column("job", values=("clerk", "nurse"))])
GOOD = b"age,job\n17,clerk\n18,nurse\n"


def read(path: Path | str, dialect: Dialect | None = None) -> list[tuple[float, int]]:
    schema = replace(SCHEMA, dialect=dialect)
    with open_table(path, schema=schema) as table:
        return [
            pair
            for batch in table.batches(schema)
            for pair in zip(batch["age"].tolist(), batch["job"].tolist(), strict=True)
        ]


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        GOOD.replace(b",", b";"),
        GOOD.replace(b",", b"\t"),
        GOOD.replace(b",", b"|"),
        GOOD[:-1],
        GOOD.replace(b"\n", b"\n\n"),
        b'"age","job"\n"17","clerk"\n"18","nurse"\n',
        b'job,"what, where\nand ""when""",age\nclerk,"a\nb,c",17\nnurse,"""",18\n',
        b'job;"a,b,c,d";age\nclerk;1;17\nnurse;2;18\n',
    ],
)
def test_csv_of_every_make_is_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    assert read(tmp_path / "t.csv") == [(17.0, 0), (18.0, 1)]
    (tmp_path / "t.CSV.GZ").write_bytes(gzip.compress(content))
    assert read(tmp_path / "t.CSV.GZ") == [(17.0, 0), (18.0, 1)]


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        (b"", SourceError, "is empty"),
        (b"\n\n", SourceError, "line of column names"),
        (b"17,clerk\n18,nurse\n", SchemaError, "'age'"),
        (b"age,job,age\n1,clerk,2\n", SourceError, "columns 1 and 3 have the same name"),
        (b",age,job\n0,17,clerk\n", SourceError, "index=False"),
        (b"\x00\x01\x02\xff\xfe" * 100, SourceError, "is not"),
        (b"age\x00,job\n1,clerk\n", SourceError, "line of column names"),
        (b"x" * 3_000_000, SourceError, "line of column names"),
        ("age,job\n17,caf\xe9-SECRET\n".encode("latin-1"), SourceError, "encoding: windows-1252"),
        ("\xe2ge,job\n17,clerk\n".encode("latin-1"), SourceError, "encoding: windows-1252"),
        ("age,job\n17,clerk\n".encode("utf-16")[:-1], SourceError, "is not"),
        (b"age,job\n17,clerk\n18,SECRET,x\n", DataError, "line 3"),
        (b"age,job\n17,clerk\nSECRET\n", DataError, "line 3"),
        (b'age,job\n17,clerk\n18,"SECRET\n', DataError, "double quote"),
        (b"age,job\n17,clerk\r18,SECRET\n", SourceError, "line end"),
        (b"age,job\n17," + b"SECRET" * 600_000 + b"\n", DataError, "longer than any line"),
        (b"PK\x03\x04\x14\x00\x06\x00", SourceError, "line of column names"),
    ],
)
def test_a_broken_text_file_is_explained_without_quoting_it(
    tmp_path: Path, content: bytes, error: type[DiscreetError], says: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(error) as caught:
        read(path)
    said = str(caught.value)
    assert says in said
    assert len(said) < 600
    assert "SECRET" not in whole_chain(caught.value)


def test_a_ragged_line_is_named_as_an_editor_counts_it(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b'"a\nge",age,job\n' + b"0,17,clerk\n" * 5000 + b"0,18\n")
    with pytest.raises(DataError) as caught:
        read(path)
    assert caught.value.line == 5003


def test_a_wrong_delimiter_shows_as_absent_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(GOOD)
    with pytest.raises(SchemaError, match="'age,job'"):
        read(path, Dialect(delimiter=";"))
    assert len(read(path, Dialect(delimiter=","))) == 2


def test_latin_1_is_read_when_said(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("âge,job\n17,café\n".encode("latin-1"))
    columns = [Column("âge", lower=0, upper=99), Column("job", values=("café",))]
    schema = Schema(columns=columns, dialect=Dialect(encoding="latin-1"))
    with open_table(path, schema=schema) as table:
        (batch,) = table.batches(schema)
    assert (batch["âge"].tolist(), batch["job"].tolist()) == ([17.0], [0])


@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.999])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, part: float) -> None:
    rows = b"".join(b"%d,clerk\n" % (i * i * 7919 % 120) for i in range(40_000))
    path = tmp_path / "t.csv.gz"
    whole = gzip.compress(b"age,job\n" + rows)
    path.write_bytes(whole[: int(part * len(whole))] if part else GOOD)
    with pytest.raises(SourceError, match="gzip"):
        read(path)


@pytest.mark.parametrize("cut", [1, 4, 8, 300, -1, -8])
def test_a_parquet_file_cut_short_is_named(tmp_path: Path, cut: int) -> None:
    whole = tmp_path / "whole.parquet"
    duckdb.connect().execute(f"COPY (SELECT 17.0 AS age, 'clerk' AS job FROM range(1000)) TO '{whole}'")
    path = tmp_path / "t.parquet"
    path.write_bytes(whole.read_bytes()[:cut])
    with pytest.raises(SourceError, match="cut short"):
        read(path)


def test_damage_inside_a_parquet_file_is_named(tmp_path: Path) -> None:
    whole = tmp_path / "whole.parquet"
    duckdb.connect().execute(
        f"COPY (SELECT 17.0 AS age, 'SECRET' || i AS job FROM range(1000) r(i)) TO '{whole}'"
    )
    content = bytearray(whole.read_bytes())
    footer = int.from_bytes(content[-8:-4], "little")
    content[-8 - footer : -8] = b"\xff" * footer
    path = tmp_path / "t.parquet"
    path.write_bytes(bytes(content))
    with pytest.raises(SourceError, match="cannot be read") as caught:
        read(path)
    assert "type" not in whole_chain(caught.value)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.duckdb", "t.duckdb?table=x"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="No such file"):
        open_table(f"{tmp_path}/{name}")


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.duckdb", "plain"])
def test_a_folder_is_no_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(SourceError, match="folder"):
        open_table(tmp_path / name)


@pytest.mark.parametrize("name", ["t.csv", "t.parquet", "t.duckdb"])
def test_a_file_without_permission_is_named(name: str) -> None:
    with unprivileged() as folder:
        (folder / name).write_bytes(GOOD)
        (folder / name).chmod(0)
        with pytest.raises(SourceError, match="Permission denied"):
            open_table(folder / name)


def test_an_error_of_the_system_is_passed_on_in_its_words(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.symlink_to(path)
    with pytest.raises(SourceError, match="symbolic links"):
        open_table(path)


@pytest.mark.parametrize(
    "source", ["t.xlsx", "t", "https://example.org/t.csv", "s3://b/t.parquet", "", "duckdb://"]
)
def test_other_places_are_refused(source: str) -> None:
    with pytest.raises(SourceError):
        open_table(source)


@pytest.mark.parametrize(
    ("source", "way_out"),
    [
        ("S3://b/t.parquet", "aws s3 sync"),
        ("gcs://b/t", "gcloud storage rsync"),
        ("wasbs://c@a.blob.core/t", "azcopy"),
        ("file:///tmp/t.parquet", "Leave out file://"),
        ("mysql://root:hunter2@db/people", "export the declared columns"),
        ("jdbc:postgresql://root:hunter2@db/people", "export the declared columns"),
        ("https://root:hunter2@db/people.csv", "Download"),
    ],
)
def test_tables_elsewhere_are_refused_with_a_way_and_without_a_password(source: str, way_out: str) -> None:
    with pytest.raises(SourceError, match=way_out) as caught:
        open_table(source)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("name", ["t.csv.bz2", "t.csv.zst", "t.zip", "t.csv.xz"])
def test_other_ways_to_compress_are_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(GOOD)
    with pytest.raises(SourceError, match="with gzip"):
        open_table(tmp_path / name)


def test_a_path_without_a_known_end_that_leads_nowhere_is_missing(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="No such file"):
        open_table(tmp_path / "people")


@pytest.mark.parametrize("name", ["a*b.csv", "a[1].csv", "a?b.csv", "a'b.csv", "a{b}.csv", "k=1.csv"])
def test_a_path_names_one_file_whatever_signs_it_has(tmp_path: Path, name: str) -> None:
    for other in ("aXb.csv", "a1.csv", "ab.csv"):
        (tmp_path / other).write_bytes(b"age,job\n99,nurse\n")
    (tmp_path / name).write_bytes(GOOD)
    assert read(f"{tmp_path}/{name}") == [(17.0, 0), (18.0, 1)]


def test_the_table_of_a_duckdb_file_is_found_or_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE \"o.d;d\" AS SELECT 17 AS age, 'clerk' AS job")
    assert read(path) == [(17.0, 0)]
    assert read(f'{path}?table="o.d;d"') == [(17.0, 0)]
    assert read(f'duckdb://{path}?table=main."O.d;D"') == [(17.0, 0)]
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE VIEW two AS SELECT 18 AS age, 'nurse' AS job")
    with pytest.raises(SourceError, match=r"main\.o\.d;d, main\.two"):
        read(path)
    assert read(f"{path}?table=two") == [(18.0, 1)]
    for wrong in ("three", "other.two", "a.main.two"):
        with pytest.raises(SourceError, match="must hold the table"):
            read(f"{path}?table={wrong}")
    with pytest.raises(SourceError, match="double quotes"):
        read(f'{path}?table="two')


def test_what_is_no_duckdb_file_is_named_and_one_in_use_too(tmp_path: Path) -> None:
    (tmp_path / "t.duckdb").write_bytes(b"x" * 9000)
    with pytest.raises(SourceError, match="must be a DuckDB database"):
        open_table(tmp_path / "t.duckdb")


def test_a_duckdb_file_is_not_changed_by_reading(tmp_path: Path) -> None:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 17 AS age, 'clerk' AS job")
    before = path.read_bytes()
    read(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["t.duckdb"]
