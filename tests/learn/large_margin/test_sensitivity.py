"""Constants that noise is calibrated by: attained, never exceeded; those that were printed, exceeded."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.learn.large_margin._bounds import (
    ClasswiseNoise,
    classwise_change,
    classwise_is_quieter,
    gradient_change,
    jacobian_cost,
    mean_supremum,
    minimizer_sensitivity,
    regularization_for_jacobian,
)
from discreet.learn.large_margin._problem import squares_of, to_matrices
from discreet.learn.large_margin._training import minimize
from discreet.learn.perturbation.noise import SphericalNoise, gaussian_term_scale, zero_sum_basis
from discreet.noise import Stream
from tests.learn.large_margin.tables import codes, hessian, problem, unit_rows

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.learn.large_margin._problem import MarginProblem

CLASSES = (2, 3, 5, 10)


def test_constants_have_their_published_values() -> None:
    assert [gradient_change(c) for c in (2, 3, 10)] == pytest.approx([2.8284271, 4.2426407, 14.142136])
    assert [round(classwise_change(c), 4) for c in (2, 3, 4, 5, 10, 20)] == [
        4.0, 6.364, 9.2376, 12.4889, 29.4245, 63.5084,
    ]  # fmt: skip
    costs = [jacobian_cost(c, 0.5, 10.0) for c in CLASSES]
    assert costs == pytest.approx([0.18232, 0.35767, 0.69140, 1.45563], abs=5e-6)
    assert [mean_supremum(c) for c in CLASSES] == pytest.approx([1.1284, 2.2568, 4.5135, 10.1554], abs=5e-5)
    e_m = [mean_supremum(2, m) / 2 for m in (1, 2, 3, 5)]
    assert e_m == pytest.approx([0.5641896, 0.8462844, 1.0293754, 1.2672064], abs=5e-8)
    assert gradient_change(4, 2) == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("epsilon", "delta", "n_classes", "cost", "sd"),
    [(1, 1e-5, 2, 0.1, 12.764735), (1, 1e-5, 10, 0.1, 68.459187), (3, 1e-6, 3, 0.5, 8.547791)],
)
def test_gaussian_tilts_have_the_published_scales(
    epsilon: float, delta: float, n_classes: int, cost: float, sd: float
) -> None:
    found = gaussian_term_scale(gradient_change(n_classes), mean_supremum(n_classes), epsilon - cost, delta)
    assert found == pytest.approx(sd, abs=1e-6)


def change(n_classes: int, p: int, seed: int, components: int = 1) -> tuple[float, float]:
    """Return joint norm and sum of class norms of the change of derivative for two random rows."""
    draw = Stream.from_seed(seed).generator()
    at = draw.standard_normal((n_classes * components, p * (p + 1) // 2)) * draw.choice([0.1, 1.0, 5.0])
    x = draw.standard_normal((2, p))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    if seed % 3 == 0:
        x[1] = x[0]
    labels = draw.integers(n_classes, size=2)
    proxies = draw.integers(components, size=2)
    slopes = [
        problem(x[[i]], labels[[i]], n_classes, components=components, proxies=proxies[[i]]).loss_and_slope(
            at
        )[1]
        for i in (0, 1)
    ]
    moved = slopes[0] - slopes[1]
    return float(np.linalg.norm(moved)), float(np.linalg.norm(moved, axis=1).sum())


@settings(max_examples=150, deadline=None)
@given(st.integers(2, 6), st.integers(1, 3), st.integers(0, 10_000))
def test_no_two_rows_exceed_the_constants(n_classes: int, p: int, seed: int) -> None:
    joint, by_class = change(n_classes, p, seed)
    assert joint <= gradient_change(n_classes)
    assert by_class <= classwise_change(n_classes)
    assert change(n_classes, p, seed, components=2)[0] <= gradient_change(n_classes, 2)


@pytest.mark.parametrize("n_classes", CLASSES)
def test_the_same_row_under_another_label_attains_the_joint_constant(n_classes: int) -> None:
    x = unit_rows(1, 3, 1)
    at = np.zeros((n_classes, 6))
    one, two = (problem(x, np.array([y]), n_classes).loss_and_slope(at)[1] for y in (0, 1))
    assert np.linalg.norm(one - two) == pytest.approx(gradient_change(n_classes))
    # Lemma 1 prints 1 for one class's derivative and 2 for its change.
    assert np.linalg.norm(one[0]) == pytest.approx(n_classes - 1)
    assert np.linalg.norm(one[0] - two[0]) == pytest.approx(n_classes)


@pytest.mark.parametrize("n_classes", [2, 3, 4, 6])
def test_some_two_rows_attain_the_constant_by_class(n_classes: int) -> None:
    best = 0.0
    for cosine in np.linspace(0, 1, 400):
        x = np.array([[1.0, 0.0], [cosine, math.sqrt(1 - cosine**2)]])
        at = np.zeros((n_classes, 3))
        one, two = (problem(x[[i]], np.array([i]), n_classes).loss_and_slope(at)[1] for i in (0, 1))
        best = max(best, float(np.linalg.norm(one - two, axis=1).sum()))
    # With every rival active: the maximum over which are is at least this, and here it is this.
    assert best == pytest.approx(classwise_change(n_classes), rel=2e-3)


def test_a_plain_one_appended_doubles_what_a_row_can_do() -> None:
    x = np.array([[1.0, 1.0]])  # a unit vector with a 1 behind it
    assert np.linalg.norm(squares_of(x)) == pytest.approx(2.0)
    one, two = (problem(x, np.array([y]), 2).loss_and_slope(np.zeros((2, 3)))[1] for y in (0, 1))
    assert np.linalg.norm(one - two) == pytest.approx(2 * gradient_change(2))


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 4), st.integers(1, 2), st.integers(0, 10_000), st.floats(0.05, 5))
def test_no_row_changes_the_volume_by_more_than_was_paid_for(
    n_classes: int, p: int, seed: int, regularization: float
) -> None:
    rows, labels = unit_rows(4, p, seed), codes(4, n_classes, seed)
    w = Stream.from_seed(seed).generator().standard_normal((n_classes - 1) * p * (p + 1) // 2) * 0.5
    without = problem(rows[:3], labels[:3], n_classes, regularization=regularization)
    whole = problem(rows, labels, n_classes, regularization=regularization)
    ratio = np.linalg.slogdet(hessian(whole, w))[1] - np.linalg.slogdet(hessian(without, w))[1]
    assert -1e-9 <= ratio <= jacobian_cost(n_classes, 0.5, regularization) + 1e-9


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_some_row_changes_the_volume_by_exactly_that(n_classes: int) -> None:
    row = problem(unit_rows(1, 2, 1), np.array([0]), n_classes, regularization=2.0, smoothing=1.5)
    w = np.zeros(row.size)  # every hinge is at 1, inside its rounded corner
    found = np.linalg.slogdet(hessian(row, w))[1] - row.size * math.log(2.0)
    assert found == pytest.approx(jacobian_cost(n_classes, 1.5, 2.0), rel=1e-9)


@pytest.mark.parametrize("components", [2, 3])
def test_no_row_of_a_mixture_changes_the_volume_by_more_than_was_paid_for(components: int) -> None:
    worst = 0.0
    cost = jacobian_cost(3, 0.5, 1.0, components)
    assert cost <= 2 * max(2.0, (components + 1) / components + (components - 1) / components)
    for seed in range(40):
        row = problem(unit_rows(1, 2, seed), np.array([seed % 3]), 3, components=components,
                      proxies=np.array([0]))  # fmt: skip
        w = Stream.from_seed(seed).generator().standard_normal(row.size) * 0.4
        bend = _second_derivative(row, w)
        worst = max(worst, float(np.linalg.slogdet(bend)[1]))
    assert 0.25 * cost < worst <= cost


def _second_derivative(of: MarginProblem, w: Floats) -> Floats:
    step = 1e-6
    columns = [
        (of.value_and_gradient(w + step * e)[1] - of.value_and_gradient(w - step * e)[1]) / (2 * step)
        for e in np.eye(of.size)
    ]
    return np.array(columns)


@pytest.mark.parametrize("components", [1, 3])
@pytest.mark.parametrize("cost", [1e-4, 0.3, 20.0])
@pytest.mark.parametrize("n_classes", [2, 3, 26])
def test_the_least_regularization_for_a_cost_is_the_least(
    n_classes: int, cost: float, components: int
) -> None:
    least = regularization_for_jacobian(n_classes, 0.7, cost, components)
    assert jacobian_cost(n_classes, 0.7, least, components) <= cost
    assert jacobian_cost(n_classes, 0.7, least * (1 - 1e-6), components) > cost


@pytest.mark.parametrize(("n_classes", "components"), [(2, 1), (3, 1), (6, 1), (3, 2)])
def test_the_mean_of_the_supremum_is_not_exceeded(n_classes: int, components: int) -> None:
    # The largest inner product over two rows, all labels and all slopes, the rows being fixed.
    draw = Stream.from_seed(1).generator()
    x = np.array([[1.0, 0.0], [0.6, 0.8]])
    s = squares_of(x)
    found = []
    for _ in range(4000):
        b = draw.standard_normal((n_classes, components, 3)) @ s.T
        least = b.min(axis=1)
        first = sum(max(0.0, b[0, 0, 0] - least[c, 0]) for c in range(n_classes) if c != 0)
        most = b.max(axis=1)
        second = sum(max(0.0, most[c, 1] - b[1, 0, 1]) for c in range(n_classes) if c != 1)
        found.append(first + second)
    mean = float(np.mean(found))
    error = float(np.std(found)) / math.sqrt(len(found))
    assert mean - 5 * error <= mean_supremum(n_classes, components)
    assert mean + 5 * error >= 0.9 * mean_supremum(n_classes, components)


@pytest.mark.parametrize("constrained", [False, True])
def test_no_neighbors_have_minimizers_farther_apart_than_the_sensitivity(constrained: bool) -> None:
    worst = 0.0
    for seed in range(8):
        rows, labels = unit_rows(5, 2, seed), codes(5, 3, seed)
        other, relabeled = rows.copy(), labels.copy()
        other[0], relabeled[0] = unit_rows(1, 2, seed + 50)[0], (labels[0] + 1) % 3
        one, two = (
            minimize(problem(x, y, 3, regularization=40.0), 1e-9, constrained=constrained)
            for x, y in ((rows, labels), (other, relabeled))
        )
        worst = max(worst, float(np.linalg.norm(one - two)))
    allowed = minimizer_sensitivity(gradient_change(3), 40.0, 1e-9)
    assert 0.3 * allowed < worst <= allowed


def test_joint_noise_has_the_published_moments_and_sums_to_zero() -> None:
    law = SphericalNoise.with_rate(2.0, 20).law  # three classes, four by four matrices, b = 1/2
    draws = law.integers(4000, Stream.from_seed(1)) * law.step
    assert np.linalg.norm(draws, axis=1).mean() == pytest.approx(10.0, abs=0.2)
    matrices = to_matrices(zero_sum_basis(3).T @ draws.reshape(-1, 2, 10), 4)
    assert np.abs(matrices.sum(axis=1)).max() < 1e-12
    variance = matrices.var(axis=(0, 1))
    assert np.diag(variance).mean() == pytest.approx(2 * variance[np.triu_indices(4, 1)].mean(), rel=0.05)


def test_noise_by_class_has_its_law_and_its_projection_sums_to_zero() -> None:
    noise = ClasswiseNoise.with_rate(1.5, 6, 5)
    stream = Stream.from_seed(2)
    norms, acting = [], []
    for _ in range(1500):
        whole = noise.integers(stream).reshape(5, 6) * noise.step
        norms += np.linalg.norm(whole, axis=1).tolist()
    assert np.mean(norms) == pytest.approx(6 / 1.5, rel=0.02)
    for _ in range(1500):
        acts, error = noise.draw_with_error(stream)
        assert 0 < error < 1e-13
        acting.append(acts @ acts)
    assert np.mean(acting) == pytest.approx(4 / 5 * 5 * 6 * 7 / 1.5**2, rel=0.05)
    assert noise.dimension == 24


def test_noise_is_by_class_where_that_is_quieter() -> None:
    for coordinates in (45, 351):
        assert [classwise_is_quieter(c, coordinates) for c in (2, 3, 4, 5, 10)] == [
            False, False, True, True, True,
        ]  # fmt: skip
