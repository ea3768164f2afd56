"""Batch execution of work that waits at the same time.

A :class:`BatchExecutor` serves threads: a commit to disk or a pass over the rows costs as much for one item
as for fifty, so the first thread that finds the executor idle leads, and executes the items of all threads
that wait by then. :func:`run_batch` serves one thread that has many queries: each is a generator of steps,
and the steps that all of them wait for are executed together.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

PART = 256
"""Number of values after which a long computation gives way."""


class _Pace(threading.local):
    """How the present thread leaves room for others.

    Attributes
    ----------
    give_way : callable or None
        Function that is called between two parts of a long computation; None goes on at once.
    rest : callable or None
        Function that sleeps after so many seconds of work. It is set in the background, where nobody else may
        wait for the passes over rows that a thread needs; None elsewhere.
    background : bool
        Whether the thread makes a pass over rows for callers in the background, for which engines that can
        have a connection of their own.
    """

    give_way: Callable[[], None] | None = None
    rest: Callable[[float], None] | None = None
    background: bool = False


PACE = _Pace()


def give_way() -> None:
    """Let other threads go first, between two parts of a long computation that sees no row.

    A thread that is not paced goes on at once.
    """
    if PACE.give_way is not None:
        PACE.give_way()


def in_parts(values: Iterable[T]) -> Iterator[T]:
    """Yield values, and give way after every few hundred of them."""
    for number, value in enumerate(values):
        if number % PART == 0:
            give_way()
        yield value


Item = TypeVar("Item")
Result = TypeVar("Result")


class _Entry(Generic[Item, Result]):
    """Items of one caller that are executed in one batch."""

    __slots__ = ("error", "gate", "items", "key", "leads", "numbers", "results", "weight")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.items: list[Item] = []
        self.numbers: list[int] = []
        self.weight = 0
        self.leads = False
        self.results: Sequence[Result | Exception] = ()
        self.error: Exception | None = None
        # Locked from the start: the leader releases it when the entry is done, or has to lead itself.
        self.gate = threading.Lock()
        self.gate.acquire()


class BatchExecutor(Generic[Item, Result]):
    """Queue of threads whose items are executed in shared batches, one batch at a time.

    Parameters
    ----------
    work : callable
        Executes one batch. It is given a function ``take`` that returns the items of the batch, and returns
        one result per item in the same order, an Exception for an item that failed alone. Items join the
        batch until ``take`` is called, so work that has to wait for a lock calls it once it holds the lock.
    failure : callable
        Makes a new error for a caller whose batch another thread led, from what `work` raised there: an
        exception belongs to one thread.
    group : callable, optional
        Key of an item; only items of equal keys share a batch, and an item of key None shares with no
        other. None lets all items share.
    weight : callable, optional
        Size of an item, counted against `limit`; None counts every item as 1.
    limit : int or None
        Largest total weight of a batch, which a single item may exceed; None sets no limit.

    Privacy
    -------
    :meth:`submit` returns nothing, neither a result nor an error of an item, before `work` has returned. If
    `work` ends with a durable commit, all that its results allow was paid for whatever happens next, and no
    refusal depends on a charge of another caller that was lost.

    Reference
    ---------
    ``docs/explanation/theorems/composition.md``.
    """

    def __init__(
        self,
        work: Callable[[Callable[[], list[Item]]], Sequence[Result | Exception]],
        *,
        failure: Callable[[BaseException], Exception],
        group: Callable[[Item], Hashable] | None = None,
        weight: Callable[[Item], int] | None = None,
        limit: int | None = 64,
    ) -> None:
        """Start with an empty queue and no leader."""
        self._work = work
        self._group = group
        self._weight = weight
        self._limit = limit
        self._failure = failure
        self._lock = threading.Lock()
        self._waiting: deque[_Entry[Item, Result]] = deque()
        self._busy = False

    def submit(self, items: Sequence[Item], timeout: float | None = None) -> list[Result | Exception]:
        """Execute items, alone or together with those of other threads, and return their results.

        Parameters
        ----------
        items : sequence
            Items of this caller. Those that may share a batch stay in one as far as `limit` allows.
        timeout : float, optional
            Seconds to wait until a batch takes the items; None waits without end.

        Returns
        -------
        list
            Result of each item, or the Exception by which it failed alone.

        Raises
        ------
        TimeoutError
            No batch took the items in time; they are not executed.
        BaseException
            What `work` raised if this thread led the batch, otherwise what `failure` made of it.
        """
        results: dict[int, Result | Exception] = {}
        for entry in self._entries(items):
            results.update(zip(entry.numbers, self._run(entry, timeout), strict=True))
        return [results[number] for number in range(len(items))]

    def _entries(self, items: Sequence[Item]) -> list[_Entry[Item, Result]]:
        """Return the items of a caller as entries of one key each, none heavier than the limit."""
        entries: list[_Entry[Item, Result]] = []
        last: dict[Hashable, _Entry[Item, Result]] = {}
        for number, item in enumerate(items):
            key = True if self._group is None else self._group(item)
            weight = 1 if self._weight is None else self._weight(item)
            entry = None if key is None else last.get(key)
            if entry is None or not self._fits(entry.weight + weight):
                entry = last[key] = _Entry(key)
                entries.append(entry)
            entry.items.append(item)
            entry.numbers.append(number)
            entry.weight += weight
        return entries

    def _fits(self, weight: int) -> bool:
        return self._limit is None or weight <= self._limit

    def _run(self, entry: _Entry[Item, Result], timeout: float | None) -> Sequence[Result | Exception]:
        """Lead a batch with the entry if the executor is idle, else wait until another thread did."""
        with self._lock:
            if self._busy:
                self._waiting.append(entry)
            else:
                self._busy = entry.leads = True
        if not entry.leads:
            self._wait(entry, timeout)
        if entry.leads:
            self._lead(entry)
        error, entry.error = entry.error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback holds this frame: leave no reference cycle
        return entry.results

    def _wait(self, entry: _Entry[Item, Result], timeout: float | None) -> None:
        """Wait until the entry was executed or has to lead."""
        try:
            if entry.gate.acquire(timeout=-1 if timeout is None else timeout):
                return
            left = self._leave(entry)
            if not left:
                # A batch has it already: only its leader can tell how that ends.
                entry.gate.acquire()
        except BaseException:
            # An interrupt. No thread may wait for one that is gone.
            if not self._leave(entry) and entry.leads:
                self._hand_over()
            raise
        if left:
            raise TimeoutError("another thread is writing")

    def _leave(self, entry: _Entry[Item, Result]) -> bool:
        """Take an entry out of the queue; return whether it was still there."""
        with self._lock:
            if entry not in self._waiting:
                return False
            self._waiting.remove(entry)
            return True

    def _lead(self, own: _Entry[Item, Result]) -> None:
        """Execute a batch and give each of its other callers their results, or an error of their own."""
        batch = [own]
        taken = False

        def take() -> list[Item]:
            nonlocal taken
            assert not taken, "a batch is taken once"
            taken = True
            batch.extend(self._join(own))
            return [item for entry in batch for item in entry.items]

        try:
            results = self._work(take)
            assert len(results) == sum(len(entry.items) for entry in batch), "one result per item"
            start = 0
            for entry in batch:
                entry.results = results[start : start + len(entry.items)]
                start += len(entry.items)
        except BaseException as error:
            # Also when interrupted: those that joined the batch must not go on without results.
            if not taken:
                # Work that failed before its lock was held fails for all that wait for the same lock.
                batch.extend(self._join(own))
            for other in batch[1:]:
                other.error = self._failure(error)
            raise
        finally:
            self._hand_over()
            for other in batch[1:]:
                other.gate.release()

    def _join(self, own: _Entry[Item, Result]) -> list[_Entry[Item, Result]]:
        """Take the waiting entries that share a batch with one, in the order in which they came."""
        joined: list[_Entry[Item, Result]] = []
        if own.key is None:
            return joined
        weight = own.weight
        with self._lock:
            for other in [other for other in self._waiting if other.key == own.key]:
                weight += other.weight
                if not self._fits(weight):
                    break
                joined.append(other)
                self._waiting.remove(other)
        return joined

    def _hand_over(self) -> None:
        """Let the first waiting entry lead the next batch, or become idle."""
        with self._lock:
            if not self._waiting:
                self._busy = False
                return
            following = self._waiting.popleft()
            following.leads = True
        following.gate.release()


class Step(NamedTuple):
    """Stage of a query that it waits for.

    Attributes
    ----------
    execute : callable
        Executes a list of items and returns one result per item, an Exception for one that failed alone.
        Steps that name the same callable are executed together.
    item : object
        Item that is passed to `execute` for this query.
    """

    execute: Callable[[Sequence[Any]], Sequence[Any]]
    item: Any


QueryTask: TypeAlias = Generator[Step, Any, T]
"""Stages of a query: a generator that yields steps, is sent the result of each, and returns the answer."""

_Running: TypeAlias = tuple[int, QueryTask[Any], Step]


def run_one(task: QueryTask[T]) -> T:
    """Run one query task to its end, executing its steps one at a time, and return its value."""
    result: Any = None
    try:
        while True:
            step = task.throw(result) if isinstance(result, Exception) else task.send(result)
            (result,) = step.execute([step.item])
    except StopIteration as end:
        value: T = end.value
        return value
    finally:
        del result  # an error's traceback holds this frame: leave no reference cycle


def run_batch(tasks: Iterable[QueryTask[Any]], on_done: Callable[[list[tuple[int, Any]]], None]) -> None:
    """Run query tasks side by side, executing at once all steps that wait for the same executor.

    Parameters
    ----------
    tasks : iterable of QueryTask
        Tasks to run; an exception ends its own task alone.
    on_done : callable
        Function called with the number and the value, or the Exception, of each task that has ended, before
        the others continue.

    Privacy
    -------
    A step that is refused or fails is thrown into its own task and into no other.
    """
    done: list[tuple[int, Any]] = []
    running: list[_Running] = []
    for number, task in enumerate(tasks):
        _advance(number, task, None, running, done)
    while running or done:
        if done:
            on_done(done)
            done = []
        groups: dict[Callable[[Sequence[Any]], Sequence[Any]], list[_Running]] = {}
        for entry in running:
            groups.setdefault(entry[2].execute, []).append(entry)
        running = []
        for execute, group in groups.items():
            for (number, task, _), result in zip(group, _execute(execute, group), strict=True):
                _advance(number, task, result, running, done)


def _execute(execute: Callable[[Sequence[Any]], Sequence[Any]], group: list[_Running]) -> Sequence[Any]:
    """Execute the steps of several tasks; if that fails as a whole, return an error for each."""
    try:
        return execute([step.item for _, _, step in group])
    except Exception as error:
        # Whatever the engine or the ledger raised: each task decides what it means.
        return [error, *(copy(error) for _ in group[1:])]


def _advance(
    number: int, task: QueryTask[Any], result: Any, running: list[_Running], done: list[tuple[int, Any]]
) -> None:
    """Send a task the result of its step and run it until it yields the next one, or ends."""
    try:
        step = task.throw(result) if isinstance(result, Exception) else task.send(result)
    except StopIteration as end:
        done.append((number, end.value))
    except Exception as error:
        # Whatever the task raised is its result: the other tasks of the batch go on.
        done.append((number, error))
    else:
        running.append((number, task, step))
