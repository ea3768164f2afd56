"""When the declaration of a column is wrong, and the line that mends it.

Each rule yields a sentence that names the column and the parameter, what it must be and what it
was, and then the line to write. Rules look at everything that was given, of whatever type, and go
on after the first finding: whoever corrects a file wants to see all of it at once.
"""

from __future__ import annotations

import datetime
import math
import unicodedata
from typing import TYPE_CHECKING, Any

from discreet.schema.notation import UNFILLED, Blank, Notation, nearest, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.schema.column import Column

TYPES = ("number", "integer", "category", "date", "id", "text")
ROLES = ("sensitive", "target", "public", "id", "drop")

# Every integer up to here is a float, so that scaling a declared integer is exact.
_LARGEST_INTEGER = 2**53
LARGEST_NUMBER, LEAST_WIDTH = 1e100, 1e-100
"""Largest bound of a number, and least range: noise around them, and its square, are still numbers."""
_LONGEST_NAME = 200
_FIRST_AND_SECOND = (Blank("<first>"), Blank("<second>"))
SMALLEST, LARGEST = Blank("<smallest possible>"), Blank("<largest possible>")


def column_problems(column: Column, words: Notation) -> list[str]:
    """Return one sentence for each thing that is wrong with a column."""
    problem = _name_problem(column.name)
    if problem:
        return [problem]
    rules = (
        _kind_problems,
        _values_problems,
        _bounds_problems,
        _grid_problems,
        _protect_problems,
        _note_problems,
    )
    return [f"Column {column.name!r}: {sentence}" for rule in rules for sentence in rule(column, words)]


def _name_problem(name: Any) -> str | None:
    if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name == name.strip():
        if not _hidden(name):
            return None
        rest = "without control characters"
    else:
        rest = f"of 1 to {_LONGEST_NAME} characters, without blanks around it"
    return (
        f"Column {shown(name)}: name must be a string {rest}, was {shown(name)}. "
        "Rename the column in the table and here."
    )


def _kind_problems(c: Any, words: Notation) -> Iterator[str]:
    if c.role not in ROLES:
        yield (
            f"{words['role']} must be one of {', '.join(ROLES)}, was {shown(c.role)}. "
            f"Write {words.column(c.name, role=nearest(c.role, ROLES) or 'sensitive')}."
        )
    if c.type is None:
        yield (
            f"its bounds or its list of values must be declared, and neither was. Write "
            f"{words.column(c.name, lower=SMALLEST, upper=LARGEST)}, or "
            f"{words.column(c.name, values=_FIRST_AND_SECOND)}, or "
            f"{words.column(c.name, role='drop')}."
        )
    elif c.type not in TYPES:
        yield (
            f"type must be one of {', '.join(TYPES)}, was {shown(c.type)}. "
            f"Write {words.column(c.name, type=nearest(c.type, TYPES) or 'number')}."
        )
    if c.type == "text" and c.role not in ("drop", "id"):
        yield (
            f"free text cannot be protected, so {words['role']} must be drop or id, was "
            f"{shown(c.role)}. Write {words.column(c.name, role='drop')}, or list what it holds: "
            f"{words.column(c.name, values=_FIRST_AND_SECOND)}."
        )
    if c.type == "id" and c.role not in ("id", "drop"):
        yield (
            f"an id never leaves, so {words['role']} must be id or drop, was {shown(c.role)}. "
            f"Write {words.column(c.name, role='id')}."
        )
    if not isinstance(c.required, bool):
        yield (
            f"{words['required']} must be true or false, was {shown(c.required)}. "
            f"Write {words.column(c.name, required=True)} if no cell is ever empty."
        )


