"""Results as HTML tables with a bar for each interval, and as SVG charts.

Both stand alone: no script, no style sheet, nothing is loaded. The tables take the color of the text around
them, so that they are legible on light and dark pages; a chart has a white ground of its own.
"""

from __future__ import annotations

import math
import unicodedata
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from discreet.formatting import NumberFormat, date, name, number, shorten
from discreet.html_tables import ACCENT, LEFT, RIGHT, escape_text, write_cell, write_heading, write_html

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.query.result_table import CellNumbers, ResultTable, TableColumn

MAX_ROWS = 200
"""Maximum number of groups that a table or a chart shows."""
_BAR_WIDTH, _BAR_HEIGHT = 180, 20
_SMALLEST, _LARGEST = 1e-290, 1e307  # between them no width or step of a scale underflows or is infinite
_FAINT = 0.45  # opacity of a number from which nothing can be read


class Scale(NamedTuple):
    """Linear map from numbers to pixels; numbers beyond an end are drawn at that end."""

    lower: float
    upper: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a number."""
        width = self.upper - self.lower
        part = (value - self.lower) / width if width > 0 else 0.5
        return self.start + min(1.0, max(0.0, part)) * (self.end - self.start)

    def holds(self, value: float) -> bool:
        """Return whether a number is on the scale, and not beyond one of its ends."""
        return self.lower <= value <= self.upper

    def ticks(self, count: int, least: float = 0.0) -> list[float]:
        """Return at most about `count` round numbers along the scale, at least `least` apart."""
        width = self.upper - self.lower
        if width < _SMALLEST:
            return [self.lower]
        power = 10.0 ** math.floor(math.log10(width / count))
        step = max(next((m * power for m in (1, 2, 5) if width / (m * power) <= count), 10 * power), least)
        first, last = math.ceil(self.lower / step - 1e-9), math.floor(self.upper / step + 1e-9)
        return [k * step for k in range(first, last + 1)]


def column_scale(table: ResultTable, column: TableColumn, start: float, end: float) -> Scale:
    """Return a scale for the numbers of a column.

    Parameters
    ----------
    table : ResultTable
        Table whose shown rows must be on the scale.
    column : TableColumn
        Column that is drawn: counts and sums with their zero, one other number in its declared range, and
        several as far as the readable ones reach.
    start, end : float
        Pixels of the two ends.
    """
    cells = table.numbers(column)[:MAX_ROWS]
    shown = [cell for cell in cells if is_readable(cell, column)] or cells
    ends = [end for cell in shown for end in (cell.lower, cell.value, cell.upper) if end is not None]
    if column.is_added_up:
        ends.append(0.0)
    elif len(cells) == 1 and all(map(math.isfinite, column.bounds)):
        ends += column.bounds
    low, high = max(min(ends), -_LARGEST), min(max(ends), _LARGEST)
    room = _room(low, high, 0.03)
    return Scale(low if low == 0 else low - room, high if high == 0 else high + room, start, end)


def interval_scale(cell: CellNumbers, start: float, end: float) -> Scale:
    """Return a scale for one number alone, of which its interval takes about a half."""
    ends = [cell.lower, cell.upper, cell.lower if cell.value is None else cell.value]
    low, high = max(min(ends), -_LARGEST), min(max(ends), _LARGEST)
    room = _room(low, high, 0.5)
    return Scale(low - room, high + room, start, end)


def _room(low: float, high: float, share: float) -> float:
    """Return how far a scale goes beyond the numbers on it, so that it has some width."""
    return max((high - low) * share, _SMALLEST) if low < high else abs(high) * 0.1 or 0.5


def is_readable(cell: CellNumbers, column: TableColumn) -> bool:
    """Return whether an interval says more than what is possible in any case."""
    return (cell.lower, cell.upper) != tuple(column.bounds) or cell.lower == cell.upper


def _bar_shapes(
    cell: CellNumbers, column: TableColumn, scale: Scale, middle: float, ink: str = "currentColor"
) -> str:
    """Return the shapes of one number: a bar from zero for counts and sums, its interval, and a dot."""
    shapes = ""
    if column.is_added_up and scale.holds(0.0):
        zero = _pixel(scale(0.0))
        if cell.value is not None:
            left, right = sorted((scale(0.0), scale(cell.value)))
            shapes += (
                f'<rect x="{_pixel(left)}" y="{_pixel(middle - 6)}" width="{_pixel(right - left)}" '
                f'height="12" fill="{ACCENT}" fill-opacity="0.55"/>'
            )
        shapes += _line(zero, middle - 9, zero, middle + 9, ink, opacity=0.5)
    if cell.lower < cell.upper:
        low, high = _pixel(scale(cell.lower)), _pixel(scale(cell.upper))
        shapes += _line(low, middle, high, middle, ink, width=1.5)
        for end in filter(scale.holds, (cell.lower, cell.upper)):
            x = _pixel(scale(end))
            shapes += _line(x, middle - 4, x, middle + 4, ink, width=1.5)
    if cell.value is not None and scale.holds(cell.value):
        shapes += f'<circle cx="{_pixel(scale(cell.value))}" cy="{_pixel(middle)}" r="3" fill="{ink}"/>'
    return shapes if is_readable(cell, column) else f'<g opacity="{_FAINT}">{shapes}</g>'


def _line(
    x1: str, y1: float, x2: str, y2: float, ink: str, *, width: float = 1, opacity: float | None = None
) -> str:
    faint = "" if opacity is None else f' stroke-opacity="{opacity}"'
    return (
        f'<line x1="{x1}" y1="{_pixel(y1)}" x2="{x2}" y2="{_pixel(y2)}" stroke="{ink}" '
        f'stroke-width="{width}"{faint}/>'
    )


def _pixel(value: float) -> str:
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


# Tables.


def draw_table(table: ResultTable) -> str:
    """Return a table of a result as HTML, with a bar for each interval.

    Parameters
    ----------
    table : ResultTable
        Numbers to show; of more than `MAX_ROWS` groups the first.
    """
    if not table.group_by and len(table.columns) > 1:
        body = [
            [write_heading(column.heading, "row"), *_number_cells(table, column)[0]]
            for column in table.columns
        ]
        head = [write_heading("statistic"), *_headings("value")]
    else:
        columns = [_number_cells(table, column) for column in table.columns]
        body = [
            [
                *(write_heading(name(text), "row") for text in row.key),
                *(cell for cells in numbers for cell in cells),
            ]
            for row, *numbers in zip(table.rows[:MAX_ROWS], *columns, strict=True)
        ]
        head = [write_heading(name(text)) for text in table.group_by]
        head += [cell for column in table.columns for cell in _headings(column.heading)]
    more = len(table.rows) - MAX_ROWS
    left_out = [f"… {more:,} more groups; to_pandas() and to_csv() have all of them."] if more > 0 else []
    return write_html(table.title, head, body, [*left_out, *table.notes])


def _headings(column: str) -> list[str]:
    """Return the headings of a number: its name, its interval, and an empty one above the bars."""
    right = f'<th scope="col" style="{RIGHT}">'
    return [f"{right}{escape_text(column)}</th>", f"{right}95&#160;% interval</th>", "<td></td>"]


def _number_cells(table: ResultTable, column: TableColumn) -> list[list[str]]:
    """Return the cells of each number of a column: value, interval and bar, which repeats the two."""
    scale, middle = column_scale(table, column, 5, _BAR_WIDTH - 5), _BAR_HEIGHT / 2
    # One number that is no count and no sum is shown where it is in its declared range.
    track = not table.group_by and not column.is_added_up and all(map(math.isfinite, column.bounds))
    ends = [_pixel(scale(end)) for end in column.bounds] if track else []
    line = _line(ends[0], middle, ends[1], middle, "currentColor", width=4, opacity=0.15) if track else ""
    frame = f'<svg width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}" aria-hidden="true" focusable="false">{line}'
    return [
        [
            write_cell(value, align="right"),
            write_cell(interval or "exact", align="right"),
            f'<td style="{LEFT}">{frame}{_bar_shapes(cell, column, scale, middle)}</svg></td>',
        ]
        for cell, (value, interval) in zip(
            table.numbers(column)[:MAX_ROWS], table.texts(column)[:MAX_ROWS], strict=True
        )
    ]


def draw_history(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return a history as HTML, newest first; what is the same for all numbers of a charge is said once.

    Parameters
    ----------
    columns : mapping of str to sequence
        Columns of the history, by their names.
    """
    shown = ("when", "question", "statistic", "group", "value", "95 % interval", "cost", "receipt")
    body, last = [], None
    order = sorted(range(len(columns["row"])), key=lambda i: (-columns["row"][i], i))
    for i in order[:MAX_ROWS]:
        row = {name: cells[i] for name, cells in columns.items()}
        value, interval = _write_past(row)
        again = row["receipt"] == last
        said = {**row, "when": date(row["when"]), "value": value, "95 % interval": interval}
        said |= dict.fromkeys(("when", "question", "cost", "receipt"), "") if again else {}
        body.append(
            [
                write_cell(str(said[name] or ""), align="right" if name in shown[4:6] else "left")
                for name in shown
            ]
        )
        last = row["receipt"]
    more = len(order) - MAX_ROWS
    notes = [f"… {more:,} more; to_pandas() and to_csv() have all of them."] if more > 0 else []
    return write_html("Paid for, newest first", [write_heading(name) for name in shown], body, notes)


