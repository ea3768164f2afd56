"""Quantiles and their intervals, from the noisy counts of a tree over values.

A quantile of fraction ``q`` is the least value of which at least ``q`` of the known rows are not larger, as
``PERCENTILE_DISC`` has it. The *excess* at a cut between two cells is the number of rows below it less ``q``
times all rows: it rises from cut to cut, and the quantile is in the last cell that begins where it is below 0.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import special

from discreet.errors import ParameterError
from discreet.query.intervals import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats
    from discreet.query.aggregates import BoundHierarchy
    from discreet.query.aggregates._hierarchy import CountTree
    from discreet.query.calibration import Law


class QuantileEstimates(NamedTuple):
    """Quantiles of every group, and the ends of their intervals; the last axis is that of the fractions."""

    values: Floats
    lower: Floats
    upper: Floats


def estimate_quantiles(
    bound: BoundHierarchy,
    counts: Floats,
    sd: Floats | float,
    law: Law,
    fractions: Sequence[float],
    *,
    level: float = LEVEL,
    n_rows: int | None = None,
) -> QuantileEstimates:
    """Return quantiles of every group and their intervals, by post-processing alone.

    Parameters
    ----------
    bound : BoundHierarchy
        Hierarchical histogram that was asked, bound to its table.
    counts : array
        Noisy counts of the nodes along the last axis, as an answer has them.
    sd : float or array
        Standard deviation of the noise on a node, the same for all of them.
    law : {"gaussian", "laplace"}
        Distribution of the noise; for a merge, "laplace" if any part has it.
    fractions : sequence of float
        Fractions from 0 to 1 whose quantiles are estimated: 0.5 is the median.
    level : float
        Probability with which each interval holds the exact quantile.
    n_rows : int, optional
        Number of rows where it is public; None where it is not.

    Returns
    -------
    QuantileEstimates
        Values in the unit of the expression: of a cell of several values, the one in its middle. Intervals
        hold whole cells; that of a group without rows is the whole declared range.

    Notes
    -----
    Counts are fitted to all nodes by least squares, which gives the excess at every cut the least variance of
    all unbiased estimates. A cell is left out of the interval if the noisy excess at its start is too large,
    or that at its end too small, to be noise on one of the right sign: of the exact quantile's cell both have
    it. The value is where the excess crosses 0 after isotonic regression.

    Reference
    ---------
    docs/explanation/theorems/quantiles.md.
    """
    if not fractions or not all(0 <= q <= 1 for q in fractions):
        raise ParameterError(
            f"fractions of a quantile must be numbers from 0 to 1, at least one, was {list(fractions)}."
        )
    total = known_total(bound, n_rows)
    below, rows = _fit_prefixes(bound.tree, np.asarray(counts, np.float64), total)
    noise = interval_quantile(law, level) * float(np.max(sd))
    starts, ends, middles = bound.cells.starts(), bound.cells.ends(), bound.cells.middles()
    found = []
    for q in fractions:
        margins = noise * _excess_sds(bound.tree, q, total is not None)
        low, high = _cell_intervals(below - q * rows, margins)
        # A negative number of rows, which is all noise, would make quantiles fall with their fractions.
        place = np.clip(_crossings(below - q * np.maximum(rows, 0.0)), low, high)
        found.append((middles[place], starts[low], ends[high]))
    return QuantileEstimates(*(np.stack(part, axis=-1) for part in zip(*found, strict=True)))


def expected_rank_error(
    bound: BoundHierarchy, sd: Floats | float, fraction: float, *, n_rows: int | None = None
) -> float:
    """Return by how many rows the rank of a quantile is off: root mean square over all cuts between cells.

    Parameters
    ----------
    bound, sd, n_rows
        As for :func:`estimate_quantiles`.
    fraction : float
        Fraction of the quantile, from 0 to 1.

    Privacy
    -------
    Follows from public facts: the same for every table and every group.

    Reference
    ---------
    docs/explanation/theorems/quantiles.md.
    """
    sds = _excess_sds(bound.tree, fraction, known_total(bound, n_rows) is not None)
    return float(np.max(sd)) * math.sqrt(float(np.mean(sds**2))) if sds.size else 0.0


def interval_quantile(law: Law, level: float) -> float:
    """Return half the width of an interval at a level, in standard deviations.

    That of one Laplace noise, from the level 0.91 on, is right for every weighted sum of several.
    """
    gaussian = float(special.ndtri((1 + level) / 2))
    return gaussian if law == "gaussian" else max(gaussian, -math.log1p(-level) / math.sqrt(2))


def known_total(bound: BoundHierarchy, n_rows: int | None) -> int | None:
    """Return the number of rows in the tree where it is public: of a whole table with nothing missing."""
    return n_rows if bound.all_known and len(bound.shape) == 1 else None


class _NodeVariances(NamedTuple):
    """Variances of counts that nodes and all below them tell, where each node has the variance 1.

    Attributes
    ----------
    own : tuple of array
        Variance of each node of a level, from itself and all nodes below it, from the top on.
    children : tuple of array
        Variance of the sum of the children of each node of a level, itself left out, from the number of all
        rows on.
    """

    own: tuple[Floats, ...]
    children: tuple[Floats, ...]


@lru_cache(maxsize=64)
def _node_variances(tree: CountTree) -> _NodeVariances:
    own, children = [np.ones(tree.leaves)], []
    for _ in tree.sizes[1:]:
        children.insert(0, _add_children(own[0], tree))
        own.insert(0, 1 / (1 + 1 / children[0]))
    return _NodeVariances(tuple(own), (own[0].sum(keepdims=True), *children))


def _add_children(values: Floats, tree: CountTree) -> Floats:
    """Return the sums of the children of each node of the level above, along the last axis."""
    sums: Floats = np.add.reduceat(values, np.arange(0, values.shape[-1], tree.branching), axis=-1)
    return sums


def _parents(tree: CountTree, level: int) -> Floats:
    """Return the index of the parent of each node of a level; of the top, 0, the number of all rows."""
    nodes = np.arange(tree.sizes[level])
    return nodes // tree.branching if level else np.zeros_like(nodes)


def _fit_prefixes(tree: CountTree, counts: Floats, total: int | None) -> tuple[Floats, Floats]:
    """Return the number of rows below each inner cut, and of all rows, by least squares on all nodes.

    Notes
    -----
    Upwards, the count of a node and the sum of its children are averaged by their variances. Downwards, what
    the children add up to less than their parent is divided among them in proportion to theirs.
    """
    variances = _node_variances(tree)
    levels = tree.split_levels(counts)
    sums: list[Floats] = []
    for i in range(len(levels) - 1, 0, -1):
        sums.insert(0, _add_children(levels[i], tree))
        share = variances.own[i - 1]  # of the children's sum it is 1 / children, and these add up to 1 / own
        levels[i - 1] = share * levels[i - 1] + (1 - share) * sums[0]
    sums.insert(0, levels[0].sum(axis=-1, keepdims=True))
    fitted = sums[0] if total is None else np.full_like(sums[0], total)
    for i, level in enumerate(levels):
        parents = _parents(tree, i)
        portion = variances.own[i] / variances.children[i][parents]
        fitted = level + portion * (fitted - sums[i])[..., parents]
    prefixes = np.cumsum(fitted, axis=-1)
    return prefixes[..., :-1], prefixes[..., -1:]


@lru_cache(maxsize=256)
def _excess_sds(tree: CountTree, fraction: float, total_known: bool) -> Floats:
    """Return the standard deviation of the fitted excess at each inner cut, for nodes of variance 1.

    Notes
    -----
    Within a node, the rows below a cut are ``a N + r``: a share of the node's fitted count and a rest that is
    uncorrelated with it. With ``w`` 1 for the children below the cut, 0 for those above and their own ``a``
    for the one that holds it, and ``s`` the variances of the children, ``a = sum w s / sum s``, and the rest
    gains the variance ``sum w^2 s - a^2 sum s``.
    """
    variances = _node_variances(tree)
    at = np.arange(1, tree.leaves)
    share, rest = np.zeros(len(at)), np.zeros(len(at))
    for i in range(len(tree.sizes) - 1, -1, -1):
        own, parents = variances.own[i], _parents(tree, i)
        before = np.concatenate(([0.0], np.cumsum(own)))
        first = np.searchsorted(parents, parents[at])
        below, among = before[at] - before[first], variances.children[i][parents[at]]
        inside = (below + share * own[at]) / among
        rest += below + share**2 * own[at] - inside**2 * among
        share, at = inside, at // tree.branching
    if not total_known:
        rest += (share - fraction) ** 2 * variances.children[0]
    return np.sqrt(np.maximum(rest, 0.0))


def _cell_intervals(excess: Floats, margins: Floats) -> tuple[Floats, Floats]:
    """Return the first and the last cell that are not left out, along the last axis."""
    end = np.ones((*excess.shape[:-1], 1), bool)
    enough = np.concatenate((excess >= -margins, end), axis=-1)
    short = np.concatenate((end, excess <= margins), axis=-1)
    return np.argmax(enough, axis=-1), short.shape[-1] - 1 - np.argmax(short[..., ::-1], axis=-1)


def _crossings(excess: Floats) -> Floats:
    """Return the cell in which the excess, made rising by isotonic regression, comes to 0.

    The regression is below 0 up to where the sum of all excesses so far is least.
    """
    before = np.zeros((*excess.shape[:-1], 1))
    cells: Floats = np.argmin(np.concatenate((before, np.cumsum(excess, axis=-1)), axis=-1), axis=-1)
    return cells
