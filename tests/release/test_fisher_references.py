"""The published reference numbers of the Gaussian optimum, its bounds and its exact trade-off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.privacy import ApproxDP, ErrorFloor, gaussian_delta, gaussian_epsilon
from discreet.privacy.sensitivity import linear_box_diameter
from discreet.release import GaussianRelease
from discreet.release.gaussian import (
    GaussianNumbers,
    informed_error,
    printed_epsilon,
    trace_bounds,
)
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from discreet.release.table import TablePlan

PI = np.array([[2.0, 0.8], [0.8, 1.0]])
PI3 = np.full((3, 3), -0.9) + 2.9 * np.eye(3)


def unit_box(p: int) -> Schema:
    return Schema(columns=[Column(f"x{j}", lower=0, upper=1) for j in range(p)])


def numbers(plan: TablePlan) -> GaussianNumbers:
    assert isinstance(plan.numbers, GaussianNumbers)
    return plan.numbers


def planned(p: int, lam: float, weights: object = None) -> GaussianNumbers:
    schema = unit_box(p)
    weights = np.ones(p) if weights is None else weights
    return numbers(GaussianRelease(regularization=lam, weights=weights, schema=schema).plan(schema, 100))


@pytest.mark.parametrize(
    ("p", "lam", "bound", "epsilon"),
    [
        (2, 1e-4, 200, 0.49697536),
        (2, 1e-2, 20, 1.76005715),
        (2, 1.0, 2, 6.57297007),
        (30, 1e-4, 3000, 2.20705947),
        (30, 1.0, 30, 37.62245693),
        (30, 100.0, 3, 222.97671844),
    ],
)
def test_lambda_maps_to_bound_and_epsilon(p: int, lam: float, bound: float, epsilon: float) -> None:
    made = planned(p, lam)
    assert trace_bounds(made.covariance, np.ones(p), np.ones(p)).half == pytest.approx(bound, rel=1e-12)
    assert made.whitening.ideal_sensitivity == pytest.approx(lam**0.25 * math.sqrt(p), rel=1e-12)
    exact = gaussian_epsilon(made.whitening.ideal_sensitivity, 1e-5)
    assert exact == pytest.approx(epsilon, rel=1e-7)
    # What is promised is computed on the lattice, one part in a million away.
    assert gaussian_epsilon(made.sensitivity, 1e-5) == pytest.approx(epsilon, rel=1e-5)


@pytest.mark.parametrize(
    ("p", "epsilon", "delta", "lam"),
    [(30, 1, 1e-5, 5.736249278748e-6), (30, 8, 1e-5, 8.560307857578e-3), (2, 1, 1e-6, 7.848111968331e-4)],
)
def test_epsilon_and_delta_map_back_to_lambda(p: int, epsilon: float, delta: float, lam: float) -> None:
    schema = unit_box(p)
    plan = GaussianRelease(privacy=ApproxDP(epsilon=epsilon, delta=delta), weights=np.ones(p), schema=schema)
    variance = numbers(plan.plan(schema, 100)).covariance
    assert variance == pytest.approx(np.full(p, 1 / math.sqrt(lam)), rel=1e-5)
    assert (variance >= 1 / math.sqrt(lam) * (1 - 1e-12)).all()


def test_a_dense_weight_matrix_gives_the_reference_covariance_and_diameter() -> None:
    made = planned(2, 0.3, PI)
    assert made.covariance == pytest.approx(
        np.array([[1.46860825409, -0.54237458290], [-0.54237458290, 2.14657648271]]), rel=1e-10
    )
    bounds = trace_bounds(made.covariance, PI, np.ones(2))
    assert bounds.unbiased == pytest.approx(3.615184736804, rel=1e-11)
    assert bounds.half == pytest.approx(4.215993658257, rel=1e-11)
    assert bounds.full == pytest.approx(7.731329732716, rel=1e-11)
    assert bounds.weak == pytest.approx(3.688147163711, rel=1e-11)
    assert made.diameter.how == "all corners"
    assert made.diameter.upper == pytest.approx(1.282304686766, rel=1e-10)
    assert made.diameter.upper**2 / math.sqrt(0.3) == pytest.approx(3.002077031830, rel=1e-10)
    assert gaussian_epsilon(made.diameter.upper, 1e-5) == pytest.approx(5.85298897, rel=1e-8)
    assert made.diameter.upper < made.sensitivity < made.diameter.upper * (1 + 1e-5)


def test_the_trace_understates_the_diameter_of_correlated_noise() -> None:
    """Broken twin: the diagonal formula used for a dense matrix."""
    made = planned(2, 0.3, PI)
    whitener = made.whitening._forward.T / (1 << 20)
    twin = math.sqrt(float(np.trace(whitener.T @ whitener)))
    assert twin == pytest.approx(1.124632, rel=1e-6)
    rows = made.whitening.quantize(np.array([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]))
    apart = max(float(np.linalg.norm((a - b).astype(float))) for a in rows for b in rows) / (1 << 20)
    assert apart > twin * 1.1
    assert apart <= made.sensitivity


def test_the_dual_certificate_meets_the_reference_and_never_undercuts_the_truth() -> None:
    from discreet.privacy import sensitivity

    values, vectors = np.linalg.eigh(PI3)
    root = (vectors * values**0.25) @ vectors.T
    exact = linear_box_diameter(root, np.ones(3))
    assert exact.upper**2 == pytest.approx(4.6902408961, rel=1e-9)
    square = root.T @ root
    assert sensitivity._dual_bound(square) == pytest.approx(5.1088159098, rel=2e-3)
    assert sensitivity._dual_bound(square) >= 5.1088159098 * (1 - 1e-9)
    assert float(np.abs(square).sum()) == pytest.approx(6.3645409509, rel=1e-9)


@pytest.mark.parametrize(("p", "how"), [(12, "all corners"), (25, "dual"), (60, "dual"), (250, "norms")])
def test_the_diameter_is_certified_at_every_size(p: int, how: str) -> None:
    g = Stream.from_seed(p).generator()
    factor = g.standard_normal((p, p)) / math.sqrt(p) + np.eye(p)
    widths = g.uniform(0.5, 2, p)
    found = linear_box_diameter(factor, widths)
    assert found.how == how
    corners = g.choice([-1.0, 1.0], (3_000, p)) * widths
    assert np.linalg.norm(corners @ factor.T, axis=1).max() <= found.upper
    assert found.lower <= found.upper < found.lower * 1.35


def test_a_diagonal_matrix_needs_no_search() -> None:
    found = linear_box_diameter(np.diag([3.0, 4.0]), np.array([1.0, 1.0]))
    assert found.how == "diagonal"
    assert found.upper == pytest.approx(5.0, rel=1e-14)
    assert found.upper >= 5.0
    for matrix, widths in (
        (np.eye(2), np.ones(3)),
        (np.eye(2) * math.nan, np.ones(2)),
        (np.eye(2), np.array([1.0, 0.0])),
    ):
        with pytest.raises(ParameterError, match="linear_box_diameter"):
            linear_box_diameter(matrix, widths)


@pytest.mark.parametrize("sd", [0.2, 1.0])
def test_the_bound_for_everyone_is_the_reference(sd: float) -> None:
    bound = trace_bounds(np.array([sd**2]), np.ones(1), np.ones(1)).anyone
    assert bound == pytest.approx({0.2: 0.015509, 1.0: 0.024705}[sd], abs=5e-7)


def test_the_printed_epsilon_is_shown_and_is_no_guarantee() -> None:
    mu = planned(30, 1.0).whitening.ideal_sensitivity
    printed = printed_epsilon(mu, 1e-5)
    assert printed == pytest.approx(31.76, abs=0.01)
    assert gaussian_delta(printed, mu) == pytest.approx(6.8e-4, rel=0.02)
    assert gaussian_epsilon(mu, 1e-5) > printed


def test_shrinkage_beats_the_bound_for_unbiased_attackers() -> None:
    """Erratum 16: a claimed 200 is attained at about 2 by somebody who knows the population."""
    claimed = trace_bounds(np.full(2, 100.0), np.ones(2), np.ones(2)).unbiased
    assert claimed == 200
    assert informed_error(np.full(2, 100.0), np.eye(2)) < 2


def test_floors_are_met_under_any_weights() -> None:
    schema = unit_box(2)
    for weights in (np.array([1.0, 5.0]), PI):
        plan = GaussianRelease(privacy=ErrorFloor(x0=0.1, x1=0.2), weights=weights, schema=schema).plan(
            schema, 10
        )
        (floor,) = (p for p in plan.promises if isinstance(p, ErrorFloor))
        assert floor["x0"].error >= 0.1
        assert floor["x1"].error >= 0.2
        assert min(floor["x0"].error / 0.1, floor["x1"].error / 0.2) < 1.001


@pytest.mark.parametrize("p", [2, 10])
def test_a_floor_gives_up_what_rounding_to_the_lattice_can_move_a_cell(p: int) -> None:
    """Correlated noise maps a lattice step to many conditional standard deviations' worth of it."""
    made = planned(p, 1.0, np.full((p, p), 0.999) + 0.001 * np.eye(p))
    rows = Stream.from_seed(p).generator().uniform(size=(20_000, p))
    moved = np.abs(made.whitening.restore(made.whitening.quantize(rows)) - rows).max(axis=0)
    steps = np.array([made.lattice_step(c) for c in made.columns])
    assert (moved <= steps / 2).all()
    if p == 10:
        # Broken twin: the step of the noise that remains once all other noise is known.
        twin = np.array([made._conditional_noise(c).sd for c in made.columns]) * 2.0**-20
        assert (moved > twin / 2).any()


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.array([[1.0, 0.5], [0.2, 1.0]]), "symmetric"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "smallest eigenvalue is -1"),
        (np.array([1.0, 0.0]), "smallest eigenvalue is 0"),
        (np.ones(3), "2 finite numbers or a 2 by 2 matrix"),
        (np.array([1.0, math.nan]), "finite"),
    ],
)
def test_weights_that_are_none_are_refused_in_words(weights: np.ndarray, says: str) -> None:
    schema = unit_box(2)
    with pytest.raises(ParameterError, match=says):
        GaussianRelease(regularization=1.0, weights=weights, schema=schema).plan(schema, 5)


