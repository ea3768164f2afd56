"""The attacker's reading of each law: it sums to one, and it is what the release draws."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from discreet.audit._closed_form_guess import (
    Candidates,
    likeliest_levels,
    observed_candidates,
    posterior_means,
    uniform_candidates,
)
from discreet.audit.channel import cell_log_likelihood
from discreet.audit.targets import Target, plan_targets
from discreet.noise import Stream
from discreet.privacy import ErrorFloor, PureDP
from discreet.release import BoundedRelease, GaussianRelease, LaplaceRelease
from discreet.schema import Column, Schema

AGE = Column("age", type="integer", lower=17, upper=90)
N = 200_000


def target(kind: Any, column: Column = AGE, **parameters: Any) -> tuple[Target, Any]:
    schema = Schema(columns=[column])
    plan = kind(schema=schema, **parameters).plan(schema, 1_000)
    return plan_targets(plan)[0], plan


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "gaussian": (GaussianRelease, {"scale": 12.0}),
    "gaussian clamped": (GaussianRelease, {"scale": 12.0, "clamp": True}),
    "laplace": (LaplaceRelease, {"scale": 9.0}),
    "laplace clamped": (LaplaceRelease, {"scale": 9.0, "clamp": True}),
    "bounded": (BoundedRelease, {"support": 28.3}),
    "bounded, lopsided": (BoundedRelease, {"support": {"age": (-10.0, 30.0)}, "regularization": 1e3}),
    "bounded clamped": (BoundedRelease, {"support": 28.3, "clamp": True}),
    "in range": (BoundedRelease, {"privacy": PureDP(epsilon=4), "in_range": True}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("value", [17.0, 40.0])
def test_the_likelihood_is_the_law_of_what_is_drawn(name: str, value: float) -> None:
    """Shares of a coarse histogram of draws against the same shares by integration."""
    kind, parameters = CASES[name]
    found, plan = target(kind, **parameters)
    drawn = plan.draw({"age": np.full(N, value)}, Stream.from_seed(1))["age"]
    assert found.channel is not None
    inside = name == "in range"
    edges = np.linspace(17, 90, 9) if inside or "clamped" in name else np.linspace(-40, 150, 20)
    cells = 2048 if inside else 512
    expected = []
    for low, high in itertools.pairwise(edges):
        step = (90 - 17) / cells if inside else (high - low) / cells
        z = np.arange(low + step / 2, high, step)
        law = np.exp(found.channel.log_likelihood(z, np.full_like(z, value)))
        expected.append(float(law.sum()) * (1.0 if inside else step))
    seen = np.histogram(drawn[(drawn > 17) & (drawn < 90)] if "clamped" in name else drawn, edges)[0] / N
    if "clamped" in name:
        ends = np.exp(found.channel.log_likelihood(np.array([17.0, 90.0]), np.full(2, value)))
        expected += ends.tolist()
        seen = np.append(seen, [(drawn <= 17).mean(), (drawn >= 90).mean()])
    assert sum(expected) == pytest.approx(1, abs=2e-3)
    # Six standard errors of a share.
    assert np.all(np.abs(seen - expected) < 6 * np.sqrt(np.maximum(expected, 1e-4) / N) + 1e-4)


@pytest.mark.parametrize("name", [name for name in CASES if name != "bounded, lopsided"])
def test_nobody_guesses_better_than_by_the_posterior(name: str) -> None:
    """The mean of the true values that had a published cell nearby, which needs no law, is no better."""
    kind, parameters = CASES[name]
    found, plan = target(kind, **parameters)
    assert found.channel is not None
    ages = 17 + np.arange(N) % 74.0
    drawn = plan.draw({"age": ages}, Stream.from_seed(2))["age"]
    guess, _ = posterior_means(found.channel, drawn[:, None], uniform_candidates(AGE, found.channel.fineness))
    bins = np.digitize(drawn, np.linspace(-60, 170, 500))
    nearby = np.bincount(bins, ages)[bins] / np.bincount(bins)[bins]
    ours, theirs = (float(np.mean((g - ages) ** 2)) for g in (guess, nearby))
    # The bins were fitted to the same people: a part in a hundred of slack either way.
    assert ours == pytest.approx(theirs, rel=0.01)


def test_several_rows_of_a_person_are_put_together() -> None:
    found, plan = target(GaussianRelease, scale=20.0)
    assert found.channel is not None
    ages = 17 + np.arange(20_000) % 74.0
    drawn = plan.draw({"age": np.repeat(ages, 4)}, Stream.from_seed(3))["age"].reshape(-1, 4)
    candidates = uniform_candidates(AGE, found.channel.fineness)
    four, _ = posterior_means(found.channel, drawn, candidates)
    single, _ = target(GaussianRelease, scale=10.0)
    assert single.channel is not None
    mean, _ = posterior_means(single.channel, drawn.mean(axis=1)[:, None], candidates)
    assert np.abs(four - mean).max() < 1e-6


def test_a_cell_that_says_nothing_leaves_the_prior() -> None:
    found, _ = target(GaussianRelease, scale=10.0)
    assert found.channel is not None
    candidates = uniform_candidates(AGE, found.channel.fineness)
    guess, evidence = posterior_means(found.channel, np.array([[np.nan], [40.0]]), candidates)
    assert guess[0] == candidates.mean == pytest.approx(53.5)
    assert evidence[0] == 0
    assert guess[1] < 50


def test_what_the_law_rules_out_is_guessed_by_the_nearest_value() -> None:
    found, _ = target(BoundedRelease, support=5.0)
    assert found.channel is not None
    guess, evidence = posterior_means(
        found.channel, np.array([[300.0], [-300.0]]), uniform_candidates(AGE, found.channel.fineness)
    )
    assert guess.tolist() == [90.0, 17.0]
    assert np.all(evidence == -np.inf)


def test_fine_values_are_taken_together_and_coarse_ones_are_not() -> None:
    wide = Column("income", type="integer", lower=0, upper=10**9)
    together = uniform_candidates(wide, 1e6)
    assert 900 < together.points.size < 1_100
    assert together.mean == pytest.approx(5e8, rel=1e-9)
    assert uniform_candidates(AGE, 3.5).points.size == 25
    assert uniform_candidates(AGE, 0.1).points.tolist() == list(range(17, 91))
    seen = observed_candidates(np.arange(100_000.0), 50.0)
    assert seen.points.size < 2_100
    assert seen.mean == pytest.approx(49_999.5)
    assert observed_candidates(np.array([3.0, 1.0, 3.0]), 9.0).weights.tolist() == [1 / 3, 2 / 3]
    assert Candidates(np.array([0.0, 2.0]), np.array([0.5, 0.5])).sd == 1


def test_a_missing_cell_is_the_middle_with_a_randomized_flag() -> None:
    column = Column("age", type="integer", lower=17, upper=90, required=False)
    found, plan = target(GaussianRelease, column, privacy=ErrorFloor(age=9))
    assert found.channel is not None
    keep = found.missing_keep
    assert keep is not None
    drawn = plan.draw({"age": np.full(N, np.nan)}, Stream.from_seed(4))["age"]
    assert np.isnan(drawn).mean() == pytest.approx(keep, abs=0.01)
    values, cells = np.array([np.nan, 40.0, np.nan, 40.0]), np.array([np.nan, np.nan, 41.0, 41.0])
    logs = cell_log_likelihood(found.channel, column, keep, cells, values)
    middle, forty = found.channel.log_likelihood(np.array(41.0), np.array([column.fill, 40.0]))
    assert np.exp(logs) == pytest.approx(
        [keep, 1 - keep, (1 - keep) * np.exp(middle), keep * np.exp(forty)], rel=1e-12
    )


def test_randomized_response_is_inverted_with_the_shares_of_the_levels() -> None:
    column = Column("job", values=("a", "b", "c"), closed=True)
    found, _ = target(GaussianRelease, column, privacy=ErrorFloor(job=0.4))
    answers = np.array([[0], [1], [2]])
    assert likeliest_levels(found.response, answers, np.full(3, 1 / 3)).tolist() == [0, 1, 2]
    # Where nearly everybody is an "a", a "b" is rather a lie.
    assert likeliest_levels(found.response, answers, np.array([0.9, 0.05, 0.05])).tolist() == [0, 0, 0]
    # Two answers of one person.
    assert likeliest_levels(found.response, np.array([[1, 1]]), np.array([0.5, 0.3, 0.2])).tolist() == [1]
