"""From real rows to lattice integers and back: the map around Gaussian noise.

Rows are divided by the noise they will get (whitened), rounded to a lattice, noised with one fixed scale
of ``2**20`` steps, and mapped back. The map is public. Floating point before the noise is accounted for
in ``sensitivity``; floating point after it is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from discreet.errors import ParameterError
from discreet.noise import samplers
from discreet.noise._linear import product
from discreet.noise.lattice import Sampler, normal_table
from discreet.noise.samplers import fill_rounded_gaussian
from discreet.noise.stream import Stream, stream_or_fresh

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import Bools, Floats, Ints

STEPS = 1 << 20
"""Lattice steps per standard deviation of the noise."""
_VALUES = 1 << 16
_UNIT = 2.0**-53
_SHIFTS = (-1, 1, -2, 2, -3, 3, -4, 4)
_CORRECTIONS, _TELLS_APART = 3, 0.1


@dataclass(frozen=True, eq=False)
class Whitening:
    """A public affine map that turns wanted noise into unit noise, with its exact sensitivity.

    Made by :meth:`diagonal` (independent noise per column) or :meth:`dense` (correlated noise).

    Attributes
    ----------
    sensitivity : float
        How far two rows inside the bounds can be apart after whitening and rounding, in standard
        deviations of the noise: the ``mu`` of replacing one row. Rounded up.
    ideal_sensitivity : float
        The same without a lattice; the difference is the price of exact arithmetic.

    Privacy
    -------
    ``release`` is post-processing of the Gaussian mechanism on integers, so it is exactly
    ``sensitivity``-GDP for one row under replace-one, up to ``total_variation``. It holds for whatever
    rows come in, because integers are clamped to the public box (diagonal) or rows to the bounds and
    rounding errors are bounded beforehand (dense).

    Reference
    ---------
    docs/explanation/theorems/whitening.md
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
        """Give column ``j`` independent noise of standard deviation ``sd[j]``."""
        lower, upper, sd = _vectors(lower, upper, sd)
        if not np.all(np.isfinite(sd) & (sd > 0)):
            raise ParameterError("sd of Whitening.diagonal must be finite numbers above 0.")
        ratio = (upper - lower) / sd
        if not np.all(ratio < 2.0**31):
            raise ParameterError(
                "sd of Whitening.diagonal must be at least 2**-31 of its column's range. "
                "Ask for more noise, or declare tighter bounds."
            )
        forward = STEPS / sd
        # The upper bound itself, by the operations that every cell goes through.
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
        """Give rows noise of covariance ``inverse @ inverse.T``.

        ``matrix`` whitens: ``matrix @ inverse`` is the identity up to rounding (what is published has
        the covariance of ``inverse``; privacy rests on ``matrix`` alone). ``diameter`` is a proven upper
        bound on ``norm(matrix @ (x - y))`` over the box.
        """
        lower, upper = _vectors(lower, upper)
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
        """Return the rows with noise; out-of-bounds values are clamped, missing ones refused."""
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
            # A cell too large for a double is infinite, and as good as the bound.
            with np.errstate(over="ignore"):
                np.subtract(X, self.lower, out=out)
                np.multiply(out, self._forward, out=out)
            np.rint(out, out=out)
            np.clip(out, 0, self._top, out=out)
        else:
            np.clip(X, self.lower, self.upper, out=out)
            np.subtract(out, self.lower, out=out)
            np.rint(product(out, self._forward), out=out)
        if out.size and np.isnan(out.min()):
            raise ParameterError(
                "X of Whitening must have no missing values. Give missing cells a declared level first."
            )

    def restore(self, lattice: Ints | Floats) -> Floats:
        """Map lattice integers back to the columns' own units."""
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
        """Say which cells of a published matrix are numbers that :meth:`release` writes.

        Of correlated noise a row is looked at as a whole. One with a missing cell passes: what the missing
        cell was is not known, and without it almost every number can be written.
        """
        if self._top is None:
            return np.broadcast_to(self._possible_rows(X)[:, np.newaxis], X.shape)
        places = (X - self.lower) / self._backward
        return ~np.isnan(lattice_places(X, places, lambda k: k * self._backward + self.lower))

    def _possible_rows(self, X: Floats) -> Bools:
        """Find the lattice point of each row by solving, and correct it by what it leaves over."""
        possible: Bools = np.asarray(np.isnan(X).any(axis=1))
        rows = X[~possible]
        lattice = np.zeros(rows.shape)
        left = rows - self.lower
        for _ in range(_CORRECTIONS):
            lattice += np.rint(linalg.solve(self._backward.T, left.T, check_finite=False).T)
            left = rows - self.restore(lattice)
        written = self.restore(lattice)
        fits = same_bits(written, rows)
        # Where columns go together so closely that solving does not tell one lattice point from the next,
        # rounding alone is compared.
        lost = np.linalg.cond(self._backward) * np.abs(lattice).max(initial=1.0) * _UNIT > _TELLS_APART
        if lost:
            reach = np.abs(lattice) @ np.abs(self._backward) + np.abs(self.lower)
            fits |= np.abs(left) <= 2 * len(self.lower) * np.spacing(reach)
        possible[~possible] = fits.all(axis=1)
        return possible

    def total_variation(self, n_rows: int) -> float:
        """Sampler's distance from the exact law over ``n_rows`` rows."""
        return n_rows * self.lower.size * samplers.GAUSSIAN_TOTAL_VARIATION


def lattice_places(values: Floats, places: Floats, write: Callable[[Floats], Floats]) -> Floats:
    """Return which whole number of steps each published number was written from, NaN where there is none.

    Parameters
    ----------
    values : array
        Published numbers.
    places : array
        About how many steps each is from the origin; up to four steps off, as rounding may have it.
    write : callable
        What a release writes for whole numbers of steps: the same operations in the same order, so that the
        result is the same to the last bit.

    Privacy
    -------
    A number is accepted if it is one that the release writes and if it is no other: nothing can be hidden
    between two lattice points, nor in the sign of a zero.
    """
    # Lattice integers are exact in doubles: beyond, nothing is written, nor what is infinite.
    nearest = np.where(np.abs(places) <= 2.0**53, np.rint(places), np.nan)
    found = np.where(same_bits(write(nearest), values), nearest, np.nan)
    for shift in _SHIFTS:
        if not np.isnan(found).any():
            break
        moved = nearest + shift
        found = np.where(np.isnan(found) & same_bits(write(moved), values), moved, found)
    return found


def points_per_double(farthest: Floats, step: Floats | float) -> Floats:
    """Bound how many lattice points can be written as one double, up to a distance from zero."""
    spacing = np.spacing(np.abs(farthest))
    return np.where(4 * spacing <= step, 1.0, np.ceil(spacing / step) + 2)


def same_bits(one: Floats, other: Floats) -> Bools:
    """Say where two arrays of numbers are the same; zeros of two signs are not."""
    return np.asarray((one == other) & (np.signbit(one) == np.signbit(other)))


def _vectors(lower: Floats, upper: Floats, *others: Floats) -> tuple[Floats, ...]:
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
    """Return a float at or above the square root of an integer."""
    root = math.isqrt(square)
    root += root * root < square
    return math.nextafter(float(root), math.inf)
