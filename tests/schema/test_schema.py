from __future__ import annotations

import dataclasses
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.errors import DataError, ParameterError
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    Column("pid", role="id"),
    Column("age", type="integer", lower=0, upper=120),
    Column("job", values=("clerk", "nurse")),
    Column("income", lower=0, upper=2e5, role="public"),
    Column("owner", values=(0, 1)),
    Column("note", role="drop"),
)


@pytest.fixture
def schema() -> Schema:
    return Schema(columns=COLUMNS, target="owner", id_column="pid", max_rows_per_unit=2)


def test_the_target_is_said_once_in_both_places(schema: Schema) -> None:
    assert schema.column("owner").role == "target"
    by_role = [dataclasses.replace(c, role="target") if c.name == "owner" else c for c in COLUMNS]
    assert Schema(columns=by_role, id_column="pid", max_rows_per_unit=2) == schema


def test_ids_and_dropped_columns_do_not_leave(schema: Schema) -> None:
    assert [c.name for c in schema.released] == ["age", "job", "income", "owner"]
    assert [c.name for c in schema.features] == ["age", "job", "income"]
    assert [c.name for c in schema.numeric_features] == ["age", "income"]
    assert schema.names == ("pid", "age", "job", "income", "owner", "note")
    assert "age" in schema
    assert "wage" not in schema


def test_bounds_are_two_vectors_over_the_numeric_features(schema: Schema) -> None:
    lower, upper = schema.bounds
    np.testing.assert_array_equal(lower, [0, 0])
    np.testing.assert_array_equal(upper, [120, 2e5])
    with pytest.raises(ValueError, match="read-only"):
        lower[0] = -1


def test_a_matrix_is_clipped_to_the_bounds_and_not_changed_itself(schema: Schema) -> None:
    rows = np.array([[130.0, -1.0], [np.nan, np.inf]])
    before = rows.copy()
    np.testing.assert_array_equal(schema.clip(rows), [[120, 0], [np.nan, 2e5]])
    np.testing.assert_array_equal(rows, before)


def test_a_batch_is_clipped_by_name_and_other_columns_pass(schema: Schema) -> None:
    jobs = np.array(["clerk", "pilot"])
    clipped = schema.clip({"job": jobs, "age": np.array([-3, 200])})
    assert list(clipped) == ["job", "age"]
    assert clipped["job"] is jobs
    np.testing.assert_array_equal(clipped["age"], [0, 120])
    with pytest.raises(ParameterError, match="Did you mean 'age'"):
        schema.clip({"aeg": np.array([1.0])})


@pytest.mark.parametrize("shape", [(2,), (2, 3), (2, 2, 1)])
def test_a_matrix_of_another_shape_is_refused(schema: Schema, shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"each of the 2 numeric features \(age, income\)"):
        schema.clip(np.zeros(shape))


def test_another_target_sets_the_old_one_free(schema: Schema) -> None:
    changed = schema.with_target("job")
    assert changed.target == "job"
    assert changed.column("owner").role == "sensitive"
    assert schema.with_target("owner") == schema
    assert changed.with_target("owner").column("owner") == schema.column("owner")
    # A table that was coded under the declared target has no further level.
    assert changed.column("owner").levels == schema.column("owner").levels
    with pytest.raises(ParameterError, match="Did you mean 'job'"):
        schema.with_target("jobb")


def test_columns_are_replaced_by_name(schema: Schema) -> None:
    changed = schema.with_columns(Column("age", type="integer", lower=18, upper=99))
    assert changed.column("age").lower == 18
    assert changed.names == schema.names
    with pytest.raises(ParameterError):
        schema.with_columns(Column("wage", lower=0, upper=1))


def test_a_schema_is_a_value(schema: Schema) -> None:
    assert pickle.loads(pickle.dumps(schema)) == schema
    assert pickle.loads(pickle.dumps(schema)).column("age").upper == 120
    with pytest.raises(dataclasses.FrozenInstanceError):
        schema.unit = "row"  # type: ignore[misc]


def test_every_declaration_changes_the_digest(schema: Schema) -> None:
    changed = [
        schema.with_target("job"),
        schema.with_columns(Column("age", type="integer", lower=0, upper=121)),
        schema.with_columns(Column("age", lower=0, upper=120)),
        schema.with_columns(Column("job", values=("nurse", "clerk"))),
        schema.with_columns(Column("job", values=("clerk", "nurse"), required=False)),
        schema.with_columns(Column("owner", values=(False, True), role="target")),
        dataclasses.replace(schema, neighbors="add-remove"),
        dataclasses.replace(schema, row_count="private"),
        dataclasses.replace(schema, max_rows_per_unit=3),
        dataclasses.replace(schema, unit="household"),
        dataclasses.replace(schema, columns=schema.columns[::-1]),
    ]
    digests = {schema.digest, *(other.digest for other in changed)}
    assert len(digests) == len(changed) + 1


def test_a_schema_is_loaded_from_yaml_and_from_json(schema: Schema, tmp_path: Path) -> None:
    import json

    (tmp_path / "t.schema.yaml").write_text(schema.to_yaml(), "utf-8")
    (tmp_path / "t.schema.json").write_text(json.dumps(schema.to_dict()), "utf-8")
    assert Schema.load(tmp_path / "t.schema.yaml") == schema
    assert Schema.load(str(tmp_path / "t.schema.json")) == schema
