"""The exact audit: quadrature and sums against closed forms."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import special, stats

from discreet.audit import (
    Density,
    Lattice,
    LawPair,
    density,
    fisher_information,
    hockey_stick,
    largest_loss,
    pushforward,
    shift_law,
)
from discreet.errors import ParameterError
from discreet.privacy.calibration import gaussian_delta
from discreet.privacy.promises import ZCDP, ApproxDP, GaussianDP, Promise, PureDP

if TYPE_CHECKING:
    from discreet._types import Floats

NORMAL = Density(logpdf=stats.norm.logpdf, lower=-14, upper=14, tail=1e-43)
LAPLACE = Density(logpdf=stats.laplace.logpdf, lower=-45, upper=45, tail=1e-19, breaks=(0.0,))


def _rounded_gaussian(s: float) -> Lattice:
    def logpmf(x: Floats) -> Floats:
        # On the left the two logarithms keep their digits; the law is symmetric.
        high, low = (special.log_ndtr((-np.abs(x) + end) / s) for end in (0.5, -0.5))
        return np.asarray(high + np.log1p(-np.exp(low - high)))

    reach = math.ceil(13 * s)
    return Lattice(logpmf=logpmf, lower=-reach, upper=reach, tail=1e-37, accuracy=1e-11)


def _discrete_laplace(scale: float) -> Lattice:
    shift = math.log(math.tanh(0.5 / scale))
    reach = math.ceil(60 * scale)
    return Lattice(
        logpmf=lambda x: -np.abs(x) / scale + shift, lower=-reach, upper=reach, tail=1e-25, accuracy=1e-13
    )


@pytest.mark.parametrize("mu", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 6.0])
def test_the_gaussian_curve_is_met_to_ten_digits(mu: float, epsilon: float) -> None:
    for p, q in ((NORMAL, shift_law(NORMAL, mu)), (shift_law(NORMAL, mu), NORMAL)):
        found = hockey_stick(p, q, epsilon)
        exact = gaussian_delta(epsilon, mu)
        assert abs(found.value - exact) <= 1e-11
        assert abs(found.value - exact) <= found.error < 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 0.9, 1.0, 2.0])
def test_the_laplace_curve_is_met_to_ten_digits(epsilon: float) -> None:
    found = hockey_stick(LAPLACE, shift_law(LAPLACE, 1.0), epsilon)
    exact = max(0.0, -math.expm1((epsilon - 1) / 2))
    assert abs(found.value - exact) <= found.error < 1e-9


@pytest.mark.parametrize("s", [3.0, 10.0, 777.7])
def test_rounding_a_gaussian_can_only_help(s: float) -> None:
    noise = _rounded_gaussian(s)
    pair = noise, shift_law(noise, round(s))
    for epsilon in (0.0, 1.0, 3.0):
        found = hockey_stick(*pair, epsilon)
        ideal = gaussian_delta(epsilon, round(s) / s)
        assert found.value <= ideal + found.error
        # and the coarser the lattice, the more it helps; at 777.7 it hardly does
        assert found.value > ideal * (1 - 1 / s)


CLAIMS: list[tuple[Lattice | Density, float, Promise, Promise]] = [
    (NORMAL, 1.0, GaussianDP(mu=1.0), GaussianDP(mu=0.999)),
    (NORMAL, 1.0, ZCDP(rho=0.5), ZCDP(rho=0.3)),
    (NORMAL, 1.0, ApproxDP(epsilon=1.0, delta=0.12694), ApproxDP(epsilon=1.0, delta=0.12693)),
    (LAPLACE, 1.0, PureDP(epsilon=1.0), PureDP(epsilon=0.999999)),
    (_rounded_gaussian(777.7), 778, GaussianDP(mu=778 / 777.7), GaussianDP(mu=0.999)),
    (_discrete_laplace(30.0), 30, PureDP(epsilon=1.0 + 1e-12), PureDP(epsilon=0.999999)),
]


@pytest.mark.parametrize(("noise", "shift", "true", "false"), CLAIMS)
def test_true_claims_hold_and_slightly_better_ones_break(
    noise: Lattice | Density, shift: float, true: Promise, false: Promise
) -> None:
    other = shift_law(noise, shift)
    assert density(LawPair(p=noise, q=other, claim=true)).verdict == "holds"
    broken = density(LawPair(p=noise, q=other, claim=false))
    assert broken.verdict == "broken"
    assert broken.strain > 1
    assert broken.failure_probability == 0
    assert broken.n == 0


def test_both_directions_are_looked_at() -> None:
    """A law inside another's support: one direction loses a little, the other everything."""
    narrow = Lattice(logpmf=lambda x: np.where(np.abs(x) <= 1, -math.log(3), -np.inf), lower=-5, upper=5)
    wide = Lattice(logpmf=lambda x: np.where(np.abs(x) <= 2, -math.log(5), -np.inf), lower=-5, upper=5)
    assert largest_loss(narrow, wide).value == pytest.approx(math.log(5 / 3))
    assert largest_loss(wide, narrow).value == math.inf
    for p, q in ((narrow, wide), (wide, narrow)):
        result = density(LawPair(p=p, q=q, claim=PureDP(epsilon=1.0)))
        assert result.verdict == "broken"
        assert result.measured == math.inf
        assert density(LawPair(p=p, q=q, claim=ApproxDP(epsilon=0.6, delta=0.401))).verdict == "holds"
        assert density(LawPair(p=p, q=q, claim=ApproxDP(epsilon=0.6, delta=0.399))).verdict == "broken"


