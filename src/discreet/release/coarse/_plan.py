"""One randomized answer of a row: for a column, or for several columns together.

What a coarse release does to each row: a public map to few values, then randomized answers.
"""

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
"""Floors are rounded down by more than their arithmetic is off."""


@dataclass(frozen=True, slots=True, eq=False)
class CoarseCell:
    """Randomized response on the combination of some columns, of one most of the time.

    Attributes
    ----------
    codings : tuple of Coding
        What the columns hold; combinations are counted with the last one moving fastest.
    keep : float
        How often a combination is published as it is.
    """

    codings: tuple[Coding, ...]
    keep: float

    @classmethod
    def for_epsilon(cls, codings: tuple[Coding, ...], epsilon: float) -> CoarseCell:
        """Spend ``epsilon`` on one answer."""
        return cls(codings, keep_probability(epsilon, math.prod(c.levels for c in codings)))

    @property
    def levels(self) -> int:
        """How many combinations there are."""
        return math.prod(c.levels for c in self.codings)

    @property
    def sampled(self) -> bool:
        """Whether some rows do not show it."""
        return self.codings[0].sampled

    @property
    def epsilon(self) -> float:
        """Of one answer, rounded up."""
        return response_epsilon(self.keep, self.levels)

    def scaled(self, factor: float) -> CoarseCell:
        """Return the cell whose log odds are divided by ``factor``."""
        return CoarseCell(self.codings, keep_probability(self.epsilon / factor, self.levels))

    def law(self, coding: Coding, picked: int, among: int) -> Law:
        """Return the public law of one of its columns."""
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
        """Return how often any guess at one of its columns is wrong, for a unit with up to ``rows`` rows.

        Each row shows the cell with probability ``share``; None where a blind guess is always right.

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
        """Return the published codes of its columns; ``shown`` says which rows show it, None all."""
        codes: Ints = np.zeros(len(truth[self.codings[0].name]), np.int64)
        for coding in self.codings:
            codes = codes * coding.levels + coding.from_published(truth[coding.name])
        # Drawn for every row, so that the time says nothing about which rows show it.
        answers = randomized_response(codes, self.levels, response_threshold(self.keep, self.levels), stream)
        out: dict[str, AnyArray] = {}
        for coding in reversed(self.codings):
            answers, own = np.divmod(answers, coding.levels)
            codes = coding.to_published(own)
            out[coding.name] = codes if shown is None else np.where(shown, codes, coding.hidden_code())
        return out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoarsePlan(ReleasePlan):
    """Cells by randomized response, of which each row shows some; public columns as they are.

    Attributes
    ----------
    schema : Schema
        Of the released table: every protected column is a list.
    cells : tuple of CoarseCell
        The answers of a row; those that are sampled are what a row's are picked from.
    picked : int
        How many sampled ones a row shows.
    """

    schema: Schema
    cells: tuple[CoarseCell, ...]
    picked: int
    columns: tuple[ColumnSummary, ...]
    promises: tuple[Promise, ...]

    def truth(self, rows: Encoded) -> Encoded:
        """Return rows in the values of the released table, without any noise."""
        out = {c.name: rows[c.name] for c in self.schema.released if c.name in rows}
        for cell in self.cells:
            for coding in cell.codings:
                if coding.name in rows:
                    out[coding.name] = coding.encode(rows[coding.name])
        return out

    def noise(self, truth: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Randomize rows that are in the values of the released table."""
        out = {c.name: truth[c.name] for c in self.schema.released if c.name in truth}
        among = sum(cell.sampled for cell in self.cells)
        n_rows = len(next(iter(out.values())))
        # Drawn before anything is looked at, from a number of rows alone.
        marked = subsets(among, self.picked, n_rows, stream) if among else None
        place = 0
        for cell in self.cells:
            shown = None
            if cell.sampled:
                assert marked is not None
                shown, place = marked[:, place], place + 1
            out |= cell.draw(truth, shown, stream)
        return out

    def draw(self, rows: Encoded, stream: Stream) -> dict[str, AnyArray]:
        """Bin, group and randomize; public columns leave as they are."""
        return self.noise(self.truth(rows), stream)

    def misfits(self, columns: Encoded) -> dict[str, str]:
        """Name the columns with published cells that this plan cannot have drawn, and say why."""
        found = ReleasePlan.misfits(
            self, columns
        )  # a class with slots is made twice, and super() knows the first
        sampled = [cell for cell in self.cells if cell.sampled]
        if not sampled:
            return found
        seen = np.zeros(len(columns[sampled[0].codings[0].name]), np.int64)
        for cell in sampled:
            shown = [columns[c.name] != c.hidden_code() for c in cell.codings]
            for coding, also in zip(cell.codings[1:], shown[1:], strict=True):
                if (also != shown[0]).any():
                    found.setdefault(coding.name, "cells without those that go with them")
            seen += shown[0]
        if (seen != self.picked).any():
            name = sampled[0].codings[0].name
            found.setdefault(name, f"rows that do not show {self.picked} of {len(sampled)} answers")
        return found
