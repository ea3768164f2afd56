"""Many threads at one engine: those who wait together share a pass, those who ask the same share a draw."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING

from discreet.errors import EngineFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from discreet.query.engines.base import Engine
    from discreet.query.questions import Bound

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
        self._waiting: deque[_Place] = deque()

    def exact(self, engine: Engine, bound: Bound) -> list[int]:
        """Return the exact integers of a question; waits until the engine is free."""
        place = _Place(bound)
        with self._mutex:
            if self._busy:
                self._waiting.append(place)
            else:
                self._busy = place.leads = True
        if not place.leads:
            self._wait(place)
        if place.leads:
            self._lead(engine, place)
        return place.taken()

    def _wait(self, place: _Place) -> None:
        try:
            place.ready.wait()
        except BaseException:  # an interrupt: nobody may wait for whoever has left
            with self._mutex:
                if place.leads:
                    self._hand_over()
                elif place in self._waiting:
                    self._waiting.remove(place)
            raise

    def _lead(self, engine: Engine, place: _Place) -> None:
        with self._mutex:
            together = [place, *self._joining(place)]
        try:
            _serve(engine, together)
        finally:
            with self._mutex:
                self._hand_over()
            for other in together[1:]:
                other.ready.set()

    def _joining(self, place: _Place) -> list[_Place]:
        """Take those who wait for a pass of the same kind, in the order in which they came."""
        kind, width = type(place.bound.wanted), place.bound.wanted.width
        joining: list[_Place] = []
        for other in [other for other in self._waiting if kind.shares and type(other.bound.wanted) is kind]:
            width += other.bound.wanted.width
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
    """Somebody who waits, and what they are given."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self.leads = False
        self.ready = threading.Event()
        self.found: list[int] | None = None
        self.failure: EngineFailed | None = None

    def taken(self) -> list[int]:
        if self.found is None:
            raise self.failure or EngineFailed
        return self.found


def _serve(engine: Engine, places: list[_Place]) -> None:
    if len(places) > 1:
        with contextlib.suppress(EngineFailed):
            wanted = [place.bound.wanted for place in places]
            found = wanted[0].found(engine, wanted)
            for place, integers in zip(places, found, strict=True):
                place.found = place.bound.finish(integers, engine.count())
            return
    for place in places:
        try:
            place.found = place.bound.exact(engine)
        except EngineFailed as failure:
            place.failure = failure


class Once:
    """Lets threads that want the same thing at the same time have it done once."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._under_way: dict[str, _Work] = {}

    @contextlib.contextmanager
    def shared(self, key: str) -> Iterator[_Work]:
        """Hold on to some work: what was done stays until all who wanted it have let go."""
        with self._mutex:
            work = self._under_way.setdefault(key, _Work())
            work.wanted += 1
        try:
            yield work
        finally:
            with self._mutex:
                work.wanted -= 1
                if not work.wanted:
                    del self._under_way[key]


class _Work:
    def __init__(self) -> None:
        self.wanted = 0
        self._doing = threading.Lock()
        self._made: list[int] | None = None

    def done(self, act: Callable[[], list[int]]) -> list[int]:
        """Return what somebody did already, or do it; after a failure the next one tries."""
        with self._doing:
            if self._made is None:
                self._made = act()
            return self._made
