from __future__ import annotations

import datetime
import itertools
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from discreet.errors import DataError, ParameterError, SchemaError, SourceError
from discreet.schema import Column, Schema
from discreet.tables import Table, open_table
from discreet.tables.cell_encoding import NO_ID, projection
from tests.tables.people import ENCODED, KINDS, SCHEMA, people, same
from tests.workers import select

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=KINDS)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    with people(request.param, tmp_path, url) as source, open_table(source) as opened:
        yield opened


def read(source: Any, schema: Schema, **options: Any) -> dict[str, Any]:
    with open_table(source, schema=schema, **options) as table:
        batches = list(table.batches(schema))
    return {
        column.name: np.concatenate([batch[column.name] for batch in batches]) for column in schema.released
    }


def test_every_source_gives_the_same_bits(table: Table) -> None:
    (batch,) = table.batches(SCHEMA)
    assert list(batch) == list(ENCODED)
    assert batch.n_rows == 4
    for name, wanted in ENCODED.items():
        assert same(batch[name], wanted), name


def test_every_source_counts_its_rows(table: Table) -> None:
    assert table.count() == 4


def test_every_source_tells_names_and_types(table: Table, request: pytest.FixtureRequest) -> None:
    names = "person weight age born job children owner notes undeclared"
    assert " ".join(table.names) == names
    types = {name: field.type for name, field in table.draft().fields.items()}
    assert types["job"] == types["person"] == types["notes"] == "string"
    assert types["weight"] == "number"
    assert types["children"] == "integer"
    assert types["owner"] == "boolean"
    # Arrays of moments say nothing about days, and no cell is read.
    timed = any(source in request.node.name for source in ("pandas", "arrays"))
    assert types["born"] == ("datetime" if timed else "date")


def test_every_source_can_be_read_twice_and_half(table: Table) -> None:
    batches = table.batches(SCHEMA, rows=1)
    assert next(batches)["age"][0] == 17.0
    again = list(table.batches(SCHEMA)) if "postgresql" not in table.label else []
    batches.close()  # type: ignore[attr-defined]
    again = again or list(table.batches(SCHEMA))
    assert same(again[0]["age"], ENCODED["age"])
    assert table.count() == 4


def test_undeclared_columns_are_listed_and_not_read(table: Table) -> None:
    assert table.extra(SCHEMA) == ("undeclared",)
    (batch,) = table.batches(SCHEMA)
    assert not {"undeclared", "notes", "person"} & set(batch)


def test_ids_are_read_only_when_asked_for(table: Table) -> None:
    (without,) = table.batches(SCHEMA)
    (batch,) = table.batches(SCHEMA, ids=True)
    assert without.ids is None
    assert batch.ids is not None
    assert batch.ids.dtype == np.uint64
    assert batch.ids[0] == batch.ids[2]
    assert len(set(batch.ids.tolist())) == 3
    assert list(batch) == list(ENCODED)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 100])
def test_batches_have_the_rows_asked_for_in_order(rows: int) -> None:
    n = 10
    schema = Schema(columns=[Column("x", lower=0, upper=n)])
    with open_table({"x": np.arange(float(n))}) as table:
        batches = list(table.batches(schema, rows=rows))
    assert [batch.n_rows for batch in batches[:-1]] == [rows] * (len(batches) - 1)
    assert np.concatenate([batch["x"] for batch in batches]).tolist() == list(range(n))
    assert [batch.start for batch in batches] == list(range(0, n, rows))


@pytest.mark.slow
def test_a_long_table_keeps_its_order_across_row_groups_and_threads(tmp_path: Path) -> None:
    n = 700_000
    query = f"SELECT i AS x, 'level' || i % 70 AS c, i::DOUBLE AS y FROM range({n}) r(i)"
    # Long lists: an engine is tempted to look them up by a join, which mixes the rows.
    schema = Schema(
        columns=[
            Column("x", lower=0, upper=n),
            Column("y", lower=0, upper=n, required=False),
            Column("c", values=tuple(f"level{i}" for i in range(60))),
        ],
        missing_values=tuple(str(-i) for i in range(1, 40)),
    )
    for kind in ("parquet", "csv", "polars", "relation", "duckdb"):
        with people(kind, tmp_path, query=query) as source, open_table(source) as table:
            at = 0
            for batch in table.batches(schema):
                wanted = np.arange(at, at + batch.n_rows)
                assert (batch["x"] == wanted).all(), kind
                assert (batch["y"] == wanted).all(), kind
                assert (batch["c"] == np.minimum(wanted % 70, 60)).all(), kind
                assert batch.n_rows == min(2**16, n - at)
                at += batch.n_rows
            assert at == n


