"""Correlation of two columns from noisy counts of their cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from discreet.query.intervals import LEVEL, NoisyRatio, one_sided_width, two_sided_width
from discreet.release.statistics._column_counts import cell_ends
from discreet.release.statistics._published_counts import match_cells

if TYPE_CHECKING:
    from discreet._types import Floats
    from discreet.query.aggregates.histogram import Axis
    from discreet.query.calibration import Law
    from discreet.release.statistics._column_counts import ColumnCounts
    from discreet.release.statistics._published_counts import PublishedCounts

_SPARE = 0.1  # part of the error that goes to what is inside the cells of each column


def correlate(
    counts: PublishedCounts, columns: tuple[ColumnCounts, ColumnCounts]
) -> tuple[float, float, float] | None:
    """Return the correlation of two columns and the ends of its interval; None where no table has both.

    Parameters
    ----------
    counts : PublishedCounts
        Noisy counts of a release.
    columns : tuple of two ColumnCounts
        Counts of the two columns in their finest cells.

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
