"""From words to nodes: sqlglot finds the structure, a table of exact classes decides what of it is allowed.

A class that is not in the table is refused, and so is an argument that its row does not name: what sqlglot
learns to parse tomorrow is refused until a row is added for it.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlglot
from sqlglot import exp

from discreet.errors import ExpressionRefused
from discreet.query.language import _normal_form as normal
from discreet.query.language._hints import COMPARED_TWICE, explain_order
from discreet.query.language._mistakes import check_ends, check_node, check_tests, check_types
from discreet.query.language._normal_form import where_true
from discreet.query.language._parts import (
    Category,
    Part,
    Text,
    add_dates,
    add_numbers,
    are_dates,
    are_texts,
    as_condition,
    as_date,
    as_number,
    as_numbers,
    as_text,
    check_items,
    choose,
    compare_parts,
    holds_only,
    is_missing,
    null_if,
    read_column,
    read_field_of,
    read_level,
    round_number,
    round_up,
    take_remainder,
    test_levels,
    truncate_date,
)
from discreet.query.language._text_nodes import TextCoalesce
from discreet.query.language.lexer import (
    MOST_DEPTH,
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
    Date,
    Indicator,
    Null,
    Number,
    Truth,
)
from discreet.query.language.vocabulary import DATE_FIELDS, MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet.schema import Schema

_MOST_DIGITS = 600  # canonical texts write doubles out in full
_MOST_EXPONENT = 200
_NUMBER_BEGINS = frozenset("0123456789.")
_PLAIN_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_NUMBER = re.compile(r"([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,6}))?")


def read(text: object, schema: Schema, *, typed: bool = False) -> Number | Condition:
    """Parse an analyst's text.

    Parameters
    ----------
    text : object
        Text as it was given, which is refused if it is no string.
    schema : Schema
        Declaration of the table, whose released columns may be named.
    typed : bool
        Whether a person typed it, so that what hardly means what it says is refused.

    Raises
    ------
    ExpressionRefused
        If it is not in the language.
    """
    scanned = scan(text, schema)
    part = _parse_scanned(scanned, typed)
    node = part if isinstance(part, Condition) else as_number(part)
    if typed:
        whole = node.condition if isinstance(node, Indicator) else node
        meant = where_true(whole) if isinstance(whole, Condition) else whole
        check_node(meant, scanned.text.split(), schema)
    return node


def read_key(text: object, schema: Schema, *, typed: bool = False) -> Part:
    """Parse the text of a key of groups, which may be a category or a date, or a CASE of texts.

    Raises
    ------
    ExpressionRefused
        If it is not in the language.
    """
    return _parse_scanned(scan(text, schema), typed)


def read_counted(text: object, schema: Schema, *, typed: bool = False) -> Condition:
    """Return the test whether what COUNT was given, a number or a category, is known.

    Raises
    ------
    ExpressionRefused
        If it is not in the language, or is a condition.
    """
    part = _parse_scanned(scan(text, schema), typed)
    column = part.column if isinstance(part, Category) else None
    # Of a column of TRUE and FALSE that may be missing, COUNT of the known cells is something of its own.
    all_known = column is not None and column.required and holds_only(column, bool)
    if isinstance(part, Condition) or all_known:
        # SQL would count the rows where it is false too, which is hardly what was meant.
        shown = shorten(bare(source_text(tokenize(str(text)))))
        raise ExpressionRefused(
            "COUNT of a condition", f"Write COUNT WHERE {shown} for the rows where it is true."
        )
    return normal.opposite(is_missing(part))


def _parse_scanned(scanned: ScannedExpression, typed: bool) -> Part:
    """Return the part that a scanned text stands for."""
    words = scanned.text.split()
    check_tests(words)
    shape, numbers = _take_numbers(words)
    try:
        tree = _parse_shape(shape)
    except RecursionError:
        raise too_deep() from None
    except Exception:
        # sqlglot raises more than its own errors. All words are known to us, so their order is wrong.
        raise ExpressionRefused(*explain_order(words)) from None
    return _Parser(scanned, numbers, typed).part(tree, 0)


def _take_numbers(words: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Return a text with stand-ins for its numbers, and the numbers by their stand-ins.

    Texts that are asked again and again differ in their numbers, on which the grammar does not depend. One
    with a number in another form than digits with a point between them is left as it is.
    """
    typed = [word for word in words if word[0] in _NUMBER_BEGINS]
    if not all(map(_PLAIN_NUMBER.fullmatch, typed)):
        return " ".join(words), {}
    numbers = {f"{place}.5": word for place, word in enumerate(typed)}
    stand_ins = iter(numbers)
    return " ".join(next(stand_ins) if word[0] in _NUMBER_BEGINS else word for word in words), numbers


