from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.errors import DiscreetError, ParameterError, SchemaError, SourceError
from discreet.schema import Column, Schema, unclipped_column
from discreet.tables import Field, check_target, open_table, parquet_parts, write_table
from discreet.tables.temporary import lock
from discreet.tables.writers import row_group_size
from tests.tables.people import ENCODED, SCHEMA, same, unprivileged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray

TARGETS = ("t.parquet", "t.csv", "t.csv.gz", "t.duckdb?table=t", "postgres")
LIMIT = 1.7976931348623157e308
FIRST_DAY = datetime.date(1900, 1, 1)


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return f"{request.getfixturevalue('postgres_url')}?table=t"
    return f"{tmp_path}/{request.param}"


def read(target: Any, schema: Schema, names: list[str] | None = None) -> dict[str, AnyArray]:
    with open_table(target, schema=schema) as table:
        batches = list(table.batches(schema))
    names = names or [column.name for column in schema.released]
    empty: dict[str, AnyArray] = {
        column.name: np.empty(0, np.int32 if column.is_category else np.float64) for column in schema.released
    }
    return {name: np.concatenate([empty[name], *(batch[name] for batch in batches)]) for name in names}


def query(text: str) -> duckdb.DuckDBPyConnection:
    return duckdb.connect().execute(text)


PUBLIC = Schema(columns=[column for column in SCHEMA.columns if column.is_released])


def test_what_is_written_is_read_back(target: str) -> None:
    assert write_table(target, SCHEMA, [ENCODED, ENCODED]) == 8
    found = read(target, PUBLIC)
    for name, wanted in ENCODED.items():
        assert same(found[name], np.concatenate([wanted, wanted])), name


def test_columns_are_written_in_order_with_their_types(target: str) -> None:
    write_table(target, SCHEMA, [ENCODED])
    with open_table(target) as table:
        assert {name: field.type for name, field in table.draft().fields.items()} == {
            "weight": "number",
            "age": "integer",
            "born": "date",
            "job": "string",
            "children": "integer",
            "owner": "boolean",
        }


def test_no_batches_make_a_table_without_rows(target: str) -> None:
    nothing = {name: values[:0] for name, values in ENCODED.items()}
    assert write_table(target, SCHEMA, [nothing]) == 0
    with open_table(target) as table:
        assert table.names == tuple(ENCODED)
        assert table.count() == 0


def test_an_existing_table_is_kept_unless_replaced(target: str) -> None:
    write_table(target, SCHEMA, [ENCODED])
    with pytest.raises(SourceError, match="exists already"):
        write_table(target, [Field("x")], [{"x": np.ones(3)}])
    assert same(read(target, PUBLIC)["age"], ENCODED["age"])
    write_table(target, [Field("x")], [{"x": np.ones(3)}], replace=True)
    with open_table(target) as table:
        assert (table.names, table.count()) == (("x",), 3)


def test_a_failure_half_way_leaves_nothing_and_is_raised_as_it_was(target: str, tmp_path: Path) -> None:
    def batches() -> Iterator[dict[str, AnyArray]]:
        for _ in range(4):
            yield {"x": np.ones(100_000)}
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        write_table(target, [Field("x")], batches())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SourceError):
        open_table(target)
    # The place is not blocked either.
    assert write_table(target, [Field("x")], [{"x": np.ones(3)}]) == 3


def test_a_failure_half_way_keeps_what_was_there(target: str) -> None:
    def batches() -> Iterator[dict[str, AnyArray]]:
        yield {"x": np.ones(100_000)}
        raise ZeroDivisionError

    write_table(target, SCHEMA, [ENCODED])
    with pytest.raises(ZeroDivisionError):
        write_table(target, [Field("x")], batches(), replace=True)
    assert same(read(target, PUBLIC)["age"], ENCODED["age"])


levels = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_categories=["C"]),
        min_size=1,
        max_size=6,
    ).filter(lambda s: s.casefold() not in ("other", "???") and s.strip()),
    min_size=1,
    max_size=4,
    unique=True,
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, dict[str, AnyArray]]:
    listed = draw(levels)
    schema = Schema(
        columns=[
            unclipped_column("x", required=False),
            Column("n", type="integer", lower=-(2**52), upper=2**52, required=False),
            Column("d", lower=FIRST_DAY, upper=datetime.date(2100, 1, 1), required=False),
            Column("c", values=tuple(listed), required=False),
        ]
    )
    n = draw(st.integers(1, 6))
    gap = st.just(float("nan"))

    def cells(values: st.SearchStrategy[Any], dtype: type = float) -> AnyArray:
        return np.array(draw(st.lists(values, min_size=n, max_size=n)), dtype)

    rows = {
        "x": cells(st.floats(-1e300, 1e300, allow_nan=False).map(lambda v: v + 0.0) | gap),
        "n": cells(st.integers(-(2**52), 2**52) | gap),
        "d": cells(st.integers(0, 73049) | gap),
        "c": cells(st.integers(0, len(listed) + 1), np.int32),
    }
    return schema, rows


