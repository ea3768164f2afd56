"""What a statement says about a column and about the whole, in words that a layperson can read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from discreet.law import Clear, InvariantLaw, MaskedLabelLaw, MaskedLaw
from discreet.privacy.floors import ListPrior
from discreet.report.wording import is_chance, name, number, percent, visible

if TYPE_CHECKING:
    from discreet.privacy import ErrorFloor
    from discreet.privacy.floors import Prior
    from discreet.release import ColumnSummary
    from discreet.schema import Column

LARGE_EPSILON = 8.0
"""Beyond, an epsilon is printed because it is true, not because it means much."""


def column_sentence(column: Column, summary: ColumnSummary, unit: str) -> str:
    """Say in a sentence what the release means for one column.

    A floor is an average over a prior that is named in plain words, never a promise for each person.

    Reference
    ---------
    docs/explanation/theorems/bayes-floor.md
    """
    called, law = name(column.name), summary.law
    if isinstance(law, Clear):
        if column.role == "public":
            return f"{called} is declared public and published as it is."
        return f"{called} is published as it is: nothing here protects it."
    if isinstance(law, InvariantLaw):
        return (
            f"{called} carries noise that the named learner does not notice. No floor is proven for it: the "
            "model trained on this file may give it away."
        )
    if isinstance(law, MaskedLaw | MaskedLabelLaw):
        beside = f" Beside them stand {law.beside}: nothing protects those." if law.beside else ""
        return f"{called} holds {law.words()}. Its cells are nobody's.{beside}"
    if summary.floor is None:
        own = "" if summary.epsilon is None else f", and costs an epsilon of {_up(summary.epsilon)}"
        return f"{called} is published with noise ({law.words()}){own}. No error floor is proven for it."
    floor = summary.floor
    whose = "a person" if unit == "person" else f"one {visible(unit)}"
    if is_chance(floor.statistic):
        least = percent(floor.error, rounding="down").replace("\u00a0", " ")
        cannot = f"no method can guess it from this file and be wrong less than {least} of the time"
    else:
        measure = floor.measure or ("days" if column.type == "date" else None)
        unit_said = f" {visible(measure)}" if measure else ""
        cannot = (
            "no method can guess it from this file with a root-mean-square error below "
            f"{number(floor.error, rounding='down')}{unit_said}"
        )
    return (
        f"If {whose}'s {called} could equally well be {_anything(column, summary.prior)}, {cannot}; anyone "
        f"who knows more about the {visible(unit)}, including how {called} goes with the other columns, may "
        "do better."
    )


def _anything(column: Column, prior: Prior | ListPrior | None) -> str:
    if isinstance(prior, ListPrior):
        return f"any of the {len(prior.codes)} {prior.what}"
    if column.type == "date":
        return f"any day from {column.lower} to {column.upper}"
    lower, upper = (number(bound, digits=17) for bound in column.range)
    every = "any whole number" if column.type == "integer" else "anything"
    return f"{every} from {lower} to {upper}"


def total_sentence(epsilon: float, delta: float | None, unit: str) -> str:
    """Say what the epsilon of the whole row means."""
    growth = number(math.exp(epsilon), rounding="up") if epsilon < 20 else f"exp({_up(epsilon)})"
    slack = "" if delta is None else f" and adds at most {number(delta, rounding='up')} to it"
    small = " Such a large epsilon says little by itself: read the floors." if epsilon > LARGE_EPSILON else ""
    at = "" if delta is None else f" at delta {number(delta, rounding='up')}"
    return (
        f"Everything that is protected in the rows of one {visible(unit)}, taken together, has epsilon "
        f"{_up(epsilon)}{at}: replacing it by anything else that the schema allows multiplies the "
        f"probability of any published file by at most {growth}{slack}.{small}"
    )


def floors_sentence(promise: ErrorFloor) -> str:
    """Say for how many columns a floor is proven, and what kind of promise that is."""
    count = len(promise.columns)
    columns = "one column" if count == 1 else f"{count} columns"
    return (
        f"An error floor is proven for {columns}, each on average over a public prior that its sentence "
        f"names. It is no promise for each {visible(promise.unit)}, and no differential privacy."
    )


def _up(value: float) -> str:
    return number(value, digits=4, rounding="up")
