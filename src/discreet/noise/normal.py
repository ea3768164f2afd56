"""Standard normal numbers as 64-bit floats: for noise that must keep an equation, and promises no epsilon.

The deviates are those of :mod:`discreet.noise.lattice`, read to 53 binary digits of their offset instead of
being rounded to a lattice. Adding floats leaks through their low-order bits (lattice-sampler), so nothing
that promises differential privacy may use this module. Invariant noise may: it has to satisfy equations that
rounding to a lattice would break, and it promises no epsilon in the first place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.noise.lattice import LOG2_BUCKETS, Sampler, normal_table
from discreet.noise.stream import stream_or_fresh

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.noise.gaussian import Size
    from discreet.noise.stream import Stream

_DIGITS = 53
"""Binary digits of an offset that a float can hold."""


class NormalSampler:
    """Fills arrays with standard normal numbers, in memory that is taken once.

    Parameters
    ----------
    n : int
        How many numbers will be drawn in all: chooses the block size and the inner loops.
    stream : Stream
        Where the random words come from.
    """

    def __init__(self, n: int, stream: Stream) -> None:
        self._sampler = Sampler(normal_table(), n, stream)

    def fill(self, out: Floats) -> None:
        """Overwrite the contiguous array ``out``."""
        flat = out.reshape(-1)
        for block in self._sampler.blocks(flat.size):
            part = flat[block]
            bucket, offset, _ = self._sampler.draw(part.size)
            # A signed 53-bit integer becomes a float without rounding, and much faster than an unsigned one.
            np.right_shift(offset, np.uint64(64 - _DIGITS), out=offset)
            np.multiply(offset.view(np.int64), 2.0**-_DIGITS, out=part)
            np.add(part, bucket, out=part)
            np.multiply(part, 2.0**-LOG2_BUCKETS, out=part)


def standard_normal(size: Size, stream: Stream | None = None) -> Floats:
    """Draw standard normal numbers.

    Parameters
    ----------
    size : int or tuple of int
        Shape of the result.
    stream : Stream, optional
        Where the random words come from; a fresh one, keyed by the operating system, if left out.

    Returns
    -------
    ndarray of float64

    Privacy
    -------
    None. Floats added to floats show through their low-order bits where they came from; use
    :func:`~discreet.noise.gaussian.rounded_gaussian` for anything that promises an epsilon.

    Reference
    ---------
    docs/explanation/theorems/lattice-sampler.md

    Examples
    --------
    >>> from discreet.noise import Stream, standard_normal
    >>> z = standard_normal((1000, 3), stream=Stream.from_seed(1))
    >>> z.shape, bool(abs(z.std() - 1) < 0.03)
    ((1000, 3), True)
    """
    out = np.empty(size, np.float64)
    NormalSampler(out.size, stream_or_fresh(stream)).fill(out)
    return out


def standard_maxwell(n: int, stream: Stream | None = None) -> Floats:
    """Draw lengths of three-dimensional standard normal vectors.

    Among the laws on the positive numbers with a given mean square this one says least about a shift: its
    Fisher information is 3, at a mean of ``2 sqrt(2 / pi)`` and a mean square of 3.

    Parameters
    ----------
    n : int
        How many.
    stream : Stream, optional
        Where the random words come from; a fresh one, keyed by the operating system, if left out.

    Returns
    -------
    ndarray of float64, shape (n,)

    Privacy
    -------
    None, as for :func:`standard_normal`.

    Reference
    ---------
    docs/explanation/theorems/fisher-invariant.md
    """
    z = standard_normal((n, 3), stream)
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", z, z)))
