from __future__ import annotations

import math
import tracemalloc
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import ndtr

from discreet.errors import ParameterError, PromiseError
from discreet.privacy import _bayes, floors
from discreet.privacy.floors import (
    UNBIASED_ONLY,
    GaussianNoise,
    LaplaceNoise,
    bayes_floor,
    cramer_rao_unbiased_only,
    keep_for_wrong_guess,
    least_noise,
    van_trees_floor,
    wrong_guess_floor,
)
from discreet.privacy.priors import IntegerPrior, UniformPrior
from tests.effort import function_calls

UNIT_RANGE = UniformPrior(0, 1)
AGES, WHOLE_AGES = UniformPrior(17, 90), IntegerPrior(17, 90)


# --- the truth, computed another way -----------------------------------------------------------


def gaussian_interval_truth(width: float) -> Any:
    """Var(noise) - Var(E[noise | output]), in noise units, at thirty digits."""
    with mp.workdps(30):
        w = mp.mpf(width)

        def integrand(y: Any) -> Any:
            mass = mp.erfc(-y / mp.sqrt(2)) / 2 - mp.erfc(-(y - w) / mp.sqrt(2)) / 2
            return (mp.npdf(y) - mp.npdf(y - w)) ** 2 / mass

        # Half the line by symmetry, in pieces of at most two standard deviations.
        stops = [mp.mpf(-14 + k) for k in range(0, 14, 2)] + [mp.mpf(0)]
        while stops[-1] < min(w / 2, mp.mpf(14)):
            stops.append(min(stops[-1] + 2, w / 2))
        return 1 - 2 * mp.quad(integrand, stops) / w


def laplace_interval_truth(width: float) -> Any:
    with mp.workdps(30):
        w = mp.mpf(width)

        def integrand(t: Any) -> Any:
            mass = 1 - (mp.exp(-t) + mp.exp(t - w)) / 2
            first = ((1 + w - t) * mp.exp(t - w) - (1 + t) * mp.exp(-t)) / 2
            return first**2 / mass

        stops = [mp.mpf(0)]
        while stops[-1] < w / 2:
            stops.append(min(stops[-1] + 2, w / 2))
        # Beyond an end, at distance d, the noise is d plus a truncated exponential.
        tilted = 1 - w / mp.expm1(w)
        share = -mp.expm1(-w) / 2
        outside = share * ((1 + tilted) ** 2 + 1)
        return 2 - (2 * mp.quad(integrand, stops) + 2 * outside) / w


def integers_truth(points: int, density: Any, reach: float, cuts: int) -> Any:
    """Plain double sum: every integer, every cell cut into `cuts` Gauss-Legendre pieces."""
    x, w = np.polynomial.legendre.leggauss(24)
    pieces = np.arange(math.floor(-reach) * cuts, math.ceil(points - 1 + reach) * cuts) / cuts
    y = (pieces[:, None] + 0.5 * (x + 1) / cuts).ravel()
    weight = np.tile(0.5 * w / cuts, pieces.size)
    values = np.arange(points)
    f = density(y[:, None] - values)
    mass = f.sum(axis=1)
    mean = (f @ values) / mass
    spread = (f * (values - mean[:, None]) ** 2).sum(axis=1)
    return float(spread @ weight) / points


def gaussian_density(sd: float) -> Any:
    return lambda n: np.exp(-0.5 * (n / sd) ** 2) / (sd * math.sqrt(2 * math.pi))


def laplace_density(scale: float) -> Any:
    return lambda n: np.exp(-np.abs(n) / scale) / (2 * scale)


def between(value: float, truth: Any, relative: float) -> bool:
    return bool(mp.mpf(truth) * (1 - mp.mpf(relative)) <= mp.mpf(value) <= mp.mpf(truth))


# --- exactness ---------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1e-3, 0.1, 1.0, 5.0, 16.9, 17.5, 40.0])
def test_gaussian_floor_on_an_interval_is_below_the_truth_by_rounding_alone(width: float) -> None:
    truth = gaussian_interval_truth(width)
    # The truth is a difference: below width 0.1 its own thirty digits still leave twenty.
    assert between(_bayes.gaussian_interval(width), truth, 2e-12)


