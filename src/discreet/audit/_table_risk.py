"""Attacks on made-up people in a whole made-up table: of noise that cells share, and of tables made anew.

Where the cells of a row share noise, every published row is compared with every attacked person. A table of
more rows is attacked in part, which is easier: what is found is then an overestimate. Synthetic and masked
tables are made anew from made-up people, and the people in them are attacked.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit import _members
from discreet.audit._made_up_people import LAWS, PEOPLE, describe_prior, grid_rows
from discreet.audit._mixture import Mixture, log_sum_exp
from discreet.audit._reidentification import decide_membership
from discreet.audit._row_risk import best_guess, log_states, mix_states, nearest_state, update_prior
from discreet.audit.risk import AttackRisk, largest_success, state_attack
from discreet.audit.targets import noise_covariance, plan_targets
from discreet.formatting import percent, small_percent
from discreet.noise_law import GaussianLaw
from discreet.release.kinds import is_synthetic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet._types import AnyArray, Floats, Ints
    from discreet.audit._made_up_people import Game, PeopleLaw
    from discreet.audit._members import MemberComparison
    from discreet.audit.risk import RiskAttack
    from discreet.noise import Stream
    from discreet.release import ReleasePlan
    from discreet.release.masked.method import MaskedRelease
    from discreet.release.synthetic import SyntheticRelease
    from discreet.schema import Schema

MOST_ROWS = 1_500
"""Largest number of rows of a table that is attacked whole."""
MOST_PEOPLE = 300
"""Largest number of people in the table, and of others, that are attacked."""
_KNOWS_ALL = "all columns of a person, everything that is published, and other people of the same kind"
_ENOUGH, _MOST_RUNS = 600, 8
"""People whom attacks on made tables need for a narrow interval, and the most tables made for them."""


@dataclass(frozen=True, eq=False)
class TableScores:
    """A made-up table, and the likelihoods of its cells for some people.

    Attributes
    ----------
    columns : list of Mixture
        Published columns, with the law of their cells.
    truth : list of array of shape (2 people rows_each,)
        True cells of people in the table, whose rows come first in it, and of others.
    given_cell : list of array of shape (2 people rows_each, rows)
        Log likelihood of each published cell given the true one.
    given_factor : list of array of shape (nodes, rows)
        The same given only a hidden factor.
    published : list of array of shape (rows,)
        Published cells of the table.
    covariance : array or None
        Covariance of the noise of the columns that are numbers; None where it is not Gaussian or diagonal.
    rows_each : int
        Number of rows that each person has; they stand one after another.
    """

    columns: list[Mixture]
    truth: list[AnyArray]
    given_cell: list[Floats]
    given_factor: list[Floats]
    published: list[AnyArray]
    covariance: Floats | None = None
    rows_each: int = 1

    @classmethod
    def draw(
        cls,
        plan: ReleasePlan,
        schema: Schema,
        law: PeopleLaw,
        n_rows: int,
        stream: Stream,
        people: int = PEOPLE,
        rows_each: int = 1,
    ) -> TableScores:
        """Draw a table from a law and its published rows from a plan, and compute all likelihoods.

        Parameters
        ----------
        plan, schema, law, n_rows, stream, people
            As for :meth:`~discreet.audit._row_risk.RowScores.draw`; at most 300 rows of people are attacked.
        rows_each : int
            Number of rows that each person has, at most as many as the table.
        """
        # Whole people alone: a person is in the table with all rows or with none.
        rows = min(n_rows, MOST_ROWS) // rows_each * rows_each
        people = min(rows, people, max(MOST_PEOPLE, rows_each)) // rows_each * rows_each
        _, drawn = law.draw_units(schema, (rows + people) // rows_each, rows_each, stream.derive("people"))
        truth = plan.truth(drawn)
        grid = plan.truth(grid_rows(schema))
        published = plan.noise({name: cells[:rows] for name, cells in truth.items()}, stream.derive("noise"))
        made = cls([], [], [], [], [])
        for target in plan_targets(plan):
            if target.channel is None:
                continue
            one = Mixture(target, grid[target.name], law.cell_weights(schema.column(target.name)))
            # People in the table come first in it; those who were drawn behind its rows are not in it.
            cells = np.concatenate([truth[target.name][:people], truth[target.name][rows:]])
            made.columns.append(one)
            made.truth.append(cells)
            made.published.append(published[target.name])
            made.given_cell.append(one.log_likelihood(published[target.name][None, :], cells[:, None]))
            made.given_factor.append(one.log_density(published[target.name]))
        numbers = [one.target.name for one in made.columns if made._is_gaussian(one)]
        covariance = noise_covariance(plan, numbers) if numbers else None
        return replace(made, covariance=covariance, rows_each=rows_each)

    @property
    def people(self) -> int:
        """Number of rows of people in the table, and of others, that are attacked."""
        return len(self.truth[0]) // 2

    @staticmethod
    def _is_gaussian(column: Mixture) -> bool:
        return isinstance(column.target.summary.law, GaussianLaw)

    @property
    def always_known(self) -> list[int]:
        """Columns that are published as they are, and that everybody may know."""
        return [j for j, one in enumerate(self.columns) if one.target.is_clear]

    @cached_property
    def by_information(self) -> list[int]:
        """Protected columns, those that tell most about a person first."""
        own = np.arange(self.people)
        gains = {
            j: float(np.mean(self.given_cell[j][own, own] - log_sum_exp(self.given_factor[j][:, own], 0)))
            for j, one in enumerate(self.columns)
            if not one.target.is_clear
        }
        return sorted(gains, key=lambda j: (-gains[j], j))

    def scores(self, known: Sequence[int]) -> Floats:
        """Return the score of every row for every person, by some columns; of shape (2 people, rows)."""
        shape = (2 * self.people, len(self.published[0]))
        gaussian = [j for j in known if self.covariance is not None and self._is_gaussian(self.columns[j])]
        cells = sum((self.given_cell[j] for j in known if j not in gaussian), np.zeros(shape))
        if gaussian:
            cells = cells + self._joint_gaussian(gaussian)
        return np.asarray(cells - self._log_strangers(known)[None, :])

    def _log_strangers(self, known: Sequence[int]) -> Floats:
        factors = sum((self.given_factor[j] for j in known), np.zeros_like(self.given_factor[0]))
        return np.asarray(log_sum_exp(factors, axis=0) - np.log(len(factors)))

    def _joint_gaussian(self, known: Sequence[int]) -> Floats:
        """Return the log likelihood of numbers whose noise is correlated, but for a constant."""
        assert self.covariance is not None
        order = [j for j, one in enumerate(self.columns) if self._is_gaussian(one)]
        at = [order.index(j) for j in known]
        # The determinant is left out: it is the same for every person and row, and cancels in scores.
        inverse = np.linalg.inv(self.covariance[np.ix_(at, at)])
        middles = [self.columns[j].target.column.fill for j in known]
        shift = np.stack(
            [
                np.where(np.isnan(self.published[j]), m, self.published[j])[None, :]
                - np.where(np.isnan(self.truth[j]), m, self.truth[j])[:, None]
                for j, m in zip(known, middles, strict=True)
            ]
        )
        total = np.zeros(shift.shape[1:])
        for a in range(len(known)):
            for b in range(len(known)):
                total -= 0.5 * inverse[a, b] * shift[a] * shift[b]
        return total

    def link(self, known: Sequence[int]) -> Floats:
        """Return for each person the chance that the likeliest row, or one of several, is the person's.

        Rows are scored by the mean likelihood over the rows of the person.
        """
        scores = self._split_units(self.scores(known)[: self.people])
        together = log_sum_exp(scores, axis=1)
        # Equal likelihoods differ by rounding; of several such rows one is taken at random.
        likeliest = together > together.max(axis=1, keepdims=True) - 1e-9
        units = np.arange(len(together))
        own = units[:, None] * self.rows_each + np.arange(self.rows_each)
        return np.asarray(likeliest[units[:, None], own].sum(axis=1) / likeliest.sum(axis=1))

    def _split_units(self, scores: Floats) -> Floats:
        """Return scores of rows by person, of shape (people, rows_each, ...)."""
        return scores.reshape(-1, self.rows_each, *scores.shape[1:])

    def recognize(self, known: Sequence[int]) -> Floats:
        """Return whether the attacker is right about who is in the table, for people in it and others.

        Notes
        -----
        By the mean over rows of ``exp(L)``, the likelihood ratio of a table with the person's row and one
        without; of several rows, by their product.
        """
        evidence = self._split_units(log_sum_exp(self.scores(known), axis=1)).sum(axis=1)
        half = len(evidence) // 2
        return decide_membership(evidence[:half], evidence[half:])[1].astype(np.float64)

    def guess(self, unknown: int, stream: Stream) -> tuple[Floats, Floats]:
        """Return whether each person's cell in a column is guessed right, with the table and without.

        Parameters
        ----------
        unknown : int
            Place of the column whose cells are guessed.
        stream : Stream
            Not used: the whole table is looked at.
        """
        column, n = self.columns[unknown], self.people
        known = [j for j in range(len(self.columns)) if j != unknown]
        none = np.zeros((n, column.weights.shape[1]))
        prior = mix_states(sum((log_states(self.columns[j], self.truth[j][:n]) for j in known), none), column)
        # From the scores of the known columns to those of all: the row of a stranger is unlikely as a whole.
        logs = self.scores(known)[:n] + self._log_strangers(known) - self._log_strangers([*known, unknown])
        top = logs.max(axis=1)
        sums = column.sum_given_states(self.published[unknown][None], np.exp(logs - top[:, None])[None])[0]
        truth = nearest_state(self.truth[unknown][:n], column.states()[0])
        return tuple(  # type: ignore[return-value]
            _is_right(chances, truth, column)
            for chances in (update_prior(prior, sums, top, np.zeros(n)), prior)
        )


def _is_right(chances: Floats, truth: Ints, column: Mixture) -> Floats:
    """Return 1 for each person whose cell the best guess hits, and 0 for the others."""
    guess, _, reach = best_guess(chances, column)
    # A missing cell is right only by itself, however near its place in the list of states is.
    last = len(column.states()[0]) - (not column.target.is_list and not column.target.column.required)
    near = (np.abs(guess - truth) <= reach) & (guess < last) & (truth < last)
    return np.asarray((near | (guess == truth)).astype(np.float64))


def attack_made_tables(
    method: SyntheticRelease | MaskedRelease, plan: ReleasePlan, game: Game
) -> tuple[list[AttackRisk], list[str]]:
    """Attack people in tables that are made anew from made-up rows, and others."""
    size, n_rows, known = game.made_rows, game.n_rows, len(game.schema.released)
    if is_synthetic(method):
        # Other rows from the same answers have the same risk.
        method = copy.copy(method)
        method.draw = 0
    each = min(game.schema.max_rows_per_unit or 1, size)
    found, left_out = list[AttackRisk](), list[str]()
    for law in game.laws[1:]:
        people = game.stream.derive("people" if law in LAWS else f"people of {law.name}")
        _, rows = law.draw_units(game.schema, 2 * size // each, each, people)
        results = _repeat_attacks(method, rows, np.arange(2 * size // each * each) // each, game)
        stated = _state_results(results, plan, size, known)
        source = describe_prior(game).get(law.name)
        if source is not None:
            stated = [replace(one, prior=law.name, knowledge=f"{_KNOWS_ALL}, and {source}") for one in stated]
        found += stated
    if n_rows is None or size < n_rows:
        of = "a table whose number of rows is not public" if n_rows is None else f"one of {n_rows:,} rows"
        left_out.append(
            f"People are attacked in a table made of {size:,} made-up rows, where they are found more easily "
            f"than in {of}."
        )
    if not any(one.attack == "linkage" for one in found):
        left_out.append("Linkage and attribute inference: no published row is that of a person.")
    if not found:
        left_out.append(
            "Membership: the made-up rows are too few, or rows of the table are published as they are."
        )
    return found, left_out


def _state_results(
    found: Sequence[MemberComparison], plan: ReleasePlan, size: int, known: int
) -> list[AttackRisk]:
    """Return the attacks on made tables as risks: linkage, membership and attribute inference."""
    areas = [one for one in found if one.members is None]
    attacks = [_membership_of(max(areas, key=lambda one: one.value), size, known)] if areas else []
    named = {one.attack: one for one in found}
    if "exact match" in named:
        linkage = _difference_of("linkage", named["exact match"], plan, size, known)
        inference = _difference_of("attribute inference", named["guessed cells"], plan, size, known - 1)
        attacks = [linkage, *attacks, inference]
    return attacks


def _repeat_attacks(
    method: SyntheticRelease | MaskedRelease, rows: dict[str, AnyArray], ids: AnyArray, game: Game
) -> tuple[MemberComparison, ...]:
    """Attack several tables of few people each, and return the means; none where no table can be made."""
    runs = [
        _members.attack_members(method, rows, on="made-up", ids=ids, stream=game.stream.derive("attack 0"))
    ]
    if not runs[0]:
        return ()
    # The same people in other halves and with other noise, until enough of them were attacked.
    more = min(_MOST_RUNS, math.ceil(_ENOUGH / runs[0][0].n))
    for k in range(1, more):
        again = _members.attack_members(
            method, rows, on="made-up", ids=ids, stream=game.stream.derive(f"attack {k}")
        )
        runs += [again] if again else []
    return tuple(_mean_of(one) for one in zip(*runs, strict=True))


def _mean_of(runs: Sequence[MemberComparison]) -> MemberComparison:
    """Return one attack on several tables as one result, with the interval of its mean."""
    first, n = runs[0], len(runs)
    value = math.fsum(one.value for one in runs) / n
    # Variances of the runs add up, and the mean divides their sum by the square of n.
    reach = math.sqrt(math.fsum((one.upper - one.value) ** 2 for one in runs)) / n
    means: dict[str, Any] = {}
    if first.members is not None:
        for name in ("members", "others"):
            means[name] = math.fsum(getattr(one, name) for one in runs) / n
    return replace(first, value=value, lower=value - reach, upper=value + reach, n=first.n * n, **means)


def _membership_of(found: MemberComparison, size: int, known: int) -> AttackRisk:
    """Return the best of the attacks that tell people in a table from others."""
    return state_attack(
        attack="membership", known=known, knowledge=_KNOWS_ALL, prior="correlated",
        success=found.value, lower=max(0.0, found.lower), baseline=found.chance,
        # What is proven narrows what is measured.
        upper=max(found.value, min(found.upper, found.bound)),
        bound=found.bound, n=found.n, n_rows=size, failure_probability=found.failure_probability,
        sentence="Somebody who knows all columns of a person tells people in the table from others in "
        f"{percent(found.value)} of pairs; by chance, in {percent(0.5)}.",
    )  # fmt: skip


def _difference_of(
    attack: RiskAttack, found: MemberComparison, plan: ReleasePlan, size: int, known: int
) -> AttackRisk:
    """Return an attack that may be right about people who are not in the table, too."""
    assert found.members is not None
    assert found.others is not None
    shares = [small_percent(found.members), small_percent(found.others)]
    sentence = (
        f"A published row has all cells of a person in the table in {shares[0]} of cases, and of others in "
        f"{shares[1]}."
        if attack == "linkage"
        else "Somebody who knows all columns of a person but one guesses it, by the row that is most alike, "
        f"right in {shares[0]} of cases, and for people who are not in the table in {shares[1]}."
    )
    return state_attack(
        attack=attack, known=known, knowledge=_KNOWS_ALL, prior="correlated",
        # The interval is one of the difference to the others, so their share is added.
        success=found.members, lower=min(max(0.0, found.others + found.lower), found.members),
        upper=max(min(1.0, found.others + found.upper), found.members), baseline=found.others,
        bound=min(largest_success(one, found.others) for one in plan.promises), n=found.n, n_rows=size,
        failure_probability=found.failure_probability, sentence=sentence,
    )  # fmt: skip
