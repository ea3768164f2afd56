"""Where each table is in the answers of ``tables.json``, and how to read one without this library."""

from __future__ import annotations

import itertools
import json
import math
from typing import TYPE_CHECKING, Any

from discreet.query import Marginals, aggregate_from_dict
from discreet.query.curation import Curation
from discreet.query.language import GroupKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.query.aggregates.histogram import Axis
    from discreet.schema import Schema

PANDAS_LINES = """\
import json, pathlib, pandas as pd
d = json.loads(pathlib.Path("tables.json").read_text())
t = next(t for t in d["layout"] if t["columns"] == {columns})
values = d["questions"][t["question"]]["values"][t["start"]:t["end"]]
count = pd.Series(values, pd.MultiIndex.from_product(t["labels"]))[{labels}]
print(count, count - 1.96 * t["sd"], count + 1.96 * t["sd"])
"""
"""Lines that read one count with its interval from a table of two columns, for :func:`write_examples`."""
R_LINES = """\
d <- jsonlite::fromJSON("tables.json", simplifyVector = FALSE)
t <- Filter(function(t) identical(unlist(t$columns), c({columns})), d$layout)[[1]]
values <- unlist(d$questions[[t$question + 1]]$values)[(t$start + 1):t$end]
count <- array(values, rev(lengths(t$labels)), rev(lapply(t$labels, unlist)))[{labels}]
c(count, count - 1.96 * t$sd, count + 1.96 * t$sd)
"""
"""The same lines for R, whose arrays have their last column first."""
FURTHER_CELLS = (
    "A sum of k cells has the standard deviation sd * sqrt(k). Under a pure epsilon the noise is Laplace's: "
    "take 2.12 for 1.96."
)
"""What these lines leave out."""


def table_layout(questions: Sequence[Mapping[str, Any]], schema: Schema) -> list[dict[str, Any]]:
    """Return for each table of counts where it is in the answers, and what its cells are called.

    Parameters
    ----------
    questions : sequence of mapping
        Questions of a release with their answers, as ``tables.json`` has them.
    schema : Schema
        Declaration of the table.

    Returns
    -------
    list of dict
        Columns of each table, the labels of the cells of each column, the index of the question, where its
        cells start and end among the values, the last column moving fastest, and the sd of their noise.
    """
    curation = Curation.from_schema(schema)
    found = []
    for index, asked in enumerate(questions):
        question = aggregate_from_dict(asked["question"])
        if not isinstance(question, Marginals):
            continue
        axes = {name: _label_cells(axis, schema) for name, axis in question.axes(curation).items()}
        shapes = [[axes[name] for name in table] for table in question.tables]
        ends = itertools.accumulate((math.prod(map(len, labels)) for labels in shapes), initial=0)
        parts = zip(question.tables, shapes, itertools.pairwise(ends), strict=True)
        for table, labels, (start, end) in parts:
            place = {"question": index, "start": start, "end": end, "sd": asked["sd"][start]}
            found.append({"columns": list(table), "labels": labels, **place})
    return found


def _label_cells(axis: Axis, schema: Schema) -> list[str]:
    return [label_cell(GroupKey(axis.column.name), label, schema) for label in axis.labels]


def label_cell(key: GroupKey, label: Any, schema: Schema) -> str:
    """Return the name of a cell of a column; of levels that share one, their number.

    Parameters
    ----------
    key : GroupKey
        Column of the cell.
    label : level, number, tuple or None
        Label of the cell, as a question has it.
    schema : Schema
        Declaration of the table.
    """
    column = schema.column(str(key.column))
    if isinstance(label, tuple) and column.is_category:
        return key.label(label[0], schema) if len(label) == 1 else f"{len(label)} rare levels"
    if isinstance(label, tuple) and column.type == "integer":
        low, high = max(label[0], column.range[0]), min(label[1] - 1, column.range[1])
        return str(int(low)) if low == high else key.label(label, schema)
    return key.label(label, schema)


def write_examples(document: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return lines of pandas and of R that read one count of a release; None where no table has two columns.

    Parameters
    ----------
    document : mapping
        Content of ``tables.json``, as ``SyntheticRelease.tables_`` has it.
    """
    table = next((one for one in document["layout"] if len(one["columns"]) == 2), None)
    if table is None:
        return None
    columns, labels = table["columns"], [names[0] for names in table["labels"]]
    texts = [
        ", ".join(json.dumps(text, ensure_ascii=False) for text in part)
        for part in (columns, labels, labels[::-1])
    ]
    return (
        PANDAS_LINES.format(columns=f"[{texts[0]}]", labels=texts[1]),
        R_LINES.format(columns=texts[0], labels=texts[2]),
    )
