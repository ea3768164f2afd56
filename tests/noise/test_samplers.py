"""Gaussian, Laplace, spherical, categorical draws: shapes, domains, replay, and what must not repeat."""

from __future__ import annotations

import math
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import special

from discreet.errors import ParameterError
from discreet.learn.perturbation.noise import FineSphericalLaplace
from discreet.noise import (
    BoundedDensity,
    BoxDensity,
    InRange,
    Pool,
    SphericalLaplace,
    Stream,
    discrete_laplace,
    permutation,
    randomized_response,
    response_threshold,
    rounded_gaussian,
    rounded_laplace,
    spherical_laplace,
    standard_maxwell,
    standard_normal,
    subsample,
    subsets,
    uniform_integers,
)

if TYPE_CHECKING:
    from collections.abc import Callable

BOUNDED = BoundedDensity(lower=-2, upper=3, regularization=0.5)
IN_RANGE = InRange(lower=0, upper=1, regularization=50, inputs=17, cells=64)
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


@pytest.mark.parametrize("size", [-1, 2.5, "3", None, (2, -1), (2, None), 1 << 62])
@pytest.mark.parametrize(
    ("where", "draw"),
    [
        ("rounded_gaussian", lambda size: rounded_gaussian(8.0, size)),
        ("discrete_laplace", lambda size: discrete_laplace(8.0, size)),
        ("rounded_laplace", lambda size: rounded_laplace(8.0, size)),
        ("standard_normal", standard_normal),
        ("BoundedDensity.integers", BOUNDED.integers),
    ],
)
def test_a_bad_shape_is_a_parameter_error(where: str, draw: Callable[[Any], object], size: Any) -> None:
    with pytest.raises(ParameterError, match=rf"size of {where} must be a whole number of at least 0 or"):
        draw(size)


@pytest.mark.parametrize("count", [-1, 2.5, "3", None, True, (2,)])
@pytest.mark.parametrize(
    ("what", "draw"),
    [
        ("n of standard_maxwell", standard_maxwell),
        ("n of uniform_integers", lambda n: uniform_integers(5, n)),
        ("n of permutation", permutation),
        ("n of subsample", lambda n: subsample(n, 0)),
        ("size of subsample", lambda size: subsample(5, size)),
        ("n of subsets", lambda n: subsets(5, 2, n)),
        ("size of subsets", lambda size: subsets(5, size, 3)),
        ("size of SphericalLaplace.integers", SphericalLaplace(rate=1.0, dimension=2).integers),
        (
            "size of BoxDensity.integers",
            BoxDensity(lower=np.zeros(1), upper=np.ones(1), weights=np.eye(1)).integers,
        ),
        ("n of Pool.gaussian", lambda n: Pool(block=1).gaussian(8.0, n)),
        ("n of Pool.laplace", lambda n: Pool(block=1).laplace(8.0, n)),
        ("block of Pool", lambda block: Pool(block=block)),
    ],
)
def test_a_bad_number_of_draws_is_a_parameter_error(
    what: str, draw: Callable[[Any], object], count: Any
) -> None:
    with pytest.raises(ParameterError, match=f"{what} must be a whole number of at least 0"):
        draw(count)


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
def test_a_pool_that_is_in_use_at_a_fork_serves_the_child_too() -> None:
    """The thread that holds the lock is not there on the other side to let go of it."""
    pool = Pool(block=64)
    ours = pool.gaussian(2.0**30, 20)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with pool._buffers.lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    read, write = os.pipe()
    if not (child := os.fork()):
        signal.alarm(20)  # ends a child that waits for ever
        os.write(write, pool.gaussian(2.0**30, 20).tobytes())
        os._exit(0)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    os.close(write)
    theirs = np.frombuffer(os.read(read, 1000), np.int64)
    os.close(read)
    assert status == 0
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


@pytest.mark.parametrize("dimension", [1, 2, 3, 50, 10_000])
@pytest.mark.parametrize("law", [SphericalLaplace, FineSphericalLaplace])
def test_spherical_noise_scales_exactly_from_the_least_rate_to_the_largest(
    law: type[SphericalLaplace], dimension: int
) -> None:
    """A rate 2**k times as large gives the same draws 2**-k times as long, to the last bit."""
    n = 200 if dimension < 100 else 2
    usual = law(rate=1.37, dimension=dimension)
    expected = usual.integers(n, Stream.from_seed(2))
    assert np.abs(expected).max() < 2**53  # every integer is a float
    for k in (-825, -300, -1, 1, 300, 825):
        other = law(rate=math.ldexp(1.37, k), dimension=dimension)
        assert other.step == math.ldexp(usual.step, -k)
        assert np.array_equal(other.integers(n, Stream.from_seed(2)), expected)
        drawn = np.multiply(expected, other.step, dtype=np.float64)
        assert np.isfinite(drawn).all()
        assert np.array_equal(np.rint(drawn / other.step), expected)
        assert other.log_density_error == usual.log_density_error


