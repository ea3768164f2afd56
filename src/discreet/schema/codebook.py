"""Codebooks: tables with one line for each column, read into the keys of fields of a schema file.

Headings may be those of common codebooks in English and German, and of REDCap's data dictionary. A codebook
is a public document, so messages quote it.
"""

from __future__ import annotations

import contextlib
import datetime
import re
from typing import TYPE_CHECKING, Any

from discreet.arguments import nearest
from discreet.errors import SchemaError
from discreet.schema.column_checks import ROLES
from discreet.schema.name_hints import simplify_name
from discreet.schema.notation import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_HEADINGS = {
    "name": (
        "name variable variable_name variable_field_name var varname column column_name field "
        "field_name spalte spaltenname variablenname merkmal"
    ),
    "label": (
        "label title variable_label field_label question question_text bezeichnung titel frage "
        "fragetext etikett"
    ),
    "description": "description note notes comment remark beschreibung bemerkung anmerkung erlaeuterung",
    "type": "type data_type datatype format_type typ datentyp skalenniveau",
    "lower": (
        "lower min minimum lower_bound from low smallest text_validation_min von untergrenze kleinster_wert"
    ),
    "upper": (
        "upper max maximum upper_bound to high largest text_validation_max bis obergrenze groesster_wert"
    ),
    "range": "range valid_range value_range allowed_range wertebereich bereich gueltiger_bereich",
    "values": (
        "values value codes categories levels options choices enum value_labels allowed_values "
        "permitted_values choices_calculations_or_slider_labels werte wert kategorien auspraegungen "
        "codierung kodierung wertelabels"
    ),
    "missing": (
        "missing missings missing_values missing_codes missing_value na_values missing_value_codes "
        "fehlend fehlende fehlwerte fehlende_werte fehlcodes"
    ),
    "unit": "unit units measure unit_of_measurement einheit masseinheit",
    "role": "role privacy_role rolle",
}
_HEADING_OF = {synonym: key for key, synonyms in _HEADINGS.items() for synonym in synonyms.split()}
_TYPES = {
    "number": (
        "number numeric float double real decimal continuous metric zahl numerisch metrisch stetig "
        "dezimalzahl"
    ),
    "integer": "integer int whole count ganzzahl ganze_zahl",
    "string": (
        "string text character char varchar categorical category nominal ordinal factor radio "
        "dropdown kategorial zeichenkette"
    ),
    "boolean": "boolean bool logical yesno truefalse wahrheitswert",
    "date": "date day datum",
    "datetime": "datetime timestamp zeitstempel datum_uhrzeit",
}
_TYPE_OF = {synonym: key for key, synonyms in _TYPES.items() for synonym in synonyms.split()}
_NUMBER, _DAY = r"[-+]?\d+(?:[.,]\d+)?", r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?)?"
_BETWEEN = r"\s*(?:-|–|\.\.+|to|bis)\s*"


class _Problem(ValueError):
    """What is wrong with one cell of a codebook."""


def read_codebook(rows: Iterable[Sequence[str | None]], label: str) -> dict[str, dict[str, Any]]:
    """Return what a codebook says about each column, as keys of fields of a schema file.

    Parameters
    ----------
    rows : iterable of sequence of str or None
        Lines of the codebook as texts, the headings first; None for an empty cell.
    label : str
        Name of the codebook, which becomes the source of the bounds that it gives.

    Raises
    ------
    SchemaError
        With one sentence for each cell that cannot be read, which names its line.
    """
    lines = enumerate(rows, start=1)
    headings = _read_headings(next(lines, (1, ()))[1], label)
    fields: dict[str, dict[str, Any]] = {}
    problems: list[str] = []
    for number, row in lines:
        cells = {key: (row[place] or "").strip() for place, key in headings.items() if place < len(row)}
        cells = {key: cell for key, cell in cells.items() if cell}
        name = cells.pop("name", None)
        if name is None:
            if cells:
                problems.append(f"{label}, line {number}: name must be given, and is empty. Write it.")
        elif name in fields:
            problems.append(
                f"{label}, line {number}: {name!r} must have one line, and has another. Leave one out."
            )
        else:
            where = f"{label}, line {number}, column {name!r}"
            fields[name] = _read_line(cells, label, where, problems)
    if problems:
        raise SchemaError(*problems)
    return fields


def _read_headings(first: Sequence[str | None], label: str) -> dict[int, str]:
    """Return which place of a line holds what; refuses headings without names, or one key twice."""
    found: dict[int, str] = {}
    for place, heading in enumerate(first):
        key = _HEADING_OF.get(simplify_name(heading or ""))
        if key is not None and key not in found.values():
            found[place] = key
    if "name" not in found.values():
        was = ", ".join(repr(heading) for heading in first if heading) or "nothing"
        raise SchemaError(
            f"{label}, line 1: one heading must be name (or variable, column, field, Spalte), and they were "
            f"{was}. Others that are read are {', '.join(key for key in _HEADINGS if key != 'name')}."
        )
    return found


