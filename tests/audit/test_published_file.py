"""What anybody gets out of a published file: the expected errors are those that come true."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from discreet import datasets
from discreet.audit import attack_file
from discreet.audit._closed_form_guess import linear_guesses, observed_candidates, posterior_means
from discreet.audit.targets import plan_targets
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.privacy import ErrorFloor, PureDP
from discreet.release import BoundedRelease, GaussianRelease, InvariantRelease
from discreet.release.gaussian import informed_error
from discreet.schema import Column, Schema
from discreet.tables import open_table
from tests.audit.plans import AGE, JOB, WEIGHT, coin_flips, gaussian, people

N = 20_000


def file_of(plan: Any, rows: Any, seed: int = 1) -> Any:
    return plan.draw(rows, Stream.from_seed(seed))


def by_attack(guesses: Any) -> dict[tuple[str, str], Any]:
    return {(g.column, g.attack): g for g in guesses}


def test_nothing_is_drawn_and_everybody_gets_the_same_digits() -> None:
    plan = gaussian()
    published = file_of(plan, people(N + 50))
    first = attack_file(plan, published)
    again = attack_file(gaussian(), {k: v[:N].copy() for k, v in published.items()})
    for one, other in zip(first, again, strict=True):
        assert (one.column, one.attack) == (other.column, other.attack)
        assert one.error == pytest.approx(other.error, rel=1e-9)
        assert (one.verdict, one.on, one.failure_probability) == ("shown", "file", 0.0)
        assert one.lower == one.error == one.upper
        assert "the attacker expects" in one.note
    other_order = {k: v[:N][::-1] for k, v in published.items()}
    for one, turned in zip(first, attack_file(plan, other_order), strict=True):
        assert one.error == pytest.approx(turned.error, rel=1e-9)


def test_the_expected_errors_come_true() -> None:
    """Carry each attack out on the people behind the file and compare."""
    plan, rows = gaussian(), people(N)
    published = file_of(plan, rows)
    found = by_attack(attack_file(plan, published))
    law = {s.column: s.law for s in plan.columns}
    for name in ("age", "weight"):
        z, V = published[name], law[name].variance  # type: ignore[attr-defined]
        S = z.var() - V
        shrunk = z.mean() + (z - z.mean()) * S / (S + V)
        attained = math.sqrt(float(np.mean((shrunk - rows[name]) ** 2)))
        assert found[name, "shrinkage"].error == pytest.approx(attained, rel=0.02)
        assert found[name, "shrinkage"].without == pytest.approx(rows[name].std(), rel=0.03)
        target = next(t for t in plan_targets(plan) if t.name == name)
        assert target.channel is not None
        best, _ = posterior_means(
            target.channel, z[:, None], observed_candidates(rows[name], target.channel.fineness)
        )
        attained = math.sqrt(float(np.mean((best - rows[name]) ** 2)))
        assert found[name, "deconvolution"].error == pytest.approx(attained, rel=0.03)
        # Other columns help, and a linear guess uses them.
        assert found[name, "linear"].error < found[name, "shrinkage"].error
    for name in ("job", "smokes"):
        right = float(np.mean(rows[name] == published[name]))
        assert found[name, "response inversion"].error <= 1 - right + 0.01
        assert found[name, "linear"].error < found[name, "response inversion"].error
        assert found[name, "response inversion"].without == pytest.approx(
            1 - np.bincount(rows[name]).max() / N, abs=0.02
        )


def test_the_linear_guess_is_the_best_linear_guess() -> None:
    """Numbers alone: S - S (S + V)^-1 S with the population's own covariance."""
    schema = Schema(columns=[AGE, WEIGHT])
    plan, rows = gaussian(schema), people(N)
    published = file_of(plan, rows)
    found = by_attack(attack_file(plan, published))
    X = np.column_stack([rows["age"], rows["weight"]])
    V = np.array([s.law.variance for s in plan.columns])  # type: ignore[attr-defined]
    attained = sum(found[name, "linear"].error ** 2 for name in ("age", "weight"))
    assert attained == pytest.approx(informed_error(V, np.cov(X.T)), rel=0.03)


def test_correlated_noise_is_not_taken_for_correlated_people() -> None:
    schema = Schema(columns=[Column("a", lower=0, upper=1), Column("b", lower=0, upper=1)])
    weights = np.array([[1.0, 0.9], [0.9, 1.0]])
    plan = GaussianRelease(regularization=400.0, weights=weights, schema=schema).plan(schema, N)
    numbers: Any = plan.numbers
    z = Stream.from_seed(1).generator().random((N, 2))
    rows = {"a": z[:, 0], "b": z[:, 1]}
    found = by_attack(attack_file(plan, file_of(plan, rows)))
    expected = informed_error(numbers.covariance, np.cov(z.T))
    attained = sum(found[name, "linear"].error ** 2 for name in "ab")
    assert attained == pytest.approx(expected, rel=0.03)
    # The twin that forgets it gets another number.
    forgot = informed_error(np.diag(numbers.covariance), np.cov(z.T))
    assert abs(forgot / expected - 1) > 0.1


def test_missing_cells_do_not_pass_for_small_variance() -> None:
    schema = Schema(columns=[Column("age", lower=0, upper=100, required=False)])
    plan = GaussianRelease(privacy=ErrorFloor(age=10), schema=schema).plan(schema, N)
    ages = np.where(coin_flips(N, 3) == 1, 10.0, 90.0)
    ages[coin_flips(N, 4) == 1] = np.nan
    found = by_attack(attack_file(plan, file_of(plan, {"age": ages})))
    assert found["age", "shrinkage"].without == pytest.approx(40, rel=0.02)
    # Two values far apart: whoever works out that there are two tells most people which is theirs.
    assert found["age", "deconvolution"].error < 0.75 * found["age", "shrinkage"].error


