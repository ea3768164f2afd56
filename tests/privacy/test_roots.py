"""The root finder of calibrations: the bits of scipy's, and errors where there is no root."""

import math
from collections.abc import Callable

import pytest
from scipy.optimize import brentq

from discreet.noise import Stream
from discreet.privacy.roots import find_root

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "cubic": lambda x: x**3 - 2 * x - 5,
    "bent": lambda x: (x - 1) ** 3 + x / 50,
    "steep": lambda x: math.expm1(40 * x),
    "step": lambda x: math.atan(1e6 * (x - 0.3)),
    "wave": lambda x: math.cos(x) - x,
    "tiny": lambda x: 1e-200 * (x - 0.1),
    "end": lambda x: x + 2.0,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("xtol", "rtol"), [(2e-12, 2.0**-50), (1e-16, 8 * 2.0**-53), (1e-3, 1e-3), (1e-300, 2.0**-50)]
)
def test_root_has_the_bits_of_scipy(name: str, xtol: float, rtol: float) -> None:
    function = FUNCTIONS[name]
    words = Stream.from_seed(7).words(200)
    compared = 0
    for low, width in zip(words[::2], words[1::2], strict=True):
        a = -2.0 + int(low) / 2**64
        b = a + 5.0 * int(width) / 2**64
        if not (math.isfinite(function(a)) and (function(a) < 0) != (function(b) < 0) and a < b):
            continue
        compared += 1
        assert find_root(function, a, b, xtol=xtol, rtol=rtol) == brentq(function, a, b, xtol=xtol, rtol=rtol)
        assert find_root(function, b, a, xtol=xtol, rtol=rtol) == brentq(function, b, a, xtol=xtol, rtol=rtol)
    assert compared or name in ("tiny", "end")


def test_ends_that_are_roots_are_returned() -> None:
    assert find_root(FUNCTIONS["end"], -2.0, 1.0) == -2.0
    assert find_root(FUNCTIONS["end"], -5.0, -2.0) == -2.0


def test_equal_signs_are_an_error() -> None:
    with pytest.raises(ValueError, match="have one sign"):
        find_root(FUNCTIONS["cubic"], 10.0, 20.0)


def test_missing_values_are_an_error() -> None:
    with pytest.raises(ValueError, match="no value"):
        find_root(lambda x: math.nan if 0 < x < 1 else x - 0.5, 0.0, 1.0)
