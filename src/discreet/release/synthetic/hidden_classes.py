"""Hidden classes: columns that are independent given a class that no table shows, fitted to tables of two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.release.synthetic.arithmetic import add_along, divide, multiply_rounded
from discreet.release.synthetic.sampling import apportion, draw_levels

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.noise import Stream
    from discreet.release.synthetic.selection import Pair

HIDDEN_CLASSES = 32
MOST_FITTED = 4096
"""Largest number of cells of all columns together that hidden classes are fitted to."""
_STEPS, _LEAST_STEPS, _WORK = 100, 20, 2**26
"""Steps of fitting; fewer where the cells of all tables times the steps exceed the last number."""
_KEPT_MARGIN = 1e-6  # of a column's own counts in each hidden class, so that none rules a cell out for good
# Bits of a share of a cell, of one times the share of its class, and of a ratio, which is at most 2**8: sums
# of their products are below 2**53 for up to 4,096 columns.
_SHARE_BITS, _JOINT_BITS, _RATIO_BITS, _LARGEST_RATIO = 18, 30, 14, 2.0**8


@dataclass(frozen=True, eq=False)
class HiddenClasses:
    """Shares of hidden classes, and of every column's cells in each of them.

    Attributes
    ----------
    classes : array of shape (hidden classes,)
        Share of each hidden class; they add up to 1.
    columns : list of array of shape (hidden classes, cells)
        Share of the cells of each column in each hidden class.
    """

    classes: Floats
    columns: list[Floats]

    def draw(self, size: int, stream: Stream, given: Mapping[int, int] | None = None) -> list[AnyArray]:
        """Return a cell for every row and column, in proportion to the shares.

        Parameters
        ----------
        size : int
            Number of rows that are drawn.
        stream : Stream
            Source of the random words.
        given : mapping of int to int, optional
            Cell that all rows have, for some columns; None for none.
        """
        shares = self.classes
        for column, cell in (given or {}).items():
            shares = shares * self.columns[column][:, cell]
        counts = apportion(np.array([size]), shares[None], stream.words(len(shares)))[0]
        hidden = np.repeat(np.arange(len(shares), dtype=np.uint16), counts)
        fixed = given or {}
        return [
            np.full(size, fixed[column], np.uint16) if column in fixed else draw_levels(hidden, one, stream)
            for column, one in enumerate(self.columns)
        ]


def fit_hidden_classes(tables: Mapping[Pair, Floats], sizes: Sequence[int], stream: Stream) -> HiddenClasses:
    """Return hidden classes under which columns have given tables of two, as far as steps of EM bring them.

    Parameters
    ----------
    tables : mapping of (int, int) to array
        Counts of the cells of two columns, none negative; every column is in one of them.
    sizes : sequence of int
        Number of cells of each column.
    stream : Stream
        Source of the random words that tell hidden classes apart to begin with.

    Notes
    -----
    With shares ``w_k`` of hidden classes, ``p_k`` of cells in them, ``m_ab = sum_k w_k p_ka p_kb`` and ``r``
    the tables over ``m``, a step replaces ``p_ka`` by ``w_k p_ka sum_b r_ab p_kb`` in proportion: it raises
    the sum of the log-likelihoods of all tables.
    """
    ends = np.cumsum([0, *sizes])
    total = int(ends[-1])
    wanted = np.zeros((total, total))
    margin = np.zeros(total)
    for (first, second), table in tables.items():
        rows, columns = slice(*ends[first : first + 2]), slice(*ends[second : second + 2])
        share = divide(table, add_along(add_along(table, 0), 0)[()])
        wanted[rows, columns], wanted[columns, rows] = share, share.T
        margin[rows], margin[columns] = add_along(share, 1), add_along(share, 0)
    place = np.repeat(np.arange(len(sizes)), sizes)
    block = np.arange(HIDDEN_CLASSES)[:, None] * len(sizes) + place
    # Classes that begin alike stay alike under EM.
    start = (stream.words(HIDDEN_CLASSES * total) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    shares = _normalize(margin * (0.5 + start.reshape(HIDDEN_CLASSES, total)), block)
    classes = np.full(HIDDEN_CLASSES, 1 / HIDDEN_CLASSES)
    for _ in range(min(_STEPS, max(_LEAST_STEPS, _WORK // (total * total)))):
        joint = classes[:, None] * shares
        model = multiply_rounded(joint.T, _JOINT_BITS, shares, _SHARE_BITS)
        ratio = np.minimum(divide(wanted, model), _LARGEST_RATIO)
        moved = multiply_rounded(shares, _SHARE_BITS, ratio, _RATIO_BITS)
        found = classes[:, None] * shares * moved
        shares = _normalize(found + _KEPT_MARGIN * margin, block)
        sums = add_along(found, 1)
        classes = divide(sums, add_along(sums, 0)[()])
    return HiddenClasses(classes, [shares[:, ends[i] : ends[i + 1]].copy() for i in range(len(sizes))])


def _normalize(values: Floats, block: Ints) -> Floats:
    """Return numbers over their sums, which are those of the places with the same block."""
    sums = np.bincount(block.ravel(), values.ravel())
    return divide(values, sums[block])
