"""The invariant release as the paper prints it, and other ways to get it wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.learn import RegularizedSVM
from discreet.noise import Stream, standard_normal
from discreet.release.gaussian import informed_error, trace_bounds
from discreet.release.invariant import InvariantNoise, InvariantRelease, SVMLearner
from tests.release.invariant_tables import random_table, two_clouds, wdbc

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats

    Table = Callable[[], tuple[Floats, AnyArray]]


def moved_by(W: Floats, X: Floats, y: AnyArray) -> float:
    """How far the classifier goes when the noise is added: the check that every twin must fail."""
    before, after = RegularizedSVM().fit(X, y), RegularizedSVM().fit(X + W, y)
    return max(
        float(np.abs(before.coef_ - after.coef_).max()),
        float(np.abs(before.intercept_ - after.intercept_).max()),
    )


def constraints(X: Floats, y: AnyArray) -> tuple[Floats, Floats]:
    solution = SVMLearner().solve(X, (y > 0).astype(int), 2)
    return solution.derivatives, solution.weights


@pytest.mark.parametrize("table", [wdbc, random_table], ids=["patients", "random"])
@pytest.mark.parametrize("variance", [1.0, 100.0])
def test_the_right_noise_passes(table: Table, variance: float) -> None:
    X, y = table()
    W = InvariantNoise(*constraints(X, y), variance).draw(Stream.from_seed(1))
    assert moved_by(W, X, y) < 1e-9


@pytest.mark.parametrize("table", [wdbc, random_table], ids=["patients", "random"])
@pytest.mark.parametrize(
    "twin",
    ["weights of one", "gradient forgotten", "scores forgotten", "columns mixed up", "independent noise"],
)
def test_noise_that_keeps_too_little_moves_the_classifier(table: Table, twin: str) -> None:
    X, y = table()
    C, F = constraints(X, y)
    wrong = {
        # E6: Omega is printed with the multipliers of one problem in place of those of the other.
        "weights of one": (np.where(C != 0, -y[:, None], 0.0), F),
        "gradient forgotten": (np.zeros_like(C), F),
        "scores forgotten": (C, np.zeros_like(F)),
        "columns mixed up": (C, F[::-1]),
        "independent noise": (np.zeros_like(C), np.zeros_like(F)),
    }[twin]
    W = InvariantNoise(*wrong, 1.0).draw(Stream.from_seed(1))
    assert moved_by(W, X, y) > 1e-3


def test_projecting_before_scaling_breaks_the_scores() -> None:
    X, y = random_table()
    C, F = constraints(X, y)
    scales = np.exp2(np.arange(12.0))
    right = InvariantNoise(C, F, 1.0, scales=scales).draw(Stream.from_seed(1))
    wrong = InvariantNoise(C, F, 1.0).draw(Stream.from_seed(1)) * scales
    assert moved_by(right, X, y) < 1e-8
    assert moved_by(wrong, X, y) > 1e-3


def test_pushing_support_vectors_outward_moves_the_classifier() -> None:
    X, y = wdbc()
    C, F = constraints(X, y)
    free = np.where(C[:, 0] == 0, y, 0.0)
    assert moved_by(InvariantNoise(C, F, 1.0, outward=free).draw(Stream.from_seed(1)), X, y) < 1e-9
    everybody = InvariantNoise(C, F, 1.0, outward=y.astype(float)).draw(Stream.from_seed(1))
    assert moved_by(everybody, X, y) > 1e-3


def test_proposition_2_9_is_no_equality() -> None:
    """E7: a record that is no support vector moves along the weights, and the classifier stays."""
    X, y = wdbc()
    C, F = constraints(X, y)
    a = F[:, 0]
    model = RegularizedSVM().fit(X, y)
    i = int(np.argmax(y * model.decision_function(X)))
    assert C[i, 0] == 0
    W = np.zeros_like(X)
    W[i] = y[i] * 3 * a / (a @ a)
    assert abs(W[i] @ a) == pytest.approx(3)  # Omega w is not zero ...
    assert moved_by(W, X, y) < 1e-12  # ... and nothing happens


def test_theorem_2_10_claims_an_error_for_a_record_that_is_published_unchanged() -> None:
    """E8: one support vector among four rows of two columns; claimed at least m / 3."""
    X = np.array([[1.0, 0.0], [-4.0, 1.0], [-5.0, -2.0], [3.0, 1.0]])
    y = np.array([1, -1, -1, 1])
    solution = SVMLearner(theta=1.0, rho=1.0).solve(X, (y > 0).astype(int), 2)
    noise = InvariantNoise(solution.derivatives, solution.weights, 100.0)
    claimed = 100.0 / noise.dimension
    assert claimed == pytest.approx(100 / 3)
    for seed in range(20):
        W = noise.draw(Stream.from_seed(seed))
        assert np.abs(W[0]).max() < 1e-13
        assert np.abs(W[1:]).max() > 0.1
    assert noise.unbiased_bound()[0] == 0.0


def test_the_printed_units_are_those_of_a_squared_error() -> None:
    """E18: 28.4 m is printed for E |x - guess|; the published row itself is closer than that."""
    X, y = wdbc()
    m = 100.0
    method = InvariantRelease(variance=m, bounds=(0, 5e3), random_state=1)
    distance = np.linalg.norm(method.release(X, y).data - X, axis=1)
    assert distance.max() < 28.4 * m / 25
    assert method.exposure_ is not None
    assert (distance**2).mean() == pytest.approx(method.exposure_.unbiased_bound.mean(), rel=0.03)


def test_proposition_2_2_as_printed_is_false() -> None:
    """E1 and E2: the published row itself has a smaller error than is said to be possible."""
    Pi, weight = np.array([0.1, 0.2]), 0.3
    V = 1 / np.sqrt(weight * Pi)
    bounds = trace_bounds(V, Pi, np.array([1e9, 1e9]))
    noise = np.sqrt(V) * standard_normal((200_000, 2), Stream.from_seed(1))
    attained = float(((Pi * noise) ** 2).sum(axis=1).mean())
    printed = float((Pi * V).sum())
    assert printed == pytest.approx(1.394, abs=1e-3)
    assert attained == pytest.approx(bounds.full, rel=0.01)
    assert bounds.full == pytest.approx(0.221, abs=1e-3)
    assert attained < printed / 6
    # With the root of Pi on the left it is true, and the weak form has p squared above.
    assert float((Pi * noise**2).sum(axis=1).mean()) == pytest.approx(bounds.half, rel=0.01)
    assert bounds.weak == pytest.approx(4 * 0.338, abs=2e-3)
    assert 0.338 < bounds.weak < bounds.half


def test_a_biased_guess_is_a_hundred_times_better_than_the_bound_irrespective_of_the_adversary() -> None:
    """E16: 200 is claimed for the illustrative example at lambda = 1e-4."""
    claimed = float(trace_bounds(np.full(2, 100.0), np.ones(2), np.full(2, 1e9)).unbiased)
    assert claimed == 200
    informed, blind = [], []
    for seed in range(40):
        X, y = two_clouds(seed)
        published = X + 10 * standard_normal(X.shape, Stream.from_seed(1000 + seed))
        for label, center in ((1, [0.0, 0.0]), (-1, [0.0, 5.0])):
            rows, noisy = X[y == label], published[y == label]
            guess = np.array(center) + (noisy - center) / 101
            informed.append(((guess - rows) ** 2).sum(axis=1).mean())
            # From what was published alone: its mean, and what its variance exceeds the noise's by.
            excess = np.maximum(noisy.var(axis=0) - 100, 0) / noisy.var(axis=0)
            guess = noisy.mean(axis=0) + (noisy - noisy.mean(axis=0)) * excess
            blind.append(((guess - rows) ** 2).sum(axis=1).mean())
    assert np.mean(informed) == pytest.approx(informed_error(np.full(2, 100.0), np.eye(2)), rel=0.1)
    assert np.mean(informed) < claimed / 90
    assert np.mean(blind) < claimed / 10


def test_half_of_the_noise_is_seen_in_the_errors() -> None:
    """A release that draws with half of its variance does not reach its own bound."""
    X, y = wdbc()
    C, F = constraints(X, y)
    claimed = InvariantNoise(C, F, 100.0).unbiased_bound().mean()
    for variance, holds in ((100.0, True), (50.0, False)):
        W = InvariantNoise(C, F, variance).draw(Stream.from_seed(2))
        assert (((W**2).sum(axis=1).mean()) > 0.97 * claimed) == holds
