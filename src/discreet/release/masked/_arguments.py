"""Arguments of a masked release: checks of the parameters, bare matrices with labels, and given records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.arguments import promise_hint
from discreet.errors import DataError, ParameterError, PromiseError
from discreet.learn.arguments import check_finite, is_number
from discreet.learn.svm import SMOOTHING
from discreet.privacy import NoPromise
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Ints
    from discreet.release.masked.method import MaskedRelease

_CHOICES: dict[str, tuple[str, ...]] = {
    "learner": ("logistic", "svm"),
    "labels": ("prior", "noisy_counts", "true"),
    "mechanism": ("auto", "output", "objective"),
    "sensitivity": ("tight", "worst-case"),
    "construction": ("direct", "greedy"),
    "infeasible": ("shrink", "lambda", "error"),
}
"""Allowed values of the parameters that name a choice."""


_OWNER = "MaskedRelease"


def bare_schema(
    n_features: int, classes: Sequence[Any], bounds: tuple[Any, Any] | None, norm_bound: float | None
) -> Schema:
    """Return the schema of a bare matrix: columns x1, x2, and so on, and labels y."""
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
    """Return schema and encoded columns of a bare matrix with labels.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Features of the rows, as numbers.
    y : array of shape (n_rows,)
        Labels of the rows, each one of ``classes``.
    classes : sequence or None
        Declared labels; None means -1 and 1.
    bounds : (lower, upper) or None
        Declared range of the columns, to which cells are clipped; None where ``norm_bound`` is given.
    norm_bound : float or None
        Declared largest norm of a row; None where ``bounds`` are given.
    """
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
    """Return given initial records as encoded columns, and the positions of their labels."""
    columns = _columns_by_name(given, schema, target)
    encoded: dict[str, AnyArray] = {}
    for column in schema.features:
        values = columns[column.name]
        if column.is_category:
            encoded[column.name] = encode_labels(values, column, f"initial of {_OWNER}")
            continue
        numbers = np.asarray(values, np.float64)
        if column.required:
            check_finite(numbers, f"initial of {_OWNER}, column {column.name!r},")
        encoded[column.name] = numbers
    return encoded, encode_labels(columns[target.name], target, f"initial of {_OWNER}")


def _columns_by_name(given: Any, schema: Schema, target: Column) -> dict[str, AnyArray]:
    """Return given records as columns by name; raise if columns are missing or of unequal length."""
    wrong = ParameterError(
        f"initial of {_OWNER} must be a pair of a matrix and its labels, or columns by name with the target "
        f"{target.name!r} among them, all of one length."
    )
    names = [column.name for column in schema.features]
    if isinstance(given, Mapping):
        columns = {str(name): np.asarray(values) for name, values in given.items()}
    else:
        try:
            X, y = given
            matrix = np.asarray(X, np.float64)
            columns = {name: matrix[:, j] for j, name in enumerate(names)}
            columns[target.name] = np.asarray(y)
        except (TypeError, ValueError, IndexError):
            raise wrong from None
    if not {*names, target.name} <= set(columns) or len({len(values) for values in columns.values()}) != 1:
        raise wrong
    return columns


def encode_labels(values: AnyArray, column: Column, where: str) -> Ints:
    """Return the position of each value in the levels of a column; raise if one is not declared."""
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
    """Return a label as a plain Python value, whole numbers as int."""
    label = label.item() if isinstance(label, np.generic) else label
    return int(label) if isinstance(label, float) and label.is_integer() else label


def check_parameters(method: MaskedRelease) -> None:
    """Raise if a parameter of a masked release is out of its domain, or contradicts another one."""
    where = type(method).__name__
    if not isinstance(method.privacy, method.accepts):
        raise PromiseError(
            f"privacy of {where} must be a PureDP, an ApproxDP or a NoPromise, was "
            f"{type(method.privacy).__name__}. "
            + (
                promise_hint(method.privacy, method.accepts)
                or "Its noise is on one classifier, which proves no floor."
            )
        )
    if method.privacy.neighbors != "replace-one":
        raise PromiseError(
            f"neighbors of the privacy of {where} must be 'replace-one', was "
            f"{method.privacy.neighbors!r}: the number of rows enters the noise. Ask for replace-one."
        )
    for name, allowed in _CHOICES.items():
        if getattr(method, name) not in allowed:
            raise ParameterError(
                f"{name} of {where} must be one of {', '.join(map(repr, allowed))}, was "
                f"{getattr(method, name)!r}."
            )
    if not SMOOTHING.contains(method.smoothing):
        raise ParameterError(f"smoothing of {where} must be {SMOOTHING.words}, was {method.smoothing!r}.")
    for name, value in (
        ("regularization", method.regularization),
        ("norm_bound", method.norm_bound),
        ("radius", method.radius),
    ):
        if value is not None and not (is_number(value) and value > 0):
            raise ParameterError(f"{name} of {where} must be a finite number above 0, was {value!r}.")
    if method.n_records is not None and not (
        isinstance(method.n_records, int | np.integer)
        and not isinstance(method.n_records, bool)
        and method.n_records >= 1
    ):
        raise ParameterError(
            f"n_records of {where} must be a whole number of at least 1, was {method.n_records!r}."
        )
    if not (is_number(method.count_share) and 0 < method.count_share < 1):
        raise ParameterError(
            f"count_share of {where} must be a number above 0 and below 1, was {method.count_share!r}. It "
            "is the part of epsilon that noisy counts get."
        )
    if method.fit_intercept not in (None, True, False):
        raise ParameterError(
            f"fit_intercept of {where} must be True, False or None, was {method.fit_intercept!r}."
        )
    if method.proportions is not None and method.labels != "prior":
        raise ParameterError(
            f"proportions of {where} must be left out unless labels='prior', which take them."
        )
    if method.labels == "true" and method.sensitive is not None:
        raise ParameterError(
            f"labels of {where} must be 'prior' where sensitive= names a class, which every point gets."
        )
    if method.labels == "noisy_counts" and (
        method.sensitive is not None or isinstance(method.privacy, NoPromise)
    ):
        raise ParameterError(
            f"labels of {where} must be 'prior' where sensitive= names a class, which is every point's, "
            "and where nothing is promised: counts have no epsilon then."
        )
