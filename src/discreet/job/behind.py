"""The noisy sums behind a question, and what their answers come to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import ParameterError
from discreet.privacy.shares import Shares
from discreet.query import Histogram, Sums

if TYPE_CHECKING:
    from discreet._typing import Floats
    from discreet.job.sentence import Sentence
    from discreet.privacy import Promise
    from discreet.query import Question

PAIR = ("counts", "sums")
"""The two questions of a mean by groups; each gets half of the promise."""
_LEAST_COUNT = 3.0  # standard deviations of its noise that a count must have to be divided by
_SMALLEST_SD = 1e-150  # whose square is a number yet
_LARGEST_SD = 1e100


@dataclass(frozen=True, slots=True)
class Ask:
    """One noisy question, and how it is paid: by a promise or by its noise."""

    question: Question
    privacy: Promise | None
    variance: float | None


def asks_of(asked: Sentence, sums: Any, privacy: Promise | None, sd: float | None) -> list[Ask]:
    """Return the noisy questions behind a sentence: one, and two for a mean by groups.

    Parameters
    ----------
    asked : Sentence
        The question.
    sums : Pricing or NoisySums
        What is public about the table.
    privacy : Promise or None
        What all of them together shall promise.
    sd : float or None
        Instead of a promise: of the noise of a count or a sum.

    Privacy
    -------
    The two questions of a mean by groups get half of the promise each, rounded down.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """
    variance = _variance(asked, privacy, sd)
    if not (asked.verb == "mean" and asked.by):
        return [Ask(_question(asked, sums.n_rows), privacy, variance)]
    halves = dict.fromkeys(PAIR, 1.0)
    shares = Shares(privacy, halves, unit=sums.schema.unit, neighbors=sums.neighbors)  # type: ignore[arg-type]
    pair = (_grouped(asked, asked.where), _grouped(asked, _displacement(asked)))
    return [Ask(one, shares[name], None) for name, one in zip(PAIR, pair, strict=True)]


def _variance(asked: Sentence, privacy: Promise | None, sd: float | None) -> float | None:
    if (privacy is None) == (sd is None):
        raise ParameterError(
            "A question must be told how much to protect, by exactly one of a promise and a noise, and was "
            f"given {'neither' if sd is None else 'both'}. Give an epsilon, with a delta for Gaussian noise, "
            "or a mu or a rho, or else the sd of a count or a sum; the price can be asked first, free."
        )
    if sd is None:
        return None
    if asked.verb == "mean":
        raise ParameterError(
            "sd must be of a count or a sum, and a mean was asked for, whose noise depends on how many rows "
            "there are. Give an epsilon, a mu or a rho."
        )
    if not (math.isfinite(sd) and _SMALLEST_SD <= sd <= _LARGEST_SD):
        raise ParameterError(
            f"sd of a question must be from {_SMALLEST_SD:g} to {_LARGEST_SD:g}, was {sd!r}. Give it in "
            "the unit of the answer."
        )
    return float(sd) ** 2


def _question(asked: Sentence, n_rows: int | None) -> Question:
    """Return the one question that answers a sentence."""
    if asked.by:
        return _grouped(asked, None if asked.expression is None and asked.where is None else _scalar(asked))
    if asked.verb == "mean" and not _plain_mean(asked, n_rows):
        return Sums((_displacement(asked), asked.where or "TRUE"))
    return Sums((_scalar(asked),))


def _grouped(asked: Sentence, expression: Any) -> Histogram:
    edges = {axis.column: axis.edges for axis in asked.by if axis.edges}
    return Histogram([axis.column for axis in asked.by], edges, expression)


def _plain_mean(asked: Sentence, n_rows: int | None) -> bool:
    """Whether a mean is over all rows, whose number is public."""
    return asked.verb == "mean" and not asked.by and asked.where is None and bool(n_rows)


def _scalar(asked: Sentence) -> Any:
    """Return the expression whose sum over all rows answers a count or a sum."""
    if asked.expression is None:
        return asked.where or "TRUE"
    if asked.where is None:
        return asked.expression
    if asked.expression.is_condition:
        return f"({asked.where.canonical}) AND ({asked.expression.canonical})"
    return _among(asked, asked.expression.canonical)


def _among(asked: Sentence, text: str) -> str:
    return text if asked.where is None else f"CASE WHEN {asked.where.canonical} THEN {text} ELSE 0 END"


def _middle(asked: Sentence) -> float:
    """Return the middle of what is averaged: counted from there, one row moves a sum the least."""
    assert asked.expression is not None
    return asked.expression.lower / 2 + asked.expression.upper / 2


def _displacement(asked: Sentence) -> str:
    assert asked.expression is not None
    middle = _middle(asked)
    text = asked.expression.canonical
    if asked.expression.is_condition:
        text = f"CASE WHEN {text} THEN 1 ELSE 0 END"
    return _among(asked, f"({text}) - ({middle!r})" if middle else text)


def numbers_of(
    asked: Sentence, values: list[Floats], sds: list[Floats], n_rows: int | None
) -> tuple[Floats, Floats, float | None]:
    """Return the numbers of an answer, their standard deviations, and that of a count of rows."""
    if asked.verb != "mean":
        count_sd = float(np.ravel(sds[0])[0]) if asked.verb == "count" else None
        return values[0], sds[0], count_sd
    if _plain_mean(asked, n_rows):
        assert n_rows
        return values[0] / n_rows, sds[0] / n_rows, None
    if asked.by:
        (counts, sums), (count_sds, sum_sds) = values, sds
    else:
        sums, counts, sum_sds, count_sds = values[0][:1], values[0][1:], sds[0][:1], sds[0][1:]
    mean, spread = _ratio(asked, sums, sum_sds, counts, count_sds)
    return mean, spread, float(np.ravel(count_sds)[0])


def _ratio(
    asked: Sentence, sums: Floats, sum_sd: Floats, counts: Floats, count_sd: Floats
) -> tuple[Floats, Floats]:
    """Divide sums of displacements by counts; where a count is within its noise there is no mean."""
    enough = counts > _LEAST_COUNT * count_sd
    divisor = np.where(enough, counts, np.nan)
    offset = sums / divisor
    spread = np.hypot(sum_sd, offset * count_sd) / divisor
    return offset + _middle(asked), spread
