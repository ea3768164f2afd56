"""What is predicted, as raw entries: a class as indicators, a number as a fraction of its range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.learn.noise_aware.coordinates import mark

if TYPE_CHECKING:
    from discreet._typing import AnyArray, Floats
    from discreet.law import ColumnLaw
    from discreet.learn.noise_aware.coordinates import Answers


@dataclass(frozen=True, slots=True)
class ClassLabel:
    """One of several classes, published as it is or by randomized response."""

    answers: Answers

    counts = True

    @property
    def n_raw(self) -> int:
        """How many raw entries it takes."""
        return self.answers.levels

    @property
    def debias(self) -> Floats:
        """The map from raw entries to scores that have the indicators of the true class as their mean."""
        levels = self.answers.levels
        return np.asarray((np.eye(levels) - self.answers.other) / self.answers.gap)

    @property
    def variance(self) -> float:
        """Noise on a score that does not depend on the true class: it has none of that kind."""
        return 0.0

    def encode(self, labels: AnyArray, out: AnyArray) -> None:
        """Write codes of classes."""
        mark(out, labels, out.shape[1] - self.n_raw)


@dataclass(frozen=True, slots=True)
class NumberLabel:
    """A number, published as it is or with noise of a known variance.

    Attributes
    ----------
    origin, width : float
        It counts from the one in units of the other.
    mean, variance : float
        Of the noise, in those units.
    column : ColumnLaw or None
        Its law, where it has one.
    """

    origin: float
    width: float
    mean: float = 0.0
    variance: float = 0.0
    column: ColumnLaw | None = None

    counts = False

    @property
    def n_raw(self) -> int:
        """How many raw entries it takes."""
        return 1

    @property
    def debias(self) -> Floats:
        """The map from the raw entry to a score that has the true value as its mean."""
        return np.ones((1, 1))

    def encode(self, labels: AnyArray, out: AnyArray) -> None:
        """Write fractions of the range."""
        out[:, -1] = (labels - self.origin) / self.width - self.mean


Label = ClassLabel | NumberLabel
