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
    FEW_LINES_SCALE,
    PRIOR_WIDTH,
    ROUNDS,
    gradient_names,
)
from discreet.query import ClassGradients, GradientSums, Gram

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import Floats
    from discreet.learn._bins import Bins
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.classifier._curves import Curve
    from discreet.query import Aggregate
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
class StageRows:
    """Rows as vectors of what the first stage says about them.

    Attributes
    ----------
    scores : dict of str to tuple of float
        For two classes and columns whose curve is not flat, the log-odds of each cell less their mean; empty
        for more classes.
    means : dict of str to float
        For the same columns, the mean that was subtracted.
    edges : dict of str to tuple of float
        Where the cells of the numbers among them begin.
    lines : dict of str to tuple of float
        For each number, its estimated mean as a fraction of the range, and the range in estimated standard
        deviations.
    square : float
        Estimated mean square length of the vectors, to whose root they are cut.
    """

    scores: dict[str, tuple[float, ...]]
    means: dict[str, float]
    edges: dict[str, tuple[float, ...]]
    lines: dict[str, tuple[float, float]]
    square: float

    @classmethod
    def from_curves(cls, curves: Mapping[str, Curve], cells: Bins, n_classes: int) -> StageRows:
        """Return the vectors of rows, from noisy curves and so public by now."""
        scores: dict[str, tuple[float, ...]] = {}
        means: dict[str, float] = {}
        square = 0.0
        for name, curve in curves.items() if n_classes == 2 else ():
            odds = curve.values[:, 1] - curve.values[:, 0]
            mean = float(np.rint(curve.shares @ odds * LATTICE) / LATTICE)
            odds = np.clip(np.rint((odds - mean) * LATTICE) / LATTICE, -_LARGEST_ODDS, _LARGEST_ODDS)
            variance = float(curve.shares @ odds**2)
            if variance > _LEAST_VARIANCE:
                means[name] = mean
                scores[name] = tuple(odds.tolist())
                square += variance
        columns = cells.layout.schema.columns
        numbers = [column for column in columns if column.is_number]
        # Few lines among many categories only make rows long.
        scale = 1.0 if 2 * len(numbers) >= len(columns) else FEW_LINES_SCALE
        lines = {
            column.name: _line_of(column, cells.edges[column.name], curves[column.name].shares, scale)
            for column in numbers
        }
        square += scale**2 * len(lines)
        return cls(scores, means, cells.edges_of(list(scores)), lines, square)

    @property
    def size(self) -> int:
        """Number of coordinates, the constant included."""
        return len(self.scores) + len(self.lines) + 1

    @property
    def radius(self) -> float:
        """Length to which rows are cut, the constant not counted."""
        return max(math.sqrt(self.square), 2.0**-8)

    @property
    def query_arguments(self) -> dict[str, Any]:
        """Keyword arguments of queries about the vectors."""
        return {
            "columns": (),
            "radius": self.radius,
            "edges": self.edges,
            "scores": self.scores,
            "lines": self.lines,
            "intercept": CONSTANT,
        }


