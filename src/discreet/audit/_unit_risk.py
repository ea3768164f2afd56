"""Attacks on made-up people who have several rows of a table, stated for a table of any size.

The attacker knows all rows of a person and scores a published row y by ``L = log g(y) - log f(y)``, with g
the mean of the laws of the person's rows and f the law of a stranger's. As for single rows
(:mod:`discreet.audit._row_risk`), rows of the person show how often strangers reach a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._mixture import log_sum_exp
from discreet.audit._row_risk import DRAWS, binomial_chance, binomial_tail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import Bools, Floats
    from discreet.audit._row_risk import RowScores

MOST_DIFFERENT = 8
"""Largest number of rows of a person that are attacked together where they differ."""
MOST_ALIKE = 64
"""Largest number of rows of a person that are attacked together where they are all the same."""
_NODES = 16
"""Points of the quadrature over the place of a row among equal ones."""
_NEGLIGIBLE = -50.0
"""Log probability that no stranger scores more, below which a score is left out of a chance."""
_THRESHOLDS = 32
"""Number of scores that are tried as thresholds for membership."""


@dataclass(frozen=True, eq=False)
class UnitScores:
    """Published rows of made-up people with several rows each, and the likelihoods of their cells.

    Attributes
    ----------
    given_cell : list of array of shape (people, draws, different)
        Log likelihood of each published cell given the true one in each of the person's different rows.
    given_factor : list of array of shape (people, draws, nodes)
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
        cells = [
            column.log_likelihood(shown[:rows].reshape(*shape, 1), truth[:rows].reshape(people, 1, different))
            for column, shown, truth in zip(scores.columns, scores.published, scores.truth, strict=True)
        ]
        factors = [one[:rows].reshape(*shape, -1) for one in scores.given_factor]
        return cls(cells, factors, copies, scores.n_rows)

    @property
    def rows_each(self) -> int:
        """Number of rows that each person has."""
        return int(self.given_cell[0].shape[2]) * self.copies

    def scores(self, known: Sequence[int]) -> Floats:
        """Return the score of every drawn row for its own person, by some columns; shape (people, draws)."""
        cells = sum((self.given_cell[j] for j in known), np.zeros_like(self.given_cell[0]))
        factors = sum((self.given_factor[j] for j in known), np.zeros_like(self.given_factor[0]))
        shares = np.log([cells.shape[2], factors.shape[2]])
        return np.asarray(log_sum_exp(cells, axis=2) - shares[0] - log_sum_exp(factors, axis=2) + shares[1])

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
        every = _Levels.from_scores(self.scores(known), self.given_cell[0].shape[2])
        others = max(self.n_rows - self.rows_each, 0)
        # Below most scores there is always a stranger's row that scores more.
        counts = others * np.log1p(-every.above) > _NEGLIGIBLE
        levels = every.take(counts)
        high, low = np.log1p(-levels.above), np.log1p(-levels.at_least)
        # Where no stranger has the same score, the substitution below would divide by zero.
        rate = np.maximum(others * (high - low), 1e-12)
        # Whose row it is goes first: sums over a long axis of short rows are slow.
        own, own_ties = np.ascontiguousarray(levels.own.T), np.ascontiguousarray(levels.own_ties.T)
        falling, reach = np.expm1(-rate), 1 - own
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        total = np.zeros(levels.above.shape)
        for node, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
            # Substituted so that the points lie where many strangers with the same score leave mass.
            v = np.minimum(-np.log1p(node * falling) / rate, 1.0)
            strangers = others * np.log1p(-levels.at_least + (levels.at_least - levels.above) * (1 - v))
            inside = reach + own_ties * (1 - v)
            with np.errstate(divide="ignore"):
                logs = self.copies * np.log(np.maximum(inside, 0.0)).sum(axis=0)
            slope = self.copies * (own_ties / np.maximum(inside, 1e-300)).sum(axis=0)
            length = -falling / rate * np.exp(rate * v)
            total += weight * length * slope * np.exp(logs + strangers)
        chances = np.zeros(every.above.shape)
        chances[counts] = total * levels.weight
        return np.asarray(np.minimum(chances.sum(axis=1), 1.0))

    def recognize(self, known: Sequence[int]) -> Floats:
        """Return the chance to say correctly whether each person is in the table, being so for half of them.

        Notes
        -----
        The attacker counts the rows that score at least t. The person adds K of them, strangers in the same
        places would add K0, binomial with p. With B the count of the other n - m rows, the decision by the
        best count c is right with probability ``(1 + sum_j (P(K >= j) - P(K0 >= j)) P(B = c - j)) / 2``; t
        and c are the best ones.
        """
        levels = _Levels.from_scores(self.scores(known), self.given_cell[0].shape[2])
        # Neighboring thresholds differ by a single draw: the best of some is as good as the best of all.
        every = max(1, levels.own.shape[1] // _THRESHOLDS)
        own, p = levels.own[:, ::every], levels.at_least[:, ::every]
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
    own, own_ties : array of shape (people, draws, different)
        Chance that each of the person's rows scores at least as much, and exactly as much.
    weight : array of shape (people, draws)
        One divided by the number of draws that have the same score.
    """

    above: Floats
    at_least: Floats
    own: Floats
    own_ties: Floats
    weight: Floats

    @classmethod
    def from_scores(cls, scores: Floats, different: int) -> _Levels:
        """Return the chances from the scores of some draws of each of a person's rows, row by row."""
        people, draws = scores.shape
        order = np.argsort(-scores, axis=1, kind="stable")
        ordered = np.take_along_axis(scores, order, axis=1)
        total = np.minimum(np.cumsum(np.exp(-ordered), axis=1) / draws, 1 - 1e-12)
        row = order // (draws // different)
        # Each of the different rows has its own share of the draws, which together are all of its
        # probability.
        reached = np.cumsum(row[:, :, None] == np.arange(different), axis=1) * (different / draws)
        # Scores of lists repeat, up to rounding errors of their sums.
        starts = np.ones(ordered.shape, bool)
        starts[:, 1:] = ordered[:, :-1] - ordered[:, 1:] > 1e-9
        index = np.arange(draws)
        first = np.maximum.accumulate(np.where(starts, index, 0), axis=1)
        ends = np.ones(ordered.shape, bool)
        ends[:, :-1] = starts[:, 1:]
        last = np.minimum.accumulate(np.where(ends, index, draws)[:, ::-1], axis=1)[:, ::-1]
        before = np.concatenate([np.zeros((people, 1)), total], axis=1)
        reached_before = np.concatenate([np.zeros((people, 1, different)), reached], axis=1)
        # Gathered by rows of all people together, which is faster than along an axis.
        person = np.arange(people)[:, None]
        first, last = first + person * (draws + 1), last + person * draws
        own = reached.reshape(-1, different).take(last, axis=0)
        return cls(
            above=before.ravel().take(first),
            at_least=total.ravel().take(last),
            own=own,
            own_ties=own - reached_before.reshape(-1, different).take(first, axis=0),
            weight=1 / (last - first + person + 1),
        )

    def take(self, scores: Bools) -> _Levels:
        """Return some of the scores alone, those of all people one after another."""
        return _Levels(
            above=self.above[scores],
            at_least=self.at_least[scores],
            own=self.own[scores],
            own_ties=self.own_ties[scores],
            weight=self.weight[scores],
        )


def _at_least(own: Floats, copies: int) -> Floats:
    """Return the chances that at least 1, 2, ... of a person's rows reach a score.

    Parameters
    ----------
    own : array of shape (people, scores, different)
        Chance of each of the different rows.
    copies : int
        Number of rows for each of the different ones; above 1 only where there is one.
    """
    if own.shape[2] == 1:
        return binomial_tail(np.arange(copies, dtype=np.float64), copies, own)
    assert copies == 1
    counts = np.zeros((*own.shape[:2], own.shape[2] + 1))
    counts[..., 0] = 1.0
    # The Poisson binomial law, one row after another.
    for i in range(own.shape[2]):
        q = own[..., i : i + 1]
        counts[..., 1:] = counts[..., 1:] * (1 - q) + counts[..., :-1] * q
        counts[..., 0] *= 1 - q[..., 0]
    return np.asarray(np.cumsum(counts[..., ::-1], axis=2)[..., ::-1][..., 1:])
