"""Records of the risk of a release: thresholds, verdicts and their JSON."""

import dataclasses
import json
from typing import Any

import pytest

from discreet.audit import AttackRisk, Risk
from discreet.audit.risk import judge, threshold_of
from discreet.errors import ParameterError


def an_attack(**changes: Any) -> AttackRisk:
    """Return an attack whose numbers can be changed."""
    values: dict[str, Any] = {
        "attack": "linkage", "column": None, "known": 3, "knowledge": "3 columns", "prior": "independent",
        "success": 0.05, "lower": 0.04, "upper": 0.06, "baseline": 0.001, "bound": None, "n": 1000,
        "n_rows": 1000, "failure_probability": 0.05, "sentence": "It links 5 %.",
    }  # fmt: skip
    values |= changes
    return AttackRisk(threshold=threshold_of(values["attack"], values["baseline"]), **values)


def a_risk(*attacks: AttackRisk, verdict: Any = "yes") -> Risk:
    return Risk(
        attacks=attacks, sentence="Little.", advice=("Less.",), verdict=verdict, why="Because.", people=1
    )


def test_a_wide_interval_stops_nothing_where_a_promise_bounds_the_gain() -> None:
    wide = {"success": 0.1, "lower": 0.05, "upper": 0.2}
    assert an_attack(**wide, bound=None).is_above
    assert an_attack(**wide, bound=0.95).is_above  # which allows nearly every gain
    assert not an_attack(**wide, bound=0.4).is_above
    assert an_attack(success=0.2, lower=0.15, upper=0.25, bound=0.4).is_above
    # Whoever compares the shown share with its threshold must not read that it is below.
    risk = judge([an_attack(**wide, bound=0.4)], (), gain_bound=0.3, people=1, row_level=True)
    assert (risk.verdict, risk.why[:52]) == ("yes", "No attack is above its threshold by more than chance")


@pytest.mark.parametrize(
    ("gain", "verdict", "why"),
    [
        (0.5, "yes", "lets nobody gain more than 50"),
        (0.51, "with care", "allows a gain of up to 51"),
        (0.999, "with care", "allows any gain"),
        (None, "with care", "no promise of differential privacy"),
    ],
)
def test_yes_needs_a_promise_that_bounds_any_gain_by_half(gain: Any, verdict: str, why: str) -> None:
    risk = judge([an_attack()], (), gain_bound=gain, people=1, row_level=True)
    assert risk.verdict == verdict
    assert why in risk.why


def test_json_round_trip() -> None:
    risk = a_risk(an_attack(), an_attack(attack="membership", success=0.9, upper=0.95, baseline=0.5)).accept(
        "!"
    )
    assert Risk.from_dict(json.loads(json.dumps(risk.to_dict()))) == risk


def test_threshold_is_a_gain_over_the_baseline() -> None:
    """In a table of ten rows chance alone links one in ten, and is no risk of the release."""
    assert an_attack(success=0.1, lower=0.1, upper=0.12, baseline=0.1, n_rows=10).is_above is False
    assert an_attack(success=0.1, lower=0.08, upper=0.12).is_above is True
    assert an_attack(attack="membership", baseline=0.5).threshold == pytest.approx(0.6)


def test_upper_end_decides() -> None:
    assert an_attack(success=0.08, lower=0.06, upper=0.1).is_above
    assert not an_attack(success=0.08, lower=0.06, upper=0.0909).is_above


def test_only_an_unaccepted_no_stops() -> None:
    assert a_risk(verdict="no").stops
    assert not a_risk(verdict="no").accept("agreed with the board").stops
    assert not a_risk(verdict="with care").stops


def test_worst_attack() -> None:
    few, many = an_attack(), an_attack(success=0.5, upper=0.6, known=9)
    assert a_risk(few, many).worst("linkage") == many
    assert a_risk(few).worst("membership") is None


def test_refusals() -> None:
    with pytest.raises(ParameterError, match="verdict of Risk"):
        a_risk(verdict="maybe")
    with pytest.raises(ParameterError, match="attack of AttackRisk"):
        dataclasses.replace(an_attack(), attack="guess")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="was empty"):
        a_risk().accept(" ")
