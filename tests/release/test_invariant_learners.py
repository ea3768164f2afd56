"""Every learner ends where it ended before, and another penalty does not: the theorem, learner by learner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.decomposition import PCA
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.neural_network import MLPClassifier, MLPRegressor

from discreet.errors import ParameterError
from discreet.learn import RegularizedSVM
from discreet.noise import Stream, standard_normal
from discreet.release.invariant import (
    InvariantLearner,
    InvariantNoise,
    LogisticLearner,
    MultinomialLearner,
    NetworkLearner,
    RidgeLearner,
    SVMLearner,
)
from discreet.release.invariant._learners import _newton
from discreet.release.invariant._noise import draw_same_gram
from tests.release.invariant_tables import clarabel_svm, d20, numbers_table, random_table, wdbc

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats


def noised(learner: InvariantLearner, X: Floats, y: AnyArray, n_classes: int, variance: float) -> Floats:
    solution = learner.solve(X, y, n_classes)
    noise = InvariantNoise(solution.derivatives, solution.weights, variance)
    return X + noise.draw(Stream.from_seed(3))


def four_classes() -> tuple[Floats, AnyArray]:
    X, _ = random_table(300, 9)
    return X, np.argmax(X[:, :4] + standard_normal((300, 4), Stream.from_seed(5)), axis=1)


def change(learner: InvariantLearner, X: Floats, y: AnyArray, n_classes: int, variance: float) -> float:
    before = learner.solve(X, y, n_classes)
    after = learner.solve(noised(learner, X, y, n_classes, variance), y, n_classes)
    assert after.residual < 1e-12
    return max(
        float(np.abs(before.weights - after.weights).max()),
        float(np.abs(before.intercept - after.intercept).max()),
        float(np.abs(before.derivatives - after.derivatives).max()),
    )


@pytest.mark.parametrize("variance", [1.0, 1e2, 1e4])
@pytest.mark.parametrize(
    "learner",
    [
        SVMLearner(),
        SVMLearner(theta=0.1, rho=1.0),
        RidgeLearner(),
        RidgeLearner(alpha=1e-3),
        RidgeLearner(alpha=1e3),
        LogisticLearner(),
        LogisticLearner(alpha=30.0),
        MultinomialLearner(),
    ],
    ids=repr,
)
def test_training_on_the_noised_rows_ends_where_it_ended(learner: InvariantLearner, variance: float) -> None:
    if learner.wants == "number":
        X, y, k = *numbers_table(), 0
    elif learner.wants == "classes":
        X, y, k = *four_classes(), 4
    else:
        (X, signs), k = random_table(), 2
        y = (signs > 0).astype(int)
    assert change(learner, X, y, k, variance) < 1e-9


@pytest.mark.parametrize("columns", ["as they are", "scaled"])
def test_patients_keep_their_logistic_model_though_columns_differ_by_a_factor_of_a_million(
    columns: str,
) -> None:
    X, y = wdbc()
    if columns == "scaled":
        X = X / X.max(axis=0)
    assert change(LogisticLearner(), X, (y > 0).astype(int), 2, 1e4 if columns == "scaled" else 1.0) < 1e-7


def test_ridge_is_that_of_scikit_learn_and_invariant_for_it() -> None:
    X, y = numbers_table()
    for alpha in (1e-5, 1.0, 10.0):
        before = Ridge(alpha=alpha).fit(X, y)
        ours = RidgeLearner(alpha=alpha).solve(X, y, 0)
        assert np.abs(ours.weights[:, 0] - before.coef_).max() < 1e-10
        after = Ridge(alpha=alpha).fit(noised(RidgeLearner(alpha=alpha), X, y, 0, 1e4), y)
        assert np.abs(before.coef_ - after.coef_).max() < 1e-9
        assert abs(before.intercept_ - after.intercept_) < 1e-9


def test_ridge_with_another_penalty_moves() -> None:
    X, y = numbers_table()
    released = noised(RidgeLearner(alpha=1.0), X, y, 0, 1e2)
    moved = Ridge(alpha=300.0).fit(X, y).coef_ - Ridge(alpha=300.0).fit(released, y).coef_
    assert np.abs(moved).max() > 0.1


@pytest.mark.parametrize("classes", [2, 4])
def test_logistic_regression_is_that_of_scikit_learn_and_invariant_for_it(classes: int) -> None:
    X, y = four_classes()
    learner: InvariantLearner = LogisticLearner(alpha=2.0) if classes == 2 else MultinomialLearner(alpha=2.0)
    y = (y > 1).astype(int) if classes == 2 else y

    def fit(rows: Floats) -> Any:
        return LogisticRegression(C=0.5, tol=1e-12, max_iter=2000, solver="newton-cholesky").fit(rows, y)

    before, after = fit(X), fit(noised(learner, X, y, classes, 1e2))
    ours = learner.solve(X, y, classes)
    assert np.abs(ours.weights.T - before.coef_).max() < 1e-6
    assert np.abs(before.coef_ - after.coef_).max() < 1e-6
    assert np.abs(before.intercept_ - after.intercept_).max() < 1e-6
    other = LogisticRegression(C=50.0, tol=1e-12, max_iter=2000, solver="newton-cholesky")
    first, second = (other.fit(rows, y).coef_.copy() for rows in (X, noised(learner, X, y, classes, 1e2)))
    assert np.abs(first - second).max() > 1e-3


def test_support_vector_machine_by_a_solver_that_is_not_ours() -> None:
    X, y = d20()
    learner = SVMLearner(theta=0.1, rho=1.0)
    before = clarabel_svm(X, y, 0.1, 1.0)
    assert before[0] == pytest.approx([0.998070151936, 0.364528975448], abs=1e-9)
    after = clarabel_svm(noised(learner, X, (y > 0).astype(int), 2, 100.0), y, 0.1, 1.0)
    assert np.abs(before[0] - after[0]).max() < 1e-8
    assert learner.solve(X, (y > 0).astype(int), 2).derivatives.any(axis=1).sum() == 8


def test_derivatives_of_support_vectors_are_exactly_zero_elsewhere() -> None:
    X, y = wdbc()
    solution = SVMLearner().solve(X, (y > 0).astype(int), 2)
    assert np.count_nonzero(solution.derivatives) == 60
    assert solution.outward is not None
    assert np.array_equal(solution.outward != 0, solution.derivatives[:, 0] == 0)
    assert np.array_equal(np.sign(solution.outward[solution.outward != 0]), y[solution.outward != 0])


@pytest.mark.parametrize("alpha", [0, -1.0, np.nan, np.inf, "strong"])
@pytest.mark.parametrize("learner", [RidgeLearner, LogisticLearner, MultinomialLearner])
def test_a_penalty_that_is_none_is_refused(learner: Any, alpha: Any) -> None:
    with pytest.raises(ParameterError, match=f"alpha of {learner.__name__} must be a number above 0"):
        learner(alpha)


def test_newtons_method_does_not_overshoot_and_gives_up_in_the_end() -> None:
    def value(w: Floats) -> float:
        return float(np.logaddexp(w[0] - 3, 3 - w[0]))

    def step(w: Floats) -> tuple[Floats, float]:
        slope = np.tanh(w - 3)
        return slope / (1 - slope**2), float(np.abs(slope[0]))

    # A full step from zero would end at -98.
    assert _newton(np.zeros(1), value, step)[0] == pytest.approx(3, abs=1e-12)
    stuck = _newton(np.ones(1), value, lambda w: (np.zeros(1), 1.0))
    assert stuck[0] == 1.0


# --- networks --------------------------------------------------------------------------------------


def set_weights_off_kinks(model: Any, X: Floats) -> None:
    """Draw weights under which no row is near a kink of a rectifier, where differences say nothing.

    Training would do, but where it ends depends on how the processor multiplies matrices.
    """
    for seed in range(1000):
        stream = Stream.from_seed(seed)
        model.coefs_ = [standard_normal(w.shape, stream) / np.sqrt(len(w)) for w in model.coefs_]
        model.intercepts_ = [standard_normal(b.shape, stream) for b in model.intercepts_]
        values, nearest = X, np.inf
        for weights, shift in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True):
            before = values @ weights + shift
            nearest = min(nearest, float(np.abs(before).min()))
            values = np.maximum(before, 0)
        if nearest > 1e-3:
            return
    pytest.fail("no weights keep the rows off the kinks")


def gradient_and_outputs(
    model: Any, X: Floats, y: AnyArray, learner: NetworkLearner
) -> tuple[Floats, Floats]:
    """First-layer gradient by central differences on scikit-learn's own outputs, and the outputs."""
    first = model.coefs_[0]

    def loss() -> float:
        if learner.wants == "number":
            return float(((model.predict(X) - y) ** 2).sum() / 2)
        chance = model.predict_proba(X)
        return float(-np.log(chance[np.arange(len(y)), y]).sum())

    gradient = np.empty_like(first)
    for place in np.ndindex(*first.shape):
        kept, step = first[place], 1e-5
        first[place] = kept + step
        above = loss()
        first[place] = kept - step
        gradient[place] = (above - loss()) / (2 * step)
        first[place] = kept
    out = model.predict(X) if learner.wants == "number" else model.predict_proba(X)
    return gradient, out


