"""The noise itself: two equations, the law on what they leave free, and the same bits as a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import linalg

from discreet.errors import DataError
from discreet.noise import NormalSampler, Stream, standard_normal
from discreet.release.invariant import InvariantNoise
from discreet.release.invariant import _noise as module
from discreet.release.invariant._noise import orthonormal_basis

if TYPE_CHECKING:
    from discreet._types import Floats


def normals(seed: int, *shape: int) -> Floats:
    return standard_normal(shape, Stream.from_seed(seed))


def sparse_derivatives(n_rows: int, every: int = 9) -> Floats:
    c = normals(1, n_rows, 1)
    c[np.arange(n_rows) % every != 0] = 0.0
    return c


@pytest.mark.parametrize("variance", [1.0, 100.0, 1e4])
@pytest.mark.parametrize("outputs", [1, 3])
def test_both_equations_hold_to_rounding_errors(variance: float, outputs: int) -> None:
    C, F = normals(2, 5000, outputs), normals(3, 20, outputs)
    W = InvariantNoise(C, F, variance).draw(Stream.from_seed(4))
    sd = np.sqrt(variance)
    assert np.abs(W @ F).max() <= 1e-10 * sd * np.linalg.norm(F)
    assert np.abs(C.T @ W).max() <= 1e-9 * sd * np.abs(C).sum(axis=0).max()
    assert 0.9 * sd < W.std() < 1.1 * sd


def by_nullspace(C: Floats, F: Floats, G: Floats) -> Floats:
    """Project onto the null space of the paper's Omega, written out as one big matrix."""
    q, p = G.shape
    omega = np.vstack([np.kron(C.T, np.eye(p)), np.kron(np.eye(q), F.T)])
    basis = linalg.null_space(omega, rcond=1e-12)
    return np.asarray((basis @ (basis.T @ G.reshape(-1))).reshape(q, p))


@pytest.mark.parametrize(
    ("C", "F"),
    [
        (normals(5, 7, 1), normals(6, 5, 1)),
        (normals(5, 6, 2), normals(6, 7, 2)),
        (normals(5, 7, 1), np.zeros((4, 1))),  # a = 0
        (np.eye(6)[:, :1], normals(6, 3, 1)),  # a single support vector
        (normals(5, 7, 1), np.ones((1, 1))),  # one column
        (np.zeros((5, 1)), normals(6, 4, 1)),  # no row counts
    ],
)
def test_the_two_projections_are_the_projection_on_the_null_space(C: Floats, F: Floats) -> None:
    noise = InvariantNoise(C, F, 1.0)
    G = np.empty((len(C), len(F)))
    NormalSampler(G.size, Stream.from_seed(7).spawn().derive("rows from 0")).fill(G)
    W = noise.draw(Stream.from_seed(7))
    assert np.abs(W - by_nullspace(C, F, G)).max() < 1e-14
    q, p = G.shape
    assert noise.dimension == (q - np.linalg.matrix_rank(C)) * (p - np.linalg.matrix_rank(F))


@pytest.mark.parametrize("n_draws", [4000, pytest.param(20_000, marks=pytest.mark.stats)])
def test_a_row_has_the_covariance_that_is_claimed_and_not_the_full_one(n_draws: int) -> None:
    C, F, scales = normals(8, 6, 1), normals(9, 3, 1), np.array([1.0, 10.0, 0.1])
    noise = InvariantNoise(C, F, 4.0, scales=scales)
    stream = Stream.from_seed(10)
    draws = np.array([noise.draw(stream.derive(str(k))) for k in range(n_draws)])
    tolerance = 4.5 * np.sqrt(2 / n_draws)  # standard deviations of a sample variance
    assert noise.leverage == pytest.approx(C[:, 0] ** 2 / (C**2).sum())
    for row in range(6):
        claimed = noise.covariance(row)
        seen = draws[:, row].T @ draws[:, row] / n_draws
        size = np.sqrt(np.outer(np.diag(claimed), np.diag(claimed)))
        assert np.abs((seen - claimed) / size).max() < tolerance
        assert np.trace(claimed) == pytest.approx((1 - noise.leverage[row]) * noise.row_variance, rel=1e-12)
    # Without the share that the gradient takes, the same check fails.
    row = int(np.argmax(noise.leverage))
    without = noise.covariance(row) / (1 - noise.leverage[row])
    seen = draws[:, row].T @ draws[:, row] / n_draws
    assert np.abs(seen / without - 1).max() > tolerance


