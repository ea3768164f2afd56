"""Columns before and after: distances that are distances, bars that add up, the worst first."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet import Column, Schema
from discreet.evaluation.columns import MOST_BARS, compare_columns, correlate
from discreet.evaluation.tallies import PairedSample
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet._types import AnyArray
    from discreet.report.findings import ColumnComparison


def compared(
    columns: list[Column], rows: dict[str, AnyArray], published: dict[str, AnyArray]
) -> list[ColumnComparison]:
    pairs = PairedSample(Schema(columns=columns), Stream.from_seed(1))
    pairs(rows, published)
    return compare_columns(pairs.totals.values())


def test_an_unchanged_column_has_no_distance_and_the_worst_comes_first() -> None:
    x = np.linspace(0, 1, 1_000)
    columns = [Column("same", lower=0, upper=1), Column("moved", lower=0, upper=1)]
    moved, same = compared(columns, {"same": x, "moved": x}, {"same": x, "moved": x + 0.25})

    assert (same.column, same.distance, same.outside) == ("same", 0.0, 0.0)
    assert moved.column == "moved"
    assert moved.distance == pytest.approx(0.25, abs=2e-3)
    assert moved.outside == pytest.approx(0.25, abs=2e-3)
    assert moved.release_mean == pytest.approx(0.75)
    assert moved.original_mean == pytest.approx(0.5)


def test_the_distance_of_a_number_is_that_of_the_distribution_functions() -> None:
    g = Stream.from_seed(2).generator()
    x, z = g.uniform(0, 1, 20_000), g.normal(0.5, 0.6, 20_000)
    (one,) = compared([Column("x", lower=0, upper=1)], {"x": x}, {"x": z})
    points = np.linspace(0, 1, 257)
    exact = max(abs((x <= p).mean() - (z <= p).mean()) for p in points)

    assert one.distance == pytest.approx(exact, abs=1e-3)


def test_the_distance_of_a_list_is_half_the_sum_of_differences() -> None:
    column = Column("c", values=("a", "b", "c"), closed=True)
    (one,) = compared(
        [column], {"c": np.array([0, 0, 0, 1], np.int32)}, {"c": np.array([0, 1, 2, 2], np.int32)}
    )

    assert one.labels == ["a", "b", "c"]
    assert one.original == [0.75, 0.25, 0.0]
    assert one.release == [0.25, 0.25, 0.5]
    assert one.distance == 0.5


def test_few_whole_numbers_have_a_bar_each() -> None:
    column = Column("n", type="integer", lower=1, upper=16)
    n = np.repeat(np.arange(1.0, 17.0), 10)
    (one,) = compared([column], {"n": n}, {"n": n + 0.4})

    assert one.labels == ["below 1", *map(str, range(1, 17)), "above 16"]
    assert one.original[1:-1] == pytest.approx([1 / 16] * 16)
    assert one.release == one.original  # 0.4 off still rounds to the same whole number


def test_bars_add_up_to_one_and_are_not_too_many() -> None:
    g = Stream.from_seed(3).generator()
    columns = [
        Column("age", type="integer", lower=17, upper=90),
        Column("gain", lower=0, upper=1e5, required=False),
        Column("code", values=tuple(range(300))),
        Column("day", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
    ]
    rows: dict[str, AnyArray] = {
        "age": g.integers(17, 91, 500).astype(float),
        "gain": np.where(g.uniform(size=500) < 0.3, np.nan, g.uniform(0, 1e5, 500)),
        "code": g.integers(0, 300, 500),
        "day": g.integers(0, 1_800, 500).astype(float),
    }
    found = compared(columns, rows, {n: v + 300 * (n != "code") for n, v in rows.items()})

    for one in found:
        assert len(one.labels) == len(one.original) == len(one.release) <= MOST_BARS + 2
        assert sum(one.original) == pytest.approx(1)
        assert sum(one.release) == pytest.approx(1)
    by_name = {one.column: one for one in found}
    assert by_name["code"].labels[-1].endswith("others")
    assert by_name["day"].labels[0] == "below 2020-01-01"
    assert by_name["gain"].missing_original == np.isnan(rows["gain"]).mean()


def test_missing_cells_are_shares_on_both_sides() -> None:
    columns = [
        Column("x", lower=0, upper=1, required=False),
        Column("c", values=("a",), closed=True, required=False),
    ]
    rows: dict[str, AnyArray] = {
        "x": np.array([np.nan, 0.1, 0.2, 0.3]),
        "c": np.array([0, 0, 1, 1], np.int32),
    }
    published: dict[str, AnyArray] = {
        "x": np.array([0.5, np.nan, np.nan, 0.3]),
        "c": np.array([0, 0, 0, 1], np.int32),
    }
    by_name = {one.column: one for one in compared(columns, rows, published)}

    assert (by_name["x"].missing_original, by_name["x"].missing_release) == (0.25, 0.5)
    assert (by_name["c"].missing_original, by_name["c"].missing_release) == (0.5, 0.25)
    assert by_name["c"].labels == ["a", "missing"]


def test_a_column_that_is_all_missing_is_compared() -> None:
    column = Column("x", lower=0, upper=1, required=False)
    nothing, something = np.full(5, np.nan), np.full(5, 0.5)
    (same,) = compared([column], {"x": nothing}, {"x": nothing})
    (other,) = compared([column], {"x": nothing}, {"x": something})

    assert (same.distance, same.original_mean, same.missing_original) == (0.0, None, 1.0)
    assert other.distance == 1.0


def test_correlations_are_pearsons_before_and_after() -> None:
    g = Stream.from_seed(4).generator()
    x = g.normal(0, 1, 4_000)
    rows: dict[str, AnyArray] = {"x": x, "y": x + g.normal(0, 1, 4_000)}
    published: dict[str, AnyArray] = {n: v + g.normal(0, 2, 4_000) for n, v in rows.items()}
    schema = Schema(columns=[Column("x", lower=-9, upper=9), Column("y", lower=-9, upper=9)])
    found = correlate(schema, rows, published)

    assert found is not None
    assert found.columns == ["x", "y"]
    assert found.original[0][1] == pytest.approx(np.corrcoef(rows["x"], rows["y"])[0, 1])
    assert found.release[0][1] == pytest.approx(np.corrcoef(published["x"], published["y"])[0, 1])
    assert found.release[0][1] < found.original[0][1]  # noise on its own goes with nothing


def test_missing_and_constant_columns_have_correlations_too() -> None:
    g = Stream.from_seed(5).generator()
    x = g.uniform(0, 1, 2_000)
    gaps = np.where(g.uniform(size=2_000) < 0.5, np.nan, x)
    rows: dict[str, AnyArray] = {"x": x, "g": gaps, "c": np.full(2_000, 0.3), "m": np.full(2_000, np.nan)}
    schema = Schema(columns=[Column(n, lower=0, upper=1, required=False) for n in rows])
    found = correlate(schema, rows, rows)

    assert found is not None
    assert found.original[0][1] == pytest.approx(1.0)
    assert found.original[0][2:] == [0.0, 0.0]
    assert [found.original[j][j] for j in range(4)] == [1.0] * 4


def test_one_number_or_two_rows_correlate_with_nothing() -> None:
    one = Schema(columns=[Column("x", lower=0, upper=1)])
    two = Schema(columns=[Column("x", lower=0, upper=1), Column("y", lower=0, upper=1)])
    x = np.array([0.1, 0.2])

    assert correlate(one, {"x": x}, {"x": x}) is None
    assert correlate(two, {"x": x, "y": x}, {"x": x, "y": x}) is None
    many = Schema(columns=[Column(f"x{j}", lower=0, upper=1) for j in range(60)])
    rows: dict[str, AnyArray] = {f"x{j}": np.linspace(0, 1, 9) ** (j + 1) for j in range(60)}
    found = correlate(many, rows, rows)
    assert found is not None
    assert len(found.columns) == 40
