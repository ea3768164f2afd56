"""How far one row moves the support vector machine: published constants, attained and never passed."""

from __future__ import annotations

import math
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.perturbation.mechanisms import split_epsilon
from discreet.learn.perturbation.noise import gaussian_term_scale
from discreet.learn.svm.loss import (
    best_margin,
    gradient_change,
    jacobian_cost,
    largest_gain,
    largest_norm,
    mean_supremum,
    n_scores,
    pull,
    regularization_for_jacobian,
)
from discreet.learn.svm.problem import HingeProblem, SvmConstants
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet._types import Floats, Ints


def constants(n_classes: int = 2, n_rows: int = 200, h: float = 0.5) -> SvmConstants:
    return SvmConstants(n_rows=n_rows, n_classes=n_classes, dimension=1, smoothing=h)


@pytest.mark.parametrize(("h", "known"), [(0.5, 8.267395), (1.0, 8.229450), (0.1, 8.577573)])
def test_gaussian_linear_terms_have_the_published_scales(h: float, known: float) -> None:
    of = constants(h=h)
    left, lam = split_epsilon(of, 0.5, 1.0)
    assert lam == 0.5
    scale = gaussian_term_scale(of.gradient_change, of.mean_supremum, left, 1e-5)
    assert scale == pytest.approx(known, abs=1e-6)


def test_the_change_of_volume_costs_what_is_published() -> None:
    assert jacobian_cost(2, 0.5, 0.5, 200) == pytest.approx(0.009950, abs=1e-6)
    assert jacobian_cost(3, 0.5, 0.5, 200) == pytest.approx(3 * jacobian_cost(2, 0.5, 0.5, 200))
    left, lam = split_epsilon(constants(n_rows=100), 1e-6, 0.1)
    assert left == pytest.approx(0.05, abs=1e-10)
    assert lam == pytest.approx(1 / (100 * math.expm1(0.05)), rel=1e-9)
    for n_classes in (2, 5):
        lam = regularization_for_jacobian(n_classes, 0.1, 0.3, 50)
        assert jacobian_cost(n_classes, 0.1, lam, 50) == pytest.approx(0.3)
        assert jacobian_cost(n_classes, 0.1, lam, 50) <= 0.3 * (1 + 1e-11)


@pytest.mark.parametrize(("h", "known"), [(0.1, 0.9), (0.25, 0.75), (0.5, 0.5625), (1.0, 0.5)])
def test_largest_gains_are_the_published_ones_and_largest(h: float, known: float) -> None:
    m = np.linspace(-1, 3, 400_001)
    gains = m * pull(m, h)
    assert largest_gain(h) == pytest.approx(known, abs=1e-15)
    assert gains.max() == pytest.approx(known, abs=1e-9)
    assert m[gains.argmax()] == pytest.approx(best_margin(h), abs=1e-4)


def test_largest_norms_are_the_published_ones_and_solve_their_equation() -> None:
    assert largest_norm(0.5, 0.5) == pytest.approx(1.0606601718, abs=1e-10)
    assert largest_norm(0.1, 0.5) == pytest.approx(2.3717082451, abs=1e-10)
    assert largest_norm(0.01, 0.5) == pytest.approx(7.5, abs=1e-12)
    for lam, h, reach in product((0.01, 0.5, 2.0, 30.0), (0.1, 0.3, 0.5, 1.0), (0.3, 1.0, 2.0)):
        rho = largest_norm(lam, h, reach)
        # The largest r with lambda r^2 <= the largest gain within reach, found by looking at all of them.
        r = np.linspace(0, 2 * rho, 200_001)
        margin = np.minimum(best_margin(h), reach * r)
        there = r[lam * r**2 <= margin * pull(margin, h) + 1e-13]
        assert there.max() == pytest.approx(rho, rel=2e-5)


def distance(
    rows: Floats, codes: Ints, old: tuple[Floats, int], new: tuple[Floats, int], lam: float, n_classes: int
) -> float:
    """Return how far apart the minimizers of two neighbors are."""
    found = [
        minimize(HingeProblem(np.vstack([rows, x]), np.append(codes, code), lam, n_classes, 0.5), 1e-10)
        for x, code in (old, new)
    ]
    return float(np.linalg.norm(found[0] - found[1]))