@pytest.mark.slow
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=tables())
def test_any_table_survives_the_round_trip_bit_for_bit(
    target: str, case: tuple[Schema, dict[str, AnyArray]]
) -> None:
    schema, rows = case
    write_table(target, schema, [rows], replace=True)
    found = read(target, schema)
    for name, wanted in rows.items():
        if name != "c":
            wanted = np.where(np.isnan(wanted), np.nan, wanted)
        assert same(found[name], wanted), name


def test_numbers_keep_every_bit_also_beyond_bounds_and_zero(tmp_path: Path) -> None:
    values = np.array([0.1 + 0.2, 5e-324, -0.0, LIMIT, 1 / 3, 1e22, 123456789012345680.0, -np.inf])
    for name in ("t.parquet", "t.csv"):
        write_table(tmp_path / name, [Field("x")], [{"x": values}])
        found = query(f"SELECT x::DOUBLE AS x FROM '{tmp_path / name}'").fetchnumpy()["x"]
        assert same(np.asarray(found), values)


def test_an_empty_string_and_a_missing_cell_stay_apart_where_the_format_can(
    target: str, tmp_path: Path
) -> None:
    field = Field("c", "category", levels=("", "a", None))
    write_table(target, [field], [{"c": np.array([0, 1, 2])}])
    if ".csv" in target:
        with open_table(target) as table:
            assert table.count() == 3
    elif target.startswith("postgresql"):
        import psycopg

        with psycopg.connect(target.partition("?")[0]) as server:
            assert server.execute("SELECT c FROM t").fetchall() == [("",), ("a",), (None,)]
    elif "duckdb" in target:
        with duckdb.connect(target.partition("?")[0]) as connection:
            assert connection.execute("FROM t").fetchall() == [("",), ("a",), (None,)]
    else:
        assert query(f"FROM '{target}'").fetchall() == [("",), ("a",), (None,)]


def test_parquet_is_compressed_with_zstd_and_csv_with_gzip(tmp_path: Path) -> None:
    write_table(tmp_path / "t.parquet", SCHEMA, [ENCODED])
    write_table(tmp_path / "t.csv.gz", SCHEMA, [ENCODED])
    codecs = query(f"SELECT DISTINCT compression FROM parquet_metadata('{tmp_path}/t.parquet')").fetchall()
    assert codecs == [("ZSTD",)]
    assert (tmp_path / "t.csv.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_the_same_batches_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("t.parquet", "t.csv.gz"):
        batches = [{"x": np.arange(2.0**17) + i} for i in range(4)]
        write_table(tmp_path / name, [Field("x")], batches)
        first = (tmp_path / name).read_bytes()
        write_table(tmp_path / name, [Field("x")], batches, replace=True)
        assert (tmp_path / name).read_bytes() == first


@pytest.mark.parametrize("name", ["select", 'a"b', "x;y", "имя", "f0", "batches", "--", "💥"])
def test_hostile_names_are_written_as_they_are(target: str, name: str) -> None:
    write_table(target, [Field(name), Field("other")], [{name: np.ones(1), "other": np.zeros(1)}])
    with open_table(target) as table:
        assert table.names == (name, "other")


@pytest.mark.parametrize(
    ("layout", "batch", "error"),
    [
        ([], {}, ParameterError),
        ([Field("")], {"": np.ones(1)}, ParameterError),
        ([Field("x"), Field("X")], {"x": np.ones(1), "X": np.ones(1)}, SchemaError),
        ([Field("x")], {"y": np.ones(1)}, ParameterError),
        ([Field("x")], {"x": np.ones(1), "y": np.ones(1)}, ParameterError),
        ([Field("x"), Field("y")], {"x": np.ones(1), "y": np.ones(2)}, ParameterError),
        ([Field("x")], {"x": np.ones((2, 2))}, ParameterError),
        ([Field("x", "integer")], {"x": np.array([1.5])}, ParameterError),
        ([Field("x", "integer")], {"x": np.array([1e30])}, ParameterError),
        ([Field("x", "integer")], {"x": np.array([np.inf])}, ParameterError),
        ([Field("x", "integer")], {"x": np.array([2**64 - 1], np.uint64)}, ParameterError),
        ([Field("x", "date", origin=FIRST_DAY)], {"x": np.array([1e9])}, ParameterError),
        ([Field("x", "date", origin=FIRST_DAY)], {"x": np.array([0.5])}, ParameterError),
        ([Field("x", "category", levels=("a",))], {"x": np.array([1])}, ParameterError),
        ([Field("x", "category", levels=("a",))], {"x": np.array([-1])}, ParameterError),
        ([Field("x", "category", levels=("a",))], {"x": np.array([0.0])}, ParameterError),
    ],
)
def test_batches_that_do_not_fit_the_layout_are_refused(
    tmp_path: Path, layout: list[Field], batch: dict[str, AnyArray], error: type[DiscreetError]
) -> None:
    with pytest.raises(error, match="write_table"):
        write_table(tmp_path / "t.parquet", layout, [batch])
    assert list(tmp_path.iterdir()) == []


def test_integers_of_64_bits_are_written_exactly(tmp_path: Path) -> None:
    values = np.array([2**62 + 1, -(2**62) - 1, 0])
    write_table(tmp_path / "t.parquet", [Field("x", "integer")], [{"x": values}])
    found = query(f"FROM '{tmp_path}/t.parquet'").fetchall()
    assert [row[0] for row in found] == values.tolist()


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.csv?table=x", "https://host/t.csv", "t.duckdb"])
def test_other_targets_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises((ParameterError, SourceError)):
        write_table(name if "//" in name else f"{tmp_path}/{name}", SCHEMA, [ENCODED])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["none/t.parquet", "none/t.csv", "none/t.duckdb?table=t"])
