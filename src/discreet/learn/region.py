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
from discreet.query import Moments

if TYPE_CHECKING:
    from discreet._typing import Bools, Floats
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
    """Noisy moments of all rows, as fractions of the declared ranges.

    Attributes
    ----------
    n_rows : float
        The public number of rows, or else a noisy one.
    mean : array
        Pulled towards the middle of the box as far as noise can have pushed it away.
    sd : array
        Standard deviation of the noise on it, before it was pulled.
    square, square_sd : array
        Mean square distance from the middle of each coordinate's range, and its noise; both are 0 and 0
        beyond doubt for levels of a category, whose squares follow from their means.
    levels : array of bool
        Which coordinates are levels.
    raw : array
        The mean before it was pulled, from which squares about other points follow without bias.
    """

    n_rows: float
    mean: Floats
    sd: Floats
    raw: Floats
    square: Floats
    square_sd: Floats
    levels: Bools

    def spread(self, center: Floats) -> Floats:
        """Return the mean square of each coordinate about a center, at least as large as its noise."""
        away = center - 0.5
        # (x - c)^2 = (x - 1/2)^2 - 2 (c - 1/2) (x - 1/2) + (c - 1/2)^2; a level is 0 or 1.
        squares = np.where(self.levels, 0.25, self.square)
        mean_square = squares - 2 * away * (self.raw - 0.5) + away**2
        noise = np.hypot(self.square_sd, 2 * away * self.sd)
        largest = np.maximum(center, 1 - center) ** 2
        sd = float(np.linalg.norm(noise))
        total = min(max(float(mean_square.sum()), sd, 2.0**-20), float(largest.sum()))
        # Coordinates differ as far as noise does not explain; what is left is shared out.
        kept = np.clip(mean_square, 0.0, largest)
        around = float(kept.var())
        part = around / (around + float(np.mean(noise**2))) if around else 0.0
        mixed = part * kept + (1 - part) * total / len(center)
        return np.asarray(mixed * (total / max(float(mixed.sum()), 2.0**-40)))


def ask_place(passes: Passes, name: str, layout: Layout) -> Place:
    """Ask where all rows are and how far they spread, in one pass.

    Privacy
    -------
    One :class:`~discreet.query.Moments` question: the square of the sensitivity is 1 for each number and 2
    for each category when a row is replaced.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    answer = passes.ask(name, Moments(layout.names))
    value, sd = np.asarray(answer.value), np.asarray(answer.sd)
    public = passes.sums.n_rows
    n_rows = float(max(1.0, value[0], LEAST * sd[0])) if public is None else float(max(public, 1))
    levels = np.array([layout.schema.column(name).is_category for name, _ in layout.coordinates], bool)
    d = layout.size
    # Numbers are counted from the middle of their range, levels from 0.
    raw = value[1 : d + 1] / n_rows + np.where(levels, 0.0, 0.5)
    noise = sd[1 : d + 1] / n_rows
    square, square_sd = np.zeros(d), np.zeros(d)
    square[~levels], square_sd[~levels] = value[d + 1 :] / n_rows, sd[d + 1 :] / n_rows
    mean = np.clip(0.5 + shrunk(raw - 0.5, noise), 0.0, 1.0)
    return Place(n_rows, mean, noise, raw, square, square_sd, levels)


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