def test_a_view_that_picks_rows_from_a_long_list_keeps_their_order(tmp_path: Path) -> None:
    chosen = ", ".join(f"'level{i}'" for i in range(0, 60, 2))
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE t AS SELECT i AS x, 'level' || i % 60 AS c FROM range(600000) r(i)")
        connection.execute(f"CREATE VIEW v AS SELECT x FROM t WHERE c IN ({chosen})")
    schema = Schema(columns=[Column("x", lower=0, upper=1e6)])
    assert (read(f"{path}?table=v", schema)["x"] == np.arange(0, 600_000, 2)).all()


def test_small_tables_in_memory_are_scanned_side_by_side_without_seeing_one_another() -> None:
    schema = Schema(columns=[Column("x", type="integer", lower=0, upper=99), Column("c", values=("a", "b"))])

    def total(k: int) -> tuple[float, int, int]:
        rows = {"x": np.full(3000 + k, k), "c": np.array(["a", "b"] * 1500 + ["b"] * k)}
        with open_table(rows) as table, open_table({"x": np.arange(3), "c": np.array(["a"] * 3)}) as other:
            found = [(b["x"].sum(), b["c"].sum()) for b in table.batches(schema)]
            assert other.count() == 3
            return float(sum(x for x, _ in found)), int(sum(c for _, c in found)), table.count()

    with ThreadPoolExecutor(8) as pool:
        for k, (x, c, n) in enumerate(pool.map(total, range(24))):
            assert (x, c, n) == (k * (3000 + k), 1500 + k, 3000 + k)


@pytest.mark.slow
def test_a_forked_process_reads_tables_too() -> None:
    def count() -> int:
        with open_table({"x": np.arange(7)}) as table:
            return table.count()

    assert count() == 7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's own, about threads that other tests left waiting
        pid = os.fork()
    if pid == 0:
        os._exit(count())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_leaving_early_does_not_read_the_rest(tmp_path: Path) -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=1)])
    query = "SELECT CASE WHEN i = 2_900_000 THEN 'bad' ELSE '1' END AS x FROM range(3_000_000) r(i)"
    with people("csv", tmp_path, query=query) as source, open_table(source) as table:
        assert len(list(itertools.islice(table.batches(schema), 3))) == 3
        with pytest.raises(DataError) as caught:
            list(table.batches(schema))
        assert caught.value.line == 2_900_001


NUMBER = Schema(columns=[Column("x", lower=-10, upper=10, required=False)])


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("1e400", 10.0),
        ("-1e400", -10.0),
        ("inf", 10.0),
        ("-Infinity", -10.0),
        ("nan", np.nan),
        ("NaN", np.nan),
        ("", np.nan),
        ('""', np.nan),
        ("99", 10.0),
        ("-0.0", 0.0),
        ("0.1", 0.1),
        ("5e-324", 5e-324),
    ],
)
def test_a_number_is_parsed_exactly_and_clipped(tmp_path: Path, cell: str, wanted: float) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"x,y\n{cell},1\n")
    assert same(read(path, NUMBER)["x"], np.array([wanted]))


@pytest.mark.parametrize("cell", ["abc", "1,5", "12 3", "true", "0x1F", "2020-01-01", "１２"])
def test_letters_in_a_number_are_named_by_row_and_column_and_not_quoted(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f'x,y\n1,1\n\n"{cell}",SECRET\n')
    with pytest.raises(DataError) as caught:
        read(path, NUMBER)
    assert caught.value.column == "x"
    assert caught.value.line == 2
    assert "row 2" in str(caught.value)
    assert cell not in str(caught.value)
    assert "SECRET" not in str(caught.value)


