"""How far one row moves the minimizer: the constants of the theorem pages, attained and never passed."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import special, stats

from discreet.learn.logistic.problem import BinaryProblem, LogisticConstants, SoftmaxProblem, problem_for
from discreet.learn.logistic.sensitivity import (
    binary_change,
    gradient_change,
    jacobian_cost,
    largest_gain,
    largest_norm,
    mean_supremum,
    regularization_for_jacobian,
)
from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.perturbation.mean_loss_constants import minimizer_sensitivity
from discreet.learn.perturbation.mechanisms import split_epsilon
from discreet.learn.perturbation.noise import gaussian_term_scale
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet._types import Floats, Ints


def constants(n_classes: int, n_rows: int) -> LogisticConstants:
    return LogisticConstants(n_rows=n_rows, n_classes=n_classes, dimension=1)


def term_scale(n_classes: int, epsilon: float) -> float:
    of = constants(n_classes, 200)
    return gaussian_term_scale(of.gradient_change, of.mean_supremum, epsilon, 1e-5)


def test_the_largest_norms_are_the_published_ones() -> None:
    assert largest_norm(0.5) == pytest.approx(0.6748316143, abs=1e-10)
    assert largest_norm(0.1) == pytest.approx(1.6687256897, abs=1e-10)
    assert largest_norm(0.01) == pytest.approx(5.2769739696, abs=1e-10)
    assert largest_norm(0.5, 2.0) == pytest.approx(0.7462768156, abs=1e-10)


def test_the_largest_gains_are_the_published_ones() -> None:
    assert largest_gain(2) == pytest.approx(0.2784645427610738, abs=1e-15)
    assert largest_gain(3) == pytest.approx(0.463055513366, abs=1e-12)
    assert largest_gain(10) == pytest.approx(1.101002997277, abs=1e-12)


@pytest.mark.parametrize(("lam", "known"), [(0.5, 1.0504), (0.1, 1.2136), (0.01, 1.6367), (0.001, 1.9071)])
def test_the_tight_constants_are_the_published_ones_rounded_up(lam: float, known: float) -> None:
    certified = gradient_change(2, lam)
    a = np.linspace(-1, 1, 200_001)
    attained = float((2 * special.expit(largest_norm(lam) * a) * np.sqrt(1 - a**2)).max())
    assert attained == pytest.approx(known, abs=5e-5)
    assert attained <= certified <= attained + 4e-4


@pytest.mark.parametrize("norm", [0.0, 0.3, 2.0, 17.0])
def test_no_two_gradients_are_farther_apart_than_the_certified_constant(norm: float) -> None:
    t = np.linspace(-math.pi / 2, math.pi / 2, 721)
    s = special.expit(norm * np.sin(t))
    apart = s[:, None] ** 2 + s**2 + 2 * s[:, None] * s * np.cos(t[:, None] + t)
    largest = math.sqrt(apart.max())
    assert largest <= binary_change(norm) <= largest + 1e-3
    assert binary_change(norm / 2) <= binary_change(norm)


def test_softmax_constants_are_the_published_ones() -> None:
    assert gradient_change(3, 0.5) == pytest.approx(2.507, abs=5e-4)
    assert gradient_change(3, 0.5, tight=False) == pytest.approx(2 * math.sqrt(2), abs=1e-10)
    assert gradient_change(2, 0.5, tight=False) == 2
    assert gradient_change(10, 1e-8) <= gradient_change(10, 1e-8, tight=False)


def distance(
    rows: Floats, codes: Ints, old: tuple[Floats, int], new: tuple[Floats, int], lam: float, n_classes: int
) -> float:
    """Return how far apart the minimizers of two neighbors are."""
    found = []
    for x, code in (old, new):
        problem = problem_for(np.vstack([rows, x]), np.append(codes, code), lam, n_classes)
        found.append(minimize(problem, 1e-12))
    return float(np.linalg.norm(found[0] - found[1]))


def worst_pair(lam: float) -> tuple[tuple[Floats, int], tuple[Floats, int]]:
    """Return the two rows whose gradients are farthest apart at a minimizer along the first axis."""
    a = np.linspace(0, 1, 100_001)
    a0 = float(a[np.argmax(special.expit(largest_norm(lam) * a) * np.sqrt(1 - a**2))])
    across = math.sqrt(1 - a0**2)
    return (np.array([-a0, across]), 1), (np.array([-a0, -across]), 1)


def common_rows(n: int, lam: float) -> tuple[Floats, Ints]:
    """Return rows along the first axis that make the minimizer as long as it can be."""
    # Beyond a margin of 1.278 a longer row gains less.
    length = min(1.0, (1 + largest_gain(2)) / largest_norm(lam))
    return np.tile([length, 0.0], (n, 1)), np.ones(n, np.int64)


@pytest.mark.parametrize(("lam", "n"), [(0.5, 10_000), (0.1, 10_000), (1e-3, 50_000)])
def test_the_tight_constant_is_attained(lam: float, n: int) -> None:
    rows, codes = common_rows(n - 1, lam)
    moved = lam * n * distance(rows, codes, *worst_pair(lam), lam, 2)
    assert 0.99 * gradient_change(2, lam) < moved <= gradient_change(2, lam)


@pytest.mark.parametrize(("n_classes", "lam"), [(2, 0.5), (2, 0.01), (3, 0.5), (3, 0.01), (4, 0.1)])
def test_no_small_table_moves_farther_than_promised(n_classes: int, lam: float) -> None:
    draw = Stream.from_seed(n_classes).generator()
    allowed = gradient_change(n_classes, lam)
    corners = [np.array(c) / math.sqrt(2) for c in product((-1.0, 1.0), repeat=2)]
    largest = 0.0
    for trial in range(60):
        n = 1 + trial % 4
        rows = np.array([corners[k] for k in draw.integers(4, size=n)])
        codes = draw.integers(n_classes, size=n)
        old, new = (
            (corners[draw.integers(4)] * (1 if trial % 2 else draw.uniform()), int(draw.integers(n_classes)))
            for _ in range(2)
        )
        moved = lam * (n + 1) * distance(rows, codes, old, new, lam, n_classes)
        assert moved <= allowed
        largest = max(largest, moved)
    assert largest > 0.1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_constant_printed_for_several_classes_is_passed_and_ours_is_not(n_classes: int) -> None:
    lam, n, lean = 1e-4, 100_000, 0.15
    norm = math.sqrt(largest_gain(n_classes) / lam)
    length = (1 + largest_gain(n_classes)) / (norm * math.sqrt(n_classes / (n_classes - 1)))
    rows = np.tile([length, 0.0], (n - 1, 1))
    codes = np.append(np.zeros(n - 1, np.int64), n_classes - 1)
    weights = []
    # Two rows of the last class, both taken for the first with certainty, as far apart as they can be.
    for across in (math.sqrt(1 - lean**2), -math.sqrt(1 - lean**2)):
        problem = SoftmaxProblem(np.vstack([rows, [lean, across]]), codes, lam, n_classes)
        weights.append(problem.weights(minimize(problem, 1e-12)))
    reached = lam * n * float(np.linalg.norm(weights[0] - weights[1]))
    assert 2.6 < reached <= gradient_change(3, lam)


def test_an_appended_one_moves_farther_than_a_scaled_constant() -> None:
    lam, n = 5.0, 100
    rows, codes = np.tile([0.0, 1.0], (n - 1, 1)), np.arange(n - 1) % 2
    old, new = (np.array([1.0, 1.0]), 1), (np.array([1.0, 1.0]), 0)
    appended = lam * n * distance(rows, codes, old, new, lam, 2)
    assert appended > 1.3 * gradient_change(2, lam)
    s = math.sqrt(0.5)
    scaled = lam * n * distance(s * rows, codes, (s * old[0], 1), (s * new[0], 0), lam, 2)
    assert 0.9 < scaled <= gradient_change(2, lam)


def test_an_appended_one_passes_the_printed_constant_for_two_classes_and_a_scaled_one_does_not() -> None:
    lam, n, lean = 1e-4, 50_001, 0.12
    tilt = (1 + largest_gain(2)) / math.sqrt(largest_gain(2) / lam)
    codes = np.arange(n - 1) % 2
    # Along (0, 1, 1) with a slight tilt: the classifier is free to move along (0, 1, -1).
    features = np.column_stack([np.where(codes == 1, tilt, -tilt), np.full(n - 1, math.sqrt(1 - tilt**2))])
    across = -math.sqrt(1 - lean**2)

    def moved(scale: float, constant: float) -> float:
        rows = np.column_stack([scale * features, np.full(n - 1, constant)])
        old, new = (np.array([scale * side * lean, scale * across, constant]) for side in (1, -1))
        return lam * n * distance(rows, codes, (old, 0), (new, 1), lam, 2)

    assert 2.81 < moved(1.0, 1.0) < 2 * math.sqrt(2)
    assert 1.9 < moved(math.sqrt(0.5), math.sqrt(0.5)) <= gradient_change(2, lam)


def test_the_solvers_tolerance_is_counted_for_both_neighbors_and_can_be_needed() -> None:
    lam, n, tolerance = 0.5, 10_000, 1e-4
    rows, codes = np.tile([1.0, 0.0], (n - 1, 1)), np.ones(n - 1, np.int64)
    old, new = worst_pair(lam)
    exact = [
        minimize(BinaryProblem(np.vstack([rows, x]), np.append(codes, c), lam), 1e-12) for x, c in (old, new)
    ]
    direction = (exact[0] - exact[1]) / np.linalg.norm(exact[0] - exact[1])
    # Results that a solver with this tolerance may return: the curvature across is a little over lambda.
    reach = tolerance / lam * 0.9999
    results = [exact[0] + reach * direction, exact[1] - reach * direction]
    for result, (x, c) in zip(results, (old, new), strict=True):
        problem = BinaryProblem(np.vstack([rows, x]), np.append(codes, c), lam)
        assert np.linalg.norm(problem.gradient(result)) <= tolerance
    apart = float(np.linalg.norm(results[0] - results[1]))
    allowed = minimizer_sensitivity(gradient_change(2, lam), lam, n, tolerance)
    assert minimizer_sensitivity(gradient_change(2, lam), lam, n, tolerance / 2) < apart <= allowed
    assert allowed == pytest.approx(6.1006e-4, abs=2e-7)


def test_what_the_change_of_volume_leaves_is_the_published_part_of_epsilon() -> None:
    assert split_epsilon(constants(2, 100), 0.5, 1.0)[0] == pytest.approx(0.9950124585, abs=1e-10)
    assert split_epsilon(constants(2, 100), 0.5, 1.0)[1] == 0.5
    assert split_epsilon(constants(2, 200), 0.01, 0.5)[0] == pytest.approx(0.3822169643, abs=1e-10)
    assert split_epsilon(constants(2, 100), 1e-4, 0.1) == pytest.approx((0.05, 0.0487604162), abs=1e-10)
    left, lam = split_epsilon(constants(3, 100), 1e-6, 0.1)
    assert left == pytest.approx(0.05, abs=1e-10)
    assert lam == pytest.approx(1 / (300 * math.expm1(0.1 / 4)), rel=1e-9)
    assert jacobian_cost(3, regularization_for_jacobian(3, 0.05, 100), 100) <= 0.05 * (1 + 1e-11)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_no_table_changes_the_volume_by_more_than_was_paid_for(n_classes: int) -> None:
    draw = Stream.from_seed(9).generator()
    worst = -math.inf
    for trial in range(40):
        n, lam = 1 + trial % 3, (0.01, 0.3)[trial % 2]
        rows = draw.standard_normal((n + 1, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        other = np.vstack([rows[:-1], 1e-9 * rows[-1:]])
        codes = draw.integers(n_classes, size=n + 1)
        one, two = (problem_for(x, codes, lam, n_classes) for x in (rows, other))
        w = draw.standard_normal(one.size) * (0.0 if trial < 10 else 1.0)
        ratio = np.linalg.slogdet(one.hessian(w))[1] - np.linalg.slogdet(two.hessian(w))[1]
        worst = max(worst, ratio / jacobian_cost(n_classes, lam, n + 1))
    assert 0.5 < worst <= 1


def test_gaussian_linear_terms_have_the_published_scales() -> None:
    left, _ = split_epsilon(constants(2, 200), 0.5, 1.0)
    assert term_scale(2, left) == pytest.approx(8.210544, abs=1e-6)
    left, _ = split_epsilon(constants(3, 200), 0.5, 1.0)
    assert term_scale(3, left) == pytest.approx(12.179882, abs=1e-6)


def test_mean_suprema_are_the_published_ones_and_bound_what_is_drawn() -> None:
    assert mean_supremum(2) == pytest.approx(0.797885, abs=1e-6)
    for n_classes, known in ((3, 0.846284), (10, 1.538753)):
        assert mean_supremum(n_classes) == pytest.approx(2 * known, abs=1e-6)
    normals = Stream.from_seed(3).generator().standard_normal((100_000, 5))
    assert 2 * normals.max(axis=1).mean() == pytest.approx(mean_supremum(5), abs=0.02)


def test_the_norm_of_spherical_noise_has_the_published_quantiles() -> None:
    assert stats.gamma(30).ppf([0.95, 0.99]) == pytest.approx([39.540972, 44.189709], abs=1e-6)
