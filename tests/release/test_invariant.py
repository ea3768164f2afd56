"""The release: a model trained on it is the same by anybody's solver; what it refuses; what it admits."""

from __future__ import annotations

import doctest
import json
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import (
    BudgetExceeded,
    DataError,
    DiscreetWarning,
    ParameterError,
    PromiseError,
)
from discreet.learn import RegularizedSVM
from discreet.ledger import Ledger
from discreet.noise import Stream, standard_normal
from discreet.noise import samplers as normal_module
from discreet.noise_law import Clear, InvariantLaw
from discreet.privacy import ApproxDP, NoPromise
from discreet.release.invariant import (
    InvariantRelease,
    SVMLearner,
)
from discreet.release.invariant import _method as method_module
from discreet.schema import Column, Schema
from discreet.tables import open_table, write_table
from tests.release.invariant_tables import (
    census,
    clarabel_svm,
    d20,
    random_table,
    released_rows,
    two_clouds,
    wdbc,
)

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray, Floats

THETA, RHO = 1.0, 0.01


# --- the model is the same -------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("table", ["patients", "random", "census"])
def test_a_solver_that_is_not_ours_finds_the_same_classifier(table: str, variance: float) -> None:
    X, y = {"patients": wdbc(), "random": random_table(), "census": census(1500)}[table]
    check_same_classifier(X, y, variance)


@pytest.mark.stats
def test_a_solver_that_is_not_ours_finds_the_same_classifier_on_the_whole_census() -> None:
    check_same_classifier(*census(), 1e4)


def check_same_classifier(X: Floats, y: AnyArray, variance: float) -> None:
    before = clarabel_svm(X, y, THETA, RHO)
    released = released_rows(X, y, variance=variance)
    after = clarabel_svm(released, y, THETA, RHO)
    assert (released - X).std() > 0.9 * np.sqrt(variance)
    assert np.abs(before[0] - after[0]).max() < 1e-6
    assert abs(before[1] - after[1]) < 1e-6


def test_rows_pushed_outward_leave_the_classifier_where_it_was() -> None:
    X, y = wdbc()
    before = clarabel_svm(X, y, THETA, RHO)
    method = InvariantRelease(variance=100.0, outward=True, bounds=(-5e3, 5e3), random_state=1)
    released = method.release(X, y).data
    after = clarabel_svm(released, y, THETA, RHO)
    assert np.abs(before[0] - after[0]).max() < 1e-6
    moved = y * ((released - X) @ before[0])
    assert method.exposure_ is not None
    assert method.exposure_.leaned_on.sum() == 60
    assert (moved[~method.exposure_.leaned_on] > 0.1).all()
    assert np.abs(moved[method.exposure_.leaned_on]).max() < 1e-8
    # Rows pushed inward by the same lengths do move it.
    inward = released - 2 * moved[:, None] * (y[:, None] * before[0]) / (before[0] @ before[0])
    assert np.abs(clarabel_svm(inward, y, THETA, RHO)[0] - before[0]).max() > 1e-2


@pytest.mark.parametrize(
    ("change", "least"),
    [
        ("another theta", 1e-3),
        ("standardized", 1e-3),
        ("half of the rows", 1e-3),
        ("two decimals", 1e-4),
        ("32-bit numbers", 1e-9),
    ],
)
def test_the_classifier_moves_where_the_documentation_says_that_it_does(change: str, least: float) -> None:
    X, y = wdbc()
    released = released_rows(X, y)

    def fit(rows: Floats) -> Floats:
        theta = 10.0 if change == "another theta" else THETA
        labels = y
        if change == "standardized":
            rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        if change == "half of the rows":
            rows, labels = rows[::2], y[::2]
        return np.asarray(RegularizedSVM(theta=theta, rho=RHO).fit(rows, labels).coef_)

    cut = {"two decimals": released.round(2), "32-bit numbers": released.astype(np.float32).astype(float)}
    assert np.abs(fit(X) - fit(cut.get(change, released))).max() > least


def test_public_columns_stay_as_they_are_and_the_model_uses_them() -> None:
    X, y = random_table()
    columns = [Column(f"c{j}", lower=-9, upper=9, role="public" if j < 2 else "sensitive") for j in range(12)]
    schema = Schema(columns=[*columns, Column("label", values=(-1, 1))], target="label")
    released = InvariantRelease(variance=1e4, schema=schema, random_state=1).release(X, y)
    assert np.array_equal(released.data[:, :2], X[:, :2])
    assert np.abs(released.data[:, 2:] - X[:, 2:]).min(axis=0).max() > 0
    before, after = (clarabel_svm(rows, y, THETA, RHO) for rows in (X, released.data))
    assert np.abs(before[0] - after[0]).max() < 1e-6
    assert [type(s.law) for s in released.summary[:3]] == [Clear, Clear, InvariantLaw]


