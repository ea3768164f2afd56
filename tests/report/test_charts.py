"""Pictures: right places, texts for people who do not see them, and nothing that leaves its place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.report.charts import (
    Mark,
    calibration_curve,
    correlation_heat,
    error_curve,
    histogram,
    learning_curve,
    score_bars,
    slider_ticks,
    three_marks,
    timeline,
    what_if_curve,
)
from discreet.report.charts._distributions import MOST_COLUMNS, shade
from discreet.report.charts._svg import ChartAxis, coordinate, round_ticks, tag
from discreet.report.charts.bars import Bar
from discreet.report.findings import Learning, Score
from discreet.report.pages._learning import learning_view
from tests.report.samples import CONTROLS, HOSTILE

if TYPE_CHECKING:
    from markupsafe import Markup


def read(picture: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(str(picture))


def percent(element: ElementTree.Element, attribute: str) -> float:
    return float(element.attrib[attribute].removesuffix("%"))


def one(root: ElementTree.Element, class_: str) -> ElementTree.Element:
    found = [e for e in root.iter() if e.get("class") == class_]
    assert len(found) == 1, class_
    return found[0]


MARKS = [
    Mark(kind="without", error=20.0, words="Without the release: 20."),
    Mark(kind="attack", error=10.0, words="Best attack: 10.", lower=9.5, upper=10.5),
    Mark(kind="floor", error=9.0, words="Proven floor: 9."),
]


def test_marks_stand_in_the_proportion_of_their_errors() -> None:
    root = read(three_marks("k", "age", MARKS, chance=False))
    without = percent(one(root, "mark-without"), "x1")
    assert percent(one(root, "mark-floor"), "x1") == pytest.approx(without * 9 / 20, abs=0.01)
    assert percent(one(root, "mark-attack"), "cx") == pytest.approx(without * 10 / 20, abs=0.01)
    assert percent(one(root, "interval"), "x2") == pytest.approx(without * 10.5 / 20, abs=0.01)
    assert percent(one(root, "proven"), "width") == percent(one(root, "mark-floor"), "x1")


def test_a_bar_of_chances_ends_at_certainty() -> None:
    certain = [Mark(kind="without", error=1.0, words="Always wrong.")]
    root = read(three_marks("k", "sex", certain, chance=True))
    assert percent(one(root, "mark-without"), "x1") == 100


@pytest.mark.parametrize("marks", [[], [Mark(kind="floor", error=0.0, words="")]])
def test_a_bar_without_errors_is_not_drawn(marks: list[Mark]) -> None:
    assert three_marks("k", "age", marks, chance=False) == ""


def test_bars_of_a_histogram_have_the_heights_of_their_shares() -> None:
    root = read(
        histogram("k", "x", ["a", "b", "c", "d"], [0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1], ordered=True)
    )
    heights = [float(e.attrib["height"]) for e in root.iter() if "after" in (e.get("class") or "")]
    assert [h / heights[3] for h in heights] == pytest.approx([4, 3, 2, 1], rel=1e-2)


def test_what_left_the_range_is_drawn_apart() -> None:
    labels = ["< 0", "1", "2", "> 3"]
    root = read(histogram("k", "x", labels, [0.0, 0.5, 0.5, 0.0], [0.1, 0.4, 0.4, 0.1], ordered=True))
    classes = [e.get("class") for e in root.iter() if "after" in (e.get("class") or "")]
    assert classes == ["after beyond", "after", "after", "after beyond"]


def test_a_long_list_shows_its_largest_levels_and_counts_the_rest() -> None:
    labels = [f"level {j}" for j in range(41)]
    shares = [j / 820 for j in range(41)]
    picture = histogram("k", "country", labels, shares, shares, ordered=False)
    assert "and 29 more" in picture
    assert "level 40:" in picture
    assert "level 28:" not in picture


def test_the_share_of_rows_is_drawn_at_the_better_model_of_the_release() -> None:
    scores = [
        Score(trained_on="original", tested_on="original", accuracy=0.9),
        Score(trained_on="release", tested_on="original", accuracy=0.8),
        Score(trained_on="aware", tested_on="original", accuracy=0.85),
    ]
    learning = Learning(
        target="y", task="classification", model="boosting", train_rows=10, test_rows=10, scores=scores,
        equals_share=0.5, curve=[(0.1, 0.8), (0.5, 0.85), (1.0, 0.9)],
    )  # fmt: skip
    assert "With the release it is 85" in learning_view(learning).curve
    assert learning_view(learning).is_aware
    without = learning.model_copy(update={"scores": scores[:2]})
    assert "With the release it is 80" in learning_view(without).curve
    assert not learning_view(without).is_aware


def test_the_equal_share_is_marked_on_the_learning_curve() -> None:
    curve = [(0.01, 0.7), (0.1, 0.8), (1.0, 0.9)]
    picture = learning_curve("k", curve, release=0.8, equals_share=0.1, quality="accuracy", in_percent=True)
    assert "= 10\u00a0% of the rows" in picture
    root = read(picture)
    upright = next(
        e for e in root.iter() if e.get("class") == "level-line release" and e.get("x1") == e.get("x2")
    )
    middle = [e for e in root.iter() if e.get("class") == "dot original"][1]
    assert float(upright.attrib["x1"]) == pytest.approx(float(middle.attrib["cx"]), abs=0.01)


def test_calibration_says_how_far_off_predictions_are() -> None:
    picture = calibration_curve("k", [("model", "release", [(0.2, 0.4, 0.5), (0.8, 0.8, 0.5)])])
    assert "off by 10\u00a0% on average" in picture


def test_cells_of_the_heat_map_carry_numbers_only_where_there_is_room() -> None:
    def matrix(n: int, value: float) -> list[list[float]]:
        return [[1.0 if i == j else value for j in range(n)] for i in range(n)]

    small = read(correlation_heat("k", [f"x{j}" for j in range(3)], matrix(3, 0.5), matrix(3, 0.2)))
    assert [e.text for e in small.iter() if "cell-text" in (e.get("class") or "")] == ["\u22120.30"] * 3
    large = correlation_heat("k", [f"x{j}" for j in range(20)], matrix(20, 0.5), matrix(20, 0.2))
    assert "cell-text" not in large
    assert large.count('class="cell ') == 190


def test_the_heat_map_of_many_columns_shows_the_most_changed() -> None:
    n = 100
    original = [[1.0 if i == j else 0.0 for j in range(n)] for i in range(n)]
    release = [row[:] for row in original]
    release[70][80] = release[80][70] = 0.9
    picture = correlation_heat("k", [f"x{j}" for j in range(n)], original, release)
    assert "x80 and x70" in picture
    assert picture.count('class="cell ') == MOST_COLUMNS * (MOST_COLUMNS - 1) // 2


def test_shades_grow_with_the_change_and_keep_its_sign() -> None:
    assert [shade(x) for x in (0.0, 0.019, 0.02, 0.3, 0.9, -0.06)] == [
        "h0",
        "h0",
        "up1",
        "up4",
        "up5",
        "down2",
    ]


def test_charges_stand_in_time() -> None:
    charges = [("2025-01-01T00:00:00+00:00", "a"), ("2025-01-02", "b"), ("2025-01-11T00:00:00Z", "c")]
    root = read(timeline("k", charges, current=2))
    places = [percent(e, "cx") for e in root.iter() if "charge" in (e.get("class") or "")]
    assert (places[1] - places[0]) / (places[2] - places[0]) == pytest.approx(0.1, abs=1e-3)
    assert one(root, "charge this").attrib["cx"] == "97%"


@pytest.mark.parametrize("moments", [["x", "y"], ["2025-01-01", "2025-01-01"]])
def test_charges_without_a_moment_stand_equally_far_apart(moments: list[str]) -> None:
    root = read(timeline("k", [(m, "a") for m in moments], current=1))
    assert [percent(e, "cx") for e in root.iter() if "charge" in (e.get("class") or "")] == [3, 97]


def _all(name: str) -> list[Markup]:
    flat = [[1.0, 0.2], [0.2, 1.0]]
    return [
        three_marks("k1", name, MARKS, chance=False),
        histogram("k2", name, [name, "b", name], [0.2, 0.3, 0.5], [0.3, 0.3, 0.4], ordered=True),
        histogram("k3", name, [name, "b"], [0.2, 0.8], [0.3, 0.7], ordered=False),
        correlation_heat("k4", [name, name + "2"], flat, flat),
        error_curve(
            "k5",
            name,
            [(1.0, 1.0), (2.0, 1.5)],
            chosen=1.0,
            without=3.0,
            attack=1.1,
            measure=name,
            chance=False,
        ),
        timeline("k6", [("2025-01-01", name), ("2025-02-01", name)], current=0),
        score_bars("k7", [Bar(name=name, class_="release", value=0.5)], quality="accuracy", in_percent=True),
        what_if_curve(
            "k8", [(0.5, 0.7), (1.0, 0.6)], chosen=1.0, title=name, levels=[(name, 0.8, "original")]
        ),
        slider_ticks("k9", 5, 2),
    ]


@pytest.mark.parametrize("name", [*HOSTILE, CONTROLS])
def test_a_hostile_name_stays_text_in_every_picture(name: str) -> None:
    known = {"svg", "title", "desc", "rect", "line", "circle", "path", "text", "g"}
    for picture in _all(name):
        root = read(picture)
        assert {e.tag for e in root.iter()} <= known
        assert not any("\u202e" in t or "\x00" in t for t in root.itertext())
        assert not any(key.startswith("on") or key == "style" for e in root.iter() for key in e.attrib)


def test_every_picture_has_a_title_and_a_description() -> None:
    for picture in _all("age"):
        root = read(picture)
        assert root.attrib["role"] == "img"
        ids = root.attrib["aria-labelledby"].split()
        named = {e.get("id"): e.text for e in root}
        assert [bool(named[i]) for i in ids] == [True, True]


def test_nothing_is_drawn_from_nothing() -> None:
    empty = [
        calibration_curve("k", [("a", "b", [])]),
        learning_curve("k", [], release=0.5, equals_share=None, quality="R²", in_percent=False),
        error_curve("k", "x", [], chosen=1.0, without=None, attack=None, measure=None, chance=False),
        what_if_curve("k", [(1.0, 0.5)], chosen=1.0, title="t", levels=[]),
        score_bars("k", [], quality="accuracy", in_percent=True),
        correlation_heat("k", ["a"], [[1.0]], [[1.0]]),
        timeline("k", [("2025-01-01", "a")], current=0),
    ]
    assert empty == [""] * len(empty)


def test_an_empty_histogram_is_an_empty_frame() -> None:
    for ordered in (True, False):
        picture = histogram("k", "x", [], [], [], ordered=ordered)
        assert "There is nothing to show" in picture
        assert "nan" not in picture.lower()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_without_a_place_is_never_drawn(value: float) -> None:
    with pytest.raises(AssertionError, match="finite"):
        tag("rect", x=value)


@given(st.floats(-1e12, 1e12, allow_nan=False))
def test_places_are_written_without_exponents_and_to_a_hundredth(value: float) -> None:
    text = coordinate(value)
    assert "e" not in text
    assert abs(float(text) - value) <= 0.005 + abs(value) * 1e-15


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9), st.floats(-2e9, 2e9), st.booleans())
def test_an_axis_keeps_every_number_inside_its_stretch(
    lower: float, width: float, value: float, log: bool
) -> None:
    low = abs(lower) + 1e-9 if log else lower
    axis = ChartAxis(lower=low, upper=low + width, start=200, end=10, log=log)
    assert 10 - 1e-9 <= axis(value) <= 200 + 1e-9


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_are_few_and_inside(lower: float, width: float) -> None:
    ticks = round_ticks(lower, lower + width, 5)
    assert len(ticks) <= 7
    slack = 1e-6 * max(abs(lower), width)
    assert all(lower - slack <= t <= lower + width + slack for t in ticks)
