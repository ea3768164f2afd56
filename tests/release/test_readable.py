"""The readable copy of a published table: types, clamping, steps, and the rule in plain Python."""

from __future__ import annotations

import csv
import datetime
import math
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.noise_law import (
    Clear,
    GaussianLaw,
    InRangeLaw,
    InvariantLaw,
    LaplaceLaw,
    Law,
    SampledLaw,
    SyntheticLaw,
)
from discreet.release.readable import ReadableColumn, write_readable
from discreet.schema import Column
from discreet.tables import Field, write_table

if TYPE_CHECKING:
    from pathlib import Path

DAY = datetime.date
NOISE = GaussianLaw(variance=400.0)


def readable(column: Column, law: Law = NOISE, *, typed: bool = False) -> ReadableColumn:
    field = Field.from_column(column) if typed or column.is_category else Field(column.name)
    return ReadableColumn.from_column(column, law, field)


def written(
    tmp_path: Path, column: Column, cells: list[Any], law: Law = NOISE, *, typed: bool = False
) -> list[str]:
    """Return the texts of a column in the readable copy of a file with these cells."""
    field = Field.from_column(column) if typed or column.is_category else Field(column.name)
    write_table(tmp_path / "data.parquet", [field], [{column.name: np.array(cells)}], replace=True)
    write_readable(tmp_path / "data.parquet", tmp_path / "readable.csv", [readable(column, law, typed=typed)])
    with (tmp_path / "readable.csv").open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    assert head == [column.name]
    return [line[0] if line else "" for line in lines]


