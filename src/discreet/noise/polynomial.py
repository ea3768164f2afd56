"""The least informative density as a squared polynomial, and exact draws from it.

Ground state: among all densities ``u**2`` on an interval, the one that minimizes Fisher information plus a
multiple of the mean square belongs to the lowest solution of ``-u'' + q (x + shift)**2 u = mu u`` with
``u = 0`` at both ends. It is computed as a polynomial, by a Galerkin method in differences of Legendre
polynomials, in which the stiffness matrix of ``-u''`` is the identity. Taking the *largest* eigenvalue of
``M v = nu H v`` keeps the digits that the smallest one of ``H v = mu M v`` would lose.

Sampler: the density on [0, 1] is proportional to ``u(t)**2`` with ``u`` a polynomial whose coefficients are
dyadic rationals, a finite object. It is cut into 1,024 buckets; a bucket is proposed with a probability ``p``
that is a multiple of 2**-128, and a uniform offset inside it is accepted with probability ``kappa u(t)**2 /
p``, where ``kappa`` is chosen so that this never exceeds 1. As ``kappa`` does not depend on the bucket and
``p`` is exactly the proposal probability, accepted deviates have the density *exactly*: there is no total
variation. Comparisons draw as many digits as decide them (:mod:`discreet.noise.deviates`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy
from numpy.polynomial import legendre

from discreet.errors import NoiseError
from discreet.noise.deviates import DeviateTable

if TYPE_CHECKING:
    from discreet._types import AnyArray, Bools, Floats, Ints, Words
    from discreet.noise.deviates import Tail
    from discreet.noise.stream import Stream

SIZES = (16, 24, 32, 48, 64, 96, 128, 192)
"""Numbers of basis functions, tried in turn until the eigenvalue is stable."""
DIGITS = 64
"""Coefficients are multiples of 2**-DIGITS, so that the polynomial is a finite object with an exact law."""
#: Relative change of the eigenvalue below which it counts as stable.
_STABLE = 1e-12
#: Size of the last four coefficients below which the series counts as complete.
_SMALL = 1e-14
LOG2_BUCKETS = 10
"""log2 of the number of buckets on [0, 1]."""
_BUCKETS = 1 << LOG2_BUCKETS
#: Taylor terms kept around the center of a bucket, beside the constant.
_TERMS = 12
_WHOLE = 1 << 128
_SLOTS = 1 << 16
# Twelve terms by Horner's rule, their coefficients and the offset rounded to 53 bits: below 2**-44 for
# values up to 1, squared; a factor of 16 is left.
_MARGIN = 2.0**-40


class GroundState(NamedTuple):
    """Polynomial ``u = sum of pairs[k] (P_k - P_{k+2})`` on [-1, 1], its square of mass 1 up to rounding.

    Attributes
    ----------
    pairs : ndarray, shape (n,)
        Coefficients, multiples of ``2**-DIGITS``; u vanishes at both ends exactly.
    eigenvalue : float
        Lowest eigenvalue mu of the equation in the variable of [-1, 1].
    change : float
        Relative change of the eigenvalue when the basis was last enlarged.
    tail : float
        Largest absolute value among the last four coefficients.
    """

    pairs: Floats
    eigenvalue: float
    change: float
    tail: float


@lru_cache(maxsize=64)
def legendre_rule(nodes: int) -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes and weights on [-1, 1]."""
    return legendre.leggauss(nodes)


@lru_cache(maxsize=64)
def basis(size: int) -> Floats:
    """Return the Legendre coefficients of ``(P_k - P_{k+2}) / sqrt(4 k + 6)``, one row for each k.

    The functions vanish at both ends, and the integrals of products of their derivatives are the identity.
    """
    k = np.arange(size)
    out = np.zeros((size, size + 2))
    out[k, k] = 1 / np.sqrt(4 * k + 6)
    out[k, k + 2] = -out[k, k]
    return out


