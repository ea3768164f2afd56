"""Delta of additive bounded noise, epsilon of the in-range mechanism, error floors of both."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import integrate

from discreet.audit import Density, Lattice, LawPair, density, shift_law
from discreet.errors import PromiseError
from discreet.noise import BoundedDensity, InRange
from discreet.noise.polynomial import monomial_coefficients
from discreet.privacy import ApproxDP, PureDP
from discreet.privacy.bounded import (
    BoundedNoise,
    additive_delta,
    additive_epsilon,
    ideal_in_range_epsilon,
    in_range_epsilon,
    in_range_floor,
    in_range_law,
    least_delta,
)
from discreet.privacy.calibration import gaussian_delta
from discreet.privacy.floors import (
    GaussianNoise,
    bayes_floor,
    cramer_rao_unbiased_only,
    least_noise,
    van_trees_floor,
)
from discreet.privacy.priors import IntegerPrior, UniformPrior


def cosine(half: float) -> BoundedDensity:
    return BoundedDensity(lower=-half, upper=half)


@pytest.mark.parametrize(
    ("half", "epsilon", "expected"),
    [(5, 1, 3.412e-2), (5, 5, 7.613e-3), (50, 1, 4.239e-5), (50, 5, 7.807e-6)],
)
def test_delta_of_cosine_noise_for_a_shift_of_one(half: float, epsilon: float, expected: float) -> None:
    assert additive_delta(cosine(half), epsilon, 1) == pytest.approx(expected, rel=2e-4)


def test_delta_of_a_confined_gaussian_is_a_little_above_the_gaussian() -> None:
    confined = BoundedDensity(lower=-24, upper=24, regularization=4.0**-4)
    assert additive_delta(confined, 1, 1) == pytest.approx(2.967e-6, rel=2e-4)
    free = BoundedDensity(lower=-math.inf, upper=math.inf, regularization=4.0**-4)
    exact = gaussian_delta(1, 0.25)
    assert exact < additive_delta(free, 1, 1) < exact + 1e-11


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 3.0])
@pytest.mark.parametrize(
    "noise",
    [cosine(4), BoundedDensity(lower=-1, upper=6, regularization=0.5)],
    ids=["cosine", "asymmetric"],
)
def test_delta_is_at_least_the_integral_and_hardly_more(noise: BoundedDensity, epsilon: float) -> None:
    low, high = noise.support

    def excess(n: float, d: float) -> float:
        p, q = noise.pdf(np.array([n, n - d])).tolist()
        return float(max(p - math.exp(epsilon) * q, 0.0))

    integrals = []
    for d in (1.3, -1.3):
        grid = np.linspace(low, high, 4001)
        p, q = noise.pdf(grid), noise.pdf(grid - d)
        turn = grid[np.flatnonzero(np.diff(np.sign(p - math.exp(epsilon) * q)))]
        ends = sorted(
            {low, high, low + abs(d), high - abs(d), *turn.tolist(), *(turn + grid[1] - grid[0]).tolist()}
        )
        integrals.append(
            sum(
                integrate.quad(excess, a, b, args=(d,), epsabs=1e-13, limit=200)[0]
                for a, b in itertools.pairwise(ends)
            )
        )
    found = additive_delta(noise, epsilon, 1.3)
    assert max(integrals) - 1e-11 <= found <= max(integrals) + 1e-9


def test_the_claimed_delta_survives_the_exact_audit_and_a_smaller_one_does_not() -> None:
    noise = cosine(5)
    law = Density(logpdf=noise.logpdf, lower=-5, upper=5, panels=64, accuracy=1e-12)
    delta = additive_delta(noise, 1.0, 1.0)
    for claimed, verdict in ((delta, "holds"), (0.999 * delta, "broken")):
        pair = LawPair(p=law, q=shift_law(law, 1.0), claim=ApproxDP(epsilon=1.0, delta=claimed))
        assert density(pair).verdict == verdict


def test_an_epsilon_alone_is_broken_for_every_epsilon() -> None:
    noise = cosine(50)
    law = Density(logpdf=noise.logpdf, lower=-50, upper=50, panels=64, accuracy=1e-12)
    pair = LawPair(p=law, q=shift_law(law, 1.0), claim=PureDP(epsilon=1e6))
    assert density(pair).verdict == "broken"


def test_delta_falls_with_epsilon_and_grows_with_the_shift() -> None:
    noise = BoundedDensity(lower=-3, upper=4, regularization=1)
    by_epsilon = [additive_delta(noise, e, 0.5) for e in (0, 0.5, 1, 2, 4)]
    assert by_epsilon == sorted(by_epsilon, reverse=True)
    by_shift = [additive_delta(noise, 1, d) for d in (0.1, 0.5, 2, 6.9)]
    assert by_shift == sorted(by_shift)


@pytest.mark.parametrize("shift", [10.0, 12.0])
def test_delta_is_one_when_the_support_is_not_wider_than_the_shift(shift: float) -> None:
    assert additive_delta(cosine(5), 3, shift) == 1
    assert least_delta(cosine(5), shift) == 1


def test_the_end_piece_is_a_lower_bound_at_any_epsilon() -> None:
    noise = cosine(50)
    assert least_delta(noise, 1) == pytest.approx(2 * math.pi**2 / 3 * 1e-6, rel=1e-3)
    assert additive_delta(noise, 12, 1) > least_delta(noise, 1)


def test_epsilon_of_delta_is_the_inverse_and_refuses_what_no_epsilon_has() -> None:
    noise = cosine(50)
    epsilon = additive_epsilon(noise, 1e-5, 1)
    assert additive_delta(noise, epsilon, 1) <= 1e-5
    assert additive_delta(noise, epsilon - 1e-6, 1) > 1e-5
    assert additive_epsilon(noise, 0.5, 1) == 0
    with pytest.raises(PromiseError, match=r"must be above 6\.5.*e-06"):
        additive_epsilon(noise, 1e-7, 1)


def test_the_distribution_function_is_accurate_to_what_delta_assumes() -> None:
    noise = BoundedDensity(lower=-math.inf, upper=math.inf, regularization=1)
    coefficients = monomial_coefficients(tuple(noise.state.pairs.tolist()))
    square = [0] * (2 * len(coefficients) - 1)
    for i, a in enumerate(coefficients):
        for j, b in enumerate(coefficients):
            square[i + j] += a * b

    def integral(t: Fraction) -> Fraction:
        return sum((Fraction(c, j + 1) * t ** (j + 1) for j, c in enumerate(square)), Fraction(0))

    total = integral(Fraction(1))
    low, high = noise.support
    for part in (3, 7, 8, 9, 11):
        exact = integral(Fraction(part, 16)) / total
        found = float(noise.cdf(np.array([low + (high - low) * part / 16]))[0])
        assert abs(found - float(exact)) < 5e-15


# The in-range mechanism.


@pytest.mark.parametrize(("kappa", "expected"), [(1, 0.0127), (1e2, 1.228), (1e3, 9.121), (1e4, 40.85)])
def test_epsilon_of_the_continuous_mechanism(kappa: float, expected: float) -> None:
    assert ideal_in_range_epsilon(kappa) == pytest.approx(expected, rel=5e-4, abs=5e-5)


@pytest.mark.parametrize("kappa", [1.0, 100.0, 1000.0])
def test_the_table_has_the_epsilon_of_the_density_less_what_cells_hide(kappa: float) -> None:
    law = InRange(lower=0, upper=1, regularization=kappa)
    ideal = ideal_in_range_epsilon(kappa)
    assert ideal * (1 - 1e-5) < in_range_epsilon(law) <= ideal * (1 + 1e-9)


@pytest.mark.parametrize("kappa", [3.0, 250.0, 1e4])
def test_epsilon_is_the_largest_ratio_over_all_inputs_and_outputs(kappa: float) -> None:
    law = InRange(lower=-1, upper=3, regularization=kappa / 256, inputs=7, cells=16)
    rows = law.masses.tolist()
    largest = max(Fraction(p[k], q[k]) for p, q in itertools.permutations(rows, 2) for k in range(law.cells))
    epsilon = in_range_epsilon(law)
    with mpmath.workdps(40):
        exact = mpmath.log(mpmath.mpf(largest.numerator) / largest.denominator)
        assert exact <= epsilon <= exact * (1 + mpmath.mpf("1e-12")) + mpmath.mpf("1e-14")


def test_the_claimed_epsilon_survives_the_exact_audit_and_a_smaller_one_does_not() -> None:
    law = InRange(lower=0, upper=1, regularization=100, inputs=5, cells=64)
    epsilon = in_range_epsilon(law)
    with np.errstate(divide="ignore"):
        logs = np.log(law.masses * 2.0**-63)

    def row(i: int) -> Lattice:
        return Lattice(logpmf=lambda k: logs[i][k.astype(int)], lower=0, upper=63)

    for claimed, verdict in ((epsilon, "holds"), (0.999 * epsilon, "broken")):
        pair = LawPair(p=row(0), q=row(4), claim=PureDP(epsilon=claimed))
        assert density(pair).verdict == verdict


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
def test_a_law_for_an_epsilon_keeps_it_and_wastes_little(epsilon: float) -> None:
    law = in_range_law(epsilon, 17, 90, inputs=74)
    assert (1 - 1e-4) * epsilon < in_range_epsilon(law) <= epsilon


def test_an_in_range_floor_is_the_bayes_error_over_the_table() -> None:
    law = InRange(lower=0, upper=3, regularization=2, inputs=4, cells=8)
    p = law.masses * 2.0**-63 / 4
    x = np.arange(4.0)
    guess = (x @ p) / p.sum(axis=0)
    exact = math.sqrt(float(np.sum(p * (x[:, None] - guess) ** 2)))
    found = in_range_floor(law, IntegerPrior(0, 3))
    assert exact * (1 - 1e-11) < found <= exact


def test_an_in_range_floor_for_an_interval_counts_what_quantizing_hides() -> None:
    coarse = in_range_floor(InRange(lower=0, upper=1, regularization=500, inputs=17), UniformPrior(0, 1))
    fine = in_range_floor(InRange(lower=0, upper=1, regularization=500, inputs=1025), UniformPrior(0, 1))
    assert coarse == pytest.approx(fine, rel=2e-3)
    assert fine < 1 / math.sqrt(12)


def test_an_in_range_floor_refuses_another_range() -> None:
    with pytest.raises(PromiseError, match="range of the law"):
        in_range_floor(InRange(lower=0, upper=1, regularization=1), UniformPrior(0, 2))


# Floors of additive noise.


def brute_force(noise: BoundedDensity, values: list[float], weights: list[float]) -> float:
    """Bayes error by plain sums over a dense grid of outputs."""
    x, w = np.array(values), np.array(weights)
    low, high = noise.support
    y = np.linspace(x[0] + low, x[-1] + high, 40_001)
    total = 0.0
    for part in np.array_split(y, 40):
        f = w * noise.pdf(part[:, None] - x)
        mass = f.sum(axis=1)
        mean = (f @ x) / np.where(mass > 0, mass, 1)
        total += float(np.sum(f * (x - mean[:, None]) ** 2))
    return math.sqrt(total * float(y[1] - y[0]) / float(w.sum()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "noise",
    [cosine(10), cosine(28.3), cosine(120), BoundedDensity(lower=-5, upper=30, regularization=1e-3)],
    ids=["10", "28.3", "120", "asymmetric"],
)
def test_floors_are_below_the_truth_by_less_than_a_millionth(noise: BoundedDensity) -> None:
    x, w = np.polynomial.legendre.leggauss(600)
    values, weights = 36.5 * (1 + x), 36.5 * w
    exact = brute_force(noise, [0.0, *values.tolist(), 73.0], [0.0, *weights.tolist(), 0.0])
    found = bayes_floor(BoundedNoise(noise), UniformPrior(17, 90))
    assert exact * (1 - 1e-6) < found < exact * (1 + 1e-8)
    exact = brute_force(noise, list(range(74)), [1.0] * 74)
    found = bayes_floor(BoundedNoise(noise), IntegerPrior(17, 90))
    assert exact * (1 - 1e-6) < found < exact * (1 + 1e-8)


def test_the_bayes_error_under_the_cosine_prior_is_what_van_trees_is_compared_with() -> None:
    """Ages 17 to 90, half-width 28.3: van Trees says 7.12, the exact error under its own prior is 8.08."""
    noise = cosine(28.3)
    x, w = np.polynomial.legendre.leggauss(600)
    weights = w * np.cos(math.pi * x / 2) ** 2
    exact = brute_force(noise, [0.0, *(36.5 * (1 + x)).tolist(), 73.0], [0.0, *weights.tolist(), 0.0])
    assert exact == pytest.approx(8.08, abs=5e-3)
    assert van_trees_floor(BoundedNoise(noise), UniformPrior(17, 90)) == pytest.approx(7.12, abs=5e-3)
    assert cramer_rao_unbiased_only(BoundedNoise(noise)) == pytest.approx(9.01, abs=5e-3)


@pytest.mark.parametrize(("half", "expected"), [(10, 3.07), (44.7, 9.0), (60, 9.93), (120, 11.12)])
def test_van_trees_of_cosine_noise(half: float, expected: float) -> None:
    found = van_trees_floor(BoundedNoise(cosine(half)), UniformPrior(17, 90))
    assert found == pytest.approx(expected, abs=5e-3)


def test_floors_of_the_gaussian_limit_meet_the_gaussian_ones_from_below() -> None:
    noise = BoundedNoise(BoundedDensity(lower=-math.inf, upper=math.inf, regularization=1e-4))
    for prior in (UniformPrior(17, 90), IntegerPrior(17, 90)):
        exact = bayes_floor(GaussianNoise(10.0), prior)
        assert exact * (1 - 2e-6) < bayes_floor(noise, prior) < exact


@pytest.mark.parametrize(
    ("half", "points", "expected"),
    [(0.5, 10, 0.0), (0.49, 2, 0.0), (1e6, 2, 0.5)],
)
def test_integer_floors_at_the_extremes(half: float, points: int, expected: float) -> None:
    found = bayes_floor(BoundedNoise(cosine(half)), IntegerPrior(0, points - 1))
    assert expected - 1e-6 <= found <= expected


def test_noise_far_wider_or_narrower_than_the_range_is_no_trouble() -> None:
    wide = bayes_floor(BoundedNoise(cosine(1e6)), UniformPrior(0, 1))
    assert 1 / math.sqrt(12) * (1 - 1e-6) < wide < 1 / math.sqrt(12)
    noise = cosine(1e-3)
    narrow = bayes_floor(BoundedNoise(noise), UniformPrior(0, 1))
    assert 0.999 * math.sqrt(noise.variance) < narrow < math.sqrt(noise.variance)
    many = BoundedNoise(cosine(1e4))
    assert bayes_floor(many, IntegerPrior(0, 200_000)) == pytest.approx(
        bayes_floor(many, UniformPrior(0, 200_000)), rel=1e-5
    )


def test_calibration_reaches_what_was_asked() -> None:
    prior = IntegerPrior(17, 90)
    noise = least_noise(lambda a: BoundedNoise(cosine(a)), prior, 9.0)
    assert bayes_floor(noise, prior) >= 9
    assert bayes_floor(BoundedNoise(cosine(noise.density.upper * (1 - 1e-6))), prior) < 9


def test_several_releases_are_refused_with_a_way_out() -> None:
    noise = BoundedNoise(cosine(10))
    assert noise.compose(1) is noise
    with pytest.raises(PromiseError, match="use Gaussian noise"):
        bayes_floor(noise, UniformPrior(17, 90), releases=2)
    assert van_trees_floor(noise, UniformPrior(17, 90), releases=2) < 3.07
