"""Rows that repeat where noise of their own makes every row another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.report.verify.moments import FAILURE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._typing import AnyArray, Words

MOST_ROWS = 5_000_000
"""So many rows, the first of the file, are compared with each other."""
_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)


class RepeatTest:
    """Watches rows go by, and says in the end whether more of them repeat than noise allows.

    Two rows come out the same with a chance of at most ``chance``, whatever was true. Of ``n`` rows, ``k``
    pairs without a row in common repeat with a chance of at most ``(n**2 chance / 2)**k / k!``: so many are
    needed that an honest file fails once in 10^9.

    Parameters
    ----------
    columns : sequence of str
        The noised numbers.
    chance : float
        That those of two rows are the same; 1 if nothing is known.
    """

    def __init__(self, columns: Sequence[str], chance: float) -> None:
        self.columns = columns
        self.chance = chance
        self._prints: list[Words] = []
        self._n = 0

    @property
    def tells(self) -> bool:
        """Whether there is anything to compare."""
        return bool(self.columns) and self.chance < 1

    def see(self, batch: Mapping[str, AnyArray]) -> None:
        """Take two 64-bit fingerprints of each row whose numbers are all there."""
        if not self.tells or self._n >= MOST_ROWS:
            return
        matrix = np.column_stack([batch[name] for name in self.columns]).astype(np.float64)
        words = matrix[~np.isnan(matrix).any(axis=1)].view(np.uint64)
        prints = np.zeros((len(words), 2), np.uint64)
        for j in range(words.shape[1]):
            for i, multiplier in enumerate(_MULTIPLIERS):
                mixed = (prints[:, i] ^ words[:, j]) * np.uint64(multiplier)
                prints[:, i] = mixed ^ (mixed >> np.uint64(29 + i))
        self._prints.append(prints)
        self._n += len(words)

    def wrong(self) -> list[str]:
        """Say so if more rows repeat than an honest file has once in 10^9."""
        if not self._n:
            return []
        _, counts = np.unique(np.concatenate(self._prints), axis=0, return_counts=True)
        pairs = int((counts // 2).sum())
        expected = self._n**2 * self.chance / 2
        if not pairs or pairs * math.log(expected) - math.lgamma(pairs + 1) >= math.log(FAILURE):
            return []
        repeated = int((counts - 1).sum())
        return [f"{repeated} rows repeat others in every noised number, which their own noise rules out."]
