"""Linear reconstruction of private cells from all answers that a ledger has stored.

The attacker knows every cell of every row, except one column of some people; of that column the attacker
knows the frequency of each value. The known contributions are subtracted from every answer, and all unknown
cells are guessed at once by the linear guess with the least mean square error (Dinur and Nissim 2003 show
what that does to answers with too little noise). Each result also has the error without any answer, the
error for people whose own cell is in no answer, and the least error that the spent budget allows any method.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from discreet.audit._column_errors import level_errors, number_errors
from discreet.audit._guess import FAILURE, Guess
from discreet.audit._linear_reconstruction import (
    ColumnAttacker,
    ColumnPosterior,
    People,
    row_promise,
)
from discreet.audit.stored_answers import AnswerReader, NoiseSize, noise_alarms
from discreet.errors import ParameterError, PromiseError, SelfAttackFailed
from discreet.formatting import NO_BREAK, number, percent
from discreet.privacy import NoPromise
from discreet.privacy.rounding import exact, float_up

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from discreet.ledger import Ledger
    from discreet.noise import Stream
    from discreet.privacy import Promise
    from discreet.query.curation import Curated, Curation
    from discreet.query.execution import QueryExecutor
    from discreet.schema import Column

PEOPLE = 1000
"""Default number of people whose cells are guessed at once."""

KNOWLEDGE = (
    "every cell of everybody, but for this column of {people:,} people at once; how often each value of the "
    "column occurs; every answer that was ever given, and its noise law"
)


@dataclass(frozen=True, kw_only=True)
class ReconstructedColumn:
    """Result of the reconstruction of one column.

    Attributes
    ----------
    guess : Guess
        Error of the attack, error without any answer, and the floor for the spent budget; on real rows.
    alike : float
        Error of the same guess at people whose own cell is in no answer: what answers reveal about similar
        people. Only the difference to this error comes from people's own cells.
    floor_at_limit : float or None
        Floor once the whole budget is spent; None if the limit is no promise about a row.
    moved : float
        Largest distance by which one person's cell moves all answers, in standard deviations of their noise.
    answers : int
        Number of answers that depend on the column.

    Privacy
    -------
    Internal: every number depends on private rows.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("owner", values=(0, 1))])
    >>> with Database({"owner": [0, 1, 1, 0] * 250}, schema=schema) as db:
    ...     answer = db.count("owner = 1", privacy=GaussianDP(0.2))
    ...     column = reconstruct(db).columns[0]
    >>> column.guess.column, column.answers
    ('owner', 1)
    """

    guess: Guess
    alike: float
    floor_at_limit: float | None
    moved: float
    answers: int

    def sentence(self) -> str:
        """Return the result in words, for the curator."""
        guess, limit = self.guess, ""
        if guess.statistic == "probability of a wrong guess":
            text = (
                f"{guess.column}: guessed right for {1 - guess.error:.1%} of people; {1 - guess.without:.1%} "
                f"without any answer, {1 - self.alike:.1%} by what answers tell about others."
            )
            if guess.floor is not None:
                most = percent(float_up(1 - exact(guess.floor)), rounding="up")
                limit = f" No method can pass {most.replace(NO_BREAK, '')}"
        else:
            unit = f" {guess.measure}" if guess.measure else ""
            text = (
                f"{guess.column}: guessed to ± {number(guess.error, digits=4)}{unit}; "
                f"± {number(guess.without, digits=4)} without any answer, "
                f"± {number(self.alike, digits=4)} by what answers tell about others."
            )
            if guess.floor is not None:
                limit = f" No method can go below ± {number(guess.floor, digits=4, rounding='down')}"
        if limit:
            limit += " for a value that could be anybody's."
            if guess.floor is not None and guess.upper < guess.floor:
                limit += " This guess is better because people who are alike have much in common."
        return text + limit

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
    """Result of an attack on all answers so far, with a check that their noise is as charged.

    Attributes
    ----------
    people : int
        Number of people whose cells were guessed at once.
    used : int
        Number of answers that the attack used.
    unused : mapping of str to int
        Number of answers that it could not use, by reason.
    columns : tuple of ReconstructedColumn
        Results, one for each attacked column.
    alarms : tuple of str
        Findings that show a broken program: noise smaller or larger than declared, or a person who moves
        answers further than was charged. Empty if there is none.
    seconds : float
        Running time of the attack, in seconds.

    Privacy
    -------
    Internal: it compares with private rows, and is for the curator only. An alarm is false with probability
    :data:`~discreet.audit.stored_answers.FALSE_ALARM` at most.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``.

    Examples
    --------
    >>> from discreet import Column, Database, GaussianDP, Schema
    >>> schema = Schema(columns=[Column("owner", values=(0, 1))])
    >>> with Database({"owner": [0, 1, 1, 0] * 250}, schema=schema) as db:
    ...     answer = db.count("owner = 1", privacy=GaussianDP(0.2))
    ...     found = reconstruct(db)
    >>> found.people, found.used, found.alarms
    (1000, 1, ())
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
        """The result in sentences for the curator, the most important first."""
        sentences = [f"Alarm: {alarm}" for alarm in self.alarms]
        if not self.used:
            return (
                *sentences,
                "No usable answer has been given yet, so nothing can be reconstructed.",
            )
        sentences.append(
            f"An attacker who knows everything but one column of {self.people:,} people, and has every "
            f"answer so far (the attack uses {self.used:,}), would guess that column as follows."
        )
        sentences += [column.sentence() for column in self.columns if column.answers]
        rest = [column.guess.column for column in self.columns if not column.answers]
        if rest:
            sentences.append(f"No answer depends on {', '.join(rest)}.")
        if self.unused:
            listed = "; ".join(f"{reason} ({count:,})" for reason, count in self.unused.items())
            sentences.append(f"Not used by this attack: {listed}.")
        return tuple(sentences)

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
    """Guess private cells from all answers so far, and check that the answers are as charged.

    Parameters
    ----------
    database : Database
        Database whose answers are attacked; its exact sums and the rows of the attacked people are read.
    ledger : Ledger, optional
        Ledger that stores the answers; that of the database by default.
    columns : sequence of str, optional
        Names of the columns to guess; by default all that are not public.
    people : int
        Number of people attacked at once; all of them if the table has fewer.
    stream : Stream, optional
        Source of the choice of people; a fresh one by default.

    Returns
    -------
    Reconstruction
        Results by column, and alarms; :meth:`Reconstruction.check` raises if there are any.

    Privacy
    -------
    Internal. Nothing is charged, and the result may not be shown to anyone but the curator. ``floor`` is for
    the budget spent so far, as if the costs had been fixed beforehand; against analysts who choose each query
    after seeing answers, ``floor_at_limit`` holds.

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
    reconstruction = Reconstructor(database, ledger, columns=columns, people=people, stream=stream)
    reconstruction.update()
    return reconstruction.result()


class Reconstructor:
    """The attack of :func:`reconstruct`, continued with new answers and with bounded memory.

    Parameters
    ----------
    database, ledger, columns, people, stream
        As for :func:`reconstruct`. The attacked people stay the same.

    Attributes
    ----------
    row : int
        Last row of the ledger whose answer was used.

    Privacy
    -------
    As for :func:`reconstruct`.

    Reference
    ---------
    ``docs/explanation/theorems/guessing.md``.
    """

    def __init__(
        self,
        database: QueryExecutor,
        ledger: Ledger | None = None,
        *,
        columns: Sequence[str] | None = None,
        people: int = PEOPLE,
        stream: Stream | None = None,
    ) -> None:
        """Choose the people and read their rows."""
        if isinstance(people, bool) or not isinstance(people, int) or people < 1:
            raise ParameterError(
                f"people of reconstruct must be a whole number of at least 1, was {people!r}."
            )
        start = time.monotonic()
        self._database = database
        self._ledger = database.ledger if ledger is None else ledger
        self._columns = _attacked_columns(database.curation, columns)
        self._reader = AnswerReader(database, self._ledger)
        self._noise: list[NoiseSize] = []
        self._people = People.from_counts(database, self._columns, people, stream)
        self._attackers = [ColumnAttacker(column, self._people) for column in self._columns]
        self._seconds = time.monotonic() - start

    @property
    def row(self) -> int:
        """Last row of the ledger whose answer was used."""
        return self._reader.row

    def update(self, keep_on: Callable[[], bool] = lambda: True) -> None:
        """Add the answers that the ledger has stored since the last call.

        Parameters
        ----------
        keep_on : callable
            Called between two pieces of answers; the update ends where it returns False.
        """
        start = time.monotonic()
        for answers in self._reader.read():
            self._noise += map(NoiseSize.from_answer, answers)
            for attacker in self._attackers:
                attacker.add(answers)
            if not keep_on():
                break
        self._seconds += time.monotonic() - start

    def result(self) -> Reconstruction:
        """Return what an attacker could reconstruct from all answers that were added."""
        start = time.monotonic()
        promises = (row_promise(_spent_promise(self._ledger)), row_promise(self._ledger.guarantee()))
        results = []
        # One alarm for each row of the ledger, although several columns may show it.
        violations: dict[int, str] = {}
        for column, attacker in zip(self._columns, self._attackers, strict=True):
            posterior = attacker.posterior()
            for row, shift, charged in posterior.violations:
                violations[row] = (
                    f"Another {column.name} of one person would move the answer in row {row} of the ledger "
                    f"by {shift:.4g}, where {charged:.4g} was charged."
                )
            declared = self._database.schema.column(column.name)
            results.append(
                _column_result(column, declared, self._people, posterior, promises, attacker.answers)
            )
        self._seconds += time.monotonic() - start
        return Reconstruction(
            people=self._people.size,
            used=len(self._noise),
            unused=self._reader.unused,
            columns=tuple(results),
            alarms=(*noise_alarms(self._noise), *(violations[row] for row in sorted(violations))),
            seconds=self._seconds,
        )


def _attacked_columns(curation: Curation, columns: Sequence[str] | None) -> list[Curated]:
    if columns is not None:
        return [curation.column(name) for name in columns]
    return [c for c in curation.columns if curation.schema.column(c.name).role != "public"]


def _spent_promise(ledger: Ledger) -> Promise:
    """Return the composition of all charges, at a delta where it has no other form."""
    spent = ledger.spent()
    for delta in (None, 1e-6, 1e-3):
        try:
            return spent.promise(delta)
        except PromiseError:
            continue
    return NoPromise("the deltas of all charges are too large to be read together")


def _column_result(
    column: Curated,
    declared: Column,
    people: People,
    posterior: ColumnPosterior,
    promises: tuple[Promise | None, Promise | None],
    answers: int,
) -> ReconstructedColumn:
    """Compare a posterior with the true cells and with the floors.

    Parameters
    ----------
    column, declared : Curated, Column
        The column as curated and as declared in the schema.
    people : People
        Attacked rows with their true cells.
    posterior : ColumnPosterior
        The attacker's weights of the values.
    promises : tuple of (Promise or None, Promise or None)
        Promises to a replaced row by what was spent and by the limit; None where there is none.
    answers : int
        Number of answers that depend on the column.
    """
    errors = (level_errors if column.is_category else number_errors)(column, declared, people, posterior)
    floors = [None if promise is None else errors.floor(promise) for promise in promises]
    return ReconstructedColumn(
        guess=Guess(
            attack="linear reconstruction",
            column=column.name,
            statistic="probability of a wrong guess" if column.is_category else "root-mean-square error",
            measure=declared.unit_name,
            error=errors.error[0],
            lower=errors.error[1],
            upper=errors.error[2],
            failure_probability=FAILURE,
            without=errors.without,
            floor=floors[0],
            verdict="shown",
            on="rows",
            knowledge=KNOWLEDGE.format(people=people.size),
            n=people.size,
            seconds=0.0,
        ),
        alike=errors.control,
        floor_at_limit=floors[1],
        moved=posterior.max_shift,
        answers=answers,
    )
