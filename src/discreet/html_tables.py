"""Small HTML tables that notebooks show in place of a ``repr``: escaped, without scripts or style sheets.

They take the color of the text around them, so that they are legible on light and dark pages.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from discreet.formatting import format_share, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ACCENT = "#4a8fd4"  # legible on white and on black
LEFT = "text-align:left;vertical-align:middle;padding:2px 12px 2px 0"
RIGHT = "text-align:right;vertical-align:middle;padding:2px 12px 2px 0;white-space:nowrap"
_MUTED = "margin:4px 0 0 0;opacity:0.75"
_BAR_WIDTH = 180


def escape_text(text: str) -> str:
    """Return text as HTML, with invisible characters made visible."""
    return escape(printable(text))


def write_html(
    title: str, head: Sequence[str], body: Iterable[Sequence[str]], notes: Iterable[str] = ()
) -> str:
    """Return an HTML table with a caption, and sentences below it.

    Parameters
    ----------
    title : str
        Caption of the table, as plain text.
    head : sequence of str
        Cells of the first row, as HTML; empty for a table without one.
    body : iterable of sequence of str
        Cells of the other rows, as HTML.
    notes : iterable of str
        Sentences below the table, as plain text.
    """
    caption = (
        f'<caption style="text-align:left;font-weight:bold;padding:0 0 4px 0">{escape_text(title)}</caption>'
    )
    first = f"<thead><tr>{''.join(head)}</tr></thead>" if head else ""
    rows = "".join(f"<tr>{''.join(cells)}</tr>" for cells in body)
    below = "".join(f'<p style="{_MUTED}">{escape_text(note)}</p>' for note in notes)
    return (
        f'<div><table style="border-collapse:collapse">{caption}{first}<tbody>{rows}</tbody></table>'
        f"{below}</div>"
    )


def write_cell(text: str, *, align: str = "left") -> str:
    """Return a plain cell of an HTML table."""
    return f'<td style="{RIGHT if align == "right" else LEFT}">{escape_text(text)}</td>'


def write_heading(text: str, scope: str = "col") -> str:
    """Return the heading of a column or a row of an HTML table."""
    return f'<th scope="{scope}" style="{LEFT}">{escape_text(text)}</th>'


def draw_facts(
    title: str,
    facts: Iterable[tuple[str, str]],
    budget: tuple[float, float] | None = None,
    notes: Iterable[str] = (),
) -> str:
    """Return named facts as an HTML table.

    Parameters
    ----------
    title : str
        Caption of the table, as plain text.
    facts : iterable of (name, text)
        Facts in their order, as plain text.
    budget : tuple of float, optional
        Part of a budget that is used, and part that is taken; drawn as a bar below the facts.
    notes : iterable of str
        Sentences below the table, as plain text.
    """
    body = [[write_heading(fact, "row"), write_cell(text)] for fact, text in facts]
    if budget is not None:
        body.append([write_heading("budget", "row"), f'<td style="{LEFT}">{_draw_share(*budget)}</td>'])
    return write_html(title, (), body, notes)


def _draw_share(used: float, takes: float) -> str:
    """Return a bar of a budget: the part that is used in gray, the part that is taken in color."""
    first = _BAR_WIDTH * min(1.0, max(0.0, used))
    second = min(_BAR_WIDTH - first, _BAR_WIDTH * max(0.0, takes))
    words = f"{format_share(used)} is used" + (f"; this takes {format_share(takes)}" if takes else "")
    return (
        f'<svg width="{_BAR_WIDTH}" height="10" role="img" aria-label="{words}">'
        f'<rect width="{_BAR_WIDTH}" height="10" rx="2" fill="currentColor" fill-opacity="0.12"/>'
        f'<rect width="{first:.6g}" height="10" rx="2" fill="currentColor" fill-opacity="0.45"/>'
        f'<rect x="{first:.6g}" width="{second:.6g}" height="10" fill="{ACCENT}"/></svg> {words}'
    )
