"""Work of a question, estimated from public facts before it runs, and how callers share the time for it.

Seconds of one processor. They follow from the text of the request, the schema, the declared number of rows
and the engine, and from no row: an estimate decides who waits for whom, so it must be public.
"""

from __future__ import annotations

import heapq
import itertools
import math
import threading
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from discreet.batching import Step
from discreet.query.language import parse
from discreet.schema import Column, Schema

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Sequence

T = TypeVar("T")

_HOUR = 3600.0
_UNKNOWN_ROWS = 10**6  # where the number of rows is not public

# Seconds on a machine that reads a character of an expression in REFERENCE seconds; others are scaled.
_REFERENCE = 2e-5
_QUESTION = 3e-3  # charge, pass, answer and log line of the smallest question
_SUM = 5e-4  # an engine plans one sum or table
_CELL = 2.5e-5  # noise, store and text of one number
_HIDDEN = 5e-6  # noise and record of one count in the tree of a quantile
_CHARACTER = 6e-5  # an expression is read, bound and written as SQL, for one of its characters
_TRIAL = 0.15  # a database of made-up rows is opened
_VALUE = 2e-6  # one value of made-up rows is drawn, written or loaded

LIGHT = 0.05
"""Seconds of work above which a question is heavy, unless the smallest one on its table takes as long."""
_LIGHT_MULTIPLE = 4.0  # a question of less than so many of the smallest is light on any table

_PROBE = "CASE WHEN age > {0} AND age < 90 THEN (age - {0}) / 120 ELSE age / 240 END + age / 480"


@dataclass(frozen=True, slots=True)
class WorkModel:
    """Seconds that a question to one data set takes, from public facts alone.

    Attributes
    ----------
    rows : int
        Number of rows if it is public, a million otherwise.
    per_row : float
        Seconds in which the engine adds one row to one sum.
    speed : float
        Seconds of this machine for a second of the one that the constants were measured on.
    """

    rows: int
    per_row: float
    speed: float

    @classmethod
    def for_engine(cls, row_seconds: float, n_rows: int | None, speed: float) -> WorkModel:
        """Return the model of a data set.

        Parameters
        ----------
        row_seconds : float
            Seconds in which its engine adds one row to one sum.
        n_rows : int or None
            Number of rows where it is public; None where it is not.
        speed : float
            As :func:`measure_speed` returns it.
        """
        return cls(_UNKNOWN_ROWS if n_rows is None else n_rows, row_seconds * speed, speed)

    @property
    def smallest(self) -> float:
        """Seconds of the smallest question, a count."""
        return self.estimate_question(sums=1, cells=1)

    def estimate_question(self, *, sums: int, cells: int, hidden: int = 0) -> float:
        """Return the seconds of a question whose texts were read.

        Parameters
        ----------
        sums : int
            Number of sums or tables that the engine computes.
        cells : int
            Number of integers that get noise.
        hidden : int
            Number of further counts that get noise, and that the answer does not show.
        """
        planned = self.speed * (_QUESTION + _SUM * sums + _CELL * cells + _HIDDEN * hidden)
        return planned + self.rows * self.per_row * sums

    def estimate_reading(self, characters: int) -> float:
        """Return the seconds in which a request of so many characters is read and, if small, answered."""
        return self.smallest + self.speed * _CHARACTER * characters

    def estimate_planning(self, characters: int) -> float:
        """Return the seconds in which a request of so many characters is read and its cost computed."""
        return self.speed * (_QUESTION + _CHARACTER * characters)

    def estimate_dummy(self, values: int) -> float:
        """Return the seconds in which so many values of made-up rows are drawn and sent."""
        return self.speed * _VALUE * values

    def estimate_trial(self, *, values: int, sums: int, cells: int, hidden: int = 0) -> float:
        """Return the seconds of a question to made-up rows.

        Parameters
        ----------
        values : int
            Number of values in the rows.
        sums, cells, hidden
            As for :meth:`estimate_question`.
        """
        counted = _SUM * sums + _CELL * cells + _HIDDEN * hidden
        return self.estimate_dummy(values) + self.speed * (_TRIAL + counted)

    @property
    def light(self) -> float:
        """Seconds above which a question must not be answered together with small ones."""
        return max(LIGHT, _LIGHT_MULTIPLE * self.smallest)


@cache
def measure_speed() -> float:
    """Return how much slower this machine reads an expression than the one of the constants, measured once.

    The least of a few texts about a made-up schema: an interruption makes a time longer, and never shorter.
    """
    schema = Schema(columns=[Column("age", type="integer", lower=0, upper=120)])
    parse(_PROBE.format(0), schema)  # imports and tables of the parser
    seconds = []
    for number in range(1, 9):
        text = _PROBE.format(number)
        started = time.thread_time()
        parse(text, schema)
        seconds.append((time.thread_time() - started) / len(text))
    return min(seconds) / _REFERENCE


