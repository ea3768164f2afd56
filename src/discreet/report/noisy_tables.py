"""Noisy tables of a synthetic release: what they measure, how precisely, and what they leave out.

Everything follows from ``tables.json`` and ``model.json``, which are public.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from pydantic import Field

from discreet.report.statement.documents import Record
from discreet.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.schema import Column

_HALF_DEVIATIONS = {"gaussian": math.sqrt(2 / math.pi) / 2, "laplace": math.sqrt(2) / 4}
"""Half the mean absolute deviation of noise, in standard deviations."""


class TableNoise(Record):
    """One published table of noisy counts.

    Attributes
    ----------
    columns : list of str
        Columns of the table, the target last.
    cells : int
        Number of cells of the table.
    sd : float
        Standard deviation of the noise on each count, in rows; of the mean of all answers about the table.
    law : str
        Kind of the noise, "gaussian" or "laplace".
    fine : bool
        Whether the cells are finer ones, by which values inside a cell are drawn.
    """

    columns: list[str]
    cells: int
    sd: float
    law: str = "gaussian"
    fine: bool = False


class CountedColumn(Record):
    """Cells of one column.

    Attributes
    ----------
    cells : int
        Number of cells in which the column is counted together with others; 1 if it is in no table.
    levels : int or None
        Number of levels of a category; None for a number or date.
    merged : int
        Number of levels that share the cell of rare ones.
    has_inside : bool
        Whether a cell holds several values, which then do not depend on other columns.
    edges : list of float
        For a number or date, where the second and later cells begin; dates are days since their lower bound.
    groups : list of int
        For a category of which levels were merged, the cell of each level; else empty.
    """

    column: str
    cells: int
    levels: int | None = None
    merged: int = 0
    has_inside: bool = False
    edges: list[float] = Field(default_factory=list)
    groups: list[int] = Field(default_factory=list)


class TreeEdge(Record):
    """Two columns that the model joins, and the rows by which they depart from independence, noise included.

    Attributes
    ----------
    first, second : str
        Names of the two columns.
    rows : float or None
        Noisy number of rows that would have to move for the two to be independent given the target.
    """

    first: str
    second: str
    rows: float | None = None


class MeasuredTables(Record):
    """What the published answers of a synthetic release measure.

    Attributes
    ----------
    target : str or None
        Column given which all others are modelled; None if they are modelled alike.
    declared_target : str or None
        Target that the schema names, which the model may not use.
    rows : float
        Number of rows of the table: public, or estimated from the noisy totals.
    columns : list of CountedColumn
        Cells of every column, in the order of the schema.
    tables : list of TableNoise
        Published tables, each once.
    edges : list of TreeEdge
        Edges of the tree that rows are drawn along.
    further : list of (str, str)
        Pairs outside of the tree whose tables the rows were fitted to.
    by_class : bool
        Whether the tables along the tree are also by the classes of the target.
    questions : list of str
        Names of the questions that were asked.
    notes : list of str
        Sentences about what the release did not do, from its plan.
    """

    target: str | None
    declared_target: str | None
    rows: float
    columns: list[CountedColumn]
    tables: list[TableNoise]
    edges: list[TreeEdge] = Field(default_factory=list)
    further: list[tuple[str, str]] = Field(default_factory=list)
    by_class: bool = False
    questions: list[str] = Field(default_factory=list)
    notes: list[str] = Field(default_factory=list)

    @property
    def names(self) -> list[str]:
        """Names of the columns that can depend on others: those with more than one cell."""
        return [one.column for one in self.columns if one.cells > 1]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of these columns."""
        return list(itertools.combinations(self.names, 2))

    @property
    def unmeasured(self) -> list[tuple[str, str]]:
        """Pairs that no published table contains."""
        held = {frozenset(pair) for table in self.tables for pair in itertools.combinations(table.columns, 2)}
        return [pair for pair in self.pairs if frozenset(pair) not in held]

    def expected_distance(self, table: TableNoise) -> float:
        """Return the mean distance in total variation of a table from the true one, before projection."""
        half = _HALF_DEVIATIONS.get(table.law, 0.5)
        return min(1.0, half * table.sd * table.cells / max(self.rows, 1.0))


