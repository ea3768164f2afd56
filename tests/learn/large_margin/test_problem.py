"""What is minimized, and that its minimizer is the one which others find."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.errors import PromiseError
from discreet.learn.large_margin import _problem as squares
from discreet.learn.large_margin import _training as solver
from discreet.learn.large_margin._problem import (
    MarginProblem,
    huber_hinge,
    n_coordinates,
    rounding_error,
    squares_of,
    to_coordinates,
    to_matrices,
)
from discreet.learn.large_margin._training import minimize, psd_part
from discreet.noise import Stream
from tests.learn.large_margin.tables import FOUR_CODES, codes, four, hessian, problem, unit_rows

if TYPE_CHECKING:
    from discreet._types import Floats

GRADIENTS = [(2, 1), (3, 1), (5, 1), (2, 2), (3, 3)]
"""Numbers of classes and of components."""


def with_components(n_classes: int, components: int, **rest: Any) -> MarginProblem:
    proxies = np.arange(60) % components
    return problem(
        unit_rows(60, 3, 1),
        codes(60, n_classes, 1),
        n_classes,
        components=components,
        proxies=proxies,
        **rest,
    )


def test_the_huberized_hinge_has_its_published_values() -> None:
    u = np.array([-0.6, -0.5, 0.0, 0.25, 0.5, 2.0])
    assert huber_hinge(u, 0.5).tolist() == [0.0, 0.0, 0.125, 0.28125, 0.5, 2.0]


@given(st.floats(-5, 5), st.floats(0.01, 3))
def test_the_huberized_hinge_is_the_least_of_its_slack_form(u: float, h: float) -> None:
    t = np.linspace(0, 2 * h + 6, 4001)
    slack = t**2 / (4 * h) + np.maximum(u + h - t, 0)
    value = float(huber_hinge(np.array(u), h))
    assert value <= slack.min() + 1e-12
    # The slack form changes by no more than that between two points of the grid.
    assert value == pytest.approx(slack.min(), abs=(2 * h + 6) / 4000)


def test_four_rows_have_the_published_minimum() -> None:
    of = problem(four(), FOUR_CODES, 3)
    w = minimize(of, 1e-9)
    assert of.value_and_gradient(w)[0] == pytest.approx(4.9061891947, abs=2e-10)
    expected = [
        [-0.0988888, 0.0476813, -0.6916737],
        [0.0476813, 0.1726813, -0.1485334],
        [-0.6916737, -0.1485334, -0.5018966],
    ]
    assert of.matrices(w)[0] == pytest.approx(np.array(expected), abs=6e-8)
    assert np.abs(of.matrices(w).sum(axis=0)).max() < 1e-12


def constrained_minimum(of: MarginProblem, tolerance: float) -> Floats:
    """Return the coordinates of the constrained minimizer with what is common to all matrices."""
    at = solver.accelerated_projection(of, tolerance)
    assert at is not None
    return at


def test_four_rows_have_the_published_constrained_minimum() -> None:
    of = problem(four(), FOUR_CODES, 3, trace=0.3)
    at = constrained_minimum(of, 1e-8)
    assert of.whole_value_and_gradient(at)[0] == pytest.approx(6.7639384014, abs=2e-10)
    assert np.linalg.eigvalsh(to_matrices(at, 3)).min() > -1e-12


@pytest.mark.parametrize(("n_classes", "components"), GRADIENTS)
def test_the_gradient_is_the_derivative(n_classes: int, components: int) -> None:
    of = with_components(n_classes, components)
    draw = Stream.from_seed(3).generator()
    of.linear_term = draw.standard_normal(of.size)
    w, v = draw.standard_normal(of.size) * 0.4, draw.standard_normal(of.size)
    step = 1e-6
    slope = (of.value_and_gradient(w + step * v)[0] - of.value_and_gradient(w - step * v)[0]) / (2 * step)
    assert of.value_and_gradient(w)[1] @ v == pytest.approx(slope, rel=1e-6)


def test_second_derivatives_are_those_of_the_gradient() -> None:
    of = with_components(3, 1)
    draw = Stream.from_seed(4).generator()
    w, v = draw.standard_normal(of.size) * 0.5, draw.standard_normal(of.size)
    step = 1e-7
    bend = (of.value_and_gradient(w + step * v)[1] - of.value_and_gradient(w - step * v)[1]) / (2 * step)
    assert hessian(of, w) @ v == pytest.approx(bend, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("n_classes", "components"), GRADIENTS)
def test_derivatives_by_all_matrices_sum_to_zero(n_classes: int, components: int) -> None:
    of = with_components(n_classes, components)
    at = Stream.from_seed(5).generator().standard_normal((of.n_matrices, of.squares.dimension))
    slope = of.loss_and_slope(at)[1]
    assert np.abs(slope).max() > 1
    assert np.abs(slope.sum(axis=0)).max() < 1e-12


@pytest.mark.parametrize(("n_classes", "components"), GRADIENTS)
def test_the_same_matrix_added_to_all_changes_no_loss(n_classes: int, components: int) -> None:
    of = with_components(n_classes, components)
    draw = Stream.from_seed(6).generator()
    at = draw.standard_normal((of.n_matrices, of.squares.dimension))
    moved = at + draw.standard_normal(of.squares.dimension)
    assert of.loss_and_slope(moved)[0] == pytest.approx(of.loss_and_slope(at)[0], rel=1e-12)


def test_the_trace_moves_only_what_all_matrices_have_in_common() -> None:
    of, plain = problem(four(), FOUR_CODES, 3, trace=5.0), problem(four(), FOUR_CODES, 3)
    w = minimize(plain, 1e-9)
    at = plain.spread(w) - of.trace / of.regularization * of.trace_vector
    gradient = of.whole_value_and_gradient(at)[1]
    assert np.linalg.norm(gradient) < 1e-8
    assert of.gather(at) == pytest.approx(w, abs=1e-12)


def test_frobenius_coordinates_keep_lengths_and_products() -> None:
    draw = Stream.from_seed(7).generator()
    a, b = (m + m.swapaxes(-1, -2) for m in draw.standard_normal((2, 4, 5, 5)))
    assert to_matrices(to_coordinates(a), 5) == pytest.approx(a, abs=1e-15)
    assert (to_coordinates(a) * to_coordinates(b)).sum(-1) == pytest.approx((a * b).sum((-1, -2)))
    rows = unit_rows(9, 5, 8)
    assert np.linalg.norm(squares_of(rows), axis=1) == pytest.approx(1.0)
    assert to_matrices(squares_of(rows), 5) == pytest.approx(rows[:, :, None] * rows[:, None, :], abs=1e-15)
    assert n_coordinates(5) == squares_of(rows).shape[1] == 15


def test_a_table_too_large_to_be_kept_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, labels = unit_rows(5000, 3, 9), codes(5000, 3, 9)
    kept = problem(rows, labels, 3, regularization=50.0)
    monkeypatch.setattr(squares, "_KEPT_BYTES", 0)
    made_again = problem(rows, labels, 3, regularization=50.0)
    assert np.array_equal(minimize(kept, 1e-5), minimize(made_again, 1e-5))


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("constrained", [False, True])
def test_the_certificate_bounds_the_distance_from_the_minimizer(constrained: bool, components: int) -> None:
    of = with_components(3, components, regularization=2.0)
    of.linear_term = Stream.from_seed(2).generator().standard_normal(of.size) * 5
    exact = minimize(of, 1e-8, constrained=constrained)
    for tolerance in (10.0, 1.0, 1e-3):
        rough = minimize(of, tolerance, constrained=constrained)
        assert np.linalg.norm(rough - exact) <= (tolerance + 1e-8) / 2.0


def test_a_tilt_moves_the_minimizer_by_no_more_than_its_norm_over_the_regularization() -> None:
    of = with_components(4, 1, regularization=3.0)
    plain = minimize(of, 1e-9)
    for seed in range(5):
        of.linear_term = Stream.from_seed(seed).generator().standard_normal(of.size) * 4
        moved = minimize(of, 1e-9)
        assert np.linalg.norm(moved - plain) <= np.linalg.norm(of.linear_term) / 3.0


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 12), st.floats(0.05, 20), st.floats(0.05, 3))
def test_any_small_table_is_solved_to_its_tolerance(
    n_classes: int, p: int, n: int, regularization: float, smoothing: float
) -> None:
    of = problem(
        unit_rows(n, p, n),
        codes(n, n_classes, n),
        n_classes,
        regularization=regularization,
        smoothing=smoothing,
    )
    w = minimize(of, 1e-8)
    assert np.linalg.norm(of.value_and_gradient(w)[1]) <= 1e-8


def test_rounding_of_the_gradient_stays_below_its_bound() -> None:
    of = problem(unit_rows(3000, 6, 3), codes(3000, 4, 3), 4)
    w = Stream.from_seed(1).generator().standard_normal(of.size)
    exact = _in_long_doubles(of, w)
    error = float(np.linalg.norm(of.value_and_gradient(w)[1] - exact))
    assert 0 < error <= of.gradient_error(float(np.linalg.norm(w)))
    assert rounding_error(3000, 6, 4, 0.5, 1.0) < rounding_error(30000, 6, 4, 0.5, 1.0)


def _in_long_doubles(of: MarginProblem, w: Floats) -> Any:
    rows = of.squares.rows.astype(np.longdouble)
    i, j = np.triu_indices(of.p)
    s = rows[:, i] * rows[:, j] * np.where(i == j, np.longdouble(1), np.sqrt(np.longdouble(2)))
    k = np.arange(1, of.n_matrices)
    basis = np.zeros((of.n_matrices - 1, of.n_matrices), np.longdouble)
    for a in k:
        basis[a - 1, :a], basis[a - 1, a] = 1, -a
        basis[a - 1] /= np.sqrt(np.longdouble(a * (a + 1)))
    far = s @ (basis.T @ w.reshape(len(basis), -1).astype(np.longdouble)).T
    line = np.arange(len(far))
    u = 1 + far[line, of.codes][:, None] - far
    slope = np.clip((u + of.smoothing) / (2 * of.smoothing), 0, 1)
    slope[line, of.codes] = 0
    weights = -slope
    weights[line, of.codes] = slope.sum(axis=1)
    return (basis @ (weights.T @ s)).reshape(-1) + of.regularization * w


@pytest.mark.parametrize("constrained", [False, True])
def test_a_tolerance_that_need_not_be_reached_is_refused(constrained: bool) -> None:
    of = problem(four(), FOUR_CODES, 3)
    minimize(of, 1e-9, constrained=constrained)
    with pytest.raises(PromiseError, match="tolerance of minimize must be at least"):
        minimize(of, 1e-18, constrained=constrained)


def test_the_nearest_semidefinite_matrix_is_the_nearest() -> None:
    draw = Stream.from_seed(8).generator()
    at = draw.standard_normal((3, 10))
    near = psd_part(at, 4)
    assert np.linalg.eigvalsh(to_matrices(near, 4)).min() > -1e-14
    other = to_coordinates(np.einsum("kij,klj->kil", *[draw.standard_normal((3, 4, 4))] * 2))
    assert ((at - near) * (other - near)).sum(axis=1).max() <= 1e-12
