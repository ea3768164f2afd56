"""Draws made ahead of time, so that the time to hand one out does not follow its value."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.noise.lattice import (
    BucketTable,
    Deviates,
    Sampler,
    exponential_table,
    normal_table,
)
from discreet.noise.samplers import check_scale
from discreet.noise.stream import Stream, process_mark

if TYPE_CHECKING:
    from discreet._types import Ints


class Pool:
    """A supply of single draws for a service that answers one question at a time.

    A sampler needs a moment longer when it rejects a proposal, and rejections go with the value drawn.
    The pool therefore keeps a block of accepted standard deviates; handing one out is a multiplication
    and a floor, whatever its value and whatever the scale asked for. The block is drawn in one piece
    when the last one is used up, so the time of that call tells about thousands of draws together.

    Parameters
    ----------
    block : int
        How many deviates are drawn together.

    Privacy
    -------
    The law is that of :func:`~discreet.noise.samplers.rounded_gaussian` and
    :func:`~discreet.noise.samplers.discrete_laplace`. A block is never used on both sides of a fork.

    Reference
    ---------
    docs/explanation/theorems/lattice-sampler.md, "Timing".
    """

    def __init__(self, block: int = 4096) -> None:
        if block < 1:
            raise ParameterError(f"block of Pool must be at least 1, was {block}.")
        self._block = block
        self._stock = _Stock()

    def gaussian(self, s: float, n: int = 1) -> Ints:
        """Return ``n`` rounded Gaussians of standard deviation ``s``."""
        s = check_scale(s, "s", "Pool.gaussian")
        stock = self._of_this_process()
        with stock.lock:
            return stock.shelf("normal", normal_table(), self._block).take(s, n, half=True)

    def laplace(self, scale: float, n: int = 1) -> Ints:
        """Return ``n`` discrete Laplace draws."""
        scale = check_scale(scale, "scale", "Pool.laplace")
        stock = self._of_this_process()
        with stock.lock:
            shelf = stock.shelf("exponential", exponential_table(), self._block)
            geometric = shelf.take(scale, 2 * n, half=False)
        return geometric[:n] - geometric[n:]

    def _of_this_process(self) -> _Stock:
        # Looked at before the lock is taken: another thread may have held it when this process was forked,
        # and then nobody on this side would ever let go of it.
        stock = self._stock
        if stock.process != process_mark():
            stock = self._stock = _Stock()
        return stock


class _Stock:
    """The shelves of one process, and the lock on them."""

    def __init__(self) -> None:
        self.process = process_mark()
        self.lock = threading.Lock()
        self._shelves: dict[str, _Shelf] = {}

    def shelf(self, name: str, table: BucketTable, block: int) -> _Shelf:
        """Return the shelf of one density, filled at its first use."""
        if name not in self._shelves:
            self._shelves[name] = _Shelf(table, block)
        return self._shelves[name]


class _Shelf:
    """Accepted deviates of one density, handed out from the front."""

    def __init__(self, table: BucketTable, block: int) -> None:
        self._sampler = Sampler(table, block, Stream())
        self._refill()

    def _refill(self) -> None:
        self._stock = self._sampler.draw(self._sampler.capacity)
        self._next = 0

    def take(self, scale: float, n: int, half: bool) -> Ints:
        out = np.empty(n, np.int64)
        done = 0
        while done < n:
            if self._next == self._sampler.capacity:
                self._refill()
            start = self._next
            count = min(n - done, self._sampler.capacity - start)
            self._next += count
            tails = self._stock.tails
            part = Deviates(
                self._stock.bucket[start : start + count],
                self._stock.offset[start : start + count],
                {i - start: tails[i] for i in tails if start <= i < start + count},
            )
            self._sampler.floor(part, scale, half, out[done : done + count])
            done += count
        return out