def test_the_epsilons_of_a_curve_can_be_chosen() -> None:
    pair = LawPair(p=NORMAL, q=shift_law(NORMAL, 1.0), claim=GaussianDP(mu=0.99))
    assert "epsilon 2" in density(pair, epsilons=(2.0,)).quantity


@pytest.mark.parametrize(
    ("law", "exact"),
    [
        (NORMAL, 1.0),
        (LAPLACE, 1.0),
        (Density(logpdf=stats.norm(scale=3).logpdf, lower=-42, upper=42, tail=1e-43), 1 / 9),
        (Density(logpdf=stats.logistic.logpdf, lower=-45, upper=45, tail=1e-18), 1 / 3),
        # cos^2 on [-1, 1]: the law of least Fisher information on an interval
        (
            Density(
                logpdf=lambda x: 2 * np.log(np.maximum(np.cos(np.pi * x / 2), 1e-300)), lower=-1, upper=1
            ),
            math.pi**2,
        ),
    ],
    ids=["normal", "laplace", "wider normal", "logistic", "cosine"],
)
def test_fisher_information_is_met_by_quadrature(law: Density, exact: float) -> None:
    found = fisher_information(law)
    assert found.value == pytest.approx(exact, rel=1e-8)
    assert abs(found.value - exact) <= found.error


def test_an_output_that_determines_its_noise_has_the_density_of_both() -> None:
    """theta = exp(b) with normal b is log-normal."""
    logpdf = pushforward(stats.norm.logpdf, np.log, lambda theta: 1 / theta)
    x = np.array([0.1, 1.0, 2.5])
    assert logpdf(x) == pytest.approx(stats.lognorm(1).logpdf(x))


def test_wrong_windows_and_mixed_kinds_are_refused() -> None:
    with pytest.raises(ParameterError, match="lower and upper of Density"):
        Density(logpdf=stats.norm.logpdf, lower=1, upper=0)
    with pytest.raises(ParameterError, match="lower and upper of Lattice"):
        Lattice(logpmf=lambda x: x, lower=0, upper=1, tail=2.0)
    with pytest.raises(ParameterError, match="p and q of LawPair"):
        LawPair(p=NORMAL, q=_discrete_laplace(3.0), claim=PureDP(epsilon=1.0))
    with pytest.raises(ParameterError, match="by of shift_law"):
        shift_law(_discrete_laplace(3.0), 0.5)


def test_a_density_that_does_not_integrate_to_one_shows_in_the_error() -> None:
    wrong = Density(logpdf=lambda x: stats.norm.logpdf(x) + 0.1, lower=-14, upper=14)
    assert hockey_stick(wrong, shift_law(wrong, 1.0), 0.0).error > 0.1