@pytest.mark.parametrize(
    ("scales", "expected"),
    [
        (None, [1.0] * 12),
        ("range", [18.0] * 12),
        (np.arange(1.0, 13.0), np.arange(1.0, 13.0)),
        ({f"x{j + 1}": 2.0**j for j in range(12)}, 2.0 ** np.arange(12)),
    ],
)
def test_each_column_gets_noise_in_its_own_unit(scales: Any, expected: Any) -> None:
    X, y = random_table()
    method = InvariantRelease(variance=4.0, scales=scales, bounds=(-9, 9), random_state=1)
    noise = method.release(X, y).data - X
    a = RegularizedSVM(theta=THETA, rho=RHO).fit(X, y).coef_.reshape(-1)
    b = np.asarray(expected) * a
    share = 1 - b**2 / (b @ b)
    assert np.abs(noise @ a).max() < 1e-8
    assert noise.std(axis=0) / (2 * np.asarray(expected) * np.sqrt(share)) == pytest.approx(1, abs=0.25)
    assert np.abs(RegularizedSVM(theta=THETA, rho=RHO).fit(X + noise, y).coef_.reshape(-1) - a).max() < 1e-9


SCHEMA = Schema(
    dataset="patients",
    columns=[
        Column("age", type="integer", lower=0, upper=120),
        Column("income", lower=0, upper=10, required=False),
        Column("job", values=("clerk", "nurse")),
        Column("region", values=("north", "south"), role="public", closed=True),
        Column("ill", values=("no", "yes")),
    ],
    target="ill",
)


def people(n: int = 400) -> dict[str, AnyArray]:
    z = standard_normal((n, 5), Stream.from_seed(2))
    return {
        "age": np.clip(np.rint(50 + 20 * z[:, 0]), 0, 120),
        "income": np.where(z[:, 1] > 1.5, np.nan, np.clip(5 + 2 * z[:, 1], 0, 10)),
        "job": np.array(["clerk", "nurse", "pilot"])[np.digitize(z[:, 2], [-0.5, 0.9])],
        "region": np.array(["north", "south"])[(z[:, 3] > 0).astype(int)],
        "ill": np.array(["no", "yes"])[(z[:, 0] + z[:, 2] + z[:, 4] > 0.3).astype(int)],
    }


def test_categories_and_missing_cells_become_numbers_with_noise() -> None:
    rows = people()
    method = InvariantRelease(variance=0.25, scales="range", schema=SCHEMA, random_state=1)
    released = method.release(rows, shuffle=False)
    names = [c.name for c in released.schema.numeric_features]
    assert names == ["age", "income", "income_missing", "job=clerk", "job=nurse", "job=other"]
    assert np.array_equal(released.decoded("region"), rows["region"])
    assert released.target is not None
    assert np.array_equal(released.target, rows["ill"])
    true = np.column_stack(
        [
            rows["age"],
            np.where(np.isnan(rows["income"]), 5.0, rows["income"]),
            np.isnan(rows["income"]),
            rows["job"] == "clerk",
            rows["job"] == "nurse",
            rows["job"] == "pilot",
        ]
    ).astype(float)
    assert (np.abs(released.data - true).std(axis=0) > 0.1).all()
    y = np.where(rows["ill"] == "yes", 1, -1)
    before, after = (RegularizedSVM(theta=THETA, rho=RHO).fit(r, y) for r in (true, released.data))
    assert np.abs(before.coef_ - after.coef_).max() < 1e-9
    assert released.receipt.schema == SCHEMA.digest
    scales = {"age": 10.0, "income": 1.0, "income_missing": 0.5, "job": 2.0}
    laws = InvariantRelease(variance=4.0, scales=scales, schema=SCHEMA).plan(SCHEMA, 400).columns
    scaled = InvariantRelease(variance=4.0, scales=scales, schema=SCHEMA, random_state=1).release(rows)
    assert scaled.summary == laws
    variances = {s.column: s.law.variance for s in laws if isinstance(s.law, InvariantLaw)}
    assert variances["age"] == 400
    assert variances["job=other"] == 16


