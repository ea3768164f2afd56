"""Input perturbation: spherical noise on every row, its promise, its law and its floors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import integrate, stats

from discreet.audit import attack_prior, distinguish
from discreet.audit.channel import build_channel
from discreet.errors import ParameterError, PromiseError
from discreet.noise import Stream
from discreet.noise_law import SphericalLaw
from discreet.privacy import ApproxDP, ErrorFloor, GaussianDP, PureDP, Spending
from discreet.privacy.floors import GaussianNoise, bayes_floor
from discreet.privacy.priors import UniformPrior
from discreet.release import InputPerturbation
from discreet.release._input_perturbation import SphericalColumn, SphericalNumbers
from discreet.report.verify._noise_tests import Tails
from discreet.schema import Column, Schema
from tests.statistical import ALPHA

if TYPE_CHECKING:
    from discreet._types import AnyArray

COLUMNS = [Column(name, lower=0, upper=10) for name in ("a", "b", "c")]
NUMBERS = Schema(columns=COLUMNS)
LABELED = Schema(columns=[*COLUMNS, Column("y", values=("no", "yes"), role="target")])


def numbers_of(epsilon: float, schema: Schema = NUMBERS, **other: Any) -> SphericalNumbers:
    plan = InputPerturbation(privacy=PureDP(epsilon=epsilon), schema=schema, **other).plan(schema, 100)
    assert isinstance(plan.numbers, SphericalNumbers)
    return plan.numbers


def test_the_noise_of_a_row_has_a_gamma_norm_and_the_published_variance() -> None:
    method = InputPerturbation(privacy=PureDP(epsilon=2), schema=NUMBERS, random_state=1)
    noise = (method.release(np.full((40_000, 3), 5.0)).data - 5.0) / 5.0
    scale = 1 / numbers_of(2).rate
    # The diameter of the cube of side 2 is what epsilon is divided by.
    assert scale == pytest.approx(math.sqrt(3), rel=1e-6)
    assert stats.kstest(np.linalg.norm(noise, axis=1), stats.gamma(3, scale=scale).cdf).pvalue > ALPHA
    law = method.plan(NUMBERS, 1).columns[0].law
    assert isinstance(law, SphericalLaw)
    assert law.variance == pytest.approx(4 * (5 * scale) ** 2)
    assert np.var(noise[:, 0] * 5) == pytest.approx(law.variance, rel=0.05)
    assert abs(np.corrcoef(noise.T) - np.eye(3)).max() < 0.03


def test_the_paper_s_unit_ball_is_a_norm_bound_of_one() -> None:
    numbers = numbers_of(2, norm_bound=1.0)
    assert 1 / numbers.rate == pytest.approx(1.0, rel=1e-6)  # exp(-epsilon |x| / 2)
    far = numbers.release(np.array([[10.0, 10.0, 10.0], [10.0, 5.0, 5.0]]), Stream.from_seed(1))
    zero = numbers.release(np.array([[5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]), Stream.from_seed(1))
    np.testing.assert_allclose(np.linalg.norm(far - zero, axis=1) / 5, [1, 1], atol=1e-6)


def test_every_row_is_noised_by_itself_and_the_last_one_too() -> None:
    method = InputPerturbation(privacy=PureDP(epsilon=2), schema=NUMBERS)
    data = method.release(np.full((7, 3), 5.0)).data
    assert (np.abs(data - 5) > 1e-6).all()
    assert len(np.unique(data)) == data.size


def test_the_promise_is_a_point_event_for_numbers_and_pure_for_labels() -> None:
    method = InputPerturbation(privacy=PureDP(epsilon=2), schema=LABELED)
    numbers, labels, floors = method.plan(LABELED, 1000).promises
    assert isinstance(numbers, ApproxDP)
    assert numbers.delta < 1e-17
    assert numbers.covers == ("a", "b", "c")
    assert isinstance(labels, PureDP)
    assert labels.covers == ("y",)
    assert isinstance(floors, ErrorFloor)
    total = Spending.from_promises((numbers, labels)).epsilon_at(1e-6)
    assert 1.99 < total <= 2


def test_labels_in_the_clear_are_covered_by_nothing() -> None:
    method = InputPerturbation(privacy=PureDP(epsilon=2), schema=LABELED, label="clear", random_state=1)
    rows = {name: np.full(50, 5.0) for name in "abc"} | {"y": np.array(["no", "yes"] * 25)}
    release = method.release(rows, shuffle=False)
    np.testing.assert_array_equal(release.target, rows["y"])
    assert all("y" not in (promise.covers or ()) for promise in release.promises)
    assert any("published as it is" in text for text in release.promises[0].assumes)
    assert any("target 'y'" in text for text in method.not_protected(LABELED))


def cells(epsilon: float) -> Any:
    numbers = numbers_of(epsilon)

    def run(row: AnyArray, stream: Stream) -> AnyArray:
        return numbers.release(np.tile(row, (20_000, 1)), stream)

    return run


def test_two_corners_are_no_easier_to_tell_apart_than_promised_and_half_the_noise_is_caught() -> None:
    low, high = np.zeros(3), np.full(3, 10.0)
    for claimed, drawn, verdict in ((2.0, 2.0, "holds"), (2.0, 4.0, "broken"), (0.5, 0.5, "holds")):
        result = distinguish(
            cells(drawn), low, high, PureDP(epsilon=claimed), n=60_000, stream=Stream.from_seed(1)
        )
        assert result.verdict == verdict


def test_noise_whose_norm_is_exponential_is_caught() -> None:
    scale = 1 / numbers_of(2).rate

    def printed(row: AnyArray, stream: Stream) -> AnyArray:
        generator = stream.generator()
        direction = generator.standard_normal((20_000, 3))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        return np.asarray(row + 5 * direction * generator.exponential(scale, (20_000, 1)))

    low, high = np.zeros(3), np.full(3, 10.0)
    result = distinguish(printed, low, high, PureDP(epsilon=2), n=60_000, stream=Stream.from_seed(1))
    assert result.verdict == "broken"


def test_several_rows_of_one_person_share_the_epsilon() -> None:
    several = Schema(columns=[*COLUMNS, Column("who", role="id")], id_column="who", max_rows_per_unit=4)
    one, four = numbers_of(2), numbers_of(2, several)
    assert four.rate == pytest.approx(one.rate / 4, rel=1e-6)
    plan = InputPerturbation(privacy=PureDP(epsilon=2), schema=several).plan(several, 100)
    assert plan.promises[0].epsilon_at(1e-6) <= 2
    assert all(summary.floor is None for summary in plan.columns)


@pytest.mark.parametrize("dimension", [2, 3, 10])
def test_the_marginal_law_is_a_density_with_the_stated_moments(dimension: int) -> None:
    law = SphericalLaw(variance=(dimension + 1) * 4.0, scale=2.0, dimension=dimension)
    channel = build_channel(Column("x", lower=0, upper=1), law)
    assert channel is not None

    def density(x: float, power: int) -> float:
        return float(x**power * np.exp(channel.log_likelihood(np.array([x]), np.array([0.0]))[0]))

    for power, moment in ((0, 1.0), (2, law.variance), (4, 3 * (dimension + 1) * (dimension + 3) * 16.0)):
        found = 2 * integrate.quad(density, 0, 2.0 * (60 + 4 * dimension), args=(power,), limit=400)[0]
        assert found == pytest.approx(moment, rel=1e-6)
    for x in (-3.0, 0.5, 4.0):
        below = integrate.quad(density, -2.0 * (60 + 4 * dimension), x, args=(0,), limit=400)[0]
        assert channel.cumulative(np.array([x]))[0] == pytest.approx(below, abs=2e-4)  # type: ignore[attr-defined]


@pytest.mark.parametrize("dimension", [2, 5, 20])
def test_the_tails_that_a_verifier_uses_bound_the_moment_generating_function(dimension: int) -> None:
    law = SphericalLaw(variance=(dimension + 1) * 9.0, scale=3.0, dimension=dimension)
    tails = Tails.from_law(law)
    assert tails is not None
    s = np.linspace(0.001, 0.999, 500) / law.scale
    exact = -(dimension + 1) / 2 * np.log1p(-((s * law.scale) ** 2))
    assert (exact <= tails.variance * s**2 / (2 * (1 - tails.scale * s)) * (1 + 1e-12)).all()


def test_the_floor_is_below_the_best_attack_and_above_the_closed_bound() -> None:
    plan = InputPerturbation(privacy=PureDP(epsilon=6), schema=NUMBERS).plan(NUMBERS, 100)
    floor = plan.columns[0].floor
    assert floor is not None
    assert floor.van_trees is not None
    assert floor.van_trees < floor.error
    guesses = attack_prior(plan, n=8_000, stream=Stream.from_seed(1))
    assert {guess.verdict for guess in guesses} == {"holds"}
    best = min(guess.error for guess in guesses if guess.column == "a")
    assert 0.85 * best < floor.error <= best * 1.02


def test_a_floor_that_forgets_the_other_columns_is_above_ours() -> None:
    # Gaussian noise of the same variance says nothing about the radius of a draw; ours may be known.
    column = SphericalColumn(2.0, 4)
    same = GaussianNoise(math.sqrt(5) * 2.0)
    prior = UniformPrior(0, 10)
    ours, theirs = (bayes_floor(noise, prior, lattice_step=1e-9) for noise in (column, same))
    assert ours < theirs
    with pytest.raises(PromiseError, match="one row per unit"):
        column.compose(2)


def test_one_number_alone_is_pure() -> None:
    one = Schema(columns=[Column("x", lower=-1, upper=3)])
    plan = InputPerturbation(privacy=PureDP(epsilon=1), schema=one).plan(one, 10)
    assert isinstance(plan.promises[0], PureDP)
    assert plan.promises[0].epsilon <= 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"privacy": None}, "privacy of InputPerturbation must be a PureDP, was None"),
        ({"privacy": GaussianDP(mu=1)}, "privacy of InputPerturbation must be one of PureDP"),
        ({"privacy": ErrorFloor(a=1)}, "privacy of InputPerturbation must be one of PureDP"),
        ({"norm_bound": 0}, "norm_bound of InputPerturbation must be a finite number above 0"),
        ({"norm_bound": True}, "norm_bound of InputPerturbation"),
        ({"label": "hidden"}, "label of InputPerturbation must be 'randomized' or 'clear'"),
    ],
)
def test_bad_parameters_are_refused_with_a_sentence(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((ParameterError, PromiseError), match=message):
        InputPerturbation(**{"privacy": PureDP(epsilon=1), "schema": NUMBERS, **wrong})


@pytest.mark.parametrize("epsilon", [1e-13, 60.0])
def test_epsilons_that_the_noise_cannot_keep_are_refused(epsilon: float) -> None:
    with pytest.raises((ParameterError, PromiseError), match="epsilon of InputPerturbation must"):
        InputPerturbation(privacy=PureDP(epsilon=epsilon), schema=NUMBERS).plan(NUMBERS, 10)