@lru_cache(maxsize=64)
def _parse_shape(text: str) -> Any:
    """Return the tree of a text; it is shared, and must not be changed."""
    return sqlglot.parse_one(text)


class _Parser:
    """One walk over a tree of sqlglot."""

    def __init__(self, scanned: ScannedExpression, numbers: Mapping[str, str], typed: bool) -> None:
        self._numbers = numbers
        self._typed = typed
        self._nodes = 0
        self._stand_ins: dict[str, Part] = {
            **{f"v_{i}": Text(value) for i, value in enumerate(scanned.values)},
            **{
                f"c_{i}": Category(column) if column.is_category else read_column(column)
                for i, column in enumerate(scanned.columns)
            },
        }

    def part(self, node: Any, depth: int) -> Part:
        """Return the part of a sqlglot node; refuses kinds and arguments that are not in the language."""
        while type(node) is exp.Paren and set(node.args) <= _ONE:
            node = node.this  # neither a part nor a level: the lexer has counted them
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
        if self._nodes > 2 * MOST_NODES:
            raise too_many()

    def column(self, node: Any, depth: int) -> Part:
        # sqlglot takes a keyword for a name where it finds no better use for it.
        known = self._stand_ins.get(node.this.this) if type(node.this) is exp.Identifier else None
        if known is None:
            raise _ungrammatical()
        return known

    def literal(self, node: Any, depth: int) -> Part:
        return normal.constant(_fraction(self._numbers[node.this] if self._numbers else node.this))

    def boolean(self, node: Any, depth: int) -> Part:
        return Truth(bool(node.this))

    def negative(self, node: Any, depth: int) -> Part:
        return normal.negative(self.number(node.this, depth))

    def total(self, node: Any, depth: int) -> Part:
        """Return a sum: a number, or a date if there is one date more that is added than subtracted."""
        spine = self._spine(node, (exp.Add, exp.Sub))
        terms = []
        for kind, operand in spine:
            minus = type(operand) is exp.Neg  # of the first: - a + b
            sign = -1 if (kind is exp.Sub) != minus else 1
            terms.append((sign, self.part(operand.this if minus else operand, depth)))
        if any(isinstance(part, Date) for _, part in terms):
            return add_dates(terms)
        return add_numbers((sign, as_number(part)) for sign, part in terms)

    def remainder(self, node: Any, depth: int) -> Part:
        return normal.remainder(self.number(node.this, depth), self.number(node.expression, depth))

    def call_function(self, node: Any, depth: int) -> Part:
        """Return a function that sqlglot does not know by the name it was given."""
        name = str(node.this).removeprefix(MARK)
        handlers: dict[str, tuple[Callable[..., Part], int, int]] = {
            "CEIL": (round_up, 1, 1),
            "ROUND": (round_number, 1, 2),
            "MOD": (take_remainder, 2, 2),
            "NULLIF": (null_if, 2, 2),
            "DATE": (as_date, 1, 1),
            "DATE_TRUNC": (truncate_date, 2, 2),
        }
        if not str(node.this).startswith(MARK) or not (name in handlers or name in DATE_FIELDS):
            raise _ungrammatical()
        handler, least, most = handlers.get(name, (read_field_of(name), 1, 1))
        if not least <= len(node.expressions) <= most:
            wanted = f"{least}" if least == most else f"{least} or {most}"
            raise ExpressionRefused(
                f"{name} of {len(node.expressions)} arguments", f"Give it {wanted}, separated by commas."
            )
        arguments = [self.part(argument, depth) for argument in node.expressions]
        if name == "NULLIF" and self._typed:
            check_types("=", *arguments)
        return handler(*arguments)

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
        check_items(items)
        word: Any = "LEAST" if type(node) is exp.Least else "GREATEST"
        parts = [self.part(item, depth) for item in items]
        if are_dates(parts):
            return normal.choose_date(word, [as_date(part) for part in parts])
        return normal.extreme(word, as_numbers(parts))

    def coalesce(self, node: Any, depth: int) -> Part:
        items = [node.this, *node.expressions]
        check_items(items)
        parts = [self.part(item, depth) for item in items]
        if are_dates(parts):
            return normal.choose_date("COALESCE", [as_date(part) for part in parts])
        if are_texts(parts) and not all(isinstance(part, Text) for part in parts):
            return TextCoalesce(tuple(map(as_text, parts)))
        return normal.coalesce(as_numbers(parts))

    def case(self, node: Any, depth: int) -> Part:
        """Return a CASE; without ELSE it is NULL where no condition is true, as in SQL."""
        check_items(node.args["ifs"])
        subject = None if node.this is None else self.part(node.this, depth)
        conditions, values = [], []
        for branch in node.args["ifs"]:
            self._count()
            if type(branch) is not exp.If or branch.args.get("false") is not None:
                raise _ungrammatical()
            part = self.part(branch.this, depth)
            conditions.append(as_condition(part) if subject is None else self._compare("=", subject, part))
            values.append(self._branch(branch.args["true"], depth))
        default = node.args.get("default")
        return choose(conditions, values, Null() if default is None else self._branch(default, depth))

    def _branch(self, node: Any, depth: int) -> Part:
        return Null() if type(node) is exp.Null else self.part(node, depth)

    def compare(self, node: Any, depth: int) -> Part:
        """Return a comparison; refuses one of a comparison that is not in parentheses: 40 < age < 60."""
        relation: Any = _RELATIONS[type(node)]
        if any(type(side) in _RELATIONS or type(side) in _TESTS for side in (node.this, node.expression)):
            # PostgreSQL refuses it too; others compare 40 < age, which is 0 or 1, with 60.
            raise ExpressionRefused(*COMPARED_TWICE)
        return self._compare(relation, self.part(node.this, depth), self.part(node.expression, depth))

    def _compare(self, relation: Any, left: Part, right: Part) -> Condition:
        if self._typed:
            check_types(relation, left, right)
        return compare_parts(relation, left, right)

    def between(self, node: Any, depth: int) -> Part:
        """Return ``x BETWEEN low AND high`` as two comparisons."""
        part = self.part(node.this, depth)
        low, high = (self.part(node.args[end], depth) for end in ("low", "high"))
        if self._typed:
            check_ends(*(as_date(end) if are_dates([part, end]) else end for end in (low, high)))
        return normal.junction("AND", [self._compare("<=", low, part), self._compare("<=", part, high)])

    def among(self, node: Any, depth: int) -> Part:
        """Return ``x IN (...)`` as a test of levels, or as equalities of a number."""
        part = self.part(node.this, depth)
        check_items(node.expressions)
        items = [self.part(item, depth) for item in node.expressions]
        if not items:
            raise ExpressionRefused("IN without values", "Write age IN (40, 50).")
        if any(type(item) is exp.Sub for item in node.expressions):
            raise ExpressionRefused("a difference in a list", "Write age BETWEEN 40 AND 60.")
        if any(not isinstance(item, Constant | Text | Truth) for item in items):
            raise ExpressionRefused("a list of something other than values", "Write x IN (1, 2).")
        if isinstance(part, Category):
            return normal.member(test_levels(part.column, [read_level(part.column, item) for item in items]))
        return normal.junction("OR", [self._compare("=", part, item) for item in items])

    def null_test(self, node: Any, depth: int) -> Part:
        """Return ``x IS NULL``, or a condition with IS TRUE or IS FALSE."""
        part = self.part(node.this, depth)
        if type(node.expression) is exp.Null:
            return is_missing(part)
        if type(node.expression) is not exp.Boolean:
            raise ExpressionRefused("IS with something other than NULL", "Write x IS NULL, or x = 1.")
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
    digits, power = int(whole + part or 0), exponent - len(part)
    return Fraction(digits * 10**power) if power >= 0 else Fraction(digits, 10**-power)


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

