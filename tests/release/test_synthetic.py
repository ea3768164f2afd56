"""Synthetic tables: what is promised and charged, what is refused, and that odd tables do not break them."""

from __future__ import annotations

import copy
import itertools
import json
import tracemalloc
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import ZCDP, ApproxDP, Column, Database, GaussianDP, Ledger, PureDP, Schema
from discreet.errors import BudgetExceeded, DataError, DiscreetError, ParameterError, PromiseError
from discreet.noise import Stream
from discreet.privacy import ErrorFloor, promise_from_dict
from discreet.release.synthetic import SyntheticRelease, regenerate
from discreet.release.synthetic import questions as synthetic_questions
from discreet.release.synthetic.rows import sampling_seed
from tests.release.synthetic_tables import (
    COLUMNS,
    hidden_class_rows,
    mixed_rows,
    mixed_schema,
    plain_rows,
    plain_schema,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from discreet.release.synthetic import SyntheticTable


def check_table(made: SyntheticTable, n: int) -> None:
    """Assert that every cell is one that the schema declares."""
    for column in made.schema.released:
        values = made.columns[column.name]
        assert len(values) == n
        if column.is_category:
            assert values.min() >= 0
            assert values.max() < len(column.levels)
            continue
        known = values[~np.isnan(values)]
        lower, upper = column.range
        assert len(known) == n or not column.required
        assert ((known >= lower) & (known <= upper)).all()
        if column.type != "number":
            assert (known == np.round(known)).all()


def test_a_long_table_is_drawn_and_handed_on_in_little_memory() -> None:
    method = SyntheticRelease(schema=mixed_schema(), random_state=1)
    method.release(mixed_rows())
    n, integers = 400_000, ("day", "age", "children", "owner", "town", "ill")
    tracemalloc.start()
    drawn = method.generate(n)
    rows = sum(len(batch["age"]) for batch in drawn.batches())
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert rows == n
    # Two numbers without a grid take 8 bytes, six other columns 2, and one column is sorted at a time. With
    # all columns as float64 it would be above 90.
    assert most < 65 * n
    whole = {name: np.concatenate([batch[name] for batch in drawn.batches()]) for name in drawn}
    for name, values in drawn.items():
        assert values.dtype == whole[name].dtype
        np.testing.assert_array_equal(values, whole[name])
    assert all(drawn._columns[name].cells.itemsize <= 2 for name in integers)


def test_every_question_is_charged_its_share_and_together_they_are_the_promise() -> None:
    ledger = Ledger.open(":memory:")
    method = SyntheticRelease(GaussianDP(mu=1.5), schema=mixed_schema(), ledger=ledger, random_state=1)
    made = method.release(mixed_rows())
    check_table(made, 2000)
    assert [one["name"] for one in method.tables_["questions"]] == list(method.plan_.shares)
    squares = [r.promises[0].mu ** 2 for r in method.receipts_ if isinstance(r.promises[0], GaussianDP)]
    assert len(squares) == len(method.receipts_) == len(ledger.entries())
    assert 1.5**2 * (1 - 1e-12) <= sum(squares) <= 1.5**2
    assert made.promises == method.promises_
    assert made.receipt == method.receipts_[-1]


def test_nothing_is_charged_where_the_whole_plan_does_not_fit() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1.0))
    method = SyntheticRelease(GaussianDP(mu=1.01), schema=mixed_schema(), ledger=ledger, random_state=1)
    with pytest.raises(BudgetExceeded, match="Nothing was charged"):
        method.release(mixed_rows())
    assert ledger.entries() == []
    exact = SyntheticRelease(GaussianDP(mu=1.0), schema=mixed_schema(), ledger=ledger, random_state=1)
    exact.release(mixed_rows())


