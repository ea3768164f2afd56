"""Laplace noise on the integers, exactly: the discrete law, and the continuous one rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.noise.gaussian import Size, check_scale
from discreet.noise.lattice import Sampler, exponential_table
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._typing import Ints

LAPLACE_TOTAL_VARIATION = 2.0**-114
"""Upper bound per draw on the distance from the exact law (theorem lattice-sampler)."""


def discrete_laplace(scale: float, size: Size, stream: Stream | None = None) -> Ints:
    """Draw integers with probability proportional to ``exp(-abs(x) / scale)``.

    Parameters
    ----------
    scale : float
        In lattice steps, above 0 and at most 2**50.
    size : int or tuple of int
        Shape of the result.
    stream : Stream, optional
        Where the random words come from; a fresh one, keyed by the operating system, if left out.

    Returns
    -------
    ndarray of int64

    Privacy
    -------
    Added to integers of L1 sensitivity ``D`` it is pure ``D / scale``-DP up to the total variation
    :data:`LAPLACE_TOTAL_VARIATION` = 2**-114 of each draw.

    Reference
    ---------
    If ``E`` is standard exponential, ``floor(scale * E)`` is geometric with ratio ``exp(-1 / scale)``, and
    the difference of two of them is discrete Laplace: docs/explanation/theorems/lattice-sampler.md.

    Examples
    --------
    >>> from discreet.noise import Stream, discrete_laplace
    >>> x = discrete_laplace(10, (100, 50), stream=Stream.from_seed(1))
    >>> x.shape, x.dtype
    ((100, 50), dtype('int64'))
    """
    scale = check_scale(scale, "scale", "discrete_laplace")
    out = np.empty(size, np.int64)
    flat = out.reshape(-1)
    sampler = Sampler(exponential_table(), flat.size, stream_or_fresh(stream))
    buffer = np.empty(sampler.capacity, np.int64)
    for block in sampler.blocks(flat.size):
        plus = flat[block]
        minus = buffer[: plus.size]
        for geometric in (plus, minus):
            sampler.floor(sampler.draw(plus.size), scale, half=False, out=geometric)
        np.subtract(plus, minus, out=plus)
    return out


def rounded_laplace(scale: float, size: Size, stream: Stream | None = None) -> Ints:
    """Draw integers ``round(L)`` with ``L`` a Laplace variable of that scale.

    Parameters
    ----------
    scale, size, stream
        As for :func:`discrete_laplace`.

    Returns
    -------
    ndarray of int64

    Privacy
    -------
    Added to integers it is post-processing of the continuous Laplace mechanism: pure ``D / scale``-DP for L1
    sensitivity ``D``, and every bound on guessing that holds for Laplace noise holds too. Each draw is
    within :data:`LAPLACE_TOTAL_VARIATION` of its law.

    Reference
    ---------
    A random sign times ``floor(scale * E + 1/2)``, ``E`` standard exponential:
    docs/explanation/theorems/lattice-sampler.md.
    """
    scale = check_scale(scale, "scale", "rounded_laplace")
    out = np.empty(size, np.int64)
    flat = out.reshape(-1)
    stream = stream_or_fresh(stream)
    sampler = Sampler(exponential_table(), flat.size, stream)
    for block in sampler.blocks(flat.size):
        part = flat[block]
        sampler.floor(sampler.draw(part.size), scale, half=True, out=part)
        bits = np.unpackbits(stream.words((part.size + 63) // 64).view(np.uint8), count=part.size)
        np.multiply(part, 1 - 2 * bits.astype(np.int64), out=part)
    return out
