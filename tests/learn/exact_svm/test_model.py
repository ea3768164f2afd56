from __future__ import annotations

import dataclasses
import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, PolynomialFeatures

from discreet.errors import DataError, DiscreetWarning, ParameterError
from discreet.learn import Certificate, RegularizedSVM
from discreet.learn.exact_svm import _model, _solver
from tests.learn.exact_svm.problems import mixed, tumors, twenty

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import Floats

CORNERS = np.array([[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])
UNEQUAL = np.array([-1, 1, 1, -1])


def test_what_is_fitted_is_what_the_paper_calls_a_b_omega_and_xi() -> None:
    X, y = tumors("raw")
    model = RegularizedSVM(theta=1.0, rho=0.01).fit(X, y)
    omega = model.dual_coef_ * y
    assert model.coef_ == pytest.approx(X.T @ model.dual_coef_, abs=1e-10)
    assert model.intercept_ == pytest.approx(model.dual_coef_.sum() / 0.01, abs=1e-9)
    assert omega.min() == 0
    assert np.array_equal(model.support_, np.flatnonzero(omega > 0))
    assert len(model.support_) == 60
    assert np.count_nonzero(model.slack_) == 48
    margins = y * (X @ model.coef_ + model.intercept_)
    assert (margins + model.slack_).min() > 1 - 1e-11
    cost = model.coef_ @ model.coef_ / 2 + 0.005 * (model.intercept_**2 + model.slack_ @ model.slack_)
    assert model.objective_ == pytest.approx(cost + model.slack_.sum(), rel=1e-13)
    assert model.score(X, y) == 547 / 569


def test_the_slack_follows_from_the_multipliers_with_theta_and_not_with_one() -> None:
    X, y = mixed(1, 60, 2)
    model = RegularizedSVM(theta=3.0, rho=0.5).fit(X, y)
    omega = model.dual_coef_ * y
    multiplier = np.maximum(0, 3.0 + 0.5 * model.slack_ - omega)
    corrected = np.maximum((omega + multiplier - 3.0) / 0.5, 0)
    printed = np.maximum((omega + multiplier - 1.0) / 0.5, 0)
    assert corrected == pytest.approx(model.slack_, abs=1e-13)
    assert np.abs(printed - model.slack_).max() == pytest.approx(4.0, abs=1e-12)


def test_the_certificate_survives_json_and_cannot_be_changed() -> None:
    model = RegularizedSVM().fit(*tumors("std"))
    certificate = model.certificate_
    assert certificate.converged
    assert (certificate.gap, certificate.residual) == (model.gap_, model.residual_)
    assert certificate.coef_error == math.sqrt(2 * model.gap_)
    assert certificate.intercept_error == math.sqrt(2 * model.gap_ / 0.01)
    assert Certificate.from_dict(json.loads(json.dumps(certificate.to_dict()))) == certificate
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.gap = 0.0  # type: ignore[misc]
    for wrong in ({**certificate.to_dict(), "kind": "other"}, {**certificate.to_dict(), "more": 1}, {}):
        with pytest.raises(ParameterError, match="svm-certificate"):
            Certificate.from_dict(wrong)


def test_a_solution_that_is_off_is_not_called_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    solve = _solver.solve
    monkeypatch.setattr(
        _model, "solve", lambda problem: dataclasses.replace(solve(problem), z=solve(problem).z * 1.01)
    )
    with pytest.warns(ConvergenceWarning, match="gap"):
        model = RegularizedSVM().fit(*twenty())
    assert not model.certificate_.converged
    exact = _solver.solve(_solver.SvmProblem(*twenty(), 1.0, 0.01)).z
    assert np.linalg.norm(model.coef_ - exact[:-1]) <= model.certificate_.coef_error


@pytest.mark.parametrize("labels", [(0, 1), (False, True), ("no", "yes"), (-1.0, 1.0), (3, 7)])
def test_any_two_labels_will_do_and_the_greater_one_is_positive(labels: tuple[Any, Any]) -> None:
    X, y = twenty()
    named = np.array(labels)[(y > 0).astype(int)]
    plain, model = RegularizedSVM().fit(X, y), RegularizedSVM().fit(X, named)
    assert model.coef_ == pytest.approx(plain.coef_, abs=0)
    assert model.classes_.tolist() == list(labels)
    assert set(model.predict(X).tolist()) == set(labels)
    assert model.score(X, named) == plain.score(X, y) == 1.0


@pytest.mark.parametrize("labels", [(0, 1), (False, True), ("no", "yes")])
def test_a_named_positive_label_turns_the_classifier_round(labels: tuple[Any, Any]) -> None:
    X, y = twenty()
    named = np.array(labels)[(y > 0).astype(int)]
    plain = RegularizedSVM(positive=labels[1]).fit(X, named)
    turned = RegularizedSVM(positive=labels[0]).fit(X, named)
    assert turned.coef_ == pytest.approx(-plain.coef_, abs=1e-14)
    assert turned.classes_.tolist() == [labels[1], labels[0]]
    assert np.array_equal(turned.predict(X), plain.predict(X))
    assert turned.score(X, named) == 1.0
    with pytest.raises(ParameterError, match="positive of RegularizedSVM must be one of the two labels"):
        RegularizedSVM(positive="maybe").fit(X, named)


def test_one_class_and_three_classes_are_refused() -> None:
    X, _ = twenty()
    with pytest.raises(DataError, match="must hold two classes, held one class"):
        RegularizedSVM().fit(X, np.ones(20))
    with pytest.raises(DataError, match="held 3 classes"):
        RegularizedSVM().fit(X, np.arange(20) % 3)


def test_a_bad_cell_is_named_by_its_place_and_never_by_what_it_holds() -> None:
    X, y = twenty()
    X[4, 1] = np.inf
    with pytest.raises(DataError, match="row 5, column 2 is NaN or infinite") as caught:
        RegularizedSVM().fit(X, y)
    assert (caught.value.line, caught.value.column) == (5, "2")
    frame = pd.DataFrame(X, columns=["age", "income"])
    with pytest.raises(DataError, match="row 5, column income"):
        RegularizedSVM().fit(frame, y)
    y[7] = np.nan
    with pytest.raises(DataError, match=r"y of RegularizedSVM.fit must be finite, row 8"):
        RegularizedSVM().fit(twenty()[0], y)
    model = RegularizedSVM().fit(*twenty())
    with pytest.raises(DataError, match=r"X of RegularizedSVM.decision_function must be finite, row 5"):
        model.predict(X)


def test_cells_whose_squares_overflow_are_refused_and_large_ones_are_not() -> None:
    X, y = twenty()
    with pytest.raises(DataError, match="squares overflow"):
        RegularizedSVM().fit(1e80 * X, y)
    assert RegularizedSVM().fit(1e6 * X, y).score(1e6 * X, y) == 1.0
    huge = np.full((2, 1), 1.7e308)
    with pytest.raises(DataError, match="squares overflow"):
        RegularizedSVM().fit(huge, [0, 1])


def test_sparse_rows_are_refused_with_the_way_out() -> None:
    X, y = twenty()
    with pytest.raises(TypeError, match="dense data is required"):
        RegularizedSVM().fit(sparse.csr_array(X), y)


def test_a_wild_ratio_of_the_weights_is_warned_about() -> None:
    X, y = twenty()
    with pytest.warns(DiscreetWarning, match="theta / rho of RegularizedSVM is 1e\\+12, above 1e\\+10"):
        model = RegularizedSVM(theta=1e4, rho=1e-8).fit(X, y)
    assert model.gap_ <= 1e-6 * model.objective_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RegularizedSVM(theta=1.0, rho=1e-10).fit(X, y)


def test_there_are_no_probabilities_and_no_weights() -> None:
    assert not hasattr(RegularizedSVM(), "predict_proba")
    with pytest.raises(TypeError, match="sample_weight"):
        RegularizedSVM().fit(*twenty(), sample_weight=np.ones(20))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.array([[0.0, 1.0], [0.0, -1.0]]), [1, -1]),
        (np.array([[2.0], [2.0]]), [1, -1]),
        (np.zeros((6, 2)), [1, 1, -1, -1, -1, -1]),
        (np.eye(3, 9), [1, -1, 1]),
        (np.repeat(CORNERS, 3, axis=0), np.repeat(UNEQUAL, 3)),
        (np.column_stack([CORNERS, np.full(4, 5.0)]), UNEQUAL),
    ],
    ids=["two rows", "one column, two equal rows", "zeros", "wide", "ties", "constant column"],
)  # fmt: skip
def test_small_and_empty_tables_have_a_certified_solution(X: Floats, y: Any) -> None:
    model = RegularizedSVM().fit(X, y)
    assert model.certificate_.converged
    assert model.gap_ <= 1e-12 * model.objective_


