"""Columns declared public, whose rows are kept: their exact counts are free, and the others follow them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError, ParameterError
from discreet.noise import permutation
from discreet.release._rows import read_limited
from discreet.release.synthetic.arithmetic import order_rows
from discreet.release.synthetic.questions import NoisyTable
from discreet.schema import Schema
from discreet.tables import open_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.release.synthetic.cells import ColumnCells


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Public cells of all rows, in an order that follows from their values alone.

    The order of a source may say something about cells that are not public, so it is not kept.

    Attributes
    ----------
    columns : dict of str to array
        Codes of levels, or numbers with NaN where a cell is missing, for each public column.
    """

    columns: dict[str, AnyArray]

    @classmethod
    def from_columns(cls, columns: Mapping[str, AnyArray]) -> PublicRows:
        """Return encoded columns, sorted."""
        n = len(next(iter(columns.values())))
        order = order_rows(columns.values(), n)
        return cls({name: np.asarray(values)[order] for name, values in columns.items()})

    @classmethod
    def from_source(cls, source: Any, schema: Schema, names: Sequence[str]) -> PublicRows:
        """Return the public columns of a table.

        Parameters
        ----------
        source : frame, path, URL or mapping of names to arrays
            Table with at least the public columns.
        schema : Schema
            Declaration of all columns.
        names : sequence of str
            Names of the public columns.
        """
        columns = [schema.column(name) for name in names]
        with open_table(source, schema=schema) as table:
            rows, _ = read_limited(
                table,
                Schema(columns=columns, missing_values=schema.missing_values, dialect=schema.dialect),
                "",
            )
        if not rows:
            raise DataError("Rows of public columns must be there to be kept, and there are none.")
        return cls.from_columns(rows)

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def find_cells(self, one: ColumnCells, *, fine: bool = False) -> Ints:
        """Return the cell of every row in a column, or its fine cell."""
        values = self.columns[one.name]
        if one.column.is_category:
            return values.astype(np.int64) if fine or one.groups is None else np.array(one.groups)[values]
        edges = np.array(one.fine if fine else one.edges)
        cells = np.searchsorted(edges, values, side="right")
        return np.where(np.isnan(values), len(edges) + 1, cells).astype(np.int64)

    def count_cells(self, cells: Sequence[ColumnCells], *, fine: bool = False) -> NoisyTable:
        """Return the exact table of some public columns: counts without noise, and free."""
        shape = tuple(one.fine_size if fine else one.size for one in cells)
        place = np.zeros(self.n, np.int64)
        for one, size in zip(cells, shape, strict=True):
            place = place * size + self.find_cells(one, fine=fine)
        counts = np.bincount(place, minlength=math.prod(shape)).astype(np.float64)
        return NoisyTable(tuple(one.name for one in cells), counts.reshape(shape), 0.0)


def number_patterns(codes: Sequence[Ints], n: int) -> Ints:
    """Return for every row the number of its combination of cells, in their sorted order."""
    order = order_rows(codes, n)
    new = np.zeros(n, bool)
    for column in codes:
        new[1:] |= column[order][1:] != column[order][:-1]
    pattern = np.empty(n, np.int64)
    pattern[order] = np.cumsum(new)
    return pattern


def match_rows(patterns: Ints, kept: Ints, order: Ints, weights: Floats, stream: Stream) -> tuple[Ints, Ints]:
    """Return kept rows and a sampled row for each, of the same pattern, in random order.

    Sampled rows of a pattern are taken at equal steps of their weights, as many as there are kept rows.

    Parameters
    ----------
    patterns : array of int
        Pattern of every sampled row.
    kept : array of int
        Pattern of every kept row.
    order : array of int
        Order of the sampled rows: by patterns, and by other columns within them.
    weights : array
        Weight of every sampled row; those of a pattern have a sum above 0.
    stream : Stream
        Source of the random words.
    """
    rows = np.bincount(kept)
    sampled = np.bincount(patterns, minlength=len(rows))
    last = np.cumsum(sampled)
    first = last - sampled
    ends = np.cumsum(weights[order])
    begin = np.where(first > 0, ends[first - 1], 0.0)
    width = ends[last - 1] - begin
    sorted_rows = order_rows([kept], len(kept))
    pattern = kept[sorted_rows]
    rank = np.arange(len(kept)) - (np.cumsum(rows) - rows)[pattern]
    start = float(stream.words(1)[0] >> np.uint64(11)) * 2.0**-53
    places = begin[pattern] + (start + rank) / rows[pattern] * width[pattern]
    picked = np.searchsorted(ends, places, side="right")
    picked = order[np.minimum(np.maximum(picked, first[pattern]), last[pattern] - 1)]
    # Within a pattern any kept row may get any sampled one.
    shuffled = permutation(len(kept), stream)
    shuffled = shuffled[order_rows([pattern[shuffled]], len(kept))]
    final = permutation(len(kept), stream)
    return sorted_rows[final], picked[shuffled][final]


def check_public(schema: Schema, names: Sequence[str]) -> None:
    """Refuse to keep public columns where the promise would not hold, or nothing else is left.

    Parameters
    ----------
    schema : Schema
        Declaration of the table.
    names : sequence of str
        Names of the public columns, at least one.
    """
    way = "Declare them sensitive, or have them made up like the others with keep_public=False."
    listed = ", ".join(names)
    if schema.neighbors != "replace-one" or schema.row_count != "public":
        raise ParameterError(
            f"Public columns ({listed}) are kept as they are only if neighbors are replace-one and the "
            f"number of rows is public, and these were {schema.neighbors} and {schema.row_count}: whether a "
            f"row is there would be seen in them. {way}"
        )
    if schema.id_column is not None:
        raise ParameterError(
            f"Public columns ({listed}) are kept as they are only if every row is a {schema.unit} of its "
            f"own, and {schema.id_column!r} tells whose rows are whose, which kept cells could give away. "
            f"{way}"
        )
    if len(names) == len(schema.released):
        raise ParameterError(
            "A synthetic table must have a column that is not public, and all are. Publish the table itself."
        )