@pytest.mark.parametrize("clamp", [True, False])
def test_clamped_and_in_range_outputs_are_undone_too(clamp: bool) -> None:
    schema = Schema(columns=[AGE])
    rows = {"age": people(N)["age"]}
    release: Any = (
        GaussianRelease(privacy=ErrorFloor(age=9), clamp=True, schema=schema)
        if clamp
        else BoundedRelease(privacy=PureDP(epsilon=8), in_range=True, schema=schema)
    )
    plan = release.plan(schema, N)
    published = file_of(plan, rows)
    (guess,) = attack_file(plan, published)
    assert guess.attack == "deconvolution"
    target = plan_targets(plan)[0]
    assert target.channel is not None
    best, _ = posterior_means(
        target.channel, published["age"][:, None], observed_candidates(rows["age"], target.channel.fineness)
    )
    assert guess.error == pytest.approx(math.sqrt(float(np.mean((best - rows["age"]) ** 2))), rel=0.05)
    assert guess.without == pytest.approx(rows["age"].std(), rel=0.05)


def test_noise_that_drowns_everything_is_said_to() -> None:
    schema = Schema(columns=[Column("x", lower=0, upper=1)])
    plan = GaussianRelease(scale=50.0, schema=schema).plan(schema, 500)
    published = file_of(plan, {"x": np.full(500, 0.5)}, seed=4)
    guess = attack_file(plan, published)[0]
    assert "drowns" in guess.note or guess.without == 0.5
    assert guess.without <= 0.5


def test_the_reference_numbers_of_the_census() -> None:
    """Cosine-squared noise of half-width 28.3 on ages of 17 to 90, and what the census' own ages allow."""
    census = datasets.load("census")
    with open_table(census.path) as table:
        ages = np.concatenate([batch["age"] for batch in table.batches(census.schema)])
    schema = Schema(columns=[Column("age", lower=17, upper=90, measure="years")])
    plan = BoundedRelease(support=28.3, schema=schema).plan(schema, len(ages))
    floor = plan.columns[0].floor
    assert floor is not None
    assert floor.cramer_rao == pytest.approx(9.01, abs=0.01)
    assert floor.van_trees == pytest.approx(7.12, abs=0.005)
    published = file_of(plan, {"age": ages})
    target = plan_targets(plan)[0]
    assert target.channel is not None
    known = observed_candidates(ages, target.channel.fineness)
    guess, _ = posterior_means(target.channel, published["age"][:N, None], known)
    attained = math.sqrt(float(np.mean((guess - ages[:N]) ** 2)))
    # Below Cramér-Rao, which binds nobody who knows something; above van Trees, which binds everybody.
    assert attained == pytest.approx(8.08, abs=0.1)
    assert by_attack(attack_file(plan, published))["age", "deconvolution"].error == pytest.approx(
        8.08, abs=0.1
    )


def test_public_columns_and_clear_labels_are_used() -> None:
    schema = Schema(columns=[AGE, Column("job", values=JOB.values, closed=True, role="public")])
    plan = gaussian(schema)
    rows = {k: v for k, v in people(N).items() if k in ("age", "job")}
    found = by_attack(attack_file(plan, file_of(plan, rows)))
    assert set(found) == {("age", "shrinkage"), ("age", "deconvolution"), ("age", "linear")}
    assert found["age", "linear"].error < 0.9 * found["age", "shrinkage"].error


def test_an_invariant_release_is_attacked_by_its_largest_noise() -> None:
    schema = Schema(columns=[AGE, WEIGHT, Column("smokes", values=(0, 1))], target="smokes")
    plan = InvariantRelease(variance=25.0, schema=schema).plan(schema, 400)
    rows = {k: v[:400] for k, v in people(400).items() if k != "job"}
    found = by_attack(attack_file(plan, file_of(plan, rows)))
    assert found["age", "shrinkage"].error < 5
    assert "at most" in found["age", "shrinkage"].note
    assert ("age", "linear") in found


def test_small_and_empty_files_are_taken() -> None:
    plan = gaussian()
    for n in (0, 1, 2, 15):
        rows = {k: v[:n] for k, v in people(15).items()}
        for guess in attack_file(plan, file_of(plan, rows)):
            assert math.isfinite(guess.error)
    lost = {"age": np.full(30, np.nan)}
    schema = Schema(columns=[Column("age", lower=0, upper=100, required=False)])
    assert attack_file(gaussian(schema), lost) == ()
    with pytest.raises(ParameterError, match="lacks 'job'"):
        attack_file(plan, {k: v for k, v in people(5).items() if k != "job"})


def test_a_wide_table_is_attacked_in_pieces() -> None:
    schema = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(30)])
    plan = GaussianRelease(scale=0.2, schema=schema).plan(schema, 200)
    common = Stream.from_seed(1).generator().random((120, 30))
    published = file_of(plan, {f"x{i}": common[:, i] for i in range(30)})
    # A hundred and twenty rows carry twelve columns at a time.
    pieces = linear_guesses(plan, plan_targets(plan), published, {})
    assert [piece.columns for piece in pieces] == [12, 12, 6]
    told: list[tuple[int, int]] = []
    attack_file(plan, published, progress=lambda *at: told.append(at))
    assert told[-1] == (30, 30)
