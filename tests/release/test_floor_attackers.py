"""Every floor that a release states, against a Bayes attacker written from scratch and a blind guess.

The attackers know the mechanism and the prior, and integrate. They share no code with the floors: densities,
posteriors and the way a value is stored are written out here.
"""

from __future__ import annotations

import datetime
import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from discreet.confidence import clopper_pearson
from discreet.errors import PromiseError
from discreet.noise import InRange, Stream
from discreet.noise.bounded import BoundedDensity
from discreet.noise_law import JointResponseLaw, ResponseLaw, SampledLaw
from discreet.privacy import ErrorFloor, PureDP, floors
from discreet.privacy.bounded import in_range_epsilon, in_range_floor, in_range_law
from discreet.privacy.priors import UniformPrior
from discreet.release import (
    BoundedRelease,
    CoarseRelease,
    GaussianRelease,
    InputPerturbation,
    LaplaceRelease,
)
from discreet.schema import Column, Schema
from tests.draws import Draws

CLOSE = 2e-3
"""How far the attackers' integrals are off, relative to the error."""


# --- numbers -----------------------------------------------------------------------------------


class Values:
    """What a person's value may be under the prior, and how it is stored.

    ``stored`` are the numbers that the mechanism sees, counted from the lower bound, each with its
    probability; ``mean`` and ``within`` are mean and mean variance of the values that are stored so.
    """

    def __init__(self, column: Column, points: int = 401) -> None:
        lower, upper = (Fraction(bound) for bound in column.range)
        if column.type == "number":
            true = [lower + (upper - lower) * Fraction(2 * i + 1, 2 * points) for i in range(points)]
            self.blind = float(upper - lower) / math.sqrt(12)
        else:
            true = [lower + i for i in range(int(upper - lower) + 1)]
            self.blind = math.sqrt((len(true) ** 2 - 1) / 12)
        self.cells = np.array([float(x) for x in true])
        kept, place = np.unique(self.cells, return_inverse=True)
        exact = np.array([float(x - lower) for x in true])
        self.stored = np.array([float(Fraction(x) - lower) for x in kept.tolist()])
        self.weight = np.bincount(place) / len(true)
        self.mean = np.bincount(place, exact) / np.bincount(place)
        self.within = float(np.mean((exact - self.mean[place]) ** 2))
        if column.type == "number":
            self.within += float(((upper - lower) / points) ** 2) / 12

    def errors(self, likelihood: np.ndarray) -> tuple[float, float]:
        """Root-mean-square error of the best guess at the value, and at what is stored.

        ``likelihood`` has a row for each stored number and a column for each output, whose probability (or
        density times width) it is.
        """
        joint = self.weight[:, None] * likelihood
        mass = np.maximum(joint.sum(axis=0), 1e-300)
        found = []
        for target, within in ((self.mean, self.within), (self.stored, 0.0)):
            guess = (target @ joint) / mass
            found.append(math.sqrt(within + float(np.sum(joint * (target[:, None] - guess) ** 2))))
        return found[0], found[1]

    def under(self, density: Any, reach: float, points: int = 3001) -> tuple[float, float]:
        """The same for noise that is added."""
        y, step = np.linspace(self.stored[0] - reach, self.stored[-1] + reach, points, retstep=True)
        return self.errors(density(y - self.stored[:, None]) * step)


def gaussian(sd: float) -> tuple[Any, float]:
    return lambda n: np.exp(-0.5 * (n / sd) ** 2) / (sd * math.sqrt(2 * math.pi)), 7 * sd


def laplace(scale: float) -> tuple[Any, float]:
    return lambda n: np.exp(-np.abs(n) / scale) / (2 * scale), 18 * scale


def cosine(half: float) -> tuple[Any, float]:
    return (
        lambda n: np.where(np.abs(n) < half, np.cos(0.5 * math.pi * n / half) ** 2 / half, 0.0),
        half,
    )