def _line_of(column: Column, edges: Sequence[float], shares: Floats, scale: float) -> tuple[float, float]:
    """Return the mean of a number as a fraction of its range, and the range in standard deviations.

    Parameters
    ----------
    column : Column
        Declaration of the number.
    edges : sequence of float
        Where its cells begin, without the first.
    shares : array
        Share of the rows in each cell, that of missing ones last.
    scale : float
        Length that a standard deviation is to have in a row.
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
    units = scale / max(math.sqrt(variance), _LEAST_SPREAD)
    return float(np.rint(min(max(mean, 0.0), 1.0) * LATTICE) / LATTICE), float(np.rint(units * 64) / 64)


@dataclass(frozen=True)
class WeightQueries:
    """The queries of the second stage.

    Attributes
    ----------
    schedule : BudgetSchedule
        Shares of the promise for the matrix of products and for each gradient.
    rows : StageRows
        Vectors of the rows.
    prior : array of shape (n_classes,)
        Share of each class.
    n_rows : float
        Number of rows, public or estimated.
    """

    schedule: BudgetSchedule
    rows: StageRows
    prior: Floats
    n_rows: float

    def learn_odds(self, target: str, positive: Any) -> Floats:
        """Return the weights of curves, lines and the constant for the log-odds of two classes.

        Parameters
        ----------
        target : str
            Column of the labels.
        positive : level
            Level of the target that counts as 1.
        """
        rows = self.rows
        start = np.array([AVERAGE_WEIGHT] * len(rows.scores) + [0.0] * (len(rows.lines) + 1))
        # The prior is the same for all rows, so it is asked about as part of the last weight.
        offset = np.zeros(rows.size)
        offset[-1] = math.log(self.prior[1] / self.prior[0]) / CONSTANT

        def query(weights: Floats) -> Aggregate:
            asked = tuple((weights + offset).tolist())
            return GradientSums(**rows.query_arguments, target=target, positive=positive, weights=asked)

        return self._descend(start, query)

    def learn_lines(self, model: Mapping[str, Any]) -> Floats:
        """Return the weights of lines and the constant for each of several classes, curves held fixed.

        Parameters
        ----------
        model : mapping of str to object
            Target, classes, intercept, curves and edges of the model, as keyword arguments of a query.

        Returns
        -------
        array of shape (n_lines + 1, n_classes)
            Weights, the constant's last.
        """
        rows = self.rows

        def query(weights: Floats) -> Aggregate:
            given = {"radius": rows.radius, "constant": CONSTANT, "weights": weights.tolist()}
            return ClassGradients(**model, lines=rows.lines, **given)

        return self._descend(np.zeros((rows.size, len(self.prior))), query)

    def _descend(self, start: Floats, query: Callable[[Floats], Aggregate]) -> Floats:
        """Return weights by noisy gradients: the mean of the last three rounds.

        Parameters
        ----------
        start : array of shape (size,) or (size, n_classes)
            Weights at which to begin, and towards which they are pulled.
        query : callable
            Function from weights to the query for the gradient at them.

        Notes
        -----
        The matrix of products is noisy, but its trace is known: ``n`` times the mean square length.
        Eigenvalues above the edge of the noise are taken as they are, and the rest of the trace is shared by
        all others. These, times ``min(1/4, 1.3 v)`` with ``v`` the mean variance of a class, are the
        curvature ``H`` by which weights are pulled back to their start, ``sd**2 / (H tau**2) + 1 / tau**2``,
        with ``sd`` the noise on the mean of all gradients and ``tau`` the width of their prior. Steps divide
        by a curvature that is larger by half of the edge.
        """
        answer = self.schedule.ask("products", Gram(**self.rows.query_arguments, with_sums=False))
        values, vectors = np.linalg.eigh(np.asarray(answer.value))
        trace = self.n_rows * (self.rows.square + CONSTANT**2)
        known, steps = _curvatures(values, spectral_edge(np.asarray(answer.sd)), trace)
        factor = min(0.25, 1.3 * float(np.mean(self.prior * (1 - self.prior))))
        shape = (-1, *[1] * (start.ndim - 1))
        known, steps = (known * factor).reshape(shape), (steps * factor).reshape(shape)
        weights, visited = start, []
        for name in gradient_names():
            answer = self.schedule.ask(name, query(weights))
            # Gradients of several classes have a row for each class.
            gradient = np.asarray(answer.value).T
            sd = float(np.max(answer.sd)) / math.sqrt(ROUNDS)
            penalty = (sd**2 / known + 1) / PRIOR_WIDTH**2
            step = vectors.T @ gradient - penalty * (vectors.T @ (weights - start))
            weights = weights + vectors @ (step / (steps + penalty))
            weights = np.clip(weights, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
            visited.append(weights)
        return np.asarray(np.mean(visited[-_KEPT_ROUNDS:], axis=0))


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
