"""Bounds on the mean of bounded draws: they hold, they are close, and shortcuts do not hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from discreet.audit import mean_bounds
from discreet.audit._bounds import _STAKES
from discreet.errors import ParameterError
from discreet.noise import Stream, standard_normal

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Floats

LAWS: dict[str, tuple[float, Callable[[int, Stream], Floats]]] = {
    "rare": (0.002, lambda n, s: np.where(s.generator().random(n) < 0.002, 1.0, 0.0)),
    "uniform": (0.5, lambda n, s: s.generator().random(n)),
    "squares": (0.01, lambda n, s: np.clip(0.01 * standard_normal(n, s) ** 2, 0, 1)),
    "often all": (0.97, lambda n, s: np.where(s.generator().random(n) < 0.03, 0.0, 1.0)),
}


@pytest.mark.parametrize("law", LAWS)
def test_the_mean_lies_outside_no_more_often_than_said(law: str) -> None:
    mean, draw = LAWS[law]
    stream = Stream.from_seed(1)
    outside = 0
    for _ in range(400):
        low, high = mean_bounds(draw(300, stream), 0.1)
        outside += not low <= mean <= high
    # At most 40 are expected; 70 would be five standard deviations more.
    assert outside < 70


def test_they_are_as_close_as_the_variance_allows() -> None:
    """Within a factor of two of a normal interval at one in a hundred million."""
    squares = np.clip(0.015 * standard_normal(20_000, Stream.from_seed(2)) ** 2, 0, 1)
    low, high = mean_bounds(squares, 1e-8)
    normal = 5.73 * float(squares.std()) / math.sqrt(squares.size)
    assert low < squares.mean() < high
    assert high - low < 2 * 2 * normal


def test_no_draws_at_all_from_zero_are_still_no_proof_of_zero() -> None:
    low, high = mean_bounds(np.zeros(1_000), 1e-6)
    # With one bet alone this is Clopper and Pearson's bound for no hits.
    assert low == 0
    assert high == pytest.approx(-math.expm1(-math.log(2 * _STAKES / 1e-6) / 1_000), rel=1e-6)
    low, high = mean_bounds(np.ones(1_000), 1e-6)
    assert high == 1
    assert 0.98 < low < 1


def test_the_normal_interval_that_it_replaces_misses_the_rare_large_error() -> None:
    """The twin: mean plus or minus five standard errors, which is nothing where no large error was drawn."""
    stream = Stream.from_seed(3)
    missed = dict.fromkeys(("normal", "ours"), 0)
    for _ in range(200):
        x = LAWS["rare"][1](100, stream)
        normal = float(x.mean() + 5 * x.std() / 10)
        missed["normal"] += normal < 0.002
        missed["ours"] += mean_bounds(x, 1e-6)[1] < 0.002
    assert missed["normal"] > 150
    assert missed["ours"] == 0


@pytest.mark.parametrize("values", [[], [0.5, 1.5], [-0.1], [math.nan], [[0.5]]])
def test_what_is_not_in_the_range_is_refused(values: list[float]) -> None:
    with pytest.raises(ParameterError, match="values of mean_bounds"):
        mean_bounds(np.array(values), 1e-6)
