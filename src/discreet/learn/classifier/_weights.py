"""Second stage of the classifier: weights of curves and lines, by noisy gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.learn._centering import spectral_edge
from discreet.learn.classifier._rules import (
    AVERAGE_WEIGHT,
    NARROW_PRIOR,
    RADIUS,
    ROUNDS,
    STEEP_LINES,
    STEEP_SIGNAL,
    WIDE_PRIOR,
    WIDE_SIGNAL,
    gradient_names,
)
from discreet.query import GradientSums, Gram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Floats
    from discreet.learn._bins import Bins
    from discreet.learn.budget_schedule import BudgetSchedule
    from discreet.learn.classifier._curves import Curve

LATTICE = 2.0**10
"""Steps of the lattice on which values of curves are asked about, for each unit."""
LARGEST_VALUE = 2.0
"""Absolute value to which values of curves are clipped."""
_LEAST_SPAN = 0.02
_KEPT_ROUNDS = 3
_LARGEST_WEIGHT = 2.0**10


@dataclass(frozen=True)
class ScoredRows:
    """Rows as vectors of what the first stage says about them, for two classes.

    Attributes
    ----------
    scores : dict of str to tuple of float
        For columns whose curve is not flat, the centered log-odds of each cell.
    middles : dict of str to float
        For the same columns, the middle that was subtracted.
    edges : dict of str to tuple of float
        Where the cells of the numbers among them begin.
    lines : tuple of str
        Numbers, as fractions of their ranges less one half.
    scale : int
        Factor of the lines.
    """

    scores: dict[str, tuple[float, ...]]
    middles: dict[str, float]
    edges: dict[str, tuple[float, ...]]
    lines: tuple[str, ...]
    scale: int

    @classmethod
    def from_curves(cls, curves: dict[str, Curve], cells: Bins, signal: float) -> ScoredRows:
        """Return the vectors of rows, from noisy curves and so public by now."""
        scores: dict[str, tuple[float, ...]] = {}
        middles: dict[str, float] = {}
        for name, curve in curves.items():
            values = np.clip(curve.values, -LARGEST_VALUE, LARGEST_VALUE)
            odds = np.rint((values[:, 1] - values[:, 0]) * LATTICE) / LATTICE
            middle = (odds.max() + odds.min()) / 2
            if odds.max() - odds.min() >= _LEAST_SPAN:
                middles[name] = float(middle)
                scores[name] = tuple((odds - middle).tolist())
        lines = tuple(column.name for column in cells.layout.schema.columns if column.is_number)
        scale = int(STEEP_LINES) if signal >= STEEP_SIGNAL else 1
        return cls(scores, middles, cells.edges_of(list(scores)), lines, scale)

    @property
    def radius(self) -> float:
        """Length to which rows are clipped, their constant 1 not counted."""
        reach = sum(max(map(abs, values)) ** 2 for values in self.scores.values())
        reach += self.scale**2 * len(self.lines) / 4
        # The constant is part of the length that is shortened, but must not be shortened itself.
        return math.sqrt(max(RADIUS**2 * (reach + 1) - 1, reach / 4, 2.0**-16))

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
        """Keyword arguments that both queries share."""
        return {
            "columns": self.lines,
            "center": (0.5,) * len(self.lines),
            "radius": self.radius,
            "edges": self.edges,
            "scores": self.scores,
            "scale": self.scale,
            "intercept": True,
        }


def learn_weights(
    schedule: BudgetSchedule,
    rows: ScoredRows,
    target: str,
    levels: Sequence[Any],
    prior: Floats,
    signal: float,
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
    signal : float
        Number of rows over the noise on one cell.

    Notes
    -----
    In the eigenvectors of the noisy matrix with eigenvalues ``l`` and the noise's edge ``e``, the curvature
    is taken as ``H = (max(l, 0) + e) min(1/4, 1.3 p q)`` for class shares ``p`` and ``q``. Weights are pulled
    back to their start by ``sd**2 / (H tau**2) + 1``, with ``sd`` the noise on the mean of all gradients and
    ``tau`` the width of their prior. The mean of the last three rounds is returned.
    """
    answer = schedule.ask("products", Gram(**rows.query_arguments, with_sums=False))
    values, vectors = np.linalg.eigh(np.asarray(answer.value))
    curvature = np.maximum(values, 0.0) + spectral_edge(np.asarray(answer.sd))
    curvature = np.maximum(curvature * min(0.25, 1.3 * float(prior[0] * prior[1])), 2.0**-20)
    tau = WIDE_PRIOR if signal >= WIDE_SIGNAL else NARROW_PRIOR
    constant = math.log(prior[1] / prior[0]) + AVERAGE_WEIGHT * math.fsum(rows.middles.values())
    weights, visited = rows.start, []
    for name in gradient_names():
        asked = np.append(weights[:-1], weights[-1] + constant)
        question = GradientSums(
            **rows.query_arguments, target=target, positive=levels[1], weights=tuple(asked.tolist())
        )
        answer = schedule.ask(name, question)
        sd = float(np.max(answer.sd)) / math.sqrt(ROUNDS)
        penalty = sd**2 / (curvature * tau**2) + 1
        step = vectors.T @ np.asarray(answer.value) - penalty * (vectors.T @ (weights - rows.start))
        weights = weights + vectors @ (step / (curvature + penalty))
        weights = np.clip(weights, -_LARGEST_WEIGHT, _LARGEST_WEIGHT)
        visited.append(weights)
    return np.asarray(np.mean(visited[-_KEPT_ROUNDS:], axis=0)), constant
