from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from discreet import datasets
from discreet.learn import PrivateNaiveBayes
from discreet.learn._bins import public_grid
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP
from tests.learn.noisy_sums import (
    fitted_in_memory_and_in_an_engine,
    fitted_on_answers_alone,
    spent,
    townsfolk,
    townsfolk_schema,
)

EXACT = NoPromise("the rows are made up")


def test_without_noise_the_shares_are_those_of_the_rows() -> None:
    rows = townsfolk(2000)
    model = PrivateNaiveBayes(privacy=EXACT, schema=townsfolk_schema(), n_bins=4).fit(rows, rows["owner"])
    codes, y = model.cells_.codes(rows), (rows["owner"] == "yes").to_numpy().astype(int)
    classes = np.bincount(y)
    assert np.allclose(np.exp(model.class_log_prior_), (classes + 0.5) / (len(y) + 1), rtol=0, atol=1e-12)
    at, joint = 0, np.tile(model.class_log_prior_, (len(rows), 1))
    for i, size in enumerate(model.cells_.sizes.values()):
        table = np.zeros((size, 2))
        np.add.at(table, (codes[:, i], y), 1)
        shares = (table + 1 / size) / (classes + 1)
        assert np.allclose(np.exp(model.cell_log_prob_[at : at + size]), shares, rtol=0, atol=1e-12)
        joint += np.log(shares)[codes[:, i]]
        at += size
    assert at == len(model.cell_log_prob_)
    assert np.array_equal(model.predict(rows) == "yes", joint.argmax(axis=1) == 1)
    assert np.allclose(model.predict_proba(rows).sum(axis=1), 1.0)


def test_cells_and_classes_that_no_row_has_are_there() -> None:
    rows = townsfolk(1000)
    nobody = np.full(1000, "no")
    model = PrivateNaiveBayes(privacy=GaussianDP(mu=2.0), schema=townsfolk_schema(), random_state=1)
    model.fit(rows, nobody)
    assert model.classes_.tolist() == ["no", "yes"]
    assert np.isfinite(model.cell_log_prob_).all()
    divers = rows.head(3).assign(job="diver")
    assert np.isfinite(model.predict_proba(divers)).all()


def test_all_tables_cost_two_for_each_column() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=0.5))
    rows = townsfolk(4000)
    model = PrivateNaiveBayes(
        privacy=GaussianDP(mu=0.5), schema=townsfolk_schema(), ledger=ledger, random_state=1
    )
    model.fit(rows, rows["owner"])
    (answer,) = model.answers_.values()
    assert np.max(answer.sd) == pytest.approx(math.sqrt(2 * 5) / 0.5, rel=1e-9)
    assert 0.5 * (1 - 1e-9) < spent(model.answers_) <= 0.5
    assert model.split_ == {"tables": 1.0}


def test_a_pure_promise_is_paid_by_absolute_changes() -> None:
    rows = townsfolk(4000)
    model = PrivateNaiveBayes(privacy=PureDP(epsilon=2.0), schema=townsfolk_schema(), random_state=1)
    model.fit(rows, rows["owner"])
    (answer,) = model.answers_.values()
    assert answer.law == "laplace"
    assert np.max(answer.sd) == pytest.approx(math.sqrt(2) * 2 * 5 / 2.0, rel=1e-6)


def test_the_number_of_cells_follows_from_public_facts() -> None:
    sizes = {}
    for mu in (0.01, 0.05, 5.0):
        for start in (0, 4000):
            rows = townsfolk(8000).iloc[start : start + 4000]
            model = PrivateNaiveBayes(privacy=GaussianDP(mu=mu), schema=townsfolk_schema(), random_state=1)
            sizes[mu, start] = model.fit(rows, rows["owner"]).cells_.sizes["age"]
    assert [sizes[mu, 0] for mu in (0.01, 0.05, 5.0)] == [5, 9, 19]
    assert all(sizes[mu, 0] == sizes[mu, 4000] for mu in (0.01, 0.05, 5.0))


def test_where_the_number_of_rows_is_private_the_cells_are_fixed() -> None:
    rows, schema = townsfolk(500), townsfolk_schema("add-remove")
    promise = GaussianDP(mu=1.0, neighbors="add-remove")
    model = PrivateNaiveBayes(privacy=promise, schema=schema, random_state=1).fit(rows, rows["owner"])
    assert model.cells_.edges["age"] == public_grid(schema.column("age"), 1)
    (answer,) = model.answers_.values()
    assert np.max(answer.sd) == pytest.approx(math.sqrt(5), rel=1e-9)


def test_the_same_keystream_gives_the_same_model_on_rows_and_in_an_engine() -> None:
    first, second = fitted_in_memory_and_in_an_engine(
        lambda: PrivateNaiveBayes(privacy=GaussianDP(mu=0.3)), townsfolk_schema()
    )
    assert np.array_equal(first.cell_log_prob_, second.cell_log_prob_)
    assert np.array_equal(first.class_log_prior_, second.class_log_prior_)


def test_the_model_is_a_function_of_the_noisy_answer() -> None:
    def make() -> PrivateNaiveBayes:
        return PrivateNaiveBayes(privacy=GaussianDP(mu=0.3))

    first, second = fitted_on_answers_alone(make(), make(), townsfolk_schema())
    assert np.array_equal(first.cell_log_prob_, second.cell_log_prob_)


def test_the_census_is_learned_at_a_tenth() -> None:
    census = datasets.load("census")
    rows = pd.read_parquet(census.path)
    train, test = rows.iloc[:32_561], rows.iloc[32_561:]
    model = PrivateNaiveBayes(privacy=ApproxDP(epsilon=0.1, delta=1e-6), schema=census.schema, random_state=1)
    assert model.fit(train, train["income"]).score(test, test["income"]) > 0.805
