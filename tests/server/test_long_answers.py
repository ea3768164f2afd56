"""Long answers are written as JSON in parts, since all threads wait while one is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from discreet.server.api import route

CELLS = [{"group": {"age": k}, "value": k / 3, "text": "Köniz"} for k in range(1000)]
ANSWERS: list[dict[str, Any]] = [
    {"cells": CELLS[:3], "cached": False, "sql": None},
    {"cells": CELLS, "left": {}, "columns": [], "n": 1.5},
    {
        "answer": {"value": [[float(k + n) for k in range(600)] for n in range(9)], "sd": 2.0},
        "parts": [["a"]],
    },
    {"fitted": {"centers": [[[0.5] * 300] * 3], "names": ["a", None, True]}},
]


@pytest.mark.parametrize("answer", ANSWERS)
def test_parts_are_the_text_of_the_whole_and_short(
    answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.dumps(answer).encode()
    written: list[int] = []
    dumps = json.dumps

    def recorded(value: Any, **options: Any) -> str:
        text = dumps(value, **options)
        written.append(len(text))
        return text

    monkeypatch.setattr(json, "dumps", recorded)
    assert route.dump_answer(answer) == whole
    assert max(written) < 256 * 80
