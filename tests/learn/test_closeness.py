from __future__ import annotations

import dataclasses
import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor

from discreet.errors import DataError, ParameterError
from discreet.learn import Closeness, RegularizedSVM, local_constant, measure_closeness
from discreet.learn import _closeness as room
from discreet.learn._smooth_problem import SmoothDerivative, smooth_problem
from discreet.noise import Stream
from tests.learn.exact_svm.problems import mixed, twenty

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats


def noisy(X: Floats, y: Floats, scale: float) -> Callable[[Stream], tuple[Floats, Floats]]:
    return lambda stream: (X + scale * stream.generator().standard_normal(X.shape), y)


def position(model: RegularizedSVM) -> Floats:
    return np.concatenate([model.coef_, [model.intercept_], model.slack_])


def two_clouds() -> tuple[Floats, Floats]:
    """Return data like those of the paper's figure 3: fifty rows around 0 and fifty around (0, 5)."""
    X = Stream.from_seed(11).generator().standard_normal((100, 2))
    X[50:, 1] += 5
    return X, np.where(np.arange(100) < 50, 1.0, -1.0)


def test_the_share_is_that_of_tables_within_the_radius() -> None:
    X, y = mixed(3, 30, 2)
    model = RegularizedSVM().fit(X, y)
    streams = Stream.from_seed(5)
    distances = []
    for _ in range(40):
        retrained = RegularizedSVM().fit(*noisy(X, y, 0.05)(streams.spawn()))
        distances.append(float(np.linalg.norm(position(retrained) - position(model))))
    radius = float(np.median(distances))
    found = measure_closeness(model, noisy(X, y, 0.05), radius=radius, draws=40, stream=Stream.from_seed(5))
    assert found.hits == sum(d <= radius for d in distances)
    assert 0.4 < found.estimate < 0.6
    without = measure_closeness(
        model, noisy(X, y, 0.05), radius=radius, draws=40, slack=False, stream=Stream.from_seed(5)
    )
    assert without.hits > found.hits


def test_the_model_itself_is_left_alone_and_draws_are_fresh_without_a_seed() -> None:
    X, y = twenty()
    model = RegularizedSVM().fit(X, y)
    before = position(model)
    seen: list[Floats] = []

    def release(stream: Stream) -> tuple[Floats, Floats]:
        seen.append(stream.generator().standard_normal(3))
        assert not stream.seeded
        return X, y

    found = measure_closeness(model, release, radius=0.0, draws=3)
    assert (found.hits, found.estimate) == (3, 1.0)
    assert not np.array_equal(seen[0], seen[1])
    assert np.array_equal(position(model), before)


@pytest.mark.parametrize(("hits", "draws"), [(0, 10), (3, 10), (10, 10), (195, 200)])
def test_the_interval_is_exact(hits: int, draws: int) -> None:
    found = Closeness(radius=1.0, hits=hits, draws=draws, confidence=0.9)
    expected = stats.binomtest(hits, draws).proportion_ci(0.9, method="exact")
    assert found.interval == pytest.approx((expected.low, expected.high), rel=2e-9)
    low, high = found.interval
    assert low <= expected.low
    assert high >= min(expected.high, 1.0)
    assert stats.binom.sf(hits - 1, draws, low) == pytest.approx(0.05 if hits else 1, abs=1e-6)
    assert stats.binom.cdf(hits, draws, high) == pytest.approx(0.05 if hits < draws else 1, abs=1e-6)


def test_the_result_survives_json_and_says_what_it_is() -> None:
    found = Closeness(radius=0.5, hits=19, draws=20, confidence=0.95)
    assert Closeness.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert str(found) == (
        "0.950 of 20 released tables trained to within 0.5 (0.751 to 0.999 with confidence 0.95)"
    )
    with pytest.raises(ParameterError, match="closeness"):
        Closeness.from_dict({**found.to_dict(), "kind": "other"})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"radius": -1.0}, "radius of measure_closeness"),
        ({"radius": math.nan}, "radius of measure_closeness"),
        ({"draws": 0}, "draws of measure_closeness"),
        ({"draws": 2.5}, "draws of measure_closeness"),
        ({"confidence": 1.0}, "confidence of measure_closeness"),
    ],
)
def test_numbers_outside_their_domain_are_refused(change: dict[str, Any], words: str) -> None:
    X, y = twenty()
    with pytest.raises(ParameterError, match=words):
        measure_closeness(RegularizedSVM().fit(X, y), noisy(X, y, 1.0), **{"radius": 1.0, **change})


def test_a_release_that_loses_rows_is_refused() -> None:
    X, y = twenty()
    with pytest.raises(DataError, match="as many rows and columns"):
        measure_closeness(RegularizedSVM().fit(X, y), lambda _: (X[1:], y[1:]), radius=1.0)


