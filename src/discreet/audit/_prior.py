"""Attack on error floors: records drawn from the floor's own prior, sent through the real mechanism.

No real row is used, so the verdict may be published and may stop a release. It tests two claims at once:
that the theorem is right (no guess that knows prior and law gets below the floor), and that the program
follows the published law (neither does a guess learned from examples).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from discreet.audit._base import AuditResult
from discreet.audit._bounds import check_failure_probability
from discreet.audit._closed_form_guess import (
    likeliest_levels,
    missing_guesses,
    posterior_means,
    uniform_candidates,
)
from discreet.audit._guess import LEFT_OUT, Guess, add_note, floor_verdict, rms_interval, share_interval
from discreet.audit._learned_guess import GuessFeatures, guess_features, learned_levels, learned_numbers
from discreet.audit.targets import Target, group_by_person, plan_targets
from discreet.errors import ParameterError
from discreet.noise import uniform_integers
from discreet.noise.stream import Stream, stream_or_fresh
from discreet.noise_law import InvariantLaw
from discreet.release.mechanism import uniform_prior
from discreet.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from discreet._types import AnyArray, Ints
    from discreet.privacy import Promise
    from discreet.release import ReleasePlan

    Progress = Callable[[int, int], None]

MOST_CELLS = 4_000_000
"""Largest number of made-up cells: a table of many columns is attacked with fewer records."""
MOST_ROWS_PER_UNIT = 8
"""Largest number of rows of one person that a guess uses together."""
TOTAL_SECONDS = 60.0
"""Time in seconds after which no further guess is learned; the results note what was left out."""
_FEWEST = 2_000
_LEARNED_FROM = 6_000
_INTERVAL_SHARE = 0.9
"""Share of the failure probability for the interval; the rest is for noise beyond its reach."""

LAW = "the declared ranges and lists, the published law, and one person's published row{s}"
ALSO_OTHERS = (
    "true and published records of {n:,} other people, and one person's published row{s}; not the law"
)


@dataclass(frozen=True, kw_only=True)
class PlannedAttacks:
    """A plan and the floor that it promises, for :func:`discreet.audit.run_audit`.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, which draws the noise of each row.
    claim : Promise
        Error floor that the plan promises, an :class:`~discreet.privacy.ErrorFloor`.
    n : int
        Number of made-up records that are attacked.
    name : str
        Noun for the plan in messages, such as "release".

    Privacy
    -------
    Built from public facts only.

    Reference
    ---------
    See :func:`attack_prior`.
    """

    plan: ReleasePlan
    claim: Promise
    n: int = 20_000
    name: str = "release"


@one_thread()
def attack_prior(
    plan: ReleasePlan,
    *,
    n: int = 20_000,
    failure_probability: float = 1e-6,
    seconds: float = 60.0,
    stream: Stream | None = None,
    progress: Progress | None = None,
) -> tuple[Guess, ...]:
    """Guess the cells of made-up people and compare the errors with the floors.

    Records are drawn from the prior that the floors name (every column uniform on its declared values, all
    columns independent, a number that may be missing missing with probability 1/2) and go through
    ``plan.noise``. Numbers are guessed by the posterior mean under that prior and the published law, which no
    other guess beats if the law is true; whole numbers also by rounding; every column also by a guess learned
    from other made-up people and their published records.

    Parameters
    ----------
    plan : ReleasePlan
        Plan of the release, of which ``schema``, ``columns`` and ``noise`` are used.
    n : int
        Number of people that are attacked; fewer where the table has many columns, see :data:`MOST_CELLS`.
    failure_probability : float
        Largest probability that any true floor is called broken, over all columns and attacks.
    seconds : float
        Time limit for the learned guess at one column; it is left out for a column that would exceed the
        limit, and for all columns after :data:`TOTAL_SECONDS`.
    stream : Stream, optional
        Source of records and noise; a fresh one by default.
    progress : callable, optional
        Function called with ``(done, total)`` after every column.

    Returns
    -------
    tuple of Guess
        Two or three for each protected column; ``verdict`` is "broken" where the whole interval of the
        attack's error is below the floor, and "no floor" where none is proven. None for columns whose law
        depends on the whole table.

    Privacy
    -------
    Depends on no real row.

    Reference
    ---------
    docs/explanation/theorems/bayes-floor.md for what is tested, bounded-mean.md for the intervals.

    Examples
    --------
    >>> from discreet import Column, ErrorFloor, GaussianRelease, Schema
    >>> from discreet.audit import attack_prior
    >>> from discreet.noise import Stream
    >>> schema = Schema(columns=[Column("age", type="integer", lower=17, upper=90, measure="years")])
    >>> plan = GaussianRelease(privacy=ErrorFloor(age=9), schema=schema).plan(schema, 1000)
    >>> guesses = attack_prior(plan, n=4000, stream=Stream.from_seed(1))
    >>> {guess.attack: guess.verdict for guess in guesses}
    {'posterior mean': 'holds', 'rounding': 'holds', 'learned': 'holds'}
    """
    check_failure_probability(failure_probability, "attack_prior")
    if n < 100:
        raise ParameterError(f"n of attack_prior must be at least 100, was {n}. 20,000 is the usual choice.")
    if not plan.row_level:
        return ()
    attacked = [
        t for t in plan_targets(plan) if not t.is_clear and not isinstance(t.summary.law, InvariantLaw)
    ]
    if not attacked:
        return ()
    stream = stream_or_fresh(stream)
    simulation = _Simulation.from_plan(plan, n, stream)
    attempts = sum(2 + _is_whole(t) for t in attacked)
    # Union bound over all attacks, including learned ones that may be left out.
    share = failure_probability / attempts
    deadline = time.monotonic() + TOTAL_SECONDS
    slowest = 0.0
    guesses: list[Guess] = []
    for done, target in enumerate(attacked, start=1):
        results = simulation.guess_by_law(target, share)
        spare = deadline - time.monotonic()
        # The time of the last learned guess predicts that of this one.
        if slowest < min(seconds, spare):
            learned = simulation.guess_by_learning(target, share)
            slowest = learned.seconds
            results.append(learned)
        else:
            results = [add_note(g, LEFT_OUT) for g in results]
        guesses += results
        if progress is not None:
            progress(done, len(attacked))
    return tuple(guesses)


def attack_floor(subject: PlannedAttacks, failure_probability: float, stream: Stream | None) -> AuditResult:
    """Run :func:`attack_prior` on a plan and return the guess that came closest to its floor."""
    guesses = attack_prior(subject.plan, n=subject.n, failure_probability=failure_probability, stream=stream)
    # By the upper end of the interval: a floor is broken only if even that error is below it.
    floored = [(g.floor / g.upper if g.upper else np.inf, g) for g in guesses if g.floor is not None]
    if not floored:
        return AuditResult(
            attack="reconstruct",
            claim=subject.claim,
            verdict="not tested",
            reason=f"The {subject.name} has no column with a floor and a law of its own.",
        )
    ratio, worst = max(floored, key=lambda pair: pair[0])
    broken = worst.verdict == "broken"
    return AuditResult(
        attack="reconstruct",
        claim=subject.claim,
        verdict="broken" if broken else "holds",
        reason=f"{worst.column!r} is guessed with an error below its floor by the attack {worst.attack!r}."
        if broken
        else f"No attack of {len(guesses)} got below a floor; {worst.attack!r} on {worst.column!r} came "
        "closest.",
        quantity=f"floor of {worst.column} over the error of the attack, at least",
        measured=ratio,
        allowed=1.0,
        failure_probability=failure_probability,
        n=worst.n,
        knowledge=worst.knowledge,
        details={"guesses": [str(g) for g in guesses]},
    )


def _is_whole(target: Target) -> bool:
    return target.column.is_whole


def prior_records(plan: ReleasePlan, n: int, stream: Stream) -> dict[str, AnyArray]:
    """Draw records from the floors' prior: independent columns, each uniform on its declared values."""
    return {target.name: _prior_cells(target, n, stream) for target in plan_targets(plan)}


