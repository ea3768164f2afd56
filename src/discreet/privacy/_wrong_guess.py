"""Least chance of guessing a listed value wrong after randomized response, and the noise for a given one."""

from __future__ import annotations

import math
from fractions import Fraction

from discreet.errors import ParameterError
from discreet.privacy._error_floor import beyond_ceiling_error
from discreet.privacy.rounding import (
    UNIT,
    finite,
    round_down,
    round_up,
    whole,
)


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
