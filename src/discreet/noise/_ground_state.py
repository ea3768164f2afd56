"""The positive function of least energy on an interval: the square root of the least informative density.

Among all densities ``u**2`` on an interval, the one that minimizes Fisher information plus a multiple of
the mean square belongs to the lowest solution of ``-u'' + q (x + shift)**2 u = mu u`` with ``u = 0`` at both
ends. It is found here as a polynomial, by a Galerkin method in differences of Legendre polynomials, in
which the stiffness matrix is the identity. Taking the *largest* eigenvalue of ``M v = nu H v`` keeps the
digits that the smallest one of ``H v = mu M v`` would lose.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import legendre
from scipy.linalg import eigh

from discreet.errors import NoiseError

if TYPE_CHECKING:
    from discreet._typing import Floats

SIZES = (16, 24, 32, 48, 64, 96, 128, 192)
DIGITS = 64
"""Coefficients are multiples of 2**-DIGITS, so that the polynomial is a finite object with an exact law."""
_STABLE = 1e-12
_SMALL = 1e-14


class GroundState(NamedTuple):
    """A polynomial ``u = sum of pairs[k] (P_k - P_{k+2})`` on [-1, 1], its square of mass 1 up to rounding.

    ``pairs`` are multiples of ``2**-DIGITS``; ``u`` vanishes at both ends exactly. ``eigenvalue`` is that of
    the equation in the variable of [-1, 1]; ``change`` is how far it moved, relatively, when the basis was
    last enlarged; ``tail`` is the largest of the last coefficients.
    """

    pairs: Floats
    eigenvalue: float
    change: float
    tail: float


@lru_cache(maxsize=64)
def rule(nodes: int) -> tuple[Floats, Floats]:
    """Gauss-Legendre nodes and weights on [-1, 1]."""
    return legendre.leggauss(nodes)


@lru_cache(maxsize=64)
def basis(size: int) -> Floats:
    """Legendre coefficients of ``(P_k - P_{k+2}) / sqrt(4 k + 6)``, one row each."""
    k = np.arange(size)
    out = np.zeros((size, size + 2))
    out[k, k] = 1 / np.sqrt(4 * k + 6)
    out[k, k + 2] = -out[k, k]
    return out


@lru_cache(maxsize=64)
def mass_matrix(size: int) -> Floats:
    """Integrals of products of two basis functions."""
    b = basis(size)
    return np.asarray((b * (2 / (2 * np.arange(size + 2) + 1))) @ b.T)


@lru_cache(maxsize=64)
def moment_matrix(size: int, power: int) -> Floats:
    """Integrals of ``x**power`` times products of two basis functions."""
    x, w = rule(size + 3 + power)
    values = legendre.legval(x, basis(size).T)
    return np.asarray((values * (w * x**power)) @ values.T)


def solve(shift: float, strength: float) -> GroundState:
    """Return the ground state of ``-u'' + strength (x + shift)**2 u`` on [-1, 1].

    A negative ``shift`` is the mirror image of a positive one, digit by digit.
    """
    state = _solve(abs(shift), strength)
    if shift >= 0:
        return state
    return state._replace(pairs=state.pairs * (-1.0) ** np.arange(state.pairs.size))


@lru_cache(maxsize=256)
def _solve(shift: float, strength: float) -> GroundState:
    before = math.inf
    for size in SIZES:
        eigenvalue, vector = _lowest(size, shift, strength)
        change = abs(eigenvalue / before - 1)
        tail = float(np.max(np.abs(vector[-4:])))
        if change < _STABLE and tail < _SMALL:
            return GroundState(_on_grid(vector, shift), eigenvalue, change, tail)
        before = eigenvalue
    raise NoiseError(
        "The density of least Fisher information did not converge: its support is too wide for its "
        "regularization. Narrow the support, or use a Gaussian, which it is close to."
    )


def _lowest(size: int, shift: float, strength: float) -> tuple[float, Floats]:
    mass = mass_matrix(size)
    stiffness = np.eye(size)
    # What the potential has everywhere is added to the eigenvalue afterwards: it only costs digits here.
    least = max(0.0, shift - 1) ** 2
    if strength > 0:
        potential = moment_matrix(size, 2) + 2 * shift * moment_matrix(size, 1) + (shift**2 - least) * mass
        stiffness = stiffness + strength * potential
    nu, vectors = eigh(mass, stiffness, subset_by_index=[size - 1, size - 1])
    vector = vectors[:, 0] / math.sqrt(float(vectors[:, 0] @ mass @ vectors[:, 0]))
    return 1 / float(nu[0]) + strength * least, vector * math.copysign(1.0, vector[0])


def _on_grid(vector: Floats, shift: float) -> Floats:
    """Return the coefficients of ``P_k - P_{k+2}`` on the digit grid; symmetric if the equation is."""
    k = np.arange(vector.size)
    scaled = vector / np.sqrt(4 * k + 6)
    if shift == 0:
        scaled[1::2] = 0.0
    scaled = np.ldexp(np.rint(np.ldexp(scaled, DIGITS)), -DIGITS)
    return scaled[: int(np.flatnonzero(scaled)[-1]) + 1]