def test_a_decision_of_exactly_zero_goes_to_the_negative_class() -> None:
    model = RegularizedSVM().fit(np.array([[-1.0], [1.0]]), ["no", "yes"])
    model.intercept_ = 0.0
    assert model.decision_function([[0.0]])[0] == 0
    assert model.predict([[0.0]])[0] == "no"


def test_an_exclusive_or_is_learnt_through_a_fitted_map() -> None:
    assert RegularizedSVM().fit(CORNERS, UNEQUAL).score(CORNERS, UNEQUAL) < 1
    poly = PolynomialFeatures(2).fit(CORNERS)
    through_transformer = RegularizedSVM(feature_map=poly).fit(CORNERS, UNEQUAL)
    through_function = RegularizedSVM(feature_map=poly.transform).fit(CORNERS, UNEQUAL)
    by_hand = RegularizedSVM().fit(poly.transform(CORNERS), UNEQUAL)
    for model in (through_transformer, through_function):
        assert model.score(CORNERS, UNEQUAL) == 1
        assert model.coef_ == pytest.approx(by_hand.coef_, abs=0)
        assert model.n_features_in_ == 2
    stateless = FunctionTransformer(lambda X: X[:, :1] * X[:, 1:])
    assert RegularizedSVM(feature_map=stateless).fit(CORNERS, UNEQUAL).score(CORNERS, UNEQUAL) == 1


