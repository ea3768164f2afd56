"""Tables in memory: frames of pandas, polars and pyarrow, DuckDB relations, numpy arrays.

None of those packages is needed; what a user has is recognized through narwhals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import duckdb
import narwhals as nw
import numpy as np

from discreet.errors import ParameterError, SourceError
from discreet.tables.engine import borrow, connect
from discreet.tables.source import DuckSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._typing import AnyArray


_SMALL = 1 << 16
"""Rows up to which a table is scanned by one thread, in an instance that is open already."""


class MemorySource(DuckSource):
    """An object that DuckDB scans in place, batch by batch."""

    def __init__(self, held: Any, names: Sequence[str], label: str, n_rows: int | None = None) -> None:
        self._held = held
        small = n_rows is not None and n_rows <= _SMALL
        super().__init__(borrow() if small else connect(), "held", label=label, names=names)

    def _prepare(self, cursor: duckdb.DuckDBPyConnection) -> None:
        cursor.register("held", self._held)


class _ArrowOnly:
    """A frame of which DuckDB sees the Arrow stream alone, which needs no pyarrow."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self._frame.__arrow_c_stream__(requested_schema)


def open_memory(source: Any) -> MemorySource:
    """Open a frame, a relation or a mapping of arrays."""
    if isinstance(source, duckdb.DuckDBPyRelation):
        return MemorySource(_ArrowOnly(source), source.columns, "The DuckDB relation")
    if isinstance(source, Mapping):
        return _open_arrays(source)
    try:
        frame = nw.from_native(source)
    except TypeError:
        raise ParameterError(
            "open_table: source must be a path, a URL, a frame of pandas, polars or pyarrow, a "
            f"DuckDB relation or a mapping of arrays, was {type(source).__name__}. Write the table "
            "to a Parquet file and give its path."
        ) from None
    except Exception as problem:  # narwhals raises pandas' and its own for names that stand twice
        raise SourceError(
            f"open_table: source must be a frame whose column names differ, and narwhals refuses "
            f"this {type(source).__name__} ({type(problem).__name__}). Rename its columns."
        ) from None
    if isinstance(frame, nw.LazyFrame):
        raise ParameterError(
            f"open_table: source must hold its rows, and a lazy {type(source).__name__} does not. "
            "Call its collect() first, or give the path of the file behind it."
        )
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise SourceError(
            "open_table: source must have strings for column names, and this frame has others. "
            "Rename its columns."
        )
    # pandas needs pyarrow for its Arrow stream; DuckDB reads its columns without.
    held = source if frame.implementation.is_pandas() else _ArrowOnly(source)
    return MemorySource(held, names, f"The {frame.implementation.name.lower()} frame", len(frame))


def _open_arrays(source: Mapping[Any, Any]) -> MemorySource:
    held: dict[str, AnyArray] = {}
    for i, (name, values) in enumerate(source.items()):
        held[f"c{i}"] = array = _scannable(name, values)
        if len(array) != len(held["c0"]):
            raise SourceError(
                f"open_table: source must have columns of one length, and {name!r} has "
                f"{len(array)} rows where the first has {len(held['c0'])}."
            )
    if not held:
        raise SourceError("open_table: source must have a column, and this mapping is empty.")
    return MemorySource(held, list(source), "The mapping of arrays", len(held["c0"]))


def _scannable(name: object, values: Any) -> AnyArray:
    """Bring an array into one of the types that DuckDB scans."""
    if not isinstance(name, str):
        raise SourceError(f"open_table: column names must be strings, and {name!r} is not.")
    array = values if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    if array.ndim != 1:
        raise SourceError(
            f"open_table: column {name!r} must be one-dimensional, had shape {array.shape}. Give "
            "each column of a matrix a name of its own."
        )
    if array.strides[0] <= 0:
        array = array.copy()  # DuckDB walks through memory upward
    kind = array.dtype.kind
    if kind in "bui":
        return np.asanyarray(array, array.dtype.newbyteorder("="))
    if kind == "f":
        return np.asanyarray(array, np.float64)
    if kind == "M":
        return np.asanyarray(array, "datetime64[us]")
    if kind in "UOT":
        cells = [None if _is_missing(cell) else str(cell) for cell in array.tolist()]
        text = np.empty(len(cells), dtype=object)
        text[:] = cells
        return text
    raise SourceError(
        f"open_table: column {name!r} must hold numbers, booleans, dates or strings, was of dtype "
        f"{array.dtype}. Convert it."
    )


def _is_missing(cell: object) -> bool:
    if cell is None:
        return True
    if isinstance(cell, float):
        return math.isnan(cell)
    return not isinstance(cell, str) and str(cell) in ("NaT", "<NA>")