class DeclareWork(Step):
    """Step with which a task says how much work it turned out to be, before anything is charged."""

    __slots__ = ()


class Planning(Step):
    """Step that reads texts and sees no row, so that its time is public and others may go first."""

    __slots__ = ()


def declare_work(seconds: float) -> DeclareWork:
    """Return the step that declares so many seconds of work."""
    return DeclareWork(_accept, seconds)


def _accept(seconds: Sequence[float]) -> list[None]:
    return [None] * len(seconds)


class WorkBudget:
    """Seconds of work that each caller may use in an hour, as a bucket that fills evenly.

    Parameters
    ----------
    per_hour : float
        Seconds of estimated work an hour; also the most that a caller can have saved up.
    """

    def __init__(self, per_hour: float) -> None:
        self._capacity = per_hour
        self._lock = threading.Lock()  # callers ask on the event loop, and their models on other threads
        self._levels: dict[str | None, tuple[float, float]] = {}

    def take(self, name: str | None, seconds: float, now: float | None = None) -> int | None:
        """Take work from a caller's bucket; return None, or the seconds to wait, in whole minutes.

        Parameters
        ----------
        name : str or None
            Caller whose bucket it is.
        seconds : float
            Estimated work; a question larger than the whole bucket needs a full one.
        now : float, optional
            Monotonic time; None takes that of the clock.
        """
        with self._lock:
            level, time_now = self._level(name, now)
            needed = min(seconds, self._capacity)
            if level < needed:
                self._levels[name] = (level, time_now)
                minutes = math.ceil((needed - level) * _HOUR / self._capacity / 60)
                return 60 * max(1, minutes)
            self._levels[name] = (level - needed, time_now)
        return None

    def take_done(self, name: str | None, seconds: float, now: float | None = None) -> None:
        """Take work that was already done, even if the bucket has less: what comes next waits for it.

        Parameters
        ----------
        name, seconds, now
            As for :meth:`take`.
        """
        with self._lock:
            level, time_now = self._level(name, now)
            self._levels[name] = (level - seconds, time_now)

    def _level(self, name: str | None, now: float | None) -> tuple[float, float]:
        """Return what a caller's bucket holds now, and the time."""
        time_now = time.monotonic() if now is None else now
        level, since = self._levels.get(name, (self._capacity, time_now))
        return min(self._capacity, level + (time_now - since) * self._capacity / _HOUR), time_now


def texts_of(question: Any) -> Iterable[str]:
    """Yield the expressions of an aggregate as a request has it, also those of its parts."""
    if not isinstance(question, dict):
        return
    expressions = question.get("expressions")
    if isinstance(expressions, list):
        yield from (text for text in expressions if isinstance(text, str))
    parts = question.get("parts")
    for part in parts if isinstance(parts, list) else ():
        yield from texts_of(part)


class _Entry(NamedTuple):
    """Waiting item with its start tag, and its place among items of one tag."""

    start: float
    number: int
    work: float
    item: object


class FairQueue(Generic[T]):
    """Queue from which items are taken so that the work of all callers goes forward at the same pace.

    Start-time fair queueing: an item gets a start tag, the virtual time at which its caller's earlier items
    are done, and a finish tag, later by its work. Items are taken by increasing start tags, and the virtual
    time is the start tag of the last one taken. Over any time in which two callers have items waiting, the
    work taken for the two differs by at most the largest item of each.

    Reference
    ---------
    P. Goyal, H. M. Vin, H. Cheng: Start-time Fair Queueing. SIGCOMM 1996.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._numbers = itertools.count()
        self._finish: dict[Hashable, float] = {}  # finish tag of each caller's last item
        self._now = 0.0

    def push(self, caller: Hashable, item: T, work: float) -> None:
        """Add an item of a caller.

        Parameters
        ----------
        caller : hashable
            Name under which work is counted.
        item : object
            Item that :meth:`pop` returns when its turn comes.
        work : float
            Seconds that the item is estimated to take.
        """
        start = max(self._now, self._finish.get(caller, 0.0))
        self._finish[caller] = start + work
        heapq.heappush(self._heap, _Entry(start, next(self._numbers), work, item))

    def pop(self) -> tuple[T, float]:
        """Take the item whose turn it is, and return it with its work; raise IndexError if there is none."""
        entry = heapq.heappop(self._heap)
        self._now = max(self._now, entry.start)
        if not self._heap:
            # Nobody waits: who is served next starts without what was owed or saved up.
            self._now = max(self._now, *self._finish.values())
            self._finish.clear()
        return entry.item, entry.work  # type: ignore[return-value]

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[T]:
        return (entry.item for entry in self._heap)  # type: ignore[misc]
