from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats

from discreet.errors import ParameterError
from discreet.learn import StatisticalQueries
from discreet.learn._statistical_queries import (
    deviation_for,
    repetitions,
    rows_for_population,
    sufficient_budget,
)
from discreet.ledger import Ledger
from discreet.privacy import GaussianDP
from discreet.query import Database
from discreet.schema import Column, Schema

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=99),
        Column("owner", values=("no", "yes"), closed=True),
    ]
)


def rows(n: int) -> dict[str, Any]:
    i = np.arange(n)
    return {"age": i * 37 % 100, "owner": np.where(i % 3 == 0, "yes", "no")}


def missed(variance: float, times: float, tolerance: float, n_rows: int) -> float:
    """How likely the average of noisy sums is off by more than the tolerance: exactly."""
    return float(2 * special.ndtr(-tolerance * n_rows / math.sqrt(variance / times)))


def test_the_printed_repetitions_miss_the_tolerance_nearly_always() -> None:
    n, R, tau = 10_000, 1e6, 0.01
    assert missed(R, R / (tau * n**2), tau, n) == pytest.approx(0.92, abs=0.005)
    # Reading tau as a standard deviation is not enough either.
    assert missed(R, R / (tau * n) ** 2, tau, n) == pytest.approx(0.317, abs=0.001)
    for failure in (0.05, 1e-3, 1e-6):
        assert missed(R, repetitions(R, tau, n, failure), tau, n) <= failure


def test_the_printed_budget_is_too_small_and_the_corrected_one_suffices() -> None:
    n, R, failure, tolerances = 10_000, 1e6, 0.01, [0.01, 0.02, 0.05]
    q = len(tolerances)
    each = [repetitions(R, tau, n, failure / q) for tau in tolerances]
    # The sum of rounded numbers is below q more than the numbers, not above.
    bare = [2 * R * math.log(2 * q / failure) / (tau * n) ** 2 for tau in tolerances]
    assert sum(bare) <= sum(each) <= q + sum(bare)
    assert sum(each) <= sufficient_budget(R, tolerances, n, failure)
    assert math.fsum(missed(R, t, tau, n) for t, tau in zip(each, tolerances, strict=True)) <= failure
    printed = q + R / n**2 * math.fsum(1 / tau for tau in tolerances)
    shared = [printed * t / sum(each) for t in each]
    assert min(missed(R, t, tau, n) for t, tau in zip(shared, tolerances, strict=True)) > 0.5


def test_a_good_hypothesis_errs_on_a_small_part_not_on_all_but_one() -> None:
    # As printed a class is learned if misclassification is "at most 1 - delta": guessing would do.
    delta, guessing, learned = 0.1, 0.5, 0.05
    assert guessing <= 1 - delta
    assert learned <= delta < guessing


def test_a_table_is_a_sample_and_its_mean_is_not_the_populations() -> None:
    tau, failure = 0.01, 1e-3
    # With 100 rows of a fair coin the table's mean itself is off, however little noise is added.
    coin = stats.binom(100, 0.5)
    assert coin.cdf(48) + coin.sf(51) > 0.7
    enough = rows_for_population(tau, failure)
    large = stats.binom(enough, 0.5)
    off = math.floor(enough * (0.5 - tau))
    assert 2 * large.cdf(off) <= failure
    assert enough == 38_005


def test_the_deviation_is_the_largest_that_keeps_the_tolerance() -> None:
    for failure in (0.3, 1e-3, 1e-12):
        sd = deviation_for(0.01, failure)
        step = sd * 2.0**-16
        assert 2 * special.ndtr(-(0.01 - step / 2) / sd) <= failure
        assert 2 * special.ndtr(-0.01 / (sd * 1.001)) > failure
        assert sd > 0.01 / math.sqrt(2 * math.log(2 / failure))


def test_answers_keep_their_tolerance_and_say_what_they_cost() -> None:
    n = 5000
    exact = {"age >= 50": 0.5, "owner = 'yes'": math.ceil(n / 3) / n, "age / 100": 0.495}
    for seed in range(4):
        with Database(rows(n), schema=SCHEMA, random_state=seed) as sums:
            oracle = StatisticalQueries(sums, queries=3, failure=1e-6)
            for text, mean in exact.items():
                found = oracle.stat(text, tolerance=0.02)
                assert found.table[0] <= mean <= found.table[1]
                assert found.population[0] < found.table[0] < found.table[1] < found.population[1]
                assert found.failure == pytest.approx(1e-6 / 3)
                width = 0.99 if text == "age / 100" else 1.0
                z = -special.ndtri(1e-6 / 6)
                assert found.cost[0].mu == pytest.approx(width * z / (0.02 * n), rel=1e-4)
    assert found.sampling_tolerance == pytest.approx(0.99 * math.sqrt(math.log(6000) / (2 * n)), rel=1e-9)


