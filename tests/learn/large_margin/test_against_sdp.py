"""Solvers of semidefinite programs that know nothing of ours find the same minimum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cvxpy as modeling
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from discreet.learn.large_margin._problem import to_matrices
from discreet.learn.large_margin._training import minimize
from discreet.learn.perturbation.embedding import Embedding
from tests.learn.large_margin.tables import FOUR_CODES, codes, four, problem, unit_rows
from tests.learn.large_margin.test_problem import constrained_minimum

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.learn.large_margin._problem import MarginProblem

cvxpy: Any = modeling
"""Half of its names are made at run time, out of sight of type checkers."""


def program(of: MarginProblem, *, cone: bool, **options: Any) -> tuple[float, Floats]:
    """Return minimum and matrices of the problem as a modeling language has it, with slack variables."""
    rows, h, p = of.squares.rows, of.smoothing, of.p
    matrices = [cvxpy.Variable((p, p), **({"PSD": True} if cone else {"symmetric": True}))
                for _ in range(of.n_classes)]  # fmt: skip
    far = [cvxpy.sum(cvxpy.multiply(rows @ m, rows), axis=1) for m in matrices]
    cost = 0
    for y in range(of.n_classes):
        own = np.flatnonzero(of.codes == y)
        for c in range(of.n_classes):
            if c == y or not len(own):
                continue
            t = cvxpy.Variable(len(own), nonneg=True)
            u = 1 + far[y][own] - far[c][own]
            cost += cvxpy.sum_squares(t) / (4 * h) + cvxpy.sum(cvxpy.pos(u + h - t))
    cost += of.regularization / 2 * sum(cvxpy.sum_squares(m) for m in matrices)
    cost += of.trace * sum(cvxpy.trace(m[: p - 1, : p - 1]) for m in matrices)
    value = cvxpy.Problem(cvxpy.Minimize(cost)).solve(**options)
    return float(value), np.array([m.value for m in matrices])


SOLVERS: dict[str, dict[str, Any]] = {
    "clarabel": {"solver": cvxpy.CLARABEL},
    "scs": {"solver": cvxpy.SCS, "eps_abs": 1e-9, "eps_rel": 1e-9, "max_iters": 100_000},
}


@pytest.mark.parametrize("options", SOLVERS.values(), ids=SOLVERS)
@pytest.mark.parametrize("trace", [0.0, 0.3])
def test_four_rows(trace: float, options: dict[str, Any]) -> None:
    of = problem(four(), FOUR_CODES, 3, trace=trace)
    value, matrices = program(of, cone=True, **options)
    at = constrained_minimum(of, 1e-8)
    assert of.whole_value_and_gradient(at)[0] == pytest.approx(value, abs=1e-6)
    assert to_matrices(at, 3) == pytest.approx(matrices, abs=1e-4)
    if not trace:
        value, matrices = program(of, cone=False, **options)
        w = minimize(of, 1e-8)
        assert of.value_and_gradient(w)[0] == pytest.approx(value, abs=1e-6)
        assert of.matrices(w) == pytest.approx(matrices, abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_made_up_rows(seed: int) -> None:
    n_classes = 2 + seed % 3
    of = problem(
        unit_rows(25, 3, seed), codes(25, n_classes, seed), n_classes, regularization=0.7, trace=0.2 * seed
    )
    value, _ = program(of, cone=True, **SOLVERS["clarabel"])
    assert of.whole_value_and_gradient(constrained_minimum(of, 1e-7))[0] == pytest.approx(value, abs=1e-6)


def test_a_hundred_patients_in_five_columns() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:100, :5]
    rows = Embedding.declare(
        5, bounds=(X.min(axis=0), X.max(axis=0)), norm_bound=None, constant=np.sqrt(0.5), owner="test"
    ).rows(X)
    of = problem(rows, y[:100], 2, regularization=1.0)
    value, _ = program(of, cone=True, **SOLVERS["clarabel"])
    assert of.whole_value_and_gradient(constrained_minimum(of, 1e-6))[0] == pytest.approx(value, abs=1e-6)