def spherical(scale: float, beside: float) -> tuple[Any, float]:
    """Two-dimensional noise, where the noise of the other column is known to be so many scales."""

    def density(n: np.ndarray) -> np.ndarray:
        return np.exp(-np.hypot(n / scale, beside))

    grid = np.linspace(-30, 30, 6001)
    total = float(density(grid * scale).sum()) * (grid[1] - grid[0]) * scale
    return lambda n: density(n) / total, 24 * scale


def random_column(rng: Draws, kind: str, **more: Any) -> Column:
    if kind == "date":
        start = datetime.date(1900, 1, 1) + datetime.timedelta(days=rng.whole(0, 40_000))
        return Column("x", lower=start, upper=start + datetime.timedelta(days=rng.whole(1, 60)), **more)
    if kind == "integer":
        lower = rng.choice([0, -7, 17, 10**9, 2**52, -(2**53)])
        return Column("x", type="integer", lower=lower, upper=lower + rng.whole(1, 60), **more)
    if kind == "near zero":
        width = 10.0 ** rng.uniform(-30, 30)
        lower = rng.choice([0.0, -0.5, -1.0, 3.0]) * width
        return Column("x", lower=lower, upper=lower + width, **more)
    # So few numbers between the bounds that rounding to them matters.
    lower = rng.choice([1.0, -1.0]) * 10.0 ** rng.uniform(3, 15.9)
    upper = lower
    for _ in range(rng.choice([1, 2, 3, 5, 17, 200])):
        upper = math.nextafter(upper, math.inf)
    return Column("x", lower=lower, upper=upper, **more)


KINDS = ["near zero", "few ulps", "integer", "date"]
METHODS = ["gaussian", "laplace", "bounded", "in-range", "input-perturbation", "input-perturbation of two"]


def stated_and_true(method: str, column: Column, size: float) -> tuple[Any, Values, tuple[float, float]]:
    """Plan a release of one number, and attack what it does."""
    schema = Schema(columns=[column])
    values = Values(column)
    width = column.width
    if method == "gaussian":
        plan: Any = GaussianRelease(scale=size * width, schema=schema).plan(schema, 10)
        true = values.under(*gaussian(size * width))
    elif method == "laplace":
        plan = LaplaceRelease(scale=size * width, schema=schema).plan(schema, 10)
        true = values.under(*laplace(size * width))
    elif method == "bounded":
        plan = BoundedRelease(support=2 * size * width, schema=schema).plan(schema, 10)
        true = values.under(*cosine(2 * size * width))
    elif method == "in-range":
        plan = BoundedRelease(privacy=PureDP(epsilon=min(3 / size, 38)), in_range=True, schema=schema).plan(
            schema, 10
        )
        law = plan.numbers.laws[0]
        stored = np.unique(values.cells)
        true = values.errors(law.masses[law.quantize(stored)] * 2.0**-63)
    elif method == "input-perturbation":
        plan = InputPerturbation(privacy=PureDP(epsilon=min(2 / size, 20)), schema=schema).plan(schema, 10)
        true = values.under(*laplace(plan.columns[0].law.scale))
    else:
        schema = Schema(columns=[column, Column("beside", lower=0, upper=1)])
        plan = InputPerturbation(privacy=PureDP(epsilon=min(3 / size, 20)), schema=schema).plan(schema, 10)
        # The other column's noise, in scales, has the density of one coordinate; a dozen quantiles of it.
        normal = Draws("noise").normal
        draws = sorted(math.hypot(*(normal() for _ in range(3))) * normal() for _ in range(4000))
        draws = draws[166::333]
        parts = [values.under(*spherical(plan.columns[0].law.scale, float(d)), points=1501) for d in draws]
        squares = np.mean(np.square(parts), axis=0)
        true = (math.sqrt(squares[0]), math.sqrt(squares[1]))
    return plan, values, true


