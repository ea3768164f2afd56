"""Attacks that use the published file and its laws only; they draw nothing, so anyone can repeat them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._closed_form_guess import linear_guesses
from discreet.audit._guess import Guess
from discreet.audit.channel import AdditiveChannel, SampledChannel
from discreet.audit.targets import MOST_ROWS, Target, count_rows, plan_targets
from discreet.errors import ParameterError
from discreet.noise_law import Additive, InvariantLaw
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats
    from discreet.release import ReleasePlan

FILE = "the published file and the published laws"
EXPECTED = "the error that the attacker expects, estimated from the file"
_BINS, _POINTS = 256, 128
"""Number of output cells and of input values in a deconvolution."""
_STEPS, _FEWEST_STEPS, _ALL_STEPS = 300, 30, 30_000
"""Most and fewest steps of one deconvolution, and most steps of all of them together."""


@dataclass(frozen=True)
class _Population:
    """Moments of the true cells of a number, estimated from the file.

    Attributes
    ----------
    mean, variance : float
        Estimated mean and variance of the cells that are present.
    absent : float
        Share of the published numbers that stand for a missing one.
    drowned : bool
        Whether the estimated variance is below its standard error, which then stands in for it.
    """

    mean: float
    variance: float
    absent: float
    drowned: bool


@one_thread()
def attack_file(
    plan: ReleasePlan, columns: Mapping[str, AnyArray], *, progress: Callable[[int, int], None] | None = None
) -> tuple[Guess, ...]:
    """Attack a published file with only the file and its published laws.

    Numbers: *shrinkage* towards the population's mean, in proportion to the noise's share of the variance;
    *deconvolution*, the posterior mean under the population's distribution as estimated from the file.
    Lists: *response inversion* with the population's shares as estimated from the file. Both: the *linear*
    guess across all columns.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, of which ``schema``, ``columns`` and, for correlated noise, the public covariance
        are used.
    columns : mapping of str to array
        Published columns, encoded; their first 20,000 rows are used, which are a random sample because a
        published table is in random order.
    progress : callable, optional
        Function called with ``(done, total)`` after every column.

    Returns
    -------
    tuple of Guess
        Verdict "shown": the population is not the floor's prior, and the errors are expectations. Nothing
        is drawn, so the numbers can be repeated to about nine digits. Empty where published rows belong to
        no one.

    Privacy
    -------
    Depends on the published file alone, so it may be published with it.

    Reference
    ---------
    Linear: the error ``S - S (S + V)^-1 S`` of docs/explanation/theorems/fisher-cramer-rao.md with
    ``S`` estimated by the covariance of the file minus ``V``.

    Examples
    --------
    >>> from discreet import Column, ErrorFloor, GaussianRelease, Schema
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
    >>> method = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema, random_state=1)
    >>> table = method.release({"age": [20, 35, 50, 65] * 250})
    >>> [guess.attack for guess in attack_file(method.plan(schema, 1000), table.columns)]
    ['shrinkage', 'deconvolution']
    """
    if not plan.row_level:
        return ()
    targets = [t for t in plan_targets(plan) if t.name in columns]
    if absent := {s.column for s in plan.columns} - {t.name for t in targets}:
        raise ParameterError(
            f"columns of attack_file must hold every published column, and lacks {sorted(absent)[0]!r}. "
            "Give the whole file."
        )
    cells = {t.name: columns[t.name][:MOST_ROWS] for t in targets}
    n = count_rows(cells)
    protected = [t for t in targets if not t.is_clear]
    shares = {t.name: _shares(t, cells[t.name]) for t in protected if t.is_list and n}
    guesses: list[Guess] = []
    errors_without: dict[str, float] = {}
    numbers = sum(not t.is_list for t in protected)
    # All numbers share one amount of work.
    steps = max(_FEWEST_STEPS, min(_STEPS, _ALL_STEPS // max(1, numbers)))
    for done, target in enumerate(protected, start=1):
        inversion = _response_inversion(target, cells[target.name], shares) if target.is_list else None
        guesses += [inversion] if inversion else _number_guesses(target, cells[target.name], steps)
        errors_without.update({g.column: g.without for g in guesses[-1:] if g.column == target.name})
        if progress is not None:
            progress(done, len(protected))
    start = time.monotonic()
    by_name = {t.name: t for t in protected}
    for linear in linear_guesses(plan, targets, cells, shares):
        for name, error in linear.errors.items():
            if name not in errors_without:
                continue
            note = f"from {linear.columns} published columns together"
            least = min(error, errors_without[name])
            guesses.append(
                _expected_guess(by_name[name], "linear", least, errors_without[name], n, start, note)
            )
    return tuple(guesses)


def _expected_guess(
    target: Target, attack: str, error: float, without: float, n: int, start: float, note: str = ""
) -> Guess:
    """Return a result for an error that the attacker expects: no interval and no verdict."""
    return Guess(
        attack=attack,
        column=target.name,
        statistic=target.statistic,
        measure=target.column.measure,
        error=error,
        lower=error,
        upper=error,
        failure_probability=0.0,
        without=without,
        floor=target.floor,
        verdict="shown",
        on="file",
        knowledge=FILE,
        n=n,
        seconds=time.monotonic() - start,
        note=f"{EXPECTED}; {note}" if note else EXPECTED,
    )


def _shares(target: Target, codes: AnyArray) -> Floats:
    """Return the estimated share of each level in the population, by inverting randomized response.

    Notes
    -----
    ``(observed - other) / (keep - other)``, cut at 0 and normalized; uniform if keep and other are equal.
    """
    channel = target.response
    counts = np.array([np.count_nonzero(codes == level) for level in target.codes])
    observed = counts / max(1, counts.sum())
    gap = channel.keep - channel.other
    if gap < 1e-6:
        return np.full(channel.levels, 1 / channel.levels)
    # Noise may push the unbiased estimate of a rare level below 0.
    shares = np.maximum((observed - channel.other) / gap, 0.0)
    return np.asarray(shares / shares.sum())


def _response_inversion(target: Target, codes: AnyArray, shares: Mapping[str, Floats]) -> Guess | None:
    """Return the expected error of the likeliest level given each published one; None without rows."""
    if not len(codes):
        return None
    start = time.monotonic()
    channel, known = target.response, shares[target.name]
    law = np.full((channel.levels, channel.levels), channel.other)
    np.fill_diagonal(law, channel.keep)
    # The chance of a right guess: for every published level the largest joint probability with a true one.
    right = float((known[:, None] * law).max(axis=0).sum())
    without = 1 - float(known.max())
    if isinstance(channel, SampledChannel):
        # Where the cell is not shown, the commonest level of the population is guessed.
        right = channel.share * right + (1 - channel.share) * (1 - without)
    return _expected_guess(target, "response inversion", min(1 - right, without), without, len(codes), start)


def _number_guesses(target: Target, cells: Floats, steps: int) -> list[Guess]:
    """Return the expected errors of shrinkage and of deconvolution at a number, where they apply.

    Notes
    -----
    Shrinkage: with ``s`` the variance of the population and ``v`` that of the noise, the best linear guess
    from the published number has the mean square error ``s v / (s + v)``.
    """
    start = time.monotonic()
    present = cells[~np.isnan(cells)]
    if present.size < 2:
        return []
    guesses: list[Guess] = []
    noise = target.noise_variance
    if noise is not None:
        population = _population(target, present, present.size / cells.size, noise)
        s = population.variance
        error = math.sqrt(s * noise / (s + noise)) if s else 0.0
        notes = []
        if population.drowned:
            notes.append("the noise drowns the population's variance, of which one standard error is assumed")
        if isinstance(target.summary.law, InvariantLaw):
            notes.append("the noise is at most what is said")
        without = math.sqrt(s)
        note = "; ".join(notes)
        guesses.append(_expected_guess(target, "shrinkage", error, without, present.size, start, note))
    start = time.monotonic()
    if (errors := _deconvolution(target, present, present.size / cells.size, steps)) is not None:
        error, without = errors
        if guesses:
            # Variance that the estimated distribution misses is not explained by its posterior mean either.
            error = math.sqrt(error**2 + max(0.0, guesses[0].without ** 2 - without**2))
            without, error = guesses[0].without, min(error, guesses[0].without)
        guesses.append(_expected_guess(target, "deconvolution", error, without, present.size, start))
    return guesses


def _absent(target: Target, present: float) -> float:
    """Return the share of the published numbers that stand for a missing one.

    Notes
    -----
    The share of missing cells follows by inverting the randomized flag:
    ``m = (1 - present - (1 - keep)) / (2 keep - 1)``; of these, ``1 - keep`` are published as present.
    """
    keep = target.missing_keep
    if keep is None or keep <= 0.5 or present == 0:
        return 0.0
    missing = min(1.0, max(0.0, ((1 - present) - (1 - keep)) / (2 * keep - 1)))
    # Below 1, because the population's moments are divided by the share of the others.
    return min(0.99, missing * (1 - keep) / present)


def _population(target: Target, cells: Floats, present: float, noise: float) -> _Population:
    """Return mean and variance of the true cells, without what noise and missing cells add to them.

    Parameters
    ----------
    target : Target
        Column of the cells.
    cells : array of shape (n,)
        Published numbers that are not flagged as missing.
    present : float
        Share of these among all published cells.
    noise : float
        Variance of the noise, in the squared unit of the column.
    """
    law = target.summary.law
    shift = law.mean if isinstance(law, Additive) else 0.0
    mean, spread = float(cells.mean()) - shift, float(cells.var())
    absent, fill = _absent(target, present), target.column.fill
    lower, upper = target.column.range
    true_mean = min(upper, max(lower, (mean - absent * fill) / (1 - absent)))
    left = spread - noise - absent * (fill - mean) ** 2
    variance = left / (1 - absent) - (true_mean - mean) ** 2
    # Below its standard error a variance cannot be distinguished from 0; none exceeds that of the range.
    least = spread * math.sqrt(2 / cells.size)
    most = ((upper - lower) / 2) ** 2
    drowned = variance < least
    return _Population(true_mean, min(most, max(least, variance)), absent, drowned)


def _deconvolution(target: Target, cells: Floats, present: float, steps: int) -> tuple[float, float] | None:
    """Return the error of the posterior mean under the estimated population, and the population's sd.

    Parameters
    ----------
    target : Target
        Column of the cells.
    cells : array of shape (n,)
        Published numbers that are not flagged as missing.
    present : float
        Share of these among all published cells.
    steps : int
        Number of steps of the estimate.

    Returns
    -------
    (float, float) or None
        Both in the column's unit; None where the noise is too fine for the grid, or has no law by cell.

    Notes
    -----
    The population is the maximum-likelihood distribution ``w`` on a grid of declared values, by
    expectation-maximization from the uniform one: ``w_k <- w_k sum over c of f_c p(c|k) / sum_j p(c|j) w_j``,
    with ``f_c`` the share of published cells in output cell c. A published number stands for a missing one
    with probability ``absent``, and then has the law of the fill value.
    """
    channel = target.channel
    if channel is None:
        return None
    lower, upper = target.column.range
    sd, clamped = 0.0, False
    if isinstance(channel, AdditiveChannel):
        sd, clamped = math.sqrt(channel.law.variance), channel.law.clamped
        # With fewer than three cells per standard deviation the cells would blur the likelihood.
        if sd < 3 * (upper - lower + (0 if clamped else 8 * sd)) / _BINS:
            return None
    reach = 0.0 if clamped else 4 * sd
    edges = np.linspace(lower - reach, upper + reach, _BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    place = np.clip(np.searchsorted(edges, cells, side="right") - 1, 0, _BINS - 1)
    if clamped:
        # Clamped outputs lie exactly at an end of the range, which therefore has a cell of its own.
        middles = np.concatenate([middles, [lower, upper]])
        place = np.where(cells <= lower, _BINS, np.where(cells >= upper, _BINS + 1, place))
    counts = np.bincount(place, minlength=middles.size) / cells.size
    used = np.flatnonzero(counts)
    points = _grid(target)
    law = _likelihoods(channel.log_likelihood(middles[used, None], points))
    absent = _absent(target, present)
    elsewhere = np.zeros(used.size)
    if absent:
        both = channel.log_likelihood(middles[used, None], np.append(points, target.column.fill))
        law, elsewhere = (part := _likelihoods(both))[:, :-1], absent * part[:, -1]
    counts = counts[used]
    weights = np.full(points.size, 1 / points.size)
    for _ in range(steps):
        total = (1 - absent) * (law @ weights) + elsewhere
        weights = weights * (law.T @ (counts * (1 - absent) / np.maximum(total, 1e-300)))
        weights /= weights.sum()
    joint = law * weights
    # Posterior of the grid values given each output cell.
    mass = joint.sum(axis=1)
    possible = mass > 0
    joint, mass = joint[possible] / mass[possible, None], mass[possible]
    mean = joint @ points
    square = (joint @ points**2) - mean**2
    # Weight of each output cell among the numbers that do not stand for a missing one.
    present_counts = counts[possible] * mass / (mass + elsewhere[possible] / (1 - absent))
    error = math.sqrt(max(0.0, float(present_counts @ square) / float(present_counts.sum())))
    middle = float(weights @ points)
    return error, math.sqrt(max(0.0, float(weights @ (points - middle) ** 2)))


def _grid(target: Target) -> Floats:
    """Return a grid of declared values of a column, at most 128 of them."""
    lower, upper = target.column.range
    if target.column.type != "number" and target.column.n_integers <= _POINTS:
        return np.arange(lower, upper + 1)
    return np.linspace(lower, upper, _POINTS)


def _likelihoods(logs: Floats) -> Floats:
    """Return likelihoods up to a factor for each published cell, on which no posterior depends."""
    top = logs.max(axis=1, keepdims=True)
    return np.exp(logs - np.where(np.isfinite(top), top, 0.0))
