"""Conditions on cells, compared with the condition evaluated on every value of every cell."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.query.aggregates.histogram import Axis
from discreet.query.curation import Curation
from discreet.query.language.cell_masks import (
    condition_columns,
    describe_cell,
    join_conditions,
    mask_cells,
)
from discreet.schema import Column, Schema

FIRST = datetime.date(2020, 1, 1)
SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=11, required=False),
        Column("pay", lower=0, upper=8),
        Column("day", lower=FIRST, upper=datetime.date(2020, 1, 20)),
        Column("town", values=("east", "west"), required=False),
        Column("flag", values=(False, True)),
        Column("shift", lower=-1, upper=1),
    ]
)
EDGES = {"age": (3, 6), "pay": (1.0, 4.0), "day": (5.0, 10.0), "shift": (0.0,)}
CURATION = Curation.from_schema(SCHEMA)
AXES = {column.name: Axis.from_curation(CURATION, column.name, EDGES) for column in SCHEMA.columns}
VALUES: dict[str, list[float]] = {
    "age": [*range(12), np.nan],
    "pay": sorted({*np.arange(0, 8.25, 0.25), *(np.nextafter(x, -1) for x in (1.0, 2.0, 4.0))}),
    "day": list(range(20)),
    "town": [0, 1, 2, 3],
    "flag": [0, 1],
    "shift": [-1, -1e-100, -0.0, 0, 1e-300, 1],
}
CONDITIONS = [
    "age >= 3",
    "age > 2",
    "age > 3",
    "age BETWEEN 3 AND 5",
    "NOT age < 6",
    "age IS NULL",
    "age = 4 OR age IS NULL",
    "pay < 1 OR pay >= 4",
    "pay > 4",
    "pay = 2",
    "day >= DATE '2020-01-06'",
    "day < DATE '2020-01-12' AND town = 'east'",
    "town <> 'west'",
    "town IN ('west', 'other') OR flag = TRUE",
    "NOT (flag = FALSE AND age >= 6)",
    "(age < 3) IS NOT TRUE",
    "age < 100",
    "shift >= 0",
    "shift < 0 OR flag = TRUE",
]


def cell_of(name: str, value: float) -> int:
    """Return the cell of a value by comparing it with the edges one by one."""
    if np.isnan(value):
        return len(EDGES[name]) + 1
    return int(value) if name in ("town", "flag") else sum(value >= edge for edge in EDGES[name])


@pytest.mark.parametrize("text", CONDITIONS)
def test_cells_are_inside_and_touched_as_their_values_say(text: str) -> None:
    where = join_conditions([text], SCHEMA)
    assert where is not None
    names = condition_columns(where)
    masks = mask_cells(where, {name: AXES[name] for name in names})
    inside, touched = np.ones_like(masks.inside), np.zeros_like(masks.touched)
    for point in itertools.product(*(VALUES[name] for name in names)):
        arrays: dict[str, Any] = {"": np.zeros(1)}
        for name, value in zip(names, point, strict=True):
            column = CURATION.column(name)
            encoded = column.encode(np.array([value]))
            arrays[name] = encoded[column.exact]
            if column.flag is not None:
                arrays[f"{name}_missing"] = encoded[column.flag]
        cell = tuple(cell_of(name, value) for name, value in zip(names, point, strict=True))
        holds = bool(where.lower > 0 if where.is_constant else where.evaluate(arrays)[0])
        inside[cell] &= holds
        touched[cell] |= holds
    assert np.array_equal(masks.inside, inside)
    assert np.array_equal(masks.touched, touched)
    assert masks.is_exact == np.array_equal(inside, touched)


@pytest.mark.parametrize("name", AXES)
def test_the_condition_of_a_cell_holds_in_it_alone(name: str) -> None:
    for place, label in enumerate(AXES[name].labels):
        where = join_conditions([describe_cell(AXES[name], label, SCHEMA)], SCHEMA)
        assert where is not None
        masks = mask_cells(where, {name: AXES[name]})
        assert masks.is_exact
        assert np.flatnonzero(masks.inside).tolist() == [place]


@pytest.mark.parametrize("text", ["age + 1 > 3", "age > pay", "YEAR(day) = 2020", "ABS(pay) > 1"])
def test_conditions_that_compute_are_refused(text: str) -> None:
    where = join_conditions([text], SCHEMA)
    assert where is not None
    with pytest.raises(ParameterError, match="compare columns with constants"):
        condition_columns(where)