def test_a_folder_that_does_not_exist_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="folder"):
        write_table(f"{tmp_path}/{name}", SCHEMA, [ENCODED])


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="only Linux has such a folder")
@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.duckdb?table=t"])
def test_a_folder_that_takes_no_files_is_named(name: str) -> None:
    with pytest.raises(SourceError, match=r"written to|cannot be opened|must be a DuckDB"):
        write_table(f"/proc/self/{name}", SCHEMA, [ENCODED])


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.duckdb?table=t"])
def test_a_read_only_folder_is_named(name: str) -> None:
    with unprivileged() as folder:
        folder.chmod(0o500)
        with pytest.raises(SourceError, match=r"written to|read and write"):
            write_table(f"{folder}/{name}", SCHEMA, [ENCODED])
        assert list(folder.iterdir()) == []


FILL = """
import resource, sys
import numpy as np
from discreet.errors import SourceError
from discreet.tables import Field, write_table
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
batches = ({"x": np.sqrt(np.arange(1e5) + i)} for i in range(40))
try:
    write_table(sys.argv[1], [Field("x")], batches)
except SourceError as problem:
    assert "disk is full" in str(problem), problem
    print("refused")
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.csv.gz"])
def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    # A limit on the size of files makes the system refuse writes half-way, as a full disk does.
    done = subprocess.run([sys.executable, "-c", FILL, str(tmp_path / name)], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("refused\n", "")
    assert list(tmp_path.iterdir()) == []


SLOW = """
import sys, time
import numpy as np
from discreet.tables import Field, write_table
def batches():
    for i in range(40):
        yield {"x": np.sqrt(np.arange(2e5) + i)}
    print("half", flush=True)
    time.sleep(60)
