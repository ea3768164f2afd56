from __future__ import annotations

import datetime
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import ParameterError, SchemaError
from discreet.query.curation import BITS, Curation, Version, exact_words
from discreet.schema import Column, Schema
from discreet.tables import open_table
from tests.query.people import people, people_schema

UNIT = Curation.from_schema(Schema(columns=[Column("x", lower=0, upper=1, required=False)]))


@pytest.mark.parametrize(
    ("value", "index"),
    [
        (0.1, 107374182),
        (0.3, 322122547),
        (1 / 3, 357913941),
        (0.999999999, 1073741823),
        (1.0, 2**30),
        (-np.inf, 0),
        (np.inf, 2**30),
        (np.nan, 2**29),
        (1e308, 2**30),
        (5e-324, 0),
        (-0.0, 0),
    ],
)
def test_numbers_land_on_the_grid_where_the_specification_says(value: float, index: int) -> None:
    made = UNIT.encode({"x": np.array([value])})
    assert made["c0"].tolist() == [index]
    assert made["m0"].tolist() == [int(np.isnan(value))]


@given(st.floats(allow_nan=True), st.sampled_from([(0.0, 1.0), (-3.3, 1e-90), (0.0, 1e-100), (2.5, 1e100)]))
def test_the_value_that_is_compared_is_clamped_and_otherwise_as_it_was(
    value: float, bounds: tuple[float, float]
) -> None:
    lower, upper = bounds
    column = Column("x", lower=lower, upper=upper, required=False)
    made = Curation.from_schema(Schema(columns=[column])).encode({"x": np.array([value])})["v0"]
    wanted = column.fill if np.isnan(value) else min(max(value, lower), upper)
    wanted = 0.0 if abs(wanted) < 2.0**-448 else wanted
    assert made.dtype == np.float64
    assert made.tobytes() == np.array([wanted]).tobytes()  # the sign of a zero too


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


def test_whole_numbers_are_exact_up_to_the_widest_range() -> None:
    def curation(lower: int, upper: int) -> Curation:
        return Curation.from_schema(Schema(columns=[Column("n", type="integer", lower=lower, upper=upper)]))

    narrow, wide = curation(-5, 2**31 - 6), curation(-(2**53), 2**53)
    cells = np.array([-5.0, 2**30 + 1, 2**31 - 6])
    assert narrow.encode({"n": cells})["c0"].tolist() == [0, 2**30 + 6, 2**31 - 1]
    assert narrow.identifiers() == narrow.exact_identifiers() == ("c0",)
    cells = np.array([-(2.0**53), 3.0, 2.0**53 - 1, 2.0**53])
    made = wide.encode({"n": cells})
    assert np.array_equal(made["v0"], cells)
    assert made["c0"].tolist() == [0, 2**29, 2**30, 2**30]
    assert (wide.identifiers(), wide.exact_identifiers()) == (("c0", "v0"), ("v0",))
    assert curation(0, 2**31).column("n").values == "v0"


@settings(max_examples=50)
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


@given(st.floats(-10, 100).map(lambda x: round(x, 20)), st.sampled_from(["income", "height", "age"]))
def test_an_edge_separates_values_below_it_from_those_at_or_above(edge: float, name: str) -> None:
    column = Curation.from_schema(people_schema()).column(name)
    cells = column.lower + np.arange(200) * (column.upper - column.lower) / 199
    cells = np.append(np.floor(cells) if column.whole else cells, np.clip(edge, column.lower, column.upper))
    cells = np.floor(cells) if column.whole else cells
    assert np.array_equal(column.encode(cells)[column.exact] >= column.start(edge), cells >= edge)


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
    added = sum(curation.checksums(part)[0] for part in parts) % 2**64
    assert curation.checksums(made)[0] == curation.checksums(shuffled)[0] == added


def test_the_checksum_notices_cells_exchanged_between_rows_and_columns() -> None:
    curation, made = _encoded(60)
    before = curation.checksums(made)[0]
    for name in curation.exact_identifiers():
        changed = {name: values.copy() for name, values in made.items()}
        i, j = 0, int(np.argmax(changed[name] != changed[name][0]))
        changed[name][[i, j]] = changed[name][[j, i]]
        assert changed[name].sum() == made[name].sum()
        assert curation.checksums(changed)[0] != before


def test_the_checksum_notices_the_last_bit_and_round_numbers_exchanged_between_columns() -> None:
    columns = [Column(name, lower=-8, upper=8) for name in "xy"]
    curation = Curation.from_schema(Schema(columns=columns))

    def checksum(x: float, y: float) -> int:
        return curation.checksums(curation.encode({"x": np.array([x]), "y": np.array([y])}))[0]

    assert checksum(np.nextafter(0.1, 1), 0) != checksum(0.1, 0)
    # Powers of two differ in few bits: all sums of two of them must differ.
    powers = [s * 2.0**k for k in range(-20, 4) for s in (1, -1)]
    assert len({checksum(x, y) for x in powers for y in powers}) == len(powers) ** 2


def test_the_sum_of_the_bits_alone_would_not_notice() -> None:
    """The wrong twin: without mixing, exchanged cells leave the sum as it is."""
    _, made = _encoded(60)
    changed = made["v1"].copy()
    j = int(np.argmax(changed != changed[0]))
    changed[[0, j]] = changed[[j, 0]]
    assert changed[0] != made["v1"][0]
    assert exact_words(changed).sum() == exact_words(made["v1"]).sum()


def test_the_name_of_a_version_is_nothing_without_the_key() -> None:
    versions = [Version(n, c) for n, c in itertools.product(range(3), range(3))]
    names = {version.digest(b"k" * 32) for version in versions}
    assert len(names) == len(versions)
    assert names.isdisjoint(version.digest(b"l" * 32) for version in versions)


def test_a_column_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    curation = Curation.from_schema(people_schema())
    with pytest.raises(ParameterError, match=r"'incom'\. Did you mean 'income'"):
        curation.column("incom")


def test_columns_that_do_not_leave_are_not_in_the_curated_table() -> None:
    schema = Schema(columns=[Column("who", type="id"), Column("x", lower=0, upper=1)])
    assert Curation.from_schema(schema).identifiers() == ("c0", "v0")
    wide = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(2049)])
    with pytest.raises(SchemaError, match="1 to 2048"):
        Curation.from_schema(wide)
