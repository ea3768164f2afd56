"""Short values that stand for arrays, texts and results in the fingerprint."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = 16


def of_bytes(content: bytes) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of some bytes."""
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def of_array(values: Any, *, step: float | None = None) -> str:
    """Return the digest of an array: of its dtype, its shape and its bytes in C order.

    Parameters
    ----------
    values : array-like
        Numbers, booleans or text; an array of Python objects is digested as JSON.
    step : float, optional
        Grid to which floats are rounded first, for results of linear algebra, whose last bits depend on the
        processor; None digests every bit.
    """
    array = np.asarray(values)
    if array.dtype == object:
        return of_json(array.tolist())
    if step is not None and array.dtype.kind == "f":
        array = np.round(array / step) * step + 0.0  # so that -0.0 and 0.0 are one value
    array = np.ascontiguousarray(array)
    return of_bytes(str(array.dtype).encode() + str(array.shape).encode() + array.tobytes())


def of_json(value: Any) -> str:
    """Return the digest of JSON values, with sorted keys."""
    return of_bytes(json.dumps(value, sort_keys=True, ensure_ascii=False, default=plain).encode())


def plain(value: Any) -> Any:
    """Return a numpy value or another leaf as JSON knows it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bytes):
        return value.hex()
    return repr(value)


def rounded(value: Any, digits: int = 10) -> Any:
    """Return JSON values with every float rounded to some significant digits."""
    match value:
        case float():
            return float(f"{value:.{digits}g}")
        case dict():
            return {key: rounded(item, digits) for key, item in value.items()}
        case list() | tuple():
            return [rounded(item, digits) for item in value]
    return value


def error_of(call: Callable[[], Any], *, hide: str = "") -> str:
    """Return the name and the digest of the text of the error that a call raises.

    Parameters
    ----------
    call : callable
        What must fail.
    hide : str
        Name of a temporary folder, which is left out of the text; empty for none.
    """
    try:
        call()
    except Exception as error:
        text = str(error).replace(hide, "FOLDER") if hide else str(error)
        return f"{type(error).__name__} {of_bytes(text.encode())}"
    return "no error"
