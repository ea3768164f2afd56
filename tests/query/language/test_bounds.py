"""Intervals hold for every row, rounding included; their width is the sensitivity of a sum."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.errors import ExpressionRefused
from discreet.query.language import parse
from discreet.query.language._program import Interval, Program, TooWide, span
from discreet.schema import Column, Schema
from tests.query.language.checks import Tally, accepted, assert_multiple, stays_within_bounds
from tests.query.language.generator import Generator, HashChoices
from tests.query.language.rows import SCHEMA, curated, named

if TYPE_CHECKING:
    from collections.abc import Callable

COLUMNS = named(curated())
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
}  # fmt: skip
ENDS = (-3.5, -1.0, -1e-30, 0.0, 2e-30, 0.25, 7.0)


def all_intervals() -> list[Interval]:
    return [Interval(a, b, -200) for a in ENDS for b in ENDS if a <= b]


def inside(interval: Interval) -> list[float]:
    inner = [x for x in (-2.0, -0.3, -1e-31, 1e-30, 0.1, 3.3) if interval.lower <= x <= interval.upper]
    return [interval.lower, interval.upper, *inner]


@pytest.mark.parametrize("operation", ["+", "-", "*", "/"])
def test_arithmetic_on_intervals_contains_arithmetic_on_their_numbers(operation: str) -> None:
    compute = OPERATIONS[operation]
    for x in all_intervals():
        for y in all_intervals():
            if operation == "/" and y.lower <= 0 <= y.upper:
                continue
            result = compute(x, y)
            found = [compute(a, b) for a in inside(x) for b in inside(y)]
            assert result.lower == min(found)
            assert result.upper == max(found)


def test_functions_of_intervals_contain_functions_of_their_numbers() -> None:
    for x in all_intervals():
        numbers = inside(x)
        for result, found in (
            (x.square(), [a * a for a in numbers]),
            (x.absolute(), [abs(a) for a in numbers]),
            (x.floor(), [float(math.floor(a)) for a in numbers]),
            (-x, [-a for a in numbers]),
        ):
            assert result.lower <= min(found) <= max(found) <= result.upper
        if x.lower >= 0:
            assert (
                x.sqrt().lower
                <= min(map(math.sqrt, numbers))
                <= max(map(math.sqrt, numbers))
                <= x.sqrt().upper
            )


def test_a_number_beyond_the_largest_is_an_error_here_and_a_refusal_there() -> None:
    big = Interval(0.0, 1e101, 0)
    with pytest.raises(TooWide):
        big * big
    with pytest.raises(TooWide):
        Interval(0.0, math.inf, 0)
    with pytest.raises(ExpressionRefused, match="a value that could pass 1e100"):
        parse("huge * huge", SCHEMA)


@pytest.mark.parametrize("value", [1.0, 0.1, 3e-300, 2.0**70, -12.0, 5e-324])
def test_every_number_is_a_multiple_of_its_quantum_and_not_of_twice_that(value: float) -> None:
    assert (Fraction(value) / Fraction(2) ** span([value]).quantum).denominator == 1
    assert_multiple(value, span([value]).quantum)
    with pytest.raises(AssertionError):
        assert_multiple(value, max(span([value]).quantum, -1074) + 1 + 53)


def test_products_of_tiny_numbers_neither_underflow_nor_leave_their_bounds() -> None:
    tiny = Schema(columns=[Column("x", lower=-1e-60, upper=2e-60), Column("y", lower=1e-99, upper=1e-98)])
    rows = {"x": np.append(np.linspace(-1e-60, 2e-60, 2000), 2.0**-448), "y": np.linspace(1e-98, 1e-99, 2001)}
    for text in (
        "x * y",
        "x * x * x * y",
        "POWER(x, 8)",
        "x * y / 1e50",
        "POWER(x * y, 3) + 1",
        "x / 1e99 / 1e99",
    ):
        stays_within_bounds(parse(text, tiny), rows)


def test_a_value_is_rounded_to_a_grid_only_where_a_product_could_vanish() -> None:
    def kinds(text: str) -> list[str]:
        return [operation.kind for operation in parse(text, SCHEMA).program.operations]

    fine = "(tiny + delta) * (tiny + 2 * delta) * (tiny + income * delta)"
    assert "subtract" not in kinds("age * income * delta")
    assert "subtract" in kinds(fine)
    stays_within_bounds(parse(fine, SCHEMA), COLUMNS)
    assert parse("tiny * tiny * tiny", SCHEMA).upper == 0.0  # far below anything that counts


def test_generated_expressions_stay_within_every_interval() -> None:
    generator = Generator(HashChoices(11))
    expressions = accepted([generator.text(1 + i % 4) for i in range(300)], Tally())
    assert len(expressions) > 200
    for expression in expressions:
        stays_within_bounds(expression, COLUMNS)


def test_an_interval_rule_that_forgets_signs_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong twin multiplies lower with lower and upper with upper."""

    def forgetful(self: Interval, other: Interval) -> Interval:
        low, high = sorted((self.lower * other.lower, self.upper * other.upper))
        return Interval(low, high, self.quantum + other.quantum)

    monkeypatch.setattr(Interval, "__mul__", forgetful)
    with pytest.raises(AssertionError):
        stays_within_bounds(parse("delta * (delta + 1)", SCHEMA), COLUMNS)
    with pytest.raises(AssertionError):
        test_arithmetic_on_intervals_contains_arithmetic_on_their_numbers("*")


