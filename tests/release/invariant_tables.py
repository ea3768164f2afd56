"""Tables and an independent solver for the tests of the invariant release."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer

from discreet import datasets
from discreet.noise import Stream, standard_normal
from discreet.release.invariant import InvariantRelease
from discreet.release.invariant.plan import encoded_rows, encoded_schema
from discreet.tables import open_table

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats


@cache
def wdbc() -> tuple[Floats, AnyArray]:
    """569 patients, 30 raw features; malignant is +1."""
    X, y = load_breast_cancer(return_X_y=True)
    return X, np.where(y == 0, 1, -1)


@cache
def census(n_rows: int | None = None) -> tuple[Floats, AnyArray]:
    """Adult: numbers scaled by their declared bounds, categories as one column for each level."""
    data = datasets.load("census")
    with open_table(data.path) as table:
        batches = list(table.batches(data.schema))
    rows = {c.name: np.concatenate([b[c.name] for b in batches])[:n_rows] for c in data.schema.released}
    encoded = encoded_rows(data.schema, rows)
    features = encoded_schema(data.schema).numeric_features
    X = np.column_stack([(encoded[c.name] - c.range[0]) / c.width for c in features])
    assert data.schema.target is not None
    return X, np.where(rows[data.schema.target] == 1, 1, -1)


@cache
def random_table(n_rows: int = 200, n_columns: int = 12) -> tuple[Floats, AnyArray]:
    """Two overlapping clouds."""
    z = standard_normal((n_rows, n_columns), Stream.from_seed(11))
    y = np.where(z[:, 0] + 0.5 * z[:, 1] + standard_normal(n_rows, Stream.from_seed(12)) > 0.2, 1, -1)
    return z, y


def numbers_table() -> tuple[Floats, Floats]:
    """Rows and a number that is nearly linear in them."""
    X, _ = random_table()
    return X, X @ np.arange(12.0) + 5 + standard_normal(len(X), Stream.from_seed(6))


def two_clouds(seed: int) -> tuple[Floats, AnyArray]:
    """The paper's illustrative example: 50 rows around the origin, 50 around (0, 5)."""
    z = standard_normal((100, 2), Stream.from_seed(seed))
    z[50:, 1] += 5
    return z, np.repeat([1, -1], 50)


def d20() -> tuple[Floats, AnyArray]:
    """Twenty rows that anybody can write down."""
    i = np.arange(1, 21)
    X = np.column_stack([2 * np.sin(i), 2 * np.cos(i**2)])
    return X, np.where(X[:, 0] + 0.5 * X[:, 1] + 0.6 * np.sin(5 * i) > 0, 1, -1)


def clarabel_svm(X: Floats, y: AnyArray, theta: float, rho: float) -> tuple[Floats, float]:
    """Solve the paper's problem (2) as it stands with a solver that shares no line with ours."""
    clarabel: Any = importlib.import_module("clarabel")
    n, p = X.shape
    quadratic = sparse.diags(np.concatenate([np.ones(p), np.full(1 + n, rho)])).tocsc()
    linear = np.concatenate([np.zeros(p + 1), np.full(n, theta)])
    margins = sparse.hstack([-(y[:, None] * np.column_stack([X, np.ones(n)])), -sparse.eye(n)])
    positive = sparse.hstack([sparse.csc_matrix((n, p + 1)), -sparse.eye(n)])
    settings: Any = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    solver: Any = clarabel.DefaultSolver(
        quadratic,
        linear,
        sparse.vstack([margins, positive]).tocsc(),
        np.concatenate([-np.ones(n), np.zeros(n)]),
        [clarabel.NonnegativeConeT(2 * n)],
        settings,
    )
    x = np.array(solver.solve().x)
    return x[:p], float(x[p])


def released_rows(X: Floats, y: AnyArray, **settings: Any) -> Floats:
    """Release with a support vector machine and a seed, unless something else is asked for."""
    given = {"learner": "svm", "variance": 100.0, "bounds": (-5e3, 5e3), "random_state": 1, **settings}
    return InvariantRelease(**given).release(X, y).data
