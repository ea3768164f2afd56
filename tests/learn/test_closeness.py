from __future__ import annotations

import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPClassifier

from discreet.errors import DataError, ParameterError
from discreet.learn import Closeness, RegularizedSVM, local_constant, measure_closeness
from discreet.learn import _closeness as room
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


@pytest.mark.parametrize(("seed", "q", "p", "theta"), [(0, 25, 3, 1.0), (1, 40, 2, 0.1), (2, 12, 2, 10.0)])
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


def test_models_without_coefficients_are_refused_by_name() -> None:
    X, y = np.array([[-2.0, 0.0], [-1.0, 1.0], [1.0, 0.0], [2.0, 1.0]]), np.array([-1, -1, 1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = MLPClassifier(hidden_layer_sizes=2, max_iter=2, random_state=1).fit(X, y)
    with pytest.raises(ParameterError, match="MLPClassifier has no coef_, intercept_, slack_"):
        measure_closeness(network, lambda _: (X, y), radius=1.0, draws=1)
    ridge = Ridge().fit(X, y)
    with pytest.raises(ParameterError, match=r"Ridge has no slack_. Use slack=False"):
        measure_closeness(ridge, lambda _: (X, y), radius=1.0, draws=1)
    assert measure_closeness(ridge, lambda _: (X, y), radius=1e-9, draws=2, slack=False).hits == 2
    with pytest.raises(ParameterError, match="local_constant must be a RegularizedSVM, was Ridge"):
        local_constant(ridge, X, y)
