"""Attacks on real rows: what they assume is used, and what they show is true of the rows."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.audit import _real_rows, attack_records, attack_rows
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.release import GaussianRelease
from discreet.schema import Column, Schema
from tests.audit.plans import AGE, JOB, WEIGHT, gaussian, people

N = 6_000


def test_whoever_has_half_of_the_people_guesses_the_rest_better_than_the_floor_says() -> None:
    plan, true = gaussian(), people(N)
    published = plan.draw(true, Stream.from_seed(1))
    found = {(g.column, g.attack): g for g in attack_rows(plan, true, published, stream=Stream.from_seed(2))}
    assert {g.verdict for g in found.values()} == {"shown"}
    assert {g.on for g in found.values()} == {"rows"}
    assert {g.n for g in found.values()} == {N // 2}
    for name in ("age", "weight"):
        knows_population, knows_records = found[name, "posterior mean"], found[name, "learned"]
        assert knows_population.without == pytest.approx(true[name].std(), rel=0.05)
        assert knows_records.error < knows_population.error < knows_population.without
        assert knows_population.floor is not None
        assert knows_population.error < knows_population.floor
        assert "3,000 other people" in knows_records.knowledge
    for name in ("job", "smokes"):
        assert found[name, "learned"].error <= found[name, "response inversion"].error
        majority = 1 - np.bincount(true[name]).max() / N
        assert found[name, "response inversion"].without == pytest.approx(majority, abs=0.03)


def test_public_columns_are_known_without_the_release_too() -> None:
    schema = Schema(columns=[AGE, Column("job", values=JOB.values, closed=True, role="public")])
    plan = gaussian(schema)
    true = {k: v for k, v in people(N).items() if k in ("age", "job")}
    published = plan.draw(true, Stream.from_seed(1))
    guesses = attack_rows(plan, true, published, stream=Stream.from_seed(2))
    assert guesses[0].without < 0.8 * true["age"].std()
    assert "public columns are known" in guesses[0].note


def test_columns_without_values_and_tables_without_people_are_passed_over() -> None:
    schema = Schema(columns=[AGE, Column("pulse", lower=20, upper=220, required=False)])
    plan = GaussianRelease(scale=5.0, schema=Schema(columns=[AGE, WEIGHT])).plan(
        Schema(columns=[AGE, WEIGHT]), 10
    )
    few = {k: v[:10] for k, v in people(10).items() if k in ("age", "weight")}
    assert attack_rows(plan, few, few) == ()
    flagged = gaussian(schema)
    true = {"age": people(60)["age"], "pulse": np.full(60, np.nan)}
    published = flagged.draw(true, Stream.from_seed(1))
    assert {g.column for g in attack_rows(flagged, true, published)} == {"age"}
    constant = {"age": np.full(60, 40.0), "pulse": np.full(60, 70.0)}
    published = flagged.draw(constant, Stream.from_seed(1))
    assert all(g.error < 1e-6 for g in attack_rows(flagged, constant, published))


def test_time_is_capped_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, true = gaussian(), people(200)
    published = plan.draw(true, Stream.from_seed(1))
    told: list[tuple[int, int]] = []
    guesses = attack_rows(plan, true, published, seconds=0.0, progress=lambda *at: told.append(at))
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {g.attack for g in guesses} == {"posterior mean", "response inversion"}
    assert all("want of time" in g.note for g in guesses)
    monkeypatch.setattr(_real_rows, "MOST_ROWS", 100)
    assert attack_rows(plan, true, published)[0].n == 50


@pytest.mark.parametrize("attack", [attack_rows, attack_records])
def test_rows_that_do_not_match_are_refused(attack: object) -> None:
    plan, true = gaussian(), people(100)
    published = plan.draw(true, Stream.from_seed(1))
    for given in ({k: v[:50] for k, v in true.items()}, {k: v for k, v in true.items() if k != "age"}):
        with pytest.raises(ParameterError, match="in the same order"):
            attack(plan, given, published)  # type: ignore[operator]
