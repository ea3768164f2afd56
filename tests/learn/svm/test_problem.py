"""The Huberized hinge and its minimizer: derivatives, kinks, and other people's solvers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from discreet.learn.logistic.sensitivity import largest_norm as logistic_norm
from discreet.learn.perturbation import mean_loss
from discreet.learn.perturbation._solvers import GradientDescent
from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.svm.loss import hinge, in_band, pull
from discreet.learn.svm.problem import HingeProblem
from discreet.noise import Stream
from tests.learn.perturbation.test_solver_tolerance import (
    LABELS,
    ROWS,
    generator,
    hostile_labels,
    hostile_rows,
)

SMOOTHINGS = (0.001, 0.1, 0.5, 1.0)


def table(n: int, d: int, n_classes: int, seed: int = 1) -> tuple[Any, Any]:
    draw = Stream.from_seed(seed).generator()
    rows = draw.standard_normal((n, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1 + draw.uniform(size=(n, 1)))
    scores = rows @ draw.standard_normal((d, n_classes)) + 0.2 * draw.standard_normal((n, n_classes))
    return rows, scores.argmax(axis=1)


@pytest.mark.parametrize("h", SMOOTHINGS)
def test_the_loss_is_the_one_that_is_written_down(h: float) -> None:
    m = np.linspace(-3, 3, 2401)
    written = np.where(m >= 1 + h, 0.0, np.where(m <= 1 - h, 1 - m, (1 + h - m) ** 2 / (4 * h)))
    assert hinge(m, h) == pytest.approx(written, abs=1e-14)
    # Between the plain hinge and a quarter of h above it, which it is at the kink.
    plain = np.maximum(1 - m, 0.0)
    assert (hinge(m, h) >= plain - 1e-15).all()
    assert hinge(np.array(1.0), h) == pytest.approx(h / 4)


@pytest.mark.parametrize("h", SMOOTHINGS)
def test_derivatives_are_continuous_between_0_and_1_and_bend_by_no_more_than_is_said(h: float) -> None:
    m = np.linspace(-2, 3, 20_001)
    step = 1e-7 * h
    differences = (hinge(m + step, h) - hinge(m - step, h)) / (2 * step)
    assert np.abs(differences + pull(m, h)).max() < 2e-6
    assert pull(m, h).min() == 0
    assert pull(m, h).max() == 1
    assert np.abs(np.diff(pull(m, h))).max() <= (m[1] - m[0]) / (2 * h) * (1 + 1e-9)
    assert in_band(np.array([1 - h - 1e-9, 1.0, 1 + h + 1e-9]), h).tolist() == [False, True, False]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradient_and_matrix_are_those_of_the_value(n_classes: int) -> None:
    rows, codes = table(40, 3, n_classes)
    problem = HingeProblem(rows, codes, 0.1, n_classes, 0.5)
    draw = Stream.from_seed(3).generator()
    problem.linear_term = draw.standard_normal(problem.size)
    w, v = draw.standard_normal((2, problem.size))
    assert optimize.check_grad(problem.value, problem.gradient, w) < 1e-6
    small = 1e-6
    bent = (problem.gradient(w + small * v) - problem.gradient(w - small * v)) / (2 * small)
    assert problem.hessian(w) @ v == pytest.approx(bent, abs=1e-7)
    assert problem.curvature_times(w, v) == pytest.approx(bent, abs=1e-7)


@pytest.mark.parametrize("h", SMOOTHINGS)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_the_minimizer_is_the_one_that_scipy_finds(h: float, n_classes: int) -> None:
    rows, codes = table(200, 3, n_classes)
    problem = HingeProblem(rows, codes, 0.05, n_classes, h)
    found = minimize(problem, max(1e-11, problem.descent.least_tolerance))
    other = optimize.minimize(
        problem.value, np.zeros(problem.size), jac=problem.gradient, method="BFGS", options={"gtol": 1e-9}
    )
    assert problem.value(found) <= problem.value(other.x) + 1e-14
    assert np.linalg.norm(found - other.x) <= (np.linalg.norm(problem.gradient(other.x)) + 1e-9) / 0.05


def test_classes_are_each_against_the_rest() -> None:
    rows, codes = table(150, 3, 4)
    joint = HingeProblem(rows, codes, 0.02, 4, 0.5)
    weights = joint.weights(minimize(joint, 1e-10))
    for code in range(4):
        alone = HingeProblem(rows, (codes == code).astype(np.int64), 0.02, 2, 0.5)
        assert weights[code] == pytest.approx(minimize(alone, 1e-11), abs=1e-8)
    assert np.linalg.norm(joint.gradient(weights.reshape(-1))) <= 1e-10


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_exactly_at_a_kink_stop_no_solver(n_classes: int) -> None:
    # Pulled until the margin of all rows is 1 + h, 1 - h or 1: a linear term puts the minimizer there.
    rows = np.tile([1.0, 0.0], (20, 1))
    for margin in (0.5, 1.0, 1.5):
        problem = HingeProblem(rows, np.zeros(20, np.int64), 0.1, n_classes, 0.5)
        at = np.zeros(problem.size)
        at[::2] = np.where(np.arange(problem.size // 2) == 0, 1, -1) * margin * (1 if n_classes > 2 else -1)
        problem.linear_term = -problem.gradient(at)
        tolerance = max(1e-12, problem.descent.least_tolerance)
        assert minimize(problem, tolerance) == pytest.approx(at, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_every_admitted_tolerance_is_reached_on_hostile_rows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Newton's method or L-BFGS: the steps that are certain are there for what nobody has seen."""
    monkeypatch.setattr(GradientDescent, "run", lambda *_: pytest.fail("the solver came to a halt"))
    draw = generator(seed)
    for _ in range(10):
        n, d, n_classes = (int(draw.choice(some)) for some in ([1, 3, 60, 1500], [1, 2, 6], [2, 3, 5]))
        x = hostile_rows(str(draw.choice(ROWS)), n, d, draw)
        y = hostile_labels(str(draw.choice(LABELS)), x, n_classes, draw)
        h, flat = float(draw.choice(SMOOTHINGS)), 10.0 ** -draw.uniform(0, 11.9)
        problem = HingeProblem(x, y, flat / (2 * h), n_classes, h)
        problem.linear_term = (
            draw.integers(2) * 10 ** draw.uniform(-6, 2) * draw.standard_normal(problem.size)
        )
        tolerance = problem.descent.least_tolerance
        w = minimize(problem, tolerance)
        assert np.linalg.norm(problem.gradient(w)) <= tolerance


