"""Checks of the declaration of a table whose columns are valid, each with a line that corrects it."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from discreet.arguments import nearest
from discreet.schema.column import Column
from discreet.schema.column_checks import LARGEST, SMALLEST
from discreet.schema.dialect import dialect_problems
from discreet.schema.notation import Blank, Notation, quote_value, text_problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.schema.schema import Schema

NEIGHBORS = ("replace-one", "add-remove")
ROW_COUNTS = ("public", "private")


def table_problems(schema: Schema, notation: Notation) -> list[str]:
    """Return one sentence for each problem of a table whose columns are valid."""
    columns: Any = schema.columns
    if not isinstance(columns, tuple) or not all(isinstance(c, Column) for c in columns):
        return [
            f"Schema: columns must be a list of Column, was {quote_value(columns)}. "
            'Write Schema(columns=[Column("age", lower=0, upper=120)]).'
        ]
    rules = (
        _columns_problems,
        _target_problems,
        _unit_problems,
        _key_problems,
        _missing_problems,
        _dialect_problems,
        _choice_problems,
    )
    return [f"Schema: {sentence}" for rule in rules for sentence in rule(schema, notation)]


def _columns_problems(s: Schema, notation: Notation) -> Iterator[str]:
    """Yield the problems of the columns together: names, missing flags, shares of epsilon."""
    if not any(column.is_released for column in s.columns):
        yield (
            "at least one column must leave (role sensitive, target or public), and none does. "
            f"Write {notation.other_column('age', lower=SMALLEST, upper=LARGEST)}, for example."
        )
    # Without regard to case, as DuckDB compares names.
    count = Counter(column.name.casefold() for column in s.columns)
    for folded in (name for name, times in count.items() if times > 1):
        alike = [repr(column.name) for column in s.columns if column.name.casefold() == folded]
        yield (
            "column names must differ, in more than upper and lower case, and "
            f"{' and '.join(alike)} do not. Rename one of them in the table and here."
        )
    for column in s.columns:
        if column.is_released and column.missing_flag and column.missing_flag.casefold() in count:
            yield (
                f"the flag that tells where {column.name!r} is missing is published as "
                f"{column.missing_flag!r}, and a column has that name. Rename the column, or write "
                f"{notation.other_column(column.name, required=True)}."
            )
    shares = sum(c.protect.share or 0.0 for c in s.columns if c.protect)
    if shares > 1 + 1e-9:
        yield (
            f"the shares of epsilon in {notation['protect']} must add up to at most 1, and add up to "
            f"{shares:g}. Divide each by {shares:g}."
        )


def _target_problems(s: Schema, notation: Notation) -> Iterator[str]:
    """Yield the problems of the target: more than one, unknown, or not protected."""
    targets = [column.name for column in s.columns if column.role == "target"]
    if len(targets) > 1 or (s.target is not None and targets and s.target not in targets):
        named = list(dict.fromkeys([*targets, *([s.target] if s.target else [])]))
        yield (
            f"there must be one target, and {' and '.join(map(repr, named))} are declared so. "
            f"Write {notation.other_column(named[-1], role='sensitive')}."
        )
    elif s.target is not None and not targets:
        role = next((c.role for c in s.columns if c.name == s.target), None)
        if role is None:
            yield _unknown("target", s.target, s, notation)
        else:
            yield (
                f"target must be a column that is protected, and {s.target!r} has role {role}. "
                f"Write {notation.other_column(s.target, role='target')}."
            )


def _unit_problems(s: Any, notation: Notation) -> Iterator[str]:
    """Yield the problems of id_column and max_rows_per_unit."""
    most = s.max_rows_per_unit
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        yield (
            f"{notation['max_rows_per_unit']} must be a whole number of at least 1, was "
            f"{quote_value(most)}. Write {notation.table(max_rows_per_unit=1)}."
        )
    elif s.id_column is None and most is not None and most > 1:
        yield (
            f"{notation['id_column']} must name the column that tells which rows belong together when "
            f"{notation['max_rows_per_unit']} is above 1, and was left out. "
            f"Write {notation.table(id_column=Blank('<column>'), max_rows_per_unit=most)}."
        )
    if s.id_column is None:
        return
    column = next((c for c in s.columns if c.name == s.id_column), None)
    if column is None:
        yield _unknown("id_column", s.id_column, s, notation)
    elif column.role != "id":
        yield (
            f"{notation['id_column']} must name a column of role id, and {s.id_column!r} has role "
            f"{column.role}. Write {notation.other_column(s.id_column, role='id')}."
        )
    if most is None:
        yield (
            f"{notation['max_rows_per_unit']} must say how many rows of one {s.unit} are used when "
            f"{notation['id_column']} is given, and was left out. "
            f"Write {notation.table(max_rows_per_unit=1)}, or as many as one {s.unit} may have."
        )


def _key_problems(s: Schema, notation: Notation) -> Iterator[str]:
    """Yield the problems of the primary key: unknown columns, or one that is published."""
    known = {column.name: column for column in s.columns}
    for name in s.primary_key:
        if name not in known:
            yield _unknown("primary_key", name, s, notation)
    if len(s.primary_key) == 1 and s.primary_key[0] in known:
        key = known[s.primary_key[0]]
        if key.is_released:
            yield (
                f"{notation['primary_key']} tells every row apart, so it must not leave, and "
                f"{key.name!r} has role {key.role}. Write {notation.other_column(key.name, role='id')}."
            )


def _missing_problems(s: Schema, notation: Notation) -> Iterator[str]:
    """Yield the problems of the texts that stand for a missing cell."""
    marks: Any = s.missing_values
    if not isinstance(marks, tuple) or not all(isinstance(mark, str) for mark in marks):
        yield (
            f"{notation['missing_values']} must be a list of strings, was "
            f"{quote_value(list(marks) if isinstance(marks, tuple) else marks)}. "
            f"Write {notation.table(missing_values=('', 'NA'))}."
        )
        return
    for column in s.columns:
        of_column = marks if column.missing_values is None else column.missing_values
        both = [v for v in column.values or () if str(v) in of_column]
        if both:
            others = tuple(mark for mark in of_column if mark != str(both[0]))
            line = (
                notation.table(missing_values=others)
                if column.missing_values is None
                else notation.other_column(column.name, missing_values=others)
            )
            yield (
                f"{quote_value(both[0])} is listed both in {notation['missing_values']} and in "
                f"{notation['values']} of column {column.name!r}, and can be only one of the two. "
                f"Write {line}, or take it off the column's list."
            )


def _dialect_problems(s: Schema, notation: Notation) -> Iterator[str]:
    yield from dialect_problems(s.dialect, notation)


def _choice_problems(s: Any, notation: Notation) -> Iterator[str]:
    """Yield the problems of neighbors, row_count, dataset and the texts for people."""
    for key, choices in (("neighbors", NEIGHBORS), ("row_count", ROW_COUNTS)):
        value = getattr(s, key)
        if value not in choices:
            line = notation.table(**{key: nearest(value, choices) or choices[0]})
            yield (f"{notation[key]} must be {' or '.join(choices)}, was {quote_value(value)}. Write {line}.")
    name = s.dataset
    if name is not None and not (
        isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name)
    ):
        yield (
            f"{notation['dataset']} must be a name of letters, digits, '.', '_' and '-', was "
            f"{quote_value(name)}: the ledger's file is called by it. "
            f"Write {notation.table(dataset=Blank('<name>-<year>'))}."
        )
    if s.unit is None:
        yield f"{notation['unit']} must be a string, was None. Write {notation.table(unit='person')}."
    for key in ("unit", "title", "description"):
        yield from text_problems(getattr(s, key), key, notation)


def _unknown(key: str, name: object, s: Schema, notation: Notation) -> str:
    names = [column.name for column in s.columns]
    close = nearest(name, names)
    line = notation.table(**{key: (close,) if key == "primary_key" else close}) if close else ""
    way = f"Write {line}." if close else f"The columns are {', '.join(names)}."
    return f"{notation[key]} must name a declared column, was {quote_value(name)}. {way}"
