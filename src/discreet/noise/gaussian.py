"""The rounded Gaussian: ``round(N(0, s**2))`` on the integers, exactly."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.noise.lattice import Sampler, normal_table
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from discreet._typing import Floats, Ints

GAUSSIAN_TOTAL_VARIATION = 2.0**-117
"""Upper bound per draw on the distance from the exact law (theorem lattice-sampler)."""
LARGEST_SCALE = 2.0**50

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


def rounded_gaussian(s: float, size: Size, stream: Stream | None = None) -> Ints:
    """Draw integers ``round(N)`` with ``N`` a normal variable of mean 0 and standard deviation ``s``.

    Parameters
    ----------
    s : float
        Standard deviation in lattice steps, above 0 and at most 2**50.
    size : int or tuple of int
        Shape of the result.
    stream : Stream, optional
        Where the random words come from; a fresh one, keyed by the operating system, if left out.

    Returns
    -------
    ndarray of int64

    Privacy
    -------
    For values that are integers already, adding this noise is adding a continuous Gaussian and then
    rounding: post-processing of the Gaussian mechanism, whose exact trade-off therefore applies in any
    number of dimensions with ``mu = L2 sensitivity / s``. Each draw is within
    :data:`GAUSSIAN_TOTAL_VARIATION` = 2**-117 of that law. Drawing takes longer when a proposal is rejected;
    draw through a :class:`~discreet.noise.pool.Pool` where somebody can time single draws.

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
    out = np.empty(size, np.int64)
    fill_rounded_gaussian(out.reshape(-1), s, stream_or_fresh(stream))
    return out


def fill_rounded_gaussian(
    out: Ints, s: float | Floats, stream: Stream, sampler: Sampler | None = None
) -> None:
    """Fill the flat array ``out``; ``s`` is one scale or one for each position.

    Whoever fills many arrays in turn makes one ``sampler`` of :func:`normal_table` and passes it.
    """
    sampler = sampler or Sampler(normal_table(), out.size, stream)
    for block in sampler.blocks(out.size):
        part = out[block]
        scale = s if isinstance(s, float) else s[block]
        sampler.floor(sampler.draw(part.size), scale, half=True, out=part)
