"""What a coarse release does to each row: a public map to few values, then randomized answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.noise import subsets
from discreet.release.base import ColumnSummary, Plan

if TYPE_CHECKING:
    from discreet._typing import AnyArray
    from discreet.noise import Stream
    from discreet.privacy import Promise
    from discreet.release.base import Encoded
    from discreet.release.coarse.cells import Cell
    from discreet.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoarsePlan(Plan):
    """Cells by randomized response, of which each row shows some; public columns as they are.

    Attributes
    ----------
    schema : Schema
        Of the released table: every protected column is a list.
    cells : tuple of Cell
        The answers of a row; those that are sampled are what a row's are picked from.
    picked : int
        How many sampled ones a row shows.
    """

    schema: Schema
    cells: tuple[Cell, ...]
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
        found = Plan.misfits(self, columns)  # a class with slots is made twice, and super() knows the first
        sampled = [cell for cell in self.cells if cell.sampled]
        if not sampled:
            return found
        seen = np.zeros(len(columns[sampled[0].codings[0].name]), np.int64)
        for cell in sampled:
            shown = [columns[c.name] != c.hidden() for c in cell.codings]
            for coding, also in zip(cell.codings[1:], shown[1:], strict=True):
                if (also != shown[0]).any():
                    found.setdefault(coding.name, "cells without those that go with them")
            seen += shown[0]
        if (seen != self.picked).any():
            name = sampled[0].codings[0].name
            found.setdefault(name, f"rows that do not show {self.picked} of {len(sampled)} answers")
        return found