@pytest.mark.parametrize("lam", [0, -1, math.nan, math.inf, "much"])
def test_lambda_must_be_a_finite_number_above_zero(lam: float) -> None:
    with pytest.raises(
        ParameterError, match="regularization of GaussianRelease must be a finite number above 0"
    ):
        GaussianRelease(regularization=lam, bounds=(0, 1))


def test_scaling_rows_by_k_and_lambda_by_k_to_the_fourth_scales_the_noise() -> None:
    small, large = (
        numbers(
            GaussianRelease(regularization=lam, weights=np.ones(1), bounds=(0, 1)).plan(
                Schema(columns=[Column("x", lower=0, upper=width)]), 10
            )
        )
        for lam, width in ((1.0, 1.0), (1 / 16, 2.0))
    )
    assert large.covariance == pytest.approx(4 * small.covariance)
    assert large.sensitivity == pytest.approx(small.sensitivity)


def test_the_optimum_is_a_minimum() -> None:
    lam = 0.3
    best = planned(2, lam, PI).covariance

    def objective(V: np.ndarray) -> float:
        return float(np.trace(np.linalg.inv(PI) @ np.linalg.inv(V)) + lam * np.trace(V))

    g = Stream.from_seed(1).generator()
    for _ in range(50):
        turn = np.eye(2) + 0.1 * g.standard_normal((2, 2))
        assert objective(turn @ best @ turn.T) > objective(best)
