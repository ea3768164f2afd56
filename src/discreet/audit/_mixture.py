"""The law of a published cell of somebody unknown: that of a made-up person's cell, mixed over people."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit.channel import AdditiveChannel, ClearChannel, cell_log_likelihood

if TYPE_CHECKING:
    from discreet._types import AnyArray, Floats
    from discreet.audit.channel import Channel
    from discreet.audit.targets import Target

_BINS = 64
_POINTS = 2048
"""Published numbers at which a density is computed; between them its logarithm is interpolated."""
_SHORT = 16
"""Longest axis over which logarithms are added slice by slice."""
_LEAST = 1e-300
_UNIQUE = 1e6
"""Values of a number that is published as it is and is no integer."""


def log_sum_exp(logs: Floats, axis: int, *, keepdims: bool = False) -> Floats:
    """Return the logarithm of the sum of ``exp(logs)`` along an axis, -inf where all of them are.

    Parameters
    ----------
    logs : array
        Logarithms, finite or -inf.
    axis : int
        Axis that is summed over.
    keepdims : bool
        Whether the axis stays, with length 1.
    """
    if logs.shape[axis] == 1:
        return logs if keepdims else logs.squeeze(axis)
    # scipy's logsumexp also takes signs, weights and complex numbers: five times slower on these arrays.
    if logs.shape[axis] <= _SHORT:
        return _add_slices(np.ascontiguousarray(np.moveaxis(logs, axis, 0)), axis, keepdims=keepdims)
    top = logs.max(axis=axis, keepdims=True)
    top[np.isneginf(top)] = 0.0
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(logs - top).sum(axis=axis, keepdims=True)) + top
    return np.asarray(total if keepdims else total.squeeze(axis))


def _add_slices(slices: Floats, axis: int, *, keepdims: bool) -> Floats:
    """Return :func:`log_sum_exp` over a short axis, slice by slice: reductions over it are slow."""
    top = slices[0].copy()
    for one in slices[1:]:
        np.maximum(top, one, out=top)
    top[np.isneginf(top)] = 0.0
    total = np.zeros_like(top)
    for one in slices:
        total += np.exp(one - top)
    with np.errstate(divide="ignore"):
        total = np.log(total, out=total) + top
    return np.expand_dims(total, axis) if keepdims else total


def _interpolate(places: Floats, lowest: float, highest: float, table: Floats) -> Floats:
    """Return rows of a table over equally spaced points, interpolated at places between the ends.

    One look-up serves all rows of the table; ``np.interp`` would search once for each of them.
    """
    last = table.shape[1] - 1
    at = (places - lowest) * (last / (highest - lowest) if highest > lowest else 0.0)
    # The last point has no step to its right.
    left = np.minimum(at.astype(np.int64), last - 1)
    at -= left
    found = _take_columns(np.diff(table, axis=1), left)
    found *= at
    found += _take_columns(table, left)
    return found


def _take_columns(table: Floats, places: AnyArray) -> Floats:
    """Return ``table.take(places, axis=1)``, row by row: four times as fast, as rows stay in the cache."""
    taken = np.empty((len(table), *places.shape))
    for row, out in zip(table, taken, strict=True):
        row.take(places, out=out, mode="clip")
    return taken


@dataclass(frozen=True, eq=False)
class Mixture:
    """Law of a published cell of a random person, given the person's hidden factor.

    Attributes
    ----------
    target : Target
        Published column with its channel.
    values : array of shape (cells,)
        True cells of a grid over the declared range or list, encoded as they are published.
    weights : array of shape (cells, nodes)
        Probability of each of them given the factor.
    """

    target: Target
    values: AnyArray
    weights: Floats

    @property
    def channel(self) -> Channel:
        """Likelihood of published cells."""
        assert self.target.channel is not None
        return self.target.channel

    def states(self) -> tuple[AnyArray, Floats]:
        """Return at most 64 true values that stand for all, NaN for a missing one, and their probabilities.

        Values of a list and few integers are complete; of other numbers they are the middles of parts.
        """
        return self._states

    @cached_property
    def _states(self) -> tuple[AnyArray, Floats]:
        """The states, computed once: every guess asks for those of all columns."""
        there = ~np.isnan(self.values) if self.target.column.is_number else np.ones(len(self.values), bool)
        values, place = np.unique(self.values[there], return_inverse=True)
        if not self.target.is_list and len(values) > _BINS:
            held = self.values[there]
            # Parts with equal numbers of grid cells, up to one; the mean of each stands for it.
            sizes = np.full(_BINS, len(held) // _BINS)
            sizes[: len(held) % _BINS] += 1
            values = np.add.reduceat(held, np.cumsum(sizes) - sizes) / sizes
            place = np.repeat(np.arange(_BINS), sizes)
        weights = np.zeros((len(values), self.weights.shape[1]))
        np.add.at(weights, place, self.weights[there])
        if there.all() or not self.weights[~there].any():
            return values, weights
        return np.append(values, np.nan), np.concatenate([weights, self.weights[~there].sum(axis=0)[None]])

    def log_density(self, published: AnyArray) -> Floats:
        """Return the log likelihood of published cells given each factor, of shape (nodes, cells)."""
        if self.target.is_list:
            return _take_columns(self._log_shares(), published)
        if isinstance(self.channel, ClearChannel):
            return self._log_clear(published)
        present = published[~np.isnan(published)]
        lowest, highest = (present.min(), present.max()) if len(present) else (0.0, 0.0)
        # The density is smooth in y: its logarithm at equally spaced points is interpolated.
        points = np.linspace(lowest, highest, _POINTS)
        values, weights = self.states()
        there = ~np.isnan(values)
        # Given that the cell is not missing; the flags are added at the end.
        weights = weights[there] / weights[there].sum(axis=0)
        # Not by BLAS, whose sums depend on the processor: scores that are equal but for rounding are ranked.
        table = np.einsum("pv,vz->zp", self._given_numbers(points, values[there]), weights)
        place = np.nan_to_num(published, nan=lowest)
        logs = np.log(np.maximum(table, _LEAST))
        density = _interpolate(place, lowest, highest, logs)
        # A cell clamped to an end of its range has a mass there, not a density.
        if isinstance(self.channel, AdditiveChannel) and self.channel.law.clamped:
            for end in self.channel.bounds:
                density[:, place == end] = np.log(np.maximum(self._end_masses(end), _LEAST))[:, None]
        return self._add_flags(published, density)

    def sum_given_states(self, published: AnyArray, weights: Floats) -> Floats:
        """Return weighted sums over published cells of their likelihood given each of the states.

        Parameters
        ----------
        published : array of shape (groups, cells)
            Published cells, with NaN for one that is shown as missing.
        weights : array of shape (groups, sums, cells)
            Weights of the cells of its group in each sum.

        Returns
        -------
        array of shape (groups, sums, states)
            The likelihoods of the states, each times its weight and added up.
        """
        values, _ = self.states()
        if self.target.is_list:
            return np.asarray(weights @ self._given_codes.take(published, axis=0))
        hidden = np.isnan(published)
        there = ~np.isnan(values)
        filled = np.where(hidden, self.target.column.fill, published)
        keep = self.target.missing_keep
        # A hidden cell shows its flag alone.
        shown = weights if keep is None else np.where(hidden[:, None], 0.0, weights)
        sums = shown @ self._given_numbers(filled, values[there])
        if not there.all():
            # A missing cell whose flag is changed shows the fill value with noise.
            middle = np.exp(self.channel.log_likelihood(filled, np.full(1, self.target.column.fill)))
            sums = np.concatenate([sums, shown @ middle[:, :, None]], axis=2)
        if keep is None:
            return np.asarray(sums)
        not_shown = np.where(hidden[:, None], weights, 0.0).sum(axis=2, keepdims=True)
        return np.asarray(
            np.where(there, keep, 1 - keep) * sums + np.where(there, 1 - keep, keep) * not_shown
        )

    @cached_property
    def _given_codes(self) -> Floats:
        """Probability of each published code of a list given each state, of shape (codes, states)."""
        codes = np.arange(len(self.target.column.levels))
        return np.asarray(np.exp(self.channel.log_likelihood(codes[:, None], self.states()[0])))

    def _log_shares(self) -> Floats:
        """Return the log probability of each published code of a list, of shape (nodes, codes)."""
        chances = np.einsum("cv,vz->zc", self._given_codes, self.states()[1])
        return np.asarray(np.log(np.maximum(chances, _LEAST)))

    def _log_clear(self, published: AnyArray) -> Floats:
        """Return the log probability of numbers that are published as they are."""
        column = self.target.column
        missing = self.weights[-1] if not column.required else np.zeros(self.weights.shape[1])
        cells = len(self.values) - 1
        lower, width = column.range[0], max(column.width, 1e-300)
        place = np.floor((np.nan_to_num(published, nan=lower) - lower) / width * cells)
        shares = _take_columns(self.weights.T, np.clip(place, 0, cells - 1).astype(np.int64))
        # The probability of a grid cell is shared by the values inside it, of which one is published.
        each = (_UNIQUE if column.type == "number" else column.n_integers) / cells
        shares = np.where(np.isnan(published), missing[:, None], shares / max(each, 1.0))
        return np.asarray(np.log(np.maximum(shares, _LEAST)))

    def _given_numbers(self, published: Floats, values: Floats) -> Floats:
        """Return the density of published numbers given each true value, along a new last axis."""
        column, channel = self.target.column, self.channel
        if isinstance(channel, AdditiveChannel) and len(values) >= _BINS:
            lower, upper = column.range if column.type == "number" else np.add(column.range, (-0.5, 0.5))
            step = (upper - lower) / _BINS
            if math.sqrt(channel.law.variance) < 2 * step:
                # Noise that is finer than the parts: its mean over each of them, from the distribution.
                edges = lower + step * np.arange(_BINS + 1)
                mean = -np.diff(channel.cumulative(published[..., None] - edges), axis=-1) / step
                return np.asarray(np.maximum(mean, _LEAST))
        logs = channel.log_likelihood(published[..., None], values)
        return np.asarray(np.exp(logs, out=logs))

    def _end_masses(self, end: float) -> Floats:
        """Return the probability of a number that is clamped to an end of its range, given each factor."""
        there = ~np.isnan(self.values)
        chances = np.exp(self.channel.log_likelihood(np.full(1, end), self.values[there]))
        weights = self.weights[there]
        return np.asarray(np.einsum("v,vz->z", chances, weights) / weights.sum(axis=0))

    def _add_flags(self, published: AnyArray, density: Floats) -> Floats:
        """Return log densities of numbers that may be missing, from those of numbers that are not."""
        keep = self.target.missing_keep
        if keep is None:
            return density
        missing = self.weights[np.isnan(self.values)].sum(axis=0)
        column, hidden = self.target.column, np.isnan(published)
        filled = np.where(hidden, column.fill, published)
        middle = np.exp(self.channel.log_likelihood(filled, np.full(1, column.fill)))
        shown = np.exp(density, out=density)
        shown *= ((1 - missing) * keep)[:, None]
        shown += (missing * (1 - keep))[:, None] * middle
        shown[:, hidden] = ((1 - missing) * (1 - keep) + missing * keep)[:, None]
        return np.asarray(np.log(np.maximum(shown, _LEAST, out=shown), out=shown))

    def log_likelihood(self, published: AnyArray, values: AnyArray) -> Floats:
        """Return the log likelihood of published cells given true ones, broadcast against each other."""
        return cell_log_likelihood(
            self.channel, self.target.column, self.target.missing_keep, published, values
        )
