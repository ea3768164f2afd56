"""What is minimized, and how exactly: reference values, differences, rounding, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mpmath
import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LogisticRegression

from discreet.errors import PromiseError
from discreet.learn.logistic.problem import BinaryProblem, LogisticProblem, SoftmaxProblem, problem_for
from discreet.learn.perturbation import mean_loss as solver
from discreet.learn.perturbation.mean_loss import minimize
from discreet.learn.perturbation.noise import zero_sum_basis
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet._types import Floats, Ints

TINY = np.array([[0.6, 0.0], [0.0, 0.8], [-0.5, 0.5], [0.3, -0.4]])


def table(n: int, d: int, n_classes: int, seed: int = 1) -> tuple[Floats, Ints]:
    """Return rows of norm at most 1 and classes that go with them."""
    draw = Stream.from_seed(seed).generator()
    rows = draw.standard_normal((n, d))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))
    scores = rows @ draw.standard_normal((d, n_classes)) + 0.5 * draw.standard_normal((n, n_classes))
    return rows, scores.argmax(axis=1)


def problems() -> list[LogisticProblem]:
    made: list[LogisticProblem] = []
    for n, d, n_classes in ((7, 3, 2), (2500, 4, 2), (9, 3, 3), (1500, 2, 5)):
        rows, codes = table(n, d, n_classes)
        problem = problem_for(rows, codes, 0.03, n_classes)
        problem.linear_term = np.linspace(-0.2, 0.3, problem.size)
        made.append(problem)
    return made


each = pytest.mark.parametrize("problem", problems(), ids=lambda p: f"{type(p).__name__}-{p.n_rows}-{p.size}")


def test_the_tiny_binary_table_has_the_known_minimizer() -> None:
    problem = BinaryProblem(TINY, np.array([1, 0, 0, 1]), 0.5)
    w = minimize(problem, 1e-12)
    assert w == pytest.approx([0.306629678453, -0.363554401160], abs=1e-11)
    assert problem.value(w) == pytest.approx(0.6277204065995253, abs=1e-14)


def test_the_tiny_table_of_three_classes_has_the_known_minimizer() -> None:
    problem = SoftmaxProblem(TINY, np.array([0, 1, 2, 0]), 0.5, 3)
    w = minimize(problem, 1e-12)
    weights = problem.weights(w)
    assert problem.value(w) == pytest.approx(1.0044976004197637, abs=1e-14)
    assert weights[0] == pytest.approx([0.32852336179, -0.28342270466], abs=1e-10)
    assert weights[1] == pytest.approx([-0.04804867664, 0.21116139690], abs=1e-10)
    assert np.abs(weights.sum(axis=0)).max() < 1e-15


@each
def test_gradients_are_the_differences_of_values(problem: LogisticProblem) -> None:
    w = np.cos(np.arange(problem.size))
    h = 1e-5
    steps = np.eye(problem.size) * h
    differences = [(problem.value(w + e) - problem.value(w - e)) / (2 * h) for e in steps]
    assert np.abs(problem.gradient(w) - differences).max() < 1e-9


@each
def test_second_derivatives_are_the_differences_of_gradients_and_multiply_as_the_matrix_does(
    problem: LogisticProblem,
) -> None:
    w, v = np.cos(np.arange(problem.size)), np.sin(1 + np.arange(problem.size))
    h = 1e-5
    steps = np.eye(problem.size) * h
    differences = np.array([(problem.gradient(w + e) - problem.gradient(w - e)) / (2 * h) for e in steps])
    matrix = problem.hessian(w)
    assert np.abs(matrix - differences).max() < 1e-9
    assert np.abs(matrix @ v - problem.curvature_times(w, v)).max() < 1e-13
    assert np.linalg.eigvalsh(matrix).min() >= problem.regularization * (1 - 1e-12)


def test_the_gradient_as_printed_has_the_wrong_signs() -> None:
    # Equation (2) with labels -1 and 1 in the place of 0 and 1, and plus lambda w.
    rows, codes = table(200, 3, 2)
    y, lam = np.where(codes == 1, 1.0, -1.0), 0.1
    problem = BinaryProblem(rows, codes, lam)
    w = minimize(problem, 1e-12)
    printed = (y - special.expit(rows @ w)) @ rows / len(rows) + lam * w
    corrected = (codes - special.expit(rows @ w)) @ rows / len(rows) - lam * w
    assert np.linalg.norm(corrected) < 1e-12
    assert np.linalg.norm(printed) > 0.1
    # What is to be maximized by (1) grows without bound along any direction.
    margin = y * (rows @ w)
    assert np.mean(100 * margin - np.logaddexp(0, 100 * margin)) + lam / 2 * 100**2 * (w @ w) > 100


def test_two_classes_are_the_softmax_of_two_with_twice_the_penalty() -> None:
    rows, codes = table(50, 4, 2)
    binary, softmax = BinaryProblem(rows, codes, 0.05), SoftmaxProblem(rows, codes, 0.1, 2)
    w, both = minimize(binary, 1e-12), minimize(softmax, 1e-12)
    assert softmax.weights(both)[1] == pytest.approx(w / 2, abs=1e-11)
    assert softmax.value(both) == pytest.approx(binary.value(w), abs=1e-14)


@pytest.mark.parametrize("n_classes", [2, 3, 7])
def test_the_basis_is_orthonormal_and_sums_to_zero(n_classes: int) -> None:
    basis = zero_sum_basis(n_classes)
    assert np.abs(basis @ basis.T - np.eye(n_classes - 1)).max() < 1e-15
    assert np.abs(basis.sum(axis=1)).max() < 1e-15


@pytest.mark.parametrize("n_classes", [2, 4])
def test_scikit_learn_finds_the_same_minimizer(n_classes: int) -> None:
    rows, codes = table(300, 5, n_classes)
    lam = 0.01
    problem = problem_for(rows, codes, lam, n_classes)
    theirs = LogisticRegression(C=1 / (lam * 300), fit_intercept=False, tol=1e-12, max_iter=10_000)
    theirs.fit(rows, codes)
    assert problem.weights(minimize(problem, 1e-11)) == pytest.approx(theirs.coef_, abs=1e-6)


def exact_gradient(problem: BinaryProblem, w: Floats) -> list[mpmath.mpf]:
    with mpmath.workdps(60):
        total = [mpmath.mpf(problem.regularization) * mpmath.mpf(x) for x in w]
        for row, code in zip(problem.rows, problem.codes, strict=True):
            score = mpmath.fsum(mpmath.mpf(a) * mpmath.mpf(b) for a, b in zip(row, w, strict=True))
            slope = 1 / (1 + mpmath.exp(-score)) - int(code)
            for j, x in enumerate(row):
                total[j] += slope * mpmath.mpf(x) / problem.n_rows
        return total


@pytest.mark.parametrize("size", [1.0, 300.0])
def test_the_bound_on_rounding_holds(size: float) -> None:
    rows, codes = table(200, 20, 2)
    problem = BinaryProblem(rows, codes, 0.01)
    w = size * np.cos(np.arange(20.0))
    with mpmath.workdps(60):
        exact = exact_gradient(problem, w)
        error = float(
            mpmath.sqrt(
                mpmath.fsum((mpmath.mpf(a) - b) ** 2 for a, b in zip(problem.gradient(w), exact, strict=True))
            )
        )
    assert 0 < error <= problem.gradient_error(w)


def test_the_distance_to_the_minimizer_is_at_most_the_tolerance_over_the_regularization() -> None:
    rows, codes = table(40, 3, 2)
    lam = 1e-3
    problem = BinaryProblem(rows, codes, lam)
    exact = minimize(problem, 1e-12)
    distances = []
    for tolerance in (1e-2, 1e-4, 1e-8):
        rough = minimize(problem, tolerance)
        distances.append(float(np.linalg.norm(rough - exact)))
        assert distances[-1] <= (tolerance + 1e-12) / lam
        assert np.linalg.norm(problem.gradient(rough)) <= tolerance
    assert distances[0] > 100 * distances[-1]


def test_conjugate_gradients_and_factoring_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, codes = table(400, 6, 4)
    problem = problem_for(rows, codes, 1e-4, 4)
    factored = minimize(problem, 1e-12)
    monkeypatch.setattr(solver, "LARGEST_MATRIX", 0)
    assert minimize(problem, 1e-12) == pytest.approx(factored, abs=2e-8)


@pytest.mark.parametrize("lam", [1e-5, 1e-18, 1e-300])
def test_a_tolerance_that_need_not_be_reached_is_refused_without_a_number_from_the_rows(lam: float) -> None:
    rows = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    said = set()
    for rows in (rows, np.zeros((3, 2))):  # noqa: B020 - other rows, the same shape
        problem = BinaryProblem(rows, np.array([1, 1, 1]), lam)
        with pytest.raises(
            PromiseError, match=r"(tolerance|regularization) of minimize must be at least"
        ) as error:
            minimize(problem, 1e-16)
        said.add(str(error.value))
    assert len(said) == 1