def _values_problems(c: Any, words: Notation) -> Iterator[str]:
    if c.closed is not None and not isinstance(c.closed, bool):
        yield (
            f"{words['closed']} must be true or false, was {shown(c.closed)}. "
            f"Write {words.column(c.name, closed=True)} if the list is complete."
        )
    if c.values is None:
        if c.type == "category" and c.role in ("sensitive", "target", "public"):
            yield (
                f"{words['values']} must list everything a category may hold, and was left out. "
                f"Write {words.column(c.name, values=_FIRST_AND_SECOND)}."
            )
        if c.closed is not None and c.type != "category":
            yield (f"{words['closed']} is for lists of values, and this column has none. Leave it out.")
        return
    if c.type != "category":
        yield (
            f"{words['values']} is for categories, and the type was {shown(c.type)}. Leave out the "
            "list, or declare the column as a category alone."
        )
        return
    if c.lower is not None or c.upper is not None:
        yield (
            f"a column has either bounds or {words['values']}, and both were given. "
            f"Leave out {words['lower']} and {words['upper']}."
        )
    if not isinstance(c.values, tuple) or not c.values:
        yield (
            f"{words['values']} must be a list of at least one value, was {_listed(c.values)}. "
            f"Write {words.column(c.name, values=_FIRST_AND_SECOND)}."
        )
        return
    yield from _list_problems(c, words)


def _list_problems(c: Any, words: Notation) -> Iterator[str]:
    kinds = {type(value) for value in c.values}
    if not any(kinds == {kind} for kind in (str, int, bool)):
        odd = next(v for v in c.values if type(v) is not type(c.values[0]) or not _may_list(v))
        strings = tuple(str(v) for v in c.values if v is not None) or _FIRST_AND_SECOND
        missing = f" An empty cell is no value: write {words.column(c.name, required=False)}."
        yield (
            f"{words['values']} must be all strings, all integers or all booleans, and "
            f"{'one is null' if odd is None else f'{shown(odd)} is of type {_kind_name(odd)}'}. "
            f"Write {words.column(c.name, values=strings)}.{missing if None in c.values else ''}"
        )
        return
    repeated = sorted({str(v) for v in c.values if c.values.count(v) > 1})
    if repeated:
        yield (
            f"{words['values']} must not repeat a value, and {', '.join(map(shown, repeated))} "
            f"came twice. Write {words.column(c.name, values=tuple(dict.fromkeys(c.values)))}."
        )
    hidden = [v for v in c.values if isinstance(v, str) and (_hidden(v) or len(v) > _LONGEST_NAME)]
    if hidden:
        yield (
            f"{words['values']} must hold strings of at most {_LONGEST_NAME} characters without "
            f"control characters, and {shown(hidden[0])} is none. Rename it in the table and here."
        )
    large = [v for v in c.values if isinstance(v, int) and abs(v) > _LARGEST_INTEGER]
    if large:
        yield (
            f"{words['values']} must hold integers between -2**53 and 2**53, and {shown(large[0])} is "
            f"none. Write {words.column(c.name, values=tuple(str(v) for v in c.values))}."
        )
    if c.closed is False and kinds != {str}:
        yield (
            f"{words['closed']} must be true for a list of {_kind_name(c.values[0])}s, was false: "
            "'other' beside them would turn the column into strings. Leave it out, or write "
            f"{words.column(c.name, values=tuple(str(v) for v in c.values))}."
        )
    elif not repeated and c.role in ROLES and len(c.levels) < 2:
        yield (
            f"{words['values']} must leave at least two levels to choose from, and "
            f"{shown(c.values[0])} is the only one. Write {words.column(c.name, role='drop')}."
        )


