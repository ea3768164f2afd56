"""The private support vector machine as people use it: what it learns, promises and refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from discreet.errors import BudgetExceeded, ParameterError, PromiseError
from discreet.learn import METHODS, PrivateSVM, RegularizedSVM
from discreet.learn.perturbation.mean_loss_constants import default_regularization, relative_noise
from discreet.learn.svm.problem import SvmConstants
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import AnyArray, Floats


def table(n: int = 3000) -> tuple[Floats, AnyArray]:
    i = np.arange(float(n))
    X = np.column_stack([np.sin(i), np.cos(3 * i), np.sin(7 * i)])
    score = X[:, 0] + 0.5 * X[:, 1] + 0.3 * np.sin(11 * i) + 0.2
    return X, np.where(score > 0, "yes", "no")


def learner(**rest: Any) -> PrivateSVM:
    given = {
        "privacy": PureDP(epsilon=1.0),
        "bounds": (-1.0, 1.0),
        "classes": ["no", "yes"],
        "random_state": 1,
    }
    return PrivateSVM(**{**given, **rest})


X, Y = table()
THREE = np.digitize(X[:, 0], [-0.5, 0.5])


def test_the_private_machine_has_the_short_name_and_the_exact_one_the_long() -> None:
    assert METHODS["svm"] is PrivateSVM
    assert METHODS["svm-exact"] is RegularizedSVM


@pytest.mark.parametrize("privacy", [PureDP(epsilon=1.0), ApproxDP(epsilon=1.0, delta=1e-6)])
@pytest.mark.parametrize("mechanism", ["auto", "output", "objective"])
def test_it_learns_two_classes_and_three_under_a_promise(privacy: Any, mechanism: Any) -> None:
    model = learner(privacy=privacy, mechanism=mechanism).fit(X, Y)
    assert model.score(X, Y) > 0.8
    (promise,) = model.promises_
    assert promise.epsilon_at(1e-6) <= 1
    assert model.receipt_.promises == model.promises_
    three = learner(privacy=privacy, mechanism=mechanism, classes=[0, 1, 2]).fit(X, THREE)
    assert three.weights_.shape == (3, 4)
    assert three.decision_function(X).shape == (len(X), 3)
    assert three.score(X, THREE) > 0.6
    assert len(three.promises_) == 1


def test_several_classes_are_one_charge() -> None:
    with Ledger.open(":memory:", limit=ApproxDP(epsilon=1.0, delta=1e-5)) as ledger:
        asked = ApproxDP(epsilon=1.0, delta=1e-6)
        learner(privacy=asked, classes=[0, 1, 2], ledger=ledger).fit(X, THREE)
        with pytest.raises(BudgetExceeded):
            learner(privacy=asked, classes=[0, 1, 2], ledger=ledger).fit(X, THREE)


def test_gaussian_output_promises_its_whole_curve_and_gaussian_objective_one_point() -> None:
    asked = ApproxDP(epsilon=1.0, delta=1e-6)
    (curve,) = learner(privacy=asked, mechanism="output").fit(X, Y).promises_
    assert isinstance(curve, GaussianDP)
    assert 0.99e-6 < curve.delta_at(1.0) <= 1e-6
    (point,) = learner(privacy=asked, mechanism="objective").fit(X, Y).promises_
    assert isinstance(point, ApproxDP)
    assert 0.99e-6 < point.delta_at(1.0) <= 1e-6


def test_without_a_promise_it_is_nearly_the_usual_machine() -> None:
    lam = 1e-3
    model = learner(privacy=NoPromise("made up"), regularization=lam, smoothing=0.001).fit(X, Y)
    rows = model.embedding_.rows(X)
    usual = LinearSVC(loss="hinge", C=1 / (lam * len(X)), fit_intercept=False, tol=1e-8, max_iter=100_000)
    usual.fit(rows, Y)
    assert model.mechanism_ == "exact"
    assert model.weights_ == pytest.approx(usual.coef_, abs=0.02)
    assert np.mean(model.predict(X) == usual.predict(rows)) > 0.999


def test_it_has_scores_and_no_probabilities() -> None:
    model = learner().fit(X, Y)
    assert not hasattr(model, "predict_proba")
    assert np.array_equal(model.predict(X), model.classes_[(model.decision_function(X) > 0).astype(int)])
    scores = X @ model.coef_[0] + model.intercept_
    assert model.decision_function(X) == pytest.approx(scores, abs=1e-8)
    three = learner(classes=[0, 1, 2]).fit(X, THREE)
    assert np.array_equal(three.predict(X), three.decision_function(X).argmax(axis=1))


def test_a_class_that_no_row_has_stays() -> None:
    model = learner(classes=["maybe", "no", "yes"]).fit(X, Y)
    assert model.classes_.tolist() == ["maybe", "no", "yes"]


@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("rows", [np.array([[0.3, -0.2]]), np.array([[0.4]]), np.ones((40, 3))])
def test_the_smallest_tables_are_trained_on(rows: Floats, n_classes: int, mechanism: Any) -> None:
    model = learner(classes=range(n_classes), mechanism=mechanism).fit(rows, np.zeros(len(rows), int))
    assert np.isfinite(model.coef_).all()


@pytest.mark.parametrize("smoothing", [0, 1.5, "wide", None])
def test_a_smoothing_outside_its_range_is_refused(smoothing: Any) -> None:
    with pytest.raises(ParameterError, match=r"smoothing of PrivateSVM must be a number from 0\.001 to 1"):
        learner(smoothing=smoothing).fit(X, Y)


def test_a_tolerance_out_of_reach_is_refused_before_a_row_is_looked_at() -> None:
    bad = X.copy()
    bad[0, 0] = np.nan
    with pytest.raises(PromiseError, match="tolerance of PrivateSVM must be at least"):
        learner(tolerance=1e-15).fit(bad, Y)
    with pytest.raises(PromiseError, match="neighbors of the privacy of PrivateSVM must be 'replace-one'"):
        learner(privacy=PureDP(epsilon=1.0, neighbors="add-remove")).fit(X, Y)


def test_too_little_regularization_for_the_epsilon_is_raised() -> None:
    model = learner(privacy=PureDP(epsilon=0.1), mechanism="objective", regularization=1e-7).fit(X, Y)
    assert model.regularization_ == pytest.approx(1 / (len(X) * np.expm1(0.05)), rel=1e-2)


def test_several_classes_have_the_larger_default_where_noise_is_large() -> None:
    def penalty_over_noise(n_rows: int, n_classes: int) -> float:
        constants = SvmConstants(n_rows=n_rows, dimension=4, n_classes=n_classes)
        promise = ApproxDP(epsilon=1.0, delta=1e-6)
        noise = relative_noise(constants, promise, constants.gradient_change)
        return default_regularization(constants, promise, "objective") / noise

    assert penalty_over_noise(1, 2) == pytest.approx(1 / 3, rel=0.02)
    assert penalty_over_noise(1, 3) == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("rest", [{}, {"classes": [0, 1, 2], "smoothing": 0.1, "mechanism": "output"}])
def test_a_saved_model_judges_and_promises_as_before(rest: Any, tmp_path: Path) -> None:
    model = learner(**rest).fit(X, THREE if rest else Y)
    model.save(tmp_path / "svm.npz")
    again = PrivateSVM.load(tmp_path / "svm.npz")
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.promises_ == model.promises_ == again.recompute_promises(len(X))
    assert again.smoothing == model.smoothing


def test_defaults_compare_noise_by_class() -> None:
    # Each class has the noise of its share of the stacked vector, and a gradient of its own.
    two, ten = (SvmConstants(n_rows=1000, n_classes=k, dimension=5) for k in (2, 10))
    privacy = ApproxDP(epsilon=1.0, delta=1e-6)
    ratio = ten.noise_scale(privacy, "objective") / two.noise_scale(privacy, "objective")
    assert ratio == pytest.approx(np.sqrt(10), rel=1e-3)


class LabelsDeclared(PrivateSVM):
    """The learner of somebody who knows the labels of scikit-learn's made-up tables."""

    def fit(self, X: Any, y: Any) -> Self:
        given, labels = self.classes, np.asarray(y)
        if labels.ndim <= 2 and labels.size and labels.dtype.kind != "c" and np.all(labels == labels):
            found = np.unique(labels)
            self.classes = found if len(found) > 1 else [0, 1] if found[0] in (0, 1) else None
        try:
            return super().fit(X, y)
        finally:
            self.classes = given


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        LabelsDeclared(
            privacy=ApproxDP(epsilon=60.0, delta=0.1), norm_bound=5.0, random_state=1, mechanism="objective"
        )
    ]
)
def test_scikit_learn_accepts_the_noisy_learner_as_one_of_its_own(estimator: Any, check: Any) -> None:
    check(estimator)