@pytest.mark.parametrize("name", ["out.parquet", "out.csv"])
def test_publishing_writes_every_digit_and_the_same_model(name: str, tmp_path: Path) -> None:
    rows = people(3000)
    ill = (rows["ill"] == "yes").astype(int)
    columns = [Column("age", lower=0, upper=120), Column("income", lower=0, upper=10, required=False)]
    schema = Schema(columns=[*columns, Column("ill", values=(0, 1))], target="ill")
    write_table(tmp_path / "in.parquet", schema, [{**{k: rows[k] for k in ("age", "income")}, "ill": ill}])
    missing = np.isnan(rows["income"])
    true = np.column_stack([rows["age"], np.where(missing, 5.0, rows["income"]), missing])
    before = RegularizedSVM(theta=THETA, rho=RHO).fit(true, 2 * ill - 1)
    method = InvariantRelease(variance=0.25, scales="range", schema=schema, random_state=4)
    done = method.publish(tmp_path / "in.parquet", tmp_path / name)
    assert done.n_rows == 3000
    assert isinstance(done.promises[0], NoPromise)
    wide = [replace(c, lower=-1e9, upper=1e9) for c in done.schema.numeric_features]
    with open_table(tmp_path / name) as table:
        batches = list(table.batches(Schema(columns=[*wide, schema.columns[-1]], target="ill")))
    read = {c: np.concatenate([b[c] for b in batches]) for c in batches[0]}
    released = np.column_stack([read[c.name] for c in wide])
    after = RegularizedSVM(theta=THETA, rho=RHO).fit(released, 2 * read["ill"] - 1)
    assert np.abs(before.coef_ - after.coef_).max() < 1e-8
    # Rows are in another order, and the exposure is in the order in which they came.
    assert not np.array_equal(read["ill"], ill)
    assert method.exposure_ is not None
    assert np.array_equal(method.exposure_.leaned_on, before.dual_coef_ != 0)
    # What is published without a file in between is the same table.
    whole = InvariantRelease(variance=0.25, scales="range", schema=schema, random_state=4).release(
        tmp_path / "in.parquet"
    )
    assert np.abs(np.sort(whole.columns["ill"]) - np.sort(read["ill"])).max() == 0


def test_publishing_other_rows_with_the_same_products_cuts_the_rows_of_one_person_too(tmp_path: Path) -> None:
    columns = [
        Column("age", lower=0, upper=120),
        Column("income", lower=0, upper=10),
        Column("who", role="id"),
    ]
    schema = Schema(columns=columns, id_column="who", max_rows_per_unit=2)
    rows = people(600)
    source = {
        "age": rows["age"],
        "income": np.nan_to_num(rows["income"]),
        "who": np.repeat(np.arange(100), 6),
    }
    method = InvariantRelease(learner="gram", schema=schema, random_state=1)
    done = method.publish(source, tmp_path / "out.parquet", shuffle=False)
    assert done.n_rows == 200
    assert method.exposure_ is None
    whole = InvariantRelease(learner="gram", schema=schema, random_state=1).release(source, shuffle=False)
    wide = Schema(columns=[Column(c, lower=-1e9, upper=1e9) for c in ("age", "income")])
    with open_table(tmp_path / "out.parquet") as table:
        (batch,) = table.batches(wide)
    assert np.array_equal(batch["age"], whole.columns["age"])


def test_publishing_needs_a_schema(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="needs schema="):
        InvariantRelease(variance=1.0, bounds=(0, 1)).publish({}, tmp_path / "out.parquet")


def test_the_examples_in_the_documentation_run() -> None:
    for module in (method_module, normal_module):
        results = doctest.testmod(module)
        assert results.attempted > 0
        assert results.failed == 0


def test_several_rows_of_one_person_are_cut_before_the_model_is_trained() -> None:
    schema = replace(
        SCHEMA, columns=[*SCHEMA.columns, Column("who", role="id")], id_column="who", max_rows_per_unit=1
    )
    rows = {**people(), "who": np.repeat(np.arange(200), 2)}
    method = InvariantRelease(variance=1.0, schema=schema, random_state=1)
    assert len(method.release(rows).data) == 200
    assert method.exposure_ is not None
    assert len(method.exposure_.leverage) == 200


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_with_the_same_products_are_another_way_out(classes: int) -> None:
    X, _ = random_table()
    labels = np.digitize(X[:, 0], [0.0] if classes == 2 else [-0.5, 0.5])
    schema = Schema(
        columns=[
            *(
                Column(f"c{j}", lower=-9, upper=9, role="public" if j == 5 else "sensitive")
                for j in range(12)
            ),
            Column("k", values=tuple(range(classes))),
        ],
        target="k",
    )
    method = InvariantRelease(learner="gram", schema=schema, random_state=1)
    released = method.release(X, labels)
    Z = released.data
    assert np.array_equal(Z[:, 5], X[:, 5])
    assert np.abs(X.T @ X - Z.T @ Z).max() < 1e-10
    for k in range(classes):
        assert np.abs(X[labels == k].mean(axis=0) - Z[labels == k].mean(axis=0)).max() < 1e-12
    assert np.abs(X[:, 0] - Z[:, 0]).std() > 0.1
    assert method.exposure_ is None
    assert "computes the remaining one from the sums" in str(released.promises[0])
    assert released.summary[0].law.words() == "replaced, keeping all sums, squares and products"


