"""Checks of the declaration of a column, each with a line that corrects it.

Each check yields a sentence that names the column and the parameter, what it must be and what it
was, and then the line to write. Checks accept values of any type and continue after the first
finding, so that a person who corrects a file sees all problems at once.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from discreet.arguments import nearest
from discreet.schema.dialect import text_format_problems
from discreet.schema.notation import (
    Blank,
    Notation,
    drop_zero_fraction,
    has_control_characters,
    quote_value,
    text_problems,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from discreet.schema.column import Column

TYPES = ("number", "integer", "category", "date", "datetime", "id", "text")
STEPS = {"hour": 3600, "minute": 60, "second": 1}
"""Seconds of each step to which datetimes are read."""
NUMBERS = ("number", "integer", "date", "datetime")
"""Types of cells with an order and a distance."""
ROLES = ("sensitive", "target", "public", "id", "drop")
SCALES = ("linear", "log")
MOST_CELLS = 256
"""Largest number of classes into which a number or a date may be divided."""
_LEAST_LOG_STEPS = 10  # below, equal ratios of 1 + steps from 0 are hardly different from equal differences

# Every integer up to here is a float, so that scaling a declared integer is exact.
_LARGEST_INTEGER = 2**53
LARGEST_NUMBER, LEAST_WIDTH = 1e100, 1e-100
"""Largest bound of a number, and least range: noise around them, and its square, are still numbers."""
_LONGEST_NAME = 200
_FIRST_AND_SECOND = (Blank("<first>"), Blank("<second>"))
SMALLEST, LARGEST = Blank("<smallest possible>"), Blank("<largest possible>")


def column_problems(column: Column, notation: Notation) -> list[str]:
    """Return one sentence for each problem of a column."""
    problem = _name_problem(column.name)
    if problem:
        return [problem]
    rules = (
        _kind_problems,
        _values_problems,
        _bounds_problems,
        _step_problems,
        _grid_problems,
        _cells_problems,
        _scale_problems,
        _protect_problems,
        _note_problems,
        text_format_problems,
    )
    return [f"Column {column.name!r}: {sentence}" for rule in rules for sentence in rule(column, notation)]


def _name_problem(name: Any) -> str | None:
    if isinstance(name, str) and 0 < len(name) <= _LONGEST_NAME and name == name.strip():
        if not has_control_characters(name):
            return None
        rest = "without control characters"
    else:
        rest = f"of 1 to {_LONGEST_NAME} characters, without blanks around it"
    return (
        f"Column {quote_value(name)}: name must be a string {rest}, was {quote_value(name)}. "
        "Rename the column in the table and here."
    )


def _kind_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problems of type, role and required."""
    if c.role not in ROLES:
        yield (
            f"{notation['role']} must be one of {', '.join(ROLES)}, was {quote_value(c.role)}. "
            f"Write {notation.column(c.name, role=nearest(c.role, ROLES) or 'sensitive')}."
        )
    if c.type is None:
        yield (
            f"its bounds or its list of values must be declared, and neither was. Write "
            f"{notation.column(c.name, lower=SMALLEST, upper=LARGEST)}, or "
            f"{notation.column(c.name, values=_FIRST_AND_SECOND)}, or "
            f"{notation.column(c.name, role='drop')}."
        )
    elif c.type not in TYPES:
        yield (
            f"type must be one of {', '.join(TYPES)}, was {quote_value(c.type)}. "
            f"Write {notation.column(c.name, type=nearest(c.type, TYPES) or 'number')}."
        )
    if c.type == "text" and c.role not in ("drop", "id"):
        yield (
            f"free text cannot be protected, so {notation['role']} must be drop or id, was "
            f"{quote_value(c.role)}. Write {notation.column(c.name, role='drop')}, or list what it holds: "
            f"{notation.column(c.name, values=_FIRST_AND_SECOND)}."
        )
    if c.type == "id" and c.role not in ("id", "drop"):
        yield (
            f"an id is never released, so {notation['role']} must be id or drop, was "
            f"{quote_value(c.role)}. Write {notation.column(c.name, role='id')}."
        )
    if not isinstance(c.required, bool):
        yield (
            f"{notation['required']} must be true or false, was {quote_value(c.required)}. "
            f"Write {notation.column(c.name, required=True)} if no cell is ever empty."
        )