def check_numbers(method: str, kind: str, seed: int, cases: int) -> int:
    rng = Draws(f"{seed} {method} {kind}")
    stated = 0
    for _ in range(cases):
        # Where no floor may be proven, nothing would say how to randomize "missing".
        more = {"required": False} if kind != "few ulps" and rng.random() < 0.3 else {}
        column = random_column(rng, kind, **more)
        size = 10.0 ** rng.uniform(-1.3, 0.7)
        if kind in ("integer", "date"):
            size = max(size, 0.3 / column.width)
        in_range_epsilon.cache_clear()  # it remembers tables of 16 MB
        plan, values, true = stated_and_true(method, column, size)
        floor = plan.columns[0].floor
        if floor is None:
            continue
        stated += 1
        slack = 0.05 if method.endswith("two") else CLOSE
        assert floor.error <= values.blind, (method, column, size)
        assert floor.error <= min(true) * (1 + slack), (method, column, size, floor.error, true)
        if kind != "few ulps" and not method.endswith("two"):
            assert floor.error >= min(true) * (1 - CLOSE), (method, column, size, floor.error, true)
        if floor.van_trees is not None:
            assert floor.van_trees <= values.blind
    return stated


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [*METHODS[:-1], pytest.param(METHODS[-1], marks=pytest.mark.slow)])
def test_no_attacker_beats_a_floor_of_a_number(method: str, kind: str) -> None:
    assert check_numbers(method, kind, 1, 3) >= (0 if kind == "few ulps" else 2)


@pytest.mark.stats
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", METHODS)
def test_no_attacker_beats_a_floor_of_many_numbers(method: str, kind: str) -> None:
    assert check_numbers(method, kind, 2, 60) >= (0 if kind == "few ulps" else 50)


@pytest.mark.parametrize("steps", [1, 2, 16, 1000])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 38.0])
def test_the_in_range_floor_is_the_same_far_from_zero(steps: int, epsilon: float) -> None:
    lower, upper = 1e15, 1e15 + 0.125 * steps
    column = Column("x", lower=lower, upper=upper)
    law = in_range_law(epsilon, lower, upper)
    prior = UniformPrior(lower, upper)
    values = Values(column, points=4001)
    true, _ = values.errors(law.masses[law.quantize(np.unique(values.cells))] * 2.0**-63)
    floor = in_range_floor(law, prior)
    assert floor <= true * (1 + 1e-5)
    assert floor >= true * (1 - 1e-3)
    assert floor <= values.blind
    if steps < 1000:
        # The twin reads means off the values themselves, which have few digits left.
        assert cancelling_floor(law) > 1.01 * true


def cancelling_floor(law: InRange) -> float:
    """A wrong twin: moments about zero of a range that is far from it."""
    weight = np.full(law.inputs, 1.0 / (law.inputs - 1))
    weight[[0, -1]] *= 0.5
    joint = law.masses * (weight * 2.0**-63)[:, None]
    center = (law.grid @ joint) / joint.sum(axis=0)
    return math.sqrt(float(np.sum(joint * (law.grid[:, None] - center) ** 2)))


def test_a_floor_that_forgets_how_values_are_stored_is_beaten() -> None:
    lower = 1e15
    column = Column("x", lower=lower, upper=lower + 0.125)
    sd = 0.125
    true = Values(column).under(*gaussian(sd))
    twin = math.sqrt(floors.GaussianNoise(sd).interval_mean_square(0.125))
    assert twin > 1.03 * min(true)
    schema = Schema(columns=[column])
    assert GaussianRelease(scale=sd, schema=schema).plan(schema, 10).columns[0].floor is None
    with pytest.raises(PromiseError, match="Subtract a public constant"):
        GaussianRelease(privacy=ErrorFloor(x=0.01), schema=schema).plan(schema, 10)


# --- lists -------------------------------------------------------------------------------------


