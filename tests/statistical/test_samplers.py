"""Every sampler against its exact law, by drawing."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import special

from discreet.noise import (
    Pool,
    SphericalLaplace,
    Stream,
    Whitening,
    discrete_laplace,
    permutation,
    randomized_response,
    rounded_gaussian,
    spherical_laplace,
    subsample,
    uniform_integers,
)
from discreet.noise.whitening import STEPS
from tests.statistical import LONG, SHORT, checks
from tests.statistical.laws import IntegerLaw, discrete_laplace_law, rounded_gaussian_law

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats, Ints

GAUSSIANS = [1.0, 10.0, 777.7, 2.0**12, 2.0**20, 2.0**40]
LAPLACES = [1.0, 30.0, 2.0**30]
INTEGER_LAWS: dict[str, tuple[IntegerLaw, Callable[[int, Stream], Ints]]] = {}
for _s in GAUSSIANS:
    INTEGER_LAWS[f"gaussian-{_s:g}"] = (
        rounded_gaussian_law(_s),
        lambda n, stream, s=_s: rounded_gaussian(s, n, stream),  # type: ignore[misc]
    )
for _s in LAPLACES:
    INTEGER_LAWS[f"laplace-{_s:g}"] = (
        discrete_laplace_law(_s),
        lambda n, stream, s=_s: discrete_laplace(s, n, stream),  # type: ignore[misc]
    )


@pytest.mark.parametrize("name", INTEGER_LAWS)
def test_integer_samplers_have_their_exact_law(name: str, seed: int) -> None:
    law, draw = INTEGER_LAWS[name]
    checks.assert_fits(checks.all_checks(draw(SHORT, Stream.from_seed(seed)), law))


@pytest.mark.stats
@pytest.mark.parametrize("name", INTEGER_LAWS)
def test_integer_samplers_have_their_exact_law_over_ten_million_draws(name: str) -> None:
    law, draw = INTEGER_LAWS[name]
    found = checks.all_checks(draw(LONG, Stream()), law)
    checks.record(name, LONG, found)
    checks.assert_fits(found)


@pytest.mark.parametrize("s", [3.0, 777.7, 2.0**20])
def test_a_pool_has_the_law_of_the_sampler(s: float) -> None:
    pool = Pool()
    n = SHORT // 4
    # A pool takes its key from the system, so this is one of the tests that could fail by chance.
    checks.assert_fits(checks.all_checks(pool.gaussian(s, n), rounded_gaussian_law(s)))
    checks.assert_fits(checks.all_checks(pool.laplace(s, n), discrete_laplace_law(s)))


def _spherical_checks(rate: float, dimension: int, n: int, stream: Stream) -> dict[str, float]:
    draws = spherical_laplace(rate, dimension, n, stream)
    step = SphericalLaplace(rate=rate, dimension=dimension).step
    norms = np.linalg.norm(draws, axis=1)
    found = {
        "norm": checks.kolmogorov(norms, lambda r: np.asarray(special.gammainc(dimension, rate * r))),
        "norm cells": _norm_cells(norms, rate, dimension),
        "mean norm": checks.mean(norms, dimension / rate, math.sqrt(dimension) / rate),
        "low bits": checks.low_bits(np.rint(draws[:, 0] / step).astype(np.int64)),
    }
    if dimension == 1:
        # The norm is discrete, its step far below what a million draws can see.
        assert step < 1e-5 / rate
        found["sign"] = checks.mean(draws[:, 0] > 0, 0.5, 0.5)
        return found
    unit = draws / norms[:, np.newaxis]
    for j in sorted({0, dimension // 2, dimension - 1}):
        found[f"direction {j}"] = checks.kolmogorov(unit[:, j], _coordinate_of_unit_vector(dimension))
    # Neighboring coordinates of a uniform direction are uncorrelated, and so are their squares but for
    # the unit length: E[u1^2 u2^2] = 1 / (d (d + 2)).
    product = unit[:, 0] * unit[:, -1]
    second = 1 / (dimension * (dimension + 2))
    found["no preferred diagonal"] = checks.mean(product, 0.0, math.sqrt(second))
    # Norm and direction are independent.
    large = norms > np.median(norms)
    found["direction of long ones"] = checks.kolmogorov(unit[large, 0], _coordinate_of_unit_vector(dimension))
    return found


def _norm_cells(norms: Floats, rate: float, dimension: int) -> float:
    edges = special.gammaincinv(dimension, np.arange(1, 100) / 100) / rate
    counts = np.bincount(np.searchsorted(edges, norms), minlength=100)
    return checks.chi_square(counts, np.full(100, 0.01))


def _coordinate_of_unit_vector(dimension: int) -> Callable[[Floats], Floats]:
    """One coordinate of a uniform direction: ``(1 + u) / 2`` is beta with both parameters (d - 1) / 2."""
    shape = (dimension - 1) / 2
    return lambda u: np.asarray(special.betainc(shape, shape, np.clip((1 + u) / 2, 0, 1)))


DIMENSIONS = [1, 2, 3, 10, 100]


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_spherical_noise_has_a_gamma_norm_and_no_preferred_direction(dimension: int, seed: int) -> None:
    n = max(50_000, SHORT // (4 * dimension))
    checks.assert_fits(_spherical_checks(2.5, dimension, n, Stream.from_seed(seed)))


@pytest.mark.stats
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_spherical_noise_over_ten_million_coordinates(dimension: int) -> None:
    n = LONG // dimension
    found = _spherical_checks(2.5, dimension, n, Stream())
    checks.record(f"spherical-{dimension}", n, found)
    checks.assert_fits(found)


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_a_wrong_rate_of_spherical_noise_is_rejected(factor: float) -> None:
    for dimension in (2, 10):
        draws = spherical_laplace(2.5 * factor, dimension, 50_000, Stream.from_seed(1))
        norms = np.linalg.norm(draws, axis=1)
        assert _norm_cells(norms, 2.5, dimension) < 1e-9


def test_a_preferred_direction_of_spherical_noise_is_rejected() -> None:
    draws = spherical_laplace(2.5, 3, 100_000, Stream.from_seed(1))
    draws[:, 0] *= 1.1
    unit = draws / np.linalg.norm(draws, axis=1)[:, np.newaxis]
    assert checks.kolmogorov(unit[:, 0], _coordinate_of_unit_vector(3)) < 1e-9


def _response_checks(levels: int, share: float, n: int, stream: Stream) -> dict[str, float]:
    """Frequencies of the answers to each true code."""
    threshold = int(share * 2**64)
    r = threshold / 2**64
    found = {}
    for code in (0, levels - 1):
        answers = randomized_response(np.full(n, code), levels, threshold, stream)
        probabilities = np.full(levels, r / levels)
        probabilities[code] += 1 - r
        found[f"code {code}"] = checks.chi_square(np.bincount(answers, minlength=levels), probabilities)
    return found


RESPONSES = [(2, 0.5), (3, 0.1), (7, 0.9), (50, 0.7)]


@pytest.mark.parametrize(("levels", "share"), RESPONSES)
def test_randomized_response_has_its_frequencies(levels: int, share: float, seed: int) -> None:
    checks.assert_fits(_response_checks(levels, share, SHORT // 4, Stream.from_seed(seed)))


@pytest.mark.stats
@pytest.mark.parametrize(("levels", "share"), RESPONSES)
def test_randomized_response_over_ten_million_answers(levels: int, share: float) -> None:
    found = _response_checks(levels, share, LONG // 2, Stream())
    checks.record(f"response-{levels}-{share:g}", LONG, found)
    checks.assert_fits(found)


@pytest.mark.parametrize("levels", [2, 3, 10, 1000])
def test_uniform_integers_are_uniform(levels: int, seed: int) -> None:
    draws = uniform_integers(levels, SHORT, Stream.from_seed(seed))
    probabilities = np.full(levels, 1 / levels)
    checks.assert_fits({"cells": checks.chi_square(np.bincount(draws, minlength=levels), probabilities)})


def _numbers_of(rows: AnyArray, base: int) -> AnyArray:
    """Read each row of digits as one number."""
    return np.asarray(rows @ base ** np.arange(rows.shape[1]))


def _choice_checks(n: int, stream: Stream) -> dict[str, float]:
    """All 24 orders, all 10 pairs of 5: each equally often."""
    orders = np.array([permutation(4, stream) for _ in range(n)])
    pairs = np.array([subsample(5, 2, stream) for _ in range(n)])
    wanted: dict[str, tuple[AnyArray, Any]] = {
        "orders": (_numbers_of(orders, 4), _numbers_of(np.array(list(itertools.permutations(range(4)))), 4)),
        "pairs": (_numbers_of(pairs, 5), _numbers_of(np.array(list(itertools.combinations(range(5), 2))), 5)),
    }
    found = {}
    for name, (seen, possible) in wanted.items():
        possible = np.sort(possible)
        assert set(seen.tolist()) <= set(possible.tolist())
        counts = np.bincount(np.searchsorted(possible, seen), minlength=possible.size)
        found[name] = checks.chi_square(counts, np.full(possible.size, 1 / possible.size))
    return found


def test_orders_and_choices_of_rows_are_uniform(seed: int) -> None:
    checks.assert_fits(_choice_checks(20_000, Stream.from_seed(seed)))


@pytest.mark.stats
def test_orders_and_choices_of_rows_are_uniform_over_many_calls() -> None:
    found = _choice_checks(100_000, Stream())
    checks.record("choices", 100_000, found)
    checks.assert_fits(found)


def test_long_permutations_put_every_number_everywhere(seed: int) -> None:
    stream = Stream.from_seed(seed)
    n, calls = 40, 10_000
    where = np.array([permutation(n, stream) for _ in range(calls)])
    table = np.zeros((n, n), np.int64)
    for column in range(n):
        table[column] = np.bincount(where[:, column], minlength=n)
    # Columns of the table are nearly independent; each is tested alone, and together by the union bound.
    p = min(checks.chi_square(row, np.full(n, 1 / n)) for row in table)
    checks.assert_fits({"any position": min(1.0, n * p)})


@pytest.mark.parametrize("correlated", [False, True])
def test_a_whitened_release_has_the_noise_that_it_states(correlated: bool, seed: int) -> None:
    n = SHORT // 4
    lower, upper = np.array([0.0, -50.0]), np.array([100.0, 50.0])
    row = np.array([[37.25, 12.5]])
    if correlated:
        inverse = np.array([[20.0, 0.0], [9.0, 7.0]])
        matrix = np.linalg.inv(inverse)
        diameter = float(np.linalg.norm(np.abs(matrix) @ (upper - lower))) * 1.001
        whitening = Whitening.dense(lower, upper, matrix, inverse, diameter)
    else:
        inverse = np.diag([20.0, 7.0])
        whitening = Whitening.diagonal(lower, upper, np.array([20.0, 7.0]))
    noise = whitening.release(np.repeat(row, n, axis=0), Stream.from_seed(seed)) - row
    lattice = np.rint(np.linalg.solve(inverse, noise.T).T * STEPS).astype(np.int64)
    law = rounded_gaussian_law(float(STEPS))
    for column in lattice.T:
        checks.assert_fits(checks.all_checks(column, law))
    cross = lattice[:, 0] * 1.0 * lattice[:, 1] / STEPS**2
    checks.assert_fits({"uncorrelated": checks.mean(cross, 0.0, 1.0)})
