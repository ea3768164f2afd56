"""A survey whose people can be linked stops before the charge; as a synthetic table it goes through."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from discreet import Column, Schema
from discreet.errors import ParameterError, RiskTooHigh
from discreet.ledger import Ledger
from discreet.noise import Stream
from discreet.pipeline.options import RunOptions
from discreet.pipeline.plan import dry_run
from discreet.pipeline.release import publish
from discreet.privacy import ApproxDP
from discreet.query.dummy import uniform_shares
from discreet.report.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.audit import Risk

COLUMNS, ROWS = 40, 1_200
RUN = RunOptions(attack_records=4_000)


def survey_schema(columns: int = COLUMNS) -> Schema:
    """Return a schema of questions with answers from 1 to 7 and one with three values."""
    questions = [Column(f"q{j}", type="integer", lower=1, upper=7) for j in range(columns - 1)]
    plan = Column("plan", values=("stay", "leave", "unsure"), closed=True)
    return Schema(columns=[*questions, plan], dataset="survey")


def survey(columns: int = COLUMNS, rows: int = ROWS) -> dict[str, Any]:
    """Return answers that go together: every person has a level of satisfaction."""
    stream = Stream.from_seed(22)
    level = uniform_shares(rows, stream)
    answers: dict[str, Any] = {
        f"q{j}": 1 + np.floor(7 * (0.5 * level + 0.5 * uniform_shares(rows, stream)))
        for j in range(columns - 1)
    }
    words = np.array(["leave", "unsure", "stay"])
    answers["plan"] = words[np.minimum(np.floor(3 * level).astype(int), 2)]
    return answers


def protected(columns: int = COLUMNS) -> dict[str, float]:
    return {f"q{j}": 0.8 for j in range(columns - 1)}


@pytest.mark.slow
def test_a_survey_whose_people_can_be_linked_stops_before_the_charge(tmp_path: Path) -> None:
    place = tmp_path / "ledger.sqlite"
    with Ledger.open(place) as ledger, pytest.raises(RiskTooHigh, match="Nothing was charged") as stopped:
        publish(
            survey(),
            schema=survey_schema(),
            protect=protected(),
            ledger=ledger,
            out=tmp_path / "out",
            run=RUN,
        )
    risk: Risk = stopped.value.risk
    worst = risk.worst("linkage")
    assert worst is not None
    assert worst.success > 0.5
    assert "--method synthetic" in risk.advice[0]
    assert not (tmp_path / "out").exists()
    with Ledger.open(place) as ledger:
        assert not ledger.history()


def test_a_dry_run_shows_the_same_figures_and_reads_no_cell(tmp_path: Path) -> None:
    small = {"schema": survey_schema(8), "protect": protected(8)}
    planned = dry_run(survey(8), run=RunOptions(attack_records=1_000), **small)  # type: ignore[arg-type]
    with pytest.raises(RiskTooHigh) as stopped:
        publish(survey(8), ledger=False, out=tmp_path / "out", run=RunOptions(attack_records=1_000), **small)  # type: ignore[arg-type]
    assert planned.risk == stopped.value.risk
    assert planned.risk.stops


def test_an_accepted_risk_stands_in_the_statement_and_is_verified(tmp_path: Path) -> None:
    run = RunOptions(attack_records=1_000, accept_risk="The board agreed on 3 May.")
    done = publish(
        survey(8), schema=survey_schema(8), protect=protected(8), ledger=False, out=tmp_path / "out", run=run
    )
    assert done.risk.accepted == "The board agreed on 3 May."
    assert done.risk.verdict == "no"
    assert done.statement.risk == done.risk.to_dict()
    checks = {check.name: check.verdict for check in verify(done.public).checks}
    assert checks["risk"] == "passed"


@pytest.mark.slow
def test_a_risk_that_was_changed_is_found(tmp_path: Path) -> None:
    run = RunOptions(attack_records=1_000, accept_risk="for a test")
    done = publish(
        survey(8), schema=survey_schema(8), protect=protected(8), ledger=False, out=tmp_path / "out", run=run
    )
    file = done.public / "statement.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    for change in ({"verdict": "yes"}, {"accepted": None}, {"people": 10**9}):
        risk = {**content["risk"], **change}
        file.write_text(
            json.dumps({**content, "risk": risk}, indent=2, sort_keys=True) + "\n", encoding="utf-8"
        )
        failed = {check.name for check in verify(done.public).checks if check.verdict == "failed"}
        assert "risk" in failed, change


def test_a_reason_must_be_a_text(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="was empty"):
        publish(
            survey(8), schema=survey_schema(8), protect=protected(8), ledger=False, out=tmp_path / "out",
            run=RunOptions(attack_records=1_000, accept_risk=" "),
        )  # fmt: skip


@pytest.mark.slow
def test_the_same_survey_goes_through_as_a_synthetic_table(tmp_path: Path) -> None:
    """On its true rows nobody is found: membership is near chance, and no row is like a person's."""
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        done = publish(
            survey(rows=4_000), schema=survey_schema(), method="synthetic",
            privacy=ApproxDP(epsilon=1.0, delta=1e-6), ledger=ledger, out=tmp_path / "out", run=RUN,
        )  # fmt: skip
        assert ledger.history()
    assert done.risk.verdict == "yes"
    on_rows = {one["attack"]: one for one in done.findings.members if one["on"] == "rows"}
    for name in ("shadow models", "nearest row", "likelihood"):
        # The promise allows 0.57; 0.06 is four standard errors.
        assert abs(on_rows[name]["value"] - 0.5) < 0.1, name
    assert on_rows["exact match"]["members"] < 0.01
    assert abs(on_rows["guessed cells"]["value"]) < 0.05
