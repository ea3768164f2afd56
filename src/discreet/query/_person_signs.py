"""Public signs of people, and sums of their rows under those signs: exact, and the same on every engine.

A person's sign in sketch ``r`` is a bit of a polynomial of degree 3 over the field of 2**61 - 1 elements, at
the person's id. Its coefficients come from a public key. For coefficients drawn uniformly, the values
at any four different ids are independent and uniform, and so are their lowest 60 bits, up to 2**-61: a
single polynomial gives 60 sketches, any two of which are uncorrelated.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats, Ints, Words
    from discreet.query.features import Features

PRIME = 2**61 - 1
SIGNS = 60
"""Number of signs that one polynomial gives."""
ID_BITS = 60
"""Bits of a fingerprint of an id, so that all fingerprints are elements of the field."""
LANE_BITS = 20
"""Bits of each of the three integers that hold a fingerprint; engines have 32."""

_DEGREE = 3
_BYTES = 16  # for each coefficient: the remainder is uniform up to 2**-67
_CHUNK = 2**14  # rows whose values stay in the processor's cache
_WORD_BITS = 10  # signs that are added up at once, through a table of all their combinations
_WORDS = SIGNS // _WORD_BITS
_COMBINATIONS = 2**_WORD_BITS


def id_lanes(fingerprints: Words) -> list[AnyArray]:
    """Split fingerprints of ids into the three integers that a curated table holds."""
    mask = np.uint64(2**LANE_BITS - 1)
    shifts = range(0, ID_BITS, LANE_BITS)
    return [((fingerprints >> np.uint64(shift)) & mask).astype(np.int32) for shift in shifts]


def join_lanes(lanes: Sequence[AnyArray]) -> Words:
    """Return the fingerprints whose integers are given, the inverse of :func:`id_lanes`."""
    joined = np.zeros(len(lanes[0]), np.uint64)
    for i, lane in enumerate(lanes):
        joined |= lane.astype(np.uint64) << np.uint64(i * LANE_BITS)
    return joined


@lru_cache(maxsize=8)
def coefficients(key: str, polynomials: int) -> tuple[tuple[int, ...], ...]:
    """Return the coefficients of polynomials, highest first: public, and fixed by the key."""
    each = (_DEGREE + 1) * _BYTES
    stream = hashlib.shake_256(b"discreet sign sketches\0" + key.encode()).digest(polynomials * each)
    return tuple(
        tuple(
            int.from_bytes(stream[at : at + _BYTES]) % PRIME for at in range(i * each, (i + 1) * each, _BYTES)
        )
        for i in range(polynomials)
    )


def polynomial(ids: Words, factors: Sequence[int]) -> Words:
    """Return the values of a polynomial over the field of 2**61 - 1 elements at ids, by Horner's rule."""
    high, low = ids >> np.uint64(31), ids & np.uint64(2**31 - 1)
    value = np.full(len(ids), factors[0], np.uint64)
    for factor in factors[1:]:
        value = _reduce_modulo(_product(value, high, low) + np.uint64(factor))
    return value


def _product(value: Words, high: Words, low: Words) -> Words:
    """Return a number below 2**63 that is congruent to ``value * (high * 2**31 + low)``."""
    upper, lower = value >> np.uint64(31), value & np.uint64(2**31 - 1)
    middle = upper * low + lower * high  # below 2**62
    # 2**62 is 2, and 2**61 is 1, modulo the prime.
    folded = (middle >> np.uint64(30)) + ((middle & np.uint64(2**30 - 1)) << np.uint64(31))
    product: Words = ((upper * high) << np.uint64(1)) + folded + lower * low
    return product


def _reduce_modulo(value: Words) -> Words:
    """Return values below 2**63 modulo the prime 2**61 - 1."""
    prime = np.uint64(PRIME)
    once = (value & prime) + (value >> np.uint64(61))
    return np.where(once >= prime, once - prime, once)


def signs(ids: Words, key: str, sketches: int) -> Ints:
    """Return the signs of ids in every sketch, 1 or -1, of shape (sketches, n_ids)."""
    places = np.arange(SIGNS, dtype=np.uint64)[:, None]
    bits = [
        (polynomial(ids, factors) >> places) & np.uint64(1)
        for factors in coefficients(key, -(-sketches // SIGNS))
    ]
    values: Ints = 1 - 2 * np.concatenate(bits)[:sketches].astype(np.int64)
    return values


@dataclass(frozen=True, slots=True)
class SketchPass:
    """For every sketch the sums of coordinates times the sign of the row's id; a kernel for engines."""

    features: Features
    ids: tuple[str, ...]
    key: str
    sketches: int

    @property
    def columns(self) -> tuple[str, ...]:
        """SQL names of the columns that are read."""
        return (*self.features.columns, *self.ids)

    @property
    def size(self) -> int:
        """Number of integers that a call returns."""
        return self.sketches * self.features.size

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the sums over a batch of rows, sketch by sketch."""
        rows = self.features.rows(arrays[: -len(self.ids)])
        ids = join_lanes(arrays[-len(self.ids) :])
        polynomials = coefficients(self.key, -(-self.sketches // SIGNS))
        minus = np.concatenate([_sum_negative_rows(ids, factors, rows) for factors in polynomials])
        sums = rows.sum(axis=1) - 2 * minus[: self.sketches]
        return np.asarray(sums.ravel(), np.int64)


def _sum_negative_rows(ids: Words, factors: Sequence[int], rows: Floats) -> Floats:
    """Return the sum of the rows whose sign is -1, for each of the signs of a polynomial.

    Notes
    -----
    Rows are first summed by the value of ten sign bits at a time (1024 cells), and cells then by bit: sums
    of whole numbers below 2**53 are exact in any order.
    """
    tables = np.zeros((_WORDS, len(rows), _COMBINATIONS))
    for start in range(0, len(ids), _CHUNK):
        here = slice(start, start + _CHUNK)
        values = polynomial(ids[here], factors)
        for i, word in enumerate(tables):
            bits = ((values >> np.uint64(i * _WORD_BITS)) & np.uint64(_COMBINATIONS - 1)).astype(np.intp)
            for total, row in zip(word, rows, strict=True):
                total += np.bincount(bits, weights=row[here], minlength=_COMBINATIONS)
    summed: Floats = (tables @ _BITS).transpose(0, 2, 1).reshape(SIGNS, len(rows))
    return summed


_BITS = ((np.arange(_COMBINATIONS)[:, None] >> np.arange(_WORD_BITS)) & 1).astype(np.float64)
