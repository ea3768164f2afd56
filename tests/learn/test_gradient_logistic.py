from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, special

from discreet import datasets
from discreet.learn import PrivateGradientLogistic
from discreet.learn._bins import public_grid
from discreet.learn._centering import Centering
from discreet.learn._gradient_logistic import noise_penalty
from discreet.learn.feature_map import FeatureMap
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP
from discreet.query import Database
from discreet.schema import Column, Schema
from tests.learn.noisy_sums import (
    fitted_in_memory_and_in_an_engine,
    fitted_on_answers_alone,
    spent,
    townsfolk,
    townsfolk_schema,
)

if TYPE_CHECKING:
    from pathlib import Path

EXACT = NoPromise("the rows are made up")
GRID = 1 / 512 + 2.0**-13
"""How far the tabulated probability of a row can be from its own: half a step of 1/64 times 1/4, rounded."""


@pytest.mark.parametrize("columns", [["age", "share"], ["age", "share", "job", "town"]])
def test_without_noise_the_penalized_likelihood_is_largest_there(columns: list[str]) -> None:
    rows, full = townsfolk(1500), townsfolk_schema()
    schema = type(full)(columns=[full.column(name) for name in (*columns, "owner")])
    model = PrivateGradientLogistic(privacy=EXACT, schema=schema, rounds=150, regularization=2.0)
    rows, y = rows[columns], (rows["owner"] == "yes").to_numpy()
    model.fit(rows, np.where(y, "yes", "no"))
    centered = Centering(FeatureMap.from_schema(schema))
    vectors = centered.rows(FeatureMap.from_schema(schema).rows(rows))
    w = model.weights_[0]
    gradient = vectors.T @ (y - special.expit(vectors @ w)) - 2.0 * w
    assert np.linalg.norm(gradient) <= GRID * np.abs(vectors).sum(axis=0).max() * math.sqrt(len(w))
    assert np.linalg.norm(w) > 0.5
    scores = model.decision_function(rows)
    assert np.allclose(scores, vectors @ w, rtol=0, atol=1e-12)
    decoded = FeatureMap.from_schema(schema).decode(FeatureMap.from_schema(schema).rows(rows))
    assert np.allclose(scores, decoded @ model.coef_[0] + model.intercept_[0], rtol=0, atol=1e-9)


def test_the_penalty_for_noise_has_the_least_error() -> None:
    for curvature, sd in ((1.0, 0.5), (3.0, 7.0), (100.0, 2.0)):
        found = optimize.minimize_scalar(
            lambda p, c=curvature, s=sd: (p**2 + s**2) / (c + p) ** 2,
            bounds=(0, 1000),
            method="bounded",
            options={"xatol": 1e-9},
        )
        assert noise_penalty(np.array([curvature]), sd)[0] == pytest.approx(found.x, rel=1e-4)


def test_every_question_has_its_share_and_costs_what_rows_can_move_it() -> None:
    rows, schema = townsfolk(3000), townsfolk_schema()
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1.0))
    model = PrivateGradientLogistic(
        privacy=GaussianDP(mu=1.0), schema=schema, rounds=5, ledger=ledger, random_state=1
    ).fit(rows, rows["owner"])
    assert model.split_ == {"products": 0.25} | {f"gradient {r}": pytest.approx(0.15) for r in range(1, 6)}
    assert 1 - 1e-9 < spent(model.answers_) <= 1.0
    # Three numbers and two categories: B^2 = 11/4.
    products, gradient = np.asarray(model.answers_["products"].sd), model.answers_["gradient 3"].sd
    assert products[0, 0] == pytest.approx(math.sqrt(2) * 2.75 / 0.5, rel=1e-6)
    assert np.max(gradient) == pytest.approx(2 * math.sqrt(2.75) / math.sqrt(0.15), rel=1e-6)


