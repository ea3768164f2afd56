"""A program on arrays: the same operations as in SQL, with the same bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import AnyArray
    from discreet.query.expression.program import Kind, Operation, Program

Columns: TypeAlias = Mapping[str, "AnyArray"]

_UFUNCS: dict[Kind, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "negate": np.negative, "multiply": np.multiply,
    "divide": np.divide, "sqrt": np.sqrt, "floor": np.floor, "absolute": np.abs,
    "least": np.minimum, "greatest": np.maximum, "select": np.where,
    "less": np.less, "less_equal": np.less_equal, "equal": np.equal, "not_equal": np.not_equal,
}  # fmt: skip


def values(program: Program, columns: Columns, place: int | None = None) -> list[Any]:
    """Carry out a program.

    Parameters
    ----------
    program : Program
        What is computed.
    columns : mapping of str to array
        The integers of the curated columns, by declared name; flags as ``<name>_missing``.
    place : int, optional
        The value that is wanted; by default all are.

    Returns
    -------
    list
        An array for each operation, or a scalar where all rows have the same value; None for what was
        not needed.
    """
    needed = _needed(program, place)
    results: list[Any] = []
    for at, operation in enumerate(program.operations):
        inputs = [results[used] for used in operation.inputs] if at in needed else []
        results.append(_result(operation, inputs, columns) if at in needed else None)
    return results


def _needed(program: Program, place: int | None) -> set[int]:
    if place is None:
        return set(range(len(program.operations)))
    needed = {place}
    for at in range(place, -1, -1):
        if at in needed:
            needed.update(program.operations[at].inputs)
    return needed


def _result(operation: Operation, inputs: list[Any], columns: Columns) -> Any:
    kind, detail = operation.kind, operation.detail
    if kind == "constant":
        return np.float64(detail[0])
    if kind == "truth":
        return np.bool_(detail[0])
    if kind == "column":
        return columns[str(detail[0])].astype(np.float64)
    if kind == "lookup":
        return np.array(detail[1], np.float64)[columns[str(detail[0])]]
    if kind == "member":
        return np.isin(columns[str(detail[0])], np.array(detail[1], np.int64))
    if kind == "ladder":
        thresholds, chosen = detail
        return np.array(chosen, np.float64)[np.searchsorted(np.array(thresholds), inputs[0], side="right")]
    if kind in ("every", "some"):
        return functools.reduce(np.logical_and if kind == "every" else np.logical_or, inputs)
    return _UFUNCS[kind](*inputs)