NAN = math.nan
CASES: dict[str, tuple[Column, list[Any], list[str]]] = {
    "integers": (
        Column("age", type="integer", lower=0, upper=120, required=False),
        [-36.2, 0.5, 1.5, 33.51, 119.99, 1e300, NAN],
        ["0", "0", "2", "34", "120", "120", ""],
    ),
    "integers on a grid": (
        Column("income", type="integer", lower=500, upper=2500, grid=500),
        [-1e9, 1249.0, 1251.0, 2499.0],
        ["500", "1000", "1500", "2500"],
    ),
    "dates": (
        Column("day", lower=DAY(2020, 1, 1), upper=DAY(2020, 12, 31), required=False),
        [-400.0, 58.6, 59.5, 363.9, 1e9, NAN],
        ["2020-01-01", "2020-02-29", "2020-03-01", "2020-12-30", "2020-12-31", ""],
    ),
    "dates before the epoch": (
        Column("born", lower=DAY(1890, 3, 1), upper=DAY(1969, 12, 31)),
        [0.4, 29000.0],
        ["1890-03-01", "1969-07-25"],
    ),
    "numbers on a grid": (
        Column("dose", lower=-0.5, upper=1.5, grid=0.1, required=False),
        [-7.0, -0.04, 0.24, 0.26, 1.4999, NAN],
        ["-0.5", "0.0", "0.2", "0.3", "1.5", ""],
    ),
    "a grid of thirds": (
        Column("part", lower=0.0, upper=1.0, grid=1 / 3),
        [-1.0, 1 / 3, 2 / 3, 5.0],
        ["0.0000", "0.3333", "0.6667", "1.0000"],
    ),
    "numbers": (
        Column("weight", lower=2.5, upper=180.0),
        [-900.0, 2.46, 70.04, 70.06, 179.99, 900.0],
        ["2.5", "2.5", "70.0", "70.1", "180.0", "180.0"],
    ),
    "bounds between two steps": (
        Column("height", lower=17.377, upper=217.91),
        [0.0, 17.44, 500.0],
        ["17.4", "17.4", "217.9"],
    ),
    "large numbers": (
        Column("money", lower=-1e12, upper=1e12),
        [-1e15, 1234567.8, 1e300],
        ["-1000000000000", "1234568", "1000000000000"],
    ),
    "lists": (
        Column("job", values=("clerk", "a, b", 'said "no"', "=1+1", "ü"), required=False, closed=True),
        [0, 1, 2, 3, 4, 5],
        ["clerk", "a, b", 'said "no"', "=1+1", "ü", ""],
    ),
    "truth values": (Column("ill", values=(True, False), required=False), [0, 1, 2], ["true", "false", ""]),
    "lists of integers": (Column("owner", values=(0, 1)), [0, 1], ["0", "1"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cells_are_clamped_rounded_and_have_their_type(name: str, tmp_path: Path) -> None:
    column, cells, expected = CASES[name]
    assert written(tmp_path, column, cells) == expected


def test_what_has_its_declared_type_or_no_noise_is_copied(tmp_path: Path) -> None:
    age = Column("age", type="integer", lower=0, upper=120)
    assert written(tmp_path, age, [3.0, 118.0], SyntheticLaw(), typed=True) == ["3", "118"]
    day = Column("day", lower=DAY(2020, 1, 1), upper=DAY(2020, 12, 31), role="public")
    assert written(tmp_path, day, [0.0, 59.0], Clear(), typed=True) == ["2020-01-01", "2020-02-29"]
    clear = Column("x", lower=0, upper=1, role="public")
    assert written(tmp_path, clear, [0.1, 1 / 3], Clear(), typed=True) == ["0.1", "0.3333333333333333"]


@pytest.mark.parametrize(
    ("law", "step"),
    [
        (GaussianLaw(variance=100.0), "0.1"),  # the range decides: a thousandth of 200
        (GaussianLaw(variance=1.0), "0.1"),  # a tenth of the noise
        (GaussianLaw(variance=0.999 * 0.999), "0.01"),
        (GaussianLaw(variance=(1 - 1e-13) ** 2), "0.1"),  # the same number on another processor
        (LaplaceLaw(variance=1e-6), "0.0001"),
        (SampledLaw(law=GaussianLaw(variance=1.0), picked=1, among=2), "0.1"),
        (InRangeLaw(lower=-100, upper=100, regularization=1.0, inputs=8, cells=8), "0.1"),
        (InRangeLaw(lower=-100, upper=100, regularization=1e8, inputs=8, cells=8), "0.001"),
        (InvariantLaw(learner="a machine", variance=None), "0.001"),
        (SyntheticLaw(), "0.001"),
    ],
)
def test_digits_follow_from_the_noise_and_the_range(law: Law, step: str) -> None:
    assert readable(Column("x", lower=-100, upper=100), law).step == Decimal(step)


def test_small_values_of_a_wide_range_are_not_rounded_to_zero() -> None:
    assert readable(Column("income", lower=0, upper=1e9), SyntheticLaw()).step == Decimal(1)
    # With noise of that size, they are lost in it anyway.
    assert readable(Column("income", lower=0, upper=1e9), GaussianLaw(variance=1e12)).step == Decimal(100_000)


def rule(column: Column, law: Law, x: float) -> str:
    """The rule of the reference page in exact arithmetic."""
    form = readable(column, law)
    assert form.step is not None
    steps = (x - float(form.anchor)) / float(form.step)
    k = round(min(max(steps, form.first), form.last))  # ties to even, as the rule
    value = form.anchor + k * form.step
    digits = max(
        0, -int(form.step.normalize().as_tuple().exponent), -int(form.anchor.normalize().as_tuple().exponent)
    )
    return f"{value:.{digits}f}"


@pytest.mark.parametrize(
    "column",
    [
        Column("x", lower=-3.25, upper=1e6),
        Column("x", lower=0.001, upper=0.002),
        Column("x", lower=-1e-3, upper=3e-3, grid=2e-6),
        Column("x", lower=12.5, upper=22.5, grid=2.5),
        Column("x", type="integer", lower=-7, upper=10**9),
    ],
)
@pytest.mark.parametrize("variance", [1e-8, 1.0, 1e6])
def test_the_engine_writes_what_the_rule_says(column: Column, variance: float, tmp_path: Path) -> None:
    lower, upper = column.range
    k = np.arange(400)
    cells = lower + (upper - lower) * (1.3 * np.sin(k * k) + 0.5)
    law = GaussianLaw(variance=variance)
    texts = written(tmp_path, column, list(cells), law)
    assert texts == [rule(column, law, float(x)) for x in cells]
    assert all(lower <= float(text) <= upper for text in texts)
