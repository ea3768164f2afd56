from __future__ import annotations

import copy
import dataclasses
import datetime
import pickle
from typing import Any

import numpy as np
import pytest

from discreet.errors import ParameterError, SchemaError
from discreet.schema import Column, Protect, Schema


def test_the_type_follows_from_what_is_given() -> None:
    assert Column("age", lower=0, upper=120).type == "number"
    assert Column("owner", values=(0, 1)).type == "category"
    assert Column("born", lower=datetime.date(1900, 1, 1), upper=datetime.date(2024, 1, 1)).type == "date"
    assert Column("note", role="drop").type == "text"
    assert Column("pid", role="id").type == "id"
    assert Column("pid", type="id").role == "id"


def test_numpy_scalars_lists_and_signed_zeros_are_brought_into_one_form() -> None:
    scalars: dict[str, Any] = {"lower": np.float32(-0.0), "upper": np.int64(2), "grid": np.float64(0.5)}
    given = Column("x", **scalars)
    plain = Column("x", lower=0, upper=2.0, grid=0.5)
    assert given == plain
    assert hash(given) == hash(plain)
    assert not np.signbit(given.range[0])
    listed = Column("x", values=list(np.array([0, 1])))  # type: ignore[arg-type]
    assert listed == Column("x", values=(0, 1))
    assert type((listed.values or ())[0]) is int


def test_a_whole_float_bounds_an_integer_column_as_an_integer() -> None:
    column = Column("x", type="integer", lower=0.0, upper=9.0)
    assert (column.lower, column.upper) == (0, 9)
    assert isinstance(column.lower, int)


def test_a_column_cannot_be_changed() -> None:
    column = Column("age", lower=0, upper=120)
    with pytest.raises(dataclasses.FrozenInstanceError):
        column.upper = 200  # type: ignore[misc]


def test_a_column_survives_copying_pickling_and_replacement() -> None:
    column = Column("age", lower=0, upper=120, protect=Protect(error=9))
    assert pickle.loads(pickle.dumps(column)) == copy.deepcopy(column) == column
    assert dataclasses.replace(column, role="public", protect=None).lower == 0
    with pytest.raises(SchemaError):
        dataclasses.replace(column, lower=500)


@pytest.mark.parametrize(
    ("column", "levels", "other"),
    [
        (Column("x", values=("a", "b")), ("a", "b", "other"), "other"),
        (Column("x", values=("a", "b"), required=False), ("a", "b", "other", None), "other"),
        (Column("x", values=("a", "Other")), ("a", "Other"), "Other"),
        (Column("x", values=("other", "a")), ("other", "a"), "other"),
        (Column("x", values=("a", "b"), closed=True), ("a", "b"), None),
        (Column("x", values=("a", "b"), closed=True, required=False), ("a", "b", None), None),
        (Column("x", values=("a",)), ("a", "other"), "other"),
        (Column("x", values=(0, 1)), (0, 1), None),
        (Column("x", values=(3, 1), required=False), (3, 1, None), None),
        (Column("x", values=(False, True)), (False, True), None),
        (Column("x", values=("a", "b"), role="target"), ("a", "b"), None),
        (Column("x", values=("a", "b"), role="target", closed=False), ("a", "b", "other"), "other"),
        (Column("x", lower=0, upper=1), (), None),
    ],
)
def test_the_levels_are_all_that_may_be_published(
    column: Column, levels: tuple[object, ...], other: str | None
) -> None:
    assert column.levels == levels
    assert column.other == other


def test_a_number_that_may_be_missing_has_a_flag_beside_it() -> None:
    assert Column("age", lower=0, upper=1, required=False).missing_flag == "age_missing"
    assert Column("age", lower=0, upper=1).missing_flag is None
    assert Column("job", values=("a", "b"), required=False).missing_flag is None


