"""Start-time fair queueing: whose work comes next, so that each caller gets the same share of it.

An item gets a start tag, the virtual time at which its caller's earlier items are done, and a finish tag,
later by its work. Items are taken by increasing start tags, and the virtual time is the start tag of the last
one taken. Over any time in which two callers have items waiting, the work taken for the two differs by at
most the largest item of each (P. Goyal, H. M. Vin, H. Cheng: Start-time Fair Queueing, SIGCOMM 1996).
"""

from __future__ import annotations

import heapq
import itertools
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

T = TypeVar("T")


class _Entry(NamedTuple):
    """Waiting item with its start tag, and its place among items of one tag."""

    start: float
    number: int
    work: float
    item: object


class FairQueue(Generic[T]):
    """Queue from which items are taken so that the work of all callers goes forward at the same pace."""

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
