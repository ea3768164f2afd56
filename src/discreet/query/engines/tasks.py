"""Integers that aggregates need of an engine, computed for many callers in one pass over the rows."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray, Ints
    from discreet.query.engines.base import Engine


class Kernel(Protocol):
    """Function from the columns of a batch of rows to integers that add up over batches; can be pickled.

    A kernel that multiplies nothing may have an attribute `most_rows`, the number of rows up to which a batch
    is faster than several.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """SQL names of the columns that are read."""

    @property
    def size(self) -> int:
        """Number of integers that a call returns."""

    def __call__(self, arrays: Sequence[AnyArray]) -> Ints:
        """Return the sums over a batch, each below 2**62.

        It has at most `most_rows` or else :data:`~discreet.query.engines.base.ROWS` rows.
        """


@dataclass(frozen=True, slots=True)
class EngineCells:
    """A table of counts, or of sums, over declared keys.

    Attributes
    ----------
    keys : tuple of (expression, int)
        Integer expressions, and the number of values of each, counted from 0. A row with a negative key is
        in no cell.
    """

    keys: tuple[tuple[Tree, int], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Length along each key."""
        return tuple(size for _, size in self.keys)

    @property
    def size(self) -> int:
        """Number of cells."""
        return math.prod(self.shape)


class EngineTask(ABC):
    """Integers that an aggregate needs of an engine, computed in one pass over the rows."""

    shares: ClassVar[bool] = False
    """Whether several tasks of this kind are computed in one pass."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Number of sums or tables, which an engine has to plan."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of integers."""

    def split(self, most: int) -> Sequence[EngineTask]:
        """Return tasks of at most so many sums or tables, whose integers one after another are these."""
        return [self]

    @classmethod
    @abstractmethod
    def run_tasks(cls, engine: Engine, tasks: Sequence[Any]) -> list[list[int]]:
        """Return the integers of tasks of this kind, computed in as few passes as possible."""


@dataclass(frozen=True, slots=True)
class EngineTotals(EngineTask):
    """Sums of integer expressions over all rows."""

    shares: ClassVar[bool] = True
    trees: tuple[Tree, ...]

    @property
    def width(self) -> int:
        """Number of sums."""
        return len(self.trees)

    @property
    def size(self) -> int:
        """Number of integers."""
        return len(self.trees)

    def split(self, most: int) -> Sequence[EngineTotals]:
        """Return tasks of at most so many sums."""
        # Sums that are all constant need a pass too, which counts the rows of a table that can change.
        return [EngineTotals(self.trees[i : i + most]) for i in range(0, max(1, self.width), most)]

    @classmethod
    def run_tasks(cls, engine: Engine, tasks: Sequence[EngineTotals]) -> list[list[int]]:
        """Return the sums of all tasks, computed in one pass."""
        return _split_integers(engine.aggregate([tree for one in tasks for tree in one.trees]), tasks)


@dataclass(frozen=True, slots=True)
class Tables(EngineTask):
    """Counts, or sums of an expression, in every cell of some tables, each in C order after the other.

    Attributes
    ----------
    tables : tuple of (EngineCells, expression or None)
        Cells of each table, and the expression that is summed in them; None counts rows.
    """

    shares: ClassVar[bool] = True
    tables: tuple[tuple[EngineCells, Tree | None], ...]

    @property
    def width(self) -> int:
        """Number of tables."""
        return len(self.tables)

    @property
    def size(self) -> int:
        """Number of integers."""
        return sum(cells.size for cells, _ in self.tables)

    def split(self, most: int) -> Sequence[Tables]:
        """Return tasks of at most so many tables."""
        return [Tables(self.tables[i : i + most]) for i in range(0, max(1, self.width), most)]

    @classmethod
    def run_tasks(cls, engine: Engine, tasks: Sequence[Tables]) -> list[list[int]]:
        """Return the tables of all tasks, computed in one pass."""
        tables = [table for one in tasks for table in one.tables]
        filled = engine.sum_groups([cells for cells, _ in tables], [tree for _, tree in tables])
        return _split_integers([integer for cells in filled for integer in cells], tasks)


@dataclass(frozen=True, slots=True)
class KernelTotals(EngineTask):
    """Sums of a kernel over batches of rows."""

    kernel: Kernel

    @property
    def width(self) -> int:
        """One pass."""
        return 1

    @property
    def size(self) -> int:
        """Number of integers."""
        return self.kernel.size

    @classmethod
    def run_tasks(cls, engine: Engine, tasks: Sequence[KernelTotals]) -> list[list[int]]:
        """Return the sums of each kernel, computed in a pass of its own."""
        return [engine.reduce(one.kernel) for one in tasks]


@dataclass(frozen=True, slots=True)
class UnitCounts(EngineTask):
    """Numbers of different units in every cell of a table.

    Attributes
    ----------
    cells : EngineCells
        Cells of the table; without keys there is one, which has all rows.
    unit : expression
        Integer expression of the unit that a row is counted for, 0 for a row that is counted for none.
    """

    cells: EngineCells
    unit: Tree

    @property
    def width(self) -> int:
        """One table."""
        return 1

    @property
    def size(self) -> int:
        """Number of integers."""
        return self.cells.size

    @classmethod
    def run_tasks(cls, engine: Engine, tasks: Sequence[UnitCounts]) -> list[list[int]]:
        """Return the counts of each task, in a pass of its own: to tell units apart is most of the work."""
        return [engine.count_units(one.cells, one.unit) for one in tasks]


def _split_integers(integers: list[int], tasks: Sequence[EngineTask]) -> list[list[int]]:
    """Return the integers of each task, cut from those of a shared pass."""
    ends = list(itertools.accumulate((one.size for one in tasks), initial=0))
    return [integers[start:end] for start, end in itertools.pairwise(ends)]
