"""What a file may look like: bounds true for every law by integration, met by honest files, and sharp."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import integrate

from discreet import BoundedRelease, Column, GaussianRelease, LaplaceRelease, PureDP, Schema
from discreet.noise import BoundedDensity, Stream
from discreet.noise_law import Additive, BoundedLaw, GaussianLaw, LaplaceLaw
from discreet.report.verify._noise_tests import AdditiveTest, Tails, column_tests

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats
    from discreet.release import ReleaseMethod

COSINE = BoundedDensity(lower=-1.0, upper=1.0, regularization=0.0, weight=1.0)
LAWS: dict[str, tuple[Additive, Callable[[float], float], float]] = {
    "gaussian": (GaussianLaw(variance=1.0), lambda z: math.exp(-z * z / 2) / math.sqrt(2 * math.pi), 12.0),
    "laplace": (LaplaceLaw(variance=2.0), lambda z: math.exp(-abs(z)) / 2, 120.0),
    "bounded": (
        BoundedLaw(variance=COSINE.variance, lower=-1.0, upper=1.0, regularization=0.0),
        lambda z: math.cos(math.pi * z / 2) ** 2,
        1.0,
    ),
}
laws = pytest.mark.parametrize("name", LAWS)


def expected(name: str, value: Callable[[float], float]) -> float:
    _, density, end = LAWS[name]
    found, _ = integrate.quad(lambda z: value(z) * density(z), -end, end, limit=500, points=[0.0])
    return float(found)


def tails(name: str) -> Tails:
    found = Tails.from_law(LAWS[name][0])
    assert found is not None
    return found


@laws
def test_the_moments_behind_the_bounds_are_those_of_the_law(name: str) -> None:
    assert expected(name, lambda z: 1.0) == pytest.approx(1.0, abs=1e-9)
    assert expected(name, lambda z: z * z) == pytest.approx(tails(name).variance, rel=1e-7)
    assert expected(name, lambda z: z**4) <= tails(name).fourth * (1 + 1e-7)


@laws
def test_the_exponential_moments_stay_below_the_bound_that_means_are_tested_with(name: str) -> None:
    bound = tails(name)
    most = 0.95 / bound.scale if bound.scale else 4.0
    for s in np.linspace(0.01, most, 40):
        true = math.log(expected(name, lambda z, s=s: math.exp(s * z)))  # type: ignore[misc]
        assert true <= bound.variance * s * s / (2 * (1 - bound.scale * s)) * (1 + 1e-9) + 1e-12


@laws
def test_the_chance_of_a_cell_beyond_the_reach_is_below_what_is_said(name: str) -> None:
    _, density, end = LAWS[name]
    for n, u in ((1, 3.0), (10, 5.0), (1000, 2.0)):
        reach = tails(name).reach(n, u)
        beyond = 0.0 if reach >= end else integrate.quad(density, reach, end, limit=500)[0]
        assert n * beyond <= math.exp(-u) * (1 + 1e-6)


@laws
def test_the_lower_bound_on_the_spread_holds_whatever_the_true_difference(name: str) -> None:
    """The step of the proof that depends on the law: ``E exp(-s D)`` is largest where rows do not differ."""
    bound = tails(name)
    width, second = 3.0, 2 * bound.fourth + 6 * bound.variance**2
    s = 4 / (12 * bound.variance + width**2)
    below = math.exp(-s * bound.variance + s * s * second / 8)
    grid = np.linspace(-1, 1, 4001) * min(LAWS[name][2], 40.0)
    weights = np.array([LAWS[name][1](z) for z in grid])
    weights /= weights.sum()
    for d in np.linspace(0, width, 7):
        apart = (d + grid[:, None] - grid[None, ::20]) ** 2 / 2
        coarse = weights[::20] / weights[::20].sum()
        assert float(weights @ np.exp(-s * apart) @ coarse) <= below * (1 + 1e-3)


SCHEMA = Schema(
    columns=[
        Column("x", lower=0, upper=1, required=False),
        Column("job", values=("a", "b", "c"), closed=True),
    ]
)
METHODS: dict[str, ReleaseMethod] = {
    "gaussian": GaussianRelease(scale=2.0, schema=SCHEMA),
    "laplace": LaplaceRelease(scale=2.0, schema=SCHEMA),
    "bounded": BoundedRelease(support=4.0, schema=SCHEMA),
    "in range": BoundedRelease(privacy=PureDP(epsilon=4), in_range=True, schema=SCHEMA),
}
N = 6_000
U = math.log(100 / 1e-9)


def drawn(name: str) -> dict[str, Floats]:
    n = np.arange(N)
    rows = {"x": np.where(n % 10 == 0, np.nan, n % 2), "job": (n % 7 == 0).astype(np.int32)}
    return METHODS[name].plan(SCHEMA, N).draw(rows, Stream.from_seed(5))


def complaints(name: str, cells: dict[str, Floats]) -> str:
    plan, found = METHODS[name].plan(SCHEMA, N), []
    for summary in plan.columns:
        for test in column_tests(SCHEMA.column(summary.column), summary):
            for start in range(0, N, 1_000):
                test.update(cells[test.column][start : start + 1_000])
            found += test.faults(U)
    return " ".join(found)


@pytest.mark.parametrize("name", METHODS)
def test_an_honest_column_is_not_complained_about(name: str) -> None:
    assert complaints(name, drawn(name)) == ""


@pytest.mark.parametrize("name", ["gaussian", "laplace", "bounded"])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x + 1.0, "its mean is farther out"),
        (lambda x: x - 1.0, "its mean is farther out"),
        (lambda x: x / 2, "varies less"),
        (lambda x: x * 2.5, "varies more"),
        (lambda x: np.where(np.arange(N) == 77, 100.0, x), "a cell is farther out"),
        (lambda x: np.where(np.isnan(x), 0.5, x), "a missing cell is not as frequent"),
    ],
)
def test_a_column_that_noise_cannot_have_made_is_named_with_the_reason(
    change: Callable[[Floats], Floats], words: str, name: str
) -> None:
    cells = drawn(name)
    cells["x"] = change(cells["x"])
    assert words in complaints(name, cells)


def test_a_column_in_its_range_that_is_too_even_is_found() -> None:
    cells = drawn("in range")
    cells["x"] = np.where(np.isnan(cells["x"]), np.nan, 0.5)
    assert "of the range is not as frequent" in complaints("in range", cells)


def test_a_level_that_is_never_published_is_found() -> None:
    cells = drawn("gaussian")
    cells["job"] = np.where(cells["job"] == 2, 0, cells["job"])
    assert "'c' is not as frequent" in complaints("gaussian", cells)


def test_a_column_without_cells_or_with_one_is_not_complained_about() -> None:
    law = GaussianLaw(variance=1.0)
    test = AdditiveTest(SCHEMA.column("x"), law, Tails(1.0, 3.0, 0.0))
    assert test.faults(U) == []
    test.update(np.array([np.nan, 0.5]))
    assert test.faults(U) == []


def test_a_clamped_column_says_nothing_about_its_noise() -> None:
    method = GaussianRelease(scale=2.0, clamp=True, schema=SCHEMA)
    plan = method.plan(SCHEMA, N)
    tests = column_tests(SCHEMA.column("x"), plan.columns[0])
    assert not any(isinstance(test, AdditiveTest) for test in tests)
