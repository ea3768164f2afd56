"""Events that may tell two inputs apart, proposed by looking at one half of the outputs.

A family looks at training outputs under both inputs and proposes events. Whatever it does is fair,
since what it proposes is tested on other outputs. Each event is an indicator of outputs; an event
stands for its complement too.

To add a family: a function ``family(train_a, train_b) -> list of Event``, and its name in the list that
an attack passes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from discreet._typing import AnyArray, Bools, Floats, Ints

Score: TypeAlias = Callable[["AnyArray"], "AnyArray"]
"""One number per output."""
Family: TypeAlias = Callable[["AnyArray", "AnyArray"], "list[Event]"]
"""From training outputs under two inputs to events."""

MOST_COORDINATES = 64
"""Coordinates looked at one by one; a long output is covered by its learned score besides."""
_THRESHOLDS = 60
_CELLS = 64
_COMMONEST = 8


@dataclass(frozen=True)
class Event:
    """A set of outputs: those whose ``score`` passes ``test``.

    Events of one family share their score, so that it is computed once for all of them.
    """

    name: str
    score: Score
    test: Callable[[AnyArray], Bools]

    def contains(self, outputs: AnyArray) -> Bools:
        """Say of each output whether it is in the set."""
        return self.test(self.score(outputs))


def count_hits(events: Sequence[Event], outputs: AnyArray) -> Ints:
    """Return how many of the outputs lie in each event."""
    scores: dict[Score, AnyArray] = {}
    counts = np.empty(len(events), np.int64)
    for i, event in enumerate(events):
        if event.score not in scores:
            scores[event.score] = event.score(outputs)
        counts[i] = np.count_nonzero(event.test(scores[event.score]))
    return counts


def half_lines(train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose "score above a threshold", for thresholds from the extremes to the middle."""
    return [
        Event(f"{name} >= {threshold:.17g}", score, partial(np.less_equal, threshold))
        for name, score in _scores(train_a, train_b)
        for threshold in _thresholds(score(train_a), score(train_b))
    ]


def atoms(train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose "coordinate equal to a value", for the values seen most often."""
    events = []
    for j in range(min(train_a.shape[1], MOST_COORDINATES)):
        score = _coordinate(j)
        for train in (train_a, train_b):
            values, counts = np.unique(score(train), return_counts=True)
            common = np.argsort(counts)[::-1][:_COMMONEST]
            events += [
                Event(f"output[{j}] == {values[i]}", score, partial(np.equal, values[i]))
                for i in common
                if counts[i] > 1
            ]
    return events


def likelihood_ratio(train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose unions of the cells of a score that are likelier under one input than the other."""
    events = []
    for name, score in _scores(train_a, train_b):
        pooled = np.concatenate([score(train_a), score(train_b)])
        edges = np.unique(np.quantile(pooled, np.linspace(0, 1, _CELLS + 1)[1:-1], method="inverted_cdf"))
        events += likelier_cells(f"cells of {name}", _cell(score, edges), train_a, train_b)
    return events


def likelier_cells(name: str, place: Score, train_a: AnyArray, train_b: AnyArray) -> list[Event]:
    """Propose nested unions of cells, those with the highest ratio of counts first.

    ``place`` gives each output the number of its cell.
    """
    cells_a, cells_b = place(train_a), place(train_b)
    size = int(max(cells_a.max(), cells_b.max())) + 1
    counts_a, counts_b = np.bincount(cells_a, minlength=size), np.bincount(cells_b, minlength=size)
    seen = np.flatnonzero(counts_a + counts_b)
    ratio = (counts_a[seen] + 0.5) / (counts_b[seen] + 0.5)
    order = seen[np.argsort(ratio)[::-1]]
    cuts = np.unique(np.linspace(1, max(1, order.size - 1), _THRESHOLDS).astype(int))
    events = []
    for cut in cuts:
        # The last place stands for every cell that training never saw.
        chosen = np.zeros(size + 1, np.bool_)
        chosen[order[:cut]] = True
        events.append(Event(f"{name}: the {cut} likeliest of {order.size}", place, partial(_among, chosen)))
    return events


def _scores(train_a: AnyArray, train_b: AnyArray) -> list[tuple[str, Score]]:
    """Return numbers to order outputs by: each coordinate, a learned direction, the norm."""
    width = train_a.shape[1]
    scores = [(f"output[{j}]", _coordinate(j)) for j in range(min(width, MOST_COORDINATES))]
    if width > 1:
        scores.append(("learned direction", _direction(train_a, train_b)))
        scores.append(("norm", _norm))
    return scores


def _direction(train_a: AnyArray, train_b: AnyArray) -> Score:
    """Return Fisher's linear discriminant of the two samples."""
    a, b = _finite(train_a), _finite(train_b)
    pooled = np.concatenate([a, b])
    center, spread = pooled.mean(axis=0), pooled.std(axis=0)
    spread[spread == 0] = 1.0
    a, b = (a - center) / spread, (b - center) / spread
    # A draw that is used twice leaves a direction without any noise: the ridge must not drown it.
    within = (np.cov(a, rowvar=False) + np.cov(b, rowvar=False)) / 2 + 1e-10 * np.eye(a.shape[1])
    weights = np.linalg.solve(within, a.mean(axis=0) - b.mean(axis=0))
    return lambda x: (_finite(x) - center) / spread @ weights


def _thresholds(a: AnyArray, b: AnyArray) -> Floats:
    """Return pooled values, evenly spread and more at both ends, where tails are compared."""
    pooled = np.sort(np.concatenate([a, b]))
    tail = np.geomspace(1 / pooled.size, 0.5, _THRESHOLDS // 3)
    ranks = np.concatenate([tail, 1 - tail, np.linspace(0, 1, _THRESHOLDS // 3)])
    return np.unique(pooled[np.minimum((ranks * pooled.size).astype(int), pooled.size - 1)])


@cache
def _coordinate(j: int) -> Score:
    # What is not a number counts as infinite: that it happened is an output like any other.
    return lambda x: np.nan_to_num(x[:, j].astype(np.float64), nan=np.inf, posinf=np.inf, neginf=-np.inf)


def _finite(x: AnyArray) -> Floats:
    return np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def _norm(x: AnyArray) -> AnyArray:
    return np.asarray(np.linalg.norm(_finite(x), axis=1))


def _cell(score: Score, edges: Floats) -> Score:
    return lambda x: np.searchsorted(edges, score(x), side="right")


def _among(chosen: Bools, cells: AnyArray) -> Bools:
    return np.asarray(chosen[np.minimum(cells, chosen.size - 1)])
