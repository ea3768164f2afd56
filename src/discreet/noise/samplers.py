"""Exact Gaussian and Laplace noise on the integers, and standard normal floats without a promise.

Deviates are those of :mod:`discreet.noise.deviates`. :func:`rounded_gaussian`, :func:`discrete_laplace` and
:func:`rounded_laplace` round them to the integers, exactly. :class:`NormalSampler`, :func:`standard_normal`
and :func:`standard_maxwell` read 53 binary digits instead. Adding floats leaks through their low-order bits,
so nothing that promises differential privacy may use those three. Invariant noise may: it has to satisfy
equations that rounding to a lattice would break, and it promises no epsilon. :class:`Pool` returns single
draws from blocks drawn in advance, so that the time of a draw does not depend on its value.
"""

from __future__ import annotations

import math
import operator
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.noise.deviates import (
    LOG2_BUCKETS,
    BucketTable,
    Deviates,
    Sampler,
    exponential_table,
    normal_table,
)
from discreet.noise.stream import Stream, flat_view, process_mark, stream_or_fresh

if TYPE_CHECKING:
    from discreet._types import Floats, Ints


GAUSSIAN_TOTAL_VARIATION = 2.0**-117
"""Upper bound per draw on the total variation from the exact Gaussian law (theorem lattice-sampler)."""
LAPLACE_TOTAL_VARIATION = 2.0**-114
"""Upper bound per draw on the total variation from the exact Laplace law (theorem lattice-sampler)."""
LARGEST_SCALE = 2.0**50
"""Largest standard deviation or scale, in lattice steps."""
_DIGITS = 53
"""Binary digits of an offset that a float can hold."""

Size = int | tuple[int, ...]


def check_scale(scale: float, name: str, where: str) -> float:
    """Return ``scale`` as a float inside the samplers' domain, or raise."""
    try:
        value = float(scale)
    except (TypeError, ValueError):
        value = math.nan
    if not 0 < value <= LARGEST_SCALE:
        raise ParameterError(
            f"{name} of {where} must be a number above 0 and at most 2**50 lattice steps, "
            f"was {scale!r}. Choose a coarser or finer lattice."
        )
    return value


def check_count(count: int, name: str, where: str) -> int:
    """Return ``count`` as an int of at least 0, or raise."""
    try:
        value = -1 if isinstance(count, bool) else operator.index(count)
    except TypeError:
        value = -1
    if value < 0:
        raise ParameterError(f"{name} of {where} must be a whole number of at least 0, was {count!r}.")
    return value


def allocate_result(size: Size, dtype: type[Any], where: str) -> Any:
    """Return an uninitialized array of shape ``size``, or raise."""
    try:
        return np.empty(size, dtype)
    except (TypeError, ValueError):
        raise ParameterError(
            f"size of {where} must be a whole number of at least 0 or a tuple of them, was {size!r}."
        ) from None


def rounded_gaussian(s: float, size: Size, stream: Stream | None = None) -> Ints:
    """Return random integers ``round(N)``, ``N`` normal with mean 0 and standard deviation ``s``.

    Parameters
    ----------
    s : float
        Standard deviation in lattice steps, above 0 and at most 2**50.
    size : int or tuple of int
        Shape of the result.
    stream : Stream, optional
        Source of the random words; None for a fresh one, keyed by the operating system.

    Returns
    -------
    ndarray of int64

    Privacy
    -------
    For values that are integers already, adding this noise is adding a continuous Gaussian and then
    rounding: post-processing of the Gaussian mechanism, whose exact trade-off therefore applies in any
    number of dimensions with ``mu = L2 sensitivity / s``. Each draw is within
    :data:`GAUSSIAN_TOTAL_VARIATION` = 2**-117 of that law. Drawing takes longer when a proposal is rejected;
    draw through a :class:`~discreet.noise.samplers.Pool` where an attacker can time single draws.

    Reference
    ---------
    docs/explanation/theorems/lattice-sampler.md

    Examples
    --------
    >>> from discreet.noise import Stream, rounded_gaussian
    >>> x = rounded_gaussian(2.0**20, 10_000, stream=Stream.from_seed(1))
    >>> x.dtype, bool(0.97 < x.std() / 2**20 < 1.03)
    (dtype('int64'), True)
    """
    s = check_scale(s, "s", "rounded_gaussian")
    out: Ints = allocate_result(size, np.int64, "rounded_gaussian")
    fill_rounded_gaussian(out.reshape(-1), s, stream_or_fresh(stream))
    return out


