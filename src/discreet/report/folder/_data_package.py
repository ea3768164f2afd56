"""Data dictionary of a released table as a Frictionless data package: ``datapackage.json``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from discreet.formatting import count_noun
from discreet.report.statement.documents import write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.report.statement.documents import ColumnNumbers, DeclaredBound, Statement

PROFILE = "https://datapackage.org/profiles/2.0/"
_CAUTIONS = {
    "noise": "Numbers of readable.csv are clamped to their declared ranges and rounded, so that means and "
    "variances of columns with noise are biased: take them from data.parquet by discreet.load_release.",
    "synthetic": "Rows are made up, and do not show how uncertain a number is: take counts, shares and means "
    "with intervals from tables.json by discreet.load_release.",
    "masked": "Numbers of readable.csv are rounded, which moves the model: train on data.parquet.",
    "invariant": "Numbers of readable.csv are clamped and rounded, which moves the model: train on "
    "data.parquet.",
    "clear": "Cells are those of data.parquet.",
}
_TYPES = {
    "number": "number", "integer": "integer", "text": "string", "boolean": "boolean", "date": "date",
    "datetime": "datetime",
}  # fmt: skip
_JSON_FILES = {
    "tables.json": "Every noisy answer with its standard deviation.",
    "model.json": "The model from which the rows are drawn, made of these answers.",
    "prior.json": "Counts of public rows that attackers were assumed to know, for the figures of the risk.",
}


def rows_kind(statement: Statement) -> str:
    """Return which rows a release has: made up (two kinds), true ones with noise, or true ones without."""
    kinds = {str(column.law["kind"]) for column in statement.numbers.columns}
    for kind in ("synthetic", "masked", "invariant"):
        if any(found.startswith(kind) for found in kinds):
            return kind
    return "clear" if kinds <= {"clear"} else "noise"


def caution(statement: Statement) -> str:
    """Return what a recipient has to know about the readable copy, in one sentence."""
    return _CAUTIONS[rows_kind(statement)]


def readable_type(column: ColumnNumbers) -> str:
    """Return what the cells of a column are in the readable copy: as declared, unless copied as they are."""
    return column.holds if column.step is None else column.type


def data_package(statement: Statement) -> str:
    """Return the content of ``datapackage.json``: a function of the statement alone.

    Privacy
    -------
    Says what the statement says, and nothing else.
    """
    what, files = statement.what, statement.files
    columns, bounds = statement.numbers.columns, {bound.column: bound for bound in statement.bounds}
    rows = count_noun(what.rows_published, "row")
    package: dict[str, Any] = {
        "$schema": PROFILE + "datapackage.json",
        "name": _identifier(what.release),
        "title": what.release,
        "description": " ".join(filter(None, [what.purpose, *statement.definition.sentences])),
        "created": what.created,
        "resources": [
            {
                **_file("readable", "readable.csv", files),
                "description": f"{rows} to read and plot. {caution(statement)}",
                "type": "table",
                "format": "csv",
                "mediatype": "text/csv",
                "encoding": "utf-8",
                "schema": _schema([_readable_field(c, bounds.get(c.column)) for c in columns]),
            },
            {
                **_file("data", "data.parquet", files),
                "description": f"{rows} as published, with all digits; a missing cell is a null.",
                "type": "table",
                "format": "parquet",
                "mediatype": "application/vnd.apache.parquet",
                "schema": _schema([_published_field(c) for c in columns]),
            },
            *(
                {
                    **_file(name.removesuffix(".json"), name, files),
                    "description": described,
                    "format": "json",
                    "mediatype": "application/json",
                }
                for name, described in _JSON_FILES.items()
                if name in files
            ),
        ],
    }
    if what.curator is not None:
        package["contributors"] = [{"title": what.curator, "roles": ["publisher"]}]
    if what.license is not None:
        package["licenses"] = [_license(what.license)]
    return write_json(package)


def _file(name: str, path: str, files: Mapping[str, str]) -> dict[str, Any]:
    parts = sorted(part for part in files if part.startswith(f"{path}/"))
    if parts:  # a table in parts, whose hashes are in the statement
        return {"name": name, "path": parts}
    return {"name": name, "path": path, "hash": f"sha256:{files.get(path, '')}"}


def _schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "$schema": PROFILE + "tableschema.json",
        "fields": fields,
        "missingValues": [""],
    }


def _readable_field(column: ColumnNumbers, bound: DeclaredBound | None) -> dict[str, Any]:
    """Return a column of the readable copy, whose cells fulfill the declared constraints."""
    kind = readable_type(column)
    constraints = _constraints(column)
    if column.levels is None:
        ends: tuple[Any, ...] = (column.lower, column.upper)
        if kind in ("date", "datetime") and bound is not None:
            ends = (bound.lower, bound.upper)
        elif kind == "integer":
            ends = tuple(None if end is None else int(end) for end in ends)
        constraints |= {
            key: end for key, end in zip(("minimum", "maximum"), ends, strict=True) if end is not None
        }
    field = _field(column, kind, constraints)
    if kind == "datetime":
        field["format"] = "%Y-%m-%d %H:%M:%S"
    return field if column.step is None else field | {"privacy": {"step": column.step}}


def _published_field(column: ColumnNumbers) -> dict[str, Any]:
    """Return a column of the published file with its noise law and what that proves."""
    stated = column.model_dump(
        include={"role", "law", "law_in_words", "origin", "floor", "without", "epsilon"}
    )
    return _field(column, column.holds, _constraints(column)) | {
        "privacy": {key: value for key, value in stated.items() if value is not None}
    }


def _field(column: ColumnNumbers, kind: str, constraints: dict[str, Any]) -> dict[str, Any]:
    unit = {} if column.measure is None or column.levels is not None else {"unit": column.measure}
    return {
        "name": column.column,
        "type": _TYPES[kind],
        "description": column.sentence,
        **unit,
        "constraints": constraints,
    }


def _constraints(column: ColumnNumbers) -> dict[str, Any]:
    if column.levels is None:
        # A number that only some rows show is empty in the others.
        return {"required": not column.missing and column.law["kind"] != "sampled"}
    listed = [level for level in column.levels if level is not None]
    return {"required": len(listed) == len(column.levels), "enum": listed}


def _identifier(text: str) -> str:
    """Return a text with the characters of a name in a data package."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-") or "table"


def _license(text: str) -> dict[str, str]:
    """Return the curator's word for the terms: an address, or a title with a name made of it."""
    if re.match(r"https?://", text):
        return {"path": text}
    return {"name": re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-") or "other", "title": text}
