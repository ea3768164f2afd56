"""Content of schema files: read into a :class:`~discreet.schema.Schema`, and written from one.

When a file is read, its shape is checked by pydantic and its meaning by the checks of columns and
schema. Every field is checked even if another is wrong, and all problems go into one
:class:`~discreet.errors.SchemaError`.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from discreet.arguments import nearest
from discreet.errors import SchemaError
from discreet.schema._document_shape import (
    FIELD_TYPES,
    OTHER_TYPE_WORDS,
    FieldBlock,
    FieldSettings,
    TableBlock,
    dialect_document,
    find_unfilled,
    read_dialect,
    read_text_format,
    text_document,
    unfilled_sentence,
    validate_shape,
)
from discreet.schema.column import Column, Protect
from discreet.schema.column_checks import NUMBERS, ROLES
from discreet.schema.notation import FILE, UNFILLED, Blank, quote_value
from discreet.schema.rules import (
    CONFIRMED,
    PROPOSED,
    Rule,
    check_matches,
    expand,
    flatten,
    has_blocks,
    read_match,
)
from discreet.schema.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Iterator


def read_document(content: Mapping[str, Any]) -> Schema:
    """Return the schema that a file's content declares, or raise SchemaError with all problems."""
    content = dict(content)
    rest = {key: value for key, value in content.items() if key not in ("fields", "defaults")}
    problems = [unfilled_sentence("Schema", path) for path in find_unfilled(rest)]
    table = None if problems else validate_shape(TableBlock, content, "Schema", problems)
    fields = content.get("fields")
    columns = _read_fields(fields if isinstance(fields, list) else [], content, problems)
    if table is not None and (columns or not problems):
        try:
            schema = Schema(
                columns=columns,
                dataset=table.privacy.dataset,
                unit=table.privacy.unit,
                id_column=table.privacy.id_column,
                max_rows_per_unit=table.privacy.max_rows_per_unit,
                neighbors=table.privacy.neighbors,
                row_count=table.privacy.row_count,
                missing_values=tuple(table.missing_values),
                dialect=read_dialect(table.dialect),
                primary_key=tuple(table.primary_key),
                title=table.title,
                description=table.description,
                notation=FILE,
            )
        except SchemaError as error:
            problems += error.problems
        else:
            if not problems:
                return schema
    raise SchemaError(*problems)


def _read_fields(fields: list[Any], content: Mapping[str, Any], problems: list[str]) -> list[Column]:
    """Return the columns of a file with what its rules give them; append what is wrong to the problems."""
    rules = _read_rules(content, problems)
    fields = [{"name": field} if isinstance(field, str) and field != UNFILLED else field for field in fields]
    problems += check_matches(rules, [name for name in map(_name_of, fields) if name is not None])
    columns: list[Column] = []
    wrong: dict[str, list[str]] = {}
    proposed: list[str] = []
    for position, field in enumerate(fields, start=1):
        name = _name_of(field)
        follows = [rule for rule in rules if name is not None and rule.applies_to(name)]
        try:
            column = _read_expanded(field, position, follows)
            if column.bounds_source == PROPOSED:
                proposed.append(column.name)
                column = replace(column, bounds_source=CONFIRMED)
            columns.append(column)
        except SchemaError as error:
            columns += _placeholder_column(field)
            if not follows:
                problems += error.problems
                continue
            # Columns that follow one rule are often wrong in the same way, and are reported together.
            for problem in error.problems:
                wrong.setdefault(problem.removeprefix(f"Column {name!r}: "), []).append(str(name))
    problems += [f"{_list_columns(names)}: {problem}" for problem, names in wrong.items()]
    problems += _proposal_problems(content.get("proposals"), proposed)
    return columns


def _read_expanded(field: Any, position: int, follows: list[Rule]) -> Column:
    """Return the column of a field that follows some rules; problems of these are reported elsewhere."""
    if not follows:
        return read_field(field, position)
    expanded = expand(field, follows)
    if any(rule.is_open for rule in follows):
        raise SchemaError(
            *(unfilled_sentence(f"Column {field['name']!r}", path) for path in find_unfilled(expanded))
        )
    return read_field(expanded, position)


