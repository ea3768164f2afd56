from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from discreet.learn.exact_svm import _solver as solver
from discreet.learn.exact_svm._solver import GramMatrix, SvmProblem, solve
from tests.learn.exact_svm.problems import hard, mixed, tumors, twenty

if TYPE_CHECKING:
    from discreet._types import Floats

THETAS, RHOS = (1e-4, 1e-2, 1.0, 1e2, 1e4), (1e-8, 1e-4, 1e-2, 1.0, 1e2)


def values(problem: SvmProblem, z: Floats, omega: Floats) -> tuple[float, float]:
    """Return the primal and the dual value as the textbook writes them."""
    c, t = omega * problem.sign, np.maximum(1 - problem.sign * (problem.X @ z[:-1] + z[-1]), 0)
    a, b, rho, theta = z[:-1], z[-1], problem.rho, problem.theta
    primal = a @ a / 2 + rho / 2 * (b**2 + t @ t) + theta * t.sum()
    pull, excess = problem.X.T @ c, np.maximum(omega - theta, 0)
    dual = omega.sum() - pull @ pull / 2 - c.sum() ** 2 / (2 * rho) - excess @ excess / (2 * rho)
    return float(primal), float(dual)


def measured(problem: SvmProblem) -> tuple[float, float]:
    """Return the residual and the relative gap of a solution, after an independent look at it."""
    solution = solve(problem)
    primal, dual = values(problem, solution.z, solution.omega)
    assert solution.omega.min() >= 0
    assert primal - dual <= 1e-6 * max(primal, problem.theta)
    value = primal
    if np.all(problem.sign == problem.sign[0]):
        # The constant classifier costs next to nothing; what it saved is the scale.
        value = problem.objective(np.zeros_like(solution.z))
    gap = problem.gap(solution.z, solution.omega) / value
    return problem.residual(solution.omega, 1 - problem.forward(solution.z)), gap


@pytest.mark.parametrize(
    ("theta", "rho", "a1", "a2", "b", "objective", "total", "support", "violators", "share"),
    [
        (1, 1e-2, 1.165937206982, 0.405276815464, -0.590554194075, 0.763573205170, 1.527146410339, 3, 0,
         0.495485923698),
        (0.1, 1, 0.998070151936, 0.364528975448, -0.439395337941, 0.782862866395, 1.492159292087, 8, 7,
         0.756007929045),
        (10, 1e-4, 1.165937206982, 0.405276815464, -0.590554194075, 0.761846871602, 1.523693743203, 3, 0,
         0.497012320570),
    ],
)  # fmt: skip
def test_twenty_rows_by_formula_have_the_known_solution(
    theta: float, rho: float, a1: float, a2: float, b: float, objective: float, total: float,
    support: int, violators: int, share: float,
) -> None:  # fmt: skip
    X, y = twenty()
    assert np.count_nonzero(y > 0) == 9
    problem = SvmProblem(X, y, theta, rho)
    solution = solve(problem)
    omega = solution.omega
    assert solution.z == pytest.approx([a1, a2, b], abs=6e-13)
    assert problem.objective(solution.z) == pytest.approx(objective, abs=6e-13)
    assert omega.sum() == pytest.approx(total, abs=6e-13)
    assert [int((omega > 0).sum()), int((omega > theta).sum())] == [support, violators]
    assert 1 - (omega**2).max() / (omega @ omega) == pytest.approx(share, abs=6e-13)


@pytest.mark.parametrize(
    ("scaling", "objective", "norm", "b", "total", "support", "violators", "right", "share"),
    [
        ("raw", 49.3878095550, 3.1836462705, -5.3470106388, 54.9365859402, 60, 48, 547, 28.41272003),
        ("[0,1]", 67.5868462706, 6.2694912799, -6.6349169095, 87.7222926126, 91, 83, 558, 28.64343515),
        ("std", 26.7387581912, 3.0665627761, -0.0338818217, 31.6524080578, 41, 23, 562, 27.89772204),
    ],
)  # fmt: skip
def test_the_tumor_table_has_the_known_solution(
    scaling: str, objective: float, norm: float, b: float, total: float, support: int, violators: int,
    right: int, share: float,
) -> None:  # fmt: skip
    X, y = tumors(scaling)
    problem = SvmProblem(X, y, 1.0, 0.01)
    solution = solve(problem)
    omega = solution.omega
    assert problem.objective(solution.z) == pytest.approx(objective, abs=6e-11)
    assert np.linalg.norm(solution.z[:-1]) == pytest.approx(norm, abs=6e-11)
    assert solution.z[-1] == pytest.approx(b, abs=6e-11)
    assert omega.sum() == pytest.approx(total, abs=6e-11)
    assert [int((omega > 0).sum()), int((omega > 1).sum())] == [support, violators]
    assert np.count_nonzero(problem.forward(solution.z) > 0) == right
    assert 29 * (1 - (omega**2).max() / (omega @ omega)) == pytest.approx(share, abs=6e-9)
    assert problem.residual(omega, 1 - problem.forward(solution.z)) < 1e-13
    assert problem.gap(solution.z, omega) < 1e-13


