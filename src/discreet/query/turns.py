"""Many who ask one engine: those who wait together share a pass."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

from discreet.errors import EngineFailed
from discreet.privacy.receipt import canonical

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from discreet.query.aggregates import BoundAggregate
    from discreet.query.engines.base import Engine, EngineTask

_WIDEST = 64
"""Sums or tables in one pass: DuckDB plans each for half a millisecond, which all who share it wait for."""


class Turns:
    """Lets one thread at a time ask an engine, for all who wait with questions that go together.

    Privacy
    -------
    The integers of a question are the same in a pass of its own and in a shared one. A shared pass that fails
    is made again for each question alone, so that nobody fails because of what another asked.

    Reference
    ---------
    docs/explanation/theorems/sulq-sensitivity.md.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._busy = False
        self._waiting: deque[_Party] = deque()

    def exact(self, engine: Engine, bounds: Sequence[BoundAggregate]) -> list[list[int] | EngineFailed]:
        """Return the exact integers of questions, or why there are none; waits until the engine is free."""
        places = [_Place(bound) for bound in bounds]
        by_kind: dict[type[EngineTask], list[_Place]] = {}
        for place in places:
            by_kind.setdefault(type(place.bound.wanted), []).append(place)
        for alike in by_kind.values():
            self._attend(engine, _Party(alike))
        return [place.failure or EngineFailed() if place.found is None else place.found for place in places]

    def _attend(self, engine: Engine, party: _Party) -> None:
        with self._mutex:
            if self._busy:
                self._waiting.append(party)
            else:
                self._busy = party.leads = True
        if not party.leads:
            self._wait(party)
        if party.leads:
            self._lead(engine, party)

    def _wait(self, party: _Party) -> None:
        try:
            party.ready.wait()
        except BaseException:  # an interrupt: nobody may wait for whoever has left
            with self._mutex:
                if party.leads:
                    self._hand_over()
                elif party in self._waiting:
                    self._waiting.remove(party)
            raise

    def _lead(self, engine: Engine, party: _Party) -> None:
        with self._mutex:
            together = [party, *self._joining(party)]
        try:
            for places in _passes([place for one in together for place in one.places]):
                _serve(engine, places)
        finally:
            with self._mutex:
                self._hand_over()
            for other in together[1:]:
                other.ready.set()

    def _joining(self, party: _Party) -> list[_Party]:
        """Take those who wait for a pass of the same kind, in the order in which they came."""
        kind, width = type(party.places[0].bound.wanted), party.width
        joining: list[_Party] = []
        for other in [other for other in self._waiting if kind.shares and other.kind is kind]:
            width += other.width
            if width > _WIDEST:
                break
            joining.append(other)
            self._waiting.remove(other)
        return joining

    def _hand_over(self) -> None:
        """Let the first who waits lead the next pass. Under the mutex."""
        if self._waiting:
            following = self._waiting.popleft()
            following.leads = True
            following.ready.set()
        else:
            self._busy = False


class _Place:
    """A question that waits, and what it is given."""

    __slots__ = ("bound", "failure", "found")

    def __init__(self, bound: BoundAggregate) -> None:
        self.bound = bound
        self.found: list[int] | None = None
        self.failure: EngineFailed | None = None


class _Party:
    """The questions of one kind that one thread came with."""

    def __init__(self, places: list[_Place]) -> None:
        self.places = places
        self.kind: type[EngineTask] = type(places[0].bound.wanted)
        self.width = sum(place.bound.wanted.width for place in places)
        self.leads = False
        self.ready = threading.Event()


def _passes(places: list[_Place]) -> Iterator[list[_Place]]:
    """Split those who go together where a pass would become too wide."""
    some: list[_Place] = []
    width = 0
    for place in places:
        wanted = place.bound.wanted
        if some and (not wanted.shares or width + wanted.width > _WIDEST):
            yield some
            some, width = [], 0
        some.append(place)
        width += wanted.width
    yield some


def _serve(engine: Engine, places: list[_Place]) -> None:
    if len(places) > 1:
        with contextlib.suppress(EngineFailed):
            # Those who ask the same are given the same.
            alike: dict[str, list[_Place]] = {}
            for place in places:
                alike.setdefault(canonical(place.bound.canonical), []).append(place)
            wanted = [same[0].bound.wanted for same in alike.values()]
            for same, found in zip(alike.values(), wanted[0].found(engine, wanted), strict=True):
                for place in same:
                    place.found = place.bound.finish(found, engine.count())
            return
    for place in places:
        try:
            place.found = place.bound.exact(engine)
        except EngineFailed as failure:
            place.failure = failure