def channel(law: Any, own: int) -> tuple[np.ndarray, float]:
    """Chances of each answer about a column with ``own`` levels, and how often there is one.

    Of an answer for several columns, the others are uniform on all of their levels.
    """
    share = 1.0
    if isinstance(law, SampledLaw):
        share, law = law.picked / law.among, law.law
    assert isinstance(law, ResponseLaw | JointResponseLaw)
    beside = law.levels // own
    table = np.full((own, own, beside), (1 - law.keep) / (law.levels - 1))
    for i in range(own):
        # The answer holds the truth about the other columns as well; which it is matters little to us.
        table[i, i] += (law.keep - (1 - law.keep) / (law.levels - 1)) / beside
    return table.reshape(own, -1), share


def least_wrong(table: np.ndarray, share: float, listed: list[int], rows: int) -> float:
    """How often the best guess among the listed values is wrong, over all answers of all rows."""
    right = 0.0
    rows_of = table[listed]
    for shown in range(rows + 1):
        chance = math.comb(rows, shown) * share**shown * (1 - share) ** (rows - shown)
        best = sum(
            float(np.prod(rows_of[:, list(answers)], axis=1).max())
            for answers in itertools.product(range(table.shape[1]), repeat=shown)
        )
        right += chance * best / len(listed)
    return 1 - right


def random_list(rng: Draws, name: str) -> Column:
    count = rng.whole(1, 5)
    kind = rng.whole(0, 2)
    values: Any = tuple("abcdefg"[:count]) if kind else tuple(range(count))
    if kind == 2 and count > 1:
        values = (*values[:-1], "other")  # then it is a value like any other
    required = rng.random() < 0.5
    closed = rng.random() < 0.4 if kind else None
    if count == 1 and closed is not False and required:
        return Column(name, values=("a", "b"))
    return Column(name, values=values, required=required, closed=closed)


def listed_codes(column: Column) -> list[int]:
    return [
        i for i, level in enumerate(column.levels) if column.values is not None and level in column.values
    ]


@pytest.mark.parametrize(
    "method", ["gaussian", "laplace", "bounded", "in-range", "input-perturbation", "coarse"]
)
def test_no_attacker_beats_a_floor_of_a_list(method: str) -> None:
    rng = Draws(method)
    stated = 0
    for case in range(40):
        columns = [random_list(rng, name) for name in ("u", "v", "w")[: rng.whole(1, 3)]]
        rows = rng.choice([1, 1, 1, 2, 3]) if len(columns) == 1 else 1
        more: dict[str, Any] = {}
        if rows > 1:
            more = {"id_column": "who", "max_rows_per_unit": rows}
            columns.append(Column("who", type="id", role="id"))
        schema = Schema(columns=columns, **more)
        epsilon = PureDP(epsilon=10.0 ** rng.uniform(-1, 1))
        share = rng.uniform(0.02, 0.98)
        asked = ErrorFloor(
            {c.name: share * (1 - 1 / len(c.values)) for c in columns if c.values and len(c.values) > 1}
            or {"u": 0.5}
        )
        only_ones = all(not c.values or len(c.values) == 1 for c in columns)
        if method == "coarse":
            joint = ("u", "v") if len(columns) == 3 and rng.random() < 0.5 else None
            plan: Any = CoarseRelease(privacy=epsilon, joint=joint, schema=schema).plan(schema, 10)
        elif method == "in-range":
            plan = BoundedRelease(privacy=epsilon, in_range=True, schema=schema).plan(schema, 10)
        elif method == "input-perturbation":
            plan = InputPerturbation(privacy=epsilon, schema=schema).plan(schema, 10)
        elif only_ones:
            with pytest.raises(PromiseError, match="lists one value"):
                GaussianRelease(privacy=asked, schema=schema).plan(schema, 10)
            continue
        else:
            kind = {"gaussian": GaussianRelease, "laplace": LaplaceRelease, "bounded": BoundedRelease}[method]
            plan = kind(privacy=asked, schema=schema).plan(schema, 10)
        for summary in plan.columns:
            column = schema.column(summary.column)
            listed = listed_codes(column)
            table, shown = channel(summary.law, len(column.levels))
            true = least_wrong(table, shown, listed, rows)
            blind = 1 - 1 / len(listed)
            if summary.floor is None:
                assert len(listed) == 1
                continue
            stated += 1
            assert summary.floor.error <= true + 1e-12, (case, column, summary)
            assert summary.floor.error <= blind
            if rows == 1:
                assert summary.floor.error >= true - 1e-9
            if column.name in asked.columns and method in ("gaussian", "laplace", "bounded"):
                assert summary.floor.error >= asked[column.name].error
    assert stated >= 30


