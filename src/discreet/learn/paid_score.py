"""The paid score of a classifier: its accuracy on the rows, with an interval and a verdict.

All classifiers have the parameter ``paid_score``. A part of the promise then pays for two noisy counts: how
many training rows the finished model gets right, and how many are of each class. Learners on noisy sums ask
for them as passes named ``score`` and ``classes`` (:mod:`discreet.learn._sums_base`), learners on rows count
them themselves (:mod:`discreet.learn.perturbation.base`). :class:`ModelScore` is what both come to.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from discreet.learn.arguments import Constraint

if TYPE_CHECKING:
    from collections.abc import Mapping

SCORE_SHARE, VOTE_SHARE = 0.05, 0.05
"""Shares of the whole promise for the number of rows that are right, and for the number of each class where
the model does not count classes anyway."""
WIDEST_SCORE = 0.1
"""Half width of the score's interval, above which it is not asked."""
TOO_FEW_ROWS = "There are too few rows for a score at this promise."
PAID_SCORE = Constraint(
    "True, False or 'table'", lambda v: isinstance(v, bool) or v == "table", (None, 1, "yes")
)
COUNTED_SCORE = Constraint("True or False", lambda v: isinstance(v, bool), (None, 1, "table"))
"""Constraint of the parameter where rows are counted without a table of classes."""
_NORMAL = 1.96  # 95 % of a normal distribution, in standard deviations
_LAPLACE = math.log(20) / math.sqrt(2)  # the same of a Laplace distribution, whose tails are longer
_OPTIMISM, _OPTIMISM_OF_PARAMETERS = 0.01, 0.25
"""By how much accuracy on training rows exceeds that on others: a constant, and a factor of the root of
parameters over rows."""


def half_width(noise: float, sampling: float, law: str) -> float:
    """Return the half width of a 95 % interval for what noise and the choice of rows add together.

    Parameters
    ----------
    noise : float
        Standard deviation of the noise.
    sampling : float
        Variance by the choice of rows, whose law is nearly normal.
    law : {"gaussian", "laplace"}
        Law of the noise.

    Notes
    -----
    ``sqrt((q s)**2 + 1.96**2 v)`` with ``q`` 1.96 or, for Laplace noise, ``log(20) / sqrt(2)``. A sum of both
    has shorter tails than its Laplace part alone, so that this is wide enough for every mixture.
    """
    tail = _LAPLACE if law == "laplace" else _NORMAL
    return math.sqrt((tail * noise) ** 2 + _NORMAL**2 * sampling)


def training_allowance(error: float, n_rows: float, n_parameters: int | None) -> float:
    """Return by how much accuracy on training rows may exceed that on new rows.

    Parameters
    ----------
    error : float
        Largest likely share of rows that the model gets wrong.
    n_rows : float
        Number of rows that the model was trained on.
    n_parameters : int or None
        Number of independent parameters that were fitted to them. None for the rule of earlier versions,
        ``0.01 + 15 / n``, by which a verifier reads scores that they published.

    Notes
    -----
    ``0.01 + 0.25 sqrt(m / n) min(1, 2 e)``. A count of ``n / m`` rows that decides between two equally likely
    classes is right about its own rows by ``0.4 sqrt(m / n)`` too often; noise and columns that say the same
    make it less, and rows that are far from the decision do not count. The factor was measured:
    docs/decisions/0130-paid-score-of-every-classifier.md.
    """
    if n_parameters is None:
        return _OPTIMISM + 15 / n_rows
    return _OPTIMISM + _OPTIMISM_OF_PARAMETERS * math.sqrt(n_parameters / n_rows) * min(1.0, 2 * error)


def is_worth_asking(score_sd: float, n_rows: float, law: str) -> bool:
    """Return whether a score says enough to be paid for, at the least favourable accuracy of one half.

    Parameters
    ----------
    score_sd : float
        Standard deviation of the noise on the number of right rows.
    n_rows : float
        Number of rows, public or estimated; infinite while it is private.
    law : {"gaussian", "laplace"}
        Law of the noise.
    """
    # A private number of rows is no reason to leave the score out.
    noise = score_sd / n_rows if math.isfinite(n_rows) else 0.0
    return half_width(noise, 0.25 / n_rows, law) <= WIDEST_SCORE


