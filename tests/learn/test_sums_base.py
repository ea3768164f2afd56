"""What learners on noisy sums share: declared columns, rows and labels, databases, files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import DataError, ParameterError, PromiseError
from discreet.learn import PrivateKMeans, PrivatePCA, PrivatePerceptron
from discreet.learn.feature_map import FeatureMap
from discreet.ledger import Ledger
from discreet.privacy import GaussianDP, NoPromise
from discreet.query import Database
from discreet.schema import Column, Schema
from tests.learn.noisy_sums import (
    about_the_table,
    fitted_in_memory_and_in_an_engine,
    fitted_on_answers_alone,
    spent,
    townsfolk,
    townsfolk_schema,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from discreet.schema.schema import Neighbors

MU = GaussianDP(mu=1.0)
MAKES: dict[str, Callable[..., Any]] = {
    "pca": lambda **rest: PrivatePCA(privacy=MU, **rest),
    "svd": lambda **rest: PrivatePCA(privacy=MU, centered=False, **rest),
    "kmeans": lambda **rest: PrivateKMeans(n_clusters=3, privacy=MU, **rest),
    "perceptron": lambda **rest: PrivatePerceptron(privacy=MU, rounds=4, **rest),
}
WHAT = {
    "pca": ("components_", "explained_variance_", "mean_", "distinguishable_"),
    "svd": ("components_", "singular_values_"),
    "kmeans": ("cluster_centers_", "counts_", "radii_"),
    "perceptron": ("weights_", "last_weights_", "coef_", "intercept_", "counts_"),
}
learners = pytest.mark.parametrize("name", sorted(MAKES))


def same(name: str, first: Any, second: Any) -> bool:
    return all(np.array_equal(getattr(first, key), getattr(second, key)) for key in WHAT[name])


@learners
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_rows_in_memory_and_a_database_give_the_same_model(name: str, neighbors: Neighbors) -> None:
    first, second = fitted_in_memory_and_in_an_engine(MAKES[name], townsfolk_schema(neighbors))
    assert same(name, first, second)
    assert first.split_ == second.split_


@learners
@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
def test_a_model_is_a_function_of_answers(name: str, neighbors: Neighbors) -> None:
    schema = townsfolk_schema(neighbors)
    model, again = fitted_on_answers_alone(MAKES[name](), MAKES[name](), schema)
    assert same(name, model, again)


class Telltale:
    """Answers as another does, and puts the exact count into each answer."""

    def __init__(self, sums: Any) -> None:
        self._wrapped = sums

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def ask(self, question: Any, **rest: Any) -> Any:
        answer = self._wrapped.ask(question, **rest)
        rows = getattr(self._wrapped, "_sums", self._wrapped)
        count = question.bind(rows.curation, rows.neighbors).exact(rows._engine)[0]
        return dataclasses.replace(answer, value=np.append(float(count), np.asarray(answer.value)[1:]))


class Peeking(PrivatePerceptron):
    """The wrong twin: divides and stops by the exact number of wrong rows, which nobody has paid for."""

    def _learn(self, sums: Any, layout: Any, target: Any, owner: Any) -> Any:
        return super()._learn(Telltale(sums), layout, target, owner)


def test_a_model_that_looks_at_rows_beside_its_answers_is_caught() -> None:
    peeking, again = Peeking(privacy=MU, rounds=4), Peeking(privacy=MU, rounds=4)
    # What it asks next already depends on rows, so the answers of another table do not fit.
    with pytest.raises(AssertionError):
        fitted_on_answers_alone(peeking, again, townsfolk_schema())


@learners
def test_fitting_a_frame_is_fitting_a_database_of_it(name: str) -> None:
    schema, rows = townsfolk_schema(), townsfolk(3000)
    labels = rows["owner"].to_numpy() if name == "perceptron" else None
    features = rows.drop(columns=["owner"])
    local = MAKES[name](schema=schema, random_state=9).fit(features, labels)
    with Database(rows, schema=schema, random_state=9) as sums:
        other = MAKES[name]().fit_database(sums)
    assert same(name, local, other)
    assert local.feature_names_in_.tolist() == ["age", "income", "share", "job", "town"]
    shown = features.iloc[:50]
    ask = "predict" if hasattr(local, "predict") else "transform"
    assert np.array_equal(getattr(local, ask)(shown), getattr(other, ask)(shown))


@learners
def test_passes_are_charged_to_the_letter_and_no_more_than_promised(name: str) -> None:
    ledger = Ledger.open(":memory:", limit=MU)
    with Database(townsfolk(3000), schema=townsfolk_schema(), ledger=ledger, random_state=3) as sums:
        model = MAKES[name]().fit_database(sums, owner="ann")
        whole = spent(model.answers_)
        charges = ledger.history()
    assert [receipt.id for receipt in charges] == [receipt.id for receipt in model.receipts_]
    assert float(ledger.spent().gaussian) <= 0.5
    assert float(ledger.spent("ann").gaussian) == float(ledger.spent().gaussian)
    asked = sum(model.split_[key] for key in model.answers_)
    assert whole**2 == pytest.approx(asked, rel=1e-9)
    assert sum(model.split_.values()) == pytest.approx(1.0)
    for key, answer in model.answers_.items():
        (cost,) = answer.cost
        assert isinstance(cost, GaussianDP)
        assert cost.mu**2 == pytest.approx(model.split_[key], rel=1e-9)
    (promise,) = model.promises_
    assert isinstance(promise, GaussianDP)
    assert promise.mu == 1.0


@learners
def test_fitting_again_asks_the_same_and_is_free(name: str) -> None:
    with Database(townsfolk(500), schema=townsfolk_schema(), random_state=3) as sums:
        first = MAKES[name]().fit_database(sums)
        before = sums.ledger.spent().charges
        second = MAKES[name]().fit_database(sums)
        assert sums.ledger.spent().charges == before
    assert same(name, first, second)


@learners
def test_what_a_database_would_not_heed_is_refused(name: str, tmp_path: Path) -> None:
    schema = townsfolk_schema()
    with Database(townsfolk(100), schema=schema) as db:
        for wrong, words in (
            ({"bounds": (0, 2)}, "bounds of .* must be those of the database"),
            ({"schema": townsfolk_schema("add-remove")}, "schema of .* must be that of the database"),
            ({"ledger": Ledger.open(tmp_path / "other")}, "ledger of .* must be that of the database"),
        ):
            with pytest.raises(ParameterError, match=words):
                MAKES[name](**wrong).fit_database(db)
        MAKES[name](bounds=schema.bounds, schema=None, ledger=db.ledger).fit_database(db)
        with pytest.raises(ParameterError, match="Did you mean 'age'"):
            MAKES[name]().fit_database(db, columns=["agee"])
        with pytest.raises(ParameterError, match="each once"):
            MAKES[name]().fit_database(db, columns=["age", "age"])
        other, paid = dataclasses.replace(MU, neighbors="add-remove"), db.ledger.spent().charges
        with pytest.raises(PromiseError, match="must be about the neighbors of the table, replace-one"):
            MAKES[name]().set_params(privacy=other).fit_database(db)
        rows = townsfolk(100)
        with pytest.raises(PromiseError, match="must be about the neighbors of the table, replace-one"):
            MAKES[name](schema=schema).set_params(privacy=other).fit(rows, rows["owner"])
        assert db.ledger.spent().charges == paid
        with pytest.raises(PromiseError, match="was NoPromise"):
            MAKES[name]().set_params(privacy=NoPromise("no")).fit_database(db)
        assert len(MAKES[name]().fit_database(db, columns=["share", "age"]).layout_.names) == 2


@learners
def test_bounds_are_declared(name: str) -> None:
    X, y = np.zeros((20, 2)), np.arange(20) % 2
    classes = {"classes": [0, 1]} if name == "perceptron" else {}
    with pytest.raises(ParameterError, match="what the rows span is not for free"):
        MAKES[name](**classes).fit(X, y)
    with pytest.raises(ParameterError, match="one at a time"):
        MAKES[name](bounds=(0, 1), schema=townsfolk_schema(), **classes).fit(X, y)
    for bounds in ((1, 0), (0, np.inf), "ab", ((0, 0, 0), (1, 1, 1))):
        with pytest.raises(ParameterError, match="bounds of"):
            MAKES[name](bounds=bounds, **classes).fit(X, y)


def test_labels_are_declared() -> None:
    X, y = np.linspace(0, 1, 20).reshape(-1, 1), np.arange(20) % 2
    with pytest.raises(ParameterError, match="which labels occur is not for free"):
        PrivatePerceptron(privacy=MU, bounds=(0, 1)).fit(X, y)
    with pytest.raises(DataError, match="the label of row 2 is not one") as caught:
        PrivatePerceptron(privacy=MU, bounds=(0, 1), classes=[0, 7]).fit(X, y)
    assert caught.value.line == 2
    for classes in ([0], [0, 0], [[0, 1]]):
        with pytest.raises(ParameterError, match="at least two different labels"):
            PrivatePerceptron(privacy=MU, bounds=(0, 1), classes=classes).fit(X, y)
    with pytest.raises(ParameterError, match="Only binary classification"):
        PrivatePerceptron(privacy=MU, bounds=(0, 1), classes=[0, 1, 2]).fit(X, y)
    with (
        Database(townsfolk(100), schema=townsfolk_schema(target="age")) as db,
        pytest.raises(ParameterError, match="target that is a category"),
    ):
        PrivatePerceptron(privacy=MU).fit_database(db)
    with Database(townsfolk(100), schema=townsfolk_schema()) as db:
        with pytest.raises(ParameterError, match="levels of the target or left out"):
            PrivatePerceptron(privacy=MU, classes=["nope", "yes"]).fit_database(db)
        with pytest.raises(ParameterError, match="must not hold the target"):
            PrivatePerceptron(privacy=MU).fit_database(db, columns=["age", "owner"])


def test_a_layout_counts_like_the_questions_do() -> None:
    schema, rows = townsfolk_schema(), townsfolk(40)
    layout = FeatureMap.from_schema(schema)
    assert layout.coordinates[:4] == (("age", None), ("income", None), ("share", None), ("job", "clerk"))
    assert layout.size == 3 + 4 + 3
    found = layout.rows(rows)
    assert found[:, 0] * 79 == pytest.approx(rows["age"].to_numpy(), abs=1e-9)
    missing = np.isnan(rows["income"])
    assert missing.any()
    assert (found[missing, 1] == 0.5).all()
    assert (found[:, 3:7].sum(axis=1) == 1).all()
    assert (found[:, 7:].sum(axis=1) == 1).all()
    assert FeatureMap.from_dict(layout.to_dict()) == layout
    plain = FeatureMap(Schema(columns=[Column("x", lower=-1, upper=3)]))
    assert plain.rows(np.array([[-5.0], [1.0], [9.0]])).ravel().tolist() == [0.0, 0.5, 1.0]
    assert plain.decode(np.array([[0.5]])).tolist() == [[1.0]]
    with pytest.raises(ParameterError, match="one column for each of 1 features"):
        plain.name_columns(np.zeros((3, 2)))
    with pytest.raises(ParameterError, match="must have the kind"):
        FeatureMap.from_dict({"kind": "other"})


def test_a_table_without_rows_is_answered_with_noise_alone() -> None:
    for name, make in MAKES.items():
        with Database(townsfolk(0), schema=townsfolk_schema("add-remove"), random_state=1) as db:
            model = about_the_table(make(), db.schema).fit_database(db)
        for key in WHAT[name]:
            assert np.isfinite(np.asarray(getattr(model, key), float)).all() or key == "radii_"


def test_a_table_of_the_target_alone_is_refused_with_the_way_out() -> None:
    schema = Schema(columns=[Column("sex", values=("f", "m"))], target="sex")
    with pytest.raises(ParameterError, match="releases none beside the target"):
        FeatureMap.from_schema(schema)
