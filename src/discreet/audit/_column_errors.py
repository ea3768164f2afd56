"""Errors of the guesses at one column, on the attacked people, with the least error that a promise allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._guess import (
    FAILURE,
    approximate_rms_interval,
    max_success_probability,
    min_error,
    share_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from discreet._types import AnyArray, Floats
    from discreet.audit._linear_reconstruction import ColumnPosterior, People
    from discreet.privacy import Promise
    from discreet.query.curation import Curated
    from discreet.schema import Column


@dataclass(frozen=True)
class ColumnErrors:
    """Errors of the guesses at one column.

    Attributes
    ----------
    error : tuple of (float, float, float)
        Error of the attack with its lower and upper bound.
    without : float
        Error of the best guess without any answer.
    control : float
        Error of the attack if people's own cells were in no answer.
    floor : callable
        Function from a promise to the least error that it allows.
    """

    error: tuple[float, float, float]
    without: float
    control: float
    floor: Callable[[Promise], float]


def _rescale_errors(
    error: tuple[float, float, float], control: float, sample: float, population: float, most: float
) -> tuple[tuple[float, float, float], float]:
    """Rescale errors on a sample to the population, by the ratio of the errors without any answer.

    Parameters
    ----------
    error, control : tuple of float, float
        Error with its interval, and control error, both on the sample.
    sample, population : float
        Error without any answer, on the sample and on all rows.
    most : float
        Largest possible error, to which results are cut.
    """
    # A sample that is easier or harder to guess than the population is corrected for.
    factor = population / sample if sample else 1.0
    rescaled = (min(most, error[0] * factor), min(most, error[1] * factor), min(most, error[2] * factor))
    return rescaled, min(most, control * factor)


def level_errors(
    column: Curated, declared: Column, people: People, posterior: ColumnPosterior
) -> ColumnErrors:
    """Return the shares of wrong guesses at a category, and its floor by theorem 1 of guessing.md."""
    cells, shares = people.cells[column.sql], people.shares(column)

    def is_wrong(weights: Floats) -> AnyArray:
        wrong: AnyArray = posterior.prior.cells[np.argmax(weights, axis=-1)] != cells
        return wrong

    # Shares of all rows, not of the sample: the error without answers is a fact about the population.
    without = 1 - float(max(shares))
    error, control = _rescale_errors(
        share_interval(is_wrong(posterior.weights), FAILURE),
        float(np.mean(is_wrong(posterior.control))),
        float(np.mean(is_wrong(posterior.prior.weights))),
        without,
        1.0,
    )
    return ColumnErrors(
        error,
        without,
        control,
        lambda promise: max(0.0, 1 - max_success_probability(promise, shares.tolist())),
    )


def number_errors(
    column: Curated, declared: Column, people: People, posterior: ColumnPosterior
) -> ColumnErrors:
    """Return the root-mean-square errors of guesses at a number, and its floor by theorem 2 of guessing.md.

    Notes
    -----
    The guess is ``mean + sum over k of (weight_k - prior_k) (x_k - mean)``, clipped to the declared range.
    """
    present = np.ones(people.size, bool) if column.flag is None else people.cells[column.flag] == 0
    if not present.any():
        present[:] = True  # every number is missing: the public fill value is guessed
    prior, numbers = posterior.prior, posterior.prior.numbers(column)
    mean, without = people.mean_and_sd(column)
    truth = people.cells[column.exact][present].astype(np.float64)
    if column.whole:
        truth += column.lower

    def guess(weights: Floats) -> Floats:
        # Weights of a linear guess need not add up to 1, so their distance from the prior's is used.
        shift: Floats = (weights - prior.weights) @ (numbers - mean)
        guesses: Floats = np.clip(mean + shift, *declared.range)[present]
        return guesses

    def rms_error(guesses: Floats | float) -> float:
        return float(np.sqrt(np.mean((truth - guesses) ** 2)))

    width = column.step * column.top
    error, control = _rescale_errors(
        approximate_rms_interval(guess(posterior.weights), truth, declared.range, FAILURE),
        rms_error(guess(posterior.control)),
        rms_error(mean),
        without,
        width,
    )
    # A floor must not be overstated: the least sd that the binned counts allow.
    sd = people.min_sd(column)
    return ColumnErrors(error, without, control, lambda promise: min_error(promise, sd=sd, width=width))
