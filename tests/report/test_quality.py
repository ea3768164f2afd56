"""Section about a synthetic table: charts with every column, and what was not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.report.charts import MOST_PAIRED, dependence_tree, error_bars, pair_heat
from discreet.report.charts._dependence import error_shade, outline_tree
from discreet.report.pages._quality import measured_view, quality_view
from tests.report.samples import CONTROLS, HOSTILE, quality_of

if TYPE_CHECKING:
    from markupsafe import Markup


def texts(picture: Markup, element: str = "text") -> list[str]:
    return ["".join(e.itertext()) for e in ElementTree.fromstring(str(picture)).iter(element)]


@pytest.mark.parametrize("count", [2, 5, 13, 30, 60])
def test_every_pair_has_a_cell_and_every_column_a_name(count: int) -> None:
    names = [f"c{k}" for k in range(count)]
    errors = [[0.001 * (i + j) for j in range(i)] for i in range(count)]
    picture = pair_heat("k", names, errors, {frozenset(("c0", "c1"))})
    root = ElementTree.fromstring(str(picture))
    cells = [e for e in root.iter("rect") if (e.get("class") or "").startswith("cell")]
    assert len(cells) == count * (count - 1) // 2
    assert set(names) <= set(texts(picture))
    titles = texts(picture, "title")
    assert sum(title.endswith("no table") for title in titles) == 1
    assert "c0 and c1: 0.1\u00a0%, no table" in titles
    round_ones = [e for e in cells if float(e.attrib["rx"]) == float(e.attrib["width"]) / 2]
    assert len(round_ones) == 1


def test_of_too_many_columns_the_farthest_are_drawn() -> None:
    count = MOST_PAIRED + 3
    errors = [[0.0 if {i, j} & {4, 5, 6} else 0.1 for j in range(i)] for i in range(count)]
    shown = texts(pair_heat("k", [f"c{k}" for k in range(count)], errors, ()))
    assert len(shown) == MOST_PAIRED
    assert not {"c4", "c5", "c6"} & set(shown)


def test_shades_rise_with_the_error() -> None:
    assert [error_shade(e) for e in (0.0, 0.0099, 0.01, 0.03, 0.07, 0.15, 0.9)] == [
        "h0", "h0", "up1", "up2", "up3", "up4", "up5",
    ]  # fmt: skip


@given(st.lists(st.integers(min_value=0), min_size=1, max_size=40), st.integers(min_value=0))
def test_a_tree_is_outlined_with_every_column_once_and_as_flat_as_can_be(
    parents: list[int], skip: int
) -> None:
    names = [f"c{k}" for k in range(len(parents) + 1)]
    edges = [(names[p % (k + 1)], names[k + 1]) for k, p in enumerate(parents) if k != skip % 41]
    lines = outline_tree(names, edges)
    assert sorted(line.name for line in lines) == sorted(names)
    joined = {frozenset((line.name, lines[line.parent].name)) for line in lines if line.parent is not None}
    assert joined == {frozenset(edge) for edge in edges}
    for k, line in enumerate(lines):
        assert line.parent is None or line.parent < k
        assert line.depth == (0 if line.parent is None else lines[line.parent].depth + 1)
    near: dict[str, set[str]] = {name: set() for name in names}
    for a, b in edges:
        near[a].add(b)
        near[b].add(a)

    def height(root: str) -> int:
        depths = {root: 0}
        for name in (queue := [root]):
            for other in near[name] - set(depths):
                depths[other] = depths[name] + 1
                queue.append(other)
        return max(depths.values())

    starts = [k for k, line in enumerate(lines) if line.parent is None]
    first = lines[: [*starts, len(lines)][1]]
    assert max(line.depth for line in first) == min(height(line.name) for line in first)


def test_the_tree_has_every_column_its_target_and_its_numbers() -> None:
    names = ["a", "b", "c", "alone"]
    picture = dependence_tree("k", names, {("a", "b"): 0.251, ("b", "c"): None}, "y")
    shown = texts(picture)
    assert {*names, "y (target)", "25\u00a0%"} <= set(shown)
    (described,) = texts(picture, "desc")
    assert described == "Joined: a with b (25\u00a0% of the rows), c with b. All are given y."
    bare = dependence_tree("k", ["a"], {}, None)
    assert texts(bare, "desc") == ["No two columns are joined."]
    assert dependence_tree("k", [], {}, None) == ""


def test_bars_are_as_long_as_their_errors() -> None:
    picture = error_bars("k", [("a", 0.02, 0.01), ("b", 0.01, 0.01)], largest=0.02, title="Errors")
    widths = [float(e.attrib["width"]) for e in ElementTree.fromstring(str(picture)).iter("rect")]
    assert widths[0] == pytest.approx(2 * widths[1])
    assert "a: 2\u00a0%, by chance 1\u00a0%" in texts(picture, "title")
    assert error_bars("k", [], largest=0.0, title="Errors") == ""


@pytest.mark.parametrize("name", [*HOSTILE, CONTROLS])
def test_names_stay_text_in_every_chart(name: str) -> None:
    pictures = [
        pair_heat("k", [name, "b"], [[], [0.1]], ()),
        error_bars("k", [(name, 0.1, 0.1)], largest=0.1, title="Errors"),
        dependence_tree("k", [name, "b"], {(name, "b"): 0.1}, name),
    ]
    for picture in pictures:
        elements = {e.tag for e in ElementTree.fromstring(str(picture)).iter()}
        assert elements <= {"svg", "title", "desc", "g", "rect", "line", "path", "circle", "text"}
        assert "\u202e" not in picture
        assert "\x00" not in picture


def test_what_was_not_measured_is_said_and_a_public_page_has_no_error() -> None:
    quality = quality_of(["a", "b", "c", "d", "y"], target="y")
    view = quality_view(quality)
    assert view.measured.gaps is not None
    gaps = {str(row[0]): str(row[1]) for row in view.measured.gaps.rows}
    assert gaps["Pairs without a table"] == "8 of 10"
    assert gaps["Rare levels"] == "words: 70 of 90 levels share one cell"
    assert gaps["Values inside a cell"] == "a, c, y"
    assert "Fallback, announced before the charge" in gaps
    assert "off by 2\u00a0% of the rows" in view.lead
    public = measured_view(quality.measured)
    assert public.pairs is not None
    assert "Error" not in public.pairs.head
    assert [row[1:] for row in public.pairs.rows] == [
        ["b", "c, d, y"], ["a", "c, d, y"], ["d", "a, b, y"], ["c", "a, b, y"], ["none", "a, b, c, d"],
    ]  # fmt: skip
    assert view.measured.pairs is not None
    shown = [float(str(row[2]).split("\u00a0")[0]) for row in view.measured.pairs.rows]
    assert shown == sorted(shown, reverse=True)
    # 13 rows of 1,000, and 4 cells that are off by .399 of it each.
    row = next(r for r in public.tables.rows if "a</bdi>" in r[0] and "," not in r[0])
    assert row[1:] == ["4", "13", "1.3\u00a0%", "2.1\u00a0%"]


def test_fallbacks_are_read_from_public_files_where_the_plan_is_not_at_hand() -> None:
    measured = quality_of(["a", "b", "c", "y"], target="y").measured
    changes: dict[str, dict[str, Any]] = {
        "Fallback: one round": {"notes": []},
        "Fallback: no scores": {"notes": [], "questions": ["one"], "edges": []},
        "Target not singled out": {"notes": [], "target": None},
        "Fallback: tree without the target": {},
        "No further pair": {"questions": ["one", "scores", "tables", "scores again", "more tables"]},
        "No pair in the tree": {"edges": []},
    }
    for what, change in changes.items():
        view = measured_view(measured.model_copy(update=change))
        assert view.gaps is not None
        assert what in [row[0] for row in view.gaps.rows]


def test_a_table_with_every_count_has_no_gaps() -> None:
    measured = quality_of(["a"]).measured
    whole = measured.model_copy(update={"columns": measured.columns[:1], "notes": [], "questions": ["one"]})
    column = whole.columns[0].model_copy(update={"has_inside": False})
    assert measured_view(whole.model_copy(update={"columns": [column]})).gaps is None
