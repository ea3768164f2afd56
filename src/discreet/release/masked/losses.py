"""The losses that artificial points are made for: what their construction needs of each.

A loss is convex in scores that are linear in the weights, and its derivative is continuous: with the penalty,
a vanishing gradient is then the only minimum. Two classes have one score.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy

from discreet.learn.logistic.problem import LogisticConstants, SoftmaxProblem, problem_for
from discreet.learn.logistic.sensitivity import largest_gain, largest_norm
from discreet.learn.perturbation.noise import zero_sum_basis
from discreet.learn.svm import loss as svm
from discreet.learn.svm.problem import HingeProblem, SvmConstants
from discreet.noise.linear_algebra import norm, product

if TYPE_CHECKING:
    from discreet._types import Floats, Ints
    from discreet.learn.perturbation.mean_loss import MeanLossProblem
    from discreet.learn.perturbation.mean_loss_constants import MeanLossConstants

_ACTIVE = 0.01
"""Distance below the margin from which on a hinge pulls with nothing, so that no point is idle."""


@dataclass(frozen=True)
class MaskedLoss(ABC):
    """A loss with all that the construction of points needs of it."""

    name: ClassVar[str]
    zero_sum: ClassVar[bool]
    """Whether the weights of several classes sum to zero at every minimizer."""
    has_probabilities: ClassVar[bool]
    """Whether scores are those of probabilities."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The learner that finds the classifier again, in words."""

    @property
    @abstractmethod
    def best_margin(self) -> float:
        """Margin with the largest gain, for two classes."""

    @property
    def largest_margin(self) -> float:
        """Margin up to which a point still pulls, for two classes."""
        return math.inf

    @property
    def flat_margin(self) -> float:
        """Margin up to which all points pull alike, wherever they are."""
        return -math.inf

    @abstractmethod
    def pull(self, margins: Floats) -> Floats:
        """Return minus the derivative of the loss of two classes by the margin."""

    def gain(self, margins: Floats) -> Floats:
        """Return margins times pulls, whose mean must be ``regularization |w|**2``."""
        return np.asarray(margins * self.pull(margins))

    @abstractmethod
    def largest_norm(self, regularization: float, radius: float) -> float:
        """Return the largest norm of two-class weights for which points exist in a ball."""

    @abstractmethod
    def largest_total_gain(self, weights: Floats, radius: float) -> float:
        """Return a bound on the gain of a point for several classes, all scores together."""

    @abstractmethod
    def residuals(self, scores: Floats, codes: Ints) -> Floats:
        """Return minus the derivatives of the losses by the scores: shape (n_points, n_scores)."""

    @abstractmethod
    def bend(self, scores: Floats, codes: Ints, A: Floats) -> Floats:
        """Return second derivatives by the scores, times a matrix: shape (n_points, n_scores, columns)."""

    @abstractmethod
    def bend_at(self, scores: Floats, code: int, v: Floats) -> Floats:
        """Return the second derivative by the scores of one point, times a vector."""

    @abstractmethod
    def basis(self, n_scores: int) -> Floats:
        """Return an orthonormal basis, one row each, of what residuals can be."""

    @abstractmethod
    def directions(self, A: Floats) -> Floats:
        """Return for each label the direction in which points of it gain, of norm 1 or 0."""

    @abstractmethod
    def intercept_shares(self, scores: Floats, offsets: Floats) -> Floats:
        """Return shares of labels for which the gradient by the intercept about vanishes.

        Parameters
        ----------
        scores : array of shape (n_points, n_scores)
            Scores of public points, which stand for those that are to be made.
        offsets : array of shape (n_scores,)
            Mean residuals that are needed, ``regularization * weight / constant``.
        """

    @abstractmethod
    def problem(self, rows: Floats, codes: Ints, regularization: float, n_classes: int) -> MeanLossProblem:
        """Return the training problem on some rows."""

    def flat(self, problem: MeanLossProblem, weights: Floats) -> Floats:
        """Return weights, one row for each score, as the vector that a problem is a function of."""
        return np.asarray(weights.reshape(-1))

    @abstractmethod
    def constants(self, *, tight: bool, **shape: Any) -> MeanLossConstants:
        """Return the public constants of private training on a table of a shape."""

    def gradient_norm(self, rows: Floats, codes: Ints, weights: Floats, regularization: float) -> float:
        """Return the norm of the gradient of the training problem on some rows, at some weights."""
        problem = self.problem(rows, codes, regularization, max(2, len(weights)))
        return norm(problem.gradient(self.flat(problem, weights)))


