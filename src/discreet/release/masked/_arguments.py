"""TODO."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import DataError, ParameterError
from discreet.learn.base import check_finite
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Ints

CHOICES: dict[str, tuple[str, ...]] = {
    "labels": ("prior", "noisy_counts", "true"),
    "mechanism": ("auto", "output", "objective"),
    "sensitivity": ("tight", "worst-case"),
    "construction": ("direct", "greedy"),
    "infeasible": ("shrink", "lambda", "error"),
}


_OWNER = "MaskedRelease"


def bare_schema(
    n_features: int, classes: Sequence[Any], bounds: tuple[Any, Any] | None, norm_bound: float | None
) -> Schema:
    """Declare a bare matrix: columns x1, x2, ... and labels y."""
    if bounds is None:
        assert norm_bound is not None
        bounds = (-float(norm_bound), float(norm_bound))
    try:
        lower, upper = (np.broadcast_to(np.asarray(side, np.float64), n_features) for side in bounds)
    except (TypeError, ValueError):
        raise ParameterError(
            f"bounds of MaskedRelease must be a pair of numbers or of vectors of length {n_features}. Write "
            "bounds=(0, 1), or one lower and one upper bound for each column."
        ) from None
    columns = [
        Column(f"x{j + 1}", lower=float(low), upper=float(high))
        for j, (low, high) in enumerate(zip(lower, upper, strict=True))
    ]
    return Schema(columns=[*columns, Column("y", values=tuple(classes), role="target")])


def read_labeled_matrix(
    X: Any, y: Any, classes: Sequence[Any] | None, bounds: tuple[Any, Any] | None, norm_bound: float | None
) -> tuple[Schema, dict[str, AnyArray]]:
    """Return a bare matrix with labels as columns, with the schema that it has."""
    if y is None:
        raise ParameterError(
            f"y of {_OWNER}.release must be given with a bare matrix: the points carry a classifier."
        )
    matrix = np.asarray(X, np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise DataError(
            f"X of {_OWNER}.release must be a matrix with at least one row, had shape {matrix.shape}."
        )
    if bounds is None:
        check_finite(matrix, f"X of {_OWNER}.release")
    declared = (-1, 1) if classes is None else tuple(np.unique(np.array(classes)).tolist())
    schema = bare_schema(matrix.shape[1], declared, bounds, norm_bound)
    labels = np.asarray(y)
    if labels.shape != (len(matrix),):
        raise ParameterError(
            f"y of {_OWNER}.release must have one entry for each of the {len(matrix)} rows, had shape "
            f"{labels.shape}."
        )
    rows: dict[str, AnyArray] = {
        c.name: matrix[:, j] if bounds is None else c.clip(matrix[:, j])
        for j, c in enumerate(schema.features)
    }
    if any(np.isnan(values).any() for values in rows.values()):
        raise DataError(f"X of {_OWNER}.release must have no missing cells, and has some.")
    rows["y"] = encode_labels(labels, schema.column("y"), f"y of {_OWNER}.release").astype(np.int32)
    return schema, rows


def read_initial_records(given: Any, schema: Schema, target: Column) -> tuple[dict[str, AnyArray], Ints]:
    """Return given records as encoded columns, and the codes of their labels."""
    columns = _columns_by_name(given, schema, target)
    found: dict[str, AnyArray] = {}
    for column in schema.features:
        values = columns[column.name]
        if column.is_category:
            found[column.name] = encode_labels(values, column, f"initial of {_OWNER}")
            continue
        numbers = np.asarray(values, np.float64)
        if column.required:
            check_finite(numbers, f"initial of {_OWNER}, column {column.name!r},")
        found[column.name] = numbers
    return found, encode_labels(columns[target.name], target, f"initial of {_OWNER}")


def _columns_by_name(given: Any, schema: Schema, target: Column) -> dict[str, AnyArray]:
    """Return given records as columns by name."""
    wrong = ParameterError(
        f"initial of {_OWNER} must be a pair of a matrix and its labels, or columns by name with the target "
        f"{target.name!r} among them, all of one length."
    )
    names = [column.name for column in schema.features]
    if isinstance(given, Mapping):
        found = {str(name): np.asarray(values) for name, values in given.items()}
    else:
        try:
            X, y = given
            matrix = np.asarray(X, np.float64)
            found = {name: matrix[:, j] for j, name in enumerate(names)}
            found[target.name] = np.asarray(y)
        except (TypeError, ValueError, IndexError):
            raise wrong from None
    if not {*names, target.name} <= set(found) or len({len(values) for values in found.values()}) != 1:
        raise wrong
    return found


def encode_labels(values: AnyArray, column: Column, where: str) -> Ints:
    """Return the position of each value in the levels of a column."""
    codes = np.full(len(values), -1, np.int64)
    for code, level in enumerate(column.levels):
        codes[np.asarray(values) == level] = code
    if (codes < 0).any():
        line = int(np.flatnonzero(codes < 0)[0]) + 1
        raise DataError(
            f"{where} must hold the declared values of {column.name!r} alone, and row {line} does not. Rows "
            "are counted from 1; declare every class.",
            column=column.name,
            line=line,
        )
    return codes


def plain_label(label: Any) -> Any:
    """Return a label as plain Python has it; a whole number as one."""
    label = label.item() if isinstance(label, np.generic) else label
    return int(label) if isinstance(label, float) and label.is_integer() else label


def is_finite_number(value: Any) -> bool:
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return plain and math.isfinite(value)
