"""Error floors: the least error of any guess at a noisy value, in the column's own unit, rounded down.

A floor is the exact Bayes error under a *named public prior*: if a person's value is drawn from that
prior, no method whatever has a smaller root-mean-square error on average; hence for every method some
value in the declared range has at least that error. It is no promise for each person, and it holds only
if the value is independent of everything else that the attacker sees (other columns, labels).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, TypeVar

from discreet.errors import PromiseError
from discreet.privacy._bayes_bounded import keep_for_wrong_guess, wrong_guess_floor
from discreet.privacy._error_floor import ColumnFloor, beyond_ceiling_error
from discreet.privacy.additive_noise import GaussianNoise, LaplaceNoise, Noise
from discreet.privacy.priors import IntegerPrior, ListPrior, Prior, UniformPrior
from discreet.privacy.roots import find_root
from discreet.privacy.rounding import (
    UNIT,
    finite,
    shorter_up,
    whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "GaussianNoise",
    "LaplaceNoise",
    "bayes_floor",
    "column_floor",
    "cramer_rao_unbiased_only",
    "keep_for_wrong_guess",
    "least_noise",
    "root_floor",
    "van_trees_floor",
    "wrong_guess_floor",
]

UNBIASED_ONLY = "unbiased attackers only"
"""The label that a Cramér-Rao number carries wherever it is shown."""

_Law = TypeVar("_Law", bound=Noise)

_ROOT_TOLERANCE = 2.0**-28
"""Largest error of the logarithm of a size, of which 24 significant bits are kept."""
_MANY = 2.0**40
"""Multiple of the range beyond which more noise adds nothing to a floor that floats can show."""


def bayes_floor(
    noise: Noise,
    prior: Prior,
    *,
    releases: int = 1,
    total_variation: float = 0.0,
    lattice_step: float = 0.0,
) -> float:
    """Return the least root-mean-square error of any guess, averaged over ``prior``, rounded down.

    Parameters
    ----------
    noise : Noise
        Law of the noise added to the value, in the column's unit.
    prior : UniformPrior or IntegerPrior
        Named public prior of the value.
    releases : int
        Number of independent releases of the same value that the attacker sees; at least 1.
    total_variation : float
        Total variation distance between the sampler's law and ``noise``, over all releases; in [0, 1].
    lattice_step : float
        Step of the lattice to which the value is rounded before the noise, in the column's unit; 0 if
        every value lies on the lattice.

    Returns
    -------
    float
        ``sqrt(r^2 - width^2 * total_variation) - lattice_step / 2``, at least 0, with r the Bayes
        error of a value that is stored as a 64-bit number. Below the exact value by less than 1e-9 of it
        (1e-6 where Laplace noise spreads over more than a thousand integers).

    Privacy
    -------
    One column of one person. Assumes that the value is independent, under the prior and in the
    noise, of everything else that is published: correlated columns lower it.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``.

    Examples
    --------
    >>> round(bayes_floor(GaussianNoise(10.0), UniformPrior(17, 90)), 2)
    8.67
    """
    way_out = "Pass on what the sampler states; 0 for an ideal one."
    tv = finite("bayes_floor", "total_variation", total_variation, least=0.0, most=1.0, way_out=way_out)
    step = finite("bayes_floor", "lattice_step", lattice_step, least=0.0, way_out=way_out)
    releases = whole(
        "bayes_floor", "releases", releases, least=1, way_out="Count the releases of this column."
    )
    return root_floor(
        _mean_square(prior, noise.compose(releases)),
        prior,
        total_variation=tv,
        # Storing a value as a float moves it like a lattice does, and is paid for like one.
        lattice_step=step + prior.slack,
    )


@lru_cache(maxsize=4096)
def _mean_square(prior: Prior, noise: Noise) -> float:
    """Return the prior's mean square, cached: a table with a thousand columns has few different ranges."""
    return prior.mean_square(noise)


