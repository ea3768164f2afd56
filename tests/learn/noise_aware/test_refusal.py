"""What chance does to the statistic, and that a release which shows nothing is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet.errors import InsufficientInformation
from discreet.learn import NoiseAwareClassifier, NoiseAwareRidge
from discreet.learn.noise_aware._blocks import ResponseLevels
from discreet.learn.noise_aware._coordinates import Coordinates
from discreet.learn.noise_aware._moments import CorrectedMoments, sum_moments
from discreet.learn.noise_aware.estimators import (
    FitEvidence,
    critical_value,
    invert_covariance,
    measure_evidence,
)
from discreet.learn.noise_aware.rows import ClassLabel
from discreet.noise import Stream
from discreet.noise_law import ColumnLaw, GaussianLaw, NoiseLaw
from tests.learn.noise_aware.simulated import coarse, keep, noised

N = 3000
GENERATOR = Stream.from_seed(3).generator()
CODES = np.column_stack([GENERATOR.integers(0, k, N) for k in (3, 4, 2, 5)])
SKEWED = np.minimum(CODES, GENERATOR.integers(0, 5, (N, 4)))
LABELS = (GENERATOR.random(N) < 0.25).astype(np.int64)


def evidence(
    seed: int, m: int, label_epsilon: float | None, classes: int = 2, labels: Any = LABELS
) -> FitEvidence:
    """Weigh rows whose labels were dealt out at random."""
    dealt = Stream.from_seed(1000 + seed).generator().permutation(labels)
    Z, y, law = coarse(
        SKEWED, [3, 4, 2, 5], epsilon=2.0, m=m, stream=Stream.from_seed(seed), classes=classes, labels=dealt,
        label_epsilon=label_epsilon,
    )  # fmt: skip
    label = ClassLabel(
        ResponseLevels(classes, 1.0 if label_epsilon is None else keep(label_epsilon, classes))
    )
    coordinates = Coordinates(law)
    sums = sum_moments([({f"c{j}": Z[:, j] for j in range(4)}, y)], coordinates, label, 5)
    return measure_evidence(CorrectedMoments.from_sums(sums.total, coordinates, label))


@pytest.mark.parametrize(
    ("m", "label_epsilon"), [(4, None), (2, 1.0), pytest.param(1, None, marks=pytest.mark.slow)]
)
def test_without_a_relation_the_statistic_is_chi_square(m: int, label_epsilon: float | None) -> None:
    found = [evidence(seed, m, label_epsilon) for seed in range(300)]
    (rank,) = {e.rank for e in found}
    assert rank == 2 + 3 + 1 + 4
    statistics = np.array([e.statistic for e in found])
    # The mean of 300 draws is within 4 standard errors, and their distribution is the one of the theorem.
    assert abs(statistics.mean() - rank) < 4 * np.sqrt(2 * rank / 300)
    assert stats.kstest(statistics, stats.chi2(rank).cdf).pvalue > 1e-6
    assert stats.kstest(statistics / 1.25, stats.chi2(rank).cdf).pvalue < 1e-6  # a test with power
    assert sum(e.status != "refused" for e in found) <= 3


SHORT = 150
RARE = np.where(GENERATOR.random((SHORT, 12)) < 0.2, GENERATOR.integers(1, 3, (SHORT, 12)), 0)


def short_evidence(seed: int, epsilon: float, *, seen: bool = True) -> FitEvidence:
    """Weigh a short table that shows each of twelve columns in a twelfth of its rows, some levels never."""
    dealt = Stream.from_seed(1000 + seed).generator().permutation(LABELS[:SHORT])
    Z, y, law = coarse(
        RARE, [3] * 12, epsilon=epsilon, m=1, stream=Stream.from_seed(seed), classes=2, labels=dealt
    )
    label, coordinates = ClassLabel(ResponseLevels(2, 1.0)), Coordinates(law)
    sums = sum_moments([({f"c{j}": Z[:, j] for j in range(12)}, y)], coordinates, label, 5)
    moments = CorrectedMoments.from_sums(sums.total, coordinates, label)
    return measure_evidence(
        moments if seen else dataclasses.replace(moments, seen=np.ones_like(moments.seen))
    )


@pytest.mark.parametrize("epsilon", [1.0, pytest.param(60.0, marks=pytest.mark.slow)])
def test_in_a_short_table_the_statistic_has_the_mean_of_its_null_too(epsilon: float) -> None:
    found = [short_evidence(seed, epsilon) for seed in range(300)]
    # Over the rank: with so little noise that levels vanish, tables have different ones.
    over = np.array([e.statistic / e.rank for e in found]) * (SHORT - 1) / SHORT
    assert abs(over.mean() - 1) < 4 * over.std(ddof=1) / 300**0.5
    assert sum(e.status != "refused" for e in found) <= 3


def test_counting_by_the_rows_that_show_a_column_is_caught() -> None:
    over = np.array([e.statistic / e.rank for e in (short_evidence(s, 1.0, seen=False) for s in range(100))])
    assert over.mean() - 1 > 4 * over.std(ddof=1) / 100**0.5


def test_directions_without_variance_count_neither_in_the_statistic_nor_in_its_rank() -> None:
    full = np.array([[2.0, 1.0], [1.0, 3.0]])
    observed = np.zeros((4, 4))
    observed[:2, :2] = full
    observed[2, 2] = 1e-16  # a level that has all but vanished
    inverse, rank = invert_covariance(observed)
    assert rank == 2
    np.testing.assert_allclose(inverse[:2, :2], np.linalg.inv(full))
    assert not inverse[2:].any()


@pytest.mark.stats
def test_labels_that_were_dealt_out_at_random_are_refused_999_times_in_1000() -> None:
    found = [evidence(seed, 2, None) for seed in range(4000)]
    passed = sum(e.status != "refused" for e in found)
    assert passed <= stats.binom.isf(1e-6, 4000, 0.001)


def test_several_classes_share_the_level_among_them() -> None:
    labels = GENERATOR.integers(0, 4, N)
    found = [evidence(seed, 2, None, 4, labels) for seed in range(100)]
    assert found[0].critical == critical_value(found[0].rank, N, 4) > critical_value(found[0].rank, N)
    assert all(e.status == "refused" for e in found)


def test_statuses_follow_the_statistic() -> None:
    assert [FitEvidence(s, 10, 29.6).status for s in (29.0, 40.0, 49.9, 50.0)] == [
        "refused", "ranking-only", "ranking-only", "ok",
    ]  # fmt: skip
    assert FitEvidence(40.0, 10, 29.6).reliability == 0.75
    assert FitEvidence(5.0, 10, 29.6).reliability == 0.0


def test_a_table_with_no_more_rows_than_directions_shows_nothing() -> None:
    assert critical_value(10, 11) == np.inf
    assert np.isfinite(critical_value(10, 13))


def weak(strength: float) -> tuple[Any, Any, NoiseLaw]:
    generator = Stream.from_seed(8).generator()
    x = generator.random((2000, 10))
    y = (generator.random(2000) < 0.3 + strength * (x[:, 0] - 0.5)).astype(int)
    Z, law = noised(x, 0.5, Stream.from_seed(9))
    return Z, y, law


def test_a_release_that_says_nothing_is_refused_in_words_and_numbers() -> None:
    Z, y, law = weak(0.0)
    with pytest.raises(
        InsufficientInformation, match="more rows, fewer columns or a larger epsilon"
    ) as caught:
        NoiseAwareClassifier(law).fit(Z, y)
    assert caught.value.statistic < caught.value.critical
    with pytest.raises(InsufficientInformation):
        NoiseAwareRidge(law).fit(Z, y.astype(float))


def test_whoever_insists_gets_the_majority_or_an_order_of_rows() -> None:
    Z, y, law = weak(0.0)
    prior = NoiseAwareClassifier(law, on_weak="majority").fit(Z, y)
    assert (prior.status_, prior.model_) == ("refused", "prior")
    assert set(prior.predict(Z)) == {0}
    np.testing.assert_allclose(prior.predict_proba(Z[:2])[:, 1], y.mean(), atol=1e-9)
    order = NoiseAwareClassifier(law, on_weak="rank").fit(Z, y)
    assert order.status_ == "refused"
    assert not hasattr(order, "predict_proba")
    mean = NoiseAwareRidge(law, on_weak="mean").fit(Z, y.astype(float))
    np.testing.assert_allclose(mean.predict(Z[:3]), y.mean())


def test_probabilities_are_there_only_where_the_rule_allows_them() -> None:
    firm = NoiseAwareClassifier(weak(0.6)[2]).fit(*weak(0.6)[:2])
    assert firm.status_ == "ok"
    rows = np.full((2, 10), 0.5)
    np.testing.assert_allclose(firm.predict_proba(rows).sum(axis=1), 1.0)
    faint = NoiseAwareClassifier(weak(0.35)[2]).fit(*weak(0.35)[:2])
    assert faint.status_ == "ranking-only"
    assert not hasattr(faint, "predict_proba")
    assert faint.decision_function(rows).shape == (2,)


def test_the_rule_reads_published_rows_alone() -> None:
    Z, y, law = weak(0.6)
    said = NoiseLaw(
        columns=tuple(
            ColumnLaw(name=c.name, lower=0.0, upper=1.0, law=GaussianLaw(variance=0.2)) for c in law.columns
        )
    )
    one, other = (NoiseAwareClassifier(each, on_weak="rank").fit(Z, y) for each in (law, said))
    np.testing.assert_allclose(one.T2_, other.T2_, rtol=1e-9)
