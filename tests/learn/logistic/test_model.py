"""The learner as people use it: what it promises, refuses, remembers and leaves alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_score

from discreet import Column, Schema
from discreet.errors import BudgetExceeded, DataError, ParameterError, PromiseError
from discreet.learn import PrivateLogisticRegression
from discreet.learn.logistic.problem import LogisticConstants
from discreet.learn.perturbation.defaults import pure_if_quieter
from discreet.learn.perturbation.embedding import Embedding
from discreet.learn.perturbation.mean_loss_constants import (
    default_regularization,
    make_linear_plan,
    relative_noise,
)
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray, Floats


def table(n: int = 3000) -> tuple[Floats, AnyArray]:
    i = np.arange(float(n))
    X = np.column_stack([np.sin(i), np.cos(3 * i), np.sin(7 * i)])
    score = X[:, 0] + 0.5 * X[:, 1] + 0.3 * np.sin(11 * i) + 0.2
    return X, np.where(score > 0, "yes", "no")


def learner(**rest: Any) -> PrivateLogisticRegression:
    given = {
        "privacy": PureDP(epsilon=1.0),
        "bounds": (-1.0, 1.0),
        "classes": ["no", "yes"],
        "random_state": 1,
    }
    return PrivateLogisticRegression(**{**given, **rest})


X, Y = table()


@pytest.mark.parametrize("privacy", [PureDP(epsilon=1.0), ApproxDP(epsilon=1.0, delta=1e-6)])
@pytest.mark.parametrize("mechanism", ["auto", "output", "objective"])
def test_it_learns_under_a_promise(privacy: Any, mechanism: Any) -> None:
    model = learner(privacy=privacy, mechanism=mechanism).fit(X, Y)
    assert model.score(X, Y) > 0.8
    (promise,) = model.promises_
    assert promise.epsilon_at(1e-6) <= 1
    assert model.receipt_.promises == model.promises_


def test_pure_promises_are_point_events_with_a_tiny_delta_and_the_samplers_distance() -> None:
    for mechanism in ("output", "objective"):
        (promise,) = learner(mechanism=mechanism).fit(X, Y).promises_
        assert isinstance(promise, ApproxDP)
        assert promise.epsilon == 1.0
        assert 2.0**-64 < promise.delta < 2.0**-60
        assert 0 < promise.total_variation < 2.0**-110
        assert promise.neighbors == "replace-one"


def test_in_one_dimension_a_pure_promise_is_pure() -> None:
    for mechanism in ("output", "objective"):
        model = learner(mechanism=mechanism, fit_intercept=False).fit(X[:, :1], Y)
        (promise,) = model.promises_
        assert isinstance(promise, PureDP)
        assert promise.epsilon == 1.0
        assert 0 < promise.total_variation < 2.0**-110


def test_gaussian_output_promises_its_whole_curve_and_gaussian_objective_one_point() -> None:
    asked = ApproxDP(epsilon=1.0, delta=1e-6)
    (curve,) = learner(privacy=asked, mechanism="output").fit(X, Y).promises_
    assert isinstance(curve, GaussianDP)
    assert 0.99e-6 < curve.delta_at(1.0) <= 1e-6
    (point,) = learner(privacy=asked, mechanism="objective").fit(X, Y).promises_
    assert isinstance(point, ApproxDP)
    assert 0.99e-6 < point.delta_at(1.0) <= 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 25.0, 40.0])
@pytest.mark.parametrize("size", [1, 9, 30, 200])
def test_an_approximate_promise_never_takes_more_noise_than_the_pure_one(epsilon: float, size: int) -> None:
    constants = LogisticConstants(n_rows=500, n_classes=2, dimension=size)
    asked = ApproxDP(epsilon=epsilon, delta=1e-6)
    kept = pure_if_quieter(constants, asked, "auto")
    noise = {p: relative_noise(constants, p, 2.0) for p in (kept, asked, PureDP(epsilon=epsilon))}
    if epsilon <= 25:
        assert noise[kept] == min(noise.values())
    plan = make_linear_plan(constants, asked, regularization=None, mechanism="auto")
    assert plan.promises[0].delta_at(epsilon) <= 1e-6
    assert isinstance(kept, PureDP) == (epsilon <= 25 and size <= 9) or (epsilon, size) == (25.0, 30)


def test_without_a_promise_it_is_plain_logistic_regression() -> None:
    model = learner(privacy=NoPromise("made up"), classes=None).fit(X, Y)
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.mechanism_ == "exact"
    assert model.score(X, Y) > 0.9
    assert model.promises_ == (NoPromise("made up"),)


def test_coefficients_are_in_the_units_of_the_columns() -> None:
    wide = 100 * X + 50
    model = learner(bounds=(-50.0, 150.0)).fit(wide, Y)
    scores = wide @ model.coef_[0] + model.intercept_
    assert model.decision_function(wide) == pytest.approx(scores, abs=1e-8)
    plain = learner().fit(X, Y)
    assert model.coef_ == pytest.approx(plain.coef_ / 100, rel=1e-6)
    assert np.array_equal(model.predict(wide), plain.predict(X))


def test_probabilities_follow_the_scores_for_two_classes_and_for_more() -> None:
    model = learner().fit(X, Y)
    p = model.predict_proba(X)
    assert p.sum(axis=1) == pytest.approx(1)
    assert np.log(p[:, 1] / p[:, 0]) == pytest.approx(model.decision_function(X), abs=1e-9)
    three = learner(classes=[0, 1, 2], privacy=ApproxDP(epsilon=1.0, delta=1e-6))
    three.fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))
    p = three.predict_proba(X)
    assert p.shape == (len(X), 3)
    assert p.sum(axis=1) == pytest.approx(1)
    assert np.array_equal(three.classes_[p.argmax(axis=1)], three.predict(X))
    assert np.abs(three.weights_.sum(axis=0)).max() < 1e-9


def test_more_classes_share_one_epsilon() -> None:
    pixels, digit = load_digits(return_X_y=True)
    model = PrivateLogisticRegression(
        privacy=PureDP(epsilon=10.0), bounds=(0, 16), classes=range(10), random_state=1
    ).fit(pixels, digit)
    assert model.score(pixels, digit) > 0.7


def test_a_class_that_no_row_has_stays() -> None:
    model = learner(classes=["maybe", "no", "yes"]).fit(X, Y)
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    assert model.predict_proba(X).shape == (len(X), 3)
    assert learner().fit(X[Y == "yes"], Y[Y == "yes"]).classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    "rows", [np.array([[0.3, -0.2]]), np.array([[0.4]]), np.zeros((5, 2)), np.ones((40, 3))]
)
def test_the_smallest_tables_are_trained_on(rows: Floats, n_classes: int, mechanism: Any) -> None:
    model = learner(classes=range(n_classes), mechanism=mechanism).fit(rows, np.zeros(len(rows), int))
    assert np.isfinite(model.coef_).all()


def test_rows_outside_the_bounds_are_clipped_in_silence_in_training_and_afterwards() -> None:
    far = X.copy()
    far[:5] *= 1e9
    model, other = learner().fit(far, Y), learner().fit(np.clip(far, -1, 1), Y)
    assert np.array_equal(model.weights_, other.weights_)
    assert np.array_equal(model.decision_function(far), model.decision_function(np.clip(far, -1, 1)))


@pytest.mark.parametrize(
    "given", [{"bounds": (-1, 1)}, {"norm_bound": 2.0}, {"bounds": (-3, 9), "norm_bound": 0.5}]
)
@pytest.mark.parametrize("constant", [None, 0.0, 0.7])
def test_embedded_rows_have_a_norm_of_at_most_one_in_exact_arithmetic(given: Any, constant: Any) -> None:
    rows = np.vstack([X[:200] * 10.0**k for k in (-320, -3, 0, 1, 5, 200, 307)])
    full = {"bounds": None, "norm_bound": None, **given}
    embedding = Embedding.declare(3, constant=constant, owner="test", **full)
    inside = embedding.rows(rows)
    squares = np.array([math.fsum(float(x) ** 2 for x in row) for row in inside.astype(np.longdouble)])
    assert squares.max() <= 1
    assert squares.max() > 0.99 or given == {"bounds": (-1, 1)}
    assert inside.shape == (len(rows), embedding.dimension)


def test_a_schema_supplies_the_bounds() -> None:
    schema = Schema(columns=[Column(name, lower=-1, upper=1) for name in "abc"])
    assert np.array_equal(learner(bounds=schema.bounds).fit(X, Y).weights_, learner().fit(X, Y).weights_)


def test_the_same_seed_gives_the_same_model_and_no_seed_gives_another() -> None:
    assert np.array_equal(learner().fit(X, Y).weights_, learner().fit(X, Y).weights_)
    one, two = (learner(random_state=None).fit(X, Y) for _ in range(2))
    assert not np.array_equal(one.weights_, two.weights_)
    assert learner().fit(X, Y).receipt_.seeded
    assert not one.receipt_.seeded


def test_the_charge_is_on_the_books_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    for mechanism in ("output", "objective"):
        ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=2.0, delta=1e-6))
        counts: list[int] = []
        fill = Stream.fill

        def watched(
            stream: Stream,
            out: AnyArray,
            counts: list[int] = counts,
            ledger: Ledger = ledger,
            fill: Any = fill,
        ) -> None:
            counts.append(ledger.head[0])
            fill(stream, out)

        before = ledger.head[0]
        monkeypatch.setattr(Stream, "fill", watched)
        model = learner(ledger=ledger, mechanism=mechanism, random_state=None).fit(X, Y)
        monkeypatch.setattr(Stream, "fill", fill)
        assert counts
        assert min(counts) == before + 1
        assert model.receipt_.ledger == ledger.identity


def test_a_ledger_that_is_spent_stops_the_training_and_folds_are_charged_one_by_one() -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=5.5, delta=1e-6), rule="pure")
    cross_val_score(learner(ledger=ledger), X[:200], Y[:200], cv=5, error_score="raise")
    with pytest.raises(BudgetExceeded):
        clone(learner(ledger=ledger)).fit(X, Y)
    with pytest.raises(PromiseError):
        learner(ledger=ledger, privacy=NoPromise("why")).fit(X, Y)


def test_a_tolerance_that_cannot_be_promised_is_refused_before_anything_is_charged() -> None:
    ledger = Ledger.open(":memory:")
    before = ledger.head
    model = learner(privacy=ApproxDP(epsilon=1.0, delta=1e-6), mechanism="output", regularization=1e-5)
    model.set_params(tolerance=1e-17, ledger=ledger)
    with pytest.raises(PromiseError, match=r"tolerance of PrivateLogisticRegression must be at least .*e-1"):
        model.fit(X, Y)
    assert not hasattr(model, "coef_")
    with pytest.raises(
        PromiseError, match=r"regularization of PrivateLogisticRegression must be at least 2\.5e-13"
    ):
        learner(regularization=1e-300, mechanism="output", ledger=ledger).fit(X, Y)
    assert ledger.head == before


def test_parameters_that_depend_on_nothing_but_public_facts_make_the_plan() -> None:
    constants = LogisticConstants(n_rows=455, n_classes=2, dimension=31)
    for mechanism in ("output", "objective"):
        weights = [default_regularization(constants, PureDP(epsilon=e), mechanism) for e in (0.1, 1.0, 10.0)]
        assert weights[0] > weights[1] > weights[2] > 0
    assert default_regularization(constants, NoPromise("x"), "auto") == 1 / (455 * 31)
    other = Y.copy()
    other[:700] = "no"
    first, second = learner().fit(X, Y), learner().fit(np.zeros_like(X), other)
    for name in ("regularization_", "mechanism_", "promises_", "embedding_"):
        assert getattr(first, name) == getattr(second, name)


def test_a_large_penalty_is_left_to_the_output_and_a_small_one_to_the_objective() -> None:
    constants = LogisticConstants(n_rows=1000, n_classes=2, dimension=30)
    names = [
        make_linear_plan(constants, PureDP(epsilon=1.0), regularization=lam, mechanism="auto").name
        for lam in (0.5, 1e-3)
    ]
    assert names == ["output", "objective"]


def test_objective_perturbation_raises_a_penalty_that_would_eat_its_epsilon_and_says_so() -> None:
    model = learner(privacy=PureDP(epsilon=0.1), mechanism="objective", regularization=1e-9).fit(X, Y)
    assert model.regularization_ == pytest.approx(1 / (4 * 3000 * math.expm1(0.05)), rel=0.1)


def test_the_tight_constant_means_less_noise() -> None:
    tight, loose = (
        make_linear_plan(
            LogisticConstants(n_rows=100, n_classes=2, dimension=3, tight=tight),
            PureDP(epsilon=1.0),
            regularization=0.5,
            mechanism="output",
        )
        for tight in (True, False)
    )
    ratio = loose.sensitivity / tight.sensitivity  # type: ignore[attr-defined]
    assert ratio == pytest.approx(2 / 1.0504, abs=1e-3)


def test_a_saved_model_keeps_vectors_of_bounds_and_forgets_its_ledger(tmp_path: Path) -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=5.0, delta=1e-6))
    bounds = (np.full(3, -1.0), np.ones(3))
    model = learner(bounds=bounds, ledger=ledger, classes=np.array(["no", "yes"])).fit(X, Y)
    model.save(tmp_path / "model.npz")
    loaded = PrivateLogisticRegression.load(tmp_path / "model.npz")
    assert loaded.ledger is None
    assert loaded.receipt_ == model.receipt_
    assert loaded.promises_ == model.promises_
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert np.array_equal(np.asarray(loaded.bounds), np.asarray(bounds))
    with pytest.raises(ParameterError, match="kind 'unit-ball'"):
        Embedding.from_dict({**model.embedding_.to_dict(), "kind": "other"})
    with pytest.raises(ParameterError, match="no such keys"):
        Embedding.from_dict({**model.embedding_.to_dict(), "extra": 1})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bounds": None}, "bounds or norm_bound of PrivateLogisticRegression must be given"),
        ({"bounds": (0, 1, 2)}, "must be a pair of numbers or of vectors of length 3"),
        ({"bounds": ([0, 0], [1, 1])}, "must be a pair of numbers or of vectors of length 3"),
        ({"bounds": ([0, 1, 0], [1, 1, 1])}, "lower below upper in every column, .* were not in column 2"),
        ({"bounds": (0, math.inf)}, "finite"),
        ({"bounds": (-1e308, 1e308)}, "finite"),
        ({"classes": None}, "classes of PrivateLogisticRegression must list the labels"),
        ({"classes": ["yes"]}, "at least two different labels"),
        ({"classes": ["yes", "yes"]}, "at least two different labels"),
        ({"classes": [["no", "yes"]]}, "two different labels"),
        ({"classes": [1, "yes", None]}, "two different labels"),
        ({"privacy": PureDP(epsilon=1.0, neighbors="add-remove")}, "must be 'replace-one'"),
        ({"privacy": PureDP(epsilon=50.0)}, "epsilon of PureDP must be at most 30"),
        ({"privacy": ApproxDP(epsilon=1.0, delta=1e-34)}, "delta of privacy must be well above"),
        ({"privacy": ApproxDP(epsilon=90.0, delta=1e-6)}, "delta of privacy must be well above"),
        (
            {"regularization": 0.0},
            "regularization of PrivateLogisticRegression must be None or a number above 0",
        ),
    ],
)
def test_bad_parameters_are_refused_with_the_way_out(change: dict[str, Any], words: str) -> None:
    with pytest.raises((ParameterError, PromiseError, DataError), match=words) as caught:
        learner(**change).fit(X, Y)
    assert str(caught.value).count(". ") >= 1


def test_an_epsilon_below_what_its_own_noise_costs_is_refused() -> None:
    wide = np.tile(X[:50], (1, 200))
    for mechanism in ("output", "objective"):
        with pytest.raises(PromiseError, match="epsilon of privacy must be larger for 601 weights"):
            learner(privacy=PureDP(epsilon=1e-11), mechanism=mechanism).fit(wide, Y[:50])


def test_a_label_that_was_not_declared_is_named_by_its_row_and_not_quoted() -> None:
    strange = Y.astype(object)
    strange[41] = "secret"
    with pytest.raises(DataError, match="label of row 42 is not one") as caught:
        learner().fit(X, strange)
    assert "secret" not in str(caught.value)
    assert caught.value.line == 42
    with pytest.raises(DataError, match="label of row 1 is not one"):
        learner(classes=[0, 1]).fit(X, Y)


def test_missing_cells_and_labels_are_refused() -> None:
    holes = X.copy()
    holes[3, 1] = np.nan
    with pytest.raises(DataError, match="row 4, column 2"):
        learner().fit(holes, Y)
    labels = (Y == "yes").astype(float)
    labels[2] = np.nan
    with pytest.raises(DataError, match="row 3"):
        learner(classes=[0, 1]).fit(X, labels)
    with pytest.raises(DataError, match="row 4, column 2"):
        learner().fit(X, Y).predict(holes)
