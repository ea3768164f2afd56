"""The paper's theorems, as printed and as corrected: reference values and the places where they are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from discreet.errors import ParameterError
from discreet.privacy import gaussian_delta, gaussian_epsilon, gaussian_mu, zcdp_epsilon, zcdp_rho
from discreet.privacy._posterior_odds import (
    PosteriorOdds,
    concentrated_variance,
    dp_variance,
    odds_variance,
    theorem_1_variance,
    theorem_4_variance,
    theorem_5_scale,
)
from discreet.privacy.calibration import odds_epsilon, odds_rho

# epsilon, T, theorem 1, theorem 4, corrected, zCDP, exact, at delta = 1e-6
TABLE = [
    (0.1, 100, 2.715e7, 2.325e7, 2.773e5, 1.557e5, 1.318e5),
    (1, 1, 1526.95, 1776.49, 28.622, 20.529, 17.848),
    (1, 100, 271457, 232662, 2862.2, 2052.9, 1784.8),
    (1, 10**4, 4.2415e7, 2.8857e7, 286223, 205288, 178479),
    (10, 100, 2714.6, 2345.5, 36.955, 32.483, 29.277),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_table_of_variances(row: tuple[float, int, float, float, float, float, float]) -> None:
    epsilon, queries, *wanted = row
    made = [
        of(epsilon, 1e-6, queries)
        for of in (theorem_1_variance, theorem_4_variance, odds_variance, concentrated_variance, dp_variance)
    ]
    for found, value in zip(made, wanted, strict=True):
        digits = len(f"{value:.10g}".replace(".", "").rstrip("0"))
        assert found == pytest.approx(value, rel=0.6 * 10.0 ** (1 - max(4, min(digits, 6))))


def test_reference_values_of_the_specification() -> None:
    assert theorem_1_variance(1, 1e-6, 100) == pytest.approx(271457.18325649, rel=1e-12)
    assert theorem_4_variance(1, 1e-6, 100) == pytest.approx(232662.02562926, rel=1e-12)
    assert odds_variance(1, 1e-6, 100) == pytest.approx(2862.22866635, rel=1e-11)
    assert dp_variance(1, 1e-6, 100) == pytest.approx(1784.79117179, rel=1e-10)
    assert concentrated_variance(1, 1e-6, 100) == pytest.approx(2052.8847450, rel=1e-7)
    assert gaussian_mu(1, 1e-6) == pytest.approx(0.23670438066343635, rel=1e-9)
    assert gaussian_mu(0.1, 1e-6) == pytest.approx(0.027544650243827188, rel=1e-9)
    assert gaussian_mu(10, 1e-6) == pytest.approx(1.8481322057670848, rel=1e-9)
    assert gaussian_delta(1, 0.5) == pytest.approx(0.006829594983114591, rel=1e-9)
    assert zcdp_rho(1, 1e-6) == pytest.approx(0.0243559704, rel=1e-7)
    assert zcdp_rho(0.1, 1e-6) == pytest.approx(0.000321047690, rel=1e-7)
    assert zcdp_rho(10, 1e-6) == pytest.approx(1.53927876, rel=1e-7)
    assert odds_rho(1, 1e-6) == pytest.approx(0.017468904769123432, rel=1e-9)
    assert odds_rho(0.1, 1e-6) == pytest.approx(0.0001803040801807587, rel=1e-9)
    assert odds_rho(10, 1e-6) == pytest.approx(1.3530146901688735, rel=1e-9)
    for rho, concentrated, odds, exact in (
        (0.05, 1.4715947505, 1.7122581363, 1.3675714751),
        (0.5, 5.2215344445, 5.7565217698, 4.8865541175),
        (2, 11.6885962494, 12.5130435395, 10.9971512142),
    ):
        assert zcdp_epsilon(rho, 1e-6) == pytest.approx(concentrated, rel=1e-9)
        assert odds_epsilon(rho, 1e-6) == pytest.approx(odds, rel=1e-9)
        assert gaussian_epsilon(math.sqrt(2 * rho), 1e-6) == pytest.approx(exact, rel=1e-9)


def _two_point_tail(epsilon: float, variance: float, queries: int) -> float:
    """How often the log-odds of a two-point prior rise by more than epsilon: exactly."""
    mu = math.sqrt(queries / variance)
    return float(stats.norm.sf((epsilon - mu * mu / 2) / mu))


def test_theorem_1_as_printed_is_false_for_large_epsilon_and_delta() -> None:
    assert _two_point_tail(10, theorem_1_variance(10, 0.5, 1), 1) == pytest.approx(0.722, abs=5e-4)
    assert _two_point_tail(300, theorem_1_variance(300, 0.01, 1), 1) == pytest.approx(0.066, abs=5e-4)
    for epsilon, delta in ((10, 0.5), (300, 0.01), (1, 1e-6), (0.1, 1e-6)):
        assert _two_point_tail(epsilon, odds_variance(epsilon, delta, 1), 1) <= delta


def test_theorem_1_asks_for_fifty_to_two_hundred_times_too_much() -> None:
    ratios = [theorem_1_variance(1, 1e-6, t) / odds_variance(1, 1e-6, t) for t in (1, 100, 10**4, 10**6)]
    assert ratios == sorted(ratios)
    assert (round(ratios[0]), round(ratios[-1])) == (53, 213)


def test_theorem_1_does_not_follow_from_theorem_4_for_few_queries() -> None:
    needs_more = [t for t in range(1, 50) if theorem_4_variance(1, 1e-6, t) > theorem_1_variance(1, 1e-6, t)]
    assert needs_more == list(range(1, 9))


def test_the_second_and_third_terms_of_theorem_4_are_not_small_at_variance_4() -> None:
    t, variance = 10**6, 4.0
    third = t / (2 * variance)
    spread = math.sqrt(2 * math.log(2 / 5e-7))
    first = spread * math.sqrt(2 * math.log(t / 5e-7) * t / variance)
    assert third == 1.25e5 > first


def test_theorem_4_holds_all_the_same() -> None:
    # With its own variance the three terms of the proof stay below three quarters of epsilon.
    worst = 0.0
    for epsilon in np.geomspace(1e-3, 100, 25):
        for delta in (1e-12, 1e-6, 1e-2, 0.9):
            for t in (1, 7, 100, 10**4, 10**7):
                variance = theorem_4_variance(float(epsilon), delta, t)
                spread = math.sqrt(2 * math.log(4 / delta))
                total = (
                    spread * math.sqrt(2 * math.log(2 * t / delta) * t / variance)
                    + spread * math.sqrt(t) / variance
                    + t / (2 * variance)
                )
                worst = max(worst, total / epsilon)
    assert worst <= 0.75 + 1e-9


def test_the_printed_density_of_theorem_5_is_not_one() -> None:
    scale = theorem_5_scale(0.5, 3)
    assert scale == 6.0

    def printed(x: float) -> float:
        return math.exp(-abs(x) / scale) / scale

    assert 2 * integrate.quad(printed, 0, np.inf)[0] == pytest.approx(2.0)
    # Half of it is, has variance 2 R^2, and shifted by 1 its ratio is at most e^(1/R), not e^(-1/R).
    variance = integrate.quad(lambda x: x * x * printed(x), 0, np.inf)[0]
    assert variance == pytest.approx(2 * scale**2)
    ratios = [printed(x) / printed(x - 1) for x in np.linspace(-20, 20, 401)]
    assert max(ratios) == pytest.approx(math.exp(1 / scale))
    assert max(ratios) > math.exp(-1 / scale)


def test_gaussian_noise_beats_laplace_from_a_few_queries_on() -> None:
    def first(variance: object, epsilon: float) -> int:
        assert callable(variance)
        laplace = [2 * theorem_5_scale(epsilon, t) ** 2 for t in range(1, 3000)]
        return next(t for t in range(1, 3000) if variance(epsilon, 1e-6, t) < laplace[t - 1])

    assert [first(dp_variance, epsilon) for epsilon in (0.1, 1, 10)] == [7, 9, 15]
    assert [first(odds_variance, epsilon) for epsilon in (0.1, 1, 10)] == [14, 15, 19]
    assert first(theorem_1_variance, 1) == 1819


def _rise_tails(
    weights: list[np.ndarray], values: list[np.ndarray], truth: float, grid: np.ndarray
) -> np.ndarray:
    """Log-odds gained at each answer of one query with variance 1, for mixtures inside f and not-f."""
    logs = [
        np.log((w * np.exp(-((grid[:, None] - v) ** 2) / 2)).sum(axis=1))
        for w, v in zip(weights, values, strict=True)
    ]
    return np.asarray(logs[0] - logs[1])


@pytest.mark.parametrize("distance", [0.1, 0.5, 1.0, 3.0])
def test_no_mixture_prior_beats_the_corrected_bound(distance: float) -> None:
    # Deterministic mixtures of up to five points each on [0, distance]; every true row among them.
    grid = np.linspace(-9, 9 + distance, 4001)
    rho = distance**2 / 2
    for case in range(18):
        raw = np.abs(np.sin(np.arange(1, 21) * (case + 1.37) * 2.399))
        values = [raw[:5] * distance, raw[5:10] * distance]
        if case % 3 == 0:
            values = [np.array([distance]), np.array([0.0])]
        weights = [raw[10 : 10 + len(values[0])], raw[15 : 15 + len(values[1])]]
        weights = [w / w.sum() for w in weights]
        for truth in np.concatenate(values):
            rise = _rise_tails(weights, values, truth, grid)
            mass = stats.norm.pdf(grid - truth) * (grid[1] - grid[0])
            assert float((mass * rise).sum()) <= rho + 1e-6
            for delta in (1e-6, 1e-3, 0.1):
                assert float(mass[rise > odds_epsilon(rho, delta)].sum()) <= delta
            # The rise is Lipschitz in the answer, which is what makes the tail sub-Gaussian.
            assert float(np.abs(np.diff(rise)).max()) <= distance * (grid[1] - grid[0]) * (1 + 1e-6)


def test_a_differentially_private_answer_need_not_bound_odds() -> None:
    # Randomized response at 1 + 1e-6 is (1, 7.3e-7)-private; odds rise by more than 1 most of the time.
    slightly = 1 + 1e-6
    keep = math.exp(slightly) / (1 + math.exp(slightly))
    assert keep - math.e * (1 - keep) < 7.4e-7
    assert keep == pytest.approx(0.731, abs=1e-3)
    # Gaussian noise tuned to (1, 1e-6): odds rise by more than 1 twenty times as often as 1e-6.
    mu = gaussian_mu(1, 1e-6)
    assert stats.norm.sf((1 - mu**2 / 2) / mu) == pytest.approx(2.01e-5, rel=5e-3)


def test_a_budget_gives_each_question_its_share_and_compares() -> None:
    budget = PosteriorOdds(epsilon=1, delta=1e-6, queries=100)
    assert budget.variance == odds_variance(1, 1e-6, 100)
    assert budget.comparison()["theorem 5"] == 2 * 100.0**2
    assert (
        PosteriorOdds(epsilon=1, delta=1e-6, queries=100, theorem="theorem 1").variance > 90 * budget.variance
    )
    assert budget.to_dict()["kind"] == "posterior-odds"


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"queries": 0},
        {"queries": 1.5},
        {"theorem": "theorem 2"},
    ],
    ids=str,
)
def test_parameters_outside_their_domain_are_refused(wrong: dict[str, object]) -> None:
    arguments: dict[str, object] = {"epsilon": 1.0, "delta": 1e-6, "queries": 3, **wrong}
    with pytest.raises(ParameterError, match=f"{next(iter(wrong))} of PosteriorOdds must be"):
        PosteriorOdds(**arguments)  # type: ignore[arg-type]
