"""Attacks on made-up people whose rows are published one by one with noise, stated for a table of any size.

A published row y is scored for a person with the known cells x by ``L = log f(y | x) - log f(y)``, with f(y)
the law of a row of somebody unknown. A stranger's row scores at least t with the probability
``E[exp(-L); L >= t]``, the expectation taken over rows of the person: what is rare among strangers is common
there. So some rows of each person say how the person fares among millions of strangers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from discreet.audit._made_up_people import PEOPLE, grid_rows
from discreet.audit._mixture import Mixture, log_sum_exp
from discreet.audit.targets import plan_targets
from discreet.query.dummy import uniform_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._made_up_people import PeopleLaw
    from discreet.noise import Stream
    from discreet.release import ReleasePlan
    from discreet.schema import Schema


DRAWS = 64
"""Number of rows that are drawn of each of them."""
_LEAST_PEOPLE = 100
_CANDIDATES = 24
"""Expected number of strangers' rows that are looked at one by one where a cell is guessed."""
_MOST_STATES = 4_000_000
"""Largest number of people times rows like theirs times values of a column that are looked at together."""
_BLOCK = 1 << 16
"""Number of likelihoods that are computed together: they stay in the cache of a processor."""
_SCORE_BITS = 30
"""Binary digits of a score that decide which rows look most like a person's."""
_CLOSE = 0.05
"""Share of its range within which a guess at a number counts as right."""


# Laws of counts, for which an attack would load all of scipy.stats: 0.6 s.


def binomial_chance(count: Floats, n: int, chance: Floats) -> Floats:
    """Return the probability of a count among ``n`` independent trials, for each count and chance."""
    inside = np.clip(count, 0, n)
    ways = special.gammaln(n + 1) - special.gammaln(inside + 1) - special.gammaln(n - inside + 1)
    logs = ways + special.xlogy(inside, chance) + special.xlog1py(n - inside, -chance)
    return np.where(inside == count, np.exp(logs), 0.0)


def binomial_tail(count: Floats, n: int, chance: Floats) -> Floats:
    """Return the probability of more than ``count`` among ``n`` independent trials; count is below n."""
    return np.asarray(special.bdtrc(count, n, chance))


def poisson_quantile(share: Floats, mean: Floats) -> Floats:
    """Return the least number that a Poisson number exceeds with a probability of at most 1 - ``share``.

    Notes
    -----
    The number of ``k`` whose probability to be reached is below ``share``, from the sums of
    ``exp(k log(mean) - mean) / k!``; those beyond the last ``k`` are below the rounding of 1.
    """
    largest = float(np.max(mean, initial=0.0))
    numbers = np.arange(math.ceil(largest + 12 * math.sqrt(largest) + 40))
    logs = numbers * np.log(np.maximum(mean, 1e-300))[..., None] - mean[..., None]
    logs -= np.asarray(special.gammaln(numbers + 1), np.float64)
    below = np.cumsum(np.exp(logs, out=logs), axis=-1, out=logs) < share[..., None]
    return np.asarray(np.count_nonzero(below, axis=-1), np.float64)


