"""Whether a published table says enough about its label to learn from, told by the published rows alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import stats

from discreet.learn.noise_aware.estimators import inverse_of

if TYPE_CHECKING:
    from discreet.learn.noise_aware.moments import Moments

Status = Literal["ok", "ranking-only", "refused"]

LEVEL = 0.001
"""How often a table whose label has nothing to do with the rest is taken for one that has."""
FIRM = 5.0
"""How many times what chance gives a statistic must be for scores to be probabilities."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """How strongly label and features go together in the published rows, noise and all.

    Attributes
    ----------
    statistic : float
        ``T2``: rows times the share of the label's variance that features explain, of the class for which it
        is largest. Without any relation it is chi-square with ``rank`` degrees of freedom in large tables.
    rank : int
        How many directions features have.
    critical : float
        What chance alone passes with a probability of 0.001, all classes together.
    """

    statistic: float
    rank: int
    critical: float

    @property
    def ratio(self) -> float:
        """The statistic over what it is by chance."""
        return self.statistic / max(self.rank, 1)

    @property
    def reliability(self) -> float:
        """The share of the direction that is signal."""
        return max(0.0, 1 - self.rank / max(self.statistic, 1e-300))

    @property
    def status(self) -> Status:
        """What the rule allows."""
        if not self.statistic > self.critical:
            return "refused"
        return "ranking-only" if self.ratio < FIRM else "ok"


def weigh(moments: Moments) -> Evidence:
    """Weigh the evidence for a relation.

    Reference
    ---------
    docs/explanation/theorems/noise-aware.md
    """
    observed, n = moments.observed, moments.n
    tests = len(moments.cross) if len(moments.cross) > 2 else 1
    if moments.pair_covariance is not None:
        # Randomized together, label and levels depend on each other even where the true ones do not: what is
        # tested is the covariance of the true ones, against how much rows make it vary.
        cross = moments.cross[:, moments.pair_place]
        rank = cross.shape[1] - 1
        inverses = np.linalg.pinv(moments.pair_covariance, rcond=1e-10, hermitian=True)
        statistic = n * float(np.einsum("cv,cvw,cw->c", cross, inverses, cross).max(initial=0.0))
        return Evidence(statistic, rank, critical_value(rank, n, tests))
    inverse, rank = inverse_of(observed)
    # Over all rows, not over those that show a coordinate: the statistic is the explained share of all.
    cross = moments.cross * moments.seen
    explained = np.einsum("cp,pq,cq->c", cross, inverse, cross)
    statistic = n * float((explained / np.maximum(moments.label_observed, 1e-300)).max(initial=0.0))
    return Evidence(statistic, rank, critical_value(rank, n, tests))


def critical_value(rank: int, n: int, tests: int = 1) -> float:
    """Return what the statistic passes by chance with probability 0.001, shared out among `tests`.

    In a table of ``n`` rows the explained share is beta distributed, and ``n`` times it chi-square only when
    the table is long. With no more rows than directions everything is explained and nothing is shown.
    """
    left = n - 1 - rank
    if left <= 0 or rank == 0:
        return float("inf")
    return n * float(stats.beta.isf(LEVEL / tests, rank / 2, left / 2))
