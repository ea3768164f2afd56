from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.errors import SourceError
from discreet.noise import Stream
from discreet.tables import Field, external_sort, write_table
from discreet.tables.external_sort import sort_by_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet._types import AnyArray


def batches(sizes: list[int], words: AnyArray) -> Iterator[list[AnyArray]]:
    start = 0
    for size in sizes:
        rows = np.arange(start, start + size)
        yield [rows.astype(float), rows.astype(np.int32), words[start : start + size]]
        start += size


@pytest.mark.parametrize("memory", [1, 10_000, 1 << 26])
def test_rows_come_out_as_if_all_had_been_sorted_at_once(
    memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_sort, "MEMORY", memory)
    monkeypatch.setattr(external_sort, "_SPILL", 300)
    monkeypatch.setattr(external_sort, "_CHUNK", 500)
    sizes = [700, 1, 0, 2300]
    words = Stream.from_seed(1).words(sum(sizes))
    words[100:200] = words[50]  # ties keep the order in which they came
    sort, out = sort_by_words(batches(sizes, words), tmp_path), []
    for part in sort:
        out.append(part)
        assert list(tmp_path.iterdir()) == []  # the files that are sorted in have no name
    order = np.argsort(words, kind="stable")
    np.testing.assert_array_equal(np.concatenate([part[0] for part in out]), order.astype(float))
    np.testing.assert_array_equal(np.concatenate([part[1] for part in out]), order)
    assert out[0][1].dtype == np.int32


def test_nothing_in_gives_nothing_out(tmp_path: Path) -> None:
    assert list(sort_by_words(iter([]), tmp_path)) == []


def test_a_full_disk_while_sorting_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(external_sort, "MEMORY", 1)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(external_sort.RowBuckets, "_spill", full)
    words = Stream.from_seed(1).words(3)
    with pytest.raises(SourceError, match="the disk is full"):
        write_table(
            tmp_path / "t.parquet", [Field("x")], [{"x": np.arange(3.0), "w": words}] * 2, order_by="w"
        )
    assert list(tmp_path.iterdir()) == []
