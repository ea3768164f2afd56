"""Results of text queries: cells with their margins, cost, and sums and differences of past results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.errors import ParameterError, PromiseError
from discreet.formatting import number
from discreet.privacy import PureDP, Spending
from discreet.privacy.promises import describe_promise

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet.privacy import Promise, Receipt
    from discreet.query.calibration import Law


_KEPT = 4096  # costs that are remembered: the same few are asked again and again


@lru_cache(maxsize=_KEPT)
def cost_amounts(cost: tuple[Promise, ...]) -> Mapping[str, float]:
    """Return what a cost comes to in each currency that a limit may be told in; pure costs count in both."""
    spent = sum((Spending.from_promises(promise) for promise in cost), Spending())
    return {
        "epsilon": float(spent.pure),
        "rho": float(spent.pooled if _pure(cost) else spent.gaussian),
        "queries": float(spent.charges),
    }


def affordable_count(cost: tuple[Promise, ...], left: Mapping[str, float] | None) -> int | None:
    """Say how many more like this an amount would pay for.

    Parameters
    ----------
    cost : tuple of Promise
        Of one.
    left : mapping of str to float or None
        What is left in each currency, as :meth:`Ledger.remaining` says it; None without a limit.

    Returns
    -------
    int or None
        None without a limit, and for what costs nothing.
    """
    if left is None or not cost:
        return None
    paid_in = {"epsilon" if _pure(cost) and "epsilon" in left else "rho", "queries"} & set(left)
    counts = (
        math.floor(left[name] / price)
        for name, price in cost_amounts(cost).items()
        if name in paid_in and price
    )
    return min(counts, default=None)


@lru_cache(maxsize=_KEPT)
def describe_cost(cost: tuple[Promise, ...], delta: float) -> str:
    """Write a price; Gaussian ones also as an epsilon at `delta`."""
    if not cost:
        return "nothing"
    listed = " and ".join(describe_promise(promise.to_dict()) for promise in cost)
    spent = sum((Spending.from_promises(promise) for promise in cost), Spending())
    if not spent.rho or _pure(cost):
        return listed
    try:
        epsilon = number(spent.epsilon_at(delta), digits=4, rounding="up")
    except PromiseError:  # so much, or so little, that no epsilon says it
        return listed
    return f"{listed} (epsilon {epsilon} at delta {delta:g})"


def _pure(cost: tuple[Promise, ...]) -> bool:
    return all(isinstance(promise, PureDP) for promise in cost)


LEVEL = 0.95
_GAUSSIAN_WIDTH = 1.959963984540054  # standard deviations on either side, at LEVEL


def interval_width(law: Law) -> float:
    """Return how many standard deviations a margin is at :data:`LEVEL`."""
    return _GAUSSIAN_WIDTH if law == "gaussian" else -math.log1p(-LEVEL) / math.sqrt(2)


def rounded(value: float, margin: float) -> str:
    """Write a number with as many digits as its margin leaves."""
    if margin == 0:
        return f"{value:,.10g}"
    decimals = max(0, 1 - math.floor(math.log10(margin)))
    text = f"{value:,.{min(decimals, 15)}f}"
    return "0" if float(text.replace(",", "")) == 0 else text


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultCell:
    """One number of an answer.

    Attributes
    ----------
    key : tuple of str
        Which group, in words; empty where there are none.
    value : float or None
        The noisy number; None for a mean over too few rows, and for a price.
    sd, margin : float or None
        Standard deviation of its noise, and how far it may be off at :data:`LEVEL`.
    """

    key: tuple[str, ...]
    value: float | None
    sd: float | None
    margin: float | None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Between which ends the exact number lies at :data:`LEVEL`; None where there is no number."""
        if self.value is None or self.margin is None:
            return None
        return self.value - self.margin, self.value + self.margin

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"key": list(self.key), "value": self.value, "sd": self.sd, "margin": self.margin}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """What a question was answered with, or what it would cost.

    Attributes
    ----------
    question : str
        As it was understood.
    measure : str or None
        The unit of the answer.
    axes : tuple of str
        Columns of the groups.
    cells : tuple of ResultCell
        One, or one for each group; also for those that no row is in. None at all for the price of a mean
        whose noise depends on how many rows there are.
    law : {"gaussian", "laplace"}
        Of the noise.
    cost : tuple of Promise
        What was charged, or would be; empty if it is free. Of a refined answer, for its newest part alone.
    count_margin : float or None
        How far a count of rows under the same noise may be off; None for a sum.
    cached : bool
        Whether it had been paid for before, and is the same answer again.
    receipts : tuple of Receipt
        Of the charges, one for each noisy question behind it: two for a mean by groups.
    parts : tuple of tuple of str
        For each of these questions, the receipts of all answers that were merged into it.
    ledger : str or None
        Where it was charged; None if nobody counts, or if whoever asks does not say.
    left : mapping of str to float or None
        What is left in each currency of the ledger's limit; None if it has none, or is not known.
    spent : Spending or None
        What all charges of the ledger come to.

    Privacy
    -------
    The cells are noisy and paid for; everything else is the same for every table.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    question: str
    measure: str | None
    axes: tuple[str, ...]
    cells: tuple[ResultCell, ...]
    law: Law
    cost: tuple[Promise, ...]
    count_margin: float | None = None
    cached: bool = False
    receipts: tuple[Receipt, ...] = ()
    parts: tuple[tuple[str, ...], ...] = ()
    ledger: str | None = None
    left: Mapping[str, float] | None = None
    spent: Spending | None = None

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the ledger where it was charged."""
        return tuple(receipt.seq for receipt in self.receipts if receipt.seq is not None)

    @property
    def more(self) -> int | None:
        """How often what is left would pay for as much again; None without a limit, or for what is free."""
        return self.more_with(self.left)

    def more_with(self, left: Mapping[str, float] | None) -> int | None:
        """Say how many more like it an amount would pay for.

        Parameters
        ----------
        left : mapping of str to float or None
            What is left in each currency, as :meth:`Ledger.remaining` says it; None without a limit.

        Returns
        -------
        int or None
            None without a limit, and for what costs nothing.
        """
        return affordable_count(self.cost, left)

    @property
    def refined(self) -> bool:
        """Whether several answers were merged into it."""
        return any(len(merged) > 1 for merged in self.parts)

    @property
    def unreadable_below(self) -> int | None:
        """About how many rows a group must have to be told from an empty one; None for sums, and if exact.

        Two margins: a count's own, and the other's that it is told from.
        """
        return math.ceil(2 * self.count_margin) if self.axes and self.count_margin else None

    @property
    def margin_words(self) -> str:
        """What the margins say, and what they do not."""
        if not self.cost:
            return "It is exact: it follows from what is public."
        return (
            f"± is what the noise may do: the exact number is within it {LEVEL * 100:.0f} times in 100. "
            "What these rows say about other people is another matter."
        )

    @property
    def group_words(self) -> str | None:
        """Which groups are too small to be read; None where that cannot be said."""
        least = self.unreadable_below
        if least is None:
            return None
        return f"Noise makes groups below about {least:,} rows unreadable."

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "question": self.question,
            "measure": self.measure,
            "by": list(self.axes),
            "level": LEVEL,
            "law": self.law,
            "answers": [cell.to_dict() for cell in self.cells],
            "cost": [promise.to_dict() for promise in self.cost],
            "cached": self.cached,
            "ledger": self.ledger,
            "rows": list(self.rows),
            "receipts": [receipt.id for receipt in self.receipts],
            "parts": [list(merged) for merged in self.parts],
            "left": None if self.left is None else dict(self.left),
            "more": self.more,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview(QueryResult):
    """Cost and noise of a text query in advance: one cell without a value, no receipts.

    Attributes
    ----------
    sql : str
        The query as a SELECT, which is read as the same query.
    is_free : bool
        Whether nothing would be charged: the result follows from what is public, or was paid for before.

    Privacy
    -------
    Follows from the schema, the public number of rows and what the asking owner has paid.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    sql: str
    is_free: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultTerm:
    """One number of a past answer, and how often it counts.

    Attributes
    ----------
    times : float
        1 to add it, -1 to subtract it.
    question : str
        As it was understood.
    key : tuple of str
        Which group; empty where there are none.
    value, sd : float
        The number, and the standard deviation of its noise.
    law : {"gaussian", "laplace"}
        Of the noise.
    parts : tuple of tuple of str
        Receipts behind it, as in `QueryResult.parts`. Receipts of two owners may stand for one draw: only
        answers of one owner are combined.
    measure : str or None
        Its unit.
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
    def from_cell(cls, reply: QueryResult, cell: ResultCell, times: float = 1.0) -> ResultTerm:
        """Take one number of a reply."""
        if cell.value is None or cell.sd is None:
            raise ParameterError(
                "cell of ResultTerm.of must have a value, and this one was over too few rows to have one. "
                "Choose another group, or refine the answer first."
            )
        return cls(
            times=times,
            question=reply.question,
            key=cell.key,
            value=cell.value,
            sd=cell.sd,
            law=reply.law,
            parts=reply.parts,
            measure=reply.measure,
        )

    @property
    def receipts(self) -> frozenset[str]:
        """All receipts behind it."""
        return frozenset(receipt for merged in self.parts for receipt in merged)

    @property
    def words(self) -> str:
        """Which number it is."""
        return f"{self.question} [{', '.join(self.key)}]" if self.key else self.question


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedResult:
    """A sum or difference of answers.

    Attributes
    ----------
    formula : str
        What was added and subtracted.
    value, sd, margin : float
        The result, the standard deviation of its noise, and how far it may be off 95 times in 100; where
        there is Laplace noise, at least as often.
    measure : str or None
        The unit that all of them have.

    Privacy
    -------
    Made of answers that were paid for, and of nothing else: free.

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
    def interval(self) -> tuple[float, float]:
        """Between which ends the exact number lies, 95 times in 100 or more."""
        return self.value - self.margin, self.value + self.margin

    @property
    def words(self) -> str:
        """The result as a sentence."""
        unit = f" {self.measure}" if self.measure else ""
        number, margin = rounded(self.value, self.margin), rounded(self.margin, self.margin)
        told = f"{self.formula} = {number} ± {margin}{unit}"
        if not self.margin:
            return f"{told}: the same noise on both sides, or none."
        apart = abs(self.value) > self.margin
        return f"{told}, {LEVEL * 100:.0f} times in 100: {'' if apart else 'not '}told from zero."


def combine_results(terms: Sequence[ResultTerm]) -> CombinedResult:
    """Add and subtract past answers.

    Parameters
    ----------
    terms : sequence of ResultTerm
        At least one, all in one unit.

    Returns
    -------
    CombinedResult
        Its standard deviation accounts for noise that answers share: the same answer twice, or an answer and
        its refinement.

    Raises
    ------
    ParameterError
        If units differ, or if two answers share noise in a way that their standard deviations do not tell: a
        mean and the count behind it, or two refinements of one answer.

    Privacy
    -------
    Free: no row is asked.

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
    count by sex [f] - count by sex [m] = 20.0 ± 8.3 rows, 95 times in 100: told from zero.
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
    words = ""
    for term in terms:
        sign = "-" if term.times < 0 else "+" if words else ""
        times = abs(term.times)
        factor = "" if times == 1 else f"{times:g} * "
        words += f" {sign} {factor}{term.words}" if words else f"{sign}{factor}{term.words}"
    return words
