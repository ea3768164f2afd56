"""Answers stored in a ledger with the noise that was really added, and tests of that noise.

The noise is the difference between a stored answer and the exact sums over the present rows.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.audit._contributions import RowContributions, parse_expressions, row_contributions
from discreet.errors import DiscreetError
from discreet.privacy import promise_from_dict
from discreet.query.aggregates import aggregate_from_dict
from discreet.query.calibration import shift_bits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from discreet._types import Floats
    from discreet.ledger import Entry, Ledger
    from discreet.privacy import Promise
    from discreet.query.aggregates import BoundAggregate
    from discreet.query.calibration import Law, QueryNoise
    from discreet.query.execution import QueryExecutor

FALSE_ALARM = 1e-9
"""Largest probability of an alarm about noise that is as declared."""
_OTHER_ROWS = 1e-12
"""An answer whose distance from the exact one has a smaller probability than this is about other rows."""
_TOGETHER = 16  # answers that share a pass over the rows
_READ = 32  # charges that are read from the ledger at once; an answer may be a megabyte
_PIECE = 256  # answers that are read at once
_PIECE_NUMBERS = 2**18  # and numbers in them

WITHOUT_QUESTION = "charges without a question, such as releases"
UNANSWERED = "questions that were paid for and never answered"
OTHER_SCHEMA = "answers under another schema"
UNREADABLE = "answers that this version cannot read"
OTHER_ROWS = "answers about other rows than there are now"
NOT_BY_ROWS = "answers of kinds that it does not read, such as quantiles"


@dataclass(frozen=True, eq=False, kw_only=True)
class StoredAnswer:
    """One stored answer, in the integers of its aggregate.

    Attributes
    ----------
    row : int
        Number of the charge's row in the ledger.
    promise : Promise
        Promise that was charged for the answer.
    law : {"gaussian", "laplace"}
        Law of the added noise.
    contributions : RowContributions
        The aggregate as a function of single rows.
    noise : array of shape (entries,)
        Difference between the answer and the exact integers.
    scale, step : array of shape (entries,)
        Declared standard deviation, or Laplace scale, of the noise, and the step of its lattice.
    certain : bool
        Whether the ledger proves that the answer is about the present rows; if not, it only fits them.

    Privacy
    -------
    Internal: without its noise an answer hides no row.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """

    row: int
    promise: Promise
    law: Law
    contributions: RowContributions
    noise: Floats
    scale: Floats
    step: Floats
    certain: bool

    @property
    def sd(self) -> Floats:
        """Declared standard deviation of the noise."""
        return self.scale * np.sqrt(2.0) if self.law == "laplace" else self.scale

    def squares(self, more: float = 0.0) -> float:
        """Return the sum of squared standardized noise, which is chi-squared if the noise is as declared.

        Parameters
        ----------
        more : float
            Lattice steps that are added to the absolute noise of each entry.

        Notes
        -----
        Laplace noise x with scale b is first mapped to the normal z of the same two-sided tail:
        ``2 (1 - Phi(z)) = exp(-|x| / b)``.
        """
        size = (np.abs(self.noise) + more * self.step) / self.scale
        if self.law == "laplace":
            # In logarithms, because the tail probability of a large draw underflows.
            size = -special.ndtri_exp(-size - np.log(2.0))
        return float(np.square(size).sum())


@dataclass(frozen=True)
class _ReadEntry:
    """A charge of the ledger with its aggregate, noise and noisy integers; exact sums are still missing."""

    entry: Entry
    bound: BoundAggregate
    noise: QueryNoise
    contributions: RowContributions
    noisy: list[int]
    certain: bool


class AnswerReader:
    """Reads the answers of a ledger in pieces of bounded size, each answer once.

    Parameters
    ----------
    database : Database
        Database that gave the answers; its exact sums are computed in batches with other queries.
    ledger : Ledger
        Ledger that stores the answers.

    Attributes
    ----------
    row : int
        Last row of the ledger that was read.

    Privacy
    -------
    Internal, and nothing is charged: the answers may not leave the curator's process.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """

    def __init__(self, database: QueryExecutor, ledger: Ledger) -> None:
        self.row = 0
        self._database, self._ledger = database, ledger
        self._unused: Counter[str] = Counter()
        self._digests: dict[str, str | None] = {}  # of the queries of all receipts so far, by their ids
        self._read: set[str] = set()
        self._unanswered: dict[str, str] = {}  # ids of receipts whose answer may still come, by query

    @property
    def unused(self) -> dict[str, int]:
        """Number of charges that an attack cannot use, by reason."""
        waiting = {UNANSWERED: len(self._unanswered)} if self._unanswered else {}
        return {**self._unused, **waiting}

    def read(self) -> Iterator[list[StoredAnswer]]:
        """Yield the answers about the present rows that were not read before, in pieces."""
        piece: list[_ReadEntry] = []
        size = 0
        for entry in self._new_entries():
            item = self._examine(entry)
            if item is None:
                continue
            piece.append(item)
            size += len(item.noisy)
            if len(piece) >= _PIECE or size >= _PIECE_NUMBERS:
                yield self._compare(piece)
                piece, size = [], 0
        if piece:
            yield self._compare(piece)

    def _new_entries(self) -> Iterator[Entry]:
        """Yield the charges whose answer was missing before, then those after the last row that was read."""
        # A copy: an answer that has come since is removed from the mapping while this loop runs.
        for receipt_id in list(self._unanswered.values()):
            yield self._ledger.entry(receipt_id)
        while entries := self._ledger.entries(after=self.row, first=_READ):
            for entry in entries:
                self._digests[entry.receipt.id] = entry.receipt.question
                yield entry
                assert entry.receipt.seq is not None
                # Only after it was used: whoever stops early finds this row again.
                self.row = entry.receipt.seq

    def _examine(self, entry: Entry) -> _ReadEntry | None:
        """Return a charge to compare with its exact sums; None if it was read before or cannot be used."""
        # Several analysts may have paid for the same draw.
        query = entry.receipt.question or entry.receipt.id
        if query in self._read:
            return None
        item = _read_entry(self._database, entry, self._digests)
        if item == UNANSWERED:
            self._unanswered[query] = entry.receipt.id
            return None
        self._unanswered.pop(query, None)
        self._read.add(query)
        if isinstance(item, str):
            self._unused[item] += 1
            return None
        return item

    def _compare(self, piece: Sequence[_ReadEntry]) -> list[StoredAnswer]:
        """Return answers with their noise, without those about other rows."""
        answers = []
        for item, sums in zip(piece, self._exact_sums([item.bound for item in piece]), strict=True):
            answer = _stored_answer(item, sums)
            if not item.certain and _is_larger([NoiseSize.from_answer(answer)], _OTHER_ROWS):
                self._unused[OTHER_ROWS] += 1
            else:
                answers.append(answer)
        return answers

    def _exact_sums(self, bounds: Sequence[BoundAggregate]) -> Iterator[list[int]]:
        """Yield the exact integers of aggregates, of which a few at a time share a pass over the rows."""
        for start in range(0, len(bounds), _TOGETHER):
            # Few, and behind nobody's back: light questions have passes of their own.
            for result in self._database._background_passes.submit(bounds[start : start + _TOGETHER]):
                if isinstance(result, Exception):
                    raise result
                yield result