def _prior_cells(target: Target, n: int, stream: Stream) -> AnyArray:
    """Draw n cells of a column from the floor's prior: codes of a list, or numbers with NaN for missing."""
    column = target.column
    if column.is_category:
        return target.prior_codes[uniform_integers(target.prior_codes.size, n, stream)]
    lower, upper = column.range
    values: AnyArray
    if column.type == "number":
        # The upper 53 bits of a word: as many as a double holds exactly.
        values = lower + (upper - lower) * (stream.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    elif column.n_integers <= 1 << 31:
        values = lower + uniform_integers(column.n_integers, n, stream)
    else:
        # With so many integers the rounding of a 53-bit fraction is negligible.
        fraction = (stream.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        values = lower + np.floor(fraction * column.n_integers)
    if not column.required:
        values = np.where(uniform_integers(2, n, stream) == 1, np.nan, values)
    return np.asarray(values, np.float64)


@dataclass(frozen=True, eq=False)
class _Simulation:
    """Made-up people with their published records, split into those known to the attacker and the rest.

    Attributes
    ----------
    records : mapping of str to array of shape (people,)
        True cells of all made-up people, by column.
    published : mapping of str to array of shape (people, rows)
        Published cells of each person's rows, by column.
    features : GuessFeatures
        Published columns as a feature matrix.
    places : mapping of str to int
        Index of each published column in ``features.columns``.
    known, unknown : array of int
        Indices of the people whose records a guess is learned from, and of those who are attacked.
    rows : int
        Number of rows of each person.
    note : str
        Limits of the simulation for the results, or "".
    """

    records: Mapping[str, AnyArray]
    published: Mapping[str, AnyArray]
    features: GuessFeatures
    places: Mapping[str, int]
    known: Ints
    unknown: Ints
    rows: int
    note: str

    @classmethod
    def from_plan(cls, plan: ReleasePlan, n: int, stream: Stream) -> _Simulation:
        """Draw n people to attack, and some to learn from, and publish all of them by the plan's noise."""
        schema = plan.schema
        allowed = schema.max_rows_per_unit or 1
        rows = min(allowed, MOST_ROWS_PER_UNIT)
        fits = MOST_CELLS // (len(schema.released) * rows)
        # Fewer people where the table is wide, so that the made-up cells stay near MOST_CELLS.
        attacked = max(min(n, _FEWEST), min(n, fits * 2 // 3))
        learned_from = min(attacked, _LEARNED_FROM)
        total = attacked + learned_from
        records = prior_records(plan, total, stream.derive("records from the prior"))
        copies = {name: np.repeat(values, rows) for name, values in records.items()}
        # One call for all people, so that noise that is shared between rows can be learned.
        drawn = plan.noise(copies, stream.derive("noise on records from the prior"))
        published = group_by_person(drawn, rows)
        notes = []
        if attacked < n:
            notes.append(f"{attacked} records, because the table has {len(schema.released)} columns")
        if rows > 1 or allowed > 1:
            notes.append(f"{rows} of at most {allowed} rows of each {schema.unit} together")
        return cls(
            records=records,
            published=published,
            features=guess_features(schema.released, published),
            places={column.name: place for place, column in enumerate(schema.released)},
            known=np.arange(attacked, total),
            unknown=np.arange(attacked),
            rows=rows,
            note="; ".join(notes),
        )

    def guess_by_law(self, target: Target, failure_probability: float) -> list[Guess]:
        """Return the guesses computed from the prior and the published law, and for integers by rounding."""
        start = time.monotonic()
        knowledge = LAW.format(s="s" * (self.rows > 1))
        guess: AnyArray
        if target.is_list:
            codes = self.published[target.name][self.unknown]
            guess = likeliest_levels(target.response, codes, target.prior_weights)
            return [
                self._build_guess(target, "response inversion", guess, failure_probability, start, knowledge)
            ]
        cells = self.published[target.name][self._with_value(target, self.unknown)]
        results = []
        if target.channel is not None:
            candidates = uniform_candidates(target.column, target.channel.fineness)
            guess, _ = posterior_means(target.channel, cells, candidates)
            note = self._missing_note(target)
            results.append(
                self._build_guess(
                    target, "posterior mean", guess, failure_probability, start, knowledge, note
                )
            )
        if _is_whole(target):
            start = time.monotonic()
            present = ~np.isnan(cells)
            # Rounding undoes noise below 1/2, whatever its law.
            guess = np.rint(np.where(present, cells, 0.0).sum(axis=1) / present.sum(axis=1))
            results.append(
                self._build_guess(
                    target, "rounding", guess, failure_probability, start, "one person's published row"
                )
            )
        return results

    def guess_by_learning(self, target: Target, failure_probability: float) -> Guess:
        """Return the guess of a model trained on the true and published records of other people."""
        start = time.monotonic()
        own, truth = self.places[target.name], self.records[target.name]
        guess: AnyArray
        known = self._with_value(target, self.known)
        unknown = self._with_value(target, self.unknown)
        if target.is_list:
            guess = learned_levels(self.features, own, len(target.column.levels), truth, known, unknown)
        else:
            guess = learned_numbers(self.features, own, _is_whole(target), truth, known, unknown)
        knowledge = ALSO_OTHERS.format(n=known.size, s="s" * (self.rows > 1))
        return self._build_guess(target, "learned", guess, failure_probability, start, knowledge)

    def _with_value(self, target: Target, people: Ints) -> Ints:
        """Return the people with a true value and at least one published number.

        Notes
        -----
        Whether a number is published as missing does not depend on its value, so the floor holds among the
        people for whom it is not.
        """
        if target.is_list:
            return people
        published = ~np.isnan(self.published[target.name][people]).all(axis=1)
        return people[published & ~np.isnan(self.records[target.name][people])]

    def _within_reach(self, target: Target, guess: AnyArray, people: Ints) -> tuple[AnyArray, float]:
        """Move guesses near the published numbers, and return them with the largest possible error.

        Notes
        -----
        If the law is true, a value is no farther from the published number than the reach ``r`` of the noise,
        and no farther once that number is clipped to the range. A guess within ``r / 2`` of it loses next to
        nothing and is never wrong by more than ``1.5 r``, which makes the interval of the error shorter.
        """
        lower, upper = target.column.range
        width = upper - lower
        reach = target.channel.reach if target.channel is not None else np.inf
        if 1.5 * reach >= width:
            return np.clip(guess, lower, upper), width
        cells = self.published[target.name][people]
        present = ~np.isnan(cells)
        mean = np.where(present, cells, 0.0).sum(axis=1) / present.sum(axis=1)
        near = np.clip(mean, lower, upper)
        return np.clip(guess, near - reach / 2, near + reach / 2), 1.5 * reach

    def _missing_note(self, target: Target) -> str:
        """Return a sentence on how well missing numbers are recognized, which has no floor of its own."""
        if target.missing_keep is None or target.channel is None:
            return ""
        cells = self.published[target.name][self.unknown]
        candidates = uniform_candidates(target.column, target.channel.fineness)
        _, present = posterior_means(target.channel, cells, candidates)
        fill = np.full(cells.shape, target.column.fill)
        likelihood = target.channel.log_likelihood(np.where(np.isnan(cells), fill, cells), fill)
        # A cell that is shown as missing says nothing about the number.
        absent = np.where(np.isnan(cells), 0.0, likelihood).sum(axis=1)
        guess = missing_guesses(present, absent, cells, target.missing_keep)
        wrong = guess != np.isnan(self.records[target.name][self.unknown])
        return f"whether it is missing is guessed wrong for {wrong.mean():.1%} of the records"

    def _build_guess(
        self,
        target: Target,
        attack: str,
        guess: AnyArray,
        failure_probability: float,
        start: float,
        knowledge: str,
        note: str = "",
    ) -> Guess:
        """Return the error of a guess with its interval and the verdict on the floor."""
        people = self._with_value(target, self.unknown)
        truth = self.records[target.name][people]
        without: float
        if target.is_list:
            error, lower, upper = share_interval(guess != truth, failure_probability)
            # Under a uniform prior no guess without the release is better than any other.
            without = 1 - 1 / target.prior_codes.size
        else:
            guess, largest = self._within_reach(target, guess, people)
            # The rest of the failure probability is for a value beyond the reach of its noise.
            error, lower, upper = rms_interval(guess, truth, largest, _INTERVAL_SHARE * failure_probability)
            without = uniform_prior(target.column).largest
        return Guess(
            attack=attack,
            column=target.name,
            statistic=target.statistic,
            measure=target.column.measure,
            error=error,
            lower=lower,
            upper=upper,
            failure_probability=failure_probability,
            without=without,
            floor=target.floor,
            verdict=floor_verdict(target.floor, upper),
            on="prior",
            knowledge=knowledge,
            n=people.size,
            seconds=time.monotonic() - start,
            note="; ".join(part for part in (self.note, note) if part),
        )
