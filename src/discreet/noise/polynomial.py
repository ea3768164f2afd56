"""The positive function of least energy on an interval: the square root of the least informative density.

Among all densities ``u**2`` on an interval, the one that minimizes Fisher information plus a multiple of
the mean square belongs to the lowest solution of ``-u'' + q (x + shift)**2 u = mu u`` with ``u = 0`` at both
ends. It is found here as a polynomial, by a Galerkin method in differences of Legendre polynomials, in
which the stiffness matrix is the identity. Taking the *largest* eigenvalue of ``M v = nu H v`` keeps the
digits that the smallest one of ``H v = mu M v`` would lose.

Exact deviates of a density that is the square of a polynomial.

The density on [0, 1] is proportional to ``u(t)**2`` with ``u`` a polynomial whose coefficients are dyadic
rationals: a finite object. It is cut into 1,024 buckets; a bucket is proposed with a probability ``p`` that
is a multiple of 2**-128, a uniform offset inside it is accepted with probability ``kappa u(t)**2 / p``, and
``kappa`` is chosen so that this never exceeds 1. As ``kappa`` does not depend on the bucket and ``p`` is
the very number proposed with, accepted deviates have the density *exactly*: nothing is left to a total
variation. Comparisons are made on as many digits as decide them (:mod:`discreet.noise.lattice`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.polynomial import legendre
from scipy.linalg import eigh

from discreet.errors import NoiseError
from discreet.noise.lattice import DeviateTable

if TYPE_CHECKING:
    from discreet._types import AnyArray, Bools, Floats, Ints, Words
    from discreet.noise.lattice import Tail
    from discreet.noise.stream import Stream

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


LOG2_BUCKETS = 10
_BUCKETS = 1 << LOG2_BUCKETS
_TERMS = 12
_WHOLE = 1 << 128
_SLOTS = 1 << 16
# Twelve terms by Horner's rule, their coefficients and the offset rounded to 53 bits: below 2**-44 for
# values up to 1, squared; a factor of 16 is left.
_MARGIN = 2.0**-40


@dataclass(frozen=True, eq=False)
class PolynomialTable(DeviateTable):
    """Proposal and acceptance probabilities of one squared polynomial.

    ``u`` is held as integers ``weights`` in the variable ``tau`` that counts half buckets:
    ``u = sum of weights[j] tau**j`` up to a constant. ``local[i, h]`` times ``s**i`` sums to the root of the
    acceptance probability, ``s`` in [-1, 1] being the place in bucket ``h``, up to ``margin[h]``.
    """

    weights: tuple[int, ...]
    local: Floats
    margin: Floats
    heights: Floats
    """Root of the density over the root of the acceptance probability, for each bucket."""
    scales: tuple[Fraction, ...]
    """Acceptance probability over squared ``sum of weights[j] tau**j``, for each bucket."""

    def settle(
        self, slot: AnyArray, lot: AnyArray, offset: Words, more: Words, ties: Stream
    ) -> tuple[Ints, Bools, dict[int, Tail]]:
        """Find place and verdict of proposals that were not accepted at sight."""
        first, second, third = more
        entry = self.slots[slot]
        place = entry >> 16
        shared = np.flatnonzero((entry & 0xFFFF) == 0)
        place[shared] = self.places(slot[shared], first[shared], second[shared])
        probability = self.acceptance(place, offset)
        number = lot * 2.0**-16 + third * 2.0**-80
        margin = self.margin[place]
        accepted = number < probability - margin
        tails = {}
        for i in np.flatnonzero(accepted != (number < probability + margin)):
            digits = int(lot[i]) << 64 | int(third[i])
            accepted[i], tail = self.decide(int(place[i]), int(offset[i]), digits, ties)
            if accepted[i]:
                tails[int(i)] = tail
        return place, accepted, tails

    def acceptance(self, place: Ints, offset: Words) -> Floats:
        """Return acceptance probabilities in double precision, each within the margin of its bucket."""
        return np.square(self._roots(place, np.asarray(offset * 2.0**-63 - 1.0, np.float64)))

    def _roots(self, place: Ints, s: Floats) -> Floats:
        """Signed roots of the acceptance probabilities, ``s`` in [-1, 1] being the place in the bucket."""
        root = self.local[-1, place]
        for row in self.local[-2::-1]:
            root = root * s + row[place]
        return np.asarray(root)

    def value(self, place: Ints, s: Floats) -> Floats:
        """Return ``u`` itself, its square of mass 1 on [0, 1], to 2**-44 of the bucket's largest value."""
        return self._roots(place, s) * self.heights[place]

    def suprema(self) -> Floats:
        """Bound ``|u|``, ``|u'|`` and ``|u''|`` on each bucket, in the variable of [0, 1]; three rows."""
        power = np.arange(self.local.shape[0])[:, np.newaxis]
        terms = np.abs(self.local) * self.heights
        half = 0.5 / _BUCKETS
        # The margin covers what is left out. Those terms fall by a factor of 40 each up to degree 100, so
        # that two derivatives multiply their sum by less than 16**2.
        rest = 256 * self.margin * self.heights
        return np.stack(
            [
                terms.sum(axis=0) + rest,
                (power * terms).sum(axis=0) / half + rest / half,
                (power * (power - 1) * terms).sum(axis=0) / half**2 + rest / half**2,
            ]
        )

    def decide(self, place: int, offset: int, number: int, ties: Stream) -> tuple[bool, Tail]:
        """Compare an 80-digit acceptance number with the exact probability, drawing digits until decided."""
        # Around the bucket's center, |u| moves by less than `steep` per half bucket.
        around = taylor(self.weights, np.array([2 * place + 1], dtype=object), len(self.weights))
        terms = [int(a) for a in around[:, 0]]
        steep = sum(i * abs(a) for i, a in enumerate(terms))
        extra = 0
        while True:
            s = Fraction(offset, 1 << (63 + extra)) - 1
            root = Fraction(0)
            for a in reversed(terms):
                root = root * s + a
            size, blur = abs(root), Fraction(steep, 1 << (63 + extra))
            least = max(size - blur, Fraction(0))
            tail = (offset & (1 << extra) - 1, extra)
            if Fraction(number + 1, 1 << (80 + extra)) <= self.scales[place] * least**2:
                return True, tail
            if Fraction(number, 1 << (80 + extra)) >= self.scales[place] * (size + blur) ** 2:
                return False, tail
            offset = offset << 64 | ties.integer(64)
            number = number << 64 | ties.integer(64)
            extra += 64


