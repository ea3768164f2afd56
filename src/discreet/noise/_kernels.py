"""The inner loops of :mod:`discreet.noise.deviates`, once in numpy and once compiled by numba.

Both give the same bits; a test compares them over millions of draws. numba is the optional extra
``discreet[fast]`` and is used from :data:`WORTH_COMPILING` draws on, where its start-up pays.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats, Ints, Words

WORTH_COMPILING = 300_000_000
"""Number of draws from which on compiled loops are faster, their start-up included."""
# Rounding of the offset counts against a whole bucket (the sum with a bucket of -1 may cancel), that of sum,
# product and added half against the value: at most 3 units of 2**-53 of value + scale + 1, and 2 in reserve,
# of which the last binary digit of the offset takes 2**-11 of one. That digit is left out because a processor
# turns a signed integer into a float without a branch, and a word of 64 bits ten times as slowly.
RELATIVE_ERROR = 5 * 2.0**-53
_NARROW = 2.0**-21
"""Error up to which one bound serves a whole block: then one position in a million is undecided."""


def unit_float(words: Words) -> Floats:
    """Return words of 64 bits as fractions of 2**64, to 53 binary digits; see :data:`RELATIVE_ERROR`."""
    fractions: Floats = (words >> np.uint64(1)).view(np.int64).astype(np.float64)
    fractions *= 2.0**-63
    return fractions


class Kernels(Protocol):
    """Inner loops of the sampler, on arrays of at most ``capacity`` positions."""

    def propose(self, slots: AnyArray, slot: AnyArray, lot: AnyArray, bucket: AnyArray) -> Ints:
        """Write each position's bucket; return the positions that the slot table does not accept."""
        ...

    def shift_floor(self, bucket: AnyArray, offset: Words, bits: int, half: bool, out: Ints) -> None:
        """Write ``floor((bucket + offset / 2**64) * 2**bits + half / 2)``: integers only, exact."""
        ...

    def scale_floor(
        self, bucket: AnyArray, offset: Words, scale: Floats, half: bool, farthest: int, out: Ints
    ) -> Ints:
        """Write ``floor((bucket + offset / 2**64) * scale + half / 2)``; return the undecided.

        No bucket is farther from zero than `farthest`.
        """
        ...


class NumpyKernels:
    """Whole-array operations in memory that is allocated once: page faults cost more than the work."""

    def __init__(self, capacity: int) -> None:
        self._index = np.empty(capacity, np.intp)
        self._entry = np.empty(capacity, np.int32)
        self._threshold = np.empty(capacity, np.int32)
        self._mask = np.empty(capacity, np.bool_)
        self._digits = np.empty(capacity, np.uint64)
        self._value = np.empty(capacity, np.float64)
        self._low = np.empty(capacity, np.float64)

    def propose(self, slots: AnyArray, slot: AnyArray, lot: AnyArray, bucket: AnyArray) -> Ints:
        """See :class:`Kernels`."""
        n = slot.size
        index, entry, threshold = self._index[:n], self._entry[:n], self._threshold[:n]
        np.copyto(index, slot)
        # With mode="raise" numpy would buffer `out`; a slot of 16 bits is never out of range.
        slots.take(index, out=entry, mode="clip")
        # Acceptance numbers below the lower half of an entry are accepted at every offset of the bucket.
        np.bitwise_and(entry, 0xFFFF, out=threshold)
        undecided = np.greater_equal(lot, threshold, out=self._mask[:n])
        np.right_shift(entry, 16, out=entry)
        np.copyto(bucket, entry, casting="unsafe")
        return np.flatnonzero(undecided)

    def shift_floor(self, bucket: AnyArray, offset: Words, bits: int, half: bool, out: Ints) -> None:
        """See :class:`Kernels`."""
        digits = self._digits[: bucket.size]
        np.copyto(out, bucket)
        np.left_shift(out, bits, out=out)
        if half:
            # floor(U + 1/2) looks at one binary digit more than the integer part of U.
            np.right_shift(offset, np.uint64(63 - bits), out=digits)
            np.add(digits, np.uint64(1), out=digits)
            np.right_shift(digits, np.uint64(1), out=digits)
        elif bits:
            np.right_shift(offset, np.uint64(64 - bits), out=digits)
        else:
            return
        np.add(out, digits.view(np.int64), out=out)

    def scale_floor(
        self, bucket: AnyArray, offset: Words, scale: Floats, half: bool, farthest: int, out: Ints
    ) -> Ints:
        """See :class:`Kernels`."""
        n = bucket.size
        value, low = self._value[:n], self._low[:n]
        digits = np.right_shift(offset, np.uint64(1), out=self._digits[:n])
        np.copyto(value, digits.view(np.int64))
        np.multiply(value, 2.0**-63, out=value)
        np.add(value, bucket, out=value)
        np.multiply(value, scale, out=value)
        # Decided only where both ends of the error interval have the same floor.
        below, above = self._error_ends(value, scale, half / 2, farthest)
        np.floor(np.add(value, below, out=low), out=low)
        np.copyto(out, low, casting="unsafe")
        np.floor(np.add(value, above, out=value), out=value)
        return np.flatnonzero(np.not_equal(value, low, out=self._mask[:n]))

    def _error_ends(
        self, value: Floats, scale: Floats, half: float, farthest: int
    ) -> tuple[Floats | float, Floats | float]:
        """Return ``half`` less and plus a bound on the error of each value.

        One bound serves all values where it leaves few of them undecided. It follows from the farthest bucket
        of the table and not of these values, since the time that it takes would tell their size.
        """
        if scale.ndim == 0:
            widest = ((farthest + 2) * float(scale) + 1.0) * RELATIVE_ERROR
            if widest < _NARROW:
                return half - widest, half + widest
        error = np.abs(value, out=self._digits[: value.size].view(np.float64))
        np.add(error, scale + 1.0, out=error)
        np.multiply(error, RELATIVE_ERROR, out=error)
        return np.subtract(half, error, out=self._low[: value.size]), np.add(half, error, out=error)


