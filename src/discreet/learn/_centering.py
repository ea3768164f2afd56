"""Centers and lengths of rows: public ones by :class:`Centering`, noisy ones by :func:`query_region`.

Noise on a Gram matrix or on sums of clusters grows with the length to which rows are clipped. Counting from
the middle of the declared ranges makes rows as short as is known without a query. Rows may fill a small part
of the declared box; a noisy mean and a noisy mean square cost a small share of the promise and show which.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.learn.arguments import Constraint, is_number
from discreet.query import Moments, PredictionCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Bools, Floats
    from discreet.learn._bins import Bins
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.feature_map import FeatureMap


_SCORE_BITS = 10  # of the largest score in a query


def check_not_clipping(centering: Centering, learner: Any) -> None:
    """Refuse a paid score of a model that shortens rows: the query that counts right rows does not."""
    if learner.paid_score is not False and centering.is_clipping:
        raise ParameterError(
            f"radius of {type(learner).__name__} must be left out where a score is paid for, was "
            f"{learner.radius!r}: right rows are counted without clipping. Leave out one of the two."
        )


@dataclass(frozen=True)
class Centering:
    """Map of rows to vectors: numbers counted from the middle of their range, levels of a category from 0.

    A row has one level of each category, so its squared length is at most a quarter for each number and one
    for each category. Without categories a constant coordinate 1 is appended; with a category it would be the
    sum of its levels. Numbers can be read as public cells, which makes them categories.

    Attributes
    ----------
    layout : FeatureMap
        Columns of the rows, with their declared ranges and levels.
    radius : float or None
        Length to which rows are clipped, as a fraction of the ranges; None clips nothing.
    cells : Bins or None
        Public cells of all numbers; None if numbers are read as they are.

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
        """Center of each coordinate, as a fraction of its range."""
        # A number is at most 1/2 from its middle; of the indicators of a category one is 1 and all others 0.
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
        """Number of coordinates of each column."""
        if self.cells is not None:
            return tuple(self.cells.sizes.values())
        return tuple(len(c.levels) if c.is_category else 1 for c in self.layout.schema.columns)

    @property
    def intercept(self) -> bool:
        """Whether a constant coordinate 1 is appended."""
        # The indicators of a category add up to 1: they are a constant already.
        return not any(self._categories.values())

    @property
    def reach(self) -> float:
        """Largest length of a row inside the declared ranges, rounded up."""
        categories = sum(self._categories.values())
        # Rounded up, so that no row inside the ranges is clipped.
        return math.nextafter(math.sqrt((len(self._categories) - categories) / 4 + categories), math.inf)

    @property
    def is_clipping(self) -> bool:
        """Whether the radius is below the largest length of a row."""
        return self.radius is not None and self.radius < self.reach

    @property
    def query_arguments(self) -> dict[str, Any]:
        """Columns, center, radius and edges, as keyword arguments of a vector query."""
        radius = self.radius if self.is_clipping else self.reach
        edges = {} if self.cells is None else self.cells.edges_of(self.layout.names)
        return {"columns": self.layout.names, "center": self.center, "radius": radius, "edges": edges}

    @property
    def size(self) -> int:
        """Number of coordinates, the constant included."""
        return sum(self._widths) + self.intercept

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Positions of the levels of each category."""
        blocks, at = [], 0
        for category, width in zip(self._categories.values(), self._widths, strict=True):
            if category:
                blocks.append(slice(at, at + width))
            at += width
        return tuple(blocks)

    def zero_level_products(self, gram: Floats) -> Floats:
        """Return a Gram matrix with 0 for products of two levels of one category, which no row has."""
        result = gram.copy()
        for block in self.blocks:
            result[block, block] = np.diag(np.diag(result[block, block]))
        return result

    def count_query(
        self, target: str, classes: Sequence[Any], weights: Floats, *, by_class: bool
    ) -> PredictionCounts:
        """Return the query for the rows that a linear model gets right.

        Parameters
        ----------
        target : str
            Column of the labels.
        classes : sequence of levels
            Levels of the target, in the order of the classes.
        weights : array of shape (1, size) or (n_classes, size)
            Weights of the second of two classes, or of each class, for the vectors that :meth:`rows` makes.
        by_class : bool
            Whether rows are counted by their class and the class that is named.
        """
        assert not self.is_clipping
        scores = weights if len(weights) > 1 else np.vstack([np.zeros_like(weights), weights])
        # The largest score wins, whatever the unit: this one uses the digits that a query has.
        scores = np.ldexp(scores, _SCORE_BITS - math.frexp(float(np.abs(scores).max()) or 1.0)[1])
        curves, slopes, at = {}, {}, 0
        for (name, category), width in zip(self._categories.items(), self._widths, strict=True):
            part = scores[:, at : at + width].T.tolist()
            if category:
                curves[name] = part
            else:
                (slopes[name],) = part
            at += width
        return PredictionCounts(
            target,
            tuple(classes),
            scores[:, at].tolist() if self.intercept else [0.0] * len(scores),
            curves,
            {} if self.cells is None else self.cells.edges_of(self.layout.names),
            # From the middle of the range, which is where a missing number is put.
            dict.fromkeys(slopes, (0.5, 1.0)),
            slopes,
            by_class=by_class,
        )

    def rows(self, coordinates: Floats) -> Floats:
        """Return centered and clipped vectors of rows.

        Parameters
        ----------
        coordinates : array of shape (n_rows, n_coordinates)
            Rows as fractions from 0 to 1, by :meth:`FeatureMap.rows` or :meth:`Bins.coordinates`.
        """
        vectors = coordinates - np.array(self.center)
        if self.is_clipping:
            assert self.radius is not None
            lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
            # By the larger of the two: short rows stay as they are, and nothing is divided by 0.
            vectors *= np.minimum(1.0, self.radius / np.maximum(lengths, self.radius))[:, None]
        if self.intercept:
            vectors = np.column_stack([vectors, np.ones(len(vectors))])
        return np.asarray(vectors)

    def coefficients(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return coefficients in the columns' own units, and intercepts, for weights of centered vectors.

        Parameters
        ----------
        weights : array of shape (..., size)
            Weights of one model, or of several in rows.

        Notes
        -----
        They hold for rows that are not clipped. Cells have no unit: a coefficient is the effect of being in
        one.
        """
        if self.cells is not None:
            return weights, np.zeros(weights.shape[:-1])
        slopes = weights[..., : self.layout.size] / self.layout.width
        shift = self.layout.lower + np.array(self.center) * self.layout.width
        constant = weights[..., -1] if self.intercept else np.zeros(weights.shape[:-1])
        return slopes, np.asarray(constant - slopes @ shift)