def _read_rules(content: Mapping[str, Any], problems: list[str]) -> list[Rule]:
    """Return the defaults and patterns of a file, weakest first; append what is wrong to the problems."""
    patterns = content.get("patterns")
    blocks: list[tuple[str, tuple[str, ...] | None, Any]] = []
    if content.get("defaults") is not None:
        blocks.append(("Defaults", None, content["defaults"]))
    for position, pattern in enumerate(patterns if isinstance(patterns, list) else [], start=1):
        match = read_match(pattern, position, problems)
        if match is not None:
            settings = {key: value for key, value in pattern.items() if key != "match"}
            blocks.append((f"Pattern {', '.join(map(repr, match))}", match, settings))
    rules = []
    for where, match, settings in blocks:
        found = [unfilled_sentence(where, path) for path in find_unfilled(settings)]
        if not found:
            validate_shape(FieldSettings, settings, where, found)
        problems += found
        given = flatten(settings) if has_blocks(settings) else {}
        filled = {key: value for key, value in given.items() if value != UNFILLED}
        rules.append(Rule(where, match, filled, is_open=bool(found)))
    return rules


def _name_of(field: object) -> str | None:
    """Return the name of a field; None if it has none that is a text."""
    name = field.get("name") if isinstance(field, Mapping) else None
    return name if isinstance(name, str) else None


def _list_columns(names: list[str], most: int = 3) -> str:
    """Return the names of columns for a message, the first few of many."""
    if len(names) == 1:
        return f"Column {names[0]!r}"
    shown = ", ".join(map(repr, names[:most]))
    return f"Columns {shown}" + (f" and {len(names) - most} more" if len(names) > most else "")


def _proposal_problems(answer: object, proposed: list[str]) -> Iterator[str]:
    """Yield the problem of ranges that were proposed by name and that nobody has confirmed."""
    if answer is not None and answer not in ("confirmed", UNFILLED):
        yield (
            f"Schema: proposals must be confirmed, or be left out, was {quote_value(answer)}. "
            "Write proposals: confirmed."
        )
    elif proposed and answer is None:
        yield (
            f"{_list_columns(proposed)}: the range is only proposed, by the name of the column. Check it and "
            "write proposals: confirmed, which confirms every range that is still called "
            f"'{PROPOSED}'; or write your own, with its privacy: {{bounds_source: <who says so>}}."
        )


def read_field(field: Mapping[str, Any], position: int | None = None) -> Column:
    """Return the column that one field declares."""
    name = field.get("name") if isinstance(field, Mapping) else None
    numbered = "A field" if position is None else f"Field {position}"
    where = f"Column {name!r}" if isinstance(name, str) else numbered
    problems = [unfilled_sentence(where, path) for path in find_unfilled(field)]
    if problems:
        raise SchemaError(*problems)
    model = validate_shape(FieldBlock, field, where, problems)
    if model is not None:
        try:
            column = _build_column(model, where)
        except SchemaError as error:
            problems += error.problems
        else:
            if not problems:
                return column
    raise SchemaError(*problems)


def _build_column(field: FieldBlock, where: str) -> Column:
    """Return the column of a field whose shape is valid."""
    problems = [f"{where}: {sentence}" for sentence in _type_problems(field)]
    if problems:
        raise SchemaError(*problems)
    constraints, privacy, protect = field.constraints, field.privacy, field.privacy.protect
    return Column(
        field.name,
        type=_column_type(field),
        lower=_parse_bound(constraints.minimum, field),
        upper=_parse_bound(constraints.maximum, field),
        values=_values(field),
        role=privacy.role,
        required=constraints.required,
        closed=privacy.closed,
        measure=privacy.measure,
        protect=None if protect is None else Protect(error=protect.error, share=protect.share),
        bounds_source=privacy.bounds_source,
        grid=privacy.grid,
        cells=None if privacy.cells is None else tuple(_parse_bound(edge, field) for edge in privacy.cells),
        step=privacy.step,
        scale=privacy.scale,
        missing_values=None if field.missing_values is None else tuple(field.missing_values),
        text=read_text_format(field),
        title=field.title,
        description=field.description,
        notation=FILE,
    )


def _type_problems(field: FieldBlock) -> Iterator[str]:
    """Yield a problem if a field's type is unknown, or is not that of its listed values."""
    if field.privacy.role in ("id", "drop"):
        return
    if field.type not in FIELD_TYPES:
        close = OTHER_TYPE_WORDS.get(str(field.type).casefold()) or nearest(field.type, FIELD_TYPES)
        was = "and was left out" if field.type is None else f"was {quote_value(field.type)}"
        line = FILE.column(field.name, type=Blank(close or "<type>"))
        yield f"type must be one of {', '.join(FIELD_TYPES)}, {was}. Write {line}."
        return
    kind = {"string": str, "integer": int, "boolean": bool}.get(field.type)
    odd = [value for value in field.constraints.enum or () if kind and type(value) is not kind]
    strings = tuple(_as_written(value) for value in field.constraints.enum or ())
    line = FILE.column(field.name, type=Blank("string"), values=strings)
    if strings and kind is None:
        yield (
            "constraints.enum is for fields of type string, integer or boolean, and this one is of "
            f"type {field.type}. Leave it out, or write {line}."
        )
    elif odd and None not in odd:
        yield (
            f"constraints.enum must hold values of type {field.type}, and {_as_written(odd[0])} is "
            f"not one; a word that YAML takes for something else needs quotes. Write {line}."
        )