def test_a_table_that_would_be_noise_is_refused_before_it_is_charged() -> None:
    ledger = Ledger.open(":memory:")
    options: dict[str, Any] = {"schema": mixed_schema(), "ledger": ledger, "random_state": 1}
    promise = ApproxDP(epsilon=0.01, delta=1e-6)
    with pytest.raises(
        ParameterError, match=r"every count of `\w+` by `ill` is off by about \d+ rows of 500"
    ):
        SyntheticRelease(promise, **options).release(mixed_rows(500))
    assert ledger.entries() == []
    method = SyntheticRelease(promise, **options, anyway=True)
    check_table(method.release(mixed_rows(500)), 500)
    assert "is off by about" in method.plan_.notes[0]


def test_advice_names_a_promise_that_does() -> None:
    method = SyntheticRelease(ApproxDP(epsilon=0.01, delta=1e-6), schema=mixed_schema())
    with pytest.raises(ParameterError, match="Ask for epsilon") as refused:
        method.release(mixed_rows(500))
    epsilon = float(str(refused.value).split("Ask for epsilon ")[1].split(",")[0])
    better = SyntheticRelease(ApproxDP(epsilon=epsilon, delta=1e-6), schema=mixed_schema())
    _, plan = better._plan(mixed_schema(), 500)
    assert plan.error is not None
    assert 0.09 < plan.error <= 0.1


@pytest.mark.parametrize(
    "promise",
    [ApproxDP(epsilon=2, delta=1e-6), ZCDP(rho=0.3), PureDP(epsilon=20)],
    ids=lambda promise: promise.kind,
)
def test_every_central_promise_is_kept(promise: Any) -> None:
    method = SyntheticRelease(promise, schema=mixed_schema(), random_state=1)
    check_table(method.release(mixed_rows()), 2000)
    (kept,) = method.promises_
    assert kept.delta_at(2.0) <= promise.delta_at(2.0) * (1 + 1e-9)


def test_promises_about_single_rows_are_refused() -> None:
    with pytest.raises(PromiseError, match="GaussianRelease"):
        SyntheticRelease(ErrorFloor(age=3), schema=mixed_schema())  # type: ignore[arg-type]


def test_rows_keep_what_goes_together() -> None:
    rows = mixed_rows(4000)
    made = SyntheticRelease(GaussianDP(mu=2), schema=mixed_schema(), random_state=1).release(rows)
    assert abs((made.columns["income"] == 0).mean() - 0.7) < 0.05
    assert abs(np.isnan(made.columns["size"]).mean() - 0.2) < 0.05
    old = made.columns["age"] > 60
    assert abs((made.columns["ill"] == 1)[old].mean() - 1) < 0.15
    assert (made.columns["owner"] == 1)[old].mean() > 0.85
    assert abs(made.columns["age"].mean() - rows["age"].mean()) < 3


def test_the_number_of_rows_is_estimated_where_it_is_private() -> None:
    schema = mixed_schema(neighbors="add-remove", row_count="private")
    promise = GaussianDP(mu=2, neighbors="add-remove")
    method = SyntheticRelease(promise, schema=schema, random_state=1)
    made = method.release(mixed_rows())
    n = len(made.columns["age"])
    check_table(made, n)
    assert n != 2000
    assert abs(n - 2000) < 100
    assert SyntheticRelease(schema=schema).privacy.neighbors == "add-remove"
    few = SyntheticRelease(GaussianDP(mu=0.001, neighbors="add-remove"), schema=schema, random_state=1)
    with pytest.raises(DataError, match="paid for"):
        few.release(mixed_rows(100))


