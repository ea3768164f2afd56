"""What a model is asked and what it is given, as the schema declares it: nothing here is read off rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._typing import AnyArray, Bools, Floats
    from discreet.schema import Column, Schema

WIDE = 100
BINS, BINS_IF_WIDE = 255, 64
"""How many values of a column a tree tells apart: with many columns, that is where the time goes.

Lists with more levels enter a model as positions in their declared order.
"""


@dataclass(frozen=True, slots=True)
class Question:
    """The target of a table.

    Attributes
    ----------
    column : Column
        What is predicted.
    n_classes : int
        How many classes are declared, "missing" left out; 0 where a number is predicted.
    """

    column: Column
    n_classes: int

    @classmethod
    def of(cls, column: Column, *, as_number: bool = False) -> Question:
        """Ask for a class of a list, or for a number; ``as_number`` for a list of whole numbers."""
        if not column.is_category or as_number:
            return cls(column, 0)
        return cls(column, sum(level is not None for level in column.levels))

    @property
    def task(self) -> Literal["classification", "regression"]:
        """Whether a class or a number is predicted."""
        return "classification" if self.n_classes else "regression"

    @property
    def unit(self) -> float:
        """What a predicted 1 is worth in the column's own unit."""
        return 1.0 if self.column.is_category else self.column.width

    def answers(self, rows: Mapping[str, AnyArray]) -> AnyArray:
        """Return classes, -1 where missing, or numbers in units of the declared range, NaN where missing."""
        values = rows[self.column.name]
        if self.n_classes:
            return np.where(values < self.n_classes, values, -1).astype(np.int64)
        if self.column.is_category:
            return np.array(self.column.levels, np.float64)[values]
        return np.asarray((values - self.column.range[0]) / self.column.width)

    def known(self, answers: AnyArray) -> Bools:
        """Tell which answers are not missing."""
        return np.asarray(answers >= 0 if self.n_classes else ~np.isnan(answers))


class Features:
    """The columns that a model sees.

    A number is scaled by its declared range, a missing one is the public fill and has a flag beside it; a
    list is the position in its levels, to be treated as a set of levels without order.

    Parameters
    ----------
    schema : Schema
        Of the published table.

    Attributes
    ----------
    unordered : array of bool
        Which columns of the matrix are lists.
    bins : int
        How many values of a column a tree tells apart.
    """

    def __init__(self, schema: Schema) -> None:
        self._columns = schema.features
        self.bins = BINS if len(self._columns) <= WIDE else BINS_IF_WIDE
        self.unordered: Bools = np.array(
            [
                kind
                for c in self._columns
                for kind in [
                    c.is_category and len(c.levels) <= self.bins,
                    *([False] * bool(c.missing_flag)),
                ]
            ],
            np.bool_,
        )

    def matrix(self, rows: Mapping[str, AnyArray]) -> Floats:
        """Return one row of numbers for each row of the table."""
        made: list[AnyArray] = []
        for c in self._columns:
            values = rows[c.name]
            if c.is_category:
                made.append(values.astype(np.float64))
                continue
            lower, _ = c.range
            if c.missing_flag is None:
                made.append((values - lower) / c.width)
                continue
            missing = np.isnan(values)
            made += [(np.where(missing, c.fill, values) - lower) / c.width, missing.astype(np.float64)]
        return np.column_stack(made)