def _values_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problems of a list of values and of closed."""
    if c.closed is not None and not isinstance(c.closed, bool):
        yield (
            f"{notation['closed']} must be true or false, was {quote_value(c.closed)}. "
            f"Write {notation.column(c.name, closed=True)} if the list is complete."
        )
    if c.values is None:
        if c.type == "category" and c.role in ("sensitive", "target", "public"):
            yield (
                f"{notation['values']} must list everything a category may hold, and was left out. "
                f"Write {notation.column(c.name, values=_FIRST_AND_SECOND)}."
            )
        if c.closed is not None and c.type != "category":
            yield (f"{notation['closed']} is for lists of values, and this column has none. Leave it out.")
        return
    if c.type != "category":
        yield (
            f"{notation['values']} is for categories, and the type was {quote_value(c.type)}. Leave out the "
            "list, or declare the column as a category alone."
        )
        return
    if c.lower is not None or c.upper is not None:
        yield (
            f"a column has either bounds or {notation['values']}, and both were given. "
            f"Leave out {notation['lower']} and {notation['upper']}."
        )
    if not isinstance(c.values, tuple) or not c.values:
        yield (
            f"{notation['values']} must be a list of at least one value, was {_show_values(c.values)}. "
            f"Write {notation.column(c.name, values=_FIRST_AND_SECOND)}."
        )
        return
    yield from _list_problems(c, notation)


def _list_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problems of the values of a category: types, repeats, lengths, number of levels."""
    kinds = {type(value) for value in c.values}
    if not any(kinds == {kind} for kind in (str, int, bool)):
        odd = next(v for v in c.values if type(v) is not type(c.values[0]) or not _may_list(v))
        strings = tuple(str(v) for v in c.values if v is not None) or _FIRST_AND_SECOND
        missing = f" An empty cell is no value: write {notation.column(c.name, required=False)}."
        yield (
            f"{notation['values']} must be all strings, all integers or all booleans, and "
            f"{'one is null' if odd is None else f'{quote_value(odd)} is of type {_kind_name(odd)}'}. "
            f"Write {notation.column(c.name, values=strings)}.{missing if None in c.values else ''}"
        )
        return
    repeated = sorted(str(v) for v, times in Counter(c.values).items() if times > 1)
    if repeated:
        yield (
            f"{notation['values']} must not repeat a value, and {', '.join(map(quote_value, repeated))} "
            f"came twice. Write {notation.column(c.name, values=tuple(dict.fromkeys(c.values)))}."
        )
    hidden = [
        v for v in c.values if isinstance(v, str) and (has_control_characters(v) or len(v) > _LONGEST_NAME)
    ]
    if hidden:
        yield (
            f"{notation['values']} must hold strings of at most {_LONGEST_NAME} characters without "
            f"control characters, and {quote_value(hidden[0])} is none. Rename it in the table and here."
        )
    large = [v for v in c.values if isinstance(v, int) and abs(v) > _LARGEST_INTEGER]
    if large:
        yield (
            f"{notation['values']} must hold integers between -2**53 and 2**53, and "
            f"{quote_value(large[0])} is none. "
            f"Write {notation.column(c.name, values=tuple(str(v) for v in c.values))}."
        )
    if c.closed is False and kinds != {str}:
        yield (
            f"{notation['closed']} must be true for a list of {_kind_name(c.values[0])}s, was false: "
            "'other' beside them would turn the column into strings. Leave it out, or write "
            f"{notation.column(c.name, values=tuple(str(v) for v in c.values))}."
        )
    elif not repeated and c.role in ROLES and len(c.levels) < 2:
        yield (
            f"{notation['values']} must leave at least two levels to choose from, and "
            f"{quote_value(c.values[0])} is the only one. Write {notation.column(c.name, role='drop')}."
        )


