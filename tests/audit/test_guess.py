from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from discreet.audit import Guess, Reidentification
from discreet.audit._guess import approximate_rms_interval, floor_verdict, rms_interval, share_interval
from discreet.errors import ParameterError

GUESS = Guess(
    attack="posterior mean", column="age", statistic="root-mean-square error", measure="years", error=9.1,
    lower=8.8, upper=9.4, failure_probability=1e-8, without=21.4, floor=9.0, verdict="holds", on="prior",
    knowledge="the law", n=20_000, seconds=0.5, note="",
)  # fmt: skip
EXPOSED = Reidentification(
    attack="linkage", success=0.2, lower=0.1, upper=0.3, chance=0.01, n=100, failure_probability=0.05,
    knowledge="a true record", sentence="Found in 20 %.",
)  # fmt: skip


@pytest.mark.parametrize("value", [GUESS, EXPOSED], ids=["guess", "exposed"])
def test_json_there_and_back(value: Any) -> None:
    written = json.loads(json.dumps(value.to_dict()))
    assert type(value).from_dict(written) == value
    for wrong in ({**written, "kind": "other"}, {**written, "more": 1}, {"kind": written["kind"]}):
        with pytest.raises(ParameterError, match="from_dict"):
            type(value).from_dict(wrong)
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.n = 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"verdict": "fine"}, "verdict of Guess"),
        ({"on": "moon"}, "on of Guess"),
        ({"statistic": "bias"}, "statistic of Guess"),
        ({"upper": 9.0}, "interval of Guess"),
        ({"lower": -1.0}, "interval of Guess"),
        ({"error": float("nan")}, "interval of Guess"),
        ({"failure_probability": 1.0}, "failure_probability of Guess"),
        ({"floor": None}, 'Say "no floor"'),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        dataclasses.replace(GUESS, **change)


def test_it_says_what_it_found() -> None:
    assert "age, posterior mean: holds. Root-mean-square error 9.1 years (8.8 to 9.4), floor 9," in str(GUESS)
    assert str(EXPOSED) == "linkage: Found in 20 %."
    with pytest.raises(ParameterError, match="attack of Reidentification"):
        dataclasses.replace(EXPOSED, attack="theft")  # type: ignore[arg-type]


def test_a_floor_is_broken_only_by_the_whole_interval() -> None:
    assert floor_verdict(9.0, 8.999) == "broken"
    assert floor_verdict(9.0, 9.0) == "holds"
    assert floor_verdict(None, 0.0) == "no floor"


def test_guesses_outside_the_range_are_moved_into_it_first() -> None:
    truth = np.array([0.0, 10.0, 5.0, 5.0])
    wild = np.array([-100.0, 300.0, 5.0, 8.0])
    assert approximate_rms_interval(wild, truth, (0.0, 10.0), 0.05)[0] == pytest.approx(1.5)


def test_an_error_beyond_the_largest_possible_counts_as_that() -> None:
    truth = np.zeros(4)
    error, lower, upper = rms_interval(np.array([0.0, 3.0, 5.0, 500.0]), truth, 10.0, 1e-6)
    assert error == pytest.approx(np.sqrt((9 + 25 + 100) / 4))
    assert lower < error < upper <= 10 * (1 + 1e-9)


def test_the_interval_of_a_share_holds_it() -> None:
    for hits in (0, 3, 10):
        share, lower, upper = share_interval(np.arange(10) < hits, 1e-6)
        assert lower <= share == hits / 10 <= upper
