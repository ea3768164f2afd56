"""Columns before and after, worst first, and their correlations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet.report import wording
from discreet.report.charts import MOST_COLUMNS, correlation_heat, histogram
from discreet.report.views.table import SHOWN, Table, named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.report.findings import ColumnComparison, Correlations

_PICTURES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """One column before and after."""

    column: str
    measure: str
    distance: str
    facts: list[tuple[str, str, str]]
    picture: Markup


@dataclass(frozen=True, slots=True, kw_only=True)
class DataView:
    """All columns before and after; pictures of the worst, folded ones, and a table of those beyond."""

    shown: list[ComparisonView]
    folded: list[ComparisonView]
    rest: Table | None
    heat: Markup
    heat_note: str


def data_view(columns: Sequence[ColumnComparison], correlations: Correlations | None) -> DataView:
    """Word the comparison."""
    ordered = sorted(columns, key=lambda c: -c.distance)
    views = [_comparison(f"before-after-{k}", c) for k, c in enumerate(ordered[:SHOWN])]
    rest = ordered[SHOWN:]
    heat, note = _heat(correlations)
    return DataView(
        shown=views[:_PICTURES],
        folded=views[_PICTURES:],
        rest=Table(
            caption="The other columns, worst first",
            head=("Column", "Distance"),
            rows=[[named(c.column), wording.number(c.distance)] for c in rest],
            numbers=(1,),
            noun="more column",
        )
        if rest
        else None,
        heat=heat,
        heat_note=note,
    )


def _comparison(key: str, column: ColumnComparison) -> ComparisonView:
    facts = [
        (title, _number(before), _number(after))
        for title, before, after in (
            ("mean", column.original_mean, column.release_mean),
            ("standard deviation", column.original_sd, column.release_sd),
        )
        if before is not None or after is not None
    ]
    if column.missing_original or column.missing_release:
        facts.append(
            ("missing", wording.percent(column.missing_original), wording.percent(column.missing_release))
        )
    if column.outside:
        facts.append(("outside the range", wording.percent(0.0), wording.percent(column.outside)))
    return ComparisonView(
        column=column.column,
        measure=column.measure or "",
        distance=wording.number(column.distance, digits=2),
        facts=facts,
        picture=histogram(
            key,
            wording.name(column.column),
            column.labels,
            column.original,
            column.release,
            ordered=column.kind == "number",
        ),
    )


def _number(number: float | None) -> str:
    return wording.NONE if number is None else wording.number(number)


def _heat(correlations: Correlations | None) -> tuple[Markup, str]:
    if correlations is None:
        return Markup(""), ""
    count = len(correlations.columns)
    picture = correlation_heat("heat", correlations.columns, correlations.original, correlations.release)
    note = (
        f"The {MOST_COLUMNS} of {count:,} numbers whose correlations changed most."
        if count > MOST_COLUMNS
        else ""
    )
    return picture, note
