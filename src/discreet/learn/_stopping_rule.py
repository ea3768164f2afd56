"""The score of a split on noisy counts, how far it can be off, and when a node of a tree is closed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats
    from discreet.query.calibration import Law


def information(table: Floats, least: float) -> float:
    """Return the score of a split: minus the number of rows times the entropy of labels given values.

    Parameters
    ----------
    table : array of shape (n_values, n_labels)
        Noisy counts of rows by value of the column and label.
    least : float
        Count up to which a cell is left out of the sum; 0 for exact counts.

    Notes
    -----
    ``V_A = sum_vl t_vl log(t_vl / t_v)``, the larger the better, over cells above ``least``. The rows of all
    other cells are charged the largest entropy there is, ``log(n_labels)`` each.

    Examples
    --------
    >>> round(information(np.array([[30.0, 10.0], [5.0, 55.0]]), 0.0), 4)
    -39.7036
    """
    # Logarithms of counts near the noise would decide the split.
    kept = table > least
    counts = np.where(kept, table, 0.0)
    rows = counts.sum(axis=1, keepdims=True)
    # A share of 1, whose logarithm is 0, takes cells that are left out of the sum.
    shares = np.where(kept, counts / np.where(rows > 0, rows, 1.0), 1.0)
    skipped = np.where(kept, 0.0, np.maximum(table, 0.0)).sum()
    return float((counts * np.log(shares)).sum() - skipped * math.log(table.shape[1]))


def count_error(variance: float, failure: float, law: Law = "gaussian") -> float:
    """Return a bound that the noise on a count exceeds with probability at most ``failure``."""
    if law == "laplace":
        return math.sqrt(variance / 2) * math.log(1 / failure)
    return math.sqrt(2 * variance * math.log(2 / failure))


def information_error(count: float, moved: float, shape: tuple[int, ...]) -> float:
    """Return a bound on how far :func:`information` is off for a node, for each of its rows.

    Parameters
    ----------
    count : float
        Number of rows of the node, or a lower bound on it.
    moved : float
        Largest distance of a cell, as it enters the sum, from its true count: the error of a count, and the
        count up to which cells are left out.
    shape : (int, int)
        Numbers of values and of labels of the table.

    Returns
    -------
    float
        ``2 cells h (1 + log(1 / h))`` with ``h = moved / count``; infinite where h is too large for it, more
        than 0.36 for all cells of one value together.

    Reference
    ---------
    docs/explanation/theorems/sulq-id3.md
    """
    if moved == 0:
        return 0.0
    if count <= 0 or shape[1] * moved / count > math.exp(-1):
        return math.inf
    share = moved / count
    return 2 * math.prod(shape) * share * (1 - math.log(share))


@dataclass(frozen=True)
class StoppingRule:
    """When a node is split no further, and what is certain about the splits that are made.

    Attributes
    ----------
    stop : float
        Standard deviations of the noise on a whole node below which it is closed.
    skip : float
        Standard deviations of the noise on a cell up to which it is left out of the score.
    gain_loss : float or None
        Largest loss of gain of a split for which a node is still split; None for any.
    failure : float
        Probability, over all counts of the tree, that some cell is farther from its count than is assumed.
    """

    stop: float
    skip: float
    gain_loss: float | None
    failure: float

    def least_count(self, sd: float, mean_size: float) -> float:
        """Return the noisy count below which a node is closed, ``stop sd sqrt(2 mean_size)``."""
        return self.stop * sd * math.sqrt(2 * mean_size)

    def bound_gain_loss(self, tables: Sequence[Floats], sd: float, error: float) -> float:
        """Return how much less gain a row may have by the split with the best noisy score than by the best.

        Parameters
        ----------
        tables : sequence of arrays of shape (n_values, n_labels)
            Noisy counts of a node, for each column that is left.
        sd : float
            Standard deviation of the noise on a count.
        error : float
            Bound on the noise of every cell of the tree.

        Notes
        -----
        Each score is off by at most D, so that the best noisy one is below the best true one by at most 2 D.
        The rows of the node are at least the sum of a table less the error of all of its cells. Cells that
        are left out are charged ``log(n_labels)`` for each of their noisy rows, which is known.
        """
        least = self.skip * sd
        count = max(float(table.sum()) - table.size * error for table in tables)
        if count <= 0:
            return math.inf
        worst = 0.0
        for table in tables:
            charged = float(table[(table > 0) & (table <= least)].sum()) * math.log(table.shape[1])
            off = information_error(count, error + least, (table.shape[0], table.shape[1]))
            worst = max(worst, off + charged / count)
        return 2 * worst
