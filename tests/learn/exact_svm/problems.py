"""Tables on which the solver is tried: with known answers, and hard ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_breast_cancer

from discreet.noise import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import Floats


def twenty() -> tuple[Floats, Floats]:
    """Return twenty rows given by a formula, nine of them positive."""
    i = np.arange(1.0, 21.0)
    X = np.column_stack([2 * np.sin(i), 2 * np.cos(i**2)])
    return X, np.where(X[:, 0] + 0.5 * X[:, 1] + 0.6 * np.sin(5 * i) > 0, 1.0, -1.0)


def tumors(scaling: str) -> tuple[Floats, Floats]:
    """Return the Wisconsin breast cancer table, +1 for malignant."""
    bunch = load_breast_cancer()
    X, y = np.asarray(bunch.data, np.float64), np.where(bunch.target == 0, 1.0, -1.0)
    if scaling == "[0,1]":
        X = (X - X.min(axis=0)) / np.ptp(X, axis=0)
    elif scaling == "std":
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, y


def mixed(seed: int, q: int, p: int) -> tuple[Floats, Floats]:
    """Return two overlapping classes."""
    noise = Stream.from_seed(seed).generator()
    X = noise.standard_normal((q, p))
    y = np.where(X @ np.linspace(1, 0, p) + 0.5 * noise.standard_normal(q) > 0, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return X, y


def hard(seed: int) -> Iterator[tuple[str, Floats, Floats]]:
    """Yield tables with ties, repeated rows, no information, few rows, many columns, wild units."""
    noise = Stream.from_seed(seed).generator()

    def normal(*shape: int) -> Floats:
        return noise.standard_normal(shape)

    def labels(X: Floats) -> Floats:
        y = np.where(X[:, 0] + 0.3 * normal(len(X)) > 0, 1.0, -1.0)
        y[:2] = 1.0, -1.0
        return y

    X = normal(30, 3)
    yield "generic", X, labels(X)
    yield "one class", X, np.ones(30)
    X = np.round(normal(40, 2))
    yield "ties", X, labels(X)
    X = np.repeat(normal(10, 3), 4, axis=0)
    yield "duplicates", X, labels(X)
    yield "duplicates that agree", X, np.where(X[:, 0] > 0, 1.0, -1.0)
    yield "zero rows", np.zeros((12, 3)), np.where(np.arange(12) < 5, 1.0, -1.0)
    yield "zero rows, balanced", np.zeros((12, 3)), np.where(np.arange(12) < 6, 1.0, -1.0)
    yield "one row", normal(1, 3), np.ones(1)
    yield "two rows", normal(2, 3), np.array([1.0, -1.0])
    yield "two equal rows", np.ones((2, 2)), np.array([1.0, -1.0])
    X = normal(25, 1)
    yield "one column", X, labels(X)
    X = normal(5, 20)
    yield "more columns than rows", X, labels(X)
    X = np.column_stack([normal(30, 2), np.ones(30), np.full(30, 7.0)])
    yield "constant columns", X, labels(X)
    X = normal(30, 3) * np.array([1e-4, 1.0, 1e4])
    yield "wild units", X, labels(X / np.array([1e-4, 1.0, 1e4]))
    X = noise.integers(0, 2, (60, 5)).astype(np.float64)
    yield "zeros and ones", X, labels(X - 0.5)
    X = normal(40, 2)
    X[:, 0] += 10 * np.sign(X[:, 0])
    yield "separable", X, np.sign(X[:, 0])
    X = normal(30, 2)
    yield "far from the origin", 1e3 + X, labels(X)
