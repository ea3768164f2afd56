"""Second stage of the classifier: weights of curves and lines, by noisy gradients."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.learn._centering import spectral_edge
from discreet.learn.classifier._rules import (
    AVERAGE_WEIGHT,
    BENT_PART,
    CONSTANT,
    FEW_LINES_SCALE,
    PRIOR_WIDTH,
    ROUNDS,
    gradient_names,
)
from discreet.query import ClassGradients, GradientSums, Gram
from discreet.query.features import LONGEST_LINE

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
    curves : dict of str to Curve
        Curve of each column; for two classes that of a number less the line that fits it best, so that no
        coordinate repeats another, and flat if it is not worth a coordinate.
    slopes : dict of str to float
        For two classes, the log-odds for each unit of a number's line, by its curve; empty for more classes.
    scores : dict of str to tuple of float
        For two classes and columns whose curve is worth a coordinate, the log-odds of each cell less their
        mean; empty for more classes.
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

    curves: dict[str, Curve]
    slopes: dict[str, float]
    scores: dict[str, tuple[float, ...]]
    means: dict[str, float]
    edges: dict[str, tuple[float, ...]]
    lines: dict[str, tuple[float, float]]
    square: float

    @classmethod
    def from_curves(cls, curves: Mapping[str, Curve], cells: Bins, n_classes: int) -> StageRows:
        """Return the vectors of rows, from noisy curves and so public by now."""
        columns = cells.layout.schema.columns
        numbers = [column for column in columns if column.is_number]
        # Few lines among many categories only make rows long.
        scale = 1.0 if 2 * len(numbers) >= len(columns) else FEW_LINES_SCALE
        lines = {
            column.name: _line_of(column, cells.edges[column.name], curves[column.name].shares, scale)
            for column in numbers
        }
        square = scale**2 * len(lines)
        left, slopes = dict(curves), {}
        scores: dict[str, tuple[float, ...]] = {}
        means: dict[str, float] = {}
        for column in columns if n_classes == 2 else ():
            name, curve = column.name, curves[column.name]
            total = _variance(curve)
            if name in lines:
                places = line_places(column, cells.edges[name], lines[name], len(curve.values))
                left[name], slopes[name] = _subtract_line(curve, places)
                curve = left[name]
            odds = curve.values[:, 1] - curve.values[:, 0]
            # Scores are asked about as multiples of a step: rounded here, the query and the model agree.
            mean = float(np.rint(curve.shares @ odds * LATTICE) / LATTICE)
            odds = np.clip(np.rint((odds - mean) * LATTICE) / LATTICE, -_LARGEST_ODDS, _LARGEST_ODDS)
            variance = float(curve.shares @ odds**2)
            # What a line leaves of a curve is mostly noise, unless it is much of it or more than its noise.
            least = min(BENT_PART * total, float(curve.shares @ (curve.sd**2).sum(axis=1)))
            if variance > max(_LEAST_VARIANCE, least if name in lines else 0.0):
                means[name] = mean
                scores[name] = tuple(odds.tolist())
                square += variance
            else:
                left[name] = replace(curve, values=np.zeros_like(curve.values))
        return cls(left, slopes, scores, means, cells.edges_of(list(scores)), lines, square)

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
    middles, widths = _cell_places(column, edges)
    known = shares[: len(widths)] / shares[: len(widths)].sum()
    mean = float(known @ middles)
    variance = float(known @ (middles - mean) ** 2) + 0.5 * float(known @ widths**2) / 12
    units = scale / max(math.sqrt(variance), _LEAST_SPREAD)
    return float(np.rint(min(max(mean, 0.0), 1.0) * LATTICE) / LATTICE), float(np.rint(units * 64) / 64)


def _cell_places(column: Column, edges: Sequence[float]) -> tuple[Floats, Floats]:
    """Return the middle and the width of each cell of a number, as fractions of its range."""
    lower, upper = column.range
    ends = np.array([(edge - lower) / column.width for edge in (lower, *edges, upper)])
    # Whole numbers are at the beginning of their cells or between, never at the end.
    step = 0.0 if column.type == "number" else 1 / column.width
    widths = np.maximum([b - a - step for a, b in itertools.pairwise(ends)], 0.0)
    widths[-1] += step
    return ends[:-1] + widths / 2, widths


def line_places(column: Column, edges: Sequence[float], line: tuple[float, float], n_cells: int) -> Floats:
    """Return where the middle of each cell of a number is on its line; 0 for the cell of missing values.

    Parameters
    ----------
    column : Column
        Declaration of the number.
    edges : sequence of float
        Where its cells begin, without the first.
    line : tuple of float
        Origin of the line as a fraction of the range, and the number of units in the range.
    n_cells : int
        Number of cells, that of missing values included.
    """
    origin, units = line
    middles, _ = _cell_places(column, edges)
    places = np.zeros(n_cells)
    places[: len(middles)] = np.clip((middles - origin) * units, -LONGEST_LINE, LONGEST_LINE)
    return places


def linear_part(curves: Mapping[str, Curve], cells: Bins) -> float:
    """Return the part of all curves that lines of numbers and levels of categories explain.

    Notes
    -----
    Parts are variances over the rows, added up over columns and classes. Where it is small, as on shells
    around a middle, neither lines nor weights add to curves of columns that do not repeat each other.
    """
    total, explained = 0.0, 0.0
    for column in cells.layout.schema.columns:
        curve = curves[column.name]
        values = curve.values - curve.shares @ curve.values
        variance = float((curve.shares @ values**2).sum())
        total += variance
        if column.is_number:
            edges = cells.edges[column.name]
            places = line_places(column, edges, _line_of(column, edges, curve.shares, 1.0), len(values))
            spread = places - curve.shares @ places
            square = max(float(curve.shares @ spread**2), _LEAST_VARIANCE)
            variance = float((((curve.shares * spread) @ values) ** 2).sum()) / square
        explained += variance
    return explained / total if total else 1.0


def _subtract_line(curve: Curve, places: Floats) -> tuple[Curve, float]:
    """Return a curve of two classes less the line that fits its log-odds best, and the slope of that.

    Parameters
    ----------
    curve : Curve
        Curve of a number.
    places : array of shape (n_cells,)
        Place of each cell on the line, 0 for missing values.
    """
    odds = curve.values[:, 1] - curve.values[:, 0]
    # Missing values are at the origin, which is the mean: they say nothing about the slope.
    spread = places - curve.shares @ places
    slope = float((curve.shares * spread) @ odds) / max(float(curve.shares @ spread**2), _LEAST_VARIANCE)
    return replace(curve, values=curve.values - np.outer(slope * places, [-0.5, 0.5])), slope


def _variance(curve: Curve) -> float:
    """Return the variance over the rows of a curve of two classes, in log-odds."""
    odds = curve.values[:, 1] - curve.values[:, 0]
    return float(curve.shares @ (odds - curve.shares @ odds) ** 2)


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

    def learn_odds(self, target: str, positive: Any) -> tuple[Floats, Floats]:
        """Return the weights of curves, lines and constant for the log-odds of two classes, and their sd."""
        rows = self.rows
        # That of half of each curve, of which its line is a part.
        start = AVERAGE_WEIGHT * np.array([1.0] * len(rows.scores) + [*rows.slopes.values(), 0.0])
        # The prior is the same for all rows, so it is asked about as part of the last weight.
        offset = np.zeros(rows.size)
        offset[-1] = math.log(self.prior[1] / self.prior[0]) / CONSTANT

        def query(weights: Floats) -> Aggregate:
            total = tuple((weights + offset).tolist())
            return GradientSums(**rows.query_arguments, target=target, positive=positive, weights=total)

        return self._descend(start, query)

    def learn_lines(self, model: Mapping[str, Any]) -> tuple[Floats, Floats]:
        """Return the weights of lines and the constant for each of several classes, curves held fixed.

        Parameters
        ----------
        model : mapping of str to object
            Target, classes, intercept, curves and edges of the model, as keyword arguments of a query.

        Returns
        -------
        weights : array of shape (n_lines + 1, n_classes)
            Weights, the constant's last.
        sd : array of shape (n_lines + 1,)
            Standard deviation of each of them.
        """
        rows = self.rows

        def query(weights: Floats) -> Aggregate:
            given = {"radius": rows.radius, "constant": CONSTANT, "weights": weights.tolist()}
            return ClassGradients(**model, lines=rows.lines, **given)

        return self._descend(np.zeros((rows.size, len(self.prior))), query)

    def _descend(self, start: Floats, query: Callable[[Floats], Aggregate]) -> tuple[Floats, Floats]:
        """Return weights by noisy gradients, the mean of the last three rounds, and their sd.

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
        by a curvature that is larger by half of the edge. The standard deviation of a weight is that of the
        noise that the steps add up and of the number of rows, along the same directions.
        """
        answer = self.schedule.ask("products", Gram(**self.rows.query_arguments, with_sums=False))
        values, vectors = np.linalg.eigh(np.asarray(answer.value))
        trace = self.n_rows * (self.rows.square + CONSTANT**2)
        known, steps = _curvatures(values, spectral_edge(np.asarray(answer.sd)), trace)
        factor = min(0.25, 1.3 * float(np.mean(self.prior * (1 - self.prior))))
        shape = (-1, *[1] * (start.ndim - 1))
        known, steps = (known * factor).reshape(shape), (steps * factor).reshape(shape)
        weights, visited, sd, penalty = start, [], 0.0, known
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
        spread = _mean_step(known, steps, penalty) ** 2 @ np.full(ROUNDS, ROUNDS * sd**2)
        spread = spread + (known / (known + penalty) ** 2).ravel()
        return np.mean(visited[-_KEPT_ROUNDS:], axis=0), np.sqrt(vectors**2 @ spread)


def _mean_step(known: Floats, steps: Floats, penalty: Floats) -> Floats:
    """Return by how much the noise on each gradient moves the mean of the last rounds.

    Parameters
    ----------
    known, steps, penalty : array
        Curvature of the problem and of the steps along each direction, and the pull back to the start.

    Returns
    -------
    array of shape (n_directions, n_rounds)
        Factor of each round's noise.
    """
    known, steps, penalty = known.ravel(), steps.ravel(), penalty.ravel()
    moved = np.zeros((len(known), ROUNDS))
    total = np.zeros_like(moved)
    for i in range(ROUNDS):
        # A step takes back a part of what earlier noise has moved.
        moved *= (1 - (known + penalty) / (steps + penalty))[:, None]
        moved[:, i] = 1 / (steps + penalty)
        if i >= ROUNDS - _KEPT_ROUNDS:
            total += moved / _KEPT_ROUNDS
    return total


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
