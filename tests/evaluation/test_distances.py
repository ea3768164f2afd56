"""Distances of a synthetic table: against a count by hand, and what its published answers measure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest

from discreet import ApproxDP, Column, Schema
from discreet.evaluation.tallies import TableTally
from discreet.noise import Stream
from discreet.release.synthetic import SyntheticRelease
from discreet.report.findings import TableQuality
from discreet.report.noisy_tables import MeasuredTables, read_tables
from discreet.tables import open_table
from tests.release.synthetic_tables import mixed_rows, mixed_schema, plain_rows, plain_schema

Rows: TypeAlias = Mapping[str, Any]


@cache
def released(kind: str = "mixed", epsilon: float = 8.0) -> tuple[SyntheticRelease, Schema, Rows, Rows]:
    """Make a small table, with the rows that it was made from."""
    schema, rows = (
        (mixed_schema(), mixed_rows(4000)) if kind == "mixed" else (plain_schema(6), plain_rows(3000, 6))
    )
    method = SyntheticRelease(
        ApproxDP(epsilon=epsilon, delta=1e-6), schema=schema, anyway=True, random_state=3
    )
    return method, schema, rows, method.release(rows).columns


def measured_of(method: SyntheticRelease) -> MeasuredTables:
    """Read the published files as anyone would: from JSON."""
    return read_tables(json.loads(json.dumps(method.tables_)), json.loads(json.dumps(method.model_)))


def tally_of(kind: str = "mixed", epsilon: float = 8.0, batch: int = 1000) -> TableTally:
    method, schema, rows, made = released(kind, epsilon)
    tally = TableTally(schema, measured_of(method))
    with open_table(rows) as table:
        tally.add_true(table.batches(schema))
    n = len(next(iter(made.values())))
    tally.add_made({k: v[i : i + batch] for k, v in made.items()} for i in range(0, n, batch))
    return tally


def cells_by_hand(measured: MeasuredTables, schema: Schema, rows: Rows) -> dict[str, Any]:
    """Find the cell of every value without the code of the release."""
    found = {}
    for one in measured.columns:
        column, values = schema.column(one.column), np.asarray(rows[one.column])
        if column.is_category:
            codes = np.array(one.groups)[values] if one.groups else values
        else:
            codes = np.array(
                [len(one.edges) + 1 if np.isnan(v) else sum(v >= e for e in one.edges) for v in values]
            )
        found[one.column] = codes
    return found


def distance_by_hand(true: list[Any], made: list[Any]) -> float:
    sides = []
    for cells in (true, made):
        places, counts = np.unique(np.column_stack(cells), axis=0, return_counts=True)
        sides.append({tuple(p): c / len(cells[0]) for p, c in zip(places.tolist(), counts, strict=True)})
    first, second = sides
    return float(sum(abs(first.get(k, 0.0) - second.get(k, 0.0)) for k in {*first, *second})) / 2


@pytest.mark.parametrize("kind", ["mixed", "plain"])
def test_distances_are_those_of_a_count_by_hand(kind: str) -> None:
    _, schema, rows, made = released(kind)
    quality = tally_of(kind).measure()
    with open_table(rows) as table:
        (batch,) = table.batches(schema)
    true, other = (cells_by_hand(quality.measured, schema, side) for side in (batch, made))
    names = quality.measured.names
    assert names == [c.name for c in schema.released]
    for i, name in enumerate(names):
        assert quality.one_way[i] == pytest.approx(distance_by_hand([true[name]], [other[name]]))
        for j, before in enumerate(names[:i]):
            expected = distance_by_hand([true[name], true[before]], [other[name], other[before]])
            assert quality.two_way[i][j] == pytest.approx(expected)
    assert (quality.rows, quality.made_rows) == (len(true["c0" if kind == "plain" else "age"]),) * 2


def test_means_and_correlations_are_compared_over_all_rows() -> None:
    _, schema, rows, made = released()
    tally = tally_of()
    quality, correlations = tally.measure(), tally.compare_correlations()
    age = np.asarray(rows["age"], float)
    assert quality.means["age"] == pytest.approx(abs(made["age"].mean() - age.mean()) / age.std())
    assert set(quality.means) == {c.name for c in schema.released if not c.is_category}
    assert correlations is not None
    i, j = (correlations.columns.index(name) for name in ("age", "children"))
    true = np.corrcoef(age, rows["children"])[0, 1]
    released_one = np.corrcoef(made["age"], made["children"])[0, 1]
    assert correlations.original[i][j] == pytest.approx(true, abs=1e-9)
    assert correlations.release[i][j] == pytest.approx(released_one, abs=1e-9)
    differences = np.abs(np.array(correlations.release) - correlations.original)
    size = len(correlations.columns)
    assert quality.correlation_error == pytest.approx(differences.sum() / (size * (size - 1)))
    assert {c.column for c in tally.compare_columns()} == {c.name for c in schema.released}


def test_the_distance_by_chance_is_that_of_rows_drawn_again() -> None:
    tally = tally_of("plain")
    quality = tally.measure()
    counts = np.bincount(np.asarray(released("plain")[2]["c0"]), minlength=3)
    draws = Stream.from_seed(5).generator().multinomial(counts.sum(), counts / counts.sum(), 4000)
    mean = (np.abs(draws - counts).sum(axis=1) / 2 / counts.sum()).mean()
    # The mean of 4,000 draws has a deviation of about 1 %; the seed is fixed.
    assert quality.one_way_chance[0] == pytest.approx(mean, rel=0.1)
    assert 0 < quality.two_way_chance < 0.1


def test_tables_are_read_with_their_noise_and_pairs_without_one_are_named() -> None:
    method = released()[0]
    measured = measured_of(method)
    held = {
        frozenset(pair)
        for one in method.tables_["questions"]
        for table in one["question"].get("tables", ())
        for pair in itertools.combinations(table, 2)
    }
    wanted = [pair for pair in itertools.combinations(measured.names, 2) if frozenset(pair) not in held]
    assert measured.unmeasured == wanted
    assert measured.rows == 4000
    assert measured.target == "ill"
    assert {(e.first, e.second) for e in measured.edges} <= {
        (a, b) for a, b in itertools.permutations(measured.names, 2)
    }
    # One-way counts were asked for twice: their noise is that of the mean of both answers.
    variances = [
        one["sd"][0] ** 2
        for one in method.tables_["questions"]
        if one["question"].get("tables", [[]])[0] == ["day", "ill"]
    ]
    (table,) = (t for t in measured.tables if t.columns == ["day", "ill"])
    assert len(variances) > 1
    assert table.sd == pytest.approx(sum(1 / v for v in variances) ** -0.5)
    assert table.cells == 2 * measured.columns[0].cells


def test_a_private_number_of_rows_is_estimated_and_rare_levels_are_counted() -> None:
    levels = tuple(f"v{i}" for i in range(80))
    schema = Schema(
        columns=[Column("word", values=levels, closed=True), Column("ill", values=(0, 1), role="target")],
        neighbors="add-remove",
        unit="person",
        max_rows_per_unit=1,
    )
    words = [levels[i % 4] for i in range(6000)]
    promise = ApproxDP(epsilon=8, delta=1e-6, neighbors="add-remove")
    method = SyntheticRelease(promise, schema=schema, random_state=2)
    made = method.release({"word": words, "ill": [i % 2 for i in range(6000)]})
    measured = measured_of(method)
    assert measured.rows == pytest.approx(6000, abs=100)
    word = measured.columns[0]
    assert (word.levels, word.merged, word.cells) == (80, 76, 5)
    assert word.has_inside
    tally = TableTally(schema, measured)
    with open_table({"word": words, "ill": [i % 2 for i in range(6000)]}) as table:
        tally.add_true(table.batches(schema))
    tally.add_made([made.columns])
    assert tally.measure().one_way[0] < 0.05


def test_one_column_has_no_pairs() -> None:
    schema = Schema(columns=[Column("a", values=(0, 1, 2))])
    rows = {"a": [0, 1, 2, 2] * 100}
    method = SyntheticRelease(ApproxDP(epsilon=4, delta=1e-6), schema=schema, random_state=1)
    made = method.release(rows)
    tally = TableTally(schema, measured_of(method))
    with open_table(rows) as table:
        tally.add_true(table.batches(schema))
    tally.add_made([made.columns])
    quality = tally.measure()
    assert (len(quality.one_way), quality.two_way, quality.correlation_error) == (1, [[]], None)
    assert TableQuality.model_validate_json(quality.model_dump_json()) == quality