@pytest.mark.parametrize("width", [1e-3, 0.1, 1.0, 5.0, 30.0, 69.0, 71.0, 200.0])
def test_laplace_floor_on_an_interval_is_below_the_truth_by_rounding_alone(width: float) -> None:
    assert between(_bayes.laplace_interval(width), laplace_interval_truth(width), 2e-12)


@pytest.mark.parametrize("points", [2, 3, 74])
@pytest.mark.parametrize("sd", [0.1, 0.2, 0.5, 1.0, 5.0, 25.0, 60.0])
def test_gaussian_floor_on_integers_is_below_the_truth_by_rounding_alone(points: int, sd: float) -> None:
    truth = integers_truth(points, gaussian_density(sd), 9.5 * sd, max(1, math.ceil(0.5 / sd**2)))
    assert between(_bayes.gaussian_integers(points, sd), truth * (1 + 1e-12), 4e-12)


@pytest.mark.parametrize("points", [2, 3, 74])
@pytest.mark.parametrize("scale", [0.05, 0.2, 0.7, 1.0, 5.0, 25.0])
def test_laplace_floor_on_integers_is_below_the_truth_by_rounding_alone(points: int, scale: float) -> None:
    truth = integers_truth(points, laplace_density(scale), 40 * scale, max(1, math.ceil(2 / scale)))
    assert between(_bayes.laplace_integers(points, scale), truth * (1 + 1e-11), 2e-10)


