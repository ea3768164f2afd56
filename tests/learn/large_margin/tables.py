"""Small tables in the unit ball, and second derivatives written down as the theorem has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.learn.large_margin._problem import MarginProblem, squares_of
from discreet.noise import Stream

if TYPE_CHECKING:
    from discreet._types import Floats, Ints

FOUR = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0], [0.5, 0.5]])
FOUR_CODES = np.array([0, 1, 2, 0])


def four() -> Floats:
    """Return the four rows of the reference values, embedded with R = 2 and a = sqrt(1/2)."""
    return np.asarray(np.hstack([FOUR / 2, np.ones((4, 1))]) * np.sqrt(0.5))


def unit_rows(n: int, p: int, seed: int) -> Floats:
    """Return rows of norm 1 in every direction."""
    rows = Stream.from_seed(seed).generator().standard_normal((n, p))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def codes(n: int, n_classes: int, seed: int) -> Ints:
    """Return classes."""
    return np.asarray(Stream.from_seed(seed + 1000).generator().integers(n_classes, size=n))


def problem(rows: Floats, labels: Ints, n_classes: int, **rest: Any) -> MarginProblem:
    """Return a problem with a regularization of 1 and a smoothing of 1/2 by default."""
    given = {"regularization": 1.0, "smoothing": 0.5, **rest}
    return MarginProblem(rows, np.asarray(labels), n_classes=n_classes, **given)


def whole_hessian(of: MarginProblem, coordinates: Floats) -> Floats:
    """Return second derivatives by all coordinates of all matrices, one component for each class."""
    squares = squares_of(of.squares.rows)
    k, d = coordinates.shape
    total = of.regularization * np.eye(k * d)
    for s, y in zip(squares, of.codes, strict=True):
        far = coordinates @ s
        for c in range(k):
            if c != y and abs(1 + far[y] - far[c]) < of.smoothing:
                e = np.eye(k)[y] - np.eye(k)[c]
                total += np.kron(np.outer(e, e), np.outer(s, s)) / (2 * of.smoothing)
    return np.asarray(total)


def hessian(of: MarginProblem, w: Floats) -> Floats:
    """Return second derivatives by the coordinates of matrices that sum to zero."""
    lift = np.kron(of.basis.T, np.eye(of.squares.dimension))
    return np.asarray(lift.T @ whole_hessian(of, of.spread(w)) @ lift)