def test_widths_counts_and_fillings_follow_from_the_bounds() -> None:
    number = Column("x", lower=-1, upper=2)
    integer = Column("x", type="integer", lower=17, upper=90)
    date = Column("x", lower=datetime.date(2024, 2, 1), upper=datetime.date(2024, 3, 1))
    assert (number.range, number.width, number.fill) == ((-1.0, 2.0), 3.0, 0.5)
    assert (integer.width, integer.n_integers, integer.fill) == (73.0, 74, 53.0)
    assert (date.range, date.width, date.n_integers, date.fill) == ((0.0, 29.0), 29.0, 30, 14.0)
    with pytest.raises(ParameterError, match="type integer, date or datetime"):
        _ = number.n_integers


def test_a_range_is_refused_where_none_was_declared() -> None:
    for column in (Column("job", values=("a", "b")), Column("w", type="integer", role="drop")):
        with pytest.raises(ParameterError, match="must have bounds"):
            _ = column.range


def test_clipping_moves_values_to_the_bounds_and_keeps_missing_ones() -> None:
    column = Column("x", lower=0, upper=10)
    clipped = column.clip(np.array([-np.inf, -1, -0.0, 3.5, 11, np.inf, np.nan]))
    np.testing.assert_array_equal(clipped, [0, 0, 0, 3.5, 10, 10, np.nan])
    assert not np.signbit(clipped[:3]).any()


def test_dates_are_counted_from_the_lower_bound_and_back() -> None:
    column = Column("born", lower=datetime.date(2000, 1, 1), upper=datetime.date(2001, 1, 1))
    dates = np.array(["2000-01-01", "2000-03-01", "NaT"], dtype="datetime64[D]")
    days = column.count_steps(dates)
    np.testing.assert_array_equal(days, [0, 60, np.nan])
    np.testing.assert_array_equal(column.moments(days + 0.2), dates)
    with pytest.raises(ParameterError, match="must be of type date"):
        Column("x", lower=0, upper=1).count_steps(dates)


@pytest.mark.parametrize("error", [0.0, 5.001])
def test_an_error_must_lie_above_zero_and_within_half_the_range(error: float) -> None:
    Column("x", lower=0, upper=10, protect=Protect(error=5))
    with pytest.raises(SchemaError, match="error must be"):
        Column("x", lower=0, upper=10, protect=Protect(error=error))


def test_a_decimal_grid_divides_a_decimal_range() -> None:
    assert Column("t", lower=34, upper=43, grid=0.1).grid == 0.1
    assert Column("t", lower=0, upper=0.3, grid=0.1).grid == 0.1
    with pytest.raises(SchemaError, match="into whole steps"):
        Column("t", lower=0, upper=1e6, grid=0.30001)


def test_a_column_becomes_a_field_and_back() -> None:
    column = Column("t", lower=34, upper=43, grid=0.1, measure="degrees", required=False)
    assert Column.from_dict(column.to_dict()) == column


@pytest.mark.parametrize("note", ["measure", "bounds_source", "title", "description"])
def test_what_marks_an_open_place_of_a_draft_is_no_note(note: str) -> None:
    # In a file it would be read as a place that nobody has filled.
    with pytest.raises(SchemaError, match=r"must be filled in, and is \?\?\?"):
        Column("age", lower=0, upper=120, **{note: "???"})  # type: ignore[arg-type]


def test_cells_and_scale_are_written_down_and_read_back() -> None:
    columns = [
        Column("age", type="integer", lower=0, upper=120, cells=(18, 65.0)),
        Column("day", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 1, 1),
               cells=(datetime.date(2021, 1, 1), datetime.date(2024, 1, 1))),
        Column("pay", lower=0, upper=100, scale="log"),
    ]  # fmt: skip
    schema = Schema(columns=columns)
    assert columns[0].cells == (18, 65)
    assert Schema.from_yaml(schema.to_yaml()) == schema
    assert schema.to_dict()["fields"][1]["privacy"]["cells"] == ["2021-01-01", "2024-01-01"]
    assert "cells" not in Column("age", lower=0, upper=1).to_dict()["privacy"]
