"""The least informative density on an interval, and its exact sampler."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from discreet.errors import ParameterError
from discreet.noise import BoundedDensity, Stream
from discreet.noise import polynomial as ground
from discreet.noise.bounded import ACCURACY, STEPS
from discreet.noise.polynomial import PolynomialTable, monomial_coefficients, polynomial_table
from tests.statistical import ALPHA
from tests.statistical.checks import chi_square, kolmogorov

PI2 = math.pi**2
# lower, upper, regularization, weight: eigenvalue, mean, variance, Fisher information (40-digit reference)
ROWS = [
    ((-1, 1, 1, 1), (2.5, 0, 0.1301009912564, 9.8698990087436)),
    ((-1, 1, 100, 1), (5.1530383369545, 0, 0.089337792882023, 11.678374059616)),
    ((0, 1, 1, 1), (9.9402028921913, 0.49945169899344, 0.032663353211569, 39.478696215926)),
    ((0, 2, 50, 1), (10.607142563474, 0.59997738495696, 0.064042551601332, 21.22779955084)),
    ((-1, 3, 4, 1), (1.4696019589259, 0.43627247001876, 0.32016179999033, 3.836425963357)),
    ((-2, 2, 1, 4), (1.0749224185634, 0, 0.40317574395119, 2.6869866984486)),
    ((-5, 5, 1, 1), (0.50001421102775, 0, 0.99968882697479, 1.0003680171362)),
    ((1, 2, 10, 1), (15.514886546706, 1.4836758291357, 0.032459990197963, 39.72200662523)),
    ((50, 60, 1, 1), (645.0754173894222, 50.53083717205, None, 26.879905477589)),
    ((-1, 1, 0, 1), (PI2 / 4, 0, 0.130690966048658, 9.869604401089358)),
    ((3, 5, 0, 7), (PI2 / 4, 4, 0.130690966048658, PI2)),
    # half-line: Maxwell; whole line: Gaussian
    ((0, math.inf, 1, 1), (1.5, 2 * math.sqrt(2 / math.pi), 3 - 8 / math.pi, 3)),
    ((-math.inf, math.inf, 1, 1), (0.5, 0, 1, 1)),
    ((-math.inf, math.inf, 1, 4), (1, 0, 0.5, 2)),
]


def make(lower: float, upper: float, regularization: float = 0.0, weight: float = 1.0) -> BoundedDensity:
    return BoundedDensity(lower=lower, upper=upper, regularization=regularization, weight=weight)


@pytest.mark.parametrize(("arguments", "expected"), ROWS)
def test_reference_values_hold_to_their_printed_digits(
    arguments: tuple[float, ...], expected: tuple[float | None, ...]
) -> None:
    law = make(*arguments)
    found = (law.eigenvalue, law.mean, law.variance, law.fisher_information)
    for value, wanted in zip(found, expected, strict=True):
        if wanted is not None:
            assert value == pytest.approx(wanted, rel=5e-13, abs=1e-12)
    assert law.objective == 4 * law.eigenvalue / law.weight


def test_the_far_one_sided_case_is_near_its_airy_limit_and_not_at_it() -> None:
    law = make(1000, 1e9, 1)
    assert law.eigenvalue == pytest.approx(250147.3031, abs=5e-5)
    assert abs(law.eigenvalue - 250147.2915) > 0.01


@pytest.mark.parametrize(("k", "expected"), [(2, 0.487114029628), (4, 0.987250144815), (6, 0.999997669797)])
def test_variance_of_a_gaussian_confined_to_k_deviations(k: int, expected: float) -> None:
    assert make(-k, k, 1).variance == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((-1, 1, 1), (-0.767110076631, -0.263870275396, 0, 0.263870275396, 0.767110076631)),
        ((0, 1, 1), (0.115787577442, 0.367067039406, 0.499358840947, 0.631753340378, 0.883737894180)),
        ((-1, 3, 4), (-0.673935650608, 0.024383296191, 0.402012959478, 0.809350430261, 1.865541657524)),
    ],
)
def test_quantiles_hold_to_their_printed_digits(
    arguments: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    law = make(*arguments)
    p = np.array([0.01, 0.25, 0.5, 0.75, 0.99])
    assert law.quantile(p) == pytest.approx(np.array(expected), abs=1e-12)
    assert law.cdf(law.quantile(p)) == pytest.approx(p, abs=1e-14)


supports = st.tuples(st.floats(-3, 2.5), st.floats(0.2, 5)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=25, deadline=None)
@given(supports, st.floats(0, 200), st.floats(0.1, 10))
def test_mass_is_one_and_fisher_information_agrees_with_the_eigenvalue(
    support: tuple[float, float], lam: float, v: float
) -> None:
    law = make(*support, lam, v)
    low, high = law.support
    x, w = np.polynomial.legendre.leggauss(400)
    n = 0.5 * (low + high) + 0.5 * (high - low) * x
    w = w * 0.5 * (high - low)
    assert w @ law.pdf(n) == pytest.approx(1, abs=1e-12)
    assert w @ (n * law.pdf(n)) == pytest.approx(law.mean, abs=1e-12 * max(1, abs(law.mean)))
    expected = 4 * (law.eigenvalue - lam * v / 4 * law.second_moment)
    assert law.fisher_information == pytest.approx(expected, abs=1e-12 * max(1.0, 4 * law.eigenvalue))
    assert law.fisher_information * law.variance >= 1 - 1e-12  # Cramér-Rao for the noise itself
    assert law.excess < 1e-20
    assert law.distance < 1e-11


@settings(max_examples=25, deadline=None)
@given(supports, st.floats(0, 100))
def test_mirrored_supports_have_mirrored_laws_digit_by_digit(
    support: tuple[float, float], lam: float
) -> None:
    law, mirror = make(*support, lam), make(-support[1], -support[0], lam)
    signs = (-1.0) ** np.arange(law.state.pairs.size)
    assert np.array_equal(law.state.pairs * signs, mirror.state.pairs)
    assert law.mean == pytest.approx(-mirror.mean, abs=1e-14 * (1 + abs(law.mean)))


@settings(max_examples=25, deadline=None)
@given(supports, st.floats(0, 100), st.sampled_from([0.125, 2.0, 1024.0]))
def test_a_scaled_problem_has_the_scaled_law(support: tuple[float, float], lam: float, k: float) -> None:
    law, scaled = make(*support, lam), make(k * support[0], k * support[1], lam / k**4)
    n = np.linspace(*law.support, 37)
    assert k * scaled.pdf(k * n) == pytest.approx(law.pdf(n), abs=1e-11 * float(law.pdf(n).max()))
    assert scaled.fisher_information == pytest.approx(law.fisher_information / k**2, rel=1e-11)


def test_no_other_density_does_better() -> None:
    law = make(-1, 2, 30)
    x, w = np.polynomial.legendre.leggauss(200)
    n, w = 0.5 + 1.5 * x, 1.5 * w
    u, h = law.root(n), 1e-6
    slope = (law.root(n + h) - law.root(n - h)) / (2 * h)
    for bump, bump_slope in ((n, np.ones_like(n)), (n**2, 2 * n), (np.sin(5 * n), 5 * np.cos(5 * n))):
        for size in (-0.1, 0.05):
            # u (1 + size bump) is another root density on the same support
            other, other_slope = u * (1 + size * bump), slope * (1 + size * bump) + u * size * bump_slope
            objective = w @ (4 * other_slope**2 + 30 * n**2 * other**2) / (w @ other**2)
            assert objective > law.objective * (1 + 1e-4)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"lower": 1, "upper": 1}, "lower"),
        ({"lower": 2, "upper": 1}, "lower"),
        ({"lower": 0, "upper": math.nan}, "upper"),
        ({"lower": "a", "upper": 1}, "lower"),
        ({"lower": 0, "upper": 1, "regularization": -1}, "regularization"),
        ({"lower": 0, "upper": 1, "regularization": math.inf}, "regularization"),
        ({"lower": 0, "upper": math.inf}, "regularization"),
        ({"lower": 0, "upper": 1, "weight": 0}, "weight"),
    ],
)
def test_wrong_parameters_are_named(arguments: dict[str, float], named: str) -> None:
    with pytest.raises(ParameterError, match=f"^{named} of BoundedDensity must be"):
        BoundedDensity(**arguments)


def test_a_frozen_value_compares_by_what_was_asked() -> None:
    assert make(-1, 1, 2) == make(-1.0, 1.0, 2.0)
    with pytest.raises(AttributeError):
        make(-1, 1).lower = 0  # type: ignore[misc]


# The sampler.

TABLES = {
    "cosine": make(-1, 1).table,
    "asymmetric": make(-1, 3, 4).table,
    "Gaussian": make(-math.inf, math.inf, 1).table,
}


def exact_root(table: PolynomialTable, tau: Fraction) -> Fraction:
    value = Fraction(0)
    for weight in reversed(table.weights):
        value = value * tau + weight
    return value


@pytest.mark.parametrize("name", TABLES)
def test_bucket_probability_times_acceptance_is_the_density_times_one_constant(name: str) -> None:
    """Which is why nothing is left to a total variation."""
    table = TABLES[name]
    ends = [0, *table.thresholds, 1 << 128]
    constants = {table.scales[h] * (ends[h + 1] - ends[h]) for h in range(1024)}
    assert len(constants) == 1


@pytest.mark.parametrize("name", TABLES)
def test_acceptance_probabilities_never_exceed_one(name: str) -> None:
    table = TABLES[name]
    for h in range(0, 1024, 31):
        for part in range(9):
            tau = 2 * h + Fraction(part, 4)
            assert table.scales[h] * exact_root(table, tau) ** 2 <= 1


def test_a_table_with_slightly_less_proposal_would_exceed_it() -> None:
    table = TABLES["cosine"]
    h = 300
    worst = max(table.scales[h] * exact_root(table, 2 * h + Fraction(part, 4)) ** 2 for part in range(9))
    assert worst > 1 - Fraction(1, 1 << 14)


@pytest.mark.parametrize("name", TABLES)
def test_acceptance_in_double_precision_is_within_its_margin(name: str) -> None:
    table = TABLES[name]
    offsets = Stream.from_seed(3).words(1024)
    found = table.acceptance(np.arange(1024), offsets)
    for h in range(1024):
        exact = table.scales[h] * exact_root(table, 2 * h + Fraction(int(offsets[h]), 1 << 63)) ** 2
        assert abs(Fraction(float(found[h])) - exact) <= Fraction(float(table.margin[h])) / 4


@pytest.mark.parametrize("name", TABLES)
def test_slots_that_accept_at_sight_lie_in_one_bucket_below_its_least_probability(name: str) -> None:
    table = TABLES[name]
    ends = [0, *table.thresholds, 1 << 128]
    checked = 0
    for slot in range(0, 1 << 16, 101):
        entry = int(table.slots[slot])
        least, h = entry & 0xFFFF, entry >> 16
        if least:
            checked += 1
            assert ends[h] <= slot << 112
            assert (slot + 1) << 112 <= ends[h + 1]
            for part in range(5):
                chance = table.scales[h] * exact_root(table, 2 * h + Fraction(part, 2)) ** 2
                assert Fraction(least, 1 << 16) <= chance
    assert checked > 500


@pytest.mark.parametrize("name", TABLES)
def test_exact_decisions_agree_with_rational_arithmetic(name: str) -> None:
    table = TABLES[name]
    words = Stream.from_seed(5).words(60).reshape(-1, 2)
    for k, (offset, number) in enumerate(words.tolist()):
        h = 17 + 33 * k
        chance = table.scales[h] * exact_root(table, 2 * h + Fraction(offset, 1 << 63)) ** 2
        accepted, _ = table.decide(h, offset, number << 16, Stream.from_seed(k))
        assert accepted == (Fraction(number, 1 << 64) < chance)


def test_close_decisions_draw_digits_until_they_are_clear() -> None:
    table = TABLES["cosine"]
    h, offset = 200, 1 << 62
    first, last = (
        table.scales[h] * exact_root(table, 2 * h + Fraction(offset + end, 1 << 63)) ** 2 for end in (0, 1)
    )
    number = int((first + last) / 2 * (1 << 80))  # what is known of the offset leaves it open
    verdicts = {table.decide(h, offset, number, Stream.from_seed(k))[0] for k in range(40)}
    assert verdicts == {True, False}
    assert all(table.decide(h, offset, number, Stream.from_seed(k))[1][1] > 0 for k in range(5))


def test_the_integers_of_the_polynomial_are_its_legendre_series() -> None:
    pairs = tuple(ground.solve_ground_state(0.5, 3.0).pairs.tolist())
    coefficients = monomial_coefficients(pairs)
    series = np.concatenate([pairs, [0.0, 0.0]])
    series[2:] -= np.array(pairs)
    for t in (Fraction(0), Fraction(1, 3), Fraction(7, 8), Fraction(1)):
        exact = sum(c * t**j for j, c in enumerate(coefficients)) / Fraction(1 << ground.DIGITS)
        wanted = np.polynomial.legendre.legval(float(2 * t - 1), series)
        assert float(exact) == pytest.approx(wanted, abs=1e-14)
        if t in (0, 1):
            assert exact == 0


@pytest.mark.parametrize(
    "arguments",
    [(-1, 1), (-1, 3, 4), (0, math.inf, 1), pytest.param((-math.inf, math.inf, 1), marks=pytest.mark.slow)],
    ids=str,
)
def test_draws_follow_the_distribution_function(arguments: tuple[float, ...]) -> None:
    law = make(*arguments)
    cells = law.integers(1_000_000, Stream.from_seed(11))
    assert cells.min() >= 0
    assert cells.max() < STEPS
    edges = law.quantile(np.linspace(0, 1, 201)[1:-1])
    where = np.searchsorted(edges, law.values(cells))
    assert chi_square(np.bincount(where, minlength=200), np.full(200, 1 / 200)) > ALPHA
    low, _ = law.support
    assert kolmogorov(cells, lambda k: law.cdf(low + (k + 1) * law.step)) > ALPHA
    # low-order digits of a cell are uniform
    assert chi_square(np.bincount(cells & 63, minlength=64), np.full(64, 1 / 64)) > ALPHA


def test_the_check_of_draws_rejects_a_twin_of_slightly_other_shape() -> None:
    cells = make(-1, 1).integers(1_000_000, Stream.from_seed(11))
    other = make(-1, 1, 20)
    assert kolmogorov(cells, lambda k: other.cdf(-1 + (k + 1) * other.step)) < ALPHA


def test_single_cells_have_their_exact_mass() -> None:
    """Small tables are compared cell by cell with the integral of the polynomial in rational arithmetic."""
    law = make(-1, 1)
    coefficients = monomial_coefficients(tuple(law.state.pairs.tolist()))
    square = [0] * (2 * len(coefficients) - 1)
    for i, a in enumerate(coefficients):
        for j, b in enumerate(coefficients):
            square[i + j] += a * b

    def integral(t: Fraction) -> Fraction:
        return sum((Fraction(c, j + 1) * t ** (j + 1) for j, c in enumerate(square)), Fraction(0))

    total = integral(Fraction(1))
    edges = [Fraction(k, 32) for k in range(33)]
    masses = np.diff([float(integral(t) / total) for t in edges])
    assert law.cdf(np.array([float(2 * t - 1) for t in edges])) == pytest.approx(
        np.concatenate([[0.0], np.cumsum(masses)]), abs=1e-14
    )
    cells = law.integers(1_000_000, Stream.from_seed(2)) >> 19
    assert chi_square(np.bincount(cells, minlength=32), masses) > ALPHA


@pytest.mark.parametrize("arguments", [(-1, 1), (-1, 3, 4), (-math.inf, math.inf, 1)], ids=str)
def test_values_of_the_density_are_as_accurate_as_stated(arguments: tuple[float, ...]) -> None:
    law = make(*arguments)
    table = law.table
    low, high = law.support
    words = Stream.from_seed(7).words(200)
    places = words >> np.uint64(54)
    t = np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64)
    found = law.root(low + (high - low) * t) * math.sqrt(high - low)
    mass = Fraction(0)
    pairs = [Fraction(a) for a in law.state.pairs.tolist()] + [Fraction(0)] * 2
    for k, a in enumerate(pairs):
        mass += (a - (pairs[k - 2] if k >= 2 else 0)) ** 2 / (2 * k + 1)
    unit = Fraction(1, (1 << ground.DIGITS) * 2048 ** (len(table.weights) - 1))
    largest = table.suprema()[0]
    for i, h in enumerate(places.tolist()):
        exact = float(exact_root(table, 2048 * Fraction(float(t[i]))) * unit) / math.sqrt(mass)
        # one rounding of the argument, which is a float, and what the table allows
        assert abs(exact - found[i]) <= ACCURACY * largest[h] + 1e-15 * float(table.suprema()[1].max())


@pytest.mark.parametrize("arguments", [(-1, 1), (-1, 3, 4), (-5, 5, 1)], ids=str)
def test_bounds_on_density_slope_and_curvature_hold_nearby_and_are_not_idle(
    arguments: tuple[float, ...],
) -> None:
    law = make(*arguments)
    low, high = law.support
    n = np.linspace(low, high, 2001)[1:-1]
    h = (high - low) * 1e-5
    density = law.pdf(n)
    slope = (law.pdf(n + h) - law.pdf(n - h)) / (2 * h)
    bend = (law.pdf(n + h) - 2 * density + law.pdf(n - h)) / h**2
    for values, bound in zip((density, np.abs(slope), np.abs(bend)), law.suprema(n), strict=True):
        # differences of rounded values are themselves uncertain, by a little
        assert np.all(values <= bound + 1e-5 * bound.max())
        assert values.max() > 0.9 * bound.max()
    assert all(np.all(bound == 0) for bound in law.suprema(np.array([low - 1.0, high + 1.0])))


def test_the_same_seed_draws_the_same_cells_whatever_the_shape() -> None:
    law = make(0, 1, 5)
    flat = law.integers(600, Stream.from_seed(4))
    assert np.array_equal(flat.reshape(20, 30), law.integers((20, 30), Stream.from_seed(4)))


def test_the_gaussian_limit_is_the_gaussian() -> None:
    law = make(-math.inf, math.inf, 1)
    n = np.linspace(-6, 6, 101)
    assert law.pdf(n) == pytest.approx(stats.norm.pdf(n), abs=1e-13)
    assert law.cdf(n) == pytest.approx(stats.norm.cdf(n), abs=1e-13)


def test_tables_of_one_shape_are_made_once() -> None:
    assert (
        make(-1, 1).table is make(-50, 50).table is polynomial_table(tuple(make(-2, 2).state.pairs.tolist()))
    )
