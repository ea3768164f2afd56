"""Gaussian, Laplace, spherical, categorical draws: shapes, domains, replay, and what must not repeat."""

from __future__ import annotations

import math
import os
from fractions import Fraction

import numpy as np
import pytest
from scipy import special

from discreet.errors import ParameterError
from discreet.noise import (
    Pool,
    SphericalLaplace,
    Stream,
    discrete_laplace,
    permutation,
    randomized_response,
    response_threshold,
    rounded_gaussian,
    spherical_laplace,
    subsample,
    uniform_integers,
)

BAD_SCALES = [0, -1.0, math.nan, math.inf, 2.0**51, "wide", None]


@pytest.mark.parametrize("scale", BAD_SCALES)
def test_scales_outside_the_domain_are_refused_by_name(scale: float) -> None:
    with pytest.raises(ParameterError, match="s of rounded_gaussian must be a number above 0"):
        rounded_gaussian(scale, 1)
    with pytest.raises(ParameterError, match="scale of discrete_laplace must be"):
        discrete_laplace(scale, 1)
    with pytest.raises(ParameterError, match=r"s of Pool\.gaussian"):
        Pool().gaussian(scale)


def test_shapes_follow_size_and_zero_is_a_size() -> None:
    assert rounded_gaussian(5, (3, 4)).shape == (3, 4)
    assert discrete_laplace(5, ()).shape == ()
    assert rounded_gaussian(5, 0).shape == (0,)
    assert spherical_laplace(1.0, 4, 0).shape == (0, 4)


