"""Whitening: the public map from real rows to lattice integers and back, around Gaussian noise.

Rows are divided by the noise they will get (whitened), rounded to a lattice, given noise of one fixed scale
of ``2**20`` steps, and mapped back. Floating point before the noise is accounted for in ``sensitivity``;
floating point after it is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy

from discreet.errors import ParameterError
from discreet.noise import samplers
from discreet.noise.deviates import Sampler, normal_table
from discreet.noise.linear_algebra import product
from discreet.noise.samplers import fill_rounded_gaussian
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Bools, Floats, Ints

STEPS = 1 << 20
"""Lattice steps per standard deviation of the noise."""
#: Cells that are released together.
_VALUES = 1 << 16
_UNIT = 2.0**-53
#: Steps around the nearest lattice point that are tried, in this order.
_SHIFTS = (-1, 1, -2, 2, -3, 3, -4, 4)
#: Rounds of iterative refinement of a lattice point.
_CORRECTIONS = 3
#: Error of a solved lattice point, in steps, above which neighboring points cannot be distinguished.
_DISTINGUISHABLE = 0.1


@dataclass(frozen=True, eq=False)
class Whitening:
    """Public affine map under which the noise has unit variance, with its exact sensitivity.

    Constructed by :meth:`diagonal` (independent noise per column) or :meth:`dense` (correlated noise).

    Attributes
    ----------
    sensitivity : float
        Largest distance of two rows inside the bounds after whitening and rounding, in standard deviations
        of the noise: the ``mu`` of replacing one row. Rounded up.
    ideal_sensitivity : float
        The same distance without a lattice; the difference is the cost of exact arithmetic.

    Privacy
    -------
    ``release`` is post-processing of the Gaussian mechanism on integers, so it is exactly
    ``sensitivity``-GDP for one row under replace-one, up to ``total_variation``. It holds for whatever
    rows come in, because integers are clamped to the public box (diagonal) or rows to the bounds and
    rounding errors are bounded beforehand (dense).

    Reference
    ---------
    docs/explanation/theorems/whitening.md

    Examples
    --------
    >>> import numpy as np
    >>> from discreet.noise import Whitening
    >>> Whitening.diagonal(np.array([0.0]), np.array([100.0]), np.array([20.0])).ideal_sensitivity
    5.0
    """

    lower: Floats
    upper: Floats
    sensitivity: float
    ideal_sensitivity: float
    _top: Floats | None
    _forward: Floats
    _backward: Floats

    @classmethod
    def diagonal(cls, lower: Floats, upper: Floats, sd: Floats) -> Whitening:
        """Return the map for independent noise of standard deviation ``sd[j]`` in column ``j``."""
        lower, upper, sd = _check_vectors(lower, upper, sd)
        if not np.all(np.isfinite(sd) & (sd > 0)):
            raise ParameterError("sd of Whitening.diagonal must be finite numbers above 0.")
        ratio = (upper - lower) / sd
        if not np.all(ratio < 2.0**31):
            raise ParameterError(
                "sd of Whitening.diagonal must be at least 2**-31 of its column's range. "
                "Ask for more noise, or declare tighter bounds."
            )
        forward = STEPS / sd
        # The image of the upper bound, by the same operations as every cell.
        top = np.rint((upper - lower) * forward)
        squares = sum(int(t) ** 2 for t in top)
        return cls(
            lower=lower,
            upper=upper,
            sensitivity=_root_up(squares) / STEPS,
            ideal_sensitivity=float(np.sqrt(np.sum(ratio**2))),
            _top=top,
            _forward=forward,
            _backward=sd / STEPS,
        )

    @classmethod
    def dense(
        cls, lower: Floats, upper: Floats, matrix: Floats, inverse: Floats, diameter: float
    ) -> Whitening:
        """Return the map for noise of covariance ``inverse @ inverse.T``.

        Parameters
        ----------
        lower, upper : array of float, shape (p,)
            Declared bounds of the columns, in their units.
        matrix : array of float, shape (p, p)
            Whitening matrix, on which alone privacy rests.
        inverse : array of float, shape (p, p)
            Inverse of the matrix up to rounding, which determines the published covariance.
        diameter : float
            Proven upper bound on ``norm(matrix @ (x - y))`` over the box.
        """
        lower, upper = _check_vectors(lower, upper)
        matrix, inverse = np.asarray(matrix, float), np.asarray(inverse, float)
        p = lower.size
        if matrix.shape != (p, p) or inverse.shape != (p, p):
            raise ParameterError(
                f"matrix and inverse of Whitening.dense must be {p} by {p}, "
                f"were {matrix.shape} and {inverse.shape}."
            )
        if not (np.all(np.isfinite(matrix)) and np.all(np.isfinite(inverse))):
            raise ParameterError("matrix and inverse of Whitening.dense must be finite.")
        if not 0 < diameter < math.inf:
            raise ParameterError(
                f"diameter of Whitening.dense must be a finite number above 0, was {diameter!r}."
            )
        # A dot product of p terms in any order, after one subtraction and one scaling of each term.
        reach = np.abs(matrix) @ (upper - lower) * STEPS
        rounding = float(np.max(reach)) * (p + 4) * _UNIT * 1.01
        if rounding > 0.5:
            raise ParameterError(
                "matrix of Whitening.dense makes rounding errors larger than half a lattice step. "
                "Ask for more noise, or scale the columns to similar ranges."
            )
        return cls(
            lower=lower,
            upper=upper,
            # whitening: half a step of rounding and half a step of arithmetic, for each of two rows
            sensitivity=(diameter + 2 * math.sqrt(p) / STEPS) * (1 + 4 * _UNIT),
            ideal_sensitivity=diameter,
            _top=None,
            _forward=matrix.T * STEPS,
            _backward=inverse.T / STEPS,
        )

    def release(self, X: Floats, stream: Stream | None = None) -> Floats:
        """Return the rows with noise; values out of bounds are clamped, missing ones are an error."""
        X = np.asarray(X, np.float64)
        if X.ndim != 2 or X.shape[1] != self.lower.size:
            raise ParameterError(
                f"X of Whitening.release must have {self.lower.size} columns, had shape {X.shape}."
            )
        stream = stream_or_fresh(stream)
        out = np.empty(X.shape)
        rows = max(1, _VALUES // X.shape[1])
        sampler = Sampler(normal_table(), X.size, stream)
        noise = np.empty(min(rows, len(X)) * X.shape[1], np.int64)
        for start in range(0, len(X), rows):
            part = out[start : start + rows]
            self._quantize(X[start : start + rows], part)
            fill_rounded_gaussian(noise[: part.size], float(STEPS), stream, sampler)
            # Integers below 2**53 in doubles: these sums are exact.
            np.add(part, noise[: part.size].reshape(part.shape), out=part)
            self._restore(part)
        return out

    def quantize(self, X: Floats) -> Ints:
        """Return the rows as lattice integers."""
        out = np.empty(X.shape)
        self._quantize(X, out)
        return out.astype(np.int64)

    def _quantize(self, X: Floats, out: Floats) -> None:
        """Write the rows as lattice integers, in doubles."""
        if self._top is not None:
            # A cell that overflows becomes infinite, and is then clipped to the bound.
            with np.errstate(over="ignore"):
                np.subtract(X, self.lower, out=out)
                np.multiply(out, self._forward, out=out)
            np.rint(out, out=out)
            # Clamped as integers: whatever rounding did, rows stay in the box that sensitivity measures.
            np.clip(out, 0, self._top, out=out)
        else:
            np.clip(X, self.lower, self.upper, out=out)
            np.subtract(out, self.lower, out=out)
            np.rint(product(out, self._forward), out=out)
        # The minimum is NaN if any cell is.
        if out.size and np.isnan(out.min()):
            raise ParameterError(
                "X of Whitening must have no missing values. Give missing cells a declared level first."
            )

    def restore(self, lattice: Ints | Floats) -> Floats:
        """Return lattice integers mapped back to the columns' own units."""
        out = lattice.astype(np.float64)
        self._restore(out)
        return out

    def _restore(self, lattice: Floats) -> None:
        if self._top is not None:
            np.multiply(lattice, self._backward, out=lattice)
        else:
            lattice[:] = product(lattice, self._backward)
        np.add(lattice, self.lower, out=lattice)

    def possible(self, X: Floats) -> Bools:
        """Return which cells of a published matrix are numbers that :meth:`release` can write.

        Under correlated noise a row is checked as a whole. A row with a missing cell passes: without that
        cell almost every number can be written.
        """
        if self._top is None:
            return np.broadcast_to(self._has_possible_rows(X)[:, np.newaxis], X.shape)
        places = (X - self.lower) / self._backward
        return ~np.isnan(lattice_places(X, places, lambda k: k * self._backward + self.lower))

    def _has_possible_rows(self, X: Floats) -> Bools:
        """Return which rows are images of a lattice point, found by solving with iterative refinement."""
        possible: Bools = np.asarray(np.isnan(X).any(axis=1))
        rows = X[~possible]
        lattice = np.zeros(rows.shape)
        residual = rows - self.lower
        for _ in range(_CORRECTIONS):
            lattice += np.rint(scipy.linalg.solve(self._backward.T, residual.T, check_finite=False).T)
            residual = rows - self.restore(lattice)
        images = self.restore(lattice)
        fits = same_bits(images, rows)
        # Where columns are so correlated that solving cannot distinguish neighboring lattice points, accept
        # rows within rounding of the image.
        indistinguishable = (
            np.linalg.cond(self._backward) * np.abs(lattice).max(initial=1.0) * _UNIT > _DISTINGUISHABLE
        )
        if indistinguishable:
            reach = np.abs(lattice) @ np.abs(self._backward) + np.abs(self.lower)
            fits |= np.abs(residual) <= 2 * len(self.lower) * np.spacing(reach)
        possible[~possible] = fits.all(axis=1)
        return possible

    def total_variation(self, n_rows: int) -> float:
        """Return the sampler's total variation distance from the exact law over ``n_rows`` rows."""
        return n_rows * self.lower.size * samplers.GAUSSIAN_TOTAL_VARIATION


