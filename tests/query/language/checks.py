"""What must hold for every text: refused in public words, or the same integers everywhere, within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ExpressionRefused
from discreet.query.language import Expression, parse
from discreet.query.language._program import values
from tests.query.language.rows import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray


@dataclass
class Tally:
    """What was found."""

    generated: int = 0
    accepted: int = 0
    refused: int = 0
    constructs: dict[str, int] = field(default_factory=dict)


def accepted(texts: Sequence[str], tally: Tally) -> list[Expression]:
    """Parse texts; a text that is refused must be refused properly, twice in the same words."""
    found, messages = [], []
    for text in texts:
        tally.generated += 1
        try:
            found.append(parse(text, SCHEMA))
        except ExpressionRefused as refusal:
            tally.refused += 1
            construct = refusal.construct.split(",")[0]
            tally.constructs[construct] = tally.constructs.get(construct, 0) + 1
            messages.append(str(refusal))
    tally.accepted += len(found)
    assert all(message.isprintable() for message in messages), "a refusal prints nothing strange"
    return found


def stays_within_bounds(expression: Expression, columns: Mapping[str, AnyArray]) -> AnyArray:
    """Carry every operation out and hold it against its interval; return the grid indices."""
    with np.errstate(over="raise", divide="raise", invalid="raise", under="ignore"):
        results = values(expression.program, columns)
        for operation, result in zip(expression.program.operations, results, strict=True):
            interval = operation.interval
            if interval is None:
                continue
            assert np.all(np.isfinite(result))
            assert interval.lower <= np.min(result)
            assert np.max(result) <= interval.upper, (expression.canonical, operation)
            assert_multiple(result, interval.quantum)
        index = expression.evaluate(columns)
    assert index.dtype == np.int64
    assert 0 <= index.min() <= index.max() <= expression.grid().top
    return index


def assert_multiple(result: Any, quantum: int) -> None:
    """Check that numbers are whole multiples of a power of two."""
    mantissa, exponent = np.frexp(result)
    whole, shift = (mantissa * 2.0**53).astype(np.int64), exponent - 53 - quantum
    low = np.where(shift < 0, np.int64(1) << np.minimum(-shift, 62), 1)
    assert np.all((whole == 0) | (shift >= 0) | (whole % low == 0))


def agree(
    expressions: Sequence[Expression],
    columns: Mapping[str, AnyArray],
    compute: Callable[[Sequence[Expression]], Sequence[AnyArray]],
) -> None:
    """Check that an engine gives the integers of ``evaluate``."""
    expected = [expression.evaluate(columns) for expression in expressions]
    for expression, ours, theirs in zip(expressions, expected, compute(expressions), strict=True):
        assert np.array_equal(ours, theirs), expression.canonical