def read_tables(
    tables: Mapping[str, Any], model: Mapping[str, Any], notes: Sequence[str] = ()
) -> MeasuredTables:
    """Return what published answers measure.

    Parameters
    ----------
    tables : mapping
        Content of the published file ``tables.json``.
    model : mapping
        Content of the published file ``model.json``.
    notes : sequence of str
        Sentences of the plan about what the release would not do.

    Privacy
    -------
    Reads public files alone.
    """
    schema = Schema.from_dict(tables["schema"])
    counts, totals = _read_counts(tables["questions"])
    edges: dict[str, list[float]] = {}
    groups: dict[str, list[int]] = {}
    counted: set[str] = set()
    for one in tables["questions"]:
        question = one["question"]
        if one["name"] != "fine":
            edges |= question["edges"]
            groups |= question.get("groups", {})
            counted |= set(itertools.chain(*(question.get("tables") or question["pairs"])))
    strengths = {frozenset((a, b)): rows for a, b, rows in model.get("dependence", ())}
    return MeasuredTables(
        target=model["target"],
        declared_target=schema.target,
        rows=_estimate_rows(totals) if tables["rows"] is None else tables["rows"],
        columns=[
            _describe_column(c, edges.get(c.name, []), groups.get(c.name, []), counted)
            for c in schema.released
        ],
        tables=counts,
        edges=[
            TreeEdge(first=parent, second=child, rows=strengths.get(frozenset((parent, child))))
            for parent, child in model["tree"]
            if parent is not None
        ],
        further=[(a, b) for a, b in model["further"]],
        by_class=bool(model.get("by_class")),
        questions=[one["name"] for one in tables["questions"]],
        notes=list(notes),
    )


def _read_counts(
    questions: Sequence[Mapping[str, Any]],
) -> tuple[list[TableNoise], list[tuple[float, float]]]:
    """Return the tables of all answers, each once, and the noisy total of each with its variance."""
    found: dict[tuple[bool, tuple[str, ...]], TableNoise] = {}
    totals = []
    for one in questions:
        for table in one.get("tables", ()):
            sd, size, first = float(table["sd"]), int(table["size"]), int(table["first"])
            totals.append((math.fsum(one["values"][first : first + size]), sd * sd * size))
            key = (one["name"] == "fine", tuple(table["columns"]))
            known = found.get(key)
            if known is not None and sd > 0 and known.sd > 0:
                sd = 1 / math.sqrt(1 / (sd * sd) + 1 / (known.sd * known.sd))
            found[key] = TableNoise(columns=list(key[1]), cells=size, sd=sd, law=str(one["law"]), fine=key[0])
    return list(found.values()), totals


def _estimate_rows(totals: Sequence[tuple[float, float]]) -> float:
    """Return the mean of noisy totals, each weighted by its precision, and at least 1."""
    weights = [1 / max(variance, 1e-12) for _, variance in totals]
    total = sum(weight * value for weight, (value, _) in zip(weights, totals, strict=True))
    return max(total / sum(weights), 1.0) if weights else 1.0


def _describe_column(
    column: Column, edges: list[float], groups: list[int], counted: set[str]
) -> CountedColumn:
    """Return the cells of a column, from the questions that name it."""
    if column.is_category:
        merged = groups.count(max(groups)) if groups else 0
        levels = len(column.levels)
        cells = levels - max(merged - 1, 0) if column.name in counted else 1
        return CountedColumn(
            column=column.name,
            cells=cells,
            levels=levels,
            merged=merged,
            has_inside=merged > 1 or (cells == 1 < levels),
            groups=groups,
        )
    cells = len(edges) + 1 + (not column.required) if column.name in counted else 1
    one_each = column.type != "number" and cells - (not column.required) > column.width
    return CountedColumn(column=column.name, cells=cells, has_inside=not one_each, edges=edges)
