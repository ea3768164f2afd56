"""Guesses at real cells by an attacker who knows the records of half of the people; internal."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._closed_form_guess import likeliest_levels, observed_candidates, posterior_means
from discreet.audit._guess import FAILURE, LEFT_OUT, Guess, add_note, approximate_rms_interval, share_interval
from discreet.audit._learned_guess import GuessFeatures, guess_features, learned_levels, learned_numbers
from discreet.audit.targets import MOST_ROWS, Target, group_by_person, plan_targets
from discreet.errors import ParameterError
from discreet.noise import permutation
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Floats, Ints
    from discreet.release import ReleasePlan
    from discreet.schema import Column

    Progress = Callable[[int, int], None]

TOTAL_SECONDS = 60.0
"""Time in seconds after which no further guess is learned; the results note what was left out."""
_FEWEST = 20

POPULATION = (
    "how the column is distributed among {n:,} other people, the published law, and the published row"
)
RECORDS = "true and published records of {n:,} other people, and the published row"


@one_thread()
def attack_rows(
    plan: ReleasePlan,
    rows: Mapping[str, AnyArray],
    published: Mapping[str, AnyArray],
    *,
    seconds: float = 60.0,
    stream: Stream | None = None,
    progress: Progress | None = None,
) -> tuple[Guess, ...]:
    """Guess real cells from their published form, knowing the records of half of the people.

    Numbers are guessed by the posterior mean under the distribution in that half, lists by the likeliest
    level under it, and both by a guess learned from that half across all published columns.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, with the laws of its columns.
    rows, published : mapping of str to array
        True and published columns, encoded, row by row; at most 20,000 random rows are used.
    seconds : float
        Time limit in seconds for the learned guess at one column.
    stream : Stream, optional
        Source of the choice of rows; a fresh one by default.
    progress : callable, optional
        Function called with ``(done, total)`` after every column.

    Returns
    -------
    tuple of Guess
        Verdict "shown": people are not drawn from the floor's prior, and a guess that knows their
        distribution, or the dependence of their columns, may be better than a floor.

    Privacy
    -------
    Internal: every number depends on private rows.

    Reference
    ---------
    Intervals at 95 %: for numbers by the normal approximation, for lists Clopper and Pearson (1934).

    Examples
    --------
    >>> import numpy as np
    >>> from discreet import Column, ErrorFloor, GaussianRelease, Schema
    >>> from discreet.noise import Stream
    >>> schema = Schema(columns=[Column("age", lower=17, upper=90)])
    >>> plan = GaussianRelease(privacy=ErrorFloor(age=14), schema=schema).plan(schema, 1000)
    >>> rows = {"age": np.tile([20.0, 35.0, 50.0, 65.0], 250)}
    >>> published = plan.draw(rows, Stream.from_seed(1))
    >>> guesses = attack_rows(plan, rows, published, stream=Stream.from_seed(2))
    >>> {guess.verdict for guess in guesses}
    {'shown'}
    """
    if not plan.row_level:
        return ()
    n = check_aligned(plan, rows, published, "attack_rows")
    if n < _FEWEST:
        return ()
    stream = stream_or_fresh(stream)
    # In random order, so that the known half is a random half.
    chosen = permutation(n, stream.derive("who is attacked"))[:MOST_ROWS]
    split = _Split.from_sample(plan, rows, published, chosen)
    attacked = [t for t in plan_targets(plan) if not t.is_clear]
    deadline = time.monotonic() + TOTAL_SECONDS
    slowest = 0.0
    guesses: list[Guess] = []
    for done, target in enumerate(attacked, start=1):
        known, unknown = split.people(target)
        if known.size >= _FEWEST // 2 and unknown.size:
            without = split.error_without(target, known, unknown)
            if target.channel is not None:
                guesses.append(split.guess_by_law(target, known, unknown, without))
            # The time of the last learned guess predicts that of this one.
            if slowest < min(seconds, deadline - time.monotonic()):
                guesses.append(split.guess_by_learning(target, known, unknown, without))
                slowest = guesses[-1].seconds
            elif guesses and guesses[-1].column == target.name:
                guesses[-1] = add_note(guesses[-1], LEFT_OUT)
        if progress is not None:
            progress(done, len(attacked))
    return tuple(guesses)


def check_aligned(
    plan: ReleasePlan, rows: Mapping[str, AnyArray], published: Mapping[str, AnyArray], where: str
) -> int:
    """Return the number of rows; raise ParameterError unless both sides hold every published column."""
    names = {summary.column for summary in plan.columns}
    sizes = {len(values[name]) for values in (rows, published) for name in names if name in values}
    if not (names <= set(rows) and names <= set(published)) or len(sizes) != 1:
        raise ParameterError(
            f"rows and published of {where} must both hold every published column, with one cell for each "
            "row in the same order. Take them from the watch of publish()."
        )
    return sizes.pop()


@dataclass(frozen=True, eq=False)
class _Split:
    """Real rows, split into those known to the attacker and those that are attacked.

    Attributes
    ----------
    rows, published : mapping of str to array of shape (n,)
        True and published cells of the chosen rows.
    features : GuessFeatures
        Published columns as a feature matrix.
    places : mapping of str to int
        Index of each published column in ``features.columns``.
    clear : GuessFeatures or None
        Features of the columns that are published unchanged; None if there are none.
    half : int
        Number of known rows; they come first.
    """

    rows: Mapping[str, AnyArray]
    published: Mapping[str, AnyArray]
    features: GuessFeatures
    places: Mapping[str, int]
    clear: GuessFeatures | None
    half: int

    @classmethod
    def from_sample(
        cls, plan: ReleasePlan, rows: Mapping[str, AnyArray], published: Mapping[str, AnyArray], chosen: Ints
    ) -> _Split:
        """Return the chosen rows of a table, the first half of them known."""
        columns = [plan.schema.column(summary.column) for summary in plan.columns]
        sample = {c.name: published[c.name][chosen] for c in columns}
        clear_columns: list[Column] = [t.column for t in plan_targets(plan) if t.is_clear]
        return cls(
            rows={c.name: rows[c.name][chosen] for c in columns},
            published=sample,
            features=guess_features(columns, group_by_person(sample)),
            places={c.name: place for place, c in enumerate(columns)},
            clear=guess_features(clear_columns, group_by_person(sample)) if clear_columns else None,
            half=chosen.size // 2,
        )

    def people(self, target: Target) -> tuple[Ints, Ints]:
        """Return the indices of known and of attacked rows in which the column has a value."""
        cells = self.rows[target.name]
        present = np.ones(len(cells), bool) if target.is_list else ~np.isnan(cells)
        indices = np.flatnonzero(present)
        return indices[indices < self.half], indices[indices >= self.half]

    def error_without(self, target: Target, known: Ints, unknown: Ints) -> float:
        """Return the error of the best guess without the release: a constant, or from the clear columns."""
        truth = self.rows[target.name]
        # What public columns reveal is no fault of the release: the better of the two guesses counts.
        errors = [_error(target, _constant(target, truth[known], unknown.size), truth[unknown])]
        if self.clear is not None:
            guess = _learned_cells(target, self.clear, None, truth, known, unknown)
            errors.append(_error(target, guess, truth[unknown]))
        return min(errors)

    def guess_by_law(self, target: Target, known: Ints, unknown: Ints, without: float) -> Guess:
        """Return the guess by Bayes' rule, with the known rows as the prior and the published law."""
        start = time.monotonic()
        channel, cells = target.channel, self.published[target.name][unknown, None]
        assert channel is not None
        truth = self.rows[target.name]
        guess: AnyArray
        if target.is_list:
            levels = len(target.column.levels)
            # The attacker's prior is that of the known people, not the uniform one of the floors.
            shares = np.bincount(truth[known].astype(np.int64), minlength=levels) / known.size
            guess = likeliest_levels(channel, cells, shares)
        else:
            guess, _ = posterior_means(channel, cells, observed_candidates(truth[known], channel.fineness))
        name = "response inversion" if target.is_list else "posterior mean"
        return self._build_guess(
            target, name, guess, unknown, without, start, POPULATION.format(n=known.size)
        )

    def guess_by_learning(self, target: Target, known: Ints, unknown: Ints, without: float) -> Guess:
        """Return the guess of a model trained on the true and published records of the known rows."""
        start = time.monotonic()
        own, truth = self.places[target.name], self.rows[target.name]
        guess = _learned_cells(target, self.features, own, truth, known, unknown)
        knowledge = RECORDS.format(n=known.size)
        return self._build_guess(target, "learned", guess, unknown, without, start, knowledge)

    def _build_guess(
        self,
        target: Target,
        attack: str,
        guess: AnyArray,
        unknown: Ints,
        without: float,
        start: float,
        knowledge: str,
    ) -> Guess:
        """Return the error of a guess at the attacked rows with its interval, without a verdict."""
        truth = self.rows[target.name][unknown]
        if target.is_list:
            error, lower, upper = share_interval(guess != truth, FAILURE)
        else:
            # No verdict rests on it, so the normal approximation is enough; attacks on floors use a
            # proven interval.
            error, lower, upper = approximate_rms_interval(guess, truth, target.column.range, FAILURE)
        return Guess(
            attack=attack,
            column=target.name,
            statistic=target.statistic,
            measure=target.column.measure,
            error=error,
            lower=lower,
            upper=upper,
            failure_probability=FAILURE,
            without=without,
            floor=target.floor,
            verdict="shown",
            on="rows",
            knowledge=knowledge,
            n=unknown.size,
            seconds=time.monotonic() - start,
            note=""
            if self.clear is None
            else "without the release, the public columns are known all the same",
        )


def _learned_cells(
    target: Target, features: GuessFeatures, own: int | None, truth: AnyArray, known: Ints, unknown: Ints
) -> AnyArray:
    """Return learned guesses at a list or a number; see :func:`learned_numbers` for the parameters."""
    if target.is_list:
        return learned_levels(features, own, len(target.column.levels), truth, known, unknown)
    whole = target.column.is_whole
    return learned_numbers(features, own, whole, truth, known, unknown)


def _constant(target: Target, known: AnyArray, n: int) -> AnyArray:
    """Return n copies of the best constant guess: the commonest level or the mean of the known cells."""
    if target.is_list:
        return np.full(n, np.bincount(known.astype(np.int64)).argmax())
    return np.full(n, known.mean())


def _error(target: Target, guess: AnyArray, truth: AnyArray) -> float:
    """Return the share of wrong guesses at a list, or the root-mean-square error at a number."""
    if target.is_list:
        return float(np.mean(guess != truth))
    # A guess outside the declared range is known to be wrong, and no attacker would leave it there.
    lower, upper = target.column.range
    misses: Floats = np.clip(guess, lower, upper) - truth
    return float(np.sqrt(np.square(misses).mean()))
