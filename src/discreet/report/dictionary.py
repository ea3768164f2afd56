"""``dictionary.csv``: one line for each published column, with everything that a learner needs."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.report.statement import ColumnNumbers, Statement

HEADER = (
    "name", "role", "type", "holds", "measure", "origin", "lower", "upper", "levels", "missing", "law",
    "law_json", "mean", "variance", "keep", "missing_keep", "floor", "statistic", "prior",
    "without", "epsilon",
)  # fmt: skip
"""The columns of the dictionary; ``docs/reference/statement.md`` explains them."""


def dictionary(statement: Statement) -> str:
    """Return the content of ``dictionary.csv``: a function of the statement alone.

    Empty means that there is no such number. ``levels`` and ``law_json`` hold JSON.
    """
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(HEADER)
    for column in statement.numbers.columns:
        line = _line(column)
        writer.writerow("" if line[name] is None else line[name] for name in HEADER)
    return out.getvalue()


def _line(column: ColumnNumbers) -> dict[str, Any]:
    # Of a column that only some rows show, the numbers are those of the cells that are shown.
    law, floor = column.law.get("law", column.law), column.floor or {}
    return {
        "name": column.column,
        **column.model_dump(include={"role", "type", "holds", "measure", "origin", "without", "epsilon"}),
        "lower": column.lower,
        "upper": column.upper,
        "levels": None if column.levels is None else _json(column.levels),
        "missing": "yes" if column.missing else "no",
        "law": column.law_in_words,
        "law_json": _json(column.law),
        "mean": law.get("mean"),
        "variance": law.get("variance"),
        "keep": law.get("keep"),
        "missing_keep": law.get("missing_keep"),
        "floor": floor.get("error"),
        "statistic": floor.get("statistic"),
        "prior": floor.get("prior"),
    }


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False)