def _write_past(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return value and interval of a past number as texts: dates as they are, lists as their length."""
    value, lower, upper = (row[name] for name in ("value", "lower", "upper"))
    if isinstance(value, list):
        return f"{np.size(value):,} numbers", ""
    if not isinstance(value, int | float):
        return str(value or ""), f"{lower} to {upper}" if isinstance(lower, str) else ""
    if lower is None:
        return NumberFormat.from_margins([row["sd"] or 0.0])(value), ""
    write = NumberFormat.from_margins([(upper - lower) / 2])
    exact = lower == upper and row["sd"] == 0
    return write(value), "exact" if exact else write.interval(lower, upper)


# Charts.

_INK, _GRAY, _GRID = "#1a1a1a", "#5f5f5f", "#dddddd"
_WIDTH, _MARGIN, _ROW, _GAP = 760, 16, 24, 14
_TITLE_WIDTH = 88  # characters in one line of the title
_TITLE_LINES = 3
_LONGEST_LABEL = 36  # characters of a group's name
_CHARACTER = 6.7  # pixels of a letter of 12 pixels, rather too wide than too narrow


def draw_chart(table: ResultTable) -> str:
    """Return a chart of a result as SVG: a bar or a dot for each group, with its interval as a whisker.

    Parameters
    ----------
    table : ResultTable
        Numbers to draw; of more than `MAX_ROWS` groups the first.
    """
    lines = _wrap(name(table.title))
    parts, top = [], float(_MARGIN)
    for line in lines:
        top += 18
        parts.append(_label(line, _MARGIN, top, size=14, weight="bold"))
    top += _GAP
    for column in table.columns:
        drawn, top = _draw_panel(table, column, top)
        parts.append(drawn)
    more = len(table.rows) - MAX_ROWS
    if more > 0:
        parts.append(_label(f"… {more:,} more groups", _MARGIN, top, ink=_GRAY))
        top += 18
    parts.append(_label("Whiskers: 95 % intervals of the noise.", _MARGIN, top, size=11, ink=_GRAY))
    height = _pixel(top + 14)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape_text(_describe(table))}" '
        "font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif\">"
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _draw_panel(table: ResultTable, column: TableColumn, top: float) -> tuple[str, float]:
    """Return the shapes of one column, and where they end."""
    cells, texts = table.numbers(column)[:MAX_ROWS], table.texts(column)[:MAX_ROWS]
    labels = [", ".join(map(name, row.key)) for row in table.rows[:MAX_ROWS]]
    short = [_short_label(row.key) for row in table.rows[:MAX_ROWS]] if table.group_by else []
    numbers = [f"{value} ({interval})" if interval else value for value, interval in texts]
    left = _MARGIN + (max(map(_text_width, short)) + 12 if short else 0)
    right = _WIDTH - _MARGIN - max(map(_text_width, numbers)) - 12
    ends = (left + 6, right - 6)
    scale = column_scale(table, column, *ends) if table.group_by else interval_scale(cells[0], *ends)
    parts = [_label(column.heading, left, top + 4, ink=_GRAY)]
    top += 14
    bottom = top + _ROW * len(cells)
    for tick in scale.ticks(5, 1.0 if column.first_day else 0.0):
        x, words = _pixel(scale(tick)), _write_tick(tick, table, column)
        parts.append(_line(x, top, x, bottom + 4, _GRID))
        at = max(scale(tick), _MARGIN + _text_width(words) / 2)
        parts.append(_label(words, at, bottom + 18, size=11, ink=_GRAY, anchor="middle"))
    for k, (cell, words) in enumerate(zip(cells, numbers, strict=True)):
        middle = top + _ROW * (k + 0.5)
        if short:
            parts.append(_label(short[k], left - 12, middle + 4, anchor="end", whole=labels[k]))
        parts.append(_bar_shapes(cell, column, scale, middle, _INK))
        ink = _INK if is_readable(cell, column) else _GRAY
        parts.append(_label(words, right + 12, middle + 4, ink=ink))
    return "".join(parts), bottom + 18 + _GAP + 12


def _short_label(key: Sequence[str]) -> str:
    """Return the values of a group in at most `_LONGEST_LABEL` characters; the longest are cut first.

    Cutting the end of all of them would leave nothing of the last value, by which groups often differ.
    """
    values, room = [name(value) for value in key], _LONGEST_LABEL - 2 * (len(key) - 1)
    lengths = {}
    for left, (length, i) in enumerate(sorted((len(value), i) for i, value in enumerate(values))):
        lengths[i] = min(length, max(2, room // (len(values) - left)))
        room -= lengths[i]
    return ", ".join(shorten(value, lengths[i]) for i, value in enumerate(values))


def _write_tick(tick: float, table: ResultTable, column: TableColumn) -> str:
    return table.number_format(column)(tick) if column.first_day is not None else number(tick)


def _describe(table: ResultTable) -> str:
    """Return the first numbers of a chart as a sentence for who cannot see it."""
    said = []
    for column in table.columns:
        for row, (value, interval) in zip(table.rows[:10], table.texts(column)[:10], strict=True):
            key = ", ".join(map(name, row.key)) or column.name
            said.append(f"{key}: {value}" + (f", interval {interval}" if interval else ""))
    return f"{table.title}. {'; '.join(said)}."


def _label(
    text: str, x: float, y: float, *, size: int = 12, ink: str = _INK, anchor: str = "start",
    weight: str = "normal", whole: str | None = None,
) -> str:  # fmt: skip
    """Return a text element, with the whole text as its title where it was shortened."""
    title = "" if whole in (None, text) else f"<title>{escape_text(whole or '')}</title>"
    bold = "" if weight == "normal" else f' font-weight="{weight}"'
    return (
        f'<text x="{_pixel(x)}" y="{_pixel(y)}" font-size="{size}" fill="{ink}" '
        f'text-anchor="{anchor}"{bold}>{title}{escape_text(text)}</text>'
    )


def _text_width(text: str) -> float:
    """Return about how many pixels a text is wide; letters of some scripts are twice as wide."""
    wide = sum(unicodedata.east_asian_width(character) in ("W", "F") for character in text)
    return _CHARACTER * (len(text) + wide)


def _wrap(text: str) -> list[str]:
    """Return a title in lines, cut after the last that fits."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}".strip()
        if len(joined) <= _TITLE_WIDTH or not lines[-1]:
            lines[-1] = shorten(joined, _TITLE_WIDTH)
        else:
            lines.append(shorten(word, _TITLE_WIDTH))
    if len(lines) > _TITLE_LINES:
        lines = [*lines[: _TITLE_LINES - 1], shorten(lines[_TITLE_LINES - 1] + " …", _TITLE_WIDTH)]
    return lines