@dataclass(frozen=True)
class LogisticLoss(MaskedLoss):
    """Logistic regression: for several classes, a softmax.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """

    name: ClassVar[str] = "logistic"
    zero_sum: ClassVar[bool] = True
    has_probabilities: ClassVar[bool] = True

    @property
    def words(self) -> str:
        """The learner that finds the classifier again, in words."""
        return "logistic regression"

    @property
    def best_margin(self) -> float:
        """Margin with the largest gain, which is 1 plus that gain."""
        return 1 + largest_gain(2)

    def pull(self, margins: Floats) -> Floats:
        """Return the probability of the other class."""
        return np.asarray(scipy.special.expit(-margins))

    def largest_norm(self, regularization: float, radius: float) -> float:
        """See :func:`~discreet.learn.logistic.sensitivity.largest_norm`."""
        return largest_norm(regularization, radius)

    def largest_total_gain(self, weights: Floats, radius: float) -> float:
        """Return the largest gain of a point anywhere."""
        return largest_gain(len(weights))

    def residuals(self, scores: Floats, codes: Ints) -> Floats:
        """Return one-hot labels minus probabilities."""
        if scores.shape[1] == 1:
            return np.asarray((codes == 1)[:, np.newaxis] - scipy.special.expit(scores))
        result: Floats = -scipy.special.softmax(scores, axis=1)
        result[np.arange(len(codes)), codes] += 1
        return result

    def bend(self, scores: Floats, codes: Ints, A: Floats) -> Floats:
        """Return ``(diag p - p p^T) A`` for probabilities p of several classes."""
        p = scipy.special.softmax(scores, axis=1)
        return np.asarray(p[:, :, np.newaxis] * (A - product(p, A)[:, np.newaxis, :]))

    def bend_at(self, scores: Floats, code: int, v: Floats) -> Floats:
        """Return ``(diag p - p p^T) v``, or ``p (1 - p) v`` for two classes."""
        if len(scores) == 1:
            chance = scipy.special.expit(scores)
            return np.asarray(chance * (1 - chance) * v)
        p = scipy.special.softmax(scores)
        return np.asarray(p * v - p * float(np.sum(p * v)))

    def basis(self, n_scores: int) -> Floats:
        """Return a basis of the vectors that sum to zero."""
        return zero_sum_basis(n_scores)

    def directions(self, A: Floats) -> Floats:
        """Return the direction of each class's own weights."""
        return _unit_rows(A)

    def intercept_shares(self, scores: Floats, offsets: Floats) -> Floats:
        """Return the mean probability of each class plus the residual that is needed."""
        if scores.shape[1] == 1:
            one = float(scipy.special.expit(scores).mean()) + float(offsets[0])
            return np.array([1 - one, one])
        return np.asarray(scipy.special.softmax(scores, axis=1).mean(axis=0) + offsets)

    def problem(self, rows: Floats, codes: Ints, regularization: float, n_classes: int) -> MeanLossProblem:
        """Return the training problem on some rows."""
        return problem_for(rows, codes, regularization, n_classes)

    def flat(self, problem: MeanLossProblem, weights: Floats) -> Floats:
        """Return weights in the coordinates of the problem, which for several classes has a basis."""
        if isinstance(problem, SoftmaxProblem):
            return np.asarray(product(problem.basis, weights).reshape(-1))
        return np.asarray(weights[0])

    def constants(self, *, tight: bool, **shape: Any) -> MeanLossConstants:
        """Return the public constants of private training on a table of a shape."""
        return LogisticConstants(tight=tight, **shape)


