from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath as mp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import erfcx

from discreet.errors import ParameterError
from discreet.privacy import calibration, rounding
from discreet.privacy.calibration import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_log_delta,
    gaussian_mu,
    gaussian_rho,
    group_delta,
    group_epsilon,
    group_mu,
    group_rho,
    keep_probability,
    laplace_epsilon,
    laplace_scale,
    mu_for_sd,
    odds_epsilon,
    odds_rho,
    pure_delta,
    pure_rho,
    response_epsilon,
    rho_mu,
    sd_for_mu,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from discreet.privacy.rounding import root_down


def true_delta(epsilon: float, mu: Any) -> Any:
    # A hundred and twenty digits, because the two terms cancel to as little as 1e-300.
    with mp.workdps(120):
        e, m = mp.mpf(epsilon), mp.mpf(mu)
        if e == 0:
            return mp.erf(m / mp.sqrt(8))
        first = mp.erfc((e / m - m / 2) / mp.sqrt(2)) / 2
        return first - mp.exp(e) * mp.erfc((e / m + m / 2) / mp.sqrt(2)) / 2


EPSILONS = [0.0, 1e-12, 1e-8, 1e-4, 0.01, 0.1, 0.5, 1.0, 3.0, 10.0, 32.0, 100.0, 800.0, 1e4]
MUS = [10.0 ** (-8 + k / 6) for k in range(67)] + [0.25, math.nextafter(0.25, 1), 0.2499]
GRID = [(epsilon, mu) for epsilon in EPSILONS for mu in MUS if -60 < epsilon / mu - mu / 2 < 37.04]


def test_delta_is_never_below_the_truth_and_above_it_by_less_than_a_hundred_billionth() -> None:
    worst = 0.0
    for epsilon, mu in GRID:
        truth = true_delta(epsilon, mu)
        if truth < mp.mpf("1e-300"):
            continue
        excess = mp.mpf(gaussian_delta(epsilon, mu)) / truth - 1
        assert excess >= 0, (epsilon, mu)
        worst = max(worst, float(excess))
    assert worst < 1e-11
    assert len(GRID) > 400


def test_the_slack_is_needed_because_the_bare_formula_falls_below_the_truth() -> None:
    def bare(epsilon: float, mu: float) -> float:
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        scale = math.sqrt(math.pi / 2)
        ratio = scale * float(erfcx(a / math.sqrt(2)) - erfcx(b / math.sqrt(2)))
        return math.exp(-a * a / 2) / math.sqrt(2 * math.pi) * ratio

    points = [(e, m) for e, m in GRID if 0 < e / m - m / 2 < 37]
    below = [1 for e, m in points if mp.mpf(bare(e, m)) < true_delta(e, m)]
    assert len(below) > len(points) // 4


def test_mills_ratio_of_the_library_is_as_exact_as_the_slack_assumes() -> None:
    worst = 0.0
    for k in range(900):
        x = -0.1 + 0.05 * k
        with mp.workdps(60):
            truth = mp.exp(mp.mpf(x) ** 2) * mp.erfc(mp.mpf(x))
            worst = max(worst, float(abs(mp.mpf(float(erfcx(x))) / truth - 1)))
    assert worst < 6 * 2.0**-53  # the page allows 8 with the two scalings


def test_far_below_the_range_of_floats_delta_is_still_positive_and_its_logarithm_right() -> None:
    assert gaussian_delta(1e4, 1e-8) == 5e-324
    for epsilon, mu in [(1.0, 0.01), (1e4, 0.3), (1e4, 1e-8), (50.0, 1.0)]:
        with mp.workdps(50):
            a = mp.mpf(epsilon) / mp.mpf(mu) - mp.mpf(mu) / 2
            b = a + mp.mpf(mu)
            # Two continued-fraction bounds of Mills' ratio enclose the logarithm.
            upper = -(a**2) / 2 - mp.log(mp.sqrt(2 * mp.pi)) + mp.log(1 / a - b / (b * b + 1))
            value = mp.mpf(gaussian_log_delta(epsilon, mu))
            lower = upper - mp.log(1 / a - b / (b * b + 1)) + mp.log(mu / (b * b + 3))
            assert lower <= value <= upper + abs(upper) * mp.mpf("1e-12")