@pytest.mark.parametrize(("n_classes", "lam"), [(2, 3.0), (2, 0.05), (3, 3.0), (3, 0.05), (4, 0.5)])
def test_no_small_table_moves_farther_than_promised(n_classes: int, lam: float) -> None:
    draw = Stream.from_seed(n_classes).generator()
    corners = [np.array(c) / math.sqrt(2) for c in product((-1.0, 1.0), repeat=2)]
    largest = 0.0
    for trial in range(40):
        n = 1 + trial % 4
        rows = np.array([corners[k] for k in draw.integers(4, size=n)])
        codes = draw.integers(n_classes, size=n)
        old, new = (
            (corners[draw.integers(4)] * (1 if trial % 2 else draw.uniform()), int(draw.integers(n_classes)))
            for _ in range(2)
        )
        moved = lam * (n + 1) * distance(rows, codes, old, new, lam, n_classes)
        assert moved <= gradient_change(n_classes)
        largest = max(largest, moved)
    assert largest > 0.1


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_constant_is_attained_so_that_a_smaller_one_would_be_wrong(n_classes: int) -> None:
    # Rows at the origin hold the minimizer short; a row and its mirror image pull with full force.
    rows, codes = np.zeros((9, 2)), np.zeros(9, np.int64)
    old, new = (np.array([1.0, 0.0]), 0), (np.array([-1.0, 0.0]), 0)
    lam = 1.0
    moved = lam * 10 * distance(rows, codes, old, new, lam, n_classes)
    assert moved == pytest.approx(2 * math.sqrt(n_scores(n_classes)))
    assert moved <= gradient_change(n_classes)
    # The wrong twins: one row's gradient instead of two, and one class instead of all.
    assert moved > 1.9 * math.sqrt(n_scores(n_classes))
    assert n_classes == 2 or moved > 1.5 * gradient_change(2)


@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("h", [0.1, 0.5, 1.0])
def test_no_table_changes_the_volume_by_more_than_was_paid_for(n_classes: int, h: float) -> None:
    draw = Stream.from_seed(9).generator()
    worst = -math.inf
    for trial in range(40):
        n, lam = 1 + trial % 3, (0.01, 0.3)[trial % 2]
        rows = draw.standard_normal((n + 1, 2))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        other = np.vstack([rows[:-1], 1e-9 * rows[-1:]])
        codes = draw.integers(n_classes, size=n + 1)
        codes[-1] = n_classes - 1
        one, two = (HingeProblem(x, codes, lam, n_classes, h) for x in (rows, other))
        # Weights at which the row that is replaced has a margin of 1 in every score.
        signs = one.signs[-1]
        w = np.outer(signs, rows[-1]).reshape(-1)
        if trial >= 10:
            w = w + 0.3 * draw.standard_normal(one.size)
        ratio = np.linalg.slogdet(one.hessian(w))[1] - np.linalg.slogdet(two.hessian(w))[1]
        worst = max(worst, ratio / jacobian_cost(n_classes, h, lam, n + 1))
    assert 0.6 < worst <= 1
    # The wrong twins: the logistic curvature 1/4, and one class instead of all.
    lam, rows = 0.01, np.array([[1.0, 0.0]])
    one = HingeProblem(rows, np.array([n_classes - 1]), lam, n_classes, h)
    two = HingeProblem(0 * rows, np.array([n_classes - 1]), lam, n_classes, h)
    w = np.outer(one.signs[-1], rows[-1]).reshape(-1)
    ratio = np.linalg.slogdet(one.hessian(w))[1] - np.linalg.slogdet(two.hessian(w))[1]
    assert ratio == pytest.approx(jacobian_cost(n_classes, h, lam, 1), rel=1e-9)
    assert ratio > n_scores(n_classes) * math.log1p(1 / (4 * lam))
    assert n_classes == 2 or ratio > 1.9 * jacobian_cost(2, h, lam, 1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_mean_suprema_are_the_published_ones_and_bound_every_change_of_gradient(n_classes: int) -> None:
    scores = n_scores(n_classes)
    assert mean_supremum(n_classes) == pytest.approx(0.797885 * scores, abs=3e-6)
    draw = Stream.from_seed(4).generator()
    normals = draw.standard_normal((200_000, scores, 2))
    old, new = np.array([1.0, 0.0]), np.array([0.6, -0.8])
    signs = np.where(np.arange(scores) == 0, 1.0, -1.0)
    # The largest inner product over all pulls between 0 and 1, one for each row and score.
    first, second = normals @ old * signs, normals @ new * signs
    largest = (np.maximum(first, 0) + np.maximum(-second, 0)).sum(axis=1)
    # 0.6 standard deviations a score: ten standard errors of 200,000 draws are below 0.03.
    assert largest.mean() == pytest.approx(mean_supremum(n_classes), abs=0.03)
    # No change that the problem itself makes has a larger inner product.
    weights = draw.standard_normal((50, scores, 2))
    for w, z, most in zip(weights, normals, largest, strict=False):
        codes = np.array([0 if scores > 1 else 1])
        one, two = (HingeProblem(x[None], codes, 1.0, n_classes, 0.5) for x in (old, new))
        change = two.gradient(w.reshape(-1)) - one.gradient(w.reshape(-1))
        assert change @ z.reshape(-1) <= most + 1e-12
        assert np.linalg.norm(change) <= gradient_change(n_classes)