@pytest.mark.parametrize(
    ("seed", "q", "p", "theta"),
    [
        (2, 12, 2, 10.0),
        *(pytest.param(*c, marks=pytest.mark.slow) for c in ((0, 25, 3, 1.0), (1, 40, 2, 0.1))),
    ],
)
@pytest.mark.parametrize("dense", [True, False])
def test_the_local_constant_is_the_norm_of_measured_derivatives(
    seed: int, q: int, p: int, theta: float, dense: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = mixed(seed, q, p)
    model = RegularizedSVM(theta=theta).fit(X, y)
    columns, h = [], 1e-6
    for cell in np.ndindex(q, p):
        shifted = []
        for sign in (1, -1):
            moved = X.copy()
            moved[cell] += sign * h
            shifted.append(position(RegularizedSVM(theta=theta).fit(moved, y)))
        columns.append((shifted[0] - shifted[1]) / (2 * h))
    if not dense:
        monkeypatch.setattr(room, "_DENSE", 0)
    measured = np.linalg.norm(np.column_stack(columns), 2)
    assert local_constant(model, X, y) == pytest.approx(measured, rel=1e-6)


def test_the_local_constant_bounds_what_tiny_noise_does() -> None:
    X, y = two_clouds()
    model = RegularizedSVM().fit(X, y)
    constant = local_constant(model, X, y)
    for seed in range(5):
        noise = 1e-7 * Stream.from_seed(seed).generator().standard_normal(X.shape)
        moved = position(RegularizedSVM().fit(X + noise, y))
        assert np.linalg.norm(moved - position(model)) <= constant * np.linalg.norm(noise) * (1 + 1e-4)


def test_the_bound_of_proposition_2_3_says_nothing_where_retraining_says_much() -> None:
    X, y = two_clouds()
    model = RegularizedSVM().fit(X, y)
    variance = 1e4**-0.5
    bound = 1 - len(X) * local_constant(model, X, y) ** 2 * 2 * variance
    assert bound < -10
    found = measure_closeness(
        model, noisy(X, y, math.sqrt(variance)), radius=1.0, draws=100, stream=Stream.from_seed(3)
    )
    assert found.interval[0] > 0.9


def test_where_the_solution_has_no_derivative_there_is_no_constant() -> None:
    X = np.array([[-1.0], [-1.0], [1.0], [1.0]])
    y = np.array([-1, -1, 1, 1])
    with pytest.raises(DataError, match="independent"):
        local_constant(RegularizedSVM().fit(X, y), X, y)
    # theta chosen so that a row is on the margin with a multiplier of exactly theta.
    X, y = np.array([[-1.0], [1.0]]), np.array([-1, 1])
    with pytest.raises(DataError, match="at the edge of two"):
        local_constant(RegularizedSVM(theta=0.5, rho=1.0).fit(X, y), X, y)


def smooth_models() -> dict[str, tuple[Any, Floats, Floats]]:
    """Return models with smooth losses, trained to rounding errors, and their rows."""
    X, y = mixed(4, 18, 2)
    level = X @ [1.0, -2.0] + np.sin(np.arange(18))
    three = np.digitize(level, [-1.0, 1.0])
    fast = {"solver": "newton-cholesky", "tol": 1e-13}
    deep = {"activation": "tanh", "solver": "lbfgs", "tol": 1e-15, "max_iter": 100_000, "max_fun": 10**6}
    return {
        "ridge": (Ridge(alpha=0.7), X, level),
        "two targets": (Ridge(alpha=0.7), X, np.column_stack([level, y])),
        "no intercept": (Ridge(alpha=0.7, fit_intercept=False), X, level),
        "logistic": (LogisticRegression(C=2.0, **fast), X, y),
        "multinomial": (LogisticRegression(C=0.5, **fast), X, three),
        "network of numbers": (
            MLPRegressor(hidden_layer_sizes=2, alpha=1.0, random_state=1, **deep),
            X,
            level,
        ),
        "network of classes": (
            MLPClassifier(hidden_layer_sizes=2, alpha=0.5, random_state=3, **deep),
            X,
            three,
        ),
    }


def parameters(model: Any) -> Floats:
    parts = [model.coef_, model.intercept_] if hasattr(model, "coef_") else model.coefs_ + model.intercepts_
    return np.concatenate([np.ravel(part) for part in parts])


def trained(model: Any, X: Floats, y: Floats) -> Any:
    with warnings.catch_warnings():
        # The line search of a solver gives up once only rounding errors are left.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def measured_derivative(solve: Callable[[Floats], Floats], X: Floats, h: float) -> float:
    """Return the norm of the derivative of a solution, by retraining on both sides of every cell."""
    columns = []
    for cell in np.ndindex(X.shape):
        shifted = []
        for sign in (1, -1):
            moved = X.copy()
            moved[cell] += sign * h
            shifted.append(solve(moved))
        columns.append((shifted[0] - shifted[1]) / (2 * h))
    return float(np.linalg.norm(np.column_stack(columns), 2))


@pytest.mark.parametrize("name", ["ridge", "two targets", "no intercept", "logistic", "multinomial"])
def test_the_local_constant_of_a_smooth_model_is_the_norm_of_measured_derivatives(name: str) -> None:
    model, X, y = smooth_models()[name]
    measured = measured_derivative(lambda moved: parameters(clone(model).fit(moved, y)), X, 1e-4)
    assert local_constant(model.fit(X, y), X, y) == pytest.approx(measured, rel=1e-5)


@pytest.mark.parametrize("name", ["network of numbers", "network of classes"])
def test_the_local_constant_of_a_network_is_the_norm_of_measured_derivatives(name: str) -> None:
    model, X, y = smooth_models()[name]
    problem = smooth_problem(trained(model, X, y), X, y)
    assert problem is not None
    # scikit-learn ends next to the minimum of this problem, but too far from it for small differences.
    found = SmoothDerivative(problem)
    assert np.linalg.norm(found.phi - parameters(model)) < 1e-2

    def solve(moved: Floats) -> Floats:
        return SmoothDerivative(dataclasses.replace(problem, X=moved)).phi

    assert local_constant(model, X, y) == pytest.approx(measured_derivative(solve, X, 1e-4), rel=1e-5)


def test_the_local_constant_of_ridge_is_the_one_by_hand() -> None:
    x, y = np.array([1.0, 2.0, -1.0]), np.array([2.0, 3.0, 0.5])
    model = Ridge(alpha=0.5, fit_intercept=False).fit(x[:, None], y)
    # f = x'y / (x'x + alpha), so that df/dx = (y - 2 f x) / (x'x + alpha).
    f, bottom = x @ y / (x @ x + 0.5), x @ x + 0.5
    found = local_constant(model, x[:, None], y)
    assert found == pytest.approx(np.linalg.norm(y - 2 * f * x) / bottom, rel=1e-12)
    # A twin that moves the scores alone, and forgets that rows also weight the residuals.
    assert found > 1.1 * np.linalg.norm(f * x) / bottom


def test_a_network_is_trained_on_from_its_own_weights() -> None:
    model, X, y = smooth_models()["network of numbers"]
    trained(model, X, y)
    before = parameters(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = measure_closeness(
            model, noisy(X, y, 1e-3), radius=0.1, draws=5, slack=False, stream=Stream.from_seed(2)
        )
        other = trained(clone(model).set_params(random_state=2), X, y)
    assert found.hits == 5
    assert np.array_equal(parameters(model), before)
    # The same problem from another start: another minimum, or the same with its units exchanged.
    assert np.linalg.norm(parameters(other) - before) > 0.1


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (Ridge(alpha=[1.0, 2.0]), "one alpha"),
        (Ridge(positive=True), "either sign"),
        (LogisticRegression(class_weight="balanced"), "equal weight"),
        (LogisticRegression(solver="liblinear"), "coefficients alone"),
        (MLPRegressor(hidden_layer_sizes=2, activation="relu", random_state=1), "twice differentiable"),
    ],
)
def test_a_problem_that_the_theorem_does_not_cover_has_no_local_constant(model: Any, words: str) -> None:
    X, y = mixed(4, 18, 2)
    target = np.column_stack([y, y]) if np.ndim(getattr(model, "alpha", 0)) else y
    with pytest.raises(ParameterError, match=words):
        local_constant(trained(model, X, target), X, target)


