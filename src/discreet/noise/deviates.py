"""Exact deviates: real random numbers known to as many binary digits as a decision needs.

A deviate of a density ``f`` on the line is proposed as a bucket ``h`` of width 1/64 and a uniform offset
``u`` in [0, 1), standing for ``z = (h + u) / 64``, and accepted with probability ``f(z) / f(near)``,
where ``near`` is the end of the bucket next to zero. For both densities here that ratio is
``exp(-(slope[h] v + curvature v**2))`` with ``v`` the offset counted from ``near`` and dyadic rational
constants: nothing but ``exp`` ever has to be evaluated.

Offsets and acceptance numbers are infinite binary strings of which only a part has been drawn. A
comparison is made only when the digits drawn so far decide it; otherwise more are drawn. So floating
point only decides fast and never changes the law. What remains is the rounding of the bucket
probabilities to 128 bits and the cut of the tails: docs/explanation/theorems/lattice-sampler.md.

Three stages, each a shortcut of the next, so that the last one is the definition:

1. ``Kernels.propose``: 16 bits find the bucket in a table, 16 more accept it where every offset would
   be accepted (98 % of all draws, integers only);
2. ``_settle_proposals``: the bucket by 128-bit thresholds, acceptance by ``exp`` in double precision with a
   margin far above its error;
3. ``_decide_exactly``: integers and decimals of growing precision, about once in 2**48 draws.

Rejected positions are redrawn in place, so that no position of the output differs from another.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from discreet.noise._kernels import kernels_for, unit_float

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._types import AnyArray, Bools, Floats, Ints, Words
    from discreet.noise.stream import Stream

LOG2_BUCKETS = 6
"""log2 of the number of buckets per unit."""
BLOCK = 1 << 17
"""Positions drawn together: enough to hide call overhead, few enough for the cache."""
_SLOT_BITS = 16
_THRESHOLD_BITS = 128
# Decimal digits of the tables' arithmetic. A weight is a product of up to 6,000 factors, so it is off by
# less than 10**-75 of itself where a threshold needs 10**-39.
_DIGITS = 80
# exp of an argument in [-0.22, 0] and the arithmetic around it err by less than 2**-50; deciding only
# outside 2**-44 leaves a factor of 64 for a careless libm.
_MARGIN = 2.0**-44

Tail = tuple[int, int]
"""Binary digits of an offset past the first 64, and how many they are."""


class Deviates(NamedTuple):
    """Accepted proposals ``z = (bucket + offset / 2**64) / 64``.

    Digits of an offset past the first 64 are still undrawn, except at the positions in ``tails``, where a
    close decision has drawn some.
    """

    bucket: AnyArray
    offset: Words
    tails: dict[int, Tail]


@dataclass(frozen=True, eq=False)
class DeviateTable(ABC):
    """Proposal probabilities of one density, as a :class:`Sampler` needs them."""

    half: int
    """Place ``i`` of the arrays stands for bucket ``i - half``."""
    slots: AnyArray
    """int32 per 16-bit slot: bucket << 16 | acceptance threshold (0 where two buckets share it)."""
    thresholds: tuple[int, ...]
    """Cumulative probabilities as integers of 128 bits."""
    high: Words
    """Upper 64 bits of each threshold; ``thresholds`` decides between equal ones."""

    @property
    def farthest(self) -> int:
        """Distance of the farthest end of a bucket from zero, in buckets."""
        return max(self.half, len(self.thresholds) + 1 - self.half)

    @abstractmethod
    def settle(
        self, slot: AnyArray, lot: AnyArray, offset: Words, more: Words, ties: Stream
    ) -> tuple[Ints, Bools, dict[int, Tail]]:
        """Return place, verdict and further digits of proposals that the slot table did not accept.

        Parameters
        ----------
        slot, lot : array of uint16
            First 16 bits of the proposal number and of the acceptance number, one per proposal.
        offset : array of uint64
            First 64 bits of the offset inside the bucket, one per proposal.
        more : array of uint64, shape (3, n)
            Further bits: two rows for the proposal number, one for the acceptance number.
        ties : Stream
            Source of the digits that close decisions need beyond these.
        """

    def places(self, slot: AnyArray, first: Words, second: Words) -> Ints:
        """Return the places of 128-bit proposal numbers: the slot's 16 bits and 112 more."""
        upper = slot.astype(np.uint64) << np.uint64(48) | first >> np.uint64(16)
        # Upper halves decide unless they are equal. At place 0 the index -1 is that of a larger threshold.
        place = np.searchsorted(self.high, upper, side="right")
        for i in np.flatnonzero(self.high[place - 1] == upper):
            lower = (int(first[i]) << 48 | int(second[i]) >> 16) & (1 << 64) - 1
            place[i] = bisect_right(self.thresholds, int(upper[i]) << 64 | lower)
        return place


