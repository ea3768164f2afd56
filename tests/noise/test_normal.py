"""Standard normal and Maxwell numbers: their law, their replay, and what the float holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special, stats

from discreet.noise import NormalSampler, Stream, _kernels, standard_maxwell, standard_normal
from tests.statistical import ALPHA
from tests.statistical.checks import chi_square, kolmogorov, mean

N = 400_000


def test_the_law_is_standard_normal_and_a_scale_two_percent_off_is_seen() -> None:
    z = standard_normal(N, Stream.from_seed(1))
    assert kolmogorov(z, special.ndtr) > ALPHA
    assert mean(z**2, 1.0, math.sqrt(2)) > ALPHA
    assert kolmogorov(1.04 * z, special.ndtr) < ALPHA
    assert mean((1.02 * z) ** 2, 1.0, math.sqrt(2)) < ALPHA


def test_tails_have_their_share() -> None:
    z = np.abs(standard_normal(4 * N, Stream.from_seed(2)))
    edges = np.array([1.0, 2.0, 3.0, 3.5])
    survival = np.concatenate([[1.0], 2 * special.ndtr(-edges), [0.0]])
    counts = np.bincount(np.searchsorted(edges, z), minlength=5)
    assert chi_square(counts, -np.diff(survival)) > ALPHA


def test_offsets_are_uniform_down_to_the_last_digits_that_a_float_holds() -> None:
    z = standard_normal(N, Stream.from_seed(3))
    z = z[np.abs(z) >= 0.5]
    # Above 1/2 a float has at least 53 - 8 digits of the offset within its bucket.
    digits = np.floor(z * 64 * 2.0**30).astype(np.int64) & 63
    assert chi_square(np.bincount(digits, minlength=64), np.full(64, 1 / 64)) > ALPHA


def test_the_maxwell_law_is_that_of_a_length_in_space() -> None:
    r = standard_maxwell(N, Stream.from_seed(4))
    assert kolmogorov(r, stats.maxwell.cdf) > ALPHA
    assert mean(r, 2 * math.sqrt(2 / math.pi), math.sqrt(3 - 8 / math.pi)) > ALPHA
    assert kolmogorov(np.abs(standard_normal(N, Stream.from_seed(4))), stats.maxwell.cdf) < ALPHA
    assert r.min() > 0


def test_one_seed_gives_one_sequence_however_it_is_cut() -> None:
    whole = standard_normal((1000, 7), Stream.from_seed(5))
    parts = np.empty((1000, 7))
    sampler = NormalSampler(7000, Stream.from_seed(5))
    sampler.fill(parts)
    assert np.array_equal(whole, parts)
    stream = Stream.from_seed(5)
    assert not np.array_equal(standard_normal(10, stream), standard_normal(10, stream))


def test_compiled_loops_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="the compiled loops are an extra")
    plain = standard_normal(300_000, Stream.from_seed(6))
    monkeypatch.setattr(_kernels, "WORTH_COMPILING", 1)
    assert np.array_equal(plain, standard_normal(300_000, Stream.from_seed(6)))


def test_shapes_follow_size_and_zero_is_a_size() -> None:
    assert standard_normal((3, 4)).shape == (3, 4)
    assert standard_normal(0).shape == (0,)
    assert standard_maxwell(0).shape == (0,)
