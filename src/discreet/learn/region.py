"""Where in the declared box the rows are, and how far they spread: bought with a small share of a promise.

Noise on a Gram matrix or on the sums of clusters grows with the length to which rows are clipped. Declared
boxes are wide and rows fill a part of them; a noisy mean and a noisy mean square cost little and let the rest
of the promise be spent where the rows are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.learn.base import Domain, is_number
from discreet.query import ClusterSums, Sums
from discreet.query.expression.nodes import write_name

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.learn.layout import Layout
    from discreet.learn.passes import Passes

LEAST = 3.0
"""Standard deviations of noise that a count must have above 0 before anything is divided by it."""

RADIUS = Domain(
    "'auto', None or a number of at least 2**-16",
    lambda v: v is None or (isinstance(v, str) and v == "auto") or (is_number(v) and v >= 2.0**-16),
    (0, -1.0, math.inf, "none", True),
)


@dataclass(frozen=True)
class Place:
    """A noisy mean of all rows, as fractions of the declared ranges.

    Attributes
    ----------
    n_rows : float
        The public number of rows, or else a noisy one.
    mean : array
        Pulled towards the middle of the box as far as noise can have pushed it away.
    sd : array
        Standard deviation of the noise on it, before it was pulled.
    """

    n_rows: float
    mean: Floats
    sd: Floats


def ask_place(passes: Passes, name: str, layout: Layout) -> Place:
    """Ask for the mean of all rows: one cluster, counted from the middle of the box.

    Privacy
    -------
    The square of the sensitivity is the number of coordinates when a row is replaced.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    middle = (0.5,) * layout.size
    # No row is farther from the middle than half the diagonal; the rounding must not clip those in corners.
    reach = math.nextafter(math.sqrt(layout.size) / 2, math.inf)
    answer = passes.ask(name, ClusterSums(layout.names, [middle], reach))
    (value,), (sd,) = np.asarray(answer.value), np.asarray(answer.sd)
    public = passes.sums.n_rows
    n_rows = float(max(1.0, value[0], LEAST * sd[0])) if public is None else float(max(public, 1))
    offset = shrunk(value[1:] / n_rows, sd[1:] / n_rows)
    return Place(n_rows, np.clip(0.5 + offset, 0.0, 1.0), sd[1:] / n_rows)


def ask_spread(passes: Passes, name: str, layout: Layout, center: Floats, place: Place) -> Floats:
    """Ask for the mean square of each coordinate about a center; return it, at least as large as its noise.

    Privacy
    -------
    A sum of squares for each number; what a category adds follows from its noisy mean.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    largest = np.maximum(center, 1 - center) ** 2
    levels = np.array([layout.schema.column(name).is_category for name, _ in layout.coordinates])
    # (x - c)^2 of a coordinate that is 0 or 1 is linear in it.
    mean_square = place.mean * (1 - 2 * center) + center**2
    noise = np.zeros(layout.size)
    numbers = np.flatnonzero(~levels)
    if len(numbers):
        texts = [_square(layout, int(i), float(center[i])) for i in numbers]
        answer = passes.ask(name, Sums(texts))
        unit = layout.width[numbers] ** 2 * place.n_rows
        mean_square[numbers] = np.asarray(answer.value) / unit
        noise[numbers] = np.asarray(answer.sd) / unit
    sd = float(np.linalg.norm(noise))
    total = min(max(float(mean_square.sum()), sd, 2.0**-20), float(largest.sum()))
    # Coordinates differ as far as noise does not explain; what is left is shared out.
    spread = np.clip(mean_square, 0.0, largest)
    around = float(spread.var())
    kept = around / (around + float(np.mean(noise**2))) if around else 0.0
    mixed = kept * spread + (1 - kept) * total / layout.size
    return np.asarray(mixed * (total / max(float(mixed.sum()), 2.0**-40)))


def shrunk(estimate: Floats, sd: Floats) -> Floats:
    """Pull noisy vectors towards 0 by what noise alone would have made of 0 (James and Stein).

    Parameters
    ----------
    estimate, sd : array of shape (d,) or (k, d)
        Noisy vectors, and the standard deviation of the noise on each entry.
    """
    square = (estimate**2).sum(axis=-1, keepdims=True)
    noise = (sd**2).sum(axis=-1, keepdims=True)
    factor = np.maximum(0.0, 1 - noise / np.maximum(square, np.finfo(float).tiny))
    return np.asarray(estimate * np.where(noise > 0, factor, 1.0))


def _square(layout: Layout, i: int, center: float) -> str:
    raw = float(layout.lower[i] + center * layout.width[i])
    number = np.format_float_positional(raw, trim="0")
    return f"POWER({write_name(layout.coordinates[i][0])} - ({number}), 2)"
