"""Attacks on made-up people who have several rows of a table, stated for a table of any size.

The attacker knows all rows of a person and scores a published row y by ``L = log g(y) - log f(y)``, with g
the mean of the laws of the person's rows and f the law of a stranger's. As for single rows
(:mod:`discreet.audit._row_risk`), rows of the person show how often strangers reach a score.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._mixture import log_sum_exp
from discreet.audit._row_risk import DRAWS, binomial_chance, binomial_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._row_risk import RowScores

MOST_DIFFERENT = 8
"""Largest number of rows of a person that are attacked together where they differ."""
MOST_ALIKE = 64
"""Largest number of rows of a person that are attacked together where they are all the same."""
_NODES = 16
"""Points of the quadrature over the place of a row among equal ones."""
_AT_ONCE = 1 << 15
"""Number of chances of rows at points of the quadrature that are computed together."""
_NEGLIGIBLE = -37.0
"""Log probability that no stranger scores more, below which a score is left out of a chance."""
_THRESHOLDS = 32
"""Number of scores that are tried as thresholds for membership."""


@dataclass(frozen=True, eq=False)
class UnitScores:
    """Published rows of made-up people with several rows each, and the likelihoods of their cells.

    Attributes
    ----------
    given_cell : list of array of shape (different, people, draws)
        Log likelihood of each published cell given the true one in each of the person's different rows.
    given_factor : list of array of shape (nodes, people, draws)
        The same given only a hidden factor.
    copies : int
        Number of rows of the person for each of the different ones.
    n_rows : int
        Number of rows of the table.
    """

    given_cell: list[Floats]
    given_factor: list[Floats]
    copies: int
    n_rows: int
    _last: dict[tuple[int, ...], _Levels] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def from_scores(cls, scores: RowScores, different: int, copies: int) -> UnitScores:
        """Return people of whom each has some of the rows that were drawn.

        Parameters
        ----------
        scores : RowScores
            Rows that were drawn, each of another person.
        different : int
            Number of rows that are put together to one person.
        copies : int
            Number of times that each of them is in the table.
        """
        people = len(scores.place) // different
        rows = people * different
        shape = (people, different * DRAWS)
        cells = []
        columns = zip(scores.columns, scores.published, scores.truth, scores.given_cell, strict=True)
        for column, shown, truth, given_own in columns:
            draws, own = (one[:rows].reshape(people, different, DRAWS) for one in (shown, given_own))
            values = truth[:rows].reshape(people, different, 1)
            logs = np.empty((different, people, different, DRAWS))
            for i, j in itertools.product(range(different), repeat=2):
                logs[i, :, j] = own[:, i] if i == j else column.log_likelihood(draws[:, j], values[:, i])
            cells.append(logs.reshape(different, *shape))
        factors = [one[:, :rows].reshape(-1, *shape) for one in scores.given_factor]
        return cls(cells, factors, copies, scores.n_rows)

    @property
    def rows_each(self) -> int:
        """Number of rows that each person has."""
        return len(self.given_cell[0]) * self.copies

    def _levels(self, known: Sequence[int]) -> _Levels:
        """Return the chances to reach the score of every drawn row for its own person, by some columns."""
        key = tuple(known)
        if key not in self._last:
            cells, factors = np.zeros_like(self.given_cell[0]), np.zeros_like(self.given_factor[0])
            for j in known:
                cells += self.given_cell[j]
                factors += self.given_factor[j]
            shares = np.log([len(cells), len(factors)])
            scores = log_sum_exp(cells, axis=0) - shares[0] - log_sum_exp(factors, axis=0) + shares[1]
            # Linkage and membership are attacked by the same columns, one after the other.
            self._last.clear()
            self._last[key] = _Levels.from_scores(scores, len(cells))
        return self._last[key]

    def link(self, known: Sequence[int]) -> Floats:
        """Return the chance that the likeliest row of the table is one of the person's, for each person.

        Notes
        -----
        At each score let p be the chance that a stranger's row has more and p' at least as much, and q and
        q' the same for each row of the person. Of k rows of the person and s of strangers that have the
        highest score, one is taken at random, and ``k / (k + s)`` is the integral of ``k u**(k + s - 1)``. So
        the chance that the row taken has this score and is the person's is the integral over u from 0 to 1 of

        ``d/du prod_i (1 - q'_i + (q'_i - q_i) u) * (1 - p' + (p' - p) u)**(n - m)``

        with m the rows of the person, of which i goes over all.
        """
        every = self._levels(known)
        others = max(self.n_rows - self.rows_each, 0)
        # Below most scores there is always a stranger's row that scores more.
        counts = np.flatnonzero(others * np.log1p(-every.above) > _NEGLIGIBLE)
        chances = np.zeros(every.above.shape)
        # Mostly one of the person's rows alone has a score, and then the product has one factor that varies.
        single = (self.copies == 1) & ((every.own(counts)[1] > 0).sum(axis=0) == 1)
        for places, n_factors in ((counts[single], 1), (counts[~single], len(every.reached))):
            at_once = max(1, _AT_ONCE // (_NODES * n_factors))
            for start in range(0, len(places), at_once):
                part = places[start : start + at_once]
                chances.ravel()[part] = self._integrate(every, part, others, n_factors == 1)
        chances *= every.weight
        return np.asarray(np.minimum(chances.sum(axis=1), 1.0))

    def _integrate(self, levels: _Levels, part: Ints, others: int, single: bool) -> Floats:
        """Return the integrals of :meth:`link` at some scores.

        Parameters
        ----------
        levels : _Levels
            Chances to reach all scores.
        part : array of int
            Places of the scores among those of all people one after another.
        others : int
            Number of rows of strangers.
        single : bool
            Whether each of the scores is that of one of the person's rows alone.
        """
        above, at_least = levels.above.ravel()[part], levels.at_least.ravel()[part]
        own, own_ties = levels.own(part)
        # Where no stranger has the same score, the substitution below would divide by zero.
        rate = np.maximum(others * (np.log1p(-above) - np.log1p(-at_least)), 1e-12)
        falling = np.expm1(-rate)
        nodes, weights = _quadrature()
        # Substituted so that the points lie where many strangers with the same score leave mass:
        # u = 1 - v, and exp(rate v) is one divided by this.
        rising = 1 + nodes[:, None] * falling
        u = 1 - np.minimum(-np.log(rising) / rate, 1.0)
        strangers = np.exp(others * np.log1p(-at_least + (at_least - above) * u))
        strangers /= rising
        if single and self.copies == 1:
            # One factor of the product grows with u, in proportion, so that its slope does not depend on u.
            slope = own_ties.sum(axis=0) * np.where(own_ties > 0, 1.0, 1 - own).prod(axis=0)
            return np.asarray(-falling / rate * slope * (weights @ strangers))
        inside = (1 - own)[:, None] + own_ties[:, None] * u
        none = np.maximum(inside, 0.0).prod(axis=0) ** self.copies
        slopes = self.copies * (own_ties[:, None] / np.maximum(inside, 1e-300)).sum(axis=0)
        return np.asarray(-falling / rate * (weights @ (slopes * none * strangers)))

    def recognize(self, known: Sequence[int]) -> Floats:
        """Return the chance to say correctly whether each person is in the table, being so for half of them.

        Notes
        -----
        The attacker counts the rows that score at least t. The person adds K of them, strangers in the same
        places would add K0, binomial with p. With B the count of the other n - m rows, the decision by the
        best count c is right with probability ``(1 + sum_j (P(K >= j) - P(K0 >= j)) P(B = c - j)) / 2``; t
        and c are the best ones.
        """
        levels = self._levels(known)
        # Neighboring thresholds differ by a single draw: the best of some is as good as the best of all.
        every = max(1, levels.above.shape[1] // _THRESHOLDS)
        own, p = levels.own(np.s_[:, ::every])[0], levels.at_least[:, ::every]
        m, others = self.rows_each, max(self.n_rows - self.rows_each, 0)
        fewer = np.arange(m, dtype=np.float64)  # j - 1
        gain = _at_least(own, self.copies) - binomial_tail(fewer, m, p[..., None])
        mode = np.floor((others + 1) * p)
        best = np.zeros(p.shape)
        pmf = binomial_chance(mode[..., None] + np.arange(-m, m + 1), others, p[..., None])
        for shift in range(m + 1):
            # c = mode + shift, so that B = c - j goes from shift - m to shift - 1 around the mode.
            best = np.maximum(best, np.einsum("ptj,ptj->pt", gain, pmf[..., shift : shift + m][..., ::-1]))
        return np.asarray((1 + best.max(axis=1)) / 2)


@dataclass(frozen=True, eq=False)
class _Levels:
    """Chances to reach each score of each person's rows, by falling scores.

    Attributes
    ----------
    above, at_least : array of shape (people, draws)
        Chance that a stranger's row scores more, and at least as much.
    weight : array of shape (people, draws)
        One divided by the number of draws that have the same score.
    reached : array of int, shape (different, people (draws + 1))
        Number of the draws of each of the person's rows that are among the first 0, 1, ... of all.
    first, last : array of int, shape (people, draws)
        Places there before and after the draws that have the same score.
    """

    above: Floats
    at_least: Floats
    weight: Floats
    reached: Ints
    first: Ints
    last: Ints

    @classmethod
    def from_scores(cls, scores: Floats, different: int) -> _Levels:
        """Return the chances from the scores of some draws of each of a person's rows, row by row."""
        people, draws = scores.shape
        # In which order equal scores stand makes no difference.
        order = np.argsort(-scores, axis=1)
        ordered = np.take_along_axis(scores, order, axis=1)
        total = np.zeros((people, draws + 1))
        np.cumsum(np.exp(-ordered), axis=1, out=total[:, 1:])
        total = np.minimum(total / draws, 1 - 1e-12)
        reached = np.zeros((different, people, draws + 1), np.int32)
        row = order // (draws // different)
        np.cumsum(row == np.arange(different)[:, None, None], axis=2, out=reached[:, :, 1:])
        # Scores of lists repeat, up to rounding errors of their sums.
        starts = np.ones(ordered.shape, bool)
        starts[:, 1:] = ordered[:, :-1] - ordered[:, 1:] > 1e-9
        index = np.arange(draws)
        first = np.maximum.accumulate(np.where(starts, index, 0), axis=1)
        ends = np.ones(ordered.shape, bool)
        ends[:, :-1] = starts[:, 1:]
        last = 1 + np.minimum.accumulate(np.where(ends, index, draws)[:, ::-1], axis=1)[:, ::-1]
        weight = 1 / (last - first)
        # Gathered by rows of all people together, which is faster than along an axis.
        person = np.arange(people)[:, None] * (draws + 1)
        first, last = first + person, last + person
        above, at_least = total.ravel().take(first), total.ravel().take(last)
        return cls(above, at_least, weight, reached.reshape(different, -1), first, last)

    def own(self, scores: AnyArray | tuple[slice, ...]) -> tuple[Floats, Floats]:
        """Return the chances that each of the person's rows scores at least, and exactly, as much.

        Parameters
        ----------
        scores : array of int, or tuple of slice
            Places of some scores among those of all people one after another, or a part of the array.

        Returns
        -------
        own, own_ties : array of shape (different, scores)
            Of the draws of each row, which together are all of its probability.
        """
        first, last = (
            one[scores] if isinstance(scores, tuple) else one.ravel()[scores]
            for one in (self.first, self.last)
        )
        own = self.reached.take(last, axis=1)
        return own / DRAWS, (own - self.reached.take(first, axis=1)) / DRAWS


@cache
def _quadrature() -> tuple[Floats, Floats]:
    """Return points and weights of the Gauss-Legendre rule on the interval from 0 to 1."""
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return (nodes + 1) / 2, weights / 2


def _at_least(own: Floats, copies: int) -> Floats:
    """Return the chances that at least 1, 2, ... of a person's rows reach a score, along a new last axis.

    Parameters
    ----------
    own : array of shape (different, people, scores)
        Chance of each of the different rows.
    copies : int
        Number of rows for each of the different ones; above 1 only where there is one.
    """
    if len(own) == 1:
        return binomial_tail(np.arange(copies, dtype=np.float64), copies, own[0][..., None])
    assert copies == 1
    counts = np.zeros((len(own) + 1, *own.shape[1:]))
    counts[0] = 1.0
    # The Poisson binomial law, one row after another.
    for q in own:
        counts[1:] = counts[1:] * (1 - q) + counts[:-1] * q
        counts[0] *= 1 - q
    return np.moveaxis(np.cumsum(counts[::-1], axis=0)[::-1][1:], 0, -1)
