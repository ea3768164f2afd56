"""Expressions to group by: their public cells, and the cell of a row.

The cells follow from the text and the declared bounds: the whole numbers between two bounds, true and false,
the texts of a CASE, the months between two dates, or the intervals between given edges; and a last one for
rows where the expression is unknown. A row is in exactly one of them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from discreet.errors import ExpressionRefused
from discreet.query.curation import Curation, SchemaKey
from discreet.query.language import _calendar
from discreet.query.language import _sql as sql
from discreet.query.language._date_nodes import DateColumn, DateTrunc
from discreet.query.language._date_text import write_dates
from discreet.query.language._expression import check_readable
from discreet.query.language._lowering import Lowering
from discreet.query.language._normal_form import call
from discreet.query.language._parser import read_key
from discreet.query.language._parts import Category, Text, as_number
from discreet.query.language._program import Columns, Program, values
from discreet.query.language._text_nodes import TextNode
from discreet.query.language.lexer import bare, unwrap_arguments
from discreet.query.language.nodes import (
    Call,
    Case,
    Condition,
    Constant,
    Date,
    Indicator,
    Node,
    Null,
    Number,
    Product,
    Quotient,
    Reference,
    Sum,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Ints
    from discreet.query.language._date_nodes import Unit
    from discreet.schema import Schema

MOST_VALUES = 4096
"""Cells along one axis: with more, there is nothing but noise in each."""
MISSING = "(missing)"


@dataclass(frozen=True)
class KeyExpression:
    """An expression to group by. Made by :func:`parse_key`.

    Attributes
    ----------
    canonical : str
        The one text of all spellings of the expression; it parses back into the same one.
    edges : tuple of float
        Where the cells of a number begin; empty if its values are the cells.
    labels : tuple
        Value of every cell, in order: a number, a condition, a text, the two ends of an interval, or None for
        the rows where the expression is unknown.
    texts : tuple of str
        What a cell is called, in the same order.

    Privacy
    -------
    Text and schema decide on the cells; none is added or left out for a row. The cell of a row is computed
    from that row alone, and is always one of them.

    Reference
    ---------
    ``docs/reference/expressions.md``.
    """

    canonical: str
    edges: tuple[float, ...]
    labels: tuple[Any, ...]
    texts: tuple[str, ...]
    schema: Schema = field(repr=False)
    program: Program = field(repr=False, compare=False)
    place: int = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """The canonical text with dates, and without parentheses that only a parser needs."""
        return unwrap_arguments(bare(write_dates(self.canonical, self.schema)))

    @cached_property
    def _names(self) -> dict[Any, str]:
        return dict(zip(self.labels, self.texts, strict=True))

    def label(self, value: Any) -> str:
        """Return what the cell with a value is called."""
        return self._names[tuple(value) if isinstance(value, list) else value]

    def integer_sql(self, column: sql.ColumnTree) -> sql.Tree:
        """Write the position of a row's cell as SQL, with the same integer on every engine."""
        return sql.write(self.program, self.place, column, sql.bigint)

    def evaluate(self, columns: Columns) -> Ints:
        """Return the positions of the cells of some rows, given as their exact curated arrays by name."""
        n_rows = len(next(iter(columns.values())))
        found = values(self.program, columns, self.place)[self.place]
        return np.broadcast_to(found, n_rows).astype(np.int64)


class _Cells(NamedTuple):
    """Cells of a node: their values, what they are called, and the place of a row's position among them."""

    labels: list[Any]
    texts: list[str]
    place: int


def parse_key(
    text: str, edges: Sequence[float], schema: Schema, *, typed: bool = False
) -> KeyExpression | str:
    """Return the expression of a group key, or the name of the column that it is nothing but.

    Parameters
    ----------
    text : str
        Expression as it was typed, without edges.
    edges : sequence of float
        Where the cells of a number begin; empty if its values shall be the cells.
    schema : Schema
        Declaration of the table, whose released columns may be named.
    typed : bool
        Whether a person typed it, so that what hardly means what it says is refused.

    Raises
    ------
    ExpressionRefused
        If the text is not in the language, or if its cells do not follow from the schema.
    """
    return _parse_cached(text, tuple(float(edge) for edge in edges), SchemaKey(schema), typed)