def _bounds_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problems of the bounds of a number, an integer or a date."""
    given = {key: getattr(c, key) for key in ("lower", "upper")}
    absent = [key for key, bound in given.items() if bound is None]
    if c.type not in NUMBERS:
        if len(absent) < 2 and c.type in ("id", "text"):
            yield (
                "bounds are for numbers and dates, and this column holds neither. "
                f"Leave out {notation['lower']} and {notation['upper']}."
            )
        return
    if absent and (c.role in ("sensitive", "target", "public") or len(absent) == 1):
        blanks = {"lower": SMALLEST, "upper": LARGEST}
        line = {
            key: blanks[key] if bound is None or _bound_problem(bound, c.type, c.largest) else bound
            for key, bound in given.items()
        }
        yield (
            f"{' and '.join(notation[key] for key in absent)} must be declared, and "
            f"{'was' if len(absent) == 1 else 'were'} left out. "
            f"Write {notation.column(c.name, **line)}: the ends of what is possible, from a codebook, "
            "a law or an instrument, never from the rows."
        )
    wrong = False
    for key, bound in given.items():
        must = None if bound is None else _bound_problem(bound, c.type, c.largest)
        if must:
            wrong = True
            line = {key: SMALLEST if key == "lower" else LARGEST}
            yield (
                f"{notation[key]} must be {must}, was {quote_value(bound)}. "
                f"Write {notation.column(c.name, **line)}."
            )
    if absent or wrong:
        return
    if not c.lower < c.upper:
        if c.lower == c.upper:
            way = notation.column(c.name, role="drop")
            why = "a column that holds one value says nothing"
        else:
            way = notation.column(c.name, lower=c.upper, upper=c.lower)
            why = "they look exchanged"
        yield (
            f"{notation['upper']} must be above {notation['lower']} ({quote_value(c.lower)}), was "
            f"{quote_value(c.upper)}; {why}. Write {way}."
        )
    elif c.step in STEPS and (c.upper - c.lower) % c.step_length:
        upper = c.lower + (c.upper - c.lower) // c.step_length * c.step_length
        yield (
            f"{notation['upper']} must be a whole number of {c.step}s above {notation['lower']} "
            f"({quote_value(c.lower)}), was {quote_value(c.upper)}. Write "
            f"{notation.column(c.name, upper=upper if upper > c.lower else LARGEST)}, or a smaller "
            f"{notation['step']}."
        )
    elif not c.width >= LEAST_WIDTH:
        yield (
            f"{notation['upper']} minus {notation['lower']} must be at least {LEAST_WIDTH:g}, and "
            f"{quote_value(c.upper)} minus {quote_value(c.lower)} is less. "
            "Give the column in a smaller unit, so that its numbers are larger."
        )


def _bound_problem(bound: Any, type_: str, largest: float) -> str | None:
    """Return what the bound must be, or None if it is valid."""
    if type_ == "date":
        plain = isinstance(bound, datetime.date) and not isinstance(bound, datetime.datetime)
        return None if plain else "a date (year-month-day)"
    if type_ == "datetime":
        plain = isinstance(bound, datetime.datetime) and bound.tzinfo is None and not bound.microsecond
        return None if plain else "a datetime without a time zone (year-month-dayThour:minute)"
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
    """Return whether the bounds are valid and in order, so that the range can be checked."""
    if c.type not in NUMBERS or c.lower is None or c.upper is None:
        return False
    sound = all(_bound_problem(bound, c.type, c.largest) is None for bound in (c.lower, c.upper))
    return sound and c.lower < c.upper and c.width >= LEAST_WIDTH


def _step_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problem of a step that is unknown, or of a column that holds no datetimes."""
    if c.step is None or (c.type == "datetime" and c.step in STEPS):
        return
    if c.type == "datetime":
        yield (
            f"{notation['step']} must be {', '.join(STEPS)}, was {quote_value(c.step)}. "
            f"Write {notation.column(c.name, step=nearest(c.step, tuple(STEPS)) or 'minute')}."
        )
    else:
        yield f"{notation['step']} is for datetimes, and the type was {quote_value(c.type)}. Leave it out."


