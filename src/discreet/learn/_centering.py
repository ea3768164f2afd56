"""Coordinates around public points, so that the rows of linear models are as short as is known beforehand.

Where in the declared box the rows are, and how far they spread: bought with a small share of a promise.

Noise on a Gram matrix or on the sums of clusters grows with the length to which rows are clipped. Declared
boxes are wide and rows fill a part of them; a noisy mean and a noisy mean square cost little and let the rest
of the promise be spent where the rows are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.learn.base import Constraint, is_number
from discreet.query import Moments

if TYPE_CHECKING:
    from discreet._types import Bools, Floats
    from discreet.learn._bins import Bins
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.feature_map import FeatureMap


@dataclass(frozen=True)
class Centering:
    """Rows as vectors: numbers counted from the middle of their range, levels of a category from 0.

    A row has one level of each category, so its squared length is at most a quarter for each number and one
    for each category. Without categories a coordinate that is always 1 is added; with one it would
    be the sum of its levels, and adds nothing. Numbers can be read as public cells, which makes them
    categories.

    Attributes
    ----------
    layout : Layout
        The columns.
    radius : float or None
        A shorter length to which rows are cut.
    cells : Cells or None
        Public cells of all numbers, if they are read as such.

    Privacy
    -------
    Declared, not measured.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    layout: FeatureMap
    radius: float | None = None
    cells: Bins | None = None

    @cached_property
    def center(self) -> tuple[float, ...]:
        """Of each coordinate, as a fraction of its range."""
        return tuple(
            0.0 if category else 0.5
            for category, width in zip(self._categories.values(), self._widths, strict=True)
            for _ in range(width)
        )

    @cached_property
    def _categories(self) -> dict[str, bool]:
        return {
            column.name: column.is_category or self.cells is not None for column in self.layout.schema.columns
        }

    @cached_property
    def _widths(self) -> tuple[int, ...]:
        """How many coordinates each column has."""
        if self.cells is not None:
            return tuple(self.cells.sizes.values())
        return tuple(len(c.levels) if c.is_category else 1 for c in self.layout.schema.columns)

    @property
    def intercept(self) -> bool:
        """Whether a coordinate that is always 1 is needed."""
        return not any(self._categories.values())

    @property
    def reach(self) -> float:
        """How long a row can be, rounded up."""
        categories = sum(self._categories.values())
        return math.nextafter(math.sqrt((len(self._categories) - categories) / 4 + categories), math.inf)

    @property
    def is_clipping(self) -> bool:
        """Whether rows are cut that the declared ranges allow."""
        return self.radius is not None and self.radius < self.reach

    @property
    def query_arguments(self) -> dict[str, Any]:
        """Columns, center, radius and edges as questions want them."""
        radius = self.radius if self.is_clipping else self.reach
        edges = {} if self.cells is None else self.cells.edges_of(self.layout.names)
        return {"columns": self.layout.names, "center": self.center, "radius": radius, "edges": edges}

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return sum(self._widths) + self.intercept

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where the levels of each category stand."""
        blocks, at = [], 0
        for category, width in zip(self._categories.values(), self._widths, strict=True):
            if category:
                blocks.append(slice(at, at + width))
            at += width
        return tuple(blocks)

    def zero_level_products(self, gram: Floats) -> Floats:
        """Put zeros where products must be 0: no row has two levels of one category."""
        result = gram.copy()
        for block in self.blocks:
            result[block, block] = np.diag(np.diag(result[block, block]))
        return result

    def rows(self, coordinates: Floats) -> Floats:
        """Return vectors of rows whose coordinates go from 0 to 1: those of the layout, or of the cells."""
        vectors = coordinates - np.array(self.center)
        if self.is_clipping:
            assert self.radius is not None
            lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
            vectors *= np.minimum(1.0, self.radius / np.maximum(lengths, self.radius))[:, None]
        if self.intercept:
            vectors = np.column_stack([vectors, np.ones(len(vectors))])
        return np.asarray(vectors)

    def coefficients(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return weights of vectors as coefficients in the columns' own units, and intercepts.

        Of several rows of weights each is taken for itself. For rows that are shortened they do not hold.
        Cells have no unit: a coefficient is what being in one adds.
        """
        if self.cells is not None:
            return weights, np.zeros(weights.shape[:-1])
        slopes = weights[..., : self.layout.size] / self.layout.width
        shift = self.layout.lower + np.array(self.center) * self.layout.width
        constant = weights[..., -1] if self.intercept else np.zeros(weights.shape[:-1])
        return slopes, np.asarray(constant - slopes @ shift)


def spectral_edge(sd: Floats) -> float:
    """Return what the largest eigenvalue of symmetric noise comes to: 2 sd sqrt(size)."""
    size = len(sd)
    off = sd[~np.eye(size, dtype=bool)]
    return 2 * float(off.max() if off.size else sd.max()) * math.sqrt(size)


LEAST_COUNT = 3.0
"""Standard deviations of noise that a count must have above 0 before anything is divided by it."""

RADIUS = Constraint(
    "'auto', None or a number of at least 2**-16",
    lambda v: v is None or (isinstance(v, str) and v == "auto") or (is_number(v) and v >= 2.0**-16),
    (0, -1.0, math.inf, "none", True),
)


@dataclass(frozen=True)
class Region:
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
        offset = center - 0.5
        # (x - c)^2 = (x - 1/2)^2 - 2 (c - 1/2) (x - 1/2) + (c - 1/2)^2; a level is 0 or 1.
        squares = np.where(self.levels, 0.25, self.square)
        mean_square = squares - 2 * offset * (self.raw - 0.5) + offset**2
        noise = np.hypot(self.square_sd, 2 * offset * self.sd)
        largest = np.maximum(center, 1 - center) ** 2
        sd = float(np.linalg.norm(noise))
        total = min(max(float(mean_square.sum()), sd, 2.0**-20), float(largest.sum()))
        # Coordinates differ as far as noise does not explain; what is left is shared out.
        clipped = np.clip(mean_square, 0.0, largest)
        variance = float(clipped.var())
        part = variance / (variance + float(np.mean(noise**2))) if variance else 0.0
        blended = part * clipped + (1 - part) * total / len(center)
        return np.asarray(blended * (total / max(float(blended.sum()), 2.0**-40)))


def query_region(schedule: BudgetSchedule, name: str, layout: FeatureMap) -> Region:
    """Ask where all rows are and how far they spread, in one pass.

    Privacy
    -------
    One :class:`~discreet.query.Moments` question: the square of the sensitivity is 1 for each number and 2
    for each category when a row is replaced.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """
    answer = schedule.ask(name, Moments(layout.names))
    value, sd = np.asarray(answer.value), np.asarray(answer.sd)
    public = schedule.sums.n_rows
    n_rows = float(max(1.0, value[0], LEAST_COUNT * sd[0])) if public is None else float(max(public, 1))
    levels = np.array([layout.schema.column(name).is_category for name, _ in layout.coordinates], bool)
    d = layout.size
    # Numbers are counted from the middle of their range, levels from 0.
    raw = value[1 : d + 1] / n_rows + np.where(levels, 0.0, 0.5)
    noise = sd[1 : d + 1] / n_rows
    square, square_sd = np.zeros(d), np.zeros(d)
    square[~levels], square_sd[~levels] = value[d + 1 :] / n_rows, sd[d + 1 :] / n_rows
    mean = np.clip(0.5 + shrink_to_zero(raw - 0.5, noise), 0.0, 1.0)
    return Region(n_rows, mean, noise, raw, square, square_sd, levels)


def shrink_to_zero(estimate: Floats, sd: Floats) -> Floats:
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
