"""When the declaration of a whole table is wrong, and the line that mends it."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from discreet.schema.column import Column
from discreet.schema.column_rules import LARGEST, SMALLEST, text_problems
from discreet.schema.dialect import Blank, Dialect, nearest, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.schema.table import Schema

NEIGHBORS = ("replace-one", "add-remove")
ROW_COUNTS = ("public", "private")


def table_problems(schema: Schema, words: Dialect) -> list[str]:
    """Return one sentence for each thing that is wrong with a table whose columns are right."""
    columns: Any = schema.columns
    if not isinstance(columns, tuple) or not all(isinstance(c, Column) for c in columns):
        return [
            f"Schema: columns must be a list of Column, was {shown(columns)}. "
            'Write Schema(columns=[Column("age", lower=0, upper=120)]).'
        ]
    rules = (
        _columns_problems,
        _target_problems,
        _unit_problems,
        _key_problems,
        _missing_problems,
        _choice_problems,
    )
    return [f"Schema: {sentence}" for rule in rules for sentence in rule(schema, words)]


def _columns_problems(s: Schema, words: Dialect) -> Iterator[str]:
    if not any(column.leaves for column in s.columns):
        yield (
            "at least one column must leave (role sensitive, target or public), and none does. "
            f"Write {words.other_column('age', lower=SMALLEST, upper=LARGEST)}, for example."
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
        if column.leaves and column.missing_flag and column.missing_flag.casefold() in count:
            yield (
                f"the flag that tells where {column.name!r} is missing is published as "
                f"{column.missing_flag!r}, and a column has that name. Rename the column, or write "
                f"{words.other_column(column.name, required=True)}."
            )
    shares = sum(c.protect.share or 0.0 for c in s.columns if c.protect)
    if shares > 1 + 1e-9:
        yield (
            f"the shares of epsilon in {words['protect']} must add up to at most 1, and add up to "
            f"{shares:g}. Divide each by {shares:g}."
        )


def _target_problems(s: Schema, words: Dialect) -> Iterator[str]:
    targets = [column.name for column in s.columns if column.role == "target"]
    if len(targets) > 1 or (s.target is not None and targets and s.target not in targets):
        named = list(dict.fromkeys([*targets, *([s.target] if s.target else [])]))
        yield (
            f"there must be one target, and {' and '.join(map(repr, named))} are declared so. "
            f"Write {words.other_column(named[-1], role='sensitive')}."
        )
    elif s.target is not None and not targets:
        role = next((c.role for c in s.columns if c.name == s.target), None)
        if role is None:
            yield _unknown("target", s.target, s, words)
        else:
            yield (
                f"target must be a column that is protected, and {s.target!r} has role {role}. "
                f"Write {words.other_column(s.target, role='target')}."
            )


def _unit_problems(s: Any, words: Dialect) -> Iterator[str]:
    most = s.max_rows_per_unit
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        yield (
            f"{words['max_rows_per_unit']} must be a whole number of at least 1, was "
            f"{shown(most)}. Write {words.table(max_rows_per_unit=1)}."
        )
    elif s.id_column is None and most is not None and most > 1:
        yield (
            f"{words['id_column']} must name the column that tells which rows belong together when "
            f"{words['max_rows_per_unit']} is above 1, and was left out. "
            f"Write {words.table(id_column=Blank('<column>'), max_rows_per_unit=most)}."
        )
    if s.id_column is None:
        return
    column = next((c for c in s.columns if c.name == s.id_column), None)
    if column is None:
        yield _unknown("id_column", s.id_column, s, words)
    elif column.role != "id":
        yield (
            f"{words['id_column']} must name a column of role id, and {s.id_column!r} has role "
            f"{column.role}. Write {words.other_column(s.id_column, role='id')}."
        )
    if most is None:
        yield (
            f"{words['max_rows_per_unit']} must say how many rows of one {s.unit} are used when "
            f"{words['id_column']} is given, and was left out. "
            f"Write {words.table(max_rows_per_unit=1)}, or as many as one {s.unit} may have."
        )


def _key_problems(s: Schema, words: Dialect) -> Iterator[str]:
    known = {column.name: column for column in s.columns}
    for name in s.primary_key:
        if name not in known:
            yield _unknown("primary_key", name, s, words)
    if len(s.primary_key) == 1 and s.primary_key[0] in known:
        key = known[s.primary_key[0]]
        if key.leaves:
            yield (
                f"{words['primary_key']} tells every row apart, so it must not leave, and "
                f"{key.name!r} has role {key.role}. Write {words.other_column(key.name, role='id')}."
            )


def _missing_problems(s: Schema, words: Dialect) -> Iterator[str]:
    marks: Any = s.missing_values
    if not isinstance(marks, tuple) or not all(isinstance(mark, str) for mark in marks):
        yield (
            f"{words['missing_values']} must be a list of strings, was "
            f"{shown(list(marks) if isinstance(marks, tuple) else marks)}. "
            f"Write {words.table(missing_values=('', 'NA'))}."
        )
        return
    for column in s.columns:
        both = [v for v in column.values or () if v in marks]
        if both:
            others = tuple(mark for mark in marks if mark not in both)
            yield (
                f"{shown(both[0])} is listed both in {words['missing_values']} and in "
                f"{words['values']} of column {column.name!r}, and can be only one of the two. "
                f"Write {words.table(missing_values=others)}, or take it off the column's list."
            )


def _choice_problems(s: Any, words: Dialect) -> Iterator[str]:
    for key, choices in (("neighbors", NEIGHBORS), ("row_count", ROW_COUNTS)):
        value = getattr(s, key)
        if value not in choices:
            line = words.table(**{key: nearest(value, choices) or choices[0]})
            yield (f"{words[key]} must be {' or '.join(choices)}, was {shown(value)}. Write {line}.")
    name = s.dataset
    if name is not None and not (
        isinstance(name, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name)
    ):
        yield (
            f"{words['dataset']} must be a name of letters, digits, '.', '_' and '-', was "
            f"{shown(name)}: the ledger's file is called by it. "
            f"Write {words.table(dataset=Blank('<name>-<year>'))}."
        )
    if s.unit is None:
        yield f"{words['unit']} must be a string, was None. Write {words.table(unit='person')}."
    for key in ("unit", "title", "description"):
        yield from text_problems(getattr(s, key), key, words)


def _unknown(key: str, name: object, s: Schema, words: Dialect) -> str:
    names = [column.name for column in s.columns]
    close = nearest(name, names)
    line = words.table(**{key: (close,) if key == "primary_key" else close}) if close else ""
    way = f"Write {line}." if close else f"The columns are {', '.join(names)}."
    return f"{words[key]} must name a declared column, was {shown(name)}. {way}"