@pytest.mark.parametrize("activation", ["tanh", "logistic", "relu", "identity"])
@pytest.mark.parametrize("output", ["number", "two classes", "classes"])
def test_a_network_keeps_its_outputs_and_its_gradient(activation: str, output: str) -> None:
    options = {
        "hidden_layer_sizes": (3, 4),
        "activation": activation,
        "solver": "sgd",
        "max_iter": 1,
        "random_state": 0,
    }
    if output == "number":
        X, y = numbers_table()
        y = y / 20
        model = MLPRegressor(**options).partial_fit(X, y)
    else:
        X, y = four_classes()
        y = y if output == "classes" else (y > 1).astype(int)
        model = MLPClassifier(**options).partial_fit(X, y, classes=np.unique(y))
    set_weights_off_kinks(model, X)
    learner = NetworkLearner.from_sklearn(model)
    assert learner.wants == output
    assert not learner.unique
    solution = learner.solve(X, y, 0 if output == "number" else int(y.max()) + 1)
    gradient, out = gradient_and_outputs(model, X, y, learner)
    assert np.abs(X.T @ solution.derivatives - gradient).max() < 1e-4 * max(1.0, np.abs(gradient).max())
    released = noised(learner, X, y, int(np.max(y)) + 1, 100.0)
    after = learner.solve(released, y, int(np.max(y)) + 1)
    assert np.abs(after.derivatives - solution.derivatives).max() < 1e-9
    assert np.abs(released.T @ after.derivatives - X.T @ solution.derivatives).max() < 1e-8
    assert np.abs(gradient_and_outputs(model, released, y, learner)[1] - out).max() < 1e-9


