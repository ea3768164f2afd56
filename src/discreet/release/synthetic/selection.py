"""Which tables are worth their noise, and how precisely each is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np

from discreet.privacy import GaussianDP, PureDP
from discreet.query.aggregates.base import MOST_CELLS
from discreet.release.synthetic.arithmetic import add_up, root_two_thirds
from discreet.release.synthetic.questions import MOST_NUMBERS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from discreet._types import Floats
    from discreet.privacy import Promise
    from discreet.schema.schema import Neighbors

HALF_DEVIATION = 0.399
"""Half of the mean absolute value of a standard normal number, to three digits."""
CARRIED = 6
"""How much an edge of the tree counts: it carries dependence to other pairs of columns."""
KEPT_NOISE = (1, 2)
"""Part of the noise of a table that projection leaves, as a fraction."""
LOST_WITHOUT_CLASS = 0.2
"""Part of a dependence that a table of two columns misses where it differs between classes."""
LEAST_SIGMAS = 2
"""Dependence below so many standard deviations of its noise is not considered."""
_PRECISION, _MOST_PRECISION = 64, 4096

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class NoiseBudget:
    """How noisy counts and scores are that are paid with a share of the promise.

    Attributes
    ----------
    law : {"gaussian", "laplace"}
        Distribution of the noise.
    amount : float
        Square of the mu of the whole promise, or its pure epsilon.
    step : int
        Number of cells of a table that neighbors move: 2 under replace-one, 1 under add-remove.
    rows : int
        Largest number of rows of one unit.
    """

    law: Literal["gaussian", "laplace"]
    amount: float
    step: int
    rows: int

    @classmethod
    def from_promise(cls, promise: Promise, neighbors: Neighbors, rows: int | None) -> NoiseBudget:
        """Return the budget of the promise of all questions together."""
        step = 2 if neighbors == "replace-one" else 1
        if isinstance(promise, PureDP):
            return cls("laplace", promise.epsilon, step, rows or 1)
        assert isinstance(promise, GaussianDP)
        return cls("gaussian", promise.mu * promise.mu, step, rows or 1)

    def count_sd(self, tables: int, share: float = 1.0) -> float:
        """Return the standard deviation of counts of tables that are asked for with equal precision."""
        part = self.amount * share
        if self.law == "gaussian":
            # Neighbors move `step` cells of each table by one row: sqrt(step * tables) in the L2 norm.
            return self.rows * math.sqrt(self.step * tables / part)
        # In the L1 norm it is step * tables, and a Laplace law has sqrt(2) times its scale as sd.
        return self.rows * math.sqrt(2.0) * self.step * tables / part

    def score_sd(self, pairs: int, share: float) -> float:
        """Return the standard deviation of the scores of some pairs of columns, in rows."""
        part = self.amount * share
        if self.law == "gaussian":
            # A score is half of an L1 distance, so neighbors move it by half as much as the table.
            return self.rows * self.step * math.sqrt(pairs / part) / 2
        return self.rows * math.sqrt(2.0) * self.step * pairs / part / 2

    def weigh(self, numerator: int, denominator: int = 1) -> float:
        """Return the weight of a table in the total error, from its cost coefficient.

        With precisions in proportion to ``a**(2/3)``, or Laplace weights to ``sqrt(a)``, the total of
        coefficient times standard deviation is least.
        """
        if self.law == "gaussian":
            return root_two_thirds(numerator, denominator)
        return math.sqrt(numerator / denominator)

    def error(self, weights: float, share: float) -> float:
        """Return the total error of tables whose weights have a given sum."""
        part = self.amount * share
        if self.law == "gaussian":
            return HALF_DEVIATION * self.rows * math.sqrt(self.step / part) * weights * math.sqrt(weights)
        return HALF_DEVIATION * self.rows * math.sqrt(2.0) * self.step / part * weights * weights

    def precisions(self, weights: Sequence[float]) -> list[int]:
        """Return the precision of each table in whole numbers; the least is 64."""
        values = [w if self.law == "gaussian" else w * w for w in weights]
        least = min(values)
        return [min(max(1, math.floor(_PRECISION * v / least + 0.5)), _MOST_PRECISION) for v in values]


def expected_fluctuation(reference: Floats) -> float:
    """Return how many rows of a sample are off a table from which the sample was drawn, on average."""
    # The mean deviation of a Poisson count r: near sqrt(2 r / pi) for many rows, and never above 2 r.
    spread = np.minimum(np.sqrt(reference * (2 / math.pi)), 2 * reference)
    return add_up(spread.ravel()) / 2


def find_tree(
    pairs: Sequence[Pair],
    dependence: Sequence[float],
    least: float,
    columns: int,
    joined: Collection[int] = (),
) -> list[Pair]:
    """Return the edges of a maximum spanning forest, of pairs whose dependence exceeds a least one.

    Parameters
    ----------
    pairs : sequence of (int, int)
        Indices of two columns each.
    dependence : sequence of float
        Number of rows that each pair depends by.
    least : float
        Dependence above which a pair is considered.
    columns : int
        Number of columns in all.
    joined : collection of int
        Columns that are known together, so that a tree may hold only one of them.
    """
    # Columns that are known together begin as one group: an edge inside it would close a circle.
    group = [min(joined) if column in joined else column for column in range(columns)]
    edges = []
    # Kruskal's algorithm. Of equal dependences the first pair is taken: strangers must find the same tree.
    ranked = sorted(range(len(pairs)), key=lambda i: (-dependence[i], pairs[i]))
    for i in ranked:
        first, second = (group[column] for column in pairs[i])
        if dependence[i] > least and first != second:
            edges.append(pairs[i])
            group = [first if one == second else one for one in group]
    return edges


@dataclass(frozen=True)
class TableChoice:
    """Tables that are asked for: those of pairs of columns, and the error that is expected of them.

    Attributes
    ----------
    pairs : tuple of (int, int)
        Indices of the columns of each table.
    weights : tuple of float
        Weight of each table in the total error.
    by_class : bool
        Whether the tables have the class as a third axis.
    error : float
        Expected total error, in rows.
    """

    pairs: tuple[Pair, ...]
    weights: tuple[float, ...]
    by_class: bool
    error: float


def choose_edges(
    budget: NoiseBudget,
    share: float,
    edges: dict[Pair, float],
    sizes: Sequence[int],
    classes: int,
    one_way: float,
) -> TableChoice:
    """Return which edges of the tree are measured: those for which the expected total error is least.

    Parameters
    ----------
    budget : NoiseBudget
        Budget of the whole promise.
    share : float
        Share of it that the question gets.
    edges : dict of (int, int) to float
        Edges of the tree, with the dependence of each.
    sizes : sequence of int
        Number of cells of each column.
    classes : int
        Number of classes of the target; 1 without one.
    one_way : float
        Sum of the weights of the one-way tables of the same question.
    """
    forms = [True, False] if classes > 1 else [False]
    choices = []
    for by_class in forms:
        depth = classes if by_class else 1
        # Half of the noise remains, times six for what an edge carries: a whole factor.
        factor = CARRIED * KEPT_NOISE[0] * depth
        weights = {e: budget.weigh(factor * sizes[e[0]] * sizes[e[1]], KEPT_NOISE[1]) for e in edges}
        missed = LOST_WITHOUT_CLASS if classes > 1 and not by_class else 0.0
        room = MOST_CELLS - int(add_up(sizes)) * classes
        chosen = _choose_prefix(
            budget, share, edges, weights, {e: depth * sizes[e[0]] * sizes[e[1]] for e in edges}, room,
            base=one_way, loss=float(CARRIED), missed=missed,
        )  # fmt: skip
        choices.append(TableChoice(*chosen[:2], by_class, chosen[2]))
    return min(choices, key=lambda choice: choice.error)


def choose_pairs(
    budget: NoiseBudget, share: float, dependence: dict[Pair, float], sizes: Sequence[int]
) -> TableChoice:
    """Return which further tables of two columns are measured after the tree.

    Parameters
    ----------
    budget : NoiseBudget
        Budget of the whole promise.
    share : float
        Share of it that the question gets.
    dependence : dict of (int, int) to float
        Pairs of columns, with the number of rows by which the model misses each.
    sizes : sequence of int
        Number of cells of each column.
    """
    cells = {pair: sizes[pair[0]] * sizes[pair[1]] for pair in dependence}
    weights = {pair: budget.weigh(KEPT_NOISE[0] * size, KEPT_NOISE[1]) for pair, size in cells.items()}
    pairs, kept, error = _choose_prefix(budget, share, dependence, weights, cells, MOST_CELLS)
    return TableChoice(pairs, kept, False, error)


def _choose_prefix(
    budget: NoiseBudget,
    share: float,
    dependence: dict[Pair, float],
    weights: dict[Pair, float],
    cells: dict[Pair, int],
    room: int,
    *,
    base: float = 0.0,
    loss: float = 1.0,
    missed: float = 0.0,
) -> tuple[tuple[Pair, ...], tuple[float, ...], float]:
    """Return the best prefix of pairs, ordered by dependence for weight, with weights and expected error.

    Parameters
    ----------
    budget, share, dependence
        As for :func:`choose_pairs`.
    weights : dict of (int, int) to float
        Weight of each table in the total error.
    cells : dict of (int, int) to int
        Number of cells of each table.
    room : int
        Number of cells that the question may still have; pairs beyond it are left out, and so are those that
        no part of a question could have.
    base : float
        Sum of the weights of other tables in the question.
    loss : float
        Number of rows of error for each row of a dependence that is not measured.
    missed : float
        Part of that loss for a dependence that is measured.
    """
    ranked = sorted(dependence, key=lambda pair: (-dependence[pair] / weights[pair], pair))
    losses = {pair: loss * max(dependence[pair], 0.0) for pair in ranked}
    everything = add_up(losses[pair] for pair in ranked)
    # All prefixes are compared: the error can rise with one pair and fall with the next.
    best, error = 0, budget.error(base, share) + everything
    weight, lost, used = base, everything, 0
    kept: list[Pair] = []
    for pair in ranked:
        if used + cells[pair] > room or cells[pair] > MOST_NUMBERS:
            continue
        used += cells[pair]
        kept.append(pair)
        weight += weights[pair]
        lost -= losses[pair] * (1 - missed)
        total = budget.error(weight, share) + lost
        if total < error:
            best, error = len(kept), total
    return tuple(kept[:best]), tuple(weights[pair] for pair in kept[:best]), error
