"""Drafts of schema files: what names, types and a codebook tell, and a mark wherever a person must decide."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.schema._document_shape import dialect_document, draft_keys
from discreet.schema.column_checks import NUMBERS
from discreet.schema.name_hints import guess_range, guess_role
from discreet.schema.notation import UNFILLED
from discreet.schema.rules import PROPOSED, Rule
from discreet.schema.serialization import write_flow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet.schema.dialect import Dialect, FieldDraft

_TYPES = ("number", "integer", "date", "datetime", "string", "boolean")
_LEAST_GROUP = 3  # columns of one stem, such as q1, q2, q3, for which a pattern is written
_WIDEST = 100  # characters of a line with a whole field
_OPENING = """\
# A draft. Replace every ??? by what you know from a codebook, a law or an instrument, never by what
# you see in the rows: this file is published. Names and types are all that was read from the table.
"""
_HEAD_NOTES = {
    "dataset": "a lasting name, the same for every version of this table: survey-2024",
    "unit": "whom a promise protects",
    "id_column": "which rows belong to one person",
    "max_rows_per_unit": "how many rows of one person are used: 1 if each has one",
    "neighbors": "or add-remove",
    "row_count": "or private",
}
_SEVERAL_ROWS = """\
  # If one person has several rows, say which column tells them and how many rows of one to use:
  # id_column: person_id
  # max_rows_per_unit: 5
"""
_NOTES = {
    "minimum": "the smallest value that anybody may have, or the earliest day",
    "maximum": "the largest, or the latest",
    "enum": 'everything it may hold, ["one", "two"]; free text cannot be protected: role: drop',
    "bounds_source": "who says so: codebook, law, instrument",
    "censored": "what cells such as <5 mean: missing, limit (5) or half (2.5)",
    "format": "which comes first: %d/%m/%Y or %m/%d/%Y",
}
_MOMENT_NOTES = _NOTES | {
    "minimum": "the earliest minute that anybody may have, such as 2024-01-01T00:00",
    "maximum": "the latest, such as 2024-12-31T23:59",
}
_MISSING_NOTE = """\
  # texts of an empty cell; codes such as 99 belong to a field or a pattern,
