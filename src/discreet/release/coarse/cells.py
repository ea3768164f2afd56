"""One randomized answer of a row: for a column, or for several columns together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.law import JointResponseLaw, Law, ResponseLaw, SampledLaw
from discreet.noise import Stream, randomized_response, response_threshold
from discreet.privacy import floors
from discreet.privacy.calibrate import keep_probability, response_epsilon

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._typing import AnyArray, Bools, Ints
    from discreet.privacy import ColumnFloor
    from discreet.release.coarse.codings import Coding

_DOWN = 1 - 2.0**-40
"""Floors are rounded down by more than their arithmetic is off."""


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
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
    def for_epsilon(cls, codings: tuple[Coding, ...], epsilon: float) -> Cell:
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

    def scaled(self, factor: float) -> Cell:
        """Return the cell whose log odds are divided by ``factor``."""
        return Cell(self.codings, keep_probability(self.epsilon / factor, self.levels))

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
            out[coding.name] = codes if shown is None else np.where(shown, codes, coding.hidden())
        return out