def coefficients_of_legendre(pairs: tuple[float, ...]) -> list[int]:
    """Return ``b`` with ``sum of pairs[k] (P_k - P_{k+2}) = sum of b[k] P_k / 2**DIGITS``, exactly."""
    whole = [int(Fraction(a) * (1 << DIGITS)) for a in pairs] + [0, 0]
    return [a - (whole[k - 2] if k >= 2 else 0) for k, a in enumerate(whole)]


def monomials(pairs: tuple[float, ...]) -> list[int]:
    """Return ``c`` with the same polynomial at ``2 t - 1`` equal to ``sum of c[j] t**j / 2**DIGITS``."""
    series = coefficients_of_legendre(pairs)
    # P_k(2 t - 1) = sum over j of (-1)**(k + j) C(k, j) C(k + j, j) t**j
    return [
        sum(
            (-1) ** (k + j) * b * math.comb(k, j) * math.comb(k + j, j)
            for k, b in enumerate(series)
            if k >= j and b
        )
        for j in range(len(series))
    ]


def taylor(weights: tuple[int, ...], center: AnyArray, terms: int) -> AnyArray:
    """Expand ``sum of weights[j] tau**j`` around integer centers: exact integers, one row per power."""
    out = np.zeros((terms, center.size), dtype=object)
    for weight in reversed(weights):
        # Horner's rule for the value and all derivatives over factorials at once.
        out[1:] = out[1:] * center + out[:-1]
        out[0] = out[0] * center + weight
    return out


