"""Bounds on counts that no table holds: from counts of some of the columns, and from scores of pairs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from discreet.query.intervals import LEVEL, ResultInterval, one_sided_width
from discreet.query.language.cell_masks import condition_columns
from discreet.release.statistics._published_counts import maximal_subsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray
    from discreet.query.language import Expression
    from discreet.release.statistics._published_counts import CountTable, PublishedCounts, ScoredPair


def bound_count(counts: PublishedCounts, where: Expression) -> ResultInterval:
    """Return two ends between which an exact count lies with probability :data:`LEVEL` or more.

    Parameters
    ----------
    counts : PublishedCounts
        Noisy counts and scores of a release.
    where : Expression
        Condition on rows, of columns that need not be in one table.

    Notes
    -----
    Rows that fulfill a condition are in the cells that it touches, and all rows of the cells inside it do:
    sums over these are bounds from above and below, in any table of some of its columns. A score says on
    how many rows a table disagrees with a public one, which bounds every sum of its cells on both sides. The
    error is divided equally among the noisy numbers that are used; which these are depends on the tables and
    the condition alone.

    Reference
    ---------
    docs/explanation/theorems/synthetic.md.
    """
    names = condition_columns(where)
    most = np.inf if counts.n_rows is None else float(counts.n_rows)
    sums = [
        side for tables in _table_sets(counts, names) for side in _side_sums(tables, where, counts.n_rows)
    ]
    pairs = _last_scores(counts.pairs, names)
    used = len(sums) + len(pairs)
    lower, upper = 0.0, most
    if used == 0:
        return ResultInterval(lower, upper)
    width = one_sided_width(counts.law, 1 - (1 - LEVEL) / used)
    for is_upper, value, sd in sums:
        if is_upper:
            upper = min(upper, value + width * sd)
        else:
            lower = max(lower, value - width * sd)
    for pair in pairs:
        low, high = _scored_ends(pair, where, counts.n_rows, width)
        lower, upper = max(lower, low), min(upper, high)
    # Ends that contradict each other: one of the bounds failed, and neither is known to be right.
    lower, upper = sorted((min(lower, most), max(upper, 0.0)))
    return ResultInterval(lower, upper)


def _table_sets(counts: PublishedCounts, names: Sequence[str]) -> list[list[CountTable]]:
    """Return the tables of each largest set of columns that was counted together, fine ones apart."""
    found = []
    for subset in maximal_subsets(names, (table.axes for table in counts.tables)):
        for is_fine in (False, True):
            tables = [
                table
                for table in counts.tables
                if table.is_fine == is_fine and {n for n in names if n in table.axes} == set(subset)
            ]
            found += [tables] if tables else []
    return found


def _side_sums(
    tables: Sequence[CountTable], where: Expression, n_rows: int | None
) -> list[tuple[bool, float, float]]:
    """Return merged sums of the cells touched, an upper bound, and of those inside, a lower one."""
    inside, touched = tables[0].mask(where)
    found = []
    if not (touched.all() and n_rows is not None):
        found.append((True, *_merge_sums(tables, where, 1)))
    if inside.any():
        found.append((False, *_merge_sums(tables, where, 0)))
    return found


def _merge_sums(tables: Sequence[CountTable], where: Expression, side: int) -> tuple[float, float]:
    """Return the mean of the tables' sums, weighted by precision, and its standard deviation."""
    masks = [table.mask(where)[side] for table in tables]
    precisions = np.array([1 / (t.sd**2 * max(int(m.sum()), 1)) for t, m in zip(tables, masks, strict=True)])
    values = np.array([float(t.values[m].sum()) for t, m in zip(tables, masks, strict=True)])
    total = precisions.sum()
    return float((precisions * values).sum() / total), float(total**-0.5)


def _last_scores(pairs: Sequence[ScoredPair], names: Sequence[str]) -> list[ScoredPair]:
    """Return for each pair of the columns its last score, against what was known best."""
    wanted = {frozenset(pair) for pair in itertools.combinations(names, 2)}
    found = {frozenset(pair.table.axes): pair for pair in pairs}
    return [pair for key, pair in found.items() if key in wanted]


def _scored_ends(
    pair: ScoredPair, where: Expression, n_rows: int | None, width: float
) -> tuple[float, float]:
    """Return a lower and an upper bound from a score, both true where its noise is within `width` sd.

    With ``s`` half the sum of ``|N - A|`` over all cells, ``N - A`` adds up to at most
    ``s + (n - sum A) / 2``, and to at least ``-s + (n - sum A) / 2``, over any of them.
    """
    public = pair.table.values
    inside, touched = pair.table.mask(where)
    score = max(pair.score + width * pair.table.sd, 0.0)
    above, below = 2 * score, 2 * score  # for want of the number of rows: all differences on one side
    if n_rows is not None:
        shift = (n_rows - float(public.sum())) / 2
        above, below = max(score + shift, 0.0), max(score - shift, 0.0)
    return _sum(public, inside) - below, _sum(public, touched) + above


def _sum(values: AnyArray, chosen: AnyArray) -> float:
    return float(values[chosen].sum())
