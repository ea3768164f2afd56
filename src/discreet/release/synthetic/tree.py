"""Model of a table: counts of columns by class, tables along a tree, and rows that follow them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.release.synthetic.arithmetic import add_along, add_up, divide
from discreet.release.synthetic.columns import narrow_type
from discreet.release.synthetic.projection import independent, project, rake, shrink
from discreet.release.synthetic.sampling import draw_levels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.noise import Stream
    from discreet.release.synthetic.questions import NoisyTable
    from discreet.release.synthetic.selection import Pair

_LEAST_VARIANCE = 1e-12
_CLEAR_SQUARES = 2


@dataclass(frozen=True, eq=False)
class OneWay:
    """Counts of the classes, and of each column's cells by class, consistent with each other.

    Attributes
    ----------
    n : float
        Number of rows, public or estimated.
    classes : array of shape (classes,)
        Counts of the classes of the target; one number without a target.
    columns : list of array of shape (classes, cells)
        Counts of the cells of each column by class.
    """

    n: float
    classes: Floats
    columns: list[Floats]

    def margin(self, column: int) -> Floats:
        """Return the counts of a column's cells over all classes."""
        return add_along(self.columns[column], 0)


def by_class(table: NoisyTable, has_target: bool) -> Floats:
    """Return noisy counts with the class, which is asked for as the last axis, as the first."""
    return np.moveaxis(table.values, -1, 0) if has_target else table.values[None]


def estimate_rows(tables: Sequence[NoisyTable]) -> tuple[float, float]:
    """Return the number of rows as the mean of the totals of tables, by precision, and its sd."""
    variances = np.array([max(t.sd * t.sd * t.values.size, _LEAST_VARIANCE) for t in tables])
    totals = np.array([add_up(t.values.ravel()) for t in tables])
    weight = add_up(1 / variances)
    return add_up(totals / variances) / weight, float(np.sqrt(1 / weight))


def estimate_one_way(
    tables: Sequence[NoisyTable], n: float, *, has_target: bool, ordered: Sequence[bool]
) -> OneWay:
    """Return consistent counts from noisy tables of each column, with the class as their last axis.

    Parameters
    ----------
    tables : sequence of NoisyTable
        One table for each column.
    n : float
        Number of rows, public or estimated.
    has_target : bool
        Whether the last axis of the tables is the class.
    ordered : sequence of bool
        For each table, whether neighboring cells of its column are alike, as those of numbers are.
    """
    noisy = [by_class(table, has_target) for table in tables]
    sums = [add_along(values, 1) for values in noisy]
    variances = [max(t.sd * t.sd * v.shape[1], _LEAST_VARIANCE) for t, v in zip(tables, noisy, strict=True)]
    # Every table counts all rows by class: its margins are averaged with those of the others, by precision.
    mean = add_along(np.array([s / v for s, v in zip(sums, variances, strict=True)]), 0)
    classes = project(mean / add_up(1 / v for v in variances), n)
    columns = []
    for table, values, total, is_ordered in zip(tables, noisy, sums, ordered, strict=True):
        # The least-squares fit to given totals moves all cells of a class alike, as their noise is alike.
        shifted = values + ((classes - total) / values.shape[1])[:, None]
        margin = project(add_along(shifted, 0), n)
        if not has_target:
            columns.append(margin[None])
            continue
        reference = classes[:, None] * divide(margin, n)[None, :]
        difference = shifted - reference
        square = add_up((difference * difference).ravel()) / difference.size
        # Cells that stand out from the noise by themselves would only be blurred in groups.
        in_groups = is_ordered and square < _CLEAR_SQUARES * table.sd * table.sd
        drawn = shrink(shifted[:, None, :], table.sd, reference[:, None, :], in_groups=in_groups)
        columns.append(drawn[:, 0, :])
    return OneWay(n, classes, columns)


