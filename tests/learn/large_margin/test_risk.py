"""What privacy costs, as printed and as it is true."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from discreet.errors import ParameterError
from discreet.learn.large_margin._bounds import ClasswiseNoise
from discreet.learn.large_margin._problem import MarginProblem
from discreet.learn.large_margin._training import minimize
from discreet.learn.large_margin.risk import (
    empirical_excess,
    noise_norm,
    printed_empirical_excess,
    printed_norm,
    printed_true_excess,
    true_excess,
)
from discreet.learn.perturbation.noise import GaussianVectorNoise, SphericalNoise, VectorNoise
from discreet.noise import Stream
from tests.learn.large_margin.tables import codes, unit_rows

NOISES: list[VectorNoise] = [
    SphericalNoise.with_rate(0.4, 12),
    GaussianVectorNoise(dimension=12, sd=3.0),
    ClasswiseNoise.with_rate(0.4, 6, 3),
]


def test_theorem_2_has_its_printed_value_and_is_vacuous() -> None:
    assert printed_empirical_excess(4, 3, 1.0, 1.0, 0.05) == pytest.approx(2.9e5, rel=0.02)


def test_theorem_3_is_theorem_2_and_two_more_terms() -> None:
    whole = printed_true_excess(4, 3, 1.0, 1.0, 100, 0.05)
    trace = 4 * 2 * 25 * 3 * math.log(80)
    assert whole - printed_empirical_excess(4, 3, 1.0, 1.0, 0.05) == pytest.approx(
        trace + 0.16 * (32 + math.log(20))
    )


def test_lemma_4_as_printed_is_false_for_one_feature_and_loose_for_many() -> None:
    # The norm of the printed noise is Gamma((d + 1)^2, 2 / epsilon).
    exceeded = special.gammaincc(4, printed_norm(1, 1.0, 0.5) / 2)
    assert exceeded == pytest.approx(0.698, abs=5e-4)
    assert exceeded > 0.5
    assert special.gammaincc(4, printed_norm(1, 1.0, 0.3) / 2) < 0.31
    symmetric = 26 * 27 // 2
    # At d = 25 and a failure of .05: as printed, its law's own quantile, and that of symmetric matrices.
    assert printed_norm(25, 2.0, 0.05) == pytest.approx(4201, abs=1)
    assert special.gammainccinv(26**2, 0.05) == pytest.approx(719, abs=1)
    assert special.gammainccinv(symmetric, 0.05) == pytest.approx(382, abs=1)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: type(noise).__name__)
def test_norms_stay_below_their_quantile_as_often_as_is_said(noise: VectorNoise) -> None:
    stream = Stream.from_seed(1)
    norms = np.array([np.linalg.norm(noise.draw(stream)) for _ in range(2000)])
    for failure in (0.5, 0.05):
        exceeded = int((norms > noise_norm(noise, failure)).sum())
        assert stats.binomtest(exceeded, 2000, failure, alternative="greater").pvalue > 1e-9
        if not isinstance(noise, ClasswiseNoise):
            assert stats.binomtest(exceeded, 2000, failure).pvalue > 1e-9
    with pytest.raises(ParameterError, match="failure of noise_norm"):
        noise_norm(noise, 0.0)


@pytest.mark.parametrize("seed", range(5))
def test_the_objective_exceeds_its_minimum_by_no_more_than_theorem_2_corrected(seed: int) -> None:
    of = MarginProblem(
        unit_rows(40, 2, seed), codes(40, 3, seed), n_classes=3, regularization=4.0, smoothing=0.5
    )
    least, _ = of.value_and_gradient(minimize(of, 1e-8))
    noise = SphericalNoise.with_rate(0.4, of.size)
    tilt = noise.draw(Stream.from_seed(seed))
    tilt *= noise_norm(noise, 0.05) / np.linalg.norm(tilt)
    of.linear_term = tilt
    at = minimize(of, 1e-8)
    of.linear_term = np.zeros(of.size)
    excess = of.value_and_gradient(at)[0] - least
    bound = empirical_excess(noise, 4.0, 0.05)
    assert 0.2 * bound < excess <= bound


def test_theorem_2_corrected_is_attained_where_nothing_else_pulls() -> None:
    of = MarginProblem(np.zeros((1, 2)), np.array([0]), n_classes=2, regularization=4.0, smoothing=0.5)
    noise = SphericalNoise.with_rate(0.4, 3)
    of.linear_term = np.array([noise_norm(noise, 0.05), 0.0, 0.0])
    at = minimize(of, 1e-10)
    assert np.linalg.norm(at) == pytest.approx(noise_norm(noise, 0.05) / 4.0)
    excess = 4.0 / 2 * float(at @ at)
    assert excess == pytest.approx(empirical_excess(noise, 4.0, 0.05))


def test_theorem_3_corrected_falls_with_rows_and_rises_with_classes() -> None:
    def bound(n_rows: int, n_classes: int) -> float:
        return true_excess(NOISES[0], 0.05 * n_rows, 0.05, n_rows=n_rows, n_classes=n_classes, smoothing=1.0)

    assert bound(10**6, 2) > bound(10**7, 2) > 0
    assert bound(10**6, 3) > bound(10**6, 2)
    assert bound(10**8, 2) < 1.0
    rounder = true_excess(NOISES[0], 50.0, 0.05, n_rows=1000, n_classes=2, smoothing=3.0)
    assert rounder > bound(1000, 2)


def test_no_bound_is_below_the_excess_of_new_rows() -> None:
    # A made-up population of which a table is a sample; the population itself stands for new rows.
    population, labels = unit_rows(4000, 2, 1), codes(4000, 2, 1)
    sample = MarginProblem(population[:500], labels[:500], n_classes=2, regularization=25.0, smoothing=1.0)
    plain = minimize(sample, 1e-7)
    noise = SphericalNoise.with_rate(0.1, sample.size)
    sample.linear_term = noise.draw(Stream.from_seed(2))
    noisy = minimize(sample, 1e-7)
    everybody = MarginProblem(population, labels, n_classes=2, regularization=1.0, smoothing=1.0)
    means = [everybody.loss_and_slope(everybody.spread(w))[0] / 4000 for w in (plain, noisy)]
    assert means[1] - means[0] <= true_excess(noise, 25.0, 0.05, n_rows=500, n_classes=2, smoothing=1.0)
