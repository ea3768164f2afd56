"""The released table as a learner sees it: numbers, and nothing else that noise could not be added to."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import SchemaError
from discreet.schema import Column

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._typing import AnyArray, Floats
    from discreet.schema import Schema


def encoded_schema(schema: Schema) -> Schema:
    """Return the schema of the encoded table.

    A sensitive category becomes one number from 0 to 1 for each level, called ``name=level``; a sensitive
    number that may be missing gets its flag as a second one. Everything else stays.
    """
    columns: list[Column] = []
    for column in schema.columns:
        if column.role == "sensitive":
            columns += _encoded(column)
        elif column.leaves and column.is_number and not column.required:
            raise SchemaError(
                f"Column {column.name!r} must be required for an invariant release: it is published as it "
                "is, and a model cannot be trained on missing cells. Declare required=True, or drop the "
                "column."
            )
        else:
            columns.append(column)
    names = {column.name for column in columns}
    key = schema.primary_key if set(schema.primary_key) <= names else ()
    return dataclasses.replace(schema, columns=columns, primary_key=key)


def encoded_rows(schema: Schema, rows: Mapping[str, AnyArray]) -> dict[str, AnyArray]:
    """Return the columns that :func:`encoded_schema` declares."""
    out: dict[str, AnyArray] = {}
    for column in schema.released:
        values = rows[column.name]
        if column.role != "sensitive":
            out[column.name] = values
        elif column.is_category:
            for code, made in enumerate(_encoded(column)):
                out[made.name] = (values == code).astype(np.float64)
        else:
            missing = np.isnan(values)
            out[column.name] = np.where(missing, column.fill, values)
            if column.missing_flag is not None:
                out[column.missing_flag] = missing.astype(np.float64)
    return out


def _encoded(column: Column) -> list[Column]:
    if column.is_category:
        words = ["missing" if level is None else str(level) for level in column.levels]
        return [_share(f"{column.name}={word}") for word in words]
    if column.missing_flag is None:
        return [column]
    return [dataclasses.replace(column, required=True), _share(column.missing_flag)]


def _share(name: str) -> Column:
    return Column(name, lower=0.0, upper=1.0)


def origin(name: str, schema: Schema) -> str:
    """Return the declared column from which an encoded one comes."""
    for column in schema.released:
        if any(made.name == name for made in _encoded(column)):
            return column.name
    return name


def matrix(columns: Mapping[str, AnyArray], schema: Schema) -> Floats:
    """Return the features that a model is trained on, in the order of ``schema.numeric_features``."""
    return np.column_stack([columns[c.name] for c in schema.numeric_features]).astype(np.float64, copy=False)
