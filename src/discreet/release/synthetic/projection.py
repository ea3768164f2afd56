"""Counts from noisy tables: onto the simplex, towards what is known, and consistent with each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from discreet.release.synthetic.arithmetic import add_along, add_up, divide

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats, Ints

# Groups along each axis, coarsest first, then cells; the mean over several sets blurs their boundaries.
_GROUPS = ((3, 6), (4, 8), (2, 5), (3, 7))
_LEAST = 1e-9  # of the mean: what an empty margin counts as when tables are fitted to it


def project_rows(values: Floats, totals: Floats) -> Floats:
    """Return the points nearest to the rows of a matrix with no negative entry and given totals.

    Parameters
    ----------
    values : array of shape (n, m)
        Noisy counts, a row for each vector that is projected.
    totals : array of shape (n,)
        Sum that each row shall have; a total that is not above 0 gives a row of zeros.
    """
    m = values.shape[1]
    falling = np.sort(values, axis=1)[:, ::-1]
    excess = (np.cumsum(falling, axis=1) - totals[:, None]) / np.arange(1.0, m + 1)
    # The last entry above its threshold decides: smaller ones become 0, larger ones share what is too much.
    last = m - 1 - np.argmax((falling > excess)[:, ::-1], axis=1)
    threshold = excess[np.arange(len(values)), last]
    projected = np.maximum(values - threshold[:, None], 0.0)
    return np.where(totals[:, None] > 0, projected, 0.0)


def project(values: Floats, total: float) -> Floats:
    """Return the nearest array of the same shape with no negative entry and a given total."""
    return project_rows(values.reshape(1, -1), np.array([total])).reshape(values.shape)


def fit_falling(values: Floats) -> Floats:
    """Return the nearest numbers of which none is larger than the one before it; their sum is the same.

    Parameters
    ----------
    values : array of shape (n,)
        Noisy counts. Neighbors in the wrong order are replaced by their mean, until there are none.
    """
    groups: list[tuple[float, int]] = []
    for value in values.tolist():
        total, size = value, 1
        # Pool adjacent violators; means are compared by products, without a division.
        while groups and groups[-1][0] * size < total * groups[-1][1]:
            before, count = groups.pop()
            total, size = before + total, count + size
        groups.append((total, size))
    means = np.array([total / size for total, size in groups])
    return np.repeat(means, [size for _, size in groups])


def shrink(noisy: Floats, sd: float, reference: Floats, *, in_groups: bool = True) -> Floats:
    """Return a noisy table drawn towards a reference, the more so the less the data speak against it.

    Parameters
    ----------
    noisy : array of shape (classes, cells, cells)
        Noisy counts; every class keeps the total that it has in the reference.
    sd : float
        Standard deviation of the noise on each count.
    reference : array of shape (classes, cells, cells)
        Counts that the model has without this table.
    in_groups : bool
        Whether groups of neighboring cells are compared with the reference before cells are.

    Notes
    -----
    At each scale, with ``D`` the differences of groups, ``v`` their noise and ``g`` the excess of the mean of
    ``D**2`` over it, a difference is kept to the part ``t / (t + v)`` with ``t`` in proportion to the
    reference: an empirical Bayes estimate whose prior variance is largest where most rows are.
    """
    if not in_groups:
        return _shrink_by_scales(noisy, sd, reference, ())
    total = np.zeros_like(reference)
    for scales in _GROUPS:
        total = total + _shrink_by_scales(noisy, sd, reference, scales)
    return total / len(_GROUPS)


def _shrink_by_scales(noisy: Floats, sd: float, reference: Floats, scales: Sequence[int]) -> Floats:
    """Return a table drawn towards a reference by groups of cells, coarsest first, then cell by cell."""
    known = reference
    rows, columns = add_along(add_along(reference, 0), 1), add_along(add_along(reference, 0), 0)
    for groups in scales:
        # An axis of one cell, that of a table of one column, has no groups.
        if any(1 < len(mass) <= groups for mass in (rows, columns)) or len(rows) == len(columns) == 1:
            continue
        first, second = _equal_mass(rows, groups), _equal_mass(columns, groups)
        coarse = _add_groups(known, first, second)
        sizes = np.outer(np.bincount(first), np.bincount(second)).astype(np.float64)
        moved = _draw_towards(_add_groups(noisy, first, second), sd * sd * sizes, coarse)
        known = known * divide(moved, coarse)[:, first[:, None], second[None, :]]
    return _draw_towards(noisy, np.full(known.shape[1:], sd * sd), known)


def _equal_mass(mass: Floats, groups: int) -> Ints:
    """Return for each cell its group, of contiguous cells with about the same mass; no group is left out."""
    total = add_up(mass)
    if total <= 0:
        mass, total = np.ones(len(mass)), float(len(mass))
    middle = np.cumsum(mass) - mass / 2
    group = np.minimum((middle * groups / total).astype(np.int64), groups - 1)
    # A cell with much mass passes over groups, which are numbered without gaps.
    steps = np.diff(group, prepend=group[:1]) > 0
    return np.cumsum(steps)


def _add_groups(table: Floats, first: Ints, second: Ints) -> Floats:
    """Return the sums of a table over groups of cells along its last two axes."""
    classes, n, m = len(table), int(first[-1]) + 1, int(second[-1]) + 1
    place = (np.arange(classes)[:, None, None] * n + first[:, None]) * m + second
    sums: Floats = np.bincount(place.ravel(), table.ravel(), classes * n * m).astype(np.float64)
    return sums.reshape(classes, n, m)


def _draw_towards(noisy: Floats, variance: Floats, known: Floats) -> Floats:
    """Return the table of one scale: differences from what is known, each kept to its part, projected."""
    difference = noisy - known
    excess = add_up((difference * difference - variance).ravel()) / known.size
    mean = add_up(known.ravel()) / known.size
    # Differences no larger than their noise say nothing against what is known.
    if excess <= 0 or mean <= 0:
        return known
    prior = known * (excess / mean)
    moved = known + difference * divide(prior, prior + variance, 1.0)
    totals = add_along(known.reshape(len(known), -1), 1)
    return project_rows(moved.reshape(len(known), -1), totals).reshape(known.shape)


def rake(
    table: Floats, first: Floats, second: Floats, both: Floats | None = None, *, rounds: int = 15
) -> Floats:
    """Return a table fitted to its margins by iterative proportional fitting.

    Parameters
    ----------
    table : array of shape (classes, cells, cells)
        Counts to start from, none negative.
    first, second : array of shape (classes, cells)
        Counts of each column within each class, which the table shall have.
    both : array of shape (cells, cells), optional
        Counts of the two columns over all classes; None where they are not given.
    rounds : int
        Number of passes over the margins.
    """
    # A cell of 0 would stay 0 whatever its margins are.
    table = np.maximum(table, _LEAST * max(add_up(table.ravel()) / max(table.size, 1), _LEAST))
    for _ in range(rounds):
        if both is not None:
            table = table * divide(both, add_along(table, 0))
        table = table * divide(first, add_along(table, 2))[:, :, None]
        table = table * divide(second, add_along(table, 1))[:, None, :]
    return table


def independent(first: Floats, second: Floats) -> Floats:
    """Return the table of two columns that are independent within each class, of shape (classes, n, m)."""
    share = divide(second, add_along(second, 1)[:, None], 0.0)
    return first[:, :, None] * share[:, None, :]
