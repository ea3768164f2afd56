"""From counts to certainty: the bounds cover as often as they say, and are not idle."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from discreet.audit import epsilon_lower_bound
from discreet.audit._bounds import strongest_evidence
from discreet.confidence import clopper_pearson
from discreet.errors import ParameterError
from discreet.privacy.calibration import gaussian_delta
from discreet.privacy.promises import ZCDP, ApproxDP, GaussianDP, Promise, PureDP


@pytest.mark.parametrize("n", [1, 10, 200])
@pytest.mark.parametrize("failure", [0.05, 1e-4])
def test_each_bound_fails_with_at_most_the_stated_probability_whatever_the_truth(
    n: int, failure: float
) -> None:
    hits = np.arange(n + 1)
    low, high = clopper_pearson(hits, n, failure)
    for p in np.linspace(0.001, 0.999, 97):
        mass = stats.binom.pmf(hits, n, p)
        assert mass[low > p].sum() <= failure
        assert mass[high < p].sum() <= failure


def test_the_bounds_are_the_exact_binomial_ones() -> None:
    low, high = clopper_pearson(np.array([0, 3, 10]), 10, 0.01)
    assert low[0] == 0
    assert high[2] == 1
    assert stats.binom.sf(2, 10, low[1]) == pytest.approx(0.01, rel=1e-6)
    assert stats.binom.cdf(3, 10, high[1]) == pytest.approx(0.01, rel=1e-6)


def test_the_epsilon_bound_fails_with_at_most_the_stated_probability() -> None:
    """Randomized response at epsilon 1, every outcome of 60 runs on each input weighed exactly."""
    n, failure, keep = 60, 0.05, math.e / (1 + math.e)
    wrong = 0.0
    mass = [stats.binom.pmf(np.arange(n + 1), n, p) for p in (keep, 1 - keep)]
    for k_a in range(n + 1):
        for k_b in range(n + 1):
            if epsilon_lower_bound(k_a, n, k_b, n, 0.0, failure) > 1.0:
                wrong += mass[0][k_a] * mass[1][k_b]
    assert 0 < wrong <= failure


def test_the_epsilon_bound_looks_both_ways_and_at_the_complement() -> None:
    bounds = {
        epsilon_lower_bound(*counts, 0.0, 1e-6)
        for counts in [
            (900, 1000, 100, 1000),
            (100, 1000, 900, 1000),
        ]
    }
    assert len(bounds) == 1
    # 99.9 % against 90 %: the ratio is in what remains.
    assert epsilon_lower_bound(9_990, 10_000, 9_000, 10_000, 0.0, 1e-6) > 2.5
    assert epsilon_lower_bound(500, 1000, 500, 1000, 0.0, 1e-6) == 0


def test_more_runs_and_less_delta_prove_more() -> None:
    few, many = (epsilon_lower_bound(9 * n, 10 * n, n, 10 * n, 0.0, 1e-6) for n in (100, 10_000))
    assert few < many < math.log(9)
    assert many > 0.97 * math.log(9)
    assert epsilon_lower_bound(90_000, 100_000, 10_000, 100_000, 0.4, 1e-6) < many


@pytest.mark.parametrize(
    "arguments",
    [
        (5, 4, 0, 4, 0.0, 1e-6), (-1, 4, 0, 4, 0.0, 1e-6), (0, 0, 0, 4, 0.0, 1e-6),
        (1, 4, 0, 4, 1.0, 1e-6), (1, 4, 0, 4, 0.0, 0.0), (1, 4, 0, 4, 0.0, 1.0),
    ],
)  # fmt: skip
def test_impossible_counts_are_refused(arguments: tuple[int, int, int, int, float, float]) -> None:
    with pytest.raises(ParameterError, match="epsilon_lower_bound must be"):
        epsilon_lower_bound(*arguments)


N = 10**9  # so many runs that counts are as good as probabilities


@pytest.mark.parametrize(
    ("claim", "p", "q"),
    [
        (PureDP(epsilon=1.0), math.e / (1 + math.e), 1 / (1 + math.e)),
        (PureDP(epsilon=1.0), 0.1, 0.1 / math.e),
        (ApproxDP(epsilon=1.0, delta=0.1), 0.1 + math.e * 0.2, 0.2),
        (GaussianDP(mu=1.0), float(stats.norm.cdf(0.2)), float(stats.norm.cdf(-0.8))),
        (GaussianDP(mu=1.0), float(stats.norm.cdf(-1.0)), float(stats.norm.cdf(-2.0))),
        (GaussianDP(mu=2.0), float(stats.norm.cdf(-0.5)), float(stats.norm.cdf(-2.5))),
    ],
)
def test_an_event_on_the_edge_of_a_claim_passes_and_one_past_it_does_not(
    claim: Promise, p: float, q: float
) -> None:
    """The tight events of each curve: a little inside they hold, a little outside they break."""
    for slack, broken in ((0.99, False), (1.01, True)):
        evidence = strongest_evidence(claim, round(slack * p * N), N, round(q * N), N, 1e-6)
        assert (evidence.excess > 0) is broken
        # said in epsilons, it is the same verdict
        assert (evidence.measured > evidence.epsilon) is broken
        assert 0.85 < evidence.strain < 1.15


def test_every_point_of_a_concentrated_promise_is_looked_at() -> None:
    claim = ZCDP(rho=0.5)
    inside = strongest_evidence(claim, round(0.6915 * N), N, round(0.3085 * N), N, 1e-6)
    assert inside.excess < 0
    assert strongest_evidence(claim, round(0.9 * N), N, round(0.1 * N), N, 1e-6).excess > 0


def test_a_samplers_stated_total_variation_is_granted() -> None:
    counts = round(0.7312 * N), N, round(0.2689 * N), N
    assert strongest_evidence(PureDP(epsilon=1.0), *counts, 1e-6).excess > 0
    assert strongest_evidence(PureDP(epsilon=1.0, total_variation=0.01), *counts, 1e-6).excess < 0


def test_evidence_against_a_gaussian_claim_is_read_off_its_own_curve() -> None:
    evidence = strongest_evidence(GaussianDP(mu=0.8), round(0.6915 * N), N, round(0.3085 * N), N, 1e-6)
    assert evidence.delta == pytest.approx(gaussian_delta(evidence.epsilon, 0.8))
    assert evidence.excess > 0
