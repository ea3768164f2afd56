"""Bounded noise on several columns: products, and the joint optimum of up to three."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.noise import BoundedDensity, BoxDensity, Stream, product_density
from discreet.noise.polynomial import basis
from tests.statistical import ALPHA
from tests.statistical.checks import chi_square


def correlated(r: float) -> BoxDensity:
    return BoxDensity(
        lower=np.array([-1.0, -1.0]),
        upper=np.array([1.0, 1.0]),
        weights=np.array([[1, r], [r, 1]]),
        regularization=1,
    )


THREE = BoxDensity(
    lower=np.array([-1.0, -1.0, 0.0]),
    upper=np.array([1.0, 2.0, 1.0]),
    weights=np.array([[2, 0.5, 0.1], [0.5, 1, 0.2], [0.1, 0.2, 1.5]]),
    regularization=3,
)


@pytest.mark.parametrize(("r", "expected"), [(0.0, 20.0), (0.5, 25.15531494), (0.9, 79.34368568)])
def test_the_objective_with_24_functions_per_column_has_its_reference_value(
    r: float, expected: float
) -> None:
    assert correlated(r)._lowest_eigenpair(24)[0] == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize(("r", "least"), [(0.5, 25.15531434), (0.9, 79.34336)])
def test_more_functions_lower_the_objective_towards_its_limit(r: float, least: float) -> None:
    """Corners are not smooth for correlated weights: the reference values above are not yet the limit."""
    values = [correlated(r)._lowest_eigenpair(size)[0] for size in (16, 24, 32, 48, 64)]
    assert values == sorted(values, reverse=True)
    assert values[-1] > least
    assert correlated(r).objective == pytest.approx(least, rel=5e-6)


@pytest.mark.parametrize(("r", "expected"), [(0.0, 20.0), (0.5, 26.57988367), (0.9, 104.1518421)])
def test_the_best_product_has_its_reference_value_and_is_no_better(r: float, expected: float) -> None:
    weights = np.array([[1, r], [r, 1]])
    laws = product_density(-np.ones(2), np.ones(2), weights=weights, regularization=1)
    found = sum(law.objective for law in laws)
    assert found == pytest.approx(expected, abs=1e-7)
    assert found >= correlated(r).objective - 1e-12
    # its objective is what independent noise of that kind has under the joint criterion
    inverse = np.linalg.inv(weights)
    joint = sum(inverse[j, j] * law.fisher_information + law.second_moment for j, law in enumerate(laws))
    assert joint == pytest.approx(found, rel=1e-12)


def test_other_weights_of_a_product_do_worse() -> None:
    weights = np.array([[1, 0.8], [0.8, 2]])
    inverse = np.linalg.inv(weights)

    def joint(v: tuple[float, float]) -> float:
        laws = [BoundedDensity(lower=-1, upper=2, regularization=5, weight=w) for w in v]
        parts = [float(inverse[j, j]) * law.fisher_information for j, law in enumerate(laws)]
        return sum(parts) + sum(5 * law.second_moment for law in laws)

    best = 1 / np.diagonal(inverse)
    for change in ((1.1, 1.0), (0.9, 1.0), (1.0, 1.2), (1.0, 0.8)):
        assert joint((best[0] * change[0], best[1] * change[1])) > joint((best[0], best[1]))
    assert joint((1.0, 2.0)) > joint((best[0], best[1]))  # the diagonal of Pi itself


def test_diagonal_weights_give_independent_columns() -> None:
    law = BoxDensity(
        lower=np.array([-1.0, 0.0]), upper=np.array([1.0, 2.0]), weights=np.diag([1.0, 3.0]), regularization=2
    )
    singles = product_density(law.lower, law.upper, weights=np.array([1.0, 3.0]), regularization=2)
    n = np.array([[0.3, 0.7], [-0.9, 1.9], [0.0, 0.1]])
    expected = singles[0].pdf(n[:, 0]) * singles[1].pdf(n[:, 1])
    assert law.pdf(n) == pytest.approx(expected, rel=1e-9)
    assert law.information == pytest.approx(np.diag([s.fisher_information for s in singles]), abs=1e-9)
    assert law.mean == pytest.approx([s.mean for s in singles], abs=1e-12)


@pytest.mark.parametrize("law", [correlated(0.5), correlated(0.9), THREE], ids=["0.5", "0.9", "three"])
def test_objective_information_and_moments_agree_with_each_other_and_with_quadrature(law: BoxDensity) -> None:
    p = law.lower.size
    total = np.trace(np.linalg.inv(law.weights) @ law.information)
    total += law.regularization * np.trace(law.second_moments)
    assert total == pytest.approx(law.objective, rel=1e-11)
    x, w = np.polynomial.legendre.leggauss(60 if p == 2 else 24)
    half, middle = 0.5 * (law.upper - law.lower), 0.5 * (law.upper + law.lower)
    n = middle + half * np.stack(np.meshgrid(*[x] * p, indexing="ij"), axis=-1).reshape(-1, p)
    mass = np.prod(np.stack(np.meshgrid(*[w] * p, indexing="ij"), axis=-1).reshape(-1, p) * half, axis=1)
    f = mass * law.pdf(n)
    assert f.sum() == pytest.approx(1, abs=1e-12)
    assert f @ n == pytest.approx(law.mean, abs=1e-12)
    assert (n.T * f) @ n == pytest.approx(law.second_moments, abs=1e-12)
    assert np.all(np.linalg.eigvalsh(law.information) > 0)


def test_noise_leans_the_way_the_weights_do() -> None:
    law = correlated(0.9)
    # Pi^-1 has negative correlation, so the information may be positive between columns
    assert law.information[0, 1] > 1
    assert law.second_moments[0, 1] < -0.01


@pytest.mark.parametrize("law", [correlated(0.9), THREE], ids=["two", "three"])
def test_values_of_u_are_accurate_to_what_the_sampler_assumes(law: BoxDensity) -> None:
    coefficients = law._state[0]
    size, p = coefficients.shape[0], coefficients.ndim
    points = np.array([[0.3125, -0.71875, 0.5], [-0.984375, 0.96875, -0.25]])[:, :p]
    rows = basis(size)
    with mpmath.workdps(40):
        for x in points:
            factors = [
                [
                    mpmath.mpf(rows[k, k])
                    * (mpmath.legendre(k, mpmath.mpf(t)) - mpmath.legendre(k + 2, mpmath.mpf(t)))
                    for k in range(size)
                ]
                for t in x.tolist()
            ]
            exact = mpmath.fsum(
                mpmath.mpf(float(c)) * mpmath.fprod(factors[j][i] for j, i in enumerate(index))
                for index, c in np.ndenumerate(coefficients)
            )
            assert abs(float(exact) - law._unit_root(x[np.newaxis])[0]) < 2.0**-46


@pytest.mark.parametrize("law", [correlated(0.9), THREE], ids=["two", "three"])
def test_no_value_of_u_passes_the_bound_of_its_cell(law: BoxDensity) -> None:
    p = law.lower.size
    words = Stream.from_seed(4).words(60_000 * p).reshape(-1, p)
    x = np.asarray(words * 2.0**-63 - 1, np.float64)
    per_column = {2: 64, 3: 16}[p]
    cell = np.ravel_multi_index(tuple(((x + 1) / 2 * per_column).astype(int).T), (per_column,) * p)
    bounds = law._cells.bounds[cell]
    values = np.abs(law._unit_root(x))
    assert np.all(values <= bounds)
    assert np.mean(values**2) > 0.5 * np.mean(bounds**2)  # and the bounds are not idle


@pytest.mark.parametrize("law", [correlated(0.5), THREE], ids=["two", "three"])
def test_draws_follow_the_density(law: BoxDensity) -> None:
    p, n = law.lower.size, 200_000
    cells = law.integers(n, Stream.from_seed(9))
    assert cells.min() >= 0
    assert cells.max() < 1 << 24
    # counts in a 4 by 4 (by 4) grid against integrals of the density
    x, w = np.polynomial.legendre.leggauss(16)
    nodes = np.concatenate([(i + 0.5 + 0.5 * x) / 4 for i in range(4)])
    weights = np.tile(w / 8, 4)
    points = law.lower + (law.upper - law.lower) * np.stack(
        np.meshgrid(*[nodes] * p, indexing="ij"), axis=-1
    ).reshape(-1, p)
    mass = np.prod(np.stack(np.meshgrid(*[weights] * p, indexing="ij"), axis=-1).reshape(-1, p), axis=1)
    f = (mass * law.pdf(points) * np.prod(law.upper - law.lower)).reshape((4, 16) * p)
    expected = f.sum(axis=tuple(range(1, 2 * p, 2))).reshape(-1)
    counts = np.bincount(np.ravel_multi_index(tuple((cells >> 22).T), (4,) * p), minlength=4**p)
    assert chi_square(counts, expected / expected.sum()) > ALPHA
    assert chi_square(counts, np.roll(expected, 1) / expected.sum()) < ALPHA
    assert law.total_variation < 2.0**-39
    values = law.values(cells)
    assert values.mean(axis=0) == pytest.approx(law.mean, abs=0.02)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"weights": np.eye(4), "lower": -np.ones(4), "upper": np.ones(4)}, "Use product_density"),
        ({"weights": np.array([[1.0, 2.0], [2.0, 1.0]])}, "positive definite"),
        ({"weights": np.array([[1.0, 0.5], [0.2, 1.0]])}, "symmetric"),
        ({"weights": np.eye(3)}, "p by p"),
        ({"upper": np.array([1.0, math.inf])}, "finite"),
        ({"regularization": -1.0}, "regularization"),
    ],
)
def test_other_cases_are_refused_with_the_way_out(change: dict[str, object], match: str) -> None:
    arguments: dict[str, object] = {"lower": -np.ones(2), "upper": np.ones(2), "weights": np.eye(2)}
    with pytest.raises(ParameterError, match=match):
        BoxDensity(**{**arguments, **change})  # type: ignore[arg-type]


def test_a_product_needs_vectors_of_one_length() -> None:
    with pytest.raises(ParameterError, match="of one length"):
        product_density(-np.ones(2), np.ones(3), weights=np.ones(2))