def test_a_map_is_never_fitted_here_and_a_frozen_one_survives_clone() -> None:
    X, y = mixed(2, 60, 2)
    kernel = Nystroem(n_components=8, random_state=0)
    with pytest.raises(ParameterError, match="must be fitted already"):
        RegularizedSVM(feature_map=kernel).fit(X, y)
    assert not hasattr(kernel, "components_")
    fitted = RegularizedSVM(feature_map=kernel.fit(X[:20]))
    with pytest.raises(ParameterError, match="FrozenEstimator"):
        clone(fitted).fit(X, y)
    frozen = RegularizedSVM(feature_map=FrozenEstimator(kernel))
    assert clone(frozen).fit(X, y).coef_ == pytest.approx(fitted.fit(X, y).coef_, abs=0)
    assert cross_val_score(frozen, X, y, cv=3, error_score="raise").min() > 0.5


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (3, "must be None, a callable or a fitted transformer, was int"),
        (lambda X: X[:-1], "one row for each row"),
        (lambda X: X[:, 0], "one row for each row"),
        (OneHotEncoder().fit(CORNERS), "must return a dense matrix"),
    ],
)
def test_a_map_that_is_none_is_refused(how: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        RegularizedSVM(feature_map=how).fit(CORNERS, UNEQUAL)


def test_a_map_that_returns_infinity_is_refused() -> None:
    with pytest.raises(DataError, match="What feature_map of RegularizedSVM returns must be finite"):
        RegularizedSVM(feature_map=lambda X: np.full_like(X, np.inf)).fit(CORNERS, UNEQUAL)


def test_the_nonlinear_loss_as_printed_is_zero_without_learning_and_ours_is_not() -> None:
    # Printed: max(1 - y_i [kappa' y_i] phi, 0). The label stands where a one belongs.
    X, y = mixed(3, 40, 2)
    w, b = np.zeros(2), 1.0
    printed = w @ w / 2 + np.maximum(1 - y * (X @ w + y * b), 0).sum()
    corrected = w @ w / 2 + np.maximum(1 - y * (X @ w + b), 0).sum()
    assert printed == 0
    model = RegularizedSVM(rho=1e-6).fit(X, y)
    ours = model.coef_ @ model.coef_ / 2 + np.maximum(1 - y * model.decision_function(X), 0).sum()
    assert ours < corrected / 2


def test_nothing_can_be_predicted_before_fitting() -> None:
    with pytest.raises(NotFittedError):
        RegularizedSVM().predict([[0.0]])
    with pytest.raises(NotFittedError):
        RegularizedSVM().save("nowhere.npz")


def test_a_model_with_a_map_cannot_be_saved_without_pickle(tmp_path: Path) -> None:
    model = RegularizedSVM(feature_map=abs).fit(CORNERS + 0.1, UNEQUAL)
    with pytest.raises(ParameterError, match="feature_map of RegularizedSVM must be plain numbers or text"):
        model.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


def test_the_training_problem_wants_the_training_rows() -> None:
    X, y = twenty()
    model = RegularizedSVM().fit(X, y)
    problem, omega = model.training_problem(X, y)
    assert problem.gap(np.append(model.coef_, model.intercept_), omega) == model.gap_
    with pytest.raises(DataError, match="must be the 20 rows of its training, had 19"):
        model.training_problem(X[1:], y[1:])