@pytest.mark.parametrize("dimension", [1, 2, 7, 10_000])
@pytest.mark.parametrize("rate", [1.0000001e-250, 3e-100, 7e99, 9.99e249])
def test_the_norm_of_spherical_noise_has_its_law_at_extreme_rates(rate: float, dimension: int) -> None:
    """A gamma variable of shape ``dimension``: mean and mean logarithm of the scaled norm."""
    n = 40 if dimension > 1_000 else 20_000
    norms = np.linalg.norm(spherical_laplace(rate, dimension, n, Stream.from_seed(6)) * rate, axis=1)
    assert abs(norms.mean() - dimension) < 6.5 * math.sqrt(dimension / n)
    logs = np.log(norms)
    assert abs(logs.mean() - special.digamma(dimension)) < 8 * math.sqrt(special.polygamma(1, dimension) / n)


def test_a_rate_in_single_precision_gives_the_same_draws() -> None:
    rates: list[Any] = [2.5, np.float32(2.5)]
    double, single = (spherical_laplace(rate, 3, 9, Stream.from_seed(1)) for rate in rates)
    assert np.array_equal(double, single)


@pytest.mark.parametrize("rate", ["2", None, True, 1e-300, 1e300, math.inf, 2**2000])
def test_a_rate_that_no_float_can_serve_is_refused(rate: float) -> None:
    with pytest.raises(ParameterError, match=r"rate of SphericalLaplace must be between 1e-250 and 1e250"):
        spherical_laplace(rate, 2, 1)


def test_a_dimension_that_no_machine_can_draw_is_refused() -> None:
    with pytest.raises(ParameterError, match="dimension of SphericalLaplace must be from 1 to 1000000"):
        spherical_laplace(1.0, 2**70, 1)


LAWS: dict[str, Callable[[Stream], np.ndarray]] = {
    "gaussian": lambda stream: rounded_gaussian(777.7, 3_000, stream),
    "laplace": lambda stream: discrete_laplace(777.7, 3_000, stream),
    "spherical": lambda stream: spherical_laplace(1.0, 3, 1_000, stream),
    "response": lambda stream: randomized_response(np.zeros(3_000, int), 7, 1 << 63, stream),
    "permutation": lambda stream: permutation(3_000, stream),
    "bounded": lambda stream: BOUNDED.integers(3_000, stream),
    "in range": lambda stream: IN_RANGE.draw(np.linspace(0, 1, 3_000), stream),
    "normal": lambda stream: standard_normal(3_000, stream),
}


@pytest.mark.parametrize("name", sorted(LAWS))
def test_threads_with_streams_of_their_own_do_not_disturb_each_other(name: str) -> None:
    """Laws and tables are shared between threads; what they keep in memory must not be."""
    draw = LAWS[name]
    expected = [draw(Stream.from_seed(i)) for i in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for _ in range(3):
            drawn = list(threads.map(lambda i: draw(Stream.from_seed(i)), range(8)))
            assert all(np.array_equal(a, b) for a, b in zip(drawn, expected, strict=True))


@pytest.mark.parametrize("name", sorted(LAWS))
def test_threads_that_share_a_stream_use_every_word_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All words that were handed out are those of one keystream: none twice, none lost."""
    taken: list[bytes] = []
    fill = Stream.fill

    def watched(self: Stream, out: np.ndarray) -> None:
        fill(self, out)
        if self is stream:
            taken.append(out.tobytes())

    stream = Stream.from_seed(3)
    monkeypatch.setattr(Stream, "fill", watched)
    with ThreadPoolExecutor(8) as threads:
        drawn = list(threads.map(lambda _: LAWS[name](stream), range(16)))
    monkeypatch.undo()
    assert len({values.tobytes() for values in drawn}) == 16
    words = np.concatenate([np.frombuffer(piece, np.uint64) for piece in taken])
    assert np.array_equal(np.sort(words), np.sort(Stream.from_seed(3).words(words.size)))
