"""Single draws from blocks drawn in advance, so that the time of a draw does not depend on its value."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.noise.deviates import BucketTable, Deviates, Sampler, exponential_table, normal_table
from discreet.noise.samplers import check_count, check_scale
from discreet.noise.stream import Stream, process_mark

if TYPE_CHECKING:
    from discreet._types import Ints


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
