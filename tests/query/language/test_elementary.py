"""Powers, exponential and logarithm against fifty digits, and within the bounds of their ends."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from discreet.query.language import _functions
from discreet.query.language._program import Interval, Program, values

STEPS = np.arange(2001)


def computed(lower: float, upper: float, function: Any) -> tuple[Any, Any]:
    """Apply a function to 2,001 numbers between bounds; return both."""
    program = Program()
    x = program.add(
        program.constant(lower),
        program.multiply(
            program.column("x", Interval(0.0, 2000.0, 0)), program.constant((upper - lower) / 2000)
        ),
    )
    x = program.clamp(x, lower, upper)
    place = function(program, x)
    results = [np.broadcast_to(result, len(STEPS)) for result in values(program, {"x": STEPS})]
    interval = program.interval(place)
    assert interval.lower <= results[place].min() <= results[place].max() <= interval.upper
    return results[x], results[place]


def worst(arguments: Any, results: Any, exact: Any) -> float:
    with mpmath.workdps(50):
        errors = [
            abs(mpmath.mpf(float(r)) / wanted - 1)
            for a, r in zip(arguments, results, strict=True)
            for wanted in [exact(mpmath.mpf(float(a)))]
            if wanted != 0
        ]
        return float(max(errors))


@pytest.mark.parametrize(
    ("lower", "upper"), [(-0.1, 0.1), (-1.0, 1.0), (-3.3, 12.0), (-200.0, 200.0), (5.0, 6.0), (-30.0, -29.5)]
)
def test_the_exponential_is_right_to_a_part_in_1e15(lower: float, upper: float) -> None:
    arguments, results = computed(lower, upper, _functions.exponential)
    assert worst(arguments, results, mpmath.exp) < 1e-15
    assert np.all(np.diff(results) >= 0)


def test_the_exponential_of_very_negative_numbers_is_that_of_minus_200() -> None:
    _, results = computed(-1e6, -200.0, _functions.exponential)
    assert set(results) == {results[-1]}
    assert 0 < results[-1] < 1.4e-87


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        (0.9, 1.1),
        (1.0, 1.0 + 1e-9),
        (1.0, 200001.0),
        (1e-9, 1.0),
        (1e-9, 1e100),
        (3.0, 3.5),
        (1e20, 1e21),
        (0.5, 8.0),
    ],
)
def test_the_logarithm_is_right_to_a_part_in_1e15(lower: float, upper: float) -> None:
    arguments, results = computed(lower, upper, _functions.logarithm)
    assert worst(arguments, results, mpmath.log) < 1e-15
    assert np.all(np.diff(results) >= 0)


@pytest.mark.parametrize("times", range(1, 9))
@pytest.mark.parametrize(
    ("lower", "upper"), [(-2.0, 3.0), (0.5, 0.7), (-4.0, -1.0), (-1e-70, 2e-70), (0.0, 1e-300)]
)
def test_powers_are_right_and_lie_within_the_powers_of_the_ends(
    lower: float, upper: float, times: int
) -> None:
    arguments, results = computed(lower, upper, lambda program, x: _functions.power(program, x, times))
    if upper >= 0.5:
        assert worst(arguments, results, lambda x: x**times) < 4e-16 * times
    if lower < 0 and times % 2 == 0:
        assert results.min() >= 0


def test_tiny_powers_that_no_double_holds_are_zero_and_not_an_error() -> None:
    _, results = computed(-1e-70, 2e-70, lambda program, x: _functions.power(program, x, 8))
    assert np.abs(results).max() < 1e-300


def test_a_polynomial_of_lower_degree_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_functions, "_EXP_TERMS", _functions._EXP_TERMS[:-3])
    arguments, results = computed(-1.0, 1.0, _functions.exponential)
    assert worst(arguments, results, mpmath.exp) > 1e-15