@lru_cache(maxsize=128)
def _parse_cached(text: str, edges: tuple[float, ...], same: SchemaKey, typed: bool) -> KeyExpression | str:
    """Return the key of a text; cached, because the same one is planned, previewed and asked."""
    schema = same.schema
    part = read_key(text, schema, typed=typed)
    if isinstance(part, Category):
        return part.column.name
    if isinstance(part, DateColumn):
        return part.reference.name
    if isinstance(part, Reference):
        return part.name
    if isinstance(part, Text):
        raise _constant()
    lowering = Lowering(Curation.from_schema(schema))
    node: Node = part
    if isinstance(node, Indicator):
        node = node.condition
    if edges:
        if isinstance(node, Condition):
            raise ExpressionRefused("edges of a condition", "Leave them out: its cells are true and false.")
        node = as_number(part)
    elif isinstance(node, Quotient):
        node = _whole_quotient(lowering, node)
    if isinstance(node, Constant | Truth):
        raise _constant()
    check_readable(node.text, schema)
    if any(node.text == column.name for column in schema.released):
        raise ExpressionRefused("an expression that is written as a column is called", "Rename the column.")
    cells = (
        _bin_number(lowering, node, edges) if isinstance(node, Number) and edges else _cells(lowering, node)
    )
    labels, texts = cells.labels, cells.texts
    if None in labels or not node.nullable or isinstance(node, TextNode):
        place = cells.place
    else:
        known = lowering.known(node)
        missing = lowering.program.constant(float(len(labels)))
        place = cells.place if known is None else lowering.program.select(known, cells.place, missing)
        labels, texts = [*labels, None], [*texts, MISSING]
    return KeyExpression(node.text, edges, tuple(labels), tuple(texts), schema, lowering.program, place)


def _constant() -> ExpressionRefused:
    return ExpressionRefused("a constant to group by", "Name a column, or an expression of one.")


def _whole_quotient(lowering: Lowering, node: Quotient) -> Number:
    """Return the floor of a quotient of whole numbers, which SQL divides in this way or in another."""
    program = lowering.program
    whole = all(
        program.interval(lowering.value(part)).quantum >= 0 for part in (node.numerator, node.denominator)
    )
    return call("FLOOR", node) if whole and not _is_rounded(node) else node


def _is_rounded(node: Number) -> bool:
    """Return whether a node is a number rounded to digits after the point."""
    return (
        isinstance(node, Quotient)
        and isinstance(node.denominator, Constant)
        and isinstance(node.numerator, Call)
        and node.numerator.function == "ROUND"
    )


def _cells(lowering: Lowering, node: Node) -> _Cells:
    """Return the cells of an expression without edges."""
    if isinstance(node, Condition):
        return _condition(lowering, node)
    if isinstance(node, TextNode):
        return _texts(lowering, node)
    if isinstance(node, Date):
        return _dates(lowering, node)
    assert isinstance(node, Number)
    if isinstance(node, Case) and all(isinstance(v, Constant | Null) for v in _results(node)):
        return _constants(lowering, node)
    return _whole_numbers(lowering, node)


def _condition(lowering: Lowering, node: Condition) -> _Cells:
    """Return true, false and, where it can be, unknown."""
    program = lowering.program
    otherwise = program.constant(1.0)
    known = lowering.known(node)
    labels, texts = [True, False], ["true", "false"]
    if known is not None:
        otherwise = program.select(known, otherwise, program.constant(2.0))
        labels, texts = [*labels, None], [*texts, MISSING]  # type: ignore[list-item]
    return _Cells(labels, texts, program.select(lowering.holds(node), program.constant(0.0), otherwise))