# where missingValues: ["", "99"] and constraints: {required: false} say that they are no numbers.
"""
_RULES_NOTE = """\
# What holds for all columns, and under patterns for those whose names fit; a field's own keys are stronger.
# Roles (privacy: {role: ...}) are sensitive, target, public, id or drop.
"""


@dataclass
class _Draft:
    """One column of a draft.

    Attributes
    ----------
    field : dict
        Content of the field as far as it is known, with marks where it is not.
    note : str
        Comment at the field; empty for none.
    """

    field: dict[str, Any]
    note: str = ""

    @property
    def name(self) -> str:
        """Name of the column."""
        return str(self.field["name"])

    @property
    def rule(self) -> dict[str, Any]:
        """What a pattern would say about this column: its constraints and where they are from."""
        return {key: self.field[key] for key in ("constraints", "privacy") if key in self.field}


def draft(
    types: Mapping[str, str | FieldDraft],
    *,
    declared: Mapping[str, Mapping[str, Any]] | None = None,
    privacy: Mapping[str, Any] | None = None,
    accept_proposals: bool = False,
    dialect: Dialect | None = None,
    missing_values: Sequence[str] = ("",),
) -> str:
    """Return the text of a schema file; the parameters are those of :meth:`Schema.draft`."""
    columns = _draft_columns(types, declared or {}, (privacy or {}).get("id_column"))
    patterns = _group(columns)
    fields = [column.field for column in columns] + [rule for _, rule in patterns]
    proposed = any(field.get("privacy", {}).get("bounds_source") == PROPOSED for field in fields)
    text = _OPENING + "".join(_head_lines(columns, dict(privacy or {})))
    if proposed and accept_proposals:
        text += f"proposals: confirmed  # the ranges below that are called '{PROPOSED}'\n"
    elif proposed:
        text += (
            f"proposals: {UNFILLED}  # check the ranges below that are called '{PROPOSED}', then write: "
            "confirmed\n"
        )
    text += f"missingValues: {write_flow(list(missing_values))}{_MISSING_NOTE}"
    block = dialect_document(dialect)
    if block:
        text += f"# How the file is written, by its first lines; check it.\ndialect: {write_flow(block)}\n"
    text += _RULES_NOTE
    text += "".join(_default_lines(is_open=any(_is_open(field) for field in fields)))
    if patterns:
        text += "patterns:\n" + "".join(
            line for match, rule in patterns for line in _pattern_lines(match, rule)
        )
    return text + "fields:\n" + "".join(line for column in columns for line in _field_lines(column))


def open_numbers(
    types: Mapping[str, str | FieldDraft],
    declared: Mapping[str, Mapping[str, Any]],
    id_column: str | None,
) -> dict[str, dict[str, Any]]:
    """Return the fields of numbers and dates of which a draft would know everything but their bounds.

    Parameters
    ----------
    types, declared
        As for :meth:`Schema.draft`.
    id_column : str or None
        Name of the column that tells whose a row is; None where there is none.
    """
    columns = (column.field for column in _draft_columns(types, declared, id_column))
    return {
        field["name"]: {key: value for key, value in field.items() if key not in ("constraints", "privacy")}
        for field in columns
        if field["type"] in NUMBERS and _is_open(field) and UNFILLED not in field.values()
    }


def _draft_columns(
    types: Mapping[str, str | FieldDraft], declared: Mapping[str, Mapping[str, Any]], id_column: str | None
) -> list[_Draft]:
    """Return what is known about each column; what is declared is stronger than what its file says."""
    columns = []
    for name, field in types.items():
        own = {} if isinstance(field, str) else draft_keys(field)
        known = declared.get(name, {})
        constraints = known.get("constraints", {})
        if not constraints.keys() & {"minimum", "enum"}:
            constraints = {**own.get("constraints", {}), **constraints}
        merged = {**own, **known, **({"constraints": constraints} if constraints else {})}
        if name == id_column:
            merged = {"privacy": {"role": "id"}}
        columns.append(_draft_column(name, field if isinstance(field, str) else field.type, merged))
    return columns


def _draft_column(name: str, type_: str, declared: Mapping[str, Any]) -> _Draft:
    """Return what is known about a column: as declared, by its name, or a mark."""
    kind = declared.get("type", type_)
    if kind not in _TYPES:
        raise ParameterError(
            f"Schema.draft: the type of column {name!r} must be one of {', '.join(_TYPES)}, was "
            f"{kind!r}. Call free text and nested values string: they can only be dropped."
        )
    field: dict[str, Any] = {"name": name, "type": kind, **declared}
    known = field.get("constraints", {}).keys() & {"minimum", "maximum", "enum"}
    if known or kind == "boolean" or field.get("privacy", {}).get("role") in ("id", "drop"):
        return _Draft(_complete(field, {}, kind))
    role = guess_role(name, kind)
    if role is not None:
        kept = {key: value for key, value in field.items() if key in ("name", "type", "title", "description")}
        return _Draft({**kept, "privacy": {"role": role.role}}, f"by its name {role.reason}")
    guess = guess_range(name, kind)
    if guess is None:
        return _Draft(_complete(field, {}, kind))
    found = _complete(field, {"minimum": guess.lower, "maximum": guess.upper}, kind)
    found["privacy"] = {**found.get("privacy", {}), "bounds_source": PROPOSED}
    if guess.measure is not None:
        found["privacy"].setdefault("measure", guess.measure)
    return _Draft(found)


def _complete(field: dict[str, Any], constraints: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a field with these constraints beside its own, and marks for those that it still needs."""
    given = {**constraints, **field.get("constraints", {})}
    needed = {"string": ("enum",), "boolean": ()}.get(kind, ("minimum", "maximum"))
    if "enum" not in given and field.get("privacy", {}).get("role") not in ("id", "drop"):
        given = {**dict.fromkeys(needed, UNFILLED), **given}
    return {**field, "constraints": given} if given else dict(field)


