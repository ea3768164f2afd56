"""Bayes' rule on one column: the best guess of somebody who knows the population and the published law."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import Bools, Floats, Ints
    from discreet.audit.channel import Channel
    from discreet.schema import Column

_BLOCK = 256
_MOST_POINTS = 1 << 22


@dataclass(frozen=True, eq=False)
class Candidates:
    """The values that a cell may stand for, in rising order, with what each is worth beforehand."""

    points: Floats
    weights: Floats

    @property
    def mean(self) -> float:
        """The best guess without the release."""
        return float(self.points @ self.weights)

    @property
    def sd(self) -> float:
        """The error of that guess."""
        return math.sqrt(float(self.weights @ np.square(self.points - self.mean)))


def uniform_candidates(column: Column, fineness: float) -> Candidates:
    """Return the floor's prior: everything that was declared, equally likely.

    Values closer than the law can tell apart are taken together, at their middle.
    """
    lower, upper = column.range
    fineness = max(fineness, (upper - lower) / _MOST_POINTS)
    if column.type == "number":
        n = min(_MOST_POINTS, max(64, math.ceil((upper - lower) / min(fineness, upper - lower))))
        edges = np.linspace(lower, upper, n + 1)
        return Candidates((edges[:-1] + edges[1:]) / 2, np.full(n, 1 / n))
    together = max(1, int(min(fineness, column.n_integers)))
    starts = np.arange(0, column.n_integers, together)
    sizes = np.diff(np.append(starts, column.n_integers))
    return Candidates(lower + starts + (sizes - 1) / 2, sizes / column.n_integers)


def observed_candidates(values: Floats, fineness: float) -> Candidates:
    """Return the population as somebody knows it who has these values, finer than the law can tell."""
    points, counts = np.unique(values, return_counts=True)
    if points.size > 1024:
        step = max(fineness, float(np.ptp(points)) / 2048)
        group = np.round((points - points[0]) / step).astype(np.int64)
        _, place = np.unique(group, return_inverse=True)
        sums, counts = np.bincount(place, points * counts), np.bincount(place, counts)
        points = sums / counts
    return Candidates(points, counts / counts.sum())


def posterior_means(channel: Channel, published: Floats, candidates: Candidates) -> tuple[Floats, Floats]:
    """Return for each person the posterior mean, and the logarithm of how likely the published cells were.

    Parameters
    ----------
    channel : Channel
        The published law.
    published : array of shape (n, m)
        The cells of each person's rows; NaN says nothing.
    candidates : Candidates
        Values and their prior weights.
    """
    n = len(published)
    guess, evidence = np.full(n, candidates.mean), np.zeros(n)
    seen = ~np.isnan(published).all(axis=1)
    order = np.flatnonzero(seen)[np.argsort(np.nanmean(published[seen], axis=1), kind="stable")]
    x = candidates.points
    with np.errstate(divide="ignore"):
        log_weights = np.log(candidates.weights)
    for start in range(0, order.size, _BLOCK):
        people = order[start : start + _BLOCK]
        cells = published[people]
        # Sorted people are near one another, so that only a window of the values matters.
        first = min(int(np.searchsorted(x, np.nanmin(cells) - channel.reach, side="left")), x.size - 1)
        last = max(int(np.searchsorted(x, np.nanmax(cells) + channel.reach, side="right")), first + 1)
        near = x[first:last]
        joint = np.tile(log_weights[first:last], (people.size, 1))
        for column in cells.T:
            there = ~np.isnan(column)
            joint[there] += channel.log_likelihood(column[there, None], near)
        top = joint.max(axis=1, keepdims=True)
        possible = np.isfinite(top[:, 0])
        weight = np.exp(joint - np.where(np.isfinite(top), top, 0.0))
        total = weight.sum(axis=1)
        evidence[people] = np.where(possible, top[:, 0] + np.log(np.where(possible, total, 1.0)), -np.inf)
        # Where the law rules everything out, the nearest value is as good a guess as any.
        nearest = np.clip(np.nanmean(cells, axis=1), x[0], x[-1])
        guess[people] = np.where(possible, (weight @ near) / np.where(possible, total, 1.0), nearest)
    return guess, evidence


def likeliest_levels(channel: Channel, published: Ints, shares: Floats) -> Ints:
    """Return for each person the level with the highest posterior, from the codes of all their rows."""
    codes = np.arange(shares.size)
    with np.errstate(divide="ignore"):
        joint = np.tile(np.log(shares), (len(published), 1))
    for column in published.T:
        joint += channel.log_likelihood(column[:, None], codes)
    return np.asarray(np.argmax(joint, axis=1))


def missing_guesses(evidence: Floats, middle: Floats, published: Floats, missing_keep: float) -> Bools:
    """Guess whether each person's number is missing, both being equally likely beforehand.

    Parameters
    ----------
    evidence : array of shape (n,)
        Log likelihood of the published numbers if there is a value.
    middle : array of shape (n,)
        The same if there is none, and the middle of the range was noised in its place.
    published : array of shape (n, m)
        NaN where a row says "missing".
    missing_keep : float
        How often a row says so rightly.
    """
    says = np.isnan(published).sum(axis=1)
    keep = min(missing_keep, 1 - 2.0**-50)
    votes = (2 * says - published.shape[1]) * (math.log(keep) - math.log1p(-keep))
    return np.asarray(votes + middle - evidence > 0)
