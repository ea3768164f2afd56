"""The learner as people use it: what it promises, refuses, remembers and leaves alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from discreet import Column, Schema
from discreet.errors import BudgetExceeded, DataError, ParameterError, PromiseError
from discreet.learn import LargeMarginGaussianClassifier
from discreet.learn.large_margin._problem import common_shift, to_coordinates, to_matrices
from discreet.learn.large_margin._training import (
    LargeMarginConstants,
    default_regularization,
    make_large_margin_plan,
    psd_part,
)
from discreet.learn.perturbation.defaults import pure_if_quieter
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray, Floats

ASKED = ApproxDP(epsilon=1.0, delta=1e-6)
MADE_UP = NoPromise("the rows are made up")


def table(n: int = 3000) -> tuple[Floats, AnyArray]:
    """Return rows in a square: those in a disc, and the rest on two sides of a line."""
    i = np.arange(float(n))
    X = np.column_stack([np.sin(i), np.cos(3 * i)])
    inside = np.hypot(X[:, 0], X[:, 1]) < 0.8
    return X, np.where(inside, "in", np.where(X[:, 0] > 0, "right", "left"))


X, Y = table()
CLASSES = ["in", "left", "right"]


def learner(**rest: Any) -> LargeMarginGaussianClassifier:
    given = {"privacy": ASKED, "bounds": (-1.0, 1.0), "classes": CLASSES, "random_state": 1}
    return LargeMarginGaussianClassifier(**{**given, **rest})


def distances(model: LargeMarginGaussianClassifier, rows: Floats) -> Floats:
    """Return how far rows are from each ellipsoid, by what a reader of the model would write down."""
    away = rows[:, None, :] - model.centroids_
    return np.asarray(np.einsum("nci,cij,ncj->nc", away, model.inverse_covariances_, away) + model.offsets_)


@pytest.mark.parametrize("privacy", [PureDP(epsilon=1.0), ASKED])
@pytest.mark.parametrize("mechanism", ["objective", "output"])
@pytest.mark.parametrize("psd", ["shift", "constrained"])
def test_it_learns_under_a_promise(privacy: Any, mechanism: Any, psd: Any) -> None:
    model = learner(privacy=privacy, mechanism=mechanism, psd=psd).fit(X, Y)
    assert model.score(X, Y) > (0.75 if mechanism == "objective" else 0.6)
    (promise,) = model.promises_
    assert promise.epsilon_at(1e-6) <= 1
    assert model.receipt_.promises == model.promises_
    assert model.mechanism_ == mechanism
    assert np.linalg.eigvalsh(model.matrices_).min() > 0


def test_pure_promises_are_point_events_with_a_tiny_delta() -> None:
    for n_classes, mechanism in ((3, "objective"), (3, "output"), (6, "objective")):
        model = learner(
            privacy=PureDP(epsilon=1.0), mechanism=mechanism, classes=[*CLASSES, "x", "y", "z"][:n_classes]
        )
        (promise,) = model.fit(X, Y).promises_
        assert isinstance(promise, ApproxDP)
        assert promise.epsilon == 1.0
        assert 2.0**-64 < promise.delta < 2.0**-57
        assert 0 < promise.total_variation < 2.0**-100
        assert promise.neighbors == "replace-one"


def test_gaussian_output_promises_its_whole_curve_and_gaussian_objective_one_point() -> None:
    wide = np.hstack([X, X**2, X**3, np.sin(5 * X)])
    (curve,) = learner(mechanism="output").fit(wide, Y).promises_
    assert isinstance(curve, GaussianDP)
    assert 0.99e-6 < curve.delta_at(1.0) <= 1e-6
    (point,) = learner().fit(wide, Y).promises_
    assert isinstance(point, ApproxDP)
    assert 0.99e-6 < point.delta_at(1.0) <= 1e-6


def test_few_weights_keep_an_approximate_promise_by_a_pure_one() -> None:
    few = LargeMarginConstants(n_rows=500, n_classes=2, dimension=3)
    many = LargeMarginConstants(n_rows=500, n_classes=2, dimension=30)
    assert isinstance(pure_if_quieter(few, ASKED, "objective"), PureDP)
    assert pure_if_quieter(many, ASKED, "objective") is ASKED
    asked = ApproxDP(epsilon=60.0, delta=1e-6)
    assert pure_if_quieter(few, asked, "output") is asked


def test_without_a_promise_it_is_a_plain_classifier() -> None:
    model = learner(privacy=MADE_UP, classes=None).fit(X, Y)
    assert model.classes_.tolist() == CLASSES
    assert model.mechanism_ == "exact"
    assert model.score(X, Y) > 0.9
    assert model.promises_ == (MADE_UP,)
    assert model.regularization_ == 0.3


@pytest.mark.parametrize("given", [{"bounds": (-1.0, 1.0)}, {"bounds": None, "norm_bound": 1.5}], ids=str)
def test_ellipsoids_are_in_the_units_of_the_columns(given: dict[str, Any]) -> None:
    model = learner(**given).fit(X, Y)
    far = distances(model, X)
    assert -far == pytest.approx(model.decision_function(X), abs=1e-9)
    assert np.array_equal(model.classes_[far.argmin(axis=1)], model.predict(X))
    assert model.offsets_.min() >= 0
    assert model.centroids_.shape == (3, 2)
    assert model.inverse_covariances_.shape == (3, 2, 2)
    if given["bounds"]:
        wide = learner(bounds=(-50.0, 150.0)).fit(100 * X + 50, Y)
        assert wide.centroids_ == pytest.approx(100 * model.centroids_ + 50, rel=1e-6)
        assert wide.inverse_covariances_ == pytest.approx(model.inverse_covariances_ / 1e4, rel=1e-6)


def test_two_classes_have_one_score_and_ties_go_to_the_first() -> None:
    y = np.where(Y == "in", "in", "out")
    model = learner(classes=["in", "out"]).fit(X, y)
    score = model.decision_function(X)
    far = distances(model, X)
    assert score == pytest.approx(far[:, 0] - far[:, 1], abs=1e-9)
    assert np.array_equal(model.predict(X) == "out", score > 0)
    model.matrices_ = np.broadcast_to(model.matrices_[:1], model.matrices_.shape)
    assert set(model.predict(X)) == {"in"}


def test_there_are_no_probabilities() -> None:
    model = learner().fit(X, Y)
    assert not hasattr(model, "predict_proba")
    assert "predict_proba" in (LargeMarginGaussianClassifier.__doc__ or "")


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(1, 4), st.floats(1e-3, 1e3), st.integers(0, 999))
def test_a_common_shift_keeps_every_decision_and_makes_every_matrix_definite(
    n_classes: int, p: int, scale: float, seed: int
) -> None:
    draw = Stream.from_seed(seed).generator()
    matrices = draw.standard_normal((n_classes, p, p)) * scale
    matrices = matrices + matrices.swapaxes(-1, -2)
    rows = draw.standard_normal((50, p))
    shifted = common_shift(matrices)
    assert np.linalg.eigvalsh(shifted).min() > 0
    before, after = (np.einsum("ni,cij,nj->nc", rows, m, rows) for m in (matrices, shifted))
    assert np.array_equal(before.argmin(axis=1), after.argmin(axis=1))
    assert common_shift(shifted) == pytest.approx(shifted, abs=1e-9 * scale)


def test_projecting_class_by_class_changes_decisions() -> None:
    # The twin that the shift replaces: each matrix on its own to the nearest semidefinite one.
    model = learner().fit(X, Y)
    rows = model.embedding_.rows(X)
    matrices = model.matrices_[:, 0]
    centered = matrices - matrices.mean(axis=0)
    projected = to_matrices(psd_part(to_coordinates(centered), 3), 3)
    ours, shifted, twin = (
        np.einsum("ni,cij,nj->nc", rows, m, rows).argmin(axis=1)
        for m in (centered, common_shift(centered), projected)
    )
    assert np.array_equal(ours, shifted)
    assert np.mean(ours != twin) > 0.05


def test_matrices_that_are_all_zero_become_the_identity() -> None:
    assert np.array_equal(common_shift(np.zeros((2, 3, 3))), np.tile(np.eye(3), (2, 1, 1)))


def test_the_trace_matters_under_the_constraint_and_only_there() -> None:
    plain, traced = (learner(privacy=MADE_UP, trace_weight=w).fit(X, Y) for w in (0.0, 200.0))
    assert np.array_equal(plain.matrices_, traced.matrices_)
    plain, traced = (
        learner(privacy=MADE_UP, psd="constrained", trace_weight=w).fit(X, Y) for w in (0.0, 200.0)
    )
    traces = [np.trace(m.matrices_, axis1=-2, axis2=-1).sum() for m in (plain, traced)]
    assert traces[1] < 0.9 * traces[0]


def test_several_components_follow_public_centroids() -> None:
    far = np.where(np.abs(X[:, 0]) > 0.7, "out", "in")
    points = [[-0.8, 0.0], [0.8, 0.0]]
    model = learner(
        privacy=ApproxDP(epsilon=4.0, delta=1e-6), classes=["in", "out"], components=2, centroids=points
    )
    model.fit(X, far)
    assert model.score(X, far) > 0.8
    assert model.centroids_.shape == (2, 2, 2)
    assert model.offsets_.shape == (2, 2)
    assert model.starting_centroids_ == pytest.approx(np.array([points, points]))
    assert len(model.receipts_) == 1
    per_class = learner(
        privacy=MADE_UP, classes=["in", "out"], components=2, centroids=[[[0.0, -0.5], [0.0, 0.5]], points]
    ).fit(X, far)
    assert per_class.score(X, far) > 0.9


def test_starting_centroids_are_paid_for_from_the_same_promise() -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=4.0, delta=2e-5))
    model = learner(components=2, ledger=ledger, random_state=None).fit(X, Y)
    assert len(model.receipts_) > 1
    assert model.receipts_[-1] == model.receipt_
    (promise,) = model.promises_
    assert isinstance(promise, ApproxDP)
    assert promise.epsilon == pytest.approx(1.0)
    assert promise.epsilon >= 1.0
    assert 0 < promise.delta <= 1e-6
    assert model.starting_centroids_ is not None
    assert model.starting_centroids_.shape == (3, 2, 2)
    learner(components=2, ledger=ledger).fit(X, Y)
    with pytest.raises(BudgetExceeded):
        learner(components=2, ledger=ledger).fit(X, Y)
    pure = learner(components=2, privacy=PureDP(epsilon=1.0)).fit(X, Y)
    assert pure.promises_[0].epsilon_at(1e-9) <= 1.0 + 1e-9
    exact = learner(components=2, privacy=MADE_UP, bounds=None, norm_bound=1.5).fit(X, Y)
    assert exact.promises_ == (MADE_UP,)


def test_one_component_of_a_mixture_formula_is_the_plain_classifier() -> None:
    plain = learner(privacy=MADE_UP).fit(X, Y)
    given = learner(privacy=MADE_UP, centroids=[[0.3, 0.3]]).fit(X, Y)
    assert np.array_equal(plain.matrices_, given.matrices_)


@pytest.mark.parametrize("mechanism", ["objective", "output"])
@pytest.mark.parametrize("n_classes", [2, 26])
@pytest.mark.parametrize(
    "rows", [np.array([[0.3, -0.2]]), np.array([[0.4]]), np.zeros((5, 2)), np.ones((40, 3))]
)
def test_the_smallest_tables_and_many_classes_are_trained_on(
    rows: Floats, n_classes: int, mechanism: Any
) -> None:
    model = learner(classes=range(n_classes), mechanism=mechanism).fit(rows, np.zeros(len(rows), int))
    assert np.isfinite(model.centroids_).all()
    assert model.predict(rows).shape == (len(rows),)


def test_a_class_that_no_row_has_stays() -> None:
    model = learner(classes=[*CLASSES, "nobody"]).fit(X, Y)
    assert model.classes_.tolist() == ["in", "left", "nobody", "right"]
    assert model.decision_function(X).shape == (len(X), 4)


def test_rows_outside_the_bounds_are_clipped_in_silence_in_training_and_afterwards() -> None:
    far = X.copy()
    far[:5] *= 1e9
    model, other = learner().fit(far, Y), learner().fit(np.clip(far, -1, 1), Y)
    assert np.array_equal(model.matrices_, other.matrices_)
    assert np.array_equal(model.decision_function(far), model.decision_function(np.clip(far, -1, 1)))


def test_a_schema_supplies_the_bounds() -> None:
    schema = Schema(columns=[Column(name, lower=-1, upper=1) for name in "ab"])
    assert np.array_equal(learner(bounds=schema.bounds).fit(X, Y).matrices_, learner().fit(X, Y).matrices_)


def test_the_same_seed_gives_the_same_model_and_no_seed_gives_another() -> None:
    assert np.array_equal(learner().fit(X, Y).matrices_, learner().fit(X, Y).matrices_)
    one, two = (learner(random_state=None).fit(X, Y) for _ in range(2))
    assert not np.array_equal(one.matrices_, two.matrices_)
    assert learner().fit(X, Y).receipt_.seeded
    assert not one.receipt_.seeded


@pytest.mark.parametrize("rest", [{}, {"mechanism": "output"}, {"components": 2}], ids=str)
def test_the_charge_is_on_the_books_before_anything_is_drawn(
    rest: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=8.0, delta=1e-5))
    counts: list[int] = []
    fill = Stream.fill

    def watched(stream: Stream, out: AnyArray) -> None:
        counts.append(ledger.head[0])
        fill(stream, out)

    before = ledger.head[0]
    monkeypatch.setattr(Stream, "fill", watched)
    model = learner(ledger=ledger, random_state=None, **rest).fit(X, Y)
    assert min(counts) == before + 1
    assert counts == sorted(counts)
    assert counts[-1] == ledger.head[0]
    assert model.receipt_.ledger == ledger.identity


def test_a_ledger_that_is_spent_stops_the_training_and_folds_are_charged_one_by_one() -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=5.5, delta=1e-4), rule="pure")
    cross_val_score(learner(ledger=ledger), X[:300], Y[:300], cv=5, error_score="raise")
    with pytest.raises(BudgetExceeded):
        clone(learner(ledger=ledger)).fit(X, Y)
    with pytest.raises(PromiseError):
        learner(ledger=ledger, privacy=MADE_UP).fit(X, Y)


@pytest.mark.parametrize("mechanism", ["objective", "output"])
def test_a_tolerance_that_cannot_be_promised_is_refused_before_anything_is_charged(mechanism: Any) -> None:
    ledger = Ledger.open(":memory:")
    before = ledger.head
    model = learner(mechanism=mechanism, tolerance=1e-13, ledger=ledger)
    with pytest.raises(PromiseError, match="tolerance of LargeMarginGaussianClassifier must be at least"):
        model.fit(X, Y)
    assert not hasattr(model, "matrices_")
    assert ledger.head == before


def test_parameters_that_depend_on_nothing_but_public_facts_make_the_plan() -> None:
    constants = LargeMarginConstants(n_rows=455, n_classes=4, dimension=9)
    for mechanism in ("objective", "output"):
        for kind in (lambda e: PureDP(epsilon=e), lambda e: ApproxDP(epsilon=e, delta=1e-6)):
            weights = [default_regularization(constants, kind(e), mechanism) for e in (0.1, 1.0, 10.0)]
            assert weights[0] > weights[1] > weights[2] > 0
    other = Y.copy()
    other[:700] = "in"
    first, second = learner().fit(X, Y), learner().fit(np.zeros_like(X), other)
    for name in ("regularization_", "mechanism_", "promises_", "embedding_"):
        assert getattr(first, name) == getattr(second, name)


def test_a_regularization_that_would_cost_more_than_half_of_epsilon_is_raised_and_shown() -> None:
    model = learner(privacy=PureDP(epsilon=0.4), regularization=8.0).fit(X, Y)
    assert 8.0 < model.regularization_ < 20.0
    assert learner(regularization=60.0).fit(X, Y).regularization_ == 60.0


def test_an_epsilon_below_what_the_change_of_volume_needs_is_refused_with_both_ways_out() -> None:
    with pytest.raises(PromiseError, match="the change of volume alone would spend it") as caught:
        learner(privacy=PureDP(epsilon=0.1), regularization=2.0).fit(X, Y)
    words = str(caught.value)
    enough = float(words.split("must be at least ")[1].split(" ")[0])
    larger = float(words.split("regularization of at least ")[1].split(",")[0])
    assert learner(privacy=PureDP(epsilon=enough), regularization=2.0).fit(X, Y).regularization_ == 2.0
    kept = learner(privacy=PureDP(epsilon=0.1), regularization=larger).fit(X, Y)
    assert kept.regularization_ == larger
    assert learner(privacy=PureDP(epsilon=0.1), regularization=2.0, mechanism="output").fit(X, Y)


@pytest.mark.parametrize("epsilon", [1e-3, 1e-7])
@pytest.mark.parametrize("classes", [CLASSES, [*CLASSES, "x", "y"]])
def test_the_smallest_epsilon_still_has_a_default(epsilon: float, classes: list[str]) -> None:
    model = learner(privacy=PureDP(epsilon=epsilon), classes=classes).fit(X, Y)
    assert model.promises_[0].epsilon_at(1e-9) <= epsilon


def test_ellipses_in_the_plane() -> None:
    model = learner(privacy=MADE_UP).fit(X, Y)
    found = model.ellipses()
    assert [e.label for e in found] == CLASSES
    inside = found[0]
    assert math.hypot(*inside.center) < 0.05
    assert inside.radii[0] >= inside.radii[1] > 0
    along = math.radians(inside.angle)
    tip = np.array(inside.center) + inside.radii[0] * np.array([math.cos(along), math.sin(along)])
    at_tip, at_center = (distances(model, np.array([p]))[0, 0] for p in (tip, inside.center))
    assert at_tip - at_center == pytest.approx(1.0)
    assert len(learner(components=2, privacy=MADE_UP).fit(X, Y).ellipses(0.5)) == 6
    with pytest.raises(ParameterError, match="must have had 2 columns for ellipses, had 1"):
        learner().fit(X[:, :1], Y).ellipses()


def test_a_saved_model_keeps_its_centroids_and_forgets_its_ledger(tmp_path: Path) -> None:
    ledger = Ledger.open(":memory:", limit=ApproxDP(epsilon=5.0, delta=1e-4))
    model = learner(ledger=ledger, components=2, bounds=(np.full(2, -1.0), np.ones(2))).fit(X, Y)
    model.save(tmp_path / "model.npz")
    loaded = LargeMarginGaussianClassifier.load(tmp_path / "model.npz")
    assert loaded.ledger is None
    assert loaded.receipts_ == model.receipts_
    assert loaded.promises_ == model.promises_
    assert np.array_equal(loaded.decision_function(X), model.decision_function(X))
    assert loaded.starting_centroids_ is not None
    assert model.starting_centroids_ is not None
    assert np.array_equal(loaded.starting_centroids_, model.starting_centroids_)
    given = learner(components=2, centroids=np.array([[0.0, 0.5], [0.0, -0.5]])).fit(X, Y)
    given.save(tmp_path / "given.npz")
    assert LargeMarginGaussianClassifier.load(tmp_path / "given.npz").centroids == [[0.0, 0.5], [0.0, -0.5]]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bounds": None}, "bounds or norm_bound of LargeMarginGaussianClassifier must be given"),
        ({"bounds": None, "norm_bound": 0.0}, "norm_bound of LargeMarginGaussianClassifier must be"),
        ({"bounds": ([0, 1], [1, 1])}, "lower below upper in every column, .* were not in column 2"),
        ({"classes": None}, "classes of LargeMarginGaussianClassifier must list the labels"),
        ({"classes": ["in"]}, "at least two different labels"),
        ({"classes": ["in", "left"]}, "y of LargeMarginGaussianClassifier.fit must hold declared classes"),
        (
            {"intercept_scale": 1.0},
            "intercept_scale of LargeMarginGaussianClassifier must be a number above 0",
        ),
        ({"smoothing": 0.0}, "smoothing of LargeMarginGaussianClassifier must be a number from"),
        ({"regularization": 0.0}, "regularization of LargeMarginGaussianClassifier must be None or"),
        (
            {"regularization": 1e-300, "mechanism": "output"},
            "regularization of .* must be at least .*, was 1e-300",
        ),
        ({"tolerance": 0.0}, "tolerance of LargeMarginGaussianClassifier must be None or"),
        ({"privacy": PureDP(epsilon=1.0, neighbors="add-remove")}, "must be 'replace-one'"),
        ({"privacy": PureDP(epsilon=50.0)}, "epsilon of PureDP must be at most"),
        ({"privacy": ApproxDP(epsilon=90.0, delta=1e-6)}, "delta of privacy must be well above"),
        ({"components": 2, "centroids": [[0.0, 1.0]]}, r"finite numbers of shape \(2, 2\) or \(3, 2, 2\)"),
        (
            {"components": 2, "centroids": "near"},
            "centroids of LargeMarginGaussianClassifier must be None or",
        ),
        ({"components": 1, "centroids": [[0.0, math.nan]]}, "centroids of LargeMarginGaussianClassifier"),
    ],
)
def test_bad_parameters_are_refused_with_the_way_out(change: dict[str, Any], words: str) -> None:
    with pytest.raises((ParameterError, PromiseError, DataError), match=words) as caught:
        learner(**change).fit(X, Y)
    assert str(caught.value).count(". ") >= 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_cells_that_are_no_numbers_are_refused_by_place(value: float) -> None:
    broken = X.copy()
    broken[4, 1] = value
    with pytest.raises(DataError, match="row 5, column 2"):
        learner().fit(broken, Y)
    with pytest.raises(DataError, match="row 5, column 2"):
        learner().fit(X, Y).predict(broken)


def test_an_epsilon_below_what_its_own_noise_costs_is_refused() -> None:
    for mechanism, classes in (
        ("objective", CLASSES),
        ("output", CLASSES),
        ("objective", [*CLASSES, "x", "y"]),
    ):
        with pytest.raises(PromiseError, match="epsilon of privacy must be larger for"):
            learner(privacy=PureDP(epsilon=1e-12), mechanism=mechanism, classes=classes).fit(X, Y)


def test_the_plan_of_a_mixture_and_of_a_constraint_is_made_too() -> None:
    constants = LargeMarginConstants(n_rows=1000, n_classes=3, dimension=4, components=2, constrained=True)
    plan = make_large_margin_plan(constants, ASKED)
    assert isinstance(plan.constants, LargeMarginConstants)
    assert plan.constants.constrained
    assert constants.size == 50
    assert plan.promises[0].epsilon_at(1e-6) <= 1.0
