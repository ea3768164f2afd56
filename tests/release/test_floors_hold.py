"""The best attack there is, on rows drawn from the floor's own prior: it meets the floor and stays above."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from discreet.noise import Stream, uniform_integers
from discreet.noise_law import GaussianLaw, LaplaceLaw
from discreet.privacy import ErrorFloor
from discreet.release import GaussianRelease, LaplaceRelease
from discreet.schema import Column, Schema

AGE = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
N = 200_000


def posterior_mean(published: np.ndarray, log_density: Any) -> np.ndarray:
    """Guess each age by Bayes' rule under the uniform prior, knowing the law of the noise."""
    ages = np.arange(17, 91)
    out = np.empty(len(published))
    for start in range(0, len(published), 20_000):
        part = published[start : start + 20_000, None]
        weight = np.exp(log_density(part - ages))
        out[start : start + 20_000] = (weight @ ages) / weight.sum(axis=1)
    return out


def log_density_of(law: Any) -> Any:
    if isinstance(law, GaussianLaw):
        return lambda d: -(d**2) / (2 * law.variance)
    assert isinstance(law, LaplaceLaw)
    return lambda d: -np.abs(d) / law.scale


@pytest.mark.parametrize("wanted", [0.2, 3.0, 9.0, 18.0])
@pytest.mark.parametrize("kind", [GaussianRelease, LaplaceRelease])
def test_the_posterior_mean_meets_the_floor_and_does_not_beat_it(kind: Any, wanted: float) -> None:
    true = 17.0 + uniform_integers(74, N, Stream.from_seed(1))
    release = kind(privacy=ErrorFloor(age=wanted), schema=AGE, random_state=2).release(true.reshape(-1, 1))
    (summary,) = release.summary
    errors = (posterior_mean(release.data[:, 0], log_density_of(summary.law)) - true) ** 2
    attained = math.sqrt(errors.mean())
    # six standard errors of the mean square, as an error of its root
    slack = 6 * float(errors.std()) / math.sqrt(N) / (2 * attained)
    assert summary.floor is not None
    assert wanted <= summary.floor.error
    assert attained > summary.floor.error - slack
    assert attained < summary.floor.error + slack


def test_a_release_with_half_the_noise_is_caught_by_the_same_attack() -> None:
    true = 17.0 + uniform_integers(74, N, Stream.from_seed(1))
    planned = GaussianRelease(privacy=ErrorFloor(age=9), schema=AGE).plan(AGE, N)
    law = planned.columns[0].law
    assert isinstance(law, GaussianLaw)
    twin = GaussianRelease(scale=law.sd / 2, schema=AGE, random_state=2).release(true.reshape(-1, 1))
    guess = posterior_mean(twin.data[:, 0], lambda d: -(d**2) / (2 * law.variance / 4))
    assert math.sqrt(float(np.mean((guess - true) ** 2))) < 6


def test_clamping_takes_nothing_from_the_floor() -> None:
    """Post-processing: the best guess from a clamped value is no better than from the value itself."""
    true = 17.0 + uniform_integers(74, N, Stream.from_seed(1))
    both = [
        GaussianRelease(privacy=ErrorFloor(age=9), schema=AGE, clamp=clamp, random_state=2)
        .release(true.reshape(-1, 1))
        .data[:, 0]
        for clamp in (False, True)
    ]
    assert both[1].min() == 17
    assert both[1].max() == 90
    plain, clamped = (float(np.mean((_binned_guess(z, true) - true) ** 2)) for z in both)
    assert clamped >= plain * 0.995


def _binned_guess(published: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Guess by the average true value of similar published ones: the best that a fine histogram can do."""
    bins = np.digitize(published, np.linspace(-30, 140, 400))
    sums, counts = np.bincount(bins, true, 401), np.bincount(bins, minlength=401)
    return np.asarray(sums[bins] / counts[bins])
