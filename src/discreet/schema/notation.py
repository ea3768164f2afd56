"""Notation of declarations in messages: the names and lines of Python, and those of a schema file.

The checks of a declaration are the same for both; a message uses the notation in which the mistake was
made, and gives a line to paste in its place.
"""

from __future__ import annotations

import datetime
import json
import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

UNFILLED = "???"
"""Mark in a draft for a value that only a person can fill in."""

TIME_OF_DAY = "Days are published, and the time of day is not read; type: datetime reads it, to the minute."
"""What happens to dates that have a time."""


class Blank(str):
    """Placeholder in a suggested line for a value that only a person knows: ``<smallest possible>``."""

    __slots__ = ()


@dataclass(frozen=True)
class Notation:
    """Names of parameters in messages, and the form of a line that sets them.

    Parameters
    ----------
    names : dict of str to str
        Key of each parameter of ``Column`` or ``Schema`` that differs from its name; a dot separates a
        block from the key in it.
    python : bool
        Whether lines are calls in Python; otherwise they are pairs in a file.
    """

    names: dict[str, str]
    python: bool

    def __getitem__(self, parameter: str) -> str:
        return self.names.get(parameter, parameter)

    def column(self, name: object, **settings: object) -> str:
        """Return the line that sets these parameters of a column."""
        return self._format_line(f"Column({name!r}, ", settings)

    def other_column(self, name: object, **settings: object) -> str:
        """Return the line of :meth:`column` for a sentence that is not about that column."""
        return self.column(name, **settings) + ("" if self.python else f" at column {name!r}")

    def table(self, **settings: object) -> str:
        """Return the line that sets these parameters of the table."""
        return self._format_line("Schema(columns=[...], ", settings)

    def dialect(self, parameter: str) -> str:
        """Return the name of a parameter of a :class:`~discreet.schema.dialect.Dialect`."""
        return parameter if self.python else f"dialect.{_DIALECT_KEYS.get(parameter, parameter)}"

    def dialect_line(self, parameter: str, value: object) -> str:
        """Return the line that sets a parameter of a dialect."""
        if self.python:
            return f"Dialect({parameter}={_literal(value)})"
        shown = f"[{value}]" if parameter == "header_row" else _flow_text(value)
        return f"dialect: {{{_DIALECT_KEYS.get(parameter, parameter)}: {shown}}}"

    def text(self, parameter: str) -> str:
        """Return the name of a parameter of a :class:`~discreet.schema.dialect.TextFormat`."""
        return parameter if self.python else TEXT_KEYS[parameter]

    def _format_line(self, opening: str, settings: dict[str, object]) -> str:
        """Return a Python call, or pairs for a file grouped by their block."""
        if self.python:
            pairs = (f"{key}={_literal(value)}" for key, value in settings.items())
            return f"{opening}{', '.join(pairs)})"
        blocks: dict[str, list[str]] = {}
        for parameter, value in settings.items():
            block, _, key = self[parameter].rpartition(".")
            blocks.setdefault(block, []).append(f"{key}: {_flow_text(value)}")
        return ", ".join(
            f"{block}: {{{', '.join(pairs)}}}" if block else ", ".join(pairs)
            for block, pairs in blocks.items()
        )


_DIALECT_KEYS = {
    "decimal_char": "decimalChar",
    "group_char": "groupChar",
    "header_row": "headerRows",
    "skip_blank_rows": "skipBlankRows",
}
TEXT_KEYS = {
    "date_format": "format",
    "decimal_char": "decimalChar",
    "group_char": "groupChar",
    "true_values": "trueValues",
    "false_values": "falseValues",
    "units": "units",
    "censored": "censored",
}
"""Key of a field for each parameter of a :class:`~discreet.schema.dialect.TextFormat`."""
PYTHON = Notation(names={}, python=True)
FILE = Notation(
    names={
        "lower": "constraints.minimum",
        "upper": "constraints.maximum",
        "values": "constraints.enum",
        "required": "constraints.required",
        "missing_values": "missingValues",
        "primary_key": "primaryKey",
        "role": "privacy.role",
        "closed": "privacy.closed",
        "measure": "privacy.measure",
        "protect": "privacy.protect",
        "bounds_source": "privacy.bounds_source",
        "grid": "privacy.grid",
        "cells": "privacy.cells",
        "step": "privacy.step",
        "scale": "privacy.scale",
        "dataset": "privacy.dataset",
        "unit": "privacy.unit",
        "id_column": "privacy.id_column",
        "max_rows_per_unit": "privacy.max_rows_per_unit",
        "neighbors": "privacy.neighbors",
        "row_count": "privacy.row_count",
    },
    python=False,
)


def quote_value(value: object) -> str:
    """Return a declared value as text for a message: at most 60 characters, dates in ISO 8601."""
    text = value.isoformat() if isinstance(value, datetime.date) else repr(drop_zero_fraction(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def drop_zero_fraction(value: object) -> object:
    """Return 5 for 5.0: a message quotes what was declared, and few people declare 5.0."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if isinstance(value, float) and whole else value


def _literal(value: object) -> str:
    """Return a value as it is written in Python."""
    if isinstance(value, Blank):
        return str(value)
    if isinstance(value, dict):
        return f"Protect({', '.join(f'{key}={_literal(item)}' for key, item in value.items())})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, datetime.datetime):
        return repr(value).removeprefix("datetime.")
    if isinstance(value, datetime.date):
        return f"date({value.year}, {value.month}, {value.day})"
    return repr(drop_zero_fraction(value))


def _flow_text(value: object) -> str:
    """Return a value in YAML's flow style."""
    if isinstance(value, Blank):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow_text(item)}' for key, item in value.items())}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(str(v) if isinstance(v, Blank) else _quote(v) for v in value)}]"
    if isinstance(value, datetime.date):
        return value.isoformat()
    # Words that some YAML parser reads as a truth value or as null are quoted.
    if isinstance(value, str) and re.fullmatch(
        r"(?!(?i:true|false|null|yes|no|on|off|y|n)$)[a-z][\w-]*", value
    ):
        return value
    return _quote(value)


def _quote(value: object) -> str:
    return json.dumps(drop_zero_fraction(value), ensure_ascii=False)


def text_problems(text: Any, key: str, notation: Notation) -> Iterator[str]:
    """Yield the problem of a text for people that is empty, unfilled or not printable."""
    if text is None:
        return
    if not isinstance(text, str) or not text.strip():
        yield f"{notation[key]} must be a string with letters in it, was {quote_value(text)}. Leave it out."
    elif text == UNFILLED:
        yield f"{notation[key]} must be filled in, and is {UNFILLED}, which marks what a draft leaves open."
    elif has_control_characters(text.replace("\n", "")):
        yield f"{notation[key]} must be without control characters. Retype it."


def has_control_characters(text: str) -> bool:
    """Return whether a text has characters that its readers cannot see."""
    return any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in text)
