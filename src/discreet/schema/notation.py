"""How a declaration is spelled: Python's words and lines, and those of a schema file.

The rules that judge a declaration are the same for both; whoever made the mistake should read of it
in the words that were used, and be given a line to paste where the mistake stands.
"""

from __future__ import annotations

import datetime
import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

UNFILLED = "???"
"""What a draft holds in every place that only a person can fill."""


class Blank(str):
    """A place in a suggested line that only a person can fill: ``<smallest possible>``."""

    __slots__ = ()


@dataclass(frozen=True)
class Notation:
    """What parameters are called, and how a line that sets them is written.

    Parameters
    ----------
    names : dict of str to str
        Where a parameter of ``Column`` or ``Schema`` stands, if not under its own name; a dot
        separates a block from the key in it.
    python : bool
        Whether lines are calls in Python or pairs in a file.
    """

    names: dict[str, str]
    python: bool

    def __getitem__(self, parameter: str) -> str:
        return self.names.get(parameter, parameter)

    def column(self, name: object, **settings: object) -> str:
        """Return the line that gives a column these settings."""
        return self._call(f"Column({name!r}, ", settings)

    def other_column(self, name: object, **settings: object) -> str:
        """Return the same line for a sentence that is not about that column."""
        return self.column(name, **settings) + ("" if self.python else f" at column {name!r}")

    def table(self, **settings: object) -> str:
        """Return the line that gives the table these settings."""
        return self._call("Schema(columns=[...], ", settings)

    def _call(self, opening: str, settings: dict[str, object]) -> str:
        if self.python:
            pairs = (f"{key}={_literal(value)}" for key, value in settings.items())
            return f"{opening}{', '.join(pairs)})"
        blocks: dict[str, list[str]] = {}
        for parameter, value in settings.items():
            block, _, key = self[parameter].rpartition(".")
            blocks.setdefault(block, []).append(f"{key}: {_flow(value)}")
        return ", ".join(
            f"{block}: {{{', '.join(pairs)}}}" if block else ", ".join(pairs)
            for block, pairs in blocks.items()
        )


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
        "dataset": "privacy.dataset",
        "unit": "privacy.unit",
        "id_column": "privacy.id_column",
        "max_rows_per_unit": "privacy.max_rows_per_unit",
        "neighbors": "privacy.neighbors",
        "row_count": "privacy.row_count",
    },
    python=False,
)


def nearest(name: object, choices: Iterable[str]) -> str | None:
    """Return the choice that is spelled most like ``name``, or None if none comes close."""
    by_folded = {choice.casefold(): choice for choice in choices}
    close = difflib.get_close_matches(str(name).casefold(), by_folded, n=1)
    return by_folded[close[0]] if close else None


def shown(value: object) -> str:
    """Return a declared value as a message quotes it: short, and dates as people write them."""
    text = value.isoformat() if isinstance(value, datetime.date) else repr(_short(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def _short(value: object) -> object:
    """Write 5.0 as 5: a message quotes what was declared, and few people declare 5.0."""
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 2**53
    return int(value) if isinstance(value, float) and whole else value


def _literal(value: object) -> str:
    if isinstance(value, Blank):
        return str(value)
    if isinstance(value, dict):
        return f"Protect({', '.join(f'{key}={_literal(item)}' for key, item in value.items())})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' if len(value) == 1 else ''})"
    if isinstance(value, datetime.date):
        return f"date({value.year}, {value.month}, {value.day})"
    return repr(_short(value))


def _flow(value: object) -> str:
    if isinstance(value, Blank):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, tuple):
        return f"[{', '.join(str(v) if isinstance(v, Blank) else _quoted(v) for v in value)}]"
    if isinstance(value, datetime.date):
        return value.isoformat()
    # Words that some reader of YAML takes for a truth value or for nothing are quoted.
    if isinstance(value, str) and re.fullmatch(
        r"(?!(?i:true|false|null|yes|no|on|off|y|n)$)[a-z][\w-]*", value
    ):
        return value
    return _quoted(value)


def _quoted(value: object) -> str:
    return json.dumps(_short(value), ensure_ascii=False)