@pytest.mark.parametrize("rho", [1e-8, 1e-3, 1.0, 50.0])
def test_two_points_follow_the_formula_down_to_small_rho(rho: float) -> None:
    solution = solve(SvmProblem(np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0]), 0.1, rho))
    assert solution.z[0] == pytest.approx(2 * (0.1 + rho) / (1 + 2 * rho), rel=1e-14)
    assert solution.z[1] == pytest.approx(0, abs=1e-15)


def test_rows_without_information_leave_only_the_intercept() -> None:
    # Five positive and seven negative rows at zero, all beyond the margin: b solves a linear equation.
    theta, rho = 1.0, 1.0
    y = np.where(np.arange(12) < 5, 1.0, -1.0)
    solution = solve(SvmProblem(np.zeros((12, 3)), y, theta, rho))
    b = (5 - 7) * (theta + rho) / (rho + 12 * rho)
    assert solution.z == pytest.approx([0, 0, 0, b], abs=1e-15)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hard_tables_are_solved_at_the_corners_of_the_weights(seed: int) -> None:
    weights = [(1e-4, 1e-8), (1e-4, 1e2), (1.0, 1e-2), (1e4, 1e-4), (1e4, 1e2)]
    for (name, X, y), (theta, rho) in itertools.product(hard(seed), weights):
        residual, gap = measured(SvmProblem(X, y, theta, rho))
        assert residual <= 1e-9, (name, theta, rho)
        assert gap <= 1e-7, (name, theta, rho)


@pytest.mark.stats
def test_hard_tables_are_solved_for_all_weights() -> None:
    cases = itertools.product(range(12), THETAS, RHOS)
    found = [measured(SvmProblem(X, y, theta, rho)) for seed, theta, rho in cases for _, X, y in hard(seed)]
    assert len(found) == 12 * 25 * 17
    assert np.mean([residual <= 1e-9 and gap <= 1e-7 for residual, gap in found]) >= 0.995
    assert max(gap for _, gap in found) <= 1e-6


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    X=arrays.arrays(
        np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=st.integers(-3, 3)
    ),
    pattern=st.integers(0, 2**12 - 1),
    theta=st.sampled_from([0.1, 1.0, 10.0]),
    rho=st.sampled_from([1e-4, 0.01, 1.0]),
)
def test_small_whole_numbers_with_all_their_ties_are_solved(
    X: Floats, pattern: int, theta: float, rho: float
) -> None:
    y = np.array([1.0 if pattern >> i & 1 else -1.0 for i in range(len(X))])
    residual, gap = measured(SvmProblem(X, y, theta, rho))
    assert residual <= 1e-9
    assert gap <= 1e-9


def test_the_gap_is_the_difference_of_the_two_values_and_never_negative() -> None:
    X, y = mixed(3, 60, 4)
    problem = SvmProblem(X, y, 0.7, 0.05)
    solution = solve(problem)
    for k in range(8):
        z = solution.z * (1 + 0.3 * math.sin(k + 1))
        omega = np.abs(solution.omega + 0.5 * np.sin(np.arange(60.0) * (k + 1)))
        primal, dual = values(problem, z, omega)
        assert problem.gap(z, omega) == pytest.approx(primal - dual, rel=1e-12)
    primal, dual = values(problem, solution.z, solution.omega)
    assert 0 <= problem.gap(solution.z, solution.omega) < 1e-14
    assert primal == pytest.approx(dual, rel=1e-12)


def test_the_gap_bounds_the_distance_to_the_solution() -> None:
    X, y = mixed(4, 80, 3)
    problem = SvmProblem(X, y, 1.0, 0.01)
    solution = solve(problem)
    for k in range(12):
        z = solution.z + 10.0**-k * np.array([1.0, -2.0, 0.5, 3.0])
        gap = problem.gap(z, solution.omega)
        assert np.linalg.norm((z - solution.z)[:-1]) <= math.sqrt(2 * gap) + 1e-13
        assert abs(z[-1] - solution.z[-1]) <= math.sqrt(2 * gap / 0.01) + 1e-13


