"""The questions that people type: ``mean(age) where sex = 'Female' by education``.

A question is one sentence: what to compute, of which rows, for which groups. What stands inside is the
expression language of :mod:`discreet.query.expression`; here it is only cut into its parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from discreet.errors import ExpressionRefused
from discreet.query.expression import parse, parse_groups

if TYPE_CHECKING:
    from discreet.query.expression import Expression
    from discreet.schema import Schema

Verb: TypeAlias = Literal["count", "sum", "mean"]
_VERBS: dict[str, Verb] = {"count": "count", "sum": "sum", "mean": "mean"}
_OTHER_WORDS = {"avg": "mean", "average": "mean", "total": "sum", "number": "count"}
# Text in quotes is one piece: a value or a name may hold any word.
_PIECES = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|[A-Za-z_]\w*|\s+|.""", re.DOTALL)
_MOST = 8192  # characters; an expression has at most half of them


@dataclass(frozen=True, slots=True)
class Axis:
    """A column to group by.

    Attributes
    ----------
    column : str
        Its name.
    edges : tuple of float
        Where cells begin; empty for a column whose declared values are the cells.
    """

    column: str
    edges: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Sentence:
    """A question, read.

    Attributes
    ----------
    verb : {"count", "sum", "mean"}
        What is computed.
    expression : Expression or None
        Of what; None for a count.
    where : Expression or None
        A condition on rows; None for all of them.
    by : tuple of Axis
        Groups.
    schema : Schema
        What was declared.
    """

    verb: Verb
    expression: Expression | None
    where: Expression | None
    by: tuple[Axis, ...]
    schema: Schema

    def __str__(self) -> str:
        words: str = self.verb
        if self.expression is not None:
            words += f"({_bare(self.expression.canonical)})"
        if self.where is not None:
            words += f" where {_bare(self.where.canonical)}"
        if self.by:
            words += f" by {', '.join(map(_written, self.by))}"
        return words

    @property
    def measure(self) -> str | None:
        """The unit of the answer: of a column by itself its own, of a count rows."""
        if self.expression is None or (self.expression.is_condition and self.verb == "sum"):
            return "rows"
        bare = self.expression.bare
        return None if bare is None else self.schema.column(bare).measure


def read_sentence(text: str, schema: Schema) -> Sentence:
    """Read a question.

    Parameters
    ----------
    text : str
        ``[COUNT | SUM | MEAN] [expression] [WHERE condition] [BY column, ...]``. A number to group by is
        followed by where its cells begin: ``BY age (30, 45, 60)``. An expression without a word before it is
        summed, so that a condition counts.
    schema : Schema
        What was declared.

    Raises
    ------
    ExpressionRefused
        If a part is missing, is not in the language, or has no bounds. Text and schema alone decide.

    Reference
    ---------
    ``docs/reference/expressions.md``; ``docs/decisions/0010-questions-are-sentences.md``.

    Examples
    --------
    >>> from discreet.schema import Column, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99),
    ...                          Column("sex", values=("f", "m"))])
    >>> print(read_sentence("Mean(age) WHERE sex = 'f' by age (30, 60)", schema))
    mean(age) where sex IN ('f') by age (30, 60)
    >>> print(read_sentence("age > 40", schema))
    count where 40 < age
    """
    if len(text) > _MOST:
        raise ExpressionRefused(f"more than {_MOST} characters", "Ask a shorter question.")
    what, condition, groups = _parts(text)
    where = None if condition is None else parse(condition, schema)
    if where is not None and not where.is_condition:
        raise ExpressionRefused(
            "something else than a condition after WHERE", "Compare it with something: WHERE age > 40."
        )
    verb, rest = _verb(what)
    if verb == "count":
        if re.sub(r"[\s()]", "", rest) not in ("", "*"):
            raise ExpressionRefused(
                "something to count after COUNT", "Rows are counted: write COUNT WHERE and a condition."
            )
        expression = None
    else:
        if not rest.strip():
            raise ExpressionRefused(
                "nothing to compute", "Write COUNT, SUM(age) or MEAN(age), then WHERE or BY."
            )
        expression = parse(rest, schema)
        if verb is None and expression.is_condition and where is None:
            verb, expression, where = "count", None, expression
    return Sentence(verb or "sum", expression, where, _axes(groups, schema), schema)


def _parts(text: str) -> tuple[str, str | None, str | None]:
    """Cut a sentence at WHERE and BY, where they stand outside of quotes and parentheses."""
    found: dict[str, tuple[int, int]] = {}
    depth, before = 0, ("", 0)
    for match in _PIECES.finditer(text):
        piece = match[0]
        if piece.isspace():
            continue
        depth += (piece == "(") - (piece == ")")
        word = piece.lower()
        if depth == 0 and word in ("where", "by"):
            if word in found:
                raise ExpressionRefused(f"a second {word.upper()}", "Join conditions with AND, groups by ,.")
            group = word == "by" and before[0] == "group"
            found[word] = (before[1] if group else match.start(), match.end())
        before = (word, match.start())
    where, by = found.get("where"), found.get("by")
    if where and by and by < where:
        raise ExpressionRefused("BY before WHERE", "Write WHERE first: COUNT WHERE age > 40 BY sex.")
    end = by[0] if by else len(text)
    what = text[: where[0] if where else end]
    return what, text[where[1] : end] if where else None, text[by[1] :] if by else None


def _verb(what: str) -> tuple[Verb | None, str]:
    """Take the first word off, if it says what to compute."""
    match = re.match(r"\s*([A-Za-z_]\w*)", what)
    word = "" if match is None else match[1].lower()
    if word in _OTHER_WORDS:
        right = _OTHER_WORDS[word].upper()
        raise ExpressionRefused(f"the word {word.upper()}", f"Write {right} instead.")
    if match is None or word not in _VERBS:
        return None, what
    return _VERBS[word], what[match.end() :]


def _axes(groups: str | None, schema: Schema) -> tuple[Axis, ...]:
    if groups is None:
        return ()
    parts = [part.strip() for part in re.split(r",(?![^(]*\))", groups)]
    plain = [part for part in parts if not part.endswith(")")]
    known = iter(parse_groups(", ".join(plain), schema) if plain else ())
    made = [_banded(part, schema) if part.endswith(")") else Axis(next(known).column.name) for part in parts]
    if len({axis.column for axis in made}) < len(made):
        raise ExpressionRefused("a column to group by that comes twice", "Write it once.")
    return tuple(made)


def _banded(part: str, schema: Schema) -> Axis:
    """Read a number with where its cells begin."""
    name, _, inside = part.removesuffix(")").partition("(")
    column = parse(name, schema).bare
    try:
        edges = tuple(float(edge) for edge in inside.split(","))
    except ValueError:
        edges = ()
    if column is None or not edges or list(edges) != sorted(set(edges)):
        raise ExpressionRefused(
            "cells that are not a column of numbers and rising numbers",
            "Write where cells begin: BY age (30, 45, 60).",
        )
    return Axis(column, edges)


def _written(axis: Axis) -> str:
    return f"{axis.column} ({', '.join(f'{edge:g}' for edge in axis.edges)})" if axis.edges else axis.column


def _bare(text: str) -> str:
    """Leave out parentheses around the whole."""
    if not text.startswith("("):
        return text
    depth = 0
    for match in _PIECES.finditer(text):
        depth += (match[0] == "(") - (match[0] == ")")
        if depth == 0:
            return text[1:-1] if match.end() == len(text) else text
    return text
