"""Estimates from noisy counts: sums behind a mean, correlations of two columns, and bounds on other counts.

Sums have bounds on what is inside cells, with the noise of the counts that they use. Counts that no table
holds are bounded by counts of some of the columns, and by scores of pairs.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.query.intervals import LEVEL, NoisyRatio, ResultInterval, one_sided_width, two_sided_width
from discreet.query.language.cell_masks import condition_columns, subject_columns
from discreet.release.statistics._published_counts import cell_ends, match_cells, maximal_subsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats
    from discreet.query.aggregates.histogram import Axis
    from discreet.query.calibration import Law
    from discreet.query.language import Expression
    from discreet.release.statistics._published_counts import (
        ColumnCounts,
        CountTable,
        PublishedCounts,
        ScoredPair,
    )

_PARTS = 16  # the share of rows in a group is rounded down to parts of this many
_EXACT = 1e-12  # variance of the number of rows, relative to all noise, that is due to rounding
_SPARE = 0.1  # part of the error that goes to what is inside the cells of each column


@dataclass(frozen=True)
class MeanSums:
    """Quotients that bound the means of some groups, less a constant.

    Attributes
    ----------
    lower, upper : NoisyRatio
        Sums that no mean is below and none is above, over the numbers of rows.
    middle : NoisyRatio
        Sums with the mean of each cell as far as it is known.
    """

    lower: NoisyRatio
    upper: NoisyRatio
    middle: NoisyRatio


def sum_column(own: ColumnCounts, chosen: AnyArray, shift: float) -> MeanSums:
    """Return the sums of a column over some of its own cells.

    Parameters
    ----------
    own : ColumnCounts
        Counts of the column in its finest cells.
    chosen : array of bool
        Cells that are averaged over.
    shift : float
        Constant that is subtracted from all values.
    """
    below = np.ravel(chosen).astype(np.float64)
    low, high = cell_ends(own.axis)
    parts = [_covary(own, below * (one - shift), below) for one in (low, high, own.representatives(own.axis))]
    return MeanSums(*parts)


def _covary(own: ColumnCounts, above: Floats, below: Floats) -> NoisyRatio:
    """Return two sums of the same counts, with the covariances of their noise."""
    pairs = ((above, above), (above, below), (below, below))
    first, both, second = (float(a @ own.covariance @ b) for a, b in pairs)
    if second <= _EXACT * float(np.trace(own.covariance)):  # a public number of rows
        both = second = 0.0
    parts = (above @ own.values, below @ own.values, max(first, 0.0), both, second)
    return NoisyRatio(*(np.array([part]) for part in parts))


@dataclass(frozen=True, eq=False)
class GroupCounts:
    """Noisy counts of groups, for each cell of the column that is averaged.

    Attributes
    ----------
    axis : Axis
        Cells of the column.
    values, variances : array of shape (groups, cells)
        Counts and the variances of their noise, which is independent.
    own : ColumnCounts or None
        Counts of the column over all rows; None where they are not known.
    fine : CountTable or None
        Fine counts of the column, whose noise is independent of that of the groups; None without any.
    width : float
        Half the width of an interval, in standard deviations.
    """

    axis: Axis
    values: Floats
    variances: Floats
    own: ColumnCounts | None
    fine: CountTable | None
    width: float

    def sums(self, shift: float) -> MeanSums:
        """Return the sums of all groups."""
        low, high = (end - shift for end in cell_ends(self.axis))
        middle = (low + high) / 2 if self.own is None else self.own.representatives(self.axis) - shift
        # Of values with the opposite sign, the lower bound is less the upper one.
        lower, upper = self._bound(low, high, shift, 1.0), self._bound(-high, -low, shift, -1.0)
        upper = upper._replace(above=-upper.above, covariance=-upper.covariance)
        return MeanSums(lower, upper, self._plain(middle))

    def _plain(self, numbers: Floats) -> NoisyRatio:
        """Return the sums with one number for each cell."""
        return NoisyRatio(
            self.values @ numbers,
            self.values.sum(axis=1),
            self.variances @ (numbers * numbers),
            self.variances @ numbers,
            self.variances.sum(axis=1),
        )

    def _bound(self, low: Floats, high: Floats, shift: float, sign: float) -> NoisyRatio:
        """Return sums that the exact ones are not below: each group has the lowest values there are.

        Notes
        -----
        Any ``N`` of ``F_k`` rows with values from ``x_k`` on have a sum of at least
        ``N t + sum F_k min(x_k - t, 0)``, for every ``t``; it is largest if ``N`` rows are below ``t``. As
        ``t`` serves the place in each cell below which the group's share of all rows would be, were they
        spread evenly: it depends on one precise number alone. The bound is linear in the counts, and used
        where it gains more than the noise of the fine counts costs; otherwise every row is at the lower end
        of its cell.
        """
        plain = self._plain(low)
        places = None if self.fine is None else match_cells(next(iter(self.fine.axes.values())), self.axis)
        if self.fine is None or places is None:
            return plain
        total = max(float(self.fine.values.sum()), 1.0)
        shares = np.floor(_PARTS * np.clip(plain.below / total, 0.0, 1.0)) / _PARTS
        ends = cell_ends(next(iter(self.fine.axes.values())))[0 if sign > 0 else 1]
        fine = sign * (ends - shift)
        for group in np.flatnonzero(shares > 0):
            # Cells outside a condition have no rows of the group, and no noise.
            turn = low + shares[group] * (high - low) * (self.variances[group] > 0)
            beneath = np.minimum(fine - turn[places], 0.0)
            self._improve(plain, int(group), turn, beneath)
        return plain

    def _improve(self, plain: NoisyRatio, group: int, turn: Floats, beneath: Floats) -> None:
        """Write the bound of one group that uses fine counts, where it is the better one."""
        assert self.fine is not None
        above = float(self.values[group] @ turn + beneath @ self.fine.values)
        variances = self.variances[group]
        own = float(variances @ (turn * turn)) + self.fine.sd**2 * float(beneath @ beneath)
        gain = above - float(plain.above[group])
        if gain > 2 * self.width * self.fine.sd * float(np.sqrt(beneath @ beneath)):
            plain.above[group] = above
            plain.above_variance[group] = own
            plain.covariance[group] = float(variances @ turn)


def find_fine(tables: tuple[CountTable, ...], name: str) -> CountTable | None:
    """Return the fine counts of a column; None where it has none."""
    return next((table for table in tables if table.is_fine and tuple(table.axes) == (name,)), None)


def correlate(
    counts: PublishedCounts, columns: tuple[ColumnCounts, ColumnCounts]
) -> tuple[float, float, float] | None:
    """Return the correlation of two columns and the ends of its interval; None where no table has both.

    Notes
    -----
    Let ``A`` and ``B`` be the columns with a number for each cell in place of what is inside. With ``a`` and
    ``b`` their standardized values, ``sum a b N - r sum (a^2 + b^2) / 2 N`` is 0 for the exact counts ``N``
    and the exact correlation ``r`` of ``A`` and ``B``. Errors of means and standard deviations change it by
    their squares alone, so Fieller's set of the quotient holds ``r``. The true columns are vectors at angles
    of at most ``asin(e)`` to ``A`` and ``B``, where ``e`` is how far values are from the number of their cell
    over the standard deviation of these numbers; angles add up at most.

    Reference
    ---------
    docs/explanation/theorems/synthetic.md.
    """
    names = tuple(column.axis.column.name for column in columns)
    axes = [counts.axis(name, names) for name in names]
    if axes[0] is None or axes[1] is None:
        return None
    found = counts.estimate(None, (axes[0], axes[1]), use_total=False)
    if found is None:
        return None
    shape = tuple(len(axis.labels) for axis in axes if axis is not None)
    keep = np.outer(*(_known(axis) for axis in axes if axis is not None))
    values, variances = (part.reshape(shape) * keep for part in (found.values, found.variances))
    scaled = [
        _standardize(column.representatives(axis), values.sum(axis=1 - i))
        for i, (column, axis) in enumerate(zip(columns, axes, strict=True))
        if axis is not None
    ]
    first, second = scaled[0][:, None], scaled[1][None, :]
    above, below = first * second, (first * first + second * second) / 2
    sums = ((above, above), (above, below), (below, below))
    ratio = NoisyRatio(
        np.array((above * values).sum()),
        np.array((below * values).sum()),
        *(np.array((a * b * variances).sum()) for a, b in sums),
    )
    # The union bound: a small part of the error for each of the two angles, the rest for the quotient.
    error = 1 - LEVEL
    lower, upper = (
        float(end) for end in ratio.ends(two_sided_width(counts.law, 1 - error * (1 - 2 * _SPARE)))
    )
    angle = sum(
        _inner_angle(column, axis, counts.law, error * _SPARE)
        for column, axis in zip(columns, axes, strict=True)
        if axis is not None
    )
    value = float(np.clip(ratio.above / ratio.below, -1, 1)) if ratio.below > 0 else math.nan
    # The cosine falls, so that the upper end is the smaller angle; what is inside cells may widen both.
    ends = [math.acos(min(max(end, -1.0), 1.0)) for end in (upper, lower)]
    lower, upper = math.cos(min(ends[1] + angle, math.pi)), math.cos(max(ends[0] - angle, 0.0))
    return min(max(value, lower), upper), lower, upper


def _known(axis: Axis) -> Floats:
    """Return 1 for cells of numbers and 0 for that of missing ones."""
    labels = [label if isinstance(label, tuple) else (label,) for label in axis.labels]
    return np.array([float(None not in label) for label in labels])


def _standardize(numbers: Floats, counts: Floats) -> Floats:
    """Return numbers of cells less their mean over noisy counts, over their standard deviation."""
    total = max(float(counts.sum()), 1.0)
    centered = numbers - float(numbers @ counts) / total
    variance = float((centered * centered) @ counts) / total
    return centered / math.sqrt(variance) if variance > 0 else np.zeros_like(numbers)


def _inner_angle(column: ColumnCounts, axis: Axis, law: Law, error: float) -> float:
    """Return the largest angle between a column and the numbers of its cells, but with some error."""
    lows, highs = cell_ends(column.axis)
    places = match_cells(column.axis, axis)
    inner = column.representatives(axis)
    placed = inner[places] if places is not None else (lows + highs) / 2
    apart = np.maximum(highs - placed, placed - lows) ** 2
    known = _known(column.axis)
    if not (apart * known).any():
        return 0.0
    rows = column.values * known
    centered = placed - float(placed @ rows) / max(float(rows.sum()), 1.0)
    above, below = apart * known, centered * centered * known
    sums = ((above, above), (above, below), (below, below))
    ratio = NoisyRatio(
        np.array(above @ column.values),
        np.array(below @ column.values),
        *(np.array(a @ column.covariance @ b) for a, b in sums),
    )
    most = float(ratio.ends(one_sided_width(law, 1 - error))[1])
    return math.pi if not most < 1 else math.asin(math.sqrt(max(most, 0.0)))


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
    # The variance of a sum grows with the number of its cells.
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
