"""What anybody can do with the published file and its laws: no secret, no chance, the same digits for all."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._closed_form_guess import linear_guesses
from discreet.audit._guess import Guess
from discreet.audit.channel import MOST_ROWS, AdditiveChannel, SampledChannel, Target, length, targets_of
from discreet.errors import ParameterError
from discreet.noise_law import Additive, InvariantLaw

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats
    from discreet.release import ReleasePlan

FILE = "the published file and the published laws"
EXPECTED = "the error that the attacker expects, estimated from the file"
_BINS, _POINTS = 256, 128
"""Cells of the output, and values that they may stand for, in a deconvolution."""
_STEPS, _FEWEST_STEPS, _ALL_STEPS = 300, 30, 30_000
"""Steps of a deconvolution; fewer where there are many, so that they are not more than this altogether."""


@dataclass(frozen=True)
class _Population:
    """What the file says about the true cells of a number."""

    mean: float
    variance: float
    absent: float
    """Share of the published numbers that stand for a missing one."""
    drowned: bool


def attack_file(
    plan: ReleasePlan, columns: Mapping[str, AnyArray], *, progress: Callable[[int, int], None] | None = None
) -> tuple[Guess, ...]:
    """Attack a published file with nothing but itself and its laws.

    Numbers: *shrinkage* towards the population's mean, by what its variance exceeds the noise's;
    *deconvolution*, the posterior mean under the population's distribution as the file shows it.
    Lists: *response inversion* with the population's shares as the file shows them. Both: the *linear* guess
    across all columns.

    Parameters
    ----------
    plan : Plan
        Of the release; nothing else of it is used than ``schema``, ``columns`` and, for correlated
        noise, its public covariance.
    columns : mapping of str to array
        The published columns, encoded; their first 20,000 rows are used, which are any 20,000
        because a published table is in random order.
    progress : callable, optional
        Told ``(done, total)`` after every column.

    Returns
    -------
    tuple of Guess
        Verdict "shown": the population is not the floor's prior, and the errors are expectations. Nothing
        is drawn, so whoever repeats it gets the same numbers, to about nine digits. Empty where published
        rows are nobody's.

    Privacy
    -------
    Depends on the published file alone, so it may be published with it.

    Reference
    ---------
    Linear: the error ``S - S (S + V)^-1 S`` of docs/explanation/theorems/fisher-cramer-rao.md with
    ``S`` estimated by the covariance of the file minus ``V``.
    """
    if not plan.row_level:
        return ()
    targets = [t for t in targets_of(plan) if t.name in columns]
    if absent := {s.column for s in plan.columns} - {t.name for t in targets}:
        raise ParameterError(
            f"columns of attack_file must hold every published column, and lacks {sorted(absent)[0]!r}. "
            "Give the whole file."
        )
    cells = {t.name: columns[t.name][:MOST_ROWS] for t in targets}
    n = length(cells)
    protected = [t for t in targets if not t.is_clear]
    shares = {t.name: _shares(t, cells[t.name]) for t in protected if t.is_list and n}
    guesses: list[Guess] = []
    withouts: dict[str, float] = {}
    numbers = sum(not t.is_list for t in protected)
    steps = max(_FEWEST_STEPS, min(_STEPS, _ALL_STEPS // max(1, numbers)))
    for done, target in enumerate(protected, start=1):
        found = _inversion(target, cells[target.name], shares) if target.is_list else None
        guesses += [found] if found else _number_guesses(target, cells[target.name], steps)
        withouts.update({g.column: g.without for g in guesses[-1:] if g.column == target.name})
        if progress is not None:
            progress(done, len(protected))
    start = time.monotonic()
    by_name = {t.name: t for t in protected}
    for linear in linear_guesses(plan, targets, cells, shares):
        for name, error in linear.errors.items():
            if name not in withouts:
                continue
            note = f"from {linear.columns} published columns together"
            least = min(error, withouts[name])
            guesses.append(_shown(by_name[name], "linear", least, withouts[name], n, start, note))
    return tuple(guesses)


def _shown(
    target: Target, attack: str, error: float, without: float, n: int, start: float, note: str = ""
) -> Guess:
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
    """Undo randomized response for the whole population; what comes out below zero is none."""
    channel = target.response
    counts = np.array([np.count_nonzero(codes == level) for level in target.codes])
    seen = counts / max(1, counts.sum())
    told = channel.keep - channel.other
    if told < 1e-6:
        return np.full(channel.levels, 1 / channel.levels)
    shares = np.maximum((seen - channel.other) / told, 0.0)
    return np.asarray(shares / shares.sum())


def _inversion(target: Target, codes: AnyArray, shares: Mapping[str, Floats]) -> Guess | None:
    if not len(codes):
        return None
    start = time.monotonic()
    channel, known = target.response, shares[target.name]
    law = np.full((channel.levels, channel.levels), channel.other)
    np.fill_diagonal(law, channel.keep)
    # For every answer the likeliest true level; what the population says is part of it.
    right = float((known[:, None] * law).max(axis=0).sum())
    without = 1 - float(known.max())
    if isinstance(channel, SampledChannel):
        # Where nothing is shown, the population is all there is to go by.
        right = channel.share * right + (1 - channel.share) * (1 - without)
    return _shown(target, "response inversion", min(1 - right, without), without, len(codes), start)


def _number_guesses(target: Target, cells: Floats, steps: int) -> list[Guess]:
    start = time.monotonic()
    there = cells[~np.isnan(cells)]
    if there.size < 2:
        return []
    found: list[Guess] = []
    noise = target.noise_variance
    if noise is not None:
        known = _population(target, there, there.size / cells.size, noise)
        error = math.sqrt(known.variance * noise / (known.variance + noise)) if known.variance else 0.0
        notes = []
        if known.drowned:
            notes.append("the noise drowns the population's variance, of which one standard error is assumed")
        if isinstance(target.summary.law, InvariantLaw):
            notes.append("the noise is at most what is said")
        without = math.sqrt(known.variance)
        found.append(_shown(target, "shrinkage", error, without, there.size, start, "; ".join(notes)))
    start = time.monotonic()
    if (both := _deconvolution(target, there, there.size / cells.size, steps)) is not None:
        error, without = both
        if found:
            # What the smoothed distribution misses of the population's variance is not explained either.
            error = math.sqrt(error**2 + max(0.0, found[0].without ** 2 - without**2))
            without, error = found[0].without, min(error, found[0].without)
        found.append(_shown(target, "deconvolution", error, without, there.size, start))
    return found


def _absent(target: Target, present: float) -> float:
    """Return the share of the published numbers that stand for a missing one."""
    keep = target.missing_keep
    if keep is None or keep <= 0.5 or present == 0:
        return 0.0
    missing = min(1.0, max(0.0, ((1 - present) - (1 - keep)) / (2 * keep - 1)))
    return min(0.99, missing * (1 - keep) / present)


def _population(target: Target, cells: Floats, present: float, noise: float) -> _Population:
    """Subtract from mean and variance what noise and missing cells put there."""
    law = target.summary.law
    shift = law.mean if isinstance(law, Additive) else 0.0
    mean, spread = float(cells.mean()) - shift, float(cells.var())
    absent, fill = _absent(target, present), target.column.fill
    lower, upper = target.column.range
    true_mean = min(upper, max(lower, (mean - absent * fill) / (1 - absent)))
    left = spread - noise - absent * (fill - mean) ** 2
    variance = left / (1 - absent) - (true_mean - mean) ** 2
    # A variance cannot be told from nothing below its standard error, and none exceeds the range's.
    least = spread * math.sqrt(2 / cells.size)
    most = ((upper - lower) / 2) ** 2
    drowned = variance < least
    return _Population(true_mean, min(most, max(least, variance)), absent, drowned)


def _deconvolution(target: Target, cells: Floats, present: float, steps: int) -> tuple[float, float] | None:
    """Estimate the population by maximum likelihood, and the error of the posterior mean under it.

    Steps of expectation and maximization from the uniform distribution, on a grid that is made of what was
    declared. Returns None where the noise is too fine for the grid.
    """
    channel = target.channel
    if channel is None:
        return None
    lower, upper = target.column.range
    sd, clamped = 0.0, False
    if isinstance(channel, AdditiveChannel):
        sd, clamped = math.sqrt(channel.law.variance), channel.law.clamped
        if sd < 3 * (upper - lower + (0 if clamped else 8 * sd)) / _BINS:
            return None
    reach = 0.0 if clamped else 4 * sd
    edges = np.linspace(lower - reach, upper + reach, _BINS + 1)
    middles = (edges[:-1] + edges[1:]) / 2
    place = np.clip(np.searchsorted(edges, cells, side="right") - 1, 0, _BINS - 1)
    if clamped:
        # Everything that was moved to an end lies exactly there.
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
    mass = joint.sum(axis=1)
    possible = mass > 0
    joint, mass = joint[possible] / mass[possible, None], mass[possible]
    mean = joint @ points
    square = (joint @ points**2) - mean**2
    there = counts[possible] * mass / (mass + elsewhere[possible] / (1 - absent))
    error = math.sqrt(max(0.0, float(there @ square) / float(there.sum())))
    middle = float(weights @ points)
    return error, math.sqrt(max(0.0, float(weights @ (points - middle) ** 2)))


def _grid(target: Target) -> Floats:
    """Return the values that a cell may stand for, at most 128 of them."""
    lower, upper = target.column.range
    if target.column.type != "number" and target.column.n_integers <= _POINTS:
        return np.arange(lower, upper + 1)
    return np.linspace(lower, upper, _POINTS)


def _likelihoods(logs: Floats) -> Floats:
    """Return the law up to a factor for each published cell, which no posterior depends on."""
    top = logs.max(axis=1, keepdims=True)
    return np.exp(logs - np.where(np.isfinite(top), top, 0.0))