def _bounds_problems(c: Any, words: Notation) -> Iterator[str]:
    given = {key: getattr(c, key) for key in ("lower", "upper")}
    absent = [key for key, bound in given.items() if bound is None]
    if c.type not in ("number", "integer", "date"):
        if len(absent) < 2 and c.type in ("id", "text"):
            yield (
                "bounds are for numbers and dates, and this column holds neither. "
                f"Leave out {words['lower']} and {words['upper']}."
            )
        return
    if absent and (c.role in ("sensitive", "target", "public") or len(absent) == 1):
        blanks = {"lower": SMALLEST, "upper": LARGEST}
        line = {
            key: blanks[key] if bound is None or _bound_problem(bound, c.type, c.largest) else bound
            for key, bound in given.items()
        }
        yield (
            f"{' and '.join(words[key] for key in absent)} must be declared, and "
            f"{'was' if len(absent) == 1 else 'were'} left out. "
            f"Write {words.column(c.name, **line)}: the ends of what is possible, from a codebook, "
            "a law or an instrument, never from the rows."
        )
    wrong = False
    for key, bound in given.items():
        must = None if bound is None else _bound_problem(bound, c.type, c.largest)
        if must:
            wrong = True
            line = {key: SMALLEST if key == "lower" else LARGEST}
            yield (f"{words[key]} must be {must}, was {shown(bound)}. Write {words.column(c.name, **line)}.")
    if absent or wrong:
        return
    if not c.lower < c.upper:
        if c.lower == c.upper:
            way = words.column(c.name, role="drop")
            why = "a column that holds one value says nothing"
        else:
            way = words.column(c.name, lower=c.upper, upper=c.lower)
            why = "they look exchanged"
        yield (
            f"{words['upper']} must be above {words['lower']} ({shown(c.lower)}), was "
            f"{shown(c.upper)}; {why}. Write {way}."
        )
    elif not c.width >= LEAST_WIDTH:
        yield (
            f"{words['upper']} minus {words['lower']} must be at least {LEAST_WIDTH:g}, and "
            f"{shown(c.upper)} minus {shown(c.lower)} is less. "
            "Give the column in a smaller unit, so that its numbers are larger."
        )


def _bound_problem(bound: Any, type_: str, largest: float) -> str | None:
    """Return what the bound must be, or None if it is."""
    if type_ == "date":
        plain = isinstance(bound, datetime.date) and not isinstance(bound, datetime.datetime)
        return None if plain else "a date (year-month-day)"
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
        return "a finite number"
    if abs(bound) > largest:
        return f"a number between {-largest:g} and {largest:g}, in whatever unit"
    if type_ == "integer" and not isinstance(bound, int):
        return "a whole number, as the type is integer"
    if type_ == "integer" and abs(bound) > _LARGEST_INTEGER:
        return "a whole number between -2**53 and 2**53"
    return None


def _has_range(c: Any) -> bool:
    """Whether the bounds are there and in order, so that rules about the range make sense."""
    if c.type not in ("number", "integer", "date") or c.lower is None or c.upper is None:
        return False
    sound = all(_bound_problem(bound, c.type, c.largest) is None for bound in (c.lower, c.upper))
    return sound and c.lower < c.upper and c.width >= LEAST_WIDTH


def _grid_problems(c: Any, words: Notation) -> Iterator[str]:
    if c.grid is None:
        return
    if c.type not in ("number", "integer", "date"):
        yield (f"{words['grid']} is a step between numbers, and this column holds none. Leave it out.")
        return
    if not _is_positive(c.grid):
        yield (
            f"{words['grid']} must be a positive number, was {shown(c.grid)}. "
            f"Write {words.column(c.name, grid=1)}, or leave it out."
        )
        return
    if c.type != "number" and not float(c.grid).is_integer():
        yield (
            f"{words['grid']} must be a whole number for a column of type {c.type}, was "
            f"{shown(c.grid)}. Write {words.column(c.name, grid=max(1, round(c.grid)))}."
        )
        return
    if not _has_range(c):
        return
    steps = c.width / c.grid
    if steps < 1:
        yield (
            f"{words['grid']} must not be larger than the range ({c.width:g}), was "
            f"{shown(c.grid)}. Write {words.column(c.name, grid=_step(c, 10))}."
        )
    # The declared decimal 0.1 is not the float 0.1: a billionth of a step forgives that.
    elif abs(steps - round(steps)) > 1e-9 * steps:
        yield (
            f"{words['grid']} must divide the range ({c.width:g}) into whole steps, and "
            f"{shown(c.grid)} makes {steps:.6g} of it. "
            f"Write {words.column(c.name, grid=_step(c, round(steps)))}."
        )


