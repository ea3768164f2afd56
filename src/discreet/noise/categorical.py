"""Uniform choices: integers, randomized response, permutations, subsets."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.noise.samplers import check_count
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._types import AnyArray, Bools, Ints

_MOST_LEVELS = 1 << 31


def uniform_integers(levels: int, n: int, stream: Stream | None = None) -> Ints:
    """Return ``n`` random integers uniformly from ``0 .. levels - 1``, exactly.

    Reference
    ---------
    Multiplication by a 32-bit word with rejection of the incomplete last round; rejected positions are
    redrawn in place.
    """
    if not 1 <= check_count(levels, "levels", "uniform_integers") <= _MOST_LEVELS:
        raise ParameterError(f"levels of uniform_integers must be 1 to 2**31, was {levels}.")
    n = check_count(n, "n", "uniform_integers")
    stream = stream_or_fresh(stream)
    out = np.empty(n, np.int64)
    # Lemire's method: once low halves below this are rejected, each integer comes from equally many words.
    remainder = (1 << 32) % levels
    where: slice | Ints = slice(None)
    while n:
        product = stream.words((n + 1) // 2).view(np.uint32)[:n] * np.uint64(levels)
        out[where] = product >> np.uint64(32)
        rejected = np.flatnonzero((product & np.uint64(0xFFFFFFFF)) < remainder)
        where = rejected if isinstance(where, slice) else where[rejected]
        n = rejected.size
    return out


def response_threshold(keep: float, levels: int) -> int:
    """Return the least threshold of :func:`randomized_response` that keeps a code at most that often.

    Parameters
    ----------
    keep : float
        Probability that an answer equals its own code, at least ``1 / levels``.
    levels : int
        Number of levels in the public list; at least 2.
    """
    # A probability of 1 / levels, which tells nothing, may have lost its last digits in rounding.
    if (
        check_count(levels, "levels", "response_threshold") < 2
        or not 1 - 2.0**-40 <= Fraction(keep) * levels <= levels
    ):
        raise ParameterError(
            f"keep of response_threshold must lie between 1/levels and 1, was {keep!r} for {levels} levels."
        )
    # keep = 1 - r + r / levels, solved for r and rounded up: replacing more often is more private.
    replace_probability = (1 - Fraction(keep)) * Fraction(levels, levels - 1)
    return min(math.ceil(replace_probability * (1 << 64)), 1 << 64)


def randomized_response(codes: AnyArray, levels: int, threshold: int, stream: Stream | None = None) -> Ints:
    """Replace each code, with probability ``threshold / 2**64``, by a uniform draw from all levels.

    Parameters
    ----------
    codes : array of int
        Codes of the true levels, in ``0 .. levels - 1``.
    levels : int
        Number of levels in the public list.
    threshold : int
        Replacement probability times 2**64: 0 keeps everything, 2**64 tells nothing.
    stream : Stream, optional
        Source of the random words; None for a fresh one, keyed by the operating system.

    Privacy
    -------
    An answer equals its own code with probability ``1 - r + r / levels`` and each other one with
    ``r / levels``, ``r = threshold / 2**64``: pure local DP with the logarithm of their ratio, without
    any rounding error. Both random numbers are drawn for every row, so the time is the same for all.

    Reference
    ---------
    Warner's randomized response with ``levels`` answers; ``threshold`` comes from
    :func:`response_threshold`.

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.noise import Stream, randomized_response
    >>> randomized_response(np.array([0, 1, 2, 1]), 3, 2**63, Stream.from_seed(1)).shape
    (4,)
    """
    codes = np.asarray(codes)
    levels = check_count(levels, "levels", "randomized_response")
    threshold = check_count(threshold, "threshold", "randomized_response")
    if threshold > 1 << 64:
        raise ParameterError(f"threshold of randomized_response must be 0 to 2**64, was {threshold}.")
    if codes.size and not (int(codes.min()) >= 0 and int(codes.max()) < levels):
        raise ParameterError(
            "codes of randomized_response must lie in 0 .. levels - 1. Encode the column by its schema."
        )
    stream = stream_or_fresh(stream)
    flat = codes.reshape(-1)
    draws = uniform_integers(levels, flat.size, stream)
    coins = stream.words(flat.size)
    # A threshold of 2**64 does not fit into 64 bits, and one less does.
    replace = coins <= np.uint64(threshold - 1) if threshold else np.zeros(flat.size, np.bool_)
    return np.where(replace, draws, flat).astype(np.int64).reshape(codes.shape)


def permutation(n: int, stream: Stream | None = None) -> Ints:
    """Return a uniformly random order of ``0 .. n - 1``.

    Reference
    ---------
    The order of ``n`` distinct uniform words is a uniform permutation; equal words are drawn again.
    """
    n = check_count(n, "n", "permutation")
    stream = stream_or_fresh(stream)
    while True:
        keys = stream.words(n)
        order = np.argsort(keys)
        keys = keys[order]
        if not np.any(keys[1:] == keys[:-1]):
            return order


def subsample(n: int, size: int, stream: Stream | None = None) -> Ints:
    """Return ``size`` of the numbers ``0 .. n - 1``, every subset equally likely, in rising order."""
    n, size = check_count(n, "n", "subsample"), check_count(size, "size", "subsample")
    if size > n:
        raise ParameterError(f"size of subsample must be 0 to {n}, was {size}.")
    return np.sort(permutation(n, stream)[:size])


def subsets(among: int, size: int, n: int, stream: Stream | None = None) -> Bools:
    """Mark ``size`` of ``among`` places in each of ``n`` rows, every subset equally likely.

    Parameters
    ----------
    among, size : int
        Number of places, and number of them that each row marks; ``size`` at most ``among``.
    n : int
        Number of rows; at least 0.
    stream : Stream, optional
        Source of the random words; None for a fresh one, keyed by the operating system.

    Returns
    -------
    array of bool, shape (n, among)

    Privacy
    -------
    Takes no row: what is marked cannot depend on what a row holds.

    Reference
    ---------
    Floyd's sample, for all rows at once: place ``j`` is drawn from ``0 .. j``, or is ``j`` itself where that
    is taken (Bentley and Floyd, 1987).
    """
    n, size = check_count(n, "n", "subsets"), check_count(size, "size", "subsets")
    among = check_count(among, "among", "subsets")
    if size > among:
        raise ParameterError(f"size of subsets must be 0 to {among}, was {size}.")
    stream = stream_or_fresh(stream)
    marked = np.zeros((n, among), np.bool_)
    rows = np.arange(n)
    for j in range(among - size, among):
        drawn = uniform_integers(j + 1, n, stream)
        marked[rows, np.where(marked[rows, drawn], j, drawn)] = True
    return marked
