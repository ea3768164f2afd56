"""The expression language: what an analyst may ask of one row."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from sqlglot import exp

from discreet.errors import ParameterError
from discreet.query.curation import BITS, Curation, SchemaKey
from discreet.query.language import _sql as sql
from discreet.query.language._lowering import Lowering
from discreet.query.language._parser import read
from discreet.query.language._program import Columns, values
from discreet.query.language.nodes import Condition, Indicator, Reference, Truth

if TYPE_CHECKING:
    from discreet._types import Ints
    from discreet.query.language._program import Program
    from discreet.schema import Schema

_MOST_BITS = 30


@dataclass(frozen=True, slots=True)
class Expression:
    """A function from a row to a number, defined for every row and with known bounds. Made by :func:`parse`.

    Attributes
    ----------
    canonical : str
        The one text of all spellings of this question; it parses back into the same expression.
    lower, upper : float
        Bounds that follow from the declared ones: no row has a value outside.
    columns : tuple of str
        The curated columns that it reads, by declared name; flags as ``<name>_missing``.
    is_condition : bool
        Whether it is true or false, counted as 1 or 0.
    bare : str or None
        The column of numbers that it is nothing but.

    Privacy
    -------
    From the interval ``[lower, upper]`` follows how far one row can move a sum: by
    ``upper - lower`` if rows are replaced. The interval bounds what is computed, rounding included, and
    the result is clamped to it once more: the sensitivity holds for the integers that engines really
    add up.

    Reference
    ---------
    ``docs/reference/expressions.md``.
    """

    canonical: str
    lower: float
    upper: float
    columns: tuple[str, ...]
    is_condition: bool
    bare: str | None
    schema: Schema = field(repr=False)
    program: Program = field(repr=False, compare=False)
    place: int = field(repr=False, compare=False)
    own_top: int | None = field(repr=False, compare=False)

    def integer_sql(self, column: sql.ColumnTree, bits: int = BITS) -> sql.Tree:
        """Write the place of the value on a grid as SQL.

        Parameters
        ----------
        column : callable
            Gives the sqlglot tree of a curated integer column, by its name in :attr:`columns`.
        bits : int, default 20
            The grid has ``2**bits`` steps between the bounds, 0 to 30.

        Returns
        -------
        sqlglot expression
            A BIGINT from 0 (``lower``) to ``2**bits`` (``upper``), the same bits on every engine. It may be a
            :class:`~discreet.query.language._sql.Stepwise`: see :func:`~discreet.query.language.hoist`.
        """
        top = _top(bits)
        if self.lower == self.upper:
            return sql.bigint(exp.Literal.number(0))
        if self.own_top == top:
            return sql.bigint(column(self.columns[0]))
        if self.is_condition:
            return sql.write(self.program, self.place, column, lambda tree: _indicator_tree(tree, top))
        program, place = self._on_grid(top)
        return sql.write(program, place, column, sql.bigint)

    def evaluate(self, columns: Columns, bits: int = BITS) -> Ints:
        """Compute the place of the value on a grid for some rows.

        Parameters
        ----------
        columns : mapping of str to array
            The curated integers by the names in :attr:`columns`, and at least one array to tell the
            number of rows.
        bits : int, default 20
            Number of bits of the grid, as in :meth:`integer_sql`.

        Returns
        -------
        array of int64
            The integers that the SQL gives, bit for bit.
        """
        top = _top(bits)
        if not columns or any(name not in columns for name in self.columns):
            raise ParameterError(
                f"Expression.evaluate: columns must hold {', '.join(self.columns) or 'an array'}, held "
                f"{', '.join(columns) or 'nothing'}. Give the curated integers of one batch."
            )
        n_rows = len(next(iter(columns.values())))
        if self.lower == self.upper:
            return np.zeros(n_rows, np.int64)
        if self.own_top == top:
            return columns[self.columns[0]].astype(np.int64)
        if self.is_condition:
            holds = values(self.program, columns, self.place)[self.place]
            return np.where(np.broadcast_to(holds, n_rows), top, 0).astype(np.int64)
        program, place = self._on_grid(top)
        return np.broadcast_to(values(program, columns, place)[place], n_rows).astype(np.int64)

    def _on_grid(self, top: int) -> tuple[Program, int]:
        """Continue the program to the place on the grid: ``floor((value - lower) / width * top + 1/2)``."""
        program = self.program.copy()
        above = program.subtract(program.fence(self.place), program.constant(self.lower))
        share = program.divide(above, program.constant(self.upper - self.lower))
        scaled = program.multiply(share, program.constant(float(top)))
        return program, program.floor(program.add(scaled, program.constant(0.5)))


def parse(text: str, schema: Schema) -> Expression:
    """Read an analyst's text.

    Parameters
    ----------
    text : str
        A scalar SQL expression over the released columns of the schema.
    schema : Schema
        Schema with the columns that may be named.

    Returns
    -------
    Expression
        Defined for every row that the curated table can hold.

    Raises
    ------
    ExpressionRefused
        If the text is not in the language, or if the declared bounds do not show that it has a value
        for every row.

    Privacy
    -------
    Text and schema alone decide. No row is looked at, and nothing that was written reaches an engine: SQL is
    made anew from the parsed tree.

    Reference
    ---------
    ``docs/reference/expressions.md``.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=18, upper=90)])
    >>> expression = parse("(AGE - 18) / 72", schema)
    >>> expression.lower, expression.upper, expression.canonical
    (0.0, 1.0, '((age - 18) / 72)')
    >>> parse("age BETWEEN 20 AND 29", schema).canonical
    '((20 <= age) AND (age <= 29))'
    """
    return (
        _parse_cached(text, SchemaKey(schema)) if isinstance(text, str) else _build_expression(text, schema)
    )


@lru_cache(maxsize=128)
def _parse_cached(text: str, same: SchemaKey) -> Expression:
    # Cached, because the same text is calibrated, previewed and asked one after the other.
    return _build_expression(text, same.schema)


def _build_expression(text: str, schema: Schema) -> Expression:
    """Return the expression of a text: its program, range, columns and canonical form."""
    node = read(text, schema)
    inner = node.condition if isinstance(node, Indicator) else node
    curation = Curation.from_schema(schema)
    lowering = Lowering(curation)
    place = lowering.place(inner)
    program = lowering.program
    if isinstance(inner, Truth):
        lower = upper = float(inner.value)
    elif isinstance(inner, Condition):
        lower, upper = 0.0, 1.0
    else:
        interval = program.interval(place)
        lower, upper = interval.lower, interval.upper
    bare = inner.name if isinstance(inner, Reference) else None
    if bare is not None and not schema.column(bare).is_number:
        bare = None
    return Expression(
        canonical=inner.text,
        lower=lower,
        upper=upper,
        columns=program.columns(),
        is_condition=isinstance(inner, Condition),
        bare=bare,
        schema=schema,
        program=program,
        place=place,
        # The integers of such a column are places on a grid of that size already.
        own_top=None if bare is None else curation.column(bare).top,
    )


def _indicator_tree(tree: sql.Tree, top: int) -> sql.Tree:
    """Return a condition as an integer expression: `top` where it holds, else 0."""
    chosen = exp.If(this=tree, true=exp.Literal.number(top))
    return sql.bigint(exp.Case(ifs=[chosen], default=exp.Literal.number(0)))


def _top(bits: int) -> int:
    if isinstance(bits, bool) or not isinstance(bits, int) or not 0 <= bits <= _MOST_BITS:
        raise ParameterError(
            f"Expression: bits must be a whole number from 0 to {_MOST_BITS}, was {bits!r}. "
            f"Leave it at {BITS}."
        )
    return int(2**bits)
