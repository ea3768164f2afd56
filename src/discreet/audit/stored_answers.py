"""The answers that a ledger has kept, read back against the rows: what was added to the exact sums."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.audit._contributions import RowByRow, row_by_row, with_parsed
from discreet.errors import DiscreetError
from discreet.privacy import promise_from_dict
from discreet.query.aggregates import aggregate_from_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from discreet._types import Floats
    from discreet.ledger import Entry, Ledger
    from discreet.privacy import Promise
    from discreet.query.aggregates import BoundAggregate
    from discreet.query.calibration import Law, QueryNoise
    from discreet.query.execution import QueryExecutor

FALSE_ALARM = 1e-9
"""Chance that noise which is as declared is said not to be."""
_OTHER_ROWS = 1e-12
"""An answer further from the exact one than noise goes with this chance is about other rows."""
_TOGETHER = 16

WITHOUT_QUESTION = "charges without a question, such as releases"
UNANSWERED = "questions that were paid for and never answered"
OTHER_SCHEMA = "answers under another schema"
UNREADABLE = "answers that this version cannot read"
OTHER_ROWS = "answers about other rows than there are now"
NOT_BY_ROWS = "answers about signs of ids"


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredAnswer:
    """One answer, in the integers of its question.

    Attributes
    ----------
    row : int
        Of the ledger's record.
    promise : Promise
        What was charged.
    law : {"gaussian", "laplace"}
        Of the noise.
    by_rows : RowByRow
        What single rows add to it.
    noise : array
        What was added to the exact integers, as answer and rows say.
    scale, step : array
        Declared standard deviation, or Laplace scale, of the noise, and the step of its lattice.
    certain : bool
        Whether the ledger says that it is about the rows that there are now; otherwise it only fits them.

    Privacy
    -------
    Internal: the noise is what hides the rows.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """

    row: int
    promise: Promise
    law: Law
    by_rows: RowByRow
    noise: Floats
    scale: Floats
    step: Floats
    certain: bool

    @property
    def sd(self) -> Floats:
        """Declared standard deviation of the noise."""
        return self.scale * np.sqrt(2.0) if self.law == "laplace" else self.scale

    def squares(self, more: float = 0.0) -> float:
        """Return a number that is chi-squared if the noise is as declared; each gets ``more`` steps."""
        size = (np.abs(self.noise) + more * self.step) / self.scale
        if self.law == "laplace":
            # As far out as a normal number of the same rarity.
            size = -special.ndtri_exp(-size - np.log(2.0))
        return float(np.square(size).sum())


@dataclass(frozen=True)
class _Read:
    """What a charge was for."""

    entry: Entry
    bound: BoundAggregate
    noise: QueryNoise
    by_rows: RowByRow
    noisy: list[int]
    certain: bool


def read_stored_answers(database: QueryExecutor, ledger: Ledger) -> tuple[list[StoredAnswer], dict[str, int]]:
    """Return the answers about the rows that there are now, and how many charges are none, by reason.

    Parameters
    ----------
    database : Database
        Who gave them; asked for exact sums, in turn with whoever else asks.
    ledger : Ledger
        Where they are kept.

    Privacy
    -------
    Internal, and free: what is found may not leave the curator's process.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """
    unused: Counter[str] = Counter()
    read: list[_Read] = []
    # Several may have paid for the same draw.
    entries = {entry.receipt.question or entry.receipt.id: entry for entry in ledger.entries()}
    digests = {entry.receipt.id: entry.receipt.question for entry in ledger.entries()}
    for entry in entries.values():
        found = _read(database, entry, digests)
        if isinstance(found, str):
            unused[found] += 1
        else:
            read.append(found)
    # Those who wait together share a pass over the rows.
    with ThreadPoolExecutor(_TOGETHER) as threads:
        exact = list(threads.map(lambda one: exact_sums(database, one.bound), read))
    told = []
    for one, sums in zip(read, exact, strict=True):
        answer = _told(one, sums)
        if not one.certain and _is_larger([answer], _OTHER_ROWS):
            unused[OTHER_ROWS] += 1
        else:
            told.append(answer)
    return told, dict(unused)