@pytest.mark.parametrize("points", [2000, 5000])
@pytest.mark.parametrize("sd", [21.0, 90.0])
def test_the_gauss_rule_of_the_integers_agrees_with_summing_them_all(
    points: int, sd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fast = _bayes.gaussian_integers(points, sd)
    monkeypatch.setattr(_bayes, "_integer_rule", lambda n, _: (np.arange(float(n)), np.ones(n)))
    assert fast == pytest.approx(_bayes.gaussian_integers(points, sd), rel=1e-12)


def test_telling_the_residue_lowers_a_laplace_floor_by_less_than_a_millionth() -> None:
    whole = _bayes._ungrouped_laplace_integers(20_000, 1500.0)
    coarse_value = _bayes.laplace_integers(20_000, 1500.0)
    assert whole * (1 - 1e-6) < coarse_value < whole


@pytest.mark.parametrize("sd", [0.06, 0.3, 2.0, 30.0, 4000.0])
def test_a_million_integers_have_one_interior_period_and_two_ends(sd: float) -> None:
    # Each further integer adds the same interior amount: points * floor is affine in points.
    first, second, third = (n * _bayes.gaussian_integers(n, sd) for n in (100_000, 550_000, 10**6))
    assert second - first == pytest.approx(third - second, rel=1e-9)


def test_the_posterior_variance_over_integers_stays_under_the_lemma() -> None:
    # Lemma 3 gives the strip in which the trapezoid rule's error is bounded.
    for sd in (0.05, 0.2, 0.5, 1.0, 3.0):
        bound = -0.5 / math.expm1(-0.5 / sd**2)
        for points in (2, 3, 40):
            x = np.arange(points)
            for y in np.linspace(-3, points + 2, 2001):
                logs = -0.5 * ((y - x) / sd) ** 2
                p = np.exp(logs - logs.max())
                p /= p.sum()
                assert p @ x**2 - (p @ x) ** 2 <= bound + 1e-12


def test_the_trapezoid_bound_covers_a_grid_that_is_too_coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = [_bayes.gaussian_interval(w) for w in (0.5, 5.0, 50.0)]
    exact += [_bayes.gaussian_integers(n, sd) for n, sd in ((2, 0.3), (50, 0.3), (50, 4.0))]
    for steps in (0.8, 1.0, 1.5, 2.5, 4.0):
        monkeypatch.setattr(_bayes, "_STEPS", steps)
        coarse = [_bayes.gaussian_interval(w) for w in (0.5, 5.0, 50.0)]
        coarse += [_bayes.gaussian_integers(n, sd) for n, sd in ((2, 0.3), (50, 0.3), (50, 4.0))]
        assert all(c <= e * (1 + 2e-12) for c, e in zip(coarse, exact, strict=True))
        # Without the subtraction a coarse grid would overstate: the bound is doing something.
    monkeypatch.setattr(_bayes, "_trapezoid_error", lambda *_: 0.0)
    monkeypatch.setattr(_bayes, "_STEPS", 0.4)
    bare = [_bayes.gaussian_interval(w) for w in (0.5, 5.0, 50.0)]
    assert any(b > e * (1 + 1e-6) for b, e in zip(bare, exact, strict=False))


def test_reference_values() -> None:
    # Scipy's adaptive quadrature, independent of both rules.
    def by_quad(s: float) -> float:
        def information(y: float) -> float:
            score = math.exp(-0.5 * (y / s) ** 2) - math.exp(-0.5 * ((y - 1) / s) ** 2)
            return score**2 / (2 * math.pi * s * s) / float(ndtr(y / s) - ndtr((y - 1) / s))

        value = quad(information, -8 * s, 0.5, epsabs=0, epsrel=1e-12, limit=500, points=[0.0])[0]
        return math.sqrt(s * s - 2 * s**4 * value)

    for s in (0.05, 0.1, 0.2, 1.0):
        assert bayes_floor(GaussianNoise(s), UNIT_RANGE) == pytest.approx(by_quad(s), rel=1e-8)
    # Closed-form floors of the specification, as mean squares on a unit range.
    assert van_trees_floor(GaussianNoise(0.2), UNIT_RANGE) ** 2 == pytest.approx(0.015509, abs=5e-7)
    assert van_trees_floor(GaussianNoise(1.0), UNIT_RANGE) ** 2 == pytest.approx(0.024705, abs=5e-7)
    # Ages 17 to 90: what nine years need, and what no noise can give.
    assert least_noise(GaussianNoise, AGES, 9.0).sd == pytest.approx(10.4528, abs=5e-5)
    assert least_noise(GaussianNoise, WHOLE_AGES, 9.0).sd == pytest.approx(10.4240, abs=5e-5)
    assert AGES.largest == pytest.approx(73 / math.sqrt(12), rel=1e-15)
    assert WHOLE_AGES.largest == pytest.approx(math.sqrt((74**2 - 1) / 12), rel=1e-15)
    assert AGES.name == "uniform from 17 to 90"
    assert WHOLE_AGES.name == "uniform on the integers from 17 to 90"


def test_the_posterior_mean_attains_the_floor_in_a_deterministic_simulation() -> None:
    # A million outputs at stratified quantiles of value and noise: sanity, not proof.
    from scipy.special import ndtri

    side = 1000
    u = (np.arange(side) + 0.5) / side
    x, n = np.meshgrid(u, 0.2 * ndtri(u))
    y = x + n
    t = y / 0.2
    mass = ndtr(t) - ndtr(t - 5)
    score = (gaussian_density(1.0)(t) - gaussian_density(1.0)(t - 5)) / mass
    guess = y + 0.2 * score
    rms = float(np.sqrt(np.mean((guess - x) ** 2)))
    assert rms == pytest.approx(bayes_floor(GaussianNoise(0.2), UNIT_RANGE), rel=1e-3)


# --- calibration -------------------------------------------------------------------------------


@pytest.mark.parametrize("law", [GaussianNoise, LaplaceNoise])
@pytest.mark.parametrize("prior", [AGES, WHOLE_AGES, IntegerPrior(0, 1), IntegerPrior(0, 10**6)])
@pytest.mark.parametrize("share", [0.01, 0.4, 0.99])
def test_the_calibrated_noise_meets_the_request_and_hardly_more(law: Any, prior: Any, share: float) -> None:
    error = share * prior.largest
    noise = least_noise(law, prior, error)
    assert bayes_floor(noise, prior) >= error
    size = noise.sd if isinstance(noise, GaussianNoise) else noise.scale
    # A size has 24 bits, so it may be one step of them too large.
    assert bayes_floor(law(size * (1 - 2.0**-23 - 1e-9)), prior) < error


@settings(max_examples=60, deadline=None)
@given(
    share=st.floats(min_value=0.001, max_value=0.999),
    points=st.integers(min_value=2, max_value=10**5),
    laplace=st.booleans(),
)
def test_any_provable_request_on_integers_is_met(share: float, points: int, laplace: bool) -> None:
    prior = IntegerPrior(5, 4 + points)
    error = share * prior.largest
    if laplace:
        assert bayes_floor(least_noise(LaplaceNoise, prior, error), prior) >= error
    else:
        assert bayes_floor(least_noise(GaussianNoise, prior, error), prior) >= error


@settings(max_examples=60, deadline=None)
@given(sd=st.floats(min_value=0.05, max_value=500), laplace=st.booleans())
def test_more_noise_never_lowers_a_floor_and_no_floor_passes_what_the_prior_allows(
    sd: float, laplace: bool
) -> None:
    law: Any = LaplaceNoise if laplace else GaussianNoise
    for prior in (AGES, WHOLE_AGES):
        here, there = bayes_floor(law(sd), prior), bayes_floor(law(1.01 * sd), prior)
        assert here <= there * (1 + 1e-11)
        assert here <= prior.largest
        assert here <= sd * (math.sqrt(2) if laplace else 1)


@pytest.mark.parametrize("prior", [AGES, WHOLE_AGES])
def test_a_request_beyond_the_prior_is_refused_with_the_largest_number_and_a_way_out(prior: Any) -> None:
    for error in (prior.largest, 22.0, 1e9):
        with pytest.raises(PromiseError, match=r"column 'age' must be below 21\.\d+.*Ask for less"):
            least_noise(GaussianNoise, prior, error, column="age")
    # So close below it that no float of noise proves it.
    with pytest.raises(PromiseError, match="no noise can prove more"):
        least_noise(GaussianNoise, prior, prior.largest * (1 - 1e-14))


def test_the_sampler_and_the_lattice_lower_the_floor_as_stated() -> None:
    noise = GaussianNoise(10.0)
    ideal = bayes_floor(noise, AGES)
    lowered = bayes_floor(noise, AGES, total_variation=1e-6, lattice_step=0.5)
    assert lowered == pytest.approx(math.sqrt(ideal**2 - 73**2 * 1e-6) - 0.25, rel=1e-12)
    assert bayes_floor(noise, AGES, total_variation=1.0) == 0.0
    stronger = least_noise(GaussianNoise, AGES, 9.0, total_variation=1e-6, lattice_step=0.5)
    assert stronger.sd > least_noise(GaussianNoise, AGES, 9.0).sd
    assert bayes_floor(stronger, AGES, total_variation=1e-6, lattice_step=0.5) >= 9.0


def test_releases_of_the_same_value_add_precision() -> None:
    four = bayes_floor(GaussianNoise(20.0), WHOLE_AGES, releases=4)
    assert four == pytest.approx(bayes_floor(GaussianNoise(10.0), WHOLE_AGES), rel=1e-12)
    assert four <= bayes_floor(GaussianNoise(10.0), WHOLE_AGES) * (1 + 1e-15)
    with pytest.raises(PromiseError, match="releases of LaplaceNoise"):
        bayes_floor(LaplaceNoise(1.0), AGES, releases=2)
    assert van_trees_floor(LaplaceNoise(2.0), AGES, releases=4) == pytest.approx(
        van_trees_floor(LaplaceNoise(1.0), AGES), rel=1e-14
    )


def test_a_floor_of_a_million_integers_does_not_list_them() -> None:
    prior = IntegerPrior(0, 10**6 - 1)
    for noise in (GaussianNoise(0.06), GaussianNoise(3e5), LaplaceNoise(0.03), LaplaceNoise(9000.0)):
        bayes_floor(noise, prior)
        tracemalloc.start()
        try:
            calls = function_calls(lambda noise=noise: bayes_floor(noise, prior))  # type: ignore[misc]
            memory = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert calls < 1_000
        assert memory < 100_000


# --- categories --------------------------------------------------------------------------------


@settings(max_examples=200)
@given(levels=st.integers(min_value=2, max_value=1000), share=st.floats(min_value=1e-6, max_value=0.999999))
def test_the_keep_probability_meets_the_requested_chance_of_a_wrong_guess(levels: int, share: float) -> None:
    error = share * (1 - 1 / levels)
    keep = keep_for_wrong_guess(error, levels)
    assert wrong_guess_floor(keep, levels) >= error
    assert wrong_guess_floor(keep, levels) <= error * (1 + 1e-9) + 1e-15


def test_the_chance_of_a_wrong_guess_is_the_best_guessers() -> None:
    for levels in (2, 3, 7):
        for keep in (0.0, 0.1, 1 / levels, 0.6, 1.0):
            table = np.full((levels, levels), (1 - keep) / (levels - 1))
            np.fill_diagonal(table, keep)
            best = table.max(axis=0).sum() / levels  # guess the likeliest truth of each report
            assert wrong_guess_floor(keep, levels) == pytest.approx(1 - best, abs=1e-15)
            assert wrong_guess_floor(keep, levels) <= 1 - best + 1e-15
    assert wrong_guess_floor(0.6, 3, total_variation=0.1) == pytest.approx(0.3, abs=1e-15)
    with pytest.raises(PromiseError, match=r"column 'sex' must be below 0\.5"):
        keep_for_wrong_guess(0.5, 2, column="sex")


# --- wrong twins -------------------------------------------------------------------------------


def rounding_attack(sd: float, points: int) -> float:
    """Exact root-mean-square error of rounding the output to the nearest declared integer."""
    total = 0.0
    for value in range(points):
        for guess in range(points):
            low = -math.inf if guess == 0 else (guess - 0.5 - value) / sd
            high = math.inf if guess == points - 1 else (guess + 0.5 - value) / sd
            # Tails are differences on the side where they are small.
            mass = ndtr(high) - ndtr(low) if high <= 0 else ndtr(-low) - ndtr(-high)
            total += float(mass) * (guess - value) ** 2
    return math.sqrt(total / points)


@pytest.mark.parametrize("sd", [0.1, 0.16, 0.2, 0.25])
def test_a_continuous_floor_on_an_integer_column_is_beaten_by_rounding(sd: float) -> None:
    attained = rounding_attack(sd, 74)
    assert attained < 0.9 * van_trees_floor(GaussianNoise(sd), AGES)
    assert attained < 0.9 * bayes_floor(GaussianNoise(sd), AGES)
    assert bayes_floor(GaussianNoise(sd), WHOLE_AGES) <= attained


@pytest.mark.parametrize("sd", [0.06, 0.1, 0.25, 0.5, 1.0, 4.0])
def test_rounding_never_beats_the_integer_floor(sd: float) -> None:
    assert bayes_floor(GaussianNoise(sd), WHOLE_AGES) <= rounding_attack(sd, 74)


def test_noise_below_half_a_step_has_a_floor_of_about_nothing() -> None:
    assert bayes_floor(GaussianNoise(0.04), WHOLE_AGES) == 0.0
    assert bayes_floor(GaussianNoise(0.08), WHOLE_AGES) < 1e-4
    assert bayes_floor(GaussianNoise(0.08), AGES) > 0.079  # what the continuous formula would claim
    assert bayes_floor(LaplaceNoise(0.005), WHOLE_AGES) == 0.0


def test_van_trees_refuses_integers() -> None:
    with pytest.raises(PromiseError, match="rounding recovers integers"):
        van_trees_floor(GaussianNoise(10.0), WHOLE_AGES)


def test_cramer_rao_sold_as_a_floor_is_beaten_by_the_posterior_mean() -> None:
    # The Bayes error is what the posterior mean attains, so it must not fall below a true floor.
    for sd in (5.0, 10.0, 30.0):
        attained = bayes_floor(GaussianNoise(sd), AGES)
        assert cramer_rao_unbiased_only(GaussianNoise(sd)) == pytest.approx(sd, rel=1e-14)
        assert attained < 0.97 * cramer_rao_unbiased_only(GaussianNoise(sd))
    assert cramer_rao_unbiased_only(GaussianNoise(10.0), releases=4) == pytest.approx(5.0, rel=1e-14)
    assert UNBIASED_ONLY == "unbiased attackers only"


def test_van_trees_is_another_average_and_not_always_below_the_uniform_floor() -> None:
    # Above a twentieth of the range it is below; beneath that it is above: never quote it as if it
    # were about the uniform prior.
    for share in (0.06, 0.2, 1.0, 5.0):
        assert van_trees_floor(GaussianNoise(share), UNIT_RANGE) < bayes_floor(
            GaussianNoise(share), UNIT_RANGE
        )
    for share in (0.01, 0.04):
        assert van_trees_floor(GaussianNoise(share), UNIT_RANGE) > bayes_floor(
            GaussianNoise(share), UNIT_RANGE
        )


def test_van_trees_is_below_the_bayes_error_under_its_own_prior() -> None:
    # Cosine-squared prior on a unit range; reference mean squares .017920 and .031639.
    x, w = np.polynomial.legendre.leggauss(200)
    x, w = 0.5 * x, 0.5 * w * 2 * np.cos(math.pi * 0.5 * x) ** 2
    for sd, value in ((0.2, 0.017920), (1.0, 0.031639)):
        y, h = np.linspace(-0.5 - 10 * sd, 0.5 + 10 * sd, 4001, retstep=True)
        f = w * gaussian_density(sd)(y[:, None] - x)
        mean = (f @ x) / f.sum(axis=1)
        bayes = float(h) * float((f * (x - mean[:, None]) ** 2).sum())
        assert bayes == pytest.approx(value, abs=5e-7)
        assert van_trees_floor(GaussianNoise(sd), UNIT_RANGE) ** 2 < bayes


# --- arguments ---------------------------------------------------------------------------------


BAD: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("GaussianNoise", (0.0,), {}, "sd of GaussianNoise"),
    ("LaplaceNoise", (math.nan,), {}, "scale of LaplaceNoise"),
    ("UniformPrior", (1.0, 1.0), {}, "upper of UniformPrior"),
    ("UniformPrior", (0.0, math.inf), {}, "upper of UniformPrior"),
    ("IntegerPrior", (0.5, 2), {}, "lower of IntegerPrior"),
    ("IntegerPrior", (2, 2), {}, "upper of IntegerPrior"),
    ("bayes_floor", (GaussianNoise(1.0), AGES), {"releases": 0}, "releases of bayes_floor"),
    ("bayes_floor", (GaussianNoise(1.0), AGES), {"total_variation": -1}, "total_variation"),
    ("bayes_floor", (GaussianNoise(1.0), AGES), {"lattice_step": math.nan}, "lattice_step"),
    ("least_noise", (GaussianNoise, AGES, 0.0), {}, "error of least_noise"),
    ("wrong_guess_floor", (1.5, 2), {}, "keep of wrong_guess_floor"),
    ("keep_for_wrong_guess", (0.5, 1), {}, "levels of keep_for_wrong_guess"),
    ("keep_for_wrong_guess", (0.0, 2), {}, "error of keep_for_wrong_guess"),
    ("van_trees_floor", (GaussianNoise(1.0), AGES), {"releases": 0}, "releases"),
    ("cramer_rao_unbiased_only", (GaussianNoise(1.0),), {"releases": 1.5}, "releases"),
]


@pytest.mark.parametrize(("function", "arguments", "keywords", "named"), BAD)
def test_an_argument_outside_its_domain_is_named(
    function: str, arguments: tuple[Any, ...], keywords: dict[str, Any], named: str
) -> None:
    with pytest.raises(ParameterError, match=named):
        getattr(floors, function)(*arguments, **keywords)
