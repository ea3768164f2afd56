"""The low-order-bits attack: what it looks at, and that lattices pass wherever they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.audit import precision
from discreet.audit._sampler_checks import finest_bit
from discreet.noise import Stream, Whitening, spherical_laplace
from discreet.privacy.promises import ApproxDP, GaussianDP

if TYPE_CHECKING:
    from discreet._types import AnyArray

N = 20_000


@settings(deadline=None)
@given(st.integers(-(2**53), 2**53), st.integers(-60, 60))
def test_the_finest_bit_is_the_largest_power_of_two_that_divides(whole: int, exponent: int) -> None:
    k = int(finest_bit(np.array([whole * 2.0**exponent]))[0])
    if whole == 0:
        assert k == 160
    else:
        assert k == exponent + ((whole & -whole).bit_length() - 1)


def test_numbers_that_are_not_finite_are_no_finer_than_zero() -> None:
    assert set(finest_bit(np.array([np.nan, np.inf, -np.inf, 0.0])).tolist()) == {160}


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (0.3, 0.7), (1.0, 1.0 + 2**-40), (1e6, 0.0)])
def test_a_whitened_release_passes_wherever_its_bounds_lie(a: float, b: float) -> None:
    whitening = Whitening.diagonal(np.full(1, -0.1), np.full(1, 1e6 + 0.7), np.full(1, 1e6 / 3))

    def release(value: float, stream: Stream) -> AnyArray:
        return whitening.release(np.full((N, 1), value), stream)

    claim = GaussianDP(mu=whitening.sensitivity)
    assert precision(release, a, b, claim, n=N, stream=Stream.from_seed(1)).verdict == "holds"


def test_spherical_noise_passes_on_its_lattice_and_fails_off_it() -> None:
    """Values on the lattice of the noise are safe; a value off it shows at once."""

    def add(value: float, stream: Stream) -> AnyArray:
        return value + spherical_laplace(1.0, 2, N, stream)

    claim = ApproxDP(epsilon=1.5, delta=1e-9)
    assert precision(add, 0.0, 1.0, claim, n=N, stream=Stream.from_seed(1)).verdict == "holds"
    off = precision(add, 0.0, 1.0 / 3.0, claim, n=N, stream=Stream.from_seed(1))
    assert off.verdict == "broken"
    assert off.attack == "precision"
