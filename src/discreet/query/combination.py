"""Sums and differences of past results, with the noise that they share."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError
from discreet.formatting import NumberFormat
from discreet.query.intervals import LEVEL, UNBOUNDED, ResultInterval, interval_width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.query.calibration import Law
    from discreet.query.result_cells import ResultCell
    from discreet.query.results import QueryResult


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
    value : float
        Noisy number that is added or subtracted.
    sd : float or None
        Standard deviation of its noise; None for a mean over a noisy count.
    interval, bounds : ResultInterval
        Interval of the number, and what is possible.
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    parts : tuple of tuple of str
        Receipt ids of its draws, as in `QueryResult.parts`. Receipts of two owners may stand for one draw:
        only results of one owner are combined.
    measure : str or None
        Unit of the number; None where there is none.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     result = db.query("count by ill", privacy=GaussianDP(1))
    >>> term = ResultTerm.from_cell(result, result.cells[1], times=-1)
    >>> term.times, term.measure
    (-1, 'rows')
    """

    times: float
    question: str
    key: tuple[str, ...]
    value: float
    sd: float | None
    interval: ResultInterval
    law: Law
    parts: tuple[tuple[str, ...], ...]
    bounds: ResultInterval = UNBOUNDED
    measure: str | None = None

    @classmethod
    def from_cell(cls, result: QueryResult, cell: ResultCell, times: float = 1.0) -> ResultTerm:
        """Return the term of one cell of a result."""
        if cell.value is None:
            raise ParameterError(
                "cell of ResultTerm.from_cell must have a value, and this one is over no rows. Choose "
                "another group."
            )
        column, question = result.columns[cell.column], result.question
        return cls(
            times=times,
            question=question if len(result.columns) == 1 else f"{column.name} of {question}",
            key=cell.key,
            value=cell.value,
            sd=cell.sd,
            interval=cell.interval,
            law=result.law,
            parts=result.parts,
            bounds=column.bounds,
            measure=column.measure,
        )

    @property
    def receipts(self) -> frozenset[str]:
        """Receipt ids of all draws in it."""
        return frozenset(receipt for merged in self.parts for receipt in merged)

    @property
    def contribution(self) -> tuple[float, ResultInterval, ResultInterval]:
        """Value, interval and bounds, all times the factor."""
        intervals = (
            ResultInterval(*sorted(self.times * end for end in ends)) for ends in (self.interval, self.bounds)
        )
        return self.times * self.value, next(intervals), next(intervals)

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
    value : float
        Noisy numbers of the terms, added up.
    sd : float or None
        Standard deviation of the noise; None where a term is a mean over a noisy count.
    interval : ResultInterval
        Interval that holds the exact number 95 times in 100; where there is Laplace noise, at least as
        often.
    measure : str or None
        Unit of all terms; None where one has none.

    Privacy
    -------
    Computed from paid results alone: free.

    Reference
    ---------
    docs/explanation/theorems/composition.md.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("age", lower=0, upper=99), Column("ill", values=(0, 1))])
    >>> rows = {"age": [20, 40, 60, 80] * 250, "ill": [0, 0, 1, 1] * 250}
    >>> with Database(rows, schema=schema, random_state=1) as db:
    ...     result = db.query("count by ill", privacy=GaussianDP(1))
    >>> terms = [ResultTerm.from_cell(result, cell, times) for cell, times in zip(result.cells, (1, -1))]
    >>> difference = combine_results(terms)
    >>> difference.interval.lower < 0 < difference.interval.upper
    True
    """

    formula: str
    value: float
    sd: float | None
    interval: ResultInterval
    measure: str | None

    @property
    def words(self) -> str:
        """Result as a sentence."""
        half = (self.interval.upper - self.interval.lower) / 2
        unit = f" {self.measure}" if self.measure else ""
        write = NumberFormat.from_margins([half])
        result = f"{self.formula} = {write(self.value)}{unit}"
        if not half:
            return f"{result}: the same noise on both sides, or none."
        lower, upper = write(self.interval.lower, "down"), write(self.interval.upper, "up")
        apart = not self.interval.lower <= 0 <= self.interval.upper
        verdict = f"{'' if apart else 'not '}different from zero at {LEVEL * 100:.0f} %"
        return f"{result}, between {lower} and {upper}: {verdict}."


def combine_results(terms: Sequence[ResultTerm]) -> CombinedResult:
    """Add and subtract numbers of past results.

    Parameters
    ----------
    terms : sequence of ResultTerm
        Terms of the sum: at least one, all in one unit.

    Returns
    -------
    CombinedResult
        Sum, whose interval accounts for noise that results share: the same result twice, or a result and
        its refinement.

    Raises
    ------
    ParameterError
        Units differ, or two results share noise in a way that does not follow from their standard
        deviations: a mean and its own count, or two refinements of one result.

    Privacy
    -------
    Free: no row is read.

    Notes
    -----
    Variances of counts and sums add up. For means over noisy counts the squares of the distances from the
    number to the ends of its interval do (Zou and Donner 2008), except where an end was cut to what is
    possible: the exact number may be exactly there, and the distance is added as it is.

    Reference
    ---------
    docs/explanation/theorems/composition.md, intervals.md.

    Examples
    --------
    >>> women, men = (
    ...     ResultTerm(times=times, question="count by sex", key=(key,), value=value, sd=3.0, law="gaussian",
    ...          interval=ResultInterval(value - 5.88, value + 5.88), parts=(("a-1",),), measure="rows")
    ...     for times, key, value in ((1, "f", 310.0), (-1, "m", 290.0))
    ... )
    >>> print(combine_results([women, men]).words)
    count by sex [f] - count by sex [m] = 20.0 rows, between 11.6 and 28.4: different from zero at 95 %.
    """
    if not terms:
        raise ParameterError("terms of combine_results must be at least one, and are none.")
    units = {term.measure for term in terms} - {None}
    if len(units) > 1:
        raise ParameterError(
            f"terms of combine_results must be in one unit, and are in {', '.join(sorted(map(str, units)))}. "
            "Combine answers of the same kind."
        )
    value = math.fsum(term.times * term.value for term in terms)
    sd, interval = _combine_noise(value, _merge_repeated(terms))
    return CombinedResult(
        formula=_formula(terms),
        value=value,
        sd=sd,
        interval=interval,
        measure=terms[0].measure if {term.measure for term in terms} == units else None,
    )


def _merge_repeated(terms: Sequence[ResultTerm]) -> list[ResultTerm]:
    """Return the terms with the factors of the same number added up, without those that cancel."""
    merged: dict[Any, ResultTerm] = {}
    for term in terms:
        same = (term.question, term.key, term.parts)
        times = term.times + (merged[same].times if same in merged else 0.0)
        merged[same] = replace(term, times=times)
    return [term for term in merged.values() if term.times]


def _combine_noise(value: float, terms: Sequence[ResultTerm]) -> tuple[float | None, ResultInterval]:
    """Return the standard deviation of a sum and the interval round its value, for terms that all differ."""
    sums = [term for term in terms if term.sd is not None]
    quotients = [term for term in terms if term.sd is None]
    for one, other in itertools.product(quotients, terms):
        if one is not other and _share_noise(one, other):
            raise _shares_noise(one, other)
    variance = math.fsum(one.times * other.times * _covariance(one, other) for one in sums for other in sums)
    sd = math.sqrt(max(variance, 0.0))
    margin = sd * interval_width("laplace" if any(term.law == "laplace" for term in sums) else "gaussian")
    squares, added = ([margin], [margin]), ([0.0], [0.0])
    for term in quotients:
        scaled, interval, bounds = term.contribution
        for side, (end, bound) in enumerate(zip(interval, bounds, strict=True)):
            (added if end == bound else squares)[side].append(abs(end - scaled))
    below, above = (math.fsum(added[side]) + math.hypot(*squares[side]) for side in (0, 1))
    lowest, highest = (math.fsum(term.contribution[2][side] for term in terms) for side in (0, 1))
    nearest = min(max(value, lowest), highest)
    interval = ResultInterval(max(nearest - below, lowest), min(nearest + above, highest))
    return None if quotients else sd, interval


def _covariance(one: ResultTerm, other: ResultTerm) -> float:
    """Return the covariance of the noises of two numbers.

    With weights ``1/v_i`` a merge of draws has the variance ``1 / sum(1/v_i)``, and its covariance with a
    merge of some of the same draws is its own variance.
    """
    assert one.sd is not None
    assert other.sd is not None
    if not _share_noise(one, other):
        return 0.0
    if one.question == other.question:
        if one.parts == other.parts:
            return one.sd * other.sd
        linear = not one.question.startswith("mean")
        if linear and (one.receipts < other.receipts or other.receipts < one.receipts):
            return min(one.sd, other.sd) ** 2
    raise _shares_noise(one, other)


def _share_noise(one: ResultTerm, other: ResultTerm) -> bool:
    """Return whether two numbers stand on a common draw; each group of a question has a draw of its own."""
    return one.key == other.key and not one.receipts.isdisjoint(other.receipts)


def _shares_noise(one: ResultTerm, other: ResultTerm) -> ParameterError:
    return ParameterError(
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
