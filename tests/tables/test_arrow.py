from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from discreet.tables.arrow import ArrayStream, StreamBroken, read_stream
from discreet.tables.duckdb import connect, run_over

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray

TYPES = (np.float64, np.int32, np.int64, np.uint64)


def pieces(table: Any) -> list[tuple[list[AnyArray], list[int | None]]]:
    return list(read_stream(table.__arrow_c_stream__()))


def test_columns_of_every_type_are_read_bit_for_bit() -> None:
    columns = {f"c{i}": np.arange(5).astype(dtype) for i, dtype in enumerate(TYPES)}
    ((values, nulls),) = pieces(pa.table(columns))
    for found, wanted in zip(values, columns.values(), strict=True):
        assert found.dtype == wanted.dtype
        assert found.tolist() == wanted.tolist()
        assert found.flags.owndata
    assert nulls == [None] * 4


@pytest.mark.parametrize("start", [0, 1, 7, 8, 9, 63])
@pytest.mark.parametrize("null", [0, 1, 6, 8, 40, None])
def test_the_first_null_is_found_in_any_slice(start: int, null: int | None) -> None:
    cells: list[float | None] = [float(i) for i in range(200)]
    if null is not None:
        cells[start + null] = None
        cells[start + null + 3] = None
    if start:
        cells[start - 1] = None  # before the slice: not ours
    cells[start + 100] = None  # after it
    table = pa.table({"x": pa.array(cells, pa.float64())}).slice(start, 100)
    ((values, nulls),) = pieces(table)
    assert nulls == [null]
    assert len(values[0]) == 100
    assert values[0][50] == start + 50


def test_a_column_that_is_all_null_is_read() -> None:
    ((_, nulls),) = pieces(pa.table({"x": pa.array([None, None], pa.int32())}))
    assert nulls == [0]


def test_a_sliced_parent_shifts_its_children() -> None:
    batch = pa.record_batch({"x": pa.array([1.0, 2.0, None, 4.0])})
    struct = batch.to_struct_array().slice(1, 3)
    reader = pa.RecordBatchReader.from_batches(batch.schema, [pa.RecordBatch.from_struct_array(struct)])
    ((values, nulls),) = pieces(reader)
    assert (values[0][0], values[0][2], nulls) == (2.0, 4.0, [1])


def test_an_error_on_the_other_side_is_raised() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"x": [1.0]})
        raise RuntimeError("gone")

    schema = pa.schema([("x", pa.float64())])
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    stream = read_stream(reader.__arrow_c_stream__())
    next(stream)
    with pytest.raises(StreamBroken, match="gone"):
        next(stream)


@pytest.mark.slow
def test_a_stream_of_ours_is_read_by_others_and_lets_go_of_its_memory() -> None:
    arrays = [[np.arange(3).astype(dtype) + i for dtype in TYPES] for i in range(4)]
    dtypes = {f"c{i}": np.dtype(dtype) for i, dtype in enumerate(TYPES)}
    stream = ArrayStream(dtypes, lambda: iter(arrays))
    table = pa.RecordBatchReader.from_stream(stream).read_all()
    assert table.column_names == list(dtypes)
    for i, dtype in enumerate(TYPES):
        column = table.column(i).to_numpy()
        assert column.dtype == dtype
        assert column.tolist() == [k + j for k in range(4) for j in range(3)]
    assert len(stream._kept) >= 4
    del table
    gc.collect()
    assert len(stream._kept) == 0


@pytest.mark.slow
def test_a_child_outlives_the_batch_it_came_from() -> None:
    stream = ArrayStream({"x": np.dtype(float)}, lambda: iter([[np.arange(1000.0)]]))
    child = pa.RecordBatchReader.from_stream(stream).read_next_batch().column(0)
    gc.collect()
    assert child.to_pylist() == list(range(1000))


def test_our_own_reader_reads_our_own_stream() -> None:
    stream = ArrayStream({"x": np.dtype(float)}, lambda: iter([[np.arange(3.0)], [np.ones(1)]]))
    assert [v[0].tolist() for v, _ in pieces(stream)] == [[0.0, 1.0, 2.0], [1.0]]


@pytest.mark.parametrize("texts", [[], [b""], [b"", b"a\0b", "é😀".encode(), b"", b"x" * 100_000]])
def test_texts_are_sent_as_they_are(texts: list[bytes]) -> None:
    cells = np.empty(len(texts), object)
    cells[:] = texts
    stream = ArrayStream({"t": np.dtype(object)}, lambda: iter([[cells], [cells]]))
    connection = connect()
    connection.register("arriving", stream)
    found = [
        text for (part,), _ in pieces(connection.sql("SELECT t FROM arriving")) for text in part.tolist()
    ]
    connection.close()
    assert found == 2 * texts


def test_arrays_that_are_not_contiguous_are_copied_and_uneven_ones_refused() -> None:
    stream = ArrayStream({"x": np.dtype(float)}, lambda: iter([[np.arange(9.0)[::3]]]))
    assert pieces(stream)[0][0][0].tolist() == [0.0, 3.0, 6.0]
    dtypes = {"x": np.dtype(float), "y": np.dtype(float)}
    uneven = ArrayStream(dtypes, lambda: iter([[np.ones(2), np.ones(3)]]))
    assert pieces(uneven) == []
    assert isinstance(uneven.failure, ValueError)


def test_what_the_iterator_raises_ends_the_scan_and_is_kept_for_the_writer() -> None:
    def batches() -> Iterator[list[AnyArray]]:
        yield [np.ones(2)]
        raise KeyboardInterrupt

    stream = ArrayStream({"x": np.dtype(float)}, batches)
    connection = duckdb.connect()
    connection.register("s", stream)
    assert connection.execute("SELECT sum(x) FROM s").fetchall() == [(2.0,)]
    connection.close()
    assert isinstance(stream.failure, KeyboardInterrupt)


def test_nothing_is_kept_of_a_stream_that_ended_early() -> None:
    def batches() -> Iterator[list[AnyArray]]:
        yield [np.ones(2)]
        raise KeyboardInterrupt

    with contextlib.closing(connect()) as connection:
        connection.execute("CREATE TABLE t (x DOUBLE)")
        command = "INSERT INTO t FROM s"
        with pytest.raises(KeyboardInterrupt):
            run_over(connection, command, "s", ArrayStream({"x": np.dtype(float)}, batches))
        assert connection.execute("SELECT count(*) FROM t").fetchall() == [(0,)]
        # The connection is as good as before, and a whole stream is kept.
        whole = ArrayStream({"x": np.dtype(float)}, lambda: iter([[np.ones(3)]]))
        assert run_over(connection, command, "s", whole) == (3,)
        assert connection.cursor().execute("SELECT count(*) FROM t").fetchall() == [(3,)]