def test_the_first_bad_cell_is_named_even_far_down(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    cells = ["1"] * 200_000
    cells[150_000] = cells[170_000] = "bad"
    path.write_text("x\n" + "\n".join(cells) + "\n")
    with pytest.raises(DataError) as caught:
        read(path, NUMBER)
    assert caught.value.line == 150_001


def test_a_fraction_is_no_whole_number() -> None:
    schema = Schema(columns=[Column("x", type="integer", lower=0, upper=9)])
    assert read({"x": [3.0, 1e300]}, schema)["x"].tolist() == [3.0, 9.0]
    with pytest.raises(DataError, match="whole number"):
        read({"x": [3.0, 3.5]}, schema)


@pytest.mark.parametrize(
    "column",
    [
        Column("x", lower=0, upper=9),
        Column("x", type="integer", lower=0, upper=9),
        Column("x", lower=datetime.date(2000, 1, 1), upper=datetime.date(2001, 1, 1)),
        Column("x", values=("a", "b")),
        Column("x", values=(0, 1)),
        Column("x", values=(True, False)),
    ],
)
def test_a_missing_cell_where_one_is_required_is_named(tmp_path: Path, column: Column) -> None:
    path = tmp_path / "t.csv"
    good = {"date": "2000-05-05", "category": str((column.values or ("",))[0])}
    path.write_text(f"x,y\n{good.get(column.type or '', '1')},1\n,1\n")
    with pytest.raises(DataError, match="hold something") as caught:
        read(path, Schema(columns=[column]))
    assert (caught.value.column, caught.value.line) == ("x", 2)


def test_declared_tokens_are_missing_and_others_are_not(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,job\n-999,?\n1,clerk\n,\n")
    columns = [
        Column("x", lower=-1000, upper=10, required=False),
        Column("job", values=("clerk",), required=False),
    ]
    schema = Schema(columns=columns, missing_values=("", "-999", "?"))
    found = read(path, schema)
    assert same(found["x"], np.array([np.nan, 1.0, np.nan]))
    assert found["job"].tolist() == [2, 0, 2]
    plain = read(path, Schema(columns=columns))
    assert same(plain["x"], np.array([-999.0, 1.0, np.nan]))
    assert plain["job"].tolist() == [1, 0, 2]


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.float32, np.int16])
def test_a_number_token_is_missing_in_typed_columns_too(dtype: type) -> None:
    schema = Schema(columns=NUMBER.columns, missing_values=("-999",))
    found = read({"x": np.array([-999, 4], dtype)}, schema)["x"]
    assert same(found, np.array([np.nan, 4.0]))


def test_an_unknown_value_is_other_in_an_open_list_and_an_error_in_a_closed_one() -> None:
    cells = {"x": ["a", "b", "SECRET"]}
    opened = Schema(columns=[Column("x", values=("b", "a"))])
    assert read(cells, opened)["x"].tolist() == [1, 0, 2]
    closed = Schema(columns=[Column("x", values=("b", "a"), closed=True)])
    with pytest.raises(DataError) as caught:
        read(cells, closed)
    assert (caught.value.column, caught.value.line) == ("x", 3)
    assert "SECRET" not in str(caught.value)


def test_other_is_used_where_it_is_listed() -> None:
    schema = Schema(columns=[Column("x", values=("Other", "a"))])
    assert read({"x": ["a", "q", "Other"]}, schema)["x"].tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    "cells",
    [["0", "1", "1.0"], [0, 1, 1], [0.0, 1.0, 1.0], [False, True, True], np.array([0, 1, 1], "i1")],
)
def test_integer_levels_are_found_however_the_source_spells_them(cells: Any) -> None:
    schema = Schema(columns=[Column("x", values=(1, 0))])
    assert read({"x": cells}, schema)["x"].tolist() == [1, 0, 0]


@pytest.mark.parametrize("cells", [["0.5"], [0.5], [2], ["one"], [1e300], [-1.0]])
def test_what_is_not_an_integer_level_is_an_error(cells: Any) -> None:
    with pytest.raises(DataError, match="declared values"):
        read({"x": cells}, Schema(columns=[Column("x", values=(1, 0))]))


@pytest.mark.parametrize("cells", [["true", "false"], ["TRUE", "0"], [True, False], [1, 0], [1.0, 0.0]])
def test_boolean_levels_are_found_however_the_source_spells_them(cells: Any) -> None:
    schema = Schema(columns=[Column("x", values=(False, True))])
    assert read({"x": cells}, schema)["x"].tolist() == [1, 0]
    with pytest.raises(DataError):
        read({"x": [2, 0]}, schema)


INTEGER_TYPES = ["TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DECIMAL(20, 0)", "BIGNUM"]
INTEGER_TYPES += ["UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT"]