def _is_open(field: Mapping[str, Any]) -> bool:
    return UNFILLED in field.get("constraints", {}).values() or UNFILLED in field.values()


def _group(columns: list[_Draft]) -> list[tuple[str, dict[str, Any]]]:
    """Return a pattern for every group of numbered columns that are alike, and take its keys from them."""
    stems: dict[tuple[str, str], list[_Draft]] = {}
    for column in columns:
        numbered = re.fullmatch(r"(.*[^0-9])[0-9]+", column.name)
        is_plain = column.field.keys() <= {"name", "type", "constraints", "privacy"} and not column.note
        if numbered and is_plain and column.rule and not set("*?[") & set(numbered[1]):
            stems.setdefault((numbered[1], repr(column.field["type"]) + repr(column.rule)), []).append(column)
    patterns = []
    for (stem, _), members in stems.items():
        fits = [column for column in columns if Rule("", (f"{stem}*",), {}).applies_to(column.name)]
        match = f"{stem}*" if len(fits) == len(members) else f"{stem}[0-9]*"
        fits = [column for column in columns if Rule("", (match,), {}).applies_to(column.name)]
        if len(members) >= _LEAST_GROUP and len(fits) == len(members):
            patterns.append((match, members[0].rule))
            for column in members:
                column.field = {"name": column.name, "type": column.field["type"]}
    return patterns


def _head_lines(columns: list[_Draft], given: dict[str, Any]) -> Iterator[str]:
    """Yield the block about the table: what is given, the one column that looks like an id, and marks."""
    ids = [column.name for column in columns if column.field.get("privacy", {}).get("role") == "id"]
    head = {"dataset": UNFILLED, "unit": "person", "neighbors": "replace-one", "row_count": "public", **given}
    id_column = head.get("id_column") or (ids[0] if len(ids) == 1 else None)
    if id_column is not None:
        head |= {"id_column": id_column, "max_rows_per_unit": head.get("max_rows_per_unit", UNFILLED)}
    yield "privacy:\n"
    for key, note in _HEAD_NOTES.items():
        if key in head:
            yield f"  {key}: {_word(head[key])}  # {note}\n"
        elif key == "id_column":
            yield _SEVERAL_ROWS


def _default_lines(*, is_open: bool) -> Iterator[str]:
    """Yield the defaults; with a mark for who says so, if a person has to say something."""
    yield "defaults:\n  constraints: {required: true}  # false if cells may be empty\n"
    if is_open:
        yield f"  privacy:\n    bounds_source: {UNFILLED}  # {_NOTES['bounds_source']}\n"


def _pattern_lines(match: str, rule: dict[str, Any]) -> Iterator[str]:
    yield f"  - match: {json.dumps(match, ensure_ascii=False)}\n"
    for key, value in rule.items():
        yield from _key_lines(key, value)


def _field_lines(column: _Draft) -> Iterator[str]:
    """Yield the lines of a draft that declare one column: one, unless it is long or has a mark."""
    note = f"  # {column.note}" if column.note else ""
    line = f"  - {write_flow(column.field)}"
    if len(line) <= _WIDEST and not _is_open(column.field):
        yield f"{line}{note}\n"
        return
    yield f"  - name: {write_flow(column.name)}{note}\n"
    for key, value in column.field.items():
        if key != "name":
            yield from _key_lines(key, value, _MOMENT_NOTES if column.field["type"] == "datetime" else _NOTES)


def _key_lines(key: str, value: Any, notes: Mapping[str, str] = _NOTES) -> Iterator[str]:
    """Yield one key of a field; a block with a mark has a line for each of its keys."""
    if not isinstance(value, Mapping) or UNFILLED not in value.values():
        note = f"  # {notes[key]}" if value == UNFILLED else ""
        yield f"    {key}: {_word(value)}{note}\n"
        return
    yield f"    {key}:\n"
    for inner, setting in value.items():
        note = f"  # {notes[inner]}" if setting == UNFILLED else ""
        yield f"      {inner}: {_word(setting)}{note}\n"


def _word(value: Any) -> str:
    return UNFILLED if value == UNFILLED else write_flow(value)
