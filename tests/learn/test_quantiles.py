from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special

from discreet.errors import ParameterError
from discreet.learn import private_quantiles
from discreet.learn._quantiles import _tail_in_sds, choose_method
from discreet.learn.budget_schedule import NoiselessSums
from discreet.ledger import Ledger
from discreet.privacy import ApproxDP, GaussianDP, NoPromise, PureDP
from discreet.query import Database
from discreet.schema import Column, Schema
from tests.learn.noisy_sums import spent

EXACT = NoPromise("the rows are made up")
DECILES = [i / 10 for i in range(1, 10)]
AGES = Schema(columns=[Column("age", type="integer", lower=0, upper=120)])
HEIGHTS = Schema(columns=[Column("height", lower=-2.0, upper=2.0)])


def ages(n: int) -> Any:
    return (np.arange(n) * 7919 % 1009) ** 2 % 103


def exact_quantile(values: Any, q: float) -> float:
    return float(np.quantile(values, q, method="inverted_cdf"))


@pytest.mark.parametrize("qs", [[0.5], DECILES, [0.0, 1.0], [0.9, 0.1]])
def test_without_noise_whole_numbers_are_exact_either_way(qs: list[float]) -> None:
    with NoiselessSums({"age": ages(997)}, schema=AGES) as sums:
        found = private_quantiles(sums, "age", qs, privacy=EXACT)
    wanted = [exact_quantile(ages(997), q) for q in qs]
    # No row is wanted below the smallest value at all.
    assert found.value == tuple(0.0 if q == 0 else w for q, w in zip(qs, wanted, strict=True))
    ends = zip(found.lower, found.value, found.upper, strict=True)
    assert all(low <= value <= high for low, value, high in ends)


def test_without_noise_numbers_are_right_to_a_cell() -> None:
    heights = np.sin(np.arange(2001.0))
    with NoiselessSums({"height": heights}, schema=HEIGHTS) as sums:
        found = private_quantiles(sums, "height", DECILES, privacy=EXACT, bits=14)
    assert found.method == "bisection"
    for q, value in zip(DECILES, found.value, strict=True):
        assert abs(value - exact_quantile(heights, q)) <= 4 * 2.0**-14


def variance(cells: int, compared: int) -> float:
    """Of the largest count below a cut, in units of one cell's: a bridge over ``compared`` of ``cells``."""
    return max(k * (cells - k) / cells for k in range(1, cells)) * compared


@pytest.mark.parametrize("cells", [2, 16, 74, 121, 4096])
@pytest.mark.parametrize("n_quantiles", [1, 3, 9, 99])
def test_the_way_with_the_smaller_variance_is_taken(cells: int, n_quantiles: int) -> None:
    steps = math.ceil(math.log2(cells))
    once, many = variance(cells, 1), variance(n_quantiles + 1, steps)
    method = choose_method(cells, n_quantiles)
    # Odd numbers of cells have no cut in the very middle, which the rule does not look at.
    assert once <= many * 1.34 if method == "histogram" else many <= once * 1.34
    assert method == ("histogram" if cells <= steps * (n_quantiles + 1) else "bisection")


@pytest.mark.parametrize("qs", [[0.25, 0.5, 0.75], [i / 40 for i in range(1, 40)]])
def test_the_promise_is_spent_whole_and_never_passed(qs: list[float]) -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=0.5))
    with Database({"age": ages(5000)}, schema=AGES, ledger=ledger, random_state=1) as sums:
        found = private_quantiles(sums, "age", qs, privacy=GaussianDP(mu=0.5))
    assert 0.5 * (1 - 1e-9) < spent(found.answers) <= 0.5
    assert len(found.answers) == (1 if found.method == "histogram" else 7)
    assert found.method == ("histogram" if len(qs) > 20 else "bisection")
    for answer in found.answers.values():
        assert np.max(answer.sd) == pytest.approx(math.sqrt(2 * len(found.answers)) / 0.5, rel=1e-9)


@pytest.mark.parametrize("privacy", [GaussianDP(mu=0.05), PureDP(epsilon=0.5)])
@pytest.mark.parametrize("qs", [[0.25, 0.5, 0.75], [i / 40 for i in range(1, 40)]])
def test_intervals_hold_the_exact_quantiles(privacy: Any, qs: list[float]) -> None:
    values = ages(4000)
    wanted = [exact_quantile(values, q) for q in qs]
    widths = []
    for seed in range(5):
        with Database({"age": values}, schema=AGES, random_state=seed) as sums:
            found = private_quantiles(sums, "age", qs, privacy=privacy, level=0.9999)
        inside = zip(found.lower, wanted, found.upper, strict=True)
        assert all(low <= value <= high for low, value, high in inside)
        widths.append(np.subtract(found.upper, found.lower))
    assert np.median(widths) < 60