def test_a_network_for_other_columns_is_refused() -> None:
    learner = NetworkLearner([np.ones((5, 2)), np.ones((2, 1))], [np.zeros(2), np.zeros(1)])
    with pytest.raises(ParameterError, match="one row for each of the 12 columns, had 5"):
        learner.solve(*numbers_table(), 0)
    with pytest.raises(ParameterError, match="activation of NetworkLearner must be one of"):
        NetworkLearner([], [], activation="softplus")


def test_a_network_with_several_numbers_is_refused() -> None:
    X, y = numbers_table()
    model = MLPRegressor(hidden_layer_sizes=(2,), solver="lbfgs", max_iter=2000, random_state=0)
    model.fit(X, np.column_stack([y, y]) / 20)
    with pytest.raises(ParameterError, match="2 outputs"):
        NetworkLearner.from_sklearn(model)


# --- the same sums, squares and products -----------------------------------------------------------


def test_other_rows_have_the_same_products_and_so_the_same_models() -> None:
    X, y = numbers_table()
    fixed = np.column_stack([np.ones(len(X)), y])
    Z = draw_same_gram(X, fixed, Stream.from_seed(1))
    first, second = (np.column_stack([fixed, rows]) for rows in (X, Z))
    assert np.abs(first.T @ first - second.T @ second).max() < 1e-14 * np.abs(first.T @ first).max()
    for alpha in (1e-5, 1.0, 1e4):
        assert np.abs(Ridge(alpha=alpha).fit(X, y).coef_ - Ridge(alpha=alpha).fit(Z, y).coef_).max() < 1e-11
    assert np.abs(LinearRegression().fit(X, y).coef_ - LinearRegression().fit(Z, y).coef_).max() < 1e-11
    assert np.abs(PCA().fit(X).explained_variance_ - PCA().fit(Z).explained_variance_).max() < 1e-12
    assert np.abs(np.corrcoef(X[:, 0], Z[:, 0])[0, 1]) < 0.99
    # The same rows under another key, and not a model that needs more than products.
    assert np.abs(Z - draw_same_gram(X, fixed, Stream.from_seed(2))).max() > 0.1
    signs = np.where(y > y.mean(), 1, -1)
    moved = RegularizedSVM().fit(X, signs).coef_ - RegularizedSVM().fit(Z, signs).coef_
    assert np.abs(moved).max() > 1e-2


def test_rows_with_constant_and_repeated_columns_have_the_same_products_too() -> None:
    X, y = numbers_table()
    X = np.column_stack([X, X[:, 0], np.full(len(X), 3.0)])
    fixed = np.column_stack([np.ones(len(X)), y])
    Z = draw_same_gram(X, fixed, Stream.from_seed(1))
    assert np.abs(X.T @ X - Z.T @ Z).max() < 1e-13 * np.abs(X.T @ X).max()
    assert Z[:, -1] == pytest.approx(3.0)


# --- tables with ties, repeats and empty columns ---------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    cells=arrays(np.int64, st.tuples(st.integers(4, 14), st.integers(2, 5)), elements=st.integers(-3, 3)),
    flips=st.integers(1, 2**14 - 1),
    learner=st.sampled_from([SVMLearner(), SVMLearner(0.1, 1.0), LogisticLearner(), RidgeLearner()]),
)
def test_small_tables_full_of_ties_keep_their_models(
    cells: AnyArray, flips: int, learner: InvariantLearner
) -> None:
    X = cells.astype(float)
    y = np.array([flips >> i & 1 for i in range(len(X))])
    assume(len(set(y)) == 2)
    before = learner.solve(X, y, 2)
    noise = InvariantNoise(before.derivatives, before.weights, 100.0)
    assume(noise.leverage.max() < 1 - 1e-9)
    after = learner.solve(X + noise.draw(Stream.from_seed(1)), y, 2)
    assert np.abs(before.weights - after.weights).max() < 1e-6
    assert np.abs(before.intercept - after.intercept).max() < 1e-6