def _column_type(field: FieldBlock) -> Any:
    """Return the type of a column for a Frictionless field; one that lists its values is a category."""
    if field.type == "boolean" or (field.constraints.enum is not None and field.type != "number"):
        return "category"
    return field.type if field.type in NUMBERS else "text"


def _values(field: FieldBlock) -> tuple[Any, ...] | None:
    if field.constraints.enum is not None:
        return tuple(field.constraints.enum)
    return (False, True) if field.type == "boolean" else None


_ISO_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_ISO_DATETIME = _ISO_DATE + r"[T ][0-9]{2}(:[0-9]{2}){1,2}"


def _parse_bound(bound: Any, field: FieldBlock) -> Any:
    """Return the date or datetime that a bound means, written as in ISO 8601 or in the field's own format.

    Anything else is returned unchanged, for the checks to report: a number, or the thirtieth of February.
    """
    if field.type not in ("date", "datetime") or not isinstance(bound, str):
        return bound
    is_date = field.type == "date"
    try:
        if re.fullmatch(_ISO_DATE if is_date else _ISO_DATETIME, bound):
            moment = datetime.datetime.fromisoformat(bound)
        elif "%" in (field.date_format or ""):
            moment = datetime.datetime.strptime(bound, field.date_format)
        else:
            return bound
    except ValueError:
        return bound
    return moment.date() if is_date else moment


def _as_written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _placeholder_column(field: object) -> list[Column]:
    """Return a valid column with the name and role of an invalid one, or none.

    With it the checks of the whole table can run too, and report only problems of the table.
    """
    if not isinstance(field, Mapping) or not isinstance(field.get("name"), str):
        return []
    privacy = field.get("privacy")
    role = privacy.get("role") if isinstance(privacy, Mapping) else None
    try:
        return [Column(field["name"], values=(0, 1), role=role if role in ROLES else "sensitive")]
    except SchemaError:
        try:
            return [Column(field["name"], role="id")]
        except SchemaError:  # the name itself is what is wrong
            return []


def document(schema: Schema) -> dict[str, Any]:
    """Return the content of the file that declares this table."""
    return _drop_none(
        {
            "title": schema.title,
            "description": schema.description,
            "privacy": _drop_none(
                {
                    "kind": schema.kind,
                    "dataset": schema.dataset,
                    "unit": schema.unit,
                    "id_column": schema.id_column,
                    "max_rows_per_unit": schema.max_rows_per_unit,
                    "neighbors": schema.neighbors,
                    "row_count": schema.row_count,
                }
            ),
            "missingValues": list(schema.missing_values),
            "dialect": dialect_document(schema.dialect),
            "primaryKey": list(schema.primary_key) or None,
            "fields": [field_document(column) for column in schema.columns],
        }
    )


def field_document(column: Column) -> dict[str, Any]:
    """Return the field that declares this column."""
    values = None if column.values is None else list(column.values)
    return _drop_none(
        {
            "name": column.name,
            "type": _frictionless_type(column),
            **text_document(column.text, column.missing_values),
            "title": column.title,
            "description": column.description,
            "constraints": _drop_none(
                {
                    "minimum": _plain(column.lower),
                    "maximum": _plain(column.upper),
                    # Frictionless has no list for booleans: false and true, in that order.
                    "enum": None if values == [False, True] and values[0] is False else values,
                    "required": column.required,
                }
            ),
            "privacy": _drop_none(
                {
                    "role": column.role,
                    "closed": column.closed,
                    "measure": column.measure,
                    "protect": _drop_none(asdict(column.protect)) if column.protect else None,
                    "bounds_source": column.bounds_source,
                    "grid": _plain(column.grid),
                    "cells": None if column.cells is None else [_plain(edge) for edge in column.cells],
                    "step": column.step,
                    "scale": column.scale,
                }
            ),
        }
    )


def _frictionless_type(column: Column) -> str:
    if column.is_category:
        kinds = {bool: "boolean", int: "integer", str: "string"}
        return kinds[type(column.values[0])] if column.values else "string"
    return {"id": "any", "text": "string"}.get(str(column.type), str(column.type))


def _drop_none(pairs: dict[str, Any]) -> dict[str, Any]:
    """Return the pairs without those whose value is None."""
    return {key: value for key, value in pairs.items() if value is not None}


def _plain(value: object) -> object:
    """Return 120 for 120.0 and a date as text, so that equal numbers are written alike."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value
