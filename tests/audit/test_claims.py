"""Promises of differential privacy attacked through a plan; those that break are in tests/broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet.audit import attack_claims
from discreet.audit._suite import _covered_parts, _ExtremeRows
from discreet.errors import ParameterError
from discreet.noise import Stream
from discreet.privacy import ApproxDP, ErrorFloor, PureDP
from discreet.release import BoundedRelease, GaussianRelease, InvariantRelease, LaplaceRelease
from discreet.schema import Column, Schema
from tests.audit.plans import AGE, ENTRY, JOB, SCHEMA, SMOKES, WEIGHT

MISSING = Column("pulse", lower=20, upper=220, required=False)
EVERYTHING = Schema(columns=[AGE, WEIGHT, JOB, SMOKES, ENTRY])
RELEASES: dict[str, tuple[Any, list[str]]] = {
    "gaussian": (
        GaussianRelease(privacy=ApproxDP(epsilon=4, delta=1e-6), schema=EVERYTHING),
        ["gaussian-dp", "pure-dp"],
    ),
    "gaussian by floors": (
        GaussianRelease(privacy=ErrorFloor(age=18), schema=EVERYTHING),
        ["gaussian-dp", "pure-dp"],
    ),
    "laplace": (LaplaceRelease(privacy=PureDP(epsilon=4), schema=EVERYTHING), ["pure-dp", "pure-dp"]),
    "in range": (
        BoundedRelease(privacy=PureDP(epsilon=4), in_range=True, schema=EVERYTHING),
        ["pure-dp", "pure-dp"],
    ),
}


@pytest.mark.parametrize("name", RELEASES)
def test_every_promise_of_a_true_release_is_attacked_and_holds(name: str) -> None:
    release, kinds = RELEASES[name]
    results = attack_claims(release.plan(EVERYTHING, 1_000), stream=Stream.from_seed(1))
    assert [(r.claim.kind, r.attack) for r in results] == [
        (kind, attack) for kind in kinds for attack in ("distinguish", "precision")
    ]
    assert {r.verdict for r in results} == {"holds"}
    assert sum(r.failure_probability for r in results) == pytest.approx(1e-6)
    for distinguish in results[::2]:
        # The attack is a real one: it proves a good part of what is promised.
        assert 0.15 < distinguish.strain <= 1


def test_two_rows_differ_in_what_the_promise_covers_and_in_nothing_else() -> None:
    plan = LaplaceRelease(privacy=PureDP(epsilon=4), schema=EVERYTHING).plan(EVERYTHING, 1_000)
    (_, numbers), (_, lists) = _covered_parts(plan)
    a, b = _ExtremeRows(plan, numbers)._corners()
    assert {name for name in a if a[name] != b[name]} == {"age", "weight", "entry"}
    assert (a["age"], b["age"]) == (17, 90)
    a, b = _ExtremeRows(plan, lists)._corners()
    assert {name for name in a if a[name] != b[name]} == {"job", "smokes", "entry"}
    # Whoever has no date of entry is noised as the middle: so is the other row, and only the flag differs.
    assert (a["entry"], np.isnan(b["entry"])) == (ENTRY.fill, True)


def test_a_table_of_numbers_that_may_all_be_missing_has_one_promise_for_each() -> None:
    schema = Schema(columns=[MISSING])
    plan = LaplaceRelease(privacy=PureDP(epsilon=2), schema=schema).plan(schema, 100)
    (_, numbers), (_, flags) = _covered_parts(plan)
    assert [p.flag for p in numbers] == [False]
    assert [p.flag for p in flags] == [True]
    assert {r.verdict for r in attack_claims(plan, stream=Stream.from_seed(2))} == {"holds"}


def test_correlated_noise_is_attacked_along_its_weakest_diagonal() -> None:
    schema = Schema(columns=[Column(f"x{i}", lower=0, upper=1) for i in range(3)])
    weights = np.full((3, 3), -0.3) + 1.3 * np.eye(3)
    plan = GaussianRelease(regularization=0.01, weights=weights, schema=schema).plan(schema, 100)
    ((promise, parts),) = _covered_parts(plan)
    a, b = _ExtremeRows(plan, parts)._corners()
    step = np.array([b[c.name] - a[c.name] for c in schema.columns])
    information = np.linalg.inv(plan.numbers.covariance)  # type: ignore[union-attr]
    every = np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
    assert step @ information @ step == pytest.approx(max(s @ information @ s for s in every))
    assert np.sqrt(step @ information @ step) == pytest.approx(promise.mu, rel=1e-4)  # type: ignore[attr-defined]


def test_several_rows_of_a_person_are_looked_at_together() -> None:
    schema = Schema(columns=[Column("who", type="id"), AGE], id_column="who", max_rows_per_unit=3)
    plan = GaussianRelease(privacy=ApproxDP(epsilon=2, delta=1e-6), schema=schema).plan(schema, 100)
    trial = _ExtremeRows(plan, _covered_parts(plan)[0][1]).mechanism_pair(plan.promises[0])
    assert trial.collect(trial.a, Stream.from_seed(1)).shape == (20_000, 3)
    results = attack_claims(plan, stream=Stream.from_seed(1))
    assert results[0].verdict == "holds"
    assert results[0].strain > 0.25


def test_a_release_without_a_promise_is_not_called_tested() -> None:
    schema = Schema(columns=[AGE, WEIGHT, SMOKES], target="smokes")
    (invariant,) = attack_claims(InvariantRelease(variance=1.0, schema=schema).plan(schema, 100))
    assert invariant.verdict == "not tested"
    assert "No differential privacy is promised here: the model trained" in invariant.reason
    bounded = BoundedRelease(support=15.0, schema=SCHEMA).plan(SCHEMA, 100)
    results = attack_claims(bounded, stream=Stream.from_seed(1))
    assert [r.verdict for r in results] == ["not tested", "holds", "holds"]
    assert "excludes values" in results[0].reason
    with pytest.raises(ParameterError, match="failure_probability of attack_claims"):
        attack_claims(bounded, failure_probability=1.0)