@cache
def numba_kernels() -> Callable[[int], Kernels] | None:
    """Return a class of compiled loops, or None where numba is not installed."""
    if find_spec("numba") is None:
        return None
    from numba import njit

    @njit(cache=True)
    def propose(slots: Any, slot: Any, lot: Any, bucket: Any, positions: Any) -> Any:
        count = 0
        for i in range(slot.size):
            entry = slots[slot[i]]
            bucket[i] = entry >> 16
            positions[count] = i
            count += lot[i] >= (entry & 0xFFFF)
        return count

    @njit(cache=True)
    def shift_floor(bucket: Any, offset: Any, bits: Any, half: Any, out: Any) -> None:
        # A shift by 64 is undefined on the processor, so bits == 0 without half goes apart.
        if half:
            down = np.uint64(63 - bits)
            for i in range(bucket.size):
                digits = ((offset[i] >> down) + np.uint64(1)) >> np.uint64(1)
                out[i] = (np.int64(bucket[i]) << bits) + np.int64(digits)
        elif bits:
            down = np.uint64(64 - bits)
            for i in range(bucket.size):
                out[i] = (np.int64(bucket[i]) << bits) + np.int64(offset[i] >> down)
        else:
            for i in range(bucket.size):
                out[i] = np.int64(bucket[i])

    @njit(cache=True)
    def scale_floor(bucket: Any, offset: Any, scale: Any, half: Any, out: Any, positions: Any) -> Any:
        count = 0
        add = 0.5 if half else 0.0
        for i in range(bucket.size):
            digits = np.float64(np.int64(offset[i] >> np.uint64(1)))
            value = (digits * 2.0**-63 + bucket[i]) * scale[i] + add
            error = (abs(value) + (scale[i] + 1.0)) * RELATIVE_ERROR
            low = np.floor(value - error)
            out[i] = np.int64(low)
            positions[count] = i
            count += np.floor(value + error) != low
        return count

    class NumbaKernels:
        """Compiled loops, one per method of :class:`Kernels`."""

        def __init__(self, capacity: int) -> None:
            self._positions = np.empty(capacity + 1, np.int64)

        def propose(self, slots: AnyArray, slot: AnyArray, lot: AnyArray, bucket: AnyArray) -> Ints:
            count = propose(slots, slot, lot, bucket, self._positions)
            return self._positions[:count].copy()

        def shift_floor(self, bucket: AnyArray, offset: Words, bits: int, half: bool, out: Ints) -> None:
            shift_floor(bucket, offset, bits, half, out)

        def scale_floor(
            self, bucket: AnyArray, offset: Words, scale: Floats, half: bool, farthest: int, out: Ints
        ) -> Ints:
            scales = np.broadcast_to(scale, bucket.shape)
            count = scale_floor(bucket, offset, scales, half, out, self._positions)
            return self._positions[:count].copy()

    return NumbaKernels


def kernels_for(n: int, capacity: int) -> Kernels:
    """Return the loops for ``n`` draws in blocks of ``capacity``: same bits, different speed."""
    compiled = numba_kernels() if n >= WORTH_COMPILING else None
    return (compiled or NumpyKernels)(capacity)