def _grid_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problem of a grid that is no positive step or does not divide the range."""
    if c.grid is None:
        return
    if c.type not in NUMBERS:
        yield (f"{notation['grid']} is a step between numbers, and this column holds none. Leave it out.")
        return
    if not _is_positive(c.grid):
        yield (
            f"{notation['grid']} must be a positive number, was {quote_value(c.grid)}. "
            f"Write {notation.column(c.name, grid=1)}, or leave it out."
        )
        return
    if c.type != "number" and not float(c.grid).is_integer():
        yield (
            f"{notation['grid']} must be a whole number for a column of type {c.type}, was "
            f"{quote_value(c.grid)}. Write {notation.column(c.name, grid=max(1, round(c.grid)))}."
        )
        return
    if not _has_range(c):
        return
    steps = c.width / c.grid
    if steps < 1:
        yield (
            f"{notation['grid']} must not be larger than the range ({c.width:g}), was "
            f"{quote_value(c.grid)}. Write {notation.column(c.name, grid=_step(c, 10))}."
        )
    # The declared decimal 0.1 is not the float 0.1: a billionth of a step forgives that.
    elif abs(steps - round(steps)) > 1e-9 * steps:
        yield (
            f"{notation['grid']} must divide the range ({c.width:g}) into whole steps, and "
            f"{quote_value(c.grid)} makes {steps:.6g} of it. "
            f"Write {notation.column(c.name, grid=_step(c, round(steps)))}."
        )


def _cells_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problem of cells that are not rising values within the bounds."""
    if c.cells is None:
        return
    if c.type not in NUMBERS:
        own = " The listed values are the cells of a category." if c.type == "category" else ""
        yield (
            f"{notation['cells']} is for numbers and dates, and this column holds neither.{own} Leave it out."
        )
        return
    if c.scale is not None:
        yield (
            f"a column has either {notation['cells']} or {notation['scale']}, which says how to find cells, "
            f"and both were given. Leave out {notation['scale']}."
        )
    if not _has_range(c):
        return
    edges = c.cells if isinstance(c.cells, tuple) else ()
    wrong = [edge for edge in edges if _bound_problem(edge, c.type, c.largest)]
    rising = not wrong and all(a < b for a, b in itertools.pairwise((c.lower, *edges)))
    if not edges or len(edges) >= MOST_CELLS or not rising or edges[-1] > c.upper:
        kind = {"integer": "whole numbers", "date": "dates", "datetime": "datetimes"}.get(c.type, "numbers")
        first = (Blank("<where the second begins>"), Blank("<where the third begins>"))
        yield (
            f"{notation['cells']} must be 1 to {MOST_CELLS - 1} rising {kind} above the lower bound "
            f"({quote_value(c.lower)}) and up to the upper ({quote_value(c.upper)}), was "
            f"{_show_values(c.cells)}. Write {notation.column(c.name, cells=first)}."
        )