@dataclass(frozen=True, eq=False)
class RowScores:
    """Published rows of made-up people, and the likelihoods of their cells.

    Attributes
    ----------
    columns : list of Mixture
        Published columns, with the law of their cells.
    truth : list of array of shape (people,)
        True cells of the people, encoded as they are published.
    published : list of array of shape (people, draws)
        Published cells of each person, drawn again and again.
    given_cell : list of array of shape (people, draws)
        Log likelihood of each published cell given the person's true one.
    given_factor : list of array of shape (nodes, people, draws)
        The same given only a hidden factor.
    place : array of shape (people,)
        Place of each person's hidden factor.
    n_rows : int
        Number of rows of the table.
    """

    columns: list[Mixture]
    truth: list[AnyArray]
    published: list[AnyArray]
    given_cell: list[Floats]
    given_factor: list[Floats]
    place: Ints
    n_rows: int

    @classmethod
    def draw(
        cls,
        plan: ReleasePlan,
        schema: Schema,
        law: PeopleLaw,
        n_rows: int,
        stream: Stream,
        people: int = PEOPLE,
    ) -> RowScores:
        """Draw people from a law and their rows from a plan, and compute all likelihoods.

        Parameters
        ----------
        plan : ReleasePlan
            Plan of the release, in which every row is noised by itself.
        schema : Schema
            Declaration of the table.
        law : PeopleLaw
            Law of the made-up people.
        n_rows : int
            Number of rows of the table.
        stream : Stream
            Source of the people and of the noise.
        people : int
            Number of made-up people that are attacked.
        """
        place, rows = law.draw(schema, people, stream.derive("people"))
        truth = plan.truth(rows)
        grid = plan.truth(grid_rows(schema))
        # Every person is published many times: strangers are never drawn, their tails are read off these
        # rows.
        copies = {name: np.repeat(values, DRAWS) for name, values in truth.items()}
        drawn = plan.noise(copies, stream.derive("noise"))
        columns, cells, shown, given_cell, given_factor = [], [], [], [], []
        for target in plan_targets(plan):
            if target.channel is None:
                continue
            declared = schema.column(target.name)
            one = Mixture(target, grid[target.name], law.cell_weights(declared))
            own = drawn[target.name]
            columns.append(one)
            cells.append(truth[target.name])
            shown.append(own.reshape(people, DRAWS))
            given_cell.append(one.log_likelihood(own, copies[target.name]).reshape(people, DRAWS))
            given_factor.append(one.log_density(own).reshape(-1, people, DRAWS))
        return cls(columns, cells, shown, given_cell, given_factor, place, n_rows)

    def take(self, people: int) -> RowScores:
        """Return the first people alone: of lists of thousands of values, memory allows for few."""
        return replace(
            self,
            truth=[values[:people] for values in self.truth],
            published=[values[:people] for values in self.published],
            given_cell=[values[:people] for values in self.given_cell],
            given_factor=[values[:, :people] for values in self.given_factor],
            place=self.place[:people],
        )

    @property
    def rows_each(self) -> int:
        """Number of rows that each person has."""
        return 1

    @property
    def always_known(self) -> list[int]:
        """Columns that are published as they are, and that everybody may know."""
        return [j for j, one in enumerate(self.columns) if one.target.is_clear]

    @cached_property
    def by_information(self) -> list[int]:
        """Protected columns, those that tell most about a person first."""
        # The mean of L over the person's own rows is the mutual information of person and cell.
        gains = {
            j: float(np.mean(self.given_cell[j] - log_sum_exp(self.given_factor[j], axis=0)))
            for j, one in enumerate(self.columns)
            if not one.target.is_clear
        }
        return sorted(gains, key=lambda j: (-gains[j], j))

    def scores(self, known: Sequence[int]) -> Floats:
        """Return the score L of every row for its own person, by some columns; shape (people, draws)."""
        cells, factors = self._sums(known)
        return np.asarray(cells - _log_mean(factors))

    def _sums(self, known: Sequence[int]) -> tuple[Floats, Floats]:
        """Return the log likelihoods of some cells together, given the person's and given each factor."""
        cells = np.zeros((len(self.place), DRAWS))
        factors = np.zeros_like(self.given_factor[0])
        for j in known:
            cells += self.given_cell[j]
            factors += self.given_factor[j]
        return cells, factors

    def _sums_without(self, unknown: int) -> tuple[Floats, Floats]:
        """Return the sums over all columns but one, without adding up all others again."""
        cells, factors = self._total
        own, by_factor = self.given_cell[unknown], self.given_factor[unknown]
        # An infinite logarithm cannot be subtracted again: then the others are added up anew.
        if np.isfinite(own).all() and np.isfinite(by_factor).all():
            return cells - own, factors - by_factor
        return self._sums([j for j in range(len(self.columns)) if j != unknown])

    @cached_property
    def _total(self) -> tuple[Floats, Floats]:
        """The sums over all columns."""
        return self._sums(range(len(self.columns)))

    @cached_property
    def _log_states(self) -> tuple[Floats, list[Floats]]:
        """Log probability of each person's true cells given each factor: all together, and each column."""
        logs = [log_states(one, own) for one, own in zip(self.columns, self.truth, strict=True)]
        return np.asarray(sum(logs)), logs

    def link(self, known: Sequence[int]) -> Floats:
        """Return the chance that the likeliest row of the table is the person's, for each person.

        Notes
        -----
        With p the chance that a stranger's row scores more, and p' at least as much, the chance is
        ``((1 - p)**n - (1 - p')**n) / (n (p' - p))``: of equal scores one is taken at random.
        """
        above, with_ties, _ = tails(self.scores(known))
        n = self.n_rows
        # In logarithms: (1 - p)**n underflows in tables of millions, where the ratio does not.
        high, low = n * np.log1p(-above), n * np.log1p(-with_ties)
        own = np.maximum(n * (with_ties - above), 1e-300)
        return np.asarray((np.exp(high) * -np.expm1(low - high) / own).mean(axis=1))

    def recognize(self, known: Sequence[int]) -> Floats:
        """Return the chance to say correctly whether each person is in the table, being so for half of them.

        Notes
        -----
        The attacker counts the rows that score at least t. With q and p the chances of the person's own and
        of a stranger's row, the decision by the best count is right with probability
        ``(1 + (q - p) max_k P(k)) / 2``, P the binomial law of n - 1 rows with p; t is the best one.
        """
        _, chance, own = tails(self.scores(known))
        n = self.n_rows
        # The mode of n - 1 trials is floor(n p): no other count is likelier, so none decides better.
        mode = np.minimum(np.floor(n * chance), n - 1)
        gain = (own - chance) * binomial_chance(mode, n - 1, chance)
        # An attacker who gains by no threshold tosses a coin.
        return np.asarray((1 + np.maximum(gain.max(axis=1), 0.0)) / 2)

    def guess(self, unknown: int, stream: Stream) -> tuple[Floats, Floats]:
        """Return the chance that each person's cell in a column is guessed right, with the table and without.

        The attacker knows all other columns and how people are distributed, and follows Bayes' rule, which
        states its own chance to be right. Strangers' rows that look most like the person's are drawn; all
        others count with their expectation, which says nothing.

        Parameters
        ----------
        unknown : int
            Place of the column whose cells are guessed.
        stream : Stream
            Source of the strangers' rows.

        Returns
        -------
        with_table, without : array of shape (people,)
            Chance that the best guess is right.
        """
        column = self.columns[unknown]
        most = max(_LEAST_PEOPLE, _MOST_STATES // (_CANDIDATES * len(column.states()[0])))
        if len(self.place) > most:
            return self.take(most).guess(unknown, stream)
        cells, factors = self._sums_without(unknown)
        prior = mix_states(self._log_states[0] - self._log_states[1][unknown], column)
        scores = cells - _log_mean(factors)
        rows = _draw_strangers(scores, self.n_rows, stream.derive("which"))
        # The person's own row, and what stands there in strangers' rows that look like it.
        people = np.arange(len(self.place))[:, None] * DRAWS
        look = np.concatenate([people, people + rows.draws], axis=1)
        by_factor = factors.reshape(len(factors), -1).take(look, axis=1)
        by_factor -= log_sum_exp(by_factor, 0)
        pick = np.concatenate([people, self._strangers(by_factor[:, :, 1:], stream)], axis=1)
        shown = self.published[unknown].ravel()[pick]
        score = scores.ravel()[look]
        # People have different numbers of such rows: places that stay empty have no weight.
        score[:, 1:][~rows.there] = -np.inf
        by_factor += self.given_factor[unknown].reshape(len(factors), -1).take(pick, axis=1)
        # L of the whole row: the unknown cell of a stranger follows what the known ones tell about the
        # factor.
        score -= log_sum_exp(by_factor, 0)
        top = score.max(axis=1)
        weights = np.exp(score - top[:, None])
        sums = np.empty(prior.shape)
        at_once = max(1, _BLOCK // (shown.shape[1] * prior.shape[1]))
        # People with as many rows each, so that few likelihoods are computed of rows that are not there.
        looks = 1 + rows.there.sum(axis=1)
        order = np.argsort(looks, kind="stable")
        for start in range(0, len(shown), at_once):
            part = order[start : start + at_once]
            most_looks = looks[part[-1]]
            sums[part] = column.sum_given_states(shown[part, :most_looks], weights[part, None, :most_looks])[
                :, 0
            ]
        posterior = update_prior(prior, sums, top, rows.others)
        return best_guess(posterior, column)[1], best_guess(prior, column)[1]

    def _strangers(self, by_factor: Floats, stream: Stream) -> Ints:
        """Return the drawn rows that have the cells of strangers, whose other cells tell a hidden factor."""
        shape = by_factor.shape[1:]
        pick = uniform_shares(shape[0] * shape[1], stream.derive("factor")).reshape(shape)
        place, below = np.zeros(shape, np.int64), np.zeros(shape)
        for one in by_factor[:-1]:
            below += np.exp(one)
            place += pick > below
        at = uniform_shares(pick.size, stream.derive("cell")).reshape(shape)
        counts = np.bincount(self.place, minlength=len(by_factor))
        starts = np.where(counts, np.cumsum(counts) - counts, len(self.place))
        # Where nobody has a factor by chance, anybody stands for them.
        held = np.concatenate([np.argsort(self.place, kind="stable"), np.arange(len(self.place))])
        sizes = np.where(counts, counts, len(self.place)) * DRAWS
        found = np.floor(at * sizes[place]).astype(np.int64)
        return np.asarray(held[starts[place] + found // DRAWS] * DRAWS + found % DRAWS)


def tails(scores: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the chances that a stranger's row scores more than each score, or at least as much.

    Parameters
    ----------
    scores : array of shape (people, draws)
        Scores L of each person's own rows.

    Returns
    -------
    above, with_ties, own : array of shape (people, draws)
        Chance that a stranger's row scores more, that it scores at least as much, and that another row of
        the person does; by falling scores of each person.
    """
    ordered = -np.sort(-scores, axis=1)
    draws = scores.shape[1]
    # E[exp(-L); L >= t] over the person's own draws. A mean of few draws may exceed 1, and log1p(-p) must
    # stay finite.
    total = np.minimum(np.cumsum(np.exp(-ordered), axis=1) / draws, 1 - 1e-12)
    index = np.arange(draws)
    # Scores of lists repeat, up to rounding errors of their sums.
    starts = np.ones(ordered.shape, bool)
    starts[:, 1:] = ordered[:, :-1] - ordered[:, 1:] > 1e-9
    first = np.maximum.accumulate(np.where(starts, index, 0), axis=1)
    ends = np.ones(ordered.shape, bool)
    ends[:, :-1] = starts[:, 1:]
    last = np.minimum.accumulate(np.where(ends, index, draws)[:, ::-1], axis=1)[:, ::-1]
    before = np.concatenate([np.zeros((len(total), 1)), total], axis=1)
    above = np.take_along_axis(before, first, axis=1)
    with_ties = np.take_along_axis(total, last, axis=1)
    return above, with_ties, (last + 1) / draws


@dataclass(frozen=True, eq=False)
class _Strangers:
    """Rows of strangers that look like a person's.

    Attributes
    ----------
    draws : array of int, shape (people, most)
        Draw of the person that each such row equals in the known columns.
    there : array of bool, shape (people, most)
        Whether there is such a row: people have different numbers of them.
    others : array of shape (people,)
        Expected sum of ``exp(L)`` over all other rows.
    """

    draws: Ints
    there: AnyArray
    others: Floats


def _draw_strangers(scores: Floats, n_rows: int, stream: Stream) -> _Strangers:
    """Draw the rows of strangers with the highest scores, about two dozen for each person.

    Notes
    -----
    Their number is Poisson with the mean ``(n - 1) E[exp(-L); L >= t]``, and each equals a row of the person
    that is drawn with weights ``exp(-L)``. The others have ``E[exp(L); L < t] = P(L < t)`` each.
    """
    people, draws = scores.shape
    # Scores of lists repeat, up to rounding errors of their sums, which depend on the processor: without
    # these digits the same rows are drawn everywhere.
    falling = np.rint(scores * -(2.0**_SCORE_BITS)) / 2.0**_SCORE_BITS
    order = np.argsort(falling, axis=1)
    ordered = np.take_along_axis(falling, order, axis=1)
    # Equal scores, which few people have, in the order of the draws: that of a sort depends on the processor.
    equal = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    order[equal] = np.argsort(falling[equal], axis=1, kind="stable")
    rate = (n_rows - 1) * np.cumsum(np.exp(ordered), axis=1) / draws
    # As many of the best draws as about two dozen strangers are expected to reach.
    used = (rate <= _CANDIDATES).sum(axis=1)
    mean = np.where(used > 0, np.take_along_axis(rate, np.maximum(used - 1, 0)[:, None], axis=1)[:, 0], 0.0)
    count = poisson_quantile(uniform_shares(people, stream.derive("count")), mean)
    count = np.where(mean > 0, count, 0).astype(np.int64)
    most = max(1, int(count.max(initial=0)))
    # Places under the cumulative rate fall on each draw with its weight exp(-L).
    at = uniform_shares(people * most, stream.derive("row")).reshape(people, most) * mean[:, None]
    # All of them are below the last rate that is used; by draws, so that loops are long.
    wanted, rates = np.ascontiguousarray(at.T), np.ascontiguousarray(rate.T)
    place = np.zeros(wanted.shape, np.uint8)
    for own in rates[: max(0, int(used.max(initial=0)) - 1)]:
        place += own < wanted
    there = np.arange(most) < count[:, None]
    return _Strangers(
        np.take_along_axis(order, place.T.astype(np.int64), axis=1), there, (n_rows - 1) * (1 - used / draws)
    )


def log_states(column: Mixture, cells: AnyArray) -> Floats:
    """Return the log probability of people's true cells in a column given each factor; (people, nodes)."""
    values, shares = column.states()
    # Finite, because the logarithm of one column is subtracted from the sum of all.
    return np.asarray(np.log(np.maximum(shares[nearest_state(cells, values)], 1e-300)))


def mix_states(logs: Floats, column: Mixture) -> Floats:
    """Return the probability of each value of a column for people whose other cells are known.

    Parameters
    ----------
    logs : array of shape (people, nodes)
        Log probability of the known cells of each person given each factor.
    column : Mixture
        Column whose values are wanted.
    """
    chances = np.exp(logs - log_sum_exp(logs, 1, keepdims=True))
    return np.asarray(np.einsum("pz,vz->pv", chances, column.states()[1]))


def update_prior(prior: Floats, sums: Floats, top: Floats, others: Floats) -> Floats:
    """Return the probability of each value of a column given a table.

    Parameters
    ----------
    prior : array of shape (people, values)
        Probability of each value without the table.
    sums : array of shape (people, values)
        Sum of ``exp(L - top)`` over the rows that are looked at, for each value.
    top : array of shape (people,)
        What L was lessened by, so that no sum is too large.
    others : array of shape (people,)
        The sum of ``exp(L)`` over all other rows, which does not depend on the value.
    """
    with np.errstate(divide="ignore"):
        rest = np.log(others)
    scale = np.maximum(top, rest)
    posterior = (sums * np.exp(top - scale)[:, None] + np.exp(rest - scale)[:, None]) * prior
    return np.asarray(posterior / posterior.sum(axis=1, keepdims=True))


def best_guess(chances: Floats, column: Mixture) -> tuple[Ints, Floats, int]:
    """Return the best guess at a cell of each person, and the chance that it is right.

    Parameters
    ----------
    chances : array of shape (people, values)
        Probability of each of the column's states.
    column : Mixture
        Column whose cells are guessed.

    Returns
    -------
    guess : array of int, shape (people,)
        Place of the value that is guessed.
    right : array of shape (people,)
        Probability that it is right: of a number with many values, that it is at most 5 % of its range off.
    reach : int
        Number of places that a right guess at a number may be off.
    """
    values, _ = column.states()
    present = len(values) if column.target.is_list else int(np.count_nonzero(~np.isnan(values)))
    reach = 0
    if not column.target.is_list and present > 1:
        step = float(values[present - 1] - values[0]) / (present - 1)
        reach = math.floor(_CLOSE * column.target.column.width / step)
    # A missing cell is right only by itself.
    zero = np.zeros((len(chances), 1))
    sums = np.cumsum(np.concatenate([zero, chances[:, :present]], axis=1), axis=1)
    index = np.arange(present)
    window = sums.take(np.minimum(index + reach + 1, present), axis=1)
    window -= sums.take(np.maximum(index - reach, 0), axis=1)
    window = np.concatenate([window, chances[:, present:]], axis=1)
    guess = np.argmax(window, axis=1)
    return guess, window[np.arange(len(window)), guess], reach


def _log_mean(logs: Floats) -> Floats:
    """Return the logarithm of the mean over the first axis."""
    return np.asarray(log_sum_exp(logs, axis=0) - math.log(len(logs)))


def nearest_state(cells: AnyArray, values: AnyArray) -> Ints:
    """Return the place of the value that is nearest to each cell; that of NaN for a missing one."""
    if np.issubdtype(np.asarray(values).dtype, np.integer):
        return np.asarray(np.searchsorted(values, cells))
    present = values[~np.isnan(values)]
    middles = (present[1:] + present[:-1]) / 2
    place = np.searchsorted(middles, np.nan_to_num(cells, nan=present[0]))
    return np.where(np.isnan(cells), len(values) - 1, place)