def test_a_quantum_that_is_too_coarse_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong twin takes a product for a multiple of the larger step."""
    real = Interval.__mul__

    def coarse(self: Interval, other: Interval) -> Interval:
        right = real(self, other)
        return Interval(right.lower, right.upper, max(self.quantum, other.quantum))

    monkeypatch.setattr(Interval, "__mul__", coarse)
    with pytest.raises(AssertionError):
        stays_within_bounds(parse("delta * (delta + 1)", SCHEMA), COLUMNS)


SMALL = Schema(
    columns=[
        Column("a", type="integer", lower=-3, upper=2),
        Column("b", type="integer", lower=0, upper=4),
        Column("c", values=(0, 1)),
    ]
)


@pytest.mark.parametrize(
    "text",
    [
        "a * b", "a * a", "a * a * a", "a - b", "ABS(a) - b", "a / (b + 1)", "FLOOR(a / 2)",
        "LEAST(a, b) * GREATEST(a, b)", "CASE WHEN c = 1 THEN a ELSE -b END", "POWER(a, 5) - POWER(b, 2)",
        "EXP(a) * LN(b + 1)", "SQRT(b) - a", "(a < b) + c", "a BETWEEN -1 AND 1", "a = b OR c = 1",
        "-a * -b", "a * c - b * (1 - c)",
    ],
)  # fmt: skip
def test_the_sensitivity_is_never_below_the_true_range(text: str) -> None:
    """All rows there are, and all pairs of neighbors: no sum moves by more than the width of the interval."""
    a, b, c = (grid.ravel() for grid in np.meshgrid(np.arange(6), np.arange(5), np.arange(2)))
    expression = parse(text, SMALL)
    index = stays_within_bounds(expression, {"a": a, "b": b, "c": c})
    assert index.max() - index.min() <= expression.top
    step = (expression.upper - expression.lower) / expression.top
    exact = [eval(_python(text), {}, _names(x, y, z)) for x, y, z in zip(a - 3, b, c, strict=True)]
    assert max(exact) - min(exact) <= (expression.upper - expression.lower) * (1 + 1e-12)
    assert np.abs(expression.lower + step * index - np.array(exact, float)).max() <= step * 0.500001


def _python(text: str) -> str:
    text = text.replace("a BETWEEN -1 AND 1", "(-1 <= a <= 1)").replace(
        "a = b OR c = 1", "(a == b or c == 1)"
    )
    if text.startswith("CASE"):
        return "a if c == 1 else -b"
    return text


def _names(a: Any, b: Any, c: Any) -> dict[str, object]:
    return {
        "a": int(a), "b": int(b), "c": int(c), "ABS": abs, "FLOOR": math.floor, "SQRT": math.sqrt,
        "EXP": math.exp, "LN": math.log, "POWER": pow, "LEAST": min, "GREATEST": max,
    }  # fmt: skip


def test_bounds_of_columns_are_reached_exactly() -> None:
    for column in SCHEMA.released:
        if not column.is_number:
            continue
        name = column.name if column.name.isidentifier() and column.name != "case" else f'"{column.name}"'
        expression = parse(name, SCHEMA)
        assert (expression.lower, expression.upper) == column.range


def test_a_row_outside_the_layout_cannot_leave_the_grid() -> None:
    """A table that is not as declared still moves a sum by no more than was charged."""
    for text in ("age * 2", "POWER(age, 3) - delta", "EXP(delta) + age", "1 / age"):
        broken = COLUMNS | {"age": COLUMNS["age"] + 10**6, "delta": COLUMNS["delta"] - 10**8}
        expression = parse(text, SCHEMA)
        index = expression.evaluate(broken)
        assert 0 <= index.min() <= index.max() <= expression.top


def test_a_program_is_continued_without_touching_the_first() -> None:
    program = Program()
    x = program.column("x", Interval(0.0, 10.0, 0))
    twin = program.copy()
    twin.add(x, twin.constant(1.0))
    assert len(program.operations) == 1
    assert len(twin.operations) == 3
