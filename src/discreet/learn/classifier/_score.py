"""The paid score of a model: its accuracy on the rows, with an interval and a verdict."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from discreet._types import Floats

_NORMAL = 1.96  # 95 % of a normal distribution
_OPTIMISM, _OPTIMISM_ROWS = 0.01, 15.0
"""Accuracy on the rows of the training exceeds that on others by at most this, and this many rows."""


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
    def from_answer(
        cls, value: Floats, sd: Floats, n_rows: float, totals: Floats, total_sd: float
    ) -> ModelScore:
        """Return the score of a noisy number of right rows, or of a noisy table of classes.

        Parameters
        ----------
        value, sd : array
            Noisy number of rows that are right, or a table by class and named class; and the noise on it.
        n_rows : float
            Number of rows, public or estimated.
        totals : array of shape (n_classes,)
            Number of rows of each class, estimated from noisy counts.
        total_sd : float
            Standard deviation of the noise on the number of rows of a class.

        Notes
        -----
        The half width is ``1.96 sqrt(s**2 / n**2 + p (1 - p) / n)`` with ``s`` the noise; the lower end is
        lowered by ``0.01 + 15 / n``. The difference to the vote has the noise of both.
        """
        table = None
        if np.ndim(value):
            table = [[float(cell) for cell in row] for row in value]
            right, noise = float(np.trace(value)), float(np.sqrt(np.trace(np.square(sd))))
        else:
            right, noise = float(value), float(sd)
        accuracy = min(max(right / n_rows, 0.0), 1.0)
        vote = float(np.max(totals)) / n_rows
        sampling = max(accuracy * (1 - accuracy), 1 / n_rows) / n_rows
        half = _NORMAL * math.sqrt((noise / n_rows) ** 2 + sampling)
        optimism = _OPTIMISM + _OPTIMISM_ROWS / n_rows
        wide = _NORMAL * math.sqrt((noise / n_rows) ** 2 + (total_sd / n_rows) ** 2 + sampling)
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
