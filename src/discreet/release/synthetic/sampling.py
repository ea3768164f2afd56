"""Rows in proportion: apportioned draws of levels, weights fitted to tables, systematic resampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.query.joint_tables import join_tables
from discreet.release.synthetic.arithmetic import add_along, add_up, divide, order_rows
from discreet.release.synthetic.columns import narrow_type, split_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats, Ints, Words
    from discreet.noise import Stream

_LEAST_FACTOR, _LARGEST_FACTOR = 0.1, 10.0
_WORTH_A_ROUND = 0.95  # of the misfit before: rounds end when one leaves more
_CLOSE_ENOUGH = 2e-3  # twice the distance, in part of the rows, at which a table is not fitted further
_LEAST_RANDOM_BITS = 9  # by which the rows of a group are put in order
_PIECE = 2**16  # rows that are weighted at once: what is computed for them stays in a processor's cache


def draw_levels(groups: AnyArray, shares: Floats, stream: Stream) -> AnyArray:
    """Return a level for each row, so that the levels of every group are in proportion to its shares.

    Levels are returned in the smallest unsigned type that holds them.

    Parameters
    ----------
    groups : array of int
        Group of each row.
    shares : array of shape (n_groups, n_levels)
        Relative frequencies of the levels in each group, none negative; all 0 stands for equal ones.
    stream : Stream
        Source of the random words.

    Notes
    -----
    The counts of a group are its expected counts rounded down; the rows that remain go to the levels with the
    largest fraction, counted together with what the level was owed by earlier groups. Which row of the group
    gets which level is random. Drawn independently, counts would vary as those of a sample do.
    """
    counts = np.bincount(groups, minlength=len(shares))
    present = np.flatnonzero(counts)
    levels = apportion(counts[present], shares[present], stream.words(shares.shape[1]))
    # Few bits are enough: a tie matters only where it falls on the boundary between two levels.
    words = np.empty(len(groups), np.uint16)
    for rows in split_rows(len(groups)):
        words[rows] = stream.words(rows.stop - rows.start) >> np.uint64(48)
    short = groups.astype(np.uint16, copy=False) if len(shares) <= 2**16 else groups
    bits = 16 - (len(shares) - 1).bit_length()
    keys = [short, words]
    if bits >= _LEAST_RANDOM_BITS:
        # Sorting 16 bits takes time in proportion to the rows, so groups and words share them.
        keys = [short << np.uint16(bits) | words >> np.uint16(16 - bits)]
    order = order_rows(keys, len(groups))
    dtype = narrow_type(shares.shape[1] - 1)
    drawn = np.empty(len(groups), dtype)
    drawn[order] = np.repeat(np.tile(np.arange(shares.shape[1], dtype=dtype), len(present)), levels.ravel())
    return drawn


def apportion(counts: Ints, shares: Floats, tiebreak: Words) -> Ints:
    """Return whole numbers of rows for each group and level, with the counts as sums of the groups.

    Parameters
    ----------
    counts : array of shape (n_groups,)
        Number of rows of each group.
    shares : array of shape (n_groups, n_levels)
        Relative frequencies of the levels in each group.
    tiebreak : array of shape (n_levels,)
        Random words, by which levels are ordered that are owed the same.
    """
    totals = add_along(shares, 1)
    even = np.where((totals > 0)[:, None], shares, 1.0)
    expected = even * divide(counts, add_along(even, 1))[:, None]
    whole = np.floor(expected).astype(np.int64)
    fraction = expected - whole
    owed = np.zeros(shares.shape[1])
    rank = np.argsort(tiebreak, kind="stable")
    left = counts - np.cumsum(whole, axis=1)[:, -1]
    for group, rest in enumerate(left.tolist()):
        owed = owed + fraction[group]
        possible = rank[even[group, rank] > 0]
        chosen = possible[np.argsort(-owed[possible], kind="stable")]
        # Rounding may leave one row more or less than there are fractions.
        chosen = np.resize(chosen, rest) if rest > len(chosen) else chosen[: max(rest, 0)]
        np.add.at(whole[group], chosen, 1)
        np.subtract.at(owed, chosen, 1.0)
        if rest < 0:
            whole[group, int(np.argmax(whole[group]))] += rest
    return whole


def fit_weights(
    codes: Sequence[AnyArray],
    wanted: Sequence[tuple[tuple[int, ...], Floats]],
    weight: float | Floats,
    rounds: int,
) -> Floats:
    """Return weights of rows under which they have given tables, as far as rounds of fitting bring them.

    Parameters
    ----------
    codes : sequence of array of int
        Cell of every row, for each column.
    wanted : sequence of (tuple of int, array)
        Indices of columns, and the counts that their table shall have.
    weight : float or array
        Weight of every row to begin with, the same for all or one for each.
    rounds : int
        Largest number of passes over all tables; fewer are made where another hardly changes anything.

    Notes
    -----
    Weights are multiplied by what each table wants over what it has, one table after the other. Tables that
    are inside one joint table are fitted on its cells, and rows get the product of all their factors.
    """
    n = len(codes[0])
    weights = np.full(n, weight) if isinstance(weight, float) else weight.copy()
    close = _CLOSE_ENOUGH * add_up(weights)
    sizes = [1] * len(codes)
    for columns, table in wanted:
        for column, size in zip(columns, table.shape, strict=True):
            sizes[column] = size
    joints = join_tables([columns for columns, _ in wanted], sizes, n)
    inside = [
        [(wanted[i][1].ravel(), joint.place_cells(wanted[i][0])) for i in joint.inside] for joint in joints
    ]
    pieces = [slice(first, first + _PIECE) for first in range(0, n, _PIECE)]
    before = np.inf
    for _ in range(rounds):
        off = 0.0
        for joint, tables in zip(joints, inside, strict=True):
            start = np.zeros(joint.size)
            places = [joint.place_rows(codes, rows) for rows in pieces]
            for rows, place in zip(pieces, places, strict=True):
                np.add.at(start, place, weights[rows])
            counts = start
            for table, cells in tables:
                current = np.bincount(cells, counts, table.size)
                wrong = add_up(np.abs(current - table))
                off += wrong
                if wrong > close:
                    factor = divide(table, current, 1.0)
                    counts = counts * np.take(np.clip(factor, _LEAST_FACTOR, _LARGEST_FACTOR), cells)
            if counts is start:
                continue
            ratio = divide(counts, start, 1.0)
            for rows, place in zip(pieces, places, strict=True):
                weights[rows] *= np.take(ratio, place)
        if off > _WORTH_A_ROUND * before:
            break
        before = off
    return weights


def resample(order: Ints, weights: Floats, n: int, stream: Stream) -> AnyArray:
    """Return `n` rows taken at equal steps of their weights, in a given order, from one random start."""
    ends = np.cumsum(weights[order])
    start = float(stream.words(1)[0] >> np.uint64(11)) * 2.0**-53
    taken = np.empty(n, narrow_type(len(weights) - 1))
    for rows in split_rows(n):
        places = (start + np.arange(rows.start, rows.stop)) * (ends[-1] / n)
        picked = np.minimum(np.searchsorted(ends, places, side="right"), len(order) - 1)
        taken[rows] = order[picked]
    return taken
