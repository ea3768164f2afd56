"""Rules of a schema file: defaults for all columns and patterns for many, expanded into fields.

A file may say once what holds for many columns::

    defaults: {privacy: {bounds_source: codebook of 2024}}
    patterns:
      - match: "q*"
        constraints: {minimum: 1, maximum: 5}
    fields: [{name: age, type: integer}, {name: q1, type: integer}]

A field's own keys are stronger than those of patterns, a later pattern is stronger than an earlier one, and
all are stronger than the defaults, key by key. The expanded fields are what is checked and published, so that
no reader of a published schema needs the rules.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from discreet.arguments import nearest
from discreet.schema.notation import UNFILLED, quote_value

_BLOCKS = ("constraints", "privacy")
_BOUNDS = ("constraints.minimum", "constraints.maximum", "privacy.grid", "privacy.cells", "privacy.scale")
_LIST = ("constraints.enum", "privacy.closed")
_EXCLUDED = {
    **dict.fromkeys(_BOUNDS, _LIST),
    "constraints.enum": _BOUNDS,
    "privacy.cells": (*_LIST, "privacy.scale"),
    "privacy.scale": (*_LIST, "privacy.cells"),
}
"""For a key, those that a column cannot have beside it: the stronger rule says which it has."""
_OF_TYPES = {
    **dict.fromkeys(_BOUNDS, ("number", "integer", "date", "datetime")),
    "privacy.step": ("datetime",),
    **dict.fromkeys(("decimalChar", "groupChar", "units", "censored"), ("number", "integer")),
    **dict.fromkeys(("trueValues", "falseValues"), ("boolean",)),
    "constraints.enum": ("string", "integer"),
    "format": ("date", "datetime"),
}
"""Keys that only columns of some types can have."""
_OF_UNPUBLISHED = ("type", "title", "description", "privacy.role")
PROPOSED = "proposed by name"
"""Mark in ``bounds_source`` of a range that a draft took from the name of a column, until it is confirmed."""
CONFIRMED = f"{PROPOSED}, confirmed by the curator"

Settings = dict[str, Any]
"""Keys of a field with the names of their blocks, such as ``constraints.minimum``, and their values."""


@dataclass(frozen=True)
class Rule:
    """What a schema file says about many columns at once.

    Attributes
    ----------
    where : str
        Name of the rule in messages.
    match : tuple of str or None
        Patterns of names, of which a column has to fit one; None for all columns.
    settings : dict
        Keys and values for these columns.
    is_open : bool
        Whether something in the rule is still to be filled in or is wrong, and has been reported.
    """

    where: str
    match: tuple[str, ...] | None
    settings: Settings
    is_open: bool = False

    def applies_to(self, name: str) -> bool:
        """Return whether a column of this name follows the rule; upper and lower case differ."""
        return self.match is None or any(fnmatch.fnmatchcase(name, pattern) for pattern in self.match)


def read_match(pattern: Any, position: int, problems: list[str]) -> tuple[str, ...] | None:
    """Return the patterns of names of a rule; None, and a problem, if they are not texts."""
    match = pattern.get("match") if isinstance(pattern, Mapping) else None
    texts = [match] if isinstance(match, str) else match
    if isinstance(texts, list) and texts and all(isinstance(text, str) and text for text in texts):
        return tuple(texts)
    was = "was left out" if match is None else f"was {quote_value(match)}"
    problems.append(
        f"Pattern {position}: match must be a pattern of column names, or a list of them, and {was}. "
        'Write match: "q*" for all columns whose names begin with q.'
    )
    return None


def has_blocks(field: object) -> bool:
    """Return whether a field, or a rule, holds keys and values, and so does each of its blocks."""
    return isinstance(field, Mapping) and all(
        isinstance(field.get(block) or {}, Mapping) for block in _BLOCKS
    )


def flatten(field: Mapping[str, Any]) -> Settings:
    """Return the keys of a field with the names of their blocks; an empty block has none."""
    settings: Settings = {}
    for key, value in field.items():
        if key in _BLOCKS:
            settings.update({f"{key}.{inner}": setting for inner, setting in (value or {}).items()})
        else:
            settings[key] = value
    return settings


def nest(settings: Settings) -> dict[str, Any]:
    """Return a field from its flat keys; the inverse of :func:`flatten`."""
    field: dict[str, Any] = {}
    for key, value in settings.items():
        block, dot, inner = key.partition(".")
        if dot:
            field.setdefault(block, {})[inner] = value
        else:
            field[key] = value
    return field


def check_matches(rules: list[Rule], names: list[str]) -> Iterator[str]:
    """Yield a problem for every pattern that fits no column: it is misspelled, or the column is gone."""
    for rule in rules:
        for pattern in rule.match or ():
            if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
                close = nearest(pattern.strip("*"), names)
                hint = f" Did you mean {close!r}?" if close else ""
                yield (
                    f"{rule.where}: match must fit the name of a field, and {quote_value(pattern)} fits none."
                    f"{hint} Correct it, or leave it out."
                )


def expand(field: Mapping[str, Any], rules: list[Rule]) -> dict[str, Any]:
    """Return a field with the keys that rules give it, weakest rule first.

    A rule gives a key only to columns that can have it: bounds to numbers and dates, a list to strings and
    integers, neither to columns that are not published.
    """
    if not has_blocks(field):
        return dict(field)  # for the checks to report
    own = flatten(field)
    # What a draft left open is no choice of the field's own.
    filled = {key: value for key, value in own.items() if value != UNFILLED}
    merged: Settings = {}
    for settings in (*(rule.settings for rule in rules if rule.applies_to(str(field["name"]))), filled):
        excluded = {other for key in settings for other in _EXCLUDED.get(key, ()) if other not in settings}
        merged = {key: value for key, value in merged.items() if key not in excluded} | settings
    excluded = {other for key in merged for other in _EXCLUDED.get(key, ())}
    is_open = {key: UNFILLED for key in own if key not in merged and key not in excluded}
    kept = {key: value for key, value in (merged | is_open).items() if key in filled or _fits(key, merged)}
    return nest({key: kept[key] for key in dict.fromkeys((*own, *kept)) if key in kept})


def _fits(key: str, settings: Settings) -> bool:
    """Return whether a column with these settings can have a key that a rule gives it."""
    if settings.get("privacy.role") in ("id", "drop"):
        return key in _OF_UNPUBLISHED
    kind = settings.get("type")
    if key in _OF_TYPES:
        return kind in _OF_TYPES[key]
    if key == "privacy.closed":
        return "constraints.enum" in settings
    return key != "privacy.protect" or settings.get("privacy.role") != "public"
