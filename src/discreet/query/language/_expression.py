"""The expression language: what an analyst may ask of one row."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
from sqlglot import exp

from discreet.errors import ExpressionRefused, ParameterError
from discreet.query.curation import BITS, Curation, SchemaKey
from discreet.query.language import _sql as sql
from discreet.query.language._lowering import Lowering
from discreet.query.language._normal_form import is_missing, opposite, where_true
from discreet.query.language._parser import read, read_counted, read_key
from discreet.query.language._program import Columns, Program, values
from discreet.query.language.lexer import MOST_DEPTH
from discreet.query.language.nodes import Condition, Indicator, Reference, Truth, too_long

if TYPE_CHECKING:
    from discreet._types import Ints
    from discreet.query.language._program import Interval
    from discreet.schema import Schema


_SURELY_SHORT = 800  # characters, which have fewer parts than a text may have


class Grid(NamedTuple):
    """Integers in which an expression is summed: ``i`` from 0 to ``top`` stands for ``lower + step * i``.

    One of them stands for 0 exactly if the expression may be unknown, which then adds 0 to a sum.
    """

    lower: float
    step: float
    top: int


@dataclass(frozen=True, slots=True)
class Expression:
    """A function from a row to a number or to unknown, with known bounds. Made by :func:`parse`.

    Attributes
    ----------
    canonical : str
        The one text of all spellings of this question; it parses back into the same expression.
    lower, upper : float
        Bounds that follow from the declared ones: no row has a known value outside.
    columns : tuple of str
        The curated columns that it reads, by declared name; flags as ``<name>_missing``.
    is_condition : bool
        Whether it is true, false or unknown; true is counted as 1, all else as 0.
    top : int
        Number of steps of the grid on which values are summed: those of its own unit, a power of two, where
        all its values are multiples of that and there are at most ``2**30``; ``2**30`` otherwise; 0 if it is
        constant.
    bare : str or None
        The column of numbers that it is nothing but.
    known : str or None
        Condition that it is known, as text; None if it is for every row.

    Privacy
    -------
    From the interval ``[lower, upper]`` follows how far one row can move a sum: by
    ``upper - lower`` if rows are replaced. Where the expression is unknown a row adds 0, so that 0 is in the
    interval then. The interval bounds what is computed, rounding included, and the result is clamped to it
    once more: the sensitivity holds for the integers that engines really add up.

    Reference
    ---------
    ``docs/reference/expressions.md``.

    Examples
    --------
    >>> from discreet import Column, Schema
    >>> from discreet.query.language import parse
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99)])
    >>> expression = parse("age / 10 + 1", schema)
    >>> expression.lower, expression.upper
    (1.0, 10.9)
    """

    canonical: str
    lower: float
    upper: float
    columns: tuple[str, ...]
    is_condition: bool
    top: int
    bare: str | None
    known: str | None
    schema: Schema = field(repr=False)
    program: Program = field(repr=False, compare=False)
    place: int = field(repr=False, compare=False)
    known_place: int | None = field(repr=False, compare=False)

    @property
    def is_constant(self) -> bool:
        """Whether every row adds the same to a sum."""
        return self.lower == self.upper and (self.known is None or self.is_condition or self.lower == 0)

    def grid(self) -> Grid:
        """Return the integers in which the expression is summed."""
        if self.is_constant:
            return Grid(self.lower, 0.0, 0)
        if self.known is None or self.is_condition:
            return Grid(self.lower, (self.upper - self.lower) / self.top, self.top)
        return self._with_zero(2**BITS)[2]

    def integer_sql(self, column: sql.ColumnTree) -> sql.Tree:
        """Write the place of the value on its grid as SQL.

        Parameters
        ----------
        column : callable
            Gives the sqlglot tree of an exact curated column, by its name in :attr:`columns`.

        Returns
        -------
        sqlglot expression
            A BIGINT from 0 to the top of the grid, the same bits on every engine. It may be a
            :class:`~discreet.query.language._sql.Stepwise`: see :func:`~discreet.query.language.hoist`.
        """
        if self.is_constant:
            return sql.bigint(exp.Literal.number(0))
        if self.is_condition:
            return sql.write(self.program, self.place, column, _indicator_tree)
        program, place = self._on_grid()
        return sql.write(program, place, column, sql.bigint)

    def evaluate(self, columns: Columns) -> Ints:
        """Compute the place of the value on a grid for some rows.

        Parameters
        ----------
        columns : mapping of str to array
            The exact curated cells by the names in :attr:`columns`, and at least one array to tell the
            number of rows. Arrays of several axes are broadcast against one another.

        Returns
        -------
        array of int64
            The integers that the SQL gives, bit for bit.
        """
        if not columns or any(name not in columns for name in self.columns):
            raise ParameterError(
                f"Expression.evaluate: columns must hold {', '.join(self.columns) or 'an array'}, held "
                f"{', '.join(columns) or 'nothing'}. Give the curated cells of one batch."
            )
        shape = np.broadcast_shapes(*(cells.shape for cells in columns.values()))
        if self.is_constant:
            return np.zeros(shape, np.int64)
        if self.is_condition:
            holds = values(self.program, columns, self.place)[self.place]
            return np.broadcast_to(holds, shape).astype(np.int64)
        program, place = self._on_grid()
        return np.broadcast_to(values(program, columns, place)[place], shape).astype(np.int64)

    def _on_grid(self) -> tuple[Program, int]:
        """Continue the program to the place on the grid: ``floor((value - lower) / width * top + 1/2)``."""
        if self.known is not None:
            return self._with_zero(2**BITS)[:2]
        program, width = self.program.copy(), self.upper - self.lower
        above = program.subtract(program.fence(self.place), program.constant(self.lower))
        if self.top == _own_steps(self.program.interval(self.place)):
            # All values are multiples of a power of two, the step: nothing is rounded.
            return program, program.multiply(above, program.constant(self.top / width))
        share = program.divide(above, program.constant(width))
        scaled = program.multiply(share, program.constant(float(self.top)))
        return program, program.floor(program.add(scaled, program.constant(0.5)))

    def _with_zero(self, top: int) -> tuple[Program, int, Grid]:
        """Continue the program to the place on a grid that has 0, where a row with an unknown value is.

        Notes
        -----
        The place is ``floor(value / step + 1/2)``, counted from its least value, or from 0 if that is less.
        The step is the one that all values are multiples of if the grid has room for it, so that sums of
        whole numbers are exact.
        """
        program = self.program.copy()
        lower, upper = min(self.lower, 0.0), max(self.upper, 0.0)
        step = 2.0 ** program.interval(self.place).quantum
        exact = (upper - lower) / step <= top
        step = step if exact else (upper - lower) / top
        index = program.divide(program.fence(self.place), program.constant(step))
        if not exact:
            index = program.floor(program.add(index, program.constant(0.5)))
        reached = program.interval(index)
        below, above = int(max(-reached.lower, 0.0)), int(max(reached.upper, 0.0))
        zero = program.constant(float(below))
        place = program.add(index, zero)
        if self.known_place is not None:
            place = program.select(self.known_place, place, zero)
        return program, place, Grid(-below * step, step, below + above)


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
        Defined, or unknown where SQL says NULL, for every row that the curated table can hold.

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
    return _parse(text, schema, "value")


def parse_where(text: str, schema: Schema) -> Expression:
    """Read what chooses rows: of the conditions that are true for the same rows, one text."""
    return _parse(text, schema, "where")


Use: TypeAlias = Literal["value", "where", "counted"]


def parse_typed(text: str, schema: Schema, use: Use = "value", *, typed: bool = True) -> Expression:
    """Read what a person typed; refuses what can be read, but hardly means what it says.

    Parameters
    ----------
    text : str
        Text of a part of a question.
    schema : Schema
        Schema with the columns that may be named.
    use : {"value", "where", "counted"}
        Whether it is summed, chooses rows, or is counted where it is known.
    typed : bool
        Whether it was typed; False for the text of a question that was answered before.

    Raises
    ------
    ExpressionRefused
        As :func:`parse`; and for a date beside a number, or a comparison that no row fulfills.
    """
    return _parse(text, schema, use, typed)


def _parse(text: object, schema: Schema, use: Use, typed: bool = False) -> Expression:
    if isinstance(text, str):
        return _parse_cached(text, SchemaKey(schema), use, typed)
    return _build_expression(text, schema, use, typed)


@lru_cache(maxsize=128)
def _parse_cached(text: str, same: SchemaKey, use: Use, typed: bool) -> Expression:
    # Cached, because the same text is calibrated, previewed and asked one after the other.
    return _build_expression(text, same.schema, use, typed)


def _build_expression(text: object, schema: Schema, use: Use, typed: bool) -> Expression:
    """Return the expression of a text: its program, range, columns and canonical form."""
    read_node = read_counted if use == "counted" else read
    node = read_node(text, schema, typed=typed)
    inner = node.condition if isinstance(node, Indicator) else node
    if use == "where" and isinstance(inner, Condition):
        inner = where_true(inner)
    check_readable(inner.text, schema)
    lowering = Lowering(Curation.from_schema(schema))
    program, bare, known_place = lowering.program, None, None
    if isinstance(inner, Condition):
        place = lowering.holds(inner)
        lower, upper = (float(inner.value),) * 2 if isinstance(inner, Truth) else (0.0, 1.0)
        top = int(lower < upper)
    else:
        place, known_place = lowering.value(inner), lowering.known(inner)
        interval = program.interval(place)
        lower, upper = interval.lower, interval.upper
        top = 0 if interval.is_point else _own_steps(interval) or 2**BITS
        if isinstance(inner, Reference) and schema.column(inner.name).is_number:
            bare = inner.name
    return Expression(
        canonical=inner.text,
        lower=lower,
        upper=upper,
        columns=program.columns(),
        is_condition=isinstance(inner, Condition),
        top=top,
        bare=bare,
        known=opposite(is_missing(inner)).text if inner.nullable else None,
        schema=schema,
        program=program,
        place=place,
        known_place=known_place,
    )


def check_readable(canonical: str, schema: Schema) -> None:
    """Refuse a text that could not be read again, for it is longer or deeper than what was typed."""
    depth = canonical.count("(")  # at most
    if depth >= MOST_DEPTH:
        depth = max(itertools.accumulate((sign == "(") - (sign == ")") for sign in canonical))
    if len(canonical) <= _SURELY_SHORT and depth + canonical.count("CASE") < MOST_DEPTH:
        return
    try:
        read_key(canonical, schema)
    except ExpressionRefused:
        raise too_long() from None


def _indicator_tree(tree: sql.Tree) -> sql.Tree:
    """Return a condition as an integer expression: 1 where it holds, else 0."""
    chosen = exp.If(this=tree, true=exp.Literal.number(1))
    return sql.bigint(exp.Case(ifs=[chosen], default=exp.Literal.number(0)))


def _own_steps(interval: Interval) -> int:
    """Return the number of steps of ``2**quantum`` in an interval; 0 if they are too many for a grid."""
    step = Fraction(2) ** interval.quantum
    steps = (Fraction(interval.upper) - Fraction(interval.lower)) / step
    whole = steps.denominator == 1 and (Fraction(interval.lower) / step).denominator == 1
    return int(steps) if whole and steps <= 2**BITS else 0
