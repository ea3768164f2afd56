"""Products of columns that no database has together, from noisy sign sketches of each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.errors import ParameterError
from discreet.query.questions.sketches import MOST_SKETCHES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._typing import Floats
    from discreet.query.questions import SignSketches
    from discreet.query.sums import Answer


@dataclass(frozen=True, eq=False)
class CrossProducts:
    """Estimated sums of products of the coordinates of one database with those of another.

    Attributes
    ----------
    value : array of shape (left coordinates, right coordinates)
        Unbiased for the sum over all ids that both have. Coordinates are fractions of the declared ranges,
        counted from the centers of the two questions.
    sd : array
        Standard deviation of each, signs and noise together, estimated from the same sketches.
    sketches : int
        How many there were.

    Privacy
    -------
    Computed from two noisy answers; nothing more is paid. Whoever is in both databases has paid both.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """

    value: Floats
    sd: Floats
    sketches: int

    def interval(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends between which each sum lies with probability ``level``, for dozens of sketches."""
        if not 0 < level < 1:
            raise ParameterError(f"level of CrossProducts.interval must be between 0 and 1, was {level!r}.")
        half = float(special.ndtri((1 + level) / 2))
        return self.value - half * self.sd, self.value + half * self.sd


def cross_products(left: tuple[SignSketches, Answer], right: tuple[SignSketches, Answer]) -> CrossProducts:
    """Estimate products across two databases from what each answered.

    Parameters
    ----------
    left, right : (SignSketches, Answer)
        The question that a database was asked, and its answer. Both questions must have the same key and the
        same number of sketches.

    Privacy
    -------
    Post-processing. If the ids of the two databases differ, or mean different people, nothing shows it:
    the estimate is then 0 up to its standard deviation.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """
    (asked, answer), (other, response) = left, right
    for name, one, two in (("key", asked.key, other.key), ("sketches", asked.sketches, other.sketches)):
        if one != two:
            raise ParameterError(
                f"{name} of the two questions of cross_products must be the same, were {one!r} and {two!r}. "
                "People have other signs otherwise, and the estimate would be noise around 0: ask again."
            )
    return estimated(
        np.asarray(answer.value), np.asarray(response.value), np.asarray(answer.sd), np.asarray(response.sd)
    )


def estimated(left: Floats, right: Floats, left_sd: Floats, right_sd: Floats) -> CrossProducts:
    """Estimate products from sketches with the same signs, one row each, and their noise's deviations."""
    m = len(left)
    value = left.T @ right / m
    # The mean square of a column of sketches is |a|^2 + R in expectation, and below R by chance alone.
    squares = [
        np.maximum((sketch**2).mean(axis=0), noise[0] ** 2)
        for sketch, noise in ((left, left_sd), (right, right_sd))
    ]
    product = np.outer(*squares)
    # The square of an estimate is larger by its variance; what is left out is negative: see the theorem.
    variance = (product + np.maximum(value**2 - product / m, 0.0)) / m
    return CrossProducts(value, np.sqrt(variance), m)


def sketch_variance(
    squares: tuple[float, float],
    noises: tuple[float, float],
    *,
    product: float = 0.0,
    quartic: float = 0.0,
    sketches: int,
) -> float:
    """Return the variance of an estimated product of two columns, exactly.

    Parameters
    ----------
    squares : (float, float)
        Sums of squares of the two columns, about their centers.
    noises : (float, float)
        Variances of the noise on each sketch.
    product, quartic : float
        Sum of products of the two columns, and of products of their squares.
    sketches : int
        How many.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """
    (a, b), (r, s) = squares, noises
    return ((a + r) * (b + s) + product**2 - 2 * quartic) / sketches


def best_sketches(squares: Sequence[float], noises: Sequence[float]) -> int:
    """Return the number of sketches that makes estimates across databases most exact.

    Parameters
    ----------
    squares : sequence of float
        For each database what a column's sum of squares about its center may be: a public guess, such as a
        twelfth of the number of rows, which is that of a column spread evenly over its range.
    noises : sequence of float
        For each database the variance that a single sketch would have, if all of the promise were for it.

    Notes
    -----
    With ``m`` sketches the noise of each is ``m`` times as large. ``(A + m r) (B + m s) / m`` is least at
    ``m = sqrt(A B / (r s))``, and at most an eighth above that least value from half to twice this number.

    Reference
    ---------
    docs/explanation/theorems/sulq-vertical.md.
    """
    logs = [math.log(square / noise) for square, noise in zip(squares, noises, strict=True)]
    exponent = min(max(sum(logs) / len(logs), 0.0), math.log(MOST_SKETCHES))
    return min(max(round(math.exp(exponent)), 1), MOST_SKETCHES)
