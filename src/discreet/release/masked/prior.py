"""Points about nobody, from which masked ones are made: uniform on a ball."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.noise import standard_normal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet._typing import Floats
    from discreet.noise import Stream

BLOCK = 1 << 14
"""Points that are worked on at once: what is made along the way stays in the processor's cache."""


def blocks(n: int, size: int = BLOCK) -> Iterator[slice]:
    """Cut ``n`` points into blocks."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def ball(n: int, dimension: int, radius: float, stream: Stream) -> Floats:
    """Draw points uniformly from a ball."""
    points = standard_normal((n, dimension), stream)
    uniform = (stream.words(n) >> np.uint64(11)) * 2.0**-53
    for block in blocks(n):
        part = points[block]
        size = np.sqrt(np.einsum("ij,ij->i", part, part))
        part *= (radius * uniform[block] ** (1 / dimension) / np.where(size > 0, size, 1.0))[:, np.newaxis]
    return points
