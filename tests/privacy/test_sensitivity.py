from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.errors import ParameterError
from discreet.privacy import sensitivity
from discreet.privacy.sensitivity import (
    ball_sum_sensitivity,
    box_diameter,
    histogram_sensitivity,
    integer_box_diameter,
    lattice_sensitivity,
    sum_sensitivity,
)

pairs = st.lists(
    st.tuples(st.floats(min_value=-1e6, max_value=1e6), st.floats(min_value=0, max_value=1e6)).map(
        lambda p: (p[0], p[0] + p[1])
    ),
    min_size=1,
    max_size=8,
)


@given(pairs)
def test_the_diameter_is_the_smallest_float_above_the_true_one(
    box: list[tuple[float, float]],
) -> None:
    value = box_diameter([low for low, _ in box], [high for _, high in box])
    square = sum((Fraction(high) - Fraction(low)) ** 2 for low, high in box)
    assert Fraction(value) ** 2 >= square
    assert value == 0.0 or Fraction(math.nextafter(value, 0.0)) ** 2 < square


def test_rounding_to_nearest_would_fall_below_the_true_diameter() -> None:
    # The broken twin: numpy's norm is below the exact diameter for about half of all boxes.
    below = 0
    for d in range(2, 60):
        widths = [k / 10 for k in range(1, d)]
        square = sum((Fraction(width) ** 2 for width in widths), Fraction(0))
        below += Fraction(float(np.linalg.norm(widths))) ** 2 < square
        assert Fraction(box_diameter([0.0] * len(widths), widths)) ** 2 >= square
    assert below > 10


@given(st.lists(st.integers(min_value=0, max_value=2**80), min_size=1, max_size=6))
def test_the_integer_diameter_is_exact_at_any_size(widths: list[int]) -> None:
    value = integer_box_diameter([-3] * len(widths), [w - 3 for w in widths])
    square = sum(w * w for w in widths)
    assert Fraction(value) ** 2 >= square
    assert value == 0.0 or Fraction(math.nextafter(value, 0.0)) ** 2 < square


def test_known_values() -> None:
    assert box_diameter(0, 1) == 1.0
    assert box_diameter([0, 0], [3, 4]) == 5.0
    assert box_diameter(0.0, 5e-324) == 5e-324
    assert integer_box_diameter([0, 0], [3 * 2**60, 4 * 2**60]) == 5.0 * 2**60
    assert integer_box_diameter(np.array([0, 0]), np.array([3, 4])) == 5.0
    assert lattice_sensitivity(1.0, 2.0**-30, 4) == 1.0 + 4 * 2.0**-30
    assert lattice_sensitivity(1.0, 0.0, 4) == 1.0
    assert ball_sum_sensitivity(1.5, neighbors="replace-one") == 3.0
    assert ball_sum_sensitivity(1.5, neighbors="add-remove", rows=4) == 6.0
    root = histogram_sensitivity(neighbors="replace-one")
    assert Fraction(math.nextafter(root, 0.0)) ** 2 < 2 <= Fraction(root) ** 2
    assert histogram_sensitivity(neighbors="replace-one", norm="L1", rows=3) == 6.0
    assert histogram_sensitivity(neighbors="add-remove", rows=3) == 3.0


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_no_pair_of_neighboring_tables_moves_a_sum_farther(neighbors: Any, rows: int, norm: Any) -> None:
    lower, upper = [-1.0, 0.5], [2.0, 0.75]
    bound = sum_sensitivity(lower, upper, neighbors=neighbors, rows=rows, norm=norm)
    corners = [np.array(c) for c in itertools.product(*zip(lower, upper, strict=True))]
    order = 1 if norm == "L1" else 2
    people = [sum(c, np.zeros(2)) for c in itertools.combinations_with_replacement(corners, rows)]
    others = people if neighbors == "replace-one" else [np.zeros(2)]
    moves = [np.linalg.norm(a - b, ord=order) for a in people for b in others]
    assert max(moves) <= bound
    assert max(moves) == pytest.approx(bound, rel=1e-14)  # and it is attained


@pytest.mark.parametrize("neighbors", ["replace-one", "add-remove"])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("norm", ["L1", "L2"])
def test_no_pair_of_neighboring_tables_moves_a_histogram_farther(
    neighbors: Any, rows: int, norm: Any
) -> None:
    cells = np.eye(4)
    people = [sum(c, np.zeros(4)) for c in itertools.combinations_with_replacement(cells, rows)]
    others = people if neighbors == "replace-one" else [np.zeros(4)]
    order = 1 if norm == "L1" else 2
    moves = [np.linalg.norm(a - b, ord=order) for a in people for b in others]
    bound = histogram_sensitivity(neighbors=neighbors, rows=rows, norm=norm)
    assert max(moves) == pytest.approx(bound, rel=1e-14)


def test_rounding_both_rows_to_the_lattice_stays_within_the_lattice_sensitivity() -> None:
    step = 0.25
    rows = [np.array([x, y]) for x in np.linspace(0, 1, 11) for y in np.linspace(0, 1, 11)]
    worst = max(
        float(np.linalg.norm(step * np.round(a / step) - step * np.round(b / step)))
        for a in rows
        for b in rows
    )
    assert worst <= lattice_sensitivity(box_diameter([0, 0], [1, 1]), step, 2)


BAD: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("box_diameter", ([0, 0], [1]), {}, "lower and upper"),
    ("box_diameter", ([], []), {}, "lower and upper"),
    ("box_diameter", (1, 0), {}, "lower and upper"),
    ("box_diameter", (0, math.inf), {}, "lower and upper"),
    ("box_diameter", ([0, math.nan], [1, 1]), {}, "lower and upper"),
    ("box_diameter", ([-1.7e308] * 4, [1.7e308] * 4), {}, "range of floats"),
    ("integer_box_diameter", ([0.0], [1.5]), {}, "lower"),
    ("integer_box_diameter", ([2], [1]), {}, "lower and upper"),
    ("sum_sensitivity", (0, 1), {"neighbors": "replace"}, "neighbors"),
    ("sum_sensitivity", (0, 1), {"neighbors": "replace-one", "norm": "L3"}, "norm"),
    ("sum_sensitivity", (0, 1), {"neighbors": "replace-one", "rows": 0}, "rows"),
    ("ball_sum_sensitivity", (-1.0,), {"neighbors": "add-remove"}, "norm_bound"),
    ("lattice_sensitivity", (1.0, -1.0, 2), {}, "step"),
    ("lattice_sensitivity", (1.0, 1.0, 0), {}, "dimension"),
]


@pytest.mark.parametrize(("function", "arguments", "keywords", "named"), BAD)
def test_what_was_declared_wrongly_is_named(
    function: str, arguments: tuple[Any, ...], keywords: dict[str, Any], named: str
) -> None:
    with pytest.raises(ParameterError, match=named):
        getattr(sensitivity, function)(*arguments, **keywords)
