"""Forms of queries and models: parsed from the body of a POST, turned into the body of a request."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from discreet.errors import ExpressionRefused, ParameterError
from discreet.formatting import currency_symbol
from discreet.noise import Stream
from discreet.query.intervals import interval_width
from discreet.query.language import parse
from discreet.query.language.lexer import write_name
from discreet.query.language.query import build_query
from discreet.query.language.writing import write_expression

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.query.language import GroupKey
    from discreet.query.language.query import Query
    from discreet.schema import Column, Schema
    from discreet.server.errors import ApiError

VERBS = ("count", "sum", "mean", "median", "stddev")
"""Statistics that the form offers; all others are written as SQL."""
MODELS = {
    "classifier": "classifier",
    "id3": "decision tree (ID3)",
    "perceptron": "perceptron",
    "pca": "principal components",
    "kmeans": "clusters (k-means)",
}
"""Models that a service trains, with their names on pages."""
_PREDICTING = ("classifier", "id3", "perceptron")
PROMISES = {"epsilon": ("pure-dp", "epsilon"), "rho": ("zcdp", "rho"), "mu": ("gaussian-dp", "mu")}
_KEY = re.compile(r"[0-9a-f]{32}")
_WITH_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")
_MAX_FIELDS = 100
_MAX_LENGTH = 20_000  # characters of one field; the query language has a lower limit of its own


@dataclass(frozen=True, slots=True)
class FieldMessage:
    """Message and hint about a wrong field of a form."""

    message: str
    hint: str


NO_MARGIN = FieldMessage(
    "A margin of error can be chosen for one count or one sum only: others depend on the number of rows.",
    "Choose the price instead.",
)
"""Message about a margin that is requested of anything but one count or sum."""


def field_message(problem: ApiError, inputs: Mapping[str, str]) -> tuple[str, FieldMessage]:
    """Return the input of a form that an error is about, "form" if none, and the error in its words.

    Parameters
    ----------
    problem : ApiError
        Error response to the request that the form makes.
    inputs : mapping of str to str
        Names of inputs by the fields of the request.
    """
    for one in problem.details.get("problems", ()):
        name = str(one["field"]).partition(".")[0]
        if name in inputs:
            # Beside its input it needs neither its name in a request nor a link to the reference.
            text = str(one["message"])
            return inputs[name], FieldMessage(f"{text[:1].upper()}{text[1:]}.", "")
    return "form", FieldMessage(problem.message, problem.hint)


class FieldError(Exception):
    """A field of a form that cannot be read.

    Attributes
    ----------
    field : str
        Name of the field in the form.
    message, hint : str
        Sentence that says what is wrong, and the nearest valid value.
    """

    def __init__(self, field: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.field, self.message, self.hint = field, message, hint


@dataclass(frozen=True, slots=True, kw_only=True)
class AskForm:
    """The fields of the form, as text.

    Attributes
    ----------
    source : {"sentence", "sql"}
        Which input counts: the single fields, or the query text in ``sql``.
    verb : {"count", "sum", "mean"}
        Aggregate function of the query.
    of, where : str
        Aggregated expression and condition; empty for none.
    by1, by2, edges1, edges2 : str
        Columns of the groups, and the lower edges of the cells of numbers.
    sql : str
        The whole query as SQL or as a sentence.
    exact : {"margin", "epsilon", "rho", "mu"}
        Quantity that ``amount`` gives: half-width of the 95 % interval, or a cost.
    amount : str
        Margin or cost of the answer, as a number above 0.
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
        """Return a form with the given fields, and those of the default for the rest."""
        names = [item.name for item in fields(cls)]
        present = {name: values[name][:_MAX_LENGTH].replace("\0", "") for name in names if name in values}
        return replace(default or cls(), **present)

    @classmethod
    def from_query(cls, query: Query, default: AskForm) -> AskForm:
        """Return a form that shows a parsed query, both in single fields and as SQL."""
        axes = [(key.column or "", key.edge_text(query.schema)) for key in query.by]
        first, second = (*axes, ("", ""), ("", ""))[:2]
        statistic = query.statistics[0]
        verb = "median" if statistic.level == 0.5 else statistic.kind
        plain = len(query.statistics) == 1 and verb in VERBS and not query.order and not query.limit
        if not plain or len(axes) > 2 or not all(_has_fields(key, query.schema) for key in query.by):
            return replace(default, source="sql", sql=query.sql)
        return replace(
            default,
            verb=verb,
            of="" if statistic.expression is None else write_expression(statistic.expression),
            where="" if query.where is None else write_expression(query.where),
            by1=first[0],
            edges1=first[1],
            by2=second[0],
            edges2=second[1],
            sql=query.sql,
        )

    def with_price(self, price: Mapping[str, Any]) -> AskForm:
        """Return the form with the exactness of a request, given by its ``privacy`` or ``sd``."""
        exact, amount = _form_exactness(price)
        return replace(self, exact=exact, amount=amount)

    def request(self, schema: Schema) -> dict[str, Any]:
        """Return the request body for the query in the form.

        Raises
        ------
        FieldError
            A field cannot be read; the first such field is named.
        """
        return {**self._question(schema), **self._exactness()}

    def _question(self, schema: Schema) -> dict[str, Any]:
        """Return the part of the request that says what is computed."""
        if self.source == "sql":
            if not self.sql.strip():
                raise FieldError("sql", "Enter a question.", "Such as SELECT COUNT(*) FROM t.")
            return {"kind": "sentence", "text": self.sql}
        if self.verb not in VERBS:
            raise FieldError("verb", "Choose what to compute.", "Such as how many rows.")
        request: dict[str, Any] = {"kind": self.verb}
        if self.verb != "count":
            if not self.of.strip():
                numbers = [write_name(column.name) for column in schema.released if column.is_number]
                such = f"Such as {numbers[0]}." if numbers else ""
                raise FieldError("of", "Choose a column, or enter an expression.", such)
            _check("of", self.of, schema, f"{self.verb}({self.of})")
            request["expression"] = self.of
        if self.where.strip():
            _check("where", self.where, schema, "count")
            request["where"] = self.where
        groups = [_group(k, schema, *pair) for k, pair in enumerate(self._groups(), start=1) if pair[0]]
        if groups:
            request["by"] = groups
        if self.verb in ("count", "sum", "mean"):
            return request
        query = build_query(f"{self.verb}({self.of})", request.get("where"), groups, schema)
        return {"kind": "sentence", "text": str(query)}

    def _groups(self) -> tuple[tuple[str, str], tuple[str, str]]:
        return (self.by1, self.edges1), (self.by2, self.edges2)

    def _exactness(self) -> dict[str, Any]:
        """Return the part of the request that says how exact the answer is, as sd or as a promise."""
        amount = _positive_number(self.amount)
        if self.exact == "margin":
            if self.source == "sentence" and self.verb not in ("count", "sum"):
                raise FieldError("amount", NO_MARGIN.message, NO_MARGIN.hint)
            return {"sd": amount / interval_width("gaussian")}
        return {"privacy": _promise(self.exact, amount)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelForm:
    """The fields of the form that trains a model, as text.

    Attributes
    ----------
    model : str
        Kind of the model, as a request names it.
    target : str
        Column that the model predicts; ignored by models that predict none.
    options : str
        Parameters of the model as ``name = value``, one per line or separated by semicolons.
    exact : {"epsilon", "rho", "mu"}
        Quantity that ``amount`` gives.
    amount : str
        Cost of the model, as a number above 0.
    """

    model: str = "classifier"
    target: str = ""
    options: str = ""
    exact: str = "rho"
    amount: str = ""

    @classmethod
    def from_fields(cls, values: Mapping[str, str], default: ModelForm) -> ModelForm:
        """Return a form with the given fields, and those of the default for the rest."""
        names = [item.name for item in fields(cls)]
        return replace(default, **{name: values[name][:_MAX_LENGTH] for name in names if name in values})

    def request(self) -> dict[str, Any]:
        """Return the request body for the model in the form.

        Raises
        ------
        FieldError
            A field cannot be read; the first such field is named.
        """
        if self.model not in MODELS:
            raise FieldError("model", "Choose a model from the list.", "Such as classifier.")
        request = {
            "kind": self.model,
            "privacy": _promise(self.exact, _positive_number(self.amount)),
            "parameters": self._parameters(),
        }
        return request | ({"target": self.target} if self.model in _PREDICTING and self.target else {})

    def _parameters(self) -> dict[str, Any]:
        """Return the options as parameters; a value that is no JSON is a text."""
        parameters = {}
        for part in self.options.replace("\n", ";").split(";"):
            name, mark, value = (text.strip() for text in part.partition("="))
            if not part.strip():
                continue
            if not (name and mark and value):
                raise FieldError(
                    "options", "Write each parameter as name = value.", "Such as n_clusters = 4."
                )
            try:
                parameters[name] = json.loads(value)
            except ValueError:
                parameters[name] = value
        return parameters


def _positive_number(text: str) -> float:
    """Return the number in the field of an amount, or refuse it."""
    try:
        typed = text.strip()
        # Other commas are those of people who write 0,01: read without it, that would be 1.
        amount = float(typed.replace(",", "") if _WITH_THOUSANDS.fullmatch(typed) else typed)
    except ValueError:
        amount = float("nan")
    if not 0 < amount < float("inf"):
        raise FieldError("amount", "Give a number above 0.", "With a decimal point, such as 0.01.")
    return amount


def _promise(currency: str, amount: float) -> dict[str, Any]:
    """Return the promise of a request that costs an amount of a currency."""
    if currency not in PROMISES:
        raise FieldError("amount", "Choose what the number means.", "A price, or a margin of error.")
    kind, name = PROMISES[currency]
    return {"kind": kind, name: amount}


def _form_exactness(price: Mapping[str, Any]) -> tuple[str, str]:
    """Return what the fields of a form say about the exactness of a request, so that they give it again."""
    if "sd" in price:
        width = interval_width("gaussian")
        margin = price["sd"] * width
        texts = [f"{margin:.{digits}g}" for digits in range(1, 18)]
        # The shortest that gives the same noise: another one would be another question, and paid for anew.
        return "margin", next((text for text in texts if float(text) / width == price["sd"]), texts[-1])
    privacy = price["privacy"]
    ((exact, name),) = [(exact, name) for exact, (kind, name) in PROMISES.items() if kind == privacy["kind"]]
    return exact, repr(privacy[name])


def format_exactness(price: Mapping[str, Any]) -> str:
    """Return the exactness of a request as text: a margin of error, or a price."""
    exact, amount = _form_exactness(price)
    if exact == "margin":
        return f"\u00b1\u00a0{float(amount):.4g} (95 %)"
    return f"{currency_symbol(exact)} = {float(amount):g}"


def new_key() -> str:
    """Return a random key for a form, by which it is recognized when it is sent twice."""
    return Stream().words(2).tobytes().hex()


def request_key(sent: str, request: Mapping[str, Any]) -> str:
    """Return an idempotency key, the same for a form that is sent twice and another for a changed form."""
    page_key = sent if _KEY.fullmatch(sent) else new_key()
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest()
    return f"page-{page_key}-{digest[:32]}"


def parse_form(body: bytes) -> dict[str, str]:
    """Return the fields of a URL-encoded form; the last value of a repeated field counts."""
    try:
        return dict(
            parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        )
    except ValueError:
        raise ParameterError(
            f"A form must have at most {_MAX_FIELDS} fields, and has more. Send one of our own."
        ) from None


def _check(field: str, text: str, schema: Schema, verb: str) -> None:
    """Refuse an expression that cannot be parsed, naming its field, before all become one query."""
    try:
        is_condition = parse(text, schema).is_condition
        if field == "where" and not is_condition:
            raise FieldError(field, "This is not a condition.", "Compare it with something: age > 40.")
        build_query(verb, text if field == "where" else None, [], schema)
    except ExpressionRefused as error:
        raise FieldError(field, error.problem, error.hint) from None


def _has_fields(key: GroupKey, schema: Schema) -> bool:
    """Return whether the form has fields for a key: it groups numbers by intervals alone."""
    return key.column is not None and (bool(key.edges) or not schema.column(key.column).is_number)


def _group(k: int, schema: Schema, column: str, edges: str) -> str | dict[str, Any]:
    """Return the k-th group of the request: a column, or a column of numbers with its edges."""
    if column not in schema:
        raise FieldError(f"by{k}", "The table has no such column.", "Choose one from the list.")
    declared = schema.column(column)
    if not declared.is_number:
        return column
    try:
        starts = [_edge(start, declared) for start in edges.replace(";", ",").split(",") if start.strip()]
        name = '"{}"'.format(column.replace('"', '""'))  # in quotes it is no word of the language
        (key,) = build_query("count", None, f"{name} ({', '.join(starts)})", schema).by
    except (ExpressionRefused, ValueError):
        problem = "Enter where the intervals begin, in increasing order."
        raise FieldError(f"edges{k}", problem, _edges_example(declared)) from None
    return {"column": column, "edges": list(key.edges)}


def _edge(start: str, column: Column) -> str:
    """Return where an interval begins as the language writes it; a ValueError if it is no number or date."""
    if not column.is_calendar:
        return repr(float(start))
    text = start.strip().strip("'")
    datetime.fromisoformat(text)
    return f"'{text}'"


def _edges_example(column: Column) -> str:
    """Return starts of intervals in the form that a column takes."""
    return f"{column.lower}" if column.is_calendar else "30, 45, 60"
