"""The picture of a model's ellipses: right places, whatever the model looks like."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.learn import LargeMarginGaussianClassifier
from discreet.learn.large_margin import Ellipse
from discreet.privacy import NoPromise
from discreet.report.charts import ellipse_picture
from tests.report.samples import HOSTILE

BOUNDS = ((0.0, 10.0), (-1.0, 1.0))


def circles(picture: str) -> list[tuple[float, float]]:
    root = ElementTree.fromstring(picture)
    return [(float(e.attrib["cx"]), float(e.attrib["cy"])) for e in root.iter() if e.tag.endswith("circle")]


def test_centers_are_where_their_numbers_are_and_outside_ones_at_the_edge() -> None:
    ellipses = [
        Ellipse(label="a", center=(5.0, 0.0), radii=(2.0, 0.5), angle=0.0),
        Ellipse(label="b", center=(99.0, 1.0), radii=(1.0, 1.0), angle=30.0),
    ]
    picture = str(ellipse_picture("k", ellipses, ("age", "score"), BOUNDS))
    assert circles(picture) == [(210.0, 162.0), (360.0, 12.0)]
    assert "clip-path" in picture
    assert "a around 5, 0" in picture


def test_the_outline_passes_through_the_tips_of_its_radii() -> None:
    e = Ellipse(label="a", center=(5.0, 0.0), radii=(3.0, 0.3), angle=0.0)
    picture = str(ellipse_picture("k", [e], ("age", "score"), BOUNDS))
    # Three tenths of the width to the right of the center, and three twentieths of the height above it.
    assert "M300 162" in picture
    assert "L210 117" in picture


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.floats(-180, 180))
def test_any_ellipse_makes_a_picture(center: float, radius: float, angle: float) -> None:
    e = Ellipse(label=3, center=(center, -center), radii=(radius, radius / 7), angle=angle)
    root = ElementTree.fromstring(str(ellipse_picture("k", [e], ("x", "y"), BOUNDS)))
    assert root.get("role") == "img"


@pytest.mark.parametrize("name", HOSTILE)
def test_names_stay_text(name: str) -> None:
    e = Ellipse(label=name, center=(1.0, 0.0), radii=(1.0, 1.0), angle=0.0)
    root = ElementTree.fromstring(str(ellipse_picture("k", [e], (name, name), BOUNDS)))
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg", "title", "desc", "clipPath", "rect", "line", "text", "g", "path", "circle",
    }  # fmt: skip


def test_a_trained_model_is_drawn() -> None:
    t = np.arange(400.0)
    X = np.column_stack([5 + 5 * np.sin(t), np.cos(3 * t)])
    y = np.where(np.hypot(X[:, 0] / 5 - 1, X[:, 1]) < 0.8, "in", "out")
    bounds = ([0.0, -1.0], [10.0, 1.0])
    model = LargeMarginGaussianClassifier(privacy=NoPromise("made up"), bounds=bounds).fit(X, y)
    picture = str(ellipse_picture("m", model.ellipses(), ("age", "score"), BOUNDS))
    (inside, _) = circles(picture)
    assert math.dist(inside, (210.0, 162.0)) < 3