def _scale_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problem of a scale that is unknown, or logarithmic where there are no ratios."""
    if c.scale is None:
        return
    if c.scale not in SCALES:
        close = nearest(c.scale, SCALES) or "log"
        yield (
            f"{notation['scale']} must be {' or '.join(SCALES)}, was {quote_value(c.scale)}. "
            f"Write {notation.column(c.name, scale=close)}, or leave it out."
        )
        return
    if c.type not in NUMBERS:
        yield f"{notation['scale']} is for numbers and dates, and this column holds neither. Leave it out."
        return
    if c.scale == "linear" or not _has_range(c):
        return
    lower, _ = c.range
    step = 1 if c.grid is None or not _is_positive(c.grid) else c.grid
    if lower < 0:
        yield (
            f"{notation['scale']} must be linear for a column with negative values, was 'log', and the lower "
            f"bound was {quote_value(c.lower)}. Leave it out."
        )
    elif lower == 0 and c.width / step < _LEAST_LOG_STEPS:
        yield (
            f"{notation['scale']} must be linear for a column that begins at 0 and has fewer than "
            f"{_LEAST_LOG_STEPS} steps of {quote_value(step)}, was 'log': ratios to 0 do not exist, so steps "
            "are counted from there. Leave it out, or declare a lower bound above 0 or a finer "
            f"{notation['grid']}."
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


def _protect_problems(c: Any, notation: Notation) -> Iterator[str]:
    """Yield the problems of a protected error or share."""
    if c.protect is None:
        return
    from discreet.schema.column import Protect

    p = c.protect
    if not isinstance(p, Protect) or (p.error is None) == (p.share is None):
        held = "both" if isinstance(p, Protect) and p.error is not None else "neither"
        yield (
            f"{notation['protect']} must hold either error or share, and held {held}. "
            f"Write {notation.column(c.name, protect={'error': Blank('<error in its unit>')})}."
        )
        return
    if c.role in ("public", "id", "drop"):
        yield (
            f"{notation['protect']} is for columns that are sensitive or the target, and "
            f"{notation['role']} was {c.role}. Leave it out, or write "
            f"{notation.column(c.name, role='sensitive')}."
        )
        return
    if p.share is not None and not (_is_positive(p.share) and p.share <= 1):
        yield (
            f"{notation['protect']}: share must be above 0 and at most 1, was {quote_value(p.share)}. "
            f"Write {notation.column(c.name, protect={'share': 0.5})}."
        )
    if p.error is None:
        return
    if not _is_positive(p.error):
        yield (
            f"{notation['protect']}: error must be a positive number, was {quote_value(p.error)}. "
            f"Write {notation.column(c.name, protect={'error': Blank('<error in its unit>')})}."
        )
    elif _has_range(c) and p.error > c.width / 2:
        yield (
            f"{notation['protect']}: error must be at most half the range ({c.width / 2:g}), was "
            f"{quote_value(p.error)}: guessing the middle never errs by more. "
            f"Write {notation.column(c.name, protect={'error': Blank(f'<at most {c.width / 2:g}>')})}."
        )
    elif c.type == "category" and c.values and p.error > 1 - 1 / len(c.levels):
        count = len(c.levels)
        highest = f"{1 - 1 / count:.4g}"
        yield (
            f"{notation['protect']}: error is the chance of a wrong guess and must be at most "
            f"{highest}, was {quote_value(p.error)}: guessing blindly among {count} levels is "
            f"wrong no more often. "
            f"Write {notation.column(c.name, protect={'error': Blank(f'<at most {highest}>')})}."
        )


def _note_problems(c: Any, notation: Notation) -> Iterator[str]:
    for key in ("measure", "bounds_source", "title", "description"):
        yield from text_problems(getattr(c, key), key, notation)


def _is_positive(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and value > 0


def _show_values(values: object) -> str:
    if not isinstance(values, tuple):
        return quote_value(values)
    return quote_value(
        [v.isoformat() if isinstance(v, datetime.date) else drop_zero_fraction(v) for v in values]
    )


def _may_list(value: object) -> bool:
    return type(value) in (str, int, bool)


def _kind_name(value: object) -> str:
    names = {str: "string", int: "integer", bool: "boolean"}
    return names.get(type(value), type(value).__name__)