def test_draws_repeat_under_one_seed_and_only_then() -> None:
    def draws(stream: Stream | None) -> list[np.ndarray]:
        return [
            rounded_gaussian(1000, 50, stream),
            discrete_laplace(1000, 50, stream),
            spherical_laplace(1.0, 3, 5, stream),
            permutation(20, stream),
            uniform_integers(1000, 20, stream),
        ]

    seeded, again = draws(Stream.from_seed(1)), draws(Stream.from_seed(1))
    assert all(np.array_equal(a, b) for a, b in zip(seeded, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(draws(None), draws(None), strict=True))


def test_one_stream_never_gives_the_same_draws_twice() -> None:
    stream = Stream.from_seed(1)
    for sample in (
        lambda: rounded_gaussian(1e6, 10, stream),
        lambda: discrete_laplace(1e6, 10, stream),
        lambda: spherical_laplace(1.0, 5, 2, stream),
        lambda: permutation(30, stream),
    ):
        assert not np.array_equal(sample(), sample())


def test_spherical_draws_are_exact_multiples_of_a_power_of_two() -> None:
    law = SphericalLaplace(rate=3.7, dimension=5)
    assert math.frexp(law.step)[0] == 0.5
    multiples = spherical_laplace(3.7, 5, 1000, Stream.from_seed(1)) / law.step
    assert np.array_equal(multiples, np.rint(multiples))
    assert np.abs(multiples).max() < 2**53


@pytest.mark.parametrize(
    ("dimension", "radius", "eta"),
    [(2, 4.67e-7, 3.0e-7), (3, 2.158e-5, 7.8e-9), (10, 0.03938, 8.8e-12)],
)
def test_spherical_constants_meet_the_published_reference(dimension: int, radius: float, eta: float) -> None:
    law = SphericalLaplace(rate=1.0, dimension=dimension)
    assert law.least_radius == pytest.approx(radius, rel=1e-3)
    assert law.log_density_error == pytest.approx(eta, rel=2e-2)


@pytest.mark.parametrize("dimension", [2, 3, 10, 100, 1000, 100_000])
def test_the_exceptional_event_has_the_claimed_probability(dimension: int) -> None:
    law = SphericalLaplace(rate=1.0, dimension=dimension)
    small = float(special.gammainc((dimension + 1) / 2, law.least_radius**2 / 2))
    assert 0.99 * law.tail / 2 < small <= law.tail / 2
    assert law.log_density_error < 1e-5


@pytest.mark.parametrize(
    "parameters", [(0.0, 3), (-1.0, 3), (math.nan, 3), (1.0, 0), (1.0, 2.5), (1.0, True)]
)
def test_spherical_parameters_outside_the_domain_are_refused(parameters: tuple[float, int]) -> None:
    rate, dimension = parameters
    with pytest.raises(ParameterError, match="SphericalLaplace must be"):
        spherical_laplace(rate, dimension, 1)


def test_uniform_integers_reach_every_level_and_no_other() -> None:
    for levels in (1, 2, 3, 7, 1000):
        draws = uniform_integers(levels, 20_000, Stream.from_seed(levels))
        assert set(np.unique(draws)) == set(range(levels))
    assert uniform_integers(1 << 31, 10).max() < 1 << 31
    with pytest.raises(ParameterError, match="levels"):
        uniform_integers(0, 1)


def test_incomplete_rounds_are_redrawn_so_that_no_level_is_favored() -> None:
    """At 3 * 2**30 levels, keeping biased words would double the first quarter of them."""
    levels = 3 << 29
    draws = uniform_integers(levels, 400_000, Stream.from_seed(1))
    counts, _ = np.histogram(draws, bins=8, range=(0, levels))
    assert np.abs(counts - 50_000).max() < 6.5 * math.sqrt(50_000 * 7 / 8)


def test_randomized_response_keeps_all_or_nothing_at_the_ends() -> None:
    codes = np.arange(12).reshape(3, 4) % 5
    assert np.array_equal(randomized_response(codes, 5, 0), codes)
    everything = randomized_response(np.zeros(50_000, int), 5, 1 << 64, Stream.from_seed(1))
    assert np.abs(np.bincount(everything) - 10_000).max() < 6.5 * math.sqrt(50_000 * 0.16)


@pytest.mark.parametrize(
    ("codes", "levels", "threshold"), [([5], 5, 1), ([-1], 5, 1), ([0], 5, -1), ([0], 5, 1 << 65)]
)
def test_randomized_response_refuses_what_is_outside_the_public_list(
    codes: list[int], levels: int, threshold: int
) -> None:
    with pytest.raises(ParameterError, match="randomized_response must"):
        randomized_response(np.array(codes), levels, threshold)


def test_a_subsample_has_the_asked_size_and_no_repeats() -> None:
    chosen = subsample(100, 40)
    assert len(chosen) == len(set(chosen.tolist())) == 40
    assert np.array_equal(chosen, np.sort(chosen))
    assert subsample(5, 0).size == 0
    with pytest.raises(ParameterError, match="size of subsample"):
        subsample(5, 6)


def test_a_pool_hands_out_any_scale_and_any_number() -> None:
    pool = Pool(block=100)
    assert pool.gaussian(2.0**20, 250).shape == (250,)
    assert pool.gaussian(3.3).shape == (1,)
    assert pool.laplace(7.0, 333).shape == (333,)
    with pytest.raises(ParameterError, match="block of Pool"):
        Pool(block=0)


@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_pool_is_emptied_by_a_fork() -> None:
    pool = Pool(block=64)
    pool.gaussian(2.0**30)
    read, write = os.pipe()
    if not (child := os.fork()):
        os.write(write, pool.gaussian(2.0**30, 20).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    theirs = np.frombuffer(os.read(read, 1000), np.int64)
    os.close(read)
    ours = pool.gaussian(2.0**30, 20)
    assert theirs.size == 20
    assert not set(theirs.tolist()) & set(ours.tolist())


@pytest.mark.parametrize(("keep", "levels"), [(0.2, 4), (1.1, 4), (0.9, 1), (-0.1, 2)])
def test_a_keep_probability_outside_its_domain_is_refused(keep: float, levels: int) -> None:
    with pytest.raises(ParameterError, match="response_threshold must lie between 1/levels and 1"):
        response_threshold(keep, levels)


def test_thresholds_are_rounded_towards_more_noise() -> None:
    for keep, levels in ((0.5, 2), (0.75, 3), (1 / 3, 3), (1.0, 5), (0.731, 2)):
        replaced = Fraction(response_threshold(keep, levels), 1 << 64)
        kept = 1 - replaced + replaced / levels
        assert kept <= max(Fraction(keep), Fraction(1, levels))
        assert abs(Fraction(keep) - kept) < Fraction(1, 1 << 52)


def test_equal_words_are_drawn_again_before_a_permutation_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([np.array([5, 5, 1], np.uint64), np.array([9, 2, 4], np.uint64)])
    monkeypatch.setattr(Stream, "words", lambda *_: next(drawn))
    assert permutation(3).tolist() == [1, 2, 0]