@pytest.mark.parametrize("sql_type", INTEGER_TYPES)
def test_integers_of_every_type_are_coded_as_their_texts_are(sql_type: str) -> None:
    """Also unlisted ones, those that no double or 64-bit number holds, and one that stands for missing."""
    candidates = ["0", "1", "2", "7", "99", "-3", "-1", "300", "70000"]
    candidates += [str(2**53 + step) for step in (-1, 0, 1)] + [str(-(2**53)), str(2**63), str(2**64 + 1)]
    casts = ", ".join(f"TRY_CAST('{cell}' AS {sql_type})" for cell in candidates)
    (row,) = select(f"SELECT {casts}").fetchall()
    cells = [cell for cell, value in zip(candidates, row, strict=True) if value is not None]
    assert {"0", "1", "2", "7", "99"} <= set(cells)
    schema = Schema(
        columns=[
            Column("k", values=(7, 1, -3, 0, 2**53 - 1), required=False),
            Column("n", type="integer", lower=-(2**53), upper=2**53, required=False),
        ],
        missing_values=("99",),
    )
    coded = []
    for kind in (sql_type, "VARCHAR"):
        listed = ", ".join(f"(CAST('{cell}' AS {kind}))" for cell in cells)
        rows = f"(SELECT x AS c0, x AS c1 FROM (VALUES {listed}, (NULL)) AS rows(x))"
        coded.append(select(projection(schema.columns, [0, 1], [kind] * 2, schema, rows)).fetchall())
    assert repr(coded[0]) == repr(coded[1])
    found = dict(zip([*cells, None], (code for code, _ in coded[0]), strict=True))
    assert (found["7"], found["1"], found["0"]) == (0, 1, 3)
    assert found["2"] is None  # not listed
    assert found["99"] == found[None] == 5  # missing


def test_string_levels_of_digits_match_numbers_with_gaps() -> None:
    schema = Schema(columns=[Column("x", values=("1", "2", "2.5"), required=False)])
    found = read({"x": np.array([2.0, np.nan, 1.0, 2.5, 7.0])}, schema)["x"]
    assert found.tolist() == [1, 4, 0, 2, 3]


def test_dates_count_days_from_the_lower_bound(tmp_path: Path) -> None:
    day = datetime.date
    schema = Schema(columns=[Column("x", lower=day(2000, 1, 1), upper=day(2000, 12, 31))])
    path = tmp_path / "t.csv"
    path.write_text("x\n2000-01-31\n1066-10-14\n9999-12-31\n2000-03-01 23:59:59\ninfinity\n")
    assert read(path, schema)["x"].tolist() == [30.0, 0.0, 365.0, 60.0, 365.0]
    path.write_text("x\n2000-02-30\n")
    with pytest.raises(DataError, match="date"):
        read(path, schema)


def test_a_moment_belongs_to_its_day_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    moment = datetime.datetime(2000, 1, 2, 23, 30, tzinfo=datetime.UTC)
    day = datetime.date
    schema = Schema(columns=[Column("x", lower=day(2000, 1, 1), upper=day(2000, 12, 31))])
    assert read(pl.DataFrame({"x": [moment]}), schema)["x"].tolist() == [1.0]


def test_a_declared_column_that_is_absent_is_named_at_once_with_the_nearest() -> None:
    schema = Schema(columns=[Column("wieght", lower=0, upper=1), Column("zzz", lower=0, upper=1)])
    with (
        open_table({"weight": [1.0]}) as table,
        pytest.raises(SchemaError) as caught,
    ):
        table.batches(schema)
    assert len(caught.value.problems) == 2
    assert "Did you mean 'weight'?" in caught.value.problems[0]


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (Column("x", lower=0, upper=1), np.array(["2000-01-01"], "M8[D]")),
        (Column("x", values=(0, 1)), np.array(["2000-01-01"], "M8[D]")),
        (Column("x", lower=datetime.date(2000, 1, 1), upper=datetime.date(2001, 1, 1)), [3.0]),
    ],
)
def test_a_type_that_cannot_be_read_as_declared_is_named_at_once(column: Any, cells: Any) -> None:
    with open_table({"x": cells}) as table, pytest.raises(SchemaError, match="'x'"):
        table.batches(Schema(columns=[column]))


