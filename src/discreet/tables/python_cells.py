"""Columns of Python objects as arrays: of their common type, or of texts as a person would type them."""

from __future__ import annotations

import datetime
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.schema.dialect import TextFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray

PLAIN = TextFormat()
"""Text in its plain form: decimal points, and dates like 2024-12-31."""


def to_column(cells: Sequence[Any], text: TextFormat = PLAIN) -> AnyArray:
    """Return the cells of a column as an array of one type, or of texts; None and NaN are missing."""
    if set(map(type, cells)) <= {str, type(None)}:
        # Texts repeat: each is looked at once.
        seen = {cell: to_text(cell, text) for cell in set(cells)}
        found = np.empty(len(cells), dtype=object)
        found[:] = [seen[cell] for cell in cells]
        return found
    plain = [cell.item() if isinstance(cell, np.generic) else cell for cell in cells]
    missing = np.array([_is_missing(cell) for cell in plain], dtype=bool)
    present = [cell for cell, absent in zip(plain, missing, strict=True) if not absent]
    kinds = {type(cell) for cell in present}
    typed: AnyArray | None = None
    if kinds == {int} and all(abs(cell) < 2**63 for cell in present):
        typed = np.array(present, np.int64)
    elif kinds and kinds <= {int, float}:
        numbers = np.array(present, float)
        whole = bool((numbers == np.rint(numbers)).all() and (np.abs(numbers) < 2**53).all())
        typed = numbers.astype(np.int64) if whole else numbers
    elif kinds == {bool}:
        typed = np.array(present, bool)
    if typed is not None:
        filled = np.zeros(len(plain), typed.dtype)
        filled[~missing] = typed
        return np.ma.MaskedArray(filled, mask=missing)
    if kinds and kinds <= {datetime.date, datetime.datetime} and not any(map(_has_zone, present)):
        return np.array(["NaT" if _is_missing(cell) else cell for cell in plain], dtype="datetime64[us]")
    texts = np.empty(len(plain), dtype=object)
    texts[:] = [to_text(cell, text) for cell in plain]
    return texts


def _is_missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or str(cell) in ("NaT", "<NA>")


def _has_zone(cell: Any) -> bool:
    return getattr(cell, "tzinfo", None) is not None


def to_text(cell: Any, text: TextFormat = PLAIN) -> str | None:
    """Return a cell as a person would type it where text is written so; None for an empty one."""
    if _is_missing(cell):
        return None
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        whole = cell.is_integer() and abs(cell) < 2**53
        return str(int(cell)) if whole else repr(cell).replace(".", text.decimal_char or ".")
    if isinstance(cell, datetime.date) and text.date_format is not None:
        return cell.strftime(text.date_format)
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        cell = cell.date()
    return cell.isoformat(" ") if isinstance(cell, datetime.datetime) else str(cell)
