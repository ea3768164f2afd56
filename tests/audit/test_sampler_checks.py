"""Position and time: every sampler passes at awkward sizes, and what depends on them does not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.audit import MechanismDraws, SingleDraws, check_timing, position
from discreet.errors import ParameterError
from discreet.noise import (
    Stream,
    Whitening,
    discrete_laplace,
    permutation,
    rounded_gaussian,
    spherical_laplace,
    uniform_integers,
)
from discreet.noise.deviates import BLOCK
from discreet.privacy.promises import GaussianDP

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray

CLAIM = GaussianDP(mu=1.0)
BOX = Whitening.diagonal(np.zeros(4), np.ones(4), np.ones(4))

SAMPLERS: dict[str, Callable[[int, Stream], AnyArray]] = {
    "gaussian": lambda n, stream: rounded_gaussian(2.0**20, n, stream),
    "gaussian, any scale": lambda n, stream: rounded_gaussian(777.7, n, stream),
    "laplace": lambda n, stream: discrete_laplace(30.0, n, stream),
    "spherical, vector by vector": lambda n, stream: spherical_laplace(1.0, 2, n, stream)[:, 0],
    "spherical, along one vector": lambda n, stream: spherical_laplace(1.0, n, 1, stream),
    "uniform": lambda n, stream: uniform_integers(3 << 29, n, stream),
    "order": lambda n, stream: permutation(n, stream),
    "whitened": lambda n, stream: BOX.release(np.full(((n + 3) // 4, 4), 0.5), stream),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize(("size", "calls"), [(7, 1_800), (100, 1_800), (BLOCK - 1, 4), (BLOCK + 1, 4)])
def test_no_sampler_knows_where_its_draws_stand(name: str, size: int, calls: int) -> None:
    draw = SAMPLERS[name]
    subject = MechanismDraws(draw=lambda stream: draw(size, stream), claim=CLAIM, calls=calls)
    result = position(subject, stream=Stream.from_seed(1))
    assert result.verdict == "holds", result


@pytest.mark.parametrize("place", [50, *(pytest.param(place, marks=pytest.mark.slow) for place in (0, -1))])
def test_one_position_of_sixty_that_is_five_percent_narrower_is_found(place: int) -> None:
    generator = Stream.from_seed(1).generator()

    def draw(_stream: Stream) -> AnyArray:
        draws = generator.standard_normal(60)
        draws[place] *= 0.95
        return np.asarray(draws)

    result = position(MechanismDraws(draw=draw, claim=CLAIM, calls=60_000))
    assert result.verdict == "broken"
    assert result.details["worst"] == place % 60


def test_too_few_calls_are_refused_and_so_is_one_position() -> None:
    few = MechanismDraws(draw=lambda stream: rounded_gaussian(10.0, 60, stream), claim=CLAIM, calls=20)
    with pytest.raises(ParameterError, match="calls of MechanismDraws"):
        position(few)
    single = MechanismDraws(draw=lambda stream: rounded_gaussian(10.0, 1, stream), claim=CLAIM)
    with pytest.raises(ParameterError, match="draw of MechanismDraws"):
        position(single)


class Clock:
    """A clock that stands still but for the time that a test says has passed."""

    def __init__(self) -> None:
        self.now = 0

    def look(self) -> int:
        self.now += 90  # what it costs to look
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which draws are timed, so that no other work on this machine is."""
    made = Clock()
    monkeypatch.setattr(time, "perf_counter_ns", made.look)
    return made


def test_times_may_drift_and_jump_as_long_as_they_do_not_follow_the_values(clock: Clock) -> None:
    values = iter(rounded_gaussian(1000.0, 2_000, Stream.from_seed(1)))
    pauses = iter(np.linspace(0, 20_000, 2_000).astype(int))

    def draw() -> int:
        clock.now += int(next(pauses))
        return int(next(values))

    assert check_timing(SingleDraws(draw=draw, claim=CLAIM, calls=2_000)).verdict == "holds"


def test_a_time_that_follows_the_size_a_little_is_found(clock: Clock) -> None:
    values = iter(rounded_gaussian(1000.0, 3_000, Stream.from_seed(1)))
    others = iter(rounded_gaussian(3_000.0, 3_000, Stream.from_seed(2)))

    def draw() -> int:
        value = int(next(values))
        clock.now += 10_000 + 5 * abs(value) + abs(int(next(others)))
        return value

    result = check_timing(SingleDraws(draw=draw, claim=CLAIM, calls=3_000))
    assert result.verdict == "broken"
    assert result.details["correlation"] > 0


def test_a_constant_has_no_correlation() -> None:
    assert check_timing(SingleDraws(draw=lambda: 0, claim=CLAIM, calls=50)).measured == 0