def test_the_tail_of_laplace_noise_is_longer_than_the_gaussian() -> None:
    for failure in (0.1, 1e-3, 1e-9):
        wide = _tail_in_sds(failure, "laplace")
        # One Laplace variable is the longest; the bound is above it, the Gaussian quantile below.
        assert math.exp(-math.sqrt(2) * wide) <= failure
        assert wide < 3 * -math.log(failure) / math.sqrt(2) + 2
        assert _tail_in_sds(failure, "gaussian") == pytest.approx(-special.ndtri(failure / 2), rel=1e-9)
    assert math.exp(-math.sqrt(2) * _tail_in_sds(1e-3, "gaussian")) > 1e-3


def test_relative_errors_are_those_of_the_specification() -> None:
    values = np.sort(np.sin(np.arange(100_000.0)) + 3)
    schema = Schema(columns=[Column("x", lower=0, upper=8)])
    with Database({"x": values}, schema=schema, random_state=1) as sums:
        rough = private_quantiles(sums, "x", [0.25, 0.5, 0.75], privacy=ApproxDP(epsilon=0.1, delta=1e-6))
        fine = private_quantiles(sums, "x", [0.25, 0.5, 0.75], privacy=ApproxDP(epsilon=1.0, delta=1e-6))
    wanted = np.quantile(values, [0.25, 0.5, 0.75])
    assert np.abs(np.array(rough.value) / wanted - 1).max() < 0.01
    assert np.abs(np.array(fine.value) / wanted - 1).max() < 0.002


def test_quantiles_rise_with_what_was_asked() -> None:
    with Database({"age": ages(100)}, schema=AGES, random_state=2) as sums:
        found = private_quantiles(sums, "age", [0.9, 0.1, 0.5, 0.5], privacy=GaussianDP(mu=0.1))
    order = np.argsort(found.qs, kind="stable")
    assert np.all(np.diff(np.array(found.value)[order]) >= 0)


def test_rows_without_a_value_do_not_count() -> None:
    schema = Schema(columns=[Column("age", type="integer", lower=0, upper=120, required=False)])
    values = np.where(np.arange(3000) % 3 == 0, np.nan, ages(3000))
    with NoiselessSums({"age": values}, schema=schema) as sums:
        for qs in ([0.5], DECILES * 3):
            found = private_quantiles(sums, "age", qs, privacy=EXACT)
            known = values[~np.isnan(values)]
            assert found.value == tuple(exact_quantile(known, q) for q in qs)


def test_where_the_number_of_rows_is_private_it_is_noisy_too() -> None:
    schema = Schema(columns=AGES.columns, neighbors="add-remove")
    values = ages(20_000)
    with Database({"age": values}, schema=schema, random_state=1) as sums:
        found = private_quantiles(
            sums, "age", [0.25, 0.5], privacy=GaussianDP(mu=0.5, neighbors="add-remove")
        )
    for q, low, high in zip(found.qs, found.lower, found.upper, strict=True):
        assert low <= exact_quantile(values, q) <= high
    assert all(np.max(a.sd) == pytest.approx(math.sqrt(7) / 0.5, rel=1e-9) for a in found.answers.values())


def test_the_same_keystream_gives_the_same_quantiles_on_rows_and_in_an_engine() -> None:
    found = []
    for source in ({"age": ages(2000)}, ages(2000)[:, None]):
        with Database(source, schema=AGES, random_state=4) as sums:
            found.append(private_quantiles(sums, "age", DECILES, privacy=GaussianDP(mu=0.1)).value)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ({"qs": [0.5, 1.5]}, "qs of private_quantiles must be numbers from 0 to 1"),
        ({"qs": []}, "qs of private_quantiles must be numbers from 0 to 1"),
        ({"qs": ["half"]}, "qs of private_quantiles must be numbers from 0 to 1"),
        ({"bits": 0}, "bits of private_quantiles must be"),
        ({"bits": 21}, "bits of private_quantiles must be"),
        ({"level": 1.0}, "level of private_quantiles must be"),
        ({"column": "job"}, "'job' is a category"),
        ({"column": "agee"}, "Did you mean 'age'"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_charged(rest: dict[str, Any], words: str) -> None:
    schema = Schema(columns=[*AGES.columns, Column("job", values=("p", "q"))])
    given = {"column": "age", "qs": [0.5], "privacy": GaussianDP(mu=1.0), **rest}
    with Database({"age": ages(5), "job": ["p"] * 5}, schema=schema) as sums:
        with pytest.raises(ParameterError, match=words):
            private_quantiles(sums, given.pop("column"), given.pop("qs"), **given)
        assert sums.ledger.spent().charges == 0
