"""Bounded noise that columns share: its law, its floor against those who know the other cells, its folder."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from discreet import BoundedRelease, Column, ErrorFloor, Schema, publish, verify
from discreet.audit.channel import build_channel
from discreet.errors import ParameterError, PromiseError
from discreet.noise import BoxDensity, Stream, product_density
from discreet.noise_law import JointBoundedLaw
from discreet.noise_law._table import law_from_dict
from discreet.privacy import NoPromise, floors
from discreet.release._bounded_numbers import JointBoundedNumbers, uniform_mean_square
from discreet.release.mechanism import uniform_prior

if TYPE_CHECKING:
    from pathlib import Path

    from discreet._types import Floats

SCHEMA = Schema(
    columns=[
        Column("x", lower=0, upper=1),
        Column("age", type="integer", lower=0, upper=99),
        Column("y", lower=-1, upper=1),
    ]
)
WEIGHTS = [[1.0, 0.2, 0.9], [0.2, 1.0, 0.1], [0.9, 0.1, 1.0]]


def method(**rest: Any) -> BoundedRelease:
    return BoundedRelease(
        **{
            "support": {"x": 0.5, "age": 30.0, "y": (-0.5, 1.0)},
            "weights": WEIGHTS,
            "joint": ["y", "x"],
            "regularization": 1.0,
            "schema": SCHEMA,
            "random_state": 1,
            **rest,
        }
    )


@pytest.fixture(scope="module")
def numbers() -> JointBoundedNumbers:
    found = method().plan(SCHEMA, 100).numbers
    assert isinstance(found, JointBoundedNumbers)
    return found


def made_up_rows(n: int) -> dict[str, Any]:
    draws = Stream.from_seed(1).generator()
    return {"x": draws.random(n), "age": draws.integers(0, 100, n), "y": 2 * draws.random(n) - 1}


def chi_square(noise: Floats, masses: Floats, box: BoxDensity) -> float:
    """Return the p-value of noise in a grid of cells, given their probabilities."""
    edges = [np.linspace(a, b, len(masses) + 1) for a, b in zip(box.lower, box.upper, strict=True)]
    counts = np.histogramdd(noise, edges)[0]
    common = masses * len(noise) > 5
    rest = len(noise) - counts[common].sum(), len(noise) * (1 - masses[common].sum())
    observed, expected = np.append(counts[common], rest[0]), np.append(masses[common] * len(noise), rest[1])
    return float(stats.chi2.sf(np.sum((observed - expected) ** 2 / expected), len(expected) - 1))


def cell_masses(density: Any, box: BoxDensity, cells: int = 12) -> Floats:
    """Return the mass of each cell of a grid, by a rule of 8 by 8 points."""
    nodes, weights = np.polynomial.legendre.leggauss(8)
    places = (np.arange(cells)[:, None] + (nodes + 1) / 2).ravel() / cells
    x, y = (low + (high - low) * places for low, high in zip(box.lower, box.upper, strict=True))
    values = density(np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2))
    heavy = np.tile(weights, cells) / 2 / cells
    table = values.reshape(len(x), -1) * np.outer(heavy, heavy) * float(np.prod(box.upper - box.lower))
    return np.asarray(table.reshape(cells, 8, cells, 8).sum(axis=(1, 3)))


def test_released_noise_follows_the_joint_density_and_that_of_a_product_is_caught(
    numbers: JointBoundedNumbers,
) -> None:
    rows = made_up_rows(20_000)
    released = method().release(rows, shuffle=False)
    noise = np.column_stack([released.columns[name] - rows[name] for name in ("y", "x")])
    box = numbers.box
    assert (noise >= box.lower - box.step).all()
    assert (noise <= box.upper + box.step).all()
    assert chi_square(noise, cell_masses(box.pdf, box), box) > 1e-9
    alone = product_density(box.lower, box.upper, weights=box.weights, regularization=1.0)
    product = cell_masses(lambda n: alone[0].pdf(n[:, 0]) * alone[1].pdf(n[:, 1]), box)
    assert chi_square(noise, product, box) < 1e-9
    matrix = np.column_stack([released.columns[name] for name in ("x", "age", "y")])
    assert numbers.is_possible(matrix).all()
    assert not numbers.is_possible(matrix + 1e-9)[:, [0, 2]].any()
    assert not numbers.is_possible(matrix + 5.0)[:, [0, 2]].any()


def test_the_box_has_the_block_of_the_weights_that_enters_the_objective(numbers: JointBoundedNumbers) -> None:
    places = [2, 0]
    block = np.linalg.inv(np.linalg.inv(WEIGHTS)[np.ix_(places, places)])
    assert np.allclose(numbers.box.weights, block, rtol=1e-12)
    assert numbers.box.lower.tolist() == [-0.5, -0.5]
    assert numbers.box.upper.tolist() == [1.0, 0.5]
    own = BoxDensity(
        lower=np.array([-0.5, -0.5]), upper=np.array([1.0, 0.5]), weights=block, regularization=1.0
    )
    assert numbers.box.objective == pytest.approx(own.objective, rel=1e-9)


def test_a_scaled_law_is_the_one_that_is_solved_for_anew(numbers: JointBoundedNumbers) -> None:
    scaled, box = numbers.scaled(3.0).box, numbers.box
    fresh = BoxDensity(
        lower=3 * box.lower, upper=3 * box.upper, weights=box.weights, regularization=box.regularization / 81
    )
    assert scaled.objective == pytest.approx(fresh.objective, rel=1e-9)
    assert np.allclose(scaled.covariance, 9 * box.covariance)
    assert np.allclose(fresh.covariance, scaled.covariance, rtol=1e-6)


def test_the_law_of_a_column_is_the_marginal_of_the_joint_one(numbers: JointBoundedNumbers) -> None:
    law = numbers.law(SCHEMA.column("x"))
    assert isinstance(law, JointBoundedLaw)
    assert law_from_dict(json.loads(json.dumps(law.to_dict()))) == law
    assert "drawn together with that of 1 more" in law.words()
    grid = np.linspace(law.lower, law.upper, 20_001)
    density = numbers.box.marginal(1, grid)
    step = grid[1] - grid[0]
    assert density.sum() * step == pytest.approx(1, abs=1e-9)
    assert (density * (grid - law.mean) ** 2).sum() * step == pytest.approx(law.variance, rel=1e-7)
    channel = build_channel(SCHEMA.column("x"), law)
    likely = channel.log_likelihood(np.array([0.6]), np.array([0.5]))  # type: ignore[union-attr]
    assert float(likely[0]) == pytest.approx(math.log(numbers.box.marginal(1, np.array([0.1]))[0]), abs=1e-4)


def conditional_mean_square(box: BoxDensity, j: int, width: float) -> float:
    """Return the Bayes error of a uniform value, by who knows the noise of the other column: a fine sum."""
    size = 200
    ends = [np.linspace(a, b, size + 1) for a, b in zip(box.lower, box.upper, strict=True)]
    own, other = ((e[1:] + e[:-1]) / 2 for e in (ends[j], ends[1 - j]))
    points = np.stack(np.meshgrid(own, other, indexing="ij"), axis=-1).reshape(-1, 2)
    joint = box.pdf(points if j == 0 else points[:, ::-1]).reshape(size, size)
    joint /= joint.sum()
    step = own[1] - own[0]
    values = np.arange(0, width, step) + step / 2
    total = 0.0
    for k in range(0, size, 4):
        given = joint[:, k]
        # Published values are at multiples of the step: a convolution of the prior with the noise.
        mass = np.convolve(given, np.ones(len(values)))
        first = np.convolve(given, values)
        second = np.convolve(given, values**2)
        seen = mass > 0
        total += float(np.sum(second[seen] - first[seen] ** 2 / mass[seen])) / len(values)
    return total / float(joint[:, ::4].sum())


@pytest.mark.slow
def test_the_floor_holds_against_who_knows_the_other_cells_and_that_of_the_marginal_does_not() -> None:
    ends, weights = np.ones(2), np.array([[1, 0.95], [0.95, 1]])
    box = BoxDensity(lower=-ends, upper=ends, weights=weights, regularization=0.0)
    width = 4.0
    found = conditional_mean_square(box, 0, width)
    information = float(box.information[0, 0])
    floor = uniform_mean_square(information, width)
    assert 0.6 * found < floor < found
    # A twin that takes the information of the marginal alone promises more than is true.
    grid = np.linspace(-1, 1, 200_001)[1:-1]
    density = box.marginal(0, grid)
    alone = float(np.sum(np.gradient(density, grid) ** 2 / np.maximum(density, 1e-300)) * (grid[1] - grid[0]))
    assert alone < 0.7 * information
    assert uniform_mean_square(alone, width) > found


@pytest.mark.parametrize("sd", [0.01, 0.1, 0.5, 3.0])
def test_the_bound_of_van_trees_is_below_the_exact_error_and_near_it(sd: float) -> None:
    exact = floors.bayes_floor(floors.GaussianNoise(sd), uniform_prior(Column("v", lower=0, upper=1))) ** 2
    bound = uniform_mean_square(1 / sd**2, 1.0)
    assert 0.8 * exact < bound <= exact * (1 + 1e-9)


def test_numbers_have_floors_and_whole_numbers_that_share_noise_have_none() -> None:
    plan = method().plan(SCHEMA, 100)
    stated = {done.column: done.floor for done in plan.columns}
    assert all(stated[name] is not None for name in ("x", "age", "y"))
    whole = method(joint=["x", "age"], regularization=0.0).plan(SCHEMA, 100)
    assert {done.column: done.floor is None for done in whole.columns} == {
        "x": False,
        "age": True,
        "y": False,
    }
    (own, *others) = plan.promises
    assert isinstance(own, NoPromise)
    assert own.covers == ("y", "x")
    assert 0 < own.total_variation < 1e-8
    assert any(isinstance(promise, ErrorFloor) for promise in others)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"joint": ["x"]}, ParameterError, "two or three different columns"),
        ({"joint": ["x", "x"]}, ParameterError, "two or three different columns"),
        ({"joint": "x,y"}, ParameterError, "two or three different columns"),
        ({"weights": None}, ParameterError, "must be a matrix where joint="),
        ({"joint": ["x", "z"]}, ParameterError, "'z' is none"),
        ({"support": None, "privacy": ErrorFloor({"x": 0.1})}, PromiseError, "given with support"),
    ],
)
def test_what_cannot_be_shared_is_refused(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        method(**change).plan(SCHEMA, 100)


def test_a_method_is_made_again_from_its_parameters() -> None:
    again = BoundedRelease.from_parameters(json.loads(json.dumps(method().parameters())), schema=SCHEMA)
    assert again.joint == ("y", "x")
    assert np.array_equal(np.asarray(again.weights), WEIGHTS)


@pytest.mark.slow
@pytest.mark.parametrize("joint", [["y", "x"], ["x", "age", "y"]])
def test_a_published_folder_is_verified(tmp_path: Path, joint: list[str]) -> None:
    done = publish(
        made_up_rows(500),
        method=method(joint=joint, random_state=None, regularization=0.0),
        ledger=False,
        out=tmp_path / "out",
    )
    assert not verify(done.public).failures
    law = done.statement.numbers.columns[0].law
    assert list(law["columns"]) == joint
    assert done.statement.implementation.total_variation > 0