@lru_cache(maxsize=64)
def mass_matrix(size: int) -> Floats:
    """Return the integrals of products of two basis functions."""
    b = basis(size)
    return np.asarray((b * (2 / (2 * np.arange(size + 2) + 1))) @ b.T)


@lru_cache(maxsize=64)
def moment_matrix(size: int, power: int) -> Floats:
    """Return the integrals of ``x**power`` times products of two basis functions."""
    # Exact: the integrand has degree 2 (size + 1) + power.
    x, w = legendre_rule(size + 3 + power)
    values = legendre.legval(x, basis(size).T)
    return np.asarray((values * (w * x**power)) @ values.T)


def solve_ground_state(shift: float, strength: float) -> GroundState:
    """Return the ground state of ``-u'' + strength (x + shift)**2 u`` on [-1, 1].

    A negative ``shift`` gives the mirror image of a positive one, digit by digit.
    """
    state = _solve_nonnegative_shift(abs(shift), strength)
    if shift >= 0:
        return state
    return state._replace(pairs=state.pairs * (-1.0) ** np.arange(state.pairs.size))


@lru_cache(maxsize=256)
def _solve_nonnegative_shift(shift: float, strength: float) -> GroundState:
    """Return the ground state for ``shift >= 0``, with the first basis at which it is stable."""
    before = math.inf
    for size in SIZES:
        eigenvalue, vector = _lowest_eigenpair(size, shift, strength)
        change = abs(eigenvalue / before - 1)
        tail = float(np.max(np.abs(vector[-4:])))
        if change < _STABLE and tail < _SMALL:
            return GroundState(_round_coefficients(vector, shift), eigenvalue, change, tail)
        before = eigenvalue
    raise NoiseError(
        "The density of least Fisher information did not converge: its support is too wide for its "
        "regularization. Narrow the support, or use a Gaussian, which it is close to."
    )


def _lowest_eigenpair(size: int, shift: float, strength: float) -> tuple[float, Floats]:
    """Return the lowest eigenvalue mu, and the coefficients of u with mass 1 and a positive first one.

    Notes
    -----
    ``H = 1 + strength * (M_2 + 2 shift M_1 + shift^2 M)`` with mass matrix M and moment matrices M_k;
    ``mu = 1 / nu`` for the largest nu of ``M v = nu H v``.
    """
    mass = mass_matrix(size)
    stiffness = np.eye(size)
    # The least value of the potential is added to the eigenvalue afterwards: here it would cost digits.
    least = max(0.0, shift - 1) ** 2
    if strength > 0:
        potential = moment_matrix(size, 2) + 2 * shift * moment_matrix(size, 1) + (shift**2 - least) * mass
        stiffness = stiffness + strength * potential
    nu, vectors = scipy.linalg.eigh(mass, stiffness, subset_by_index=[size - 1, size - 1])
    vector = vectors[:, 0] / math.sqrt(float(vectors[:, 0] @ mass @ vectors[:, 0]))
    return 1 / float(nu[0]) + strength * least, vector * math.copysign(1.0, vector[0])


def _round_coefficients(vector: Floats, shift: float) -> Floats:
    """Return the coefficients of ``P_k - P_{k+2}``, rounded to 2**-DIGITS; even ones alone if shift is 0."""
    k = np.arange(vector.size)
    scaled = vector / np.sqrt(4 * k + 6)
    if shift == 0:
        scaled[1::2] = 0.0
    scaled = np.ldexp(np.rint(np.ldexp(scaled, DIGITS)), -DIGITS)
    return scaled[: int(np.flatnonzero(scaled)[-1]) + 1]


