"""Check of the figures of attacks on made-up people, which follow from public facts."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

from discreet.audit import PublicPrior, Risk, measure_risk
from discreet.errors import DiscreetWarning
from discreet.release.invariant.plan import InvariantPlan
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
_TRAINED_TOLERANCE = 0.1
"""The same where an attack trains a model: scores nearly equal are told apart by its last digits."""


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
    trained = isinstance(plan, InvariantPlan)
    expected = {**again.to_dict(), "accepted": stated.accepted}
    wrong = [
        f"Measured again, {at} is something else."
        for at in risk_differences(stated.to_dict(), expected, trained=trained)
    ]
    if stated.stops:
        wrong.append("The risk is above its thresholds, and no reason is given for which it was accepted.")
    if stated.accepted is not None and stated.verdict != "no":
        wrong.append("A risk below its thresholds needs no reason for which it was accepted.")
    done = f"{len(again.attacks)} attacks on made-up people, run again, give what the statement says."
    checks.settle("risk", wrong[:3], done)


def risk_differences(stated: Any, again: Any, *, trained: bool = False, at: str = "risk") -> Iterator[str]:
    """Yield where two JSON values differ by more than another processor explains.

    Parameters
    ----------
    stated, again : JSON value
        Figures of a statement, and the same measured again.
    trained : bool
        Whether attacks train a model, so that shares, and numbers in texts, depend on its last digits.
    at : str
        Path of the two values, for messages.
    """
    if isinstance(stated, dict) and isinstance(again, dict) and stated.keys() == again.keys():
        for key, value in stated.items():
            yield from risk_differences(value, again[key], trained=trained, at=f"{at}.{key}")
    elif isinstance(stated, list) and isinstance(again, list) and len(stated) == len(again):
        for place, (one, other) in enumerate(zip(stated, again, strict=True)):
            yield from risk_differences(one, other, trained=trained, at=f"{at}[{place}]")
    elif isinstance(stated, float) and isinstance(again, float):
        if not abs(stated - again) <= (_TRAINED_TOLERANCE if trained else _TOLERANCE):
            yield at
    elif isinstance(stated, str) and isinstance(again, str) and trained:
        if _without_numbers(stated) != _without_numbers(again):
            yield at
    elif stated != again:
        yield at


def _without_numbers(text: str) -> str:
    return re.sub(r"\d[\d.,]*", "#", text)
