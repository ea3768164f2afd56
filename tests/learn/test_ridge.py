from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.learn import PrivateRidge
from discreet.learn._centering import Centering, spectral_edge
from discreet.learn._ridge import moments
from discreet.learn.budget_schedule import NoiselessSums
from discreet.learn.feature_map import FeatureMap
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP
from discreet.query import Database, Gram
from discreet.schema import Column, Schema
from tests.learn.noisy_sums import (
    fitted_in_memory_and_in_an_engine,
    fitted_on_answers_alone,
    spent,
    townsfolk,
    townsfolk_schema,
)

EXACT = NoPromise("the rows are made up")


def numbers(n: int) -> tuple[Any, Any]:
    """Rows and a target that lie on the grid of the questions."""
    i = np.arange(n)
    X = np.column_stack([(i * 37 % 257) / 256, (i * 101 % 65) / 64])
    return X, np.floor(256 * (0.5 * X[:, 0] - 0.25 * X[:, 1] + 0.25 + (i % 17) / 68)) / 256


def by_the_book(U: Any, v: Any, penalty: float) -> Any:
    """Ridge with an intercept that is not penalized: slopes and intercept."""
    centered = U - U.mean(axis=0)
    slopes = np.linalg.solve(
        centered.T @ centered + penalty * np.eye(U.shape[1]), centered.T @ (v - v.mean())
    )
    return slopes, v.mean() - slopes @ U.mean(axis=0)


def test_without_noise_it_is_ridge_regression() -> None:
    X, y = numbers(700)
    model = PrivateRidge(privacy=EXACT, bounds=(0, 1), target_bounds=(0, 1), regularization=3.0).fit(X, y)
    slopes, intercept = by_the_book(X, y, 3.0)
    assert np.allclose(model.coef_, slopes, rtol=0, atol=1e-10)
    assert model.intercept_ == pytest.approx(intercept, abs=1e-10)
    assert np.allclose(model.predict(X), X @ slopes + intercept, rtol=0, atol=1e-10)


def test_coefficients_are_in_the_units_of_the_columns() -> None:
    X, y = numbers(700)
    narrow = PrivateRidge(privacy=EXACT, bounds=(0, 1), target_bounds=(0, 1)).fit(X, y)
    wide = PrivateRidge(privacy=EXACT, bounds=(-8, 8), target_bounds=(100, 132))
    wide.fit(16 * X - 8, 32 * y + 100)
    assert np.allclose(wide.coef_, 2 * narrow.coef_, rtol=0, atol=1e-9)
    assert np.allclose(wide.predict(16 * X - 8), 32 * narrow.predict(X) + 100, rtol=0, atol=1e-8)


def test_categories_are_levels_and_their_sums_come_with_the_products() -> None:
    rows, schema = townsfolk(900), townsfolk_schema(target="share")
    schema = Schema(columns=[c for c in schema.columns if c.name not in ("income", "owner", "age")])
    model = PrivateRidge(privacy=EXACT, schema=schema, regularization=2.0).fit(rows, rows["share"])
    U = FeatureMap.from_schema(schema).rows(rows)
    slopes, intercept = by_the_book(U, rows["share"].to_numpy(), 2.0)
    assert np.allclose(model.predict(rows), U @ slopes + intercept, rtol=0, atol=1e-9)
    assert len(model.coef_) == 4 + 3


def test_sums_read_off_the_products_with_levels_are_exact() -> None:
    rows, schema = townsfolk(900), townsfolk_schema()
    layout = FeatureMap.from_schema(schema, ["age", "share", "job", "town"])
    centered = Centering(layout)
    assert not centered.intercept
    with NoiselessSums(rows, schema=schema) as sums:
        answer = sums.ask(Gram(**centered.query_arguments, with_sums=False), privacy=EXACT)
    vectors = centered.rows(layout.rows(rows))
    for n_rows in (900, None):
        count, totals, products = moments(np.asarray(answer.value), centered, n_rows)
        assert count == 900
        # The grid of the questions has 2**16 steps; 80 ages are not on it.
        assert np.allclose(totals, vectors.sum(axis=0), rtol=0, atol=900 * 2.0**-16)
        assert np.allclose(products, vectors.T @ vectors, rtol=0, atol=900 * 2.0**-16)


def test_no_row_is_longer_than_the_reach_and_none_is_shortened() -> None:
    rows, schema = townsfolk(900), townsfolk_schema()
    layout = FeatureMap.from_schema(schema)
    centered = Centering(layout)
    vectors = centered.rows(layout.rows(rows))
    assert np.linalg.norm(vectors, axis=1).max() <= centered.reach
    assert centered.reach == pytest.approx(math.sqrt(3 / 4 + 2), rel=1e-12)
    assert not centered.is_clipping
    short = Centering(layout, 0.5)
    assert short.is_clipping
    assert np.linalg.norm(short.rows(layout.rows(rows)), axis=1).max() <= 0.5 + 1e-12
    with_ones = Centering(FeatureMap.from_schema(schema, ["age", "share"]))
    assert with_ones.intercept
    assert np.all(with_ones.rows(with_ones.layout.rows(rows))[:, -1] == 1)


