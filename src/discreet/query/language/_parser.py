"""From words to nodes: sqlglot finds the structure, a table of exact classes decides what of it is allowed.

A class that is not in the table is refused, and so is an argument that its row does not name: what sqlglot
learns to parse tomorrow is refused until a row is added for it.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import sqlglot
from sqlglot import exp

from discreet.errors import ExpressionRefused
from discreet.query.language import _normal_form as normal
from discreet.query.language._hints import explain_order
from discreet.query.language.lexer import (
    MOST_DEPTH,
    MOST_ITEMS,
    MOST_NODES,
    ScannedExpression,
    bare,
    scan,
    shorten,
    source_text,
    tokenize,
    too_deep,
    too_many,
)
from discreet.query.language.nodes import (
    Condition,
    Constant,
    Indicator,
    Member,
    Node,
    Null,
    Number,
    Reference,
    Truth,
)
from discreet.schema.notation import nearest

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet.schema import Column, Level, Schema

_MOST_DIGITS = 600  # canonical texts write doubles out in full
_MOST_EXPONENT = 200
_NUMBER = re.compile(r"([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,6}))?")
_ISO_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Category:
    """A category that was named; alone it is neither a number nor a condition."""

    column: Column


@dataclass(frozen=True, slots=True)
class Text:
    """A value in quotes."""

    value: str


Part: TypeAlias = Number | Condition | Category | Text


def read(text: object, schema: Schema) -> Number | Condition:
    """Parse an analyst's text.

    Raises
    ------
    ExpressionRefused
        If it is not in the language.
    """
    part = _read_part(text, schema)
    return part if isinstance(part, Condition) else as_number(part)


def read_counted(text: object, schema: Schema) -> Condition:
    """Return the test whether what COUNT was given, a number or a category, is known.

    Raises
    ------
    ExpressionRefused
        If it is not in the language, or is a condition.
    """
    part = _read_part(text, schema)
    if isinstance(part, Condition):
        # SQL would count the rows where it is false too, which is hardly what was meant.
        shown = shorten(bare(source_text(tokenize(str(text)))))
        raise ExpressionRefused(
            "COUNT of a condition", f"Write COUNT WHERE {shown} for the rows where it is true."
        )
    return normal.opposite(_is_missing(part))


def _read_part(text: object, schema: Schema) -> Part:
    """Return the part that a text stands for."""
    scanned = scan(text, schema)
    try:
        tree = sqlglot.parse_one(scanned.text)
    except RecursionError:
        raise too_deep() from None
    except Exception:  # whatever the parser says about words that are all ours, it is a matter of grammar
        raise ExpressionRefused(*explain_order(scanned.text.split())) from None
    return _Parser(scanned).part(tree, 0)


class _Parser:
    """One walk over a tree of sqlglot."""

    def __init__(self, scanned: ScannedExpression) -> None:
        self._scanned = scanned
        self._nodes = 0
        self._stand_ins: dict[str, Part] = {
            **{f"v_{i}": Text(value) for i, value in enumerate(scanned.values)},
            **{
                f"c_{i}": Category(column) if column.is_category else _reference(column)
                for i, column in enumerate(scanned.columns)
            },
        }

    def part(self, node: Any, depth: int) -> Part:
        """Return the part of a sqlglot node; refuses kinds and arguments that are not in the language."""
        if depth > MOST_DEPTH:
            raise too_deep()
        self._count()
        row = _TABLE.get(type(node))
        if row is None:
            raise ExpressionRefused(*_CONSTRUCTS.get(type(node).__name__, _unknown_construct(node)))
        handler, arguments = row
        for name, value in node.args.items():
            if name not in arguments and value not in (None, False, []):
                raise ExpressionRefused(*_ARGUMENTS.get((type(node), name), _unknown_construct(node)))
        return handler(self, node, depth + 1)

    def number(self, node: Any, depth: int) -> Number:
        return as_number(self.part(node, depth))

    def condition(self, node: Any, depth: int) -> Condition:
        return as_condition(self.part(node, depth))

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise too_many()

    def paren(self, node: Any, depth: int) -> Part:
        return self.part(node.this, depth)

    def column(self, node: Any, depth: int) -> Part:
        # sqlglot takes a keyword for a name where it finds no better use for it.
        known = self._stand_ins.get(node.this.this) if type(node.this) is exp.Identifier else None
        if known is None:
            raise _ungrammatical()
        return known

    def literal(self, node: Any, depth: int) -> Part:
        return normal.constant(_fraction(node.this))

    def boolean(self, node: Any, depth: int) -> Part:
        return Truth(bool(node.this))

    def negative(self, node: Any, depth: int) -> Part:
        return normal.negative(self.number(node.this, depth))

    def total(self, node: Any, depth: int) -> Part:
        spine = self._spine(node, (exp.Add, exp.Sub))
        return normal.total(
            (-1 if kind is exp.Sub else 1, self.number(operand, depth)) for kind, operand in spine
        )

    def product(self, node: Any, depth: int) -> Part:
        return normal.product(self.number(operand, depth) for _, operand in self._spine(node, (exp.Mul,)))

    def quotient(self, node: Any, depth: int) -> Part:
        return normal.quotient(self.number(node.this, depth), self.number(node.expression, depth))

    def function(self, node: Any, depth: int) -> Part:
        return normal.call(_FUNCTIONS[type(node)], self.number(node.this, depth))

    def power(self, node: Any, depth: int) -> Part:
        exponent = self.part(node.expression, depth)
        if not isinstance(exponent, Constant) or exponent.value not in range(normal.MOST_EXPONENT + 1):
            raise ExpressionRefused(
                "a POWER whose exponent is not a whole number from 0 to 8",
                "Write POWER(x, 2), or EXP(a * LN(x)) for another exponent.",
            )
        return normal.power(self.number(node.this, depth), int(exponent.value))

    def extreme(self, node: Any, depth: int) -> Part:
        items = [node.this, *node.expressions]
        _check_items(items)
        word = "LEAST" if type(node) is exp.Least else "GREATEST"
        return normal.extreme(word, [self.number(item, depth) for item in items])  # type: ignore[arg-type]

    def coalesce(self, node: Any, depth: int) -> Part:
        items = [node.this, *node.expressions]
        _check_items(items)
        return normal.coalesce([self.number(item, depth) for item in items])

    def case(self, node: Any, depth: int) -> Part:
        """Return a CASE; without ELSE it is NULL where no condition is true, as in SQL."""
        branches = []
        _check_items(node.args["ifs"])
        for branch in node.args["ifs"]:
            self._count()
            if type(branch) is not exp.If or branch.args.get("false") is not None:
                raise _ungrammatical()
            branches.append((self.condition(branch.this, depth), self._branch(branch.args["true"], depth)))
        default = node.args.get("default")
        otherwise = Null() if default is None else self._branch(default, depth)
        if all(isinstance(value, Null) for value in (otherwise, *(value for _, value in branches))):
            raise ExpressionRefused("a CASE of nothing but NULL", "Give one branch a number.")
        return normal.case(branches, otherwise)

    def _branch(self, node: Any, depth: int) -> Number:
        return Null() if type(node) is exp.Null else self.number(node, depth)

    def compare(self, node: Any, depth: int) -> Part:
        relation: Any = _RELATIONS[type(node)]
        left, right = self.part(node.this, depth), self.part(node.expression, depth)
        if isinstance(left, Text) and not isinstance(right, Text):
            left, right, relation = right, left, _MIRRORED[relation]
        if isinstance(right, Category) and not isinstance(left, Category):
            left, right, relation = right, left, _MIRRORED[relation]
        if isinstance(left, Category) and relation in ("=", "<>") and _is_listed(left, right):
            test = normal.member(self._test(left.column, [_level(left.column, right)]))
            return test if relation == "=" else normal.opposite(test)
        return normal.compare(relation, as_number(left), self._or_day(right, left))

    def between(self, node: Any, depth: int) -> Part:
        part = self.part(node.this, depth)
        number = as_number(part)
        low, high = (self._or_day(self.part(node.args[end], depth), part) for end in ("low", "high"))
        return normal.junction("AND", [normal.compare("<=", low, number), normal.compare("<=", number, high)])

    def among(self, node: Any, depth: int) -> Part:
        """Return ``x IN (...)`` as a test of levels, or as equalities of a number."""
        part = self.part(node.this, depth)
        _check_items(node.expressions)
        items = [self.part(item, depth) for item in node.expressions]
        if not items:
            raise _ungrammatical()
        if any(not isinstance(item, Constant | Text | Truth) for item in items):
            raise ExpressionRefused("a list of something else than values", "Write x IN (1, 2).")
        if isinstance(part, Category):
            return normal.member(self._test(part.column, [_level(part.column, item) for item in items]))
        number = as_number(part)
        days = [self._or_day(item, part) for item in items]
        return normal.junction("OR", [normal.compare("=", number, day) for day in days])

    def null_test(self, node: Any, depth: int) -> Part:
        """Return ``x IS NULL``, or a condition with IS TRUE or IS FALSE."""
        part = self.part(node.this, depth)
        if type(node.expression) is exp.Null:
            return _is_missing(part)
        if type(node.expression) is not exp.Boolean:
            raise ExpressionRefused("IS with something else than NULL", "Write x IS NULL, or x = 1.")
        condition = as_condition(part)
        return normal.is_true(condition if node.expression.this else normal.opposite(condition))

    def junction(self, node: Any, depth: int) -> Part:
        word: Any = "AND" if type(node) is exp.And else "OR"
        return normal.junction(
            word, [self.condition(operand, depth) for _, operand in self._spine(node, (type(node),))]
        )

    def opposite(self, node: Any, depth: int) -> Part:
        return normal.opposite(self.condition(node.this, depth))

    def _spine(self, node: Any, kinds: tuple[type, ...]) -> list[tuple[type, Any]]:
        """Take a chain of operators apart without recursion: a + b + c is one level."""
        operands: list[tuple[type, Any]] = []
        while type(node) in kinds:
            if operands:
                self._count()
            operands.append((type(node), node.expression))
            node = node.this
        return [(object, node), *reversed(operands)]

    def _or_day(self, part: Part, beside: Part) -> Number:
        """Read a date in quotes as days, if it stands beside a column of dates."""
        if not isinstance(part, Text):
            return as_number(part)
        column = next((c for c in self._scanned.columns if Reference(c.name) == beside), None)
        if column is None or column.type != "date":
            raise ExpressionRefused(
                "a value in quotes that is not beside a category or a date",
                "Compare a category with its declared values, a date with 'YYYY-MM-DD'.",
            )
        first = column.lower
        assert isinstance(first, datetime.date)
        try:
            day = datetime.date.fromisoformat(part.value) if _ISO_DATE.fullmatch(part.value) else None
        except ValueError:
            day = None
        if day is None:
            raise ExpressionRefused("a value beside a date that is none", "Write it as 'YYYY-MM-DD'.")
        return normal.constant((day - first).days)

    @staticmethod
    def _test(column: Column, levels: list[Level]) -> Member:
        codes = {_code(column, level) for level in levels}
        return Member(column.name, column.levels, tuple(sorted(codes)), False if column.required else None)


def as_number(part: Part) -> Number:
    """Read a part as a number: a condition is 0, 1 or unknown, a whole-number category its value."""
    if isinstance(part, Number):
        return part
    if isinstance(part, Condition):
        return normal.indicator(part)
    if isinstance(part, Text):
        raise ExpressionRefused(
            "a value in quotes where a number is needed", "Compare a category with it: ward = 'surgery'."
        )
    if _holds_only(part.column, bool):
        return normal.indicator(as_condition(part))
    if _holds_only(part.column, int):
        return _reference(part.column)
    raise ExpressionRefused(
        "a category where a number is needed", "Compare it with its declared values: ward = 'surgery'."
    )


def as_condition(part: Part) -> Condition:
    """Read a part as a condition: a category of true and false is one."""
    if isinstance(part, Condition):
        return part
    if isinstance(part, Indicator):
        return part.condition
    if isinstance(part, Category) and _holds_only(part.column, bool):
        return normal.member(_Parser._test(part.column, [True] if True in part.column.levels else []))
    raise ExpressionRefused("a number or value where a condition is needed", "Compare it: x > 0.")


def _is_listed(category: Category, part: Part) -> bool:
    """Whether a category is compared with a value rather than used as a number."""
    return isinstance(part, Text | Constant | Truth) or not _holds_only(category.column, int)


def _holds_only(column: Column, kind: type) -> bool:
    """Return whether all values of a category are of a kind; a missing cell is no value."""
    return all(isinstance(level, kind) for level in column.levels if level is not None)


def _reference(column: Column) -> Reference:
    """Return a column as a number, with the test for a missing cell if it may have some."""
    return Reference(column.name, _missing_cell(column), column.levels)


def _missing_cell(column: Column) -> Member | None:
    """Return the test for a missing cell, of the missing level or of the flag; None if none may be."""
    levels = column.levels if column.is_category else (False, None)
    return None if column.required else Member(column.name, levels, (), True, column.missing_flag)


def _is_missing(part: Part) -> Condition:
    """Return the test whether a part is unknown; of a category, whether its cell is missing."""
    if isinstance(part, Category):
        return _missing_cell(part.column) or Truth(False)
    return normal.is_missing(part if isinstance(part, Node) else as_number(part))


def _level(column: Column, part: Part) -> Level:
    if isinstance(part, Text):
        return part.value
    if isinstance(part, Truth):
        return part.value
    if isinstance(part, Constant) and part.value.denominator == 1:
        return int(part.value)
    raise ExpressionRefused(
        "a category compared with something else than a value",
        "Compare it with its declared values: ward = 'surgery'.",
    )


def _code(column: Column, level: Level) -> int:
    for code, declared in enumerate(column.levels):
        if type(declared) is type(level) and declared == level:
            return code
    words = [value for value in column.levels if isinstance(value, str)]
    close = nearest(level, words) if isinstance(level, str) else None
    listed = ", ".join(repr(value) for value in column.levels[:8] if value is not None)
    more = ", ..." if len(column.levels) > 8 else ""
    hint = f"Did you mean {close!r}?" if close else f"It may hold {listed}{more}."
    raise ExpressionRefused(f"a value that is not declared for {column.name}", hint)


def _fraction(written: str) -> Fraction:
    """Return the exact value of a number's text; refuses too many digits and exponents beyond 100."""
    match = _NUMBER.fullmatch(written)
    if match is None:
        raise ExpressionRefused("a number that cannot be read", "Write numbers as 12, 0.5 or 1e6.")
    whole, part, exponent = match[1] or "", match[2] or "", int(match[3] or 0)
    if len(whole + part) > _MOST_DIGITS:
        raise ExpressionRefused(f"a number of more than {_MOST_DIGITS} digits", "Write fewer digits.")
    if abs(exponent) > _MOST_EXPONENT:
        raise ExpressionRefused(
            "a number beyond 1e100, or nearer to zero than 1e-100", "Write numbers in a smaller unit."
        )
    return Fraction(int(whole + part or 0)) * Fraction(10) ** (exponent - len(part))


