"""Trees that attacks learn with: what they must find, and what they must not make up."""

from typing import Any

import numpy as np

from discreet.audit._learned_guess import (
    GuessFeatures,
    bin_features,
    boost_classes,
    boost_residuals,
    learned_levels,
)

N = 3_000
KNOWN, UNKNOWN = np.arange(N // 2), np.arange(N // 2, N)


def _generator(seed: int) -> Any:
    return np.random.default_rng(seed)  # noqa: TID251 - made-up rows, drawn alike in every run


def _features(columns: int = 6) -> Any:
    return _generator(3).normal(size=(N, columns))


def test_trees_find_a_product_of_two_features_that_no_line_finds() -> None:
    X = _features()
    truth = np.sign(X[:, 1]) * np.sign(X[:, 4])
    guess = boost_residuals(bin_features(X), truth[KNOWN], KNOWN, UNKNOWN)
    assert np.square(truth[UNKNOWN] - guess).mean() < 0.1


def test_trees_say_nothing_about_numbers_without_a_cause() -> None:
    X = _features()
    truth = _generator(4).normal(size=N)
    guess = boost_residuals(bin_features(X), truth[KNOWN], KNOWN, UNKNOWN)
    # What they make up costs less than one in a hundred of the variance.
    assert np.square(guess).mean() < 0.01


def test_classes_are_found_in_another_feature_than_the_published_one() -> None:
    X = _features()
    truth = np.searchsorted([-1.0, -0.3, 0.3, 1.0], X[:, 2])
    cells = _generator(5).integers(0, 5, N)
    guess = boost_classes(bin_features(X), cells, truth[KNOWN], KNOWN, UNKNOWN)
    assert (guess != truth[UNKNOWN]).mean() < 0.1


def test_the_commonest_class_beside_a_cell_is_guessed_without_other_features() -> None:
    generator = _generator(6)
    truth = generator.integers(0, 3, N)
    cells = np.where(generator.random(N) < 0.8, (truth + 1) % 3, generator.integers(0, 3, N))
    guess = boost_classes(bin_features(_features()), cells, truth[KNOWN], KNOWN, UNKNOWN)
    assert (guess == (cells[UNKNOWN] - 1) % 3).mean() > 0.95


def test_a_long_list_is_found_in_another_list_and_in_a_number() -> None:
    generator = _generator(7)
    truth = generator.integers(0, 200, N)
    noise = generator.normal(size=N)
    other = np.where(generator.random(N) < 0.5, (truth * 37) % 200, generator.integers(0, 200, N))
    for column, wrong in ((other, 0.65), (truth + 0.2 * noise, 0.1)):
        matrix = np.column_stack([generator.integers(0, 200, N), column]).astype(float)
        guess = learned_levels(
            GuessFeatures(matrix, np.array([0, 1])), 0, 200, truth.astype(float), KNOWN, UNKNOWN
        )
        assert (guess != truth[UNKNOWN]).mean() < wrong
