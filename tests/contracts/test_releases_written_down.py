"""What a stranger needs of every method: to plan it again, to replay it with its key, to spot a forgery."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.privacy import ApproxDP, ErrorFloor, PureDP
from discreet.release import (
    METHODS,
    BoundedRelease,
    CoarseRelease,
    GaussianRelease,
    InputPerturbation,
    InvariantRelease,
    LaplaceRelease,
    MaskedRelease,
    method_from_dict,
    published_schema,
)
from discreet.release.invariant import SVMLearner
from discreet.schema import Column, Schema
from discreet.tables import open_table
from tests.contracts.cases import IN_LEVELS, OF_NOBODY, RELEASES, ROWS, SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from discreet._types import AnyArray
    from discreet.release import ReleaseMethod

NUMBERS = Schema(columns=[Column("a", lower=0, upper=1), Column("b", lower=0, upper=5)])
OTHERS: dict[str, ReleaseMethod] = {
    "floors": GaussianRelease(privacy=ErrorFloor(age=9), schema=SCHEMA, clamp=True, label="clear"),
    "matrix": GaussianRelease(regularization=2.0, weights=np.array([[1.0, 0.1], [0.1, 2.0]]), schema=NUMBERS),
    "by name": GaussianRelease(scale={"a": 0.5, "b": 2.0}, schema=NUMBERS),
    "matched": LaplaceRelease(
        match=GaussianRelease(scale=0.5, schema=NUMBERS), on="variance", schema=NUMBERS
    ),
    "ends": BoundedRelease(support={"a": (-0.5, 1.0), "b": 2.0}, schema=NUMBERS),
    "learner": InvariantRelease(learner=SVMLearner(theta=10), variance=1.0, schema=SCHEMA),
    "coarse, all options": CoarseRelease(
        privacy=PureDP(epsilon=2),
        cuts={"age": [18, 65]},
        groups={"job": {"at work": ["clerk", "nurse", "pilot"]}},
        joint=("job", "owner"),
        per_row=1,
        label_share=0.75,
        schema=SCHEMA,
    ),
    "coarse, clear label": CoarseRelease(privacy=PureDP(epsilon=5), label="clear", schema=SCHEMA),
    "short rows": InputPerturbation(privacy=PureDP(epsilon=3), norm_bound=0.8, schema=NUMBERS),
    "noisy counts": MaskedRelease(
        privacy=ApproxDP(epsilon=2, delta=1e-6), labels="noisy_counts", n_records=150, schema=SCHEMA
    ),
}
CASES = {**{name: make() for name, make in RELEASES.items()}, **OTHERS}


def written(method: ReleaseMethod) -> dict[str, Any]:
    return dict(json.loads(json.dumps({"name": method.name, "parameters": method.parameters()})))


def read(path: Path, schema: Schema) -> dict[str, AnyArray]:
    with open_table(path) as table:
        batches = list(table.batches(published_schema(schema)))
    return {name: np.concatenate([b[name] for b in batches]) for name in batches[0]}


def rows_of(schema: Schema) -> Mapping[str, Any]:
    return ROWS if schema is SCHEMA else {"a": np.linspace(0, 1, 40), "b": np.linspace(5, 0, 40)}


def test_every_method_has_a_case_here() -> None:
    assert set(RELEASES) == set(METHODS)


@pytest.mark.parametrize("name", CASES)
def test_a_method_written_down_plans_the_same(name: str) -> None:
    method = CASES[name]
    assert method.schema is not None
    again = method_from_dict(written(method), schema=method.schema)
    before, after = (m.plan(method.schema, 100) for m in (method, again))
    assert after.promises == before.promises
    assert after.columns == before.columns
    assert again.not_protected(method.schema) == method.not_protected(method.schema)


@pytest.mark.parametrize("name", CASES)
def test_the_key_replays_a_release_cell_for_cell_and_another_key_does_not(name: str, tmp_path: Path) -> None:
    method = CASES[name]
    assert method.schema is not None
    rows, key = rows_of(method.schema), bytes(range(32))
    done = method.publish(rows, tmp_path / "a.parquet", stream=Stream.for_replay(key))
    again = method_from_dict(written(method), schema=method.schema)
    again.publish(rows, tmp_path / "b.parquet", stream=Stream.for_replay(key))
    again.publish(rows, tmp_path / "c.parquet", stream=Stream.for_replay(key[::-1]))
    first, replayed, other = (read(tmp_path / f"{f}.parquet", done.schema) for f in "abc")
    assert done.commitment == Stream(key).commitment
    for column in first:
        np.testing.assert_array_equal(first[column], replayed[column])
    assert any(not np.array_equal(first[c], other[c], equal_nan=first[c].dtype.kind == "f") for c in first)


@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].name not in OF_NOBODY])
def test_a_watcher_sees_true_and_published_rows_side_by_side(name: str, tmp_path: Path) -> None:
    method = CASES[name]
    assert method.schema is not None
    seen: list[tuple[dict[str, AnyArray], dict[str, AnyArray]]] = []
    done = method.publish(
        rows_of(method.schema),
        tmp_path / "a.parquet",
        shuffle=False,
        watch=lambda rows, published: seen.append((dict(rows), dict(published))),
    )
    published = read(tmp_path / "a.parquet", done.schema)
    for column in published:
        together = np.concatenate([part[1][column] for part in seen])
        np.testing.assert_array_equal(together, published[column])
    if "region" in published:  # public, so the two sides must agree row by row
        np.testing.assert_array_equal(
            np.concatenate([part[0]["region"] for part in seen]), published["region"]
        )


@pytest.mark.parametrize("name", CASES)
def test_what_was_published_fits_its_plan(name: str, tmp_path: Path) -> None:
    method = CASES[name]
    assert method.schema is not None
    done = method.publish(rows_of(method.schema), tmp_path / "a.parquet", stream=Stream.from_seed(3))
    plan = method.plan(method.schema, done.n_read or 0)
    assert plan.misfits(read(tmp_path / "a.parquet", plan.schema)) == {}


@pytest.mark.parametrize(
    "name", [name for name in CASES if CASES[name].name not in {"invariant", *OF_NOBODY, *IN_LEVELS}]
)
def test_a_cell_off_the_lattice_does_not_fit(name: str, tmp_path: Path) -> None:
    method = CASES[name]
    assert method.schema is not None
    method.publish(rows_of(method.schema), tmp_path / "a.parquet")
    plan = method.plan(method.schema, 100)
    number = "age" if method.schema is SCHEMA else "a"
    columns = read(tmp_path / "a.parquet", plan.schema)
    lower, upper = method.schema.column(number).range
    inside = np.flatnonzero((columns[number] > lower) & (columns[number] < upper))[0]
    columns[number][inside] += 1e-4 * (upper - lower) * np.pi
    assert set(plan.misfits(columns)) & {number}


def test_levels_and_missing_cells_that_cannot_be_do_not_fit(tmp_path: Path) -> None:
    method = CASES["gaussian"]
    method.publish(ROWS, tmp_path / "a.parquet")
    plan = method.plan(SCHEMA, 100)
    columns = read(tmp_path / "a.parquet", SCHEMA)
    columns["job"][0] = 99
    columns["age"][0] = np.nan
    assert set(plan.misfits(columns)) == {"job", "age"}


def test_a_declared_grid_is_kept_and_is_part_of_the_law(tmp_path: Path) -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=10, grid=0.5)])
    method = GaussianRelease(scale=3.0, schema=schema)
    plan = method.plan(schema, 40)
    method.publish({"x": np.linspace(0, 10, 40)}, tmp_path / "a.parquet")
    x = read(tmp_path / "a.parquet", schema)["x"]
    np.testing.assert_array_equal(x % 0.5, 0)
    law = plan.columns[0].law
    assert law.to_dict()["grid"] == 0.5
    assert "rounded to steps of 0.5" in law.words()
    assert plan.misfits({"x": x}) == {}
    assert set(plan.misfits({"x": x + 0.1})) == {"x"}


def test_a_learner_that_cannot_be_written_down_is_refused() -> None:
    @dataclasses.dataclass
    class Mine:
        wants: str = "two classes"
        unique: bool = True

        def solve(self, X: Any, y: Any, n_classes: int) -> Any:
            raise AssertionError

    method = InvariantRelease(learner=Mine(), variance=1.0, schema=SCHEMA)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="learner of InvariantRelease must be one of svm"):
        method.parameters()


def test_unknown_methods_and_parameters_are_refused() -> None:
    with pytest.raises(ParameterError, match=r"one of bounded, coarse, .*synthetic, was 'magic'"):
        method_from_dict({"name": "magic", "parameters": {}}, schema=SCHEMA)
    with pytest.raises(ParameterError, match="'sigma' is no parameter of GaussianRelease"):
        method_from_dict({"name": "gaussian", "parameters": {"sigma": 1}}, schema=SCHEMA)


def test_a_seed_and_a_key_exclude_each_other(tmp_path: Path) -> None:
    method = GaussianRelease(scale=1.0, schema=NUMBERS, random_state=1)
    with pytest.raises(ParameterError, match="random_state or from stream"):
        method.publish(rows_of(NUMBERS), tmp_path / "a.parquet", stream=Stream())


@pytest.mark.parametrize("name", CASES)
def test_more_noise_never_promises_less(name: str) -> None:
    method = CASES[name]
    assert method.schema is not None
    plain, same, more = (method.scaled_plan(method.schema, 100, f) for f in (1.0, 1.0, 2.0))
    assert same.columns == plain.columns
    assert same.promises == plain.promises
    for before, after in zip(plain.columns, more.columns, strict=True):
        if before.floor is not None:
            assert after.floor is not None
            assert after.floor.error > before.floor.error
        variance = before.law.to_dict().get("variance")
        if variance:
            assert after.law.to_dict()["variance"] == pytest.approx(4 * variance, rel=1e-6)


@pytest.mark.parametrize("name", ["bounded", "gaussian", "laplace"])
def test_a_range_far_from_zero_is_no_forgery(name: str, tmp_path: Path) -> None:
    schema = Schema(columns=[Column("x", lower=1e15, upper=1e15 + 1)])
    method = METHODS[name](privacy=ErrorFloor(x=0.1), schema=schema)  # type: ignore[call-arg]
    method.publish({"x": np.full(50, 1e15 + 0.5)}, tmp_path / "a.parquet")
    assert method.plan(schema, 50).misfits(read(tmp_path / "a.parquet", schema)) == {}


def test_a_wide_range_of_integers_needs_no_list_of_them() -> None:
    schema = Schema(columns=[Column("x", type="integer", lower=0, upper=10**9)])
    method = BoundedRelease(privacy=PureDP(epsilon=4), in_range=True, schema=schema)
    floor = method.plan(schema, 10).columns[0].floor
    assert floor is not None
    assert floor.error == pytest.approx(257_050_743, rel=1e-6)
