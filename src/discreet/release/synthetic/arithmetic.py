"""Arithmetic with the same bits on every processor: sums in one order, roots in whole numbers.

What follows the noisy answers is repeated by strangers on other machines, bit for bit. IEEE 754 fixes the
result of ``+ - * /`` and of a square root, of comparisons and of sorting; the order in which ``numpy.sum``,
``dot`` and Python's ``sum`` add differs with the processor or the version, and so does the last digit of
``exp``, ``log`` and ``pow``. None of these is used in this package, but for products of matrices whose sums
need no rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from discreet._types import AnyArray, Floats, Ints

_ROOT_BITS = 30


def add_up(values: AnyArray | Iterable[float]) -> float:
    """Return the sum of numbers, added one after the other."""
    numbers = np.asarray(values if isinstance(values, np.ndarray) else list(values), np.float64)
    return float(np.cumsum(numbers)[-1]) if numbers.size else 0.0


def add_along(values: Floats, axis: int) -> Floats:
    """Return the sums of an array along one axis, added one after the other."""
    if not values.shape[axis]:
        return np.zeros(np.delete(values.shape, axis % values.ndim))
    total: Floats = np.take(np.cumsum(values, axis=axis), -1, axis=axis)
    return total


def divide(numerators: AnyArray | float, denominators: AnyArray | float, otherwise: float = 0.0) -> Floats:
    """Return ratios, and `otherwise` where the denominator is not above 0."""
    below = np.asarray(denominators, np.float64)
    is_above = below > 0
    ratios: Floats = np.where(is_above, numerators / np.where(is_above, below, 1.0), otherwise)
    return ratios


def multiply_rounded(first: Floats, first_bits: int, second: Floats, second_bits: int) -> Floats:
    """Return the product of two matrices whose entries are first rounded to some binary places.

    Products of multiples of a power of two are added without rounding, in whatever order, as long as their
    sums have no more than 53 bits: so a library of linear algebra has the same bits on every processor.

    Parameters
    ----------
    first, second : array
        Matrices of numbers that are not negative.
    first_bits, second_bits : int
        Number of binary places that their entries are rounded to. The entries of the product must be below 2
        to the power of 53 less both.
    """
    whole = np.floor(np.ldexp(first, first_bits) + 0.5) @ np.floor(np.ldexp(second, second_bits) + 0.5)
    product: Floats = np.ldexp(whole, -first_bits - second_bits)
    return product


def root_two_thirds(numerator: int, denominator: int = 1) -> float:
    """Return ``(numerator / denominator)**(2/3)`` to 30 binary places, from a cube root in whole numbers."""
    return _cube_root((numerator**2 << 3 * _ROOT_BITS) // denominator**2) / (1 << _ROOT_BITS)


def _cube_root(value: int) -> int:
    """Return the largest whole number whose cube is at most `value`."""
    low, high = 0, 1 << -(-value.bit_length() // 3)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= value else (low, middle - 1)
    return low


def order_rows(keys: Iterable[AnyArray], n: int) -> Ints:
    """Return the order of `n` rows by several keys, the first of which counts most; ties stay as they are."""
    order: Ints | None = None
    for key in reversed(list(keys)):
        # Sorting 16 bits takes time in proportion to the rows.
        order = (
            np.argsort(key, kind="stable") if order is None else order[np.argsort(key[order], kind="stable")]
        )
    return np.arange(n) if order is None else order
