"""Bounds on counts that no table holds: from counts of some of the columns, and from scores of pairs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from discreet.query.intervals import LEVEL, ResultInterval, one_sided_width
from discreet.query.language.cell_masks import condition_columns, subject_columns
from discreet.release.statistics._column_counts import cell_ends
from discreet.release.statistics._published_counts import maximal_subsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats
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
    more, fewer = _largest_differences(pair, n_rows, width)
    return float(public[inside].sum()) - fewer, float(public[touched].sum()) + more


def _largest_differences(pair: ScoredPair, n_rows: int | None, width: float) -> tuple[float, float]:
    """Return how many rows more, and how many fewer, some cells have than the public table says."""
    score = max(pair.score + width * pair.table.sd, 0.0)
    if n_rows is None:
        return 2 * score, 2 * score  # all differences may be on one side
    shift = (n_rows - float(pair.table.values.sum())) / 2
    return max(score + shift, 0.0), max(score - shift, 0.0)


def bound_mean(counts: PublishedCounts, subject: Expression, where: Expression) -> ResultInterval | None:
    """Return two ends between which an exact mean lies with probability :data:`LEVEL` or more.

    Parameters
    ----------
    counts : PublishedCounts
        Noisy counts and scores of a release.
    subject : Expression
        Column of numbers that is averaged, or condition whose share is wanted.
    where : Expression
        Condition on rows; its columns and those of the subject are two, not counted together.

    Returns
    -------
    ResultInterval or None
        None where there is no score of both columns, or the condition cuts a cell.

    Notes
    -----
    A mean is lowest if as many rows as the score allows are missing from the highest cells of the public
    table, and as many are added to the lowest, all at the lower ends of their cells.
    """
    names = tuple(dict.fromkeys((*subject_columns(subject), *condition_columns(where))))
    pairs = _last_scores(counts.pairs, names)
    if len(names) != 2 or not pairs:
        return None
    table = pairs[0].table
    inside, touched = table.mask(where)
    if not np.array_equal(inside, touched) or not inside.any():
        return None
    more, fewer = _largest_differences(pairs[0], counts.n_rows, one_sided_width(counts.law, LEVEL))
    rows = np.maximum(table.values[inside], 0.0)
    if subject.is_condition:
        low, high = (part[inside].astype(np.float64) for part in table.mask(subject))
    else:
        (name,) = subject_columns(subject)
        shape = [len(axis.labels) if one == name else 1 for one, axis in table.axes.items()]
        ends = (end.reshape(shape) for end in cell_ends(table.axes[name]))
        low, high = (np.broadcast_to(end, inside.shape)[inside] for end in ends)
    lower, upper = _lowest_mean(low, rows, more, fewer), -_lowest_mean(-high, rows, more, fewer)
    return ResultInterval(lower, upper)


def _lowest_mean(numbers: Floats, rows: Floats, more: float, fewer: float) -> float:
    """Return the mean after the highest rows are removed and others are added to the lowest."""
    order = np.argsort(-numbers)
    numbers, rows = numbers[order], rows[order]
    kept = np.maximum(np.cumsum(rows) - fewer, 0.0)
    kept = np.minimum(kept, rows)
    kept[-1] += more
    total = float(kept.sum())
    return float(kept @ numbers) / total if total > 0 else float(numbers[-1])
