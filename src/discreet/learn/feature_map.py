"""Public map of the columns that a model reads to coordinates from 0 to 1, saved with the model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from discreet.errors import ParameterError
from discreet.learn.arguments import two_vectors
from discreet.query.curation import Curation
from discreet.schema import Column, Schema
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.schema.column import Level
    from discreet.schema.schema import Neighbors


@dataclass(frozen=True)
class FeatureMap:
    """Map of columns to coordinates: a number as a fraction of its range, a category as one for each level.

    It maps rows in memory as the vector queries of :mod:`discreet.query` map rows in an engine, up to their
    grid of 2**16 steps.

    Attributes
    ----------
    schema : Schema
        Schema of the features alone, in order.

    Privacy
    -------
    Declared, not measured: nothing in it depends on a row.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    kind: ClassVar[str] = "layout"
    schema: Schema

    @classmethod
    def from_schema(cls, schema: Schema, columns: Sequence[str] | None = None) -> Self:
        """Return the map of some columns of a schema; by default of all features."""
        names = [column.name for column in schema.features] if columns is None else list(columns)
        if not names and columns is None:
            raise ParameterError(
                "columns of a learner must be at least one, and the schema releases none beside the target. "
                "Declare more columns."
            )
        if not names or len(set(names)) != len(names):
            raise ParameterError(f"columns of a learner must be at least one, each once, was {names}.")
        curation = Curation.from_schema(schema)
        chosen = [schema.column(curation.column(name).name) for name in names]
        return cls(Schema(columns=[dataclasses.replace(column, role="sensitive") for column in chosen]))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return self.schema.names

    @cached_property
    def coordinates(self) -> tuple[tuple[str, Level], ...]:
        """Column and level of each coordinate; the level is None for a number."""
        return tuple(
            (column.name, level)
            for column in self.schema.columns
            for level in (column.levels if column.is_category else (None,))
        )

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return len(self.coordinates)

    @cached_property
    def plain(self) -> bool:
        """Whether all columns are numbers that are never missing, so that rows can be a matrix of floats."""
        return all(column.type in ("number", "integer") and column.required for column in self.schema.columns)

    @cached_property
    def lower(self) -> Floats:
        """Value of each column at coordinate 0, in the column's unit; 0 for a level."""
        return np.array([0.0 if c.is_category else c.range[0] for c in self._owners])

    @cached_property
    def width(self) -> Floats:
        """Width of each column's range, in the column's unit; 1 for a level."""
        return np.array([1.0 if c.is_category else c.width for c in self._owners])

    @cached_property
    def _owners(self) -> tuple[Column, ...]:
        return tuple(self.schema.column(name) for name, _ in self.coordinates)

    def rows(self, X: Any) -> Floats:
        """Return rows as coordinates, clipped to the declared bounds.

        Parameters
        ----------
        X : matrix or frame
            A matrix has one column for each of :attr:`names`; a frame has them by name.
        """
        if self.plain and isinstance(X, np.ndarray):
            lower, width = self.lower, self.width
            return np.asarray((np.clip(X, lower, lower + width) - lower) / width)
        with open_table(self.name_columns(X)) as table:
            parts = [self.coordinates_of(batch) for batch in table.batches(self.schema)]
        return np.concatenate(parts) if parts else np.empty((0, self.size))

    def name_columns(self, X: Any) -> Any:
        """Return a matrix as a mapping of names to columns; tables with names are returned as they are."""
        if not isinstance(X, np.ndarray):
            return X
        if X.ndim != 2 or X.shape[1] != len(self.names):
            raise ParameterError(
                f"X of a learner must have one column for each of {len(self.names)} features, had shape "
                f"{X.shape}. Give a frame with names otherwise."
            )
        return {name: np.ascontiguousarray(X[:, i]) for i, name in enumerate(self.names)}

    def coordinates_of(self, batch: Mapping[str, AnyArray]) -> Floats:
        """Return the rows of an encoded batch as coordinates; missing numbers get the column's fill value."""
        parts: list[AnyArray] = []
        for column in self.schema.columns:
            cells = batch[column.name]
            if column.is_category:
                parts.extend((cells == code).astype(np.float64) for code in range(len(column.levels)))
            else:
                filled = np.where(np.isnan(cells), column.fill, cells)
                parts.append((filled - column.range[0]) / column.width)
        return np.column_stack(parts)

    def decode(self, coordinates: Floats) -> Floats:
        """Return points given in coordinates in the columns' units."""
        return np.asarray(coordinates * self.width + self.lower)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal map."""
        return {"kind": self.kind, "schema": self.schema.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the map that :meth:`to_dict` wrote."""
        if values.get("kind") != cls.kind:
            raise ParameterError(f"A layout must have the kind {cls.kind!r}. Write it with to_dict().")
        return cls(Schema.from_dict(values["schema"]))


def schema_of_bounds(
    bounds: Any, names: Sequence[str], *, owner: str, unit: str, neighbors: Neighbors
) -> Schema:
    """Return the schema of a matrix of numbers.

    Parameters
    ----------
    bounds : (lower, upper)
        Declared ranges: a pair of numbers, or of vectors with one entry for each column.
    names : sequence of str
        Names of the columns, in order.
    owner : str
        Name of the estimator, for error messages.
    unit, neighbors : str
        Unit that is protected, and the relation of neighboring tables.
    """
    columns = [
        Column(name, lower=low, upper=high)
        for name, low, high in zip(names, *two_vectors(bounds, len(names), owner), strict=True)
    ]
    return Schema(columns=columns, unit=unit, neighbors=neighbors)
