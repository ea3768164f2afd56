"""An interior-point solver that knows nothing of ours finds the same classifier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import clarabel  # type: ignore[import-untyped]
import numpy as np
import pytest
from scipy import sparse

from discreet.learn import RegularizedSVM
from tests.learn.exact_svm.problems import mixed

if TYPE_CHECKING:
    from discreet._types import Floats


def clarabel_solution(X: Floats, y: Floats, theta: float, rho: float) -> Floats:
    """Return (a, b) of problem (2), written down as it stands in the paper."""
    q, p = X.shape
    quadratic = sparse.diags_array(np.concatenate([np.ones(p), np.full(1 + q, rho)])).tocsc()
    linear = np.concatenate([np.zeros(p + 1), np.full(q, theta)])
    margins = sparse.hstack(
        [sparse.csc_array(-y[:, None] * np.column_stack([X, np.ones(q)])), -sparse.eye_array(q)]
    )
    nonnegative = sparse.hstack([sparse.csc_array((q, p + 1)), -sparse.eye_array(q)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    solver = clarabel.DefaultSolver(
        quadratic,
        linear,
        sparse.vstack([margins, nonnegative]).tocsc(),
        np.concatenate([-np.ones(q), np.zeros(q)]),
        [clarabel.NonnegativeConeT(2 * q)],
        settings,
    )
    return np.array(solver.solve().x)[: p + 1]


@pytest.mark.parametrize("seed", range(20))
def test_twenty_small_problems_have_the_solution_that_clarabel_finds(seed: int) -> None:
    X, y = mixed(seed, 20 + 7 * seed, 1 + seed % 6)
    theta, rho = (0.1, 1.0, 3.0)[seed % 3], (0.01, 0.1, 1.0, 0.03)[seed % 4]
    model = RegularizedSVM(theta=theta, rho=rho).fit(X, y)
    ours = np.append(model.coef_, model.intercept_)
    assert ours == pytest.approx(clarabel_solution(X, y, theta, rho), abs=1e-9)