def test_the_matrix_costs_the_square_of_the_length_of_rows() -> None:
    X, y = numbers(3000)
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1.0))
    model = PrivateRidge(
        privacy=GaussianDP(mu=1.0), bounds=(0, 1), target_bounds=(0, 1), ledger=ledger, random_state=1
    ).fit(X, y)
    (answer,) = model.answers_.values()
    sd = np.asarray(answer.sd)
    # Three numbers: B^2 = 3/4, and the sums are asked along.
    assert sd[1, 1] == pytest.approx(math.sqrt(2) * 2 * 0.75, rel=1e-6)
    assert sd[1, 2] == pytest.approx(sd[1, 1] / math.sqrt(2), rel=1e-6)
    assert 1 - 1e-9 < spent(model.answers_) <= 1.0
    rows, schema = townsfolk(2000), townsfolk_schema(target="share")
    model = PrivateRidge(privacy=GaussianDP(mu=1.0), schema=schema, random_state=1).fit(rows, rows["share"])
    sd = np.asarray(model.answers_["products"].sd)
    # Three numbers and three categories: B^2 = 15/4, and the sums are free.
    assert sd[0, 0] == pytest.approx(math.sqrt(2) * 3.75, rel=1e-6)


def test_the_penalty_covers_the_noise() -> None:
    X, y = numbers(3000)
    model = PrivateRidge(
        privacy=GaussianDP(mu=0.1), bounds=(0, 1), target_bounds=(0, 1), regularization=2.0, random_state=1
    ).fit(X, y)
    sd = np.asarray(model.answers_["products"].sd)
    assert model.regularization_ == pytest.approx(2.0 + spectral_edge(sd), rel=1e-12)
    noise = Stream.from_seed(3).generator().standard_normal((200, 200))
    symmetric = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(math.sqrt(2) * np.diag(noise))
    largest = np.abs(np.linalg.eigvalsh(symmetric)).max()
    assert 0.9 * spectral_edge(np.ones((200, 200))) < largest < 1.1 * spectral_edge(np.ones((200, 200)))


@pytest.mark.parametrize("privacy", [ApproxDP(epsilon=1.0, delta=1e-6), PureDP(epsilon=4.0)])
def test_many_rows_are_learned_from(privacy: Any) -> None:
    X, y = numbers(40_000)
    exact = PrivateRidge(privacy=EXACT, bounds=(0, 1), target_bounds=(0, 1)).fit(X, y)
    model = PrivateRidge(privacy=privacy, bounds=(0, 1), target_bounds=(0, 1), random_state=1).fit(X, y)
    assert exact.score(X, y) - model.score(X, y) < 0.01


def test_add_remove_learns_the_number_of_rows_too() -> None:
    X, y = numbers(40_000)
    promise = GaussianDP(mu=0.5, neighbors="add-remove")
    model = PrivateRidge(privacy=promise, bounds=(0, 1), target_bounds=(0, 1), random_state=1).fit(X, y)
    answer = np.asarray(model.answers_["products"].value)
    assert answer[0, 0] != 40_000
    assert abs(answer[0, 0] - 40_000) < 50
    assert model.score(X, y) > 0.5


def test_the_same_keystream_gives_the_same_model_on_rows_and_in_an_engine() -> None:
    first, second = fitted_in_memory_and_in_an_engine(
        lambda: PrivateRidge(privacy=GaussianDP(mu=0.5)), townsfolk_schema(target="share")
    )
    assert np.array_equal(first.coef_, second.coef_)
    assert first.intercept_ == second.intercept_


def test_the_model_is_a_function_of_the_noisy_answer() -> None:
    def make() -> PrivateRidge:
        return PrivateRidge(privacy=GaussianDP(mu=0.5))

    first, second = fitted_on_answers_alone(make(), make(), townsfolk_schema(target="share"))
    assert np.array_equal(first.coef_, second.coef_)


def test_a_range_of_the_target_must_be_declared_and_agree() -> None:
    X, y = numbers(50)
    with pytest.raises(ParameterError, match="target_bounds of PrivateRidge must be given"):
        PrivateRidge(privacy=GaussianDP(mu=1.0), bounds=(0, 1)).fit(X, y)
    rows = townsfolk(50)
    words = pytest.raises(ParameterError, match="a target that is a number")
    with Database(rows, schema=townsfolk_schema()) as sums, words:
        PrivateRidge(privacy=GaussianDP(mu=1.0)).fit_database(sums)
    schema = townsfolk_schema(target="share")
    with pytest.raises(ParameterError, match="target_bounds of PrivateRidge must be those"):
        PrivateRidge(privacy=EXACT, schema=schema, target_bounds=(0.0, 2.0)).fit(rows, rows["share"])


def test_a_target_outside_its_range_counts_as_its_end() -> None:
    X, y = numbers(400)
    far = np.where(np.arange(400) % 7 == 0, 1e9, y)
    near = np.where(np.arange(400) % 7 == 0, 1.0, y)
    models = [PrivateRidge(privacy=EXACT, bounds=(0, 1), target_bounds=(0, 1)).fit(X, v) for v in (far, near)]
    assert np.array_equal(models[0].coef_, models[1].coef_)


def test_a_column_named_like_the_target_is_no_trouble() -> None:
    X, y = numbers(200)
    schema = Schema(columns=[Column("y", lower=0, upper=1), Column("z", lower=0, upper=1)])
    model = PrivateRidge(privacy=EXACT, schema=schema, target_bounds=(0, 1)).fit(X, y)
    assert np.allclose(model.coef_, by_the_book(X, y, 1.0)[0], rtol=0, atol=1e-10)