def test_a_change_in_one_row_is_seen_by_the_residual() -> None:
    X, y = mixed(5, 80, 3)
    problem = SvmProblem(X, y, 1.0, 0.01)
    solution = solve(problem)
    t = 1 - problem.forward(solution.z)
    for row in (int(np.argmax(solution.omega)), int(np.argmin(solution.omega))):
        omega = solution.omega.copy()
        omega[row] += 1e-6
        assert problem.residual(omega, t) > 1e-9


def test_the_two_parts_agree_where_both_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = mixed(6, 200, 5)
    problem = SvmProblem(X, y, 1.0, 0.01)
    finished = solve(problem)
    monkeypatch.setattr(solver, "finish", lambda *_: None)
    unfinished = solve(problem)
    assert unfinished.outer > finished.outer
    assert unfinished.z == pytest.approx(finished.z, abs=1e-9)


def test_rows_that_crowd_at_the_margin_are_sorted_out_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    (X, y) = next((X, y) for name, X, y in hard(0) if name == "wild units")
    problem = SvmProblem(X, y, 1.0, 0.01)
    residual, gap = measured(problem)
    assert residual <= 1e-13
    assert gap <= 1e-13
    monkeypatch.setattr(solver, "climb", lambda *_: None)
    assert measured(problem)[0] > 1e-9


def test_a_margin_too_crowded_for_one_row_at_a_time_is_left_to_the_rest() -> None:
    problem = SvmProblem(np.ones((300, 2)), np.ones(300), 1.0, 0.01)
    assert solver.climb(problem, np.zeros(3), np.full(300, 0.5)) is None
    assert measured(problem)[0] <= 1e-12


def test_the_climb_never_lowers_the_dual_value(monkeypatch: pytest.MonkeyPatch) -> None:
    (X, y) = next((X, y) for name, X, y in hard(5) if name == "wild units")
    problem = SvmProblem(X, y, 1.0, 0.01)
    seen: list[float] = []
    make = solver.ActiveSet

    def watched(problem: SvmProblem, z: Floats, omega: Floats, *rest: Any) -> Any:
        seen.append(values(problem, z, omega)[1])
        return make(problem, z, omega, *rest)

    climb = solver.climb

    def watched_climb(*arguments: Any) -> Any:
        seen.clear()
        monkeypatch.setattr(solver, "ActiveSet", watched)
        return climb(*arguments)

    monkeypatch.setattr(solver, "climb", watched_climb)
    solve(problem)
    assert len(seen) > 3
    assert np.diff(seen).min() >= -1e-12 * seen[-1]
    assert seen[-1] > seen[0]


def test_gram_matrices_that_are_updated_equal_those_that_are_rebuilt() -> None:
    X, y = mixed(7, 400, 3)
    problem = SvmProblem(X, y, 1.0, 0.01)
    kept = GramMatrix(problem)
    rows = np.column_stack([X, np.ones(400)])
    for k in range(30):
        member = np.sin(np.arange(400.0) * 0.37 + 0.05 * k) > -0.2
        direct = rows[member].T @ rows[member]
        assert kept.restrict_to(member) == pytest.approx(direct, abs=1e-10)


def test_the_order_of_rows_does_not_matter() -> None:
    X, y = mixed(8, 150, 4)
    one = solve(SvmProblem(X, y, 1.0, 0.01))
    other = solve(SvmProblem(X[::-1].copy(), y[::-1].copy(), 1.0, 0.01))
    assert one.z == pytest.approx(other.z, abs=1e-12)
    assert one.omega == pytest.approx(other.omega[::-1], abs=1e-10)


def test_the_solver_uses_one_thread_and_gives_the_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before, seen = threads(), []
    inner = solver._minimize_inner

    def watched(*arguments: Any) -> Any:
        seen.append(threads())
        return inner(*arguments)

    monkeypatch.setattr(solver, "_minimize_inner", watched)
    solve(SvmProblem(*twenty(), 1.0, 0.01))
    assert seen
    assert all(n == 1 for counts in seen for n in counts)
    assert threads() == before


def test_a_matrix_that_is_not_positive_still_gives_a_step() -> None:
    slightly = np.array([[1.0, 1.0], [1.0, 1.0 - 1e-13]])
    assert np.isfinite(solver._solve_positive(slightly, np.ones(2))).all()
    assert solver._solve_positive(np.array([[1.0, 5.0], [5.0, 1.0]]), np.ones(2)) == pytest.approx([1, 1])
