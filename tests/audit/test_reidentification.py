"""Linkage, membership and exact scores: what succeeds must be shown, what fails must look like chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from discreet import datasets
from discreet.audit import attack_records
from discreet.noise import Stream
from discreet.release import GaussianRelease, InvariantRelease
from discreet.schema import Column, Schema
from discreet.tables import open_table
from tests.audit.plans import AGE, WEIGHT, gaussian, people


def exposed(plan: Any, true: Any, seed: int = 1) -> dict[str, Any]:
    published = plan.draw(true, Stream.from_seed(seed))
    found = attack_records(plan, true, published, stream=Stream.from_seed(seed + 100))
    return {e.attack: e for e in found}


def clinic() -> tuple[Any, Any]:
    data = datasets.load("clinic")
    plan = InvariantRelease(learner="svm", variance=100.0, schema=data.schema).plan(data.schema, 569)
    with open_table(data.path) as table:
        (batch,) = table.batches(data.schema)
    return plan, dict(batch)


def test_ninety_eight_of_a_hundred_patients_are_recognized_by_their_exact_score() -> None:
    plan, true = clinic()
    found = exposed(plan, true)
    scores = found["invariants"]
    # All but the twelve that tie on the margin.
    assert scores.success == pytest.approx(557 / 569, abs=0.004)
    assert scores.chance == pytest.approx(1 / 569)
    assert "98.0%" in scores.sentence or "97.9%" in scores.sentence
    assert "which learner" in scores.knowledge
    assert found["membership"].lower > 0.95


def test_looking_for_scores_does_not_touch_what_the_curator_was_told() -> None:
    data = datasets.load("clinic")
    method = InvariantRelease(learner="svm", variance=100.0, schema=data.schema)
    plan = method.plan(data.schema, 569)
    _, true = clinic()
    published = plan.draw(true, Stream.from_seed(1))
    before = method.exposure_
    attack_records(plan, true, published, stream=Stream.from_seed(2))
    assert method.exposure_ is before


def test_an_invariant_release_that_keeps_no_scores_has_none_to_show() -> None:
    schema = Schema(columns=[AGE, WEIGHT, Column("smokes", values=(0, 1))], target="smokes")
    true = {k: v for k, v in people(100).items() if k != "job"}
    assert exposed(InvariantRelease(learner="gram", schema=schema).plan(schema, 100), true) == {}


def test_little_noise_gives_people_away_and_much_noise_does_not() -> None:
    true = people(2_000)
    schema = Schema(columns=[AGE, WEIGHT])
    numbers = {k: true[k] for k in ("age", "weight")}
    little, much = (
        exposed(GaussianRelease(scale=scale, schema=schema).plan(schema, 2_000), numbers)
        for scale in (0.05, 60.0)
    )
    assert little["linkage"].lower > 0.5
    assert little["membership"].lower > 0.75
    assert much["linkage"].success < 0.01
    assert much["linkage"].chance == 1 / 2_000
    assert much["membership"].lower < 0.5 < much["membership"].upper


def test_public_columns_are_tried_in_addition() -> None:
    schema = Schema(columns=[AGE, Column("weight", lower=30, upper=230, role="public")])
    plan = gaussian(schema)
    true = {k: v for k, v in people(1_000).items() if k in ("age", "weight")}
    published = plan.draw(true, Stream.from_seed(1))
    blind, seeing, _ = attack_records(plan, true, published, stream=Stream.from_seed(2))
    assert blind.attack == seeing.attack == "linkage"
    # Hardly anybody's exact weight is in another row.
    assert seeing.lower > 0.99
    assert blind.success < 0.05
    assert "public ones among them" in seeing.sentence


def test_missing_cells_are_linked_by_their_flags() -> None:
    schema = Schema(columns=[Column("pulse", lower=20, upper=220, required=False), WEIGHT])
    plan = gaussian(schema, pulse=5.0, weight=5.0)
    true = {"pulse": people(500)["weight"] + 10, "weight": people(500)["weight"]}
    true["pulse"][::3] = np.nan
    found = exposed(plan, true)
    assert found["linkage"].success > found["linkage"].chance


def test_rows_that_are_all_alike_are_linked_by_chance_alone() -> None:
    true = {k: np.repeat(v[:1], 400) for k, v in people(1).items()}
    found = exposed(gaussian(), true)
    assert found["linkage"].success < 0.03
    assert found["membership"].lower < 0.5 < found["membership"].upper


def test_one_row_is_nobody_among_others() -> None:
    true = {k: v[:1] for k, v in people(1).items()}
    assert exposed(gaussian(), true) == {}
    two = {k: v[:2] for k, v in people(2).items()}
    assert set(exposed(gaussian(), two)) == {"linkage"}