@dataclass(frozen=True, eq=False)
class PolynomialTable(DeviateTable):
    """Proposal and acceptance probabilities of one squared polynomial."""

    weights: tuple[int, ...]
    """Integers with ``u = sum of weights[j] tau**j`` up to a constant; ``tau`` counts half buckets."""
    local: Floats
    """``local[i, h] s**i`` sums to the root of the acceptance probability at ``s`` in [-1, 1] of bucket h."""
    margin: Floats
    """Bound on the error of the acceptance probability in double precision, for each bucket."""
    heights: Floats
    """Root of the density over the root of the acceptance probability, for each bucket."""
    scales: tuple[Fraction, ...]
    """Acceptance probability over squared ``sum of weights[j] tau**j``, for each bucket."""

    def settle(
        self, slot: AnyArray, lot: AnyArray, offset: Words, more: Words, ties: Stream
    ) -> tuple[Ints, Bools, dict[int, Tail]]:
        """Return bucket, verdict and further digits of proposals that the slot table did not accept."""
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
        """Return signed roots of the acceptance probabilities at ``s`` in [-1, 1] of each bucket."""
        root = self.local[-1, place]
        for row in self.local[-2::-1]:
            root = root * s + row[place]
        return np.asarray(root)

    def value(self, place: Ints, s: Floats) -> Floats:
        """Return ``u`` itself, its square of mass 1 on [0, 1], to 2**-44 of the bucket's largest value."""
        return self._roots(place, s) * self.heights[place]

    def suprema(self) -> Floats:
        """Return bounds on ``|u|``, ``|u'|``, ``|u''|`` in the variable of [0, 1]: three rows by bucket."""
        power = np.arange(self.local.shape[0])[:, np.newaxis]
        terms = np.abs(self.local) * self.heights
        half = 0.5 / _BUCKETS
        # The margin covers the terms left out. They fall by a factor of 40 each up to degree 100, so that two
        # derivatives multiply their sum by less than 16**2.
        rest = 256 * self.margin * self.heights
        return np.stack(
            [
                terms.sum(axis=0) + rest,
                (power * terms).sum(axis=0) / half + rest / half,
                (power * (power - 1) * terms).sum(axis=0) / half**2 + rest / half**2,
            ]
        )

    def decide(self, place: int, offset: int, number: int, ties: Stream) -> tuple[bool, Tail]:
        """Return whether an 80-bit number is below the exact probability, drawing bits until decided.

        The second value holds the bits of the offset that were drawn for the decision.
        """
        # Around the bucket's center, |u| changes by less than `steep` per half bucket.
        taylor = taylor_coefficients(self.weights, np.array([2 * place + 1], dtype=object), len(self.weights))
        terms = [int(a) for a in taylor[:, 0]]
        steep = sum(i * abs(a) for i, a in enumerate(terms))
        extra = 0
        while True:
            s = Fraction(offset, 1 << (63 + extra)) - 1
            root = Fraction(0)
            for a in reversed(terms):
                root = root * s + a
            # Undrawn digits move s by less than 2**-(63 + extra).
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


def legendre_coefficients(pairs: tuple[float, ...]) -> list[int]:
    """Return ``b`` with ``sum of pairs[k] (P_k - P_{k+2}) = sum of b[k] P_k / 2**DIGITS``, exactly."""
    integers = [int(Fraction(a) * (1 << DIGITS)) for a in pairs] + [0, 0]
    return [a - (integers[k - 2] if k >= 2 else 0) for k, a in enumerate(integers)]


def monomial_coefficients(pairs: tuple[float, ...]) -> list[int]:
    """Return ``c`` with the polynomial of these pairs at ``2 t - 1`` = ``sum of c[j] t**j / 2**DIGITS``."""
    series = legendre_coefficients(pairs)
    # P_k(2 t - 1) = sum over j of (-1)**(k + j) C(k, j) C(k + j, j) t**j
    return [
        sum(
            (-1) ** (k + j) * b * math.comb(k, j) * math.comb(k + j, j)
            for k, b in enumerate(series)
            if k >= j and b
        )
        for j in range(len(series))
    ]