@dataclass(frozen=True)
class ScoreCounts:
    """Counts with noise.

    Attributes
    ----------
    value, sd : array
        Noisy counts, and the standard deviation of the noise on each.
    law : {"gaussian", "laplace"}
        Law of the noise.
    """

    value: Any
    sd: Any
    law: str


@dataclass(frozen=True, kw_only=True)
class ModelScore:
    """Accuracy of a model on the rows it was trained on, as far as it was paid for.

    Attributes
    ----------
    accuracy, lower, upper : float
        Noisy share of rows that the model gets right, and a 95 % interval for that of new rows: the lower end
        allows for the model having been trained on these rows.
    vote : float
        Noisy share of the most common class, from the class counts.
    gain, gain_lower, gain_upper : float
        Accuracy less the share of the most common class, and a 95 % interval of it.
    table : list of list of float, or None
        Noisy counts by class and named class, in the order of the classes; None where it was not asked.

    Reference
    ---------
    docs/explanation/theorems/classifier.md.
    """

    accuracy: float
    lower: float
    upper: float
    vote: float
    gain: float
    gain_lower: float
    gain_upper: float
    table: list[list[float]] | None = None

    @classmethod
    def from_counts(
        cls, right: ScoreCounts, classes: ScoreCounts, n_rows: float | None, n_parameters: int | None
    ) -> ModelScore:
        """Return the score of a noisy number of right rows, or of a noisy table of classes.

        Parameters
        ----------
        right : ScoreCounts
            Number of rows that are right, or a table by class and named class.
        classes : ScoreCounts
            Number of rows of each class.
        n_rows : float or None
            Number of rows; None if it is not public, where the sum of the classes stands for it.
        n_parameters : int or None
            Number of independent parameters of the model, for :func:`training_allowance`; None for its rule
            of earlier versions.

        Notes
        -----
        With ``s`` the noise on the accuracy ``p``, the half width is that of :func:`half_width` with
        ``p (1 - p) / n`` for the choice of rows. The lower end is lowered by :func:`training_allowance` for
        the model having been trained on the rows. A number of rows that was estimated adds its own noise
        times ``p``. The difference to the vote has the noise of both.
        """
        table = None
        if np.ndim(right.value):
            table = [[float(cell) for cell in row] for row in right.value]
            # Right rows are on the diagonal, whose cells have noise of their own.
            count, noise = float(np.trace(right.value)), float(np.sqrt(np.trace(np.square(right.sd))))
        else:
            count, noise = float(right.value), float(right.sd)
        # Noise may take the sum of few rows to 0 or below.
        n = max(float(np.sum(classes.value)), 1.0) if n_rows is None else n_rows
        n_sd = class_sd = float(np.max(classes.sd))
        n_sd = 0.0 if n_rows is not None else n_sd * math.sqrt(np.size(classes.value))
        accuracy = min(max(count / n, 0.0), 1.0)
        vote = float(np.max(classes.value)) / n
        # At an accuracy of 0 or 1 the binomial variance is 0, as if new rows could not differ.
        sampling = max(accuracy * (1 - accuracy), 1 / n) / n
        # To first order the quotient of count + e and n + f is off by (e - accuracy f) / n.
        noise = math.hypot(noise, accuracy * n_sd) / n
        half = half_width(noise, sampling, right.law)
        optimism = training_allowance(1 - accuracy + half, n, n_parameters)
        wide = half_width(math.hypot(noise, class_sd / n), sampling, right.law)
        gain = accuracy - vote
        return cls(
            accuracy=accuracy,
            lower=max(accuracy - half - optimism, 0.0),
            upper=min(accuracy + half, 1.0),
            vote=vote,
            gain=gain,
            gain_lower=gain - wide - optimism,
            gain_upper=gain + wide,
            table=table,
        )

    @property
    def verdict(self) -> str:
        """What the score shows, in words, by a rule that was fixed before."""
        if self.gain_lower > 0:
            return (
                f"better than naming the most common class by {100 * self.gain_lower:.1f} to "
                f"{100 * self.gain_upper:.1f} points"
            )
        return "not shown to be better than naming the most common class"

    def __str__(self) -> str:
        return (
            f"Accuracy {self.accuracy:.3f} (95 % interval {self.lower:.3f} to {self.upper:.3f}); "
            f"the most common class has {self.vote:.3f}. The model is {self.verdict}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, from which :meth:`from_dict` makes an equal score."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return the score that :meth:`to_dict` wrote."""
        return cls(**values)