def _texts(lowering: Lowering, node: TextNode) -> _Cells:
    """Return the texts of a CASE, each once, in their order, and that of NULL."""
    branches, otherwise = node.decisions()
    given = dict.fromkeys([*(text for _, text in branches), otherwise])
    unknown = [None] if given.pop(None, False) is None else []
    texts = [text for text in given if text is not None]
    if not texts:
        raise _constant()
    labels: list[Any] = [*texts, *unknown]
    choices = [(condition, labels.index(text)) for condition, text in branches]
    place = _choose(lowering, choices, labels.index(otherwise))
    return _Cells(labels, [*texts, *(MISSING for _ in unknown)], place)


def _results(node: Case) -> list[Number]:
    return [*(value for _, value in node.branches), node.otherwise]


def _constants(lowering: Lowering, node: Case) -> _Cells:
    """Return the numbers that a CASE chooses from, and that of NULL."""
    found = sorted({value.value for value in _results(node) if isinstance(value, Constant)})
    codes = {write_value(value): i for i, value in enumerate(found)}
    labels: list[Any] = [_as_json_number(value) for value in found]
    texts = list(codes)
    if any(isinstance(value, Null) for value in _results(node)):
        labels, texts = [*labels, None], [*texts, MISSING]

    def code(value: Number) -> int:
        return codes[write_value(value.value)] if isinstance(value, Constant) else len(found)

    choices = [(condition, code(value)) for condition, value in node.branches]
    return _Cells(labels, texts, _choose(lowering, choices, code(node.otherwise)))


def _choose(lowering: Lowering, choices: Sequence[tuple[Condition, int]], otherwise: int) -> int:
    """Return the place of the code of the first condition that is true."""
    program = lowering.program
    place = program.constant(float(otherwise))
    for condition, code in reversed(choices):
        place = program.select(lowering.holds(condition), program.constant(float(code)), place)
    return place


def _whole_numbers(lowering: Lowering, node: Number) -> _Cells:
    """Return the whole numbers within the bounds of an expression, or their multiples."""
    scale, offset, inner = _affine(node)
    program = lowering.program
    value = lowering.value(node)  # so that its bounds are looked at
    if program.interval(value).is_point:
        raise _constant()
    place = lowering.value(inner)
    if program.interval(place).quantum < 0:
        scale, offset, inner, place = Fraction(1), Fraction(0), node, value
    first, size, place = _count_from_zero(program, place, node)
    found = [scale * (first + i) + offset for i in range(size)]
    width = _width(lowering, inner) if inner is node else None
    if width is None:
        texts = [write_value(value) for value in found]
    else:
        texts = [f"{int(low) * width} to below {(int(low) + 1) * width}" for low in found]
    return _Cells([_as_json_number(value) for value in found], texts, place)


def _count_from_zero(program: Program, place: int, node: Node) -> tuple[int, int, int]:
    """Return the first of the whole numbers at a place, how many there are, and the place of a position."""
    interval = program.interval(place)
    if interval.quantum < 0:
        raise ExpressionRefused(
            "an expression to group by whose values need not be whole numbers",
            f"Say where its cells begin: BY {node.text} ({_quarters(interval.lower, interval.upper)}).",
        )
    first, last = int(interval.lower), int(interval.upper)
    if last - first >= MOST_VALUES:
        raise ExpressionRefused(
            f"an expression to group by with more than {MOST_VALUES} values",
            f"Say where its cells begin: BY {node.text} ({_quarters(interval.lower, interval.upper)}).",
        )
    position = program.subtract(program.fence(place), program.constant(float(first)))
    return first, last - first + 1, position


def _quarters(lower: float, upper: float) -> str:
    edges = [lower / 4 * (4 - i) + upper / 4 * i for i in (1, 2, 3)]
    if upper - lower > 8:
        edges = [float(math.floor(edge)) for edge in edges]
    return ", ".join(f"{edge:.6g}" for edge in edges)


