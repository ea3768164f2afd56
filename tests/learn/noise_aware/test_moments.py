"""Every corrected moment is right on average, and wrong twins of the correction are not."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from discreet.learn.noise_aware import _blocks
from discreet.learn.noise_aware._blocks import ResponseLevels
from discreet.learn.noise_aware._coordinates import Coordinates
from discreet.learn.noise_aware._moments import (
    CHUNK_ROWS,
    CorrectedMoments,
    eigenvalue_spread,
    fold_pattern,
    sum_moments,
)
from discreet.learn.noise_aware.estimators import critical_value
from discreet.learn.noise_aware.rows import ClassLabel, NumberLabel
from discreet.noise import Stream
from discreet.noise_law import (
    Clear,
    ColumnLaw,
    CorrelatedGaussianLaw,
    GaussianLaw,
    JointResponseLaw,
    LaplaceLaw,
    NoiseLaw,
)
from discreet.privacy import gaussian_mu
from tests.learn.noise_aware.simulated import coarse, keep, respond

N, DRAWS = 800, 200
ROWS = Stream.from_seed(1).generator()
A = ROWS.integers(0, 3, N)
B = (A + ROWS.integers(0, 2, N)) % 4
D = (ROWS.random(N) < 0.2 + 0.3 * A).astype(np.int64)
X = np.clip(0.3 * A + 0.4 * ROWS.random(N), 0, 1)
Y = (ROWS.random(N) < 0.1 + 0.3 * A).astype(np.int64)


def true_moments(phi: Any, label: Any) -> dict[str, Any]:
    centered, labels = phi - phi.mean(axis=0), label - label.mean(axis=0)
    return {
        "mean": phi.mean(axis=0),
        "covariance": centered.T @ centered / len(phi),
        "cross": labels.T @ centered / len(phi),
        "level": label.mean(axis=0),
        "label_variance": (labels**2).mean(axis=0),
    }


def largest_error(draws: list[CorrectedMoments], truth: dict[str, Any], known: Any = None) -> float:
    """Return how many standard errors the mean of the draws is off, at worst."""
    worst = 0.0
    for name, exact in truth.items():
        values = np.array([getattr(moments, name) for moments in draws])
        if name == "covariance" and known is not None:
            values, exact = values[:, known], exact[known]
        error = values.std(axis=0, ddof=1) / math.sqrt(len(draws))
        off = np.abs(values.mean(axis=0) - exact)
        worst = max(worst, float((off / np.maximum(error, 1e-12)).max()))
    return worst


def one_hot(codes: Any, levels: int) -> Any:
    return (codes[:, None] == np.arange(levels)).astype(float)


def moments_of(
    law: NoiseLaw, columns: dict[str, Any], label: Any, labels: Any, truth: Any
) -> CorrectedMoments:
    """Return moments around the true means: around estimated ones they are biased by one part in N."""
    coordinates, center = Coordinates(law), (truth["mean"], truth["level"])
    sums = sum_moments([(columns, labels)], coordinates, label, 10).total
    made = CorrectedMoments.from_sums(sums, coordinates, label, center)
    return dataclasses.replace(made, mean=CorrectedMoments.from_sums(sums, coordinates, label).mean)


def listed(m: int, label_epsilon: float | None, seed: int) -> CorrectedMoments:
    Z, y, law = coarse(
        np.column_stack([A, B, D]), [3, 4, 2], epsilon=2.0 * m, m=m, stream=Stream.from_seed(seed), classes=2,
        labels=Y, label_epsilon=label_epsilon,
    )  # fmt: skip
    label = ClassLabel(ResponseLevels(2, 1.0 if label_epsilon is None else keep(label_epsilon, 2)))
    return moments_of(law, {f"c{j}": Z[:, j] for j in range(3)}, label, y, LISTED)


LISTED = true_moments(np.column_stack([one_hot(A, 3), one_hot(B, 4), one_hot(D, 2)]), one_hot(Y, 2))


@pytest.mark.parametrize(("m", "label_epsilon"), [(3, None), (2, 1.5), (1, 1.5)])
def test_moments_of_lists_are_right_on_average(m: int, label_epsilon: float | None) -> None:
    draws = [listed(m, label_epsilon, seed) for seed in range(DRAWS)]
    known = np.zeros((9, 9), bool)
    for place in (slice(0, 3), slice(3, 7), slice(7, 9)):
        known[place, place] = True
    assert largest_error(draws, LISTED, known if m == 1 else None) < 4


def test_products_of_sampled_columns_without_their_factor_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinates, "pair_factor", property(lambda self: np.ones((self.size, self.size))))
    assert largest_error([listed(2, None, seed) for seed in range(DRAWS)], LISTED) > 10


def test_raw_products_inside_a_list_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def raw(self: Any, sums: Any, means: Any) -> Any:
        levels = slice(self.raw.start, self.raw.start + self.levels)
        carry = (np.eye(self.levels) - self.answers.other) / self.answers.gap
        return carry @ sums[levels, levels] @ carry.T

    monkeypatch.setattr(_blocks.Block, "second_moments", raw)
    assert largest_error([listed(3, None, seed) for seed in range(DRAWS)], LISTED) > 10


def numbers(
    seed: int, *, variance: float = 0.5, label_variance: float = 0.1, said: float | None = None
) -> CorrectedMoments:
    """Two noised numbers, one of them missing in some rows, and a noised target."""
    generator = Stream.from_seed(seed).generator()
    missing = D == 1
    flags = respond(missing.astype(np.int64), 2, 1.5, Stream.from_seed(10_000 + seed)) == 1
    noised = X + math.sqrt(variance) * generator.standard_normal(N)
    second = np.where(missing, 0.5, 0.8 * X) + generator.laplace(0, 0.3, N)
    target = 0.7 * X + math.sqrt(label_variance) * generator.standard_normal(N)
    law = NoiseLaw(
        columns=(
            ColumnLaw(name="x", lower=0, upper=1, law=GaussianLaw(variance=said or variance)),
            ColumnLaw(
                name="z",
                lower=0,
                upper=1,
                missing=True,
                law=LaplaceLaw(variance=0.18, missing_keep=keep(1.5, 2)),
            ),
        )
    )
    columns = {"x": noised, "z": np.where(flags, np.nan, second)}
    return moments_of(law, columns, NumberLabel(0.0, 1.0, 0.0, label_variance), target, NUMBERS)


NUMBERS = true_moments(
    np.column_stack([X - 0.5, np.where(D == 1, 0.0, 0.8 * X - 0.5), D == 0]).astype(float), 0.7 * X[:, None]
)


def test_moments_of_numbers_and_of_missing_ones_are_right_on_average() -> None:
    assert largest_error([numbers(seed) for seed in range(DRAWS)], NUMBERS) < 4


def test_a_variance_that_is_not_the_noise_s_is_caught() -> None:
    assert largest_error([numbers(seed, said=0.45) for seed in range(DRAWS)], NUMBERS) > 10


SHARED = np.array([[0.5, 0.3, -0.1], [0.3, 0.4, 0.05], [-0.1, 0.05, 0.1]])


def correlated(seed: int, said: Any = SHARED) -> CorrectedMoments:
    """Two numbers, the second missing in some rows, and a target, all with noise that goes together."""
    noise = Stream.from_seed(seed).generator().multivariate_normal(np.zeros(3), SHARED, N)
    flags = respond(D, 2, 1.5, Stream.from_seed(20_000 + seed)) == 1
    names = ("x", "z", "t")
    columns = tuple(
        ColumnLaw(
            name=name,
            lower=0,
            upper=1,
            missing=name == "z",
            role="target" if name == "t" else "sensitive",
            law=CorrelatedGaussianLaw(
                variance=said[j, j],
                columns=names,
                covariances=said[j],
                missing_keep=keep(1.5, 2) if name == "z" else None,
            ),
        )
        for j, name in enumerate(names)
    )
    second = np.where(D == 1, 0.5, 0.8 * X) + noise[:, 1]
    rows = {"x": X + noise[:, 0], "z": np.where(flags, np.nan, second)}
    label = NumberLabel(0.0, 1.0, 0.0, float(said[2, 2]), columns[2])
    return moments_of(NoiseLaw(columns=columns), rows, label, 0.7 * X + noise[:, 2], NUMBERS)


def test_noise_that_goes_together_is_taken_out_of_products_too() -> None:
    assert largest_error([correlated(seed) for seed in range(DRAWS)], NUMBERS) < 4


def test_taking_correlated_noise_for_independent_is_caught() -> None:
    apart = np.diag(np.diagonal(SHARED))
    assert largest_error([correlated(seed, apart) for seed in range(DRAWS)], NUMBERS) > 10


PAIRED = true_moments(one_hot(A, 3), one_hot(Y, 2))


def paired(seed: int) -> CorrectedMoments:
    pair = respond((A * 2 + Y), 6, 1.0, Stream.from_seed(seed))
    law = JointResponseLaw(columns=("a", "y"), levels=6, keep=keep(1.0, 6))
    columns = (
        ColumnLaw(name="a", type="category", levels=(0, 1, 2), law=law),
        ColumnLaw(name="y", type="category", levels=(0, 1), role="target", law=law),
    )
    label = ClassLabel(ResponseLevels.from_law(columns[1], 2))
    return moments_of(NoiseLaw(columns=columns), {"a": pair // 2}, label, pair % 2, PAIRED)


def test_a_list_randomized_together_with_the_label_is_right_on_average() -> None:
    assert largest_error([paired(seed) for seed in range(DRAWS)], PAIRED) < 4


def test_taking_noise_on_a_pair_for_independent_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinates, "joint_block", None)
    assert largest_error([paired(seed) for seed in range(DRAWS)], PAIRED) > 10


def test_reference_numbers_of_the_specification() -> None:
    for epsilon, mu in ((1, 0.268), (2, 0.502), (4, 0.925), (8, 1.666), (16, 2.905), (32, 4.880)):
        assert round(gaussian_mu(epsilon, 1e-5), 3) == mu
    assert eigenvalue_spread(14, 32561) == pytest.approx(0.041901, abs=5e-7)
    for levels, p, q in ((2, 0.731059, 0.268941), (8, 0.279708, 0.102899)):
        answers = ResponseLevels(levels, keep(1.0, levels))
        assert (round(answers.keep, 6), round(answers.other, 6)) == (p, q)
    assert round(float(stats.chi2.isf(0.001, 14)), 2) == 36.12
    assert critical_value(14, 10**8) == pytest.approx(36.12, abs=0.01)


def test_folds_are_balanced_and_do_not_follow_a_period() -> None:
    folds = fold_pattern(10)
    assert np.bincount(folds).tolist() == [819] * 10
    for period in (2, 3, 5, 10):
        table = np.zeros((10, period))
        np.add.at(table, (folds, np.arange(8190) % period), 1)
        assert stats.chi2_contingency(table).pvalue > 1e-4


def test_sums_do_not_depend_on_how_rows_are_batched() -> None:
    law = NoiseLaw(columns=(ColumnLaw(name="x", lower=0, upper=1, law=Clear()),))
    label = ClassLabel(ResponseLevels(2, 1.0))
    n = 2 * CHUNK_ROWS + 777
    x, y = np.linspace(0, 1, n), np.arange(n) % 2
    whole = sum_moments([({"x": x}, y)], Coordinates(law), label, 7)
    cuts = [0, 5, 4000, 4001, CHUNK_ROWS, CHUNK_ROWS + 9000, n]
    parts = [({"x": x[a:b]}, y[a:b]) for a, b in itertools.pairwise(cuts)]
    again = sum_moments(parts, Coordinates(law), label, 7)
    assert whole.n_rows == again.n_rows == n
    np.testing.assert_allclose(whole.folds, again.folds, rtol=1e-12)
