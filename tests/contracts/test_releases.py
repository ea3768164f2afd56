"""What every registered release must do, whatever its mathematics."""

from __future__ import annotations

import dataclasses
import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.audit import distinguish, precision
from discreet.errors import BudgetExceeded, DataError, ParameterError, PromiseError, SchemaError, SourceError
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.noise_law import law_from_dict
from discreet.privacy import (
    ApproxDP,
    ErrorFloor,
    GaussianDP,
    NoPromise,
    Promise,
    PureDP,
    Receipt,
    Spending,
    promise_from_dict,
)
from discreet.privacy.calibration import response_epsilon
from discreet.release import METHODS, Release
from tests.contracts.cases import (
    BY_QUESTIONS,
    IN_LEVELS,
    INSIDE,
    INSIDE_THE_RANGE,
    NUMBER,
    OF_NOBODY,
    ON_ONE_NUMBER,
    OUTSIDE,
    RELEASES,
    ROWS,
    SCHEMA,
    WITHOUT_PROMISE,
)

methods = pytest.mark.parametrize("name", sorted(METHODS))
private = pytest.mark.parametrize("name", sorted(set(METHODS) - WITHOUT_PROMISE - OF_NOBODY))
rows_of_people = pytest.mark.parametrize("name", sorted(set(METHODS) - OF_NOBODY))


def test_every_method_has_an_example_and_every_example_a_method() -> None:
    assert set(RELEASES) == set(METHODS)
    assert set(ON_ONE_NUMBER) == set(METHODS) - WITHOUT_PROMISE - OF_NOBODY


@pytest.mark.parametrize("name", sorted(set(METHODS) - BY_QUESTIONS))
@pytest.mark.parametrize("published", [False, True], ids=["release", "publish"])
def test_the_charge_is_on_disk_before_the_first_random_bit(
    name: str, published: bool, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    before = ledger.head[0]
    rows_when_drawing: list[int] = []
    fill = Stream.fill

    def watched(self: Stream, out: Any) -> None:
        rows_when_drawing.append(Ledger.open(tmp_path / "ledger").head[0])
        fill(self, out)

    monkeypatch.setattr(Stream, "fill", watched)
    method = RELEASES[name](ledger=ledger)
    release = method.publish(dict(ROWS), tmp_path / "data.parquet") if published else method.release(ROWS)
    assert rows_when_drawing
    assert set(rows_when_drawing) == {before + 1}
    assert release.receipt.recorded
    ledger.check(release.receipt)


@methods
def test_nothing_is_drawn_when_the_budget_is_short(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=1e-3, delta=1e-9))
    draws: list[int] = []
    monkeypatch.setattr(Stream, "fill", lambda *_: draws.append(1))
    # What promises nothing does not fit under any limit.
    with pytest.raises(PromiseError if name in WITHOUT_PROMISE else BudgetExceeded):
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
    other = {
        **ROWS,
        "age": np.arange(100) ** 2 // 100,
        "income": np.full(100, 2e5),
        "job": np.array(["pilot"] * 100),
    }
    assert planned == released == method.release(other).promises
    assert planned


@methods
def test_promises_name_the_unit_and_survive_json(name: str) -> None:
    for promise in RELEASES[name]().release(ROWS).promises:
        assert promise.unit == SCHEMA.unit
        assert promise.arithmetic == ("real" if isinstance(promise, NoPromise) else "exact")
        assert promise_from_dict(promise.to_dict()) == promise
        with pytest.raises(dataclasses.FrozenInstanceError):
            promise.unit = "household"  # type: ignore[misc]


@methods
def test_the_receipt_survives_json_and_names_the_schema(name: str) -> None:
    receipt = RELEASES[name]().release(ROWS).receipt
    assert Receipt.from_dict(receipt.to_dict()) == receipt
    assert receipt.schema == SCHEMA.digest
    assert not receipt.recorded


@rows_of_people
def test_every_protected_column_is_covered_and_public_ones_are_not(name: str) -> None:
    release = RELEASES[name]().release(ROWS, shuffle=False)
    assert np.array_equal(release.decoded("region"), ROWS["region"])
    if name in WITHOUT_PROMISE:
        return
    covered = {c for p in release.promises if not isinstance(p, ErrorFloor) for c in p.covers or ()}
    assert covered == {"age", "income", "job", "owner"}


