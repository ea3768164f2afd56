"""Attacks that an invariant release does not withstand: they must succeed, so that its warnings stay true."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.learn import RegularizedSVM
from discreet.noise import Stream, standard_normal
from discreet.release.gaussian import informed_error
from discreet.release.invariant import InvariantRelease
from tests.release.invariant_tables import numbers_table, random_table, wdbc

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats

VARIANCE = 100.0


def released(X: Floats, y: AnyArray, *, outward: bool = False, seed: int = 1) -> Floats:
    method = InvariantRelease(variance=VARIANCE, outward=outward, bounds=(-5e3, 5e3), random_state=seed)
    return method.release(X, y).data


def recognized(X: Floats, y: AnyArray, published: Floats) -> float:
    """Share of people whose row somebody finds who knows them and trains the model on what was published."""
    a = RegularizedSVM().fit(published, y).coef_.reshape(-1)
    scores = published @ a
    found = [int(np.abs(scores - row @ a).argmin()) for row in X]
    return float(np.mean(np.array(found) == np.arange(len(X))))


def test_a_score_alone_tells_who_somebody_is() -> None:
    X, y = wdbc()
    published = released(X, y)
    a = RegularizedSVM().fit(published, y).coef_.reshape(-1)
    assert np.abs((published - X) @ a).max() < 1e-9
    # All but the twelve that tie on the margin, whatever the luck with those.
    assert recognized(X, y, published) >= 557 / 569
    # Rows that were moved outward cannot be recognized by their scores; support vectors still can.
    assert recognized(X, y, released(X, y, outward=True)) < 0.15
    # Noise that is free to move the scores hides everybody: this attack needs the equation.
    free = X + 10 * standard_normal(X.shape, Stream.from_seed(5))
    assert recognized(X, y, free) < 0.1


def test_the_model_shows_on_whom_it_leans_and_how_much() -> None:
    X, y = wdbc()
    before, after = RegularizedSVM().fit(X, y), RegularizedSVM().fit(released(X, y), y)
    assert np.array_equal(before.dual_coef_ != 0, after.dual_coef_ != 0)
    assert np.abs(before.dual_coef_ - after.dual_coef_).max() < 1e-8


def test_support_vectors_are_computed_from_the_other_rows() -> None:
    X, y = wdbc()
    model = RegularizedSVM().fit(released(X, y), y)
    a, c = model.coef_.reshape(-1), model.dual_coef_
    total = X.T @ c
    leaned_on = np.flatnonzero(c)
    assert len(leaned_on) == 60
    for i in leaned_on:
        others = total - c[i] * X[i]
        rebuilt = (a - others) / c[i]
        # Cells go up to 4254, so this is thirteen digits.
        assert np.abs(rebuilt - X[i]).max() < 4e-9


def test_knowing_how_the_columns_go_together_beats_the_bound_eightfold() -> None:
    X, y = wdbc()
    method = InvariantRelease(variance=VARIANCE, bounds=(-5e3, 5e3), random_state=1)
    published = method.release(X, y).data
    assert method.exposure_ is not None
    a = RegularizedSVM().fit(published, y).coef_.reshape(-1)
    noise = VARIANCE * (np.eye(30) - np.outer(a, a) / (a @ a))
    errors = []
    for label in (1, -1):
        rows = X[y == label]
        spread = np.cov(rows.T)
        shrink = np.linalg.solve(spread + noise, spread)
        guess = rows.mean(axis=0) + (published[y == label] - rows.mean(axis=0)) @ shrink
        errors.append(((guess - rows) ** 2).sum(axis=1))
        assert errors[-1].mean() == pytest.approx(informed_error(noise, spread), rel=0.1)
    attained = float(np.concatenate(errors).mean())
    assert attained < method.exposure_.smallest_bound / 8
    # An unbiased guess, the published row itself, does respect the bound.
    plain = ((published - X) ** 2).sum(axis=1).mean()
    assert plain == pytest.approx(method.exposure_.unbiased_bound.mean(), rel=0.03)


def test_a_column_on_which_the_model_rests_alone_is_published_as_it_is() -> None:
    # The other columns come with both signs, so their weights are zero and the score is the first column.
    z = standard_normal((60, 4), Stream.from_seed(3))
    X = np.vstack([z, np.column_stack([z[:, 0], -z[:, 1:]])])
    y = np.where(X[:, 0] + 0.5 * np.sin(40 * X[:, 0]) > 0, 1, -1)
    published = released(X, y)
    assert np.abs(published[:, 0] - X[:, 0]).max() < 1e-8
    assert (published[:, 1:] - X[:, 1:]).std() > 9


def test_repeated_releases_average_out() -> None:
    X, y = random_table()
    one = released(X, y)
    many = np.mean([released(X, y, seed=seed) for seed in range(25)], axis=0)
    share = ((many - X) ** 2).mean() / ((one - X) ** 2).mean()
    assert share == pytest.approx(1 / 25, rel=0.15)


def test_exact_sums_and_products_give_away_the_last_row() -> None:
    X, y = numbers_table()
    published = InvariantRelease(learner="gram", bounds=(-9, 9), random_state=1).release(X, y).data
    others = X[1:]
    assert np.abs(published.sum(axis=0) - others.sum(axis=0) - X[0]).max() < 1e-11
    # Without the sums, the products do, up to a sign.
    strength, directions = np.linalg.eigh(published.T @ published - others.T @ others)
    guess = directions[:, -1] * np.sqrt(strength[-1])
    assert min(np.abs(guess - X[0]).max(), np.abs(guess + X[0]).max()) < 1e-10
    assert np.abs(published[0] - X[0]).max() > 0.1
