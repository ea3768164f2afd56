"""Coarse releases that look right and are not: each is caught, beside the true one that passes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet.audit import EveryRow, attack_claims, attack_prior, distinguish, run_audit
from discreet.noise import Stream
from discreet.privacy import PureDP
from discreet.release import CoarseRelease
from discreet.schema import Column, Schema
from tests.audit.plans import Twin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray
    from discreet.release import ReleasePlan
    from discreet.release.coarse import CoarsePlan

SCHEMA = Schema(
    columns=[
        Column("age", type="integer", lower=0, upper=99),
        Column("job", values=("clerk", "nurse", "pilot"), closed=True),
        Column("owner", values=(0, 1)),
    ],
    target="owner",
)


def planned(epsilon: float = 2.0, **options: Any) -> CoarsePlan:
    method = CoarseRelease(privacy=PureDP(epsilon=epsilon), cuts={"age": [30, 60]}, schema=SCHEMA, **options)
    return method.plan(SCHEMA, 1000)


def wrong_q(plan: ReleasePlan, truth: Mapping[str, AnyArray], stream: Stream) -> dict[str, AnyArray]:
    """Split epsilon over the cells that are shown, and forget that the label takes its part."""
    return planned(4.0).noise(truth, stream)


def chosen_by_value(plan: ReleasePlan, truth: Mapping[str, AnyArray], stream: Stream) -> dict[str, AnyArray]:
    """Show the age of the young and the job of the others: every published cell has its law."""
    drawn = plan.noise(truth, stream)
    young = truth["age"] == 0
    all_shown = planned(4.0, per_row=2).noise(truth, stream)
    return {
        **drawn,
        "age": np.where(young, all_shown["age"], 3),
        "job": np.where(young, 3, all_shown["job"]),
    }


def verdicts(plan: ReleasePlan) -> dict[str, set[str]]:
    guesses = attack_prior(plan, n=8_000, stream=Stream.from_seed(1))
    claims = attack_claims(plan, stream=Stream.from_seed(2))
    return {"floors": {g.verdict for g in guesses}, "claims": {r.verdict for r in claims}}


def test_the_true_release_passes() -> None:
    assert verdicts(planned()) == {"floors": {"holds"}, "claims": {"holds"}}


def test_a_wrong_chance_of_keeping_a_cell_is_caught() -> None:
    found = verdicts(Twin(planned(), wrong_q))
    assert "broken" in found["floors"]
    assert "broken" in found["claims"]


def test_a_law_that_spends_more_than_is_promised_is_caught_without_drawing() -> None:
    honest, generous = planned(2.0), planned(2.2)
    claim = honest.promises[0]
    assert run_audit(EveryRow(plan=honest, claim=claim)).verdict == "holds"
    lying = dataclasses.replace(honest, columns=generous.columns)
    assert run_audit(EveryRow(plan=lying, claim=claim)).verdict == "broken"


def test_the_job_s_attack_compares_every_pair_of_rows_where_they_can_be_written_down() -> None:
    honest, generous = planned(2.0), planned(2.2)
    for plan, verdict in (
        (honest, "holds"),
        (dataclasses.replace(honest, columns=generous.columns), "broken"),
    ):
        found = {r.attack: r for r in attack_claims(plan, stream=Stream.from_seed(2))}
        assert set(found) == {"distinguish", "precision", "enumerate"}
        assert found["enumerate"].verdict == verdict
        assert found["enumerate"].failure_probability == 0
    # Ten columns of six values are too many rows, and nothing is said about them.
    wide = Schema(columns=[Column(f"x{j}", lower=0, upper=1) for j in range(10)])
    plan = CoarseRelease(privacy=PureDP(epsilon=2), schema=wide).plan(wide, 100)
    assert {r.attack for r in attack_claims(plan, stream=Stream.from_seed(2))} == {"distinguish", "precision"}


def test_columns_that_are_chosen_by_what_is_in_them_are_caught() -> None:
    twin = Twin(planned(), chosen_by_value)
    drawn = twin.noise(
        {"age": np.zeros(9, int), "job": np.zeros(9, int), "owner": np.zeros(9, int)}, Stream()
    )
    assert planned().misfits(drawn) == {}  # nothing in the file shows it
    assert "broken" in verdicts(twin)["claims"]


ROWS = 40


def tables(edge_from_the_rows: bool) -> Callable[[float, Stream], AnyArray]:
    """Return a mechanism: the age of one person in, how many of the others are published as old."""
    plan = planned(1.0, per_row=2, label="clear")
    others = np.full(ROWS - 1, 40.0)

    def publish(age: float, stream: Stream) -> AnyArray:
        ages = np.append(others, age)
        if edge_from_the_rows:
            # The range is cut in the middle of the values there are.
            ages = np.where(ages >= (ages.min() + ages.max()) / 2, 99.0, 0.0)
        rows = {"age": ages, "job": np.zeros(ROWS, int), "owner": np.zeros(ROWS, int)}
        drawn = plan.draw(rows, stream)["age"][:-1]
        return np.array([[np.count_nonzero(drawn == 2)]])

    return publish


@pytest.mark.parametrize(("edge_from_the_rows", "verdict"), [(False, "holds"), (True, "broken")])
def test_a_bin_edge_that_is_read_off_the_rows_is_caught(edge_from_the_rows: bool, verdict: str) -> None:
    found = distinguish(
        tables(edge_from_the_rows), 0.0, 99.0, PureDP(epsilon=1.0), n=2_000, stream=Stream.from_seed(1)
    )
    assert found.verdict == verdict


def test_what_a_cell_becomes_depends_on_no_other_row() -> None:
    plan = planned()
    rows = {"age": np.array([10.0, 40.0, 99.0]), "job": np.array([0, 1, 2]), "owner": np.array([0, 1, 0])}
    together = plan.truth(rows)
    for i in range(3):
        alone = plan.truth({name: values[i : i + 1] for name, values in rows.items()})
        assert all(alone[name][0] == together[name][i] for name in together)
