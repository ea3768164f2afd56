"""Tables of a page, of which the first rows are shown and the rest can be unfolded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from discreet import formatting

if TYPE_CHECKING:
    from collections.abc import Sequence

SHOWN = 30
"""How many columns, or rows of a table, a page shows before it folds the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlTable:
    """A table of texts.

    Attributes
    ----------
    caption : str
        What it is about.
    head : sequence of str
        Names of the columns; the first one names the rows.
    rows : sequence of sequences
        Texts, or Markup made by this package.
    numbers : collection of int
        Which columns hold numbers, to be set flush right.
    stack : bool
        On a narrow screen each row becomes a card; otherwise the table scrolls in its own frame.
    noun : str
        What a row is, for the line that unfolds the rest.
    fold_at : int
        How many rows are shown before the rest is folded.
    note : str
        What to know before reading it.
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
        """The rows that are always there."""
        return self.rows[: self.fold_at]

    @property
    def folded(self) -> Sequence[Sequence[Markup | str]]:
        """The rest."""
        return self.rows[self.fold_at :]


VERDICTS = {
    "holds": ("ok", "holds"),
    "broken": ("bad", "broken"),
    "no floor": ("plain", "no floor"),
    "shown": ("plain", "shown only"),
    "not tested": ("plain", "not tested"),
}
"""Class and words of each verdict's badge."""


def badge(kind: str, words: str) -> Markup:
    """Write a badge; its words say what its color says."""
    return Markup('<span class="badge {}">{}</span>').format(kind, words)


def verdict_badge(verdict: str) -> Markup:
    """Write the badge of a verdict."""
    return badge(*VERDICTS.get(verdict, ("plain", verdict)))


def name_markup(text: str) -> Markup:
    """Write the name of a column so that its script cannot turn what stands around it."""
    return Markup('<bdi class="name">{}</bdi>').format(escape(formatting.name(text)))


def two_lines(first: Markup | str, second: str) -> Markup:
    """Write something with a smaller line below it."""
    if not second:
        return escape(first)
    return Markup('{}<span class="under">{}</span>').format(
        escape(first), escape(formatting.printable(second))
    )
