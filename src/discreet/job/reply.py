"""What a question is answered with: numbers with their margins, what they cost, and how to read them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.job.costs import affordable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet.privacy import Promise, Receipt, Spending
    from discreet.query.noising import Law

LEVEL = 0.95
_GAUSSIAN_WIDTH = 1.959963984540054  # standard deviations on either side, at LEVEL


def width(law: Law) -> float:
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
class Cell:
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
class Reply:
    """What a question was answered with, or what it would cost.

    Attributes
    ----------
    question : str
        As it was understood.
    measure : str or None
        The unit of the answer.
    axes : tuple of str
        Columns of the groups.
    cells : tuple of Cell
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
    cells: tuple[Cell, ...]
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
        return affordable(self.cost, left)

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
