"""Plan of a coarse release: randomized answers for columns or combinations, and what each row shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.noise import Stream, randomized_response, response_threshold, subsets
from discreet.noise_law import JointResponseLaw, Law, ResponseLaw, SampledLaw
from discreet.privacy import floors
from discreet.privacy.calibration import keep_probability, response_epsilon
from discreet.release.publication import ColumnSummary, ReleasePlan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import AnyArray, Bools, Ints
    from discreet.privacy import ColumnFloor, Promise
    from discreet.release.coarse._codings import Coding
    from discreet.release.publication import Encoded
    from discreet.schema import Schema

_DOWN = 1 - 2.0**-40
"""Factor that rounds a floor down by more than its arithmetic is off."""


@dataclass(frozen=True, slots=True, eq=False)
class CoarseCell:
    """Randomized response on one column, or on the combination of several.

    Attributes
    ----------
    codings : tuple of Coding
        Codings of the columns; combinations are numbered with the last column changing fastest.
    keep : float
        Probability that a combination is published as it is.
    """

    codings: tuple[Coding, ...]
    keep: float

    @classmethod
    def for_epsilon(cls, codings: tuple[Coding, ...], epsilon: float) -> CoarseCell:
        """Return the cell that spends ``epsilon`` on one answer."""
        return cls(codings, keep_probability(epsilon, math.prod(c.levels for c in codings)))

    @property
    def levels(self) -> int:
        """Number of combinations of values."""
        return math.prod(c.levels for c in self.codings)

    @property
    def sampled(self) -> bool:
        """Whether some rows do not show the cell."""
        return self.codings[0].sampled

    @property
    def epsilon(self) -> float:
        """Epsilon of one answer, rounded up."""
        return response_epsilon(self.keep, self.levels)

    def scaled(self, factor: float) -> CoarseCell:
        """Return the cell with epsilon, its log odds, divided by ``factor``."""
        return CoarseCell(self.codings, keep_probability(self.epsilon / factor, self.levels))

    def law(self, coding: Coding, picked: int, among: int) -> Law:
        """Return the public law of one column, of which ``picked`` of ``among`` are shown by each row."""
        law: Law
        if len(self.codings) == 1:
            law = ResponseLaw(levels=self.levels, keep=self.keep)
        else:
            names = tuple(c.name for c in self.codings)
            law = JointResponseLaw(columns=names, levels=self.levels, keep=self.keep)
        if not self.sampled:
            return law
        return SampledLaw(law=law, picked=picked, among=among, unpublished=coding.unpublished)

    def floor(self, coding: Coding, share: float, rows: int) -> ColumnFloor | None:
        """Return the least error rate of a guess at one column, for a unit with up to ``rows`` rows.

        Each row shows the cell with probability ``share``; None where a blind guess is always right.

        Notes
        -----
        ``sum over j of C(rows, j) share^j (1 - share)^(rows - j) e_j`` with e_j the least error rate given j
        answers.

        Reference
        ---------
        docs/explanation/theorems/coarse-response.md
        """
        prior = coding.prior
        error = math.fsum(
            math.comb(rows, j)
            * share**j
            * (1 - share) ** (rows - j)
            * floors.wrong_guess_floor(self.keep, self.levels, listed=len(prior.codes), answers=j)
            for j in range(rows + 1)
        )
        return floors.column_floor(error * _DOWN, prior)

    def draw(self, truth: Mapping[str, AnyArray], shown: Bools | None, stream: Stream) -> dict[str, AnyArray]:
        """Return the published codes of the columns; ``shown`` marks the rows that show them, None all."""
        codes: Ints = np.zeros(len(truth[self.codings[0].name]), np.int64)
        for coding in self.codings:
            codes = codes * coding.levels + coding.from_published(truth[coding.name])
        # Drawn for every row, so that the time does not depend on which rows show the cell.
        answers = randomized_response(codes, self.levels, response_threshold(self.keep, self.levels), stream)
        out: dict[str, AnyArray] = {}
        for coding in reversed(self.codings):
            answers, own = np.divmod(answers, coding.levels)
            codes = coding.to_published(own)
            out[coding.name] = codes if shown is None else np.where(shown, codes, coding.hidden_code())
        return out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoarsePlan(ReleasePlan):
    """Plan of a coarse release: randomized cells, of which each row shows some.

    Attributes
    ----------
    schema : Schema
        Schema of the released table, in which every protected column is a list.
    cells : tuple of CoarseCell
        Answers of a row; each row shows some of those that are sampled, and all others.
    picked : int
        Number of sampled cells that a row shows.
    columns, promises
        As for :class:`~discreet.release.publication.ReleasePlan`.
    """

    schema: Schema
    cells: tuple[CoarseCell, ...]
    picked: int
    columns: tuple[ColumnSummary, ...]
    promises: tuple[Promise, ...]

    def truth(self, rows: Encoded) -> Encoded:
        """Return rows with the values of the released table, without noise."""
        out = {c.name: rows[c.name] for c in self.schema.released if c.name in rows}
        for cell in self.cells:
            for coding in cell.codings:
                if coding.name in rows:
                    out[coding.name] = coding.encode(rows[coding.name])
        return out

    def noise(self, truth: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Return randomized rows, from rows with the values of the released table."""
        out = {c.name: truth[c.name] for c in self.schema.released if c.name in truth}
        n_sampled = sum(cell.sampled for cell in self.cells)
        n_rows = len(next(iter(out.values())))
        # Drawn first, from the number of rows alone, so that no cell can influence what is shown.
        shown_cells = subsets(n_sampled, self.picked, n_rows, stream) if n_sampled else None
        place = 0
        for cell in self.cells:
            shown = None
            if cell.sampled:
                assert shown_cells is not None
                shown, place = shown_cells[:, place], place + 1
            out |= cell.draw(truth, shown, stream)
        return out

    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Return rows binned, grouped and randomized, with public columns as they are."""
        return self.noise(self.truth(rows), stream)

    def misfits(self, columns: Encoded) -> dict[str, str]:
        """Return the columns with cells that this plan cannot have drawn, each with the reason."""
        misfits = ReleasePlan.misfits(
            self, columns
        )  # a dataclass with slots is a second class, which super() does not know
        sampled = [cell for cell in self.cells if cell.sampled]
        if not sampled:
            return misfits
        n_shown = np.zeros(len(columns[sampled[0].codings[0].name]), np.int64)
        for cell in sampled:
            shown = [columns[c.name] != c.hidden_code() for c in cell.codings]
            for coding, also in zip(cell.codings[1:], shown[1:], strict=True):
                if (also != shown[0]).any():
                    misfits.setdefault(coding.name, "cells without those that go with them")
            n_shown += shown[0]
        if (n_shown != self.picked).any():
            name = sampled[0].codings[0].name
            misfits.setdefault(name, f"rows that do not show {self.picked} of {len(sampled)} answers")
        return misfits