def root_floor(
    mean_square: float, prior: Prior, *, total_variation: float = 0.0, lattice_step: float = 0.0
) -> float:
    """Return a floor from a lower bound on the Bayes mean square error, never above a blind guess.

    Parameters
    ----------
    mean_square : float
        Lower bound on the Bayes mean square error, before total variation and lattice are subtracted.
    prior : UniformPrior or IntegerPrior
        Prior over which the bound averages.
    total_variation, lattice_step
        As for :func:`bayes_floor`.

    Privacy
    -------
    As :func:`bayes_floor`.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``.
    """
    # An attacker loses nothing by guessing inside the range, where no squared error passes width^2.
    rest = mean_square - prior.width * prior.width * total_variation * (1.0 + 8.0 * UNIT)
    if rest <= 0.0:
        return 0.0
    root = math.sqrt(rest * (1.0 - 4.0 * UNIT)) * (1.0 - 4.0 * UNIT)
    return max(0.0, min(root, prior.largest) - 0.5 * lattice_step)


def column_floor(
    error: float,
    prior: Prior | ListPrior,
    *,
    measure: str | None = None,
    noise: Noise | None = None,
    releases: int = 1,
) -> ColumnFloor | None:
    """Return the floor that a release states, never above the error of a blind guess; None if it is 0.

    Parameters
    ----------
    error : float
        Floor that the mechanism proves, rounded down, in the column's unit or as a probability.
    prior : UniformPrior, IntegerPrior or ListPrior
        Prior over which the floor averages.
    measure : str, optional
        Name of the column's unit, such as "years"; None if it has none.
    noise : Noise, optional
        Law of the noise, for the van Trees and Cramér-Rao bounds beside the floor; None states neither.
    releases : int
        Number of independent noisy draws of each value in the file.

    Privacy
    -------
    Fisher information is stated where its sum over several releases proves something: for a continuous
    value by the bound of van Trees, for an integer under Gaussian noise, whose precisions add up. Other
    noise with the same information may give an integer back.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``.
    """
    error = min(error, prior.largest)
    # Also of NaN nothing is stated.
    if not error > 0:
        return None
    if isinstance(prior, ListPrior):
        return ColumnFloor(error=error, statistic="probability of a wrong guess", prior=prior.name)
    stated = ColumnFloor(error=error, measure=measure, prior=prior.name)
    if noise is None:
        return stated
    # The few 64-bit numbers of a narrow range far from 0 can be distinguished like integers.
    continuous = isinstance(prior, UniformPrior) and prior.steps is None
    adds_up = continuous or isinstance(noise, GaussianNoise)
    return replace(
        stated,
        van_trees=van_trees_floor(noise, prior, releases=releases) if continuous else None,
        cramer_rao=cramer_rao_unbiased_only(noise, releases=releases),
        fisher_information=noise.information * releases if adds_up else None,
    )


def van_trees_floor(noise: Noise, prior: Prior, *, releases: int = 1) -> float:
    """Return the closed-form floor ``1 / sqrt(information + 4 pi^2 / width^2)``, rounded down.

    Parameters
    ----------
    noise : Noise
        Law of the noise added to the value; only its Fisher information is used.
    prior : UniformPrior
        Range of the value. The bound averages over the cosine-squared prior on it, not the uniform one.
    releases : int
        Number of independent releases, whose information adds up whatever the law; at least 1.

    Returns
    -------
    float
        Root-mean-square error. For every attacker some value in the range has at least this error.

    Raises
    ------
    PromiseError
        For :class:`IntegerPrior`: rounding beats it (the bound is about continuous values).

    Privacy
    -------
    One column, as :func:`bayes_floor`, but another average: where the noise is below a twentieth of
    the range it is *above* the uniform prior's Bayes error, so it must not be said of that prior.

    Reference
    ---------
    Gill and Levit (1995); ``docs/explanation/theorems/bayes-floor.md``.
    """
    releases = whole("van_trees_floor", "releases", releases, least=1, way_out="Count the releases.")
    if isinstance(prior, IntegerPrior):
        raise PromiseError(
            "The parameter prior of van_trees_floor must be a UniformPrior, and was an IntegerPrior: "
            "rounding recovers integers that the bound calls protected. Use bayes_floor."
        )
    width = float(prior.upper) - float(prior.lower)
    # 4 pi^2 / width^2 is the information of the cosine-squared prior, the least on an interval.
    information = releases * noise.information + (2.0 * math.pi / width) ** 2 * (1.0 + 8.0 * UNIT)
    # Information is rounded up and its inverse down, both towards a smaller floor.
    return 1.0 / math.sqrt(information * (1.0 + 8.0 * UNIT)) * (1.0 - 8.0 * UNIT)