def test_more_classes_are_told_one_by_one_from_the_rest() -> None:
    i = np.arange(6000)
    X = np.column_stack([(i * 37 % 101) / 100, (i * 59 % 97) / 96])
    y = np.where(X[:, 0] < 0.4, "a", np.where(X[:, 1] < 0.5, "b", "c"))
    model = PrivateGradientLogistic(
        privacy=GaussianDP(mu=2.0), bounds=(0, 1), classes=["c", "a", "b"], random_state=1
    ).fit(X, y)
    assert model.weights_.shape == (3, 3)
    assert len(model.answers_) == 1 + 3 * 6
    assert math.fsum(model.split_.values()) == pytest.approx(1.0, rel=1e-12)
    assert spent(model.answers_) <= 2.0
    assert model.score(X, y) > 0.85
    assert np.allclose(model.predict_proba(X).sum(axis=1), 1.0)
    assert np.array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], model.predict(X))


def test_a_radius_shortens_rows_in_training_and_afterwards() -> None:
    rows, schema = townsfolk(3000), townsfolk_schema()
    model = PrivateGradientLogistic(
        privacy=GaussianDP(mu=1.0), schema=schema, radius=0.5, random_state=1
    ).fit(rows, rows["owner"])
    whole = PrivateGradientLogistic(privacy=GaussianDP(mu=1.0), schema=schema, random_state=1)
    whole.fit(rows, rows["owner"])
    narrow, wide = (np.max(m.answers_["gradient 1"].sd) for m in (model, whole))
    assert narrow == pytest.approx(wide * 0.5 / math.sqrt(2.75), rel=1e-4)
    bound = np.linalg.norm(model.weights_) * 0.5
    assert np.abs(model.decision_function(rows)).max() <= bound * (1 + 1e-9)


@pytest.mark.parametrize(
    "privacy", [ApproxDP(epsilon=1.0, delta=1e-6), pytest.param(PureDP(epsilon=20.0), marks=pytest.mark.slow)]
)
def test_many_rows_are_learned_from(privacy: Any) -> None:
    rows, schema = townsfolk(30_000), townsfolk_schema()
    exact = PrivateGradientLogistic(privacy=EXACT, schema=schema).fit(rows, rows["owner"])
    model = PrivateGradientLogistic(privacy=privacy, schema=schema, random_state=1).fit(rows, rows["owner"])
    assert exact.score(rows, rows["owner"]) - model.score(rows, rows["owner"]) < 0.01


@pytest.mark.parametrize("mu", [1e-2, 1e-4])
def test_noise_that_drowns_everything_leaves_weights_of_ordinary_size(mu: float) -> None:
    rows, schema = townsfolk(500), townsfolk_schema()
    model = PrivateGradientLogistic(privacy=GaussianDP(mu=mu), schema=schema, random_state=1)
    assert np.abs(model.fit(rows, rows["owner"]).weights_).max() < 5.0


def test_the_same_keystream_gives_the_same_model_on_rows_and_in_an_engine() -> None:
    first, second = fitted_in_memory_and_in_an_engine(
        lambda: PrivateGradientLogistic(privacy=GaussianDP(mu=0.5)), townsfolk_schema()
    )
    assert np.array_equal(first.weights_, second.weights_)


def test_the_model_is_a_function_of_the_noisy_answers() -> None:
    def make() -> PrivateGradientLogistic:
        return PrivateGradientLogistic(privacy=GaussianDP(mu=0.5))

    first, second = fitted_on_answers_alone(make(), make(), townsfolk_schema())
    assert np.array_equal(first.weights_, second.weights_)
    assert len(first.answers_) == 7


def test_a_model_survives_its_file(tmp_path: Path) -> None:
    rows = townsfolk(1000)
    model = PrivateGradientLogistic(
        privacy=GaussianDP(mu=0.5), schema=townsfolk_schema(), radius=1.0, random_state=1
    )
    model.fit(rows, rows["owner"]).save(tmp_path / "model")
    loaded = PrivateGradientLogistic.load(tmp_path / "model")
    assert np.array_equal(loaded.decision_function(rows), model.decision_function(rows))