def _read_line(cells: dict[str, str], label: str, where: str, problems: list[str]) -> dict[str, Any]:
    """Return the keys of a field from the cells of one line; append what cannot be read to the problems."""
    readers = {"type": _read_type, "lower": _read_bound, "upper": _read_bound, "range": _read_range,
               "values": _read_values, "missing": _read_list, "role": _read_role}  # fmt: skip
    read: dict[str, Any] = {}
    for key, cell in cells.items():
        try:
            read[key] = readers[key](cell) if key in readers else cell
        except _Problem as problem:
            problems.append(f"{where}: {key} must be {problem}, was {quote_value(cell)}.")
    kind, constraints = _read_constraints(read)
    for one, other in (("lower", "upper"), ("upper", "lower")):
        if one in cells and not cells.keys() & {other, "range", "values"}:
            problems.append(
                f"{where}: {other} must be given beside {one}, and is empty. Write both, or neither."
            )
    privacy = {"role": read.get("role"), "measure": read.get("unit")}
    if constraints.keys() & {"minimum", "enum"}:
        privacy["bounds_source"] = label
    missing = [code for code, _ in read.get("missing", ())]
    field = {
        "type": kind,
        "title": read.get("label"),
        "description": ". ".join(filter(None, (read.get("description"), _describe_values(read)))),
        "missingValues": missing,
        "constraints": constraints,
        "privacy": {key: value for key, value in privacy.items() if value is not None},
    }
    return {key: value for key, value in field.items() if value}


def _read_constraints(read: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Return the type that a line gives, None for that of the table, and bounds or list.

    Codes of missing cells are no values of the list; where there are some, cells may be missing.
    """
    missing = {code for code, _ in read.get("missing", ())}
    constraints: dict[str, Any] = {"required": False} if missing else {}
    listed, ends = read.get("values", []), read.get("range", (None, None))
    if isinstance(listed, tuple):  # a range such as 1-5 under the heading of values
        listed, ends = [], listed
    codes = [code for code, _ in listed if code not in missing]
    if codes:
        whole = all(re.fullmatch(r"-?(?:0|[1-9]\d*)", code) for code in codes)
        constraints["enum"] = [int(code) if whole else code for code in codes]
        return "integer" if whole else "string", constraints
    lower, upper = read.get("lower", ends[0]), read.get("upper", ends[1])
    given = {"minimum": lower, "maximum": upper}
    constraints |= {key: bound for key, bound in given.items() if bound is not None}
    if isinstance(lower, str) or isinstance(upper, str):
        timed = any(isinstance(bound, str) and len(bound) > len("2024-12-31") for bound in (lower, upper))
        return "datetime" if timed or read.get("type") == "datetime" else "date", constraints
    if isinstance(lower, float) or isinstance(upper, float):
        return "number", constraints
    return read.get("type"), constraints


def _describe_values(read: dict[str, Any]) -> str:
    """Return what listed values mean, as a text; empty where they have no meanings."""
    listed = read.get("values", [])
    missing = {code for code, _ in read.get("missing", ())}
    pairs = [] if isinstance(listed, tuple) else listed
    return "; ".join(f"{code} = {text}" for code, text in pairs if text and code not in missing)


def _read_type(cell: str) -> str:
    found = _TYPE_OF.get(simplify_name(cell))
    if found is None:
        raise _Problem(f"one of {', '.join(_TYPES)}")
    return found


def _read_role(cell: str) -> str:
    if cell.casefold() in ROLES:
        return cell.casefold()
    close = nearest(cell, ROLES)
    raise _Problem(f"one of {', '.join(ROLES)}{f' (did you mean {close}?)' if close else ''}")


def _read_bound(cell: str) -> int | float | str:
    """Return a number, or a date or datetime as its text."""
    if re.fullmatch(_NUMBER, cell):
        return int(cell) if re.fullmatch(r"[-+]?\d+", cell) else float(cell.replace(",", "."))
    try:
        return datetime.date.fromisoformat(cell).isoformat()
    except ValueError:
        if re.fullmatch(_DAY, cell):
            with contextlib.suppress(ValueError):
                return datetime.datetime.fromisoformat(cell).isoformat(timespec="auto")
        raise _Problem("a number, or a date such as 2024-12-31 or 2024-12-31T23:59") from None


def _read_range(cell: str) -> tuple[Any, Any]:
    """Return the two ends of a range."""
    found = re.fullmatch(rf"\[?\s*({_NUMBER}|{_DAY})(?:{_BETWEEN}|\s*[,;]\s*)({_NUMBER}|{_DAY})\s*\]?", cell)
    if found is None:
        raise _Problem("two numbers or dates, such as 1-5 or 0 to 120")
    return _read_bound(found[1]), _read_bound(found[2])


def _read_values(cell: str) -> list[tuple[str, str]] | tuple[Any, Any]:
    """Return listed values with their meanings, or the ends of a range of numbers such as 1-5."""
    span = re.fullmatch(rf"({_NUMBER}){_BETWEEN}({_NUMBER})", cell)
    if span is not None:
        return _read_bound(span[1]), _read_bound(span[2])
    return _read_list(cell)


def _read_list(cell: str) -> list[tuple[str, str]]:
    """Return values with their meanings: ``1=low; 2=high``, ``1, low | 2, high`` or ``low, high``."""
    sign = next((sign for sign in ("|", "\n", ";") if sign in cell), ",")
    pairs = list(_split_values(cell, sign))
    codes = [code for code, _ in pairs]
    if not codes or len(set(codes)) < len(codes):
        raise _Problem("different values, such as 1=low; 2=high")
    return pairs


def _split_values(cell: str, sign: str) -> Iterator[tuple[str, str]]:
    """Yield each value and its meaning."""
    for part in cell.strip("[]").split(sign):
        signs = r"=|:" if sign == "," else r"=|:|,"
        code, _, text = re.sub(rf"\s*(?:{signs})\s*", "\0", part.strip(), count=1).partition("\0")
        code = code.strip().strip("\"'")
        if code:
            yield code, text.strip()
