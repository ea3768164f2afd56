"""Charts of a synthetic table: errors of columns and of pairs, and the tree along which rows were drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from discreet import formatting
from discreet.report.charts._svg import ChartAxis, figure, label, path, tag

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

MOST_PAIRED = 64
"""Largest number of columns whose pairs are drawn."""
ERROR_STEPS = (0.01, 0.02, 0.05, 0.1, 0.2)
"""Errors from which on a cell has the next darker shade."""
# Side of a cell for up to so many columns.
_SIZES = ((8, 44), (14, 34), (30, 20), (MOST_PAIRED, 12))
_MOST_WITH_NUMBERS = 14
_MOST_LETTERS = 20  # of a name
_LETTER = 7  # width of a letter, about


def error_shade(error: float) -> str:
    """Return the class of a cell: one of six shades by the size of its error."""
    size = sum(error >= step for step in ERROR_STEPS)
    return f"up{size}" if size else "h0"


def _width(name: str) -> float:
    """Return about how wide a shortened name is."""
    return _LETTER * len(formatting.shorten(name, _MOST_LETTERS))


def pair_heat(
    key: str,
    names: Sequence[str],
    errors: Sequence[Sequence[float]],
    unmeasured: Collection[frozenset[str]],
) -> Markup:
    """Draw the error of each pair as a triangle with the names along its long side.

    Parameters
    ----------
    key : str
        Identifier of the chart, unique on the page.
    names : sequence of str
        Names of the columns.
    errors : sequence of sequences of float
        For each column, the error of its pair with every column before it.
    unmeasured : collection of frozenset of str
        Pairs without a table, which are drawn as circles.

    Returns
    -------
    Markup
        Empty with fewer than two columns; of more than :data:`MOST_PAIRED`, those with the largest errors.
    """
    if len(names) < 2:
        return Markup("")
    shown = farthest_columns(errors)
    size = next(side for most, side in _SIZES if len(shown) <= most)
    shapes = []
    for a, i in enumerate(shown):
        for b, j in enumerate(shown[:a]):
            missing = frozenset((names[i], names[j])) in unmeasured
            pair = f"{formatting.name(names[j])} and {formatting.name(names[i])}"
            words = f"{pair}: {formatting.small_percent(errors[i][j])}{', no table' if missing else ''}"
            shapes.append(_heat_cell(b * size, a * size, size, errors[i][j], words, missing, len(shown)))
        shapes.append(
            tag(
                "g",
                tag("title", formatting.name(names[i])),
                label(formatting.shorten(names[i], _MOST_LETTERS), a * size + 5, a * size + size / 2 + 4),
                class_="level",
            )
        )
    error, i, j = max((errors[i][j], i, j) for a, i in enumerate(shown) for j in shown[:a])
    return figure(
        key,
        *shapes,
        title="Errors of pairs of columns",
        description=(
            f"One cell for each pair of {len(shown)} columns. The largest error is "
            f"{formatting.small_percent(error)} of the rows, of {formatting.name(names[j])} and "
            f"{formatting.name(names[i])}."
        ),
        width=max((a + 1) * size + _width(names[i]) for a, i in enumerate(shown)),
        height=len(shown) * size + 2,
        class_="heat",
    )


def farthest_columns(errors: Sequence[Sequence[float]]) -> list[int]:
    """Return the columns with the largest errors of pairs, in the order of the table."""
    worst = [0.0] * len(errors)
    for i, row in enumerate(errors):
        for j, error in enumerate(row):
            worst[i], worst[j] = max(worst[i], error), max(worst[j], error)
    return sorted(sorted(range(len(errors)), key=lambda i: (-worst[i], i))[:MOST_PAIRED])


def _heat_cell(
    x: float, y: float, size: float, error: float, words: str, missing: bool, count: int
) -> Markup:
    """Return one cell: a square, or a circle without a table, with its number where there is room."""
    shade, side = error_shade(error), size - 1
    radius = side / 2 if missing else min(2.0, size / 10)
    shapes = [
        tag("title", words),
        tag("rect", class_=f"cell {shade}", x=x, y=y, width=side, height=side, rx=radius),
    ]
    if count <= _MOST_WITH_NUMBERS:
        text = f"{100 * error:.1f}" if error < 0.0995 else f"{100 * error:.0f}"
        shapes.append(
            label(text, x + side / 2, y + size / 2 + 4, anchor="middle", class_=f"cell-text {shade}")
        )
    return tag("g", *shapes)


_BARS_LENGTH, _BARS_ROW, _BARS_RIGHT, _LEAST_LEFT = 190, 22, 52, 130


def error_bars(key: str, rows: Sequence[tuple[str, float, float]], *, largest: float, title: str) -> Markup:
    """Draw the error of each column as a bar, and the error that chance alone would make as a tick.

    Parameters
    ----------
    key : str
        Identifier of the chart, unique on the page.
    rows : sequence of (str, float, float)
        Name, error and error by chance of each column, as shares.
    largest : float
        Error at the right end of the axis, so that several charts have the same.
    title : str
        Title of the chart for people who do not see it.
    """
    if not rows:
        return Markup("")
    left = max([_LEAST_LEFT, *(8 + _width(name) for name, _, _ in rows)])
    x = ChartAxis(lower=0.0, upper=largest or 1.0, start=left, end=left + _BARS_LENGTH)
    shapes = []
    for k, (name, error, chance) in enumerate(rows):
        y = k * _BARS_ROW
        by_chance = formatting.small_percent(chance)
        words = f"{formatting.name(name)}: {formatting.small_percent(error)}, by chance {by_chance}"
        shapes.append(
            tag(
                "g",
                tag("title", words),
                label(formatting.shorten(name, _MOST_LETTERS), left - 8, y + 15, anchor="end"),
                tag("rect", class_="after", x=left, y=y + 4, width=x(error) - left, height=14),
                tag("line", class_="before", x1=x(chance), x2=x(chance), y1=y + 2, y2=y + 20),
                label(formatting.small_percent(error), max(x(error), x(chance)) + 6, y + 15, class_="tick"),
                class_="level",
            )
        )
    worst = max(rows, key=lambda row: row[1])
    return figure(
        key,
        *shapes,
        title=title,
        description=(
            f"{formatting.count_noun(len(rows), 'column')}. The largest error is "
            f"{formatting.small_percent(worst[1])} of the rows, of {formatting.name(worst[0])}."
        ),
        width=left + _BARS_LENGTH + _BARS_RIGHT,
        height=len(rows) * _BARS_ROW + 2,
    )


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One line of the outline of a tree.

    Attributes
    ----------
    name : str
        Name of the column.
    depth : int
        Number of columns between it and the root.
    parent : int or None
        Line of the column it hangs from; None for a root.
    """

    name: str
    depth: int
    parent: int | None