def fill_rounded_gaussian(
    out: Ints, s: float | Floats, stream: Stream, sampler: Sampler | None = None
) -> None:
    """Fill the flat array ``out`` with rounded Gaussians.

    Parameters
    ----------
    out : array of int64
        Flat array to overwrite.
    s : float or array of float
        Standard deviation in lattice steps, one for all or one for each position.
    stream : Stream
        Source of the random words, unless a sampler is given.
    sampler : Sampler, optional
        Sampler of :func:`normal_table` to reuse for many arrays; None makes a new one.
    """
    sampler = sampler or Sampler(normal_table(), out.size, stream)
    for block in sampler.blocks(out.size):
        part = out[block]
        scale = s if isinstance(s, float) else s[block]
        sampler.floor(sampler.draw(part.size), scale, half=True, out=part)


def discrete_laplace(scale: float, size: Size, stream: Stream | None = None) -> Ints:
    """Return random integers with probability proportional to ``exp(-abs(x) / scale)``.

    Parameters
    ----------
    scale : float
        Scale of the noise in lattice steps; above 0 and at most 2**50.
    size : int or tuple of int
        Shape of the result.
    stream : Stream, optional
        Source of the random words; None for a fresh one, keyed by the operating system.

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
    out: Ints = allocate_result(size, np.int64, "discrete_laplace")
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
    """Return random integers ``round(L)`` with ``L`` a Laplace variable of that scale.

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
    out: Ints = allocate_result(size, np.int64, "rounded_laplace")
    flat = out.reshape(-1)
    stream = stream_or_fresh(stream)
    sampler = Sampler(exponential_table(), flat.size, stream)
    for block in sampler.blocks(flat.size):
        part = flat[block]
        sampler.floor(sampler.draw(part.size), scale, half=True, out=part)
        # Rounding is symmetric but for ties, which have probability 0: the sign may be drawn separately.
        bits = np.unpackbits(stream.words((part.size + 63) // 64).view(np.uint8), count=part.size)
        np.multiply(part, 1 - 2 * bits.astype(np.int64), out=part)
    return out


class NormalSampler:
    """Sampler that fills arrays with standard normal floats, in memory that is allocated once.

    Parameters
    ----------
    n : int
        Number of floats that will be drawn in all: chooses the block size and the inner loops.
    stream : Stream
        Source of the random words; one child is spawned from it.
    """

    def __init__(self, n: int, stream: Stream) -> None:
        self._sampler = Sampler(normal_table(), check_count(n, "n", "NormalSampler"), stream)

    def fill(self, out: Floats) -> None:
        """Overwrite the contiguous array ``out`` with standard normal floats."""
        flat = flat_view(out, "NormalSampler.fill")
        for block in self._sampler.blocks(flat.size):
            part = flat[block]
            bucket, offset, _ = self._sampler.draw(part.size)
            # A signed 53-bit integer becomes a float without rounding, and much faster than an unsigned one.
            np.right_shift(offset, np.uint64(64 - _DIGITS), out=offset)
            np.multiply(offset.view(np.int64), 2.0**-_DIGITS, out=part)
            np.add(part, bucket, out=part)
            np.multiply(part, 2.0**-LOG2_BUCKETS, out=part)


def standard_normal(size: Size, stream: Stream | None = None) -> Floats:
    """Return standard normal floats.

    Parameters
    ----------
    size : int or tuple of int
        Shape of the result.
    stream : Stream, optional
        Source of the random words; None for a fresh one, keyed by the operating system.

    Returns
    -------
    ndarray of float64

    Privacy
    -------
    None. The low-order bits of a sum of floats reveal its terms; use
    :func:`~discreet.noise.samplers.rounded_gaussian` for anything that promises an epsilon.

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
    out: Floats = allocate_result(size, np.float64, "standard_normal")
    NormalSampler(out.size, stream_or_fresh(stream)).fill(out)
    return out


def standard_maxwell(n: int, stream: Stream | None = None) -> Floats:
    """Return random lengths of three-dimensional standard normal vectors.

    Among the laws on the positive numbers with a given mean square this one has the least Fisher information
    about a shift: 3, at a mean of ``2 sqrt(2 / pi)`` and a mean square of 3.

    Parameters
    ----------
    n : int
        Number of draws; at least 0.
    stream : Stream, optional
        Source of the random words; None for a fresh one, keyed by the operating system.

    Returns
    -------
    ndarray of float64, shape (n,)

    Privacy
    -------
    None, as for :func:`standard_normal`.

    Reference
    ---------
    docs/explanation/theorems/fisher-invariant.md

    Examples
    --------
    >>> from discreet.noise import Stream, standard_maxwell
    >>> bool((standard_maxwell(1000, Stream.from_seed(1)) > 0).all())
    True
    """
    z = standard_normal((check_count(n, "n", "standard_maxwell"), 3), stream)
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", z, z)))


class Pool:
    """Source of single draws for a service that answers one query at a time.

    A sampler takes longer when it rejects a proposal, and rejections depend on the value drawn. The pool
    therefore keeps a block of accepted standard deviates; a draw is then a multiplication and a floor,
    whatever its value and its scale. A block is drawn in one piece when the last one is used up, so the time
    of that call depends on thousands of draws together.

    Parameters
    ----------
    block : int
        Number of deviates that are drawn together; at least 1.

    Privacy
    -------
    The law is that of :func:`~discreet.noise.samplers.rounded_gaussian` and
    :func:`~discreet.noise.samplers.discrete_laplace`. A block is never used on both sides of a fork.

    Reference
    ---------
    docs/explanation/theorems/lattice-sampler.md, "Timing".

    Examples
    --------
    >>> from discreet.noise import Pool
    >>> pool = Pool(block=64)
    >>> len(pool.gaussian(3.0, 5))
    5
    """

    def __init__(self, block: int = 4096) -> None:
        if check_count(block, "block", "Pool") < 1:
            raise ParameterError(f"block of Pool must be at least 1, was {block}.")
        self._block = block
        self._buffers = _ProcessBuffers()

    def gaussian(self, s: float, n: int = 1) -> Ints:
        """Return ``n`` rounded Gaussians of standard deviation ``s``, in lattice steps."""
        s, n = check_scale(s, "s", "Pool.gaussian"), check_count(n, "n", "Pool.gaussian")
        buffers = self._process_buffers()
        with buffers.lock:
            return buffers.buffer("normal", normal_table(), self._block).take(s, n, half=True)

    def laplace(self, scale: float, n: int = 1) -> Ints:
        """Return ``n`` discrete Laplace draws of that scale, in lattice steps."""
        scale, n = check_scale(scale, "scale", "Pool.laplace"), check_count(n, "n", "Pool.laplace")
        buffers = self._process_buffers()
        with buffers.lock:
            buffer = buffers.buffer("exponential", exponential_table(), self._block)
            geometric = buffer.take(scale, 2 * n, half=False)
        return geometric[:n] - geometric[n:]

    def _process_buffers(self) -> _ProcessBuffers:
        # Checked before the lock is taken: another thread may have held it when this process was forked, and
        # in the child it would never be released.
        buffers = self._buffers
        if buffers.process != process_mark():
            buffers = self._buffers = _ProcessBuffers()
        return buffers


class _ProcessBuffers:
    """Buffers of one process by density, with their lock."""

    def __init__(self) -> None:
        self.process = process_mark()
        self.lock = threading.Lock()
        self._buffers: dict[str, _DeviateBuffer] = {}

    def buffer(self, name: str, table: BucketTable, block: int) -> _DeviateBuffer:
        """Return the buffer of one density, filled at its first use."""
        if name not in self._buffers:
            self._buffers[name] = _DeviateBuffer(table, block)
        return self._buffers[name]


class _DeviateBuffer:
    """Accepted deviates of one density, used up from the front."""

    def __init__(self, table: BucketTable, block: int) -> None:
        self._sampler = Sampler(table, block, Stream())
        self._refill()

    def _refill(self) -> None:
        self._deviates = self._sampler.draw(self._sampler.capacity)
        self._next = 0

    def take(self, scale: float, n: int, half: bool) -> Ints:
        """Return ``floor(scale * z + half / 2)`` of the next ``n`` deviates z, refilling as needed."""
        out = np.empty(n, np.int64)
        done = 0
        while done < n:
            if self._next == self._sampler.capacity:
                self._refill()
            start = self._next
            count = min(n - done, self._sampler.capacity - start)
            self._next += count
            # Digits that a close acceptance has drawn belong to the deviate: the floor must use these.
            tails = self._deviates.tails
            part = Deviates(
                self._deviates.bucket[start : start + count],
                self._deviates.offset[start : start + count],
                {i - start: tails[i] for i in tails if start <= i < start + count},
            )
            self._sampler.floor(part, scale, half, out[done : done + count])
            done += count
        return out