def test_the_row_trace_is_the_formula_of_the_anisotropic_cap() -> None:
    F, scales = normals(9, 5, 1), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    noise = InvariantNoise(np.zeros((3, 1)), F, 7.0, scales=scales)
    b, S = scales * F[:, 0], np.diag(scales**2)
    assert noise.row_variance == pytest.approx(7 * (np.trace(S) - b @ S @ b / (b @ b)), rel=1e-13)
    assert np.linalg.norm(noise.covariance(0) @ F) < 1e-12


@pytest.mark.parametrize("derivatives", [normals(1, 3001, 2), sparse_derivatives(3001), np.zeros((3001, 1))])
@pytest.mark.parametrize("outward", [False, True])
def test_a_stream_of_batches_gets_the_same_bits(
    derivatives: Floats, outward: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK", 1000)
    F = normals(3, 7, derivatives.shape[1])
    away = np.where(derivatives.any(axis=1), 0.0, 1.0) if outward else None
    noise = InvariantNoise(derivatives, F, 9.0, scales=np.arange(1.0, 8.0), outward=away)
    X = normals(4, 3001, 7)
    whole = X + noise.draw(Stream.from_seed(5))
    for cuts in ([1, 2, 1500, 3000], [142, 143], []):
        parts = list(noise.add(np.split(X, cuts), Stream.from_seed(5)))
        assert np.array_equal(np.concatenate(parts), whole)
    assert not np.array_equal(X + noise.draw(Stream.from_seed(6)), whole)


@pytest.mark.parametrize("n_rows", [49, 51])
def test_a_stream_of_another_length_is_refused(n_rows: int) -> None:
    noise = InvariantNoise(normals(1, 50, 1), normals(2, 4, 1), 1.0)
    with pytest.raises(DataError, match="50 rows in all"):
        list(noise.add([np.zeros((n_rows, 4))], Stream.from_seed(1)))


def test_blocks_that_hold_no_leaned_on_row_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK", 100)
    C = np.zeros((8000, 1))
    C[:3] = 1.0
    noise = InvariantNoise(C, normals(2, 10, 1), 1.0)
    filled: list[int] = []
    fill = NormalSampler.fill

    def counted(self: NormalSampler, out: Floats) -> None:
        filled.append(out.size)
        fill(self, out)

    monkeypatch.setattr(NormalSampler, "fill", counted)
    list(noise.add([np.zeros((8000, 10))], Stream.from_seed(1)))
    assert sum(filled) == 80_000 + 8 * 100


def test_outward_moves_keep_the_sign_and_follow_the_maxwell_law() -> None:
    n = 20_000
    C = sparse_derivatives(n)
    away = np.where(C[:, 0] == 0, np.where(np.arange(n) % 2, 1.0, -1.0), 0.0)
    a, scales = normals(3, 4, 1), np.array([1.0, 2.0, 0.5, 3.0])
    W = InvariantNoise(C, a, 25.0, scales=scales, outward=away).draw(Stream.from_seed(4))
    moved = (W @ a)[:, 0] / np.linalg.norm(scales * a[:, 0])
    assert (moved[away > 0] > 0).all()
    assert (moved[away < 0] < 0).all()
    assert np.abs(moved[away == 0]).max() < 1e-10
    assert np.mean(moved[away != 0] ** 2) == pytest.approx(3 * 25, rel=0.03)
    assert np.abs(C.T @ W).max() < 1e-9


def test_a_direction_counts_however_small_its_numbers_are() -> None:
    big, small = normals(1, 40, 1), normals(2, 40, 1)
    basis = orthonormal_basis(np.hstack([big * 1e150, small * 1e-150]))
    assert basis.shape == (40, 2)
    assert np.abs(basis.T @ basis - np.eye(2)).max() < 1e-14
    assert orthonormal_basis(np.hstack([big, 3 * big, np.zeros((40, 1))])).shape == (40, 1)
