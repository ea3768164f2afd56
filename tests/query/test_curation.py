from __future__ import annotations

import datetime
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.errors import ParameterError, SchemaError
from discreet.query.curation import BITS, Curation, Version
from discreet.schema import Column, Schema
from discreet.tables import open_table
from tests.query.people import people, people_schema

UNIT = Curation.from_schema(Schema(columns=[Column("x", lower=0, upper=1, required=False)]))


@pytest.mark.parametrize(
    ("value", "index"),
    [
        (0.1, 104858),
        (0.3, 314573),
        (1 / 3, 349525),
        (0.999999, 1048575),
        (1.0, 1048576),
        (-np.inf, 0),
        (np.inf, 1048576),
        (np.nan, 2**19),
        (1e308, 1048576),
        (5e-324, 0),
        (-0.0, 0),
    ],
)
def test_numbers_land_on_the_grid_where_the_specification_says(value: float, index: int) -> None:
    made = UNIT.encode({"x": np.array([value])})
    assert made["c0"].tolist() == [index]
    assert made["m0"].tolist() == [int(np.isnan(value))]


def test_ties_go_up_and_not_to_even() -> None:
    halves = (np.arange(4) + 0.5) / 2**BITS
    assert UNIT.encode({"x": halves})["c0"].tolist() == [1, 2, 3, 4]


def test_whole_numbers_and_dates_are_kept_exactly_and_codes_are_positions() -> None:
    curation = Curation.from_schema(
        Schema(
            columns=[
                Column("age", type="integer", lower=17, upper=90),
                Column("day", lower=datetime.date(2020, 1, 1), upper=datetime.date(2024, 12, 31)),
                Column("job", values=("a", "b"), required=False),
            ]
        )
    )
    rows = {"age": [17, 33, 120], "day": ["2020-01-01", "2020-03-01", "1999-01-01"], "job": ["b", "z", None]}
    with open_table(rows) as table:
        (batch,) = table.batches(curation.schema)
    made = curation.encode(batch)
    assert made["c0"].tolist() == [0, 16, 73]
    assert made["c1"].tolist() == [0, 60, 0]
    assert made["c2"].tolist() == [1, 2, 3]
    assert [column.top for column in curation] == [73, 1826, 3]
    assert [column.step for column in curation][:2] == [1.0, 1.0]


def test_a_whole_number_with_more_steps_than_the_grid_is_quantized() -> None:
    curation = Curation.from_schema(Schema(columns=[Column("n", type="integer", lower=0, upper=2**40)]))
    assert curation.column("n").top == 2**BITS
    assert curation.encode({"n": np.array([2.0**39])})["c0"].tolist() == [2**19]


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.lists(st.floats(allow_nan=True), min_size=1))
def test_every_cell_lies_in_its_declared_range_and_rounds_to_the_nearest_step(
    lower: float, width: float, cells: list[float]
) -> None:
    column = Column("x", lower=lower, upper=lower + width, required=False)
    curation = Curation.from_schema(Schema(columns=[column]))
    (laid_out,) = curation.columns
    made = curation.encode({"x": column.clip(np.array(cells))})["c0"]
    assert made.dtype == np.int32
    assert 0 <= made.min() <= made.max() <= laid_out.top
    known = ~np.isnan(cells)
    decoded = laid_out.lower + laid_out.step * made[known]
    clipped = column.clip(np.array(cells))[known]
    assert np.all(np.abs(decoded - clipped) <= laid_out.step * (0.5 + 1e-6) + 1e-9 * abs(lower))


@given(st.floats(-10, 100), st.sampled_from(["income", "height", "age"]))
def test_an_edge_separates_values_below_it_from_those_at_or_above(edge: float, name: str) -> None:
    column = Curation.from_schema(people_schema()).column(name)
    index = column.nearest_index(edge)
    assert index == 0 or column.lower + column.step * (index - 1) < edge
    assert index == column.top + 1 or column.lower + column.step * index >= edge


def _encoded(n: int, order: list[int] | None = None) -> tuple[Curation, dict[str, np.ndarray]]:
    curation = Curation.from_schema(people_schema())
    rows = people(n)
    if order is not None:
        rows = {name: values[order] for name, values in rows.items()}
    with open_table(rows) as table:
        (batch,) = table.batches(curation.schema)
    return curation, curation.encode(batch)


def test_the_checksum_does_not_depend_on_the_order_of_rows_nor_on_batches() -> None:
    curation, made = _encoded(60)
    _, shuffled = _encoded(60, list(range(59, -1, -1)))
    parts = [{name: values[i::7] for name, values in made.items()} for i in range(7)]
    added = tuple(map(sum, zip(*(curation.checksum(part) for part in parts), strict=True)))
    assert curation.checksum(made) == curation.checksum(shuffled) == added


def test_the_checksum_notices_cells_exchanged_between_rows_and_columns() -> None:
    curation, made = _encoded(60)
    before = curation.checksum(made)
    changed = {name: values.copy() for name, values in made.items()}
    changed["c2"][[3, 4]] = changed["c2"][[4, 3]]
    assert changed["c2"].sum() == made["c2"].sum()
    for lane, lane_before in zip(curation.checksum(changed), before, strict=True):
        assert lane != lane_before


def test_the_name_of_a_version_is_nothing_without_the_key() -> None:
    versions = [Version(n, (n, c)) for n, c in itertools.product(range(3), range(3))]
    names = {version.digest(b"k" * 32) for version in versions}
    assert len(names) == len(versions)
    assert names.isdisjoint(version.digest(b"l" * 32) for version in versions)


def test_a_column_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    curation = Curation.from_schema(people_schema())
    with pytest.raises(ParameterError, match=r"'incom'\. Did you mean 'income'"):
        curation.column("incom")


def test_columns_that_do_not_leave_are_not_in_the_curated_table() -> None:
    schema = Schema(columns=[Column("who", type="id"), Column("x", lower=0, upper=1)])
    assert Curation.from_schema(schema).identifiers() == ("c0",)
    wide = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(2049)])
    with pytest.raises(SchemaError, match="1 to 2048"):
        Curation.from_schema(wide)
