"""Labels of points that belong to nobody: from a public list of shares, or from counts with noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import special

from discreet.noise import discrete_laplace, laplace, permutation
from discreet.noise.linear import product
from discreet.privacy import PureDP
from discreet.release.masked.prior import ball

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._typing import Floats, Ints
    from discreet.noise import Stream

_PRIOR_POINTS = 4096
_LEAST_SHARE = 0.02


def apportion(shares: Floats | Sequence[float], n: int) -> Ints:
    """Return whole counts that sum to ``n``, by the largest remainders; of equal ones the first.

    Reference
    ---------
    Hamilton's method.
    """
    quotas = np.asarray(shares, np.float64) / math.fsum(shares) * n
    counts = np.floor(quotas).astype(np.int64)
    rest = n - int(counts.sum())
    counts[np.argsort(-(quotas - counts), kind="stable")[:rest]] += 1
    return counts


def in_random_order(counts: Ints, stream: Stream) -> Ints:
    """Return as many codes of each class as are counted, in random order."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return np.asarray(codes[permutation(len(codes), stream)])


def shares_of_model(weights: Floats, regularization: float, constant: float, radius: float) -> Floats:
    """Return the shares of labels that go with a classifier: equal ones, unless it has an intercept.

    The equation for the intercept's weight reads "share of a class minus its mean probability is
    regularization times weight over constant". The mean probability is taken over points of the ball.

    Privacy
    -------
    A function of the released weights. The points are the same for everybody.

    Reference
    ---------
    docs/explanation/theorems/masked-existence.md
    """
    n_classes = max(2, len(weights))
    if constant == 0:
        return np.full(n_classes, 1 / n_classes)
    d = weights.shape[1] - 1
    rows = np.full((_PRIOR_POINTS, d + 1), constant)
    rows[:, :d] = _public_ball(d) * math.sqrt(max(radius**2 - constant**2, 0.0))
    scores = product(rows, weights.T)
    if len(weights) == 1:
        one = float(special.expit(scores).mean()) + regularization * float(weights[0, -1]) / constant
        shares = np.array([1 - one, one])
    else:
        shares = special.softmax(scores, axis=1).mean(axis=0) + regularization * weights[:, -1] / constant
    shares = np.maximum(shares, _LEAST_SHARE / n_classes)
    return np.asarray(shares / shares.sum())


def _public_ball(dimension: int) -> Floats:
    from discreet.noise import Stream

    # About nobody, and hides nobody: a fixed seed makes it the same for everybody.
    return ball(_PRIOR_POINTS, dimension, 1.0, Stream.from_seed(_PRIOR_POINTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyCounts:
    """Counts of the classes with discrete Laplace noise.

    Attributes
    ----------
    epsilon : float
        What they cost.
    n_classes, rows : int
        Length of the list, and rows of one unit.

    Privacy
    -------
    Replacing a row moves two counts by one each: the scale is ``2 rows / epsilon``, and the promise pure up
    to the sampler's distance. What is made of the noisy counts is post-processing.

    Reference
    ---------
    docs/explanation/theorems/masked-labels.md
    """

    epsilon: float
    n_classes: int
    rows: int

    def promise(self, column: str, common: dict[str, Any]) -> PureDP:
        """Return what the counts promise."""
        return PureDP(
            epsilon=self.epsilon,
            covers=(column,),
            total_variation=self.n_classes * laplace.LAPLACE_TOTAL_VARIATION,
            **common,
        )

    def shares(self, codes: Ints, stream: Stream) -> Floats:
        """Count, add noise, and make shares of it; negative counts are none."""
        scale = math.nextafter(2 * self.rows / self.epsilon, math.inf)
        counts = np.bincount(codes, minlength=self.n_classes) + discrete_laplace(
            scale, self.n_classes, stream
        )
        positive = np.maximum(counts, 0).astype(np.float64)
        return positive if positive.sum() > 0 else np.ones(self.n_classes)
