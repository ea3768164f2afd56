"""Least errors of a guess under noise of bounded support: of a number, and of a listed value.

Mean square error of a number: ``V`` (see ``_bayes``) may be rough, but it is a minimum over ``m`` of
functions ``Q(y, m)`` that are smooth in ``y``. Each ``Q`` lies above its chord minus ``h**2 / 8`` times its
curvature, so the trapezoid rule minus ``h**3 / 12`` times a bound on that curvature is below the integral
of ``V`` on every cell of length ``h`` (proof: ``docs/explanation/theorems/fisher-bounded.md``, Lemma 4).

Chance of guessing a listed value wrong after randomized response, and the noise for a given one: exact for
one answer (``docs/explanation/theorems/bayes-floor.md``, Lemma 6).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from discreet.errors import ParameterError
from discreet.privacy._bayes import CELLS, MOST_INTEGERS, ROUNDING
from discreet.privacy._error_floor import beyond_ceiling_error
from discreet.privacy.rounding import (
    UNIT,
    finite,
    round_down,
    round_up,
    whole,
)

if TYPE_CHECKING:
    from discreet.noise import BoundedDensity


def bounded_interval(density: BoundedDensity, width: float) -> float:
    """Return the mean square error for bounded noise and a uniform prior on an interval, rounded down.

    Parameters
    ----------
    density : BoundedDensity
        Density of the noise, in the unit of the value.
    width : float
        Length of the interval, in the same unit.

    Returns
    -------
    float
        In the squared unit of the value.

    Reference
    ---------
    ``docs/explanation/theorems/fisher-bounded.md``, Lemma 4.
    """
    low, high = density.support
    # On the two ramps the posterior is cut by one end of the range; between them by both or by none.
    ramp = min(high - low, width)
    parts = [(low, low + ramp)]
    if high - low > width:
        parts.append((low + width, high))
    total = sum(_integrate_panel(density, width, *part) for part in parts)
    # For symmetric noise the other ramp is the mirror image.
    if low == -high:
        total += _integrate_panel(density, width, *parts[0])
    else:
        total += _integrate_panel(density, width, high + width - ramp, high + width)
    # Where the whole noise fits into the range, the posterior is the noise itself.
    total += max(0.0, width - (high - low)) * density.variance
    return _subtract_errors(total / width, density, width)


def _subtract_errors(mean_square: float, density: BoundedDensity, width: float) -> float:
    """Subtract rounding, and the distance of the density from the true ground state; at least 0."""
    # Lemma 4: the posterior is nowhere wider than `span`.
    span = min(width, density.support[1] - density.support[0])
    return max(0.0, mean_square * (1.0 - ROUNDING) - 8.0 * span * span * density.distance)


def _integrate_panel(density: BoundedDensity, width: float, start: float, end: float) -> float:
    """Return a lower bound on the integral of V over outputs from ``start`` to ``end``.

    Notes
    -----
    Trapezoid rule of step h minus ``h^3 / 12`` times a bound on the second derivative of ``Q(y, m)``, summed
    over the cells. By parts, that derivative is at most ``above^2 |f'(y)| + below^2 |f'(y - width)|
    + 2 above f(y) + 2 below f(y - width) + 2 mass``, with ``above`` and ``below`` the distances from the
    ends of the range to the posterior mean m. Otherwise it is at most ``span^3 / 3 * sup |f''|``.
    """
    from discreet.noise.polynomial import legendre_rule

    low, high = density.support
    step = (end - start) / CELLS
    y = start + step * np.arange(CELLS + 1, dtype=np.float64)
    # The density is one polynomial: this rule integrates it times x**2 without error.
    x, w = legendre_rule(density.state.pairs.size + 5)
    spread, mean = np.empty(y.size), np.empty(y.size)
    for first in range(0, y.size, 1024):
        block = y[first : first + 1024, np.newaxis]
        left, right = np.maximum(0.0, block - high), np.minimum(width, block - low)
        half = 0.5 * np.maximum(right - left, 0.0)
        points = left + half * (1.0 + x)
        f = half * w * density.pdf(block - points)
        mass = f.sum(axis=1)
        center = np.sum(f * points, axis=1) / np.where(mass > 0, mass, 1.0)
        spread[first : first + 1024] = np.sum(f * (points - center[:, np.newaxis]) ** 2, axis=1)
        mean[first : first + 1024] = np.where(mass > 0, center, 0.5 * (left + right)[:, 0])
    # On a cell the posterior mean is between those at its ends; one step more for safety.
    above = np.minimum(np.maximum(mean[1:], mean[:-1]) + step, width)
    below = np.minimum(width - np.minimum(mean[1:], mean[:-1]) + step, width)
    height, slope, _ = density.suprema(y[:-1])
    height_far, slope_far, _ = density.suprema(y[:-1] - width)
    mass_bound = np.minimum(1.0, density.cdf(y[1:]) - density.cdf(y[:-1] - width) + 1e-12)
    curvature = above**2 * slope + below**2 * slope_far
    curvature += 2.0 * (above * height + below * height_far) + 2.0 * mass_bound
    # Without integrating by parts: better where the noise is much wider than the range.
    span = min(width, high - low + step)
    curvature = np.minimum(curvature, span**3 / 3.0 * float(density.suprema(y)[2].max()))
    trapezoid = step * (float(spread.sum()) - 0.5 * float(spread[0] + spread[-1]))
    return trapezoid - step**3 / 12.0 * float(curvature.sum())


def bounded_integers(density: BoundedDensity, points: int) -> float:
    """Return the mean square error for bounded noise and a uniform prior on integers, rounded down.

    Parameters
    ----------
    density : BoundedDensity
        Density of the noise, in steps between integers.
    points : int
        Number of consecutive integers; at least 1.

    Returns
    -------
    float
        In squared steps; 0 if the support is not wider than one step.

    Reference
    ---------
    ``docs/explanation/theorems/fisher-bounded.md``, Lemma 4.
    """
    span = density.support[1] - density.support[0]
    if span <= 1.0:
        return 0.0  # no two integers are possible at once
    # Telling the attacker the residue modulo k lowers his error and leaves a k times coarser problem.
    coarse = max(1, min(math.floor(span / MOST_INTEGERS), points // MOST_INTEGERS))
    scaled = density
    if coarse > 1:
        from discreet.noise import BoundedDensity

        scaled = BoundedDensity(
            lower=density.lower / coarse,
            upper=density.upper / coarse,
            regularization=density.regularization * float(coarse) ** 4,
            weight=density.weight,
        )
    group_size, n_longer = divmod(points, coarse)
    total = (coarse - n_longer) * _bounded_integers_total(scaled, group_size)
    if n_longer:
        total += n_longer * _bounded_integers_total(scaled, group_size + 1)
    return _subtract_errors(total / points * coarse * coarse, density, points - 1.0)


def _bounded_integers_total(density: BoundedDensity, points: int) -> float:
    """Return a lower bound on ``points`` times the mean square error, by a grid that repeats every integer.

    Notes
    -----
    Outputs lie on a grid of ``per_unit`` points per integer, so noise values are shared by all outputs with
    one remainder: row b, column r of ``f`` is the density at ``low + b + r / per_unit``, and the output
    ``(a, r)`` meets the input ``a - b`` there. The trapezoid rule is lowered by ``step^3 / 12`` times the sum
    of ``sup |f''| (|b - mean| + move)^2``, with ``move`` how far the posterior mean goes within a cell.
    """
    low, high = density.support
    if high - low > 4 * MOST_INTEGERS:
        return _wide_noise_total(density, points)
    per_unit = math.ceil(CELLS / (high - low))
    step = 1.0 / per_unit
    units = math.ceil(high - low) + 1
    noise = low + np.arange(units * per_unit, dtype=np.float64).reshape(units, per_unit) * step
    f = density.pdf(noise)
    curvature = density.suprema(noise)[2]
    place = np.arange(units)[:, np.newaxis]
    total = error = 0.0
    previous_mean = np.zeros(per_unit)
    for a, times in _distinct_outputs(units, points):
        window = slice(max(0, a - points + 1), min(a, units - 1) + 1)
        weights, where = f[window], place[window]
        mass = weights.sum(axis=0)
        mean = np.where(mass > 0, (weights * where).sum(axis=0) / np.where(mass > 0, mass, 1.0), where[-1])
        total += times * float(np.sum(weights * (where - mean) ** 2))
        # Within a cell the posterior mean moves from one node's to the next one's.
        # The node before the first belongs to the integer before, whose places count one less. That after the
        # last is not known yet: mean[0] + 1 is farther from mean[-1] than the mean moves within a cell.
        neighbors = np.concatenate([[previous_mean[-1] + 1.0], mean, [mean[0] + 1.0]])
        move = np.maximum(np.abs(np.diff(neighbors))[1:], np.abs(np.diff(neighbors))[:-1])
        error += times * float(np.sum(curvature[window] * (np.abs(where - mean) + move) ** 2))
        previous_mean = mean
    return step * total - step**3 / 12.0 * error


def _wide_noise_total(density: BoundedDensity, points: int) -> float:
    """Return what :func:`_bounded_integers_total` does, for noise so wide that the step exceeds one integer.

    Notes
    -----
    One trapezoid rule over all outputs, lowered by ``step^3 / 12`` times the number of cells, ``sup |f''|``
    and ``sum over x of x^2``, the largest sum of squared distances from a point between the ends.
    """
    low, high = density.support
    step = (high - low + points - 1) / CELLS
    x = np.arange(points, dtype=np.float64)
    y = low + step * np.arange(CELLS + 1, dtype=np.float64)
    total = 0.0
    for first in range(0, y.size, 256):
        f = density.pdf(y[first : first + 256, np.newaxis] - x)
        mass = f.sum(axis=1)
        mean = (f @ x) / np.where(mass > 0, mass, 1.0)
        total += float(np.sum(f * (x - mean[:, np.newaxis]) ** 2))
    squares = (points - 1.0) * points * (2.0 * points - 1.0) / 6.0
    curvature = float(density.suprema(np.linspace(low, high, 4096))[2].max())
    return step * total - step**3 / 12.0 * CELLS * squares * curvature


def _distinct_outputs(units: int, points: int) -> list[tuple[int, int]]:
    """Return the integer parts of the outputs whose posteriors differ, each with its multiplicity."""
    if points <= units:
        return [(a, 1) for a in range(units + points - 1)]
    full = [(a, 1) for a in range(units - 1)] + [(units - 1, points - units + 1)]
    return full + [(a, 1) for a in range(points, units + points - 1)]


def wrong_guess_floor(
    keep: float,
    levels: int,
    *,
    listed: int | None = None,
    answers: int = 1,
    total_variation: float = 0.0,
) -> float:
    """Return the least chance of guessing a listed value wrong after randomized response, rounded down.

    Parameters
    ----------
    keep : float
        Probability that the true level is reported; the others share the rest equally.
    levels : int
        Number of levels that may be reported; at least 2.
    listed : int, optional
        Number of levels that the value may have, all equally likely; None for all. "Other" and "missing"
        are reported too, but not listed. Where one answer is about several columns, `levels` counts their
        combinations and `listed` the values of one column.
    answers : int
        Number of independent answers about the same value; at least 0.
    total_variation : float
        Total variation distance between the sampler's law and the ideal one; in [0, 1].

    Returns
    -------
    float
        For one answer that is kept more often than by chance exactly
        ``(1 - 1/listed) levels (1 - keep) / (levels - 1)``: it is the truth, or else drawn from all levels
        alike. For several at least ``(listed - 1) / (r**answers + listed - 1)``, where `r` is the ratio of
        the two probabilities of a report. Less ``total_variation``, and at least 0.

    Privacy
    -------
    Under the uniform prior on the listed values, of one person.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemma 6.

    Examples
    --------
    >>> round(wrong_guess_floor(0.4, 4), 9), round(wrong_guess_floor(0.4, 4, listed=2), 9)
    (0.6, 0.4)
    """
    function = "wrong_guess_floor"
    kept, levels, listed, tv = _check_response(function, keep, levels, listed, total_variation)
    whole(function, "answers", answers, least=0, way_out="Count the answers about one value.")
    other = (1 - kept) / (levels - 1)
    if answers == 0 or listed == 1:
        wrong = 1 - Fraction(1, listed)
    elif answers == 1:
        # The best guess is the reported level, if it is listed and kept more often than by chance.
        wrong = 1 - max(kept - other, Fraction(0)) - other * levels / listed
    else:
        odds = _power_up(max(kept, other), min(kept, other), answers)
        wrong = Fraction(0) if odds is None else (listed - 1) / (odds + listed - 1)
    return max(0.0, round_down(wrong - tv))


def _power_up(above: Fraction, below: Fraction, exponent: int) -> Fraction | None:
    """Return an upper bound on ``(above / below)**exponent``; None beyond the range of floats."""
    log = exponent * math.log(round_up(above / below)) * (1.0 + 8.0 * UNIT) if below else math.inf
    # exp turns the absolute error of an argument up to 700 into a relative one.
    return None if log > 700.0 else Fraction(math.exp(log) * (1.0 + 2048.0 * UNIT))


def keep_for_wrong_guess(
    error: float,
    levels: int,
    *,
    listed: int | None = None,
    answers: int = 1,
    column: str | None = None,
    total_variation: float = 0.0,
) -> float:
    """Return the largest keep probability whose :func:`wrong_guess_floor` is at least ``error``.

    Parameters
    ----------
    error : float
        Probability of a wrong guess to reach; above 0 and below 1.
    levels, listed, answers, total_variation
        As for :func:`wrong_guess_floor`; `listed` at least 2, `answers` at least 1.
    column : str, optional
        Name of the column for error messages; None leaves it out.

    Returns
    -------
    float
        Rounded down; :func:`response_epsilon` gives its epsilon.

    Raises
    ------
    PromiseError
        If ``error`` is at or above ``1 - 1/listed``, the chance of a blind guess.

    Privacy
    -------
    As :func:`wrong_guess_floor`.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``, Lemma 6.
    """
    function = "keep_for_wrong_guess"
    _, levels, listed, tv = _check_response(function, 0.5, levels, listed, total_variation)
    answers = whole(function, "answers", answers, least=1, way_out="Count the answers about one value.")
    error = finite(
        function, "error", error, above=0.0, below=1.0, way_out="Ask for a chance between 0 and 1."
    )
    ceiling = 1 - Fraction(1, listed) - tv
    wanted = Fraction(error) + tv
    if Fraction(error) < ceiling:
        if answers == 1:
            # Lemma 6: a guess is wrong with probability levels * other * (1 - 1 / listed).
            other = wanted * Fraction(listed, (listed - 1) * levels)
        else:
            # Several answers multiply their odds: each gets its part of the log odds.
            odds = math.log((listed - 1) * (1 - wanted) / wanted) / answers
            other = 1 / (Fraction(math.exp(odds) * (1.0 - 2.0**-40)) + levels - 1)
        keep = round_down(1 - (levels - 1) * other)
        if keep * levels >= 1:
            return keep
    raise beyond_ceiling_error(
        function, error, round_down(ceiling), f"one of {listed} equally likely values", column
    )


def _check_response(
    function: str, keep: float, levels: int, listed: int | None, total_variation: float
) -> tuple[Fraction, int, int, Fraction]:
    """Return keep, levels, listed and total variation as checked exact numbers."""
    levels = whole(function, "levels", levels, least=2, way_out="Declare at least two categories.")
    listed = levels if listed is None else listed
    if not 1 <= whole(function, "listed", listed, least=1, way_out="Count the listed values.") <= levels:
        raise ParameterError(
            f"The parameter listed of {function} must be at most levels, {levels}, and was {listed}. "
            "Every listed value is a level."
        )
    keep = finite(function, "keep", keep, least=0.0, most=1.0, way_out="Give a probability.")
    tv = finite(
        function,
        "total_variation",
        total_variation,
        least=0.0,
        most=1.0,
        way_out="Pass on what the sampler states; 0 for an ideal one.",
    )
    return Fraction(keep), levels, listed, Fraction(tv)
