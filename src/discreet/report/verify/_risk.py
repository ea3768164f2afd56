"""Check of the figures of attacks on made-up people, which follow from public facts."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from discreet.audit import PublicPrior, Risk, measure_risk
from discreet.errors import DiscreetWarning
from discreet.report.folder.folder import PRIOR, read_bytes
from discreet.report.statement.documents import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from discreet.release import ReleaseMethod, ReleasePlan
    from discreet.report.statement.documents import Statement
    from discreet.report.verify._result import Checks

_MOST_PEOPLE = 1_000
_TOLERANCE = 1e-5
"""Largest difference of two shares that are stated with six decimals and computed on two machines."""


def check_risk(
    folder: Path, statement: Statement, method: ReleaseMethod, plan: ReleasePlan, checks: Checks
) -> None:
    """Measure the risk of a release again, and compare it with the stated one.

    Parameters
    ----------
    folder : Path
        Public folder, with the law of public rows that attackers were assumed to know, if there is one.
    statement : Statement
        Statement whose block ``risk`` is checked.
    method, plan : ReleaseMethod, ReleasePlan
        Method with the stated parameters, and its plan.
    checks : Checks
        Collection that takes the result of the check.
    """
    if statement.risk is None:
        checks.add("risk", "not checkable", "The statement has no figures of attacks on made-up people.")
        return
    stated = Risk.from_dict(statement.risk)
    if not 0 < stated.people <= _MOST_PEOPLE:
        people = f"risk.people must be from 1 to {_MOST_PEOPLE:,}, and is {stated.people}."
        checks.settle("risk", [people], "")
        return
    assert method.schema is not None
    prior = None
    if PRIOR in statement.files:
        prior = PublicPrior.from_dict(read_json(read_bytes(folder / PRIOR), PRIOR), method.schema)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiscreetWarning)  # they are for the curator
        again = measure_risk(method, plan, statement.what.rows_read, people=stated.people, prior=prior)
    wrong = [
        f"Measured again, {at} is something else."
        for at in _differences(stated.to_dict(), {**again.to_dict(), "accepted": stated.accepted}, "risk")
    ]
    if stated.stops:
        wrong.append("The risk is above its thresholds, and no reason is given for which it was accepted.")
    if stated.accepted is not None and stated.verdict != "no":
        wrong.append("A risk below its thresholds needs no reason for which it was accepted.")
    done = f"{len(again.attacks)} attacks on made-up people, run again, give what the statement says."
    checks.settle("risk", wrong[:3], done)


def _differences(stated: Any, again: Any, at: str) -> Iterator[str]:
    """Yield where two JSON values differ; shares may be off by their last digit."""
    if isinstance(stated, dict) and isinstance(again, dict) and stated.keys() == again.keys():
        for key, value in stated.items():
            yield from _differences(value, again[key], f"{at}.{key}")
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for place, (one, other) in enumerate(zip(stated, again, strict=True)):
            yield from _differences(one, other, f"{at}[{place}]")
    elif isinstance(stated, float) and isinstance(again, float):
        if abs(stated - again) > _TOLERANCE:
            yield at
    elif stated != again:
        yield at
