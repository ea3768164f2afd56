"""Public columns of synthetic tables: rows are kept, and nothing else is used without being paid for."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import pytest

from discreet import ApproxDP, Column, Database, GaussianDP, Ledger, Schema, publish, verify
from discreet.errors import DataError, ParameterError
from discreet.noise import Stream
from discreet.release.synthetic import SyntheticRelease, regenerate
from discreet.release.synthetic.public import PublicRows, match_rows, number_patterns
from tests.release.synthetic_tables import COLUMNS, mixed_rows
from tests.release.test_synthetic import check_table

if TYPE_CHECKING:
    from pathlib import Path


def public_schema(*names: str, **more: Any) -> Schema:
    """Declare all kinds of columns, some of them public."""
    columns = [dataclasses.replace(c, role="public") if c.name in names else c for c in COLUMNS]
    return Schema(columns=columns, **more)


def sort_rows(columns: Any, names: tuple[str, ...]) -> Any:
    """Return rows of some columns as a sorted matrix."""
    matrix = np.column_stack([np.nan_to_num(np.asarray(columns[name], float), nan=-1e9) for name in names])
    return matrix[np.lexsort(matrix.T)]


@pytest.mark.parametrize("names", [("age",), ("owner", "town", "size"), ("age", "day", "ill")])
def test_public_rows_are_kept_and_the_others_follow_them(names: tuple[str, ...]) -> None:
    rows = mixed_rows(3000)
    schema = public_schema(*names)
    method = SyntheticRelease(GaussianDP(mu=2), schema=schema, target="ill", random_state=1)
    made = method.release(rows)
    check_table(made, 3000)
    true = PublicRows.from_source(rows, schema, names)
    assert (sort_rows(made.columns, names) == sort_rows(true.columns, names)).all()
    asked = {
        tuple(table) for one in method.tables_["questions"] for table in one["question"].get("tables", ())
    }
    assert not any(set(table) <= set(names) for table in asked)
    old = made.columns["age"] > 60
    assert (made.columns["ill"] == 1)[old].mean() > 0.9
    assert (made.columns["ill"] == 1)[~old].mean() < 0.1
    again = regenerate(method, json.loads(json.dumps(method.tables_)), made.columns)
    assert all(again.columns[c].tobytes() == made.columns[c].tobytes() for c in made.columns)
    assert "The promise is about all other cells" in " ".join(method.plan_.notes)


@pytest.mark.slow
def test_neighbors_in_other_columns_have_the_same_public_rows_whatever_their_order() -> None:
    columns = [Column("p", values=(0, 1), role="public"), Column("x", lower=0, upper=3, role="public")]
    schema = Schema(columns=[*columns, Column("s", values=(0, 1))])

    def read(rows: Any, names: tuple[str, ...] = ("p", "x")) -> list[bytes]:
        table = {name: np.array([row[i] for row in rows]) for i, name in enumerate(("p", "x", "s"))}
        return [values.tobytes() for values in PublicRows.from_source(table, schema, names).columns.values()]

    table = [(0, 1.5, 0), (1, 0.5, 1), (0, 1.5, 1), (0, 2.5, 0)]
    for order in itertools.permutations(table):
        for i, secret in itertools.product(range(4), (0, 1)):
            neighbor = [(*row[:2], secret) if j == i else row for j, row in enumerate(order)]
            assert read(neighbor) == read(table)
    # A twin that takes a column that is not public tells neighbors apart.
    twin = [(*row[:2], 1) for row in table]
    assert read(twin, ("p", "s")) != read(table, ("p", "s"))


def test_kept_rows_get_sampled_rows_of_their_own_pattern_in_proportion_to_weights() -> None:
    draws = Stream.from_seed(2).generator()
    codes = [draws.integers(0, 3, 400), draws.integers(0, 2, 400)]
    kept = number_patterns(codes, 400)
    assert kept.max() == 5
    assert all(len({(a, b) for a, b, k in zip(*codes, kept, strict=True) if k == p}) == 1 for p in range(6))
    patterns = np.repeat(kept, 4)
    weights = np.where(np.arange(1600) % 4 == 0, 1.0, 0.0) + 1e-12
    rows, picked = match_rows(
        patterns, kept, np.argsort(patterns, kind="stable"), weights, Stream.from_seed(3)
    )
    assert sorted(rows) == list(range(400))
    assert (kept[rows] == patterns[picked]).all()
    assert sorted(picked) == list(range(0, 1600, 4))
    # Which of its pattern a row gets does not follow from its place.
    assert np.abs(np.corrcoef(rows, picked // 4)[0, 1]) < 0.9 or (picked // 4 != rows).mean() > 0.5


def test_public_columns_are_made_up_if_that_is_asked_for() -> None:
    method = SyntheticRelease(
        GaussianDP(mu=1), schema=public_schema("age"), keep_public=False, random_state=1
    )
    check_table(method.release(mixed_rows()), 2000)
    assert "made up like the others: age" in " ".join(method.plan_.notes)
    assert method.promises_[0].covers is None


def test_the_promise_does_not_cover_rows_that_are_kept() -> None:
    method = SyntheticRelease(GaussianDP(mu=1), schema=public_schema("age", "town"), random_state=1)
    plan = method.plan(public_schema("age", "town"), 2000)
    (promise,) = method.release(mixed_rows()).promises
    assert promise == plan.promises[0]
    assert promise.covers is not None
    assert set(promise.covers) == set(mixed_rows()) - {"age", "town"}
    assert method.tables_["promise"]["covers"] == list(promise.covers)


def test_public_columns_are_refused_where_they_cannot_be_kept() -> None:
    ledger, rows = Ledger.open(":memory:"), mixed_rows()
    options: dict[str, Any] = {"ledger": ledger, "random_state": 1}
    add_remove = public_schema("age", neighbors="add-remove", row_count="private")
    with pytest.raises(ParameterError, match="replace-one and the number of rows is public"):
        SyntheticRelease(GaussianDP(mu=1, neighbors="add-remove"), schema=add_remove, **options).release(rows)
    units = Schema(
        columns=[*public_schema("age").columns, Column("who", role="id")],
        id_column="who",
        max_rows_per_unit=2,
    )
    with pytest.raises(ParameterError, match="'who' tells whose rows are whose"):
        SyntheticRelease(GaussianDP(mu=1), schema=units, **options).release({**rows, "who": np.arange(2000)})
    alone = Schema(columns=[Column("owner", values=(False, True), role="public")])
    with pytest.raises(ParameterError, match="Publish the table itself"):
        SyntheticRelease(GaussianDP(mu=1), schema=alone, **options).release({"owner": rows["owner"]})
    schema = public_schema("age")
    with pytest.raises(ParameterError, match="n_records"):
        SyntheticRelease(GaussianDP(mu=1), schema=schema, n_records=10, **options).release(rows)
    method = SyntheticRelease(GaussianDP(mu=1), schema=schema)
    with Database(rows, schema=schema, ledger=ledger, random_state=1) as database:
        with pytest.raises(ParameterError, match="noisy sums do not hand out rows"):
            method.release_database(database)
        with pytest.raises(DataError, match="must have the 2000 rows"):
            method.release_database(database, public={"age": rows["age"][:10]})
        assert ledger.entries() == []
        method.release_database(database, public={"age": rows["age"]})
    with pytest.raises(ParameterError, match="one row for each"):
        method.generate(10)


@pytest.mark.slow
def test_a_published_table_with_public_columns_is_made_again_by_strangers(tmp_path: Path) -> None:
    schema = public_schema("age", "town", dataset="mixed")
    done = publish(
        mixed_rows(600), schema=schema, method="synthetic", privacy=ApproxDP(epsilon=4, delta=1e-6),
        ledger=Ledger.open(tmp_path / "ledger"), out=tmp_path / "release",
    )  # fmt: skip
    result = verify(done.public)
    assert {check.name: check.detail for check in result.failures} == {}
    assert any("declared public" in clause for clause in done.statement.not_protected)
    (promise,) = done.statement.numbers.promises
    assert promise["covers"] == ["day", "size", "income", "children", "owner", "ill"]
    data = pandas.read_parquet(done.public / "data.parquet")
    assert sorted(data["age"]) == sorted(mixed_rows(600)["age"])
    data["age"] = np.roll(data["age"], 1)
    data.to_parquet(done.public / "data.parquet")
    assert {"rows", "hashes"} & {check.name for check in verify(done.public).failures}
