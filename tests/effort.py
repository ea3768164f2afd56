"""How much work a call does, counted instead of timed: the same on every machine, however busy it is."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def function_calls(work: Callable[[], object]) -> int:
    """Return how many functions, of Python and of C, `work` calls."""
    count = 0

    def step(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(step)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