HOSTILE = (
    'a"b', "a'b", "x;DROP TABLE t", "select", "имя", "a b", "--", "c0", "e0", "\\", "%s",
    "{x}", "*", "n" * 150, "💥", "source",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_names_are_only_names(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    names = [name for name in HOSTILE if kind != "postgres" or len(name) < 63]
    cells = ", ".join(f"{i} AS " + '"' + n.replace('"', '""') + '"' for i, n in enumerate(names))
    schema = Schema(columns=[Column(name, lower=0, upper=100) for name in reversed(names)])
    with people(kind, tmp_path, url, f"SELECT {cells}") as source:
        found = read(source, schema)
    assert [found[name].tolist() for name in names] == [[float(i)] for i in range(len(names))]


def test_names_that_differ_by_case_alone_stay_apart(tmp_path: Path) -> None:
    import polars as pl

    schemas = {name: Schema(columns=[Column(name, lower=0, upper=9)]) for name in ("Age", "age")}
    frame = pl.DataFrame({"Age": [1], "age": [2]})
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_csv(tmp_path / "t.csv")
    for source in (frame, frame.to_pandas(), tmp_path / "t.parquet", tmp_path / "t.csv"):
        assert read(source, schemas["Age"])["Age"].tolist() == [1.0]
        assert read(source, schemas["age"])["age"].tolist() == [2.0]


def test_nested_columns_do_not_shift_the_names_of_a_parquet_file(tmp_path: Path) -> None:
    people_query = "SELECT {'a': 1, 'b': [{'c': 2}]} AS nest, [1, 2] AS list, 5 AS x, MAP {1: 2} AS m"
    with people("parquet", tmp_path, query=people_query) as source, open_table(source) as table:
        assert table.names == ("nest", "list", "x", "m")
        (batch,) = table.batches(NUMBER)
        assert batch["x"].tolist() == [5.0]
        with pytest.raises(SchemaError, match="nest"):
            table.batches(Schema(columns=[Column("nest", lower=0, upper=1)]))


def test_a_table_without_rows_gives_no_batch(tmp_path: Path) -> None:
    query = "SELECT 1.0::DOUBLE AS x WHERE false"
    for kind in ("csv", "csv.gz", "parquet", "duckdb", "relation", "pandas", "polars", "arrays"):
        with people(kind, tmp_path, query=query) as source, open_table(source) as table:
            assert list(table.batches(NUMBER)) == []
            assert table.count() == 0


@pytest.mark.parametrize("bad", [object(), 3, None, [1, 2], b"x.csv"])
def test_what_is_no_table_is_refused(bad: Any) -> None:
    with pytest.raises(ParameterError, match="source must be"):
        open_table(bad)


def test_a_lazy_frame_is_refused_with_the_way_out() -> None:
    import polars as pl

    with pytest.raises(ParameterError, match=r"collect\(\)"):
        open_table(pl.LazyFrame({"x": [1]}))


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"x": [1], "y": [1, 2]},
        {"x": np.ones((2, 2))},
        {"x": np.array([1j])},
        {"x": np.array([b"a"])},
        {1: [2]},
        {"": [1]},
    ],
)
def test_arrays_that_make_no_table_are_refused(bad: Any) -> None:
    with pytest.raises(SourceError):
        open_table(bad)


def test_arrays_of_every_kind_are_read() -> None:
    schema = Schema(columns=[Column("x", lower=-9, upper=9, required=False)])
    for array in (
        np.array([1, 2, 3], ">f8"),
        np.array([1, 2, 3], ">i4"),
        np.array([1, 2, 3], np.float16),
        np.array([1, 2, 3], np.longdouble),
        np.arange(9.0)[1:9:1][:3],
        np.array(["1", "2", "3"], np.dtypes.StringDType()),
        np.array([1, "2", 3.0], object),
        [1, 2, 3],
    ):
        assert read({"x": array}, schema)["x"].tolist() == [1.0, 2.0, 3.0]
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    assert same(read({"x": masked}, schema)["x"], np.array([np.nan, 2.0]))


