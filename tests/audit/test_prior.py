"""The verdict on floors, where the mechanism is the true one; wrong ones are in tests/broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.audit import PlannedAttacks, _prior, attack_prior, run_audit
from discreet.audit._prior import prior_records
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.privacy import ErrorFloor, PureDP
from discreet.release import BoundedRelease, GaussianRelease, InvariantRelease, LaplaceRelease
from discreet.schema import Column, Schema
from tests.audit.plans import AGE, ENTRY, JOB, SMOKES, WEIGHT, gaussian

N = 4_000
EVERYTHING = Schema(columns=[AGE, WEIGHT, JOB, SMOKES, ENTRY])
RELEASES: dict[str, Any] = {
    "gaussian": GaussianRelease(privacy=ErrorFloor(age=9), schema=EVERYTHING),
    "gaussian clamped": GaussianRelease(privacy=ErrorFloor(age=9), clamp=True, schema=EVERYTHING),
    "gaussian correlated": GaussianRelease(
        privacy=ErrorFloor(age=9),
        weights=np.array([[1e-6, 4e-7, 0], [4e-7, 1e-6, 0], [0, 0, 1e-8]]),
        schema=EVERYTHING,
    ),
    "laplace": LaplaceRelease(privacy=ErrorFloor(age=9), schema=EVERYTHING),
    "bounded": BoundedRelease(support={"age": 28.0, "weight": 80.0, "entry": 300.0}, schema=EVERYTHING),
    "in range": BoundedRelease(privacy=PureDP(epsilon=12), in_range=True, schema=EVERYTHING),
}


@pytest.mark.parametrize("name", RELEASES)
def test_no_attack_beats_the_floor_of_a_true_release(name: str) -> None:
    plan = RELEASES[name].plan(EVERYTHING, 1_000)
    guesses = attack_prior(plan, n=N, stream=Stream.from_seed(1))
    assert {g.verdict for g in guesses} == {"holds"}
    by_column = {c.name: [g for g in guesses if g.column == c.name] for c in EVERYTHING.columns}
    assert [g.attack for g in by_column["age"]] == ["posterior mean", "rounding", "learned"]
    assert [g.attack for g in by_column["weight"]] == ["posterior mean", "learned"]
    assert [g.attack for g in by_column["job"]] == ["response inversion", "learned"]
    assert [g.attack for g in by_column["entry"]] == ["posterior mean", "rounding", "learned"]
    assert sum(g.failure_probability for g in guesses) == pytest.approx(1e-6)
    best = by_column["age"][0]
    assert best.floor is not None
    # The best attack there is meets the floor; what is lost is what the interval says.
    if name not in ("gaussian clamped", "gaussian correlated"):
        assert best.lower < best.floor < best.upper
    assert best.without == pytest.approx(np.sqrt((74**2 - 1) / 12))
    assert "guessed wrong for" in by_column["entry"][0].note


def test_the_learned_guess_comes_close_to_the_best_one() -> None:
    guesses = {
        (g.column, g.attack): g for g in attack_prior(gaussian(), n=10_000, stream=Stream.from_seed(2))
    }
    for column, best in (
        ("age", "posterior mean"),
        ("weight", "posterior mean"),
        ("job", "response inversion"),
    ):
        assert guesses[column, "learned"].error < 1.05 * guesses[column, best].error


def test_a_clear_column_is_left_out_and_one_without_a_floor_is_measured() -> None:
    schema = Schema(columns=[AGE, Column("zone", values=("a", "b"), role="public")])
    # Noise of a hundredth of a year is rounded away: no floor, and the attack shows why.
    plan = GaussianRelease(scale=0.01, schema=schema).plan(schema, 100)
    guesses = attack_prior(plan, n=500, stream=Stream.from_seed(1))
    assert {g.column for g in guesses} == {"age"}
    assert {g.verdict for g in guesses} == {"no floor"}
    assert guesses[0].error == 0


def test_rows_of_one_person_are_attacked_together() -> None:
    schema = Schema(
        columns=[Column("who", type="id"), AGE, JOB], id_column="who", max_rows_per_unit=4, unit="patient"
    )
    plan = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema).plan(schema, 1_000)
    guesses = {(g.column, g.attack): g for g in attack_prior(plan, n=N, stream=Stream.from_seed(3))}
    best = guesses["age", "posterior mean"]
    assert best.floor is not None
    assert best.lower < best.floor < best.upper
    assert "4 of at most 4 rows of each patient" in best.note
    assert {g.verdict for g in guesses.values()} == {"holds"}
    assert "published rows" in best.knowledge


def test_an_invariant_release_has_no_floor_to_test() -> None:
    schema = Schema(columns=[WEIGHT, Column("height", lower=0, upper=3), SMOKES], target="smokes")
    assert attack_prior(InvariantRelease(variance=1.0, schema=schema).plan(schema, 100)) == ()


def test_many_columns_share_what_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(60)])
    plan = GaussianRelease(scale=0.3, schema=schema).plan(schema, 100)
    monkeypatch.setattr(_prior, "MOST_CELLS", 20_000)
    monkeypatch.setattr(_prior, "_FEWEST", 200)
    told: list[tuple[int, int]] = []
    guesses = attack_prior(
        plan, n=4_000, seconds=1e-9, stream=Stream.from_seed(1), progress=lambda *at: told.append(at)
    )
    assert told == [(i, 60) for i in range(1, 61)]
    learned = [g for g in guesses if g.attack == "learned"]
    assert [g.column for g in learned] == ["x0"]
    last = guesses[-1]
    assert last.n == 222
    assert last.note == (
        "222 records, because the table has 60 columns; "
        "a guess learned from other records was left out for want of time"
    )
    assert {g.verdict for g in guesses} == {"holds"}


def test_records_come_from_the_whole_of_what_was_declared() -> None:
    schema = Schema(columns=[AGE, WEIGHT, JOB, ENTRY, Column("big", type="integer", lower=0, upper=10**12)])
    records = prior_records(gaussian(schema), 20_000, Stream.from_seed(1))
    assert set(records["age"]) == set(range(17, 91))
    assert set(records["job"]) == {0, 1, 2, 3}
    assert np.isnan(records["entry"]).mean() == pytest.approx(0.5, abs=0.02)
    assert np.nanmax(records["entry"]) == 730
    for name, (low, high) in (("weight", (30, 230)), ("big", (0, 10**12))):
        unit = (records[name] - low) / (high - low)
        assert 0 <= unit.min() < 0.001
        assert 0.999 < unit.max() <= 1
        assert unit.std() == pytest.approx(12**-0.5, rel=0.02)


def test_an_error_floor_can_be_audited_like_any_other_promise() -> None:
    plan = gaussian(Schema(columns=[AGE]))
    floor = next(p for p in plan.promises if isinstance(p, ErrorFloor))
    result = run_audit(PlannedAttacks(plan=plan, claim=floor, n=N), stream=Stream.from_seed(1))
    assert (result.attack, result.verdict) == ("reconstruct", "holds")
    assert result.measured is not None
    assert 0.8 < result.measured < 1
    assert "'posterior mean' on 'age' came closest" in result.reason
    other = next(p for p in plan.promises if not isinstance(p, ErrorFloor))
    assert run_audit(PlannedAttacks(plan=plan, claim=other), "reconstruct").verdict == "not tested"
    bare = GaussianRelease(scale=0.01, schema=Schema(columns=[AGE])).plan(Schema(columns=[AGE]), 100)
    assert run_audit(PlannedAttacks(plan=bare, claim=floor, n=500)).verdict == "not tested"


def test_too_few_records_are_refused_and_a_seed_repeats_itself() -> None:
    with pytest.raises(ParameterError, match="n of attack_prior"):
        attack_prior(gaussian(), n=3)
    with pytest.raises(ParameterError, match="failure_probability of attack_prior"):
        attack_prior(gaussian(), failure_probability=0.0)
    first, again = (attack_prior(gaussian(), n=500, stream=Stream.from_seed(5)) for _ in range(2))
    assert [g.error for g in first] == [g.error for g in again]