@pytest.mark.parametrize("n_classes", [2, 3])
def test_gradient_steps_arrive_where_newton_halts_at_once(
    n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = generator(3)
    x = hostile_rows("spread", 30, 3, draw)
    problem = HingeProblem(x, hostile_labels("mixed", x, n_classes, draw), 0.02, n_classes, 0.5)
    problem.linear_term = draw.standard_normal(problem.size) / 50
    exact = minimize(problem, problem.descent.least_tolerance)
    monkeypatch.setattr(mean_loss, "newton", lambda problem, near: (np.zeros(problem.size), False))
    monkeypatch.setattr(mean_loss, "quasi_newton", lambda _, start, *__, **___: (start, False))
    for factor in (1.0, 1e6, 1e14):
        tolerance = factor * problem.descent.least_tolerance
        found = minimize(problem, tolerance)
        assert np.linalg.norm(found - exact) <= 2 * tolerance / 0.02


@pytest.mark.parametrize("h", SMOOTHINGS)
def test_the_computed_gradient_is_as_near_as_is_said(h: float) -> None:
    rows, codes = table(300, 4, 2)
    problem = HingeProblem(rows, codes, 1e-6, 2, h)
    exact = rows.astype(np.longdouble)
    signs = np.where(codes == 1, 1, -1).astype(np.longdouble)
    draw = Stream.from_seed(5).generator()
    for scale in (1e-3, 1.0, 1e3):
        w = scale * draw.standard_normal(4)
        margins = signs * (exact @ w.astype(np.longdouble))
        wide = np.longdouble(h)
        pulls = np.clip((1 + wide - margins) / (2 * wide), 0, 1)
        true = -(signs * pulls) @ exact / 300 + np.longdouble(1e-6) * w
        apart = float(np.linalg.norm(np.asarray(problem.gradient(w) - true, np.float64)))
        assert apart <= problem.gradient_error(w)
        assert problem.gradient_error(w) < 1e-12 * max(1.0, scale / h)


def test_the_norm_of_a_minimizer_is_bounded() -> None:
    for n_classes in (2, 3):
        rows, codes = table(60, 2, n_classes)
        for lam in (0.01, 0.3):
            problem = HingeProblem(rows, codes, lam, n_classes, 0.5)
            assert np.linalg.norm(minimize(problem, 1e-9)) <= problem.descent.norm
    # Nearly attained: all rows agree, and reach the margin with the largest gain.
    rows = np.tile([0.75 / math.sqrt(0.5625 / 0.01), 0.0], (10, 1))
    problem = HingeProblem(rows, np.ones(10, np.int64), 0.01, 2, 0.5)
    assert np.linalg.norm(minimize(problem, 1e-10)) == pytest.approx(problem.descent.norm)
    # The wrong twin: the bound of logistic regression is passed.
    assert problem.descent.norm > 1.4 * logistic_norm(0.01)