def cramer_rao_unbiased_only(noise: Noise, *, releases: int = 1) -> float:
    """Return ``1 / sqrt(information)``: a bound for unbiased attackers only, and no floor.

    Parameters
    ----------
    noise : Noise
        Law of the noise added to the value.
    releases : int
        Number of independent releases, whose information adds up; at least 1.

    Returns
    -------
    float
        Show it with the label :data:`UNBIASED_ONLY`. An attacker who knows the range does better.

    Privacy
    -------
    None against attackers who shrink their guess towards what they know.

    Reference
    ---------
    Farokhi, Proposition 2.2; ``docs/explanation/theorems/bayes-floor.md``.
    """
    releases = whole("cramer_rao_unbiased_only", "releases", releases, least=1, way_out="Count the releases.")
    return 1.0 / math.sqrt(releases * noise.information) * (1.0 - 8.0 * UNIT)


def least_noise(
    law: Callable[[float], _Law],
    prior: Prior,
    error: float,
    *,
    column: str | None = None,
    releases: int = 1,
    total_variation: float = 0.0,
    lattice_step: float = 0.0,
    start: float | None = None,
) -> _Law:
    """Return the least noise whose floor is at least ``error``, rounded up.

    Parameters
    ----------
    law : callable
        Law of noise for a size, such as :class:`GaussianNoise` or :class:`LaplaceNoise`. It must be ordered:
        larger noise is smaller noise with independent noise added.
    prior : UniformPrior or IntegerPrior
        Named public prior of the value.
    error : float
        Floor to reach, in the column's unit; above 0.
    column : str, optional
        Name of the column for error messages; None leaves it out.
    releases, total_variation, lattice_step
        As for :func:`bayes_floor`.
    start : float, optional
        Size near the solution, which shortens the search and changes nothing else; None starts at ``error``.

    Returns
    -------
    Noise
        With ``bayes_floor(result, prior, ...) >= error`` as floats compare. Its size has 24 significant bits,
        at most 1.2e-7 more noise than is needed: the floor is computed by sums whose last digits depend on
        the processor, and all processors must arrive at the same noise.

    Raises
    ------
    PromiseError
        If the prior cannot prove that much, whatever the noise.

    Privacy
    -------
    As :func:`bayes_floor`.

    Reference
    ---------
    ``docs/explanation/theorems/bayes-floor.md``.
    """
    error = finite("least_noise", "error", error, above=0.0, way_out="Ask for an error above 0, or for none.")
    ceiling = root_floor(
        prior.most_mean_square,
        prior,
        total_variation=total_variation,
        lattice_step=lattice_step + prior.slack,
    )
    if not ceiling:
        column_text = "" if column is None else f" for column {column!r}"
        raise PromiseError(
            f"The parameter prior of least_noise{column_text} must be wide against the steps in which values "
            f"are stored and noised, and was {prior.name}: no floor can be proven. Subtract a public "
            "constant from the column, so that its range is near 0."
        )
    if error >= ceiling:
        raise beyond_ceiling_error("least_noise", error, ceiling, f"a value {prior.name}", column)

    def floor(size: float) -> float:
        return bayes_floor(
            law(size),
            prior,
            releases=releases,
            total_variation=total_variation,
            lattice_step=lattice_step,
        )

    # Bracket the root: by doubling from the error itself, or by steps that grow slowly from a good start.
    low = high = error if start is None else start
    growth = 2.0 if start is None else 1.0 + 2.0**-17
    while floor(high) < error:
        low, high = high, growth * high
        growth = min(2.0, growth**8)
        # So wide, noise leaves a blind guess: rounding alone keeps the floor below the ceiling.
        if high > _MANY * prior.width:
            raise beyond_ceiling_error("least_noise", error, ceiling, f"a value {prior.name}", column)
    while low == high or floor(low) >= error:
        low, high = low / growth, low
    # In logarithms, because the bracket may span many orders of magnitude.
    log_size = find_root(
        lambda log_size: floor(math.exp(log_size)) - error,
        math.log(low),
        math.log(high),
        xtol=_ROOT_TOLERANCE,
        rtol=8.0 * UNIT,
    )
    # Few digits, so that processors whose last bits differ calibrate to the same noise. From just below the
    # root, so that none of the numbers with these digits is left out.
    size = shorter_up(math.exp(log_size - 2.0 * _ROOT_TOLERANCE))
    while floor(size) < error:
        size = shorter_up(math.nextafter(size, math.inf))
    return law(size)