@dataclass(frozen=True, eq=False)
class BucketTable(DeviateTable):
    """Proposal probabilities and acceptance exponents of the normal or the exponential density."""

    slope: Floats
    curvature: float

    def settle(
        self, slot: AnyArray, lot: AnyArray, offset: Words, more: Words, ties: Stream
    ) -> tuple[Ints, Bools, dict[int, Tail]]:
        """Return place, verdict and further digits of proposals that the slot table did not accept."""
        return _settle_proposals(self, slot, lot, offset, more, ties)


def _build_table(
    weight: list[Decimal], at_far_end: list[Decimal], slope: list[float], curvature: float, *, mirror: bool
) -> BucketTable:
    """Return the table of the buckets from zero outward and, with ``mirror``, of their mirror images.

    ``weight`` is the density at the near end of each bucket, ``at_far_end`` the acceptance probability at its
    far end, which is the least in the bucket.
    """
    half = len(slope) if mirror else 0
    with localcontext() as context:
        context.prec = _DIGITS
        # Rounded down: what is accepted without a look at the offset must be right for all of them.
        least = [int(acceptance * (1 << _SLOT_BITS)) for acceptance in at_far_end]
        if mirror:
            weight, least, slope = weight[::-1] + weight, least[::-1] + least, slope[::-1] + slope
        unit = (1 << _THRESHOLD_BITS) / sum(weight, Decimal(0))
        thresholds = [int((running * unit).to_integral_value()) for running in accumulate(weight)]
    # Rounding must not leave numbers that belong to no bucket.
    thresholds[-1] = 1 << _THRESHOLD_BITS
    slots = np.zeros(1 << _SLOT_BITS, np.int32)
    shift = _THRESHOLD_BITS - _SLOT_BITS
    start = 0
    for place, end in enumerate(thresholds):
        # Slots from the first that begins at or after `start` to the last that ends at or before `end`.
        slots[-(-start >> shift) : end >> shift] = (place - half) << _SLOT_BITS | least[place]
        start = end
    inner = thresholds[:-1]
    # In the tail an inner threshold may round to 2**128, whose upper half does not fit into a word; `places`
    # then compares all 128 bits.
    largest = (1 << 64) - 1
    return BucketTable(
        half=half,
        slots=slots,
        thresholds=tuple(inner),
        high=np.array([min(t >> 64, largest) for t in inner], np.uint64),
        slope=np.array(slope),
        curvature=curvature,
    )


def _powers(base: Decimal, count: int) -> list[Decimal]:
    """Return the powers of a number from the zeroth on; each multiplication rounds once."""
    return list(accumulate(repeat(base, count - 1), operator.mul, initial=Decimal(1)))


@cache
def normal_table() -> BucketTable:
    """Return the table of the standard normal density, cut at 13.5 where 2**-135 of its mass remains."""
    count = 27 << (LOG2_BUCKETS - 1)
    per_unit = 1 << LOG2_BUCKETS
    with localcontext() as context:
        context.prec = _DIGITS
        # Bucket h has weight exp(-(h/64)**2 / 2), which is that of the one before times exp(-(2h-1) / 8192).
        half_step = (Decimal(-1) / (2 * per_unit**2)).exp()
        falls = _powers(half_step * half_step, count)
        ratios = [half_step * fall for fall in falls[:-1]]
        weight = list(accumulate(ratios, operator.mul, initial=Decimal(1)))
        # Slope h/4096 and curvature 1/8192: at the far end exp(-(2h+1) / 8192).
        at_far_end = [half_step * fall for fall in falls]
    slope = [h / per_unit**2 for h in range(count)]
    return _build_table(weight, at_far_end, slope, 0.5 / per_unit**2, mirror=True)