def lattice_places(values: Floats, places: Floats, write: Callable[[Floats], Floats]) -> Floats:
    """Return the integer number of steps that each published number was written from, NaN if there is none.

    Parameters
    ----------
    values : array of float
        Published numbers, in the column's unit.
    places : array of float
        Approximate distance of each from the origin, in steps; rounding may put it up to four steps off.
    write : callable
        Function from integer numbers of steps to published numbers, by the same operations in the same order
        as the release, so that the result is equal to the last bit.

    Privacy
    -------
    A number is accepted only if the release can write exactly that number: nothing can be hidden between two
    lattice points, nor in the sign of a zero.
    """
    # Lattice integers are exact in doubles: a release writes none beyond 2**53, and no infinity.
    nearest = np.where(np.abs(places) <= 2.0**53, np.rint(places), np.nan)
    found = np.where(same_bits(write(nearest), values), nearest, np.nan)
    for shift in _SHIFTS:
        if not np.isnan(found).any():
            break
        moved = nearest + shift
        found = np.where(np.isnan(found) & same_bits(write(moved), values), moved, found)
    return found


def points_per_double(farthest: Floats, step: Floats | float) -> Floats:
    """Return a bound on the number of lattice points written as one double, up to a distance from zero."""
    spacing = np.spacing(np.abs(farthest))
    # Mapping back rounds twice, by half a spacing each: at four spacings per step no two points meet.
    return np.where(4 * spacing <= step, 1.0, np.ceil(spacing / step) + 2)


def same_bits(one: Floats, other: Floats) -> Bools:
    """Return where two arrays of numbers are equal; zeros of opposite signs are not."""
    return np.asarray((one == other) & (np.signbit(one) == np.signbit(other)))


def _check_vectors(lower: Floats, upper: Floats, *others: Floats) -> tuple[Floats, ...]:
    """Return float vectors of one length, the first two being valid bounds."""
    vectors = tuple(np.atleast_1d(np.asarray(v, np.float64)) for v in (lower, upper, *others))
    if any(v.ndim != 1 or v.shape != vectors[0].shape for v in vectors) or not vectors[0].size:
        raise ParameterError("lower, upper and sd of Whitening must be vectors of one length.")
    lower, upper = vectors[:2]
    if not (np.all(np.isfinite(lower)) and np.all(np.isfinite(upper)) and np.all(lower < upper)):
        raise ParameterError(
            "lower and upper of Whitening must be finite with lower below upper in every column."
        )
    return vectors


def _root_up(square: int) -> float:
    """Return a float that is at least the square root of an integer."""
    root = math.isqrt(square)
    root += root * root < square
    # float() may round down from 2**53 on.
    return math.nextafter(float(root), math.inf)
