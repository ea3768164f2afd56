"""What every registered release must do, whatever its mathematics."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.errors import BudgetExceeded, DataError, ParameterError, SchemaError
from discreet.noise import Stream
from discreet.privacy import ApproxDP, ErrorFloor, GaussianDP, Ledger, PureDP, Receipt, promise_from_dict
from discreet.release import METHODS, Release
from tests.contracts.cases import INSIDE, OUTSIDE, RELEASES, ROWS, SCHEMA

methods = pytest.mark.parametrize("name", sorted(METHODS))


def test_every_method_has_an_example_and_every_example_a_method() -> None:
    assert set(RELEASES) == set(METHODS)


@methods
def test_the_charge_is_on_disk_before_the_first_random_bit(
    name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    before = ledger.head[0]
    rows_when_drawing: list[int] = []
    fill = Stream.fill

    def watched(self: Stream, out: Any) -> None:
        rows_when_drawing.append(Ledger.open(tmp_path / "ledger").head[0])
        fill(self, out)

    monkeypatch.setattr(Stream, "fill", watched)
    release = RELEASES[name](ledger=ledger).release(ROWS)
    assert rows_when_drawing
    assert set(rows_when_drawing) == {before + 1}
    assert release.receipt.recorded
    ledger.check(release.receipt)


@methods
def test_nothing_is_drawn_when_the_budget_is_short(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=1e-3, delta=1e-9))
    draws: list[int] = []
    monkeypatch.setattr(Stream, "fill", lambda *_: draws.append(1))
    with pytest.raises(BudgetExceeded):
        RELEASES[name](ledger=ledger).release(ROWS)
    assert not draws


@methods
def test_one_seed_gives_one_release_and_marks_it(name: str) -> None:
    first, second = (RELEASES[name](random_state=7).release(ROWS) for _ in range(2))
    fresh, other = (RELEASES[name]().release(ROWS) for _ in range(2))
    assert first.receipt.seeded
    assert not fresh.receipt.seeded
    assert all(np.array_equal(first.columns[c], second.columns[c], equal_nan=True) for c in first.columns)
    assert not np.array_equal(fresh.columns["age"], other.columns["age"])


@methods
def test_values_outside_the_bounds_are_worth_exactly_the_bound(name: str) -> None:
    outside, inside = (RELEASES[name](random_state=7).release(rows) for rows in (OUTSIDE, INSIDE))
    for column in outside.columns:
        assert np.array_equal(outside.columns[column], inside.columns[column], equal_nan=True)


@methods
def test_promises_are_made_from_public_facts_alone(name: str) -> None:
    method = RELEASES[name]()
    planned = method.plan(SCHEMA, len(ROWS["age"])).promises
    released = method.release(ROWS).promises
    other = {**ROWS, "age": np.zeros(100), "income": np.full(100, 2e5), "job": np.array(["pilot"] * 100)}
    assert planned == released == method.release(other).promises
    assert planned


@methods
def test_promises_name_the_unit_and_survive_json(name: str) -> None:
    for promise in RELEASES[name]().release(ROWS).promises:
        assert promise.unit == SCHEMA.unit
        assert promise.arithmetic == "exact"
        assert promise_from_dict(promise.to_dict()) == promise
        with pytest.raises(dataclasses.FrozenInstanceError):
            promise.unit = "household"  # type: ignore[misc]


@methods
def test_the_receipt_survives_json_and_names_the_schema(name: str) -> None:
    receipt = RELEASES[name]().release(ROWS).receipt
    assert Receipt.from_dict(receipt.to_dict()) == receipt
    assert receipt.schema == SCHEMA.digest
    assert not receipt.recorded


@methods
def test_every_protected_column_is_covered_and_public_ones_are_not(name: str) -> None:
    release = RELEASES[name]().release(ROWS)
    covered = {c for p in release.promises if not isinstance(p, ErrorFloor) for c in p.covers or ()}
    assert covered == {"age", "income", "job", "owner"}
    assert np.array_equal(release.decoded("region"), ROWS["region"])


@methods
def test_several_rows_of_one_person_cost_accordingly(name: str) -> None:
    from discreet.schema import Column

    several = replace(
        SCHEMA, columns=[*SCHEMA.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=3
    )
    rows = {**ROWS, "who": np.repeat(np.arange(20), 5)}
    release = RELEASES[name](schema=several).release(rows)
    assert len(release.columns["age"]) == 60
    one, three = (RELEASES[name](schema=s).release(r) for s, r in ((SCHEMA, ROWS), (several, rows)))
    # The same promise to a person with three rows takes three times the noise.
    sizes = [next(p for p in r.promises if isinstance(p, GaussianDP)).mu for r in (one, three)]
    assert sizes[1] == pytest.approx(sizes[0], rel=1e-4)
    assert float(np.nanstd(three.columns["age"])) > 2 * float(np.nanstd(one.columns["age"]))


@methods
@pytest.mark.parametrize("change", [{"neighbors": "add-remove"}, {"row_count": "private"}])
def test_a_table_whose_length_is_secret_is_refused(name: str, change: dict[str, Any]) -> None:
    with pytest.raises(SchemaError, match="shows its length"):
        RELEASES[name](schema=replace(SCHEMA, **change)).release(ROWS)


@methods
def test_a_missing_cell_where_one_is_required_names_the_column_and_no_value(name: str) -> None:
    rows = {**ROWS, "age": np.array([np.nan, 61, 5, 118] * 25)}
    with pytest.raises(DataError, match="age") as caught:
        RELEASES[name]().release(rows)
    assert "61" not in str(caught.value)


@methods
def test_a_table_without_rows_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="row"):
        RELEASES[name]().release({key: values[:0] for key, values in ROWS.items()})


@methods
def test_schema_and_bounds_are_alternatives(name: str) -> None:
    for both in ({"schema": None, "bounds": None}, {"schema": SCHEMA, "bounds": (0, 1)}):
        with pytest.raises(ParameterError, match="exactly one of schema and bounds"):
            RELEASES[name](**both)


@methods
def test_documentation_says_what_is_protected_and_where_it_is_proven(name: str) -> None:
    text = inspect.getdoc(METHODS[name]) or ""
    for section in ("Parameters", "Privacy", "Reference", "Examples"):
        assert f"\n{section}\n---" in text


@methods
def test_what_was_released_can_be_written_and_read_back(name: str, tmp_path: Any) -> None:
    from discreet.tables import open_table

    release = RELEASES[name](random_state=1).release(ROWS)
    release.write(tmp_path / "out.parquet")
    with open_table(tmp_path / "out.parquet") as table:
        assert table.count() == 100
        assert set(table.names) == set(release.columns)


@methods
def test_a_release_is_a_value(name: str) -> None:
    release = RELEASES[name]().release(ROWS)
    assert isinstance(release, Release)
    with pytest.raises(dataclasses.FrozenInstanceError):
        release.promises = ()  # type: ignore[misc]
    assert any(isinstance(p, PureDP | GaussianDP) for p in release.promises)
