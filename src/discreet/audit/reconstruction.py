"""What an attacker could rebuild by now: linear reconstruction from all answers that a ledger has kept.

The attacker knows every cell of everybody, but for one column of some people; of that column he knows how
often each value occurs. He takes what he knows off every answer, and guesses all unknown cells at once, by
the linear guess with the least mean square error (Dinur and Nissim 2003 have shown what that does to answers
with too little noise). Beside it stand the error without any answer, the error for people whose own cell is
in no answer, and the least error that what was spent allows anybody.

``answers`` reads what was answered, ``contributions`` says what single rows add to it, ``unknown`` guesses,
``guessing`` has the floors.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from discreet.audit._guess import (
    FAILURE,
    Guess,
    max_success_probability,
    min_error,
    approximate_rms_interval,
    share_interval,
)
from discreet.audit._linear_reconstruction import People, Thought, guess_column, row_promise, sql_names
from discreet.audit.stored_answers import noise_alarms, read_stored_answers
from discreet.errors import ParameterError, PromiseError, SelfAttackFailed
from discreet.privacy import NoPromise

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet._types import AnyArray, Floats
    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.privacy import Promise
    from discreet.query.curation import Curated, Curation
    from discreet.query.execution import QueryExecutor
    from discreet.schema import Column

PEOPLE = 1000
"""Whose cells are guessed at once, unless told otherwise."""

KNOWLEDGE = (
    "every cell of everybody, but for this column of {people:,} people at once; how often each value of the "
    "column occurs; every answer that was ever given, and its noise law"
)


@dataclass(frozen=True, kw_only=True)
class ReconstructedColumn:
    """How well the cells of one column are guessed.

    Attributes
    ----------
    guess : Guess
        Error of the attack, without any answer, and the floor by what was spent; on real rows.
    alike : float
        Error of the same guess at people whose own cell is in no answer: what answers tell about everybody
        who is like them. What the attack does better than this, it owes to people's own cells.
    floor_at_limit : float or None
        The floor once the whole budget is spent.
    moved : float
        By how many standard deviations of their noise one person's cell moves all answers together, at most.
    answers : int
        How many answers depend on the column.

    Privacy
    -------
    Internal: every number depends on private rows.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``.
    """

    guess: Guess
    alike: float
    floor_at_limit: float | None
    moved: float
    answers: int

    def sentence(self) -> str:
        """Say it in words."""
        guess = self.guess
        if guess.statistic == "probability of a wrong guess":
            said = (
                f"{guess.column}: guessed right for {1 - guess.error:.1%} of people; {1 - guess.without:.1%} "
                f"without any answer, {1 - self.alike:.1%} by what answers tell about others."
            )
            limit = "" if guess.floor is None else f" No method can pass {1 - guess.floor:.1%}"
        else:
            unit = f" {guess.measure}" if guess.measure else ""
            said = (
                f"{guess.column}: guessed to ± {guess.error:.4g}{unit}; ± {guess.without:.4g} without any "
                f"answer, ± {self.alike:.4g} by what answers tell about others."
            )
            limit = "" if guess.floor is None else f" No method can go below ± {guess.floor:.4g}"
        if limit:
            limit += " for a value that could be anybody's."
            if guess.floor is not None and guess.upper < guess.floor:
                limit += " This guess is better because people who are alike have much in common."
        return said + limit

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "column": self.guess.column,
            "guess": self.guess.to_dict(),
            "alike": self.alike,
            "floor_at_limit": self.floor_at_limit,
            "moved": self.moved,
            "answers": self.answers,
            "sentence": self.sentence(),
        }


@dataclass(frozen=True, kw_only=True)
class Reconstruction:
    """What all answers so far give away, and whether they are what was paid for.

    Attributes
    ----------
    people : int
        Whose cells were guessed at once.
    used : int
        How many answers the attack used.
    unused : mapping of str to int
        How many it did not, by reason.
    columns : tuple of ReconstructedColumn
        One for each column that was attacked.
    alarms : tuple of str
        What cannot be if the program is right: noise smaller or larger than declared, or a person who moves
        answers further than was charged. Empty otherwise.
    seconds : float
        How long it took.

    Privacy
    -------
    Internal: it compares with private rows, and is shown to the curator alone. An alarm is false with
    probability :data:`~discreet.audit.stored_answers.FALSE_ALARM` at most.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``.
    """

    kind: ClassVar[str] = "reconstruction"

    people: int
    used: int
    unused: Mapping[str, int]
    columns: tuple[ReconstructedColumn, ...]
    alarms: tuple[str, ...]
    seconds: float

    def check(self) -> None:
        """Raise :class:`~discreet.errors.SelfAttackFailed` if there is an alarm."""
        if self.alarms:
            raise SelfAttackFailed(
                "Answers must be what was paid for, and are not: " + " ".join(self.alarms) + " Stop the "
                "service, and have the program looked at before anybody asks again.",
                broken=self.alarms,
            )

    @property
    def sentences(self) -> tuple[str, ...]:
        """What to tell the curator, the most important first."""
        said = [f"Alarm: {alarm}" for alarm in self.alarms]
        if not self.used:
            return (
                *said,
                "No answer has been given yet that could be used: there is nothing to rebuild from.",
            )
        said.append(
            f"Somebody who knows everything but one column of {self.people:,} people, and has every answer "
            f"so far (the attack uses {self.used:,}), would guess that column as follows."
        )
        said += [column.sentence() for column in self.columns if column.answers]
        rest = [column.guess.column for column in self.columns if not column.answers]
        if rest:
            said.append(f"No answer depends on {', '.join(rest)}.")
        if self.unused:
            listed = "; ".join(f"{count:,} {reason}" for reason, count in self.unused.items())
            said.append(f"Not used by this attack: {listed}.")
        return tuple(said)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "kind": self.kind,
            "people": self.people,
            "used": self.used,
            "unused": dict(self.unused),
            "columns": [column.to_dict() for column in self.columns],
            "alarms": list(self.alarms),
            "sentences": list(self.sentences),
            "seconds": self.seconds,
        }


def reconstruct(
    database: QueryExecutor,
    ledger: Ledger | None = None,
    *,
    columns: Sequence[str] | None = None,
    people: int = PEOPLE,
    stream: Stream | None = None,
) -> Reconstruction:
    """Guess private cells from all answers so far, and see whether the answers are what was paid for.

    Parameters
    ----------
    database : Database
        Whose answers are attacked; it is asked for exact sums, and for the rows of those who are attacked.
    ledger : Ledger, optional
        Where the answers are; that of the database if left out.
    columns : sequence of str, optional
        Which to guess; all but public ones if left out.
    people : int
        How many are attacked at once, or everybody if there are not as many.
    stream : Stream, optional
        Decides who is attacked.

    Returns
    -------
    Reconstruction
        With alarms, if there are any; :meth:`Reconstruction.check` raises on them.

    Privacy
    -------
    Internal. Nothing is charged, and nothing of it may leave the curator's own pages. The floors are for what
    was spent so far, read as if the costs had been fixed beforehand; what holds against analysts who choose
    each question after seeing answers is ``floor_at_limit``.

    Reference
    ---------
    Dinur and Nissim (2003); the linear guess with the least mean square error is textbook.
    ``docs/explanation/theorems/guessing.md``.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("owner", values=(0, 1))])
    >>> with Database({"owner": [0, 1, 1, 0] * 250}, schema=schema) as db:
    ...     answer = db.count("owner = 1", privacy=GaussianDP(mu=0.2))
    ...     found = reconstruct(db)
    >>> found.used, found.alarms, found.columns[0].guess.error > 0.4
    (1, (), True)
    """
    began = time.monotonic()
    if isinstance(people, bool) or not isinstance(people, int) or people < 1:
        raise ParameterError(f"people of reconstruct must be a whole number of at least 1, was {people!r}.")
    book = database.ledger if ledger is None else ledger
    named = _named(database.curation, columns)
    answers, unused = read_stored_answers(database, book)
    alarms = list(noise_alarms(answers))
    known = People.from_counts(database, named, people, stream)
    promises = (row_promise(_spent(book)), row_promise(book.guarantee()))
    rebuilt = []
    beyond: dict[int, str] = {}
    for column in named:
        told = [answer for answer in answers if not answer.by_rows.reads.isdisjoint(sql_names(column))]
        thought = guess_column(column, known, told)
        for row, moved, charged in thought.beyond:
            beyond[row] = (
                f"Another {column.name} of one person would move the answer in row {row} of the ledger by "
                f"{moved:.4g}, where {charged:.4g} was charged."
            )
        declared = database.schema.column(column.name)
        rebuilt.append(_rebuilt(column, declared, known, thought, promises, len(told)))
    return Reconstruction(
        people=known.size,
        used=len(answers),
        unused=unused,
        columns=tuple(rebuilt),
        alarms=(*alarms, *(beyond[row] for row in sorted(beyond))),
        seconds=time.monotonic() - began,
    )


def _named(curation: Curation, columns: Sequence[str] | None) -> list[Curated]:
    if columns is not None:
        return [curation.column(name) for name in columns]
    return [c for c in curation.columns if curation.schema.column(c.name).role != "public"]


def _spent(ledger: Ledger) -> Promise:
    """Return what all charges come to, at a delta if they can be read at one alone."""
    spent = ledger.spent()
    for delta in (None, 1e-6, 1e-3):
        try:
            return spent.promise(delta)
        except PromiseError:
            continue
    return NoPromise("the deltas of all charges are too large to be read together")


def _rebuilt(
    column: Curated,
    declared: Column,
    people: People,
    thought: Thought,
    promises: tuple[Promise | None, Promise | None],
    answers: int,
) -> ReconstructedColumn:
    told = (_level if column.is_category else _number)(column, declared, people, thought)
    floors = [None if promise is None else told.floor(promise) for promise in promises]
    return ReconstructedColumn(
        guess=Guess(
            attack="linear reconstruction",
            column=column.name,
            statistic="probability of a wrong guess" if column.is_category else "root-mean-square error",
            measure=declared.measure or ("days" if declared.type == "date" else None),
            error=told.error[0],
            lower=told.error[1],
            upper=told.error[2],
            failure_probability=FAILURE,
            without=told.without,
            floor=floors[0],
            verdict="shown",
            on="rows",
            knowledge=KNOWLEDGE.format(people=people.size),
            n=people.size,
            seconds=0.0,
        ),
        alike=told.alike,
        floor_at_limit=floors[1],
        moved=thought.moved,
        answers=answers,
    )


@dataclass(frozen=True)
class _Errors:
    """Of the attack with its interval, without any answer, without people's own cells; and the least."""

    error: tuple[float, float, float]
    without: float
    alike: float
    floor: Callable[[Promise], float]


