"""Expressions as text that is read as the same expression, with dates in place of day numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet.query.language._date_text import write_dates
from discreet.query.language._select import WORDS
from discreet.query.language.lexer import bare, tokenize

if TYPE_CHECKING:
    from discreet.query.language import Expression


def write_condition(where: Expression) -> str:
    """Write a condition; in parentheses if a word in it would end it."""
    text = write_expression(where)
    capitals = text.upper()
    if not any(word in capitals for word in WORDS):
        return text
    ends = any(piece.depth == 0 and piece.word in WORDS for piece in tokenize(text))
    return f"({text})" if ends else text


def write_expression(expression: Expression) -> str:
    """Return an expression as text that is read as the same expression."""
    return bare(write_dates(expression.canonical, expression.schema))