def test_rows_of_one_person_multiply_the_noise() -> None:
    columns = [Column("who", role="id"), *plain_schema().columns]
    schema = Schema(columns=columns, target="c2", id_column="who", max_rows_per_unit=3)
    rows = {"who": np.arange(900) // 3, **plain_rows(900)}
    method = SyntheticRelease(GaussianDP(mu=2), schema=schema, random_state=1)
    check_table(method.release(rows), 900)
    alone = SyntheticRelease(GaussianDP(mu=2), schema=plain_schema(), random_state=1)
    alone.release(plain_rows(900))
    assert method.tables_["questions"][0]["sd"][0] == pytest.approx(
        3 * alone.tables_["questions"][0]["sd"][0]
    )
    assert any("single" in note for note in method.plan_.notes)


def test_the_seed_follows_from_the_last_receipt_unless_the_noise_is_public_anyway() -> None:
    schema, rows = plain_schema(), plain_rows()
    first, second = (SyntheticRelease(GaussianDP(mu=1), schema=schema, random_state=1) for _ in range(2))
    one, two = first.release(rows), second.release(rows)
    assert first.receipts_[-1].id != second.receipts_[-1].id
    assert all((one.columns[name] == two.columns[name]).all() for name in one.columns)
    uncounted = SyntheticRelease(GaussianDP(mu=1), schema=schema)
    uncounted.release(rows)
    assert uncounted.sampling_seed_ != sampling_seed(uncounted.receipts_[-1], "whatever")
    secret = SyntheticRelease(GaussianDP(mu=1), schema=schema, ledger=Ledger.open(":memory:"))
    secret.release(rows)
    assert secret.sampling_seed_ == sampling_seed(secret.receipts_[-1], "whatever")
    assert secret.sampling_seed_ != sampling_seed(secret.receipts_[-1], "whatever", 1)


def test_a_changed_record_is_refused_or_gives_other_rows() -> None:
    method = SyntheticRelease(GaussianDP(mu=1), schema=mixed_schema(), random_state=1)
    made = method.release(mixed_rows())
    document = json.loads(json.dumps(method.tables_))

    def change(question: int, key: str, value: Any) -> dict[str, Any]:
        changed: dict[str, Any] = copy.deepcopy(document)
        changed["questions"][question][key] = value
        return changed

    values = list(document["questions"][0]["values"])
    values[0] += 500.0
    last = list(document["questions"][-1]["values"])
    last[0] += 1.0
    cost = GaussianDP(mu=0.9).to_dict()
    for wrong in (change(0, "values", values), change(1, "promise", cost), {**document, "kind": "other"}):
        with pytest.raises(ParameterError):
            regenerate(method, wrong)
    extra = {**document, "questions": [*document["questions"], document["questions"][0]]}
    with pytest.raises(ParameterError, match="no answers but"):
        regenerate(method, extra)
    other = regenerate(method, change(-1, "values", last))
    assert any(
        not np.array_equal(made.columns[c], other.columns[c], equal_nan=made.columns[c].dtype.kind == "f")
        for c in made.columns
    )


def test_more_rows_and_rows_that_fit_a_condition_are_free() -> None:
    method = SyntheticRelease(GaussianDP(mu=2), schema=mixed_schema(), random_state=1)
    made = method.release(mixed_rows())
    paid = len(method.receipts_)
    again = method.generate(2000)
    assert all(np.array_equal(again[c], made.columns[c], equal_nan=c in ("size", "income")) for c in again)
    other = method.generate(2000, seed=1)
    assert not np.array_equal(other["ill"], made.columns["ill"])
    many = method.generate(20_000)
    assert len(many["age"]) == 20_000
    some = method.generate(300, where={"ill": 1, "owner": True, "age": 80})
    assert set(some["ill"]) == set(some["owner"]) == {1}
    assert some["age"].min() > 40
    assert len(method.receipts_) == paid
    rare = mixed_rows()
    rare["ill"] = (np.arange(2000) < 15).astype(int)
    method.release(rare)
    assert np.count_nonzero(method._synthesis.classes == 1) < 100
    assert set(method.generate(50, where={"ill": 1})["ill"]) == {1}
    with pytest.raises(ParameterError, match="declared level"):
        method.generate(10, where={"town": "north"})
    with pytest.raises(ParameterError, match="at least 100"):
        method.generate(10, where={"age": 10, "ill": 1, "owner": True, "town": None, "children": 3})


def test_rows_that_fit_a_rare_condition_follow_the_model() -> None:
    rows = plain_rows(2000, 4)
    rows["c1"] = np.where(np.arange(2000) < 10, 2, rows["c1"] % 2)
    rows["c3"] = np.where(rows["c1"] == 2, 1, rows["c3"])
    for target in (None, False):
        method = SyntheticRelease(GaussianDP(mu=30), schema=plain_schema(4), target=target, random_state=1)
        method.release(rows)
        sample = method._synthesis.sample[method._synthesis.names.index("c1")]
        assert np.count_nonzero(sample == 2) < 100
        made = method.generate(400, where={"c1": 2})
        assert set(made["c1"]) == {2}
        assert (made["c3"] == 1).mean() > 0.7
        both = method.generate(50, where={"c1": 2, "c3": 1})
        assert set(both["c1"]) == {2}
        assert set(both["c3"]) == {1}
        for counts in (column[:, 2] for column in method._synthesis.tree.one_way.columns[1:2]):
            counts[:] = 0
        with pytest.raises(ParameterError, match="at least 100"):
            method.generate(50, where={"c1": 2})


def pair_distance(rows: Mapping[str, Any], made: Mapping[str, Any], levels: int) -> float:
    """Return the mean distance of all tables of two columns, as part of the rows."""
    distances = []
    for first, second in itertools.combinations(rows, 2):
        true, found = (
            np.bincount(one[first] * levels + one[second], minlength=levels**2) for one in (rows, made)
        )
        distances.append(np.abs(true - found).sum() / 2 / len(rows[first]))
    return float(np.mean(distances))


def test_columns_that_follow_one_that_is_not_there_keep_their_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = hidden_class_rows()
    method = SyntheticRelease(GaussianDP(mu=20), schema=plain_schema(16, 6, target=False), random_state=1)
    assert pair_distance(rows, method.release(rows).columns, 6) < 0.045
    some = method.generate(200, where={"c0": 1, "c1": 2, "c2": 3})
    assert {len(set(some[name])) for name in ("c0", "c1", "c2")} == {1}
    # Weights of rows along a tree alone would let a few rows stand for all.
    monkeypatch.setattr("discreet.release.synthetic.rows.MOST_FITTED", 0)
    assert pair_distance(rows, method.release(rows).columns, 6) > 0.055


def test_a_table_is_made_from_a_file_a_database_or_a_matrix(tmp_path: Path) -> None:
    schema = mixed_schema()
    method = SyntheticRelease(GaussianDP(mu=1), schema=schema, n_records=100, random_state=1)
    made = method.release(mixed_rows())
    check_table(made, 100)
    path = tmp_path / "made.parquet"
    made.write(path)
    from_file = SyntheticRelease(GaussianDP(mu=1), schema=made.schema, random_state=1, anyway=True).release(
        path
    )
    check_table(from_file, 100)
    with Database(mixed_rows(), schema=schema, random_state=1) as database:
        again = SyntheticRelease(GaussianDP(mu=1), schema=schema, n_records=100).release_database(database)
    assert (again.columns["age"] == made.columns["age"]).all()
    numbers = Schema(columns=[Column("x", lower=0, upper=1), Column("y", values=(-1, 1), role="target")])
    draws = Stream.from_seed(1).generator()
    matrix = SyntheticRelease(schema=numbers, random_state=1).release(
        draws.random((400, 1)), np.resize([-1, 1], 400)
    )
    check_table(matrix, 400)


def odd_tables() -> dict[str, tuple[dict[str, Any], Schema]]:
    """Tables that leave some step without anything to do."""
    n = 300
    plain = plain_rows(n)
    long = tuple(f"v{i}" for i in range(500))
    number = Column("x", lower=0, upper=10)
    return {
        "small": (plain, plain_schema()),
        "empty class": ({**plain, "c2": np.zeros(n, int)}, plain_schema()),
        "constant columns": (
            {"a": np.ones(n, int), "x": np.full(n, 3.0), "b": plain["c0"]},
            Schema(columns=[Column("a", values=(0, 1)), number, Column("b", values=(0, 1, 2))]),
        ),
        "one column": ({"c0": plain["c0"]}, plain_schema(1, target=False)),
        "one number": ({"x": np.linspace(0, 9, n)}, Schema(columns=[number])),
        "all missing": (
            {"x": np.full(n, np.nan), "c": plain["c0"]},
            Schema(columns=[Column("x", lower=0, upper=1, required=False), Column("c", values=(0, 1, 2))]),
        ),
        "target alone": ({"c0": plain["c0"]}, plain_schema(1)),
        "two columns": ({name: plain[name] for name in ("c0", "c1")}, plain_schema(2)),
        "many levels": (
            {"v": np.array(long, object)[np.arange(n) ** 2 % 500], "c": plain["c0"]},
            Schema(columns=[Column("v", values=long), Column("c", values=(0, 1, 2), role="target")]),
        ),
        "target of many levels": (
            {"v": np.array(long, object)[np.arange(n) % 500], "c": plain["c0"]},
            Schema(columns=[Column("v", values=long, role="target"), Column("c", values=(0, 1, 2))]),
        ),
        "numeric target": (
            {"x": np.linspace(0, 9, n), "c": plain["c0"]},
            Schema(columns=[Column("x", lower=0, upper=10, role="target"), Column("c", values=(0, 1, 2))]),
        ),
    }


@pytest.mark.parametrize("mu", [0.002, 0.3, pytest.param(30.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", odd_tables())
def test_odd_tables_do_not_break_it(name: str, mu: float) -> None:
    rows, schema = odd_tables()[name]
    method = SyntheticRelease(GaussianDP(mu=mu), schema=schema, anyway=True, random_state=1)
    made = method.release(rows)
    check_table(made, 300)
    again = regenerate(method, method.tables_)
    assert all(again.columns[c].tobytes() == made.columns[c].tobytes() for c in made.columns)
    json.dumps([method.tables_, method.model_, method.plan_.to_dict()], allow_nan=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "nothing"}, "target .* must be a released column"),
        ({"cells": {"town": (1,)}}, "levels of a category are its cells"),
        ({"cells": {"nothing": (1,)}}, "numbers and dates that are released"),
        ({"shares": {"some": 1}}, "shares of SyntheticRelease"),
        ({"shares": {"one": 0}}, "weights above 0"),
        ({"n_records": 0}, "n_records"),
    ],
)
def test_wrong_parameters_are_refused(options: dict[str, Any], words: str) -> None:
    ledger = Ledger.open(":memory:")
    with pytest.raises(DiscreetError, match=words):
        SyntheticRelease(GaussianDP(mu=1), schema=mixed_schema(), ledger=ledger, **options).release(
            mixed_rows()
        )
    assert ledger.entries() == []


def test_too_few_rows_are_refused() -> None:
    with pytest.raises(DataError, match="at least 50 rows, and the table has 49"):
        SyntheticRelease(schema=plain_schema()).release(plain_rows(49))


def test_parameters_are_written_down_and_read_back() -> None:
    method = SyntheticRelease(
        GaussianDP(mu=1), schema=mixed_schema(), target="owner", cells={"age": (20, 40)}, shares={"one": 0.3}
    )
    values = json.loads(json.dumps(method.parameters()))
    again = SyntheticRelease.from_parameters(values, schema=mixed_schema())
    assert again.parameters() == method.parameters()
    assert promise_from_dict(values["privacy"]) == method.privacy
    assert len(COLUMNS) == len(method.plan(mixed_schema(), 5000).schema.columns)


@pytest.mark.parametrize("promise", [GaussianDP(mu=2), PureDP(epsilon=30)], ids=lambda p: p.kind)
@pytest.mark.parametrize("limit", ["MOST_NUMBERS", "MOST_BYTES"])
def test_questions_in_parts_cost_what_the_whole_costs_and_have_its_noise(
    promise: Any, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema, rows = mixed_schema(), mixed_rows(4000)
    whole = SyntheticRelease(promise, schema=schema, random_state=1)
    whole.release(rows)
    monkeypatch.setattr(synthetic_questions, limit, {"MOST_NUMBERS": 300, "MOST_BYTES": 2500}[limit])
    ledger = Ledger.open(":memory:", limit=promise)
    method = SyntheticRelease(promise, schema=schema, ledger=ledger, random_state=1)
    made = method.release(rows)
    check_table(made, 4000)
    parts = [one["name"] for one in method.tables_["questions"]]
    assert len(parts) == len(method.receipts_) > len(set(parts)) == len(method.plan_.shares)
    assert sum(one["share"] for one in method.tables_["questions"]) == pytest.approx(1)
    assert again_is(method, made)
    first = "fine" if limit == "MOST_NUMBERS" else "one"
    sds = [
        [sd for one in which.tables_["questions"] if one["name"] == first for sd in one["sd"]]
        for which in (whole, method)
    ]
    assert sds[0] == pytest.approx(sds[1], rel=0.01)


def again_is(method: SyntheticRelease, made: SyntheticTable) -> bool:
    """Return whether the published answers give the same rows."""
    again = regenerate(method, json.loads(json.dumps(method.tables_)))
    return all(again.columns[c].tobytes() == made.columns[c].tobytes() for c in made.columns)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"body_bytes": 2**16, "cells": 2**16}, "limit body_bytes of at least 1048576"),
        ({"body_bytes": 2**20, "cells": 100}, "limit cells of at least 65536"),
    ],
)
def test_a_service_that_takes_too_little_is_refused_before_it_is_paid(
    limits: dict[str, int], words: str
) -> None:
    ledger = Ledger.open(":memory:")
    with Database(mixed_rows(), schema=mixed_schema(), ledger=ledger, random_state=1) as database:
        database.limits = limits  # type: ignore[attr-defined]
        with pytest.raises(ParameterError, match=words):
            SyntheticRelease(GaussianDP(mu=1), schema=mixed_schema()).release_database(database)
    assert ledger.entries() == []


