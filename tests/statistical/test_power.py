"""The checks themselves: each must reject what is wrong, at the sample sizes it is used with.

The wrong samples are drawn with numpy's generators, so that a fault of our sampler cannot hide here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.noise import Stream
from tests.statistical import ALPHA, FALSE_ALARMS, SHORT, checks
from tests.statistical.laws import discrete_laplace_law, rounded_gaussian_law

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Ints

S = 4096.0
SAMPLES = [50_000, SHORT]


def _generator(seed: int) -> Any:
    return Stream.from_seed(seed).generator()


def _gaussian(n: int, scale: float = S, shift: float = 0.0, seed: int = 1) -> Ints:
    return np.asarray(np.rint(_generator(seed).standard_normal(n) * scale + shift), np.int64)


def _laplace(n: int, scale: float = S, seed: int = 1) -> Ints:
    plus, minus = _generator(seed).geometric(-np.expm1(-1 / scale), (2, n))
    return np.asarray(plus - minus)


def _cut(n: int) -> Ints:
    """A Gaussian without what lies beyond 3.5 standard deviations: 1 draw in 2,149."""
    draws = _gaussian(n + n // 100)
    return draws[np.abs(draws) < 3.5 * S][:n]


def _heavier(n: int) -> Ints:
    """One draw in 200 is three times as wide."""
    draws = _gaussian(n)
    draws[::200] *= 3
    return draws


def test_the_stated_rates_are_consistent() -> None:
    assert ALPHA == 1e-9
    assert FALSE_ALARMS <= 1.001e-6


@pytest.mark.slow
@pytest.mark.parametrize("n", SAMPLES)
def test_no_check_rejects_what_is_right(n: int) -> None:
    gaussian, laplace = rounded_gaussian_law(S), discrete_laplace_law(S)
    for seed in range(5):
        checks.assert_fits(checks.all_checks(_gaussian(n, seed=seed), gaussian))
        checks.assert_fits(checks.all_checks(_laplace(n, seed=seed), laplace))


# Each check with what it must reject at a million draws, and at fifty thousand where that is enough.
GAUSSIAN_FAULTS: list[tuple[str, str, Callable[[int], Ints], list[int]]] = [
    ("cells", "scale 5 % too small", lambda n: _gaussian(n, 0.95 * S), [SHORT]),
    ("cells", "scale 5 % too large", lambda n: _gaussian(n, 1.05 * S), [SHORT]),
    ("cells", "scale 10 % too small", lambda n: _gaussian(n, 0.9 * S), SAMPLES),
    ("cells", "scale 10 % too large", lambda n: _gaussian(n, 1.1 * S), SAMPLES),
    ("cells", "mean off by 5 % of the scale", lambda n: _gaussian(n, S, 0.05 * S), [SHORT]),
    ("tails", "scale 5 % too small", lambda n: _gaussian(n, 0.95 * S), [SHORT]),
    ("tails", "scale 10 % too large", lambda n: _gaussian(n, 1.1 * S), SAMPLES),
    ("tails", "cut at 3.5 deviations", _cut, [SHORT]),
    ("tails", "heavier by one in 200", _heavier, [SHORT]),
    ("kolmogorov", "scale 5 % too small", lambda n: _gaussian(n, 0.95 * S), [200_000, SHORT]),
    ("kolmogorov", "scale 5 % too large", lambda n: _gaussian(n, 1.05 * S), [200_000, SHORT]),
    ("kolmogorov", "scale 10 % too small", lambda n: _gaussian(n, 0.9 * S), SAMPLES),
    ("kolmogorov", "scale 10 % too large", lambda n: _gaussian(n, 1.1 * S), SAMPLES),
    ("kolmogorov", "mean off by 5 % of the scale", lambda n: _gaussian(n, S, 0.05 * S), [SHORT]),
    ("mean", "mean off by 1 % of the scale", lambda n: _gaussian(n, S, 0.01 * S), [SHORT]),
    ("mean", "mean off by 5 % of the scale", lambda n: _gaussian(n, S, 0.05 * S), SAMPLES),
    ("absolute mean", "scale 1 % too small", lambda n: _gaussian(n, 0.99 * S), [SHORT]),
    ("absolute mean", "scale 5 % too large", lambda n: _gaussian(n, 1.05 * S), SAMPLES),
    ("low bits", "even numbers only", lambda n: _gaussian(n, S / 2) * 2, SAMPLES),
    ("low bits", "lowest bit 1 % too often 0", lambda n: _gaussian(n) & ~(np.arange(n) % 50 == 0), [SHORT]),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("check", "fault", "draw", "sizes"),
    GAUSSIAN_FAULTS,
    ids=[f"{row[0]}-{row[1]}" for row in GAUSSIAN_FAULTS],
)
def test_each_check_rejects_its_faults(
    check: str, fault: str, draw: Callable[[int], Ints], sizes: list[int]
) -> None:
    for n in sizes:
        p = checks.all_checks(draw(n), rounded_gaussian_law(S))[check]
        assert p < ALPHA, (fault, n, p)


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_a_laplace_scale_five_percent_off_is_rejected_by_every_check_of_scale(factor: float) -> None:
    found = checks.all_checks(_laplace(SHORT, factor * S), discrete_laplace_law(S))
    assert all(found[name] < ALPHA for name in ("cells", "tails", "kolmogorov", "absolute mean"))


def test_the_wrong_family_with_the_right_deviation_is_rejected() -> None:
    found = checks.all_checks(_laplace(SHORT, S / np.sqrt(2)), rounded_gaussian_law(S))
    assert all(found[name] < ALPHA for name in ("cells", "tails", "kolmogorov"))


@pytest.mark.parametrize("s", [1.0, 10.0])
def test_small_lattices_have_the_same_power(s: float) -> None:
    for factor in (0.95, 1.05):
        found = checks.all_checks(_gaussian(SHORT, factor * s), rounded_gaussian_law(s))
        assert all(found[name] < ALPHA for name in ("cells", "tails", "kolmogorov", "absolute mean"))


def test_the_discrete_gaussian_is_not_taken_for_the_rounded_one() -> None:
    """At scale 1 they differ by 1.7 percent in total variation; a chi-square must see that."""
    x = np.arange(-40, 41)
    mass = np.exp(-(x**2) / 2.0)
    draws = _generator(1).choice(x, SHORT, p=mass / mass.sum())
    assert checks.cells(draws, rounded_gaussian_law(1.0)) < ALPHA


@pytest.mark.parametrize(("other", "rejected"), [(1.0, False), (0.8, True), (1.25, True)])
def test_ten_thousand_draws_against_a_million_tell_scales_apart(other: float, rejected: bool) -> None:
    p = checks.two_samples(_gaussian(SHORT, seed=2), _gaussian(10_000, other * S, seed=3))
    assert (p < ALPHA) is rejected


def test_laws_known_to_be_apart_are_given_that_much() -> None:
    x, y = _gaussian(50_000, seed=2), _gaussian(50_000, 1.2 * S, seed=3)
    assert checks.two_samples(x, y) < ALPHA
    assert checks.two_samples(x, y, apart=0.1) > ALPHA


def test_a_chi_square_of_one_cell_is_refused() -> None:
    with pytest.raises(AssertionError, match="draw more"):
        checks.chi_square(np.array([100, 100]), np.array([0.5, 0.5]))


def test_the_exact_laws_sum_to_one_and_meet_their_moments() -> None:
    for law in (rounded_gaussian_law(1.0), rounded_gaussian_law(10.0), discrete_laplace_law(30.0)):
        x = np.arange(-3000, 3001)
        mass = np.diff(law.cdf(x.astype(float)), prepend=0.0)
        assert mass.sum() == pytest.approx(1, abs=1e-13)
        assert (x**2 * mass).sum() == pytest.approx(law.deviation**2, rel=1e-9)
        assert (np.abs(x) * mass).sum() == pytest.approx(law.mean_absolute, rel=1e-9)
