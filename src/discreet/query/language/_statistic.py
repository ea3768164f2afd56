"""Statistics of a query: what each computes of the rows, and how it is written."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from discreet.errors import ExpressionRefused
from discreet.query.language._expression import parse, parse_typed
from discreet.query.language.lexer import Token, shorten, source_text, split_list, tokenize, write_name
from discreet.query.language.vocabulary import refused_aggregate

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Collection, Sequence

    from discreet.query.language import Expression
    from discreet.schema import Schema

Kind: TypeAlias = Literal[
    "count",
    "sum",
    "mean",
    "variance",
    "stddev",
    "variance_pop",
    "stddev_pop",
    "ratio",
    "quantile",
    "distinct",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
SPREADS: tuple[Kind, ...] = ("variance", "stddev", "variance_pop", "stddev_pop")
"""Kinds that measure how far values are from their mean."""

# The first word of a kind in each table is how it is written.
IN_WORDS: dict[str, Kind] = {
    "COUNT": "count",
    "SUM": "sum",
    "MEAN": "mean",
    "AVG": "mean",
    "AVERAGE": "mean",
    "PROPORTION": "mean",
    "VARIANCE": "variance",
    "STDDEV": "stddev",
    "VAR_POP": "variance_pop",
    "STDDEV_POP": "stddev_pop",
    "VAR_SAMP": "variance",
    "STDDEV_SAMP": "stddev",
    "RATIO": "ratio",
    "MEDIAN": "quantile",
    "QUANTILE": "quantile",
}
IN_SQL: dict[str, Kind] = {
    "COUNT": "count",
    "SUM": "sum",
    "AVG": "mean",
    "MEAN": "mean",
    "AVERAGE": "mean",
    "VARIANCE": "variance",
    "STDDEV": "stddev",
    "VAR_POP": "variance_pop",
    "STDDEV_POP": "stddev_pop",
    "VAR_SAMP": "variance",
    "STDDEV_SAMP": "stddev",
    "MEDIAN": "quantile",
    "QUANTILE_DISC": "quantile",
    "QUANTILE": "quantile",
    "PERCENTILE_DISC": "quantile",
    "RATIO": "ratio",
}
_OTHER_WORDS = {
    "TOTAL": "SUM",
    "NUMBER": "COUNT",
    "STD": "STDDEV",
    "SD": "STDDEV",
    "VAR": "VARIANCE",
    "PERCENTILE": "QUANTILE(age, 0.9), with a level between 0 and 1",
}
_CLAUSES = {"WHERE": "WHERE sex = 'F'", "BY": "BY sex", "LIMIT": "BY sex LIMIT 3"}
_OLD = ("COUNT", "SUM", "MEAN")  # may stand without parentheses, so no column can be called like them
_OPERATORS = ("IN", "IS", "NOT", "BETWEEN", "AND", "OR")
_NUMBER = re.compile(r"[0-9]*\.?[0-9]+(?:[eE]-?[0-9]+)?")


class StatisticText(NamedTuple):
    """A statistic as typed: its word, the texts between its commas, and whether DISTINCT came first."""

    word: str
    arguments: tuple[str, ...]
    distinct: bool = False

    def written(self) -> str:
        """Return the text again, as it stands in a SELECT."""
        if self.word in ("RATIO", "PERCENTILE_DISC") and len(self.arguments) == 2:
            first, second = self.arguments
            if self.word == "RATIO":
                return f"SUM({first}) / SUM({second})"
            return f"{self.word}({first}) WITHIN GROUP (ORDER BY {second})"
        inside = ", ".join(self.arguments) or "*"
        return f"{self.word}({'DISTINCT ' if self.distinct else ''}{inside})"


@dataclass(frozen=True, slots=True)
class QueryStatistic:
    """A number that is computed of the chosen rows.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`. A quantile is that of SQL's PERCENTILE_DISC; "distinct" counts units, not rows.
    expression : Expression or None
        Expression that is summed, averaged or ordered, the numerator of a ratio; None for a count.
    denominator : Expression or None
        Expression whose sum a ratio is divided by; None for all other kinds.
    level : float or None
        Part of the rows that are not above a quantile, between 0 and 1; None for all other kinds.
    known : str or None
        Condition that chooses the rows of this statistic alone, besides WHERE: that its expression, or what
        COUNT was given, is known. None where it is for all rows, and where WHERE says it already.
    unit_column : str or None
        Column that names the unit of a row, for a count of units; None for all other kinds.
    """

    kind: Kind
    expression: Expression | None = None
    denominator: Expression | None = None
    level: float | None = None
    known: str | None = None
    unit_column: str | None = None

    def write(self, write_expression: Callable[[Expression], str], *, sql: bool = False) -> str:
        """Return the statistic as text, in words or as in SQL, which is read as the same statistic."""
        expression = "" if self.expression is None else write_expression(self.expression)
        if self.kind == "count":
            return "COUNT(*)" if sql else "count"
        if self.unit_column is not None:
            inside = f"(distinct {write_name(self.unit_column)})"
            return f"COUNT{inside.replace('distinct', 'DISTINCT', 1)}" if sql else f"count{inside}"
        if self.kind == "ratio":
            assert self.denominator is not None
            other = write_expression(self.denominator)
            return f"SUM({expression}) / SUM({other})" if sql else f"ratio({expression}, {other})"
        if self.kind == "quantile":
            word = "median" if self.level == 0.5 else "quantile_disc" if sql else "quantile"
            level = "" if self.level == 0.5 else f", {self.level!r}"
            return f"{word.upper() if sql else word}({expression}{level})"
        table = IN_SQL if sql else IN_WORDS
        word = next(word for word, kind in table.items() if kind == self.kind)
        return f"{word if sql else word.lower()}({expression})"

    @property
    def measure(self) -> str | None:
        """Unit of the number: of a column by itself its own, of dates days, of a count rows."""
        if self.expression is None or (self.expression.is_condition and self.kind == "sum"):
            return "rows"
        if self.kind in ("ratio", "variance", "variance_pop") or self.expression.bare is None:
            return None
        column = self.expression.schema.column(self.expression.bare)
        if column.type == "datetime" and self.kind in ("mean", "quantile"):
            return f"{column.unit_name} since {column.lower}"
        return column.unit_name

    @property
    def first_day(self) -> datetime.date | None:
        """Day that the number 0 stands for in a mean or quantile of dates; None for other statistics."""
        if self.expression is None or self.expression.bare is None or self.kind not in ("mean", "quantile"):
            return None
        column = self.expression.schema.column(self.expression.bare)
        return column.lower if column.type == "date" else None  # type: ignore[return-value]


def read_list(text: str, columns: Collection[str]) -> list[StatisticText | str]:
    """Return the statistics of a query in words; a text for one that is an expression without a word.

    Parameters
    ----------
    text : str
        Text before WHERE and BY.
    columns : collection of str
        Casefolded names of the columns, which an expression may begin with.
    """
    parts = list(split_list(tokenize(text)))
    return [_read_item(part, text, columns) for part in parts] if any(parts) else []


def _read_item(part: list[Token], text: str, columns: Collection[str]) -> StatisticText | str:
    """Return one statistic of a list in words."""
    if not part:
        raise ExpressionRefused("an empty place between commas", "Leave out the comma.")
    word = part[0].word
    called = len(part) > 1 and part[1].text == "("
    if word in _OTHER_WORDS and word.casefold() not in columns:
        raise ExpressionRefused(f"the word {word}", f"Write {_OTHER_WORDS[word]}.")
    if word not in IN_WORDS and called:
        refused = refused_aggregate(word, shorten(source_text(part[2:-1])) or "x")
        if refused is not None:
            raise refused
    if word not in IN_WORDS or not (called or word in _OLD or word.casefold() not in columns):
        return source_text(part)
    outside = [piece for piece in part[1:] if piece.depth == 0]
    clause = next((p.word for p in part if p.depth and p.word in _CLAUSES), "")
    if clause and clause.casefold() not in columns:
        raise ExpressionRefused(
            f"{clause} inside parentheses", f"Close them before it: {word}(age) {_CLAUSES[clause]}."
        )
    if len(outside) > 2 and (outside[0].text, outside[1].text) == ("(", ")"):
        raise _refuse_rest(part, outside[2])
    if word == "COUNT" and outside and outside[0].text in ("+", "-", "*", "/"):
        # COUNT - 5 would be read as COUNT(-5), which counts all rows.
        raise _refuse_rest(part, outside[0])
    inside = part[2:-1] if called and len(outside) == 2 else part[1:]
    return read_arguments(word, inside)


def _refuse_rest(part: Sequence[Token], first: Token) -> ExpressionRefused:
    """Return the error for what follows a statistic: SUM(a) + 1 would be read as SUM(a + 1)."""
    before = [piece for piece in part if piece.start < first.start]
    after = [piece.word or piece.text for piece in part if piece.start >= first.start]
    statistic = shorten(source_text(before))
    construct = f"{shorten(first.text)} after {statistic}"
    inner = source_text(before[2:-1])
    if first.word in IN_WORDS:
        return ExpressionRefused(construct, "Write a comma between two statistics.")
    if first.kind != "sign":
        return ExpressionRefused(construct, "Write WHERE before a condition, BY before groups.")
    if before[0].word == "SUM" and after[:2] == ["/", "COUNT"]:
        return ExpressionRefused(construct, f"Write MEAN({shorten(inner)}).")
    if before[0].word == "SUM" and after[:3] == ["/", "SUM", "("] and after[-1] == ")":
        below = source_text([piece for piece in part if piece.start >= first.start][3:-1])
        return ExpressionRefused(construct, f"Write RATIO({shorten(inner)}, {shorten(below)}).")
    return ExpressionRefused(construct, f"Ask for {statistic}, and compute with the answer.")


def read_arguments(word: str, inside: Sequence[Token]) -> StatisticText:
    """Return a statistic from its word and the tokens in its parentheses."""
    distinct = bool(inside) and inside[0].word == "DISTINCT" and not _is_operand(word, inside)
    depth = min((piece.depth for piece in inside), default=0)
    parts = split_list(list(inside[distinct:]), depth)
    arguments = tuple(source_text(part) for part in parts if part)
    if word == "COUNT" and not distinct and arguments == ("*",):
        arguments = ()
    return StatisticText(word, arguments, distinct)


def _is_operand(word: str, inside: Sequence[Token]) -> bool:
    """Return whether the first of some tokens is a column that is called DISTINCT: an operator follows it."""
    if len(inside) == 1:
        return word != "COUNT"
    after = inside[1]
    return after.word in _OPERATORS or (after.kind == "sign" and after.text != "(")


def build_statistics(
    texts: Sequence[StatisticText], schema: Schema, *, sql: bool = False, typed: bool = False
) -> tuple[QueryStatistic, ...]:
    """Return the statistics of their texts; of several, each says itself for which rows it is known.

    Parameters
    ----------
    texts : sequence of StatisticText
        Statistics as they were written.
    schema : Schema
        Declaration of the table, whose released columns may be named.
    sql : bool
        Whether they have the words of SQL.
    typed : bool
        Whether a person typed them, so that what hardly means what it says is refused.
    """
    table = IN_SQL if sql else IN_WORDS
    built = [_build_statistic(one, table[one.word], schema, typed) for one in texts]
    if len(built) == 1:
        return tuple(built)
    built = [sum_of_known(one, schema) for one in built]
    if len(set(built)) < len(built):
        raise ExpressionRefused("a statistic that comes twice", "Write it once.")
    return tuple(built)


def sum_of_known(statistic: QueryStatistic, schema: Schema) -> QueryStatistic:
    """Return a count of something as the sum of the condition that it is known; others as they are.

    Among several statistics it is one: the condition of the query is that of all of them.
    """
    if statistic.kind != "count" or not statistic.known:
        return statistic
    return QueryStatistic("sum", parse(statistic.known, schema))


def _build_statistic(text: StatisticText, kind: Kind, schema: Schema, typed: bool) -> QueryStatistic:
    """Return one statistic; refuses another number of arguments than it has."""
    word, given = text.word, text.arguments
    if text.distinct:
        return _build_distinct(text, schema)
    if kind == "count":
        if len(given) > 1:
            raise ExpressionRefused("COUNT of several things", "Write COUNT(*), or COUNT of one column.")
        if not given:
            return QueryStatistic("count")
        counted = parse_typed(given[0], schema, "counted", typed=typed)
        return (
            QueryStatistic("count")
            if counted.is_constant
            else QueryStatistic("count", known=counted.canonical)
        )
    wanted = 2 if kind == "ratio" or (kind == "quantile" and word != "MEDIAN") else 1
    if len(given) != wanted:
        raise _wrong_arguments(word, kind, len(given))
    if kind == "quantile":
        return _build_quantile(text, schema, typed)
    first, *others = (parse_typed(one, schema, typed=typed) for one in given)
    if typed and kind in ("sum", "ratio"):
        for one in (first, *others):
            check_summed(kind, one)
    if typed and word == "PROPORTION" and not first.is_condition:
        raise ExpressionRefused.not_allowed(
            "a proportion of a number", f"Write PROPORTION of a condition, or MEAN({shorten(given[0])})."
        )
    if kind == "ratio":
        if typed and others[0].lower == others[0].upper == 0:
            raise ExpressionRefused.not_allowed("a ratio to a sum of zeros", "Divide by something else.")
        return _build_ratio(first, others[0])
    if kind == "sum":
        return QueryStatistic("sum", first)
    return QueryStatistic(kind, first, known=first.known)


def check_summed(kind: str, expression: Expression) -> None:
    """Refuse the sum or ratio of a column of dates, which would be one of days since its first."""
    column = None if expression.bare is None else expression.schema.column(expression.bare)
    if column is not None and column.is_calendar:
        name = write_name(column.name)
        count = f", or say from which day to count: {name} - DATE '{column.lower}'"
        raise ExpressionRefused.not_allowed(
            f"a {kind} of {column.type}s",
            f"Write MEAN({name}) for their mean{count if column.type == 'date' else ''}.",
        )


def _build_ratio(numerator: Expression, denominator: Expression) -> QueryStatistic:
    """Return a ratio of two sums; refuses a sum that may have either sign below the line."""
    if denominator.lower < 0 < denominator.upper:
        raise ExpressionRefused.not_allowed(
            "a ratio to a sum that may have either sign",
            "The second expression must be nowhere negative, or nowhere positive: RATIO(x, ABS(y)).",
        )
    return QueryStatistic("ratio", numerator, denominator)


def _build_distinct(typed: StatisticText, schema: Schema) -> QueryStatistic:
    """Return the count of the units that the rows belong to."""
    unit = schema.id_column
    if typed.word != "COUNT" or len(typed.arguments) != 1:
        raise ExpressionRefused(
            f"{typed.word} of DISTINCT values", "Leave out DISTINCT, which only COUNT of an id column has."
        )
    (piece, *rest) = tokenize(typed.arguments[0])
    if unit is None or rest or not piece.is_name or piece.name.casefold() != unit.casefold():
        counted = (
            f"Every row is a {schema.unit} of its own, and COUNT(*) counts them."
            if unit is None
            else f"COUNT(DISTINCT {write_name(unit)}) counts every {schema.unit} once."
        )
        raise ExpressionRefused(
            f"a count of the distinct values of {shorten(typed.arguments[0])}",
            f"GROUP BY counts the rows of each declared value. {counted}",
        )
    return QueryStatistic("distinct", unit_column=unit)


def _build_quantile(text: StatisticText, schema: Schema, typed: bool) -> QueryStatistic:
    """Return a quantile; its level is written first in PERCENTILE_DISC, as in SQL, and last elsewhere."""
    expression, *levels = text.arguments
    if text.word == "PERCENTILE_DISC":
        expression, levels = text.arguments[1], [text.arguments[0]]
    level = 0.5
    if levels:
        number = levels[0].strip()
        level = float(number) if _NUMBER.fullmatch(number) else -1.0
        if not 0 < level < 1:
            percent = number.removesuffix("%").strip()
            written = percent.isdecimal() and percent.isascii() and 0 < int(percent) < 100
            example = f"{int(percent) / 100:g}" if written else "0.9"
            raise ExpressionRefused(
                f"the level {shorten(number)} of a quantile",
                "It is the part of the rows that lie below, between 0 and 1: "
                f"QUANTILE({shorten(expression) if written else 'age'}, {example}).",
            )
    parsed = parse_typed(expression, schema, typed=typed)
    if parsed.is_condition:
        raise ExpressionRefused(
            "a quantile of a condition", "Ask for its MEAN: the part of rows where it is true."
        )
    return QueryStatistic("quantile", parsed, level=level, known=parsed.known)


def _wrong_arguments(word: str, kind: Kind, given: int) -> ExpressionRefused:
    """Return the error for a statistic of nothing, or of too many things."""
    form = {"ratio": "RATIO(sales, hours)", "quantile": f"{word}(age, 0.9)"}.get(kind, f"{word}(age)")
    if word == "MEDIAN":
        form = "MEDIAN(age)"
    if word == "PERCENTILE_DISC":
        form = "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY age)"
    if not given:
        return ExpressionRefused(f"{word} of nothing", f"Write {form}.")
    return ExpressionRefused(f"{word} of {given} thing{'' if given == 1 else 's'}", f"Write {form}.")
