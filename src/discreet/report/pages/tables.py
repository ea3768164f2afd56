"""HTML tables of a page, whose first rows are shown and whose rest can be unfolded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from discreet import formatting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHOWN = 30
"""Number of columns, or rows of a table, that a page shows before it folds the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlTable:
    """A table of texts.

    Attributes
    ----------
    caption : str
        Caption above the table.
    head : sequence of str
        Names of the columns; the first one names the rows.
    rows : sequence of sequences
        Texts, or Markup made by this package.
    numbers : collection of int
        Positions of the columns with numbers, which are aligned right.
    stack : bool
        Whether each row becomes a card on a narrow screen; if not, the table scrolls in its own frame.
    noun : str
        Noun for a row, for the line that unfolds the rest.
    fold_at : int
        Number of rows that are shown before the rest is folded.
    note : str
        Remark above the table; may be empty.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Markup | str]]
    numbers: Sequence[int] = ()
    stack: bool = False
    noun: str = "more row"
    fold_at: int = SHOWN
    note: str = ""

    @property
    def shown(self) -> Sequence[Sequence[Markup | str]]:
        """Rows that are always shown."""
        return self.rows[: self.fold_at]

    @property
    def folded(self) -> Sequence[Sequence[Markup | str]]:
        """Rows that are folded."""
        return self.rows[self.fold_at :]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryTile:
    """Tile with a title, an amount, a note, and ``kind``, the CSS class of its border."""

    title: str
    amount: str
    note: str
    kind: str = "plain"


def merge_rows(rows: Iterable[tuple[str, Sequence[Markup | str]]]) -> list[list[Markup | str]]:
    """Return one row for all columns whose other cells are equal, in the order of the first of each.

    Parameters
    ----------
    rows : iterable of (str, sequence)
        Name of a column, and the cells beside it.
    """
    named: dict[tuple[Markup | str, ...], list[str]] = {}
    for column, cells in rows:
        named.setdefault(tuple(cells), []).append(column)
    return [[names_markup(columns), *cells] for cells, columns in named.items()]


VERDICTS = {
    "holds": ("plain", "as proven"),
    "broken": ("bad", "broken"),
    "no floor": ("plain", "no floor"),
    "shown": ("plain", "shown only"),
    "not tested": ("plain", "not tested"),
}
"""CSS class and text of the badge of each verdict."""


def badge(kind: str, words: str) -> Markup:
    """Return a badge, whose text says the same as its color."""
    return Markup('<span class="badge {}">{}</span>').format(kind, words)


def verdict_badge(verdict: str) -> Markup:
    """Return the badge of a verdict."""
    return badge(*VERDICTS.get(verdict, ("plain", verdict)))


def name_markup(text: str) -> Markup:
    """Return the name of a column, isolated so that right-to-left text does not affect its surroundings."""
    return Markup('<bdi class="name">{}</bdi>').format(escape(formatting.name(text)))


def names_markup(columns: Sequence[str]) -> Markup:
    """Return the name of a column, or the number of columns with all their names below it."""
    if len(columns) == 1:
        return name_markup(columns[0])
    listed = Markup(", ").join(name_markup(column) for column in columns)
    return Markup('{} columns<span class="under">{}</span>').format(len(columns), listed)


def two_lines(first: Markup | str, second: str) -> Markup:
    """Return a text with a smaller line below it."""
    if not second:
        return escape(first)
    return Markup('{}<span class="under">{}</span>').format(
        escape(first), escape(formatting.printable(second))
    )