def test_numbers_in_cells_are_learned_like_the_categories_of_their_cells() -> None:
    rows, schema = townsfolk(3000), townsfolk_schema()
    cells = {"age": (20.0, 50.0), "income": (100.0, 1000.0), "share": (0.5,)}
    income = np.where(rows["income"].isna(), 3, np.digitize(rows["income"], cells["income"]))
    coded = rows.assign(
        age=np.digitize(rows["age"], cells["age"]),
        income=income,
        share=np.digitize(rows["share"], cells["share"]),
    )
    sizes = {"age": 3, "income": 4, "share": 2}
    plain = Schema(
        columns=[
            *(Column(name, values=tuple(range(size)), closed=True) for name, size in sizes.items()),
            *(schema.column(name) for name in ("job", "town", "owner")),
        ]
    ).with_target("owner")
    privacy = GaussianDP(mu=1.0)
    with Database(rows, schema=schema, random_state=3) as sums:
        cut = PrivateGradientLogistic(privacy=privacy, edges=cells).fit_database(sums)
    with Database(coded, schema=plain, random_state=3) as sums:
        listed = PrivateGradientLogistic(privacy=privacy).fit_database(sums)
    assert np.array_equal(cut.weights_, listed.weights_)
    assert np.array_equal(cut.decision_function(rows), listed.decision_function(coded))
    assert np.array_equal(cut.coef_, cut.weights_)
    # Five columns, each in one cell: a gradient moves by 2 sqrt(5).
    gradient = np.max(cut.answers_["gradient 1"].sd)
    assert gradient == pytest.approx(2 * math.sqrt(5) / math.sqrt(0.75 / 6), rel=1e-6)


def test_a_curve_that_no_line_follows_is_learned_in_cells() -> None:
    X = np.linspace(0, 1, 20_000).reshape(-1, 1)
    y = np.abs(X[:, 0] - 0.5) > 0.25
    given: dict[str, Any] = {"privacy": GaussianDP(mu=0.5), "bounds": (0, 1), "classes": [False, True]}
    line, curve = (
        PrivateGradientLogistic(n_bins=n_bins, random_state=1, **given).fit(X, y).score(X, y)
        for n_bins in (None, "auto")
    )
    assert line < 0.6
    assert curve > 0.95


def test_automatic_cells_are_those_of_the_public_grid() -> None:
    rows = townsfolk(1000)
    for neighbors in ("replace-one", "add-remove"):
        schema = townsfolk_schema(neighbors)
        with Database(rows, schema=schema, random_state=1) as sums:
            promise = GaussianDP(mu=50.0, neighbors=neighbors)
            model = PrivateGradientLogistic(privacy=promise, n_bins="auto").fit_database(sums)
        assert model.cells_ is not None
        assert model.cells_.edges["share"] == public_grid(schema.column("share"), 1)


def test_a_model_in_cells_survives_its_file_and_is_a_function_of_its_answers(tmp_path: Path) -> None:
    rows = townsfolk(1000)

    def make(**rest: Any) -> PrivateGradientLogistic:
        return PrivateGradientLogistic(privacy=GaussianDP(mu=0.5), n_bins=5, edges={"age": [30, 60]}, **rest)

    model = make(schema=townsfolk_schema(), random_state=1).fit(rows, rows["owner"])
    model.save(tmp_path / "model")
    loaded = PrivateGradientLogistic.load(tmp_path / "model")
    assert np.array_equal(loaded.decision_function(rows), model.decision_function(rows))
    assert loaded.cells_ is not None
    assert loaded.cells_.sizes == {"age": 3, "income": 6, "share": 5, "job": 4, "town": 3}
    first, second = fitted_on_answers_alone(make(), make(), townsfolk_schema())
    assert np.array_equal(first.weights_, second.weights_)
    first, second = fitted_in_memory_and_in_an_engine(make, townsfolk_schema())
    assert np.array_equal(first.weights_, second.weights_)


@pytest.mark.parametrize(
    ("n_bins", "least"), [pytest.param(None, 0.83, marks=pytest.mark.slow), ("auto", 0.845)]
)
def test_the_census_is_learned_at_one(n_bins: str | None, least: float) -> None:
    census = datasets.load("census")
    rows = pd.read_parquet(census.path)
    train, test = rows.iloc[:32_561], rows.iloc[32_561:]
    model = PrivateGradientLogistic(
        privacy=ApproxDP(epsilon=1.0, delta=1e-6), schema=census.schema, n_bins=n_bins, random_state=1
    )
    assert model.fit(train, train["income"]).score(test, test["income"]) > least