def _step(c: Any, steps: int) -> float:
    """Return a step that divides the range into about that many parts."""
    if c.type == "number":
        width = float(c.width)
        finer = (width / count for count in range(steps, steps + 1000))
        return next((step for step in finer if float(f"{step:.6g}") == step), width / steps)
    whole = round(c.width)
    wanted = max(1, round(whole / steps))
    smaller = range(wanted, max(wanted - 1000, 0), -1)
    return next((step for step in smaller if whole % step == 0), 1)


def _protect_problems(c: Any, words: Notation) -> Iterator[str]:
    if c.protect is None:
        return
    from discreet.schema.column import Protect

    p = c.protect
    if not isinstance(p, Protect) or (p.error is None) == (p.share is None):
        held = "both" if isinstance(p, Protect) and p.error is not None else "neither"
        yield (
            f"{words['protect']} must hold either error or share, and held {held}. "
            f"Write {words.column(c.name, protect={'error': Blank('<error in its unit>')})}."
        )
        return
    if c.role in ("public", "id", "drop"):
        yield (
            f"{words['protect']} is for columns that are sensitive or the target, and "
            f"{words['role']} was {c.role}. Leave it out, or write "
            f"{words.column(c.name, role='sensitive')}."
        )
        return
    if p.share is not None and not (_is_positive(p.share) and p.share <= 1):
        yield (
            f"{words['protect']}: share must be above 0 and at most 1, was {shown(p.share)}. "
            f"Write {words.column(c.name, protect={'share': 0.5})}."
        )
    if p.error is None:
        return
    if not _is_positive(p.error):
        yield (
            f"{words['protect']}: error must be a positive number, was {shown(p.error)}. "
            f"Write {words.column(c.name, protect={'error': Blank('<error in its unit>')})}."
        )
    elif _has_range(c) and p.error > c.width / 2:
        yield (
            f"{words['protect']}: error must be at most half the range ({c.width / 2:g}), was "
            f"{shown(p.error)}: guessing the middle never errs by more. "
            f"Write {words.column(c.name, protect={'error': Blank(f'<at most {c.width / 2:g}>')})}."
        )
    elif c.type == "category" and c.values and p.error > 1 - 1 / len(c.levels):
        count = len(c.levels)
        highest = f"{1 - 1 / count:.4g}"
        yield (
            f"{words['protect']}: error is the chance of a wrong guess and must be at most "
            f"{highest}, was {shown(p.error)}: guessing blindly among {count} levels is "
            f"wrong no more often. "
            f"Write {words.column(c.name, protect={'error': Blank(f'<at most {highest}>')})}."
        )


def _note_problems(c: Any, words: Notation) -> Iterator[str]:
    for key in ("measure", "bounds_source", "title", "description"):
        yield from text_problems(getattr(c, key), key, words)


def text_problems(text: Any, key: str, words: Notation) -> Iterator[str]:
    """Say whether a note for people is one."""
    if text is None:
        return
    if not isinstance(text, str) or not text.strip():
        yield f"{words[key]} must be a string with letters in it, was {shown(text)}. Leave it out."
    elif text == UNFILLED:
        yield f"{words[key]} must be filled in, and is {UNFILLED}, which marks what a draft leaves open."
    elif _hidden(text.replace("\n", "")):
        yield f"{words[key]} must be without control characters. Retype it."


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


def _listed(values: object) -> str:
    return shown(list(values) if isinstance(values, tuple) else values)


def _may_list(value: object) -> bool:
    return type(value) in (str, int, bool)


def _kind_name(value: object) -> str:
    names = {str: "string", int: "integer", bool: "boolean"}
    return names.get(type(value), type(value).__name__)


def _hidden(text: str) -> bool:
    """Whether a reader of a message or a file could not see what stands there."""
    return any(unicodedata.category(sign) in ("Cc", "Cs", "Zl", "Zp") for sign in text)