def test_ids_need_a_declared_column_and_rows_without_one_are_one_unit() -> None:
    with open_table({"x": [1.0]}) as table, pytest.raises(ParameterError, match="id_column"):
        table.batches(NUMBER, ids=True)
    schema = Schema(columns=[*NUMBER.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=1)
    with open_table({"x": np.arange(4.0), "who": ["a", None, "", "é"]}) as table:
        (batch,) = table.batches(schema, ids=True, id_texts=True)
    assert batch.ids is not None
    assert batch.id_texts is not None
    assert (batch.ids == NO_ID).tolist() == [False, True, True, False]
    assert batch.id_texts.tolist() == [b"a", b"", b"", "é".encode()]


@pytest.mark.parametrize(
    "ids",
    [[1.0, 2.0], [True, False], [datetime.date(2024, 1, 1)] * 2, [Decimal("1.5"), Decimal(2)]],
    ids=["floats", "booleans", "dates", "decimals"],
)
def test_ids_whose_text_differs_between_engines_are_refused(ids: list[Any]) -> None:
    schema = Schema(columns=[*NUMBER.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=1)
    rows = pa.table({"x": [1.0, 2.0], "who": ids})
    with (
        open_table(rows) as table,
        pytest.raises(SchemaError, match="Cast the id to text in a view"),
    ):
        table.batches(schema, ids=True)


def test_ids_are_integers_text_or_uuids() -> None:
    schema = Schema(columns=[*NUMBER.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=1)
    for kind, cell in (("BIGINT", "7"), ("UUID", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"), ("VARCHAR", "Ann")):
        relation = duckdb.sql(f"SELECT 1.0::DOUBLE AS x, '{cell}'::{kind} AS who")
        with open_table(relation) as table:
            (batch,) = table.batches(schema, ids=True, id_texts=True)
        assert batch.id_texts is not None
        assert batch.id_texts.tolist() == [cell.encode()]


@pytest.mark.parametrize("rows", [0, -1])
def test_a_batch_has_at_least_one_row(rows: int) -> None:
    with open_table({"x": [1.0]}) as table, pytest.raises(ParameterError, match="rows"):
        table.batches(NUMBER, rows=rows)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6.0)[::-1],
        np.arange(12)[::-2],
        np.arange("2020-01", "2020-07", dtype="datetime64[M]")[::-1],
        np.broadcast_to(np.float64(3.0), 6),
        np.ma.masked_array(np.arange(6.0), mask=np.arange(6) % 2 == 0)[::-1],
    ],
    ids=["numbers", "every second", "dates", "one number", "masked"],
)
def test_arrays_that_run_backward_in_memory_are_read(values: Any) -> None:
    if values.dtype.kind == "M":
        column = Column("v", lower=datetime.date(2019, 1, 1), upper=datetime.date(2021, 1, 1))
    else:
        column = Column("v", lower=0, upper=12, required=False)
    schema = Schema(columns=[column])
    found = []
    for given in (values, values.copy()):
        with open_table({"v": given}) as table:
            found.append(np.concatenate([batch["v"] for batch in table.batches(schema)]))
    assert np.array_equal(found[0], found[1], equal_nan=True)
    assert len(found[0]) == 6


def test_bytes_among_texts_are_refused_without_showing_them() -> None:
    cells = ["clerk", b"nurse", b"SECRET\xff", "clerk"]
    with pytest.raises(DataError, match="'job', row 3, must be text") as caught:
        open_table({"job": cells})
    assert caught.value.column == "job"
    assert caught.value.line == 3
    problem: BaseException | None = caught.value
    while problem is not None:
        assert "SECRET" not in repr(problem) + repr(problem.args)
        assert not isinstance(problem, UnicodeDecodeError)
        problem = problem.__cause__ or problem.__context__


def test_long_list_is_encoded_like_a_short_one() -> None:
    # Lists beyond 2,000 values are looked up by digest.
    texts = [f"{i}é'{{}}" for i in range(3_000)]
    cells = [texts[0], "unlisted", texts[2_999], None, texts[1_234], f"{texts[1_234]},{texts[1_235]}", ""]
    schema = Schema(dataset="d", columns=[Column("c", values=tuple(texts), required=False)])
    with open_table({"c": np.array(cells, dtype=object)}) as table:
        (batch,) = table.batches(schema)
    assert batch["c"].tolist() == [0, 3_000, 2_999, 3_001, 1_234, 3_000, 3_001]


def test_whole_numbers_of_a_long_list_are_found() -> None:
    schema = Schema(dataset="d", columns=[Column("c", values=tuple(range(5_000, 8_000)))])
    with open_table({"c": np.array([5_000.0, 7_999.0, 6_001.0])}) as table:
        (batch,) = table.batches(schema)
    assert batch["c"].tolist() == [0, 2_999, 1_001]