@cache
def exponential_table() -> BucketTable:
    """Return the table of the standard exponential density, cut at 92 where 2**-132 of its mass remains."""
    count = 92 << LOG2_BUCKETS
    per_unit = 1 << LOG2_BUCKETS
    with localcontext() as context:
        context.prec = _DIGITS
        fall = (Decimal(-1) / per_unit).exp()
        weight = _powers(fall, count)
    return _build_table(weight, [fall] * count, [1 / per_unit] * count, 0.0, mirror=False)


class Sampler:
    """Sampler of one table, which draws deviates block by block in memory that is allocated once.

    Digits for close decisions come from a stream of their own, so that a replay on a processor with
    another ``exp`` stays in step.

    Parameters
    ----------
    table : DeviateTable
        Table of the density to draw from.
    n : int
        Number of deviates that will be drawn in all: chooses the block size and the inner loops.
    stream : Stream
        Source of the random words; one child is spawned from it.
    """

    def __init__(self, table: DeviateTable, n: int, stream: Stream) -> None:
        self.capacity = max(1, min(n, BLOCK))
        self._table = table
        self._stream = stream
        self._ties = stream.spawn()
        self._kernels = kernels_for(n, self.capacity)
        self._words = np.empty(self.capacity + (self.capacity + 1) // 2, np.uint64)
        self._bucket = np.empty(self.capacity, np.int16)

    def blocks(self, n: int) -> Iterator[slice]:
        """Yield slices that cut ``n`` positions into blocks of the sampler's capacity."""
        for start in range(0, n, self.capacity):
            yield slice(start, min(start + self.capacity, n))

    def draw(self, n: int) -> Deviates:
        """Return ``n`` deviates, at most one block, which are valid until the next call."""
        deviates, rejected = self._attempt(self._words[: n + (n + 1) // 2], self._bucket[:n])
        while rejected.size:
            n = rejected.size
            redrawn, still_rejected = self._attempt(
                np.empty(n + (n + 1) // 2, np.uint64), np.empty(n, np.int16)
            )
            deviates.bucket[rejected] = redrawn.bucket
            deviates.offset[rejected] = redrawn.offset
            deviates.tails.update({int(rejected[i]): tail for i, tail in redrawn.tails.items()})
            rejected = rejected[still_rejected]
        return deviates

    def _attempt(self, words: Words, bucket: AnyArray) -> tuple[Deviates, Ints]:
        """Propose once for each position; return the deviates and the rejected positions."""
        n = bucket.size
        self._stream.fill(words)
        # A word for each offset, then four numbers of 16 bits to a word: slots, then acceptance numbers.
        offset, shorts = words[:n], words[n:].view(np.uint16)
        slot, lot = shorts[:n], shorts[n : 2 * n]
        close = self._kernels.propose(self._table.slots, slot, lot, bucket)
        deviates = Deviates(bucket, offset, {})
        if not close.size:
            return deviates, close
        more = self._stream.words(3 * close.size).reshape(3, -1)
        place, accepted, tails = self._table.settle(slot[close], lot[close], offset[close], more, self._ties)
        bucket[close] = place - self._table.half
        deviates.tails.update({int(close[i]): tail for i, tail in tails.items()})
        return deviates, close[~accepted]

    def floor(self, deviates: Deviates, scale: float | Floats, half: bool, out: Ints) -> None:
        """Write ``floor(scale * z + half / 2)`` of each deviate ``z``, exactly."""
        bits = _power_of_two(scale)
        if bits is not None:
            self._kernels.shift_floor(deviates.bucket, deviates.offset, bits, half, out)
            return
        scales = np.broadcast_to(np.asarray(scale, np.float64), out.shape)
        per_bucket = np.asarray(scale, np.float64) * 2.0**-LOG2_BUCKETS
        undecided = self._kernels.scale_floor(
            deviates.bucket, deviates.offset, per_bucket, half, self._table.farthest, out
        )
        for i in undecided:
            # Not from `per_bucket`, which is 0 where a scale is next to the least number of all.
            exact = Fraction(float(scales[i])) / (1 << LOG2_BUCKETS)
            out[i] = _floor_exactly(deviates, int(i), exact, half, self._ties)


def _settle_proposals(
    table: BucketTable, slot: AnyArray, lot: AnyArray, offset: Words, more: Words, ties: Stream
) -> tuple[Ints, Bools, dict[int, Tail]]:
    """Return place, verdict and further digits of proposals that the slot table did not accept.

    Notes
    -----
    Accepted if the 80-bit number is below ``exp(-v (slope + curvature v))`` with ``v`` the offset from the
    near end; what lies within the margin of double precision goes to :func:`_decide_exactly`.
    """
    first, second, third = more
    entry = table.slots[slot]
    place = (entry >> _SLOT_BITS) + table.half
    shared = np.flatnonzero((entry & 0xFFFF) == 0)
    place[shared] = table.places(slot[shared], first[shared], second[shared])
    u = unit_float(offset)
    v = np.where(place >= table.half, u, 1.0 - u)
    probability = np.exp(-v * (table.slope[place] + table.curvature * v))
    number = lot * 2.0**-16 + unit_float(third) * 2.0**-16
    accepted = number < probability - _MARGIN
    tails = {}
    for i in np.flatnonzero(accepted != (number < probability + _MARGIN)):
        digits = int(lot[i]) << 64 | int(third[i])
        accepted[i], tail = _decide_exactly(table, int(place[i]), int(offset[i]), digits, ties)
        if accepted[i]:
            tails[int(i)] = tail
    return place, accepted, tails


def _decide_exactly(
    table: BucketTable, place: int, offset: int, number: int, ties: Stream
) -> tuple[bool, Tail]:
    """Return whether an 80-bit number is below the exact probability, drawing bits until decided.

    The second value holds the bits of the offset that were drawn for the decision. Both numbers are known as
    intervals; the decimal precision grows with their bits.
    """
    mirrored = place < table.half
    slope, curvature = Decimal(float(table.slope[place])), Decimal(table.curvature)
    extra = 0
    while True:
        with localcontext() as context:
            context.prec = 60 + extra
            # The last ten digits are left to the rounding of quotients, products and exp.
            slack = Decimal(10) ** (10 - context.prec)
            ends = [Decimal(offset + end) / (1 << (64 + extra)) for end in (0, 1)]
            v = sorted(1 - e for e in ends) if mirrored else ends
            most, least = ((-x * (slope + curvature * x)).exp() for x in v)
            scale = Decimal(1 << (80 + extra))
            tail = (offset & (1 << extra) - 1, extra)
            if (number + 1) / scale <= least - slack:
                return True, tail
            if number / scale >= most + slack:
                return False, tail
        offset = offset << 64 | ties.integer(64)
        number = number << 64 | ties.integer(64)
        extra += 64


def _power_of_two(scale: float | Floats) -> int | None:
    """Return ``b`` if a bucket is exactly ``2**b`` lattice steps wide, with ``0 <= b < 63``."""
    if not isinstance(scale, float):
        return None
    mantissa, exponent = np.frexp(scale)
    bits = int(exponent) - 1 - LOG2_BUCKETS
    return bits if mantissa == 0.5 and 0 <= bits < 63 else None


def _floor_exactly(deviates: Deviates, position: int, scale: Fraction, half: bool, ties: Stream) -> int:
    """Return the floor by rational arithmetic, drawing digits of the offset until they decide."""
    digits, extra = deviates.tails.get(position, (0, 0))
    offset = int(deviates.offset[position]) << extra | digits
    while True:
        numerator = (int(deviates.bucket[position]) << (64 + extra)) + offset
        low, high = (
            (Fraction(numerator + end, 1 << (64 + extra)) * scale + Fraction(half, 2)) for end in (0, 1)
        )
        # The upper end itself is not reached: an integer there does not split the interval.
        if low // 1 == -(-high // 1) - 1:
            return int(low // 1)
        offset = offset << 64 | ties.integer(64)
        extra += 64
