"""The best linear guess across all published columns, computed from the file and the laws alone.

Published columns vary as the true ones do, plus what the noise adds; the law says how much that is.
Subtracting it leaves how the true columns go together, and then everybody can predict one from the others.

Bayes' rule on one column: the best guess of somebody who knows the population and the published law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit.channel import ResponseChannel, Target, noise_covariance
from discreet.noise_law import JointResponseLaw, SampledLaw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from discreet._types import AnyArray, Bools, Floats, Ints
    from discreet.audit.channel import Channel
    from discreet.release import ReleasePlan
    from discreet.schema import Column

MOST_FEATURES = 512
"""Columns and levels that are looked at together; a wider table is attacked in pieces."""
_RIDGE = 1e-6
"""Keeps the equations solvable, so that everybody gets the same digits."""
_ROWS_PER_FEATURE = 10
_LEAST_TOLD = 1e-6
_LEAST_SHARE = 0.02
"""What a level is worth at least, of its share of the population: a linear guess may go below zero."""


@dataclass(frozen=True, eq=False)
class LinearGuess:
    """What somebody expects who predicts each column linearly from all.

    Attributes
    ----------
    errors : mapping of str to float
        For each number the root of its mean square error; for each list the chance of a wrong guess.
    columns : int
        How many published columns were looked at together.
    """

    errors: Mapping[str, float]
    columns: int


@dataclass(frozen=True, eq=False)
class _Piece:
    """The features of one published column, unbiased for the true ones, and the covariance of their noise."""

    target: Target
    features: Floats
    noise: Floats
    shares: Floats | None = None
    present: float = 1.0


def linear_guesses(
    plan: ReleasePlan,
    targets: Sequence[Target],
    columns: Mapping[str, AnyArray],
    shares: Mapping[str, Floats],
) -> list[LinearGuess]:
    """Predict every protected column from all columns, piece by piece where there are too many.

    Parameters
    ----------
    plan : Plan
        For the noise of columns that have some in common.
    targets : sequence of Target
        Every published column.
    columns : mapping of str to array
        The published cells.
    shares : mapping of str to array
        For each randomized list the share of every level in the population.
    """
    n = len(next(iter(columns.values())))
    most = min(MOST_FEATURES, n // _ROWS_PER_FEATURE)
    pieces = (p for t in targets if (p := _piece(t, columns[t.name], shares.get(t.name))) is not None)
    return [_solve(plan, group) for group in _groups(pieces, most) if len(group) > 1]


def _groups(pieces: Iterator[_Piece], most: int) -> Iterator[list[_Piece]]:
    group: list[_Piece] = []
    width = 0
    for piece in pieces:
        size = piece.features.shape[1]
        if group and width + size > most:
            yield group
            group, width = [], 0
        if size <= most:
            group.append(piece)
            width += size
    if group:
        yield group


def _piece(target: Target, cells: AnyArray, shares: Floats | None) -> _Piece | None:
    if isinstance(target.summary.law, SampledLaw | JointResponseLaw):
        return None  # whether and how it is changed goes together with other columns
    if target.is_list:
        levels = np.arange(len(target.column.levels) - 1)
        marked = (cells[:, None] == levels).astype(np.float64)
        if not isinstance(target.channel, ResponseChannel):
            return _Piece(target, marked, np.zeros((levels.size, levels.size)))
        keep, other = target.response.keep, target.response.other
        if shares is None or keep - other < _LEAST_TOLD:
            return None
        told = keep - other
        # The mean over the population of the covariance of a randomized answer, given the true one.
        answers = other + told * shares[:-1]
        twice = other**2 + other * told * (shares[:-1] + shares[:-1, None]) + np.diag(told**2 * shares[:-1])
        return _Piece(target, (marked - other) / told, (np.diag(answers) - twice) / told**2, shares)
    there = ~np.isnan(cells)
    if not there.any():
        return None
    present = float(there.mean())
    values = np.where(there, cells, cells[there].mean())
    variance = (target.noise_variance or 0.0) * present
    if present == 1.0:
        return _Piece(target, values[:, None], np.array([[variance]]))
    flagged = np.column_stack([values, there])
    return _Piece(target, flagged, np.diag([variance, 0.0]), present=present)


def _solve(plan: ReleasePlan, group: Sequence[_Piece]) -> LinearGuess:
    X = np.column_stack([piece.features for piece in group])
    starts = np.cumsum([0] + [piece.features.shape[1] for piece in group])
    noise = _noise_of(plan, group, starts)
    center, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread == 0] = 1.0
    X = (X - center) / spread
    V = noise / (spread * spread[:, None])
    # What the noise does not explain is how the true columns go together; rounded to what can be.
    values, vectors = np.linalg.eigh(X.T @ X / len(X) - V)
    S = (vectors * np.maximum(values, 0.0)) @ vectors.T
    C = S + V
    C[np.diag_indices_from(C)] += _RIDGE
    rest = np.diagonal(S) - np.einsum("ij,ji->i", S, np.linalg.solve(C, S))
    errors = {}
    for piece, start, end in zip(group, starts[:-1], starts[1:], strict=True):
        target = piece.target
        if piece.shares is not None:
            own = np.arange(start, end)
            errors[target.name] = _wrong_guess(piece, X, C, own, spread)
        elif target.noise_variance is not None:
            mean_square = max(0.0, float(rest[start])) * float(spread[start]) ** 2
            errors[target.name] = float(np.sqrt(mean_square / piece.present))
    return LinearGuess(errors, len(group))


def _noise_of(plan: ReleasePlan, group: Sequence[_Piece], starts: Ints) -> Floats:
    """Return the covariance of the noise of all features, most of it in blocks."""
    noise = np.zeros((int(starts[-1]), int(starts[-1])))
    for piece, start, end in zip(group, starts[:-1], starts[1:], strict=True):
        noise[start:end, start:end] = piece.noise
    numbers = [i for i, p in enumerate(group) if not p.target.is_list and not p.target.is_clear]
    shared = noise_covariance(plan, [group[i].target.name for i in numbers]) if numbers else None
    if shared is not None:
        places = starts[numbers]
        present = np.array([group[i].present for i in numbers])
        together = present * present[:, None]
        np.fill_diagonal(together, present)
        noise[np.ix_(places, places)] = shared * together
    return noise


def _wrong_guess(piece: _Piece, X: Floats, C: Floats, own: Ints, spread: Floats) -> float:
    """Return how often a guess by the published answer and all other columns is expected to be wrong."""
    assert piece.shares is not None
    others = np.setdiff1d(np.arange(X.shape[1]), own)
    weights = np.linalg.solve(C[np.ix_(others, others)], C[np.ix_(others, own)])
    likely = np.empty((len(X), piece.shares.size))
    likely[:, :-1] = piece.shares[:-1] + (X[:, others] @ weights) * spread[own]
    likely[:, -1] = 1 - likely[:, :-1].sum(axis=1)
    np.maximum(likely, _LEAST_SHARE * piece.shares, out=likely)
    likely /= likely.sum(axis=1, keepdims=True)
    # Marks of the answers, undone from the unbiased features.
    channel = piece.target.response
    marked = piece.features * (channel.keep - channel.other) + channel.other > 0.5
    answer = np.where(marked.any(axis=1), np.argmax(marked, axis=1), piece.shares.size - 1)
    joint = likely * channel.other
    rows = np.arange(len(X))
    joint[rows, answer] = likely[rows, answer] * channel.keep
    return float(1 - (joint.max(axis=1) / joint.sum(axis=1)).mean())


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
