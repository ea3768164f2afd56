"""JSON as it is published: one way to write a value, and a reader that trusts nobody."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from discreet.errors import ParameterError


def write_json(value: Any) -> str:
    """Write sorted, indented JSON with a line end: the same value gives the same bytes."""
    return json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_json(content: bytes, what: str) -> Any:
    """Read JSON from an untrusted file; `what` names it in errors.

    A key that stands twice in one object is refused, because two readers could then see two things, and so
    are infinities and what is not a number.
    """
    try:
        return json.loads(content.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as problem:
        raise ParameterError(
            f"{what} must be plain JSON, and is not ({_reason(problem)}). Ask for the file again."
        ) from None


def _reason(problem: Exception) -> str:
    if isinstance(problem, json.JSONDecodeError):
        return f"line {problem.lineno}, column {problem.colno}"
    if isinstance(problem, UnicodeDecodeError):
        return "not UTF-8"
    if isinstance(problem, RecursionError):
        return "nested too deeply"
    return str(problem)[:200]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return made


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")
