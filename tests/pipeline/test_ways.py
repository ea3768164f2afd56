"""Ways to publish, from a table to a recommendation: which rows are read, and what is logged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from discreet import PureDP
from discreet.errors import ParameterError
from discreet.ledger.audit_log import TUNED, AuditLog
from discreet.pipeline.plan_basis import PlanBasis
from discreet.pipeline.ways import plan_ways
from tests.pipeline.people import PEOPLE, people

if TYPE_CHECKING:
    from pathlib import Path

    from discreet.pipeline.ways import PlannedWays


def table(n: int) -> dict[str, Any]:
    """Rows as a table holds them."""
    rows = people(n)
    return {
        c.name: [c.levels[code] for code in rows[c.name]] if c.is_category else rows[c.name]
        for c in PEOPLE.released
    }


def plan(source: Any, folder: Path, **how: Any) -> PlannedWays:
    return plan_ways(source, schema=PEOPLE, privacy=PureDP(epsilon=2), ledger=folder / "people.ledger", **how)


@pytest.mark.slow
def test_made_up_rows_depend_on_the_declaration_and_the_number_of_rows_alone(tmp_path: Path) -> None:
    one, other = (plan(table(n), tmp_path, basis=PlanBasis(n_rows=900)) for n in (30, 60))
    assert one.to_dict() == other.to_dict()
    assert "900 made-up rows" in one.measured_on
    assert not list(tmp_path.iterdir())
    verdicts = {way.name: way.risk and way.risk["verdict"] for way in one.ways}
    assert verdicts["model"] is verdicts["questions"] is None
    assert verdicts["synthetic"] in ("yes", "with care", "no")
    stronger = plan(table(30), tmp_path, basis=PlanBasis(n_rows=900, explained=0.9))
    assert (stronger.baselines["unprotected"] or 0) > (one.baselines["unprotected"] or 1)


def test_a_look_at_true_rows_is_logged_before_it_happens(tmp_path: Path) -> None:
    found = plan(table(300), tmp_path, basis=PlanBasis(on_rows=True), task="model")
    assert "210 true rows" in found.measured_on
    assert "not covered by its promise" in found.measured_on
    assert AuditLog(tmp_path / "people.audit.jsonl").mentions(TUNED)


@pytest.mark.slow
def test_a_public_table_takes_the_place_of_made_up_rows(tmp_path: Path) -> None:
    found = plan(table(30), tmp_path, basis=PlanBasis(n_rows=300, public_sample=table(400)))
    assert "280 rows of the public table" in found.measured_on
    assert not list(tmp_path.iterdir())
    with pytest.raises(ParameterError, match="at least 20 rows"):
        plan(table(30), tmp_path, basis=PlanBasis(n_rows=300, public_sample=table(10)))


def test_a_service_shows_no_rows(tmp_path: Path) -> None:
    found = plan(table(30), tmp_path, basis=PlanBasis(n_rows=300), answers_only=True)
    assert [way.name for way in found.ways if "rows are not seen" in way.why_not] == [
        "coarse",
        "gaussian",
        "masked",
    ]
