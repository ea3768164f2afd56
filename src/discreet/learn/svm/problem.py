"""The minimized function of the smooth SVM, its constants, and how near to its minimum floats come.

The function is the mean Huberized hinge of embedded rows, a quadratic penalty, and a linear term. Two classes
have one vector of weights. More classes have one each, every class against the rest: the losses add up, no
two of them share a weight, and each is minimized by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.learn.perturbation._solvers import GradientDescent
from discreet.learn.perturbation.mean_loss import CHUNK, UNIT, MeanLossProblem
from discreet.learn.perturbation.mean_loss_constants import OBJECTIVE_LARGE, MeanLossConstants
from discreet.learn.svm.loss import (
    DEFAULT_SMOOTHING,
    gradient_change,
    hinge,
    in_band,
    jacobian_cost,
    largest_gain,
    mean_supremum,
    n_scores,
    pull,
    regularization_for_jacobian,
)

if TYPE_CHECKING:
    from discreet._types import Floats, Ints
    from discreet.learn.perturbation.noise import VectorNoise

SEVERAL_CLASSES_LARGE = 1.0
"""Divisor of much noise in the default regularization of more than two classes, chosen on public tables."""


def rounding_error(n_rows: int, dimension: int, smoothing: float, norm: float) -> float:
    """Return how far the computed gradient of one score's mean loss can be from the true one.

    Notes
    -----
    ``u`` is 2**-53. A computed product of ``n`` terms errs by at most ``n u`` times the product of absolute
    values, in any order of additions. Rows have norms of at most 1, weights the given one.

    - Margins err by ``dimension u norm``, ``1 + h - m`` by ``u (1 + h)`` more and by its own rounding, below
      ``2 u`` of the ``2 h`` at which the quotient is cut. A derivative errs by that over ``2 h``, and by two
      units in the last place of at most 1.
    - Sums: a row's derivative has a norm of at most 1. Blocks of ``CHUNK`` are added up, then the blocks.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md
    """
    slopes = ((dimension + 4) * norm + 4 * (1 + smoothing)) / (2 * smoothing) + 4
    sums = CHUNK + n_rows // CHUNK + 16
    # 1.01 for terms of higher order in u.
    return (slopes + sums) * UNIT * 1.01


def gradient_descent(
    *, n_rows: int, dimension: int, n_classes: int, smoothing: float, regularization: float, linear: float
) -> GradientDescent:
    """Return what gradient steps are certain to reach, for every table of this shape.

    Parameters
    ----------
    n_rows, dimension, n_classes : int
        Numbers of rows, of coordinates of an embedded row, and of classes.
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.
    regularization : float
        Weight of the quadratic penalty, above 0.
    linear : float
        Bound on the norm of the linear term.

    Notes
    -----
    The loss has second derivatives of at most ``1 / (2 h)`` and, where it has none, a gradient that is as
    steep. Without a linear term the minimizer's weights of one score have a norm of at most
    ``sqrt(largest_gain / regularization)``, and the term moves them by at most its own norm over the
    regularization. Each score has the K-th part of the squared tolerance, so that its error counts
    ``sqrt(K)`` times.

    Reference
    ---------
    docs/explanation/theorems/solver-tolerance.md, svm-existence.md
    """
    norm = math.sqrt(largest_gain(smoothing) / regularization) + linear / regularization
    curvature = 1 / (2 * smoothing) + regularization
    # All points of the descent stay within twice that norm of 0.
    error = rounding_error(n_rows, dimension, smoothing, 2 * norm)
    # A product and two sums for the penalty and the linear term.
    error += 4 * (2 * regularization * norm + linear) * UNIT
    # A quotient and a difference more, of vectors no longer than 2 norm each.
    error += 8 * curvature * norm * UNIT
    # The second factor covers the division of the tolerance among scores.
    scores = 1.0 if n_classes == 2 else math.sqrt(n_classes) * (1 + 1e-9)
    return GradientDescent(
        curvature=curvature, regularization=regularization, norm=norm * scores, step_error=error * scores
    )


class HingeProblem(MeanLossProblem):
    """The function ``mean loss + regularization / 2 |w|**2 + linear_term . w`` of a flat vector ``w``.

    Parameters
    ----------
    rows : array of shape (n_rows, dimension)
        Embedded rows, each of norm at most 1.
    codes : array of int
        The class of each row, as a position in the list of classes.
    regularization : float
        Above 0: the function is strongly convex with this constant.
    n_classes : int
        Number of classes, at least 2.
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.
    """

    def __init__(
        self, rows: Floats, codes: Ints, regularization: float, n_classes: int, smoothing: float
    ) -> None:
        super().__init__(rows, codes, regularization)
        self.n_classes = n_classes
        self.smoothing = smoothing
        own = np.array([1]) if n_classes == 2 else np.arange(n_classes)
        self.signs = np.where(codes[:, np.newaxis] == own, 1.0, -1.0)
        self._start(len(own) * rows.shape[1])

    @property
    def parts(self) -> list[MeanLossProblem]:
        """One problem for each score: a class against the rest."""
        if self.n_classes == 2:
            return [self]
        parts: list[MeanLossProblem] = []
        for score, term in enumerate(self.weights(self.linear_term)):
            codes = (self.codes == score).astype(np.int64)
            part = HingeProblem(self.rows, codes, self.regularization, 2, self.smoothing)
            # The mean may be over a public number of rows that is not the number of these.
            part.n_rows = self.n_rows
            part.linear_term, part.linear_term_error = term, self.linear_term_error
            parts.append(part)
        return parts

    @property
    def descent(self) -> GradientDescent:
        """Guarantee of gradient steps on this problem, which depends on the linear term and on no row."""
        return gradient_descent(
            n_rows=self.n_rows,
            dimension=self.rows.shape[1],
            n_classes=self.n_classes,
            smoothing=self.smoothing,
            regularization=self.regularization,
            linear=float(np.linalg.norm(self.linear_term)),
        )

    def weights(self, w: Floats) -> Floats:
        """Return one row of weights for each score."""
        return w.reshape(-1, self.rows.shape[1]).copy()

    def _rounding_error(self, norm: float) -> float:
        scores = n_scores(self.n_classes)
        return scores * rounding_error(self.n_rows, self.rows.shape[1], self.smoothing, norm)

    def _margins(self, block: slice, w: Floats) -> Floats:
        return np.asarray(self.signs[block] * (self.rows[block] @ self.weights(w).T))

    def _loss(self, block: slice, w: Floats) -> float:
        return float(hinge(self._margins(block, w), self.smoothing).sum())

    def _slope(self, block: slice, w: Floats) -> Floats:
        pulls = self.signs[block] * pull(self._margins(block, w), self.smoothing)
        return np.asarray(-(pulls.T @ self.rows[block])).reshape(-1)

    def _curvature(self, block: slice, w: Floats) -> Floats:
        """Return the sum of second derivatives of some rows' losses, where there are any; else one side's."""
        x, bent = self.rows[block], in_band(self._margins(block, w), self.smoothing)
        d = x.shape[1]
        out = np.zeros((self.size, self.size))
        for score in range(bent.shape[1]):
            inside = x[bent[:, score]]
            at = slice(score * d, (score + 1) * d)
            out[at, at] = inside.T @ inside / (2 * self.smoothing)
        return out

    def _curvature_times(self, block: slice, w: Floats, v: Floats) -> Floats:
        x, bent = self.rows[block], in_band(self._margins(block, w), self.smoothing)
        moved = bent * (x @ self.weights(v).T) / (2 * self.smoothing)
        return np.asarray(moved.T @ x).reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SvmConstants(MeanLossConstants):
    """Public constants of a mean Huberized hinge with a quadratic penalty.

    Attributes
    ----------
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.
    """

    smoothing: float = DEFAULT_SMOOTHING

    @property
    def size(self) -> int:
        """Numbers that are released: one weight per coordinate and score."""
        return n_scores(self.n_classes) * self.dimension

    @property
    def gradient_change(self) -> float:
        """See :func:`~discreet.learn.svm.loss.gradient_change`."""
        return gradient_change(self.n_classes)

    @property
    def gradient_norm(self) -> float:
        """Every score has a gradient of its own, of norm at most 1."""
        return math.sqrt(n_scores(self.n_classes))

    @property
    def usual_curvature(self) -> float:
        """For rows of norm 1, of which half lie where the hinge is bent, in the mean over directions."""
        return 1 / (4 * self.smoothing * self.dimension)

    @property
    def noise_divisor(self) -> float:
        """Several scores, of which the largest decides, need a larger penalty than one."""
        return OBJECTIVE_LARGE if self.n_classes == 2 else SEVERAL_CLASSES_LARGE

    @property
    def mean_supremum(self) -> float:
        """See :func:`~discreet.learn.svm.loss.mean_supremum`."""
        return mean_supremum(self.n_classes)

    def change_at_minimizer(self, regularization: float) -> float:
        """Return the constant for any point: at a short minimizer it is attained too."""
        return self.gradient_change

    def jacobian_cost(self, regularization: float) -> float:
        """Return the part of epsilon that the change of volume costs."""
        return jacobian_cost(self.n_classes, self.smoothing, regularization, self.n_rows)

    def regularization_for(self, cost: float) -> float:
        """Return the least regularization for a cost of the change of volume."""
        return regularization_for_jacobian(self.n_classes, self.smoothing, cost, self.n_rows)

    def descent(self, regularization: float, linear_term: VectorNoise | None) -> GradientDescent:
        """Return what gradient steps are certain to reach, whatever is drawn for the linear term."""
        return gradient_descent(
            n_rows=self.most_rows,
            dimension=self.dimension,
            n_classes=self.n_classes,
            smoothing=self.smoothing,
            regularization=regularization,
            linear=0.0 if linear_term is None else linear_term.largest_norm / self.n_rows,
        )