write_table(sys.argv[1], [Field("x")], batches(), replace=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.duckdb?table=t"])
@pytest.mark.parametrize("before", [True, False])
def test_a_killed_writer_leaves_the_old_table_or_none(tmp_path: Path, name: str, before: bool) -> None:
    target = f"{tmp_path}/{name}"
    if before:
        write_table(target, SCHEMA, [ENCODED])
    writer = subprocess.Popen([sys.executable, "-c", SLOW, target], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "half\n"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    time.sleep(0.05)
    if before:
        assert same(read(target, PUBLIC)["age"], ENCODED["age"])
    elif "duckdb" in name:
        with pytest.raises(SourceError):
            open_table(target)
    else:
        assert not Path(target).exists()


def test_a_long_table_is_written_in_order(tmp_path: Path) -> None:
    n, size = 40, 30_011
    batches = ({"x": np.arange(i * size, (i + 1) * size, dtype=float)} for i in range(n))
    write_table(tmp_path / "t.parquet", [Field("x")], batches)
    schema = Schema(columns=[Column("x", lower=0, upper=n * size)])
    assert (read(tmp_path / "t.parquet", schema)["x"] == np.arange(n * size)).all()


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    living = tmp_path / ".out.parquet.1-99.partial"
    for path in (tmp_path / ".out.parquet.1-0.partial", living, tmp_path / ".out.parquet.mine"):
        path.write_text("left over")
    (tmp_path / ".out.parquet.1-1.partial").symlink_to(tmp_path / ".out.parquet.mine")
    held = lock(living, folder=False)
    assert held is not None
    write_table(target, [Field("x")], [{"x": np.array([1.0, 2.0])}])
    os.close(held)
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".out.parquet.1-1.partial", living.name, ".out.parquet.mine", "out.parquet"]
    write_table(target, [Field("x")], [{"x": np.array([1.0, 2.0])}], replace=True)
    assert not living.exists()


def test_an_open_file_without_a_name_can_be_written_to(tmp_path: Path) -> None:
    rows = {"x": np.arange(3.0), "w": np.array([2, 3, 1], np.uint64)}
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        path = Path(f"/dev/fd/{file.fileno()}")
        check_target(path, replace=False)
        assert write_table(path, [Field("x")], [rows], order_by="w") == 3
        assert duckdb.execute(f"SELECT x FROM read_parquet('{path}')").fetchall() == [(2.0,), (0.0,), (1.0,)]
        assert list(tmp_path.iterdir()) == []


def test_rows_can_be_put_in_the_order_of_words_that_are_not_written(target: str) -> None:
    words = np.array([3, 1, 2], np.uint64)
    batches = [{"x": np.array([30.0, 10.0, 20.0]), "w": words}, {"x": np.array([0.0]), "w": words[:1] * 0}]
    assert write_table(target, [Field("x")], batches, order_by="w") == 4
    with open_table(target) as table:
        assert table.names == ("x",)
        (batch,) = table.batches(Schema(columns=[Column("x", lower=0, upper=99)]))
        assert batch["x"].tolist() == [0, 10, 20, 30]


@pytest.mark.slow
def test_a_wide_table_is_written_within_the_memory_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("discreet.tables.duckdb.MEMORY_LIMIT", "200MB")
    fields = [Field(f"x{i}") for i in range(400)]
    batch = {field.name: np.arange(50_000.0) * (i + 1) for i, field in enumerate(fields)}
    path = tmp_path / "wide.parquet"
    assert write_table(path, fields, [batch]) == 50_000
    sizes = duckdb.execute(
        f"SELECT DISTINCT row_group_id, row_group_num_rows FROM parquet_metadata('{path}') ORDER BY 1"
    ).fetchall()
    assert [rows for _, rows in sizes[:-1]] == [row_group_size(400)] * (len(sizes) - 1)
    assert row_group_size(400) < row_group_size(20) == 122_880


@pytest.mark.parametrize(("n_batches", "sizes"), [(0, [0]), (5, [15]), (6, [18]), (13, [18, 18, 3])])
def test_parts_hold_the_batches_in_order(
    n_batches: int, sizes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_parts, "PART_ROWS", 16)
    schema = Schema(columns=[Column("x", lower=0, upper=100)])
    batches = ({"x": np.arange(3.0) + 3 * i} for i in range(n_batches))
    assert parquet_parts.write_parts(tmp_path / "t.parquet", schema, batches) == 3 * n_batches
    names = sorted(path.name for path in (tmp_path / "t.parquet").iterdir())
    assert names == [f"part-{i:05d}.parquet" for i in range(len(sizes))]
    found = [duckdb.read_parquet(str(tmp_path / "t.parquet" / name)).fetchall() for name in names]
    assert [len(part) for part in found] == sizes
    assert [value for part in found for (value,) in part] == list(map(float, range(3 * n_batches)))


def test_parts_that_cannot_be_finished_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_parts, "PART_ROWS", 16)
    schema = Schema(columns=[Column("x", lower=0, upper=100)])

    def failing() -> Iterator[dict[str, AnyArray]]:
        for i in range(20):
            yield {"x": np.array([float(i)])}
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        parquet_parts.write_parts(tmp_path / "t.parquet", schema, failing())
    assert not list(tmp_path.iterdir())
