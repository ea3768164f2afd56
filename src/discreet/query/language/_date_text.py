"""Dates in texts of queries, in place of the numbers of days or steps by which engines compare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.query.language.lexer import Token, tokenize, write_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.schema import Column, Schema

_RELATIONS = ("<", "<=", "=", "<>")  # of a canonical text, which mirrors the others


def write_edge(edge: float, column: Column) -> str:
    """Return the start of a cell as text that is read as the same number."""
    if column.is_calendar and edge.is_integer():
        try:
            return f"'{column.moment(edge)}'"
        except OverflowError:
            pass
    return repr(edge).removesuffix(".0")


def write_dates(text: str, schema: Schema) -> str:
    """Return a canonical text with dates in place of the day numbers that date columns are compared with."""
    dates = {write_name(column.name): column for column in schema.released if column.is_calendar}
    if not any(name in text for name in dates):
        return text
    inside = f"({text})"
    days: list[tuple[Token, str]] = []
    tokens = _join_signs(tokenize(inside))
    for before, left, relation, right, after in zip(*(tokens[i:] for i in range(5)), strict=False):
        # A comparison stands in parentheses, so that what is beside it cannot be part of a sum.
        if (before.text, after.text) != ("(", ")") or relation.text not in _RELATIONS:
            continue
        for day, name in ((left, right), (right, left)):
            if day.text.removeprefix("-").isdigit() and name.text in dates:
                days.append((day, write_edge(float(day.text), dates[name.text])))
    for day, written in reversed(days):
        inside = inside[: day.start] + written + inside[day.end :]
    return inside[1:-1]


def _join_signs(tokens: Sequence[Token]) -> list[Token]:
    """Return tokens with each minus before a number, after a parenthesis or a relation, as one with it."""
    joined: list[Token] = []
    for token in tokens:
        before = joined[-2].text if len(joined) > 1 else ""
        if token.kind == "number" and joined[-1:] and joined[-1].text == "-" and before in ("(", *_RELATIONS):
            minus = joined.pop()
            token = token._replace(text=f"-{token.text}", start=minus.start)
        joined.append(token)
    return joined