def _affine(node: Number) -> tuple[Fraction, Fraction, Number]:
    """Return a number as ``scale * inner + offset``, so that no cell lies between two multiples."""
    scale, offset = Fraction(1), Fraction(0)
    while True:
        if isinstance(node, Sum) and len(node.terms) <= 2:
            fixed = [sign * term.value for sign, term in node.terms if isinstance(term, Constant)]
            others = [(sign, term) for sign, term in node.terms if not isinstance(term, Constant)]
            if len(others) > 1 or sum(fixed, Fraction(0)).denominator > 1:
                break
            offset += scale * sum(fixed, Fraction(0))
            ((sign, node),) = others
            scale *= sign
        elif isinstance(node, Product) and isinstance(node.factors[0], Constant):
            factor, rest = node.factors[0].value, node.factors[1:]
            if factor.denominator > 1 or not factor:
                break
            scale, node = scale * factor, rest[0] if len(rest) == 1 else Product(rest)
        elif isinstance(node, Quotient) and _is_rounded(node):
            assert isinstance(node.denominator, Constant)
            scale, node = scale / node.denominator.value, node.numerator
        else:
            break
    return scale, offset, node


def _width(lowering: Lowering, node: Number) -> int | None:
    """Return the width of the intervals of a column of whole numbers, where each floor stands for one."""
    match node:
        case Call(
            function="FLOOR",
            argument=Quotient(numerator=Reference() as above, denominator=Constant(value=below)),
        ):
            whole = lowering.program.interval(lowering.value(above)).quantum >= 0
            return (
                int(below) if whole and below.denominator == 1 and below > 0 and not above.is_date else None
            )
    return None


def _dates(lowering: Lowering, node: Date) -> _Cells:
    """Return the days, weeks, months, quarters or years within the bounds of a date."""
    unit, date = (node.unit, node.date) if isinstance(node, DateTrunc) else ("day", node)
    place = _calendar.count_units(lowering.program, lowering.day(date), unit)
    first, size, place = _count_from_zero(lowering.program, place, node)
    texts = [_write_unit(first + i, unit) for i in range(size)]
    return _Cells(list(texts), texts, place)


def _write_unit(number: int, unit: Unit) -> str:
    """Return a year as 2024, a quarter as 2024-Q1, a month as 2024-01, a week by its Monday."""
    first = _calendar.first_of_unit(number, unit)
    if unit == "year":
        return f"{first.year:04d}"
    if unit == "quarter":
        return f"{first.year:04d}-Q{(first.month + 2) // 3}"
    return first.isoformat()[: 7 if unit == "month" else 10]


def _bin_number(lowering: Lowering, node: Number, edges: tuple[float, ...]) -> _Cells:
    """Return the intervals between edges."""
    place = lowering.program.ladder(lowering.value(node), edges, [float(i) for i in range(len(edges) + 1)])
    labels = list(itertools.pairwise((-math.inf, *edges, math.inf)))
    texts = [write_interval(write_end(low), write_end(high), (low, high)) for low, high in labels]
    return _Cells(list(labels), texts, place)


def write_end(edge: float) -> str:
    """Return a number where a cell begins, or ends, as text that is read as the same number."""
    return repr(edge).removesuffix(".0")


def write_interval(low: str, high: str, ends: tuple[float, float], *, dates: bool = False) -> str:
    """Return an interval in words.

    Parameters
    ----------
    low, high : str
        Its two ends as text.
    ends : tuple of float
        The two ends as numbers, infinite where there is none.
    dates : bool, default False
        Whether the ends are days.
    """
    if math.isinf(ends[1]):
        return f"from {low}" if dates else f"{low} or more"
    before = f"{'before' if dates else 'below'} {high}"
    return before if math.isinf(ends[0]) else f"{low} to {before}"


def write_value(value: Fraction) -> str:
    """Return the number of a cell as text."""
    return str(_as_json_number(value))


def _as_json_number(value: Fraction) -> int | float:
    """Return an integer if the value is whole, or else the nearest double."""
    return int(value) if value.denominator == 1 else float(value)