def outline_tree(names: Sequence[str], edges: Collection[tuple[str, str]]) -> list[TreeRow]:
    """Return the columns line by line, each below the one it hangs from: the largest tree first.

    A tree is hung at its middle, so that it is as flat as possible. Which column is the root has no meaning:
    the tables along the edges say the same either way.
    """
    near: dict[str, list[str]] = {name: [] for name in names}
    for first, second in edges:
        near[first].append(second)
        near[second].append(first)
    trees: list[list[str]] = []
    for name in names:
        if not any(name in tree for tree in trees):
            trees.append(_walk(near, name))
    lines: list[TreeRow] = []
    for tree in sorted(trees, key=lambda tree: -len(tree)):
        # The middle of a longest path: from any end to the farthest column, and from there to its farthest.
        chain = _longest_path(near, _longest_path(near, tree[0])[-1])
        waiting: list[tuple[str, int, int | None]] = [(chain[len(chain) // 2], 0, None)]
        seen: set[str] = set()
        while waiting:
            name, depth, parent = waiting.pop()
            seen.add(name)
            children = [other for other in near[name] if other not in seen]
            waiting += [(other, depth + 1, len(lines)) for other in reversed(children)]
            lines.append(TreeRow(name, depth, parent))
    return lines


def _walk(near: Mapping[str, Sequence[str]], start: str) -> list[str]:
    """Return all columns that are joined to one, itself first."""
    found = [start]
    for name in found:
        found += [other for other in near[name] if other not in found]
    return found


def _longest_path(near: Mapping[str, Sequence[str]], start: str) -> list[str]:
    """Return the path from a column to the one farthest from it."""
    before: dict[str, str | None] = {start: None}
    last = start
    queue = [start]
    for last in queue:
        for other in near[last]:
            if other not in before:
                before[other] = last
                queue.append(other)
    walked: list[str] = []
    at: str | None = last
    while at is not None:
        walked.append(at)
        at = before[at]
    return walked[::-1]


_TREE_ROW, _TREE_STEP, _TREE_BAR, _TREE_NUMBER = 26, 20, 80, 44


def dependence_tree(
    key: str,
    names: Sequence[str],
    edges: Mapping[tuple[str, str], float | None],
    target: str | None,
) -> Markup:
    """Draw the tree along which rows were drawn: a line for each column, a bar for how much it depends.

    Parameters
    ----------
    key : str
        Identifier of the chart, unique on the page.
    names : sequence of str
        Names of all columns but the target.
    edges : mapping of (str, str) to float or None
        Pairs that are joined, with the share of rows by which they depart from independence; None if unknown.
    target : str or None
        Column that stands above all others; None if there is none.
    """
    if not names:
        return Markup("")
    lines = outline_tree(names, list(edges))
    strengths = {frozenset(pair): rows for pair, rows in edges.items()}
    left, top = 8 if target is None else 8 + _TREE_STEP, 6 + _TREE_ROW
    bars = left + 28 + max(line.depth * _TREE_STEP + _width(line.name) for line in lines)
    x = ChartAxis(
        lower=0.0,
        upper=max([rows for rows in edges.values() if rows is not None], default=0.0) or 1.0,
        start=bars,
        end=bars + _TREE_BAR,
    )
    links, nodes = [], []
    if target is not None:
        last = max(k for k, line in enumerate(lines) if line.parent is None)
        links.append(path([(8, 6 + _TREE_ROW / 2), (8, top + (last + 0.5) * _TREE_ROW)], class_="link given"))
        nodes += [
            tag("circle", class_="node target", cx=8, cy=6 + _TREE_ROW / 2, r=6),
            tag(
                "g",
                tag("title", f"{formatting.name(target)}, the target"),
                label(
                    f"{formatting.shorten(target, _MOST_LETTERS)} (target)",
                    20,
                    10 + _TREE_ROW / 2,
                    class_="root",
                ),
            ),
        ]
    if any(rows is not None for rows in edges.values()):
        nodes.append(label("dependence", bars, 10 + _TREE_ROW / 2, class_="tick"))
    for k, line in enumerate(lines):
        y, at = top + (k + 0.5) * _TREE_ROW, left + line.depth * _TREE_STEP
        rows = None
        if line.parent is not None:
            above = top + (line.parent + 0.5) * _TREE_ROW
            links.append(path([(at - _TREE_STEP, above), (at - _TREE_STEP, y), (at, y)], class_="link"))
            rows = strengths.get(frozenset((line.name, lines[line.parent].name)))
        elif target is not None:
            links.append(path([(8, y), (at, y)], class_="link given"))
        nodes.append(_node(line.name, at, y, rows, x))
    return figure(
        key,
        *links,
        *nodes,
        title="Dependence between columns",
        description=_describe_tree(lines, strengths, target),
        width=bars + _TREE_BAR + _TREE_NUMBER,
        height=top + len(lines) * _TREE_ROW + 4,
        class_="heat tree",
    )


def _node(name: str, at: float, y: float, rows: float | None, x: ChartAxis) -> Markup:
    """Return the dot and the name of a column, and the bar of its dependence on the one it hangs from."""
    shapes = [
        tag("title", formatting.name(name)),
        tag("circle", class_="node", cx=at, cy=y, r=4.5),
        label(formatting.shorten(name, _MOST_LETTERS), at + 10, y + 4),
    ]
    if rows is not None:
        share = max(rows, 0.0)
        shapes += [
            tag("rect", class_="after", x=x(0.0), y=y - 6, width=max(x(share) - x(0.0), 0.5), height=12),
            label(formatting.small_percent(share), x(share) + 6, y + 4, class_="tick"),
        ]
    return tag("g", *shapes, class_="level")


def _describe_tree(
    lines: Sequence[TreeRow], strengths: Mapping[frozenset[str], float | None], target: str | None
) -> str:
    """Return the tree in words: which column is joined to which, and how much they depend."""
    parts = []
    for line in lines:
        if line.parent is None:
            continue
        parent = lines[line.parent].name
        rows = strengths.get(frozenset((line.name, parent)))
        amount = "" if rows is None else f" ({formatting.small_percent(max(rows, 0.0))} of the rows)"
        parts.append(f"{formatting.name(line.name)} with {formatting.name(parent)}{amount}")
    joined = f"Joined: {', '.join(parts)}." if parts else "No two columns are joined."
    given = "" if target is None else f" All are given {formatting.name(target)}."
    return joined + given
