"""Speed and exactness of the support vector machine, against an interior-point solver on the same problem."""

from __future__ import annotations

import os
from typing import Any

import clarabel
import numpy as np
from measure import interleaved, save
from scipy import sparse
from threadpoolctl import threadpool_limits

from discreet import RegularizedSVM
from discreet.learn.exact_svm import _solver as solver
from discreet.learn.exact_svm._solver import SvmProblem
from discreet.noise import Stream

THETA, RHO = 1.0, 0.01


def table(q: int, p: int) -> tuple[Any, Any]:
    """Return two overlapping classes."""
    noise = Stream.from_seed(q + p).generator()
    X = noise.standard_normal((q, p))
    truth = noise.standard_normal(p)
    return X, np.where(X @ truth / np.linalg.norm(truth) + 0.5 * noise.standard_normal(q) > 0, 1.0, -1.0)


def ours(X: Any, y: Any) -> tuple[Any, Any]:
    """Return (a, b) and the multipliers."""
    model = RegularizedSVM(theta=THETA, rho=RHO).fit(X, y)
    return np.append(model.coef_, model.intercept_), np.abs(model.dual_coef_)


def theirs(X: Any, y: Any, tolerance: float) -> tuple[Any, Any]:
    """Return the same from Clarabel, given the problem as the paper states it."""
    q, p = X.shape
    quadratic = sparse.diags_array(np.concatenate([np.ones(p), np.full(1 + q, RHO)])).tocsc()
    linear = np.concatenate([np.zeros(p + 1), np.full(q, THETA)])
    rows = sparse.csc_array(-y[:, None] * np.column_stack([X, np.ones(q)]))
    margins = sparse.hstack([rows, -sparse.eye_array(q)])
    nonnegative = sparse.hstack([sparse.csc_array((q, p + 1)), -sparse.eye_array(q)])
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
    solution = clarabel.DefaultSolver(
        quadratic,
        linear,
        sparse.vstack([margins, nonnegative]).tocsc(),
        np.concatenate([-np.ones(q), np.zeros(q)]),
        [clarabel.NonnegativeConeT(2 * q)],
        settings,
    ).solve()
    return np.array(solution.x)[: p + 1], np.array(solution.z)[:q]


def exactness(X: Any, y: Any, z: Any, omega: Any) -> dict[str, float]:
    """Judge a solution by the textbook: objective and dual value in extended precision, KKT residual."""
    a, b = z[:-1], z[-1]
    t = 1 - y * (X @ a + b)
    wide = np.maximum(t, 0).astype(np.longdouble)
    primal = (np.sum(a.astype(np.longdouble) ** 2) + RHO * (b**2 + np.sum(wide**2))) / 2 + THETA * wide.sum()
    omega = np.maximum(omega, 0)
    c = omega * y
    pull, excess = X.T @ c, np.maximum(omega - THETA, 0).astype(np.longdouble)
    dual = omega.astype(np.longdouble).sum() - np.sum(pull.astype(np.longdouble) ** 2) / 2
    dual -= (c.sum() ** 2 + np.sum(excess**2)) / (2 * RHO)
    wanted = omega + THETA * t
    wanted = np.where(wanted <= THETA, np.maximum(wanted, 0), (RHO * wanted + THETA**2) / (THETA + RHO))
    return {
        "objective": float(primal),
        "relative_gap": float((primal - dual) / primal),
        "kkt_residual": float(np.abs(omega - wanted).max() / THETA),
        "stationarity": float(np.abs(np.append(pull - a, c.sum() - RHO * b)).max() / np.abs(c).sum()),
    }


def against_clarabel() -> dict[str, Any]:
    """Compare at q = 10,000 and p = 100."""
    X, y = table(10_000, 100)
    found: dict[str, tuple[Any, Any]] = {}

    def keep(name: str, method: Any) -> Any:
        def run() -> None:
            found[name] = method()

        return run

    seconds = interleaved(
        {
            "discreet": keep("discreet", lambda: ours(X, y)),
            "clarabel 1e-8": keep("clarabel 1e-8", lambda: theirs(X, y, 1e-8)),
            "clarabel 1e-12": keep("clarabel 1e-12", lambda: theirs(X, y, 1e-12)),
        },
        rounds=3,
    )
    judged = {name: exactness(X, y, *solution) for name, solution in found.items()}
    best = min(row["objective"] for row in judged.values())
    return {
        name: {
            "seconds": round(seconds[name], 3),
            "times_discreet": round(seconds[name] / seconds["discreet"], 1),
            "objective_above_best": judged[name].pop("objective") - best,
            **{key: float(f"{value:.2g}") for key, value in judged[name].items()},
        }
        for name in seconds
    }


def growth() -> dict[str, Any]:
    """Time 10^4, 10^5 and 10^6 rows of 20 columns in turn."""
    tables = {q: table(q, 20) for q in (10_000, 100_000, 1_000_000)}
    seconds = interleaved({str(q): lambda q=q: ours(*tables[q]) for q in tables}, rounds=3)
    per_row = {q: seconds[str(q)] / q for q in tables}
    return {
        "seconds": {str(q): round(seconds[str(q)], 3) for q in tables},
        "microseconds_per_row": {str(q): round(1e6 * per_row[q], 2) for q in tables},
        "time_per_row_at_1e6_over_1e4": round(per_row[1_000_000] / per_row[10_000], 2),
    }


def threads() -> dict[str, float]:
    """Compare one BLAS thread with as many as there are processors."""
    problem = SvmProblem(*table(10_000, 100), THETA, RHO)

    def with_threads(n: int) -> Any:
        def run() -> None:
            with threadpool_limits(limits=n, user_api="blas"):
                solver._augmented_lagrangian(problem)

        return run

    every = os.cpu_count() or 1
    seconds = interleaved({"one": with_threads(1), "all": with_threads(every)}, rounds=3)
    return {"processors": every, "processor_time_of_all_over_one": round(seconds["all"] / seconds["one"], 2)}


def main() -> dict[str, Any]:
    """Measure, print and save."""
    result = {"clarabel_q_1e4_p_100": against_clarabel(), "growth_p_20": growth(), "threads": threads()}
    for name, row in result["clarabel_q_1e4_p_100"].items():
        print(f"{name:16s} {row['seconds']:8.3f} s {row['times_discreet']:6.1f} x {row['relative_gap']:.1e}")
    print("growth:", result["growth_p_20"])
    print("threads:", result["threads"])
    save("exact_svm", result)
    return result


if __name__ == "__main__":
    main()
