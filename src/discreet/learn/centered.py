"""Coordinates around public points, so that the rows of linear models are as short as is known beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.learn.cells import Cells
    from discreet.learn.layout import Layout


@dataclass(frozen=True)
class Centered:
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

    layout: Layout
    radius: float | None = None
    cells: Cells | None = None

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
    def shortens(self) -> bool:
        """Whether rows are cut that the declared ranges allow."""
        return self.radius is not None and self.radius < self.reach

    @property
    def asked(self) -> dict[str, Any]:
        """Columns, center, radius and edges as questions want them."""
        radius = self.radius if self.shortens else self.reach
        edges = {} if self.cells is None else self.cells.among(self.layout.names)
        return {"columns": self.layout.names, "center": self.center, "radius": radius, "edges": edges}

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return sum(self._widths) + self.intercept

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where the levels of each category stand."""
        found, at = [], 0
        for category, width in zip(self._categories.values(), self._widths, strict=True):
            if category:
                found.append(slice(at, at + width))
            at += width
        return tuple(found)

    def known_zeros(self, gram: Floats) -> Floats:
        """Put zeros where products must be 0: no row has two levels of one category."""
        made = gram.copy()
        for block in self.blocks:
            made[block, block] = np.diag(np.diag(made[block, block]))
        return made

    def rows(self, coordinates: Floats) -> Floats:
        """Return vectors of rows whose coordinates go from 0 to 1: those of the layout, or of the cells."""
        vectors = coordinates - np.array(self.center)
        if self.shortens:
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