def test_the_cost_is_known_beforehand_and_is_what_is_charged() -> None:
    ledger = Ledger.open(":memory:", limit=GaussianDP(mu=1.0))
    with Database(rows(2000), schema=SCHEMA, ledger=ledger, random_state=1) as sums:
        oracle = StatisticalQueries(sums, queries=4, failure=0.01, owner="ann")
        tolerances = [0.05, 0.1, 0.02]
        total = oracle.cost(tolerances)
        for tau, text in zip(tolerances, ("age < 10", "age < 20", "age < 30"), strict=True):
            oracle.stat(text, tolerance=tau)
        paid = math.sqrt(math.fsum(s.cost[0].mu ** 2 for s in oracle.statistics))
    assert total.mu == pytest.approx(paid, rel=1e-9)
    assert total.mu >= paid * (1 - 1e-12)


def test_a_promise_shared_evenly_gives_the_tolerance_that_costs_it() -> None:
    with Database(rows(2000), schema=SCHEMA) as sums:
        oracle = StatisticalQueries(sums, queries=7, failure=0.01)
        tau = oracle.tolerance(GaussianDP(mu=0.3))
        assert oracle.cost([tau] * 7).mu == pytest.approx(0.3, rel=1e-9)


def test_several_rows_of_one_person_cost_more() -> None:
    with_ids = Schema(columns=[*SCHEMA.columns, Column("id", role="id")], id_column="id", max_rows_per_unit=3)
    table = {**rows(2000), "id": [str(i) for i in range(2000)]}
    with Database(table, schema=with_ids) as sums, Database(rows(2000), schema=SCHEMA) as plain:
        one, three = (StatisticalQueries(s, queries=1).cost([0.05]).mu for s in (plain, sums))
    assert three == pytest.approx(3 * one, rel=1e-9)


def test_more_queries_than_were_announced_are_refused() -> None:
    with Database(rows(200), schema=SCHEMA) as sums:
        oracle = StatisticalQueries(sums, queries=1)
        oracle.stat("age < 10", tolerance=0.5)
        with pytest.raises(ParameterError, match="all are used up"):
            oracle.stat("age < 20", tolerance=0.5)
        assert len(oracle.statistics) == 1


def test_a_number_that_may_be_missing_is_refused_and_a_condition_on_it_is_not() -> None:
    schema = Schema(columns=[Column("age", type="integer", lower=0, upper=99, required=False)])
    table = {"age": [None, 10, 60, 70] * 250}
    with Database(table, schema=schema, random_state=5) as db:
        queries = StatisticalQueries(db, queries=3)
        with pytest.raises(ParameterError, match="must be known for every row"):
            queries.stat("age", tolerance=1.0)
        # Unknown is not true: half of the rows, and not three quarters.
        assert queries.stat("age >= 50", tolerance=0.05).value == pytest.approx(0.5, abs=0.05)
        assert queries.stat("COALESCE(age, 0)", tolerance=5.0).value == pytest.approx(35, abs=5)


def test_a_private_number_of_rows_is_refused() -> None:
    hidden = Schema(columns=SCHEMA.columns, neighbors="add-remove")
    with Database(rows(200), schema=hidden) as sums, pytest.raises(ParameterError, match="public number"):
        StatisticalQueries(sums, queries=1)


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ({"queries": 0}, "queries of StatisticalQueries must be"),
        ({"queries": 1.0}, "queries of StatisticalQueries must be"),
        ({"queries": 1, "failure": 0.0}, "failure of StatisticalQueries must be"),
        ({"queries": 1, "sampling_failure": 1.0}, "sampling_failure of StatisticalQueries must be"),
    ],
)
def test_parameters_outside_their_domain_are_refused(rest: dict[str, Any], words: str) -> None:
    with Database(rows(20), schema=SCHEMA) as sums, pytest.raises(ParameterError, match=words):
        StatisticalQueries(sums, **rest)


@pytest.mark.parametrize("tolerance", [0, -0.1, math.nan, "0.1"])
def test_a_tolerance_is_a_number_above_0(tolerance: Any) -> None:
    with Database(rows(20), schema=SCHEMA) as sums:
        with pytest.raises(ParameterError, match="tolerance of StatisticalQueries must be"):
            StatisticalQueries(sums, queries=1).stat("age < 10", tolerance=tolerance)
        assert sums.ledger.spent().charges == 0


def test_the_same_keystream_gives_the_same_statistics_on_rows_and_in_an_engine() -> None:
    values = []
    for source in (rows(500), pd.DataFrame(rows(500))):
        with Database(source, schema=SCHEMA, random_state=3) as sums:
            values.append(StatisticalQueries(sums, queries=1).stat("age * age", tolerance=300.0).value)
    assert values[0] == values[1]