def _check_items(items: list[Any]) -> None:
    if len(items) > MOST_ITEMS:
        raise ExpressionRefused(f"a list of more than {MOST_ITEMS} items", "Write a shorter list.")


def _ungrammatical() -> ExpressionRefused:
    return ExpressionRefused(
        "words in an order that has no meaning",
        "Write an expression such as CASE WHEN age < 40 THEN 1 ELSE 0 END.",
    )


def _unknown_construct(node: Any) -> tuple[str, str]:
    return "words in an order that has no meaning", "Write an expression such as age * 2, or age < 40."


_FUNCTIONS: dict[type, Any] = {
    exp.Abs: "ABS", exp.Sqrt: "SQRT", exp.Ln: "LN", exp.Exp: "EXP", exp.Floor: "FLOOR",
}  # fmt: skip
_RELATIONS: dict[type, str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_ONE = frozenset(("this",))
_TWO = frozenset(("this", "expression"))
_TABLE: dict[type, tuple[Callable[[_Parser, Any, int], Part], frozenset[str]]] = {
    exp.Paren: (_Parser.paren, _ONE),
    exp.Column: (_Parser.column, _ONE),
    exp.Literal: (_Parser.literal, _ONE),
    exp.Boolean: (_Parser.boolean, _ONE),
    exp.Neg: (_Parser.negative, _ONE),
    exp.Add: (_Parser.total, _TWO),
    exp.Sub: (_Parser.total, _TWO),
    exp.Mul: (_Parser.product, _TWO),
    exp.Div: (_Parser.quotient, _TWO),
    exp.Pow: (_Parser.power, _TWO),
    exp.Least: (_Parser.extreme, frozenset(("this", "expressions", "ignore_nulls"))),
    exp.Greatest: (_Parser.extreme, frozenset(("this", "expressions", "ignore_nulls"))),
    exp.Coalesce: (_Parser.coalesce, frozenset(("this", "expressions"))),
    exp.Case: (_Parser.case, frozenset(("ifs", "default"))),
    exp.Between: (_Parser.between, frozenset(("this", "low", "high"))),
    exp.In: (_Parser.among, frozenset(("this", "expressions"))),
    exp.Is: (_Parser.null_test, _TWO),
    exp.And: (_Parser.junction, _TWO),
    exp.Or: (_Parser.junction, _TWO),
    exp.Not: (_Parser.opposite, _ONE),
    **dict.fromkeys(_FUNCTIONS, (_Parser.function, _ONE)),
    **dict.fromkeys(_RELATIONS, (_Parser.compare, _TWO)),
}
_CONSTRUCTS: dict[str, tuple[str, str]] = {
    "Star": ("*", "Write the name of a column."),
    "Null": ("NULL outside a branch of CASE", "Write x IS NULL to ask for missing cells."),
    "Tuple": ("a list outside IN", "Write x IN (1, 2)."),
    "Alias": ("two values side by side", "Put an operator between them."),
}
_ARGUMENTS: dict[tuple[type, str], tuple[str, str]] = {
    (exp.Case, "this"): ("a CASE with a value before WHEN", "Write CASE WHEN x = 1 THEN 2 ELSE 0 END."),
    (exp.Floor, "decimals"): ("FLOOR of two arguments", "Write FLOOR(x * 100) / 100."),
}
