"""Sections of a page about a synthetic table: its errors, its tree, and what was not measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet import formatting
from discreet.formatting import small_percent
from discreet.report.charts import MOST_PAIRED, dependence_tree, error_bars, pair_heat
from discreet.report.pages.tables import SHOWN, HtmlTable, name_markup, two_lines

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from discreet.report.findings import TableQuality
    from discreet.report.noisy_tables import MeasuredTables, TableNoise

_BARS = 20  # columns in one chart, at most
_FOLDED = 10  # rows of long tables that are shown
_PARTNERS = 16  # names in one cell


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredView:
    """What was measured and what was not, from public files alone."""

    tree: Markup
    tree_text: str
    gaps: HtmlTable | None
    pairs: HtmlTable | None
    tables: HtmlTable


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityView:
    """Errors of a synthetic table against the true rows; internal."""

    lead: str
    moments: str
    bars: list[Markup]
    heat: Markup
    heat_text: str
    measured: MeasuredView


def quality_view(quality: TableQuality) -> QualityView:
    """Return the section about the errors of a synthetic table."""
    measured, names = quality.measured, quality.measured.names
    rows = sorted(zip(names, quality.one_way, quality.one_way_chance, strict=True), key=lambda row: -row[1])
    size = -(-len(rows) // max(-(-len(rows) // _BARS), 1)) or 1
    largest = max((max(error, chance) for _, error, chance in rows), default=0.0)
    errors = {
        frozenset((names[i], names[j])): error
        for i, row in enumerate(quality.two_way)
        for j, error in enumerate(row)
    }
    return QualityView(
        lead=_lead(quality, list(errors.values())),
        moments=_moments(quality),
        bars=[
            error_bars(
                f"column-errors-{start}",
                rows[start : start + size],
                largest=largest,
                title="Errors of single columns",
            )
            for start in range(0, len(rows), size)
        ],
        heat=pair_heat("pair-errors", names, quality.two_way, {frozenset(p) for p in measured.unmeasured}),
        heat_text=_heat_text(measured, errors),
        measured=measured_view(measured, errors),
    )


def measured_view(
    measured: MeasuredTables, errors: Mapping[frozenset[str], float] | None = None
) -> MeasuredView:
    """Return the tree, what was not measured, and the noise of the published tables.

    Parameters
    ----------
    measured : MeasuredTables
        What the published answers measure.
    errors : mapping of pair to float, optional
        Error of each pair against the true rows, for an internal page; None for a public one.
    """
    edges = {
        (e.first, e.second): None if e.rows is None else e.rows / max(measured.rows, 1.0)
        for e in measured.edges
    }
    others = [name for name in measured.names if name != measured.target]
    return MeasuredView(
        tree=dependence_tree("dependence-tree", others, edges, measured.target),
        tree_text=_tree_text(measured),
        gaps=_gap_table(measured),
        pairs=_pair_table(measured, errors),
        tables=_noise_table(measured),
    )


def _lead(quality: TableQuality, pairs: Sequence[float]) -> str:
    """Return the mean errors in one sentence, and beside them those of chance."""
    text = f"A single column is off by {small_percent(_mean(quality.one_way))} of the rows on average"
    chance = f"{small_percent(_mean(quality.one_way_chance))}"
    if pairs:
        text += f", a pair of columns by {small_percent(_mean(pairs))}"
        chance += f" and {small_percent(quality.two_way_chance)}"
    return f"{text}. Drawing the true rows again, with replacement, would move them by {chance}."


def _moments(quality: TableQuality) -> str:
    """Return the errors of means and correlations as a sentence; empty without numbers."""
    if not quality.means:
        return ""
    worst = max(quality.means, key=lambda name: quality.means[name])
    text = (
        f"The mean of a number is off by {formatting.number(_mean(quality.means.values()), digits=2)} of its "
        f"standard deviations on average, at most by {formatting.number(quality.means[worst], digits=2)} "
        f"({formatting.name(worst)})"
    )
    if quality.correlation_error is None:
        return f"{text}."
    return f"{text}; a correlation by {formatting.number(quality.correlation_error, digits=2)} on average."


def _heat_text(measured: MeasuredTables, errors: Mapping[frozenset[str], float]) -> str:
    """Return the mean error of pairs with and without a table, and how many columns are shown."""
    missing = set(measured.unmeasured)
    without = [errors[frozenset(pair)] for pair in measured.pairs if pair in missing]
    with_table = [errors[frozenset(pair)] for pair in measured.pairs if pair not in missing]
    parts = []
    if with_table and without:
        parts.append(
            f"Pairs with a table are off by {small_percent(_mean(with_table))} on average, those without one "
            f"by {small_percent(_mean(without))}."
        )
    if len(measured.names) > MOST_PAIRED:
        parts.append(
            f"Shown are the {MOST_PAIRED} of {len(measured.names):,} columns with the largest errors."
        )
    return " ".join(parts)


def _tree_text(measured: MeasuredTables) -> str:
    """Return how to read the tree, in sentences."""
    if not measured.edges:
        given = "" if measured.target is None else f" given {formatting.name(measured.target)}"
        return f"No two columns are joined: all are drawn independently{given}."
    given, by = "", ""
    if measured.target is not None:
        given = f", given {formatting.name(measured.target)}"
        by = ", each by the classes of the target" if measured.by_class else ", without the target"
    text = (
        f"Each solid line is a published table of two columns{by}; rows were drawn along these lines. A bar "
        f"is the noisy share of rows by which the two columns depart from independence{given}. Which column "
        "is on top has no meaning."
    )
    if measured.target is not None:
        text += " Columns on a dashed line were drawn given the target alone."
    if measured.further:
        count = formatting.count_noun(len(measured.further), "further pair")
        text += f" Rows were then weighted to fit the tables of {count}."
    return text


def _gap_table(measured: MeasuredTables) -> HtmlTable | None:
    """Return the table of what was not measured; None if nothing was left out."""
    gaps = [list(gap) for gap in _gaps(measured)]
    if not gaps:
        return None
    return HtmlTable(caption="Not measured", head=("What", "Where", "What it means"), rows=gaps, stack=True)


def _gaps(measured: MeasuredTables) -> list[tuple[str, str, str]]:
    """Return what was not measured: what, where, and what it means for the reader."""
    pairs, missing = measured.pairs, measured.unmeasured
    gaps = []
    if missing:
        gaps.append(
            (
                "Pairs without a table",
                f"{len(missing):,} of {len(pairs):,}",
                "How these columns go together follows from other tables and the tree. Do not report it.",
            )
        )
    triples = sum(len(table.columns) == 3 for table in measured.tables)
    if len(measured.names) > 2:
        gaps.append(
            (
                "Three columns or more",
                f"all but {formatting.count_noun(triples, 'table')} with the target" if triples else "all",
                "What three columns do together is what the model makes of pairs.",
            )
        )
    inside = [one.column for one in measured.columns if one.has_inside and not one.merged]
    if inside:
        gaps.append(
            (
                "Values inside a cell",
                _list(inside),
                "They follow the counts of their own column and depend on no other.",
            )
        )
    gaps += [
        (
            "Rare levels",
            f"{formatting.name(one.column)}: {one.merged:,} of {one.levels:,} levels share one cell",
            "A row of that cell draws its level from the counts of levels alone.",
        )
        for one in measured.columns
        if one.merged
    ]
    alone = [one.column for one in measured.columns if one.cells < 2]
    if alone:
        gaps.append(
            ("Columns with one cell", _list(alone), "They are in no table and depend on no other column.")
        )
    return [*gaps, *_fallbacks(measured)]


def _fallbacks(measured: MeasuredTables) -> list[tuple[str, str, str]]:
    """Return what the release did not do, because the promise or the answers did not allow for it."""
    questions = set(measured.questions)
    found = [("Fallback, announced before the charge", "whole table", note) for note in measured.notes]
    several = len(measured.names) > 2
    if not measured.notes:
        if measured.declared_target is not None and measured.target is None:
            target = formatting.name(measured.declared_target)
            found.append(
                ("Target not singled out", target, "All columns were modelled alike, the target among them.")
            )
        if several and "scores" not in questions:
            found.append(
                ("Fallback: no scores", "all pairs", "At this promise no dependence could be searched for.")
            )
        elif several and "more tables" not in questions:
            found.append(
                (
                    "Fallback: one round",
                    "pairs outside of the tree",
                    "The model was not checked against rows.",
                )
            )
    if "scores" in questions and not measured.edges:
        found.append(
            ("No pair in the tree", "all pairs", "No dependence stood out of the noise by two deviations.")
        )
    elif measured.edges and measured.target is not None and not measured.by_class:
        found.append(
            (
                "Fallback: tree without the target",
                "pairs of the tree",
                "How two columns go together was assumed to be alike in all classes.",
            )
        )
    if "more tables" in questions and not measured.further:
        found.append(
            (
                "No further pair",
                "pairs outside of the tree",
                "No other pair was worth its noise; counts of columns were asked again instead.",
            )
        )
    return found


def _pair_table(measured: MeasuredTables, errors: Mapping[frozenset[str], float] | None) -> HtmlTable | None:
    """Return the pairs without a table, worst first or else by column; None if there are none."""
    pairs = measured.unmeasured
    if not pairs:
        return None
    if errors is None:
        return _partner_table(measured)
    ordered = sorted(pairs, key=lambda pair: -errors[frozenset(pair)])
    return HtmlTable(
        caption="Pairs without a table, largest error first",
        head=("Column", "Column", "Error"),
        rows=[[name_markup(a), name_markup(b), small_percent(errors[frozenset((a, b))])] for a, b in ordered],
        numbers=(2,),
        noun="more pair",
        fold_at=_FOLDED,
    )


def _partner_table(measured: MeasuredTables) -> HtmlTable:
    """Return for each column those with which it has a table, and those with which it has none."""
    missing = {frozenset(pair) for pair in measured.unmeasured}
    rows: list[list[Markup | str]] = []
    for name in measured.names:
        others = [other for other in measured.names if other != name]
        without = [other for other in others if frozenset((name, other)) in missing]
        with_table = [other for other in others if other not in without]
        held, lacking = (_list(found, _PARTNERS) or formatting.NONE for found in (with_table, without))
        rows.append([name_markup(name), held, lacking])
    return HtmlTable(
        caption="Pairs by column",
        head=("Column", "Has a table with", "Has none with"),
        rows=rows,
        stack=True,
        noun="more column",
    )


def _noise_table(measured: MeasuredTables) -> HtmlTable:
    """Return the published tables with their noise, those of most columns first."""
    ordered = sorted(measured.tables, key=lambda table: (table.fine, -len(table.columns)))
    return HtmlTable(
        caption="Noise of the published tables",
        head=("Columns", "Cells", "Noise of a count", "Share of the rows", "Error to expect"),
        rows=[_noise_row(measured, table) for table in ordered],
        numbers=(1, 2, 3, 4),
        noun="more table",
        fold_at=_FOLDED,
        note=(
            "The noise is a standard deviation, in rows. The error to expect is that of the noisy table "
            "itself, in total variation. Published rows are often closer: impossible counts were corrected, "
            "and tables agree with each other."
        ),
    )


def _noise_row(measured: MeasuredTables, table: TableNoise) -> list[Markup | str]:
    names = Markup(", ").join(name_markup(name) for name in table.columns)
    return [
        two_lines(names, "fine cells" if table.fine else ""),
        f"{table.cells:,}",
        formatting.number(table.sd),
        small_percent(table.sd / max(measured.rows, 1.0)),
        small_percent(measured.expected_distance(table)),
    ]


def _list(names: Sequence[str], most: int = SHOWN) -> str:
    """Return names one after another, and how many more there are."""
    shown = ", ".join(formatting.name(name) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return sum(known) / len(known) if known else 0.0
