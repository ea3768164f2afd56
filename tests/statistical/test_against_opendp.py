"""Our samplers beside OpenDP's exact ones: two programs that share nothing but the law."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.noise import Stream, discrete_laplace, rounded_gaussian
from tests.statistical import SHORT, checks
from tests.statistical.laws import discrete_laplace_law, rounded_gaussian_law

dp: Any = pytest.importorskip("opendp.prelude", reason="OpenDP is in the [check] extra, not installed here")

N = 10_000


def _opendp(make: Any, scale: float) -> np.ndarray[Any, np.dtype[np.int64]]:
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    if make is dp.m.make_gaussian:
        space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    return np.array(make(*space, scale=scale)([0] * N), np.int64)


@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_discrete_laplace_draws_agree(scale: float, seed: int) -> None:
    theirs = _opendp(dp.m.make_laplace, scale)
    ours = discrete_laplace(scale, SHORT, Stream.from_seed(seed))
    checks.assert_fits(
        {
            "two samples": checks.two_samples(ours, theirs),
            "theirs against our formula": checks.cells(theirs, discrete_laplace_law(scale), 20),
        }
    )


def test_rounded_and_discrete_gaussian_agree_up_to_their_known_distance(seed: int) -> None:
    s = 10.0
    x = np.arange(-400, 401)
    mass = np.exp(-(x**2) / (2 * s * s))
    discrete = np.cumsum(mass / mass.sum())
    apart = float(np.abs(discrete - rounded_gaussian_law(s).cdf(x.astype(float))).max())
    # Rounding adds 1/12 to the variance of 100: the distance is small, and not zero.
    assert 5e-5 < apart < 2e-4
    theirs = _opendp(dp.m.make_gaussian, s)
    ours = rounded_gaussian(s, SHORT, Stream.from_seed(seed))
    checks.assert_fits({"two samples": checks.two_samples(ours, theirs, apart)})