_TESTS = (exp.Between, exp.In, exp.Not)

_ONE = frozenset(("this",))
_TWO = frozenset(("this", "expression"))
_TABLE: dict[type, tuple[Callable[[_Parser, Any, int], Part], frozenset[str]]] = {
    exp.Column: (_Parser.column, _ONE),
    exp.Literal: (_Parser.literal, _ONE),
    exp.Boolean: (_Parser.boolean, _ONE),
    exp.Neg: (_Parser.negative, _ONE),
    exp.Add: (_Parser.total, _TWO),
    exp.Sub: (_Parser.total, _TWO),
    exp.Mul: (_Parser.product, _TWO),
    exp.Div: (_Parser.quotient, _TWO),
    exp.Mod: (_Parser.remainder, _TWO),
    exp.Pow: (_Parser.power, _TWO),
    exp.Anonymous: (_Parser.call_function, frozenset(("this", "expressions"))),
    exp.Least: (_Parser.extreme, frozenset(("this", "expressions", "ignore_nulls"))),
    exp.Greatest: (_Parser.extreme, frozenset(("this", "expressions", "ignore_nulls"))),
    exp.Coalesce: (_Parser.coalesce, frozenset(("this", "expressions"))),
    exp.Case: (_Parser.case, frozenset(("this", "ifs", "default"))),
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
    "Alias": ("two values side by side", "Write a sign, AND or OR between them."),
}
_ARGUMENTS: dict[tuple[type, str], tuple[str, str]] = {
    (exp.Floor, "decimals"): ("FLOOR of two arguments", "Write FLOOR(x * 100) / 100."),
}