@pytest.mark.parametrize("delta", [1e-300, 1e-100, 1e-20, 1e-6, 1e-3, 0.3, 0.7, 1 - 1e-6, 1 - 1e-12])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 0.1, 1.0, 32.0, 1e4])
def test_mu_is_allowed_as_floats_compare_and_within_a_hundred_billionth(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert true_delta(epsilon, mu) <= mp.mpf(delta)
    with mp.workdps(60):
        assert true_delta(epsilon, mp.mpf(mu) * (1 + mp.mpf("1e-11"))) > mp.mpf(delta)


@pytest.mark.parametrize("delta", [1e-300, 1e-20, 1e-6, 0.01, 0.6])
@pytest.mark.parametrize("mu", [1e-8, 1e-3, 0.2, 1.0, 7.0, 100.0, 1e3])
def test_epsilon_is_sufficient_and_within_a_hundred_billionth(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert true_delta(epsilon, mu) <= mp.mpf(delta)
    smaller = epsilon - 1e-11 * (epsilon + mu)
    assert epsilon == 0.0 or smaller < 0 or true_delta(smaller, mu) > mp.mpf(delta)


NEAR = tuple(1 - k * 2.0**-53 for k in range(1, 25)) + tuple(1 - 2.0**-k for k in range(1, 49))


@settings(max_examples=200, deadline=None)
@example(1.3913976965004624, 0.06173090827438215)
@example(0.9, gaussian_delta(0.9, 0.25 + 2.0**-54))  # where two forms of the curve meet
@example(0.5, gaussian_delta(0.5, 1.0))  # where the other two do
@given(st.floats(0, 50), st.floats(1e-30, 1, exclude_max=True))
def test_what_is_allowed_stays_allowed_a_few_units_further_on(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert max(gaussian_delta(epsilon, mu * factor) for factor in NEAR) <= delta
    assert max(gaussian_delta(epsilon / factor, mu) for factor in NEAR) <= delta


@settings(max_examples=200, deadline=None)
@example(1.0, 1e-6)
@given(st.floats(1e-3, 20), st.floats(1e-12, 0.1))
def test_a_promise_that_was_made_into_noise_is_read_back_as_no_weaker_one(
    epsilon: float, delta: float
) -> None:
    assert gaussian_epsilon(gaussian_mu(epsilon, delta), delta) <= epsilon


@pytest.mark.parametrize("square", ["0.09", "2", "1e-323", "5e-324", "3e-400", "1.7e308", "0"])
def test_a_root_is_the_largest_number_that_prints_no_more(square: str) -> None:
    root = root_down(Fraction(square))
    above = math.nextafter(root, math.inf)
    assert rounding.exact(root) ** 2 <= Fraction(square) < rounding.exact(above) ** 2


def test_what_is_computed_wobbles_so_that_one_slack_would_not_do() -> None:
    epsilon, mu = 1.3913976965004624, 0.9737316435587258
    assert gaussian_delta(epsilon, mu) < gaussian_delta(epsilon, math.nextafter(mu, 0.0))


@pytest.mark.parametrize("mu", [1e-8, 0.01, 0.3, 1.0, 5.0])
def test_a_delta_just_below_that_of_epsilon_zero_needs_almost_no_epsilon(mu: float) -> None:
    enough = gaussian_delta(0.0, mu)
    assert gaussian_epsilon(mu, enough) == 0.0
    for delta in (math.nextafter(enough, 0.0), enough * (1 - 1e-15), enough * (1 - 1e-14)):
        epsilon = gaussian_epsilon(mu, delta)
        assert gaussian_delta(epsilon, mu) <= delta
        assert 0.0 < epsilon < 1e-10 * mu


@pytest.mark.parametrize(
    ("epsilon", "values"),
    [
        (0.1, (0.0574567476, 0.0325207841, 0.0275446502, 0.0199164234)),
        (0.5, (0.2169137192, 0.1422105587, 0.1241061490, 0.0936864968)),
        (1.0, (0.3884012483, 0.2680511232, 0.2367043807, 0.1819748073)),
        (4.0, (1.2149521460, 0.9249308977, 0.8378587571, 0.6721316901)),
        (8.0, (2.0832736455, 1.6660305978, 1.5315451176, 1.2622484650)),
        (16.0, (3.4649336439, 2.9054781552, 2.7128821857, 2.3061688650)),
        (32.0, (5.5777950947, 4.8795983443, 4.6256197636, 4.0619617666)),
    ],
)
def test_reference_mus(epsilon: float, values: tuple[float, ...]) -> None:
    for delta, value in zip((1e-3, 1e-5, 1e-6, 1e-9), values, strict=True):
        assert gaussian_mu(epsilon, delta) == pytest.approx(value, rel=1e-9, abs=5.1e-11)


def test_reference_deltas_and_epsilons() -> None:
    for epsilon, mu, value in [
        (0.1, 0.02, 1.124001235692e-9),
        (1.0, 0.25, 2.924272104856e-6),
        (8.0, 1.5, 5.336763400247e-7),
        (30.0, 4.0, 7.774625606059e-9),
        (1.0, 0.5, 0.006829594983114591),
        (1.0, 1.0, 0.1269367375066439),
    ]:
        assert gaussian_delta(epsilon, mu) == pytest.approx(value, rel=1e-12)
    # Unit ranges, noise of Theorem 2.4 with weight lambda: mu = lambda^(1/4) sqrt(p).
    for p, weight, value in [
        (2, 1e-4, 0.49697536),
        (2, 1e-2, 1.76005715),
        (2, 1.0, 6.57297007),
        (30, 1e-4, 2.20705947),
        (30, 1.0, 37.62245693),
        (30, 100.0, 222.97671844),
    ]:
        assert gaussian_epsilon(weight**0.25 * math.sqrt(p), 1e-5) == pytest.approx(value, abs=5e-9)
    for p, epsilon, delta, value in [
        (30, 1.0, 1e-5, 5.736249278748e-6),
        (30, 8.0, 1e-5, 8.560307857578e-3),
        (2, 1.0, 1e-6, 7.848111968331e-4),
    ]:
        weight = (gaussian_mu(epsilon, delta) / math.sqrt(p)) ** 4
        assert weight == pytest.approx(value, rel=1e-12)
    assert gaussian_epsilon(1.282304686766, 1e-5) == pytest.approx(5.85298897, abs=5e-9)
    for epsilon, value in [
        (1.0, 0.23670438066343635),
        (0.1, 0.027544650243827188),
        (10.0, 1.8481322057670848),
    ]:
        assert gaussian_mu(epsilon, 1e-6) == pytest.approx(value, rel=1e-12)
    assert 1 / gaussian_mu(1.0, 1e-6) == pytest.approx(4.2247, abs=5e-5)
    assert 100 / gaussian_mu(1.0, 1e-6) ** 2 == pytest.approx(1784.79117179, rel=1e-11)


def test_reference_values_of_concentrated_privacy() -> None:
    for epsilon, cks, odds in [
        (1.0, 0.0243559704, 0.017468904769123432),
        (0.1, 0.000321047690, 0.0001803040801807587),
        (10.0, 1.53927876, 1.3530146901688735),
    ]:
        assert zcdp_rho(epsilon, 1e-6) == pytest.approx(cks, rel=3e-9)
        assert odds_rho(epsilon, 1e-6) == pytest.approx(odds, rel=1e-12)
    for rho, cks, odds, exact in [
        (0.05, 1.4715947505, 1.7122581363, 1.3675714751),
        (0.5, 5.2215344445, 5.7565217698, 4.8865541175),
        (2.0, 11.6885962494, 12.5130435395, 10.9971512142),
    ]:
        assert zcdp_epsilon(rho, 1e-6) == pytest.approx(cks, abs=1e-10)
        assert odds_epsilon(rho, 1e-6) == pytest.approx(odds, abs=1e-10)
        assert gaussian_epsilon(rho_mu(rho), 1e-6) == pytest.approx(exact, abs=1e-10)
    assert 100 / (2 * odds_rho(1.0, 1e-6)) == pytest.approx(2862.22866635, rel=1e-11)
    assert 100 / (2 * zcdp_rho(1.0, 1e-6)) == pytest.approx(2052.8847450, rel=1e-7)


def cks_epsilon(rho: float, delta: float, alpha: float) -> Any:
    a = mp.mpf(alpha)
    return a * mp.mpf(rho) + (-mp.log(mp.mpf(delta)) + (a - 1) * mp.log(1 - 1 / a) - mp.log(a)) / (a - 1)


@pytest.mark.parametrize("rho", [1e-9, 1e-4, 0.05, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("delta", [1e-100, 1e-6, 0.2])
def test_the_conversion_of_concentrated_privacy_is_the_minimum_over_orders(rho: float, delta: float) -> None:
    value = zcdp_epsilon(rho, delta)
    with mp.workdps(40):
        orders = [1 + mp.mpf(10) ** (mp.mpf(k) / 40) for k in range(-400, 1200)]
        best = min(cks_epsilon(rho, delta, order) for order in orders)
        assert mp.mpf(value) <= max(best, 0) * (1 + mp.mpf("1e-12"))
        # At the minimum t^2 rho + log(1+t) = log(1/delta); solved at 40 digits, it is not undercut.
        low, high = mp.mpf(-60), mp.mpf(300)
        for _ in range(150):
            t = (low + high) / 2
            short = mp.exp(2 * t) * mp.mpf(rho) + mp.log1p(mp.exp(t)) + mp.log(mp.mpf(delta)) < 0
            low, high = (t, high) if short else (low, t)
        truth = max(cks_epsilon(rho, delta, 1 + mp.exp(t)), mp.mpf(0))
        assert mp.mpf(value) >= truth
        assert mp.mpf(value) <= truth * (1 + mp.mpf("1e-11")) + mp.mpf("1e-14")
    if value > 0:
        back = zcdp_delta(rho, value)
        assert back == pytest.approx(delta, rel=1e-9 * max(1.0, rho))
        assert zcdp_epsilon(zcdp_rho(value, delta), delta) <= value
        assert zcdp_rho(value, delta) == pytest.approx(rho, rel=1e-9)


def test_exact_gaussian_reading_is_never_worse_than_the_concentrated_one() -> None:
    for rho in (1e-4, 0.05, 2.0, 50.0):
        for delta in (1e-12, 1e-6, 0.01):
            exact = gaussian_epsilon(rho_mu(rho), delta)
            assert exact < zcdp_epsilon(rho, delta) or exact == 0.0
            assert zcdp_epsilon(rho, delta) < odds_epsilon(rho, delta)


def test_theorem_2_5_as_printed_is_caught_at_epsilon_32() -> None:
    def printed_mu(epsilon: float, delta: float) -> float:
        return epsilon / (1 + math.sqrt(2 * math.log(1 / delta)))

    mu = printed_mu(32.0, 1e-5)
    assert mu == pytest.approx(5.518644, abs=1e-6)
    assert gaussian_delta(32.0, mu) > 70 * 1e-5
    assert gaussian_delta(32.0, mu) == pytest.approx(7.3e-4, rel=0.01)
    assert mu > gaussian_mu(32.0, 1e-5)
    # Where its proof holds it is merely wasteful.
    assert printed_mu(1.0, 1e-5) == pytest.approx(0.172458, abs=1e-6)
    assert printed_mu(1.0, 1e-5) < gaussian_mu(1.0, 1e-5)
    # The claims of the paper's own experiment: thirty columns of range one.
    assert gaussian_delta(31.76, math.sqrt(30.0)) == pytest.approx(6.8e-4, rel=0.01)
    assert gaussian_delta(100.4, math.sqrt(30.0) * 100.0**0.25) > 0.99


def test_an_outside_accountant_agrees() -> None:
    accounting = pytest.importorskip("dp_accounting", reason="install discreet[check] to compare")
    for epsilon, delta in [(0.1, 1e-9), (1.0, 1e-6), (8.0, 1e-5), (32.0, 1e-3)]:
        sigma = accounting.get_sigma_gaussian(epsilon, delta, tol=1e-13)
        assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(sigma, rel=1e-9)
        back = accounting.get_epsilon_gaussian(1 / 0.7, delta, tol=1e-13)
        assert gaussian_epsilon(0.7, delta) == pytest.approx(back, rel=1e-9)


def test_an_outside_numerical_composition_agrees() -> None:
    accounting = pytest.importorskip("dp_accounting", reason="install discreet[check] to compare")
    from dp_accounting.pld import pld_privacy_accountant

    accountant = pld_privacy_accountant.PLDAccountant()
    accountant.compose(accounting.SelfComposedDpEvent(accounting.GaussianDpEvent(10.0), 100))
    assert gaussian_epsilon(1.0, 1e-6) == pytest.approx(accountant.get_epsilon(1e-6), abs=1e-6)
    assert gaussian_delta(2.0, 1.0) == pytest.approx(accountant.get_delta(2.0), rel=1e-6)


positive = st.floats(min_value=-12, max_value=6).map(lambda x: 10.0**x)
deltas = st.one_of(
    st.floats(min_value=-290, max_value=-0.5).map(lambda x: 10.0**x),
    st.floats(min_value=1e-12, max_value=0.49).map(lambda x: 1 - x),
)


@settings(max_examples=150, deadline=None)
@given(epsilon=st.one_of(st.just(0.0), positive.filter(lambda e: e < 1e4)), delta=deltas)
def test_calibrating_then_reading_meets_the_request(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(epsilon, mu) <= delta
    assert gaussian_delta(epsilon, mu * (1 + 1e-9)) > delta or delta > 1 - 1e-9
    # gaussian_epsilon(mu) may land on either side of epsilon by its own rounding, not more.
    assert gaussian_epsilon(mu, delta) <= epsilon + 1e-10 * (epsilon + mu)


@settings(max_examples=150, deadline=None)
@given(epsilon=positive.filter(lambda e: e < 1e4), mu=positive.filter(lambda m: m < 1e3))
def test_more_epsilon_or_less_mu_never_costs_delta(epsilon: float, mu: float) -> None:
    here = gaussian_delta(epsilon, mu)
    assert gaussian_delta(epsilon * 1.001, mu) <= here
    assert gaussian_delta(epsilon, mu * 0.999) <= here


@settings(max_examples=100, deadline=None)
@given(epsilon=positive.filter(lambda e: 1e-6 < e < 100), delta=deltas)
def test_concentrated_calibration_meets_the_request(epsilon: float, delta: float) -> None:
    assert zcdp_epsilon(zcdp_rho(epsilon, delta), delta) <= epsilon
    assert odds_epsilon(odds_rho(epsilon, delta), delta) <= epsilon


def test_a_pure_promise_read_at_a_smaller_epsilon_has_the_delta_of_randomized_response() -> None:
    for claimed in (1e-6, 0.5, 1.0, 3.0, 40.0, 800.0):
        for share in (0.0, 0.3, 0.999999):
            epsilon = claimed * share
            with mp.workdps(400):
                top = mp.exp(mp.mpf(claimed))
                truth = (top - mp.exp(mp.mpf(epsilon))) / (1 + top)
                value = mp.mpf(pure_delta(claimed, epsilon))
                assert truth <= value <= min(truth * (1 + mp.mpf("1e-14")), mp.mpf(1))
    assert pure_delta(1.0, 1.0) == 0.0
    assert pure_delta(1.0, 2.0) == 0.0
    assert pure_delta(1 + 1e-6, 1.0) == pytest.approx(7.3e-7, rel=0.01)


def test_reading_a_pure_event_through_its_rho_as_if_gaussian_is_caught() -> None:
    # The broken twin: mu = sqrt(2 rho) of a pure event claims a delta that is too small.
    for epsilon in (0.1, 0.5, 1.0):
        claimed = gaussian_delta(0.9 * epsilon, rho_mu(pure_rho(epsilon)))
        honest = pure_delta(epsilon, 0.0)
        assert gaussian_delta(0.0, rho_mu(pure_rho(epsilon))) < honest
        assert zcdp_delta(pure_rho(epsilon), 0.9 * epsilon) > claimed


def test_laplace_and_sd_round_up_by_less_than_one_unit() -> None:
    for sensitivity, other in [(1.0, 3.0), (0.1, 0.3), (7.0, 7.0), (1e-300, 1e300), (2.0, 1e-8)]:
        exact = Fraction(sensitivity) / Fraction(other)
        for function in (laplace_epsilon, laplace_scale, mu_for_sd):
            value = function(sensitivity, other)
            assert Fraction(value) >= exact
            assert Fraction(math.nextafter(value, 0.0)) < exact
        assert sd_for_mu(other, sensitivity) == laplace_scale(sensitivity, other)
    assert laplace_epsilon(1.0, 1.0) == 1.0


@settings(max_examples=200, deadline=None)
@given(epsilon=st.floats(min_value=1e-9, max_value=60), levels=st.integers(min_value=2, max_value=10**6))
def test_the_keep_probability_is_allowed_and_the_largest(epsilon: float, levels: int) -> None:
    keep = keep_probability(epsilon, levels)
    assert response_epsilon(keep, levels) <= epsilon
    with mp.workdps(60):
        truth = mp.exp(mp.mpf(epsilon)) / (mp.exp(mp.mpf(epsilon)) + levels - 1)
        assert mp.mpf(keep) <= truth
        assert 1 - mp.mpf(keep) <= (1 - truth) * (1 + mp.mpf("1e-13")) + mp.mpf(2) ** -50
        loss = abs(mp.log(mp.mpf(keep) * (levels - 1) / (1 - mp.mpf(keep))))
        assert mp.mpf(response_epsilon(keep, levels)) >= loss


def test_a_blind_response_costs_nothing_and_keeping_too_rarely_costs_too() -> None:
    assert response_epsilon(0.5, 2) == 0.0
    assert response_epsilon(0.25, 4) == 0.0
    assert response_epsilon(0.1, 2) == pytest.approx(math.log(9), rel=1e-14)


def test_group_factors_are_exact_and_rounded_up() -> None:
    assert group_epsilon(0.1, 3) == math.nextafter(0.3, 1)  # three times the float 0.1 exceeds 0.3
    assert Fraction(group_epsilon(0.1, 3)) >= 3 * Fraction(0.1)
    assert group_mu(0.25, 4) == 1.0
    assert group_rho(0.125, 4) == 2.0
    assert gaussian_rho(0.5) == 0.125
    assert pure_rho(0.5) == 0.125
    assert rho_mu(0.125) == 0.5
    assert group_delta(1.0, 1e-6, 1) == 1e-6
    assert group_delta(0.0, 1e-6, 5) >= 5e-6
    for epsilon, rows in [(1e-9, 7), (0.3, 4), (2.0, 100)]:
        with mp.workdps(60):
            truth = mp.mpf("1e-30") * sum(mp.exp(i * mp.mpf(epsilon)) for i in range(rows))
            value = mp.mpf(group_delta(epsilon, 1e-30, rows))
        exact = truth * (mp.mpf(1e-30) / mp.mpf("1e-30"))
        assert min(exact, 1) <= value <= min(exact * (1 + mp.mpf("1e-12")), mp.mpf(1))
    assert group_delta(10.0, 1e-6, 1000) == 1.0
    # Gaussian noise keeps more than the general rule for groups lets on.
    mu = gaussian_mu(1.0, 1e-6)
    assert gaussian_delta(group_epsilon(1.0, 3), group_mu(mu, 3)) < group_delta(1.0, 1e-6, 3)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("gaussian_delta", {"epsilon": -1.0, "mu": 1.0}, "epsilon"),
    ("gaussian_delta", {"epsilon": math.nan, "mu": 1.0}, "epsilon"),
    ("gaussian_delta", {"epsilon": math.inf, "mu": 1.0}, "epsilon"),
    ("gaussian_delta", {"epsilon": True, "mu": 1.0}, "epsilon"),
    ("gaussian_delta", {"epsilon": 1.0, "mu": 0.0}, "mu"),
    ("gaussian_log_delta", {"epsilon": 1.0, "mu": -1.0}, "mu"),
    ("gaussian_mu", {"epsilon": 1.0, "delta": 0.0}, "delta"),
    ("gaussian_mu", {"epsilon": 1.0, "delta": 1.0}, "delta"),
    ("gaussian_mu", {"epsilon": "1", "delta": 0.1}, "epsilon"),
    ("gaussian_epsilon", {"mu": math.inf, "delta": 0.1}, "mu"),
    ("gaussian_epsilon", {"mu": 1e300, "delta": 0.1}, "mu"),
    ("gaussian_epsilon", {"mu": 1.0, "delta": -0.1}, "delta"),
    ("zcdp_epsilon", {"rho": 0.0, "delta": 0.1}, "rho"),
    ("zcdp_delta", {"rho": 1.0, "epsilon": -0.1}, "epsilon"),
    ("zcdp_rho", {"epsilon": 0.0, "delta": 0.1}, "epsilon"),
    ("odds_rho", {"epsilon": 0.0, "delta": 0.1}, "epsilon"),
    ("laplace_scale", {"sensitivity": 1.0, "epsilon": 0.0}, "epsilon"),
    ("laplace_epsilon", {"sensitivity": 0.0, "scale": 1.0}, "sensitivity"),
    ("pure_delta", {"claimed": -1.0, "epsilon": 0.0}, "claimed"),
    ("pure_rho", {"epsilon": None}, "epsilon"),
    ("keep_probability", {"epsilon": 0.0, "levels": 2}, "epsilon"),
    ("keep_probability", {"epsilon": 1.0, "levels": 1}, "levels"),
    ("response_epsilon", {"keep": 1.0, "levels": 2}, "keep"),
    ("response_epsilon", {"keep": 0.5, "levels": 2.0}, "levels"),
    ("group_epsilon", {"epsilon": 1.0, "rows": 0}, "rows"),
    ("group_delta", {"epsilon": 1.0, "delta": 2.0, "rows": 1}, "delta"),
    ("group_mu", {"mu": 1.0, "rows": True}, "rows"),
    ("rho_mu", {"rho": -1.0}, "rho"),
    ("sd_for_mu", {"mu": 1.0, "sensitivity": math.nan}, "sensitivity"),
    ("mu_for_sd", {"sensitivity": 1.0, "sd": 0.0}, "sd"),
]


@pytest.mark.parametrize(("function", "arguments", "parameter"), BAD)
def test_an_argument_outside_its_domain_is_named(
    function: str, arguments: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(ParameterError, match=f"^The parameter {parameter} of {function} must be "):
        getattr(calibration, function)(**arguments)


def test_huge_and_tiny_arguments_neither_crash_nor_undercut() -> None:
    assert gaussian_delta(0.0, 1e308) == 1.0
    assert gaussian_delta(1e308, 1e-308) == 5e-324
    assert gaussian_delta(0.0, 1e-300) >= 1e-300 / math.sqrt(2 * math.pi)
    assert gaussian_delta(1e308, 1.0) == 5e-324
    assert zcdp_delta(1e6, 1.0) == 1.0
    assert zcdp_delta(1e-9, 1.0) > 0.0
