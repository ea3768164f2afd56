"""Quantiles and their intervals, from the noisy counts of a tree over values.

A quantile of fraction ``q`` is the least value of which at least ``q`` of the known rows are not larger, as
``PERCENTILE_DISC`` has it. The *excess* at a cut between two cells is the number of rows below it less ``q``
times all rows. It rises from cut to cut, and the quantile is in the last cell that begins where it is below
0.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy

from discreet.errors import ParameterError
from discreet.privacy.roots import find_root
from discreet.query.intervals import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.query.aggregates._hierarchy import BoundHierarchy, CountTree
    from discreet.query.calibration import Law


_MOST_TERMS = 64  # of a sum of Laplace noises; one of more is taken for one of so many
_NODES = 96  # of the quadrature over one of two gamma variables


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
    noise = float(np.max(sd))
    starts, ends, middles = bound.cells.starts(), bound.cells.ends(), bound.cells.middles()
    found = []
    for q in fractions:
        margins = [noise * one for one in _margins(bound.tree, q, total is not None, law, level)]
        low, high = _cell_intervals(bound.tree, below - q * rows, margins)
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
    sds = _excess_noise(bound.tree, fraction, known_total(bound, n_rows) is not None).sd
    return float(np.max(sd)) * math.sqrt(float(np.mean(sds**2))) if sds.size else 0.0


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
    own, children = [np.ones(tree.leaves)], list["Floats"]()
    for _ in tree.sizes[1:]:
        children.insert(0, _add_children(own[0], tree))
        own.insert(0, 1 / (1 + 1 / children[0]))
    return _NodeVariances(tuple(own), (own[0].sum(keepdims=True), *children))


def _add_children(values: Floats, tree: CountTree) -> Floats:
    """Return the sums of the children of each node of the level above, along the last axis."""
    sums: Floats = np.add.reduceat(values, np.arange(0, values.shape[-1], tree.branching), axis=-1)
    return sums


def _parents(tree: CountTree, level: int) -> Ints:
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


class _ExcessNoise(NamedTuple):
    """Noise of the fitted excess at each inner cut, for nodes of variance 1.

    Attributes
    ----------
    sd : array
        Standard deviation of the excess at each cut.
    terms : array of int
        Number of equal terms whose sum is no closer to a normal variable than the excess.
    """

    sd: Floats
    terms: Ints


@lru_cache(maxsize=256)
def _excess_noise(tree: CountTree, fraction: float, total_known: bool) -> _ExcessNoise:
    """Return the noise of the fitted excess at each inner cut.

    Notes
    -----
    Within a node, the rows below a cut are ``a N + r``: a share of the node's fitted count and a rest that is
    uncorrelated with it. With ``w`` 1 for the children below the cut, 0 for those above and their own ``a``
    for the one that holds it, and ``s`` the variances of the children, ``a = sum w s / sum s``, and the rest
    gains the variance ``sum w^2 s - a^2 sum s``.

    Downwards, the estimate of a child enters the excess with ``v (1 - s') + w - a``, where its parent, of
    variance ``s'``, enters with ``v``; and its own noisy count with ``s`` times as much.
    """
    variances = _node_variances(tree)
    at = np.arange(1, tree.leaves)
    rest, shares, held = np.zeros(len(at)), [np.zeros(len(at))], [at]
    for i in range(len(tree.sizes) - 1, -1, -1):
        own, parents = variances.own[i], _parents(tree, i)
        before = np.concatenate(([0.0], np.cumsum(own)))
        first = np.searchsorted(parents, parents[at])
        below, among = before[at] - before[first], variances.children[i][parents[at]]
        inside = (below + shares[0] * own[at]) / among
        rest += below + shares[0] ** 2 * own[at] - inside**2 * among
        at = at // tree.branching
        shares.insert(0, inside)
        held.insert(0, at)
    if not total_known:
        rest += (shares[0] - fraction) ** 2 * variances.children[0]
    passed = np.zeros(len(rest)) if total_known else shares[0] - fraction
    largest = np.zeros(len(rest))
    for i, own in enumerate(variances.own):
        place, parents = held[i + 1], _parents(tree, i)
        begins, ends = (np.searchsorted(parents, parents[place], side=side) for side in ("left", "right"))
        sides = np.stack((np.where(place > begins, 1.0, np.nan), np.where(place + 1 < ends, 0.0, np.nan)))
        inner = passed + shares[i + 1] - shares[i]
        outer = np.nan_to_num(np.abs(passed + sides - shares[i])).max(axis=0) * own.max()
        largest = np.maximum(largest, np.maximum(outer, np.abs(inner) * own[place]))
        passed = inner * (1 - own[place])
    terms = np.clip(np.floor(rest / largest**2 + 1e-9), 1, _MOST_TERMS)
    return _ExcessNoise(np.sqrt(np.maximum(rest, 0.0)), terms.astype(np.int64))


@lru_cache(maxsize=256)
def _margins(
    tree: CountTree, fraction: float, total_known: bool, law: Law, level: float
) -> tuple[Floats, ...]:
    """Return how far from 0 the excess at the cuts of each level must be for its sign to be sure.

    Notes
    -----
    One cut of each level, at most, is such that an error there puts an end of the interval on the wrong side
    of the quantile. The probability of an error is divided among levels, from the cells upwards by halves.
    """
    noise = _excess_noise(tree, fraction, total_known)
    depth = len(tree.sizes)
    margins = []
    for i in range(depth):
        failure = (1 - level) / 2 * 2**i / (2**depth - 1)
        cuts = _cuts(tree, i) - 1
        widths = {int(k): tail_quantile(law, int(k), failure) for k in np.unique(noise.terms[cuts])}
        margins.append(noise.sd[cuts] * np.array([widths[k] for k in noise.terms[cuts].tolist()]))
    return tuple(margins)


def _cuts(tree: CountTree, level: int) -> Ints:
    """Return the inner cuts between nodes of a level, as numbers of cells below them."""
    cuts: Ints = np.arange(1, tree.sizes[level]) * tree.branching ** (len(tree.sizes) - 1 - level)
    return cuts


@lru_cache(maxsize=1024)
def tail_quantile(law: Law, terms: int, failure: float) -> float:
    """Return the standard deviations that a sum of equal noises exceeds with a given probability.

    Parameters
    ----------
    law : {"gaussian", "laplace"}
        Distribution of each noise.
    terms : int
        Number of noises that are added up; of no importance to Gaussian ones.
    failure : float
        Probability with which the sum is larger, below one half.

    Notes
    -----
    A sum of Laplace noises is the difference of two gamma variables. From a probability of 0.025 on, a sum of
    unequal ones, none of which has more than a share ``1 / terms`` of the variance, is less often larger.
    """
    if law == "gaussian":
        return -float(scipy.special.ndtri(failure))
    nodes, weights = scipy.special.roots_genlaguerre(_NODES, terms - 1)
    weights = weights / weights.sum()

    def excess(x: float) -> float:
        return float(weights @ scipy.special.gammaincc(terms, x + nodes)) / failure - 1

    return float(find_root(excess, 0.0, 10 * terms - 4 * math.log(failure))) / math.sqrt(2 * terms)


def _cell_intervals(tree: CountTree, excess: Floats, margins: Sequence[Floats]) -> tuple[Ints, Ints]:
    """Return the first and the last cell that are not left out, along the last axis.

    Parameters
    ----------
    tree : CountTree
        Shape of the tree, whose levels say which cuts are looked at first.
    excess : array
        Fitted excess at every inner cut, along the last axis.
    margins : sequence of array
        Margins of the excess at the cuts of each level, from the top on.
    """
    cuts = [_cuts(tree, i) for i in range(len(tree.sizes))]
    pairs = list(zip(cuts, margins, strict=True))
    short = [(places, excess[..., places - 1] < -margin) for places, margin in pairs]
    enough = [
        (tree.leaves - places[::-1], (excess[..., places - 1] > margin)[..., ::-1])
        for places, margin in pairs
    ]
    return _last_passed(tree, short), tree.leaves - 1 - _last_passed(tree, enough)


def _last_passed(tree: CountTree, levels: Sequence[tuple[Ints, AnyArray]]) -> Ints:
    """Return the last cut up to which all were passed, of those of each level in turn; 0 for none.

    Parameters
    ----------
    tree : CountTree
        Shape of the tree, for its number of cells.
    levels : sequence of (array of int, array of bool)
        Rising cuts of each level, and whether the quantile is surely beyond each of them.

    Notes
    -----
    The cuts between nodes of the top are looked at one after the other until one is not passed; then those of
    the next level between the last two, and so on. Looking at the cells alone would end too early: of
    thousands of cuts, one is always off by chance.
    """
    shape = (*levels[-1][1].shape[:-1], 1)
    done, end = np.zeros(shape, np.int64), np.full(shape, tree.leaves)
    for cuts, passed in levels:
        between = (cuts > done) & (cuts < end)
        end = np.where(between & ~passed, cuts, end).min(axis=-1, keepdims=True, initial=tree.leaves)
        done = np.where(between & (cuts < end), cuts, done).max(axis=-1, keepdims=True, initial=0)
    return done[..., 0]


def _crossings(excess: Floats) -> Ints:
    """Return the cell in which the excess, made rising by isotonic regression, comes to 0.

    The regression is below 0 up to where the sum of all excesses so far is least.
    """
    before = np.zeros((*excess.shape[:-1], 1))
    cells: Ints = np.argmin(np.concatenate((before, np.cumsum(excess, axis=-1)), axis=-1), axis=-1)
    return cells