def _read(database: QueryExecutor, entry: Entry, digests: Mapping[str, str | None]) -> _Read | str:
    """Return what a charge was for, or why there is nothing to use."""
    asked, receipt = entry.asked, entry.receipt
    if asked is None or "question" not in asked:
        return WITHOUT_QUESTION
    if entry.answer is None:
        return UNANSWERED
    if receipt.schema != database.schema.digest:
        return OTHER_SCHEMA
    try:
        question = with_parsed(aggregate_from_dict(asked["question"]), database.curation)
        privacy = None if asked["privacy"] is None else promise_from_dict(asked["privacy"])
        bound, noise = database.cost_model.calibrate(question, privacy=privacy, variance=asked["variance"])
        noisy = json.loads(entry.answer)["noisy"]
    except (DiscreetError, KeyError, TypeError, ValueError):
        return UNREADABLE
    if len(receipt.promises) != 1 or len(noisy) != bound.size or not noise.groups:
        return UNREADABLE
    by_rows = row_by_row(question, bound, database.curation)
    if by_rows is None:
        return NOT_BY_ROWS
    refined = asked.get("refines")
    certain = receipt.question == database._digest(bound, noise, digests.get(refined) if refined else None)
    # The digest holds the rows' version and what the noise costs. Where only the charge is another, it is an
    # answer to look at; where nothing else can be, the rows were others.
    if not certain and receipt.promises == (noise.promise,):
        return OTHER_ROWS
    return _Read(entry, bound, noise, by_rows, noisy, certain)


def _told(read: _Read, exact: Sequence[int]) -> StoredAnswer:
    scales, bits = (np.array(values) for values in zip(*read.noise.groups, strict=True))
    shifts = bits[read.noise.group]
    # As whole numbers, which a float would round before the small difference of two large ones is taken.
    added = [n - (own << int(shift)) for n, own, shift in zip(read.noisy, exact, shifts, strict=True)]
    step = 2.0 ** -shifts.astype(np.float64)
    receipt = read.entry.receipt
    assert receipt.seq is not None
    return StoredAnswer(
        row=receipt.seq,
        promise=receipt.promises[0],
        law=read.noise.law,
        by_rows=read.by_rows,
        noise=np.array([float(value) for value in added]) * step,
        scale=scales[read.noise.group] * step,
        step=step,
        certain=read.certain,
    )


def exact_sums(database: QueryExecutor, bound: BoundAggregate) -> list[int]:
    """Ask the engine of a database for exact integers, in turn with whoever else asks it."""
    (found,) = database._passes.submit([bound])
    if isinstance(found, Exception):
        raise found
    return found


def noise_alarms(answers: Sequence[StoredAnswer]) -> Iterator[str]:
    """Say where the noise that was really added is not what was declared.

    Parameters
    ----------
    answers : sequence of StoredAnswer
        About the same rows.

    Privacy
    -------
    All alarms together are false with probability :data:`FALSE_ALARM` at most. The rows of the ledger that
    are named are public, and so is that something is wrong with them.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """
    allowed = FALSE_ALARM / (2 * len(answers) + 2)
    for answer in answers:
        if _is_smaller([answer], allowed):
            yield f"The noise in row {answer.row} of the ledger is smaller than declared."
        elif answer.certain and _is_larger([answer], allowed):
            yield f"The noise in row {answer.row} of the ledger is larger than declared."
    if answers and _is_smaller(answers, allowed):
        yield "The noise of all answers together is smaller than declared."
    certain = [answer for answer in answers if answer.certain]
    if certain and _is_larger(certain, allowed):
        yield "The noise of all answers together is larger than declared."


def _is_smaller(answers: Sequence[StoredAnswer], chance: float) -> bool:
    """Whether noise is so small as it is with less than this chance."""
    # Half a step more, because a draw of a lattice is 0 more often than a real number is near it.
    least = sum(answer.squares(0.5) for answer in answers)
    return bool(special.gammainc(sum(answer.by_rows.size for answer in answers) / 2, least / 2) < chance)


def _is_larger(answers: Sequence[StoredAnswer], chance: float) -> bool:
    """Whether noise is so large as it is with less than this chance."""
    most = sum(answer.squares() for answer in answers)
    return bool(special.gammaincc(sum(answer.by_rows.size for answer in answers) / 2, most / 2) < chance)
