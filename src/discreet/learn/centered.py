"""Coordinates around public points, so that the rows of linear models are as short as is known beforehand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.learn.layout import Layout


@dataclass(frozen=True)
class Centered:
    """Rows as vectors: numbers counted from the middle of their range, levels of a category from 0.

    A row has one level of each category, so its squared length is at most a quarter for each number and one
    for each category. Without categories a coordinate that is always 1 is added; with one it would
    be the sum of its levels, and adds nothing.

    Attributes
    ----------
    layout : Layout
        The columns.
    radius : float or None
        A shorter length to which rows are cut.

    Privacy
    -------
    Declared, not measured.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    layout: Layout
    radius: float | None = None

    @cached_property
    def center(self) -> tuple[float, ...]:
        """Of each coordinate, as a fraction of its range."""
        return tuple(0.0 if self._categories[name] else 0.5 for name, _ in self.layout.coordinates)

    @cached_property
    def _categories(self) -> dict[str, bool]:
        return {column.name: column.is_category for column in self.layout.schema.columns}

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
        """Columns, center and radius as questions want them."""
        radius = self.radius if self.shortens else self.reach
        return {"columns": self.layout.names, "center": self.center, "radius": radius}

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return self.layout.size + self.intercept

    @cached_property
    def blocks(self) -> tuple[slice, ...]:
        """Where the levels of each category stand."""
        found, at = [], 0
        for column in self.layout.schema.columns:
            width = len(column.levels) if column.is_category else 1
            if column.is_category:
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
        """Return vectors of rows whose coordinates go from 0 to 1."""
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
        """
        slopes = weights[..., : self.layout.size] / self.layout.width
        shift = self.layout.lower + np.array(self.center) * self.layout.width
        constant = weights[..., -1] if self.intercept else np.zeros(weights.shape[:-1])
        return slopes, np.asarray(constant - slopes @ shift)


def spectral_edge(sd: Floats) -> float:
    """Return what the largest eigenvalue of symmetric noise comes to: 2 sd sqrt(size)."""
    size = len(sd)
    off = sd[~np.eye(size, dtype=bool)]
    return 2 * float(off.max() if off.size else sd.max()) * math.sqrt(size)