@pytest.mark.parametrize("required", [True, False])
@pytest.mark.parametrize("values", [("f", "m"), ("a", "b", "c")])
def test_a_prior_with_other_and_missing_in_it_is_beaten(values: tuple[str, ...], required: bool) -> None:
    column = Column("sex", values=values, required=required)
    schema = Schema(columns=[column])
    largest = 1 - 1 / len(values)
    for method in (GaussianRelease, LaplaceRelease, BoundedRelease):
        with pytest.raises(PromiseError, match=f"must be below {largest:.9g}"):
            method(privacy=ErrorFloor(sex=largest + 0.1), schema=schema).plan(schema, 10)
        plan: Any = method(privacy=ErrorFloor(sex=0.9 * largest), schema=schema).plan(schema, 10)
        true = np.repeat(np.arange(len(values)), 20_000)
        published = plan.draw({"sex": true}, Stream.from_seed(1))["sex"]
        wrong = int(np.sum(np.where(published < len(values), published, 0) != true))
        low, high = clopper_pearson(wrong, true.size, 1e-10)
        assert low <= plan.columns[0].floor.error <= high
        # The twin gives "other" and "missing" weight, and promises more than this attacker leaves.
        assert floors.wrong_guess_floor(plan.responses[0].keep, len(column.levels)) > high
    coarse: Any = CoarseRelease(privacy=PureDP(epsilon=1), schema=schema).plan(schema, 10)
    published = coarse.draw({"sex": true}, Stream.from_seed(2))["sex"]
    wrong = int(np.sum(np.where(published < len(values), published, 0) != true))
    low, high = clopper_pearson(wrong, true.size, 1e-10)
    assert low <= coarse.columns[0].floor.error <= high
    assert 1 - coarse.cells[0].keep > high


def test_values_that_only_groups_hold_have_no_floor_of_their_own() -> None:
    column = Column("job", values=("clerk", "nurse", "cook"), required=False)
    schema = Schema(columns=[column, Column("age", lower=0, upper=90)])
    method = CoarseRelease(
        privacy=PureDP(epsilon=1),
        groups={"job": {"hospital": ["nurse"], "rest": ["clerk", "cook", "other"]}},
        schema=schema,
    )
    job = next(s for s in method.plan(schema, 10).columns if s.column == "job")
    assert job.floor is not None
    assert job.floor.error < 0.5
    all_in_one = CoarseRelease(
        privacy=PureDP(epsilon=1), groups={"job": {"work": ["nurse", "clerk", "cook"]}}, schema=schema
    ).plan(schema, 10)
    job = next(s for s in all_in_one.columns if s.column == "job")
    assert job.floor is None
    assert "job" in (all_in_one.promises[0].covers or ())


def test_a_bounded_density_is_the_cosine_squared_that_the_attacker_knows() -> None:
    density, reach = cosine(3.0)
    grid = np.linspace(-reach, reach, 101)
    assert np.allclose(BoundedDensity(lower=-3, upper=3).pdf(grid), density(grid), atol=1e-9)


def test_a_floor_above_a_blind_guess_is_refused_for_the_column_that_asked_for_it() -> None:
    schema = Schema(
        columns=[Column("age", type="integer", lower=0, upper=120), Column("sex", values=("f", "m"))]
    )
    method = GaussianRelease(privacy=ErrorFloor(sex=0.6), schema=schema)
    with pytest.raises(PromiseError, match=r"column 'sex' must be below 0\.5, and was 0\.6"):
        method.plan(schema, 100)