def estimate_edge(table: NoisyTable, pair: Pair, one_way: OneWay, *, has_class: bool) -> Floats:
    """Return the counts of two columns by class that fit a noisy table and the counts of each column.

    Parameters
    ----------
    table : NoisyTable
        Noisy table of the two columns, and of the class where it has a third axis.
    pair : (int, int)
        Indices of the two columns.
    one_way : OneWay
        Counts of each column, which the result has.
    has_class : bool
        Whether the class is the third axis of the table.
    """
    first, second = (one_way.columns[column] for column in pair)
    reference = independent(first, second)
    if has_class:
        fitted = shrink(by_class(table, True), table.sd, reference)
        return rake(fitted, first, second)
    both = shrink(table.values[None], table.sd, add_along(reference, 0)[None])[0]
    return rake(reference, first, second, both, rounds=20)


def estimate_pair(table: NoisyTable, pair: Pair, one_way: OneWay, model: Floats) -> Floats:
    """Return the counts of two columns that fit a noisy table, the model's own, and each column's counts."""
    fitted = shrink(table.values[None], table.sd, model[None])
    first, second = (one_way.margin(column)[None] for column in pair)
    counts: Floats = rake(fitted, first, second)[0]
    return counts


@dataclass(frozen=True, eq=False)
class TreeModel:
    """Forest over the columns, each given its parent and the class.

    Attributes
    ----------
    one_way : OneWay
        Counts of classes and columns.
    edges : dict of (int, int) to array of shape (classes, cells, cells)
        Counts of two columns by class, for each edge.
    """

    one_way: OneWay
    edges: dict[Pair, Floats]

    @property
    def order(self) -> list[tuple[int, int | None]]:
        """Columns in the order in which they are drawn, each with its parent; None for a root."""
        return self.order_from(())

    def order_from(self, first: Sequence[int]) -> list[tuple[int, int | None]]:
        """Return the columns in the order in which they are drawn where some of them are roots.

        Parameters
        ----------
        first : sequence of int
            Columns that come before all others, no two of them in one tree.
        """
        others = [column for column in range(len(self.one_way.columns)) if column not in first]
        near: dict[int, list[int]] = {column: [] for column in [*first, *others]}
        for one, other in self.edges:
            near[one].append(other)
            near[other].append(one)
        order: list[tuple[int, int | None]] = []
        seen: set[int] = set()
        for root in near:
            waiting: list[tuple[int, int | None]] = [] if root in seen else [(root, None)]
            while waiting:
                column, parent = waiting.pop(0)
                seen.add(column)
                order.append((column, parent))
                waiting.extend((other, column) for other in sorted(near[column]) if other not in seen)
        return order

    def draw(
        self, classes: AnyArray, stream: Stream, given: Mapping[int, AnyArray] | None = None
    ) -> list[AnyArray]:
        """Return a cell for every row and column, drawn along the tree.

        Parameters
        ----------
        classes : array of int
            Class of each row.
        stream : Stream
            Source of the random words.
        given : mapping of int to array of int, optional
            Cells of every row for some columns, no two of them in one tree; None draws all columns.
        """
        drawn: dict[int, AnyArray] = dict(given or {})
        depth = len(self.one_way.classes)
        for column, parent in self.order_from(tuple(drawn)):
            if column in drawn:
                continue
            if parent is None:
                drawn[column] = draw_levels(classes, self.one_way.columns[column], stream)
                continue
            forward = (parent, column) in self.edges
            table = self.edges[(parent, column)] if forward else self.edges[(column, parent)].swapaxes(1, 2)
            # A cell that no row of its class should have is drawn as in the class as a whole.
            empty = add_along(table, 2) <= 0
            shares = np.where(empty[:, :, None], self.one_way.columns[column][:, None, :], table)
            groups = drawn[parent] * narrow_type(depth * table.shape[1] - 1).type(depth) + classes
            drawn[column] = draw_levels(
                groups, np.swapaxes(shares, 0, 1).reshape(-1, table.shape[2]).copy(), stream
            )
        return [drawn[column] for column in range(len(self.one_way.columns))]