def _read_entry(database: QueryExecutor, entry: Entry, digests: Mapping[str, str | None]) -> _ReadEntry | str:
    """Return a charge with its aggregate and noise, or the reason why the attack cannot use it."""
    request, receipt = entry.asked, entry.receipt
    if request is None or "question" not in request:
        return WITHOUT_QUESTION
    if entry.answer is None:
        return UNANSWERED
    if receipt.schema != database.schema.digest:
        return OTHER_SCHEMA
    try:
        aggregate = parse_expressions(aggregate_from_dict(request["question"]), database.curation)
        privacy = None if request["privacy"] is None else promise_from_dict(request["privacy"])
        bound, noise = database.cost_model.calibrate_charged(
            aggregate, receipt.promises, privacy=privacy, variance=request["variance"]
        )
        noisy = json.loads(entry.answer)["noisy"]
    except (DiscreetError, KeyError, TypeError, ValueError):
        return UNREADABLE
    if len(receipt.promises) != 1 or len(noisy) != bound.size or not noise.groups:
        return UNREADABLE
    contributions = row_contributions(aggregate, bound, database.curation)
    if contributions is None:
        return NOT_BY_ROWS
    refined = request.get("refines")
    # The digest of a query that refines another covers that other one.
    certain = receipt.question == database._digest(bound, noise, digests.get(refined) if refined else None)
    # The digest covers the version of the rows and the cost of the noise. If it differs although the charge
    # is the same, the rows were others; if the charge differs too, the answer may still be about these rows.
    if not certain and receipt.promises == (noise.promise,):
        return OTHER_ROWS
    return _ReadEntry(entry, bound, noise, contributions, noisy, certain)


