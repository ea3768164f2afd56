"""Sums and differences of past results, with the noise that they share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.errors import ParameterError
from discreet.query.results import LEVEL, ResultInterval, interval_width, rounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.query.calibration import Law
    from discreet.query.results import QueryResult, ResultCell


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTerm:
    """One number of a past result, and its factor in a sum.

    Attributes
    ----------
    times : float
        Factor of the number: 1 to add it, -1 to subtract it.
    question : str
        Query as it was understood.
    key : tuple of str
        Values of its group; empty without groups.
    value, sd : float
        Noisy number, and the standard deviation of its noise.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    parts : tuple of tuple of str
        Receipt ids of its draws, as in `QueryResult.parts`. Receipts of two owners may stand for one draw:
        only results of one owner are combined.
    measure : str or None
        Unit of the number; None where there is none.
    """

    times: float
    question: str
    key: tuple[str, ...]
    value: float
    sd: float
    law: Law
    parts: tuple[tuple[str, ...], ...]
    measure: str | None = None

    @classmethod
    def from_cell(cls, result: QueryResult, cell: ResultCell, times: float = 1.0) -> ResultTerm:
        """Return the term of one cell of a result."""
        if cell.value is None or cell.sd is None:
            raise ParameterError(
                "cell of ResultTerm.of must have a value, and this one was over too few rows to have one. "
                "Choose another group, or refine the answer first."
            )
        return cls(
            times=times,
            question=result.question,
            key=cell.key,
            value=cell.value,
            sd=cell.sd,
            law=result.law,
            parts=result.parts,
            measure=result.measure,
        )

    @property
    def receipts(self) -> frozenset[str]:
        """Receipt ids of all draws in it."""
        return frozenset(receipt for merged in self.parts for receipt in merged)

    @property
    def words(self) -> str:
        """Query and group of the number, as text."""
        return f"{self.question} [{', '.join(self.key)}]" if self.key else self.question


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedResult:
    """Sum or difference of past results.

    Attributes
    ----------
    formula : str
        Terms that were added and subtracted, as text.
    value, sd, margin : float
        Combined number, the standard deviation of its noise, and half the width of the interval that holds
        the exact number 95 times in 100; where there is Laplace noise, at least as often.
    measure : str or None
        Unit of all terms; None where one has none.

    Privacy
    -------
    Computed from paid results alone: free.

    Reference
    ---------
    docs/explanation/theorems/composition.md.
    """

    formula: str
    value: float
    sd: float
    margin: float
    measure: str | None

    @property
    def interval(self) -> ResultInterval:
        """Interval that holds the exact number, 95 times in 100 or more."""
        return ResultInterval(self.value - self.margin, self.value + self.margin)

    @property
    def words(self) -> str:
        """Result as a sentence."""
        unit = f" {self.measure}" if self.measure else ""
        number, margin = rounded(self.value, self.margin), rounded(self.margin, self.margin)
        result = f"{self.formula} = {number} ± {margin}{unit}"
        if not self.margin:
            return f"{result}: the same noise on both sides, or none."
        apart = abs(self.value) > self.margin
        return (
            f"{result}, {LEVEL * 100:.0f} times in 100: {'' if apart else 'not '}distinguishable from zero."
        )


def combine_results(terms: Sequence[ResultTerm]) -> CombinedResult:
    """Add and subtract numbers of past results.

    Parameters
    ----------
    terms : sequence of ResultTerm
        Terms of the sum: at least one, all in one unit.

    Returns
    -------
    CombinedResult
        Sum, whose standard deviation accounts for noise that results share: the same result twice, or a
        result and its refinement.

    Raises
    ------
    ParameterError
        Units differ, or two results share noise in a way that does not follow from their standard
        deviations: a mean and its own count, or two refinements of one result.

    Privacy
    -------
    Free: no row is read.

    Reference
    ---------
    docs/explanation/theorems/composition.md.

    Examples
    --------
    >>> women, men = (
    ...     ResultTerm(times=times, question="count by sex", key=(key,), value=value, sd=3.0, law="gaussian",
    ...          parts=(("a-1",),), measure="rows")
    ...     for times, key, value in ((1, "f", 310.0), (-1, "m", 290.0))
    ... )
    >>> print(combine_results([women, men]).words)
    count by sex [f] - count by sex [m] = 20.0 ± 8.3 rows, 95 times in 100: distinguishable from zero.
    """
    if not terms:
        raise ParameterError("terms of combine_results must be at least one, and are none.")
    units = {term.measure for term in terms} - {None}
    if len(units) > 1:
        raise ParameterError(
            f"terms of combine_results must be in one unit, and are in {', '.join(sorted(map(str, units)))}. "
            "Combine answers of the same kind."
        )
    variance = math.fsum(
        one.times * other.times * _covariance(one, other) for one in terms for other in terms
    )
    sd = math.sqrt(max(variance, 0.0))
    law: Law = "laplace" if any(term.law == "laplace" for term in terms) else "gaussian"
    return CombinedResult(
        formula=_formula(terms),
        value=math.fsum(term.times * term.value for term in terms),
        sd=sd,
        # At this level no sum of such noises is wider than a Laplace of its variance.
        margin=sd * interval_width(law),
        measure=terms[0].measure if {term.measure for term in terms} == units else None,
    )


def _covariance(one: ResultTerm, other: ResultTerm) -> float:
    """Return the covariance of the noises of two numbers.

    With weights ``1/v_i`` a merge of draws has the variance ``1 / sum(1/v_i)``, and its covariance with a
    merge of some of the same draws is its own variance.
    """
    if one.receipts.isdisjoint(other.receipts):
        return 0.0
    if one.key != other.key:
        return 0.0  # one question: every group has a draw of its own
    if one.question == other.question:
        if one.parts == other.parts:
            return one.sd * other.sd
        linear = not one.question.startswith("mean")
        if linear and (one.receipts < other.receipts or other.receipts < one.receipts):
            return min(one.sd, other.sd) ** 2
    raise ParameterError(
        f"terms of combine_results must share no noise, or all of it, and {one.words} and {other.words} "
        "stand on some of the same draws. Use the newest refinement of an answer, and no mean beside its "
        "count."
    )


def _formula(terms: Sequence[ResultTerm]) -> str:
    """Return the terms of a sum as text, with their signs and factors."""
    words = ""
    for term in terms:
        sign = "-" if term.times < 0 else "+" if words else ""
        times = abs(term.times)
        factor = "" if times == 1 else f"{times:g} * "
        words += f" {sign} {factor}{term.words}" if words else f"{sign}{factor}{term.words}"
    return words