def test_a_promise_with_laplace_noise_is_advised_where_it_has_less() -> None:
    options: dict[str, Any] = {"target": False, "random_state": 1}
    promise = ApproxDP(epsilon=1, delta=1e-6)
    for columns in (1, 3, 8):
        schema = plain_schema(columns, target=False)
        sds = []
        for privacy in (promise, PureDP(epsilon=1)):
            method = SyntheticRelease(privacy, schema=schema, anyway=True, **options)
            method.release(plain_rows(60, columns))
            assert list(method.plan_.shares) == ["one"]
            sds.append(method.tables_["questions"][0]["sd"][0])
        advised = "PureDP(epsilon=1)" in " ".join(
            SyntheticRelease(promise, schema=schema)._plan(schema, 600)[1].notes
        )
        assert advised == (columns == 1)
        method = SyntheticRelease(promise, schema=schema, anyway=True, **options)
        _, plan = method._plan(schema, 60)
        assert any("PureDP(epsilon=1)" in note for note in plan.notes) == (sds[1] < sds[0]) == (columns < 5)


def test_adding_or_removing_a_row_takes_less_noise_than_replacing_one() -> None:
    found = []
    for neighbors in ("replace-one", "add-remove"):
        more: dict[str, Any] = {} if neighbors == "replace-one" else {"row_count": "private"}
        schema = mixed_schema(neighbors=neighbors, **more)
        promise = GaussianDP(mu=5, neighbors=neighbors)
        method = SyntheticRelease(promise, schema=schema, random_state=1)
        method.release(mixed_rows())
        found.append({one["name"]: one["sd"][0] for one in method.tables_["questions"]})
    replaced, added = found
    assert replaced["fine"] == pytest.approx(added["fine"] * 2**0.5)
    assert replaced["scores"] == pytest.approx(added["scores"] * 2)