def _stored_answer(read: _ReadEntry, exact: Sequence[int]) -> StoredAnswer:
    """Return the answer with its noise: noisy integers less the exact ones, on the lattice of the noise."""
    scales, bits = (np.array(values) for values in zip(*read.noise.groups, strict=True))
    shifts = bits[read.noise.group]
    # In integers: floats would round two large numbers before their small difference is taken.
    added = [n - shift_bits(own, int(shift)) for n, own, shift in zip(read.noisy, exact, shifts, strict=True)]
    step = 2.0 ** -shifts.astype(np.float64)
    receipt = read.entry.receipt
    assert receipt.seq is not None
    return StoredAnswer(
        row=receipt.seq,
        promise=receipt.promises[0],
        law=read.noise.law,
        contributions=read.contributions,
        noise=np.array([float(value) for value in added]) * step,
        scale=scales[read.noise.group] * step,
        step=step,
        certain=read.certain,
    )


def exact_sums(database: QueryExecutor, bound: BoundAggregate) -> list[int]:
    """Return the exact integers of an aggregate, computed in a batch with other queries."""
    (result,) = database._passes.submit([bound])
    if isinstance(result, Exception):
        raise result
    return result


@dataclass(frozen=True, slots=True)
class NoiseSize:
    """How large the noise of one answer is, for the tests of :func:`noise_alarms`.

    Attributes
    ----------
    row : int
        Number of the charge's row in the ledger.
    size : int
        Number of entries of the answer.
    certain : bool
        Whether the ledger proves that the answer is about the present rows.
    least, most : float
        Sums of squared standardized noise; `least` with half a lattice step added to each entry, because a
        draw on a lattice is exactly 0 with positive probability.
    """

    row: int
    size: int
    certain: bool
    least: float
    most: float

    @classmethod
    def from_answer(cls, answer: StoredAnswer) -> NoiseSize:
        """Return the size of an answer's noise."""
        return cls(
            answer.row, answer.contributions.size, answer.certain, answer.squares(0.5), answer.squares()
        )


def noise_alarms(answers: Sequence[NoiseSize]) -> Iterator[str]:
    """Yield a sentence for each answer whose noise is not as declared, and for all answers together.

    Parameters
    ----------
    answers : sequence of NoiseSize
        Noise of the answers about the present rows.

    Privacy
    -------
    All alarms together are false with probability :data:`FALSE_ALARM` at most. They name rows of the ledger,
    which are public.

    Notes
    -----
    Each answer, and all of them together, is tested on both sides by the sum of its squared standardized
    noise against the chi-squared law with as many degrees of freedom as entries; the failure probability is
    shared equally among the tests.

    Reference
    ---------
    docs/explanation/theorems/guessing.md.
    """
    # Two sides of every answer, and two of all together.
    allowed = FALSE_ALARM / (2 * len(answers) + 2)
    for answer in answers:
        if _is_smaller([answer], allowed):
            yield f"The noise in row {answer.row} of the ledger is smaller than declared."
        # An uncertain answer that is too far off was already set aside as one about other rows.
        elif answer.certain and _is_larger([answer], allowed):
            yield f"The noise in row {answer.row} of the ledger is larger than declared."
    if answers and _is_smaller(answers, allowed):
        yield "The noise of all answers together is smaller than declared."
    certain = [answer for answer in answers if answer.certain]
    if certain and _is_larger(certain, allowed):
        yield "The noise of all answers together is larger than declared."


def _is_smaller(answers: Sequence[NoiseSize], chance: float) -> bool:
    """Return whether the probability of noise as small as this is below ``chance``."""
    least = sum(answer.least for answer in answers)
    return bool(special.gammainc(sum(answer.size for answer in answers) / 2, least / 2) < chance)


def _is_larger(answers: Sequence[NoiseSize], chance: float) -> bool:
    """Return whether the probability of noise as large as this is below ``chance``."""
    most = sum(answer.most for answer in answers)
    return bool(special.gammaincc(sum(answer.size for answer in answers) / 2, most / 2) < chance)