def taylor_coefficients(weights: tuple[int, ...], center: AnyArray, terms: int) -> AnyArray:
    """Return the Taylor coefficients of ``sum of weights[j] tau**j`` at integer centers.

    They are exact integers, one row per power and one column per center.
    """
    out = np.zeros((terms, center.size), dtype=object)
    for weight in reversed(weights):
        # Horner's rule for the value and all derivatives over factorials at once.
        out[1:] = out[1:] * center + out[:-1]
        out[0] = out[0] * center + weight
    return out


@lru_cache(maxsize=32)
def polynomial_table(pairs: tuple[float, ...]) -> PolynomialTable:
    """Return the table of the density ``(sum of pairs[k] (P_k - P_{k+2}))**2`` on [-1, 1], mapped to [0, 1].

    Notes
    -----
    On bucket h, ``u^2`` is at most ``most[h] = (|a_0| + sum of |a_i|)^2``, a_i its Taylor coefficients. The
    bucket is proposed with ``share[h] >= most[h] * spare / total`` of 2**128. The acceptance probability is
    then ``u^2 * spare / (total * share[h])``, at most 1; all buckets have ``spare / total`` in common.
    """
    coefficients = monomial_coefficients(pairs)
    degree = len(coefficients) - 1
    # t is tau / 2**11; times 2**(11 degree) all coefficients are integers.
    weights = tuple(c << ((LOG2_BUCKETS + 1) * (degree - j)) for j, c in enumerate(coefficients))
    taylor = taylor_coefficients(weights, 2 * np.arange(_BUCKETS).astype(object) + 1, _TERMS + 1)
    series = legendre_coefficients(pairs)
    remainder = _remainder_bound(series, degree)
    variation = np.abs(taylor[1:]).sum(axis=0) + remainder
    most = (np.abs(taylor[0]) + variation) ** 2
    least = np.maximum(np.abs(taylor[0]) - variation, 0) ** 2
    # Shares are rounded up; what remains of 2**128 goes to one bucket, whose offsets are then accepted a
    # little less often.
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
        slots=_slot_table(ends, np.array(least_chance)),
        thresholds=tuple(ends[:-1]),
        high=np.array([min(t >> 64, (1 << 64) - 1) for t in ends[:-1]], np.uint64),
        weights=weights,
        # Quotients of Python integers round once, however many digits these have.
        local=(taylor / unit).astype(np.float64) * roots,
        margin=_MARGIN + np.minimum(4 * (remainder / unit) * roots, 1.0),
        heights=(unit / _norm(series, degree)) / roots,
        scales=scales,
    )


def _norm(series: list[int], degree: int) -> int:
    """Return the root of the integral of ``u**2`` over [0, 1], in units of the weights."""
    mass = sum((Fraction(b * b, 2 * k + 1) for k, b in enumerate(series)), Fraction(0))
    return math.isqrt(int(mass * (1 << (2 * (LOG2_BUCKETS + 1) * degree))))


def _remainder_bound(series: list[int], degree: int) -> int:
    """Return a bound on the sum of all Taylor coefficients past the ones in the table.

    No derivative of a Legendre polynomial is larger inside the interval than at its right end.
    """
    return sum(
        abs(b) * math.comb(k, i) * math.comb(k + i, i) << ((LOG2_BUCKETS + 1) * (degree - i))
        for k, b in enumerate(series)
        for i in range(_TERMS + 1, k + 1)
    )


def _slot_table(ends: list[int], least_chance: Ints) -> AnyArray:
    """Return bucket and sure acceptance of each 16-bit slot, 0 where it is shared by two buckets."""
    slot = np.arange(_SLOTS)
    place = np.searchsorted([-(-t >> 112) for t in ends], slot, side="right")
    unshared = np.array([t >> 112 for t in ends])[place] > slot
    return np.where(unshared, place << 16 | least_chance[place], 0).astype(np.int32)
