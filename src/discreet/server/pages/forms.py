"""The form of a question: what a browser sends, and the request it stands for.

A form is a value that goes to and fro: out of a posted body or an earlier question, into the page's fields,
and into the one request that the service knows.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from discreet.errors import ExpressionRefused, ParameterError
from discreet.query.language import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.query.language import Expression
    from discreet.query.language.query import Query
    from discreet.schema import Schema

GAUSSIAN_WIDTH = 1.959963984540054  # standard deviations that a margin at 95 % has
PROMISES = {"epsilon": ("pure-dp", "epsilon"), "rho": ("zcdp", "rho"), "mu": ("gaussian-dp", "mu")}
_FIELDS = 100
_MOST = 20_000  # characters of one field; the language has its own limit, and says so


class FieldError(Exception):
    """One field of a form cannot be read.

    Attributes
    ----------
    field : str
        Its name.
    message, hint : str
        What is wrong with it, and the nearest thing that is right.
    """

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.field, self.message, self.hint = field, message, hint


@dataclass(frozen=True, slots=True, kw_only=True)
class AskForm:
    """What stands in the fields.

    Attributes
    ----------
    source : {"sentence", "sql"}
        Which of the two ways of writing counts.
    verb : {"count", "sum", "mean"}
        What is computed.
    of, where : str
        Expression and condition; empty for none.
    by1, by2, edges1, edges2 : str
        Columns of the groups, and where cells of numbers begin.
    sql : str
        The same as SQL, or as a sentence.
    exact : {"margin", "epsilon", "rho", "mu"}
        What ``amount`` is.
    amount : str
        How far the answer may be off, or what it may cost.
    """

    source: str = "sentence"
    verb: str = "count"
    of: str = ""
    where: str = ""
    by1: str = ""
    edges1: str = ""
    by2: str = ""
    edges2: str = ""
    sql: str = ""
    exact: str = "rho"
    amount: str = ""

    @classmethod
    def from_fields(cls, values: Mapping[str, str], default: AskForm | None = None) -> AskForm:
        """Take the fields that are there; the rest are the default's."""
        names = [item.name for item in fields(cls)]
        given = {name: values[name][:_MOST].replace("\0", "") for name in names if name in values}
        return replace(default or cls(), **given)

    @classmethod
    def from_query(cls, asked: Query, default: AskForm) -> AskForm:
        """Put a question that was read into the fields, both as its parts and as SQL."""
        axes = [(axis.column, ", ".join(f"{edge:g}" for edge in axis.edges)) for axis in asked.by]
        first, second = (*axes, ("", ""), ("", ""))[:2]
        return replace(
            default,
            verb=asked.verb,
            of="" if asked.expression is None else _bare(asked.expression, asked.schema),
            where="" if asked.where is None else _bare(asked.where, asked.schema),
            by1=first[0],
            edges1=first[1],
            by2=second[0],
            edges2=second[1],
            sql=asked.sql,
        )

    def request(self, schema: Schema) -> dict[str, Any]:
        """Return the request that the form stands for.

        Raises
        ------
        FieldError
            Naming the first field that cannot be read.
        """
        return {**self._question(schema), **self._exactness()}

    def _question(self, schema: Schema) -> dict[str, Any]:
        if self.source == "sql":
            if not self.sql.strip():
                raise FieldError("sql", "There is no question yet.", "SELECT COUNT(*) FROM t")
            return {"kind": "sentence", "text": self.sql}
        if self.verb not in ("count", "sum", "mean"):
            raise FieldError("verb", "Choose what to compute.", "How many rows")
        asked: dict[str, Any] = {"kind": self.verb}
        if self.verb != "count":
            if not self.of.strip():
                numbers = [column.name for column in schema.columns if column.is_number and column.leaves]
                raise FieldError("of", "Say of what.", numbers[0] if numbers else "")
            _check("of", self.of, schema)
            asked["expression"] = self.of
        if self.where.strip():
            _check("where", self.where, schema)
            asked["where"] = self.where
        groups = [_group(k, schema, *pair) for k, pair in enumerate(self._groups(), start=1) if pair[0]]
        if groups:
            asked["by"] = groups
        return asked

    def _groups(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.by1, self.edges1), (self.by2, self.edges2)

    def _exactness(self) -> dict[str, Any]:
        try:
            amount = float(self.amount.strip().replace(",", ""))
        except ValueError:
            amount = float("nan")
        if not 0 < amount < float("inf"):
            raise FieldError("amount", "Give a number above 0.", "0.01")
        if self.exact == "margin":
            if self.source == "sentence" and self.verb == "mean":
                raise FieldError(
                    "amount", "How noisy an average is depends on how many rows it has.", "Choose its price."
                )
            return {"sd": amount / GAUSSIAN_WIDTH}
        if self.exact not in PROMISES:
            raise FieldError("amount", "Choose what the number is.", "the price, or how far off")
        kind, name = PROMISES[self.exact]
        return {"privacy": {"kind": kind, name: amount}}


def parse_form(body: bytes) -> dict[str, str]:
    """Read a form as browsers send it; of a field that comes twice, the last counts."""
    try:
        return dict(
            parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_FIELDS)
        )
    except ValueError:
        raise ParameterError(
            f"A form must have at most {_FIELDS} fields, and has more. Send one of our own."
        ) from None


def _check(field: str, text: str, schema: Schema) -> None:
    """Find out which field a refusal belongs to, before all of them become one question."""
    try:
        read = parse(text, schema)
    except ExpressionRefused as refused:
        raise FieldError(field, f"The language has no place for {refused.construct}.", refused.hint) from None
    if field == "where" and not read.is_condition:
        raise FieldError(field, "This is no condition.", "Compare it with something: age > 40.")


def _group(k: int, schema: Schema, column: str, edges: str) -> str | dict[str, Any]:
    if column not in schema:
        raise FieldError(f"by{k}", "This is no column of the table.", "Choose one of the list.")
    if not schema.column(column).is_number:
        return column
    try:
        cells = [float(edge) for edge in edges.replace(";", ",").split(",") if edge.strip()]
    except ValueError:
        cells = []
    if not cells or cells != sorted(set(cells)):
        raise FieldError(f"edges{k}", "Say where the cells begin, in rising numbers.", "30, 45, 60")
    return {"column": column, "edges": cells}


def _bare(read: Expression, schema: Schema) -> str:
    """Write an expression without parentheses around the whole, where it is the same without them."""
    inside = read.canonical.removeprefix("(").removesuffix(")")
    try:
        same = parse(inside, schema).canonical == read.canonical
    except ExpressionRefused:
        same = False
    return inside if same else read.canonical