@lru_cache(maxsize=32)
def polynomial_table(pairs: tuple[float, ...]) -> PolynomialTable:
    """Tabulate the density ``(sum of pairs[k] (P_k - P_{k+2}))**2`` on [-1, 1], seen as [0, 1]."""
    coefficients = monomials(pairs)
    degree = len(coefficients) - 1
    weights = tuple(c << ((LOG2_BUCKETS + 1) * (degree - j)) for j, c in enumerate(coefficients))
    around = taylor(weights, 2 * np.arange(_BUCKETS).astype(object) + 1, _TERMS + 1)
    series = coefficients_of_legendre(pairs)
    rest = _rest(series, degree)
    spread = np.abs(around[1:]).sum(axis=0) + rest
    most = (np.abs(around[0]) + spread) ** 2
    least = np.maximum(np.abs(around[0]) - spread, 0) ** 2
    # The bound of a bucket, rounded up to a share of 2**128, is what it is proposed with; what is left over
    # goes to one bucket, whose offsets are then accepted a little less often.
    total = int(most.sum())
    spare = _WHOLE - 2 * _BUCKETS
    shares = [-(-int(m) * spare // total) for m in most]
    shares[int(np.argmax(shares))] += _WHOLE - sum(shares)
    scales = tuple(Fraction(spare, total * share) for share in shares)
    # sqrt(scale) = sqrt(spare / share) / sqrt(total); the last root has hundreds of digits.
    unit = math.isqrt(total)
    roots = np.array([math.sqrt(spare / share) for share in shares])
    least_chance = [
        min(_SLOTS - 1, int(scale * int(m) * _SLOTS)) for scale, m in zip(scales, least, strict=True)
    ]
    ends = [int(t) for t in np.cumsum(np.array(shares, dtype=object))]
    return PolynomialTable(
        half=0,
        slots=_slots(ends, np.array(least_chance)),
        thresholds=tuple(ends[:-1]),
        high=np.array([min(t >> 64, (1 << 64) - 1) for t in ends[:-1]], np.uint64),
        weights=weights,
        local=(around / unit).astype(np.float64) * roots,
        margin=_MARGIN + np.minimum(4 * (rest / unit) * roots, 1.0),
        heights=(unit / _norm(series, degree)) / roots,
        scales=scales,
    )


def _norm(series: list[int], degree: int) -> int:
    """Return the root of the integral of ``u**2`` over [0, 1], in units of the weights."""
    mass = sum((Fraction(b * b, 2 * k + 1) for k, b in enumerate(series)), Fraction(0))
    return math.isqrt(int(mass * (1 << (2 * (LOG2_BUCKETS + 1) * degree))))


def _rest(series: list[int], degree: int) -> int:
    """Bound the sum of all Taylor coefficients past the ones in the table.

    No derivative of a Legendre polynomial is larger inside the interval than at its right end.
    """
    return sum(
        abs(b) * math.comb(k, i) * math.comb(k + i, i) << ((LOG2_BUCKETS + 1) * (degree - i))
        for k, b in enumerate(series)
        for i in range(_TERMS + 1, k + 1)
    )


def _slots(ends: list[int], least_chance: Ints) -> AnyArray:
    """Return bucket and sure acceptance of each 16-bit slot, 0 where it is shared by two buckets."""
    slot = np.arange(_SLOTS)
    place = np.searchsorted([-(-t >> 112) for t in ends], slot, side="right")
    alone = np.array([t >> 112 for t in ends])[place] > slot
    return np.where(alone, place << 16 | least_chance[place], 0).astype(np.int32)