@rows_of_people
def test_several_rows_of_one_person_cost_accordingly(name: str) -> None:
    from discreet.schema import Column

    several = replace(
        SCHEMA, columns=[*SCHEMA.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=3
    )
    rows = {**ROWS, "who": np.repeat(np.arange(20), 5)}
    release = RELEASES[name](schema=several).release(rows)
    assert len(release.columns["age"]) == 60
    if name in WITHOUT_PROMISE:
        return
    # The same promise to a person with three rows takes more noise: three times the variance at least.
    one, three = (RELEASES[name](schema=s).plan(s, 100) for s in (SCHEMA, several))
    assert cost(three.promises) == pytest.approx(cost(one.promises), rel=1e-4)
    laws = [plan.columns[0].law.to_dict() for plan in (one, three)]
    if name in INSIDE_THE_RANGE:
        assert laws[1]["regularization"] < laws[0]["regularization"] / 2
    elif name in IN_LEVELS:
        assert (
            response_epsilon(laws[1]["law"]["keep"], 6) < response_epsilon(laws[0]["law"]["keep"], 6) / 2.99
        )
    else:
        assert laws[1]["variance"] > 2.99 * laws[0]["variance"]


def cost(promises: tuple[Promise, ...]) -> float:
    return Spending.from_promises(promises).epsilon_at(1e-6)


@pytest.mark.parametrize("name", sorted(set(METHODS) - BY_QUESTIONS))
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


@pytest.mark.parametrize("name", sorted(set(METHODS) - BY_QUESTIONS))
def test_schema_and_bounds_are_alternatives(name: str) -> None:
    for both in ({"schema": None, "bounds": None}, {"schema": SCHEMA, "bounds": (0, 1)}):
        with pytest.raises(ParameterError, match="exactly one of schema and bounds"):
            RELEASES[name](**both)


@methods
def test_documentation_says_what_is_protected_and_where_it_is_proven(name: str) -> None:
    text = inspect.getdoc(METHODS[name]) or ""
    for section in ("Parameters", "Privacy", "Reference", "Examples"):
        assert f"\n{section}\n---" in text


@rows_of_people
def test_the_rows_of_a_table_are_shuffled_unless_their_order_is_asked_for(name: str) -> None:
    regions = {**ROWS, "region": np.array(["north"] * 50 + ["south"] * 50)}
    shuffled = RELEASES[name]().release(regions).decoded("region")
    assert sorted(shuffled) == sorted(regions["region"])
    assert not np.array_equal(shuffled, regions["region"])
    kept = RELEASES[name]().release(regions, shuffle=False).decoded("region")
    assert np.array_equal(kept, regions["region"])


@private
def test_the_rows_of_a_matrix_keep_their_order(name: str) -> None:
    ends = np.repeat([-1.0, 3.0], 2_000).reshape(-1, 1)
    data = ON_ONE_NUMBER[name](1).release(ends).columns["x"]
    assert data[2_000:].mean() - data[:2_000].mean() > 2


@private
def test_publishing_in_batches_writes_the_same_promises_and_every_row(name: str, tmp_path: Any) -> None:
    source, target = tmp_path / "in.parquet", tmp_path / "out.parquet"
    from discreet.tables import open_table, write_table

    n = 150_000
    write_table(source, NUMBER, [{"x": np.full(n, 1.0)}])
    done = ON_ONE_NUMBER[name](3).publish(source, target)
    assert done.n_rows == n
    assert done.promises == ON_ONE_NUMBER[name](3).plan(NUMBER, n).promises
    with open_table(target) as table:
        assert table.count() == n
    books = Ledger.open(":memory:")
    for wrong in (target, tmp_path / "no" / "folder.parquet", tmp_path / "out.xlsx"):
        with pytest.raises((SourceError, ParameterError), match=r"exists|must end in"):
            RELEASES[name](ledger=books, schema=NUMBER).publish(source, wrong)
    assert not books.history()  # nothing is paid for what could not have been written
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=1e-3, delta=1e-9))
    with pytest.raises(BudgetExceeded):
        RELEASES[name](ledger=ledger, schema=NUMBER).publish(source, tmp_path / "never.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.parquet", "out.parquet"]


@methods
def test_the_summary_names_every_column_its_law_and_its_floor(name: str) -> None:
    release = RELEASES[name]().release(ROWS)
    assert [s.column for s in release.summary] == [c.name for c in release.schema.released]
    for summary in release.summary:
        assert law_from_dict(summary.law.to_dict()) == summary.law
        assert summary.law.words()
        without = name in WITHOUT_PROMISE | OF_NOBODY
        assert (summary.floor is None) == (summary.column == "region" or without)
    flagged = {s.column for s in release.summary if s.law.missing_keep is not None}
    assert flagged == (set() if name in WITHOUT_PROMISE | OF_NOBODY | IN_LEVELS else {"income"})


@private
def test_the_ends_of_the_range_are_no_easier_to_tell_apart_than_promised(name: str) -> None:
    (promise,) = (p for p in ON_ONE_NUMBER[name](0).plan(NUMBER, 1).promises if not isinstance(p, ErrorFloor))

    def cells(value: float, stream: Stream) -> Any:
        method = ON_ONE_NUMBER[name](int(stream.words(1)[0]))
        return method.release(np.full((50_000, 1), value)).columns["x"]

    for attack in (distinguish, precision):
        assert attack(cells, -1.0, 3.0, promise, stream=Stream.from_seed(1)).verdict == "holds"
    tight = GaussianDP(mu=0.05) if isinstance(promise, GaussianDP) else PureDP(epsilon=0.05)
    assert distinguish(cells, -1.0, 3.0, tight, stream=Stream.from_seed(1)).verdict == "broken"


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
    kinds = NoPromise if name in WITHOUT_PROMISE else PureDP | ApproxDP | GaussianDP
    assert any(isinstance(p, kinds) for p in release.promises)
