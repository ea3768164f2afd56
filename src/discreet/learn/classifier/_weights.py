"""Second stage of the classifier: weights of curves and lines, by noisy gradients."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.learn._centering import spectral_edge
from discreet.learn.classifier._rules import (
    AVERAGE_WEIGHT,
    CONSTANT,
    PRIOR_WIDTH,
    ROUNDS,
    gradient_names,
)
from discreet.query import GradientSums, Gram

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from discreet._types import Floats
    from discreet.learn._bins import Bins
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.classifier._curves import Curve
    from discreet.schema import Column

LATTICE = 2.0**10
"""Steps of the lattice on which values of curves are asked about, for each unit."""
LARGEST_VALUE = 2.0
"""Absolute value to which values of curves are clipped."""
_LARGEST_ODDS = 4.0
_LEAST_VARIANCE = 1e-4
_KEPT_ROUNDS = 3
_LARGEST_WEIGHT = 2.0**10
_LEAST_SPREAD = 0.01


@dataclass(frozen=True)
class ScoredRows:
    """Rows as vectors of what the first stage says about them, for two classes.

    Attributes
    ----------
    scores : dict of str to tuple of float
        For columns whose curve is not flat, the log-odds of each cell less their mean.
    means : dict of str to float
        For the same columns, the mean that was subtracted.
    edges : dict of str to tuple of float
        Where the cells of the numbers among them begin.
    lines : dict of str to tuple of float
        For each number, its estimated mean as a fraction of the range, and the range in estimated standard
        deviations.
    square : float
        Estimated mean square length of the vectors.
    """

    scores: dict[str, tuple[float, ...]]
    means: dict[str, float]
    edges: dict[str, tuple[float, ...]]
    lines: dict[str, tuple[float, float]]
    square: float

    @classmethod
    def from_curves(cls, curves: Mapping[str, Curve], cells: Bins) -> ScoredRows:
        """Return the vectors of rows, from noisy curves and so public by now."""
        scores: dict[str, tuple[float, ...]] = {}
        means: dict[str, float] = {}
        square = 0.0
        for name, curve in curves.items():
            values = np.clip(curve.values, -LARGEST_VALUE, LARGEST_VALUE)
            odds = values[:, 1] - values[:, 0]
            mean = float(np.rint(curve.shares @ odds * LATTICE) / LATTICE)
            odds = np.clip(np.rint((odds - mean) * LATTICE) / LATTICE, -_LARGEST_ODDS, _LARGEST_ODDS)
            variance = float(curve.shares @ odds**2)
            if variance > _LEAST_VARIANCE:
                means[name] = mean
                scores[name] = tuple(odds.tolist())
                square += variance
        lines = {
            column.name: _line_of(column, cells.edges[column.name], curves[column.name].shares)
            for column in cells.layout.schema.columns
            if column.is_number
        }
        return cls(scores, means, cells.edges_of(list(scores)), lines, square + len(lines))

    @property
    def size(self) -> int:
        """Number of coordinates, the constant included."""
        return len(self.scores) + len(self.lines) + 1

    @property
    def start(self) -> Floats:
        """Weights from which the second stage begins: those of one stage."""
        return np.array([AVERAGE_WEIGHT] * len(self.scores) + [0.0] * (len(self.lines) + 1))

    @property
    def query_arguments(self) -> dict[str, Any]:
        """Keyword arguments that both queries share; rows are cut to their root mean square length."""
        return {
            "columns": (),
            "radius": max(math.sqrt(self.square), 2.0**-8),
            "edges": self.edges,
            "scores": self.scores,
            "lines": self.lines,
            "intercept": CONSTANT,
        }


def _line_of(column: Column, edges: Sequence[float], shares: Floats) -> tuple[float, float]:
    """Return the mean of a number as a fraction of its range, and the range in standard deviations.

    Parameters
    ----------
    column : Column
        Declaration of the number.
    edges : sequence of float
        Where its cells begin, without the first.
    shares : array
        Share of the rows in each cell, that of missing ones last.
    """
    lower, upper = column.range
    ends = np.array([(edge - lower) / column.width for edge in (lower, *edges, upper)])
    # Whole numbers are at the beginning of their cells or between, never at the end.
    step = 0.0 if column.type == "number" else 1 / column.width
    width = np.maximum([b - a - step for a, b in itertools.pairwise(ends)], 0.0)
    width[-1] += step
    middles = ends[:-1] + width / 2
    known = shares[: len(width)] / shares[: len(width)].sum()
    mean = float(known @ middles)
    variance = float(known @ (middles - mean) ** 2) + 0.5 * float(known @ width**2) / 12
    units = 1 / max(math.sqrt(variance), _LEAST_SPREAD)
    return float(np.rint(min(max(mean, 0.0), 1.0) * LATTICE) / LATTICE), float(np.rint(units * 64) / 64)


def learn_weights(
    schedule: BudgetSchedule,
    rows: ScoredRows,
    target: str,
    levels: Sequence[Any],
    prior: Floats,
    n_rows: float,
) -> tuple[Floats, float]:
    """Return the weights of the second stage, and the constant that is added to them.

    Parameters
    ----------
    schedule : BudgetSchedule
        Shares of the promise for the matrix of products and for each gradient.
    rows : ScoredRows
        Vectors of the rows.
    target : str
        Column of the labels.
    levels : sequence
        The two levels of the target, of which the second counts as 1.
    prior : array of shape (2,)
        Share of each class.
    n_rows : float
        Number of rows, public or estimated.

    Notes
    -----
    The matrix of products is noisy, but its trace is known: ``n`` times the mean square length. Eigenvalues
    above the edge ``e`` of the noise are taken as they are, and the rest of the trace is shared by all
    others. These, times ``min(1/4, 1.3 p q)`` for class shares ``p`` and ``q``, are the curvature ``H`` by
    which weights are pulled back to their start, ``sd**2 / (H tau**2) + 1 / tau**2``, with ``sd`` the noise
    on the mean of all gradients and ``tau`` the width of their prior. Steps divide by a curvature that is
    larger by half of the edge. The mean of the last three rounds is returned.
    """
    answer = schedule.ask("products", Gram(**rows.query_arguments, with_sums=False))
    values, vectors = np.linalg.eigh(np.asarray(answer.value))
    known, steps = _curvatures(
        values, spectral_edge(np.asarray(answer.sd)), n_rows * (rows.square + CONSTANT**2)
    )
    factor = min(0.25, 1.3 * float(prior[0] * prior[1]))
    known, steps = known * factor, steps * factor
    constant = math.log(prior[1] / prior[0])
    weights, visited = rows.start, []
    for name in gradient_names():
        # The constant is the same for all rows, so it is asked about as part of the last weight.
        asked = np.append(weights[:-1], weights[-1] + constant / CONSTANT)
        question = GradientSums(
            **rows.query_arguments, target=target, positive=levels[1], weights=tuple(asked.tolist())
        )
        answer = schedule.ask(name, question)
        sd = float(np.max(answer.sd)) / math.sqrt(ROUNDS)
        penalty = (sd**2 / known + 1) / PRIOR_WIDTH**2
        step = vectors.T @ np.asarray(answer.value) - penalty * (vectors.T @ (weights - rows.start))
        weights = weights + vectors @ (step / (steps + penalty))
        weights = np.clip(weights, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
        visited.append(weights)
    return np.asarray(np.mean(visited[-_KEPT_ROUNDS:], axis=0)), constant


def _curvatures(values: Floats, edge: float, trace: float) -> tuple[Floats, Floats]:
    """Return eigenvalues as they are likely to be, and such as no eigenvalue is likely to exceed.

    Parameters
    ----------
    values : array
        Eigenvalues of the noisy matrix of products.
    edge : float
        Largest eigenvalue of the noise alone.
    trace : float
        Trace of the matrix without noise, as estimated before.
    """
    large = values > edge
    rest = max(trace - float(values[large].sum()), 0.02 * trace) / max(int((~large).sum()), 1)
    likely = np.where(large, values, min(rest, edge) if edge > 0 else np.maximum(values, 1e-9 * trace))
    return likely, np.maximum(np.maximum(values, 0.0) + edge / 2, likely)