def spectral_edge(sd: Floats) -> float:
    """Return the largest eigenvalue of symmetric noise for many coordinates, ``2 sd sqrt(size)``.

    Parameters
    ----------
    sd : array of shape (size, size)
        Standard deviation of the noise on each entry; the largest one off the diagonal counts.
    """
    size = len(sd)
    # Diagonal entries have more noise, but are too few to move the edge.
    off = sd[~np.eye(size, dtype=bool)]
    return 2 * float(off.max() if off.size else sd.max()) * math.sqrt(size)


LEAST_COUNT = 3.0
"""Standard deviations of noise that a count must exceed before anything is divided by it."""

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
        Public number of rows, or else a noisy one of at least 1.
    mean : array of shape (d,)
        Noisy mean, shrunk towards the middle of the box by the size of its noise.
    sd : array of shape (d,)
        Standard deviation of the noise on the mean, before shrinking.
    square, square_sd : array of shape (d,)
        Noisy mean square distance from the middle of each coordinate's range, and its noise; both are 0 for
        levels of a category, whose squares follow from their means.
    levels : array of bool
        Whether each coordinate is a level of a category.
    raw : array of shape (d,)
        Noisy mean before shrinking, which is unbiased.
    """

    n_rows: float
    mean: Floats
    sd: Floats
    raw: Floats
    square: Floats
    square_sd: Floats
    levels: Bools

    def spread(self, center: Floats) -> Floats:
        """Return the mean square of each coordinate about a center.

        Notes
        -----
        ``E(x - c)^2 = E(x - 1/2)^2 - 2 (c - 1/2) E(x - 1/2) + (c - 1/2)^2``; for a level ``E(x - 1/2)^2 =
        1/4``. The total is at least its own noise. Single coordinates are shrunk towards the mean of all by
        the weight ``v / (v + mean noise variance)``, ``v`` their variance, then rescaled to the total.
        """
        offset = center - 0.5
        squares = np.where(self.levels, 0.25, self.square)
        mean_square = squares - 2 * offset * (self.raw - 0.5) + offset**2
        noise = np.hypot(self.square_sd, 2 * offset * self.sd)
        # No square exceeds that of the farther end of the range.
        largest = np.maximum(center, 1 - center) ** 2
        sd = float(np.linalg.norm(noise))
        total = min(max(float(mean_square.sum()), sd, 2.0**-20), float(largest.sum()))
        # Differences between coordinates count only as far as noise does not explain them.
        clipped = np.clip(mean_square, 0.0, largest)
        variance = float(clipped.var())
        part = variance / (variance + float(np.mean(noise**2))) if variance else 0.0
        blended = part * clipped + (1 - part) * total / len(center)
        return np.asarray(blended * (total / max(float(blended.sum()), 2.0**-40)))


def query_region(schedule: BudgetSchedule, name: str, layout: FeatureMap) -> Region:
    """Return noisy mean and spread of all rows, by one query.

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
    # A noisy number of rows is kept away from 0, because means divide by it.
    n_rows = float(max(1.0, value[0], LEAST_COUNT * sd[0])) if public is None else float(max(public, 1))
    levels = np.array([layout.schema.column(name).is_category for name, _ in layout.coordinates], bool)
    d = layout.size
    # The query counts numbers from the middle of their range and levels from 0.
    raw = value[1 : d + 1] / n_rows + np.where(levels, 0.0, 0.5)
    noise = sd[1 : d + 1] / n_rows
    square, square_sd = np.zeros(d), np.zeros(d)
    square[~levels], square_sd[~levels] = value[d + 1 :] / n_rows, sd[d + 1 :] / n_rows
    mean = np.clip(0.5 + shrink_to_zero(raw - 0.5, noise), 0.0, 1.0)
    return Region(n_rows, mean, noise, raw, square, square_sd, levels)


def shrink_to_zero(estimate: Floats, sd: Floats) -> Floats:
    """Return noisy vectors shrunk towards 0 by the positive-part James-Stein factor.

    Parameters
    ----------
    estimate, sd : array of shape (d,) or (k, d)
        Noisy vectors, and the standard deviation of the noise on each entry.

    Notes
    -----
    ``x max(0, 1 - sum(sd^2) / |x|^2)``, for each vector ``x``.
    """
    square = (estimate**2).sum(axis=-1, keepdims=True)
    noise = (sd**2).sum(axis=-1, keepdims=True)
    factor = np.maximum(0.0, 1 - noise / np.maximum(square, np.finfo(float).tiny))
    return np.asarray(estimate * np.where(noise > 0, factor, 1.0))