def _like_everybody(
    error: tuple[float, float, float], alike: float, sample: float, everybody: float, most: float
) -> tuple[tuple[float, float, float], float]:
    """Correct for who happened to be drawn, by how well they are guessed without any answer."""
    factor = everybody / sample if sample else 1.0
    corrected = (min(most, error[0] * factor), min(most, error[1] * factor), min(most, error[2] * factor))
    return corrected, min(most, alike * factor)


def _level(column: Curated, declared: Column, people: People, thought: Thought) -> _Errors:
    cells, shares = people.cells[column.sql], people.shares(column)

    def missed(by: Floats) -> AnyArray:
        wrong: AnyArray = thought.prior.cells[np.argmax(by, axis=-1)] != cells
        return wrong

    without = 1 - float(max(shares))
    error, alike = _like_everybody(
        share_interval(missed(thought.after), FAILURE),
        float(np.mean(missed(thought.alike))),
        float(np.mean(missed(thought.prior.weights))),
        without,
        1.0,
    )
    return _Errors(
        error, without, alike, lambda promise: max(0.0, 1 - max_success_probability(promise, shares.tolist()))
    )


def _number(column: Curated, declared: Column, people: People, thought: Thought) -> _Errors:
    there = np.ones(people.size, bool) if column.flag is None else people.cells[column.flag] == 0
    if not there.any():
        there[:] = True  # nobody has a number: the fill is guessed, which everybody knows
    prior, numbers = thought.prior, thought.prior.numbers(column)
    mean, without = people.spread(column)
    truth = column.lower + column.step * people.cells[column.sql][there].astype(np.float64)

    def guess(by: Floats) -> Floats:
        # Weights of a linear guess need not add up to 1: what counts is how far they are from the prior's.
        moved: Floats = (by - prior.weights) @ (numbers - mean)
        guessed: Floats = np.clip(mean + moved, *declared.range)[there]
        return guessed

    def root(guessed: Floats | float) -> float:
        return float(np.sqrt(np.mean((truth - guessed) ** 2)))

    width = column.step * column.top
    error, alike = _like_everybody(
        approximate_rms_interval(guess(thought.after), truth, declared.range, FAILURE),
        root(guess(thought.alike)),
        root(mean),
        without,
        width,
    )
    sd = people.least_sd(column)
    return _Errors(error, without, alike, lambda promise: min_error(promise, sd=sd, width=width))
