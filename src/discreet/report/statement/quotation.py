"""The promise of a statement in one sentence, for reports, terminals and contracts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from discreet import formatting
from discreet.report.statement._sentences import LARGE_EPSILON

if TYPE_CHECKING:
    from discreet.report.statement.documents import ColumnNumbers, Statement
    from discreet.report.statement.model_documents import ModelStatement


def quote_promise(statement: Statement | ModelStatement) -> str:
    """Return the promise in one sentence that can be quoted by itself."""
    numbers, definition = statement.numbers, statement.definition
    unit = formatting.printable(statement.unit.unit)
    columns = getattr(numbers, "columns", [])
    floors = [one for one in columns if one.floor is not None]
    large = numbers.epsilon is not None and numbers.epsilon > LARGE_EPSILON
    if definition.differential_privacy and numbers.epsilon is not None and not (large and floors):
        epsilon = formatting.number(numbers.epsilon, digits=4, rounding="up")
        slack, delta = "", ""
        if numbers.delta:
            small = formatting.number(numbers.delta, rounding="up")
            slack, delta = f", but for a probability of at most {small}", f" and delta {small}"
        return (
            f"Whatever anyone knows already, replacing all that is protected about one {unit} makes no "
            f"published result more than {formatting.format_factor(numbers.epsilon)} times as "
            f"probable{slack} (differential privacy with epsilon {epsilon}{delta})."
        )
    if definition.kinds == ["no-promise"]:
        return f"Nothing is promised about any {unit} in this file."
    if not floors:
        return definition.sentences[0]
    first = next((one for one in floors if not formatting.is_chance(str(one.floor["statistic"]))), floors[0])
    others = (
        f"; {formatting.count_noun(len(floors) - 1, 'more column')} in the statement"
        if len(floors) > 1
        else ""
    )
    return (
        f"Somebody who knows nothing about a {unit} but the declared range of a column guesses it from this "
        f"file with at least the error of its floor ({formatting.name(first.column)}: "
        f"{_floor_text(first)}{others}); nothing is promised against somebody who knows more, and "
        f"{'an epsilon that large says little' if large else 'this is not differential privacy'}."
    )


def _floor_text(numbers: ColumnNumbers) -> str:
    assert numbers.floor is not None
    chance = formatting.is_chance(str(numbers.floor["statistic"]))
    error = formatting.quantity(
        float(numbers.floor["error"]), numbers.measure, chance=chance, rounding="down"
    )
    return f"wrong in {error} of cases" if chance else f"{error}, root mean square"
