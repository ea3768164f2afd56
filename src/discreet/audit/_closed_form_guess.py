"""Guesses at true cells in closed form: the linear guess across columns, and Bayes' rule on one column.

The covariance of published columns is that of the true ones plus that of the noise, which the law states.
Subtracting it gives the covariance of the true columns, from which each column is predicted by the others.
Bayes' rule needs the distribution of one column in the population and its published law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit.channel import ResponseChannel
from discreet.audit.targets import Target, noise_covariance
from discreet.noise_law import JointResponseLaw, SampledLaw

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from discreet._types import AnyArray, Bools, Floats, Ints
    from discreet.audit.channel import Channel
    from discreet.release import ReleasePlan
    from discreet.schema import Column

MOST_FEATURES = 512
"""Largest number of features that are used together; a wider table is attacked in groups of columns."""
_RIDGE = 1e-6
"""Added to the diagonal, so that the equations are well conditioned and give the same digits everywhere."""
_ROWS_PER_FEATURE = 10
_LEAST_GAP = 1e-6
"""Least difference of keep and other at which a randomized list is inverted."""
_LEAST_SHARE = 0.02
"""Least weight of a level, relative to its share of the population: a linear guess may be negative."""
_BLOCK = 256
_MOST_POINTS = 1 << 22


@dataclass(frozen=True, eq=False)
class LinearGuess:
    """Expected errors of the linear guess at each column from a group of columns.

    Attributes
    ----------
    errors : mapping of str to float
        For each number its root-mean-square error; for each list the probability of a wrong guess.
    columns : int
        Number of published columns in the group.
    """

    errors: Mapping[str, float]
    columns: int


@dataclass(frozen=True, eq=False)
class _ColumnFeatures:
    """The features of one published column, unbiased for the true ones, and the covariance of their noise.

    Attributes
    ----------
    target : Target
        Published column of the features.
    features : array of shape (n, p)
        The number and its present flag, or indicators of all levels of a list but the last.
    noise : array of shape (p, p)
        Covariance of the noise of the features, in the mean over the population.
    shares : array or None
        Share of each level in the population; None unless the column is a randomized list.
    present : float
        Share of the cells that are published as present.
    """

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
    """Return the expected errors of predicting every protected column from all columns, in groups.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, for the covariance of correlated noise.
    targets : sequence of Target
        All published columns, protected or not.
    columns : mapping of str to array
        Published cells of each column, encoded.
    shares : mapping of str to array
        For each randomized list the share of every level in the population.
    """
    n = len(next(iter(columns.values())))
    most = min(MOST_FEATURES, n // _ROWS_PER_FEATURE)
    pieces = (
        p for t in targets if (p := _column_features(t, columns[t.name], shares.get(t.name))) is not None
    )
    return [_linear_guess(plan, group) for group in _groups(pieces, most) if len(group) > 1]


def _groups(pieces: Iterator[_ColumnFeatures], most: int) -> Iterator[list[_ColumnFeatures]]:
    """Yield consecutive columns in groups of at most ``most`` features; a wider column is left out."""
    group: list[_ColumnFeatures] = []
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


def _column_features(target: Target, cells: AnyArray, shares: Floats | None) -> _ColumnFeatures | None:
    """Return the features of a column; None where they cannot be made unbiased.

    Notes
    -----
    A randomized list with ``g = keep - other``: the features ``(1[y = l] - other) / g`` have the indicators
    of the true level as their mean. With ``p`` the vector of shares and ``a = other + g p``, the covariance
    of the response given the true level is, in the mean over the population,
    ``diag(a) - other**2 - other g (p + p') - g**2 diag(p)``, divided by ``g**2``.
    """
    if isinstance(target.summary.law, SampledLaw | JointResponseLaw):
        return None  # its response depends on other columns too
    if target.is_list:
        levels = np.arange(len(target.column.levels) - 1)
        indicators = (cells[:, None] == levels).astype(np.float64)
        if not isinstance(target.channel, ResponseChannel):
            return _ColumnFeatures(target, indicators, np.zeros((levels.size, levels.size)))
        keep, other = target.response.keep, target.response.other
        if shares is None or keep - other < _LEAST_GAP:
            return None
        gap = keep - other
        published = other + gap * shares[:-1]
        squares = other**2 + other * gap * (shares[:-1] + shares[:-1, None]) + np.diag(gap**2 * shares[:-1])
        return _ColumnFeatures(
            target, (indicators - other) / gap, (np.diag(published) - squares) / gap**2, shares
        )
    is_present = ~np.isnan(cells)
    if not is_present.any():
        return None
    present = float(is_present.mean())
    # Filled with the mean, a missing cell adds no noise: the variance shrinks by the share of present cells.
    values = np.where(is_present, cells, cells[is_present].mean())
    variance = (target.noise_variance or 0.0) * present
    if present == 1.0:
        return _ColumnFeatures(target, values[:, None], np.array([[variance]]))
    flagged = np.column_stack([values, is_present])
    return _ColumnFeatures(target, flagged, np.diag([variance, 0.0]), present=present)


def _linear_guess(plan: ReleasePlan, group: Sequence[_ColumnFeatures]) -> LinearGuess:
    """Return the expected errors of the linear guess at each column of a group from all of it.

    Notes
    -----
    With ``V`` the covariance of the noise and ``S`` that of the true features, estimated by that of the
    published ones minus ``V``, the errors have the covariance ``S - S (S + V)^-1 S``.

    Reference
    ---------
    docs/explanation/theorems/fisher-cramer-rao.md
    """
    X = np.column_stack([piece.features for piece in group])
    starts = np.cumsum([0] + [piece.features.shape[1] for piece in group])
    noise = _group_noise(plan, group, starts)
    center, spread = X.mean(axis=0), X.std(axis=0)
    spread[spread == 0] = 1.0
    X = (X - center) / spread
    V = noise / (spread * spread[:, None])
    # The estimate may have negative eigenvalues, which no covariance has: they are set to 0.
    values, vectors = np.linalg.eigh(X.T @ X / len(X) - V)
    S = (vectors * np.maximum(values, 0.0)) @ vectors.T
    C = S + V
    C[np.diag_indices_from(C)] += _RIDGE
    # Only the diagonal of S - S C^-1 S is needed.
    rest = np.diagonal(S) - np.einsum("ij,ji->i", S, np.linalg.solve(C, S))
    errors = {}
    for piece, start, end in zip(group, starts[:-1], starts[1:], strict=True):
        target = piece.target
        if piece.shares is not None:
            own = np.arange(start, end)
            errors[target.name] = _wrong_guess(piece, X, C, own, spread)
        elif target.noise_variance is not None:
            mean_square = max(0.0, float(rest[start])) * float(spread[start]) ** 2
            # Missing cells were filled with the mean and have no error: it is that of the present ones.
            errors[target.name] = float(np.sqrt(mean_square / piece.present))
    return LinearGuess(errors, len(group))


def _group_noise(plan: ReleasePlan, group: Sequence[_ColumnFeatures], starts: Ints) -> Floats:
    """Return the covariance of the noise of all features of a group; ``starts`` are the columns' offsets."""
    noise = np.zeros((int(starts[-1]), int(starts[-1])))
    for piece, start, end in zip(group, starts[:-1], starts[1:], strict=True):
        noise[start:end, start:end] = piece.noise
    numbers = [i for i, p in enumerate(group) if not p.target.is_list and not p.target.is_clear]
    shared = noise_covariance(plan, [group[i].target.name for i in numbers]) if numbers else None
    if shared is not None:
        places = starts[numbers]
        # Missing cells carry no noise: two columns share it only in rows in which both are present.
        present = np.array([group[i].present for i in numbers])
        both = present * present[:, None]
        np.fill_diagonal(both, present)
        noise[np.ix_(places, places)] = shared * both
    return noise


def _wrong_guess(piece: _ColumnFeatures, X: Floats, C: Floats, own: Ints, spread: Floats) -> float:
    """Return the expected share of wrong guesses at a list, by its published level and the other columns.

    Parameters
    ----------
    piece : _ColumnFeatures
        Randomized list whose true levels are guessed.
    X : array of shape (n, p)
        Standardized features of all columns.
    C : array of shape (p, p)
        Their covariance with the ridge.
    own : array of int
        Indices of the list's own features.
    spread : array of shape (p,)
        Standard deviations by which the features were divided.

    Notes
    -----
    The other columns give each level a linear weight, which serves as the prior for Bayes' rule on the
    published level.
    """
    assert piece.shares is not None
    others = np.setdiff1d(np.arange(X.shape[1]), own)
    weights = np.linalg.solve(C[np.ix_(others, others)], C[np.ix_(others, own)])
    likely = np.empty((len(X), piece.shares.size))
    likely[:, :-1] = piece.shares[:-1] + (X[:, others] @ weights) * spread[own]
    # The last level has no feature of its own: the weights of all levels add up to 1.
    likely[:, -1] = 1 - likely[:, :-1].sum(axis=1)
    np.maximum(likely, _LEAST_SHARE * piece.shares, out=likely)
    likely /= likely.sum(axis=1, keepdims=True)
    # The published levels, recovered from the unbiased features.
    channel = piece.target.response
    indicators = piece.features * (channel.keep - channel.other) + channel.other > 0.5
    published = np.where(indicators.any(axis=1), np.argmax(indicators, axis=1), piece.shares.size - 1)
    joint = likely * channel.other
    rows = np.arange(len(X))
    joint[rows, published] = likely[rows, published] * channel.keep
    return float(1 - (joint.max(axis=1) / joint.sum(axis=1)).mean())


@dataclass(frozen=True, eq=False)
class Candidates:
    """A discrete prior of a cell: values in rising order with their probabilities."""

    points: Floats
    weights: Floats

    @property
    def mean(self) -> float:
        """Mean of the prior, the best guess without the release."""
        return float(self.points @ self.weights)

    @property
    def sd(self) -> float:
        """Standard deviation of the prior, the error of that guess."""
        return math.sqrt(float(self.weights @ np.square(self.points - self.mean)))


def uniform_candidates(column: Column, fineness: float) -> Candidates:
    """Return the floor's prior: uniform on the declared values.

    Values closer than ``fineness``, which the law cannot distinguish, are merged at their middle.
    """
    lower, upper = column.range
    fineness = max(fineness, (upper - lower) / _MOST_POINTS)
    if column.type == "number":
        n = min(_MOST_POINTS, max(64, math.ceil((upper - lower) / min(fineness, upper - lower))))
        edges = np.linspace(lower, upper, n + 1)
        return Candidates((edges[:-1] + edges[1:]) / 2, np.full(n, 1 / n))
    # Whole steps, so that every group of integers has its exact share.
    step = max(1, int(min(fineness, column.n_integers)))
    starts = np.arange(0, column.n_integers, step)
    sizes = np.diff(np.append(starts, column.n_integers))
    return Candidates(lower + starts + (sizes - 1) / 2, sizes / column.n_integers)


def observed_candidates(values: Floats, fineness: float) -> Candidates:
    """Return the empirical distribution of values; above 1024 distinct ones, close ones are merged."""
    points, counts = np.unique(values, return_counts=True)
    if points.size > 1024:
        # Merged values are replaced by their mean, which keeps the mean of the distribution.
        step = max(fineness, float(np.ptp(points)) / 2048)
        group = np.round((points - points[0]) / step).astype(np.int64)
        _, place = np.unique(group, return_inverse=True)
        sums, counts = np.bincount(place, points * counts), np.bincount(place, counts)
        points = sums / counts
    return Candidates(points, counts / counts.sum())


def posterior_means(channel: Channel, published: Floats, candidates: Candidates) -> tuple[Floats, Floats]:
    """Return for each person the posterior mean, and the log evidence of the published cells.

    Parameters
    ----------
    channel : Channel
        Likelihood of a published cell by the published law.
    published : array of shape (n, m)
        Published cells of each person's m rows; NaN is ignored.
    candidates : Candidates
        Possible values and their prior weights.

    Returns
    -------
    means, evidence : array of shape (n,)
        The prior mean and 0 for a person without any published number.

    Notes
    -----
    With weights ``w_k`` and values ``x_k``, ``L_k = w_k product over rows of f(y | x_k)``; the mean is
    ``sum x_k L_k / sum L_k`` and the evidence ``log sum L_k``, computed with the largest ``log L_k``
    subtracted.
    """
    n = len(published)
    guess, evidence = np.full(n, candidates.mean), np.zeros(n)
    observed = ~np.isnan(published).all(axis=1)
    order = np.flatnonzero(observed)[np.argsort(np.nanmean(published[observed], axis=1), kind="stable")]
    x = candidates.points
    with np.errstate(divide="ignore"):
        log_weights = np.log(candidates.weights)
    for start in range(0, order.size, _BLOCK):
        people = order[start : start + _BLOCK]
        cells = published[people]
        # People are sorted, so that only a window of the values is within reach of a block.
        first = min(int(np.searchsorted(x, np.nanmin(cells) - channel.reach, side="left")), x.size - 1)
        last = max(int(np.searchsorted(x, np.nanmax(cells) + channel.reach, side="right")), first + 1)
        near = x[first:last]
        joint = np.tile(log_weights[first:last], (people.size, 1))
        for column in cells.T:
            present = ~np.isnan(column)
            joint[present] += channel.log_likelihood(column[present, None], near)
        top = joint.max(axis=1, keepdims=True)
        possible = np.isfinite(top[:, 0])
        weight = np.exp(joint - np.where(np.isfinite(top), top, 0.0))
        total = weight.sum(axis=1)
        evidence[people] = np.where(possible, top[:, 0] + np.log(np.where(possible, total, 1.0)), -np.inf)
        # Where the law excludes every value, the nearest one is guessed.
        nearest = np.clip(np.nanmean(cells, axis=1), x[0], x[-1])
        guess[people] = np.where(possible, (weight @ near) / np.where(possible, total, 1.0), nearest)
    return guess, evidence


def likeliest_levels(channel: Channel, published: Ints, shares: Floats) -> Ints:
    """Return for each person the code with the highest posterior.

    Parameters
    ----------
    channel : Channel
        Likelihood of a published code by the published law.
    published : array of shape (n, m)
        Published codes of each person's m rows.
    shares : array of shape (levels,)
        Prior weights of the codes.
    """
    codes = np.arange(shares.size)
    with np.errstate(divide="ignore"):
        joint = np.tile(np.log(shares), (len(published), 1))
    for column in published.T:
        joint += channel.log_likelihood(column[:, None], codes)
    return np.asarray(np.argmax(joint, axis=1))


def missing_guesses(evidence: Floats, middle: Floats, published: Floats, missing_keep: float) -> Bools:
    """Return for each person whether the number is guessed to be missing, both being equally likely a priori.

    Parameters
    ----------
    evidence : array of shape (n,)
        Log likelihood of the published numbers if there is a value.
    middle : array of shape (n,)
        Their log likelihood if there is none, and the middle of the range was noised in its place.
    published : array of shape (n, m)
        Published numbers of each person's rows, NaN where a row is flagged as missing.
    missing_keep : float
        Probability that a flag is published unchanged.
    """
    flags = np.isnan(published).sum(axis=1)
    # A flag that is always right would make the logarithm infinite.
    keep = min(missing_keep, 1 - 2.0**-50)
    votes = (2 * flags - published.shape[1]) * (math.log(keep) - math.log1p(-keep))
    return np.asarray(votes + middle - evidence > 0)
