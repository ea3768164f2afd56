"""The refusal rule and the reference figures on public tables, which are not part of the repository."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from benchmarks.noise_aware_tables import FOLDER, TARGETS, loans, small
from scipy import stats

from discreet.errors import InsufficientInformation
from discreet.learn import NoiseAwareClassifier, NoiseAwareRidge
from discreet.noise import Stream
from discreet.privacy import gaussian_mu
from tests.learn.noise_aware.simulated import coarse, noised

pytestmark = pytest.mark.stats
METHODS = (
    ("coarse", 1.0, 1),
    ("coarse", 4.0, 2),
    ("coarse", 8.0, 2),
    ("gaussian", 8.0, 0),
    ("gaussian", 32.0, 0),
)
PERMUTED = 45
"""Permuted tables for each of twelve tables and five methods: 2,700."""


def table(name: str) -> tuple[Any, Any, list[int], Any]:
    read = small(name) if (FOLDER / f"{name}.parquet").exists() else None
    if read is None:
        pytest.skip(f"{name}.parquet is not in the folder that DISCREET_DATA names")
    return read


def fitted(
    rows: tuple[Any, Any, list[int], Any], train: Any, y: Any, how: tuple[str, float, int], seed: int
) -> Any:
    """Publish some rows with labels and fit a classifier."""
    numbers, codes, levels, labels = rows
    method, epsilon, m = how
    if method == "coarse":
        Z, y, law = coarse(
            codes[train],
            levels,
            epsilon=epsilon,
            m=m,
            stream=Stream.from_seed(seed),
            classes=int(labels.max()) + 1,
            labels=y,
        )
    else:
        scale = numbers.shape[1] ** 0.5 / gaussian_mu(epsilon, 1e-5)
        Z, law = noised(numbers[train], scale, Stream.from_seed(seed))
    return NoiseAwareClassifier(law, folds=5).fit(Z, y)


def test_permuted_labels_are_refused_999_times_in_1000() -> None:
    tried = passed = 0
    for name in TARGETS:
        rows = table(name)
        labels = rows[3]
        for how in METHODS:
            for seed in range(PERMUTED):
                generator = Stream.from_seed(7_000 + seed).generator()
                train = generator.permutation(len(labels))[: int(0.7 * len(labels))]
                tried += 1
                with contextlib.suppress(InsufficientInformation):
                    fitted(rows, train, generator.permutation(labels[train]), how, seed)
                    passed += 1
    assert tried == 2_700
    # So many pass once in a million runs if one table in a thousand does.
    assert passed <= stats.binom.isf(1e-6, tried, 0.001)


@pytest.mark.parametrize("name", TARGETS)
def test_an_accuracy_that_is_claimed_is_not_below_the_majority_s(name: str) -> None:
    rows = table(name)
    numbers, codes, _, labels = rows
    for how in METHODS:
        for seed in range(6):
            order = Stream.from_seed(100 + seed).generator().permutation(len(labels))
            train, test = np.split(order, [int(0.7 * len(labels))])
            try:
                model = fitted(rows, train, labels[train], how, seed)
            except InsufficientInformation:
                continue
            majority = float((labels[test] == np.bincount(labels[train]).argmax()).mean())
            error = (majority * (1 - majority) / len(test)) ** 0.5
            if model.status_ == "ok":
                true = codes[test] if how[0] == "coarse" else numbers[test]
                assert model.score(true, labels[test]) > majority - 2 * error


def test_interest_rates_at_a_local_epsilon_of_sixteen() -> None:
    if not (FOLDER / "lending_club_2007_2011.parquet").exists():
        pytest.skip("lending_club_2007_2011.parquet is not in the folder that DISCREET_DATA names")
    read = loans()
    assert read is not None
    X, y = read
    order = Stream.from_seed(2011).generator().permutation(len(y))
    train, test = order[8000:], order[:8000]
    scale = X.shape[1] ** 0.5 / gaussian_mu(16, 1e-5)
    Z, law = noised(np.column_stack([X[train], y[train]]), scale, Stream.from_seed(1), target=False)
    model = NoiseAwareRidge(law).fit(Z[:, :-1], Z[:, -1])
    assert 0.37 <= model.score(X[test], y[test]) <= 0.48