# --- numbers of the paper --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [("raw", 28.41272003), ("unit", 28.64343515), ("standard", 27.89772204)],
)
def test_patients_have_the_published_bound(scaling: str, expected: float) -> None:
    X, y = wdbc()
    if scaling == "unit":
        X = (X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))
    if scaling == "standard":
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    method = InvariantRelease(variance=100.0, bounds=(-5e3, 5e3), random_state=1)
    method.release(X, y)
    assert method.exposure_ is not None
    assert method.exposure_.smallest_bound == pytest.approx(100 * expected, abs=1e-5)
    assert method.exposure_.n_directions == 29
    h = method.exposure_.leverage
    assert method.exposure_.unbiased_bound == pytest.approx(2900 * (1 - h))
    assert np.array_equal(method.exposure_.informed_bound, np.where(h > 0, 0.0, 2900.0))


def test_the_bound_of_twenty_rows() -> None:
    X, y = d20()
    for theta, rho, expected in ((0.1, 1.0, 0.756007929045),):
        method = InvariantRelease(
            learner=SVMLearner(theta, rho), variance=1.0, bounds=(-2, 2), random_state=1
        )
        method.release(X, y)
        assert method.exposure_ is not None
        assert method.exposure_.smallest_bound == pytest.approx(expected, abs=1e-11)
    method = InvariantRelease(variance=1.0, bounds=(-2, 2), random_state=1)
    with pytest.warns(DiscreetWarning, match="One row loses 50% of its noise"):
        method.release(X, y)
    assert method.exposure_ is not None
    assert method.exposure_.smallest_bound == pytest.approx(0.495485923698, abs=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("n_seeds", [150, pytest.param(1000, marks=pytest.mark.stats)])
def test_the_number_of_the_illustrative_example_is_one_lucky_draw(n_seeds: int) -> None:
    bounds = []
    for seed in range(n_seeds):
        X, y = two_clouds(seed)
        method = InvariantRelease(variance=100.0, bounds=(-20, 20), random_state=1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DiscreetWarning)
            method.release(X, y)
        assert method.exposure_ is not None
        bounds.append(method.exposure_.smallest_bound)
    # Reference over 1000 seeds: mean 61.7, standard deviation 14.9, 80.5 is the 90.5th percentile.
    slack = 4 / np.sqrt(n_seeds)
    assert np.mean(bounds) == pytest.approx(61.7, abs=14.9 * slack)
    assert np.std(bounds) == pytest.approx(14.9, abs=14.9 * slack)
    assert np.mean(np.array(bounds) < 80.5) == pytest.approx(0.905, abs=0.3 * slack)


# --- what it admits --------------------------------------------------------------------------------


@pytest.mark.parametrize("outward", [False, True])
def test_nothing_is_promised_and_every_leak_is_named(outward: bool) -> None:
    X, y = wdbc()
    released = InvariantRelease(variance=1.0, outward=outward, bounds=(0, 5e3), random_state=1).release(X, y)
    (promise,) = released.promises
    assert isinstance(promise, NoPromise)
    text = promise.sentence()
    for words in (
        "no epsilon exists for any delta below 1",
        "score of every row" if not outward else "score of every row on which the model leans",
        "98 % of the rows of a table of 569 patients",
        "the model itself and how much it leans on each row",
        "whoever knows all other rows computes every row on which the model leans",
        "how the columns go together",
        "labels and public columns",
        "repeated releases",
    ):
        assert words in text
    assert "not for a part of the rows, scaled or rounded columns, or another penalty" in promise.assumes[0]
    with pytest.raises(PromiseError, match="has no epsilon"):
        promise.epsilon_at(1e-6)
    assert all(s.floor is None and s.epsilon is None for s in released.summary)
    json.dumps(promise.to_dict())


def test_a_ledger_records_that_nothing_is_promised_and_one_with_a_limit_refuses() -> None:
    X, y = random_table()
    ledger = Ledger.open(":memory:")
    InvariantRelease(variance=1.0, bounds=(-9, 9), ledger=ledger, random_state=1).release(X, y)
    spent = ledger.spent().promise()
    assert isinstance(spent, NoPromise)
    assert "no epsilon exists" in spent.reason
    limited = Ledger.open(":memory:", limit=ApproxDP(epsilon=1, delta=1e-6))
    with pytest.raises((BudgetExceeded, PromiseError)):
        InvariantRelease(variance=1.0, bounds=(-9, 9), ledger=limited).release(X, y)


def test_the_exposure_is_forgotten_when_the_next_release_fails() -> None:
    X, y = random_table()
    method = InvariantRelease(variance=1.0, bounds=(-9, 9), random_state=1)
    method.release(X, y)
    assert method.exposure_ is not None
    with pytest.raises(DataError):
        method.release(X, np.ones(len(X)))
    assert method.exposure_ is None
