"""Results of attacks as values: frozen, written and read back, said in a sentence."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle

import pytest

from discreet.audit import AuditResult
from discreet.errors import ParameterError
from discreet.privacy.promises import ApproxDP, GaussianDP, NoPromise, PureDP

RESULTS = [
    AuditResult(
        attack="distinguish",
        claim=ApproxDP(epsilon=1.0, delta=1e-6, covers=("age",)),
        verdict="broken",
        reason="It leaks.",
        quantity="epsilon at delta 1e-06, at least",
        measured=2.5,
        allowed=1.0,
        failure_probability=1e-6,
        n=1000,
        knowledge="all but one row",
        details={"event": "x >= 3", "hits": [10, 2]},
    ),
    AuditResult(
        attack="density", claim=PureDP(epsilon=1.0), verdict="broken", reason="It excludes an input.",
        quantity="largest privacy loss", measured=math.inf, allowed=1.0,
    ),
    AuditResult(attack="none", claim=NoPromise("nothing"), verdict="not tested", reason="Nothing to test."),
]  # fmt: skip


@pytest.mark.parametrize("result", RESULTS, ids=lambda r: r.attack)
def test_a_result_is_read_back_equal_from_strict_json_and_from_a_pickle(result: AuditResult) -> None:
    text = json.dumps(result.to_dict(), allow_nan=False)
    assert AuditResult.from_dict(json.loads(text)) == result
    assert pickle.loads(pickle.dumps(result)) == result


def test_a_result_cannot_be_changed_not_even_inside() -> None:
    details = {"hits": [1, 2]}
    result = dataclasses.replace(RESULTS[0], details=details)
    details["hits"].append(3)
    assert result.details["hits"] == [1, 2]
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.verdict = "holds"  # type: ignore[misc]
    with pytest.raises(TypeError):
        result.details["hits"] = []  # type: ignore[index]


def test_the_sentence_says_verdict_claim_measure_and_how_sure() -> None:
    said = str(RESULTS[0])
    for part in ("distinguish: broken", "epsilon = 1", "It leaks.", "2.5", "at most 1e-06"):
        assert part in said
    assert "no randomness" in str(RESULTS[1])
    assert str(RESULTS[2]).startswith("none: not tested (no promise")


def test_strain_is_measured_over_allowed() -> None:
    assert RESULTS[0].strain == 2.5
    assert RESULTS[1].strain == math.inf
    assert RESULTS[2].strain == 0
    nothing_allowed = dataclasses.replace(RESULTS[0], allowed=0.0)
    assert nothing_allowed.strain == math.inf
    assert dataclasses.replace(nothing_allowed, measured=0.0).strain == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"verdict": "fine"}, "verdict of AuditResult"),
        ({"measured": None}, "measured and allowed"),
        ({"failure_probability": 1.5}, "failure_probability of AuditResult"),
    ],
)
def test_impossible_results_are_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        dataclasses.replace(RESULTS[0], **change)  # type: ignore[arg-type]


def test_unknown_kinds_and_keys_are_refused() -> None:
    values = RESULTS[0].to_dict()
    with pytest.raises(ParameterError, match="kind of an audit result"):
        AuditResult.from_dict({**values, "kind": "receipt"})
    with pytest.raises(ParameterError, match="missing or unknown: extra"):
        AuditResult.from_dict({**values, "extra": 1})
    with pytest.raises(ParameterError, match="missing or unknown: n"):
        AuditResult.from_dict({key: value for key, value in values.items() if key != "n"})


def test_every_kind_of_claim_survives() -> None:
    claim = GaussianDP(mu=0.5, unit="person", neighbors="add-remove", total_variation=1e-30)
    result = dataclasses.replace(RESULTS[0], claim=claim)
    assert AuditResult.from_dict(result.to_dict()).claim == claim
