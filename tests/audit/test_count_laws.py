"""Laws of counts, beside those of scipy."""

import numpy as np
import pytest
from scipy import stats

from discreet.audit._row_risk import binomial_chance, binomial_tail, poisson_quantile


def test_binomial_chance_is_that_of_scipy() -> None:
    chance = np.array([0.0, 1e-12, 1e-3, 0.5, 0.999, 1.0])
    for n in (1, 999, 10**6):
        count = np.floor(n * chance)
        assert binomial_chance(count, n, chance) == pytest.approx(stats.binom.pmf(count, n, chance), rel=1e-8)


def test_poisson_quantile_is_that_of_scipy() -> None:
    share, mean = np.meshgrid(np.linspace(1e-9, 1 - 1e-9, 1001), [1e-6, 0.3, 1.0, 7.5, 24.0])
    assert np.array_equal(poisson_quantile(share, mean), stats.poisson.ppf(share, mean))


def test_binomial_tail_and_counts_outside_are_those_of_scipy() -> None:
    chance = np.array([0.0, 1e-12, 1e-3, 0.5, 0.999, 1.0])[:, None]
    for n in (1, 3, 40):
        counts = np.arange(n, dtype=np.float64)
        assert binomial_tail(counts, n, chance) == pytest.approx(stats.binom.sf(counts, n, chance), rel=1e-9)
    around = np.array([-3.0, -1.0, 0.0, 3.0, 4.0])
    assert binomial_chance(around, 3, chance) == pytest.approx(stats.binom.pmf(around, 3, chance), rel=1e-8)
