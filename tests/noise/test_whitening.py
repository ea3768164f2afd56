"""The map to the lattice: bounds bind, sensitivity is never understated, the output stays on the lattice."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.errors import ParameterError
from discreet.noise import Stream, Whitening
from discreet.noise.whitening import STEPS

finite = st.floats(-1e6, 1e6)
columns = st.lists(st.tuples(finite, st.floats(1e-3, 1e6), st.floats(1e-2, 1e3)), min_size=1, max_size=5)


@given(columns, st.lists(st.floats(allow_nan=False), min_size=10, max_size=10))
def test_no_two_rows_are_further_apart_than_the_sensitivity(
    spec: list[tuple[float, float, float]], cells: list[float]
) -> None:
    lower = np.array([a for a, _, _ in spec])
    upper = lower + np.array([w for _, w, _ in spec])
    sd = (upper - lower) * np.array([r for _, _, r in spec])
    whitening = Whitening.diagonal(lower, upper, sd)
    p = lower.size
    rows = np.vstack([np.resize(np.array(cells), (4, p)), lower, upper])
    lattice = whitening.quantize(rows)
    for a, b in itertools.combinations(lattice, 2):
        square = sum((int(x) - int(y)) ** 2 for x, y in zip(a, b, strict=True))
        assert Fraction(square) <= (Fraction(whitening.sensitivity) * STEPS) ** 2


def test_the_price_of_the_lattice_is_below_one_in_a_million() -> None:
    whitening = Whitening.diagonal(np.zeros(14), np.ones(14), np.full(14, 3.0))
    assert abs(whitening.sensitivity / whitening.ideal_sensitivity - 1) < 1e-6


def test_the_corners_of_the_box_attain_the_sensitivity() -> None:
    whitening = Whitening.diagonal(np.array([0.0, 5.0]), np.array([1.0, 9.0]), np.array([0.3, 2.0]))
    a, b = whitening.quantize(np.array([[0.0, 5.0], [1.0, 9.0]]))
    attained = math.sqrt(float(np.sum((a - b) ** 2))) / STEPS
    assert attained == pytest.approx(whitening.sensitivity, rel=1e-6)


def test_values_outside_the_bounds_count_as_the_bound_and_infinity_too() -> None:
    whitening = Whitening.diagonal(np.zeros(1), np.ones(1), np.ones(1))
    cells = np.array([[-5.0], [-np.inf], [7.0], [np.inf]])
    assert np.array_equal(whitening.quantize(cells)[:, 0], [0, 0, STEPS, STEPS])


def test_the_output_depends_on_the_row_through_a_lattice_integer_alone() -> None:
    whitening = Whitening.diagonal(np.array([0.1]), np.array([1.3]), np.array([0.7]))
    possible = whitening.restore(np.arange(-4 * STEPS, 6 * STEPS).reshape(-1, 1))[:, 0]
    for value in (0.1, 0.123456789, 1.3):
        out = whitening.release(np.full((500, 1), value), Stream.from_seed(1))[:, 0]
        assert np.array_equal(possible[np.searchsorted(possible, out)], out)


def test_noise_has_the_asked_standard_deviation_and_columns_are_independent() -> None:
    whitening = Whitening.diagonal(np.zeros(2), np.ones(2), np.array([0.5, 4.0]))
    out = whitening.release(np.full((200_000, 2), 0.5), Stream.from_seed(5)) - 0.5
    assert out.std(axis=0) == pytest.approx([0.5, 4.0], rel=0.015)
    assert abs(float(np.mean(out[:, 0] * out[:, 1]))) < 0.015 * 2


def test_dense_noise_has_the_asked_covariance_and_a_safe_sensitivity() -> None:
    V = np.array([[2.0, 0.9], [0.9, 1.0]])
    inverse = np.linalg.cholesky(V)
    matrix = np.linalg.inv(inverse)
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=2)))
    diameter = float(np.linalg.norm(corners @ matrix.T, axis=1).max()) * (1 + 1e-12)
    whitening = Whitening.dense(np.zeros(2), np.ones(2), matrix, inverse, diameter)
    assert whitening.ideal_sensitivity < whitening.sensitivity < diameter * (1 + 1e-5)
    rows = np.array(list(itertools.product([0.0, 0.3, 1.0], repeat=2)))
    lattice = whitening.quantize(rows).astype(object)
    for a, b in itertools.combinations(lattice, 2):
        assert sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) <= (whitening.sensitivity * STEPS) ** 2
    out = whitening.release(np.zeros((200_000, 2)), Stream.from_seed(3))
    assert np.cov(out.T) == pytest.approx(V, abs=0.03)


def test_a_missing_value_is_refused_and_not_turned_into_a_number() -> None:
    whitening = Whitening.diagonal(np.zeros(2), np.ones(2), np.ones(2))
    with pytest.raises(ParameterError, match="missing"):
        whitening.release(np.array([[0.5, np.nan]]))


@pytest.mark.parametrize(
    ("lower", "upper", "sd", "says"),
    [
        ([0.0], [0.0], [1.0], "lower below upper"),
        ([1.0], [0.0], [1.0], "lower below upper"),
        ([0.0], [math.inf], [1.0], "finite"),
        ([math.nan], [1.0], [1.0], "finite"),
        ([0.0], [1.0], [0.0], "above 0"),
        ([0.0], [1.0], [math.nan], "above 0"),
        ([0.0], [1.0], [1e-12], "at least 2"),
        ([0.0, 0.0], [1.0], [1.0], "one length"),
        ([], [], [], "one length"),
    ],
)
def test_wrong_parameters_are_refused_in_words(
    lower: list[float], upper: list[float], sd: list[float], says: str
) -> None:
    with pytest.raises(ParameterError, match=says):
        Whitening.diagonal(np.array(lower), np.array(upper), np.array(sd))


def test_a_dense_map_that_rounding_would_blur_is_refused() -> None:
    huge = np.eye(2) * 2.0**40
    with pytest.raises(ParameterError, match="half a lattice step"):
        Whitening.dense(np.zeros(2), np.ones(2), huge, np.eye(2) * 2.0**-40, 2.0**41)
    with pytest.raises(ParameterError, match="2 by 2"):
        Whitening.dense(np.zeros(2), np.ones(2), np.eye(3), np.eye(3), 1.0)
    with pytest.raises(ParameterError, match="diameter"):
        Whitening.dense(np.zeros(2), np.ones(2), np.eye(2), np.eye(2), math.nan)
    with pytest.raises(ParameterError, match="finite"):
        Whitening.dense(np.zeros(2), np.ones(2), np.eye(2) * math.nan, np.eye(2), 1.0)


def test_rows_with_the_wrong_number_of_columns_are_refused() -> None:
    whitening = Whitening.diagonal(np.zeros(2), np.ones(2), np.ones(2))
    with pytest.raises(ParameterError, match="2 columns"):
        whitening.release(np.zeros((3, 4)))


def test_total_variation_adds_up_over_cells() -> None:
    whitening = Whitening.diagonal(np.zeros(3), np.ones(3), np.ones(3))
    assert whitening.total_variation(1000) == 3000 * 2.0**-117