def test_a_model_of_other_rows_or_with_a_flat_direction_has_no_local_constant() -> None:
    X, y = mixed(4, 18, 2)
    model = LogisticRegression(C=2.0).fit(X, y)
    assert local_constant(model, X, y) > 0
    with pytest.raises(DataError, match="not near a minimum"):
        local_constant(model, X, -y)
    with pytest.raises(DataError, match="not positive definite"):
        local_constant(Ridge(alpha=0.0).fit(0 * X, y), 0 * X, y)
    short = trained(MLPRegressor(hidden_layer_sizes=2, activation="tanh", max_iter=3, random_state=1), X, y)
    with pytest.raises(DataError, match=r"not near a minimum|not positive definite"):
        local_constant(short, X, y)


def test_models_without_coefficients_are_refused_by_name() -> None:
    X, y = np.array([[-2.0, 0.0], [-1.0, 1.0], [1.0, 0.0], [2.0, 1.0]]), np.array([-1, -1, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = MLPClassifier(hidden_layer_sizes=2, max_iter=2, random_state=1).fit(X, y)
    with pytest.raises(ParameterError, match="MLPClassifier has no slack_"):
        measure_closeness(network, lambda _: (X, y), radius=1.0, draws=1)
    with pytest.raises(ParameterError, match=r"GaussianNB has no coef_, intercept_\. Use a linear model"):
        measure_closeness(GaussianNB().fit(X, y), lambda _: (X, y), radius=1.0, draws=1, slack=False)
    ridge = Ridge().fit(X, y)
    with pytest.raises(ParameterError, match=r"Ridge has no slack_. Use slack=False"):
        measure_closeness(ridge, lambda _: (X, y), radius=1.0, draws=1)
    assert measure_closeness(ridge, lambda _: (X, y), radius=1e-9, draws=2, slack=False).hits == 2
    with pytest.raises(ParameterError, match="local_constant must be a RegularizedSVM, or a Ridge"):
        local_constant(GaussianNB().fit(X, y), X, y)
