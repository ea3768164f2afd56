"""Interface of the engines, and the SQL that they share.

An engine holds one curated table and returns exact integers about it. SQL is built as sqlglot trees from the
layout and from aggregates; no text of an analyst is part of it.
"""

from __future__ import annotations

import functools
import itertools
import operator
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from sqlglot import exp

from discreet.errors import EngineFailed, EngineUnavailable, TableChanged
from discreet.query.curation import TABLE, Curation, Version
from discreet.query.language import hoist
from discreet.query.language._sql import FROM
from discreet.tables.encoded import EncodedTable
from discreet.tables.sources import withhold
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from sqlglot.expressions import Expr as Tree

    from discreet._types import AnyArray, Ints
    from discreet.query.engines.tasks import EngineCells, Kernel
    from discreet.query.language._sql import SqlText

T = TypeVar("T")

ROWS = 2**16
"""Largest number of rows of a batch: sums of products of 16-bit numbers then stay far below 2**53."""
_LOW_HALF = 2**32 - 1


class Engine(ABC):
    """Engine that holds a curated table and returns exact integers.

    Privacy
    -------
    Its answers are exact and private: they stay in the curator's process until noise is added. Its own
    messages may depend on rows; all of them become :class:`~discreet.errors.EngineFailed`, whose text is
    constant.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    sql: ClassVar[SqlText]
    # Whether a sub-select must be kept from being merged, which would compute its values many times.
    fences: ClassVar[bool] = False
    row_seconds: ClassVar[float] = 2e-9
    """Seconds in which a processor adds one row to one sum: a public constant, to estimate work."""
    # Whether the rows are on the workers of a cluster, for tables that one machine does not hold.
    distributed: ClassVar[bool] = False
    # Whether two threads may make a pass at the same time.
    parallel: ClassVar[bool] = False
    # Whether the table can change under us, so that every pass must look at the hashes of its rows again.
    exposed: bool = False
    _failures: tuple[type[BaseException], ...] = ()

    def __init__(self) -> None:
        self.curation: Curation | None = None
        self.version: Version | None = None
        self._filled: str | None = None
        # Whether a pass has failed since the engine was last known to answer.
        # How many passes have failed, and how many had when a probe last worked.
        self._failed_passes = self._forgiven_passes = 0
        self._probing = threading.Lock()

    def register(self, source: Any, curation: Curation, *, salt: str = "") -> Version:
        """Build the curated table from a source; errors of this curator's step may name a row.

        Parameters
        ----------
        source : frame, path, URL or Spark data frame
            Private rows, of a kind that the engine reads.
        curation : Curation
            Layout of the curated table.
        salt : str
            Salt that decides which rows of a unit are used: :func:`~discreet.query.unit_rows.ledger_salt`.
        """
        self.curation = curation
        self.version = self._build(source, curation, salt)
        return self.version

    @abstractmethod
    def _build(self, source: Any, curation: Curation, salt: str) -> Version:
        """Fill the curated table and lock the engine."""

    @abstractmethod
    def _fetch(self, query: Tree) -> list[tuple[Any, ...]]:
        """Run a query and return its rows."""

    @abstractmethod
    def batches(self, columns: Sequence[str], rows: int = ROWS) -> Iterator[list[AnyArray]]:
        """Yield curated columns, at most ``rows`` rows at a time: int32, or float64 of unrounded numbers."""

    @abstractmethod
    def close(self) -> None:
        """Drop the curated table, unless it was made to last, and close the engine."""

    def aggregate(self, expressions: Sequence[Tree]) -> list[int]:
        """Return the sums of integer expressions over all rows, in one pass; 0 for an empty table."""
        sums = [self._total(expression) for expression in expressions]
        query = self._selection([*self._witness(), *sums])
        (row,) = self.run(lambda: self._fetch(query))
        # Without rows a sum is NULL.
        return [int(value or 0) for value in self._check_witness(row)]

    def sum_groups(
        self, tables: Sequence[EngineCells], expressions: Sequence[Tree | None]
    ) -> list[list[int]]:
        """Return counts of rows, or sums of an expression, in every cell of tables, in one pass.

        Parameters
        ----------
        tables : sequence of EngineCells
            Tables with their keys; each row is in at most one cell of each.
        expressions : sequence of expression or None
            Expression that is summed in each table; None counts rows.

        Returns
        -------
        list of list of int
            For each table its cells in C order, absent ones as 0.
        """
        if not tables:
            return []
        keys: dict[Tree, str] = {}
        for table in tables:
            for key, _ in table.keys:
                keys.setdefault(key, f"k{len(keys)}")
        sums: dict[Tree, str] = {}
        for expression in expressions:
            if expression is not None:
                sums.setdefault(expression, f"s{len(sums)}")
        sets = {tuple(sorted({keys[key] for key, _ in table.keys})) for table in tables}
        inner = self._selection(
            [exp.alias_(tree, alias, copy=False) for tree, alias in (*keys.items(), *sums.items())]
        )
        if self.fences:
            inner = inner.offset(0, copy=False)
        if len(sets) == 1:
            grouping = [exp.column(name) for name in next(iter(sets))]
            group = exp.Group(expressions=grouping)
        else:
            sets_of_keys = [exp.Tuple(expressions=[exp.column(n) for n in names]) for names in sorted(sets)]
            group = exp.Group(grouping_sets=[exp.GroupingSets(expressions=sets_of_keys)])
        # Keys are never NULL, so a NULL says that the key is not part of this grouping set.
        columns = [exp.func("COALESCE", exp.column(name), exp.Literal.number(-2)) for name in keys.values()]
        totals = [_text(exp.Sum(this=self._wide(exp.column(name)))) for name in sums.values()]
        query = exp.Select(expressions=[*columns, exp.Count(this=exp.Star()), *totals], group=group)
        query.set(FROM, exp.From(this=inner.subquery("rows_", copy=False)))
        self._check_version()
        rows = self.run(lambda: self._fetch(query))
        names = list(keys.values())
        codes = _codes(rows, len(names))
        places = [names.index(keys[key]) for table in tables for key, _ in table.keys]
        answers = []
        for table, expression in zip(tables, expressions, strict=True):
            own, places = places[: len(table.keys)], places[len(table.keys) :]
            column = len(names) + (0 if expression is None else 1 + list(sums).index(expression))
            answers.append(_dense(rows, codes, own, column, table.shape))
        return answers

    def count_units(self, table: EngineCells, unit: Tree) -> list[int]:
        """Return the number of different units in every cell of a table, in one pass.

        Parameters
        ----------
        table : EngineCells
            Table with its keys; without any, there is one cell for all rows.
        unit : expression
            Integer expression of a row's unit, 0 for a row that is counted for none.

        Returns
        -------
        list of int
            Cells in C order, absent ones as 0.
        """
        names = [f"k{i}" for i in range(len(table.keys))]
        keys = [exp.alias_(tree, name, copy=False) for (tree, _), name in zip(table.keys, names, strict=True)]
        rows = self._selection([*keys, exp.alias_(unit, "unit_", copy=False)])
        if self.fences:
            rows = rows.offset(0, copy=False)
        # NULL is not counted.
        unit_or_null = exp.Anonymous(this="NULLIF", expressions=[exp.column("unit_"), exp.Literal.number(0)])
        counted = exp.Count(this=exp.Distinct(expressions=[unit_or_null]))
        query = exp.Select(expressions=[*map(exp.column, names), counted])
        query.set(FROM, exp.From(this=rows.subquery("rows_", copy=False)))
        if names:
            query.set("group", exp.Group(expressions=[exp.column(name) for name in names]))
        self._check_version()
        found = self.run(lambda: self._fetch(query))
        own = list(range(len(names)))
        return _dense(found, _codes(found, len(own)), own, len(own), table.shape)

    def reduce(self, kernel: Kernel) -> list[int]:
        """Return the sums of a kernel over all rows, as integers of any size."""
        self._check_version()
        with one_thread():  # products of few columns: several threads take 4 to 25 times the processor time
            total, n_rows = self.run(lambda: self._reduce_kernel(kernel))
        self._check_count(n_rows)
        return total

    def _reduce_kernel(self, kernel: Kernel) -> tuple[list[int], int]:
        """Return the sums of a kernel over all batches, and the number of rows that were read."""
        total, n_rows = KernelSum(kernel.size), 0
        for arrays in self.batches(kernel.columns, getattr(kernel, "most_rows", ROWS)):
            n_rows += len(arrays[0])
            total.add(kernel(arrays))
        return total.integers(), n_rows

    def ensure_ready(self) -> None:
        """Return if the engine can be asked; called before a charge, and again as often as one likes.

        After a pass that failed the engine is probed first, without a look at any row: that pass decides
        whether the probe is made, and nothing else.

        Raises
        ------
        EngineUnavailable
            The engine does not answer, or a connection was lost and is not restored yet.
        TableChanged
            A connection was restored to other rows than those that were registered.
        """
        if self._failed_passes != self._forgiven_passes:
            with self._probing:
                failed = self._failed_passes  # one that fails during the probe is not forgiven
                if self._is_answering():
                    self._forgiven_passes = failed
        if self._failed_passes != self._forgiven_passes:
            raise EngineUnavailable

    def _is_answering(self) -> bool:
        """Return whether a probe of the engine works."""
        try:
            self._probe()
        except self._failures as problem:
            withhold(problem)
            return False
        return True

    def _probe(self) -> None:  # noqa: B027 - arrays of this process cannot be lost
        """Raise one of the engine's failures unless it still answers; whatever is in the rows, the same."""

    def count(self) -> int:
        """Return the number of rows that were registered: private unless it was declared public."""
        assert self.version is not None
        return self.version.n_rows

    def run(self, act: Callable[[], T]) -> T:
        """Return what `act` returns, and turn any error of the engine into one constant message."""
        try:
            return act()
        except self._failures as problem:
            withhold(problem)
        self._failed_passes += 1
        # Raised out here, so that the engine's own message is not chained to it.
        raise EngineFailed

    def _selection(self, columns: Sequence[Tree]) -> exp.Select:
        """Return a SELECT from the curated table, with the steps of expressions in sub-selects."""
        # Built by hand: sqlglot's builder copies all of its arguments.
        select = exp.Select(expressions=list(columns))
        select.set(FROM, exp.From(this=self._table()))
        return hoist(select, fence=self.fences)

    def _table(self) -> Tree:
        return exp.Table(this=exp.to_identifier(TABLE))

    def _total(self, expression: Tree) -> Tree:
        """Return the sum of an integer expression over all rows, as the driver reads it exactly."""
        return _text(exp.Sum(this=self._wide(expression)))

    def _wide(self, expression: Tree) -> Tree:
        """Return an expression whose sum cannot overflow."""
        return expression

    def _witness(self) -> list[Tree]:
        """Return the count and, for an exposed table, the sum of the hashes of its rows."""
        count = exp.Count(this=exp.Star())
        return [count, _text(exp.Sum(this=self._row_hash()))] if self.exposed else [count]

    def _row_hash(self) -> Tree:
        """Return the engine's own hash of all cells of a row, for a table that can change under us."""
        raise NotImplementedError

    def _keep_witness(self) -> None:
        """Keep the witness of an exposed table, before anyone else can see the table."""
        ((_, self._filled),) = self._fetch(self._selection(self._witness()))

    def _check_witness(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Check the values that :meth:`_witness` selected, and return the rest of the row."""
        self._check_count(int(row[0]))
        if not self.exposed:
            return row[1:]
        if row[1] != self._filled:
            raise TableChanged
        return row[2:]

    def _check_version(self) -> None:
        """Check that an exposed table is unchanged before a pass that does not select its witness itself."""
        if self.exposed:
            query = self._selection(self._witness())
            (row,) = self.run(lambda: self._fetch(query))
            self._check_witness(row)

    def _check_count(self, n_rows: int) -> None:
        if self.version is None or n_rows != self.version.n_rows:
            raise TableChanged


class KernelSum:
    """Sum of the integers of a kernel over batches of rows, exact however large it gets.

    Parameters
    ----------
    size : int
        Number of integers that the kernel returns.
    """

    def __init__(self, size: int) -> None:
        # Low and high halves are added up by themselves: neither overflows before 2**31 batches.
        self._low, self._high = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def add(self, part: Ints) -> None:
        """Add the integers of one batch."""
        self._low += part & _LOW_HALF
        self._high += part >> 32

    def integers(self) -> list[int]:
        """Return the sums."""
        if not self._high.any():
            return self._low.tolist()
        return [(high << 32) + low for low, high in zip(self._low.tolist(), self._high.tolist(), strict=True)]


def _text(expression: Tree) -> Tree:
    """Return a large integer cast to text: drivers convert 128-bit integers to floats, or refuse."""
    return exp.Cast(this=expression, to=exp.DataType(this=exp.DataType.Type.TEXT))


def _codes(rows: list[tuple[Any, ...]], n_keys: int) -> Ints:
    """Return the codes of the keys, which come first in every row of a result."""
    return np.array([row[:n_keys] for row in rows], np.int64).reshape(len(rows), n_keys)


def _dense(
    rows: list[tuple[Any, ...]], codes: Ints, own: list[int], column: int, shape: tuple[int, ...]
) -> list[int]:
    """Return all cells of one table in C order, 0 where there is no group, from rows of grouping sets.

    Parameters
    ----------
    rows : list of tuple
        Rows of the result.
    codes : array of shape (rows, keys)
        Codes of all keys in them; -2 for a key that is not part of a row's grouping set.
    own : list of int
        Indices of the table's keys.
    column : int
        Index of its counts or sums in a row.
    shape : tuple of int
        Number of cells along each of its keys.
    """
    strides = [functools.reduce(operator.mul, shape[i + 1 :], 1) for i in range(len(shape))]
    cells = [0] * functools.reduce(operator.mul, shape, 1)
    others = [i for i in range(codes.shape[1]) if i not in own]
    keys = codes[:, own]
    inside = (codes[:, others] == -2).all(axis=1) & ((keys >= 0) & (keys < shape)).all(axis=1)
    places = keys @ np.array(strides, np.int64)
    for row, place in zip(itertools.compress(rows, inside), places[inside].tolist(), strict=True):
        cells[place] += int(row[column])  # one by one: sums may be larger than 64 bits
    return cells


def engine_for(source: Any, *, shared: Path | None = None, secret: bytes = b"") -> Engine:
    """Return a new engine for a source: PostgreSQL and Spark by URL or frame, else DuckDB.

    Parameters
    ----------
    source : frame, path, URL or Spark data frame
        Private rows, of a kind that the engine will read.
    shared : Path, optional
        File of the encrypted copy by which processes share the curated rows, unless they are in Spark; None
        shares none.
    secret : bytes
        Secret of the ledger, from which the key of that copy follows.
    """
    if isinstance(source, str) and source.startswith(("postgresql://", "postgres://")):
        from discreet.query.engines._postgres import PostgresEngine

        return PostgresEngine(source, shared=shared, secret=secret)
    spark = isinstance(source, str) and source.startswith("spark://")
    if spark or type(source).__module__.startswith("pyspark."):
        from discreet.query.engines._spark import SparkEngine

        return SparkEngine()
    from discreet.query.engines._duckdb import DuckDBEngine

    return DuckDBEngine(shared=shared, secret=secret)


def kernel_engine_for(source: Any) -> Engine:
    """Return a new engine for a source about which mostly kernels are asked: arrays, if it is small."""
    held = isinstance(source, Mapping) and len(next(iter(source.values()), ())) <= ROWS
    if held or isinstance(source, EncodedTable):
        from discreet.query.engines._duckdb import ArraysEngine

        return ArraysEngine()
    return engine_for(source)