@dataclass(frozen=True)
class HingeLoss(MaskedLoss):
    """Support vector machine with the Huberized hinge: for several classes, one against the rest.

    Attributes
    ----------
    smoothing : float
        Half-width ``h`` of the interval on which the Huberized hinge is quadratic.

    Reference
    ---------
    docs/explanation/theorems/svm-existence.md
    """

    name: ClassVar[str] = "svm"
    zero_sum: ClassVar[bool] = False
    has_probabilities: ClassVar[bool] = False
    smoothing: float = svm.DEFAULT_SMOOTHING

    @property
    def words(self) -> str:
        """The learner that finds the classifier again, in words."""
        return f"the support vector machine with the Huberized hinge (smoothing {self.smoothing:g})"

    @property
    def best_margin(self) -> float:
        """See :func:`~discreet.learn.svm.loss.best_margin`."""
        return svm.best_margin(self.smoothing)

    @property
    def largest_margin(self) -> float:
        """A little below the margin from which on points pull with nothing."""
        return 1 + self.smoothing - _ACTIVE * min(1.0, self.smoothing)

    @property
    def flat_margin(self) -> float:
        """Margin up to which the hinge is a line."""
        return 1 - self.smoothing

    def pull(self, margins: Floats) -> Floats:
        """See :func:`~discreet.learn.svm.loss.pull`."""
        return svm.pull(margins, self.smoothing)

    def largest_norm(self, regularization: float, radius: float) -> float:
        """See :func:`~discreet.learn.svm.loss.largest_norm`."""
        return svm.largest_norm(regularization, self.smoothing, radius)

    def largest_total_gain(self, weights: Floats, radius: float) -> float:
        """Return the sum of the largest gains of all scores in a ball."""
        reach = radius * np.sqrt(np.einsum("ij,ij->i", weights, weights))
        return float(self.gain(np.minimum(self.best_margin, reach)).sum())

    @staticmethod
    def _signs(n_scores: int, codes: Ints) -> Floats:
        own = np.array([1]) if n_scores == 1 else np.arange(n_scores)
        return np.where(codes[:, np.newaxis] == own, 1.0, -1.0)

    def residuals(self, scores: Floats, codes: Ints) -> Floats:
        """Return signs times pulls, for each class against the rest."""
        signs = self._signs(scores.shape[1], codes)
        return np.asarray(signs * self.pull(signs * scores))

    def _curvature(self, scores: Floats, codes: Ints) -> Floats:
        margins = self._signs(scores.shape[1], codes) * scores
        return np.asarray(svm.in_band(margins, self.smoothing) / (2 * self.smoothing))

    def bend(self, scores: Floats, codes: Ints, A: Floats) -> Floats:
        """Return the rows of A over ``2 h`` where a score is in the band, and 0 elsewhere."""
        return np.asarray(self._curvature(scores, codes)[:, :, np.newaxis] * A)

    def bend_at(self, scores: Floats, code: int, v: Floats) -> Floats:
        """Return the entries over ``2 h`` where a score is in the band, and 0 elsewhere."""
        return np.asarray(self._curvature(scores[np.newaxis], np.array([code]))[0] * v)

    def basis(self, n_scores: int) -> Floats:
        """Return the identity: residuals can be anything."""
        return np.eye(n_scores)

    def directions(self, A: Floats) -> Floats:
        """Return the direction in which all scores of a label gain together."""
        labels = np.arange(max(2, len(A)))
        return _unit_rows(product(self._signs(len(A), labels), A))

    def intercept_shares(self, scores: Floats, offsets: Floats) -> Floats:
        """Return the shares at which pulls to both sides of each score balance, up to what is needed."""
        towards, away = self.pull(scores).mean(axis=0), self.pull(-scores).mean(axis=0)
        # share * towards - (1 - share) * away = offset, for each class against the rest.
        shares = (offsets + away) / np.maximum(towards + away, 1e-300)
        return np.array([1 - shares[0], shares[0]]) if len(shares) == 1 else shares

    def problem(self, rows: Floats, codes: Ints, regularization: float, n_classes: int) -> MeanLossProblem:
        """Return the training problem on some rows."""
        return HingeProblem(rows, codes, regularization, n_classes, self.smoothing)

    def constants(self, *, tight: bool, **shape: Any) -> MeanLossConstants:
        """Return the public constants of private training; there are no tighter ones."""
        return SvmConstants(smoothing=self.smoothing, **shape)


def _unit_rows(A: Floats) -> Floats:
    size = np.sqrt(np.einsum("ij,ij->i", A, A))[:, np.newaxis]
    return np.asarray(np.divide(A, size, out=np.zeros_like(A), where=size > 0))


LOGISTIC = LogisticLoss()
